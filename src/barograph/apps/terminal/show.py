"""One run on a terminal: the doctor's verdict and the vital signs first, then warnings, facts, config, and the last
values of metrics with units, extremes and sparklines that keep spikes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from barograph.answers.explanation import unit_of
from barograph.answers.moments import Moment, moments
from barograph.answers.phases import open_phases
from barograph.apps.terminal.doctor import VERDICT_SYMBOLS, looked, since
from barograph.apps.terminal.layout import TableLayout, TextTable, fold
from barograph.apps.terminal.runs import status_text
from barograph.apps.terminal.sparkline import sparkline
from barograph.base.formatting import by_family, counted, flatten, lasted, number, printable, ranges
from barograph.base.model import Status, Writer
from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.resolution import RunNames
from barograph.catalogue.spec import Text as Words
from barograph.delivery.relay.state import DeliveryState, read_delivery_states
from barograph.diagnosis.diagnose import VERDICTS, Diagnosis, Visit
from barograph.diagnosis.signals import Sign
from barograph.importers.summary import names_sentence, run_names, run_warnings
from barograph.journal.view import View

VALUE_SPARK_WIDTH = 24

HEADINGS = ("METRIC", "LAST", "UNIT", "", "MIN", "MAX", "STEP")

LAYOUT = TableLayout(
    "METRIC",
    numbers=("LAST", "MIN", "MAX", "STEP"),
    left_out=(("STEP", 24), ("MIN", 20), ("MAX", 20), ("UNIT", 16), ("", 14)),
    indent="  ",
)


def print_values(console: Console, view: View, names: Sequence[str], meanings: RunNames) -> None:
    """Print the last values of some metrics by family."""
    for family, members in by_family(names):
        console.print(f"\n{printable(family or 'other')}", style="bold", markup=False, highlight=False)
        console.print(values_table(view, family, members, meanings))


def values_table(view: View, family: str, names: Sequence[str], meanings: RunNames) -> TextTable:
    """Return the table of some metrics of one family."""
    rows = [_cells(view, name, family, unit_of(meanings.match(name))) for name in names]
    columns = {heading: column for heading, *column in zip(HEADINGS, *rows, strict=True)}
    if not any(columns["UNIT"]):
        del columns["UNIT"]
    return TextTable(LAYOUT, columns)


def _cells(view: View, name: str, family: str, unit: str) -> tuple[str, ...]:
    series = view.series(name)
    extremes = series.zoom(max_points=1)
    return (
        printable(name.removeprefix(f"{family}/") if family else name),
        number(series.last),
        unit,
        sparkline(series, VALUE_SPARK_WIDTH),
        number(float(extremes.min[0])),
        number(float(extremes.max[0])),
        f"{int(series.steps[-1]):,}",
    )


MAX_VALUES = 20  # metrics whose values are shown without being asked for

MAX_CONFIG_LINES = 8

MAX_WARNINGS = 10  # without --all

MAX_FAMILIES = 40  # of whose metrics the number is said

SPARK_WIDTH = 16

WIDE = 100  # columns from which on signs have sparklines

SIGN_SYMBOLS = {"good": ("✓", "green"), "watch": ("!", "yellow"), "bad": ("✗", "red"), "unknown": ("?", "dim")}

WORDS = {
    "steps": Words("steps {first:,} – {last:,}", "第 {first:,} – {last:,} 步"),
    "no steps": Words("no steps yet", "尚无记录的步"),
    "says more": Words("barograph doctor {run} says more", "详见 barograph doctor {run}"),
    "signs": Words("vital signs", "关键指标"),
    "config": Words("config", "配置"),
    "more": Words("… {count:,} more: barograph show {run} --all", "… 另有 {count:,} 项：barograph show {run} --all"),
    "metrics": Words("metrics", "指标"),
    "families": Words("{count:,} metrics: {families}", "{count:,} 个指标：{families}"),
    "and more": Words("and {count:,} more families", "另有 {count:,} 类"),
    "ask": Words(
        "barograph show {run} --metrics '{family}/*' shows their values, --all everything",
        "barograph show {run} --metrics '{family}/*' 显示其数值，--all 显示全部",
    ),
    "names": Words("{sentence}. barograph names {run} lists the others", "{sentence}。barograph names {run} 列出其余"),
    "ambiguous": Words(
        "{name}: {options}; --source decides, and it is not judged",
        "{name}：{options}；可用 --source 指定，在此之前不作判断",
    ),
    "or": Words(" or ", " 或 "),
}


MAX_RANKS = 8  # of a role, and open phases, that are listed one by one

MAX_MOMENTS = 5  # of a kind

MAX_RANGES = 3  # of ranks with the same status

FACT_WORDS = {
    "id": Words("id", "编号"),
    "project": Words("project", "项目"),
    "started": Words("started", "开始"),
    "writers": Words("writers", "写入进程"),
    "none": Words("none", "无"),
    "path": Words("path", "路径"),
    "log": Words("log", "日志"),
    "format": Words("format", "格式"),
    "reading": Words("reading", "读取"),
    "tracker": Words("tracker {name}", "tracker {name}"),
    "phase": Words("phase", "阶段"),
    "command": Words("command", "命令"),
    "commit": Words("commit", "提交"),
    "changes": Words(", uncommitted changes", "，有未提交的修改"),
    "annotation": Words("annotations", "注记"),
    "restart": Words("restarts", "重启"),
    "config": Words("changes", "配置变更"),
    "checkpoint": Words("checkpoints", "检查点"),
    "at step": Words("step {step:,}: {text}", "第 {step:,} 步：{text}"),
    "last at": Words("{count:,}, the last at step {step:,}", "{count:,} 个，最近在第 {step:,} 步"),
    "tags": Words("tags", "标签"),
    "notes": Words("notes", "备注"),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What ``show`` is asked for: patterns of metrics, or everything; else what fits a screen."""

    run: str  # as the user has named it
    names: Sequence[str]
    is_chosen: bool = False  # by patterns
    everything: bool = False
    lang: str = "en"

    def word(self, key: str, **facts: object) -> str:
        """Return a text in the language."""
        return WORDS[key].format(self.lang, run=self.run, **facts)


def show(console: Console, view: View, shown: Shown) -> None:
    """Print a run: with patterns the values that are asked for, else the verdict and all that a person looks at."""
    meanings = run_names(view)
    _heading(console, view, shown)
    if not shown.is_chosen:
        diagnosis = Visit().diagnose(view, meanings)
        _verdict(console, diagnosis, shown)
        _signs(console, view, diagnosis.signs, shown)
        console.print()
        _warnings(console, run_warnings(view), shown)
        _names(console, meanings, shown)
        _print_pairs(console, run_facts(view, shown.lang).items())
        _config(console, view.config, shown)
    if shown.is_chosen or shown.everything or len(shown.names) <= MAX_VALUES:
        print_values(console, view, shown.names, meanings)
    else:
        _families(console, shown)


def _heading(console: Console, view: View, shown: Shown) -> None:
    began, heard = view.span
    steps, status = view.steps, view.status
    said = shown.word("steps", first=steps[0], last=steps[1]) if steps else shown.word("no steps")
    console.print(printable(view.name), style="bold", end="  ", markup=False, highlight=False)
    console.print(status_text(status), end="  ", markup=False, highlight=False)
    facts = [*([printable(status.reason)] if status.reason else []), said, lasted(began, heard)]
    console.print(" · ".join(facts), style="dim", markup=False, highlight=False)


def _verdict(console: Console, diagnosis: Diagnosis, shown: Shown) -> None:
    """Print what the doctor says, without infos, and how much it could look at."""
    symbol, colour = VERDICT_SYMBOLS[diagnosis.verdict]
    verdict = f"\n{symbol} {VERDICTS[diagnosis.verdict].get(shown.lang)}"
    console.print(verdict, style=colour, end="  ", markup=False, highlight=False)
    more = f"{looked(diagnosis, shown.lang)} · {shown.word('says more')}"
    console.print(printable(more), style="dim", markup=False, highlight=False)
    for finding in (finding for finding in diagnosis.findings if finding.severity != "info"):
        console.print(_hanging("  ! ", _text(f"{since(finding, shown.lang)}: {finding.text.get(shown.lang)}")))
    for reason in diagnosis.reasons:
        console.print(_hanging("  ? ", _text(reason.get(shown.lang), "dim")))


def _signs(console: Console, view: View, signs: Sequence[Sign], shown: Shown) -> None:
    if not signs:
        return
    console.print(f"\n{shown.word('signs')}", style="bold")
    table = Table.grid(padding=(0, 2))
    name_width = max(16, console.width // 4)
    for sign in signs:
        drawn = [_text(sparkline(view.series(sign.name), SPARK_WIDTH))] if console.width >= WIDE else []
        name = _text("\n".join(fold(printable(sign.name), name_width)), "dim")
        title, text = sign.title.get(shown.lang), sign.text.get(shown.lang)
        table.add_row(_text(*SIGN_SYMBOLS[sign.word]), _text(title), *drawn, _text(text), name)
    console.print(Padding(table, (0, 0, 0, 2)))


def _warnings(console: Console, warnings: Sequence[str], shown: Shown) -> None:
    listed = warnings if shown.everything else warnings[:MAX_WARNINGS]
    for text in listed:
        console.print(_hanging("  ! ", _text(text, "yellow")))
    _print_omitted(console, len(warnings) - len(listed), shown)


def _names(console: Console, names: RunNames, shown: Shown) -> None:
    """Print how many names are unknown or undecided; nothing where all have one meaning."""
    if not names.unknown and not names.ambiguous:
        return
    sentence = names_sentence(names).get(shown.lang)
    console.print(_hanging("  ? ", _text(shown.word("names", sentence=sentence), "dim")))
    for name in names.ambiguous:
        meanings = names.resolve(name).meanings
        options = shown.word("or").join(
            f"{REGISTRY.metric(id).title.get(shown.lang)} ({sources[0]})" for id, sources in meanings.items()
        )
        console.print(_hanging("    ", _text(shown.word("ambiguous", name=name, options=options), "dim")))


def _config(console: Console, config: Mapping[str, Any], shown: Shown) -> None:
    lines = list(flatten(config))
    if not lines:
        return
    console.print(f"\n{shown.word('config')}", style="bold")
    listed = lines if shown.everything else lines[:MAX_CONFIG_LINES]
    _print_pairs(console, listed)
    _print_omitted(console, len(lines) - len(listed), shown)


def _families(console: Console, shown: Shown) -> None:
    """Print how many metrics each family has, and how to see them."""
    found = sorted(by_family(shown.names), key=lambda family: -len(family[1]))
    said = [f"{printable(family or 'other')} {len(members):,}" for family, members in found[:MAX_FAMILIES]]
    said += [shown.word("and more", count=len(found) - MAX_FAMILIES)] if len(found) > MAX_FAMILIES else []
    console.print(f"\n{shown.word('metrics')}", style="bold")
    console.print(_hanging("  ", _text(shown.word("families", count=len(shown.names), families=", ".join(said)))))
    family = next((family for family, _ in found if family), "")
    console.print(_hanging("  ", _text(shown.word("ask", family=family), "dim")))


def _print_omitted(console: Console, count: int, shown: Shown) -> None:
    """Print how many of something were left out, if any, and the option that shows them."""
    if count:
        console.print(f"  {printable(shown.word('more', count=count))}", style="dim", markup=False)


def _print_pairs(console: Console, pairs: Iterable[tuple[str, Any]]) -> None:
    """Print keys and values as an indented table."""
    table = Table.grid(padding=(0, 2))
    for key, value in pairs:
        table.add_row(_text("\n".join(fold(printable(key), max(16, console.width // 2))), "dim"), _text(str(value)))
    console.print(Padding(table, (0, 0, 0, 2)))


def _hanging(mark: str, text: Text) -> Table:
    """Return a text after a mark, of which further lines are indented like the first."""
    table = Table.grid()
    table.add_row(_text(mark, "yellow"), text)
    return table


def _text(text: str, style: str = "") -> Text:
    """Return text without interpreting markup; newlines stay in their column."""
    return Text(printable(text, newlines=True), style=style, overflow="fold")


def run_facts(view: View, lang: str) -> dict[str, str]:
    """Return the facts about a run, by their titles."""
    info = view.info
    facts = {
        "id": info.id,
        "project": info.project,
        "started": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.span[0])),
        "writers": ", ".join(_writers(view)) or FACT_WORDS["none"].get(lang),
        "path": str(view.location),
        **_origin(view),
        "phase": _first_phases(open_phases(view)),
        **_source(view, lang),
        **_moments(view, lang),
        "tags": ", ".join(info.tags),
        "notes": info.notes,
    }
    named = {FACT_WORDS[key].get(lang): text for key, text in facts.items() if text}
    deliveries = read_delivery_states(view.path)
    return named | {FACT_WORDS["tracker"].format(lang, name=one.tracker): _delivery(one) for one in deliveries}


def _moments(view: View, lang: str) -> dict[str, str]:
    """Return what happened at which step, of each kind the last few."""
    by_kind: dict[str, list[Moment]] = {}
    for moment in moments(view):
        by_kind.setdefault(moment.kind, []).append(moment)
    saved = by_kind.pop("checkpoint", [])
    facts = {
        kind: "\n".join(
            FACT_WORDS["at step"].format(lang, step=one.step, text=one.text) for one in found[-MAX_MOMENTS:]
        )
        for kind, found in by_kind.items()
    }
    if saved:
        facts["checkpoint"] = FACT_WORDS["last at"].format(lang, count=len(saved), step=saved[-1].step)
    return facts


def _source(view: View, lang: str) -> dict[str, str]:
    """Return command and commit of the training."""
    command, git = view.environment.get("command"), view.environment.get("git")
    facts = {"command": " ".join(command[1:])} if command else {}
    if git:
        changes = "" if git["clean"] else FACT_WORDS["changes"].get(lang)
        facts["commit"] = f"{git['commit'][:12]} ({git['branch']}{changes})"
    return facts


def _origin(view: View) -> dict[str, str]:
    """Return what is known about the log that a run was read from."""
    origin = view.origin
    if origin is None:
        return {}
    facts = {} if view.location != view.path else {"log": origin.path}
    facts["format"] = origin.title
    return facts | ({"reading": "\n".join(origin.notes)} if origin.notes else {})


def _delivery(delivery: DeliveryState) -> str:
    """Describe the state of a tracker's delivery."""
    facts = [delivery.state, f"{counted(delivery.delivered, 'row')} delivered"]
    facts += [f"{delivery.pending} pending"] if delivery.pending else []
    facts += [f"{delivery.dropped:,} rejected"] if delivery.dropped else []
    facts += [f"{counted(delivery.skipped, 'value')} skipped"] if delivery.skipped else []
    error = f": {delivery.error}" if delivery.error and delivery.state != "done" else ""
    return ", ".join(facts) + error + (f"  {delivery.url}" if delivery.url else "")


def _first_phases(phases: Sequence[str]) -> str:
    more = [f"and {len(phases) - MAX_RANKS:,} more"] if len(phases) > MAX_RANKS else []
    return "; ".join([*phases[:MAX_RANKS], *more])


def _writers(view: View) -> Iterator[str]:
    by_role: dict[str, dict[Writer, Status]] = {}
    for writer, status in view.writer_statuses().items():
        by_role.setdefault(writer.role, {})[writer] = status
    for role, statuses in by_role.items():
        if len(statuses) > MAX_RANKS:
            yield _many_ranks(role, statuses)
            continue
        for writer, status in statuses.items():
            attempts = f" (attempt {writer.attempt})" if writer.attempt > 1 else ""
            yield f"{writer}{attempts} {status.word}"


def _many_ranks(role: str, statuses: Mapping[Writer, Status]) -> str:
    """Return the number of ranks with each status; of the rarer ones, which ranks have it."""
    by_word: dict[str, list[int]] = {}
    for writer, status in statuses.items():
        by_word.setdefault(status.word, []).append(writer.rank)
    (most, common), *others = sorted(by_word.items(), key=lambda entry: -len(entry[1]))
    counts = [f"{len(common):,} {most}"] if others else [most]
    counts += [f"{len(ranks):,} {word} ({ranges(ranks, MAX_RANGES)})" for word, ranks in others]
    restarted = sum(writer.attempt > 1 for writer in statuses)
    counts += [f"{restarted:,} restarted"] if restarted else []
    return f"{len(statuses):,} ranks of {role} {', '.join(counts)}"
