"""Rows with the values of all ranks, and of forked processes: when they are emitted, and under which step."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from kept import lines
from processes import Processes

import barograph
from barograph.base.model import Row, Writer
from barograph.delivery.relay import merged_rows
from barograph.delivery.relay.delivery import Delivery, recorded_config
from barograph.delivery.relay.merged_rows import MergedFollower
from barograph.journal.format.folder import segments
from barograph.journal.format.frames import SEGMENT_HEAD
from barograph.journal.read import follower as follow
from barograph.journal.read.follower import AttemptFollower, RunFollower
from barograph.journal.read.segment_follower import START
from barograph.journal.write.writer import JournalWriter

RANK = textwrap.dedent("""
    import sys, numpy as np, barograph
    rank = int(sys.argv[1])
    run = barograph.init(id="both", project="p", track_with="jsonl")
    for step in range(3):
        scores = np.arange(4.0) + 10 * rank + step
        run.measure(barograph.Batch(response_mask=np.ones((4, 2)), scores=scores))
        with run.rollouts(step) as rollouts:
            for task, score in enumerate(scores):
                rollouts.add(task=f"{rank}-{task}", metrics={"r": score})
        run.log({"lr": 0.1})
        run.commit(step)
    run.finish(timeout=30)
""")


def test_a_tracker_receives_the_values_of_all_ranks(tmp_path: Path):
    """Two real processes, one tracker: means, maxima and coverage are those of the complete batch."""
    environment = {**os.environ, "WORLD_SIZE": "2", "BAROGRAPH_DIR": str(tmp_path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", RANK, str(rank)], env=environment | {"RANK": str(rank)})
        for rank in range(2)
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    received: dict[int, dict[str, float]] = {}
    for line in lines(tmp_path / "p" / "both" / "metrics.jsonl"):
        if "writer" not in line:
            received.setdefault(line["step"], {}).update(line["metrics"])  # type: ignore[call-overload]
    for step in range(3):
        whole = np.concatenate([np.arange(4.0) + 10 * rank + step for rank in range(2)])
        assert received[step]["critic/score/mean"] == pytest.approx(whole.mean())
        assert received[step]["critic/score/max"] == whole.max()
        assert received[step]["rollout/r/mean"] == pytest.approx(whole.mean())
        assert received[step]["rollout/coverage/tasks_observed"] == 8
        assert received[step]["lr"] == 0.1


def test_a_rank_that_never_starts_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Rank 1 of two died before it started: rank 0's own values are delivered after the patience."""
    monkeypatch.setattr(follow, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = barograph.init(id="alone")
    for step in range(2):
        run.measure(barograph.Batch(response_mask=np.ones((1, 2)), scores=np.array([1.0])))
        run.commit(step)
    path = tmp_path / "rows.jsonl"
    follower = MergedFollower(run.path)
    assert follower.new_rows() == []
    assert follower.cursors() == {}
    run.finish()
    state = Delivery(run.path, "jsonl", {"path": str(path)}, lambda: run._ended).deliver()
    assert state.state == "done"
    assert [line["step"] for line in lines(path)] == [0, 1]


def test_rows_on_stdout_wait_for_no_other_rank(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Stdout shows the rows of its own process, also if other ranks never start."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    run = barograph.init(track_with="stdout")
    run.measure(barograph.Batch(response_mask=np.ones((4, 2)), scores=np.arange(4.0)))
    run.commit(0)
    run.finish(timeout=30)
    output = capsys.readouterr()
    assert "critic/score/mean" in output.out + output.err
    assert "not delivered" not in output.err
    assert "sync" not in output.err


def test_the_newest_config_of_all_ranks_counts():
    """As in a view."""
    runs = [barograph.init(id="both", rank=rank, config={"lr": 1}, concurrent=True) for rank in range(2)]
    runs[0].update_config({"lr": 2})
    for run in runs:
        run.finish()
    assert recorded_config(runs[0].path) == barograph.open("both").config == {"lr": 2}


USED = "memory/host/used"
SCORE = "critic/score/mean"
FOREVER = float("inf")


def rows_of(rows: list[Row], rank: int = 0) -> list[tuple[int, dict[str, float]]]:
    """Return step and values of the rows of one rank."""
    return [(row.step, dict(row.values)) for row in rows if row.writer.rank == rank]


def test_the_row_of_the_first_rank_waits_until_the_others_are_past_its_step(tmp_path: Path):
    """Its cursor is not emitted before; then the row has the values of all."""
    processes, follower = Processes(tmp_path), MergedFollower(tmp_path, patience=FOREVER)
    processes.values(0, 0, {USED: 1.0})
    processes.commit(0, 0, 0)
    processes.values(1, 0, {USED: 5.0}, step=0)
    assert rows_of(follower.new_rows()) == []
    assert follower.waits
    assert follower.cursors() == {}
    processes.commit(1, 0, 0)
    assert rows_of(follower.new_rows()) == [(0, {USED: 5.0})]
    assert not follower.waits
    assert set(follower.cursors()) == {"trainer.0.1.0.seg", "trainer.1.1.0.seg"}


def test_rows_without_values_of_several_ranks_wait_for_nobody(tmp_path: Path):
    """Only what is merged is waited for."""
    processes, follower = Processes(tmp_path), MergedFollower(tmp_path, patience=FOREVER)
    processes.values(0, 0, {"lr": 1.0}, step=0)
    assert rows_of(follower.new_rows()) == [(0, {"lr": 1.0})]


def test_a_rank_that_has_not_started_is_waited_for(tmp_path: Path):
    """The launcher said that there are two."""
    processes, follower = Processes(tmp_path, ranks=[0]), MergedFollower(tmp_path, patience=FOREVER)
    processes.values(0, 0, {USED: 1.0})
    processes.commit(0, 0, 0)
    assert follower.new_rows() == []
    processes.restart(1)
    processes.values(1, 0, {USED: 5.0})
    processes.commit(1, 0, 0)
    assert rows_of(follower.new_rows()) == [(0, {USED: 5.0})]


def test_a_rank_that_has_ended_is_not_waited_for(tmp_path: Path):
    """Its last contributions are merged, and later steps have the values of the others."""
    processes, follower = Processes(tmp_path), MergedFollower(tmp_path, patience=FOREVER)
    processes.values(1, 0, {USED: 5.0}, step=0)
    processes.end(1)
    for step in range(2):
        processes.values(0, 0, {USED: 1.0})
        processes.commit(0, 0, step)
    assert rows_of(follower.new_rows()) == [(0, {USED: 5.0}), (1, {USED: 1.0})]


@pytest.mark.parametrize("has_ended", [True, False])
def test_after_a_restart_the_other_ranks_are_waited_for_again(tmp_path: Path, has_ended: bool):
    """What they committed before the restart does not count: they will commit the step once more."""
    processes, follower = Processes(tmp_path), MergedFollower(tmp_path, patience=FOREVER)
    for rank, used in enumerate([1.0, 5.0]):
        processes.values(rank, 0, {USED: used})
        processes.commit(rank, 0, 0)
    assert rows_of(follower.new_rows()) == [(0, {USED: 5.0})]
    if has_ended:
        processes.end(1)
    processes.restart(0)
    processes.values(0, 0, {USED: 2.0})
    processes.commit(0, 0, 0)
    assert follower.new_rows() == []
    processes.restart(1)
    processes.values(1, 0, {USED: 3.0})
    processes.commit(1, 0, 0)
    assert rows_of(follower.new_rows()) == [(0, {USED: 3.0})]


def test_a_contribution_after_the_patience_is_delivered_as_a_further_row(tmp_path: Path):
    """With the values that changed, and once."""
    processes, follower = Processes(tmp_path), MergedFollower(tmp_path, patience=0.0)
    processes.values(0, 0, {USED: 1.0, "lr": 0.5})
    processes.commit(0, 0, 0)
    assert rows_of(follower.new_rows()) == [(0, {USED: 1.0, "lr": 0.5})]
    processes.values(1, 0, {USED: 5.0}, step=0)
    assert rows_of(follower.new_rows()) == [(0, {USED: 5.0})]
    assert rows_of(follower.new_rows()) == []


def test_a_late_contribution_survives_a_kill_of_the_reader(tmp_path: Path):
    """The saved cursors say that it was read and is in no row yet."""
    processes, follower = Processes(tmp_path), MergedFollower(tmp_path, patience=FOREVER)
    processes.values(1, 0, {USED: 5.0}, step=7)
    assert rows_of(follower.new_rows()) == []  # the first rank has not come so far
    later = MergedFollower(tmp_path, follower.cursors(), patience=FOREVER)
    processes.commit(0, 0, 7)
    processes.commit(1, 0, 7)
    assert rows_of(later.new_rows()) == [(7, {USED: 5.0})]
    last = MergedFollower(tmp_path, later.cursors(), patience=FOREVER)
    assert last.new_rows() == []
    processes.end(0)
    processes.end(1)
    assert last.new_rows() + last.take_unfinished() == []


def test_states_that_were_merged_are_not_delivered_again_by_the_next_reader(tmp_path: Path):
    """But they are merged with those that come later."""
    processes, follower = Processes(tmp_path), MergedFollower(tmp_path, patience=FOREVER)
    processes.measure(1, 2)
    follower.new_rows()
    second = MergedFollower(tmp_path, follower.cursors(), patience=FOREVER)
    processes.measure(0, 2)
    [(step, values)] = rows_of(second.new_rows())
    assert step == 0
    assert values["critic/score/mean"] == barograph.open(tmp_path).series("critic/score/mean").last
    third = MergedFollower(tmp_path, second.cursors(), patience=FOREVER)
    assert third.new_rows() == []


def test_steps_far_behind_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A contribution to one of them is not delivered, and their memory is freed; the nearer ones are kept."""
    monkeypatch.setattr(merged_rows, "MAX_STEPS_BACK", 10)
    processes, follower = Processes(tmp_path), MergedFollower(tmp_path, patience=0.0)
    for step in range(31):
        processes.values(0, 0, {USED: 1.0})
        processes.commit(0, 0, step)
    follower.new_rows()
    for step in (19, 20):
        processes.values(1, 0, {USED: 5.0}, step=step)
    assert rows_of(follower.new_rows()) == [(20, {USED: 5.0})]
    assert [step for step in range(99) if step in follower._mergers["trainer"]] == list(range(20, 31))
    assert {step for _, step in follower._deliveries} == set(range(20, 31))


def test_a_restart_from_an_early_step_is_merged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is far behind is counted in the newest attempt."""
    monkeypatch.setattr(merged_rows, "MAX_STEPS_BACK", 10)
    processes, follower = Processes(tmp_path), MergedFollower(tmp_path, patience=FOREVER)
    for step in (0, 30, 1):
        if step == 1:
            follower.new_rows()
            for rank in range(2):
                processes.restart(rank)
        for rank in range(2):
            processes.values(rank, 0, {USED: 1.0 + step + rank})
            processes.commit(rank, 0, step)
    assert rows_of(follower.new_rows()) == [(1, {USED: 3.0})]


def test_an_open_row_of_a_forked_process_waits_for_its_commit_and_holds_up_nothing(tmp_path: Path):
    """The process lives and may commit itself: its row waits, the rows of its parent do not."""
    processes, follower = Processes(tmp_path, ranks=[0]), RunFollower(tmp_path, patience=FOREVER)
    processes.fork(0)
    processes.values(0, 1, {"child": 7.0})
    processes.values(0, 0, {"parent": 1.0})
    processes.commit(0, 0, 5)
    assert rows_of(all_rows(follower)) == [(5, {"parent": 1.0})]
    processes.commit(0, 1, 9)
    assert rows_of(all_rows(follower)) == [(9, {"child": 7.0})]


def test_an_open_row_of_a_forked_process_that_has_ended_gets_the_next_commit_of_the_attempt(tmp_path: Path):
    """By time: the commit before the row is not it."""
    processes, follower = Processes(tmp_path, ranks=[0]), RunFollower(tmp_path, patience=FOREVER)
    processes.fork(0)
    processes.commit(0, 0, 3)
    processes.values(0, 1, {"child": 7.0})
    assert rows_of(all_rows(follower)) == []
    processes.commit(0, 0, 5)
    processes.commit(0, 0, 6)
    processes.end_fork(0)
    assert rows_of(all_rows(follower)) == [(5, {"child": 7.0})]


def test_a_forked_process_that_does_not_commit_is_not_waited_for_longer_than_the_patience(tmp_path: Path):
    """Its row is emitted under its parent's commit; should it commit after all, once more under its own."""
    processes, follower = Processes(tmp_path, ranks=[0]), RunFollower(tmp_path, patience=0.0)
    processes.fork(0)
    processes.values(0, 1, {"child": 7.0})
    processes.commit(0, 0, 5)
    assert rows_of(all_rows(follower)) == [(5, {"child": 7.0})]
    follower = RunFollower(tmp_path, follower.cursors(), patience=0.0)
    assert rows_of(all_rows(follower)) == []
    processes.commit(0, 1, 9)
    assert rows_of(all_rows(follower)) == [(9, {"child": 7.0})]


def test_a_commit_that_is_read_later_than_another_may_be_the_earlier_one(tmp_path: Path):
    """Segments are read one after the other, so a commit is used when it is still the first at the next look."""
    processes, attempt = Processes(tmp_path, ranks=[0]), AttemptFollower(Writer("trainer", 0, 1), {})
    processes.fork(0)
    processes.fork(0)
    for segment in segments(tmp_path):
        attempt.add(segment, START, None)
    processes.values(0, 1, {"child": 1.0})
    processes.commit(0, 0, 0)
    looks = [[row.row.step for row in attempt.new_rows(patience=0.0)] for _ in range(3)]
    assert looks == [[], [0], []]  # from now on the child is not waited for
    processes.values(0, 1, {"child": 2.0})
    now = processes.now()
    processes.journal(0, 2).commit(9, at=now + 0.02)
    assert attempt.new_rows(patience=0.0) == []
    processes.journal(0, 0).commit(5, at=now + 0.01)
    looks = [[row.row.step for row in attempt.new_rows(patience=0.0)] for _ in range(3)]
    assert looks == [[], [5], []]


def test_open_rows_of_the_main_process_are_not_given_the_commits_of_its_forks(tmp_path: Path):
    """Its own next commit names them, however long a step takes; at its end, the fork's commit does."""
    processes, follower = Processes(tmp_path, ranks=[0]), RunFollower(tmp_path, patience=0.0)
    processes.fork(0)
    processes.values(0, 0, {"parent": 1.0})
    processes.commit(0, 1, 9)
    assert rows_of(all_rows(follower)) == []
    processes.commit(0, 0, 2)
    assert rows_of(all_rows(follower)) == [(2, {"parent": 1.0})]
    processes.values(0, 0, {"parent": 3.0})
    processes.commit(0, 1, 10)
    processes.end(0)
    assert rows_of(all_rows(follower) + follower.take_unfinished()) == [(10, {"parent": 3.0})]


def test_a_segment_that_its_process_continues_in_another_gets_no_further_commit(tmp_path: Path):
    """A file may not grow any more, say: its open rows belong to the first commit in the next one."""
    processes, follower = Processes(tmp_path, ranks=[0]), RunFollower(tmp_path, patience=FOREVER)
    processes.values(0, 0, {"a": 1.0})
    assert all_rows(follower) == []
    processes.fork(0, same_process=True)
    processes.commit(0, 1, 5)
    assert rows_of(all_rows(follower)) == [(5, {"a": 1.0})]


@pytest.mark.parametrize("limited", [0, 1])
def test_a_rank_that_continues_in_another_segment_is_past_the_steps_committed_there(tmp_path: Path, limited: int):
    """A limit of file size splits a writer: the commits of all segments of its process count."""
    processes, follower = Processes(tmp_path, ranks=[1 - limited]), MergedFollower(tmp_path, patience=FOREVER)
    processes.restart(limited)
    for rank in (0, 1):
        processes.values(rank, 0, {USED: 1.0 + rank})
        processes.commit(rank, 0, 0)
    processes.fork(limited, same_process=True)
    for step in (1, 2):
        for rank in (0, 1):
            processes.values(rank, int(rank == limited), {USED: 1.0 + rank})
            processes.commit(rank, int(rank == limited), step)
    assert rows_of(all_rows(follower)) == [(step, {USED: 2.0}) for step in range(3)]


def test_a_row_in_a_segment_without_commits_does_not_end_a_step_of_its_process(tmp_path: Path):
    """The process commits, if in another segment: until it does, its step is waited for."""
    processes, follower = Processes(tmp_path), MergedFollower(tmp_path, patience=FOREVER)
    processes.next(1)
    processes.fork(1, same_process=True)
    processes.values(1, 1, {USED: 9.0}, step=4)
    processes.values(0, 0, {USED: 1.0}, step=3)
    processes.values(1, 1, {USED: 7.0}, step=3)
    processes.commit(0, 0, 3)
    assert rows_of(all_rows(follower)) == []
    processes.commit(1, 1, 3)
    assert rows_of(all_rows(follower)) == [(3, {USED: 7.0})]


def test_a_reader_that_goes_on_knows_the_values_that_were_emitted_before(tmp_path: Path):
    """The parent's value of the step is newer than the child's, which is therefore left out."""
    processes, follower = Processes(tmp_path, ranks=[0]), RunFollower(tmp_path, patience=FOREVER)
    processes.fork(0)
    processes.values(0, 1, {"a": 1.0, "child": 1.0})
    processes.values(0, 0, {"a": 2.0})
    processes.commit(0, 0, 5)
    assert rows_of(all_rows(follower)) == [(5, {"a": 2.0})]
    processes.end_fork(0)
    later = RunFollower(tmp_path, follower.cursors(), patience=FOREVER)
    assert rows_of(all_rows(later)) == [(5, {"child": 1.0})]


def test_own_values_count_again_when_another_ranks_are_superseded(tmp_path: Path):
    """Rank 1 restarts before the step and does not reach it again: the run ends with rank 0's own value."""
    processes, follower = Processes(tmp_path), MergedFollower(tmp_path, patience=FOREVER)
    for rank, used in enumerate([1.0, 5.0]):
        processes.commit(rank, 0, 0)
        processes.values(rank, 0, {USED: used})
        processes.commit(rank, 0, 1)
    assert rows_of(follower.new_rows()) == [(1, {USED: 5.0})]
    processes.restart(1)
    processes.commit(1, 0, 0)
    for rank in range(2):
        processes.end(rank)
    later = MergedFollower(tmp_path, follower.cursors(), patience=FOREVER)
    assert [rows_of(f.new_rows() + f.take_unfinished()) for f in (follower, later)] == [[(1, {USED: 1.0})]] * 2
    assert barograph.open(tmp_path).series(USED).values.tolist() == [1.0]


def test_own_values_that_were_withheld_are_delivered_by_a_reader_that_goes_on(tmp_path: Path):
    """Rank 1 was waited for in step 1, and ends without it: rank 0's values are the whole."""
    processes, follower = Processes(tmp_path), MergedFollower(tmp_path, patience=0.0)
    for rank, steps in enumerate([2, 1]):
        for _ in range(steps):
            processes.measure(rank, 1)
    first = rows_of(all_rows(follower))
    assert [step for step, values in first if SCORE in values] == [0]
    for rank in range(2):
        processes.end(rank)
    later = MergedFollower(tmp_path, follower.cursors(), patience=0.0)
    second = rows_of(all_rows(later) + later.take_unfinished())
    shown = barograph.open(tmp_path).series(SCORE)
    assert shown.steps.tolist() == [0, 1]
    assert [values[SCORE] for _, values in first + second if SCORE in values] == shown.values.tolist()


def test_rows_after_the_last_commit_of_an_attempt_come_before_those_of_the_next(tmp_path: Path):
    """What the newer attempt writes for the same step supersedes them, in a tracker too."""
    processes, follower = Processes(tmp_path, ranks=[0]), RunFollower(tmp_path)
    processes.commit(0, 0, 3)
    processes.values(0, 0, {"a": 1.0})
    assert all_rows(follower) == []
    processes.restart(0)
    processes.values(0, 0, {"a": 2.0}, step=4)
    assert rows_of(all_rows(follower)) == [(4, {"a": 1.0}), (4, {"a": 2.0})]


def test_late_rows_of_a_superseded_attempt_are_left_out(tmp_path: Path):
    """The newer attempt began at step 3: a later row of the older one for step 4 is no longer of interest."""
    processes, follower = Processes(tmp_path, ranks=[0]), RunFollower(tmp_path)
    older = processes.journal(0)
    processes.restart(0)
    processes.values(0, 0, {"a": 2.0}, step=3)
    assert rows_of(all_rows(follower)) == [(3, {"a": 2.0})]
    path = older.segment.path
    assert path is not None
    other = JournalWriter(tmp_path / "other", older.segment.writer, (tmp_path / "other").mkdir)
    for step in (2, 4):
        other.row(("a",), (1.0,), step)
    other.close()
    assert other.segment.path is not None
    with path.open("ab") as file:
        file.write(other.segment.path.read_bytes()[SEGMENT_HEAD.size :])
    assert rows_of(all_rows(follower)) == [(2, {"a": 1.0})]


def test_an_open_value_does_not_replace_a_newer_one_of_its_step(tmp_path: Path):
    """A row that names its step was written between an open row and its commit; other values are not affected."""
    processes, follower = Processes(tmp_path, ranks=[0]), RunFollower(tmp_path)
    processes.values(0, 0, {"a": 1.0, "b": 1.0})
    processes.values(0, 0, {"a": 2.0}, step=5)
    follower_of_half = RunFollower(tmp_path)
    assert rows_of(all_rows(follower_of_half)) == [(5, {"a": 2.0})]
    processes.commit(0, 0, 5)
    assert rows_of(all_rows(follower)) == [(5, {"a": 2.0}), (5, {"b": 1.0})]
    assert rows_of(all_rows(RunFollower(tmp_path, follower_of_half.cursors()))) == [(5, {"b": 1.0})]


def all_rows(follower: RunFollower) -> list[Row]:
    """Read until nothing is new; a commit of another process must be seen twice before it is used."""
    return [row for _ in range(3) for row in follower.new_rows()]
