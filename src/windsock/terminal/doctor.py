"""A diagnosis on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windsock.catalogue.spec import Text
from windsock.diagnosis.diagnose import VERDICTS, Diagnosis, Note
from windsock.findings import Finding
from windsock.formatting import printable
from windsock.terminal.sparkline import sparkline
from windsock.view import View

if TYPE_CHECKING:
    from rich.console import Console

SYMBOLS = {"healthy": ("✓", "green"), "watch": ("!", "yellow"), "sick": ("✗", "red"), "cannot tell": ("?", "dim")}
COLOURS = {"critical": "red", "warning": "yellow", "info": ""}
WORDS = {
    "critical": Text("critical", "严重"),
    "warning": Text("warning", "警告"),
    "info": Text("info", "提示"),
    "since": Text("since step {step}", "从第 {step} 步起"),
    "between": Text("steps {first} to {last}", "第 {first} 到 {last} 步"),
    "explains": Text("explains", "由此导致"),
    "next": Text("next", "下一步"),
    "past": Text("over", "已结束"),
    "fine": Text("looked at, and fine", "已检查，正常"),
    "unmeasured": Text("could not be judged", "无法判断"),
    "steps": Text("steps", "步"),
}
SPARK_WIDTH = 40
LABEL_WIDTH = 10


def print_diagnosis(console: Console, view: View, diagnosis: Diagnosis, lang: str, everything: bool) -> None:
    """Print the verdict, the findings, and what was fine or could not be judged."""
    symbol, colour = SYMBOLS[diagnosis.verdict]
    steps = f"{view.steps[0]:,} – {view.steps[1]:,}" if view.steps else "0"
    verdict = VERDICTS[diagnosis.verdict].get(lang)
    _line(console, printable(view.name), "bold", end="  ")
    _line(console, f"{symbol} {verdict}", colour, end="  ")
    _line(console, f"{steps} {_word('steps', lang)}", "dim")
    for reason in diagnosis.reasons:
        _block(console, "", reason.get(lang), lang)
    for finding in diagnosis.findings:
        _print_finding(console, view, finding, lang)
    if diagnosis.past:
        _line(console, f"\n{_word('past', lang)}", "bold")
        for finding in diagnosis.past:
            when = _word("between", lang).format(first=finding.onset, last=finding.last)
            _block(console, finding.severity, f"{finding.title.get(lang)}, {when}", lang)
    _print_notes(console, _word("unmeasured", lang), diagnosis.unmeasured, lang)
    if everything:
        _print_notes(console, _word("fine", lang), diagnosis.fine, lang)
    elif diagnosis.fine:
        titles = ", ".join(note.title.get(lang) for note in diagnosis.fine)
        _line(console, f"\n{_word('fine', lang)}", "bold")
        _block(console, "", titles, lang)


def print_verdict(console: Console, name: str, diagnosis: Diagnosis, lang: str) -> None:
    """Print a line about a run: its verdict and its findings."""
    symbol, colour = SYMBOLS[diagnosis.verdict]
    said = [
        f"{finding.title.get(lang)} ({_word('since', lang).format(step=finding.onset)})"
        for finding in diagnosis.findings
        if finding.severity != "info"
    ]
    _line(console, f"{symbol} {VERDICTS[diagnosis.verdict].get(lang):<12}", colour, end="")
    _line(console, f"{printable(name)}  {'; '.join(said)}".rstrip(), "")


def _print_finding(console: Console, view: View, finding: Finding, lang: str) -> None:
    since = _word("since", lang).format(step=finding.onset)
    _line(console, "", "")
    _line(console, f"{_word(finding.severity, lang):<{LABEL_WIDTH}}", COLOURS[finding.severity], end="")
    _line(console, f"{finding.title.get(lang)}, {since}", "bold")
    _block(console, "", finding.text.get(lang), lang)
    if finding.name in view.names():
        drawn = sparkline(view.series(finding.name), SPARK_WIDTH)
        _block(console, "", f"{drawn}  {printable(finding.name)}", lang)
    if finding.explains:
        titles = ", ".join(one.title.get(lang) for one in finding.explains)
        _block(console, "", f"{_word('explains', lang)}: {titles}", lang)
    for advice in finding.advice:
        _block(console, "", f"{_word('next', lang)}: {advice.get(lang)}", lang)


def _print_notes(console: Console, title: str, notes: Sequence[Note], lang: str) -> None:
    if notes:
        _line(console, f"\n{title}", "bold")
    by_text: dict[str, list[str]] = {}
    for note in notes:
        by_text.setdefault(note.text.get(lang), []).append(note.title.get(lang))
    for text, titles in by_text.items():
        _block(console, "", f"{', '.join(titles)}: {text}", lang)


def _block(console: Console, label: str, text: str, lang: str) -> None:
    """Print an indented text; further lines are indented like the first."""
    from rich.padding import Padding
    from rich.text import Text as Rich

    if label:
        _line(console, f"{_word(label, lang):<{LABEL_WIDTH}}", COLOURS[label], end="")
        console.print(Rich(printable(text)))
    else:
        console.print(Padding(Rich(printable(text)), (0, 0, 0, LABEL_WIDTH)))


def _line(console: Console, text: str, style: str, end: str = "\n") -> None:
    console.print(text, style=style or None, end=end, markup=False, highlight=False)


def _word(key: str, lang: str) -> str:
    return WORDS[key].get(lang)
