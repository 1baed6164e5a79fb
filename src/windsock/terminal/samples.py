"""Samples on a terminal: a line of facts per sample, and its texts, shortened around search matches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windsock.formatting import counted, number, printable
from windsock.model import Sample
from windsock.samples.columns import shown_columns
from windsock.samples.query import Census, Found
from windsock.samples.transcript import Part, Turn, turns_of
from windsock.terminal.explain import cells
from windsock.terminal.tokens import TokenChoice, print_tokens

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

MAX_WIDTH = 120
HEAD_LINES, TAIL_LINES = 4, 3  # first and last lines of a shortened text
CONTEXT_LINES = 1  # lines around a match
MAX_MATCHES = 3  # matching lines of a text
MAX_CHARACTERS = 20_000  # of a longer text, only both ends and the first match are wrapped
INDENT = 2


@dataclass(frozen=True, slots=True)
class Highlight:
    """The search to highlight in texts, and whether texts are shown in full."""

    grep: str | None = None
    regex: str | None = None
    full: bool = False

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """The search as a regular expression."""
        if self.regex:
            return re.compile(self.regex)
        return re.compile(re.escape(self.grep), re.IGNORECASE) if self.grep else None


def show_samples(
    console: Console, name: str, found: Found, highlight: Highlight, tokens: TokenChoice | None = None
) -> None:
    """Print samples and a summary; with ``tokens``, the tokens of each instead of its texts."""
    previous: list[Turn] = []
    for sample in found.samples:
        console.print(heading(sample), soft_wrap=True)
        current = turns_of(sample)
        if tokens is not None:
            print_tokens(console, sample, tokens)
        else:
            _print_turns(console, current, previous, highlight)
        _print_answers(console, sample)
        console.print()
        previous = current
    for text in _summary(name, found):
        console.print(printable(text), style="dim", markup=False, soft_wrap=True)


def _print_turns(console: Console, turns: list[Turn], previous: list[Turn], highlight: Highlight) -> None:
    if not turns:
        console.print(f"{' ' * INDENT}no text", style="dim")
    for index, turn in enumerate(turns):
        repeated = index < len(previous) and previous[index] == turn and index < len(turns) - 1
        note = "  as above" if repeated else ""
        console.print(f"{' ' * INDENT}{printable(turn.role)}{note}", style="dim", markup=False)
        for part in () if repeated else turn.parts:
            _print_part(console, part, highlight)


def _print_part(console: Console, part: Part, highlight: Highlight) -> None:
    label = part_label(part)
    if label:
        console.print(f"{' ' * 2 * INDENT}{label}", style="dim italic", markup=False, soft_wrap=True)
    pattern = highlight.pattern
    folded = part.kind == "reasoning" and not highlight.full and not (pattern and pattern.search(part.text))
    if part.text and not folded:
        _print_text(console, part.text, highlight)


def part_label(part: Part) -> str:
    """Return the line above a part that is not plain text."""
    name = printable(part.name)
    if part.kind == "reasoning":
        return f"reasoning, {len(part.text):,} characters"
    if part.kind == "media":
        return f"[{name}]"
    return {"tool_call": f"call {name}".rstrip(), "tool_result": f"result {name}".rstrip()}.get(part.kind, "")


def _print_answers(console: Console, sample: Sample) -> None:
    from rich.text import Text

    right = None if None in (sample.answer, sample.reference) else sample.answer == sample.reference
    style = "bold" if right is None else "bold green" if right else "bold red"
    for label, text, look in (("answer", sample.answer, style), ("reference", sample.reference, "bold")):
        if text is not None:
            line = Text(" " * INDENT).append(f"{label:10}", "dim").append(printable(text), look)
            console.print(line, soft_wrap=True)


def heading(sample: Sample) -> Text:
    """Return the line of facts about a sample."""
    from rich.text import Text

    line = Text()
    line.append(f"step {sample.step:,}" if sample.step is not None else "no step", "bold")
    for label, value in (("", sample.task), ("group ", sample.group), ("run ", sample.run)):
        if value is not None:
            line.append("  ").append(label, "dim").append(printable(value), "cyan")
    for label, shown, style in facts(sample):
        line.append("  ").append(f"{label} " if label else "", "dim").append(shown, style)
    return line


def facts(sample: Sample) -> Iterator[tuple[str, str, str]]:
    """Yield label, value and style of each fact about a sample."""
    parts = ", ".join(f"{printable(name)} {number(value)}" for name, value in sample.rewards.items())
    if sample.reward is not None:
        yield (
            "reward",
            number(sample.reward) + (f" ({parts})" if parts else ""),
            "bold green" if sample.reward > 0 else "bold",
        )
    elif parts:
        yield "rewards", parts, "bold"
    if sample.advantage is not None:
        yield "advantage", f"{'+' if sample.advantage > 0 else ''}{number(sample.advantage)}", ""
    if sample.length is not None:
        yield "", f"{sample.length:,} tokens", ""
    if sample.finish_reason is not None:
        yield "", printable(sample.finish_reason), "yellow" if sample.finish_reason == "length" else ""
    if sample.weight_version is not None:
        yield "version", f"{sample.weight_version:,}", ""
    for name, value in shown_columns(sample).items():
        yield "tool calls" if name == "tool_calls" else printable(name), _column_text(value), ""
    if sample.discarded is not None:
        yield "discarded:", printable(sample.discarded), "yellow"


def _column_text(value: float | bool | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return printable(value) if isinstance(value, str) else number(value)


def _print_text(console: Console, text: str, highlight: Highlight) -> None:
    """Print a text, indented, with matches highlighted."""
    from rich.text import Text

    pattern = highlight.pattern
    width = max(20, min(console.width, MAX_WIDTH) - 2 * INDENT)
    for shown in visible_lines(text, width, pattern, highlight.full):
        line = Text(shown, "dim italic" if isinstance(shown, Gap) else "")
        if pattern is not None and not isinstance(shown, Gap):
            line.highlight_regex(pattern, "black on yellow")
        console.print(Text(" " * 2 * INDENT).append_text(line), soft_wrap=True)


class Gap(str):
    """A line that replaces omitted lines."""

    __slots__ = ()


def visible_lines(text: str, width: int, pattern: re.Pattern[str] | None, full: bool) -> list[str]:
    """Return the lines of a text to show: all, or the first, the last and the matching ones."""
    lines: list[str | int] = []
    for piece in [text] if full or len(text) <= MAX_CHARACTERS else _pieces(text, pattern):
        lines += [piece] if isinstance(piece, int) else _wrapped(piece, width)
    if full or len(lines) <= HEAD_LINES + TAIL_LINES + 1:
        return [line for line in lines if isinstance(line, str)]
    wanted = {*range(HEAD_LINES), *range(len(lines) - TAIL_LINES, len(lines))}
    hits = [index for index, line in enumerate(lines) if pattern and isinstance(line, str) and pattern.search(line)]
    for index in hits[:MAX_MATCHES]:
        wanted |= set(range(max(0, index - CONTEXT_LINES), min(len(lines), index + CONTEXT_LINES + 1)))
    return list(_with_gaps(lines, wanted))


def _wrapped(text: str, width: int) -> list[str]:
    return [piece for line in printable(text, newlines=True).split("\n") for piece in wrap_line(line, width)]


def _with_gaps(lines: Sequence[str | int], wanted: Collection[int]) -> Iterator[str]:
    """Yield the wanted lines, and what is said of those between them."""
    omitted: list[str | int] = []
    for index, line in enumerate(lines):
        if index not in wanted or isinstance(line, int):
            omitted.append(line)
            continue
        if omitted:
            yield _gap(omitted)
            omitted = []
        yield line


def _gap(omitted: Sequence[str | int]) -> Gap:
    """Return how many lines are omitted, or about how many characters where some of them were never wrapped."""
    if all(isinstance(line, str) for line in omitted):
        return Gap(f"… {counted(len(omitted), 'more line')} …")
    characters = sum(line if isinstance(line, int) else len(line) for line in omitted)
    return Gap(f"… about {float(f'{characters:.2g}'):,.0f} more characters …")


def _pieces(text: str, pattern: re.Pattern[str] | None) -> Iterator[str | int]:
    """Yield both ends of a very long text, and the part around the first match; wrapping all of it would be slow.

    Between them are the numbers of omitted characters.
    """
    end = MAX_CHARACTERS // 3
    last = len(text) - end
    match = pattern.search(text) if pattern is not None else None
    yield text[:end]
    following = end
    if match is not None and end < match.start() < last:
        begin, following = max(end, match.start() - end // 2), min(last, match.start() + end // 2)
        yield begin - end
        yield text[begin:following]
    yield last - following
    yield text[last:]


def wrap_line(line: str, width: int) -> list[str]:
    """Wrap a line to the width, after a space where there is one."""
    if line.isascii() and len(line) <= width:
        return [line]
    pieces = []
    while cells(line[: width + 1]) > width:
        cut, remaining = 0, width
        while remaining - (wide := cells(line[cut])) >= 0:
            remaining -= wide
            cut += 1
        blank = line.rfind(" ", cut // 2, cut)
        cut = blank + 1 if blank > 0 else max(cut, 1)
        pieces.append(line[:cut].rstrip())
        line = line[cut:]
    return [*pieces, line]


def _summary(name: str, found: Found) -> Iterator[str]:
    census = found.census
    if not census.kept:
        yield f"{name} has no samples: record them with run.sample(...)" + _dropped(census)
    elif not found.matched:
        yield f"no sample matches; {_describe(census)}"
    else:
        shown = len(found.samples)
        more = f", {shown:,} shown (-n 0 shows all)" if shown < found.matched else ""
        yield f"{counted(found.matched, 'matches', 'match')}{more}; {_describe(census)}"
    if found.unknown:
        yield f"no sample has {', '.join(found.unknown)}; columns: {', '.join(census.columns) or 'none'}"
    yield from (f"! {text}" for text in census.damage)


def _dropped(census: Census) -> str:
    return f" ({census.seen:,} were submitted, none was stored)" if census.seen else ""


def _describe(census: Census) -> str:
    stored = f"{census.kept:,} of {census.seen:,} submitted samples are stored"
    steps = f", steps {census.steps[0]:,} – {census.steps[1]:,}" if census.steps else ""
    rewards = f", rewards {number(census.rewards[0])} to {number(census.rewards[1])}" if census.rewards else ""
    return stored + steps + rewards
