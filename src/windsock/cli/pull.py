"""Fetch a run from a server into the directory of the runs.

The token is read from WINDSOCK_TOKEN and needs the right to read. Bytes that are here already are not fetched again, so
the command can be repeated while the run goes on.
"""

from __future__ import annotations

import argparse
from urllib.parse import unquote

from windsock.cli.arguments import directory
from windsock.errors import WindsockError
from windsock.formatting import size
from windsock.journal.folder import RUN_FILE
from windsock.settings import server_url
from windsock.terminal.output import say
from windsock.transfer.destination import DestinationError
from windsock.transfer.http_destination import HttpDestination, ServerRun
from windsock.transfer.receiver import Limits, Receiver, check_run_path
from windsock.transfer.sender import pull_new_bytes

HELP = "fetch a run from a server"
EXAMPLE = "windsock pull https://windsock.example.org/my-project/k3x9w2ab"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock pull``."""
    parser.add_argument("url", metavar="URL/PROJECT/RUN", help="address of the server, project and id of the run")


def run(options: argparse.Namespace) -> int:
    """Fetch the segments."""
    server, project, id = _parts(options.url)
    receiver = Receiver(directory(options) / project / id)
    source = HttpDestination(ServerRun.of(server, project, id))
    try:
        if not source.held():
            raise WindsockError(f"{server} has no run {project}/{id}")
        _fetch_info(source, receiver)
        fetched = pull_new_bytes(source, receiver.folder, receiver)
    except DestinationError as error:
        raise WindsockError(f"the run is not fetched: {error}") from error
    finally:
        source.close()
    say(f"fetched {size(fetched)} into {receiver.folder}")
    return 0


def _fetch_info(source: HttpDestination, receiver: Receiver) -> None:
    if not (receiver.folder / RUN_FILE).exists():
        try:
            info = source.read(RUN_FILE, 0, Limits().info_bytes)
        except DestinationError as error:
            if error.reason != "name":  # only the processes of other machines have sent yet
                raise
        else:
            receiver.describe(info)


def _parts(url: str) -> tuple[str, str, str]:
    """Return server, project and id of a run's address."""
    server, project, id = ["", "", *url.rstrip("/").rsplit("/", 2)][-3:]
    try:
        server = server_url(server)
        check_run_path(unquote(project), unquote(id))
    except WindsockError:
        raise WindsockError(f"expected an address as {EXAMPLE.split()[-1]}, got {url!r}") from None
    return server, unquote(project), unquote(id)
