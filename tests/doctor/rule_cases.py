"""Made-up runs for each rule of the doctor, on both sides of each of its limits, with the levels that it must give.

A ladder is a run with one number to choose, and what the rule says for some of them. Levels are written as runs of
rows: ``0x20 2x40`` is nothing in the first twenty rows and a warning from then on; ``from 0`` is the row where the
first finding begins, where that is not its first row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from barograph.diagnosis import rule as shared
from barograph.diagnosis.rule import Case, LoggedAttempt, Rule, RuleReading, spells
from barograph.metrics.tracks import Track

ROWS = 60
ATTEMPTS = tuple[tuple[int, int], ...]


def run(
    rows: int = ROWS,
    every: int = 1,
    start: int = 1,
    config: Any = (),
    attempts: ATTEMPTS = (),
    silence: float | None = None,
    pace: float = math.nan,
    validation: Track | None = None,
    **signals: Any,
) -> Case:
    """Return a case: a number is a constant signal, a dictionary a family by its part."""
    tracks, families, places = {}, {"validation": [] if validation is None else [validation]}, {}
    for key, given in signals.items():
        if isinstance(given, dict):
            families[key] = [track(f"{key}/{part}", series(one, rows), every, start) for part, one in given.items()]
            places.update({f"{key}/{part}": {"phase": part, "component": part} for part in given})
        elif given is not None:
            tracks[key] = track(key, series(given, rows), every, start)
    return Case(
        tracks,
        families,
        config=dict(config),
        attempts=[LoggedAttempt(*one) for one in attempts],
        places=places,
        silence=silence,
        pace=pace,
    )


def series(given: Any, rows: int) -> np.ndarray:
    """Return values for some rows; those of "rise" go up steadily."""
    if isinstance(given, str):
        return np.linspace(0, 1, rows)
    return np.full(rows, float(given)) if np.isscalar(given) else np.asarray(given, float)[:rows]


def track(key: str, values: np.ndarray, every: int = 1, start: int = 1, metric: str = "") -> Track:
    """Return a track with a row every few steps."""
    return Track(key.split("/")[0], key, metric or key, start + every * np.arange(len(values)), values)


def run_k1(value: float, estimator: str = "") -> Case:
    """Return a case with a KL to the reference that may be negative."""
    case = run(kl=value, config={"kl_penalty": estimator})
    return replace(case, tracks={"kl": track("kl", series(value, ROWS), metric="policy/ref_kl_k1")})


def evaluated(*values: float, every: int = 8, metric: str = "validation") -> Track:
    """Return evaluations after every few steps."""
    return track("validation", np.array(values, float), every, every, metric)


def then(before: float, *after: float, at: int = 40, rows: int = ROWS) -> np.ndarray:
    """Return a series that changes after some rows, and keeps the last of the values given."""
    found = np.full(rows, float(before))
    found[at:] = after[-1]
    found[at : at + len(after)] = after
    return found


def line(first: float, last: float, rows: int = ROWS) -> np.ndarray:
    """Return a straight line."""
    return np.linspace(first, last, rows)


def zigzag(size: float = 1.0, rows: int = ROWS) -> np.ndarray:
    """Return values that jump up and down around 0."""
    return np.resize([size, -size], rows)


def noisy(rows: int = ROWS, seed: int = 1) -> np.ndarray:
    """Return normal noise."""
    return np.random.default_rng(seed).normal(size=rows)


def share_of(count: int, of: int = 20, rows: int = ROWS) -> np.ndarray:
    """Return 1 in some rows of every twenty, and 0 in the others."""
    return np.resize([0.0] * (of - count) + [1.0] * count, rows)


FLAT = zigzag()  # a reward that does not rise
RISING = line(0, 1)


def levels_of(rule: Rule, case: Case) -> str:
    """Return what a rule says about each row, as in the ladders."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if not rule.needs and not case.tracks:
            return "nothing"
        try:
            reading = rule.judge(case)
        except shared.UnmeasuredError as why:
            return why.reason
        if not isinstance(reading, RuleReading):  # the module of the class was changed
            return "nothing"
        said = " ".join(f"{level}x{len(list(rows))}" for level, rows in groupby(reading.levels.tolist()))
        spell = next(spells(reading.levels, rule.persist), None)
        onset = None if spell is None or reading.onset is None else reading.onset(spell)
    return said if spell is None or onset in (None, spell.first) else f"{said} from {onset}"


Ladder = tuple[Callable[[Any], Case], dict[Any, str]]
LADDERS: dict[str, list[Ladder]] = {}


def ladder(rule: str, build: Callable[[Any], Case], said: dict[Any, str]) -> None:
    """Add a ladder of a rule."""
    LADDERS.setdefault(rule, []).append((build, said))


# -- the critic ----------------------------------------------------------------------------------------------------

ladder(
    "value_loss_spike",
    lambda x: run(value_loss=then(1, x)),
    {10: "0x60", 10.01: "0x42 2x18", 100: "0x42 2x18", 100.1: "0x42 3x18"},
)
ladder("value_loss_spike", lambda x: run(value_loss=[1] * 3 + [0.1] * 37 + [x] * 20), {2: "0x60", 2.01: "0x42 2x18"})
ladder("value_loss_spike", lambda x: run(value_loss=then(1, 50, at=x)), {8: "0x20 2x40", 19: "0x21 2x39"})
ladder(
    "value_loss_spike",
    lambda x: run(value_loss=x, reward=2),
    {40: "0x60", 40.1: "0x20 2x40 from 0", 400: "0x20 2x40 from 0", 400.1: "0x10 3x50 from 0"},
)
ladder("value_loss_spike", lambda x: run(value_loss=x, reward=-2), {40: "0x60", 40.1: "0x20 2x40 from 0"})
ladder(
    "value_loss_spike",
    lambda x: run(value_loss=x, reward=then(2, 1), reward_max=then(3, 2)),
    {90: "0x60", 90.1: "0x20 2x40 from 0"},
)
ladder("value_loss_spike", lambda x: run(value_loss=1, reward=x), {0: "0x60", 0.1: "0x20 2x40 from 0", 0.4: "0x60"})
ladder(
    "value_loss_spike",
    lambda x: run(value_loss=[1] * x + [1000] * (60 - x), reward=2),
    {12: "0x14 3x46 from 0", 17: "0x19 3x41 from 0", 18: "0x20 3x40 from 0", 19: "0x21 3x39"},
)
ladder(
    "ev_bad",
    lambda x: run(explained_variance=x),
    {0: "0x60", -0.001: "0x50 2x10", -1: "0x50 2x10", -1.001: "0x50 3x10"},
)
ladder("critic_warmup", lambda x: run(value_loss=then(10, x, at=1)), {1.0: "0x60", 0.999: "0x3 1x57 from 0"})
ladder("critic_warmup", lambda x: run(value_loss=then(10, 0.5, at=x)), {18: "0x19 1x41 from 0", 19: "0x60"})
ladder("ev_bad", lambda x: run(explained_variance=then(1, x, at=55)), {-1: "0x60", -1.01: "0x59 2x1"})


# -- the learning signal -------------------------------------------------------------------------------------------

ladder("reward_constant", lambda x: run(reward=1, gradient=x), {1e-8: "0x19 2x41 from 0", 0.99e-8: "0x19 3x41 from 0"})
ladder(
    "reward_constant",
    lambda x: run(reward=then(1, 2, 1, at=30), reward_std=x),
    {0.1: "0x19 2x11 0x20 2x10 from 0", 0: "0x19 3x11 0x20 3x10 from 0"},
)
ladder(
    "reward_constant",
    lambda x: run(reward=1, reward_min=0.5, reward_max=x),
    {0.6: "0x19 2x41 from 0", 0.5: "0x19 3x41 from 0"},
)
ladder(
    "reward_constant",
    lambda x: run(reward=1, advantage_min=0.5, advantage_max=x),
    {0.6: "0x19 2x41 from 0", 0.5: "0x19 3x41 from 0"},
)
ladder("no_signal", lambda x: run(dead_groups=share_of(x), reward=FLAT), {17: "0x60", 18: "0x19 3x41 from 0"})
ladder(
    "no_signal",
    lambda x: run(solved_none=share_of(x) / 2, solved_all=share_of(x) / 2),
    {17: "0x60", 18: "0x19 3x41 from 0"},
)
ladder("no_signal", lambda x: run(reward_std=share_of(x)), {3: "0x60", 2: "0x19 3x41 from 0"})
ladder(
    "no_signal",
    lambda x: run(dead_groups=1, reward=[0] * 10 + [100] * 20 + [x] * 30),
    {84.9: "0x14 3x1 1x20 3x25 from 0", 85: "0x14 3x1 1x45 from 0"},
)
ladder("no_signal", lambda x: run(dead_groups=1, reward=x), {1: "0x14 3x46 from 0"})
ladder(
    "no_signal",
    lambda x: run(dead_groups=1, reward=[0] * x + [100] * (60 - x)),
    {2: "0x14 3x46 from 0", 3: "0x14 1x46 from 0"},
)
ladder("weak_signal", lambda x: run(dead_groups=share_of(x), reward=FLAT), {12: "0x60", 13: "0x19 1x10 2x31 from 0"})
ladder("weak_signal", lambda x: run(dead_groups=share_of(x), reward=RISING), {12: "0x60", 13: "0x19 1x41 from 0"})
ladder(
    "weak_signal", lambda x: run(every=10, dead_groups=share_of(x), reward=FLAT), {8: "0x60", 9: "0x30 2x30 from 11"}
)
ladder(
    "weak_signal",
    lambda x: run(every=10, dead_groups=0.5, reward=noisy() + line(0, x)),
    {1.083: "0x30 2x27 0x2 2x1 from 11", 1.084: "0x30 2x27 0x3 from 11"},
)
ladder("weak_signal", lambda x: run(every=x, dead_groups=0.5, reward=FLAT), {5: "0x60", 6: "0x50 2x10 from 31"})
ladder("weak_signal", lambda x: run(dead_groups=x), {0.6: "0x60", 0.7: "0x14 2x46 from 0"})
ladder(
    "weak_signal",
    lambda x: run(dead_groups=0.7, reward=[0] * 20 + [1, 0.7] * x + [0.1] * (40 - 2 * x)),
    {20: "0x14 1x46 from 0", 15: "0x14 1x45 2x1 from 0"},
)
ladder(
    "zero_grad",
    lambda x: run(gradient=1 - share_of(x)),
    {7: "0x60", 8: "0x19 2x41 from 0", 15: "0x19 2x41 from 0", 16: "0x19 3x41 from 0"},
)
ladder("zero_grad", lambda x: run(gradient=x), {1e-8: "0x60", 0.99e-8: "0x19 3x41 from 0", -1e-8: "0x60"})
ladder(
    "truncation", lambda x: run(truncated=x, reward=FLAT),
    {0.0499: "0x60", 0.0501: "1x60", 0.2499: "1x60", 0.25: "1x29 2x31", 0.8999: "1x29 2x31",
     0.9001: "1x29 3x31", 0.9699: "1x29 3x31", 0.9701: "3x60"},
)  # fmt: skip
ladder("truncation", lambda x: run(truncated=x, reward=RISING), {0.9: "1x60", 0.9699: "1x60", 0.9701: "3x19 2x41"})
ladder("truncation", lambda x: run(truncated=share_of(x, 10), reward=FLAT), {8: "0x2 1x27 2x31", 9: "0x1 1x28 3x31"})
ladder("truncation", lambda x: run(truncated=share_of(1, 10) * x), {0.499: "0x60", 0.5: "0x9 1x51"})
ladder("truncation", lambda x: run(truncated=x), {0.2499: "1x60", 0.25: "2x60"})
ladder(
    "truncation",
    lambda x: run(truncated=0.5, reward=zigzag(0.5) + line(0, x)),
    {0.3685: "1x29 2x31", 0.3686: "1x29 2x30 1x1"},
)
ladder(
    "truncation",
    lambda x: run(truncated=0.5, reward=noisy() + line(0, x)),
    {1.607: "1x29 2x28 1x2 2x1", 1.608: "1x29 2x28 1x3"},
)
ladder("truncation", lambda x: run(length_min=x, length_max=then(100, 90, 100)), {99: "0x60", 100: "0x9 3x51"})
ladder("truncation", lambda x: run(length=x, length_max=100), {99: "0x60", 100: "0x9 3x51"})
ladder(
    "no_signal",
    lambda x: run(dead_groups=1, reward=[0] * 10 + [100] * 20 + [x] * 30),
    {10: "0x14 3x1 1x19 3x26 from 0"},
)
ladder(
    "no_signal",
    lambda x: run(dead_groups=1, reward=[0] * 3 + [80] * 7 + [100] * 20 + [x] * 30),
    {88: "0x14 1x46 from 0"},
)
ladder(
    "no_signal",
    lambda x: run(dead_groups=1, reward=[0] * 10 + [100] * 5 + [x] * 45),
    {84: "0x14 3x1 1x5 3x40 from 0", 85: "0x14 3x1 1x45 from 0"},
)
ladder("truncation", lambda x: run(truncated=np.resize([1] * 9 + [x], ROWS)), {0.699: "3x60", 0.7: "3x60"})


# -- rollouts of another policy ------------------------------------------------------------------------------------

for KEY, LOW, HIGH in (("mismatch", 0.01, 0.05), ("mismatch_log", 0.05, 0.2), ("mismatch_kl", 0.01, 0.1)):
    ladder(
        "mismatch", lambda x, key=KEY: run(**{key: x}),
        {LOW * 0.999: "0x60", -LOW * 1.001: "1x60", HIGH * 0.999: "1x60", HIGH * 1.001: "2x60"},
    )  # fmt: skip
ladder(
    "mismatch",
    lambda x: run(mismatch=[x] * 10 + [*line(x, 0.04, 40)] + [0.04] * 10, reward=FLAT),
    {0.0134: "1x60", 0.0133: "1x57 2x3"},
)
ladder(
    "mismatch",
    lambda x: run(mismatch=[0.001] * 10 + [*line(0.001, x, 50)], reward=FLAT),
    {0.01091: "0x60", 0.01092: "0x59 2x1"},
)
ladder(
    "mismatch",
    lambda x: run(mismatch=[0.001] * 10 + [*line(0.001, x, 50)], reward=RISING),
    {0.05: "0x24 1x36", 0.056: "0x23 1x36 3x1"},
)
ladder(
    "mismatch",
    lambda x: run(mismatch=[0.002] * 10 + [0.02, 0.002] * x + [0.02] * (50 - 2 * x), reward=FLAT),
    {20: "0x18 1x41 2x1", 10: "0x18 1x17 2x25", 0: "0x14 1x15 2x31"},
)
ladder("mismatch", lambda x: run(mismatch=[0.001] * 50 + [x] * 10, reward=FLAT), {0.03: "0x53 1x2 2x5"})
ladder("ess_low", lambda x: run(sample_size=then(0.9, x)), {0.3: "0x60", 0.2999: "0x42 2x18"})
ladder("stale", lambda x: run(staleness=x), {8: "0x60", 8.01: "0x5 2x55 from 0"})
ladder("stale", lambda x: run(staleness=x, config={"max_staleness": 20}), {20: "0x60", 20.1: "0x5 2x55 from 0"})
ladder(
    "stale",
    lambda x: run(staleness=line(0, 12), config={"max_staleness": x}),
    {True: "0x44 2x16 from 25", 2: "0x44 2x16 from 25", 10: "0x54 2x6 from 30"},
)
ladder(
    "is_weight_odd", lambda x: run(weight=then(1, x)), {2: "0x60", 2.01: "0x42 2x18", 0.5: "0x60", 0.499: "0x42 2x18"}
)
ladder("is_weight_odd", lambda x: run(weight_std=x), {1: "0x60", 1.01: "2x60"})
ladder("is_weight_odd", lambda x: run(weight=1, weight_std=then(0.5, x)), {1: "0x60", 1.01: "0x42 2x18"})
ladder(
    "advantage_odd",
    lambda x: run(advantage_mean=then(0, x), advantage_std=1),
    {0.3: "0x60", 0.301: "0x42 1x18", -1: "0x42 1x18", -1.01: "0x42 2x18"},
)
ladder("advantage_odd", lambda x: run(advantage_mean=0, advantage_std=then(1, x)), {5: "0x60", 5.01: "0x42 2x18"})
ladder(
    "advantage_odd",
    lambda x: run(advantage_mean=0, advantage_std=x),
    {0.5: "not_normalised", 0.51: "0x60", 1.99: "0x60", 2: "not_normalised"},
)
ladder(
    "dropped_rollouts", lambda x: run(runs_failed=share_of(1, 10) * x, runs_expected=64), {32: "0x60", 32.1: "0x9 2x51"}
)
ladder("dropped_rollouts", lambda x: run(runs_failed=x, runs_expected=0), {0: "0x60", 3: "0x60"})
ladder("dropped_rollouts", lambda x: run(aborted=share_of(2, 10) * x), {1: "0x60", 1.01: "0x9 1x51"})
ladder(
    "mismatch",
    lambda x: run(mismatch=share_of(1, 10) * x),
    {0.1: "0x60", 0.101: "0x9 1x51", 0.5: "0x9 1x51", 0.501: "0x9 2x51"},
)
ladder(
    "mismatch",
    lambda x: run(mismatch=[x] * 5 + [0.02] * 5 + [*line(0.02, 0.045, 40)] + [0.045] * 10, reward=FLAT),
    {0.005: "0x7 1x35 2x18"},
)
ladder(
    "stale", lambda x: run(staleness=[0] * 20 + [x] * 20 + [9] * 20), {4: "0x48 2x12 from 40", 4.1: "0x47 2x13 from 29"}
)
ladder(
    "advantage_odd",
    lambda x: run(advantage_mean=0, advantage_std=[1] * x + [3] * (60 - x)),
    {2: "not_normalised", 3: "0x60"},
)
ladder("dropped_rollouts", lambda x: run(runs_failed=x, runs_expected=1), {1: "2x60"})


# -- the learning rate ---------------------------------------------------------------------------------------------

ladder("lr_implausible", lambda x: run(learning_rate=x), {0.00099: "0x60", 1e-3: "2x60", 0.00499: "2x60", 5e-3: "3x60"})
ladder(
    "lr_implausible",
    lambda x: run(learning_rate=0, loss=x),
    {0.125: "rounded", 0.1251: "0x60", 0.9: "rounded", 0.1250000011: "0x60", math.nan: "0x60"},
)
ladder("lr_zero", lambda x: run(learning_rate=x), {0: "0x20 2x40 from 0", 1e-7: "0x60"})
ladder("lr_zero", lambda x: run(learning_rate=then(0, 1e-6, at=x)), {20: "0x60", 30: "0x20 2x10 0x30 from 0"})
ladder(
    "lr_still_warmup",
    lambda x: run(every=5, learning_rate=line(x, x + 59)),
    {0: "0x20 1x20 2x20 from 0", 29: "0x57 2x1 0x1 2x1", 30: "0x59 2x1"},
)
ladder(
    "lr_still_warmup",
    lambda x: run(every=x, learning_rate=line(0, 59)),
    {1: "0x50 1x10 from 0", 2: "0x25 1x35 from 0", 4: "0x20 1x30 2x10 from 0"},
)
ladder(
    "lr_still_warmup",
    lambda x: run(every=5, learning_rate=line(0, 59), config={"max_steps": x}),
    {
        1010: "0x20 1x20 2x20 from 0",
        1011: "0x21 1x19 2x20 from 0",
        0: "0x20 1x20 2x20 from 0",
        "1e4": "0x20 1x20 2x20 from 0",
    },
)
ladder("lr_still_warmup", lambda x: run(every=5, learning_rate=then(0, *range(20), at=40)), {0: "0x60"})
ladder(
    "lr_still_warmup",
    lambda x: run(every=5, learning_rate=[*line(0, 40, 41)] + [40] * 9 + [x] * 10),
    {40: "0x20 1x20 2x14 0x6 from 0", 39: "0x20 1x20 2x10 0x10 from 0"},
)
ladder("lr_exhausted", lambda x: run(learning_rate=then(1, x, at=20)), {0.001: "plan_unknown", 0: "0x20 1x19 2x21"})
ladder(
    "lr_exhausted",
    lambda x: run(learning_rate=then(1, x), config={"total_steps": 100}),
    {0.01: "0x60", 0.0099: "0x40 1x20"},
)
ladder(
    "lr_exhausted",
    lambda x: run(learning_rate=then(1, 0.001, at=50), config={"total_steps": x}),
    {60: "0x50 1x3 0x7", 61: "0x50 1x4 0x6", 0: "plan_unknown", 1: "0x60"},
)
ladder(
    "lr_exhausted",
    lambda x: run(learning_rate=[x] * 5 + [0] * 55, config={"total_steps": 60}),
    {0: "0x60", 1: "0x5 1x19 2x36"},
)
ladder("lr_exhausted", lambda x: run(learning_rate=x), {0: "plan_unknown", 1e-6: "plan_unknown"})
ladder("lr_still_warmup", lambda x: run(every=5, learning_rate=line(0, x)), {1e-6: "0x20 1x20 2x20 from 0"})


# -- the policy: values that are not finite, and entropy -----------------------------------------------------------

ladder(
    "nonfinite",
    lambda x: run(loss=then(1, x, 1, at=5)),
    {2: "0x60", math.nan: "0x5 3x50 2x5", math.inf: "0x5 3x50 2x5"},
)
ladder("nonfinite", lambda x: run(gradient=[math.nan] * x + [1] * (60 - x)), {2: "2x2 0x58", 3: "2x2 3x50 2x8"})
ladder(
    "nonfinite",
    lambda x: run(loss=then(1, math.nan, 1, at=x), kl=then(1, math.nan, 1, at=20)),
    {10: "0x10 3x50", 30: "0x20 3x40"},
)
ladder("entropy_spent", lambda x: run(entropy=then(1, x, at=30)), {0.25: "0x60", 0.249: "0x39 1x21"})
ladder("entropy_spent", lambda x: run(entropy=then(1, 0.1, at=x)), {2: "0x10 1x50", 3: "0x11 1x49", 4: "0x12 1x48"})
ladder(
    "entropy_spent",
    lambda x: run(entropy=[0.2] * 3 + [1] * x + [0.1] * (57 - x)),
    {6: "0x17 1x43", 7: "0x18 1x42", 8: "0x19 1x41"},
)
ladder("entropy_spent", lambda x: run(rows=x, entropy=0, reward=line(0, 1, x)), {19: "0x19", 20: "dead"})
ladder("entropy_spent", lambda x: run(entropy=0, reward=x), {0: "0x60", "rise": "dead"})
ladder("entropy_collapse", lambda x: run(entropy=then(1, x)), {0.05: "0x60", 0.0499: "0x42 3x18 from 41"})
ladder("entropy_collapse", lambda x: run(entropy=then(0.1, x)), {0.01: "0x60", 0.0099: "0x42 3x18 from 41"})
ladder("entropy_collapse", lambda x: run(entropy=[x] * 10 + [0.001] * 50), {0.02: "0x60", 0.0201: "0x12 3x48 from 11"})
ladder(
    "entropy_collapse",
    lambda x: run(entropy=then(1, 0.01), reward=x),
    {0: "0x42 3x18 from 41", "rise": "0x42 2x18 from 41"},
)
ladder(
    "entropy_collapse",
    lambda x: run(entropy=[1] * 20 + [x] * 20 + [0.01] * 20),
    {0.5: "0x42 3x18 from 41", 0.49: "0x42 3x18 from 21"},
)
ladder(
    "entropy_low_start",
    lambda x: run(entropy=then(x, 1, at=30)),
    {0.02: "0x60", 0.0199: "0x9 2x51 from 0", 0: "0x9 2x51 from 0", -0.001: "0x60"},
)
ladder("entropy_explosion", lambda x: run(entropy=then(1, x)), {3: "0x60", 3.01: "0x42 3x18"})
ladder("entropy_explosion", lambda x: run(entropy=then(0.5, x)), {2: "0x60", 2.01: "0x42 3x18"})
ladder("entropy_explosion", lambda x: run(entropy=then(1, 9, at=x)), {5: "0x60", 6: "0x10 3x50", 9: "0x11 3x49"})

# -- the policy: KL ------------------------------------------------------------------------------------------------

ladder("kl_drift", lambda x: run(kl=then(0.1, x), reward=RISING), {0.999: "0x60", 1: "0x42 2x18"})
ladder(
    "kl_drift",
    lambda x: run(kl=then(0.1, x), entropy=1, reward=RISING),
    {1: "0x42 1x18", 1.499: "0x42 1x18", 1.5: "0x42 2x18"},
)
ladder("kl_drift", lambda x: run(kl=then(0.1, 1.2), entropy=1, reward=x), {0: "0x42 3x18", "rise": "0x42 1x18"})
ladder("kl_drift", lambda x: run(kl=x, entropy=1, reward=line(1, 0)), {0.399: "0x60", 0.4: "0x3 3x57 from 0"})
ladder("kl_drift", lambda x: run(kl=x, entropy=4, reward=line(1, 0)), {1.2: "3x60", 1.6: "3x60"})
ladder(
    "kl_drift",
    lambda x: run(kl=0.5, entropy=1, reward=zigzag(0.5) - line(0, x)),
    {0.7371: "0x57 3x2 0x1", 0.7372: "0x57 3x3 from 0"},
)
ladder(
    "kl_drift",
    lambda x: run(kl=0.5, entropy=1, reward=noisy() * 0.5 - line(0, x)),
    {0.4944: "0x51 3x4 0x5 from 0", 0.4945: "0x51 3x4 0x4 3x1 from 0"},
)
ladder(
    "kl_drift",
    lambda x: run(kl=0.5, entropy=1, reward=[0] * 5 + [1] * 25 + [x] * 30),
    {0.5: "0x60", 0.49: "0x39 3x21 from 0"},
)
ladder(
    "kl_drift",
    lambda x: run(kl=0.5, entropy=1, reward=[*zigzag(x, 20) + 0.5, *zigzag(x, 20) + 4.5, *zigzag(x, 20) + 1]),
    {0.694: "0x44 3x16 from 0", 0.6941: "0x60"},
)
ladder(
    "kl_drift",
    lambda x: run(kl=[0.2] * 20 + [x] * 20 + [2] * 20, entropy=2),
    {0.499: "0x42 3x18", 0.5: "0x42 3x18 from 22"},
)
ladder("kl_drift", lambda x: run(kl=[0.2] * 20 + [x] * 20 + [2] * 20), {0.99: "0x42 3x18", 1: "0x22 3x38"})
ladder("kl_drift", lambda x: run(kl=5, kl_sum=x, length=100, reward=RISING), {99: "0x60", 100: "3x19 2x41"})
ladder("kl_drift", lambda x: run(kl=5, kl_sum=x, length=0, reward=RISING), {99: "3x19 2x41"})
ladder("kl_drift", lambda x: run(kl_sum=x, length=100, reward=RISING), {100: "0x60", 100.1: "3x19 2x41"})
ladder("kl_drift", lambda x: run(kl_sum=200, length=100, reward=x), {0: "3x60", "rise": "3x19 2x41"})
ladder("kl_drift", lambda x: run(kl_sum=then(0.5, x)), {100: "0x60", 100.1: "0x42 3x18"})
ladder("kl_drift", lambda x: run(kl_sum=then(-4, x), length=0), {120: "0x60", 120.1: "0x42 3x18"})
ladder("kl_drift", lambda x: run(rows=x, kl=0), {4: "0x4", 5: "dead"})
ladder(
    "kl_drift",
    lambda x: run(kl=0, config=x),
    {(): "dead", (("beta", 0),): "not_computed", (("beta", 1),): "dead", (("use_kl_loss", False),): "not_computed"},
)
ladder(
    "kl_spike",
    lambda x: run(kl=then(0.1, x, 0.1)),
    {10: "0x60", 10.1: "0x40 2x1 0x19", 100: "0x40 2x1 0x19", 100.1: "0x40 3x1 0x19"},
)
ladder("kl_spike", lambda x: run(kl_sum=x), {1: "summed"})
ladder("kl_offset_start", lambda x: run(kl=then(x, 1, at=1)), {0.05: "0x60", 0.051: "2x60"})
ladder("kl_offset_start", lambda x: run(kl=1, start=x), {2: "2x60", 3: "late_start"})
ladder("kl_negative", lambda x: run(kl=x), {-0.00099: "0x60", -0.00101: "2x60"})
ladder("kl_negative", lambda x: run(kl=x, config={"kl_penalty": "kl"}), {-0.00101: "2x60"})
ladder("kl_negative", lambda x: run_k1(x), {-0.0499: "0x60", -0.0501: "2x60"})
ladder("kl_negative", lambda x: run(kl_sum=x), {-1: "0x60", -1.01: "2x60"})
ladder("kl_coef_growing", lambda x: run(kl_coef=line(1, x), kl=0.1), {2.0: "0x60", 2.5: "0x46 1x14"})
ladder(
    "kl_coef_growing",
    lambda x: run(kl_coef=line(1, 4), kl=zigzag(0.5) + line(1, 1 + x)),
    {0.7371: "0x26 1x34", 0.7372: "0x26 1x33 2x1"},
)
ladder(
    "kl_coef_growing",
    lambda x: run(kl_coef=line(1, 4), kl=zigzag(0.5) + line(1, 9), kl_sum=zigzag(0.5) + x),
    {0: "0x26 1x34"},
)
ladder(
    "kl_coef_growing",
    lambda x: run(kl_coef=line(1, 4), kl=noisy(seed=3) + line(1, x)),
    {2.322: "0x26 1x34", 2.323: "0x26 1x33 2x1"},
)
ladder("kl_coef_growing", lambda x: run(kl_coef=line(-1, 4) * x, kl=0.1), {1: "0x60", -1: "0x60"})
ladder(
    "kl_coef_growing",
    lambda x: run(kl_coef=[1] * 5 + [*zigzag(3, 55) + line(4, 4 + x, 55)], kl=0.1),
    {
        3.24: "0x21 1x1 0x5 1x1 0x5 1x1 0x5 1x2 0x4 1x2 0x4 1x2 0x4 1x2 0x1",
        3.241: "0x21 1x1 0x5 1x1 0x5 1x1 0x5 1x2 0x4 1x2 0x4 1x2 0x4 1x3",
    },
)
ladder(
    "kl_coef_growing",
    lambda x: run(kl_coef=[1] * 5 + [*noisy(55, 4) + line(4, 4 + x, 55)], kl=0.1),
    {0.8532: "0x20 1x1 0x39", 0.8533: "0x20 1x1 0x38 1x1"},
)
ladder("kl_drift", lambda x: run(kl=[0.2] * 20 + [x] * 20 + [9] * 20, entropy=8), {0.99: "0x42 3x18", 1: "0x22 3x38"})
ladder("kl_drift", lambda x: run(kl=5, kl_sum=then(50, x), length=100, reward=RISING), {120: "0x42 2x18"})
ladder("kl_drift", lambda x: run(kl=5, kl_sum=x, length=1, reward=RISING), {0.5: "0x60"})
ladder("kl_drift", lambda x: run(kl_sum=x, length=1, reward=RISING), {2: "3x19 2x41"})
ladder(
    "kl_drift",
    lambda x: run(rows=32, kl=0.5, entropy=1, reward=noisy(32) - line(0, x, 32)),
    {0.7963: "0x19 3x3 0x3 3x5 0x2 from 0", 0.7964: "0x19 3x3 0x3 3x5 0x1 3x1 from 0"},
)
ladder("kl_negative", lambda x: run(kl=then(0.001, x)), {-0.0095: "0x40 2x20"})
ladder("kl_negative", lambda x: run_k1(-0.02, x), {"k1": "0x60", "k3": "2x60"})
ladder(
    "kl_coef_growing",
    lambda x: run(kl_coef=[1] * 5 + [*line(1, x, 40)] + [x] * 15, kl=0.1),
    {2: "0x60", 2.01: "0x46 1x14"},
)
ladder("kl_coef_growing", lambda x: run(kl_coef=[x] * 5 + [*line(x, 4, 55)], kl=0.1), {0: "0x60", 0.5: "0x19 1x41"})
ladder(
    "kl_coef_growing",
    lambda x: run(rows=32, kl_coef=line(1, 9, 32), kl=noisy(32) + line(1, x, 32)),
    {3.263: "0x19 1x11 2x1 1x1", 3.264: "0x19 1x11 2x2"},
)


# -- the policy: size of an update, gradient -----------------------------------------------------------------------

ladder(
    "ppo_kl_high",
    lambda x: run(step_kl=[*zigzag(0.001, 30)] + [x] * 30),
    {0.0199: "0x60", -0.0201: "0x39 2x21", 0.0999: "0x32 2x28", 0.1001: "0x31 2x8 3x21"},
)
ladder("ppo_kl_high", lambda x: run(step_kl=0.05, clipped=x), {0.0999: "0x60", 0.1: "2x60"})
ladder("ppo_kl_high", lambda x: run(step_kl=0.2, reward=x), {0: "3x60", "rise": "3x19 1x41"})
ladder("ppo_kl_high", lambda x: run(step_kl=0, rows=x), {4: "0x4", 5: "one_update"})
ladder(
    "ppo_kl_high",
    lambda x: run(step_kl=0, config=x),
    {(("num_iterations", 1),): "one_update_set", (("num_iterations", 2),): "unmoved"},
)
ladder(
    "ratio_drift",
    lambda x: run(ratio=then(1, x)),
    {1.1999: "0x60", 1.2001: "0x42 2x18", 2: "0x42 2x18", 2.01: "0x42 3x18", 0.5: "0x42 2x18", 0.499: "0x42 3x18"},
)
ladder(
    "ratio_drift",
    lambda x: run(ratio=then(x, 0.7)),
    {
        0.5149: "divided",
        0.5151: "2x60",
        0.4851: "divided",
        0.4849: "3x42 2x18",
        0.333: "divided",
        0.25: "divided",
        0.125: "divided",
        0.0625: "divided",
        0.2: "3x42 2x18",
    },
)
ladder(
    "ratio_drift",
    lambda x: run(ratio=then(0.2, 0.3), config={"num_mini_batches": x}),
    {4: "3x60", 5: "divided", 1: "3x60"},
)
ladder("clipfrac_high", lambda x: run(clipped=then(0.1, x)), {0.3: "0x60", 0.301: "0x45 2x15", 0.6: "0x44 2x16"})
ladder("clipfrac_high", lambda x: run(clipped=then(0.5, 0.6), reward=x), {0: "0x10 2x50", "rise": "0x10 2x9 1x41"})
ladder(
    "clipfrac_zero",
    lambda x: run(clipped=x, step_kl=0, config={"num_iterations": 2}),
    {0: "0x49 1x11 from 0", 0.01: "0x60"},
)
ladder("clipfrac_zero", lambda x: run(clipped=0, step_kl=x, config={"num_iterations": 2}), {0.01: "0x60"})
ladder(
    "clipfrac_zero",
    lambda x: run(clipped=0, step_kl=0, config=x),
    {(): "updates_unknown", (("num_iterations", 1),): "one_update_set"},
)
ladder(
    "clipfrac_zero",
    lambda x: run(clipped=then(0.5, 0, at=x), step_kl=0, config={"num_iterations": 2}),
    {5: "0x54 1x6 from 5", 10: "0x59 1x1", 11: "0x60"},
)
ladder(
    "grad_spike",
    lambda x: run(gradient=then(1, *[x, 1, 1] * 4)),
    {5: "0x60", 5.1: "0x40 1x1 0x2 1x1 0x2 1x1 0x2 2x1 0x10"},
)
ladder(
    "grad_spike",
    lambda x: run(gradient=then(1, *[9, 1, 1] * x)),
    {3: "0x40 1x1 0x2 1x1 0x2 1x1 0x13", 4: "0x40 1x1 0x2 1x1 0x2 1x1 0x2 2x1 0x10"},
)
ladder(
    "grad_spike",
    lambda x: run(rows=120, gradient=then(1, 9, *[1] * x, 9, 1, 9, 1, 9, 1, at=40, rows=120)),
    {
        44: "0x40 1x1 0x44 1x1 0x1 1x1 0x1 2x1 0x30",
        45: "0x40 1x1 0x45 1x1 0x1 1x1 0x1 1x1 0x29",
        46: "0x40 1x1 0x46 1x1 0x1 1x1 0x1 1x1 0x28",
    },
)
ladder(
    "grad_spike",
    lambda x: run(gradient=10 ** then(0, *[x, 0, 0] * 4) * 10 ** zigzag(0.1)),
    {0.7895: "0x60", 0.7896: "0x40 1x1 0x19"},
)
ladder("grad_spike", lambda x: run(gradient=[1] * x + [1e-8] * (60 - x)), {19: "early", 20: "0x20"})
ladder("grad_rising", lambda x: run(gradient=10 ** line(0, x)), {1.178: "0x60", 1.179: "0x59 2x1"})
ladder("grad_rising", lambda x: run(gradient=10 ** line(0, 2), reward=x), {0: "0x50 2x10", "rise": "0x50 1x10"})
ladder(
    "grad_rising",
    lambda x: run(gradient=10 ** (line(0, 1.5) + zigzag(x)), rows=60),
    {0.4005: "0x52 2x1 0x1 2x1 0x1 2x1 0x1 2x2", 0.4006: "0x52 2x1 0x1 2x1 0x1 2x1 0x1 2x1 0x1"},
)
ladder("grad_rising", lambda x: run(gradient=10 ** np.r_[np.zeros(25), noisy(35, x) * 0.1 + 2]), {1: "0x50 2x10"})
ladder(
    "ppo_kl_high",
    lambda x: run(step_kl=share_of(1, 10) * x),
    {0.2: "0x60", 0.201: "0x9 2x51", 1: "0x9 2x51", 1.01: "0x9 3x51"},
)
ladder("ratio_drift", lambda x: run(ratio=x), {1: "one_update"})
ladder("ratio_drift", lambda x: run(ratio=then(x, 1.1), config={"num_mini_batches": 1}), {1.01: "0x60"})
ladder("ratio_drift", lambda x: run(ratio=[0.4] * x + [0.6] * (60 - x)), {9: "3x11 2x49", 10: "divided"})
ladder("clipfrac_high", lambda x: run(clipped=x), {0: "one_update"})
ladder("grad_rising", lambda x: run(gradient=[1] * 30 + [x] * 30), {5: "0x60", 5.01: "0x50 2x10"})


# -- the policy: length --------------------------------------------------------------------------------------------

ladder("length_explosion", lambda x: run(length=then(10, x), reward=FLAT), {30: "0x60", 30.1: "0x49 2x11 from 41"})
ladder("length_explosion", lambda x: run(length=then(10, x), reward=RISING), {30: "0x60", 30.1: "0x49 1x11 from 41"})
ladder(
    "length_explosion",
    lambda x: run(length=then(10, 50), truncated=x, reward=RISING),
    {0.9699: "0x45 1x15 from 41", 0.9701: "0x45 2x15 from 41"},
)
ladder(
    "length_explosion",
    lambda x: run(length=then(10, 50), truncated=x, reward=FLAT),
    {0.25: "0x45 2x15 from 41", 0.251: "0x45 3x15 from 41"},
)
ladder(
    "length_explosion",
    lambda x: run(length=then(10, 99, at=x)),
    {2: "0x10 2x50 from 3", 4: "0x10 2x50 from 5", 6: "0x10 2x50 from 7"},
)
ladder(
    "length_explosion",
    lambda x: run(length=[10] + [x] * 29 + [35] * 30),
    {11: "0x37 2x23 from 31", 30: "0x30 2x30 from 2"},
)
ladder(
    "length_explosion",
    lambda x: run(length=[99, 10, 10] + [x] * 27 + [35] * 30),
    {11: "0x37 2x23 from 31", 30: "0x30 2x30 from 4"},
)
ladder(
    "length_explosion",
    lambda x: run(length=[99] * 3 + [10] * x + [35] * (57 - x)),
    {5: "0x60", 6: "0x10 2x1 0x6 2x43 from 10", 7: "0x10 2x1 0x7 2x42 from 11", 8: "0x19 2x41 from 12"},
)
ladder(
    "length_explosion",
    lambda x: run(length=[10] * 20 + [x] * 20 + [99] * 20),
    {20: "0x41 2x19", 20.1: "0x41 2x19 from 21"},
)
ladder("length_collapse", lambda x: run(length=then(90, x)), {30: "0x60", 29.9: "0x49 2x11"})
ladder("length_collapse", lambda x: run(length=then(90, x), reward=RISING), {16: "0x48 1x12", 15.9: "0x48 1x1 2x11"})
ladder("length_collapse", lambda x: run(length=then(90, 1, at=x)), {6: "0x12 2x48", 8: "0x14 2x46"})
ladder("eos_loss", lambda x: run(ended=then(1, x), reward=FLAT), {0.8125: "0x60", 0.75: "0x48 2x12"})
ladder(
    "eos_loss",
    lambda x: run(ended=[1] * 40 + [*share_of(x, 10, 20)], reward=FLAT),
    {7: "0x42 2x18", 8: "0x60", 9: "0x60"},
)
ladder("eos_loss", lambda x: run(ended=then(1, 0.5), reward=x), {0: "0x44 2x16", "rise": "0x44 1x16"})
ladder("eos_loss", lambda x: run(end_tokens=then(100, x), reward=FLAT), {10: "0x60", 9.9: "0x49 2x11"})
ladder("eos_loss", lambda x: run(ended=x), {0: "never_ended", 0.1: "0x60"})
ladder("repetition", lambda x: run(repetition=then(0.1, x), reward=FLAT), {0.2999: "0x60", 0.3001: "0x49 2x11"})
ladder("repetition", lambda x: run(repetition=then(0.01, x), reward=RISING), {0.1099: "0x60", 0.1101: "0x49 1x11"})
ladder(
    "length_explosion",
    lambda x: run(length=then(10, 50), truncated=then(0, 1, at=x), reward=RISING),
    {40: "0x45 1x4 2x11 from 41", 45: "0x45 1x9 2x6 from 41"},
)
ladder(
    "eos_loss",
    lambda x: run(ended=[0.5] * 40 + [*share_of(x, 10, 20)], reward=FLAT),
    {3: "0x43 2x17", 4: "0x43 2x5 0x12"},
)
ladder("repetition", lambda x: run(repetition=then(0.125, x)), {0.375: "0x60", 0.376: "0x49 2x11"})
ladder("repetition", lambda x: run(repetition=[0] * 40 + [*share_of(1, 10, 20) * x]), {1: "0x60", 1.01: "0x49 2x11"})


# -- the reward ----------------------------------------------------------------------------------------------------

ladder("reward_flat", lambda x: run(rows=x, reward=zigzag(rows=x)), {60: "0x60", 61: "0x60 1x1"})
ladder(
    "reward_flat",
    lambda x: run(every=2, reward=noisy() + line(0, x)),
    {0: "0x40 1x20 from 0", 1.083: "0x40 1x17 0x2 1x1 from 0", 1.084: "0x40 1x17 0x3 from 0"},
)
ladder(
    "reward_flat",
    lambda x: run(every=2, reward=noisy() * 0.1 + share_of(x, 60)),
    {
        5: "0x40 1x18 0x2 from 0",
        6: "0x40 1x18 0x2 from 0",
        7: "0x40 1x16 0x4 from 0",
        8: "0x40 1x16 0x4 from 0",
        9: "0x40 1x14 0x6 from 0",
    },
)
ladder(
    "reward_flat",
    lambda x: run(every=2, reward=noisy() * 0.1 - share_of(x, 60)),
    {
        5: "0x40 1x19 0x1 from 0",
        6: "0x40 1x17 0x3 from 0",
        7: "0x40 1x17 0x3 from 0",
        8: "0x40 1x15 0x5 from 0",
        9: "0x40 1x15 0x5 from 0",
    },
)
ladder(
    "reward_flat",
    lambda x: run(every=2, reward=[0] * 5 + [*noisy(55) + x]),
    {2.361: "0x45 1x15 from 0", 2.362: "0x45 1x14 0x1 from 0"},
)
ladder(
    "reward_flat",
    lambda x: run(every=10, reward=FLAT, truncated=x),
    {0.2499: "0x40 1x20 from 0", 0.25: "0x40 2x20 from 0"},
)
ladder(
    "reward_flat",
    lambda x: run(every=10, reward=FLAT, dead_groups=share_of(x)),
    {12: "0x40 1x20 from 0", 13: "0x40 2x20 from 0"},
)
ladder(
    "reward_flat",
    lambda x: run(every=x, reward=FLAT, truncated=0.5),
    {5: "0x40 1x20 from 0", 6: "0x40 1x10 2x10 from 0", 7: "0x40 1x3 2x17 from 0"},
)
ladder("reward_falling", lambda x: run(reward=zigzag(0.5) - line(0, x)), {0.7371: "0x57 3x2 0x1", 0.7372: "0x57 3x3"})
ladder(
    "reward_falling", lambda x: run(reward=noisy() - line(0, x)), {0.9889: "0x51 3x4 0x5", 0.989: "0x51 3x4 0x4 3x1"}
)
ladder("reward_falling", lambda x: run(reward=line(1, 0)), {0: "0x25 3x35 from 0"})
ladder("reward_falling", lambda x: run(reward=[0] * 10 + [1] * 20 + [x] * 30), {0.4: "0x60", 0.39: "0x58 3x2"})
ladder(
    "reward_falling",
    lambda x: run(rows=150, reward=then(0, *[1] * x, 0.1, at=10, rows=150)),
    {60: "0x95 3x55 from 19", 90: "0x132 3x18 from 19", 100: "0x144 3x6 from 19", 105: "0x150"},
)
ladder(
    "reward_falling",
    lambda x: run(reward=np.r_[np.zeros(10), np.ones(20), np.zeros(30)] + zigzag(x)),
    {0.2603: "0x59 3x1", 0.2604: "0x60"},
)
ladder(
    "reward_falling",
    lambda x: run(reward=np.r_[np.zeros(10), np.ones(20), np.full(30, 0.38)] + zigzag(x)),
    {0.2021: "0x58 3x2", 0.2022: "0x60"},
)
ladder("reward_saturated", lambda x: run(reward=[0] * 5 + [100] + [x] * 54), {95: "0x60", 95.1: "0x44 1x16"})
ladder(
    "reward_saturated", lambda x: run(reward=[0] * 5 + [1] * 55 + zigzag(x)), {0.04999: "0x44 1x16", 0.05001: "0x60"}
)
ladder(
    "reward_saturated",
    lambda x: run(reward=[0] * 5 + [1] * 55 + 0.02 * noisy() * x),
    {1.146: "0x44 1x11 0x1 1x4", 1.147: "0x44 1x11 0x1 1x3 0x1"},
)
ladder(
    "reward_saturated", lambda x: run(reward=[0] * 5 + [1 - x] * 25 + [1] * 30), {0.03999: "0x59 1x1", 0.04001: "0x60"}
)


def gamed(*values: float, every: int = 6, answers: float | None = None, **signals: Any) -> Case:
    """Return a case with a reward that rises, and evaluations."""
    metric = "validation" if answers is None else "validation/score/mean"
    given = {"reward": RISING, "evaluated": answers, **signals}
    return run(validation=evaluated(*values, every=every, metric=metric), **given)


ladder(
    "proxy_gold_gap", lambda x: gamed(0.02, 0.12, 0.18, 0.31, x, answers=256), {0.131: "0x4 3x1 from 3", 0.1311: "0x5"}
)
ladder("proxy_gold_gap", lambda x: gamed(0.02, 0.12, 0.18, 0.31, x, every=12), {0.01: "0x5"})
ladder(
    "proxy_gold_gap",
    lambda x: gamed(0.1, 0.5, 0.1, 0.1, every=x, answers=256),
    {4: "0x4", 5: "0x3 3x1 from 1", 6: "0x3 3x1 from 1"},
)
ladder(
    "proxy_gold_gap",
    lambda x: run(reward="rise", evaluated=256, validation=evaluated(0.02, 0.12, 0.18, 0.31, x)),
    {0.08: "0x5"},
)
ladder("proxy_gold_gap", lambda x: gamed(0.1, 0.5, 0.1, every=x, answers=256), {18: "no_validation"})
ladder("proxy_gold_gap", lambda x: gamed(0.1, 0.5, 0.1, 1.01, every=12, answers=x), {256: "0x4"})
ladder(
    "proxy_gold_gap",
    lambda x: gamed(0, 2.5, 5, 7.5, 10, 10, x, x, x, x),
    {7: "0x10", 6.9: "0x8 2x2 from 4", 5: "0x8 2x2 from 4", 4.9: "0x8 3x2 from 4"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(0, 0.5, 1, 1, 1, 1, *[0.4] * x),
    {2: "0x8", 3: "0x8 3x1 from 2", 4: "0x8 3x2 from 2"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(*(np.array([0, 0.4, 0.8, 1, 1, 1, 0.6, 0.6, 0.6, 0.6]) + zigzag(x, 10))),
    {0.03605: "0x9 2x1 from 4", 0.03606: "0x10"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(*(1 - line(0, 1, 10) * x + 0.3 * noisy(10))),
    {0.5529: "0x10", 0.553: "0x9 3x1 from 1"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(*(1 - line(0, 1, 10) * x + zigzag(0.5, 10))),
    {1.59: "0x10", 1.591: "0x8 3x2 from 0"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(0, 0.5, 1, 1, 1, 1, *[0.4] * 4, reward=noisy() + line(0, x)),
    {1.946: "0x10", 1.947: "0x9 3x1 from 2"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(0, 0.5, 1, 1, 1, 1, *[0.4] * 4, reward=zigzag(0.5) + line(0, x)),
    {0.819: "0x10", 0.8191: "0x9 3x1 from 2"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(0, 0.5, 1, 1, 1, 1, *[0.4] * 4, reward=[*line(0, 1, 30), *line(1, 1 + x, 30)]),
    {0.1: "0x8 3x2 from 2", -0.1: "0x8 3x2 from 2"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(0, 0.5, 1, 1, 1, 1, *[0.4] * 4, reward=[*line(0, 9, 30), *noisy(30) + line(9, 9 - x, 30)]),
    {3.79: "0x8 3x2 from 2", 3.791: "0x8 3x1 0x1 from 2"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(0, 0.5, 1, 1, 1, 1, *[0.4] * 4, trained_reward=x),
    {0: "0x10", "rise": "0x8 3x2 from 2"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(0, *x, 1, 1, 1, *[0.4] * 4),
    {(3, 0.5): "0x10", (0.5, 1.1): "0x8 3x2 from 2", (0.5, 2.1): "0x10"},
)
ladder(
    "component_tradeoff",
    lambda x: run(reward=RISING, component={"a": 0, "b": noisy() - line(0, x)}),
    {0.9889: "0x60", 0.989: "0x59 2x1"},
)
ladder(
    "component_tradeoff",
    lambda x: run(reward=RISING, component={"a": 0, "b": zigzag(0.5) - line(0, x)}),
    {0.7371: "0x57 2x2 0x1", 0.7372: "0x57 2x3"},
)
ladder(
    "component_tradeoff",
    lambda x: run(reward=noisy() + line(0, x), component={"a": 0, "b": -RISING}),
    {1.607: "0x57 2x2 0x1", 1.608: "0x57 2x3"},
)
ladder(
    "component_tradeoff",
    lambda x: run(reward=zigzag(0.5) + line(0, x), component={"a": 0, "b": -RISING}),
    {0.7371: "0x60", 0.7372: "0x59 2x1"},
)
ladder(
    "component_tradeoff",
    lambda x: run(reward=RISING, component=dict.fromkeys(x, -RISING)),
    {"a": "one_component", "ab": "0x40 2x20"},
)


def formatted(main: Any, reward: Any = RISING, every: int = 4, deviation: float = 1.0) -> Case:
    """Return a case with two components, of which the format rises."""
    parts, deviations = {"answer": main, "format": RISING}, {"answer": deviation, "format": 0.5}
    return run(every=every, reward=reward, component=parts, component_std=deviations)


ladder(
    "format_only_gain", lambda x: formatted(FLAT, every=x), {3: "0x60", 4: "0x50 2x10 from 0", 6: "0x40 2x20 from 0"}
)
ladder(
    "format_only_gain",
    lambda x: formatted(noisy() + line(0, x)),
    {0.9141: "0x50 2x7 0x2 2x1 from 0", 0.9142: "0x50 2x7 0x3 from 0"},
)
ladder(
    "format_only_gain",
    lambda x: formatted(noisy() * 0.1 + share_of(x, 60)),
    {2: "0x50 2x10 from 0", 3: "0x50 2x9 0x1 from 0", 4: "0x50 2x9 0x1 from 0", 5: "0x50 2x7 0x3 from 0"},
)
ladder("format_only_gain", lambda x: formatted(FLAT, noisy() + line(0, x)), {1.607: "0x57 2x2 0x1", 1.608: "0x57 2x3"})
ladder("format_only_gain", lambda x: formatted(FLAT, zigzag(0.5) + line(0, x)), {0.7371: "0x60", 0.7372: "0x59 2x1"})
ladder("format_only_gain", lambda x: formatted(FLAT, deviation=x), {0.49: "0x60", 0.51: "0x50 2x10 from 0"})
ladder(
    "format_only_gain",
    lambda x: run(every=4, reward=RISING, component={"a": zigzag(x), "b": RISING}),
    {0.49: "0x60", 0.51: "0x50 2x10 from 0"},
)
ladder(
    "format_only_gain",
    lambda x: run(every=4, reward=RISING, component=dict.fromkeys(x, FLAT)),
    {"a": "one_component", "ab": "0x50 2x10 from 0"},
)
ladder("val_train_gap", lambda x: gamed(*[0.5] * x), {5: "no_validation", 6: "0x5 2x1", 9: "0x5 2x4 from 0"})
ladder(
    "val_train_gap",
    lambda x: gamed(*line(0.1, 0.1 + x, 10)),
    {0: "0x5 2x5 from 0", 0.2: "0x5 1x5 from 0", 0.7: "0x7 1x3 from 0"},
)
ladder(
    "val_train_gap",
    lambda x: gamed(*zigzag(0.1, 10) + 0.2, reward=line(0.2, 0.2 + x)),
    {0.3933: "0x10", 0.3934: "0x9 2x1"},
)
ladder("val_train_gap", lambda x: gamed(*[0.2] * 10, reward=line(0.2, 0.2 + x)), {0.1404: "0x10", 0.1405: "0x9 1x1"})
ladder("val_train_gap", lambda x: gamed(*(0.4 + noisy(10) * x)), {0.04604: "0x5 2x5 from 0", 0.04605: "0x6 2x4 from 0"})
ladder("val_train_gap", lambda x: gamed(*(0.4 + noisy(10) * 0.02 - line(0, x, 10))), {0.2: "0x5 2x5 from 0"})
ladder(
    "val_train_gap",
    lambda x: gamed(*(0.4 + noisy(10) * 0.02 + line(0, x, 10))),
    {0.02582: "0x5 2x5 from 0", 0.02583: "0x5 2x4 1x1 from 0"},
)
ladder(
    "val_train_gap",
    lambda x: gamed(*[0.2] * 9, x),
    {1: "0x5 2x5 from 0", 1.01: "other_scale", 0: "0x5 2x5 from 0", -0.01: "other_scale"},
)
ladder("val_train_gap", lambda x: gamed(*[0.2] * 10, reward=line(0, x)), {1: "0x5 2x5 from 0", 1.01: "other_scale"})
ladder(
    "reward_flat",
    lambda x: run(every=2, reward=[0] * 3 + [*noisy(57) + x]),
    {2.516: "0x43 1x14 0x1 1x2 from 0", 2.517: "0x43 1x14 0x1 1x1 0x1 from 0"},
)
ladder(
    "reward_flat",
    lambda x: run(every=2, reward=noisy() * 0.1 + line(0, 0.1) - share_of(6, 60) * x),
    {1.342: "0x40 1x20 from 0", 1.343: "0x40 1x19 0x1 from 0"},
)
ladder(
    "reward_falling", lambda x: run(rows=32, reward=noisy(32) - line(0, x, 32)), {0.7963: "0x32", 0.7964: "0x31 3x1"}
)
ladder("reward_falling", lambda x: run(reward=zigzag(x) + line(1, 0)), {0.2: "0x30 3x30 from 0"})
ladder(
    "reward_saturated",
    lambda x: run(rows=90, reward=[0] * 5 + [*zigzag(x, 25) + 0.5] + [1] * 60),
    {0.2601: "0x68 1x22", 0.2602: "0x90"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(0, 0.5, 0.5, 0.5, x, 0.5, 0.5, 0.5, 0.5, 0, 0, 0, 0, every=4),
    {1: "0x11 3x2 from 1", 1.01: "0x11 3x2 from 4"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(0, 0.5, 0.6, 0.7, x, 0.7, 0.1, 0.1, 0.1, 0.1),
    {0.6: "0x8 3x2 from 3", 0.8: "0x8 3x2 from 4"},
)
ladder(
    "component_tradeoff",
    lambda x: run(rows=42, reward="rise", component={"a": 0, "b": noisy(42, 2) - line(0, x, 42)}),
    {1.957: "0x42", 1.958: "0x40 2x1 0x1"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(0, 0.5, 1, 1, 1, 1, *[0.4] * 4, every=3, reward=noisy() + line(0, x)),
    {6.764: "0x10", 6.765: "0x8 3x2 from 2"},
)
ladder(
    "proxy_gold_gap",
    lambda x: gamed(*(noisy(9, 7) - line(0, x, 9))),
    {1.885: "0x6 3x2 0x1 from 1", 1.886: "0x6 3x3 from 1"},
)
ladder(
    "proxy_gold_gap", lambda x: gamed(*(noisy(7, 2) - line(0, x, 7)), every=8), {4.775: "0x7", 4.776: "0x6 3x1 from 0"}
)
ladder(
    "component_tradeoff",
    lambda x: run(rows=43, reward="rise", component={"a": 0, "b": noisy(43) - line(0, x, 43)}),
    {1.244: "0x43", 1.245: "0x41 2x2"},
)
ladder(
    "format_only_gain",
    lambda x: formatted(noisy() + line(0, x) + 99 * (np.arange(ROWS) == 10)),
    {1.18: "0x50 2x7 0x2 2x1 from 0", 1.181: "0x50 2x7 0x3 from 0"},
)
ladder(
    "val_train_gap",
    lambda x: gamed(*[0.2] * 10, reward=line(0.2, 0.2 + x)),
    {0.2809: "0x6 1x4 from 0", 0.281: "0x6 1x3 2x1 from 0"},
)
ladder(
    "val_train_gap", lambda x: gamed(*[0.2] * 10, reward=0.2 + x * line(0, 1) ** 2), {0.1506: "0x10", 0.1507: "0x9 1x1"}
)
ladder(
    "val_train_gap",
    lambda x: gamed(*(0.2 + noisy(6) * 0.03 + line(0, x, 6)), every=9),
    {0.1593: "0x5 2x1", 0.1594: "0x5 1x1"},
)
ladder("val_train_gap", lambda x: gamed(*(0.2 + noisy(9, 4) * x)), {0.1218: "0x7 2x2 from 0", 0.1219: "other_scale"})


# -- the machine ---------------------------------------------------------------------------------------------------

ladder("crash_loop", lambda x: run(loss=1, attempts=((1, 5),) * x), {2: "0x60", 3: "0x59 3x1"})
ladder("crash_loop", lambda x: run(loss=1, attempts=((1, x),) * 3), {5: "0x59 3x1", 6: "0x60"})
ladder("crash_loop", lambda x: run(loss=1, attempts=((1, 5),) * 3 + ((1, x),)), {5: "0x59 3x1", 6: "0x60"})
ladder(
    "restart",
    lambda x: run(loss=1, attempts=((1, 50), (x, 100))),
    {51: "0x59 1x1 from 0", 50: "0x59 1x1 from 0", 26: "0x59 1x1 from 0", 25: "0x59 2x1 from 0"},
)
ladder("restart", lambda x: run(loss=1, attempts=((1, 50),) * x), {1: "0x60", 2: "0x59 2x1 from 0"})
ladder(
    "restart",
    lambda x: run(loss=1, attempts=((1, 20), (x, 60), (61, 80))),
    {30: "0x59 1x1 from 0", 4: "0x59 1x1 from 0", 1: "0x59 1x1 from 0"},
)
ladder("slowdown", lambda x: run(step_time=then(10, x, at=30)), {15: "0x60", 15.1: "0x43 2x17"})
ladder(
    "slowdown", lambda x: run(step_time=[99] * 3 + [10] * x + [16] * (57 - x)), {10: "0x60", 9: "0x60", 11: "0x43 1x17"}
)
ladder("slowdown", lambda x: run(step_time=line(10, 30), length=x), {0: "0x60", "rise": "0x60", 7: "0x44 2x16"})
ladder(
    "slowdown",
    lambda x: run(step_time=then(10, 16, at=30), length=then(100, x, at=30)),
    {106: "0x43 2x17", 107: "0x60"},
)
ladder(
    "slowdown",
    lambda x: run(step_time=noisy(60, 2) * x + then(10, 20, at=30)),
    {10.43: "0x43 1x14 2x3", 10.44: "0x43 1x14 2x2 1x1"},
)
ladder("slowdown", lambda x: run(step_time=zigzag(x) + then(10, 20, at=30)), {4.999: "0x43 2x17", 5.001: "0x48 1x12"})


def phases(first: float, second: float, third: float = 1.0) -> Case:
    """Return a case with steps that become slower, in three phases: by two powers, and not at all."""
    growth = line(1, 3)
    return run(step_time=20 * growth, phase={"a": 10 * growth**first, "b": 10 * growth**second, "c": third})


ladder("slowdown", lambda x: phases(1.0, x), {0.3926: "0x44 2x16", 0.3927: "0x44 2x15 1x1"})
ladder("slowdown", lambda x: phases(2.0, x), {0.9626: "0x44 1x15 2x1", 0.9627: "0x44 1x16"})
ladder("slowdown", lambda x: phases(1.0, 1.0, x), {1.372: "0x44 1x16", 1.373: "0x44 2x16"})
ladder("slowdown", lambda x: run(step_time=20 * line(1, 3), phase={"a": 18 * line(1, 3)}), {0: "0x44 2x16"})
ladder(
    "stall",
    lambda x: run(step_time=then(10, x, 10)),
    {200: "0x60", 201: "0x40 1x1 0x19", 600: "0x40 1x1 0x19", 601: "0x40 2x1 0x19"},
)
ladder("stall", lambda x: run(step_time=then(10, 700, 10, at=x)), {9: "0x60", 10: "0x10 2x1 0x49"})
ladder(
    "stall",
    lambda x: run(rows=120, step_time=[1] * 25 + [100] * x + [2100] * (95 - x)),
    {24: "0x25 1x24 2x25 0x46", 25: "0x25 1x25 2x25 0x45", 26: "0x25 1x25 0x1 2x25 0x44"},
)
ladder(
    "stalled",
    lambda x: run(loss=1, silence=x, pace=10),
    {600: "0x60", 601: "0x59 2x1", 1800: "0x59 2x1", 1801: "0x59 3x1"},
)
ladder(
    "stalled",
    lambda x: run(loss=1, silence=x, pace=200),
    {1000: "0x60", 1001: "0x59 2x1", 4000: "0x59 2x1", 4001: "0x59 3x1"},
)
ladder("stalled", lambda x: run(loss=1, silence=999, pace=x), {0: "no_pace", 1: "0x59 2x1"})
ladder("stalled", lambda x: run(loss=1, silence=x, pace=1), {None: "ended"})


def idle(seconds: Any, work: Any = 50) -> Case:
    """Return a case with steps of 100 seconds, of which a phase without tokens takes some."""
    return run(step_time=100, phase={"train": work, "save": 5, "idle": seconds}, per_token={"train": 1})


ladder(
    "phase_imbalance",
    lambda x: idle(x),
    {10: "0x60", 10.1: "0x9 1x51 from 0", 25: "0x9 1x51 from 0", 25.1: "0x9 2x51 from 0"},
)
ladder("phase_imbalance", lambda x: idle(30, x), {75: "0x9 2x51 from 0", 75.1: "0x60"})
ladder(
    "phase_imbalance",
    lambda x: idle(then(30, 1, at=x)),
    {5: "0x9 1x1 0x50", 9: "0x9 2x4 1x1 0x46 from 0", 10: "0x9 2x5 1x1 0x45 from 0", 12: "0x9 2x7 1x1 0x43 from 0"},
)
ladder("phase_imbalance", lambda x: idle(30, then(90, 60, at=x)), {10: "0x15 2x45 from 6", 54: "0x59 2x1", 55: "0x60"})
ladder(
    "phase_imbalance", lambda x: run(step_time=x, phase={"train": 0, "idle": 0}, per_token={"train": 1}), {0: "0x60"}
)
ladder(
    "phase_imbalance",
    lambda x: run(step_time=100, phase={"train": 50}, per_token=dict.fromkeys(x, 1)),
    {(): "no_work", ("train",): "no_idle"},
)
ladder(
    "stragglers",
    lambda x: run(slowest_rank={"a": x}, mean_rank={"a": 10}),
    {13: "0x60", 13.1: "1x60", 15: "1x60", 15.1: "2x60"},
)
ladder(
    "stragglers", lambda x: run(slowest_rank={"a": 20, "b": x}, mean_rank={"a": 10, "b": x}), {9: "2x60", 11: "0x60"}
)
ladder(
    "stragglers", lambda x: run(slowest_rank={"a": then(10, 20)}, mean_rank={"a": x}), {0: "0x60", 10: "0x44 1x1 2x15"}
)
ladder("memory_leak", lambda x: run(rss={"a": line(10, x)}), {30.09: "0x55", 30.1: "0x14 2x41 from 5"})
ladder(
    "memory_leak", lambda x: run(rss={"a": then(10, *line(10, x, 13), at=20)}), {13.29: "0x55", 13.31: "0x28 2x1 0x26"}
)
ladder(
    "memory_leak",
    lambda x: run(rss={"a": then(10, *(10 + 6 * line(0, 1, 13) ** x), at=20)}),
    {0.8824: "0x26 2x4 0x24 2x1", 0.8825: "0x26 2x4 0x25", 1.0: "0x27 2x3 0x25", 1.001: "0x27 2x4 0x24"},
)
ladder(
    "memory_leak",
    lambda x: run(rows=x, rss={"a": line(10, 90, x)}),
    {5: "not_logged", 6: "0x1", 17: "0x12", 18: "0x12 2x1", 20: "0x12 2x3"},
)
ladder("memory_leak", lambda x: run(rows=120, host_memory=line(100, x, 120)), {112.7: "0x115", 112.8: "0x114 2x1"})
ladder("memory_leak", lambda x: run(rows=120, host_memory=line(5, x, 120)), {6.252: "0x115", 6.253: "0x114 2x1"})
ladder("memory_leak", lambda x: run(rows=120, host_memory=line(0.1, x, 120)), {0.2478: "0x115", 0.2479: "0x114 2x1"})
ladder(
    "memory_leak",
    lambda x: run(rows=100, host_memory=then(100, *line(100, 200, x), at=50 - x // 2, rows=100)),
    {20: "0x95", 30: "0x94 2x1", 40: "0x90 2x5 from 28", 50: "0x84 2x11 from 24"},
)
ladder(
    "memory_leak",
    lambda x: run(rows=120, host_memory=line(100, 200, 120) + noisy(120) * x),
    {30.32: "0x110 2x5 from 60", 30.33: "0x115"},
)
ladder(
    "memory_leak",
    lambda x: run(rows=120, host_memory=line(100, 200, 120) + zigzag(x, 120)),
    {24.87: "0x110 2x5 from 9", 24.88: "0x115"},
)
ladder(
    "memory_leak",
    lambda x: run(rows=120, host_memory=[50] * x + [*line(100, 200, 120 - x)]),
    {
        0: "0x58 2x1 0x1 2x55 from 10",
        5: "0x58 2x57 from 9",
        6: "0x58 2x1 0x1 2x55 from 9",
        15: "0x40 2x75 from 11",
        16: "0x40 2x75 from 12",
    },
)
ladder("memory_leak", lambda x: run(host_memory=1, rss={"a": 1, "b": line(1, x)}), {1: "0x55", 9: "0x12 2x43 from 4"})
ladder("near_oom", lambda x: run(device_memory={"a": 0.5, "b": then(0.9, x)}), {0.95: "0x60", 0.951: "0x40 1x3 2x17"})
ladder(
    "near_oom",
    lambda x: run(device_memory={"a": 0.96 + zigzag(0.01) + line(0, x)}),
    {0.007371: "1x60", 0.007372: "1x59 2x1"},
)
ladder(
    "near_oom",
    lambda x: run(device_memory={"a": 0.96 + noisy() * 0.01 + line(0, x)}),
    {0.01286: "1x57 2x2 1x1", 0.01287: "1x57 2x3"},
)
ladder("near_oom", lambda x: run(device_memory={"a": then(0.9, 0.99, 0.9, at=x)}), {40: "0x40 1x10 0x10"})


def skipping(gap: int, usual: int = 1) -> Case:
    """Return a case that lacks steps once."""
    steps = 1 + usual * np.arange(ROWS)
    steps[30:] += gap - usual
    return replace(run(), tracks={"loss": replace(track("loss", series(1, ROWS)), steps=steps)})


ladder("log_gap", lambda x: skipping(x), {10: "0x60", 11: "0x30 1x1 0x29"})
ladder("log_gap", lambda x: skipping(x, usual=4), {20: "0x60", 21: "0x30 1x1 0x29"})
ladder("dead_sensor", lambda x: run(entropy=0, reward=x), {0: "0x60", "rise": "0x59 1x1 from 0"})
ladder(
    "dead_sensor",
    lambda x: run(**{x: 0}, reward=RISING),
    {"kl": "0x59 1x1 from 0", "step_kl": "0x59 1x1 from 0", "ratio": "0x59 1x1 from 0", "clipped": "0x60"},
)
ladder("dead_sensor", lambda x: run(rows=x, kl=0, reward="rise"), {19: "0x19", 20: "0x19 1x1 from 0"})
ladder(
    "phase_imbalance",
    lambda x: run(step_time=x, phase={"train": 0.2, "idle": 0.5}, per_token={"train": 1}),
    {0.8: "0x9 2x51 from 0"},
)
ladder("stragglers", lambda x: run(slowest_rank={"a": x}, mean_rank={"a": 0.5}), {0.9: "2x60"})
