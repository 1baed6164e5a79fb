"""Values of tokens that follow from others, and their sums over samples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windsock.model import Sample
from windsock.samples.token_sums import TokenPlace, all_values, nonfinite, shown_value, token_sums

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "token_values.json").read_text())
ORDER = ("push", "gradient", "mismatch", "kl", "surprise", "ratio")


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["case"]))
def test_values_that_follow_from_others_are_those_of_the_page(case: dict[str, Any]):
    """The same cases as in tests/web/samples.test.js."""
    found = all_values(case["given"])
    assert list(found) == list(dict.fromkeys([*(name for name in ORDER if name in found), *case["given"]]))
    assert found.keys() == case["follows"].keys() | case["given"].keys()
    for name, values in {**case["given"], **case["follows"]}.items():
        np.testing.assert_allclose(found[name], values, atol=1e-6, err_msg=name)


def test_the_value_that_is_shown_first_tells_tokens_apart():
    """It is not about the same for all tokens that count. The same cases as in tests/web/samples.test.js."""

    def shown(**given: list[float]) -> str | None:
        return shown_value({name: np.array(values, np.float32) for name, values in given.items()})

    same, other = [1, 1.01, 1], [0, 1, 0.5]
    assert shown(push=same, entropy=other) == "entropy"
    assert shown(push=[9, 1, 1], entropy=other, mask=[0, 1, 1]) == "entropy"
    assert shown(push=[1, np.nan, 1], ratio=same) == "push"
    assert shown(push=[]) == "push"
    assert shown() is None


def test_a_sum_knows_the_places_with_the_largest_values():
    """By their absolute values, the first of equal ones first; at most twenty of a token, and none that is masked."""
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


def test_sums_have_what_is_not_finite_first():
    """It counts where its token does; without a mask NaN is a value that is not known."""
    tokens, values = ("a", "b", "c", "d", "b"), (90.0, np.nan, np.inf, np.nan, 1.0)
    masked = Sample(tokens=tokens, token_values={"kl": values, "mask": (1, 1, 1, 0, 1)})
    found = {entry.text: entry for entry in token_sums([(masked, "x:0")], "kl")}
    assert list(found) == ["b", "c", "a"]
    assert (str(found["b"].sum), found["b"].count, found["c"].sum, found["a"].sum) == ("nan", 2, np.inf, 90.0)
    assert [place.token for place in found["b"].places] == [1, 4]
    sums = token_sums([(Sample(tokens=tokens, token_values={"kl": values}), "x:0")], "kl")
    assert [(entry.text, entry.sum, entry.count) for entry in sums] == [("c", np.inf, 1), ("a", 90.0, 1), ("b", 1.0, 1)]


def test_tokens_without_a_finite_value():
    """Those that count; without a mask NaN is a value that is not known."""
    values = np.array([np.nan, 1.0, -np.inf, np.nan, 0.0], np.float32)
    assert nonfinite(values, None).tolist() == [False, False, True, False, False]
    assert nonfinite(values, np.array([0.0, 1.0, 1.0, 1.0, 1.0])).tolist() == [False, False, True, True, False]
