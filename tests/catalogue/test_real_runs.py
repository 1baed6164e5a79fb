"""Names of real training logs are recognised, and those that a verdict or the overview uses mean what they should.

The logs are found through BAROGRAPH_REALRUNS (default ../shared/realruns); without them these tests are skipped.
"""

import csv
from functools import cache

import pytest

from barograph.catalogue.build import reference_pages
from barograph.catalogue.headline import headline_values
from barograph.catalogue.resolution import RunNames
from checked_runs import CHECKED, FOLDER

RUNS = sorted(CHECKED & {path.parent.name for path in FOLDER.glob("*/series.csv")})
needs_runs = pytest.mark.skipif(not RUNS, reason=f"no logs in {FOLDER}; set BAROGRAPH_REALRUNS")

# By hand, from the sources of the frameworks: what each name is that a verdict or the overview may use.
AREAL = {
    "grpo_actor/task_reward/avg": "reward/score/mean",
    "rollout/reward": "reward/score/mean",
    "grpo_actor/approx_kl/avg": "policy/kl_k1",
    "grpo_actor/entropy/avg": "policy/entropy/mean",
    "grpo_actor/clip_ratio/avg": "policy/clip_fraction",
    "grpo_actor/importance_weight/avg": "policy/ratio/mean",
    "grpo_actor/no_eos_ratios/avg": "tokens/response_truncated",
    "grpo_actor/grad_norm": "policy/grad_norm",
}
TRL_GRPO = {
    "reward": "reward/score/mean",
    "kl": "policy/kl_loss",
    "entropy": "policy/entropy/mean",
    "clip_ratio/region_mean": "policy/clip_fraction",
    "completion_length": "tokens/response_length/mean",
    "completions/mean_length": "tokens/response_length/mean",
    "completions/mean_terminated_length": "tokens/terminated_length/mean",
    "completions/clipped_ratio": "tokens/response_truncated",
    "grad_norm": "policy/grad_norm",
    "step_time": "time/step",
}
VERL = {
    "critic/score/mean": "reward/score_not_aborted/mean",
    "critic/rewards/mean": "reward/shaped_not_aborted/mean",
    "val-core/openai/gsm8k/reward/mean@1": "eval/{taskset}/{metric}/mean@{k}",
    "val-aux/openai/gsm8k/score/mean@1": "eval/{taskset}/{metric}/mean@{k}",
    "val/test_score/openai/gsm8k": "eval/{taskset}/{metric}/mean",
    "actor/kl_loss": "policy/kl_loss",
    "critic/kl": "policy/ref_kl_k1",
    "critic/kl_coeff": "reward/kl_coef",
    "actor/ppo_kl": "policy/kl_k1",
    "actor/entropy": "policy/entropy/mean",
    "actor/entropy_loss": "policy/entropy/mean",
    "actor/pg_clipfrac": "policy/clip_fraction",
    "critic/vf_loss": "value/loss",
    "response_length/mean": "tokens/response_length/mean",
    "response_length_non_aborted/mean": "tokens/response_length_not_aborted/mean",
    "response_length/clip_ratio": "tokens/response_truncated",
    "response_length_non_aborted/clip_ratio": "tokens/response_length_not_aborted/truncated",
    "actor/grad_norm": "policy/grad_norm",
    "perf/throughput": "system/tokens_per_second_per_device",
    "perf/time_per_step": "time/step",
    "timing_s/step": "time/step",
    "perf/max_memory_allocated_gb": "memory/step/max_allocated",
    "perf/max_memory_reserved_gb": "memory/step/max_reserved",
    "perf/cpu_memory_used_gb": "memory/host/used",
}
HAND_WRITTEN = {
    "mean_reward": "reward/score/mean",
    "reward": "reward/score/mean",
    "reward_mean": "reward/score/mean",
    "entropy": "policy/entropy/mean",
    "avg_gen_tokens": "tokens/response_length/mean",
    "truncated_rate": "tokens/response_truncated",
    "grad_norm": "policy/grad_norm",
}
DEEPSPEED = {"reward": "reward/score/mean", "cri_loss": "value/loss", "e2e_s": "time/step"}
MEANINGS = {"areal": AREAL, "dschat": DEEPSPEED, "trl": TRL_GRPO, "unsloth": TRL_GRPO, "verl": VERL}
MEANINGS |= {"custom": HAND_WRITTEN, "trl-countdown-480": HAND_WRITTEN}
SOURCES = {"areal": "areal", "dschat": "deepspeed-chat", "trl": "trl/grpo", "unsloth": "trl/grpo", "verl": "verl"}
SOURCES |= {"custom": None, "trl-countdown-480": None}


@cache
def columns(run: str) -> dict[str, list[float]]:
    """Return the numbers of each column of a log."""
    with (FOLDER / run / "series.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows if row[name]] for name in rows[0]}


def names_of(run: str) -> RunNames:
    """Return the names of a log with their meanings."""
    series = columns(run)
    return RunNames(series, series=lambda name: series[name])


def expected(table: dict, run: str):
    """Return the entry of a run: its own, or that of its framework."""
    return table[run] if run in table else table[run.partition("-")[0]]


@needs_runs
@pytest.mark.parametrize("run", RUNS)
def test_at_least_95_percent_of_the_names_are_known(run: str):
    """Few names of a real log are unknown, and none is ambiguous."""
    names = names_of(run)
    assert len(names.known) >= 0.95 * len(names.names), names.unknown
    assert names.ambiguous == []


@needs_runs
@pytest.mark.parametrize("run", RUNS)
def test_every_value_that_is_shown_means_what_the_table_says(run: str):
    """What the overview uses is in the table, which was written by hand."""
    names, table = names_of(run), expected(MEANINGS, run)
    used = {value.name: value.match.metric.id for value in headline_values(names).values()}
    assert used.items() <= table.items()
    for name in table.keys() & set(names.names):
        match = names.match(name)
        assert match is not None
        assert match.metric.id == table[name]


@needs_runs
@pytest.mark.skipif(not (FOLDER / "truth.json").is_file(), reason="the table is of the logs with truth.json")
def test_the_shares_in_the_docs_are_those_of_the_logs():
    """The table of docs/metrics.md is current: python -m barograph.catalogue coverage FOLDER writes it."""
    assert reference_pages.measure_coverage(FOLDER) == reference_pages.read_coverage()


@needs_runs
@pytest.mark.parametrize("run", RUNS)
def test_the_source_of_a_real_log_is_found(run: str):
    """The framework, and the trainer where it has several, are told from names and values."""
    source, wanted = names_of(run).source, expected(SOURCES, run)
    assert source == wanted if wanted is None else (source or "").startswith(wanted)
