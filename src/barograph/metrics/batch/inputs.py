"""What quantities are computed from: the options of a measurement, which are the clips and losses of a trainer's
configuration, and the interface of a batch, on the host and on devices. The data part of a step is also computed by
domain, from the sequences of each label that the trainer gives: states are named ``{state}/by/{label}``, and merge as
those of all sequences do. Quantiles are left out: their states are long.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Bools, Floats, Ints
from barograph.base.errors import SettingsError
from barograph.catalogue.spec import BY, clean_label
from barograph.metrics.formulas import sequences
from barograph.metrics.formulas import sequences as groups
from barograph.metrics.formulas.sequences import REDUCTIONS, Reduction, numbered
from barograph.metrics.states.kinds import MEAN, StateKind


class Selection(ABC):
    """Interface of a batch from which quantities are computed, on the host and on devices."""

    given: frozenset[str]
    """The names of the batch's arrays."""
    options: Options
    counts: Ints
    """The number of valid tokens of each sequence."""
    response_lengths: Ints
    """The number of response tokens of each sequence, also those that ``keep`` excludes."""

    @abstractmethod
    def state(self, kind: StateKind, channel: str, rank: int) -> Floats:
        """Return the state of a channel over all its tokens."""

    def states(self, kind: StateKind, channels: tuple[str, ...], rank: int) -> Floats:
        """Return the states of some channels over all their tokens."""
        return np.array([self.state(kind, channel, rank) for channel in channels])

    @abstractmethod
    def totals(self, channel: str) -> Floats:
        """Return the sum of a channel per sequence, 0 for a sequence without tokens."""

    @abstractmethod
    def nonfinite(self, channel: str) -> Floats:
        """Return the number of a channel's values per sequence that are NaN or infinite."""

    @abstractmethod
    def subset(self, chosen: Bools) -> Selection:
        """Return the chosen sequences, for quantities of the data part that are not quantiles."""

    @abstractmethod
    def repeats(self) -> Bools:
        """Return which sequences end in a repetition of ``actions`` (``barograph.metrics.formulas.sequences``)."""

    @abstractmethod
    def sequence(self, name: str) -> NDArray[Any]:
        """Return an array of the sequences."""

    @cached_property
    def prompt_lengths(self) -> Ints:
        """The number of prompt tokens of each sequence."""
        return np.asarray(self.sequence("prompt_lengths"), np.int64)

    @cached_property
    def groups(self) -> groups.GroupScores:
        """The scores of each group, for the several metrics of groups."""
        return groups.summarised(self.scores, self.sequence("groups"), self.options.right_score)

    @cached_property
    def scores(self) -> Floats:
        """The score of each sequence, in double precision."""
        return np.asarray(self.sequence("scores"), np.float64)

    @cached_property
    def right_answers(self) -> Bools:
        """Which sequences have a right answer; one whose score is NaN has none."""
        return np.asarray(self.scores >= self.options.right_score)

    @cached_property
    def unknown_scores(self) -> Bools | None:
        """Which scores are NaN; None if all are known."""
        unknown = np.isnan(self.scores)
        return unknown if np.count_nonzero(unknown) else None

    def not_aborted(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values of sequences with a response token; all of them are returned as they are."""
        responding = self.response_lengths > 0
        return values if np.count_nonzero(responding) == len(values) else values[responding]

    def mean_total(self, channel: str, factor: float = 1.0) -> Floats:
        """Return the state of the mean of a channel's sums per sequence, times a factor."""
        return MEAN.from_values(0.0 + factor * self.totals(channel))  # 0 and not -0 for a factor of 0

    @cached_property
    def with_tokens(self) -> int:
        """The number of sequences that have a valid token."""
        return int(np.count_nonzero(self.counts))

    def sums(self, channel: str) -> Floats:
        """Return the sum of a channel for each sequence with a valid token."""
        return self.totals(channel)[self.some]

    def means(self, channel: str) -> Floats:
        """Return the mean of a channel for each sequence with a valid token."""
        return self.sums(channel) / self.counts[self.some]

    @cached_property
    def some(self) -> Ints | slice:
        """The sequences that have a valid token."""
        return slice(None) if self.with_tokens == len(self.counts) else np.flatnonzero(self.counts)

    def reduced(self, channel: str, weights: Floats | None = None, chosen: Bools | None = None) -> Floats:
        """Return the state of a loss, over all sequences or the chosen ones."""
        counts = self.counts if chosen is None else np.where(chosen, self.counts, 0)
        return self.reduced_totals(self.totals(channel), counts, partial(self.nonfinite, channel), weights)

    def reduced_totals(
        self, totals: Floats, counts: Ints, nonfinite: Callable[[], Floats], weights: Floats | None = None
    ) -> Floats:
        """Return the state of a loss from its totals per sequence; ``nonfinite`` returns what made them so."""
        sums = sequences.loss_sums(totals, counts, self.options.loss, weights)
        numerator, denominator = self._loss_of(sums)
        if math.isfinite(numerator):
            return np.array([numerator, denominator, 0.0])
        bad = nonfinite()
        if weights is not None:
            bad = np.where(np.isfinite(weights), bad, counts)
        # At least one: finite losses may add up to an infinity.
        return np.array([numerator, denominator, max(1.0, float(bad[counts > 0].sum()))])

    def _loss_of(self, sums: sequences.LossSums) -> tuple[float, float]:
        return sums.reduced(self.options.loss, self.options.loss_norm, self.options.loss_batch)


def clip_of(options: Options) -> tuple[float, float] | None:
    """Return the band outside of which tokens are clipped one by one."""
    return options.clip if options.level == "token" else None


class Truncation(NamedTuple):
    """The cap of importance weights, of each token or of each sequence."""

    level: str
    cap: float


class RejectionBounds(NamedTuple):
    """The bounds outside of which importance weights are rejected: of tokens, of sequences, or of their means."""

    level: str
    low: float
    high: float


LEVELS = TRUNCATION_LEVELS = ("token", "sequence")

REJECTION_LEVELS = ("token", "sequence", "geometric")


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of one measurement.

    ``clip`` is one number or ``(low, high)``, or None where the ratio is not clipped; ``dual_clip`` is the bound c
    of dual-clip PPO; ``value_clip`` and ``reward_clip`` are None where nothing is clipped; ``kl_coef`` is the
    weight of the KL in the reward, ``kl_loss_coef`` of that in the loss; ``loss`` is the reduction of losses,
    ``loss_norm`` the divisor of ``seq-mean-token-sum-norm`` and ``token-sum-norm``, and ``loss_batch`` the number of
    sequences that ``token-sum-norm`` sums over; a sequence of ``max_response_length`` or
    ``max_prompt_length`` tokens counts as truncated; ``right_score`` is the score of a right answer;
    ``temperature`` divides logits. ``truncate`` and ``reject`` are the off-policy correction, by the weight of
    trainer over rollout engine: a cap, or ``(level, cap)``, and ``(level, low, high)``. ``level`` is that of the
    ratio that the loss has: of each token, or of each sequence (GSPO).
    """

    clip: tuple[float, float] | None = (0.2, 0.2)
    dual_clip: float | None = None
    value_clip: float | None = None
    reward_clip: float | None = None
    kl_coef: float | None = None
    kl_loss_coef: float = 0.0
    entropy_coef: float = 0.0
    loss: Reduction = "seq-mean-token-mean"
    loss_norm: float | None = None
    loss_batch: int | None = None
    max_response_length: int | None = None
    max_prompt_length: int | None = None
    right_score: float = 1.0
    temperature: float = 1.0
    truncate: Truncation | None = None
    reject: RejectionBounds | None = None
    level: Literal["token", "sequence"] = "token"

    @classmethod
    def from_keywords(cls, given: dict[str, Any]) -> Options:
        """Return the checked options of a call's keywords; those of equal keywords are one object."""
        try:
            return _cached(tuple(given.items()))
        except TypeError:  # a list, which has no hash
            return cls._checked(given)

    @classmethod
    def _checked(cls, given: dict[str, Any]) -> Options:
        known = cls.__dataclass_fields__
        for name in given:
            if name not in known:
                raise SettingsError(f"measure: unknown option {name!r}; it takes {', '.join(known)}")
        clip = given.get("clip", (0.2, 0.2))
        if isinstance(clip, int | float):
            clip = (float(clip), float(clip))
        checked = {
            "clip": None if clip is None else tuple(clip),
            "truncate": _truncation(given.get("truncate")),
            "reject": _rejection(given.get("reject")),
        }
        options = cls(**{**given, **checked})
        options._check()
        return options

    def _check(self) -> None:
        clip = self.clip
        if clip is not None and (len(clip) != 2 or not all(0 <= side < math.inf for side in clip)):
            raise SettingsError(f"measure: clip: expected a number or (low, high), each 0 or more, got {clip}")
        if self.loss not in REDUCTIONS:
            raise SettingsError(f"measure: loss: expected one of {', '.join(REDUCTIONS)}, got {self.loss!r}")
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise SettingsError(f"measure: dual_clip: expected a bound above 1, got {self.dual_clip}")
        if self.level not in LEVELS:
            raise SettingsError(f"measure: level: expected one of {', '.join(LEVELS)}, got {self.level!r}")
        if self.loss.endswith("-norm") and not self.loss_norm:
            raise SettingsError(f"measure: loss {self.loss} needs loss_norm, its divisor")
        if self.loss == "token-sum-norm" and not (self.loss_batch and self.loss_batch > 0):
            raise SettingsError(
                "measure: loss token-sum-norm needs loss_batch, the number of sequences that an update sums over, got "
                f"{self.loss_batch}"
            )


@lru_cache(maxsize=256)
def _cached(keywords: tuple[tuple[str, Any], ...]) -> Options:
    return Options._checked(dict(keywords))


def _truncation(value: Any) -> Truncation | None:
    if value is None:
        return None
    level, cap = value if isinstance(value, tuple | list) and len(value) == 2 else ("token", value)
    # A weight of 1, which both engines agree on, is never cut.
    if level not in TRUNCATION_LEVELS or not _is_number(cap) or not 1 <= cap < math.inf:
        raise SettingsError(
            f"measure: truncate: expected a cap of 1 or more, or (level, cap) with a level of "
            f"{' or '.join(TRUNCATION_LEVELS)}, got {value!r}"
        )
    return Truncation(level, float(cap))


def _rejection(value: Any) -> RejectionBounds | None:
    if value is None:
        return None
    level, *bounds = value if isinstance(value, tuple | list) else ("",)
    known = level in REJECTION_LEVELS and len(bounds) == 2 and all(map(_is_number, bounds))
    if not known or not 0 <= bounds[0] <= 1 <= bounds[1]:
        raise SettingsError(
            f"measure: reject: expected (level, low, high) with a level of {', '.join(REJECTION_LEVELS)} and "
            f"0 <= low <= 1 <= high, got {value!r}"
        )
    return RejectionBounds(level, float(bounds[0]), float(bounds[1]))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def given(arrays: Collection[str], options: Options) -> Callable[[str], bool]:
    """Return a function from the name of an array or an option to whether it is given.

    ``option/level`` asks whether the option is set at that level.
    """

    def has(name: str) -> bool:
        name, _, level = name.partition("/")
        if name not in Options.__dataclass_fields__:
            return name in arrays
        value = getattr(options, name)
        return value is not None and (not level or level == getattr(value, "level", value))

    return has


MAX_DOMAINS = 64
OTHER = "other"
TOO_MANY = f"measure: more than {MAX_DOMAINS} domains: the further ones are recorded as {OTHER!r} (reported once)"


class Domains:
    """The labels of a process so far. The first 64 have values of their own, the further ones are ``other``."""

    def __init__(self, warn: Callable[[str], None] = lambda text: None) -> None:
        self._warn = warn
        self._known: set[str] = set()

    def label(self, given: Any) -> str | None:
        """Return the label under which a domain is recorded; None where a sequence has none."""
        if given is None or given != given:  # NaN stands for no label in data frames
            return None
        text = clean_label(given)
        if text not in self._known and len(self._known) >= MAX_DOMAINS:
            if text != OTHER:
                self._warn(TOO_MANY)
            return OTHER
        self._known.add(text)
        return text

    def chosen(self, labels: NDArray[Any]) -> dict[str, Bools]:
        """Return the domains of some sequences, and which of the sequences each has."""
        names, place = numbered(labels)
        found: dict[str, list[int]] = {}
        for number, name in enumerate(names.tolist()):
            if (label := self.label(name)) is not None:
                found.setdefault(label, []).append(number)
        # Several labels are one domain if they differ in what a name cannot have, or are the further ones.
        return {label: np.isin(place, numbers) for label, numbers in found.items()}


def domain_states(
    selection: Selection,
    domains: Domains,
    measured: Callable[[Selection], Mapping[str, Floats]],
    report: Callable[[str, Exception], None],
) -> dict[str, Floats]:
    """Return the states of all domains of a batch; ``measured`` returns those of some of its sequences.

    Labels that cannot be read cost the domains only: ``report`` is called.
    """
    try:
        parts = domains.chosen(selection.sequence("domains"))
    except Exception as error:  # noqa: BLE001 - labels may be any objects
        report("domains", error)
        return {}
    states: dict[str, Floats] = {}
    for label, chosen in parts.items():
        found = measured(selection.subset(chosen))
        states |= {f"{name}{BY}{label}": state for name, state in found.items()}
    return states
