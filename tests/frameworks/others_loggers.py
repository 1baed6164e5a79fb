"""The loggers of OpenRLHF and of the Tinker cookbook: ``others_loggers.py openrlhf|tinker|direct [LINES]``."""

import json
import sys
from argparse import Namespace

STEPS = 4


def openrlhf() -> None:
    """Log with OpenRLHF's TensorBoard logger, and the options of the page."""
    from openrlhf.utils.logging_utils import TensorboardLogger

    wandb = Namespace(run_name="first")
    logger = TensorboardLogger(Namespace(logger=Namespace(tensorboard_dir="tensorboard_log", wandb=wandb)))
    for step in range(1, STEPS + 1):
        logger.log_train(step, {"reward": 0.1 * step, "policy_loss": 0.2, "generated_samples": ("text", 1.0)})
    logger.close()


def tinker(**options: str) -> None:
    """Log as the recipes of the Tinker cookbook do."""
    from tinker_cookbook.utils.ml_log import setup_logging

    logger = setup_logging("logs/first", config={"lr": 1e-5, "api_key": "sk-0123456789abcdef"}, **options)
    for step in range(STEPS):
        logger.log_metrics({"env/all/reward/total": 0.1 * step, "optim/lr": 1e-5}, step=step)
    logger.close()


def main(which: str, lines: str = "") -> None:
    """Log with one of them."""
    if which == "openrlhf":
        openrlhf()
    elif which == "tinker":
        tinker()
    else:
        exec(lines, {})
        tinker(wandb_project="math", wandb_name="first")
    print(json.dumps({}))


if __name__ == "__main__":
    main(*sys.argv[1:])
