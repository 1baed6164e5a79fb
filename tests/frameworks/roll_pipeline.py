"""ROLL's ``create_tracker`` with a config in its form, called as its pipelines do. ``roll_pipeline.py IMPORT YAML``."""

import json
import sys
from typing import Any

from omegaconf import OmegaConf
from roll.utils.tracking import create_tracker, tracker_registry

STEPS = 4


def values(step: int) -> dict[str, Any]:
    """Return the metrics of a step, in all forms that ROLL logs."""
    return {
        "actor/pg_loss@sum": 0.1 * step,
        "actor_train/grad_norm": 0.5,
        "critic/score/mean": 0.2 * step,
        "val/pass@1": 0.3,
        "val/pass@8": 0.7,
        "time": {"step_train": 2.0, "step_rollout": 4.0},
        "prompt": f"prompt of step {step}",
        "system/step": step,
    }


def main(line: str, yaml: str) -> None:
    """Log some steps, and what cannot be recorded."""
    assert "barograph" not in tracker_registry
    exec(line, {})
    config: dict[str, Any] = OmegaConf.to_container(OmegaConf.create(yaml))  # type: ignore[assignment]
    config["tracker_kwargs"]["api_key"] = "sk-0123456789abcdef"
    tracker = create_tracker(config["track_with"], {**config, "seed": 42}, **config["tracker_kwargs"])
    for step in range(STEPS):
        tracker.log(values=values(step), step=step)
    tracker.log(values={"later": 1.0})
    path = str(tracker.run.path)
    tracker.finish()
    tracker.log(values={"after": 1.0}, step=9)
    tracker.log(values=None, step=10)
    broken = create_tracker("barograph", {}, dir=__file__)
    broken.log(values=values(1), step="x")
    broken.finish()
    print(json.dumps({"path": path}))


if __name__ == "__main__":
    main(*sys.argv[1:])
