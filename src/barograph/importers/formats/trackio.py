"""Trackio's databases: one file per project, with all of its runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from barograph.importers.reading.log import Facts, Format, FoundLogs, RewrittenError
from barograph.importers.reading.sqlite import (
    UNREADABLE,
    DatabaseReader,
    columns,
    database,
    stored_runs,
    unique_names,
    while_unchanged,
)
from barograph.importers.reading.values import SPECIAL, as_step, as_time, histogram_of, json_of, to_float
from barograph.importers.recorder import Recorder

COLUMNS = {"id", "timestamp", "run_name", "step", "metrics"}  # of the table of metrics, in every version
TRAINER_STEP = "train/global_step"  # as the Trainer of transformers logs it: Trackio's own step counts calls
ESCAPE = "__"  # before a name that Trackio uses itself
SAMPLE_FIELDS = ("task", "prompt", "completion", "reward", "length", "advantage")


def logs_in(folder: Path, names: Sequence[str]) -> FoundLogs:
    """Return the runs in Trackio's databases."""
    found = stored_runs(folder, names, "trackio_store", runs_of)
    found.taken.update({f"{Path(name).stem}.lock" for name in found.taken} & set(names))
    return found


@while_unchanged
def runs_of(path: Path) -> dict[str, str] | None:
    """Return the ids of runs with the names under which they are opened; None if it is not Trackio's database."""
    try:
        with database(path) as connection:
            if not columns(connection, "metrics") >= COLUMNS:
                return None
            return unique_names(list(_ids(connection).items()))
    except UNREADABLE:
        return None


def _key(connection: sqlite3.Connection, table: str = "metrics") -> str:
    """Return the column by which a table tells runs apart; in older versions it is their name."""
    return "run_id" if "run_id" in columns(connection, table) else "run_name"


def _ids(connection: sqlite3.Connection) -> dict[str, str]:
    """Return ids and names of the runs, in the order of their first rows; of a damaged table those before it."""
    id = _key(connection)
    try:
        rows = connection.execute(f"SELECT {id}, run_name FROM metrics GROUP BY {id} ORDER BY min(id)")
        return {str(found): str(name) for found, name in rows}
    except UNREADABLE:
        found: dict[str, str] = {}
        with suppress(*UNREADABLE):
            for one, name in connection.execute(f"SELECT {id}, run_name FROM metrics NOT INDEXED"):
                found.setdefault(str(one), str(name))
        return found


class Reader(DatabaseReader):
    """Reads one run of a database."""

    def facts(self) -> Facts:
        """Return name, group, tags and time of the run."""
        _, _, name, config = self._run()
        tags = config.get("tags")
        return Facts(
            name=name,
            project=self.log.path.stem,
            group=str(config["_Group"]) if config.get("_Group") else None,
            created=as_time(config.get("_Created")),
            tags=tuple(map(str, tags)) if isinstance(tags, list) else (),
        )

    def read(self, out: Recorder) -> None:
        """Record the rows that are new."""
        key, id, _, config = self._run()
        self.record_config({name: value for name, value in config.items() if name[:1] != "_"}, out)
        query = f"SELECT id, timestamp, step, metrics FROM metrics {{way}} WHERE {key} = ? AND id > ? ORDER BY id"
        for number, at, step, text in self.rows_after_last(query, id, out):
            self._row(as_time(at), step, text, number, out)
            self.state["last"], self.state["text"] = number, str(text)[:100]

    def _run(self) -> tuple[str, str, str, dict[str, Any]]:
        """Return the column of ids, and id, name and settings of the run."""
        key, id = "run_name", self.id_in(runs_of(self.log.path))
        try:
            with database(self.log.path) as connection:
                key = _key(connection)
                name = connection.execute(f"SELECT run_name FROM metrics WHERE {key} = ? LIMIT 1", (id,)).fetchone()
                text = None
                if columns(connection, "configs"):
                    own = _key(connection, "configs")
                    text = connection.execute(f"SELECT config FROM configs WHERE {own} = ?", (id,)).fetchone()
                return key, id, str(name[0]) if name else self.log.member, _object(text[0]) if text else {}
        except UNREADABLE:
            return key, id, self.log.member, {}

    def check_same(self, connection: sqlite3.Connection) -> None:
        """Raise RewrittenError if the last row that was read is another one now."""
        found = connection.execute("SELECT metrics FROM metrics WHERE id = ?", (self.state["last"],)).fetchone()
        if found is None or str(found[0])[:100] != self.state["text"]:
            raise RewrittenError

    def _step(self, found: Mapping[str, Any], own: Any, out: Recorder) -> int | None:
        """Return the step of a row: that of a trainer, if it differs from Trackio's own, which then counts calls."""
        given = as_step(found.get(TRAINER_STEP))
        if given is not None and (given != own or "trainer_step" in self.state):
            out.note(f"steps are read from {TRAINER_STEP!r}")
            self.state["trainer_step"] = given
        step: int | None = self.state.get("trainer_step", as_step(own))
        return step

    def _row(self, at: float | None, step: Any, text: Any, number: int, out: Recorder) -> None:
        found = _object(text)
        if not found:
            out.unread(f"row {number}", "not a JSON object")
            return
        step = self._step(found, step, out)
        numbers: dict[str, float | None] = {}
        for name, value in found.items():
            name = name.removeprefix(ESCAPE)
            if value is None or isinstance(value, int | float):
                numbers[name] = None if value is None else to_float(value)
            elif isinstance(value, str):
                if value.lower() in SPECIAL:
                    numbers[name] = SPECIAL[value.lower()]
                else:
                    out.text(name, value, step, at)
            elif isinstance(value, Mapping):
                _record_object(name, value, step, at, out)
        out.row(numbers, step, at)


def _record_object(name: str, value: Mapping[str, Any], step: int | None, at: float | None, out: Recorder) -> None:
    kind, content = value.get("_type"), value.get("_value")
    if kind == "trackio.markdown":
        out.text(name, str(content), step, at)
    elif kind == "trackio.histogram" and (histogram := histogram_of(value)) is not None:
        out.histogram(name, histogram, step, at)
    elif kind == "trackio.table" and isinstance(content, list) and step is not None and _are_samples(content):
        out.samples([_sample(row) for row in content], step, at)
    else:
        out.note("tables, pictures and other media are not read")


def _are_samples(rows: list[Any]) -> bool:
    return bool(rows) and all(isinstance(row, Mapping) and {"prompt", "completion"} <= row.keys() for row in rows)


def _sample(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table as a sample; further numbers are components of the reward."""
    sample = {name: row[name] for name in SAMPLE_FIELDS if row.get(name) is not None}
    rewards = {
        name.removeprefix("reward/"): value
        for name, value in row.items()
        if name not in (*SAMPLE_FIELDS, "step") and isinstance(value, int | float)
    }
    return sample | ({"rewards": rewards} if rewards else {})


def _object(text: Any) -> dict[str, Any]:
    found = json_of(text)
    return found if isinstance(found, dict) else {}


FORMAT = Format("Trackio database", Reader, logs_in=logs_in)
