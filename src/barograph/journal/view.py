"""Reading a run: ``barograph.open(...)``."""

from __future__ import annotations

import fnmatch
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from barograph.base.displayed import Displayed
from barograph.base.errors import MetricNotFoundError, did_you_mean
from barograph.base.files.directory_watch import FolderChanges
from barograph.base.formatting import counted, encodable
from barograph.base.installation import install_command
from barograph.base.model import (
    Histogram,
    LoggedText,
    MissingRank,
    Origin,
    PhaseSpan,
    Problem,
    RunInfo,
    Sample,
    Status,
    Writer,
)
from barograph.journal.format.folder import FileState, SegmentFile, read_run_info, segment_files
from barograph.journal.format.frames import Kind
from barograph.journal.merge.coverage import COUNTED
from barograph.journal.merge.merged_role import MergedRole
from barograph.journal.merge.ranks import names_over_ranks, reduced_series
from barograph.journal.read.attempt import Attempt, TableColumn
from barograph.journal.read.series import Series, joined
from barograph.journal.read.spans import SpanTable, Texts
from barograph.journal.read.status import main_first, run_status
from barograph.journal.segments.contents import SampleFrame
from barograph.journal.segments.indexed_reader import IndexedReader
from barograph.journal.segments.reader import SegmentReader
from barograph.journal.segments.steps import superseded_from

if TYPE_CHECKING:
    import pandas as pd

    from barograph.journal.samples.index import SampleIndex
    from barograph.journal.samples.query import Census, FoundSamples, Query, Steps

T = TypeVar("T")


class View(Displayed):
    """A run, read from its journal. ``refresh`` reads what was appended since.

    After a restart, the newer attempt supersedes the older: for each role and rank, the points of an older attempt
    count only below the first step of the newer. ``series(..., attempt=1)`` returns all points of an older attempt.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.info: RunInfo = read_run_info(folder)
        self.source: str | None = None if self.info.producer in ("barograph", "") else self.info.producer
        self._schemas: dict[int, tuple[str, ...]] = {}
        self._phase_texts = Texts()
        self._attempts: dict[Writer, Attempt] = {}  # in the order of writers
        self._by_rank: dict[tuple[str, int], list[Attempt]] = {}  # the trainer first; of each rank in order
        self._ranks_of: dict[str, list[int]] = {}  # by role, the trainer first
        self._readers: dict[str, tuple[SegmentReader, Attempt]] = {}  # by the name of the file
        self._files: dict[str, FileState] = {}  # when they were read
        self._changes: FolderChanges | None = FolderChanges(folder)
        self._is_read = False  # whether all files were read as they were listed last
        self._merged_roles: dict[str, MergedRole] = {}
        self._changed: dict[str, dict[Writer, Attempt]] = {}  # by role, since it was merged
        self._kept: dict[Any, Any] = {}  # results, until something new is read
        self._sample_index: SampleIndex | None = None
        self.refresh()

    def __repr__(self) -> str:
        metrics = counted(len(self.names()), "metric")
        return f"<barograph run {self.info.id} {self.info.name!r}: {self.status.word}, {metrics}>"

    def refresh(self) -> bool:
        """Read what is new; return whether there was anything."""
        files = self._list_files()
        self._add_segments(name for name in files if name not in self._readers)
        grown = [name for name, state in files.items() if state != self._files.get(name)]
        self._kept.clear()
        for merged in self._merged_roles.values():
            merged.is_current = False
        # One by one: threads would wait for each other, since most of the work is done by the interpreter.
        found = [reader for name in grown if (reader := self._readers[name][0]).poll()]
        # Only now: a segment that could not be read is tried again.
        self._files.update((name, files[name]) for name in grown)
        self._is_read = True
        for reader in found:
            attempt = self._readers[reader.path.name][1]
            self._changed.setdefault(attempt.writer.role, {})[attempt.writer] = attempt
        return bool(found)

    def _list_files(self) -> dict[str, FileState]:
        """Return the segment files with their states, as they were if nothing has happened in the directory."""
        has_changed = self._changes is None or self._changes.take()
        if self._is_read and not has_changed:
            return self._files
        self._is_read = False
        return segment_files(self.path)

    def _add_segments(self, names: Iterable[str]) -> None:
        added = sorted(segment for name in names if (segment := SegmentFile.parse(self.path / name)))
        for segment in added:
            writer = segment.writer
            attempt = self._attempts.get(writer)
            if attempt is None:
                attempt = self._attempts[writer] = Attempt(writer, IndexedReader, self._schemas, self._phase_texts)
                insort(self._by_rank.setdefault((writer.role, writer.rank), []), attempt, key=lambda a: a.writer)
            self._readers[segment.path.name] = attempt.add(segment), attempt
            self._changed.setdefault(writer.role, {})[writer] = attempt
            if segment.path.is_symlink():  # there is no notice of changes in another directory
                self._changes = None
        if added:
            self._attempts = dict(sorted(self._attempts.items()))
            self._by_rank = dict(sorted(self._by_rank.items(), key=lambda pair: main_first(*pair[0])))
            self._ranks_of = {}
            for role, rank in self._by_rank:
                self._ranks_of.setdefault(role, []).append(rank)

    def _keep(self, what: Any, compute: Callable[[], T]) -> T:
        """Return a result that was computed since something new was read, or compute it."""
        if what not in self._kept:
            self._kept[what] = compute()
        found: T = self._kept[what]
        return found

    @property
    def id(self) -> str:
        """The run's id."""
        return self.info.id

    @property
    def name(self) -> str:
        """The run's name."""
        return self.info.name

    @property
    def location(self) -> Path:
        """Where the run is: its directory, or the log of another program that it is read from."""
        return self.path

    @property
    def waits(self) -> bool:
        """Whether there may be something new although no file changes."""
        return False

    @property
    def status(self) -> Status:
        """The status: running, finished, crashed, killed or stalled, with the reason."""
        return run_status(self.writer_statuses())

    def writer_statuses(self) -> dict[Writer, Status]:
        """Return the status of the newest attempt of each role and rank."""
        newest = {(writer.role, writer.rank): attempt for writer, attempt in self._attempts.items()}  # the last stays
        return {attempt.writer: attempt.status for attempt in newest.values()}

    def writer_hosts(self) -> dict[Writer, str]:
        """Return on which host the newest attempt of each role and rank runs, where that is known."""
        newest = [attempts[-1] for attempts in self._by_rank.values() if attempts]
        return {attempt.writer: host for attempt in newest if (host := attempt.start_event.get("host"))}

    @property
    def config(self) -> dict[str, Any]:
        """The run's config with all updates, without secrets."""
        return _merged(self.events(), "config")

    @property
    def environment(self) -> dict[str, Any]:
        """Host, command line, git commit and package versions, of the newest attempt of the main writer."""
        for attempts in self._by_rank.values():
            found = [event for attempt in attempts for event in attempt.events()]
            if environment := _merged(found, "environment"):
                return environment
        return {}

    def events(self) -> list[dict[str, Any]]:
        """Return the events of all writers by time, without those of forked processes.

        Of heartbeats there is the last one of each segment, and the one at which the most frames waited.
        """
        return list(self._keep("events", self._all_events))

    def _all_events(self) -> list[dict[str, Any]]:
        found = [event for attempt in self._attempts.values() for event in attempt.events()]
        return sorted(found, key=lambda event: event.get("time", 0.0))

    def skipped(self) -> dict[str, tuple[str, int]]:
        """Return the values that could not be logged: name to reason and count."""
        found = [event for event in self.events() if event.get("event") == "skipped"]
        return {event["name"]: (event.get("reason", ""), event.get("count", 1)) for event in found}

    def problems(self) -> list[Problem]:
        """Return the calls of the training loop that failed, with the failures of all processes added up.

        Samples and rollout states that cannot be read are problems too: samples after they were first searched.
        """
        counts: dict[tuple[str, str], int] = {}
        for attempt in self._attempts.values():
            for event in attempt.events_of_all():  # unlike events(), with those of forked processes
                if event.get("event") == "problem":
                    found = event.get("call", ""), event.get("error", "")
                    counts[found] = counts.get(found, 0) + event.get("count", 1)
        for text in self.sample_index.known_damage() if self._has_samples() else ():
            found = "samples", text.split(": ", 2)[-1]  # without the place in the file
            counts[found] = counts.get(found, 0) + 1
        for role in self._roles():
            for error, count in self._merged_of(role).unread.items():
                found = "merging ranks", error
                counts[found] = counts.get(found, 0) + count
        return [Problem(call, error, count) for (call, error), count in counts.items()]

    def missing_ranks(self) -> list[MissingRank]:
        """Return the ranks that steps lack, with the reasons; those steps have no merged values.

        A rank that the launcher has started and that records nothing is missing in all steps, which have the values
        of the other ranks.
        """
        roles = self._roles()
        found = {missing: None for role in roles for missing in self._absent_ranks(role)}
        found |= {missing: None for role in roles for missing in self._merged_of(role).missing(role)}
        found |= {missing: None for role in roles for missing in self._missing_counts(role)}
        return list(found)

    def _absent_ranks(self, role: str) -> Iterator[MissingRank]:
        ranks = self._ranks(role)
        start = self._attempts_of(role, ranks[0])[-1].start_event
        world_size = start.get("world_size")
        for rank in sorted(set(range(world_size or 0)) - {*ranks}):
            yield MissingRank(role, rank, None, "", f"{role}/{rank} of {world_size} ranks records nothing")
        for rank in ranks if len(ranks) > 1 else ():
            attempt = self._attempts_of(role, rank)[-1]
            if attempt.end == "lost":
                passed = attempt.steps.passed
                step = passed + 1 if passed is not None else None if attempt.steps.first_step() is None else 0
                done = "recorded anything" if step is None else f"committed step {step}"
                yield MissingRank(role, rank, step, "", f"{attempt.writer} was killed before it {done}")

    def damage(self) -> list[str]:
        """Return a message for each part of the journal, or of the log that it was made from, that was not read."""
        found = [
            f"{reader.path.name}: {damage}" for attempt in self._attempts.values() for reader, damage in attempt.damage
        ]
        origin = self.origin
        return found if origin is None else [*found, *map(str, origin.unread)]

    @property
    def origin(self) -> Origin | None:
        """The log of another program that the run was read from; None for a run that barograph recorded."""
        found = [event for event in self.events() if event.get("event") == "imported"]
        return Origin.of_record(found[-1]) if found else None

    @property
    def steps(self) -> tuple[int, int] | None:
        """The first and the last step of the main writer; None if nothing was logged."""
        for of_writer in self._by_rank.values():
            firsts = [step for attempt in of_writer if (step := attempt.steps.first_step()) is not None]
            last = of_writer[-1].steps.last_step() if of_writer else None
            if firsts and last is not None:
                return min(firsts), last
        return None

    @property
    def newest_step(self) -> int | None:
        """The highest step of any writer in its newest attempt; None if nothing was logged."""
        found = [attempts[-1].steps.last_step() for attempts in self._by_rank.values()]
        return max((step for step in found if step is not None), default=None)

    @property
    def span(self) -> tuple[float, float]:
        """The times of the run's creation and of its last row or event."""
        return self._keep("span", self._whole_span)

    def _whole_span(self) -> tuple[float, float]:
        moments = [self.info.created]
        for attempt in self._attempts.values():
            moments += attempt.steps.row_span() or ()
            moments += attempt.event_span() or ()
        return min(moments), max(moments)

    def writers(self) -> list[Writer]:
        """Return all writers, attempt by attempt."""
        return list(self._attempts)

    def attempt_steps(self, name: str | None = None) -> list[tuple[int, int]]:
        """Return the first and the last step of each attempt of the main writer that logged one, or a metric."""
        attempts = next(iter(self._by_rank.values()), [])
        attempts = [attempt for attempt in attempts if name is None or name in attempt.names()]
        found = [(attempt.steps.first_step(), attempt.steps.last_step()) for attempt in attempts]
        return [(first, last) for first, last in found if first is not None and last is not None]

    def names(self, pattern: str | Iterable[str] = "*") -> list[str]:
        """Return the names of the metrics that match a shell pattern, or one of several, in the order logged."""
        patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        names = self._keep("names", self._all_names)
        if "*" in patterns:
            return list(names)
        return [name for name in names if any(p in ("*", name) or fnmatch.fnmatchcase(name, p) for p in patterns)]

    def _all_names(self) -> list[str]:
        ordered: dict[str, None] = {}
        for attempts in self._by_rank.values():
            for attempt in attempts:
                ordered |= dict.fromkeys(attempt.names())
        for role in self._roles():
            ordered |= dict.fromkeys(self._merged_of(role).names())
        ordered |= dict.fromkeys(self._names_over_ranks())
        for name in self._doubtful_names():
            if name in ordered and self.find_series(name) is None:
                del ordered[name]
        return list(ordered)

    def _doubtful_names(self) -> set[str]:
        """Return the names that may have no point: all may be superseded, or lack a rank."""
        found: set[str] = set()
        for role in self._roles():
            merged = self._merged_of(role)
            found |= merged.doubtful_names()
            found |= {name for name in merged.reductions.counted() if not self._is_counted_once(name, role)}
        for *older, newest in self._by_rank.values():
            for attempt in older:
                found |= attempt.names() - newest.names()
        return found.union(names_over_ranks(found))

    def _is_counted_once(self, name: str, role: str) -> bool:
        """Return whether a count certainly has a value: that of the first step of the first rank that has it."""
        for rank in self._ranks(role):
            series = self._series_of(name, role, rank, None)
            if len(series):
                return self._merged_of(role).has_all_counts(int(series.steps[0]))
        return False

    def series(self, name: str, role: str | None = None, rank: int | None = None, attempt: int | None = None) -> Series:
        """Return one metric over steps, as NumPy arrays ``steps``, ``values`` and ``times``.

        Without ``rank``, the values of all ranks are merged where they contribute to the same step; a metric that ranks
        log separately is that of the lowest rank. Without ``role``, the trainer comes first.
        """
        found = self.find_series(name, role, rank, attempt)
        if found is None:
            hint = _nearest(name, self.names())
            raise MetricNotFoundError(f"run {self.id} has no metric {name!r}; {hint}")
        return found

    def find_series(
        self, name: str, role: str | None = None, rank: int | None = None, attempt: int | None = None
    ) -> Series | None:
        """Return one metric as ``series`` does, or None if the run does not have it."""
        for of_role in [one for one in self._roles() if role in (None, one)]:
            found = self._find_in_role(name, of_role, rank, attempt)
            if found is not None:
                return found
        return None

    def _find_in_role(self, name: str, role: str, rank: int | None, attempt: int | None) -> Series | None:
        is_merged = rank is None and attempt is None
        reduced = self._over_ranks(name, role) if is_merged else None
        if reduced is not None:
            return reduced if len(reduced) else None
        merged = self._merged_of(role) if is_merged else None
        for one in self._ranks(role):
            if rank in (None, one):
                series = self._series_of(name, role, one, attempt)
                if merged is not None:
                    series = merged.replaced(series)
                if len(series):
                    return series
        return None

    def table_columns(self, names: Iterable[str]) -> dict[str, TableColumn]:
        """Return where the values of metrics are, of those that are as one process has logged them.

        A metric is not among them where ranks are merged, an attempt supersedes another, or a step may still change.
        """
        found: dict[str, TableColumn] = {}
        left = list(names)
        for role in self._roles():
            first, *others = self._ranks(role)
            attempts = self._attempts_of(role, first)
            if others or len(attempts) > 1 or not self._merged_of(role).is_empty:
                break
            found |= attempts[0].table_columns(left)
            left = [name for name in left if name not in attempts[0].names()]
        return found

    def phases(self, step: int | None = None) -> list[PhaseSpan]:
        """Return the spans of phases and timers, of a step or all, in the order in which they began.

        A span whose ``end`` is None is still open, or was when its process died.
        """
        table = self.span_table()
        return table.spans() if step is None else table.of_step(step)

    def span_table(self) -> SpanTable:
        """Return the spans of phases and timers as columns, in the order in which they began."""
        parts = []
        for of_writer in self._by_rank.values():
            for attempt, limit in zip(of_writer, _limits(of_writer), strict=True):
                found = attempt.spans()
                parts += found if limit is None else [part.where(part.steps < limit) for part in found]
        return SpanTable(parts, self._phase_texts)

    def step_windows(self) -> dict[Writer, dict[int, tuple[float, float]]]:
        """Return start and end of each step of each writer; the first step starts with the first phase."""
        first = self.span_table().first_starts()
        found: dict[Writer, dict[int, tuple[float, float]]] = {}
        for writer, attempt in sorted(self._attempts.items()):
            began = first.get(writer)
            # A step begins where the one before ended, so that the time between phases belongs to it too.
            for step, ended in attempt.steps.commits():
                found.setdefault(writer, {})[step] = (ended if began is None else min(began, ended), ended)
                began = ended
        return found

    def _names_over_ranks(self) -> Iterable[str]:
        for role in self._roles():
            counted: Counter[str] = Counter()
            for rank in found if len(found := self._ranks(role)) > 1 else ():
                attempts = self._attempts_of(role, rank)
                counted.update({name for attempt in attempts for name in attempt.names()})
            # The times that a single rank logs have nothing to reduce.
            yield from names_over_ranks(name for name, count in counted.items() if count > 1)

    def _roles(self) -> list[str]:
        """Return the roles, the trainer first."""
        return list(self._ranks_of)

    def _ranks(self, role: str) -> list[int]:
        return self._ranks_of[role]

    def _over_ranks(self, name: str, role: str) -> Series | None:
        """Return the reduction of several ranks' rows that a name means; None if it means none."""
        found = self._ranks(role)
        merged = self._merged_of(role)
        reduced = merged.reductions.of(name) if len(found) > 1 else None
        if reduced is None:
            return None
        by_rank = {rank: self._series_of(reduced.metric, role, rank, None) for rank in found}
        series = reduced_series(name, reduced.how, by_rank)
        if series is None or not merged.reductions.is_counted(name):
            return series
        # The sum of some ranks is not the whole.
        return series.without({one.step for one in merged.missing_counts(role, by_rank, series)})

    def _missing_counts(self, role: str) -> Iterator[MissingRank]:
        merged, ranks = self._merged_of(role), self._ranks(role)
        since = merged.coverage.may_lack_since(COUNTED)
        for name in merged.reductions.counted() if len(ranks) > 1 else ():
            by_rank = {rank: self._series_of(name, role, rank, None).since(since) for rank in ranks}
            total = reduced_series(name, "sum", by_rank)
            if total is not None:
                yield from merged.missing_counts(role, by_rank, total)

    def histograms(self, name: str) -> list[tuple[int | None, Histogram]]:
        """Return the histograms logged under a name, with their steps."""
        found = (fields for fields in self._records(Kind.HISTOGRAM) if fields["name"] == name)
        return [(fields.get("step"), Histogram.of_record(fields)) for fields in found]

    def histogram_names(self) -> list[str]:
        """Return the names under which histograms were logged, in the order in which they were first logged."""
        return list(dict.fromkeys(fields["name"] for fields in self._records(Kind.HISTOGRAM)))

    def texts(self) -> list[LoggedText]:
        """Return the logged texts, by time."""
        found = [
            LoggedText(fields["name"], fields["text"], fields.get("step"), fields.get("time", 0.0))
            for fields in self._records(Kind.TEXT)
        ]
        return sorted(found, key=lambda text: text.time)

    def _records(self, kind: Kind) -> Iterator[dict[str, Any]]:
        """Decode the records of a kind; skip those that cannot be decoded."""
        return (fields for attempt in self._attempts.values() for fields in attempt.decoded(kind))

    def samples(
        self,
        step: Steps | None = None,
        *,
        min_reward: float | None = None,
        max_reward: float | None = None,
        task: str | None = None,
        group: str | None = None,
        run: str | None = None,
        finish_reason: str | None = None,
        weight_version: int | None = None,
        grep: str | None = None,
        regex: str | None = None,
        where: str | None = None,
        sort: str = "step",
        limit: int | None = None,
    ) -> list[Sample]:
        """Return the samples of all writers that match all arguments; the first ``limit`` of them.

        ``step`` is a step, a range, or a pair of first and last step, both included. ``grep`` ignores case; ``regex``
        does not; both search prompt, completion, messages and answers. ``where`` are conditions on any column, such as
        ``reward.format < 0.5 and correct = false``. ``sort`` is step, reward, advantage, length, time or a column, with
        a minus for descending order.
        """
        from barograph.journal.samples.query import Query

        # The parameters have the names of the fields of a query.
        arguments = {name: value for name, value in locals().items() if name in Query.__dataclass_fields__}
        return self.find_samples(Query(**arguments), limit).samples

    def find_samples(self, query: Query, limit: int | None = None) -> FoundSamples:
        """Return the first samples that match, the number of all that match, and a census of all samples."""
        return self.sample_index.find(query, self._writer_limits(), limit)

    def sample_census(self) -> Census:
        """Return the numbers of stored and of submitted samples, and the ranges of their steps and rewards."""
        return self.sample_index.census(self._writer_limits())

    @property
    def sample_index(self) -> SampleIndex:
        """The index of the samples; it is created and updated when it is used."""
        if self._sample_index is None:
            from barograph.journal.samples.index import SampleIndex

            self._sample_index = SampleIndex(self.path, self._sample_frames)
        return self._sample_index

    def _has_samples(self) -> bool:
        return any(frames for _, frames in self._sample_frames())

    def _sample_frames(self) -> list[tuple[SegmentFile, list[SampleFrame]]]:
        return [found for attempt in self._attempts.values() for found in attempt.sample_frames()]

    def _writer_limits(self) -> dict[Writer, int | None]:
        """Return, for each writer that has newer attempts, the step from which on they supersede it."""
        limits: dict[Writer, int | None] = {}
        for attempts in self._by_rank.values():
            if len(attempts) > 1:
                limits |= zip((attempt.writer for attempt in attempts), _limits(attempts), strict=True)
        return limits

    def frame(self, patterns: str | Iterable[str] = "*") -> pd.DataFrame:
        """Return metrics as a pandas DataFrame: a row for each step, a column for each name."""
        try:
            import pandas as pd
        except ImportError:
            raise ImportError(f"view.frame needs pandas: {install_command('pandas')}") from None
        columns = {
            encodable(name): pd.Series(s.values, index=s.steps)
            for name in self.names(patterns)
            for s in [self.series(name)]
        }
        return pd.DataFrame(columns).rename_axis("step").sort_index()

    def _attempts_of(self, role: str, rank: int) -> list[Attempt]:
        return self._by_rank.get((role, rank), [])

    def _series_of(self, name: str, role: str, rank: int, number: int | None) -> Series:
        attempts = self._attempts_of(role, rank)
        if number is not None:
            attempts = [attempt for attempt in attempts if attempt.writer.attempt == number]
        pieces = [attempt.series(name) for attempt in attempts]
        if len(pieces) == 1:
            return pieces[0]
        return joined(name, [p.before(limit) for p, limit in zip(pieces, _limits(attempts), strict=True)])

    def _merged_of(self, role: str) -> MergedRole:
        """Return the values of a role that several ranks contribute to, up to date."""
        merged = self._merged_roles.get(role)
        if merged is None:
            merged = self._merged_roles[role] = MergedRole(self.info.vocabulary)
        if not merged.is_current:
            attempts = [attempt for attempt in self._attempts.values() if attempt.writer.role == role]
            changed = sorted(self._changed.pop(role, {}).items())
            limits = self._keep("limits", self._writer_limits)
            merged.update(attempts, [attempt for _, attempt in changed], limits)
        return merged


def _merged(events: Iterable[dict[str, Any]], event: str) -> dict[str, Any]:
    """Return the content of all events of a kind; the newest counts."""
    found = [e[event] for e in events if e["event"] == event]
    return {name: value for content in found for name, value in content.items()}


def _limits(attempts: list[Attempt]) -> list[int | None]:
    """Return, for each attempt, the step from which newer ones supersede it."""
    return superseded_from([attempt.steps.first_step() for attempt in attempts])


def _nearest(name: str, names: list[str]) -> str:
    return did_you_mean(name, names, f"it has {counted(len(names), 'metric')}", count=3, cutoff=0.5, quoted=str)
