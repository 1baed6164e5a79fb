"""Tiny loops with Accelerate and Lightning: ``tiny_loops.py [accelerate] [lightning] [failing] [crash]``.

Lightning's fit fails in ``failing``, which goes on, and the loop of Accelerate in ``crash``, which ends the process.
"""

import json
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import torch
from accelerate import Accelerator
from process_end import end_process

import barograph.accelerate  # noqa: F401 - makes log_with="barograph" known

STEPS = 5


def accelerate(crash: bool = False) -> None:
    """Train a linear model as the documentation of Accelerate does."""
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, log_with="barograph")
    accelerator.init_trackers(
        "tiny", config={"lr": 0.1, "api_key": "planted-secret"}, init_kwargs={"barograph": {"name": "loop"}}
    )
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    phase = accelerator.get_tracker("barograph", unwrap=True).phase if accelerator.is_main_process else nullcontext
    losses = []
    for step in range(STEPS):
        with phase("backward"):
            loss = model(torch.ones(4, 2)).square().mean()
            accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        accelerator.log({"loss": loss, "note": f"step {step}"}, step=step)
        if crash and step == 2:
            raise RuntimeError("out of data")
    accelerator.end_training()
    if accelerator.is_main_process:
        Path("accelerate.json").write_text(json.dumps(losses))


def lightning(failing: bool = False) -> None:
    """Fit and test a model with a Trainer of Lightning."""
    import lightning.pytorch as pl

    from barograph.integrations.frameworks.lightning import BarographLogger

    class Model(pl.LightningModule):
        def __init__(self, lr: float = 0.1, api_key: str = "planted-secret") -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(2, 1)
            self.losses: list[float] = []

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            if failing and self.global_step == 3:
                raise RuntimeError("out of data")
            loss = self.layer(batch).square().mean()
            self.log("loss", loss)
            self.losses.append(loss.item())
            return loss

        def test_step(self, batch: torch.Tensor) -> None:
            self.log("test_loss", self.layer(batch).square().mean())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    pl.seed_everything(0)
    data = torch.utils.data.DataLoader(torch.ones(STEPS * 4, 2), batch_size=4)
    model = Model()
    name = "failed" if failing else "fitted"
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, log_every_n_steps=1, logger=BarographLogger(name=name), **quiet
    )
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    Path("lightning.json").write_text(json.dumps(model.losses))


def main(*loops: str) -> None:
    """Run one loop after the other."""
    for loop in loops:
        if loop == "failing":
            with suppress(RuntimeError):
                lightning(failing=True)
        elif loop == "lightning":
            lightning()
        else:
            accelerate(crash=loop == "crash")


if __name__ == "__main__":
    main(*sys.argv[1:])
    end_process()
