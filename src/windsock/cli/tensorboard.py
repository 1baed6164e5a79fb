"""Show a run, or all runs of a project, in TensorBoard.

The event files of a run that was not tracked with TensorBoard are written first, to the run's folder. The files of a
running one are updated.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

from windsock.cli.arguments import directory, recorded_run
from windsock.errors import WindsockError
from windsock.formatting import printable
from windsock.journal.folder import folder_name, read_run_info, run_folders
from windsock.relay.delivery import Delivery, recorded_trackers, training_directory
from windsock.relay.delivery_state import lock_path, read_delivery_state, relay_is_running, take_lock
from windsock.relay.supervisor import run_end

HELP = "show a run or a project in TensorBoard"
EXAMPLE = "windsock tensorboard @last --port 6006"
TRACKER = "tensorboard"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock tensorboard``."""
    parser.add_argument("what", metavar="RUN|PROJECT", nargs="?", default="@last", help="run, or name of a project")
    parser.add_argument("--port", type=int, default=6006, help="port to listen on (default 6006)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")


def run(options: argparse.Namespace) -> int:
    """Write missing event files, then run TensorBoard until it is stopped."""
    if importlib.util.find_spec("tensorboard.main") is None:
        raise WindsockError("TensorBoard is not installed: pip install 'windsock[tensorboard]'")
    event_folders = {_title(run): _event_folder(run) for run in _folders(options)}
    print(f"TensorBoard: http://{options.host}:{options.port}/  (stop with Ctrl-C)", flush=True)
    with tempfile.TemporaryDirectory(prefix="windsock-") as folder:  # links give runs their names, also in HParams
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
        raise WindsockError(f"run {folder.name} is running without tracker tensorboard: try again when it has ended")
    kwargs = recorded_trackers(folder).get(TRACKER, {})
    with training_directory(folder):
        state = Delivery(folder, TRACKER, kwargs, lambda: run_end(folder), once=True).deliver()
    if state.state == "refused":
        raise WindsockError(state.error)
    if run_end(folder) is None:
        follower = Delivery(folder, TRACKER, kwargs, lambda: run_end(folder))
        threading.Thread(target=_deliver, args=(follower, lock), daemon=True).start()
    else:
        lock.close()
    return state.url


def _deliver(follower: Delivery, lock: IO[str]) -> None:
    with lock:
        follower.deliver()
