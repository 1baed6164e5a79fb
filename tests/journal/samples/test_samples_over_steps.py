"""Samples of many steps: what all matches of a step have in common, and a few that are spread over the steps."""

import math
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.answers.reports.embedded import report_data
from barograph.answers.views import samples as views
from barograph.journal.samples.query import Query


def logged(rows: list[dict[str, Any]], **settings: Any) -> barograph.View:
    """Return the view of a run that has some samples."""
    run = barograph.init(name="lake", **settings)
    for row in rows:
        run.sample(**row)
    run.finish()
    return barograph.open(run.path)


def test_matches_are_counted_by_step():
    """With the mean reward and the share solved, of all matches whatever the limit is; unknown is not zero."""
    rows: list[dict[str, Any]] = [
        {"completion": "a", "reward": 1.0, "step": 0}, {"completion": "b", "reward": -1.0, "step": 0},
        {"completion": "c", "reward": 0.5, "correct": False, "step": 2},
        {"completion": "d", "answer": "4", "reference": "4", "reward": 0.0, "step": 2},
        {"completion": "e", "answer": "4", "reference": "5", "reward": 1.0, "step": 2},
        {"completion": "f", "rewards": {"format": 3.0}, "step": 2}, {"completion": "g", "step": 7},
        {"completion": "h", "reward": math.nan, "step": 7}, {"completion": "no", "reward": 9.0, "step": 8},
    ]  # fmt: skip
    view = logged([row | {"task": "no" if row["completion"] == "no" else "t"} for row in rows])
    found = view.find_samples(Query(task="t", by_step=True), 1)
    assert (len(found.samples), found.matched) == (1, 8)
    counts = found.by_step
    assert counts is not None
    assert (counts.steps, counts.samples) == ([0, 2, 7], [2, 4, 2])
    assert counts.reward == [0.0, 1.125, None]
    assert counts.solved == [0.5, 0.5, None]
    assert counts.share == 0.5
    nothing = view.find_samples(Query(task="other", by_step=True)).by_step
    assert nothing is not None
    assert (nothing.steps, nothing.share) == ([], None)
    assert view.find_samples(Query(task="t")).by_step is None


def test_a_few_of_many_are_spread_over_the_steps():
    """With the first and the last, in the order of the steps."""
    view = logged([{"completion": f"{step}", "step": step} for step in range(101)])
    steps = [sample.step for sample in view.find_samples(Query(spread=True), 5).samples]
    assert steps == [0, 25, 50, 75, 100]
    assert [sample.step for sample in view.find_samples(Query(spread=True), 1).samples] == [100]
    assert len(view.find_samples(Query(spread=True), 200).samples) == 101
    assert len(view.find_samples(Query(spread=True)).samples) == 101


def test_a_report_has_the_samples_that_measure_chose(tmp_path: Path):
    """Then others that have tokens, and of the rest some of all steps; never more than the limit."""
    view = logged([
        {"completion": f"{step} {n}", "step": step, "columns": {"chosen": "kl"} if (step + n) % 10 == 0 else {},
         "tokens": ["a", "b"] if n < 2 else None, "token_values": {"entropy": [1, 2]} if n < 2 else None}
        for step in range(40) for n in range(4)
    ])  # fmt: skip
    chosen = set(view.find_samples(Query(where="chosen != none")).places)
    with_tokens = set(view.find_samples(Query(where="tokens > 0")).places)
    assert (len(chosen), len(with_tokens)) == (16, 80)

    def report(limit: int) -> list[dict[str, Any]]:
        found = report_data(view, samples=limit)["samples"]
        assert (len(found["samples"]), found["more"], found["census"]["kept"]) == (min(limit, 160), limit < 160, 160)
        steps = [sample["step"] for sample in found["samples"]]
        assert steps == sorted(steps, reverse=True)
        return list(found["samples"])

    few = report(10)
    assert {sample["place"] for sample in few} < chosen
    assert {few[0]["step"], few[-1]["step"]} == {39, 0}
    more = report(100)
    assert {sample["place"] for sample in more} > chosen | with_tokens
    rest = [sample["step"] for sample in more if sample["place"] not in chosen | with_tokens]
    assert (max(rest), min(rest)) == (39, 0)
    assert len(set(rest)) == len(rest)
    assert len(report(500)) == 160


def test_a_report_has_not_more_numbers_of_tokens_than_a_browser_opens(monkeypatch: pytest.MonkeyPatch):
    """Of too many, samples of all steps keep theirs; the others have their texts."""
    monkeypatch.setattr(views, "MAX_TOKEN_NUMBERS", 120)
    view = logged([
        {"completion": f"{step}", "step": step, "tokens": ["a"] * 10, "token_values": {"entropy": range(10)}}
        for step in range(20)
    ])  # fmt: skip
    samples = report_data(view, samples=20)["samples"]["samples"]
    assert [sample["step"] for sample in samples if sample["tokens"]] == [19, 15, 11, 8, 4, 0]
    assert all(sample["turns"] for sample in samples)
