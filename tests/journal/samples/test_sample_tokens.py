"""Tokens of samples with their values, and further columns."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import barograph
from barograph.base.model import Sample
from barograph.journal.format.samples import decode, encode
from barograph.journal.format.tokens import LENGTHS, NUMBERS, STEP, TokenValues, pack_array, pack_measured, unpack_array


def read(run: barograph.Run) -> list[Sample]:
    return barograph.open(run.path).samples()


def one(**fields: Any) -> Sample:
    """Submit a sample to a new run and read it back."""
    run = barograph.init()
    run.sample(**fields)
    run.finish()
    [sample] = read(run)
    return sample


class Bytes:
    """A tokenizer whose tokens are single bytes, as those of a byte-level BPE may be."""

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")


class Pieces:
    """A tokenizer that drops the space before a word that stands alone, as SentencePiece does."""

    words = ("▁the", "▁cat", "s")

    def decode(self, ids: list[int]) -> str:
        return "".join(self.words[id] for id in ids).replace("▁", " ").lstrip()

    def convert_ids_to_tokens(self, id: int) -> str:
        return self.words[id]


def test_tokens_and_their_values_are_read_as_they_were_given():
    """As lists, arrays and tensors, of any type; NaN stays NaN."""
    sample = one(
        completion="the cat",
        tokens=["the", " cat"],
        token_values={
            "log_prob": torch.tensor([-0.5, -2.25], dtype=torch.bfloat16), "entropy": np.array([0.125, 3.5]),
            "mask": [True, False], "ratio": [1.0, math.nan],
        },
    )  # fmt: skip
    assert sample.tokens == ("the", " cat")
    assert {name: list(values) for name, values in sample.token_values.items() if name != "ratio"} == {
        "log_prob": [-0.5, -2.25], "entropy": [0.125, 3.5], "mask": [1.0, 0.0],
    }  # fmt: skip
    first, second = sample.token_values["ratio"]
    assert (first, str(second)) == (1.0, "nan")


def test_answers_and_further_columns_are_read_as_they_were_given():
    """Numbers, truth values and names, by their names or together."""
    sample = one(
        completion="c", answer=42, reference="43", discarded="zero advantage", id=7, correct=np.bool_(False),
        staleness=torch.tensor(3), difficulty=0.5, domain="algebra", columns={"reward": 2},
    )  # fmt: skip
    assert (sample.answer, sample.reference, sample.discarded, sample.id) == ("42", "43", "zero advantage", "7")
    assert sample.columns == {
        "correct": False, "staleness": 3, "difficulty": 0.5, "domain": "algebra", "reward": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tokenizer", "ids", "expected"),
    [
        (Bytes(), "a 😀é!".encode(), ["a", " ", "😀é", "", "", "", "", "", "!"]),
        (Pieces(), [0, 1, 2], [" the", " cat", "s"]),
        (lambda ids: f"<{ids[0]}>", torch.tensor([5, 6]), ["<5>", "<6>"]),
    ],
)
def test_ids_become_texts(tokenizer: Any, ids: Any, expected: list[str]):
    """By a tokenizer given once or with the sample; a character of several tokens is at the first of them."""
    ids = list(ids) if isinstance(ids, bytes) else ids
    assert list(one(tokens=ids, decode=tokenizer).tokens) == expected
    run = barograph.init()
    run.tokenizer(tokenizer)
    run.sample(tokens=ids)
    run.finish()
    assert [list(sample.tokens) for sample in read(run)] == [expected]


def test_ids_are_decoded_as_they_were_when_submitted():
    """The array may be used again for the next batch."""
    run = barograph.init()
    ids, values = np.array([104, 105]), np.array([1.0, 2.0])
    run.tokenizer(Bytes())
    run.sample(tokens=ids, token_values={"entropy": values})
    ids[:] = values[:] = 0
    run.finish()
    [sample] = read(run)
    assert (list(sample.tokens), list(sample.token_values["entropy"])) == (["h", "i"], [1.0, 2.0])


def test_samples_that_are_not_stored_are_not_decoded():
    """A tokenizer is slow, and most samples of a large step are dropped."""
    calls: list[int] = []
    run = barograph.init(samples_per_step=4)
    run.tokenizer(lambda ids: calls.extend(ids) or "x")
    for n in range(1000):
        run.sample(completion="c", reward=0.0, length=1, tokens=[n])
    run.finish()
    assert 4 <= len(calls) < 200


def test_wrong_tokens_are_reported_and_the_text_is_kept(capsys: pytest.CaptureFixture[str]):
    """Another number of values, values without tokens, ids without a tokenizer, and a tokenizer that fails."""

    def failing(ids: list[int]) -> str:
        raise KeyError("no such id")

    run = barograph.init()
    run.sample(completion="a", tokens=["x", "y"], token_values={"entropy": [1.0], "mask": [1, 0], "text": ["a", "b"]})
    run.sample(completion="b", token_values={"entropy": [1.0]})
    run.sample(completion="c", tokens=[11, 12])
    run.sample(completion="d", tokens=[13], decode=failing)
    run.sample(completion="e", tokens="text", decode=3)
    run.sample(completion="f", tokens=[1.5, "x"])
    run.tokenizer(3)
    run.finish()
    found = {sample.completion: sample for sample in read(run)}
    assert (list(found["a"].token_values), list(found["c"].tokens), list(found["d"].tokens)) == (
        ["mask"], ["[11]", "[12]"], ["[13]"],
    )  # fmt: skip
    skipped = {name: reason for name, (reason, _) in barograph.open(run.path).skipped().items()}
    assert skipped["sample.token_values/entropy"] == "value has shape (1,), expected (2,)"
    assert skipped["sample.token_values"] == "values of tokens need tokens=: texts or ids"
    assert skipped["sample.decode"].startswith("ids are shown as numbers: give decode=")
    assert "sample.token_values/text" in skipped
    assert "expected a tokenizer with decode, or a function of a list of ids; got int" in capsys.readouterr().err
    assert set(found) >= {"a", "b", "c", "d", "f"}


def test_columns_in_bulk():
    """Each entry of a mapping is a column, and so is any further field."""
    run = barograph.init()
    run.samples(
        {
            "completion": ["a", "b"], "correct": [True, False], "tokens": [["a"], ["b"]],
            "token_values": {"entropy": torch.tensor([[0.5], [1.5]])}, "columns": {"n": [1, 2]}, "domain": "maths",
        }
    )  # fmt: skip
    run.finish()
    first, second = read(run)
    assert (first.columns, second.columns) == (
        {"correct": True, "n": 1, "domain": "maths"}, {"correct": False, "n": 2, "domain": "maths"},
    )  # fmt: skip
    assert (list(first.token_values["entropy"]), list(second.token_values["entropy"])) == ([0.5], [1.5])


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=50))
def test_a_packed_array_is_as_exact_as_half_floats_or_exact(values: list[float]):
    """Whole numbers are exact, and large ones do not become infinite."""
    back = unpack_array(pack_array(np.array(values, np.float32), NUMBERS), len(values), NUMBERS)
    for before, after in zip(values, back.tolist(), strict=True):
        exact = math.isinf(before) or before == int(before)
        assert after == before if exact else math.isclose(after, before, rel_tol=2**-10, abs_tol=2**-24)


NAN, INF = math.nan, math.inf
MEASURED: dict[str, dict[str, list[float]]] = {
    "numbers": {"old": [-0.5, -9.125, 0.0], "rollout": [-0.75, -9.0, 0.0]},
    "NaN in both": {"old": [-0.5, NAN, -1.0], "rollout": [-0.75, NAN, 0.0]},
    "NaN in the first": {"old": [NAN, -1.0, -2.0], "rollout": [-0.75, -9.0, 0.0], "x": [NAN, -1.5, -2.5]},
    "NaN in the second": {"old": [-0.5, -9.0, -0.25], "rollout": [NAN, NAN, NAN]},
    "an infinity in the first": {"old": [-INF, -1.0, NAN], "rollout": [-0.75, -9.0, 0.0], "x": [-1.5, NAN, -2.5]},
    "an infinity in the second": {"old": [-0.5, -1.0, -0.25], "rollout": [-0.75, INF, NAN]},
    "large": {"old": [-300.5, -7e4, NAN], "rollout": [-0.75, 5e5, -1.0]},
    "too large": {"old": [-3e38, 1.0, -1.0], "rollout": [3e38, -1.0, -1.0]},
    "the largest of two bytes and NaN": {"old": [-7.999755859375, 7.999755859375, NAN]},
}


@pytest.mark.parametrize("name", MEASURED)
def test_measured_values_are_exact_to_a_step(name: str):
    """Also beside those that are not finite, which stay what they are."""
    given = {key: np.array(values, np.float32) for key, values in MEASURED[name].items()}
    packed = pack_measured(given, ("old", "rollout", "x"), ())
    back = TokenValues(packed, 3)
    for key, values in given.items():
        np.testing.assert_allclose(back[key], values, rtol=2**-23, atol=STEP, err_msg=key)


def test_a_value_that_is_not_a_number_costs_the_others_nothing():
    """All are stored in steps, and the differences of log-probs too."""
    draw = np.random.default_rng(3)
    old = -draw.exponential(1.0, 1000).astype(np.float32)
    values = {"old": old, "rollout": old + draw.normal(0, 0.01, 1000).astype(np.float32)}
    exact = pack_measured(values, ("old", "rollout"), ())
    holes = {name: np.where(old < -4, np.nan, array) for name, array in values.items()}
    holed = pack_measured(holes, tuple(values), ())
    assert [text.partition(":")[0] for text in exact.values()] == ["q2", "q2-old"]
    assert [text.partition(":")[0] for text in holed.values()] == ["n2", "n2-old"]
    assert sum(map(len, holed.values())) < 1.1 * sum(map(len, exact.values()))


@pytest.mark.parametrize("completion", ["ab", "abc"])
def test_tokens_survive_a_second_way_through_json(completion: str):
    """Also if their text is not the completion; a sample that is encoded again is not packed again."""
    sample = Sample(completion=completion, tokens=("a", "", "b"), token_values={"x": (1.0, 2.0, 0.5)}, step=3)
    once = decode(encode(sample), 3)
    assert once == decode(encode(once), 3) == sample
    assert ("text" in json.loads(encode(sample))["tokens"]) == (completion == "abc")


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no count": lambda record: record["tokens"].pop("count"),
    "a huge count": lambda record: record["tokens"].update(count=10**9),
    "another count": lambda record: record["tokens"].update(count=4),
    "lengths of another text": lambda record: record.update(completion="abcd"),
    "lengths that are not packed": lambda record: record["tokens"].update(lengths="u1:!!"),
    "a type that is none": lambda record: record["tokens"].update(lengths="O8:eJwDAAAAAAE="),
    "a list": lambda record: record.update(tokens=["a"]),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_tokens_that_cannot_be_read_are_left_out(name: str):
    """The rest of the sample is read."""
    record = json.loads(encode(Sample(completion="abc", tokens=("a", "bc"), token_values={"x": (1.0, 2.0)})))
    DAMAGE[name](record)
    sample = decode(record, 1)
    assert (len(sample.tokens), len(sample.token_values), bool(sample.completion)) == (0, 0, True)


def test_a_damaged_array_is_not_a_number():
    """It has as many entries as there are tokens; an array that unpacks to more is damaged too."""
    bomb = pack_array(np.zeros(10**6), NUMBERS)
    record = json.loads(encode(Sample(completion="ab", tokens=("a", "b"), token_values={"x": (1.0, 2.0)})))
    for text in ("f2:eJwDAAAAAAE=", "f2:?", "f2:" + "A" * 10, bomb, "x"):
        values = decode({**record, "token_values": {"x": text}}, 1).token_values["x"]
        assert [str(value) for value in values] == ["nan", "nan"]
    steps = pack_measured({"old": np.array([1.0, 2.0]), "x": np.array([1.5, 2.5])}, ("old", "x"), ())
    assert decode({**record, "token_values": steps}, 1).token_values["x"] == (1.5, 2.5)
    for damaged in (
        {"x": steps["x"]},
        {"x": steps["x"].replace("old", "x")},
        {**steps, "old": steps["x"]},
        {"x": "q9:"},
        {"x": "n2:?"},
    ):
        values = decode({**record, "token_values": damaged}, 1).token_values["x"]
        assert [str(value) for value in values] == ["nan", "nan"]
    with pytest.raises(ValueError, match="expected u1, u2, u4"):
        unpack_array(bomb, 2, LENGTHS)


def test_a_sample_over_the_budget_loses_its_tokens_before_its_text():
    """Half of the tokens of a text would be of no use."""
    run = barograph.init(sample_bytes_per_step=4000)
    noise = np.random.default_rng(1).normal(size=3000)
    run.sample(completion="x" * 3000, reward=1.0, tokens=["x"] * 3000, token_values={"entropy": noise})
    run.finish()
    [sample] = read(run)
    assert (len(sample.completion), len(sample.tokens)) == (3000, 0)


def test_a_long_sequence_takes_little_space():
    """Eight arrays of 8,192 tokens, as a trainer has them, take less than half floats, and constant ones nothing."""
    run = barograph.init()
    draw = np.random.default_rng(1)
    entropy = draw.exponential(0.4, 8192)
    log_prob = -draw.exponential(0.3, 8192)
    ratio = np.exp(draw.normal(0, 0.02, 8192))
    run.sample(
        tokens=["tok "] * 8192, completion="tok " * 8192,
        token_values={
            "log_prob": log_prob, "old": log_prob - np.log(ratio), "rollout": log_prob + draw.normal(0, 0.01, 8192),
            "reference": log_prob * 1.1, "entropy": entropy, "ratio": ratio, "advantage": np.full(8192, 0.7),
            "mask": np.ones(8192),
        },
    )  # fmt: skip
    run.finish()
    size = sum(file.stat().st_size for file in Path(run.path).glob("*.seg"))
    assert size < 1.85 * 6 * 8192
