"""Work of the host while a device copies its results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from barograph.base import device_copy
from barograph.metrics.batch.token_rows import TakenTokens
from barograph.metrics.gpu import outline, passes, results
from barograph.metrics.gpu.results import numbered_labels


@pytest.mark.parametrize("tensors", [1, 2])
def test_the_host_works_between_the_start_of_a_copy_and_the_wait(tensors: int, monkeypatch: pytest.MonkeyPatch):
    """The copy is queued first, and only then waited for."""
    order = []

    class Copy(device_copy.DeviceCopy):
        def __init__(self, tensor: Any, *, reused: bool = False) -> None:
            order.append("queued")
            super().__init__(tensor, reused=reused)

        def wait(self) -> Any:
            order.append("waited")
            return super().wait()

    monkeypatch.setattr(passes, "DeviceCopy", Copy)
    found = passes.fetch([torch.arange(3)] * tensors, [], lambda: order.append("worked"))
    assert order == ["queued", "worked", "waited"]
    assert [array.tolist() for array in found] == [[0, 1, 2]] * tensors


def test_tokens_are_copied_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch):
    """The end of a step copies only which sequences were chosen, with its results; then their memory is used again."""
    asked = []
    monkeypatch.setattr(results, "copied_on_side_stream", lambda tensor: asked.append(tensor) or tensor.clone())
    monkeypatch.setattr(results, "_spare_tokens", {})
    layout = outline.RowLayout(("random",), ("log_probs",), False, 2, 16, description=32)
    memory = results.ResultMemory(torch.device("cpu"))
    words = results.TokenMemory.on(memory.device, layout.token_words)
    rows = results.DeviceRows(
        ["a", "b"], 2, outline.Chooser(layout, None, None), 0, words, memory.take(layout.choice_words)
    )
    choice, tokens = rows.tensors(memory.chunk(rows))
    chosen, scores = choice[layout.chosen :], choice[layout.scores :].view(torch.float32)
    chosen[:2], scores[:2], tokens[:] = torch.tensor([1, -2], dtype=torch.int32), torch.tensor([7.0, 0.0]), 3.0
    memory.rows.append(rows)
    assert rows.picks() == rows.made() == []  # before the results are there
    list(memory.fetched(passes.fetch(memory.tensors(), [], memory.number_labels)))
    chosen[:] = -2  # by the next step
    taken = TakenTokens([rows])
    assert taken.ids() == ["b"]
    assert asked == []
    assert results._spare_tokens == {}
    [found] = taken.fetch()
    assert (found.id, found.reason, found.arrays["log_probs"].tolist()) == ("b", "random", [3.0] * 16)
    assert [tensor.data_ptr() for tensor in asked] == [words.address]
    assert results._spare_tokens == {None: [words]}
    assert rows.made() == []


def test_memory_of_tokens_is_bounded_where_every_step_has_another_width(monkeypatch: pytest.MonkeyPatch):
    """Smaller memory makes room for larger, and no more than that of two steps waits for its next use."""
    monkeypatch.setattr(results, "_spare_tokens", {})
    for size in (100, 40, 300, 299, 7):
        used = [results.TokenMemory.on(torch.device("cpu"), size) for _ in range(3)]
        assert all(words.size >= size for words in used)
        assert len({words.address for words in used}) == 3
        for words in used:
            words.release()
        assert len(results._spare_tokens[None]) == results.MAX_SPARE
    assert max(words.size for words in results._spare_tokens[None]) == 300


def test_the_next_step_uses_the_memory_of_the_results(monkeypatch: pytest.MonkeyPatch):
    """On the same stream; two steps at a time have memory of their own."""
    for name in ("_spare_chunks", "_last_words"):
        monkeypatch.setattr(results, name, {})
    stream = 1
    monkeypatch.setattr(results, "current_stream", lambda device: stream)

    def step(words: int) -> tuple[results.ResultMemory, int]:
        memory = results.ResultMemory(torch.device("cpu"))
        place = memory.take(words)
        [used] = memory.tensors()
        assert (place, len(used)) == ((0, 0, used.data_ptr()), words)  # no more is copied
        return memory, place[2]

    first, address = step(100)
    first.release()
    (second, same), (third, other) = step(80), step(100)
    assert same == address != other
    second.release()
    stream = 2
    assert step(100)[1] not in (address, other)
    third.release()  # which is of the other stream
    fourth, _ = step(100)
    assert fourth.take(5)[:2] == (1, 0)
    fourth.release()  # in two chunks: the next step needs a larger one
    assert results._spare_chunks == {}


def test_the_memory_of_an_unusually_large_step_is_freed(monkeypatch: pytest.MonkeyPatch):
    """After some steps that need less than half of it."""
    for name in ("_spare_chunks", "_last_words"):
        monkeypatch.setattr(results, name, {})
    sizes = []
    for words in (1000, *[100] * 10):
        memory = results.ResultMemory(torch.device("cpu"))
        memory.take(words)
        memory.tensors()
        memory.release()
        sizes += [chunk.size for chunk in results._spare_chunks.values()]
    assert (sizes[0], sizes[7], sizes[-1]) == (1000, 1000, 100)


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
