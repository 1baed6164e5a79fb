"""Experience pipeline: what the operators between rollout and training do to the experiences."""

from windsock.catalogue.declare import difference, differs, link, ours, same, trap
from windsock.catalogue.spec import Metric, Text

_SINGLETON = difference(
    "sentinel",
    "A group of one counts with mean 0 and deviation 1, which are constants, not measurements; filtered "
    "groups count too.",
    "只有一条经验的组按均值 0、标准差 1 计入，这是常数而不是测量值；被过滤的组也计入。",
)


def _group(what: str, stat: str, en: str, zh: str, about: Text, formula: str) -> Metric:
    written = ours(f"experience_pipeline/group_advantages/{what}/{stat}", "trinity")
    return Metric(
        f"pipeline/group/{what}/{stat}",
        "pipeline",
        Text(en, zh),
        about,
        formula,
        "reward",
        "groups",
        stat,
        {"mean": "mean"}.get(stat, "extrema"),
        look=Text(
            "The mean of group means rises with the score. Deviations above 0: at 0 a group teaches nothing.",
            "组均值的平均应随得分上升；标准差应大于 0，为 0 的组学不到东西。",
        ),
        next=Text("reward/zero_std_groups, reward/score/mean.", "看 reward/zero_std_groups 与 reward/score/mean。"),
        direction="higher" if what == "reward_mean" else "none",
        needs=("scores", "groups"),
        names=(*written, *differs(f"experience_pipeline/group_advantages/{what}/{stat}", "trinity", by=_SINGLETON)),
        traps=(
            trap(
                "trinity",
                "Averaged over groups, one value each: groups of different size weigh the same.",
                "按组平均、每组一个值：大小不同的组权重相同。",
            ),
            *(
                (
                    trap(
                        "trinity",
                        "Deviations use ddof 1 here and ddof 0 in the filter operator beside it.",
                        "这里的标准差用 ddof 1，旁边的过滤算子却用 ddof 0。",
                    ),
                )
                if what == "reward_std"
                else ()
            ),
        ),
        links=(
            link(
                "reward/score/mean",
                "A mean over groups equals the mean over sequences only when all groups are of one size.",
                "只有各组大小相同时，对组求平均才等于对序列求平均。",
                refuse=False,
            ),
        )
        if (what, stat) == ("reward_mean", "mean")
        else (),
    )


_STATS = (("mean", "mean", "均值"), ("max", "maximum", "最大值"), ("min", "minimum", "最小值"))

METRICS: tuple[Metric, ...] = (
    Metric(
        "pipeline/experience_count",
        "pipeline",
        Text("Experiences", "经验条数"),
        Text("Experiences left after all operators of the pipeline.", "经过流水线所有算子之后剩下的经验条数。"),
        "#experiences after the last operator",
        "count",
        "samples",
        "count",
        "sum",
        look=Text("Close to what the rollouts produced.", "接近 rollout 产出的数量。"),
        next=Text(
            "pipeline/filtered_count and the operators' own counts.", "看 pipeline/filtered_count 与各算子自己的计数。"
        ),
        names=(
            *ours("experience_pipeline/experience_count", "trinity"),
            *same("experience_pipeline/experience_count", "trinity"),
        ),
    ),
    *(
        _group(
            "reward_mean",
            stat,
            f"Group mean reward: {en}",
            f"组内平均奖励：{zh}",
            Text(
                f"The mean reward of a group of answers to one prompt, {en} over groups.",
                f"同一题目一组回答的平均奖励，对组取{zh}。",
            ),
            f"{stat} over groups of the group's mean reward",
        )
        for stat, en, zh in _STATS
    ),
    *(
        _group(
            "reward_std",
            stat,
            f"Group reward deviation: {en}",
            f"组内奖励标准差：{zh}",
            Text(f"How much the rewards within a group differ, {en} over groups.", f"组内奖励的差异程度，对组取{zh}。"),
            f"{stat} over groups of the group's reward std",
        )
        for stat, en, zh in _STATS
    ),
    Metric(
        "pipeline/filtered_count",
        "pipeline",
        Text("Filtered experiences", "被过滤的经验数"),
        Text("Experiences that an operator of the pipeline removed.", "被流水线中某个算子剔除的经验条数。"),
        "#experiences removed",
        "count",
        "samples",
        "count",
        "sum",
        look=Text(
            "Low; nearly all filtered means that nothing is left to learn from.",
            "较低；几乎全被过滤说明没什么可学的了。",
        ),
        next=Text("reward/zero_std_groups.", "看 reward/zero_std_groups。"),
        direction="lower",
        names=(
            *same("experience_pipeline/operator_filtered_count", "trinity"),
            *same("experience_pipeline/group_advantages/filtered_count", "trinity"),
        ),
        links=(
            link(
                "reward/zero_std_groups", "A count of experiences is not a share of groups.", "经验条数不是组的占比。"
            ),
        ),
    ),
    Metric(
        "pipeline/{key}",
        "pipeline",
        Text("Operator metric", "算子指标"),
        Text("What an operator of the experience pipeline reports.", "经验流水线中某个算子上报的指标。"),
        "as reported by the operator",
        "as reported",
        "samples",
        "other",
        "none",
        look=Text("Depends on the operator.", "取决于具体算子。"),
        next=Text("pipeline/experience_count.", "看 pipeline/experience_count。"),
        names=(*ours("experience_pipeline/{key}", "trinity"), *same("experience_pipeline/{key}", "trinity")),
        traps=(trap("trinity", "Some keys hold < and >, which MLflow refuses.", "有些键含 < 与 >，MLflow 会拒绝。"),),
    ),
)
