"""System: throughput, counters, utilisation of the devices, and how evenly the work is spread."""

from dataclasses import replace
from typing import Any

from windsock.catalogue.conventions import WINDOW
from windsock.catalogue.declare import Names, difference, differs, link, ours, same, trap
from windsock.catalogue.spec import Metric, Text

_RATE_LOOK = Text(
    "Steady; a fall of a fifth that longer responses do not explain is worth a look.",
    "平稳；若下降两成且不能用回复变长解释，就值得排查。",
)
_RATE_NEXT = Text(
    "The phases of the step: which one grew? tokens/response_length/mean, since longer answers cost more.",
    "看步内各阶段：是哪一段变长了？再看 tokens/response_length/mean，回复越长越慢。",
)
_THROUGHPUT = (
    "Throughputs differ in the tokens counted, the time they are divided by and the number of devices; "
    "without all three they do not convert.",
    "吞吐量在“数哪些 token、除以哪段时间、除以多少设备”上各不相同；缺了任何一个都无法换算。",
)
_COUNT_LOOK = Text("Grows by the same amount every step.", "每步增加相同的数量。")
_RATE_IDS = (
    "system/tokens_per_second",
    "system/tokens_per_second_per_device",
    "system/generated_tokens_per_second",
    "system/train_tokens_per_second",
    "system/episodes_per_second",
)


def _rate(id: str, en: str, zh: str, about: Text, formula: str, unit: str, names: Names, **more: Any) -> Metric:
    return Metric(
        id,
        "system",
        Text(en, zh),
        about,
        formula,
        unit,
        "steps",
        "quotient",
        "ratio",
        look=_RATE_LOOK,
        next=_RATE_NEXT,
        direction="higher",
        names=names,
        links=tuple(link(other, *_THROUGHPUT) for other in _RATE_IDS if other != id),
        **more,
    )


_RATES = (
    _rate(
        "system/tokens_per_second",
        "Tokens per second",
        "每秒 token 数",
        Text(
            "Tokens counted for the step (prompt and response, once) per second from commit to commit: "
            "this step alone, all devices together.",
            "本步计数的 token（提示加回复，只算一次）除以两次提交之间的秒数：只算本步，所有设备合计。",
        ),
        "tokens of the step / seconds of the step",
        "tokens/s",
        (
            *ours("system/tps", "roll"),
            *differs(
                "system/tps",
                "roll",
                by=difference(
                    "window",
                    "Over a window of five steps, of trained tokens, without the time of metrics, "
                    "checkpoint and logging.",
                    "对最近五步取窗口，统计参与训练的 token，不含指标、检查点与日志的时间。",
                ),
            ),
            *differs(
                "system/tps/tps",
                "roll",
                by=difference(
                    "window moment",
                    "Of previous steps, over a window of five; 0 on the first step.",
                    "反映的是之前的步（五步窗口），第一步为 0。",
                ),
            ),
            *differs(
                "perf/throughput",
                "prime-rl",
                by=difference(
                    "window population",
                    "Padded tokens over the time of forward and backward only.",
                    "按填充后的 token 计，且只除以前向与反向的时间。",
                    refuse=True,
                ),
            ),
        ),
        needs=("tokens",),
        traps=(
            trap(
                "",
                "Not comparable with perf/throughput of veRL and Trinity, which is per device.",
                "不能与 veRL、Trinity 的 perf/throughput 相比，后者按每设备计。",
            ),
        ),
    ),
    _rate(
        "system/tokens_per_second_per_device",
        "Tokens per second per device",
        "每设备每秒 token 数",
        Text(
            "Tokens of the step per second and device, over the whole step, rollout included.",
            "本步 token 数除以整步时间（含 rollout）再除以设备数。",
        ),
        "tokens of the step / (seconds of the step × devices)",
        "tokens/s/device",
        (
            *ours("perf/throughput", "trinity"),
            *differs(
                "perf/throughput",
                "trinity",
                by=difference(
                    "window",
                    "Over the trainer's own step and devices only, without the rollout: far higher than "
                    "veRL's number of the same name.",
                    "只按训练器自身的步长与设备计，不含 rollout：远高于 veRL 的同名数值。",
                    refuse=True,
                ),
            ),
            *same("perf/throughput", "verl"),
            *differs(
                "system/tps_gpu",
                "roll",
                by=difference("window", "Of previous steps, over a window of five.", "反映之前的步（五步窗口）。"),
            ),
            *differs(
                "perf/throughput_per_gpu",
                "prime-rl",
                by=difference(
                    "window population",
                    "Padded tokens over the time of forward and backward only.",
                    "按填充后的 token 计，且只除以前向与反向的时间。",
                    refuse=True,
                ),
            ),
        ),
        needs=("tokens", "devices"),
        traps=(
            trap(
                "verl",
                "Separate-asynchronous runs counted only the trainer's GPUs until July 2026.",
                "2026 年 7 月之前，训推分离的异步模式只计训练侧 GPU。",
            ),
        ),
    ),
    _rate(
        "system/generated_tokens_per_second",
        "Generated tokens per second",
        "每秒生成 token 数",
        Text("Tokens that the rollout engines generate per second.", "rollout 引擎每秒生成的 token 数。"),
        "generated tokens / seconds of generation",
        "tokens/s",
        (
            *differs(
                "generation_tok_per_s",
                "trl",
                by=difference("window", "Cumulative since the start.", "从训练开始累计平均。"),
                era="async-1.10",
            ),
            *differs("rollout/generated_tok_s", "trl", by=WINDOW, era="async-1.16"),
            *differs(
                "perf/tokens_per_gpu_per_sec", "slime", by=difference("unit", "Per GPU.", "按每 GPU 计。", refuse=True)
            ),
            *differs(
                "system/actor_infer/tps",
                "roll",
                by=difference(
                    "window",
                    "One duration ahead of its token counts until the window of five fills: too low in the "
                    "first steps; prompt tokens count.",
                    "五步窗口填满之前，时长列表比 token 列表多一项：前几步偏低；提示 token 也计入。",
                ),
            ),
        ),
    ),
    _rate(
        "system/train_tokens_per_second",
        "Trained tokens per second",
        "每秒训练 token 数",
        Text("Tokens trained on per second of training.", "训练阶段每秒处理的 token 数。"),
        "trained tokens / seconds of training",
        "tokens/s",
        (
            *differs(
                "perf/actor_train_tok_per_s",
                "slime",
                by=difference("population", "The whole batch over rank 0's time.", "整个批次除以 rank 0 的用时。"),
            ),
            *differs(
                "training_tok/s",
                "trl",
                by=difference(
                    "reducer",
                    "A mean of ratios, which the maintainers found unusable.",
                    "是比值的平均，维护者自己也认为不可用。",
                    refuse=True,
                ),
                era="async-1.10",
            ),
            *same("perf/trained_tok_s_wall_clock", "trl", era="async-1.16"),
            *differs(
                "perf/forwarded_tok_s_wall_clock",
                "trl",
                by=difference("population", "Padding and masked tokens count.", "填充与被屏蔽的 token 也计入。"),
                era="async-1.16",
            ),
            *differs(
                "perf/forwarded_tok_s_fwd_bwd",
                "trl",
                by=difference(
                    "window population",
                    "Over forward and backward only; padding counts.",
                    "只除以前向与反向时间，且填充计入。",
                ),
                era="async-1.16",
            ),
            *differs(
                "system/actor_train/tps",
                "roll",
                by=difference("window", "Of previous steps, over a window of five.", "反映之前的步（五步窗口）。"),
            ),
        ),
    ),
    _rate(
        "system/episodes_per_second",
        "Episodes per second",
        "每秒回合数",
        Text("Episodes of this step per second of this step.", "本步回合数除以本步秒数。"),
        "episodes of the step / seconds of the step",
        "episodes/s",
        (
            *ours("eps", "trl"),
            *differs(
                "eps",
                "trl",
                by=difference(
                    "window",
                    "Episodes so far over seconds since the start, cut to an integer: slow runs read 0 for "
                    "ever, and a stall shows as a slow decay.",
                    "从开始至今的回合数除以总秒数，再取整：慢的实验永远显示 0，卡住时只会缓慢下降。",
                    refuse=True,
                ),
                era="ppo",
            ),
        ),
        needs=("episodes",),
    ),
)


def _shards(what: str, roll: str, en: str, zh: str, about: Text, statistic: str) -> Metric:
    return Metric(
        f"system/shard_tokens/{what}",
        "system",
        Text(f"Tokens per shard: {en}", f"每分片 token 数：{zh}"),
        about,
        f"{en} over data-parallel shards of tokens",
        "tokens",
        "shards",
        statistic,
        "none",
        look=Text(
            "After balancing, the largest and the smallest shard are close.", "均衡之后，最大与最小的分片应当接近。"
        ),
        next=Text(
            "system/shard_tokens/balanced_max against balanced_min; tokens/response_length/max.",
            "对照 balanced_max 与 balanced_min；再看 tokens/response_length/max。",
        ),
        names=(
            *ours(f"global_seqlen/{roll}", "trinity"),
            *same(f"global_seqlen/{roll}", "trinity", "verl"),
            *same(f"global_seqlen/{{cluster}}/{roll}", "roll"),
        ),
        traps=(
            (
                trap(
                    "verl",
                    "An aggregator that picks reducers by substring takes the maximum of this difference.",
                    "按子串选择归约方式的聚合器会对这个差值取最大。",
                ),
            )
            if what == "spread"
            else (
                trap(
                    "verl",
                    "With a batch that shards do not divide, the figures before balancing include a partial chunk.",
                    "批次不能被分片数整除时，均衡前的数字包含一个不完整的块。",
                ),
            )
        ),
    )


_SHARDS = (
    _shards(
        "min",
        "min",
        "minimum",
        "最小值",
        Text(
            "Tokens of the smallest data-parallel shard, before balancing.",
            "均衡之前，token 最少的数据并行分片的 token 数。",
        ),
        "min",
    ),
    _shards(
        "max",
        "max",
        "maximum",
        "最大值",
        Text(
            "Tokens of the largest data-parallel shard, before balancing.",
            "均衡之前，token 最多的数据并行分片的 token 数。",
        ),
        "max",
    ),
    _shards(
        "spread",
        "minmax_diff",
        "spread",
        "极差",
        Text(
            "Largest minus smallest shard, before balancing: what balancing can win.",
            "均衡之前最大与最小分片之差：即均衡能带来的收益。",
        ),
        "other",
    ),
    _shards(
        "balanced_min",
        "balanced_min",
        "minimum after balancing",
        "均衡后最小值",
        Text("Tokens of the smallest shard after balancing.", "均衡之后 token 最少的分片的 token 数。"),
        "min",
    ),
    _shards(
        "balanced_max",
        "balanced_max",
        "maximum after balancing",
        "均衡后最大值",
        Text(
            "Tokens of the largest shard after balancing: it sets the step time.",
            "均衡之后 token 最多的分片的 token 数：它决定步时长。",
        ),
        "max",
    ),
    _shards(
        "mean",
        "mean",
        "mean",
        "均值",
        Text(
            "Mean tokens per shard: all tokens over the number of shards.",
            "每分片平均 token 数：总 token 数除以分片数。",
        ),
        "mean",
    ),
)


def _batch(
    key: str, en: str, zh: str, about: str, about_zh: str, unit: str, statistic: str, look: str, look_zh: str
) -> Metric:
    """Declare what asynchronous GRPO of TRL says about how it packs a batch."""
    return Metric(
        f"system/batch/{key}",
        "system",
        Text(en, zh),
        Text(about, about_zh),
        about.rstrip(".").lower(),
        unit,
        "steps",
        statistic,
        "none",
        look=Text(look, look_zh),
        next=Text(
            "system/train_tokens_per_second, the packing and micro-batch settings.",
            "看 system/train_tokens_per_second 以及打包与微批次设置。",
        ),
        names=differs(f"batch/{key}", "trl", by=WINDOW, era="async-1.16"),
    )


_BATCHES = tuple(
    _batch(*row)
    for row in (
        (
            "microbatches_per_step",
            "Micro-batches per step",
            "每步微批次数",
            "Micro-batches of one optimizer step.",
            "一个优化器步包含的微批次数。",
            "count",
            "mean",
            "Steady.",
            "平稳。",
        ),
        (
            "forwarded_tokens_per_step",
            "Forwarded tokens per step",
            "每步前向 token 数",
            "Tokens that went through the forward pass, padding included.",
            "经过前向的 token 数，含填充。",
            "tokens",
            "mean",
            "Close to the trained tokens.",
            "接近训练 token 数。",
        ),
        (
            "trained_tokens_per_step",
            "Trained tokens per step",
            "每步训练 token 数",
            "Tokens that entered the loss.",
            "进入损失的 token 数。",
            "tokens",
            "mean",
            "Steady.",
            "平稳。",
        ),
        (
            "groups_per_step",
            "Groups per step",
            "每步组数",
            "Groups of one optimizer step.",
            "一个优化器步包含的组数。",
            "count",
            "mean",
            "As configured.",
            "与配置一致。",
        ),
        (
            "masked_token_frac",
            "Masked tokens",
            "被屏蔽 token 占比",
            "Share of forwarded tokens that the loss masks.",
            "前向 token 中被损失屏蔽的占比。",
            "fraction",
            "share",
            "Small; prompts and tool output are in it.",
            "应较小；其中包含提示与工具输出。",
        ),
        (
            "samples_per_row",
            "Samples per row",
            "每行样本数",
            "Samples packed into one row.",
            "打包进一行的样本数。",
            "count",
            "mean",
            "Above 1 when packing.",
            "启用打包时大于 1。",
        ),
        (
            "row_tokens_mean",
            "Tokens per row: mean",
            "每行 token 数：均值",
            "Mean tokens of a packed row.",
            "打包后每行的平均 token 数。",
            "tokens",
            "mean",
            "Near the row limit.",
            "接近行长上限。",
        ),
        (
            "row_tokens_max",
            "Tokens per row: maximum",
            "每行 token 数：最大值",
            "Tokens of the fullest row.",
            "最满一行的 token 数。",
            "tokens",
            "max",
            "At most the row limit.",
            "不超过行长上限。",
        ),
        (
            "row_imbalance",
            "Row imbalance",
            "行间不均衡度",
            "Fullest row over mean row.",
            "最满一行与平均值之比。",
            "1",
            "quotient",
            "Near 1.",
            "接近 1。",
        ),
        (
            "packing_ratio",
            "Packing ratio",
            "打包比",
            "Samples per row over rows without packing.",
            "打包后行数与不打包时之比。",
            "1",
            "quotient",
            "Above 1.",
            "大于 1。",
        ),
        (
            "row_fill_frac",
            "Row fill",
            "行填充率",
            "Share of a row that holds tokens.",
            "一行中实际 token 的占比。",
            "fraction",
            "share",
            "Near 1.",
            "接近 1。",
        ),
        (
            "pad_frac",
            "Padding share",
            "填充占比",
            "Share of forwarded tokens that are padding.",
            "前向 token 中填充的占比。",
            "fraction",
            "share",
            "Near 0.",
            "接近 0。",
        ),
        (
            "dropped_oversize_total",
            "Dropped oversize samples",
            "因过长而丢弃的样本数",
            "Samples dropped because they do not fit a row.",
            "因放不进一行而丢弃的样本数。",
            "count",
            "sum",
            "0.",
            "为 0。",
        ),
    )
)


def _sampled(
    key: str, unit: str, statistic: str, direction: str, en: str, zh: str, about: Text, look: Text, next: Text
) -> tuple[Metric, Metric]:
    """Declare what the sampler of the machine reads: over the step, and while one phase was open."""
    whole = Metric(
        f"system/{key}",
        "system",
        Text(en, zh),
        about,
        f"{statistic} over the samples of the step",
        unit,
        "devices" if "{device}" in key else "hosts",
        statistic,
        "none",
        look=look,
        next=next,
        direction=direction,
    )
    during = replace(
        whole,
        id=f"system/{key}/during/{{phase}}",
        title=Text(f"{en}, by phase", f"{zh}（按阶段）"),
        about=Text(
            f"{about.en} Of the samples taken while this phase was the innermost one open.",
            f"{about.zh}只取该阶段为最内层打开阶段时的采样。",
        ),
        formula=f"{statistic} over the samples of the step that were taken in the phase",
    )
    return whole, during


_SAMPLED = tuple(
    metric
    for row in (
        (
            "device/{device}/utilisation",
            "fraction",
            "mean",
            "higher",
            "Device utilisation",
            "设备利用率",
            Text(
                "The share of time in which a kernel ran on the device, as NVML says it.",
                "设备上有核函数在运行的时间占比，由 NVML 给出。",
            ),
            Text(
                "Near 1 in training and generation. A device is called busy however few of its units work: see power.",
                "训练与生成时接近 1。哪怕只有少数单元在工作也算忙：请对照功耗。",
            ),
            Text(
                "system/device/{device}/power, time/unaccounted, time/wait_for_batch.",
                "看 system/device/{device}/power、time/unaccounted 与 time/wait_for_batch。",
            ),
        ),
        (
            "device/{device}/memory_used",
            "GiB",
            "max",
            "lower",
            "Device memory in use",
            "设备显存用量",
            Text(
                "The most device memory in use by all processes, NCCL and contexts included.",
                "所有进程占用显存的最大值，含 NCCL 与上下文。",
            ),
            Text("Below the device's total.", "低于设备总量。"),
            Text(
                "memory/{phase}/end/onload/max_reserved/{device}: what PyTorch itself holds of it.",
                "看 memory/{phase}/end/onload/max_reserved/{device}：其中 PyTorch 自己占了多少。",
            ),
        ),
        (
            "device/{device}/power",
            "W",
            "mean",
            "none",
            "Device power",
            "设备功耗",
            Text("What the device draws.", "设备的功耗。"),
            Text(
                "Near its limit while it computes; far below it waits for memory, network or the host.",
                "计算时接近上限；远低于上限说明在等显存、网络或主机。",
            ),
            Text("system/device/{device}/utilisation.", "看 system/device/{device}/utilisation。"),
        ),
        (
            "device/{device}/temperature",
            "°C",
            "max",
            "lower",
            "Device temperature",
            "设备温度",
            Text("The highest temperature of the device.", "设备的最高温度。"),
            Text(
                "Below what its maker calls throttling, about 85 °C; a hot device is a slow rank.",
                "低于厂商的降频温度（约 85 °C）；过热的设备会成为慢的 rank。",
            ),
            Text("time/{phase}/ranks/slowest.", "看 time/{phase}/ranks/slowest。"),
        ),
        (
            "cpu/utilisation",
            "fraction",
            "mean",
            "none",
            "CPU utilisation",
            "CPU 利用率",
            Text("The share of all cores of the host that is busy.", "主机全部核心的忙碌占比。"),
            Text(
                "Moderate; at 1 the loop and the data loading wait for a core.",
                "应适中；到 1 时训练循环与数据加载要等核心。",
            ),
            Text("The number of workers and environments per host.", "看每台主机上的 worker 数与环境数。"),
        ),
        *(
            (
                f"{what}_rate",
                "bytes/s",
                "mean",
                "none",
                en,
                zh,
                Text(f"Bytes per second of the host: {en.lower()}.", f"主机每秒的字节数：{zh}。"),
                Text("Bursts at checkpoints and weight synchronisation.", "在写检查点与同步权重时出现高峰。"),
                Text("time/sync_weight, and the phase in which it is high.", "看 time/sync_weight，以及数值高的阶段。"),
            )
            for what, en, zh in (
                ("disk/read", "Disk reads", "磁盘读取"),
                ("disk/write", "Disk writes", "磁盘写入"),
                ("network/receive", "Network received", "网络接收"),
                ("network/send", "Network sent", "网络发送"),
            )
        ),
    )
    for metric in _sampled(*row)
)

METRICS: tuple[Metric, ...] = (
    *_RATES,
    *_SAMPLED,
    Metric(
        "windsock/probe_seconds",
        "system",
        Text("What the probe costs", "探针开销"),
        Text(
            "Seconds of the step that windsock itself spent on phases: markers, readings, sums. They are in no timer.",
            "windsock 自身在本步的阶段记录上花费的秒数：写标记、读内存、求和。不计入任何计时器。",
        ),
        "Σ seconds inside the probe",
        "seconds",
        "steps",
        "sum",
        "sum",
        look=Text("Below a thousandth of the step.", "低于一步的千分之一。"),
        next=Text(
            "Many short phases, or memory_children: enter fewer, or set memory to cpu or none.",
            "短阶段过多，或启用了 memory_children：减少阶段，或把 memory 设为 cpu 或 none。",
        ),
        direction="lower",
    ),
    Metric(
        "system/samples",
        "system",
        Text("Samples since the start", "累计样本数"),
        Text(
            "Sequences trained on since the run began: a counter that survives restarts.",
            "自实验开始以来训练过的序列数：重启后继续累加。",
        ),
        "Σ over steps of sequences trained on",
        "count",
        "run",
        "sum",
        "sum",
        look=_COUNT_LOOK,
        next=Text(
            "As an x-axis it makes runs with different batch sizes comparable.", "可用作横轴，让批大小不同的实验可比。"
        ),
        direction="none",
        needs=("samples",),
        names=(
            *ours("system/samples", "roll"),
            *differs(
                "system/samples",
                "roll",
                by=difference(
                    "meaning",
                    "(step + 1) times the batch size: arithmetic, not a counter, blind to skipped and "
                    "filtered batches.",
                    "用（步数 + 1）乘以批大小算出，并非真正的计数，看不到被跳过或过滤的批次。",
                ),
            ),
        ),
        links=(
            link(
                "system/episodes",
                "A sequence is an episode only without multi-turn splitting.",
                "只有不做多轮拆分时，一条序列才等于一个回合。",
                refuse=False,
            ),
        ),
    ),
    Metric(
        "system/episodes",
        "system",
        Text("Episodes since the start", "累计回合数"),
        Text(
            "Episodes since the run began: a counter that survives restarts.",
            "自实验开始以来的回合数：重启后继续累加。",
        ),
        "Σ over steps of episodes",
        "count",
        "run",
        "sum",
        "sum",
        look=_COUNT_LOOK,
        next=Text("system/episodes_per_second.", "看 system/episodes_per_second。"),
        needs=("episodes",),
        names=(
            *ours("episode", "trl"),
            *differs(
                "episode",
                "trl",
                by=difference(
                    "meaning",
                    "Updates times the global batch: arithmetic, not a counter.",
                    "用更新次数乘以全局批大小算出，并非真正的计数。",
                    factor=1.0,
                ),
                era="ppo",
            ),
        ),
        links=(
            link(
                "system/samples",
                "An episode is one sequence only without multi-turn splitting.",
                "只有不做多轮拆分时，一个回合才等于一条序列。",
                refuse=False,
            ),
        ),
    ),
    Metric(
        "system/tokens",
        "system",
        Text("Tokens of the step", "本步 token 数"),
        Text("Prompt and response tokens of the step's batch.", "本步批次中提示与回复的 token 总数。"),
        "Σ over sequences of prompt + response tokens",
        "tokens",
        "steps",
        "sum",
        "sum",
        look=Text("Moves with the response length.", "随回复长度变化。"),
        next=Text("tokens/response_length/mean.", "看 tokens/response_length/mean。"),
        needs=("tokens",),
        names=(*ours("perf/total_num_tokens", "trinity"), *same("perf/total_num_tokens", "trinity", "verl")),
        links=(
            link(
                "system/tokens_total",
                "One is of this step, the other since the start.",
                "一个只算本步，另一个从开始累计。",
            ),
        ),
    ),
    Metric(
        "system/tokens_total",
        "system",
        Text("Tokens since the start", "累计 token 数"),
        Text(
            "Prompt and response tokens processed since the run began.", "自实验开始以来处理过的提示与回复 token 总数。"
        ),
        "Σ over steps of tokens",
        "tokens",
        "run",
        "sum",
        "sum",
        look=_COUNT_LOOK,
        next=Text(
            "As an x-axis it makes runs with different lengths comparable.", "可用作横轴，让长度不同的实验可比。"
        ),
        names=same("num_tokens", "trl"),
        links=(
            link(
                "system/tokens", "One is since the start, the other of this step.", "一个从开始累计，另一个只算本步。"
            ),
        ),
    ),
    Metric(
        "system/step",
        "system",
        Text("Step", "步数"),
        Text("The step that the framework counts.", "框架自身计数的步。"),
        "step",
        "count",
        "run",
        "last",
        "none",
        look=Text("Grows by one.", "每次加一。"),
        next=Text("A step that goes back is a restart.", "若步数后退，说明训练重启过。"),
        names=(
            *same("training/global_step", "verl", "trinity"),
            *same("system/global_step", "roll"),
            *same("system/step", "roll"),
            *same("train/global_step", "trl"),
            *same("train/step", "slime"),
        ),
    ),
    Metric(
        "system/epoch",
        "system",
        Text("Epoch", "轮数"),
        Text("How often the prompts have been gone through.", "提示数据已经遍历了多少遍。"),
        "prompts seen / prompts in the data",
        "1",
        "run",
        "last",
        "none",
        look=Text(
            "A few at most; many passes over few prompts are learnt by heart.", "至多几轮；题少轮多容易死记硬背。"
        ),
        next=Text(
            "validation/score/mean against reward/score/mean.", "对照 validation/score/mean 与 reward/score/mean。"
        ),
        names=(*same("training/epoch", "verl"), *same("epoch", "trl")),
    ),
    Metric(
        "system/mfu/{model}",
        "system",
        Text("Model FLOPs utilisation", "模型算力利用率（MFU）"),
        Text(
            "The share of the devices' peak arithmetic that training one model uses. Missing unless the "
            "caller gives FLOPs and the device's peak is known.",
            "训练某个模型时用掉的设备峰值算力占比。需要调用方给出 FLOPs 且已知设备峰值，否则缺失。",
        ),
        "model FLOPs / (seconds × peak FLOP/s × devices)",
        "fraction",
        "devices",
        "quotient",
        "ratio",
        look=Text(
            "0.3 to 0.5 is good for dense training; short batches and padding push it down. Above 1 the "
            "FLOPs or the peak are wrong.",
            "稠密模型训练达到 0.3 到 0.5 已属良好；批次短、填充多会拉低它。超过 1 说明 FLOPs 或峰值填错了。",
        ),
        next=Text(
            "system/shard_tokens/*, system/batch/pad_frac, the micro-batch size.",
            "看 system/shard_tokens/*、system/batch/pad_frac 与微批次大小。",
        ),
        direction="higher",
        needs=("flops", "devices"),
        names=(
            *ours("perf/mfu/{model}", "trinity"),
            *same("perf/mfu/{model}", "trinity", "verl"),
            *differs("perf/mfu", "prime-rl", by=difference("unit", "In per cent.", "以百分数表示。", factor=0.01)),
            *differs(
                "perf/mfu_fwd_bwd",
                "trl",
                by=difference("window", "Over forward and backward only.", "只按前向与反向时间计。"),
                era="async-1.16",
            ),
            *differs("perf/mfu_wall_clock", "trl", by=WINDOW, era="async-1.16"),
        ),
        links=(
            link(
                "system/tflops",
                "Utilisation needs the device's peak; TFLOP/s alone do not say it.",
                "利用率需要设备峰值，仅有 TFLOP/s 无从得知。",
            ),
        ),
        traps=(
            trap(
                "verl",
                "An unknown GPU counts with an infinite peak: 0 then means unknown.",
                "未知型号的 GPU 按无穷大峰值计：此时 0 表示“未知”。",
            ),
        ),
    ),
    Metric(
        "system/tflops",
        "system",
        Text("Training TFLOP/s", "训练 TFLOP/s"),
        Text("Arithmetic done per second while the policy trains, per device.", "策略训练时每设备每秒完成的运算量。"),
        "model FLOPs / seconds / devices / 10¹²",
        "TFLOP/s",
        "devices",
        "quotient",
        "ratio",
        look=_RATE_LOOK,
        next=Text("system/mfu/{model} when the device's peak is known.", "已知设备峰值时看 system/mfu/{model}。"),
        direction="higher",
        names=same("perf/actor_train_tflops", "slime"),
        links=(
            link(
                "system/mfu/{model}",
                "TFLOP/s become a utilisation only with the device's peak.",
                "TFLOP/s 需要设备峰值才能换成利用率。",
                model="actor",
            ),
        ),
    ),
    *_SHARDS,
    *_BATCHES,
    Metric(
        "system/train_seq_len",
        "system",
        Text("Sequence length in training", "训练序列长度"),
        Text("Length of the rows that the trainer forwards.", "训练时前向的行长。"),
        "mean over micro-batches of row length",
        "tokens",
        "updates",
        "mean",
        "none",
        look=Text("Near the mean total length.", "接近平均总长度。"),
        next=Text("system/batch/pad_frac.", "看 system/batch/pad_frac。"),
        names=differs("train_seq_len", "trl", by=WINDOW, era="async-1.10"),
    ),
)
