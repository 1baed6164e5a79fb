"""Compare runs: settings that differ, metrics, findings and the times of phases.

Runs that differ only in the seed are one group, and groups are compared with the first one, with 95 % intervals over
seeds. A difference needs three seeds in each group to be called better or worse. Metrics are joined by their meaning,
whatever framework wrote their names. A directory stands for all runs in it.
"""

from __future__ import annotations

import argparse

from windsock.cli.arguments import add_json, add_language, add_metrics, directory, run_references
from windsock.cli.json_output import print_document
from windsock.errors import WindsockError

HELP = "compare runs and groups of seeds"
EXAMPLE = "windsock compare k7m2p9qx b3x8w1zc\n  windsock compare runs/sweep --metrics 'val/*' --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock compare``."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="id, name, path of a run or log, directory, or @last")
    add_metrics(parser)
    parser.add_argument("--all", action="store_true", help="compare all metrics, not only the vital ones")
    add_language(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the comparison."""
    from windsock.opening import open_run
    from windsock.server.views.compared_groups import compare_views

    views = [open_run(path, directory(options)) for text in options.runs for path in run_references(text)]
    if len(views) < 2:
        raise WindsockError("expected at least two runs to compare; got one")
    compared = compare_views(views, options.metrics or (), options.all)
    if options.json:
        print_document("compare", compared)
        return 0
    from windsock.terminal.compared import print_comparison
    from windsock.terminal.output import make_console

    print_comparison(make_console(), compared, options.lang)
    return 0
