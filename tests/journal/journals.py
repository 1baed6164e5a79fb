"""Reading of the segments that a test has written."""

from pathlib import Path

from windsock.journal.columns import Attempt, poll_all
from windsock.journal.folder import segments
from windsock.model import Writer

WRITER = Writer("trainer", 0, 1)


def read(folder: Path) -> Attempt:
    """Return the attempt of ``WRITER``, read from all its segments."""
    attempt = Attempt(WRITER)
    for segment in segments(folder):
        attempt.add(segment)
    poll_all([attempt])
    return attempt
