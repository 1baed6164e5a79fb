"""The most likely tokens at each place of a sample: what is accepted, stored and shown."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import barograph
from barograph.apps.cli import main
from barograph.base.model import Sample
from barograph.journal.format.samples import decode, encode
from barograph.journal.format.tokens import MAX_ENTRIES

TOKENS = ["The", " cat", " sat"]
EXPECTED = ((("The", -0.5), ("A", -1.0)), ((" dog", -0.25), (" cat", -1.5)), ())


@dataclass
class Logprob:
    """As vLLM has it."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


SHAPES: dict[str, Any] = {
    "pairs": [[("A", -1.0), ("The", -0.5)], [(" cat", -1.5), (" dog", -0.25)], []],
    "ids": [[(1, -1.0), (0, -0.5)], {2: -1.5, 3: -0.25}, None],
    "vLLM": [
        {0: Logprob(-0.5, 1, "The"), 1: Logprob(-1.0, 2, "A")},
        {3: Logprob(-0.25, 1, None), 2: Logprob(-1.5, 2, " cat")},
        None,
    ],
    "OpenAI chat": SimpleNamespace(content=[
        SimpleNamespace(token="The", logprob=-0.5, top_logprobs=[
            SimpleNamespace(token="The", logprob=-0.5), SimpleNamespace(token="A", logprob=-1.0)]),
        SimpleNamespace(token=" cat", logprob=-1.5, top_logprobs=[
            SimpleNamespace(token=" dog", logprob=-0.25), SimpleNamespace(token=" cat", logprob=-1.5)]),
        SimpleNamespace(token=" sat", logprob=0.0, top_logprobs=[]),
    ]),
    "OpenAI chat as JSON": {"content": [
        {"token": "The", "logprob": -0.5, "top_logprobs": [
            {"token": "The", "logprob": -0.5}, {"token": "A", "logprob": -1.0}]},
        {"top_logprobs": [{"token": " cat", "logprob": -1.5}, {"token": " dog", "logprob": -0.25}]},
        {"top_logprobs": None},
    ]},
    "OpenAI completions": {"tokens": TOKENS, "top_logprobs": [
        {"The": -0.5, "A": -1.0}, {" dog": -0.25, " cat": -1.5}, None]},
}  # fmt: skip
WORDS = ["The", "A", " cat", " dog"]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_engines_give_is_accepted(shape: str):
    """The most likely first; ids are decoded by the run's tokenizer."""
    run = barograph.init(project="p")
    run.tokenizer(lambda ids: "".join(WORDS[id] for id in ids))
    run.sample("p", "The cat sat", tokens=TOKENS, top_logprobs=SHAPES[shape], step=0)
    run.finish()
    view = barograph.open(run.path)
    assert not view.skipped()
    assert tuple(view.samples()[0].top_logprobs) == EXPECTED


def test_fewer_entries_are_those_of_the_last_tokens():
    """An engine gives them for the completion; the tokens may be of the prompt too."""
    run = barograph.init(project="p")
    run.sample("p", "c", tokens=["p", "a", "b"], top_logprobs=SHAPES["pairs"][:2], step=0)
    run.finish()
    assert [len(one) for one in barograph.open(run.path).samples()[0].top_logprobs] == [0, 2, 2]


@pytest.mark.parametrize(
    ("given", "reason"),
    [([[("a", -1.0)]] * 4, "4 entries for 3 tokens"), ("text", "of type str"), ([[("a",)]], "of type list is not")],
)
def test_what_cannot_be_read_is_reported(given: Any, reason: str):
    """And costs itself, not the sample."""
    run = barograph.init(project="p")
    run.sample("p", "The cat sat", tokens=TOKENS, top_logprobs=given, reward=1.0, step=0)
    run.finish()
    view = barograph.open(run.path)
    assert reason in view.skipped()["sample.top_logprobs"][0]
    assert [len(sample.tokens) for sample in view.samples()] == [3]


def test_they_need_tokens():
    """Without them they are left out."""
    run = barograph.init(project="p")
    run.sample("p", "c", top_logprobs=[[("a", -1.0)]], step=0)
    run.finish()
    assert "need tokens=" in barograph.open(run.path).skipped()["sample.top_logprobs"][0]


def test_their_number_is_bounded():
    """Of many tokens each has fewer; the same texts are stored once."""
    count = MAX_ENTRIES // 4
    alternatives = tuple((f"word {n}", -float(n)) for n in range(20))
    text = encode(Sample(completion="x" * count, tokens=("x",) * count, top_logprobs=(alternatives,) * count))
    assert len(text) < count + MAX_ENTRIES  # a byte for each, and the completion
    assert decode(text, 0).top_logprobs[count - 1] == alternatives[:4]
    assert encode(decode(text, 0)) == text
    short = Sample(completion="x", tokens=("x",), top_logprobs=(alternatives * 2,))
    assert len(decode(encode(short), 0).top_logprobs[0]) == 20


@pytest.mark.parametrize("name", ["counts", "ids", "log_probs", "lengths", "text", "texts", "entries"])
def test_damaged_ones_are_empty(name: str):
    """Whichever part is damaged; the tokens stay."""
    whole = Sample(completion="The cat sat", tokens=tuple(TOKENS), top_logprobs=EXPECTED)
    for wrong in (None, "u1:AAAA", 1 << 40, -1):
        record = json.loads(encode(whole))
        record["top_logprobs"][name] = wrong
        found = decode(record, 0)
        assert list(found.tokens) == TOKENS
        assert list(found.top_logprobs) == [(), (), ()]
    assert list(decode(encode(replace(whole, top_logprobs=())), 0).top_logprobs) == []


def test_the_terminal_and_exports_have_them(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Beside the most extreme tokens, with probabilities; as lists in JSON, and as JSON in Parquet."""
    run = barograph.init(project="p")
    values = {"entropy": [0.1, 2.0, 0.2]}
    run.sample("p", "The cat sat", tokens=TOKENS, token_values=values, top_logprobs=EXPECTED, step=0)
    run.finish()
    assert main(["samples", str(run.path), "--tokens"]) == 0
    assert "cat  (token 1)  of dog 0.78, cat 0.22" in capsys.readouterr().out
    assert main(["samples", str(run.path), "--json"]) == 0
    listed = [[list(pair) for pair in one] for one in EXPECTED]
    assert json.loads(capsys.readouterr().out)["top_logprobs"] == listed
    pq = pytest.importorskip("pyarrow.parquet")
    assert main(["export", str(run.path), "--samples", "--to", "parquet", "-o", str(tmp_path / "s.parquet")]) == 0
    assert json.loads(pq.read_table(tmp_path / "s.parquet")["top_logprobs"][0].as_py()) == listed
