"""Trainers of TRL and transformers, watched from inside: phases, completions and batches beside what they log.

Everything is added to the one trainer object. Only TRL's profiling does not know its trainer: its context manager is
extended once, and opens phases while a watched trainer trains.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from windsock.errors import SettingsError
from windsock.run import Run

if TYPE_CHECKING:
    from windsock.integrations.transformers import WindsockCallback

PHASES = {
    "compute_loss": "compute_loss", "_prepare_inputs": "prepare_inputs", "evaluate": "evaluate",
    "_save_checkpoint": "save",
}  # fmt: skip
"""Phases of a trainer's methods, where TRL does not profile them itself."""

_trained: list[tuple[WindsockCallback, Any]] = []
"""The trainers that train now, with their callbacks; the innermost is the last."""


def watch(trainer: Any, run: Run | None = None, *, measure: bool = False, **settings: Any) -> WindsockCallback:
    """Record everything that a trainer of TRL or transformers does; return the callback, whose ``run`` it is.

    ``run`` is a run to record to. Without one, ``trainer.train()`` begins one with the ``settings`` of
    ``windsock.init``. ``measure`` also measures the batches of GRPO.
    """
    if not hasattr(trainer, "callback_handler"):
        raise SettingsError(f"watch: expected a trainer of TRL or transformers, got {type(trainer).__name__}")
    from windsock.integrations.transformers import WindsockCallback, source_of
    from windsock.integrations.trl_rollouts import Rollouts

    rollouts = Rollouts(trainer, measure)
    callbacks = trainer.callback_handler.callbacks
    known = [one for one in callbacks if isinstance(one, WindsockCallback)]  # of report_to, or of an earlier call
    callback = known[0] if known else WindsockCallback()
    if not known:
        callbacks.insert(0, callback)  # before those that remove values, such as PrinterCallback
    callback.configure(run, settings, source_of(trainer))
    if not callback.watches:
        callback.watches = True
        _record_phases(trainer, callback)
        rollouts.record(callback)
    return callback


def extend(target: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a method of one object, if it has it, by ``around``, which is given the method and its arguments."""
    method = getattr(target, name, None)
    if method is not None:
        setattr(target, name, functools.wraps(method)(functools.partial(around, method)))


def _record_phases(trainer: Any, callback: WindsockCallback) -> None:
    def timed(phase: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with callback.phase(phase):
            return method(*args, **kwargs)

    def loaded(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        callback.end_step()  # the data is the next step's
        return timed("load_data", method, *args, **kwargs)

    def train(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        entry = callback, trainer
        _trained.append(entry)
        try:
            return method(*args, **kwargs)
        except BaseException as problem:
            callback.fail(problem)
            raise
        finally:
            _trained.remove(entry)

    for name, phase in PHASES.items():
        if not _is_profiled(trainer, name):
            extend(trainer, name, functools.partial(timed, phase))
    extend(trainer, "get_batch_samples", loaded)
    extend(trainer.accelerator, "backward", functools.partial(timed, "backward"))
    extend(trainer, "train", train)
    _extend_profiling()


def _is_profiled(trainer: Any, name: str) -> bool:
    return hasattr(getattr(type(trainer), name, None), "__wrapped__")  # by TRL's decorator


@functools.cache
def _extend_profiling() -> None:
    """Let TRL's profiling open phases too."""
    profiling = sys.modules.get("trl.extras.profiling")
    context = getattr(profiling, "ProfilingContext", None)
    if context is None:
        return
    enter, leave = context.__enter__, context.__exit__

    @functools.wraps(enter)
    def enter_phase(self: Any) -> Any:
        self.windsock_phase = _phase_of(self.name)
        self.windsock_phase.__enter__()
        return enter(self)

    @functools.wraps(leave)
    def leave_phase(self: Any, *problem: Any) -> Any:
        try:
            return leave(self, *problem)
        finally:
            self.windsock_phase.__exit__(*problem)

    context.__enter__, context.__exit__ = enter_phase, leave_phase


def _phase_of(name: str) -> AbstractContextManager[Any]:
    """Return the phase of a profiled section, which TRL names as ``GRPOTrainer._prepare_inputs``."""
    if not _trained:
        return nullcontext()
    callback, trainer = _trained[-1]
    section = str(name).partition(".")[2] or str(name)
    if section in getattr(trainer, "reward_func_names", ()):
        return callback.phase(f"reward/{section}")
    return callback.phase(section.lstrip("_"))
