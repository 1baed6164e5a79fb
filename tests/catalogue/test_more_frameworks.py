"""Names of frameworks of which no log is at hand, as their sources write them."""

import pytest

from barograph.catalogue.headline import headline_values
from barograph.catalogue.resolution import RunNames

HF = ["loss", "grad_norm", "learning_rate", "epoch"]
MEMORY = ["peak_memory_active", "peak_memory_alloc", "peak_memory_reserved"]
VERL = [
    "actor/entropy_loss", "actor/kl_loss", "actor/pg_loss", "actor/pg_clipfrac", "actor/ppo_kl", "actor/grad_norm",
    "critic/score/mean", "critic/rewards/mean", "critic/advantages/mean", "response_length/mean",
    "response_length/clip_ratio", "prompt_length/mean", "timing_s/step", "timing_s/gen", "perf/throughput",
]  # fmt: skip
TORCHTUNE_PPO = [
    "scores", "num_stop_tokens", "rlhf_reward", "kl", "kl_reward", "lr", "loss", "policy_loss", "value_loss",
    "clipfrac", "ratios", "approx_policy_kl", "response_lengths", "tokens_per_second_per_gpu_trajectory",
    "tokens_per_second_per_gpu_ppo", *MEMORY,
]  # fmt: skip
TORCHTUNE_GRPO = [
    "rewards", "successes", "num_stop_tokens", "loss", "policy_loss", "kl_loss", "clipfrac", "ratios",
    "approx_policy_kl", "response_lengths", "grad_norm", "lr", *MEMORY,
]  # fmt: skip
RLINF = [
    *(f"train/actor/{name}" for name in ("policy_loss", "ratio", "ratio_abs", "clipped_ratio", "approx_kl")),
    *(f"train/actor/{name}" for name in ("clip_fraction", "entropy_loss", "kl_loss", "final_loss", "grad_norm", "lr")),
    *(f"rollout/{name}" for name in ("reward_scores", "response_length", "prompt_length", "total_length")),
    *(f"rollout/{name}" for name in ("fraction_of_samples_properly_ended", "advantages_mean", "advantages_max")),
    "time/step", "time/rollout", "time/actor/training", "time/sync_weights", "env/success_once", "eval/success_once",
]  # fmt: skip
RAGEN = [
    *VERL, "rollout/in_group_std", "rollout/chosen_in_group_mean", "rollout/old_log_prob", "rollout/ref_log_prob",
    "train/CoordSokoban/success", "train/CoordSokoban/pass@16", "train/CoordSokoban/action_is_effective",
    "val-env/CoordSokoban/success", "val-env/CoordSokoban/num_actions", "val-env/CoordSokoban/non-zero/success",
    "train/response_length", "timing_s/total",
]  # fmt: skip
VERL_AGENT = [
    *VERL, "episode/reward/mean", "episode/length/max", "episode/tool_call_count/min", "episode/success_rate",
    "episode/pick_and_place_success_rate", "episode/valid_action_ratio", "val/text/test_score", "val/success_rate",
    "val/text/tool_call_count/mean", "val/webshop_task_score (not success_rate)",
]  # fmt: skip
AXOLOTL = [
    *HF, "ppl", "eval_ppl", "eval_loss", "tokens/train_per_sec_per_gpu", "tokens/total", "tokens/trainable",
    "memory/max_active (GiB)", "memory/max_allocated (GiB)", "memory/device_reserved (GiB)",
]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "source", "meanings"),
    [
        (
            TORCHTUNE_PPO,
            "torchtune/ppo",
            {"kl": "policy/ref_kl_sum", "scores": "reward/score/mean", "approx_policy_kl": "policy/kl_k2"},
        ),
        (TORCHTUNE_GRPO, "torchtune/grpo", {"kl_loss": "policy/kl_loss", "rewards": "reward/score/mean"}),
        (
            RLINF,
            "rlinf",
            {"rollout/reward_scores": "reward/score/mean", "train/actor/approx_kl": "policy/kl_k1"},
        ),
        (RAGEN, "verl", {"rollout/old_log_prob": "policy/log_prob/mean", "actor/ppo_kl": "policy/kl_k1"}),
        (VERL_AGENT, "verl", {"val/text/test_score": "validation/{tag}/score/mean"}),
        (AXOLOTL, "axolotl", {"memory/max_allocated (GiB)": "memory/step/max_allocated"}),
        ([f"train/{name}" for name in AXOLOTL], "axolotl", {"train/grad_norm": "policy/grad_norm"}),
    ],
    ids=["torchtune-ppo", "torchtune-grpo", "rlinf", "ragen", "verl-agent", "axolotl", "axolotl-wandb"],
)
def test_the_names_of_a_framework_are_known(names: list[str], source: str, meanings: dict[str, str]):
    """All of them, with the right source, and none is ambiguous."""
    found = RunNames(names)
    assert found.unknown == []
    assert found.ambiguous == []
    assert (found.source or "").startswith(source)
    assert {name: match.metric.id for name in meanings if (match := found.match(name))} == meanings


def test_the_sign_of_an_objective_is_known():
    """The GRPO recipe of torchtune logs what it maximises, the PPO recipe what it minimises."""
    grpo, ppo = (RunNames(names).match("policy_loss") for names in (TORCHTUNE_GRPO, TORCHTUNE_PPO))
    assert grpo is not None
    assert ppo is not None
    assert (grpo.name.factor, ppo.name.factor) == (-1.0, 1.0)


def test_a_kl_of_trl_is_not_taken_for_torchtune_s():
    """The PPO recipe also logs scores and ratios: without them kl is not its sum over a sequence."""
    found = RunNames(["kl", "loss", "reward", "lr"])
    assert "policy/ref_kl_sum" not in found.resolve("kl").meanings


def test_headline_values_are_found_in_rlinf():
    """The reward, the entropy, the KL of an update, clipping, length and time."""
    found = {key: value.name for key, value in headline_values(RunNames(RLINF)).items()}
    assert found["reward"] == "rollout/reward_scores"
    assert found["entropy"] == "train/actor/entropy_loss"
    assert found["clip"] == "train/actor/clip_fraction"
