"""The overview of a run: verdicts, vital signs with curves, and time by phase."""

from __future__ import annotations

from typing import Any

from windsock.catalogue.headline import Headline, HeadlineValue, headline_values, headlines
from windsock.catalogue.registry import REGISTRY, vocabulary_name
from windsock.catalogue.spec import CatalogueError, Text
from windsock.catalogue.verdicts import WORDS, Verdict
from windsock.readable import Readable
from windsock.server.responses import bilingual
from windsock.server.runs.open_runs import OpenRun
from windsock.server.views.charts import group_into_charts, metric_records, name_source
from windsock.server.views.curves import SeriesRequest, Window, make_curve, read_series
from windsock.server.views.phases import phase_seconds
from windsock.summary import known_names, missing, notices, verdicts

SEVERITY = ("bad", "watch", "good", "unknown")
TIME_POINTS = 100


def overview(opened: OpenRun, points: int) -> dict[str, Any]:
    """Return everything that the overview shows."""
    view, source = opened.view, name_source(opened)
    names = view.names()
    known = known_names(names)
    signs = headline_values(known, source)
    judged = verdicts(view, source, known)
    triples = {chart.main: chart.lines for chart in group_into_charts(_siblings(known, signs), source)}
    absent = [_absent(headline, view) for headline in headlines() if headline.key not in signs]
    ids = [verdict.metric for verdict in judged] + [sign.match.metric.id for sign in signs.values()]
    return {
        "steps": view.steps,
        "span": view.span,
        "version": opened.version,
        "names": len(names),
        "source": source,
        "health": health(judged),
        "crucial": [verdict_record(verdict) for verdict in judged],
        "vital": [_vital(opened, sign, triples.get(sign.name, {}), points) for sign in signs.values()],
        "absent": absent,
        "metrics": metric_records([*ids, *(id for one in absent for id in one["metrics"])]),
        "time": phase_seconds(opened, Window(TIME_POINTS)),
        "notices": notices(view),
        "writers": writer_records(view),
    }


def writer_records(view: Readable) -> list[dict[str, Any]]:
    """Return the status of the newest attempt of every role and rank."""
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
    """Return the worst verdict, and the number of verdicts of each kind."""
    counts = {word: sum(verdict.word == word for verdict in judged) for word in WORDS}
    worst = next((word for word in SEVERITY if counts.get(word)), "unknown")
    return {"word": worst, "verdict": bilingual(WORDS[worst]), "counts": counts}


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as a JSON record."""
    return {
        "key": verdict.key,
        "title": bilingual(verdict.title),
        "name": verdict.name,
        "metric": verdict.metric,
        "word": verdict.word,
        "verdict": bilingual(WORDS[verdict.word]),
        "text": bilingual(verdict.text),
        "note": bilingual(verdict.note),
    }


def _siblings(names: list[str], signs: dict[str, HeadlineValue]) -> list[str]:
    """Return the names that share a stem with a vital sign: its maximum and minimum are among them."""
    wanted = {sign.name for sign in signs.values()}
    stems = {name.rpartition("/")[0] for name in wanted}
    return [name for name in names if name in wanted or name.rpartition("/")[0] in stems]


def _vital(opened: OpenRun, sign: HeadlineValue, lines: dict[str, str], points: int) -> dict[str, Any]:
    series = read_series(opened, SeriesRequest("", sign.name))
    names = lines if len(lines) > 1 else {"line": sign.name}
    difference = sign.match.name.difference
    key = opened.location.key
    return {
        "key": sign.headline.key,
        "title": bilingual(sign.headline.title),
        "name": sign.name,
        "names": names,
        "metric": sign.match.metric.id,
        "here": dict(sign.match.filled),
        "note": bilingual(difference.note) if difference else None,
        "first": float(series.values[0]),
        "last": series.last,
        "step": int(series.steps[-1]),
        "points": len(series),
        "others": list(sign.others[:50]),
        "curves": {
            what: make_curve(opened, SeriesRequest(key, name), Window(points)).record() for what, name in names.items()
        },
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
        "title": bilingual(vital.title),
        "metrics": list(vital.metrics),
        "reason": bilingual(reason),
        "needs": list(needs),
    }


def _written(id: str, vocabulary: str) -> str:
    try:
        return vocabulary_name(REGISTRY.metric(id), vocabulary).pattern
    except CatalogueError:
        return id
