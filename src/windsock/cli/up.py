"""Serve the web page of a directory of runs. It updates live and needs no account and no network.

PATH may also be a log of another program, or contain such logs. With --host other than this machine, requests need a
token; one is created where none is given. Give one with --token-file FILE or in WINDSOCK_TOKEN: other users of this
machine can see the arguments of --token in the list of processes.

With --ingest other machines send their runs here; they and the team use the tokens of 'windsock token new'. The token
of this command grants everything.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import webbrowser
from contextlib import suppress
from pathlib import Path

from windsock.cli.arguments import directory
from windsock.cli.tokens import add_token, checked_port, given_token
from windsock.errors import WindsockError
from windsock.importers.logs import logs_at
from windsock.journal.folder import is_run
from windsock.terminal.output import say

HELP = "serve the web page"
EXAMPLE = (
    "windsock up runs/ --port 8790 --open\n"
    "  windsock up runs/ --ingest --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --token-file token"
)
PORT = 8790


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock up``."""
    parser.add_argument(
        "served", metavar="PATH", nargs="?", help="directory or log to serve (default: the directory of the runs)"
    )
    parser.add_argument(
        "--port", type=int, default=PORT, help=f"port to listen on (default {PORT}; 0 for any free port)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    add_token(parser)
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--frame", action="store_true", help="let notebooks (of this machine, VS Code, Colab) show the page in a frame"
    )
    team = parser.add_argument_group("a server for a team (docs/machines.md)")
    team.add_argument("--ingest", action="store_true", help="take runs that other machines send; needs tokens")
    team.add_argument("--tls-cert", metavar="FILE", type=Path, help="certificate, to serve over HTTPS")
    team.add_argument("--tls-key", metavar="FILE", type=Path, help="key of the certificate")
    team.add_argument(
        "--behind-proxy",
        metavar="URL",
        help="address at which a proxy serves this, such as https://host/windsock/; every request needs a token then",
    )
    parser.add_argument(
        "--until-eof", action="store_true", help="stop when standard input ends, as with the process that wrote to it"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from windsock.server.http.serving import TeamOptions, serve

    dir = Path(options.served) if options.served else directory(options)
    if not dir.exists():
        raise WindsockError(f"{dir} does not exist: give the directory of your runs or a log, or set WINDSOCK_DIR")
    if not dir.is_dir():
        logs_at(dir)  # raises LogError if it is none
    port = checked_port(options)
    if options.ingest and (not dir.is_dir() or is_run(dir)):
        raise WindsockError(f"--ingest needs a directory of runs, which {dir} is not")
    team = TeamOptions(options.ingest, options.tls_cert, options.tls_key, options.behind_proxy)
    token = given_token(options)

    def ready(address: str) -> None:
        say(f"serving {dir} at {address}  (stop with Ctrl-C)")
        sys.stdout.flush()
        if options.open:
            webbrowser.open(address)

    if options.until_eof:
        threading.Thread(target=_interrupt_at_eof, daemon=True).start()
    try:
        serve(dir, options.host, port, token, ready, options.frame, team)
    except KeyboardInterrupt:
        print("\nstopped")
    return 0


def _interrupt_at_eof() -> None:
    """Interrupt this process, as Ctrl-C does, when standard input ends."""
    with suppress(OSError, ValueError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    os.kill(os.getpid(), signal.SIGINT)
