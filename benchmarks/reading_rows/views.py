"""Rows about views that advance: ranks that measure, many ranks, heartbeats, long runs that are followed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from reading_rows.server import serving
from reading_rows.table import Flat, Linear, Numbers, Row, Subject, Under, cpu_seconds, wall_seconds

PROJECT = "reading"
RANKS = 8  # of the run whose overview is open
MEASURED_STEPS = 500
NEW_STEPS = 10  # that are appended while a run is followed
ANSWERS = 40  # of a server whose CPU time is known to a hundredth of a second
FIRST_STEPS = 3  # that are not measured
BEATING_RANKS = 64
LOGGED_STEPS = 20
MERGED = "actor/pg_loss"
FIRST, OTHER = "first.seg", "other.seg"  # contents of the segments of rank 0 and of any other rank
SIZES = "sizes.json"  # of those after each step


def record_ranks(steps: int, folder: Path) -> None:
    """Record two ranks of a run that measure, and note how long their segments are after each step."""
    import ranks

    import barograph
    from barograph.journal.format.folder import RUN_FILE, segment_path

    data = ranks.batches()
    runs = [barograph.init(dir=folder, id="two", rank=rank, world_size=2, concurrent=True) for rank in range(2)]
    sizes: list[list[int]] = [[], []]
    for step in range(steps):
        for run, of_rank in zip(runs, sizes, strict=True):
            run.measure(data[step % len(data)], part=None)
            run.count(tokens=64)
            run.commit(step)
            of_rank.append(segment_path(run.path, run.writer, 0).stat().st_size)
    for run, name in zip(runs, (FIRST, OTHER), strict=True):
        (folder / name).write_bytes(segment_path(run.path, run.writer, 0).read_bytes())
    (folder / SIZES).write_text(json.dumps(sizes))
    (folder / RUN_FILE).write_bytes((runs[0].path / RUN_FILE).read_bytes())
    for run in runs:
        run.finish()


class GrowingRun:
    """A run of many ranks that is written step by step, from what two ranks have recorded."""

    def __init__(self, folder: Path, ranks: int, steps: int) -> None:
        from barograph.journal.format.folder import RUN_FILE

        self.folder = folder / "runs" / PROJECT / "many"
        self.folder.mkdir(parents=True)
        (self.folder / RUN_FILE).write_bytes((folder / RUN_FILE).read_bytes())
        self._contents = [(folder / name).read_bytes() for name in (FIRST, OTHER)]
        self._sizes: list[list[int]] = json.loads((folder / SIZES).read_text())
        self._ranks, self._steps = ranks, 0
        self.append(steps)

    def append(self, steps: int = 1) -> None:
        """Append further steps to the segments of all ranks."""
        for rank in range(self._ranks):
            content, sizes = self._contents[rank > 0], [0, *self._sizes[rank > 0]]
            with (self.folder / f"trainer.{rank}.1.0.seg").open("ab") as segment:
                segment.write(content[sizes[self._steps] : sizes[self._steps + steps]])
        self._steps += steps


def make_overview(steps: int, folder: Path) -> None:
    """Record what the ranks of a watched run write."""
    record_ranks(steps + ANSWERS, folder)


def measure_overview(steps: int, folder: Path) -> Numbers:
    """Measure the overview after each new step, as a page that is open asks for it."""
    run = GrowingRun(folder, RANKS, steps)
    with serving(folder / "runs") as server:
        path = f"/api/runs/{quote(server.get('/api/runs')['runs'][0]['key'], safe='')}/overview"
        first = server.answer_seconds(path)
        used, seconds = server.cpu_seconds(), []
        for _ in range(ANSWERS):
            run.append()
            seconds.append(wall_seconds(lambda: server.get(path))[0])
        of_each = (server.cpu_seconds() - used) / ANSWERS
    return {
        "first overview CPU s": first,
        "overview ms": 1000 * sorted(seconds)[ANSWERS // 2],
        "overview CPU ms": 1000 * of_each,
        "one step/s, CPU %": 100 * of_each,
    }


def make_measured_names(ranks: int, folder: Path) -> None:
    """Record what ranks that measure write."""
    record_ranks(MEASURED_STEPS + NEW_STEPS, folder)


def measure_measured_names(ranks: int, folder: Path) -> Numbers:
    """Measure the names of merged metrics, at first and after each new step."""
    import barograph

    run = GrowingRun(folder, ranks, MEASURED_STEPS)
    view = barograph.open(run.folder)
    first, names = cpu_seconds(view.names)
    again = 0.0
    for _ in range(NEW_STEPS):
        run.append()
        again += cpu_seconds(lambda: (view.refresh(), view.names()))[0] / NEW_STEPS
    return {"names CPU s": first, "new step CPU ms": 1000 * again, "names": len(names)}


def make_heartbeats(beats: int, folder: Path) -> None:
    """Write the segments of ranks that have lived for so many heartbeats."""
    from barograph.journal.format import frames
    from barograph.journal.format.frames import Kind

    run = _empty_run(folder)
    counts = dict.fromkeys(("dropped", "waiting", "failed_writes", "failed_syncs"), 0)
    began = time.time() - 10 * beats
    events = [{"event": "start", "time": began, "machine": "elsewhere", "pid": 1, "born": 1}]
    events += [{"event": "heartbeat", "time": began + 10.001 * beat, **counts} for beat in range(beats)]
    content = b"".join(frames.frame(frames.record_payload(Kind.EVENT, event)) for event in events)
    for rank in range(BEATING_RANKS):
        (run / f"trainer.{rank}.1.0.seg").write_bytes(frames.segment_head() + content)


def measure_heartbeats(beats: int, folder: Path) -> Numbers:
    """Measure opening the run and its status."""
    import barograph

    opened, view = cpu_seconds(lambda: barograph.open(folder / PROJECT / "run"))
    status, _ = cpu_seconds(lambda: view.status)
    again, _ = cpu_seconds(lambda: barograph.open(folder / PROJECT / "run"))
    numbers = {"open CPU s": opened, "status CPU s": status, "open again CPU s": again}
    return {**numbers, "events of a rank kept": len(view.events()) / BEATING_RANKS}


def make_rank_names(ranks: int, folder: Path) -> None:
    """Write a run whose ranks log a few metrics."""
    import barograph

    run = barograph.init(dir=folder, project=PROJECT, id="run", rank=0, world_size=ranks)
    for step in range(LOGGED_STEPS):
        run.log({"loss": 1.0, "lr": 0.1, "time/step": 2.0}, step=step)
    run.finish()
    content = (run.path / "trainer.0.1.0.seg").read_bytes()
    for rank in range(1, ranks):
        (run.path / f"trainer.{rank}.1.0.seg").write_bytes(content)


def measure_rank_names(ranks: int, folder: Path) -> Numbers:
    """Measure the names of all ranks, and a refresh after one rank has written."""
    import barograph

    opened, view = cpu_seconds(lambda: barograph.open(folder / PROJECT / "run"))
    names, _ = cpu_seconds(view.names)
    with (folder / PROJECT / "run" / "trainer.1.1.0.seg").open("ab") as segment:
        segment.write(_row(LOGGED_STEPS, ("loss", "lr", "time/step")))
    count, refresh = _opened_files(lambda: cpu_seconds(view.refresh)[0])
    numbers = {"open CPU s": opened, "names CPU s": names}
    return {**numbers, "one grew: files opened": count, "one grew: CPU ms": 1000 * refresh}


def _opened_files(work: Any) -> tuple[int, Any]:
    original, count = os.open, [0]

    def counting(*args: Any, **kwargs: Any) -> int:
        count[0] += 1
        return original(*args, **kwargs)

    os.open = counting
    try:
        result = work()
    finally:
        os.open = original
    return count[0], result


def make_following(steps: int, folder: Path) -> None:
    """Write a run of one process that commits each step."""
    from barograph.journal.format import frames

    names = tuple(f"metric/{number}" for number in range(10))
    schema = frames.frame(frames.schema_payload(frames.schema_id(names), names))
    with (_empty_run(folder) / "trainer.0.1.0.seg").open("wb") as segment:
        segment.write(frames.segment_head() + schema)
        segment.writelines(_committed_row(step, names) for step in range(steps))


def measure_following(steps: int, folder: Path) -> Numbers:
    """Measure what a page that is open asks for after each new step."""
    import barograph

    run = folder / PROJECT / "run"
    names = tuple(f"metric/{number}" for number in range(10))
    view = barograph.open(run)
    found = dict.fromkeys(("refresh CPU ms", "names and status CPU ms", "one series CPU ms"), 0.0)
    for step in range(steps, steps + FIRST_STEPS + NEW_STEPS):
        with (run / "trainer.0.1.0.seg").open("ab") as segment:
            segment.write(_committed_row(step, names))
        seconds = (
            cpu_seconds(view.refresh)[0],
            cpu_seconds(lambda: (view.names(), view.status, view.steps, view.span))[0],
            cpu_seconds(lambda: view.series("metric/3"))[0],
        )
        # The first ones read the run, and keep the column of the series.
        for name, one in zip(found, seconds, strict=True) if step >= steps + FIRST_STEPS else ():
            found[name] += 1000 * one / NEW_STEPS
    return {**found, "a step CPU ms": sum(found.values())}


def _committed_row(step: int, names: tuple[str, ...]) -> bytes:
    from barograph.journal.format import frames
    from barograph.journal.format.fields import OPEN_STEP

    return _row(OPEN_STEP, names, step) + frames.frame(frames.commit_payload(step, 1e9 + step))


def _row(step: int, names: tuple[str, ...], second: int = 0) -> bytes:
    from barograph.journal.format import frames
    from barograph.journal.format.frames import Kind

    values = (float(second),) * len(names)
    row = frames.row_struct(len(names)).pack(Kind.ROW, frames.schema_id(names), step, 1e9 + second, *values)
    return frames.frame(row)


def _empty_run(folder: Path) -> Path:
    run = folder / PROJECT / "run"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"format": 1, "id": "run", "project": PROJECT, "name": "run"}))
    return run


ROWS = [
    Row(
        name="overview",
        what=f"the overview of {RANKS} ranks that measure, after each new step",
        unit="steps",
        sizes=(100, 500),
        full=(100, 1000, 3000),
        barograph=Subject(make_overview, measure_overview),
        should_be=(
            Under("overview CPU ms", 100),
            Flat("overview CPU ms", floor=20),
            Under("one step/s, CPU %", 5),
        ),
    ),
    Row(
        name="measured names",
        what=f"names of a run whose ranks measure {MEASURED_STEPS} steps, at first and after a new step",
        unit="ranks",
        sizes=(8, 64),
        full=(8, 64, 256),
        barograph=Subject(make_measured_names, measure_measured_names),
        should_be=(Under("names CPU s", 2), Linear("names CPU s", floor=0.1), Under("new step CPU ms", 200)),
    ),
    Row(
        name="heartbeats",
        what=f"heartbeats of {BEATING_RANKS} ranks; a week has 60,480",
        unit="heartbeats of a rank",
        sizes=(600, 6048),
        full=(6048, 60_480),
        barograph=Subject(make_heartbeats, measure_heartbeats),
        should_be=(Under("peak MiB", 200), Under("events of a rank kept", 3), Flat("status CPU s", floor=0.01)),
    ),
    Row(
        name="rank names",
        what=f"names of a run whose ranks log {LOGGED_STEPS} steps, and a refresh after one has written",
        unit="ranks",
        sizes=(256, 2048),
        full=(256, 1024, 4096, 10_000),
        barograph=Subject(make_rank_names, measure_rank_names),
        should_be=(Under("names CPU s", 1), Linear("names CPU s", floor=0.05), Under("one grew: files opened", 2)),
    ),
    Row(
        name="following",
        what="a new step of a run that is followed: refresh, names, status, one series",
        unit="steps",
        sizes=(1000, 50_000),
        full=(1000, 100_000, 400_000),
        barograph=Subject(make_following, measure_following),
        should_be=(Flat("names and status CPU ms", floor=1), Flat("a step CPU ms", floor=2)),
    ),
]
