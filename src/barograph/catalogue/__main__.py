"""Commands for people who edit the catalogue: ``python -m barograph.catalogue check``, ``… build``, ``… coverage``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from barograph.catalogue import registry
from barograph.catalogue.build import declarations
from barograph.catalogue.build.declarations import DATA, inspect


def main(arguments: list[str] | None = None) -> int:
    """Check the text files, build the compiled file and the documentation pages, or measure the known names of logs."""
    parser = argparse.ArgumentParser(prog="python -m barograph.catalogue", description=__doc__)
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
    Path(registry.COMPILED_FILE).write_text(declarations.encode(declared), encoding="utf-8")
    registry.load_compiled.cache_clear()
    from barograph.catalogue.build.reference_pages import write  # reads the file that was just written

    for path in (registry.COMPILED_FILE, *write(options.docs)):
        print(path)
    return 0


def _coverage(folder: Path) -> int:
    from barograph.catalogue.build import reference_pages

    found = reference_pages.measure_coverage(folder)
    for one in found:
        print(f"{one.framework}: {one.known} of {one.names} names of {one.runs} runs", *one.missing)
    if not found:
        print(f"no RUN/series.csv in {folder}", file=sys.stderr)
        return 1
    print(reference_pages.write_coverage(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
