"""Logs with damage of every kind: nothing but our own errors comes out, nothing hangs, and what is intact is kept.

``BAROGRAPH_MUTATIONS`` is the number of files; without it some hundred are tried.
"""

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from example_logs import EXAMPLES, LONG_AGO, files_of, write_example

import barograph
from barograph.base.errors import BarographError
from barograph.importers import formats
from barograph.importers.formats import FAILURES, FORMATS, format_of
from barograph.importers.formats.consoles import areal
from barograph.importers.logs import log_at, logs_at
from barograph.journal.view import View

FILES = int(os.environ.get("BAROGRAPH_MUTATIONS", "340"))
PART = 100  # files of one test
SECONDS = 20  # that one file may take; they take some milliseconds
NUMBER = re.compile(rb"\d+(?:\.\d+)?(?:e-?\d+)?")
HUGE = (b"1e999", b"9" * 400, b"-9223372036854775809", b"nan", b"0" * 5000, b"1e-400", b"18446744073709551616", b"-")


def flipped(data: bytes, chance: random.Random) -> bytes:
    """Change some bytes."""
    other = bytearray(data)
    for _ in range(chance.randint(1, 40)):
        other[chance.randrange(len(other))] = chance.randrange(256)
    return bytes(other)


def replaced(data: bytes, chance: random.Random) -> bytes:
    """Replace some pieces by random ones of another length."""
    other = bytearray(data)
    for _ in range(chance.randint(1, 10)):
        place = chance.randrange(len(other) + 1)
        other[place : place + chance.randint(0, 30)] = chance.randbytes(chance.randint(0, 30))
    return bytes(other)


def truncated(data: bytes, chance: random.Random) -> bytes:
    """Keep the beginning."""
    return data[: chance.randrange(len(data))]


def beheaded(data: bytes, chance: random.Random) -> bytes:
    """Keep the end."""
    return data[chance.randrange(len(data)) :]


def doubled(data: bytes, chance: random.Random) -> bytes:
    """Write everything, or a part, several times."""
    return data[: chance.randint(1, len(data))] * chance.randint(2, 4)


def spliced(data: bytes, chance: random.Random) -> bytes:
    """Put a part somewhere else."""
    first, second, place = sorted(chance.randrange(len(data) + 1) for _ in range(3))
    return data[:first] + data[second:place] + data[first:second] + data[place:]


def with_binary(data: bytes, chance: random.Random) -> bytes:
    """Insert random bytes."""
    place = chance.randrange(len(data) + 1)
    return data[:place] + chance.randbytes(chance.randint(1, 5000)) + data[place:]


def with_zeros(data: bytes, chance: random.Random) -> bytes:
    """Insert zeros, as a machine that crashed leaves them."""
    place = chance.randrange(len(data) + 1)
    return data[:place] + b"\0" * chance.choice((1, 100, 5000)) + data[place:]


def only_binary(data: bytes, chance: random.Random) -> bytes:
    """Keep nothing but the first bytes."""
    return data[: chance.randrange(20)] + chance.randbytes(chance.randint(1, 5000))


def in_other_encoding(data: bytes, chance: random.Random) -> bytes:
    """Encode it as another machine does."""
    text = data.decode("utf-8", "replace").replace("o", "ö")
    return text.encode(chance.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig", "cp037")), "replace")


def with_other_ends(data: bytes, chance: random.Random) -> bytes:
    """End lines in another way."""
    return data.replace(b"\n", chance.choice((b"\r\n", b"\r", b"\n\n", b"\x85", b" ", b"")))


def one_line(data: bytes, chance: random.Random) -> bytes:
    """Keep one line."""
    return chance.choice(data.split(b"\n")) + chance.choice((b"", b"\n"))


def shuffled(data: bytes, chance: random.Random) -> bytes:
    """Change the order of lines."""
    lines = data.split(b"\n")
    chance.shuffle(lines)
    return b"\n".join(lines)


def empty(data: bytes, chance: random.Random) -> bytes:
    """Keep nothing, or a newline."""
    return chance.choice((b"", b"\n", b" ", b"\xef\xbb\xbf", b"\xff\xfe"))


def with_odd_numbers(data: bytes, chance: random.Random) -> bytes:
    """Replace some numbers by ones that fit nowhere."""
    share = chance.choice((0.02, 0.3, 1.0))
    return NUMBER.sub(lambda match: chance.choice(HUGE) if chance.random() < share else match[0], data)


def deep(data: bytes, chance: random.Random) -> bytes:
    """Insert brackets of a depth that no parser has."""
    place = chance.randrange(len(data) + 1)
    return data[:place] + chance.choice((b"[", b'{"a":', b"(", b"{'a': [", b"<td>")) * 30_000 + data[place:]


def with_long_line(data: bytes, chance: random.Random) -> bytes:
    """Insert a line of more than a megabyte."""
    place = data.rfind(b"\n", 0, chance.randrange(len(data) + 1)) + 1
    return data[:place] + chance.choice((b"x", b"1,", b"a:1 - ", b"\r")) * 700_000 + b"\n" + data[place:]


def with_long_word(data: bytes, chance: random.Random) -> bytes:
    """Insert one byte very often, which a pattern may try at every place."""
    place = chance.randrange(len(data) + 1)
    return data[:place] + chance.choice((b"9", b" ", b"x", b"=", b"[", b"1.", b"a ", b"'")) * 200_000 + data[place:]


def without_some_marks(data: bytes, chance: random.Random) -> bytes:
    """Remove a mark everywhere."""
    return data.replace(chance.choice((b'"', b"'", b":", b",", b"}", b"]", b"|", b" ", b"<", b"1")), b"")


MUTATIONS: list[Callable[[bytes, random.Random], bytes]] = [
    flipped, replaced, truncated, beheaded, doubled, spliced, with_binary, with_zeros, only_binary, in_other_encoding,
    with_other_ends, one_line, shuffled, empty, with_odd_numbers, deep, with_long_line, with_long_word,
    without_some_marks,
]  # fmt: skip


@contextmanager
def limited(seconds: float, what: str) -> Iterator[None]:
    """Fail if the body takes longer."""

    def on_alarm(number: int, frame: object) -> None:
        pytest.fail(f"{what} took longer than {seconds} s")

    previous, began = signal.signal(signal.SIGALRM, on_alarm), time.monotonic()
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 0.1) if left else 0)


def read_everything(view: View) -> int:
    """Read all that a page or a command reads; return the number of values."""
    count = sum(len(view.series(name)) for name in view.names())
    samples = view.samples(limit=100)
    assert not [text for text in view.damage() if "the rest cannot be read: " in text], view.damage()
    assert view.status.word in ("running", "finished", "crashed", "killed")
    return count + len(samples) + len(view.texts()) + len(view.config)


def try_to_open(path: Path) -> None:
    """Open the logs at a path and read everything; a log may be refused, with a message."""
    with suppress(BarographError):
        for log in logs_at(path)[:3]:
            view = barograph.open(f"{log.path}#{log.member}" if log.member else log.path)
            read_everything(view)
            view.refresh()


def mutate(folder: Path, chance: random.Random) -> str:
    """Damage one file of a log, in one way or two; return how."""
    file = chance.choice(files_of(folder))
    data = file.read_bytes()
    ways = chance.sample(MUTATIONS, chance.choice((1, 1, 2)))
    for way in ways:
        data = way(data or b"\n", chance)
    file.write_bytes(data)
    if chance.random() < 0.7:
        os.utime(file, (LONG_AGO, LONG_AGO))
    return f"{file.name}: {', '.join(way.__name__ for way in ways)}"


@pytest.mark.parametrize("part", range(-(-FILES // PART)))
def test_damaged_logs_are_read_or_refused(part: int, tmp_path: Path):
    """Whatever is damaged, and in every format."""
    names = sorted(EXAMPLES)
    for number in range(part * PART, min(part * PART + PART, FILES)):
        chance = random.Random(number)
        folder = tmp_path / f"{number}"
        path = write_example(names[number % len(names)], folder)
        FAILURES.clear()
        how = f"file {number}, {names[number % len(names)]}, {mutate(folder, chance)}"
        try:
            with limited(SECONDS, how):
                try_to_open(path)
            assert not FAILURES
        except Exception as problem:
            raise AssertionError(how) from problem
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_are_recognised_and_read_without_damage(name: str, tmp_path: Path):
    """Otherwise damaged ones would show nothing."""
    path = write_example(name, tmp_path / "log")
    log = log_at(path)
    view = barograph.open(path)
    assert log.format in name or name in ("rollout_file", "wandb_table")
    assert view.damage() == []
    assert read_everything(view) >= 5


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_what_is_before_the_damage_is_kept(name: str, tmp_path: Path):
    """The values of a log whose end is damaged are those that it had."""
    whole = barograph.open(write_example(name, tmp_path / "whole"))
    path = write_example(name, tmp_path / "damaged")
    for file in files_of(tmp_path / "damaged"):
        if file.suffix not in (".parquet", ".md"):
            file.write_bytes(file.read_bytes() + b"\xff\xfe{\0[(\n\x80damaged")
            os.utime(file, (LONG_AGO, LONG_AGO))
    view = barograph.open(path)
    for metric in whole.names():
        expected, found = whole.series(metric), view.series(metric)
        assert repr(found.values.tolist()) == repr(expected.values.tolist())
        assert found.steps.tolist() == expected.steps.tolist()
    assert len(view.samples()) == len(whole.samples())


def test_a_format_that_fails_leaves_a_log_to_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One odd file does not hide the other logs of a directory."""
    write_example("json_lines", tmp_path)
    broken = replace(areal.FORMAT, matches=lambda seen: 1 / 0)
    monkeypatch.setattr(formats, "format_of", lambda name: broken if name == "areal" else format_of(name))
    assert [log.format for log in logs_at(tmp_path)] == ["json_lines"]
    assert "ZeroDivisionError" in FAILURES.pop()
    FAILURES.clear()


def test_every_format_has_an_example():
    """So that damage of each is tried."""
    assert set(FORMATS) - set(EXAMPLES) == set()
