"""The example that asks questions about many runs with DuckDB, on small runs of known answers."""

import math
import runpy
from pathlib import Path
from typing import Any

import duckdb
import pytest

import barograph
from barograph.apps.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "fleet_duckdb.py"


def record(dir: Path, number: int, rate: float, broken_from: int | None) -> None:
    """Record a run whose reward grows until its gradient norm is NaN."""
    run = barograph.init(dir=dir, id=f"{number:04}", project="2026", config={"actor": {"lr": rate}, "seed": number})
    for step in range(40):
        is_broken = broken_from is not None and step >= broken_from
        run.log(
            {
                "critic/score/mean": 0.01 if is_broken else step / 40,
                "actor/grad_norm": math.nan if is_broken else 0.5,
                "actor/entropy": 1 - step / 80,
            },
            step=step,
        )
    run.finish()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data set of five runs: two of three with the high rate break, at steps 10 and 20."""
    dir = tmp_path_factory.mktemp("fleet")
    for number, (rate, broken) in enumerate([(1e-6, None), (1e-6, None), (1e-5, 10), (1e-5, 20), (1e-5, None)]):
        record(dir / "runs", number, rate, broken)
    assert main(["export", str(dir / "runs"), "--to", "parquet", "--partition", "project,run"]) == 0
    return dir / "runs-fleet"


def test_the_questions_have_the_answers_that_the_runs_were_made_for(fleet: Path):
    """The higher rate collapses, at a median of 15; projects and ids that look like numbers are texts."""
    example: dict[str, Any] = runpy.run_path(str(EXAMPLE))
    connection = example["connect"](fleet)

    def answer(begin: str) -> list[tuple[Any, ...]]:
        [query] = [query for question, query in example["QUESTIONS"].items() if question.startswith(begin)]
        found: list[tuple[Any, ...]] = connection.execute(
            query, {"key": "actor.lr"} if "$key" in query else None
        ).fetchall()
        return found

    assert answer("Which configs") == [("1e-05", 3, 2, 0.667, 15.0, 10), ("1e-06", 2, 0, 0.0, None, None)]
    assert ("1e-05", "nonfinite", 2, 15.0) in answer("What is the cause")
    assert [(project, run, onset, best) for project, run, onset, best, _ in answer("How good")] == [
        ("2026", "0003", 20, 0.475), ("2026", "0002", 10, 0.225),
    ]  # fmt: skip
    assert {row[0]: row[2] for row in answer("Does the gradient")}["sick"] == 0.5


def test_the_example_runs_as_a_script(fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Without a key it takes the setting that differs most; runs without phases have no question about them."""
    monkeypatch.setattr("sys.argv", [str(EXAMPLE), str(fleet)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr().out
    assert "Which configs collapse, and when? (actor.lr)" in said
    assert "Where does the time go?" not in said


def test_the_query_of_the_page_about_fleets_runs(fleet: Path, monkeypatch: pytest.MonkeyPatch):
    """docs/fleet.md: with another rule, since no entropy collapses here."""
    monkeypatch.chdir(fleet.parent)
    fleet.rename(fleet.with_name("fleet"))
    [query] = (ROOT / "docs" / "fleet.md").read_text().split("```sql\n")[1:]
    try:
        found = duckdb.sql(query.partition("```")[0].replace("entropy_collapse", "nonfinite")).fetchall()
    finally:
        fleet.with_name("fleet").rename(fleet)
    assert found == [("1e-05", 3, 2, 15.0), ("1e-06", 2, 0, None)]
