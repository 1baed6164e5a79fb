"""Reward: what the answers earn, how it is shaped, and what the policy is trained on: advantages and returns."""

from windsock.catalogue.conventions import WINDOW
from windsock.catalogue.declare import difference, differs, link, ours, same, spread, trap
from windsock.catalogue.spec import Band, Link, Metric, Text

_ABORTED = (
    "One counts aborted sequences (without a response token), the other leaves them out; equal when none is aborted.",
    "一个把中止的序列（没有回复 token）计入，另一个不计；没有中止时二者相等。",
)
_TO_RLHF = (
    link(
        "reward/rlhf/mean",
        "TRL's RLHF reward is score − β·KL without normalisation or clipping; the two agree only when neither is used.",
        "TRL 的 RLHF 奖励是得分 − β·KL，不做归一化和裁剪；只有两者都不用时才相等。",
        refuse=False,
    ),
)


def _to_finished(what: str, stat: str) -> tuple[Link, ...]:
    return (link(f"reward/{what}_not_aborted/{stat}", *_ABORTED, refuse=False),)


_EOS_PENALTY = difference(
    "meaning",
    "Contains the missing-EOS penalty: a rise may only mean that the model learnt to stop.",
    "包含缺失 EOS 的惩罚：上升可能只说明模型学会了停止。",
)
_GRPO_REWARD = difference(
    "population window",
    "Weighted sum over reward functions, mean over rows with at least one score, averaged over the logging window.",
    "各奖励函数加权求和后，对至少有一个得分的样本取平均，再对日志窗口取平均。",
)
_PER_SAMPLE = difference(
    "population",
    "Mean over samples of per-sample means, not over tokens.",
    "先逐样本求平均、再对样本平均，而不是对 token 平均。",
)
_ATTENTION_MASK = difference(
    "mask",
    "Taken with the attention mask: tool and observation tokens count as response tokens.",
    "使用注意力掩码统计：工具与观测 token 也算作回复 token。",
)
_PADDED_SUM = difference(
    "mask sum",
    "Online DPO sums over the padded width without a mask: padding is in the number.",
    "Online DPO 在填充后的宽度上求和且不加掩码：填充位也混在数值里。",
    refuse=True,
)
_PRIME = "train/{env}/{subset}/{agent}"

_SCORE_LOOK = Text(
    "Rising over tens of steps, with noise. Judge the trend over at least 20 points; a flat score with "
    "groups that all "
    "tie means no learning signal.",
    "在几十步的尺度上带噪声地上升。至少看 20 个点再判断趋势；若得分平坦且各组得分全相同，说明没有学习信号。",
)
_SCORE_NEXT = Text(
    "reward/zero_std_groups and tokens/response_truncated when it is flat; a held-out evaluation and the "
    "reward's components "
    "when it rises too well.",
    "平坦时先看 reward/zero_std_groups 与 tokens/response_truncated；涨得太好时看留出集评测和各奖励分量。",
)

_SCORES = spread(
    "reward/score",
    "reward",
    Text("Score", "得分"),
    Text(
        "What the verifier or reward model gives, before normalisation, clipping and any KL term: one "
        "number per sequence, "
        "or per episode when episode ids are given.",
        "验证器或奖励模型给出的原始分数，未经归一化、裁剪，也不含 KL 项：每条序列一个数；给出回合编号时每个"
        "回合一个数。",
    ),
    "{stat} over sequences (episodes) of score",
    stats=("mean", "max", "min", "std"),
    unit="reward",
    population="sequences",
    needs=("scores", "episodes?"),
    part="data",
    look=_SCORE_LOOK,
    next=_SCORE_NEXT,
    direction="higher",
    crucial=True,
    names=(
        *ours("objective/scores", "trl"),
        *differs("objective/scores", "trl", by=_EOS_PENALTY, era="ppo"),
        *differs("objective/scores", "trl", by=WINDOW, era="online-dpo"),
        *same("ppo/mean_scores", "trl", era="ppo-0.11"),
        *same("env/reward_mean", "trl", era="ppo-0.11"),
        *differs("reward", "trl", by=_GRPO_REWARD),
        *same("rollout/raw_reward", "slime"),
        *differs(
            f"{_PRIME}/reward/mean",
            "prime-rl",
            by=difference(
                "population",
                "One number per environment, agent and subset: 'all' rollouts, or the 'effective' ones "
                "that reach training.",
                "按环境、智能体与子集分别统计：all 为全部 rollout，effective 为真正进入训练的部分。",
            ),
        ),
    ),
    special={
        stat: {
            "extra_names": (
                *ours(f"critic/score/{stat}", "roll"),
                *same(f"critic/score/{stat}", "roll", "trinity"),
            ),
            "links": _to_finished("score", stat),
        }
        for stat in ("mean", "max", "min")
    }
    | {
        "std": {
            "direction": "none",
            "look": Text(
                "Above 0. At exactly 0 every answer earns the same and group-relative methods have no gradient.",
                "应大于 0。恰好为 0 时所有回答得分相同，组内相对方法没有梯度。",
            ),
            "extra_names": (
                *differs(
                    "reward_std",
                    "trl",
                    by=difference(
                        "ddof window",
                        "Bessel-corrected (ddof 1) over the whole batch; in older versions the mean of "
                        "per-group deviations.",
                        "对整个批次用 ddof 1 计算；旧版本是各组标准差的平均。",
                    ),
                ),
                *same("ppo/std_scores", "trl", era="ppo-0.11"),
                *same("env/reward_std", "trl", era="ppo-0.11"),
            ),
        }
    },
    traps=(
        trap(
            "",
            "critic/ is a historical prefix: the number exists, and means the same, without any critic.",
            "critic/ 只是历史前缀：没有价值网络时这个数同样存在、含义不变。",
        ),
        trap(
            "roll",
            "Agentic runs count one score per trajectory; RLVR one per row, kept in float16 by the bundled "
            "reward workers.",
            "agentic 流水线按轨迹计分；RLVR 按行计分，且自带的奖励 worker 用 float16 存储。",
        ),
        trap(
            "trl",
            "A NaN reward is treated like None and leaves no trace in the reward curve.",
            "NaN 奖励会被当作 None 处理，在奖励曲线上不留痕迹。",
        ),
    ),
)

_ADVANTAGES = spread(
    "reward/advantages",
    "reward",
    Text("Advantages", "优势"),
    Text(
        "The advantages the policy is trained with, over every response token of the batch.",
        "策略训练所用的优势，对批次中所有回复 token 统计。",
    ),
    "{stat} over valid tokens of A",
    unit="reward",
    population="tokens",
    needs=("advantages", "response_mask"),
    part="data",
    look=Text(
        "The mean near 0 and the extremes within about ±5 when advantages are normalised. All exactly 0 "
        "means there is nothing to learn from.",
        "优势经归一化时，均值应在 0 附近，极值大致在 ±5 以内。若全部恰好为 0，则没有任何可学的信号。",
    ),
    next=Text(
        "reward/zero_std_groups, reward/shaped/*, policy/grad_norm (0 when all advantages are).",
        "看 reward/zero_std_groups、reward/shaped/*，以及 policy/grad_norm（优势全为 0 时它也是 0）。",
    ),
    names=(
        *ours("critic/advantages/{stat}", "roll", "trinity"),
        *same("critic/advantages/{stat}", "roll", "verl"),
        *differs("critic/advantages/{stat}", "trinity", by=_ATTENTION_MASK),
        *differs("rollout/advantages", "slime", by=_PER_SAMPLE),
        *same("ppo/policy/advantages_mean", "trl", era="ppo-0.11"),
    ),
    traps=(
        trap(
            "",
            "A token mean: long answers weigh more, so with GRPO it is not zero although every group is centred.",
            "这是 token 均值：长回复权重更大，所以即便 GRPO 在每组内做了中心化，它也不为 0。",
        ),
        trap(
            "roll",
            "The agentic pipeline logs 0.0 for the extremes when no token is valid; RLVR leaves the keys out.",
            "没有有效 token 时，agentic 流水线把极值记为 0.0，RLVR 则不记录该键。",
        ),
        trap(
            "verl",
            "After rejection by rollout correction only the kept tokens are described.",
            "rollout 校正拒绝部分 token 之后，这里只描述保留下来的 token。",
        ),
    ),
)

_RETURNS = spread(
    "reward/returns",
    "reward",
    Text("Returns", "回报"),
    Text(
        "The targets of the value function (advantage + value with GAE, discounted reward sums otherwise), "
        "over every response token.",
        "价值函数的回归目标（GAE 下为优势加价值，否则为折扣奖励和），对所有回复 token 统计。",
    ),
    "{stat} over valid tokens of R",
    unit="reward",
    population="tokens",
    needs=("returns", "response_mask"),
    part="data",
    look=Text(
        "Moves with the rewards. With terminal rewards and γ = 1 the mean is close to the score, weighted by length.",
        "随奖励变化。若只有终点奖励且 γ = 1，均值接近按长度加权的得分。",
    ),
    next=Text(
        "reward/shaped/*, value/prediction/mean, value/explained_variance.",
        "看 reward/shaped/*、value/prediction/mean 与 value/explained_variance。",
    ),
    names=(
        *ours("critic/returns/{stat}", "roll", "trinity"),
        *same("critic/returns/{stat}", "roll", "verl"),
        *differs("critic/returns/{stat}", "trinity", by=_ATTENTION_MASK),
        *same("ppo/returns/mean", "trl", era="ppo-0.11"),
    ),
)

_SHAPED = spread(
    "reward/shaped",
    "reward",
    Text("Shaped reward", "塑形后的奖励"),
    Text(
        "The sum of token-level rewards of a sequence as used for advantages: after normalisation, "
        "clipping and any KL penalty.",
        "每条序列的 token 级奖励之和，即真正用来计算优势的奖励：已归一化、裁剪，并含 KL 惩罚（若有）。",
    ),
    "{stat} over sequences of Σ_t reward_t",
    unit="reward",
    population="sequences",
    needs=("rewards", "response_mask"),
    part="data",
    look=Text(
        "With group normalisation the mean is about 0 by construction: look at the score instead. Without "
        "it, it should rise.",
        "组内归一化时均值按构造约为 0，此时应看得分；没有归一化时应上升。",
    ),
    next=Text(
        "reward/score/mean, reward/rlhf/mean, evaluation/reward_clip_fraction.",
        "看 reward/score/mean、reward/rlhf/mean 与 evaluation/reward_clip_fraction。",
    ),
    names=(
        *ours("critic/rewards/{stat}", "roll"),
        *same("critic/rewards/{stat}", "roll", "trinity"),
        *differs(
            "rollout/rewards",
            "slime",
            by=difference(
                "meaning",
                "The reward after slime's own normalisation; no KL term inside.",
                "经 slime 自身归一化后的奖励，不含 KL 项。",
            ),
        ),
    ),
    special={
        stat: {"links": (*_to_finished("shaped", stat), *(_TO_RLHF if stat == "mean" else ()))}
        for stat in ("mean", "max", "min")
    },
)

_FINISHED = tuple(
    metric
    for what, key, title, source in (
        ("score", "score", Text("Score of answers that exist", "有回复者的得分"), _SCORES[0]),
        ("shaped", "rewards", Text("Shaped reward of answers that exist", "有回复者的塑形奖励"), _SHAPED[0]),
    )
    for metric in spread(
        f"reward/{what}_not_aborted",
        "reward",
        title,
        Text(
            f"As reward/{what}, over the sequences with at least one response token: aborted ones are left out.",
            f"同 reward/{what}，但只统计至少有一个回复 token 的序列：中止的序列不计入。",
        ),
        source.formula.replace("mean over", "{stat} over", 1) + ", aborted sequences left out",
        unit="reward",
        population="sequences",
        needs=(*source.needs, *(() if "response_mask" in source.needs else ("response_mask",))),
        part="data",
        look=source.look,
        next=source.next,
        direction=source.direction,
        crucial=source.crucial,
        names=(*ours(f"critic/{key}/{{stat}}", "trinity"), *same(f"critic/{key}/{{stat}}", "verl")),
        special={
            stat: {
                "links": (
                    link(f"reward/{what}/{stat}", *_ABORTED, refuse=False),
                    *(_TO_RLHF if (what, stat) == ("shaped", "mean") else ()),
                )
            }
            for stat in ("mean", "max", "min")
        },
        traps=(
            trap(
                "trinity",
                "Trinity's own code counts aborted sequences here, unlike veRL from which the name comes.",
                "这个名字来自 veRL，但 Trinity 自己的代码会把中止的序列也算进去。",
            ),
        ),
    )
)

_COMPONENTS = spread(
    "reward/component/{component}",
    "reward",
    Text("Reward component", "奖励分量"),
    Text(
        "What one reward function gives, over the sequences that it scored.",
        "单个奖励函数给出的分数，只统计它打过分的序列。",
    ),
    "{stat} over scored sequences of the component",
    stats=("mean", "std"),
    unit="reward",
    population="sequences",
    part="data",
    look=Text(
        "Components should not trade against each other: a total that rises while one of them falls is how "
        "reward hacking looks.",
        "各分量不应此消彼长：总分上升而某个分量下降，正是奖励作弊的样子。",
    ),
    next=Text(
        "The other components, reward/score/mean, and samples that are high in one and low in another.",
        "看其他分量与 reward/score/mean，并抽查某一分量高、另一分量低的样本。",
    ),
    direction="higher",
    names=(
        *differs("rewards/{component}/mean", "trl", by=WINDOW),
        *differs("rewards/{component}", "trl", by=WINDOW, era="async-1.10"),
        *same(f"{_PRIME}/rewards/{{component}}/mean", "prime-rl"),
    ),
    special={
        "std": {
            "direction": "none",
            "look": Text(
                "Above 0. A component with 0 spread while the total varies gives no signal of its own.",
                "应大于 0。总分有波动而该分量标准差为 0，说明它没有提供任何信号。",
            ),
            "extra_names": differs(
                "rewards/{component}/std",
                "trl",
                by=difference(
                    "ddof window",
                    "Bessel-corrected (ddof 1), averaged over the logging window.",
                    "用 ddof 1 计算，并对日志窗口取平均。",
                ),
            ),
        }
    },
)


def _implicit(what: str, zh: str) -> Metric:
    return Metric(
        f"reward/implicit/{what}",
        "reward",
        Text(f"Implicit reward of {what} answers", f"{zh}回答的隐式奖励"),
        Text(
            f"β times the log-probability ratio of the {what} answer to the reference, summed over its "
            f"tokens (online DPO).",
            f"{zh}回答相对参考模型的对数概率比（对 token 求和）乘以 β（online DPO）。",
        ),
        f"β · Σ_t (lp − ref) of the {what} answer, mean over pairs",
        "nats/sequence",
        "sequences",
        "mean",
        "none",
        look=Text(
            "The chosen above the rejected, the gap growing slowly. Both falling together is likelihood displacement.",
            "被选回答应高于被拒回答，差距缓慢扩大；两者一起下降则是似然位移。",
        ),
        next=Text(
            "reward/implicit/margin, reward/implicit/accuracy.",
            "看 reward/implicit/margin 与 reward/implicit/accuracy。",
        ),
        names=same(f"rewards/{what}", "trl", era="online-dpo"),
    )


METRICS: tuple[Metric, ...] = (
    *_SCORES,
    *_SHAPED,
    *_FINISHED,
    *_ADVANTAGES,
    *_RETURNS,
    Metric(
        "reward/rlhf/mean",
        "reward",
        Text("RLHF reward", "RLHF 奖励"),
        Text(
            "The score plus the non-score reward, i.e. score − β·KL: what RLHF maximises.",
            "得分加上非得分奖励，即 得分 − β·KL：RLHF 真正最大化的目标。",
        ),
        "mean over sequences of (score − β · Σ_t (old − ref))",
        "reward",
        "sequences",
        "mean",
        "mean",
        look=Text(
            "Should rise, together with the score. When it rises with a flat score, only the KL shrinks.",
            "应与得分一同上升。若它上升而得分不动，只说明 KL 在缩小。",
        ),
        next=Text(
            "reward/score/mean and reward/non_score/mean: which of the two moved?",
            "看 reward/score/mean 与 reward/non_score/mean：到底是哪一项在变？",
        ),
        direction="higher",
        needs=("scores", "old_log_probs", "ref_log_probs", "response_mask", "kl_coef"),
        part="data",
        crucial=True,
        names=(
            *ours("objective/rlhf_reward", "trl"),
            *differs("objective/rlhf_reward", "trl", by=_EOS_PENALTY, era="ppo"),
            *differs("objective/rlhf_reward", "trl", by=_PADDED_SUM, era="online-dpo"),
        ),
        traps=(
            trap(
                "trl",
                "The documentation prints rlhf_reward = score − non_score_reward; the code adds a "
                "non_score_reward that is already negative. Same total.",
                "文档写的是 rlhf_reward = score − non_score_reward；代码则是加上一个本身为负的 "
                "non_score_reward。总和相同。",
            ),
        ),
        links=tuple(
            link(
                id,
                "The shaped reward is taken after normalisation and clipping as well; the two agree only "
                "when neither is used.",
                "塑形后的奖励还经过归一化与裁剪；只有两者都不用时才相等。",
                refuse=False,
            )
            for id in ("reward/shaped/mean", "reward/shaped_not_aborted/mean")
        ),
    ),
    Metric(
        "reward/non_score/mean",
        "reward",
        Text("Non-score reward", "非得分奖励"),
        Text(
            "What the KL penalty adds to the reward of a sequence. As a reward: negative while the KL is positive.",
            "KL 惩罚给每条序列奖励带来的部分。以奖励计：KL 为正时它为负。",
        ),
        "mean over sequences of −β · Σ_t (old − ref)",
        "reward",
        "sequences",
        "mean",
        "mean",
        look=Text(
            "Slightly negative and small beside the score. Large means that the KL penalty dominates the reward.",
            "略小于 0，且与得分相比很小。数值很大说明 KL 惩罚主导了奖励。",
        ),
        next=Text("policy/ref_kl_sum, reward/kl_coef.", "看 policy/ref_kl_sum 与 reward/kl_coef。"),
        needs=("old_log_probs", "ref_log_probs", "response_mask", "kl_coef"),
        part="data",
        names=(
            *ours("objective/non_score_reward", "trl"),
            *same("objective/non_score_reward", "trl", era="ppo"),
            *differs("objective/non_score_reward", "trl", by=_PADDED_SUM, era="online-dpo"),
            *differs(
                "ppo/mean_non_score_reward",
                "trl",
                by=difference(
                    "sum",
                    "A mean per token, not a sum per sequence.",
                    "是每个 token 的均值，而不是每条序列之和。",
                    refuse=True,
                ),
                era="ppo-0.11",
            ),
        ),
        traps=(
            trap(
                "trl",
                "The documentation gives β·KL (positive); the code logs −β·KL. We follow the code.",
                "文档给出的是 β·KL（正值），代码记录的是 −β·KL；我们与代码一致。",
            ),
        ),
    ),
    Metric(
        "reward/kl_coef",
        "reward",
        Text("KL coefficient", "KL 系数"),
        Text(
            "The weight β of the KL penalty in the reward, as it was in force in the step.",
            "奖励中 KL 惩罚的权重 β，取本步实际生效的值。",
        ),
        "β",
        "1",
        "steps",
        "last",
        "last",
        look=Text(
            "Constant, or settling when it is adaptive. An adaptive coefficient that keeps growing (beyond "
            "twice its start) is losing the fight against the KL.",
            "固定不变；若为自适应则应趋于稳定。自适应系数一路上涨（超过初值的两倍），说明它压不住 KL。",
        ),
        next=Text("policy/ref_kl_sum: is the KL above its target?", "看 policy/ref_kl_sum：KL 是否高于目标？"),
        direction="none",
        needs=("kl_coef",),
        crucial=True,
        names=(
            *ours("objective/kl_coef", "trl"),
            *same("objective/kl_coef", "trl", era="ppo-0.11"),
            *same("critic/kl_coef", "roll"),
            *same("actor/reward_kl_penalty_coeff", "verl"),
        ),
        traps=(
            trap(
                "trl",
                "The documented objective/kl_coef disappeared from TRL's later PPO trainer, where β is a "
                "constant: its absence is no fault.",
                "TRL 后来的 PPO 里 β 是常数，文档中的 objective/kl_coef 已不再记录：缺失并非故障。",
            ),
        ),
    ),
    *_COMPONENTS,
    Metric(
        "reward/zero_std_groups",
        "reward",
        Text("Groups without a signal", "无信号组占比"),
        Text(
            "The share of groups in which every answer earned the same, so that group-relative advantages "
            "are all zero and nothing is learnt from them.",
            "组内所有回答得分完全相同的组的占比。这些组的相对优势全为 0，学不到任何东西。",
        ),
        "#(groups with zero reward spread) / #groups",
        "fraction",
        "groups",
        "share",
        "mean",
        look=Text(
            "Below a half. Near 1 the step is wasted: prompts are all solved or all hopeless.",
            "低于一半为宜。接近 1 时这一步基本白做：题目要么全会、要么全不会。",
        ),
        next=Text(
            "reward/score/mean tells which: near its maximum the prompts are too easy, near its minimum "
            "too hard. Then tokens/response_truncated.",
            "看 reward/score/mean 判断属于哪种：接近上限是题太易，接近下限是题太难；再看 tokens/response_truncated。",
        ),
        direction="lower",
        healthy=Band(
            None,
            0.5,
            Text(
                "60 public training logs: healthy runs stay between 0 and 0.5; DAPO filters such groups",
                "60 份公开训练日志：健康的实验在 0 到 0.5 之间；DAPO 会过滤这类组",
            ),
        ),
        needs=("scores", "groups"),
        part="data",
        names=(
            *differs(
                "frac_reward_zero_std",
                "trl",
                by=difference(
                    "population window",
                    "Share of samples, averaged over the logging window; 0 or 1 when rewards are scaled by "
                    "the batch's deviation.",
                    "按样本计的比例，并对日志窗口平均；若按批次标准差缩放奖励，则只会是 0 或 1。",
                ),
                era="grpo",
            ),
            *differs(
                "frac_reward_zero_std",
                "trl",
                by=difference(
                    "meaning",
                    "RLOO takes it after the KL penalty: with beta > 0 dead groups never register.",
                    "RLOO 在加入 KL 惩罚之后统计：beta > 0 时无信号组根本不会被计入。",
                    refuse=True,
                ),
                era="rloo",
            ),
            *differs(
                "experience_pipeline/filtered_count",
                "trinity",
                by=difference(
                    "unit population",
                    "A count of experiences, not a share of groups.",
                    "是被过滤经验的条数，而不是组的占比。",
                    refuse=True,
                ),
            ),
            *differs(
                "training/filter_groups/evicted_samples",
                "verl",
                by=difference(
                    "unit population",
                    "A count of samples, not a share of groups.",
                    "是样本条数，而不是组的占比。",
                    refuse=True,
                ),
            ),
            *differs(
                "rollout/zero_std/count_{reward}",
                "slime",
                by=difference(
                    "unit",
                    "A count of groups, one key for each reward value that a whole group shares.",
                    "是组数，且按整组共同的奖励值分成多个键。",
                    refuse=True,
                ),
            ),
        ),
        traps=(trap("trl", "All solved and all failed are merged into one number.", "“全对”和“全错”被合并成一个数。"),),
    ),
    *(
        Metric(
            f"reward/groups/{what}",
            "reward",
            Text(en, zh),
            Text(f"The share of groups in which {rule}.", f"{rule_zh}的组的占比。"),
            "#(such groups) / #groups",
            "fraction",
            "groups",
            "share",
            "mean",
            look=Text(
                "Most groups mixed: only those teach a group-relative method anything.",
                "多数组应是有对有错：只有这类组能让组内相对方法学到东西。",
            ),
            next=Text(
                "reward/zero_std_groups, the difficulty of the prompts.", "看 reward/zero_std_groups 与题目难度。"
            ),
            needs=("scores", "groups"),
            part="data",
            names=(*same(f"{_PRIME}/{what}", "prime-rl"), *same(f"group/{roll}", "roll")),
        )
        for what, roll, en, zh, rule, rule_zh in (
            (
                "solved_none",
                "all_incorrect_groups_ratio",
                "Groups all failed",
                "全错组占比",
                "every answer failed",
                "所有回答都错",
            ),
            (
                "solved_all",
                "all_correct_groups_ratio",
                "Groups all solved",
                "全对组占比",
                "every answer is right",
                "所有回答都对",
            ),
            (
                "solved_some",
                "mixed_groups_ratio",
                "Mixed groups",
                "有对有错组占比",
                "some answers are right and some wrong",
                "既有答对也有答错",
            ),
        )
    ),
    Metric(
        "reward/groups/effective_samples",
        "reward",
        Text("Effective samples", "有效样本数"),
        Text(
            "How many samples of the step belong to a group whose scores differ: only those have an advantage to learn "
            "from when the baseline is the group's.",
            "本步中所在组得分有差异的样本数：以组内均值为基线时，只有这些样本才有可学的优势。",
        ),
        "Σ over groups with a spread of the group's size",
        "count",
        "sequences",
        "sum",
        "sum",
        look=Text(
            "Not far below the batch size. At 0 the step teaches nothing.",
            "与批次大小相差不大。为 0 时这一步学不到东西。",
        ),
        next=Text(
            "reward/groups/solved_all and solved_none: too easy or too hard? The sampling temperature.",
            "看 reward/groups/solved_all 与 solved_none：题目太易还是太难？再看采样温度。",
        ),
        direction="higher",
        needs=("scores", "groups"),
        part="data",
        names=(),
    ),
    _implicit("chosen", "被选"),
    _implicit("rejected", "被拒"),
    *(
        Metric(
            f"reward/{what}",
            "reward",
            Text(en, zh),
            Text(about, about_zh),
            formula,
            unit,
            "sequences",
            "mean",
            "none",
            look=Text(look, look_zh),
            next=Text("reward/score/mean and samples of both answers.", "看 reward/score/mean，并对比两个回答的样本。"),
            direction="higher",
            names=same(pattern, "trl", era="online-dpo"),
        )
        for what, pattern, en, zh, about, about_zh, formula, unit, look, look_zh in (
            (
                "implicit/margin",
                "rewards/margins",
                "Implicit reward margin",
                "隐式奖励差",
                "Implicit reward of the chosen answer minus that of the rejected one.",
                "被选回答与被拒回答的隐式奖励之差。",
                "mean over pairs of (chosen − rejected)",
                "nats/sequence",
                "Positive and growing slowly.",
                "为正并缓慢增大。",
            ),
            (
                "implicit/accuracy",
                "rewards/accuracies",
                "Implicit reward accuracy",
                "隐式奖励准确率",
                "The share of pairs in which the chosen answer has the higher implicit reward.",
                "被选回答隐式奖励更高的样本对占比。",
                "#(chosen > rejected) / #pairs",
                "fraction",
                "Above 0.5; flat at 0.5 nothing is learnt.",
                "高于 0.5；一直停在 0.5 说明没学到东西。",
            ),
            (
                "score_margin",
                "objective/scores_margin",
                "Score margin",
                "得分差",
                "Score of the better answer minus that of the worse one.",
                "较优回答与较差回答的得分之差。",
                "mean over pairs of (score of chosen − score of rejected)",
                "reward",
                "Positive; at 0 the judge cannot tell the answers apart.",
                "为正；为 0 说明裁判分不出优劣。",
            ),
            (
                "implicit/chosen_log_prob",
                "logps/chosen",
                "Log-probability of chosen answers",
                "被选回答的对数概率",
                "Summed log-probability of the chosen answer.",
                "被选回答的对数概率之和。",
                "mean over pairs of Σ_t lp of the chosen answer",
                "nats/sequence",
                "Not falling: chosen and rejected falling together is likelihood displacement.",
                "不应下降：与被拒回答一起下降即为似然位移。",
            ),
            (
                "implicit/rejected_log_prob",
                "logps/rejected",
                "Log-probability of rejected answers",
                "被拒回答的对数概率",
                "Summed log-probability of the rejected answer.",
                "被拒回答的对数概率之和。",
                "mean over pairs of Σ_t lp of the rejected answer",
                "nats/sequence",
                "Falling faster than that of the chosen answer.",
                "应比被选回答的下降更快。",
            ),
        )
    ),
    Metric(
        "reward/dpo_beta",
        "reward",
        Text("DPO temperature", "DPO 温度系数 β"),
        Text(
            "The β of online DPO: how strongly the policy is held to the reference.",
            "online DPO 的 β：对策略靠近参考模型的约束强度。",
        ),
        "β",
        "1",
        "steps",
        "last",
        "none",
        look=Text("As configured.", "与配置一致。"),
        next=Text("reward/implicit/margin.", "看 reward/implicit/margin。"),
        names=same("beta", "trl", era="online-dpo"),
        links=(
            link(
                "reward/kl_coef",
                "DPO's β is a temperature of the loss, not a weight of a KL penalty in the reward.",
                "DPO 的 β 是损失的温度，而不是奖励中 KL 惩罚的权重。",
            ),
        ),
    ),
)
