"""A run that travels: tickets, pickled runs, and the processes that join with them."""

import copy
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import barograph
from barograph.base.model import Status, Writer
from barograph.journal.format.folder import segments
from barograph.journal.read.status import start_event
from barograph.journal.write.writer import claim

JOINING = """
import json, os, pickle, sys, barograph
run = pickle.loads(bytes.fromhex(sys.argv[1])) if len(sys.argv) > 1 else barograph.join(os.environ["TICKET"])
run.log({"score": float(run.writer.rank)}, step=0)
print(json.dumps([run.writer.role, run.writer.rank, run.writer.attempt, run.id, str(run.path)]))
if "WAIT" in os.environ:
    sys.stdout.flush()
    sys.stdin.read()
"""


def joining(run: barograph.Run | bytes, **environ: str) -> subprocess.Popen[str]:
    """Start a process that unpickles a run, in another working directory, and logs."""
    data = run if isinstance(run, bytes) else pickle.dumps(run)
    return subprocess.Popen(
        [sys.executable, "-c", JOINING, data.hex()],
        cwd="/",
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def joined(process: subprocess.Popen[str]) -> list[Any]:
    """Return role, rank, attempt, id and path that a process has joined with, once it has ended."""
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return list(json.loads(output))


def test_a_ticket_is_the_place_of_the_run_and_how_its_issuer_records(tmp_path: Path):
    """Settings that decide what is recorded are in it; the config and the arguments of trackers are not."""
    run = barograph.init(
        id="a", project="my project", role="actor", world_size=4, rank=0, samples_per_step=3, memory_children=True,
        config={"api_key": "hunter2"}, track_with="jsonl", tracker_kwargs={"path": str(tmp_path / "hunter2")},
    )  # fmt: skip
    place = f"file://{tmp_path}/runs/my%20project/a"
    assert run.ticket() == f"{place}?role=actor&samples_per_step=3&memory_children=true&world_size=4"
    assert len(pickle.dumps(run)) < 400
    assert b"hunter2" not in pickle.dumps(run)


def test_a_pickled_run_is_joined_by_the_process_that_unpickles_it(tmp_path: Path):
    """It gets a rank of its own and the settings of the run, wherever it works."""
    run = barograph.init(id="a", project="p", vocabulary="trl", samples_per_step=5)
    run.log({"score": 0.0}, step=0)
    assert joined(joining(run)) == ["trainer", 1, 1, "a", str(run.path)]
    assert joined(joining(cloudpickle.dumps(run))) == ["trainer", 2, 1, "a", str(run.path)]
    view = barograph.open(run.path)
    assert [view.series("score", rank=rank).last for rank in range(3)] == [0.0, 1.0, 2.0]
    assert [view.writer_statuses()[writer].word for writer in view.writers()] == ["running", "finished", "finished"]


def test_a_run_is_joined_by_its_ticket_in_the_environment(tmp_path: Path):
    """The role and the rank may be given."""
    run = barograph.init(id="a")
    environ = {**os.environ, "TICKET": run.ticket(), "BAROGRAPH_ROLE": "explorer", "BAROGRAPH_RANK": "3"}
    output = subprocess.run([sys.executable, "-c", JOINING], env=environ, stdout=subprocess.PIPE, check=True).stdout
    assert json.loads(output)[:3] == ["explorer", 3, 1]
    other = barograph.join(run.ticket(), role="reward", rank=7, samples_per_step=0)
    assert other is not run
    assert other.writer == Writer("reward", 7, 1)


def test_a_run_is_the_same_object_in_its_own_process():
    """Copies are the run; a ticket of this process is answered with it."""
    run = barograph.init(id="a")
    assert pickle.loads(pickle.dumps(run)) is run
    assert copy.copy(run) is run
    assert copy.deepcopy({"run": run})["run"] is run
    assert barograph.join(run.ticket()) is run
    assert barograph.join(run.ticket(), rank=0) is run


def test_threads_that_receive_one_ticket_at_once_join_once(tmp_path: Path):
    """A pooled worker is one writer, however many tasks bring the run along."""
    ticket = barograph.init(id="a").ticket()
    code = f"""
    import barograph
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(8) as pool:
        runs = set(pool.map(barograph.join, [{ticket!r}] * 64))
    assert len(runs) == 1 and runs.pop().writer.rank == 1
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)
    assert len(segments(barograph.open("a").path)) == 2


def test_a_run_that_was_finished_is_joined_anew():
    """A finished run of this process cannot be written to, so it is another writer that hides no value of the first."""
    run = barograph.init(id="a")
    first = barograph.join(run.ticket(), role="worker")
    first.finish()
    second = barograph.join(run.ticket(), role="worker")
    assert (first.writer, second.writer) == (Writer("worker", 0, 1), Writer("worker", 1, 1))


def test_processes_that_join_at_once_get_different_ranks():
    """The rank is claimed by creating a file, which one process can do."""
    run = barograph.init(id="a")
    processes = [joining(run) for _ in range(6)]
    assert sorted(joined(process)[1] for process in processes) == [1, 2, 3, 4, 5, 6]


def test_a_claimed_rank_is_never_given_twice(tmp_path: Path):
    """Many threads claim ranks in one directory."""
    with ThreadPoolExecutor(16) as pool:
        claimed = list(pool.map(lambda _: claim(tmp_path, "trainer", wanted=2).rank, range(100)))
    assert sorted(claimed) == list(range(100))


def test_the_rank_of_the_launcher_is_taken_unless_a_live_process_has_it():
    """A process that torchrun started again continues its rank as a new attempt."""
    run = barograph.init(id="a")
    assert joined(joining(run, RANK="3", WORLD_SIZE="4"))[1:3] == [3, 1]
    assert joined(joining(run, RANK="3", WORLD_SIZE="4"))[1:3] == [3, 2]
    assert joined(joining(run, RANK="0", WORLD_SIZE="4"))[1:3] == [1, 1]


def test_the_variables_of_a_parent_that_was_alone_do_not_make_a_joined_process_alone():
    """It inherits WORLD_SIZE=1, and writes states all the same."""
    run = barograph.init(id="a", role="driver")
    process = joined(joining(run, BAROGRAPH_ROLE="worker", RANK="0", WORLD_SIZE="1"))
    assert process[:3] == ["worker", 0, 1]
    start = start_event(next(s.path for s in segments(run.path) if s.writer.role == "worker"))
    assert start is not None
    assert "world_size" not in start


def test_the_number_of_processes_is_that_of_the_issuers_role():
    """Another role has its own number."""
    run = barograph.init(id="a", world_size=4, rank=0)
    same, other = barograph.join(run.ticket(), rank=1), barograph.join(run.ticket(), role="explorer")
    starts = [start_event(s.path) or {} for s in segments(run.path) if s.writer in (same.writer, other.writer)]
    assert [start.get("world_size") for start in starts] == [None, 4]


def test_a_disabled_run_travels_as_a_disabled_run(tmp_path: Path):
    """In this process and in another one, and nothing is written."""
    run = barograph.init(mode="disabled", role="explorer")
    assert run.ticket() == "disabled:?role=explorer"
    assert pickle.loads(pickle.dumps(run)) is run
    assert joined(joining(run))[:4] == ["explorer", 0, 0, "disabled"]
    run.finish()
    again = pickle.loads(pickle.dumps(run))
    assert (again is run, again.id) == (False, "disabled")
    assert not (tmp_path / "runs").exists()


def test_a_process_with_recording_disabled_joins_nothing():
    """BAROGRAPH_MODE holds for it, whatever the run does."""
    run = barograph.init(id="a")
    assert joined(joining(run, BAROGRAPH_MODE="disabled"))[3] == "disabled"
    assert len(segments(run.path)) == 1


def test_joined_runs_deliver_to_no_tracker(tmp_path: Path):
    """The process that began the run does; the variable for trackers is inherited."""
    rows = tmp_path / "rows.jsonl"
    run = barograph.init(id="a", track_with="jsonl", tracker_kwargs={"path": str(rows)})
    assert joined(joining(run, BAROGRAPH_TRACK_WITH="wandb"))[1] == 1
    run.log({"x": 1.0}, step=1)
    run.finish()
    assert '"x"' in rows.read_text()


@pytest.mark.parametrize("ticket", ["", "/runs/p/a", "https://example.com/a", "file:", None, 3, b"file:///runs/p/a"])
def test_what_is_not_a_ticket_is_rejected(ticket: Any):
    """The error shows what came."""
    with pytest.raises(barograph.SettingsError, match="ticket: expected the string that run.ticket"):
        barograph.join(ticket)


def test_a_place_that_is_not_there_is_an_error_and_no_second_run(tmp_path: Path):
    """The error names the directory and the machine, and nothing is created."""
    ticket = barograph.init(id="a").ticket()
    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(barograph.RunNotFoundError, match=rf"no run in {elsewhere}.* on .*all machines see"):
        barograph.join(ticket.replace(str(tmp_path / "runs"), str(elsewhere)))
    assert not elsewhere.exists()


def test_settings_of_the_run_and_unknown_settings_are_rejected_on_joining():
    """They are given where the run begins."""
    ticket = barograph.init(id="a").ticket()
    with pytest.raises(barograph.SettingsError, match="join: 'dir' is a setting of the whole run"):
        barograph.join(ticket, role="b", dir="elsewhere")
    with pytest.raises(barograph.SettingsError, match="unknown setting 'memry'; did you mean 'memory'"):
        barograph.join(ticket, role="b", memry="cpu")


def test_a_ticket_of_a_newer_version_is_accepted():
    """Settings that this version does not know are ignored."""
    run = barograph.init(id="a")
    assert barograph.join(run.ticket() + "&colour=blue") is run


def test_a_ticket_keeps_every_character_of_a_path(tmp_path: Path):
    """Also percent signs, question marks and letters of any script."""
    run = barograph.init(id="a", dir=tmp_path / "50% of? #1 训练")
    assert joined(joining(run))[4] == str(run.path)


def _measure(run: barograph.Run, score: float) -> None:
    run.measure({"response_mask": [[1, 1]], "scores": [score]})
    run.commit(0)


def test_children_of_spawn_join_as_ranks(tmp_path: Path):
    """The run is an argument of the process like any other; its value is the mean over all of them."""
    run = barograph.init(id="a")
    children = [multiprocessing.get_context("spawn").Process(target=_measure, args=(run, s)) for s in (1.0, 3.0)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    view = barograph.open(run.path)
    assert view.series("critic/score/mean").values.tolist() == [2.0]
    assert [writer.rank for writer in view.writers()] == [0, 1, 2]


def _evaluate(run: barograph.Run, score: float) -> None:
    with run.evaluation("set", step=0) as evaluation:
        evaluation.add(task=str(score), metrics={"score": score})
    _measure(run, score)


def test_forked_children_count_together():
    """A forked child has the run of its parent without unpickling it, and its rank."""
    run = barograph.init(id="a")
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_evaluate, args=(run, score)) for score in (1.0, 3.0, 8.0)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    view = barograph.open(run.path)
    assert view.series("critic/score/mean").values.tolist() == [4.0]
    assert view.series("eval/set/score/mean@1").values.tolist() == [4.0]
    assert [s.index for s in segments(run.path)] == [0, 1, 2, 3]


def _join(ticket: str, problem: Exception | None) -> None:
    barograph.join(ticket, role="worker", rank=0).log({"x": 1.0}, step=0)
    if problem is not None:
        raise problem


def test_a_forked_child_does_not_end_as_its_parent_would_have():
    """An exit that the parent caught, as of a command that it called, is not the child's."""
    run = barograph.init(id="a")
    with pytest.raises(SystemExit):
        sys.exit(2)
    child = multiprocessing.get_context("fork").Process(target=_join, args=(run.ticket(), None))
    child.start()
    child.join(60)
    assert barograph.open(run.path).writer_statuses()[Writer("worker", 0, 1)] == Status("finished")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize(
    ("problem", "status"),
    [(None, Status("finished")), (ValueError("odd batch"), Status("crashed", "ValueError: odd batch"))],
)
def test_a_child_of_multiprocessing_that_joined_ends_as_it_does(
    method: str, problem: Exception | None, status: Status, tmp_path: Path
):
    """Its children end without the exit handlers of Python, and it shows their exceptions itself."""
    run = barograph.init(id="a")
    child = multiprocessing.get_context(method).Process(target=_join, args=(run.ticket(), problem))
    child.start()
    child.join(60)
    assert barograph.open(run.path).writer_statuses()[Writer("worker", 0, 1)] == status


def test_a_forked_child_that_unpickles_the_run_has_that_of_its_parent():
    """As without unpickling: the child writes a file of its own under the rank of its parent."""
    run = barograph.init(id="a")
    data = pickle.dumps(run)
    child = os.fork()
    if not child:
        same = pickle.loads(data)
        same.log({"x": 1.0}, step=0)
        os._exit(0 if same is run else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [(s.writer.rank, s.index) for s in segments(run.path)] == [(0, 0), (0, 1)]


def test_a_joined_process_that_is_killed_is_one_writer_of_the_run():
    """Its values stay, and its rank is not given to another process."""
    run = barograph.init(id="a")
    process = joining(run, WAIT="1")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())[1] == 1
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert joined(joining(run))[1] == 2
    view = barograph.open(run.path)
    assert view.series("score", rank=1).last == 1.0
    assert view.writer_statuses()[Writer("trainer", 1, 1)].word == "killed"


def test_an_issuer_records_for_others_from_then_on():
    """A process that did not know whether it is alone writes states once it has given a ticket away."""
    run = barograph.init(id="a")
    assert run._recording.shared is False
    run.ticket()
    assert run._recording.shared is True


def test_ranks_are_claimed_in_the_shared_directory_also_with_a_spool(tmp_path: Path):
    """Two machines have two spools and one directory."""
    run = barograph.init(id="a")
    found = [joined(joining(run, BAROGRAPH_SPOOL=str(tmp_path / spool)))[1] for spool in ("one", "two", "two")]
    assert found == [1, 2, 3]
    until = time.monotonic() + 30
    while time.monotonic() < until and (tmp_path / "two" / "a").exists():
        time.sleep(0.1)
    assert [barograph.open(run.path).series("score", rank=rank).last for rank in (1, 2, 3)] == [1.0, 2.0, 3.0]


def test_a_ticket_is_issued_from_any_thread():
    """Pickling takes no lock and writes nothing."""
    run = barograph.init(id="a")
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(run.ticket()))
    thread.start()
    thread.join(10)
    assert found == [run.ticket()]


def test_a_rank_without_an_id_is_told_that_it_begins_a_run_of_its_own(capfd: pytest.CaptureFixture[str]):
    """Nothing tells which run it belongs to."""
    barograph.init(rank=0)
    barograph.init(rank=1, id="known")
    assert "begins a run of its own" not in capfd.readouterr().err
    barograph.init(rank=1)
    assert "rank 1 begins a run of its own" in capfd.readouterr().err


def test_a_claim_whose_process_died_at_once_does_no_harm():
    """An empty file is left; the run can be read, and the rank is not given again."""
    run = barograph.init(id="a")
    assert claim(run.path, "trainer") == Writer("trainer", 1, 1)
    assert barograph.join(run.ticket(), rank=2).writer.rank == 2
    assert joined(joining(run))[1] == 3
    run.log({"x": 1.0}, step=0)
    run.finish()
    assert barograph.open(run.path).series("x").last == 1.0
