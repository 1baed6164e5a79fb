"""``windsock doctor DIR --fleet``: the findings of all runs of a directory, summed up by rule."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from windsock.catalogue.taught import names_files
from windsock.cli.arguments import directory
from windsock.cli.json_output import print_document, print_problem
from windsock.cli.runs_at import runs_at
from windsock.diagnosis.doctor import doctor
from windsock.diagnosis.fleet import GroupSum, JudgedRun, group_sums
from windsock.diagnosis.health import Health
from windsock.diagnosis.health_list import HealthList
from windsock.diagnosis.run_configs import ConfigIndex
from windsock.errors import WindsockError
from windsock.findings import SEVERITIES
from windsock.formatting import counted, describe_error
from windsock.journal.run_facts import Glance
from windsock.opening import open_run
from windsock.terminal.output import Progress, say

FOUND, UNJUDGED = 1, 2  # exit codes
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
        from windsock.terminal.fleet import print_fleet

        print_fleet(groups, options.by, options.lang)
        _tell(problems)
    return _exit_code([health[path] for path in values], options.fail_on)


def _directory(options: argparse.Namespace) -> Path:
    for name in ("source", "all"):
        if getattr(options, name):
            raise WindsockError(f"--{name} is about single runs: it cannot be given with --fleet")
    if len(options.runs) > 1:
        raise WindsockError(f"--fleet sums up the runs of one directory; got {len(options.runs)}")
    dir = Path(options.runs[0]) if options.runs else directory(options)
    if not dir.is_dir():
        raise WindsockError(f"{dir} is not a directory: --fleet sums up the runs of one")
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
        near = difflib.get_close_matches(by, [*FACTS, *keys], 3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"give {', '.join(FACTS)} or a key of the config"
        raise WindsockError(f"no run has a config with {by!r}; {hint}")
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
        for count, run in enumerate(unknown):
            progress.show(count, len(unknown))
            try:
                found[run.path] = read(run)
            except Exception as problem:  # noqa: BLE001 - whatever is in one run, the others are summed up
                problems[run.path] = str(problem) if isinstance(problem, WindsockError) else describe_error(problem)
            if count % SAVE_EVERY == SAVE_EVERY - 1:
                save()
        progress.show(len(unknown), len(unknown))
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


def _exit_code(verdicts: Sequence[Health], fail_on: str) -> int:
    worst = SEVERITIES[SEVERITIES.index(fail_on) :]
    if any(one.severity in worst and one.state != "past" for health in verdicts for one in health.found or ()):
        return FOUND
    return UNJUDGED if all(health.verdict == "cannot tell" for health in verdicts) else 0
