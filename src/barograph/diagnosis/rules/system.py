"""Rules on the machine and the process: restarts, stalls, phases, ranks, memory, gaps and dead sensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from barograph.base.arrays import Floats
from barograph.catalogue.spec import Text
from barograph.diagnosis.rule import (
    NOTHING,
    Case,
    Flags,
    RuleReading,
    UnmeasuredError,
    after,
    began,
    full_window,
    graded,
    is_dead,
    percent,
    rule,
    values_at,
)
from barograph.metrics.tracks import MAX_WINDOW, Track

FIRST_STEPS = 3  # that compile and load
SHORT_ATTEMPT = 5  # steps
MIN_LEAK = 1.0  # GB
SETTLED = 5  # rows after which a process has loaded what it needs
HANG = 600.0  # seconds: collectives time out after ten minutes or later


def _any(case: Case) -> Track:
    return max(case.tracks.values(), key=len)


@rule("crash_loop", persist=1, rows=1, explains=("restart", "log_gap"))
def crash_loop(case: Case) -> RuleReading:
    """The training dies after a few steps, again and again."""
    track = _any(case)
    short = sum(attempt.rows <= SHORT_ATTEMPT for attempt in case.attempts)
    is_loop = short >= 3 and case.attempts[-1].rows <= SHORT_ATTEMPT
    levels = graded(len(track), critical=after(len(track), len(track) - 1) & is_loop)
    return RuleReading(track, levels, lambda spell: {"count": len(case.attempts), "steps": SHORT_ATTEMPT})


@rule("restart", persist=1, rows=1, explains=("log_gap",))
def restart(case: Case) -> RuleReading:
    """The training was started again and repeats steps."""
    track = _any(case)
    pairs = list(zip(case.attempts, case.attempts[1:], strict=False))
    repeated = sum(max(0, old.last_step - new.first_step + 1) for old, new in pairs)
    level = "warning" if repeated > 0.2 * max(1, sum(attempt.rows for attempt in case.attempts)) else "info"
    levels = graded(len(track), **{level: after(len(track), len(track) - 1) & bool(pairs)})
    return RuleReading(track, levels, lambda spell: {"count": len(pairs), "repeated": repeated}, lambda spell: 0)


@rule("slowdown", "step_time", rows=2 * 20 + FIRST_STEPS)
def slowdown(case: Case) -> RuleReading:
    """Steps take longer than before, and not because answers are longer."""
    times = case.need("step_time")
    lengths = case.at("length", times.steps)
    usual = float(np.nanmedian(lengths)) if np.isfinite(lengths).any() else 1.0
    per = times.derived("per token", times.steps, times.finite / np.where(lengths > 0, lengths, usual))
    start = usual * per.derived("start", per.steps[FIRST_STEPS:], per.finite[FIRST_STEPS:]).first(20)
    now = usual * full_window(per.median(20), 20)
    slow = (now > 1.5 * start) & after(len(per), 2 * 20 + FIRST_STEPS)
    trend = (times.trend.chance < 1e-3) & (times.trend.effect > 1.0)
    return RuleReading(
        times,
        graded(len(times), info=slow, warning=slow & trend & ~_all_phases_slow(case, times)),
        lambda spell: {
            "name": times.name,
            "start": start,
            "now": float(np.nanmax(now[spell.rows])),
            "phase": _grown_phase(case, int(times.steps[spell.last])),
        },
        beside=(case.get("throughput"),),
    )


def _all_phases_slow(case: Case, times: Track) -> Flags:
    """Return where the phases that make up the step are slower by about the same: then the machine is, not the run."""
    growth = []
    for track in case.family("phase", "phase").values():
        start = track.first(FIRST_STEPS + 20)
        if start > 0.05 * times.first(FIRST_STEPS + 20):
            growth.append(values_at(track.steps, track.median(20) / start, times.steps))
    if len(growth) < 2:
        return np.zeros(len(times), bool)
    least = np.min(growth, axis=0)
    found: Flags = (least > 1.3) & (np.max(growth, axis=0) < 2 * least)
    return found


def _grown_phase(case: Case, step: int) -> Text:
    """Return the phase whose time has grown most, as a part of a sentence; nothing where phases are not timed."""
    grown = {}
    for name, track in case.family("phase", "phase").items():
        upto = track.finite[: int(np.searchsorted(track.steps, step, "right"))]
        if len(upto) > 2 * 20:
            grown[name] = float(np.nanmedian(upto[-20:]) - np.nanmedian(upto[FIRST_STEPS : FIRST_STEPS + 20]))
    most = max(grown, key=lambda name: grown[name], default=None)
    if most is None or grown[most] <= 0:
        return NOTHING
    return Text(
        f" Most of it is {most}: {grown[most]:.3g} seconds more.",
        f"其中增加最多的是 {most}：多 {grown[most]:.3g} 秒。",
    )


@rule("stall", "step_time", persist=1, rows=10)
def stall(case: Case) -> RuleReading:
    """One step takes many times as long as the others."""
    times = case.need("step_time")
    usual = np.concatenate([[np.nan], times.median(MAX_WINDOW)[:-1]])
    long = (times.finite > 20 * usual) & after(len(times), max(10, FIRST_STEPS))
    return RuleReading(
        times,
        graded(len(times), info=long, warning=long & (times.finite > HANG)),
        lambda spell: {
            "name": times.name,
            "most": float(np.nanmax(times.finite[spell.rows])),
            "usual": float(usual[spell.first]),
        },
    )


@rule("stalled", persist=1, rows=1)
def stalled(case: Case) -> RuleReading:
    """No row has come for many times the usual time."""
    track = _any(case)
    if case.silence is None or not case.pace > 0:
        raise UnmeasuredError("ended" if case.silence is None else "no_pace")
    last = after(len(track), len(track) - 1)
    warning, critical = max(5 * case.pace, HANG), max(20 * case.pace, 3 * HANG)
    return RuleReading(
        track,
        graded(len(track), warning=last & (case.silence > warning), critical=last & (case.silence > critical)),
        lambda spell: {"minutes": f"{(case.silence or 0) / 60:.0f}", "pace": case.pace},
    )


@rule("phase_imbalance", "phase", "per_token", "step_time")
def phase_imbalance(case: Case) -> RuleReading:
    """A phase that processes no tokens takes a large part of the step."""
    phases, working, step = case.family("phase", "phase"), case.family("per_token", "phase"), case.get("step_time")
    if step is None or not phases:
        raise UnmeasuredError("not_logged")
    if not working:
        raise UnmeasuredError("no_work")
    idle = {name: track for name, track in phases.items() if name not in working}
    work = sum((_seconds(phases[name], step) for name in working if name in phases), np.zeros(len(step)))
    shares = {name: _own_share(track, step, work) for name, track in idle.items()}
    if not shares:
        raise UnmeasuredError("no_idle")
    most = max(shares, key=lambda name: float(np.nan_to_num(shares[name]).max()))
    share = shares[most]
    return RuleReading(
        step,
        graded(len(step), info=share > 0.1, warning=share > 0.25),
        lambda spell: {
            "phase": most,
            "share": percent(float(np.nanmedian(share[spell.rows]))),
            "seconds": float(np.nanmedian(idle[most].finite)),
        },
        lambda spell: max(0, spell.first - 9),
        (idle[most],),
    )


def _seconds(track: Track, step: Track) -> Floats:
    """Return the seconds of a phase at the rows of the step time; 0 where it was not entered."""
    return np.nan_to_num(values_at(track.steps, track.finite, step.steps))


def _own_share(track: Track, step: Track, work: Floats) -> Floats:
    """Return the share of a phase in the last ten steps; NaN where it may contain others: its own is unknown then."""
    seconds = _seconds(track, step)
    apart = step.share(seconds + work <= 1.05 * step.finite, 10) > 0.5
    share = step.replaced(seconds / np.where(step.finite > 0, step.finite, np.nan))
    return np.where(apart, full_window(share.median(10), 10), np.nan)


@rule("stragglers", "slowest_rank", "mean_rank")
def stragglers(case: Case) -> RuleReading:
    """One rank is much slower than the others, so that these wait."""
    slowest, mean = case.family("slowest_rank", "phase"), case.family("mean_rank", "phase")
    both = [phase for phase in slowest if phase in mean]
    if not both:
        raise UnmeasuredError("not_logged")
    heavy = max(both, key=lambda phase: mean[phase].first(len(mean[phase])))
    track, usual = slowest[heavy], values_at(mean[heavy].steps, mean[heavy].finite, slowest[heavy].steps)
    ratio = track.derived("over mean", track.steps, track.finite / np.where(usual > 0, usual, np.nan)).median(10)
    return RuleReading(
        track,
        graded(len(track), info=ratio > 1.3, warning=ratio > 1.5),
        lambda spell: {"phase": heavy, "times": float(np.nanmax(ratio[spell.rows]))},
        beside=(mean[heavy],),
    )


@rule("memory_leak", "host_memory", "rss", explains=("near_oom",), rows=3 * SETTLED + 5)
def memory_leak(case: Case) -> RuleReading:
    """Memory grows steadily."""
    own = [track for track in case.families.get("rss", ()) if len(track) > SETTLED]
    host = case.get("host_memory")
    if own:  # the memory of the machine is that of all its programs
        return _worst([_leak(track, is_own=True) for track in own])
    if host is None:
        raise UnmeasuredError("not_logged")
    return _leak(host, is_own=False)


def _worst(readings: Sequence[RuleReading]) -> RuleReading:
    """Return the reading with the highest level now, else before."""
    return max(readings, key=lambda reading: (int(reading.levels[-10:].max(initial=0)), int(reading.levels.sum())))


def _leak(memory: Track, is_own: bool) -> RuleReading:
    """Judge the growth after the first rows, in which memory is filled once."""
    late = memory.derived("late", memory.steps[SETTLED:], memory.values[SETTLED:])
    low, start = late.median(3), late.first(5)
    growth = low / start - 1
    evenly = _grows_evenly(late, low, start) & is_own
    return RuleReading(
        late,
        graded(len(late), warning=evenly | _has_grown(late)),
        lambda spell: {
            "name": memory.name,
            "growth": f"{100 * float(np.nanmax(growth[spell.rows])):.0f} %",
            "rate": float(100 * _rate(late, low)[spell.last]),
        },
        lambda spell: began(low > 1.05 * start, spell),
    )


def _rate(memory: Track, low: Floats) -> Floats:
    """Return the growth per step since the first row."""
    found: Floats = (low - low[0]) / np.maximum(memory.steps - memory.steps[0], 1)
    return found


def _grows_evenly(memory: Track, low: Floats, start: float) -> Flags:
    """Return where memory grows by at least a third of the start in twelve rows, by about the same in each third.

    What is filled once grows in jumps, or ever more slowly.
    """
    found = np.zeros(len(memory), bool)
    if len(memory) > 12:
        parts = np.stack([low[4:-8] - low[:-12], low[8:-4] - low[4:-8], low[12:] - low[8:-4]])
        total = parts.sum(axis=0)
        found[12:] = (total > 0.33 * start) & (parts.min(axis=0) > 0.2 * total)
    return found


def _has_grown(memory: Track) -> Flags:
    """Return where memory has doubled, or grown by a tenth and a gigabyte, steadily since the first rows."""
    low, start = memory.median(20), memory.derived("base", memory.steps[SETTLED:], memory.values[SETTLED:]).first(10)
    growth = low / start - 1
    # A small process grows by a part of itself without being a leak.
    large = ((growth > 1.0) | ((growth > 0.1) & (low - start > MIN_LEAK))) & after(len(memory), 30 + SETTLED)
    if not large.any():
        return large
    middle = low[np.arange(len(memory)) // 2]
    in_both_halves = np.minimum(low - middle, middle - start) > 0.25 * (low - start)  # one jump is no leak
    return large & in_both_halves & (memory.trend.chance < 1e-6) & (memory.trend.effect > 2.5)


@rule("near_oom", "device_memory")
def near_oom(case: Case) -> RuleReading:
    """Tensors take almost all of a device's memory."""
    tracks = case.families.get("device_memory", ())
    if not tracks:
        raise UnmeasuredError("not_logged")
    track = max(tracks, key=lambda one: float(np.nanmax(one.finite)))
    now = track.largest(10)
    growing = (track.trend.chance < 0.01) & (track.trend.effect > 0.5)
    return RuleReading(
        track,
        graded(len(track), info=now > 0.95, warning=(now > 0.95) & growing),
        lambda spell: {"name": track.name, "share": percent(float(np.nanmax(now[spell.rows])))},
    )


@rule("log_gap", persist=1, rows=20)
def log_gap(case: Case) -> RuleReading:
    """Steps are missing from the log."""
    track = _any(case)
    gaps = np.diff(track.steps, prepend=track.steps[0])
    usual = max(1.0, float(np.median(gaps[1:]))) if len(gaps) > 1 else 1.0
    wide = gaps > max(10.0, 5 * usual)
    return RuleReading(
        track,
        graded(len(track), info=wide),
        lambda spell: {
            "steps": int(gaps[spell.rows].max()),
            "usual": usual,
            "step": int(track.steps[spell.first + int(gaps[spell.rows].argmax())]),
        },
    )


@rule("dead_sensor", persist=1, rows=20)
def dead_sensor(case: Case) -> RuleReading:
    """A value that should move never does."""
    dead = [case.tracks[key] for key in ("entropy", "kl", "step_kl", "ratio") if key in case.tracks]
    dead = [track for track in dead if is_dead(case, track)]
    track = _any(case) if not dead else dead[0]
    levels = graded(len(track), info=after(len(track), len(track) - 1) & bool(dead))
    names = ", ".join(one.name for one in dead)
    value = float(dead[0].values[0]) if dead else 0.0
    return RuleReading(track, levels, lambda spell: {"names": names, "value": value}, lambda spell: 0)
