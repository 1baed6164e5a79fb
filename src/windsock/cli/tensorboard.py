"""Look at a run, or all runs of a project, in TensorBoard.

A run that was not tracked with TensorBoard is written for it first, into the run's folder; a live one is followed.
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

from windsock.cli.arguments import directory
from windsock.errors import WindsockError
from windsock.journal.folder import find_run, folder_name, read_run_info, run_folders
from windsock.relay.delivery import Delivery, recorded_trackers, where_it_ran
from windsock.relay.delivery_state import is_free, lock_path, locked, read_desk
from windsock.relay.supervisor import run_end

HELP = "look at a run or a project in TensorBoard"
EXAMPLE = "windsock tensorboard @last --port 6006"
TRACKER = "tensorboard"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``tensorboard`` takes."""
    parser.add_argument("what", metavar="RUN|PROJECT", nargs="?", default="@last", help="a run, or a project's name")
    parser.add_argument("--port", type=int, default=6006, help="where to serve (default 6006)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to serve at (default: this machine only)")


def run(options: argparse.Namespace) -> int:
    """Write what is missing, then be TensorBoard."""
    if importlib.util.find_spec("tensorboard.main") is None:
        raise WindsockError("TensorBoard is not installed: pip install 'windsock[tensorboard]'")
    folders = _folders(options)
    places = {_title(folder): _event_folder(folder) for folder in folders}
    print(f"TensorBoard: http://{options.host}:{options.port}/  (Ctrl-C ends it)", flush=True)
    with tempfile.TemporaryDirectory(prefix="windsock-") as shelf:  # links give runs their names, also for HParams
        for title, place in places.items():
            (Path(shelf) / title).symlink_to(Path(place).absolute())
        # The fast loader hides points whose step falls, which a run that logs steps in any order has.
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", shelf, "--load_fast=false"]
        return _serve([*command, "--host", options.host, "--port", str(options.port)])


def _serve(command: list[str]) -> int:
    """Run TensorBoard until it or we are told to end; it never outlives us."""
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
    return [find_run(options.what, directory(options))]


def _title(folder: Path) -> str:
    """Return what TensorBoard calls a run: its name and id, without what separates runs in its arguments."""
    name = read_run_info(folder).name
    return re.sub(r"[:,/\\]", "_", name if name == folder.name else f"{name}-{folder.name}")


def _event_folder(folder: Path) -> str:
    """Return where a run's event files are, with everything in them that the journal has."""
    desk = read_desk(folder, TRACKER)
    lock = locked(lock_path(folder, TRACKER)) if is_free(folder) else None
    if lock is None:  # the run's relay, or the training itself, is at work
        if desk.url:
            return desk.url
        raise WindsockError(f"run {folder.name} is tracked without TensorBoard: look at it when it has ended")
    kwargs = recorded_trackers(folder).get(TRACKER, {})
    with where_it_ran(folder):
        desk = Delivery(folder, TRACKER, kwargs, lambda: run_end(folder), once=True).carry()
    if desk.state == "refused":
        raise WindsockError(desk.error)
    if run_end(folder) is None:
        follower = Delivery(folder, TRACKER, kwargs, lambda: run_end(folder))
        threading.Thread(target=_carry, args=(follower, lock), daemon=True).start()
    else:
        lock.close()
    return desk.url


def _carry(follower: Delivery, lock: IO[str]) -> None:
    with lock:
        follower.carry()
