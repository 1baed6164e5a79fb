"""Rollout: what workflows and environments report while they explore, gathered run by run and task by task."""

from windsock.catalogue.conventions import WINDOW, asynchronous
from windsock.catalogue.coverage import coverage
from windsock.catalogue.declare import Names, difference, differs, link, ours, same, trap
from windsock.catalogue.spec import Metric, Text, Trap

_ROWS = difference(
    "population",
    "Over the trajectories or rows of the batch before it is adjusted, not over tasks.",
    "对调整之前批次中的轨迹或行统计，而不是对任务。",
)
_AGENTIC_NEXT = Text(
    "time/wait_for_batch, sample/staleness/mean, a few rollouts.",
    "看 time/wait_for_batch、sample/staleness/mean，并抽几条 rollout。",
)
_NEXT = Text("The same metric of the evaluation, and a few rollouts.", "看评测中的同名指标，并抽几条 rollout。")
_LEVELS = (
    trap(
        "",
        "A mean of means: every task weighs the same however many runs it has, and every run however many experiences.",
        "这是均值的均值：每个任务权重相同，与运行次数无关；每次运行权重相同，与经验条数无关。",
    ),
    trap(
        "trinity",
        "Values that are float32, NumPy integers or tensors are dropped without a word; a step without a "
        "finished task logs nothing.",
        "float32、NumPy 整数或张量会被悄悄丢弃；没有任务完成的步什么也不记录。",
    ),
    trap(
        "trinity",
        "At version 0.6 a key 'x:max' and a plain 'x' write the same name, and the last one wins.",
        "0.6 版中键 x:max 与 x 会写入同一个名字，后写者胜出。",
    ),
)


def _workflow(stat: str, en: str, zh: str, how: str, how_zh: str, names: Names, extra: tuple[Trap, ...] = ()) -> Metric:
    return Metric(
        f"rollout/{{key}}/{stat}",
        "rollout",
        Text(f"Rollout metric: {en}", f"Rollout 指标：{zh}"),
        Text(
            f"A metric that the workflow reports, {how}. A task's value is the mean over its runs, a run's "
            f"the mean over its experiences.",
            f"工作流上报的指标，{how_zh}。任务的值是其各次运行的均值，运行的值是其各条经验的均值。",
        ),
        f"{stat} over tasks of mean over runs of mean over experiences",
        "as reported",
        "tasks",
        stat,
        {"mean": "mean", "sum": "sum", "last": "last", "std": "moments"}.get(stat, "extrema"),
        look=Text("Depends on the metric; for rewards and accuracies, rising.", "取决于具体指标；奖励与准确率应上升。"),
        next=_NEXT,
        names=names,
        traps=(*_LEVELS, *extra),
    )


def _counted(what: str, stat: str) -> Names:
    """Name a count per trajectory."""
    if what == "tool_calls":
        return same(f"tool_call_counts/{stat}", "verl")
    if what == "preempted":
        return same(f"timing_s/agent_loop/num_preempted/{stat}", "verl")
    return (
        *same(f"num_turns/{stat}", "verl"),
        *same(f"training/num_turns/{stat}", "verl", era="v1"),
        *same(f"val-aux/num_turns/{stat}", "verl", era="validation"),
        *(differs(f"rollout/turns_{stat}", "trl", by=WINDOW, era="async-1.16") if stat != "min" else ()),
    )


METRICS: tuple[Metric, ...] = (
    *(
        _workflow(
            stat,
            en,
            zh,
            how,
            how_zh,
            (
                *ours(f"rollout/{{key}}/{stat}", "trinity"),
                *same(f"rollout/{{key}}/{stat}", "trinity"),
                *differs(f"rollout/{{key}}/{stat}", "roll", by=_ROWS),
            ),
        )
        for stat, en, zh, how, how_zh in (
            ("mean", "mean", "均值", "averaged over the tasks of the step", "对本步的任务求平均"),
            ("max", "maximum", "最大值", "of the best task of the step", "取本步最高的任务"),
            ("min", "minimum", "最小值", "of the worst task of the step", "取本步最低的任务"),
        )
    ),
    *(
        _workflow(stat, en, zh, how, how_zh, same(f"rollout/{{key}}/{stat}", "trinity", era="0.6"))
        for stat, en, zh, how, how_zh in (
            ("sum", "sum", "总和", "summed over everything (declared with ':sum')", "对全部求和（以 :sum 声明）"),
            (
                "last",
                "last",
                "末值",
                "the last in completion order (declared with ':last')",
                "取最后完成的一个（以 :last 声明）",
            ),
        )
    ),
    _workflow(
        "std",
        "standard deviation",
        "标准差",
        "how much the tasks of the step differ (ddof 0), on request",
        "本步各任务之间的差异（ddof 0），按需给出",
        (),
    ),
    Metric(
        "rollout/{key}/p{share}",
        "rollout",
        Text("Rollout metric: quantile", "Rollout 指标：分位数"),
        Text(
            "A metric that the workflow reports: the value below which so many percent of the step's tasks lie, on "
            "request.",
            "工作流上报的指标：本步中有这么多百分比的任务低于该值，按需给出。",
        ),
        "quantile over tasks of mean over runs of mean over experiences",
        "as reported",
        "tasks",
        "other",
        "none",
        look=Text("Depends on the metric; for rewards and accuracies, rising.", "取决于具体指标；奖励与准确率应上升。"),
        next=_NEXT,
    ),
    *coverage("rollout", "rollout"),
    Metric(
        "rollout/model_version",
        "rollout",
        Text("Model version of the explorer", "Explorer 的模型版本"),
        Text(
            "The weight version that the explorer held when the step was finished.",
            "本步结束时 explorer 所持权重的版本。",
        ),
        "version",
        "count",
        "steps",
        "last",
        "last",
        look=Text("Follows the trainer's step, at most a few behind.", "跟随训练器的步数，至多落后几步。"),
        next=Text("sample/staleness/mean, time/sync_weight.", "看 sample/staleness/mean 与 time/sync_weight。"),
        names=same("rollout/model_version", "trinity"),
    ),
    Metric(
        "rollout/finished_task_count",
        "rollout",
        Text("Finished tasks", "完成的任务数"),
        Text("Tasks of the step that finished.", "本步完成的任务数。"),
        "#finished tasks",
        "count",
        "tasks",
        "count",
        "sum",
        look=Text("All of the batch.", "等于批次任务数。"),
        next=Text("Errors of the workflows.", "看工作流的报错。"),
        direction="higher",
        names=same("rollout/finished_task_count", "trinity"),
        traps=(
            trap(
                "trinity",
                "Tasks whose every run failed are counted here and absent from the metrics.",
                "所有运行都失败的任务也计入这里，却不出现在指标中。",
            ),
        ),
    ),
    *(
        Metric(
            f"rollout/{what}/{stat}",
            "rollout",
            Text(f"{en}: {stat}", f"{zh}：{stat_zh}"),
            Text(f"{about}, {stat_en} over trajectories.", f"{about_zh}，对轨迹取{stat_zh}。"),
            f"{stat} over trajectories",
            "count",
            "samples",
            stat,
            "none",
            look=Text(
                "Steady, or growing with the reward; a climb without reward is wandering.",
                "平稳，或随奖励增加；奖励不涨而它上升，是在原地打转。",
            ),
            next=Text(
                "reward/score/mean, tokens/response_length/mean.",
                "看 reward/score/mean 与 tokens/response_length/mean。",
            ),
            names=_counted(what, stat),
        )
        for what, en, zh, about, about_zh in (
            ("turns", "Turns", "轮数", "Turns of a trajectory", "轨迹的交互轮数"),
            ("tool_calls", "Tool calls", "工具调用次数", "Tool calls of a trajectory", "轨迹中的工具调用次数"),
            (
                "preempted",
                "Preemptions",
                "被抢占次数",
                "How often the engine preempted the requests of a trajectory",
                "推理引擎抢占该轨迹请求的次数",
            ),
        )
        for stat, stat_en, stat_zh in (
            ("mean", "mean", "均值"),
            ("max", "maximum", "最大值"),
            ("min", "minimum", "最小值"),
        )
    ),
    *(
        Metric(
            f"rollout/slowest/{what}_length",
            "rollout",
            Text(f"{en} length of the slowest trajectory", f"最慢轨迹的{zh}长度"),
            Text(f"{en} tokens of the trajectory that took longest.", f"耗时最长的轨迹的{zh} token 数。"),
            f"{what} tokens of the slowest trajectory",
            "tokens",
            "samples",
            "other",
            "none",
            look=Text(
                "If the slowest is also the longest, length explains the tail.", "若最慢的也最长，长尾就由长度解释。"
            ),
            next=Text("time/agent_loop/slowest/{operation}.", "看 time/agent_loop/slowest/{operation}。"),
            names=same(f"timing_s/agent_loop/slowest/{what}_length", "verl"),
            traps=(trap("verl", "A token count under a prefix for seconds.", "前缀是秒，实际是 token 数。"),),
        )
        for what, en, zh in (("prompt", "Prompt", "提示"), ("response", "Response", "回复"))
    ),
    Metric(
        "rollout/spec_accept_rate",
        "rollout",
        Text("Speculative acceptance rate", "投机解码接受率"),
        Text(
            "The share of drafted tokens that speculative decoding accepts, averaged over requests.",
            "投机解码中草稿 token 被接受的比例，对请求取平均。",
        ),
        "mean over requests of accepted / drafted",
        "fraction",
        "calls",
        "mean",
        "none",
        look=Text(
            "Steady; it falls while the policy leaves the draft model behind.", "平稳；策略逐渐甩开草稿模型时会下降。"
        ),
        next=Text("time/rollout.", "看 time/rollout。"),
        direction="higher",
        names=same("rollout/spec_accept_rate", "verl"),
        traps=(trap("verl", "Requests without drafts count as 0.", "没有草稿的请求按 0 计。"),),
    ),
    Metric(
        "rollout/spec_accept_length",
        "rollout",
        Text("Speculative acceptance length", "投机解码接受长度"),
        Text("Tokens accepted per verification, averaged over requests.", "每次验证接受的 token 数，对请求取平均。"),
        "mean over requests of accepted per verification",
        "tokens",
        "calls",
        "mean",
        "none",
        look=Text("Above 1.", "大于 1。"),
        next=Text("rollout/spec_accept_rate.", "看 rollout/spec_accept_rate。"),
        direction="higher",
        names=same("rollout/spec_accept_length", "verl"),
    ),
    *(
        Metric(
            f"rollout/tools/{what}",
            "rollout",
            Text(en, zh),
            Text(about, about_zh),
            formula,
            unit,
            population,
            "quotient",
            "ratio",
            look=Text(look, look_zh),
            next=Text("Failing calls among the rollouts.", "看 rollout 中失败的调用。"),
            names=differs(f"tools/{what}", "trl", by=WINDOW),
            links=links,
        )
        for what, en, zh, about, about_zh, formula, unit, population, look, look_zh, links in (
            (
                "call_frequency",
                "Tool calls per sample",
                "每样本工具调用次数",
                "Tool calls divided by samples.",
                "工具调用次数除以样本数。",
                "calls / samples",
                "1",
                "samples",
                "Settles at what the task needs.",
                "稳定在任务所需的水平。",
                (
                    link(
                        "rollout/tool_calls/mean",
                        "The same mean when every trajectory is one sample.",
                        "每条轨迹为一个样本时二者相同。",
                        refuse=False,
                    ),
                ),
            ),
            (
                "failure_frequency",
                "Failing tool calls",
                "工具调用失败率",
                "Failed tool calls divided by tool calls; 0 when there was none.",
                "失败次数除以调用次数；没有调用时为 0。",
                "failed calls / calls",
                "fraction",
                "calls",
                "Low and not rising.",
                "较低且不上升。",
                (),
            ),
        )
    ),
    *(
        asynchronous("rollout", _AGENTIC_NEXT, *row)
        for row in (
            (
                "tools/loop_exhausted_frac",
                "Exhausted tool loops",
                "工具循环耗尽占比",
                "Share of rollouts that ran out of tool turns.",
                "用尽工具轮数的 rollout 占比。",
                "fraction",
                "share",
                "Low.",
                "较低。",
                "tools/loop_exhausted_frac",
            ),
            (
                "tools/latency_s",
                "Tool latency",
                "工具延迟",
                "Seconds per tool call.",
                "每次工具调用的秒数。",
                "seconds",
                "mean",
                "Steady.",
                "平稳。",
                "tools/latency_s",
            ),
            (
                "tools/parallel_calls_mean",
                "Parallel tool calls",
                "并行工具调用数",
                "Tool calls made at once.",
                "同时发起的工具调用数。",
                "count",
                "mean",
                "Steady.",
                "平稳。",
                "tools/parallel_calls_mean",
            ),
            (
                "tools/unknown_name_total",
                "Calls of unknown tools",
                "调用未知工具次数",
                "Calls of tools that do not exist.",
                "调用不存在的工具的次数。",
                "count",
                "sum",
                "0 once the format is learnt.",
                "学会格式后应为 0。",
                "tools/unknown_name_total",
            ),
            (
                "tools/{tool}/call_total",
                "Calls of one tool",
                "单个工具调用次数",
                "Calls of one tool.",
                "单个工具的调用次数。",
                "count",
                "sum",
                "Steady.",
                "平稳。",
                "tools/{tool}/call_total",
            ),
            (
                "tools/{tool}/failure_total",
                "Failures of one tool",
                "单个工具失败次数",
                "Failed calls of one tool.",
                "单个工具的失败次数。",
                "count",
                "sum",
                "Low.",
                "较低。",
                "tools/{tool}/failure_total",
            ),
            (
                "tools/{tool}/latency_s",
                "Latency of one tool",
                "单个工具延迟",
                "Seconds per call of one tool.",
                "单个工具每次调用的秒数。",
                "seconds",
                "mean",
                "Steady.",
                "平稳。",
                "tools/{tool}/latency_s",
            ),
            (
                "score_s",
                "Scoring time",
                "打分时间",
                "Seconds of scoring a rollout.",
                "给一条 rollout 打分的秒数。",
                "seconds",
                "mean",
                "Small beside generation.",
                "远小于生成时间。",
            ),
            (
                "score_wait_s",
                "Wait for scoring",
                "等待打分",
                "Seconds that a rollout waits to be scored.",
                "rollout 排队等待打分的秒数。",
                "seconds",
                "mean",
                "Near 0.",
                "接近 0。",
            ),
            (
                "score_block_s",
                "Blocked by scoring",
                "被打分阻塞",
                "Seconds that generation is blocked by a full scoring queue.",
                "打分队列已满而阻塞生成的秒数。",
                "seconds",
                "mean",
                "0.",
                "为 0。",
            ),
            (
                "score_queue_size",
                "Scoring queue",
                "打分队列长度",
                "Rollouts waiting to be scored.",
                "等待打分的 rollout 数。",
                "count",
                "mean",
                "Near 0.",
                "接近 0。",
            ),
            (
                "inflight",
                "Rollouts in flight",
                "进行中的 rollout 数",
                "Rollouts being generated.",
                "正在生成的 rollout 数。",
                "count",
                "mean",
                "At the configured limit.",
                "达到所设上限。",
            ),
            (
                "backpressure_s",
                "Back-pressure",
                "反压时间",
                "Seconds that rollout workers wait because the trainer is behind.",
                "因训练器跟不上而让 rollout worker 等待的秒数。",
                "seconds",
                "mean",
                "Near 0; high means that training is the bottleneck.",
                "接近 0；偏高说明瓶颈在训练。",
            ),
            (
                "vllm_retry_total",
                "Retries",
                "重试次数",
                "Requests to the inference server that were repeated.",
                "向推理服务重发的请求数。",
                "count",
                "sum",
                "0.",
                "为 0。",
            ),
            (
                "duration_s",
                "Rollout duration",
                "单条 rollout 时长",
                "Seconds of one rollout.",
                "一条 rollout 的秒数。",
                "seconds",
                "mean",
                "Steady.",
                "平稳。",
            ),
            (
                "samples_per_rollout",
                "Samples per rollout",
                "每条 rollout 的样本数",
                "Training samples made of one rollout.",
                "一条 rollout 产生的训练样本数。",
                "count",
                "mean",
                "1 without forks.",
                "没有分叉时为 1。",
            ),
            (
                "fork_frac",
                "Forked rollouts",
                "分叉占比",
                "Share of rollouts that became several samples.",
                "被拆成多个样本的 rollout 占比。",
                "fraction",
                "share",
                "Low.",
                "较低。",
            ),
            (
                "realign_frac",
                "Realigned rollouts",
                "重新对齐占比",
                "Share of rollouts whose tokens had to be aligned again.",
                "需要重新对齐 token 的 rollout 占比。",
                "fraction",
                "share",
                "Near 0.",
                "接近 0。",
            ),
            (
                "drift_tokens_mean",
                "Drifted tokens: mean",
                "漂移 token 数：均值",
                "Tokens that differ after re-encoding a rollout.",
                "重新编码后不一致的 token 数。",
                "tokens",
                "mean",
                "Near 0.",
                "接近 0。",
            ),
            (
                "drift_tokens_max",
                "Drifted tokens: maximum",
                "漂移 token 数：最大值",
                "Most tokens that differ after re-encoding a rollout.",
                "重新编码后不一致 token 数的最大值。",
                "tokens",
                "max",
                "Near 0.",
                "接近 0。",
            ),
        )
    ),
    Metric(
        "rollout/env/{tag}/{metric}",
        "rollout",
        Text("Environment metric", "环境指标"),
        Text(
            "What an environment reports about its trajectories, mean over trajectories.",
            "环境对其轨迹上报的指标，对轨迹取平均。",
        ),
        "mean over trajectories",
        "as reported",
        "samples",
        "mean",
        "none",
        look=Text("Depends on the metric.", "取决于具体指标。"),
        next=_NEXT,
        names=(*same("env/{tag}/{metric}", "roll"), *same("val/env/{tag}/{metric}", "roll")),
    ),
)
