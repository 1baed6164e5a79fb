"""The moments of a run that explain a bend in its curves: annotations, restarts, checkpoints, changes of the config."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from barograph.base.formatting import flatten
from barograph.journal.view import View

CHECKPOINT = re.compile(r"tim(e|ing)(_s)?/(.*[/_])?(save|checkpoint|ckpt)", re.IGNORECASE)  # a time that saving took
MAX_OF_KIND = 200  # the newest ones
MAX_CHANGES = 5  # settings of a change that are named
MAX_VALUE = 40  # characters of a setting


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened at a step; ``kind`` is annotation, restart, checkpoint or config."""

    kind: str
    step: int
    text: str


def moments(view: View) -> list[Moment]:
    """Return the moments of a run by step, of each kind the newest."""
    kinds = (_annotations(view), _restarts(view), _checkpoints(view), _config_changes(view))
    found = [moment for kind in kinds for moment in list(kind)[-MAX_OF_KIND:]]
    return sorted(found, key=lambda moment: moment.step)


def _annotations(view: View) -> Iterator[Moment]:
    for event in view.events():
        if event.get("event") == "annotation":
            yield Moment("annotation", event["step"], event["text"])


def _restarts(view: View) -> Iterator[Moment]:
    for number, (first, _) in enumerate(view.attempt_steps(), 1):
        if number > 1:
            yield Moment("restart", first, f"attempt {number}")


def _checkpoints(view: View) -> Iterator[Moment]:
    """Yield the steps that have a time of saving, which other programs log as well."""
    saved = [view.series(name).steps for name in view.names() if CHECKPOINT.match(name)]
    for step in np.unique(np.concatenate(saved)).tolist() if saved else ():
        yield Moment("checkpoint", step, "")


def _config_changes(view: View) -> Iterator[Moment]:
    """Yield what ``run.update_config`` has changed after the first step."""
    known: dict[str, Any] = {}
    changes: list[tuple[float, dict[str, tuple[Any, Any]]]] = []
    for event in (event for event in view.events() if event.get("event") == "config"):
        own = dict(flatten(event["config"]))
        if changed := {key: (known[key], value) for key, value in own.items() if known.get(key, value) != value}:
            changes.append((event.get("time", 0.0), changed))
        known |= own
    commits = sorted(_commits(view)) if changes else []
    for moment, changed in changes:
        place = bisect_right(commits, (moment, 1 << 62))
        if place:  # before the first commit it is not a change but the config
            step = commits[place][1] if place < len(commits) else commits[-1][1] + 1
            yield Moment("config", step, ", ".join(_change(*one) for one in list(changed.items())[:MAX_CHANGES]))


def _commits(view: View) -> Iterator[tuple[float, int]]:
    """Yield the times of the commits of the main writer, with their steps."""
    windows = view.step_windows()
    main = next((writer for writer in view.writer_statuses() if writer.role == "trainer"), None)
    for writer, steps in windows.items():
        if main is None or (writer.role, writer.rank) == (main.role, main.rank):
            yield from ((ended, step) for step, (_, ended) in steps.items())


def _change(key: str, values: tuple[Any, Any]) -> str:
    before, after = (str(value)[:MAX_VALUE] for value in values)
    return f"{key}: {before} → {after}"
