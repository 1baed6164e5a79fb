"""What a name means: everywhere, to one framework, or in one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from barograph.catalogue.describe import Explanation, NameMeaning, describe_match, list_meanings
from barograph.catalogue.names import Match, recognise
from barograph.catalogue.resolution import RunNames
from barograph.catalogue.spec import Text
from barograph.catalogue.user_metrics import nearest

WITHOUT_UNIT = ("1", "as reported", "count", "rank", "reward", "reward²")

SHORT_UNITS = {"seconds": "s", "percent": "%", "nats/sequence": "nats/seq", "seconds/token": "s/token"}


def unit_of(match: Match | None) -> str:
    """Return the unit in which a name is logged; empty where it has none or is not known."""
    if match is None or match.metric.unit in WITHOUT_UNIT:
        return ""
    difference = match.name.difference
    if difference is not None and "unit" in difference.kinds:  # the logged number has another one
        return ""
    return SHORT_UNITS.get(match.metric.unit, match.metric.unit)


@dataclass(frozen=True, slots=True)
class Explained:
    """A name with its explanation; with its meanings where they are several; with neither where it is unknown.

    ``why`` says what decided.
    """

    name: str
    explanation: Explanation | None = None
    meanings: Sequence[NameMeaning] = ()
    why: Sequence[str] = ()

    def record(self) -> dict[str, Any]:
        """Return the explanation as JSON."""
        if self.explanation is not None:
            return {"known": True, **asdict(self.explanation), "why": list(self.why)}
        if self.meanings:
            listed = [asdict(meaning) for meaning in self.meanings]
            return {"name": self.name, "known": True, "ambiguous": True, "meanings": listed, "why": list(self.why)}
        return {"name": self.name, "known": False, "nearest": nearest(self.name)}


def explained(name: str, lang: str, source: str | None = None) -> Explained:
    """Return what a name means, to one framework or to all."""
    recognition = recognise(name, source)
    if not recognition.matches:
        return Explained(name)
    if recognition.ambiguous:
        return Explained(name, meanings=list_meanings(name, lang, source))
    return Explained(name, describe_match(name, recognition.matches[0], lang))


def explained_in_run(name: str, lang: str, names: RunNames) -> Explained:
    """Return what a name means among the names of a run, and why."""
    resolution = names.resolve(name)
    why = [reason.get(lang) for reason in resolution.reasons]
    if resolution.state == "unknown":
        return Explained(name)
    if resolution.match is None:
        listed = [one for one in list_meanings(name, lang) if one.id in resolution.meanings]
        return Explained(name, meanings=listed, why=why)
    if not why:
        sources = ", ".join(candidate.sources[0] for candidate in resolution.candidates)
        why = [Text(f"Only {sources} writes this name so.", f"只有 {sources} 会这样写。").get(lang)]
    return Explained(name, describe_match(name, resolution.match, lang), why=why)
