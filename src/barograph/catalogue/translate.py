"""Translation of names between vocabularies: the equal name, a name with a note, or an error with the reason."""

from __future__ import annotations

from dataclasses import dataclass, replace

from barograph.catalogue.names import Match, recognise
from barograph.catalogue.registry import REGISTRY, Filled, fill, vocabulary_name
from barograph.catalogue.sources import check_source
from barograph.catalogue.spec import OURS, CatalogueError, Metric, MetricName, RelatedMetric, Text, placeholders
from barograph.catalogue.user_metrics import nearest


@dataclass(frozen=True, slots=True)
class Translation:
    """A name in another vocabulary.

    With ``same`` the numbers mean the same after multiplication with ``factor``. Otherwise ``note`` states the
    difference, and ``factor`` is None where no arithmetic on the number removes it.
    """

    name: str
    same: bool
    factor: float | None = 1.0
    note: Text | None = None


class TranslationError(CatalogueError):
    """A name has no comparable counterpart; ``reason`` explains it in both languages."""

    def __init__(self, reason: Text) -> None:
        super().__init__(reason.en)
        self.reason = reason


def translate(name: str, to: str, source: str | None = None) -> Translation:
    """Return the name that another writer gives to the same metric, with the difference between the two numbers.

    ``to`` and ``source`` are writers: ``barograph:roll`` is barograph writing ROLL's vocabulary, ``roll`` is ROLL's own
    code, and so on; an era may follow after a slash. Raises ``TranslationError``.
    """
    check_source(to)
    recognition = recognise(name, source)
    if not recognition.matches:
        raise TranslationError(_unknown(name, source))
    if recognition.ambiguous:
        raise TranslationError(_ambiguous(name, recognition.matches))
    results = {match.name: _translate_match(match, to) for match in recognition.matches}
    return _combined(name, results)


def _translate_match(match: Match, to: str) -> Translation | Text:
    """Translate one match; return the reason when that is not possible."""
    if match.evaluated:
        return _evaluated(match)
    difference = match.name.difference
    # Within one framework the number stays what it is, however it differs from the metric.
    if difference is not None and not difference.comparable and match.name.producer != to.partition("/")[0]:
        return difference.note
    target = _name_by(match.metric, to)
    if target is None:
        return _by_related_metric(match, to)
    if target.difference is not None and not target.difference.comparable and target.difference != difference:
        return target.difference.note
    return _between(match.name, target, match.filled)


def _name_by(metric: Metric, to: str) -> MetricName | None:
    """Return a writer's first comparable name for a metric; barograph always has one, which may be the id."""
    producer, _, era = to.partition("/")
    if producer in OURS:
        return vocabulary_name(metric, producer)
    if producer == "barograph":
        return MetricName(metric.id, "barograph")
    names = [name for name in metric.names if name.producer == producer and (not era or name.era in ("", era))]
    # False sorts first: a comparable name, if the writer has one.
    return min(names, key=lambda name: name.difference is not None and not name.difference.comparable, default=None)


def _between(ours: MetricName, theirs: MetricName, filled: Filled) -> Translation:
    name = fill(theirs.pattern, filled)
    # Two names that differ from the metric in the same way have equal numbers.
    alike = ours.difference == theirs.difference
    notes = [] if alike else [note for note in (_note(ours), _note(theirs)) if note is not None]
    factor = 1.0 if alike else _quotient(ours.factor, theirs.factor)
    left = placeholders(name)
    return Translation(name, not notes, factor, _joined([*notes, *([_to_fill(left)] if left else [])]))


def _quotient(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours / theirs


def _note(name: MetricName) -> Text | None:
    """Return the note on a name's difference; a unit alone needs none, since the factor converts it."""
    difference = name.difference
    if difference is None or (difference.kinds == ("unit",) and difference.factor is not None):
        return None
    return Text(f"{_writer(name)}: {difference.note.en}", f"{_writer(name)}：{difference.note.zh}")


def _writer(name: MetricName) -> str:
    return f"{name.producer} ({name.era})" if name.era else name.producer


def _by_related_metric(match: Match, to: str) -> Translation | Text:
    """Translate to a related metric that the target has a name for, or explain why that is not possible."""
    reachable = [
        (related, target)
        for related in match.metric.related
        if _applies(related, match) and (target := _name_by(REGISTRY.metric(related.to), to)) is not None
    ]
    for related, target in reachable:
        if related.comparable and (target.difference is None or target.difference.comparable):
            found = _between(match.name, target, match.filled + related.fill)
            notes = [related.note, *([found.note] if found.note else [])]
            return replace(found, same=False, factor=None, note=_joined(notes))  # another metric: no factor
    if reachable:
        related, target = reachable[0]
        return Text(
            f"The closest name of {to} is {target.pattern}. {related.note.en}",
            f"{to} 中最接近的是 {target.pattern}。{related.note.zh}",
        )
    return Text(
        f"{to} has no name for {match.metric.id} ({match.metric.title.en}).",
        f"{to} 没有对应 {match.metric.id}（{match.metric.title.zh}）的名字。",
    )


def _applies(related: RelatedMetric, match: Match) -> bool:
    """Return whether a relation holds for the values of the placeholders in this name."""
    values = dict(match.filled)
    return all(values.get(name, value) == value for name, value in related.fill)


def _combined(name: str, results: dict[MetricName, Translation | Text]) -> Translation:
    """Combine the results for several writers of the same name; raise where they contradict each other."""
    found = {writer: result for writer, result in results.items() if isinstance(result, Translation)}
    reasons = {writer: result for writer, result in results.items() if isinstance(result, Text)}
    if not found:
        raise TranslationError(_joined(list(dict.fromkeys(reasons.values()))) or Text("no reason", "无理由"))
    # An answer for one writer must not hide that the number of another means something else.
    if reasons or len({(one.name, one.factor) for one in found.values() if one.factor is not None}) > 1:
        raise TranslationError(_depends(name, results))
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
        f"{name!r}{by} is not a known name; similar ones are {close}.",
        f"未知的名字 {name!r}{by_zh}；相近的有 {close}。",
    )


def _ambiguous(name: str, matches: tuple[Match, ...]) -> Text:
    meanings = [f"{match.source} → {match.metric.id}" for match in matches]
    listed = "; ".join(dict.fromkeys(meanings))
    return Text(
        f"The meaning of {name!r} depends on its writer: {listed}. Set source=.",
        f"{name!r} 的含义取决于由谁写入：{listed}。请指定 source=。",
    )


def _depends(name: str, results: dict[MetricName, Translation | Text]) -> Text:
    notes = {writer: result if isinstance(result, Text) else result.note for writer, result in results.items()}
    en = "; ".join(f"{_writer(writer)}: {text.en if text else 'the metric itself'}" for writer, text in notes.items())
    zh = "；".join(f"{_writer(writer)}：{text.zh if text else '即该指标本身'}" for writer, text in notes.items())
    return Text(
        f"The meaning of {name!r} depends on its writer; set source=. {en}",
        f"{name!r} 的含义取决于由谁写入，请指定 source=。{zh}",
    )


def _evaluated(match: Match) -> Text:
    return Text(
        f"The prefix {match.prefix!r} means that {match.metric.id} was taken on an evaluation set, not in training.",
        f"前缀 {match.prefix!r} 表示 {match.metric.id} 来自评测集，而不是训练。",
    )
