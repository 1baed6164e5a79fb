"""Value: how well the critic learns to predict returns. These exist only where a critic is trained."""

from windsock.catalogue.conventions import CELLS_LOOSE, MICRO_BATCHES, NEXT_RATE, VERL_LOSS
from windsock.catalogue.declare import difference, differs, link, ours, same, spread, trap
from windsock.catalogue.spec import Band, Metric, Text

_SEQUENCE_MEAN = difference(
    "reducer population",
    "Token mean within each sequence, then the mean over rows of each micro-batch (empty rows count as 0), "
    "then an "
    "unweighted mean over micro-batches and ranks.",
    "先在每条序列内对 token 求平均，再对微批次内各行求平均（空行按 0 计），最后对微批次和 rank 不加权平均。",
)
_MSE_WITHOUT_CLIP = difference(
    "meaning reducer",
    "Token mean per sequence, then mean over rows. Without value_clip (the default) ROLL stores the mean "
    "squared "
    "error here, so the number is no fraction at all.",
    "先序列内、后按行平均。未设 value_clip（默认）时，ROLL 在此写入的是均方误差，根本不是比例。",
    refuse=True,
)
_BESSEL = difference(
    "ddof denominator",
    "Variances with ddof 1 and 1e-5 added to the denominator; with many tokens the difference is negligible.",
    "方差用 ddof 1，分母另加 1e-5；token 多时差别可忽略。",
    factor=1.0,
)

METRICS: tuple[Metric, ...] = (
    Metric(
        "value/lr",
        "value",
        Text("Critic learning rate", "价值网络学习率"),
        Text(
            "The learning rate that the critic's last update of the step used.",
            "本步内价值网络最后一次更新实际使用的学习率。",
        ),
        "lr of parameter group 0 at the last critic update of the step",
        "1",
        "updates",
        "last",
        "none",
        look=Text(
            "The schedule you asked for. Critics usually learn with a larger rate than actors, by a factor "
            "of about ten.",
            "与所设的调度一致。价值网络的学习率通常比策略大一个数量级左右。",
        ),
        next=Text(
            "value/loss, value/explained_variance and value/grad_norm.",
            "看 value/loss、value/explained_variance 与 value/grad_norm。",
        ),
        names=(
            *ours("critic/lr", "roll", "trinity"),
            *differs("critic/lr", "roll", by=NEXT_RATE),
            *same("critic/lr", "trinity"),
            *same("critic/lr", "verl", era="legacy"),
            *differs("critic/lr", "verl", by=NEXT_RATE, era="engine"),
        ),
    ),
    Metric(
        "value/loss",
        "value",
        Text("Value loss", "价值损失"),
        Text(
            "Half the squared error of the critic against the returns; with value clipping, the larger of "
            "the clipped "
            "and the unclipped error at every token. Before any coefficient.",
            "价值网络对回报的平方误差的一半；启用价值裁剪时，逐 token 取裁剪与未裁剪误差中较大的一个。未乘任何系数。",
        ),
        "½ · reduce(max((V − R)², (clip(V, V0 ± c) − R)²)); without clip ½ · reduce((V − R)²)",
        "reward²",
        "tokens",
        "mean",
        "mean",
        look=Text(
            "Falls during critic warm-up, often by ten times or more in the first 20 steps, then moves "
            "with the reward's scale. "
            "A spike above ten times its running median, NaN, or a collapse to exactly 0 is trouble.",
            "在价值网络预热期会下降（前 20 步降一个数量级并不少见），之后随奖励尺度起伏。突然超过滑动中位数"
            "的 10 倍、出现 NaN，"
            "或恰好塌到 0，都是问题。",
        ),
        next=Text(
            "value/explained_variance, value/grad_norm, reward outliers (reward/shaped/max), the critic's "
            "learning rate.",
            "看 value/explained_variance、value/grad_norm，奖励离群值（reward/shaped/max）以及价值网络的学习率。",
        ),
        direction="lower",
        needs=("values", "returns", "response_mask", "old_values?", "value_clip?"),
        part="value",
        crucial=True,
        names=(
            *ours("critic/loss", "roll"),
            *ours("loss/value_avg", "trl"),
            *ours("critic/vf_loss", "trinity"),
            *differs("critic/loss", "roll", by=_SEQUENCE_MEAN),
            *differs("loss/value_avg", "trl", by=CELLS_LOOSE, era="ppo"),
            *same("ppo/loss/value", "trl", era="ppo-0.11"),
            *differs("critic/vf_loss", "trinity", by=MICRO_BATCHES),
            *differs("critic/vf_loss", "verl", by=VERL_LOSS),
            *differs(
                "train/critic-value_loss",
                "slime",
                by=difference(
                    "population",
                    "Mean per sample, not per token; logged per optimizer step on train/step.",
                    "按样本而非按 token 平均；以优化器步（train/step）为横轴。",
                ),
            ),
        ),
        traps=(
            trap(
                "",
                "It has the unit of reward squared: compare it only between runs with the same reward scale.",
                "单位是奖励的平方：只有奖励尺度相同的实验才可比较。",
            ),
        ),
    ),
    Metric(
        "value/old/mean",
        "value",
        Text("Collected value", "采样时的价值"),
        Text(
            "The mean of the values that were collected with the rollout, over the tokens of the value updates.",
            "采样时一并记录的价值 V0，在价值更新所用的 token 上求平均。",
        ),
        "mean over valid tokens of V0",
        "reward",
        "tokens",
        "mean",
        "mean",
        look=Text(
            "Close to value/prediction/mean and to reward/returns/mean; the gaps are what the critic still "
            "has to learn.",
            "应接近 value/prediction/mean 与 reward/returns/mean；差距就是价值网络尚待学习的部分。",
        ),
        next=Text(
            "value/prediction/mean, reward/returns/mean, value/explained_variance.",
            "看 value/prediction/mean、reward/returns/mean 与 value/explained_variance。",
        ),
        needs=("old_values", "response_mask"),
        part="value",
        names=(*ours("critic/value", "roll"), *differs("critic/value", "roll", by=_SEQUENCE_MEAN)),
        links=(
            link(
                "value/values/mean",
                "The same quantity over the whole rollout batch instead of the value updates; equal when "
                "every "
                "token is trained on equally often.",
                "同一量，但统计整个采样批次而非价值更新；若每个 token 训练次数相同则二者相等。",
                refuse=False,
            ),
        ),
    ),
    Metric(
        "value/prediction/mean",
        "value",
        Text("Predicted value", "价值预测"),
        Text("The mean of what the critic predicts during its updates.", "价值网络在更新过程中的预测均值。"),
        "mean over valid tokens of V",
        "reward",
        "tokens",
        "mean",
        "mean",
        look=Text(
            "Follows reward/returns/mean. Drifting away from it means the critic lags or diverges.",
            "应跟随 reward/returns/mean；渐行渐远说明价值网络跟不上或正在发散。",
        ),
        next=Text("value/error, value/explained_variance.", "看 value/error 与 value/explained_variance。"),
        needs=("values", "response_mask"),
        part="value",
        names=(
            *ours("critic/vpred", "roll"),
            *ours("critic/vpred_mean", "trinity"),
            *differs("critic/vpred", "roll", by=_SEQUENCE_MEAN),
            *differs("critic/vpred_mean", "trinity", "verl", by=MICRO_BATCHES),
            *same("ppo/val/vpred", "trl", era="ppo-0.11"),
        ),
    ),
    Metric(
        "value/error",
        "value",
        Text("Value error", "价值误差"),
        Text(
            "The mean squared error of the critic against the returns, unclipped: twice the unclipped loss per token.",
            "价值网络对回报的均方误差，不做裁剪：逐 token 来看是未裁剪损失的两倍。",
        ),
        "mean over valid tokens of (V − R)²",
        "reward²",
        "tokens",
        "mean",
        "mean",
        look=Text(
            "Falls while the critic learns. Judge it against the variance of the returns, which "
            "value/explained_variance does for you.",
            "随价值网络学习而下降。应与回报的方差对比着看，value/explained_variance 已替你做了这件事。",
        ),
        next=Text("value/explained_variance, value/loss.", "看 value/explained_variance 与 value/loss。"),
        direction="lower",
        needs=("values", "returns", "response_mask"),
        part="value",
        names=(
            *ours("critic/error", "roll"),
            *differs("critic/error", "roll", by=_SEQUENCE_MEAN),
            *same("ppo/val/error", "trl", era="ppo-0.11"),
        ),
    ),
    Metric(
        "value/clip_fraction",
        "value",
        Text("Value clip fraction", "价值裁剪比例"),
        Text(
            "The share of tokens where value clipping binds: the clipped error exceeds the unclipped one. "
            "Missing when value clipping is off.",
            "价值裁剪真正起作用的 token 占比，即裁剪后的误差大于未裁剪误差。未启用价值裁剪时没有这个值（缺"
            "失，而不是 0）。",
        ),
        "share of valid tokens with (clip(V, V0 ± c) − R)² > (V − R)²",
        "fraction",
        "tokens",
        "share",
        "mean",
        look=Text(
            "No firm band. Early in training 0.3 to 0.6 has been called usual; staying above 0.5 means the "
            "targets move "
            "faster than the clip lets the critic follow.",
            "没有公认的区间。训练早期 0.3 到 0.6 曾被视为常见；若长期高于 0.5，说明目标变化比裁剪允许的更新更快。",
        ),
        next=Text(
            "value/loss, value/explained_variance, the value clip range.",
            "看 value/loss、value/explained_variance 和价值裁剪范围。",
        ),
        needs=("values", "returns", "old_values", "response_mask", "value_clip"),
        part="value",
        names=(
            *ours("critic/clipfrac", "roll"),
            *ours("val/clipfrac_avg", "trl"),
            *ours("critic/vf_clipfrac", "trinity"),
            *differs("critic/clipfrac", "roll", by=_MSE_WITHOUT_CLIP),
            *differs("val/clipfrac_avg", "trl", by=CELLS_LOOSE, era="ppo"),
            *same("ppo/val/clipfrac", "trl", era="ppo-0.11"),
            *differs("critic/vf_clipfrac", "trinity", "verl", by=MICRO_BATCHES),
            *differs(
                "train/critic-value_clipfrac",
                "slime",
                by=difference("population", "Mean per sample, not per token.", "按样本而非按 token 平均。"),
            ),
        ),
        traps=(
            trap(
                "",
                "This is the critic's clip. The policy's is policy/clip_fraction (actor/clipfrac, "
                "policy/clipfrac_avg).",
                "这是价值网络的裁剪；策略的裁剪是 policy/clip_fraction（actor/clipfrac、policy/clipfrac_avg）。",
            ),
            trap(
                "roll",
                "A value above 1, or equal to critic/error, is the mean squared error: value_clip is not set.",
                "若数值大于 1，或与 critic/error 相等，那其实是均方误差：说明没有设置 value_clip。",
            ),
            trap("trl", "Under val/, but it has nothing to do with validation.", "虽在 val/ 之下，却与验证集无关。"),
        ),
    ),
    Metric(
        "value/explained_variance",
        "value",
        Text("Explained variance", "解释方差"),
        Text(
            "How much of the returns' variance the collected values explain: 1 is perfect, 0 is no better "
            "than a constant, "
            "negative is worse than one. The best single number on a critic's health. Missing when all "
            "returns are equal.",
            "采样时的价值能解释回报方差的多少：1 为完美，0 与常数无异，负值比常数还差。它是衡量价值网络健康"
            "程度最好的单一指标。"
            "回报全相同时没有定义（缺失）。",
        ),
        "1 − Var(R − V0) / Var(R) over valid tokens, ddof 0",
        "1",
        "tokens",
        "quotient",
        "moments",
        look=Text("Above 0 after some 50 steps and rising towards 1.", "约 50 步之后应大于 0，并逐渐向 1 靠近。"),
        next=Text(
            "value/loss, the critic's learning rate, more critic warm-up, reward/returns/* for outliers.",
            "看 value/loss 与价值网络学习率；考虑延长价值预热；检查 reward/returns/* 是否有离群值。",
        ),
        direction="higher",
        healthy=Band(
            0.0,
            1.0,
            Text(
                "Stable-Baselines3 and NeMo RL documentation: near 1 is good, below 0 is worse than "
                "predicting the mean",
                "Stable-Baselines3 与 NeMo RL 文档：接近 1 为好，小于 0 不如直接预测均值",
            ),
        ),
        needs=("returns", "old_values", "response_mask"),
        part="data",
        names=(
            *ours("critic/vf_explained_var", "trinity"),
            *differs(
                "critic/vf_explained_var",
                "trinity",
                by=difference(
                    "meaning",
                    "Documented but never logged: Trinity computes no values here.",
                    "文档有此项，但代码从不记录：Trinity 在此不计算价值。",
                    refuse=True,
                ),
            ),
            *differs("critic/vf_explained_var", "verl", by=_BESSEL),
            *differs(
                "ppo/val/var_explained",
                "trl",
                by=difference(
                    "meaning",
                    "1 − mean squared error / Var(R): a bias of the critic lowers it too.",
                    "1 − 均方误差 / Var(R)：价值网络的系统性偏差也会拉低它。",
                ),
                era="ppo-0.11",
            ),
        ),
    ),
    Metric(
        "value/grad_norm",
        "value",
        Text("Critic gradient norm", "价值网络梯度范数"),
        Text(
            "The norm of the critic's gradient before clipping, as the caller logs it.",
            "价值网络裁剪前的梯度范数，由调用方记录。",
        ),
        "‖∇ value loss‖₂ before clipping",
        "1",
        "updates",
        "mean",
        "none",
        look=Text(
            "Steady at its own level; levels differ between runs by orders of magnitude. Repeated spikes "
            "or a steady rise is trouble.",
            "在自身水平附近平稳；不同实验的水平可相差几个数量级。反复尖峰或持续上升才是问题。",
        ),
        next=Text(
            "value/loss, reward/returns/max, the critic's learning rate.",
            "看 value/loss、reward/returns/max 与价值网络学习率。",
        ),
        names=(
            *ours("critic/grad_norm", "trinity"),
            *same("critic/grad_norm", "trinity", "verl"),
            *differs("critic/grad_norm", "roll", by=MICRO_BATCHES),
        ),
    ),
    *spread(
        "value/values",
        "value",
        Text("Values", "价值"),
        Text(
            "The values collected with the rollout, over every response token of the batch.",
            "采样时记录的价值，对批次中所有回复 token 统计。",
        ),
        "{stat} over valid tokens of V0",
        unit="reward",
        population="tokens",
        needs=("old_values", "response_mask"),
        part="data",
        look=Text(
            "In the range of the returns. Extremes far outside it mean a diverging critic.",
            "应落在回报的范围之内；极值远超该范围意味着价值网络在发散。",
        ),
        next=Text("reward/returns/*, value/explained_variance.", "看 reward/returns/* 与 value/explained_variance。"),
        names=(
            *ours("critic/values/{stat}", "roll", "trinity"),
            *same("critic/values/{stat}", "roll", "verl"),
            *differs(
                "critic/values/{stat}",
                "trinity",
                by=difference(
                    "meaning",
                    "Documented but never logged: Trinity's trainer has no values in its data metrics.",
                    "文档有此项，但代码从不记录：Trinity 的数据指标中没有价值。",
                    refuse=True,
                ),
            ),
        ),
        traps=(
            trap(
                "",
                "Not critic/value: that one is over the tokens of the value updates, this one over the rollout batch.",
                "与 critic/value 不同：后者统计价值更新中的 token，这里统计整个采样批次。",
            ),
        ),
    ),
)
