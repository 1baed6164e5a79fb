"""Evaluation of the batch: what the sampled and the reference policy think of the responses, before any update."""

from windsock.catalogue.declare import difference, differs, link, ours, same, trap
from windsock.catalogue.spec import Metric, Text

_ZERO_FOR_MISSING = difference(
    "sentinel",
    "Logged as 0 when log-probs are not recomputed, as if it were a value.",
    "未重算对数概率时会记为 0，看起来像真实数值。",
)

METRICS: tuple[Metric, ...] = (
    Metric(
        "evaluation/ref_log_prob/mean",
        "evaluation",
        Text("Log-prob under the reference", "参考模型下的对数概率"),
        Text("How likely the reference finds the sampled tokens.", "参考模型认为这些已采样 token 有多可能。"),
        "mean over valid tokens of ref",
        "nats/token",
        "tokens",
        "mean",
        "mean",
        look=Text(
            "Close to evaluation/old_log_prob/mean at the start, drifting below it while the policy leaves "
            "the reference. Exactly 0 is a placeholder, not a value.",
            "开始时与 evaluation/old_log_prob/mean 接近，随策略离开参考模型而逐渐低于它。恰好为 0 是占位，不是真实值。",
        ),
        next=Text("policy/ref_kl_k1: the difference of the two.", "看 policy/ref_kl_k1，即两者之差。"),
        needs=("ref_log_probs", "response_mask"),
        part="data",
        names=(
            *ours("critic/ref_log_prob/mean", "roll"),
            *differs("critic/ref_log_prob/mean", "roll", by=_ZERO_FOR_MISSING),
            *same("objective/ref_logprobs", "trl", era="ppo-0.11"),
        ),
    ),
    Metric(
        "evaluation/old_log_prob/mean",
        "evaluation",
        Text("Log-prob under the sampled policy", "采样策略下的对数概率"),
        Text(
            "How likely the policy itself, before the update, finds the tokens it sampled: minus the "
            "sampled entropy per token.",
            "更新前的策略认为自己采样的 token 有多可能：即每 token 采样熵的相反数。",
        ),
        "mean over valid tokens of old",
        "nats/token",
        "tokens",
        "mean",
        "mean",
        look=Text(
            "Rises towards 0 as the policy grows surer. Close to 0, exploration is gone.",
            "随策略变得确定而向 0 上升；贴近 0 时探索已经消失。",
        ),
        next=Text(
            "evaluation/entropy/mean, evaluation/ref_log_prob/mean.",
            "看 evaluation/entropy/mean 与 evaluation/ref_log_prob/mean。",
        ),
        needs=("old_log_probs", "response_mask"),
        part="data",
        names=(
            *ours("critic/old_log_prob/mean", "roll"),
            *same("critic/old_log_prob/mean", "roll"),
            *same("objective/logprobs", "trl", era="ppo-0.11"),
        ),
    ),
    Metric(
        "evaluation/entropy/mean",
        "evaluation",
        Text("Entropy of the sampled policy", "采样策略的熵"),
        Text(
            "How random the policy was that sampled the batch: the full-vocabulary entropy, mean over "
            "tokens, before the updates of the step.",
            "采样该批次的策略有多随机：整个词表上的熵，对 token 求平均，取自本步更新之前。",
        ),
        "mean over valid tokens of −Σ_v p_old(v) log p_old(v)",
        "nats/token",
        "tokens",
        "mean",
        "mean",
        look=Text(
            "Falls while the reward rises. Judge against its own start: below 5% of it, exploration is "
            "gone; three times it, the policy turns to noise.",
            "奖励上升时它会下降。应与自身起点比较：低于起点的 5% 探索已消失，达到三倍则策略正变成噪声。",
        ),
        next=Text(
            "reward/score/mean, policy/grad_norm, temperature, the high side of the clip range.",
            "看 reward/score/mean、policy/grad_norm、采样温度与上侧裁剪范围。",
        ),
        needs=("old_entropy|entropy", "response_mask"),
        part="data",
        estimator="exact",
        names=(
            *ours("critic/entropy/mean", "roll"),
            *differs(
                "critic/entropy/mean",
                "roll",
                by=difference(
                    "sentinel",
                    "The RLVR pipeline logs 0 when log-probs are not recomputed; per-domain keys repeat "
                    "the global number.",
                    "未重算对数概率时 RLVR 流水线会记为 0；各 domain 的同名键只是重复全局数值。",
                ),
            ),
        ),
        links=(
            link(
                "policy/entropy/mean",
                "This one is of the policy that sampled, before the updates of the step; that one during them.",
                "这个是采样策略的熵（本步更新之前），那个是更新过程中的熵。",
                refuse=False,
            ),
            link(
                "policy/entropy_sum",
                "A token mean of entropies is not a per-sequence sum of sampled surprisals.",
                "熵的 token 均值不是逐序列的采样惊异之和。",
            ),
        ),
        traps=(
            trap(
                "",
                "critic/ is a historical prefix: this is the actor's entropy.",
                "critic/ 只是历史前缀：这是策略的熵。",
            ),
        ),
    ),
    Metric(
        "evaluation/reward_clip_fraction",
        "evaluation",
        Text("Clipped rewards", "被裁剪的奖励"),
        Text(
            "The share of sequences whose reward, after normalisation and before clamping, lies strictly "
            "outside the clip range. Missing without a reward clip.",
            "归一化之后、截断之前，奖励严格落在裁剪范围之外的序列占比。未设奖励裁剪时缺失。",
        ),
        "#(|unclipped reward| > reward_clip) / #sequences",
        "fraction",
        "sequences",
        "share",
        "mean",
        look=Text(
            "A few per cent at most; more means that the clip, not the reward, decides what is good.",
            "至多百分之几；再多就说明评判好坏的是裁剪而不是奖励。",
        ),
        next=Text(
            "reward/shaped/max and /min, the reward normalisation.",
            "看 reward/shaped/max、reward/shaped/min 与奖励归一化设置。",
        ),
        direction="lower",
        needs=("unclipped_rewards", "reward_clip"),
        part="data",
        names=(
            *ours("critic/reward_clip_frac", "roll"),
            *same("critic/reward_clip_frac", "roll"),
            *differs(
                "{tag}/critic/reward_clip_frac",
                "roll",
                by=difference(
                    "population sentinel",
                    "Of one domain; 0 when there is no clip.",
                    "只针对一个 domain；未设裁剪时为 0。",
                ),
            ),
        ),
    ),
)
