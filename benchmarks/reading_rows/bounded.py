"""Rows about what must be bounded: phases, families, samples, names of phases."""

from __future__ import annotations

import contextlib
import io
import os
import random
import time
from pathlib import Path

from reading_rows.server import serving, tensorboard
from reading_rows.table import (
    Flat,
    Linear,
    Numbers,
    Row,
    Subject,
    Under,
    cpu_seconds,
    peak_mebibytes,
    resident_mebibytes,
    wall_seconds,
)

PROJECT = "reading"
PHASES_PER_STEP = 100
SAMPLES_PER_STEP = 1000


def make_families(size: int, folder: Path) -> None:
    """Write a run with one metric in each family, logged on its own."""
    import barograph

    run = barograph.init(dir=folder, project=PROJECT, id="families")
    for step in range(2):
        for n in range(size):
            run.log({f"family{n}/value": float(n)}, step=step)
    run.finish()


def measure_families(size: int, folder: Path) -> Numbers:
    """Measure ``barograph show``."""
    return _show(folder / PROJECT / "families")


def _show(path: Path) -> Numbers:
    from barograph.apps.cli import main

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        seconds, _ = cpu_seconds(lambda: main(["show", str(path)]))
    return {"show CPU s": seconds, "printed kB": len(printed.getvalue()) / 1000}


def make_event_families(size: int, folder: Path) -> None:
    """Write the same metrics as an event file."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder / "events"), max_queue_size=1000, flush_secs=60)
    for step in range(2):
        for n in range(size):
            value = Summary.Value(tag=f"family{n}/value", simple_value=float(n))
            writer.add_event(Event(wall_time=1.7e9 + step, step=step, summary=Summary(value=[value])))
    writer.close()


def measure_event_families(size: int, folder: Path) -> Numbers:
    """Measure TensorBoard until it lists all tags."""
    began = time.perf_counter()
    with tensorboard(folder / "events") as server:
        while sum(map(len, server.get("/data/plugin/scalars/tags").values())) < size:
            time.sleep(0.1)
        return {"names s": time.perf_counter() - began}


def make_trackio_families(size: int, folder: Path) -> None:
    """Log the same metrics with trackio."""
    os.environ["TRACKIO_DIR"] = str(folder)  # trackio reads it at import
    import trackio

    run = trackio.init(project=PROJECT, name="families", auto_log_cpu=False, auto_log_gpu=False, embed=False)
    for step in range(2):
        for n in range(size):
            run.log({f"family{n}/value": float(n)}, step=step)
    trackio.finish()


def measure_trackio_families(size: int, folder: Path) -> Numbers:
    """Measure how long trackio reads the rows of the run."""
    os.environ["TRACKIO_DIR"] = str(folder)
    from trackio.sqlite_storage import SQLiteStorage

    seconds, logs = wall_seconds(lambda: SQLiteStorage.get_logs(PROJECT, "families", max_points=None))
    assert len({name for row in logs for name in row if name.startswith("family")}) == size
    return {"rows s": seconds}


def make_ranks(size: int, folder: Path) -> None:
    """Write a run of many ranks with one row each."""
    import barograph

    run = barograph.init(dir=folder, project=PROJECT, id="ranks", rank=0)
    run.log({"loss": 1.0}, step=0)
    run.finish()
    content = (run.path / "trainer.0.1.0.seg").read_bytes()
    for rank in range(1, size):
        (run.path / f"trainer.{rank}.1.0.seg").write_bytes(content)


def measure_ranks(size: int, folder: Path) -> Numbers:
    """Measure ``barograph show``."""
    return _show(folder / PROJECT / "ranks")


def make_phases(size: int, folder: Path) -> None:
    """Write steps of a hundred nested phases each, and a run of one such step."""
    for id, steps in (("first", 1), ("phases", size // PHASES_PER_STEP)):
        write_phases(id, steps, folder)


def write_phases(id: str, steps: int, folder: Path) -> None:
    import barograph

    run = barograph.init(dir=folder, project=PROJECT, id=id, memory="none")
    for _ in range(steps):
        with run.phase("rollout"):
            for _ in range(PHASES_PER_STEP - 2):
                with run.timer("turn"):
                    pass
        with run.phase("train", tokens={"trained": 10}):
            pass
        run.log({"loss": 1.0})
        run.commit()
    run.finish()


def measure_phases(size: int, folder: Path) -> Numbers:
    """Measure the overview and the timeline of one step, and how the server's memory grows with them."""
    with serving(folder) as server:
        server.get("/api/runs/first/overview")  # imports what an overview needs
        before = server.mebibytes()
        paths = ("overview", "overview", "timeline?step=3")
        overview, again, step = (server.answer_seconds(f"/api/runs/phases/{path}") for path in paths)
        grown = server.mebibytes() - before
    return {
        "overview CPU s": overview,
        "again CPU s": again,
        "a step CPU s": step,
        "grown MiB": grown,
        "grown B a phase": grown * (1 << 20) / size,
    }


def make_samples(size: int, folder: Path) -> None:
    """Write samples of about a kilobyte, a thousand a step."""
    import barograph

    run = barograph.init(dir=folder, project=PROJECT, id="samples", samples_per_step=SAMPLES_PER_STEP)
    draw = random.Random(7)
    words = ["".join(draw.choices("etaoinshrdlucm", k=draw.randrange(2, 10))) for _ in range(5000)]
    for step in range(size // SAMPLES_PER_STEP):
        for n in range(SAMPLES_PER_STEP):
            text = " ".join(draw.choices(words, k=150))
            run.sample(f"question {n}", f"{text} answer {draw.randrange(1000)}", reward=draw.random(), step=step)
        run.commit(step)
    run.finish()


def measure_samples(size: int, folder: Path) -> Numbers:
    """Measure the first search, which makes the index, one that finds it, and one after a step that is new."""
    import barograph
    from barograph.journal.samples.query import Query

    path = folder / PROJECT / "samples"
    before = resident_mebibytes()
    first, _ = cpu_seconds(lambda: barograph.open(path).find_samples(Query(grep="answer 777"), 20))
    grown = peak_mebibytes() - before
    view = barograph.open(path)
    again, _ = cpu_seconds(lambda: view.find_samples(Query(min_reward=0.999), 20))
    regex, _ = cpu_seconds(lambda: view.find_samples(Query(regex=r"\b77[78]$"), 20))
    run = barograph.init(dir=folder, project=PROJECT, id="samples")
    run.sample("question", "answer", step=size)
    run.commit(size)
    view.refresh()
    new, _ = cpu_seconds(lambda: view.find_samples(Query(step=size), 20))
    run.finish()
    return {
        "first search CPU s": first,
        "grown MiB": grown,
        "by reward CPU s": again,
        "regex CPU s": regex,
        "after a new step CPU s": new,
    }


def measure_phase_names(size: int, folder: Path) -> Numbers:
    """Measure the memory of a training process that gives each phase another name."""
    import barograph

    run = barograph.init(dir=folder, project=PROJECT, id="names")
    with run.phase("first"):
        pass
    run.commit(0)
    before = resident_mebibytes()
    for n in range(size):
        with run.phase(f"phase {n}"):
            pass
        if n % 100 == 99:
            run.commit()
    grown = resident_mebibytes() - before
    run.finish()
    return {"grown MiB": grown}


ROWS = [
    Row(
        name="families",
        what="show a run with so many families of one metric",
        unit="families",
        sizes=(1000, 4000, 16_000),
        barograph=Subject(make_families, measure_families),
        should_be=(Under("show CPU s", 2.0), Linear("show CPU s", floor=0.5)),
        peers={
            "TensorBoard": Subject(make_event_families, measure_event_families),
            "trackio": Subject(make_trackio_families, measure_trackio_families),
        },
    ),
    Row(
        name="show_ranks",
        what="show a run of so many ranks",
        unit="ranks",
        sizes=(32, 128),
        full=(256, 4096),
        barograph=Subject(make_ranks, measure_ranks),
        should_be=(Flat("printed kB", factor=1.2),),
    ),
    Row(
        name="phases",
        what="the page of a run with so many phases",
        unit="phases",
        sizes=(50_000, 200_000),
        full=(100_000, 500_000),
        barograph=Subject(make_phases, measure_phases),
        should_be=(
            Linear("overview CPU s", floor=0.5),
            Under("a step CPU s", 0.5),
            Under("grown B a phase", 700.0),
        ),
    ),
    Row(
        name="samples",
        what="search a run with so many samples of a kilobyte",
        unit="samples",
        sizes=(20_000, 80_000),
        full=(100_000, 1_000_000),
        barograph=Subject(make_samples, measure_samples),
        should_be=(
            Linear("first search CPU s", floor=0.5),
            Flat("grown MiB", floor=32.0),
            Under("by reward CPU s", 1.0),
            Under("after a new step CPU s", 1.0),
        ),
    ),
    Row(
        name="phase_names",
        what="a training process with so many names of phases",
        unit="names",
        sizes=(5000, 20_000),
        full=(5000, 100_000),
        barograph=Subject(lambda size, folder: None, measure_phase_names),
        should_be=(Under("grown MiB", 32.0), Flat("grown MiB", floor=8.0)),
    ),
]
