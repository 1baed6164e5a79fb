"""The overview of a run and its findings: the verdict, what was found with its curves, what was checked, headline
values, and time by phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from barograph.answers.moments import moments
from barograph.answers.open_run import OpenRun, SeriesRequest, Window
from barograph.answers.records import writer_records
from barograph.answers.responses import bilingual
from barograph.answers.views import curves
from barograph.answers.views.charts import Chart, family_of, group_into_charts, logged_band, metric_records
from barograph.answers.views.curves import make_curve
from barograph.answers.views.phases import phase_seconds
from barograph.catalogue.headline import HeadlineValue, headline_values, headlines, undecided_values
from barograph.catalogue.names import Match
from barograph.catalogue.registry import REGISTRY, vocabulary_name
from barograph.catalogue.resolution import Resolution, RunNames
from barograph.catalogue.spec import CatalogueError, Headline, Text
from barograph.diagnosis import signals
from barograph.diagnosis.diagnose import VERDICTS, Diagnosis, Note, short_reasons
from barograph.diagnosis.health import WORDS
from barograph.importers.summary import missing, run_warnings
from barograph.journal.findings import Finding
from barograph.journal.read.series import Series
from barograph.journal.view import View


def findings_view(opened: OpenRun) -> dict[str, Any]:
    """Return the diagnosis of a run with the charts of its evidence."""
    diagnosis, meanings = opened.diagnosis(), opened.meanings()
    logged = set(opened.view.names())
    names = dict.fromkeys(name for one in _all(diagnosis) for name in one.evidence if name in logged)
    charts = [_chart(name, meanings.match(name)) for name in names]
    return {
        "steps": opened.view.steps,
        "health": verdict_of(diagnosis),
        "findings": [finding.record() for finding in diagnosis.findings],
        "past": [finding.record() for finding in diagnosis.past],
        "fine": [_note(note) for note in diagnosis.fine],
        "unmeasured": _unmeasured(diagnosis.unmeasured),
        "marks": marks(opened, diagnosis),
        "moments": moment_records(opened),
        "charts": {chart.key: chart.record() for chart in charts},
        "metrics": metric_records(chart.match.metric.id if chart.match else None for chart in charts),
        "axes": [x for x in curves.AXES if curves.has_axis(opened, x)],
    }


def verdict_of(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the verdict, with its reasons where the doctor cannot tell."""
    return {
        "word": WORDS[diagnosis.verdict],
        "verdict": bilingual(VERDICTS[diagnosis.verdict]),
        "reasons": [bilingual(reason) for reason in diagnosis.reasons],
    }


def checked(diagnosis: Diagnosis) -> dict[str, int]:
    """Return the number of rules that found nothing, and of those that could not judge."""
    return {"fine": len(diagnosis.fine), "unmeasured": len(diagnosis.unmeasured)}


def marks(opened: OpenRun, diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return from where to where on each x axis the findings are, for the charts; also those that are over."""
    return [
        {
            "rule": finding.rule,
            "severity": finding.severity,
            "title": bilingual(finding.title),
            "onset": finding.onset,
            "is_open": finding.is_open,
            "from": _positions(opened, finding.name, finding.onset),
            "to": _positions(opened, finding.name, finding.last),
        }
        for finding in _all(diagnosis)
    ]


def moment_records(opened: OpenRun) -> list[dict[str, Any]]:
    """Return annotations, restarts, checkpoints and changes of the config with their places on each x axis."""
    found = moments(opened.view)
    series = opened.find_series(opened.view.names()[0]) if found and opened.view.names() else None
    return [{**asdict(moment), "from": _places(opened, series, moment.step)} for moment in found]


def _all(diagnosis: Diagnosis) -> Iterator[Finding]:
    """Yield all findings, each before those that it explains."""

    def below(findings: Iterable[Finding]) -> Iterator[Finding]:
        for finding in findings:
            yield finding
            yield from below(finding.explains)

    yield from below((*diagnosis.findings, *diagnosis.past))


def _chart(name: str, match: Match | None) -> Chart:
    return Chart(name, family_of(name, match), match, {"line": name})


def _positions(opened: OpenRun, name: str, step: int) -> dict[str, float]:
    """Return the place of a step of a series on each x axis; only on that of steps where there is no such series."""
    return _places(opened, opened.find_series(name), step)


def _places(opened: OpenRun, series: Series | None, step: int) -> dict[str, float]:
    if series is None:
        return {"step": step}
    place = min(int(np.searchsorted(series.steps, step)), len(series) - 1)
    return {x: curves.position(opened, series, place, x) for x in curves.AXES if curves.has_axis(opened, x)}


def _unmeasured(notes: Sequence[Note]) -> list[dict[str, Any]]:
    """Return why rules could not judge; related ones have the same short reason."""
    reasons = zip(notes, short_reasons(notes), strict=True)
    return [{**_note(note), "reason": bilingual(reason)} for note, reason in reasons]


def _note(note: Note) -> dict[str, Any]:
    return {"rule": note.rule, "title": bilingual(note.title), "text": bilingual(note.text)}


TIME_POINTS = 100

MAX_EVIDENCE = 3  # curves of the first findings


def overview(opened: OpenRun, points: int) -> dict[str, Any]:
    """Return everything that the overview shows."""
    view, meanings = opened.view, opened.meanings()
    names = view.names()
    values = headline_values(meanings)
    undecided = undecided_values(meanings)
    triples = {chart.main: chart.lines for chart in group_into_charts(_siblings(meanings.known, values), meanings)}
    diagnosis = opened.diagnosis()
    reasons = missing(view)
    absent = [
        _absent(headline, view, reasons, undecided.get(headline.key), meanings)
        for headline in headlines()
        if headline.key not in values
    ]
    crucial = [sign.record() for sign in diagnosis.signs]
    vital = [_headline_record(opened, value, triples.get(value.name, {}), points) for value in values.values()]
    _tell_apart([*crucial, *vital])
    found = [finding for finding in diagnosis.findings if finding.severity != "info"]
    ids = [sign.metric for sign in diagnosis.signs] + [value.match.metric.id for value in values.values()]
    return {
        "steps": view.steps,
        "span": view.span,
        "version": opened.version,
        "names": len(names),
        "unknown": len(meanings.unknown),
        "ambiguous": meanings.ambiguous,
        "source": meanings.source,
        "health": health(diagnosis),
        "findings": [finding.record() for finding in found],
        "evidence": _evidence(opened, found, meanings, points),
        "marks": marks(opened, diagnosis),
        "moments": moment_records(opened),
        "checked": checked(diagnosis),
        "crucial": crucial,
        "vital": vital,
        "absent": absent,
        "metrics": metric_records([*ids, *(id for one in absent for id in one["metrics"])]),
        "time": phase_seconds(opened, Window(TIME_POINTS)),
        "notices": run_warnings(view),
        "writers": writer_records(view),
    }


def _evidence(opened: OpenRun, found: list[Finding], meanings: RunNames, points: int) -> list[dict[str, Any]]:
    """Return the curves that findings stand on: of every finding the first two, as long as there is room."""
    logged = set(opened.view.names())
    pairs = [(one, name) for one in found for name in [name for name in one.evidence if name in logged][:2]]
    return [
        {
            "finding": {"rule": finding.rule, "onset": finding.onset},
            "name": name,
            "title": _title(name, meanings),
            "curve": make_curve(opened, SeriesRequest(opened.location.key, name), Window(points)).record(),
        }
        for finding, name in pairs[:MAX_EVIDENCE]
    ]


def _title(name: str, meanings: RunNames) -> dict[str, str]:
    """Return the title of what a name means; the name itself where that is not known."""
    match = meanings.match(name)
    return asdict(match.metric.title if match else Text(name, name))


def _tell_apart(values: list[dict[str, Any]]) -> None:
    """Give values of different metrics with one title the titles of their metrics: Score and Shaped reward."""
    metrics: dict[str, set[str]] = {}
    for value in values:
        metrics.setdefault(value["title"]["en"], set()).add(value["metric"])
    for value in values:
        if len(metrics[value["title"]["en"]]) > 1:
            value["title"] = bilingual(REGISTRY.metric(value["metric"]).title)


def health(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the doctor's verdict with its reasons, and the number of crucial values with each word."""
    counts = {word: sum(sign.word == word for sign in diagnosis.signs) for word in signals.WORDS}
    return {**verdict_of(diagnosis), "counts": counts}


def _siblings(names: list[str], values: dict[str, HeadlineValue]) -> list[str]:
    """Return the names that share a stem with a headline value: its maximum and minimum are among them."""
    wanted = {value.name for value in values.values()}
    stems = {name.rpartition("/")[0] for name in wanted}
    return [name for name in names if name in wanted or name.rpartition("/")[0] in stems]


def _headline_record(opened: OpenRun, value: HeadlineValue, lines: dict[str, str], points: int) -> dict[str, Any]:
    series = opened.series(value.name)
    names = lines if len(lines) > 1 else {"line": value.name}
    difference = value.match.name.difference
    key = opened.location.key
    return {
        "key": value.headline.key,
        "title": bilingual(value.headline.title),
        "name": value.name,
        "names": names,
        "metric": value.match.metric.id,
        "here": dict(value.match.filled),
        "note": bilingual(difference.note) if difference else None,
        "band": logged_band(value.match),
        "first": float(series.values[0]),
        "last": series.last,
        "step": int(series.steps[-1]),
        "points": len(series),
        "others": list(value.others[:50]),
        "curves": {
            what: make_curve(opened, SeriesRequest(key, name), Window(points)).record() for what, name in names.items()
        },
    }


def _absent(
    headline: Headline, view: View, reasons: Mapping[str, str], undecided: Resolution | None, names: RunNames
) -> dict[str, Any]:
    known = None
    for id in headline.metrics:
        # The recorded reasons are by the name that would have been written, which is the id where there is no other.
        known = known or reasons.get(id) or reasons.get(_written(id, view.info.vocabulary))
    needs = REGISTRY.metric(headline.metrics[0]).needs
    listed = ", ".join(need.replace("|", " or ") for need in needs if not need.endswith("?"))
    if known:
        reason = Text(f"Not measured: {known}.", f"未测得：{known}。")
    elif undecided is not None:
        reason = _undecided(undecided)
    elif headline.key == "kl" and names.config.reference_kl_off:
        off = names.config.reference_kl_off
        reason = Text(f"It is not computed: the config has {off}.", f"不计算：配置中有 {off}。")
    elif names.unknown:
        reason = Text(
            f"Under no name that barograph knows; unknown names of this run: {len(names.unknown)}.",
            f"barograph 认识的名字中没有它；该实验另有 {len(names.unknown)} 个未知的名字。",
        )
    elif listed:
        reason = Text(f"This run does not log it. It needs {listed}.", f"该实验没有记录。它需要 {listed}。")
    else:
        reason = Text("This run does not log it.", "该实验没有记录。")
    return {
        "key": headline.key,
        "title": bilingual(headline.title),
        "metrics": list(headline.metrics),
        "reason": bilingual(reason),
        "needs": list(needs),
    }


def _undecided(resolution: Resolution) -> Text:
    """Return the meanings that a name can have, and what decides between them."""
    metrics = {id: REGISTRY.metric(id).title for id in resolution.meanings}
    sources = [found[0] for found in resolution.meanings.values()]
    en = " or ".join(f"{title.en} ({source})" for title, source in zip(metrics.values(), sources, strict=True))
    zh = "，或 ".join(f"{title.zh}（{source}）" for title, source in zip(metrics.values(), sources, strict=True))
    return Text(
        f"{resolution.name} may be {en}. source={sources[0]} or another decides.",
        f"{resolution.name} 可能是 {zh}。用 source={sources[0]} 等指定。",
    )


def _written(id: str, vocabulary: str) -> str:
    try:
        return vocabulary_name(REGISTRY.metric(id), vocabulary).pattern
    except CatalogueError:
        return id
