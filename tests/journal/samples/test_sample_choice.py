"""Tests of the choice of samples."""

import json
import math
import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.base.model import Sample
from barograph.recording.samples.choice import SampleBudget, SampleChoice, shortened, shortened_sample

NUMBERS = st.none() | st.floats(-3, 3).map(lambda value: round(value, 1))


@st.composite
def several_samples(draw: st.DrawFn) -> list[Sample]:
    """Draw samples that differ in their run, in groups of any size."""
    rows = draw(
        st.lists(
            st.tuples(st.text(max_size=60), NUMBERS, NUMBERS, st.integers(0, 5), st.sampled_from(["stop", "length"])),
            min_size=1,
            max_size=60,
        )
    )
    return [
        Sample(
            "p", completion, reward=reward, advantage=advantage, group=f"g{group}", finish_reason=why, run=str(place)
        )
        for place, (completion, reward, advantage, group, why) in enumerate(rows)
    ]


def chosen(samples: list[Sample], budget: SampleBudget) -> list[dict[str, object]]:
    choice = SampleChoice(budget)
    for place, sample in enumerate(samples):
        choice.consider(sample, place)
    assert choice.seen == len(samples)
    return [json.loads(text) for text in choice.chosen()]


@given(several_samples(), st.integers(1, 40), st.integers(100, 4000))
@settings(deadline=None)
def test_the_budget_is_never_exceeded(samples: list[Sample], count: int, size: int):
    """Neither in samples nor in bytes, and no sample is kept twice."""
    choice = SampleChoice(SampleBudget(count, size))
    for place, sample in enumerate(samples):
        choice.consider(sample, place)
    kept = choice.chosen()
    assert len(kept) <= count
    assert sum(len(text) + 1 for text in kept) <= size
    runs = [json.loads(text)["run"] for text in kept if b"left out" not in text]
    assert len(runs) == len(set(runs))


@given(several_samples())
@settings(deadline=None)
def test_a_step_within_its_budget_is_kept_completely(samples: list[Sample]):
    """Nothing is dropped."""
    assert len(chosen(samples, SampleBudget(len(samples), 1 << 20))) == len(samples)


@given(several_samples(), st.integers(5, 30))
@settings(deadline=None)
def test_the_extremes_are_always_kept(samples: list[Sample], count: int):
    """Highest and lowest reward, largest advantage, longest and shortest completion."""
    kept = chosen(samples, SampleBudget(count, 1 << 20))
    for value in (
        lambda s: s.get("reward"),
        lambda s: None if s.get("reward") is None else -s["reward"],
        lambda s: None if s.get("advantage") is None else abs(s["advantage"]),
        lambda s: len(s.get("completion", "")),
        lambda s: -len(s.get("completion", "")),
    ):
        records = [{"completion": s.completion, "reward": s.reward, "advantage": s.advantage} for s in samples]
        offered = [number for record in records if (number := value(record)) is not None]
        held = [number for record in kept if (number := value(record)) is not None]
        assert max(held, default=None) == max(offered, default=None)


@given(several_samples(), st.integers(8, 40), st.integers(400, 6000), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_the_order_of_arrival_does_not_change_extremes_and_groups(
    samples: list[Sample], count: int, size: int, order: random.Random
):
    """Only the random samples depend on it."""

    def shares(some: list[Sample]) -> list[list[str]]:
        choice = SampleChoice(SampleBudget(count, size))
        for place, sample in enumerate(some):
            choice.consider(sample, place)
        held = [*choice._extremes, choice._truncated, *choice._groups]
        return [sorted(json.loads(kept.text)["run"] for kept in share) for share in held]

    shuffled = samples.copy()
    order.shuffle(shuffled)
    assert shares(shuffled) == shares(samples)


def test_complete_groups_are_kept_and_the_same_over_steps():
    """Half of the budget is for groups with all their members; a later step keeps the same ones."""

    def groups(step: int) -> dict[str, int]:
        samples = [
            Sample("p", f"{step} {task} {n}", reward=float(n % 2), task=f"t{task}", group=f"{step}-{task}")
            for task in range(100)
            for n in range(8)
        ]
        random.Random(step).shuffle(samples)
        tasks = [str(record["task"]) for record in chosen(samples, SampleBudget(64, 1 << 20))]
        return {task: tasks.count(task) for task in tasks}

    whole = {task for task, count in groups(1).items() if count == 8}
    assert len(whole) >= 4
    assert whole == {task for task, count in groups(2).items() if count == 8}


def test_a_group_that_is_too_large_is_kept_in_part():
    """If all samples have one task, the budget is still used."""
    kept = chosen([Sample("p", str(n), reward=0.0, task="gsm8k") for n in range(1000)], SampleBudget(32, 1 << 20))
    assert len(kept) == 32


def test_truncated_completions_and_nan_are_kept():
    """They are kept before ordinary samples."""
    samples = [Sample("p", f"fine {n}", reward=1.0, finish_reason="stop") for n in range(500)]
    samples[77] = Sample("p", "cut", reward=0.5, finish_reason="length")
    samples[99] = Sample("p", "nan", reward=math.nan, finish_reason="stop")
    kept = {str(record["completion"]) for record in chosen(samples, SampleBudget(16, 1 << 20))}
    assert {"cut", "nan"} <= kept


def test_the_only_component_of_the_reward_counts_as_the_reward():
    """With several components there is no reward."""
    one = [Sample("p", str(n), rewards={"accuracy": float(n)}) for n in range(200)]
    assert {199.0, 0.0} <= {record["rewards"]["accuracy"] for record in chosen(one, SampleBudget(8, 1 << 20))}  # type: ignore[index]


def test_memory_is_bounded_by_the_budget():
    """Ten thousand samples of 10 kB are submitted to a budget of 64 kB."""
    random_words = random.Random(5)
    choice = SampleChoice(SampleBudget(16, 64 << 10))
    tracemalloc.start()
    for place in range(10_000):
        text = str(random_words.random()) * 550
        choice.consider(Sample(f"p{place}", text, reward=random_words.random(), task=f"t{place // 4}"), place)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * (64 << 10) + (256 << 10)


def test_the_global_random_state_is_not_touched():
    """A seeded training is not affected."""
    random.seed(3)
    before = random.getstate()
    chosen([Sample("p", str(n)) for n in range(300)], SampleBudget(8, 1000))
    assert random.getstate() == before


@pytest.mark.parametrize("letter", ["a", "字", "\ud800", '"', "\n"])
def test_a_sample_larger_than_the_budget_is_shortened_in_the_middle(letter: str):
    """Beginning and end are kept, with a note of how much was left out."""
    sample = Sample("What is 2 + 2?", "start" + letter * 50_000 + "end", reward=1.0)
    [kept] = chosen([sample], SampleBudget(8, 4000))
    text = str(kept["completion"])
    assert (kept["prompt"], text[:5], text[-3:]) == ("What is 2 + 2?", "start", "end")
    assert "characters left out …" in text
    assert len(json.dumps(kept, ensure_ascii=False)) < 4100


def test_texts_inside_messages_are_shortened_too():
    """If that is not enough, numbers and a note are left."""
    images = [{"role": "user", "content": [{"type": "image", "url": "x" * 9000}]}] * 3
    shorter = json.loads(shortened_sample(json.dumps({"messages": images, "reward": 1}).encode(), 2000))
    assert "left out" in shorter["messages"][2]["content"][0]["url"]
    many = [{"role": "user", "content": "x"}] * 1000
    assert json.loads(shortened_sample(json.dumps({"messages": many, "reward": 1}).encode(), 200))["reward"] == 1
    assert shortened("short", 100) == "short"
