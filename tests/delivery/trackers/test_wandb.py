"""W&B: offline files, steps, restarts and errors."""

import collections
import html
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from material import (
    AGAIN,
    ALERTS,
    CONFIG,
    HISTOGRAM,
    INFO,
    KEY,
    NAMES,
    SAMPLE,
    TEXT,
    Series,
    expected,
    files_with_key,
    rows,
    single,
    started_trackers,
    with_alerts,
)

from barograph.base.errors import TrackerError
from barograph.base.model import Row, Status
from barograph.delivery.trackers.registry import make
from barograph.delivery.trackers.wandb import WandbTracker
from readers import wandb_files, wandb_history, wandb_records, wandb_series

wandb = pytest.importorskip("wandb")
Start = Callable[..., WandbTracker]
QUICK = {"x_disable_stats": True, "x_disable_meta": True}


@pytest.fixture(scope="module", autouse=True)
def _stop_service() -> Iterator[None]:
    """Stop W&B's service process after the module's tests."""
    yield
    wandb.teardown()


@pytest.fixture
def _no_process_left() -> None:
    """Leave W&B's service running between tests: W&B starts it once per process."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start offline trackers that write to ``tmp_path``, and finish those that a test leaves open."""
    (tmp_path / "wb").mkdir()

    def make(**kwargs: Any) -> WandbTracker:
        return WandbTracker(**{"mode": "offline", "dir": tmp_path / "wb", "settings": QUICK, **kwargs})

    yield from started_trackers(make, lambda tracker: tracker._run.finish(), tmp_path)


def logged_series(series: Series) -> Series:
    """Leave out the series that W&B and the tracker add."""
    return {name: points for name, points in series.items() if name in NAMES}


def test_all_values_texts_histograms_and_samples_are_in_the_file(start: Start, tmp_path: Path):
    """200 steps of 100 values with times, config, summary, axis and exit code."""
    tracker = start()
    tracker.log(rows())
    tracker.finish(Status("crashed", "boom"))
    (path,) = wandb_files(tmp_path)
    points = wandb_history(path)
    assert logged_series(wandb_series(points)) == expected()
    assert [point["_step"] for point in points] == list(range(200))
    assert points[7]["_timestamp"] == INFO.created + 7
    assert points[20]["barograph/nonfinite/dist"] == 2
    assert points[20]["dist"]["values"] == list(HISTOGRAM.counts)
    media = path.parent / "files"
    shown = (media / points[30]["note"]["path"]).read_text()
    assert html.unescape(shown) == f"<pre>30: {TEXT}</pre>"
    table = json.loads((media / points[40]["samples"]["path"]).read_text())
    assert dict(zip(table["columns"], table["data"][0], strict=True)) == {
        "task": "t-1",
        "prompt": SAMPLE.prompt,
        "completion": SAMPLE.completion,
        "reward": 0.5,
        "length": 3,
        "reward/format": 1.0,
    }
    by_kind = collections.defaultdict(list)
    for record in wandb_records(path):
        by_kind[record.WhichOneof("record_type")].append(getattr(record, record.WhichOneof("record_type")))
    config = {item.key: json.loads(item.value_json) for item in by_kind["run"][0].config.update}
    assert {key: config[key] for key in CONFIG} == CONFIG
    assert (by_kind["run"][0].run_id, by_kind["run"][0].run_group) == (INFO.id, "g")
    assert by_kind["metric"][1].step_metric == "barograph/step"
    assert by_kind["exit"][0].exit_code == 1
    summary = {item.key or item.nested_key[0]: item.value_json for one in by_kind["summary"] for item in one.update}
    assert json.loads(summary["loss"]) == expected()["loss"][199]
    assert json.loads(summary["barograph/status"]) == "crashed"


def test_findings_of_the_doctor_are_alerts(start: Start, tmp_path: Path):
    """Beside the text of their step; a title has at most 63 characters."""
    tracker = start()
    tracker.log([with_alerts()])
    tracker.finish(Status("finished"))
    (path,) = wandb_files(tmp_path)
    found = [record.alert for record in wandb_records(path) if record.WhichOneof("record_type") == "alert"]
    assert [(one.title, one.level) for one in found] == [
        ("critical since step 5: NaN or infinity", "ERROR"),
        ("over since step 4: A finding with a title that is longer than …", "INFO"),
    ]
    assert [one.text for one in found] == ALERTS.splitlines()


def test_steps_in_any_order_are_stored(start: Start, tmp_path: Path):
    """A step that W&B would drop gets another W&B step, at its place on the barograph/step axis."""
    values = {5: 1.0, 3: 2.0, 4: 3.0, 9: 4.0, 0: 5.0}
    tracker = start()
    tracker.log(single("loss", values))
    tracker.log(single("loss", {5: 6.0}))
    tracker.finish(Status("finished"))
    points = wandb_history(wandb_files(tmp_path)[0])
    assert [(point["_step"], point["barograph/step"], point["loss"]) for point in points] == [
        (5, 5, 1), (6, 3, 2), (7, 4, 3), (9, 9, 4), (10, 0, 5), (11, 5, 6),
    ]  # fmt: skip


def test_there_is_no_mark_before_the_end_and_all_rows_are_delivered_again(start: Start, tmp_path: Path):
    """After a crash rows get the same W&B steps as before, so that merged files have each once."""
    tracker = start()
    tracker.rewind({})
    tracker.log(rows(range(20)))
    assert tracker.mark() is None
    tracker._run.finish(exit_code=1)  # a crash, kinder than it would be
    wandb.teardown()
    tracker = start()
    tracker.rewind({})
    tracker.log(rows(range(30)))
    tracker.finish(Status("finished"))
    first, second = (wandb_history(path) for path in wandb_files(tmp_path))
    assert logged_series(wandb_series(first + second)) == expected(range(30))
    assert [point["_step"] for point in second] == list(range(30))
    assert tracker.mark() == {"last": 29}


def test_a_continued_run_keeps_its_id(start: Start, tmp_path: Path):
    """A new attempt with earlier steps is stored after the existing rows, with its own steps on the axis."""
    tracker = start()
    tracker.log(single("loss", {0: 1.0, 1: 2.0, 2: 3.0}))
    tracker.finish(Status("killed"))
    mark = tracker.mark()
    assert mark == {"last": 2}
    tracker = start()
    tracker.rewind(mark)
    tracker.log(single("loss", {1: 20.0, 2: 30.0}, AGAIN))
    tracker.finish(Status("finished"))
    first, second = wandb_files(tmp_path)
    assert [(p["_step"], p["barograph/step"], p["loss"]) for p in wandb_history(second)] == [(3, 1, 20), (4, 2, 30)]
    ids = {record.run.run_id for path in (first, second) for record in wandb_records(path) if record.HasField("run")}
    assert ids == {INFO.id}
    assert [record.exit.exit_code for record in wandb_records(first) if record.HasField("exit")] == [137]


def test_nonfinite_values_are_stored(start: Start, tmp_path: Path):
    """NaN and infinities, and a histogram without bins."""
    tracker = start()
    empty = type(HISTOGRAM)((), (), math.nan, math.nan, 0.0, 0, nonfinite=3)
    values = {"nan": math.nan, "inf": math.inf, "ninf": -math.inf}
    tracker.log([Row(0, 1.0, values, AGAIN, histograms={"h": empty})])
    tracker.finish(Status("finished"))
    (point,) = wandb_history(wandb_files(tmp_path)[0])
    assert math.isnan(point["nan"])
    assert (point["inf"], point["ninf"], point["barograph/nonfinite/h"]) == (math.inf, -math.inf, 3)
    assert "h" not in point


def test_arguments_reach_wandb(start: Start, tmp_path: Path):
    """Those of ROLL's documentation and the others of wandb.init."""
    tracker = start(
        project="roll-agentic", entity="team", name="n", group="other", tags=["x"], notes="why", job_type="train",
        id="other-id", dir=None, log_dir=tmp_path / "wb", base_url="http://localhost:9",
    )  # fmt: skip
    run = tracker._run
    assert (run.project, run.entity, run.name, run.group) == ("roll-agentic", "team", "n", "other")
    assert (run.tags, run.notes, run.job_type, run.id) == (("x",), "why", "train", "other-id")
    assert (run.settings.base_url, run.settings.console) == ("http://localhost:9", "off")
    assert str(tmp_path / "wb") in run.dir


def test_the_key_is_written_nowhere(start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Neither to the run's files, nor to the home directory, nor to the terminal."""
    tracker = start(api_key=KEY)
    tracker.log(rows(range(2)))
    tracker.finish(Status("finished"))
    assert files_with_key(tmp_path) == []
    assert KEY not in "".join(capfd.readouterr())


def test_configuration_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """An unknown mode or argument, wrong settings, a missing key, and a missing package."""
    with pytest.raises(TrackerError, match="mode must be online, offline, shared or disabled; got 'ofline'"):
        make("wandb", {"mode": "ofline"})
    with pytest.raises(TrackerError, match="unknown argument 'entiti'; did you mean 'entity'?"):
        make("wandb", {"entiti": "x"})
    with pytest.raises(TrackerError, match="settings must be a mapping; got str"):
        make("wandb", {"settings": "x"})
    with pytest.raises(TrackerError, match="set api_key or WANDB_API_KEY to a key from .*, or use mode: offline"):
        make("wandb", {"mode": "online", "dir": str(tmp_path)}).start(INFO, CONFIG, tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(TrackerError, match=r"tracker 'wandb' is not installed: pip install '.*\[wandb"):
        make("wandb", {})
