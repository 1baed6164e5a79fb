"""The verdicts on the runs of a list: those that are known, and the others on demand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from windsock.catalogue.taught import NamesFiles, names_files, own_names_file, shared_names_files
from windsock.diagnosis.health import Health, HealthIndex, basis_digest, health_of, told_health
from windsock.errors import WindsockError
from windsock.importers.import_cache import list_folder
from windsock.journal.annotation import LatestAnnotations
from windsock.journal.folder import is_run
from windsock.journal.run_facts import Glance

if TYPE_CHECKING:
    from windsock.diagnosis.diagnose import Diagnosis
    from windsock.view import View


class HealthList:
    """The verdicts on the runs below a directory."""

    def __init__(self, dir: Path) -> None:
        self._journals = HealthIndex(dir)
        self._logs = HealthIndex(dir, list_folder(dir))  # nothing is written beside logs
        self._sources = LatestAnnotations("source")
        self._shared_names: dict[Path, NamesFiles] = {}

    def known(self, run: Glance) -> Health | None:
        """Return the verdict on a run, if it is known for its files as they are now."""
        return (
            self._journals.known(run.path, run.digest, self._source(run), self._names_files)
            or self._logs.known(run.path, run.digest, None, self._names_files)
            or (told_health(run.path, run.last_step) if run.status.word != "stalled" else None)
        )

    def basis(self, run: Glance) -> str:
        """Return a digest of what a verdict on a run is made of: while it is the same, the verdict is."""
        return basis_digest(run.digest, self._source(run), self._names_files(run.path))

    def judge(self, run: Glance) -> Health | None:
        """Return the verdict on a run by a diagnosis, and keep it; None if the run cannot be read."""
        from windsock.diagnosis.doctor import doctor  # imports NumPy, which known verdicts can do without
        from windsock.opening import open_run

        names = names_files(run.path)
        try:
            view = open_run(run.path)
        except WindsockError:  # the status of the run says why
            return None
        return self.keep(run, view, doctor(view), names)

    def keep(self, run: Glance, view: View, diagnosis: Diagnosis, names: NamesFiles) -> Health:
        """Return the verdict of a diagnosis, and keep it if it will stay the same.

        ``names`` are the files that described names when the run was opened.
        """
        health = health_of(diagnosis, view.steps)
        if view.status.ended and not view.waits:  # the verdict on a run that goes on changes with time too
            is_journal = is_run(run.path)
            index, source = (self._journals, self._source(run)) if is_journal else (self._logs, None)
            index.keep(run.path, run.digest, source, health, names)
        return health

    def save(self) -> None:
        """Write what is new to the indexes."""
        self._journals.save()
        self._logs.save()

    def _names_files(self, run: Path) -> NamesFiles:
        """Return the files that describe names of a run; those that runs share are looked for once."""
        if run.parent not in self._shared_names:
            self._shared_names[run.parent] = shared_names_files(run.parent)
        return {**self._shared_names[run.parent], **own_names_file(run)}

    def _source(self, run: Glance) -> str | None:
        """Return the source that a person has chosen on the page for the names of a run."""
        found: str | None = self._sources.get(run.path, run.info.id.replace("/", "_"))
        return found
