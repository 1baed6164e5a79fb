"""Train tiny models with TRL in one process while barograph records: ``watched_trl.py FOLDER STEPS TRAINING...``.

A training is a trainer with a way to record: ``grpo`` is watched, ``sft:report`` reports to barograph, ``grpo:plain``
is not recorded, ``grpo:broken`` is watched by a barograph that fails at every turn, ``sft:unbegun`` by one that cannot
begin a run, ``grpo:crash`` raises in step 5, and ``grpo:resume`` goes on from the last checkpoint of that; in
``grpo:tool`` a tool writes a part of each completion, and the policy is not the one that sampled. What each logs is
written as JSON.
"""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tiny_trl
import torch
from process_end import end_process

import barograph
import barograph.trl
from barograph.integrations.frameworks.trl import TrlRollouts
from barograph.journal.write.writer import JournalWriter

CRASH_STEP = 5
FAILING = ("broken", "unbegun")
BREAKABLE = [(JournalWriter, name) for name in ("row", "commit", "record", "samples", "event")] + [
    (TrlRollouts, "_own")
]


def reward_until_crash(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
    """Return rewards until the step in which the training fails."""
    if trainer_state.global_step == CRASH_STEP - 1:
        raise RuntimeError("the reward model is gone")
    return tiny_trl.reward(completions)


def keep_arrays(trainer: Any) -> list[dict[str, Any]]:
    """Return a list that gets the arrays of every micro-batch of an update, as the trainer computes its loss from."""
    kept: list[dict[str, Any]] = []
    compute_loss, compute_log_probs = trainer._compute_loss, trainer._get_per_token_logps_and_entropies
    newest: list[Any] = [None]

    def log_probs(*args: Any, **kwargs: Any) -> Any:
        newest[0] = compute_log_probs(*args, **kwargs)
        return newest[0]

    def loss(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        result = compute_loss(model, inputs, *args, **kwargs)
        arrays = {name: tensor.clone() for name, tensor in inputs.items() if isinstance(tensor, torch.Tensor)}
        now = {"log_probs": newest[0][0].detach().clone(), "entropy": newest[0][1].detach().clone()}
        kept.append({**arrays, **now, "step": trainer.state.global_step})
        return result

    trainer._compute_loss, trainer._get_per_token_logps_and_entropies = loss, log_probs
    return kept


def use_tool(trainer: Any) -> None:
    """Let a tool write a part of each completion, and dropout make every pass of the policy another one."""
    trainer.rollout_func = tiny_trl.rollout_with_tool
    for module in trainer.model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.5
    for weights in trainer.model.parameters():
        weights.data.mul_(8)  # those of a new model are so small that all words are as likely


def train(which: str, how: str, folder: Path, steps: int) -> None:
    """Train once."""
    torch.manual_seed(0)
    name = f"{how} {which}" if how in FAILING else f"tiny {which}"
    more: dict[str, Any] = {"max_steps": steps, "run_name": name, "project": "tiny", "hub_token": "hf_planted_secret"}
    if how in ("crash", "resume"):
        more |= {"save_strategy": "steps", "save_steps": 2}
    if how == "tool":
        more |= {"num_iterations": 2}  # so that TRL computes the log-probs of the policy that sampled
    score = reward_until_crash if how == "crash" else tiny_trl.reward
    trainer = tiny_trl.trainer(which, folder, ["barograph"] if how == "report" else [], score, **more)
    run = barograph.init(name=name) if how == "broken" else None
    if how == "tool":
        use_tool(trainer)
    kept = keep_arrays(trainer) if which == "grpo" and how in ("watch", "tool") else []
    if how not in ("plain", "report"):
        barograph.watch(trainer, run, measure=which == "grpo")
    with ExitStack() as stack:
        for owner, method in BREAKABLE if how in FAILING else ():
            stack.enter_context(patch.object(owner, method, side_effect=RuntimeError("barograph is broken")))
        trainer.train(resume_from_checkpoint=how == "resume")
    if run is not None:
        run.finish()
    if which == "dpo":
        trainer.evaluate()  # as TRL's own scripts do: the run is still open
    if kept:
        torch.save(kept, folder / f"arrays-{trainer.accelerator.process_index}.pt")
    if trainer.is_world_process_zero():
        (folder / f"{which}-{how}.json").write_text(json.dumps(trainer.state.log_history))


def main(folder: Path, steps: int, *trainings: str) -> None:
    """Train one after the other."""
    for training in trainings:
        which, _, how = training.partition(":")
        train(which, how or "watch", folder, steps)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
    end_process()
