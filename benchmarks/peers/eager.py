"""The metrics of a step in eager torch code, as frameworks write them: masked expressions, an ``item()`` for each.

The names are barograph's in ROLL's vocabulary. Metrics of micro-batches are averaged over them, as frameworks do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

CLIP, DUAL_CLIP, VALUE_CLIP, KL_COEF = 0.2, 3.0, 0.2, 0.05
PERCENTS = (1, 10, 50, 90, 99)
Arrays = dict[str, Any]


def spread(name: str, x: torch.Tensor) -> dict[str, float]:
    return {f"{name}/mean": x.mean().item(), f"{name}/max": x.max().item(), f"{name}/min": x.min().item()}


def data_metrics(data: Arrays) -> dict[str, float]:
    """Compute the metrics of the rollout batch."""
    mask = data["response_mask"]
    lengths = mask.sum(1)
    tokens = {name: data[name][mask] for name in ("advantages", "returns", "old_values")}
    out = {
        "actor/total_samples": float(len(lengths)),
        "actor/valid_samples": (lengths > 0).sum().item(),
        "actor/valid_sample_ratio": (lengths > 0).float().mean().item(),
        "tokens/aborted": (lengths == 0).float().mean().item(),
        "tokens/response_truncated": (lengths >= mask.shape[1]).float().mean().item(),
    }
    for name, x in zip(("advantages", "returns", "values"), tokens.values(), strict=True):
        out |= spread(f"critic/{name}", x)
    residual = tokens["returns"] - tokens["old_values"]
    out["value/explained_variance"] = (1 - residual.var() / tokens["returns"].var()).item()
    finished, scores = lengths > 0, data["scores"]
    rewards = (data["rewards"] * mask).sum(1)
    out |= spread("critic/score", scores) | spread("critic/rewards", rewards)
    out["reward/score/std"] = scores.std(correction=0).item()
    out |= spread("reward/score_not_aborted", scores[finished])
    out |= spread("reward/shaped_not_aborted", rewards[finished])
    out |= spread("tokens/response_length", lengths.to(scores.dtype))
    out |= spread("tokens/response_length_not_aborted", lengths[finished].to(scores.dtype))
    return out | group_metrics(scores, data["groups"]) | old_policy_metrics(data) | mismatch_metrics(data)


def group_metrics(scores: torch.Tensor, groups: Any) -> dict[str, float]:
    _, places, sizes = np.unique(groups.astype(str), return_inverse=True, return_counts=True)
    place, size = (torch.as_tensor(x, device=scores.device) for x in (places, sizes))
    start = torch.zeros(len(sizes), dtype=scores.dtype, device=scores.device)
    high = start.scatter_reduce(0, place, scores, "amax", include_self=False)
    low = start.scatter_reduce(0, place, scores, "amin", include_self=False)
    solved, failed = low >= 1, high < 1
    return {
        "reward/zero_std_groups": (low == high).float().mean().item(),
        "reward/groups/effective_samples": (size * (low != high)).sum().item(),
        "reward/groups/solved_all": solved.float().mean().item(),
        "reward/groups/solved_none": failed.float().mean().item(),
        "reward/groups/solved_some": (~solved & ~failed).float().mean().item(),
    }


def old_policy_metrics(data: Arrays) -> dict[str, float]:
    mask, old, ref = (data[name] for name in ("response_mask", "old_log_probs", "ref_log_probs"))
    count = mask.sum()
    kl = ((old - ref) * mask).sum(1)
    return {
        "critic/entropy/mean": ((data["entropy"] * mask).sum() / count).item(),
        "critic/old_log_prob/mean": ((old * mask).sum() / count).item(),
        "critic/ref_log_prob/mean": ((ref * mask).sum() / count).item(),
        "policy/ref_kl_k1": (kl.sum() / count).item(),
        "policy/ref_kl_sum": kl.mean().item(),
        "policy/entropy_sum": (-old * mask).sum(1).mean().item(),
        "reward/non_score/mean": (-KL_COEF * kl).mean().item(),
        "reward/rlhf/mean": (data["scores"] - KL_COEF * kl).mean().item(),
    }


def mismatch_metrics(data: Arrays) -> dict[str, float]:
    """Compare the log-probs of the trainer and of the rollouts."""
    mask, old, rollout = (data[name] for name in ("response_mask", "old_log_probs", "rollout_log_probs"))
    lengths = mask.sum(1).clamp(min=1)
    d = (old - rollout)[mask]
    ratio = d.exp()
    apart = (old.exp() - rollout.exp())[mask].abs()
    prefix = "policy/mismatch"
    out = {
        f"{prefix}/log_prob_difference/mean": d.abs().mean().item(),
        f"{prefix}/log_prob_difference/max": d.abs().max().item(),
        f"{prefix}/probability_difference/mean": apart.mean().item(),
        f"{prefix}/probability_difference/max": apart.max().item(),
        f"{prefix}/probability_difference/std": apart.std(correction=0).item(),
        f"{prefix}/ratio/std": ratio.std(correction=0).item(),
        f"{prefix}/kl_k1": (-d).mean().item(),
        f"{prefix}/kl_k3": (ratio - 1 - d).mean().item(),
        f"{prefix}/effective_sample_size": (ratio.sum() ** 2 / (len(ratio) * (ratio**2).sum())).item(),
    }
    out |= spread(f"{prefix}/ratio", ratio)
    weights = ((old - rollout) * mask).sum(1).exp()
    out |= spread(f"{prefix}/importance_ratio", weights)
    out[f"{prefix}/chi2_token"] = ((ratio**2).mean() - 1).item()
    out[f"{prefix}/chi2_sequence"] = ((weights**2).mean() - 1).item()
    losses = {"training": -(old * mask).sum(1) / lengths, "rollout": -(rollout * mask).sum(1) / lengths}
    for name, loss in losses.items():
        out[f"{prefix}/log_perplexity/{name}"] = loss.mean().item()
        out[f"{prefix}/perplexity/{name}"] = loss.exp().mean().item()
    difference = losses["rollout"] - losses["training"]
    out[f"{prefix}/log_perplexity/difference"] = difference.mean().item()
    out[f"{prefix}/log_perplexity/abs_difference"] = difference.abs().mean().item()
    out[f"{prefix}/log_perplexity/difference_max"] = difference.max().item()
    out[f"{prefix}/log_perplexity/difference_min"] = difference.min().item()
    out[f"{prefix}/perplexity/ratio"] = (-difference).exp().mean().item()
    return out


def policy_metrics(data: Arrays) -> dict[str, float]:
    """Compute the metrics of the actor for one micro-batch."""
    mask, lp, old, ref, adv = (
        data[name] for name in ("response_mask", "log_probs", "old_log_probs", "ref_log_probs", "advantages")
    )
    count, lengths = mask.sum(), mask.sum(1).clamp(min=1)

    def mean(x: torch.Tensor) -> torch.Tensor:
        return (x * mask).sum() / count

    def per_sequence(x: torch.Tensor) -> torch.Tensor:
        return (x * mask).sum(1) / lengths

    d = lp - old
    r = d.exp()
    above, below = r > 1 + CLIP, r < 1 - CLIP
    plain, clipped = r * adv, r.clamp(1 - CLIP, 1 + CLIP) * adv
    gain = torch.minimum(plain, clipped)
    bound = DUAL_CLIP * adv
    loss = per_sequence(-torch.where(adv < 0, torch.maximum(gain, bound), gain)).mean()
    k = ref - lp
    sft = per_sequence(-lp)
    right = data["scores"] > 0
    return {
        "actor/ratio_mean": mean(r).item(),
        "actor/ratio_max": r.masked_fill(~mask, -torch.inf).max().item(),
        "actor/ratio_min": r.masked_fill(~mask, torch.inf).min().item(),
        "policy/ratio/var": mean((r - mean(r)) ** 2).item(),
        "actor/ppo_ratio_high_clipfrac": mean(above).item(),
        "actor/ppo_ratio_low_clipfrac": mean(below).item(),
        "actor/ppo_ratio_clipfrac": mean(above | below).item(),
        "actor/clipfrac": mean(clipped < plain).item(),
        "policy/clip_fraction/high": mean(above & (adv > 0)).item(),
        "policy/clip_fraction/low": mean(below & (adv < 0)).item(),
        "policy/clip_fraction/dual": mean((gain < bound) & (adv < 0)).item(),
        "actor/policykl_k1": mean(-d).item(),
        "actor/approxkl": mean(0.5 * d * d).item(),
        "policy/kl_k3": mean(r - 1 - d).item(),
        "policy/entropy/mean": mean(data["entropy"]).item(),
        "actor/kl_loss": per_sequence(k.exp() - k - 1).mean().item(),
        "actor/pg_loss": loss.item(),
        "actor/total_loss": loss.item(),
        "actor/sft_loss": sft.mean().item(),
        "actor/positive_sft_loss": ((sft * right).sum() / right.sum()).item(),
        "actor/negative_sft_loss": ((sft * ~right).sum() / (~right).sum()).item(),
    }


def value_metrics(data: Arrays) -> dict[str, float]:
    """Compute the metrics of the critic for one micro-batch."""
    mask, values, old, returns = (data[name] for name in ("response_mask", "values", "old_values", "returns"))
    count, lengths = mask.sum(), mask.sum(1).clamp(min=1)

    def mean(x: torch.Tensor) -> torch.Tensor:
        return (x * mask).sum() / count

    error = (values - returns) ** 2
    bounded = (torch.maximum(torch.minimum(values, old + VALUE_CLIP), old - VALUE_CLIP) - returns) ** 2
    loss = (torch.maximum(error, bounded) * mask).sum(1) / lengths
    return {
        "critic/value": mean(old).item(),
        "critic/vpred": mean(values).item(),
        "critic/error": mean(error).item(),
        "critic/loss": 0.5 * loss.mean().item(),
        "critic/clipfrac": mean(bounded > error).item(),
    }


def quantiles(name: str, x: torch.Tensor) -> dict[str, float]:
    # Sorted, because torch.quantile takes at most 16 million numbers.
    ordered = x.sort().values
    return {f"{name}p{q}": ordered[max(math.ceil(q * len(ordered) / 100) - 1, 0)].item() for q in PERCENTS}


def data_quantiles(data: Arrays) -> dict[str, float]:
    mask = data["response_mask"]
    apart = (data["old_log_probs"] - data["rollout_log_probs"])[mask].abs()
    return {
        **quantiles("critic/advantages/", data["advantages"][mask]),
        **quantiles("tokens/response_length/", mask.sum(1)),
        **quantiles("policy/mismatch/log_prob_difference/", apart),
    }


def policy_quantiles(data: Arrays) -> dict[str, float]:
    mask = data["response_mask"]
    ratio = (data["log_probs"] - data["old_log_probs"])[mask].exp()
    return quantiles("actor/ratio_", ratio) | quantiles("policy/entropy/", data["entropy"][mask])


def _merged(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([metrics[name] for metrics in found])) for name in found[0]}


def step_metrics(data: Arrays, micros: Sequence[Arrays], with_quantiles: bool = False) -> dict[str, float]:
    """Compute the metrics of a step: of its batch, and of each of its micro-batches."""
    out = data_metrics(data)
    out |= _merged([policy_metrics(micro) for micro in micros]) | _merged([value_metrics(micro) for micro in micros])
    if with_quantiles:
        out |= data_quantiles(data) | _merged([policy_quantiles(micro) for micro in micros])
    return out


def micro_batches(data: Arrays, parts: int) -> Iterator[Arrays]:
    """Yield the micro-batches as views."""
    bounds = np.linspace(0, len(data["scores"]), parts + 1).astype(int)
    for low, high in pairwise(bounds.tolist()):
        yield {name: value[low:high] for name, value in data.items()}
