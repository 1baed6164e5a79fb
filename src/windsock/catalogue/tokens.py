"""Tokens: how long prompts and responses are, and how many responses were cut."""

from windsock.catalogue.declare import difference, differs, link, ours, same, spread, trap
from windsock.catalogue.spec import Band, Metric, Text

_WINDOW_MEAN = difference(
    "window",
    "Averaged over the logging window: with logging_steps > 1 the minimum and maximum are means of per-batch extremes.",
    "对日志窗口取平均：logging_steps > 1 时，最小/最大值是各批次极值的平均。",
)
_ATTENTION = difference(
    "mask population",
    "Counted with the attention mask: tool and observation tokens are in, and aborted responses count as 0.",
    "按注意力掩码计数：工具与观测 token 计入，中止的回复按 0 计。",
)
_FIRST_PROMPT = difference(
    "population",
    "Agentic runs count the first prompt only; observations of later turns count in neither length.",
    "agentic 流水线只统计第一段提示；后续轮次的观测既不算提示也不算回复。",
)
_LONGEST = difference(
    "meaning",
    "Trinity pads to the batch's longest: the share of responses as long as the longest one, at least 1/B, "
    "which says nothing about truncation.",
    "Trinity 按批内最长填充：这里是“与最长者等长”的比例，至少为 1/B，与截断无关。",
    refuse=True,
)
_LONGEST_VERL = difference(
    "meaning",
    "veRL's v1 trainer pads to the batch's longest: the share of ties with the longest, not of truncated responses.",
    "veRL v1 训练器按批内最长填充：这里是与最长者等长的比例，而不是被截断的比例。",
    refuse=True,
)
_PADDED_MAX = difference(
    "meaning",
    "Share equal to the padded width: truncation only while the batch is padded to the configured maximum, "
    "and 0 when max_model_len is the real limit.",
    "与填充宽度等长的比例：仅当批次填充到配置上限时才等于截断；若真正的上限是 max_model_len，则恒为 0。",
)
_PRIME = "train/{env}/{subset}/{agent}"

_TRUNCATED_LOOK = Text(
    "Below about 5%, and not rising. From a quarter on, the verifier scores prefixes; at 1 nothing ever "
    "ends (wrong EOS, or too small a budget).",
    "约 5% 以下且不上升。达到四分之一以上，验证器评的就是半截回答；等于 1 说明没有一条能结束（EOS 配错或长"
    "度上限太小）。",
)

METRICS: tuple[Metric, ...] = (
    *spread(
        "tokens/response_length",
        "tokens",
        Text("Response length", "回复长度"),
        Text(
            "Number of response tokens of a sequence: what the model wrote, without tool output or padding.",
            "每条序列的回复 token 数：只算模型自己写的，不含工具输出与填充。",
        ),
        "{stat} over sequences of Σ_t response_mask",
        unit="tokens",
        population="sequences",
        needs=("response_mask",),
        part="data",
        look=Text(
            "Judge it against the run's own start. Three times longer with a flat reward is length "
            "hacking; a third of it with a flat reward is degenerate stopping.",
            "与自身初期相比。奖励不涨而长度涨到三倍，是靠长度刷分；奖励不涨而长度缩到三分之一，是退化为过早停止。",
        ),
        next=Text(
            "reward/score/mean, tokens/response_truncated, then a few samples.",
            "看 reward/score/mean、tokens/response_truncated，再抽几条样本。",
        ),
        names=(
            *ours("tokens/response_length/{stat}", "roll"),
            *ours("response_length/{stat}", "trinity"),
            *same("tokens/response_length/{stat}", "roll"),
            *same("token/response_length/{stat}", "roll"),
            *differs("completions/{stat}_length", "trl", by=_WINDOW_MEAN),
            *same("tokens/responses_len_mean", "trl", era="ppo-0.11"),
            *differs("completion_length", "trl", by=_WINDOW_MEAN),
            *differs("response_length/{stat}", "trinity", "verl", by=_ATTENTION),
            *same("rollout/response_len/mean", "slime"),
            *same(f"{_PRIME}/num_output_tokens/mean", "prime-rl"),
        ),
        traps=(
            trap(
                "roll",
                "Rows, not trajectories: in step-wise mode each step of an agent is a row.",
                "按行而非按轨迹统计：逐步模式下智能体的每一步是一行。",
            ),
        ),
    ),
    *spread(
        "tokens/prompt_length",
        "tokens",
        Text("Prompt length", "提示长度"),
        Text("Number of prompt tokens of a sequence.", "每条序列的提示 token 数。"),
        "{stat} over sequences of Σ_t prompt_mask (or prompt_lengths)",
        unit="tokens",
        population="sequences",
        needs=("prompt_lengths|prompt_mask",),
        part="data",
        look=Text(
            "Steady: it is a property of the data. A jump means another data mix, template or truncation.",
            "应平稳：它是数据的属性。突变说明数据配比、模板或截断方式变了。",
        ),
        next=Text("tokens/prompt_truncated, the data order.", "看 tokens/prompt_truncated 与数据顺序。"),
        names=(
            *ours("tokens/prompt_length/{stat}", "roll"),
            *ours("prompt_length/{stat}", "trinity"),
            *differs("tokens/prompt_length/{stat}", "roll", by=_FIRST_PROMPT),
            *same("token/prompt_length/{stat}", "roll"),
            *same("tokens/queries_len_mean", "trl", era="ppo-0.11"),
            *same("prompt_length/{stat}", "trinity", "verl"),
        ),
    ),
    *spread(
        "tokens/terminated_length",
        "tokens",
        Text("Length of finished responses", "正常结束的回复长度"),
        Text("Response length of the sequences that ended by themselves.", "自然结束（未被截断）的回复长度。"),
        "{stat} over sequences that ended of response length",
        unit="tokens",
        population="sequences",
        needs=("response_mask", "finished"),
        part="data",
        look=Text("Well below the limit.", "明显低于长度上限。"),
        next=Text("tokens/response_truncated.", "看 tokens/response_truncated。"),
        names=differs(
            "completions/{stat}_terminated_length",
            "trl",
            by=difference(
                "sentinel window",
                "0 when nothing ended in the batch, averaged over the window like a real length.",
                "若批次中没有一条正常结束则记为 0，并与真实长度一起参与窗口平均。",
            ),
        ),
    ),
    *spread(
        "tokens/total_length",
        "tokens",
        Text("Total length", "总长度"),
        Text("Prompt and response tokens of a sequence together.", "每条序列提示与回复的 token 总数。"),
        "{stat} over sequences of prompt + response tokens",
        unit="tokens",
        population="sequences",
        needs=("response_mask", "prompt_lengths|prompt_mask"),
        part="data",
        look=Text("Below the context limit of the model.", "低于模型的上下文上限。"),
        next=Text(
            "tokens/response_length/max, memory peaks of the training phase.",
            "看 tokens/response_length/max 与训练阶段的显存峰值。",
        ),
        names=same("token/total_length/{stat}", "roll"),
    ),
    *spread(
        "tokens/response_length_not_aborted",
        "tokens",
        Text("Length of responses that are not aborted", "未中止回复的长度"),
        Text(
            "Response length over the sequences with at least one response token.",
            "只统计至少有一个回复 token 的序列的长度。",
        ),
        "{stat} over sequences with a response token of response length",
        unit="tokens",
        population="sequences",
        needs=("response_mask",),
        part="data",
        look=Text("As tokens/response_length.", "同 tokens/response_length。"),
        next=Text("tokens/aborted.", "看 tokens/aborted。"),
        names=same("response_length_non_aborted/{stat}", "verl"),
    ),
    Metric(
        "tokens/response_truncated",
        "tokens",
        Text("Truncated responses", "被截断的回复"),
        Text(
            "The share of responses that reached the configured maximum length, so that their end was "
            "never written. Missing without a configured maximum.",
            "达到所设最大长度、因而没写完的回复占比。未给出最大长度时缺失。",
        ),
        "#(response length ≥ configured maximum) / #sequences",
        "fraction",
        "sequences",
        "share",
        "mean",
        look=_TRUNCATED_LOOK,
        next=Text(
            "tokens/response_length/max against the limit, EOS and stop tokens, the chat template; then "
            "reward/zero_std_groups.",
            "对照 tokens/response_length/max 与上限，检查 EOS、停止符和对话模板；再看 reward/zero_std_groups。",
        ),
        direction="lower",
        healthy=Band(
            None,
            0.05,
            Text(
                "AReaL best practices (5% without EOS); in 60 public logs no healthy run reaches 25%",
                "AReaL 最佳实践（无 EOS 占比 5%）；60 份公开日志中没有健康实验达到 25%",
            ),
        ),
        needs=("response_mask", "max_response_length"),
        part="data",
        names=(
            *ours("response_length/clip_ratio", "trinity"),
            *differs("response_length/clip_ratio", "trinity", by=_LONGEST),
            *differs("response_length/clip_ratio", "verl", by=_PADDED_MAX, era="legacy"),
            *differs("response_length/clip_ratio", "verl", by=_LONGEST_VERL, era="v1"),
            *differs(
                "completions/clipped_ratio",
                "trl",
                by=difference(
                    "meaning window",
                    "Share of completions whose last token is neither EOS nor padding: it also counts "
                    "those that a stop string ended, and is averaged over the logging window.",
                    "最后一个 token 既非 EOS 也非填充的回复占比：由停止字符串结束的回复也会算进去，且对日志"
                    "窗口取平均。",
                ),
            ),
            *same("rollout/truncated_ratio", "slime"),
            *same(f"{_PRIME}/is_truncated/mean", "prime-rl"),
            *differs(
                "token/total_response_length/clip",
                "roll",
                by=difference(
                    "unit",
                    "A count of rows, not a share: divide by the number of rows.",
                    "是行数而不是比例：需除以总行数。",
                    refuse=True,
                ),
            ),
        ),
        traps=(
            trap(
                "trl",
                "When it is 1.0, the terminated_length keys read 0, not missing.",
                "等于 1.0 时，terminated_length 各键显示 0 而不是缺失。",
            ),
            trap(
                "verl",
                "It can read 0 although responses are cut: max_model_len minus the prompt may be the limit that binds.",
                "即使回复被截断也可能显示 0：真正起作用的上限可能是 max_model_len 减去提示长度。",
            ),
            trap(
                "trinity",
                "The same key in Trinity counts ties with the longest response; see its difference above.",
                "Trinity 的同名键统计的是与最长回复等长的比例，见上面的差异说明。",
            ),
        ),
    ),
    Metric(
        "tokens/prompt_truncated",
        "tokens",
        Text("Truncated prompts", "被截断的提示"),
        Text(
            "The share of prompts that reached the configured maximum. Missing without a configured maximum.",
            "达到所设最大长度的提示占比。未给出最大长度时缺失。",
        ),
        "#(prompt length ≥ configured maximum) / #sequences",
        "fraction",
        "sequences",
        "share",
        "mean",
        look=Text("0: a cut prompt asks another question.", "应为 0：被截断的提示等于换了一道题。"),
        next=Text(
            "tokens/prompt_length/max, the prompt limit, overlong-prompt filtering.",
            "看 tokens/prompt_length/max、提示长度上限以及超长提示的过滤设置。",
        ),
        direction="lower",
        needs=("prompt_lengths|prompt_mask", "max_prompt_length"),
        part="data",
        names=(
            *ours("prompt_length/clip_ratio", "trinity"),
            *differs("prompt_length/clip_ratio", "trinity", by=_LONGEST),
            *differs("prompt_length/clip_ratio", "verl", by=_PADDED_MAX, era="legacy"),
            *differs("prompt_length/clip_ratio", "verl", by=_LONGEST_VERL, era="v1"),
        ),
    ),
    Metric(
        "tokens/response_length_not_aborted/truncated",
        "tokens",
        Text("Truncated among responses that are not aborted", "未中止回复中的截断比例"),
        Text(
            "As tokens/response_truncated, over sequences with at least one response token.",
            "同 tokens/response_truncated，但只统计至少有一个回复 token 的序列。",
        ),
        "#(response length ≥ maximum) / #(sequences with a response token)",
        "fraction",
        "sequences",
        "share",
        "mean",
        look=_TRUNCATED_LOOK,
        next=Text("tokens/response_truncated.", "看 tokens/response_truncated。"),
        direction="lower",
        needs=("response_mask", "max_response_length"),
        part="data",
        names=differs("response_length_non_aborted/clip_ratio", "verl", by=_PADDED_MAX),
    ),
    Metric(
        "tokens/aborted",
        "tokens",
        Text("Aborted responses", "中止的回复"),
        Text("The share of sequences without a single response token.", "没有任何回复 token 的序列占比。"),
        "#(sequences without a response token) / #sequences",
        "fraction",
        "sequences",
        "share",
        "mean",
        look=Text(
            "0, or a small constant with asynchronous rollouts. Above 5% look for failing tools or servers.",
            "应为 0；异步 rollout 时可为很小的常数。超过 5% 应检查工具或推理服务是否故障。",
        ),
        next=Text(
            "Errors of the rollout engine; reward/score/mean, which counts or leaves out these sequences "
            "depending on the framework.",
            "看 rollout 引擎的报错；另看 reward/score/mean——不同框架对这类序列计入与否不同。",
        ),
        direction="lower",
        healthy=Band(
            None,
            0.05,
            Text(
                "prime-rl training guide: errored rollouts above 5% deserve a look",
                "prime-rl 训练指南：出错的 rollout 超过 5% 就应排查",
            ),
        ),
        needs=("response_mask",),
        part="data",
        names=same("response/aborted_ratio", "verl"),
    ),
    Metric(
        "tokens/eos_count",
        "tokens",
        Text("End tokens", "结束符数量"),
        Text(
            "How many end tokens there are in all responses of the step, over all ranks.",
            "本步所有 rank 的全部回复中结束符的总数。",
        ),
        "Σ over responses of #(tokens in eos_ids)",
        "tokens",
        "steps",
        "sum",
        "sum",
        look=Text(
            "About the number of responses. Falling to 0 means that the policy forgot to stop.",
            "约等于回复条数。降到 0 说明策略忘了怎么停。",
        ),
        next=Text(
            "tokens/response_truncated, a missing-EOS penalty, whether EOS is masked in the loss.",
            "看 tokens/response_truncated、缺失 EOS 惩罚，以及损失中 EOS 是否被掩掉。",
        ),
        needs=("actions", "eos_ids", "response_mask"),
        part="data",
        names=(
            *ours("val/num_eos_tokens", "trl"),
            *differs(
                "val/num_eos_tokens",
                "trl",
                by=difference(
                    "population",
                    "Rank 0 only and in the raw responses: behind the first EOS everything still counts, "
                    "and with pad = EOS every pad does.",
                    "只统计 rank 0，且在未截断的原始回复中计数：第一个 EOS 之后的仍会算；若 pad 与 EOS 相"
                    "同，所有填充都会被计入。",
                ),
                era="ppo",
            ),
        ),
        links=(
            link("tokens/contains_eos", "A count of tokens is not a share of responses.", "token 个数不是回复的比例。"),
        ),
    ),
    Metric(
        "tokens/contains_eos",
        "tokens",
        Text("Responses that end", "包含结束符的回复"),
        Text("The share of responses that contain an end token.", "包含结束符的回复占比。"),
        "#(responses with an end token) / #sequences",
        "fraction",
        "sequences",
        "share",
        "mean",
        look=Text("Near 1.", "接近 1。"),
        next=Text("tokens/response_truncated.", "看 tokens/response_truncated。"),
        direction="higher",
        needs=("actions", "eos_ids", "response_mask"),
        part="data",
        names=differs(
            "val/contain_eos_token",
            "trl",
            by=difference("population", "Rank 0 only.", "只统计 rank 0。"),
            era="online-dpo",
        ),
        links=(
            link("tokens/eos_count", "A share of responses is not a count of tokens.", "回复的比例不是 token 个数。"),
        ),
    ),
)
