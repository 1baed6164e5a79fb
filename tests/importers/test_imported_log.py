"""The cache of imported logs: a log is read once, and again only where it is not the same any more."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import barograph
from barograph.base.errors import LogError
from barograph.importers import imported
from barograph.importers.imported import STATE_FILE, ImportedLog
from barograph.importers.logs import log_at
from barograph.importers.opening import ImportedView
from barograph.importers.reading.log import Log
from barograph.journal.view import View

LONG_AGO = 1_600_000_000.0


def rows(*steps: int) -> str:
    return "".join(f'{{"step": {step}, "loss": {step / 8}}}\n' for step in steps)


def at_rest(path: Path, text: str) -> Path:
    """Write a log whose last change was long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def steps_of(path: Path) -> list[int]:
    return barograph.open(path).series("loss").steps.tolist()


def folder_of(path: Path) -> Path:
    return ImportedLog(log_at(path)).folder


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of bytes that were read of logs, one for each reading."""
    from barograph.importers.formats.json_rows import LinesReader

    found: list[int] = []
    read = LinesReader.read

    def counting(self: LinesReader, out: object) -> None:
        before = self.state["offset"]
        read(self, out)  # type: ignore[arg-type]
        found.append(self.state["offset"] - before)

    monkeypatch.setattr(LinesReader, "read", counting)
    return found


def test_a_second_opening_reads_nothing_of_a_log_that_has_not_changed(tmp_path: Path, reads: list[int]):
    """The journal in the cache has it."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(1, 2))
    assert steps_of(path) == steps_of(path) == [1, 2]
    assert reads == [path.stat().st_size]


def test_a_second_opening_reads_only_what_is_new(tmp_path: Path, reads: list[int]):
    """The bytes that are new."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(1, 2))
    assert steps_of(path) == [1, 2]
    with path.open("a") as file:
        file.write(rows(3))
    assert steps_of(path) == [1, 2, 3]
    assert reads[:2] == [len(rows(1, 2)), len(rows(3))]
    assert barograph.open(path).status.word == "running"


def test_an_open_view_follows_a_log_that_grows(tmp_path: Path):
    """And one that is written anew."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(1, 2))
    view = barograph.open(path)
    assert not view.refresh()
    with path.open("a") as file:
        file.write(rows(3))
    assert view.refresh()
    assert view.series("loss").steps.tolist() == [1, 2, 3]
    path.write_text('{"step": 9, "loss": 0.5}\n')
    assert view.refresh()
    assert view.series("loss").steps.tolist() == [9]


def test_a_log_without_news_leaves_its_journal_as_it_is(tmp_path: Path):
    """Although one that changed just now is looked at again."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(rows(1, 2))
    view = barograph.open(path)
    sizes = [segment.stat().st_size for segment in view.path.rglob("*.seg*")]
    assert not view.refresh()
    assert not barograph.open(path).refresh()
    assert [segment.stat().st_size for segment in view.path.rglob("*.seg*")] == sizes


def test_a_line_without_its_end_is_read_when_the_log_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Although nothing in the file has changed since it was opened first."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(rows(1, 2).rstrip())
    assert steps_of(path) == [1]
    monkeypatch.setattr("barograph.importers.reading.lines.SETTLED_SECONDS", -1.0)
    assert steps_of(path) == [1, 2]


def test_a_line_that_was_taken_for_complete_and_is_longer_is_read_again(tmp_path: Path):
    """A number that was cut is another number."""
    path = at_rest(tmp_path / "metrics.jsonl", '{"step": 1, "loss": 1}\n{"step": 2, "loss": 2}')
    assert steps_of(path) == [1, 2]
    at_rest(path, path.read_text() + "\n" + rows(3))
    assert steps_of(path) == [1, 2, 3]
    at_rest(path, '{"step": 1, "loss": 1}\n{"step": 2, "loss": 2} \n')
    assert steps_of(path) == [1, 2]


@pytest.mark.parametrize("text", [rows(1), rows(8, 9, 10, 11), rows(1, 2) + rows(9), ""])
def test_a_log_that_was_written_anew_is_read_from_the_beginning(tmp_path: Path, text: str):
    """Shorter, or with another beginning; one that is longer and begins the same goes on."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(1, 2) + rows(3, 4))
    assert steps_of(path) == [1, 2, 3, 4]
    at_rest(path, text)
    log = Log(path, "json_lines")
    view = ImportedView(log)
    expected = [json.loads(line)["step"] for line in text.splitlines()]
    assert (view.series("loss").steps.tolist() if view.names() else []) == expected


def test_another_log_with_the_same_beginning_is_noticed_where_the_first_was_read_up_to(tmp_path: Path):
    """Logs of one program begin with the same lines."""
    head = '{"text": "' + "=" * 300 + '"}\n'
    path = at_rest(tmp_path / "metrics.jsonl", head + rows(1, 2))
    assert steps_of(path) == [1, 2]
    at_rest(path, head + rows(5, 6, 7))
    assert steps_of(path) == [5, 6, 7]


@pytest.mark.parametrize("text", ["", "{", "[]", "0 {}", "zz", '{"version": 1}', "\0" * 50])
def test_a_damaged_state_of_the_import_is_not_used(tmp_path: Path, text: str):
    """The log is read again."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(1, 2))
    assert steps_of(path) == [1, 2]
    (folder_of(path) / STATE_FILE).write_text(text)
    assert steps_of(path) == [1, 2]


def test_each_flipped_byte_of_the_state_is_noticed(tmp_path: Path):
    """It has a checksum."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(1, 2))
    assert steps_of(path) == [1, 2]
    state = folder_of(path) / STATE_FILE
    whole = state.read_bytes()
    for place in range(0, len(whole), 7):
        state.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert steps_of(path) == [1, 2]


def test_a_journal_that_was_changed_is_made_again(tmp_path: Path):
    """By a program that removes old files, for example."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(1, 2))
    assert steps_of(path) == [1, 2]
    for file in (file for file in folder_of(path).rglob("*") if file.is_file() and file.name != "lock"):
        file.write_bytes(b"")
        assert steps_of(path) == [1, 2], file


def test_the_cache_may_be_removed(tmp_path: Path):
    """And the journal of a log that was removed stays while its view is open."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(1, 2))
    view = barograph.open(path)
    for file in sorted(folder_of(path).rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    assert steps_of(path) == [1, 2]
    path.unlink()
    assert not view.refresh()
    assert view.series("loss").steps.tolist() == [1, 2]


def test_a_log_that_does_not_exist_is_an_error(tmp_path: Path):
    """The message has its path."""
    with pytest.raises(LogError, match="missing.jsonl does not exist"):
        ImportedView(Log(tmp_path / "missing.jsonl", "json_lines"))


def test_without_a_cache_that_can_be_written_a_temporary_directory_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Reading needs no permission to write."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("BAROGRAPH_CACHE", str(tmp_path / "file" / "cache"))
    path = at_rest(tmp_path / "metrics.jsonl", rows(1, 2))
    view = barograph.open(path)
    assert view.series("loss").steps.tolist() == [1, 2]
    assert not view.path.is_relative_to(tmp_path)


def test_a_folder_that_was_given_and_cannot_be_written_is_an_error(tmp_path: Path):
    """Nothing is written elsewhere instead."""
    (tmp_path / "file").touch()
    path = at_rest(tmp_path / "metrics.jsonl", rows(1))
    with pytest.raises(LogError, match="cannot write to"):
        ImportedLog(Log(path, "json_lines"), tmp_path / "file" / "kept").update()


def test_a_full_disk_is_an_error_with_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not a traceback of the operating system."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(1))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ImportedLog, "_save", fail)
    with pytest.raises(LogError, match="No space left"):
        barograph.open(path)


def test_a_package_that_was_installed_since_lets_the_log_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What could not be read without it is not lost for good."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(1))
    log = ImportedLog(Log(path, "json_lines"), tmp_path / "kept")
    log.update()
    state = log._load()
    assert state is not None
    log._save({**state, "reader": {**state["reader"], imported.NEEDS: "no_such_package"}})
    assert log._load() is not None
    log._save({**state, "reader": {**state["reader"], imported.NEEDS: "json"}})
    assert log._load() is None


PROGRAM = """
import sys, barograph
print(barograph.open(sys.argv[1]).series("loss").steps.tolist()[-1])
"""


def start(path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", PROGRAM, path], stdout=subprocess.PIPE, text=True)


def test_two_processes_may_open_a_log_at_once(tmp_path: Path):
    """One imports it, the other waits."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(*range(1, 5001)))
    processes = [start(path) for _ in range(3)]
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == ["5000"] * 3
    assert barograph.open(path).series("loss").steps.tolist() == list(range(1, 5001))


def test_an_import_that_was_killed_is_begun_again(tmp_path: Path):
    """Nothing of it is doubled."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(*range(1, 200_001)))
    process = start(path)
    folder = folder_of(path)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(file.suffix for file in folder.rglob("*")):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (folder / STATE_FILE).exists()
    assert len(barograph.open(path).series("loss").steps) == 200_000


def test_the_same_log_has_the_same_id_and_its_own_name(tmp_path: Path):
    """A name that many logs have is replaced by that of the directory."""
    path = at_rest(tmp_path / "project" / "run-7" / "metrics.jsonl", rows(1))
    view = barograph.open(path)
    assert (view.name, view.info.project, view.id) == ("run-7", "project", barograph.open(path).id)
    assert view.path != path


def test_the_log_itself_is_only_read(tmp_path: Path):
    """No file appears beside it."""
    path = at_rest(tmp_path / "only" / "metrics.jsonl", rows(1))
    before = path.stat()
    barograph.open(path)
    assert [entry.name for entry in path.parent.iterdir()] == ["metrics.jsonl"]
    assert (path.stat().st_mtime_ns, path.stat().st_size) == (before.st_mtime_ns, before.st_size)


def test_a_directory_that_is_a_run_itself_is_opened_before_those_in_it(tmp_path: Path):
    """Of several logs of equal rank the message lists some."""
    for name in ("a", "b"):
        at_rest(tmp_path / name / "metrics.jsonl", rows(1))
    with pytest.raises(LogError, match=r"has 2 logs \(a/metrics.jsonl, b/metrics.jsonl"):
        log_at(tmp_path)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "", "no#run", "\udcff"])
def test_a_name_that_is_no_path_names_no_run(name: str, tmp_path: Path):
    """Also one that is too long for a path."""
    with pytest.raises(barograph.RunNotFoundError):
        barograph.open(name, dir=tmp_path)


def test_a_run_of_a_store_may_have_any_name(tmp_path: Path):
    """Also one with the mark that separates it from the path."""
    text = "Step,run #1 - a,run #1 - a__MIN,run #2 - a,run #2 - a__MIN\n1,0.5,0.5,0.25,0.25\n"
    path = at_rest(tmp_path / "chart.csv", text)
    assert barograph.open(f"{path}#run #2").series("a").values.tolist() == [0.25]


@pytest.mark.parametrize(("data", "message"), [
    (b"", "is empty"),
    (b"\0" * 100, "binary data"),
    (b"hello\n", "text without metrics"),
    (b"\x80\x04K\x01.", "is a pickle"),
    (b"PK\3\4" + b"\0" * 26 + b"archive/data.pkl", "is a pickle"),
])  # fmt: skip
def test_a_file_that_is_no_log_is_refused_with_what_it_is(tmp_path: Path, data: bytes, message: str):
    """And pickles are not loaded: they can run any program."""
    path = tmp_path / "file.pt"
    path.write_bytes(data)
    with pytest.raises(LogError, match=message):
        barograph.open(path)


def test_a_view_of_the_cached_journal_equals_that_of_the_log(tmp_path: Path):
    """Everything that reads runs can open it."""
    path = at_rest(tmp_path / "metrics.jsonl", rows(1, 2))
    view = barograph.open(path)
    assert View(view.path).series("loss").values.tolist() == view.series("loss").values.tolist()


@pytest.mark.parametrize("place", [".", ".aim"])
def test_a_store_of_aim_is_refused_with_what_to_do(tmp_path: Path, place: str):
    """Its database cannot be read without it."""
    (tmp_path / ".aim" / "meta").mkdir(parents=True)
    with pytest.raises(LogError, match="Aim.*CSV"):
        barograph.open(tmp_path / place)
