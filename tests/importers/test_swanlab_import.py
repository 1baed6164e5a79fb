"""SwanLab's files, of records that its own definitions encode, opened as runs without its package."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from block_files import write_records

import barograph
from barograph.importers.formats import swanlab
from barograph.importers.logs import find_logs
from barograph.journal.view import View

record_pb2 = pytest.importorskip("swanlab.proto.swanlab.record.v1.record_pb2")
Record = record_pb2.Record
HEAD, OLD_HEAD = b":SWL\xd6\xe1\x02", b":SWL\xd6\xe1\x01"
STARTED = 1_700_000_000


def start() -> bytes:
    record = Record()
    record.start.project, record.start.name, record.start.id = "maze", "first", "abc"
    record.start.description, record.start.group = "a note", "g"
    record.start.tags.extend(["x", "y"])
    record.start.started_at.seconds = STARTED
    return record.SerializeToString()


def scalar(name: str, step: int, value: float) -> bytes:
    record = Record()
    record.scalar.key, record.scalar.step = name, step
    record.scalar.timestamp.seconds = STARTED + step
    record.scalar.value.number = value
    return record.SerializeToString()


def finish(state: int, error: str = "") -> bytes:
    record = Record()
    record.finish.state, record.finish.error = state, error
    return record.SerializeToString()


def write(folder: Path, *records: bytes, name: str = "run-20240101_000000-abc", head: bytes = HEAD) -> Path:
    return write_records(folder / name / "run-abc.swanlab", head, records)


def facts(view: View) -> dict[str, Any]:
    """Return what the last reading says about the log."""
    return next(event for event in reversed(view.events()) if event["event"] == "imported")


def test_scalars_settings_and_description_are_read(tmp_path: Path):
    """Values, steps, times, NaN and infinities; of several values of a step the first counts, as in SwanLab."""
    path = write(
        tmp_path,
        start(),
        scalar("loss", 1, 0.5),
        scalar("reward", 1, 0.0),
        scalar("loss", 2, math.nan),
        scalar("reward", 2, -math.inf),
        scalar("reward", 2, 7.0),
        finish(1),
    )
    config = path.parent / "files" / "config.yaml"
    config.parent.mkdir()
    config.write_text("lr:\n  desc: ''\n  sort: 0\n  value: 1.0e-06\nmodel:\n  value:\n    name: qwen\n")
    view = barograph.open(path)
    assert view.series("reward").values.tolist() == [0.0, -math.inf]
    assert view.series("loss").steps.tolist() == [1, 2]
    assert math.isnan(view.series("loss").values[1])
    assert view.series("loss").times.tolist() == [STARTED + 1, STARTED + 2]
    assert view.config == {"lr": 1e-6, "model": {"name": "qwen"}}
    info = view.info
    assert (info.project, info.name, info.group, info.notes, info.tags) == ("maze", "first", "g", "a note", ("x", "y"))
    assert info.created == STARTED
    assert view.status.word == "finished"


def test_the_settings_need_a_package_and_the_values_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The note says how to install it."""
    path = write(tmp_path, start(), scalar("a", 1, 1.0))
    (path.parent / "files").mkdir()
    (path.parent / "files" / "config.yaml").write_text("lr: {value: 1}\n")

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(swanlab.importlib, "import_module", missing)
    reader = swanlab.Reader(next(iter(find_logs(tmp_path))), {})
    notes = []

    class Out:
        def note(self, text: str) -> None:
            notes.append(text)

    reader._config(path.parent / "files" / "config.yaml", Out())  # type: ignore[arg-type]
    assert "pip install pyyaml" in notes[0]


@pytest.mark.parametrize(("state", "word"), [(1, "finished"), (2, "crashed"), (3, "killed")])
def test_the_state_is_the_status(tmp_path: Path, state: int, word: str):
    """With the last line of the error as the reason."""
    view = barograph.open(write(tmp_path, start(), scalar("a", 1, 1.0), finish(state, "Traceback\nValueError: boom")))
    assert (view.status.word, view.status.reason) == (word, "ValueError: boom")


def test_what_swanlab_measures_of_the_machine_is_left_out(tmp_path: Path):
    """Its columns are of another class, and its steps are times; media are in other files."""
    column, medium = Record(), Record()
    column.column.column_class, column.column.column_key = 2, "__swanlab__.cpu"
    medium.media.key = "picture"
    records = [start(), column.SerializeToString(), scalar("__swanlab__.cpu", 9, 1.0), medium.SerializeToString()]
    view = barograph.open(write(tmp_path, *records, scalar("a", 1, 1.0)))
    assert view.names() == ["a"]
    assert facts(view)["notes"] == [swanlab.MEDIA]


def test_files_of_older_versions_are_read(tmp_path: Path):
    """Their records are JSON."""
    models = [
        ("Header", {"backup_type": "DEFAULT", "create_time": "2024-05-01T12:00:00+00:00"}),
        ("Project", {"name": "maze", "workspace": None, "public": None}),
        ("Experiment", {"id": "abc", "name": "first", "colors": [], "description": "a note", "tags": ["x"]}),
        ("Column", {"key": "cpu", "cls": "SYSTEM"}),
        ("Scalar", {"metric": {"data": 3, "create_time": "2024-05-01T12:00:01+00:00"}, "key": "cpu", "step": 0}),
        ("Scalar", {"metric": {"data": 0.5, "create_time": "2024-05-01T12:00:01+00:00"}, "key": "a", "step": 1}),
        ("Scalar", {"metric": {"data": "NaN", "create_time": "2024-05-01T12:00:02+00:00"}, "key": "a", "step": 2}),
        ("Media", {"key": "picture"}),
        ("Scalar", {"key": "odd"}),
        ("Footer", {"create_time": "2024-05-01T13:00:00+00:00", "success": False}),
    ]
    records = [(json.dumps({"model_type": kind, "data": data}) + "\n").encode() for kind, data in models]
    view = barograph.open(write(tmp_path, *records, head=OLD_HEAD))
    assert view.names() == ["a"]
    assert view.series("a").steps.tolist() == [1, 2]
    assert view.series("a").times.tolist() == [1714564801, 1714564802]
    assert math.isnan(view.series("a").values[1])
    info = view.info
    assert (info.project, info.name, info.notes, info.tags, info.created) == (
        "maze", "first", "a note", ("x",), 1714564800
    )  # fmt: skip
    assert view.status.word == "crashed"
    assert facts(view)["unread"][0]["count"] == 1


def test_a_directory_has_many_runs_and_a_resumed_one_is_one_run(tmp_path: Path):
    """Of several files of a run the later ones are attempts."""
    folder = tmp_path / "swanlog"
    write(folder, start(), *(scalar("a", step, 1.0) for step in (1, 2, 3)))
    write(folder, start(), scalar("a", 2, 2.0), name="run-20240102_000000-abc")
    other = write(folder, start(), scalar("a", 1, 1.0), name="run-20240101_000000-other")
    (folder / "runs.swanlab").write_bytes(b"SQLite format 3\0")
    (write(folder, name="run-20240101_000000-empty")).write_bytes(b"")
    assert [(log.path, log.member) for log in find_logs(tmp_path)] == [(folder, "abc"), (other, "")]
    view = barograph.open(f"{folder}#abc")
    assert view.series("a").values.tolist() == [1, 2]


def test_a_growing_file_is_followed(tmp_path: Path):
    """The status changes with the last record."""
    records = [start(), scalar("a", 1, 1.0)]
    path = write(tmp_path, *records)
    view = barograph.open(path)
    write(tmp_path, *records, scalar("a", 2, 2.0))
    assert view.refresh()
    assert view.series("a").values.tolist() == [1, 2]
    assert view.status.word == "running"
    write(tmp_path, *records, scalar("a", 2, 2.0), finish(1))
    assert view.refresh()
    assert view.status.word == "finished"


def test_any_bytes_are_read_without_an_error(tmp_path: Path):
    """With checksums that are correct as well."""
    records = [start(), *(scalar("a", step, float(step)) for step in range(20)), finish(2, "boom")]
    chance = random.Random(5)
    for number in range(150):
        changed = [bytearray(record) for record in records]
        for _ in range(chance.choice((1, 5, 30))):
            record = chance.choice(changed)
            record[chance.randrange(len(record))] = chance.randrange(256)
        view = barograph.open(write(tmp_path / str(number), *map(bytes, changed)))
        view.names()
        assert not [one for one in facts(view)["unread"] if "cannot be read" in one["reason"]]
