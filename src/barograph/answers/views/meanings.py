"""The names of a run: all of them as charts, what they mean, and what would decide or teach the others."""

from __future__ import annotations

from functools import cache
from typing import Any

from barograph.answers.open_run import OpenRun
from barograph.answers.records import writer_triples
from barograph.answers.responses import bilingual
from barograph.answers.views.charts import family_records, group_into_charts, guess_record, metric_records
from barograph.answers.views.curves import available_axes
from barograph.catalogue.describe import label
from barograph.catalogue.names import Match
from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.resolution import Resolution, RunNames
from barograph.catalogue.sources import all_sources, signs_of
from barograph.catalogue.spec import FRAMEWORKS, OURS
from barograph.catalogue.user_metrics import FILE, config_file, nearest, template
from barograph.importers.summary import beside


def names_view(opened: OpenRun) -> dict[str, Any]:
    """Return every metric of a run as charts with explanations."""
    view, meanings = opened.view, opened.meanings()
    names = view.names()
    found = group_into_charts(names, meanings)
    return {
        "version": opened.version,
        "source": meanings.source,
        "unknown": meanings.unknown,
        "ambiguous": meanings.ambiguous,
        "names": len(names),
        "families": family_records(found),
        "charts": [chart.record() for chart in found],
        "metrics": metric_records(chart.match.metric.id if chart.match else None for chart in found),
        "histograms": view.histogram_names(),
        "axes": available_axes(view),
        "writers": writer_triples(view),
    }


MAX_LISTED = 300  # unknown names with similar ones

SIMILAR = 3


def meanings_view(opened: OpenRun) -> dict[str, Any]:
    """Return what each name of a run means, and why some have no meaning."""
    view, names = opened.view, opened.meanings()
    known = {name: match for name in names.known if (match := names.match(name)) is not None}
    return {
        "version": opened.version,
        "names": len(names.names),
        "source": names.source,
        "chosen": opened.source,
        "recorded": view.source,
        "sources": source_records(),
        "known": [_known(name, match) for name, match in known.items()],
        "ambiguous": [resolution_record(names.resolve(name)) for name in names.ambiguous],
        "unknown": [_unknown(name) for name in names.unknown[:MAX_LISTED]],
        "unknown_count": len(names.unknown),
        "metrics": metric_records(match.metric.id for match in known.values()),
        "files": [str(beside(view).resolve() / FILE), str(config_file())],
        "template": _template(names),
    }


@cache
def source_records() -> list[dict[str, Any]]:
    """Return the sources that can be chosen, with their titles."""
    return [{"source": source, "title": _title(source)} for source in all_sources()]


def _title(source: str) -> dict[str, str]:
    is_framework = source in (*OURS, *FRAMEWORKS)
    return {lang: label("producers" if is_framework else "eras", source, lang) for lang in ("en", "zh")}


def resolution_record(resolution: Resolution) -> dict[str, Any]:
    """Return the meanings that a name can have in a run, with their sources, and what would decide."""
    return {
        "name": resolution.name,
        "meanings": [_meaning(id, sources) for id, sources in resolution.meanings.items()],
        "reasons": [bilingual(reason) for reason in resolution.reasons],
    }


def _meaning(id: str, sources: tuple[str, ...]) -> dict[str, Any]:
    metric = REGISTRY.metric(id)
    return {
        "metric": id,
        "title": bilingual(metric.title),
        "about": bilingual(metric.about),
        "sources": list(sources),
        "signs": {source: bilingual(signs) for source in sources if (signs := signs_of(source)) is not None},
    }


def _known(name: str, match: Match) -> dict[str, Any]:
    difference = match.name.difference
    note = bilingual(difference.note) if difference else None
    return {"name": name, "metric": match.metric.id, "id": match.id, "source": match.source, "note": note}


def _unknown(name: str) -> dict[str, Any]:
    return {"name": name, "nearest": nearest(name, SIMILAR), "guessed": guess_record(name)}


def _template(names: RunNames) -> str:
    """Return a file to describe the names in that have no meaning."""
    ambiguous = {name: names.resolve(name).meanings for name in names.ambiguous}
    return "\n".join(template(names.unknown[:MAX_LISTED], ambiguous))
