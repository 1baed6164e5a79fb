"""One harness for every measured metric: equal to an independent reference, for any split of the batch."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from reference import reference

import barograph
from barograph.catalogue.registry import REGISTRY, vocabulary_name
from barograph.catalogue.spec import INPUTS, inputs
from barograph.metrics.batch.arrays import FIELDS, SEQUENCE_FIELDS, TOKEN_FIELDS, VOCABULARY_FIELDS, Batch
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.quantities import QUANTITIES
from barograph.metrics.batch.step import Measurement, measure
from barograph.metrics.batch.values import DERIVED

LOSSES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-sum-norm")
OPTIONS = {
    "clip": (0.2, 0.28), "dual_clip": 3.0, "value_clip": 0.3, "reward_clip": 1.0, "kl_coef": 0.05, "kl_loss_coef": 0.01,
    "entropy_coef": 0.02, "loss_norm": 7.0, "loss_batch": 4, "max_response_length": 6, "max_prompt_length": 4,
    "truncate": 1.05,
    "reject": ("token", 0.94, 1.05),
}  # fmt: skip
SETTINGS_ONLY = {"reward/kl_coef", "policy/kl_loss_coef", "policy/entropy_coef"}


def make(rows: int, width: int, seed: int, packed_keep: bool = False) -> dict:
    """Return padded data with ragged masks, some of them empty, and every field."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, width + 1, rows)
    mask = np.arange(width) < lengths[:, None]
    mask &= random.random((rows, width)) < 0.9  # holes, like observations between turns
    old = -random.exponential(1.0, (rows, width))
    data = {
        "response_mask": mask,
        "log_probs": old + random.normal(0, 0.3, (rows, width)),
        "old_log_probs": old,
        "ref_log_probs": old + random.normal(0, 0.2, (rows, width)),
        "rollout_log_probs": old + random.normal(0, 0.05, (rows, width)),
        "entropy": random.exponential(1.0, (rows, width)),
        "old_entropy": random.exponential(1.0, (rows, width)),
        "actions": random.integers(0, 5, (rows, width)),
        "scores": random.choice([0.0, 1.0, 0.5], rows),
        "unclipped_rewards": random.normal(0, 1, rows),
        "finished": random.random(rows) < 0.7,
        "prompt_lengths": random.integers(1, 6, rows),
        "groups": np.arange(rows) // 3,
        "episodes": np.arange(rows) // 2,
        "weights": random.random(rows) + 0.5,
        "keep": random.random((rows, width)) < 0.9 if packed_keep else random.random(rows) < 0.8,
        "eos_ids": [3, 4],
    }
    for name in ("exact_kl", "exact_ref_kl"):
        data[name] = random.exponential(0.01, (rows, width))
    data["highest_logits"], data["lowest_logits"] = (
        random.normal(30, 3, (rows, width)),
        random.normal(-20, 3, (rows, width)),
    )
    for name in ("advantages", "raw_advantages", "returns", "values", "old_values", "rewards"):
        data[name] = random.normal(0, 1, (rows, width))
    data["advantages"][random.random((rows, width)) < 0.2] = 0.0
    return data


def plain(data: dict) -> dict:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in data.items()}


def by_id(measured: dict, vocabulary: str = "roll") -> dict:
    names = {vocabulary_name(metric, vocabulary).pattern: metric.id for metric in REGISTRY.metrics()}
    return {names[name]: value for name, value in measured.items() if not name.startswith("barograph/nonfinite")}


def assert_agree(got: dict, expected: dict, rtol: float = 1e-9, atol: float = 1e-9) -> None:
    assert set(got) - SETTINGS_ONLY == {id for id, value in expected.items() if value is not None}
    for id, value in expected.items():
        if value is not None:
            assert got[id] == pytest.approx(value, rel=rtol, abs=atol, nan_ok=True), id


def test_the_reference_has_every_measured_metric():
    """No metric is left out of the harness."""
    measured = {id for quantity in QUANTITIES for id in quantity.metrics} | set(DERIVED)
    data, expected = plain(make(12, 8, 0)), {}
    for level in ("token", "sequence"):
        expected |= reference(data, {**OPTIONS, "loss": "token-mean", "level": level})
    assert measured - SETTINGS_ONLY == set(expected)


def test_the_catalogue_has_the_part_and_the_needs_of_every_quantity():
    """The catalogue's part, state and needs of a metric agree with its quantity."""
    for quantity in QUANTITIES:
        for id in quantity.metrics:
            metric = REGISTRY.metric(id)
            declared = {name for need in metric.needs for name in inputs(need)}
            assert metric.part == quantity.part, id
            assert metric.state != "none", id
            assert {need.name for need in quantity.needs if need.when is None} <= declared, id


def test_the_catalogue_accepts_exactly_the_arrays_options_and_counts_that_exist():
    """A metric can need a field of Batch, an option of measure or a count of ``run.count``; none needs ids."""
    counts = {"tokens", "samples", "devices", "flops"}
    assert set(INPUTS) == {*FIELDS, *Options.__dataclass_fields__, *counts} - {"ids"}


def test_the_documentation_has_every_array_and_option():
    """docs/measuring.md lists the arrays by their axes, and the options."""
    text = (Path(__file__).parents[3] / "docs/measuring.md").read_text()
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    listed = {"tokens": TOKEN_FIELDS, "sequences": SEQUENCE_FIELDS, "tokens × vocabulary": VOCABULARY_FIELDS}
    for axes, names in listed.items():
        assert re.findall(r"`(\w+)`", rows[axes]) == list(names)
    assert all(f"`{name}`" in text for name in (*FIELDS, *Options.__dataclass_fields__))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 7), st.integers(1, 9), st.integers(0, 2**32 - 1), st.sampled_from(LOSSES), st.booleans())
def test_every_metric_equals_the_reference(rows: int, width: int, seed: int, loss: str, token_keep: bool):
    """Random shapes, masks with holes, empty sequences, empty batches, all reductions."""
    data = make(rows, width, seed, token_keep)
    options = {**OPTIONS, "loss": loss}
    assert_agree(by_id(measure(Batch(**data), **options)), reference(plain(data), options))


LEVELS = [
    {"level": "sequence", "loss": "token-mean"},
    {"level": "sequence", "dual_clip": None, "clip": (0.05, 0.02)},
    {"level": "sequence", "dual_clip": 1.05, "clip": None, "loss": "seq-mean-token-sum"},
    {"level": "sequence", "dual_clip": 1.04, "clip": 0.03, "loss": "seq-mean-token-sum-norm"},
    {"truncate": ("token", 1.02), "reject": ("geometric", 0.98, 1.02)},
    {"truncate": ("sequence", 1.1), "reject": ("sequence", 0.9, 1.1)},
    {"truncate": ("sequence", 1.0), "reject": ("token", 1.0, math.inf)},
    {"truncate": None, "reject": ("sequence", 0.0, 1.0)},
    {"truncate": 100.0, "reject": None},
]


@pytest.mark.parametrize("levels", LEVELS, ids=str)
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 7), st.integers(1, 9), st.integers(0, 2**32 - 1), st.booleans())
def test_options_of_tokens_and_of_sequences_equal_the_reference(
    levels: dict, rows: int, width: int, seed: int, token_keep: bool
):
    """The ratio of tokens and of sequences; truncation and rejection by token, sequence and mean, and neither."""
    data = make(rows, width, seed, token_keep)
    options = {**OPTIONS, **levels}
    assert_agree(by_id(measure(Batch(**data), **options)), reference(plain(data), options))


@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_any_split_gives_the_values_of_the_batch_at_every_level(levels: dict):
    """States of sequences merge as those of tokens do."""
    data = make(18, 7, 31)
    options = Options.from_keywords({**OPTIONS, **levels})
    merged = Measurement()
    for rank in range(3):
        part = Measurement(rank)
        part.add(Batch(**data).take(slice(6 * rank, 6 * rank + 6)), options=options)
        merged.merge(part)
    expected = reference(plain(data), {**OPTIONS, **levels})
    assert_agree(by_id(merged.finish("roll")), expected)


@pytest.mark.parametrize("leave_out", ["none of them", *TOKEN_FIELDS[1:], *SEQUENCE_FIELDS, "keep", "eos_ids"])
def test_a_metric_without_an_input_is_missing_with_the_reason(leave_out: str):
    """Each field is left out in turn: the metrics that do not need it are unchanged, the others have a reason."""
    data = make(6, 7, 1)
    data.pop(leave_out, None)
    measured = measure(Batch(**data), **OPTIONS)
    assert_agree(by_id(measured), reference(plain(data), OPTIONS))
    assert all(measured.missing.values())
    if leave_out in ("advantages", "old_log_probs", "scores"):
        assert any(leave_out in reason for reason in measured.missing.values())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from(LOSSES))
def test_any_split_into_micro_batches_and_ranks_gives_the_values_of_the_batch(seed: int, parts: int, loss: str):
    """No mean of means is computed; groups and episodes are not split."""
    data = make(18, 7, seed)
    options = Options.from_keywords({**OPTIONS, "loss": loss})
    whole = Batch(**data)
    cuts = [0, *sorted(np.random.default_rng(seed).choice([6, 12], parts - 1)), 18]
    merged = Measurement()
    for rank, (a, b) in enumerate(itertools.pairwise(cuts)):
        part = Measurement(rank)
        part.add(whole.take(slice(a, b)), options=options)
        merged.merge(part)
    assert_agree(by_id(merged.finish("roll")), reference(plain(data), {**OPTIONS, "loss": loss}))


FORMS = pytest.mark.parametrize("form", ["padded", "packed"])
ALL_LEVELS = pytest.mark.parametrize("levels", [{}, *LEVELS], ids=str)


def packed(data: dict, lengths: np.ndarray) -> dict:
    """Return padded data as a stream with the first tokens of each sequence, so many as its length says."""
    inside = np.arange(data["response_mask"].shape[1]) < lengths[:, None]
    names = [name for name in (*TOKEN_FIELDS, *VOCABULARY_FIELDS, "keep") if name in data and data[name].ndim > 1]
    tokens = {name: data[name][inside] for name in names}
    return {**data, **tokens, "cu_seqlens": np.concatenate([[0], np.cumsum(lengths)])}


@FORMS
@ALL_LEVELS
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -1e30])
def test_garbage_under_the_mask_changes_nothing(garbage: float, levels: dict, form: str):
    """NaN, infinities and huge numbers in padding and in holes are never used, in padding of any width."""
    data, options = make(9, 8, 2), {**OPTIONS, **levels}
    expected = reference(plain(data), options)
    for name in TOKEN_FIELDS[1:]:
        value = data[name].astype(float)
        value[~data["response_mask"]] = garbage
        data[name] = np.pad(value, ((0, 0), (0, 5)), constant_values=garbage)
    data["response_mask"] = np.pad(data["response_mask"], ((0, 0), (0, 5)))
    measured = measure(Batch(**(packed(data, np.full(9, 13)) if form == "packed" else data)), **options)
    assert_agree(by_id(measured), expected)
    assert not [name for name in measured if name.startswith("barograph/nonfinite")]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 8), st.integers(0, 2**32 - 1), st.booleans())
@example(3, 2622087, False)
def test_packed_and_padded_are_the_same(rows: int, seed: int, token_keep: bool):
    """A stream of tokens with boundaries gives the values of the padded matrix."""
    data, lengths = ragged(rows, seed, token_keep)
    stream = Batch(**packed(data, lengths))
    assert measure(stream, **OPTIONS) == pytest.approx(dict(measure(Batch(**data), **OPTIONS)), rel=1e-12)


@pytest.mark.parametrize("levels", LEVELS, ids=str)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 8), st.integers(0, 2**32 - 1), st.booleans())
def test_packed_batches_equal_the_reference_at_every_level(levels: dict, rows: int, seed: int, token_keep: bool):
    """Ratios, truncation and rejection of the sequences of a stream, some of them without a token."""
    data, lengths = ragged(rows, seed, token_keep)
    options = {**OPTIONS, **levels}
    assert_agree(by_id(measure(Batch(**packed(data, lengths)), **options)), reference(plain(data), options))


def ragged(rows: int, seed: int, token_keep: bool) -> tuple[dict, np.ndarray]:
    """Return padded data, and the lengths of its sequences, after which the mask is empty."""
    data = make(rows, 6, seed, token_keep)
    lengths = np.random.default_rng(seed).integers(0, 7, rows) if rows else np.zeros(0, int)
    assume(not token_keep or lengths.sum() != rows)  # with as many tokens as sequences, keep is read as per sequence
    data["response_mask"] &= np.arange(6) < lengths[:, None]
    return data, lengths


@FORMS
@ALL_LEVELS
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 1e-12)])
def test_torch_and_numpy_agree_for_every_dtype(dtype: torch.dtype, rtol: float, levels: dict, form: str):
    """The values of half precision are those of the rounded inputs, computed in double precision."""
    data, options = make(9, 8, 7, form == "packed"), {**OPTIONS, **levels}
    for name, value in data.items():
        if isinstance(value, np.ndarray) and value.dtype == np.float64:
            data[name] = torch.tensor(value).to(dtype).double().numpy()
    given = packed(data, np.full(9, 8)) if form == "packed" else data
    tensors = {
        name: as_tensor(value, dtype) if isinstance(value, np.ndarray) else value for name, value in given.items()
    }
    got = measure(Batch(**tensors), **options)
    assert got == pytest.approx(dict(measure(Batch(**given), **options)), rel=rtol)
    assert_agree(by_id(got), reference(plain(data), options), rtol=max(rtol, 1e-9))


def as_tensor(value: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of an array; numbers have the dtype and need gradients."""
    tensor = torch.tensor(value)
    return tensor.to(dtype).requires_grad_() if tensor.is_floating_point() else tensor


def test_a_nan_is_counted_and_affects_only_metrics_of_its_array():
    """Metrics that are computed from the value are NaN, with a count; all others are unchanged."""
    data = make(6, 8, 4)
    clean = measure(Batch(**data), **OPTIONS)
    row, column = np.argwhere(data["response_mask"] & data["keep"][:, None])[0]
    data["advantages"][row, column] = math.nan
    sick = measure(Batch(**data), **OPTIONS)
    assert math.isnan(sick["critic/advantages/mean"])
    assert math.isnan(sick["critic/advantages/max"])
    assert sick["barograph/nonfinite/critic/advantages/mean"] == 1
    assert math.isnan(sick["actor/pg_loss"])
    for name in ("critic/returns/mean", "actor/ratio_mean", "critic/loss", "actor/approxkl"):
        assert sick[name] == clean[name]
        assert f"barograph/nonfinite/{name}" not in sick


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 12, 16])
def test_solve_rates_fall_into_the_bins_of_their_bounds(size: int):
    """Rates of groups of any size, up to both ends: 0 and 1 are bins of their own, bounds belong to the lower bin."""
    scores = np.concatenate([np.arange(size) < right for right in range(size + 1)]).astype(float)
    data = {"response_mask": np.ones((len(scores), 1)), "scores": scores, "groups": np.arange(len(scores)) // size}
    assert_agree(by_id(measure(Batch(**data))), reference(plain(data), {}))


def test_the_histogram_of_solve_rates_takes_any_labels_and_right_score():
    """Groups are labelled by text, None belongs to none, and the six shares add up to 1."""
    measured = by_id(measure(
        Batch(response_mask=np.ones((7, 1)), scores=[0.2, 0.9, 0.1, 0.1, 0.9, 0.8, 5.0], groups=[*"aabbcc", None]),
        right_score=0.5,
    ))  # fmt: skip
    shares = {id.rsplit("/", 1)[1]: value for id, value in measured.items() if "solve_rate" in id}
    assert shares == pytest.approx({"0": 1 / 3, "0_25": 0, "25_50": 1 / 3, "50_75": 0, "75_100": 0, "100": 1 / 3})
    assert measured["reward/groups/std"] == pytest.approx((0.35 + 0.0 + 0.05) / 3)


def test_an_empty_mask_is_missing_and_never_zero():
    """Token metrics of a batch without a valid token are missing with that reason; counts are 0."""
    data = make(4, 5, 5)
    data["response_mask"][:] = False
    measured = measure(Batch(**data), **OPTIONS)
    assert measured.missing["actor/ratio_mean"] == "no valid token"
    assert measured.missing["critic/advantages/max"] == "no valid token"
    assert "actor/pg_loss" in measured.missing
    assert (measured["actor/valid_samples"], measured["actor/total_samples"]) == (0.0, 4.0)
    assert measured["tokens/response_length/mean"] == 0.0


def test_huge_log_ratios_overflow_to_infinity_and_are_counted():
    """exp(1000) is infinite, not an exception and not a clamp."""
    measured = measure(Batch(response_mask=[[1, 1]], log_probs=[[0.0, -1.0]], old_log_probs=[[-1000.0, -1.0]]))
    assert measured["actor/ratio_max"] == math.inf
    assert measured["barograph/nonfinite/actor/ratio_max"] == 1
    assert measured["actor/ratio_min"] == 1.0


def test_sums_over_very_many_tokens_stay_right():
    """A million equal float32 values of 0.1 have the mean of that float32, to the last digits."""
    tenth = np.full((100, 10_000), 0.1, np.float32)
    measured = measure(Batch(response_mask=np.ones_like(tenth, bool), advantages=tenth))
    assert measured["critic/advantages/mean"] == pytest.approx(float(np.float32(0.1)), rel=1e-12)


def test_clip_fraction_without_value_clip_is_missing():
    """It is not the mean squared error, which ROLL logs under this name."""
    data = make(5, 6, 6)
    measured = measure(Batch(**data))
    assert measured.missing["critic/clipfrac"] == "value_clip is not set"
    assert "critic/loss" in measured


def test_a_value_clip_without_old_values_is_missing():
    """The configured loss cannot be computed, so there is no value."""
    data = make(5, 6, 6)
    data.pop("old_values")
    assert "old_values" in measure(Batch(**data), value_clip=0.2).missing["critic/loss"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"response_mask": None}, "a batch needs response_mask"),
        ({"response_mask": [1, 1]}, r"response_mask: expected padded: \(sequences, width\), got shape \(2,\)"),
        ({"advantages": [[1.0]]}, r"advantages: expected shape \(1, 2\) like response_mask, got \(1, 1\)"),
        ({"scores": [1.0, 2.0]}, r"scores: expected shape \(1,\) like response_mask, got \(2,\)"),
        ({"keep": [[1]]}, r"keep: expected \(1, 2\) or \(1,\), got shape \(1, 1\)"),
        ({"logits": np.zeros((1, 3, 9))}, "logits: expected .*vocabulary.*, got shape"),
        ({"advantages": np.ones((1, 2), complex)}, "advantages: expected real numbers, got complex128"),
        ({"values": torch.ones(1, 2, device="meta")}, "values is on meta, response_mask on the host: move one"),
        ({"cu_seqlens": [0, 2]}, r"response_mask: expected packed \(cu_seqlens is given\)"),
        ({"cu_seqlens": [0, 5], "response_mask": [1, 1]}, "cu_seqlens: expected ascending boundaries from 0 to 2, got"),
    ],
)
def test_arrays_of_a_wrong_shape_are_rejected_with_the_reason(wrong: dict, message: str):
    """Shapes are checked when the batch is created, not when it is measured."""
    with pytest.raises(barograph.BarographError, match=message):
        Batch(**{"response_mask": [[1, 1]], **wrong})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clp": 0.2}, "unknown option 'clp'; it takes clip"),
        ({"clip": (0.2,)}, "clip: expected a number or"),
        ({"clip": -1}, "clip: expected a number or"),
        ({"loss": "mean"}, "loss: expected one of token-mean"),
        ({"dual_clip": 0.5}, "dual_clip: expected a bound above 1"),
        ({"loss": "seq-mean-token-sum-norm"}, "needs loss_norm, its divisor"),
        ({"loss": "token-sum-norm"}, "loss token-sum-norm needs loss_norm, its divisor"),
        ({"loss": "token-sum-norm", "loss_norm": 8}, "needs loss_batch, the number of sequences that an update sums"),
        ({"level": "batch"}, "level: expected one of token, sequence, got 'batch'"),
        ({"truncate": 0.5}, r"truncate: expected a cap of 1 or more, or \(level, cap\) .*, got 0.5"),
        ({"truncate": ("geometric", 2.0)}, "truncate: expected a cap .* level of token or sequence, got"),
        ({"truncate": ("token", math.inf)}, "truncate: expected a cap"),
        ({"truncate": True}, "truncate: expected a cap"),
        ({"reject": 2.0}, r"reject: expected \(level, low, high\) with a level of token, sequence, geometric and"),
        ({"reject": ("token", 1.2, 2.0)}, "0 <= low <= 1 <= high, got"),
        ({"reject": ("group", 0.5, 2.0)}, "reject: expected"),
        ({"reject": ("token", 0.5, math.nan)}, "reject: expected"),
        ({"part": "actor"}, "part: expected one of data, policy, value, got 'actor'"),
    ],
)
def test_wrong_options_are_rejected(options: dict, message: str):
    """An error has the option, the accepted values and the given value."""
    with pytest.raises(barograph.SettingsError, match=message):
        measure(Batch(response_mask=[[1]]), **options)
