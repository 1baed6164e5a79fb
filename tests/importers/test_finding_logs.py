"""Finding logs in directories, and opening them by path, id and place in a store."""

import json
from pathlib import Path

import pytest

import barograph
from barograph.base.errors import LogError, RunNotFoundError
from barograph.importers import logs
from barograph.importers.imported import log_id
from barograph.importers.logs import find_logs
from barograph.importers.opening import ImportedView, open_run
from barograph.importers.reading.log import END_BYTES, look_at


def write(path: Path, steps: int = 3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"step": step, "loss": step / 2}) + "\n" for step in range(steps)))
    return path


def found(dir: Path) -> list[str]:
    return [log.path.relative_to(dir).as_posix() for log in find_logs(dir)]


def record(dir: Path, id: str) -> Path:
    run = barograph.init(id=id, project="p", dir=dir)
    run.log({"a": 1.0}, step=0)
    run.finish()
    return Path(run.path)


def test_logs_are_found_by_their_content(tmp_path: Path):
    """Not in hidden directories, nor in runs that barograph has recorded, however deep these are."""
    for place in ("a.jsonl", "lab/one/metrics.jsonl", ".hidden/x.jsonl", "lab/deep/er/p/run/inside.jsonl"):
        write(tmp_path / place)
    record(tmp_path / "lab" / "deep" / "er", "run")
    (tmp_path / "readme.txt").write_text("no metrics\n")
    (tmp_path / "model.bin").write_bytes(b"\0" * 100)
    assert found(tmp_path) == ["a.jsonl", "lab/one/metrics.jsonl"]


def test_a_file_that_has_not_changed_is_looked_into_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also by another process: the cache knows its format."""
    for number in range(5):
        write(tmp_path / f"{number}.jsonl")
    (tmp_path / "readme.txt").write_text("no metrics\n")
    looked: list[Path] = []
    look = look_at
    monkeypatch.setattr(logs, "look_at", lambda path: looked.append(path) or look(path))
    first = found(tmp_path)
    assert len(looked) == 6
    assert found(tmp_path) == first
    assert len(looked) == 6
    write(tmp_path / "2.jsonl", 5)
    write(tmp_path / "readme.txt")
    assert found(tmp_path) == [*first, "readme.txt"]
    assert [path.name for path in looked[6:]] == ["2.jsonl", "readme.txt"]


def test_a_large_log_that_grows_is_not_looked_into_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A search every few seconds would read half a megabyte of each."""
    log = write(tmp_path / "a.jsonl", END_BYTES // 20)
    assert found(tmp_path) == ["a.jsonl"]
    with log.open("a") as file:
        file.write('{"step": 1000000, "loss": 1.0}\n')
    monkeypatch.setattr(logs, "look_at", lambda path: pytest.fail("it was looked into"))
    assert found(tmp_path) == ["a.jsonl"]


def test_no_format_is_imported_for_recorded_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A list of runs takes as long as before."""
    runs = [record(tmp_path, id) for id in ("a", "b")]
    monkeypatch.setattr(logs, "grouped_logs", lambda folder, names: pytest.fail(f"{folder} was asked for {names}"))
    assert list(find_logs(tmp_path, runs)) == []


def test_a_directory_with_one_log_is_that_run(tmp_path: Path):
    """With several, the message lists some and says how to list all."""
    write(tmp_path / "lab" / "one.jsonl")
    assert open_run(tmp_path / "lab").name == "one"
    write(tmp_path / "lab" / "two.jsonl")
    with pytest.raises(
        LogError, match=r"2 logs \(one.jsonl, two.jsonl, …\): give one, or list them with 'barograph ls"
    ):
        open_run(tmp_path / "lab")


def test_a_directory_with_one_run_is_that_run(tmp_path: Path):
    """With a log beside it, it is not clear which one is meant."""
    record(tmp_path / "dir", "only")
    assert open_run(tmp_path / "dir").id == "only"
    write(tmp_path / "dir" / "log.jsonl")
    with pytest.raises(RunNotFoundError, match="several runs: list them"):
        open_run(tmp_path / "dir")


def test_a_log_is_opened_by_its_id_in_the_directory_of_the_runs(tmp_path: Path):
    """Or by a prefix of it, as ``barograph ls`` prints it; the newest one is the last."""
    write(tmp_path / "one.jsonl")
    log = next(iter(find_logs(tmp_path)))
    for name in (log_id(log), log_id(log)[:5], "@last"):
        view = open_run(name, tmp_path)
        assert isinstance(view, ImportedView)
        assert view.location == tmp_path / "one.jsonl"
    with pytest.raises(RunNotFoundError):
        open_run("nothing", tmp_path)


def test_what_cannot_be_read_has_a_reason(tmp_path: Path):
    """One that a person can act on."""
    (tmp_path / "empty.log").touch()
    (tmp_path / "data.bin").write_bytes(b"\0\1\2" * 100)
    (tmp_path / "prose.txt").write_text("once upon a time\n" * 20)
    (tmp_path / "nothing").mkdir()
    for name, message in {
        "empty.log": "is empty",
        "data.bin": "is binary data",
        "prose.txt": "without metrics that barograph knows; docs/importing.md lists the formats",
        "nothing": "has no log that barograph can read",
        "absent.log": "does not exist",
    }.items():
        with pytest.raises((LogError, RunNotFoundError), match=message):
            open_run(tmp_path / name, tmp_path / "nothing")
