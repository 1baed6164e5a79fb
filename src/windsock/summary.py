"""What a run's own records say about it: whose names it speaks, how its crucial values are, what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from windsock.catalogue.names import detect, recognise
from windsock.catalogue.spec import PRODUCERS
from windsock.catalogue.verdicts import Verdict, is_judged, judge_crucial_values
from windsock.readable import Readable


def known_names(names: Iterable[str]) -> list[str]:
    """Return the names that anybody is known to write: there is no more to be learned about the others."""
    return [name for name in names if recognise(name).matches]


def source_of(view: Readable, names: Sequence[str]) -> str | None:
    """Return whose names a run uses, as ``recognise`` takes it: its own word where that explains as many as a guess."""
    info, known = view.info, known_names(names)
    said = f"windsock:{info.vocabulary}" if info.producer == "windsock" else info.producer
    said_known = _count(known, said) if said.partition("/")[0] in PRODUCERS else -1
    guessed = detect(names).source
    guessed_known = _count(known, guessed) if guessed else 0
    return said if said_known >= guessed_known else guessed


def _count(names: Iterable[str], source: str) -> int:
    return sum(bool(recognise(name, source).matches) for name in names)


def verdicts(view: Readable, source: str | None = None, names: Sequence[str] | None = None) -> list[Verdict]:
    """Judge the crucial values of a run, by whose names it uses; ``names`` are those to look at, where not all."""
    names = known_names(view.names()) if names is None else names
    source = source or source_of(view, view.names())
    return judge_crucial_values({name: view.series(name).values for name in names if is_judged(name, source)}, source)


def missing(view: Readable) -> dict[str, str]:
    """Return why metrics that could be measured are not there, by the names they would have."""
    told = [event["metrics"] for event in view.events() if event.get("event") == "missing" and event.get("metrics")]
    return dict(told[-1]) if told and isinstance(told[-1], dict) else {}


def notices(view: Readable) -> list[str]:
    """Say what is not as it should be: values skipped, frames dropped, bytes damaged."""
    found = [f"skipped {name!r} {_times(count)}: {reason}" for name, (reason, count) in view.skipped().items()]
    found += [f"{problem.call} failed {_times(problem.count)}: {problem.error}" for problem in view.problems()]
    dropped = max((int(event.get("dropped", 0)) for event in view.events()), default=0)
    if dropped:
        found.append(f"{dropped} frames were dropped because they could not be written")
    late = sum(int(event.get("late", 0)) for event in view.events())
    if late:
        found.append(f"{late} batches were measured for steps that were committed already, and are not counted")
    return [*found, *_lacking(view), *view.damage()]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _lacking(view: Readable) -> Iterator[str]:
    """Say of each thing that was gathered what lacked when it last did."""
    last = {event["of"]: event for event in view.events() if event.get("event") == "lacking"}
    for of, event in last.items():
        expected = event["tasks_expected"] or event["tasks_observed"] + event["tasks_failed"]
        never = max(expected - event["tasks_observed"] - event["tasks_failed"], len(event.get("missing_tasks", ())))
        parts = [
            f"{count} {what}"
            for count, what in (
                (event["tasks_failed"], "failed"),
                (event["tasks_partial"], "lack runs"),
                (never, "never came"),
            )
            if count > 0
        ]
        reasons = ", ".join(f"{reason or 'no reason given'} × {n}" for reason, n in event["reasons"].items())
        told = f"{', '.join(parts)} of {expected} tasks" if parts else f"{event['runs_failed']} runs failed"
        yield f"{of} at step {event['step']}: {told}" + (f" ({reasons})" if reasons else "")


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a nested config as dotted keys and values."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
