"""Rows in which the parts of all ranks are merged: what a tracker is told is the value of the whole batch.

Rank 0 writes the values of its own part; the states of the others are merged with it before anything is divided. A row
waits until all ranks have brought theirs, but not for ever.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from windsock.journal import frames
from windsock.journal.folder import SegmentFile
from windsock.journal.follow import Follower, Parts, Place, RunFollower
from windsock.journal.frames import Kind
from windsock.journal.glance import segment_status
from windsock.measurement.merged import Described, Held, merged_values
from windsock.model import Row, Writer
from windsock.rollouts.merged import Part, merged_parts

PATIENCE_SECONDS = 30.0  # for ranks that are behind, or dead
LATEST_STEPS = 1000  # an evaluation may be closed so many steps after its own; older parts are no longer waited for


@dataclass(slots=True)
class _Round:
    """Rows that were read together, since when they wait, and where the segments were left."""

    rows: list[Row]
    since: float
    places: dict[str, Place]


class RankedFollower(RunFollower):
    """Yields the rows of a run, those of several ranks merged."""

    def __init__(
        self,
        folder: Path,
        places: Mapping[str, Place] | None = None,
        only: Writer | None = None,
        vocabulary: str = "roll",
    ) -> None:
        super().__init__(folder, places, only)
        self._vocabulary = vocabulary
        self._parts: dict[SegmentFile, Parts] = {}
        self._layouts: dict[int, Described] = {}
        self._held: dict[tuple[str, int], dict[int, Held]] = {}  # by role and step, then by rank
        self._merged: dict[tuple[str, int], dict[str, float]] = {}
        self._gathered: dict[tuple[str, int], list[Part]] = {}
        self._rounds: list[_Round] = []
        self._handed_out = dict(places or {})

    def new_rows(self) -> list[Row]:
        """Return what is complete, in the order in which it was read."""
        rows = super().new_rows()
        for segment, parts in self._parts.items():
            self._take(segment.writer, parts)
        if rows or not self._rounds:
            self._rounds.append(_Round(rows, time.monotonic(), super().places()))
        return [self._whole(row) for row in self._ready()]

    @property
    def waits(self) -> bool:
        """Whether rows wait for other ranks."""
        return any(round_.rows for round_ in self._rounds)

    def take_unfinished(self) -> list[Row]:
        """Return, once, what the writers that have ended logged after their last commits."""
        rows = super().take_unfinished()
        self._handed_out = super().places()
        return rows

    def places(self) -> dict[str, Place]:
        """Return how far each segment was handed out; what waits was not."""
        return self._handed_out

    def _follow(self, segment: SegmentFile, place: Place) -> Follower:
        self._parts[segment] = Parts()
        return Follower(segment.path, segment.writer, None, place, self._schemas, self._parts[segment])

    def _ready(self) -> Iterator[Row]:
        while self._rounds:
            round_ = self._rounds[0]
            patient = time.monotonic() - round_.since < PATIENCE_SECONDS
            if patient and any(self._lacks_a_rank(row) for row in round_.rows):
                return
            self._rounds.pop(0)
            self._handed_out = round_.places
            yield from round_.rows

    def _lacks_a_rank(self, row: Row) -> bool:
        """Tell whether a rank may still bring its part of a row: it is of rank 0, measured, and not all are past it."""
        key = (row.writer.role, row.step)
        if self._only is not None or row.writer.rank != 0 or (key not in self._held and key not in self._gathered):
            return False
        newest: dict[int, SegmentFile] = {}
        for segment in sorted(self._parts):
            if segment.writer.role == row.writer.role and segment.part == 0:
                newest[segment.writer.rank] = segment
        world = max((self._parts[segment].world_size for segment in newest.values()), default=1)
        past = sum(self._is_past(segment, row.step) for segment in newest.values())
        return past < max(world, len(newest))

    def _is_past(self, segment: SegmentFile, step: int) -> bool:
        committed = self._parts[segment].committed
        return (committed is not None and committed >= step) or segment_status(segment.path).ended

    def _take(self, writer: Writer, parts: Parts) -> None:
        oldest = self._last_step(writer.role) - LATEST_STEPS
        for record in parts.records:
            with suppress(ValueError, KeyError, TypeError):  # of a newer windsock
                if record.kind == Kind.LAYOUT:
                    id, described = Described.parse(frames.parse_record(record.payload))
                    self._layouts[id] = described
                else:
                    part = Part.parse(writer.rank, *frames.parse_packet(record.payload))
                    if part.step >= oldest:
                        self._gathered.setdefault((writer.role, part.step), []).append(part)
                        self._merged.pop((writer.role, part.step), None)
        for layout, step, vector in parts.states:
            if step >= oldest:
                held = self._held.setdefault((writer.role, step), {})
                held[writer.rank] = Held(step, writer.rank, layout, vector)
                self._merged.pop((writer.role, step), None)
        parts.records.clear()
        parts.states.clear()
        self._forget_before(writer.role, oldest)

    def _last_step(self, role: str) -> int:
        """Return up to which step the rows of a role's first rank were handed out."""
        mine = [
            self._handed_out[segment.path.name].last_step
            for segment in self._parts
            if (segment.writer.role, segment.writer.rank) == (role, 0) and segment.path.name in self._handed_out
        ]
        return max(mine, default=-(2**63))

    def _whole(self, row: Row) -> Row:
        """Return a row with the values of all ranks, where several hold parts of what it says."""
        merged = self._merged_values(row.writer.role, row.step) if row.writer.rank == 0 else {}
        if not merged.keys() & row.values.keys():
            return row
        return replace(row, values={name: merged.get(name, value) for name, value in row.values.items()})

    def _merged_values(self, role: str, step: int) -> dict[str, float]:
        key = (role, step)
        if key not in self._merged:
            found: dict[str, float] = {}
            held = list(self._held.get(key, {}).values())
            for values in merged_values(held, self._layouts, self._vocabulary).values():
                found |= values
            for _, _, gathered in merged_parts(self._gathered.get(key, ()), self._vocabulary):
                found |= gathered
            self._merged[key] = found
        return self._merged[key]

    def _forget_before(self, role: str, step: int) -> None:
        for known in (self._held, self._gathered, self._merged):
            if len(known) > LATEST_STEPS:
                for key in [key for key in known if key[0] == role and key[1] < step]:
                    del known[key]
