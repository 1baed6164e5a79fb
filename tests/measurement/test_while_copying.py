"""Work of the host while a device copies its results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from windsock.measurement import device
from windsock.measurement.kernel_pass import numbered_labels


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
