"""Commands about names of metrics: explain says what one means, names lists those of a run that barograph does not
know.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from barograph.answers.explanation import Explained, explained, explained_in_run
from barograph.apps.cli.arguments import JSON, RUN, add_language, argument, command, run_view
from barograph.apps.terminal.explain import explain, explain_all, explain_meanings
from barograph.apps.terminal.output import print_document, print_json, say
from barograph.catalogue.describe import families
from barograph.catalogue.sources import check_source
from barograph.catalogue.spec import PRODUCERS
from barograph.catalogue.user_metrics import guess, nearest

if TYPE_CHECKING:
    from barograph.catalogue.resolution import RunNames


@command(
    "explain a metric of any framework",
    "barograph explain actor/policykl --lang zh",
    argument("name", metavar="NAME", nargs="?", help="a logged name, or the id of a metric"),
    argument("--all", action="store_true", help="list all families and their metrics"),
    add_language,
    argument("--run", metavar="RUN", dest="run_reference", help="explain what the name means in this run, and why"),
    argument(
        "--source",
        metavar="SOURCE",
        help=f"writer of the name: {', '.join(PRODUCERS)}; a trainer or version may follow, as in trl/grpo or verl/0.9",
    ),
    JSON,
)
def run_explain(options: argparse.Namespace) -> int:
    """Explain a metric: definition, formula, unit, how it looks in a healthy run, names in other frameworks, traps."""
    if options.source:
        check_source(options.source)
    if options.all or options.name is None:
        return _all(options)
    found = _explained(options)
    if options.json:
        print_document("explain", found.record())
    elif found.explanation is not None:
        explain(found.explanation, options.lang, found.why)
    elif found.meanings:
        explain_meanings(options.name, found.meanings, options.lang, found.why)
    else:
        _say_unknown(options)
    return 0 if found.explanation is not None or found.meanings else 1


def _explained(options: argparse.Namespace) -> Explained:
    if not options.run_reference:
        return explained(options.name, options.lang, options.source)
    from barograph.importers.summary import run_names

    return explained_in_run(options.name, options.lang, run_names(run_view(options, options.source)))


def _all(options: argparse.Namespace) -> int:
    if options.json:
        found = {family: [metric.id for metric in metrics] for family, _, _, metrics in families(options.lang)}
        print_document("metrics", {"families": found})
        return 0
    explain_all(options.lang)
    return 0


def _say_unknown(options: argparse.Namespace) -> None:
    by, by_zh = (f" by {options.source}", f"（来自 {options.source}）") if options.source else ("", "")
    lines = {
        "en": f"barograph: unknown name {options.name!r}{by}. Similar names:",
        "zh": f"barograph：未知的名字 {options.name!r}{by_zh}。相近的有：",
    }
    found = guess(options.name)
    guessed = [f"  guessed from its form: {', '.join(filter(None, (found.unit, found.direction)))}"] if found else []
    teach = {
        "en": "barograph names RUN prints a file in which you can describe it; barograph.define(...) does it in code.",
        "zh": "barograph names RUN 会输出一个可填写的文件；也可在代码中用 barograph.define(...) 定义。",
    }
    for line in (lines[options.lang], *(f"  {name}" for name in nearest(options.name)), *guessed, teach[options.lang]):
        say(line, sys.stderr)


@command(
    "list the names that barograph does not know, as YAML to fill in",
    "barograph names @last > barograph-runs/names.yaml",
    RUN,
    argument("--source", metavar="SOURCE", help="framework that wrote the names, such as trl/rloo"),
    JSON,
)
def run_names(options: argparse.Namespace) -> int:
    """List the names of a run that barograph does not know, as a file to describe them in."""
    from barograph.catalogue.user_metrics import FILE, config_file, template
    from barograph.importers.summary import beside, names_sentence, run_names

    if options.source:
        check_source(options.source)
    view = run_view(options)
    names = run_names(view, options.source)
    if options.json:
        print_json(_record(names))
        return 0
    say(f"barograph: {names_sentence(names).en}", sys.stderr)
    ambiguous = {name: names.resolve(name).meanings for name in names.ambiguous}
    if names.unknown or ambiguous:
        print(f"# Fill in what you know and save it as {FILE} beside the runs ({beside(view) / FILE})")
        print(f"# or in {config_file()}. barograph explain --all lists the ids of metrics.")
        for line in template(names.unknown, ambiguous):
            print(line)
    return 0


def _record(names: RunNames) -> dict[str, object]:
    matches = {name: names.match(name) for name in names.known}
    return {
        "names": len(names.names),
        "source": names.source,
        "known": {name: match.id for name, match in matches.items() if match is not None},
        "ambiguous": {name: names.resolve(name).meanings for name in names.ambiguous},
        "unknown": {
            name: {"nearest": nearest(name, 3), "guessed": asdict(found) if (found := guess(name)) else None}
            for name in names.unknown
        },
    }
