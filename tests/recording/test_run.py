"""Tests of the run that a training loop uses."""

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import barograph
from barograph.journal.format.folder import segments


def in_process(code: str, tmp_path: Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run code as a separate script, with its runs below ``tmp_path``."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(code))
    environment = {**os.environ, "BAROGRAPH_DIR": str(tmp_path / "runs")}
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
        **options,
    )  # type: ignore[call-overload, no-any-return]


def test_logged_values_can_be_read_at_once():
    """A value is in the journal when log returns, before any commit or finish."""
    run = barograph.init(project="p", name="n")
    run.log({"loss": 0.5}, step=3)
    series = barograph.open(run.path).series("loss")
    assert (series.steps.tolist(), series.values.tolist()) == ([3], [0.5])


def test_rows_without_a_step_belong_to_the_next_commit():
    """Several calls are merged into the step that commit names; the last value of a key is shown."""
    run = barograph.init()
    run.log({"a": 1.0, "b": 2.0})
    run.log({"a": 3.0})
    run.commit(10)
    run.log({"a": 4.0})
    run.commit(11)
    run.log({"a": 5.0})
    view = barograph.open(run.path)
    assert dict(zip(view.series("a").steps.tolist(), view.series("a").values.tolist(), strict=True)) == {
        10: 3,
        11: 4,
        12: 5,
    }
    assert view.series("b").steps.tolist() == [10]


def test_steps_may_be_logged_in_any_order():
    """Late values of an earlier step are sorted in."""
    run = barograph.init()
    for step in (5, 1, 3, 1):
        run.log({"x": float(step), "n": time.time()}, step=step)
    series = barograph.open(run.path).series("x")
    assert (series.steps.tolist(), series.values.tolist()) == ([1, 3, 5], [1.0, 3.0, 5.0])


def test_commit_without_a_number_takes_the_next_step():
    """The step is the last one plus one; the first is zero."""
    run = barograph.init()
    for value in (1.0, 2.0):
        run.log({"x": value})
        run.commit()
    run.commit(10)
    run.log({"x": 3.0})
    run.commit()
    assert barograph.open(run.path).series("x").steps.tolist() == [0, 1, 11]
    assert run.step == 11


def test_a_bad_value_is_skipped_without_its_neighbours(capsys: pytest.CaptureFixture[str]):
    """A value that is not a number is skipped, counted and reported once; the rest of the row is written."""
    run = barograph.init()
    for step in range(3):
        run.log({"good": 1.5, "bad": None, "text": "x", "array": np.zeros(3), "tensor": torch.tensor(2.0)}, step=step)
    run.finish()
    view = barograph.open(run.path)
    assert set(view.names()) == {"good", "tensor"}
    assert view.series("good").values.tolist() == [1.5] * 3
    assert view.skipped()["bad"] == ("value is None", 3)
    assert view.skipped()["array"][1] == 3
    shown = capsys.readouterr().err
    assert shown.count("skipped 'bad': value is None") == 1
    assert shown.count("barograph.histogram") == 1


def test_values_that_are_not_finite_are_stored_as_they_are():
    """NaN and both infinities are values."""
    run = barograph.init()
    run.log({"nan": math.nan, "inf": math.inf, "ninf": -math.inf}, step=0)
    view = barograph.open(run.path)
    assert [str(view.series(name).last) for name in ("nan", "inf", "ninf")] == ["nan", "inf", "-inf"]


@pytest.mark.parametrize(
    "name", ["名字", "a b", "a//b/", "pass@8", "", " ", "x" * 5000, "\ud800", "a\nb", "<script>", "😀"]
)
def test_any_string_is_a_name(name: str):
    """Unicode, blanks, slashes, @ and odd strings are read as they were logged."""
    run = barograph.init()
    run.log({name: 1.0, "other": 2.0}, step=0)
    run.log({name: None, "other": 2.0}, step=1)
    view = barograph.open(run.path)
    assert set(view.names()) == {name, "other"}
    assert view.series(name).values.tolist() == [1.0]


def test_ten_thousand_names_in_one_row():
    """The number of names in a row is not limited."""
    run = barograph.init()
    for step in range(3):
        run.log({f"layer{n}/grad_norm": n + step / 4 for n in range(10_000)}, step=step)
    view = barograph.open(run.path)
    assert len(view.names()) == 10_000
    assert view.series("layer9999/grad_norm").values.tolist() == [9999.0, 9999.25, 9999.5]


@pytest.mark.parametrize("step", ["one", 1.5, None, 2**63, -(2**63), [1], math.nan])
def test_a_step_that_is_not_an_int_does_not_lose_the_values(step: object, capsys: pytest.CaptureFixture[str]):
    """The row belongs to the next commit, with a warning."""
    run = barograph.init()
    run.log({"x": 1.0}, step=step)  # type: ignore[arg-type]
    run.commit(7)
    assert barograph.open(run.path).series("x").steps.tolist() == [7]
    assert step is None or "step must be an int" in capsys.readouterr().err


@pytest.mark.parametrize("step", [True, 3.0, np.int64(3), np.uint8(3), torch.tensor(3), -5])
def test_steps_of_other_integer_types_are_accepted(step: object):
    """NumPy and torch integers, whole floats and negative numbers are steps."""
    run = barograph.init()
    run.log({"x": 1.0}, step=step)  # type: ignore[arg-type]
    assert barograph.open(run.path).series("x").steps.tolist() == [int(step)]  # type: ignore[call-overload]


def test_log_never_raises(capsys: pytest.CaptureFixture[str]):
    """For any argument the training goes on, and the mistake is reported."""
    run = barograph.init()
    for wrong in (None, 3, "text", [("a", 1)], {1: 2.0}, {}):
        run.log(wrong)  # type: ignore[arg-type]
    run.count(tokens="many")  # type: ignore[arg-type]
    run.commit("x")  # type: ignore[arg-type]
    run.finish()
    run.log({"late": 1.0})
    run.commit(5)
    run.finish()
    shown = capsys.readouterr().err
    assert "run.log failed: TypeError: expected a mapping of names to numbers, got list" in shown
    assert "run.log after finish: the values are not recorded" in shown


def test_histograms_are_stored_beside_numbers():
    """A histogram is read with its bins, and the numbers of the same call are written."""
    run = barograph.init()
    run.log({"adv": barograph.histogram([1.0, 2.0, 2.0, math.inf], bins=2), "x": 1.0}, step=4)
    view = barograph.open(run.path)
    [(step, histogram)] = view.histograms("adv")
    assert (step, histogram.counts, histogram.nonfinite) == (4, (1, 2), 1)
    assert view.names() == ["x"]


def test_histograms_and_texts_of_an_open_step_belong_to_its_commit():
    """As numbers do; after the last commit they belong to the next step."""
    run = barograph.init()
    for step in (3, 7):
        run.log({"adv": barograph.histogram([float(step)])})
        run.text("note", f"in {step}")
        run.commit(step)
    run.log({"adv": barograph.histogram([9.0]), "x": 1.0})
    view = barograph.open(run.path)
    assert [step for step, _ in view.histograms("adv")] == [3, 7, 8]
    assert [(text.text, text.step) for text in view.texts()] == [("in 3", 3), ("in 7", 7)]
    assert view.series("x").steps.tolist() == [8]


def test_threads_log_to_one_run():
    """Calls from several threads are all recorded."""
    run = barograph.init()

    def work(number: int) -> None:
        for step in range(200):
            run.log({f"thread{number}": float(step)}, step=step)
            run.count(tokens=1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.commit(200)
    view = barograph.open(run.path)
    assert all(len(view.series(f"thread{number}")) == 200 for number in range(6))
    assert view.series("tokens").values.tolist() == [1200.0]


def _child(run: barograph.Run) -> None:
    run.log({"from_child": 1.0})
    run.log({"explicit": 2.0}, step=0)


def test_a_forked_child_logs_to_the_run_of_its_parent():
    """The rows of a child are written, and open ones belong to the parent's next commit."""
    run = barograph.init()
    run.log({"x": 0.0})
    run.commit(0)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(run,))
    process.start()
    process.join()
    run.log({"x": 1.0})
    run.commit(1)
    run.finish()
    view = barograph.open(run.path)
    assert len(segments(run.path)) == 2
    assert (view.series("from_child").steps.tolist(), view.series("explicit").steps.tolist()) == ([1], [0])
    assert view.status.word == "finished"


def test_a_forked_child_that_logs_nothing_writes_nothing(tmp_path: Path):
    """A worker that exits or is terminated neither ends the run nor makes a file."""
    code = """
    import os, signal, sys, time, barograph
    run = barograph.init(id="parent")
    for ending in (lambda: sys.exit(0), lambda: os.kill(os.getpid(), signal.SIGTERM)):
        child = os.fork()
        if not child:
            ending()
            time.sleep(10)
        os.waitpid(child, 0)
    run.log({"x": 1.0}, step=0)
    """
    assert in_process(code, tmp_path).returncode == 0
    view = barograph.open("parent", dir=tmp_path / "runs")
    assert len(segments(view.path)) == 1
    assert (view.status.word, view.series("x").last) == ("finished", 1.0)


def test_two_processes_of_one_role_and_rank_get_a_warning(tmp_path: Path):
    """The second process warns: it would hide the values of the first."""
    code = """
    import subprocess, sys, barograph
    run = barograph.init(id="twin")
    run.log({"x": 1.0}, step=0)
    if len(sys.argv) == 1:
        sys.stderr.write(subprocess.run([sys.executable, __file__, "again"], capture_output=True, text=True).stderr)
    """
    assert "trainer/0 of run twin is still being written by another process" in in_process(code, tmp_path).stderr


def test_an_attempt_supersedes_the_steps_it_repeats(tmp_path: Path):
    """After a restart from step 3, the older attempt counts only below it; counters continue."""
    code = """
    import barograph, sys
    run = barograph.init(id="r1", project="p")
    for step in range(int(sys.stdin.readline()), 6):
        run.log({"x": float(step) if run.writer.attempt == 1 else step + 0.5})
        run.count(samples=10)
        run.commit(step)
    """
    for start in ("0\n", "3\n"):
        assert in_process(code, tmp_path, input=start).returncode == 0
    view = barograph.open("r1", dir=tmp_path / "runs")
    assert view.series("x").values.tolist() == [0.0, 1.0, 2.0, 3.5, 4.5, 5.5]
    assert view.series("x", attempt=1).values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert view.series("samples").values.tolist() == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]


def test_roles_and_ranks_are_separate_writers_of_one_run():
    """Each has its own file and steps, and can be selected."""
    trainer = barograph.init(id="shared")
    explorer = barograph.init(id="shared", role="explorer", rank=1)
    trainer.log({"time/step": 1.0}, step=5)
    explorer.log({"time/step": 2.0, "rollout/score": 3.0}, step=9)
    view = barograph.open("shared")
    assert view.series("time/step").values.tolist() == [1.0]
    assert view.series("time/step", role="explorer").steps.tolist() == [9]
    assert view.series("rollout/score").writer.role == "explorer"  # type: ignore[union-attr]
    assert trainer.path == explorer.path


def test_normal_exit_an_exception_and_sigterm_leave_the_right_status(tmp_path: Path):
    """The end of a script is recorded without a call of finish."""
    endings = {
        "finished": "pass",
        "crashed": "raise ValueError('no such reward')",
        "killed": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)",
    }
    for word, ending in endings.items():
        begin = (
            f"import os, signal, time, barograph\nrun = barograph.init(name={word!r})\nrun.log({{'x': 1.0}}, step=0)\n"
        )
        done = in_process(begin + ending, tmp_path)
        view = barograph.open(word, dir=tmp_path / "runs")
        assert view.status.word == word
        assert view.series("x").values.tolist() == [1.0]
        if word == "crashed":
            assert view.status.reason == "ValueError: no such reward"
            assert "ValueError: no such reward" in done.stderr
        if word == "killed":
            assert (done.returncode, view.status.reason) == (-signal.SIGTERM, "SIGTERM")


def test_ctrl_c_is_recorded_as_killed(tmp_path: Path):
    """The reason is the interrupt."""
    code = """
    import os, signal, time, barograph
    barograph.init(name="n")
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
    """
    in_process(code, tmp_path)
    status = barograph.open("n", dir=tmp_path / "runs").status
    assert (status.word, status.reason) == ("killed", "interrupted (Ctrl-C)")


def test_the_users_own_sigterm_handler_stays(tmp_path: Path):
    """A handler that saves a checkpoint is still called."""
    code = """
    import os, signal, sys, barograph
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("checkpoint saved")))
    barograph.init(name="n")
    os.kill(os.getpid(), signal.SIGTERM)
    """
    done = in_process(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "checkpoint saved\n")
    assert barograph.open("n", dir=tmp_path / "runs").status == barograph.Status("killed", "SIGTERM")


def test_a_killed_process_is_shown_as_killed_and_a_live_one_as_running(tmp_path: Path):
    """Without a finish event the process itself is checked."""
    code = """
    import time, barograph
    run = barograph.init(name="n")
    run.log({"x": 1.0}, step=0)
    print("ready", flush=True)
    time.sleep(60)
    """
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(code))
    environment = {**os.environ, "BAROGRAPH_DIR": str(tmp_path / "runs")}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert barograph.open("n", dir=tmp_path / "runs").status.word == "running"
        process.kill()
    assert barograph.open("n", dir=tmp_path / "runs").status.word == "killed"


def test_a_context_manager_records_how_it_was_left():
    """An exception inside marks the run as crashed, and is raised."""
    with pytest.raises(ZeroDivisionError), barograph.init(name="bad") as run:
        run.log({"x": 1.0}, step=0)
        _ = 1 / 0
    assert barograph.open("bad").status == barograph.Status("crashed", "ZeroDivisionError: division by zero")
    with barograph.init(name="good"):
        pass
    assert barograph.open("good").status.word == "finished"


def test_a_second_init_finishes_the_former_run_with_a_warning(capsys: pytest.CaptureFixture[str]):
    """As in a notebook, when a cell is run again; ``concurrent`` keeps both."""
    first = barograph.init(name="first")
    second = barograph.init(name="second")
    assert f"run {first.id} (first) was still open; this init finished it" in capsys.readouterr().err
    assert barograph.open("first").status.word == "finished"
    third = barograph.init(name="third", concurrent=True)
    second.log({"x": 1.0}, step=0)
    barograph.log({"y": 2.0}, step=0)
    assert barograph.open("second").names() == ["x"]
    assert barograph.open(third.path).names() == ["y"]


def test_log_without_a_run_warns(capsys: pytest.CaptureFixture[str]):
    """Values are not dropped silently."""
    barograph.log({"x": 1.0})
    assert "call barograph.init first" in capsys.readouterr().err


def test_disabled_is_a_cheap_no_op(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Nothing is written, no thread is started, every call works."""
    monkeypatch.setenv("BAROGRAPH_MODE", "disabled")
    threads = threading.active_count()
    with barograph.init(project="p", name="n", config={"lr": 1}) as run:
        run.log({"x": 1.0})
        run.count(tokens=3)
        run.commit(0)
        run.update_config({"a": 1})
        assert run.config["lr"] == 1
        assert not run.ended
    assert run.ended
    assert threading.active_count() == threads
    assert not (tmp_path / "runs").exists()


def test_the_config_is_stored_and_can_be_updated():
    """Later entries are merged with earlier ones."""
    run = barograph.init(config={"lr": 1e-6, "model": {"path": "qwen"}})
    run.update_config({"steps": 100})
    run.finish()
    assert barograph.open(run.path).config == {"lr": 1e-6, "model": {"path": "qwen"}, "steps": 100}


def test_the_environment_is_stored():
    """Host, command, versions and commit are collected in the background."""
    run = barograph.init()
    run.finish()
    environment = barograph.open(run.path).environment
    assert environment["packages"]["barograph"] == barograph.__version__
    assert environment["python"].startswith("3.")


def test_a_directory_that_cannot_be_written_does_not_stop_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The run goes on with a warning, and writes everything once it can."""
    blocker = tmp_path / "blocked"
    blocker.write_text("")
    run = barograph.init(dir=blocker, project="p")
    run.log({"x": 1.0}, step=0)
    assert "the training goes on" in capsys.readouterr().err
    blocker.unlink()
    run.log({"x": 2.0}, step=1)
    run.finish()
    assert barograph.open(run.path).series("x").values.tolist() == [1.0, 2.0]


def test_frames_that_could_not_be_written_are_reported_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The loss is counted and printed."""
    blocker = tmp_path / "blocked"
    blocker.write_text("")
    run = barograph.init(dir=blocker, project="p")
    run.log({"x": 1.0}, step=0)
    run.finish(timeout=0.5)
    assert "frames could not be written to" in capsys.readouterr().err


def test_a_run_has_an_id_a_path_and_a_url(tmp_path: Path):
    """They identify the run for people and programs."""
    run = barograph.init(project="team/项目", name="n")
    assert run.path.parent.parent == tmp_path / "runs"
    assert run.url == run.path.as_uri()
    assert run.id in repr(run)
    assert barograph.open(run.path).info.project == "team/项目"
    assert json.loads((run.path / "run.json").read_text())["name"] == "n"


@pytest.mark.parametrize("id", ["../evil", "a/b", "", ".hidden", "x" * 65])
def test_an_id_that_is_not_a_file_name_is_rejected(id: str):
    """An id cannot point outside the directory of runs."""
    if not id:
        assert barograph.init(id=id).id  # an empty id is none: a random one is used
        return
    with pytest.raises(barograph.SettingsError, match="expected up to 64 letters"):
        barograph.init(id=id)
