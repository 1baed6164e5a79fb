"""The frames of a segment that are neither rows nor commits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Record:
    """Any other frame: its kind, its offset and its payload."""

    kind: int
    offset: int
    payload: bytes
