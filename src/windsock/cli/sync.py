"""Deliver a run's rows to trackers: rows left by an outage, an offline run, or a tracker added later.

Without --to, rows go to every tracker of the run's configuration; relative paths start at the training's working
directory. Keys are not stored with a run: trackers find them as usual (WANDB_API_KEY, a login) or in --config.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

from windsock.cli.arguments import add_run, directory, recorded_run
from windsock.errors import WindsockError
from windsock.formatting import counted, printable
from windsock.relay.delivery import Delivery, recorded_trackers, training_directory
from windsock.relay.delivery_state import DeliveryState, lock_path, take_lock
from windsock.relay.supervisor import run_end
from windsock.settings import resolve
from windsock.terminal.output import say

HELP = "deliver a run to trackers"
EXAMPLE = "windsock sync @last --to tensorboard --arg log_dir=runs/tb"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock sync``."""
    add_run(parser)
    parser.add_argument("--to", action="append", metavar="TRACKER", help="deliver to this tracker (repeatable)")
    parser.add_argument(
        "--arg",
        action="append",
        metavar="KEY=VALUE",
        default=[],
        help="argument of the tracker given with --to (repeatable)",
    )
    parser.add_argument("--config", metavar="YAML", help="file with track_with and tracker_kwargs")
    parser.add_argument("--again", action="store_true", help="deliver all rows again, from the first step")
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="give up on a tracker that fails for so long (default 60)",
    )


def run(options: argparse.Namespace) -> int:
    """Deliver the rows."""
    folder = recorded_run(options.run_reference, directory(options)).resolve()
    trackers = chosen_trackers(folder, options)
    if not trackers:
        raise WindsockError("the run has no tracker: give one with --to, for example --to tensorboard")
    lock = take_lock(lock_path(folder))
    if lock is None:
        raise WindsockError("the run's relay is running and delivers its rows; see the progress with windsock show")
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
            raise WindsockError("--arg needs --to to name the tracker")
        return {name: kwargs for name, kwargs in known.items() if name != "stdout"}  # stdout shows rows live only
    if options.arg and len(options.to) > 1:
        raise WindsockError("--arg with several --to is ambiguous: run sync once per tracker")
    return {name: {**known.get(name, {}), **dict(map(_argument, options.arg))} for name in options.to}


def _argument(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise WindsockError(f"--arg {text}: expected KEY=VALUE")
    try:  # numbers, booleans and lists; anything else is a string
        return key, json.loads(value)
    except ValueError:
        return key, value


def _deliver(folder: Path, name: str, kwargs: dict[str, Any], options: argparse.Namespace) -> DeliveryState:
    with _lock(folder, name):
        return _deliver_alone(folder, name, kwargs, options)


def _deliver_alone(folder: Path, name: str, kwargs: dict[str, Any], options: argparse.Namespace) -> DeliveryState:
    delivery = Delivery(
        folder,
        name,
        kwargs,
        lambda: run_end(folder),
        give_up=options.patience,
        once=True,
        from_start=options.again,
        on_change=_progress(),
    )
    before = delivery.state.delivered
    try:
        state = delivery.deliver()
    except KeyboardInterrupt:
        delivery.stop()
        raise
    _report(state, before)
    return state


def _lock(folder: Path, tracker: str) -> IO[str]:
    lock = take_lock(lock_path(folder, tracker))
    if lock is None:
        raise WindsockError(f"the training delivers to tracker {tracker!r} itself; see the progress with windsock show")
    return lock


def _progress() -> Any:
    """Return a callback that prints the progress on a terminal."""
    if not sys.stderr.isatty():
        return lambda state: None
    return _print_progress


def _print_progress(state: DeliveryState) -> None:
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
