"""Manage the tokens of a server for a team, which 'windsock up --ingest' serves. They are stored as hashes.

A token grants rights in one project: --write to send runs, --read to see its page, --admin for both. Without --project
it grants them in all. It is printed once. A server that runs uses new tokens, and refuses revoked ones, at once.
"""

from __future__ import annotations

import argparse
import re
import time

from windsock.cli.arguments import directory
from windsock.errors import WindsockError
from windsock.formatting import age, counted, duration
from windsock.journal.folder import folder_name
from windsock.terminal.output import say
from windsock.transfer.tokens import RIGHTS, Token, TokenFile

HELP = "manage the tokens of a server for a team"
EXAMPLE = "windsock token new --project math --write --ends 30d\n  windsock token ls\n  windsock token revoke k7m2x9pq"
UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock token``."""
    parser.add_argument("action", choices=("new", "ls", "revoke"), help="add a token, list all, or revoke one")
    parser.add_argument("id", metavar="ID", nargs="?", help="id of the token to revoke")
    parser.add_argument("--project", help="project that a new token is for (default: all projects)")
    parser.add_argument("--read", action="store_true", help="may see the page, and fetch runs with 'windsock pull'")
    parser.add_argument("--write", action="store_true", help="may send runs, and annotate them where it may read")
    parser.add_argument("--admin", action="store_true", help="may read and write")
    parser.add_argument("--ends", metavar="TIME", type=_seconds, help="how long a new token is valid: 12h, 30d, 8w")


def run(options: argparse.Namespace) -> int:
    """Add, list or revoke tokens."""
    dir = directory(options)
    if not dir.is_dir():
        raise WindsockError(f"{dir} does not exist: give the directory that the server serves with --dir")
    if (options.id is not None) != (options.action == "revoke"):
        raise WindsockError("give the id of a token with 'revoke', and only there: 'windsock token ls' lists the ids")
    actions = {"new": _new, "ls": _list, "revoke": _revoke}
    actions[options.action](TokenFile(dir), options)
    return 0


def _new(file: TokenFile, options: argparse.Namespace) -> None:
    rights = [right for right in RIGHTS if getattr(options, right)]
    if not rights:
        raise WindsockError("a token needs a right: give --read, --write or --admin")
    project = folder_name(options.project) if options.project else None
    token = file.new(rights, project, time.time() + options.ends if options.ends else None)
    print(token)


def _list(file: TokenFile, options: argparse.Namespace) -> None:
    tokens, now = file.tokens(), time.time()
    for token in tokens:
        project = token.project if token.project is not None else "(all projects)"
        say(f"{token.id}  {project}  {', '.join(token.rights)}  made {age(now - token.created)}  {_end(token, now)}")
    say(f"{counted(len(tokens), 'token')} in {file.path}")


def _revoke(file: TokenFile, options: argparse.Namespace) -> None:
    token = file.revoke(options.id)
    say(f"revoked {token.id}; servers refuse it from now on")


def _end(token: Token, now: float) -> str:
    state = token.state(now)
    if state == "valid" and token.ends is not None:
        return f"ends in {duration(token.ends - now)}"
    return state


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,6})([mhdw])", text)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"expected a number of m, h, d or w such as 30d; got {text!r}")
    return int(found[1]) * UNITS[found[2]]
