"""What could not be read of a segment: bytes that are no frame, and intact frames that cannot be decoded."""

from __future__ import annotations

from dataclasses import replace

from windsock.journal.frames import FRAME_HEAD, Kind
from windsock.model import Damage

MAX_PLACES = 1000  # that are reported one by one
KIND_NAMES: dict[int, str] = {kind: kind.name.lower().replace("_", " ") for kind in Kind}


class SegmentDamage:
    """The damage of one segment. It does not depend on how the bytes were split into reads."""

    def __init__(self) -> None:
        self._skipped: list[Damage] = []
        self._unreadable: dict[tuple[str, str], Damage] = {}  # by kind and reason

    def all(self) -> list[Damage]:
        """Return the damage in the order of the file."""
        return sorted(self.parts(), key=lambda one: one.start)

    def parts(self) -> list[Damage]:
        """Return the damage, so that it can be added to that of other bytes."""
        return [*self._skipped, *self._unreadable.values()]

    def skip(self, damage: Damage) -> None:
        """Add bytes that were skipped, behind those that were added before."""
        if len(self._skipped) < MAX_PLACES:
            self._skipped.append(damage)
        else:  # the last one stands for all that follow
            self._skipped[-1] = replace(self._skipped[-1], end=damage.end, reason="unreadable bytes in many places")

    def add_unreadable(self, kind: int, offset: int, length: int, reason: str, count: int = 1) -> None:
        """Count frames that are intact and cannot be decoded; the first has this offset and length."""
        what = KIND_NAMES.get(kind, f"kind {kind}")
        self._add_unreadable(Damage(offset, offset + FRAME_HEAD.size + length, reason, what, count))

    def add(self, damage: list[Damage]) -> None:
        """Add the damage of bytes behind those that were read before."""
        for one in damage:
            if one.kind:
                self._add_unreadable(one)
            else:
                self.skip(one)

    def _add_unreadable(self, found: Damage) -> None:
        known = self._unreadable.get((found.kind, found.reason))
        if known is not None:
            found = replace(min(known, found, key=lambda one: one.start), count=known.count + found.count)
        self._unreadable[found.kind, found.reason] = found

    def clear(self) -> None:
        """Forget the damage."""
        self._skipped.clear()
        self._unreadable.clear()
