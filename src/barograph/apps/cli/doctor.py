"""The command doctor: the diagnosis of runs one by one, or with --fleet the findings of all runs of a directory,
summed up by rule.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from barograph.answers.records import versioned
from barograph.apps.cli.arguments import JSON, add_language, argument, command, directory, runs_at
from barograph.apps.terminal.output import Progress, make_console, print_document, print_json, print_problem, say
from barograph.base.errors import BarographError, RunNotFoundError, did_you_mean
from barograph.base.formatting import counted, describe_error
from barograph.catalogue.spec import Text
from barograph.catalogue.user_metrics import names_files
from barograph.diagnosis.diagnose import Diagnosis, doctor
from barograph.diagnosis.fleet import ConfigIndex, GroupSum, JudgedRun, group_sums
from barograph.diagnosis.health import Health, HealthList
from barograph.diagnosis.rates import rate_of
from barograph.diagnosis.rule import Rule, signal_words
from barograph.diagnosis.rules import RULES
from barograph.importers.logs import find_logs
from barograph.importers.opening import ImportedView, open_run
from barograph.journal.findings import SEVERITIES
from barograph.journal.format.folder import is_run, run_folders
from barograph.journal.read.status import Glance
from barograph.journal.view import View

EXIT_SEVERITIES = SEVERITIES[1:]

FOUND, UNJUDGED = 1, 2  # exit codes

WORDS = {
    "needs": Text("needs one of: {what}", "需要其中之一：{what}"),
    "steps": Text("needs only the steps of the run", "只需要实验的步"),
    "explains": Text("explains: {what}", "可解释：{what}"),
    "measured": Text("measured: {what}", "测量：{what}"),
    "sources": Text("sources: {what}", "来源：{what}"),
}

Opener = Callable[[], View]

Judged = tuple[View, Diagnosis] | BarographError


@command(
    "say what is wrong with a run",
    "barograph doctor @last\n  barograph doctor runs/ --fail-on critical\n"
    "  barograph doctor runs/ --fleet --by actor.lr\n"
    "  barograph doctor --explain no_signal",
    argument("runs", metavar="RUN", nargs="*", help="id, name, path of a run or log, directory, or @last"),
    argument("--explain", metavar="RULE", help="explain a rule; 'all' lists them"),
    argument(
        "--fail-on",
        choices=EXIT_SEVERITIES,
        default="warning",
        help="exit with 1 from this severity on (default: warning)",
    ),
    add_language,
    argument("--source", metavar="SOURCE", help="framework that wrote the names, as in trl/grpo"),
    argument(
        "--all",
        action="store_true",
        help="say what each rule that found nothing looks at, and in full why others could not look",
    ),
    argument("--fleet", action="store_true", help="sum up the findings of all runs of a directory by rule"),
    argument(
        "--by", metavar="KEY", help="with --fleet: for each value of project, group, status, or a key of the config"
    ),
    JSON,
)
def run_doctor(options: argparse.Namespace) -> int:
    """Say what is wrong with a run, since when, and what to look at next.

    RUN may be a recorded run or a log of another program; a directory gives a line per run. With --fleet, the
    findings of all runs of a directory are summed up by rule: in how many runs, and from which step on. Verdicts on
    runs that have not changed since are known. The exit code is 0 if there is no finding of the severity of
    --fail-on or worse, 1 if there is one, and 2 if no run could be judged: what is logged is too little, or there is
    no run to read.
    """
    if options.explain:
        return _explain(options)
    if options.fleet:
        return run_fleet(options)
    if options.by:
        raise BarographError("--by groups the runs of a fleet: give --fleet too")
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
    is_seen = sys.stdout.isatty() and not options.json  # then each run has a line as soon as it is judged
    for opener in openers if is_seen else Progress("reading runs").over(openers):
        try:
            view = opener()
            view.source = options.source or view.source
            found: Judged = view, doctor(view)
        except BarographError as problem:
            found = problem
        yield found


def _print_records(judged: Iterator[Judged], options: argparse.Namespace, is_list: bool) -> list[int]:
    records: list[dict[str, object]] = []
    codes: list[int] = []
    for found in judged:
        if isinstance(found, BarographError):
            records.append(versioned("error", {"error": str(found)}))
            continue
        view, diagnosis = found
        record = {**diagnosis.record(view.id, view.name), "path": str(view.location), "steps": view.steps}
        records.append(versioned("doctor", record))
        codes.append(_code_of(diagnosis, options.fail_on))
    print_json(records if is_list else records[0])
    return codes


def _print(judged: Iterator[Judged], options: argparse.Namespace, is_list: bool) -> list[int]:
    from barograph.apps.terminal.doctor import print_diagnosis, print_verdict

    console = make_console()
    codes: list[int] = []
    for found in judged:
        if isinstance(found, BarographError):
            say(str(found) if is_list else f"barograph: {found}", sys.stderr)
            continue
        view, diagnosis = found
        if is_list:
            print_verdict(console, f"{view.info.project}/{view.name}", diagnosis, options.lang)
        else:
            print_diagnosis(console, view, diagnosis, options.lang, options.all)
        codes.append(_code_of(diagnosis, options.fail_on))
    return codes


def _exit_code(severities: Iterable[str], verdicts: Iterable[str], fail_on: str) -> int:
    if any(SEVERITIES.index(severity) >= SEVERITIES.index(fail_on) for severity in severities):
        return FOUND
    return UNJUDGED if all(verdict == "cannot tell" for verdict in verdicts) else 0


def _code_of(diagnosis: Diagnosis, fail_on: str) -> int:
    return _exit_code((finding.severity for finding in diagnosis.findings), [diagnosis.verdict], fail_on)


def _explain(options: argparse.Namespace) -> int:
    if options.explain != "all" and options.explain not in RULES:
        hint = did_you_mean(options.explain, RULES, "list all with --explain all", count=3, quoted=str)
        raise BarographError(f"no rule {options.explain!r}; {hint}")
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
    words = {"needs": signal_words(rule.needs).get(lang), "explains": ", ".join(rule.explains)}
    words["measured"] = rate_of(rule.id).get(lang)
    words["sources"] = "; ".join(rule.words.sources)
    yield from (f"- {advice.get(lang)}" for advice in rule.words.advice)
    if not rule.needs:
        yield WORDS["steps"].get(lang)
    yield from (WORDS[key].format(lang, what=what) for key, what in words.items() if what)


SAVE_EVERY = 200  # runs that are judged or read: what was done before a kill is not done again

MAX_LISTED = 10  # runs that could not be read

FACTS: dict[str, Callable[[Glance], str | None]] = {
    "project": lambda run: run.info.project,
    "group": lambda run: run.info.group,
    "status": lambda run: run.status.word,
}

T = TypeVar("T")

Problems = dict[Path, str]
"""Why runs could not be read, by their paths."""


def run_fleet(options: argparse.Namespace) -> int:
    """Print the sums; return the exit code."""
    dir = _directory(options)
    runs = runs_at(dir)
    if not runs:
        print_problem(f"{dir} has no runs and no logs", options.json)
        return UNJUDGED
    problems: Problems = {}
    configs = ConfigIndex(dir)
    health = _verdicts(dir, runs, configs, problems)
    values = _values([run for run in runs if run.path in health], options.by, configs, problems)
    groups = group_sums(JudgedRun(str(path), value, health[path]) for path, value in values.items())
    if options.json:
        _print_record(dir, options.by, groups, problems)
    else:
        from barograph.apps.terminal.doctor import print_fleet

        print_fleet(groups, options.by, options.lang)
        _tell(problems)
    found = [one for path in values for one in health[path].found or () if one.state != "past"]
    return _exit_code((one.severity for one in found), (health[path].verdict for path in values), options.fail_on)


def _directory(options: argparse.Namespace) -> Path:
    for name in ("source", "all"):
        if getattr(options, name):
            raise BarographError(f"--{name} is about single runs: it cannot be given with --fleet")
    if len(options.runs) > 1:
        raise BarographError(f"--fleet sums up the runs of one directory; got {len(options.runs)}")
    dir = Path(options.runs[0]) if options.runs else directory(options)
    if not dir.is_dir():
        raise BarographError(f"{dir} is not a directory: --fleet sums up the runs of one")
    return dir


def _verdicts(dir: Path, runs: Sequence[Glance], configs: ConfigIndex, problems: Problems) -> dict[Path, Health]:
    """Return the verdicts on runs: those that are known, and the others by a diagnosis. Configs of these are kept."""
    listed = HealthList(dir)

    def known(run: Glance) -> Health | None:
        health = listed.known(run)
        return None if health is None or health.found is None else health

    def judge(run: Glance) -> Health:
        names, view = names_files(run.path), open_run(run.path)
        configs.keep(run, view.config)
        return listed.keep(run, view, doctor(view), names)

    def save() -> None:
        listed.save()
        configs.save()

    return _known_or_read(runs, known, judge, save, Progress("judging runs"), problems)


def _values(runs: Sequence[Glance], by: str | None, index: ConfigIndex, problems: Problems) -> dict[Path, Any]:
    """Return what each run is grouped by: a fact, or the value of a key of its config; None without the key."""
    if by is None or by in FACTS:
        return {run.path: FACTS[by](run) if by else None for run in runs}
    configs = _known_or_read(runs, index.known, index.read, index.save, Progress("reading configs"), problems)
    keys = sorted({key for config in configs.values() for key in config})
    if by not in keys and configs:
        otherwise = f"give {', '.join(FACTS)} or a key of the config"
        hint = did_you_mean(by, [*FACTS, *keys], otherwise, count=3, quoted=str)
        raise BarographError(f"no run has a config with {by!r}; {hint}")
    return {path: config.get(by) for path, config in configs.items()}


def _known_or_read(
    runs: Sequence[Glance],
    known: Callable[[Glance], T | None],
    read: Callable[[Glance], T],
    save: Callable[[], None],
    progress: Progress,
    problems: Problems,
) -> dict[Path, T]:
    """Return something about each run that is known, or else read; also after Ctrl-C, what was read is saved."""
    found = {run.path: known(run) for run in runs}
    unknown = [run for run in runs if found[run.path] is None]
    try:
        for count, run in enumerate(progress.over(unknown)):
            try:
                found[run.path] = read(run)
            except Exception as problem:  # noqa: BLE001 - whatever is in one run, the others are summed up
                problems[run.path] = str(problem) if isinstance(problem, BarographError) else describe_error(problem)
            if count % SAVE_EVERY == SAVE_EVERY - 1:
                save()
    finally:
        save()
    return {path: one for path, one in found.items() if one is not None}


def _print_record(dir: Path, by: str | None, groups: Sequence[GroupSum], problems: Problems) -> None:
    record = {"path": str(dir), "by": by, "runs": sum(group.runs for group in groups)}
    unreadable = [{"path": str(path), "error": error} for path, error in problems.items()]
    print_document("fleet", {**record, "groups": [group.record() for group in groups], "unreadable": unreadable})


def _tell(problems: Problems) -> None:
    for path, error in list(problems.items())[:MAX_LISTED]:
        say(f"not judged: {path}: {error}", sys.stderr)
    if len(problems) > MAX_LISTED:
        say(f"and {counted(len(problems) - MAX_LISTED, 'run')} more, which --json lists", sys.stderr)
