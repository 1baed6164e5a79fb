"""The findings of a fleet on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windsock.catalogue.spec import Text
from windsock.diagnosis.diagnose import VERDICTS
from windsock.diagnosis.fleet import GroupSum, RuleSum
from windsock.formatting import number, printable
from windsock.terminal.output import make_console
from windsock.terminal.text_table import Layout, TextTable

MAX_GROUPS = 30
WORDS = {
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
        console.print(_heading(group, by, lang), style="bold", markup=False, highlight=False, soft_wrap=True)
        console.print(table or f"  {WORDS['none'].get(lang)}", style="dim" if table is None else None)
    if len(groups) > MAX_GROUPS:
        console.print(WORDS["more"].get(lang).format(count=len(groups) - MAX_GROUPS), style="dim")


def _heading(group: GroupSum, by: str | None, lang: str) -> str:
    """Return the value of a group with the number of its runs and their verdicts."""
    runs = WORDS["run" if group.runs == 1 else "runs"].get(lang).format(count=f"{group.runs:,}")
    words = (f"{count:,} {VERDICTS[word].get(lang)}" for word, count in group.verdicts.items() if count)
    counts = f"{runs}: {', '.join(words)}"
    return counts if by is None else f"{_value(group.value, by, lang)}  {counts}"


def _value(value: Any, by: str, lang: str) -> str:
    if value is None:
        return WORDS["without"].get(lang).format(by=printable(by))
    return f"{printable(by)} = {printable(str(value))}"


def rules_table(rules: Sequence[RuleSum], lang: str) -> TextTable:
    """Return the table of what rules found."""
    heads = {key: text.get(lang) for key, text in HEADINGS.items()}
    layout = Layout(
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
