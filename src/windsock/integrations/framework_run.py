"""The run of a training framework: begun with what the framework knows, and never in its way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from typing import Any

from windsock.integrations.unharmed import tell
from windsock.run import Run
from windsock.session import init
from windsock.settings import BY_NAME, OWN_SECTION


def begin(source: str, config: Any = None, given: Mapping[str, Any] | None = None, **known: Any) -> Run:
    """Begin a run, or join one by its id; where that fails, tell why and return a disabled one.

    ``known`` are the settings that the framework implies. ``given`` are those that its user wrote, which take
    precedence, and the environment takes precedence over both.
    """
    chosen = {name: value for name, value in (given or {}).items() if name in BY_NAME}
    if left_out := sorted(set(given or {}) - set(chosen)):
        tell(f"{source}: left out {', '.join(left_out)}: not a setting of windsock")
    settings = {"rank": 0, "world_size": 1, **known, **chosen, "source": source, "concurrent": True}
    try:
        run = init({OWN_SECTION: settings}, config=config or {})
    except Exception as error:  # noqa: BLE001 - a tracker may not stop the training of others
        tell(f"{source}: this run is not recorded: {error}")
        return init(mode="disabled", concurrent=True)
    if run.writer.attempt > 0:  # not disabled
        tell(f"recording run {run.id} in {run.path}; windsock up --dir {run.path.parent.parent} shows it")
    return run


def record(run: Run, values: Mapping[str, Any], step: int | None) -> None:
    """Log the values of a step: nested mappings flattened, strings as texts. A step that is new is committed.

    Without a step it is the one after the last.
    """
    flat = dict(flattened(values))
    texts = {name: value for name, value in flat.items() if isinstance(value, str)}
    run.log({name: value for name, value in flat.items() if name not in texts}, step=step)
    for name, text in texts.items():
        run.text(name, text, step=step)
    if step is None or run.step is None or step > run.step:
        run.commit(step)


def flattened(values: Mapping[str, Any], prefix: str = "", separator: str = "/") -> Iterator[tuple[str, Any]]:
    """Yield names and values; those of a mapping inside have its name before theirs."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}{separator}", separator)
        else:
            yield f"{prefix}{name}", value


def version_of(package: str) -> str:
    """Return ``/1.2.3`` as the end of a source; "" for a checkout without metadata."""
    with suppress(metadata.PackageNotFoundError):
        return f"/{metadata.version(package)}"
    return ""
