"""List the names of a run that windsock does not know, as a file to describe them in."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from windsock.cli.arguments import add_json, add_run, run_view
from windsock.cli.json_output import print_json
from windsock.terminal.output import say

if TYPE_CHECKING:
    from windsock.catalogue.resolution import RunNames

HELP = "list the names that windsock does not know, as YAML to fill in"
EXAMPLE = "windsock names @last > windsock-runs/names.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock names``."""
    add_run(parser)
    parser.add_argument("--source", metavar="SOURCE", help="framework that wrote the names, such as trl/rloo")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the names without a meaning, and how many are known."""
    from windsock.catalogue.sources import check_source
    from windsock.catalogue.taught import FILE, config_file, template
    from windsock.summary import beside, names_sentence, run_names

    if options.source:
        check_source(options.source)
    view = run_view(options)
    names = run_names(view, options.source)
    if options.json:
        print_json(_record(names))
        return 0
    say(f"windsock: {names_sentence(names).en}", sys.stderr)
    ambiguous = {name: names.resolve(name).meanings for name in names.ambiguous}
    if names.unknown or ambiguous:
        print(f"# Fill in what you know and save it as {FILE} beside the runs ({beside(view) / FILE})")
        print(f"# or in {config_file()}. windsock explain --all lists the ids of metrics.")
        for line in template(names.unknown, ambiguous):
            print(line)
    return 0


def _record(names: RunNames) -> dict[str, object]:
    from windsock.catalogue.guesses import guess
    from windsock.catalogue.similar import nearest

    matches = {name: names.match(name) for name in names.known}
    return {
        "names": len(names.names),
        "source": names.source,
        "known": {name: match.id for name, match in matches.items() if match is not None},
        "ambiguous": {name: names.resolve(name).meanings for name in names.ambiguous},
        "unknown": {
            name: {"nearest": nearest(name, 3), "guessed": asdict(found) if (found := guess(name)) else None}
            for name in names.unknown
        },
    }
