"""Labels of groups: which are the same, and what finding that out takes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from barograph.metrics.formulas.sequences import numbered, summarised


class Label:
    """A label that counts how often labels are hashed."""

    hashed = 0

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Label) and self.text == other.text

    def __hash__(self) -> int:
        Label.hashed += 1
        return hash(self.text)


def objects(*labels: object) -> np.ndarray:
    found = np.empty(len(labels), np.object_)
    found[:] = labels
    return found


def test_neighbours_with_the_same_label_are_hashed_once(monkeypatch: pytest.MonkeyPatch):
    """The samples of a prompt mostly follow each other: the cost is that of the prompts."""
    monkeypatch.setattr(Label, "hashed", 0)
    names, place = numbered(objects(*[Label(f"prompt {n // 8}") for n in range(64)]))
    assert place.tolist() == [n // 8 for n in range(64)]
    assert [name.text for name in names] == [f"prompt {n}" for n in range(8)]
    assert Label.hashed < 64


def test_labels_are_compared_as_python_does():
    """In any order: None is no label, 3 equals 3.0, and NaN only itself."""
    nan = math.nan
    names, place = numbered(objects("a", "a", None, None, "b", "a", 3, 3.0, nan, nan, float("nan"), (1, 2), (1, 2)))
    assert place.tolist() == [0, 0, -1, -1, 1, 0, 2, 2, 3, 3, 4, 5, 5]
    assert names.tolist()[:3] == ["a", "b", 3]


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64, np.uint64, np.float32])
@pytest.mark.parametrize("factor", [1, 25, -1])
def test_numbers_are_numbered_in_order(kind: type, factor: int):
    """Small ones, which are counted, and others, which are sorted."""
    if factor < 0 and kind in (np.uint8, np.uint64):
        pytest.skip("there are no negative ones")
    labels = (factor * np.array([5, 0, 0, 2, 5, 4])).astype(kind)
    names, place = numbered(labels)
    expected, places = np.unique(labels, return_inverse=True)
    assert names.tolist() == expected.tolist()
    assert place.tolist() == places.tolist()
    assert place.dtype == np.int64


def test_small_numbers_are_not_sorted(monkeypatch: pytest.MonkeyPatch):
    """Numbers of prompts are mostly below the number of sequences."""
    monkeypatch.delattr(np, "unique")
    assert numbered(np.array([3, 0, 3, 1]))[1].tolist() == [2, 0, 2, 1]


@pytest.mark.parametrize("labels", [(), (None,), (None, None)])
def test_there_may_be_no_label(labels: tuple[None, ...]):
    """No group, and no score in one."""
    names, place = numbered(objects(*labels))
    assert len(names) == 0
    assert place.tolist() == [-1] * len(labels)
    found = summarised(np.ones(len(labels)), objects(*labels))
    assert len(found.sizes) == found.unknown == found.in_bins.sum() == 0


@np.errstate(invalid="ignore")
def test_groups_are_counted_by_their_solve_rate():
    """Exactly none, up to a quarter, …, all; a group with an unknown score is counted as such."""
    scores = np.array([0, 0, 1, 0, 0, 0, 1, 0, 1, 1, math.nan, 1], np.float64)
    found = summarised(scores, objects(*"aabbbbccddee"))
    assert found.sizes.tolist() == [2, 4, 2, 2, 2]
    assert found.is_equal.tolist() == [True, False, False, True, False]
    assert found.in_bins[[0, 1, 2, 5]].tolist() == [1, 1, 2, 1]
    assert found.unknown == 1
    assert found.deviations[:4] == pytest.approx([0, math.sqrt(3) / 4, 0.5, 0])
