"""How far the sending of a run is: ``transfer/progress.json`` beside its segments.

The process that sends writes it. The training process reads it, since it never talks to the network itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from windsock.journal import decoding
from windsock.journal.decoding import mapping_of, object_of, read_count, read_text
from windsock.journal.folder import SegmentFile, segment_files
from windsock.journal.regular_files import open_regular_file, read_regular_file
from windsock.model import Writer
from windsock.transfer.received_list import FOLDER, ReceivedList


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the segments are sent, how many bytes of each are held there, and what the last problem was."""

    server: str = ""
    project: str = ""  # the directory's name on the server
    sent: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


FIELDS = object_of(
    {**dict.fromkeys(("server", "project", "error"), read_text), "sent": mapping_of(read_count)}, ("server", "sent")
)


def read_progress(folder: Path) -> Progress:
    """Read the progress; where there is no file, or one that cannot be read, nothing was sent."""
    try:
        known = FIELDS(decoding.parse_json(read_regular_file(_path(folder))))
    except (OSError, ValueError):
        return Progress()
    return Progress(**{name: known[name] for name in Progress.__dataclass_fields__ if name in known})


def write_progress(folder: Path, progress: Progress) -> None:
    """Replace the progress. The folder of a run that was removed is not created again."""
    path = _path(folder)
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    try:
        with open(open_regular_file(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8") as file:
            json.dump(asdict(progress), file)
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


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


def _path(folder: Path) -> Path:
    return folder / FOLDER / "progress.json"
