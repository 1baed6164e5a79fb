"""Say what is wrong with a run, since when, and what to look at next.

RUN may be a recorded run or a log of another program; a directory gives a line per run. The exit code is 0 if nothing
is found, 1 if there is a finding of the severity of --fail-on or worse, and 2 if no run can be judged.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from windsock.cli.arguments import add_json, directory, print_json
from windsock.errors import WindsockError

HELP = "say what is wrong with a run"
EXAMPLE = "windsock doctor @last\n  windsock doctor runs/ --fail-on critical\n  windsock doctor --explain no_signal"
SEVERITIES = ("info", "warning", "critical")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock doctor``."""
    parser.add_argument("runs", metavar="RUN", nargs="*", help="id, name, path of a run or log, directory, or @last")
    parser.add_argument("--explain", metavar="RULE", help="explain a rule; 'all' lists them")
    parser.add_argument("--fail-on", choices=SEVERITIES, default="warning", help="exit with 1 from this severity on")
    parser.add_argument("--lang", choices=("en", "zh"), default="en", help="language (default en)")
    parser.add_argument("--source", metavar="SOURCE", help="framework that wrote the names, as in trl/grpo")
    parser.add_argument("--all", action="store_true", help="also say what each rule that found nothing looks at")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the diagnosis of each run."""
    if options.explain:
        return _explain(options)
    from windsock.diagnosis.diagnose import Diagnosis
    from windsock.diagnosis.doctor import doctor
    from windsock.opening import open_run

    found: list[tuple[Any, Diagnosis]] = []
    references = options.runs or ["@last"]
    many = [reference for reference in references if _is_directory_of_runs(Path(reference))]
    for reference in references:
        for one in _runs_in(Path(reference)) if reference in many else [reference]:
            try:
                view = open_run(one, directory(options), source=options.source)
            except WindsockError:
                if reference not in many:
                    raise
                continue
            found.append((view, doctor(view)))
    if options.json:
        records = [diagnosis.record(view.id, view.name) for view, diagnosis in found]
        print_json(records[0] if len(records) == 1 and not many else records)
    else:
        _print(found, options, lines=bool(many) or len(found) > 1)
    return _exit_code([diagnosis for _, diagnosis in found], options.fail_on)


def _is_directory_of_runs(path: Path) -> bool:
    from windsock.importers.logs import logs_at
    from windsock.journal.folder import is_run, run_folders

    if not path.is_dir() or is_run(path):
        return False
    return bool(next(iter(run_folders(path)), None)) or len(logs_at(path)) > 1


def _runs_in(dir: Path) -> list[Path]:
    from windsock.importers.logs import find_logs
    from windsock.journal.folder import run_folders

    folders = list(run_folders(dir))
    return [*folders, *(log.path for log in find_logs(dir, skip=folders))]


def _print(found: list[tuple[Any, Any]], options: argparse.Namespace, lines: bool) -> None:
    from windsock.terminal.doctor import print_diagnosis, print_verdict
    from windsock.terminal.output import make_console

    console = make_console()
    for view, diagnosis in found:
        if lines:
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
    from windsock.terminal.output import say

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
