"""The run of a training framework: begun with what the framework knows, and never in its way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from typing import Any

from barograph.base.errors import SettingsError, TrackerError
from barograph.base.formatting import describe_error, flattened
from barograph.base.settings import BY_NAME, OWN_SECTION, resolve
from barograph.catalogue.sources import check_source
from barograph.catalogue.spec import CatalogueError
from barograph.integrations.guard import tell
from barograph.journal.format.folder import folder_name, run_folders
from barograph.journal.view import View
from barograph.recording.run import Run
from barograph.session import init


def begin(source: str, config: Any = None, given: Mapping[str, Any] | None = None, **known: Any) -> Run:
    """Begin a run, or join one by its id; where that fails, tell why and return a disabled one.

    ``known`` are the settings that the framework implies. ``given`` are those that its user wrote, which take
    precedence, and the environment takes precedence over both.
    """
    try:
        settings = {"rank": 0, "world_size": 1, **known, **_settings_in(given or {}), "source": source}
        run = init({OWN_SECTION: settings}, config=config or {}, concurrent=True)
    except Exception as error:  # noqa: BLE001 - a tracker may not stop the training of others
        tell(f"{source}: this run is not recorded: {error}")
        return init(mode="disabled", concurrent=True)
    if run.writer.attempt > 0:  # not disabled
        tell(f"recording run {run.id} in {run.path}; barograph up --dir {run.path.parent.parent} shows it")
    return run


def begin_configured(known: Mapping[str, Any], settings: Mapping[str, Any]) -> Run:
    """Begin a run with ``settings`` from the user's code, which take precedence over the environment.

    ``known`` are those that the framework implies. Wrong settings raise, before anything is trained. After any other
    failure a disabled run is returned.
    """
    try:
        return init({OWN_SECTION: known}, **settings)
    except (SettingsError, TrackerError):
        raise
    except Exception as error:  # noqa: BLE001 - a tracker may not stop the training of others
        tell(f"this training is not recorded: {describe_error(error)}")
        return init(mode="disabled", concurrent=True)


def _settings_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return our settings; tell of the others, which may be those of another tracker."""
    if left_out := [str(name) for name in given if name not in BY_NAME]:
        tell(f"left out {', '.join(left_out)}: not a setting of barograph")
    return {name: value for name, value in given.items() if name in BY_NAME}


def run_to_continue(project: str, name: str, is_same: Callable[[Mapping[str, Any]], bool]) -> str | None:
    """Return the id of the newest run of that name whose config is of the same training; None if there is none."""
    folders = run_folders(resolve().dir / folder_name(project))
    views = sorted(map(View, folders), key=lambda view: view.info.created, reverse=True)
    return next((view.info.id for view in views if view.info.name == name and is_same(view.config)), None)


def record(run: Run, values: Mapping[str, Any], step: int | None) -> None:
    """Log the values of a step: nested mappings flattened, strings as texts. A step that is new is committed.

    Without a step it is the one after the last.
    """
    flat = dict(flattened(values))
    texts = {name: flat.pop(name) for name, value in [*flat.items()] if isinstance(value, str)}
    run.log(flat, step=step)
    for name, text in texts.items():
        run.text(name, text, step=step)
    if step is None or run.step is None or step > run.step:
        run.commit(step)


def source_of(framework: str, package: str) -> str:
    """Return the source of a framework's names, with the version of its package where the catalogue knows that one."""
    with suppress(metadata.PackageNotFoundError, CatalogueError):
        check_source(source := f"{framework}/{metadata.version(package)}")
        return source
    return framework
