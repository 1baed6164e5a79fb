"""Kill trainings, or the relays of running trainings, and count missing and duplicate values in their trackers.

``kill``: the training is killed with SIGKILL at a random step. ``restart``: processes of its relay are killed at random
moments while it continues. Every row whose ``log`` had returned must be in every tracker, by that project's own reader,
and every value once after the project's own merge. ``jsonl`` runs in the training process; after a kill
``barograph sync`` delivers its remaining rows.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import itertools
import json
import mmap
import os
import platform
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "delivery" / "relay")]

from kept import offer, relay_processes  # noqa: E402

import barograph  # noqa: E402
import readers  # noqa: E402
from barograph.apps.cli import main as barograph_command  # noqa: E402
from barograph.delivery.relay.state import read_delivery_state  # noqa: E402

QUICK = ("tensorboard", "jsonl", "marked")
OTHERS = ("wandb", "swanlab", "mlflow", "trackio", "prometheus")
KWARGS: dict[str, dict[str, Any]] = {
    "wandb": {"mode": "offline", "settings": {"x_disable_stats": True, "x_disable_meta": True}},
    "swanlab": {"mode": "offline", "settings": {"probe": {"monitor": False, "hardware": False}}},
    "prometheus": {"port": 0},
}
QUIET = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
NAMES = [f"actor/metric_{n}" for n in range(20)]
STEPS_BEFORE_KILL = {"mlflow": 200, "trackio": 400, "wandb": 400, "swanlab": 400}
PATIENCE = 240.0


def line(holds: bool, what: str, found: str) -> bool:
    """Print one line of the table and return whether it holds."""
    print(f"{'holds' if holds else 'FAILS'}  {what:<20} {found}", flush=True)
    return holds


def value(number: int, step: int) -> float:
    return number + step / 4  # exact in float32, as stored by TensorBoard


@dataclass
class Training:
    """A training in its own process that writes acknowledged steps to shared memory."""

    dir: Path
    id: str
    trackers: list[str]
    steps: int = 10**9
    pause: float = 0.0
    notes: mmap.mmap = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        noted = self.dir / f"{self.id}.notes"
        noted.write_bytes(bytes(8))
        with noted.open("r+b") as file:
            self.notes = mmap.mmap(file.fileno(), 8)
        kwargs = {name: dict(KWARGS.get(name, {})) for name in self.trackers}
        if "marked" in kwargs:
            kwargs["marked"]["path"] = str(self.dir / f"{self.id}.kept")
        spec = {"init": {"dir": str(self.dir), "id": self.id, "track_with": self.trackers, "tracker_kwargs": kwargs}}
        spec |= {"steps": self.steps, "pause": self.pause, "notes": str(noted)}
        self.process = subprocess.Popen([sys.executable, __file__, "--train", json.dumps(spec)])

    @property
    def acknowledged(self) -> int:
        """Return the number of acknowledged steps."""
        return int(struct.unpack_from("<q", self.notes)[0])

    @property
    def folder(self) -> Path:
        """Return the run's folder."""
        return self.dir / "default" / self.id

    def wait_for(self, step: int) -> None:
        """Wait until a step is acknowledged; raise where the training dies before."""
        until(lambda: self.acknowledged >= step or self.process.poll() is not None)
        if self.acknowledged < step:
            code = self.process.poll()
            raise SystemExit(f"{self.id} ended with {code} after {self.acknowledged} steps, before step {step}")

    def wait_for_end(self) -> None:
        """Wait until the training has finished."""
        code = self.process.wait()
        if code or self.acknowledged != self.steps:
            raise SystemExit(f"{self.id} ended with {code} after {self.acknowledged} of {self.steps} steps")

    def kill(self) -> None:
        """Kill the training."""
        self.process.kill()
        self.process.wait()


def train(spec: dict[str, Any]) -> None:
    """Train in this process."""
    import barograph.recording.run

    # Detect a dead relay sooner.
    barograph.base.process.background.MAINTENANCE_SECONDS = barograph.recording.run.HEARTBEAT_SECONDS = 0.2
    run = barograph.init(**spec["init"])
    with open(spec["notes"], "r+b") as file:
        notes = mmap.mmap(file.fileno(), 8)
    for step in range(spec["steps"]):
        run.log({name: value(number, step) for number, name in enumerate(NAMES)} | {"time/train/total": 1.0})
        run.commit(step)
        struct.pack_into("<q", notes, 0, step + 1)
        time.sleep(spec["pause"])
    run.finish(timeout=PATIENCE)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("it did not happen in time")
        time.sleep(0.002)


@dataclass
class Tally:
    """Counts of one tracker over all rounds."""

    rounds: int = 0
    rows: int = 0
    missing: int = 0
    wrong: int = 0
    doubled: int = 0
    unreadable: int = 0

    def add(self, acknowledged: int, read: Callable[[], readers.Series]) -> None:
        """Compare a tracker's data with the acknowledged steps."""
        self.rounds += 1
        self.rows += acknowledged
        try:
            series = read()
        except readers.DuplicateError:
            self.doubled += 1
            return
        except Exception as problem:  # noqa: BLE001 - whatever a reader says of it, it is counted
            print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
            self.unreadable += 1
            return
        for number, name in enumerate(NAMES):
            points = series.get(name, {})
            self.missing += sum(step not in points for step in range(acknowledged))
            self.wrong += sum(point != value(number, step) for step, point in points.items())

    def describe(self) -> str:
        """Return the counts as text."""
        counts = f"{self.missing} values missing, {self.wrong} wrong, {self.doubled} rounds with doubles"
        return f"{self.rounds:>3} rounds, {self.rows:>9,} rows: {counts}, {self.unreadable} unreadable"

    @property
    def holds(self) -> bool:
        """Return whether no problem was found."""
        return not self.missing + self.wrong + self.doubled + self.unreadable


def read_back(tracker: str, training: Training) -> readers.Series:
    """Read a finished run with the tracker project's own reader."""
    folder = training.folder
    if tracker == "tensorboard":
        return readers.tensorboard_series(Path(read_delivery_state(folder, tracker).url))
    if tracker == "jsonl":
        return readers.jsonl_series(folder / "metrics.jsonl")
    if tracker == "wandb":
        files = map(readers.wandb_history, readers.wandb_files(folder))
        return readers.wandb_series(itertools.chain.from_iterable(files))
    if tracker == "swanlab":
        return readers.swanlab_series(*readers.swanlab_files(folder))
    if tracker == "mlflow":
        return readers.mlflow_series(f"sqlite:///{folder / 'mlflow.db'}", training.id)
    if tracker == "trackio":
        return readers.trackio_series(readers.trackio_logs("default", training.id))
    return kept_series(training.dir / f"{training.id}.kept")


def kept_series(path: Path) -> readers.Series:
    found: readers.Series = {}
    for text in path.read_text().splitlines():
        step, values, _ = json.loads(text)
        for name in values:
            found.setdefault(name, readers.Once())[step] = values[name]
    return found


def end_of(training: Training) -> None:
    """Wait until the relay has exited; deliver in-process trackers with sync."""
    folder = training.folder.resolve()
    until(lambda: not relay_processes(folder))
    if "jsonl" in training.trackers:
        with contextlib.redirect_stdout(io.StringIO()):
            barograph_command(["sync", str(folder), "--to", "jsonl"])


def kill_round(dir: Path, trackers: list[str], id: str, chance: random.Random, tallies: dict[str, Tally]) -> int:
    """Kill a training at a random step and read its trackers; return the number of kills, 1."""
    most = min(STEPS_BEFORE_KILL.get(tracker, 3000) for tracker in trackers)
    training = Training(dir, id, trackers)
    training.wait_for(int(most ** chance.random()))
    if trackers == ["prometheus"]:
        with barograph.init(dir=dir, id=id, role="watcher"):  # keeps the endpoint open
            training.kill()
            check_endpoint(training, tallies["prometheus"])
        return 1
    training.kill()
    end_of(training)
    for tracker in trackers:
        tallies[tracker].add(training.acknowledged, lambda name=tracker: read_back(name, training))
    return 1


def check_endpoint(training: Training, tally: Tally) -> None:
    """Compare the endpoint's values with the last step; phase counts reveal duplicates."""
    folder, last = training.folder, training.acknowledged - 1
    tally.rounds += 1
    tally.rows += last + 1
    found: dict[str, float] = {}

    def shows_all() -> bool:
        with contextlib.suppress(OSError):
            url = read_delivery_state(folder, "prometheus").url
            found.clear()
            for sample in readers.prometheus_samples(url):
                if sample.labels.get("writer", "trainer/0") == "trainer/0":
                    found[sample.labels.get("name", sample.name)] = sample.value
        return found.get("barograph_run_step", -1) >= last

    try:
        until(shows_all)
    except TimeoutError:
        tally.missing += len(NAMES)
        return
    step = int(found["barograph_run_step"])
    tally.wrong += sum(found[name] != value(number, step) for number, name in enumerate(NAMES))
    tally.doubled += found["barograph_phase_seconds_count"] != step + 1


def restart_round(dir: Path, trackers: list[str], id: str, chance: random.Random, tallies: dict[str, Tally]) -> int:
    """Kill the relay's processes at random moments during a training; return the number of kills."""
    training = Training(dir, id, trackers, steps=1000, pause=0.002)
    training.wait_for(1)
    killed = 0
    for _ in range(chance.randint(1, 4)):
        time.sleep(chance.uniform(0.0, 0.8))
        pids = relay_processes(training.folder.resolve())
        for pid in chance.sample(pids, min(len(pids), chance.choice([1, 1, 1, len(pids)]))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    if trackers == ["prometheus"]:
        with barograph.init(dir=dir, id=id, role="watcher"):
            training.wait_for(training.steps)
            check_endpoint(training, tallies["prometheus"])
        training.wait_for_end()
        return killed
    training.wait_for_end()
    end_of(training)
    for tracker in trackers:
        tallies[tracker].add(training.acknowledged, lambda name=tracker: read_back(name, training))
    return killed


def groups(options: Namespace) -> Iterator[tuple[list[str], int]]:
    """Yield trackers and their number of rounds."""
    packages = {"prometheus": "prometheus_client", "jsonl": "json", "marked": "json"}
    installed = [name for name in (*QUICK, *OTHERS) if is_installed(packages.get(name, name))]
    yield [name for name in QUICK if name in installed], options.rounds
    for name in OTHERS:
        if name in installed:
            yield [name], options.few
        else:
            print(f"       {name}: not installed, not measured")


def is_installed(package: str) -> bool:
    """Return whether a package is installed."""
    return importlib.util.find_spec(package) is not None


def measure(part: str, options: Namespace, dir: Path) -> bool:
    """Run the rounds of a part with every group of trackers, and print the results."""
    chance, all_hold = random.Random(options.seed), True
    for names, rounds in groups(options):
        tallies = {name: Tally() for name in names}
        killed = sum(
            PARTS[part](dir, names, f"{part}-{names[0]}-{number}", chance, tallies) for number in range(rounds)
        )
        for name, tally in tallies.items():
            all_hold &= line(tally.holds and killed > 0, name, f"{tally.describe()}, {killed} kills")
    return all_hold


PARTS = {"kill": kill_round, "restart": restart_round}


def arguments() -> Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part (repeatable)")
    parser.add_argument("--rounds", type=int, default=50, help="rounds with files (default %(default)s)")
    parser.add_argument("--few", type=int, default=3, help="rounds with each other tracker (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless everything holds")
    parser.add_argument("--train", type=json.loads, help=argparse.SUPPRESS)  # run as this training
    return parser.parse_args()


@contextlib.contextmanager
def surroundings() -> Iterator[Path]:
    """Run all parts offline in a temporary directory, with file trackers registered under several names."""
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}")
    with tempfile.TemporaryDirectory(prefix="relay-", ignore_cleanup_errors=True) as scratch:
        site = Path(scratch) / "site"
        offer(site)
        with (site / "kept-1.0.dist-info" / "entry_points.txt").open("a") as points:
            points.writelines(f"file{n} = kept_trackers:Marked\n" for n in range(6))
        sys.path.insert(0, str(site))
        os.environ.update(QUIET, TRACKIO_DIR=f"{scratch}/trackio", HOME=scratch, TMPDIR=scratch)
        tempfile.tempdir = scratch  # MLflow leaves temporary directories behind, in this process and the relay's
        os.environ["PYTHONPATH"] = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
        yield Path(scratch)


def main() -> int:
    options = arguments()
    if options.train:
        train(options.train)
        return 0
    titles = {"kill": "The training is killed", "restart": "The relay's processes are killed"}
    all_hold = True
    with surroundings() as scratch:
        for part in options.only or PARTS:
            print(f"\n{titles[part]}")
            (scratch / part).mkdir()
            all_hold &= measure(part, options, scratch / part)
    return int(options.strict and not all_hold)


if __name__ == "__main__":
    sys.exit(main())
