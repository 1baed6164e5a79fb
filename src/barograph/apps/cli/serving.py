"""Commands that serve runs: up the page for people, mcp the tools for programs; and token, which manages who may use a
server.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
import time
import webbrowser
from contextlib import suppress
from pathlib import Path

from barograph.apps.cli.arguments import add_language, argument, command, directory
from barograph.apps.terminal.output import say
from barograph.base.errors import BarographError
from barograph.base.formatting import age, counted, duration
from barograph.delivery.transfer.tokens import RIGHTS, Token, TokenFile, is_issued
from barograph.importers.logs import logs_at
from barograph.journal.format.folder import folder_name, is_run

TOKEN_VARIABLE = "BAROGRAPH_TOKEN"


def add_token(parser: argparse.ArgumentParser) -> None:
    """Add --token and --token-file."""
    tokens = parser.add_mutually_exclusive_group()
    tokens.add_argument(
        "--token",
        metavar="T",
        help="token that requests need (default: BAROGRAPH_TOKEN, unless 'barograph token' made it; else created for "
        "other hosts)",
    )
    tokens.add_argument(
        "--token-file", metavar="FILE", help="file with the token; unlike --token it is not in the list of processes"
    )


def checked_port(options: argparse.Namespace) -> int:
    """Return the given port; raise BarographError for a number that is none."""
    if not 0 <= options.port < 1 << 16:
        raise BarographError(f"--port must be from 0 to 65535; got {options.port}")
    return int(options.port)


def given_token(options: argparse.Namespace) -> str | None:
    """Return the given token: of an argument, else of the environment."""
    if options.token is not None:
        return _checked(options.token, "--token")
    if options.token_file is not None:
        try:
            return _checked(Path(options.token_file).read_text(encoding="utf-8"), options.token_file)
        except (OSError, UnicodeDecodeError) as problem:
            raise BarographError(f"cannot read the token from {options.token_file}: {problem}") from None
    given = os.environ.get(TOKEN_VARIABLE)
    # A token of 'barograph token new' is for sending runs to another server.
    return None if given is None or is_issued(given) else _checked(given, TOKEN_VARIABLE)


def _checked(token: str, source: str) -> str:
    if not token.strip():
        raise BarographError(f"the token in {source} is empty: give one, or leave it out to have one created")
    return token.strip()


UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,6})([mhdw])", text)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"expected a number of m, h, d or w such as 30d; got {text!r}")
    return int(found[1]) * UNITS[found[2]]


@command(
    "manage the tokens of a server for a team",
    "barograph token new --project math --write --ends 30d\n  barograph token ls\n  barograph token revoke k7m2x9pq",
    argument("action", choices=("new", "ls", "revoke"), help="add a token, list all, or revoke one"),
    argument("id", metavar="ID", nargs="?", help="id of the token to revoke"),
    argument("--project", help="project that a new token is for (default: all projects)"),
    argument("--read", action="store_true", help="may see the page, and fetch runs with 'barograph pull'"),
    argument("--write", action="store_true", help="may send runs, and annotate them where it may read"),
    argument("--admin", action="store_true", help="may read and write"),
    argument("--ends", metavar="TIME", type=_seconds, help="how long a new token is valid: 12h, 30d, 8w"),
)
def run_token(options: argparse.Namespace) -> int:
    """Manage the tokens of a server for a team, which 'barograph up --ingest' serves. They are stored as hashes.

    A token grants rights in one project: --write to send runs, --read to see its page, --admin for both. Without
    --project it grants them in all. It is printed once. A server that runs uses new tokens, and refuses revoked
    ones, at once.
    """
    dir = directory(options)
    if not dir.is_dir():
        raise BarographError(f"{dir} does not exist: give the directory that the server serves with --dir")
    if (options.id is not None) != (options.action == "revoke"):
        raise BarographError("give the id of a token with 'revoke', and only there: 'barograph token ls' lists the ids")
    actions = {"new": _new, "ls": _list, "revoke": _revoke}
    actions[options.action](TokenFile(dir), options)
    return 0


def _new(file: TokenFile, options: argparse.Namespace) -> None:
    rights = [right for right in RIGHTS if getattr(options, right)]
    if not rights:
        raise BarographError("a token needs a right: give --read, --write or --admin")
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


PORT = 8790


def add_up_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``barograph up``."""
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
        help="address at which a proxy serves this, such as https://host/barograph/; every request needs a token then",
    )
    parser.add_argument(
        "--until-eof", action="store_true", help="stop when standard input ends, as with the process that wrote to it"
    )


@command(
    "serve the web page",
    "barograph up runs/ --port 8790 --open\n"
    "  barograph up runs/ --ingest --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --token-file token",
    add_up_arguments,
)
def run_up(options: argparse.Namespace) -> int:
    """Serve the web page of a directory of runs. It updates live and needs no account and no network.

    PATH may also be a log of another program, or contain such logs. With --host other than this machine, requests
    need a token; one is created where none is given. Give one with --token-file FILE or in BAROGRAPH_TOKEN: other
    users of this machine can see the arguments of --token in the list of processes.

    With --ingest other machines send their runs here; they and the team use the tokens of 'barograph token new'. The
    token of this command grants everything.
    """
    from barograph.apps.page.http.serving import TeamOptions, serve

    dir = Path(options.served) if options.served else directory(options)
    if not dir.exists():
        raise BarographError(f"{dir} does not exist: give the directory of your runs or a log, or set BAROGRAPH_DIR")
    if not dir.is_dir():
        logs_at(dir)  # raises LogError if it is none
    port = checked_port(options)
    if options.ingest and (not dir.is_dir() or is_run(dir)):
        raise BarographError(f"--ingest needs a directory of runs, which {dir} is not")
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


MCP_PORT = 8791

MCP_HINT = "a program speaks to this command: docs/for-agents.md says how a client is set up (stop with Ctrl-C)"


@command(
    "serve runs as tools for programs (MCP)",
    "barograph mcp runs/\n  barograph mcp runs/ --http --port 8791 --write",
    argument("served", metavar="DIR", nargs="?", help="directory or log to serve (default: the directory of the runs)"),
    argument("--write", action="store_true", help="allow notes, tags and the request to stop a training"),
    argument("--http", action="store_true", help="listen at an address (streamable HTTP)"),
    argument("--port", type=int, default=MCP_PORT, help=f"port of --http (default {MCP_PORT}; 0 for any free port)"),
    argument("--host", default="127.0.0.1", help="address of --http (default: this machine only)"),
    add_token,
    argument("--tls-cert", metavar="FILE", type=Path, help="certificate, to serve over HTTPS"),
    argument("--tls-key", metavar="FILE", type=Path, help="key of the certificate"),
    add_language,
)
def run_mcp(options: argparse.Namespace) -> int:
    """Serve the runs of a directory as tools for programs, over the Model Context Protocol (MCP).

    A client starts it and speaks to it over standard input and output; with --http it listens at an address instead.
    The tools list and find runs, sum one up, give series, samples, phases and comparisons, explain metrics, and wait
    for a run. They only read; --write adds notes, tags and the request to stop a training. With --host other than
    this machine, requests need a token: one is created where none is given; those of 'barograph token new' are for
    their projects. Needs 'barograph[mcp]'.
    """
    from barograph.apps.mcp.serving import check_installed, serve_http, serve_stdio

    check_installed()
    path = Path(options.served) if options.served else directory(options)
    if not options.http:
        if sys.stdin.isatty():
            say(MCP_HINT, sys.stderr)
        serve_stdio(path, options.lang, options.write)
        return 0

    def ready(address: str, token: str | None) -> None:
        say(f"serving {path} at {address}  (stop with Ctrl-C)")
        if token is not None:
            say(f"header of requests: Authorization: Bearer {token}")
        sys.stdout.flush()

    from barograph.apps.page.http.serving import TeamOptions

    team = TeamOptions(certificate=options.tls_cert, key=options.tls_key)
    port, token = checked_port(options), given_token(options)
    try:
        serve_http(path, options.lang, options.write, options.host, port, token, ready, team)
    except KeyboardInterrupt:
        print("\nstopped")
    return 0
