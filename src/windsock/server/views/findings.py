"""The Findings view of a run: what the doctor found, since when, with the charts to look at, and what it checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from windsock.catalogue.names import Match
from windsock.diagnosis.diagnose import VERDICTS, Diagnosis, Note, short_reasons
from windsock.diagnosis.health import WORDS
from windsock.errors import MetricNotFoundError
from windsock.findings import Finding
from windsock.journal.series import Series
from windsock.moments import moments
from windsock.server.responses import bilingual
from windsock.server.runs.open_runs import OpenRun
from windsock.server.views import curves
from windsock.server.views.charts import Chart, family_of, metric_records
from windsock.server.views.curves import SeriesRequest, read_series


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
    series = _series(opened, opened.view.names()[0]) if found and opened.view.names() else None
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
    return _places(opened, _series(opened, name), step)


def _series(opened: OpenRun, name: str) -> Series | None:
    try:
        return read_series(opened, SeriesRequest("", name))
    except MetricNotFoundError:
        return None


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
