"""A name is resolved by itself: with the other names of its run, the config, the stated source and the values."""

import math

import pytest

from barograph.catalogue import names as names_module
from barograph.catalogue.headline import headline_values, undecided_values
from barograph.catalogue.names import candidates
from barograph.catalogue.resolution import RunNames
from barograph.catalogue.spec import CatalogueError

HF = ["loss", "grad_norm", "learning_rate", "epoch"]
GRPO = [*HF, "reward", "reward_std", "completion_length", "kl", "rewards/format_reward_func"]
NEW_GRPO = [
    *HF,
    "num_tokens",
    "completions/mean_length",
    "completions/clipped_ratio",
    "rewards/check/mean",
    "rewards/check/std",
    "reward",
    "reward_std",
    "frac_reward_zero_std",
    "kl",
    "clip_ratio/region_mean",
]
DPO = [*HF, "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen"]
DPO += ["logps/rejected", "logits/chosen", "logits/rejected", "mean_token_accuracy", "num_tokens"]
KTO = [*HF, "kl", "rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected"]
KTO += ["logits/chosen", "logits/rejected"]
REWARD = [*HF, "num_tokens", "min_reward", "mean_reward", "max_reward", "accuracy", "margin"]
ONLINE_DPO = [*HF, "objective/kl", "objective/entropy", "objective/scores", "objective/scores_margin", "rewards/chosen"]
ONLINE_DPO += ["rewards/accuracies", "val/contain_eos_token", "beta"]
ASYNC = ["reward", "kl", "ratio", "entropy", "train_seq_len", "forward_time_s", "weight_sync_time_s", "buffer_qsize"]


def meaning(names: list[str], name: str, **known: object) -> str | None:
    """Return the metric of a name in a run with these names."""
    match = RunNames(names, **known).match(name)  # type: ignore[arg-type]
    return match.metric.id if match else None


def signed(count: int) -> list[float]:
    """Return a k1 estimate near 0, as RLOO logs it: negative in many steps."""
    return [0.002 * step + 0.03 * math.sin(2.7 * step + 4.0) for step in range(count)]


AREAL = ["ppo_actor/task_reward/avg", "ppo_actor/update/entropy/avg", "ppo_actor/update/grad_norm", "rollout/reward"]
AREAL += ["grpo_actor/task_reward/avg", "grpo_actor/entropy/avg", "grpo_actor/grad_norm", "timeperf/rollout"]


def test_areal_is_known_in_both_spellings():
    """Reward, entropy and gradient norm of AReaL are recognised under both scopes of its actor."""
    names = RunNames(AREAL)
    assert (names.producer, names.unknown) == ("areal", [])
    assert set(headline_values(names)) >= {"reward", "entropy", "grad_norm"}
    for scope in ("grpo_actor", "ppo_actor"):
        assert meaning(AREAL, f"{scope}/task_reward/avg") == "reward/score/mean"


def test_no_era_hides_the_names_of_another():
    """Version 0.9.1 of veRL writes names of its engine workers beside older ones; all keep their meaning."""
    names = [
        "actor/perf/max_memory_allocated_gb",
        "actor/perf/max_memory_reserved_gb",
        "response_length/clip_ratio",
        "critic/score/mean",
        "actor/pg_loss",
        "timing_s/step",
        "val/test_score/openai/gsm8k",
        "critic/kl",
    ]
    found = headline_values(RunNames(names))
    assert found["truncated"].name == "response_length/clip_ratio"
    assert found["memory"].name == "actor/perf/max_memory_allocated_gb"
    assert found["validation"].name == "val/test_score/openai/gsm8k"
    assert found["kl"].name == "critic/kl"


@pytest.mark.parametrize(
    ("names", "source"),
    [
        (REWARD, "trl/reward"),
        (DPO, "trl/dpo"),
        (KTO, "trl/kto"),
        (ONLINE_DPO, "trl/online-dpo"),
        (GRPO, "trl/grpo"),
        (ASYNC, "trl/async-1.10"),
        ([*HF, "mean_token_accuracy", "num_tokens", "entropy"], "trl/sft"),
        ([*HF, "train_runtime", "train_loss", "total_flos", "eval_runtime"], "transformers"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "train/"])
def test_the_trainer_is_told_from_the_names(names: list[str], source: str, prefix: str):
    """Every trainer of TRL is found from what it logs, with and without the prefix of trackers."""
    found = RunNames([f"{prefix}{name}" for name in names])
    assert found.unknown == []
    assert found.source == source


def test_the_gradient_norm_of_a_reward_model_is_known():
    """A run of the RewardTrainer logs grad_norm; it is not missing."""
    assert headline_values(RunNames(REWARD))["grad_norm"].name == "grad_norm"


def test_the_kl_of_grpo_is_not_that_of_asynchronous_grpo():
    """Runs of Unsloth's GRPO log the KL to the reference under the name kl."""
    positive = {"kl": [0.001 * step for step in range(40)]}
    assert meaning(GRPO, "kl", series=lambda name: positive.get(name, [])) == "policy/kl_loss"
    assert meaning(ASYNC, "kl") == "policy/kl_k3"
    assert meaning(KTO, "kl") == "preference/kto_kl"


def test_a_negative_value_rules_out_k3():
    """RLOO's kl is signed: one negative value shows that it is not GRPO's."""
    series = {"kl": signed(22)}
    names = RunNames(NEW_GRPO, series=lambda name: series.get(name, []))
    assert names.match("kl").metric.id == "policy/ref_kl_k1"  # type: ignore[union-attr]
    assert any("never negative" in reason.en for reason in names.resolve("kl").reasons)
    assert names.source == "trl/rloo"
    # What the KL shows about the trainer holds for its other names too.
    assert names.match("clip_ratio/region_mean").metric.id.startswith("policy/sequence_ratio")  # type: ignore[union-attr]


def test_no_prefix_of_a_healthy_rloo_run_is_misread():
    """As long as the values do not decide, kl is not judged; then it is what it is."""
    values = signed(22)
    for count in range(1, 23):
        series = {name: values[:count] if name == "kl" else [0.5] * count for name in NEW_GRPO}
        judged = RunNames(series, series=lambda name, series=series: series[name]).judged("kl")
        assert judged is None or judged.metric.id == "policy/ref_kl_k1"


def test_small_values_without_a_negative_one_are_not_signed():
    """Ten values near 0, none negative, are hardly a k1 estimate."""
    series = {"kl": [0.001 * (step % 5) for step in range(20)]}
    assert meaning(NEW_GRPO, "kl", series=lambda name: series.get(name, [])) == "policy/kl_loss"


def test_a_term_of_the_loss_is_told_by_its_ratio():
    """Where the loss is a constant times the value, it is GRPO's KL, however large."""
    series = {"kl": [0.5 + 0.1 * (step % 7) for step in range(30)]}
    series["loss"] = [0.04 * value for value in series["kl"]]
    assert meaning(NEW_GRPO, "kl", series=lambda name: series.get(name, [])) == "policy/kl_loss"


def test_an_undecided_name_is_ambiguous_and_not_judged():
    """Without values, kl is either trainer's: the candidates are listed, and there is no verdict."""
    names = RunNames(NEW_GRPO)
    resolution = names.resolve("kl")
    assert resolution.state == "ambiguous"
    assert resolution.match is None
    assert set(resolution.meanings) == {"policy/kl_loss", "policy/ref_kl_k1"}
    assert resolution.meanings["policy/ref_kl_k1"] == ("trl/rloo",)
    assert undecided_values(names)["kl"].name == "kl"
    assert "kl" not in headline_values(names)


@pytest.mark.parametrize(
    ("known", "metric"),
    [
        ({"source": "trl/rloo"}, "policy/ref_kl_k1"),
        ({"source": "trl/grpo"}, "policy/kl_loss"),
        ({"config": {"args": {"loss_type": "dapo"}}}, "policy/kl_loss"),
        ({"config": {"normalize_advantages": False}}, "policy/ref_kl_k1"),
    ],
)
def test_a_source_or_the_config_decides(known: dict[str, object], metric: str):
    """The stated source, or a setting that only one trainer has, decides without values."""
    assert meaning(NEW_GRPO, "kl", **known) == metric


def test_the_mark_of_a_trainer_decides():
    """TRL's profiler names the class of the trainer."""
    for trainer, metric in (("GRPOTrainer", "policy/kl_loss"), ("RLOOTrainer", "policy/ref_kl_k1")):
        names = [*NEW_GRPO, f"profiling/Time taken: {trainer}._prepare_inputs"]
        assert meaning(names, "kl") == metric
        assert trainer in RunNames(names).resolve("kl").reasons[0].en


@pytest.mark.parametrize("name", ["runtime", "samples_per_second", "steps_per_second"])
@pytest.mark.parametrize("prefix", ["eval/", "eval_"])
def test_the_speed_of_an_evaluation_is_no_evaluation(name: str, prefix: str):
    """The eval/runtime of transformers is not a task set of slime."""
    names = [*(f"train/{each}" for each in HF), f"{prefix}{name}", f"{prefix}loss"]
    match = RunNames(names).match(f"{prefix}{name}")
    assert match is not None
    assert (match.metric.id, match.metric.family) == (f"validation/{name}", "time")
    assert "validation" not in headline_values(RunNames(names))


@pytest.mark.parametrize(
    "name",
    [
        "train_runtime",
        "train_loss",
        "total_flos",
        "train_samples_per_second",
        "train_steps_per_second",
        "eval_runtime",
        "mean_token_accuracy",
        "logits/chosen",
        "logits/rejected",
        "min_reward",
        "mean_reward",
        "max_reward",
        "accuracy",
        "margin",
        "variance_proxy/proxy1_signal_strength",
        "variance_proxy/expected_w",
    ],
)
def test_common_names_are_known(name: str):
    """Names that most users of TRL, transformers and veRL log have a meaning."""
    assert candidates(name)


def test_a_pattern_for_any_name_needs_a_run_of_its_framework():
    """NeMo-RL logs what environments report under train/; in another run such a name is unknown."""
    of_nemo = ["train/probs_ratio", "train/token_mult_prob_error", "train/gen_kl_error", "train/reward", "train/my/own"]
    assert RunNames(of_nemo).unknown == []
    assert RunNames(["loss", "reward", "grad_norm", "train/my/own"]).unknown == ["train/my/own"]


def test_a_run_of_barograph_states_its_source():
    """The policykl of barograph itself is not ROLL's, unless most names are ROLL's."""
    ours = ["actor/policykl", "actor/approxkl", "policy/ratio/p99"]
    assert meaning(ours, "actor/policykl", prior="barograph:roll") == "policy/kl_exact"
    theirs = ["actor/policykl", "actor/approxkl", "time/step_rollout", "critic/kl_coef", "actor/kl_loss@mean"]
    assert meaning(theirs, "actor/policykl", prior="barograph:roll") == "policy/kl_k1"


def test_reasons_name_what_decided():
    """A resolution tells which other names decided."""
    reasons = RunNames(KTO).resolve("kl").reasons
    assert reasons
    assert all(reason.en and reason.zh for reason in reasons)


@pytest.mark.parametrize("source", ["trl/rloo", "verl/0.9", "verl", "trl/ppo/0.11", "trl/v1.16", "trl/async", "areal"])
def test_a_source_is_a_framework_with_trainer_and_version(source: str):
    """A trainer, a version, or both may follow the framework."""
    RunNames(["loss"], source=source).resolve("loss")


@pytest.mark.parametrize("source", ["tlr", "trl/rlo", "roll/2025-05/0.2"])
def test_a_wrong_source_is_an_error(source: str):
    """A misspelt framework or trainer raises."""
    with pytest.raises(CatalogueError):
        RunNames(["loss"], source=source).resolve("loss")


def test_the_values_are_read_only_where_they_decide():
    """A series is not read for a name of one meaning."""
    asked: list[str] = []

    def series(name: str) -> list[float]:
        asked.append(name)
        return [1.0]

    names = RunNames([*AREAL, *(f"rewards/f{number}/mean" for number in range(100))], series=series)
    for name in names.names:
        names.resolve(name)
    assert asked == []


def test_a_name_is_matched_once_for_all_questions():
    """Resolving many names looks each up once, and names of one pattern are decided once."""
    before = names_module._shaped.cache_info().misses
    names = RunNames([f"rewards/function{number}/mean" for number in range(1000)])
    for name in names.names:
        names.resolve(name)
    assert names_module._shaped.cache_info().misses == before + 1000
    assert len(names._decided) == 1


def test_names_of_two_frameworks_give_no_source():
    """A few names that unrelated frameworks log alike do not show which one wrote them."""
    assert RunNames(["kl", "loss", "reward"]).source is None
    assert RunNames(["kl", "reward"]).ambiguous == ["kl"]
