"""Reading runs: by any reference, incrementally, as arrays and frames."""

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import barograph
from barograph.base.model import Status, StatusWord, Writer
from barograph.base.process.identity import process_identity
from barograph.journal.format import folder, frames
from barograph.journal.format.folder import segments
from barograph.journal.format.frames import Kind
from barograph.journal.read.attempt import Attempt, poll_all
from barograph.journal.read.status import LOST_SECONDS, SILENT_SECONDS, run_status, signs_of, status_of
from barograph.journal.write.writer import JournalWriter


def make(name: str, **settings: object) -> barograph.Run:
    run = barograph.init(name=name, **settings)  # type: ignore[arg-type]
    run.log({"x": 1.0}, step=0)
    run.finish()
    return run


def test_a_run_is_found_by_id_prefix_name_path_and_last():
    """All references that ``open`` supports."""
    make("older", id="abc123")
    newer = make("newer", id="abd456")
    for reference in ("abc123", "abc", "older", newer.path.parent / "abc123"):
        assert barograph.open(reference).id == "abc123"
    assert barograph.open().id == barograph.open("@last").id == "abd456"


def test_a_run_is_found_by_id_without_a_look_at_others(monkeypatch: pytest.MonkeyPatch):
    """Its directory has the id as its name; where two projects have it, or the id is another, all runs are read."""
    made = [make("same", id=id) for id in ("aaa1", "aaa2", "aaa3")]
    made[2].path.rename(made[2].path.with_name("bbb"))
    shutil.copytree(made[1].path, made[1].path.parents[1] / "second" / "aaa2")
    read: list[Path] = []
    identity = folder.identity
    monkeypatch.setattr(folder, "identity", lambda path: read.append(path) or identity(path))
    assert folder.find_run("aaa1") == made[0].path
    assert read == [made[0].path]
    assert folder.find_run("aaa3").name == "bbb"
    with pytest.raises(barograph.RunNotFoundError, match="2 runs match 'aaa2'"):
        folder.find_run("aaa2")


def test_a_reference_that_matches_no_run_or_several_is_an_error():
    """The message lists the runs that match."""
    make("same", id="aaa1")
    make("same", id="aaa2")
    with pytest.raises(barograph.RunNotFoundError, match=r"2 runs match 'same': aaa"):
        barograph.open("same")
    with pytest.raises(barograph.RunNotFoundError, match="2 runs match 'aaa'"):
        barograph.open("aaa")
    with pytest.raises(barograph.RunNotFoundError, match="no run 'zzz' in .*; it has 2 runs"):
        barograph.open("zzz")
    with pytest.raises(barograph.RunNotFoundError, match="no run in /nowhere"):
        barograph.open("@last", dir="/nowhere")


def test_a_view_follows_a_run_that_grows():
    """Refresh reads what was appended, and only that."""
    run = barograph.init()
    view = barograph.open(run.path)
    assert view.names() == []
    for step in range(3):
        run.log({"x": float(step)}, step=step)
        view.refresh()
        assert view.series("x").values.tolist() == [float(s) for s in range(step + 1)]
    assert not view.refresh()


def test_an_unknown_metric_names_the_nearest():
    """The message suggests similar names."""
    view = barograph.open(make("n").path)
    with pytest.raises(barograph.MetricNotFoundError, match="has no metric 'y'"):
        view.series("y")
    run = barograph.init()
    run.log({"critic/score/mean": 1.0}, step=0)
    with pytest.raises(barograph.MetricNotFoundError, match=r"did you mean critic/score/mean\?"):
        barograph.open(run.path).series("critic/scores/mean")


def test_names_match_patterns():
    """Shell patterns, one or several."""
    run = barograph.init()
    run.log({"actor/lr": 1.0, "actor/loss": 2.0, "critic/loss": 3.0}, step=0)
    view = barograph.open(run.path)
    assert view.names("actor/*") == ["actor/lr", "actor/loss"]
    assert view.names(["*/loss", "actor/lr"]) == ["actor/lr", "actor/loss", "critic/loss"]


def test_a_frame_has_a_row_for_each_step_and_nan_where_nothing_was_logged():
    """Pandas gets the union of the steps."""
    run = barograph.init()
    run.log({"a": 1.0}, step=0)
    run.log({"b": 2.0}, step=1)
    frame = barograph.open(run.path).frame(["a", "b"])
    assert frame.index.tolist() == [0, 1]
    np.testing.assert_array_equal(frame.to_numpy(), [[1.0, np.nan], [np.nan, 2.0]])


def test_a_run_whose_run_json_is_lost_can_still_be_read():
    """The segments alone are enough."""
    run = make("n", project="p")
    (run.path / "run.json").unlink()
    view = barograph.open(run.path)
    assert (view.info.id, view.info.project, view.series("x").last) == (run.id, "p", 1.0)
    (run.path / "run.json").write_text("{")
    assert barograph.open(run.path).info.id == run.id


def test_a_run_can_be_moved_and_read_elsewhere(tmp_path: Path):
    """A run is a directory, and no file in it contains its path."""
    run = make("n")
    shutil.move(run.path, tmp_path / "elsewhere")
    assert barograph.open(tmp_path / "elsewhere").series("x").last == 1.0


Action = tuple[str, int, float]
actions = st.lists(
    st.tuples(st.sampled_from(["open", "step", "commit"]), st.integers(0, 6), st.sampled_from([1.0, 2.0, 3.0])),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(actions, st.integers(1, 5))
def test_steps_resolve_as_the_rules_say_however_the_journal_is_read(
    tmp_path_factory: pytest.TempPathFactory, actions: list[Action], every: int
):
    """Reading in pieces or at once gives what a plain replay of the calls gives."""
    folder = tmp_path_factory.mktemp("rules")
    writer = Writer("trainer", 0, 1)
    journal = JournalWriter(folder, writer)
    attempt = Attempt(writer)
    attempt.add(segments(folder)[0])
    expected: dict[int, float] = {}
    pending: list[float] = []
    highest = -1
    for number, (action, step, value) in enumerate(actions):
        if action == "open":
            journal.row(("x",), (value,), None)
            pending.append(value)
        elif action == "step":
            journal.row(("x",), (value,), step)
            expected[step] = value
        else:
            journal.commit(step)
            if pending:
                later = [p for p, (a, _, _) in enumerate(actions[:number]) if a == "open"]
                explicit_after = any(a == "step" and s == step for a, s, _ in actions[later[-1] + 1 : number])
                if not explicit_after:
                    expected[step] = pending[-1]
                pending = []
        if action != "open":
            highest = max(highest, step)
        if number % every == 0:
            poll_all([attempt])
            attempt.series("x")
    if pending:
        expected[highest + 1] = pending[-1]
    poll_all([attempt])
    journal.close()
    series = attempt.series("x")
    assert dict(zip(series.steps.tolist(), series.values.tolist(), strict=True)) == expected


def test_events_of_all_writers_are_in_the_order_of_time():
    """Those of forked processes are not among them: their start is not that of the attempt."""
    runs = [barograph.init(id="both", rank=rank, concurrent=True) for rank in range(2)]
    runs[1].update_config({"late": 1})
    runs[0].update_config({"later": 2})
    child = os.fork()
    if not child:
        runs[0].log({"child": 1.0}, step=0)
        os._exit(0)
    os.waitpid(child, 0)
    for run in runs:
        run.finish()
    view = barograph.open("both")
    times = [event["time"] for event in view.events()]
    assert times == sorted(times)
    assert [event["event"] for event in view.events()].count("start") == 2
    assert [event["config"] for event in view.events() if event["event"] == "config"][-2:] == [
        {"late": 1},
        {"later": 2},
    ]
    assert "child" in view.names()


def test_the_span_of_a_run_is_from_its_creation_to_its_last_row_or_event(tmp_path: Path):
    """Rows and events of every writer count, whichever is last; so does a row before the run's creation."""
    run = barograph.init(id="span")
    run.finish()
    created = barograph.open("span").info.created

    def write(rank: int, row: float, event: float) -> tuple[float, float]:
        journal = JournalWriter(run.path, Writer("trainer", rank, 1))
        journal.row(("x",), (1.0,), 0, at=created + row)
        journal.event("note", time=created + event)
        journal.close()
        first, last = barograph.open("span").span
        return round(first - created, 3), round(last - created, 3)

    assert write(1, row=1000, event=2000) == (0.0, 2000.0)
    assert write(2, row=3000, event=2500) == (0.0, 3000.0)
    assert write(3, row=-50, event=10) == (-50.0, 3000.0)


def events(**start: object) -> list[dict[str, object]]:
    return [{"event": "start", "time": 1000.0, **process_identity(), **start}]


def test_status_comes_from_events_process_and_clock():
    """Every combination has its status."""
    assert status_of(signs_of(events()), 1000.0, now=1001.0).word == "running"
    assert status_of(signs_of(events()), 1000.0, now=1001.0 + SILENT_SECONDS).word == "stalled"
    assert (
        status_of(signs_of([*events(), {"event": "heartbeat", "time": 4000.0}]), 1000.0, now=4001.0).word == "stalled"
    )
    assert status_of(signs_of(events(born=1.0)), 1000.0, now=1001.0).word == "killed"
    assert status_of(signs_of(events(machine="another")), 1000.0, now=1001.0).word == "running"
    assert status_of(signs_of(events(machine="another")), 1000.0, now=1002.0 + SILENT_SECONDS).word == "stalled"
    assert status_of(signs_of(events(machine="another")), 1000.0, now=1002.0 + LOST_SECONDS).word == "killed"
    finish = {"event": "finish", "time": 1001.0, "status": "crashed", "reason": "ValueError: x"}
    assert status_of(signs_of([*events(), finish]), 1000.0) == Status("crashed", "ValueError: x")


@pytest.mark.parametrize(
    ("main", "other", "word"),
    [
        ("finished", "running", "running"),
        ("finished", "killed", "finished"),
        ("finished", "stalled", "finished"),
        ("finished", "crashed", "finished"),
        ("running", "killed", "running"),
        ("stalled", "running", "running"),
        ("stalled", "killed", "stalled"),
        ("killed", "crashed", "crashed"),
        ("killed", "finished", "killed"),
        ("crashed", "killed", "crashed"),
    ],
)
def test_the_status_of_a_run_is_that_of_its_main_writer(main: StatusWord, other: StatusWord, word: StatusWord):
    """While any writer runs, the run does; if the main writer was killed, another one's error tells more."""
    statuses = {Writer("explorer", 0, 1): Status(other), Writer("trainer", 0, 1): Status(main)}
    assert run_status(statuses).word == word


def test_a_run_without_writers_is_killed():
    """Its process ended before it wrote anything."""
    assert run_status({}).word == "killed"


def test_heartbeats_tell_a_quiet_run_from_a_dead_one(monkeypatch: pytest.MonkeyPatch):
    """The background thread writes them while nothing is logged."""
    monkeypatch.setattr("barograph.recording.run.HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr("barograph.base.process.background.MAINTENANCE_SECONDS", 0.02)
    run = barograph.init()
    deadline = time.monotonic() + 20
    seen: set[float] = set()
    while time.monotonic() < deadline:
        view = barograph.open(run.path)
        seen |= {event["time"] for event in view.events() if event["event"] == "heartbeat"}
        if len(seen) >= 2:
            return
        time.sleep(0.05)
    pytest.fail("no heartbeats came")


def test_a_run_that_is_followed_step_by_step_stays_quick_to_read():
    """Rows that were read one by one are united to few chunks, in their order."""
    run = barograph.init(id="followed")
    run.log({"a": 0.0, "b": 0.0}, step=0)
    view = barograph.open(run.path)
    for step in range(1, 300):
        run.log({"a": float(step), "b": -float(step)}, step=step)
        view.refresh()
    run.finish()
    assert view.series("b").values.tolist() == [-float(step) for step in range(300)]
    [attempt] = view._attempts.values()
    [table] = attempt.readers[0].tables.values()
    assert len(table.chunks) < 10
    assert len(table) == 300


def test_a_histogram_that_cannot_be_read_costs_itself_only():
    """One that is not JSON, or has no name or no bins, is skipped; others are read."""
    run = barograph.init()
    run.log({"adv": barograph.histogram([1.0, 2.0], bins=2)}, step=4)
    for payload in (b"{", b"{}", b'{"name": "adv"}'):
        run._recording.journal._append(frames.frame(bytes([Kind.HISTOGRAM]) + payload))
    run.finish()
    view = barograph.open(run.path)
    assert [step for step, _ in view.histograms("adv")] == [4]
    assert view.histogram_names() == ["adv"]
