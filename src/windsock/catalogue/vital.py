"""The vital signs: what a person wants to see of a run first, each with the metrics that it can be read from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from windsock.catalogue.names import Match, recognise
from windsock.catalogue.spec import Text


@dataclass(frozen=True, slots=True)
class Vital:
    """One vital sign; of its metrics, the first that a run logs stands for it."""

    key: str
    title: Text
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sign:
    """A vital sign as a run logs it: the name to show, what it stands for, and other names of the same metric."""

    vital: Vital
    name: str
    match: Match
    others: tuple[str, ...] = ()


VITAL: tuple[Vital, ...] = (
    Vital(
        "reward",
        Text("Reward", "奖励"),
        (
            "reward/score/mean",
            "reward/score_not_aborted/mean",
            "reward/rlhf/mean",
            "reward/shaped/mean",
            "reward/shaped_not_aborted/mean",
        ),
    ),
    Vital(
        "validation",
        Text("Validation", "验证"),
        (
            "validation/score/mean",
            "validation/{tag}/score/mean",
            "eval/{taskset}/{metric}/mean@{k}",
            "validation/correct",
            "eval/{taskset}/{metric}/mean",
            "bench/{taskset}/{metric}/mean@{k}",
        ),
    ),
    Vital(
        "kl",
        Text("KL to the reference", "对参考模型的 KL"),
        ("policy/ref_kl_sum", "policy/kl_loss", "policy/ref_kl_k1"),
    ),
    Vital(
        "kl_now",
        Text("KL of an update", "一次更新的 KL"),
        ("policy/kl_k2", "policy/kl_k3", "policy/kl_k1", "policy/kl_exact"),
    ),
    Vital("entropy", Text("Entropy", "熵"), ("policy/entropy/mean", "evaluation/entropy/mean", "policy/entropy_sum")),
    Vital("clip", Text("Clip fraction", "裁剪比例"), ("policy/clip_fraction", "policy/ratio/outside")),
    Vital("ratio", Text("Ratio", "重要性比"), ("policy/ratio/mean",)),
    Vital("value_loss", Text("Value loss", "价值损失"), ("value/loss",)),
    Vital("explained_variance", Text("Explained variance", "解释方差"), ("value/explained_variance",)),
    Vital(
        "length",
        Text("Response length", "回复长度"),
        ("tokens/response_length/mean", "tokens/response_length_not_aborted/mean", "tokens/terminated_length/mean"),
    ),
    Vital(
        "truncated",
        Text("Truncated responses", "被截断的回复"),
        ("tokens/response_truncated", "tokens/response_length_not_aborted/truncated"),
    ),
    Vital("grad_norm", Text("Gradient norm", "梯度范数"), ("policy/grad_norm",)),
    Vital(
        "throughput",
        Text("Throughput", "吞吐"),
        (
            "system/tokens_per_second",
            "system/tokens_per_second_per_device",
            "system/generated_tokens_per_second",
            "system/train_tokens_per_second",
            "time/step",
        ),
    ),
    Vital(
        "memory",
        Text("Memory peak", "显存峰值"),
        (
            "memory/step/max_allocated",
            "memory/step/max_reserved",
            "memory/{phase}/{moment}/max_allocated/{device}",
            "system/device/{device}/memory_used",
            "memory/host/used",
        ),
    ),
)
_WANTED = frozenset(id for vital in VITAL for id in vital.metrics)


def vital_signs(names: Iterable[str], source: str | None = None) -> dict[str, Sign]:
    """Return the vital signs that a run logs, by key; ``source`` says who wrote the names."""
    logged: dict[str, list[tuple[str, Match]]] = {}
    for name in names:
        match = next((match for match in recognise(name, source).matches if match.metric.id in _WANTED), None)
        if match is not None and not match.evaluated:
            logged.setdefault(match.metric.id, []).append((name, match))
    found = {}
    for vital in VITAL:
        of_vital = next((logged[id] for id in vital.metrics if id in logged), None)
        if of_vital:
            (name, match), *others = sorted(of_vital, key=_tries, reverse=True)
            found[vital.key] = Sign(vital, name, match, tuple(other for other, _ in others))
    return found


def _tries(logged: tuple[str, Match]) -> int:
    """Of evaluations the one over most tries of a task is the least noisy."""
    return int(dict(logged[1].filled).get("k", 0))
