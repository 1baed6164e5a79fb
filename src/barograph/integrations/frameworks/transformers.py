"""The Trainer of transformers and everything built on it: what it logs, its config and its end become a run.

A callback sees values and events, not the trainer. What only the trainer has is added by
``barograph.integrations.frameworks.trl``.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

from transformers import TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from barograph.base.problems import Problems, guarded
from barograph.base.process.exit_status import crash_status
from barograph.base.process.identity import shared_run_id
from barograph.integrations.frameworks.run import begin_configured
from barograph.recording.run import Run
from barograph.session import current_run

ERA_OF_CLASS = {
    "GRPO": "grpo", "RLOO": "rloo", "SFT": "sft", "DPO": "dpo", "KTO": "kto", "Reward": "reward", "PPO": "ppo",
    "OnlineDPO": "online-dpo", "PRM": "prm", "CPO": "cpo", "ORPO": "orpo", "BCO": "bco", "GKD": "gkd",
    "AsyncGRPO": "async",
}  # fmt: skip
"""Sources of TRL by the name of the trainer's or the config's class, without ``Trainer`` and ``Config``."""
SOURCE_OF_PACKAGE = {"swift": "ms-swift", "llamafactory": "llama-factory", "axolotl": "axolotl"}
WITH_VERSIONS = ("async", "ppo")  # eras whose names differ between versions of TRL
STATE_KEY = "barograph"  # of the run's id in the ``trainer_state.json`` of a checkpoint
DEFAULT_PROJECT, DEFAULT_FOLDER = "huggingface", "trainer_output"  # of TrainingArguments; they tell nothing

_begun: weakref.WeakSet[Run] = weakref.WeakSet()
"""The runs that callbacks began: another training ends them, while a run of the user is shared."""


def source_of(thing: object) -> str:
    """Return the source of the names that a trainer logs; its arguments tell it too."""
    found = "transformers"
    for kind in type(thing).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in SOURCE_OF_PACKAGE:
            return SOURCE_OF_PACKAGE[package]
        if package == "trl":
            era = ERA_OF_CLASS.get(kind.__name__.removesuffix("Trainer").removesuffix("Config"))
            if era is not None:
                return f"trl/{era}/{sys.modules['trl'].__version__}" if era in WITH_VERSIONS else f"trl/{era}"
            found = "trl/experimental"
    return found


class BarographCallback(TrainerCallback):  # type: ignore[misc]
    """Record the trainings of a trainer: values, config, steps and the end.

    ``run`` is a run to record to. Without one, an open run of this process is used, or else every training begins its
    own, with the ``settings`` of ``barograph.init``; one that resumes from a checkpoint continues the run of it.
    """

    _trainings: ClassVar[int] = 0  # that this process has recorded in runs of their own; the same on every rank

    def __init__(self, run: Run | None = None, **settings: Any) -> None:
        self.run = run
        self.watches = False  # whether phases and completions are recorded too
        self._settings = settings
        self._source: str | None = None  # where the trainer told it; else its arguments do
        self._training = False
        self._trained = False
        self._ended_step: int | None = None  # it is committed when the next one begins: it is logged in between
        self._optimizing: AbstractContextManager[Any] | None = None

    @property
    def _problems(self) -> Problems | None:
        return None if self.run is None else self.run._problems

    def configure(self, run: Run | None, settings: Mapping[str, Any], source: str) -> None:
        """Set where to record, for trainings to come, and what the trainer logs."""
        self.run = run or self.run
        self._settings = {**self._settings, **settings}
        self._source = source

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Return a phase of the training step that is under way; outside of trainings one that records nothing."""
        run = self.run if self.watches and self._training else None
        return nullcontext() if run is None else run.phase(name)

    @guarded()
    def end_step(self) -> None:
        """Commit the step that has ended, with what was logged, evaluated and saved since."""
        step, self._ended_step = self._ended_step, None
        if step is not None and self.run is not None:
            self.run.commit(step)

    @guarded()
    def fail(self, problem: BaseException) -> None:
        """End the run because the training raised."""
        self._training = False
        if self.run is not None and self.run in _begun:
            self.end_step()
            self.run.finish(crash_status(type(problem), problem))

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Begin a run, or continue that of the checkpoint."""
        known = _id_in(state)
        if not self._awaits_training(known):
            self._begin(args, model, known)
        self._training, self._trained = True, True
        self._resume(state)

    def _awaits_training(self, known: str | None) -> bool:
        """Return whether the run of this training has begun already, with an evaluation."""
        run = self.run if self.run in _begun and not self._trained else None
        return run is not None and not run.ended and known in (None, run.id)

    @guarded()
    def _resume(self, state: Any) -> None:
        """Write the run's id where a checkpoint keeps it, and go on with the steps of one."""
        if self.run is not None:
            state.stateful_callbacks[STATE_KEY] = {"args": {}, "attributes": {"run_id": self.run.id}}
            if self.run.step is None:  # the first step is 1, or the one after the checkpoint's
                self.run._continue_after(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Commit the step before."""
        self.end_step()

    @guarded()
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin the phase of the optimizer."""
        self._optimizing = self.phase("optimizer")
        self._optimizing.__enter__()

    @guarded()
    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the phase of the optimizer."""
        if self._optimizing is not None:
            self._optimizing.__exit__(None, None, None)
            self._optimizing = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note that a step has ended, and end the training where the doctor found what ``stop_on`` names."""
        self.end_step()  # a trainer without ``on_step_begin`` has logged the step before
        self._ended_step = state.global_step
        if self.run is not None and self.run.should_stop:
            control.should_training_stop = True

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, model: Any = None, **_: Any
    ) -> None:
        """Log values under the trainer's step."""
        if self.run is None:  # an evaluation without a training
            self._begin(args, model)
        self._log(logs or {}, state.global_step)

    @guarded()
    def _log(self, values: Mapping[str, Any], step: int) -> None:
        if self.run is not None and values:
            self.run.log(values, step=step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Commit the last step; the run stays open for evaluations, until the process or another training."""
        self.end_step()
        self._training = False

    def _begin(self, args: Any, model: Any, id: str | None = None) -> None:
        """Use the open run of this process, or begin one; a run of an earlier training is ended."""
        config, opened = _config(args, model), current_run()
        if self.run is not None and not self.run.ended and self.run not in _begun:
            opened = self.run
        if opened is not None and opened not in _begun:
            opened.update_config(config)
            self.run = opened
            return
        if opened is not None:
            opened.finish()
        known = {**_settings(args, self._source or source_of(args)), "id": id or self._id_of_job()}
        self.run = begin_configured(known, {"config": config, **self._settings})
        BarographCallback._trainings += 1
        _begun.add(self.run)

    def _id_of_job(self) -> str | None:
        """Return an id for a further training of a launched job: that of the first is derived from the job alone."""
        job = shared_run_id(os.environ)
        return f"{job}-{self._trainings + 1}" if job is not None and self._trainings > 0 else None


def _settings(args: Any, source: str) -> dict[str, Any]:
    """Return the settings that the arguments of a trainer give; the environment takes precedence."""
    project, folder = getattr(args, "project", None), Path(args.output_dir or "").name
    named = args.run_name if args.run_name not in (None, args.output_dir) else None
    return {
        "project": project if project != DEFAULT_PROJECT else None,
        "name": named or (folder if folder != DEFAULT_FOLDER else None),
        "rank": args.process_index,
        "world_size": args.world_size,
        "source": source,
    }


def _config(args: Any, model: Any) -> dict[str, Any]:
    """Return the arguments of a trainer with the config of its model."""
    config = dict(args.to_dict())  # without tokens
    if hasattr(model, "config"):
        config["model"] = model.config
    return config


def _id_in(state: Any) -> str | None:
    """Return the id of the run that a checkpoint was saved by."""
    saved = (getattr(state, "stateful_callbacks", None) or {}).get(STATE_KEY)
    found = saved.get("attributes", {}).get("run_id") if isinstance(saved, Mapping) else None
    return found if isinstance(found, str) and state.global_step > 0 else None


INTEGRATION_TO_CALLBACK["barograph"] = BarographCallback
