"""Repetition at the end of sequences: the definition, its edges, and equality with the reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import repeats

from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.host import HostSelection
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.step import measure


def host(actions: np.ndarray, mask: np.ndarray, **more) -> HostSelection:
    return HostSelection(Batch(response_mask=mask, actions=actions, **more), Options())


def ending(period: int, length: int, before: int = 50, after: int = 0, width: int = 600) -> tuple[list, list]:
    """Return the tokens and the mask of a response that ends in ``length`` tokens of a period."""
    tokens = [*range(10_000, 10_000 + before), *(n % period for n in range(length))]
    return tokens + [7] * (width - len(tokens)), [1] * (len(tokens) - after) + [0] * (width - len(tokens) + after)


@pytest.mark.parametrize(
    ("period", "length", "found"),
    [
        (1, 64, True), (1, 63, False), (3, 64, True), (3, 63, False), (32, 64, True), (33, 66, True), (33, 65, False),
        (100, 200, True), (100, 199, False), (128, 256, True), (128, 255, False), (129, 500, False),
    ],
)  # fmt: skip
def test_a_repetition_has_64_tokens_and_two_periods(period: int, length: int, found: bool):
    """Of a period of up to 128 tokens."""
    tokens, mask = ending(period, length)
    assert host(np.array([tokens]), np.array([mask])).repeats().tolist() == [found]


def test_only_response_tokens_count():
    """An observation within the stretch, a prompt before it and the start of the sequence end it; ``keep`` does not."""
    tokens, mask = map(np.array, ending(5, 80, before=0, width=200))
    assert host(tokens[None], mask[None]).repeats().all()
    hole = mask.copy()
    hole[40] = 0
    prompt = mask.copy()
    prompt[:20] = 0
    cases = np.stack([mask, hole, prompt, np.zeros_like(mask)])
    assert host(np.stack([tokens] * 4), cases, keep=[0, 1, 1, 1]).repeats().tolist() == [True, False, False, False]
    # Two sequences of a stream: the second is too short by itself.
    bounds = [0, 50, 80]
    assert host(tokens[:80], mask[:80], cu_seqlens=bounds).repeats().tolist() == [False, False]
    assert measure(Batch(response_mask=mask[None], actions=tokens[None]))["tokens/repetition"] == 1.0


def test_sequences_without_tokens_are_counted_as_no_repetition():
    """Empty batches and empty sequences of a stream too."""
    assert host(np.zeros((0, 9), int), np.zeros((0, 9), bool)).repeats().tolist() == []
    assert host(np.zeros((2, 0), int), np.zeros((2, 0), bool)).repeats().tolist() == [False, False]
    assert host(np.zeros(0, int), np.zeros(0, bool), cu_seqlens=[0, 0, 0]).repeats().tolist() == [False, False]
    measured = measure(Batch(response_mask=np.zeros((0, 9), bool), actions=np.zeros((0, 9), int)))
    assert measured.missing["tokens/repetition"] == "no sequence"


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.booleans())
def test_repetitions_are_those_of_the_reference(seed: int, vocabulary: int, packed: bool):
    """Random tokens of a tiny vocabulary, repeated ends of random periods, holes and padding."""
    random = np.random.default_rng(seed)
    rows, width = 6, 400
    actions = random.integers(0, 10 ** (vocabulary - 1) + 1, (rows, width))
    mask = np.zeros((rows, width), bool)
    for row in range(rows):
        period, stop = random.integers(1, 150), random.integers(0, width + 1)
        begin = max(0, stop - random.integers(30, 330))
        actions[row, begin:stop] = np.resize(random.integers(0, 50, period), stop - begin)
        mask[row, random.integers(0, stop + 1) if random.random() < 0.3 else 0 : stop] = True
        if random.random() < 0.3:
            mask[row, random.integers(0, width)] ^= True
    expected = [repeats(actions[row].tolist(), np.flatnonzero(mask[row]).tolist()) for row in range(rows)]
    if packed:
        got = host(actions.reshape(-1), mask.reshape(-1), cu_seqlens=np.arange(rows + 1) * width).repeats()
    else:
        got = host(actions, mask).repeats()
    assert got.tolist() == expected
