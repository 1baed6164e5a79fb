"""Reading a run: ``windsock.open(...)``."""

from __future__ import annotations

import difflib
import fnmatch
import os
from bisect import insort
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windsock.errors import MetricNotFoundError
from windsock.formatting import encodable
from windsock.journal.columns import Attempt, poll_all
from windsock.journal.folder import SegmentFile, find_run, read_run_info, segments
from windsock.journal.frames import Kind
from windsock.journal.reader import SampleFrame
from windsock.journal.series import Series, joined
from windsock.journal.span_rows import Texts
from windsock.journal.spans import SpanTable
from windsock.journal.status import main_first, run_status, writer_status
from windsock.journal.steps import superseded_from
from windsock.merging import MergedRole, names_over_ranks, reduced_series
from windsock.model import (
    Histogram,
    LoggedText,
    MissingRank,
    PhaseSpan,
    Problem,
    RunInfo,
    Sample,
    Status,
    Writer,
)

if TYPE_CHECKING:
    import pandas as pd

    from windsock.samples.index import SampleIndex
    from windsock.samples.query import Census, Found, Query, Steps


class View:
    """A run, read from its journal. ``refresh`` reads what was appended since.

    After a restart, the newer attempt supersedes the older: for each role and rank, the points of an older attempt
    count only below the first step of the newer. ``series(..., attempt=1)`` returns all points of an older attempt.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.info: RunInfo = read_run_info(folder)
        self._schemas: dict[int, tuple[str, ...]] = {}
        self._phase_texts = Texts()
        self._attempts: dict[Writer, Attempt] = {}
        self._by_rank: dict[tuple[str, int], list[Attempt]] = {}  # of each role and rank, in order
        self._merged_roles: dict[str, MergedRole] = {}
        self._names: list[str] | None = None
        self._sample_index: SampleIndex | None = None
        self.refresh()

    def __repr__(self) -> str:
        return f"<windsock run {self.info.id} {self.info.name!r}: {self.status.word}, {len(self.names())} metrics>"

    def refresh(self) -> bool:
        """Read what is new; return whether there was anything."""
        for segment in segments(self.path):
            if segment.writer not in self._attempts:
                self._add_attempt(Attempt(segment.writer, self._schemas, self._phase_texts))
            self._attempts[segment.writer].add(segment)
        self._names = None
        for merged in self._merged_roles.values():
            merged.is_current = False
        return poll_all(self._attempts.values())

    def _add_attempt(self, attempt: Attempt) -> None:
        writer = attempt.writer
        self._attempts[writer] = attempt
        insort(self._by_rank.setdefault((writer.role, writer.rank), []), attempt, key=lambda known: known.writer)

    @property
    def id(self) -> str:
        """The run's id."""
        return self.info.id

    @property
    def name(self) -> str:
        """The run's name."""
        return self.info.name

    @property
    def status(self) -> Status:
        """The status: running, finished, crashed, killed or stalled, with the reason."""
        return run_status(self.writer_statuses())

    def writer_statuses(self) -> dict[Writer, Status]:
        """Return the status of the newest attempt of each role and rank."""
        newest = {(writer.role, writer.rank): writer for writer in sorted(self._attempts)}  # the last attempt stays
        return {
            writer: writer_status(attempt.events(), span[1] if (span := attempt.span()) else None)
            for writer in newest.values()
            for attempt in [self._attempts[writer]]
        }

    @property
    def config(self) -> dict[str, Any]:
        """The run's config with all updates, without secrets."""
        return _merged(self.events(), "config")

    @property
    def environment(self) -> dict[str, Any]:
        """Host, command line, git commit and package versions, of the newest attempt of the main writer."""
        for role, rank in self._writers():
            found = [event for attempt in self._attempts_of(role, rank) for event in attempt.events()]
            if environment := _merged(found, "environment"):
                return environment
        return {}

    def events(self) -> list[dict[str, Any]]:
        """Return the events of all writers by time, without those of forked processes."""
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
        for event in self._records(Kind.EVENT):  # unlike events(), with those of forked processes
            if event.get("event") == "problem":
                found = event.get("call", ""), event.get("error", "")
                counts[found] = counts.get(found, 0) + event.get("count", 1)
        for text in self.sample_index.known_damage() if self._has_samples() else ():
            found = "samples", text.split(": ", 2)[-1]  # without the place in the file
            counts[found] = counts.get(found, 0) + 1
        for role in {writer.role for writer in self._attempts}:
            for error, count in self._merged_of(role).unread.items():
                found = "merging ranks", error
                counts[found] = counts.get(found, 0) + count
        return [Problem(call, error, count) for (call, error), count in counts.items()]

    def missing_ranks(self) -> list[MissingRank]:
        """Return the ranks that steps lack, with the reasons; those steps have no merged values.

        A rank that the launcher has started and that records nothing is missing in all steps, which have the values
        of the other ranks.
        """
        roles = dict.fromkeys(role for role, _ in self._writers())
        found = {missing: None for role in roles for missing in self._absent_ranks(role)}
        found |= {missing: None for role in roles for missing in self._merged_of(role).missing(role)}
        found |= {missing: None for role in roles for missing in self._missing_counts(role)}
        return list(found)

    def _absent_ranks(self, role: str) -> Iterator[MissingRank]:
        ranks = self._ranks(role)
        start = next((e for e in self._attempts_of(role, ranks[0])[-1].events() if e.get("event") == "start"), {})
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
        """Return a message for each part of the journal that could not be read."""
        return [
            f"{reader.path.name}: {damage}" for attempt in self._attempts.values() for reader, damage in attempt.damage
        ]

    @property
    def steps(self) -> tuple[int, int] | None:
        """The first and the last step of the main writer; None if nothing was logged."""
        for role, rank in self._writers():
            of_writer = self._attempts_of(role, rank)
            firsts = [step for attempt in of_writer if (step := attempt.steps.first_step()) is not None]
            last = of_writer[-1].last_step() if of_writer else None
            if firsts and last is not None:
                return min(firsts), last
        return None

    @property
    def span(self) -> tuple[float, float]:
        """The times of the run's creation and of its last row or event."""
        moments = [self.info.created]
        for attempt in self._attempts.values():
            moments += attempt.span() or ()
            moments += [event["time"] for event in attempt.events() if "time" in event]
        return min(moments), max(moments)

    def writers(self) -> list[Writer]:
        """Return all writers, attempt by attempt."""
        return sorted(self._attempts)

    def names(self, pattern: str | Iterable[str] = "*") -> list[str]:
        """Return the names of the metrics that match a shell pattern, or one of several, in the order logged."""
        patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        if self._names is None:
            self._names = self._all_names()
        if "*" in patterns:
            return list(self._names)
        return [name for name in self._names if any(p in ("*", name) or fnmatch.fnmatchcase(name, p) for p in patterns)]

    def _all_names(self) -> list[str]:
        ordered = {
            name: None for role, rank in self._writers() for a in self._attempts_of(role, rank) for name in a.names()
        }
        for role in dict.fromkeys(role for role, _ in self._writers()):
            ordered |= dict.fromkeys(self._merged_of(role).names())
        ordered |= dict.fromkeys(self._names_over_ranks())
        for name in self._doubtful_names():
            if name in ordered and self.find_series(name) is None:
                del ordered[name]
        return list(ordered)

    def _doubtful_names(self) -> set[str]:
        """Return the names that may have no point: all may be superseded, or lack a rank."""
        found: set[str] = set()
        for role in {writer.role for writer in self._attempts}:
            found |= self._merged_of(role).doubtful_names()
        for role, rank in self._writers():
            *older, newest = self._attempts_of(role, rank)
            found |= {name for attempt in older for name in attempt.names()} - {*newest.names()}
        return found

    def series(self, name: str, role: str | None = None, rank: int | None = None, attempt: int | None = None) -> Series:
        """Return one metric over steps, as NumPy arrays ``steps``, ``values`` and ``times``.

        Without ``rank``, the values of all ranks are merged where they contribute to the same step; a metric that ranks
        log separately is that of the lowest rank. Without ``role``, the trainer comes first.
        """
        found = self.find_series(name, role, rank, attempt)
        if found is None:
            raise MetricNotFoundError(f"run {self.id} has no metric {name!r}" + _nearest(name, self.names()))
        return found

    def find_series(
        self, name: str, role: str | None = None, rank: int | None = None, attempt: int | None = None
    ) -> Series | None:
        """Return one metric as ``series`` does, or None if the run does not have it."""
        for writer_role, writer_rank in self._writers():
            if role not in (None, writer_role) or rank not in (None, writer_rank):
                continue
            series = self._series_of(name, writer_role, writer_rank, attempt)
            if rank is None and attempt is None:
                series = self._merged_of(writer_role).replaced(series)
                reduced = self._over_ranks(name, writer_role)
                series = series if reduced is None else reduced
            if len(series):
                return series
        return None

    def phases(self, step: int | None = None) -> list[PhaseSpan]:
        """Return the spans of phases and timers, of a step or all, in the order in which they began.

        A span whose ``end`` is None is still open, or was when its process died.
        """
        table = self.span_table()
        return table.spans() if step is None else table.of_step(step)

    def span_table(self) -> SpanTable:
        """Return the spans of phases and timers as columns, in the order in which they began."""
        parts = []
        for role, rank in self._writers():
            of_writer = self._attempts_of(role, rank)
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
        for role in {writer.role for writer in self._attempts}:
            counted: dict[str, int] = {}
            for rank in found if len(found := self._ranks(role)) > 1 else ():
                for name in {name for attempt in self._attempts_of(role, rank) for name in attempt.names()}:
                    counted[name] = counted.get(name, 0) + 1
            # The times that a single rank logs have nothing to reduce.
            yield from names_over_ranks(name for name, count in counted.items() if count > 1)

    def _ranks(self, role: str) -> list[int]:
        return sorted({writer.rank for writer in self._attempts if writer.role == role})

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
        for name in merged.reductions.counted() if len(ranks) > 1 else ():
            by_rank = {rank: self._series_of(name, role, rank, None) for rank in ranks}
            total = reduced_series(name, "sum", by_rank)
            if total is not None:
                yield from merged.missing_counts(role, by_rank, total)

    def histograms(self, name: str) -> list[tuple[int | None, Histogram]]:
        """Return the histograms logged under a name, with their steps."""
        found = []
        for fields in self._records(Kind.HISTOGRAM):
            if fields["name"] == name:
                found.append((fields.get("step"), Histogram.of_record(fields)))
        return found

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
        for attempt in self._attempts.values():
            yield from attempt.decoded(kind)

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
        sort: str = "step",
        limit: int | None = None,
    ) -> list[Sample]:
        """Return the samples of all writers that match all arguments; the first ``limit`` of them.

        ``step`` is a step, a range, or a pair of first and last step, both included. ``grep`` ignores case; ``regex``
        does not; both search prompt, completion and messages. ``sort`` is step, reward, advantage, length or time, with
        a minus for descending order.
        """
        from windsock.samples.query import Query

        # The parameters have the names of the fields of a query.
        arguments = {name: value for name, value in locals().items() if name in Query.__dataclass_fields__}
        return self.find_samples(Query(**arguments), limit).samples

    def find_samples(self, query: Query, limit: int | None = None) -> Found:
        """Return the first samples that match, the number of all that match, and a census of all samples."""
        return self.sample_index.find(query, self._writer_limits(), limit)

    def sample_census(self) -> Census:
        """Return the numbers of stored and of submitted samples, and the ranges of their steps and rewards."""
        return self.sample_index.census(self._writer_limits())

    @property
    def sample_index(self) -> SampleIndex:
        """The index of the samples; it is created and updated when it is used."""
        if self._sample_index is None:
            from windsock.samples.index import SampleIndex

            self._sample_index = SampleIndex(self.path, self._sample_frames)
        return self._sample_index

    def _has_samples(self) -> bool:
        return any(frames for _, frames in self._sample_frames())

    def _sample_frames(self) -> list[tuple[SegmentFile, list[SampleFrame]]]:
        return [found for attempt in self._attempts.values() for found in attempt.sample_frames()]

    def _writer_limits(self) -> dict[Writer, int | None]:
        """Return, for each writer, the step from which on a newer attempt supersedes it."""
        limits: dict[Writer, int | None] = {}
        for role, rank in self._writers():
            attempts = self._attempts_of(role, rank)
            limits |= zip((attempt.writer for attempt in attempts), _limits(attempts), strict=True)
        return limits

    def frame(self, patterns: str | Iterable[str] = "*") -> pd.DataFrame:
        """Return metrics as a pandas DataFrame: a row for each step, a column for each name."""
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("view.frame needs pandas: pip install 'windsock[pandas]'") from None
        columns = {
            encodable(name): pd.Series(s.values, index=s.steps)
            for name in self.names(patterns)
            for s in [self.series(name)]
        }
        return pd.DataFrame(columns).rename_axis("step").sort_index()

    def _writers(self) -> list[tuple[str, int]]:
        """Return roles and ranks, the trainer first."""
        return sorted(self._by_rank, key=lambda pair: main_first(*pair))

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
            attempts = [attempt for writer, attempt in sorted(self._attempts.items()) if writer.role == role]
            merged.update(attempts, self._writer_limits())
        return merged


def _merged(events: Iterable[dict[str, Any]], event: str) -> dict[str, Any]:
    """Return the content of all events of a kind; the newest counts."""
    found = [e[event] for e in events if e["event"] == event]
    return {name: value for content in found for name, value in content.items()}


def _limits(attempts: list[Attempt]) -> list[int | None]:
    """Return, for each attempt, the step from which newer ones supersede it."""
    return superseded_from([attempt.steps.first_step() for attempt in attempts])


def _nearest(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 3, 0.5)
    return f"; did you mean {' or '.join(near)}?" if near else f"; it has {len(names)} metrics"


def open_run(run: str | os.PathLike[str] = "@last", dir: str | os.PathLike[str] | None = None) -> View:
    """Open a run for reading, by its id, a unique prefix of it, its name, its path, or ``@last``."""
    return View(find_run(run, Path(dir) if dir is not None else None))
