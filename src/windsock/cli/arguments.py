"""Arguments that several commands have."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from windsock.journal.folder import default_dir, find_run
from windsock.opening import open_run
from windsock.view import View


def add_run(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """Add the argument RUN."""
    if several:
        parser.add_argument("runs", metavar="RUN", nargs="+", help="id, unique prefix, name, path or @last")
    else:
        parser.add_argument("run_reference", metavar="RUN", help="id, unique prefix, name, path or @last")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Add --metrics."""
    help = "only metrics that match, for example 'actor/*' (repeatable)"
    parser.add_argument("--metrics", action="append", metavar="PATTERN", help=help)


def directory(options: argparse.Namespace) -> Path:
    """Return the directory of the runs."""
    return Path(options.dir) if options.dir else default_dir()


def run_folder(options: argparse.Namespace) -> Path:
    """Return the folder of RUN."""
    return find_run(options.run_reference, directory(options))


def run_view(options: argparse.Namespace, source: str | None = None) -> View:
    """Open RUN, which may also be the path of a log of another program."""
    return open_run(options.run_reference, directory(options), source=source)


def print_json(value: Any) -> None:
    """Print strict JSON: NaN and infinities, of a config say, are strings."""
    try:
        text = json.dumps(value, indent=1, allow_nan=False, default=str)
    except (ValueError, RecursionError):  # not finite, or nested too deeply
        from windsock.server.responses import to_strict_json

        text = json.dumps(to_strict_json(value), indent=1, allow_nan=False)
    print(text)
