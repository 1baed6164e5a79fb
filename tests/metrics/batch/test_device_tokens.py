"""Tokens of sequences that a device chooses: the same as on the host, and no wait before the step ends."""

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_device import place  # noqa: F401 - a fixture
from test_token_choice import ASKED, arrays, as_torch, cut, packed
from token_reference import chosen, kept_tokens

import barograph
from barograph.base.model import MeasuredTokens
from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.step import Measurement
from barograph.metrics.batch.token_rows import Request
from barograph.metrics.gpu import passes
from kernels import CUDA, INTERPRETED, NEEDS_KERNELS

pytestmark = NEEDS_KERNELS
FEW, MANY = (24, 40) if INTERPRETED else (600, 2100)  # the scores of some are read at once, those of more are not


@pytest.fixture(autouse=True)
def kernels_only(request: pytest.FixtureRequest) -> None:
    """Without the kernels no tokens are stored: another test has that."""
    if "place" in request.fixturenames and request.node.callspec.params["place"] == "torch":
        pytest.skip("needs the kernels")


def on(place: str, data: dict) -> dict:  # noqa: F811
    return {name: array.to(place) if isinstance(array, torch.Tensor) else array for name, array in data.items()}


def same(there: list[MeasuredTokens], here: list[MeasuredTokens]) -> None:
    """Check that rows of a device are those of the host; they may be longer, with tokens outside of the response."""
    assert [(row.id, row.reason, row.clip) for row in there] == [(row.id, row.reason, row.clip) for row in here]
    for one, other in zip(there, here, strict=True):
        size = len(other.flags)
        assert (one.flags[:size] == other.flags).all()
        assert not one.flags[size:].any()
        assert (other.actions is None) == (one.actions is None)
        assert other.actions is None or (one.actions[:size] == other.actions).all()
        assert one.arrays.keys() == other.arrays.keys()
        for name, array in other.arrays.items():
            np.testing.assert_array_equal(one.arrays[name][:size][other.response], array[other.response])


def failed(what: str, error: Exception) -> None:
    raise error


def measured(batches: list[tuple[dict, tuple, Options]], request: Request) -> list[MeasuredTokens]:
    measurement = Measurement(report=failed)
    for batch, parts, options in batches:
        measurement.add(Batch(**batch), parts, options, request)
    return kept_tokens(measurement)


LAYOUTS = {
    "padded": arrays(),
    "wide": arrays(20, 1500),
    "many": arrays(FEW, 8),
    "more than are read at once": arrays(MANY, 4),
    "packed": packed(arrays()),
    "kept": {**arrays(), "keep": np.arange(12) % 3 > 0},
    "kept tokens": {**arrays(), "keep": np.random.default_rng(3).random((12, 20)) > 0.3},
    "one": arrays(1),
    "one token": arrays(9, 1),
    "other dtypes": {
        **arrays(),
        "response_mask": arrays()["response_mask"].astype(np.int64),
        "actions": np.ones((12, 20), np.int32),
        "advantages": arrays()["advantages"].astype(np.float64),
    },
    "empty": {**arrays(), "response_mask": np.zeros((12, 20), np.bool_)},
    "few arrays": {name: arrays()[name] for name in ("response_mask", "old_log_probs", "advantages", "ids")},
    "no histograms": {name: arrays()[name] for name in ("response_mask", "ref_log_probs", "ids")},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("place", ["kernel"], indirect=True)
def test_a_device_chooses_and_copies_what_the_host_does(place: str, layout: str):  # noqa: F811
    """Every layout, with as many sequences as there are criteria and more."""
    data = LAYOUTS[layout]
    for number in (5,) if INTERPRETED else (1, 5, 9):
        here = measured([(data, ("data",), Options())], (number, 11))
        there = measured([(on(place, as_torch(data)), ("data",), Options())], (number, 11))
        same(there, here)
        assert layout == "empty" or here


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
@pytest.mark.parametrize("seed", range(3))
def test_the_choice_of_a_device_is_that_of_plain_loops(place: str, seed: int):  # noqa: F811
    """In half precision too, where the loops have the numbers that the device reads."""
    sequences = 12 if INTERPRETED else 40
    for dtype in (torch.float32, torch.bfloat16):
        given = as_torch(arrays(sequences, 70, seed))
        given = {name: a.to(dtype) if torch.is_tensor(a) and a.is_floating_point() else a for name, a in given.items()}
        exact = {name: a.double().numpy() if torch.is_tensor(a) else a for name, a in given.items()}
        rows = measured([(on(place, given), ("data",), Options())], ASKED)
        assert {int(row.id[1:]): row.reason for row in rows} == chosen(exact, sequences, 5)


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
def test_odd_values_and_ties_and_clipped_tokens(place: str):  # noqa: F811
    """They are decided as on the host."""
    data = arrays(30)
    data["response_mask"][:] = True
    data["rollout_log_probs"][7, 3] = np.nan
    data["old_entropy"][5, 1] = -np.inf
    data["rollout_log_probs"][9, :6] -= 3.0
    now = data["old_log_probs"] + 0.5
    for parts, more, options in (
        (("data",), {}, Options(**cut(2.0))),
        (("data", "policy", "value"), {"log_probs": now, "entropy": data["old_entropy"]}, Options()),
    ):
        batch = {**data, **more}
        same(
            measured([(on(place, as_torch(batch)), parts, options)], ASKED),
            measured([(batch, parts, options)], ASKED),
        )
    equal = {name: np.zeros_like(a) if getattr(a, "dtype", None) == np.float32 else a for name, a in data.items()}
    rows = measured([(on(place, as_torch(equal)), ("data",), Options())], ASKED)
    assert [row.id for row in rows] == ["s0", "s1", "s2", "s3", "s4"]


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
@pytest.mark.parametrize("how", ["split", "having", "taken", "shuffled ids", "packed"])
def test_micro_batches_complete_the_rows_of_a_device(place: str, how: str):  # noqa: F811
    """By their places in the batch, or by ids; the first batch of a step and a later one."""
    data = arrays(24, 40)
    now, entropy = data["old_log_probs"] + 0.25, data["old_entropy"] + 1
    order = np.random.default_rng(1).permutation(24)
    parts = (order[:9], order[9:]) if how in ("taken", "shuffled ids") else (slice(0, 9), slice(9, 24))

    def step(convert) -> list[MeasuredTokens]:
        known = {"log_probs": now, "entropy": entropy} if how == "split" else {}
        whole = Batch(**convert({**data, **known}))
        measurement = Measurement(report=failed)
        measurement.add(whole, ("data",), tokens=ASKED)
        for rows in parts:
            new = {"log_probs": now[rows], "entropy": entropy[rows]}
            if how in ("having", "taken", "split"):
                micro = whole.take(rows)
                micro = micro if how == "split" else micro.having(**convert(new))
            else:
                given = {name: data[name][rows] for name in ("response_mask", "old_log_probs", "advantages")} | new
                given["ids"] = [data["ids"][n] for n in np.arange(24)[rows]]
                micro = Batch(**convert(packed(given) if how == "packed" else given))
            measurement.add(micro, ("policy",), Options(clip=(0.1, 0.3)))
        return kept_tokens(measurement)

    here = step(dict)
    assert all("log_probs" in row.arrays for row in here)
    same(step(lambda arrays: on(place, as_torch(arrays))), here)


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_update_with_nan_alone_is_kept(place: str, dtype: torch.dtype):  # noqa: F811
    """It is not taken for one without the sequence: of the others no log-prob is known."""
    data = arrays(20)

    def step(data: dict, now: Any) -> list[MeasuredTokens]:
        measurement = Measurement(report=failed)
        whole = Batch(**data)
        measurement.add(whole, ("data",), tokens=(10, 11))
        measurement.add(whole.take(slice(5, 10)).having(log_probs=now), ("policy",))
        return kept_tokens(measurement)

    here = step(data, np.full((5, 20), np.nan, np.float32))
    same(step(on(place, as_torch(data)), torch.full((5, 20), torch.nan, dtype=dtype, device=place)), here)
    updated = {row.id for row in here if "log_probs" in row.arrays}
    assert updated == {row.id for row in here} & {f"s{n}" for n in range(5, 10)}
    assert 0 < len(updated) < 10


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
@pytest.mark.parametrize("sequences", [3, FEW, MANY])
def test_the_first_update_chooses_from_any_number_of_sequences(place: str, sequences: int):  # noqa: F811
    """One that has none of the chosen sequences, and one that has all; NaN in the data is looked for first."""
    data = arrays(sequences, 8)
    data["response_mask"][:] = True
    data["rollout_log_probs"][sequences - 1, 3] = np.nan
    now = data["old_log_probs"] + 0.25

    def step(convert) -> list[MeasuredTokens]:
        whole = Batch(**convert({**data, "log_probs": now}))
        measurement = Measurement(report=failed)
        measurement.add(whole, ("data",), tokens=ASKED)
        other = {name: data[name][:2] for name in ("response_mask", "old_log_probs", "advantages")}
        other |= {"log_probs": now[:2], "ids": ["unknown", data["ids"][sequences - 1]]}
        measurement.add(Batch(**convert(other)), ("policy",))
        measurement.add(whole, ("policy",))
        return kept_tokens(measurement)

    here = step(dict)
    assert here[0].id == f"s{sequences - 1}"
    same(step(lambda arrays: on(place, as_torch(arrays))), here)


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
@pytest.mark.parametrize("gradients", [False, True])
def test_a_choice_that_waits_keeps_its_tensors_and_never_a_graph(place: str, gradients: bool):  # noqa: F811
    """The first update, or the end of the step, makes the choice; with gradients it is made at once."""
    given = on(place, as_torch(arrays()))
    if gradients:
        given["old_entropy"].requires_grad_()
    held = weakref.ref(given["advantages"])
    measurement = Measurement(report=failed)
    measurement.add(Batch(**given), ("data",), tokens=ASKED)
    expected = chosen(arrays(), 12, 5)
    del given
    gc.collect()
    assert (held() is None) == gradients
    assert {int(row.id[1:]): row.reason for row in kept_tokens(measurement)} == expected
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
def test_a_choice_that_fails_keeps_no_tensors(place: str, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    """Not even until the step ends: they may have a graph."""
    monkeypatch.setattr(passes, "unable", [])
    from barograph.metrics.gpu.tokens_triton import SequenceChoice  # needs Triton

    monkeypatch.setattr(SequenceChoice, "launch", lambda *_: 1 / 0)
    given = on(place, as_torch(arrays()))
    given["old_entropy"].requires_grad_()
    others = Measurement(report=failed)
    others.add(Batch(**given), ("data",))
    held, told = weakref.ref(given["advantages"]), []
    measurement = Measurement(report=lambda what, error: told.append(f"{what}: {type(error).__name__}"))
    measurement.add(Batch(**given), ("data",), tokens=ASKED)
    assert told == ["tokens: ZeroDivisionError"]
    # Every token is counted once, in the quantiles too.
    assert dict(measurement.finish("roll")) == pytest.approx(dict(others.finish("roll")), rel=1e-5, nan_ok=True)
    assert kept_tokens(measurement) == []
    del given
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
def test_a_choice_that_was_made_keeps_no_tensors(place: str):  # noqa: F811
    """The first update makes it; later ones, and batches with the same ids, complete the rows."""
    given = on(place, as_torch({**arrays(), "log_probs": arrays()["old_log_probs"] + 0.25}))
    later = Batch(**{name: given[name] for name in ("response_mask", "log_probs", "old_log_probs", "ids")})
    held = weakref.ref(given["ref_log_probs"])
    measurement = Measurement(report=failed)
    batch = Batch(**given)
    measurement.add(batch, ("data",), tokens=ASKED)
    for micro in batch.split(2):
        measurement.add(micro, ("policy",))
    del given, batch, micro
    gc.collect()
    assert held() is None
    measurement.add(later, ("policy",))
    rows = kept_tokens(measurement)
    assert len(rows) == 5
    for row in rows:
        expected = arrays()["old_log_probs"][int(row.id[1:])] + 0.25
        np.testing.assert_allclose(
            row.arrays["log_probs"][:20][row.response[:20]], expected[row.response[:20]], rtol=1e-6
        )


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
def test_ids_of_a_device_are_read_when_the_step_ends(place: str):  # noqa: F811
    """As numbers, and as they were when the batch was measured."""
    data = {**arrays(), "ids": np.arange(100, 112)}
    there = on(place, as_torch(data))
    measurement = Measurement(report=failed)
    measurement.add(Batch(**there), ("data",), tokens=ASKED)
    there["ids"].zero_()
    assert {int(row.id) - 100: row.reason for row in kept_tokens(measurement)} == chosen(arrays(), 12, 5)


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
@pytest.mark.parametrize("how", ["written", "moved", "ids"])
@pytest.mark.parametrize("update", [False, True])
def test_arrays_that_changed_before_they_are_copied_cost_their_tokens(place: str, how: str, update: bool):  # noqa: F811
    """What is in their memory was not measured, or is of somebody else; the metrics are those of the call."""
    told: list[str] = []

    def step(how: str | None) -> tuple[dict, list[MeasuredTokens]]:
        given = on(place, as_torch({**arrays(), "log_probs": arrays()["old_log_probs"] + 0.25}))
        whole = Batch(**given)
        measurement = Measurement(report=failed, warn=told.append)
        measurement.add(whole, ("data",), tokens=ASKED)
        if how == "written":
            given["old_entropy"].zero_()
        elif how == "moved":
            given["old_entropy"].data = given["old_entropy"].clone()
        elif how == "ids":
            given["ids"].reverse()
        if update:
            measurement.add(whole, ("policy",))
        return dict(measurement.finish("roll")), kept_tokens(measurement)

    metrics, rows = step(None)
    assert (len(rows), told) == (5, [])
    others, rows = step(how)
    assert others == pytest.approx(metrics, rel=1e-5, abs=1e-9)  # other code is compiled
    assert rows == []
    assert len(told) == 1
    assert "changed in place" in told[0]


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
def test_tokens_that_fail_cost_no_metric_and_are_told(place: str, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    """The pass is queued again without them; the next step says why there are none."""
    monkeypatch.setattr(passes, "unable", [])

    def step(report, breaks: bool = False) -> tuple[dict, list[MeasuredTokens]]:
        whole = Batch(**on(place, as_torch({**arrays(), "log_probs": arrays()["old_log_probs"] + 0.25})))
        measurement = Measurement(report=report)
        measurement.add(whole, ("data",), tokens=ASKED)
        if breaks:
            monkeypatch.setattr(passes, "_completing", lambda *_: 1 / 0)
        measurement.add(whole, ("policy",))
        rows = kept_tokens(measurement)
        return dict(measurement.finish("roll")), rows

    told: list[str] = []
    metrics, rows = step(failed)
    assert rows
    for report, breaks in ((failed, True), (lambda what, error: told.append(f"{what}: {type(error).__name__}"), False)):
        others, rows = step(report, breaks)
        assert others == pytest.approx(metrics, rel=1e-5, abs=1e-9)  # other code is compiled
        assert rows == []
    assert told == ["tokens: ZeroDivisionError"]


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
def test_several_batches_on_a_device_are_chosen_from_together(place: str):  # noqa: F811
    """As on the host."""
    data = arrays(40)

    def step(whole: Batch) -> list[MeasuredTokens]:
        measurement = Measurement(report=failed)
        for part in whole.split(3):
            measurement.add(part, ("data",), tokens=(6, 3))
        return kept_tokens(measurement)

    same(step(Batch(**on(place, as_torch(data)))), step(Batch(**data)))


@pytest.mark.parametrize("place", ["kernel"], indirect=True)
def test_a_run_stores_tokens_of_a_device_and_its_metrics_are_unchanged(place: str, tmp_path: Path):  # noqa: F811
    """Over steps, whose memory is used again while the thread writes."""
    values, steps = {}, 3 if INTERPRETED else 6
    for number in (0, 4):
        run = barograph.init(dir=tmp_path, name=str(number))
        for step in range(steps):
            data = {**arrays(seed=step), "log_probs": arrays(seed=step)["old_log_probs"] + 0.1}
            batch = Batch(**on(place, as_torch(data)))
            run.measure(batch, tokens=number)
            for micro in batch.split(3):
                run.measure(micro, part="policy")
            values[number, step] = dict(run.commit(step))
        run.finish()
    for step in range(steps):
        assert values[0, step] == pytest.approx(values[4, step], rel=1e-5, abs=1e-9)  # other code is compiled
        data = arrays(seed=step)
        samples = barograph.open(run.path).samples(step=step, where="tokens > 0")
        assert {int(sample.id[1:]) for sample in samples} == chosen(data, 12, 4).keys()
        for sample in samples:
            row = int(sample.id[1:])
            old = np.array(sample.token_values["old"])
            np.testing.assert_allclose(old, data["old_log_probs"][row][data["response_mask"][row]], atol=2.5e-4)


@pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_nothing_waits_for_the_device():
    """Choosing and completing rows synchronises nothing."""
    data = arrays(64, 128)
    batch = Batch(**on("cuda", as_torch({**data, "log_probs": data["old_log_probs"]})))
    for attempt in range(2):  # in the first the kernels are compiled
        measurement = Measurement(report=failed)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error" if attempt else "default")
        try:
            measurement.add(batch, ("data",), tokens=ASKED)
            for micro in batch.split(4):
                measurement.add(micro, ("policy",))
            by_ids = {name: getattr(batch, name)[:8] for name in ("response_mask", "log_probs", "old_log_probs", "ids")}
            measurement.add(Batch(**by_ids), ("policy",))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert len(kept_tokens(measurement)) == 5
    assert passes._broken == []
