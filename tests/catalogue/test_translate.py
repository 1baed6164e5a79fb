"""Names are translated between vocabularies: as equals, with a note, or not at all.

The cases are from a survey of the frameworks' code: first the table of names by concept, then the list of differences
that a translation has to convert, to note or to reject.
"""

import pytest

from barograph.catalogue.names import recognise
from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.spec import Text
from barograph.catalogue.translate import Translation, TranslationError, translate

# concept | source | name | metric, and below it what the name becomes for others:
# "=" the equal name, "~" a name with a note, "x" refused, with words of the reason
TABLE = """
raw reward | roll | critic/score/mean | reward/score/mean
    barograph:roll = critic/score/mean
    barograph:trl = objective/scores
    trl/ppo ~ objective/scores
    trl/grpo ~ reward
    verl ~ critic/score/mean
    slime = rollout/raw_reward
    prime-rl ~ train/{env}/{subset}/{agent}/reward/mean
raw reward | trl/grpo | reward | reward/score/mean
    verl ~ critic/score/mean
raw reward | trinity | rollout/reward/mean | rollout/{key}/mean
    verl x no name
raw reward | prime-rl | train/agg/all/solver/reward/mean | reward/score/mean
    roll ~ critic/score/mean
shaped reward | verl | critic/rewards/mean | reward/shaped_not_aborted/mean
    barograph:trinity = critic/rewards/mean
    roll ~ critic/rewards/mean
    trl/ppo ~ objective/rlhf_reward
shaped reward | slime | rollout/rewards | reward/shaped/mean
    roll ~ critic/rewards/mean
shaped reward | trl/ppo | objective/rlhf_reward | reward/rlhf/mean
    roll ~ critic/rewards/mean
reward component | trl/grpo | rewards/format_reward/mean | reward/component/{component}/mean
    prime-rl ~ train/{env}/{subset}/{agent}/rewards/format_reward/mean
    verl x no name
advantage | slime | rollout/advantages | reward/advantages/mean
    verl ~ critic/advantages/mean
    prime-rl x no name
advantage | verl | critic/advantages/mean | reward/advantages/mean
    roll = critic/advantages/mean
    trinity ~ critic/advantages/mean
response length | roll | token/response_length/mean | tokens/response_length/mean
    barograph:trinity = response_length/mean
    verl ~ response_length/mean
    trl/grpo ~ completions/mean_length
    slime = rollout/response_len/mean
    prime-rl = train/{env}/{subset}/{agent}/num_output_tokens/mean
truncation | roll | token/total_response_length/clip | tokens/response_truncated
    slime x count
truncation | slime | rollout/truncated_ratio | tokens/response_truncated
    prime-rl = train/{env}/{subset}/{agent}/is_truncated/mean
    trl/grpo ~ completions/clipped_ratio
    trinity x longest
clip fraction | roll | actor/clipfrac@sum | policy/clip_fraction
    barograph:trinity ~ actor/pg_clipfrac
    trl/ppo ~ policy/clipfrac_avg
    trl/grpo ~ clip_ratio/region_mean
    slime ~ train/pg_clipfrac
    prime-rl x mask
ratio out of range | roll/0.2 | actor/ppo_ratio_high_clipfrac | policy/ratio/above
    trl/grpo x positive
ratio out of range | roll/0.2 | actor/ppo_ratio_low_clipfrac | policy/ratio/below
    trl/grpo x negative
ratio out of range | roll/0.2 | actor/ppo_ratio_clipfrac | policy/ratio/outside
    verl x advantage
ratio out of range | trl/grpo | clip_ratio/low_mean | policy/clip_fraction/low
    roll x sign
ratio out of range | prime-rl | is_masked_high | policy/masked/high
    roll x mask
ratio mean | trl/ppo | val/ratio | policy/ratio/mean
    roll ~ actor/ratio_mean
    slime ~ train/ois
    verl x no name
KL old to new | roll | actor/approxkl | policy/kl_k2
    trl/ppo ~ policy/approxkl_avg
    verl x k1
    slime x k1
    prime-rl x k3
KL old to new | slime | train/ppo_kl | policy/kl_k1
    verl ~ actor/ppo_kl
    trl/ppo x estimates
KL to reference | roll | actor/kl_loss | policy/kl_loss
    trl/grpo ~ kl
    verl ~ actor/kl_loss
    slime ~ train/kl_loss
    trl/ppo x per-sequence
    prime-rl x distilling
KL to reference | verl | actor/reward_kl_penalty | policy/ref_kl_k1
    trinity ~ advantage/kl
    slime x k3
entropy | roll | critic/entropy/mean | evaluation/entropy/mean
    trl/grpo ~ entropy
    verl ~ actor/entropy
    slime ~ rollout/entropy
    prime-rl ~ entropy/all/mean
entropy | trinity | actor/entropy | policy/entropy/mean
    prime-rl ~ entropy/all/mean
policy loss | trinity | actor/pg_loss | policy/loss/pg
    roll ~ actor/pg_loss
    trl/ppo ~ loss/policy_avg
    slime ~ train/pg_loss
    prime-rl x total loss
total loss | roll | actor/total_loss | policy/loss/total
    trl/grpo ~ loss
    trinity ~ actor/final_loss
    verl ~ actor/loss
    slime ~ train/loss
    prime-rl ~ loss/mean
value loss | roll | critic/loss | value/loss
    trl/ppo ~ loss/value_avg
    trinity ~ critic/vf_loss
    verl ~ critic/vf_loss
    slime ~ train/critic-value_loss
    prime-rl x no name
value clip share | verl | critic/vf_clipfrac | value/clip_fraction
    trinity = critic/vf_clipfrac
    trl/ppo ~ val/clipfrac_avg
    slime ~ train/critic-value_clipfrac
    roll x squared error
gradient norm | verl | actor/grad_norm | policy/grad_norm
    roll ~ actor_train/grad_norm
    trl/grpo ~ grad_norm
    trinity = actor/grad_norm
    slime = train/grad_norm
    prime-rl = optim/grad_norm
learning rate | trinity | actor/lr | policy/lr
    trl/ppo = lr
    trl/grpo ~ learning_rate
    roll ~ actor/lr
    slime = train/lr-pg_{group}
    prime-rl = optim/lr
rollout time | roll | time/step_rollout | time/rollout
    trinity ~ time/wait_explore_step
    verl ~ timing_s/gen
    slime = perf/rollout_time
    prime-rl x wait
reference time | roll | time/step_ref_log_probs_values_reward | time/ref_log_probs_values_reward
    trinity ~ time/ref
    verl ~ timing_s/ref
    slime ~ perf/ref_log_probs_time
old log-prob time | roll | time/step_old_log_probs_values | time/old_log_probs_values
    trinity ~ time/old_log_prob
    verl ~ timing_s/old_log_prob
    slime ~ perf/log_probs_time
advantage time | roll | time/step_adv | time/adv
    trinity ~ time/adv
    verl ~ timing_s/adv
train time | roll | time/actor_train/train_step/total | time/{phase}/total
    trinity ~ time/update_actor
    verl ~ timing_s/update_actor
    slime ~ perf/actor_train_time
    prime-rl ~ time/forward_backward
train time | trl/grpo | step_time | time/step
    verl ~ perf/time_per_step
step time | verl | timing_s/step | time/step
    roll ~ time/step_total
    slime ~ perf/step_time
    trinity x trainer
    prime-rl x orchestrator
weight sync | roll | time/model_update/total | time/{phase}/total
    trinity ~ time/sync_weight
    verl ~ timing_s/update_weights
    slime ~ perf/update_weights_time
    prime-rl ~ time/broadcast_weights
throughput | roll | system/tps | system/tokens_per_second
    verl x Throughputs
    trl/ppo x Throughputs
    prime-rl x Padded
throughput | trl/ppo | eps | system/episodes_per_second
    roll x integer
throughput | slime | perf/actor_train_tok_per_s | system/train_tokens_per_second
    verl x Throughputs
throughput | slime | perf/tokens_per_gpu_per_sec | system/generated_tokens_per_second
    verl x GPU
MFU | verl | perf/mfu/actor | system/mfu/{model}
    trinity = perf/mfu/actor
    prime-rl = perf/mfu
    slime x peak
GPU memory | roll | memory/train_step/end/onload/max_allocated/0 | memory/{phase}/{moment}/max_allocated/{device}
    verl x no name
GPU memory | verl/engine | actor/perf/max_memory_allocated_gb | memory/step/max_allocated
    barograph:trinity ~ perf/max_memory_allocated_gb
    prime-rl x no name
GPU memory | prime-rl | perf/peak_memory | memory/step/max_reserved
    verl ~ perf/max_memory_reserved_gb
host memory | roll | memory/cpu/train_step/end/rss | memory/cpu/{phase}/{when}/rss
    verl x process
evaluation | roll | val/score/mean | validation/score/mean
    trinity x no name
evaluation | verl | val-core/openai/gsm8k/acc/mean@4 | eval/{taskset}/{metric}/mean@{k}
    trinity = eval/openai/gsm8k/acc/mean@4
    slime ~ eval/{dataset}
staleness | verl | training/off_policy/trajectory_staleness/mean | sample/staleness/mean
    prime-rl = off_policy/mean
    trl/async-1.16 ~ sample/staleness_mean
    trinity x no name
staleness | trinity | sample/model_version_drift/mean | sample/model_version_drift/mean
    verl = training/off_policy/trajectory_spans/mean
zero-variance groups | trl/grpo | frac_reward_zero_std | reward/zero_std_groups
    trinity x count
    verl x count
    slime x count
    prime-rl x no name
train/infer mismatch | trl/grpo | sampling/sampling_logp_difference/mean | policy/mismatch/log_prob_difference/mean
    slime ~ train/train_rollout_logprob_abs_diff
    verl x probability
train/infer mismatch | prime-rl | mismatch_kl/all/mean | policy/mismatch/kl_k3
    verl = rollout_corr/k3_kl
"""


def rows() -> list[tuple[str, str, str, str]]:
    """Return the rows of the table: concept, source, name, metric."""
    return [tuple(line.split(" | ")) for line in TABLE.splitlines() if " | " in line]  # type: ignore[misc]


def cases() -> list[tuple[str, str, str, str, str]]:
    """Return the cases below the rows: source, name, target, mark, and the name or the words expected."""
    found, row = [], ("", "", "", "")
    for line in TABLE.strip().splitlines():
        if " | " in line:
            row = tuple(line.split(" | "))  # type: ignore[assignment]
        else:
            to, mark, expected = line.split(maxsplit=2)
            found.append((row[1], row[2], to, mark, expected))
    return found


def test_every_name_of_the_table_is_its_concept():
    """Each name in the table is recognised as the metric of its row."""
    for concept, source, name, metric in rows():
        match = recognise(name, source).match
        assert match is not None, (concept, source, name)
        assert match.metric.id == metric, (concept, source, name)


def test_every_row_of_the_table_is_converted_qualified_or_rejected():
    """Translation between two frameworks of a row gives the equal name, the name with a note, or a reason."""
    for source, name, to, mark, expected in cases():
        where = f"{name} of {source} in {to}"
        if mark == "x":
            reason = refused(name, to, source)
            assert expected.lower() in reason.en.lower(), where
            assert any("一" <= char <= "鿿" for char in reason.zh), where
            continue
        translation = translate(name, to=to, source=source)
        assert translation.name == expected, where
        assert translation.same == (mark == "="), where
        assert translation.same or translation.note is not None, where


def refused(name: str, to: str, source: str | None = None) -> Text:
    """Return the reason why a translation is rejected."""
    with pytest.raises(TranslationError) as refusal:
        translate(name, to=to, source=source)
    return refusal.value.reason


def rejection(name: str, to: str, source: str | None = None) -> str:
    """Return the reason why a translation is rejected, in English; there is one in Chinese too."""
    reason = refused(name, to, source)
    assert reason.zh
    return reason.en


@pytest.mark.parametrize("to", ["verl", "trinity", "slime"])
def test_1_the_sign_of_rolls_policykl_is_inverted(to: str):
    """ROLL's policykl is minus the others' ppo_kl."""
    translation = translate("actor/policykl", to=to, source="roll")
    assert translation.name.endswith("/ppo_kl")
    assert translation.note is not None
    assert "minus this estimate" in translation.note.en
    assert "sign" in recognise("actor/policykl", "roll").matches[0].name.difference.kinds  # type: ignore[union-attr]


def test_1_rolls_policykl_is_not_the_exact_kl_of_the_documentation():
    """ROLL's number is translated to the k1 name, with a note, never to the exact KL."""
    translation = translate("actor/policykl", to="barograph:roll", source="roll")
    assert (translation.name, translation.same) == ("actor/policykl_k1", False)
    assert recognise("actor/policykl", "barograph:roll").metrics[0].estimator == "exact"


@pytest.mark.parametrize(
    ("name", "source", "to"), [("actor/approxkl", "roll", "verl"), ("actor/ppo_kl", "verl", "trl/ppo")]
)
def test_2_estimators_are_not_converted(name: str, source: str, to: str):
    """k1 and k2 of the same divergence are not translated into each other, and the metric names its estimator."""
    assert "k1, k2, k3" in rejection(name, to, source)
    assert REGISTRY.metric("policy/kl_k1").estimator == "k1"
    assert REGISTRY.metric("policy/kl_k2").estimator == "k2"


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("objective/kl", "roll"),
        ("objective/kl", "trl/grpo"),
        ("objective/entropy", "verl"),
        ("objective/entropy", "roll"),
    ],
)
def test_3_a_sum_per_sequence_is_not_a_mean_per_token(name: str, to: str):
    """TRL's per-sequence sums are not translated into token means."""
    assert "sequence" in rejection(name, to, "trl/ppo")
    assert recognise(name, "trl/ppo").metrics[0].unit == "nats/sequence"


def test_4_the_non_score_reward_is_negative_as_the_code_has_it():
    """The non-score reward follows TRL's code: minus beta times KL; a trap mentions the documentation."""
    metric = recognise("objective/non_score_reward", "barograph:trl").metrics[0]
    assert "−β" in metric.formula.en
    assert any("documentation" in trap.note.en for trap in metric.traps)
    translation = translate("objective/non_score_reward", to="barograph:trl", source="trl/ppo")
    assert translation.name == "objective/non_score_reward"


def test_5_val_is_validation_in_roll_and_the_value_head_in_trl():
    """The meaning of the prefix depends on the writer."""
    assert recognise("val/score/mean", "roll").metrics[0].family == "validation"
    assert recognise("val/clipfrac_avg", "trl").metrics[0].family == "value"
    assert not recognise("val/clipfrac_avg", "roll").matches


def test_5_critic_names_batch_statistics_without_any_critic():
    """critic/score is of the reward family and warns that the prefix is historical."""
    metric = recognise("critic/score/mean", "roll").metrics[0]
    assert metric.family == "reward"
    assert any("without any critic" in trap.note.en for trap in metric.traps)


def test_6_rolls_value_clip_fraction_may_be_an_error():
    """Without value clipping ROLL logs the squared error under critic/clipfrac, so it is not translated."""
    assert "squared error" in rejection("critic/clipfrac", "trl/ppo", "roll")


def test_7_padding_dilutes_rolls_older_ratio_fractions():
    """The unmasked fractions of the older era are not translated; the newer ones get a note."""
    assert "padding" in rejection("actor/ppo_ratio_clipfrac", "barograph:roll", "roll/2025-11")
    assert translate("actor/ppo_ratio_clipfrac", to="barograph:roll", source="roll/0.2").note is not None
    assert "depends on its writer" in rejection("actor/ppo_ratio_clipfrac", "barograph:roll", "roll")


def test_8_a_reducer_tag_is_stripped_and_kept_but_at_k_is_not_one():
    """@sum is ROLL's reducer; mean@4 is a statistic and is kept."""
    match = recognise("actor/pg_loss@sum").match
    assert match is not None
    assert (match.metric.id, match.suffix) == ("policy/loss/pg", "@sum")
    evaluated = recognise("eval/gsm8k/accuracy/mean@4").match
    assert evaluated is not None
    assert evaluated.suffix == ""
    assert not recognise("val/pass@8", "roll").matches


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("verl", "actor/pg_clipfrac"),
        ("trinity", "actor/pg_clipfrac"),
        ("roll", "actor/clipfrac"),
        ("trl/ppo", "policy/clipfrac_avg"),
        ("trl/grpo", "clip_ratio/region_mean"),
        ("slime", "train/pg_clipfrac"),
    ],
)
def test_9_the_clip_fraction_is_one_concept_with_stated_weights(source: str, name: str):
    """Every framework's clip fraction is the same share, averaged differently, as the note states."""
    translation = translate(name, to="barograph:roll", source=source)
    assert translation.name == "actor/clipfrac"
    assert not translation.same
    assert translation.note is not None


def test_10_slimes_training_metrics_are_per_sample_on_another_axis():
    """The numbers of slime are per sample and per optimizer step, as the note states."""
    note = translate("train/pg_loss", to="verl", source="slime").note
    assert note is not None
    assert "per sample" in note.en
    assert "train/step" in note.en


def test_10_prime_rls_step_time_has_two_writers():
    """Trainer and orchestrator share the key, so it is not compared."""
    assert "orchestrator" in rejection("time/step", "verl", "prime-rl")


def test_11_clip_ratio_is_truncation_only_in_classic_verl():
    """Ties with the longest response are not translated; the share at the padded maximum gets a note."""
    assert "longest" in rejection("response_length/clip_ratio", "slime", "trinity")
    assert "longest" in rejection("response_length/clip_ratio", "slime", "verl/v1")
    assert translate("response_length/clip_ratio", to="slime", source="verl/legacy").note is not None


def test_11_aborted_sequences_count_in_some_frameworks_only():
    """In veRL aborted sequences do not count in the score; in Trinity's code and in ROLL they do."""
    translation = translate("critic/score/mean", to="trinity", source="verl")
    assert translation.name == "critic/score/mean"
    assert translation.note is not None
    assert "aborted" in translation.note.en
    assert translate("critic/score/mean", to="roll", source="trinity").same


def test_12_throughputs_of_one_name_are_not_translated():
    """The perf/throughput of veRL spans the rollout, Trinity's identical key does not."""
    assert "rollout" in rejection("perf/throughput", "verl", "trinity")
    assert "Padded" in rejection("perf/throughput_per_gpu", "verl", "prime-rl")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("trinity", "perf/max_memory_allocated_gb"),
        ("verl/engine", "actor/perf/max_memory_reserved_gb"),
        ("verl/legacy", "perf/cpu_memory_used_gb"),
    ],
)
def test_13_gb_is_gib_everywhere(source: str, name: str):
    """Keys that end in _gb are in GiB: nothing to convert."""
    assert recognise(name, source).metrics[0].unit == "GiB"


def test_14_best_at_k_is_not_pass_at_k():
    """Draws with and without replacement differ, so neither is translated."""
    assert "replacement" in rejection("eval/gsm8k/accuracy/best@4", "prime-rl", "trinity")
    assert "replacement" in rejection("eval/gsm8k-pass@4", "trinity", "slime")


def test_14_mean_at_n_is_avg_at_n_when_all_tasks_have_n_runs():
    """The means are one concept; the note mentions Trinity's handling of tasks with fewer runs."""
    translation = translate("eval/gsm8k/accuracy/mean@4", to="prime-rl", source="trinity")
    assert translation.name == "eval/gsm8k/{subset}/{agent}/avg@4"
    assert translation.note is not None
    assert "surviv" in translation.note.en


def test_15_counts_under_a_prefix_for_seconds_are_no_seconds():
    """Counts and token lengths under veRL's prefix timing_s keep their own unit."""
    assert recognise("timing_s/agent_loop/num_preempted/mean", "verl").metrics[0].unit == "count"
    assert recognise("timing_s/agent_loop/slowest/response_length", "verl").metrics[0].unit == "tokens"
    assert recognise("timing_s/agent_loop/generate_sequences/mean", "verl").metrics[0].unit == "seconds"
    assert recognise("timing_s/agent_loop/slowest/tool_calls", "verl").metrics[0].unit == "seconds"


def test_16_lossy_exports_are_not_inverted():
    """A name that MLflow or a gauge flattened is unknown."""
    assert not recognise("eval/gsm8k/accuracy/mean_at_4").matches
    assert not recognise("critic_score_mean").matches


def test_a_unit_converts_both_ways():
    """Per cent and milliseconds are arithmetic."""
    assert translate("perf/mfu", to="barograph:trinity", source="prime-rl").factor == pytest.approx(0.01)
    there = translate("timing_per_token_ms/ref", to="barograph:trinity", source="verl")
    assert there.factor == pytest.approx(1.0)
    ours = translate("timing_per_token_ms/ref", to="barograph", source="barograph:trinity")
    assert ours == Translation("time/per_token/ref", True, 0.001, None)


def test_an_ambiguous_name_lists_its_meanings():
    """Without a source, the reason lists the writers and their meanings."""
    reason = rejection("actor/policykl", "trl")
    assert "barograph:roll → policy/kl_exact" in reason
    assert "roll → policy/kl_k1" in reason


def test_an_unknown_name_gets_similar_names():
    """The reason contains similar names."""
    assert "actor/kl_loss" in rejection("actor/kl_los", "trl")


def test_a_concept_without_a_name_is_written_under_its_id():
    """In barograph's vocabularies a metric without a name is written under its id."""
    assert translate("actor/approxkl", to="barograph:trinity", source="barograph:roll") == Translation(
        "policy/kl_k2", True
    )


def test_an_evaluation_prefix_is_not_training():
    """TRL's eval_ keys are taken on other data, so they are not translated to training names."""
    assert "evaluation set" in rejection("eval/entropy", "verl", "trl/grpo")


@pytest.mark.parametrize("vocabulary", ["roll", "trl", "trinity"])
def test_our_vocabularies_translate_into_each_other_without_loss(vocabulary: str):
    """Every name that barograph writes has an equal name in its other vocabularies, and translates back."""
    for metric in REGISTRY.metrics():
        for name in metric.names:
            if name.producer == f"barograph:{vocabulary}" and "{" not in name.pattern:
                for other in ("roll", "trl", "trinity"):
                    there = translate(name.pattern, to=f"barograph:{other}", source=name.producer)
                    back = translate(there.name, to=name.producer, source=f"barograph:{other}")
                    assert there.same
                    assert back.same
                    assert back.name == name.pattern
