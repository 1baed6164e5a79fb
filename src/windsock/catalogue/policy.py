"""Policy: how random it still is and how it is optimised, with its ratio, divergence and mismatch from next door."""

from windsock.catalogue.clipping import METRICS as CLIPPING
from windsock.catalogue.conventions import MICRO_BATCHES, NEXT_RATE, PER_SAMPLE
from windsock.catalogue.declare import difference, differs, link, ours, same, trap
from windsock.catalogue.divergence import METRICS as DIVERGENCE
from windsock.catalogue.mismatch import METRICS as MISMATCH
from windsock.catalogue.spec import Metric, Text

_RATE = Metric(
    "policy/lr",
    "policy",
    Text("Policy learning rate", "策略学习率"),
    Text(
        "The learning rate that the policy's last update of the step used.", "本步内策略最后一次更新实际使用的学习率。"
    ),
    "lr of parameter group 0 at the last policy update of the step",
    "1",
    "updates",
    "last",
    "none",
    look=Text(
        "The schedule you asked for: typically about 1e-6 for full fine-tuning, 5e-6 to 2e-4 with LoRA. "
        "1e-3 destroys a policy.",
        "与所设调度一致：全参微调一般在 1e-6 左右，LoRA 在 5e-6 到 2e-4。1e-3 会毁掉策略。",
    ),
    next=Text(
        "policy/grad_norm, policy/kl_k2. A reward that does not move: is the rate still warming up, or already 0?",
        "看 policy/grad_norm 与 policy/kl_k2。奖励不动时：学习率是还在预热，还是已经降到 0？",
    ),
    names=(
        *ours("actor/lr", "roll", "trinity"),
        *ours("lr", "trl"),
        *differs("actor/lr", "roll", by=NEXT_RATE),
        *same("actor/lr", "trinity"),
        *same("actor/lr", "verl", era="legacy"),
        *differs("actor/lr", "verl", by=NEXT_RATE, era="engine"),
        *same("lr", "trl", era="ppo"),
        *same("ppo/learning_rate", "trl", era="ppo-0.11"),
        *differs("learning_rate", "trl", by=NEXT_RATE),
        *same("train/lr-pg_{group}", "slime"),
        *same("optim/lr", "prime-rl"),
    ),
)

_RANDOMNESS = (
    Metric(
        "policy/entropy/mean",
        "policy",
        Text("Entropy of the current policy", "当前策略的熵"),
        Text(
            "How random the policy still is during its updates: the full-vocabulary entropy, mean over tokens.",
            "更新过程中策略还有多随机：在整个词表上计算的熵，对 token 求平均。",
        ),
        "mean over valid tokens of −Σ_v p(v) log p(v)",
        "nats/token",
        "tokens",
        "mean",
        "mean",
        look=Text(
            "Falls while the reward rises; that trade is normal. Levels differ between models (0.05 to 1.5 "
            "nats in healthy runs): judge against the run's own start. Below 5% of it, exploration is "
            "gone; three times it, the policy turns to noise.",
            "奖励上升时它会下降，这是正常的交换。不同模型水平不同（健康实验 0.05 到 1.5 nats），应与自身起"
            "点比。降到起点的 5% 以下，探索已经消失；涨到三倍，策略正在变成噪声。",
        ),
        next=Text(
            "reward/score/mean, policy/grad_norm (both flat: collapse), the high side of the clip range, temperature.",
            "看 reward/score/mean 与 policy/grad_norm（两者都不动即为坍缩）、上侧裁剪范围与采样温度。",
        ),
        needs=("entropy|logits", "response_mask"),
        part="policy",
        estimator="exact",
        names=(
            *ours("policy/entropy_avg", "trl"),
            *ours("actor/entropy", "trinity"),
            *differs(
                "policy/entropy_avg",
                "trl",
                by=difference(
                    "mask reducer",
                    "Padding positions are in the mean, of tempered logits; with num_mini_batches = m it "
                    "is 1/m of the true value.",
                    "均值包含填充位置，且基于温度缩放后的 logits；num_mini_batches = m 时只有真实值的 1/m。",
                ),
                era="ppo",
            ),
            *same("ppo/policy/entropy", "trl", era="ppo-0.11"),
            *differs(
                "entropy",
                "trl",
                by=difference(
                    "window",
                    "Of tempered logits, averaged over the logging window.",
                    "基于温度缩放后的 logits，并对日志窗口取平均。",
                ),
            ),
            *same("actor/entropy", "trinity"),
            *differs(
                "actor/entropy",
                "verl",
                by=difference(
                    "moment",
                    "Taken when old log-probs are computed, before the update; where the update computes "
                    "entropy, that one overwrites it.",
                    "在计算 old 对数概率时（更新之前）得到；若更新中也计算熵，则会被其覆盖。",
                ),
            ),
            *differs(
                "actor/entropy_loss",
                "verl",
                "trinity",
                by=difference(
                    "reducer",
                    "During the update, reduced with loss_agg_mode.",
                    "在更新过程中计算，按 loss_agg_mode 归约。",
                ),
            ),
            *differs("train/entropy_loss", "slime", by=PER_SAMPLE),
            *same("entropy/all/mean", "prime-rl"),
        ),
        links=(
            link(
                "evaluation/entropy/mean",
                "That one is of the policy that sampled, before the updates of the step; this one during them.",
                "那个是采样策略的熵（本步更新之前），这个是更新过程中的熵。",
                refuse=False,
            ),
            link(
                "policy/entropy_sum",
                "A sampled sum per sequence grows with length; a token mean does not.",
                "按序列求和的采样估计随长度增长，token 均值则不会。",
            ),
        ),
        traps=(
            trap(
                "",
                "Exactly constant or exactly 0 from the start is a dead sensor, not a collapse.",
                "从一开始就恒定或恒为 0，那是没有真正计算，而不是坍缩。",
            ),
        ),
    ),
    Metric(
        "policy/entropy_sum",
        "policy",
        Text("Sampled entropy per sequence", "每序列的采样熵"),
        Text(
            "Minus the log-prob of the sampled tokens, summed over each response: nats per sequence. It "
            "falls when answers get shorter, whatever the policy does.",
            "已采样 token 的负对数概率，在每条回复内求和：单位是每序列 nats。只要回复变短它就下降，与策略是"
            "否变确定无关。",
        ),
        "mean over sequences of Σ_t (−old)",
        "nats/sequence",
        "sequences",
        "mean",
        "mean",
        look=Text(
            "No band: divide by the response length in your head, or use policy/entropy/mean.",
            "没有区间可言：请心算除以回复长度，或直接看 policy/entropy/mean。",
        ),
        next=Text(
            "policy/entropy/mean, tokens/response_length/mean.",
            "看 policy/entropy/mean 与 tokens/response_length/mean。",
        ),
        needs=("old_log_probs", "response_mask"),
        part="data",
        estimator="sampled",
        names=(
            *ours("objective/entropy", "trl"),
            *differs(
                "objective/entropy",
                "trl",
                by=difference(
                    "mask",
                    "Before 1.12 every padding position adds −1 nat, so the number may even be negative.",
                    "1.12 之前每个填充位会加上 −1 nat，数值甚至可能为负。",
                ),
                era="ppo",
            ),
            *differs(
                "objective/entropy",
                "trl",
                by=difference(
                    "mask",
                    "Online DPO sums over the padded width without a mask.",
                    "Online DPO 在填充宽度上求和且不加掩码。",
                    refuse=True,
                ),
                era="online-dpo",
            ),
        ),
        links=(
            link(
                "policy/entropy/mean",
                "A per-sequence sum of sampled surprisals is not a token mean of entropies; only the "
                "lengths of all sequences would relate them.",
                "逐序列的采样惊异之和不是熵的 token 均值；除非知道所有序列的长度，否则无从换算。",
            ),
            link(
                "evaluation/entropy/mean",
                "A per-sequence sum of sampled surprisals is not a token mean of entropies.",
                "逐序列的采样惊异之和不是熵的 token 均值。",
            ),
        ),
        traps=(
            trap(
                "trl",
                "In TRL the same word names two numbers: objective/entropy (this) and policy/entropy_avg (per token).",
                "TRL 里同一个词指两个数：objective/entropy（即本项）与 policy/entropy_avg（每 token）。",
            ),
        ),
    ),
)

_OPTIMISER = (
    Metric(
        "policy/loss/total",
        "policy",
        Text("Total policy loss", "策略总损失"),
        Text(
            "What is differentiated: the (weighted) policy-gradient loss, plus the KL loss and minus the "
            "entropy bonus where they are in use.",
            "真正被求导的量：（加权）策略梯度损失，加上 KL 损失、减去熵奖励（启用时）。",
        ),
        "pg_loss + kl_loss_coef · kl_loss − entropy_coef · entropy",
        "1",
        "sequences",
        "mean",
        "mean",
        look=Text(
            "Its level and trend mean little: advantages are centred, so it hovers around 0. NaN or a jump "
            "by orders of magnitude is trouble.",
            "水平与趋势意义不大：优势经过中心化，它会在 0 附近徘徊。出现 NaN 或数量级的跳变才是问题。",
        ),
        next=Text(
            "policy/grad_norm, which says more; reward/score/mean for progress.",
            "policy/grad_norm 更说明问题；看进展则用 reward/score/mean。",
        ),
        needs=(
            "log_probs",
            "old_log_probs",
            "advantages",
            "response_mask",
            "clip",
            "loss",
            "weights?",
            "ref_log_probs?",
            "entropy?",
        ),
        part="policy",
        names=(
            *ours("actor/total_loss", "roll"),
            *differs(
                "actor/total_loss",
                "roll",
                by=difference(
                    "reducer",
                    "Reduced with loss_agg_mode; the RLVR pipeline multiplies it by rl_loss_coef.",
                    "按 loss_agg_mode 归约；RLVR 流水线还会乘以 rl_loss_coef。",
                ),
            ),
            *same("ppo/loss/total", "trl", era="ppo-0.11"),
            *differs(
                "loss",
                "trl",
                by=difference(
                    "window sentinel",
                    "Averaged over the logging window; a NaN step is replaced by the running average "
                    "(logging_nan_inf_filter).",
                    "对日志窗口取平均；出现 NaN 的步会被滑动平均替换（logging_nan_inf_filter）。",
                ),
            ),
            *differs("actor/final_loss", "trinity", by=MICRO_BATCHES),
            *differs("actor/loss", "verl", by=difference("reducer", "A sum over micro-batches.", "是对微批次求和。")),
            *differs("train/loss", "slime", by=PER_SAMPLE),
            *differs(
                "loss/mean",
                "prime-rl",
                by=difference(
                    "population",
                    "Mean over the tokens of the trainer's batch, of prime-rl's own loss.",
                    "对训练批次 token 求平均，损失形式为 prime-rl 自有。",
                ),
            ),
        ),
        links=(
            link(
                "policy/loss/pg",
                "The total contains the KL and entropy terms; the policy-gradient loss does not.",
                "总损失含 KL 与熵项，策略梯度损失不含。",
            ),
        ),
        traps=(
            trap(
                "trl",
                "GRPO's loss starts at 0 and stays near it by construction: that is not a fault. A NaN "
                "loss leaves its only trace in grad_norm.",
                "GRPO 的损失按构造从 0 开始并停在附近：不是故障。NaN 损失只会在 grad_norm 里留下痕迹。",
            ),
        ),
    ),
    Metric(
        "policy/grad_norm",
        "policy",
        Text("Policy gradient norm", "策略梯度范数"),
        Text(
            "The norm of the policy's gradient before clipping, as the caller logs it.",
            "策略裁剪前的梯度范数，由调用方记录。",
        ),
        "‖∇ total loss‖₂ before clipping",
        "1",
        "updates",
        "mean",
        "none",
        look=Text(
            "Steady at its own level: healthy runs span 0.03 to 1.7e4. Exactly 0 is a step without signal; "
            "three spikes above five times the median within 50 steps are a warning; NaN ends the run.",
            "在自身水平附近平稳：健康实验从 0.03 到 1.7e4 都有。恰好为 0 是没有信号的一步；50 步内三次超过"
            "中位数 5 倍是警告；NaN 意味着训练已经坏掉。",
        ),
        next=Text(
            "reward/zero_std_groups when it is 0; policy/ratio/max, "
            "policy/mismatch/log_prob_difference/mean and the learning rate when it spikes or climbs.",
            "为 0 时看 reward/zero_std_groups；尖峰或持续上升时看 policy/ratio/max、"
            "policy/mismatch/log_prob_difference/mean 与学习率。",
        ),
        names=(
            *ours("actor/grad_norm", "trinity"),
            *same("actor/grad_norm", "trinity", "verl"),
            *differs("actor_train/grad_norm", "roll", by=MICRO_BATCHES),
            *differs(
                "grad_norm",
                "trl",
                by=difference(
                    "window", "The value of the last step of the logging window.", "取日志窗口最后一步的值。"
                ),
            ),
            *same("train/grad_norm", "slime"),
            *same("optim/grad_norm", "prime-rl"),
        ),
        traps=(
            trap(
                "",
                "A curve that is flat at 1.0 is the norm after clipping, which tells nothing.",
                "一条停在 1.0 的平线是裁剪之后的范数，毫无信息。",
            ),
            trap(
                "verl",
                "A non-finite norm skips the optimizer step and is still logged.",
                "范数非有限时会跳过优化器更新，但仍会记录。",
            ),
        ),
    ),
    Metric(
        "policy/aux_loss",
        "policy",
        Text("Auxiliary loss of experts", "专家负载均衡损失"),
        Text("The load-balancing loss of a mixture-of-experts model.", "混合专家模型的负载均衡损失。"),
        "mean over micro-batches of the auxiliary loss",
        "1",
        "updates",
        "mean",
        "none",
        look=Text(
            "Steady or slowly falling; a rise means that experts are used unevenly.",
            "平稳或缓慢下降；上升说明专家使用不均。",
        ),
        next=Text(
            "policy/mismatch/log_prob_difference/mean: routing differs between engines.",
            "看 policy/mismatch/log_prob_difference/mean：两套引擎的路由可能不同。",
        ),
        names=same("aux_loss", "trl"),
    ),
    Metric(
        "policy/entropy_coef",
        "policy",
        Text("Entropy coefficient", "熵系数"),
        Text("The weight of the entropy bonus in the loss.", "损失中熵奖励的权重。"),
        "entropy_coef",
        "1",
        "steps",
        "last",
        "last",
        look=Text(
            "As configured, or following the entropy target when adaptive.", "与配置一致；自适应时随目标熵变化。"
        ),
        next=Text("policy/entropy/mean.", "看 policy/entropy/mean。"),
        needs=("entropy_coef",),
        names=same("entropy_coef", "trl", era="grpo"),
    ),
)

METRICS: tuple[Metric, ...] = (_RATE, *CLIPPING, *DIVERGENCE, *_RANDOMNESS, *_OPTIMISER, *MISMATCH)
