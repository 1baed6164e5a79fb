"""Sources and meanings of names over HTTP: choosing a source, ambiguous and unknown names, and files about names."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving_runs import Serve, eventually

import barograph
from barograph.answers.views.charts import family_of
from barograph.apps.cli import main

UNDECIDED = {"kl": 0.2, "reward": 0.5, "my/own_s": 2.0, "zzzqq": 1.0}


def fetch(client: httpx.Client, path: str) -> Any:
    response = client.get(path)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.fixture
def undecided() -> None:
    """Record a run in which the meaning of ``kl`` is not decided, and two names are unknown."""
    run = barograph.init(project="p", name="undecided", id="undecided")
    for step in range(30):
        run.log({**UNDECIDED, "kl": UNDECIDED["kl"] + 0.1 * (step % 3)}, step=step)
    run.finish()


def test_unknown_and_ambiguous_names_are_listed(serve: Serve, undecided: None):
    """With what they may be, what would decide, similar names, guesses, and a file to fill in."""
    found = fetch(serve(), "/api/runs/undecided/meanings")
    assert (found["names"], found["unknown_count"], found["chosen"]) == (4, 2, None)
    [kl] = found["ambiguous"]
    assert kl["name"] == "kl"
    sources = [source for meaning in kl["meanings"] for source in meaning["sources"]]
    assert "trl/rloo" in sources
    assert any(meaning["signs"] for meaning in kl["meanings"])
    unknown = {one["name"]: one for one in found["unknown"]}
    guessed = unknown["my/own_s"]["guessed"]
    assert {"family": "time", "unit": "seconds", "direction": "none"}.items() <= guessed.items()
    assert guessed["text"]["zh"].endswith("秒")
    assert unknown["zzzqq"]["nearest"] == []
    assert "my/own_s:" in found["template"]
    assert {"source": "trl/rloo", "title": {"en": "RLOOTrainer", "zh": "RLOOTrainer"}} in found["sources"]


def test_a_source_is_chosen_and_remembered(serve: Serve, undecided: None):
    """The meaning follows at once, also in another server; null lets barograph find the source again."""
    first, second = serve(), serve()
    assert fetch(second, "/api/runs/undecided/meanings")["ambiguous"]
    changed = first.patch("/api/runs/undecided", json={"source": "trl/rloo"})
    assert changed.json()["source"] == "trl/rloo"
    for client in (first, second, serve()):
        found = fetch(client, "/api/runs/undecided/meanings")
        assert (found["chosen"], found["source"], found["ambiguous"]) == ("trl/rloo", "trl/rloo", [])
        assert {"name": "kl", "metric": "policy/ref_kl_k1"}.items() <= found["known"][0].items()
    assert fetch(first, "/api/runs/undecided/overview")["source"] == "trl/rloo"
    first.patch("/api/runs/undecided", json={"source": None})
    assert fetch(first, "/api/runs/undecided/meanings")["ambiguous"]


def test_the_commands_know_the_source_that_was_chosen_on_the_page(
    serve: Serve, undecided: None, capsys: pytest.CaptureFixture[str]
):
    """``open``, ``show``, ``explain`` and ``names`` read the page's annotation; a source that is given counts more."""
    client = serve()
    assert barograph.open("undecided").source is None
    client.patch("/api/runs/undecided", json={"source": "trl/grpo"})
    client.patch("/api/runs/undecided", json={"source": "trl/rloo"})
    assert barograph.open("undecided").source == "trl/rloo"
    assert barograph.open("undecided", source="trl/grpo").source == "trl/grpo"
    assert main(["explain", "kl", "--run", "undecided", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "policy/ref_kl_k1"
    assert main(["names", "undecided", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == "trl/rloo"
    client.patch("/api/runs/undecided", json={"source": None})
    assert barograph.open("undecided").source is None


def test_a_wrong_source_is_refused(serve: Serve, undecided: None):
    """With the known ones, and the run stays as it was."""
    client = serve()
    for source in ("nobody", "trl/nothing"):
        response = client.patch("/api/runs/undecided", json={"source": source})
        assert response.status_code == 400
        assert "trl" in response.json()["error"]
    assert fetch(client, "/api/runs/undecided/meanings")["chosen"] is None


def test_the_reward_of_the_list_follows_the_source(serve: Serve):
    """In veRL critic/score/mean leaves out aborted responses, so that another name is the reward."""
    run = barograph.init(project="p", id="r")
    for step in range(10):
        run.log({"critic/score/mean": 1.0, "reward": 2.0}, step=step)
    run.finish()
    client = serve()

    def reward() -> Any:
        [row] = fetch(client, "/api/runs")["runs"]
        return row["reward"]["name"] if row["reward"] else None

    eventually(lambda: reward() == "critic/score/mean")
    client.patch("/api/runs/r", json={"source": "verl"})
    eventually(lambda: reward() == "reward")


def test_a_described_name_is_known_in_a_moment(serve: Serve, undecided: None, tmp_path: Path):
    """Saving names.yaml beside the runs changes the meanings of a finished run, without a restart."""
    client = serve()
    assert fetch(client, "/api/runs/undecided/overview")["unknown"] == 2
    file = Path(fetch(client, "/api/runs/undecided/meanings")["files"][0])
    assert file == tmp_path / "runs" / "names.yaml"
    file.write_text("zzzqq:\n  about: how much it squeaks\n  better: lower\nkl: policy/kl_loss\n")
    eventually(lambda: len(fetch(client, "/api/runs/undecided/meanings")["unknown"]) == 1)
    found = fetch(client, "/api/runs/undecided/meanings")
    assert [one["name"] for one in found["unknown"]] == ["my/own_s"]
    assert found["ambiguous"] == []
    assert fetch(client, "/api/runs/undecided/overview")["unknown"] == 1
    [chart] = [one for one in fetch(client, "/api/runs/undecided/names")["charts"] if one["key"] == "zzzqq"]
    assert chart["metric"] == "taught/zzzqq"


def test_the_family_of_an_unknown_name_is_guessed_where_its_form_shows_it():
    """A time is among the times; a name without such a form is grouped by its beginning."""
    assert family_of("my/own_s", None) == "time"
    assert family_of("my/thing", None) == "other:my"


def test_unknown_charts_say_what_is_guessed(serve: Serve, undecided: None):
    """The chart of an unknown time is in the family of times, marked as guessed."""
    found = fetch(serve(), "/api/runs/undecided/names")
    [chart] = [one for one in found["charts"] if one["key"] == "my/own_s"]
    assert (chart["family"], chart["metric"]) == ("time", None)
    assert chart["guessed"]["unit"] == "seconds"
    assert "time" in {family["key"] for family in found["families"]}
