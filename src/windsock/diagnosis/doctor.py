"""The doctor: the diagnosis of a run from its view."""

from __future__ import annotations

import numpy as np

from windsock.diagnosis.case import Attempt, Case, collect
from windsock.diagnosis.diagnose import Diagnosis, diagnose
from windsock.diagnosis.tracks import Floats, Ints
from windsock.summary import run_names
from windsock.view import View


def doctor(view: View) -> Diagnosis:
    """Return what is wrong with a run, since when, what is fine, and what could not be judged."""
    return diagnose(case_of(view))


def case_of(view: View) -> Case:
    """Return what the rules look at: the signals of a run by their meaning."""

    def read(name: str) -> tuple[Ints, Floats]:
        series = view.series(name)
        return np.asarray(series.steps, np.int64), np.asarray(series.values, np.float64)

    attempts = [Attempt(*steps) for steps in view.attempt_steps()]
    return collect(run_names(view), read, config=view.config, attempts=attempts, status=view.status.word)
