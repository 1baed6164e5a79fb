"""Divergence: how far an update, and the whole training, move the policy. Part of the policy family."""

from windsock.catalogue.conventions import CELLS_UNMASKED, LOSS_MODE, STEP_SIZE_NEXT
from windsock.catalogue.declare import difference, differs, link, ours, same, trap
from windsock.catalogue.spec import Band, Link, Metric, Text

_ESTIMATES = Text(
    "Near 0: a target of 0.01 to 0.02 is usual; from 0.1 on, steps are far too large.",
    "接近 0：通常以 0.01 到 0.02 为目标；到 0.1 以上说明步子迈得太大。",
)
_K_LINK = (
    "k1, k2, k3 and the exact KL are different estimates of a divergence; from their averages none can be "
    "turned into another.",
    "k1、k2、k3 与精确 KL 是对散度的不同估计，仅凭各自的均值无法互相换算。",
)


def _other_estimators(*ids: str) -> tuple[Link, ...]:
    return tuple(link(id, *_K_LINK) for id in ids)


_KL = (
    Metric(
        "policy/kl_k2",
        "policy",
        Text("Approximate KL (k2)", "近似 KL（k2）"),
        Text(
            "How far the update moved the policy from the one it started from: half the mean squared "
            "log-ratio. Never negative, slightly biased, low noise.",
            "一次更新使策略偏离起点多远：对数比平方均值的一半。恒不为负，略有偏差，噪声小。",
        ),
        "mean over valid tokens of ½ (lp − old)²",
        "nats/token",
        "tokens",
        "mean",
        "mean",
        look=_ESTIMATES,
        next=STEP_SIZE_NEXT,
        direction="band",
        healthy=Band(
            0.0,
            0.02,
            Text(
                "Spinning Up and Stable-Baselines3: target KL 0.01, stop at 1.5 times it; public veRL logs "
                "1e-5 to 8e-3",
                "Spinning Up 与 Stable-Baselines3：目标 KL 取 0.01，超过其 1.5 倍即停；公开的 veRL 日志在 1e-5 到 8e-3",
            ),
        ),
        needs=("log_probs", "old_log_probs", "response_mask"),
        part="policy",
        estimator="k2",
        crucial=True,
        names=(
            *ours("actor/approxkl", "roll"),
            *ours("policy/approxkl_avg", "trl"),
            *differs("actor/approxkl", "roll", by=LOSS_MODE),
            *differs("policy/approxkl_avg", "trl", by=CELLS_UNMASKED, era="ppo"),
            *same("ppo/policy/approxkl", "trl", era="ppo-0.11"),
        ),
        links=_other_estimators("policy/kl_k1", "policy/kl_k3", "policy/kl_exact", "policy/mismatch/kl_k3"),
        traps=(
            trap(
                "",
                "Exactly 0 is structural with one update per batch: then old and current are the same numbers.",
                "每批只更新一次时恒为 0 是结构使然：old 与当前是同一组数。",
            ),
        ),
    ),
    Metric(
        "policy/kl_k1",
        "policy",
        Text("Approximate KL (k1)", "近似 KL（k1）"),
        Text(
            "How far the update moved the policy: the mean of old minus current log-prob. Unbiased for "
            "KL(old‖current) but noisy, and it may be negative.",
            "一次更新使策略偏离起点多远：old 减当前对数概率的均值。对 KL(old‖current) 无偏，但噪声大，可能为负。",
        ),
        "mean over valid tokens of (old − lp)",
        "nats/token",
        "tokens",
        "mean",
        "mean",
        look=Text(
            "Small and mostly positive, below about 0.02. Slightly negative values are noise.",
            "很小且多为正，约在 0.02 以下；略负属于噪声。",
        ),
        next=STEP_SIZE_NEXT,
        direction="band",
        healthy=Band(
            -0.02,
            0.02,
            Text(
                "Spinning Up and Stable-Baselines3 target 0.01 to 0.02; public veRL logs reach 8e-3",
                "Spinning Up 与 Stable-Baselines3 以 0.01 到 0.02 为目标；公开的 veRL 日志最高 8e-3",
            ),
        ),
        needs=("log_probs", "old_log_probs", "response_mask"),
        part="policy",
        estimator="k1",
        crucial=True,
        names=(
            *ours("actor/policykl_k1", "roll"),
            *ours("actor/ppo_kl", "trinity"),
            *differs(
                "actor/ppo_kl",
                "trinity",
                "verl",
                by=difference(
                    "reducer clamp",
                    "Unweighted mean over micro-batches, with the log-ratio clamped to ±20; in loss mode "
                    "kl_cov it is the mean absolute difference.",
                    "对微批次不加权平均，对数比截断在 ±20；在 kl_cov 损失模式下是绝对差的均值。",
                    factor=1.0,
                ),
            ),
            *differs(
                "train/ppo_kl",
                "slime",
                by=difference(
                    "population",
                    "Mean per sample; logged per optimizer step on train/step.",
                    "按样本平均；以优化器步 train/step 为横轴。",
                    factor=1.0,
                ),
            ),
            *differs(
                "actor/policykl",
                "roll",
                by=difference(
                    "sign reducer",
                    "ROLL logs current − old: minus this estimate, reduced like a loss. Its documentation "
                    "calls it exact; it is one sample per token.",
                    "ROLL 记录的是 当前 − old：与本估计符号相反，并按损失方式归约。其文档称之为精确值，实际"
                    "上每个 token 只有一个样本。",
                    factor=-1.0,
                ),
            ),
            *same("ppo/policy/policykl", "trl", era="ppo-0.11"),
        ),
        links=_other_estimators("policy/kl_k2", "policy/kl_k3", "policy/kl_exact", "policy/mismatch/kl_k3"),
        traps=(
            trap(
                "verl",
                "veRL's own names for three different estimators all contain 'kl': actor/ppo_kl is against "
                "the old policy, actor/kl_loss against the reference.",
                "veRL 里多个不同的量都叫 kl：actor/ppo_kl 针对旧策略，actor/kl_loss 针对参考模型。",
            ),
        ),
    ),
    Metric(
        "policy/kl_k3",
        "policy",
        Text("Approximate KL (k3)", "近似 KL（k3）"),
        Text(
            "The k3 estimate of the KL between the old (behaviour) policy and the current one: never "
            "negative, unbiased, heavy-tailed.",
            "旧（行为）策略与当前策略之间 KL 的 k3 估计：恒不为负、无偏，但尾部很重。",
        ),
        "mean over valid tokens of (r − log r − 1), r = exp(lp − old)",
        "nats/token",
        "tokens",
        "mean",
        "mean",
        look=_ESTIMATES,
        next=STEP_SIZE_NEXT,
        direction="band",
        healthy=Band(
            0.0,
            0.02,
            Text(
                "the target of Spinning Up and Stable-Baselines3, 0.01 to 0.02",
                "Spinning Up 与 Stable-Baselines3 的目标值 0.01 到 0.02",
            ),
        ),
        needs=("log_probs", "old_log_probs", "response_mask"),
        part="policy",
        estimator="k3",
        names=(*same("kl", "trl", era="async-1.10"), *same("kl", "trl", era="async-1.16")),
        links=(
            *_other_estimators("policy/kl_k1", "policy/kl_k2", "policy/kl_exact"),
            link(
                "policy/kl_loss",
                "This one is against the behaviour policy, that one against the reference: different distances.",
                "这里是相对行为策略，那里是相对参考模型：两种不同的距离。",
            ),
        ),
        traps=(
            trap(
                "trl",
                "Under the same key 'kl', GRPO logs the KL to the reference and asynchronous GRPO the KL "
                "to the behaviour policy.",
                "同样叫 kl：GRPO 记录对参考模型的 KL，异步 GRPO 记录对行为策略的 KL。",
            ),
        ),
    ),
    Metric(
        "policy/kl_exact",
        "policy",
        Text("Exact KL", "精确 KL"),
        Text(
            "KL(old‖current) summed over the whole vocabulary at every token, from the logits of both "
            "policies: no sampling noise. "
            "Missing without both logits; the k1 estimate (actor/policykl_k1) then stands beside it.",
            "在每个 token 处对整个词表求和的 KL(old‖current)，由两个策略的 logits 直接算出，没有采样噪声。"
            "缺少任一 logits 时缺失，此时另有 k1 估计（actor/policykl_k1）可看。",
        ),
        "mean over valid tokens of Σ_v p_old(v) · (log p_old(v) − log p(v))",
        "nats/token",
        "tokens",
        "mean",
        "mean",
        look=Text(
            "Never negative, and small: 0.01 to 0.02 is a usual target per update.",
            "恒不为负且很小：通常以每次更新 0.01 到 0.02 为目标。",
        ),
        next=STEP_SIZE_NEXT,
        direction="band",
        healthy=Band(
            0.0,
            0.02,
            Text(
                "the target of Spinning Up and Stable-Baselines3, 0.01 to 0.02",
                "Spinning Up 与 Stable-Baselines3 的目标值 0.01 到 0.02",
            ),
        ),
        needs=("logits", "old_logits", "exact_kl?", "response_mask"),
        part="policy",
        estimator="exact",
        names=ours("actor/policykl", "roll"),
        links=_other_estimators("policy/kl_k1", "policy/kl_k2", "policy/kl_k3"),
        traps=(
            trap(
                "roll",
                "ROLL's documentation describes actor/policykl as this exact KL; its code logs the mean of "
                "current − old log-prob, that is minus the k1 estimate, normally negative.",
                "ROLL 文档把 actor/policykl 描述成精确 KL；其代码记录的却是 当前 − old 对数概率的均值，即负"
                "的 k1 估计，通常为负。",
            ),
        ),
    ),
)

_REFERENCE = (
    Metric(
        "policy/kl_loss",
        "policy",
        Text("KL to the reference (k3, as a loss)", "对参考模型的 KL（k3，作为损失）"),
        Text(
            "The k3 estimate of the KL between the current policy and the reference, reduced like the "
            "loss, unclamped, before its coefficient. Never negative.",
            "当前策略与参考模型之间 KL 的 k3 估计，按损失方式归约，不截断，未乘系数。恒不为负。",
        ),
        "reduce(exp(ref − lp) − (ref − lp) − 1)",
        "nats/token",
        "tokens",
        "mean",
        "mean",
        look=Text(
            "Starts at 0 and grows slowly: healthy public runs end between 0.02 and 0.17 nats per token. "
            "Above 1 the policy has left the reference.",
            "从 0 开始缓慢增大：健康的公开实验最终在每 token 0.02 到 0.17 nats。超过 1 说明策略已经离开参考模型。",
        ),
        next=Text(
            "reward/score/mean: does the KL buy reward? The KL coefficient and the learning rate. Above "
            "0.05 in the first two steps the reference is not the initial policy.",
            "看 reward/score/mean：付出的 KL 有没有换来奖励？再看 KL 系数与学习率。若头两步就超过 0.05，说"
            "明参考模型不是初始策略。",
        ),
        direction="band",
        healthy=Band(
            0.0,
            1.0,
            Text(
                "60 public training logs: healthy runs 0.02 to 0.17, trouble from 1 nat per token",
                "60 份公开训练日志：健康实验 0.02 到 0.17，每 token 超过 1 nat 即有问题",
            ),
        ),
        needs=("log_probs", "ref_log_probs", "response_mask", "loss"),
        part="policy",
        estimator="k3",
        crucial=True,
        names=(
            *ours("actor/kl_loss", "roll", "trinity"),
            *differs(
                "actor/kl_loss",
                "roll",
                by=difference(
                    "clamp",
                    "Clamped at 10 per token; logged even when it is not part of the loss, and 0 or "
                    "nonsense when there is no reference.",
                    "逐 token 截断在 10；即使未加入损失也会记录，没有参考模型时则为 0 或无意义。",
                ),
            ),
            *differs(
                "actor/kl_loss",
                "trinity",
                "verl",
                by=difference(
                    "clamp estimator reducer",
                    "The estimator follows the configured KL function (default low_var_kl: k3 clamped to "
                    "±10); its scale follows loss_agg_mode and the version.",
                    "估计方式取决于所配置的 KL 函数（默认 low_var_kl：k3 并截断在 ±10）；尺度取决于 "
                    "loss_agg_mode 与版本。",
                ),
            ),
            *differs(
                "train/kl_loss",
                "slime",
                by=difference(
                    "estimator population",
                    "The estimator follows kl_loss_type; mean per sample, per optimizer step.",
                    "估计方式取决于 kl_loss_type；按样本平均，以优化器步为横轴。",
                ),
            ),
            *differs(
                "kl",
                "trl",
                by=difference(
                    "reducer window",
                    "Always a token mean, whatever the loss reduction; only logged when beta is not 0.",
                    "无论损失如何归约，始终是 token 均值；仅在 beta 不为 0 时记录。",
                ),
                era="grpo",
            ),
            *differs(
                "ref_kl/mean",
                "prime-rl",
                by=difference(
                    "meaning",
                    "Only logged when distilling, against the teacher.",
                    "仅在蒸馏时记录，且是相对教师模型。",
                    refuse=True,
                ),
            ),
        ),
        links=(
            link(
                "policy/ref_kl_sum",
                "A per-sequence sum of k1 terms and a token mean of k3 terms differ in estimator and by "
                "the length of every sequence.",
                "前者是每条序列的 k1 求和，后者是 k3 的 token 均值：估计方式不同，还差一个逐序列的长度。",
            ),
            link(
                "policy/ref_kl_k1",
                "k1 and k3 are different estimators; averages of one do not give the other.",
                "k1 与 k3 是不同的估计，无法由均值互相换算。",
            ),
        ),
        traps=(
            trap(
                "",
                "k3 is heavy-tailed: one rare token can make a spike. Look at several steps.",
                "k3 尾部很重：个别罕见 token 就能造成尖峰，要看连续几步。",
            ),
            trap(
                "trl",
                "GRPO's beta is 0 by default: most runs have no kl at all.",
                "GRPO 的 beta 默认为 0：大多数实验根本没有 kl。",
            ),
        ),
    ),
    Metric(
        "policy/ref_kl_k1",
        "policy",
        Text("KL to the reference per token (k1)", "对参考模型的每 token KL（k1）"),
        Text(
            "The k1 estimate of the KL between the sampled policy and the reference, per token. Noisy; it "
            "may be slightly negative.",
            "采样策略与参考模型之间每 token KL 的 k1 估计。噪声大，可能略为负。",
        ),
        "mean over valid tokens of (old − ref)",
        "nats/token",
        "tokens",
        "mean",
        "mean",
        look=Text(
            "Starts at 0 and grows slowly. Below −0.05 for several steps, the samples do not come from the "
            "policy that is scored.",
            "从 0 开始缓慢增大。若连续几步低于 −0.05，说明样本并非出自被打分的策略。",
        ),
        next=Text(
            "Sampling settings (top-p, top-k, temperature), padding, reward/kl_coef.",
            "检查采样设置（top-p、top-k、温度）、填充方式与 reward/kl_coef。",
        ),
        direction="band",
        needs=("old_log_probs", "ref_log_probs", "response_mask"),
        part="data",
        estimator="k1",
        crucial=True,
        names=(
            *differs(
                "kl",
                "trl",
                by=difference("window", "Logged once per generation batch.", "每个生成批次记录一次。"),
                era="rloo",
            ),
            *differs(
                "critic/kl",
                "roll",
                by=difference(
                    "reducer",
                    "Row means of the configured KL penalty, then the mean over rows; nonsense when old "
                    "log-probs are not recomputed.",
                    "按所配置的 KL 惩罚先逐行平均、再对行平均；若未重算 old 对数概率则毫无意义。",
                ),
            ),
            *differs(
                "actor/reward_kl_penalty",
                "verl",
                by=difference(
                    "reducer estimator",
                    "Token mean per sequence, then over sequences; the estimator follows the configuration "
                    "(default k1).",
                    "先序列内对 token 平均，再对序列平均；估计方式由配置决定（默认 k1）。",
                ),
            ),
            *differs(
                "advantage/kl",
                "trinity",
                by=difference(
                    "estimator", "The estimator follows the configured KL function.", "估计方式取决于所配置的 KL 函数。"
                ),
            ),
        ),
        links=(
            link(
                "policy/ref_kl_sum",
                "A token mean and a per-sequence sum are convertible only with the length of every sequence.",
                "token 均值与逐序列之和，只有知道每条序列的长度才能换算。",
            ),
            link(
                "policy/kl_loss",
                "k1 and k3 are different estimators; averages of one do not give the other.",
                "k1 与 k3 是不同的估计，无法由均值互相换算。",
            ),
        ),
    ),
    Metric(
        "policy/ref_kl_sum",
        "policy",
        Text("KL to the reference per sequence (k1)", "对参考模型的每序列 KL（k1）"),
        Text(
            "How far the sampled policy is from the reference, in nats per whole sequence: the log-ratio "
            "summed over the tokens of each response. It grows with length.",
            "采样策略离参考模型有多远，以整条序列的 nats 计：把每条回复所有 token 的对数比求和。长度越长它越大。",
        ),
        "mean over sequences of Σ_t (old − ref)",
        "nats/sequence",
        "sequences",
        "mean",
        "mean",
        look=Text(
            "Positive and bounded: 0 to 10 is the classic band, 5 to 30 occurs with long answers. Clearly "
            "negative (below −1) means sampling and scoring disagree.",
            "为正且有界：经典区间是 0 到 10，长回复时 5 到 30 也常见。明显为负（低于 −1）说明采样与打分不一致。",
        ),
        next=Text(
            "reward/score/mean (what does the KL buy?), reward/kl_coef; when negative: top-p, top-k, "
            "min_length, padding, temperature.",
            "看 reward/score/mean（KL 换来了什么？）与 reward/kl_coef；为负时检查 top-p、top-k、"
            "min_length、填充与温度。",
        ),
        direction="band",
        healthy=Band(
            0.0,
            10.0,
            Text(
                "TRL training FAQ: 0 to 10; old TRL warned below −1 and aimed at 6",
                "TRL 训练 FAQ：0 到 10；旧版 TRL 低于 −1 时告警，目标值为 6",
            ),
        ),
        needs=("old_log_probs", "ref_log_probs", "response_mask"),
        part="data",
        estimator="k1",
        crucial=True,
        names=(
            *ours("objective/kl", "trl"),
            *differs(
                "objective/kl",
                "trl",
                by=difference(
                    "estimator",
                    "k1 by default, k3 when configured; log-probs are those of the tempered policy.",
                    "默认 k1，可配置为 k3；对数概率取自经温度缩放的策略。",
                ),
                era="ppo",
            ),
            *same("objective/kl", "trl", era="ppo-0.11"),
            *differs(
                "objective/kl",
                "trl",
                by=difference(
                    "mask",
                    "Online DPO sums over the padded width without a mask: padding is in the number.",
                    "Online DPO 在填充宽度上求和且不加掩码：填充位混在数值里。",
                    refuse=True,
                ),
                era="online-dpo",
            ),
        ),
        links=(
            link(
                "policy/kl_loss",
                "A per-sequence sum of k1 terms cannot be turned into a token mean of k3 terms: other "
                "estimator, and the lengths are gone.",
                "逐序列的 k1 求和无法换算成 k3 的 token 均值：估计方式不同，长度信息也已丢失。",
            ),
            link(
                "policy/ref_kl_k1",
                "A per-sequence sum becomes a token mean only with the length of every sequence.",
                "逐序列之和只有知道每条序列的长度才能换成 token 均值。",
            ),
        ),
        traps=(
            trap(
                "",
                "Positive does not mean bounded: staying above 0 says nothing about distance.",
                "为正不代表有界：大于 0 并不说明离得近。",
            ),
            trap(
                "", "Near 0 it is noisy: −0.2 for a few steps is harmless.", "在 0 附近噪声大：连续几步 −0.2 并无大碍。"
            ),
            trap(
                "trl",
                "GRPO's kl is per token: never compare it with objective/kl.",
                "GRPO 的 kl 是每 token 的：绝不能与 objective/kl 相比。",
            ),
        ),
    ),
    Metric(
        "policy/kl_loss_coef",
        "policy",
        Text("KL loss coefficient", "KL 损失系数"),
        Text("The weight of the KL term in the policy loss.", "策略损失中 KL 项的权重。"),
        "kl_loss_coef",
        "1",
        "steps",
        "last",
        "last",
        look=Text("As configured.", "与配置一致。"),
        next=Text("policy/kl_loss.", "看 policy/kl_loss。"),
        needs=("kl_loss_coef",),
        names=same("actor/kl_coef", "verl", "trinity"),
        links=(
            link(
                "reward/kl_coef",
                "A weight in the loss is not the weight β of a KL penalty in the reward.",
                "损失中的权重不是奖励中 KL 惩罚的 β。",
            ),
        ),
    ),
)

METRICS: tuple[Metric, ...] = (*_KL, *_REFERENCE)
