"""Commands that bring runs elsewhere: sync to trackers, tensorboard to TensorBoard, push to a server, and pull from
one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from barograph.apps.cli.arguments import RUN, Argument, argument, command, directory, recorded_run
from barograph.apps.terminal.output import say
from barograph.base.errors import BarographError, RunNotFoundError
from barograph.base.files.mounts import default_spool
from barograph.base.formatting import counted, printable, size
from barograph.base.installation import install_command
from barograph.base.settings import resolve, server_url
from barograph.delivery.processes import take_lock
from barograph.delivery.relay.delivery import Delivery, recorded_trackers, training_directory
from barograph.delivery.relay.state import DeliveryState, lock_path, read_delivery_state, relay_is_running
from barograph.delivery.relay.supervisor import run_end
from barograph.delivery.transfer.destination import DestinationError, HttpDestination, ServerRun
from barograph.delivery.transfer.receiver import Receiver, ReceiverLimits, check_run_path
from barograph.delivery.transfer.sending import Pauses, SegmentSender, pull_new_bytes
from barograph.delivery.transfer.state import read_progress
from barograph.journal.format.folder import RUN_FILE, folder_name, identity, read_run_info, run_folders


def patience(receiver: str) -> Argument:
    """Return --patience."""
    help = f"give up on a {receiver} that fails for so long (default 60)"
    return argument("--patience", type=float, default=60.0, metavar="SECONDS", help=help)


@command(
    "deliver a run to trackers",
    "barograph sync @last --to tensorboard --arg log_dir=runs/tb",
    RUN,
    argument("--to", action="append", metavar="TRACKER", help="deliver to this tracker (repeatable)"),
    argument(
        "--arg",
        action="append",
        metavar="KEY=VALUE",
        default=[],
        help="argument of the tracker given with --to (repeatable)",
    ),
    argument("--config", metavar="YAML", help="file with track_with and tracker_kwargs"),
    argument("--again", action="store_true", help="deliver all rows again, from the first step"),
    patience("tracker"),
)
def run_sync(options: argparse.Namespace) -> int:
    """Deliver a run's rows to trackers: rows left by an outage, an offline run, or a tracker added later.

    Without --to, rows go to every tracker of the run's configuration; relative paths start at the training's working
    directory. Keys are not stored with a run: trackers find them as usual (WANDB_API_KEY, a login) or in --config.
    """
    folder = recorded_run(options.run_reference, directory(options)).resolve()
    trackers = chosen_trackers(folder, options)
    if not trackers:
        raise BarographError("the run has no tracker: give one with --to, for example --to tensorboard")
    lock = take_lock(lock_path(folder))
    if lock is None:
        raise BarographError("the run's relay is running and delivers its rows; see the progress with barograph show")
    # Relative paths in recorded arguments start at the training's directory; those given now, at this one.
    with lock, nullcontext() if options.arg or options.config else training_directory(folder):
        states = [_deliver(folder, name, kwargs, options) for name, kwargs in trackers.items()]
    return 0 if all(state.state in ("done", "healthy") for state in states) else 1


def chosen_trackers(folder: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the trackers to deliver to, with their arguments."""
    known = recorded_trackers(folder)
    if options.config:
        known |= resolve(options.config, {}).trackers
    if not options.to:
        if options.arg:
            raise BarographError("--arg needs --to to name the tracker")
        return {name: kwargs for name, kwargs in known.items() if name != "stdout"}  # stdout shows rows live only
    if options.arg and len(options.to) > 1:
        raise BarographError("--arg with several --to is ambiguous: run sync once per tracker")
    return {name: {**known.get(name, {}), **dict(map(_tracker_argument, options.arg))} for name in options.to}


def _tracker_argument(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise BarographError(f"--arg {text}: expected KEY=VALUE")
    try:  # numbers, booleans and lists; anything else is a string
        return key, json.loads(value)
    except ValueError:
        return key, value


def _deliver(folder: Path, name: str, kwargs: dict[str, Any], options: argparse.Namespace) -> DeliveryState:
    given = {"give_up": options.patience, "from_start": options.again, "on_change": _print_progress}
    with _tracker_lock(folder, name):
        delivery = Delivery(folder, name, kwargs, lambda: run_end(folder), once=True, **given)
        before = delivery.state.delivered
        try:
            state = delivery.deliver()
        except KeyboardInterrupt:
            delivery.stop()
            raise
        _report(state, before)
        return state


def _tracker_lock(folder: Path, tracker: str) -> IO[str]:
    lock = take_lock(lock_path(folder, tracker))
    if lock is None:
        raise BarographError(
            f"the training delivers to tracker {tracker!r} itself; see the progress with barograph show"
        )
    return lock


def _print_progress(state: DeliveryState) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{printable(f'{state.tracker}: {_describe(state)}')}", end="", file=sys.stderr, flush=True)


def _describe(state: DeliveryState) -> str:
    error = f" ({state.error})" if state.error and state.state not in ("done", "healthy") else ""
    return f"{state.state}, {counted(state.delivered, 'row')} delivered{error}"


def _report(state: DeliveryState, before: int) -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    url = f"  {state.url}" if state.url else ""
    rejected = f", {counted(state.dropped, 'row')} rejected ({state.error})" if state.dropped else ""
    if state.state in ("done", "healthy"):
        say(f"{state.tracker}: {counted(state.delivered - before, 'row')} delivered{rejected}{url}")
    else:
        say(f"{state.tracker}: {_describe(state)}", sys.stderr)


TRACKER = "tensorboard"


@command(
    "show a run or a project in TensorBoard",
    "barograph tensorboard @last --port 6006",
    argument("what", metavar="RUN|PROJECT", nargs="?", default="@last", help="run, or name of a project"),
    argument("--port", type=int, default=6006, help="port to listen on (default 6006)"),
    argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)"),
)
def run_tensorboard(options: argparse.Namespace) -> int:
    """Show a run, or all runs of a project, in TensorBoard.

    The event files of a run that was not tracked with TensorBoard are written first, to the run's folder. The files
    of a running one are updated.
    """
    if importlib.util.find_spec("tensorboard.main") is None:
        raise BarographError(f"TensorBoard is not installed: {install_command('tensorboard')}")
    event_folders = {_title(run): _event_folder(run) for run in _folders(options)}
    print(f"TensorBoard: http://{options.host}:{options.port}/  (stop with Ctrl-C)", flush=True)
    with tempfile.TemporaryDirectory(prefix="barograph-") as folder:  # links give runs their names, also in HParams
        for title, event_folder in event_folders.items():
            (Path(folder) / title).symlink_to(Path(event_folder).absolute())
        # The fast loader hides points after a falling step, which runs may log.
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--load_fast=false"]
        return _serve([*command, "--host", options.host, "--port", str(options.port)])


def _serve(command: list[str]) -> int:
    """Run TensorBoard until it exits or this process is terminated; always stop it."""
    # Exit through finally on SIGTERM, which would otherwise leave TensorBoard running.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    process = subprocess.Popen(command)
    try:
        return process.wait()
    finally:
        process.terminate()
        process.wait()


def _folders(options: argparse.Namespace) -> list[Path]:
    project = directory(options) / folder_name(options.what)
    if options.what != "@last" and project.is_dir():
        found = list(run_folders(project))
        if found:
            return found
    return [recorded_run(options.what, directory(options))]


def _title(folder: Path) -> str:
    """Return a run's name in TensorBoard: its name and id, without the separators of TensorBoard's arguments."""
    name = printable(read_run_info(folder).name)
    return re.sub(r"[:,/\\]", "_", name if name == folder.name else f"{name}-{folder.name}")


def _event_folder(folder: Path) -> str:
    """Return the folder of a run's event files, after delivering all rows of the journal to them."""
    state = read_delivery_state(folder, TRACKER)
    lock = None if relay_is_running(folder) else take_lock(lock_path(folder, TRACKER))
    if lock is None:  # the run's relay or the training itself delivers
        if state.url:
            return state.url
        raise BarographError(f"run {folder.name} is running without tracker tensorboard: try again when it has ended")
    kwargs = recorded_trackers(folder).get(TRACKER, {})
    with training_directory(folder):
        state = Delivery(folder, TRACKER, kwargs, lambda: run_end(folder), once=True).deliver()
    if state.state == "refused":
        raise BarographError(state.error)
    if run_end(folder) is None:
        follower = Delivery(folder, TRACKER, kwargs, lambda: run_end(folder))
        threading.Thread(target=_follow, args=(follower, lock), daemon=True).start()
    else:
        lock.close()
    return state.url


def _follow(follower: Delivery, lock: IO[str]) -> None:
    with lock:
        follower.deliver()


@command(
    "send a run to a server",
    "barograph push @last --to https://barograph.example.org",
    RUN,
    argument("--to", required=True, metavar="URL", help="address of the server"),
    patience("server"),
)
def run_push(options: argparse.Namespace) -> int:
    """Send a run to a server: what a training could not send itself, or a run that was recorded without a server.

    The token is read from BAROGRAPH_TOKEN. Bytes that the server holds already are not sent again, so the command can
    be repeated, also while the training runs.
    """
    server = server_url(options.to)
    folder = _sent_folder(options)
    # The folder of a process that joined from another machine does not tell the project; its progress does.
    project = read_progress(folder).project or folder_name(identity(folder).project)
    target = HttpDestination(ServerRun.of(server, project, identity(folder).id))
    sender = SegmentSender(folder, target)
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


def _sent_folder(options: argparse.Namespace) -> Path:
    """Return the folder of a run; of one that is recorded elsewhere, what this machine has of it."""
    try:
        return recorded_run(options.run_reference, directory(options))
    except RunNotFoundError:
        folder: Path = default_spool() / options.run_reference
        if "/" in options.run_reference or not folder.is_dir():
            raise
        return folder


def _send_all(sender: SegmentSender, patience: float) -> None:
    """Send what there is; raise BarographError if the server fails for longer than ``patience``."""
    pauses, until = Pauses(), time.monotonic() + patience
    while True:
        try:
            sender.send_new_bytes()
            return
        except DestinationError as error:
            pause = pauses.after(error)
            if error.permanent or time.monotonic() + pause > until:
                raise BarographError(f"the run is not sent: {error}") from error
            time.sleep(pause)


PULL_EXAMPLE = "barograph pull https://barograph.example.org/my-project/k3x9w2ab"


@command(
    "fetch a run from a server",
    PULL_EXAMPLE,
    argument("url", metavar="URL/PROJECT/RUN", help="address of the server, project and id of the run"),
)
def run_pull(options: argparse.Namespace) -> int:
    """Fetch a run from a server into the directory of the runs.

    The token is read from BAROGRAPH_TOKEN and needs the right to read. Bytes that are here already are not fetched
    again, so the command can be repeated while the run goes on.
    """
    server, project, id = _run_address(options.url)
    receiver = Receiver(directory(options) / project / id)
    source = HttpDestination(ServerRun.of(server, project, id))
    try:
        if not source.held():
            raise BarographError(f"{server} has no run {project}/{id}")
        _fetch_info(source, receiver)
        fetched = pull_new_bytes(source, receiver.folder, receiver)
    except DestinationError as error:
        raise BarographError(f"the run is not fetched: {error}") from error
    finally:
        source.close()
    say(f"fetched {size(fetched)} into {receiver.folder}")
    return 0


def _fetch_info(source: HttpDestination, receiver: Receiver) -> None:
    if not (receiver.folder / RUN_FILE).exists():
        try:
            info = source.read(RUN_FILE, 0, ReceiverLimits().info_bytes)
        except DestinationError as error:
            if error.reason != "name":  # only the processes of other machines have sent yet
                raise
        else:
            receiver.describe(info)


def _run_address(url: str) -> tuple[str, str, str]:
    """Return server, project and id of a run's address."""
    server, project, id = ["", "", *url.rstrip("/").rsplit("/", 2)][-3:]
    try:
        server = server_url(server)
        check_run_path(unquote(project), unquote(id))
    except BarographError:
        raise BarographError(f"expected an address as {PULL_EXAMPLE.split()[-1]}, got {url!r}") from None
    return server, unquote(project), unquote(id)
