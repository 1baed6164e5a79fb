"""Samples on a terminal: a line of facts each, and as much of the texts as helps to judge them."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windsock.formatting import number
from windsock.model import Sample
from windsock.samples.query import Census, Found
from windsock.terminal.explain import cells

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDEST = 120
HEAD_LINES, TAIL_LINES = 4, 3  # of a text that is cut short
NEAR_LINES = 1  # around a line with what was looked for
FOUND_LINES = 3  # with what was looked for that are shown, at most, of one text
LONG = 20_000  # characters; of a longer text only the ends and the first find are laid out unless all is asked for
GUTTER = 2
HIDDEN = {chr(code): chr(0x2400 + code) for code in range(32)} | {"\x7f": "\u2421"}
"""Control characters and the pictures of them that Unicode has."""


@dataclass(frozen=True, slots=True)
class Sought:
    """What was looked for, to be shown where it stands, and whether texts are shown whole."""

    grep: str | None = None
    regex: str | None = None
    full: bool = False

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """What finds it in a line."""
        if self.regex:
            return re.compile(self.regex)
        return re.compile(re.escape(self.grep), re.IGNORECASE) if self.grep else None


def show_samples(console: Console, name: str, found: Found, sought: Sought) -> None:
    """Print samples one after the other, and how many there are."""
    former: list[tuple[str, str]] = []
    for sample in found.samples:
        console.print(heading(sample), soft_wrap=True)
        said = list(texts(sample))
        for place, (who, text) in enumerate(said):
            again = place < len(former) and former[place] == (who, text) and place < len(said) - 1
            console.print(f"{' ' * GUTTER}{harmless(who)}{'  as above' if again else ''}", style="dim", markup=False)
            if not again:
                _print_text(console, text, sought)
        console.print()
        former = said
    for text in _summary(name, found):
        console.print(text, style="dim", markup=False, soft_wrap=True)


def heading(sample: Sample) -> Text:
    """Return the line of facts about a sample."""
    from rich.text import Text

    line = Text()
    line.append(f"step {sample.step:,}" if sample.step is not None else "no step", "bold")
    for label, value in (("", sample.task), ("group ", sample.group), ("run ", sample.run)):
        if value is not None:
            line.append("  ").append(label, "dim").append(harmless(value).replace("\n", " "), "cyan")
    for label, shown, style in facts(sample):
        line.append("  ").append(f"{label} " if label else "", "dim").append(shown, style)
    return line


def facts(sample: Sample) -> Iterator[tuple[str, str, str]]:
    """Yield label, value and style of what is known about a sample."""
    parts = ", ".join(f"{harmless(name)} {number(value)}" for name, value in sample.rewards.items())
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
        yield "", harmless(sample.finish_reason), "yellow" if sample.finish_reason == "length" else ""
    if sample.weight_version is not None:
        yield "version", f"{sample.weight_version:,}", ""


def texts(sample: Sample) -> Iterator[tuple[str, str]]:
    """Yield who says what: prompt and completion, or the messages."""
    if sample.prompt:
        yield "prompt", sample.prompt
    for message in sample.messages:
        yield str(message.get("role", "message")), _said(message)
    if sample.completion:
        yield "completion", sample.completion


def _said(message: Mapping[str, Any]) -> str:
    """Return a message as text: what it says, and anything else in it as JSON."""
    content = message.get("content")
    rest = {name: value for name, value in message.items() if name not in ("role", "content")}
    said = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""
    return "\n".join(text for text in (said, json.dumps(rest, ensure_ascii=False) if rest else "") if text)


def _print_text(console: Console, text: str, sought: Sought) -> None:
    """Print a text, indented, with what was looked for made visible."""
    from rich.text import Text

    pattern = sought.pattern
    width = max(20, min(console.width, WIDEST) - 2 * GUTTER)
    for shown in laid_out(text, width, pattern, sought.full):
        line = Text(shown, "dim italic" if isinstance(shown, Gap) else "")
        if pattern is not None and not isinstance(shown, Gap):
            line.highlight_regex(pattern, "black on yellow")
        console.print(Text(" " * 2 * GUTTER).append_text(line), soft_wrap=True)


class Gap(str):
    """A line that stands for others."""

    __slots__ = ()


def laid_out(text: str, width: int, pattern: re.Pattern[str] | None, full: bool) -> list[str]:
    """Return the lines of a text to show: all, or its first and last ones and those with what was looked for."""
    if not full and len(text) > LONG:
        text = _clipped(text, pattern)
    lines = [piece for line in harmless(text).split("\n") for piece in folded(line, width)]
    if full or len(lines) <= HEAD_LINES + TAIL_LINES + 1:
        return lines
    wanted = {*range(HEAD_LINES), *range(len(lines) - TAIL_LINES, len(lines))}
    hits = [place for place, line in enumerate(lines) if pattern is not None and pattern.search(line)]
    for place in hits[:FOUND_LINES]:
        wanted |= set(range(max(0, place - NEAR_LINES), min(len(lines), place + NEAR_LINES + 1)))
    return list(_with_gaps(lines, sorted(wanted)))


def _with_gaps(lines: list[str], wanted: Iterable[int]) -> Iterator[str]:
    following = 0
    for place in wanted:
        if place > following:
            skipped = place - following
            yield Gap(f"… {skipped:,} more line{'s' if skipped > 1 else ''} …")
        yield lines[place]
        following = place + 1


def _clipped(text: str, pattern: re.Pattern[str] | None) -> str:
    """Return the ends of a very long text and the surroundings of the first find, so that laying it out is quick."""
    end = LONG // 3
    match = pattern.search(text) if pattern is not None else None
    at = match.start() if match else 0
    middle = text[max(end, at - end // 2) : at + end // 2] if end < at < len(text) - end else ""
    left = len(text) - 2 * end - len(middle)
    mark = f"\n… {left:,} characters …\n"
    return text[:end] + mark + (middle + mark if middle else "") + text[-end:]


def folded(line: str, width: int) -> list[str]:
    """Break a line into pieces that fit, after a blank where there is one."""
    if line.isascii() and len(line) <= width:
        return [line]
    pieces = []
    while cells(line[: width + 1]) > width:
        cut, room = 0, width
        while room - (wide := cells(line[cut])) >= 0:
            room -= wide
            cut += 1
        blank = line.rfind(" ", cut // 2, cut)
        cut = blank + 1 if blank > 0 else max(cut, 1)
        pieces.append(line[:cut].rstrip())
        line = line[cut:]
    return [*pieces, line]


def harmless(text: str) -> str:
    """Return a text that a terminal only prints: controls, overrides of direction and lone surrogates made visible."""
    text = text.replace("\r\n", "\n").expandtabs(4)
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(char if char == "\n" or char.isprintable() else _visible(char) for char in text)


def _visible(char: str) -> str:
    if char in HIDDEN:
        return HIDDEN[char]
    kind = unicodedata.category(char)
    if kind == "Zs":
        return " "
    return char if char in "\u200d\u200c" else f"\\u{ord(char):04x}"  # joiners hold letters and emoji together


def _summary(name: str, found: Found) -> Iterator[str]:
    census = found.census
    if not census.kept:
        yield f"{name} has no samples: run.sample(...) in the training records them" + _dropped(census)
    elif not found.matched:
        yield f"no sample matches; {_what_there_is(census)}"
    else:
        shown = len(found.samples)
        more = f", {shown:,} shown (-n 0 shows all)" if shown < found.matched else ""
        yield f"{found.matched:,} match{'es' if found.matched == 1 else ''}{more}; {_what_there_is(census)}"
    yield from (f"! {text}" for text in census.damage)


def _dropped(census: Census) -> str:
    return f" ({census.seen:,} were offered and none kept)" if census.seen else ""


def _what_there_is(census: Census) -> str:
    kept = f"{census.kept:,} samples are kept of {census.seen:,} offered"
    steps = f", steps {census.steps[0]:,} – {census.steps[1]:,}" if census.steps else ""
    rewards = f", rewards {number(census.rewards[0])} to {number(census.rewards[1])}" if census.rewards else ""
    return kept + steps + rewards
