"""SFT: the likelihood loss on the same responses, all of them and split by whether they scored."""

from windsock.catalogue.declare import difference, differs, ours, same, trap
from windsock.catalogue.spec import Difference, Metric, Text

_OLD = difference(
    "meaning",
    "Only logged until July 2025, and weighted by the sequence's old probability and its score.",
    "仅在 2025 年 7 月之前记录，且按序列的 old 概率与得分加权。",
    refuse=True,
)
_NEVER = difference(
    "meaning",
    "Documented but never logged: the code of the time called a different loss actor/negative_tis_loss.",
    "文档有此项，但代码从未记录：当时代码中的 actor/negative_tis_loss 是另一种损失。",
    refuse=True,
)
_APART = trap(
    "",
    "The three are means over their own sequences: positive and negative do not add up to the whole.",
    "三者各自对自己的序列求平均：正负两项相加并不等于总的一项。",
)


def _loss(
    id: str, which: str, which_zh: str, condition: str, title: Text, look: Text, theirs: tuple[str, Difference]
) -> Metric:
    pattern, by = theirs
    return Metric(
        f"sft/{id}",
        "sft",
        title,
        Text(
            f"The negative log-likelihood of {which} under the current policy, as a supervised loss would have it.",
            f"当前策略对{which_zh}的负对数似然，即按监督学习方式计算的损失。",
        ),
        f"reduce(−lp) over {condition}",
        "nats/token",
        "tokens",
        "mean",
        "mean",
        look=look,
        next=Text(
            "sft/positive_loss and sft/negative_loss against each other; evaluation/entropy/mean.",
            "对照 sft/positive_loss 与 sft/negative_loss；另看 evaluation/entropy/mean。",
        ),
        direction="none",
        needs=("log_probs", "response_mask", "scores", "loss")
        if id != "loss"
        else ("log_probs", "response_mask", "loss"),
        part="policy",
        names=(*ours(pattern, "roll"), *differs(pattern, "roll", by=by, era="2025-05" if by is _OLD else "")),
        traps=(_APART,),
    )


METRICS: tuple[Metric, ...] = (
    _loss(
        "loss",
        "all responses",
        "全部回复",
        "all sequences",
        Text("SFT loss", "SFT 损失"),
        Text("Falls as the policy grows surer of its own answers.", "随策略对自己的回答越来越确定而下降。"),
        ("actor/sft_loss", _OLD),
    ),
    _loss(
        "positive_loss",
        "responses that scored (score > 0)",
        "得分为正的回复",
        "sequences with score > 0",
        Text("SFT loss of scored responses", "正样本 SFT 损失"),
        Text(
            "Falls, and lies below the loss of the others: the policy prefers what is rewarded.",
            "下降，并低于另一项：策略更偏好得到奖励的回答。",
        ),
        ("actor/positive_sft_loss", _OLD),
    ),
    _loss(
        "negative_loss",
        "responses that did not score (score ≤ 0)",
        "未得分（得分 ≤ 0）的回复",
        "sequences with score ≤ 0",
        Text("SFT loss of unscored responses", "负样本 SFT 损失"),
        Text("Above the loss of scored responses, the gap growing.", "高于正样本损失，且差距逐渐扩大。"),
        ("actor/negative_sft_loss", _NEVER),
    ),
    Metric(
        "sft/train_loss",
        "sft",
        Text("Loss of an SFT run", "SFT 训练损失"),
        Text(
            "The token-normalised loss of a supervised fine-tuning pipeline.", "监督微调流水线的损失，按 token 归一化。"
        ),
        "mean over label tokens of −lp",
        "nats/token",
        "tokens",
        "mean",
        "none",
        look=Text("Falls smoothly.", "平稳下降。"),
        next=Text("The validation loss beside it.", "对照旁边的验证损失。"),
        direction="lower",
        names=same("sft_train/loss", "roll"),
    ),
)
