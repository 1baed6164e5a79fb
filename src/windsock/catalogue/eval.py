"""Evaluation on task sets: every task is run several times, and statistics say how well it is solved."""

from windsock.catalogue.coverage import coverage
from windsock.catalogue.declare import Names, difference, differs, link, ours, same, trap
from windsock.catalogue.spec import Link, Metric, Text, Trap

_BOOTSTRAP = difference(
    "estimator",
    "An average over 1000 random resamples with one fixed seed instead of the closed form: equal up to "
    "about 0.01, and it depends on the order of the runs.",
    "用固定种子做 1000 次随机重采样求平均，而不是闭式解：误差约 0.01 以内，且与运行的先后顺序有关。",
    factor=1.0,
)
_BY_COUNT = difference(
    "population",
    "k is the number of runs that survived: tasks with failed runs leave this average and form one of their own.",
    "k 是实际成功的运行次数：有失败运行的任务会离开这个平均，另立一组。",
)
_DDOF = difference(
    "ddof",
    "Over tasks with ddof 1 (NaN for one task) before May 2026.",
    "2026 年 5 月之前对任务用 ddof 1（只有一个任务时为 NaN）。",
)
_VERL_BEST = difference(
    "estimator",
    "A bootstrap average, with /mean behind the statistic; veRL's /std is the mean of per-prompt bootstrap "
    "deviations, not a deviation over tasks.",
    "自举平均，统计量后带 /mean；veRL 的 /std 是各题自举标准差的平均，而不是对任务的标准差。",
    factor=1.0,
)
_PASS_LINK = (
    "best@k draws with replacement, pass@k without: for 3 right of 8 they are 0.847 and 0.929 at k = 4. "
    "Neither gives the other.",
    "best@k 是有放回抽取，pass@k 是无放回：8 次中对 3 次、k = 4 时分别是 0.847 与 0.929，无法互相换算。",
)
_LOOK = Text(
    "Rising with training. Look at the number of tasks before believing a change: with 200 tasks a "
    "difference below 3 points is noise.",
    "随训练上升。先看任务数再下结论：200 个任务时，3 个百分点以内的差异都是噪声。",
)
_NEXT = Text(
    "The other statistics of the same set (best@k − mean@k is what sampling more would win), the training "
    "score, failed runs.",
    "看同一任务集的其他统计量（best@k − mean@k 就是多采样能多得的部分）、训练得分与失败的运行。",
)
_RAGGED = trap(
    "trinity",
    "A task that lost runs reports mean@3 beside the others' mean@4: two curves, and neither covers all tasks.",
    "丢失运行的任务会报 mean@3，与其他任务的 mean@4 并存：两条曲线，哪条都不完整。",
)
_NOT_PASS = trap(
    "",
    "best@k is not pass@k, and best@n is not the maximum of the n runs.",
    "best@k 不是 pass@k；best@n 也不是 n 次运行的最大值。",
)

_STATISTICS = (
    (
        "mean",
        "Mean over runs",
        "运行均值",
        "How well the set is solved on average: the mean of a task's runs, averaged over tasks.",
        "任务集平均解得多好：先对每个任务的各次运行求均值，再对任务求平均。",
        "mean over tasks of mean over runs",
        "mean",
        "",
        (),
    ),
    (
        "std",
        "Spread over runs",
        "运行间标准差",
        "How much the runs of one task differ: the population standard deviation over a task's runs, "
        "averaged over tasks.",
        "同一任务各次运行的差异：对运行求总体标准差，再对任务求平均。",
        "mean over tasks of std (ddof 0) over runs",
        "std",
        "",
        (),
    ),
    (
        "best",
        "Best of k",
        "k 次取最优",
        "What the best of k tries is worth: the expected maximum over k draws, with replacement, from a "
        "task's runs, averaged over tasks. In closed form, no random numbers.",
        "k 次尝试取最好能得多少：从每个任务的运行中有放回抽 k 次的最大值的期望，再对任务求平均。用闭式解，不用随机数。",
        "mean over tasks of Σ_i v_(i) · ((i/n)^k − ((i−1)/n)^k), v sorted upwards",
        "mean",
        "exact",
        (_NOT_PASS,),
    ),
    (
        "worst",
        "Worst of k",
        "k 次取最差",
        "What the worst of k tries is worth: the expected minimum over k draws, with replacement, from a "
        "task's runs, averaged over tasks. In closed form.",
        "k 次尝试中最差能得多少：从每个任务的运行中有放回抽 k 次的最小值的期望，再对任务求平均。用闭式解。",
        "mean over tasks of Σ_i v_(i) · ((i/n)^k − ((i−1)/n)^k), v sorted downwards",
        "mean",
        "exact",
        (),
    ),
)


def _theirs(suite: str, what: str) -> Names:
    by = _BOOTSTRAP if what in ("best", "worst") else _BY_COUNT
    trinity = differs(f"{suite}/{{taskset}}/{{metric}}/{what}@{{k}}", "trinity", by=by)
    if suite == "bench":
        return trinity
    if what in ("best", "worst"):
        return (*trinity, *differs(f"{{section}}/{{taskset}}/{{metric}}/{what}@{{k}}/mean", "verl", by=_VERL_BEST))
    verl = differs(f"{{section}}/{{taskset}}/{{metric}}/{what}@{{k}}", "verl", by=_BY_COUNT)
    return (*trinity, *verl, *(_AVERAGES if what == "mean" else ()))


_AVERAGES: Names = (
    *same("eval/{taskset}/{subset}/{agent}/avg@{k}", "prime-rl"),
    *differs(
        "eval/{dataset}",
        "slime",
        by=difference(
            "population",
            "The mean over all samples of the set; how many per prompt is not in the name.",
            "对该集合所有样本求平均；每题采样几次名字里看不出来。",
        ),
    ),
)


def _statistic(suite: str, row: tuple[str, str, str, str, str, str, str, str, tuple[Trap, ...]]) -> Metric:
    what, en, zh, about, about_zh, formula, statistic, estimator, traps = row
    bench = (
        (" On saved checkpoints: the step is the checkpoint's.", "在已保存的检查点上评测：步数是检查点的步数。")
        if suite == "bench"
        else ("", "")
    )
    links: tuple[Link, ...] = ()
    if suite == "eval" and what == "best":
        links = (link("eval/{taskset}/{metric}/pass@{k}", *_PASS_LINK),)
    return Metric(
        f"{suite}/{{taskset}}/{{metric}}/{what}@{{k}}",
        "eval",
        Text(en + (" (benchmark)" if suite == "bench" else ""), zh + ("（基准测试）" if suite == "bench" else "")),
        Text(about + bench[0], about_zh + bench[1]),
        formula,
        "as reported",
        "tasks",
        statistic,
        "none",
        look=_LOOK
        if what != "std"
        else Text(
            "Falls when the policy grows consistent; 0 from the start means that sampling is greedy.",
            "策略越稳定它越小；一开始就为 0 说明是贪心解码。",
        ),
        next=_NEXT,
        direction="higher" if what != "std" else "none",
        estimator=estimator,
        names=(*ours(f"{suite}/{{taskset}}/{{metric}}/{what}@{{k}}", "trinity"), *_theirs(suite, what)),
        traps=(_RAGGED, *traps),
        links=links,
    )


def _detailed(suite: str, row: tuple[str, str, str, str, str, str, str, str, tuple[Trap, ...]]) -> Metric:
    what, en, zh, about, about_zh, formula, _, estimator, traps = row
    return Metric(
        f"{suite}/{{taskset}}/{{metric}}/{what}@{{k}}/{{stat}}",
        "eval",
        Text(f"{en}, over tasks", f"{zh}（按任务分布）"),
        Text(
            f"{about.rstrip('.')}; here as a statistic over tasks, with detailed_stats.",
            f"{about_zh.rstrip('。')}；此处为对任务的某一统计量（启用 detailed_stats 时）。",
        ),
        formula.replace("mean over tasks", "{stat} over tasks"),
        "as reported",
        "tasks",
        "other",
        "none",
        look=Text(
            "The minimum tells of tasks that never work, the deviation of a mixed set.",
            "最小值反映从未解出的任务，标准差反映任务集难度的混杂程度。",
        ),
        next=_NEXT,
        estimator=estimator,
        names=(
            *ours(f"{suite}/{{taskset}}/{{metric}}/{what}@{{k}}/{{stat}}", "trinity"),
            *differs(f"{suite}/{{taskset}}/{{metric}}/{what}@{{k}}/{{stat}}", "trinity", by=_DDOF),
        ),
        traps=traps,
    )


_VERL_MAJORITY = difference(
    "estimator",
    "A bootstrap average over draws with replacement; ties go to the answer seen first, and an answer is worth what "
    "its first try is.",
    "有放回抽取的自举平均；票数相同时取先出现的答案，答案的得分取其第一次尝试的得分。",
)


def _pass_at(suite: str) -> tuple[Metric, ...]:
    id = f"{suite}/{{taskset}}/{{metric}}/pass@{{k}}"
    theirs: Names = (
        (*same("eval/{dataset}-pass@{k}", "slime"), *same("eval/{taskset}/{subset}/{agent}/pass@{k}", "prime-rl"))
        if suite == "eval"
        else ()
    )
    return (
        Metric(
            id,
            "eval",
            Text("pass@k", "pass@k"),
            Text(
                "The probability that at least one of k tries, drawn without replacement from the task's runs, "
                "is right: the unbiased estimate, averaged over the tasks that have at least k runs.",
                "从每个任务的运行中无放回抽 k 次、至少有一次正确的概率：无偏估计，再对至少有 k 次运行的任务求平均。",
            ),
            "mean over tasks of 1 − C(n − c, k) / C(n, k)",
            "fraction",
            "tasks",
            "mean",
            "none",
            look=_LOOK,
            next=_NEXT,
            direction="higher",
            estimator="unbiased",
            names=theirs,
            links=(link(f"{suite}/{{taskset}}/{{metric}}/best@{{k}}", *_PASS_LINK),),
        ),
        *(
            Metric(
                f"{id}/{end}",
                "eval",
                Text(f"pass@k, {en} end of its interval", f"pass@k 置信区间{zh}"),
                Text(
                    f"The {en} end of the 95% interval of pass@k, the tasks being draws from many like them: "
                    "Wilson's, with as many tasks as their spread is worth.",
                    f"pass@k 的 95% 置信区间{zh}，把任务看作从许多同类任务中抽取：Wilson 区间，任务数按离散程度折算。",
                ),
                "Wilson interval with m = n·p(1 − p)/s² tasks",
                "fraction",
                "tasks",
                "other",
                "none",
                look=Text(
                    "Two evaluations whose intervals do not overlap differ.", "两次评测的区间不重叠，才算真有差别。"
                ),
                next=_NEXT,
            )
            for end, en, zh in (("low", "lower", "下端"), ("high", "upper", "上端"))
        ),
        Metric(
            f"{id}/tasks",
            "eval",
            Text("Tasks behind pass@k", "pass@k 的任务数"),
            Text(
                "How many tasks have at least k runs: without them there is no unbiased estimate.",
                "至少有 k 次运行的任务数：不足 k 次就没有无偏估计。",
            ),
            "#tasks with n ≥ k",
            "count",
            "tasks",
            "count",
            "sum",
            look=Text("All tasks of the set.", "等于任务总数。"),
            next=Text("The coverage of the evaluation.", "看评测的覆盖情况。"),
            direction="higher",
        ),
    )


def _majority(suite: str) -> Metric:
    theirs = differs("{section}/{taskset}/{metric}/maj@{k}/mean", "verl", by=_VERL_MAJORITY)
    return Metric(
        f"{suite}/{{taskset}}/{{metric}}/maj@{{k}}",
        "eval",
        Text("Majority of k", "k 次多数表决"),
        Text(
            "What the most frequent answer of k tries is worth: the average over all draws of k from a task's runs, "
            "without replacement, averaged over tasks. Ties are shared, and runs without an answer abstain.",
            "k 次尝试中出现最多的答案的得分：对任务的运行无放回抽 k 次的所有情形求平均，再对任务求平均。"
            "票数相同时平分，没有答案的运行视为弃权。",
        ),
        "mean over tasks of the mean over k-subsets of the majority answer's value",
        "as reported",
        "tasks",
        "mean",
        "none",
        look=_LOOK,
        next=_NEXT,
        direction="higher",
        estimator="unbiased",
        names=theirs if suite == "eval" else (),
        traps=(trap("verl", "Ties go to the answer seen first.", "票数相同时取先出现的答案。"),)
        if suite == "eval"
        else (),
    )


def _declared(suite: str, statistic: str, en: str, zh: str) -> Metric:
    return Metric(
        f"{suite}/{{taskset}}/{{metric}}/{statistic}",
        "eval",
        Text(f"Evaluation metric: {en}", f"评测指标：{zh}"),
        Text(
            f"A metric that was declared to be a {en}, and is one at every level: over experiences, runs and tasks.",
            f"声明为{zh}的指标，在每一层都取{zh}：经验、运行、任务。",
        ),
        f"{statistic} over tasks of {statistic} over runs of {statistic} over experiences",
        "as reported",
        "tasks",
        statistic,
        "none",
        look=Text("Depends on the metric.", "取决于具体指标。"),
        next=_NEXT,
    )


_DECLARED = (
    ("mean", "mean", "均值"),
    ("sum", "sum", "总和"),
    ("max", "maximum", "最大值"),
    ("min", "minimum", "最小值"),
    ("last", "last value", "末值"),
)

METRICS: tuple[Metric, ...] = (
    *(_statistic("eval", row) for row in _STATISTICS),
    *_pass_at("eval"),
    Metric(
        "eval/{taskset}/{metric}/pass^{k}",
        "eval",
        Text("pass^k", "pass^k"),
        Text(
            "The probability that all of k tries are right: reliability instead of luck.",
            "k 次尝试全部正确的概率：衡量可靠性而不是运气。",
        ),
        "mean over tasks of C(c, k) / C(n, k)",
        "fraction",
        "tasks",
        "mean",
        "none",
        look=_LOOK,
        next=_NEXT,
        direction="higher",
        estimator="unbiased",
        names=same("eval/{taskset}/{subset}/{agent}/pass^{k}", "prime-rl"),
        links=(
            link(
                "eval/{taskset}/{metric}/worst@{k}",
                "pass^k draws without replacement, worst@k with: neither gives the other.",
                "pass^k 无放回，worst@k 有放回，无法互相换算。",
            ),
        ),
    ),
    _majority("eval"),
    *(
        Metric(
            f"eval/{{taskset}}/{{metric}}/{what}@{{k}}/bootstrap_std",
            "eval",
            Text(f"Bootstrap deviation of {what}@k", f"{what}@k 的自举标准差"),
            Text(
                f"The mean over prompts of the bootstrap deviation of {what}@k: the noise of one prompt's "
                f"estimate, not the spread over tasks.",
                f"各题 {what}@k 自举标准差的平均：是单题估计的噪声，而不是任务之间的差异。",
            ),
            f"mean over tasks of the bootstrap std of {what}@k",
            "as reported",
            "tasks",
            "mean",
            "none",
            look=Text("Small beside the mean.", "远小于均值。"),
            next=_NEXT,
            estimator="bootstrap",
            names=same(f"{{section}}/{{taskset}}/{{metric}}/{what}@{{k}}/std", "verl"),
            links=(
                link(
                    f"eval/{{taskset}}/{{metric}}/{what}@{{k}}/{{stat}}",
                    "Trinity's /std is over tasks, veRL's is a mean of bootstrap deviations.",
                    "Trinity 的 /std 是对任务求的，veRL 的是自举标准差的平均。",
                ),
            )
            if what != "maj"
            else (),
        )
        for what in ("best", "worst", "maj")
    ),
    *(_detailed("eval", row) for row in _STATISTICS),
    *(_statistic("bench", row) for row in _STATISTICS),
    *(_detailed("bench", row) for row in _STATISTICS),
    *_pass_at("bench"),
    _majority("bench"),
    *(_declared(suite, *row) for suite in ("eval", "bench") for row in _DECLARED),
    *coverage("eval/{taskset}", "eval"),
    *coverage("bench/{taskset}", "eval"),
    Metric(
        "eval/{taskset}/finished_task_count",
        "eval",
        Text("Finished evaluation tasks", "完成的评测任务数"),
        Text("Tasks of the set whose evaluation finished.", "该任务集中完成评测的任务数。"),
        "#finished tasks",
        "count",
        "tasks",
        "count",
        "sum",
        look=Text("All of the set.", "等于任务总数。"),
        next=Text("Failed runs: their tasks are missing from the means.", "看失败的运行：对应任务不在均值之中。"),
        direction="higher",
        names=(
            *same("eval/{taskset}/finished_task_count", "trinity"),
            *same("bench/{taskset}/finished_task_count", "trinity"),
        ),
    ),
    *(
        Metric(
            f"eval/{{taskset}}/time/{what}",
            "eval",
            Text(f"Seconds per {what}", f"每{zh}秒数"),
            Text(
                f"Seconds that a {what} of the evaluation takes, averaged over tasks; failed attempts count too.",
                f"评测中每{zh}所用的秒数，对任务求平均；失败的尝试也计入。",
            ),
            "mean over tasks of seconds",
            "seconds",
            "tasks",
            "mean",
            "none",
            look=Text("Steady.", "平稳。"),
            next=Text("time/eval.", "看 time/eval。"),
            direction="lower",
            names=(
                *same(f"eval/{{taskset}}/time/{what}_execution", "trinity"),
                *same(f"bench/{{taskset}}/time/{what}_execution", "trinity"),
            ),
        )
        for what, zh in (("run", "次运行"), ("task", "个任务"))
    ),
)
