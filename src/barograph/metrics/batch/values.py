"""Named values of merged states, and the metrics that are derived from several states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from barograph.base.arrays import Bools, Floats
from barograph.base.formatting import describe_error
from barograph.base.model import Missing
from barograph.catalogue.registry import REGISTRY, vocabulary_name
from barograph.catalogue.spec import BY, has_domains, split_domain
from barograph.metrics.batch.plan import PackedStates, Packing, packing_of
from barograph.metrics.batch.quantities import BY_STATE, NO_TOKEN
from barograph.metrics.states.kinds import Quantiles, StateKind

Values = dict[str, "float | Missing"]
Derivation = Callable[[Values, Mapping[str, Floats]], "float | Missing | None"]
"""Takes the values and the states by id; returns None where the metric does not apply."""

FAILED_ELSEWHERE = "it could not be computed on another rank"
LARGE = 2.0**48  # counts below it, in sixteenths, are added without rounding
NONFINITE = "barograph/nonfinite/"  # before the name of a metric: how many of its inputs were not finite


class Measured(dict[str, float]):
    """Values of metrics by name, and in ``missing`` the reasons for metrics without a value."""

    def __init__(
        self, values: Mapping[str, float] | Iterable[tuple[str, Any]], reasons: Mapping[str, str] | _Reasons
    ) -> None:
        super().__init__(values)
        self._reasons = reasons
        self._missing: dict[str, str] | None = None

    @property
    def missing(self) -> dict[str, str]:
        """The reasons by name. There may be more than values, and few read them: they are named when asked for."""
        if self._missing is None:
            self._missing = self._reasons.named() if isinstance(self._reasons, _Reasons) else dict(self._reasons)
        return self._missing

    def has_reasons_of(self, other: Measured) -> bool:
        """Return whether the reasons are the same, without naming them where that can be seen."""
        return self._reasons == other._reasons or self.missing == other.missing


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
    packed = PackedStates.of(states)
    # Of the metrics that others are derived from the reasons count too.
    values: Values = {id: Missing(missing[id]) for id in DERIVED_FROM if id in missing}
    nonfinite: dict[str, float] = {}
    usable: Mapping[str, Floats] = packed
    for finishing in _finishings(packed.packing):
        try:
            if finishing.add_values(packed.vector, values, nonfinite):
                continue
        except Exception:  # noqa: BLE001 - a metric costs only itself: find the one
            pass
        usable = {name: state for name, state in packed.items() if not has_failed(state)}
        for name in finishing.names:
            if name in usable:
                _add_one(name, usable[name], values, nonfinite, report)
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
    """How the values of some of the states in a vector are computed together."""

    def __init__(self, names: Sequence[str], places: Mapping[str, slice]) -> None:
        self.names = tuple(names)
        metrics = [(name, id, statistic) for name in names for id, statistic in BY_STATE[name].metrics.items()]
        self._metrics = metrics
        self.ids = [id for _, id, _ in metrics]
        self._rows = np.array([self.names.index(name) for name, _, _ in metrics])
        self._bad = np.array([places[name].stop - 1 for name in names])

    def add_values(self, vector: Floats, values: Values, nonfinite: dict[str, float]) -> bool:
        """Add the values of the metrics, and the numbers of inputs that are not finite.

        Adds nothing and returns False where a state has failed.
        """
        bad = vector[self._bad]
        if np.count_nonzero(bad):
            if np.isnan(bad).any():
                return False
            counts = zip(self.ids, bad[self._rows].tolist(), strict=True)
            nonfinite |= {id: count for id, count in counts if count}
        found, empty = self._computed(vector)
        values.update(zip(self.ids, found.tolist(), strict=True))
        if np.count_nonzero(empty):
            for place in np.flatnonzero(empty[self._rows]):
                name, id, _ = self._metrics[place]
                values[id] = Missing(BY_STATE[name].empty)
        return True

    @abstractmethod
    def _computed(self, vector: Floats) -> tuple[Floats, Bools]:
        """Return the values by metric, and by state whether it is empty."""


class _ByFormulas(_Finishing):
    """The values of all kinds that have formulas."""

    def __init__(self, names: Sequence[str], places: Mapping[str, slice]) -> None:
        super().__init__(names, places)
        kinds = {name: BY_STATE[name].kind for name in names}

        def place(name: str, slot: str) -> int:
            return int(places[name].start) + kinds[name].slots.index(slot)

        formulas = [(name, kinds[name].formulas[statistic]) for name, _, statistic in self._metrics]
        self._numerators = np.array([place(name, formula.numerator) for name, formula in formulas])
        divided = [
            (number, place(name, formula.denominator))
            for number, (name, formula) in enumerate(formulas)
            if formula.denominator
        ]
        self._divided = np.array([number for number, _ in divided], np.int64)
        self._denominators = np.array([denominator for _, denominator in divided], np.int64)
        self._roots = np.flatnonzero([formula.is_root for _, formula in formulas])
        # A slot of a kind whose states are never empty is compared with NaN, which nothing equals.
        marks = [kinds[name].empty_mark or (kinds[name].slots[-1], np.nan) for name in names]
        self._marks = np.array([place(name, slot) for name, (slot, _) in zip(names, marks, strict=True)])
        self._empty = np.array([content for _, content in marks])

    @np.errstate(all="ignore")
    def _computed(self, vector: Floats) -> tuple[Floats, Bools]:
        found = vector[self._numerators]
        found[self._divided] /= vector[self._denominators]
        if len(self._roots):
            found[self._roots] = np.sqrt(found[self._roots])
        return found, vector[self._marks] == self._empty


class _ByQuantiles(_Finishing):
    """The quantiles of all states of counts in bins: the counts of all of them are added up in one run."""

    def __init__(self, names: Sequence[str], places: Mapping[str, slice]) -> None:
        super().__init__(names, places)
        self._places = [places[name] for name in names]
        self._kinds = [kind for name in names if isinstance(kind := BY_STATE[name].kind, Quantiles)]
        self._columns = np.array([Quantiles.statistics.index(statistic) for _, _, statistic in self._metrics])
        self._percents = Quantiles.percents[self._columns]
        slots = np.concatenate([np.arange(place.start, place.stop) for place in self._places])
        is_run = bool((np.diff(slots) == 1).all())
        self._slots: Any = slice(int(slots[0]), int(slots[-1]) + 1) if is_run else slots
        widths = np.array([kind.width for kind in self._kinds])
        self._starts = np.cumsum(widths) - widths
        self._lasts = self._starts + widths - 2
        self._middles = np.concatenate([[*kind.middles, np.nan] for kind in self._kinds])

    def _computed(self, vector: Floats) -> tuple[Floats, Bools]:
        counts = vector[self._slots]
        below = counts.cumsum()
        if not (np.minimum.reduce(counts) >= 0 and below[-1] < LARGE):
            return self._one_by_one(vector)
        before = below[self._starts] - counts[self._starts]
        totals = below[self._lasts] - before
        # Multiplied first: 7 % of 100 are 7, and 0.07 times 100 is more.
        wanted = before[self._rows] + self._percents * totals[self._rows] / 100
        found = self._middles.take(below.searchsorted(wanted), mode="clip")
        bad = vector[self._bad]
        if np.count_nonzero(bad):
            found[bad[self._rows] != 0] = np.nan
        return found, (totals == 0) & (bad == 0)

    def _one_by_one(self, vector: Floats) -> tuple[Floats, Bools]:
        """Return the values of counts that no data has: each state by itself."""
        alone = [kind.values_of(vector[None, place]) for kind, place in zip(self._kinds, self._places, strict=True)]
        found = np.concatenate([values for values, _ in alone])
        return found[self._rows, self._columns], np.concatenate([empty for _, empty in alone])


class _OfKind(_Finishing):
    """The values of states of one kind, which has no formulas."""

    def __init__(self, names: Sequence[str], places: Mapping[str, slice]) -> None:
        super().__init__(names, places)
        self._kind = BY_STATE[self.names[0]].kind
        self._slots = np.array([np.arange(places[name].start, places[name].stop) for name in names])
        self._columns = np.array([self._kind.statistics.index(statistic) for _, _, statistic in self._metrics])

    def _computed(self, vector: Floats) -> tuple[Floats, Bools]:
        found, empty = self._kind.values_of(vector[self._slots])
        return found[self._rows, self._columns], empty


@lru_cache(maxsize=1 << 10)
def _finishings(packing: Packing) -> tuple[_Finishing, ...]:
    """Return the ways to finish those of the states in a vector that have metrics."""
    alike: dict[Any, list[str]] = {}
    for name in packing.names:
        quantity = BY_STATE[name]
        if quantity.metrics:
            alike.setdefault(_way(quantity.kind), []).append(name)
    ways = sorted(alike, key=lambda way: way is not _ByFormulas)
    return tuple((way if isinstance(way, type) else _OfKind)(alike[way], packing.places) for way in ways)


def _way(kind: StateKind) -> Any:
    """Return the class that finishes a kind together with others, or the kind."""
    return _ByFormulas if kind.formulas else _ByQuantiles if isinstance(kind, Quantiles) else kind


def _add_one(
    name: str,
    state: Floats,
    values: Values,
    nonfinite: dict[str, float],
    report: Callable[[str, Exception], None],
) -> None:
    """Add the values of one state, or why it has none."""
    try:
        for finishing in _finishings(packing_of((name,))):
            finishing.add_values(state, values, nonfinite)
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
    for name in _names_of_domains(states.packing if isinstance(states, PackedStates) else packing_of(tuple(states))):
        base, domain = split_domain(name)
        found.setdefault(domain, {})[base] = states[name]
    return found


@lru_cache(maxsize=1 << 10)
def _names_of_domains(packing: Packing) -> list[str]:
    return [name for name in packing.names if BY in name]


def _named(values: Values, missing: Mapping[str, str], nonfinite: Mapping[str, float], vocabulary: str) -> Measured:
    naming = _naming(tuple(values), vocabulary)
    names = naming.names
    absent = {id: value.reason for id, value in values.items() if type(value) is Missing}
    found = Measured(
        zip(names.values(), values.values(), strict=True), _Reasons(missing, naming.ids, absent, vocabulary)
    )
    for id in absent:
        del found[names[id]]
    for name, factor in naming.factors:
        if name in found:
            found[name] /= factor
    for id, count in nonfinite.items():
        if names[id] in found:
            found[f"{NONFINITE}{names[id]}"] = count
    return found


class _Naming(NamedTuple):
    """The names of some metrics in a vocabulary, and the factors of those that have one."""

    ids: tuple[str, ...]  # the same object in every step, so that comparing them takes no time
    names: dict[str, str]
    factors: list[tuple[str, float]]


@lru_cache(maxsize=1 << 10)
def _naming(ids: tuple[str, ...], vocabulary: str) -> _Naming:
    factors = [_name(id, vocabulary) for id in ids]
    return _Naming(ids, _names(ids, vocabulary), [(name, factor) for name, factor in factors if factor is not None])


class _Reasons(NamedTuple):
    """The reasons for metrics that batches lack the inputs of, and for those that came out without a value, by id."""

    missing: Mapping[str, str]
    measured: tuple[str, ...]
    absent: Mapping[str, str]
    vocabulary: str

    def named(self) -> dict[str, str]:
        """Return the reasons by name."""
        names = _names(self.measured, self.vocabulary)
        of_missing = _names(tuple(self.missing), self.vocabulary)
        found = dict(zip(of_missing.values(), self.missing.values(), strict=True))
        # A metric that any batch of the step has replaces the reason of a batch that lacks its inputs.
        for id in names.keys() & self.missing.keys():
            found.pop(names[id], None)
        # A domain that a step has too little of is no news; the reasons of all sequences are.
        return found | {names[id]: reason for id, reason in self.absent.items() if BY not in id}


@lru_cache(maxsize=1 << 10)
def _names(ids: tuple[str, ...], vocabulary: str) -> dict[str, str]:
    return {id: _name(id, vocabulary)[0] for id in ids}


@lru_cache(maxsize=1 << 14)  # 64 domains of every metric of the data part
def _name(id: str, vocabulary: str) -> tuple[str, float | None]:
    """Return the name of a metric in a vocabulary, and the factor of its values there."""
    name = vocabulary_name(REGISTRY.metric(id), vocabulary)
    return name.pattern, name.factor


def written_name(id: str, vocabulary: str) -> str:
    """Return the name of a metric in a vocabulary; ValueError for one that barograph does not write."""
    return _name(id, vocabulary)[0]


def ids_in_order(states: Sequence[str]) -> list[str]:
    """Return the ids of the metrics of states, without derived ones, in the order of ``finished``."""
    return [id for finishing in _finishings(packing_of(tuple(states))) for id in finishing.ids]


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
    if state is None:
        return None
    numerator, denominator = state[:2].tolist()
    return numerator / denominator if denominator else Missing("the denominator is zero")


def _effective_share(*names: str) -> Derivation:
    """Derive the effective sample size from the first of some states that there is."""

    def derive(values: Values, states: Mapping[str, Floats]) -> float | Missing | None:
        found = [states[name] for name in names if name in states]
        return effective_share(found[0]) if found else None

    return derive


def effective_share(state: Floats) -> float | Missing:
    """Return (Σw)² / (n·Σw²), the effective share of the weights; from moments, Σw² = n·(mean² + variance)."""
    slots: list[float] = state[:3].tolist()
    count, total, squares = slots
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
    slots: list[float] = state[:3].tolist()
    count, total, squares = slots
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
