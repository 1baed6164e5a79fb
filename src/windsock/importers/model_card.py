"""The front matter of a model card, ``README.md``: Hugging Face's trainers write their name there as a tag."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windsock.catalogue.spec import ERAS

CARD = "README.md"
MAX_BYTES = 16 << 10
ENTRY = re.compile(r"([A-Za-z_]\w*):\s*(.*)")
TRAINERS = {"reward-trainer": "reward", "async-grpo": "async-1.16"}
"""Tags of TRL's trainers that are not the names of their eras."""
FRAMEWORKS = ("llama-factory", "ms-swift")


def read_card(folder: Path) -> dict[str, Any]:
    """Return the texts and lists of texts between the first two lines of dashes; empty if there are none."""
    try:
        with (folder / CARD).open("rb") as file:
            lines = file.read(MAX_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    if not lines or lines[0].strip() != "---":
        return {}
    card: dict[str, Any] = {}
    name = ""
    for line in lines[1:]:
        if line.strip() == "---":
            return card
        if line.lstrip().startswith("- ") and isinstance(card.get(name), list):
            card[name].append(_unquoted(line.lstrip()[2:]))
        elif entry := ENTRY.fullmatch(line.rstrip()):
            name = entry[1]
            card[name] = _unquoted(entry[2]) if entry[2] else []
    return card


def producer_of_card(card: Mapping[str, Any]) -> str:
    """Return the framework, with its trainer, that wrote a card; "" if it does not tell."""
    tags = card.get("tags")
    tags = tags if isinstance(tags, list) else []
    for framework in FRAMEWORKS:
        if framework in tags:
            return framework
    if "trl" not in tags:
        return ""
    eras = [TRAINERS.get(tag, tag) for tag in tags]
    return next((f"trl/{era}" for era in eras if era in ERAS["trl"]), "trl")


def _unquoted(text: str) -> str:
    return text.strip().strip("'\"")
