"""Claiming a rank on a destination: processes on machines without a common directory take different ones.

A rank belongs to the process whose first bytes are held: they are like no others, and a destination never replaces
what it holds.
"""

from __future__ import annotations

import itertools
import os
import pickle
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from barograph.base.model import Writer
from barograph.base.process.identity import machine_id, process_identity, process_start
from barograph.base.secrets import is_secret_key
from barograph.delivery.transfer.destination import Destination, DestinationError, HttpDestination, ServerRun
from barograph.journal.format import frames
from barograph.journal.format.folder import SegmentFile, closing_fd, segment_path, segments
from barograph.journal.write.segment import SEGMENT_FLAGS

FIRST_ATTEMPT_AT = 1735689600  # 2025-01-01: the attempts of processes that could ask nobody are seconds since then
CLAIM_SECONDS = 10.0  # for the server to answer
RANKS_OF_NOBODY = range(100_000_000, 1_000_000_000)


@dataclass(frozen=True, slots=True)
class Claim:
    """A writer, and the first bytes of its segment, which the destination holds."""

    writer: Writer
    head: bytes

    def begin(self, folder: Path) -> None:
        """Create the segment in a folder; raise FileExistsError if it is there."""
        with closing_fd(os.open(segment_path(folder, self.writer, 0), SEGMENT_FLAGS, 0o644)) as fd:
            os.write(fd, self.head)


def claim_on(target: Destination, folder: Path, role: str, wanted: int | None = None, first: int = 0) -> Claim:
    """Claim a rank that no segment on a destination or in a folder has; raise DestinationError if that cannot be.

    It is the ``wanted`` one, as a new attempt; else the lowest from ``first`` on that was never used.
    """
    known = [Path(name) for name in target.held()] + [segment.path for segment in segments(folder)]
    used = [segment.writer for path in known if (segment := SegmentFile.parse(path)) and segment.writer.role == role]
    for writer in _candidates(role, used, wanted, first):
        claim = Claim(writer, unique_head())
        try:
            target.append(segment_path(folder, writer, 0).name, 0, claim.head)
            return claim
        except DestinationError as error:
            if error.reason != "differs":  # another process was faster
                raise
    raise AssertionError  # there is no end of ranks


def _candidates(role: str, used: Iterable[Writer], wanted: int | None, first: int) -> Iterator[Writer]:
    if wanted is not None:
        last = max((writer.attempt for writer in used if writer.rank == wanted), default=0)
        return (Writer(role, wanted, attempt) for attempt in itertools.count(last + 1))
    ranks = {writer.rank for writer in used}
    return (Writer(role, rank, 1) for rank in itertools.count(first) if rank not in ranks)


def unique_head(actor: str | None = None) -> bytes:
    """Return the first bytes of a segment as no other process writes them; ``actor`` is the Ray actor that it is."""
    record = {"event": "claim", "time": time.time(), "claim": secrets.token_hex(8), **process_identity()}
    record |= {"actor": actor} if actor else {}
    return frames.segment_head() + frames.frame(frames.record_payload(frames.Kind.EVENT, record))


def unasked_writer(role: str, wanted: int | None, actor: str | None) -> Writer:
    """Return a writer that no other process is, of a process that can ask nobody.

    Without a wanted rank it is a large number made of this process, or of its Ray actor. A later attempt is larger.
    """
    identity = actor or f"{machine_id()} {os.getpid()} {process_start(os.getpid())}"
    number = int.from_bytes(blake2b(identity.encode(), digest_size=8).digest(), "little")
    rank = RANKS_OF_NOBODY[number % len(RANKS_OF_NOBODY)] if wanted is None else wanted
    return Writer(role, rank, max(int(time.time()) - FIRST_ATTEMPT_AT, 1))


def claim_in_process(
    run: ServerRun, folder: Path, role: str, wanted: int | None, first: int
) -> tuple[Claim | None, str]:
    """Claim a rank on a server, from a process of its own; return it, or None and the reason why there is none."""
    modules = os.pathsep.join(directory or os.getcwd() for directory in sys.path)
    environment = {name: value for name, value in os.environ.items() if not is_secret_key(name, value)}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "barograph.delivery.transfer.claiming"],
            input=pickle.dumps((run, folder, role, wanted, first)),
            capture_output=True,
            timeout=CLAIM_SECONDS,
            env={**environment, "PYTHONPATH": modules},
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None, f"{run.server} does not answer"
    if done.returncode != 0:
        return None, done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    rank, attempt, head = done.stdout.decode().split()
    return Claim(Writer(role, int(rank), int(attempt)), bytes.fromhex(head)), ""


def print_claim(run: ServerRun, folder: Path, role: str, wanted: int | None, first: int) -> int:
    """Claim a rank and print it with the first bytes of its segment; return the exit code of this process."""
    try:
        claim = claim_on(HttpDestination(run), folder, role, wanted, first)
    except DestinationError as error:
        print(error, file=sys.stderr)
        return 1
    print(claim.writer.rank, claim.writer.attempt, claim.head.hex())
    return 0


if __name__ == "__main__":
    sys.exit(print_claim(*pickle.load(sys.stdin.buffer)))
