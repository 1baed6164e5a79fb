"""Look at the samples of a run: prompts and completions with their rewards, filtered, searched and sorted.

All conditions must hold. The first search makes an index in the run's folder, which later ones use.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from windsock.cli.arguments import add_json, add_run, run_folder
from windsock.model import Sample
from windsock.samples.query import SORTS, Query, compiled
from windsock.server.responses import to_strict_json
from windsock.view import View

HELP = "look at samples: filter, search, sort"
EXAMPLE = "windsock samples @last --step 10:20 --min-reward 0.5 --grep 'therefore' --sort -reward"
SHOWN = 20
PATIENCE_SECONDS = 1.0
ORDERS = tuple(sign + name for name in SORTS for sign in ("", "-"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``samples`` takes."""
    add_run(parser)
    parser.add_argument("--step", type=_steps, metavar="STEP", help="one step, or 10:20 with both included, 10:, :20")
    parser.add_argument("--min-reward", type=float, metavar="X", help="only with at least this reward")
    parser.add_argument("--max-reward", type=float, metavar="X", help="only with at most this reward")
    parser.add_argument("--grep", metavar="TEXT", help="only with this text in them, regardless of case")
    parser.add_argument("--regex", type=_regex, metavar="RE", help="only where this regular expression is found")
    parser.add_argument("--task", help="only of this task")
    parser.add_argument("--group", help="only of this group, the highest reward first")
    parser.add_argument("--finish-reason", metavar="R", help="only those that ended so: stop, length, …")
    parser.add_argument(
        "--sort", nargs="?", choices=ORDERS, metavar="KEY", help=f"by {', '.join(SORTS)}; -KEY: largest first"
    )
    for order in ORDERS[1::2]:  # argparse takes "-reward" for an option: let it be one
        parser.add_argument(order, dest="sort", action="store_const", const=order, help=argparse.SUPPRESS)
    parser.add_argument("-n", type=int, metavar="COUNT", help=f"show so many, 0 for all (default {SHOWN}; JSON: all)")
    parser.add_argument("--full", action="store_true", help="cut no text short")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Look."""
    view = View(run_folder(options))
    if sys.stderr.isatty():
        view.sample_index.on_progress = Patience().tell
    shown = options.n if options.n is not None else 0 if options.json else SHOWN
    found = view.find_samples(_query(options), shown if shown > 0 else None)
    if options.json:
        for sample in found.samples:
            print(json.dumps(_record(sample), allow_nan=False))
        return 0
    from rich.console import Console

    from windsock.terminal.samples import Sought, show_samples

    sought = Sought(options.grep, options.regex, options.full)
    show_samples(Console(highlight=False), view.info.name, found, sought)
    return 0


class Patience:
    """Says on the terminal how far the index is, where making it takes long."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._told = False

    def tell(self, done: int, total: int) -> None:
        """Say it, now and then; nothing is left of it in the end."""
        if done == total and self._told:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        elif done % 16 == 0 and time.monotonic() - self._began > PATIENCE_SECONDS:
            self._told = True
            print(f"\rmaking the index of samples: {done * 100 // total} %", end="", file=sys.stderr, flush=True)


def _query(options: argparse.Namespace) -> Query:
    default = "-reward" if options.group is not None else "-step"
    names = [name for name in Query.__dataclass_fields__ if hasattr(options, name) and name not in ("run", "sort")]
    return Query(**{name: getattr(options, name) for name in names}, sort=options.sort or default)


def _steps(text: str) -> int | tuple[int | None, int | None]:
    first, colon, last = text.partition(":")
    try:
        return (int(first) if first else None, int(last) if last else None) if colon else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a step or FIRST:LAST, got {text!r}") from None


def _regex(text: str) -> str:
    try:
        return compiled(text).pattern
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _record(sample: Sample) -> dict[str, Any]:
    """Return what a sample has, as strict JSON can carry it."""
    values = {name: getattr(sample, name) for name in ("step", *Sample.__dataclass_fields__)}
    return {name: to_strict_json(value) for name, value in values.items() if value not in (None, "", (), {})}
