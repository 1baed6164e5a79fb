"""The contributions to the steps of one role, and their merged values."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.base.arrays import Floats
from barograph.base.files.compression import Budget
from barograph.base.model import Writer
from barograph.journal.format import fields
from barograph.journal.format.fields import OPEN_STEP
from barograph.journal.format.frames import Kind
from barograph.journal.merge.coverage import COUNTED, MEASURED, Contributions, Coverage, Missing, Share
from barograph.journal.merge.measured_states import ENCODED, Arranged, MeasuredStates, StateOrigin
from barograph.journal.merge.ranks import Reductions, Totals
from barograph.journal.segments.contents import Record, RowTable

if TYPE_CHECKING:
    from barograph.journal.merge.rollouts import RolloutState

MAX_REASONS = 1000
MAX_NAME_SETS = 4096  # remembered; a program that makes names up has no end of them


@dataclass(frozen=True, slots=True)
class _Report:
    """The rollout state of one process, with its writer, whose attempt may be superseded later."""

    writer: Writer
    segment: int  # forked processes have their own
    state: RolloutState


@dataclass(slots=True)
class _Step:
    """The contributions to one step, except measured states."""

    reports: dict[Share, list[_Report]] = field(default_factory=dict)
    times: dict[Writer, float] = field(default_factory=dict)  # of each writer's last contribution
    rows: dict[tuple[Writer, tuple[str, ...]], tuple[float, ...]] = field(default_factory=dict)  # the last one last
    counted: set[Writer] = field(default_factory=set)  # that have counts among their rows


@dataclass(frozen=True, slots=True)
class MeasuredShare:
    """What is known about the measured states of a step before they are merged."""

    states: Arranged | None = None  # None where they have no values: the first rank's rows have them, or on a problem
    is_whole: bool = True  # whether no rank's share is missing
    withheld: frozenset[str] = frozenset()  # on a problem, the names of the states that can be read


@dataclass(slots=True)
class _Merged:
    """What was merged of a step; it is forgotten when the step changes."""

    measured: MeasuredShare | None = None
    reports: MergedStep | None = None
    values: MergedStep | None = None
    time: float | None = None
    problems: list[str] = field(default_factory=list)


class MergedStep(NamedTuple):
    """The merged values of a step, and the names that have none because the share of a rank is missing."""

    values: dict[str, float]
    withheld: frozenset[str]


NOTHING = MergedStep({}, frozenset())


class RoleMerger:
    """The contributions to one role's steps, and the values that they are merged into.

    Contributions may be added in any order. A step is merged again only after it has changed.
    """

    def __init__(self, vocabulary: str) -> None:
        self._vocabulary = vocabulary
        self.coverage = Coverage()
        self.reductions = Reductions(vocabulary)
        self.missing: Missing = {}  # set by update_coverage
        self.measured = MeasuredStates()
        self._steps: dict[int, _Step] = {}
        self._known: set[int] = set()  # steps with contributions
        self._ordered: list[int] = []  # the same in ascending order
        self._merged: defaultdict[int, _Merged] = defaultdict(_Merged)
        self._changed: set[int] = set()
        self._oldest = OPEN_STEP  # contributions to earlier steps are ignored
        self._limits: dict[Writer, int] = {}  # the step from which on a writer is superseded
        self._ranks: set[int] = set()
        self._first_rank: int | None = None
        self._totals = Totals()
        self._ranks_of_name: dict[str, set[int]] = {}
        self._name_sets: set[tuple[int, tuple[str, ...]]] = set()  # that ranks were seen to write
        self._reduced_names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._layout_payloads: set[bytes] = set()
        self._unpacking = Budget()
        self._unread: Counter[str] = Counter()  # reasons why contributions could not be read
        self._with_problems: set[int] = set()  # steps

    def __contains__(self, step: int) -> bool:
        return step in self._known

    @property
    def unread(self) -> Counter[str]:
        """The reasons why contributions could not be merged, with their numbers."""
        found = Counter(self._unread)
        for step in sorted(self._with_problems):
            for reason in self._merged[step].problems:
                _count(found, reason)
        return found

    def take_changed(self) -> set[int]:
        """Return the steps that have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def time(self, step: int) -> float:
        """Return the time of the last contribution to a step that counts."""
        known = self._merged[step]
        if known.time is None:
            others = self._steps[step].times.items() if step in self._steps else ()
            times = [time for writer, time in others if self.counts(writer, step)]
            if step in self.measured:
                times.append(self.measured.time(step))
            known.time = max(times, default=0.0)
        return known.time

    def add_rank(self, rank: int) -> None:
        """Note that the role has this rank, which need not have written anything."""
        if rank in self._ranks:
            return
        self._ranks.add(rank)
        first = rank if self._first_rank is None else min(self._first_rank, rank)
        # Rows are reduced where a role has several ranks, and those of the first have the values that it alone
        # contributed to: a second rank, or another first one, changes earlier steps too.
        if len(self._ranks) == 2 or first != self._first_rank:
            self._merge_again(self._ordered)
        self._first_rank = first

    def add_record(self, writer: Writer, record: Record, segment: int = 0) -> int | None:
        """Add a layout, an event, a rollout state or a sparse state; return the step that it contributes to.

        What cannot be read is skipped and counted.
        """
        try:
            if record.kind == Kind.SPARSE_STATE:
                layout, step, time = fields.sparse_state_head(record.payload)
                return step if self.add_state(writer, step, time, layout, record.payload, segment) else None
            if record.kind == Kind.LAYOUT:
                if record.payload not in self._layout_payloads:  # every rank writes the same
                    self._add_layout(fields.decode(record.kind, record.payload))
                    self._layout_payloads.add(record.payload)
            elif record.kind == Kind.EVENT:
                self.add_event(writer, fields.decode(record.kind, record.payload))
            elif record.kind == Kind.GATHERED:
                from barograph.journal.merge.rollouts import RolloutState

                state = RolloutState.parse(writer.rank, *fields.decode(record.kind, record.payload))
                if state.step >= self._oldest:
                    share = state.kind, state.taskset
                    found = self._step(writer, state.step, state.time)
                    found.reports.setdefault(share, []).append(_Report(writer, segment, state))
                    self.coverage.add_contributor(writer.rank, share)
                    return state.step
        # Of a newer barograph, damaged or hostile.
        except ValueError as error:
            _count(self._unread, str(error))
        return None

    def add_state(
        self, writer: Writer, step: int, time: float, layout: int, state: Floats | bytes, segment: int = 0
    ) -> bool:
        """Add a measured state: a vector, or the payload of a sparse one; return False if its step is too old."""
        if step < self._oldest:
            return False
        origin = StateOrigin(writer, segment, layout, ENCODED if isinstance(state, bytes) else len(state))
        self._note_states(origin, [step])
        self.measured.add_state(origin, step, time, state)
        return True

    def add_states(self, origin: StateOrigin, table: RowTable, first: int) -> None:
        """Add the measured states of a table from a row on."""
        for chunk in table.since(first):
            self._note_states(origin, chunk.steps.tolist())
            self.measured.add_rows(origin, table, first, chunk)
            first += len(chunk)

    def add_values(self, writer: Writer, step: int, time: float, values: Mapping[str, float]) -> bool:
        """Add those values of a row that are reduced over ranks; return False if there are none or it is too old."""
        names = self._reduced(tuple(values))
        if not names or step < self._oldest:
            return False
        found = self._step(writer, step, time)
        found.rows.pop((writer, names), None)  # inserted again at the end: the last row counts
        found.rows[writer, names] = tuple(map(values.__getitem__, names))
        for name in names:
            if self.reductions.is_counted(name):
                found.counted.add(writer)
                self.coverage.add_contributor(writer.rank, COUNTED)
            if self.reductions.is_total(name):
                self._totals.add(name, writer, step, values[name])
        if (writer.rank, names) not in self._name_sets:
            self._name_sets.add((writer.rank, names))
            for name in names:
                self._ranks_of_name.setdefault(name, set()).add(writer.rank)
        return True

    def superseded_steps(self, limits: Mapping[Writer, int | None]) -> list[int]:
        """Return the steps that change if writers are superseded by newer attempts from these steps on."""
        new = {writer: limit for writer, limit in limits.items() if limit is not None}
        changed = [writer for writer in {*new, *self._limits} if new.get(writer) != self._limits.get(writer)]
        lowest = {w: min(limits[w] for limits in (new, self._limits) if w in limits) for w in changed}
        if not lowest:
            return []
        later = self._ordered[bisect_left(self._ordered, min(lowest.values())) :]
        return [step for step in later if any(lowest.get(w, step + 1) <= step for w in self._writers(step))]

    def supersede(self, limits: Mapping[Writer, int | None]) -> None:
        """Set the steps from which on writers are superseded by newer attempts."""
        changed = self.superseded_steps(limits)
        self._limits = {writer: limit for writer, limit in limits.items() if limit is not None}
        self.measured.set_limits(self._limits)
        self._merge_again(changed)

    def update_coverage(self) -> set[int]:
        """Find the missing shares again, after the progress of writers was set; return the steps that this changes."""
        before = self.missing
        self.missing = self.coverage.missing(Contributions(self._ordered, self._ranks_in, self.time, self.limit))
        changed = {step for step in {*before, *self.missing} if before.get(step) != self.missing.get(step)}
        self._merge_again(changed & self._known)
        return changed

    def values(self, step: int) -> dict[str, float]:
        """Return the values of a step that several ranks contribute to: of their states, and of their rows."""
        return self._step_values(step).values

    def withheld(self, step: int) -> frozenset[str]:
        """Return the names that have no value in a step, because the share of a rank is missing."""
        return self._step_values(step).withheld

    def forget_before(self, step: int) -> None:
        """Forget the contributions to earlier steps, and ignore further ones."""
        self._oldest = step
        self._totals.forget_before(step)
        kept = bisect_left(self._ordered, step)
        for old in self._ordered[:kept]:
            self._steps.pop(old, None)
            self._merged.pop(old, None)
            self._with_problems.discard(old)
            self._changed.discard(old)
            self._known.discard(old)
            if old in self.measured:
                self.measured.forget(old)
        del self._ordered[:kept]

    def counts(self, writer: Writer, step: int) -> bool:
        """Return whether a writer's contributions to a step count, or are superseded by a newer attempt's."""
        limit = self._limits.get(writer)
        return limit is None or step < limit

    def limit(self, writer: Writer) -> int | None:
        """Return the step from which on a writer is superseded; None if it is not."""
        return self._limits.get(writer)

    def add_event(self, writer: Writer, event: Mapping[str, Any]) -> None:
        """Add an event that tells what ranks share or count."""
        self.coverage.add_event(writer, event)
        if event.get("event") == "counts":
            self.reductions.declare(event["names"], event["how"])
            self._reduced_names.clear()

    def measured_share(self, step: int) -> MeasuredShare:
        """Return the measured states of a step, and whether they are the whole; they are not merged yet."""
        known = self._merged[step]
        if known.measured is None:
            known.measured = self._measured_share(step, known) if step in self.measured else MeasuredShare()
        return known.measured

    def report_values(self, step: int) -> MergedStep:
        """Return the values of a step's rollouts and evaluations."""
        known = self._merged[step]
        if known.reports is None:
            found = self._steps.get(step)
            known.reports = NOTHING if found is None else self._report_values(step, found, known)
        return known.reports

    def _step_values(self, step: int) -> MergedStep:
        if step not in self:
            return NOTHING
        known = self._merged[step]
        if known.values is None:
            measured, (values, withheld) = self.measured_share(step), self.report_values(step)
            withheld |= measured.withheld
            if measured.states is not None:
                found = self._merge_measured(measured.states)
                values, withheld = (values | found, withheld) if measured.is_whole else (values, withheld | {*found})
            reduced = self._reduced_rows(step, self._steps[step]) if step in self._steps else {}
            if COUNTED in self.missing.get(step, {}):
                withheld |= {name for name in reduced if self.reductions.is_counted(name)}
            kept = {name: value for name, value in (values | reduced).items() if name not in withheld}
            known.values = MergedStep(kept, withheld)
        return known.values

    def _merge_measured(self, states: Arranged) -> dict[str, float]:
        from barograph.metrics.batch.values import finished

        _, merged = next(self.measured.merged([states]))
        return finished({name: rows[0] for name, rows in merged.items()}, self._vocabulary)

    def _measured_share(self, step: int, known: _Merged) -> MeasuredShare:
        incomplete = MEASURED in self.missing.get(step, {})
        sources = self.measured.some_sources(step)
        # Of measured values only rank 0 writes rows.
        if not sources or (not incomplete and _is_alone(sources, 0)):
            return MeasuredShare()
        states = self.measured.arranged(step)
        if states is not None and _is_vocabulary(self._vocabulary):
            return MeasuredShare(states, not incomplete)
        from barograph.journal.merge.measurements import merge_states

        one_by_one = self.measured.rank_states(step)
        merged = self._merged_parts(
            one_by_one, lambda some: merge_states(some, self.measured.layouts, self._vocabulary), step, known
        )
        return MeasuredShare(None, False, frozenset(merged.values))

    def _report_values(self, step: int, found: _Step, known: _Merged) -> MergedStep:
        from barograph.journal.merge.rollouts import merge_rollouts

        missing = self.missing.get(step, {})
        merged: dict[str, float] = {}
        withheld: set[str] = set()
        for share, reports in sorted(found.reports.items()):
            counted = [one for one in reports if self.counts(one.writer, step)]
            counted.sort(key=lambda one: (one.writer, one.segment))
            sources = {(one.writer.rank, one.segment) for one in counted}
            if not counted or (share not in missing and _is_alone(sources, self._first_rank)):
                continue
            states = [one.state for one in counted]
            values, complete = self._merged_parts(
                states, lambda some: merge_rollouts(some, self._vocabulary, self._unpacking), step, known
            )
            if complete and share not in missing:
                merged |= values
            else:
                withheld |= values.keys()
        kept = {name: value for name, value in merged.items() if name not in withheld}
        return MergedStep(kept, frozenset(withheld))

    def _reduced_rows(self, step: int, found: _Step) -> dict[str, float]:
        if len(self._ranks) < 2 or not found.rows:
            return {}
        by_rank: dict[int, dict[str, float]] = {}
        rows = sorted(found.rows.items(), key=lambda row: row[0][0])  # newer attempts' values replace those of older
        for (writer, names), values in rows:
            if self.counts(writer, step):
                by_rank.setdefault(writer.rank, {}).update(zip(names, values, strict=True))
        of_several = {name for name, ranks in self._ranks_of_name.items() if len(ranks) > 1}
        self._totals.fill(by_rank, step, self.counts)
        return self.reductions.values(by_rank, of_several)

    def _merged_parts(
        self, states: list[Any], merge: Callable[[list[Any]], dict[str, float]], step: int, known: _Merged
    ) -> _Parts:
        """Return the values of the contributions to a share of a step, and whether that is the whole."""
        try:
            return _Parts(merge(states), True)
        except ValueError as error:  # one is damaged, or of a newer barograph: the others are not the whole
            known.problems.append(str(error))
            self._with_problems.add(step)
            names: dict[str, float] = {}
            for one in states:
                with suppress(ValueError):
                    names |= merge([one])
            return _Parts(names, False)

    def _ranks_in(self, step: int) -> dict[Share, Set[int]]:
        """Return the ranks that contribute to each share of a step."""
        ranks: dict[Share, Set[int]] = {}
        found = self._steps.get(step)
        if found is not None:
            for share, reports in found.reports.items():
                ranks[share] = {one.writer.rank for one in reports if self.counts(one.writer, step)}
            if found.counted:
                ranks[COUNTED] = {writer.rank for writer in found.counted if self.counts(writer, step)}
        if step in self.measured:
            ranks[MEASURED] = self.measured.ranks(step)
        return ranks

    def _writers(self, step: int) -> Set[Writer]:
        """Return the writers that contribute to a step."""
        of_states = self.measured.writers(step) if step in self.measured else set()
        return of_states | self._steps[step].times.keys() if step in self._steps else of_states

    def _add_layout(self, record: Mapping[str, Any]) -> None:
        from barograph.journal.merge.measurements import DescribedLayout  # imports the catalogue

        id, described = DescribedLayout.parse(record)
        if id not in self.measured.layouts:  # the id is the hash of the content
            self.measured.layouts[id] = described
            self._merge_again(set(self._with_problems))

    def _note_states(self, origin: StateOrigin, steps: list[int]) -> None:
        if origin.width != ENCODED:  # a sparse state is followed by another one of its step
            self.add_rank(origin.writer.rank)
            self.coverage.add_contributor(origin.writer.rank, MEASURED)
        self._note_steps(steps)

    def _step(self, writer: Writer, step: int, time: float) -> _Step:
        self.add_rank(writer.rank)
        self._note_steps([step])
        found = self._steps.setdefault(step, _Step())
        found.times[writer] = max(time, found.times.get(writer, time))
        return found

    def _note_steps(self, steps: Iterable[int]) -> None:
        """Note that steps get contributions."""
        changed = set(steps)
        for step in sorted(changed - self._known):
            if not self._ordered or step > self._ordered[-1]:
                self._ordered.append(step)
            else:
                self._ordered.insert(bisect_left(self._ordered, step), step)
        self._known |= changed
        self._merge_again(changed)

    def _merge_again(self, steps: Iterable[int]) -> None:
        changed = set(steps)
        self._changed |= changed
        self._with_problems -= changed
        for step in changed.intersection(self._merged):
            del self._merged[step]

    def _reduced(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names among those of a row that are reduced; rows have the same few sets of names."""
        found = self._reduced_names.get(names)
        if found is None:
            if len(self._reduced_names) >= MAX_NAME_SETS:
                self._reduced_names.clear()
                self._name_sets.clear()
            found = self._reduced_names[names] = tuple(name for name in names if self.reductions.is_reduced(name))
        return found


class _Parts(NamedTuple):
    values: dict[str, float]
    complete: bool


def _is_alone(sources: Set[tuple[int, int]], first: int | None) -> bool:
    """Return whether the rows of a role's first rank have the values already: it alone contributed, in one process."""
    return len(sources) == 1 and next(iter(sources))[0] == first


def _count(unread: Counter[str], reason: str) -> None:
    if reason in unread or len(unread) < MAX_REASONS:
        unread[reason] += 1


@cache
def _is_vocabulary(vocabulary: str) -> bool:
    """Return whether barograph has names in a vocabulary."""
    from barograph.metrics.batch.quantities import BY_STATE
    from barograph.metrics.batch.values import written_name

    try:
        return bool(written_name(next(iter(next(iter(BY_STATE.values())).metrics)), vocabulary))
    except ValueError:
        return False
