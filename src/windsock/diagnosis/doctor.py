"""The doctor: the diagnosis of a run from its view."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from windsock.catalogue.resolution import RunNames
from windsock.diagnosis.case import Attempt, Case, collect
from windsock.diagnosis.diagnose import Diagnosis, diagnose
from windsock.diagnosis.tracks import Floats, Ints, Track
from windsock.summary import run_names
from windsock.view import View

GROWN = 1.2  # times as many steps as when the meanings of names were last decided


def doctor(view: View) -> Diagnosis:
    """Return what is wrong with a run, since when, what is fine, and what could not be judged."""
    return Visit().diagnose(view)


def case_of(view: View) -> Case:
    """Return what the rules look at: the signals of a run by their meaning."""
    return Visit().case_of(view)


class Visit:
    """A doctor who stays with a run: a further diagnosis computes what is new."""

    def __init__(self) -> None:
        self._tracks: dict[str, Track] = {}
        self._names: RunNames | None = None
        self._named_at = 0

    def diagnose(self, view: View, names: RunNames | None = None) -> Diagnosis:
        """Return the diagnosis of the run as it is now; ``names`` has the meanings of its names, if known."""
        return diagnose(self.case_of(view, names))

    def case_of(self, view: View, names: RunNames | None = None) -> Case:
        """Return what the rules look at."""
        rows: list[Floats] = []

        def read(name: str) -> tuple[Ints, Floats]:
            series = view.series(name)
            rows.append(series.times)
            return np.asarray(series.steps, np.int64), np.asarray(series.values, np.float64)

        case = collect(names or self._meanings(view), read, self._tracks, config=view.config)
        reward = case.get("reward")
        # In a notebook, a supervised training may come first: it is not an earlier start of this one.
        attempts = view.attempt_steps(reward.name if reward is not None else None)
        case = replace(case, attempts=[Attempt(*steps) for steps in attempts])
        is_live = view.origin is None and not view.status.ended
        return _with_pulse(case, max(rows, key=len, default=np.empty(0))) if is_live else case

    def _meanings(self, view: View) -> RunNames:
        """Return the meanings of the names. Values can decide some: they are looked at again as the run grows."""
        last = view.steps[1] if view.steps else 0
        if self._names is None or self._names.names != view.names() or last > GROWN * self._named_at:
            self._names, self._named_at = run_names(view), last
        return self._names


def _with_pulse(case: Case, times: Floats) -> Case:
    """Return the case of a run that goes on, with the seconds since its last row and between rows."""
    if len(times) < 2:
        return case
    return replace(case, silence=time.time() - float(times[-1]), pace=float(np.median(np.diff(times))))
