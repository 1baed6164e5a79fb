"""A report that a person writes: notes, charts of several runs and tables of them, from Markdown.

The page draws the record.
"""

from __future__ import annotations

import fnmatch
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from barograph.answers.comparison import ComparedRun, compared_run, comparison
from barograph.answers.groups import RunSeries, read_curves
from barograph.answers.open_run import RunSource
from barograph.answers.reports.notes import (
    NotesBlock,
    OptionError,
    choice_option,
    number_option,
    parse_notes,
    range_option,
    split_list,
    title_of,
)
from barograph.answers.responses import bilingual, interval_record, to_strict_json
from barograph.answers.runs.table import SEEDS
from barograph.answers.views.charts import metric_records
from barograph.base import __version__
from barograph.base.errors import RequestError
from barograph.catalogue.headline import HeadlineValue, headline_values, headlines
from barograph.catalogue.spec import Text
from barograph.metrics.comparison import is_label, is_seed, mean_interval, seed_of, setting_digest

MAX_RUNS = 64
MAX_BLOCKS = 200
MAX_ITEMS = 64  # names in a line
MAX_SELECTIONS = 40  # of runs, each of which is compared
MAX_TEXT = 200_000  # characters
MAX_KEYS = 4  # config keys that a table has by itself, and a group in its name
NO_GROUPS = "none"
SIZES = ("normal", "wide", "full")


@dataclass(frozen=True, slots=True)
class ComparedSelection:
    """Some runs compared, in groups of which each has a line; a run that is alone is a group too."""

    compared: Mapping[str, ComparedRun]
    charts: Sequence[Mapping[str, Any]]
    groups: Sequence[Mapping[str, Any]]
    headlines: Mapping[str, Mapping[str, HeadlineValue]]
    """The headline values of each run."""

    @property
    def is_grouped(self) -> bool:
        """Whether a group has several runs."""
        return any(len(group["keys"]) > 1 for group in self.groups)

    def find(self, name: str) -> Mapping[str, Any] | None:
        """Return the chart of a name as logged, of the id of a metric, or of a headline value such as reward."""
        tests = (
            lambda chart: chart["key"] == name,
            lambda chart: any(line["name"] == name for line in chart["lines"]),
            lambda chart: chart["metric"] == name,
            lambda chart: any(line["name"] == self._headline(line["run"], name) for line in chart["lines"]),
        )
        return next((chart for test in tests for chart in self.charts if test(chart)), None)

    def _headline(self, run: str, key: str) -> str | None:
        found = self.headlines[run].get(key)
        return found.name if found else None


@dataclass(slots=True)
class _Writing:
    """A report while its record is made: ``names`` are those of all runs that it can show."""

    runs: RunSource
    names: Mapping[str, str]
    keys: tuple[str, ...]
    by: str = SEEDS
    shown: dict[str, None] = field(default_factory=dict)  # keys of runs, in the order in which they come
    metrics: dict[str, Any] = field(default_factory=dict)
    selections: dict[tuple[tuple[str, ...], str], ComparedSelection] = field(default_factory=dict)

    def record(self, block: NotesBlock) -> dict[str, Any]:
        """Return the record of a block; what is wrong with it is told in its place."""
        problems: list[Text] = []
        facts = {"kind": block.kind, "source": block.source, "line": block.line}
        if block.kind == "chart":
            facts |= self._chart(block, problems)
        elif block.kind == "runs":
            facts |= self._table(block, problems)
        return {**facts, "problems": [bilingual(problem) for problem in problems]}

    def _chart(self, block: NotesBlock, problems: list[Text]) -> dict[str, Any]:
        options = block.options
        wanted = split_list(options["runs"]) if "runs" in options else None
        keys = self._matching(wanted, problems) if wanted is not None else self.keys
        selection = self._selection(keys, options.get("by") or self.by, problems)
        charts = [(name, selection.find(name)) for name in block.items[:MAX_ITEMS]]
        against = selection.find(options["against"]) if "against" in options else None
        charts.append((options.get("against", ""), against))
        problems += [_no_metric(name) for name, chart in charts if name and chart is None]
        found = [chart for _, chart in charts[:-1] if chart is not None]
        self.metrics |= metric_records(chart["metric"] for chart in (*found, against) if chart is not None)
        return {
            "panel": _panel(block, [chart["key"] for chart in found], against, problems),
            "wanted": {"metrics": block.items, "runs": wanted, "by": options.get("by"), **_texts(options)},
            "runs": list(selection.compared),
            "charts": found,
            "against": against,
            "groups": selection.groups if selection.is_grouped and against is None else None,
        }

    def _table(self, block: NotesBlock, problems: list[Text]) -> dict[str, Any]:
        self.by = block.options.get("by") or self.by
        if block.items:
            self.keys = self._matching(block.items, problems)
        selection = self._selection(self.keys, self.by, problems)
        asked = split_list(block.options.get("columns", ""))[:MAX_ITEMS]
        columns = list(asked) or list(_own_columns(selection))
        charts = {name: selection.find(name) for name in columns}
        cells = {name: self._values(selection, name, chart) for name, chart in charts.items()}
        problems += [_no_metric(name) for name in asked if not cells[name]]
        found = {name: chart for name, chart in charts.items() if chart is not None}
        self.metrics |= metric_records(chart["metric"] for chart in found.values())
        return {
            "wanted": {"runs": block.items, "by": block.options.get("by"), "columns": asked},
            "runs": list(selection.compared),
            "columns": [{"key": name, "metric": found[name]["metric"] if name in found else None} for name in columns],
            "groups": selection.groups,
            "rows": [[_cell(group["keys"], cells[name]) for name in columns] for group in selection.groups],
        }

    def _values(self, selection: ComparedSelection, name: str, chart: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the value of each run in a column: its config's, or the last one of a metric."""
        configs = {key: run.config for key, run in selection.compared.items()}
        if any(name in config for config in configs.values()):
            return {key: config[name] for key, config in configs.items() if name in config}
        lines = [RunSeries(line["run"], line["name"], line["factor"]) for line in chart["lines"]] if chart else []
        curves = read_curves(self.runs, lines)
        return {line.run: _last(values) for line, (_, values) in curves.items() if len(values)}

    def _matching(self, wanted: Sequence[str], problems: list[Text]) -> tuple[str, ...]:
        """Return the runs with these keys, names or patterns of names, in their order."""
        found: dict[str, None] = {}
        for pattern in wanted[:MAX_ITEMS]:
            keys = [key for key, name in self.names.items() if pattern in (key, name)]
            keys = keys or [key for key, name in self.names.items() if fnmatch.fnmatchcase(name, pattern)]
            if not keys:
                problems.append(Text(f"no run is called {pattern!r}", f"没有名为 {pattern!r} 的实验"))
            found |= dict.fromkeys(keys)
        if len(found) > MAX_RUNS:
            problems.append(
                Text(
                    f"{len(found)} runs: the first {MAX_RUNS} are shown", f"{len(found)} 个实验：只显示前 {MAX_RUNS} 个"
                )
            )
        return tuple(found)[:MAX_RUNS]

    def _selection(self, keys: tuple[str, ...], by: str, problems: list[Text]) -> ComparedSelection:
        known = self.selections.get((keys, by))
        if known is None:
            if len(self.selections) >= MAX_SELECTIONS:
                raise RequestError(413, f"the charts are of more than {MAX_SELECTIONS} different selections of runs")
            compared = self._readable(keys, problems)
            same = (one.charts for (others, _), one in self.selections.items() if others == keys)
            charts = next(same, None) or (comparison(list(compared.values()))["charts"] if compared else [])
            groups = list(_groups(compared, split_list(by)))
            headlines = {key: self._headlines(key, run) for key, run in compared.items()}
            known = self.selections[keys, by] = ComparedSelection(compared, charts, groups, headlines)
            self.shown |= dict.fromkeys(compared)
        return known

    def _readable(self, keys: Iterable[str], problems: list[Text]) -> dict[str, ComparedRun]:
        """Return what a comparison needs of some runs; of one that cannot be read, the reason is told."""
        found = {}
        for key in keys:
            try:
                (found[key],) = compared_runs(self.runs, [key])
            except RequestError as problem:
                problems.append(Text(str(problem), f"{self.names[key]} 无法读取：{problem}"))
        return found

    def _headlines(self, key: str, run: ComparedRun) -> Mapping[str, HeadlineValue]:
        with self.runs.use(key) as opened:
            return opened.cached("headlines", lambda: headline_values(run.meanings))

    def run_record(self, key: str) -> dict[str, Any]:
        """Return what a legend says about a run."""
        with self.runs.use(key) as opened:
            view = opened.view
            return {
                "key": key,
                "name": self.names[key],
                "status": view.status.word,
                "last_step": (view.steps or (None, None))[1],
            }


def written_report(
    text: str, runs: RunSource, names: Mapping[str, str], keys: Sequence[str], title: str = ""
) -> dict[str, Any]:
    """Return the record of a report; ``keys`` are the runs of charts that name none, ``names`` those of all runs."""
    if len(text) > MAX_TEXT:
        raise RequestError(413, f"the notes have {len(text)} characters; at most {MAX_TEXT} are read")
    blocks = parse_notes(text)
    if len(blocks) > MAX_BLOCKS:
        raise RequestError(413, f"the notes have {len(blocks)} parts; at most {MAX_BLOCKS} are read")
    writing = _Writing(runs, names, tuple(dict.fromkeys(key for key in keys if key in names))[:MAX_RUNS])
    records = [writing.record(block) for block in blocks]
    return {
        "barograph": __version__,
        "made": time.time(),
        "title": title_of(blocks) or title,
        "text": text,
        "blocks": records,
        "metrics": writing.metrics,
        "runs": [writing.run_record(key) for key in writing.shown],
    }


def compared_runs(runs: RunSource, keys: Iterable[str]) -> list[ComparedRun]:
    """Return what a comparison needs of some runs."""
    found = []
    for key in keys:
        with runs.use(key) as opened:
            found.append(opened.cached("compared", lambda opened=opened: compared_run(opened)))  # type: ignore[misc]
    return found


def plain_notes(title: str, compared: Iterable[ComparedRun], keys: Sequence[str] = (), charts: int = 100) -> str:
    """Return notes of which nothing is written yet: the runs, all or those with ``keys``, and headline charts."""
    logged = {key for run in compared for key in headline_values(run.meanings)}
    first = [headline.key for headline in headlines() if headline.key in logged][:charts]
    runs = [", ".join(keys)] if keys else []
    blocks = ["\n".join(("```runs", *runs, "```")), *(f"```chart\n{key}\n```" for key in first)]
    return "\n\n".join((f"# {title}", *blocks)) + "\n"


def _panel(
    block: NotesBlock, metrics: list[str], against: Mapping[str, Any] | None, problems: list[Text]
) -> dict[str, Any]:
    """Return how a chart is drawn, as the page describes a panel; options that are not understood are left out."""
    given = block.options
    panel: dict[str, Any] = {"metrics": metrics, "title": given.get("title") or None}
    readers: dict[str, Callable[[str], dict[str, Any]]] = {
        "y": lambda text: dict(zip(("low", "high"), range_option("y", text), strict=True)),
        "steps": lambda text: _steps(*range_option("steps", text)),
        "scale": lambda text: {"log": choice_option("scale", text, ("linear", "log")) == "log"},
        "smooth": lambda text: {"smooth": number_option("smooth", text, 0.0, 0.99)},
        "size": lambda text: {"size": choice_option("size", text, SIZES)},
        "points": lambda text: {"kind": choice_option("points", text, ("steps", "runs"))},
    }
    for name, read in readers.items():
        try:
            panel |= read(given[name]) if given.get(name) else {}
        except OptionError as problem:
            problems.append(problem.text)
    if against is not None:
        panel |= {"against": against["key"], "kind": panel.get("kind", "steps")}
    else:
        panel.pop("kind", None)
    return {name: value for name, value in panel.items() if value is not None}


def _steps(low: float | None, high: float | None) -> dict[str, int | None]:
    return {"from": None if low is None else math.floor(low), "to": None if high is None else math.ceil(high)}


def _texts(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that a form shows as they are written."""
    return {name: text for name, text in options.items() if name not in ("runs", "by")}


def _groups(compared: Mapping[str, ComparedRun], by: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield groups of runs: by seeds, by values of config keys, or every run alone."""
    found: dict[Any, list[str]] = {}
    for key, run in compared.items():
        if tuple(by) == (SEEDS,):
            place: Any = setting_digest(run.config) or key
        else:
            place = key if tuple(by) == (NO_GROUPS,) else repr([run.config.get(name) for name in by])
        found.setdefault(place, []).append(key)
    firsts = [compared[keys[0]].config for keys in found.values()]
    names = list(_varying(firsts)) if tuple(by) == (SEEDS,) else [name for name in by if name != NO_GROUPS]
    for keys, config in zip(found.values(), firsts, strict=True):
        seeds = {seed_of(compared[key].config) for key in keys} - {None}
        is_named = len(keys) > 1 or tuple(by) not in ((SEEDS,), (NO_GROUPS,))
        label = [[name, config.get(name)] for name in names] if is_named else []
        yield {"keys": keys, "seeds": len(seeds), "label": to_strict_json(label)}


def _varying(configs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the first config keys in which runs differ, without seeds and names."""
    keys = dict.fromkeys(key for config in configs for key in config if not is_seed(key) and not is_label(key))
    differing = (key for key in keys if len({repr(config.get(key)) for config in configs}) > 1)
    for _, key in zip(range(MAX_KEYS), differing, strict=False):
        yield key


def _own_columns(selection: ComparedSelection) -> Iterator[str]:
    """Yield the columns of a table that names none: config keys that differ, validation and reward."""
    yield from _varying([selection.compared[group["keys"][0]].config for group in selection.groups])
    for key in ("validation", "reward"):
        if selection.find(key) is not None:
            yield key


def _cell(keys: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the value that all runs of a group have, or the mean of numbers with its interval."""
    found = [values[key] for key in keys if key in values]
    if not found:
        return None
    if all(value == found[0] and type(value) is type(found[0]) for value in found):
        return {"same": to_strict_json(found[0])}
    if all(isinstance(value, float | int) and not isinstance(value, bool) for value in found):
        return {"mean": to_strict_json(interval_record(mean_interval(found)))}
    return None


def _last(values: Any) -> float:
    """Return the last finite value of a series; NaN if there is none."""
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else math.nan


def _no_metric(name: str) -> Text:
    return Text(f"none of the runs has {name[:100]!r}", f"这些实验都没有 {name[:100]!r}")
