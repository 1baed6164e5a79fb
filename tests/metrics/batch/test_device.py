"""Batches on an accelerator: the same values as on the host, without waiting before the step ends.

Without a CUDA device the plain torch operations run on CPU tensors, and so do the kernels, in Triton's interpreter.
"""

import gc
import math
import re
import weakref
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from test_harness import FORMS, LEVELS, LOSSES, OPTIONS, make, packed

import barograph
from barograph.metrics.batch.arrays import TOKEN_FIELDS, VOCABULARY_FIELDS, Batch
from barograph.metrics.batch.step import Measurement, measure
from barograph.metrics.formulas import logits as logits_module
from barograph.metrics.gpu import passes, results
from kernels import CUDA, INTERPRETED, NEEDS_KERNELS, interpreted_kernels

FROM_LOGITS = (
    "log_probs", "old_log_probs", "entropy", "old_entropy", "exact_kl", "exact_ref_kl", "highest_logits",
    "lowest_logits",
)  # fmt: skip
PATHS = ["torch", pytest.param("kernel", marks=NEEDS_KERNELS)]


@pytest.fixture(params=PATHS)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the device of the tensors; measuring uses the path under test."""
    if request.param == "torch":
        monkeypatch.setattr(logits_module, "_load_kernels", lambda: None)
    if request.param == "torch" or INTERPRETED:
        kernels = None if request.param == "torch" else interpreted_kernels(monkeypatch)
        monkeypatch.setattr(passes, "_kernels", lambda kind: kernels)
        monkeypatch.setattr(passes, "on_device", lambda batch: isinstance(batch.response_mask, torch.Tensor))
    monkeypatch.setattr(passes, "_broken", [])
    yield "cuda" if CUDA else "cpu"
    assert passes._broken == []


@pytest.fixture
def is_slow(request: pytest.FixtureRequest) -> bool:
    """Return whether the kernels of this test run in the interpreter, which takes long for many blocks of tokens."""
    return INTERPRETED and request.node.callspec.params["place"] == "kernel"


def tensors(data: dict, place: str, dtype: torch.dtype = torch.float32) -> tuple[Batch, Batch]:
    """Return a batch on the device, and the same numbers as a batch on the host."""
    there, here = {}, {}
    for name, value in data.items():
        if not isinstance(value, np.ndarray):
            there[name] = here[name] = value
            continue
        tensor = torch.tensor(value)
        tensor = tensor.to(dtype) if tensor.is_floating_point() else tensor
        there[name] = tensor.to(place)
        here[name] = tensor.double().numpy() if tensor.is_floating_point() else value
    return Batch(**there), Batch(**here)


def assert_same(got: dict, expected: dict, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    assert set(got) == set(expected)
    for name, value in expected.items():
        if re.search(
            r"[/_]p\d+$", name
        ):  # of long sequences the device looks at some tokens: see the tests of quantiles
            assert math.isnan(got[name]) == math.isnan(value), name
        else:
            assert got[name] == pytest.approx(value, rel=rtol, abs=atol, nan_ok=True), name


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("rows", "width", "token_keep"), [(12, 9, False), (7, 40, True), (1, 1, False), (6, 3000, True)]
)
def test_device_and_host_agree_for_every_metric(
    place: str, is_slow: bool, loss: str, rows: int, width: int, token_keep: bool
):
    """All parts, all reductions, ragged masks with holes, sequences longer than a block."""
    if is_slow and loss != LOSSES[0] and rows != 7:
        pytest.skip("the interpreter takes long")
    there, here = tensors(make(rows, width, rows + width, token_keep), place)
    options = {**OPTIONS, "loss": loss}
    assert_same(measure(there, **options), measure(here, **options))
    assert measure(there, **options).missing == measure(here, **options).missing


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ties_at_the_bounds_of_clips_are_decided_as_on_the_host(place: str, dtype: torch.dtype):
    """Ratios that are a few roundings away from a bound, of log-probs of all sizes."""
    random = np.random.default_rng(3)
    old = torch.tensor(-random.exponential(1.0, (3, 4000)), dtype=dtype)
    exact = torch.log(torch.tensor([[0.8], [1.28], [3.0]], dtype=torch.float64))
    current = (old.double() + exact).to(dtype)
    steps = torch.tensor(random.integers(-2, 3, old.shape))
    for _ in range(2):
        moved = torch.nextafter(current, torch.where(steps > 0, torch.inf, -torch.inf).to(dtype))
        current, steps = torch.where(steps != 0, moved, current), steps - steps.sign()
    data = {
        "response_mask": np.ones(old.shape, bool),
        "old_log_probs": old.double().numpy(),
        "log_probs": current.double().numpy(),
        "advantages": np.sign(random.normal(size=old.shape)),
    }
    there, here = tensors(data, place, dtype)
    got, expected = (measure(batch, clip=(0.2, 0.28), dual_clip=3.0) for batch in (there, here))
    names = [name for name in expected if "clipfrac" in name or "outside" in name or "dual" in name]
    assert len(names) >= 5
    assert {name: got[name] for name in names} == {name: expected[name] for name in names}


@FORMS
def test_quantiles_of_short_sequences_are_those_of_all_tokens(place: str, form: str):
    """Up to 64 tokens of a sequence are all looked at; a value at the end of a bin may count in the next one."""
    data = make(40, 64, 21, True)
    if form == "packed":
        data = packed(data, np.full(40, 64))
    there, here = tensors(data, place)
    got, expected = measure(there, **OPTIONS), measure(here, **OPTIONS)
    names = [name for name in expected if re.search(r"[/_]p\d+$", name)]
    assert len(names) == 25
    for name in names:
        if name.startswith(("actor/ratio", "policy/ratio")):  # bins of the logarithm
            assert math.log(got[name]) == pytest.approx(math.log(expected[name]), rel=0.07, abs=1e-5), name
        else:
            assert got[name] == pytest.approx(expected[name], rel=0.07, abs=1e-5), name


@pytest.mark.parametrize(("rows", "width"), [(64, 500), (200, 3000)])
def test_quantiles_of_long_sequences_have_the_stated_error(place: str, is_slow: bool, rows: int, width: int):
    """With 64 tokens of each sequence, the share of all tokens below a quantile is off by four deviations at most."""
    if is_slow and rows > 64:
        pytest.skip("the interpreter takes long")
    random = np.random.default_rng(rows)
    lengths = random.integers(65, width, rows)
    data = {
        "response_mask": np.arange(width) < lengths[:, None],
        "advantages": random.normal(0, 1, (rows, width)) + random.normal(0, 1, (rows, 1)),
        "entropy": random.exponential(1.0, (rows, width)),
    }
    there, _ = tensors(data, place)
    got = measure(there)
    for channel, prefix in (("advantages", "critic/advantages"), ("entropy", "policy/entropy")):
        tokens = data[channel][data["response_mask"]]
        for percent in (1, 10, 50, 90, 99):
            value, share = got[f"{prefix}/p{percent}"], percent / 100
            # Of equal weight are sequences, of which longer ones have more tokens: more error than of a plain sample.
            allowed = 4 * 1.2 * math.sqrt(share * (1 - share) / (64 * rows))
            low, high = sorted((value * 0.97, value * 1.03))
            assert (tokens <= high).mean() >= share - allowed, (channel, percent)
            assert (tokens < low).mean() <= share + allowed, (channel, percent)


@FORMS
@pytest.mark.parametrize(("period", "tail"), [(1, 64), (1, 63), (7, 64), (40, 80), (40, 79), (128, 256), (129, 300)])
def test_repetition_agrees_with_the_host(place: str, period: int, tail: int, form: str):
    """Loops of several periods, some too short, at the end of responses with padding and holes."""
    random = np.random.default_rng(period)
    rows, width = 6, 600
    actions = random.integers(0, 50_000, (rows, width))
    ends = random.integers(400, width, rows)
    for row, end in enumerate(ends):
        loop = random.integers(0, 50_000, period)
        actions[row, end - tail : end] = np.resize(loop, tail)
    mask = np.arange(width) < ends[:, None]
    mask[0, ends[0] - 30] = False  # a token that is not of the response
    mask[1] = False
    data = {"response_mask": mask, "actions": actions}
    if form == "packed":  # some sequences have tokens behind the response
        data = packed(data, np.minimum(ends + np.array([3, 0, 0, 1, 20, 2]), width))
    there, here = tensors(data, place)
    name = "tokens/repetition"
    assert measure(there)[name] == measure(here)[name] == (4 / 6 if tail >= max(64, 2 * period) and period < 129 else 0)


def test_a_repetition_does_not_reach_into_the_sequence_before(place: str):
    """A stream of one token alone: of its sequences, the second is too short by itself."""
    bounds = np.array([0, 73, 136, 200])
    stream = {"response_mask": np.ones(200, bool), "actions": np.zeros(200, np.int64), "cu_seqlens": bounds}
    there, here = tensors(stream, place)
    assert [measure(batch)["tokens/repetition"] for batch in (there, here)] == [2 / 3, 2 / 3]


@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_device_and_host_agree_at_every_level(place: str, levels: dict):
    """Options of tokens and of sequences, from the totals of sequences."""
    there, here = tensors(make(12, 40, 52), place)
    options = {**OPTIONS, **levels}
    assert_same(measure(there, **options), measure(here, **options))
    assert measure(there, **options).missing == measure(here, **options).missing


@pytest.mark.parametrize("part", ["data", "policy", "value"])
@pytest.mark.parametrize(
    "leave_out", ["nothing", "ref_log_probs", "advantages", "old_values", "rollout_log_probs", "keep"]
)
def test_parts_and_absent_tensors_agree(place: str, part: str, leave_out: str):
    """Metrics of absent tensors and of other parts are missing on the device as on the host."""
    data = make(8, 11, 3)
    data.pop(leave_out, None)
    there, here = tensors(data, place)
    assert_same(measure(there, part=part, **OPTIONS), measure(here, part=part, **OPTIONS))


@pytest.mark.parametrize("levels", [{}, LEVELS[0], *LEVELS[4:6]], ids=str)
@pytest.mark.parametrize("bounds_type", [torch.int32, torch.int64])
def test_packed_batches_agree(place: str, bounds_type: torch.dtype, levels: dict):
    """A stream of tokens with its boundaries on the device, as attention kernels take them."""
    there, here = tensors(packed(make(9, 7, 5, True), np.array([7, 0, 3, 1, 7, 2, 0, 5, 4])), place)
    there = Batch(**{**{n: getattr(there, n) for n in there.given}, "cu_seqlens": there.cu_seqlens.to(bounds_type)})
    options = {**OPTIONS, **levels}
    assert_same(measure(there, **options), measure(here, **options))


@FORMS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_metrics_from_logits_agree_with_the_host(place: str, dtype: torch.dtype, form: str):
    """Log-probs, entropies, exact KLs and extremes of three policies' logits, some of -inf, in any padding."""
    data = with_logits(make(6, 9, 23))
    for name in VOCABULARY_FIELDS:
        data[name][..., 20] = -math.inf
        data[name][~data["response_mask"]] = math.nan
    there, here = tensors(packed(data, np.full(6, 9)) if form == "packed" else data, place, dtype)
    options = {**OPTIONS, "temperature": 1.3}
    got, expected = measure(there, **options), measure(here, **options)
    assert_same(got, expected, atol=1e-5)
    for name in ("actor/policykl", "policy/ref_kl_exact"):
        assert got[name] == pytest.approx(expected[name], rel=1e-4)
    valid = data["response_mask"] & data["keep"][:, None]
    known = torch.tensor(data["logits"][valid]).to(dtype).double().numpy()
    extremes = known.max(), known[known > -math.inf].min()
    assert (got["policy/logits/max"], got["policy/logits/min"]) == pytest.approx(extremes, rel=1e-6)


def with_logits(data: dict, vocabulary: int = 33) -> dict:
    """Return data with the logits of three policies in place of all that follows from them."""
    random = np.random.default_rng(len(data["scores"]))
    old = random.normal(0, 3, (*data["response_mask"].shape, vocabulary))
    given = {name: value for name, value in data.items() if name not in FROM_LOGITS} | {"old_logits": old}
    for name, distance in (("logits", 0.3), ("ref_logits", 0.5)):
        given[name] = old + random.normal(0, distance, old.shape)
    given["rollout_log_probs"] = np.log(taken(old, data["actions"])) + random.normal(0, 0.05, data["actions"].shape)
    return given


def taken(logits: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Return the probability of each action."""
    powers = np.exp(logits)
    return np.take_along_axis(powers / powers.sum(-1, keepdims=True), actions[..., None], -1)[..., 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_read_as_it_is(place: str, dtype: torch.dtype):
    """The values are those of the rounded inputs; nothing is rounded again."""
    there, here = tensors(make(10, 12, 6), place, dtype)
    assert_same(measure(there, **OPTIONS), measure(here, **OPTIONS))


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -1e30])
def test_garbage_under_the_mask_changes_nothing_on_the_device(place: str, garbage: float):
    """NaN, infinities and huge numbers in padding are never used."""
    data = make(9, 8, 7)
    clean = measure(tensors(data, place)[0], **OPTIONS)
    outside = ~(data["response_mask"])
    for name in TOKEN_FIELDS[1:]:
        if data[name].dtype == np.float64:
            data[name][outside] = garbage
    assert_same(measure(tensors(data, place)[0], **OPTIONS), clean, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["advantages", "log_probs", "returns", "old_log_probs", "values"])
def test_a_value_that_is_not_finite_is_counted_on_the_device(place: str, name: str, bad: float):
    """The same metrics are non-finite, with the same counts, as on the host."""
    data = make(6, 8, 8)
    row, column = np.argwhere(data["response_mask"] & data["keep"][:, None])[0]
    data[name][row, column] = bad
    there, here = tensors(data, place)
    assert_same(measure(there, **OPTIONS), measure(here, **OPTIONS))


def test_large_means_with_small_spread_keep_their_variance(place: str):
    """The variance of returns around 1,000 with a spread of 1 does not cancel."""
    data = make(16, 200, 9)
    data["returns"] = 1000.0 + data["returns"]
    data["old_values"] = 1000.0 + data["old_values"]
    there, here = tensors(data, place)
    got, expected = measure(there, vocabulary="trinity", **OPTIONS), measure(here, vocabulary="trinity", **OPTIONS)
    assert got["critic/vf_explained_var"] == pytest.approx(expected["critic/vf_explained_var"], rel=1e-4)


def test_torch_keeps_a_spread_that_is_a_billionth_of_the_mean(monkeypatch: pytest.MonkeyPatch):
    """The explained variance of returns of a million, give or take a thousandth, in double precision."""
    monkeypatch.setattr(passes, "on_device", lambda batch: isinstance(batch.response_mask, torch.Tensor))
    monkeypatch.setattr(passes, "_kernels", lambda kind: None)
    random = np.random.default_rng(5)
    returns = 1e6 + 1e-3 * random.normal(size=(16, 200))
    data = {"response_mask": np.ones((16, 200), bool), "returns": returns}
    data["old_values"] = returns + 5e-4 * random.normal(size=returns.shape)
    there, here = tensors(data, "cpu", torch.float64)
    names = ("value/explained_variance", "critic/returns/mean")
    got, expected = measure(there), measure(here)
    assert [got[name] for name in names] == pytest.approx([expected[name] for name in names], rel=1e-6)


def test_groups_of_different_micro_batches_are_different_groups(place: str):
    """Labels may begin at 0 again in each micro-batch: they are of the call, on the device as on the host."""
    scores = np.array([0.0, 1.0, 1.0, 1.0])
    micro = {"response_mask": np.ones((4, 3), bool), "scores": scores, "groups": np.array([0, 0, 1, 1])}
    for batch in tensors(micro, place):
        measurement = Measurement()
        for _ in range(3):
            measurement.add(batch, ("data",))
            batch = batch.having(scores=1.0 - batch.scores)
        values = measurement.finish("trinity")
        # Of the first pairs each has both scores; the second ones would too, if they were one group.
        assert values["reward/groups/effective_samples"] == 6.0


@pytest.mark.parametrize("value", [0.1, 1.0 / 3.0, "random"])
def test_sums_of_long_sequences_stay_right_in_single_precision(place: str, is_slow: bool, value: float | str):
    """Means over a quarter of a million tokens of one sign are right to one in a million."""
    shape = (1 if is_slow else 8, 32768)
    whole = np.full(shape, value) if isinstance(value, float) else np.random.default_rng(0).random(shape)
    data = {
        "response_mask": np.ones(whole.shape, bool),
        "old_log_probs": -whole,
        "old_entropy": whole,
        "returns": whole,
    }
    there, here = tensors(data, place)
    expected = measure(here, part="data")
    for name in ("critic/old_log_prob/mean", "critic/entropy/mean", "critic/returns/mean"):
        assert measure(there, part="data")[name] == pytest.approx(expected[name], rel=1e-6), name


@pytest.mark.parametrize("width", [2600, 2601])
@pytest.mark.parametrize(("kind", "one"), [(torch.bool, 1), (torch.uint8, 1), (torch.uint8, 255), (torch.int64, 1)])
def test_masks_of_every_form(place: str, is_slow: bool, width: int, kind: torch.dtype, one: int):
    """Responses that are whole blocks, begin or end within one, have gaps or are padded with NaN: the same numbers."""
    if is_slow and (width == 2601) != (kind == torch.bool):
        pytest.skip("the interpreter takes long")
    data = make(8, width, 16)
    mask = np.zeros((8, width), bool)
    spans = [(0, width), (0, 1024), (0, 2311), (7, width), (1500, 2599), (0, 1300), (2559, 2560)]  # the last is empty
    for row, (first, stop) in enumerate(spans):
        mask[row, first:stop] = True
    mask[5, 1301:] = True  # after a hole
    data["response_mask"] = mask
    for name in ("log_probs", "advantages", "returns"):
        data[name] = np.where(mask, data[name], np.nan)
    there, here = tensors({name: data[name] for name in data if name not in ("keep", "eos_ids")}, place)
    given = {name: getattr(there, name) for name in there.given}
    given["response_mask"] = torch.where(there.response_mask, one, 0).to(kind)
    assert_same(measure(Batch(**given), **OPTIONS), measure(here, **OPTIONS))


def test_empty_batches_and_masks(place: str):
    """No sequence, no width, no valid token: missing on the device as on the host."""
    for rows, width in ((0, 5), (4, 5)):
        data = make(rows, width, 10)
        data["response_mask"][:] = False
        there, here = tensors(data, place)
        assert_same(measure(there, **OPTIONS), measure(here, **OPTIONS))


def test_a_step_of_many_micro_batches_fetches_once(place: str, is_slow: bool, monkeypatch: pytest.MonkeyPatch):
    """Nothing is copied to the host before the step is finished, and then everything at once."""
    number = 8 if is_slow else 64
    there, here = tensors(make(number, 12, 11), place)
    fetches = []
    fetch = passes.fetch
    monkeypatch.setattr(passes, "fetch", lambda pieces, *more: fetches.append(len(pieces)) or fetch(pieces, *more))
    measurement = Measurement()
    reading = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__")
    with monkeypatch.context() as forbidden:
        for name in () if is_slow else reading:  # the interpreter reads tensors itself
            forbidden.setattr(torch.Tensor, name, _refuse(name))
        for n in range(number):
            measurement.add(there.take(slice(n, n + 1)), ("policy", "value"))
        assert fetches == []
    assert_same(measurement.finish("roll"), _parts(here))
    assert len(fetches) == 1


def test_a_further_step_clears_no_memory(place: str, monkeypatch: pytest.MonkeyPatch):
    """The memory of the histograms is left at 0 for it: the quantiles are the same."""
    there, _ = tensors(make(6, 30, 17), place)
    if passes._kernels(there.device.type) is None:
        pytest.skip("plain torch operations allocate their results")
    first = measure(there, **OPTIONS)
    monkeypatch.setattr(torch, "zeros", _refuse("zeros"))
    assert measure(there, **OPTIONS) == first


@pytest.mark.parametrize("where", ["compiler", "launch"])
def test_torch_measures_where_the_kernels_fail(monkeypatch: pytest.MonkeyPatch, capsys, where: str):
    """A machine without a compiler for Triton measures with torch, with one message; nothing is counted twice."""

    class Pass:
        def __init__(self, *arguments):
            if where == "compiler":
                raise RuntimeError("no C compiler")

        def launch(self, *arguments):
            raise RuntimeError("no C compiler")

    kernels = ModuleType("kernels")
    limits = SimpleNamespace(of=lambda options: None)
    reduction = SimpleNamespace(spare={})
    vars(kernels).update(
        ARRAYS=("log_probs", "advantages"),
        MOST_ARRAYS=8,
        Pass=Pass,
        TableReduction=lambda table: reduction,
        FormulaLimits=limits,
        NO_FILL=(None,) * 3,
    )
    monkeypatch.setattr(passes, "on_device", lambda batch: isinstance(batch.response_mask, torch.Tensor))
    monkeypatch.setattr(passes, "_kernels", lambda kind: kernels)
    monkeypatch.setattr(passes, "_broken", [])
    there, here = tensors(make(5, 6, 14) | {"groups": ["a", "a", "b", "b", "b"]}, "cpu")
    for _ in range(2):
        assert_same(measure(there, **OPTIONS), measure(here, **OPTIONS))
    assert capsys.readouterr().err.count("measuring with torch instead: no C compiler") == 1


@NEEDS_KERNELS
def test_the_host_reduces_where_the_kernel_for_that_fails(monkeypatch: pytest.MonkeyPatch, capsys):
    """The results of the sequences are there, so nothing is lost."""
    from barograph.metrics.gpu import rows_triton

    if INTERPRETED:
        interpreted_kernels(monkeypatch)
        monkeypatch.setattr(passes, "_kernels", lambda kind: rows_triton)
        monkeypatch.setattr(passes, "on_device", lambda batch: isinstance(batch.response_mask, torch.Tensor))
    monkeypatch.setattr(passes, "_broken", [])
    monkeypatch.setattr(rows_triton.TableReduction, "launch", _refuse("the reduction"))
    there, here = tensors(make(5, 6, 15), "cuda" if CUDA else "cpu")
    for _ in range(2):
        assert_same(measure(there, **OPTIONS), measure(here, **OPTIONS))
    assert capsys.readouterr().err.count("the reduction") == 1


def test_tensors_are_freed_before_the_step_ends(place: str):
    """A micro-batch, its logits and its graph are freed as soon as it is measured."""
    there, _ = tensors(make(4, 6, 13), place)
    logits = torch.randn(4, 6, 20, device=place, requires_grad=True) * 2
    batch = Batch(**{**{n: getattr(there, n) for n in there.given}, "logits": logits})
    watched = [weakref.ref(tensor) for tensor in (logits, batch.advantages, batch.response_mask, batch.log_probs)]
    measurement = Measurement()
    measurement.add(batch)
    del there, logits, batch
    gc.collect()
    assert [watch() for watch in watched] == [None] * 4
    assert measurement.finish("roll")["actor/total_samples"] == 4


def _refuse(name: str):
    def refuse(*arguments):
        raise AssertionError(f"{name} waits for the device")

    return refuse


def _parts(batch: Batch) -> dict:
    whole = Measurement()
    whole.add(batch, ("policy", "value"))
    return whole.finish("roll")


@pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@FORMS
def test_cuda_measures_without_a_synchronisation(tmp_path, form: str):
    """A step of 64 micro-batches with logits does not synchronise before commit, and its values are right."""
    there, here = tensors(with_logits(make(64, 32, 12)), "cuda")
    micros = [there.take(slice(n, n + 1)) for n in range(64)]
    if form == "packed":
        micros = [as_a_stream(micro) for micro in micros]
    run = barograph.init(dir=tmp_path)
    run.measure(micros[0], part="policy", step=0)  # compiles the kernels, which may wait
    run.commit(0)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run.measure(there, **OPTIONS)
        for micro in micros:
            run.measure(micro, part="policy", **OPTIONS)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    run.commit(1)
    run.finish()
    view, expected = barograph.open(run.path), measure(here, **OPTIONS)
    for name in (
        "actor/pg_loss", "actor/ratio_max", "critic/advantages/mean", "actor/clipfrac", "critic/score/mean",
        "actor/policykl", "policy/ref_kl_exact", "policy/entropy/mean", "policy/logits/max", "policy/logits/min",
    ):  # fmt: skip
        assert view.series(name).last == pytest.approx(expected[name], rel=5e-5, abs=1e-5), name


def as_a_stream(batch: Batch) -> Batch:
    """Return a padded batch of one sequence as a packed one on its device."""
    given = {name: getattr(batch, name) for name in batch.given}
    of_tokens = given.keys() & {*TOKEN_FIELDS, *VOCABULARY_FIELDS}
    bounds = torch.tensor([0, batch.shape[-1]], device=batch.device)
    return Batch(**{**given, **{name: given[name][0] for name in of_tokens}, "cu_seqlens": bounds})


def test_the_results_of_a_step_are_one_piece_of_memory(monkeypatch: pytest.MonkeyPatch):
    """Also after steps that needed less: not every step has tokens, and two pieces would have to be joined."""
    monkeypatch.setattr(results, "_last_words", {})
    pieces = []
    for words in (100, 5000, 100, 100, 5000, 5000, 100):
        memory = results.ResultMemory(torch.device("cpu"))
        taken = [memory.take(size) for size in (64, words, 16)]
        copied = memory.tensors()
        assert len(copied) > 1 or len(copied[0]) == 64 + words + 16
        assert [copied[chunk][offset:].data_ptr() for chunk, offset, _ in taken] == [address for *_, address in taken]
        pieces.append(len(copied))
    assert pieces[2:] == [1] * 5
