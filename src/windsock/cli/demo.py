"""Train a small policy with PPO on FrozenLake, in NumPy, and watch it: a whole run to look at, in about a minute.

The training is real, and so is its trouble: --sick NAME changes one thing in it that then goes wrong.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from windsock.cli.arguments import directory
from windsock.settings import VOCABULARIES

HELP = "train a small policy and watch it"
EXAMPLE = "windsock demo --steps 100 --sick entropy-collapse"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``demo`` takes."""
    parser.add_argument("--steps", type=int, help="how long to train (default 100 steps, about a minute)")
    parser.add_argument("--seed", type=int, help="of all that is drawn: the same seed gives the same training")
    parser.add_argument("--vocabulary", choices=VOCABULARIES, help="whose names the metrics get (default roll)")
    parser.add_argument("--track-with", metavar="TRACKER", help="feed these trackers as well, separated by commas")
    parser.add_argument("--config", metavar="YAML", help="settings, and a section demo: with entries of the recipe")
    parser.add_argument("--sick", metavar="NAME", help="let it go wrong; --sick list tells how it can")
    parser.add_argument("--name", help="what the run is called")
    parser.add_argument("--quiet", action="store_true", help="say nothing but where the run is")
    parser.add_argument("--open", action="store_true", help="serve the page afterwards and open it in a browser")


def run(options: argparse.Namespace) -> int:
    """Train."""
    from windsock.demo.sick import SICK

    if options.sick == "list":
        for name, sickness in SICK.items():
            print(f"{name:18}{sickness.why}")
        return 0
    return _train(options)


def _train(options: argparse.Namespace) -> int:
    from windsock.demo.lake import gymnasium_lake
    from windsock.demo.training import begin, train
    from windsock.view import View

    gymnasium_lake()  # before anything is recorded: it may be missing
    recipe = _recipe(options)
    trainer, explorer = begin(recipe, options.config, **_settings(options))
    if trainer.id == "disabled":
        train(recipe, trainer, explorer)
        return 0
    view = View(trainer.path)
    try:
        with trainer, explorer, _watched(options, view, recipe.steps) as watch:
            train(recipe, trainer, explorer, watch and watch.after_step)
    except KeyboardInterrupt:
        _tell(options, view, "stopped by hand")
        return 130
    _tell(options, view, "done")
    return _serve_page(options) if options.open else 0


def _serve_page(options: argparse.Namespace) -> int:
    """Serve the page of the runs, as ``windsock up --open`` does."""
    from windsock.cli.up import PORT
    from windsock.cli.up import run as up

    given = {"served": str(directory(options)), "port": PORT, "host": "127.0.0.1", "token": None}
    return up(argparse.Namespace(**given, dir=options.dir, open=True))


def _recipe(options: argparse.Namespace) -> Any:
    from windsock.demo.recipe import Recipe
    from windsock.demo.sick import sicken
    from windsock.errors import SettingsError
    from windsock.settings import read_source

    section = read_source(options.config)[1].get("demo") or {}
    if not isinstance(section, dict):
        raise SettingsError(f"demo: expected a mapping of entries, got {section!r}")
    recipe = Recipe().changed(section)
    if options.sick:
        recipe = sicken(recipe, options.sick)
    given = {"steps": options.steps, "seed": options.seed}
    return recipe.changed({name: value for name, value in given.items() if value is not None})


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    given = {
        "dir": directory(options),
        "vocabulary": options.vocabulary,
        "track_with": options.track_with,
        "name": options.name or options.sick or ("healthy" if options.config is None else None),
        "tags": [options.sick] if options.sick else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _watched(options: argparse.Namespace, view: Any, steps: int) -> AbstractContextManager[Any]:
    """Return what shows how it goes: a picture on the terminal, lines elsewhere, nothing (None) when quiet."""
    from rich.console import Console

    from windsock.terminal.live import Watch

    return nullcontext() if options.quiet else Watch(Console(), view, steps)


def _tell(options: argparse.Namespace, view: Any, how: str) -> None:
    """Say where the run is and what to look at next."""
    from windsock.terminal.live import where_next

    view.refresh()
    print(f"{how}: run {view.id} in {view.path}")
    if not options.quiet:
        reference = str(view.path) if options.dir else view.id  # the path is found wherever one looks
        print("look at it with", *where_next(view, (options.track_with or "").split(","), reference), sep="\n  ")
    sys.stdout.flush()
