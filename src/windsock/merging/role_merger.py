"""The contributions to the steps of one role, and their merged values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from windsock.journal import decoding
from windsock.journal.coverage import COUNTED, MEASURED, Contributions, Coverage, Missing, Share
from windsock.journal.frames import OPEN_STEP, Kind
from windsock.journal.reader import Record
from windsock.journal.unpacking import Budget
from windsock.model import Writer
from windsock.probe.ranks import Reductions, Totals

if TYPE_CHECKING:
    from windsock.measurement.merged import DescribedLayout, RankState
    from windsock.rollouts.merged import RolloutState

MAX_REASONS = 1000
MAX_NAME_SETS = 4096  # remembered; a program that makes names up has no end of them


@dataclass(frozen=True, slots=True)
class _Contribution:
    """One contribution, with its writer, whose attempt may be superseded later, and the process that made it."""

    writer: Writer
    segment: int  # forked processes have their own
    state: RankState | RolloutState
    is_whole: bool = True  # False for sparse states, which come before the others of the same share


@dataclass(slots=True)
class _Step:
    """The contributions to one step."""

    shares: dict[Share, list[_Contribution]] = field(default_factory=dict)
    times: dict[Writer, float] = field(default_factory=dict)  # of each writer's last contribution
    time: float | None = None  # the last one of those that count; None after a change
    rows: dict[tuple[Writer, tuple[str, ...]], tuple[float, ...]] = field(default_factory=dict)  # the last one last
    counted: set[Writer] = field(default_factory=set)  # that have counts among their rows
    merged: dict[str, float] | None = None  # None after a change
    withheld: frozenset[str] = frozenset()


class RoleMerger:
    """The contributions to one role's steps, and the values that they are merged into.

    Contributions may be added in any order. A step is merged again only after it has changed.
    """

    def __init__(self, vocabulary: str) -> None:
        self._vocabulary = vocabulary
        self.coverage = Coverage()
        self.reductions = Reductions(vocabulary)
        self.missing: Missing = {}  # set by update_coverage
        self._layouts: dict[int, DescribedLayout] = {}
        self._steps: dict[int, _Step] = {}
        self._oldest = OPEN_STEP  # contributions to earlier steps are ignored
        self._limits: dict[Writer, int] = {}  # the step from which on a writer is superseded
        self._ranks: set[int] = set()
        self._totals = Totals()
        self._ranks_of_name: dict[str, set[int]] = {}
        self._name_sets: set[tuple[int, tuple[str, ...]]] = set()  # that ranks were seen to write
        self._reduced_names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._unpacking = Budget()
        self.unread: Counter[str] = Counter()  # reasons why contributions could not be merged

    def __contains__(self, step: int) -> bool:
        return step in self._steps

    def steps(self) -> list[int]:
        """Return the steps that have contributions."""
        return sorted(self._steps)

    def time(self, step: int) -> float:
        """Return the time of the last contribution to a step that counts."""
        found = self._steps[step]
        if found.time is None:
            counted = (time for writer, time in found.times.items() if self.counts(writer, step))
            found.time = max(counted, default=0.0)
        return found.time

    def add_rank(self, rank: int) -> None:
        """Note that the role has this rank, which need not have written anything."""
        # Values are reduced only where a role has several ranks, so a second one changes earlier steps too.
        if rank not in self._ranks:
            self._ranks.add(rank)
            self._merge_again(self._steps)

    def add_record(self, writer: Writer, record: Record, segment: int = 0) -> int | None:
        """Add a layout, an event or a rollout state; return the step that it contributes to.

        What cannot be read is skipped and counted.
        """
        try:
            if record.kind == Kind.LAYOUT:
                from windsock.measurement.merged import DescribedLayout  # imports the catalogue

                id, described = DescribedLayout.parse(decoding.decode(record.kind, record.payload))
                if id not in self._layouts:  # the id is the hash of the content
                    self._layouts[id] = described
                    self._merge_again(self._steps)
            elif record.kind == Kind.EVENT:
                self._add_event(writer, decoding.decode(record.kind, record.payload))
            elif record.kind == Kind.GATHERED:
                from windsock.rollouts.merged import RolloutState

                state = RolloutState.parse(writer.rank, *decoding.decode(record.kind, record.payload))
                if state.step >= self._oldest:
                    share = state.kind, state.taskset
                    self._add(share, _Contribution(writer, segment, state), state.step, state.time)
                    return state.step
            elif record.kind == Kind.SPARSE_STATE:
                layout, step, _, body = decoding.decode(record.kind, record.payload)
                return self._add_sparse_state(writer, step, layout, body, segment)
        # Of a newer windsock, damaged or hostile.
        except ValueError as error:
            self._skip(str(error))
        return None

    def add_state(
        self, writer: Writer, step: int, time: float, layout: int, vector: NDArray[np.float64], segment: int = 0
    ) -> bool:
        """Add a measured state; return False if its step is too old."""
        from windsock.measurement.merged import RankState

        if step < self._oldest:
            return False
        state = RankState(writer.rank, layout, vector)
        self._add(MEASURED, _Contribution(writer, segment, state), step, time)
        return True

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

    def supersede(self, limits: Mapping[Writer, int | None]) -> dict[int, dict[str, float]]:
        """Set the steps from which on writers are superseded by newer attempts.

        Return the steps that this changes, with their values before.
        """
        new = {writer: limit for writer, limit in limits.items() if limit is not None}
        changed = [writer for writer in {*new, *self._limits} if new.get(writer) != self._limits.get(writer)]
        lowest = {w: min(limits[w] for limits in (new, self._limits) if w in limits) for w in changed}
        before = {
            step: self.values(step)
            for step, found in (self._steps.items() if changed else ())
            if any(lowest.get(writer, step + 1) <= step for writer in found.times)
        }
        self._limits = new
        self._merge_again(before)
        return before

    def update_coverage(self) -> set[int]:
        """Find the missing shares again, after the progress of writers was set; return the steps that this changes."""
        before = self.missing
        self.missing = self.coverage.missing(Contributions(self.steps(), self._ranks_in, self.time, self.counts))
        changed = {step for step in {*before, *self.missing} if before.get(step) != self.missing.get(step)}
        self._merge_again(changed & self._steps.keys())
        return changed

    def values(self, step: int) -> dict[str, float]:
        """Return the values of a step that several ranks contribute to: of their states, and of their rows."""
        found = self._steps.get(step)
        return {} if found is None else self._merged(step, found)[0]

    def withheld(self, step: int) -> frozenset[str]:
        """Return the names that have no value in a step, because the share of a rank is missing."""
        found = self._steps.get(step)
        return frozenset() if found is None else self._merged(step, found)[1]

    def forget_before(self, step: int) -> None:
        """Forget the contributions to earlier steps, and ignore further ones."""
        self._oldest = step
        self._totals.forget_before(step)
        for old in [known for known in self._steps if known < step]:
            del self._steps[old]

    def counts(self, writer: Writer, step: int) -> bool:
        """Return whether a writer's contributions to a step count, or are superseded by a newer attempt's."""
        limit = self._limits.get(writer)
        return limit is None or step < limit

    def _add_event(self, writer: Writer, event: Mapping[str, Any]) -> None:
        match event.get("event"):
            case "alone":
                self.coverage.add_alone(writer, (event["kind"], event["taskset"]))
            case "shared":
                self.coverage.add_shared(
                    writer, event["kind"] == MEASURED[0], event["since"] if event["dropped"] else None
                )
            case "open_report":
                self.coverage.add_open(writer, event["step"], (event["kind"], event["taskset"]))
            case "gather_failed":
                self.coverage.add_failed_exchange(writer, event["step"])
            case "counts":
                self.reductions.declare(event["names"], event["how"])
                self._reduced_names.clear()

    def _ranks_in(self, step: int) -> dict[Share, Set[int]]:
        """Return the ranks that contribute to each share of a step."""
        found = self._steps[step]
        ranks: dict[Share, Set[int]] = {
            share: {one.writer.rank for one in contributions if one.is_whole and self.counts(one.writer, step)}
            for share, contributions in found.shares.items()
        }
        if found.counted:
            ranks[COUNTED] = {writer.rank for writer in found.counted if self.counts(writer, step)}
        return ranks

    def _merged(self, step: int, found: _Step) -> tuple[dict[str, float], frozenset[str]]:
        if found.merged is None:
            missing = self.missing.get(step, {})
            merged: dict[str, float] = {}
            withheld: set[str] = set()
            for share, contributions in found.shares.items():
                counted = [one for one in contributions if self.counts(one.writer, step)]
                values, complete = self._merged_share(share, counted, share in missing)
                if complete:
                    merged |= values
                else:
                    withheld |= values.keys()
            reduced = self._reduced_rows(step, found)
            if COUNTED in missing:
                withheld |= {name for name in reduced if self.reductions.is_counted(name)}
            merged |= reduced
            found.merged = {name: value for name, value in merged.items() if name not in withheld}
            found.withheld = frozenset(withheld)
        return found.merged, found.withheld

    def _merged_share(
        self, share: Share, contributions: list[_Contribution], incomplete: bool
    ) -> tuple[dict[str, float], bool]:
        """Return the values of the contributions to a share of a step, and whether that is the whole."""
        if not contributions or (not incomplete and self._is_in_rows(share, contributions)):
            return {}, True
        try:
            return self._merge(share, [one.state for one in contributions]), not incomplete
        except ValueError as error:  # one is damaged, or of a newer windsock: the others are not the whole
            self._skip(str(error))
            names: dict[str, float] = {}
            for one in contributions:
                with suppress(ValueError):
                    names |= self._merge(share, [one.state])
            return names, False

    def _is_in_rows(self, share: Share, contributions: list[_Contribution]) -> bool:
        """Return whether the rows of the role's first rank have the values already: it alone contributed."""
        sources = {(one.writer.rank, one.segment) for one in contributions}
        # Of measured values only rank 0 writes rows.
        first = 0 if share == MEASURED else min(self._ranks)
        return len(sources) == 1 and contributions[0].writer.rank == first

    def _merge(self, share: Share, states: list[Any]) -> dict[str, float]:
        if share == MEASURED:
            from windsock.measurement.merged import merge_states

            return merge_states(states, self._layouts, self._vocabulary)
        from windsock.rollouts.merged import merge_rollouts

        return merge_rollouts(states, self._vocabulary, self._unpacking)

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

    def _add(self, share: Share, contribution: _Contribution, step: int, time: float) -> None:
        self._step(contribution.writer, step, time).shares.setdefault(share, []).append(contribution)
        self.coverage.add_contributor(contribution.writer.rank, share)

    def _add_sparse_state(self, writer: Writer, step: int, layout: int, body: bytes, segment: int) -> int | None:
        """Add a sparse state; that of the same step which follows tells that the rank has contributed, and when."""
        from windsock.measurement.merged import RankState

        if step < self._oldest:
            return None
        found = self._steps.get(step)
        if found is None:
            found = self._steps[step] = _Step()
        found.merged = None
        state = RankState(writer.rank, layout, body)
        found.shares.setdefault(MEASURED, []).append(_Contribution(writer, segment, state, is_whole=False))
        return step

    def _step(self, writer: Writer, step: int, time: float) -> _Step:
        self.add_rank(writer.rank)
        found = self._steps.setdefault(step, _Step())
        found.times[writer] = max(time, found.times.get(writer, time))
        found.merged = found.time = None
        return found

    def _skip(self, reason: str) -> None:
        if reason in self.unread or len(self.unread) < MAX_REASONS:
            self.unread[reason] += 1

    def _merge_again(self, steps: Iterable[int]) -> None:
        for step in steps:
            found = self._steps[step]
            found.merged = found.time = None

    def _reduced(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names among those of a row that are reduced; rows have the same few sets of names."""
        found = self._reduced_names.get(names)
        if found is None:
            if len(self._reduced_names) >= MAX_NAME_SETS:
                self._reduced_names.clear()
                self._name_sets.clear()
            found = self._reduced_names[names] = tuple(name for name in names if self.reductions.is_reduced(name))
        return found
