"""Coverage: how much of what was expected came, declared alike for rollouts, evaluations and validations."""

from windsock.catalogue.spec import Metric, Text

_COUNTS = (
    (
        "tasks_expected",
        "tasks",
        "Tasks expected",
        "应有任务数",
        "Tasks that should have been run, as the caller said.",
        "调用方声明应当运行的任务数。",
    ),
    (
        "tasks_observed",
        "tasks",
        "Tasks observed",
        "有结果的任务数",
        "Tasks of which at least one run was reported: the ones that the means are over.",
        "至少有一次运行上报了结果的任务数：各均值就是对它们求的。",
    ),
    (
        "tasks_failed",
        "tasks",
        "Tasks failed",
        "完全失败的任务数",
        "Tasks of which every run that is known failed.",
        "已知的每次运行都失败的任务数。",
    ),
    (
        "tasks_partial",
        "tasks",
        "Tasks in part",
        "部分完成的任务数",
        "Observed tasks that lack a run: one failed, or fewer came than expected. They stay in the means.",
        "有结果但缺少运行的任务数：某次运行失败，或次数不足。它们仍计入均值。",
    ),
    (
        "runs_expected",
        "runs",
        "Runs expected",
        "应有运行次数",
        "Runs that should have been made: tasks times repeats.",
        "应当进行的运行次数：任务数乘以重复次数。",
    ),
    (
        "runs_observed",
        "runs",
        "Runs observed",
        "有结果的运行次数",
        "Runs that were reported.",
        "上报了结果的运行次数。",
    ),
    (
        "runs_failed",
        "runs",
        "Runs failed",
        "失败的运行次数",
        "Runs that failed and were not reported after a retry.",
        "失败且重试后也没有结果的运行次数。",
    ),
    (
        "late",
        "runs",
        "Late reports",
        "迟到的上报",
        "Reports that came after the step was closed; they are in no mean.",
        "在该步结束之后才到的上报；不计入任何均值。",
    ),
)
_LOOK = Text(
    "Observed equals expected; failed, partial and late are 0.", "有结果的等于应有的；失败、部分完成与迟到均为 0。"
)
_NEXT = Text(
    "The reasons of the failures (windsock show), the time limits of the workflows.",
    "看失败原因（windsock show）与工作流的时限。",
)


def coverage(prefix: str, family: str) -> tuple[Metric, ...]:
    """Declare the counts of one thing that is gathered."""
    return tuple(
        Metric(
            f"{prefix}/coverage/{what}",
            family,
            Text(title, title_zh),
            Text(about, about_zh),
            f"#{what.replace('_', ' ')}",
            "count",
            population,
            "count",
            "sum",
            look=_LOOK,
            next=_NEXT,
            direction={"tasks_observed": "higher", "runs_observed": "higher"}.get(
                what, "none" if what.endswith("expected") else "lower"
            ),
        )
        for what, population, title, title_zh, about, about_zh in _COUNTS
        if family != "validation" or population == "runs"
    )
