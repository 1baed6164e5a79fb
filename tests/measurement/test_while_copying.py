"""Work of the host while a device copies its results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from windsock.measurement import device, device_rows
from windsock.measurement.result_memory import numbered_labels


@pytest.mark.parametrize("tensors", [1, 2])
def test_the_host_works_between_the_start_of_a_copy_and_the_wait(tensors: int, monkeypatch: pytest.MonkeyPatch):
    """The copy is queued first, and only then waited for."""
    order = []

    class Copy(device.DeviceCopy):
        def __init__(self, tensor: Any, *, reused: bool = False) -> None:
            order.append("queued")
            super().__init__(tensor, reused=reused)

        def wait(self) -> Any:
            order.append("waited")
            return super().wait()

    monkeypatch.setattr(device, "DeviceCopy", Copy)
    found = device.fetch([torch.arange(3)] * tensors, [], lambda: order.append("worked"))
    assert order == ["queued", "worked", "waited"]
    assert [array.tolist() for array in found] == [[0, 1, 2]] * tensors


def test_tokens_are_copied_after_the_results_and_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    """The end of a step waits for its results; whoever reads the tokens waits for those."""
    order = []

    class Copy(device.DeviceCopy):
        def __init__(self, tensor: Any, *, reused: bool = False) -> None:
            self.what = "tokens" if tensor.dtype == torch.int32 else "results"
            order.append(f"queued {self.what}")
            super().__init__(tensor, reused=reused)

        def wait(self) -> Any:
            order.append(f"waited for {self.what}")
            return super().wait()

    for module in (device, device_rows):
        monkeypatch.setattr(module, "DeviceCopy", Copy)
    memory = device.ResultMemory(torch.device("cpu"))
    rows = device_rows.DeviceRows(["a"], 1, device_rows.RowLayout((), ("log_probs",), False, 1, 16), "cpu")
    rows.words.fill_(0)
    memory.rows.append(rows)
    device.fetch([torch.zeros(3)], [], lambda: device._work_during_copy(memory))
    assert order == ["queued results", "queued tokens", "waited for results"]
    assert [row.id for row in rows.made()] == ["a"]
    assert order[3:] == ["waited for tokens"]


def test_labels_become_numbers():
    """The same label is the same number; where a sequence has none, the labels stay as they are."""
    labels = np.array(["b", "b", "a", "b"], object)
    some = np.array(["b", None, "a", "a"], object)
    given = {"groups": labels, "episodes": some, "weights": np.ones(4)}
    found = numbered_labels(given)
    assert found["groups"].tolist() == [0, 0, 1, 0]
    assert found["episodes"] is some
    assert found["weights"] is given["weights"]
    assert given["groups"] is labels
    unusable = np.array([[], {}, None], object)
    assert numbered_labels({"groups": unusable})["groups"] is unusable
    assert numbered_labels({"groups": ["x", "y", "x"]})["groups"].tolist() == [0, 1, 0]
