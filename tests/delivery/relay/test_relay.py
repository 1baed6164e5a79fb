"""The relay: rows reach trackers whatever happens to the training, the tracker or the relay itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from kept import begun, delivery_state, environment_of, kept, relay_processes, steps_of, until

import barograph
from barograph.delivery.relay.state import FOLDER


def test_rows_texts_and_the_end_are_delivered(trackers: Path):
    """All of them, once and in order, with the status of the run; finish returns when they are there."""
    run = begun(trackers)
    for step in range(50):
        run.log({"a": step, "b": 2 * step})
        run.text("note", f"step {step}")
        run.commit(step)
    run.log({"a": 99}, step=7)
    run.finish()
    records = kept(trackers)
    assert [record[0] for record in records] == [*range(50), 7, "finished"]
    assert records[3] == [3, {"a": 3, "b": 6}, {"note": "step 3"}]
    assert delivery_state(run).state == "done"
    assert delivery_state(run).delivered == 51


def test_a_wrong_configuration_fails_at_the_start(trackers: Path, capsys: pytest.CaptureFixture[str]):
    """Before ``init`` returns, with the tracker's message and without its key."""
    with pytest.raises(barograph.TrackerError, match="the key is wrong; get one at example.org"):
        begun(trackers, trouble="wrong", api_key="very-secret-key")
    assert "very-secret-key" not in capsys.readouterr().err


def test_an_unreachable_tracker_is_a_warning_and_gets_its_rows_later(
    trackers: Path, capsys: pytest.CaptureFixture[str]
):
    """The training begins; when the tracker answers, it gets everything."""
    run = begun(trackers, trouble="out of reach")
    assert "unreachable (ConnectionError: nobody answers)" in capsys.readouterr().err
    for step in range(5):
        run.log({"a": step}, step=step)
    (trackers / "kept.jsonl.up").touch()
    until(lambda: steps_of(trackers) == list(range(5)))
    run.finish()


def test_an_outage_is_shown_and_the_rows_are_delivered_later(trackers: Path):
    """State, errors and lag are shown while it lasts, in show and as metrics; then no row is missing."""
    run = begun(trackers, trouble="down")
    for step in range(5):
        run.log({"a": step}, step=step)
    until(lambda: delivery_state(run).state in ("retrying", "failing") and delivery_state(run).lag == 5)
    run._maintain_clients()
    view = barograph.open(run.path)
    assert view.series("barograph/relay/kept/lag_rows").last == 5
    assert view.series("barograph/relay/kept/state").last > 0
    (trackers / "kept.jsonl.up").touch()
    run.finish(timeout=30)
    assert steps_of(trackers) == [*range(5), 4, "finished"]
    assert delivery_state(run).errors > 0


def test_a_row_that_a_tracker_rejects_is_skipped_alone(trackers: Path):
    """The others arrive, and the rejected row is counted and shown."""
    run = begun(trackers, trouble="picky")
    for step in range(8):
        run.log({"a": step}, step=step)
    run.finish(timeout=60)
    assert sorted(set(steps_of(trackers)) - {"finished"}) == [0, 1, 2, 4, 5, 6, 7]
    assert (delivery_state(run).delivered, delivery_state(run).dropped) == (7, 1)
    assert "three is not a step" in delivery_state(run).error


@pytest.mark.parametrize("trouble", ["exits", "hangs"])
def test_a_tracker_that_exits_or_hangs_is_restarted(trackers: Path, trouble: str, monkeypatch: pytest.MonkeyPatch):
    """It has a process of its own: another tracker is not affected."""
    monkeypatch.setenv("BAROGRAPH_TRACKER_HANG_SECONDS", "1")
    sick = {"path": str(trackers / "kept.jsonl"), "trouble": trouble}
    well = {"path": str(trackers / "well.jsonl")}
    run = barograph.init(track_with=["kept", "marked"], tracker_kwargs={"kept": sick, "marked": well})
    for step in range(5):
        run.log({"a": step}, step=step)
    until(lambda: delivery_state(run, "marked").delivered == 5)
    run.finish(timeout=60)
    assert steps_of(trackers) == [*range(5), "finished"]
    assert delivery_state(run).restarts == 1


TRAINER = textwrap.dedent("""
    import sys, barograph
    run = barograph.init(id="killed", track_with=["marked"], tracker_kwargs={"marked": {"path": sys.argv[1]}})
    for step in range(10**9):
        run.log({"a": step}, step=step)
        print(step, flush=True)
""")


def test_rows_before_a_kill_are_delivered(trackers: Path):
    """The trainer is killed; the relay delivers every acknowledged row and the status."""
    command = [sys.executable, "-c", TRAINER, str(trackers / "kept.jsonl")]
    trainer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    for _ in range(500):
        last = int(trainer.stdout.readline())
    trainer.kill()
    with trainer:
        acknowledged = [last, *(int(line) for line in trainer.stdout.read().splitlines() if line)]
    until(lambda: "killed" in steps_of(trackers))
    counts = Counter(steps_of(trackers))
    assert set(range(max(acknowledged) + 1)) <= set(counts)
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("whom", ["relay", "delivery"])
def test_a_killed_relay_is_restarted_and_no_row_is_delivered_twice(trackers: Path, whom: str):
    """Any of its processes, several times; rows that were not safe yet are written again."""
    run = begun(trackers, "marked")
    for round_ in range(3):
        for step in range(200):
            run.log({"a": step}, step=200 * round_ + step)
        pids = relay_processes(run.path.resolve())
        assert len(pids) == 2
        victim = min(pids) if whom == "relay" else max(pids)
        os.kill(victim, signal.SIGKILL)
        gone = pids if whom == "relay" else [victim]
        until(lambda gone=gone: not {*gone} & {*relay_processes(run.path.resolve())})
        run._maintain_clients()
        until(lambda: len(relay_processes(run.path.resolve())) == 2)
    run.finish(timeout=30)
    steps = [record[0] for record in kept(trackers) if "a" in record[1]]  # type: ignore[operator]
    assert sorted(steps) == list(range(600))  # type: ignore[type-var]


def test_no_process_is_left(trackers: Path):
    """When all is delivered, the relay exits."""
    run = begun(trackers)
    run.log({"a": 1}, step=1)
    run.finish()
    until(lambda: not relay_processes(run.path.resolve()))


def test_a_continued_run_delivers_only_new_rows(trackers: Path):
    """A second attempt delivers its own rows, and no earlier one again."""
    for attempt in range(2):
        run = barograph.init(
            id="again", track_with=["marked"], tracker_kwargs={"marked": {"path": str(trackers / "kept.jsonl")}}
        )
        for step in range(3):
            run.log({"a": attempt}, step=3 * attempt + step)
        run.finish()
    assert steps_of(trackers) == [0, 1, 2, "finished", 3, 4, 5, "finished"]


def test_rows_can_be_delivered_from_this_process(trackers: Path):
    """If other processes are not allowed: the same delivery, in threads."""
    run = barograph.init(
        track_with=["marked"], tracker_kwargs={"marked": {"path": str(trackers / "kept.jsonl")}}, in_process=True
    )
    for step in range(20):
        run.log({"a": step}, step=step)
    assert relay_processes(run.path.resolve()) == []
    run.finish()
    assert steps_of(trackers) == [*range(20), "finished"]


def test_finish_reports_undelivered_rows(
    trackers: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """With the reason and the command that delivers them later."""
    monkeypatch.setenv("BAROGRAPH_TRACKER_GIVE_UP_SECONDS", "0")
    run = begun(trackers, trouble="raises")
    run.log({"a": 1}, step=1)
    run.finish(timeout=5)
    said = capsys.readouterr().err
    # The end of the run may not be read while the row waits.
    undelivered = r"tracker 'kept': 1 row( and \d+ B of the journal)? not delivered yet \(ConnectionError: no route\)"
    assert re.search(undelivered, said)
    assert f"barograph sync {run.id} delivers them" in said


def test_keys_are_in_no_file_no_argument_and_no_environment_but_their_own(
    trackers: Path, monkeypatch: pytest.MonkeyPatch
):
    """Neither the one given to the tracker nor one of another tracker in the environment."""
    monkeypatch.setenv("WANDB_API_KEY", "another-secret-key-1234")
    run = begun(trackers, api_key="my-own-secret-key-5678")
    run.log({"a": 1}, step=1)
    pids = relay_processes(run.path.resolve())
    assert len(pids) == 2
    for pid in pids:
        assert b"secret-key" not in environment_of(pid)
    run.finish()
    for file in [path for path in run.path.rglob("*") if path.is_file()]:
        assert b"secret-key" not in file.read_bytes(), file
    assert (run.path / FOLDER / "kept.json").exists()
