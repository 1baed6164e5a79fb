"""Pack runs that are over into one compressed file each, beside their directory; --restore puts one back."""

from __future__ import annotations

import argparse
from pathlib import Path

from windsock.cli.arguments import add_run, directory
from windsock.cli.rm import refuse_running
from windsock.errors import RunNotFoundError
from windsock.formatting import size
from windsock.journal.archive import SUFFIX, archives, pack, unpack
from windsock.journal.folder import find_run
from windsock.journal.glance import glance

HELP = "pack runs into compressed files, or restore them"
EXAMPLE = "windsock archive k7m2p9qx && windsock archive --restore k7m2p9qx"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``archive`` takes."""
    add_run(parser, several=True)
    parser.add_argument("--restore", action="store_true", help="unpack instead; RUN is an id or the path of the file")
    parser.add_argument("--force", action="store_true", help="also runs that are still being written")


def run(options: argparse.Namespace) -> int:
    """Archive or restore."""
    for reference in options.runs:
        if options.restore:
            print(f"restored {unpack(_find_archive(reference, directory(options)))}")
            continue
        one = glance(find_run(reference, directory(options)))
        refuse_running(one, options.force)
        packed = pack(one.path)
        print(f"archived {one.info.id} ({one.info.name}): {size(one.bytes)} to {size(packed.stat().st_size)}, {packed}")
    return 0


def _find_archive(reference: str, dir: Path) -> Path:
    if Path(reference).is_file():
        return Path(reference)
    found = [path for path in archives(dir) if path.name.removesuffix(SUFFIX).startswith(reference)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(path.name.removesuffix(SUFFIX) for path in archives(dir)) or "none"
    raise RunNotFoundError(f"{len(found)} archived runs match {reference!r} in {dir}; archived are: {known}")
