"""Say what is wrong with a run, since when, and what to look at next.

RUN may be a recorded run or a log of another program; a directory gives a line per run. With --fleet, the findings of
all runs of a directory are summed up by rule: in how many runs, and from which step on. Verdicts on runs that have not
changed since are known. The exit code is 0 if there is no finding of the severity of --fail-on or worse, 1 if there is
one, and 2 if no run could be judged: what is logged is too little, or there is no run to read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from windsock.answers.records import versioned
from windsock.catalogue.spec import Text
from windsock.cli.arguments import add_json, add_language, directory
from windsock.cli.json_output import print_json, print_problem
from windsock.errors import RunNotFoundError, WindsockError
from windsock.terminal.output import Progress, say

if TYPE_CHECKING:
    from windsock.diagnosis.diagnose import Diagnosis
    from windsock.diagnosis.rule import Rule
    from windsock.view import View

HELP = "say what is wrong with a run"
EXAMPLE = (
    "windsock doctor @last\n  windsock doctor runs/ --fail-on critical\n  windsock doctor runs/ --fleet --by actor.lr\n"
    "  windsock doctor --explain no_signal"
)
SEVERITIES = ("info", "warning", "critical")
FOUND, UNJUDGED = 1, 2  # exit codes
WORDS = {
    "needs": Text("needs one of: {what}", "需要其中之一：{what}"),
    "steps": Text("needs only the steps of the run", "只需要实验的步"),
    "explains": Text("explains: {what}", "可解释：{what}"),
    "measured": Text("measured: {what}", "测量：{what}"),
    "sources": Text("sources: {what}", "来源：{what}"),
}

Opener = Callable[[], "View"]
Judged = tuple["View", "Diagnosis"] | WindsockError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock doctor``."""
    parser.add_argument("runs", metavar="RUN", nargs="*", help="id, name, path of a run or log, directory, or @last")
    parser.add_argument("--explain", metavar="RULE", help="explain a rule; 'all' lists them")
    parser.add_argument(
        "--fail-on", choices=SEVERITIES, default="warning", help="exit with 1 from this severity on (default: warning)"
    )
    add_language(parser)
    parser.add_argument("--source", metavar="SOURCE", help="framework that wrote the names, as in trl/grpo")
    parser.add_argument(
        "--all",
        action="store_true",
        help="say what each rule that found nothing looks at, and in full why others could not look",
    )
    parser.add_argument("--fleet", action="store_true", help="sum up the findings of all runs of a directory by rule")
    parser.add_argument(
        "--by", metavar="KEY", help="with --fleet: for each value of project, group, status, or a key of the config"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the diagnosis of each run."""
    if options.explain:
        return _explain(options)
    if options.fleet:
        from windsock.cli.fleet_doctor import run_fleet

        return run_fleet(options)
    if options.by:
        raise WindsockError("--by groups the runs of a fleet: give --fleet too")
    try:
        openers = [opener for reference in options.runs or ["@last"] for opener in _openers(reference, options)]
    except RunNotFoundError as problem:
        print_problem(problem, options.json)
        return UNJUDGED
    is_list = len(openers) > 1
    judged = _judged(openers, options)
    codes = _print_records(judged, options, is_list) if options.json else _print(judged, options, is_list)
    return FOUND if FOUND in codes else UNJUDGED if set(codes) <= {UNJUDGED} else 0


def _openers(reference: str, options: argparse.Namespace) -> list[Opener]:
    """Return what opens the run, or each of the runs and logs below a directory."""
    from windsock.importers.logs import find_logs
    from windsock.journal.folder import is_run, run_folders
    from windsock.opening import ImportedView, open_run
    from windsock.view import View

    path = Path(reference)
    if not path.is_dir() or is_run(path):
        return [partial(open_run, reference, directory(options), source=options.source)]
    folders = list(run_folders(path))
    found: list[Opener] = [partial(View, folder) for folder in folders]
    found += [partial(ImportedView, log) for log in find_logs(path, skip=folders)]
    if not found:
        raise RunNotFoundError(f"{path} has no runs and no logs")
    return found


def _judged(openers: list[Opener], options: argparse.Namespace) -> Iterator[Judged]:
    """Yield each run with its diagnosis, one after the other, or why it cannot be read."""
    from windsock.diagnosis.doctor import doctor

    is_seen = sys.stdout.isatty() and not options.json  # then each run has a line as soon as it is judged
    progress = None if is_seen else Progress("reading runs")
    for done, opener in enumerate(openers, 1):
        found: Judged
        try:
            view = opener()
            view.source = options.source or view.source
            found = view, doctor(view)
        except WindsockError as problem:
            found = problem
        if progress is not None:
            progress.show(done, len(openers))
        yield found


def _print_records(judged: Iterator[Judged], options: argparse.Namespace, is_list: bool) -> list[int]:
    records: list[dict[str, object]] = []
    codes: list[int] = []
    for found in judged:
        if isinstance(found, WindsockError):
            records.append(versioned("error", {"error": str(found)}))
            continue
        view, diagnosis = found
        record = {**diagnosis.record(view.id, view.name), "path": str(view.location), "steps": view.steps}
        records.append(versioned("doctor", record))
        codes.append(_exit_code(diagnosis, options.fail_on))
    print_json(records if is_list else records[0])
    return codes


def _print(judged: Iterator[Judged], options: argparse.Namespace, is_list: bool) -> list[int]:
    from windsock.terminal.doctor import print_diagnosis, print_verdict
    from windsock.terminal.output import make_console

    console = make_console()
    codes: list[int] = []
    for found in judged:
        if isinstance(found, WindsockError):
            say(str(found) if is_list else f"windsock: {found}", sys.stderr)
            continue
        view, diagnosis = found
        if is_list:
            print_verdict(console, f"{view.info.project}/{view.name}", diagnosis, options.lang)
        else:
            print_diagnosis(console, view, diagnosis, options.lang, options.all)
        codes.append(_exit_code(diagnosis, options.fail_on))
    return codes


def _exit_code(diagnosis: Diagnosis, fail_on: str) -> int:
    worst = SEVERITIES[SEVERITIES.index(fail_on) :]
    if any(finding.severity in worst for finding in diagnosis.findings):
        return FOUND
    return UNJUDGED if diagnosis.verdict == "cannot tell" else 0


def _explain(options: argparse.Namespace) -> int:
    from windsock.diagnosis.rules import RULES

    if options.explain != "all" and options.explain not in RULES:
        import difflib

        near = difflib.get_close_matches(options.explain, RULES, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else "list all with --explain all"
        raise WindsockError(f"no rule {options.explain!r}; {hint}")
    chosen = list(RULES.values()) if options.explain == "all" else [RULES[options.explain]]
    if options.json:
        print_json([versioned("rules", rule.record()) for rule in chosen])
        return 0
    for rule in chosen:
        say(f"{rule.id}: {rule.words.title.get(options.lang)}")
        say(f"  {rule.words.sees.get(options.lang)}")
        for line in _details(rule, options.lang) if options.explain != "all" else ():
            say(f"  {line}")
    return 0


def _details(rule: Rule, lang: str) -> Iterator[str]:
    """Yield what to do about a finding of a rule, what the rule needs, and where it is from."""
    from windsock.diagnosis.rates import rate_of
    from windsock.diagnosis.rule import signal_words

    words = {"needs": signal_words(rule.needs).get(lang), "explains": ", ".join(rule.explains)}
    words["measured"] = rate_of(rule.id).get(lang)
    words["sources"] = "; ".join(rule.words.sources)
    yield from (f"- {advice.get(lang)}" for advice in rule.words.advice)
    if not rule.needs:
        yield WORDS["steps"].get(lang)
    yield from (WORDS[key].get(lang).format(what=what) for key, what in words.items() if what)
