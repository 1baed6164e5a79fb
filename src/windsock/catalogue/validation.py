"""Validation: how the policy scores on held-out episodes."""

from windsock.catalogue.coverage import coverage
from windsock.catalogue.declare import difference, differs, link, ours, same, spread, trap
from windsock.catalogue.spec import Metric, Text

_EVAL_LOOP = difference(
    "population reducer",
    "TRL: mean over the evaluation batches of the weighted sum of all reward functions; rows without any "
    "score are left out.",
    "TRL：先对所有奖励函数加权求和，再对评测各批次取平均；没有任何得分的样本不计入。",
)
_GROUPS = difference(
    "population",
    "ROLL averages each trajectory group first; mean, maximum and minimum are then over groups (over "
    "trajectories in rollout-only mode).",
    "ROLL 先在轨迹组内求平均，再对组求均值、最大和最小（仅 rollout 模式下则是对轨迹统计）。",
)

_LOOK = Text(
    "Rising with the training score. A training score that climbs while this one stays or falls means "
    "memorised "
    "prompts or a gamed reward.",
    "应随训练得分一同上升。若训练得分上升而它停滞或下降，多半是记住了训练题目，或奖励被钻了空子。",
)
_NEXT = Text(
    "reward/score/mean for the training side; the sampling temperature of validation; samples of both.",
    "对照训练侧的 reward/score/mean；检查验证所用的采样温度；各抽几条样本来读。",
)

METRICS: tuple[Metric, ...] = (
    *spread(
        "validation/score",
        "validation",
        Text("Validation score", "验证得分"),
        Text(
            "The score that held-out episodes get, one number per episode, before any shaping.",
            "留出集上每个回合的得分（每个回合一个数），未经任何奖励塑形。",
        ),
        "{stat} over validation episodes of score",
        unit="reward",
        population="episodes",
        needs=("scores", "episodes?"),
        look=_LOOK,
        next=_NEXT,
        direction="higher",
        names=(
            *ours("val/score/{stat}", "roll"),
            *same("val/score/{stat}", "roll"),
            *differs("eval_reward", "trl", by=_EVAL_LOOP),
            *differs("eval/reward", "trl", by=_EVAL_LOOP),
        ),
        traps=(
            trap(
                "roll",
                "Only the agentic pipeline logs val/score; the RLVR pipeline logs val_correct/all/mean instead.",
                "只有 agentic 流水线记录 val/score；RLVR 流水线记录的是 val_correct/all/mean。",
            ),
            trap(
                "trl",
                "In TRL's PPO, val/ means the value head (val/clipfrac_avg) and the ratio (val/ratio), "
                "never validation.",
                "在 TRL 的 PPO 里，val/ 指价值头（val/clipfrac_avg）和概率比（val/ratio），从来不是验证集。",
            ),
        ),
    ),
    *spread(
        "validation/{tag}/score",
        "validation",
        Text("Validation score of one tag", "按标签划分的验证得分"),
        Text(
            "The validation score of one environment or data tag.",
            "单个环境或数据标签上的验证得分。",
        ),
        "{stat} over validation episodes with the tag of score",
        unit="reward",
        population="episodes",
        needs=("scores", "episodes?"),
        look=_LOOK,
        next=_NEXT,
        direction="higher",
        names=differs("val/{tag}/score/{stat}", "roll", by=_GROUPS),
    ),
    Metric(
        "validation/correct",
        "validation",
        Text("Share of correct validation answers", "验证集正确率"),
        Text(
            "The share of validation samples whose score is exactly 1.",
            "验证样本中得分恰好等于 1 的比例。",
        ),
        "#(score = 1) / #samples",
        "fraction",
        "samples",
        "share",
        "mean",
        look=_LOOK,
        next=_NEXT,
        direction="higher",
        needs=("scores",),
        names=(*same("val_correct/all/mean", "roll"), *same("val_correct/{tag}/mean", "roll")),
        traps=(
            trap(
                "roll",
                "The comparison is exact: with graded or fractional rewards a nearly right answer counts as wrong.",
                "这里是严格相等比较：奖励若是分级或小数，接近满分的回答也会算错。",
            ),
        ),
        links=(
            link(
                "validation/score/mean",
                "A share of answers with score exactly 1 is not the mean score, unless every score is 0 or 1.",
                "“得分恰为 1 的比例”不是平均得分，除非得分只取 0 和 1。",
            ),
        ),
    ),
    *coverage("validation", "validation"),
)
