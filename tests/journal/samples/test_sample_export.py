"""Samples as JSON lines and as Parquet."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import barograph
from barograph.apps.cli import main

FIELDS: dict[str, Any] = {
    "prompt": "p", "completion": "a b", "reward": 0.5, "rewards": {"format": 1.0}, "correct": True, "answer": "b",
    "tokens": ["a", " b"], "token_values": {"entropy": [0.5, 2.0], "mask": [1, 0]},
}  # fmt: skip


@pytest.fixture
def run() -> barograph.Run:
    run = barograph.init(name="lake")
    run.sample(**FIELDS)
    run.sample(messages=[{"role": "user", "content": "\ud800"}], mixed=1, reward=float("nan"))
    run.sample("q", "c", mixed="one")
    run.commit(3)
    run.finish()
    return run


def test_json_lines_have_every_field_and_the_arrays(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """The lines of ``samples --json`` are the same, with the name of their schema."""
    assert main(["export", "lake", "--samples", "--to", "jsonl"]) == 0
    out = capsys.readouterr().out
    first, second, _ = map(json.loads, out.splitlines())
    expected = {**FIELDS, "columns": {"correct": True}, "token_values": {"entropy": [0.5, 2.0], "mask": [1, 0]}}
    del expected["correct"]
    assert {name: first[name] for name in expected} == expected
    assert (first["step"], second["reward"], "tokens" in second) == (3, "NaN", False)
    assert main(["samples", "lake", "--json"]) == 0
    assert capsys.readouterr().out.replace('"schema": "barograph/samples/1", ', "") == out


def test_parquet_has_a_column_for_each_name(run: barograph.Run, tmp_path: Path):
    """Arrays are lists; a column of numbers and names has texts."""
    file = tmp_path / "samples.parquet"
    assert main(["export", "lake", "--samples", "--to", "parquet", "-o", str(file)]) == 0
    first, second, third = pq.read_table(file).to_pylist()
    assert (first["reward.format"], first["column.correct"], first["tokens"]) == (1.0, True, ["a", " b"])
    assert (first["token.entropy"], first["token.mask"], second["token.mask"]) == ([0.5, 2.0], [1.0, 0.0], None)
    assert (first["column.mixed"], second["column.mixed"], third["column.mixed"]) == (None, "1", "one")
    assert json.loads(second["messages"])[0]["role"] == "user"


def test_other_formats_are_refused(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """The message names the possible ones."""
    assert main(["export", "lake", "--samples", "--to", "csv"]) == 1
    assert "samples are exported as jsonl or parquet; got --to csv" in capsys.readouterr().err
