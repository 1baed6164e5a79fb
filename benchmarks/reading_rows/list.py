"""Rows about directories of many runs: their list, and the memory of a server that opens large ones."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from reading_rows.server import Server, process_serving, serving
from reading_rows.table import Flat, Linear, Numbers, Row, Subject, Under, cpu_seconds, wall_seconds

PROJECT, PROJECTS = "reading", 5
STEPS, METRICS = 150, 12  # of a run in the list
REWARD = "critic/score/mean"
IDLE_SECONDS = 10.0
SMALL_RUNS = 2000
LARGE_METRICS = 2000
LARGE_STEPS = 19_600  # 300 MiB of 8 bytes a value


def names(count: int) -> list[str]:
    return [REWARD, *(f"layer_{n // 50}/metric_{n % 50}/mean" for n in range(count - 1))]


def write_run(dir: Path, project: str, id: str, steps: int, metrics: int) -> Path:
    import barograph

    run = barograph.init(dir=dir, project=project, id=id, name=id)
    keys = names(metrics)
    for step in range(steps):
        run.log({key: step / steps + place for place, key in enumerate(keys)}, step=step)
    run.finish()
    return Path(run.path)


def copy_run(source: Path, target: Path, number: int) -> None:
    """Copy a run under another id; its segments are links, which take no room."""
    target.mkdir(parents=True)
    info = json.loads((source / "run.json").read_text())
    own = {"id": target.name, "name": target.name, "project": target.parent.name, "created": info["created"] + number}
    (target / "run.json").write_text(json.dumps({**info, **own}))
    for segment in source.glob("*.seg"):
        os.link(segment, target / segment.name)


def make_runs(size: int, folder: Path) -> None:
    """Write a directory of many small runs."""
    first = write_run(folder / "first", "first", "first", STEPS, METRICS)
    for number in range(size):
        target = folder / "runs" / f"project-{number % PROJECTS}" / f"run{number:05d}"
        copy_run(first, target, number)
    shutil.rmtree(folder / "first")


def listing_seconds(dir: Path) -> float:
    """Return the CPU seconds of ``barograph ls`` in a new process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "barograph", "ls", "--dir", str(dir)], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def page_open(server: Server) -> Iterator[None]:
    """Watch the list as a page does."""
    with urlopen(f"{server.url}/api/live?list=1", timeout=60) as stream:
        stream.readline()
        yield


def measure_list(size: int, folder: Path) -> Numbers:
    """Measure ``barograph ls``, a server that reads every run, an idle page, and the next server."""
    dir = folder / "runs"
    numbers = {"first ls CPU s": listing_seconds(dir), "ls CPU s": listing_seconds(dir)}
    with serving(dir) as server:
        numbers["first list s"], _ = wall_seconds(lambda: server.get("/api/runs"))
        while server.get("/api/runs?limit=1")["pending"]:
            time.sleep(0.2)
        numbers["sparklines CPU s"] = server.cpu_seconds()
        time.sleep(2)  # for the index to be written
        with urlopen(f"{server.url}/api/runs") as answer:
            numbers["answer kB"] = len(answer.read()) / 1000
        numbers["search s"], found = wall_seconds(lambda: server.get("/api/runs?q=project-3&sort=reward"))
        assert found["total"] == len(range(3, size, PROJECTS))
        with page_open(server):
            before = server.cpu_seconds()
            time.sleep(IDLE_SECONDS)
            numbers["idle CPU %"] = 100 * (server.cpu_seconds() - before) / IDLE_SECONDS
        numbers["RSS MiB"] = server.mebibytes()
    with serving(dir) as server:
        assert server.get("/api/runs")["pending"] == 0
        numbers["next server's list CPU s"] = server.cpu_seconds()
    return numbers


def make_event_runs(size: int, folder: Path) -> None:
    """Write the same runs as event files."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder / "first"), max_queue_size=1000, flush_secs=60)
    for step in range(STEPS):
        values = [Summary.Value(tag=key, simple_value=step / STEPS) for key in names(METRICS)]
        writer.add_event(Event(wall_time=1.7e9 + step, step=step, summary=Summary(value=values)))
    writer.close()
    [events] = (folder / "first").iterdir()
    for number in range(size):
        target = folder / "runs" / f"project-{number % PROJECTS}" / f"run{number:05d}"
        target.mkdir(parents=True)
        os.link(events, target / events.name)


def measure_event_runs(size: int, folder: Path) -> Numbers:
    """Measure TensorBoard until it lists the tags of all runs, and its answer."""
    # As it is started by default: with the loader in Rust, which is a process of its own.
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder / "runs")]
    with process_serving(command, "/data/environment") as server:
        began = time.perf_counter()
        while sum(map(bool, (tags := server.get("/data/plugin/scalars/tags")).values())) < size:
            time.sleep(0.2)
        both = [server, *server.children()]
        return {
            "first list s": time.perf_counter() - began,
            "sparklines CPU s": sum(one.cpu_seconds() for one in both),
            "answer kB": len(json.dumps(tags)) / 1000,
            "RSS MiB": sum(one.mebibytes() for one in both),
        }


def make_trackio_runs(size: int, folder: Path) -> None:
    """Write the same runs as trackio stores them."""
    os.environ["TRACKIO_DIR"] = str(folder)  # trackio reads it at import
    from trackio.sqlite_storage import SQLiteStorage

    steps = list(range(STEPS))
    rows = [dict.fromkeys(names(METRICS), step / STEPS) for step in steps]
    for number in range(size):
        SQLiteStorage.bulk_log(PROJECT, f"run{number:05d}", rows, steps, run_id=f"run{number:05d}")


def measure_trackio_runs(size: int, folder: Path) -> Numbers:
    """Measure how long trackio lists the runs of a project with their last steps."""
    os.environ["TRACKIO_DIR"] = str(folder)
    from trackio.sqlite_storage import SQLiteStorage

    seconds, found = cpu_seconds(lambda: SQLiteStorage.get_max_steps_for_runs(PROJECT))
    assert len(found) == size
    return {"list CPU s": seconds}


def make_large(size: int, folder: Path) -> None:
    """Write a directory of small runs with some of 300 MiB."""
    make_runs(SMALL_RUNS, folder)
    first = write_run(folder / "large", "large", "large", LARGE_STEPS, LARGE_METRICS)
    for number in range(size):
        copy_run(first, folder / "runs" / "large" / f"large{number}", number)
    shutil.rmtree(folder / "large")


def measure_large(size: int, folder: Path) -> Numbers:
    """Measure the memory of a server whose large runs are opened one after the other."""
    numbers: Numbers = {}
    with serving(folder / "runs") as server:
        server.get("/api/runs")
        for number in range(size):
            run = f"/api/runs/large{number}"
            numbers["overview s"], _ = wall_seconds(lambda run=run: server.get(f"{run}/overview"))  # type: ignore[misc]
            server.get(f"{run}/names")
            server.get(f"{run}/series?name={names(LARGE_METRICS)[-1]}&format=json")
        while server.get("/api/runs?limit=1")["pending"]:
            time.sleep(0.2)
        return {**numbers, "server RSS MiB": server.mebibytes(), "server peak MiB": server.mebibytes("VmHWM")}


ROWS = [
    Row(
        name="list",
        what="list a directory of so many runs",
        unit="runs",
        sizes=(500, 2000),
        full=(200, 2000, 8000),
        barograph=Subject(make_runs, measure_list),
        should_be=(
            Under("ls CPU s", 1.0),
            Under("idle CPU %", 1.0),
            Flat("idle CPU %", floor=0.3),
            Flat("answer kB", factor=1.2),
            Linear("sparklines CPU s", floor=1.0),
            Under("next server's list CPU s", 3.0),
        ),
        peers={
            "TensorBoard": Subject(make_event_runs, measure_event_runs),
            "trackio": Subject(make_trackio_runs, measure_trackio_runs),
        },
    ),
    Row(
        name="open-runs",
        what=f"open so many runs of 300 MiB in turn, among {SMALL_RUNS:,} others",
        unit="large runs",
        sizes=(2, 5),
        full=(5, 10),
        barograph=Subject(make_large, measure_large),
        should_be=(Under("server peak MiB", 1000.0), Flat("server peak MiB")),
    ),
]
