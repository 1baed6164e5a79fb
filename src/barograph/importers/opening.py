"""Opening runs: journals by id, name or path, and logs of other programs by path."""

from __future__ import annotations

import os
from pathlib import Path

from barograph.base.errors import LogError, RunNotFoundError
from barograph.catalogue.sources import check_source
from barograph.catalogue.spec import CatalogueError
from barograph.importers.imported import ImportedLog, log_id
from barograph.importers.logs import HINT, find_logs, log_at, logs_at
from barograph.importers.reading.log import Log
from barograph.journal.directory import LatestAnnotations
from barograph.journal.format.folder import default_dir, find_run, is_run, run_folders
from barograph.journal.view import View


class ImportedView(View):
    """A run that another program logged. ``path`` is its journal in the cache, ``log`` where it comes from."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.imported = ImportedLog(log)
        self.imported.update()
        super().__init__(self.imported.folder)

    @property
    def location(self) -> Path:
        """The path of the log."""
        return self.log.place

    @property
    def waits(self) -> bool:
        """Whether the end of the log is read only if it stays as it is for a moment."""
        return self.imported.waits

    def refresh(self) -> bool:
        """Read what is new in the log; return whether there was anything."""
        if self.imported.update():
            source = self.source
            super().__init__(self.imported.folder)
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
    found = find_run_or_log(run, Path(dir) if dir is not None else None)
    view = ImportedView(found) if isinstance(found, Log) else View(found)
    view.source = source or _chosen_source(view) or view.source
    return view


def _chosen_source(view: View) -> str | None:
    """Return the source that a person has chosen on the page; None where it is unknown to this version."""
    chosen = LatestAnnotations("source").get(view.path, view.id.replace("/", "_"))
    try:
        if chosen is not None:
            check_source(str(chosen))
    except CatalogueError:
        return None
    return None if chosen is None else str(chosen)


def find_run_or_log(run: str | os.PathLike[str], dir: Path | None = None) -> Path | Log:
    """Return the directory of a run, or the log of another program, that is named as in ``open_run``."""
    path = Path(run)
    is_folder = os.path.isdir(path)  # a name may be too long for a path, which Path.is_dir raises
    if is_folder and is_run(path):
        return path
    if os.path.isfile(path) or (is_folder and len(path.parts) > 1):
        return _only_run(path)
    try:
        return find_run(run, dir)
    except RunNotFoundError:
        if os.fspath(run) and os.path.exists(path):
            return _only_run(path)
        log = _log_named(str(run), dir or default_dir())
        if log is None and len(path.parts) > 1:
            raise RunNotFoundError(f"{path} does not exist, and no run has this name") from None
        if log is None:
            raise
        return log


def _only_run(path: Path) -> Path | Log:
    """Return the only run at a path: the log in a file, or what a directory has."""
    if not path.is_dir():
        return log_at(path)
    journals = list(run_folders(path))
    if not journals:
        return log_at(path)
    if len(journals) == 1 and not any(find_logs(path)):
        return journals[0]
    raise RunNotFoundError(f"{path} has several runs: list them with 'barograph ls {path}' and give one")


def _log_named(text: str, dir: Path) -> Log | None:
    """Return the log that a text names: a path with the name of one of its runs, else one in a directory."""
    places = [place for place, character in enumerate(text) if character == "#"]  # a run's name may have one too
    for path, member in ((text[:place], text[place + 1 :]) for place in places):
        if path and os.path.exists(path):
            return _member(Path(path), member)
    logs = list(find_logs(dir)) if dir.is_dir() else []
    if text == "@last":
        return max(logs, key=_written, default=None)
    for found in (
        [log for log in logs if log_id(log) == text],
        [log for log in logs if text and log_id(log).startswith(text)],
    ):
        if len(found) == 1:
            return found[0]
    return None


def _member(path: Path, member: str) -> Log:
    """Return one of the runs in a store."""
    for log in logs_at(path):
        if log.member == member:
            return log
    raise LogError(f"{path} has no run {member!r}; {HINT}")


def _written(log: Log) -> float:
    try:
        return log.path.stat().st_mtime
    except OSError:
        return 0.0
