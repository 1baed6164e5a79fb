"""Explain a metric: definition, formula, unit, how it looks in a healthy run, names in other frameworks, traps."""

from __future__ import annotations

import argparse
import sys

from windsock.answers.explanation import Explained, explained, explained_in_run
from windsock.catalogue.describe import families
from windsock.catalogue.guesses import guess
from windsock.catalogue.similar import nearest
from windsock.catalogue.sources import check_source
from windsock.catalogue.spec import PRODUCERS
from windsock.cli.arguments import add_json, add_language, run_view
from windsock.cli.json_output import print_document
from windsock.terminal.output import say

HELP = "explain a metric of any framework"
EXAMPLE = "windsock explain actor/policykl --lang zh"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``explain``."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="a logged name, or the id of a metric")
    parser.add_argument("--all", action="store_true", help="list all families and their metrics")
    add_language(parser)
    parser.add_argument(
        "--run", metavar="RUN", dest="run_reference", help="explain what the name means in this run, and why"
    )
    parser.add_argument(
        "--source",
        metavar="SOURCE",
        help=f"writer of the name: {', '.join(PRODUCERS)}; a trainer or version may follow, as in trl/grpo or verl/0.9",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the explanation of a name, its meanings, or all families."""
    if options.source:
        check_source(options.source)
    if options.all or options.name is None:
        return _all(options)
    found = _explained(options)
    if options.json:
        print_document("explain", found.record())
    elif found.explanation is not None:
        from windsock.terminal.explain import explain

        explain(found.explanation, options.lang, found.why)
    elif found.meanings:
        from windsock.terminal.explain import explain_meanings

        explain_meanings(options.name, found.meanings, options.lang, found.why)
    else:
        _say_unknown(options)
    return 0 if found.explanation is not None or found.meanings else 1


def _explained(options: argparse.Namespace) -> Explained:
    if not options.run_reference:
        return explained(options.name, options.lang, options.source)
    from windsock.summary import run_names

    return explained_in_run(options.name, options.lang, run_names(run_view(options, options.source)))


def _all(options: argparse.Namespace) -> int:
    if options.json:
        found = {family: [metric.id for metric in metrics] for family, _, _, metrics in families(options.lang)}
        print_document("metrics", {"families": found})
        return 0
    from windsock.terminal.explain import explain_all

    explain_all(options.lang)
    return 0


def _say_unknown(options: argparse.Namespace) -> None:
    by, by_zh = (f" by {options.source}", f"（来自 {options.source}）") if options.source else ("", "")
    lines = {
        "en": f"windsock: unknown name {options.name!r}{by}. Similar names:",
        "zh": f"windsock：未知的名字 {options.name!r}{by_zh}。相近的有：",
    }
    found = guess(options.name)
    guessed = [f"  guessed from its form: {', '.join(filter(None, (found.unit, found.direction)))}"] if found else []
    teach = {
        "en": "windsock names RUN prints a file in which you can describe it; windsock.define(...) does it in code.",
        "zh": "windsock names RUN 会输出一个可填写的文件；也可在代码中用 windsock.define(...) 定义。",
    }
    for line in (lines[options.lang], *(f"  {name}" for name in nearest(options.name)), *guessed, teach[options.lang]):
        say(line, sys.stderr)
