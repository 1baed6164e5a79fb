"""The `barograph` command.

The command NAME is `run_NAME` in the module that the table `COMMANDS` names, so that only that module is imported.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from barograph.apps.cli.arguments import Command
from barograph.apps.terminal.output import any_encoding, print_problem
from barograph.base import __version__
from barograph.base.errors import BarographError

COMMANDS = {
    "demo": "demo",
    "up": "serving",
    "ls": "runs",
    "show": "run",
    "doctor": "doctor",
    "phases": "run",
    "samples": "samples",
    "query": "run",
    "compare": "runs",
    "tail": "run",
    "export": "export",
    "report": "export",
    "explain": "names",
    "names": "names",
    "import": "storage",
    "sync": "delivery",
    "push": "delivery",
    "pull": "delivery",
    "token": "serving",
    "tensorboard": "delivery",
    "mcp": "serving",
    "rm": "storage",
    "archive": "storage",
    "du": "storage",
}
"""The commands in the order of the help, each with the module that has it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    with any_encoding():
        given = list(sys.argv[1:] if arguments is None else arguments)
        # Only the module of the command is imported: with all of them, the shortest takes twice as long.
        parser = build_parser([name for name in given[:1] if name in COMMANDS] or COMMANDS, "--json" in given)
        return _run(parser.parse_args(given))


def _run(options: argparse.Namespace) -> int:
    is_json = getattr(options, "json", False)
    try:
        code = int(options.run(options))
        sys.stdout.flush()  # raises BrokenPipeError here instead of at exit
    except BarographError as problem:
        print_problem(problem, is_json)
        return int(options.error_code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader closed the pipe, as head does
        # The interpreter flushes stdout at exit: let that go to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as problem:  # a full disk, a file without permission
        where = f"{problem.filename}: " if problem.filename is not None else ""
        print_problem(f"{where}{problem.strerror or problem}", is_json)
        return int(options.error_code)
    return code


class JsonParser(argparse.ArgumentParser):
    """A parser that prints wrong arguments as JSON."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        print_problem(message, is_json=True)
        self.exit(2)


def build_parser(commands: Iterable[str] = COMMANDS, is_json: bool = False) -> argparse.ArgumentParser:
    """Return the argument parser of some commands; ``is_json`` says that errors are printed so."""
    parser = (JsonParser if is_json else argparse.ArgumentParser)(
        prog="barograph",
        description="Show, serve, export and manage recorded runs. RUN is an id, a unique prefix of an id, a name, "
        "a path or @last (the newest run).",
        epilog="Use barograph COMMAND --help for the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"barograph {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in commands:
        module = importlib.import_module(f"barograph.apps.cli.{COMMANDS[name]}")
        _add(subparsers, name, getattr(module, f"run_{name}"))
    return parser


def _add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser], name: str, command: Command) -> None:
    parser = subparsers.add_parser(
        name,
        help=command.help,
        description=inspect.getdoc(command.run),
        epilog=f"{'examples' if chr(10) in command.example else 'example'}:\n  {command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    parser.add_argument("--dir", help="directory of the runs (default: $BAROGRAPH_DIR or ./barograph-runs)")
    parser.set_defaults(run=command.run, error_code=command.error_code)
