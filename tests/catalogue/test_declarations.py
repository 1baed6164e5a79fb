"""The text files of the catalogue are checked, and every mistake is reported with its file, metric and field."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from barograph.catalogue import registry
from barograph.catalogue.__main__ import main
from barograph.catalogue.build import declarations
from barograph.catalogue.build.declarations import DATA, inspect, read
from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.spec import CatalogueError

ENTRY = """
["ppo/made_up"]
title = { en = "Made up", zh = "虚构" }
about = { en = "A made-up metric.", zh = "虚构的指标。" }
unit = "1"
population = "tokens"
statistic = "mean"
look = { en = "Steady.", zh = "平稳。" }
next = { en = "policy/loss/pg.", zh = "看 policy/loss/pg。" }
"""
Edit = Callable[[str, str, str], list[str]]


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    """Return a function that replaces text in a copy of one file and returns the mistakes."""
    folder = tmp_path / "data"
    shutil.copytree(DATA, folder)

    def edited(file: str, old: str, new: str) -> list[str]:
        path = folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        return inspect(folder).problems

    return edited


@pytest.fixture
def added(edit: Edit) -> Callable[[str, str], list[str]]:
    """Return a function that adds an entry with one change to ppo.toml and returns the mistakes."""
    first = '["policy/loss/pg"]'
    return lambda old, new: edit("ppo.toml", first, ENTRY.replace(old, new) + "\n" + first)


def test_the_compiled_file_is_current():
    """The checked-in file is built from the text files; ``python -m barograph.catalogue build`` rebuilds it."""
    stale = "src/barograph/catalogue/compiled.json is stale: run python -m barograph.catalogue build"
    assert Path(registry.COMPILED_FILE).read_text(encoding="utf-8") == declarations.encode(read()), stale


def test_the_registry_has_what_the_files_declare():
    """Loading the compiled file gives the very records that the text files declare."""
    declared = read()
    own = declarations.encode(declared).splitlines()
    declared.metrics = [metric for metric in REGISTRY.metrics() if metric.family != "custom"]
    assert declarations.encode(declared).splitlines() == own


def test_a_complete_entry_has_no_mistakes(added: Callable[[str, str], list[str]]):
    """The entry that the other tests break is right as it is."""
    assert added("", "") == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('unit = "1"', 'unit = "nats"', "unknown unit 'nats', did you mean 'nats/token'?"),
        ('unit = "1"', "", "unit is missing"),
        ('population = "tokens"', 'population = "token"', "unknown population 'token', did you mean 'tokens'?"),
        ('statistic = "mean"', "statistic = 3", "statistic must be a string; got 3"),
        ('unit = "1"', 'unit = "1"\nneeds = "clip"', "needs must be a list; got 'clip'"),
        ('unit = "1"', 'unit = "1"\nnames = ["x"]', "names must be a table; got ['x']"),
        ('unit = "1"', 'unit = "1"\nhealthy = 0.5', "healthy must be a table; got 0.5"),
        ('unit = "1"', 'unti = "1"', "unknown key 'unti', did you mean 'unit'?"),
        (', zh = "虚构" }', " }", "title is missing in Chinese"),
        (', zh = "平稳。" }', ', de = "Ruhig." }', "look: unknown key 'de'"),
        ('look = { en = "Steady.", zh = "平稳。" }', 'look = "stedy"', "look: unknown text 'stedy'"),
        ('unit = "1"', 'unit = "1"\nlike = "ppo/nothing"', "like: 'ppo/nothing' is no entry"),
        ('unit = "1"', 'unit = "1"\nneeds = ["logprobs"]', "unknown input in needs 'logprobs'"),
        ('unit = "1"', 'unit = "1"\nhealthy = { low = 1, high = 0 }', "healthy: source is missing in English"),
        ('unit = "1"', 'unit = "1"\nstate = "mean"', "formula is missing in English"),
        ('unit = "1"', 'unit = "1"\nnames = [{ name = "x", by = "vrl" }]', "name 'x': unknown producer 'vrl'"),
        ('unit = "1"', 'unit = "1"\nnames = [{ name = "x", by = "trl/gpro" }]', "unknown era of trl 'gpro'"),
        (
            'unit = "1"',
            'unit = "1"\nnames = [{ name = "x", by = "trl", differs = "windw" }]',
            "name 'x': unknown difference 'windw'",
        ),
        (
            'unit = "1"',
            'unit = "1"\nnames = [{ name = "actor/ppo_kl", by = "verl" }]',
            "policy/kl_k1 has the name 'actor/ppo_kl' of verl already",
        ),
        (
            'unit = "1"',
            'unit = "1"\nnames = [{ name = "x/{taskst}", by = "verl" }]',
            "unknown placeholder 'taskst', did you mean 'taskset'?",
        ),
        (
            'unit = "1"',
            'unit = "1"\nrelated = [{ to = "ppo/nothing", note = { en = "a", zh = "甲" } }]',
            "related: unknown metric 'ppo/nothing'",
        ),
        (
            'unit = "1"',
            'unit = "1"\ndifferences.roll = { kinds = ["unit"], note = { en = "a", zh = "甲" } }',
            "differences.roll: no name refers to it",
        ),
    ],
)
def test_a_mistake_names_the_file_the_metric_and_the_field(
    old: str, new: str, problem: str, added: Callable[[str, str], list[str]]
):
    """The message says where the mistake is and, for a misspelt word, the nearest known one."""
    found = added(old, new)
    assert any(line.startswith("ppo.toml: ") and "ppo/made_up: " in line and problem in line for line in found), found


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("reward.toml", '["reward/score"]', '["reward/score"', "reward.toml: not valid TOML"),
        ("sft.toml", '["sft/loss"]', '["policy/loss/pg"]', "policy/loss/pg: ppo.toml declares this id already"),
        ("families.toml", '"sft.toml"', '"stf.toml"', "families.toml: sft: there is no file stf.toml"),
        ("families.toml", '"sft.toml"', '"stf.toml"', "sft.toml: no family in families.toml lists this file"),
        ("labels.toml", "\ngroups = ", "\ngroup = ", "labels.toml: populations: groups is missing"),
        ("headline.toml", '"value/loss"', '"value/los"', "headline.toml: value_loss: unknown metric 'value/los'"),
        ("shared.toml", "[texts.step_size]", "[texts.spare]\nen = 'a'\nzh = '甲'\n\n[texts.step_size]", "texts.spare"),
        ("ppo.toml", '["policy/loss/pg"]', '"ppo/x" = 1\n["policy/loss/pg"]', 'ppo/x: an entry is a table: ["ppo/x"]'),
        ("ppo.toml", 'statistics = ["mean"', 'statistics = ["avg"', "statistics: unknown statistic 'avg'"),
    ],
)
def test_a_mistake_of_a_file_is_reported(file: str, old: str, new: str, problem: str, edit: Edit):
    """Files that cannot be read, ids declared twice and names that nothing defines are reported."""
    found = edit(file, old, new)
    assert any(problem in line for line in found), found


def test_reading_raises_with_all_mistakes(tmp_path: Path):
    """A build never goes on with half a catalogue."""
    shutil.copytree(DATA, tmp_path / "data")
    path = tmp_path / "data" / "ppo.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + ENTRY.replace('unit = "1"', 'unit = "nats"\nfoo = 1'), encoding="utf-8")
    with pytest.raises(CatalogueError, match=r"unknown key 'foo'[\s\S]*unknown unit 'nats'"):
        read(tmp_path / "data")


def test_the_check_command_prints_mistakes_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The exit code is that of a linter."""
    assert main(["check"]) == 0
    assert "no mistakes" in capsys.readouterr().out
    shutil.copytree(DATA, tmp_path / "data")
    (tmp_path / "data" / "ppo.toml").write_text("oops", encoding="utf-8")
    assert main(["check", "--data", str(tmp_path / "data")]) == 1
    assert capsys.readouterr().err.startswith("ppo.toml: not valid TOML")


def test_a_group_gives_one_metric_per_statistic():
    """``statistics`` declares the mean, maximum and minimum of one quantity at once."""
    ratio = {metric.id: metric for metric in read().metrics if metric.id.startswith("policy/ratio/m")}
    assert list(ratio) == ["policy/ratio/mean", "policy/ratio/max", "policy/ratio/min"]
    assert [metric.state for metric in ratio.values()] == ["mean", "extrema", "extrema"]
    largest = ratio["policy/ratio/max"]
    assert largest.title.en == "Importance ratio: maximum"
    assert largest.formula.zh.startswith("对有效 token 求最大值")
    assert "actor/ratio_max" in {name.pattern for name in largest.names}
    assert largest.look != ratio["policy/ratio/mean"].look
    assert [metric.crucial for metric in ratio.values()] == [True, False, False]


def test_an_entry_may_be_like_another():
    """``like`` takes every field but the names from another entry."""
    by_id = {metric.id: metric for metric in read().metrics}
    first, second = by_id["rollout/coverage/late"], by_id["eval/{taskset}/coverage/late"]
    assert (first.about, first.look, first.direction) == (second.about, second.look, second.direction)
    assert (first.family, second.family) == ("rollout", "eval")
