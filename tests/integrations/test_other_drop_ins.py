"""SummaryWriter, SwanLab, MLflow and Trackio, recorded by barograph."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import barograph
from barograph import mlflow, swanlab, trackio
from barograph.integrations.guard import tell_once
from barograph.journal.view import View
from barograph.tensorboard import SummaryWriter


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Tell everything anew, and leave no run."""
    tell_once.cache_clear()
    yield
    swanlab.finish()
    mlflow.end_run()
    trackio.finish()


def points(view: View, name: str) -> list[tuple[int, float]]:
    series = view.series(name)
    return [*zip(series.steps.tolist(), series.values.tolist(), strict=True)]


def test_a_summary_writer_records_what_it_is_given(capsys: pytest.CaptureFixture[str]):
    """Scalars, histograms, texts and hyper-parameters; the run has the name of the directory."""
    with SummaryWriter("runs/exp/train", flush_secs=5) as writer:
        for step in (10, 20):
            writer.add_scalar("loss", np.float32(step / 8), step)
            writer.add_scalar("counted", step)
            writer.add_scalars("reward", {"mean": step, "max": step + 1}, global_step=step)
        writer.add_histogram("weights", np.arange(10.0), 20, bins=5)
        writer.add_text("note", "hello", 20)
        writer.add_hparams({"lr": 0.1}, {"hparam/best": 0.5})
        for _ in range(2):
            writer.add_image("image", np.zeros((3, 2, 2)), 20)
        writer.flush()
        assert writer.get_logdir() == writer.log_dir == "runs/exp/train"
    view = barograph.open("@last")
    assert (view.name, view.status.word) == ("exp/train", "finished")
    assert points(view, "loss") == [(10, 1.25), (20, 2.5)]
    assert points(view, "counted") == [(0, 10.0), (1, 20.0)]
    assert points(view, "reward/max") == [(10, 11.0), (20, 21.0)]
    assert points(view, "hparam/best") == [(0, 0.5)]
    assert (view.config["lr"], view.texts()[0].text) == (0.1, "hello")
    assert view.histograms("weights")[0] == (20, barograph.histogram(np.arange(10.0), 5))
    assert capsys.readouterr().err.count("SummaryWriter.add_image has no counterpart") == 1
    assert not Path("runs").exists()


def test_two_summary_writers_are_two_runs():
    """One for training and one for validation, open at the same time."""
    first, second = SummaryWriter("logs/a"), SummaryWriter(comment="_b")
    first.add_scalar("x", 1.0, 0)
    second.add_scalar("x", 2.0, 0)
    first.close()
    second.close()
    assert second.name.endswith("_b")
    assert points(barograph.open(first.dir), "x") == [(0, 1.0)]
    assert points(barograph.open(second.dir), "x") == [(0, 2.0)]


def test_a_wrong_value_does_not_raise(capsys: pytest.CaptureFixture[str]):
    """It is told, and the rest is recorded."""
    writer = SummaryWriter("x")
    writer.add_scalar("a", None, 0)
    writer.add_scalar("a", 1.0, "zero")
    writer.add_histogram("h", "text", 0)
    writer.add_scalar("a", 2.0, 1)
    writer.close()
    assert points(barograph.open(writer.dir), "a") == [(1, 2.0)]
    assert "SummaryWriter.add_scalar failed: ValueError" in capsys.readouterr().err


def test_mlflow_records_metrics_params_and_texts():
    """A run begins with the first call, or with start_run, whose block ends it."""
    mlflow.set_experiment("project")
    with mlflow.start_run(run_name="name", tags={"kind": "test"}) as run:
        assert mlflow.active_run() is run
        assert run.info.run_id == run.id
        mlflow.log_param("lr", 0.1)
        mlflow.log_params({"seed": 3})
        mlflow.set_tag("note", "x")
        for step in (5, 6):
            mlflow.log_metric("loss", step / 2, step=step)
            mlflow.log_metrics({"counted": step})
        mlflow.log_text("hello", "a.txt")
        mlflow.log_dict({"b": 1}, "b.json")
        mlflow.log_table({"prompt": ["p", "q"], "response": ["r", "s"], "reward": [1, 0]}, "samples.json")
        mlflow.log_artifact("nothing")
    view = barograph.open(run.dir)
    assert (view.info.project, view.name, view.info.tags, view.status.word) == (
        "project", "name", ("kind=test",), "finished",
    )  # fmt: skip
    assert view.config == {"lr": 0.1, "seed": 3, "tags": {"note": "x"}}
    assert points(view, "loss") == [(5, 2.5), (6, 3.0)]
    assert points(view, "counted") == [(0, 5.0), (1, 6.0)]
    assert [text.text for text in view.texts()] == ["hello", '{"b": 1}']
    assert [(sample.completion, sample.reward, sample.step) for sample in view.samples()] == [("r", 1, 6), ("s", 0, 6)]
    mlflow.log_metric("alone", 1.0)
    begun = mlflow.active_run()
    mlflow.end_run("FAILED")
    assert barograph.open(begun.dir).status.word == "crashed"
    assert mlflow.active_run() is None


def test_the_outer_run_of_mlflow_is_active_again_after_a_nested_one():
    """Metrics go to the innermost run."""
    with mlflow.start_run() as outer:
        with mlflow.start_run(nested=True) as inner:
            mlflow.log_metric("a", 1.0)
        mlflow.log_metric("b", 2.0)
    assert barograph.open(inner.dir).names() == ["a"]
    assert barograph.open(outer.dir).names() == ["b"]


def test_swanlab_records_numbers_texts_and_the_config():
    """Mappings inside are joined by slashes; a run that has crashed says so."""
    run = swanlab.init(project="p", experiment_name="n", description="why", config={"lr": 0.1}, workspace="w")
    assert swanlab.get_run() is run
    assert swanlab.has_run()
    swanlab.config.seed = 3
    swanlab.log({"loss": 1.0, "train": {"reward": 0.5}, "note": swanlab.Text("hi")})
    swanlab.log({"loss": 0.5, "image": swanlab.Image(3)}, step=7)
    swanlab.finish(state="crashed", error="out of memory")
    view = barograph.open(run.dir)
    assert (view.info.project, view.name, view.info.notes) == ("p", "n", "why")
    assert view.status == barograph.Status("crashed", "out of memory")
    assert points(view, "loss") == [(0, 1.0), (7, 0.5)]
    assert points(view, "train/reward") == [(0, 0.5)]
    assert (view.config, view.texts()[0].text) == ({"lr": 0.1, "seed": 3}, "hi")


def test_trackio_records_numbers_tables_and_alerts():
    """Tables of prompts and completions are samples."""
    run = trackio.init(project="p", name="n", config={"lr": 0.1}, space_id="me/space")
    table = trackio.Table(columns=["prompt", "completion"], data=[["a", "b"]])
    trackio.log({"loss": 1.0, "rows": table, "text": trackio.Markdown("**x**"), "h": trackio.Histogram([1, 2])})
    trackio.alert("diverged", text="the loss is high", level="warn")
    trackio.finish()
    view = barograph.open(run.dir)
    assert points(view, "loss") == [(0, 1.0)]
    assert view.samples()[0].completion == "b"
    assert {text.name: text.text for text in view.texts()} == {"text": "**x**", "alert/diverged": "the loss is high"}
    assert view.histogram_names() == ["h"]
