"""SwanLab: values, dropped steps, restarts and errors."""

import collections
import json
import math
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from material import (
    AGAIN,
    CONFIG,
    INFO,
    KEY,
    NAMES,
    TEXT,
    TRAINER,
    expected,
    files_with_key,
    rows,
    single,
    started_trackers,
)

from barograph.base.errors import TrackerError
from barograph.base.model import Row, Status
from barograph.delivery.trackers.registry import make
from barograph.delivery.trackers.swanlab import SwanLabTracker
from readers import swanlab_files, swanlab_records, swanlab_series

pytest.importorskip("swanlab")
Start = Callable[..., SwanLabTracker]
QUICK = {"probe": {"monitor": False, "hardware": False, "requirements": False, "conda": False, "git": False}}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start offline trackers that write to ``tmp_path``, and finish those that a test leaves open."""

    def make(**kwargs: Any) -> SwanLabTracker:
        return SwanLabTracker(**{"mode": "offline", "logdir": tmp_path / "sw", "settings": QUICK, **kwargs})

    yield from started_trackers(make, lambda tracker: tracker._run.alive and tracker._run.finish(), tmp_path)


def test_all_values_texts_histograms_and_samples_are_in_the_file(start: Start, tmp_path: Path):
    """200 steps of 100 values with unchanged names, the config and the final state."""
    tracker = start()
    tracker.log(rows())
    tracker.finish(Status("crashed", "boom"))
    (path,) = swanlab_files(tmp_path)
    found = swanlab_series(path)
    assert found.pop("barograph/nonfinite/dist") == dict.fromkeys(range(0, 200, 20), 2)
    assert found == expected()
    media = collections.defaultdict(dict)
    kept = swanlab_records(path)
    for item in kept["media"]:
        (file,) = path.parent.rglob(item.value.items[0].filename)
        media[item.key][item.step] = file.read_text()
    assert media["note"] == {step: f"{step}: {TEXT}" for step in range(0, 200, 10)}
    assert "2 + 2 \\| ?" in media["samples"][20]
    assert json.loads(media["dist"][20])["series"][0]["data"] == [3, 4]
    begun, ended = kept["start"][0], kept["finish"][0]
    assert (begun.id, begun.name, begun.project, begun.description) == (INFO.id, INFO.name, "project", "a note")
    assert (list(begun.tags), begun.group) == (["a", "b"], "g")
    assert ended.error == "boom"
    config = yaml.safe_load((path.parent / "files" / "config.yaml").read_text())
    assert config["actor"]["value"]["lr"] == 1e-6
    assert tracker.skipped == 0


def test_steps_in_any_order_are_stored_and_dropped_values_are_counted(start: Start, tmp_path: Path):
    """SwanLab stores every step once, and drops negative steps and second values."""
    tracker = start()
    tracker.log(single("loss", {5: 1.0, 3: 2.0, 9: 3.0}))
    tracker.log(single("loss", {9: 4.0, -2: 5.0}))
    assert tracker.skipped == 2
    tracker.log(single("loss", {4: 6.0, 10: 7.0}, AGAIN))
    assert tracker.skipped == 3  # the new attempt begins below what was given
    tracker.finish(Status("finished"))
    assert swanlab_series(*swanlab_files(tmp_path)) == {"loss": {5: 1.0, 3: 2.0, 9: 3.0, 4: 6.0, 10: 7.0}}


def test_there_is_no_mark_before_the_end_and_all_rows_are_delivered_again(start: Start, tmp_path: Path):
    """After a crash a new file has all rows; both files together have every name and step once."""
    tracker = start()
    tracker.rewind({})
    tracker.log(rows(range(20)))
    assert tracker.mark() is None
    tracker._run.finish("crashed", error="kinder than it would be")
    tracker = start()
    tracker.rewind({})
    tracker.log(rows(range(30)))
    tracker.finish(Status("finished"))
    found = swanlab_series(*swanlab_files(tmp_path))
    assert {name: found[name] for name in NAMES} == expected(range(30))
    assert tracker.mark() == {"highest": 29, "attempts": {"trainer/0": 1}}
    assert {record.id for path in swanlab_files(tmp_path) for record in swanlab_records(path)["start"]} == {INFO.id}


def test_nonfinite_values_are_stored(start: Start, tmp_path: Path):
    """NaN and infinities are values."""
    tracker = start()
    tracker.log([Row(0, 1.0, {"nan": math.nan, "inf": math.inf, "ninf": -math.inf}, TRAINER)])
    tracker.finish(Status("finished"))
    found = swanlab_series(*swanlab_files(tmp_path))
    assert math.isnan(found["nan"][0])
    assert (found["inf"][0], found["ninf"][0]) == (math.inf, -math.inf)


def test_rolls_configuration_works_unchanged(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With login_kwargs, offline by the environment; the key is written to no file."""
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    tracker = start(
        login_kwargs={"api_key": KEY}, project="roll-rlvr", workspace="team", experiment_name="mine",
        description="why", tags=["roll", "rlvr"], logdir=str(tmp_path / "sw"), mode=None,
    )  # fmt: skip
    tracker.log(rows(range(2)))
    tracker.finish(Status("finished"))
    (path,) = swanlab_files(tmp_path)
    begun = swanlab_records(path)["start"][0]
    assert (begun.project, begun.workspace, begun.name, begun.description) == ("roll-rlvr", "team", "mine", "why")
    assert list(begun.tags) == ["roll", "rlvr"]
    assert files_with_key(tmp_path) == []


def test_an_unreachable_host_is_not_a_configuration_error(tmp_path: Path):
    """SwanLab reports both as a wrong key."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        kwargs = {"mode": "online", "api_key": KEY, "host": f"http://127.0.0.1:{closed.getsockname()[1]}"}
        with pytest.raises(ConnectionError, match="does not answer"):
            make("swanlab", kwargs).start(INFO, CONFIG, tmp_path)


def test_configuration_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """An unknown mode or argument, a missing key, and a missing package."""
    with pytest.raises(TrackerError, match="mode must be online, local, offline or disabled; got 'ofline'"):
        make("swanlab", {"mode": "ofline"})
    with pytest.raises(TrackerError, match="unknown argument 'worksapce'; did you mean 'workspace'?"):
        make("swanlab", {"worksapce": "x"})
    with pytest.raises(TrackerError, match="login_kwargs must be a mapping; got str"):
        make("swanlab", {"login_kwargs": "x"})
    with pytest.raises(TrackerError, match=r"Set login_kwargs.api_key or SWANLAB_API_KEY .*, or use mode: offline"):
        make("swanlab", {"mode": "online", "logdir": str(tmp_path)}).start(INFO, CONFIG, tmp_path)
    monkeypatch.setitem(sys.modules, "swanlab", None)
    with pytest.raises(TrackerError, match=r"tracker 'swanlab' is not installed: pip install '.*\[swanlab"):
        make("swanlab", {})
