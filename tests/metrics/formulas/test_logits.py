"""Log-probs, entropy and exact KL from logits, against plain float64 definitions, on every library and device."""

import math
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.metrics.formulas import logits as module
from barograph.metrics.formulas.logits import kl_exact, log_prob_and_entropy
from kernels import CUDA, NEEDS_KERNELS, interpreted_kernels

INF, NAN = math.inf, math.nan
HALVES = ("bfloat16", "float16")
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 1e-5, "float16": 1e-5}
"""Absolute error against float64 computed from the same, already rounded logits; half precision adds no error."""


@dataclass(frozen=True, slots=True)
class Home:
    """A library, a device, and a dtype for the logits."""

    library: str
    device: str
    dtype: str

    def logits(self, values: Any) -> Any:
        if self.library == "numpy":
            return np.asarray(values, self.dtype)
        return torch.as_tensor(np.asarray(values)).to(self.device, getattr(torch, self.dtype))

    def integers(self, values: Any) -> Any:
        return self._plain(np.asarray(values, np.int64))

    def booleans(self, values: Any) -> Any:
        return self._plain(np.asarray(values, bool))

    def _plain(self, values: Any) -> Any:
        return values if self.library == "numpy" else torch.as_tensor(values).to(self.device)

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.dtype]

    def __str__(self) -> str:
        return f"{self.library}-{self.device}-{self.dtype}"


HOMES = [Home("numpy", "cpu", dtype) for dtype in TOLERANCE if dtype != "bfloat16"]
HOMES += [Home("torch", "cpu", dtype) for dtype in TOLERANCE]
HOMES += [Home("torch", "cuda", dtype) for dtype in TOLERANCE if CUDA]
KERNELS = [Home("triton", "cuda" if CUDA else "cpu", dtype) for dtype in TOLERANCE if dtype != "float64"]


@pytest.fixture(params=[*HOMES, *(pytest.param(home, marks=NEEDS_KERNELS) for home in KERNELS)], ids=str)
def home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """Return each library, device and dtype in turn; torch on CUDA computes as if Triton were absent."""
    home: Home = request.param
    if home.library == "triton" and not CUDA:
        interpreted_kernels(monkeypatch)
    if home.library == "torch":
        monkeypatch.setattr(module, "_load_kernels", lambda: None)
    return home


def wide(values: Any) -> np.ndarray:
    """Return an array or tensor as a float64 array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().to("cpu", torch.float64).numpy()
    return np.asarray(values, np.float64)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    top = logits.max(-1, keepdims=True)
    return logits - (top + np.log(np.exp(logits - top).sum(-1, keepdims=True)))


def reference(logits: Any, actions: Any, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return log-probs and entropy by their definitions, from the complete softmax."""
    log_p = log_softmax(wide(logits) / temperature)
    p = np.exp(log_p)
    taken = np.take_along_axis(log_p, wide(actions).astype(np.int64)[..., None], -1)[..., 0]
    return taken, -(p * np.where(p > 0, log_p, 0.0)).sum(-1)


def reference_kl(old: Any, new: Any, temperature: float = 1.0) -> np.ndarray:
    """Return the KL divergence by its definition, from both softmaxes."""
    log_p, log_q = log_softmax(wide(old) / temperature), log_softmax(wide(new) / temperature)
    possible = log_p > -INF
    terms = np.zeros_like(log_p)
    terms[possible] = np.exp(log_p[possible]) * (log_p[possible] - log_q[possible])
    return terms.sum(-1)


def realistic(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return logits like those of a trained model: normal ones with a few high peaks."""
    random = np.random.default_rng(seed)
    values = random.normal(0.0, 3.0, shape)
    peaks = random.integers(0, shape[-1], (*shape[:-1], min(4, shape[-1])))
    np.put_along_axis(values, peaks, random.uniform(10.0, 25.0, peaks.shape), -1)
    return values


def some_actions(shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, shape[-1], shape[:-1])


def check(home: Home, logits: Any, actions: Any, temperature: float = 1.0) -> None:
    """Compare log-probs and entropy with the reference, within the tolerance of the dtype."""
    log_probs, entropy = log_prob_and_entropy(logits, actions, temperature)
    expected = reference(logits, actions, temperature)
    assert tuple(log_probs.shape) == tuple(entropy.shape) == tuple(logits.shape[:-1])
    np.testing.assert_allclose(wide(log_probs), expected[0], rtol=1e-6, atol=home.tolerance)
    np.testing.assert_allclose(wide(entropy), expected[1], rtol=0, atol=home.tolerance)


def check_kl(home: Home, old: Any, new: Any, temperature: float = 1.0) -> None:
    """Compare the KL with the reference, within the tolerance of the dtype."""
    divergence = kl_exact(old, new, temperature)
    assert tuple(divergence.shape) == tuple(new.shape[:-1])
    expected = reference_kl(old, new, temperature)
    np.testing.assert_allclose(wide(divergence), expected, rtol=1e-6, atol=home.tolerance)
    assert (wide(divergence) >= -home.tolerance).all()


def test_results_equal_the_definitions(home: Home):
    """Every library, device and dtype gives the float64 numbers within its stated tolerance."""
    for shape in [(3, 4, 1000), (2, 10_000), (2, 9999), (7, 1), (5, 33)]:
        logits, actions = home.logits(realistic(shape)), home.integers(some_actions(shape))
        check(home, logits, actions)
        check_kl(home, home.logits(realistic(shape, seed=5)), logits)


def test_a_whole_vocabulary_of_a_large_model_is_right_to_1e_5(home: Home):
    """Sums over 151,936 entries do not lose digits, from nearly uniform to nearly deterministic rows."""
    logits = realistic((6, 151_936))
    logits[1] *= 0.01
    logits[2, 77] = 60.0
    logits[3, :] = 0.0
    logits[4, 1000:] = -INF
    logits = home.logits(logits)
    check(home, logits, home.integers(some_actions((6, 900))))
    old = wide(logits)
    old[:4] += np.random.default_rng(3).normal(0.0, 0.05, (4, 151_936))
    old[5] += 8.0  # a shift of all logits of a row changes no probability
    check_kl(home, home.logits(old), logits)


def test_a_nearly_certain_token_leaves_a_small_positive_entropy(home: Home):
    """The entropy of a nearly deterministic row is not the difference of two large numbers."""
    logits = np.zeros((1, 1000))
    logits[0, 3] = 22.0
    _, entropy = log_prob_and_entropy(home.logits(logits), home.integers([3]))
    expected = reference(logits, [3])[1]
    assert 0 < expected.item() < 1e-5
    np.testing.assert_allclose(wide(entropy), expected, rtol=0, atol=min(home.tolerance, 2e-7))


def test_temperature_divides_the_logits(home: Home):
    """A temperature gives the results of the divided logits, on both sides of the KL."""
    for temperature in [0.3, 1, 2.5]:
        logits, actions = home.logits(realistic((4, 600))), home.integers(some_actions((4, 600)))
        check(home, logits, actions, temperature)
        check_kl(home, home.logits(realistic((4, 600), seed=8)), logits, temperature)


def test_what_lies_under_the_mask_does_not_matter(home: Home):
    """Masked positions give 0 for any logits, and the others the results without a mask."""
    for garbage in [NAN, INF, -INF]:
        values, actions = realistic((3, 5, 400)), some_actions((3, 5, 400))
        old = realistic((3, 5, 400), seed=2)
        mask = np.random.default_rng(4).random((3, 5)) < 0.5
        expected = *reference(home.logits(values), actions), reference_kl(home.logits(old), home.logits(values))
        values[~mask], old[~mask], actions[~mask] = garbage, garbage, -100
        logits = home.logits(values)
        results = (
            *log_prob_and_entropy(logits, home.integers(actions), mask=home.booleans(mask)),
            kl_exact(home.logits(old), logits, mask=home.booleans(mask)),
        )
        for result, whole in zip(results, expected, strict=True):
            np.testing.assert_allclose(wide(result), np.where(mask, whole, 0.0), rtol=1e-6, atol=home.tolerance)
            assert (wide(result)[~mask] == 0).all()


def test_a_mask_that_is_off_everywhere_gives_zeros(home: Home):
    """A mask without a position is no error: the results are 0."""
    logits, off = home.logits(np.full((2, 3, 10), NAN)), home.booleans(np.zeros((2, 3)))
    log_probs, entropy = log_prob_and_entropy(logits, home.integers(np.zeros((2, 3))), mask=off)
    assert not wide(log_probs).any()
    assert not wide(entropy).any()
    assert not wide(kl_exact(logits, logits, mask=off)).any()


def test_tokens_that_cannot_be_taken_add_nothing(home: Home):
    """-inf logits add nothing to entropy and KL, and the log-prob of such a token is -inf."""
    values, old = realistic((4, 10_000)), realistic((4, 10_000), seed=6)
    values[:, ::3] = -INF
    old[:, ::3] = -INF
    values[3, 1:], old[3, 1:] = -INF, -INF
    values[3, 0], old[3, 0] = 2.0, 1.0
    old[2, 1::3] = -INF  # the current policy can take these; the old one could not
    logits = home.logits(values)
    check(home, logits, home.integers([3, 4, 1, 0]))
    check_kl(home, home.logits(old), logits)
    log_probs, _ = log_prob_and_entropy(logits, home.integers([3, 3, 3, 0]))
    assert wide(log_probs)[:3].tolist() == [-INF] * 3
    assert wide(log_probs)[3] == 0


def test_the_lowest_finite_logit_serves_as_minus_infinity(home: Home):
    """Vocabularies masked with the smallest number of the dtype, on one side or both, give the results of -inf."""
    lowest = float(torch.finfo(getattr(torch, home.dtype)).min)
    actions = [7000, 7000, 7000]
    values, old = realistic((3, 10_000)), realistic((3, 10_000), seed=6)
    values[:2, :5000], old[:, :5000] = -INF, -INF
    expected = *reference(home.logits(values), actions), reference_kl(home.logits(old), home.logits(values))
    values[:2, :5000], old[::2, :5000] = lowest, lowest
    logits = home.logits(values)
    results = *log_prob_and_entropy(logits, home.integers(actions)), kl_exact(home.logits(old), logits)
    for result, whole in zip(results, expected, strict=True):
        np.testing.assert_allclose(wide(result), whole, rtol=1e-6, atol=home.tolerance)


def test_a_nan_stays_in_its_position(home: Home):
    """A NaN anywhere in a row makes the results of that row NaN, and of no other."""
    for width in [10_000, 10_001]:
        for place in [0, 1234, 9999]:
            values, actions = realistic((5, width)), some_actions((5, width))
            values[2, place] = NAN
            logits, old = home.logits(values), home.logits(realistic((5, width), seed=6))
            results = [
                *log_prob_and_entropy(logits, home.integers(actions)),
                kl_exact(old, logits),
                kl_exact(logits, old),
            ]
            for result in results:
                assert np.isnan(wide(result)).tolist() == [False, False, True, False, False]


def test_logits_that_are_no_distribution_give_nan(home: Home):
    """+inf and a row of -inf only give NaN."""
    for row in [[INF, 1.0, 2.0], [-INF, -INF, -INF], [INF, INF, NAN]]:
        logits, other = home.logits([row, [0.0, 1.0, 2.0]]), home.logits([[0.0, 1.0, 2.0]] * 2)
        results = [
            *log_prob_and_entropy(logits, home.integers([1, 1])),
            kl_exact(logits, other),
            kl_exact(other, logits),
            kl_exact(logits, logits),
        ]
        for result in results:
            assert np.isnan(wide(result)).tolist() == [True, False]


def test_extreme_logits_are_exact_and_leave_out_minus_infinity(home: Home):
    """The highest and lowest logit of each position, 0 under the mask, NaN where there is no distribution."""
    for width in [1, 5, 300, 10_001]:
        values = np.random.default_rng(width).normal(0, 10, (6, width))
        values[1, 0] = -INF if width > 1 else 1.0
        values[2, -1], values[3, 0], values[4] = NAN, INF, -INF
        logits, mask = home.logits(values), np.array([True, True, True, True, True, False])
        arguments = (logits, home.integers(np.zeros(6)), 0.7, home.booleans(mask))
        *pair, high, low = log_prob_and_entropy(*arguments, extremes=True)
        rounded = wide(logits)
        finite = np.where(np.isfinite(rounded), rounded, NAN)
        expected = np.array([np.nanmax(finite[:2], -1), np.nanmin(finite[:2], -1)])
        np.testing.assert_array_equal(np.stack([wide(high), wide(low)])[:, :2], expected)
        assert np.isnan(np.stack([wide(high), wide(low)])[:, 2:5]).all()
        assert (wide(high)[5], wide(low)[5]) == (0.0, 0.0)
        for with_extremes, without in zip(pair, log_prob_and_entropy(*arguments), strict=True):
            np.testing.assert_array_equal(wide(with_extremes), wide(without))


def test_an_action_outside_the_vocabulary_has_no_log_prob(home: Home):
    """Ids below 0 or of at least V give a NaN log-prob; the entropy does not depend on them."""
    logits = home.logits(realistic((4, 50)))
    log_probs, entropy = log_prob_and_entropy(logits, home.integers([-1, 50, 49, 2**40]))
    assert np.isnan(wide(log_probs)).tolist() == [True, True, False, True]
    assert np.isfinite(wide(entropy)).all()


def test_a_token_that_only_the_old_policy_can_take_makes_the_kl_infinite(home: Home):
    """A token that only the old policy can take gives +inf, even where its probability is tiny."""
    old, new = np.zeros((3, 4000)), np.zeros((3, 4000))
    new[0, 5] = -INF
    old[1, 5], new[1, 5] = -4000.0, -INF
    old[2, 5] = -INF
    assert wide(kl_exact(home.logits(old), home.logits(new)))[:2].tolist() == [INF, INF]
    assert np.isfinite(wide(kl_exact(home.logits(old), home.logits(new)))[2])


def test_the_kl_of_equal_logits_is_exactly_zero(home: Home):
    """The KL of a policy with itself is 0, with or without unreachable tokens."""
    values = realistic((4, 10_000))
    values[1, :1000] = -INF
    logits = home.logits(values)
    assert not wide(kl_exact(logits, logits, 0.7)).any()


def test_the_kl_of_nearly_equal_logits_is_small_and_not_negative(home: Home):
    """A tiny divergence is below 0 by at most a rounding error."""
    values = realistic((16, 10_000))
    old = home.logits(values + np.random.default_rng(9).normal(0.0, 1e-3, values.shape))
    divergence = wide(kl_exact(old, home.logits(values)))
    assert (divergence > -1e-6).all()
    np.testing.assert_allclose(divergence, reference_kl(old, home.logits(values)), rtol=0, atol=1e-6)


def test_the_kl_takes_two_dtypes(home: Home):
    """Old logits in half precision and current ones in float32 are compared without another rounding."""
    if home.library == "numpy" or home.dtype not in HALVES:
        pytest.skip("half precision on torch")
    new = home.logits(realistic((5, 4321))).float()
    check_kl(home, home.logits(realistic((5, 4321), seed=3)), new)
    assert kl_exact(home.logits(np.zeros((1, 8))), home.logits(np.zeros((1, 8))).double()).dtype == torch.float64


def test_no_positions_give_empty_results(home: Home):
    """An empty batch gives empty results."""
    for shape in [(0, 7), (2, 0, 7), (0, 1)]:
        logits = home.logits(np.zeros(shape))
        log_probs, entropy = log_prob_and_entropy(logits, home.integers(np.zeros(shape[:-1])))
        mask = home.booleans(np.zeros(shape[:-1]))
        assert tuple(log_probs.shape) == tuple(entropy.shape) == shape[:-1]
        assert tuple(kl_exact(logits, logits, mask=mask).shape) == shape[:-1]


def test_one_token_needs_no_leading_dimension(home: Home):
    """Logits of shape (V,) give results of shape ()."""
    logits = home.logits(realistic((300,)))
    check(home, logits, home.integers(17))
    check_kl(home, home.logits(realistic((300,), seed=2)), logits)
    off = log_prob_and_entropy(logits, home.integers(17), mask=home.booleans(False))
    assert [wide(result).item() for result in off] == [0.0, 0.0]


def views(logits: Any) -> dict[str, Any]:
    """Return views of a (4, 6, 2, V) array that no single row stride describes."""
    swapped = logits.swapaxes(0, 1)
    return {
        "shifted": logits[:, :-1, 0],
        "every other": logits[::2, ::3, 1],
        "swapped": swapped,
        "part of the vocabulary": logits[1:3, 2, :, 3:-5],
        "one row": logits[2:3, 4:5, 1:],
        "repeated": logits[:, :1].repeat(3, 1) if isinstance(logits, np.ndarray) else logits[:, :1].expand(4, 3, 2, -1),
    }


def test_leading_dimensions_may_have_any_strides(home: Home):
    """A view is read without a copy and gives the results of its copy, also with views of actions and masks."""
    for name in ["shifted", "every other", "swapped", "part of the vocabulary", "one row", "repeated"]:
        view = views(home.logits(realistic((4, 6, 2, 130))))[name]
        old = views(home.logits(realistic((4, 6, 2, 130), seed=4)))[name]
        actions = home.integers(np.repeat(some_actions(tuple(view.shape))[..., None], 2, -1))[..., 0]
        check(home, view, actions)
        check_kl(home, old, view)
        check_kl(home, home.logits(wide(old)), view)
        mask = home.booleans(np.arange(actions.shape[0]) > 0).reshape(-1, *[1] * (actions.ndim - 1))
        mask = np.broadcast_to(mask, actions.shape) if home.library == "numpy" else mask.expand(actions.shape)
        _, entropy = log_prob_and_entropy(view, actions, mask=mask)
        np.testing.assert_allclose(
            wide(entropy), np.where(wide(mask) > 0, reference(view, actions)[1], 0.0), rtol=0, atol=home.tolerance
        )


def test_positions_do_not_depend_on_their_chunk(home: Home, monkeypatch: pytest.MonkeyPatch):
    """Chunks of a few positions give the results of all at once."""
    logits, actions = home.logits(realistic((3, 7, 90))), home.integers(some_actions((3, 7, 90)))
    mask = home.booleans(np.arange(21).reshape(3, 7) % 4 > 0)
    whole = *log_prob_and_entropy(logits, actions, mask=mask), kl_exact(logits * 0.5, logits, mask=mask)
    monkeypatch.setattr(module, "HOST_ENTRIES", 200)
    monkeypatch.setattr(module, "DEVICE_ENTRIES", 200)
    parts = *log_prob_and_entropy(logits, actions, mask=mask), kl_exact(logits * 0.5, logits, mask=mask)
    for part, result in zip(parts, whole, strict=True):
        np.testing.assert_allclose(wide(part), wide(result), rtol=0, atol=home.tolerance)


def test_results_are_wide_enough_and_carry_no_gradient(home: Home):
    """float64 for arrays and float64 tensors, float32 for other tensors, on the device of the logits."""
    logits = home.logits(realistic((2, 40)))
    if home.library != "numpy":
        logits.requires_grad_()
    results = *log_prob_and_entropy(logits, home.integers([1, 2])), kl_exact(logits, logits)
    for result in results:
        if home.library == "numpy":
            assert isinstance(result, np.ndarray)
            assert result.dtype == np.float64
        else:
            assert result.dtype == (torch.float64 if home.dtype == "float64" else torch.float32)
            assert result.device == logits.device
            assert not result.requires_grad


finite = st.floats(-50.0, 50.0, width=16)
rows = st.integers(1, 12).flatmap(
    lambda width: st.lists(st.lists(finite | st.just(-INF), min_size=width, max_size=width), min_size=2, max_size=6)
)


@settings(deadline=None, max_examples=60)
@given(rows=rows, temperature=st.floats(0.25, 4.0), data=st.data())
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_small_random_logits(library: str, dtype: str, rows: list[list[float]], temperature: float, data: Any):
    """Any finite logits with any unreachable tokens give the values of the reference."""
    values = np.array(rows)
    values[np.isneginf(values).all(-1), 0] = 1.0
    home = Home(library, "cpu", "float64" if (library, dtype) == ("numpy", "bfloat16") else dtype)
    logits = home.logits(values)
    choice = st.integers(0, values.shape[-1] - 1)
    actions = home.integers(data.draw(st.lists(choice, min_size=len(rows), max_size=len(rows))))
    with np.errstate(all="ignore"):
        check(home, logits, actions, temperature)
        expected = reference_kl(logits[:-1], logits[1:], temperature)
    divergence = wide(kl_exact(logits[:-1], logits[1:], temperature))
    np.testing.assert_allclose(divergence, expected, rtol=1e-6, atol=home.tolerance * 4)


@pytest.mark.parametrize("temperature", [0.0, -1.0, NAN, INF])
def test_a_temperature_that_is_no_positive_number_is_refused(temperature: float):
    """A temperature has to be finite and above zero."""
    with pytest.raises(ValueError, match="temperature: expected a positive number, got"):
        log_prob_and_entropy(np.zeros((1, 2)), np.zeros(1, int), temperature)
    with pytest.raises(ValueError, match="temperature: expected a positive number, got"):
        kl_exact(np.zeros((1, 2)), np.zeros((1, 2)), temperature)


Z, A = np.zeros((2, 3)), np.zeros(2, int)
TZ, TA = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)
WRONG: list[tuple[tuple[Any, ...], type[Exception], str]] = [
    (([0.0, 1.0], 0), TypeError, "logits: expected a NumPy array or a torch tensor, got list"),
    ((Z.astype(int), A), TypeError, "logits: expected float64, float32, bfloat16 or float16, got int64"),
    ((TZ.to(torch.complex64), TA), TypeError, "got complex64"),
    ((Z[:, :0], A), ValueError, r"logits: expected the shape \(..., V\) with V of at least 1, got \(2, 0\)"),
    ((np.asarray(1.0), A), ValueError, r"got \(\)"),
    ((np.zeros((3, 2)).T, A), ValueError, "logits: expected a contiguous last dimension, got stride 2"),
    ((torch.zeros(3, 2).T, TA), ValueError, "logits: expected a contiguous last dimension, got stride 2"),
    ((Z, A[:1]), ValueError, r"actions: expected one for each position of a NumPy array of shape \(2, 3\), got a"),
    ((TZ, A), ValueError, r"of a tensor on cpu of shape \(2, 3\), got a NumPy array of shape \(2,\)"),
    ((TZ, [0, 0]), ValueError, "got list"),
    ((Z, A * 1.0), TypeError, "actions: expected integers, got float64"),
    ((Z, A, 1.0, A), TypeError, "mask: expected booleans, got int64"),
    ((TZ, TA, 1.0, TA[:1] > 0), ValueError, "mask: expected one for each position"),
]


def test_wrong_arguments_say_what_was_expected_and_what_came():
    """An error has the argument, the expected value and the given one."""
    for arguments, kind, text in WRONG:
        with pytest.raises(kind, match=text):
            log_prob_and_entropy(*arguments)


def test_two_sets_of_logits_have_one_shape_and_one_home():
    """The KL compares position by position."""
    with pytest.raises(
        ValueError, match=r"logits: expected a NumPy array of shape \(2, 3\), as old_logits is, got a Nu"
    ):
        kl_exact(Z, np.zeros((2, 4)))
    with pytest.raises(ValueError, match="got a tensor on cpu"):
        kl_exact(Z, TZ)


def test_arrays_take_actions_and_masks_as_lists():
    """With NumPy logits, actions and masks are anything that NumPy converts to an array."""
    log_probs, _ = log_prob_and_entropy(np.zeros((2, 4), np.float32), [1, 2], mask=[True, False])
    np.testing.assert_allclose(log_probs, [-math.log(4), 0.0], atol=1e-15)


def test_numpy_holds_no_second_copy_of_the_logits():
    """Extra memory is that of a few positions, for any number of positions."""
    logits = np.random.default_rng(0).normal(size=(400, 20_000)).astype(np.float32)
    actions = np.zeros(400, int)
    tracemalloc.start()
    log_prob_and_entropy(logits, actions)
    kl_exact(logits, logits)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < logits.nbytes / 2


def test_the_module_loads_neither_torch_nor_triton():
    """Importing the functions, and using them on arrays, needs NumPy alone."""
    code = (
        "import sys, numpy as np; from barograph.metrics.formulas.logits import kl_exact;"
        "kl_exact(np.eye(2), np.eye(2));"
        "print(sorted({'torch', 'triton'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_the_device_is_never_waited_for(home: Home):
    """On CUDA nothing synchronises, with and without a mask, for any strides."""
    if home.device != "cuda":
        pytest.skip("host arrays have nothing to wait for")
    logits = home.logits(realistic((3, 4, 2, 500)))
    actions, mask = home.integers(some_actions((3, 4, 2, 500))), home.booleans(np.arange(24).reshape(3, 4, 2) % 3 > 0)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for part in (np.s_[:], np.s_[:, 1:], np.s_[0, 1:]):
            log_prob_and_entropy(logits[part], actions[part])
            log_prob_and_entropy(logits[part], actions[part], 0.7, mask[part])
            kl_exact(logits[part], logits[part], mask=mask[part])
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_kernels_hold_nothing_but_their_results(home: Home):
    """With Triton the only extra memory on the device is that of the results, for any vocabulary."""
    if home.library != "triton" or not CUDA:
        pytest.skip("about the kernels on a device")
    logits = torch.randn(64, 100_000, device="cuda").to(getattr(torch, home.dtype))
    actions = torch.zeros(64, dtype=torch.int64, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    log_prob_and_entropy(logits, actions)
    kl_exact(logits, logits)
    assert torch.cuda.max_memory_allocated() - before <= 3 * 512
