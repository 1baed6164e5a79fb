"""What a config says about the numbers of a run, in meanings, verdicts and the reasons for what is absent."""

from typing import Any

import pytest

import windsock
from windsock.catalogue.config_facts import ConfigFacts
from windsock.catalogue.resolution import RunNames
from windsock.catalogue.verdicts import Verdict, judge_crucial_values
from windsock.server.runs.open_runs import OpenRun, RunLocation
from windsock.server.views.overview import overview

GRPO = {"num_generations": 8, "num_iterations": 1, "gradient_accumulation_steps": 4, "steps_per_generation": 4}
VERL = {
    "data": {"train_batch_size": 256},
    "actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 64, "ppo_epochs": 1, "kl_loss_type": "kl"}},
    "critic": {"ppo_mini_batch_size": 256, "ppo_epochs": 3},
}


@pytest.mark.parametrize(
    ("config", "updates"),
    [
        (GRPO, 1),
        ({**GRPO, "num_iterations": 2, "steps_per_generation": 8}, 4),
        ({"num_iterations": 3, "generation_batch_size": None}, 3),
        ({"num_iterations": 1, "generation_batch_size": 64}, None),
        ({"num_ppo_epochs": 4, "num_mini_batches": 2}, 8),
        (VERL, 4),
        ({"max_epochs": 1, "rollout_batch_size": 128, "n_samples_per_prompt": 8, "train_batch_size": 1024}, 1),
        ({"actor": {"ppo_n_minibatches": 4}}, 4),
        ({"num_ppo_epochs": "four", "num_mini_batches": 1}, None),
        ({"lr": 1e-6}, None),
        ({}, None),
    ],
)
def test_the_updates_per_batch_follow_from_the_config(config: dict[str, Any], updates: int | None):
    """Of every framework as it computes them; of a setting that actor and critic have, the actor's counts."""
    found = ConfigFacts(config).updates_per_batch
    assert (found.value if found else None) == updates


def verdicts(series: dict[str, list[float]], config: dict[str, Any], source: str | None = None) -> dict[str, Verdict]:
    """Return the verdicts on a run, by key."""
    names = RunNames(series, source=source, config=config, series=lambda name: series[name])
    return {verdict.key: verdict for verdict in judge_crucial_values(series, names)}


def test_one_update_per_batch_gives_no_verdict_on_ratio_clipping_and_kl():
    """All three are constant by construction; with several updates the same values are a hint."""
    series = {"importance_weight/avg": [1.0] * 30, "clip_ratio/avg": [0.0] * 30, "approx_kl/avg": [0.0] * 30}
    series = {f"ppo_actor/{name}": values for name, values in series.items()}
    for parts, words in ((None, "with one update"), (1, "as it must be"), (4, "hardly")):
        config = {} if parts is None else {"ppo_n_minibatches": parts}
        found = verdicts(series, config, "areal")
        assert {found[key].word for key in ("ratio", "clip", "kl_now")} == {"unknown"}
        assert all(words in found[key].text.en for key in ("ratio", "clip", "kl_now"))
    moving = {name: [*values[:-1], values[-1] + 0.01] for name, values in series.items()}
    assert verdicts(moving, {"ppo_n_minibatches": 1}, "areal")["ratio"].word == "good"


def test_the_ratio_of_trl_is_compared_with_the_configured_mini_batches():
    """1/5 is the artefact of five mini-batches; with another number it is a ratio that is far too low."""
    series = {"val/ratio": [0.2 + 0.0001 * (step % 2) for step in range(30)]}
    assert "num_mini_batches = 5" in verdicts(series, {"num_mini_batches": 5})["ratio"].text.en
    assert verdicts(series, {"num_mini_batches": 4})["ratio"].word == "watch"
    assert verdicts({"val/ratio": [0.25] * 29 + [0.2501]}, {})["ratio"].word == "unknown"


def test_the_kl_is_judged_by_the_configured_estimator():
    """A signed estimate may be slightly negative; k3 may not. Without a config the values show which it is."""
    series = {"actor/kl_loss": [0.01 * (-1) ** step for step in range(30)]}
    signed = verdicts(series, VERL, "verl")["kl"]
    assert signed.word == "good"
    assert "kl_loss_type = kl" in signed.text.en
    assert "kl_loss_type = kl" in signed.text.zh
    assert verdicts(series, {}, "verl")["kl"].word == "good"
    assert verdicts({"actor/kl_loss": [-0.01] * 30}, {"kl_loss_type": "low_var_kl"}, "verl")["kl"].word == "bad"


def test_a_kl_that_is_not_computed_is_not_judged():
    """With use_kl_loss off veRL's forks log 0."""
    off = {"use_kl_loss": False, "use_kl_in_reward": False}
    found = verdicts({"actor/kl_loss": [0.0] * 30}, off, "verl")["kl"]
    assert (found.word, "use_kl_loss = False" in found.text.en) == ("unknown", True)


@pytest.mark.parametrize("config", [{"loss_type": "dr_grpo"}, {"args": {"importance_sampling_level": "token"}}])
def test_the_config_decides_between_frameworks(config: dict[str, Any]):
    """A setting that only TRL's GRPO has makes kl its KL, where the names alone leave OpenRLHF's possible."""
    assert RunNames(["kl", "reward"]).ambiguous == ["kl"]
    found = RunNames(["kl", "reward"], config=config).resolve("kl")
    assert found.match is not None
    assert found.match.metric.id == "policy/kl_loss"
    assert "trl/grpo" in found.reasons[0].en


def test_the_config_of_a_framework_does_not_make_windsock_s_names_its_own():
    """A run that windsock records in veRL's loop has veRL's config."""
    config = {"actor": {"ppo_micro_batch_size_per_gpu": 4}}
    names = ["critic/score/mean", "actor/pg_clipfrac", "critic/entropy/mean"]
    found = RunNames(names, prior="windsock:roll", config=config).match("critic/score/mean")
    assert found is not None
    assert found.metric.id == "reward/score/mean"
    other = RunNames(["critic/score/mean"], config=config).match("critic/score/mean")
    assert other is not None
    assert other.metric.id == "reward/score_not_aborted/mean"


def test_the_overview_says_that_the_kl_is_off():
    """With beta = 0 TRL computes no KL to the reference, which is not the same as not logging it."""
    run = windsock.init(id="r", config={**GRPO, "beta": 0.0}, source="trl/grpo")
    for step in range(5):
        run.log({"reward": 1.0, "loss": 0.1}, step=step)
    run.finish()
    folder = run.path
    found = overview(OpenRun(RunLocation("r", folder)), 10)
    [kl] = [one for one in found["absent"] if one["key"] == "kl"]
    assert kl["reason"]["en"] == "It is not computed: the config has beta = 0.0."
    assert "beta = 0.0" in kl["reason"]["zh"]
