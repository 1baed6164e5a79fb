"""Resolution of the names of a run: what each name means there, and why.

Every source that knows a name is a candidate. The source that the user states, the other names of the run, its
config and the values narrow the candidates, in this order. One meaning is left, several that agree in what is said,
several that do not (the name is ambiguous, and nothing is judged by it), or none (the name is unknown).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from barograph.catalogue.evidence import ConfigFacts, Evidence
from barograph.catalogue.names import Candidate, Match, shaped
from barograph.catalogue.sources import (
    COMMON,
    NameShape,
    heirs_of,
    joined_bits,
    producer_bits,
    producers_of,
    source_bits,
)
from barograph.catalogue.spec import FRAMEWORKS, MetricName, Text

Series = Callable[[str], Iterable[float]]

_NEVER_NEGATIVE = ("k2", "k3")

_SHARES = ("fraction", "probability")

_ROUNDING = 1e-6

_NEAR_ZERO = 0.1  # nats: a signed estimate of so small a KL is negative about as often as positive

_ENOUGH = 10  # values near 0 without a negative one: less than one chance in a hundred for a signed estimate

_SAME_RATIO = 0.25  # spread of the middle half of a ratio, relative to its median, that counts as constant


def contradiction(name: str, match: Match, series: Series) -> Text | None:
    """Return why the values of a name cannot be those of a metric; None where they can."""
    metric, difference = match.metric, match.name.difference
    changed = difference is not None and {"sign", "unit", "meaning", "estimator"} & set(difference.kinds)
    is_configured = difference is not None and "estimator" in difference.kinds
    positive = _estimator(match) in _NEVER_NEGATIVE and not is_configured
    if not (positive or (metric.unit in _SHARES and not changed)):
        return None
    values = _finite(series(name))
    negative = sum(value < -_ROUNDING for value in values)
    what = f"a {_estimator(match)} estimate" if positive else "a share"
    zh = f"{_estimator(match)} 估计" if positive else "比例"
    if negative:
        return Text(
            f"It is not {metric.id}: {what} is never negative, and {negative} of {len(values)} values are.",
            f"不是 {metric.id}：{zh}不会为负，而 {len(values)} 个值中有 {negative} 个为负。",
        )
    above = sum(value > 1.0 + _ROUNDING for value in values) if metric.unit in _SHARES and not changed else 0
    if above:
        return Text(
            f"It is not {metric.id}: a share is at most 1, and {above} of {len(values)} values are above.",
            f"不是 {metric.id}：比例最大为 1，而 {len(values)} 个值中有 {above} 个更大。",
        )
    return None


def doubt(name: str, match: Match, series: Series) -> Text | None:
    """Return why the values of a name are hardly those of a signed estimate; None where they may be."""
    if _estimator(match) != "k1":
        return None
    values = _finite(series(name))
    near = [value for value in values if abs(value) < _NEAR_ZERO]
    if min(values, default=-1.0) >= 0.0 and len(near) >= _ENOUGH:
        return Text(
            f"It is hardly {match.metric.id}: a signed estimate is negative about half of the time when it is small, "
            f"and none of {len(near)} small values is.",
            f"不太可能是 {match.metric.id}：带符号的估计接近 0 时约半数为负，而 {len(near)} 个接近 0 的值都不为负。",
        )
    beta = _share_of_loss(name, values, series)
    if beta is not None:
        return Text(
            f"It is hardly {match.metric.id}: the loss is {beta:.2g} times this value in most steps, so that it is a "
            "term of the loss.",
            f"不太可能是 {match.metric.id}：多数步中损失是该值的 {beta:.2g} 倍，可见它是损失的一项。",
        )
    return None


def _estimator(match: Match) -> str:
    """Return the estimator of the logged number, which a difference may change."""
    difference = match.name.difference
    return "" if difference is not None and "sign" in difference.kinds else match.metric.estimator


def _share_of_loss(name: str, values: list[float], series: Series) -> float | None:
    """Return the constant ratio of the loss to a series, or None where it is not constant or not positive."""
    head = name[: len(name) - len(name.rpartition("/")[2])]
    losses = _finite(series(f"{head}loss"))
    if len(losses) != len(values):
        return None
    ratios = sorted(loss / value for loss, value in zip(losses, values, strict=True) if value > _ROUNDING)
    if len(ratios) < _ENOUGH:
        return None
    low, middle, high = (ratios[len(ratios) * quarter // 4] for quarter in (1, 2, 3))
    return middle if middle > 0 and high - low <= _SAME_RATIO * middle else None


def _finite(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values if abs(value) < float("inf")]


_WITHOUT_FRAMEWORK = (COMMON, "wandb")

_OWN_NAMES = "barograph/"  # what barograph says of a run that it records, whoever writes the other names

_MIN_KNOWN = 0.3  # share of a run's names that must be known to name its source


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a name means in a run: the candidates that are left, the likeliest first, and why the others are not."""

    name: str
    candidates: tuple[Candidate, ...] = ()
    reasons: tuple[Text, ...] = ()

    @property
    def state(self) -> str:
        """``one`` meaning, several that ``agree``, ``ambiguous``, or ``unknown``."""
        if not self.candidates:
            return "unknown"
        if len({_metric_of(candidate.match) for candidate in self.candidates}) > 1:
            return "ambiguous"
        return "one" if len(self.candidates) == 1 else "agree"

    @property
    def match(self) -> Match | None:
        """The meaning; None where the name is ambiguous or unknown."""
        return self.candidates[0].match if self.state in ("one", "agree") else None

    @property
    def judged(self) -> Match | None:
        """The meaning by which the values may be judged; None where the candidates differ in the number itself."""
        return self.match if len({_number_of(candidate.match.name) for candidate in self.candidates}) == 1 else None

    @property
    def meanings(self) -> dict[str, tuple[str, ...]]:
        """The sources of each metric that the name can mean here, by the metric's id."""
        found: dict[str, tuple[str, ...]] = {}
        for candidate in self.candidates:
            id = candidate.match.metric.id
            found[id] = tuple(dict.fromkeys((*found.get(id, ()), *candidate.sources)))
        return found


def _metric_of(match: Match) -> tuple[str, bool]:
    return match.metric.id, match.evaluated


def _number_of(name: MetricName) -> tuple[float | None, bool, bool]:
    """Return what decides how a logged number is judged: its factor, its sign, and whether it is comparable."""
    difference = name.difference
    if difference is None:
        return 1.0, False, True
    factor = 1.0 if difference.factor is None else difference.factor
    return factor, difference.factor is None and "sign" in difference.kinds, difference.comparable


class RunNames:
    """The names of a run, each with its meaning.

    ``source`` is what the user states; ``prior`` is the source that the run's files state, which other names may
    refute. ``series`` returns the values of a name; it is called only where they can decide. ``taught`` are the
    meanings that the user has described in a file.
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        source: str | None = None,
        prior: str | None = None,
        config: Mapping[str, Any] | None = None,
        series: Series | None = None,
        taught: Mapping[str, Match] | None = None,
    ) -> None:
        self.names = list(dict.fromkeys(names))
        self._given = source
        self._prior = prior
        present = frozenset(self.names)
        self._series = (lambda name: series(name) if name in present else ()) if series is not None else None
        self._taught = dict(taught or {})
        self._found = {name: shaped(name) for name in self.names if name not in self._taught}
        # A sick run has hundreds of barograph/nonfinite/…: they tell nothing about the framework.
        shapes = {name: shape for name, (shape, _) in self._found.items() if not name.startswith(_OWN_NAMES)}
        self._evidence = Evidence(shapes, config or {})
        self._resolved: dict[str, Resolution] = {}
        # Where neither values nor the name itself decide: the places and bits of what is left, and why.
        self._decided: dict[NameShape, tuple[list[tuple[int, int]], tuple[Text, ...]]] = {}
        self._settled = series is None

    def resolve(self, name: str) -> Resolution:
        """Return what a name means in this run."""
        self._settle()
        found = self._resolved.get(name)
        if found is None:
            found = self._resolved[name] = self._resolution(name)
        return found

    def resolve_all(self) -> None:
        """Resolve every name now, so that no values are read later."""
        for name in self.names:
            self.resolve(name)

    def is_taught(self, name: str) -> bool:
        """Return whether the user has described a name."""
        return name in self._taught

    def match(self, name: str) -> Match | None:
        """Return the meaning of a name; None where it is ambiguous or unknown."""
        return self.resolve(name).match

    def judged(self, name: str) -> Match | None:
        """Return the meaning by which the values of a name may be judged, or None."""
        return self.resolve(name).judged

    @property
    def config(self) -> ConfigFacts:
        """What the config of the run says about its numbers."""
        return self._evidence.facts

    @cached_property
    def known(self) -> list[str]:
        """The names that have a meaning, ambiguous ones included."""
        return [name for name in self.names if name in self._taught or self._candidates(name)]

    @cached_property
    def unknown(self) -> list[str]:
        """The names that no source knows."""
        known = set(self.known)
        return [name for name in self.names if name not in known]

    @cached_property
    def ambiguous(self) -> list[str]:
        """The names whose meaning cannot be decided."""
        return [name for name in self.known if self.resolve(name).state == "ambiguous"]

    @cached_property
    def source(self) -> str | None:
        """The source of most names, with the trainer or version where the names decide it; None where few are known."""
        if self._given is not None:
            return self._given
        self._settle()
        producer = self.producer
        if producer is None or producer == self._prior:
            return producer
        era = self._evidence.era_of(producer)
        return f"{producer}/{era}" if era else producer

    @cached_property
    def producer(self) -> str | None:
        """The framework of most names; None where few are known."""
        evidence = self._evidence
        # The vocabulary of a run is no source of names that are all from elsewhere.
        stated = self._prior if self._prior and (not self.names or evidence.weight(source_bits(self._prior))) else None
        known = sum(bool(found) for _, found in self._found.values())
        if not self.names or known + len(self._taught) < _MIN_KNOWN * len(self.names):
            return stated
        weights = {producer: evidence.weight(producer_bits(producer)) for producer in FRAMEWORKS}
        weight = max(weights.values())
        if stated is not None and evidence.weight(source_bits(stated)) >= weight:
            return stated
        best = _likeliest([producer for producer, each in weights.items() if each == weight])
        return best if weight and best != COMMON else stated

    def _candidates(self, name: str) -> tuple[Candidate, ...]:
        """Return the meanings of a name; those that fit any name count only if the run is of their framework."""
        shape, found = self._found.get(name) or shaped(name)
        if shape.weak & ~self._own and not name.startswith(_OWN_NAMES):
            return tuple(one for one in found if not one.generic or one.bits & self._own)
        return found

    @cached_property
    def _own(self) -> int:
        """The bits of the sources that the run is of."""
        bits = producer_bits(self.producer) if self.producer in FRAMEWORKS else 0
        stated = [source_bits(source) for source in (self._given, self._prior) if source is not None]
        return joined_bits((bits, *stated))

    def _settle(self) -> None:
        """Exclude the trainers that the values of a KL contradict, for all names."""
        if self._settled:
            return
        self._settled = True
        for name in self.names:
            if name.rpartition("/")[2] == "kl" and name not in self._taught:
                before = self._resolution(name, by_values=False)
                after = self._resolution(name)
                kept = _bits_of(after.candidates)
                same = sum(map(producer_bits, producers_of(kept)))
                self._decided.clear()
                self._evidence.refute(_bits_of(before.candidates) & ~kept & same)
                self._resolved[name] = after

    def _resolution(self, name: str, by_values: bool = True) -> Resolution:
        if name in self._taught:
            return Resolution(name, (Candidate(self._taught[name], (0, ()), producer_bits("names.yaml")),))
        shape, listed = self._found.get(name) or shaped(name)
        decided = self._decided.get(shape)
        if decided is not None:
            places, reasons = decided
            return Resolution(name, tuple([_with_bits(listed[at], bits) for at, bits in places]), reasons)
        narrowed = self._narrowed(name, self._candidates(name), by_values)
        if not narrowed.is_of_name:
            places = [(_place(listed, one), one.bits) for one in narrowed.left]
            self._decided[shape] = places, tuple(narrowed.reasons)
        return Resolution(name, narrowed.left, tuple(narrowed.reasons))

    def _narrowed(self, name: str, found: tuple[Candidate, ...], by_values: bool) -> _Narrowing:
        narrowed = _Narrowing(name, found, self._evidence, self._series if by_values else None)
        narrowed.by_source(self._given)
        narrowed.by_signs(self._prior)
        narrowed.by_other_names(self._prior)
        narrowed.by_values(contradiction)
        narrowed.by_trainer()
        narrowed.by_values(doubt)
        narrowed.by_pattern()
        return narrowed


def _likeliest(equals: list[str]) -> str | None:
    """Return the framework of equals that the others are built on; None where two are not related."""
    heirs = {heir for base in equals for heir in heirs_of(base)}
    own = [producer for producer in equals if producer not in heirs]
    with_framework = [producer for producer in own if producer not in _WITHOUT_FRAMEWORK] or own
    return with_framework[0] if len(with_framework) == 1 else None


def _bits_of(candidates: Iterable[Candidate]) -> int:
    return joined_bits(candidate.bits for candidate in candidates)


def _with_bits(candidate: Candidate, bits: int) -> Candidate:
    return candidate if candidate.bits == bits else candidate._replace(bits=bits)


def _place(found: tuple[Candidate, ...], candidate: Candidate) -> int:
    return next(place for place, one in enumerate(found) if one.match is candidate.match)


class _Narrowing:
    """The candidates of one name, narrowed step by step; a step that would leave none changes nothing."""

    def __init__(self, name: str, found: tuple[Candidate, ...], evidence: Evidence, series: Series | None) -> None:
        self.name = name
        self.left = found
        self.reasons: list[Text] = []
        self._evidence = evidence
        self._series = series
        self.is_of_name = name.rpartition("/")[2] == "kl"  # else all names of the same patterns are decided alike

    def by_source(self, source: str | None) -> None:
        """Keep the meanings of the source that the user states."""
        if source is not None:
            self._keep(source_bits(source), lambda: Text(f"The source is {source}.", f"来源为 {source}。"))

    def by_signs(self, prior: str | None) -> None:
        """Drop the sources that always log names which this run lacks, or that the config refutes."""
        self._keep(self._evidence.possible(self.name), lambda: self._evidence.why_impossible(self._bits))
        # A framework's config may be that of a run which barograph writes.
        if self._evidence.configured and not (prior and self._bits & source_bits(prior)):
            self._keep(self._evidence.configured, lambda: self._evidence.why_impossible(self._bits))

    def by_other_names(self, prior: str | None) -> None:
        """Keep the frameworks that explain the other names of the run best."""
        producers = producers_of(self._bits)
        kept, reason = self._evidence.best_producers(producers, prior)
        self._keep(sum(map(producer_bits, kept)), lambda: reason)
        if len(kept) > 1 and COMMON in kept:
            self._keep(self._bits & ~producer_bits(COMMON), None)

    def by_trainer(self) -> None:
        """Drop the meanings of trainers and versions that explain the other names clearly worse."""
        for candidate in self.left:
            better = next((one for one in self.left if self._evidence.beats(one.bits, candidate.bits)), None)
            if better is not None:
                reason = self._evidence.why_better(better.bits, candidate.bits)
                self._drop(candidate, reason)

    def by_values(self, rule: Callable[..., Text | None]) -> None:
        """Drop the meanings that the values of the run contradict."""
        if self._series is None or len({_metric_of(one.match) for one in self.left}) < 2:
            return
        self.is_of_name = True
        for candidate in self.left:
            reason = rule(self.name, candidate.match, self._series)
            if reason is not None:
                self._drop(candidate, reason)

    def by_pattern(self) -> None:
        """Keep the most specific patterns."""
        best = min((candidate.rank for candidate in self.left), default=None)
        self.left = tuple(candidate for candidate in self.left if candidate.rank == best)

    @property
    def _bits(self) -> int:
        return _bits_of(self.left)

    def _keep(self, bits: int, reason: Callable[[], Text | None] | None) -> None:
        kept = tuple(one._replace(bits=one.bits & bits) for one in self.left if one.bits & bits)
        if not kept:
            return
        before = {_metric_of(one.match) for one in self.left}
        said = reason() if reason is not None and before != {_metric_of(one.match) for one in kept} else None
        self.reasons += [said] if said is not None else []
        self.left = kept

    def _drop(self, candidate: Candidate, reason: Text) -> None:
        if len(self.left) > 1:
            self.left = tuple(one for one in self.left if one is not candidate)
            self.reasons += [reason] if reason not in self.reasons else []
