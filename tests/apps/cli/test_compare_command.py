"""``barograph compare``: groups of seeds with known answers."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.apps.cli import main
from demo_sweep import forty_configs

SETTINGS, SEEDS = 8, 5
STEPS = 6


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record eight settings of five seeds: the score rises by 0.1 with each setting, and the seeds differ by less."""
    dir = tmp_path_factory.mktemp("sweep")
    for setting in range(SETTINGS):
        for seed in range(SEEDS):
            noise = random.Random(100 * setting + seed).uniform(-0.01, 0.01)
            config = {"actor": {"lr": setting * 1e-6}, "seed": seed, "run_name": f"s{setting}-{seed}"}
            run = barograph.init(dir=dir, id=f"s{setting}x{seed}", name=f"s{setting}", config=config)
            for step in range(STEPS):
                run.log(
                    {"critic/score/mean": 0.1 * setting + noise, "actor/grad_norm": 1.0 + noise, "mine": 3.0}, step=step
                )
            run.finish()
    return dir


def compared(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["compare", *map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_forty_runs_are_eight_groups(sweep: Path, capsys: pytest.CaptureFixture[str]):
    """The setting that differs is told, each group beats the first, and the intervals hold the true differences."""
    found = compared(capsys, sweep)
    assert [(group["name"], len(group["runs"])) for group in found["groups"]] == [(f"s{n}", 5) for n in range(8)]
    assert found["groups"][3]["seeds"] == ["0", "1", "2", "3", "4"]
    assert found["config"] == {"actor.lr": {f"s{n}": n * 1e-6 for n in range(8)}}
    [score] = [metric for metric in found["metrics"] if metric["name"] == "critic/score/mean"]
    assert (score["steps"], score["direction"]) == ([0, STEPS - 1], "higher")
    assert score["groups"]["s0"]["last"]["difference"] is None
    for n in range(1, 8):
        for measure in score["groups"][f"s{n}"].values():
            difference = measure["difference"]
            assert (difference["word"], difference["runs"]) == ("better", 5)
            assert difference["low"] < 0.1 * n < difference["high"]
            assert difference["high"] - difference["low"] < 0.05


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("last(critic/score/mean) > 0.65", {"s7"}),
        ("mean(critic/score/mean) > 0.45 and config.actor.lr < 6.5e-6", {"s5", "s6"}),
        ("max(actor/grad_norm) > 2", set()),
        ("step = 5 and not last(critic/score/mean) > 0.05", {"s0"}),
    ],
)
def test_questions_select_settings(sweep: Path, question: str, expected: set[str], capsys: pytest.CaptureFixture[str]):
    """Of all forty runs those are true that were recorded so."""
    runs = sorted(sweep.glob("default/*"))
    assert len(runs) == SETTINGS * SEEDS
    true = {run.name[:2] for run in runs if main(["query", str(run), question]) == 0}
    assert true == expected


def test_two_groups_that_are_alike_are_not_told_apart(sweep: Path, capsys: pytest.CaptureFixture[str]):
    """The gradient norm differs by chance only."""
    runs = [sweep / "default" / f"s{n}x{seed}" for n in (1, 2) for seed in range(SEEDS)]
    [norm] = compared(capsys, *runs, "--metrics", "actor/*")["metrics"]
    assert norm["groups"]["s2"]["last"]["difference"]["word"] == "undecided"


def test_single_runs_have_no_interval(sweep: Path, capsys: pytest.CaptureFixture[str]):
    """Two seeds of one setting are compared as runs, and nothing is concluded."""
    found = compared(capsys, sweep / "default" / "s3x0", sweep / "default" / "s3x1", "--all")
    assert [group["runs"] for group in found["groups"]] == [["s3x0"], ["s3x1"]]
    assert found["config"] == {}
    assert {metric["name"] for metric in found["metrics"]} == {"critic/score/mean", "actor/grad_norm", "mine"}
    other = found["groups"][1]["name"]
    last = found["metrics"][0]["groups"][other]["last"]
    assert (last["low"], last["difference"]["word"], last["difference"]["low"]) == (None, "too few", None)


def test_runs_of_two_frameworks_are_joined_by_meaning(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A name of veRL and one of TRL are one metric; findings and phases are told of each run."""
    for framework, name in (("verl", "response_length/mean"), ("trl", "completions/mean_length")):
        rows = [{"step": step, name: 100.0 + step} for step in range(20)]
        (tmp_path / f"{framework}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = compared(capsys, tmp_path / "verl.jsonl", tmp_path / "trl.jsonl", "--all")
    assert any(len(metric["groups"]) == 2 for metric in found["metrics"])
    assert {run["verdict"] for run in found["runs"]} == {"cannot tell"}


def test_the_text_says_what_differs(sweep: Path, capsys: pytest.CaptureFixture[str]):
    """Letters stand for groups, in both languages."""
    runs = [str(sweep / "default" / f"s{n}x{seed}") for n in (0, 5) for seed in range(SEEDS)]
    assert main(["compare", *runs, "--lang", "en"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "A s0 5 runs: s0x0, s0x1, s0x2, s0x3, s0x4"
    assert any(line.startswith("actor.lr 0.0 4.99") for line in lines)
    assert any(line.startswith("B 0.") and line.endswith("better") for line in lines)
    assert main(["compare", *runs, "--lang", "zh"]) == 0
    assert "更好" in capsys.readouterr().out


def test_one_run_is_not_compared(sweep: Path, capsys: pytest.CaptureFixture[str]):
    """There is nothing to compare it with."""
    assert main(["compare", str(sweep / "default" / "s0x0")]) == 1
    assert "at least two runs" in capsys.readouterr().err


def test_forty_demo_runs_have_the_answers_that_their_settings_give(
    demo_sweep: Path, capsys: pytest.CaptureFixture[str]
):
    """Eight settings of five seeds: of the learning rate, and of the turns that an episode may have."""
    paths = [demo_sweep / "sweep" / name for name in forty_configs()]
    found = compared(capsys, *paths, "--metrics", "tokens/response_length/max")
    assert [group["seeds"] for group in found["groups"]] == [["0", "1", "2", "3", "4"]] * SETTINGS
    assert set(found["config"]) == {"demo.turns", "demo.actor_lr"}
    [length] = found["metrics"]
    area = {name: one["area"] for name, one in length["groups"].items()}
    of_turns = {8: [], 16: []}
    for name, number in found["config"]["demo.turns"].items():
        of_turns[number].append(area[name])
    assert max(one["mean"] for one in of_turns[8]) <= 8 < min(one["mean"] for one in of_turns[16])
    assert [one["difference"]["word"] for one in of_turns[16]] == ["higher"] * 4  # than the first group, of 8 turns
    runs = {run["path"]: run["group"] for run in found["runs"]}
    assert len(runs) == SETTINGS * SEEDS
    for question, key, expected in (
        ("max(tokens/response_length/max) <= 8", "demo.turns", {8}),
        ("max(actor/approxkl) < 1e-9 and step = 13", "demo.actor_lr", {0.0}),  # a rate of 0 changes no policy
        ("config.demo.actor_lr > 5e-4 and status = finished", "demo.actor_lr", {6e-4, 9e-4}),
    ):
        true = {path for path in runs if main(["query", path, question]) == 0}
        assert true == {path for path, group in runs.items() if found["config"][key][group] in expected}
