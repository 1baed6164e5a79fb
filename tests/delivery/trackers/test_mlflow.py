"""MLflow: values, names, artifacts and errors."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from material import AGAIN, CONFIG, INFO, KEY, NAMES, TEXT, TRAINER, Series, expected, files_with_key, rows, single

from barograph.base.errors import TrackerError
from barograph.base.model import Row, Status
from barograph.delivery.trackers.mlflow import MlflowTracker
from barograph.delivery.trackers.registry import make
from barograph.recording.tracker import Rewindable

pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)
Start = Callable[..., MlflowTracker]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Create MLflow's tables once: that takes seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path.read_bytes()


@pytest.fixture
def start(tmp_path: Path, empty: bytes) -> Start:
    """Start trackers on one database in ``tmp_path``."""
    (tmp_path / "ml.db").write_bytes(empty)

    def started(**kwargs: Any) -> MlflowTracker:
        tracker = MlflowTracker(**{"tracking_uri": f"sqlite:///{tmp_path / 'ml.db'}", **kwargs})
        tracker.start(INFO, CONFIG, tmp_path)
        return tracker

    return started


def series(tracker: MlflowTracker, *names: str) -> Series:
    client, id = tracker._client, str(tracker._run_id)
    return {name: {m.step: m.value for m in client.get_metric_history(id, tracker._valid_name(name))} for name in names}


def artifact(tracker: MlflowTracker, path: str) -> str:
    return Path(tracker._client.download_artifacts(str(tracker._run_id), path)).read_text()


def test_all_values_texts_histograms_and_samples_are_read_back(start: Start):
    """200 steps of 100 values with times, the config as parameters, and the status."""
    tracker = start()
    tracker.log(rows())
    tracker.finish(Status("crashed", "boom"))
    assert series(tracker, *NAMES) == expected()
    client, id = tracker._client, str(tracker._run_id)
    assert client.get_metric_history(id, "loss")[7].timestamp == int((INFO.created + 7) * 1000)
    run = client.get_run(id)
    assert run.data.params["actor.lr"] == "1e-06"
    assert run.data.params["actor.betas"] == "[0.9, 0.95]"
    assert run.info.status == "FAILED"
    assert (run.info.run_name, run.data.tags["barograph.reason"]) == ("frozen_lake", "boom")
    assert (run.data.tags["barograph.group"], run.data.tags["barograph.tags"]) == ("g", "a, b")
    assert run.data.tags["mlflow.note.content"] == "a note"
    assert artifact(tracker, "texts/note/00000030.md") == f"30: {TEXT}"
    assert "2 + 2 \\| ?" in artifact(tracker, "samples/00000040.md")
    assert json.loads(artifact(tracker, "histograms/dist/00000040.json"))["counts"] == [3, 4]


def test_names_that_mlflow_rejects_are_mapped(start: Start):
    """Each to a unique name, the same in a continued run, with the original as a tag."""
    names = ["val/pass@8", "val/pass_at_8", "a<b", "a>b", "单位/奖励", "x//y", "/x/", "a/../b", "x:y", "n" * 400, "."]
    tracker = start()
    tracker.log([Row(0, 1.0, {name: float(n) for n, name in enumerate(names)}, TRAINER)])
    mapped = [tracker._valid_name(name) for name in names]
    assert mapped[0] == "val/pass_at_8"
    assert mapped[4] == "单位/奖励"
    assert len(set(mapped)) == len(names)
    run = tracker._client.get_run(str(tracker._run_id))
    assert {run.data.tags.get(f"barograph.name.{m}", m): run.data.metrics[m] for m in mapped} == {
        name: float(n) for n, name in enumerate(names)
    }
    again = start()
    assert [again._valid_name(name) for name in reversed(names)] == mapped[::-1]


def test_rows_that_are_delivered_again_change_nothing(start: Start):
    """MLflow stores equal metrics once, and the run is found by its id."""
    tracker = start()
    tracker.log(rows(range(20)))
    again = start()
    again.log(rows(range(10, 30)))
    assert again._run_id == tracker._run_id
    assert not isinstance(again, Rewindable)
    counts = [len(again._client.get_metric_history(str(again._run_id), again._valid_name(name))) for name in NAMES]
    assert counts == [30] * len(NAMES)


def test_steps_in_any_order_and_a_second_attempt(start: Start):
    """All points are stored; of a repeated step the newer attempt's is the last."""
    tracker = start()
    tracker.log(single("loss", {5: 1.0, 3: 2.0, -1: 3.0}))
    tracker.finish(Status("killed"))
    tracker = start()
    assert tracker._client.get_run(str(tracker._run_id)).info.status == "RUNNING"
    tracker.log([Row(3, INFO.created + 100, {"loss": 20.0}, AGAIN)])
    tracker.finish(Status("finished"))
    assert series(tracker, "loss") == {"loss": {5: 1.0, 3: 20.0, -1: 3.0}}
    assert tracker._client.get_run(str(tracker._run_id)).info.status == "FINISHED"


def test_nonfinite_values_in_mlflow(start: Start):
    """NaN is NaN; a database stores an infinity as the largest float."""
    tracker = start()
    tracker.log([Row(0, 1.0, {"nan": math.nan, "inf": math.inf, "ninf": -math.inf}, TRAINER)])
    found = series(tracker, "nan", "inf", "ninf")
    assert math.isnan(found["nan"][0])
    assert found["inf"][0] >= sys.float_info.max
    assert found["ninf"][0] <= -sys.float_info.max


def test_arguments_reach_mlflow_and_the_key_is_written_nowhere(start: Start, tmp_path: Path):
    """Experiment, run name and tags, also by Trinity's names for them."""
    tracker = start(experiment_name="exp", run_name="mine", tags={"k": "v"}, description="why", token=KEY)
    tracker.log(rows(range(1)))
    run = tracker._client.get_run(str(tracker._run_id))
    assert (run.info.run_name, run.data.tags["k"], run.data.tags["mlflow.note.content"]) == ("mine", "v", "why")
    assert tracker._client.get_experiment(run.info.experiment_id).name == "exp"
    assert Path(run.info.artifact_uri.removeprefix("file://")).is_relative_to(tmp_path / "mlartifacts" / "exp")
    assert files_with_key(tmp_path) == []


def test_configuration_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """An unsupported URI, an unknown argument, wrong tags, and a missing package."""
    with pytest.raises(TrackerError, match="tracker 'mlflow': .*nonsense"):
        make("mlflow", {"tracking_uri": "nonsense://x"}).start(INFO, CONFIG, tmp_path)
    with pytest.raises(TrackerError, match="unknown argument 'tracking_url'; did you mean 'tracking_uri'?"):
        make("mlflow", {"tracking_url": "x"})
    with pytest.raises(TrackerError, match="tags must be a mapping; got list"):
        make("mlflow", {"tags": ["x"]})
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(TrackerError, match=r"tracker 'mlflow' is not installed: pip install '.*\[mlflow"):
        make("mlflow", {})
