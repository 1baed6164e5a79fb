"""The sequences whose tokens are kept: chosen as plain loops do it, whichever way the batch comes."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from token_reference import chosen, kept_tokens, rows_of

from barograph.base.model import MeasuredTokens
from barograph.metrics.batch.arrays import Batch, BatchError
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.step import Measurement
from barograph.metrics.batch.token_rows import MAX_SETS, Request
from barograph.metrics.gpu import passes

ASKED = (5, 7)


def arrays(sequences: int = 12, width: int = 20, seed: int = 0) -> dict:
    """Return the arrays of a padded batch, with empty sequences and ids."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, width + 1, (sequences, 1))
    old = -draw.exponential(0.5, (sequences, width)).astype(np.float32)

    def near(scale: float) -> np.ndarray:
        return (old + draw.normal(0, scale, old.shape)).astype(np.float32)

    return {
        "response_mask": np.arange(width) < lengths,
        "old_log_probs": old,
        "ref_log_probs": near(0.1),
        "rollout_log_probs": near(0.02),
        "old_entropy": draw.random(old.shape).astype(np.float32),
        "advantages": draw.normal(0, 1, old.shape).astype(np.float32),
        "actions": draw.integers(0, 99, old.shape),
        "ids": [f"s{n}" for n in range(sequences)],
    }


def packed(data: dict) -> dict:
    """Return a padded batch as a packed one, in which a sequence ends with a token that is masked."""
    lengths = data["response_mask"].sum(1) + 1
    parts = np.arange(data["response_mask"].shape[1] + 1) < lengths[:, None]
    found = {
        name: np.pad(array, ((0, 0), (0, 1)))[parts] if np.ndim(array) == 2 else array for name, array in data.items()
    }
    return {**found, "cu_seqlens": np.concatenate([[0], np.cumsum(lengths)])}


def taken(batch: dict, request: Request = ASKED, **options) -> list[MeasuredTokens]:
    """Return the tokens that a measurement of the data part keeps."""
    measurement = Measurement()
    measurement.add(Batch(**batch), ("data",), Options(**options), request)
    return kept_tokens(measurement)


def as_torch(data: dict) -> dict:
    return {name: torch.tensor(array) if isinstance(array, np.ndarray) else array for name, array in data.items()}


@pytest.mark.parametrize("layout", ["numpy", "torch", "packed", "kept", "lists"])
@pytest.mark.parametrize("seed", range(3))
def test_the_choice_is_that_of_plain_loops_and_has_the_arrays_of_the_batch(layout: str, seed: int):
    """One sequence for each criterion, none twice, with the values that the trainer has."""
    data = arrays(seed=seed)
    if layout == "packed":
        data = packed(data)
    if layout == "kept":
        data["keep"] = np.arange(12) % 3 > 0
    convert = {"torch": as_torch, "lists": lambda d: {n: np.asarray(a).tolist() for n, a in d.items()}}
    rows = taken(convert.get(layout, dict)(data))
    expected = chosen(data, 12, 5)
    assert {int(row.id[1:]): row.reason for row in rows} == expected
    for row in rows:
        place = rows_of(data, int(row.id[1:]))
        assert (row.response == data["response_mask"][place]).all()
        assert (row.actions == data["actions"][place]).all()
        for name in ("old_log_probs", "ref_log_probs", "rollout_log_probs", "advantages"):
            assert (row.arrays[name] == data[name][place]).all()
        assert (row.arrays["entropy"] == data["old_entropy"][place]).all()


def test_the_first_of_equal_sequences_is_chosen_and_one_that_is_not_finite_before_all():
    """Ties have one answer, and NaN is the most extreme of all."""
    data = arrays()
    data["response_mask"][:] = True
    for name in ("old_log_probs", "ref_log_probs", "rollout_log_probs", "old_entropy", "advantages"):
        data[name] = np.zeros_like(data[name])
    assert [row.id for row in taken(data)] == ["s0", "s1", "s2", "s3", "s4"]
    data["rollout_log_probs"][7, 3] = np.nan
    data["old_entropy"][5, 1] = -np.inf
    assert [row.id for row in taken(data)] == ["s7", "s0", "s5", "s1", "s2"]


@pytest.mark.parametrize("convert", [dict, as_torch])
def test_what_is_only_rounding_is_no_reason(convert: Callable[[dict], dict]):
    """Also of a choice from several batches; the entropy has a highest and a lowest one in any case."""
    data = arrays()
    data["response_mask"][:] = True
    for name in ("ref_log_probs", "rollout_log_probs"):
        data[name] = data["old_log_probs"] + np.float32(1e-6)
    data["advantages"] = np.zeros_like(data["advantages"])
    expected = ["any", "any", "highest entropy", "lowest entropy", "any"]
    assert [row.reason for row in taken(convert(data))] == expected
    assert [row.reason for row in taken(convert(data), **cut(2.0))] == [*expected[:1], *expected[:4]]
    measurement = Measurement()
    for rows in (slice(0, 6), slice(6, 12)):
        part = {name: array[rows] for name, array in convert(data).items()}
        measurement.add(Batch(**part), ("data",), tokens=ASKED)
    assert sorted(row.reason for row in kept_tokens(measurement)) == sorted(expected)
    data["rollout_log_probs"][8, 3] += np.float32(1e-3)
    data["ref_log_probs"][4, 0] -= np.float32(1e-2)
    reasons = {row.id: row.reason for row in taken(convert(data))}
    assert (reasons["s8"], reasons["s4"]) == ("mismatch", "kl")


def test_the_random_one_follows_from_the_seed_and_further_ones_are_random_too():
    """A run is chosen from in the same way again, and another step in another way."""
    data = {name: array for name, array in arrays(64).items() if name in ("response_mask", "actions", "ids")}
    data["response_mask"] = np.ones_like(data["response_mask"])

    def ids(count: int, seed: int) -> list[str]:
        rows = taken(data, (count, seed))
        assert {row.reason for row in rows} == {"random"}
        return [row.id for row in rows]

    assert ids(6, 1) == ids(6, 1)
    assert ids(6, 1)[:3] == ids(3, 1)
    assert len({ids(1, seed)[0] for seed in range(20)}) > 10


def test_clipped_tokens_are_those_of_the_correction_or_of_the_policys_band():
    """The data part knows what the off-policy correction cuts, and all parts together what the loss clips."""
    data = arrays()
    data["response_mask"][:] = True
    data["rollout_log_probs"] = data["old_log_probs"] + 0
    data["rollout_log_probs"][9, :6] -= 3.0
    data["rollout_log_probs"][4, 0] -= 4.0
    by_reason = {row.reason: row.id for row in taken(data, **cut(2.0))}
    assert (by_reason["mismatch"], by_reason["clipped"]) == ("s4", "s9")
    now = data["old_log_probs"] + 0
    now[2, :7], data["advantages"][2] = now[2, :7] + 1.0, 1.0
    measurement = Measurement()
    measurement.add(Batch(**data, log_probs=now), tokens=ASKED)
    rows = {row.reason: row for row in kept_tokens(measurement)}
    assert rows["clipped"].id == "s2"
    assert (rows["clipped"].arrays["log_probs"] == now[2]).all()
    assert rows["clipped"].clip == (0.2, 0.2)


def cut(cap: float) -> dict:
    return {"truncate": Options.from_keywords({"truncate": cap}).truncate}


def test_a_choice_from_several_batches_is_that_from_all_of_them():
    """What is the most extreme of a step is so in its own batch."""
    data = arrays(40)
    whole = {row.id: row.reason for row in taken(data, (5, 3))}
    measurement, other = Measurement(), Measurement()
    for n, part in enumerate(Batch(**data).split(5)):
        (other if n == 3 else measurement).add(part, ("data",), tokens=(5, 3))
    measurement.merge(other)
    assert {row.id: row.reason for row in kept_tokens(measurement)} == whole
    assert kept_tokens(measurement) == []


def test_more_batches_of_a_step_than_may_be_chosen_from_are_only_measured():
    """Memory is bounded in a step of many micro-batches."""
    measurement = Measurement()
    for n in range(MAX_SETS + 2):
        measurement.add(Batch(**{**arrays(2, seed=n), "ids": [f"{n}-0", f"{n}-1"]}), ("data",), tokens=(32, 0))
    assert {int(row.id.split("-")[0]) for row in kept_tokens(measurement)} <= set(range(MAX_SETS))


@pytest.mark.parametrize("how", ["split", "having", "taken", "ids", "shuffled ids", "packed"])
def test_micro_batches_complete_the_chosen_sequences(how: str):
    """An update's log-probs and entropies come to the sequences that the data part chose, and to no other."""
    data = arrays()
    now, entropy = data["old_log_probs"] + 0.25, data["old_entropy"] + 1
    whole = Batch(**data, **({"log_probs": now, "entropy": entropy} if how == "split" else {}))
    measurement = Measurement()
    measurement.add(whole, ("data",), tokens=ASKED)
    order = np.random.default_rng(1).permutation(12)
    for rows in (order[:5], order[5:]) if how in ("taken", "shuffled ids") else (slice(0, 5), slice(5, 12)):
        new = {"log_probs": now[rows], "entropy": entropy[rows]}
        if how in ("having", "taken"):
            micro = whole.take(rows).having(**new)
        elif how == "split":
            micro = whole.take(rows)
        else:
            names = ("response_mask", "old_log_probs", "advantages")
            given = {**{name: data[name][rows] for name in names}, **new}
            given["ids"] = [data["ids"][n] for n in np.arange(12)[rows]]
            micro = Batch(**(packed(given) if how == "packed" else given))
        measurement.add(micro, ("policy",), replace(Options(), clip=(0.1, 0.3)))
    rows = kept_tokens(measurement)
    assert len(rows) == 5
    for row in rows:
        place, size = int(row.id[1:]), int(row.response.sum())
        assert row.clip == (0.1, 0.3)
        assert (row.arrays["log_probs"][:size] == now[place][:size]).all()
        assert (row.arrays["entropy"][:size] == entropy[place][:size]).all()
        assert (row.arrays["old_log_probs"] == data["old_log_probs"][place]).all()


@pytest.mark.parametrize("make", [np.array, torch.tensor, tuple])
def test_ids_may_be_any_array_of_names_or_numbers(make):
    """A micro-batch finds its sequences by them."""
    data = {**arrays(), "ids": make(range(100, 112))}
    measurement = Measurement(report=lambda what, error: pytest.fail(f"{what}: {error}"))
    measurement.add(Batch(**data), ("data",), tokens=ASKED)
    names = ("response_mask", "old_log_probs", "ids")
    measurement.add(Batch(log_probs=data["old_log_probs"], **{name: data[name] for name in names}), ("policy",))
    rows = kept_tokens(measurement)
    assert {int(row.id) - 100 for row in rows} == chosen(arrays(), 12, 5).keys()
    assert all("log_probs" in row.arrays for row in rows)


def test_a_batch_of_another_step_or_without_ids_completes_nothing():
    """Only sequences that were chosen in the step are looked for."""
    data = arrays()
    batch = Batch(**data)
    first, second = Measurement(), Measurement()
    first.add(batch, ("data",), tokens=ASKED)
    second.add(batch.having(log_probs=data["old_log_probs"]), ("policy",))
    assert kept_tokens(second) == []
    assert all("log_probs" not in row.arrays for row in kept_tokens(first))


def test_ids_are_one_for_each_sequence():
    """A list of another length is an error, and a part of a batch has the ids of its sequences."""
    data = arrays(4)
    with pytest.raises(BatchError, match="ids: expected a name or an integer for each of 4 sequences"):
        Batch(**{**data, "ids": ["a", "b"]})
    batch = Batch(**data)
    assert batch.split(2)[1].ids == ["s2", "s3"]
    assert batch.take(np.array([3, 0])).ids == ["s3", "s0"]


def test_a_device_without_kernels_stores_no_tokens_and_says_so(monkeypatch: pytest.MonkeyPatch):
    """Its metrics are those of torch."""
    monkeypatch.setattr(passes, "_kernels", lambda kind: None)
    monkeypatch.setattr(passes, "on_device", lambda batch: isinstance(batch.response_mask, torch.Tensor))
    told: list[str] = []
    measurement = Measurement(warn=told.append)
    measurement.add(Batch(**as_torch(arrays())), ("data",), tokens=ASKED)
    assert kept_tokens(measurement) == []
    assert told == ["tokens of measured sequences need Triton on this device: none are stored"]


def test_a_choice_that_fails_on_a_device_is_reported_and_not_tried_again(monkeypatch: pytest.MonkeyPatch):
    """A kernel that does not compile takes long to find that out."""
    tried: list[Request | None] = []

    def launch(*given: object) -> None:
        request = given[5] if len(given) > 5 else None
        tried.append(request)
        if request is not None:
            raise RuntimeError("no compiler")

    monkeypatch.setattr(passes, "unable", [])
    monkeypatch.setattr(passes, "on_device", lambda batch: True)
    monkeypatch.setattr(passes, "_kernels", lambda kind: passes)
    monkeypatch.setattr(passes, "queue_kernel", launch)
    told: list[str] = []
    for _ in range(3):
        measurement = Measurement(report=lambda what, error: told.append(f"{what}: {error}"))
        batch = Batch(**arrays())
        object.__setattr__(batch, "device", torch.device("cuda"))
        measurement.add(batch, ("data",), tokens=ASKED)
    assert tried == [ASKED, None, None, None]  # the metrics do not need the tokens
    assert told == ["tokens: no compiler"] * 3


@pytest.mark.parametrize("wanted", [ASKED, None], ids=["of a choice", "of all kernels"])
def test_a_failure_that_is_remembered_keeps_no_tensors(monkeypatch: pytest.MonkeyPatch, wanted: Request | None):
    """Its traceback has the frames of the calls, with the batch in their variables, and so has its cause."""

    def launch(kernels: object, batch: Batch, *_: object) -> None:
        try:
            raise ValueError(f"{batch.sequences} sequences")
        except ValueError as error:
            raise RuntimeError("no compiler") from error

    for name in ("unable", "_broken"):
        monkeypatch.setattr(passes, name, [])
    monkeypatch.setattr(passes, "on_device", lambda batch: True)
    monkeypatch.setattr(passes, "_kernels", lambda kind: passes)
    monkeypatch.setattr(passes, "queue_kernel", launch)
    given = as_torch(arrays())
    held = weakref.ref(given["old_log_probs"])
    measurement = Measurement(report=lambda what, error: None)
    measurement.add(Batch(**given), ("data",), tokens=wanted)
    assert dict(measurement.finish("roll"))  # torch measures as well
    del given, measurement
    gc.collect()
    assert held() is None
    assert passes._broken
