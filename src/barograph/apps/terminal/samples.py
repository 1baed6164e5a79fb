"""Samples on a terminal: a line of facts per sample, then its texts, shortened around search matches, or its tokens,
coloured by one of their values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from barograph.apps.terminal.layout import wrap_line
from barograph.base.formatting import counted, number, printable
from barograph.base.model import Sample
from barograph.journal.samples.query import Census, FoundSamples, shown_columns
from barograph.journal.samples.token_sums import NEUTRAL, TokenSum, Values, all_values, nonfinite, shown_value
from barograph.journal.samples.transcript import Turn, TurnPart, turns_of

EXTREMES = 10

ALTERNATIVES = 5

INDENT = 2

HIGH, LOW = (0, 114, 178), (213, 94, 0)  # for the largest and the smallest value

NONFINITE = "bold white on red"

CLIPPED = 0.02  # share of the values at each end that have the full colour


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """The value that colours tokens; None for the first that tells them apart, as on the page."""

    value: str | None = None

    def name(self, values: Mapping[str, Values]) -> str | None:
        """Return the name of the value to show, if it is there."""
        return shown_value(values) if self.value is None else self.value if self.value in values else None


def print_tokens(console: Console, sample: Sample, choice: TokenChoice) -> None:
    """Print the tokens of a sample, coloured, and the ten most extreme."""
    given = all_values(sample.token_values)
    name = choice.name(given)
    if name is None:
        has = ", ".join(given) or "none"
        wanted = "values of tokens" if choice.value is None else f"value {choice.value!r} of tokens"
        console.print(f"{' ' * INDENT}no {printable(wanted)}; it has {printable(has)}", style="dim", markup=False)
        return
    found = given[name]
    values: list[float] = found.tolist()
    marked = nonfinite(found, given.get("mask")).tolist()
    mask: list[float] = given["mask"].tolist() if "mask" in given else [1.0] * len(values)
    scale = Scale.of([value for value, counts in zip(values, mask, strict=True) if counts], NEUTRAL.get(name, 0.0))
    line = Text()
    for token, value, counts, is_marked in zip(sample.tokens, values, mask, marked, strict=True):
        style = NONFINITE if is_marked else scale.style(value) if counts else "dim"
        line.append(printable(token, newlines=True), style)
    console.print(f"{' ' * INDENT}{printable(name)}: {scale}", style="dim", markup=False)
    _print_nonfinite(console, given)
    console.print(line, soft_wrap=True)
    for place in extremes(values, mask, marked, NEUTRAL.get(name)):
        shown = printable(sample.tokens[place]).strip() or repr(sample.tokens[place])
        likely = alternatives(sample, place)
        console.print(f"{' ' * INDENT}{number(values[place]):>10}  {shown}  (token {place:,}){likely}", markup=False)


def _print_nonfinite(console: Console, given: Mapping[str, Values]) -> None:
    """Print of how many tokens each value is NaN or infinite."""
    counts = {name: int(nonfinite(values, given.get("mask")).sum()) for name, values in given.items()}
    shown = ", ".join(f"{printable(name)} {count:,}" for name, count in counts.items() if count)
    if shown:
        line = f"{' ' * INDENT}tokens with NaN or ±Inf: {shown}"
        console.print(line, style="bold red", markup=False, soft_wrap=True)


def alternatives(sample: Sample, place: int) -> str:
    """Return the most likely tokens at a place with their probabilities, if they are known."""
    known = sample.top_logprobs[place][:ALTERNATIVES] if len(sample.top_logprobs) else ()
    shown = (f"{printable(text).strip() or repr(text)} {math.exp(min(value, 0.0)):.2g}" for text, value in known)
    return f"  of {', '.join(shown)}" if known else ""


def print_token_sums(console: Console, name: str, sums: Sequence[TokenSum], count: int | None) -> None:
    """Print the first sums of a value of tokens, all of them without a count."""
    listed = sums[:count]
    console.print(f"{'share':>8}{'sum':>12}{'mean':>12}{'count':>10}  token", style="dim", markup=False)
    for entry in listed:
        text = printable(entry.text).strip() or repr(entry.text)
        share = "–" if entry.share is None else f"{entry.share:.1%}"
        columns = f"{share:>8}{number(entry.sum):>12}{number(entry.mean):>12}{entry.count:>10,}"
        console.print(f"{columns}  {text}", markup=False)
    more = f", {len(listed):,} shown (-n 0 shows all)" if len(listed) < len(sums) else ""
    console.print(f"{printable(name)} of {counted(len(sums), 'different token')}{more}", style="dim", markup=False)


@dataclass(frozen=True, slots=True)
class Scale:
    """Colours of values from low to high, with none at the neutral value; on one side of it there is one colour."""

    low: float
    high: float
    neutral: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float], neutral: float = 0.0) -> Scale:
        """Return the scale of some values; a few at each end have the full colour, unless they are all that differs."""
        finite = sorted(value for value in values if math.isfinite(value))
        if not finite:
            return cls(math.nan, math.nan)
        most = int(CLIPPED * len(finite))
        cut = most if finite[most] < finite[-1 - most] else 0
        return cls(finite[cut], finite[-1 - cut], neutral)

    def __str__(self) -> str:
        """Return its range."""
        if self.low < self.high:
            return f"{number(self.low)} to {number(self.high)}"
        return number(self.low) if self.low == self.high else "no finite value"

    def strength(self, value: float) -> float:
        """Return the strength of a value's colour, from -1 to 1."""
        low, high = self.low - self.neutral, self.high - self.neutral
        if math.isnan(value) or not low < high:
            return 0.0
        if low < 0 < high:
            return max(-1.0, min(1.0, (value - self.neutral) / max(-low, high)))
        share = max(0.0, min(1.0, (value - self.low) / (high - low)))
        return share if high > 0 else share - 1

    def style(self, value: float) -> str:
        """Return the style of a token with this value."""
        strength = self.strength(value)
        if abs(strength) < 0.08:
            return ""
        red, green, blue = (round(abs(strength) * colour) for colour in (HIGH if strength > 0 else LOW))
        return f"white on rgb({red},{green},{blue})"


def extremes(
    values: Sequence[float], mask: Sequence[float], marked: Sequence[bool], neutral: float | None = None
) -> list[int]:
    """Return the places of the most extreme values, of tokens that count: first those that are ``marked``.

    The others are the farthest from the neutral value, else from their median; none of them if all are equal.
    """
    places = [place for place, value in enumerate(values) if mask[place] and math.isfinite(value)]
    ordered = sorted(values[place] for place in places)
    first = [place for place, is_marked in enumerate(marked) if is_marked]
    if not places or ordered[0] == ordered[-1]:
        return first[:EXTREMES]
    middle = ordered[(len(places) - 1) // 2] if neutral is None else neutral
    far = sorted((place for place in places if values[place] != middle), key=lambda place: -abs(values[place] - middle))
    return [*first, *far][:EXTREMES]


MAX_WIDTH = 120

HEAD_LINES, TAIL_LINES = 4, 3  # first and last lines of a shortened text

CONTEXT_LINES = 1  # lines around a match

MAX_MATCHES = 3  # matching lines of a text

MAX_CHARACTERS = 20_000  # of a longer text, only both ends and the first match are wrapped


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
    console: Console, name: str, found: FoundSamples, highlight: Highlight, tokens: TokenChoice | None = None
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


def _print_part(console: Console, part: TurnPart, highlight: Highlight) -> None:
    label = part_label(part)
    if label:
        console.print(f"{' ' * 2 * INDENT}{label}", style="dim italic", markup=False, soft_wrap=True)
    pattern = highlight.pattern
    folded = part.kind == "reasoning" and not highlight.full and not (pattern and pattern.search(part.text))
    if part.text and not folded:
        _print_text(console, part.text, highlight)


def part_label(part: TurnPart) -> str:
    """Return the line above a part that is not plain text."""
    name = printable(part.name)
    if part.kind == "reasoning":
        return f"reasoning, {len(part.text):,} characters"
    if part.kind == "media":
        return f"[{name}]"
    return {"tool_call": f"call {name}".rstrip(), "tool_result": f"result {name}".rstrip()}.get(part.kind, "")


def _print_answers(console: Console, sample: Sample) -> None:
    right = None if None in (sample.answer, sample.reference) else sample.answer == sample.reference
    style = "bold" if right is None else "bold green" if right else "bold red"
    for label, text, look in (("answer", sample.answer, style), ("reference", sample.reference, "bold")):
        if text is not None:
            line = Text(" " * INDENT).append(f"{label:10}", "dim").append(printable(text), look)
            console.print(line, soft_wrap=True)


def heading(sample: Sample) -> Text:
    """Return the line of facts about a sample."""
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


def _summary(name: str, found: FoundSamples) -> Iterator[str]:
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
