"""Commands for people who edit the catalogue: ``python -m windsock.catalogue check``, ``… build``, ``… coverage``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from windsock.catalogue import compiled
from windsock.catalogue.declarations import DATA, inspect


def main(arguments: list[str] | None = None) -> int:
    """Check the text files, build the compiled file and the documentation pages, or measure the known names of logs."""
    parser = argparse.ArgumentParser(prog="python -m windsock.catalogue", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in (("check", "report mistakes in the text files"), ("build", "write compiled.json and the docs")):
        command = commands.add_parser(name, help=about, description=about)
        command.add_argument("--data", type=Path, default=DATA, help="folder of the text files")
    command.add_argument("--docs", type=Path, default=Path("docs"), help="folder of the pages (default: docs)")
    about = "measure on a folder of RUN/series.csv files which names are known"
    commands.add_parser("coverage", help=about, description=about).add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "coverage":
        return _coverage(options.folder)
    declared = inspect(options.data)
    for problem in declared.problems:
        print(problem, file=sys.stderr)
    if declared.problems:
        return 1
    if options.command == "check":
        print(f"{len(declared.metrics)} metrics, no mistakes")
        return 0
    Path(compiled.FILE).write_text(compiled.encode(declared), encoding="utf-8")
    compiled.load.cache_clear()
    from windsock.catalogue.reference_pages import write  # reads the file that was just written

    for path in (compiled.FILE, *write(options.docs)):
        print(path)
    return 0


def _coverage(folder: Path) -> int:
    from windsock.catalogue import coverage

    found = coverage.measure(folder)
    for one in found:
        print(f"{one.framework}: {one.known} of {one.names} names of {one.runs} runs", *one.missing)
    if not found:
        print(f"no RUN/series.csv in {folder}", file=sys.stderr)
        return 1
    print(coverage.write(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
