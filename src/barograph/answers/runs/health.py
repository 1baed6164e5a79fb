"""The doctor's verdicts in the list of runs: from the index, or by a diagnosis of the runs that a page shows."""

from __future__ import annotations

import time
from pathlib import Path

from barograph.answers.runs.listed_run import HealthBasis, ListedRun
from barograph.answers.runs.open_runs import OpenRuns
from barograph.catalogue.user_metrics import NamesFiles, names_files
from barograph.diagnosis.diagnose import Visit
from barograph.diagnosis.health import Health, HealthIndex, health_of, told_health
from barograph.importers.cache import list_folder
from barograph.importers.summary import run_names
from barograph.journal.directory import files_digest

JUDGE_SECONDS = 60.0  # between diagnoses of a run that goes on and is not open
OPEN_SECONDS = 1.0  # times the number of open runs, between diagnoses of one of them
NAMES_SECONDS = 10.0  # between looks at the files that describe the names of a run


class RunHealth:
    """The verdicts on the runs of a directory. The list calls it with its lock held, except for ``judged``."""

    def __init__(self, open_runs: OpenRuns) -> None:
        self._open_runs = open_runs
        self._names: dict[Path, tuple[float, NamesFiles]] = {}
        self._indexes = {
            "journal": HealthIndex(open_runs.dir),
            "log": HealthIndex(open_runs.dir, list_folder(open_runs.dir)),  # nothing is written beside logs
        }

    def take(self, run: ListedRun) -> None:
        """Use a verdict of the index, if it is on the files as they are now."""
        index, digest = self._indexes[run.location.kind], files_digest(run.files.states)
        run.health = index.known(run.location.path, digest, run.annotations["source"], self._names_files)
        run.health_basis = None if run.health is None else self._basis(run)

    def is_due(self, run: ListedRun) -> bool:
        """Return whether a run is to be judged: its files, its source or the names files are others than at that time.

        A run that goes on is judged now and then, and one that is open more often, the fewer are open.
        """
        basis, age = self._basis(run), time.monotonic() - run.judged_at
        if run.health_basis == basis:
            return age > JUDGE_SECONDS and not run.ended  # that it logs nothing for long is a finding too
        if run.health_basis is None or run.health_basis[1:] != basis[1:]:
            return True
        is_open = self._open_runs.get_open(run.location.key) is not None
        pause = OPEN_SECONDS * self._open_runs.count * (not run.ended) if is_open else JUDGE_SECONDS
        return age > min(pause, JUDGE_SECONDS)

    def judged(self, run: ListedRun) -> tuple[Health | None, HealthBasis]:
        """Return the verdict on a run, None if it cannot be read, and what it was made of."""
        # Taken before reading: if the run grows meanwhile, the verdict is older than its files.
        states, source, names = self._basis(run)
        try:
            health, waits = self._judge(run, source)
        except Exception:  # noqa: BLE001 - the run is listed without a verdict, and its status says why
            return None, (states, source, names)
        if waits:
            return health, ({}, source, names)
        if run.ended:
            self._indexes[run.location.kind].keep(run.location.path, files_digest(states), source, health, names)
        return health, (states, source, names)

    def save(self) -> None:
        """Write the indexes, where a verdict is new."""
        for index in self._indexes.values():
            index.save()

    def _basis(self, run: ListedRun) -> HealthBasis:
        return run.files.states, run.annotations["source"], self._names_files(run.location.path)

    def _names_files(self, folder: Path) -> NamesFiles:
        looked_at, found = self._names.get(folder, (-1e9, {}))
        if time.monotonic() - looked_at > NAMES_SECONDS:
            found = names_files(folder)
            self._names[folder] = time.monotonic(), found
        return found

    def _judge(self, run: ListedRun, source: str | None) -> tuple[Health, bool]:
        """Return the verdict, and whether the end of the log waits; uses the open run if there is one.

        Of a run that goes on, what a doctor beside the training has written spares reading all of it.
        """
        location = run.location
        if self._open_runs.get_open(location.key) is not None:
            with self._open_runs.use(location.key) as opened:
                return health_of(opened.diagnosis(), opened.view.steps), opened.view.waits
        if location.log is None and run.facts["status"] == "running":
            told = told_health(location.path, run.facts["last_step"])
            if told is not None:
                return told, False
        with self._open_runs.room_for(location):
            view = location.open()
            return health_of(Visit().diagnose(view, run_names(view, source)), view.steps), view.waits
