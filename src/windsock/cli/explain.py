"""Explain a metric: definition, formula, unit, how it looks in a healthy run, names in other frameworks, traps."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict

from windsock.catalogue.describe import describe, families
from windsock.catalogue.names import nearest
from windsock.catalogue.spec import PRODUCERS
from windsock.cli.arguments import add_json, print_json
from windsock.terminal.output import say

HELP = "explain a metric of any framework"
EXAMPLE = "windsock explain actor/policykl --lang zh"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``explain``."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="a logged name, or the id of a metric")
    parser.add_argument("--all", action="store_true", help="list all families and their metrics")
    parser.add_argument("--lang", choices=("en", "zh"), default=_language(), help="language (default: the terminal's)")
    parser.add_argument(
        "--source",
        metavar="WRITER",
        help=f"writer of the name: {', '.join(PRODUCERS)}; an era may follow, as in trl/grpo",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the explanation of a name, or all families."""
    if options.all or options.name is None:
        return _all(options)
    explanation = describe(options.name, options.lang, options.source)
    if explanation is None:
        return _unknown(options)
    if options.json:
        print_json(asdict(explanation))
        return 0
    from windsock.terminal.explain import explain

    explain(explanation, options.lang)
    return 0


def _language() -> str:
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "")
    return "zh" if locale.startswith("zh") else "en"


def _all(options: argparse.Namespace) -> int:
    if options.json:
        print_json({family: [metric.id for metric in metrics] for family, _, _, metrics in families(options.lang)})
        return 0
    from windsock.terminal.explain import explain_all

    explain_all(options.lang)
    return 0


def _unknown(options: argparse.Namespace) -> int:
    close = nearest(options.name)
    if options.json:
        print_json({"name": options.name, "known": False, "nearest": close})
        return 1
    by, by_zh = (f" by {options.source}", f"（来自 {options.source}）") if options.source else ("", "")
    lines = {
        "en": f"windsock: unknown name {options.name!r}{by}. Similar names:",
        "zh": f"windsock：未知的名字 {options.name!r}{by_zh}。相近的有：",
    }
    for line in (lines[options.lang], *(f"  {name}" for name in close)):
        say(line, sys.stderr)
    return 1
