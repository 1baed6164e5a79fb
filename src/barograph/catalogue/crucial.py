"""The crucial values: the few metrics that show whether a run is healthy, as TRL's logging page lists them.

The reward rises, with the score; the KL stays positive and bounded; the value loss does not spike; the ratio stays
near 1; clip fraction and approximate KL are not high together; the KL coefficient does not keep growing. The doctor's
rules judge them.
"""

from __future__ import annotations

from dataclasses import dataclass

from barograph.catalogue.spec import Text


@dataclass(frozen=True, slots=True)
class CrucialValue:
    """One crucial value, how it looks in a healthy run, and the metrics it can be taken from, the best first."""

    key: str
    title: Text
    meaning: Text
    metrics: tuple[str, ...]


CRUCIAL: tuple[CrucialValue, ...] = (
    CrucialValue(
        "reward",
        Text("Reward", "奖励"),
        Text("The reward that training maximises should rise.", "训练所最大化的奖励应当上升。"),
        ("reward/rlhf/mean", "reward/score/mean", "reward/score_not_aborted/mean"),
    ),
    CrucialValue(
        "score",
        Text("Score", "得分"),
        Text(
            "The score itself should rise, not only the reward after penalties.",
            "得分本身应当上升，而不只是加上惩罚项后的奖励。",
        ),
        ("reward/score/mean", "reward/score_not_aborted/mean"),
    ),
    CrucialValue(
        "kl",
        Text("KL to the reference", "对参考模型的 KL"),
        Text(
            "Positive and bounded: it neither keeps growing nor is clearly negative.",
            "为正且有界：既不持续增大，也不明显为负。",
        ),
        ("policy/ref_kl_sum", "policy/kl_loss", "policy/ref_kl_k1"),
    ),
    CrucialValue(
        "value_loss",
        Text("Value loss", "价值损失"),
        Text("It spikes or turns NaN when training goes wrong.", "训练出问题时它会突增或变成 NaN。"),
        ("value/loss",),
    ),
    CrucialValue(
        "ratio",
        Text("Ratio", "重要性比"),
        Text("Stays near 1; at 2 or 0.1 updates are too large.", "在 1 附近波动；到 2 或 0.1 说明更新幅度过大。"),
        ("policy/ratio/mean",),
    ),
    CrucialValue(
        "clip",
        Text("Clip fraction with KL", "裁剪比例与 KL"),
        Text(
            "A high clip fraction together with a high approximate KL means that update steps are too large.",
            "裁剪比例与近似 KL 同时偏高，说明更新步长过大。",
        ),
        ("policy/clip_fraction",),
    ),
    CrucialValue(
        "kl_now",
        Text("Approximate KL", "近似 KL"),
        Text(
            "Change of the policy in one step: at most about 0.01 to 0.02.",
            "一步更新中策略的变化量：一般不超过 0.01 到 0.02。",
        ),
        ("policy/kl_k2", "policy/kl_k1"),
    ),
    CrucialValue(
        "kl_coef",
        Text("KL coefficient", "KL 系数"),
        Text(
            "An adaptive coefficient that keeps growing fails to limit the KL.",
            "自适应系数若持续增大，说明它控制不住 KL。",
        ),
        ("reward/kl_coef",),
    ),
)
