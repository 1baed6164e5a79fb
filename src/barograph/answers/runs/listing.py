"""The list of runs of a served directory: cheap facts at once, rewards, summaries and verdicts as soon as a background
thread has read them, those of the shown page first.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from barograph.answers.open_run import RunLocation
from barograph.answers.responses import encode
from barograph.answers.runs.annotations import Annotations
from barograph.answers.runs.listed_run import (
    ListedRun,
    RewardIndex,
    RunSummary,
    facts_record,
    log_glance,
    read_summary,
    reward_summary,
)
from barograph.answers.runs.open_runs import OpenRuns, RunHealth
from barograph.answers.runs.table import BASE, Choices, ListQuery, TableQuery, choices_of, default_columns, table_query
from barograph.base.errors import BarographError, RequestError
from barograph.base.formatting import describe_error
from barograph.catalogue.names import recognise
from barograph.catalogue.resolution import RunNames
from barograph.importers.cache import list_folder
from barograph.importers.opening import ImportedView
from barograph.importers.summary import run_names
from barograph.journal.directory import unreadable
from barograph.journal.format.folder import RunFiles
from barograph.journal.read.status import Glance, RunFacts, seen_at
from barograph.journal.view import View

STATUS_SECONDS = 2.0  # between status checks of a run that has not ended

REWARD_SECONDS = 5.0  # between readings of a running run that is not open

OPEN_SECONDS = 0.25  # times the number of open runs, between readings of one of them

REWARDS_AT_ONCE = 32  # before the order is decided again: another page may be shown

VERDICTS_AT_ONCE = 4

MAX_STATISTICS = 64  # numbers of series that are read of every run, the latest ones asked for

SAVE_SECONDS = 30.0  # between two writings of the indexes while rewards are read

FIRST_PAUSE = 0.5  # seconds after the first list of a server, in which a page shows it

REST_SHARE = 0.25  # of the time that reading took, before the next run is read: requests need the interpreter too


class Listing:
    """All runs as a list with cursors: each change has a number."""

    def __init__(self, open_runs: OpenRuns, annotations: Annotations) -> None:
        self._open_runs = open_runs
        self._annotations = annotations
        self._server_id = secrets.token_hex(3)  # each server counts from 0: the cursor of another is not valid
        self._lock = threading.Lock()
        self._runs: dict[str, ListedRun] = {}
        self._by_path: dict[Path, str] = {}
        self._gone: dict[str, int] = {}  # removed runs, with the number of the change, for pages that still show them
        self._changes = 0
        self._numbers = 0
        self._locations: dict[str, RunLocation] = {}
        self._files_count = -1  # of the last change of files that was taken in
        self._status_at = -1e9
        self._live: set[str] = set()
        self._stale: set[str] = set()  # whose rewards are older than their files
        self._wanted: dict[str, None] = {}  # on the page that was requested last, in its order
        self._statistics: dict[str, None] = {}  # columns of the table that are read of each run
        self._choices: tuple[int, float, Choices] | None = None  # as of which change, when to look again
        self._summaries = 0  # changes of summaries
        self._complete: tuple[int, list[str]] | None = None  # as of which change, and which numbers were looked for
        self._thread: threading.Thread | None = None
        self._has_read = False
        self._closed = False
        self._health = RunHealth(open_runs)
        self._indexes = {
            "journal": RewardIndex(open_runs.dir),
            "log": RewardIndex(open_runs.dir, list_folder(open_runs.dir)),  # nothing is written beside logs
        }

    @contextmanager
    def _updated(self) -> Iterator[int]:
        """Hold the lock with the list up to date; yield the number of rewards not read yet."""
        with self._lock:
            yield self._update()

    def view(self, since: str | None = None, query: ListQuery | None = None) -> dict[str, Any]:
        """Return a page of the runs, or those of it that changed since a cursor."""
        query = query or ListQuery()
        with self._updated() as pending:
            count = self._since(since)
            found = query.select(self._runs.values())
            page = found[query.offset : query.offset + query.limit]
            keys = [run.location.key for run in page]
            self._wanted = dict.fromkeys(keys)
            self._start_reading()
            others = [self._runs[key] for key in query.keys if key in self._runs and key not in self._wanted]
            return {
                "cursor": self._cursor(),
                "reset": count < 0,
                "gone": [key for key, when in self._gone.items() if when > count] if count >= 0 else [],
                "pending": pending,
                "total": len(found),
                "hidden": sum(run.annotations["hidden"] for run in self._runs.values()),
                "newest": self._newest(),
                "keys": keys,
                "runs": [run.row() for run in (*page, *others) if run.changed > count],
            }

    def table(self, since: str | None, columns: Sequence[str], where: str, group: Sequence[str], **options: Any) -> Any:
        """Return the columns of all runs that fulfil conditions, or those that changed since a cursor."""
        with self._updated():
            shown = options.pop("shown")
            choices = self._column_choices()
            columns = columns or default_columns(choices)
            query = table_query(columns, where, group, choices=choices, **options)
            self._want(query, shown)
            count = self._since(since)
            found = query.select(self._runs.values())
            return {
                "cursor": self._cursor(),
                "reset": count < 0,
                "pending": self._pending,
                "all": len(self._runs),
                "hidden": sum(run.annotations["hidden"] for run in self._runs.values()),
                "newest": self._newest(),
                "fields": [*BASE, *columns],
                "keys": [run.location.key for run in found],
                "rows": [query.row(run) for run in found if run.changed > count],
                "groups": query.groups(found),
            }

    def groups(self, keys: Sequence[str], by: Sequence[str]) -> list[dict[str, Any]]:
        """Return some runs in groups, in the order of the keys; summaries that are not known are read now."""
        with self._updated():
            unread = [self._runs[key] for key in keys if key in self._runs and self._runs[key].summary is None]
        for run in unread:
            self._read_reward(run)
        with self._lock:
            query = table_query((), "", by, hidden=True, choices=self._column_choices())
            return query.groups([self._runs[key] for key in keys if key in self._runs])

    def names(self) -> dict[str, str]:
        """Return the names of all runs by key, the newest first."""
        with self._updated():
            return {run.location.key: run.name for run in sorted(self._runs.values(), key=lambda run: -run.began)}

    def choices(self) -> Choices:
        """Return the columns that the runs have."""
        with self._updated():
            return self._column_choices()

    def _column_choices(self) -> Choices:
        began, known = time.monotonic(), self._choices
        if known is None or (known[0] != self._summaries and began > known[1]):
            found = choices_of(self._runs.values())
            took = time.monotonic() - began
            # While thousands of runs are read, a tenth of the time is spent on this.
            self._choices = known = self._summaries, began + 10 * took, found
        return known[2]

    def _want(self, query: TableQuery, shown: Sequence[str]) -> None:
        """Have the numbers that a table needs read of the runs that lack them, and the runs in sight judged first."""
        for column in query.statistics:
            self._statistics.pop(column, None)
            self._statistics[column] = None
        self._statistics = dict.fromkeys([*self._statistics][-MAX_STATISTICS:])
        needed = query.statistics
        complete = self._summaries, needed
        if complete != self._complete:
            self._complete = complete
            for key, run in self._runs.items():
                if run.summary is not None and any(map(run.summary.lacks, needed)):
                    run.reward_files = None
                    self._stale.add(key)
        self._wanted = dict.fromkeys([*(key for key in shown if key in self._runs), *self._wanted])
        self._start_reading()

    def update(self) -> None:
        """Take in what changed, without reading rewards."""
        with self._updated():
            pass

    def cursor(self) -> str:
        """Update the list and return its cursor."""
        with self._updated():
            self._start_reading()
            return self._cursor()

    def one(self, key: str) -> dict[str, Any]:
        """Return everything about one run."""
        self._open_runs.location(key)
        with self._updated():
            run = self._runs.get(key)
            if run is None:
                raise RequestError(404, f"run {key!r} cannot be read")
            self._update_status(run)
            return run.record()

    def close(self) -> None:
        """Stop the background thread after the run that it reads."""
        self._closed = True

    def _newest(self) -> str | None:
        """Return the run that a page shows first: the newest one that is not hidden, if there is one."""
        newest = max(self._runs.values(), key=lambda run: (not run.annotations["hidden"], run.began), default=None)
        return None if newest is None else newest.location.key

    def _cursor(self) -> str:
        return f"{self._server_id}-{self._changes}"

    def _since(self, cursor: str | None) -> int:
        """Return the number of a cursor's change; -1 for no cursor, or one of another server process."""
        server, _, count = (cursor or "").partition("-")
        valid = server == self._server_id and count.isascii() and count.isdecimal() and len(count) < 16
        return int(count) if valid else -1

    def _update(self) -> int:
        """Update the runs that may have changed; return the number of rewards not read yet."""
        locations = self._open_runs.locations()
        unread = set() if locations is self._locations else self._take_locations(locations)
        self._files_count, changed = self._open_runs.folders.changed_since(self._files_count)
        unread.update(self._by_path[path] for path in changed if path in self._by_path)
        self._read_facts(unread)
        for key in self._annotations.take_changed() & self._runs.keys():
            self._annotate(self._runs[key])
        if time.monotonic() - self._status_at > STATUS_SECONDS:
            self._status_at = time.monotonic()
            for key in list(self._live):
                self._update_status(self._runs[key])
        return self._pending

    @property
    def _pending(self) -> int:
        return sum(self._runs[key].reward_files is None for key in self._stale)

    def _take_locations(self, locations: dict[str, RunLocation]) -> set[str]:
        """Drop the runs that are gone; return those that are new."""
        self._locations = locations
        for key in [key for key, run in self._runs.items() if locations.get(key) != run.location]:
            self._drop(key)
        self._by_path = {location.path: key for key, location in locations.items()}
        return set(locations) - self._runs.keys()

    def _drop(self, key: str) -> None:
        run = self._runs.pop(key)
        facts = self._open_runs.facts if run.location.log is None else self._open_runs.log_facts
        facts.forget(run.location.path)
        self._live.discard(key)
        self._stale.discard(key)
        self._changes += 1
        self._gone[key] = self._changes

    def _read_facts(self, keys: Iterable[str]) -> None:
        new = []
        for key in keys:
            run = self._runs.get(key) or ListedRun(self._locations[key])
            run.files = self._open_runs.folders.files(run.location.path)
            self._update_status(run)
            if not run.facts:  # it was removed meanwhile
                continue
            if key not in self._runs:
                self._runs[key] = run
                new.append(run)
                self._annotate(run)
                self._indexes[run.location.kind].take(run)
                self._summaries += 1
                self._health.take(run)
            is_unread = run.location.log is not None and run.imported is None
            if is_unread or run.reward_files != run.files.states:
                self._stale.add(key)
        for run in sorted(new, key=lambda run: run.began):
            run.number = self._numbers
            self._numbers += 1

    def _update_status(self, run: ListedRun) -> None:
        """Bring the facts up to date, whose status also changes without a write: a process may be killed."""
        facts = self._facts(run)
        if facts is None or facts == run.facts:
            return
        run.facts, run.ended = facts, facts["status"] not in ("running", "stalled")
        (self._live.discard if run.ended else self._live.add)(run.location.key)
        self._open_runs.folders.set_ended(run.location.path, run.ended)
        self._count_change(run)

    def _facts(self, run: ListedRun) -> dict[str, Any] | None:
        seen = self._glance(run) if run.files.states or run.location.log is None else None
        return facts_record(run.location, seen) if seen is not None else None

    def _glance(self, run: ListedRun) -> Glance | None:
        folder, log = run.location.path, run.location.log
        if log is not None:
            run.imported = self._open_runs.log_facts.known(log, run.files) or run.imported
            return log_glance(run, log)
        try:
            return seen_at(folder, self._open_runs.facts.facts(folder, run.files), run.files.bytes)
        except Exception as problem:  # noqa: BLE001 - whatever is in one run, the others are listed
            return unreadable(folder, problem) if folder.is_dir() else None

    def _annotate(self, run: ListedRun) -> None:
        annotations = self._annotations.get(run.location.key)
        if annotations != run.annotations:
            if annotations["source"] != run.annotations.get("source") and run.reward_files is not None:
                run.reward_files = None  # under another source the reward may have another name
                self._stale.add(run.location.key)
            run.annotations = annotations
            self._count_change(run)

    def _count_change(self, run: ListedRun) -> None:
        self._changes += 1
        run.changed = self._changes
        self._gone.pop(run.location.key, None)  # the run is back
        if run.annotations:
            run.update_search_text()

    def _is_due(self, run: ListedRun) -> bool:
        is_open = self._open_runs.get_open(run.location.key) is not None
        pause = OPEN_SECONDS * self._open_runs.count * (not run.ended) if is_open else REWARD_SECONDS
        return run.reward_files is None or time.monotonic() - run.reward_read_at > min(pause, REWARD_SECONDS)

    def _start_reading(self) -> None:
        """Start the thread, if there is something to read."""
        if (self._thread is None or not self._thread.is_alive()) and (
            any(self._is_due(self._runs[key]) for key in self._stale) or any(self._to_judge())
        ):
            self._thread = threading.Thread(target=self._read, name="barograph-list", daemon=True)
            self._thread.start()

    def _read(self) -> None:
        if not self._has_read:
            self._has_read = True
            self._rest(FIRST_PAUSE)
        saved_at = time.monotonic()
        while due := self._next():
            for read, run in due:
                if self._closed:
                    return
                began = time.monotonic()
                read(run)
                self._rest(REST_SHARE * (time.monotonic() - began))
            if time.monotonic() - saved_at > SAVE_SECONDS:
                self._save()
                saved_at = time.monotonic()
        self._save()

    def _rest(self, seconds: float) -> None:
        time.sleep(seconds)

    def _next(self) -> Sequence[tuple[Callable[[ListedRun], None], ListedRun]]:
        """Return what to read next: rewards of the page that is shown, verdicts on its runs, then other rewards."""
        with self._lock:
            due = [run for key in self._stale if self._is_due(run := self._runs[key])]
            # Runs that show no reward yet come before those whose reward is a little old.
            due.sort(key=lambda run: (run.location.key not in self._wanted, run.reward_files is not None, -run.began))
            rewards = [(self._read_reward, run) for run in due[:REWARDS_AT_ONCE]]
            verdicts = [(self._judge, run) for run in islice(self._to_judge(), VERDICTS_AT_ONCE)]
            is_shown = rewards and due[0].location.key in self._wanted
            return rewards if is_shown or not verdicts else verdicts

    def _to_judge(self) -> Iterator[ListedRun]:
        """Yield the runs on the page that is shown that are to be judged, in its order."""
        shown = (self._runs[key] for key in self._wanted if key in self._runs)
        return (run for run in shown if run.files.states and self._health.is_due(run))

    def _judge(self, run: ListedRun) -> None:
        health, basis = self._health.judged(run)
        with self._lock:
            before, run.judged_at = run.health_record, time.monotonic()
            run.health, run.health_basis = health, basis
            if run.health_record != before:
                self._count_change(run)

    def _read_reward(self, run: ListedRun) -> None:
        # Taken before reading: if the run grows meanwhile, the reward is older than its files and is read again.
        states, source = run.files.states, run.annotations["source"]
        try:
            reward, summary, imported, waits = self._read_run(run.location, run.files, source)
            problem = ""
        except Exception as error:  # noqa: BLE001 - the run is listed without a reward, and the next one is read
            reward, summary, imported, waits = None, None, None, False
            problem = str(error) if isinstance(error, BarographError) else describe_error(error)
        with self._lock:
            run.imported, run.problem = imported or run.imported, problem
            self._update_status(run)
            run.reward_files, run.reward_read_at = states, time.monotonic()
            if (run.files.states, run.annotations["source"]) == (states, source) and not waits:
                self._stale.discard(run.location.key)
            # Compared as JSON, since a NaN is not equal to itself.
            if _is_other(run.reward, reward) or _is_other(_numbers(run.summary), _numbers(summary)):
                run.reward, run.summary = reward, summary
                self._summaries += 1
                self._count_change(run)

    def _read_run(
        self, location: RunLocation, files: RunFiles, source: str | None
    ) -> tuple[dict[str, Any] | None, RunSummary, RunFacts | None, bool]:
        """Return reward, summary, the facts in a log, and whether its end waits; uses the open run if there is one."""
        if self._open_runs.get_open(location.key) is not None:
            with self._open_runs.use(location.key) as opened:
                return self._read_view(opened.view, opened.meanings(), files)
        with self._open_runs.room_for(location):
            view = location.open()
            return self._read_view(view, run_names(view, source), files)

    def _read_view(
        self, view: View, names: RunNames, files: RunFiles
    ) -> tuple[dict[str, Any] | None, RunSummary, RunFacts | None, bool]:
        summary = read_summary(view, names, list(self._statistics))
        return reward_summary(view, names), summary, self._log_facts(view, files), view.waits

    def _log_facts(self, view: View, files: RunFiles) -> RunFacts | None:
        if not isinstance(view, ImportedView):
            return None
        return self._open_runs.log_facts.keep(view.imported, files)

    def _save(self) -> None:
        with self._lock:
            runs = list(self._runs.values())
        self._open_runs.facts.save()
        self._open_runs.log_facts.save()
        self._health.save()
        for kind, index in self._indexes.items():
            of_kind = [run for run in runs if run.location.kind == kind]
            if of_kind:  # nothing is written beside logs only
                index.save(of_kind)


def _is_other(before: Any, now: Any) -> bool:
    return encode(before) != encode(now)


def _numbers(summary: RunSummary | None) -> Any:
    """Return what of a summary changes while a run goes on."""
    return None if summary is None else [summary.setting, len(summary.names), summary.values]


class RunDirectory:
    """A directory of runs, or one log of another program, shared by all requests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.annotations = Annotations(path.parent if path.is_file() else path)
        self.open_runs = OpenRuns(path, source_of=self.annotations.source)
        self.listing = Listing(self.open_runs, self.annotations)

    def prepare(self) -> None:
        """Load the catalogue and look at the runs while a browser starts: then the first page does not wait for it."""
        recognise("reward")
        with suppress(BarographError, OSError):  # the request for the list reports it
            self.listing.update()

    def close(self) -> None:
        """Stop the background thread and close the annotations' segment."""
        self.listing.close()
        self.annotations.close()
        self.open_runs.folders.close()
