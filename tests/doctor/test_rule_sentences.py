"""The sentence of a finding has the numbers of its stretch."""

import math

import numpy as np
from rule_cases import FLAT, RISING, formatted, gamed, idle, line, run, share_of, skipping, then

from barograph.diagnosis.diagnose import findings_of
from barograph.diagnosis.rule import Case, RuleReading
from barograph.diagnosis.rules import RULES

SAID: list[tuple[str, Case, str]] = [
    (
        "reward_flat",
        run(every=2, reward=FLAT + np.repeat([1, 1.2, 1.1], 20)),
        "reward has no significant trend in 60 rows (1 to 1.06).",
    ),
    (
        "reward_falling",
        run(reward=[0] * 10 + [1] * 20 + [0.1] * 30),
        "reward fell from 1 at step 20 to 0.1.",
    ),
    (
        "reward_saturated",
        run(reward=[0] * 5 + [100] + [96] * 54),
        "reward stays at 96, the top of what it reached.",
    ),
    (
        "reward_constant",
        run(reward=0.25),
        "reward is exactly 0.25 in every row: the verifier gives every answer the same score.",
    ),
    (
        "no_signal",
        run(dead_groups=0.95, solved_none=0.9, solved_all=0.05, reward=0.1),
        "95 % of the groups of 20 rows have equal rewards, at a mean reward of 0.1: they give no gradient. In"
        " the last row 90 % of the groups have no right answer, 5 % only right ones.",
    ),
    (
        "no_signal",
        run(reward_std=0, reward=0.1),
        "100 % of the batches of 20 rows have equal rewards, at a mean reward of 0.1: they give no gradient.",
    ),
    (
        "weak_signal",
        run(dead_groups=[0.7] * 40 + [0.8] * 20, reward=0.1),
        "80 % of the groups of 20 rows have equal rewards, at a mean reward of 0.1: most of the compute gives"
        " no gradient.",
    ),
    (
        "zero_grad",
        run(gradient=1 - share_of(9)),
        "gradient is 0 in 45 % of 20 rows: those steps change nothing.",
    ),
    (
        "truncation",
        run(truncated=[0.3] * 30 + [0.5] * 30),
        "Up to 50 % of the answers reach the length limit, so that the verifier sees only their beginning.",
    ),
    (
        "kl_drift",
        run(kl=then(0.1, 1.5), reward=FLAT, kl_coef=-0.1),
        "kl reached 1.5 nats per token, and reward has not risen. kl_coef is -0.1: a negative one rewards the"
        " distance.",
    ),
    (
        "kl_drift",
        run(kl=then(0.1, 1.5), reward=FLAT, kl_coef=0.1),
        "kl reached 1.5 nats per token, and reward has not risen.",
    ),
    (
        "kl_drift",
        run(kl=then(0.1, 1.5), reward="rise"),
        "kl reached 1.5 nats per token.",
    ),
    (
        "kl_drift",
        run(kl=then(0.1, 1.5), reward=line(1, 0)),
        "kl reached 1.5 nats per token, and reward has fallen.",
    ),
    (
        "kl_drift",
        run(kl=5, kl_sum=then(50, 150), length=100, reward="rise"),
        "kl_sum reached 1.5 nats per token.",
    ),
    (
        "kl_drift",
        run(kl_sum=200, length=100, reward="rise"),
        "kl_sum reached 200 nats per answer.",
    ),
    (
        "kl_spike",
        run(kl=then(0.1, 20, 30, 0.1)),
        "kl jumped to 30; before it was 0.1.",
    ),
    (
        "kl_offset_start",
        run(kl=0.3),
        "kl is 0.3 in the first row: policy and reference differ before any training.",
    ),
    (
        "kl_negative",
        run(kl=then(0.1, -0.2)),
        "kl fell to -0.2: the answers are not drawn from the policy that is scored.",
    ),
    (
        "kl_coef_growing",
        run(kl_coef=line(1, 4), kl=line(0, 0.6)),
        "kl_coef grew from 1.1 to 3.9, and kl is at 0.6: the coefficient does not limit the KL.",
    ),
    (
        "entropy_spent",
        run(entropy=then(1, 0.2)),
        "entropy went from 1 to 0.2: little is left to explore.",
    ),
    (
        "entropy_collapse",
        run(entropy=then(1, 0.01), entropy_coef=-0.5),
        "entropy fell from 1 to 0.01: the policy no longer explores, further steps only repeat. entropy_coef "
        "is -0.5: a negative one rewards certainty.",
    ),
    (
        "entropy_low_start",
        run(entropy=0.01),
        "entropy is 0.01 at the start: the policy is deterministic before training, so that the answers of a "
        "group do not differ.",
    ),
    (
        "entropy_explosion",
        run(entropy=then(1, 9)),
        "entropy rose from 1 to 9: the policy turns to noise.",
    ),
    (
        "nonfinite",
        run(loss=then(1, math.nan), kl=then(1, math.nan), entropy=then(1, math.nan), ratio=then(1, math.nan)),
        "loss, kl, entropy and 1 more: NaN or infinite in 20 of 20 rows since step 41.",
    ),
    (
        "nonfinite",
        run(loss=then(1, math.nan, 1), kl=1),
        "loss: NaN or infinite in 1 of 20 rows since step 41.",
    ),
    (
        "ppo_kl_high",
        run(step_kl=then(0, 0.2)),
        "One update moves the policy by 0.2 (step_kl).",
    ),
    (
        "ratio_drift",
        run(ratio=[1] * 20 + [0.2] * 20 + [3] * 20),
        "ratio is 0.2 and should be near 1.",
    ),
    (
        "clipfrac_high",
        run(clipped=then(0.1, 0.4)),
        "40 % of the tokens are clipped (clipped).",
    ),
    (
        "clipfrac_zero",
        run(clipped=0, step_kl=0, config={"num_iterations": 2}),
        "clipped, step_kl are 0 in all rows with 2 updates per batch (num_iterations = 2): the old log-probs "
        "may be computed anew at each update, so that the ratio is always 1.",
    ),
    (
        "grad_spike",
        run(gradient=then(1, *[9, 1, 1] * 4)),
        "gradient has 4 jumps, up to 9; its median is 1.",
    ),
    (
        "grad_rising",
        run(gradient=10 ** line(0, 2)),
        "gradient grew from 2.55 to 39.2.",
    ),
    (
        "length_explosion",
        run(length=then(10, 50)),
        "Answers grew from 10 to 50 tokens.",
    ),
    (
        "length_collapse",
        run(length=then(90, 9)),
        "Answers shrank from 90 to 9 tokens.",
    ),
    (
        "eos_loss",
        run(ended=then(1, 0.5)),
        "ended fell from 1 to 0.5: the policy forgets to stop.",
    ),
    (
        "repetition",
        run(repetition=then(0.05, 0.6)),
        "60 % of the answers end in a repetition, from 5 % at the start (repetition).",
    ),
    (
        "value_loss_spike",
        run(value_loss=then(1, 50), reward=2),
        "value_loss is up to 50; its lowest level is 1, and rewards are at most 2.",
    ),
    (
        "ev_bad",
        run(explained_variance=then(0.5, -0.5)),
        "explained_variance is -0.5.",
    ),
    (
        "critic_warmup",
        run(value_loss=then(10, 0.5, at=5)),
        "value_loss fell from 10 to 0.5 in the first rows, as it should.",
    ),
    (
        "mismatch",
        run(mismatch=then(0.001, 0.06)),
        "mismatch is 0.06, from 0.001 at the start: rollouts are of another policy than the one that is trained.",
    ),
    (
        "ess_low",
        run(sample_size=then(0.9, 0.1)),
        "sample_size is 10 % of the batch.",
    ),
    (
        "stale",
        run(staleness=then(1, 20), config={"max_staleness": 10}),
        "staleness is 20 versions, above 10.",
    ),
    (
        "is_weight_odd",
        run(weight=then(1, 3), weight_std=then(0.5, 2)),
        "Importance weights have a mean of 3 and a deviation of up to 2 (weight); they should be near 1.",
    ),
    (
        "advantage_odd",
        run(advantage_mean=then(0, 2), advantage_std=1),
        "advantage_mean is 2 from 0 at a deviation of 1: normalised advantages have a mean of 0 and a deviation of 1.",
    ),
    (
        "dropped_rollouts",
        run(runs_failed=8, runs_expected=64),
        "Up to 12 % of the rollouts are lost (runs_failed): the reward is that of the others.",
    ),
    (
        "lr_implausible",
        run(learning_rate=0.01),
        "learning_rate is 0.01; usual are 1e-6 for all weights and 5e-6 to 2e-4 for LoRA.",
    ),
    (
        "lr_still_warmup",
        run(every=5, learning_rate=line(0, 59)),
        "learning_rate is still rising at step 296 (59): all results so far are at a fraction of the intended rate.",
    ),
    (
        "lr_exhausted",
        run(learning_rate=then(1, 0, at=20)),
        "learning_rate is 0, after a peak of 1: further steps change almost nothing.",
    ),
    (
        "proxy_gold_gap",
        gamed(0, 0.5, 1, 1, 1, 1, *[0.4] * 4),
        "reward rises while validation fell from 1 at step 18 to 0.4.",
    ),
    (
        "component_tradeoff",
        run(reward="rise", component={"a": 0, "b": -RISING}),
        "reward rises while its component component/b falls.",
    ),
    (
        "format_only_gain",
        formatted(FLAT),
        "reward rises through component/format; component/answer, which differs most between answers, has not moved.",
    ),
    (
        "val_train_gap",
        gamed(*[0.2] * 10),
        "reward is +72 points from validation; at the start it was -16.",
    ),
    (
        "crash_loop",
        run(loss=1, attempts=((1, 5),) * 3),
        "The training was started 3 times and dies within 5 rows each time.",
    ),
    (
        "restart",
        run(loss=1, attempts=((1, 50), (25, 100))),
        "Further starts of the training: 1; steps that were repeated: 26.",
    ),
    (
        "slowdown",
        run(step_time=20 * line(1, 3), phase={"a": 10 * line(1, 3), "b": 10 * line(1, 2)}),
        "step_time went from 28.5 to 53.6 seconds at equal length. Most of it is a: 12.5 seconds more.",
    ),
    (
        "slowdown",
        run(step_time=20 * line(1, 3)),
        "step_time went from 28.5 to 53.6 seconds at equal length.",
    ),
    (
        "stall",
        run(step_time=then(10, 700, 10)),
        "step_time was 700 seconds; usual are 10.",
    ),
    (
        "stalled",
        run(loss=1, silence=1801, pace=10),
        "No row for 30 minutes; usually one comes every 10 seconds.",
    ),
    (
        "phase_imbalance",
        idle(30),
        "idle takes 30 % of a step, 30 seconds, and processes no tokens: the models wait for it.",
    ),
    (
        "stragglers",
        run(slowest_rank={"a": 20}, mean_rank={"a": 10}),
        "In a the slowest rank takes 2 times the mean: the others wait for it.",
    ),
    (
        "memory_leak",
        run(rss={"a": line(10, 90)}),
        "rss/a grew by 355 %, 133 GB per 100 steps.",
    ),
    (
        "near_oom",
        run(device_memory={"a": 0.5, "b": then(0.9, 0.99)}),
        "device_memory/b reached 99 %: a longer batch may run out of memory.",
    ),
    (
        "log_gap",
        skipping(21, 4),
        "21 steps before step 138 have no row; usually there is one every 4 steps.",
    ),
    (
        "dead_sensor",
        run(entropy=0, kl=0, reward="rise"),
        "entropy, kl: always 0. Rules that need them are off.",
    ),
]


def test_findings_are_told_with_their_numbers():
    """The first one of each run, in English; the Chinese sentence is filled too."""
    for rule, case, said in SAID:
        reading = RULES[rule].judge(case)
        assert isinstance(reading, RuleReading), rule
        found = findings_of(RULES[rule], reading)
        assert found[0].text.en == said, rule
        assert "{" not in found[0].text.zh, rule
