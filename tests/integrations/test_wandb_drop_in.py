"""``import barograph.wandb as wandb``: what a script for W&B does with it."""

import argparse
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf

import barograph
import barograph.wandb as wandb
from barograph.integrations.guard import tell_once
from barograph.journal.view import View
from barograph.tensorboard import SummaryWriter


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Tell everything anew, and leave no run."""
    tell_once.cache_clear()
    yield
    wandb.finish()


def recorded(run: wandb.Run) -> View:
    wandb.finish()
    return barograph.open(run.dir)


def test_a_script_of_wandb_is_recorded():
    """Project, name, group, tags, notes and config; the current run is a module's attribute until it is finished."""
    assert wandb.run is None
    run = wandb.init(project="p", name="n", group="g", tags=("a", "b"), notes="why", config={"lr": 0.1}, entity="team")
    assert wandb.run is run
    assert (run.name, run.project, run.group, run.tags, run.notes) == ("n", "p", "g", ("a", "b"), "why")
    assert run.id in run.url
    assert not run.resumed
    for loss in (3.0, 2.0):
        wandb.log({"loss": loss})
    assert run.summary["loss"] == wandb.summary["loss"] == 2.0
    view = recorded(run)
    assert wandb.run is None
    assert view.series("loss").values.tolist() == [3.0, 2.0]
    assert (view.status.word, view.info.group, view.config) == ("finished", "g", {"lr": 0.1})


def test_a_run_of_wandb_is_shown_as_one_of_barograph():
    """In a notebook by its card, elsewhere as text."""
    run = wandb.init(name="shown")
    assert "shown" in (run._repr_html_() or "")
    assert repr(run).startswith("<wandb run of <barograph.Run ")


def test_the_config_is_read_and_changed_by_attribute_and_item():
    """Values stay as they were given, also secrets, which the journal does not have."""
    run = wandb.init(config=argparse.Namespace(lr=0.1, layers=(1, 2), api_key="sk-1234567890abcdef1234567890abcdef"))
    config = wandb.config
    config.seed = 3
    config["batch"] = 8
    config.update({"lr": 0.2}, allow_val_change=True)
    config.setdefaults({"lr": 9, "warmup": 5})
    assert (config.lr, config["seed"], config.get("none", 7), config.layers) == (0.2, 3, 7, (1, 2))
    assert config.api_key.startswith("sk-")
    assert dict(config) == config.as_dict()
    assert {**config}["batch"] == 8
    with pytest.raises(AttributeError):
        config.nothing  # noqa: B018
    written = recorded(run).config
    assert (written["lr"], written["seed"], written["batch"], written["warmup"]) == (0.2, 3, 8, 5)
    assert written["api_key"] == "***"


def test_a_config_file_of_wandb_is_read(tmp_path: Path):
    """Its values are below ``value``."""
    (tmp_path / "config.yaml").write_text("wandb_version: 1\nlr: {desc: null, value: 0.1}\nseed: 3\n")
    run = wandb.init(config=str(tmp_path / "config.yaml"))
    assert run.config.as_dict() == {"lr": 0.1, "seed": 3}
    assert recorded(run).config == {"lr": 0.1, "seed": 3}


def test_values_of_every_kind_go_where_they_belong():
    """Histograms, arrays and tensors; texts and HTML; a table of anything is a text."""
    run = wandb.init()
    table = wandb.Table(columns=["id", "loss"], data=[[1, 0.5]])
    table.add_data(2, 0.25)
    table.add_column("note", ["a", "b|c"])
    counted = wandb.Histogram(np_histogram=np.histogram([1.0, 2.0, 2.0], bins=2))
    assert table.get_column("loss") == [0.5, 0.25]
    assert counted.histogram == [1, 2]
    values = {"h": wandb.Histogram([1, 2, 3], num_bins=3), "np": counted, "array": np.arange(6.0).reshape(2, 3)}
    numbers = {"tensor": torch.tensor(2.5), "scalar": np.float32(0.5), "flag": True}
    wandb.log({**values, "weights": torch.zeros(4), **numbers, "html": wandb.Html("<b>x</b>"), "s": "text", "t": table})
    view = recorded(run)
    assert view.histogram_names() == ["h", "np", "array", "weights"]
    assert view.histograms("np")[0][1].counts == (1, 2)
    assert view.histograms("array")[0][1].count == 6
    assert {name: view.series(name).last for name in view.names()} == {"tensor": 2.5, "scalar": 0.5, "flag": 1.0}
    texts = {text.name: text.text for text in view.texts()}
    assert (texts["html"], texts["s"]) == ("<b>x</b>", "text")
    assert texts["t"].splitlines()[-1] == "| 2 | 0.25 | b\\|c |"
    assert view.skipped() == {}


@pytest.mark.parametrize("columns", [("prompt", "completion"), ("Input", "Output"), ("question", "response")])
def test_a_table_of_prompts_and_completions_is_samples(columns: tuple[str, str]):
    """Rewards, the parts of the reward and the advantage are taken; a table that has grown gives its new rows."""
    run = wandb.init()
    names = [*columns, "reward", "advantage", "format_reward"]
    table = wandb.Table(columns=names, data=[["1+1", "2", np.float32(1.0), 0.5, 1.0]])
    wandb.log({"completions": table}, step=3)
    table = wandb.Table(columns=names, data=[*table.data, ["2+2", "5", torch.tensor(0.0), -0.5, 1.0]])
    wandb.log({"completions": table}, step=4)
    wandb.log({"completions": wandb.Table(dataframe=pd.DataFrame([["3", "4", 1.0, 0.0, 0.0]], columns=names))}, step=5)
    samples = recorded(run).samples()
    assert [(s.prompt, s.completion, s.reward, s.step) for s in samples] == [
        ("1+1", "2", 1.0, 3), ("2+2", "5", 0.0, 4), ("3", "4", 1.0, 5),
    ]  # fmt: skip
    assert (samples[1].advantage, samples[1].rewards) == (-0.5, {"format_reward": 1.0})


def test_the_right_answer_and_other_texts_of_a_table_stay_with_the_samples():
    """W&B's default columns have the right answer; a text of another column is a column of the sample."""
    run = wandb.init()
    plain, wide = wandb.Table(), wandb.Table(columns=["prompt", "response", "Ground_Truth", "Domain", "score"])
    plain.add_data("1+1", "3", "2")
    wide.add_data("x?", "y", "z", "algebra", 0.5)
    wandb.log({"plain": plain, "wide": wide})
    first, second = recorded(run).samples()
    assert (first.prompt, first.completion, first.reference) == ("1+1", "3", "2")
    assert (second.reference, second.columns, second.reward) == ("z", {"Domain": "algebra"}, 0.5)


def test_a_histogram_and_a_table_of_the_real_package_are_understood():
    """A library that makes them with W&B itself may log them here."""
    real = pytest.importorskip("wandb")
    run = wandb.init()
    wandb.log({"t": real.Table(columns=["prompt", "completion"], data=[["a", "b"]]), "h": real.Histogram([1, 2, 3])})
    view = recorded(run)
    assert [sample.completion for sample in view.samples()] == ["b"]
    assert view.histograms("h")[0][1].count == 3


def test_unknown_calls_are_told_once_and_do_nothing(capsys: pytest.CaptureFixture[str]):
    """No call raises; classes can be asked for with isinstance, decorators return the function."""
    run = wandb.init(save_code=True)
    for _ in range(2):
        wandb.watch(object(), log="all")
        run.log_artifact(wandb.Artifact("model", type="model").add_file("x"))
        wandb.plot.line_series([1], [2], keys=["a"])
        with wandb.Api().run("x") as found:
            assert not list(found.files())
    wandb.log({"image": wandb.Image(np.zeros((2, 2))), "a": 1})
    assert not isinstance(1, wandb.Image)
    assert isinstance(wandb.Image(1), wandb.Image)
    assert wandb.some_decorator(len) is len
    run.name = "other"
    assert wandb.login() is True
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(set(told))
    for name in ("wandb.watch", "wandb.run.log_artifact", "wandb.Artifact", "wandb.plot.line_series", "wandb.Api"):
        assert f"barograph: {name} has no counterpart in barograph and does nothing" in told
    assert any("wandb.init: save_code" in line for line in told)
    view = recorded(run)
    assert view.names() == ["a"]
    assert view.skipped() == {"image": ("value is an Image, not a number", 1)}


def test_calls_without_a_run_are_told(capsys: pytest.CaptureFixture[str]):
    """Nothing raises before init or after finish."""
    wandb.log({"a": 1})
    wandb.define_metric("a")
    wandb.config.lr = 1
    wandb.init()
    run = wandb.run
    wandb.finish()
    wandb.finish()
    run.log({"a": 1})
    told = capsys.readouterr().err
    assert "wandb.log without a run: nothing is recorded; call wandb.init first" in told
    assert "the config has changed before init" in told
    assert "run.log after finish" in told


def test_wrong_arguments_of_log_are_told(capsys: pytest.CaptureFixture[str]):
    """W&B raises; here the training goes on."""
    run = wandb.init()
    run.log([1, 2])  # type: ignore[arg-type]
    run.log({"a": 1}, step="x")  # type: ignore[arg-type]
    run.log({"a": 2, 3: 4})  # type: ignore[dict-item]
    told = capsys.readouterr().err
    assert "expected a dictionary, got list" in told
    assert "wandb.Run.log failed: ValueError" in told
    assert recorded(run).series("a").values.tolist() == [2.0]


def test_a_value_that_fails_does_not_cost_its_neighbours():
    """Objects whose attributes raise, tables with rows of another kind, mappings inside themselves."""

    class Broken:
        @property
        def columns(self) -> None:
            raise OSError("gone")

    run = wandb.init()
    table = wandb.Table(columns=["prompt", "completion"])
    table.data = [3]  # type: ignore[list-item]
    nested: dict[str, Any] = {}
    nested["inner"] = nested
    wandb.log({"broken": Broken(), "table": table, "list": [1, 2], "none": None, "a": 1})
    wandb.log(nested)
    wandb.log({"a": 2})
    view = recorded(run)
    assert view.series("a").values.tolist() == [1.0, 2.0]
    assert view.skipped().keys() == {"broken", "list", "none"}
    assert [problem.call for problem in view.problems()] == ["run.samples"]


def test_a_run_is_delivered_to_trackers_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """BAROGRAPH_TRACK_WITH has a script for W&B in another tracker; a step is one row."""
    monkeypatch.setenv("BAROGRAPH_TRACK_WITH", "jsonl")
    run = wandb.init()
    wandb.log({"a": 1.0}, commit=False)
    wandb.log({"b": 2.0})
    wandb.log({"a": 3.0})
    wandb.finish()
    rows = [json.loads(line) for line in (Path(run.dir) / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["metrics"]) for row in rows] == [(0, {"a": 1.0, "b": 2.0}), (1, {"a": 3.0})]


def test_values_of_an_earlier_step_are_dropped_and_told_once(capsys: pytest.CaptureFixture[str]):
    """W&B drops them with a warning; the steps of the message are those of the first."""
    run = wandb.init()
    for step in (10, 3, 4, 11):
        wandb.log({"a": step}, step=step)
    assert recorded(run).series("a").steps.tolist() == [10, 11]
    assert capsys.readouterr().err.count("W&B drops the values of such steps") == 1


def test_a_second_init_returns_the_open_run():
    """Unless reinit asks for a new one, which ends the first, or for one beside it, which is not the current one."""
    first = wandb.init()
    assert wandb.init() is first
    second = wandb.init(reinit=True)
    assert first.ended
    third = wandb.init(reinit="create_new")
    assert wandb.run is second
    assert wandb.init() is third  # the newest one
    second.finish()
    assert wandb.run is None
    assert not third.ended
    wandb.init(reinit="finish_previous")
    assert third.ended


def test_runs_of_other_modules_stay_open():
    """A script may log to W&B and to TensorBoard."""
    writer = SummaryWriter("x")
    own = barograph.init(concurrent=True)
    wandb.init()
    assert not writer.ended
    assert not own.ended


def test_a_config_of_omegaconf_or_a_wrong_one(capsys: pytest.CaptureFixture[str]):
    """References are resolved where they can be; what is no config is told, and at init an error."""
    config = OmegaConf.create({"lr": 0.1, "same": "${lr}", "lost": "${nothing}", "model": {"layers": 3}})
    run = wandb.init(config=config)
    assert run.config.as_dict() == {"lr": 0.1, "same": 0.1, "lost": "${nothing}", "model": {"layers": 3}}
    run.config.update(5)
    assert "Config.update failed: SettingsError: config: expected a mapping" in capsys.readouterr().err
    with pytest.raises(barograph.SettingsError):
        wandb.init(config=5, reinit=True)


def test_a_resumed_run_counts_on():
    """With resume and the id of a run, steps go on where it ended; without, they begin again."""
    wandb.init(id="r1", resume="allow")
    for value in (1, 2):
        wandb.log({"a": value})
    wandb.finish()
    run = wandb.init(id="r1", resume="allow")
    assert (run.resumed, run.step) == (True, 2)
    wandb.log({"a": 3})
    assert recorded(run).series("a").values.tolist() == [1.0, 2.0, 3.0]
    again = wandb.init(id="r1")
    wandb.log({"a": 9})
    assert recorded(again).series("a").values.tolist() == [9.0]


def test_variables_of_wandb_are_settings(monkeypatch: pytest.MonkeyPatch):
    """As W&B reads them: arguments take precedence."""
    for name, value in {"PROJECT": "p", "NAME": "n", "RUN_ID": "i", "RUN_GROUP": "g", "TAGS": "a,b"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    run = wandb.init(name="given")
    assert (run.project, run.name, run.id, run.group, run.tags) == ("p", "given", "i", "g", ("a", "b"))
    wandb.finish()
    monkeypatch.setenv("WANDB_MODE", "disabled")
    wandb.init(dir="nowhere")
    wandb.log({"a": 1})
    wandb.finish()
    assert not Path("nowhere").exists()


def test_a_summary_that_is_set_is_recorded_at_the_last_step():
    """Numbers become values, other things texts."""
    run = wandb.init()
    wandb.log({"a": 1}, step=4)
    wandb.run.summary["best"] = 0.5
    wandb.summary.update({"worst": 2})
    run.summary.note = "done"
    assert (run.summary.best, run.summary["worst"]) == (0.5, 2)
    view = recorded(run)
    assert [(name, view.series(name).steps.tolist()) for name in ("best", "worst")] == [("best", [4]), ("worst", [4])]
    assert view.texts()[0].text == "done"


def test_a_nonzero_exit_code_and_an_exception_are_crashes():
    """Of finish, and of the run as a context."""
    run = wandb.init()
    wandb.finish(exit_code=3)
    assert barograph.open(run.dir).status == barograph.Status("crashed", "exit code 3")
    with pytest.raises(KeyError), wandb.init() as run:
        raise KeyError("x")
    assert barograph.open(run.dir).status.word == "crashed"


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "pass", "raise ValueError"])
def test_rows_that_are_not_committed_survive(end: str, tmp_path: Path):
    """Each call has written its values when it returns, whatever ends the process."""
    code = f"""
        import os
        import barograph.wandb as wandb
        wandb.init(id="r")
        wandb.log({{"a": 1.0}})
        wandb.log({{"a": 2.0}}, commit=False)
        wandb.log({{"b": 3.0}}, step=1)
        {end}
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, capture_output=True)
    view = barograph.open("r")
    found = {name: (view.series(name).steps.tolist(), view.series(name).values.tolist()) for name in ("a", "b")}
    assert found == {"a": ([0, 1], [1.0, 2.0]), "b": ([1], [3.0])}
