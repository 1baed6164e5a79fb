"""Measuring the parts of a step, merging what was measured, and finishing it into named values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from windsock.catalogue.registry import REGISTRY, vocabulary_name
from windsock.errors import SettingsError
from windsock.measurement import device
from windsock.measurement.batch import COMPUTED_FROM, Batch
from windsock.measurement.completion import completed
from windsock.measurement.device import Launched
from windsock.measurement.options import Options, given
from windsock.measurement.quantities import QUANTITIES, Quantity
from windsock.measurement.selection import HostSelection, Selection
from windsock.model import Missing
from windsock.states import KINDS, Layout
from windsock.stats.channels import Need

Floats = NDArray[np.float64]
Part = Literal["data", "policy", "value"]
Values = dict[str, "float | Missing"]

PARTS: tuple[Part, ...] = ("data", "policy", "value")
BY_STATE: dict[str, Quantity] = {quantity.state: quantity for quantity in QUANTITIES}


class Measured(dict[str, float]):
    """Finished metrics by name. ``missing`` says of the others why they are not there."""

    def __init__(self, values: Mapping[str, float], missing: Mapping[str, str]) -> None:
        super().__init__(values)
        self.missing = dict(missing)


class Measurement:
    """What was measured of one step so far. ``add`` may be called per micro-batch and from several threads.

    A batch on an accelerator is only queued there; its statistics are fetched, all in one copy, when the step is
    finished.
    """

    def __init__(
        self,
        rank: int = 0,
        states: dict[str, Floats] | None = None,
        missing: dict[str, str] | None = None,
        options: Options | None = None,
    ) -> None:
        self._rank = rank
        self._lock = threading.RLock()
        self._states: dict[str, Floats] = states or {}
        self._missing: dict[str, str] = missing or {}
        self._options = options or Options()
        self._launched: list[Launched] = []

    def add(self, batch: Batch, parts: tuple[Part, ...] = PARTS, options: Options | None = None) -> None:
        """Measure parts of a batch and merge the states with what is there."""
        options = options or Options()
        batch = completed(batch, options, "data" in parts)
        if device.on_device(batch):
            launched = device.launch(batch, parts, options)
            with self._lock:
                self._launched.append(launched)
        else:
            self._take(HostSelection(batch, options), parts)

    def merge(self, other: Measurement) -> None:
        """Take in what another measurement of the same step holds."""
        with self._lock:
            for name, state in other._states.items():
                known = self._states.get(name)
                self._states[name] = state if known is None else BY_STATE[name].kind.merge(known, state)
            self._missing.update(other._missing)
            self._options = self._options.merged_with(other._options)
            self._launched += other._launched

    def described_options(self) -> dict[str, Any]:
        """Return the options as plain data, so that a reader can finish the states."""
        return asdict(self._options)

    def packed(self) -> tuple[Layout, Floats]:
        """Return all states as one vector, to travel."""
        self._collect()
        layout = Layout.from_kinds({name: BY_STATE[name].kind for name in self._states})
        return layout, layout.pack(self._states)

    def finish(self, vocabulary: str) -> Measured:
        """Divide and name."""
        self._collect()
        return finished(self._states, self._options, vocabulary, self._missing)

    def _collect(self) -> None:
        """Fetch what was measured on devices."""
        with self._lock:
            launched, self._launched = self._launched, []
            for selection in device.collect(launched) if launched else ():
                self._take(selection, selection.parts)

    def _take(self, selection: Selection, parts: tuple[str, ...]) -> None:
        states, missing = measured_states(selection, parts, self._rank)
        self.merge(Measurement(self._rank, states, missing, selection.options))


@np.errstate(all="ignore")  # NaN and infinities are values, and counted
def measured_states(
    selection: Selection, parts: tuple[str, ...], rank: int = 0
) -> tuple[dict[str, Floats], dict[str, str]]:
    """Return the states of all quantities whose inputs are there, and why the others are missing."""
    has = given(selection.batch.given, selection.options)
    states: dict[str, Floats] = {}
    missing: dict[str, str] = {}
    for quantity in QUANTITIES:
        if quantity.part not in parts:
            continue
        unmet = next((need for need in quantity.needs if not need.is_met(has)), None)
        if unmet is None:
            states[quantity.state] = _state(quantity, selection, rank)
        else:
            missing.update(dict.fromkeys(quantity.metrics, _reason(unmet)))
    return states, missing


def _state(quantity: Quantity, selection: Selection, rank: int) -> Floats:
    if quantity.channel is not None:
        return selection.state(quantity.kind, quantity.channel, rank)
    assert quantity.data is not None
    return quantity.kind.from_values(quantity.data(selection, selection.options), rank)


def _reason(unmet: Need) -> str:
    """Return the reason for a missing metric: the input that is not given."""
    name = unmet.name
    if name in Options.__dataclass_fields__:
        return f"{name} is not set"
    computed = f", and no {COMPUTED_FROM[name]} to compute it from" if name in COMPUTED_FROM else ""
    return f"the batch has no {name}{computed}{f', which {unmet.when} needs' if unmet.when else ''}"


def finished(
    states: Mapping[str, Floats], options: Options, vocabulary: str, missing: Mapping[str, str] | None = None
) -> Measured:
    """Turn merged states into values under the names of a vocabulary."""
    values: Values = {id: Missing(reason) for id, reason in (missing or {}).items()}
    nonfinite: dict[str, float] = {}
    for name, state in states.items():
        quantity = BY_STATE[name]
        results = quantity.kind.values(state)
        for id, statistic in quantity.metrics.items():
            value = results[statistic]
            values[id] = Missing(quantity.empty) if isinstance(value, Missing) else value
            if state[-1]:
                nonfinite[id] = float(state[-1])
    for id, derive in DERIVED.items():
        derived = derive(values, states, options)
        if derived is not None:
            values[id] = derived
    return _named(values, nonfinite, vocabulary)


def _named(values: Values, nonfinite: Mapping[str, float], vocabulary: str) -> Measured:
    found: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for id, value in values.items():
        name = vocabulary_name(REGISTRY.metric(id), vocabulary)
        if isinstance(value, Missing):
            reasons[name.pattern] = value.reason
        else:
            found[name.pattern] = value / (name.factor or 1.0)
            if id in nonfinite:
                found[f"windsock/nonfinite/{name.pattern}"] = nonfinite[id]
    return Measured(found, reasons)


def _explained_variance(values: Values, states: Mapping[str, Floats], options: Options) -> float | Missing | None:
    """Return 1 - Var(R - V0) / Var(R)."""
    returns, residual = states.get("reward/returns:moments"), states.get("value/residual:moments")
    if returns is None or residual is None:
        return None
    if returns[0] == 0:
        return Missing("no valid token")
    if returns[2] == 0:
        return Missing("all returns are equal")
    return float(1.0 - residual[2] / returns[2])


def _total_loss(values: Values, states: Mapping[str, Floats], options: Options) -> float | Missing | None:
    """Return what is differentiated, of the terms that are in use."""
    weighted = values.get("policy/loss/weighted_pg")
    result = weighted if isinstance(weighted, float) else values.get("policy/loss/pg")
    terms = [(options.kl_loss_coef, values.get("policy/kl_loss")), (-options.entropy_coef, _entropy_term(states))]
    for coefficient, term in terms:
        if coefficient:
            if not isinstance(term, float):
                return Missing("a term of the loss is missing")
            result = result + coefficient * term if isinstance(result, float) else result
    return result


def _entropy_term(states: Mapping[str, Floats]) -> float | Missing | None:
    state = states.get("policy/entropy:loss")
    return None if state is None else KINDS["ratio"].values(state)["ratio"]


def _effective_sample_size(values: Values, states: Mapping[str, Floats], options: Options) -> float | Missing | None:
    """Return (Σw)² / (n·Σw²), a share of the tokens."""
    state = states.get("policy/mismatch/ratio:moments")
    if state is None:
        return None
    count, total, squares = (float(slot) for slot in state[:3])
    if count == 0:
        return Missing("no valid token")
    mean = total / count
    return mean * mean / (mean * mean + squares / count)


def _option(name: str) -> Callable[[Values, Mapping[str, Floats], Options], float | Missing | None]:
    def value(values: Values, states: Mapping[str, Floats], options: Options) -> float | Missing | None:
        setting: Any = getattr(options, name)
        return float(setting) if setting and states else None  # a coefficient of zero is not in use

    return value


DERIVED: dict[str, Callable[[Values, Mapping[str, Floats], Options], float | Missing | None]] = {
    "value/explained_variance": _explained_variance,
    "policy/loss/total": _total_loss,
    "policy/mismatch/effective_sample_size": _effective_sample_size,
    "reward/kl_coef": _option("kl_coef"),
    "policy/kl_loss_coef": _option("kl_loss_coef"),
    "policy/entropy_coef": _option("entropy_coef"),
}


def check_part(part: Any) -> tuple[Part, ...]:
    """Return the parts that a user's word names."""
    if part is None:
        return PARTS
    if part not in PARTS:
        raise SettingsError(f"part: expected one of {', '.join(PARTS)}, got {part!r}")
    return (part,)


def measure(batch: Batch, *, vocabulary: str = "roll", part: Part | None = None, **options: Any) -> Measured:
    """Measure a whole batch without any run: a mapping of names to values, with ``missing`` for the rest.

    Every part whose inputs are there is measured, or only ``part``. The options are those of the losses: ``clip``,
    ``dual_clip``, ``value_clip``, ``reward_clip``, ``kl_coef``, ``kl_loss_coef``, ``entropy_coef``, ``loss``,
    ``loss_norm``, ``max_response_length``, ``max_prompt_length``.
    """
    measurement = Measurement()
    measurement.add(batch, check_part(part), Options.from_keywords(options))
    return measurement.finish(vocabulary)
