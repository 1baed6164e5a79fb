"""What is measured of a batch: each state, what it needs, how it comes from the tokens, and the metrics it yields.

Names here are ids of the catalogue. A quantity whose inputs are absent is missing, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.measurement.options import Options
from windsock.measurement.selection import Selection
from windsock.states import EXTREMA, MEAN, MOMENTS, RATIO, SUM, StateKind
from windsock.stats import groups, policy, sequences, value

Floats = NDArray[np.float64]
Data = Callable[[Selection, Any], Any]  # the options; which of them are set is checked before

TOKENS = "no valid token"
SEQUENCES = "no sequence"
PROMPTS = "prompt_lengths|prompt_mask"


class LackingError(Exception):
    """A quantity lacks an input that only some settings ask for."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One state of one part of a step. ``needs`` are fields of the batch or options; ``a|b`` means either."""

    state: str
    kind: StateKind
    part: str
    needs: tuple[str, ...]
    data: Data
    metrics: Mapping[str, str] = field(default_factory=dict)  # id to the statistic of the state
    empty: str = TOKENS  # why there is no value when nothing was found


def spread(
    id: str, part: str, needs: str, data: Data, stats: Sequence[str] = ("mean", "max", "min"), empty: str = TOKENS
) -> list[Quantity]:
    """Measure mean, spread and extremes of something as two states."""
    inputs = tuple(needs.split())
    moments = {f"{id}/{stat}": stat for stat in stats if stat in ("mean", "std", "var")}
    extremes = {f"{id}/{stat}": stat for stat in stats if stat in ("max", "min")}
    found = [Quantity(f"{id}:moments", MOMENTS, part, inputs, data, moments, empty)]
    if extremes:
        found.append(Quantity(f"{id}:extrema", EXTREMA, part, inputs, data, extremes, empty))
    return found


def mean(id: str, part: str, needs: str, data: Data, empty: str = TOKENS) -> Quantity:
    """Measure a mean."""
    return Quantity(id, MEAN, part, tuple(needs.split()), data, {id: "mean"}, empty)


def total(id: str, part: str, needs: str, data: Data) -> Quantity:
    """Measure a sum."""
    return Quantity(id, SUM, part, tuple(needs.split()), data, {id: "sum"})


def loss(id: str, part: str, needs: str, data: Data) -> Quantity:
    """Measure something that follows the reduction of losses: numerator and denominator."""
    return Quantity(id, RATIO, part, tuple(needs.split()), data, {id: "ratio"})


def _scores(s: Selection, _: Options) -> Floats:
    """Return one score per episode, its first, or per sequence where no episodes are told."""
    scores = s.sequence("scores").astype(np.float64)
    if s.batch.episodes is None:
        return scores
    return scores[np.unique(s.sequence("episodes"), return_index=True)[1]]


def _scores_not_aborted(s: Selection, o: Options) -> Floats:
    some = s.response_lengths > 0
    scores = s.sequence("scores").astype(np.float64)[some]
    if s.batch.episodes is None:
        return scores
    return scores[np.unique(s.sequence("episodes")[some], return_index=True)[1]]


def _shaped(s: Selection, _: Options) -> Floats:
    """Return the sum of token rewards of each sequence."""
    return sequences.sums(s.response_tokens("rewards"), s.response_lengths)


def _ends(s: Selection) -> NDArray[np.bool_]:
    """Tell which response tokens are end tokens."""
    return np.isin(s.response_tokens("actions"), np.asarray(s.batch.eos_ids).ravel())


def _contains_eos(s: Selection, _: Options) -> NDArray[np.bool_]:
    return sequences.sums(_ends(s).astype(np.float64), s.response_lengths) > 0


def _terminated_lengths(s: Selection, _: Options) -> Floats:
    return s.response_lengths[s.sequence("finished").astype(np.bool_)].astype(np.float64)


def _non_score(s: Selection, o: Options) -> Floats:
    return -float(o.kl_coef or 0.0) * s.sums(s.old_minus_ref)


def _rlhf(s: Selection, o: Options) -> Floats:
    return s.sequence("scores").astype(np.float64)[s.counts > 0] + _non_score(s, o)


def _group_extremes(s: Selection) -> tuple[Floats, Floats]:
    _, _, low, high = groups.extremes(s.sequence("scores").astype(np.float64), s.sequence("groups"))
    return low, high


def _zero_spread(s: Selection, _: Options) -> NDArray[np.bool_]:
    return groups.zero_spread(*_group_extremes(s))


def _solved(which: int) -> Data:
    return lambda s, o: groups.solved(*_group_extremes(s), o.right_score)[which]


def _nll(s: Selection, name: str) -> Floats:
    """Return minus the mean log-prob of each sequence."""
    return -s.means(s.tokens(name))


def _difference_of_log_perplexity(s: Selection, _: Options) -> Floats:
    return s.means(s.old_minus_rollout)


LENGTHS = [
    *spread("tokens/response_length", "data", "response_mask", lambda s, o: s.response_lengths, empty=SEQUENCES),
    *spread("tokens/prompt_length", "data", PROMPTS, lambda s, o: s.prompt_lengths, empty=SEQUENCES),
    *spread(
        "tokens/total_length", "data", PROMPTS,
        lambda s, o: s.response_lengths + s.prompt_lengths, empty=SEQUENCES,
    ),
    *spread("tokens/terminated_length", "data", "finished", _terminated_lengths, empty="no sequence ended"),
    *spread(
        "tokens/response_length_not_aborted", "data", "response_mask",
        lambda s, o: s.response_lengths[s.response_lengths > 0], empty="every sequence was aborted",
    ),
    mean("tokens/aborted", "data", "response_mask", lambda s, o: s.response_lengths == 0, SEQUENCES),
    mean(
        "tokens/response_truncated", "data", "max_response_length",
        lambda s, o: s.response_lengths >= o.max_response_length, SEQUENCES,
    ),
    mean(
        "tokens/prompt_truncated", "data", f"{PROMPTS} max_prompt_length",
        lambda s, o: s.prompt_lengths >= o.max_prompt_length, SEQUENCES,
    ),
    total("tokens/eos_count", "data", "actions eos_ids", lambda s, o: _ends(s)),
    mean("tokens/contains_eos", "data", "actions eos_ids", _contains_eos, SEQUENCES),
]  # fmt: skip

REWARDS = [
    *spread("reward/score", "data", "scores", _scores, ("mean", "max", "min", "std"), SEQUENCES),
    *spread("reward/score_not_aborted", "data", "scores", _scores_not_aborted, empty="every sequence was aborted"),
    *spread("reward/shaped", "data", "rewards", _shaped, empty=SEQUENCES),
    *spread(
        "reward/shaped_not_aborted", "data", "rewards",
        lambda s, o: _shaped(s, o)[s.response_lengths > 0], empty="every sequence was aborted",
    ),
    *spread("reward/advantages", "data", "advantages", lambda s, o: s.tokens("advantages")),
    *spread("reward/returns", "data", "returns", lambda s, o: s.tokens("returns")),
    mean("reward/non_score/mean", "data", "old_log_probs ref_log_probs kl_coef", _non_score),
    mean("reward/rlhf/mean", "data", "scores old_log_probs ref_log_probs kl_coef", _rlhf),
    mean(
        "evaluation/reward_clip_fraction", "data", "unclipped_rewards reward_clip",
        lambda s, o: np.abs(s.sequence("unclipped_rewards").astype(np.float64)) > o.reward_clip, SEQUENCES,
    ),
    mean("reward/zero_std_groups", "data", "scores groups", _zero_spread, "no group"),
    mean("reward/groups/solved_none", "data", "scores groups", _solved(0), "no group"),
    mean("reward/groups/solved_all", "data", "scores groups", _solved(1), "no group"),
    mean("reward/groups/solved_some", "data", "scores groups", _solved(2), "no group"),
]  # fmt: skip

SAMPLES = [
    total("ppo/valid_samples", "data", "response_mask", lambda s, o: s.counts > 0),
    total("ppo/total_samples", "data", "response_mask", lambda s, o: np.ones(len(s.counts))),
    mean("ppo/valid_sample_ratio", "data", "response_mask", lambda s, o: s.counts > 0, SEQUENCES),
    *spread("ppo/sample_weights", "data", "weights", lambda s, o: s.sequence("weights"), empty=SEQUENCES),
]

OLD_POLICY = [
    mean("evaluation/ref_log_prob/mean", "data", "ref_log_probs", lambda s, o: s.tokens("ref_log_probs")),
    mean("evaluation/old_log_prob/mean", "data", "old_log_probs", lambda s, o: s.tokens("old_log_probs")),
    mean(
        "evaluation/entropy/mean", "data", "old_entropy|entropy",
        lambda s, o: s.tokens("entropy" if s.batch.old_entropy is None else "old_entropy"),
    ),
    mean("policy/ref_kl_k1", "data", "old_log_probs ref_log_probs", lambda s, o: s.old_minus_ref),
    mean("policy/ref_kl_sum", "data", "old_log_probs ref_log_probs", lambda s, o: s.sums(s.old_minus_ref)),
    mean("policy/entropy_sum", "data", "old_log_probs", lambda s, o: s.sums(-s.tokens("old_log_probs"))),
    *spread("value/values", "data", "old_values", lambda s, o: s.tokens("old_values")),
    Quantity(
        "value/residual:moments", MOMENTS, "data", ("returns", "old_values"),
        lambda s, o: s.tokens("returns") - s.tokens("old_values"),
    ),
]  # fmt: skip

MISMATCH_NEEDS = "old_log_probs rollout_log_probs"
MISMATCH = [
    *spread(
        "policy/mismatch/log_prob_difference", "data", MISMATCH_NEEDS,
        lambda s, o: np.abs(s.old_minus_rollout), ("mean", "max"),
    ),
    *spread(
        "policy/mismatch/probability_difference", "data", MISMATCH_NEEDS,
        lambda s, o: np.abs(np.exp(s.tokens("old_log_probs")) - np.exp(s.tokens("rollout_log_probs"))),
        ("mean", "max", "std"),
    ),
    mean("policy/mismatch/kl_k1", "data", MISMATCH_NEEDS, lambda s, o: policy.kl_k1(s.old_minus_rollout)),
    mean("policy/mismatch/kl_k3", "data", MISMATCH_NEEDS, lambda s, o: policy.kl_k3(s.old_minus_rollout)),
    *spread(
        "policy/mismatch/ratio", "data", MISMATCH_NEEDS,
        lambda s, o: np.exp(s.old_minus_rollout), ("mean", "max", "min", "std"),
    ),
    *spread(
        "policy/mismatch/importance_ratio", "data", MISMATCH_NEEDS, lambda s, o: np.exp(s.sums(s.old_minus_rollout))
    ),
    mean("policy/mismatch/perplexity/training", "data", MISMATCH_NEEDS, lambda s, o: np.exp(_nll(s, "old_log_probs"))),
    mean(
        "policy/mismatch/perplexity/rollout", "data", MISMATCH_NEEDS,
        lambda s, o: np.exp(_nll(s, "rollout_log_probs")),
    ),
    mean("policy/mismatch/log_perplexity/training", "data", MISMATCH_NEEDS, lambda s, o: _nll(s, "old_log_probs")),
    mean("policy/mismatch/log_perplexity/rollout", "data", MISMATCH_NEEDS, lambda s, o: _nll(s, "rollout_log_probs")),
    mean("policy/mismatch/log_perplexity/difference", "data", MISMATCH_NEEDS, _difference_of_log_perplexity),
    mean(
        "policy/mismatch/log_perplexity/abs_difference", "data", MISMATCH_NEEDS,
        lambda s, o: np.abs(_difference_of_log_perplexity(s, o)),
    ),
]  # fmt: skip

RATIO_NEEDS = "log_probs old_log_probs"
SURROGATE_NEEDS = "log_probs old_log_probs advantages"
POLICY = [
    *spread("policy/ratio", "policy", RATIO_NEEDS, lambda s, o: s.ratio, ("mean", "max", "min", "var")),
    mean("policy/ratio/above", "policy", RATIO_NEEDS, lambda s, o: policy.ratio_above(s.ratio, o.clip)),
    mean("policy/ratio/below", "policy", RATIO_NEEDS, lambda s, o: policy.ratio_below(s.ratio, o.clip)),
    mean(
        "policy/ratio/outside", "policy", RATIO_NEEDS,
        lambda s, o: policy.ratio_above(s.ratio, o.clip) | policy.ratio_below(s.ratio, o.clip),
    ),
    mean(
        "policy/clip_fraction", "policy", SURROGATE_NEEDS,
        lambda s, o: policy.clip_binds(s.ratio, s.tokens("advantages"), o.clip),
    ),
    mean(
        "policy/clip_fraction/high", "policy", SURROGATE_NEEDS,
        lambda s, o: policy.ratio_above(s.ratio, o.clip) & (s.tokens("advantages") > 0),
    ),
    mean(
        "policy/clip_fraction/low", "policy", SURROGATE_NEEDS,
        lambda s, o: policy.ratio_below(s.ratio, o.clip) & (s.tokens("advantages") < 0),
    ),
    mean(
        "policy/clip_fraction/dual", "policy", f"{SURROGATE_NEEDS} dual_clip",
        lambda s, o: policy.dual_clip_binds(s.ratio, s.tokens("advantages"), o.clip, o.dual_clip),
    ),
    mean("policy/kl_k1", "policy", RATIO_NEEDS, lambda s, o: policy.kl_k1(s.log_ratio)),
    mean("policy/kl_k2", "policy", RATIO_NEEDS, lambda s, o: policy.kl_k2(s.log_ratio)),
    mean("policy/kl_k3", "policy", RATIO_NEEDS, lambda s, o: policy.kl_k3(s.log_ratio)),
    mean("policy/entropy/mean", "policy", "entropy", lambda s, o: s.tokens("entropy")),
    loss(
        "policy/kl_loss", "policy", "log_probs ref_log_probs",
        lambda s, o: s.reduced(_ref_kl(s), o.loss, None, o.loss_norm),
    ),
    loss(
        "policy/loss/pg", "policy", SURROGATE_NEEDS,
        lambda s, o: s.reduced(_surrogate(s, o), o.loss, None, o.loss_norm),
    ),
    loss(
        "policy/loss/weighted_pg", "policy", f"{SURROGATE_NEEDS} weights",
        lambda s, o: s.reduced(_surrogate(s, o), o.loss, s.sequence("weights").astype(np.float64), o.loss_norm),
    ),
    Quantity(
        "policy/entropy:loss", RATIO, "policy", ("entropy",),
        lambda s, o: s.reduced(s.tokens("entropy"), o.loss, None, o.loss_norm),
    ),
    loss("sft/loss", "policy", "log_probs", lambda s, o: s.reduced(-s.tokens("log_probs"), o.loss, None, o.loss_norm)),
    loss("sft/positive_loss", "policy", "log_probs scores", lambda s, o: _sft(s, o, positive=True)),
    loss("sft/negative_loss", "policy", "log_probs scores", lambda s, o: _sft(s, o, positive=False)),
]  # fmt: skip


def _ref_kl(s: Selection) -> Floats:
    return policy.kl_k3(s.tokens("ref_log_probs") - s.tokens("log_probs"))


def _surrogate(s: Selection, o: Options) -> Floats:
    return policy.surrogate_loss(s.ratio, s.tokens("advantages"), o.clip, o.dual_clip)


def _sft(s: Selection, o: Options, positive: bool) -> tuple[float, float]:
    """Reduce the loss of the sequences whose score is above zero, or of the others."""
    chosen = (s.sequence("scores").astype(np.float64) > 0) == positive
    of_chosen = np.repeat(chosen, s.counts)
    return sequences.reduced(
        -s.tokens("log_probs")[of_chosen], np.where(chosen, s.counts, 0), o.loss, None, o.loss_norm
    )


VALUE = [
    mean("value/old/mean", "value", "old_values", lambda s, o: s.tokens("old_values")),
    mean("value/prediction/mean", "value", "values", lambda s, o: s.tokens("values")),
    mean(
        "value/error", "value", "values returns",
        lambda s, o: value.squared_error(s.tokens("values"), s.tokens("returns")),
    ),
    loss(
        "value/loss", "value", "values returns",
        lambda s, o: s.reduced(_value_loss(s, o), o.loss, None, o.loss_norm),
    ),
    mean(
        "value/clip_fraction", "value", "values returns old_values value_clip",
        lambda s, o: value.value_clip_binds(
            s.tokens("values"), s.tokens("returns"), s.tokens("old_values"), o.value_clip
        ),
    ),
]  # fmt: skip


def _value_loss(s: Selection, o: Options) -> Floats:
    if o.value_clip is not None and s.batch.old_values is None:
        raise LackingError("it is clipped around old_values, which the batch does not have")
    old = s.tokens("old_values") if o.value_clip is not None else None
    return value.value_loss(s.tokens("values"), s.tokens("returns"), old, o.value_clip)


QUANTITIES: tuple[Quantity, ...] = (*LENGTHS, *REWARDS, *SAMPLES, *OLD_POLICY, *MISMATCH, *POLICY, *VALUE)
