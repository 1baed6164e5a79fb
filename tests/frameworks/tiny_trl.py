"""Run a tiny training of one of TRL's trainers on the CPU, and write what it logs as JSON.

``tiny_trl.py TRAINER FILE [TRACKER]``: with a tracker the training is shorter, reports to it, and writes its state
beside the file.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
os.environ.setdefault("WANDB_MODE", "disabled")

import datasets.fingerprint
import torch
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

STEPS, REPORTED_STEPS = 25, 8
# The default fingerprint pickles the functions of this file with everything that they refer to.
datasets.fingerprint.Hasher.hash = classmethod(lambda cls, value: os.urandom(8).hex())


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of 64 words."""
    words = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(61))]
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def config(**more: Any) -> Qwen2Config:
    """Return the config of a model of two layers."""
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 128}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    return Qwen2Config(**sizes, **heads, pad_token_id=0, eos_token_id=1, bos_token_id=1, **more)


def reward(completions: list[str], **_: Any) -> list[float]:
    """Return a reward by the number of words."""
    return [float(len(text.split()) % 3) for text in completions]


def rollout_with_tool(prompts: list[str], trainer: Any) -> dict[str, Any]:
    """Return completions of random words, each with two words inside that a tool and not the model wrote."""
    own = [1 + place % 3 for place in range(len(prompts))]
    drawn = [torch.randint(3, 64, (count + 3,)).tolist() for count in own]
    return {
        "prompt_ids": [trainer.processing_class(prompt)["input_ids"] for prompt in prompts],
        "completion_ids": [[*ids, 1] for ids in drawn],
        "env_mask": [[1] * count + [0, 0, 1, 1] for count in own],
        "logprobs": None,
    }


def trainer(which: str, folder: Path, trackers: list[str], score: Any = reward, **more: Any) -> Any:
    """Return one of the trainers, whose config has ``more``."""
    steps = REPORTED_STEPS if trackers else STEPS
    words = tokenizer()
    # Of its own: a process that loads a model must not find one that another process is still writing.
    model = str(folder / f"model-{os.environ.get('RANK', '0')}")
    Qwen2ForCausalLM(config()).save_pretrained(model)
    words.save_pretrained(model)
    common = {"output_dir": str(folder / "out"), "max_steps": steps, "per_device_train_batch_size": 4, "bf16": False}
    common |= {"logging_steps": 1, "report_to": trackers, "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}
    common |= more
    evaluated = {"eval_strategy": "steps", "eval_steps": 10}
    sampled = {"num_generations": 4, "max_completion_length": 8, "learning_rate": 1e-3, **common}
    prompts = Dataset.from_dict({"prompt": ["w1 w2 w3", "w4 w5", "w6 w7 w8 w9", "w10"] * 8})
    pairs = Dataset.from_dict({
        "prompt": ["w1 w2", "w3"] * 16, "chosen": [" w4 w5", " w6"] * 16, "rejected": [" w7", " w8 w9"] * 16
    })  # fmt: skip
    few = pairs.select(range(4))
    if which == "grpo":
        arguments = trl.GRPOConfig(beta=0.04, **sampled)
        return trl.GRPOTrainer(model, score, arguments, train_dataset=prompts, processing_class=words)
    if which == "rloo":
        return trl.RLOOTrainer(model, score, trl.RLOOConfig(**sampled), train_dataset=prompts, processing_class=words)
    if which == "sft":
        texts = Dataset.from_dict({"text": ["w1 w2 w3 w4"] * 16})
        arguments = trl.SFTConfig(max_length=32, **evaluated, **common)
        return trl.SFTTrainer(model, arguments, train_dataset=texts, eval_dataset=texts, processing_class=words)
    if which == "dpo":
        arguments = trl.DPOConfig(max_length=32, **evaluated, **common)
        return trl.DPOTrainer(model, args=arguments, train_dataset=pairs, eval_dataset=few, processing_class=words)
    if which == "kto":
        columns = {"prompt": ["w1 w2", "w3"] * 16, "completion": [" w4 w5", " w6"] * 16, "label": [True, False] * 16}
        data, arguments = Dataset.from_dict(columns), trl.KTOConfig(max_length=32, **common)
        return trl.KTOTrainer(model, args=arguments, train_dataset=data, processing_class=words)
    scorer = Qwen2ForSequenceClassification(config(num_labels=1))
    arguments = trl.RewardConfig(max_length=32, **common)
    return trl.RewardTrainer(scorer, arguments, train_dataset=pairs, processing_class=words)


def main(which: str, file: Path, *trackers: str) -> None:
    """Train, and write the numbers by name."""
    torch.manual_seed(0)
    made = trainer(which, file.parent, list(trackers))
    if "swanlab" in trackers:  # the Trainer of transformers cannot start one of SwanLab 0.10
        importlib.import_module("swanlab").init(project="tiny", mode="offline")
    made.train()
    if trackers:
        made.state.save_to_json(str(file.parent / "trainer_state.json"))
    found: dict[str, list[float]] = {}
    for row in made.state.log_history:
        for name, value in row.items():
            if isinstance(value, int | float):
                found.setdefault(name, []).append(float(value))
    file.write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
