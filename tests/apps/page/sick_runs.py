"""A run with a finding that is over and one that is open, and a healthy one."""

import math
import random

import barograph

CUT_UNTIL = 15  # nearly all answers are cut off before this step
ONSET = 40  # from which on the gradient norm is NaN


def log_step(run: barograph.Run, step: int, is_sick: bool = True) -> None:
    """Log a step of a run whose reward rises, with what makes it sick."""
    noise = random.Random(step).random()
    run.log(
        {
            "reward/score/mean": 0.2 + step / 150 + 0.02 * noise,
            "actor/pg_loss": 0.02 * noise,
            "actor/entropy": 1.0 - 0.002 * step + 0.02 * noise,
            "actor/grad_norm": math.nan if is_sick and step >= ONSET else 0.5 + 0.05 * noise,
            "system/tokens_total": 1000.0 * (step + 1),
            "tokens/response_length/mean": 200 + 5 * noise,
            "tokens/response_truncated": 0.98 if is_sick and step < CUT_UNTIL else 0.01 * noise,
        },
        step=step,
    )


def record(id: str, steps: int = 60, is_sick: bool = True) -> barograph.Run:
    """Record a finished run."""
    run = barograph.init(id=id, project="p", name=id)
    for step in range(steps):
        log_step(run, step, is_sick)
    run.finish()
    return run
