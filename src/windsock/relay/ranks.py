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
        self._held: dict[tuple[str, int], dict[int, list[Held]]] = {}  # by role and step, then by rank
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

    def take_unfinished(self) -> list[Row]:
        """Return what waits for other ranks, and what was logged after the last commits."""
        waiting = [self._whole(row) for round_ in self._rounds for row in round_.rows]
        self._rounds.clear()
        rows = super().take_unfinished()
        self._handed_out = super().places()
        return waiting + rows

    def places(self) -> dict[str, Place]:
        """Return how far each segment was handed out; what waits was not."""
        return self._handed_out

    def _follow(self, segment: SegmentFile, place: Place) -> Follower:
        self._parts[segment] = Parts()
        return Follower(segment.path, segment.writer, place=place, parts=self._parts[segment])

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
        if row.writer.rank != 0 or (key not in self._held and key not in self._gathered):
            return False
        newest: dict[int, Parts] = {}
        for segment in sorted(self._parts):
            if segment.writer.role == row.writer.role and segment.part == 0:
                newest[segment.writer.rank] = self._parts[segment]
        world = max((parts.world_size for parts in newest.values()), default=1)
        past = sum(parts.committed is not None and parts.committed >= row.step for parts in newest.values())
        return past < max(world, len(newest))

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
        for layout, step, vector in parts.states:
            if step >= oldest:
                held = self._held.setdefault((writer.role, step), {})
                held[writer.rank] = [Held(step, writer.rank, layout, vector)]
        parts.records.clear()
        parts.states.clear()

    def _last_step(self, role: str) -> int:
        """Return up to which step the rows of a role's first rank were handed out."""
        mine = [
            self._handed_out[segment.path.name].last_step
            for segment in self._parts
            if (segment.writer.role, segment.writer.rank) == (role, 0) and segment.path.name in self._handed_out
        ]
        return max(mine, default=-(2**63))

    def _whole(self, row: Row) -> Row:
        """Return a row with the values of all ranks where several hold parts of its step."""
        key = (row.writer.role, row.step)
        if row.writer.rank != 0:
            return row
        held = [one for of_rank in self._held.pop(key, {}).values() for one in of_rank]
        merged: dict[str, float] = {}
        for values in merged_values(held, self._layouts, self._vocabulary).values():
            merged |= values
        for _, _, gathered in merged_parts(self._gathered.pop(key, ()), self._vocabulary):
            merged |= gathered
        return replace(row, values={**row.values, **merged}) if merged else row
