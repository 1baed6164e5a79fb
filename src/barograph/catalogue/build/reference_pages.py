"""Reference pages of the metrics, docs/metrics*.md, with the share of the names of real training logs that the
catalogue knows.

``python -m barograph.catalogue build`` writes the pages, ``… coverage FOLDER`` measures that share on a folder of
``RUN/series.csv`` files.
"""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barograph.catalogue.build.declarations import DATA
from barograph.catalogue.build.entries import read_versions
from barograph.catalogue.describe import MENTION, band_text, eras, facts, families, label, name_lines, related_notes
from barograph.catalogue.registry import REGISTRY, load_compiled
from barograph.catalogue.resolution import RunNames
from barograph.catalogue.sources import COMMON
from barograph.catalogue.spec import FRAMEWORKS, CatalogueError, Metric, Text

COVERAGE_FILE = DATA / "coverage.toml"


@dataclass(slots=True)
class SourceCoverage:
    """The logs of one framework: runs, different names, the known ones, and those that are missing or undecided."""

    framework: str
    runs: int = 0
    names: int = 0
    known: int = 0
    missing: list[str] = field(default_factory=list)


def measure_coverage(folder: Path) -> list[SourceCoverage]:
    """Measure the share of known names on the logs of a folder; ``truth.json`` beside them names their frameworks."""
    truth = folder / "truth.json"
    frameworks = {one["id"]: one["framework"] for one in json.loads(truth.read_text())} if truth.is_file() else {}
    found: dict[str, SourceCoverage] = {}
    seen: dict[str, set[str]] = {}
    for file in sorted(folder.glob("*/series.csv")):
        names = _run_names(file)
        framework = str(frameworks.get(file.parent.name) or names.producer or "other").partition(" (")[0]
        coverage, known = found.setdefault(framework, SourceCoverage(framework)), seen.setdefault(framework, set())
        coverage.runs += 1
        missing = {*names.unknown, *names.ambiguous}
        for name in (name for name in names.names if name not in known):
            coverage.names += 1
            coverage.known += name not in missing
            coverage.missing += [name] if name in missing else []
        known.update(names.names)
    return sorted(found.values(), key=lambda one: one.framework.lower())


def _run_names(file: Path) -> RunNames:
    with file.open() as opened:
        rows = list(csv.DictReader(opened))
    series = {name: [float(row[name]) for row in rows if row[name]] for name in rows[0]}
    return RunNames(series, series=lambda name: series[name])


def write_coverage(found: list[SourceCoverage]) -> Path:
    """Write what was measured."""
    lines = ["# Names of real logs that are known; written by python -m barograph.catalogue coverage.\n"]
    for one in found:
        counts = f"runs = {one.runs}\nnames = {one.names}\nknown = {one.known}"
        lines.append(f"[{json.dumps(one.framework)}]\n{counts}\nmissing = {json.dumps(one.missing)}\n")
    COVERAGE_FILE.write_text("\n".join(lines), encoding="utf-8")
    return COVERAGE_FILE


def read_coverage() -> list[SourceCoverage]:
    """Return what was measured last."""
    tables = tomllib.loads(COVERAGE_FILE.read_text(encoding="utf-8"))
    return [SourceCoverage(framework, **values) for framework, values in tables.items()]


FILES = {"en": "metrics.md", "zh": "metrics.zh.md"}

_SUFFIXES = ("mean", "max", "min", "std")

BEGINNINGS = {"en": DATA / "reference_pages.md", "zh": DATA / "reference_pages.zh.md"}

_CRUCIAL = Text(
    "## The crucial values\n\n"
    "A few values show whether a run is healthy. `barograph show RUN` judges those that the run logs.\n\n"
    "| value | should | metric |\n|---|---|---|",
    "## 关键指标\n\n少数几个指标就能看出实验是否正常。`barograph show RUN` 会对其中已记录的逐一给出判断。\n\n"
    "| 指标 | 应当 | 对应的 metric |\n|---|---|---|",
)

_ERAS = Text("## Eras\n\n| writer | meaning |\n|---|---|", "## 版本\n\n| 由谁写入 | 说明 |\n|---|---|")

_COVERAGE = Text(
    "## Known names by framework\n\n"
    "Declared are the names, with the version that was read; of real public logs the share of names that are known.\n\n"
    "| framework | names | version | known in real logs | missing |\n|---|---|---|---|---|",
    "## 各框架已知的名字\n\n"
    "“名字”为已声明的数目及所依据的版本；“真实日志”为公开训练日志中能识别的名字占比。\n\n"
    "| 框架 | 名字 | 版本 | 真实日志 | 缺少 |\n|---|---|---|---|---|",
)

_TABLE = Text(
    "| metric | title | unit | healthy |\n|---|---|---|---|", "| 指标 | 名称 | 单位 | 正常区间 |\n|---|---|---|---|"
)

_NAMES = Text("| | name | writer | difference |\n|---|---|---|---|", "| | 名字 | 由谁写入 | 差异 |\n|---|---|---|---|")

_MORE = Text(
    "\nAlso recognised:\n\n| metric | meaning | unit | name |\n|---|---|---|---|",
    "\n此外还能识别：\n\n| 指标 | 含义 | 单位 | 名字 |\n|---|---|---|---|",
)

_LABELS = {
    "healthy": Text("Healthy", "正常"),
    "next": Text("Next", "接下来"),
    "trap": Text("Trap", "误区"),
    "close": Text("Not the same as", "有别于"),
}


def page(lang: str) -> str:
    """Return the page's text in a language."""
    return "\n".join(_page(lang)).rstrip() + "\n"


def write(folder: Path) -> list[Path]:
    """Write the pages into a folder; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in FILES.values()]
    for lang, path in zip(FILES, paths, strict=True):
        path.write_text(page(lang), encoding="utf-8")
    return paths


def _page(lang: str) -> Iterator[str]:
    yield BEGINNINGS[lang].read_text(encoding="utf-8")
    known = [family for family in families(lang) if family[0] != "custom"]  # metrics of the user who builds the page
    yield " · ".join(f"[{title}](#{key})" for key, title, _, _ in known)
    yield from _crucial(lang)
    for key, title, intro, metrics in known:
        yield f'\n<a id="{key}"></a>\n\n## {title}\n\n{intro}\n'
        groups = _grouped([metric for metric in metrics if not _minor(metric)])
        yield _TABLE.get(lang)
        yield from (_row(group, lang) for group in groups)
        for group in groups:
            yield from _entry(group, lang)
        yield from _more([metric for metric in metrics if _minor(metric)], lang)
    yield f'\n<a id="coverage"></a>\n\n{_COVERAGE.get(lang)}'
    yield from _coverage_rows(lang)
    yield f'\n<a id="eras"></a>\n\n{_ERAS.get(lang)}'
    yield from (f"| `{era}` | {text.get(lang)} |" for era, text in eras().items())


def _coverage_rows(lang: str) -> Iterator[str]:
    """Yield a row for each framework: the names that are declared, and those that its real logs have."""
    declared = Counter(name.producer for metric in REGISTRY.metrics() for name in metric.names)
    versions = read_versions(DATA / "sources")
    measured = {one.framework.lower(): one for one in read_coverage()}
    for producer in FRAMEWORKS:
        title = label("producers", producer, lang)
        english = label("producers", producer, "en").lower()
        real = measured.get(english) or measured.get({COMMON: "custom grpo"}.get(producer, ""))
        share = f"{real.known} / {real.names} ({100 * real.known / real.names:.0f} %)" if real else ""
        missing = ", ".join(f"`{name}`" for name in real.missing) if real else ""
        yield f"| {title} | {declared[producer]} | {versions.get(producer, '')} | {share} | {missing} |"


def _minor(metric: Metric) -> bool:
    """Return whether a line of a table suffices: barograph does not write the metric, and it has no notes."""
    ours = any(name.producer.startswith("barograph") for name in metric.names)
    return metric.state == "none" and not (ours or metric.traps or metric.related or metric.crucial)


def _more(metrics: Sequence[Metric], lang: str) -> Iterator[str]:
    if not metrics:
        return
    yield _MORE.get(lang)
    for metric in metrics:
        names = ", ".join(f"`{name.pattern}` ({name.producer})" for name in metric.names)
        band = f" **{band_text(metric.healthy, lang)}**" if metric.healthy else ""
        unit = label("units", metric.unit, lang)
        what = f"{metric.about.get(lang)} {metric.look.get(lang)}{band}"
        yield f'| <a id="{_anchor(metric)}"></a>`{metric.id}` | {what} | {unit} | {names} |'


def _crucial(lang: str) -> Iterator[str]:
    yield f"\n{_CRUCIAL.get(lang)}"
    for crucial in load_compiled().crucial:
        places = ", ".join(_link(REGISTRY.metric(id), id) for id in crucial.metrics)
        yield f"| {crucial.title.get(lang)} | {crucial.meaning.get(lang)} | {places} |"


def _grouped(metrics: Sequence[Metric]) -> list[list[Metric]]:
    """Group the statistics of one quantity."""
    groups: list[list[Metric]] = []
    for metric in metrics:
        first = groups[-1][0] if groups else None
        if first is not None and _belongs(metric, first):
            groups[-1].append(metric)
        else:
            groups.append([metric])
    return groups


def _belongs(metric: Metric, first: Metric) -> bool:
    stem, _, suffix = metric.id.rpartition("/")
    return (
        suffix in _SUFFIXES
        and first.id.rpartition("/")[0] == stem
        and first.id.rpartition("/")[2] in _SUFFIXES
        and metric.about.en.startswith(first.about.en)
    )


def _heading(group: Sequence[Metric]) -> str:
    stem = group[0].id.rpartition("/")[0]
    if len(group) == 1:
        return group[0].id
    return f"{stem}/{{{','.join(metric.id.rpartition('/')[2] for metric in group)}}}"


def _title(group: Sequence[Metric], lang: str) -> str:
    title = group[0].title.get(lang)
    return title if len(group) == 1 else title.rpartition("：" if lang == "zh" else ":")[0] or title


def _anchor(metric: Metric) -> str:
    # Made of the id and not of the title, so that a link is the same in both languages.
    return metric.id.replace("/", "-").replace("{", "").replace("}", "").replace("@", "").replace("^", "-")


def _link(metric: Metric, text: str) -> str:
    return f"[`{text}`](#{_anchor(metric)})"


def _row(group: Sequence[Metric], lang: str) -> str:
    first = group[0]
    star = "★ " if any(metric.crucial for metric in group) else ""
    band = band_text(first.healthy, lang) if first.healthy else ""
    unit = label("units", first.unit, lang)
    return f"| {_link(first, _heading(group))} | {star}{_title(group, lang)} | {unit} | {band} |"


def _entry(group: Sequence[Metric], lang: str) -> Iterator[str]:
    first = group[0]
    anchors = "".join(f'<a id="{_anchor(metric)}"></a>' for metric in group)
    star = " ★" if any(metric.crucial for metric in group) else ""
    yield f"\n{anchors}\n\n### {_title(group, lang)}{star}\n"
    yield f"`{_heading(group)}`\n\n{first.about.get(lang)}\n"
    yield "- " + " · ".join(_fact(heading, value, lang) for heading, value in facts(first, lang))
    band = f"{band_text(first.healthy, lang)} ({first.healthy.source.get(lang)}). " if first.healthy else ""
    yield f"- **{_LABELS['healthy'].get(lang)}** {band}{_linked(first.look.get(lang))}"
    for metric in group[1:]:
        if metric.look != first.look:
            yield f"  - `{metric.id.rpartition('/')[2]}`: {_linked(metric.look.get(lang))}"
    yield f"- **{_LABELS['next'].get(lang)}** {_linked(first.next.get(lang))}"
    yield from _notes(first, lang)
    rows = list(_name_rows(group, lang))
    if rows:
        yield f"\n{_NAMES.get(lang)}"
        yield from rows


def _fact(heading: str, value: str, lang: str) -> str:
    is_formula = heading == label("headings", "formula", lang)
    return f"**{heading}** {f'`{value}`' if is_formula else value}"


def _notes(metric: Metric, lang: str) -> Iterator[str]:
    for trap in metric.traps:
        where = f" ({label('producers', trap.where, lang)})" if trap.where else ""
        yield f"- **{_LABELS['trap'].get(lang)}**{where} {trap.note.get(lang)}"
    for note, ids in related_notes(metric, lang).items():
        places = ", ".join(_link(REGISTRY.metric(id), id) for id in ids)
        yield f"- **{_LABELS['close'].get(lang)}** {places}{'：' if lang == 'zh' else ': '}{note}"


def _linked(text: str) -> str:
    """Replace the ids in a sentence with links."""

    def linked(found: re.Match[str]) -> str:
        try:
            return _link(REGISTRY.metric(found[0]), found[0])
        except CatalogueError:
            return f"`{found[0]}`"

    return MENTION.sub(linked, text)


def _name_rows(group: Sequence[Metric], lang: str) -> Iterator[str]:
    seen: dict[tuple[str, str, str, str], list[str]] = {}
    for metric in group:
        for line in name_lines(metric, lang):
            suffix = metric.id.rpartition("/")[2]
            # A character that no name contains replaces the statistic: names that differ only in it share a row.
            stem = re.sub(rf"(?<![a-z]){suffix}(?![a-z])", "\0", line.name) if len(group) > 1 else line.name
            seen.setdefault((line.mark, stem, ", ".join(line.sources), line.difference), []).append(suffix)
    for (mark, stem, who, note), suffixes in seen.items():
        statistics = suffixes[0] if len(suffixes) == 1 else f"{{{','.join(suffixes)}}}"
        name = stem.replace("\0", statistics)
        yield f"| {mark} | `{name}` | {who} | {note.replace('|', '&#124;')} |"  # a bar would end the cell
