"""Send a run to a server: what a training could not send itself, or a run that was recorded without a server.

The token is read from WINDSOCK_TOKEN. Bytes that the server holds already are not sent again, so the command can be
repeated, also while the training runs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from windsock.cli.arguments import add_run, directory, recorded_run
from windsock.errors import RunNotFoundError, WindsockError
from windsock.formatting import counted, size
from windsock.journal.folder import folder_name, identity
from windsock.settings import server_url
from windsock.spool_folder import default_spool
from windsock.terminal.output import say
from windsock.transfer.destination import DestinationError
from windsock.transfer.http_destination import HttpDestination, ServerRun
from windsock.transfer.progress import read_progress
from windsock.transfer.sender import Pauses, Sender

HELP = "send a run to a server"
EXAMPLE = "windsock push @last --to https://windsock.example.org"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock push``."""
    add_run(parser)
    parser.add_argument("--to", required=True, metavar="URL", help="address of the server")
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="give up on a server that fails for so long (default 60)",
    )


def run(options: argparse.Namespace) -> int:
    """Send the segments."""
    server = server_url(options.to)
    folder = _folder(options)
    # The folder of a process that joined from another machine does not tell the project; its progress does.
    project = read_progress(folder).project or folder_name(identity(folder).project)
    target = HttpDestination(ServerRun.of(server, project, identity(folder).id))
    sender = Sender(folder, target)
    try:
        _send_all(sender, options.patience)
    finally:
        target.close()
    own = [segment.path.name for segment in sender.own_segments()]
    for name, why in sender.refused.items():
        say(f"{name} is not sent: {why}")
    held = sum(sender.sent.get(name, 0) for name in own)
    say(f"{server} holds {size(held)} of {counted(len(own), 'segment')} of {project}/{folder.name}")
    return 1 if sender.refused else 0


def _folder(options: argparse.Namespace) -> Path:
    """Return the folder of a run; of one that is recorded elsewhere, what this machine has of it."""
    try:
        return recorded_run(options.run_reference, directory(options))
    except RunNotFoundError:
        folder: Path = default_spool() / options.run_reference
        if "/" in options.run_reference or not folder.is_dir():
            raise
        return folder


def _send_all(sender: Sender, patience: float) -> None:
    """Send what there is; raise WindsockError if the server fails for longer than ``patience``."""
    pauses, until = Pauses(), time.monotonic() + patience
    while True:
        try:
            sender.send_new_bytes()
            return
        except DestinationError as error:
            pause = pauses.after(error)
            if error.permanent or time.monotonic() + pause > until:
                raise WindsockError(f"the run is not sent: {error}") from error
            time.sleep(pause)
