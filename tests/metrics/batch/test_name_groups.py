"""Groups of states: a metric is finished from the states of its group as from all states of the step."""

from __future__ import annotations

import numpy as np
import pytest

import barograph
from barograph.journal.merge.measurements import name_groups, ordered_names
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.step import PARTS, Measurement
from barograph.metrics.batch.values import DERIVED, STATES_OF_DERIVED, finished

TOKENS = (
    "log_probs", "old_log_probs", "ref_log_probs", "rollout_log_probs", "entropy", "values", "old_values", "returns",
    "advantages",
)  # fmt: skip


def states_of_a_step() -> dict[str, np.ndarray]:
    chance = np.random.default_rng(3)
    tokens = {name: -np.abs(chance.normal(size=(6, 5))) for name in TOKENS}
    tokens["returns"][2, 1] = np.nan
    measurement = Measurement()
    batch = barograph.Batch(
        response_mask=chance.random((6, 5)) < 0.8,
        scores=chance.normal(size=6),
        domains=["math", "code", "math", "code", "chat", "chat"],
        **tokens,
    )
    options = {"kl_loss_coef": 0.1, "entropy_coef": 0.01, "clip": 0.2, "truncate": 2.0}
    measurement.add(batch, PARTS, Options.from_keywords(options))
    layout, vector = measurement.packed()
    return layout.unpack(vector)


@pytest.mark.parametrize("vocabulary", ["roll", "trl", "trinity"])
def test_a_group_gives_the_values_that_all_states_give(vocabulary: str):
    """Also derived metrics, those of domains, and names that two states share."""
    states = states_of_a_step()
    whole = finished(states, vocabulary)
    groups = name_groups(states, vocabulary)
    found: dict[str, float] = {}
    for group in groups:
        values = finished({name: state for name, state in states.items() if name in group.states}, vocabulary)
        assert values.keys() <= {*group.names}
        assert not values.keys() & found.keys()
        found |= values
    assert repr(sorted(found.items())) == repr(sorted(whole.items()))
    assert len(groups) > 20


def test_names_are_in_the_order_of_values():
    """So that names which no row has are listed as a step would list them."""
    states = states_of_a_step()
    whole = finished(states, "roll")
    order = ordered_names(states, "roll")
    assert [name for name in order if name in whole] == list(whole)


def test_states_that_are_decoded_together_are_one_group():
    """Decoding one of them decodes all."""
    states = list(states_of_a_step())
    together = frozenset(states[3:9:2])
    groups = name_groups(states, "roll", [together])
    assert any(together <= group.states for group in groups)


def test_every_derivation_has_its_states():
    """A derivation that is added without them would be computed from a part of its states."""
    assert STATES_OF_DERIVED.keys() == DERIVED.keys()
