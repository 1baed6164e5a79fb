"""The heartbeats of a process: a reader keeps the last one, which tells what those before it do."""

from __future__ import annotations

import re

from windsock.journal import decoding
from windsock.journal.frames import Kind
from windsock.journal.records import Record

HEARTBEAT = bytes((Kind.EVENT,)) + b'{"event":"heartbeat"'
_COUNT = rb"(?:0|[1-9][0-9]{0,17})"
USUAL = re.compile(
    HEARTBEAT.replace(b"{", rb"\{") + rb',"time":(?:0|[1-9][0-9]{0,9})(?:\.[0-9]{1,30})?,"dropped":' + _COUNT
    + rb',"waiting":(' + _COUNT + rb'),"failed_writes":' + _COUNT + rb',"failed_syncs":' + _COUNT + rb"\}"
)  # fmt: skip
"""A heartbeat as windsock writes it, which needs no decoding."""


class Heartbeats:
    """The last heartbeat, after the one with the most waiting frames if it has fewer.

    A process writes one every ten seconds, for weeks.
    """

    def __init__(self) -> None:
        self.kept: list[Record] = []
        self._most_waiting = 0

    def add(self, event: Record) -> bool:
        """Add the next one; return False if the event is none, and raise DecodingError if it cannot be decoded."""
        waiting = _waiting(event.payload)
        if waiting is None:
            return False
        if waiting >= self._most_waiting:
            self.kept, self._most_waiting = [event], waiting
        else:
            self.kept = [self.kept[0], event]
        return True

    def clear(self) -> None:
        """Forget them."""
        self.kept, self._most_waiting = [], 0


def _waiting(payload: bytes) -> int | None:
    """Return the number of frames that waited; None if the event is no heartbeat."""
    usual = USUAL.fullmatch(payload)
    if usual is not None:
        return int(usual[1])
    event = decoding.decode(Kind.EVENT, payload)
    return event.get("waiting", 0) if event["event"] == "heartbeat" else None  # a key may occur twice
