"""What several families share: how the frameworks' own code averages, and over what."""

from windsock.catalogue.declare import difference, differs
from windsock.catalogue.spec import Metric, Text

WINDOW = difference(
    "window", "Averaged over the logging window (logging_steps).", "对日志窗口（logging_steps）取平均。"
)
WINDOW_SUM = difference("window", "Summed over the logging window.", "对日志窗口求和。")
MICRO_BATCHES = difference(
    "reducer",
    "Unweighted mean of micro-batch means, not of tokens: short micro-batches weigh as much as long ones.",
    "对各微批次均值做不加权平均，而不是对 token 平均：token 少的微批次与多的权重相同。",
)
PER_SAMPLE = difference(
    "population",
    "Mean per sample, then over samples (per token only when configured); logged per optimizer step on train/step.",
    "先逐样本、再对样本平均（仅在配置后才按 token）；以优化器步 train/step 为横轴。",
)
NEXT_RATE = difference(
    "moment",
    "Read after the scheduler stepped: the rate of the next update, one step ahead of ours.",
    "在调度器更新之后读取：是下一次更新的学习率，比我们早一步。",
)
VERL_LOSS = difference(
    "reducer",
    "Its scale depends on loss_agg_mode and on the version: between December 2025 and April 2026 the legacy trainer "
    "summed it over mini-batches and epochs.",
    "尺度取决于 loss_agg_mode 与版本：2025 年 12 月到 2026 年 4 月间，旧训练器会把各小批次、各轮累加。",
)
LOSS_MODE = difference(
    "reducer",
    "ROLL reduces it with loss_agg_mode like a loss, so its scale changes with that setting; with seq-mean-token-sum "
    "it is a sum per sequence.",
    "ROLL 像损失一样按 loss_agg_mode 归约，尺度随该设置改变；在 seq-mean-token-sum 下是每条序列之和。",
)
CELLS = difference(
    "reducer",
    "Mean over micro-batch cells that are never all written: with num_mini_batches = m the number is 1/m of the true "
    "one.",
    "对并未写满的微批次格子求平均：num_mini_batches = m 时只有真实值的 1/m。",
)
CELLS_UNMASKED = difference(
    "mask reducer",
    "Mean over all positions, padding included, and over micro-batch cells that are never all written: with "
    "num_mini_batches = m the number is 1/m of the true one.",
    "对所有位置（含填充）求平均，再对并未写满的微批次格子求平均：num_mini_batches = m 时只有真实值的 1/m。",
)
CELLS_LOOSE = difference(
    "mask reducer",
    "Mean over micro-batch cells that are never all written: with num_mini_batches = m the number is 1/m of the true "
    "one. The mask is one position looser than the response.",
    "对并未写满的微批次格子求平均：num_mini_batches = m 时只有真实值的 1/m；掩码还比回复多放宽一个位置。",
)

STEP_SIZE_NEXT = Text(
    "policy/clip_fraction and policy/kl_k2 together, then the learning rate, epochs per batch and the "
    "staleness of the data.",
    "把 policy/clip_fraction 与 policy/kl_k2 放在一起看，再查学习率、每批更新轮数和数据的陈旧程度。",
)
"""What to look at when an update moved the policy too far."""


def asynchronous(
    family: str,
    next: Text,
    key: str,
    en: str,
    zh: str,
    about: str,
    about_zh: str,
    unit: str,
    statistic: str,
    look: str,
    look_zh: str,
    pattern: str = "",
    era: str = "async-1.16",
) -> Metric:
    """Declare what asynchronous GRPO of TRL says about its workers, its tools and the samples on their way."""
    id = f"{family}/{key}"
    return Metric(
        id,
        family,
        Text(en, zh),
        Text(about, about_zh),
        about.rstrip(".").lower(),
        unit,
        "samples",
        statistic,
        "none",
        look=Text(look, look_zh),
        next=next,
        names=differs(pattern or id, "trl", by=WINDOW_SUM if statistic == "sum" else WINDOW, era=era),
    )
