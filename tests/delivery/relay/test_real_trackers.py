"""Through ``barograph.init`` and the relay into each project's own files, read back with that project's own reader."""

from __future__ import annotations

import html
import json
import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept import delivery_state, environment_of, relay_processes, until

import barograph
import readers
from readers import Series

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)
STEPS = range(200)
NAMES = ("val/pass@8", "with space/and more", "单位/奖励", "loss", *(f"actor/metric_{n}" for n in range(96)))
TEXT = "a *note* | with a bar\nand a second line, 中文"
PACKAGES = {"prometheus": "prometheus_client"}
KWARGS: dict[str, dict[str, Any]] = {
    "wandb": {"mode": "offline", "settings": {"x_disable_stats": True, "x_disable_meta": True}},
    "swanlab": {
        "mode": "offline",
        "settings": {
            "probe": {"monitor": False, "hardware": False, "requirements": False, "conda": False, "git": False}
        },
    },
    "prometheus": {"port": 0},
}


def value(name: str, step: int) -> float:
    return math.sin(NAMES.index(name) + 1.0) * 10 ** (NAMES.index(name) % 7 - 3) + step / 7


EXPECTED: Series = {name: {step: value(name, step) for step in STEPS} for name in NAMES}
SINGLE = {name: {step: float(np.float32(v)) for step, v in points.items()} for name, points in EXPECTED.items()}


def begin(*trackers: str) -> barograph.Run:
    """Begin a run with these trackers, skipping where one of their packages is not installed."""
    for tracker in trackers:
        if tracker != "jsonl":
            pytest.importorskip(PACKAGES.get(tracker, tracker))
    kwargs = {name: dict(KWARGS.get(name, {})) for name in trackers}
    return barograph.init(project="real", track_with=list(trackers), tracker_kwargs=kwargs, config={"lr": 1e-6})


def train(run: barograph.Run) -> None:
    """Log 200 steps of 100 values, every tenth with a text, every twentieth with a sample."""
    for step in STEPS:
        run.log({name: value(name, step) for name in NAMES})
        if step % 10 == 0:
            run.text("note", f"{step}: {TEXT}")
        if step % 20 == 0:
            run.sample("2 + 2 | ?", "four", reward=0.5, task=f"t-{step}")
        run.commit(step)


def logged(series: Series) -> Series:
    """Leave out what the library adds."""
    return {name: dict(points) for name, points in series.items() if name in NAMES}


def check_tensorboard(run: barograph.Run) -> None:
    folder = Path(delivery_state(run, "tensorboard").url)
    assert logged(readers.tensorboard_series(folder)) == SINGLE
    found = readers.tensorboard_accumulated(folder)
    notes = readers.tensorboard_texts(found, "note/text_summary")
    assert notes == {step: f"{step}: {TEXT}" for step in STEPS if step % 10 == 0}
    samples = readers.tensorboard_texts(found, "samples/text_summary")
    assert [step for step in STEPS if f"t-{step} " in samples.get(step, "")] == list(range(0, 200, 20))


def check_wandb(run: barograph.Run) -> None:
    (path,) = readers.wandb_files(run.path)
    points = readers.wandb_history(path)
    assert logged(readers.wandb_series(points)) == EXPECTED
    media = path.parent / "files"
    notes = {p["barograph/step"]: (media / p["note"]["path"]).read_text() for p in points if "note" in p}
    assert {step: html.unescape(text) for step, text in notes.items()} == {
        step: f"<pre>{step}: {TEXT}</pre>" for step in STEPS if step % 10 == 0
    }
    tables = {p["barograph/step"]: (media / p["samples"]["path"]).read_text() for p in points if "samples" in p}
    assert [step for step in tables if json.loads(tables[step])["data"][0][0] == f"t-{step}"] == list(range(0, 200, 20))


def check_swanlab(run: barograph.Run) -> None:
    (path,) = readers.swanlab_files(run.path)
    assert logged(readers.swanlab_series(path)) == EXPECTED
    media: dict[str, dict[int, str]] = {}
    for item in readers.swanlab_records(path)["media"]:
        (file,) = path.parent.rglob(item.value.items[0].filename)
        media.setdefault(item.key, {})[item.step] = file.read_text()
    assert media["note"] == {step: f"{step}: {TEXT}" for step in STEPS if step % 10 == 0}
    assert [step for step in media["samples"] if f"t-{step} " in media["samples"][step]] == list(range(0, 200, 20))


def check_mlflow(run: barograph.Run) -> None:
    uri = f"sqlite:///{run.path.absolute() / 'mlflow.db'}"
    assert logged(readers.mlflow_series(uri, run.id)) == EXPECTED
    client, found = readers.mlflow_run(uri, run.id)
    for step in range(0, 200, 10):
        note = client.download_artifacts(found.info.run_id, f"texts/note/{step:08d}.md")
        assert Path(note).read_text() == f"{step}: {TEXT}"
    for step in range(0, 200, 20):
        assert f"t-{step} " in Path(client.download_artifacts(found.info.run_id, f"samples/{step:08d}.md")).read_text()
    assert (found.info.status, found.data.params["lr"]) == ("FINISHED", "1e-06")


def check_trackio(run: barograph.Run) -> None:
    logs = readers.trackio_logs("real", run.id)
    assert logged(readers.trackio_series(logs)) == EXPECTED
    notes = {row["step"]: row["note"]["_value"] for row in logs if "note" in row}
    assert notes == {step: f"{step}: {TEXT}" for step in STEPS if step % 10 == 0}
    samples = {row["step"]: row["samples"]["_value"][0]["task"] for row in logs if "samples" in row}
    assert samples == {step: f"t-{step}" for step in range(0, 200, 20)}


def check_jsonl(run: barograph.Run) -> None:
    path = run.path / "metrics.jsonl"
    assert logged(readers.jsonl_series(path)) == EXPECTED
    records = [json.loads(line) for line in path.read_text().splitlines()]
    notes = {record["step"]: record["texts"]["note"] for record in records if "texts" in record}
    assert notes == {step: f"{step}: {TEXT}" for step in STEPS if step % 10 == 0}
    samples = {record["step"]: record["samples"][0]["task"] for record in records if "samples" in record}
    assert samples == {step: f"t-{step}" for step in range(0, 200, 20)}


CHECKS: dict[str, Callable[[barograph.Run], None]] = {
    "tensorboard": check_tensorboard,
    "wandb": check_wandb,
    "swanlab": check_swanlab,
    "mlflow": check_mlflow,
    "trackio": check_trackio,
    "jsonl": check_jsonl,
}


@pytest.mark.parametrize("tracker", CHECKS)
@pytest.mark.usefixtures("home")
def test_everything_is_read_back(tracker: str):
    """200 steps of 100 values with texts and samples: all there when ``finish`` returns, once, and equal."""
    run = begin(tracker)
    train(run)
    run.finish(timeout=60)
    CHECKS[tracker](run)


@pytest.mark.usefixtures("home")
def test_several_trackers_get_the_same():
    """As ``track_with: [tensorboard, wandb]`` asks for."""
    run = begin("tensorboard", "wandb")
    train(run)
    run.finish(timeout=60)
    check_tensorboard(run)
    check_wandb(run)


@pytest.mark.usefixtures("home")
def test_prometheus_shows_the_last_values_while_the_run_goes_on():
    """The endpoint answers from the relay, and is gone when the run is."""
    run = begin("prometheus")
    train(run)
    url = delivery_state(run, "prometheus").url
    until(lambda: delivery_state(run, "prometheus").delivered >= len(STEPS))
    found = readers.prometheus_values(url)
    assert {name: found[name] for name in NAMES} == {name: points[199] for name, points in EXPECTED.items()}
    assert [s.value for s in readers.prometheus_samples(url) if s.name == "barograph_run_step"] == [199]
    run.finish(timeout=30)
    with pytest.raises(OSError, match="refused"):
        readers.prometheus_values(url)


TRAINER = textwrap.dedent("""
    import sys, barograph
    run = barograph.init(id="killed", track_with=["tensorboard", "jsonl"])
    for step in range(10**9):
        run.log({"a": step, "b": -step})
        run.commit(step)
        print(step, flush=True)
""")


@pytest.mark.parametrize("rows", [1, 40, 700])
@pytest.mark.usefixtures("home")
def test_what_was_logged_before_a_kill_is_in_the_files(rows: int, tmp_path: Path):
    """TensorBoard's by the relay; those of the training process itself by the next attempt, or by sync."""
    pytest.importorskip("tensorboard")
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    for _ in range(rows):
        last = int(trainer.stdout.readline())
    trainer.kill()
    with trainer:
        said = [last, *(int(line) for line in trainer.stdout.read().splitlines() if line)]
    folder = tmp_path / "runs" / "default" / "killed"
    until(lambda: not relay_processes(folder.resolve()))
    subprocess.run([sys.executable, "-m", "barograph", "sync", "killed"], check=True, env=dict(os.environ))
    (events,) = {path.parent for path in folder.rglob("*tfevents*")}
    for found in (readers.tensorboard_series(events), readers.jsonl_series(folder / "metrics.jsonl")):
        assert set(range(max(said) + 1)) <= found["a"].keys()
        assert all(found["a"][step] == step == -found["b"][step] for step in found["a"])


WANDB = """
exp_name: frozen_lake
rollout_batch_size: 16
track_with: wandb
tracker_kwargs:
  api_key: {key}
  project: roll-agentic
  name: ${{exp_name}}_7b
  notes: "roll agentic"
  tags: [roll, agentic]
  log_dir: ./wandb_logs
"""
SWANLAB = """
exp_name: frozen_lake
rollout_batch_size: 16
track_with: swanlab
tracker_kwargs:
  login_kwargs:
    api_key: {key}
  project: roll-agentic
  workspace: my-team
  logdir: ./swanlab_logs
  experiment_name: ${{exp_name}}_7b
  tags: [roll, agentic]
"""
KEY = "0123456789abcdef0123456789abcdef01234567"  # as long as W&B's


@pytest.mark.parametrize(("tracker", "yaml"), [("wandb", WANDB), ("swanlab", SWANLAB)])
def test_configurations_of_roll_start_unchanged(
    tracker: str, yaml: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Offline by the environment alone; and the key is in no file, no argument and no environment."""
    pytest.importorskip(tracker)
    monkeypatch.setenv(f"{tracker.upper()}_MODE", "offline")
    other = "fedcba9876543210fedcba9876543210fedcba98"
    monkeypatch.setenv("OPENAI_API_KEY", other)
    given = home / "config.yaml"
    given.write_text(yaml.format(key=KEY))
    run = barograph.init(given)
    given.unlink()
    run.log({"loss": 1.0}, step=1)
    seen = b"".join(environment_of(pid) for pid in descendants(relay_processes(run.path.resolve())))
    run.finish(timeout=60)
    assert f"{tracker.upper()}_MODE".encode() in seen
    assert KEY.encode() not in seen
    assert other.encode() not in seen
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes() or other.encode() in path.read_bytes()] == []
    assert barograph.open(run.path).config["rollout_batch_size"] == 16
    if tracker == "wandb":
        (path,) = readers.wandb_files(home / "wandb_logs")
        (begun,) = (record.run for record in readers.wandb_records(path) if record.HasField("run"))
        assert (begun.project, begun.display_name, begun.notes) == ("roll-agentic", "frozen_lake_7b", "roll agentic")
        assert readers.wandb_series(readers.wandb_history(path))["loss"] == {1: 1.0}
    else:
        (path,) = readers.swanlab_files(home / "swanlab_logs")
        (begun,) = readers.swanlab_records(path)["start"]
        assert (begun.project, begun.name, begun.workspace) == ("roll-agentic", "frozen_lake_7b", "my-team")
        assert readers.swanlab_series(path)["loss"] == {1: 1.0}
    assert list(begun.tags) == ["roll", "agentic"]


def descendants(pids: list[int]) -> list[int]:
    """Return these processes and all that they started, such as W&B's service."""
    import psutil

    below = [child.pid for pid in pids for child in psutil.Process(pid).children(recursive=True)]
    return sorted({*pids, *below})
