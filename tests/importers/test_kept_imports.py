"""The journal of a log: it grows with the log, and what a person says about the run is kept."""

import json
import os
import time
from pathlib import Path

import pytest

from barograph.base.errors import LogError
from barograph.importers.imported import Given, ImportedLog, LogFacts, log_files
from barograph.importers.opening import open_run
from barograph.importers.reading.log import Log
from barograph.journal.format.folder import read_run_info
from barograph.journal.view import View


def row(step: int) -> str:
    return json.dumps({"step": step, "loss": step / 2}) + "\n"


def write(path: Path, steps: range, mode: str = "w") -> Path:
    with path.open(mode) as file:
        file.writelines(map(row, steps))
    return path


def test_the_last_line_is_read_when_it_stays_as_it_is(tmp_path: Path):
    """No newline ends it: it may be half of a line, until the file has not changed for a moment."""
    log = tmp_path / "a.jsonl"
    log.write_text(row(1) + row(2).rstrip())
    view = open_run(log)
    assert view.steps == (1, 1)
    assert view.waits
    assert not view.refresh()
    passed = time.time() - 10
    os.utime(log, (passed, passed))
    assert view.refresh()
    assert view.steps == (1, 2)
    assert not view.waits


def test_a_last_line_that_waited_is_read_by_the_next_opening(tmp_path: Path, monkeypatch):
    """Although the file is the same as at the first one."""
    log = tmp_path / "a.jsonl"
    log.write_text(row(1) + row(2).rstrip())
    assert open_run(log).steps == (1, 1)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 10)
    assert open_run(log).steps == (1, 2)


def test_a_log_that_changed_just_now_waits_until_it_is_at_rest_or_gone(tmp_path: Path):
    """What waits is looked at again although the file is the same; facts about it are not kept."""
    log = write(tmp_path / "a.jsonl", range(3))
    imported = ImportedLog(Log(log, "json_lines"), tmp_path / "kept")
    assert not imported.waits
    imported.update()
    assert imported.waits
    facts = LogFacts(tmp_path)
    facts.keep(imported, log_files(imported.log))
    assert facts.known(imported.log, log_files(imported.log)) is None
    passed = time.time() - 10
    os.utime(log, (passed, passed))
    imported.update()
    assert not imported.waits
    facts.keep(imported, log_files(imported.log))
    assert facts.known(imported.log, log_files(imported.log)) is not None
    write(log, range(3, 4), "a")
    imported.update()
    assert imported.waits
    log.unlink()
    imported.update()
    assert not imported.waits


def test_a_journal_stays_when_its_log_is_gone(tmp_path: Path):
    """It is a run like any other."""
    log = write(tmp_path / "a.jsonl", range(5))
    imported = ImportedLog(Log(log, "json_lines"), tmp_path / "kept" / "p" / "x")
    imported.update()
    log.unlink()
    assert imported.update() is False
    view = View(imported.folder)
    assert view.series("loss").values.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert view.status.word == "finished"


def test_rows_are_counted_over_all_attempts(tmp_path: Path):
    """And those that are new."""
    log = write(tmp_path / "a.jsonl", range(5))
    imported = ImportedLog(Log(log, "json_lines"), tmp_path / "kept")
    imported.update()
    assert (imported.rows, imported.new_rows, imported.last_step) == (5, 5, 4)
    write(log, range(3), "a")
    imported.update()
    assert (imported.rows, imported.new_rows, imported.last_step) == (8, 3, 2)
    again = ImportedLog(Log(log, "json_lines"), tmp_path / "kept")
    again.update()
    assert (again.rows, again.new_rows) == (8, 0)
    assert len(View(imported.folder).writers()) == 2


def test_what_a_person_says_replaces_what_the_log_tells(tmp_path: Path):
    """At the first import and at a later one."""
    log = Log(write(tmp_path / "a.jsonl", range(2)), "json_lines")
    folder = tmp_path / "kept"
    ImportedLog(log, folder, Given(name="mine", producer="trl/grpo")).update()
    assert (read_run_info(folder).name, read_run_info(folder).producer) == ("mine", "trl/grpo")
    ImportedLog(log, folder, Given(name="other")).update()
    assert (read_run_info(folder).name, read_run_info(folder).producer) == ("other", "trl/grpo")
    assert View(folder).source == "trl/grpo"


def test_a_progress_bar_does_not_fill_the_journal(tmp_path: Path):
    """That the log grows is written once a minute, if there is nothing else to write."""
    log = write(tmp_path / "a.jsonl", range(2))
    imported = ImportedLog(Log(log, "json_lines"), tmp_path / "kept")
    imported.update()
    for _ in range(20):
        with log.open("a") as file:
            file.write(" \n")
        imported.update()
    events = [event for event in View(imported.folder).events() if event["event"] == "imported"]
    assert len(events) == 2
    assert View(imported.folder).status.word == "running"


def test_a_file_that_cannot_be_read_for_a_while_is_read_later(tmp_path: Path, monkeypatch):
    """By the next process, although it has not changed; one that was never read is an error."""
    path = write(tmp_path / "a.jsonl", range(2))
    log = Log(path, "json_lines")
    first = ImportedLog(log, tmp_path / "kept")
    first.update()
    write(path, range(2, 4), "a")
    opened = Path.open

    def refused(self: Path, *given, **named):
        if self == path:
            raise PermissionError(13, "Permission denied")
        return opened(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refused)
        with pytest.raises(LogError, match="cannot be read: Permission denied"):
            ImportedLog(log, tmp_path / "other").update()
        first.update()
        assert "cannot be read: Permission denied" in View(first.folder).damage()[0]
    ImportedLog(log, tmp_path / "kept").update()
    assert View(tmp_path / "kept").steps == (0, 3)
