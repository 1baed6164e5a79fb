"""Serve the runs of a directory as tools for programs, over the Model Context Protocol (MCP).

A client starts it and speaks to it over standard input and output; with --http it listens at an address instead. The
tools list and find runs, sum one up, give series, samples, phases and comparisons, explain metrics, and wait for a run.
They only read; --write adds notes, tags and the request to stop a training. With --host other than this machine,
requests need a token: one is created where none is given; those of 'windsock token new' are for their projects. Needs
'windsock[mcp]'.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from windsock.cli.arguments import add_language, directory
from windsock.cli.tokens import add_token, checked_port, given_token
from windsock.terminal.output import say

HELP = "serve runs as tools for programs (MCP)"
EXAMPLE = "windsock mcp runs/\n  windsock mcp runs/ --http --port 8791 --write"
PORT = 8791
HINT = "a program speaks to this command: docs/for-agents.md says how a client is set up (stop with Ctrl-C)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock mcp``."""
    parser.add_argument(
        "served", metavar="DIR", nargs="?", help="directory or log to serve (default: the directory of the runs)"
    )
    parser.add_argument("--write", action="store_true", help="allow notes, tags and the request to stop a training")
    parser.add_argument("--http", action="store_true", help="listen at an address (streamable HTTP)")
    parser.add_argument("--port", type=int, default=PORT, help=f"port of --http (default {PORT}; 0 for any free port)")
    parser.add_argument("--host", default="127.0.0.1", help="address of --http (default: this machine only)")
    add_token(parser)
    parser.add_argument("--tls-cert", metavar="FILE", type=Path, help="certificate, to serve over HTTPS")
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="key of the certificate")
    add_language(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until the input ends, or until interrupted."""
    from windsock.mcp_server.serving import check_installed, serve_http, serve_stdio

    check_installed()
    path = Path(options.served) if options.served else directory(options)
    if not options.http:
        if sys.stdin.isatty():
            say(HINT, sys.stderr)
        serve_stdio(path, options.lang, options.write)
        return 0

    def ready(address: str, token: str | None) -> None:
        say(f"serving {path} at {address}  (stop with Ctrl-C)")
        if token is not None:
            say(f"header of requests: Authorization: Bearer {token}")
        sys.stdout.flush()

    from windsock.server.http.serving import TeamOptions

    team = TeamOptions(certificate=options.tls_cert, key=options.tls_key)
    port, token = checked_port(options), given_token(options)
    try:
        serve_http(path, options.lang, options.write, options.host, port, token, ready, team)
    except KeyboardInterrupt:
        print("\nstopped")
    return 0
