"""The delivery state of one tracker: a small file with its cursor and how its delivery is doing.

``relay/<tracker>.json`` in the run's directory. Its keys are older than some of the names here: ``places`` are the
cursors.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from barograph.base.formatting import counted, size
from barograph.delivery.processes import take_lock
from barograph.journal.format import fields
from barograph.journal.format.fields import (
    DecodingError,
    Read,
    list_of,
    mapping_of,
    nullable,
    object_of,
    one_of,
    read_count,
    read_integer,
    read_mapping,
    read_text,
    read_time,
)
from barograph.journal.format.folder import folder_name, read_regular_file, replace_regular_file, segments
from barograph.journal.read.segment_follower import Cursor

FOLDER = "relay"

State = Literal["starting", "healthy", "retrying", "failing", "refused", "given up", "done"]
"""How a delivery is doing. ``refused``: the configuration is wrong; ``given up``: no recovery after the run's end."""

ENDED: tuple[State, ...] = ("refused", "given up", "done")

STATE_NUMBERS: dict[str, int] = {
    "starting": 0,
    "healthy": 0,
    "done": 0,
    "retrying": 1,
    "failing": 2,
    "given up": 3,
    "refused": 3,
}
"""States as the numbers that rows contain."""

CURSOR_KEYS = ("delivered", "places", "mark")


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """The state of one tracker's delivery, as its file has it."""

    tracker: str
    state: State = "starting"
    since: float = 0.0
    session: str = ""  # the start of the relay that this is about
    target: str = ""  # a hash of the tracker's arguments, for which the cursor is valid
    delivered: int = 0
    lag: int = 0  # rows that were read and not delivered
    lag_bytes: int = 0  # of the journal that were not read yet: it has further rows
    dropped: int = 0  # rows that the tracker rejected while it took others
    skipped: int = 0  # values that the tracker cannot store
    errors: int = 0
    error: str = ""
    restarts: int = 0
    url: str = ""
    time: float = 0.0
    places: Mapping[str, Cursor] = field(default_factory=dict)  # by segment
    mark: Mapping[str, Any] | None = None
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # cursors of other targets

    @property
    def pending(self) -> str:
        """What is not delivered yet, as text; empty if nothing is known to be."""
        rows = [counted(self.lag, "row")] if self.lag else []
        unread = [f"{size(self.lag_bytes)} of the journal"] if self.lag_bytes else []
        return " and ".join(rows + unread)

    def for_target(self, target: str) -> DeliveryState:
        """Return the state for a tracker with other arguments; the cursor of the arguments before is kept beside."""
        if self.target == target:
            return self
        record = _record(self)
        others = dict(self.others)
        if self.target:
            others[self.target] = {name: record[name] for name in CURSOR_KEYS}
        cursor = others.pop(target, {"places": {}})
        return _parse({"tracker": self.tracker, "target": target, "others": others, **cursor})

    def with_state(self, state: State, **changes: Any) -> DeliveryState:
        """Return a copy in another state; ``since`` is kept if the state is the same."""
        now = time.time()
        return replace(self, state=state, since=self.since if state == self.state else now, time=now, **changes)

    def has_all(self, folder: Path) -> bool:
        """Return whether everything in the run's segments was delivered."""
        return all(
            segment.path.name in self.places and self.places[segment.path.name].resume >= segment.path.stat().st_size
            for segment in segments(folder)
        )


def state_path(folder: Path, tracker: str) -> Path:
    """Return the path of a tracker's delivery state."""
    return folder / FOLDER / f"{folder_name(tracker)}.json"


def read_delivery_state(folder: Path, tracker: str) -> DeliveryState:
    """Read a delivery state; return a new one if the file is missing or unreadable."""
    return _read(state_path(folder, tracker), tracker)


def read_delivery_states(folder: Path) -> list[DeliveryState]:
    """Read the delivery states of all trackers of a run."""
    found = (_read(path, path.stem) for path in sorted((folder / FOLDER).glob("*.json")))
    return [state for state in found if state.time]


def write_delivery_state(folder: Path, state: DeliveryState) -> None:
    """Replace a delivery state atomically. The directory of a run that was removed is not created again."""
    replace_regular_file(state_path(folder, state.tracker), json.dumps(_record(state), separators=(",", ":")))


def _read(path: Path, tracker: str) -> DeliveryState:
    try:
        return _parse(FIELDS(fields.parse_json(read_regular_file(path))))
    except (OSError, ValueError):
        return DeliveryState(tracker)


def _parse(record: Mapping[str, Any]) -> DeliveryState:
    known = {name: record[name] for name in DeliveryState.__dataclass_fields__ if name in record}
    # Files of 0.1 have three of the five entries of a cursor.
    places = {segment: Cursor(*fields) for segment, fields in record["places"].items()}
    return DeliveryState(**{**known, "places": places})


def _read_cursor(value: Any) -> list[Any]:
    fields: list[Any] = list_of(nullable(read_integer))(value)
    if len(fields) > len(Cursor.__dataclass_fields__) or None in fields[:4]:
        raise DecodingError("must be a cursor")
    return fields


COUNTED = ("delivered", "lag", "lag_bytes", "dropped", "skipped", "errors", "restarts")

PLACES: dict[str, Read] = {"places": mapping_of(_read_cursor), "mark": nullable(read_mapping), "delivered": read_count}

FIELDS = object_of(
    {
        **dict.fromkeys(("tracker", "session", "target", "error", "url"), read_text),
        **dict.fromkeys(("since", "time"), read_time),
        **dict.fromkeys(COUNTED, read_count),
        **PLACES,
        "state": one_of(*STATE_NUMBERS),
        "others": mapping_of(object_of(PLACES, ("places",))),
    },
    ("tracker", "places"),
)


def _record(state: DeliveryState) -> dict[str, Any]:
    return {**asdict(state), "places": {name: list(asdict(cursor).values()) for name, cursor in state.places.items()}}


def lock_path(folder: Path, tracker: str | None = None) -> Path:
    """Return the lock file of a tracker's delivery; without a tracker, that of the run's relay."""
    return state_path(folder, tracker).with_suffix(".lock") if tracker else folder / FOLDER / "lock"


def relay_is_running(folder: Path) -> bool:
    """Return whether a relay of the run has its lock."""
    lock = take_lock(lock_path(folder))
    if lock is not None:
        lock.close()
    return lock is None
