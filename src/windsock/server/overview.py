"""The first picture of a run: how it is doing, in words, curves and shares of time."""

from __future__ import annotations

from typing import Any

from windsock.catalogue.headline import Headline, HeadlineValue, headline_values, headlines
from windsock.catalogue.registry import REGISTRY, vocabulary_name
from windsock.catalogue.spec import CatalogueError, Text
from windsock.catalogue.verdicts import WORDS, Verdict
from windsock.readable import Readable
from windsock.server.answers import said
from windsock.server.library import Opened
from windsock.server.naming import charts, metric_records, source
from windsock.server.phases import shares
from windsock.server.pictures import Wanted, Window, draw, series_of
from windsock.summary import known_names, missing, run_warnings, verdicts

SEVERITY = ("bad", "watch", "good", "unknown")
TIME_POINTS = 100


def overview(opened: Opened, points: int) -> dict[str, Any]:
    """Return all that the first picture needs."""
    view, whose = opened.view, source(opened)
    names = view.names()
    known = known_names(names)
    signs = headline_values(known, whose)
    judged = verdicts(view, whose, known)
    triples = {chart.main: chart.lines for chart in charts(_siblings(known, signs), whose)}
    absent = [_absent(vital, view) for vital in headlines() if vital.key not in signs]
    ids = [verdict.metric for verdict in judged] + [sign.match.metric.id for sign in signs.values()]
    return {
        "steps": view.steps,
        "span": view.span,
        "version": opened.version,
        "names": len(names),
        "source": whose,
        "health": health(judged),
        "crucial": [verdict_record(verdict) for verdict in judged],
        "vital": [_vital(opened, sign, triples.get(sign.name, {}), points) for sign in signs.values()],
        "absent": absent,
        "metrics": metric_records([*ids, *(id for one in absent for id in one["metrics"])]),
        "time": shares(opened, Window(TIME_POINTS)),
        "notices": run_warnings(view),
        "writers": writer_records(view),
    }


def writer_records(view: Readable) -> list[dict[str, Any]]:
    """Return how the newest attempt of every role and rank is doing."""
    return [
        {
            "role": writer.role,
            "rank": writer.rank,
            "attempt": writer.attempt,
            "status": status.word,
            "reason": status.reason,
        }
        for writer, status in view.writer_statuses().items()
    ]


def health(judged: list[Verdict]) -> dict[str, Any]:
    """Return the worst word among the verdicts, and how often each word was said."""
    counts = {word: sum(verdict.word == word for verdict in judged) for word in WORDS}
    worst = next((word for word in SEVERITY if counts.get(word)), "unknown")
    return {"word": worst, "verdict": said(WORDS[worst]), "counts": counts}


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON."""
    return {
        "key": verdict.key,
        "title": said(verdict.title),
        "name": verdict.name,
        "metric": verdict.metric,
        "word": verdict.word,
        "verdict": said(WORDS[verdict.word]),
        "text": said(verdict.text),
        "note": said(verdict.note),
    }


def _siblings(names: list[str], signs: dict[str, HeadlineValue]) -> list[str]:
    """Return the names among which those of a sign's band are: whoever wrote them, they begin or end alike."""
    wanted = {sign.name for sign in signs.values()}
    stems = {name.rpartition("/")[0] for name in wanted}
    return [name for name in names if name in wanted or name.rpartition("/")[0] in stems]


def _vital(opened: Opened, sign: HeadlineValue, lines: dict[str, str], points: int) -> dict[str, Any]:
    series = series_of(opened, Wanted("", sign.name))
    names = lines if len(lines) > 1 else {"line": sign.name}
    difference = sign.match.name.difference
    key = opened.entry.key
    return {
        "key": sign.headline.key,
        "title": said(sign.headline.title),
        "name": sign.name,
        "names": names,
        "metric": sign.match.metric.id,
        "here": dict(sign.match.filled),
        "note": said(difference.note) if difference else None,
        "first": float(series.values[0]),
        "last": series.last,
        "step": int(series.steps[-1]),
        "points": len(series),
        "others": list(sign.others[:50]),
        "curves": {what: draw(opened, Wanted(key, name), Window(points)).record() for what, name in names.items()},
    }


def _absent(vital: Headline, view: Readable) -> dict[str, Any]:
    reasons, known = missing(view), None
    for id in vital.metrics:
        known = known or reasons.get(id) or reasons.get(_written(id, view.info.vocabulary))
    needs = REGISTRY.metric(vital.metrics[0]).needs
    listed = ", ".join(need.replace("|", " or ") for need in needs if not need.endswith("?"))
    if known:
        reason = Text(f"Not measured: {known}.", f"未测得：{known}。")
    elif listed:
        reason = Text(f"This run does not log it. It needs {listed}.", f"该实验没有记录。它需要 {listed}。")
    else:
        reason = Text("This run does not log it.", "该实验没有记录。")
    return {
        "key": vital.key,
        "title": said(vital.title),
        "metrics": list(vital.metrics),
        "reason": said(reason),
        "needs": list(needs),
    }


def _written(id: str, vocabulary: str) -> str:
    try:
        return vocabulary_name(REGISTRY.metric(id), vocabulary).pattern
    except CatalogueError:
        return id
