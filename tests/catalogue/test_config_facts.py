"""What a config says about the numbers of a run, in meanings and the reasons for what is absent."""

from typing import Any

import pytest

import barograph
from barograph.answers.open_run import OpenRun, RunLocation
from barograph.answers.views.overview import overview
from barograph.catalogue.evidence import ConfigFacts
from barograph.catalogue.resolution import RunNames

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


@pytest.mark.parametrize("config", [{"loss_type": "dr_grpo"}, {"args": {"importance_sampling_level": "token"}}])
def test_the_config_decides_between_frameworks(config: dict[str, Any]):
    """A setting that only TRL's GRPO has makes kl its KL, where the names alone leave OpenRLHF's possible."""
    assert RunNames(["kl", "reward"]).ambiguous == ["kl"]
    found = RunNames(["kl", "reward"], config=config).resolve("kl")
    assert found.match is not None
    assert found.match.metric.id == "policy/kl_loss"
    assert "trl/grpo" in found.reasons[0].en


def test_the_config_of_a_framework_does_not_make_barograph_s_names_its_own():
    """A run that barograph records in veRL's loop has veRL's config."""
    config = {"actor": {"ppo_micro_batch_size_per_gpu": 4}}
    names = ["critic/score/mean", "actor/pg_clipfrac", "critic/entropy/mean"]
    found = RunNames(names, prior="barograph:roll", config=config).match("critic/score/mean")
    assert found is not None
    assert found.metric.id == "reward/score/mean"
    other = RunNames(["critic/score/mean"], config=config).match("critic/score/mean")
    assert other is not None
    assert other.metric.id == "reward/score_not_aborted/mean"


def test_the_overview_says_that_the_kl_is_off():
    """With beta = 0 TRL computes no KL to the reference, which is not the same as not logging it."""
    run = barograph.init(id="r", config={**GRPO, "beta": 0.0}, source="trl/grpo")
    for step in range(5):
        run.log({"reward": 1.0, "loss": 0.1}, step=step)
    run.finish()
    folder = run.path
    found = overview(OpenRun(RunLocation("r", folder)), 10)
    [kl] = [one for one in found["absent"] if one["key"] == "kl"]
    assert kl["reason"]["en"] == "It is not computed: the config has beta = 0.0."
    assert "beta = 0.0" in kl["reason"]["zh"]
