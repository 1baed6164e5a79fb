"""A courier's desk: one small file that holds how far a tracker was fed, and how it is doing."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

from windsock.journal.folder import folder_name, segments
from windsock.journal.follow import Place

FOLDER = "relay"

Word = Literal["starting", "healthy", "retrying", "failing", "refused", "given up", "done"]
"""How a tracker is doing. ``refused``: its configuration is wrong; ``given up``: it did not recover after the run."""
CURSOR = ("delivered", "places", "mark")
ENDED: tuple[Word, ...] = ("refused", "given up", "done")
NUMBERS: dict[str, int] = {
    "starting": 0,
    "healthy": 0,
    "done": 0,
    "retrying": 1,
    "failing": 2,
    "given up": 3,
    "refused": 3,
}
"""States as the numbers that rows hold."""


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """What is known of one tracker's delivery."""

    tracker: str
    state: Word = "starting"
    since: float = 0.0
    session: str = ""  # which start of the relay this is about
    target: str = ""  # a hash of what the tracker was told, for whom the cursor holds
    delivered: int = 0
    lag: int = 0  # rows that were read and not delivered
    dropped: int = 0  # rows that the tracker refused while it took others
    skipped: int = 0  # values that the place cannot hold
    errors: int = 0
    error: str = ""
    restarts: int = 0
    url: str = ""
    time: float = 0.0
    places: Mapping[str, Place] = field(default_factory=dict)
    mark: Mapping[str, Any] | None = None
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # how far other targets were fed

    def turned_to(self, target: str) -> DeliveryState:
        """Return the desk for what the tracker is told now; how far the place of before was fed is remembered."""
        if self.target == target:
            return self
        record = _record(self)
        others = {**self.others, self.target: {name: record[name] for name in CURSOR}} if self.target else self.others
        rest = {name: cursor for name, cursor in others.items() if name != target}
        return _desk({"tracker": self.tracker, "target": target, "others": rest, **others.get(target, {"places": {}})})

    def said(self, state: Word, **changes: Any) -> DeliveryState:
        """Return the desk in another state; ``since`` stays where it is the same one."""
        now = time.time()
        return replace(self, state=state, since=self.since if state == self.state else now, time=now, **changes)

    def has_all(self, folder: Path) -> bool:
        """Tell whether everything that the run's segments hold was handed out."""
        return all(
            segment.path.name in self.places and self.places[segment.path.name].resume >= segment.path.stat().st_size
            for segment in segments(folder)
        )


def desk_path(folder: Path, tracker: str) -> Path:
    """Return where the desk of a tracker stands."""
    return folder / FOLDER / f"{folder_name(tracker)}.json"


def read_desk(folder: Path, tracker: str) -> DeliveryState:
    """Read a desk; one that is not there, or unreadable, is a new one."""
    return _read(desk_path(folder, tracker), tracker)


def _read(path: Path, tracker: str) -> DeliveryState:
    try:
        return _desk(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return DeliveryState(tracker)


def _desk(record: Mapping[str, Any]) -> DeliveryState:
    known = {name: record[name] for name in DeliveryState.__dataclass_fields__ if name in record}
    return DeliveryState(**{**known, "places": {segment: Place(*place) for segment, place in record["places"].items()}})


def _record(desk: DeliveryState) -> dict[str, Any]:
    return {**asdict(desk), "places": {name: list(asdict(place).values()) for name, place in desk.places.items()}}


def read_desks(folder: Path) -> list[DeliveryState]:
    """Read all desks of a run."""
    found = (_read(path, path.stem) for path in sorted((folder / FOLDER).glob("*.json")))
    return [desk for desk in found if desk.time]


def write_desk(folder: Path, desk: DeliveryState) -> None:
    """Replace the desk, whole or not at all. The directory of a run that was removed is not made again."""
    path = desk_path(folder, desk.tracker)
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    try:
        draft.write_text(json.dumps(_record(desk), separators=(",", ":")))
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def lock_path(folder: Path, tracker: str | None = None) -> Path:
    """Return the file that whoever carries for a tracker has locked; without a tracker, the relay's own."""
    return desk_path(folder, tracker).with_suffix(".lock") if tracker else folder / FOLDER / "lock"


def is_free(folder: Path) -> bool:
    """Tell whether no relay of the run is at work."""
    lock = locked(lock_path(folder))
    if lock is not None:
        lock.close()
    return lock is not None


def locked(path: Path, wait: float = 0.0) -> IO[str] | None:
    """Take a lock that ends with the process; None where another one holds it for longer than ``wait``."""
    path.parent.mkdir(exist_ok=True)
    file = path.open("a")
    until = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            if time.monotonic() >= until:
                file.close()
                return None
            time.sleep(0.05)
