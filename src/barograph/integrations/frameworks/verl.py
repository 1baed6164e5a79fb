"""veRL: ``trainer.logger=[console,barograph]``, and nothing else.

veRL 0.9 imports this module itself, by the entry point in the group ``verl.plugins``; older ones do where
``VERL_USE_EXTERNAL_MODULES=barograph.verl`` is set. Every process of veRL imports it, so what records a run is imported
when one begins.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl.utils import tracking as verl_tracking

from barograph.integrations.guard import unharmed

if TYPE_CHECKING:
    from barograph.recording.run import Run

NAME = "barograph"
CHECKPOINT = "latest_checkpointed_iteration.txt"  # in the directory of checkpoints, once there is one
ROLLOUTER = "rollouter"  # the process that validates where it is not the one that trains

_runs: dict[tuple[Any, Any], Run] = {}
"""The runs of this process, by project and experiment."""


class Backend:
    """The backend that ``Tracking`` calls with the values of a step."""

    def __init__(self, project: Any, experiment: Any, config: Any) -> None:
        from barograph.integrations.frameworks.run import begin, source_of

        known = {"project": str(project or "verl"), "name": str(experiment or "verl")}
        self.run = begin(source_of("verl", "verl"), config, None, **known, id=_resumed_run(known, config))
        _runs[project, experiment] = self.run
        _share(self.run, project, experiment)

    @unharmed
    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Record the values of a step."""
        from barograph.integrations.frameworks.run import record

        record(self.run, data, int(step))

    @unharmed
    def finish(self, exit_code: int = 0) -> None:
        """End the run; a code other than 0 is a crash."""
        from barograph.base.model import Status

        self.run.finish(Status("crashed", f"veRL ended with exit code {exit_code}") if exit_code else None)


def _resumed_run(known: Mapping[str, str], config: Any) -> str | None:
    """Return the id of the run whose checkpoint veRL resumes from; None where it begins anew."""
    from barograph.integrations.frameworks.run import run_to_continue

    with suppress(Exception):  # the config has another form, as in tests of veRL; the directory cannot be read
        folder = config["trainer"]["default_local_dir"]
        if config["trainer"]["resume_mode"] == "auto" and (Path(folder) / CHECKPOINT).exists():
            return run_to_continue(**known, is_same=lambda found: found["trainer"]["default_local_dir"] == folder)
    return None


@unharmed
def _share(run: Run, project: Any, experiment: Any) -> None:
    """Let the other processes of veRL's Ray job find the run."""
    from barograph.integrations.frameworks.ray import share

    share(run, f"verl/{project}/{experiment}")


def _run_of(project: Any, experiment: Any) -> Run | None:
    """Return the run of an experiment, joined where another process began it; None where there is none."""
    if (project, experiment) not in _runs:
        from barograph.integrations.frameworks.ray import shared_run

        run = shared_run(f"verl/{project}/{experiment}", role=ROLLOUTER)
        if run is None:
            return None
        _runs[project, experiment] = run
    return _runs[project, experiment]


@unharmed
def _attach(
    tracking: Any, project_name: Any, experiment_name: Any, default_backend: Any = "", config: Any = None, **_: Any
) -> None:
    if _is_chosen(default_backend):
        tracking.logger[NAME] = Backend(project_name, experiment_name, config)


@unharmed
def _finish(tracking: Any, exit_code: int = 0) -> None:
    backend = getattr(tracking, "logger", {}).get(NAME)
    if backend is not None:
        backend.finish(exit_code)


@unharmed
def _record_generations(logger: Any, loggers: Any, samples: Iterable[Sequence[Any]], step: int) -> None:
    run = _run_of(logger.project_name, logger.experiment_name) if _is_chosen(loggers) else None
    if run is not None:
        fields = "prompt", "completion", "reward"
        run.samples([dict(zip(fields, sample, strict=False)) for sample in samples], step=int(step))
        if run.writer.role == ROLLOUTER:  # elsewhere the metrics of the step follow
            run.commit(int(step))


def _is_chosen(loggers: Any) -> bool:
    return NAME in ([loggers] if isinstance(loggers, str) else list(loggers))


def _with(method: Any, before: Any = None, after: Any = None) -> Any:
    """Return a method that calls a function with the same arguments before or after it."""

    @functools.wraps(method)
    def all_of_them(self: Any, *args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(self, *args, **kwargs)
        result = method(self, *args, **kwargs)
        if after is not None:
            after(self, *args, **kwargs)
        return result

    return all_of_them


@unharmed
def register() -> None:
    """Make barograph known to veRL as a logger."""
    tracking, generations = verl_tracking.Tracking, verl_tracking.ValidationGenerationsLogger
    end = "finish" if hasattr(tracking, "finish") else "__del__"  # veRL before 0.9 has no finish
    tracking.__init__ = _with(tracking.__init__, after=_attach)
    setattr(tracking, end, _with(getattr(tracking, end), before=_finish))
    generations.log = _with(generations.log, before=_record_generations)
    tracking.supported_backend.append(NAME)


register()
