"""Serve the page of a directory of runs: live, on this machine, with no account and no network.

DIR may also hold TensorBoard event files. Another host than this one needs a token, which is made where none is given.
"""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from windsock.cli.arguments import directory
from windsock.errors import WindsockError

HELP = "serve the page"
EXAMPLE = "windsock up runs/ --port 8790 --open"
PORT = 8790


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``up`` takes."""
    parser.add_argument(
        "served", metavar="DIR", nargs="?", help="the directory to serve (default: where runs are kept)"
    )
    parser.add_argument("--port", type=int, default=PORT, help=f"port (default {PORT}; 0 takes a free one)")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind to (default: this machine alone)")
    parser.add_argument("--token", metavar="T", help="what requests must show (made for you beyond this machine)")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from windsock.server.http.serving import serve

    dir = Path(options.served) if options.served else directory(options)
    if not dir.is_dir():
        raise WindsockError(f"{dir} is no directory: give the one that holds your runs, or set WINDSOCK_DIR")
    if not 0 <= options.port < 1 << 16:
        raise WindsockError(f"--port {options.port}: expected a number from 0 to 65535")

    def ready(address: str) -> None:
        print(f"windsock serves {dir} at {address}  (Ctrl-C ends it)", flush=True)
        if options.open:
            webbrowser.open(address)

    try:
        serve(dir, options.host, options.port, options.token, ready)
    except KeyboardInterrupt:
        print("\nended")
    return 0
