"""The table of runs: columns, conditions, groups, and what it reads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving_runs import Serve, eventually, serving
from sweep_runs import BEST, COLLAPSED

import barograph
from barograph.answers.open_run import RunLocation
from barograph.base.expressions import Condition

COLUMNS = ["steps", "validation", "best:validation", "actor.lr", "seed", "mean3:critic/score/mean", "at14:entropy"]


@pytest.fixture(scope="module")
def client(sweep: Path) -> Iterator[httpx.Client]:
    """Return a client of a server of the sweep."""
    with serving(sweep) as client:
        yield client


def table(client: httpx.Client, **query: Any) -> dict[str, Any]:
    """Return a table when all runs are read."""

    def complete() -> Any:
        response = client.get("/api/table", params=query)
        assert response.status_code == 200, response.text
        return response.json() if not response.json()["pending"] else None

    found: dict[str, Any] = eventually(complete)
    return found


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row[1]: dict(zip(found["fields"], row, strict=True)) for row in found["rows"]}


def test_columns_are_facts_config_keys_and_numbers_of_series(client: httpx.Client):
    """The last and the best validation, a mean of the last values, a value at a step; absent where there is none."""
    rows = by_name(table(client, column=COLUMNS))
    assert len(rows) == 43
    row = rows[COLLAPSED]
    assert (row["steps"], row["actor.lr"], row["seed"], row["status"]) == (23, 3e-5, "3", "finished")
    assert row["validation"] == pytest.approx(0.01)
    assert row["best:validation"] > 0.4
    assert row["mean3:critic/score/mean"] == pytest.approx(0.02)
    assert row["at14:entropy"] == pytest.approx(0.001)
    assert rows["from-trl"]["validation"] is None
    assert rows["from-trl"]["at14:entropy"] is None


def test_the_best_run_is_one_of_the_best_setting(client: httpx.Client):
    """Sorted by the best validation."""
    rows = by_name(table(client, column=COLUMNS))
    best = max(rows.values(), key=lambda row: row["best:validation"] or 0)
    assert best["name"].startswith(f"lr{BEST[0]:g}-clip{BEST[1]}")


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("", 43), ("status = finished and actor.lr > 1e-6 and tag = sweep", 30), ("actor.lr = 3e-05", 10),
        ("validation < 0.1", 1), ("best:entropy > 0", 43), ("config:seed = 3", 8), ("group = lr1e-06", 10),
        ("name ~ CLIP0.4", 20), ("actor.lr = none", 3), ("steps >= 23", 40), ("mine > 0", 3), ("seed != 3", 32),
    ],
)  # fmt: skip
def test_conditions_select_runs(client: httpx.Client, where: str, count: int):
    """On facts, config keys, headline values and metrics."""
    assert len(table(client, where=where)["keys"]) == count


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("status", "where: expected NAME < VALUE; got 'status'"),
        ("actor.lr > high", "where: > compares numbers; got 'high'"),
        ("actor.rl > 1", "where: no run has 'actor.rl', neither as a fact, a config key nor a metric"),
        ("config:lr > 1", "where: no run has 'config:lr'"),
    ],
)
def test_a_bad_expression_is_explained(client: httpx.Client, where: str, message: str):
    """A name that no run has is no empty table."""
    table(client)
    response = client.get("/api/table", params={"where": where})
    assert response.status_code == 400
    assert message in response.json()["error"]


def test_runs_that_differ_only_in_the_seed_are_grouped(client: httpx.Client):
    """A group has the keys in which it differs from others, the number of seeds, and means with intervals."""
    found = table(client, column=COLUMNS, where="tag = sweep", group="seeds")
    assert len(found["groups"]) == 8
    best = max(found["groups"], key=lambda group: group["values"][2]["mean"][0])
    assert best["label"] == [["actor.lr", 1e-5], ["actor.clip", 0.2]]
    assert (len(best["keys"]), best["seeds"]) == (5, 5)
    mean, low, high, count = best["values"][2]["mean"]
    assert (low < mean < high, count) == (True, 5)
    assert best["values"][0] == {"same": 23}
    assert best["values"][4] is None  # seeds have no mean


def test_groups_by_keys_tags_and_group(client: httpx.Client):
    """Several keys are combined; a run without one is in a group of those."""
    by_clip = table(client, column=["validation"], group="actor.clip")["groups"]
    assert sorted((str(one["label"][0][1]), len(one["keys"])) for one in by_clip) == [
        ("0.2", 20), ("0.4", 20), ("None", 3),
    ]  # fmt: skip
    assert len(table(client, group=["actor.lr", "actor.clip"])["groups"]) == 9
    assert [one["label"] for one in table(client, group="tag", where="tag = sweep")["groups"]] == [[["tag", "sweep"]]]
    assert len(table(client, group="group", where="tag = sweep")["groups"]) == 4


def test_the_columns_that_runs_have_are_listed(client: httpx.Client):
    """Config keys that differ between runs apart, without those that only name a run."""
    table(client)
    found = client.get("/api/columns").json()
    assert found["varying"] == ["actor.lr", "actor.clip", "seed"]
    assert "model" in found["config"]
    assert "critic/score/mean" in found["metrics"]
    assert {"key": "validation", "title": {"en": "Validation", "zh": "验证"}} in found["headlines"]


def test_a_table_without_columns_has_the_usual_ones(client: httpx.Client):
    """Facts, validation and reward, and the config keys that differ; with what can be chosen, in one answer."""
    found = table(client, choices=1)
    assert found["fields"][11:] == [
        "status", "health", "steps", "duration", "last:validation", "best:validation", "last:reward",
        "actor.lr", "actor.clip", "seed",
    ]  # fmt: skip
    assert found["choices"] == client.get("/api/columns").json()


def test_only_changed_rows_are_sent_again(serve: Serve, tmp_path: Path):
    """With the cursor of the last answer; tags, names and notes are changed on the page."""
    for name in ("a", "b"):
        run = barograph.init(id=name, dir=tmp_path / "runs", tags=["old"])
        run.log({"loss": 1.0}, step=0)
        run.finish()
    client = serve()
    first = table(client, column=["loss"])
    assert table(client, column=["loss"], since=first["cursor"])["rows"] == []
    client.patch("/api/runs/a", json={"tags": "new, big", "note": "look"})
    later = table(client, column=["loss"], since=first["cursor"])
    assert (later["keys"], [row[0] for row in later["rows"]]) == (first["keys"], ["a"])
    assert by_name(later)[first["rows"][1][1]]["tags"] == ["new", "big"]
    assert table(client, where="tag = big")["keys"] == ["a"]
    client.patch("/api/runs/a", json={"tags": None, "hidden": True})
    assert table(client)["keys"] == ["b"]
    assert table(client, hidden=1)["keys"] == first["keys"]
    assert client.get("/api/runs").json()["runs"][1]["tags"] == ["old"]


def test_a_second_server_opens_no_run_for_the_table(sweep: Path, monkeypatch: pytest.MonkeyPatch):
    """The index has the summaries; a request for the columns of forty runs reads none of them."""
    with serving(sweep) as client:
        expected = table(client, column=COLUMNS)["rows"]
    eventually(lambda: (sweep / ".page" / "rewards.index").exists())
    opened: list[RunLocation] = []
    original = RunLocation.open

    def counted(location: RunLocation) -> Any:
        opened.append(location)
        return original(location)

    monkeypatch.setattr(RunLocation, "open", counted)
    with serving(sweep) as client:
        now = client.get("/api/table", params={"column": COLUMNS}).json()
        assert now["pending"] == 0
        assert [row[11:] for row in now["rows"]] == [row[11:] for row in expected]
        assert opened == []


def setting(rate: float, clip: float) -> list[str]:
    return [f"lr{rate:g}-clip{clip}-s{seed}" for seed in range(5)]


def test_groups_of_seeds_are_compared(client: httpx.Client):
    """By the validation, with the difference from the first group; a metric can be chosen; few seeds decide nothing."""
    runs = [*setting(1e-6, 0.2), *setting(1e-5, 0.2), *setting(1e-5, 0.4)[:2]]
    found = client.get("/api/groups", params={"run": runs}).json()
    assert [len(group["keys"]) for group in found["groups"]] == [5, 5, 2]
    assert (found["chart"], found["direction"], found["steps"]) == ("val/score/mean", "higher", [3, 23])
    first, second, third = (result["last"] for result in found["results"])
    assert first["difference"] is None
    assert (second["word"], third["word"]) == ("better", "too few")
    mean, low, high, count = second["difference"]
    assert (low < 0.25 < high, count) == (True, 5)
    assert mean == pytest.approx(second["mean"][0] - first["mean"][0])
    assert found["results"][1]["area"]["word"] == "better"
    entropy = client.get("/api/groups", params={"run": runs, "metric": "actor/entropy_loss"}).json()
    assert entropy["chart"] == "actor/entropy_loss"
    assert entropy["results"][1]["last"]["difference"][0] == pytest.approx(0.0, abs=1e-9)
    by_rate = client.get("/api/groups", params={"run": runs, "by": "actor.lr"}).json()
    assert [len(group["keys"]) for group in by_rate["groups"]] == [5, 7]


def test_bands_are_means_with_intervals(client: httpx.Client):
    """With every run, so that it can be drawn behind; a series that a run lacks counts for nothing."""
    lines = [{"run": run, "name": "val/score/mean"} for run in (*setting(1e-5, 0.2), "from-trl")]
    body = {"groups": [lines], "points": 100}
    (found,) = client.post("/api/bands", json=body).json()["bands"]
    assert found["x"] == [3, 7, 11, 15, 19, 23]
    assert found["count"] == [5] * 6
    assert len(found["runs"]) == 6
    assert all(low < mean < high for low, mean, high in zip(found["low"], found["mean"], found["high"], strict=True))
    mean = sum(run[-1] for run in found["runs"][:5]) / 5
    assert found["mean"][-1] == pytest.approx(mean)
    assert client.post("/api/bands", json={"groups": [{}]}).status_code == 400
    assert client.post("/api/bands", json={"groups": [[{"run": "from-trl"}]]}).status_code == 400
    assert client.post("/api/bands", json={"groups": [[]] * 201}).status_code == 413


def test_conditions_are_read_once_for_all_runs(client: httpx.Client, monkeypatch: pytest.MonkeyPatch):
    """However many runs there are: a filter answers while one types."""
    table(client)
    made: list[str] = []
    make = Condition.of

    def counted(comparison: Any, name: str) -> Condition:
        made.append(name)
        return make(comparison, name)

    monkeypatch.setattr(Condition, "of", counted)
    found = table(client, where="actor.lr > 1e-6 and not tag = none or seed = 3")
    assert 0 < len(found["keys"]) < found["all"]
    assert len(made) <= 12
