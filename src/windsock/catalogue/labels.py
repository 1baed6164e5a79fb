"""Labels of units, populations, frameworks and headings, in both languages."""

from __future__ import annotations

from windsock.catalogue.compiled import load
from windsock.catalogue.spec import Text


def label(table: str, key: str, lang: str) -> str:
    """Return the label of a key in a table of ``labels.toml``; an unknown key is its own label."""
    text = load().labels[table].get(key)
    return key if text is None else text.get(lang)


def eras() -> dict[str, Text]:
    """Return the descriptions of the frameworks' eras, by ``producer/era``."""
    return load().labels["eras"]


def families() -> dict[str, tuple[Text, Text]]:
    """Return title and introduction of every family, in the order in which families are shown."""
    return load().families
