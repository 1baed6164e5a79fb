"""The ``windsock`` command. Each subcommand is a module with ``HELP``, ``EXAMPLE``, ``add_arguments`` and ``run``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from windsock import __version__
from windsock.cli.json_output import print_problem
from windsock.errors import WindsockError
from windsock.terminal.output import any_encoding

COMMANDS = (
    "demo", "up", "ls", "show", "doctor", "phases", "samples", "query", "compare", "tail", "export", "report",
    "explain", "names", "import", "sync", "push", "pull", "token", "tensorboard", "mcp", "rm", "archive", "du",
)  # fmt: skip
MODULES = {"import": "import_log"}  # of commands that cannot have their own names


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
    except WindsockError as problem:
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


def build_parser(commands: Sequence[str] = COMMANDS, is_json: bool = False) -> argparse.ArgumentParser:
    """Return the argument parser of some commands; ``is_json`` says that errors are printed so."""
    parser = (JsonParser if is_json else argparse.ArgumentParser)(
        prog="windsock",
        description="Show, serve, export and manage recorded runs. RUN is an id, a unique prefix of an id, a name, "
        "a path or @last (the newest run).",
        epilog="Use windsock COMMAND --help for the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"windsock {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in commands:
        _add(subparsers, name, importlib.import_module(f"windsock.cli.{MODULES.get(name, name)}"))
    return parser


def _add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser], name: str, command: ModuleType) -> None:
    parser = subparsers.add_parser(
        name,
        help=command.HELP,
        description=command.__doc__,
        epilog=f"{'examples' if chr(10) in command.EXAMPLE else 'example'}:\n  {command.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    parser.add_argument("--dir", help="directory of the runs (default: $WINDSOCK_DIR or ./windsock-runs)")
    parser.set_defaults(run=command.run, error_code=getattr(command, "ERROR_CODE", 1))
