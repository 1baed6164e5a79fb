"""The relay under adverse conditions: processes that start, end and fork, signals, removed directories, full disks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kept import begun, delivery_state, kept, relay_processes, steps_of, until

import barograph
from barograph.apps.cli import main
from barograph.delivery import processes
from barograph.delivery.relay.delivery import Delivery
from barograph.delivery.relay.state import FOLDER, read_delivery_state
from barograph.journal.write import segment

BEGIN = """
    import os, sys, time, barograph
    run = barograph.init(project="p", id="one", role=os.environ.get("ROLE"), track_with=["marked"],
                        tracker_kwargs={"marked": {"path": sys.argv[1]}})
"""


def script(trackers: Path, body: str, **environment: str) -> subprocess.Popen[str]:
    """Start a training in a process of its own, which prints when it has logged."""
    code = textwrap.dedent(BEGIN) + textwrap.dedent(body)
    command = [sys.executable, "-c", code, str(trackers / "kept.jsonl")]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def folder_of(trackers: Path) -> Path:
    return trackers / "runs" / "p" / "one"


def logged_steps(trackers: Path) -> list[Any]:
    """Return the steps of the rows that the training logged."""
    return [record[0] for record in kept(trackers) if "a" in record[1]]  # type: ignore[operator]


def delivery(folder: Path, trackers: Path, tracker: str = "marked", **kwargs: Any) -> Delivery:
    return Delivery(folder, tracker, {"path": str(trackers / "kept.jsonl"), **kwargs}, lambda: None, once=True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves its file open, as by a kill
def test_a_stopped_delivery_loses_no_row(trackers: Path):
    """The cursor stays before the rows that were read and not delivered."""
    run = barograph.init(id="many")
    for step in range(2000):
        run.log({"a": step}, step=step)
    slow = delivery(run.path, trackers, trouble="slow")
    thread = threading.Thread(target=slow.deliver)
    thread.start()
    until(lambda: len(kept(trackers)) > 0)
    slow.stop()
    thread.join()
    assert len(kept(trackers)) < 2000
    delivery(run.path, trackers, trouble="slow").deliver()
    assert steps_of(trackers) == list(range(2000))


def test_an_outage_during_single_rows_skips_none(trackers: Path):
    """A tracker that accepts one row and then fails again has rejected none."""
    run = begun(trackers, trouble="flaps")
    for step in range(8):
        run.log({"a": step}, step=step)
    until(lambda: steps_of(trackers) == [0] and delivery_state(run).state == "retrying")
    (trackers / "kept.jsonl.up").touch()
    run.finish(timeout=30)
    assert sorted(set(logged_steps(trackers))) == list(range(8))
    assert delivery_state(run).dropped == 0


@pytest.mark.parametrize("trouble", ["down", ""])
def test_a_continued_run_replaces_the_relay_of_the_attempt_before(trackers: Path, trouble: str):
    """It delivers with the new options, and the rows of both attempts once."""
    for attempt, now in enumerate(["down", trouble]):
        run = barograph.init(
            id="again",
            track_with=["marked"],
            tracker_kwargs={"marked": {"path": str(trackers / "kept.jsonl"), "trouble": now}},
        )
        for step in range(3):
            run.log({"a": attempt}, step=3 * attempt + step)
        if attempt == 0:
            until(lambda run=run: delivery_state(run, "marked").state in ("retrying", "failing"))
            run.finish(timeout=0.1)
    assert len(relay_processes(run.path.resolve())) == 2
    (trackers / "kept.jsonl.up").touch()
    run.finish(timeout=30)
    assert logged_steps(trackers) == list(range(6))
    assert delivery_state(run, "marked").state == "done"


SECOND = """
    for step in range(20):
        run.log({"a": step}, step=1000 + step)
    print("logged", flush=True)
    time.sleep(float(os.environ.get("LATER", "0")))
    run.log({"a": 99}, step=2000)
    run.finish()
    print("over", flush=True)
"""


def test_two_processes_of_a_run_share_a_relay_and_the_last_one_waits(trackers: Path):
    """Every row is delivered once when the last process has finished, whichever started the relay."""
    run = barograph.init(
        project="p", id="one", track_with=["marked"], tracker_kwargs={"marked": {"path": str(trackers / "kept.jsonl")}}
    )
    for step in range(20):
        run.log({"a": step}, step=step)
    other = script(trackers, SECOND, ROLE="explorer", LATER="1.5")
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "logged\n"
        assert len(relay_processes(folder_of(trackers).resolve())) == 2
        run.finish()
        assert other.stdout.readline() == "over\n"
        expected = [*range(20), *range(1000, 1020), 2000]
        assert sorted(logged_steps(trackers)) == expected
        assert steps_of(trackers)[-1] == "finished"
    assert other.returncode == 0


def test_another_process_delivers_when_the_first_one_ends(trackers: Path):
    """The file has the rows of both, once, also those after the end of the first."""
    first = barograph.init(id="two", track_with=["jsonl"])
    second = barograph.init(id="two", role="explorer", track_with=["jsonl"])
    first.log({"a": 1}, step=1)
    second.log({"b": 1})  # its step is not named yet when the first one ends
    first.finish()
    second.commit(1)
    second.log({"b": 2}, step=2)
    second.finish()
    lines = [json.loads(line) for line in (first.path / "metrics.jsonl").read_text().splitlines()]
    found = [(line.get("writer", ""), line["step"], line["metrics"]) for line in lines]
    assert found == [("", 1, {"a": 1}), ("explorer/0", 1, {"b": 1}), ("explorer/0", 2, {"b": 2})]


def test_the_end_is_delivered_once(trackers: Path):
    """Also if ``finish`` is called twice."""
    run = begun(trackers)
    run.log({"a": 1}, step=1)
    run.finish()
    run.finish()
    assert steps_of(trackers) == [1, "finished"]


def test_a_failed_start_leaves_nothing(trackers: Path):
    """No process, no lock, no open run: the next start is not affected."""
    wrong = {"path": str(trackers / "kept.jsonl"), "trouble": "wrong"}
    right = {"path": str(trackers / "kept.jsonl")}
    with pytest.raises(barograph.TrackerError):
        barograph.init(id="late", track_with=["kept", "jsonl"], tracker_kwargs={"kept": wrong})
    assert barograph.session._runs == []
    run = barograph.init(id="late", track_with=["kept", "jsonl"], tracker_kwargs={"kept": right})
    assert len(relay_processes(run.path.resolve())) == 2
    run.log({"a": 1}, step=1)
    run.finish()
    assert steps_of(trackers) == [1, "finished"]
    assert (run.path / "metrics.jsonl").exists()


def test_a_directory_that_is_not_writable_is_an_error_of_init(trackers: Path, monkeypatch: pytest.MonkeyPatch):
    """Rows are delivered from the journal, and there is none. The error comes at once."""
    (trackers / "file").write_text("in the way")
    waits: list[float] = []
    monkeypatch.setattr(segment, "time", SimpleNamespace(monotonic=time.monotonic, sleep=waits.append))
    for tracker, kwargs in (("kept", {"path": str(trackers / "kept.jsonl")}), ("jsonl", {})):
        with pytest.raises(barograph.TrackerError, match="choose another directory with dir="):
            barograph.init(dir=trackers / "file", track_with=[tracker], tracker_kwargs=kwargs)
    assert waits == []


def test_a_forked_child_neither_ends_the_relay_nor_keeps_its_locks(trackers: Path):
    """It logs into the run and outlives its parent; the run is continued meanwhile."""
    body = """
        run.log({"a": 1}, step=1)
        jsonl = barograph.init(id="two", track_with=["jsonl"], concurrent=True)
        child = os.fork()
        if not child:
            run.log({"a": 2}, step=2)
            print(os.getpid(), flush=True)
        time.sleep(600)
    """
    parent = script(trackers, body)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        parent.kill()
        until(lambda: "killed" in steps_of(trackers))
        assert sorted(logged_steps(trackers)) == [1, 2]
        run = barograph.init(id="two", track_with=["jsonl"])
        run.log({"a": 3}, step=3)
        run.finish()
        assert json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])["metrics"] == {"a": 3}
    finally:
        os.kill(child, signal.SIGKILL)
    parent.communicate(timeout=60)


LOOP = """
    for step in range(500):
        run.log({"a": step}, step=step)
    print("logged", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_training_and_not_the_delivery(trackers: Path, sent: signal.Signals):
    """SIGTERM, or Ctrl-C, which reaches all processes of the terminal: the rows and the end are delivered."""
    trainer = script(trackers, LOOP)
    assert trainer.stdout is not None
    trainer.stdout.readline()
    os.killpg(trainer.pid, sent)
    trainer.communicate(timeout=60)
    assert steps_of(trackers) == [*range(500), "killed"]


def test_finish_restarts_a_relay_that_was_terminated(trackers: Path):
    """If all processes of a job get SIGTERM at once, ``finish`` still delivers the rows."""
    run = begun(trackers, "marked", trouble="down")
    for step in range(500):
        run.log({"a": step}, step=step)
    relay = min(relay_processes(run.path.resolve()))
    os.kill(relay, signal.SIGTERM)
    until(lambda: not relay_processes(run.path.resolve()))
    (trackers / "kept.jsonl.up").touch()
    run.finish(timeout=30)
    assert steps_of(trackers) == [*range(500), "finished"]


def test_an_interpreter_that_exits_without_finish_delivers_all(trackers: Path):
    """The end of the script is the end of the run."""
    trainer = script(trackers, 'for step in range(500): run.log({"a": step}, step=step)')
    trainer.communicate(timeout=60)
    assert steps_of(trackers) == [*range(500), "finished"]


def test_a_removed_directory_ends_the_relay_and_stays_removed(trackers: Path):
    """If no training process is there to restore it."""
    trainer = script(trackers, LOOP)
    assert trainer.stdout is not None
    trainer.stdout.readline()
    folder = folder_of(trackers).resolve()
    pids = relay_processes(folder)
    assert len(pids) == 2
    os.kill(min(pids), signal.SIGSTOP)  # nobody looks while the directory goes
    trainer.kill()
    trainer.communicate(timeout=60)
    shutil.rmtree(folder)
    os.kill(min(pids), signal.SIGCONT)
    until(lambda: not relay_processes(folder))
    assert not folder.exists()


def test_a_removed_directory_of_a_living_run_is_restored_and_delivered(trackers: Path):
    """The journal is restored, and its rows are delivered."""
    run = begun(trackers, "marked")
    run.log({"a": 1}, step=1)
    until(lambda: delivery_state(run, "marked").delivered == 1)
    shutil.rmtree(run.path)
    run._maintain()
    run.log({"a": 2}, step=2)
    run.finish(timeout=30)
    assert logged_steps(trackers) == [1, 2]


def test_rows_are_delivered_if_the_cursor_cannot_be_saved(trackers: Path):
    """As on a full disk: when the rows are delivered again, none is there twice."""
    run = begun(trackers, "marked")
    delivery_process = max(relay_processes(run.path.resolve()))
    (run.path / FOLDER / f"marked.{delivery_process}.draft").mkdir()  # where it would write
    for step in range(5):
        run.log({"a": step}, step=step)
    until(lambda: steps_of(trackers) == list(range(5)))
    assert delivery_state(run, "marked").delivered == 0
    run.finish(timeout=30)
    assert steps_of(trackers) == [*range(5), "finished"]
    assert delivery_state(run, "marked").state == "done"


def test_paths_are_relative_to_the_directory_of_init(trackers: Path, monkeypatch: pytest.MonkeyPatch):
    """Also for a relay that is restarted after the training has changed its directory."""
    monkeypatch.chdir(trackers)
    run = barograph.init(track_with=["marked"], tracker_kwargs={"marked": {"path": "kept.jsonl"}})
    (trackers / "elsewhere").mkdir()
    monkeypatch.chdir(trackers / "elsewhere")
    for pid in relay_processes(run.path.resolve()):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not relay_processes(run.path.resolve()))
    run._maintain_clients()
    run.log({"a": 1}, step=1)
    run.finish(timeout=30)
    assert steps_of(trackers) == [1, "finished"]


def test_the_relay_does_not_import_modules_of_the_working_directory(trackers: Path, monkeypatch: pytest.MonkeyPatch):
    """A project may have a ``random.py`` of its own."""
    (trackers / "random.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(trackers)
    run = begun(trackers)
    run.log({"a": 1}, step=1)
    run.finish()
    assert steps_of(trackers) == [1, "finished"]


def test_a_password_in_an_address_is_redacted(trackers: Path):
    """A tracker's url is shown to users."""
    run = begun(trackers, api_key="open-sesame-1234")
    run.finish()
    assert delivery_state(run).url == "http://me:***@localhost/"


def test_a_tracker_that_has_started_once_is_retried(trackers: Path):
    """A TrackerError after a restart of its process may be temporary."""
    run = begun(trackers, "marked")
    run.log({"a": 1}, step=1)
    until(lambda: delivery_state(run, "marked").delivered == 1)
    (trackers / "kept.jsonl.no").touch()
    os.kill(max(relay_processes(run.path.resolve())), signal.SIGKILL)
    until(lambda: "not now" in delivery_state(run, "marked").error)
    assert delivery_state(run, "marked").state in ("retrying", "failing")
    (trackers / "kept.jsonl.no").unlink()
    run.finish(timeout=30)
    assert steps_of(trackers) == [1, "finished"]


def test_a_tracker_that_hangs_is_shown(trackers: Path, monkeypatch: pytest.MonkeyPatch):
    """In its delivery state, before it is restarted."""
    monkeypatch.setenv("BAROGRAPH_TRACKER_HANG_SECONDS", "7")
    run = begun(trackers, trouble="hangs")
    run.log({"a": 1}, step=1)
    until(lambda: "no answer for" in delivery_state(run).error)
    assert (delivery_state(run).state, delivery_state(run).lag) == ("retrying", 1)
    run.finish(timeout=30)
    assert steps_of(trackers) == [1, "finished"]


def test_sync_does_not_deliver_to_a_tracker_that_the_training_delivers_to(
    trackers: Path, capsys: pytest.CaptureFixture[str]
):
    """Two deliveries at once would write everything twice."""
    run = barograph.init(id="fed", track_with=["jsonl"])
    run.log({"a": 1}, step=1)
    assert main(["sync", "fed"]) != 0
    assert "the training delivers to tracker 'jsonl' itself" in capsys.readouterr().err
    run.finish()
    assert main(["sync", "fed"]) == 0
    assert len((run.path / "metrics.jsonl").read_text().splitlines()) == 1
    assert read_delivery_state(run.path, "jsonl").state == "done"


def test_a_delivery_that_dies_before_its_first_mark_leaves_no_duplicate(trackers: Path):
    """The length of the file before the first row is known, and the file is truncated to it."""
    (trackers / "kept.jsonl").write_text('["older", {}, {}]\n')
    run = begun(trackers, "marked", trouble="dies")
    run.log({"a": 1}, step=1)
    run.finish(timeout=30)
    assert steps_of(trackers) == ["older", 1, "finished"]
    assert delivery_state(run, "marked").restarts == 1


@pytest.mark.parametrize(
    ("trouble", "told"), [("lingers", "its threads uploader are running"), ("lingers at exit", "an exit handler")]
)
def test_a_tracker_whose_process_does_not_exit_is_ended(trackers: Path, trouble: str, told: str):
    """A thread or an exit handler of the tracker keeps neither its process nor the relay alive; the log tells."""
    run = begun(trackers, trouble=trouble)
    run.log({"a": 1}, step=1)
    run.finish(timeout=30)
    assert steps_of(trackers) == [1, "finished"]
    assert len(relay_processes(run.path.resolve())) == 2
    until(lambda: not relay_processes(run.path.resolve()))
    assert told in (run.path / FOLDER / "kept.log").read_text()
    assert (delivery_state(run).state, delivery_state(run).restarts) == ("done", 0)


def test_the_log_of_a_chatty_tracker_is_limited(trackers: Path):
    """The beginning and the end stay, and the log tells how much was cut out."""
    run = begun(trackers, trouble="chatty")
    run.log({"a": 1}, step=1)
    run.finish(timeout=30)
    until(lambda: not relay_processes(run.path.resolve()))
    text = (run.path / FOLDER / "kept.log").read_text()
    assert len(text) <= processes.MAX_LOG_BYTES
    assert text.startswith("first line")
    assert text.endswith("last line\n")
    assert 0 < cut_bytes(text) < 41 << 20  # of 40 MiB: what is printed during a cut is not counted


def cut_bytes(text: str) -> int:
    """Return how many bytes were cut out of a log, as it tells."""
    told = re.search(r"at least ([\d,]+) bytes were cut out here", text)
    assert told is not None
    return int(told[1].replace(",", ""))


def test_what_is_printed_while_a_log_is_cut_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The end is read again if the log grew; what was cut out is counted to the byte."""
    path = tmp_path / "kept.log"
    path.write_text("first" + "x" * processes.MAX_LOG_BYTES)

    def read_while_it_grows(fd: int, size: int, start: int) -> bytes:
        data = pread(fd, size, start)
        if not path.read_text().endswith("last"):
            os.write(fd, b"last")
        return data

    pread = os.pread
    monkeypatch.setattr(os, "pread", read_while_it_grows)
    processes.LogFile(path).limit()
    text = path.read_text()
    assert text.startswith("first")
    assert text.endswith("xlast")
    assert cut_bytes(text) == len("first") + processes.MAX_LOG_BYTES + len("last") - 2 * processes.KEPT_BYTES


@pytest.mark.parametrize("name", ["kept.log", "relay.log", "kept.json"])
def test_a_fifo_in_place_of_a_file_of_the_relay_does_not_hold_it_up(trackers: Path, name: str):
    """Rows are delivered, and what the relay prints is lost."""
    folder = trackers / "runs" / "p" / "odd" / FOLDER
    folder.mkdir(parents=True)
    os.mkfifo(folder / name)
    run = barograph.init(
        project="p", id="odd", track_with=["kept"], tracker_kwargs={"kept": {"path": str(trackers / "kept.jsonl")}}
    )
    run.log({"a": 1}, step=1)
    run.finish(timeout=30)
    assert steps_of(trackers) == [1, "finished"]


def test_a_fifo_in_place_of_a_draft_does_not_hold_up_the_delivery(trackers: Path):
    """The cursor is saved with the next rows."""
    run = begun(trackers, "marked")
    delivery_process = max(relay_processes(run.path.resolve()))
    os.mkfifo(run.path / FOLDER / f"marked.{delivery_process}.draft")
    for step in range(5):
        run.log({"a": step}, step=step)
    run.finish(timeout=30)
    assert steps_of(trackers) == [*range(5), "finished"]
    assert delivery_state(run, "marked").state == "done"


@pytest.mark.parametrize("tracker", ["kept", "jsonl"])
def test_a_fifo_in_place_of_a_lock_is_an_error_of_init(trackers: Path, tracker: str):
    """A relay without a lock could deliver everything twice."""
    folder = trackers / "runs" / "p" / "odd" / FOLDER
    folder.mkdir(parents=True)
    os.mkfifo(folder / ("lock" if tracker == "kept" else "jsonl.lock"))
    kwargs = {"kept": {"path": str(trackers / "kept.jsonl")}} if tracker == "kept" else None
    with pytest.raises(barograph.TrackerError, match="not a regular file"):
        barograph.init(project="p", id="odd", track_with=[tracker], tracker_kwargs=kwargs)


def test_a_fifo_in_place_of_the_lock_of_a_tracker_is_told(trackers: Path):
    """Its process ends instead of waiting, the training goes on, and the rows are delivered when the lock is free."""
    folder = trackers / "runs" / "p" / "odd" / FOLDER
    folder.mkdir(parents=True)
    os.mkfifo(folder / "kept.lock")
    begin = threading.Thread(target=begun_odd, args=(trackers,), daemon=True)
    begin.start()
    run_path = folder.parent
    until(lambda: "exited with 1" in read_delivery_state(run_path, "kept").error)
    (folder / "kept.lock").unlink()
    begin.join(60)
    until(lambda: steps_of(trackers) == [1, "finished"])


def begun_odd(trackers: Path) -> None:
    """Record a run of one row."""
    kwargs = {"kept": {"path": str(trackers / "kept.jsonl")}}
    run = barograph.init(project="p", id="odd", track_with=["kept"], tracker_kwargs=kwargs)
    run.log({"a": 1}, step=1)
    run.finish(timeout=30)
