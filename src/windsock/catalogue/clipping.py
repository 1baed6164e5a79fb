"""Ratio and clipping: how far an update moves its tokens, and where the clip stops it. Part of the policy family."""

from windsock.catalogue.conventions import CELLS, CELLS_UNMASKED, LOSS_MODE, MICRO_BATCHES, PER_SAMPLE, STEP_SIZE_NEXT
from windsock.catalogue.declare import Names, difference, differs, link, ours, same, spread, trap
from windsock.catalogue.spec import Band, Metric, Text

_GRPO_WINDOW = difference(
    "window",
    "A token mean over all ranks, averaged over the micro-batches of the logging window.",
    "跨 rank 的 token 均值，再对日志窗口内的微批次平均。",
)
_SEQUENCE_RATIO = difference(
    "population",
    "RLOO clips the ratio of whole sequences: a share of sequences, ten times larger than a share of "
    "tokens at the same step size.",
    "RLOO 裁剪的是整条序列的概率比：统计的是序列占比，同样的更新幅度下比 token 占比大一个数量级。",
    refuse=True,
)
_DUAL_NEEDS = ("log_probs", "old_log_probs", "advantages", "response_mask", "clip", "dual_clip")
_TOKEN_GRPO_ERAS = ("grpo", "async-1.10", "async-1.16")


def _grpo(pattern: str) -> Names:
    token_level = [name for era in _TOKEN_GRPO_ERAS for name in differs(pattern, "trl", by=_GRPO_WINDOW, era=era)]
    return (*token_level, *differs(pattern, "trl", by=_SEQUENCE_RATIO, era="rloo"))


_RATIO = spread(
    "policy/ratio",
    "policy",
    Text("Importance ratio", "重要性比"),
    Text(
        "How much likelier the taken tokens are under the current policy than under the one that was "
        "trained from (old).",
        "当前策略给已采样 token 的概率与更新前策略（old）之比。",
    ),
    "{stat} over valid tokens of r = exp(lp − old)",
    unit="1",
    population="tokens",
    needs=("log_probs", "old_log_probs", "response_mask"),
    part="policy",
    look=Text(
        "Floats around 1.0, within about ±0.2. At 2, at 0.1 or beyond, the update is too drastic or the "
        "old log-probs belong to another policy.",
        "在 1.0 附近浮动，大致不超过 ±0.2。到 2、到 0.1 甚至更远，说明更新过猛，或 old 对数概率根本不属于这个策略。",
    ),
    next=STEP_SIZE_NEXT,
    direction="band",
    healthy=Band(
        0.8,
        1.2,
        Text(
            "TRL logging page: floats around 1.0, 2.0 or 0.1 is too drastic; the usual clip range is 0.2",
            "TRL 日志文档：应在 1.0 附近，2.0 或 0.1 即过猛；常用裁剪范围为 0.2",
        ),
    ),
    crucial=True,
    names=(
        *ours("actor/ratio_{stat}", "roll"),
        *ours("val/ratio", "trl"),
        *differs("val/ratio", "trl", by=CELLS_UNMASKED, era="ppo"),
        *same("ppo/policy/ratio", "trl", era="ppo-0.11"),
        *same("ratio", "trl", era="async-1.10"),
        *same("ratio", "trl", era="async-1.16"),
        *differs("train/ois", "slime", by=PER_SAMPLE),
    ),
    special={
        "mean": {
            "extra_names": differs(
                "actor/ratio_mean",
                "roll",
                by=difference(
                    "reducer",
                    "Token mean within each sequence, then over sequences; with sequence-level importance "
                    "sampling the ratio is one per sequence.",
                    "先在序列内对 token 平均，再对序列平均；使用序列级重要性采样时每条序列只有一个比值。",
                ),
            )
        },
        "max": {
            "look": Text(
                "A few times 1. Above 10, single tokens dominate the update: an old TRL skipped such batches.",
                "几倍于 1 即可。超过 10 时单个 token 就会主导更新：早期 TRL 会直接跳过这样的批次。",
            ),
            "extra_names": (
                *differs(
                    "actor/ratio_max",
                    "roll",
                    by=difference(
                        "sentinel", "0 when a micro-batch has no valid token.", "微批次没有有效 token 时记为 0。"
                    ),
                    era="0.2",
                ),
                *differs(
                    "actor/ratio_max",
                    "roll",
                    by=difference(
                        "reducer",
                        "A mean of per-micro-batch maxima, not a maximum.",
                        "是各微批次最大值的平均，而不是最大值。",
                        refuse=True,
                    ),
                    era="2025-11",
                ),
            ),
        },
        "min": {
            "look": Text(
                "Above about 0.1; near 0 single tokens were all but abandoned in one step.",
                "高于 0.1 左右；接近 0 说明某些 token 在一步之内几乎被抛弃。",
            ),
            "extra_names": (
                *differs(
                    "actor/ratio_min",
                    "roll",
                    by=difference(
                        "sentinel",
                        "1e10 when a micro-batch has no valid token.",
                        "微批次没有有效 token 时会记成 1e10。",
                    ),
                    era="0.2",
                ),
                *differs(
                    "actor/ratio_min",
                    "roll",
                    by=difference(
                        "reducer",
                        "A mean of per-micro-batch minima, not a minimum.",
                        "是各微批次最小值的平均，而不是最小值。",
                        refuse=True,
                    ),
                    era="2025-11",
                ),
            ),
        },
    },
    traps=(
        trap(
            "",
            "The mean is a weak alarm: its expectation under the old policy is 1 however far the policy "
            "moved. Look at the extremes and at the KL.",
            "均值是迟钝的警报：无论策略移动多远，它在旧策略下的期望都是 1。要看极值和 KL。",
        ),
        trap(
            "",
            "Exactly 1 for ever is no sign of health: with one update per batch the old log-probs are the "
            "current ones.",
            "恒等于 1 并不代表健康：每批只更新一次时，old 与当前对数概率本来就相同。",
        ),
        trap(
            "trl",
            "A healthy PPO run with num_mini_batches = 2 logs val/ratio 0.5, with 4 it logs 0.25. GRPO and "
            "RLOO log no ratio at all.",
            "健康的 PPO 在 num_mini_batches = 2 时会记录 val/ratio = 0.5，等于 4 时为 0.25；GRPO 与 RLOO 则"
            "完全不记录比值。",
        ),
        trap("trl", "val/ is not validation here.", "这里的 val/ 与验证集无关。"),
    ),
)

_RATIO_VARIANCE = Metric(
    "policy/ratio/var",
    "policy",
    Text("Importance ratio: variance", "重要性比：方差"),
    Text(
        "The variance of the ratio over tokens: how unevenly the update moved them.",
        "比值在 token 间的方差：更新对各 token 的影响有多不均匀。",
    ),
    "variance (ddof 0) over valid tokens of r",
    "1",
    "tokens",
    "var",
    "moments",
    look=Text("Small; it rises before the mean of the ratio does.", "应很小；它会先于比值均值上升。"),
    next=STEP_SIZE_NEXT,
    direction="lower",
    needs=("log_probs", "old_log_probs", "response_mask"),
    part="policy",
    names=(
        *ours("val/ratio_var", "trl"),
        *differs(
            "val/ratio_var",
            "trl",
            by=difference(
                "population ddof",
                "The variance of micro-batch means (ddof 1), not of token ratios; NaN with a single "
                "micro-batch, and inflated by cells that stay 0.",
                "是各微批次均值的方差（ddof 1），而不是 token 比值的方差；只有一个微批次时为 NaN，且被一直"
                "为 0 的格子抬高。",
                refuse=True,
            ),
            era="ppo",
        ),
    ),
)

_CLIP = (
    Metric(
        "policy/clip_fraction",
        "policy",
        Text("Clip fraction", "裁剪比例"),
        Text(
            "The share of tokens where PPO's clip binds: where clipping changes the loss and takes the "
            "gradient away. The sign of the advantage matters.",
            "PPO 裁剪真正起作用的 token 占比，即裁剪改变了损失、并取消该处梯度的地方；与优势的正负有关。",
        ),
        "share of valid tokens with clip(r) · A < r · A",
        "fraction",
        "tokens",
        "share",
        "mean",
        look=Text(
            "Token-level GRPO: 1e-4 to 0.03. Control-style PPO: up to 0.3. Above that most of the step is "
            "thrown away. Read it with policy/kl_k2: both high means steps are too large.",
            "token 级 GRPO：1e-4 到 0.03；经典 PPO：不超过 0.3。再高就意味着大部分更新被丢弃。与 "
            "policy/kl_k2 一起看：两者同高说明步子太大。",
        ),
        next=Text(
            "policy/kl_k2, policy/ratio/max, the learning rate, epochs per batch, staleness of the data.",
            "看 policy/kl_k2、policy/ratio/max、学习率、每批更新轮数与数据陈旧程度。",
        ),
        direction="band",
        healthy=Band(
            0.0,
            0.3,
            Text(
                "usual range of control PPO 0.1 to 0.3; healthy public GRPO logs 1e-4 to 0.03",
                "经典 PPO 的常见范围 0.1 到 0.3；健康的公开 GRPO 日志为 1e-4 到 0.03",
            ),
        ),
        needs=("log_probs", "old_log_probs", "advantages", "response_mask", "clip"),
        part="policy",
        crucial=True,
        names=(
            *ours("actor/clipfrac", "roll"),
            *ours("policy/clipfrac_avg", "trl"),
            *ours("actor/pg_clipfrac", "trinity"),
            *differs("actor/clipfrac", "roll", by=LOSS_MODE),
            *differs("policy/clipfrac_avg", "trl", by=CELLS, era="ppo"),
            *same("ppo/policy/clipfrac", "trl", era="ppo-0.11"),
            *_grpo("clip_ratio/region_mean"),
            *differs("clip_ratio", "trl", by=_GRPO_WINDOW, era="grpo"),
            *differs("actor/pg_clipfrac", "trinity", "verl", by=MICRO_BATCHES),
            *differs("train/pg_clipfrac", "slime", by=PER_SAMPLE),
        ),
        links=(
            link(
                "policy/ratio/outside",
                "A ratio outside the band is not clipped when the advantage pulls it back: that share is larger.",
                "比值越界并不等于被裁剪：若优势正把它拉回来，则不裁剪，所以越界占比更大。",
            ),
            link(
                "policy/masked",
                "prime-rl masks tokens, it does not clip them: another share of another loss.",
                "prime-rl 是屏蔽 token 而不是裁剪：损失不同，占比的含义也不同。",
            ),
        ),
        traps=(
            trap(
                "",
                "Exactly 0 for ever means it cannot be measured, not that all is well: with one update per "
                "batch the ratio is always 1.",
                "恒为 0 只说明无从测量，而不是一切正常：每批只更新一次时比值恒为 1。",
            ),
            trap(
                "",
                "Sequence-level methods (GSPO, RLOO) clip two orders of magnitude more by design.",
                "序列级方法（GSPO、RLOO）的裁剪比例天然高出一两个数量级。",
            ),
            trap(
                "",
                "critic/clipfrac and val/clipfrac_avg are the critic's, not this one.",
                "critic/clipfrac 与 val/clipfrac_avg 是价值网络的，不是这个。",
            ),
        ),
    ),
    *(
        Metric(
            f"policy/clip_fraction/{side}",
            "policy",
            Text(f"Clip fraction, {en}", f"{zh}裁剪比例"),
            Text(
                f"The share of tokens clipped on the {en}: ratio {rule} while the advantage is {sign}.",
                f"在{zh}被裁剪的 token 占比：比值{rule_zh}，且优势为{sign_zh}。",
            ),
            f"share of valid tokens with {formula}",
            "fraction",
            "tokens",
            "share",
            "mean",
            look=Text(
                "Small, and of the same order on both sides. One side much larger: tune that side's clip range.",
                "很小，且上下两侧量级相当。一侧明显更大时，调整该侧的裁剪范围。",
            ),
            next=Text(
                "policy/clip_fraction, the clip range of that side.", "看 policy/clip_fraction 以及该侧的裁剪范围。"
            ),
            needs=("log_probs", "old_log_probs", "advantages", "response_mask", "clip"),
            part="policy",
            names=_grpo(f"clip_ratio/{side}_mean"),
            links=(
                link(
                    f"policy/ratio/{outside}",
                    "This one counts a token only when the advantage lets the clip bind; that one whatever "
                    "the sign of the advantage.",
                    "这里只统计优势使裁剪真正起作用的 token；那里不论优势正负都统计。",
                ),
            ),
        )
        for side, outside, en, zh, rule, rule_zh, sign, sign_zh, formula in (
            (
                "high",
                "above",
                "high side",
                "上侧",
                "above 1 + ε_high",
                "高于 1 + ε_high",
                "positive",
                "正",
                "r > 1 + ε_high and A > 0",
            ),
            (
                "low",
                "below",
                "low side",
                "下侧",
                "below 1 − ε_low",
                "低于 1 − ε_low",
                "negative",
                "负",
                "r < 1 − ε_low and A < 0",
            ),
        )
    ),
    *(
        Metric(
            f"policy/clip_fraction/{what}",
            "policy",
            Text(en, zh),
            Text(about, about_zh),
            formula,
            "fraction",
            population,
            statistic,
            "mean" if what == "dual" else "none",
            look=Text(look, look_zh),
            next=Text("policy/clip_fraction.", "看 policy/clip_fraction。"),
            part="policy",
            needs=_DUAL_NEEDS if what == "dual" else (),
            names=names,
        )
        for what, en, zh, about, about_zh, formula, population, statistic, look, look_zh, names in (
            (
                "high_max",
                "Clip fraction, high side, worst response",
                "上侧裁剪比例：最严重的回复",
                "The largest share of high-side clipping in any one response.",
                "单条回复中上侧裁剪占比的最大值。",
                "max over responses of the response's high-side clip share",
                "sequences",
                "max",
                "Well below 1.",
                "明显低于 1。",
                differs("clip_ratio/high_max", "trl", by=_GRPO_WINDOW),
            ),
            (
                "low_min",
                "Clip fraction, low side, least response",
                "下侧裁剪比例：最轻微的回复",
                "The smallest share of low-side clipping in any one response.",
                "单条回复中下侧裁剪占比的最小值。",
                "min over responses of the response's low-side clip share",
                "sequences",
                "min",
                "0.",
                "为 0。",
                differs("clip_ratio/low_min", "trl", by=_GRPO_WINDOW),
            ),
            (
                "dual",
                "Dual-clip fraction",
                "双重裁剪比例",
                "The share of tokens with a negative advantage where the dual clip's bound takes over.",
                "优势为负、且由双重裁剪的下界接管的 token 占比。",
                "share of valid tokens with A < 0 and r beyond the dual-clip bound",
                "tokens",
                "share",
                "Near 0.",
                "接近 0。",
                differs("actor/pg_clipfrac_lower", "verl", "trinity", by=MICRO_BATCHES),
            ),
            (
                "cispo",
                "CISPO clip fraction",
                "CISPO 裁剪比例",
                "The share of tokens with a positive advantage whose ratio exceeds CISPO's cap.",
                "优势为正且比值超过 CISPO 上限的 token 占比。",
                "share of valid tokens with r > ε_high and A > 0",
                "tokens",
                "share",
                "Small.",
                "很小。",
                differs("cispo_clip_ratio", "trl", by=_GRPO_WINDOW),
            ),
        )
    ),
    *(
        Metric(
            f"policy/ratio/{what}",
            "policy",
            Text(en, zh),
            Text(
                f"The share of tokens whose ratio is {rule}. The sign of the advantage plays no part: this "
                f"is where the ratio lies, not where the clip binds.",
                f"比值{rule_zh}的 token 占比。与优势的正负无关：它描述比值落在哪里，而不是裁剪是否起作用。",
            ),
            f"share of valid tokens with {formula}",
            "fraction",
            "tokens",
            "share",
            "mean",
            look=Text(
                "Small and steady; at least as large as the matching clip fraction.",
                "小而平稳；不会小于相应的裁剪比例。",
            ),
            next=Text(
                "policy/clip_fraction for what the clip takes away, policy/ratio/max.",
                "看 policy/clip_fraction（裁剪实际去掉了多少）与 policy/ratio/max。",
            ),
            needs=("log_probs", "old_log_probs", "response_mask", "clip"),
            part="policy",
            names=(
                *ours(f"actor/ppo_ratio_{roll}clipfrac", "roll"),
                *differs(
                    f"actor/ppo_ratio_{roll}clipfrac",
                    "roll",
                    by=difference(
                        "mask",
                        "Divided by valid tokens but summed over all positions: tokens of excluded samples "
                        "may be counted, and the share can exceed 1 with sequence-level ratios.",
                        "分母是有效 token，分子却对所有位置求和：被剔除样本的 token 也可能计入，序列级比值"
                        "下占比甚至会超过 1。",
                    ),
                    era="0.2",
                ),
                *differs(
                    f"actor/ppo_ratio_{roll}clipfrac",
                    "roll",
                    by=difference(
                        "mask",
                        "Mean over the whole padded matrix, prompt and padding included: diluted by the "
                        "share of valid tokens.",
                        "对整个填充矩阵（含提示和填充）求平均：被有效 token 占比稀释。",
                        refuse=True,
                    ),
                    era="2025-11",
                ),
            ),
            links=links,
        )
        for what, roll, en, zh, rule, rule_zh, formula, links in (
            (
                "outside",
                "",
                "Ratio outside the clip range",
                "比值越界占比",
                "outside the clip range",
                "超出裁剪范围",
                "r > 1 + ε_high or r < 1 − ε_low",
                (
                    link(
                        "policy/clip_fraction",
                        "The clip binds only where the advantage pushes the ratio further out: that share is smaller.",
                        "只有优势继续把比值往外推时裁剪才起作用，所以裁剪比例更小。",
                    ),
                ),
            ),
            (
                "above",
                "high_",
                "Ratio above the clip range",
                "比值高于上界占比",
                "above 1 + ε_high",
                "高于 1 + ε_high",
                "r > 1 + ε_high",
                (
                    link(
                        "policy/clip_fraction/high",
                        "TRL counts a token only when its advantage is positive as well.",
                        "TRL 只在优势也为正时才计数。",
                    ),
                ),
            ),
            (
                "below",
                "low_",
                "Ratio below the clip range",
                "比值低于下界占比",
                "below 1 − ε_low",
                "低于 1 − ε_low",
                "r < 1 − ε_low",
                (
                    link(
                        "policy/clip_fraction/low",
                        "TRL counts a token only when its advantage is negative as well.",
                        "TRL 只在优势也为负时才计数。",
                    ),
                ),
            ),
        )
    ),
    *(
        Metric(
            f"policy/masked{suffix}",
            "policy",
            Text(f"Masked tokens{en}", f"被屏蔽的 token{zh}"),
            Text(
                f"The share of tokens that prime-rl's loss leaves out because the ratio of trainer to "
                f"inference probability is {rule}.",
                f"因训练与推理概率之比{rule_zh}而被 prime-rl 的损失排除的 token 占比。",
            ),
            "share of tokens masked by the loss",
            "fraction",
            "tokens",
            "share",
            "none",
            look=Text("A few per cent at most.", "至多百分之几。"),
            next=Text(
                "policy/mismatch/kl_k3, sample/staleness/mean.", "看 policy/mismatch/kl_k3 与 sample/staleness/mean。"
            ),
            direction="lower",
            names=(*same(f"is_masked{key}/mean", "prime-rl"), *(same(f"is_masked{key}", "prime-rl") if key else ())),
            links=(
                link(
                    "policy/clip_fraction",
                    "A masked token leaves the loss, a clipped one keeps its value: the two shares are not comparable.",
                    "被屏蔽的 token 退出损失，被裁剪的仍保留数值：两种占比不可比较。",
                ),
                *(
                    (
                        link(
                            f"policy/ratio/{outside}",
                            "prime-rl's mask compares trainer with inference, not current with old.",
                            "prime-rl 的屏蔽比较的是训练与推理，而不是当前与 old。",
                        ),
                    )
                    if outside
                    else ()
                ),
            ),
        )
        for suffix, key, en, zh, rule, rule_zh, outside in (
            ("", "", "", "", "outside its bounds", "越界", "outside"),
            ("/high", "_high", ", high side", "（上侧）", "too high", "过高", "above"),
            ("/low", "_low", ", low side", "（下侧）", "too low", "过低", "below"),
        )
    ),
)

METRICS: tuple[Metric, ...] = (*_RATIO, _RATIO_VARIANCE, *_CLIP)
