"""Samples that are small on disk and large in memory, and samples that are nonsense."""

import json
import math
import os
import sqlite3
import zlib
from pathlib import Path

import pytest

import barograph
from barograph.journal.format import frames
from barograph.journal.format.folder import INDEX_FOLDER
from barograph.journal.format.frames import Kind
from barograph.journal.format.samples import MAX_SAMPLE_BYTES
from barograph.journal.samples.blocks import sealed
from barograph.journal.samples.index import FILE
from barograph.journal.view import View
from bounds import bounded

READ = """
view = View(folder)
samples = view.samples()
result = [len(samples), view.sample_census().damage, [problem.error for problem in view.problems()]]
"""


def make_run(dir: Path, payloads: list[bytes], **options: object) -> Path:
    """Return a run with one honest sample and further frames with these payloads."""
    run = barograph.init(project="p", name="bomb", dir=dir, **options)
    run.sample("honest", "sample", reward=1.0)
    run.log({"loss": 1.0})
    run.commit(0)
    for payload in payloads:
        run._recording.journal.payload(payload)
    run.finish()
    return run.path


def compressed(pieces: list[bytes]) -> bytes:
    """Return pieces as one compressed body, without joining them before."""
    packer = zlib.compressobj(9)
    return b"".join([*map(packer.compress, pieces), packer.flush()])


def sample_frame(body: bytes, level: int = 9) -> bytes:
    """Return a payload of samples whose compressed part is any JSON, or none."""
    return frames.SAMPLE_HEAD.pack(Kind.SAMPLE, 1, 1.0, 1, 1) + zlib.compress(body, level)


MANY = MAX_SAMPLE_BYTES // 8  # of anything that takes eight bytes or fewer
BOMBS = {
    "empty samples": lambda: b"[" + b"{}," * (2 * MANY) + b"{}]",
    "empty lists": lambda: b'[{"messages":[' + b"[]," * (2 * MANY) + b"[]]}]",
    "nested lists": lambda: b'[{"messages":[{"a":[' + (b"[" * 400 + b"]" * 400 + b",") * 10_000 + b"0]}]}]",
    "small objects": lambda: b'[{"messages":[' + b'{"":0},' * MANY + b"{}]}]",
    "rewards": lambda: b'[{"rewards":{' + b",".join(b'"%d":1.5' % n for n in range(600_000)) + b"}}]",
    "many samples": lambda: b"[" + b"{}," * 300_000 + b"{}]",
    "few samples, many frames": lambda: b"[" + b"{}," * 60_000 + b"{}]",
    "long texts": lambda: b'[{"completion":"' + b"a" * 8_000_000 + b'"}]',
    "texts without end": lambda: b'[{"completion":"' + b'\\"' * 4_000_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_samples_that_unpack_to_too_much_cost_themselves(tmp_path: Path, name: str):
    """The other samples are found in less than 200 MB and a second, and the rest is told."""
    payload = sample_frame(BOMBS[name]())
    folder = make_run(tmp_path, [payload] * -(-260_000 // len(payload)))
    count, damage, problems = bounded(folder, READ)
    assert count >= 1
    assert any("samples of step 1 cannot be read" in text for text in damage)
    assert any("samples of step 1" in error for error in problems)


def test_260_kilobytes_do_not_become_gigabytes(tmp_path: Path):
    """One frame that unpacks to 256 MiB of empty samples."""
    body = compressed([b"[", *[b"{}," * (1 << 20)] * 85, b"{}]"])
    assert 250_000 < len(body) < 270_000
    head = frames.SAMPLE_HEAD.pack(Kind.SAMPLE, 1, 1.0, 1, 1)
    assert bounded(make_run(tmp_path, [head + body]), READ)[0] == 1


def test_a_long_text_with_wide_characters_is_read(tmp_path: Path):
    """Python takes four bytes for each character of it."""
    payload = sample_frame(b'[{"completion":"' + b"a" * (MAX_SAMPLE_BYTES - 30) + "😀".encode() + b'"}]')
    assert bounded(make_run(tmp_path, [payload]), READ)[0] == 2


NONSENSE = [
    b"null", b"3", b'"text"', b"{}", b"[", b"", b"[1,2,null,[]]", b"[{}", b'[{"reward":1e400}]', b'[{"time":NaN}]',
    b'[{"step":"x","time":[],"rewards":{"a":{}},"messages":{"role":1}}]', b'[{"length":1e999,"weight_version":-1e5}]',
    b'[{"length":' + b"9" * 5000 + b"}]", b'[{"prompt":"\\ud800","task":"\\udfff","messages":[{"content":"\\ud800"}]}]',
    b"[" * 100_000, b'[{"messages":[{"content":' + b"[" * 900 + b"]" * 900 + b"}]}]", b"\xff\xfe[]",
    b'[{"messages":[{"role":[1],"content":{"text":{"text":{"text":3}}}}],"finish_reason":7,"group":{},"run":[]}]',
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(NONSENSE)))
def test_nonsense_never_raises(tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]):
    """Search, command and follower skip what they cannot read; honest samples are found."""
    from barograph.apps.cli import main
    from barograph.journal.read.follower import RunFollower

    folder = make_run(tmp_path, [sample_frame(NONSENSE[number])])
    view = View(folder)
    assert [sample.prompt for sample in view.samples(step=0)] == ["honest"]
    view.samples(grep="honest", sort="-reward")
    view.samples(regex="x.*")
    assert list(view.frame().columns)
    for extra in ([], ["--json"], ["--full"]):
        assert main(["samples", str(folder), *extra]) == 0
    assert "honest" in capsys.readouterr().out
    assert any(row.samples for row in RunFollower(folder).new_rows())


def test_a_sample_that_is_too_large_is_shortened_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A generous setting cannot make samples that no reader takes."""
    run = barograph.init(project="p", dir=tmp_path, sample_bytes_per_step=1 << 30)
    run.sample("p", "long " * 2_000_000, reward=0.25)
    run.sample("p2", "", rewards={f"r{n}": 1.5 for n in range(500_000)})
    run.commit(0)
    run.finish()
    found = {sample.prompt: sample for sample in View(run.path).samples()}
    assert found["p"].reward == 0.25
    assert "characters left out" in found["p"].completion
    assert len(found) == 2
    assert not View(run.path).sample_census().damage
    assert "shortened" in capsys.readouterr().err
    assert any("shortened" in reason for reason, _ in View(run.path).skipped().values())


def test_texts_that_compress_to_almost_nothing_are_kept(tmp_path: Path):
    """A policy that repeats one token forever is what one wants to look at."""
    run = barograph.init(project="p", dir=tmp_path)
    for step in range(100):
        run.sample("p", "a" * 1_000_000, reward=0.0)
        run.commit(step)
    run.finish()
    view = View(run.path)
    assert len(view.samples()) == 100
    assert not view.sample_census().damage


def poison(folder: Path, *statements: str) -> Path:
    """Search a run, so that it has an index, and change the index."""
    View(folder).samples()
    path = folder / INDEX_FOLDER / FILE
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    return path


def test_an_index_that_unpacks_to_too_much_is_made_again(tmp_path: Path):
    """Five megabytes of it would take gigabytes."""
    folder = make_run(tmp_path, [])
    path = poison(folder)
    rest = compressed([b'{"messages":[', *[b"{}," * (1 << 20)] * 64, b"{}]}"])
    with sqlite3.connect(path) as db:
        db.execute("UPDATE blocks SET rest = ?", (sealed(rest, "rest of block 0 of trainer.0.1.0.seg"),))
    db.close()
    assert bounded(folder, READ)[0] == 1


def state(*values: object) -> str:
    """Return a statement that replaces the state of the segment by a sealed one."""
    blob = sealed(json.dumps(values).encode(), "segment trainer.0.1.0.seg")
    return f"UPDATE segments SET state = x'{blob.hex()}'"


def columns(data: bytes) -> str:
    """Return a statement that replaces the columns of the block by sealed ones."""
    return f"UPDATE blocks SET columns = x'{sealed(data, 'columns of block 0 of trainer.0.1.0.seg').hex()}'"


POISONS = {
    "a view without end": (
        "DROP TABLE segments",
        "CREATE VIEW segments AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id AS name, "
        "x'00' AS state FROM n",
    ),
    "a huge value": ("UPDATE blocks SET texts = zeroblob(900000000)",),
    "texts are a number": ("UPDATE blocks SET texts = 3",),
    "numbers are texts": ("UPDATE blocks SET number = 'x'",),
    "other fields are a number": ("UPDATE blocks SET rest = 7",),
    "other fields are a text": ("UPDATE blocks SET rest = 'null'",),
    "columns are short": (columns(b"\xff" * 7),),
    "columns are nonsense": (columns(b"\xff" * 700),),
    "columns are empty": (columns(b""),),
    "the end is a text": (state("", "", 0, "x", 1, 0, 0, []),),
    "the damage is a number": (state("", "", 0, 17, 1, 0, 0, 3),),
    "very many blocks": (state("", "", 0, 17, 1 << 60, 0, 0, []),),
    "a state of another length": (state(1, 2),),
    "no state": ("UPDATE segments SET state = NULL",),
    "the name is a blob": ("UPDATE segments SET name = x'ff'",),
    "no blocks": ("DELETE FROM blocks",),
    "no table": ("DROP TABLE blocks",),
    "another column": ("ALTER TABLE blocks ADD COLUMN x",),
}


@pytest.mark.parametrize("name", POISONS)
def test_nonsense_in_the_index_never_raises(tmp_path: Path, name: str):
    """It is made again from the journal."""
    folder = make_run(tmp_path, [])
    poison(folder, *POISONS[name])
    assert bounded(folder, READ)[0] == 1


def test_a_fifo_in_place_of_the_index_does_not_block(tmp_path: Path):
    """The index is made in the temporary directory instead."""
    folder = make_run(tmp_path, [])
    (folder / INDEX_FOLDER).mkdir(exist_ok=True)
    os.mkfifo(folder / INDEX_FOLDER / FILE)
    assert bounded(folder, READ)[0] == 1


def test_counts_in_a_head_are_not_believed(tmp_path: Path):
    """They are numbers of another program; sums of them stay numbers."""
    head = frames.SAMPLE_HEAD.pack(Kind.SAMPLE, 2**63 - 1, math.nan, 2**32 - 1, 2**32 - 1)
    folder = make_run(tmp_path, [head + zlib.compress(json.dumps([{"prompt": "x"}]).encode())])
    view = View(folder)
    assert len(view.samples()) == 2
    assert view.sample_census().kept == 2
