"""Names are recognised by their writer, with any prefix or suffix."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.catalogue.names import recognise
from barograph.catalogue.registry import REGISTRY, declared_placeholder, expand, fill
from barograph.catalogue.resolution import RunNames
from barograph.catalogue.spec import CatalogueError, placeholders
from barograph.catalogue.user_metrics import nearest


def meant(name: str, source: str | None = None) -> list[str]:
    """Return the ids of the metrics that a name can mean."""
    return [metric.id for metric in recognise(name, source).metrics]


@pytest.mark.parametrize(
    ("old", "new", "metric"),
    [
        ("time/rollout", "time/step_rollout", "time/rollout"),
        ("time/adv", "time/step_adv", "time/adv"),
        ("tokens/response_length/mean", "token/response_length/mean", "tokens/response_length/mean"),
        ("tokens/prompt_length/max", "token/prompt_length/max", "tokens/prompt_length/max"),
        ("system/tps", "system/tps/tps", "system/tokens_per_second"),
        ("actor/ratio_max", "actor/ratio_max@max", "policy/ratio/max"),
    ],
)
def test_names_of_two_eras_are_one_metric(old: str, new: str, metric: str):
    """ROLL renamed and tagged its keys; both spellings lead to one metric."""
    assert meant(old, "roll") == meant(new, "roll") == [metric]


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("actor/ppo_kl", "policy/kl_k1"),
        ("actor/pg_clipfrac_lower", "policy/clip_fraction/dual"),
        ("perf/max_memory_allocated_gb", "memory/step/max_allocated"),
        ("actor/perf/max_memory_allocated_gb", "memory/step/max_allocated"),
        ("actor/perf/cpu_memory_used_gb", "memory/host/used"),
        ("timing_s/gen", "time/rollout"),
        ("timing_s/save_checkpoint", "time/{operation}"),
        ("timing_s/agent_loop/tool_calls/max", "time/agent_loop/{operation}/max"),
        ("timing_per_token_ms/gen", "time/per_token/{phase}"),
        ("perf/total_num_tokens", "system/tokens"),
        ("perf/mfu/actor_infer", "system/mfu/{model}"),
        ("val-core/openai/gsm8k/acc/best@8/mean", "eval/{taskset}/{metric}/best@{k}"),
        ("val-aux/openai/gsm8k/reward/std@8", "eval/{taskset}/{metric}/std@{k}"),
        ("val-aux/math/acc/maj@4/mean", "eval/{taskset}/{metric}/maj@{k}"),
        ("val-aux/math/acc/best@4/std", "eval/{taskset}/{metric}/best@{k}/bootstrap_std"),
        ("val-aux/num_turns/mean", "rollout/turns/mean"),
        ("rollout_corr/kl", "policy/mismatch/kl_k1"),
        ("actor/rollout_corr/k3_kl", "policy/mismatch/kl_k3"),
        ("rollout_corr/rollout_is_eff_sample_size", "policy/mismatch/is_weight/effective_sample_size"),
        ("rollout_corr/rollout_rs_token_k1_mean", "policy/mismatch/rejection/{rule}"),
        ("rollout_corr/chi2_seq", "policy/mismatch/chi2_sequence"),
        ("training/global_step", "system/step"),
        ("training/rollout_probs_diff_max", "policy/mismatch/probability_difference/max"),
        ("training/off_policy/trajectory_staleness/max", "sample/staleness/max"),
        ("fully_async/count/stale_samples", "sample/stale_count/{key}"),
        ("response/aborted_ratio", "tokens/aborted"),
        ("response_length_non_aborted/max", "tokens/response_length_not_aborted/max"),
        ("global_seqlen/minmax_diff", "system/shard_tokens/spread"),
        ("critic/vf_explained_var", "value/explained_variance"),
    ],
)
def test_verl_keys_are_recognised(name: str, metric: str):
    """The keys of veRL are known under every prefix its versions use."""
    assert meant(name, "verl") == [metric]


GRPO = {
    "reward": "reward/score/mean",
    "reward_std": "reward/score/std",
    "rewards/accuracy/mean": "reward/component/{component}/mean",
    "rewards/accuracy/std": "reward/component/{component}/std",
    "frac_reward_zero_std": "reward/zero_std_groups",
    "completions/mean_length": "tokens/response_length/mean",
    "completions/max_terminated_length": "tokens/terminated_length/max",
    "completions/clipped_ratio": "tokens/response_truncated",
    "clip_ratio/region_mean": "policy/clip_fraction",
    "clip_ratio/low_mean": "policy/clip_fraction/low",
    "clip_ratio/high_max": "policy/clip_fraction/high_max",
    "kl": "policy/kl_loss",
    "entropy": "policy/entropy/mean",
    "loss": "policy/loss/total",
    "grad_norm": "policy/grad_norm",
    "learning_rate": "policy/lr",
    "num_tokens": "system/tokens_total",
    "epoch": "system/epoch",
    "step_time": "time/step",
    "sampling/sampling_logp_difference/max": "policy/mismatch/log_prob_difference/max",
    "sampling/importance_sampling_ratio/min": "policy/mismatch/importance_ratio/min",
    "tools/call_frequency": "rollout/tools/call_frequency",
    "aux_loss": "policy/aux_loss",
}


@pytest.mark.parametrize(("name", "metric"), GRPO.items())
def test_trl_grpo_keys_are_recognised_bare_and_prefixed(name: str, metric: str):
    """Keys of TRL are recognised with and without the prefixes of tracker integrations."""
    assert meant(name, "trl/grpo") == [metric]
    assert meant(f"train/{name}", "trl/grpo") == [metric]
    for prefix in ("eval/", "eval_"):
        found = [match for match in recognise(f"{prefix}{name}", "trl/grpo").matches if match.metric.id == metric]
        if name != "reward":  # which has an evaluation metric of its own
            assert found[0].evaluated
            assert found[0].prefix == prefix


@pytest.mark.parametrize(
    ("era", "name", "metric"),
    [
        ("rloo", "kl", "policy/ref_kl_k1"),
        ("async-1.16", "kl", "policy/kl_k3"),
        ("async-1.10", "ratio", "policy/ratio/mean"),
        ("async-1.16", "perf/rollout_wait_s", "time/wait_for_batch"),
        ("async-1.16", "batch/pad_frac", "system/batch/pad_frac"),
        ("async-1.16", "sample/staleness_mean", "sample/staleness/mean"),
        ("async-1.16", "rollout/backpressure_s", "rollout/backpressure_s"),
        ("async-1.16", "tools/search/latency_s", "rollout/tools/{tool}/latency_s"),
        ("async-1.10", "scoring_time_ms", "time/scoring"),
        ("online-dpo", "objective/scores_margin", "reward/score_margin"),
        ("online-dpo", "rewards/chosen", "reward/implicit/chosen"),
        ("online-dpo", "rewards/accuracies", "reward/implicit/accuracy"),
        ("online-dpo", "logps/rejected", "reward/implicit/rejected_log_prob"),
        ("online-dpo", "val/contain_eos_token", "tokens/contains_eos"),
        ("online-dpo", "beta", "reward/dpo_beta"),
        ("ppo-0.11", "ppo/val/var_explained", "value/explained_variance"),
        ("grpo", "profiling/Time taken: GRPOTrainer._prepare_inputs", "time/{operation}"),
    ],
)
def test_other_trl_trainers_are_recognised(era: str, name: str, metric: str):
    """RLOO, online DPO, asynchronous GRPO and the old PPO have meanings of their own."""
    assert meant(name, f"trl/{era}") == [metric]
    assert meant(f"train/{name}", f"trl/{era}") == [metric]


def test_a_profiled_name_keeps_its_dots():
    """The trainer's class ends at the first dot; the operation keeps the rest."""
    match = recognise("profiling/Time taken: GRPOTrainer.transformers.generate").match
    assert match is not None
    assert dict(match.filled) == {"trainer": "GRPOTrainer", "operation": "transformers.generate"}


def test_a_milliseconds_key_converts_to_seconds():
    """A unit in a key is arithmetic, not another metric."""
    assert recognise("scoring_time_ms", "trl").matches[0].name.factor == 0.001


def test_one_key_of_trl_means_four_things():
    """Without the trainer, kl is ambiguous, and the matches list the writers; GRPO, the likeliest, is first."""
    recognition = recognise("kl", "trl")
    assert recognition.ambiguous
    assert recognition.match is None
    assert recognition.matches[0].source == "trl/grpo"
    of_policy = {"policy/kl_loss", "policy/ref_kl_k1", "policy/kl_k3"}
    assert {metric.id for metric in recognition.metrics} == of_policy | {"preference/kto_kl"}


def test_what_barograph_says_of_itself_is_known_in_every_run():
    """A sick run has hundreds of such names: nobody is asked what they mean, and they do not hide its framework."""
    logged = ["actor/pg_loss", "actor/ppo_kl", "critic/score/mean", "response_length/clip_ratio"]
    own = {
        "barograph/nonfinite/my/own/by/math": "barograph/nonfinite/{name}",
        "barograph/problems/samples": "barograph/problems/{part}",
        "barograph/relay/wandb/lag_rows": "barograph/relay/{tracker}/lag_rows",
        "barograph/transfer/lag_bytes": "barograph/transfer/lag_bytes",
        "barograph/spool/lag_bytes": "barograph/spool/lag_bytes",
        "barograph/journal/dropped": "barograph/journal/dropped",
    } | {
        f"barograph/nonfinite/{name}/{number}": "barograph/nonfinite/{name}" for name in logged for number in range(50)
    }
    for source in (None, "verl", "barograph:roll"):
        names = RunNames([*logged, *own], source=source)
        assert names.source == RunNames(logged, source=source).source
        assert names.unknown == []
        assert {name: names.match(name).metric.id for name in own} == own


def test_who_writes_policykl_matters():
    """ROLL's own policykl and barograph's are different metrics under one name."""
    assert meant("actor/policykl") == ["policy/kl_exact", "policy/kl_k1"]
    assert meant("actor/policykl", "barograph:roll") == ["policy/kl_exact"]
    assert meant("actor/policykl", "roll") == ["policy/kl_k1"]


def test_a_specific_name_beats_a_pattern_that_takes_anything():
    """A catch-all pattern of one framework does not make another's plain name ambiguous."""
    assert meant("time/rollout") == ["time/rollout"]
    assert meant("time/experience_pipeline/write") == ["time/experience_pipeline/{operator}"]
    assert meant("sample/model_version/mean") == ["sample/model_version/mean"]
    assert meant("rollout/raw_reward") == ["reward/score/mean"]


@pytest.mark.parametrize(
    ("name", "source", "suffix", "held"),
    [
        ("experience_pipeline/latency:max", "trinity", ":max", "latency"),
        ("time/step_log@mean", "roll", "@mean", "step_log"),
    ],
)
def test_a_reducer_does_not_stay_in_a_placeholder(name: str, source: str, suffix: str, held: str):
    """A suffix of the framework is stored in the match, not in the value of a placeholder."""
    matches = recognise(name, source).matches
    assert [match.suffix for match in matches] == [suffix]
    assert [value for _, value in matches[0].filled] == [held]


segments = st.text("abcdefgh_-.019", min_size=1, max_size=6)
paths = st.lists(segments, min_size=1, max_size=3).map("/".join)


@given(taskset=paths, metric=segments, k=st.integers(1, 999))
def test_an_evaluation_name_is_parsed(taskset: str, metric: str, k: int):
    """Any task set is found again, with or without slashes."""
    match = recognise(f"eval/{taskset}/{metric}/worst@{k}", "barograph:trinity").match
    assert match is not None
    assert dict(match.filled) == {"taskset": taskset, "metric": metric, "k": str(k)}


@given(
    phase=paths,
    device=st.integers(0, 99),
    moment=st.sampled_from(["start/offload", "start/onload", "end/onload", "end/offload"]),
)
def test_a_memory_name_is_parsed(phase: str, device: int, moment: str):
    """Any phase is found again, with or without slashes."""
    match = recognise(f"memory/{phase}/{moment}/reserved/{device}", "barograph:roll").match
    assert match is not None
    assert dict(match.filled) == {"phase": phase, "moment": moment, "device": str(device)}


def made(pattern: str) -> str:
    """Fill every placeholder with a valid value."""
    numbers = {"k": "4", "device": "1", "node": "2", "group": "0", "share": "95"}
    return fill(pattern, tuple((name, numbers.get(name, f"x{name}")) for name in placeholders(pattern)))


def test_every_name_and_id_is_found_again():
    """A name made from any declared pattern is recognised as its metric, and so is the pattern itself."""
    for entry in REGISTRY.entries():
        source = f"{entry.name.producer}/{entry.name.era}" if entry.name.era else entry.name.producer
        assert all(declared_placeholder(name) for name in placeholders(entry.name.pattern))
        assert entry.metric.id in meant(entry.name.pattern, source)
        for pattern, _ in expand(entry.name.pattern):
            assert entry.metric.id in meant(made(pattern), source), (pattern, source)


def test_no_writer_has_two_metrics_under_one_name():
    """Within one era of one framework a name means one thing."""
    owners: dict[tuple[str, str, str], str] = {}
    for entry in REGISTRY.entries():
        key = (entry.name.pattern, entry.name.producer, entry.name.era)
        assert owners.setdefault(key, entry.metric.id) == entry.metric.id


def test_an_unknown_source_or_era_is_an_error_that_lists_the_known():
    """A misspelt source raises and lists the known ones."""
    with pytest.raises(CatalogueError, match="prime-rl"):
        recognise("kl", "prime_rl")
    with pytest.raises(CatalogueError, match="trl/grpo"):
        recognise("kl", "trl/gprpo")


def test_an_unknown_name_has_similar_names():
    """An unknown name has no match; similar names are proposed."""
    assert recognise("my/own/thing").matches == ()
    assert "actor/policykl" in nearest("actor/policy_kl")
    assert "completions/clipped_ratio" in nearest("completion/clipped_ratio")
    assert "actor/entropy" in nearest("grpo_actor/entropy_x/avg", 3)
    assert any("loss" in name for name in nearest("my/loss_thing", 3))
    assert nearest("zzzqq") == nearest("学习率") == nearest("") == []


RUNS = {
    "roll": [
        "critic/score/mean",
        "actor/ratio_mean",
        "actor/approxkl",
        "actor/policykl",
        "tokens/response_length/mean",
        "time/step_rollout",
        "system/tps",
    ],
    "verl": [
        "critic/score/mean",
        "actor/pg_loss",
        "actor/ppo_kl",
        "response_length/mean",
        "timing_s/gen",
        "timing_s/step",
        "perf/throughput",
        "val-core/gsm8k/reward/mean@1",
    ],
    "trinity": [
        "critic/score/mean",
        "actor/pg_loss",
        "actor/ppo_kl",
        "response_length/mean",
        "rollout/reward/mean",
        "time/train_step",
        "sample/model_version/mean",
        "experience_pipeline/experience_count",
    ],
    "trl": [
        "train/reward",
        "train/loss",
        "train/grad_norm",
        "train/completions/mean_length",
        "train/frac_reward_zero_std",
        "train/clip_ratio/region_mean",
    ],
    "slime": [
        "train/pg_loss",
        "train/kl_loss",
        "train/ppo_kl",
        "train/grad_norm",
        "train/lr-pg_0",
        "rollout/raw_reward",
        "perf/rollout_time",
        "eval/aime",
    ],
    "prime-rl": [
        "loss/mean",
        "entropy/all/mean",
        "mismatch_kl/all/mean",
        "optim/lr",
        "optim/grad_norm",
        "perf/throughput",
        "time/step",
        "train/agg/all/solver/reward/mean",
    ],
}


@pytest.mark.parametrize(("producer", "names"), RUNS.items())
def test_the_framework_of_a_run_is_found(producer: str, names: list[str]):
    """The names of a run give its framework, and all of them are known."""
    found = RunNames(names)
    assert found.producer == producer
    assert found.known == names


def test_the_trainer_is_found():
    """Names that only one trainer writes give the era."""
    assert RunNames(["objective/kl", "objective/scores", "policy/approxkl_avg", "val/ratio", "eps"]).source == "trl/ppo"
    assert RunNames(["reward", "kl", "clip_ratio/low_mean", "entropy_coef", "policy_loss"]).source == "trl/grpo"


def test_few_known_names_among_many_give_no_producer():
    """A single name that a framework also uses is not enough."""
    assert RunNames(["loss", *(f"my_loop/own/{n}" for n in range(20))]).producer is None


def test_names_of_verl_alone_are_taken_for_verls():
    """Where veRL and Trinity explain a run equally well, veRL wins."""
    assert RunNames(["actor/pg_loss", "critic/vf_loss", "timing/gen", "prompt_length/mean"]).producer == "verl"


def test_unknown_names_give_no_producer():
    """Unknown names alone give no producer."""
    found = RunNames(["a", "b/c"])
    assert (found.producer, found.known, found.unknown) == (None, [], ["a", "b/c"])


def test_the_catalogue_loads_nothing_but_the_standard_library():
    """Recognising names loads neither NumPy nor a terminal library."""
    code = "import sys\nfrom barograph.catalogue.names import recognise\nrecognise('kl')\nprint(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {"numpy", "rich", "torch", "msgspec"}.isdisjoint(output.split())


@pytest.mark.parametrize("counter", ["dropped", "waiting", "failed_writes", "failed_syncs"])
def test_the_journals_own_counters_are_known(counter: str):
    """What barograph logs about itself is explained as well."""
    assert recognise(f"barograph/journal/{counter}").match is not None


@pytest.mark.parametrize("what", ["lag_rows", "errors", "state"])
def test_the_metrics_of_a_delivery_are_known(what: str):
    """Of every tracker, by its name."""
    match = recognise(f"barograph/relay/wandb/{what}").match
    assert match is not None
    assert match.metric.id == f"barograph/relay/{{tracker}}/{what}"
