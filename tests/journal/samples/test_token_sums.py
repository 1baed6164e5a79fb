"""Values of tokens that follow from others, and their sums over samples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph.base.model import Sample
from barograph.journal.samples.token_sums import TokenPlace, all_values, nonfinite, shown_value, token_sums

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "token_values.json").read_text())
ORDER = ("push", "gradient", "mismatch", "kl", "surprise", "ratio")


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["case"]))
def test_values_that_follow_from_others_are_those_of_the_page(case: dict[str, Any]):
    """The same cases as in tests/apps/web/samples.test.js."""
    found = all_values(case["given"])
    assert list(found) == list(dict.fromkeys([*(name for name in ORDER if name in found), *case["given"]]))
    assert found.keys() == case["follows"].keys() | case["given"].keys()
    for name, values in {**case["given"], **case["follows"]}.items():
        np.testing.assert_allclose(found[name], values, atol=1e-6, err_msg=name)


def test_the_value_that_is_shown_first_tells_tokens_apart():
    """It is not about the same for all tokens that count. The same cases as in tests/apps/web/samples.test.js."""

    def shown(**given: list[float]) -> str | None:
        return shown_value({name: np.array(values, np.float32) for name, values in given.items()})

    same, other = [1, 1.01, 1], [0, 1, 0.5]
    assert shown(push=same, entropy=other) == "entropy"
    assert shown(push=[9, 1, 1], entropy=other, mask=[0, 1, 1]) == "entropy"
    assert shown(push=[1, np.nan, 1], ratio=same) == "push"
    assert shown(push=[]) == "push"
    assert shown() is None


def test_a_sum_knows_the_places_with_the_largest_values():
    """By their distance from 0, the first of equal ones first; at most twenty of a token, and none that is masked."""
    first = Sample(tokens=("a", "b", "a"), token_values={"entropy": (0.5, 9.0, -4.0), "mask": (1, 0, 1)})
    second = Sample(tokens=("a",) * 40, token_values={"entropy": tuple(range(3, 43))})
    [entry] = token_sums([(first, "x:0")], "entropy")
    assert (entry.text, entry.count, entry.sum, entry.mean) == ("a", 2, -3.5, -1.75)
    assert entry.places == [TokenPlace(-4.0, "x:0", 2), TokenPlace(0.5, "x:0", 0)]
    [entry] = token_sums([(first, "x:0"), (second, "x:1")], "entropy")
    assert [one.value for one in entry.places] == list(range(42, 22, -1))
    assert entry.places[0] == TokenPlace(42.0, "x:1", 39)
    same = Sample(tokens=("a",) * 30, token_values={"entropy": (1.0,) * 30})
    assert [one.token for one in token_sums([(same, "y:0")], "entropy")[0].places] == list(range(20))


@pytest.mark.parametrize(("neutral", "value"), [(0.0, "mismatch"), (1.0, "ratio"), (0.0, "a name of one's own")])
def test_opposite_values_do_not_hide_the_token_that_carries_most(neutral: float, value: str):
    """It has the largest sum of distances from the neutral value, whatever that is."""
    rng = np.random.default_rng(3)
    tokens = rng.choice(["up and down", "a little up", "often", "far"], 4000, p=[0.2, 0.2, 0.599, 0.001])
    apart = {"up and down": rng.choice([-0.5, 0.5], 4000), "a little up": 0.1, "often": 0.001, "far": -8.0}
    values = np.array(neutral + np.select([tokens == name for name in apart], list(apart.values())), np.float32)
    samples = [
        (Sample(tokens=tuple(tokens[rows].tolist()), token_values={value: tuple(values[rows].tolist())}), f"x:{n}")
        for n, rows in enumerate(np.array_split(np.arange(4000), 7))
    ]
    found = token_sums(samples, value)
    distance = {name: np.abs(values[tokens == name].astype(np.float64) - neutral).sum() for name in apart}
    assert [entry.text for entry in found] == sorted(distance, key=lambda name: -distance[name])
    assert found[0].text == "up and down"
    for entry in found:
        chosen = values[tokens == entry.text].astype(np.float64)
        assert entry.sum == pytest.approx(chosen.sum())
        assert entry.share == pytest.approx(distance[entry.text] / sum(distance.values()))
    [far] = [entry for entry in found if entry.text == "far"]
    assert all(place.value == pytest.approx(neutral - 8.0) for place in far.places)


def test_tokens_whose_values_are_all_neutral_have_a_share_of_0():
    """There is nothing to divide by."""
    sums = token_sums([(Sample(tokens=("a", "b"), token_values={"ratio": (1.0, 1.0)}), "x:0")], "ratio")
    assert [(entry.text, entry.share, entry.sum) for entry in sums] == [("a", 0.0, 1.0), ("b", 0.0, 1.0)]


def test_sums_have_what_is_not_finite_first():
    """It counts where its token does; without a mask NaN is a value that is not known."""
    tokens, values = ("a", "b", "c", "d", "b"), (90.0, np.nan, np.inf, np.nan, 1.0)
    masked = Sample(tokens=tokens, token_values={"kl": values, "mask": (1, 1, 1, 0, 1)})
    found = {entry.text: entry for entry in token_sums([(masked, "x:0")], "kl")}
    assert list(found) == ["b", "c", "a"]
    assert (str(found["b"].sum), found["b"].count, found["c"].sum, found["a"].sum) == ("nan", 2, np.inf, 90.0)
    assert [place.token for place in found["b"].places] == [1, 4]
    assert [entry.share for entry in found.values()] == [None, None, 1.0]
    sums = token_sums([(Sample(tokens=tokens, token_values={"kl": values}), "x:0")], "kl")
    assert [(entry.text, entry.sum, entry.count) for entry in sums] == [("c", np.inf, 1), ("a", 90.0, 1), ("b", 1.0, 1)]


def test_tokens_without_a_finite_value():
    """Those that count; without a mask NaN is a value that is not known."""
    values = np.array([np.nan, 1.0, -np.inf, np.nan, 0.0], np.float32)
    assert nonfinite(values, None).tolist() == [False, False, True, False, False]
    assert nonfinite(values, np.array([0.0, 1.0, 1.0, 1.0, 1.0])).tolist() == [False, False, True, True, False]
