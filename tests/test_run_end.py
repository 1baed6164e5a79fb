"""Tests of how a run ends: after an error of the device, by an exit code, and by SIGTERM."""

import os
import time

import pytest

import windsock
from windsock.model import Problem
from windsock.scalars import Deferred

DEVICE_ERROR = "CUDA error: an illegal memory access was encountered"


class FailedCopy(Deferred):
    """Values on a device that has failed: every question raises, as CUDA's sticky errors do."""

    def __init__(self) -> None:
        super().__init__(())

    def ready(self) -> bool:
        raise RuntimeError(DEVICE_ERROR)

    def values(self) -> list[float]:
        raise RuntimeError(DEVICE_ERROR)


class ArrivedCopy(FailedCopy):
    """A value that has arrived."""

    def ready(self) -> bool:
        return True

    def values(self) -> list[float]:
        return [7.0]


def defer(run: windsock.Run, *copies: Deferred) -> None:
    """Let a run wait for values of a device, each under the name of its place."""
    rows = run._collectors.device_values._rows
    rows.extend(((f"v{place}",), None, time.time(), copy) for place, copy in enumerate(copies))


def test_a_device_value_that_raises_costs_only_itself():
    """The values beside it belong to the commit that follows them, not to the next one."""
    run = windsock.init()
    defer(run, FailedCopy(), ArrivedCopy(), FailedCopy(), ArrivedCopy())
    run.commit(3)
    run.commit(4)
    run.finish()
    view = windsock.open(run.path)
    assert [view.series(name).steps.tolist() for name in ("v1", "v3")] == [[3], [3]]
    assert Problem("copy of device values", f"RuntimeError: {DEVICE_ERROR}", 2) in view.problems()


def test_bytes_reach_the_disk_after_a_device_error(monkeypatch: pytest.MonkeyPatch):
    """The work of every second goes on: a failed device value does not come before the sync for ever."""
    run = windsock.init()
    assert run._background is not None
    run._background.stop()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    defer(run, FailedCopy())
    run._maintain()
    assert synced


def test_the_trainings_own_error_is_the_status_after_a_device_error():
    """The finish event, the last samples and the counters are written although every collector's device raises."""
    run = windsock.init()
    with pytest.raises(ZeroDivisionError), run:
        run.sample("prompt", "completion", reward=1.0)
        run._collectors.counters._deferred += [(("tokens",), FailedCopy()), (("tokens",), ArrivedCopy())]
        defer(run, FailedCopy())
        run.commit(2)
        run.sample("prompt", "completion", reward=0.0)
        defer(run, FailedCopy())
        _ = 1 / 0
    view = windsock.open(run.path)
    assert view.status == windsock.Status("crashed", "ZeroDivisionError: division by zero")
    assert [sample.step for sample in view.samples()] == [2, 3]
    assert view.series("tokens").values.tolist() == [7.0]


def test_the_end_is_recorded_whatever_fails_before_it(monkeypatch: pytest.MonkeyPatch):
    """A failure while the rest is collected is a problem; it does not replace the status."""
    run = windsock.init()

    def fail() -> list[int | None]:
        raise RuntimeError(DEVICE_ERROR)

    monkeypatch.setattr(run._collectors, "uncommitted_steps", fail)
    run.finish(windsock.Status("crashed", "OOM"))
    view = windsock.open(run.path)
    assert view.status == windsock.Status("crashed", "OOM")
    assert Problem("run.finish", f"RuntimeError: {DEVICE_ERROR}", 1) in view.problems()
