"""The measurement of one step: the states of its batches, merged, and finished into named values."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from barograph.base.arrays import Floats
from barograph.base.errors import SettingsError
from barograph.base.formatting import describe_error
from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.completion import completed
from barograph.metrics.batch.host import HostBatches, HostSelection
from barograph.metrics.batch.inputs import Domains, Options, Selection, clip_of, domain_states
from barograph.metrics.batch.plan import MeasurementPlan, PackedStates, Part, plan_of
from barograph.metrics.batch.quantities import Data, Quantity
from barograph.metrics.batch.step_states import Report, StepStates, coefficient_states
from barograph.metrics.batch.token_rows import HostRows, Request, TakenTokens, TokenRows, filled, host_rows
from barograph.metrics.batch.values import Measured, failed_state
from barograph.metrics.gpu import passes
from barograph.metrics.gpu.passes import Launches
from barograph.metrics.gpu.selection import ReducedSelection
from barograph.metrics.states.kinds import StateKind

PARTS: tuple[Part, ...] = ("data", "policy", "value")


class Measurement(StepStates):
    """The states of one step. ``add`` may be called per micro-batch and from several threads.

    A batch on an accelerator is only queued there, and a small one on the host is copied; when the step is finished,
    the batches with the same arrays and options are computed together. A quantity that cannot be computed costs itself
    only: ``report`` is called, and its metrics are missing. ``warn`` is told of batches that lack an input.
    """

    def __init__(
        self,
        rank: int = 0,
        report: Report | None = None,
        warn: Callable[[str], None] | None = None,
        domains: Domains | None = None,
    ) -> None:
        super().__init__(report=report)
        self.rank = rank
        self._domains = domains or Domains()
        self._warn = warn or (lambda text: None)
        # Re-entrant: ``_collect`` merges while it has the lock.
        self._lock = threading.RLock()
        self._batches: dict[MeasurementPlan, int] = {}  # how many were added
        self._newest: dict[MeasurementPlan, int] = {}  # the number of the newest batch
        self._added = 0
        self._on_host = HostBatches()
        self._on_devices = [Launches()]
        self._is_collected = True
        self.tokens = TokenRows()

    def add(
        self,
        batch: Batch,
        parts: tuple[Part, ...] = PARTS,
        options: Options | None = None,
        tokens: Request | None = None,
    ) -> None:
        """Measure parts of a batch and merge the states into those of the step; ``tokens`` asks for rows of it."""
        options = options or Options()
        given, batch = batch, completed(batch, options, "data" in parts)
        plan = plan_of(batch.given, parts, options)
        with self._lock:
            self._is_collected = False
            self._added += 1
            self._batches[plan] = self._batches.get(plan, 0) + 1
            self._newest[plan] = self._added
            if passes.on_device(batch):
                request = self._request(batch, plan, tokens)
                rows = self._on_devices[0].add(batch, plan, self.tokens, request)
                if rows is not None:
                    self.tokens.add(given, rows)
                elif request is not None:
                    self._tell_unable()
                return
            selection = self._on_host.add(batch, plan)
        self._keep_tokens(batch, plan, selection, tokens)  # without the lock: a large batch takes long
        if selection is not None:
            self._measure(selection, plan)

    def _request(self, batch: Batch, plan: MeasurementPlan, tokens: Request | None) -> Request | None:
        """Return the request for rows of a batch; None where it has no ids, or is only updated."""
        if tokens is None or "ids" not in batch.given or "data" not in plan.parts:
            return None
        return self.tokens.next_request(tokens) if self.tokens.sets else tokens

    def _tell_unable(self) -> None:
        """Tell why no sequences are chosen from a batch on a device."""
        if passes.unable:
            self._report("tokens", passes.unable[0])
        else:
            self._warn("tokens of measured sequences need Triton on this device: none are stored")

    def _keep_tokens(
        self, batch: Batch, plan: MeasurementPlan, selection: HostSelection | None, tokens: Request | None
    ) -> None:
        """Choose sequences of a batch on the host, or complete those that were chosen before."""
        try:
            located = self.tokens.located(batch) if plan.completes else None
            request = self._request(batch, plan, tokens)
            if request is not None:
                rows = host_rows(batch, selection or HostSelection(batch, plan.options), plan, request)
                self.tokens.add(batch, rows)
            elif located is not None and isinstance(located[0], HostRows):
                located[0].fill(batch, located[1], filled(plan))
                located[0].clip = clip_of(plan.options)
        except Exception as error:  # noqa: BLE001 - it is reported, and costs no metric
            self._report("tokens", error)

    def merge(self, other: Self) -> None:
        """Merge another measurement of the same step into this one."""
        with self._lock:
            super().merge(other)
            self._is_collected = self._is_collected and other._is_collected
            self._added += other._added
            for plan, count in other._batches.items():
                self._batches[plan] = self._batches.get(plan, 0) + count
            self._newest |= other._newest
            self._on_host.merge(other._on_host)
            self._on_devices += [launches for launches in other._on_devices if launches]
            self.tokens.merge(other.tokens)

    @property
    def states(self) -> PackedStates:
        """All states of the step."""
        self._collect()
        return super().states

    @property
    def missing(self) -> dict[str, str]:
        """The reasons for metrics that a batch lacks the inputs of, by id."""
        self._collect()
        return super().missing

    def finish(self, vocabulary: str) -> Measured:
        """Return the values of the step under the names of a vocabulary."""
        self._collect()
        self._tell_lacking_inputs()
        return super().finish(vocabulary)

    def take_tokens(self) -> TakenTokens:
        """Return the tokens of the chosen sequences, once."""
        if not self._is_collected:
            self._collect()
        sets, self.tokens.sets = self.tokens.sets, []
        for rows in sets:
            if rows.is_overwritten:
                self._warn(
                    "tensors or ids of a batch were changed in place before the first policy part or the commit: the "
                    "tokens of that step are not stored (reported once)"
                )
        return TakenTokens(sets)

    def _collect(self) -> None:
        """Merge the batches that were only queued or copied so far."""
        if self._is_collected:
            return
        with self._lock:
            launched, self._on_devices = self._on_devices, [Launches()]
            for launches in launched:
                with launches.collected() as selections:
                    for selection in selections:
                        self._measure(selection, selection.plan)
            for plan, of_host in self._on_host.take():
                self._measure(of_host, plan)
            self._is_collected = True

    def _measure(self, selection: Selection, plan: MeasurementPlan) -> None:
        states, missing = measured_states(selection, plan, self.rank, self._report)
        by_domain = plan.by_domain
        if by_domain is not None:
            of_domains = domain_states(
                selection,
                self._domains,
                lambda part: measured_states(part, by_domain, self.rank, self._report)[0],
                self._report,
            )
            states = PackedStates.of(states).joined(of_domains)
        with self._lock:
            self._merge_states(states, missing)
            self._merge_coefficients(coefficient_states(plan.options, self._newest[plan]))

    def _tell_lacking_inputs(self) -> None:
        """Warn of metrics that some batches of a part have and others lack: their values are of the former alone."""
        if len(self._batches) < 2:
            return
        by_parts: dict[tuple[Part, ...], dict[MeasurementPlan, int]] = {}
        for plan, count in self._batches.items():
            by_parts.setdefault(plan.parts, {})[plan] = count
        for parts, alike in by_parts.items():
            if len(alike) == 1:
                continue
            computed = {quantity.state for plan in alike for quantity in plan.quantities}
            lacking: Counter[str] = Counter()
            for plan, count in alike.items():
                lacking.update(dict.fromkeys({plan.lacking[name] for name in computed & plan.lacking.keys()}, count))
            part = f'part="{parts[0]}"' if len(parts) == 1 else "part=None"
            for name, count in lacking.items():
                self._warn(
                    f"measure({part}): {count} of {sum(alike.values())} batches of a step had no {name}: the metrics "
                    "that need it are those of the other batches alone (reported once)"
                )


@np.errstate(all="ignore")  # NaN and infinities are results, and are counted
def measured_states(
    selection: Selection, plan: MeasurementPlan, rank: int = 0, report: Report = lambda quantity, error: None
) -> tuple[Mapping[str, Floats], Mapping[str, str]]:
    """Return the states of a plan's quantities, and the reasons for the missing metrics."""
    if isinstance(selection, ReducedSelection):
        packed, plan = selection.packed(rank)
        if not plan.quantities:
            return packed, plan.missing
        states, missing = _computed_states(selection, plan, rank, report)
        return packed.joined(states), missing
    return _computed_states(selection, plan, rank, report)


def _computed_states(
    selection: Selection, plan: MeasurementPlan, rank: int, report: Report
) -> tuple[dict[str, Floats], Mapping[str, str]]:
    """Compute the states of a plan's quantities by kind, and one by one where that fails."""
    states: dict[str, Floats] = {}
    failed: dict[str, str] = {}

    def add_failed(quantity: Quantity, error: Exception) -> None:
        report(quantity.state, error)
        # A state, and not its absence: the value of the other batches or ranks alone would be a wrong number.
        states[quantity.state] = failed_state(quantity.kind)
        failed.update(dict.fromkeys(quantity.metrics, describe_error(error)))

    for kind, (quantities, channels) in plan.channel_states.items():
        try:
            found = selection.states(kind, channels, rank)
            states |= zip((quantity.state for quantity in quantities), found, strict=True)
        except Exception:  # noqa: BLE001 - a metric costs only itself: find the one
            for quantity, channel in zip(quantities, channels, strict=True):
                try:
                    states[quantity.state] = selection.state(kind, channel, rank)
                except Exception as error:  # noqa: BLE001 - it is reported
                    add_failed(quantity, error)
    return states | _data_states(selection, plan, rank, add_failed), plan.missing | failed if failed else plan.missing


def _data_states(
    selection: Selection, plan: MeasurementPlan, rank: int, add_failed: Callable[[Quantity, Exception], None]
) -> dict[str, Floats]:
    """Return the states of data about the sequences: those of arrays of one length are computed together."""
    computed: dict[Data, Any] = {}  # quantities that are two states of the same data share it
    states: dict[str, Any] = {}  # those that are to be computed together are their data
    together: dict[tuple[StateKind, int], list[str]] = {}  # names by kind and length
    for quantity in plan.sequence_data:
        assert quantity.data is not None
        try:
            found = computed.get(quantity.data)
            if found is None:
                found = computed[quantity.data] = quantity.data(selection, selection.options)
            if not quantity.gives_state:
                if quantity.kind.stacks:
                    together.setdefault((quantity.kind, len(found)), []).append(quantity.state)
                else:
                    found = quantity.kind.from_values(found, rank)
            states[quantity.state] = found
        except Exception as error:  # noqa: BLE001 - it is reported
            add_failed(quantity, error)
    for (kind, _), names in together.items():
        arrays = [states[name] for name in names]
        keys = [*map(id, arrays)]
        # The same array may be the data of several, such as the scores where no sequence was aborted.
        alone = dict(zip(keys, arrays, strict=True))
        rows = kind.from_rows(np.array([*alone.values()], np.float64), rank)
        by_array = dict(zip(alone, rows, strict=True))
        states.update(zip(names, map(by_array.__getitem__, keys), strict=True))
    return states


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
    ``kl_coef``, ``kl_loss_coef``, ``entropy_coef``, ``loss``, ``loss_norm``, ``loss_batch``,
    ``max_response_length``, ``max_prompt_length``, ``right_score``, ``temperature``,
    ``truncate``, ``reject`` and ``level``.
    """
    measurement = Measurement()
    measurement.add(batch, check_part(part), Options.from_keywords(options))
    return measurement.finish(vocabulary)
