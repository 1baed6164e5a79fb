"""The command samples: prompts and completions of a run, filtered, searched and sorted, and sums of their tokens."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import Any

from barograph.answers.export import sample_record
from barograph.answers.records import versioned
from barograph.answers.responses import to_strict_json
from barograph.apps.cli.arguments import JSON, RUN, command, run_view
from barograph.apps.terminal.output import Progress, make_console
from barograph.base.errors import BarographError
from barograph.journal.samples.query import SORTS, FoundSamples, Query, compiled, parse_conditions

DEFAULT_COUNT = 20

HAS_TOKENS = "tokens > 0"

DESCENDING = tuple(f"-{name}" for name in SORTS)


def add_samples_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``barograph samples``."""
    RUN(parser)
    parser.add_argument(
        "--step", type=_steps, metavar="STEP", help="a step, or a range that includes both ends: 10:20, 10:, :20"
    )
    parser.add_argument("--min-reward", type=float, metavar="X", help="minimum reward")
    parser.add_argument("--max-reward", type=float, metavar="X", help="maximum reward")
    parser.add_argument("--grep", metavar="TEXT", help="only samples that contain this text, ignoring case")
    parser.add_argument("--regex", type=_regex, metavar="RE", help="only samples that match this regular expression")
    parser.add_argument("--task", help="only samples of this task")
    parser.add_argument("--group", help="only samples of this group, highest reward first")
    parser.add_argument("--finish-reason", metavar="R", help="only samples with this finish reason: stop, length, …")
    parser.add_argument(
        "--where", action="append", type=_where, metavar="COND", help="'reward.format < 0.5 and correct = false'"
    )
    parser.add_argument(
        "--sort",
        nargs="?",
        metavar="KEY",
        help=f"sort by {', '.join(SORTS)} or another column; --sort=-KEY sorts in descending order",
    )
    for order in DESCENDING:  # argparse parses "-reward" as an option, so make it one
        parser.add_argument(order, dest="sort", action="store_const", const=order, help=argparse.SUPPRESS)
    parser.add_argument(
        "-n", type=int, metavar="COUNT", help=f"how many to show, 0 for all (default {DEFAULT_COUNT}, all with --json)"
    )
    parser.add_argument("--full", action="store_true", help="do not shorten texts")
    parser.add_argument("--tokens", action="store_true", help="show the samples that have tokens, coloured by a value")
    parser.add_argument(
        "--value",
        metavar="NAME",
        help="the value that colours them: push, gradient, kl, … (default: the first that differs)",
    )
    parser.add_argument("--token-sums", action="store_true", help="which tokens carry most of --value over the samples")
    JSON(parser)


@command(
    "show samples: filter, search, sort",
    "barograph samples @last --step 10:20 --min-reward 0.5 --grep 'therefore' --sort -reward",
    add_samples_arguments,
)
def run_samples(options: argparse.Namespace) -> int:
    """Show the samples of a run: prompts and completions with their rewards, filtered, searched and sorted.

    All filters must match. --where takes conditions on any column: NAME = VALUE, !=, <, <=, >, >=, ~ (contains),
    joined by and, or, not and parentheses. reward.X is a component of the reward, and "= none" is for samples
    without a value. The first search builds an index in the run's folder, which later searches use.
    """
    view = run_view(options)
    view.sample_index.on_progress = Progress("indexing samples").show  # the first search of a large run takes seconds
    shown = options.n if options.n is not None else 0 if options.json else DEFAULT_COUNT
    count = shown if shown > 0 else None
    if options.token_sums:
        _print_token_sums(view.find_samples(_query(options)), options, count)
        return 0
    found = view.find_samples(_query(options), count)
    if options.json:
        _print_records("samples", map(sample_record, found.samples))
        return 0
    from barograph.apps.terminal.samples import Highlight, TokenChoice, show_samples

    highlight = Highlight(options.grep, options.regex, options.full)
    shown_tokens = TokenChoice(options.value) if options.tokens or options.value else None
    show_samples(make_console(highlight=False), view.info.name, found, highlight, shown_tokens)
    return 0


def _print_records(kind: str, records: Iterable[dict[str, Any]]) -> None:
    for record in records:
        print(json.dumps(to_strict_json(versioned(kind, record)), allow_nan=False))


def _print_token_sums(found: FoundSamples, options: argparse.Namespace, count: int | None) -> None:
    from barograph.apps.terminal.samples import TokenChoice, print_token_sums
    from barograph.journal.samples.token_sums import all_values, token_sums

    choice = TokenChoice(options.value)
    names = (choice.name(all_values(sample.token_values)) for sample in found.samples)
    name = next((name for name in names if name is not None), None)
    if name is None:
        known = sorted({name for sample in found.samples for name in all_values(sample.token_values)})
        wanted = "values" if options.value is None else f"value {options.value!r}"
        raise BarographError(f"no {wanted} of tokens; there are {', '.join(known) or 'none'}")
    sums = token_sums(zip(found.samples, found.places, strict=True), name)
    if options.json:
        _print_records("token_sums", ({"value": name, **entry.record()} for entry in sums[:count]))
    else:
        print_token_sums(make_console(highlight=False), name, sums, count)


def _query(options: argparse.Namespace) -> Query:
    default = "-reward" if options.group is not None else "-step"
    names = [
        name for name in Query.__dataclass_fields__ if hasattr(options, name) and name not in ("run", "sort", "where")
    ]
    conditions = list(options.where or ())
    if options.tokens or options.token_sums or options.value:
        conditions.append(HAS_TOKENS)
    where = " and ".join(f"({text})" for text in conditions)
    return Query(**{name: getattr(options, name) for name in names}, where=where, sort=options.sort or default)


def _steps(text: str) -> int | tuple[int | None, int | None]:
    first, colon, last = text.partition(":")
    try:
        return (int(first) if first else None, int(last) if last else None) if colon else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected STEP or FIRST:LAST; got {text!r}") from None


def _regex(text: str) -> str:
    try:
        return compiled(text).pattern
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _where(text: str) -> str:
    try:
        parse_conditions(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    return text
