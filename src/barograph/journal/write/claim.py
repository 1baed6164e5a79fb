"""Claiming a rank: a process that joins a run without a rank takes one that no other process has.

A rank belongs to the process that creates the first segment file of the attempt. Creating a file fails if it exists,
so of several processes that choose a rank at once one gets it, and the others choose again.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from barograph.base.model import Writer
from barograph.base.process.identity import process_identity
from barograph.journal.format.folder import SegmentFile, segment_path, segments
from barograph.journal.write.segment import SEGMENT_FLAGS


def claim(
    folder: Path,
    role: str,
    wanted: int | None = None,
    actor: str | None = None,
    spool: Path | None = None,
    process: Mapping[str, Any] | None = None,
) -> Writer:
    """Create the first segment of a rank that no live process has, empty, and return its writer.

    It is the rank of an earlier process of the same Ray actor, as a new attempt; else the ``wanted`` one, if no live
    process has it; else the lowest that was never used. Segments in ``spool`` may not be copied to ``folder`` yet.
    ``process`` is the identity of the process that gets the rank, by default of this one.
    """
    found = [segment for segment in _segments(folder, spool) if segment.writer.role == role]
    return _first_free(folder, _candidates(found, role, wanted, actor, process or process_identity()))


def claim_rank(folder: Path, role: str, rank: int) -> Writer:
    """Create the first segment of a rank's next attempt, whoever has the rank, and return its writer."""
    found = [segment for segment in segments(folder) if segment.writer.role == role]
    return _first_free(folder, _attempts_after(found, role, rank))


def _first_free(folder: Path, candidates: Iterable[Writer]) -> Writer:
    for writer in candidates:
        with suppress(FileExistsError):
            os.close(os.open(segment_path(folder, writer, 0), SEGMENT_FLAGS, 0o644))
            return writer
    raise AssertionError  # there is no end of ranks


def _candidates(
    found: list[SegmentFile], role: str, wanted: int | None, actor: str | None, process: Mapping[str, Any]
) -> Iterator[Writer]:
    if actor is not None and (rank := _rank_of_actor(found, actor, process)) is not None:
        yield from _attempts_after(found, role, rank)
    if wanted is not None and not any(_is_live(s.path) for s in found if s.writer.rank == wanted and s.index == 0):
        yield Writer(role, wanted, _attempts(found, wanted) + 1)
    used = {segment.writer.rank for segment in found}
    yield from (Writer(role, rank, 1) for rank in itertools.count() if rank not in used)


def _segments(folder: Path, spool: Path | None) -> list[SegmentFile]:
    """Return the segments by writer and index; of one that is in both folders, that in the spool, which is newer."""
    here = {(s.writer, s.index): s for place in (folder, spool) if place is not None for s in segments(place)}
    return [here[key] for key in sorted(here)]


def _attempts_after(found: list[SegmentFile], role: str, rank: int) -> Iterator[Writer]:
    return (Writer(role, rank, attempt) for attempt in itertools.count(_attempts(found, rank) + 1))


def _attempts(found: Iterable[SegmentFile], rank: int) -> int:
    return max((segment.writer.attempt for segment in found if segment.writer.rank == rank), default=0)


def _rank_of_actor(found: Iterable[SegmentFile], actor: str, process: Mapping[str, Any]) -> int | None:
    """Return the rank of an earlier process of an actor; the process itself may have had one and ended its run."""
    from barograph.journal.read.glance import first_events  # imports NumPy, which a claim can mostly do without

    for segment in found:
        events = first_events(segment.path) if segment.index == 0 else ()
        # A process of another machine claims its rank with an event, before it writes that it starts.
        for event in events:
            is_other = any(event.get(name) != process[name] for name in ("machine", "pid", "born"))
            if event.get("event") in ("claim", "start") and event.get("actor") == actor and is_other:
                return segment.writer.rank
    return None


def _is_live(segment: Path) -> bool:
    from barograph.journal.read.glance import segment_status  # see above

    return not segment_status(segment).ended
