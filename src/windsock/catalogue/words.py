"""The catalogue's own words in both languages: families, units, populations, and the headings of an explanation."""

from __future__ import annotations

from windsock.catalogue.spec import Text

FAMILY_TITLES = {
    "validation": Text("Validation", "验证"),
    "value": Text("Value", "价值网络"),
    "reward": Text("Reward", "奖励"),
    "tokens": Text("Tokens", "长度与截断"),
    "policy": Text("Policy", "策略"),
    "evaluation": Text("Evaluation of the batch", "批次评估"),
    "ppo": Text("PPO", "PPO"),
    "sft": Text("SFT", "SFT"),
    "system": Text("System", "系统"),
    "time": Text("Time", "时间"),
    "memory": Text("Memory", "内存与显存"),
    "rollout": Text("Rollout", "Rollout"),
    "eval": Text("Evaluation on task sets", "任务集评测"),
    "pipeline": Text("Experience pipeline", "经验流水线"),
    "sample": Text("Sample", "训练样本"),
    "custom": Text("Your own", "自定义"),
}
FAMILY_INTROS = {
    "validation": Text(
        "How the policy scores on episodes it is not trained on. The only honest answer to whether the run "
        "learns or games its reward.",
        "策略在未参与训练的回合上的表现。实验究竟在学习还是在钻奖励的空子，只有它能给出诚实的回答。",
    ),
    "value": Text(
        "How well the critic predicts returns. They exist only where a critic is trained; explained "
        "variance is the one to watch.",
        "价值网络对回报的预测质量。只有训练价值网络时才有；最值得看的是解释方差。",
    ),
    "reward": Text(
        "What the answers earn, how it is shaped, and the advantages and returns that training uses. "
        "Several frameworks file these under critic/, with or without a critic.",
        "回答得了多少分、如何塑形，以及训练所用的优势与回报。许多框架把它们放在 critic/ 之下，与是否有价值网络无关。",
    ),
    "tokens": Text(
        "How long prompts and responses are, and how many were cut. Truncation is behind more failed runs "
        "than instability is.",
        "提示与回复有多长，多少被截断。许多失败的实验，根源是截断而不是不稳定。",
    ),
    "policy": Text(
        "How far an update moves the policy, how much of it the clip takes away, how random the policy "
        "still is, and how far "
        "trainer and inference engine disagree. Most names that mislead live here: note the estimator and "
        "the population.",
        "一次更新把策略移动了多远、裁剪去掉了多少、策略还有多随机，以及训练端与推理端差多少。最容易误导人的"
        "名字都在这里：务必看清估计方式与统计总体。",
    ),
    "evaluation": Text(
        "What the sampled and the reference policy think of the responses, once per batch, before any update.",
        "采样策略与参考模型对回复的评价，每批一次，在任何更新之前。",
    ),
    "ppo": Text(
        "The policy-gradient loss and the bookkeeping of the samples that make it up.",
        "策略梯度损失，以及构成它的样本的统计。",
    ),
    "sft": Text(
        "The supervised loss on the same responses, all of them and split by whether they scored.",
        "在同样的回复上按监督方式计算的损失：全部，以及按是否得分分开。",
    ),
    "system": Text(
        "Throughput, counters, utilisation and balance. No two frameworks divide the same tokens by the "
        "same seconds: compare with care.",
        "吞吐、计数、利用率与均衡。没有两个框架用同样的 token 除以同样的时间：比较时务必小心。",
    ),
    "time": Text(
        "Where the seconds of a step go: the driver's timers, and the phases with their loading and offloading.",
        "一步的时间花在哪里：driver 的计时器，以及各阶段的加载、执行与卸载。",
    ),
    "memory": Text(
        "What each phase needs and leaves behind, on devices and hosts. All in GiB.",
        "每个阶段在设备与主机上需要多少、留下多少。一律以 GiB 计。",
    ),
    "rollout": Text(
        "What workflows and environments report while exploring: a mean over tasks of means over runs.",
        "工作流与环境在探索时上报的指标：对运行求均值，再对任务求均值。",
    ),
    "eval": Text(
        "Every task of a set is run several times: the mean, the spread, and what the best or worst of k "
        "tries is worth.",
        "任务集中的每个任务运行多次：均值、离散程度，以及 k 次尝试中最好或最差能得多少。",
    ),
    "pipeline": Text(
        "What the operators between rollout and training do to the experiences.",
        "rollout 与训练之间的算子对经验做了什么。",
    ),
    "sample": Text(
        "What the trainer draws for an update, and how old it is.",
        "训练器为一次更新取了哪些样本、它们有多旧。",
    ),
    "custom": Text("Metrics declared with windsock.define.", "用 windsock.define 声明的指标。"),
}
UNITS = {
    "1": Text("a plain number", "无量纲"),
    "nats/token": Text("nats per token", "nats / token"),
    "nats/sequence": Text("nats per sequence", "nats / 序列"),
    "fraction": Text("a fraction, 0 to 1", "比例，0 到 1"),
    "reward": Text("the reward's unit", "与奖励同单位"),
    "reward²": Text("the reward's unit, squared", "奖励单位的平方"),
    "tokens": Text("tokens", "token 数"),
    "count": Text("a count", "计数"),
    "seconds": Text("seconds", "秒"),
    "seconds/token": Text("seconds per token", "秒 / token"),
    "GiB": Text("GiB (2^30 bytes)", "GiB（2^30 字节）"),
    "tokens/s": Text("tokens per second", "token / 秒"),
    "tokens/s/device": Text("tokens per second and device", "token / 秒 / 设备"),
    "episodes/s": Text("episodes per second", "回合 / 秒"),
    "TFLOP/s": Text("TFLOP/s", "TFLOP/s"),
    "probability": Text("probability, 0 to 1", "概率，0 到 1"),
    "as reported": Text("as the task reports it", "由任务上报时决定"),
}
POPULATION_WORDS = {
    "tokens": Text("response tokens", "回复 token"),
    "sequences": Text("sequences", "序列"),
    "episodes": Text("episodes", "回合"),
    "groups": Text("groups of one prompt", "同一题目的组"),
    "tasks": Text("tasks", "任务"),
    "runs": Text("runs of a task", "任务的运行"),
    "samples": Text("samples", "样本"),
    "shards": Text("data-parallel shards", "数据并行分片"),
    "ranks": Text("ranks", "rank"),
    "devices": Text("devices, each on its own", "设备，逐个统计"),
    "processes": Text("processes, each on its own", "进程，逐个统计"),
    "hosts": Text("hosts", "主机"),
    "phases": Text("the phase in this step", "本步内的该阶段"),
    "updates": Text("updates of the step", "本步内的更新"),
    "steps": Text("the step", "本步"),
    "calls": Text("calls", "调用"),
    "run": Text("the whole run", "整个实验"),
}
PART_WORDS = {
    "": Text("", ""),
    "data": Text("once per step, on the rollout batch", "每步一次，取自采样批次"),
    "policy": Text("in every policy update", "每次策略更新"),
    "value": Text("in every value update", "每次价值更新"),
}
DIRECTION_WORDS = {
    "higher": Text("higher is better", "越高越好"),
    "lower": Text("lower is better", "越低越好"),
    "band": Text("within a band", "落在区间内为好"),
    "none": Text("", ""),
}
ESTIMATOR_WORDS = {
    "": Text("", ""),
    "k1": Text("k1: one sample per token, may be negative", "k1：每 token 单样本，可为负"),
    "k2": Text("k2: half the squared log-ratio, never negative", "k2：对数比平方的一半，不为负"),
    "k3": Text("k3: never negative, heavy-tailed", "k3：不为负，尾部重"),
    "exact": Text("exact, no sampling", "精确值，无采样"),
    "sampled": Text("sampled", "采样估计"),
    "bootstrap": Text("bootstrap", "自举"),
    "unbiased": Text("unbiased, without replacement", "无偏，无放回"),
}
KIND_WORDS = {
    "sign": Text("sign", "符号"),
    "estimator": Text("estimator", "估计方式"),
    "unit": Text("unit", "单位"),
    "population": Text("population", "统计总体"),
    "denominator": Text("denominator", "分母"),
    "window": Text("window", "时间窗口"),
    "mask": Text("mask", "掩码"),
    "reducer": Text("reduction", "归约方式"),
    "ddof": Text("ddof", "自由度"),
    "moment": Text("moment", "时刻"),
    "clamp": Text("clamp", "截断"),
    "sentinel": Text("placeholder value", "占位值"),
    "sum": Text("sum or mean", "求和/平均"),
    "meaning": Text("meaning", "含义"),
}
PRODUCER_WORDS = {
    "windsock": Text("windsock", "windsock"),
    "windsock:roll": Text("windsock, as roll", "windsock（roll 词汇）"),
    "windsock:trl": Text("windsock, as trl", "windsock（trl 词汇）"),
    "windsock:trinity": Text("windsock, as trinity", "windsock（trinity 词汇）"),
    "roll": Text("ROLL", "ROLL"),
    "trl": Text("TRL", "TRL"),
    "trinity": Text("Trinity-RFT", "Trinity-RFT"),
    "verl": Text("veRL", "veRL"),
    "slime": Text("slime", "slime"),
    "prime-rl": Text("prime-rl", "prime-rl"),
    "": Text("everywhere", "通用"),
}
ERA_WORDS = {
    "roll/0.2": Text(
        "version 0.2 (February 2026) and later: reducer tags, step_ timers",
        "0.2 版（2026 年 2 月）及以后：带归约标记，计时器加 step_ 前缀",
    ),
    "roll/2025-11": Text("as documented in November 2025: everything is averaged", "2025 年 11 月文档所述：一切取平均"),
    "roll/2025-05": Text("the first public version", "最早的公开版本"),
    "trl/grpo": Text("GRPOTrainer", "GRPOTrainer"),
    "trl/rloo": Text("RLOOTrainer", "RLOOTrainer"),
    "trl/ppo": Text("PPOTrainer from 0.12 to its removal after 1.12", "0.12 起、到 1.12 之后被移除为止的 PPOTrainer"),
    "trl/online-dpo": Text("OnlineDPOTrainer", "OnlineDPOTrainer"),
    "trl/async-1.16": Text("asynchronous GRPO of 1.16", "1.16 的异步 GRPO"),
    "trl/async-1.10": Text("asynchronous GRPO of 1.10", "1.10 的异步 GRPO"),
    "trl/ppo-0.11": Text("the PPOTrainer of 0.11 and before", "0.11 及以前的 PPOTrainer"),
    "trinity/0.6": Text("version 0.6 (July 2026)", "0.6 版（2026 年 7 月）"),
    "verl/engine": Text("workers built on the engine interface", "基于 engine 接口的 worker"),
    "verl/legacy": Text("the earlier workers and trainer", "早期的 worker 与训练器"),
    "verl/v1": Text("the v1 trainer", "v1 训练器"),
    "verl/bypass": Text("rollout correction in bypass mode", "bypass 模式下的 rollout 校正"),
    "verl/validation": Text("keys of a validation", "验证阶段的键"),
}
HEADINGS = {
    "formula": Text("formula", "公式"),
    "unit": Text("unit", "单位"),
    "over": Text("over", "统计总体"),
    "taken": Text("taken", "采集时机"),
    "estimator": Text("estimator", "估计方式"),
    "needs": Text("needs", "所需输入"),
    "better": Text("better", "方向"),
    "here": Text("In this name", "名字中的取值"),
    "healthy": Text("What healthy looks like", "健康时的样子"),
    "next": Text("What to look at next", "接下来看什么"),
    "matters": Text("Who wrote it matters", "由谁写入，含义不同"),
    "asked": Text("As it is logged under this name", "这个名字记录的数"),
    "names": Text("Its names", "各处的名字"),
    "traps": Text("Traps", "陷阱"),
    "close": Text("Close, but not the same", "相近但不同"),
    "crucial": Text("one of the crucial values", "关键指标之一"),
    "source": Text("source", "来源"),
    "band": Text("band", "区间"),
    "above": Text("see above", "见上"),
    "or": Text(" or ", " 或 "),
    "optional": Text("(if there)", "（可选）"),
    "ask": Text("--source {source} explains that one", "用 --source {source} 查看该含义"),
    "legend": Text(
        "= the metric itself   ≈ comparable, with what is said   ≠ not comparable",
        "= 即该指标   ≈ 可比，但须注意所述差异   ≠ 不可比",
    ),
}
EXACT_BY = Text("times {factor} gives the metric", "乘以 {factor} 即得该指标")


def word(table: dict[str, Text], key: str, lang: str) -> str:
    """Return a word of a table in a language; a key that is not there stands for itself."""
    return table[key].say(lang) if key in table else key
