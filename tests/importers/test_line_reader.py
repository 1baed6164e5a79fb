"""Text logs are read line by line: only what is new, and only lines that can matter."""

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from barograph.importers.reading import lines as text_lines
from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import MAX_LINE, Line, Log, RewrittenError, clean_line, first_time, time_in
from barograph.importers.recorder import Recorder


class Rows(LineReader):
    """Takes lines with "row" for rows, and keeps what it was given."""

    needles = (b"row",)

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        self.given: list[Line] = []

    def line(self, line: Line, out: Recorder) -> bool:
        """Keep a line."""
        self.given.append(line)
        if "bad" in line.text:
            raise RuntimeError("what a line can do")
        return "row" in line.text


class Everything(Rows):
    """Looks at every line."""

    needles = ()


def recorder(tmp_path: Path) -> Recorder:
    (tmp_path / "journal").mkdir(exist_ok=True)
    return Recorder(tmp_path / "journal", {}, {"path": "", "format": "", "title": ""}, 1.0)


def write(path: Path, data: bytes, age: float = 60.0) -> Log:
    path.write_bytes(data)
    os.utime(path, (time.time() - age, time.time() - age))
    return Log(path, "rows")


def read(log: Log, out: Recorder, state: dict[str, Any] | None = None, kind: type[Rows] = Rows) -> Rows:
    reader = kind(log, {} if state is None else state)
    reader.read(out)
    return reader


def test_only_lines_with_a_needle_are_given_with_their_numbers(tmp_path: Path):
    """Lines without one are counted, the last one without a newline too once the file is settled."""
    log = write(tmp_path / "a.log", b"x\n\nrow 1\nx\nx row\n\nrow 3")
    reader = read(log, recorder(tmp_path))
    assert [(line.number, line.text) for line in reader.given] == [(3, "row 1"), (5, "x row"), (7, "row 3")]
    assert reader.state["line"] == 7
    assert reader.state["offset"] == log.path.stat().st_size


def test_any_text_is_read_like_its_split_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With chunks of any size, a file gives the lines and numbers that splitting it gives."""
    chance = random.Random(3)
    for number in range(200):
        parts = [chance.choice([b"row", b"x", b"\n", b"\n\n", b"Killed", b"ro", b"w"]) for _ in range(60)]
        data = b"".join(parts)
        monkeypatch.setattr(text_lines, "CHUNK", chance.randint(1, 40))
        log = write(tmp_path / f"{number}.log", data)
        lines = data.decode().split("\n")
        expected = [(n, text) for n, text in enumerate(lines, 1) if "row" in text or "Killed" in text]
        assert [(line.number, line.text) for line in read(log, recorder(tmp_path)).given] == expected
        everything = read(log, recorder(tmp_path), kind=Everything)
        last = len(lines) - (lines[-1] == "")
        assert [(line.number, line.text) for line in everything.given] == list(enumerate(lines[:last], 1))


def test_a_second_reading_reads_only_what_is_new(tmp_path: Path):
    """It continues after the last complete line, with its number."""
    log = write(tmp_path / "a.log", b"row 1\nrow 2\nrow", age=0)
    out = recorder(tmp_path)
    first = read(log, out)
    assert [line.text for line in first.given] == ["row 1", "row 2"]
    with log.path.open("ab") as file:
        file.write(b" 3\nrow 4\n")
    second = read(log, out, first.state)
    assert [(line.number, line.text) for line in second.given] == [(3, "row 3"), (4, "row 4")]
    write(log.path, b"row 9\n")
    with pytest.raises(RewrittenError):
        read(log, out, second.state)


def test_a_line_that_raises_does_not_stop_the_others(tmp_path: Path):
    """It is counted, with its number."""
    out = recorder(tmp_path)
    reader = read(write(tmp_path / "a.log", b"row 1\nbad row\nrow 2\n"), out)
    assert len(reader.given) == 3
    assert out.state["unread"] == [
        {"where": "line 2", "reason": "cannot be read: RuntimeError: what a line can do", "count": 1}
    ]


def test_a_line_that_is_too_long_is_reduced_to_what_a_progress_bar_left(tmp_path: Path):
    """The part after the last carriage return is what a person saw; without one the line is counted as not read."""
    out = recorder(tmp_path)
    bar = b"50%|#####     | 1/2\r" * (6 * MAX_LINE // 20)
    reader = read(write(tmp_path / "a.log", bar + b"row 1\n" + b"row" * MAX_LINE + b"\nrow 2\n"), out)
    assert [line.text for line in reader.given if line.text in ("row 1", "row 2")] == ["row 1", "row 2"]
    assert out.state["unread"][0]["reason"] == f"a line of more than {MAX_LINE:,} bytes"


def test_the_first_end_counts_and_a_row_after_it_forgets_it(tmp_path: Path):
    """An exception is followed by others; a training that went on has not ended."""
    text = b"""row
Traceback (most recent call last):
  File "x.py", line 1
ValueError: first
Traceback (most recent call last):
RuntimeError: second
"""
    out = recorder(tmp_path)
    first = read(write(tmp_path / "a.log", text), out)
    assert (out.state["status"], out.state["reason"]) == ("crashed", "line 4: ValueError: first")
    write(tmp_path / "a.log", text + b"row\n")
    read(first.log, out, first.state)
    assert out.state["status"] is None


def test_an_exception_is_not_looked_for_for_ever(tmp_path: Path):
    """A traceback whose last line is missing ends after some lines, so that the rest is read quickly."""
    text = b"Traceback (most recent call last):\n" + b"x\n" * 5000 + b"row\n"
    reader = read(write(tmp_path / "a.log", text), recorder(tmp_path))
    assert len(reader.given) < 2100


def test_utf16_is_read(tmp_path: Path):
    """A log that PowerShell redirected to a file is UTF-16."""
    out = recorder(tmp_path)
    reader = read(write(tmp_path / "a.log", "x\r\nrow 1\r\nrow é\r\n".encode("utf-16")), out)
    assert [(line.number, line.text) for line in reader.given] == [(2, "row 1"), (3, "row é")]


def test_times_before_lines_are_told(tmp_path: Path):
    """Of containers, loggers in brackets, and the first one of a log; digits elsewhere are no time."""
    at = 1742685531.0
    assert clean_line("2025-03-22T23:18:51.5Z step:1").at == at + 0.5
    assert time_in("[2025-03-22 23:18:51,962] [INFO] x") == pytest.approx(at + 0.962)
    assert first_time("x\n\x1b[1m2025-03-22 23:18:51,962\tINFO worker.py\n") == pytest.approx(at + 0.962)
    assert first_time('{"date": "2025-03-22T23:18:51"}\n') is None
    assert first_time("INFO 2025-03-22 23:18:51 x") == at
    out = recorder(tmp_path)
    read(write(tmp_path / "a.log", b"[2025-03-22 23:18:51] start\nrow\n"), out)
    assert out.state["last_time"] == at


@pytest.mark.parametrize(
    "prefix",
    [
        "(TaskRunner pid=7) ",
        "(pid=7) ",
        "(pid=gcs_server) (a",
        "(main_task pid=7, ip=10.0.0.2) ",
        "(head, rank=0, pid=12) (TaskRunner pid=7) ",
        "\x1b[36m(Worker(a=1) rank=2 pid=7)\x1b[0m ",
    ],
)
def test_prefixes_of_workers_are_removed(prefix: str):
    """Only as much as Ray adds: a line may begin with spaces or brackets of its own."""
    assert clean_line(f"{prefix} (text)").text == (" (text)" if "gcs" not in prefix else f"{prefix} (text)")


def test_what_a_bar_wrote_before_a_text_is_kept():
    """The text is what is visible, the rest is beside it."""
    line = clean_line(" 1%| | 1/9 [\r 2%| | 2/9 [\r      \r{'loss': 1}")
    assert line.text == "{'loss': 1}"
    assert line.before.endswith("2/9 [\r      ")
