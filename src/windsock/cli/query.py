"""Ask whether something is true of a run. The exit code is 0 if it is, 1 if not, and 2 if that cannot be said.

EXPR compares values, joined by and, or, not and parentheses:
  last(M) first(M) count(M) nonfinite(M)        of all points of metric M
  min(M) max(M) mean(M) median(M) slope(M)      of the finite values; f(M, N) takes the last N points
  at(M, STEP)                                   the value at a step, or the last one before
  status step seconds verdict finding name project tag config.KEY      facts of the run
M is a name of any framework. Names with spaces or parentheses are put in quotes. Values are compared by =, !=,
<, <=, > and >=, texts also by ~ (contains) and !~. A comparison with NaN is false.
"""

from __future__ import annotations

import argparse

from windsock.answers.records import run_record
from windsock.cli.arguments import add_json, add_run, run_view
from windsock.cli.json_output import print_document
from windsock.formatting import number
from windsock.terminal.output import say

HELP = "ask whether something is true of a run"
EXAMPLE = (
    "windsock query @last 'last(val/score) > 0.5 and max(grad_norm) < 10'\n"
    "  windsock query @last 'status = finished and not finding = entropy_collapse'"
)
FALSE, UNANSWERED = 1, 2  # exit codes
ERROR_CODE = UNANSWERED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock query``."""
    add_run(parser)
    parser.add_argument("expression", metavar="EXPR", help="for example 'last(val/score) > 0.5'")
    parser.add_argument("--source", metavar="SOURCE", help="framework that wrote the names, such as trl/rloo")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the answer with the values that it is made of."""
    from windsock.answers.question import question_record
    from windsock.questions import answer

    view = run_view(options, options.source)
    found = answer(view, options.expression)
    if options.json:
        print_document("query", {**run_record(view), **question_record(options.expression, found)})
    else:
        say("true" if found.holds else "false")
        for part in found.parts:
            taken = "".join(f"  ({asked} is {name} here)" for asked, name in part.names.items())
            say(f"  {'✓' if part.holds else '✗'} {part.text}  {_shown(part.left)}{taken}")
    return 0 if found.holds else FALSE


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return number(value) if isinstance(value, float) else "none" if value is None else str(value)
