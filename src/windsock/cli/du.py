"""Show the disk usage of the runs in a directory, largest first."""

from __future__ import annotations

import argparse

from windsock.cli.arguments import add_json, directory, print_json
from windsock.formatting import size
from windsock.journal.archive import SUFFIX, archives
from windsock.journal.folder import read_run_info, run_folders
from windsock.terminal.output import say

HELP = "show the disk usage of runs"
EXAMPLE = "windsock du"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock du``."""
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the sizes."""
    dir = directory(options)
    sizes = [
        (
            sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
            info.id,
            info.name,
            info.project,
        )
        for folder in run_folders(dir)
        for info in [read_run_info(folder)]
    ]
    sizes += [
        (file.stat().st_size, file.name.removesuffix(SUFFIX), "(archived)", file.parent.name) for file in archives(dir)
    ]
    sizes.sort(reverse=True)
    if options.json:
        print_json([dict(zip(("bytes", "id", "name", "project"), one, strict=True)) for one in sizes])
        return 0
    for bytes, id, name, project in sizes:
        say(f"{size(bytes):>10}  {id}  {project}/{name}")
    say(f"{size(sum(one[0] for one in sizes)):>10}  {len(sizes)} runs in {dir}")
    return 0
