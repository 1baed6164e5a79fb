"""Trackio: values, ids, reserved names and errors."""

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
    INFO,
    NAMES,
    SAMPLE,
    TEXT,
    TRAINER,
    expected,
    rows,
    single,
    started_trackers,
    with_alerts,
)

from barograph.base.errors import TrackerError
from barograph.base.model import Row, Status
from barograph.delivery.trackers.registry import make
from barograph.delivery.trackers.trackio import TrackioTracker
from readers import trackio_logs, trackio_series

trackio = pytest.importorskip("trackio")
Start = Callable[..., TrackioTracker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start trackers of the test's own project, and finish those that a test leaves open."""

    def make(**kwargs: Any) -> TrackioTracker:
        return TrackioTracker(**{"project": tmp_path.name.replace("_", "-"), **kwargs})

    yield from started_trackers(make, lambda tracker: tracker._run.finish(), tmp_path)


def logs(tracker: TrackioTracker) -> list[dict[str, Any]]:
    return trackio_logs(tracker._run.project, tracker._run.id)


def test_all_values_texts_histograms_and_samples_are_read_back(start: Start):
    """200 steps of 100 values with their times, and the config, read with Trackio's API."""
    tracker = start()
    tracker.log(rows())
    tracker.finish(Status("finished"))
    found = trackio_series(logs(tracker))
    assert found.pop("barograph/nonfinite/dist") == dict.fromkeys(range(0, 200, 20), 2.0)
    assert found == expected()
    kept = logs(tracker)
    assert kept[30]["note"] == {"_type": "trackio.markdown", "_value": f"30: {TEXT}"}
    assert kept[40]["samples"]["_value"][0]["completion"] == SAMPLE.completion
    assert kept[40]["dist"]["values"] == [3, 4]
    assert kept[7]["timestamp"].startswith("2023-11-14T22:13:27.25")
    (run,) = trackio.Api().runs(tracker._run.project)
    assert (run.id, run.name) == (INFO.id, "frozen_lake")
    assert run.config["actor"] == CONFIG["actor"]
    assert (run.config["_Group"], run.config["tags"]) == ("g", ["a", "b"])


def test_findings_of_the_doctor_are_alerts(start: Start):
    """Once, also if their row is delivered again."""
    from trackio.sqlite_storage import SQLiteStorage

    tracker = start()
    tracker.log([with_alerts()])
    tracker = start()
    tracker.log([*rows(range(3)), with_alerts()])
    found = SQLiteStorage.get_alerts(tracker._run.project, run_id=INFO.id)
    assert sorted((one["level"], one["step"], one["text"]) for one in found) == [
        ("error", 6, ALERTS.splitlines()[0]),
        ("info", 6, ALERTS.splitlines()[1]),
    ]


def test_rows_that_are_delivered_again_change_nothing(start: Start):
    """A row's id is derived from its content, and the run is found by its id."""
    tracker = start()
    tracker.log(rows(range(20)))
    tracker = start()
    tracker.log(rows(range(10, 30)))
    found = trackio_series(logs(tracker))
    assert {name: found[name] for name in NAMES} == expected(range(30))
    assert len(list(trackio.Api().runs(tracker._run.project))) == 1


def test_steps_in_any_order_and_a_second_attempt(start: Start):
    """All rows are stored, in the order of delivery."""
    tracker = start()
    tracker.log(single("loss", {5: 1.0, 3: 2.0}))
    tracker.log(single("loss", {3: 20.0}, AGAIN))
    assert sorted((record["step"], record["loss"]) for record in logs(tracker)) == [(3, 2.0), (3, 20.0), (5, 1.0)]


def test_nonfinite_values_and_reserved_names_are_stored(start: Start):
    """A metric called step gets Trackio's name for it."""
    tracker = start()
    values = {"nan": math.nan, "inf": math.inf, "ninf": -math.inf, "step": 7.0}
    tracker.log([Row(0, 1.0, values, TRAINER)])
    (record,) = logs(tracker)
    assert math.isnan(record["nan"])
    assert (record["inf"], record["ninf"], record["__step"]) == (math.inf, -math.inf, 7.0)


def test_a_config_with_reserved_names_is_accepted(tmp_path: Path):
    """Such as Hydra's _target_."""
    tracker = TrackioTracker(project="reserved")
    tracker.start(INFO, {"_target_": "x", "lr": 1}, tmp_path)
    tracker.log(single("loss", {0: 1.0}))
    tracker.finish(Status("finished"))
    (run,) = trackio.Api().runs("reserved")
    assert (run.config["config_target_"], run.config["lr"]) == ("x", 1)


def test_configuration_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A value that Trackio rejects, an unknown argument, and a missing package."""
    with pytest.raises(TrackerError, match="tracker 'trackio': .*must be a full URL"):
        make("trackio", {"server_url": "localhost"}).start(INFO, CONFIG, tmp_path)
    with pytest.raises(TrackerError, match="unknown argument 'space'; did you mean 'space_id'?"):
        make("trackio", {"space": "x"})
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(TrackerError, match=r"tracker 'trackio' is not installed: pip install '.*\[trackio"):
        make("trackio", {})
