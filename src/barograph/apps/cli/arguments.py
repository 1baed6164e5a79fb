"""Arguments that several commands have, and the runs that they name: journals, and logs of other programs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph.apps.terminal.output import Progress
from barograph.base.errors import BarographError, RunNotFoundError
from barograph.importers.logs import logs_at
from barograph.importers.reading.log import Log
from barograph.journal.directory import glances
from barograph.journal.format.folder import default_dir, find_run, is_run, run_folders
from barograph.journal.read.status import Glance

if TYPE_CHECKING:
    from barograph.journal.view import View


Argument = Callable[[argparse.ArgumentParser], object]
"""Something that adds one argument, or a few, to the parser of a command."""


def argument(*names: str, **options: Any) -> Argument:
    """Return what adds an argument, given as to ``add_argument``."""
    return lambda parser: parser.add_argument(*names, **options)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the command line. The docstring of ``run`` is its description; ``run`` returns the exit code."""

    help: str
    example: str
    arguments: tuple[Argument, ...]
    run: Callable[[argparse.Namespace], int]
    error_code: int = 1

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        for add in self.arguments:
            add(parser)


def command(
    help: str, example: str, *arguments: Argument, error_code: int = 1
) -> Callable[[Callable[[argparse.Namespace], int]], Command]:
    """Make a command of the function below it."""
    return lambda run: Command(help, example, arguments, run, error_code)


RUN_HELP = "id, unique prefix, name, path or @last"

RUN = argument("run_reference", metavar="RUN", help=RUN_HELP)

RUNS = argument("runs", metavar="RUN", nargs="+", help=RUN_HELP)

RUNS_OR_DIRECTORIES = argument(
    "runs", metavar="RUN", nargs="+", help="id, name, path of a run or log, directory, or @last"
)

JSON = argument("--json", action="store_true", help="print JSON, whose schema is in docs/schema; errors too")

METRICS = argument(
    "--metrics", action="append", metavar="PATTERN", help="only metrics that match, for example 'actor/*' (repeatable)"
)


def add_language(parser: argparse.ArgumentParser) -> None:
    """Add --lang."""
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "")
    language = "zh" if locale.startswith("zh") else "en"
    parser.add_argument("--lang", choices=("en", "zh"), default=language, help="language (default: the terminal's)")


def output_file(text: str) -> str:
    """Return the name of a file that can be written: others are refused before any work is done for them."""
    if problem := output_problem(text):
        raise argparse.ArgumentTypeError(problem)
    return text


def output_problem(text: str) -> str:
    """Return why a file cannot be written; nothing if it can."""
    path = Path(text)
    if path.is_dir():
        return f"{text} is a directory: give the name of a file in it"
    return "" if path.parent.is_dir() else f"the directory {path.parent} does not exist"


def at_least_one(text: str) -> int:
    """Return a positive integer of the command line."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1; got {text!r}")
    return number


def directory(options: argparse.Namespace) -> Path:
    """Return the directory of the runs."""
    return Path(options.dir) if options.dir else default_dir()


def recorded_run(reference: str, dir: Path) -> Path:
    """Return the folder of a run; raise BarographError for a log of another program, which barograph only reads."""
    try:
        return find_run(reference, dir)
    except RunNotFoundError:
        from barograph.importers.opening import find_run_or_log

        found = None if reference == "@last" else find_run_or_log(reference, dir)
        if not isinstance(found, Log):  # a directory that contains a run is not the run
            raise
    raise BarographError(
        f"{found.place} is a log that barograph did not record, and only reads: "
        f"'barograph import {found.place}' keeps a copy as a run"
    )


def run_references(text: str) -> list[str]:
    """Return the runs below a directory, or the reference itself."""
    path = Path(text)
    if not path.is_dir() or is_run(path):
        return [text]
    return [str(folder) for folder in sorted(run_folders(path))] or [text]


def run_view(options: argparse.Namespace, source: str | None = None) -> View:
    """Open RUN, which may also be the path of a log of another program."""
    from barograph.importers.opening import open_run  # imports NumPy, which lists of runs can do without

    return open_run(options.run_reference, directory(options), source=source)


def runs_at(path: Path) -> list[Glance]:
    """Return the facts about the runs at a path."""
    journals = list(glances(path)) if path.is_dir() else []
    logs = logs_at(path, [run.path for run in journals]) if path.exists() else []
    if not logs:
        return journals
    from barograph.importers.imported import log_glances  # imports NumPy, which an index of journals can do without

    dir = path if path.is_dir() else path.parent
    return [*journals, *log_glances(dir, logs, Progress("reading logs").show)]
