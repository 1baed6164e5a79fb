"""Explain a metric: what it is, its formula and unit, what healthy looks like, its names elsewhere and their traps."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict

from windsock.catalogue.describe import describe, families
from windsock.catalogue.names import nearest
from windsock.catalogue.spec import PRODUCERS
from windsock.cli.arguments import add_json, print_json

HELP = "explain a metric, whoever logs it"
EXAMPLE = "windsock explain actor/policykl --lang zh"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``explain`` takes."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="a metric as somebody logs it, or its id")
    parser.add_argument("--all", action="store_true", help="list every family with its metrics")
    parser.add_argument("--lang", choices=("en", "zh"), default=_language(), help="language (default: the terminal's)")
    parser.add_argument(
        "--source", metavar="WHO", help=f"who wrote it: {', '.join(PRODUCERS)}; an era may follow, as in trl/grpo"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Explain."""
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
    spoken = next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "")
    return "zh" if spoken.startswith("zh") else "en"


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
    by = f" by {options.source}" if options.source else ""
    lines = {
        "en": f"windsock: {options.name!r}{by} is not a name that windsock knows. Nearest:",
        "zh": f"windsock：不认识 {options.name!r}{f'（来自 {options.source}）' if options.source else ''}。"
        f"最接近的有：",
    }
    print(lines[options.lang], *(f"  {name}" for name in close), sep="\n", file=sys.stderr)
    return 1
