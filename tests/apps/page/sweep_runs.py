"""Runs of a sweep, made by a toy training through the public interface: eight settings with five seeds each."""

import math
import random
import time
from pathlib import Path

import barograph

RATES = (1e-6, 3e-6, 1e-5, 3e-5)
CLIPS = (0.2, 0.4)
SEEDS = range(5)
STEPS = 24
COLLAPSED = "lr3e-05-clip0.4-s3"
"""The run that collapses at step 14."""
BEST = (1e-5, 0.2)
"""Learning rate and clip range of the best setting."""
WRONG = "the answer is 41"
"""The completion that got the highest reward among the wrong ones, in the run of the best setting with seed 0."""
FRAMEWORKS = {
    "from-roll": ("roll", "actor/entropy_loss"),
    "from-trl": ("trl", "entropy"),
    "from-verl": ("roll", "actor/entropy"),
}


def make_sweep(dir: Path) -> None:
    """Make the forty runs, each of a fraction of a second."""
    for rate in RATES:
        for clip in CLIPS:
            for seed in SEEDS:
                make_run(dir, rate, clip, seed)


def make_two_settings(dir: Path, seeds: int) -> Path:
    """Make so many seeds of two settings; return the directory."""
    for rate in (1e-5, 3e-5):
        for seed in range(seeds):
            make_run(dir, rate, 0.2, seed)
    return dir


def final_score(rate: float, clip: float) -> float:
    """Return the validation that a setting reaches: highest at 1e-5 and 0.2."""
    return 0.8 - 0.25 * abs(math.log10(rate / 1e-5)) - 0.5 * (clip - 0.2)


def make_run(dir: Path, rate: float, clip: float, seed: int) -> None:
    name = f"lr{rate:g}-clip{clip}-s{seed}"
    config = {"actor": {"lr": rate, "clip": clip}, "seed": seed, "run_name": name, "model": "toy"}
    run = barograph.init(
        project="sweep", name=name, id=name, dir=dir, config=config, group=f"lr{rate:g}", tags=["sweep"]
    )
    noise = random.Random(f"{rate} {clip} {seed}")
    reached = final_score(rate, clip) + noise.gauss(0, 0.01)
    is_detailed = (rate, clip, seed) == (*BEST, 0)
    for step in range(STEPS):
        sick = name == COLLAPSED and step >= 14
        grown = 1 - math.exp(-step / 5)
        values = {
            "critic/score/mean": 0.02 if sick else reached * grown + noise.gauss(0, 0.005),
            "actor/entropy_loss": 0.001 if sick else 0.6 - 0.2 * grown,
            "actor/approxkl": 3.0 * (step - 13) if sick else 0.004 + noise.random() / 1000,
            "tokens/response_length/mean": 200.0 + step,
        }
        if step % 4 == 3:
            values["val/score/mean"] = 0.01 if sick else reached * grown
        if is_detailed:
            log_details(run, step)
        run.log(values, step=step)
        run.commit(step)
    run.finish()


def log_details(run: barograph.Run, step: int) -> None:
    """Log samples, of which one is wrong and got a high reward, and phases, of which one is long at step 12."""
    for number in range(3):
        is_odd = step == 9 and number == 1
        completion = WRONG if is_odd else f"the answer is {number}"
        run.sample("6 x 7?", completion, reward=0.95 if is_odd else number / 4, task="q", correct=number == 2)
    with run.phase("actor_infer/generate"):
        time.sleep(0.06 if step == 12 else 0.001)
    with run.phase("actor_train/train_step"):
        time.sleep(0.001)


def make_frameworks(dir: Path) -> None:
    """Make three runs that log the entropy under the names of three frameworks."""
    for name, (vocabulary, metric) in FRAMEWORKS.items():
        run = barograph.init(project="frameworks", name=name, id=name, dir=dir, vocabulary=vocabulary)
        for step in range(6):
            run.log({metric: 0.5 - step / 20, "mine": 1.0}, step=step)
        run.finish()
