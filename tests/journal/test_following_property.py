"""A property of views: who follows a run, at whatever moments, has what opening the whole run gives."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

import barograph
from barograph.journal.format.folder import INDEX_FOLDER, RUN_FILE, segments
from barograph.journal.segments import indexed_reader
from forked_processes import in_process, kill_after

MAX_RANKS = 3
MAX_STEPS = 4


@dataclass(frozen=True)
class Process:
    """One start of one rank: what it does in each step, the first of which may repeat those of the start before."""

    role: str
    rank: int | None
    first: int
    steps: tuple[frozenset[int], ...]  # numbers of actions
    logs_late: bool
    killed_after: int | None  # frames


@dataclass(frozen=True)
class Plan:
    """A run, the damage that its files get, and a seed for the moments at which they are read."""

    processes: tuple[Process, ...]  # in the order in which they start; each ends before the next begins
    world_size: int | None
    damage: tuple[tuple[float, float], ...]  # place of a segment, and of a byte in it
    part_bytes: int  # of a segment, that become a part of its side index
    seed: int


def batch(rank: int, step: int, domains: bool) -> barograph.Batch:
    chance = np.random.default_rng([rank, step])
    shape = (2 + rank, 4)
    names = ("log_probs", "old_log_probs", "ref_log_probs", "values", "old_values", "returns", "advantages")
    tokens = {name: -np.abs(chance.normal(size=shape)) for name in names}
    labels = {"domains": [("math", "code", "chat")[(step + n) % 3] for n in range(shape[0])]} if domains else {}
    if not step % 3:
        tokens["returns"][0, 0] = np.nan
    return barograph.Batch(response_mask=np.ones(shape, bool), scores=chance.normal(size=shape[0]), **tokens, **labels)


def log(run: barograph.Run, rank: int, step: int) -> None:
    run.log({"own": rank + step, f"rank/{rank}": step}, step=step)


def measure(run: barograph.Run, rank: int, step: int) -> None:
    run.measure(batch(rank, step, False))


def measure_domains(run: barograph.Run, rank: int, step: int) -> None:
    run.measure(batch(rank, step, True), part="data", kl_coef=0.1 * step)


def count(run: barograph.Run, rank: int, step: int) -> None:
    run.count(tokens=rank + 1, samples=2)


def roll_out(run: barograph.Run, rank: int, step: int) -> None:
    run.rollouts(step).add(f"task{rank}", {"accuracy": step / 7}, run=f"{rank}-0")


def evaluate(run: barograph.Run, rank: int, step: int) -> None:
    run.evaluation("math", step, repeats=2).add(f"task{step}", {"score": rank / 3}, run=f"{rank}-0")


def time_phase(run: barograph.Run, rank: int, step: int) -> None:
    with run.phase("actor_train/train_step", tokens=5), run.timer("inner"):
        pass


def log_text(run: barograph.Run, rank: int, step: int) -> None:
    run.text("note", f"{rank} at {step}")
    run.log({"sizes": barograph.histogram(np.arange(step + 2))})


def log_bad(run: barograph.Run, rank: int, step: int) -> None:
    run.log({"bad": None, "open": step})


def log_forked(run: barograph.Run, rank: int, step: int) -> None:
    in_process(lambda: run.log({"forked": step, "own": -1.0}))


ACTIONS: tuple[Callable[[barograph.Run, int, int], None], ...] = (
    log, measure, measure_domains, count, roll_out, evaluate, time_phase, log_text, log_bad, log_forked,
)  # fmt: skip


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    fractions = st.floats(0, 1, exclude_max=True)
    processes = st.builds(
        Process,
        st.sampled_from(("trainer", "trainer", "explorer")),
        st.integers(0, MAX_RANKS - 1) | st.none(),
        st.integers(0, MAX_STEPS - 1),
        st.lists(st.frozensets(st.integers(0, len(ACTIONS) - 1)), min_size=1, max_size=MAX_STEPS).map(tuple),
        st.booleans(),
        st.none() | st.none() | st.integers(0, 40),
    )
    return Plan(
        draw(st.lists(processes, min_size=1, max_size=5).map(tuple)),
        draw(st.none() | st.integers(1, MAX_RANKS)),
        draw(st.lists(st.tuples(fractions, fractions), max_size=3).map(tuple)),
        draw(st.sampled_from([500, 5000, 7 << 20])),
        draw(st.integers(0, 2**32)),
    )


def be_process(dir: Path, process: Process, world_size: int | None) -> None:
    """Record what a process does; be killed where the plan says so."""
    if process.killed_after is not None:
        kill_after(process.killed_after)
    run = barograph.init(
        dir=dir, id="run", role=process.role, rank=process.rank, world_size=world_size, concurrent=True
    )
    for step, actions in enumerate(process.steps, process.first):
        for action in sorted(actions):
            ACTIONS[action](run, run.writer.rank, step)
        run.log({"open": step, "rank": run.writer.rank})
        run.commit(step)
        if process.logs_late:
            run.log({"late": step}, step=step - 1)
    run.finish()


def contents(plan: Plan, folder: Path) -> dict[str, bytes]:
    """Return the contents of the run's segments, with the damage."""
    found = {segment.path.name: bytearray(segment.path.read_bytes()) for segment in segments(folder)}
    for which, where in plan.damage:
        data = found[sorted(found)[int(which * len(found))]]
        if data:
            data[int(where * len(data))] ^= 0x5A
    return {name: bytes(data) for name, data in found.items()}


def follow(folder: Path, contents: dict[str, bytes], chance: random.Random) -> barograph.View:
    """Return a view of a copy of the run, read while its files grew by pieces of any size."""
    view: barograph.View | None = None
    sizes = dict.fromkeys(contents, -1)  # not there yet
    while any(sizes[name] < len(contents[name]) for name in contents):
        for name in contents:
            if chance.random() < 0.6:
                grown = max(sizes[name], 0) + chance.choice([0, 1, 100, 500, 2000, 10_000])
                sizes[name] = min(len(contents[name]), grown)
                (folder / name).write_bytes(contents[name][: sizes[name]])
        if view is None:
            view = barograph.View(folder) if chance.random() < 0.5 else None
        else:
            view.refresh()
            look(view, chance)
    view = view or barograph.View(folder)
    view.refresh()
    return view


def look(view: barograph.View, chance: random.Random) -> None:
    """Ask some of the questions that a page asks."""
    questions: list[Callable[[], Any]] = [
        view.names,
        view.problems,
        view.missing_ranks,
        view.events,
        lambda: view.status,
        lambda: view.steps,
        lambda: [view.find_series(name) for name in chance.sample(names, min(3, len(names)))],
        view.phases,
        view.damage,
    ]
    names = view.names() if chance.random() < 0.5 else ["open", "rank", "actor/pg_loss", "tokens"]
    for question in chance.sample(questions, chance.randrange(len(questions))):
        question()


def answers(view: barograph.View) -> dict[str, Any]:
    """Return what a view knows, in a form that can be compared."""
    names = view.names()
    return {
        "names": names,
        "series": {name: points(view.series(name)) for name in names},
        "of writers": {
            (name, writer): points(view.find_series(name, writer.role, writer.rank, writer.attempt))
            for writer in view.writers()
            for name in names
        },
        "statuses": view.writer_statuses(),
        "status": view.status,
        "steps": view.steps,
        "span": view.span,
        "events": [repr(event) for event in view.events()],
        "config": view.config,
        "skipped": view.skipped(),
        "problems": sorted(map(repr, view.problems())),
        "missing": sorted(map(repr, view.missing_ranks())),
        "phases": view.phases(),
        "windows": view.step_windows(),
        "texts": view.texts(),
        "histograms": [(name, repr(view.histograms(name))) for name in view.histogram_names()],
    }


def points(series: Any) -> Any:
    """Return a series as a list of points; as text, since NaN does not equal itself."""
    if series is None:
        return None
    return repr((series.writer, series.steps.tolist(), series.values.tolist(), series.times.tolist()))


@settings(max_examples=10, deadline=None, phases=set(Phase) - {Phase.shrink})
@given(plans())
def test_following_a_run_gives_what_opening_it_gives(tmp_path_factory: pytest.TempPathFactory, plan: Plan):
    """Whatever the moments at which a run was read, and what was asked then, the answers at the end are the same."""
    note(str(plan))
    dir = tmp_path_factory.mktemp("runs")
    for process in plan.processes:
        in_process(lambda process=process: be_process(dir, process, plan.world_size))
    found = list(dir.glob("*/run"))
    if not found:
        return  # killed before anything was written
    copy = dir / "copy"
    copy.mkdir()
    if (found[0] / RUN_FILE).exists():
        (copy / RUN_FILE).write_bytes((found[0] / RUN_FILE).read_bytes())
    data = contents(plan, found[0])
    if not data:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexed_reader, "PART_BYTES", plan.part_bytes)
        patch.setattr(indexed_reader, "MIN_BYTES", plan.part_bytes // 4)
        followed = follow(copy, data, random.Random(plan.seed))
        with_index = answers(barograph.View(copy))
    shutil.rmtree(copy / INDEX_FOLDER, ignore_errors=True)
    expected = answers(barograph.View(copy))
    for what in expected:
        assert with_index[what] == expected[what], what
    for what, got in answers(followed).items():
        assert got == expected[what], what
