"""Measured states of several ranks, merged before anything is divided: no collective was needed; and the groups of
states whose values belong together.

The value under a name follows from one state, from several (a derived metric), or from one of several that have the
same name in a vocabulary. The states of a group are all that the names of the group need, so that a reader who wants
one metric merges those, and not all that were measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from barograph.base.arrays import Floats
from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.spec import BY, has_domains, split_domain
from barograph.journal.format.fields import nullable, read_number
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.quantities import BY_STATE, COEFFICIENTS
from barograph.metrics.batch.step_states import StepStates, coefficient_states
from barograph.metrics.batch.values import NONFINITE, STATES_OF_DERIVED, Measured, ids_in_order, written_name
from barograph.metrics.states.layout import Layout

MAX_STATES = 10_000  # of a layout; each domain has one of its own


@dataclass(frozen=True, slots=True)
class RankState:
    """The state of one rank in one step."""

    rank: int
    layout: int
    vector: Floats | bytes
    """Bytes where it is encoded (``barograph.metrics.states.layout``)."""


@dataclass(frozen=True, slots=True)
class DescribedLayout:
    """A layout from the journal."""

    layout: Layout
    coefficients: Mapping[str, Floats] = field(default_factory=dict)
    """States of the options that version 0.1 wrote with the layout; later versions have them in the vector."""

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> tuple[int, DescribedLayout]:
        """Read a layout record; raise ValueError for states of a kind or name that this version does not know."""
        if len(record["entries"]) > MAX_STATES:
            raise ValueError(f"more than {MAX_STATES:,} states in a layout")
        layout = Layout(tuple((name, kind) for name, kind in record["entries"]))
        unknown = [name for name, kind in layout.entries if not _is_known(name, kind)]
        if unknown:
            raise ValueError(f"states that this version does not know: {', '.join(unknown)}")
        if len(layout.places) != len(layout.entries):
            raise ValueError("a state occurs twice")
        given = record.get("options") or {}
        options = Options(**{name: nullable(read_number)(given[name]) for name in COEFFICIENTS if name in given})
        return int(record["layout"]), cls(layout, coefficient_states(options))


def _is_known(state: str, kind: str) -> bool:
    try:
        return BY_STATE[state].kind.name == kind
    except KeyError:
        return False


def merge_states(states: Iterable[RankState], layouts: Mapping[int, DescribedLayout], vocabulary: str) -> Measured:
    """Return the values of the states of one step; raise ValueError if the layout of one is not known."""
    dense: dict[int, list[Floats]] = {}
    encoded: dict[int, list[bytes]] = {}
    for state in states:
        described, vector = layouts.get(state.layout), state.vector
        if described is None or (not isinstance(vector, bytes) and len(vector) != described.layout.width):
            raise ValueError(f"the layout of the state of rank {state.rank} is not known")
        if isinstance(vector, bytes):
            encoded.setdefault(state.layout, []).append(vector)
        else:
            dense.setdefault(state.layout, []).append(vector)
    # Vectors of one layout first: a few calls of NumPy for each layout, and not one for each state and rank.
    vectors = [(id, layouts[id].layout.merge(alike)) for id, alike in dense.items()]
    vectors += [(id, layouts[id].layout.merge_encoded(alike)) for id, alike in encoded.items()]
    merged = StepStates()
    for id, vector in vectors:
        described = layouts[id]
        merged.merge(StepStates({**described.coefficients, **described.layout.unpack(vector)}))
    return merged.finish(vocabulary)


@dataclass(frozen=True, slots=True)
class NameGroup:
    """States, and all names that their values can have."""

    states: frozenset[str]
    names: tuple[str, ...]


def name_groups(states: Iterable[str], vocabulary: str, together: Iterable[frozenset[str]] = ()) -> list[NameGroup]:
    """Split states into the smallest groups, in the order of their first states; those of ``together`` stay so."""
    of_state = {state: list(_names(state, vocabulary)) for state in dict.fromkeys(states)}
    first_of: dict[str, str] = {state: state for state in of_state}  # another state of the same group, or itself

    def first(state: str) -> str:
        while first_of[state] != state:
            state = first_of[state]
        return state

    by_name: dict[str, list[str]] = {}
    for state, names in of_state.items():
        for name in names:
            by_name.setdefault(name, []).append(state)
    for linked in (*by_name.values(), *(sorted(of_state.keys() & some) for some in together)):
        for state in linked[1:]:
            first_of[first(state)] = first(linked[0])
    found: dict[str, list[str]] = {}
    for state in of_state:
        found.setdefault(first(state), []).append(state)
    return [
        NameGroup(frozenset(group), tuple(dict.fromkeys(name for state in group for name in of_state[state])))
        for group in found.values()
    ]


def ordered_names(states: Iterable[str], vocabulary: str) -> list[str]:
    """Return the names of all values that states can have, in the order in which a step's values are written."""
    known = list(dict.fromkeys(states))
    ids = ids_in_order(known)
    places = {id: place for place, id in enumerate(STATES_OF_DERIVED)}
    derived = dict.fromkeys(id for state in known for id in _derived(state))
    domains = list(dict.fromkeys(["", *(split_domain(id)[1] for id in derived)]))
    ids += sorted(derived, key=lambda one: (domains.index(split_domain(one)[1]), places[split_domain(one)[0]]))
    names = dict.fromkeys(written_name(id, vocabulary) for id in ids)
    return [*names, *(f"{NONFINITE}{name}" for name in names)]


def _names(state: str, vocabulary: str) -> Iterator[str]:
    """Yield the names of values that follow from a state, alone or with others."""
    for id in (*BY_STATE[state].metrics, *_derived(state)):
        name = written_name(id, vocabulary)
        yield from (name, f"{NONFINITE}{name}")


def _derived(state: str) -> Iterator[str]:
    """Yield the ids of the metrics that are derived from a state and others."""
    base, domain = split_domain(state)
    for id, sources in STATES_OF_DERIVED.items():
        if base in sources and not domain:
            yield id
        elif base in sources and has_domains(REGISTRY.metric(id)):
            yield f"{id}{BY}{domain}"
