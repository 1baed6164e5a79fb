"""Named values of merged states, and the metrics that are derived from several states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.catalogue.by_domain import BY, has_domains, split_domain
from windsock.catalogue.registry import REGISTRY, vocabulary_name
from windsock.formatting import describe_error
from windsock.measurement.quantities import BY_STATE, NO_TOKEN
from windsock.model import Missing
from windsock.states import RATIO, StateKind

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Values = dict[str, "float | Missing"]
Derivation = Callable[[Values, Mapping[str, Floats]], "float | Missing | None"]
"""Takes the values and the states by id; returns None where the metric does not apply."""

FAILED_ELSEWHERE = "it could not be computed on another rank"
NONFINITE = "windsock/nonfinite/"  # before the name of a metric: how many of its inputs were not finite


class Measured(dict[str, float]):
    """Values of metrics by name, and in ``missing`` the reasons for metrics without a value."""

    def __init__(self, values: Mapping[str, float], missing: Mapping[str, str]) -> None:
        super().__init__(values)
        self.missing = dict(missing)


def failed_state(kind: StateKind) -> Floats:
    """Return the state of a quantity that could not be computed; merged with any other state, it stays one.

    The last slot of every kind is a count, which is never NaN otherwise.
    """
    return np.full(kind.width, np.nan)


def has_failed(state: Floats) -> bool:
    """Return whether a state is, or contains, that of a quantity that could not be computed."""
    # NaN is the one number that differs from itself; np.isnan takes ten times as long, for each state of a step.
    count = state.item(-1)
    return bool(count != count)


def finished(
    states: Mapping[str, Floats],
    vocabulary: str,
    missing: Mapping[str, str] | None = None,
    report: Callable[[str, Exception], None] = lambda call, error: None,
) -> Measured:
    """Return the values of merged states under the names of a vocabulary.

    A metric that cannot be computed is missing, with the error as the reason; ``report`` is called with it.
    """
    missing = missing or {}
    # Of the metrics that others are derived from the reasons count too.
    values: Values = {id: Missing(missing[id]) for id in DERIVED_FROM if id in missing}
    nonfinite: dict[str, float] = {}
    usable = states
    for finishing in _finishings(tuple(states)):
        try:
            if finishing.add_values(states, values, nonfinite):
                continue
        except Exception:  # noqa: BLE001 - a metric costs only itself: find the one
            pass
        usable = {name: state for name, state in states.items() if not has_failed(state)}
        for name in finishing.names:
            if name in usable:
                _add_one(name, usable, values, nonfinite, report)
            else:
                for id in BY_STATE[name].metrics:
                    values.setdefault(id, Missing(missing.get(id, FAILED_ELSEWHERE)))
    _derive(values, usable, report)
    for domain, of_domain in _by_domain(usable).items():
        derived: Values = {}
        _derive(derived, of_domain, report)
        values |= {f"{id}{BY}{domain}": derived[id] for id in derived if has_domains(REGISTRY.metric(id))}
    return _named(values, missing, nonfinite, vocabulary)


class _Finishing(ABC):
    """How the values of some states are computed together."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        metrics = [(name, id, statistic) for name in names for id, statistic in BY_STATE[name].metrics.items()]
        self._metrics = metrics
        self.ids = [id for _, id, _ in metrics]
        self._rows = np.array([self.names.index(name) for name, _, _ in metrics])

    def add_values(self, states: Mapping[str, Floats], values: Values, nonfinite: dict[str, float]) -> bool:
        """Add the values of the metrics, and the numbers of inputs that are not finite.

        Adds nothing and returns False where a state has failed.
        """
        found, empty, bad = self._computed([states[name] for name in self.names])
        if bad.any():
            if np.isnan(bad).any():
                return False
            counts = zip(self.ids, bad[self._rows].tolist(), strict=True)
            nonfinite |= {id: count for id, count in counts if count}
        values.update(zip(self.ids, found.tolist(), strict=True))
        if empty.any():
            for place in np.flatnonzero(empty[self._rows]):
                name, id, _ = self._metrics[place]
                values[id] = Missing(BY_STATE[name].empty)
        return True

    @abstractmethod
    def _computed(self, states: list[Floats]) -> tuple[Floats, Bools, Floats]:
        """Return the values by metric, and by state whether it is empty and how many inputs are not finite."""


class _ByFormulas(_Finishing):
    """The values of all kinds that have formulas: the slots of their states are one vector."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        kinds = [BY_STATE[name].kind for name in self.names]
        starts = dict(zip(self.names, np.cumsum([0, *(kind.width for kind in kinds)]).tolist(), strict=False))
        one = sum(kind.width for kind in kinds)  # behind all slots: the denominator of a statistic without one

        def place(name: str, slot: str | None) -> int:
            return one if slot is None else int(starts[name]) + BY_STATE[name].kind.slots.index(slot)

        formulas = [(name, BY_STATE[name].kind.formulas[statistic]) for name, _, statistic in self._metrics]
        self._numerators = np.array([place(name, formula.numerator) for name, formula in formulas])
        self._denominators = np.array([place(name, formula.denominator) for name, formula in formulas])
        self._roots = np.flatnonzero([formula.is_root for _, formula in formulas])
        self._bad = np.array([place(name, "nonfinite") for name in self.names])
        # Of a kind whose states are never empty the slot behind all, which is never NaN.
        marks = [kind.empty_mark or (None, np.nan) for kind in kinds]
        self._marks = np.array([place(name, slot) for name, (slot, _) in zip(self.names, marks, strict=True)])
        self._empty = np.array([content for _, content in marks])

    @np.errstate(all="ignore")
    def _computed(self, states: list[Floats]) -> tuple[Floats, Bools, Floats]:
        vector = np.concatenate([*states, _ONE])
        found = vector[self._numerators] / vector[self._denominators]
        found[self._roots] = np.sqrt(found[self._roots])
        return found, vector[self._marks] == self._empty, vector[self._bad]


_ONE = np.ones(1)


class _OfKind(_Finishing):
    """The values of states of one kind, which has no formulas."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._kind = BY_STATE[self.names[0]].kind
        self._columns = np.array([self._kind.statistics.index(statistic) for _, _, statistic in self._metrics])

    def _computed(self, states: list[Floats]) -> tuple[Floats, Bools, Floats]:
        stack = np.array(states)
        found, empty = self._kind.values_of(stack)
        return found[self._rows, self._columns], empty, stack[:, -1]


@lru_cache(maxsize=1 << 10)  # a training has a few, as its steps have the same states; a reader asks for some of them
def _finishings(names: tuple[str, ...]) -> tuple[_Finishing, ...]:
    """Return the ways to finish the states that have metrics."""
    simple: list[str] = []
    others: dict[StateKind, list[str]] = {}
    for name in names:
        quantity = BY_STATE[name]
        if quantity.metrics:
            (simple if quantity.kind.formulas else others.setdefault(quantity.kind, [])).append(name)
    return (*([_ByFormulas(simple)] if simple else []), *map(_OfKind, others.values()))


def _add_one(
    name: str,
    usable: Mapping[str, Floats],
    values: Values,
    nonfinite: dict[str, float],
    report: Callable[[str, Exception], None],
) -> None:
    """Add the values of one state, or why it has none."""
    try:
        for finishing in _finishings((name,)):
            finishing.add_values(usable, values, nonfinite)
    except Exception as error:  # noqa: BLE001 - it is reported
        report(name, error)
        values |= dict.fromkeys(BY_STATE[name].metrics, Missing(describe_error(error)))


def _derive(values: Values, states: Mapping[str, Floats], report: Callable[[str, Exception], None]) -> None:
    """Add the values that follow from several states."""
    for id, derive in DERIVED.items():
        try:
            derived = derive(values, states)
        except Exception as error:  # noqa: BLE001 - a metric costs only itself
            report(id, error)
            derived = Missing(describe_error(error))
        if derived is not None:
            values[id] = derived


def _by_domain(states: Mapping[str, Floats]) -> dict[str, dict[str, Floats]]:
    found: dict[str, dict[str, Floats]] = {}
    for name in _names_of_domains(tuple(states)):
        base, domain = split_domain(name)
        found.setdefault(domain, {})[base] = states[name]
    return found


@lru_cache(maxsize=1 << 10)
def _names_of_domains(states: tuple[str, ...]) -> list[str]:
    return [name for name in states if BY in name]


def _named(values: Values, missing: Mapping[str, str], nonfinite: Mapping[str, float], vocabulary: str) -> Measured:
    names = _names(tuple(values), vocabulary)
    absent = {id: value.reason for id, value in values.items() if isinstance(value, Missing)}
    found: dict[str, Any] = dict(zip(names.values(), values.values(), strict=True))
    for id in absent:
        del found[names[id]]
    reasons = dict(zip(_names(tuple(missing), vocabulary).values(), missing.values(), strict=True))
    # A metric that any batch of the step has replaces the reason of a batch that lacks its inputs.
    for id in values.keys() & missing.keys():
        reasons.pop(names[id], None)
    # A domain that a step has too little of is no news; the reasons of all sequences are.
    reasons |= {names[id]: reason for id, reason in absent.items() if BY not in id}
    for id, factor in _factors(tuple(values), vocabulary).items():
        if names[id] in found:
            found[names[id]] /= factor
    for id, count in nonfinite.items():
        if names[id] in found:
            found[f"{NONFINITE}{names[id]}"] = count
    return Measured(found, reasons)


@lru_cache(maxsize=1 << 10)
def _names(ids: tuple[str, ...], vocabulary: str) -> dict[str, str]:
    return {id: _name(id, vocabulary)[0] for id in ids}


@lru_cache(maxsize=1 << 10)
def _factors(ids: tuple[str, ...], vocabulary: str) -> dict[str, float]:
    found = {id: _name(id, vocabulary)[1] for id in ids}
    return {id: factor for id, factor in found.items() if factor is not None}


@lru_cache(maxsize=1 << 14)  # 64 domains of every metric of the data part
def _name(id: str, vocabulary: str) -> tuple[str, float | None]:
    """Return the name of a metric in a vocabulary, and the factor of its values there."""
    name = vocabulary_name(REGISTRY.metric(id), vocabulary)
    return name.pattern, name.factor


def written_name(id: str, vocabulary: str) -> str:
    """Return the name of a metric in a vocabulary; ValueError for one that windsock does not write."""
    return _name(id, vocabulary)[0]


def ids_in_order(states: Sequence[str]) -> list[str]:
    """Return the ids of the metrics of states, without derived ones, in the order of ``finished``."""
    return [id for finishing in _finishings(tuple(states)) for id in finishing.ids]


def _explained_variance(values: Values, states: Mapping[str, Floats]) -> float | Missing | None:
    """Return 1 - Var(R - V0) / Var(R)."""
    returns, residual = states.get("reward/returns:moments"), states.get("value/residual:moments")
    if returns is None or residual is None:
        return None
    if returns[0] == 0:
        return Missing(NO_TOKEN)
    if returns[2] == 0:
        return Missing("all returns are equal")
    # Both are over the same tokens, so that squares can stand for variances.
    return float(1.0 - residual[2] / returns[2])


def _total_loss(values: Values, states: Mapping[str, Floats]) -> float | Missing | None:
    """Return the loss that the trainer differentiates: policy gradient, KL and entropy with their coefficients."""
    weighted = values.get("policy/loss/weighted_pg")
    result = weighted if isinstance(weighted, float) else values.get("policy/loss/pg")
    terms = [
        (1.0, values.get("policy/kl_loss_coef"), values.get("policy/kl_loss")),
        (-1.0, values.get("policy/entropy_coef"), _entropy_term(states)),
    ]
    for sign, coefficient, term in terms:
        if isinstance(coefficient, float):
            # A sum without one of its terms is not the loss.
            if not isinstance(term, float):
                return Missing("a term of the loss is missing")
            result = result + sign * coefficient * term if isinstance(result, float) else result
    return result


def _entropy_term(states: Mapping[str, Floats]) -> float | Missing | None:
    state = states.get("policy/entropy:loss")
    return None if state is None else RATIO.values(state)["ratio"]


def _effective_share(*names: str) -> Derivation:
    """Derive the effective sample size from the first of some states that there is."""

    def derive(values: Values, states: Mapping[str, Floats]) -> float | Missing | None:
        found = [states[name] for name in names if name in states]
        return effective_share(found[0]) if found else None

    return derive


def effective_share(state: Floats) -> float | Missing:
    """Return (Σw)² / (n·Σw²), the effective share of the weights; from moments, Σw² = n·(mean² + variance)."""
    count, total, squares = (float(slot) for slot in state[:3])
    if count == 0:
        return Missing(NO_TOKEN)
    mean = total / count
    mean_square = mean * mean + squares / count
    if mean_square == 0:  # all have underflowed, or their squares have
        return Missing("all ratios are zero")
    return mean * mean / mean_square


def _chi2_token(values: Values, states: Mapping[str, Floats]) -> float | Missing | None:
    """Return the mean of w² - 1."""
    state = states.get("policy/mismatch/ratio:moments")
    if state is None:
        return None
    count, total, squares = (float(slot) for slot in state[:3])
    if count == 0:
        return Missing(NO_TOKEN)
    excess = total / count - 1.0
    # Not mean² - 1, which cancels where the engines agree.
    return squares / count + excess * (excess + 2.0)


DERIVED: dict[str, Derivation] = {
    "value/explained_variance": _explained_variance,
    "policy/loss/total": _total_loss,
    "policy/mismatch/effective_sample_size": _effective_share("policy/mismatch/ratio:moments"),
    "policy/mismatch/truncated_weight/effective_sample_size": _effective_share(
        "policy/mismatch/truncated_weight:moments", "policy/mismatch/truncated_weight:sequences"
    ),
    "policy/mismatch/chi2_token": _chi2_token,
}

DERIVED_FROM = ("policy/loss/weighted_pg", "policy/loss/pg", "policy/kl_loss")
"""The metrics whose reasons become those of derived ones."""


def _states_of(*ids: str) -> frozenset[str]:
    """Return the states that have a metric."""
    return frozenset(quantity.state for quantity in BY_STATE.values() if not quantity.metrics.keys().isdisjoint(ids))


STATES_OF_DERIVED: dict[str, frozenset[str]] = {
    "value/explained_variance": frozenset({"reward/returns:moments", "value/residual:moments"}),
    "policy/loss/total": _states_of(*DERIVED_FROM, "policy/kl_loss_coef", "policy/entropy_coef")
    | {"policy/entropy:loss"},
    "policy/mismatch/effective_sample_size": frozenset({"policy/mismatch/ratio:moments"}),
    "policy/mismatch/truncated_weight/effective_sample_size": frozenset(
        {"policy/mismatch/truncated_weight:moments", "policy/mismatch/truncated_weight:sequences"}
    ),
    "policy/mismatch/chi2_token": frozenset({"policy/mismatch/ratio:moments"}),
}
"""The states of which each derivation looks at some."""
