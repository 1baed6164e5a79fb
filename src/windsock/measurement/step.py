"""The measurement of one step: the states of its batches, merged, and finished into named values."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from windsock.errors import SettingsError
from windsock.formatting import describe_error
from windsock.measurement import device
from windsock.measurement.batch import COMPUTED_FROM, Batch
from windsock.measurement.completion import completed
from windsock.measurement.device import Launched
from windsock.measurement.options import Options, given
from windsock.measurement.quantities import BY_STATE, COEFFICIENTS, QUANTITIES, Quantity
from windsock.measurement.selection import HostSelection, Selection
from windsock.measurement.values import Measured, failed_state, finished
from windsock.states import RATIO, Layout
from windsock.stats.channels import Need

Floats = NDArray[np.float64]
Part = Literal["data", "policy", "value"]
Report = Callable[[str, Exception], None]
"""Takes the name of a quantity or a metric, and why it could not be computed."""

PARTS: tuple[Part, ...] = ("data", "policy", "value")


class Measurement:
    """The states of one step. ``add`` may be called per micro-batch and from several threads.

    A batch on an accelerator is only queued there; the statistics of all are copied to the host when the step is
    finished. A quantity that cannot be computed costs itself only: ``report`` is called, and its metrics are missing.
    """

    def __init__(
        self,
        rank: int = 0,
        states: dict[str, Floats] | None = None,
        missing: dict[str, str] | None = None,
        report: Report | None = None,
    ) -> None:
        self._rank = rank
        self._report = report or (lambda quantity, error: None)
        # Re-entrant: ``_collect`` merges while it has the lock.
        self._lock = threading.RLock()
        self._states: dict[str, Floats] = states or {}
        self._missing: dict[str, str] = missing or {}
        self._batches = 0  # measured so far
        self._launched: list[Launched] = []

    def add(self, batch: Batch, parts: tuple[Part, ...] = PARTS, options: Options | None = None) -> None:
        """Measure parts of a batch and merge the states into those of the step."""
        options = options or Options()
        batch = completed(batch, options, "data" in parts)
        if device.on_device(batch):
            launched = device.launch(batch, parts, options)
            with self._lock:
                # Fetched when the step ends: to do it now would wait for the device.
                self._launched.append(launched)
        else:
            self._measure(HostSelection(batch, options), parts)

    def merge(self, other: Measurement) -> None:
        """Merge another measurement of the same step into this one."""
        with self._lock:
            for name, state in other._states.items():
                known = self._states.get(name)
                self._states[name] = state if known is None else BY_STATE[name].kind.merge(known, state)
            self._missing.update(other._missing)
            self._launched += other._launched

    @property
    def missing(self) -> dict[str, str]:
        """The reasons for metrics that a batch lacks the inputs of, by id."""
        self._collect()
        return self._missing

    def packed(self) -> tuple[Layout, Floats]:
        """Return all states as one vector, and its layout."""
        self._collect()
        layout = _layout(frozenset(self._states))
        return layout, layout.pack(self._states)

    def finish(self, vocabulary: str) -> Measured:
        """Return the values of the step under the names of a vocabulary."""
        self._collect()
        return finished(self._states, vocabulary, self._missing, self._report)

    def _collect(self) -> None:
        """Merge the statistics that are still on devices."""
        with self._lock:
            launched, self._launched = self._launched, []
            for selection in device.collect(launched) if launched else ():
                self._measure(selection, selection.parts)

    def _measure(self, selection: Selection, parts: tuple[str, ...]) -> None:
        states, missing = measured_states(selection, parts, self._rank, self._report)
        with self._lock:
            self._batches += 1
            states |= coefficient_states(selection.options, self._batches)
            self.merge(Measurement(self._rank, states, missing))


@lru_cache(maxsize=64)  # a training has a few: its steps measure the same arrays
def _layout(names: frozenset[str]) -> Layout:
    return Layout.from_kinds({name: BY_STATE[name].kind for name in names})


@np.errstate(all="ignore")  # NaN and infinities are results, and are counted
def measured_states(
    selection: Selection, parts: tuple[str, ...], rank: int = 0, report: Report = lambda quantity, error: None
) -> tuple[dict[str, Floats], dict[str, str]]:
    """Return the states of all quantities with their inputs given, and the reasons for the missing metrics."""
    has = given(selection.batch.given, selection.options)
    states: dict[str, Floats] = {}
    missing: dict[str, str] = {}
    for quantity in QUANTITIES:
        if quantity.part not in parts:
            continue
        unmet = next((need for need in quantity.needs if not need.is_met(has)), None)
        if unmet is not None:
            reasons = dict.fromkeys(quantity.metrics, _reason(unmet))
            # The quantity of the option's level has a better reason, if it has the same metrics.
            missing = {**reasons, **missing} if unmet.level else {**missing, **reasons}
            continue
        try:
            states[quantity.state] = _state(quantity, selection, rank)
        except Exception as error:  # noqa: BLE001 - a metric costs only itself
            report(quantity.state, error)
            # A state, and not its absence: the value of the other batches or ranks alone would be a wrong number.
            states[quantity.state] = failed_state(quantity.kind)
            missing.update(dict.fromkeys(quantity.metrics, describe_error(error)))
    return states, missing


def coefficient_states(options: Options, order: int = 0) -> dict[str, Floats]:
    """Return the states of the coefficients that are in use; that with the highest order counts in a merged one."""
    return {
        quantity.state: quantity.kind.from_values([[value, order]])
        for option, quantity in COEFFICIENTS.items()
        # None is not set. Of the others 0 is the default, and one of 0 is not in use.
        if (value := getattr(options, option)) or (option == "kl_coef" and value is not None)
    }


def _state(quantity: Quantity, selection: Selection, rank: int) -> Floats:
    if quantity.channel is not None:
        return selection.state(quantity.kind, quantity.channel, rank)
    assert quantity.data is not None
    data = quantity.data(selection, selection.options)
    # A loss has a state already: only its tokens can be counted, not the quotient.
    return data if quantity.kind is RATIO else quantity.kind.from_values(data, rank)


def _reason(unmet: Need) -> str:
    """Return the reason for a missing metric: the input that is not given."""
    name = unmet.name
    if name in Options.__dataclass_fields__:
        return f"{name} is not {unmet.level!r}" if unmet.level else f"{name} is not set"
    computed = f", and no {COMPUTED_FROM[name]} to compute it from" if name in COMPUTED_FROM else ""
    return f"the batch has no {name}{computed}{f', which {unmet.when} needs' if unmet.when else ''}"


def check_part(part: Any) -> tuple[Part, ...]:
    """Return the parts to measure: the given one, or all for None."""
    if part is None:
        return PARTS
    if part not in PARTS:
        raise SettingsError(f"part: expected one of {', '.join(PARTS)}, got {part!r}")
    return (part,)


def measure(batch: Batch, *, vocabulary: str = "roll", part: Part | None = None, **options: Any) -> Measured:
    """Measure a batch without a run: return values by name, with the reasons for other metrics in ``missing``.

    Every part is measured, or only ``part``. The options are ``clip``, ``dual_clip``, ``value_clip``, ``reward_clip``,
    ``kl_coef``, ``kl_loss_coef``, ``entropy_coef``, ``loss``, ``loss_norm``, ``max_response_length``,
    ``max_prompt_length``, ``right_score``, ``temperature``, ``truncate``, ``reject`` and
    ``level``.
    """
    measurement = Measurement()
    measurement.add(batch, check_part(part), Options.from_keywords(options))
    return measurement.finish(vocabulary)
