"""Opening runs: journals by id, name or path, and logs of other programs by path."""

from __future__ import annotations

import os
from pathlib import Path

from windsock.catalogue.sources import check_source
from windsock.catalogue.spec import CatalogueError
from windsock.errors import RunNotFoundError
from windsock.importers.formats import Log
from windsock.importers.imported import ImportedLog, log_id
from windsock.importers.logs import find_logs, log_at, logs_at
from windsock.journal.annotation import latest_annotation
from windsock.journal.folder import default_dir, find_run, is_run
from windsock.view import View


class ImportedView(View):
    """A run that another program logged. ``path`` is its journal in the cache, ``log`` where it comes from."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._imported = ImportedLog(log)
        self._imported.update()
        super().__init__(self._imported.folder)

    def refresh(self) -> bool:
        """Read what is new in the log; return whether there was anything."""
        if self._imported.update():
            source = self.source
            super().__init__(self._imported.folder)
            self.source = source or self.source
            return True
        return super().refresh()


def open_run(
    run: str | os.PathLike[str] = "@last", dir: str | os.PathLike[str] | None = None, *, source: str | None = None
) -> View:
    """Open a run for reading, by its id, a unique prefix of it, its name, its path, or ``@last``.

    The path may also be that of a log of another program: event files, ``trainer_state.json``, a console log, ….
    ``source`` is the framework that wrote its names, with trainer or version (``trl/rloo``), where it is not recorded;
    without it the one that was chosen on the page counts.
    """
    if source is not None:
        check_source(source)
    view = _open(run, Path(dir) if dir is not None else None)
    view.source = source or _chosen_source(view) or view.source
    return view


def _chosen_source(view: View) -> str | None:
    """Return the source that a person has chosen on the page; None where it is unknown to this version."""
    chosen = latest_annotation(view.path, view.id.replace("/", "_"), "source")
    try:
        if chosen is not None:
            check_source(str(chosen))
    except CatalogueError:
        return None
    return None if chosen is None else str(chosen)


def _open(run: str | os.PathLike[str], dir: Path | None) -> View:
    path = Path(run)
    is_folder = os.path.isdir(path)  # a name may be too long for a path, which Path.is_dir raises
    if is_folder and is_run(path):
        return View(path)
    if os.path.isfile(path) or (is_folder and len(path.parts) > 1):
        return ImportedView(log_at(path))
    try:
        return View(find_run(run, dir))
    except RunNotFoundError:
        if os.fspath(run) and os.path.exists(path):
            return ImportedView(log_at(path))
        log = _log_named(str(run), dir or default_dir())
        if log is None:
            raise
        return ImportedView(log)


def _log_named(text: str, dir: Path) -> Log | None:
    """Return the log that a text names: a path with the name of one of its runs, else the id of one in a directory."""
    places = [place for place, character in enumerate(text) if character == "#"]  # a run's name may have one too
    for path, member in ((text[:place], text[place + 1 :]) for place in places):
        if path and os.path.exists(path):
            return next((log for log in logs_at(Path(path)) if log.member == member), None)
    found = (log for log in find_logs(dir) if text and log_id(log) == text) if dir.is_dir() else iter(())
    return next(found, None)
