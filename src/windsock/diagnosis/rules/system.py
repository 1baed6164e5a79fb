"""Rules on the machine and the process: restarts, stalls, slowing down, memory, and sensors that do not move."""

from __future__ import annotations

import numpy as np

from windsock.diagnosis.case import Case
from windsock.diagnosis.rule import Reading, Unmeasured, graded, rule, unmeasured
from windsock.diagnosis.rules.shared import after, full_window, is_dead
from windsock.diagnosis.tracks import Track

FIRST_STEPS = 3  # that compile and load
SHORT_ATTEMPT = 5  # steps
MIN_LEAK = 1.0  # GB
MIN_LEAK_ROWS = 41


def _any(case: Case) -> Track | None:
    return max(case.tracks.values(), key=len, default=None)


@rule("crash_loop", persist=1, explains=("restart",), rows=1)
def crash_loop(case: Case) -> Reading | Unmeasured | None:
    """The training dies after a few steps, again and again."""
    track = _any(case)
    if track is None:
        return None
    short = sum(attempt.rows <= SHORT_ATTEMPT for attempt in case.attempts)
    is_loop = short >= 3 and case.attempts[-1].rows <= SHORT_ATTEMPT
    levels = graded(len(track), critical=after(len(track), len(track) - 1) & is_loop)
    return Reading(track, levels, lambda spell: {"count": len(case.attempts), "steps": SHORT_ATTEMPT})


@rule("restart", persist=1, rows=1)
def restart(case: Case) -> Reading | Unmeasured | None:
    """The training was started again and repeats steps."""
    track = _any(case)
    if track is None:
        return None
    pairs = list(zip(case.attempts, case.attempts[1:], strict=False))
    repeated = sum(max(0, old.last_step - new.first_step + 1) for old, new in pairs)
    level = "warning" if repeated > 0.2 * max(1, sum(attempt.rows for attempt in case.attempts)) else "info"
    levels = graded(len(track), **{level: after(len(track), len(track) - 1) & bool(pairs)})
    return Reading(track, levels, lambda spell: {"count": len(pairs), "repeated": repeated}, lambda spell: 0)


@rule("slowdown", "step_time", rows=2 * 20 + FIRST_STEPS)
def slowdown(case: Case) -> Reading | Unmeasured:
    """Steps take longer than before, and not because answers are longer."""
    times = case.get("step_time")
    if times is None:
        return unmeasured("not_logged")
    lengths = case.at("length", times.steps)
    usual = float(np.nanmedian(lengths)) if np.isfinite(lengths).any() else 1.0
    per = times.derived("per token", times.steps, times.finite / np.where(lengths > 0, lengths, usual))
    start = usual * per.derived("start", per.steps[FIRST_STEPS:], per.finite[FIRST_STEPS:]).first(20)
    now = usual * full_window(per.median(20), 20)
    slow = (now > 1.5 * start) & after(len(per), 2 * 20 + FIRST_STEPS)
    trend = (times.trend.chance < 1e-3) & (times.trend.effect > 1.0)
    return Reading(
        times,
        graded(len(times), info=slow, warning=slow & trend),
        lambda spell: {"name": times.name, "start": start, "now": float(np.nanmax(now[spell.rows]))},
        beside=(case.get("throughput"),),
    )


@rule("memory_leak", "host_memory", "rss", rows=MIN_LEAK_ROWS)
def memory_leak(case: Case) -> Reading | Unmeasured:
    """Memory grows steadily."""
    tracks = [track for track in (case.get("host_memory"), *case.families.get("rss", ())) if track is not None]
    if not tracks:
        return unmeasured("not_logged")
    longest = max(len(track) for track in tracks)
    if longest < MIN_LEAK_ROWS:
        return unmeasured("early", count=longest, needed=MIN_LEAK_ROWS)
    readings = [_leak(track) for track in tracks if len(track) >= MIN_LEAK_ROWS]
    return max(readings, key=lambda reading: int(reading.levels.max()))


def _leak(memory: Track) -> Reading:
    """Judge the growth after the first rows, in which memory is filled once."""
    late = memory.derived("late", memory.steps[10:], memory.values[10:])
    low, start = late.median(20), late.first(10)
    growth = low / start - 1
    # A small process grows by a part of itself without being a leak.
    large = ((growth > 1.0) | ((growth > 0.1) & (low - start > MIN_LEAK))) & after(len(late), 30)
    if not large.any():
        return Reading(late, np.zeros(len(late), np.int8))
    steady = (late.trend.chance < 1e-6) & (late.trend.effect > 2.5)
    rate = (low - start) / np.maximum(late.steps - late.steps[0], 1)
    return Reading(
        late,
        graded(len(late), warning=steady & large),
        lambda spell: {
            "name": memory.name,
            "growth": f"{100 * float(np.nanmax(growth[spell.rows])):.0f} %",
            "rate": float(100 * rate[spell.last]),
        },
        lambda spell: 0,
    )


@rule("dead_sensor", persist=1)
def dead_sensor(case: Case) -> Reading | Unmeasured | None:
    """A value that should move never does."""
    dead = [case.tracks[key] for key in ("entropy", "kl", "step_kl", "ratio") if key in case.tracks]
    dead = [track for track in dead if is_dead(case, track)]
    track = _any(case) if not dead else dead[0]
    if track is None:
        return None
    levels = graded(len(track), info=after(len(track), len(track) - 1) & bool(dead))
    names = ", ".join(one.name for one in dead)
    value = float(dead[0].values[0]) if dead else 0.0
    return Reading(track, levels, lambda spell: {"names": names, "value": value}, lambda spell: 0)
