"""Formulas said in Chinese: what they average over is put into words, the mathematics stays."""

from __future__ import annotations

import re

_STATISTICS_ZH = {
    "mean": "均值",
    "max": "最大值",
    "min": "最小值",
    "std": "标准差",
    "std (ddof 1)": "标准差（ddof 1）",
    "variance (ddof 0)": "方差（ddof 0）",
    "Σ": "和",
    "sum": "和",
    "last": "末值",
    "{stat}": "统计量",
}
_POPULATIONS_ZH = {
    "valid tokens": "有效 token ",
    "tokens": " token ",
    "label tokens": "标签 token ",
    "sequences (episodes)": "序列（或回合）",
    "sequences": "序列",
    "sequences that ended": "正常结束的序列",
    "sequences with a response token": "有回复 token 的序列",
    "scored sequences": "已打分的序列",
    "tasks": "任务",
    "runs": "运行",
    "experiences": "经验",
    "groups": "组",
    "samples": "样本",
    "pairs": "样本对",
    "requests": "请求",
    "steps": "步",
    "responses": "回复",
    "validation episodes": "验证回合",
    "validation episodes with the tag": "带该标签的验证回合",
    "trajectories": "轨迹",
    "micro-batches": "微批次",
    "data-parallel shards": "数据并行分片",
    "ranks": " rank ",
}
_QUANTITIES_ZH = {
    "score": "得分",
    "score, aborted sequences left out": "得分，不计中止的序列",
    "Σ_t reward_t, aborted sequences left out": "Σ_t reward_t，不计中止的序列",
    "prompt + response tokens": "提示 + 回复 token 数",
    "response length": "回复长度",
    "Σ_t prompt_mask (or prompt_lengths)": "Σ_t prompt_mask（或 prompt_lengths）",
    "weight": "权重",
    "the component": "该分量",
    "the model version": "模型版本",
    "(trainer version − sample version)": "（训练器版本 − 样本版本）",
    "(version after − version before the run)": "（运行后版本 − 运行前版本）",
    "the group's mean reward": "组内平均奖励",
    "the group's reward std": "组内奖励标准差",
    "seconds": "秒数",
    "episodes": "回合数",
    "tokens": "token 数",
    "sequences trained on": "训练过的序列数",
    "#(tokens in eos_ids)": "#（属于 eos_ids 的 token）",
    "the difference": "差值",
    "the ratio": "比值",
    "the auxiliary loss": "辅助损失",
    "row length": "行长",
    "accepted / drafted": "接受数 / 草稿数",
    "accepted per verification": "每次验证接受数",
    "std (ddof 0) over runs": "对运行求标准差（ddof 0）",
    "the bootstrap std of best@k": "best@k 的自举标准差",
    "the bootstrap std of worst@k": "worst@k 的自举标准差",
    "the bootstrap std of maj@k": "maj@k 的自举标准差",
    "the value of the majority answer of k draws": "k 次抽取中多数答案的得分",
    "the response's high-side clip share": "该回复的上侧裁剪占比",
    "the response's low-side clip share": "该回复的下侧裁剪占比",
    "Σ_i v_(i) · ((i/n)^k − ((i−1)/n)^k), v sorted upwards": "Σ_i v_(i) · ((i/n)^k − ((i−1)/n)^k)，v 升序",
    "Σ_i v_(i) · ((i/n)^k − ((i−1)/n)^k), v sorted downwards": "Σ_i v_(i) · ((i/n)^k − ((i−1)/n)^k)，v 降序",
}
_FORMULAS_ZH = {
    "#(chosen > rejected) / #pairs": "#（被选 > 被拒）/ #样本对",
    "#(groups with zero reward spread) / #groups": "#（组内奖励全相同的组）/ #组",
    "#(masked sequences) / #(sequences)": "#（被屏蔽的序列）/ #序列",
    "#(masked tokens) / #(tokens)": "#（被屏蔽的 token）/ #token",
    "#(prompt length ≥ configured maximum) / #sequences": "#（提示长度 ≥ 所设上限）/ #序列",
    "#(response length ≥ configured maximum) / #sequences": "#（回复长度 ≥ 所设上限）/ #序列",
    "#(responses with an end token) / #sequences": "#（含结束符的回复）/ #序列",
    "#(score = 1) / #samples": "#（得分 = 1）/ #样本",
    "#(sequences with a token left by keep)": "#（过滤后仍有 token 的序列）",
    "#(sequences without a response token) / #sequences": "#（没有回复 token 的序列）/ #序列",
    "#(such groups) / #groups": "#（此类组）/ #组",
    "#(|unclipped reward| > reward_clip) / #sequences": "#（|未裁剪奖励| > reward_clip）/ #序列",
    "#distinct tasks among the samples": "#样本中不同的任务",
    "#experiences after the last operator": "#经过最后一个算子后的经验",
    "#experiences removed": "#被剔除的经验",
    "#finished tasks": "#完成的任务",
    "#sequences": "#序列",
    "#stale samples": "#陈旧样本",
    "1 or 0": "1 或 0",
    "1 − Var(R − V0) / Var(R) over valid tokens, ddof 0": "1 − Var(R − V0) / Var(R)，对有效 token，ddof 0",
    "as logged": "以记录为准",
    "as named by the rule": "由规则决定",
    "as reported by the operator": "由算子上报",
    "as reported by the sampling strategy": "由采样策略上报",
    "calls / samples": "调用次数 / 样本数",
    "corr(p_train, p_rollout) over valid tokens": "corr(p_train, p_rollout)，对有效 token",
    "episodes of the step / seconds of the step": "本步回合数 / 本步秒数",
    "failed calls / calls": "失败调用 / 调用",
    "generated tokens / seconds of generation": "生成的 token 数 / 生成秒数",
    "lr of parameter group 0 at the last critic update of the step": "本步最后一次价值更新时参数组 0 的学习率",
    "lr of parameter group 0 at the last policy update of the step": "本步最后一次策略更新时参数组 0 的学习率",
    "max over ranks of the peak since the step began": "对 rank 求最大值：自本步开始以来的峰值",
    "max_allocated at end/onload / total memory of the device": "end/onload 时的 max_allocated / 设备显存总量",
    "max_reserved at end/onload / total memory of the device": "end/onload 时的 max_reserved / 设备显存总量",
    "model FLOPs / (seconds × peak FLOP/s × devices)": "模型 FLOPs /（秒数 × 峰值 FLOP/s × 设备数）",
    "model FLOPs / seconds / devices / 10¹²": "模型 FLOPs / 秒数 / 设备数 / 10¹²",
    "prompts seen / prompts in the data": "已用提示数 / 数据中的提示数",
    "reduce(−lp) over all sequences": "reduce(−lp)，全部序列",
    "reduce(−lp) over sequences with score > 0": "reduce(−lp)，得分 > 0 的序列",
    "reduce(−lp) over sequences with score ≤ 0": "reduce(−lp)，得分 ≤ 0 的序列",
    "rss of the process at that moment": "该时刻进程的 rss",
    "vms of the process at that moment": "该时刻进程的 vms",
    "seconds of the operation / tokens it processed": "该操作的秒数 / 其处理的 token 数",
    "max of exp(old − roll)": "exp(old − roll) 的最大值",
    "mean of exp(old − roll)": "exp(old − roll) 的均值",
    "min of exp(old − roll)": "exp(old − roll) 的最小值",
    "mean of min(w, cap)": "min(w, 上限) 的均值",
    "mean of mismatch KL / entropy": "失配 KL / 熵 的均值",
    "maximum after balancing over data-parallel shards of tokens": "均衡后各数据并行分片 token 数的最大值",
    "maximum over data-parallel shards of tokens": "各数据并行分片 token 数的最大值",
    "minimum after balancing over data-parallel shards of tokens": "均衡后各数据并行分片 token 数的最小值",
    "minimum over data-parallel shards of tokens": "各数据并行分片 token 数的最小值",
    "spread over data-parallel shards of tokens": "各数据并行分片 token 数的极差",
    "prompt tokens of the slowest trajectory": "最慢轨迹的提示 token 数",
    "response tokens of the slowest trajectory": "最慢轨迹的回复 token 数",
    "share of raw w < lower bound": "原始权重 w < 下界 的占比",
    "share of raw w > upper bound": "原始权重 w > 上界 的占比",
    "share of w outside the bounds": "w 越界的占比",
    "β · Σ_t (lp − ref) of the chosen answer, mean over pairs": "对样本对求均值：被选回答的 β · Σ_t (lp − ref)",
    "β · Σ_t (lp − ref) of the rejected answer, mean over pairs": "对样本对求均值：被拒回答的 β · Σ_t (lp − ref)",
    "mean over pairs of (score of chosen − score of rejected)": "对样本对求均值：（被选得分 − 被拒得分）",
    "mean over pairs of Σ_t lp of the chosen answer": "对样本对求均值：被选回答的 Σ_t lp",
    "mean over pairs of Σ_t lp of the rejected answer": "对样本对求均值：被拒回答的 Σ_t lp",
    "share of tokens masked by the loss": "被损失屏蔽的 token 占比",
    "step": "步数",
    "tokens of the step / (seconds of the step × devices)": "本步 token 数 /（本步秒数 × 设备数）",
    "tokens of the step / seconds of the step": "本步 token 数 / 本步秒数",
    "total − available memory of the host": "主机内存总量 − 可用量",
    "trained tokens / seconds of training": "训练的 token 数 / 训练秒数",
    "valid samples / total samples": "有效样本数 / 样本总数",
    "version": "版本号",
    "wall seconds of the execute stretch of the phase": "该阶段 execute 一段的墙钟秒数",
    "wall seconds of the offload stretch of the phase": "该阶段 offload 一段的墙钟秒数",
    "wall seconds of the onload stretch of the phase": "该阶段 onload 一段的墙钟秒数",
    "Σ wall seconds of this timer in the step": "本步内该计时器墙钟秒数之和",
    "‖∇ total loss‖₂ before clipping": "‖∇ 总损失‖₂，裁剪之前",
    "‖∇ value loss‖₂ before clipping": "‖∇ 价值损失‖₂，裁剪之前",
}
_FORMULAS_ZH.update(
    (
        (
            "#(response length ≥ maximum) / #(sequences with a response token)",
            "#（回复长度 ≥ 上限）/ #（有回复 token 的序列）",
        ),
        (
            "reduce(weight · −min(r · A, clip(r) · A)), not divided by Σ weights",
            "reduce(weight · −min(r · A, clip(r) · A))，不除以权重之和",
        ),
        (
            "reduce(−min(r · A, clip(r) · A)); with dual clip bounded for A < 0",
            "reduce(−min(r · A, clip(r) · A))；启用双重裁剪时，A < 0 处另有下界",
        ),
        (
            "share of valid tokens with A < 0 and r beyond the dual-clip bound",
            "有效 token 中 A < 0 且 r 超出双重裁剪界的占比",
        ),
        (
            "torch.cuda.max_memory_allocated(device) since the states were loaded",
            "torch.cuda.max_memory_allocated(device)，自状态加载完成起",
        ),
        (
            "½ · reduce(max((V − R)², (clip(V, V0 ± c) − R)²)); without clip ½ · reduce((V − R)²)",
            "½ · reduce(max((V − R)², (clip(V, V0 ± c) − R)²))；无裁剪时 ½ · reduce((V − R)²)",
        ),
    )
)
_STATISTIC = re.compile(
    r"(\{stat\}|mean|max|min|std|sum|last|Σ|std \(ddof 1\)|variance \(ddof 0\)) over "
    r"(.+)"
)
_SHARE = re.compile(r"share of (valid tokens|sequences) with (.+)")


def formula(text: str, lang: str) -> str:
    """Say a formula in a language: what it averages over is put into words, the mathematics stays."""
    if lang != "zh" or text in _FORMULAS_ZH:
        return text if lang != "zh" else _FORMULAS_ZH[text]
    share = _SHARE.fullmatch(text)
    if share:
        condition = share[2].replace(" and ", " 且 ").replace(" or ", " 或 ")
        return f"{_POPULATIONS_ZH[share[1]]}中满足 {condition} 的占比"
    found = _STATISTIC.fullmatch(text)
    population, _, rest = found[2].partition(" of ") if found else ("", "", "")
    if found is None or population not in _POPULATIONS_ZH:
        return text
    said = f"对{_POPULATIONS_ZH[population]}求{_STATISTICS_ZH[found[1]]}"
    return f"{said}：{_QUANTITIES_ZH.get(rest) or formula(rest, lang)}" if rest else said
