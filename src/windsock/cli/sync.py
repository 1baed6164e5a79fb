"""Deliver a run to trackers: what an outage left behind, an offline run, or a tracker that was not there before.

Without --to it is every tracker that the run was configured with; relative paths are meant from where the training ran.
Keys are not kept with a run: they are found where the tracker looks for them (WANDB_API_KEY, a login), or in --config.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

from windsock.cli.arguments import add_run, run_folder
from windsock.errors import WindsockError
from windsock.relay.delivery import Delivery, recorded_trackers, where_it_ran
from windsock.relay.delivery_state import DeliveryState, lock_path, locked
from windsock.relay.supervisor import run_end
from windsock.settings import resolve

HELP = "deliver a run to trackers, now or again"
EXAMPLE = "windsock sync @last --to tensorboard --arg log_dir=runs/tb"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``sync`` takes."""
    add_run(parser)
    parser.add_argument("--to", action="append", metavar="TRACKER", help="only this one, or one more (repeatable)")
    parser.add_argument(
        "--arg", action="append", metavar="KEY=VALUE", default=[], help="what the tracker of --to takes"
    )
    parser.add_argument("--config", metavar="YAML", help="a file with track_with and tracker_kwargs")
    parser.add_argument("--again", action="store_true", help="from the first step, also what it has already")
    parser.add_argument(
        "--patience", type=float, default=60.0, metavar="SECONDS", help="how long a tracker may fail (default 60)"
    )


def run(options: argparse.Namespace) -> int:
    """Deliver."""
    folder = run_folder(options).resolve()
    trackers = chosen_trackers(folder, options)
    if not trackers:
        raise WindsockError("the run was configured with no tracker: name one with --to, e.g. --to tensorboard")
    lock = locked(lock_path(folder))
    if lock is None:
        raise WindsockError("the run's relay is at work and delivers by itself; windsock show tells how far it is")
    with lock, nullcontext() if options.arg or options.config else where_it_ran(folder):
        desks = [_deliver(folder, name, kwargs, options) for name, kwargs in trackers.items()]
    return 0 if all(desk.state in ("done", "healthy") for desk in desks) else 1


def chosen_trackers(folder: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the trackers to feed, with what they take."""
    known = recorded_trackers(folder)
    if options.config:
        known |= resolve(options.config, {}).trackers
    if not options.to:
        if options.arg:
            raise WindsockError("--arg needs --to: which tracker takes it?")
        return {name: kwargs for name, kwargs in known.items() if name != "stdout"}  # that was for who watched
    if options.arg and len(options.to) > 1:
        raise WindsockError("--arg with several --to: give each tracker a sync of its own")
    return {name: {**known.get(name, {}), **dict(map(_argument, options.arg))} for name in options.to}


def _argument(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise WindsockError(f"--arg {text}: expected KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _deliver(folder: Path, name: str, kwargs: dict[str, Any], options: argparse.Namespace) -> DeliveryState:
    with _lock(folder, name):
        return _deliver_alone(folder, name, kwargs, options)


def _deliver_alone(folder: Path, name: str, kwargs: dict[str, Any], options: argparse.Namespace) -> DeliveryState:
    courier = Delivery(
        folder,
        name,
        kwargs,
        lambda: run_end(folder),
        give_up=options.patience,
        once=True,
        anew=options.again,
        say=_progress(),
    )
    before = courier.desk.delivered
    try:
        desk = courier.carry()
    except KeyboardInterrupt:
        courier.stop()
        raise
    _tell(desk, before)
    return desk


def _lock(folder: Path, tracker: str) -> IO[str]:
    lock = locked(lock_path(folder, tracker))
    if lock is None:
        raise WindsockError(f"tracker {tracker!r} is being fed by the training; windsock show tells how far it is")
    return lock


def _progress() -> Any:
    """Return what shows how it goes, on a terminal."""
    if not sys.stderr.isatty():
        return lambda desk: None
    return lambda desk: print(f"\r\x1b[K{desk.tracker}: {_words(desk)}", end="", file=sys.stderr, flush=True)


def _words(desk: DeliveryState) -> str:
    trouble = f" ({desk.error})" if desk.error and desk.state not in ("done", "healthy") else ""
    return f"{desk.state}, {desk.delivered:,} rows delivered{trouble}"


def _tell(desk: DeliveryState, before: int) -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    where = f"  {desk.url}" if desk.url else ""
    refused = f", {desk.dropped:,} rows refused ({desk.error})" if desk.dropped else ""
    if desk.state in ("done", "healthy"):
        print(f"{desk.tracker}: {desk.delivered - before:,} rows delivered{refused}{where}")
    else:
        print(f"{desk.tracker}: {_words(desk)}", file=sys.stderr)
