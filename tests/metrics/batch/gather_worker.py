"""One process of the tests in ``test_gather``: it runs all scenarios, and writes what it got to a file.

Arguments: rank, number of processes, a folder to share.
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
from test_harness import OPTIONS, make

import barograph
from barograph.metrics.batch.arrays import TOKEN_FIELDS, Batch
from barograph.metrics.batch.step import Measurement
from barograph.recording import collectors
from barograph.recording.collectors import rollouts

ROWS, WIDTH = 24, 12  # whole groups of 3 and episodes of 2 for 1, 2 and 4 processes
COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "barrier", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "recv", "reduce", "reduce_scatter", "scatter", "send",
)  # fmt: skip
Result = dict[str, Any]


@contextmanager
def counted() -> Iterator[list[str]]:
    """Record the names of the collectives that are called."""
    calls: list[str] = []
    kept = {name: getattr(dist, name) for name in COLLECTIVES}

    def wrap(name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: calls.append(name) or kept[name](*args, **kwargs)

    for name in COLLECTIVES:
        setattr(dist, name, wrap(name))
    try:
        yield calls
    finally:
        for name, function in kept.items():
            setattr(dist, name, function)


class Process:
    """One process with its share of the batch."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.share = ROWS // size

    def batch(self, seed: int = 0) -> Batch:
        start = self.rank * self.share
        return Batch(**make(ROWS, WIDTH, seed)).take(slice(start, start + self.share))

    def start(self, name: str, **settings: Any) -> barograph.Run:
        # Started one after the other: the first one makes the run's folder.
        dist.barrier()
        return barograph.init(id=name, rank=self.rank, world_size=self.size, **settings)

    def result(self, run: barograph.Run, *steps: Any, **more: Any) -> Result:
        run.finish()
        return {
            "values": [dict(values) for values in steps],
            "missing": [dict(values.missing) for values in steps],
            "problems": [(one.call, one.error) for one in barograph.open(run.path).problems()],
            **more,
        }

    def whole(self) -> Result:
        """Everything that a step may have, in two steps with different options."""
        run, steps, calls = self.start("whole"), [], []
        for step in range(2):
            run.measure(self.batch(step), part=None, **{**OPTIONS, "kl_coef": 0.1 * (step + 1)})
            self._report(run, step)
            with counted() as called:
                steps.append(run.commit(step, gather=True))
            calls.append(called)
        return self.result(run, *steps, calls=calls)

    def _report(self, run: barograph.Run, step: int) -> None:
        """Report rollouts, and evaluations in three ways: by a close with a step, by one without, by the commit."""
        scores = np.random.default_rng(step).random((self.size, 3))[self.rank]
        for task, score in enumerate(scores):
            run.rollouts().add(f"{self.rank}-{task}", {"reward": score})
        with run.evaluation("named", step) as named, run.evaluation("unnamed") as unnamed:
            for task, score in enumerate(scores):
                named.add(f"{self.rank}-{task}", {"score": score}, run=0)
                unnamed.add(f"{self.rank}-{task}", {"score": score}, run=0)
        if self.rank:
            run.validation().add_many(scores)

    def layouts(self) -> Result:
        """The first process measures the data part, the last one the policy part, the others nothing."""
        run = self.start("layouts")
        if self.rank == 0:
            run.measure(make(ROWS, WIDTH, 0), part="data", **OPTIONS)
        if self.rank == self.size - 1:
            run.measure(make(ROWS, WIDTH, 0), part="policy", **OPTIONS)
            run.rollouts().add("a", {"reward": 1.0})
        with counted() as calls:
            values = run.commit(0, gather=True)
        return self.result(run, values, calls=calls)

    def nothing(self) -> Result:
        """Nobody has measured anything."""
        run = self.start("nothing")
        run.log({"logged": 1.0})
        with counted() as calls:
            values = run.commit(0, gather=True)
        return self.result(run, values, calls=calls)

    def subgroups(self) -> Result:
        """Each half of the processes gathers by itself."""
        halves = [dist.new_group(list(half)) for half in np.array_split(np.arange(self.size), 2)]
        run = self.start("subgroups")
        run.measure(self.batch(), part=None, **OPTIONS)
        self._report(run, 0)
        mine = halves[self.rank >= self.size / 2]
        values = run.commit(0, gather=True, group=mine)
        # Not a member of the other half: the own values, without a collective.
        run.measure(self.batch(), **OPTIONS)
        with counted() as calls:
            own = run.commit(1, gather=True, group=halves[self.rank < self.size / 2])
        return self.result(run, values, own, calls=calls)

    def failing(self) -> Result:
        """What the last process measured cannot be packed."""
        run = self.start("failing")
        run.measure(self.batch(), **OPTIONS)
        self._report(run, 0)
        if self.rank == self.size - 1:
            Measurement.packed, kept = _fail, Measurement.packed
        with counted() as calls:
            values = run.commit(0, gather=True)
        if self.rank == self.size - 1:
            Measurement.packed = kept
        run.measure(self.batch(), **OPTIONS)
        following = run.commit(1, gather=True)
        return self.result(run, values, following, calls=calls)

    def failing_report(self) -> Result:
        """What the last process reported cannot be packed."""
        run = self.start("failing_report")
        run.measure(self.batch(), **OPTIONS)
        run.rollouts().add(str(self.rank), {"reward": 1.0})
        kept = rollouts.encode
        if self.rank == self.size - 1:
            rollouts.encode = _fail
        values = run.commit(0, gather=True)
        rollouts.encode = kept
        return self.result(run, values)

    def failing_exchange(self) -> Result:
        """The collectives fail on every process."""
        run = self.start("failing_exchange")
        run.measure(self.batch(), part=None, **OPTIONS)
        self._report(run, 0)
        kept, collectors.exchange = collectors.exchange, _fail
        values = run.commit(0, gather=True)
        collectors.exchange = kept
        return self.result(run, values)

    def partly_disabled(self) -> Result:
        """Only the last process records; the others take part all the same, also after the end of a run."""
        recorded = self.rank == self.size - 1
        run = self.start("partly_disabled", mode="online" if recorded else "disabled")
        run.measure(self.batch(), **OPTIONS)
        values = run.commit(0, gather=True)
        run.finish()
        late = run.commit(1, gather=True)
        return {"values": [dict(values), dict(late)]}

    def splits(self) -> Result:
        """Every way to split a batch over data, tensor and context parallel processes."""
        found = {}
        shapes = [shape for shape in itertools.product((1, 2, 4), repeat=3) if np.prod(shape) == self.size]
        for dp, tp, cp in shapes:
            grid = np.arange(self.size).reshape(dp, tp, cp)
            groups = {(d, t): dist.new_group(grid[d, t].tolist()) for d in range(dp) for t in range(tp)}
            d, t, c = (int(place) for place in np.argwhere(grid == self.rank)[0])
            rows = ROWS // dp
            data = Batch(**make(ROWS, WIDTH, 7, packed_keep=True)).take(slice(d * rows, (d + 1) * rows))
            for layout in ("padded", "zigzag", "packed"):
                name = f"{dp}-{tp}-{cp}-{layout}"
                run = self.start(name, replica=t * cp + c)
                whole = slice_of(data, c, cp, layout, d * rows).gathered(groups[d, t], order=_order(layout))
                run.measure(whole, part=None, **OPTIONS)
                run.count(tokens=10)
                values = run.commit(0)
                run.measure(whole, part=None, **OPTIONS)
                gathered = run.commit(1, gather=True)
                found[name] = self.result(run, values, gathered, counts=t + c == 0)
        return found


def _order(layout: str) -> str:
    return "zigzag" if layout == "zigzag" else "contiguous"


def slice_of(batch: Batch, place: int, parts: int, layout: str, first: int = 0) -> Batch:
    """Return the tokens of a batch that one process of a context-parallel group has; ``first`` is its first row."""
    arrays = {name: getattr(batch, name) for name in batch.given}
    tokens = [name for name in (*TOKEN_FIELDS, "keep") if name in arrays]
    chunks = np.array_split(np.arange(WIDTH), 2 * parts)
    mine = (2 * place, 2 * place + 1) if layout != "zigzag" else (place, 2 * parts - 1 - place)
    columns = np.concatenate([chunks[n] for n in mine])
    arrays |= {name: arrays[name][:, columns] for name in tokens}
    if layout == "packed":
        # Sequences of different lengths, of which some have no token here.
        lengths = (first + np.arange(batch.sequences)) % WIDTH + 1
        inside = columns < lengths[:, None]
        arrays |= {name: arrays[name][inside] for name in tokens}
        arrays["cu_seqlens"] = np.concatenate([[0], np.cumsum(inside.sum(1))])
    return Batch(**arrays)


def _fail(*_: Any, **__: Any) -> Any:
    raise ValueError("injected")


if __name__ == "__main__":
    rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    process = Process(rank, size)
    scenarios = (
        process.whole, process.layouts, process.nothing, process.subgroups, process.failing, process.failing_report,
        process.failing_exchange, process.partly_disabled, process.splits,
    )  # fmt: skip
    results = {scenario.__name__: scenario() for scenario in scenarios}
    (folder / f"{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()
