"""Port and token of the commands that serve."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from windsock.errors import WindsockError
from windsock.transfer.tokens import is_issued

TOKEN_VARIABLE = "WINDSOCK_TOKEN"


def add_token(parser: argparse.ArgumentParser) -> None:
    """Add --token and --token-file."""
    tokens = parser.add_mutually_exclusive_group()
    tokens.add_argument(
        "--token",
        metavar="T",
        help="token that requests need (default: WINDSOCK_TOKEN, unless 'windsock token' made it; else created for "
        "other hosts)",
    )
    tokens.add_argument(
        "--token-file", metavar="FILE", help="file with the token; unlike --token it is not in the list of processes"
    )


def checked_port(options: argparse.Namespace) -> int:
    """Return the given port; raise WindsockError for a number that is none."""
    if not 0 <= options.port < 1 << 16:
        raise WindsockError(f"--port must be from 0 to 65535; got {options.port}")
    return int(options.port)


def given_token(options: argparse.Namespace) -> str | None:
    """Return the given token: of an argument, else of the environment."""
    if options.token is not None:
        return _checked(options.token, "--token")
    if options.token_file is not None:
        try:
            return _checked(Path(options.token_file).read_text(encoding="utf-8"), options.token_file)
        except (OSError, UnicodeDecodeError) as problem:
            raise WindsockError(f"cannot read the token from {options.token_file}: {problem}") from None
    given = os.environ.get(TOKEN_VARIABLE)
    # A token of 'windsock token new' is for sending runs to another server.
    return None if given is None or is_issued(given) else _checked(given, TOKEN_VARIABLE)


def _checked(token: str, source: str) -> str:
    if not token.strip():
        raise WindsockError(f"the token in {source} is empty: give one, or leave it out to have one created")
    return token.strip()
