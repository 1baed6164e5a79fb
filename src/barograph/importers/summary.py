"""Summary of a run: the meanings of its metric names, and its warnings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from barograph.base.formatting import counted, ranges
from barograph.catalogue.resolution import RunNames
from barograph.catalogue.sources import check_source
from barograph.catalogue.spec import CatalogueError, Text
from barograph.catalogue.user_metrics import taught_names
from barograph.journal.view import View

MAX_REASONS = 3  # ranks that a warning names
WRITE_NAMES = ("dropped", "waiting", "failed_writes", "failed_syncs")
WRITE_COUNTS = frozenset(WRITE_NAMES)
LATE_SECONDS = 60.0  # a rank that is behind for less is no reason for a warning


def run_names(view: View, source: str | None = None) -> RunNames:
    """Return the names of a run with their meanings; ``source`` is the one that the user states."""
    info, stated = view.info, source or view.source
    recorded = info.producer in ("barograph", view.source)  # else it was imported
    return RunNames(
        view.names(),
        source=stated if stated and _is_source(stated) else None,
        prior=f"barograph:{info.vocabulary}" if recorded and _is_source(f"barograph:{info.vocabulary}") else None,
        config=view.config,
        series=lambda name: view.series(name).values,
        taught=taught_names(view.location).matches,
    )


def beside(view: View) -> Path:
    """Return the directory of the runs, or that of the log of another program."""
    return view.path.parent.parent if view.location == view.path else view.location.parent


def names_sentence(names: RunNames) -> Text:
    """Return how many names of a run are known, in a sentence."""
    known, total, undecided = len(names.known), len(names.names), len(names.ambiguous)
    knows, knows_zh = ("all of them", "全部认识") if known == total else (str(known), f"认识其中 {known} 个")
    en = f"this run has {counted(total, 'name')}, and barograph knows {knows}"
    zh = f"该实验有 {total} 个名字，barograph {knows_zh}"
    if undecided:
        listed = names.ambiguous[:MAX_REASONS]
        en += f"; the meaning of {undecided} is not decided: {', '.join(listed)}"
        zh += f"；{undecided} 个含义未定：{'、'.join(listed)}"
    return Text(en, zh)


def _is_source(source: str) -> bool:
    try:
        check_source(source)
    except CatalogueError:
        return False
    return True


def missing(view: View) -> dict[str, str]:
    """Return the reasons why metrics are missing, by name."""
    events = reversed(view.events())  # an event replaces the one before
    found = (event["metrics"] for event in events if event.get("event") == "missing" and event["metrics"])
    return dict(next(found, {}))


def run_warnings(view: View) -> list[str]:
    """Return warnings about a run: skipped values, failed calls, dropped frames, late batches, incomplete rollouts."""
    found = [f"skipped {name!r} {_times(count)}: {_reason(reason)}" for name, (reason, count) in view.skipped().items()]
    found += [f"{problem.call} failed {_times(problem.count)}: {problem.error}" for problem in view.problems()]
    found += _failed_writes(view)
    late = sum(event.get("late", 0) for event in view.events())
    if late:
        batches = counted(late, "batch was", "batches were")
        found.append(f"{batches} measured after the commit of the step and not counted")
    taught = taught_names(view.location).problems
    return [*found, *_missing_ranks(view), *_incomplete_rollouts(view), *view.damage(), *taught]


def _missing_ranks(view: View) -> Iterator[str]:
    """Yield a message for the ranks that do not record, and for each step without the share of a rank."""
    absent: dict[str, list[int]] = {}
    steps: dict[tuple[str, int | None], list[str]] = {}
    found = view.missing_ranks()
    was_killed = bool(found) and view.status.word == "killed"
    for missing in found:
        if missing.step is None:
            absent.setdefault(missing.role, []).append(missing.rank)
        # A step that nobody has contributed to needs no warning where the status says that the run was killed.
        elif time.time() - missing.since > LATE_SECONDS and (missing.share or not was_killed):
            reasons = steps.setdefault((missing.role, missing.step), [])
            reasons += [missing.reason] if missing.reason not in reasons else []
    for role, ranks in absent.items():
        noun, verb = ("ranks", "record") if len(ranks) > 1 else ("rank", "records")
        yield f"{noun} {ranges(ranks)} of role {role} {verb} nothing: merged metrics are those of the other ranks"
    for (_, step), reasons in steps.items():
        more = f" and {counted(len(reasons) - MAX_REASONS, 'more rank')}" if len(reasons) > MAX_REASONS else ""
        yield f"step {step} has no merged metrics of all ranks: {', '.join(reasons[:MAX_REASONS])}{more}"


def _failed_writes(view: View) -> Iterator[str]:
    """Yield what the heartbeats and the end of the run count: frames that were dropped, failed writes and syncs."""
    # Each heartbeat has the total so far, so the numbers must not be added up.
    events = [event for event in view.events() if not WRITE_COUNTS.isdisjoint(event)]
    dropped, waiting, writes, syncs = (max((one.get(name, 0) for one in events), default=0) for name in WRITE_NAMES)
    if dropped:
        yield f"{counted(dropped, 'frame was', 'frames were')} dropped because of failed writes"
    if writes:
        waited = f", and up to {counted(waiting, 'frame')} waited in memory" if waiting else ""
        yield f"{counted(writes, 'write')} failed{waited}; what was not dropped was written later"
    if syncs:
        yield f"{counted(syncs, 'sync')} to the disk failed; rows may be lost if the machine fails"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _reason(reason: str) -> str:
    return "value is None" if reason == "None" else reason  # as recorded by version 0.1


def _incomplete_rollouts(view: View) -> Iterator[str]:
    """Yield a message for each kind of rollout whose last incomplete step is recorded."""
    last = {event["of"]: event for event in view.events() if event.get("event") == "lacking"}
    for kind, event in last.items():
        expected = event["tasks_expected"] or event["tasks_observed"] + event["tasks_failed"]
        missing = max(expected - event["tasks_observed"] - event["tasks_failed"], len(event.get("missing_tasks", ())))
        counts = ((event["tasks_failed"], "failed"), (event["tasks_partial"], "are missing runs"), (missing, "missing"))
        parts = [f"{count} {what}" for count, what in counts if count > 0]
        of_tasks = f"{', '.join(parts)} of {counted(expected, 'task')}"
        problem = of_tasks if parts else f"{counted(event['runs_failed'], 'run')} failed"
        reasons = ", ".join(f"{reason or 'no reason given'} × {n}" for reason, n in event["reasons"].items())
        yield f"{kind} at step {event['step']}: {problem}" + (f" ({reasons})" if reasons else "")
