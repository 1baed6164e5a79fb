"""The driver of the veRL tests: veRL's own ``Tracking``, in this process and in actors of Ray.

``verl_driver.py OVERRIDES`` takes the overrides of ``verl.trainer.main_ppo`` as one text, and prints what it found as
JSON. Values are those of veRL's functions in form; nothing is trained.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import ray
import verl

LOADED = sorted(name for name in sys.modules if name.startswith("barograph"))

# ruff: noqa: E402
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from verl.utils.tracking import Tracking, ValidationGenerationsLogger

import barograph

STEPS = 6


def configured(overrides: list[str]) -> Any:
    """Return veRL's config with overrides, as its command has it."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=[*overrides, "+trainer.api_key=sk-0123456789abcdef"])


def tracking(config: Any) -> Tracking:
    """Return the object that veRL's trainers make."""
    plain = OmegaConf.to_container(config, resolve=True)
    return Tracking(config.trainer.project_name, config.trainer.experiment_name, config.trainer.logger, plain)


def values(step: int) -> dict[str, Any]:
    """Return the metrics of a step."""
    scores = {"critic/score/mean": 0.1 * step, "critic/rewards/mean": 0.1 * step, "response_length/mean": 200.0 + step}
    actor = {
        "actor/pg_loss": 0.01,
        "actor/ppo_kl": 0.001,
        "actor/entropy": 0.5,
        "actor/grad_norm": 0.3,
        "actor/lr": 1e-6,
    }
    times = {"timing_s/gen": 4.0, "timing_s/update_actor": 2.0, "timing_s/step": 7.0, "perf/throughput": 900.0}
    return {**scores, **actor, **times, "training/global_step": step}


def train(config: Any, exit_code: int) -> str:
    """Log as veRL's PPO trainer does, and return the path of the run."""
    logger = tracking(config)
    run = logger.logger["barograph"].run
    generations = ValidationGenerationsLogger(config.trainer.project_name, config.trainer.experiment_name)
    generations.log(config.trainer.logger, [("2 + 2 = ?", "4", 1.0), ("3 + 3 = ?", "7", 0.0)], 0)
    logger.log(data={"val-core/gsm8k/acc/mean@1": 0.5}, step=0)
    for step in range(1, STEPS):
        logger.log(data=values(step), step=step)
    if hasattr(logger, "finish"):
        logger.finish(exit_code=exit_code)
    del logger
    return str(run.path)


@ray.remote(num_cpus=0)
class TaskRunner:
    """The actor in which veRL trains."""

    def run(self, config: Any) -> str:
        return train(config, exit_code=1)


@ray.remote(num_cpus=0)
class Rollouter:
    """An actor that validates, and that joins the run with the lines of the page."""

    def validate(self, config: Any) -> str:
        generations = ValidationGenerationsLogger(config.trainer.project_name, config.trainer.experiment_name)
        generations.log(config.trainer.logger, [("4 + 4 = ?", "8", 1.0)], 3)
        return barograph.integrations.frameworks.verl._runs[
            config.trainer.project_name, config.trainer.experiment_name
        ].id

    def judge(self, lines: str) -> str:
        exec(lines, found := {"seconds": 2.0, "failures": 1, "step": 4})
        return str(found["run"].writer.role)


def mishaps(config: Any) -> dict[str, Any]:
    """Use the logger after the end of its run, for a training that resumes, and where nothing can be written."""
    found: dict[str, Any] = {}
    logger = tracking(config)
    run = logger.logger["barograph"].run
    run.finish()
    logger.log(data=values(1), step=1)
    logger.log(data={"list": [1, 2], "none": None, 3: 1.0}, step=2)
    logger.log(data=values(2), step="three")
    ValidationGenerationsLogger("p", "e").log(["barograph"], [(object(),)], None)
    found["closed"] = str(run.path)
    Path(config.trainer.default_local_dir).mkdir(parents=True)
    Path(config.trainer.default_local_dir, "latest_checkpointed_iteration.txt").write_text("1")
    logger = tracking(config)
    logger.log(data=values(7), step=7)
    found["resumed"] = str(logger.logger["barograph"].run.path)
    shutil.rmtree("checkpoints")
    Path("file").write_text("")
    os.environ["BAROGRAPH_DIR"] = "file"
    logger = tracking(config)
    logger.log(data=values(8), step=8)
    found["broken"] = logger.logger["barograph"].run.id
    del os.environ["BAROGRAPH_DIR"], logger
    try:
        Tracking("p", "e", ["nothing"])
    except AssertionError as error:
        found["refused"] = str(error)
    return found


def main(overrides: str, lines: str) -> None:
    """Run all cases."""
    config = configured(overrides.split())
    found = {
        "verl": verl.__version__,
        "loaded": LOADED,
        "plain": train(config, 0),
        "started_ray": ray.is_initialized(),
        **mishaps(config),
    }
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    runner, rollouter = TaskRunner.remote(), Rollouter.remote()
    found["tells_how_it_ended"] = hasattr(Tracking, "finish")  # since 0.9
    found["actor"] = ray.get(runner.run.remote(config))
    found["rollouter"] = ray.get(rollouter.validate.remote(config))
    found["judge"] = ray.get(rollouter.judge.remote(lines))
    ray.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
