"""Say what is wrong with a run, since when, and what to look at next.

RUN may be a recorded run or a log of another program; a directory gives a line per run. The exit code is 0 if nothing
is found, 1 if there is a finding of the severity of --fail-on or worse, and 2 if no run can be judged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windsock.cli.arguments import add_json, add_language, directory, print_json
from windsock.errors import WindsockError
from windsock.terminal.output import say

if TYPE_CHECKING:
    from windsock.view import View

HELP = "say what is wrong with a run"
EXAMPLE = "windsock doctor @last\n  windsock doctor runs/ --fail-on critical\n  windsock doctor --explain no_signal"
SEVERITIES = ("info", "warning", "critical")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock doctor``."""
    parser.add_argument("runs", metavar="RUN", nargs="*", help="id, name, path of a run or log, directory, or @last")
    parser.add_argument("--explain", metavar="RULE", help="explain a rule; 'all' lists them")
    parser.add_argument("--fail-on", choices=SEVERITIES, default="warning", help="exit with 1 from this severity on")
    add_language(parser)
    parser.add_argument("--source", metavar="SOURCE", help="framework that wrote the names, as in trl/grpo")
    parser.add_argument("--all", action="store_true", help="also say what each rule that found nothing looks at")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the diagnosis of each run."""
    if options.explain:
        return _explain(options)
    from windsock.diagnosis.doctor import doctor

    references = options.runs or ["@last"]
    found = [(view, doctor(view)) for reference in references for view in _views(reference, options)]
    is_list = len(references) > 1 or len(found) != 1
    if options.json:
        records = [diagnosis.record(view.id, view.name) for view, diagnosis in found]
        print_json(records if is_list else records[0])
    else:
        _print(found, options, is_list)
    return _exit_code([diagnosis for _, diagnosis in found], options.fail_on)


def _views(reference: str, options: argparse.Namespace) -> Iterator[View]:
    """Yield the run, or the runs and logs below a directory; say which of these cannot be read."""
    from windsock.importers.logs import find_logs
    from windsock.journal.folder import is_run, run_folders
    from windsock.opening import ImportedView, open_run
    from windsock.view import View

    path = Path(reference)
    if not path.is_dir() or is_run(path):
        yield open_run(reference, directory(options), source=options.source)
        return
    folders = list(run_folders(path))
    opened: list[Callable[[], View]] = [partial(View, folder) for folder in folders]
    opened += [partial(ImportedView, log) for log in find_logs(path, skip=folders)]
    if not opened:
        raise WindsockError(f"{path} has no runs and no logs")
    for open_one in opened:
        try:
            view = open_one()
        except WindsockError as problem:
            say(str(problem), sys.stderr)
            continue
        view.source = options.source or view.source
        yield view


def _print(found: list[tuple[View, Any]], options: argparse.Namespace, is_list: bool) -> None:
    from windsock.terminal.doctor import print_diagnosis, print_verdict
    from windsock.terminal.output import make_console

    console = make_console()
    for view, diagnosis in found:
        if is_list:
            print_verdict(console, f"{view.info.project}/{view.name}", diagnosis, options.lang)
        else:
            print_diagnosis(console, view, diagnosis, options.lang, options.all)


def _exit_code(diagnoses: list[Any], fail_on: str) -> int:
    worst = SEVERITIES[SEVERITIES.index(fail_on) :]
    if any(finding.severity in worst for diagnosis in diagnoses for finding in diagnosis.findings):
        return 1
    return 2 if diagnoses and all(diagnosis.verdict == "cannot tell" for diagnosis in diagnoses) else 0


def _explain(options: argparse.Namespace) -> int:
    from windsock.diagnosis.rules import RULES

    if options.explain != "all" and options.explain not in RULES:
        import difflib

        near = difflib.get_close_matches(options.explain, RULES, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else "list all with --explain all"
        raise WindsockError(f"no rule {options.explain!r}; {hint}")
    chosen = list(RULES.values()) if options.explain == "all" else [RULES[options.explain]]
    if options.json:
        print_json([rule.record() for rule in chosen])
        return 0
    for rule in chosen:
        words, lang = rule.words, options.lang
        say(f"{rule.id}: {words.title.get(lang)}")
        say(f"  {words.sees.get(lang)}")
        if options.explain != "all":
            for advice in words.advice:
                say(f"  - {advice.get(lang)}")
            say(f"  needs one of: {', '.join(rule.needs) or 'the steps of the run'}")
            if rule.explains:
                say(f"  explains: {', '.join(rule.explains)}")
            say(f"  sources: {'; '.join(words.sources)}")
    return 0
