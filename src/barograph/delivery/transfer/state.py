"""The files of ``transfer/`` in a run's folder.

The list of the segments that were received, to which alone others append; how far the sending is; and a lock
between processes that claim a rank on a destination and the one that pulls segments from it: a destination holds a
claimed segment before the process begins it in its folder, and until then nothing else may.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from barograph.base.model import Writer
from barograph.journal.format import fields
from barograph.journal.format.fields import mapping_of, object_of, read_count, read_text
from barograph.journal.format.folder import (
    SegmentFile,
    closing_fd,
    open_regular_file,
    read_regular_file,
    replace_regular_file,
    segment_files,
)

FOLDER = "transfer"


class ReceivedList:
    """The names of the segments of a run that were received; other processes may add to the same file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FOLDER / "received"
        self._names: frozenset[str] = frozenset()

    def __contains__(self, segment: str) -> bool:
        """Return whether a segment was received."""
        if segment not in self._names:
            with suppress(FileNotFoundError):
                self._names = _names(self._path.read_bytes())
        return segment in self._names

    def add(self, segment: str, most: int) -> bool:
        """Add a segment; return False where the list has ``most`` names."""
        self._path.parent.mkdir(exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        with closing_fd(open_regular_file(self._path, flags)) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)
            data = os.pread(fd, os.fstat(fd).st_size, 0)
            names = _names(data)
            if segment not in names:
                if len(names) >= most:
                    return False
                # A line that was cut short by a crash is none.
                os.write(fd, b"\n" * (not data.endswith(b"\n") and bool(data)) + segment.encode() + b"\n")
                os.fsync(fd)
            self._names = names | {segment}
            return True


def _names(data: bytes) -> frozenset[str]:
    return frozenset(line.decode("utf-8", "replace") for line in data.split(b"\n")[:-1])


FLAGS = os.O_RDWR | os.O_NOFOLLOW


@contextmanager
def claiming(folder: Path) -> Iterator[None]:
    """Keep others from beginning segments in a folder; several processes may claim at a time."""
    path = _claim_path(folder)
    path.parent.mkdir(exist_ok=True)
    with closing_fd(open_regular_file(path, FLAGS | os.O_CREAT)) as fd:
        with suppress(OSError):  # a filesystem without locks, as Lustre may be: the claim is worth more
            fcntl.flock(fd, fcntl.LOCK_SH)
        yield


@contextmanager
def without_claims(folder: Path) -> Iterator[bool]:
    """Yield whether a segment may be begun in a folder, because no process claims one; none will meanwhile."""
    try:
        fd = open_regular_file(_claim_path(folder), FLAGS)
    except OSError:  # mostly there is no such file, because nobody has claimed a rank
        yield True
        return
    with closing_fd(fd):
        yield _is_locked(fd)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # see above
        pass
    return True


def _claim_path(folder: Path) -> Path:
    return folder / FOLDER / "claim.lock"


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """Where the segments are sent, how many bytes of each are held there, and what the last problem was."""

    server: str = ""
    project: str = ""  # the directory's name on the server
    sent: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


FIELDS = object_of(
    {**dict.fromkeys(("server", "project", "error"), read_text), "sent": mapping_of(read_count)}, ("server", "sent")
)


def read_progress(folder: Path) -> TransferProgress:
    """Read the progress; where there is no file, or one that cannot be read, nothing was sent."""
    try:
        known = FIELDS(fields.parse_json(read_regular_file(_progress_path(folder))))
    except (OSError, ValueError):
        return TransferProgress()
    return TransferProgress(**{name: known[name] for name in TransferProgress.__dataclass_fields__ if name in known})


def write_progress(folder: Path, progress: TransferProgress) -> None:
    """Replace the progress. The folder of a run that was removed is not created again."""
    replace_regular_file(_progress_path(folder), json.dumps(asdict(progress)))


def unsent_bytes(folder: Path, server: str, writer: Writer | None = None) -> int:
    """Return how many bytes that are recorded in a folder, by all writers or by one, a server does not hold yet."""
    progress, received = read_progress(folder), ReceivedList(folder)
    sent = progress.sent if progress.server == server else {}
    left = {name: state[0] - sent.get(name, 0) for name, state in segment_files(folder).items()}
    return sum(
        count
        for name, count in left.items()
        if count > 0 and name not in received and (writer is None or _is_of(name, writer))
    )


def _is_of(name: str, writer: Writer) -> bool:
    segment = SegmentFile.parse(Path(name))
    return segment is not None and segment.writer == writer


def _progress_path(folder: Path) -> Path:
    return folder / FOLDER / "progress.json"
