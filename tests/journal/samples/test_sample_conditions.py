"""Conditions on any column of samples, and sorting by any."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import barograph
from barograph.base.model import Sample
from barograph.journal.samples import blocks
from barograph.journal.samples.query import Query, parse_conditions

ROWS: list[dict[str, Any]] = [
    {"completion": "a", "reward": 1.0, "rewards": {"format": 0.25}, "correct": False, "domain": "algebra", "level": 3},
    {"completion": "b", "reward": 0.5, "rewards": {"format": 0.75}, "correct": True, "domain": "number theory"},
    {
        "completion": "c",
        "reward": 0.0,
        "rewards": {"format": math.nan},
        "correct": False,
        "discarded": "zero advantage",
    },
    {"completion": "d", "answer": "42", "reference": "43", "level": "3", "task": "7", "length": 9},
    {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}], "tokens": ["x", "y"]},
]


@pytest.fixture
def run() -> barograph.Run:
    run = barograph.init(name="lake")
    run.samples(ROWS, step=4)
    run.finish()
    return run


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("reward.format < 0.5", "a"),
        ("reward.format >= .25", "ab"),
        ("correct = false", "ac"),
        ("correct=true", "b"),
        ("correct != true", "ac"),
        ("correct = false and reward > 0.5", "a"),
        ("correct = false, reward <= 0.5", "c"),
        ("domain = algebra", "a"),
        ('domain = "number theory"', "b"),
        ("domain = number theory and reward = 0.5", "b"),
        ("domain ~ THEORY", "b"),
        ("domain !~ theory", "a"),
        ("discarded = none", "abd-"),
        ("discarded != none", "c"),
        ("discarded ~ advantage", "c"),
        ("level = 3", "ad"),
        ('level = "3"', "d"),
        ("level > 2", "a"),
        ("answer = 42 and reference = 43", "d"),
        ("task = 7 and length < 10", "d"),
        ("finish = stop", ""),
        ("tool_calls = 1", "-"),
        ("tool_calls != none", "-"),
        ("tokens = 2", "-"),
        ("turns = 1 and step = 4", "-"),
        ('"reward.format" > 0.5', "b"),
        ("nothing = 1", ""),
        ("correct = true or reward > 0.5", "ab"),
        ("not correct = false and reward != none", "b"),
        ("(domain = algebra or discarded != none) and correct = false", "ac"),
        ("", "abcd-"),
    ],
)
def test_conditions_on_any_column(run: barograph.Run, where: str, expected: str):
    """Numbers, truth values and names; a missing value fulfils only ``= none``."""
    found = barograph.open(run.path).samples(where=where)
    assert "".join(sample.completion or "-" for sample in found) == expected


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("reward.format", "abcd-"),
        ("-reward.format", "bacd-"),
        ("domain", "abcd-"),
        ("-domain", "bacd-"),
        ("level", "adbc-"),
        ("-correct", "bacd-"),
        ("-tokens", "-abcd"),
    ],
)
def test_samples_are_sorted_by_any_column(run: barograph.Run, sort: str, expected: str):
    """Numbers before names, and samples without the value last."""
    found = barograph.open(run.path).samples(sort=sort)
    assert "".join(sample.completion or "-" for sample in found) == expected


CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize(
    ("fields", "calls"),
    [
        ({"completion": f"First {CALL} then {CALL}"}, 2),
        ({"completion": f"{CALL}<|im_end|>\n<|im_start|>user\n<tool_response>{CALL}</tool_response><|im_end|>\n"}, 1),
        ({"prompt": f"<|im_start|>system\nCall tools so: {CALL}<|im_end|>\n", "completion": "No"}, None),
        ({"prompt": CALL, "completion": "No"}, None),
        ({"messages": [{"role": "system", "content": CALL}, {"role": "assistant", "content": CALL}]}, 1),
        ({"messages": [{"role": "user", "content": "Hi"}]}, 0),
        ({"completion": CALL, "columns": {"tool_calls": 7}}, 7),
    ],
)
def test_the_calls_of_tools_are_counted(fields: dict[str, Any], calls: int | None):
    """Those of the model, in messages or in a plain completion; a description of how to call one is none."""
    run = barograph.init()
    run.sample(**fields)
    run.finish()
    view = barograph.open(run.path)
    assert view.find_samples(Query(where=f"tool_calls = {'none' if calls is None else calls}")).matched == 1


def test_the_census_has_the_columns(run: barograph.Run):
    """With the range of numbers and the first names, so that a person knows what to ask for."""
    found = barograph.open(run.path).find_samples(Query(where="nothing > 1", sort="-beauty"))
    assert found.unknown == ("beauty", "nothing")
    columns = found.census.columns
    assert (columns["reward.format"].low, columns["reward.format"].high) == (0.25, 0.75)
    assert (columns["correct"].kind, columns["domain"].names) == ("truth", ("algebra", "number theory"))


def test_a_sample_is_found_by_its_place(run: barograph.Run):
    """A link to a sample stays right when others are added, and after the index was made again."""
    view = barograph.open(run.path)
    found = view.find_samples(Query(sort="-reward"))
    assert len(set(found.places)) == len(ROWS)
    for place, sample in zip(found.places, found.samples, strict=True):
        assert view.find_samples(Query(place=place)).samples == [sample]
    for wrong in ("", "x", "trainer.0.1.0.seg:99", "trainer.0.1.0.seg:-1", "trainer.0.1.0.seg:²"):
        assert view.find_samples(Query(place=wrong)).samples == []


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "reward",
            "where: expected NAME < VALUE; got 'reward'; an example is 'reward.format < 0.5 and correct = false'",
        ),
        ("reward <", "got 'reward <'"),
        ("reward < high", "where: < compares numbers; got 'high'"),
        ("a = 1 and", None),
        ("a = 1 and b", "got 'b'"),
        ("a = 1 or", "got nothing"),
    ],
)
def test_a_condition_that_is_none_is_refused(where: str, message: str | None):
    """With what is expected."""
    if message is None:
        assert len(parse_conditions(where).parts()) == 1
        return
    with pytest.raises(ValueError, match="where: ") as problem:
        Query(where=where)
    assert message in str(problem.value)


VALUES = st.none() | st.floats(width=32) | st.integers(-3, 3) | st.booleans() | st.sampled_from(["a", "b c", "1", ""])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.fixed_dictionaries({"x": VALUES, "y": VALUES}), min_size=1, max_size=12), st.integers(1, 4))
def test_blocks_keep_every_column(rows: list[dict[str, Any]], most: int):
    """Whatever the kinds of the values, and wherever a block is extended."""
    builder = blocks.BlockBuilder()
    for number, row in enumerate(rows):
        builder.add(Sample(step=0, columns={name: value for name, value in row.items() if value is not None}))
        if number % most == 0:
            columns, texts, rest = builder.parts()
            block, builder = blocks.SampleBlock.decoded(columns), blocks.BlockBuilder()
            builder.extend(block, texts, blocks.unpack_rest(block, rest))
    block = blocks.SampleBlock.decoded(builder.parts()[0])
    for name in ("x", "y"):
        numbers, known = block.numbers(name)
        for place, row in enumerate(rows):
            value = row[name]
            is_number = value is not None and not isinstance(value, str) and not math.isnan(value)
            assert known[place] == is_number
            assert not is_number or numbers[place] == value
            assert bool(block.name_numbers(name)[place]) == isinstance(value, str)


def test_more_columns_than_are_searched_can_still_be_read(monkeypatch: pytest.MonkeyPatch):
    """The index does not grow with the number of names."""
    monkeypatch.setattr(blocks, "MAX_COLUMNS", 3)
    run = barograph.init()
    run.sample(completion="c", columns={f"c{n}": n for n in range(9)})
    run.finish()
    view = barograph.open(run.path)
    [sample] = view.samples(where="c2 = 2")
    assert (len(sample.columns), view.samples(where="c8 = 8")) == (9, [])
