"""Explanation of a metric on a terminal, in two columns; on a pipe the same text without colour."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from barograph.apps.terminal.layout import cells, wrap
from barograph.base.formatting import printable
from barograph.catalogue.describe import Explanation, NameMeaning, families, label

Span = tuple[str, str]  # style, text

Line = list[Span]

WIDTH = 80

MAX_WIDTH = 100

_LABEL_WIDTH = 12

_MARK_STYLES = {"=": "green", "≈": "yellow", "≠": "red"}


def explain(explanation: Explanation, lang: str, why: Sequence[str] = ()) -> None:
    """Print an explanation; ``why`` says what decided on this meaning."""
    print_lines(lambda width: _lines(explanation, lang, width, why))


def explain_meanings(name: str, meanings: Sequence[NameMeaning], lang: str, why: Sequence[str] = ()) -> None:
    """Print the meanings that a name can have; ``why`` says what was decided already."""
    print_lines(lambda width: _meanings(name, meanings, lang, width, why))


def explain_all(lang: str) -> None:
    """Print every family with its metrics."""
    print_lines(lambda width: _all_lines(lang, width))


def print_lines(make: Callable[[int], Iterable[Line]]) -> None:
    """Print lines that fit the terminal: coloured on a terminal, plain on a pipe."""
    if not sys.stdout.isatty():
        for line in make(WIDTH):
            print("".join(printable(text) for _, text in line).rstrip())
        return
    from rich.text import Text

    from barograph.apps.terminal.output import make_console

    console = make_console(highlight=False)
    for line in make(min(console.width, MAX_WIDTH)):
        console.print(Text.assemble(*((printable(text), style) for style, text in line)), soft_wrap=True)


def _meanings(name: str, meanings: Sequence[NameMeaning], lang: str, width: int, why: Sequence[str]) -> Iterator[Line]:
    heading = label("headings", "meanings", lang).format(name=name, count=len(meanings))
    yield [("bold", f" {heading}")]
    for meaning in meanings:
        yield []
        yield [("", "   "), ("bold", meaning.title), ("cyan", f"  {meaning.id}")]
        yield from _paragraph(meaning.note, width, 5)
        yield from _paragraph(meaning.source, width, 5, "dim")
    yield from _reasons(why, lang, width)
    yield []
    sources = [meaning.source.partition(",")[0] for meaning in meanings]
    yield from _paragraph(label("headings", "decide", lang).format(sources=", ".join(sources)), width, 1, "dim")


def _reasons(why: Sequence[str], lang: str, width: int) -> Iterator[Line]:
    if why:
        yield from _section("why", lang)
        for reason in why:
            yield from _paragraph(reason, width, 3)


def _lines(explanation: Explanation, lang: str, width: int, why: Sequence[str]) -> Iterator[Line]:
    yield from _heading(explanation, lang, width)
    yield from _paragraph(explanation.about, width, 1)
    yield from _reasons(why, lang, width)
    if explanation.readings:
        yield from _section("matters", lang)
        for meaning in explanation.readings:
            yield from _name_meaning(meaning, width, f"{meaning.title} · {meaning.id}")
        other = explanation.readings[-1].source
        yield from _paragraph(label("headings", "ask", lang).format(source=other), width, 3, "dim")
    if explanation.asked:
        yield from _section("asked", lang)
        for meaning in explanation.asked:
            yield from _name_meaning(meaning, width, "")
    if explanation.here:
        yield from _section("here", lang)
        yield from _labelled(
            explanation.here, width, max(_LABEL_WIDTH, *(cells(value) + 2 for value, _ in explanation.here))
        )
    yield []
    yield from _labelled(explanation.facts, width, _LABEL_WIDTH)
    yield from _section("healthy", lang)
    yield from _band(explanation, lang, width)
    yield from _paragraph(explanation.healthy, width, 3)
    yield from _section("next", lang)
    yield from _paragraph(explanation.next, width, 3)
    yield from _names(explanation, lang, width)
    yield from _notes("traps", explanation.traps, lang, width)
    yield from _notes("close", ((ids, (note,)) for ids, note in explanation.close), lang, width)


def _heading(explanation: Explanation, lang: str, width: int) -> Iterator[Line]:
    star = f"  ★ {label('headings', 'crucial', lang)}" if explanation.crucial else ""
    title = explanation.title
    gap = width - 1 - cells(title) - cells(star) - cells(explanation.id)
    if gap >= 2:
        yield [("", " "), ("bold", title), ("yellow", star), ("", " " * gap), ("cyan", explanation.id)]
    else:
        yield [("", " "), ("bold", title), ("yellow", star)]
        yield [("", " "), ("cyan", explanation.id)]
    yield [("dim", " " + "─" * (width - 1))]


def _section(heading: str, lang: str) -> Iterator[Line]:
    yield []
    yield [("bold", f" {label('headings', heading, lang)}")]


def _paragraph(text: str, width: int, indent: int, style: str = "") -> Iterator[Line]:
    for line in wrap(text, width - indent):
        yield [(style, " " * indent + line)]


def _name_meaning(meaning: NameMeaning, width: int, text: str) -> Iterator[Line]:
    yield [("", "   "), ("cyan", meaning.source), ("", f"  {text}" if text else "")]
    yield from _paragraph(meaning.note, width, 5)


def _labelled(rows: Iterable[Span], width: int, column: int) -> Iterator[Line]:
    for heading, text in rows:
        first, *rest = wrap(text, width - column - 3) or [""]
        yield [("dim", f"   {heading}{' ' * (column - cells(heading))}"), ("", first)]
        for line in rest:
            yield [("", " " * (column + 3) + line)]


def _band(explanation: Explanation, lang: str, width: int) -> Iterator[Line]:
    if explanation.band:
        lines = wrap(f"{explanation.band}  ({explanation.band_source})", width - 3)
        cut = len(explanation.band)
        yield [("green", f"   {lines[0][:cut]}"), ("dim", lines[0][cut:])]
        for line in lines[1:]:
            yield [("dim", f"   {line}")]


def _names(explanation: Explanation, lang: str, width: int) -> Iterator[Line]:
    if not explanation.names:
        return
    yield from _section("names", lang)
    shown = {meaning.note for meaning in explanation.asked}
    column = min(max(cells(line.name) for line in explanation.names), width // 2)
    for line in explanation.names:
        writers = ", ".join(line.sources)
        yield [
            (_MARK_STYLES[line.mark], f"   {line.mark} "),
            ("cyan", line.name + " " * (column - cells(line.name) + 2)),
            ("", writers if cells(line.name) <= column else ""),
        ]
        if cells(line.name) > column:
            yield [("", " " * 7 + writers)]
        if line.difference:
            note = label("headings", "above", lang) if line.difference in shown else line.difference
            yield from _paragraph(note, width, 7, "dim")
    yield [("dim", f"   {label('headings', 'legend', lang)}")]


def _notes(heading: str, notes: Iterable[tuple[str, Sequence[str]]], lang: str, width: int) -> Iterator[Line]:
    listed = list(notes)
    if not listed:
        return
    yield from _section(heading, lang)
    for where, texts in listed:
        yield [("cyan", f"   {where}")]
        for text in texts:
            first, *rest = wrap(text, width - 7) or [""]
            yield [("dim", "     · "), ("", first)]
            yield from ([("", " " * 7 + line)] for line in rest)


def _all_lines(lang: str, width: int) -> Iterator[Line]:
    for family, title, intro, metrics in families(lang):
        yield [("bold", f" {title}"), ("dim", f"  {family} · {len(metrics)}")]
        yield from _paragraph(intro, width, 1)
        for metric in metrics:
            short = metric.title.get(lang)
            gap = width - 3 - cells(metric.id) - cells(short)
            star = "★" if metric.crucial else " "
            if gap >= 2:
                yield [("yellow", f" {star} "), ("cyan", metric.id), ("", " " * gap + short)]
            else:
                yield [("yellow", f" {star} "), ("cyan", metric.id)]
                yield [("", " " * max(3, width - cells(short)) + short)]
        yield []
