"""Show the time and memory of a run's phases: a table, and a timeline of one step.

The table covers all steps, or the step given with --step. The timeline shows that step, or the last committed one.
SHARE is the share of the steps' time. PEAK is device memory, or host memory where there is no device.
"""

from __future__ import annotations

import argparse

from windsock.answers.phases import phases_of, phases_record
from windsock.cli.arguments import add_json, add_run, run_view
from windsock.cli.json_output import print_document
from windsock.terminal.output import say

HELP = "show the time and memory of phases"
EXAMPLE = "windsock phases @last --step 12"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock phases``."""
    add_run(parser)
    parser.add_argument(
        "--step", type=int, metavar="N", help="step to show (default: all steps, and the timeline of the last)"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table and the timeline."""
    view = run_view(options)
    found = phases_of(view, options.step)
    if options.json:
        print_document("phases", phases_record(view, found))
        return 0
    if found.timeline is None:
        say(f"{view.location} has no phases: the log does not tell of any")
        return 0
    from windsock.terminal.output import make_console
    from windsock.terminal.phases import show_phases

    show_phases(make_console(), view.name, found.summaries, found.timeline)
    return 0
