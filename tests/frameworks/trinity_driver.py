"""The driver of the Trinity tests: its real monitor registry and config, in two actors of Ray.

``trinity_driver.py YAML [FOLDER]`` takes the ``monitor`` section of a config, and a plugin folder for the short name.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import ray
from omegaconf import OmegaConf
from trinity.common.config import Config
from trinity.common.config_validator import GlobalConfigValidator, MonitorConfigValidator
from trinity.utils.monitor import MONITOR
from trinity.utils.plugin_loader import load_plugins

STEPS = 4


def configured(monitor: str, **changes: Any) -> Config:
    """Return a config that Trinity has checked, as far as the monitor is concerned."""
    wanted = {"mode": "both", "project": "math", "group": "grpo", "name": "first", "checkpoint_root_dir": "checkpoints"}
    merged = OmegaConf.merge(
        OmegaConf.structured(Config), OmegaConf.create(monitor), OmegaConf.create(wanted | changes)
    )
    config: Config = OmegaConf.to_object(merged)
    config.monitor.monitor_args = {"api_key": "sk-0123456789abcdef", **(config.monitor.monitor_args or {})}
    for validator in (GlobalConfigValidator(), MonitorConfigValidator()):
        validator.validate(config)
    return config


def monitor(config: Config, role: str) -> Any:
    """Return the monitor that Trinity's trainer or explorer makes."""
    load_plugins()
    made = MONITOR.get(config.monitor.monitor_type)
    return made(project=config.project, group=config.group, name=config.name, role=role, config=config)


@ray.remote(num_cpus=0)
class Trainer:
    """The actor that trains."""

    def train(self, config: Config) -> str:
        made = monitor(config, config.trainer.name)
        for step in range(1, STEPS + 1):
            rows = [{"prompt": "1 + 1 =", "response": "2", "reward": 1.0}, {"prompt": "1 + 2 =", "response": "4"}]
            made.log_table("rollout_examples", pd.DataFrame(rows), step)
            made.log({"actor/pg_loss": 0.1 * step, "actor/grad_norm": 0.5, "time/train_step": 2.0}, step)
        path = str(made.run.path)
        made.close()
        made.log({"actor/pg_loss": 1.0}, 9)
        made.log_table("rollout_examples", None, 9)
        return path


@ray.remote(num_cpus=0)
class Explorer:
    """The actor that generates; its metrics come late, and those of an evaluation later."""

    def explore(self, config: Config) -> str:
        made = monitor(config, config.explorer.name)
        for step in (2, 4):
            made.log({"rollout/accuracy/mean": 0.2 * step, "rollout/finished_task_count": 8}, step)
        made.log({"eval/gsm8k/accuracy/mean@2": 0.7}, 2)
        return str(made.run.path)


def main(section: str, plugins: str = "") -> None:
    """Run both actors at once; then a job that is continued, and one that begins anew."""
    if plugins:
        os.environ["TRINITY_PLUGIN_DIRS"] = plugins
        load_plugins()
        config = configured("monitor: {monitor_type: barograph}")
        made = monitor(config, "trainer")
        made.log({"actor/pg_loss": 0.1}, 1)
        made.close()
        print(json.dumps({"short": type(made).__module__}))
        return
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    config = configured(section)
    trainer, explorer = Trainer.remote(), Explorer.remote()
    first = ray.get([trainer.train.remote(config), explorer.explore.remote(config)])
    continued = configured(section, continue_from_checkpoint=True)
    Path(config.checkpoint_job_dir, "step").write_text("4")
    anew = configured(section, continue_from_checkpoint=False)
    found = {"both": first, "continued": ray.get(trainer.train.remote(continued))}
    found["anew"] = ray.get(trainer.train.remote(anew))
    ray.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
