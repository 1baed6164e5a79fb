"""What is known about the runs that were exported, so that the next export reads only those that have changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from windsock.fleet.files import INDEX_KIND, OWN_FOLDER, FleetFolder
from windsock.fleet.rows import Cutoffs
from windsock.fleet.schema import GROWING
from windsock.journal import decoding
from windsock.journal.decoding import list_of, object_of
from windsock.journal.directory_index import DirectoryIndex

PART = object_of(
    {
        "rows": decoding.read_count,
        "checksum": decoding.read_count,
        "sizes": list_of(decoding.read_count),
        "cutoffs": list_of(list_of(decoding.read_any)),
    },
    ("rows", "checksum", "sizes", "cutoffs"),
)
RUN = object_of(
    {"project": decoding.read_text, "run": decoding.read_text, **dict.fromkeys(GROWING, PART)},
    ("project", "run", *GROWING),
)


@dataclass(frozen=True, slots=True)
class ExportedTable:
    """The rows of a run in a table: their number and checksum, up to which steps, and the sizes of their files."""

    rows: int = 0
    checksum: int = 0
    cutoffs: Cutoffs = field(default_factory=dict)
    sizes: tuple[int, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return it for the index."""
        cutoffs = [[role, rank, step] for (role, rank), step in self.cutoffs.items()]
        return {**asdict(self), "cutoffs": cutoffs}

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> ExportedTable:
        """Return what the index has."""
        cutoffs = {(str(role), int(rank)): int(step) for role, rank, step in record["cutoffs"]}
        return cls(record["rows"], record["checksum"], cutoffs, tuple(record["sizes"]))


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """A run that was exported: what it was made of, and its rows by table. It is ``removed`` once its files are."""

    basis: str
    project: str
    run: str
    tables: dict[str, ExportedTable]
    removed: bool = False

    def is_whole(self, folder: FleetFolder) -> bool:
        """Return whether the files are as they were written."""
        for table, exported in self.tables.items():
            paths = [folder.part(table, self.project, self.run, number) for number in range(len(exported.sizes))]
            if [folder.sizes.get(path) for path in paths] != list(exported.sizes):
                return False
        return True

    def outdated(self, removed: bool = False) -> ExportedRun:
        """Return the run as one that is to be read again."""
        return replace(self, basis="", removed=removed)


class ExportedRuns:
    """The runs that were exported, by their paths."""

    def __init__(self, folder: FleetFolder) -> None:
        self._index = DirectoryIndex(folder.path, INDEX_KIND, OWN_FOLDER)
        self.runs: dict[str, ExportedRun] = {}
        for path, (basis, record) in self._index.load().items():
            try:
                read = RUN(record)
                tables = {table: ExportedTable.of_record(read[table]) for table in GROWING}
                self.runs[path] = ExportedRun(basis, read["project"], read["run"], tables, bool(read.get("removed")))
            except (ValueError, TypeError):  # it is exported again
                continue

    def save(self) -> None:
        """Write the index."""
        self._index.save({path: (run.basis, _record(run)) for path, run in self.runs.items()})


def _record(run: ExportedRun) -> dict[str, Any]:
    tables = {table: exported.record() for table, exported in run.tables.items()}
    return {"project": run.project, "run": run.run, "removed": run.removed, **tables}
