"""Rows about the side index: one metric of a large run, one series of many ranks, large runs opened in turn."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote

from reading_rows.server import serving, tensorboard
from reading_rows.table import PEAK, Flat, Numbers, Row, Subject, Under, cpu_seconds

PROJECT = "reading"
METRICS = 200  # of a large run
RANKS = 256
MERGED = "actor/pg_loss"  # the series of all ranks that is read
RUNS = 10  # that are opened in turn
BEFORE = 1_700_000_000.0  # time of the last change: nothing is written any more


def make_large_run(mebibytes: int, folder: Path, id: str = "large") -> None:
    """Write a segment of so many MiB with rows of 200 values."""
    import numpy as np

    from barograph.journal.format import frames
    from barograph.journal.format.frames import Kind, frame

    run = folder / PROJECT / id
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"format": 1, "id": id, "project": PROJECT, "name": id}))
    names = [metric(number) for number in range(METRICS)]
    key, encode = frames.schema_id(names), frames.row_struct(METRICS)
    values = np.random.default_rng(0).normal(size=(997, METRICS)).tolist()
    with (run / "trainer.0.1.0.seg").open("wb") as file:
        file.write(frames.segment_head() + frame(frames.schema_payload(key, names)))
        for step in range(steps_of(mebibytes)):
            file.write(frame(encode.pack(Kind.ROW, key, step, BEFORE + step, *values[step % len(values)])))
    leave(run)


def metric(number: int) -> str:
    return f"part_{number // 20:02d}/metric_{number % 20:02d}"


def leave(run: Path) -> None:
    """Have the segments of a run look as if they were written long ago."""
    for path in run.glob("*.seg"):
        os.utime(path, (BEFORE, BEFORE))


def in_process(what: str, *arguments: object) -> Numbers:
    """Call a function of this module in a new process; return its numbers and the peak of its memory."""
    code = f"import sys, json; from reading_rows import index; print(json.dumps(index.{what}(*sys.argv[1:])))"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ":".join(paths)})
    assert child.stdout is not None
    printed = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{what} failed")
    return {**json.loads(printed), PEAK: usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / (1 << 20)}


def show_one(run: str, name: str) -> Numbers:
    """Measure ``barograph show`` of one metric: CPU seconds, and the bytes that are read of segments and indexes."""
    from barograph.apps.cli import main

    pread, counts = os.pread, [0]

    def counting(fd: int, size: int, offset: int) -> bytes:
        data = pread(fd, size, offset)
        counts[0] += len(data)
        return data

    os.pread = counting
    with contextlib.redirect_stdout(io.StringIO()):
        seconds, _ = cpu_seconds(lambda: main(["show", run, "--metrics", name]))
    return {"CPU s": seconds, "MiB": counts[0] / (1 << 20)}


def measure_large_run(size: int, folder: Path) -> Numbers:
    """Measure ``show`` of one metric: the first time, which writes the index, and then of another one."""
    run = folder / PROJECT / "large"
    first, again = (in_process("show_one", run, metric(number)) for number in (10, 150))
    return {
        "first CPU s": first["CPU s"],
        "first peak MiB": first[PEAK],
        "again CPU s": again["CPU s"],
        "again read %": 100 * again["MiB"] / size,
        "again peak MiB": again[PEAK],
    }


def steps_of(mebibytes: int) -> int:
    """Return the steps of a run of so many MiB in barograph's journal."""
    from barograph.journal.format import frames

    return (mebibytes << 20) // (frames.FRAME_HEAD.size + frames.row_struct(METRICS).size)


def make_event_run(mebibytes: int, folder: Path) -> None:
    """Write as many values as an event file."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder / "events"), max_queue_size=1000, flush_secs=60)
    summary = Summary(value=[Summary.Value(tag=metric(number), simple_value=0.1) for number in range(METRICS)])
    for step in range(steps_of(mebibytes)):
        writer.add_event(Event(wall_time=BEFORE + step, step=step, summary=summary))
    writer.close()


def measure_event_run(mebibytes: int, folder: Path) -> Numbers:
    """Measure TensorBoard until it has the last step of one metric. It shows 1,000 points of each."""
    last, path = steps_of(mebibytes) - 1, f"/data/plugin/scalars/scalars?run=.&tag={quote(metric(150))}"
    with tensorboard(folder / "events") as server:
        points: list[list[float]] = []
        while not points or points[-1][1] < last:
            time.sleep(0.1)
            with suppress(HTTPError):  # it has not read the metric yet
                points = server.get(path)
        both = [server, *server.children()]
        return {
            "first CPU s": sum(one.cpu_seconds() for one in both),
            "first RSS MiB": sum(one.mebibytes() for one in both),
            "points": len(points),
        }


def make_trackio_run(mebibytes: int, folder: Path) -> None:
    """Write as many values as trackio stores them."""
    os.environ["TRACKIO_DIR"] = str(folder)  # trackio reads it at import
    from trackio.sqlite_storage import SQLiteStorage

    names = [metric(number) for number in range(METRICS)]
    steps = steps_of(mebibytes)
    for begin in range(0, steps, 1000):
        some = list(range(begin, min(begin + 1000, steps)))
        SQLiteStorage.bulk_log(PROJECT, "large", [dict.fromkeys(names, step / 7) for step in some], some)


def measure_trackio_run(mebibytes: int, folder: Path) -> Numbers:
    """Measure how long trackio reads one metric."""
    os.environ["TRACKIO_DIR"] = str(folder)
    from trackio.sqlite_storage import SQLiteStorage

    seconds, found = cpu_seconds(lambda: SQLiteStorage.get_metric_values(PROJECT, "large", metric(150)))
    return {"first CPU s": seconds, "points": len(found)}


def make_ranks(steps: int, folder: Path) -> None:
    """Write a run whose ranks measure 50 metrics; all but the first have copies of one segment."""
    import ranks

    recorded = ranks.record(folder, steps - 1, RANKS)
    _, first, other = map(ranks.copied, recorded)
    run = folder / "many"
    ranks.write_run(run, RANKS, recorded[1].run.path, first, other)
    leave(run)
    for one in recorded:
        one.run.finish()


def read_series(run: str) -> Numbers:
    """Measure one series of all ranks in this process."""
    import barograph
    import barograph.importers.opening  # which ``open`` imports

    seconds, series = cpu_seconds(lambda: barograph.open(run).series(MERGED))
    return {"CPU s": seconds, "points": len(series)}


def measure_ranks(size: int, folder: Path) -> Numbers:
    """Measure one series of all ranks, the first time and again; the best of three, since other programs disturb."""
    first, again = [], []
    for _ in range(3):
        shutil.rmtree(folder / "many" / "index", ignore_errors=True)
        first.append(in_process("read_series", folder / "many"))
        again.append(in_process("read_series", folder / "many"))
    return {
        f"{what} {number}": min(one[number] for one in found)
        for number in ("CPU s", PEAK)
        for what, found in (("first", first), ("again", again))
    }


def make_large_runs(mebibytes: int, folder: Path) -> None:
    """Write ten large runs."""
    for number in range(RUNS):
        make_large_run(mebibytes, folder, f"large-{number}")


def measure_in_turn(size: int, folder: Path) -> Numbers:
    """Measure the memory of ``barograph up`` after all runs were looked at."""
    with serving(folder) as server:
        for number in range(RUNS):
            run = f"/api/runs/large-{number}"
            server.get(f"{run}/overview")
            server.get(f"{run}/names")
            for one in range(0, METRICS, 20):
                server.get(f"{run}/series?format=json&name={quote(metric(one))}")
        return {"RSS MiB": server.mebibytes(), "peak RSS MiB": server.mebibytes("VmHWM")}


ROWS = [
    Row(
        name="one_metric",
        what="show one metric of a run with 200",
        unit="MiB",
        sizes=(40, 160),
        full=(40, 318),
        barograph=Subject(make_large_run, measure_large_run),
        should_be=(
            Under("again read %", 5.0),
            Under("first peak MiB", 250.0),
            Flat("first peak MiB"),
            Flat("again peak MiB"),
        ),
        peers={
            "TensorBoard": Subject(make_event_run, measure_event_run),
            "trackio": Subject(make_trackio_run, measure_trackio_run),
        },
    ),
    Row(
        name="ranks_series",
        what="one series of 256 ranks that measure 50 metrics",
        unit="steps",
        sizes=(100, 300),
        full=(250, 1000),
        barograph=Subject(make_ranks, measure_ranks),
        should_be=(Under("first CPU s", 3.0), Under("again CPU s", 1.0)),
    ),
    Row(
        name="in_turn",
        what="ten runs opened in turn by barograph up",
        unit="MiB each",
        sizes=(20, 60),
        full=(60, 300),
        barograph=Subject(make_large_runs, measure_in_turn),
        should_be=(Under("peak RSS MiB", 1000.0),),
    ),
]
