"""Compress ended runs into one file each, beside their directory. --restore unpacks a file again.

An archive has checksums. A run is restored whole, after they were verified, or not at all. The archive is kept unless
--delete is given.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from windsock.cli.arguments import add_run, directory, recorded_run
from windsock.cli.rm import require_ended
from windsock.errors import RunNotFoundError
from windsock.formatting import size
from windsock.journal.archive import SUFFIX, archives, pack, unpack
from windsock.journal.glance import glance
from windsock.terminal.output import say

HELP = "compress runs into files, or restore them"
EXAMPLE = "windsock archive k7m2p9qx && windsock archive --restore k7m2p9qx"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock archive``."""
    add_run(parser, several=True)
    parser.add_argument(
        "--restore", action="store_true", help="restore instead; RUN is an id or the path of an archive"
    )
    parser.add_argument("--delete", action="store_true", help="with --restore: delete the archive afterwards")
    parser.add_argument("--force", action="store_true", help="include runs that are still running")


def run(options: argparse.Namespace) -> int:
    """Archive or restore the runs."""
    for reference in options.runs:
        if options.restore:
            _restore(_find_archive(reference, directory(options)), options.delete)
            continue
        one = glance(recorded_run(reference, directory(options)))
        require_ended(one, options.force)
        packed = pack(one.path)
        sizes = f"{size(one.bytes)} to {size(packed.stat().st_size)}"
        say(f"archived {one.info.id} ({one.info.name}), {sizes}: {packed}")
    return 0


def _restore(archive: Path, delete: bool) -> None:
    folder = unpack(archive, delete)
    say(f"restored {folder}; the archive {archive} was {'deleted' if delete else 'kept'}")


def _find_archive(reference: str, dir: Path) -> Path:
    if Path(reference).is_file():
        return Path(reference)
    found = [path for path in archives(dir) if path.name.removesuffix(SUFFIX).startswith(reference)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(path.name.removesuffix(SUFFIX) for path in archives(dir)) or "none"
    raise RunNotFoundError(f"{len(found)} archived runs in {dir} match {reference!r}; archived runs: {known}")
