"""Frames that are intact and cannot be decoded: they are counted, with kind and reason, and cost nothing else."""

import json
import struct
from pathlib import Path
from zlib import crc32

import httpx
import pytest

import barograph
from barograph.apps.cli import main
from barograph.apps.page.http.app import GuardMiddleware, page_app
from barograph.apps.page.http.guard import Guard
from barograph.base.model import RunInfo
from barograph.journal.directory import glances
from barograph.journal.format import frames
from barograph.journal.format.fields import MAX_DEPTH, DecodingError, parse_json
from barograph.journal.format.folder import write_run_info
from barograph.journal.format.frames import FRAME_HEAD, FRAME_MAGIC, Kind, frame, segment_head
from barograph.journal.segments.reader import SegmentReader
from barograph.journal.view import View

SEGMENT = "trainer.0.1.0.seg"


def write(folder: Path, *payloads: bytes, tail: bytes = b"") -> Path:
    """Write a run of one segment with some payloads between a row of step 0 and one of step 1."""
    names = ("x",)
    id = frames.schema_id(names)
    rows = [frames.row_struct(1).pack(Kind.ROW, id, step, 1.7e9, 1.0) for step in (0, 1)]
    data = b"".join(map(frame, (frames.schema_payload(id, names), rows[0], *payloads, rows[1])))
    write_run_info(folder, RunInfo(folder.name, "p", folder.name, 1.7e9))
    (folder / SEGMENT).write_bytes(segment_head() + data + tail)
    return folder


def event(**fields: object) -> bytes:
    """Return an event's payload."""
    return frames.record_payload(Kind.EVENT, fields)


def test_frames_that_cannot_be_decoded_are_counted_by_kind_and_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """``show`` says how many, of which kind, why, and where the first is."""
    bad = [event(event="finish", status=status) for status in (7, [], "won")]
    folder = write(tmp_path / "p" / "bad", *bad, frames.commit_payload(5, float("nan")))
    view = View(folder)
    reason = "'status' must be finished or crashed or killed"
    assert sorted(text.partition(" (")[0] for text in view.damage()) == [
        f"{SEGMENT}: 1 commit frame could not be read: its step or time is out of range",
        f"{SEGMENT}: 3 event frames could not be read: {reason}",
    ]
    assert f"(the first is at byte {(folder / SEGMENT).read_bytes().index(frame(bad[0]))})" in " ".join(view.damage())
    assert view.series("x").steps.tolist() == [0, 1]
    assert main(["show", str(folder)]) == 0
    assert "3 event frames could not be read" in " ".join(capsys.readouterr().out.split())


def test_rows_with_an_impossible_time_or_length_are_counted(tmp_path: Path):
    """The rows beside them are read, whichever way they are read."""
    id = frames.schema_id(("x",))
    odd = [frames.row_struct(1).pack(Kind.ROW, id, step, float("inf"), 1.0) for step in range(40)]
    long = [frames.row_struct(1).pack(Kind.ROW, id, step, 1.7e9, 1.0) + b"abc" for step in range(3)]
    wide = [frames.row_struct(2).pack(Kind.ROW, id, 7, 1.7e9, 1.0, 2.0)]
    view = View(write(tmp_path / "bad", *odd, *long, *wide))
    assert view.series("x").steps.tolist() == [0, 1]
    assert sorted(text.partition(": ")[2].partition(" (")[0] for text in view.damage()) == [
        "1 row frame could not be read: it has another number of values than those before it",
        "3 row frames could not be read: it has an odd length",
        "40 row frames could not be read: its time is out of range",
    ]


def test_a_file_of_heads_is_read_in_linear_time(tmp_path: Path):
    """Heads that all reach to the end of the file cost a few times its bytes, not their number times that."""
    for size in (1 << 20, 4 << 20):
        heads = b"".join(FRAME_HEAD.pack(FRAME_MAGIC, size - 12 * n - 12, n) for n in range(size // 12))
        folder = write(tmp_path / str(size), tail=heads)
        reader = SegmentReader(folder / SEGMENT)
        reader.poll()
        assert reader._wasted <= 32 * (len(heads) + (1 << 20))
        assert reader.steps.highest == 1


def test_a_frame_behind_false_heads_is_found(tmp_path: Path):
    """Also behind more of them than are checked."""
    row = frame(frames.commit_payload(9, 1.7e9))
    heads = b"".join(FRAME_HEAD.pack(FRAME_MAGIC, (1 << 20) - n, n) for n in range(20_000))
    reader = SegmentReader(write(tmp_path / "bad", tail=heads + row + bytes(1 << 20) + row) / SEGMENT)
    reader.poll()
    assert (reader.steps.highest, len(reader.steps)) == (9, 2)


def test_an_unchanged_end_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A torn end waits until the file changes, and is then completed."""
    torn = frame(frames.commit_payload(9, 1.7e9))
    path = write(tmp_path / "run", tail=torn[:-3]) / SEGMENT
    reader = SegmentReader(path)
    reader.poll()
    calls = []
    monkeypatch.setattr(reader, "_parse", lambda data, whole: calls.append(data) or 0)
    assert not reader.poll()
    assert calls == []
    monkeypatch.undo()
    with path.open("ab") as file:
        file.write(torn[-3:])
    assert reader.poll()
    assert reader.steps.highest == 9


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5000, 100_000])
def test_deep_json_is_refused(depth: int):
    """Whether the parser or the readers behind it would give up."""
    with pytest.raises(DecodingError, match="nested too deeply"):
        parse_json(b"[" * depth + b"]" * depth)


def test_many_entries_are_refused_and_long_texts_are_not():
    """Brackets and commas in a text are no entries."""
    with pytest.raises(DecodingError, match="more than"):
        parse_json(b"[" + b"[]," * 2_000_000 + b"[]]")
    text = '[{,\\"' * 1_000_000
    assert parse_json(json.dumps({"text": text}).encode())["text"] == text


def test_a_run_that_cannot_be_read_is_one_line_of_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The others are listed as ever, on the command line and by the server."""
    good, newer, empty = (tmp_path / "p" / name for name in ("good", "newer", "empty"))
    write(good)
    write(newer)
    head = struct.pack("<8sI", b"BAROGRPH", 99)
    (newer / SEGMENT).write_bytes(head + struct.pack("<I", crc32(head)))
    empty.mkdir()
    (empty / "run.json").write_text("[]")
    found = {run.path.name: run.status for run in glances(tmp_path)}
    assert {name: status.word for name, status in found.items()} == {
        "good": "killed",
        "newer": "unreadable",
        "empty": "unreadable",
    }
    assert "journal format 99" in found["newer"].reason
    assert main(["ls", "--dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("unreadable") == 2
    assert main(["show", "good", "--dir", str(tmp_path)]) == 0


@pytest.mark.anyio
async def test_the_server_lists_a_run_that_cannot_be_read(tmp_path: Path, anyio_backend: str):
    """With its reason; its views are not found, and the live stream of the list goes on."""
    write(tmp_path / "p" / "good")
    bad = tmp_path / "p" / "bad"
    bad.mkdir()
    (bad / "run.json").write_text("null")
    app = page_app(tmp_path)
    transport = httpx.ASGITransport(app=GuardMiddleware(app, Guard()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        runs = {run["key"]: run for run in (await client.get("/api/runs")).json()["runs"]}
        assert {key: run["status"] for key, run in runs.items()} == {"good": "killed", "bad": "unreadable"}
        assert "contains no run" in runs["bad"]["reason"]
        assert (await client.get("/api/runs/bad/overview")).status_code == 404
        assert (await client.get("/api/runs/good/overview")).status_code == 200
        stream = app.state.hub.stream(["bad"], True)
        assert b'"cursor"' in await anext(stream)
        await stream.aclose()
    app.state.directory.close()


@pytest.fixture
def anyio_backend() -> str:
    """Use asyncio alone."""
    return "asyncio"


def test_phases_in_each_other_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A span that is its own parent has none; a cycle is cut."""
    nan = float("nan")
    durations = (1.0, nan, 1.0, nan, nan, nan, nan)
    spans = {1: 1, 2: 3, 3: 2}
    payloads = [
        frames.phase_close_payload(span, parent, 1, 1.7e9, 0, b"p%d" % span, b"main", durations)
        for span, parent in spans.items()
    ]
    folder = write(tmp_path / "p" / "bad", *payloads)
    assert {span.id: span.parent for span in barograph.open(folder).phases()} == {1: None, 2: 3, 3: 2}
    assert main(["phases", str(folder)]) == 0
    assert "p1" in capsys.readouterr().out
