"""Prometheus: exported values, restarts and errors."""

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from material import AGAIN, CONFIG, INFO, NAMES, Series, expected, rows, single, started_trackers

from barograph.base.errors import TrackerError
from barograph.base.model import Row, Status, Writer
from barograph.delivery.trackers.prometheus import PrometheusTracker
from barograph.delivery.trackers.registry import make
from readers import prometheus_samples, prometheus_values

pytest.importorskip("prometheus_client")
Start = Callable[[], PrometheusTracker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start trackers on free ports, and close them at the end."""
    yield from started_trackers(
        lambda: PrometheusTracker(port=0), lambda tracker: tracker.finish(Status("finished")), tmp_path
    )


def scraped(tracker: PrometheusTracker) -> list[Any]:
    return prometheus_samples(str(tracker.url))


def values(tracker: PrometheusTracker) -> dict[str, float]:
    return prometheus_values(str(tracker.url))


def last(series: Series) -> dict[str, float]:
    return {name: points[max(points)] for name, points in series.items()}


def test_the_last_values_are_exported_with_their_names(start: Start):
    """After 200 steps of 100 values: the last values, the step, run information and phase durations."""
    tracker = start()
    for row in rows():
        tracker.log([row])
    found = values(tracker)
    assert {name: found[name] for name in NAMES} == last(expected())
    samples = scraped(tracker)
    by_name = {sample.name: sample for sample in samples}
    assert by_name["barograph_actor_metric_3"].labels == {
        "name": "actor/metric_3",
        "run": "run-7",
        "project": "project",
        "writer": "trainer/0",
    }
    assert by_name["barograph_run_step"].value == 199
    assert by_name["barograph_run_info"].labels["run_name"] == "frozen_lake"
    count = [s for s in samples if s.name == "barograph_phase_seconds_count" and s.labels["part"] == "total"]
    assert [(s.labels["phase"], s.value) for s in count] == [("train", 200)]
    assert tracker.skipped == 20 + 10 + 2 * 10


def test_a_restart_exports_the_same_and_counts_nothing_twice(start: Start):
    """The mark contains all values as plain JSON, also non-finite ones."""
    import json

    first = start()
    first.log(rows(range(10)))
    first.log([Row(10, 1.0, {"nan": math.nan, "inf": math.inf}, rows([0])[0].writer)])
    mark = json.loads(json.dumps(first.mark(), allow_nan=False))
    first.log(rows(range(11, 15)))
    second = start()
    second.rewind(mark)
    second.log(rows(range(11, 15)))
    assert repr(sorted(map(repr, scraped(second)))) == repr(sorted(map(repr, scraped(first))))
    second.rewind({})
    assert values(second) == {}


def test_a_late_step_does_not_replace_a_later_one_but_a_new_attempt_does(start: Start):
    """The last value is by step, not by arrival; a new attempt continues from its own step."""
    tracker = start()
    tracker.log(single("loss", {5: 1.0, 3: 2.0}))
    assert values(tracker) == {"loss": 1.0}
    tracker.log(single("loss", {4: 3.0}, AGAIN))
    assert values(tracker) == {"loss": 3.0}
    tracker.log(single("loss", {1: 9.0}, Writer("explorer", 0, 1)))
    assert {(s.labels["writer"], s.value) for s in scraped(tracker) if s.name == "barograph_loss"} == {
        ("trainer/0", 3.0),
        ("explorer/0", 9.0),
    }


def test_nonfinite_values_are_exported(start: Start):
    """NaN and infinities are values; names with the same cleaned form differ by their label."""
    tracker = start()
    tracker.log([Row(0, 1.0, {"nan": math.nan, "in f": math.inf, "in/f": -math.inf}, AGAIN)])
    found = values(tracker)
    assert math.isnan(found["nan"])
    assert (found["in f"], found["in/f"]) == (math.inf, -math.inf)


def test_configuration_errors(monkeypatch: pytest.MonkeyPatch, start: Start, tmp_path: Path):
    """An invalid or used port, an unknown argument, and a missing package."""
    taken = int(str(start().url).split(":")[2].split("/")[0])
    with pytest.raises(TrackerError, match=f"cannot listen on 127.0.0.1:{taken}: .*in use; choose another port"):
        make("prometheus", {"port": taken}).start(INFO, CONFIG, tmp_path)
    with pytest.raises(TrackerError, match="port must be from 0 .* to 65535; got 'x'"):
        make("prometheus", {"port": "x"})
    with pytest.raises(TrackerError, match="unknown argument 'prot'; did you mean 'port'?"):
        make("prometheus", {"prot": 1})
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(TrackerError, match=r"tracker 'prometheus' is not installed: pip install '.*\[prom"):
        make("prometheus", {})
