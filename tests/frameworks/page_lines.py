"""Run the Python lines of docs/frameworks/{trl,accelerate,lightning}.md as they are, with tiny models."""

import functools
import re
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import tiny_loops
import tiny_trl
import torch
import trl
from datasets import Dataset

PAGES = Path(__file__).parents[2] / "docs" / "frameworks"


def blocks(page: str) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


def run_trl() -> None:
    """Run the page of TRL: its first block and that with ``init`` train by themselves."""
    model = str(Path("model").absolute())
    tiny_trl.Qwen2ForCausalLM(tiny_trl.config()).save_pretrained(model)
    tiny: dict[str, Any] = {"max_steps": 2, "per_device_train_batch_size": 4, "num_generations": 4, "bf16": False}
    tiny |= {"max_completion_length": 8, "use_cpu": True, "save_strategy": "no", "logging_steps": 1}
    trl.GRPOConfig = functools.partial(trl.GRPOConfig, **tiny)
    trl.GRPOTrainer = functools.partial(trl.GRPOTrainer, processing_class=tiny_trl.tokenizer())
    names = {"model": model, "reward": tiny_trl.reward, "prompts": Dataset.from_dict({"prompt": ["w1", "w2 w3"] * 8})}
    first, report, settings, with_init, measured = blocks("trl.md")
    exec(first, names)
    exec(report, names)
    make = functools.partial(trl.GRPOTrainer, model, tiny_trl.reward, train_dataset=names["prompts"])
    make(args=names["args"]).train()
    for block in (settings, with_init, measured):
        names["trainer"] = make(args=trl.GRPOConfig("again"))
        exec(block, names)
        if "train()" not in block:
            names["trainer"].train()


def run_lightning() -> None:
    """Run the page of Lightning with a model of one layer."""

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: torch.Tensor) -> torch.Tensor:
            loss = self.layer(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.ones(tiny_loops.STEPS * 50, 2), batch_size=1)
    exec(blocks("lightning.md")[0], {"model": Model(), "data": data})


if __name__ == "__main__":
    run_trl()
    exec(blocks("accelerate.md")[0], {})
    run_lightning()
