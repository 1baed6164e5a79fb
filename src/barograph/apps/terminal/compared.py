"""A comparison of runs on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.apps.terminal.doctor import VERDICT_SYMBOLS
from barograph.apps.terminal.layout import TableLayout, TextTable
from barograph.base.formatting import duration, number, printable
from barograph.catalogue.spec import Text
from barograph.diagnosis.diagnose import VERDICTS

if TYPE_CHECKING:
    from rich.console import Console

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
METRICS = TableLayout("METRIC", ("LAST", "DIFFERENCE"), (("DIFFERENCE", 8),), indent="  ")
SETTINGS = TableLayout("SETTING", (), (), indent="  ")
PHASES = TableLayout("PHASE", (), (), indent="  ")
RUNS = TableLayout("FINDINGS", (), (), indent="  ")
WORDS = {
    "config": Text("config", "配置"),
    "same config": Text("no setting differs", "配置没有差别"),
    "metrics": Text("metrics, at the last common step", "指标（取最后的共同步）"),
    "no metrics": Text("no metric is common", "没有共同的指标"),
    "findings": Text("findings", "问题"),
    "phases": Text("phases, seconds per step", "阶段，每步秒数"),
    "seeds": Text("{count} runs: {runs}", "{count} 个实验：{runs}"),
    "better": Text("better", "更好"),
    "worse": Text("worse", "更差"),
    "higher": Text("higher", "更高"),
    "lower": Text("lower", "更低"),
    "undecided": Text("not decided", "无法区分"),
    "too few": Text("too few seeds to say", "种子太少，无法判断"),
    "nothing": Text("no value", "没有数值"),
    "since": Text("{title} (step {step})", "{title}（第 {step} 步）"),
}


def print_comparison(console: Console, compared: Mapping[str, Any], lang: str) -> None:
    """Print groups, settings that differ, metrics with their differences to the first group, findings and phases."""
    letters = {group["name"]: _letter(place) for place, group in enumerate(compared["groups"])}
    for group in compared["groups"]:
        runs = ", ".join(group["runs"])
        more = f"  {WORDS['seeds'].format(lang, count=len(group['runs']), runs=runs)}" if len(group["runs"]) > 1 else ""
        _line(console, f"{letters[group['name']]}  {printable(group['name'])}{printable(more)}")
    _print_config(console, compared["config"], letters, lang)
    _heading(console, "metrics", lang)
    rows = [row for metric in compared["metrics"] for row in _metric_rows(metric, letters, lang)]
    _table(console, METRICS, ("METRIC", "", "LAST", "DIFFERENCE", " "), rows, "no metrics", lang)
    _heading(console, "findings", lang)
    judged = [_run_row(run, letters, lang) for run in compared["runs"]]
    _table(console, RUNS, ("", "VERDICT", "RUN", "FINDINGS"), judged, "nothing", lang)
    phases = [(printable(name), *_seconds(of_group, letters)) for name, of_group in compared["phases"].items()]
    if phases:
        _heading(console, "phases", lang)
        _table(console, PHASES, ("PHASE", *letters.values()), phases, "nothing", lang)


def _print_config(console: Console, config: Mapping[str, Any], letters: Mapping[str, str], lang: str) -> None:
    _heading(console, "config", lang)
    rows = [
        (printable(key), *(printable(str(values[group])) if group in values else "–" for group in letters))
        for key, values in config.items()
    ]
    _table(console, SETTINGS, ("SETTING", *letters.values()), rows, "same config", lang)


def _metric_rows(metric: Mapping[str, Any], letters: Mapping[str, str], lang: str) -> Iterator[tuple[str, ...]]:
    for place, (group, measures) in enumerate(metric["groups"].items()):
        last = measures["last"]
        difference = last["difference"]
        said = "" if difference is None else WORDS[difference["word"]].get(lang)
        yield (
            "" if place else printable(metric["name"]),
            letters[group],
            _mean(last),
            "" if difference is None else _signed(difference),
            said,
        )


def _mean(measure: Mapping[str, Any]) -> str:
    if measure["mean"] is None:
        return "–"
    half = f" ± {_short(measure['high'] - measure['mean'])}" if measure["high"] is not None else ""
    return _short(measure["mean"]) + half


def _signed(difference: Mapping[str, Any]) -> str:
    if difference["mean"] is None:
        return "–"
    ends = difference["low"], difference["high"]
    between = f" ({_short(ends[0])} to {_short(ends[1])})" if None not in ends else ""
    return f"{'+' if difference['mean'] > 0 else ''}{_short(difference['mean'])}{between}"


def _run_row(run: Mapping[str, Any], letters: Mapping[str, str], lang: str) -> tuple[str, ...]:
    found = [WORDS["since"].format(lang, title=one["title"][lang], step=one["onset"]) for one in run["findings"]]
    verdict = f"{VERDICT_SYMBOLS[run['verdict']][0]} {VERDICTS[run['verdict']].get(lang)}"
    return letters[run["group"]], verdict, printable(run["name"]), "; ".join(found)


def _seconds(of_group: Mapping[str, Any], letters: Mapping[str, str]) -> Iterator[str]:
    for group in letters:
        yield duration(of_group[group]["mean"]) if group in of_group else "–"


def _table(
    console: Console,
    layout: TableLayout,
    headings: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    none: str,
    lang: str,
) -> None:
    if not rows:
        _line(console, f"  {WORDS[none].get(lang)}")
        return
    columns = {heading: column for heading, *column in zip(headings, *rows, strict=True)}
    console.print(TextTable(layout, columns))


def _heading(console: Console, key: str, lang: str) -> None:
    console.print(f"\n{WORDS[key].get(lang)}", style="bold", markup=False, highlight=False)


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _letter(place: int) -> str:
    return LETTERS[place] if place < len(LETTERS) else f"#{place + 1}"


def _short(value: float) -> str:
    return number(float(f"{value:.3g}"))
