"""The measured quantities: the state of each, its inputs, and the metrics that it yields.

A quantity is the state of a channel of tokens, or of data about the sequences. Names are ids of the catalogue. A
quantity whose inputs are not given is missing, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats
from barograph.catalogue.spec import BY, clean_label, split_domain
from barograph.metrics.formulas import channels
from barograph.metrics.formulas import sequences as groups
from barograph.metrics.formulas.channels import CHANNELS, Need
from barograph.metrics.formulas.sequences import LossSums
from barograph.metrics.states.kinds import (
    COMOMENTS,
    EXTREMA,
    KINDS,
    LAST,
    MEAN,
    MOMENTS,
    POSITIVE_QUANTILES,
    RATIO,
    SUM,
    StateKind,
)

if TYPE_CHECKING:
    from barograph.metrics.batch.inputs import Selection

Data = Callable[["Selection", Any], Any]
"""Takes the batch and the options, of which the needed ones are set; returns the values of a state, or a whole one."""
Sum = Mapping[tuple[str, str], float]
"""A sum over a whole batch: factors of reduced statistics, by row and slot (``barograph.metrics.formulas.table``)."""
Count = int | np.signedinteger[Any]
Sums = Callable[[Any], Sequence[Sum]]
"""Takes the options; returns the slots of a state."""

NOTHING: Sum = {}
RANK: Sum = {("rank", ""): 1.0}
"""Stands for the number of the process."""
TOKENS: Sum = {("valid", "total"): 1.0}
SEQUENCES: Sum = {("valid", "count"): 1.0}
WITH_TOKENS: Sum = {("some_valid", "count"): 1.0}

NO_TOKEN = "no valid token"
NO_SEQUENCE = "no sequence"
ALL_ABORTED = "every sequence was aborted"
NO_GROUP = "no group"


@dataclass(frozen=True, slots=True)
class Quantity:
    """One state of one part of a step: of a channel of tokens, or of data about the sequences."""

    state: str  # the name that journals have: it must never change
    kind: StateKind
    part: str
    needs: tuple[Need, ...]  # arrays of the batch and options
    channel: str | None = None
    data: Data | None = None
    gives_state: bool = False  # the data is the state itself
    metrics: Mapping[str, str] = field(default_factory=dict)  # id to the statistic of the state
    empty: str = NO_TOKEN  # the reason for no value where there was nothing to measure
    sums: Sums | None = None  # how the state follows from sums of the whole batch, where a device has them
    histogram: str = ""  # the name of the histogram that a device has of a state of quantiles

    @property
    def by_domain(self) -> bool:
        """Whether it is measured of each domain too; states of quantiles are too long for that."""
        return self.part == "data" and not self.kind.is_sparse


def needs_of(words: str) -> tuple[Need, ...]:
    """Read the needs of a quantity: a channel's name stands for the arrays and options of that channel."""
    found: list[Need] = []
    for word in words.split():
        channel = CHANNELS.get(word)
        if channel is None:
            found.append(Need.parse(word))
            continue
        found += channel.needs
        for option in map(Need.parse, channel.options):
            # Without its level first, so that the reason for an option that is not set says so.
            found += [Need(option.name), option] if option.level else [option]
    return tuple(dict.fromkeys(found))


def token_mean(id: str, channel: str, part: str | None = None) -> Quantity:
    """Measure the mean of a channel."""
    part = part or CHANNELS[channel].parts[0]
    return Quantity(id, MEAN, part, needs_of(channel), channel, metrics={id: "mean"}, sums=_sums_of(MEAN, channel))


def token_spread(id: str, channel: str, stats: Sequence[str] = ("mean", "max", "min")) -> list[Quantity]:
    """Measure mean, spread and extremes of a channel, as two states."""
    return _spread(id, stats, CHANNELS[channel].parts[0], needs_of(channel), channel)


def token_quantiles(id: str, channel: str) -> Quantity:
    """Measure quantiles of a channel, in the kind of state that the channel names."""
    kind, part = KINDS[CHANNELS[channel].quantiles], CHANNELS[channel].parts[0]
    metrics = _quantile_metrics(id)
    return Quantity(f"{id}:quantiles", kind, part, needs_of(channel), channel, metrics=metrics, histogram=channel)


def loss(id: str, channel: str, more_needs: str = "", data: Data | None = None) -> Quantity:
    """Measure a loss: a channel reduced by the ``loss`` option to a numerator and a denominator."""
    part, needs = CHANNELS[channel].parts[0], needs_of(f"{channel} {more_needs}")
    sums = _loss_sums(channel) if data is None else None
    data = data or (lambda s, o: s.reduced(channel))
    return Quantity(id, RATIO, part, needs, data=data, gives_state=True, metrics={id: "ratio"}, sums=sums)


def of_data(id: str, kind: StateKind, needs: str, data: Data, empty: str = NO_TOKEN, **more: Any) -> Quantity:
    """Measure the first statistic of a kind in the data part."""
    return Quantity(id, kind, "data", needs_of(needs), data=data, metrics={id: kind.statistics[0]}, empty=empty, **more)


def mean(id: str, needs: str, data: Data, empty: str = NO_SEQUENCE, **more: Any) -> Quantity:
    """Measure a mean over sequences or groups of the data part."""
    return of_data(id, MEAN, needs, data, empty, **more)


def share(id: str, needs: str, condition: Data, holding: Sum | None = None) -> Quantity:
    """Measure the share of sequences that meet a condition, which returns booleans; ``holding`` is their number."""

    def data(s: Selection, o: Any) -> Floats:
        holds = condition(s, o)
        return np.array([np.count_nonzero(holds), len(holds), 0.0])

    sums = None if holding is None else lambda o: (holding, SEQUENCES, NOTHING)
    return mean(id, needs, data, gives_state=True, sums=sums)


def mean_total(id: str, needs: str, channel: str, factor: Callable[[Any], float]) -> Quantity:
    """Measure the mean over sequences of a channel's sum, times a factor that options give."""

    def sums(o: Any) -> Sequence[Sum]:
        return _total_of(channel, factor(o)), SEQUENCES, NOTHING

    return mean(id, needs, lambda s, o: s.mean_total(channel, factor(o)), gives_state=True, sums=sums)


def group_share(id: str, number: Callable[[groups.GroupScores], Count]) -> Quantity:
    """Measure the share of groups, of which ``number`` returns how many there are."""

    def data(s: Selection, o: Any) -> Floats:
        found = s.groups
        return _mean_state(number(found), len(found.sizes) - found.unknown, found.unknown)

    return mean(id, "scores groups", data, NO_GROUP, gives_state=True)


def _of_rates(which: int) -> Callable[[groups.GroupScores], Count]:
    """Count the groups with one of ``groups.SOLVE_RATES``."""
    return lambda found: found.in_bins[which]


def count(id: str, needs: str, number: Callable[[Selection], int], counted: Sum) -> Quantity:
    """Measure a number of sequences of the data part."""
    return of_data(
        id, SUM, needs, lambda s, o: np.array([number(s), 0.0]), gives_state=True, sums=lambda o: (counted, NOTHING)
    )


def quotient(id: str, needs: str, data: Data, empty: str = NO_TOKEN, sums: Sums | None = None) -> Quantity:
    """Measure a quotient of totals of the data part; ``data`` returns its state."""
    return of_data(id, RATIO, needs, data, empty, gives_state=True, sums=sums)


def of_sequences(
    id: str, kind: StateKind, needs: str, data: Data, metrics: Mapping[str, str], part: str = "data"
) -> Quantity:
    """Measure over sequences what an option can also ask of tokens: the same metrics from a state of its own."""
    return Quantity(
        f"{id}:sequences", kind, part, needs_of(needs), data=data, gives_state=kind is RATIO, metrics=metrics
    )


def sequence_spread(
    id: str,
    needs: str,
    data: Data,
    stats: Sequence[str] = ("mean", "max", "min"),
    empty: str = NO_SEQUENCE,
    row: str = "",
) -> list[Quantity]:
    """Measure mean, spread and extremes of a number per sequence, as two states; ``row`` is that of a device."""
    return _spread(id, stats, "data", needs_of(needs), None, data, empty, row)


def _quantile_metrics(id: str) -> dict[str, str]:
    return {f"{id}/{stat}": stat for stat in ("p1", "p10", "p50", "p90", "p99")}


def _extreme(id: str, channel: str, stat: str) -> Quantity:
    """Measure the largest or the smallest value of a channel."""
    part, sums = CHANNELS[channel].parts[0], _sums_of(EXTREMA, channel)
    return Quantity(id, EXTREMA, part, needs_of(channel), channel, metrics={id: stat}, sums=sums)


def _spread(
    id: str,
    stats: Sequence[str],
    part: str,
    needs: tuple[Need, ...],
    channel: str | None,
    data: Data | None = None,
    empty: str = NO_TOKEN,
    row: str = "",
) -> list[Quantity]:
    moments = {f"{id}/{stat}": stat for stat in stats if stat in ("mean", "std", "var")}
    extremes = {f"{id}/{stat}": stat for stat in stats if stat in ("max", "min")}
    of_moments, of_extremes = (_sums_of(kind, channel or row) for kind in (MOMENTS, EXTREMA))
    return [
        # Two states, because moments add up and extremes are compared: a state has one way to merge.
        Quantity(f"{id}:moments", MOMENTS, part, needs, channel, data, False, moments, empty, of_moments),
        Quantity(f"{id}:extrema", EXTREMA, part, needs, channel, data, False, extremes, empty, of_extremes),
    ]


def _sums_of(kind: StateKind, row: str) -> Sums | None:
    """Return how a state follows from the statistics of a row; None where a device reduces no such row."""
    if not row:
        return None
    count = TOKENS if row in CHANNELS else {(row, "count"): 1.0}
    squares, low, high = ({(row, slot): 1.0} for slot in ("squares", "min", "max"))
    found: dict[StateKind, tuple[Sum, ...]] = {
        MEAN: (_total_of(row), count, NOTHING),
        MOMENTS: (count, _total_of(row), squares, NOTHING),
        EXTREMA: (low, RANK, high, RANK, NOTHING),
    }
    return lambda o: found[kind]


def _total_of(row: str, factor: float = 1.0) -> Sum:
    """Return the sum of a row, or of a channel that combines others."""
    combined = CHANNELS[row].combines if row in CHANNELS else {}
    return {(other, "total"): factor * weight for other, weight in (combined or {row: 1.0}).items()}


def _loss_sums(channel: str) -> Sums:
    """Return how the state of a loss follows from sums."""

    def sums(o: Any) -> Sequence[Sum]:
        # The numerator and the denominator are linear: the factor of each sum is what 1 of it alone gives.
        alone = [LossSums(*row).reduced(o.loss, o.loss_norm, o.loss_batch) for row in np.eye(5).tolist()]
        (total, _), (means, _), (_, tokens), (_, with_tokens), (_, sequences) = alone
        numerator = {
            (row, slot): factor * weight
            for slot, factor in (("total", total), ("means", means))
            for (row, _), weight in _total_of(channel).items()
        }
        counts = {("valid", "total"): tokens, ("some_valid", "count"): with_tokens, ("valid", "count"): sequences}
        return numerator, counts, NOTHING

    return sums


def _scores(s: Selection, o: Any) -> Floats:
    """Return one score per episode, its first, or per sequence where no episodes are given."""
    return _first_of_episode(s, lambda of_sequences: of_sequences)


def _scores_not_aborted(s: Selection, o: Any) -> Floats:
    return _first_of_episode(s, s.not_aborted)


def _first_of_episode(s: Selection, chosen: Callable[[NDArray[Any]], NDArray[Any]]) -> Floats:
    scores = chosen(s.scores)
    if "episodes" not in s.given:
        return scores
    # An episode's sequences share its score, so one of them stands for it; the index is that of the first.
    names, place = groups.numbered(chosen(s.sequence("episodes")))
    alone = place < 0  # a sequence without an episode is one of its own
    place[alone] = len(names) + np.arange(alone.sum())
    return scores[np.unique(place, return_index=True)[1]]


def _non_score(s: Selection, o: Any) -> Floats:
    # All sequences, as in the scores: one without tokens has a KL of 0, so that the parts of the reward add up.
    return 0.0 - float(o.kl_coef) * s.totals("old_minus_ref")  # 0 and not -0 for a coefficient of 0


def _rlhf(s: Selection, o: Any) -> Floats:
    return s.scores + _non_score(s, o)


def _effective_samples(s: Selection, o: Any) -> Floats:
    """Return the state of the number of sequences in groups whose scores differ."""
    found = s.groups
    samples = math.nan if found.unknown else found.sizes[~found.is_equal].sum()
    return np.array([samples, found.unknown], np.float64)


def _zero_advantages(s: Selection, o: Any) -> Floats:
    """Return the state of the share of tokens whose advantage is 0."""
    other = s.totals("nonzero_advantages")
    return _quotient(s.counts - other, s.counts, s.nonfinite("nonzero_advantages"))


def _mean_state(total: Count, count: Count, unknown: Count) -> Floats:
    """Return the state of the mean of some numbers, and of others that are NaN."""
    return np.array([math.nan if unknown else total, count + unknown, unknown], np.float64)


def _lengths_of(right: bool) -> Data:
    """Measure the response lengths of right answers, or of wrong ones; NaN where a score is."""

    def data(s: Selection, o: Any) -> Floats:
        chosen, unknown = s.right_answers == right, s.unknown_scores
        if unknown is not None:
            chosen &= ~unknown
        total, count = s.response_lengths @ chosen, np.count_nonzero(chosen)
        return _mean_state(total, count, 0 if unknown is None else np.count_nonzero(unknown))

    return data


def _truncated_right(s: Selection, o: Any) -> Floats:
    """Return the state of the share of right answers among truncated responses; NaN where a score is."""
    truncated, unknown = s.response_lengths >= o.max_response_length, s.unknown_scores
    bad = 0 if unknown is None else np.count_nonzero(truncated & unknown)
    return _mean_state(np.count_nonzero(truncated & s.right_answers), np.count_nonzero(truncated) - bad, bad)


def _length_and_score(s: Selection, o: Any) -> Floats:
    return np.array([s.response_lengths, s.scores]).T


def _reward_clipped(s: Selection, o: Any) -> Floats:
    rewards = s.sequence("unclipped_rewards").astype(np.float64)
    return np.where(np.isnan(rewards), np.nan, np.abs(rewards) > o.reward_clip)


def _sequence_weights(s: Selection, o: Any) -> Floats:
    """Return the importance weight of each sequence with a valid token. One that overflows is infinite."""
    return np.exp(s.sums("mismatch"))


def _truncated_sequences(s: Selection, o: Any) -> Floats:
    weights = _sequence_weights(s, o)
    return np.where(np.isnan(weights), np.nan, weights > o.truncate.cap)


def _rejects(s: Selection, o: Any) -> Floats:
    """Return which of the sequences with a valid token have a rejected one; NaN where a weight is."""
    if o.reject.level == "token":
        tokens = s.sums("rejects")
        return np.where(np.isnan(tokens), np.nan, tokens > 0)
    weights = np.exp(s.means("mismatch") if o.reject.level == "geometric" else s.sums("mismatch"))
    return np.where(np.isnan(weights), np.nan, channels.rejected(weights, o.reject.low, o.reject.high))


def _rejected_tokens(s: Selection, o: Any) -> Floats:
    """Return the state of the share of rejected tokens: all tokens of rejected sequences, or single ones."""
    if o.reject.level == "token":
        return _quotient(s.totals("rejects"), s.counts, s.nonfinite("rejects"))
    counts, rejected = s.counts[s.counts > 0], _rejects(s, o)
    return _quotient(rejected * counts, counts, np.where(np.isnan(rejected), counts, 0))


def _k3_of(kept: bool) -> Data:
    """Measure the KL of the tokens that the rejection keeps, or of those that it rejects."""
    channel = "kept_k3" if kept else "rejected_k3"

    def data(s: Selection, o: Any) -> Floats:
        if o.reject.level == "token":
            rejected = s.totals("rejects")
            return _quotient(s.totals(channel), s.counts - rejected if kept else rejected, s.nonfinite(channel))
        some, rejected = s.counts > 0, _rejects(s, o)
        divergence = np.where(np.isnan(rejected), np.nan, s.sums("mismatch_k3"))
        chosen = rejected != kept  # NaN is neither kept nor rejected, and shows in both
        return _quotient(divergence[chosen], s.counts[some][chosen], s.nonfinite("mismatch_k3")[some][chosen])

    return data


def _quotient(numerators: Floats, denominators: NDArray[Any], nonfinite: NDArray[Any]) -> Floats:
    """Return the state of a quotient of totals, with the number of tokens that make it non-finite."""
    top, bottom = float(numerators.sum()), float(denominators.sum())
    finite = np.isfinite(top) and np.isfinite(bottom)
    return np.array([top, bottom, 0.0 if finite else max(1.0, float(nonfinite.sum()))])


def _ratios(normalised: bool) -> Data:
    """Measure the ratio of each sequence: the exponential of the mean, or of the sum, of its log-ratios."""
    return lambda s, o: np.exp(s.means("log_ratio") if normalised else s.sums("log_ratio"))


RatioCondition = Callable[[Floats, Any, Any], NDArray[np.bool_]]
"""Takes the ratio of each sequence, the sum of its advantages, and the clip."""


def _ratio_share(normalised: bool, with_advantages: bool, condition: RatioCondition) -> Data:
    """Measure the share of sequences whose ratio and sum of advantages meet a condition; NaN gives NaN."""

    def data(s: Selection, o: Any) -> Floats:
        ratios: Floats = _ratios(normalised)(s, o)
        advantages = s.sums("positive_advantages") + s.sums("negative_advantages") if with_advantages else 0.0
        return np.where(np.isnan(ratios + advantages), np.nan, condition(ratios, advantages, o.clip))

    return data


def _sequence_surrogate(weighted: bool) -> Data:
    """Measure the loss in which each token has the ratio of its sequence."""

    def data(s: Selection, o: Any) -> Floats:
        totals = np.zeros(len(s.counts))
        up, down = channels.surrogate_factors(_ratios(normalised=True)(s, o), o.clip, o.dual_clip)
        gains, losses = s.sums("positive_advantages"), s.sums("negative_advantages")
        # An advantage of 0 has no part in the loss, also where the ratio has overflowed.
        totals[s.counts > 0] = -(_product(gains, up) + _product(losses, down))
        weights = s.sequence("weights").astype(np.float64) if weighted else None
        return s.reduced_totals(totals, s.counts, lambda: np.where(np.isfinite(totals), 0.0, s.counts), weights)

    return data


def _product(advantages: Floats, factors: Floats) -> Floats:
    """Return the products, 0 for an infinite factor of no advantage."""
    return np.where((advantages == 0) & ~np.isnan(factors), 0.0, advantages * factors)


def _sequence_clips(side: Callable[[Selection, Floats, Any], Floats]) -> Data:
    """Measure a share of tokens, from the number of tokens of each sequence that the clip of its ratio affects."""

    def data(s: Selection, o: Any) -> Floats:
        tokens = np.zeros(len(s.counts))
        tokens[s.counts > 0] = side(s, _ratios(normalised=True)(s, o), o)
        return _quotient(tokens, s.counts, np.where(np.isnan(tokens), s.counts, 0))

    return data


def _clips_high(s: Selection, ratios: Floats, o: Any) -> Floats:
    return np.where(np.isnan(ratios), np.nan, channels.ratio_above(ratios, o.clip)) * s.sums("positive_tokens")


def _clips_low(s: Selection, ratios: Floats, o: Any) -> Floats:
    return np.where(np.isnan(ratios), np.nan, channels.ratio_below(ratios, o.clip)) * s.sums("negative_tokens")


def _clips_dual(s: Selection, ratios: Floats, o: Any) -> Floats:
    _, down = channels.surrogate_factors(ratios, o.clip)
    return np.where(np.isnan(ratios), np.nan, down > o.dual_clip) * s.sums("negative_tokens")


def _sft(positive: bool) -> Data:
    """Measure the loss of the sequences with a score above 0, or of the others; NaN where a score is."""

    def data(s: Selection, o: Any) -> Any:
        chosen, unknown = (s.scores > 0) == positive, s.unknown_scores
        if unknown is None:
            return s.reduced("nll", None, chosen)
        return s.reduced("nll", np.where(unknown, np.nan, 1.0), unknown | chosen)

    return data


LENGTHS = [
    *sequence_spread("tokens/response_length", "response_mask", lambda s, o: s.response_lengths, row="response"),
    *sequence_spread("tokens/prompt_length", "prompt_lengths", lambda s, o: s.prompt_lengths),
    *sequence_spread("tokens/total_length", "prompt_lengths", lambda s, o: s.response_lengths + s.prompt_lengths),
    *sequence_spread(
        "tokens/terminated_length", "finished",
        lambda s, o: s.response_lengths[s.sequence("finished").astype(np.bool_)], empty="no sequence ended",
    ),
    *sequence_spread(
        "tokens/response_length_not_aborted", "response_mask",
        lambda s, o: s.not_aborted(s.response_lengths), empty=ALL_ABORTED, row="some_response",
    ),
    share(
        "tokens/aborted", "response_mask", lambda s, o: s.response_lengths == 0,
        {("response", "count"): 1.0, ("some_response", "count"): -1.0},
    ),
    share("tokens/response_truncated", "max_response_length", lambda s, o: s.response_lengths >= o.max_response_length),
    share(
        "tokens/prompt_truncated", "prompt_lengths max_prompt_length",
        lambda s, o: s.prompt_lengths >= o.max_prompt_length,
    ),
    mean(
        "tokens/response_length_right/mean", "scores", _lengths_of(right=True), "no answer was right", gives_state=True
    ),
    mean(
        "tokens/response_length_wrong/mean", "scores", _lengths_of(right=False), "no answer was wrong", gives_state=True
    ),
    of_data(
        "tokens/eos_count", SUM, "ends", lambda s, o: s.totals("ends"), sums=lambda o: (_total_of("ends"), NOTHING)
    ),
    share("tokens/contains_eos", "ends", lambda s, o: s.totals("ends") > 0),
    share("tokens/repetition", "response_mask actions", lambda s, o: s.repeats(), {("repeats", "total"): 1.0}),
]  # fmt: skip

REWARDS = [
    *sequence_spread("reward/score", "scores", _scores, ("mean", "max", "min", "std")),
    *sequence_spread("reward/score_not_aborted", "scores", _scores_not_aborted, empty=ALL_ABORTED),
    *sequence_spread("reward/shaped", "rewards", lambda s, o: s.totals("rewards")),
    *sequence_spread(
        "reward/shaped_not_aborted", "rewards", lambda s, o: s.not_aborted(s.totals("rewards")), empty=ALL_ABORTED
    ),
    *token_spread("reward/advantages", "advantages", ("mean", "max", "min", "std")),
    quotient(
        "reward/advantages/zero", "nonzero_advantages", _zero_advantages,
        sums=lambda o: ({**TOKENS, ("nonzero_advantages", "total"): -1.0}, TOKENS, NOTHING),
    ),
    *token_spread("reward/returns", "returns"),
    mean_total("reward/non_score/mean", "old_minus_ref kl_coef", "old_minus_ref", lambda o: -float(o.kl_coef)),
    mean("reward/rlhf/mean", "scores old_minus_ref kl_coef", _rlhf),
    mean("evaluation/reward_clip_fraction", "unclipped_rewards reward_clip", _reward_clipped),
    Quantity(
        "reward/length_correlation", COMOMENTS, "data", needs_of("scores"), data=_length_and_score,
        metrics={"reward/length_correlation": "correlation"}, empty="response lengths or scores do not vary",
    ),
    mean(
        "reward/truncated_right", "scores max_response_length", _truncated_right, "no response was truncated",
        gives_state=True,
    ),
    group_share("reward/zero_std_groups", lambda found: np.count_nonzero(found.is_equal)),
    of_data("reward/groups/effective_samples", SUM, "scores groups", _effective_samples, gives_state=True),
    group_share("reward/groups/solved_none", _of_rates(0)),
    group_share("reward/groups/solved_all", _of_rates(-1)),
    group_share("reward/groups/solved_some", lambda found: found.in_bins[1:-1].sum()),
    mean("reward/groups/std", "scores groups", lambda s, o: s.groups.deviations, NO_GROUP),
    *(
        group_share(f"reward/groups/solve_rate/{rates}", _of_rates(which))
        for which, rates in enumerate(groups.SOLVE_RATES)
    ),
]  # fmt: skip

SAMPLES = [
    count("ppo/valid_samples", "response_mask", lambda s: s.with_tokens, WITH_TOKENS),
    count("ppo/total_samples", "response_mask", lambda s: len(s.counts), SEQUENCES),
    share("ppo/valid_sample_ratio", "response_mask", lambda s, o: s.counts > 0, WITH_TOKENS),
    *sequence_spread("ppo/sample_weights", "weights", lambda s, o: s.sequence("weights")),
]

OLD_POLICY = [
    token_mean("evaluation/ref_log_prob/mean", "ref_log_probs"),
    token_mean("evaluation/old_log_prob/mean", "old_log_probs"),
    token_mean("evaluation/entropy/mean", "old_entropy"),
    token_mean("policy/ref_kl_k1", "old_minus_ref"),
    mean_total("policy/ref_kl_sum", "old_minus_ref", "old_minus_ref", lambda o: 1.0),
    mean_total("policy/entropy_sum", "old_log_probs", "old_log_probs", lambda o: -1.0),
    token_mean("policy/ref_kl_k3", "old_ref_k3"),
    *token_spread("value/values", "old_values"),
    # Without a metric of its own: the explained variance is derived from it.
    Quantity(
        "value/residual:moments", MOMENTS, "data", needs_of("residual"), "residual", sums=_sums_of(MOMENTS, "residual")
    ),
]

MISMATCH = [
    *token_spread("policy/mismatch/log_prob_difference", "log_prob_difference", ("mean", "max")),
    *token_spread("policy/mismatch/probability_difference", "probability_difference", ("mean", "max", "std")),
    *token_spread("policy/mismatch/ratio", "mismatch_ratio", ("mean", "max", "min", "std")),
    token_mean("policy/mismatch/kl_k1", "mismatch_k1"),
    token_mean("policy/mismatch/kl_k3", "mismatch_k3"),
    # Not clamped: a ratio that overflows is infinite, and is counted as such.
    *sequence_spread(
        "policy/mismatch/importance_ratio", "mismatch", lambda s, o: np.exp(s.sums("mismatch")), empty=NO_TOKEN
    ),
    mean("policy/mismatch/perplexity/training", "mismatch", lambda s, o: np.exp(-s.means("old_log_probs")), NO_TOKEN),
    mean(
        "policy/mismatch/perplexity/rollout", "mismatch", lambda s, o: np.exp(-s.means("rollout_log_probs")), NO_TOKEN
    ),
    mean("policy/mismatch/log_perplexity/training", "mismatch", lambda s, o: -s.means("old_log_probs"), NO_TOKEN),
    mean("policy/mismatch/log_perplexity/rollout", "mismatch", lambda s, o: -s.means("rollout_log_probs"), NO_TOKEN),
    mean("policy/mismatch/log_perplexity/difference", "mismatch", lambda s, o: s.means("mismatch"), NO_TOKEN),
    mean(
        "policy/mismatch/log_perplexity/abs_difference", "mismatch", lambda s, o: np.abs(s.means("mismatch")), NO_TOKEN
    ),
    Quantity(
        "policy/mismatch/log_perplexity/difference:extrema", EXTREMA, "data", needs_of("mismatch"),
        data=lambda s, o: s.means("mismatch"), metrics={
            "policy/mismatch/log_perplexity/difference_max": "max",
            "policy/mismatch/log_perplexity/difference_min": "min",
        },
    ),
    mean("policy/mismatch/perplexity/ratio", "mismatch", lambda s, o: np.exp(-s.means("mismatch")), NO_TOKEN),
    mean("policy/mismatch/chi2_sequence", "mismatch", lambda s, o: np.expm1(2.0 * s.sums("mismatch")), NO_TOKEN),
]  # fmt: skip

TRUNCATED = "policy/mismatch/truncated_weight"
CORRECTION = [
    Quantity(f"{TRUNCATED}:moments", MOMENTS, "data", needs_of("truncated_weight"), "truncated_weight",
             metrics={f"{TRUNCATED}/mean": "mean"}, sums=_sums_of(MOMENTS, "truncated_weight")),
    of_sequences(
        TRUNCATED, MOMENTS, "mismatch truncate truncate/sequence",
        lambda s, o: channels.truncated(_sequence_weights(s, o), o.truncate.cap), {f"{TRUNCATED}/mean": "mean"},
    ),
    token_mean(f"{TRUNCATED}/deviation", "truncated_distance"),
    of_sequences(
        f"{TRUNCATED}/deviation", MEAN, "mismatch truncate truncate/sequence",
        lambda s, o: np.abs(channels.truncated(_sequence_weights(s, o), o.truncate.cap) - 1.0),
        {f"{TRUNCATED}/deviation": "mean"},
    ),
    token_mean(f"{TRUNCATED}/clip_fraction", "truncates"),
    of_sequences(
        f"{TRUNCATED}/clip_fraction", MEAN, "mismatch truncate truncate/sequence", _truncated_sequences,
        {f"{TRUNCATED}/clip_fraction": "mean"},
    ),
    quotient("policy/mismatch/rejected/tokens", "mismatch reject", _rejected_tokens),
    mean("policy/mismatch/rejected/sequences", "mismatch reject", _rejects, NO_TOKEN),
    quotient("policy/mismatch/kl_k3/kept", "mismatch reject", _k3_of(kept=True), "no token was kept"),
    quotient("policy/mismatch/kl_k3/rejected", "mismatch reject", _k3_of(kept=False), "no token was rejected"),
]  # fmt: skip

POLICY = [
    *token_spread("policy/ratio", "ratio", ("mean", "max", "min", "var")),
    token_mean("policy/ratio/above", "above"),
    token_mean("policy/ratio/below", "below"),
    token_mean("policy/ratio/outside", "outside"),
    token_mean("policy/clip_fraction", "binds"),
    token_mean("policy/clip_fraction/high", "high"),
    token_mean("policy/clip_fraction/low", "low"),
    token_mean("policy/clip_fraction/dual", "dual"),
    token_mean("policy/kl_k1", "kl_k1"),
    token_mean("policy/kl_k2", "kl_k2"),
    token_mean("policy/kl_k3", "kl_k3"),
    token_mean("policy/kl_exact", "exact_kl"),
    token_mean("policy/ref_kl_exact", "exact_ref_kl"),
    _extreme("policy/logits/max", "highest_logits", "max"),
    _extreme("policy/logits/min", "lowest_logits", "min"),
    token_mean("policy/entropy/mean", "entropy"),
    loss("policy/kl_loss", "ref_k3"),
    loss("policy/loss/pg", "surrogate"),
    loss(
        "policy/loss/weighted_pg", "surrogate", "weights",
        lambda s, o: s.reduced("surrogate", s.sequence("weights").astype(np.float64)),
    ),
    # Without a metric of its own: the term of the total loss, which has the reduction of the loss.
    Quantity(
        "policy/entropy:loss", RATIO, "policy", needs_of("entropy"), data=lambda s, o: s.reduced("entropy"),
        gives_state=True, sums=_loss_sums("entropy"),
    ),
    loss("sft/loss", "nll"),
    loss("sft/positive_loss", "nll", "scores", _sft(positive=True)),
    loss("sft/negative_loss", "nll", "scores", _sft(positive=False)),
]  # fmt: skip

ABOVE, BELOW = channels.ratio_above, channels.ratio_below


def _sequence_ratio(id: str, normalised: bool, stats: Sequence[str]) -> list[Quantity]:
    """Measure the ratio of sequences: its spread, the shares outside the band, and those where the clip binds."""
    needs, of_advantages = "log_ratio level/sequence", "positive_advantages clip"
    outside: dict[str, RatioCondition] = {
        "above": lambda r, a, clip: ABOVE(r, clip),
        "below": lambda r, a, clip: BELOW(r, clip),
        "outside": lambda r, a, clip: ABOVE(r, clip) | BELOW(r, clip),
    }
    binds: dict[str, RatioCondition] = {
        "clip_fraction": lambda r, a, clip: (ABOVE(r, clip) & (a > 0)) | (BELOW(r, clip) & (a < 0)),
        "clip_fraction/high": lambda r, a, clip: ABOVE(r, clip) & (a > 0),
        "clip_fraction/low": lambda r, a, clip: BELOW(r, clip) & (a < 0),
    }
    shares = [
        *((f"{id}/{name}", f"{needs} clip", _ratio_share(normalised, False, holds)) for name, holds in outside.items()),
        *((f"{id}/{name}", of_advantages, _ratio_share(normalised, True, holds)) for name, holds in binds.items()),
    ]
    return [
        *_spread(id, stats, "policy", needs_of(needs), None, _ratios(normalised)),
        *(Quantity(i, MEAN, "policy", needs_of(words), data=data, metrics={i: "mean"}) for i, words, data in shares),
    ]


def _at_sequence(id: str, more_needs: str, data: Data) -> Quantity:
    """Measure a loss, or a share of tokens, with the ratio of the sequence at each of its tokens."""
    return of_sequences(id, RATIO, f"log_ratio positive_advantages {more_needs}", data, {id: "ratio"}, "policy")


SEQUENCE_POLICY = [
    *_sequence_ratio("policy/sequence_ratio", True, ("mean", "max", "min", "std")),
    *_sequence_ratio("policy/sequence_ratio_summed", False, ("mean", "max", "min")),
    _at_sequence("policy/loss/pg", "", _sequence_surrogate(weighted=False)),
    _at_sequence("policy/loss/weighted_pg", "weights", _sequence_surrogate(weighted=True)),
    _at_sequence(
        "policy/clip_fraction", "clip",
        _sequence_clips(lambda s, ratios, o: _clips_high(s, ratios, o) + _clips_low(s, ratios, o)),
    ),
    _at_sequence("policy/clip_fraction/high", "clip", _sequence_clips(_clips_high)),
    _at_sequence("policy/clip_fraction/low", "clip", _sequence_clips(_clips_low)),
    _at_sequence("policy/clip_fraction/dual", "dual_clip", _sequence_clips(_clips_dual)),
]  # fmt: skip

VALUE = [
    token_mean("value/old/mean", "old_values", "value"),
    token_mean("value/prediction/mean", "values"),
    token_mean("value/error", "error"),
    loss("value/loss", "value_loss"),
    token_mean("value/clip_fraction", "value_clip"),
]

QUANTILES = [
    token_quantiles("policy/entropy", "entropy"),
    token_quantiles("policy/ratio", "log_ratio"),
    token_quantiles("policy/mismatch/log_prob_difference", "log_prob_difference"),
    Quantity(
        "tokens/response_length:quantiles", POSITIVE_QUANTILES, "data", needs_of("response_mask"),
        data=lambda s, o: s.response_lengths, metrics=_quantile_metrics("tokens/response_length"), empty=NO_SEQUENCE,
        histogram="response",
    ),
    token_quantiles("reward/advantages", "advantages"),
]  # fmt: skip

QUANTITIES: tuple[Quantity, ...] = (
    *LENGTHS, *REWARDS, *SAMPLES, *OLD_POLICY, *MISMATCH, *CORRECTION, *POLICY, *SEQUENCE_POLICY, *VALUE, *QUANTILES,
)  # fmt: skip

COEFFICIENTS: dict[str, Quantity] = {
    # Options that finish values and are metrics themselves. As states they may differ from step to step.
    option: Quantity(id, LAST, "", (), metrics={id: "last"})
    for option, id in (
        ("kl_coef", "reward/kl_coef"),
        ("kl_loss_coef", "policy/kl_loss_coef"),
        ("entropy_coef", "policy/entropy_coef"),
    )
}


class _ByState(dict[str, Quantity]):
    """Quantities by the names of their states; ``[]`` also finds those of a domain, ``{state}/by/{label}``."""

    def __missing__(self, state: str) -> Quantity:
        return _of_domain(state)


BY_STATE = _ByState({quantity.state: quantity for quantity in (*QUANTITIES, *COEFFICIENTS.values())})


@lru_cache(maxsize=1 << 13)  # 64 domains of all quantities
def _of_domain(state: str) -> Quantity:
    base, domain = split_domain(state)
    found = BY_STATE.get(base)
    # A name from a journal may be anything.
    if found is None or not found.by_domain or clean_label(domain) != domain:
        raise KeyError(state)
    metrics = {f"{id}{BY}{domain}": statistic for id, statistic in found.metrics.items()}
    return replace(found, state=state, metrics=metrics)
