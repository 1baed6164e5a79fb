"""The command demo: a small training that is recorded, shown live, and served if asked for."""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from barograph.apps.cli.arguments import argument, at_least_one, command, directory
from barograph.apps.demo.config import SICK_RUNS, DemoConfig, sick_config
from barograph.apps.terminal.output import make_console, say
from barograph.base.errors import SettingsError
from barograph.base.settings import VOCABULARIES, read_source


@command(
    "train a small policy and record it",
    "barograph demo --steps 100 --sick entropy-collapse",
    argument("--steps", type=at_least_one, help="number of steps (default 100, about a minute)"),
    argument("--seed", type=int, help="random seed; the same seed gives the same training"),
    argument("--vocabulary", choices=VOCABULARIES, help="vocabulary of the metric names (default roll)"),
    argument("--track-with", metavar="TRACKER", help="trackers to deliver to, separated by commas"),
    argument("--config", metavar="YAML", help="file with settings, and a section demo: with hyperparameters"),
    argument("--sick", metavar="NAME", help="train with a fault; --sick list shows all"),
    argument("--name", help="name of the run"),
    argument("--quiet", action="store_true", help="print only the path of the run"),
    argument("--open", action="store_true", help="then serve the page and open it in a browser"),
)
def run_demo(options: argparse.Namespace) -> int:
    """Train a small policy with PPO on FrozenLake, in NumPy, and record it: a complete run in about a minute.

    With --sick NAME the training has one real fault, such as a learning rate that is too high.
    """
    if options.sick == "list":
        for name, sick_run in SICK_RUNS.items():
            print(f"{name:18}{sick_run.reason}")
        return 0
    return _train(options)


def _train(options: argparse.Namespace) -> int:
    from barograph.apps.demo.frozen_lake import gymnasium_module
    from barograph.apps.demo.trainer import start_runs, train
    from barograph.journal.view import View

    gymnasium_module()  # raises before anything is recorded where gymnasium is missing
    config = _config(options)
    trainer, explorer = start_runs(config, options.config, **_settings(options))
    if trainer.id == "disabled":  # BAROGRAPH_MODE=disabled: there is no run to show
        train(config, trainer, explorer)
        return 0
    view = View(trainer.path)
    try:
        with trainer, explorer, _display(options, view, config.steps) as display:
            train(config, trainer, explorer, display and display.after_step)
    except KeyboardInterrupt:
        _print_end(options, view, "interrupted")
        return 130
    _print_end(options, view, "done")
    return _serve_page(options) if options.open else 0


def _serve_page(options: argparse.Namespace) -> int:
    """Serve the page, as ``barograph up --open`` does."""
    from barograph.apps.cli.serving import PORT, run_up

    given = {"served": str(directory(options)), "port": PORT, "host": "127.0.0.1", "token": None, "token_file": None}
    return run_up.run(argparse.Namespace(**given, dir=options.dir, open=True))


def _config(options: argparse.Namespace) -> Any:
    section = read_source(options.config)[1].get("demo") or {}
    if not isinstance(section, dict):
        raise SettingsError(f"demo must be a mapping of hyperparameters; got {section!r}")
    config = DemoConfig().changed(section)
    if options.sick:
        config = sick_config(config, options.sick)
    given = {"steps": options.steps, "seed": options.seed}
    return config.changed({name: value for name, value in given.items() if value is not None})


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    given = {
        "dir": directory(options),
        "vocabulary": options.vocabulary,
        "track_with": options.track_with,
        "name": options.name or options.sick or ("healthy" if options.config is None else None),
        "tags": [options.sick] if options.sick else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _display(options: argparse.Namespace, view: Any, steps: int) -> AbstractContextManager[Any]:
    """Return the live display; a context that gives None with --quiet."""
    from barograph.apps.demo.display import LiveDisplay

    return nullcontext() if options.quiet else LiveDisplay(make_console(), view, steps)


def _print_end(options: argparse.Namespace, view: Any, outcome: str) -> None:
    """Print the path of the run and commands to inspect it."""
    from barograph.apps.demo.display import next_commands

    view.refresh()
    say(f"{outcome}: run {view.id} in {view.path}")
    if not options.quiet:
        reference = str(view.path) if options.dir else view.id  # an id is found in the default directory only
        print("inspect it with", *next_commands(view, (options.track_with or "").split(","), reference), sep="\n  ")
    sys.stdout.flush()
