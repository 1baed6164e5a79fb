"""Sample: what the trainer draws from the buffer for an update, and how old it is."""

from windsock.catalogue.conventions import WINDOW, asynchronous
from windsock.catalogue.declare import difference, differs, ours, same, spread, trap
from windsock.catalogue.spec import Band, Metric, Text

_STALE_NEXT = Text(
    "policy/clip_fraction and policy/mismatch/log_prob_difference/mean: does the age show? "
    "time/sync_weight, the staleness bound.",
    "看 policy/clip_fraction 与 policy/mismatch/log_prob_difference/mean：陈旧是否已产生影响？再看 "
    "time/sync_weight 与陈旧度上限。",
)


METRICS: tuple[Metric, ...] = (
    *spread(
        "sample/model_version",
        "sample",
        Text("Model version of the samples", "样本的模型版本"),
        Text(
            "The weight version that generated the samples drawn for the update.",
            "本次更新所取样本是由哪个权重版本生成的。",
        ),
        "{stat} over samples of the model version",
        unit="count",
        population="samples",
        look=Text(
            "Follows the trainer's step at a steady distance; the minimum tells of the oldest sample.",
            "以稳定的间隔跟随训练步；最小值反映最旧的样本。",
        ),
        next=_STALE_NEXT,
        names=(*ours("sample/model_version/{stat}", "trinity"), *same("sample/model_version/{stat}", "trinity")),
        traps=(trap("trinity", "Only samples that carry the field count.", "只统计带有该字段的样本。"),),
    ),
    *spread(
        "sample/staleness",
        "sample",
        Text("Staleness", "陈旧度"),
        Text(
            "How many weight versions the trainer is ahead of the policy that generated a sample.",
            "训练器的权重比生成该样本的策略新了多少个版本。",
        ),
        "{stat} over samples of (trainer version − sample version)",
        unit="count",
        population="samples",
        look=Text(
            "2 to 8 versions is typical of asynchronous runs; 0 when synchronous. Growing means that "
            "rollouts fall behind.",
            "异步训练通常为 2 到 8 个版本，同步时为 0；不断增大说明 rollout 越来越跟不上。",
        ),
        next=_STALE_NEXT,
        direction="lower",
        healthy=Band(
            0.0,
            8.0,
            Text(
                "AReaL: 2 to 8 is typical; prime-rl's default bound is 8", "AReaL：通常为 2 到 8；prime-rl 默认上限为 8"
            ),
        ),
        names=(
            *same("training/off_policy/trajectory_staleness/{stat}", "verl"),
            *differs("sample/staleness_mean", "trl", by=WINDOW, era="async-1.16"),
            *same("off_policy/mean", "prime-rl"),
            *differs(
                "scheduler/off_policy_ratio",
                "roll",
                by=difference(
                    "unit", "In steps although it is called a ratio.", "名为 ratio，实际以步为单位。", factor=1.0
                ),
            ),
        ),
        special={
            "max": {
                "extra_names": (
                    *differs("sample/staleness_max", "trl", by=WINDOW, era="async-1.16"),
                    *same("off_policy/max", "prime-rl"),
                )
            }
        },
    ),
    *spread(
        "sample/model_version_drift",
        "sample",
        Text("Version drift within a run", "单次运行内的版本漂移"),
        Text(
            "How many weight versions passed while one rollout was generated.",
            "生成一条 rollout 期间权重更新了多少个版本。",
        ),
        "{stat} over samples of (version after − version before the run)",
        unit="count",
        population="samples",
        look=Text("0 or 1.", "0 或 1。"),
        next=_STALE_NEXT,
        direction="lower",
        names=(
            *same("sample/model_version_drift/{stat}", "trinity", era="0.6"),
            *same("training/off_policy/trajectory_spans/{stat}", "verl"),
        ),
    ),
    Metric(
        "sample/task_count",
        "sample",
        Text("Tasks in the sample", "样本中的任务数"),
        Text("How many different tasks the samples of the update come from.", "本次更新的样本来自多少个不同的任务。"),
        "#distinct tasks among the samples",
        "count",
        "tasks",
        "count",
        "sum",
        look=Text(
            "The number of tasks per batch you configured; fewer means repetition.",
            "等于所配置的每批任务数；偏少说明有重复。",
        ),
        next=Text(
            "sample/model_version/min, the sampling strategy of the buffer.",
            "看 sample/model_version/min 与缓冲区的采样策略。",
        ),
        names=(*ours("sample/task_count", "trinity"), *same("sample/task_count", "trinity")),
    ),
    Metric(
        "sample/{key}",
        "sample",
        Text("Sample metric", "采样指标"),
        Text("What the sampling strategy reports about the samples it drew.", "采样策略对所取样本上报的指标。"),
        "as reported by the sampling strategy",
        "as reported",
        "samples",
        "other",
        "none",
        look=Text("Depends on the strategy.", "取决于采样策略。"),
        next=Text("sample/model_version/mean.", "看 sample/model_version/mean。"),
        names=(*ours("sample/{key}", "trinity"), *same("sample/{key}", "trinity")),
    ),
    *(
        asynchronous("sample", _STALE_NEXT, *row)
        for row in (
            (
                "dropped_stale_total",
                "Dropped as too old",
                "因过旧而丢弃",
                "Samples dropped because they are older than the bound.",
                "因超过陈旧度上限而丢弃的样本数。",
                "count",
                "sum",
                "0; more means that the bound or the queue is wrong.",
                "为 0；大于 0 说明上限或队列设置不当。",
            ),
            (
                "rollout_queue_size",
                "Rollout queue",
                "rollout 队列长度",
                "Rollouts waiting for the trainer.",
                "等待训练器取走的 rollout 数。",
                "count",
                "mean",
                "Neither empty (trainer waits) nor full (rollouts age).",
                "既不空（训练器等待）也不满（样本变旧）。",
            ),
            (
                "time_in_queue_s",
                "Time in the queue",
                "排队时间",
                "Seconds between generation and use.",
                "从生成到被使用的秒数。",
                "seconds",
                "mean",
                "Below a step.",
                "少于一步的时间。",
            ),
            (
                "forwarded_tokens_mean",
                "Forwarded tokens per sample: mean",
                "每样本前向 token 数：均值",
                "Tokens of a sample that are forwarded.",
                "每个样本参与前向的 token 数。",
                "tokens",
                "mean",
                "Steady.",
                "平稳。",
            ),
            (
                "forwarded_tokens_max",
                "Forwarded tokens per sample: maximum",
                "每样本前向 token 数：最大值",
                "Most tokens of a sample that are forwarded.",
                "单个样本参与前向的 token 数的最大值。",
                "tokens",
                "max",
                "Below the row limit.",
                "低于行长上限。",
            ),
            (
                "trained_tokens_mean",
                "Trained tokens per sample",
                "每样本训练 token 数",
                "Tokens of a sample that enter the loss.",
                "每个样本进入损失的 token 数。",
                "tokens",
                "mean",
                "Steady.",
                "平稳。",
            ),
            (
                "buffer_size",
                "Buffer",
                "缓冲区长度",
                "Samples waiting in the buffer.",
                "缓冲区中等待的样本数。",
                "count",
                "mean",
                "Neither empty nor full.",
                "既不空也不满。",
                "buffer_qsize",
                "async-1.10",
            ),
        )
    ),
    *(
        Metric(
            f"sample/staleness/{where}/{stat}",
            "sample",
            Text(f"Staleness {en}: {stat}", f"{zh}的陈旧度：{'均值' if stat == 'mean' else '最大值'}"),
            Text(f"How many versions old the rollouts {en} are.", f"{zh}的 rollout 落后多少个版本。"),
            f"{stat} over rollouts {en} of the version lag",
            "count",
            "samples",
            stat,
            "none",
            look=Text("Below the configured bound.", "低于所设上限。"),
            next=_STALE_NEXT,
            direction="lower",
            names=same(f"off_policy/{where}/{stat}", "prime-rl"),
        )
        for where, en, zh in (("in_flight", "in flight", "进行中"), ("in_queue", "in the queue", "排队中"))
        for stat in ("mean", "max")
    ),
    Metric(
        "sample/stale_count/{key}",
        "sample",
        Text("Stale samples", "陈旧样本计数"),
        Text(
            "Counters of stale samples and trajectories in fully asynchronous training.",
            "全异步训练中陈旧样本与轨迹的计数。",
        ),
        "#stale samples",
        "count",
        "samples",
        "count",
        "none",
        look=Text("Low and not growing.", "较低且不增长。"),
        next=_STALE_NEXT,
        direction="lower",
        names=same("fully_async/count/{key}", "verl"),
    ),
)
