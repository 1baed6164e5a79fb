"""Time: where the seconds of a step go. All are wall seconds in the process that measures them."""

from windsock.catalogue.conventions import WINDOW
from windsock.catalogue.declare import MILLISECONDS, Names, difference, differs, link, ours, same, trap
from windsock.catalogue.spec import Link, Metric, Text, Trap

_LOOK = Text(
    "Steady, and in proportion to the tokens processed. One step twenty times its median is a stall.",
    "平稳，并与处理的 token 数成比例。某一步超过中位数的 20 倍即为卡顿。",
)
_NEXT = Text(
    "The other phases of the step, the slowest rank, tokens/response_length/max.",
    "看步内其他阶段、最慢的 rank，以及 tokens/response_length/max。",
)
_RANK_MEAN = difference(
    "reducer", "Averaged over ranks: stragglers vanish.", "对 rank 取平均：拖后腿的 rank 看不出来。"
)
_DEBUG = difference(
    "reducer",
    "Only in debug mode (ROLL_DEBUG=1), and averaged over ranks.",
    "仅在调试模式（ROLL_DEBUG=1）下记录，且对 rank 取平均。",
)
_MILLI = difference(
    "unit window",
    "In milliseconds, averaged over the logging window.",
    "以毫秒为单位，并对日志窗口取平均。",
    factor=0.001,
)


def _timer(
    id: str,
    en: str,
    zh: str,
    about: Text,
    names: Names,
    *,
    look: Text = _LOOK,
    next: Text = _NEXT,
    links: tuple[Link, ...] = (),
    traps: tuple[Trap, ...] = (),
) -> Metric:
    return Metric(
        f"time/{id}",
        "time",
        Text(en, zh),
        about,
        "Σ wall seconds of this timer in the step",
        "seconds",
        "phases",
        "sum",
        "sum",
        look=look,
        next=next,
        direction="lower",
        names=names,
        links=links,
        traps=traps,
    )


_ROLLOUT_LOOK = Text(
    "The largest part of most steps: 80% is typical when rollout and training alternate.",
    "多数情况下占一步的大头：rollout 与训练交替时通常占到 80%。",
)

_DRIVER = (
    _timer(
        "rollout",
        "Rollout",
        "Rollout 时间",
        Text(
            "Wall seconds of generating the step's responses, environment steps included.",
            "生成本步回复所用的墙钟秒数，含环境交互。",
        ),
        (
            *ours("time/rollout", "roll"),
            *same("time/rollout", "roll", era="2025-11"),
            *same("time/step_rollout", "roll"),
            *differs(
                "time/step_generate",
                "roll",
                by=difference(
                    "meaning", "RLVR pipeline: reward computation is inside.", "RLVR 流水线：其中包含奖励计算。"
                ),
            ),
            *differs(
                "timing_s/gen",
                "verl",
                by=difference(
                    "meaning",
                    "In asynchronous runs it is the wait for the replay buffer, not generation.",
                    "异步模式下这是等待回放缓冲区的时间，而不是生成时间。",
                ),
            ),
            *same("perf/rollout_time", "slime"),
        ),
        look=_ROLLOUT_LOOK,
        next=Text(
            "tokens/response_length/max against the mean (one long answer holds up everyone), "
            "system/generated_tokens_per_second.",
            "对照 tokens/response_length/max 与均值（一条长回复会拖住所有人），再看 "
            "system/generated_tokens_per_second。",
        ),
        links=(
            link(
                "time/wait_explore_step",
                "The explorer's wait for the step's rollouts: equal to the rollout time only when nothing overlaps.",
                "这是 explorer 等待本步 rollout 的时间：只有毫无重叠时才等于 rollout 时间。",
                refuse=False,
            ),
            link(
                "time/wait_for_batch",
                "A trainer's wait for data is not the time generation took.",
                "训练器等数据的时间不是生成所花的时间。",
            ),
        ),
    ),
    _timer(
        "ref_log_probs_values_reward",
        "Reference log-probs, values and rewards",
        "参考对数概率、价值与奖励时间",
        Text(
            "Wall seconds of computing reference log-probs, values and rewards.",
            "计算参考模型对数概率、价值和奖励的墙钟秒数。",
        ),
        (
            *ours("time/ref_log_probs_values_reward", "roll"),
            *same("time/ref_log_probs_values_reward", "roll", era="2025-11"),
            *same("time/step_ref_log_probs_values_reward", "roll"),
            *differs(
                "time/ref_log_probs_values",
                "roll",
                by=difference("meaning", "RLVR pipeline: without the rewards.", "RLVR 流水线：不含奖励。"),
            ),
        ),
        links=(
            link(
                "time/ref",
                "That one is the reference pass alone; this one contains values and rewards too.",
                "那个只含参考模型前向；这个还包含价值与奖励。",
                refuse=False,
            ),
        ),
    ),
    _timer(
        "old_log_probs_values",
        "Old log-probs and values",
        "旧对数概率与价值时间",
        Text(
            "Wall seconds of computing the log-probs of the policy before the update, and values.",
            "计算更新前策略的对数概率以及价值的墙钟秒数。",
        ),
        (
            *ours("time/old_log_probs_values", "roll"),
            *same("time/old_log_probs_values", "roll", era="2025-11"),
            *same("time/step_old_log_probs_values", "roll"),
            *differs(
                "time/old_log_probs",
                "roll",
                by=difference("meaning", "RLVR pipeline: without the values.", "RLVR 流水线：不含价值。"),
            ),
        ),
        links=(
            link(
                "time/old_log_prob",
                "That one is the log-prob pass alone; this one contains the values too.",
                "那个只含对数概率前向；这个还包含价值。",
                refuse=False,
            ),
        ),
    ),
    _timer(
        "adv",
        "Advantages",
        "优势计算时间",
        Text(
            "Wall seconds of computing advantages (and normalising rewards, where the caller puts that inside).",
            "计算优势所用的墙钟秒数（若调用方把奖励归一化也放在里面，则一并计入）。",
        ),
        (
            *ours("time/adv", "roll", "trinity"),
            *same("time/adv", "roll", era="2025-11"),
            *differs(
                "time/step_adv",
                "roll",
                by=difference(
                    "meaning",
                    "The advantage alone: normalisation, clip and KL penalty have their own timers since "
                    "December 2025.",
                    "只含优势本身：2025 年 12 月起归一化、裁剪与 KL 惩罚各有计时器。",
                ),
            ),
            *same("time/adv", "trinity"),
            *same("timing_s/adv", "verl"),
        ),
        look=Text(
            "A small part of the step; it runs on the driver's CPU.", "只占一步的很小部分；在 driver 的 CPU 上进行。"
        ),
    ),
    _timer(
        "ref",
        "Reference log-probs",
        "参考对数概率时间",
        Text("Wall seconds of the reference model's pass over the responses.", "参考模型对回复做一遍前向的墙钟秒数。"),
        (
            *ours("time/ref", "trinity"),
            *same("time/ref", "trinity"),
            *same("timing_s/ref", "verl"),
            *same("perf/ref_log_probs_time", "slime"),
        ),
        links=(
            link(
                "time/ref_log_probs_values_reward",
                "That one contains values and rewards too.",
                "那个还包含价值与奖励。",
                refuse=False,
            ),
        ),
    ),
    _timer(
        "old_log_prob",
        "Old log-probs",
        "旧对数概率时间",
        Text(
            "Wall seconds of recomputing the log-probs of the policy before the update.",
            "重新计算更新前策略对数概率的墙钟秒数。",
        ),
        (
            *ours("time/old_log_prob", "trinity"),
            *same("time/old_log_prob", "trinity"),
            *same("timing_s/old_log_prob", "verl"),
            *same("perf/log_probs_time", "slime"),
        ),
        links=(
            link("time/old_log_probs_values", "That one contains the values too.", "那个还包含价值。", refuse=False),
        ),
    ),
    _timer(
        "update_actor",
        "Policy update",
        "策略更新时间",
        Text("Wall seconds of training the policy in the step.", "本步训练策略所用的墙钟秒数。"),
        (
            *ours("time/update_actor", "trinity"),
            *same("time/update_actor", "trinity"),
            *same("timing_s/update_actor", "verl"),
            *same("perf/actor_train_time", "slime"),
            *differs(
                "time/forward_backward",
                "prime-rl",
                by=difference(
                    "meaning", "Forward and backward only, without the optimizer.", "只含前向与反向，不含优化器。"
                ),
            ),
            *differs(
                "time/step_train",
                "roll",
                by=difference(
                    "meaning", "The whole training phase, the critic's included.", "整个训练阶段，含价值网络。"
                ),
            ),
            *differs(
                "perf/fwd_bwd_s",
                "trl",
                by=difference(
                    "meaning", "Forward and backward only, without the optimizer.", "只含前向与反向，不含优化器。"
                ),
                era="async-1.16",
            ),
        ),
        links=(
            link(
                "time/{phase}/total",
                "ROLL's phase time also holds moving the states on and off the device.",
                "ROLL 的阶段时间还包含状态的加载与卸载。",
                refuse=False,
                phase="actor_train/train_step",
            ),
        ),
    ),
    _timer(
        "sync_weight",
        "Weight synchronisation",
        "权重同步时间",
        Text(
            "Wall seconds of bringing the new weights to the rollout engines.",
            "把新权重送到 rollout 引擎所用的墙钟秒数。",
        ),
        (
            *ours("time/sync_weight", "trinity"),
            *same("time/sync_weight", "trinity"),
            *same("timing_s/update_weights", "verl"),
            *same("perf/update_weights_time", "slime"),
            *same("time/broadcast_weights", "prime-rl"),
            *same("time/step_model_update", "roll"),
            *differs("weight_sync_time_s", "trl", by=WINDOW, era="async-1.10"),
            *differs("perf/weight_sync_s", "trl", by=WINDOW, era="async-1.16"),
        ),
        links=(
            link(
                "time/{phase}/total",
                "ROLL's phase time of model_update, per worker.",
                "ROLL 中 model_update 阶段的时间，按 worker 计。",
                refuse=False,
                phase="model_update",
            ),
        ),
    ),
    _timer(
        "step",
        "Step",
        "步时长",
        Text("Wall seconds of the whole step, from commit to commit.", "整步的墙钟秒数，从一次提交到下一次提交。"),
        (
            *ours("perf/time_per_step", "trinity"),
            *differs(
                "perf/time_per_step",
                "trinity",
                by=difference(
                    "window",
                    "The trainer's step alone, without the rollout.",
                    "只含训练器自身的步，不含 rollout。",
                    refuse=True,
                ),
            ),
            *differs(
                "time/step",
                "trinity",
                by=difference(
                    "window",
                    "The trainer's step alone, without the rollout.",
                    "只含训练器自身的步，不含 rollout。",
                    refuse=True,
                ),
            ),
            *differs("perf/time_per_step", "verl", by=difference("window", "Without validation.", "不含验证。")),
            *differs("timing_s/step", "verl", by=difference("window", "Without validation.", "不含验证。")),
            *differs(
                "time/step_total",
                "roll",
                by=difference(
                    "moment",
                    "In the RLVR pipeline it is the previous step's (0 on the first).",
                    "RLVR 流水线中这是上一步的时长（第一步为 0）。",
                ),
            ),
            *same("perf/step_time", "slime"),
            *differs(
                "time/step",
                "prime-rl",
                by=difference(
                    "meaning",
                    "Trainer and orchestrator both log this key, each for its own step.",
                    "训练器与编排器都记录这个键，各自指各自的步。",
                    refuse=True,
                ),
            ),
            *differs(
                "step_time",
                "trl",
                by=difference(
                    "window",
                    "Sum of the training_step calls of one optimizer step: generation is inside, the "
                    "optimizer, logging, saving and data loading are not; rank-local.",
                    "一个优化器步内各次 training_step 调用之和：含生成，但不含优化器、日志、保存与数据加"
                    "载；且只是本 rank 的。",
                ),
            ),
            *differs("perf/step_s", "trl", by=WINDOW, era="async-1.16"),
        ),
        look=Text(
            "Steady; judge a change against tokens/response_length/mean.",
            "平稳；变化时先对照 tokens/response_length/mean。",
        ),
    ),
    _timer(
        "eval",
        "Evaluation",
        "评测时间",
        Text("Wall seconds of an evaluation.", "一次评测的墙钟秒数。"),
        (
            *ours("time/eval", "trinity"),
            *differs(
                "time/eval",
                "trinity",
                by=difference(
                    "meaning",
                    "From submission to the last result: rollouts in between are inside.",
                    "从提交到取得最后结果：期间穿插的 rollout 也算在内。",
                ),
            ),
            *same("time/bench", "trinity", era="0.6"),
            *same("timing_s/testing", "verl"),
            *same("time/step_val", "roll"),
        ),
        look=Text(
            "A small share of training time; else evaluate less often or on fewer tasks.",
            "只占训练时间的小部分；否则应降低评测频率或减少任务。",
        ),
    ),
    _timer(
        "wait_explore_step",
        "Wait for the exploration step",
        "等待探索步",
        Text(
            "Wall seconds that the explorer waits for the step's rollouts to finish.",
            "explorer 等待本步 rollout 完成的墙钟秒数。",
        ),
        (
            *ours("time/wait_explore_step", "trinity"),
            *same("time/wait_explore_step", "trinity"),
            *same("explorer/time/wait_explore_step", "trinity", era="0.6"),
        ),
        look=_ROLLOUT_LOOK,
        links=(
            link(
                "time/rollout",
                "The wait equals the rollout time only when nothing overlaps.",
                "只有毫无重叠时，等待时间才等于 rollout 时间。",
                refuse=False,
            ),
        ),
    ),
    _timer(
        "wait_for_batch",
        "Wait for data",
        "等待数据时间",
        Text(
            "Wall seconds that the trainer waits for rollouts: its idle time.",
            "训练器等待 rollout 数据的墙钟秒数，即空闲时间。",
        ),
        (
            *same("time/wait_for_batch", "prime-rl"),
            *same("time/read_experience", "trinity"),
            *differs("queue_wait_time_s", "trl", by=WINDOW, era="async-1.10"),
            *differs("perf/rollout_wait_s", "trl", by=WINDOW, era="async-1.16"),
        ),
        look=Text(
            "Below 30% of the step when asynchronous; more means that rollouts are the bottleneck.",
            "异步训练中低于一步的 30%；再高说明瓶颈在 rollout。",
        ),
        next=Text(
            "system/generated_tokens_per_second, sample/rollout_queue_size, sample/staleness/mean.",
            "看 system/generated_tokens_per_second、sample/rollout_queue_size 与 sample/staleness/mean。",
        ),
        links=(
            link(
                "time/rollout",
                "Waiting for data is not generating it: with overlap the wait is far shorter.",
                "等数据不等于生成数据：有重叠时等待时间短得多。",
            ),
            link(
                "time/wait_explore_step",
                "The trainer's wait for data and the explorer's wait for rollouts are different processes' idle time.",
                "训练器等数据与 explorer 等 rollout，是两个进程各自的空闲。",
            ),
        ),
    ),
)

_PHASE_TRAPS = (
    trap(
        "roll",
        "Device queues are not waited for: work still running may be billed to the next stretch. The "
        "probe's own readings are inside onload and offload.",
        "计时不等待设备队列：尚未完成的计算可能被记到下一段；采样显存本身的开销也算在 onload 与 offload 里。",
    ),
)


def _phase(
    what: str, en: str, zh: str, about: str, about_zh: str, theirs: Names, links: tuple[Link, ...] = ()
) -> Metric:
    return Metric(
        f"time/{{phase}}/{what}",
        "time",
        Text(en, zh),
        Text(about, about_zh),
        "onload + execute + offload" if what == "total" else f"wall seconds of the {what} stretch of the phase",
        "seconds",
        "phases",
        "sum",
        "sum",
        look=_LOOK,
        next=Text(
            "The phase's other stretches, memory/{phase}/* of the same phase, the slowest rank.",
            "看该阶段的其他几段、同一阶段的 memory/{phase}/*，以及最慢的 rank。",
        ),
        direction="lower",
        names=(*ours(f"time/{{phase}}/{what}", "roll"), *theirs),
        links=links,
        traps=_PHASE_TRAPS,
    )


_PHASES = (
    _phase(
        "total",
        "Phase: total time",
        "阶段总时间",
        "Wall seconds of a phase of the step: loading the states, the work, and offloading; the probe's "
        "own cost is outside.",
        "步内某一阶段的墙钟秒数：加载状态、执行、卸载三段之和；探针自身的开销不计入。",
        differs("time/{phase}/total", "roll", by=_RANK_MEAN),
        links=(
            link(
                "time/update_actor",
                "The phase also holds moving the states on and off the device.",
                "该阶段还包含状态的加载与卸载。",
                refuse=False,
                phase="actor_train/train_step",
            ),
            link(
                "time/update_actor",
                "The phase also holds moving the states on and off the device.",
                "该阶段还包含状态的加载与卸载。",
                refuse=False,
                phase="train_step",
            ),
            link(
                "time/sync_weight",
                "The phase time of model_update, per worker.",
                "model_update 阶段的时间，按 worker 计。",
                refuse=False,
                phase="model_update",
            ),
        ),
    ),
    _phase(
        "execute",
        "Phase: execution time",
        "阶段执行时间",
        "Wall seconds of the work itself, with the states on the device.",
        "状态已在设备上时，工作本身所用的墙钟秒数。",
        differs("time/{phase}/execute", "roll", by=_DEBUG),
    ),
    _phase(
        "onload",
        "Phase: onload time",
        "阶段加载时间",
        "Wall seconds of bringing parameters, optimizer and gradients onto the device.",
        "把参数、优化器状态、梯度搬到设备上所用的墙钟秒数。",
        differs("time/{phase}/onload", "roll", by=_DEBUG),
    ),
    _phase(
        "offload",
        "Phase: offload time",
        "阶段卸载时间",
        "Wall seconds of moving the states off the device.",
        "把状态移出设备所用的墙钟秒数。",
        differs("time/{phase}/offload", "roll", by=_DEBUG),
    ),
)


def _over_ranks(what: str, en: str, zh: str, about: Text, unit: str, statistic: str) -> Metric:
    return Metric(
        f"time/{{phase}}/ranks/{what}",
        "time",
        Text(f"Over ranks: {en}", f"各 rank：{zh}"),
        about,
        "argmax over ranks of time/{phase}" if what == "slowest" else f"{what} over ranks of time/{{phase}}",
        unit,
        "ranks",
        statistic,
        "none",
        look=Text(
            "Maximum and mean close together, and the slowest rank another one every step. One rank that is always the "
            "slowest holds up all others: a slow device, a hot one, or an uneven shard.",
            "最大值与均值接近，且最慢的 rank 每步不同。若总是同一个最慢，它就拖住了所有人：设备慢、过热，或分片不均。",
        ),
        next=Text(
            "system/shard_tokens/balanced_max, system/device/{device}/temperature of that rank.",
            "看 system/shard_tokens/balanced_max，以及该 rank 的 system/device/{device}/temperature。",
        ),
        direction="none" if what == "slowest" else "lower",
    )


_RANKS = (
    _over_ranks(
        "mean",
        "mean",
        "均值",
        Text(
            "The mean over ranks of a time of the step; the name of that time stands before /ranks.",
            "本步某项时间对各 rank 的均值；/ranks 之前是该项时间的名字。",
        ),
        "seconds",
        "mean",
    ),
    _over_ranks(
        "max",
        "maximum",
        "最大值",
        Text(
            "The largest over ranks of a time of the step: what everyone who waits for all ranks waits for.",
            "本步某项时间在各 rank 中的最大值：凡要等齐所有 rank 的，等的就是它。",
        ),
        "seconds",
        "max",
    ),
    _over_ranks(
        "min",
        "minimum",
        "最小值",
        Text("The smallest over ranks of a time of the step.", "本步某项时间在各 rank 中的最小值。"),
        "seconds",
        "min",
    ),
    _over_ranks(
        "slowest",
        "the slowest",
        "最慢者",
        Text(
            "The rank whose time is the largest; of equal ones the lowest.",
            "时间最长的那个 rank；相同时取编号最小的。",
        ),
        "rank",
        "other",
    ),
)

METRICS: tuple[Metric, ...] = (
    *_DRIVER,
    *_PHASES,
    Metric(
        "time/{phase}/count",
        "time",
        Text("Phase: passages", "阶段次数"),
        Text(
            "How often a phase or timer was gone through in the step. Written when it is more than once; the times are "
            "then sums.",
            "本步内进入某阶段或计时器的次数。多于一次时才写出；此时各项时间为总和。",
        ),
        "Σ passages of this name in the step",
        "count",
        "phases",
        "count",
        "sum",
        look=Text("The same every step, or in proportion to the work.", "每步相同，或与工作量成比例。"),
        next=Text("time/{phase}/total divided by it is one passage.", "time/{phase}/total 除以它就是单次时间。"),
    ),
    *_RANKS,
    Metric(
        "time/unaccounted",
        "time",
        Text("Time in no phase", "未归属时间"),
        Text(
            "Seconds of the step, from commit to commit, in which no phase and no timer of this process was open.",
            "一步（两次提交之间）中，本进程没有任何阶段或计时器处于打开状态的秒数。",
        ),
        "seconds of the step − |union of its outermost spans|",
        "seconds",
        "steps",
        "other",
        "none",
        look=Text("A few per cent of the step.", "只占一步的百分之几。"),
        next=Text(
            "What the loop does between its phases: checkpoints, logging, data loading. Give it a timer.",
            "看循环在各阶段之间做了什么：检查点、日志、数据加载。给它加一个计时器。",
        ),
        direction="lower",
    ),
    Metric(
        "time/unaccounted_share",
        "time",
        Text("Share of the step in no phase", "未归属时间占比"),
        Text(
            "The share of the step in which no phase and no timer of this process was open.",
            "一步中本进程没有任何阶段或计时器处于打开状态的时间占比。",
        ),
        "time/unaccounted / time/step",
        "fraction",
        "steps",
        "share",
        "none",
        look=Text(
            "Below 0.1: else the phases do not tell where the time goes.", "低于 0.1：否则各阶段说明不了时间去向。"
        ),
        next=Text("time/unaccounted, in seconds.", "看以秒计的 time/unaccounted。"),
        direction="lower",
    ),
    Metric(
        "time/overlap",
        "time",
        Text("Overlap of phases", "阶段重叠时间"),
        Text(
            "Seconds of the step in which outermost phases of two or more threads or tasks of this process were "
            "open at once.",
            "一步中，本进程两个或更多线程或任务的最外层阶段同时处于打开状态的秒数。",
        ),
        "|moments of the step covered by the outermost spans of two or more lanes|",
        "seconds",
        "steps",
        "other",
        "none",
        look=Text(
            "Zero when phases alternate; near the shorter of the two when rollout and training run side by side. Less "
            "is a bubble: one waits for the other.",
            "各阶段交替进行时为零；rollout 与训练并行时应接近两者中较短的一个。偏小说明有气泡：一方在等另一方。",
        ),
        next=Text("time/wait_for_batch, time/rollout.", "看 time/wait_for_batch 与 time/rollout。"),
    ),
    _timer(
        "{operation}",
        "Operation",
        "操作时间",
        Text("Wall seconds of a timer of this name, summed over the step.", "以此命名的计时器在本步内累计的墙钟秒数。"),
        (
            *ours("time/{operation}", "trinity"),
            *same("time/{operation}", "trinity", "roll", "prime-rl"),
            *same("timing_s/{operation}", "verl"),
            *same("timing/{operation}", "verl", era="legacy"),
            *differs(
                "profiling/Time taken: {trainer}.{operation}",
                "trl",
                by=difference(
                    "window",
                    "Sent straight to W&B, MLflow or trackio from the main process; nested and "
                    "overlapping, stamped one step early.",
                    "由主进程直接写入 W&B、MLflow 或 trackio；各项相互嵌套、重叠，且步数早一步。",
                ),
            ),
        ),
        traps=(
            trap(
                "trinity",
                "A timer used twice in a step keeps the last duration only.",
                "同一步内重复使用的计时器只保留最后一次。",
            ),
            trap("verl", "A timer whose body raises records nothing.", "计时区间内抛出异常时不会有任何记录。"),
        ),
    ),
    Metric(
        "time/per_token/{phase}",
        "time",
        Text("Time per token", "每 token 时间"),
        Text(
            "Seconds of an operation for every token that it processed; which tokens, the caller says.",
            "某操作每处理一个 token 所用的秒数；计哪些 token 由调用方说明。",
        ),
        "seconds of the operation / tokens it processed",
        "seconds/token",
        "phases",
        "quotient",
        "ratio",
        look=Text("Steady while lengths change: that is what it is for.", "即使长度变化也应平稳：这正是它的用处。"),
        next=Text(
            "system/shard_tokens/*, the micro-batch size, padding.", "看 system/shard_tokens/*、微批次大小与填充。"
        ),
        direction="lower",
        needs=("tokens",),
        names=(
            *ours("timing_per_token_ms/{phase}", "trinity", difference=MILLISECONDS),
            *differs(
                "timing_per_token_ms/{phase}",
                "trinity",
                "verl",
                by=difference(
                    "unit population",
                    "In milliseconds; response tokens for gen, prompt and response tokens for the others.",
                    "以毫秒为单位；gen 按回复 token 计，其余按提示加回复 token 计。",
                    factor=0.001,
                ),
            ),
        ),
        traps=(
            trap(
                "verl",
                "When several updates are merged into one row, these values are summed, which makes no sense.",
                "多次更新合并成一行时，这些值会被相加，没有意义。",
            ),
        ),
    ),
    _timer(
        "experience_pipeline/{operator}",
        "Experience pipeline",
        "经验流水线时间",
        Text(
            "Wall seconds of one operator of the experience pipeline, of writing, or of all together.",
            "经验流水线中某个算子、写入或整体所用的墙钟秒数。",
        ),
        (
            *ours("time/experience_pipeline/{operator}", "trinity"),
            *same("time/experience_pipeline/{operator}", "trinity"),
            *same("experience_pipeline/time/{operator}", "trinity", era="0.6"),
            *same("experience_pipeline/experience_pipeline/time/{operator}", "trinity", era="0.6"),
        ),
        look=Text("A small part of the step.", "只占一步的很小部分。"),
        traps=(
            trap(
                "trinity",
                "Version 0.6 writes the prefix twice: experience_pipeline/experience_pipeline/time/….",
                "0.6 版会把前缀写两遍：experience_pipeline/experience_pipeline/time/…。",
            ),
        ),
    ),
    _timer(
        "forward",
        "Forward pass",
        "前向时间",
        Text("Wall seconds of the forward passes.", "前向计算的墙钟秒数。"),
        (
            *differs("perf/fwd_s", "trl", by=WINDOW, era="async-1.16"),
            *differs("forward_time_s", "trl", by=WINDOW, era="async-1.10"),
        ),
    ),
    *(
        _timer(
            id,
            en,
            zh,
            Text(about, about_zh),
            differs(pattern, "trl", by=WINDOW if not pattern.endswith("_ms") else _MILLI, era=era),
        )
        for id, pattern, era, en, zh, about, about_zh in (
            (
                "optimizer",
                "perf/optimizer_s",
                "async-1.16",
                "Optimizer",
                "优化器时间",
                "Wall seconds of the optimizer step.",
                "优化器更新的墙钟秒数。",
            ),
            (
                "sync_weight/pause",
                "perf/weight_sync_pause_s",
                "async-1.16",
                "Weight synchronisation: pause",
                "权重同步：暂停",
                "Wall seconds that generation is paused for the new weights.",
                "为更新权重而暂停生成的墙钟秒数。",
            ),
            (
                "sync_weight/barrier",
                "perf/weight_sync_barrier_s",
                "async-1.16",
                "Weight synchronisation: barrier",
                "权重同步：等待",
                "Wall seconds of waiting for all ranks.",
                "等待所有 rank 的墙钟秒数。",
            ),
            (
                "sync_weight/transfer",
                "perf/weight_sync_transfer_s",
                "async-1.16",
                "Weight synchronisation: transfer",
                "权重同步：传输",
                "Wall seconds of sending the weights.",
                "传输权重的墙钟秒数。",
            ),
            (
                "scoring",
                "scoring_time_ms",
                "async-1.10",
                "Scoring",
                "打分时间",
                "Time of computing rewards.",
                "计算奖励所用的时间。",
            ),
            (
                "scoring_wait",
                "wait_scoring_ms",
                "async-1.10",
                "Wait for scores",
                "等待打分",
                "Time of waiting for rewards.",
                "等待奖励结果的时间。",
            ),
        )
    ),
    *(
        Metric(
            f"time/agent_loop/{{operation}}/{stat}",
            "time",
            Text(f"Agent loop: {en}", f"智能体循环：{zh}"),
            Text(
                f"Seconds that one stage of the agent loop takes per trajectory, {en} over trajectories.",
                f"智能体循环某一环节对每条轨迹所用的秒数，对轨迹取{zh}。",
            ),
            f"{stat} over trajectories of seconds",
            "seconds",
            "samples",
            stat,
            "none",
            look=_LOOK,
            next=_NEXT,
            direction="lower",
            names=same(f"timing_s/agent_loop/{{operation}}/{stat}", "verl"),
        )
        for stat, en, zh in (("mean", "mean", "均值"), ("max", "maximum", "最大值"), ("min", "minimum", "最小值"))
    ),
    _timer(
        "agent_loop/slowest/{operation}",
        "Slowest trajectory",
        "最慢的轨迹",
        Text(
            "Seconds that the slowest trajectory of the step spent in one stage.",
            "本步最慢的那条轨迹在某一环节所用的秒数。",
        ),
        same("timing_s/agent_loop/slowest/{operation}", "verl"),
    ),
)
