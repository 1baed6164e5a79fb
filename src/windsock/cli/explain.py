"""Explain a metric: definition, formula, unit, how it looks in a healthy run, names in other frameworks, traps."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

from windsock.catalogue.describe import Explanation, NameMeaning, describe_match, families, list_meanings
from windsock.catalogue.guesses import guess
from windsock.catalogue.names import recognise
from windsock.catalogue.similar import nearest
from windsock.catalogue.sources import check_source
from windsock.catalogue.spec import PRODUCERS, Text
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
    if options.run_reference:
        return _in_run(options)
    meanings = list_meanings(options.name, options.lang, options.source)
    recognition = recognise(options.name, options.source)
    if not recognition.matches:
        return _unknown(options)
    if recognition.ambiguous:
        return _print_meanings(options, meanings, ())
    return _print(options, describe_match(options.name, recognition.matches[0], options.lang), ())


def _in_run(options: argparse.Namespace) -> int:
    """Explain what a name means in a run."""
    from windsock.summary import run_names

    view = run_view(options, options.source)
    resolution = run_names(view).resolve(options.name)
    why = [reason.get(options.lang) for reason in resolution.reasons]
    if resolution.state == "unknown":
        return _unknown(options)
    if resolution.match is None:
        listed = list_meanings(options.name, options.lang)
        return _print_meanings(options, [one for one in listed if one.id in resolution.meanings], why)
    if not why:
        sources = ", ".join(candidate.sources[0] for candidate in resolution.candidates)
        why = [Text(f"Only {sources} writes this name so.", f"只有 {sources} 会这样写。").get(options.lang)]
    return _print(options, describe_match(options.name, resolution.match, options.lang), why)


def _print(options: argparse.Namespace, explanation: Explanation, why: Sequence[str]) -> int:
    if options.json:
        print_document("explain", {"known": True, **asdict(explanation), "why": list(why)})
        return 0
    from windsock.terminal.explain import explain

    explain(explanation, options.lang, why)
    return 0


def _print_meanings(options: argparse.Namespace, meanings: Sequence[NameMeaning], why: Sequence[str]) -> int:
    if options.json:
        listed = [asdict(meaning) for meaning in meanings]
        record = {"name": options.name, "known": True, "ambiguous": True, "meanings": listed, "why": list(why)}
        print_document("explain", record)
        return 0
    from windsock.terminal.explain import explain_meanings

    explain_meanings(options.name, meanings, options.lang, why)
    return 0


def _all(options: argparse.Namespace) -> int:
    if options.json:
        found = {family: [metric.id for metric in metrics] for family, _, _, metrics in families(options.lang)}
        print_document("metrics", {"families": found})
        return 0
    from windsock.terminal.explain import explain_all

    explain_all(options.lang)
    return 0


def _unknown(options: argparse.Namespace) -> int:
    close = nearest(options.name)
    if options.json:
        print_document("explain", {"name": options.name, "known": False, "nearest": close})
        return 1
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
    for line in (lines[options.lang], *(f"  {name}" for name in close), *guessed, teach[options.lang]):
        say(line, sys.stderr)
    return 1
