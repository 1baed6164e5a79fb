"""From one vocabulary to another: the equal name, the name with what must be said about it, or a reasoned refusal."""

from __future__ import annotations

from dataclasses import dataclass, replace

from windsock.catalogue.names import Match, check_source, nearest, recognise
from windsock.catalogue.patterns import Filled, fill
from windsock.catalogue.registry import REGISTRY, written
from windsock.catalogue.spec import OURS, CatalogueError, Link, Metric, Name, Text, placeholders


@dataclass(frozen=True, slots=True)
class Translation:
    """A name in another vocabulary.

    ``same`` says that the numbers mean the same, after multiplication with ``factor``. Otherwise ``note`` says how
    they differ, and ``factor`` is None where no arithmetic on the number bridges the difference.
    """

    name: str
    same: bool
    factor: float | None = 1.0
    note: Text | None = None


class TranslationRefused(CatalogueError):  # noqa: N818  a refusal is an answer, not a mistake
    """A name has no counterpart that its numbers could be compared with; ``reason`` says why, in both languages."""

    def __init__(self, reason: Text) -> None:
        super().__init__(reason.en)
        self.reason = reason


def translate(name: str, to: str, source: str | None = None) -> Translation:
    """Return what a name is called by somebody else, with what has to be said about it.

    ``to`` and ``source`` name who writes: ``windsock:roll`` is what windsock writes in ROLL's words, ``roll`` what
    ROLL's own code logs under them, and so on; an era may follow behind a slash. Raises ``TranslationRefused``.
    """
    check_source(to)
    recognition = recognise(name, source)
    if not recognition.matches:
        raise TranslationRefused(_unknown(name, source))
    if recognition.ambiguous:
        raise TranslationRefused(_ambiguous(name, recognition.matches))
    results = {match.name: _attempt(match, to) for match in recognition.matches}
    return _united(name, results)


def _attempt(match: Match, to: str) -> Translation | Text:
    """Translate one reading; return the reason when it is refused."""
    if match.evaluated:
        return _evaluated(match)
    ours = match.name.difference
    if ours is not None and ours.refuse and not _written_by(match.name, to):
        return ours.note
    target = _name_of(match.metric, to)
    if target is None:
        return _by_link(match, to)
    if target.difference is not None and target.difference.refuse and target.difference != ours:
        return target.difference.note
    return _between(match.name, target, match.filled)


def _written_by(name: Name, to: str) -> bool:
    return name.producer == to.partition("/")[0]


def _name_of(metric: Metric, to: str) -> Name | None:
    """Return a producer's first name for a metric; ours always has one, if only the id."""
    producer, _, era = to.partition("/")
    if producer in OURS:
        return written(metric, producer)
    if producer == "windsock":
        return Name(metric.id, "windsock")
    names = [name for name in metric.names if name.producer == producer and (not era or name.era in ("", era))]
    return min(names, key=lambda name: name.difference is not None and name.difference.refuse, default=None)


def _between(ours: Name, theirs: Name, filled: Filled) -> Translation:
    name = fill(theirs.pattern, filled)
    alike = ours.difference == theirs.difference
    said = [] if alike else [note for note in (_said(ours), _said(theirs)) if note is not None]
    factor = 1.0 if alike else _quotient(ours.factor, theirs.factor)
    left = placeholders(name)
    return Translation(name, not said, factor, _joined([*said, *([_to_fill(left)] if left else [])]))


def _quotient(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours / theirs


def _said(name: Name) -> Text | None:
    """Say how a name differs; a plain unit is arithmetic and needs no words."""
    difference = name.difference
    if difference is None or (difference.kinds == ("unit",) and difference.factor is not None):
        return None
    return Text(f"{_writer(name)}: {difference.note.en}", f"{_writer(name)}：{difference.note.zh}")


def _writer(name: Name) -> str:
    return f"{name.producer} ({name.era})" if name.era else name.producer


def _by_link(match: Match, to: str) -> Translation | Text:
    """Look for a close metric that the target has a name for; it may stand in or explain the refusal."""
    reachable = [
        (link, target)
        for link in match.metric.links
        if _applies(link, match) and (target := _name_of(REGISTRY.metric(link.to), to)) is not None
    ]
    for link, target in reachable:
        if not link.refuse and (target.difference is None or not target.difference.refuse):
            found = _between(match.name, target, match.filled + link.fill)
            return replace(
                found, same=False, factor=None, note=_joined([link.note, *([found.note] if found.note else [])])
            )
    if reachable:
        link, target = reachable[0]
        return Text(
            f"The closest that {to} logs is {target.pattern}. {link.note.en}",
            f"{to} 中最接近的是 {target.pattern}。{link.note.zh}",
        )
    return Text(
        f"{to} has no name for {match.metric.id} ({match.metric.title.en}).",
        f"{to} 没有对应 {match.metric.id}（{match.metric.title.zh}）的名字。",
    )


def _applies(link: Link, match: Match) -> bool:
    """Whether a link holds for the values that the placeholders have in this name."""
    held = dict(match.filled)
    return all(held.get(name, value) == value for name, value in link.fill)


def _united(name: str, results: dict[Name, Translation | Text]) -> Translation:
    """Make one answer of several writers' readings of the same metric."""
    found = {writer: result for writer, result in results.items() if isinstance(result, Translation)}
    refused = {writer: result for writer, result in results.items() if isinstance(result, Text)}
    if not found:
        raise TranslationRefused(_joined(list(dict.fromkeys(refused.values()))) or Text("no reason", "无理由"))
    if refused or len({(one.name, one.factor) for one in found.values() if one.factor is not None}) > 1:
        raise TranslationRefused(_depends(name, results))
    answers = list(found.values())
    notes = list(dict.fromkeys(one.note for one in answers if one.note is not None))
    factors = {one.factor for one in answers}
    return Translation(
        answers[0].name,
        all(one.same for one in answers),
        factors.pop() if len(factors) == 1 else None,
        _joined(notes),
    )


def _joined(texts: list[Text]) -> Text | None:
    if not texts:
        return None
    return Text(" ".join(text.en for text in texts), "".join(text.zh for text in texts))


def _to_fill(names: tuple[str, ...]) -> Text:
    listed = ", ".join(f"{{{name}}}" for name in names)
    return Text(f"Fill in {listed}.", f"需填入 {listed}。")


def _unknown(name: str, source: str | None) -> Text:
    close = ", ".join(nearest(name, 3))
    by, by_zh = (f" by {source}", f"（来自 {source}）") if source else ("", "")
    return Text(
        f"{name!r}{by} is not a known name; close ones are {close}.", f"不认识 {name!r}{by_zh}；相近的有 {close}。"
    )


def _ambiguous(name: str, matches: tuple[Match, ...]) -> Text:
    readings = [f"{match.source} → {match.metric.id}" for match in matches]
    listed = "; ".join(dict.fromkeys(readings))
    return Text(
        f"{name!r} means different things depending on who wrote it: {listed}. Say source=.",
        f"{name!r} 的含义取决于由谁写入：{listed}。请指定 source=。",
    )


def _depends(name: str, results: dict[Name, Translation | Text]) -> Text:
    said = {writer: result if isinstance(result, Text) else result.note for writer, result in results.items()}
    en = "; ".join(f"{_writer(writer)}: {text.en if text else 'the metric itself'}" for writer, text in said.items())
    zh = "；".join(f"{_writer(writer)}：{text.zh if text else '即该指标本身'}" for writer, text in said.items())
    return Text(
        f"{name!r} depends on who wrote it; say source=. {en}", f"{name!r} 取决于由谁写入，请指定 source=。{zh}"
    )


def _evaluated(match: Match) -> Text:
    return Text(
        f"The prefix {match.prefix!r} says that {match.metric.id} was taken on an evaluation set, not in training.",
        f"前缀 {match.prefix!r} 表示 {match.metric.id} 是在评测集上得到的，而不是训练中。",
    )
