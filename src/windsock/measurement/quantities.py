"""What is measured of a batch: each state, what it needs, how it comes about, and the metrics it yields.

Names here are ids of the catalogue. A quantity whose inputs are absent is missing, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.measurement.selection import Selection
from windsock.states import EXTREMA, MEAN, MOMENTS, RATIO, SUM, StateKind
from windsock.stats import groups

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Data = Callable[[Selection, Any], Any]  # the options; which of them are set is checked before

TOKENS = "no valid token"
SEQUENCES = "no sequence"
ABORTED = "every sequence was aborted"
PROMPTS = "prompt_lengths|prompt_mask"


class LackingError(Exception):
    """A quantity lacks an input that only some settings ask for."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One state of one part of a step, of a channel of tokens or of data about the sequences.

    ``needs`` are fields of the batch or options; ``a|b`` means either.
    """

    state: str
    kind: StateKind
    part: str
    needs: tuple[str, ...]
    channel: str | None = None
    data: Data | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)  # id to the statistic of the state
    empty: str = TOKENS  # why there is no value when nothing was found


def tokens(id: str, part: str, needs: str, channel: str) -> Quantity:
    """Measure the mean of a channel."""
    return Quantity(id, MEAN, part, tuple(needs.split()), channel, metrics={id: "mean"})


def mean(id: str, needs: str, data: Data, empty: str = SEQUENCES) -> Quantity:
    """Measure a mean over sequences or groups of the data part."""
    return Quantity(id, MEAN, "data", tuple(needs.split()), data=data, metrics={id: "mean"}, empty=empty)


def total(id: str, needs: str, data: Data) -> Quantity:
    """Measure a sum over sequences of the data part."""
    return Quantity(id, SUM, "data", tuple(needs.split()), data=data, metrics={id: "sum"})


def loss(id: str, part: str, needs: str, data: Data) -> Quantity:
    """Measure something that follows the reduction of losses: numerator and denominator."""
    return Quantity(id, RATIO, part, tuple(needs.split()), data=data, metrics={id: "ratio"})


def spread(
    id: str,
    part: str,
    needs: str,
    channel: str | None = None,
    data: Data | None = None,
    stats: Sequence[str] = ("mean", "max", "min"),
    empty: str = TOKENS,
) -> list[Quantity]:
    """Measure mean, spread and extremes of a channel, or of data about the sequences, as two states."""
    inputs = tuple(needs.split())
    moments = {f"{id}/{stat}": stat for stat in stats if stat in ("mean", "std", "var")}
    extremes = {f"{id}/{stat}": stat for stat in stats if stat in ("max", "min")}
    return [
        Quantity(f"{id}:moments", MOMENTS, part, inputs, channel, data, moments, empty),
        Quantity(f"{id}:extrema", EXTREMA, part, inputs, channel, data, extremes, empty),
    ]


def per_sequence(
    id: str, needs: str, data: Data, stats: Sequence[str] = ("mean", "max", "min"), empty: str = SEQUENCES
) -> list[Quantity]:
    """Measure the spread of something that each sequence has one of."""
    return spread(id, "data", needs, None, data, stats, empty)


def _scores(s: Selection, o: Any) -> Floats:
    """Return one score per episode, its first, or per sequence where no episodes are told."""
    return _first_of_episode(s, np.ones(len(s.counts), np.bool_))


def _scores_not_aborted(s: Selection, o: Any) -> Floats:
    return _first_of_episode(s, s.response_lengths > 0)


def _first_of_episode(s: Selection, chosen: NDArray[np.bool_]) -> Floats:
    scores = s.sequence("scores").astype(np.float64)[chosen]
    if s.batch.episodes is None:
        return scores
    return scores[np.unique(s.sequence("episodes")[chosen], return_index=True)[1]]


def _non_score(s: Selection, o: Any) -> Floats:
    return -float(o.kl_coef) * s.sums("old_minus_ref")


def _rlhf(s: Selection, o: Any) -> Floats:
    return s.sequence("scores").astype(np.float64)[s.counts > 0] + _non_score(s, o)


def _groups(s: Selection) -> tuple[Ints, Floats, Floats]:
    """Return the size of each group, its lowest and its highest score."""
    _, sizes, low, high = groups.extremes(s.sequence("scores").astype(np.float64), s.sequence("groups"))
    return sizes, low, high


def _group_extremes(s: Selection) -> tuple[Floats, Floats]:
    return _groups(s)[1:]


def _effective_samples(s: Selection, o: Any) -> Ints:
    sizes, low, high = _groups(s)
    return sizes[~groups.zero_spread(low, high)]


def _zero_spread(s: Selection, o: Any) -> NDArray[np.bool_]:
    return groups.zero_spread(*_group_extremes(s))


def _solved(which: int) -> Data:
    return lambda s, o: groups.solved(*_group_extremes(s), o.right_score)[which]


def _reward_clipped(s: Selection, o: Any) -> NDArray[np.bool_]:
    return np.asarray(np.abs(s.sequence("unclipped_rewards").astype(np.float64)) > o.reward_clip, np.bool_)


def _nll(channel: str) -> Data:
    """Return minus the mean log-prob of each sequence."""
    return lambda s, o: -s.means(channel)


def _perplexity(channel: str) -> Data:
    return lambda s, o: np.exp(-s.means(channel))


def _sft(positive: bool) -> Data:
    """Reduce the loss of the sequences whose score is above zero, or of the others."""
    return lambda s, o: s.reduced("nll", chosen=(s.sequence("scores").astype(np.float64) > 0) == positive)


def _value_loss(s: Selection, o: Any) -> tuple[float, float]:
    if o.value_clip is not None and s.batch.old_values is None:
        raise LackingError("it is clipped around old_values, which the batch does not have")
    return s.reduced("value_loss")


LENGTHS = [
    *per_sequence("tokens/response_length", "response_mask", lambda s, o: s.response_lengths),
    *per_sequence("tokens/prompt_length", PROMPTS, lambda s, o: s.prompt_lengths),
    *per_sequence("tokens/total_length", PROMPTS, lambda s, o: s.response_lengths + s.prompt_lengths),
    *per_sequence(
        "tokens/terminated_length", "finished",
        lambda s, o: s.response_lengths[s.sequence("finished").astype(np.bool_)], empty="no sequence ended",
    ),
    *per_sequence(
        "tokens/response_length_not_aborted", "response_mask",
        lambda s, o: s.response_lengths[s.response_lengths > 0], empty=ABORTED,
    ),
    mean("tokens/aborted", "response_mask", lambda s, o: s.response_lengths == 0),
    mean("tokens/response_truncated", "max_response_length", lambda s, o: s.response_lengths >= o.max_response_length),
    mean(
        "tokens/prompt_truncated", f"{PROMPTS} max_prompt_length", lambda s, o: s.prompt_lengths >= o.max_prompt_length
    ),
    total("tokens/eos_count", "actions eos_ids", lambda s, o: s.totals("ends")),
    mean("tokens/contains_eos", "actions eos_ids", lambda s, o: s.totals("ends") > 0),
]  # fmt: skip

REWARDS = [
    *per_sequence("reward/score", "scores", _scores, ("mean", "max", "min", "std")),
    *per_sequence("reward/score_not_aborted", "scores", _scores_not_aborted, empty=ABORTED),
    *per_sequence("reward/shaped", "rewards", lambda s, o: s.totals("rewards")),
    *per_sequence(
        "reward/shaped_not_aborted", "rewards", lambda s, o: s.totals("rewards")[s.response_lengths > 0], empty=ABORTED
    ),
    *spread("reward/advantages", "data", "advantages", "advantages"),
    *spread("reward/returns", "data", "returns", "returns"),
    mean("reward/non_score/mean", "old_log_probs ref_log_probs kl_coef", _non_score, TOKENS),
    mean("reward/rlhf/mean", "scores old_log_probs ref_log_probs kl_coef", _rlhf, TOKENS),
    mean("evaluation/reward_clip_fraction", "unclipped_rewards reward_clip", _reward_clipped),
    mean("reward/zero_std_groups", "scores groups", _zero_spread, "no group"),
    total("reward/groups/effective_samples", "scores groups", _effective_samples),
    mean("reward/groups/solved_none", "scores groups", _solved(0), "no group"),
    mean("reward/groups/solved_all", "scores groups", _solved(1), "no group"),
    mean("reward/groups/solved_some", "scores groups", _solved(2), "no group"),
]  # fmt: skip

SAMPLES = [
    total("ppo/valid_samples", "response_mask", lambda s, o: s.counts > 0),
    total("ppo/total_samples", "response_mask", lambda s, o: np.ones(len(s.counts))),
    mean("ppo/valid_sample_ratio", "response_mask", lambda s, o: s.counts > 0),
    *per_sequence("ppo/sample_weights", "weights", lambda s, o: s.sequence("weights")),
]

OLD_POLICY = [
    tokens("evaluation/ref_log_prob/mean", "data", "ref_log_probs", "ref_log_probs"),
    tokens("evaluation/old_log_prob/mean", "data", "old_log_probs", "old_log_probs"),
    tokens("evaluation/entropy/mean", "data", "old_entropy|entropy", "old_entropy"),
    tokens("policy/ref_kl_k1", "data", "old_log_probs ref_log_probs", "old_minus_ref"),
    mean("policy/ref_kl_sum", "old_log_probs ref_log_probs", lambda s, o: s.sums("old_minus_ref"), TOKENS),
    mean("policy/entropy_sum", "old_log_probs", lambda s, o: -s.sums("old_log_probs"), TOKENS),
    *spread("value/values", "data", "old_values", "old_values"),
    Quantity("value/residual:moments", MOMENTS, "data", ("returns", "old_values"), "residual"),
]

BOTH = "old_log_probs rollout_log_probs"
MISMATCH = [
    *spread("policy/mismatch/log_prob_difference", "data", BOTH, "log_prob_difference", stats=("mean", "max")),
    *spread(
        "policy/mismatch/probability_difference", "data", BOTH, "probability_difference", stats=("mean", "max", "std")
    ),
    *spread("policy/mismatch/ratio", "data", BOTH, "mismatch_ratio", stats=("mean", "max", "min", "std")),
    tokens("policy/mismatch/kl_k1", "data", BOTH, "mismatch_k1"),
    tokens("policy/mismatch/kl_k3", "data", BOTH, "mismatch_k3"),
    *per_sequence("policy/mismatch/importance_ratio", BOTH, lambda s, o: np.exp(s.sums("mismatch")), empty=TOKENS),
    mean("policy/mismatch/perplexity/training", BOTH, _perplexity("old_log_probs"), TOKENS),
    mean("policy/mismatch/perplexity/rollout", BOTH, _perplexity("rollout_log_probs"), TOKENS),
    mean("policy/mismatch/log_perplexity/training", BOTH, _nll("old_log_probs"), TOKENS),
    mean("policy/mismatch/log_perplexity/rollout", BOTH, _nll("rollout_log_probs"), TOKENS),
    mean("policy/mismatch/log_perplexity/difference", BOTH, lambda s, o: s.means("mismatch"), TOKENS),
    mean("policy/mismatch/log_perplexity/abs_difference", BOTH, lambda s, o: np.abs(s.means("mismatch")), TOKENS),
]

RATIO_NEEDS = "log_probs old_log_probs"
SURROGATE = "log_probs old_log_probs advantages"
POLICY = [
    *spread("policy/ratio", "policy", RATIO_NEEDS, "ratio", stats=("mean", "max", "min", "var")),
    tokens("policy/ratio/above", "policy", RATIO_NEEDS, "above"),
    tokens("policy/ratio/below", "policy", RATIO_NEEDS, "below"),
    tokens("policy/ratio/outside", "policy", RATIO_NEEDS, "outside"),
    tokens("policy/clip_fraction", "policy", SURROGATE, "binds"),
    tokens("policy/clip_fraction/high", "policy", SURROGATE, "high"),
    tokens("policy/clip_fraction/low", "policy", SURROGATE, "low"),
    tokens("policy/clip_fraction/dual", "policy", f"{SURROGATE} dual_clip", "dual"),
    tokens("policy/kl_k1", "policy", RATIO_NEEDS, "kl_k1"),
    tokens("policy/kl_k2", "policy", RATIO_NEEDS, "kl_k2"),
    tokens("policy/kl_k3", "policy", RATIO_NEEDS, "kl_k3"),
    tokens("policy/kl_exact", "policy", "exact_kl", "exact_kl"),
    tokens("policy/entropy/mean", "policy", "entropy", "entropy"),
    loss("policy/kl_loss", "policy", "log_probs ref_log_probs", lambda s, o: s.reduced("ref_k3")),
    loss("policy/loss/pg", "policy", SURROGATE, lambda s, o: s.reduced("surrogate")),
    loss(
        "policy/loss/weighted_pg", "policy", f"{SURROGATE} weights",
        lambda s, o: s.reduced("surrogate", s.sequence("weights").astype(np.float64)),
    ),
    Quantity("policy/entropy:loss", RATIO, "policy", ("entropy",), data=lambda s, o: s.reduced("entropy")),
    loss("sft/loss", "policy", "log_probs", lambda s, o: s.reduced("nll")),
    loss("sft/positive_loss", "policy", "log_probs scores", _sft(positive=True)),
    loss("sft/negative_loss", "policy", "log_probs scores", _sft(positive=False)),
]  # fmt: skip

VALUE = [
    tokens("value/old/mean", "value", "old_values", "old_values"),
    tokens("value/prediction/mean", "value", "values", "values"),
    tokens("value/error", "value", "values returns", "error"),
    loss("value/loss", "value", "values returns", _value_loss),
    tokens("value/clip_fraction", "value", "values returns old_values value_clip", "value_clip"),
]

QUANTITIES: tuple[Quantity, ...] = (*LENGTHS, *REWARDS, *SAMPLES, *OLD_POLICY, *MISMATCH, *POLICY, *VALUE)
