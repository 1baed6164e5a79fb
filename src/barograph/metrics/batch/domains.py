"""The data part of a step by domain: the states of the sequences of each label that the trainer gives.

States are named ``{state}/by/{label}``, and merge as those of all sequences do. Quantiles are left out: their states
are long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Bools, Floats
from barograph.catalogue.spec import BY, clean_label
from barograph.metrics.batch.inputs import Selection
from barograph.metrics.formulas.sequences import numbered

MAX_DOMAINS = 64
OTHER = "other"
TOO_MANY = f"measure: more than {MAX_DOMAINS} domains: the further ones are recorded as {OTHER!r} (reported once)"


class Domains:
    """The labels of a process so far. The first 64 have values of their own, the further ones are ``other``."""

    def __init__(self, warn: Callable[[str], None] = lambda text: None) -> None:
        self._warn = warn
        self._known: set[str] = set()

    def label(self, given: Any) -> str | None:
        """Return the label under which a domain is recorded; None where a sequence has none."""
        if given is None or given != given:  # NaN stands for no label in data frames
            return None
        text = clean_label(given)
        if text not in self._known and len(self._known) >= MAX_DOMAINS:
            if text != OTHER:
                self._warn(TOO_MANY)
            return OTHER
        self._known.add(text)
        return text

    def chosen(self, labels: NDArray[Any]) -> dict[str, Bools]:
        """Return the domains of some sequences, and which of the sequences each has."""
        names, place = numbered(labels)
        found: dict[str, list[int]] = {}
        for number, name in enumerate(names.tolist()):
            if (label := self.label(name)) is not None:
                found.setdefault(label, []).append(number)
        # Several labels are one domain if they differ in what a name cannot have, or are the further ones.
        return {label: np.isin(place, numbers) for label, numbers in found.items()}


def domain_states(
    selection: Selection,
    domains: Domains,
    measured: Callable[[Selection], Mapping[str, Floats]],
    report: Callable[[str, Exception], None],
) -> dict[str, Floats]:
    """Return the states of all domains of a batch; ``measured`` returns those of some of its sequences.

    Labels that cannot be read cost the domains only: ``report`` is called.
    """
    try:
        parts = domains.chosen(selection.sequence("domains"))
    except Exception as error:  # noqa: BLE001 - labels may be any objects
        report("domains", error)
        return {}
    states: dict[str, Floats] = {}
    for label, chosen in parts.items():
        found = measured(selection.subset(chosen))
        states |= {f"{name}{BY}{label}": state for name, state in found.items()}
    return states
