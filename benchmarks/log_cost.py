"""Cost of one log call: barograph and other trackers, in one run.

Each tracker logs the same rows from a new process, to a new folder, offline, with telemetry and hardware metrics off.
NumPy and torch are imported before the clock starts, as in a training process. The work of a tracker's threads and
other processes is not part of its log call; finishing the run is timed separately.

With a CUDA device, a second table has the host's time of logging scalars that are on it, on an idle stream and behind
a busy one: it must not wait for the device.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import random
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Log = Callable[[dict[str, Any], int], object]
Finish = Callable[[], object]

FAMILIES = ("actor", "critic", "rollout", "time", "system")
FOREIGN_SETTINGS = ("AIM_", "HF_", "MLFLOW_", "SWANLAB_", "TRACKIO_", "WANDB_", "BAROGRAPH_")
OFFLINE = {
    "DO_NOT_TRACK": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "SWANLAB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
}
HEADS = ("steps", "import+init s", "p50 µs", "p99 µs", "values/s", "finish s", "bytes/value", "p50 ratio")
CUDA_SCALARS = 20
CUDA_ROWS = 300
CUDA_LIMIT = 132e-6  # half of what it was: 265 µs on an H200
STUCK_SECONDS = 300.0  # beyond --patience: a tracker that takes longer to start and finish has hung


@dataclass(frozen=True, slots=True)
class Contender:
    """One line of the table: how to start a tracker, and the rows to log."""

    label: str
    needs: tuple[str, ...]  # required modules; the shown version is that of the last one
    begin: Callable[[Path], tuple[Log, Finish]]
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """Measurements of one tracker; times in seconds."""

    steps: int
    begin: float
    p50: float
    p99: float
    values_per_second: float  # over the time inside log calls
    finish: float
    bytes_per_value: float = math.nan


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar and its result. ``holds`` is None where a measurement is missing."""

    text: str
    got: str
    holds: bool | None


def begin_barograph(folder: Path) -> tuple[Log, Finish]:
    import barograph

    run = barograph.init(project="bench", name="bench", dir=folder)
    return run.log, run.finish


def begin_trackio(folder: Path) -> tuple[Log, Finish]:
    os.environ["TRACKIO_DIR"] = str(folder)  # trackio reads it at import
    import trackio

    run = trackio.init(project="bench", name="bench", auto_log_cpu=False, auto_log_gpu=False, embed=False)
    return run.log, run.finish


def begin_swanlab(folder: Path) -> tuple[Log, Finish]:
    import swanlab

    settings = swanlab.Settings(probe={"monitor": False})
    run = swanlab.init(project="bench", name="bench", mode="offline", log_dir=str(folder), settings=settings)
    return run.log, run.finish


def begin_wandb(folder: Path) -> tuple[Log, Finish]:
    import wandb

    settings = wandb.Settings(x_disable_stats=True, console="off", silent=True)
    run = wandb.init(project="bench", name="bench", mode="offline", dir=folder, settings=settings)
    return run.log, run.finish


def begin_tensorboard(folder: Path) -> tuple[Log, Finish]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(log_dir=str(folder))

    def log(values: dict[str, Any], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return log, writer.close


def begin_mlflow(folder: Path) -> tuple[Log, Finish]:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment("bench")
    mlflow.start_run(run_name="bench", log_system_metrics=False)
    return mlflow.log_metrics, mlflow.end_run


def begin_aim(folder: Path) -> tuple[Log, Finish]:
    import aim

    quiet = {"system_tracking_interval": None, "capture_terminal_logs": False}
    run = aim.Run(repo=str(folder), experiment="bench", **quiet)

    def log(values: dict[str, Any], step: int) -> None:
        run.track(values, step=step)

    return log, run.close


CONTENDERS = {
    "barograph": Contender("barograph", ("barograph",), begin_barograph),
    "barograph-mixed": Contender("barograph, mixed row", ("numpy", "torch", "barograph"), begin_barograph, True),
    "trackio": Contender("trackio", ("trackio",), begin_trackio),
    "swanlab": Contender("SwanLab offline", ("swanlab",), begin_swanlab),
    "wandb": Contender("W&B offline", ("wandb",), begin_wandb),
    "tensorboard": Contender("torch SummaryWriter", ("tensorboard", "torch"), begin_tensorboard),
    "mlflow": Contender("MLflow sqlite", ("mlflow",), begin_mlflow),
    "aim": Contender("Aim", ("aim",), begin_aim),
}
PEERS = tuple(name for name in CONTENDERS if not name.startswith("barograph"))


def metric_names(count: int) -> list[str]:
    return [f"{FAMILIES[i % len(FAMILIES)]}/metric_{i:03d}/mean" for i in range(count)]


def rows(names: Sequence[str], count: int, mixed: bool) -> Iterator[dict[str, Any]]:
    """Yield a row per step: Python floats, or alternating Python, NumPy and torch scalars."""
    kinds: list[Callable[[float], Any]] = [float]
    if mixed:
        import numpy
        import torch

        kinds += [numpy.float32, torch.tensor]
    draw = random.Random(0).random
    makers = [(name, kinds[i % len(kinds)]) for i, name in enumerate(names)]
    for _ in range(count):
        yield {name: make(draw()) for name, make in makers}


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile of sorted values."""
    return ordered[math.ceil(share * len(ordered)) - 1]


def load_what_trainings_have() -> None:
    for module in ("numpy", "torch"):
        if importlib.util.find_spec(module):
            importlib.import_module(module)


def measure(contender: Contender, folder: Path, steps: int, values: int, patience: float) -> Cost:
    """Log the steps, or fewer where that takes longer than ``patience`` seconds."""
    load_what_trainings_have()
    clock = time.perf_counter
    began = clock()
    log, finish = contender.begin(folder)
    ready = clock()
    spent = []
    for step, row in enumerate(rows(metric_names(values), steps, contender.mixed)):
        before = clock()
        log(row, step)
        after = clock()
        spent.append(after - before)
        if after - ready > patience:
            break
    ending = clock()
    finish()
    ended = clock()
    total, ordered = sum(spent), sorted(spent)
    speed = len(spent) * values / total
    p50, p99 = percentile(ordered, 0.50), percentile(ordered, 0.99)
    return Cost(len(spent), ready - began, p50, p99, speed, ended - ending)


def measure_here(options: argparse.Namespace) -> None:
    """Measure one tracker in this process and write the result beside the data."""
    data = options.out / "data"
    data.mkdir()
    os.chdir(data)  # files in the working directory count too
    cost = measure(CONTENDERS[options.one], data, options.steps, options.values, options.patience)
    (options.out / "cost.json").write_text(json.dumps(asdict(cost)))


def environment(home: Path) -> dict[str, str]:
    """Return an environment without user settings, in which trackers are offline."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN_SETTINGS)}
    # MLflow leaves temporary directories behind.
    temporary = home / "tmp"
    temporary.mkdir(exist_ok=True)
    return {**kept, **OFFLINE, "HOME": str(home), "TMPDIR": str(temporary), "PYTHONUSERBASE": site.getuserbase()}


def measure_apart(name: str, steps: int, values: int, patience: float) -> Cost | str:
    """Measure one tracker in a new process; return the error where that fails."""
    with tempfile.TemporaryDirectory(prefix="log-cost-", ignore_cleanup_errors=True) as scratch:
        out = Path(scratch)
        home = out / "home"
        home.mkdir()
        command = [sys.executable, __file__, "--one", name, "--out", scratch]
        command += ["--steps", str(steps), "--values", str(values), "--patience", str(patience)]
        limit = patience + STUCK_SECONDS
        try:
            done = subprocess.run(
                command,
                env=environment(home),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return f"failed: not done after {limit:g} s"
        if done.returncode:
            return f"failed: {(done.stderr.strip() or f'exit code {done.returncode}').splitlines()[-1]}"
        cost = json.loads((out / "cost.json").read_text())
        cost["bytes_per_value"] = stored_bytes(out / "data") / (cost["steps"] * values)
        return Cost(**cost)


def stored_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def contest(names: Iterable[str], options: argparse.Namespace) -> Iterator[tuple[str, Cost | str]]:
    """Measure the trackers one after the other, after two warm-up steps each that fill the file cache."""
    for name in names:
        if not all(importlib.util.find_spec(module) for module in CONTENDERS[name].needs):
            yield name, "not installed"
            continue
        print(f"  {name} …", file=sys.stderr, flush=True)
        measure_apart(name, 2, options.values, options.patience)
        yield name, measure_apart(name, options.steps, options.values, options.patience)


def title(name: str) -> str:
    contender = CONTENDERS[name]
    try:
        return f"{contender.label} {importlib.metadata.version(contender.needs[-1])}"
    except importlib.metadata.PackageNotFoundError:  # not installed, or run from its source
        return contender.label


def table(results: dict[str, Cost | str]) -> str:
    lines = [f"{'tracker':32}" + "".join(f"{head:>15}" for head in HEADS)]
    ours = results.get("barograph")
    for name, cost in results.items():
        if isinstance(cost, str):
            lines.append(f"{title(name):32}  {cost}")
            continue
        ratio = f"{cost.p50 / ours.p50:,.1f}" if isinstance(ours, Cost) else "-"
        cells = (
            f"{cost.steps:,}", f"{cost.begin:.3f}", f"{cost.p50 * 1e6:,.1f}", f"{cost.p99 * 1e6:,.1f}",
            f"{cost.values_per_second:,.0f}", f"{cost.finish:.3f}", f"{cost.bytes_per_value:.1f}", ratio,
        )  # fmt: skip
        lines.append(f"{title(name):32}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines)


def at_most(text: str, got: float, limit: float, show: Callable[[float], str]) -> Bar:
    if math.isnan(got) or math.isnan(limit):
        return Bar(text, "", None)
    return Bar(text, f"{show(got)}, at most {show(limit)}", got <= limit)


def at_least(text: str, got: float, limit: float, show: Callable[[float], str]) -> Bar:
    if math.isnan(got):
        return Bar(text, "", None)
    return Bar(text, f"{show(got)}, at least {show(limit)}", got >= limit)


def bars(results: dict[str, Cost | str]) -> list[Bar]:
    """Compare barograph with its bars; the best peer is chosen per column."""
    measured = {name: cost for name, cost in results.items() if isinstance(cost, Cost)}

    def ours(column: str, name: str = "barograph") -> float:
        return getattr(measured[name], column) if name in measured else math.nan

    def best(column: str) -> float:
        return min((getattr(measured[name], column) for name in PEERS if name in measured), default=math.nan)

    micros, seconds = (lambda s: f"{s * 1e6:,.1f} µs"), (lambda s: f"{s:.3f} s")
    mixed = ours("p50", "barograph-mixed")
    return [
        at_most("p50: 1/10 of the best peer's", ours("p50"), best("p50") / 10, micros),
        at_most("p99: 1/10 of the best peer's", ours("p99"), best("p99") / 10, micros),
        at_least("5 million values a second", ours("values_per_second"), 5e6, "{:,.0f}".format),
        at_most("10 bytes a value", ours("bytes_per_value"), 10.0, "{:.2f}".format),
        at_most("p50, mixed row: 2/10 of the best peer's", mixed, best("p50") / 5, micros),
        at_most("import and init: faster than every peer's", ours("begin"), best("begin"), seconds),
    ]


def measure_cuda() -> tuple[float, float] | None:
    """Return the median seconds of a log call of CUDA scalars, on an idle and behind a busy stream."""
    if not importlib.util.find_spec("torch"):
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    import barograph

    names = metric_names(CUDA_SCALARS)
    with tempfile.TemporaryDirectory(prefix="log-cost-") as scratch:
        run = barograph.init(dir=scratch)
        medians = []
        for busy in (False, True):
            spent = []
            for step in range(CUDA_ROWS):
                row = dict(zip(names, torch.rand(CUDA_SCALARS, device="cuda").unbind(), strict=True))
                torch.cuda.synchronize()
                if busy:
                    torch.cuda._sleep(2_000_000)  # about a millisecond: longer than the call
                before = time.perf_counter()
                run.log(row)
                spent.append(time.perf_counter() - before)
                run.commit(step + busy * CUDA_ROWS)
            medians.append(percentile(sorted(spent), 0.50))
        run.finish()
    return medians[0], medians[1]


def print_cuda() -> list[Bar]:
    """Print the cost of logging CUDA scalars; return its bar."""
    found = measure_cuda()
    if found is None:
        print(f"{CUDA_SCALARS} CUDA scalars: not measured, there is no CUDA device\n")
        return []
    import torch

    print(f"{CUDA_SCALARS} CUDA scalars, one log call, {torch.cuda.get_device_name()}, torch {torch.__version__}")
    for label, seconds in zip(("idle stream", "busy stream"), found, strict=True):
        print(f"{label:32}{seconds * 1e6:>15,.1f} µs (p50 of {CUDA_ROWS})")
    print()
    text = f"{CUDA_SCALARS} CUDA scalars behind a busy stream, p50"
    return [at_most(text, found[1], CUDA_LIMIT, lambda s: f"{s * 1e6:,.1f} µs")]


def verdict(bar: Bar) -> str:
    word = {True: "holds", False: "FAILS", None: "not measured"}[bar.holds]
    return f"{word:12}  {bar.text:43} {bar.got}".rstrip()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure the cost of log calls, of barograph and of other trackers, and print one table.",
        epilog="example: log_cost.py --only barograph --only trackio --steps 200",
    )
    parser.add_argument("--steps", type=int, default=1000, help="rows to log (default %(default)s)")
    parser.add_argument("--values", type=int, default=150, help="values in a row (default %(default)s)")
    parser.add_argument(
        "--patience",
        type=float,
        default=30.0,
        metavar="S",
        help="stop logging to a tracker after so many seconds, at fewer steps (default %(default)g)",
    )
    parser.add_argument("--only", action="append", choices=CONTENDERS, help="only this tracker (repeatable)")
    parser.add_argument("--cuda", action="store_true", help="only CUDA scalars, without other trackers")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless every bar holds")
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)  # run as this tracker's process
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if min(options.steps, options.values) < 1:
        parser.error("--steps and --values must be at least 1")
    return options


def main() -> int:
    options = arguments()
    if options.one:
        measure_here(options)
        return 0
    if options.cuda:
        judged = print_cuda()
        print("\n".join(verdict(bar) for bar in judged))
        return int(options.strict and not all(bar.holds for bar in judged))
    results = dict(contest(options.only or CONTENDERS, options))
    print(f"{options.steps:,} steps of {options.values} values, one log call each")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}\n")
    print(table(results), end="\n\n")
    judged = bars(results) + print_cuda()
    print("\n".join(verdict(bar) for bar in judged))
    return int(options.strict and not all(bar.holds for bar in judged))


if __name__ == "__main__":
    sys.exit(main())
