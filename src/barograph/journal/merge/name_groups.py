"""Groups of states whose values belong together.

The value under a name follows from one state, from several (a derived metric), or from one of several that have the
same name in a vocabulary. The states of a group are all that the names of the group need, so that a reader who wants
one metric merges those, and not all that were measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.spec import BY, has_domains, split_domain
from barograph.metrics.batch.quantities import BY_STATE
from barograph.metrics.batch.values import NONFINITE, STATES_OF_DERIVED, ids_in_order, written_name


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
