"""What the doctor says on a terminal: about one run, in a line per run, and of a fleet as a table of rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from barograph.apps.terminal.layout import TableLayout, TextTable
from barograph.apps.terminal.output import make_console
from barograph.apps.terminal.sparkline import sparkline
from barograph.base.formatting import number, printable
from barograph.catalogue.spec import Text
from barograph.diagnosis.diagnose import VERDICTS, Diagnosis, Note, short_reasons
from barograph.diagnosis.fleet import GroupSum, RuleSum
from barograph.journal.findings import SEVERITIES, Finding
from barograph.journal.read.series import Series
from barograph.journal.view import View

if TYPE_CHECKING:
    from rich.console import Console

VERDICT_SYMBOLS = {
    "healthy": ("✓", "green"),
    "watch": ("!", "yellow"),
    "sick": ("✗", "red"),
    "cannot tell": ("?", "dim"),
}

COLOURS = {"critical": "red", "warning": "yellow", "info": ""}

WORDS = {
    "critical": Text("critical", "严重"),
    "warning": Text("warning", "警告"),
    "info": Text("info", "提示"),
    "since": Text("{title}, since step {step}", "{title}，从第 {step} 步起"),
    "when": Text("{title}, {when}", "{title}，{when}"),
    "between": Text("steps {first} to {last}", "第 {first} 到 {last} 步"),
    "at": Text("step {first}", "第 {first} 步"),
    "steps": Text("steps {first} – {last}", "第 {first} – {last} 步"),
    "no steps": Text("no steps", "没有步"),
    "always": Text("always {value}", "恒为 {value}"),
    "range": Text("{low} to {high}", "{low} 到 {high}"),
    "sure": Text("confidence: {how}", "把握：{how}"),
    "low": Text("low", "低"),
    "medium": Text("medium", "中"),
    "high": Text("high", "高"),
    "against": Text("against it: {what}", "反面证据：{what}"),
    "explains": Text("explains: {titles}", "由此导致：{titles}"),
    "next": Text("next: {advice}", "下一步：{advice}"),
    "past": Text("over", "已结束"),
    "fine": Text("looked for, and not found", "已检查，未发现"),
    "unmeasured": Text("could not be looked for", "无法检查"),
    "looked": Text("{count} of {total} rules could look", "{total} 条规则中有 {count} 条能够检查"),
    "comma": Text(", ", "、"),
    "semicolon": Text("; ", "；"),
}

SPARK_WIDTH = 40

LABEL_WIDTH = 10

VERDICT_WIDTH = 14

MAX_DRAWN = 3  # curves of a finding

ONSET = "│"


def print_diagnosis(console: Console, view: View, diagnosis: Diagnosis, lang: str, everything: bool) -> None:
    """Print the verdict, the findings, and what was not found or could not be looked for."""
    symbol, colour = VERDICT_SYMBOLS[diagnosis.verdict]
    _line(console, printable(view.name), "bold", end="  ")
    _line(console, f"{symbol} {VERDICTS[diagnosis.verdict].get(lang)}", colour, end="  ")
    _line(console, _steps(view, lang), "dim", end="  ")
    _line(console, looked(diagnosis, lang), "dim")
    for reason in diagnosis.reasons:
        _block(console, reason.get(lang))
    for finding in diagnosis.findings:
        _print_finding(console, view, finding, lang)
    _print_past(console, diagnosis.past, lang)
    unjudged = diagnosis.unmeasured
    reasons = _texts(unjudged) if everything else short_reasons(unjudged)
    _print_notes(console, WORDS["unmeasured"].get(lang), unjudged, reasons, lang)
    if everything:
        _print_notes(console, WORDS["fine"].get(lang), diagnosis.fine, _texts(diagnosis.fine), lang)
    elif diagnosis.fine:
        _line(console, f"\n{WORDS['fine'].get(lang)}", "bold")
        _block(console, _titles(diagnosis.fine, lang))


def print_verdict(console: Console, name: str, diagnosis: Diagnosis, lang: str) -> None:
    """Print a line about a run: its verdict with its findings, or why there is none."""
    symbol, colour = VERDICT_SYMBOLS[diagnosis.verdict]
    said = [since(finding, lang) for finding in diagnosis.findings if finding.severity != "info"]
    said += [reason.get(lang) for reason in diagnosis.reasons]
    verdict = _padded(f"{symbol} {VERDICTS[diagnosis.verdict].get(lang)}", VERDICT_WIDTH)
    _line(console, verdict, colour, end="")
    _line(console, f"{printable(name)}  {WORDS['semicolon'].get(lang).join(said)}".rstrip(), "")


def _steps(view: View, lang: str) -> str:
    if not view.steps:
        return WORDS["no steps"].get(lang)
    first, last = view.steps
    return WORDS["steps"].format(lang, first=f"{first:,}", last=f"{last:,}")


def looked(diagnosis: Diagnosis, lang: str) -> str:
    """Return how many rules had what they need: a verdict is worth what was looked at."""
    found = {finding.rule for finding in _with_explained((*diagnosis.findings, *diagnosis.past))}
    count = len(found | {note.rule for note in diagnosis.fine})
    return WORDS["looked"].format(lang, count=count, total=count + len(diagnosis.unmeasured))


def _with_explained(findings: Iterable[Finding]) -> Iterable[Finding]:
    for finding in findings:
        yield finding
        yield from finding.explains


def _print_finding(console: Console, view: View, finding: Finding, lang: str) -> None:
    _line(console, "", "")
    _line(console, _padded(WORDS[finding.severity].get(lang), LABEL_WIDTH), COLOURS[finding.severity], end="")
    _line(console, since(finding, lang), "bold")
    _block(console, finding.text.get(lang))
    known = set(view.names())
    drawn = [name for name in dict.fromkeys((finding.name, *finding.evidence)) if name in known][:MAX_DRAWN]
    for name in drawn:
        _block(console, _curve(view.series(name), name, finding.onset, lang))
    if finding.confidence:
        _block(console, _sure(finding, lang))
    if finding.explains:
        _block(console, WORDS["explains"].format(lang, titles=_titles(finding.explains, lang)))
    for advice in finding.advice:
        _block(console, WORDS["next"].format(lang, advice=advice.get(lang)))


def _sure(finding: Finding, lang: str) -> str:
    """Return how sure a finding is, and what speaks against it."""
    said = [WORDS["sure"].format(lang, how=WORDS[finding.confidence].get(lang))]
    if finding.against:
        what = WORDS["comma"].get(lang).join(text.get(lang) for text in finding.against)
        said.append(WORDS["against"].format(lang, what=what))
    return WORDS["semicolon"].get(lang).join(said)


def _curve(series: Series, name: str, onset: int, lang: str) -> str:
    """Return a sparkline with a bar at the onset, the name, and the range of the values."""
    drawn = sparkline(series, SPARK_WIDTH)
    place = int(np.searchsorted(series.steps, onset)) * len(drawn) // max(1, len(series))
    if place:
        drawn = drawn[:place] + ONSET + drawn[place:]
    return f"{drawn}  {printable(name)}  {_range(series, lang)}".rstrip()


def _range(series: Series, lang: str) -> str:
    values = series.values[np.isfinite(series.values)]
    if not len(values):
        return ""
    low, high = (number(float(f"{value:.3g}")) for value in (values.min(), values.max()))
    return WORDS["always"].format(lang, value=low) if low == high else WORDS["range"].format(lang, low=low, high=high)


def _print_past(console: Console, past: Sequence[Finding], lang: str) -> None:
    """Print the findings that are over, a line per rule with its stretches."""
    if past:
        _line(console, f"\n{WORDS['past'].get(lang)}", "bold")
    by_rule: dict[str, list[Finding]] = {}
    for finding in past:
        by_rule.setdefault(finding.rule, []).append(finding)
    for own in sorted(by_rule.values(), key=lambda own: -max(map(_severity, own))):
        worst = max(own, key=_severity)
        _line(console, _padded(WORDS[worst.severity].get(lang), LABEL_WIDTH), COLOURS[worst.severity], end="")
        _line(console, _when(worst, _stretches(own), lang), "")


def _severity(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _stretches(findings: Iterable[Finding]) -> list[tuple[int, int]]:
    """Return the steps of findings; those that overlap are one stretch."""
    found: list[tuple[int, int]] = []
    for first, last in sorted((finding.onset, finding.last) for finding in findings):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def _print_notes(console: Console, title: str, notes: Sequence[Note], texts: Iterable[Text], lang: str) -> None:
    """Print the texts of notes, each once with the rules that it is about."""
    if notes:
        _line(console, f"\n{title}", "bold")
    by_text: dict[Text, list[Note]] = {}
    for note, text in zip(notes, texts, strict=True):
        by_text.setdefault(text, []).append(note)
    for text, same in by_text.items():
        _block(console, f"{_titles(same, lang)} – {text.get(lang)}")


def _texts(notes: Iterable[Note]) -> list[Text]:
    return [note.text for note in notes]


def _titles(named: Iterable[Finding | Note], lang: str) -> str:
    return WORDS["comma"].get(lang).join(dict.fromkeys(one.title.get(lang) for one in named))


def since(finding: Finding, lang: str) -> str:
    """Return the title with the step since which it holds, or with its steps if it is over and has left something."""
    if not finding.is_open:
        return _when(finding, [(finding.onset, finding.last)], lang)
    return WORDS["since"].format(lang, title=finding.title.get(lang), step=finding.onset)


def _when(finding: Finding, stretches: Iterable[tuple[int, int]], lang: str) -> str:
    steps = (
        WORDS["at" if first == last else "between"].format(lang, first=first, last=last) for first, last in stretches
    )
    return WORDS["when"].format(lang, title=finding.title.get(lang), when=WORDS["comma"].get(lang).join(steps))


def _block(console: Console, text: str) -> None:
    """Print an indented text; further lines are indented like the first."""
    from rich.text import Text as Rich

    for line in Rich(printable(text)).wrap(console, max(20, console.width - LABEL_WIDTH)):
        _line(console, " " * LABEL_WIDTH + line.plain.rstrip(), "")


def _line(console: Console, text: str, style: str, end: str = "\n") -> None:
    """Print a line, which a narrow terminal may break and a file never has broken."""
    console.print(text, style=style or None, end=end, markup=False, highlight=False, soft_wrap=True)


def _padded(text: str, width: int) -> str:
    """Return a text in a column; Chinese characters are two columns wide."""
    from rich.cells import cell_len

    return text + " " * max(1, width - cell_len(text))


MAX_GROUPS = 30

FLEET_WORDS = {
    "runs": Text("{count} runs", "{count} 个实验"),
    "run": Text("1 run", "1 个实验"),
    "none": Text("no findings", "没有发现问题"),
    "without": Text("without {by}", "没有 {by}"),
    "more": Text("and {count} more groups, which --json lists", "另有 {count} 组，用 --json 列出"),
}

HEADINGS = {
    "rule": Text("RULE", "规则"),
    "title": Text("WHAT", "问题"),
    "runs": Text("RUNS", "实验"),
    "share": Text("SHARE", "占比"),
    "critical": Text("CRITICAL", "严重"),
    "causes": Text("CAUSES", "为根因"),
    "past": Text("OVER", "已结束"),
    "onset": Text("ONSET", "起始步"),
    "first": Text("FIRST", "最早"),
    "last": Text("LAST", "最晚"),
}

LEFT_OUT = (("past", 24), ("causes", 24), ("rule", 20), ("first", 16), ("last", 16), ("critical", 12))


def print_fleet(groups: Sequence[GroupSum], by: str | None, lang: str) -> None:
    """Print the verdicts on each group, and its rules with what they found."""
    shown = groups[:MAX_GROUPS]
    tables = [rules_table(group.rules, lang) if group.rules else None for group in shown]
    console = make_console(file_width=max((table.width for table in tables if table is not None), default=None))
    for place, (group, table) in enumerate(zip(shown, tables, strict=True)):
        if place:
            console.print()
        console.print(_group_heading(group, by, lang), style="bold", markup=False, highlight=False, soft_wrap=True)
        console.print(table or f"  {FLEET_WORDS['none'].get(lang)}", style="dim" if table is None else None)
    if len(groups) > MAX_GROUPS:
        console.print(FLEET_WORDS["more"].format(lang, count=len(groups) - MAX_GROUPS), style="dim")


def _group_heading(group: GroupSum, by: str | None, lang: str) -> str:
    """Return the value of a group with the number of its runs and their verdicts."""
    runs = FLEET_WORDS["run" if group.runs == 1 else "runs"].format(lang, count=f"{group.runs:,}")
    words = (f"{count:,} {VERDICTS[word].get(lang)}" for word, count in group.verdicts.items() if count)
    counts = f"{runs}: {', '.join(words)}"
    return counts if by is None else f"{_value(group.value, by, lang)}  {counts}"


def _value(value: Any, by: str, lang: str) -> str:
    if value is None:
        return FLEET_WORDS["without"].format(lang, by=printable(by))
    return f"{printable(by)} = {printable(str(value))}"


def rules_table(rules: Sequence[RuleSum], lang: str) -> TextTable:
    """Return the table of what rules found."""
    heads = {key: text.get(lang) for key, text in HEADINGS.items()}
    layout = TableLayout(
        heads["title"],
        numbers=[heads[key] for key in HEADINGS if key not in ("rule", "title")],
        left_out=[(heads[key], least) for key, least in LEFT_OUT],
        indent="  ",
    )
    rows = [_cells(rule, lang) for rule in rules]
    return TextTable(layout, {heads[key]: [row[key] for row in rows] for key in HEADINGS})


def _cells(rule: RuleSum, lang: str) -> dict[str, str]:
    onset = rule.onset
    steps = {"onset": "–", "first": "–", "last": "–"}
    if onset is not None:
        steps = {"onset": number(onset.median), "first": f"{onset.first:,}", "last": f"{onset.last:,}"}
    counts = {"runs": rule.runs, "critical": rule.critical, "causes": rule.causes, "past": rule.past}
    cells = {"rule": rule.rule, "title": rule.title.get(lang), "share": f"{rule.share:.1%}", **steps}
    return cells | {key: f"{count:,}" for key, count in counts.items()}
