"""Export the runs of a directory to a data set: what is new since the last export.

A run that has not changed is not read. Of one that has grown, the rows that are new are added in a file of their own.
If rows that were exported have changed, because a newer attempt supersedes them say, the files of the run are replaced
by one. What was exported is noted after it was written: whatever is done when the process is killed, the next export
does the rest, and no row is there twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barograph.answers.fleet.files import (
    MAX_PARTS,
    ExportedRun,
    ExportedRuns,
    ExportedTable,
    FleetFolder,
    RunKey,
    RunTables,
)
from barograph.answers.fleet.schema import GROWING, partition_of
from barograph.answers.fleet.tables import (
    Record,
    RowBlock,
    block_table,
    checksum,
    config_records,
    finding_records,
    last_steps,
    phase_blocks,
    run_record,
    settled,
    value_blocks,
)
from barograph.base.errors import BarographError
from barograph.base.formatting import describe_error, encodable
from barograph.base.model import RunInfo
from barograph.catalogue.user_metrics import names_files
from barograph.diagnosis.diagnose import Visit
from barograph.diagnosis.fleet import ConfigIndex
from barograph.diagnosis.health import HealthList
from barograph.importers.opening import open_run
from barograph.importers.summary import run_names
from barograph.journal.directory import LatestAnnotations
from barograph.journal.read.status import Glance

FLUSH_SECONDS = 10.0  # what a kill costs
NO_STEP = -(2**63)  # below every step
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Outcome:
    """What an export did: numbers of runs, rows of values and phases, and why runs could not be exported."""

    new: int = 0
    updated: int = 0
    rewritten: int = 0
    same: int = 0
    removed: int = 0
    rows: int = 0
    problems: dict[Path, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadRun:
    """What was read of a run: blocks of the tables that grow, and records of the others."""

    key: RunKey
    info: RunInfo
    has_ended: bool
    waits: bool  # there may be more although no file changes
    blocks: dict[str, list[RowBlock]]
    records: dict[str, list[Record]]


class FleetExport:
    """An export of the runs below a directory; ``patterns`` choose the metrics."""

    def __init__(self, dir: Path, folder: FleetFolder, patterns: Sequence[str], prune: bool = False) -> None:
        self._dir = dir
        self._folder = folder
        self._patterns = list(patterns)
        self._prune = prune
        self._health = HealthList(dir)
        self._configs = ConfigIndex(dir)
        self._tags = LatestAnnotations("tags")
        self._exported = ExportedRuns(folder)
        self._tables = RunTables(folder)
        self._owners = {(run.project, run.run): path for path, run in self._exported.runs.items()}
        self._flushed = time.monotonic()
        self.outcome = Outcome()
        self._forget_unlisted()

    def _forget_unlisted(self) -> None:
        """Export the runs again whose rows in the small tables were deleted with their files."""
        listed = self._tables.listed({project for project, _ in self._owners})
        for path, run in self._exported.runs.items():
            if (run.project, run.run) not in listed:
                self._exported.runs[path] = run.outdated()

    def run(self, runs: Sequence[Glance], on_progress: Progress) -> None:
        """Export what is new; also if it is interrupted, what was done stays done."""
        present = {_path_of(run) for run in runs}
        try:
            for count, run in enumerate(runs):
                on_progress(count, len(runs))
                self._export(run, present)
                if time.monotonic() - self._flushed > FLUSH_SECONDS:
                    self._flush()
            on_progress(len(runs), len(runs))
            self._leave_gone(present)
        finally:
            self._flush()

    def _flush(self) -> None:
        self._tables.flush()
        self._exported.save()  # last: what it notes is there
        self._health.save()
        self._configs.save()
        self._flushed = time.monotonic()

    def _export(self, run: Glance, present: set[str]) -> None:
        path, basis = _path_of(run), self._basis(run)
        known = self._exported.runs.get(path)
        if known is not None and known.basis == basis and known.is_whole(self._folder):
            self.outcome.same += 1
            return
        try:
            found = self._read(run)
            self._check_owner(found.key, path, present)
        except Exception as problem:  # noqa: BLE001 - whatever is in one run, the others are exported
            error = str(problem) if isinstance(problem, BarographError) else describe_error(problem)
            self.outcome.problems[run.path] = error
            return
        known = self._taken_over(found.key, path)
        tables = {table: self._write(table, found, known) for table in GROWING}
        self._count(known, tables)
        self._tables.put(found.key, found.records)
        self._exported.runs[path] = ExportedRun("" if found.waits else basis, *found.key, tables)
        self._owners[found.key] = path

    def _basis(self, run: Glance) -> str:
        """Return what the rows of a run are made of. A run can end without a change of its files: by a kill."""
        return " ".join((self._health.basis(run), run.status.word, repr(self._given_tags(run)), repr(self._patterns)))

    def _given_tags(self, run: Glance) -> list[str] | None:
        """Return the tags that were given to a run on the page."""
        found = self._tags.get(run.path, run.info.id.replace("/", "_"))
        return [str(tag) for tag in found] if isinstance(found, list) else None

    def _read(self, run: Glance) -> ReadRun:
        if run.status.word == "unreadable":
            raise BarographError(run.status.reason)
        described = names_files(run.path)
        view = open_run(run.path)
        names = run_names(view)
        diagnosis = Visit().diagnose(view, names)
        self._health.keep(run, view, diagnosis, described)
        self._configs.keep(run, view.config)
        row = run_record(view, names, diagnosis)
        given = self._given_tags(run)
        row["tags"] = row["tags"] if given is None else given
        blocks = {"values": value_blocks(view, names, self._patterns), "phases": phase_blocks(view)}
        key = encodable(view.info.project), encodable(view.info.id)
        for table in GROWING:
            self._folder.part(table, *key, 0)  # raises where a name is too long for a path
        records = {
            "runs": [row],
            "configs": [*config_records(view)],
            "findings": [*finding_records(view.info, diagnosis)],
        }
        return ReadRun(key, view.info, view.status.ended, view.waits, blocks, records)

    def _check_owner(self, key: RunKey, path: str, present: set[str]) -> None:
        """Raise where another run has the same project and id: of a copy, the rows of the first one stay."""
        owner = self._owners.get(key, path)
        if owner != path and (owner in present or Path(owner).exists()):
            raise BarographError(f"its project and id are also those of {owner}, which is exported")

    def _taken_over(self, key: RunKey, path: str) -> ExportedRun | None:
        """Return what was exported of a run, also if it was moved; drop what it was under another project or id."""
        before = self._exported.runs.get(path)
        if before is not None and (before.project, before.run) != key:
            self._drop(path, before)
        owner = self._owners.get(key)
        return None if owner is None else self._exported.runs.pop(owner, None)

    def _write(self, table: str, run: ReadRun, known: ExportedRun | None) -> ExportedTable:
        """Write the rows of a run that are new, or all of them where those that were exported are others now."""
        before = known.tables[table] if known is not None else ExportedTable()
        blocks = run.blocks[table] if run.has_ended else settled(run.blocks[table], before.cutoffs)
        if not self._is_beginning(table, run, before, blocks):
            before = ExportedTable()
        new = [block.between(before.cutoffs.get((block.role, block.rank)), None) for block in blocks]
        new = [block for block in new if len(block)]
        kept = [self._folder.part(table, *run.key, number) for number in range(len(before.sizes) + bool(new))]
        # First, so that no row is there twice at any time.
        for path in reversed(self._folder.parts(table, *run.key)):
            if path not in kept:
                self._folder.remove(path)
        if new:
            rows = block_table(table, partition_of(table, self._folder.partition), run.info, new)
            self._folder.write(kept[-1], rows)
            self.outcome.rows += len(rows)
        sizes = tuple(self._folder.sizes[path] for path in kept)
        return ExportedTable(*checksum(blocks), {**before.cutoffs, **last_steps(blocks)}, sizes)

    def _is_beginning(self, table: str, run: ReadRun, before: ExportedTable, blocks: Sequence[RowBlock]) -> bool:
        """Return whether the rows that were exported are the first ones of a run, in files as they were written."""
        paths = [self._folder.part(table, *run.key, number) for number in range(len(before.sizes))]
        if len(paths) >= MAX_PARTS or tuple(map(self._folder.sizes.get, paths)) != before.sizes:
            return False
        first = [block.between(None, before.cutoffs.get((block.role, block.rank), NO_STEP)) for block in blocks]
        return checksum(first) == (before.rows, before.checksum)

    def _count(self, known: ExportedRun | None, tables: dict[str, ExportedTable]) -> None:
        if known is None:
            self.outcome.new += 1
        elif all(tables[table].sizes[: len(one.sizes)] == one.sizes for table, one in known.tables.items()):
            self.outcome.updated += 1
        else:
            self.outcome.rewritten += 1

    def _leave_gone(self, present: set[str]) -> None:
        """Mark the runs whose files are gone, or take them out."""
        for path, run in list(self._exported.runs.items()):
            is_below = Path(path).is_relative_to(self._dir.absolute())
            if not is_below or path in present or Path(path).exists() or (run.removed and not self._prune):
                continue
            self.outcome.removed += 1
            if self._prune:
                self._drop(path, run)
            else:
                self._tables.mark_removed((run.project, run.run))
                self._exported.runs[path] = run.outdated(removed=True)

    def _drop(self, path: str, run: ExportedRun) -> None:
        self._folder.remove_run(run.project, run.run)
        self._tables.drop((run.project, run.run))
        del self._exported.runs[path], self._owners[run.project, run.run]


def _path_of(run: Glance) -> str:
    return str(run.path.absolute())
