"""What the modules that replace a tracker share: the run behind its interface, its config, the current run, and what
stands for a call that has no counterpart.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from barograph import session
from barograph.base.former_name import runs_folder
from barograph.base.model import Status
from barograph.base.process.exit_status import crash_status
from barograph.base.settings import BY_NAME, plain_config, read_source
from barograph.integrations.drop_ins.media import Table, record
from barograph.integrations.guard import tell_once, unharmed
from barograph.integrations.notebook import is_notebook
from barograph.journal.view import View
from barograph.recording.run import Run


class NoOp:
    """Something that another tracker has and barograph has not: every use is accepted, and nothing happens."""

    _path = ""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Tell once that this does nothing; as a decorator, return the function."""
        _tell_of(self._path)
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name: str) -> NoOp:
        if name.startswith("_"):  # what copies, pickles or displays an object asks whether it is there
            raise AttributeError(name)
        return NoOp(f"{self._path}.{name}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: Any) -> NoOp:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        return None


def _tell_of(path: str) -> None:
    tell_once(f"{path} has no counterpart in barograph and does nothing")


@functools.cache
def stand_in(module: str, name: str) -> Any:
    """Return what stands for a name that has no counterpart: a class where it is capitalised, for ``isinstance``."""
    path = f"{module}.{name}"
    if name.startswith("_"):
        raise AttributeError(f"module 'barograph.{module}' has no attribute {name!r}")
    if name[0].isupper():
        return type(name, (NoOp,), {"_path": path, "__init__": lambda self, *args, **kwargs: _tell_of(path)})
    return NoOp(path)


class Config(Mapping[str, Any]):
    """The config of a run by attribute and by item. Values stay as they were given; the run records what changes."""

    _values: dict[str, Any]
    _run: Run | None

    def __init__(self, given: Any = None, run: Run | None = None) -> None:
        object.__setattr__(self, "_values", settings_of(given))
        object.__setattr__(self, "_run", run)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"the config has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __repr__(self) -> str:
        return repr(self._values)

    @unharmed
    def update(self, given: Any, allow_val_change: bool | None = None) -> None:
        """Add or change entries: of a mapping, a namespace or a dataclass."""
        found = settings_of(given)
        self._values.update(found)
        if self._run is None:
            tell_once("the config has changed before init: the change is not recorded")
        else:
            self._run.update_config(found)

    def setdefaults(self, given: Any) -> None:
        """Add the entries that are not there."""
        self.update({name: value for name, value in settings_of(given).items() if name not in self._values})

    def as_dict(self) -> dict[str, Any]:
        """Return the config as a dictionary."""
        return dict(self._values)


def settings_of(given: Any) -> dict[str, Any]:
    """Return the entries of a config, with the values as they are where it is a mapping, a namespace or a dataclass."""
    if given is None:
        return {}
    if isinstance(given, dict):
        return {str(name): value for name, value in given.items()}
    own = getattr(given, "__dict__", {})
    return {name: own.get(name, value) for name, value in plain_config(given).items() if not name.startswith("_")}


class RecordedRun:
    """A run of barograph with the attributes that runs of other trackers have."""

    module: ClassVar[str]  # the tracker's name, for messages
    separator: ClassVar[str] = "/"  # in the names of values in mappings inside

    def __init__(self, run: Run, config: Config) -> None:
        self.recorded = run
        self.config = config
        self.resumed = run.writer.attempt > 1
        self._tables: dict[str, tuple[int, int]] = {}  # by name: rows that were logged, and their hash

    def go_to(self, step: int) -> None:
        """Continue at a step, where an earlier attempt has ended."""

    @property
    def id(self) -> str:
        """The run's id."""
        return self.recorded.id

    @property
    def name(self) -> str:
        """The run's name."""
        return self.recorded.name

    @name.setter
    def name(self, name: str) -> None:
        tell_once(f"{self.module}: a run keeps the name that it began with, {self.name!r}; rename it on the page")

    @property
    def project(self) -> str:
        """The project that the run belongs to."""
        return self.recorded.project

    @property
    def group(self) -> str | None:
        """The group that the run belongs to."""
        return self.recorded.info.group

    @property
    def tags(self) -> tuple[str, ...]:
        """The run's tags."""
        return self.recorded.info.tags

    @property
    def notes(self) -> str | None:
        """The notes about the run."""
        return self.recorded.info.notes

    @property
    def url(self) -> str:
        """The run's folder as a file URL."""
        return self.recorded.url

    @property
    def dir(self) -> str:
        """The run's folder."""
        return str(self.recorded.path)

    def record(self, values: Mapping[str, Any], step: int | None) -> dict[str, Any]:
        """Record numbers, histograms, texts and tables under a step; return the numbers."""
        return record(self.recorded, values, step, self.separator, self._new_rows)

    def _new_rows(self, name: str, table: Table) -> Table:
        """Return the rows that were not logged under the name before: a table that grows is logged again as a whole."""
        count, known = self._tables.get(name, (0, 0))
        self._tables[name] = len(table.data), hash(repr(table.data))
        return Table(table.columns, table.data[count:]) if hash(repr(table.data[:count])) == known else table

    def alert(self, title: str, text: str = "", **_: Any) -> None:
        """Record an alert as a text."""
        self.recorded.text(f"alert/{title}", text or title)

    def finish(self, *args: Any, **kwargs: Any) -> None:
        """End the run."""
        self.end()

    def end(self, status: Status | None = None) -> None:
        """End the run with a status."""
        self.recorded.finish(status)

    @property
    def ended(self) -> bool:
        """Whether the run is finished."""
        return self.recorded.ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(crash_status(kind, problem) if kind else None)

    def __repr__(self) -> str:
        return f"<{self.module} run of {self.recorded!r}>"

    def _repr_html_(self) -> str | None:
        return self.recorded._repr_html_()

    def _ipython_display_(self) -> None:
        self.recorded._ipython_display_()

    def __getattr__(self, name: str) -> NoOp:
        if name.startswith("_"):
            raise AttributeError(name)
        return NoOp(f"{self.module}.run.{name}")


class CountingRun(RecordedRun):
    """A run whose log counts steps where none is given: one more than the highest so far."""

    def __init__(self, run: Run, config: Config) -> None:
        super().__init__(run, config)
        self._next = 0

    def go_to(self, step: int) -> None:
        """Count from a step on."""
        self._next = step

    @unharmed
    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Record the values of a step."""
        number = self._next if step is None else int(step)
        self._next = max(self._next, number + 1)
        self.record(values, number)
        self.recorded.commit(number)


Kind = TypeVar("Kind", bound=RecordedRun)


class CurrentRun(Generic[Kind]):
    """The current run of a module that replaces a tracker, and those beside it."""

    def __init__(self, module: str, kind: type[Kind]) -> None:
        self._module = module
        self._kind = kind
        self._runs: list[tuple[Kind, bool]] = []  # in the order of their beginning, and whether a run is a current one
        self._config = Config()  # while there is no run

    @property
    def run(self) -> Kind | None:
        """The current run; of several the innermost."""
        return next((run for run, is_current in reversed(self._open()) if is_current), None)

    def _open(self) -> list[tuple[Kind, bool]]:
        self._runs = [pair for pair in self._runs if not pair[0].ended]
        return self._runs

    def init(
        self,
        settings: Mapping[str, Any],
        ignored: Mapping[str, Any],
        reinit: Any = None,
        resume: Any = None,
    ) -> Kind:
        """Begin a run. ``reinit`` is W&B's; "nested" leaves the current run open, which is the current one again later.

        By default the newest open run is returned, or finished in a notebook, where a cell may be executed again.
        """
        reinit = is_notebook() if reinit in (None, "default") else reinit
        if reinit in (False, "return_previous") and self._open():
            return self._runs[-1][0]
        for run, _ in self._open() if reinit in (True, "finish_previous") else ():
            run.finish()
        values = read_config(settings.get("config"))
        recorded = begin(f"{self._module}.init", {**settings, "config": values}, ignored)
        begun = self._kind(recorded, Config(values, recorded))
        if resume not in (None, False, "never") and recorded.writer.attempt > 1:
            begun.go_to(_next_step(recorded))
        self._runs.append((begun, reinit != "create_new"))
        return begun

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the run; without one, tell so."""
        run = self.run
        if run is None:
            tell_once(f"{self._module}.{method} without a run: nothing is recorded; call {self._module}.init first")
            return None
        return getattr(run, method)(*args, **kwargs)

    def finish(self, *args: Any, **kwargs: Any) -> None:
        """End the run."""
        run = self.run
        if run is not None:
            run.finish(*args, **kwargs)

    def attribute(self, name: str) -> Any:
        """Return an attribute of the module that depends on the run, or what stands for an unknown one."""
        if name == "run":
            return self.run
        if name == "config":
            return self._config if self.run is None else self.run.config
        if name == "summary":
            return {} if self.run is None else self.run.summary
        return stand_in(self._module, name)


def begin(call: str, given: Mapping[str, Any], ignored: Mapping[str, Any]) -> Run:
    """Begin a run with the settings that were given, beside others; tell which arguments are not used."""
    unused = [name for name, value in ignored.items() if value not in (None, False, "")]
    if unused:
        tell_once(f"{call}: {', '.join(sorted(unused))}: no counterpart in barograph, not used")
    settings: dict[str, Any] = {name: value for name, value in given.items() if value not in (None, "")}
    for name in ("project", "name", "id", "group", "notes"):
        if name in settings:
            settings[name] = str(settings[name])
    settings["mode"] = "disabled" if settings.get("mode") == "disabled" else None
    # The directory that was meant for the tracker's own files is only used where barograph's is not set.
    dir = settings.pop("dir", None)
    if dir and not os.environ.get(BY_NAME["dir"].variable or ""):
        settings["dir"] = runs_folder(Path(dir))
    return session.init(**settings, concurrent=True)


def read_config(config: Any) -> dict[str, Any]:
    """Return a config; that of a file may have its values below ``value``, as W&B writes it."""
    if not isinstance(config, str):
        return settings_of(config)
    found = settings_of(read_source(config)[1])
    return {
        name: one["value"] if isinstance(one, Mapping) and "value" in one else one
        for name, one in found.items()
        if name != "wandb_version"
    }


def _next_step(run: Run) -> int:
    """Return the step after the last one of the run's earlier attempts."""
    return max((last + 1 for _, last in View(run.path).attempt_steps()), default=0)


def from_environment(names: Mapping[str, str], **given: Any) -> dict[str, Any]:
    """Return the settings that a tracker's variables of the environment have, by ours; what is given comes first."""
    found = {setting: os.environ[variable] for variable, setting in names.items() if os.environ.get(variable)}
    return found | {name: value for name, value in given.items() if value is not None}
