"""A property of runs of several processes: a reader has the numbers of one process, or says which rank is missing."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

import barograph
from barograph.base.model import MissingRank
from forked_processes import in_process, kill_after

MAX_RANKS = 4
MAX_STEPS = 3
PARTS = ("data", "policy", "value")
UNCOMPARED = ("time/", "memory/", "barograph/", "system/", "own")


@dataclass(frozen=True)
class Share:
    """What one rank does in one step."""

    parts: frozenset[str]
    rollouts: tuple[int, ...]  # tasks
    evaluation: tuple[int, ...]
    counted: int | None


shares = st.builds(
    Share,
    st.frozensets(st.sampled_from(PARTS)),
    st.lists(st.integers(0, 5), max_size=3).map(tuple),
    st.lists(st.integers(0, 5), max_size=2).map(tuple),
    st.none() | st.integers(1, 9),
)


@dataclass(frozen=True)
class Plan:
    """A run: the shares by rank and step, a coefficient for each step, and how the processes behave."""

    shares: tuple[tuple[Share, ...], ...]
    coefficients: tuple[float, ...]
    order: tuple[int, ...]  # in which processes start; each ends before the next begins
    killed: tuple[int, int] | None  # rank, and the frame after which it is killed
    knows_world: bool
    knows_rank: bool  # of the first rank: without a number it does not know whether it is alone


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    ranks, steps = draw(st.integers(1, MAX_RANKS)), draw(st.integers(1, MAX_STEPS))
    rank = st.integers(0, ranks - 1)
    killed = draw(st.none() | st.tuples(rank, st.integers(0, 25)))
    return Plan(
        draw(st.tuples(*[st.tuples(*[shares] * steps)] * ranks)),
        draw(st.tuples(*[st.sampled_from([0.0, 0.1, 0.25])] * steps)),
        tuple(draw(st.permutations(range(ranks)))),
        killed,
        draw(st.booleans()),
        killed is not None or draw(st.booleans()),
    )


def batch(rank: int, step: int, part: str) -> barograph.Batch:
    """Return the batch that a rank measures; of the same rank, step and part it is always the same."""
    random = np.random.default_rng([rank, step, PARTS.index(part)])
    shape = (1 + rank % 3, 4)

    def tokens() -> Any:
        return random.normal(size=shape)

    mask = random.random(shape) < 0.7
    log_probs = {name: -np.abs(tokens()) for name in ("log_probs", "old_log_probs", "ref_log_probs")}
    values = {"values": tokens(), "old_values": tokens(), "returns": tokens(), "advantages": tokens()}
    return barograph.Batch(response_mask=mask, scores=random.normal(size=shape[0]), **log_probs, **values)


def record(run: barograph.Run, rank: int, step: int, share: Share, coefficient: float) -> None:
    for part in sorted(share.parts):
        run.measure(batch(rank, step, part), part=part, kl_coef=coefficient, kl_loss_coef=coefficient)
    if share.counted is not None:
        run.count(tokens=share.counted)
    for number, task in enumerate(share.rollouts):
        run.rollouts(step).add(f"task{task}", {"accuracy": task + rank / 7}, run=f"{rank}-{number}")
    for number, task in enumerate(share.evaluation):
        run.evaluation("math", step, repeats=2).add(f"task{task}", {"score": task - rank / 3}, run=f"{rank}-{number}")
    if share.evaluation:
        run.evaluation("math", step, repeats=2).close()


def be_rank(dir: Path, rank: int, plan: Plan, begun: mmap.mmap) -> None:
    """Record one rank's shares; note the steps that were begun, and be killed where the plan says so."""
    if plan.killed is not None and plan.killed[0] == rank:
        kill_after(plan.killed[1])
    number = rank if rank or plan.knows_rank else None
    run = barograph.init(dir=dir, id="split", rank=number, world_size=len(plan.shares) if plan.knows_world else None)
    for step, share in enumerate(plan.shares[rank]):
        begun[rank] = step + 1
        record(run, rank, step, share, plan.coefficients[step])
        run.log({"own": rank})
        run.commit(step)
    run.finish()


def recorded_whole(dir: Path, id: str, plan: Plan, begun: bytes) -> barograph.View:
    """Return a run of one process that has recorded everything that all ranks have begun."""
    in_process(lambda: be_whole(dir, id, plan, begun))
    return barograph.open(id, dir)


def be_whole(dir: Path, id: str, plan: Plan, begun: bytes) -> None:
    run = barograph.init(dir=dir, id=id, world_size=1)
    for step in range(max(begun)):
        for rank, of_rank in enumerate(plan.shares):
            if step < begun[rank]:
                record_all_but_evaluation(run, rank, step, of_rank[step], plan.coefficients[step])
        tasks = [
            (f"task{task}", {"score": task - rank / 3}, f"{rank}-{number}")
            for rank, of_rank in enumerate(plan.shares)
            if step < begun[rank]
            for number, task in enumerate(of_rank[step].evaluation)
        ]
        if tasks:
            with run.evaluation("math", step, repeats=2) as evaluation:
                for task, metrics, number in tasks:
                    evaluation.add(task, metrics, run=number)
        run.commit(step)
    run.finish()


def record_all_but_evaluation(run: barograph.Run, rank: int, step: int, share: Share, coefficient: float) -> None:
    record(run, rank, step, Share(share.parts, share.rollouts, (), share.counted), coefficient)


def points(view: barograph.View, name: str) -> dict[int, float]:
    found = view.find_series(name)
    return {} if found is None else dict(zip(found.steps.tolist(), found.values.tolist(), strict=True))


def close_to(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True)


def excused_steps(plan: Plan, begun: bytes, missing: list[MissingRank]) -> set[int | None]:
    """Return the steps whose values may be absent: those that are told, and the last one of a run that ended."""
    steps = {one.step for one in missing}
    if plan.killed is not None:
        last = begun[plan.killed[0]] - 1
        if not any(last < count for rank, count in enumerate(begun) if rank != plan.killed[0]):
            steps.add(last)  # no other rank was there: that the run was killed says it all
    return steps


@settings(max_examples=25, deadline=None, phases=set(Phase) - {Phase.shrink})
@given(plans())
def test_a_reader_has_the_whole_or_says_which_rank_is_missing(tmp_path_factory: pytest.TempPathFactory, plan: Plan):
    """Every value that a reader shows is that of one process which recorded everything; others are told as missing."""
    note(str(plan))
    dir = tmp_path_factory.mktemp("runs")
    progress = mmap.mmap(-1, len(plan.shares))
    for rank in plan.order:
        in_process(lambda rank=rank: be_rank(dir, rank, plan, progress))
    split = barograph.open("split", dir)
    missing = split.missing_ranks()
    for absent in (one for one in missing if one.step is None):
        progress[absent.rank] = 0  # killed before it recorded anything, or before it joined
    begun = progress[:]
    whole = rest = recorded_whole(dir, "whole", plan, begun)
    killed = None if plan.killed is None else plan.killed[0]
    if killed is not None and begun[killed] == 1:
        # It was killed in its first step, and may be taken for one that was not there yet when the others took it.
        rest = recorded_whole(dir, "rest", plan, bytes(0 if r == killed else n for r, n in enumerate(begun)))
    excused = excused_steps(plan, begun, missing)
    for name in [name for name in whole.names() if not name.startswith(UNCOMPARED)]:
        shown, others = points(split, name), points(rest, name)
        for step, value in points(whole, name).items():
            if name == "tokens" and killed is not None and step >= begun[killed]:
                continue  # what the killed rank counted in its last step is in no later total
            if step not in shown:
                assert step in excused, f"{name} of step {step} is not shown, and nothing says why"
            else:
                right = (value, others.get(step, value)) if step in excused else (value,)
                assert any(shown[step] == close_to(one) for one in right), (name, step, shown[step], right)
