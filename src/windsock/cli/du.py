"""Show the disk usage of the runs in a directory, largest first, and of the cache of logs that were read in place."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

from windsock.cli.arguments import add_json, directory
from windsock.cli.json_output import print_json
from windsock.formatting import counted, size
from windsock.importers.import_cache import cache_dir, cached_imports
from windsock.journal.archive import SUFFIX, archives
from windsock.journal.folder import INDEX_FOLDER, read_run_info, run_folders
from windsock.terminal.output import say

HELP = "show the disk usage of runs"
EXAMPLE = "windsock du"


@dataclass(frozen=True, slots=True, order=True)
class Usage:
    """The bytes of one run. Its indexes can be deleted: readers make them again."""

    bytes: int  # without indexes
    index_bytes: int
    id: str
    name: str
    project: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock du``."""
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the sizes."""
    dir = directory(options)
    found = [_usage(folder) for folder in run_folders(dir)]
    found += [
        Usage(file.stat().st_size, 0, file.name.removesuffix(SUFFIX), "(archived)", file.parent.name)
        for file in archives(dir)
    ]
    found.sort(key=lambda usage: (usage.bytes + usage.index_bytes, usage), reverse=True)
    if options.json:
        print_json([asdict(usage) for usage in found])
        return 0
    for usage in found:
        say(f"{size(usage.bytes):>10}  {usage.id}  {usage.project}/{usage.name}{_indexes(usage.index_bytes)}")
    indexes = sum(usage.index_bytes for usage in found)
    say(f"{size(sum(usage.bytes for usage in found)):>10}  {counted(len(found), 'run')} in {dir}{_indexes(indexes)}")
    cached = cached_imports()
    if cached:
        logs = counted(len(cached), "imported log")
        say(f"{size(sum(one.bytes for one in cached)):>10}  {logs} in the cache {cache_dir()}")
    return 0


def _usage(folder: Path) -> Usage:
    info = read_run_info(folder)
    bytes = {True: 0, False: 0}  # of indexes, and of other files
    for file in folder.rglob("*"):
        if file.is_file():
            bytes[file.relative_to(folder).parts[0] == INDEX_FOLDER] += file.stat().st_size
    return Usage(bytes[False], bytes[True], info.id, info.name, info.project)


def _indexes(bytes: int) -> str:
    return f"  and {size(bytes)} of indexes, which can be deleted" if bytes else ""
