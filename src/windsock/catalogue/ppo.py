"""PPO: the policy-gradient loss and the bookkeeping of the samples that it is made of."""

from windsock.catalogue.declare import difference, differs, link, ours, same, spread, trap
from windsock.catalogue.spec import Metric, Text

_LOSS_LOOK = Text(
    "Hovers around 0; level and trend mean little, since advantages are centred. NaN or a jump by orders "
    "of magnitude is trouble.",
    "在 0 附近徘徊；优势经过中心化，其水平与趋势意义不大。出现 NaN 或数量级的跳变才是问题。",
)
_LOSS_NEXT = Text(
    "reward/score/mean for progress, policy/grad_norm and policy/clip_fraction for stability.",
    "看进展用 reward/score/mean，看稳定性用 policy/grad_norm 与 policy/clip_fraction。",
)
_PER_STEP = difference(
    "denominator",
    "An average per optimizer step, i.e. the mini-batch, not the rollout batch.",
    "是每个优化器步的平均，即小批次大小，而不是整个采样批次。",
)

METRICS: tuple[Metric, ...] = (
    Metric(
        "policy/loss/pg",
        "ppo",
        Text("Policy-gradient loss", "策略梯度损失"),
        Text(
            "The clipped surrogate loss of PPO and GRPO, without sample weights, KL or entropy terms.",
            "PPO 与 GRPO 的裁剪替代损失，不含样本权重、KL 与熵项。",
        ),
        "reduce(−min(r · A, clip(r) · A)); with dual clip bounded for A < 0",
        "1",
        "tokens",
        "mean",
        "mean",
        look=_LOSS_LOOK,
        next=_LOSS_NEXT,
        needs=("log_probs", "old_log_probs", "advantages", "response_mask", "clip", "loss", "dual_clip?"),
        part="policy",
        names=(
            *ours("actor/pg_loss", "roll", "trinity"),
            *ours("loss/policy_avg", "trl"),
            *differs(
                "actor/pg_loss",
                "roll",
                by=difference(
                    "reducer",
                    "Reduced with loss_agg_mode; multiplied by the train-inference weight when that is on.",
                    "按 loss_agg_mode 归约；启用训练–推理校正时还会乘上该权重。",
                ),
            ),
            *differs(
                "loss/policy_avg",
                "trl",
                by=difference(
                    "reducer",
                    "Mean over micro-batch cells that are never all written: with num_mini_batches = m it "
                    "is 1/m of the true value.",
                    "对并未写满的微批次格子求平均：num_mini_batches = m 时只有真实值的 1/m。",
                ),
                era="ppo",
            ),
            *same("ppo/loss/policy", "trl", era="ppo-0.11"),
            *differs(
                "policy_loss",
                "trl",
                by=difference(
                    "reducer window",
                    "Only logged with an entropy bonus; mean of rank losses.",
                    "仅在启用熵奖励时记录；是各 rank 损失的平均。",
                ),
                era="grpo",
            ),
            *differs(
                "actor/pg_loss",
                "trinity",
                by=difference(
                    "reducer",
                    "Unweighted mean over micro-batches; seq-mean-token-sum-norm lacks the division by sequences.",
                    "对微批次不加权平均；seq-mean-token-sum-norm 未除以序列数。",
                ),
            ),
            *differs(
                "actor/pg_loss",
                "verl",
                by=difference(
                    "reducer",
                    "Three scales under one name: between December 2025 and April 2026 the legacy trainer "
                    "summed over mini-batches and epochs, before that it was too small by the number of "
                    "micro-batches.",
                    "同名三种尺度：2025 年 12 月到 2026 年 4 月间旧训练器对小批次和轮数累加，更早则小了微批次数倍。",
                ),
            ),
            *differs(
                "train/pg_loss",
                "slime",
                by=difference(
                    "population",
                    "Mean per sample (per token when configured); logged per optimizer step on train/step.",
                    "按样本平均（可配置为按 token）；以优化器步 train/step 为横轴。",
                ),
            ),
        ),
        links=(
            link(
                "policy/loss/total",
                "prime-rl and others log only the total loss, which contains more terms.",
                "有些框架（如 prime-rl）只记录总损失，其中还含其他项。",
            ),
        ),
        traps=(
            trap(
                "",
                "With different loss reductions (token-mean, seq-mean-token-sum, …) the numbers of two "
                "runs are not comparable.",
                "损失归约方式不同（token-mean、seq-mean-token-sum 等）的两个实验不可比较。",
            ),
        ),
    ),
    Metric(
        "policy/loss/weighted_pg",
        "ppo",
        Text("Weighted policy-gradient loss", "加权策略梯度损失"),
        Text(
            "The policy-gradient loss with each sequence's loss times its weight; the denominator is the "
            "unweighted one.",
            "每条序列的损失乘以样本权重后的策略梯度损失；分母与不加权时相同。",
        ),
        "reduce(weight · −min(r · A, clip(r) · A)), not divided by Σ weights",
        "1",
        "tokens",
        "mean",
        "mean",
        look=Text("Close to policy/loss/pg while the weights average 1.", "权重均值为 1 时应接近 policy/loss/pg。"),
        next=Text("ppo/sample_weights/*, policy/loss/pg.", "看 ppo/sample_weights/* 与 policy/loss/pg。"),
        needs=("log_probs", "old_log_probs", "advantages", "response_mask", "weights", "clip", "loss", "dual_clip?"),
        part="policy",
        names=(*ours("actor/weighted_pg_loss", "roll"), *same("actor/weighted_pg_loss", "roll")),
    ),
    Metric(
        "ppo/valid_samples",
        "ppo",
        Text("Valid samples", "有效样本数"),
        Text(
            "How many sequences have at least one token left after filtering.", "过滤之后至少还剩一个 token 的序列数。"
        ),
        "#(sequences with a token left by keep)",
        "count",
        "sequences",
        "sum",
        "sum",
        look=Text(
            "Close to ppo/total_samples; far below it the filters eat the batch.",
            "接近 ppo/total_samples；远低于它说明过滤吃掉了批次。",
        ),
        next=Text(
            "ppo/valid_sample_ratio, which filter removes them.",
            "看 ppo/valid_sample_ratio，并查明是哪个过滤器剔除的。",
        ),
        needs=("response_mask", "keep?"),
        part="data",
        names=(*ours("actor/valid_samples", "roll"), *differs("actor/valid_samples", "roll", by=_PER_STEP)),
    ),
    Metric(
        "ppo/total_samples",
        "ppo",
        Text("Samples", "样本数"),
        Text("How many sequences the batch of the step holds.", "本步批次中的序列总数。"),
        "#sequences",
        "count",
        "sequences",
        "sum",
        "sum",
        look=Text("The configured batch size.", "等于所配置的批大小。"),
        next=Text("ppo/valid_sample_ratio.", "看 ppo/valid_sample_ratio。"),
        needs=("response_mask",),
        part="data",
        names=(
            *ours("actor/total_samples", "roll"),
            *differs("actor/total_samples", "roll", by=_PER_STEP),
            *differs(
                "batch/samples_per_step",
                "trl",
                by=difference("window", "Averaged over the logging window.", "对日志窗口取平均。"),
                era="async-1.16",
            ),
        ),
    ),
    Metric(
        "ppo/valid_sample_ratio",
        "ppo",
        Text("Share of valid samples", "有效样本占比"),
        Text("The share of sequences that survive filtering.", "经过过滤后保留下来的序列占比。"),
        "valid samples / total samples",
        "fraction",
        "sequences",
        "quotient",
        "ratio",
        look=Text(
            "Near 1 and steady; a fall wastes compute and biases what is learnt.",
            "接近 1 且平稳；下降既浪费算力，也会让学习内容有偏。",
        ),
        next=Text(
            "The filters in use, tokens/response_truncated, reward/zero_std_groups.",
            "看启用了哪些过滤器、tokens/response_truncated 与 reward/zero_std_groups。",
        ),
        direction="higher",
        needs=("response_mask", "keep?"),
        part="data",
        names=(
            *ours("actor/valid_sample_ratio", "roll"),
            *differs(
                "actor/valid_sample_ratio",
                "roll",
                by=difference(
                    "denominator",
                    "Divided by rows with a non-empty response, not by all rows; the PG worker uses local rows.",
                    "分母是回复非空的行数而非总行数；PG worker 用的是本地行数。",
                ),
            ),
        ),
    ),
    *spread(
        "ppo/sample_weights",
        "ppo",
        Text("Sample weights", "样本权重"),
        Text("The weights with which sequences enter the weighted loss.", "各序列进入加权损失时的权重。"),
        "{stat} over sequences of weight",
        unit="1",
        population="sequences",
        needs=("weights",),
        part="data",
        look=Text(
            "A mean near 1; a wide spread lets a few sequences dominate.", "均值接近 1；差异过大会让少数序列主导。"
        ),
        next=Text(
            "policy/loss/weighted_pg against policy/loss/pg.", "对照 policy/loss/weighted_pg 与 policy/loss/pg。"
        ),
        names=(
            *ours("actor/sample_weights_{stat}", "roll"),
            *differs(
                "actor/sample_weights_{stat}",
                "roll",
                by=difference(
                    "population",
                    "Renormalised within each micro-batch: the mean is always about 1, and with "
                    "micro-batches of one row all three are exactly 1.",
                    "在每个微批次内重新归一化：均值恒约为 1；微批次只有一行时三者都恰为 1。",
                ),
            ),
        ),
        traps=(
            trap(
                "roll",
                "With a micro-batch size of 1 the weighting has no effect at all.",
                "微批次大小为 1 时，加权完全不起作用。",
            ),
        ),
    ),
)
