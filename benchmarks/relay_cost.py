"""Cost of trackers for the training, and cost of delivery for the relay.

``trouble``: a log call with a tracker that fails in various ways. ``number``: the cost of one, three and six trackers
for the training process. ``speed``: from the journal to TensorBoard by a delivery process, compared with torch.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trackers as tensorboard_cost
from relay import is_installed, line, relay_processes, surroundings

import barograph
from barograph.delivery.relay.state import read_delivery_state
from barograph.journal.format.folder import new_run_id

TROUBLES = {
    "out of reach": "raises at start",
    "raises": "raises at every log",
    "sleeps": "hangs for a minute",
    "leaves": "exits at every log",
}
P50_BAR, P99_BAR, CPU_BAR = 1.2, 1.5, 1.2


@dataclass(frozen=True, slots=True)
class Cost:
    """Costs of a training process."""

    p50: float  # seconds per log of 150 values
    p99: float
    cpu: float  # seconds per step, all threads
    state: str = ""
    others: int = 0  # working trackers with pending rows at the end

    @classmethod
    def least(cls, costs: list[Cost]) -> Cost:
        """Return the best times of several tries; trackers with pending rows in any try count."""
        best = min(costs, key=lambda cost: cost.cpu)
        others = max(c.others for c in costs)
        return cls(min(c.p50 for c in costs), min(c.p99 for c in costs), best.cpu, best.state, others)

    def describe(self) -> str:
        """Return the costs as text."""
        return f"p50 {self.p50 * 1e6:5.1f} µs  p99 {self.p99 * 1e6:6.1f} µs  CPU {self.cpu * 1e6:6.1f} µs/step"


def paid(spec: dict[str, Any]) -> dict[str, Any]:
    """Train in this process and measure the log calls, with a heartbeat ten times faster than the default."""
    import barograph.recording.run

    barograph.recording.run.HEARTBEAT_SECONDS = 1.0
    run = barograph.init(**spec["init"])
    row = dict.fromkeys(tensorboard_cost.names(150), 0.5)
    took, began = [], time.process_time()
    for step in range(spec["steps"]):
        start = time.perf_counter()
        run.log(row, step=step)
        took.append(time.perf_counter() - start)
        time.sleep(0.002)
    cpu = (time.process_time() - began) / spec["steps"]
    run.finish(timeout=5.0)
    states = {name: read_delivery_state(run.path, name) for name in spec["init"]["track_with"]}
    ill = states.pop("kept", None)
    behind = sum(state.state != "done" for state in states.values())
    for pid in relay_processes(run.path.resolve()):
        os.kill(pid, signal.SIGKILL)
    cuts = statistics.quantiles(took, n=100)
    state = f"{ill.state}: {ill.error}" if ill else ""
    return {"p50": cuts[49], "p99": cuts[98], "cpu": cpu, "state": state, "others": behind}


def paid_apart(dir: Path, names: list[str], trouble: str, options: Namespace) -> Cost:
    id = new_run_id()
    kwargs: dict[str, Any] = {name: {"path": str(dir / f"{id}.{name}")} for name in names}
    if trouble:
        kwargs["kept"]["trouble"] = trouble
    init = {"dir": str(dir), "id": id, "track_with": names, "tracker_kwargs": kwargs}
    command = [sys.executable, __file__, "--pay", json.dumps({"init": init, "steps": options.steps})]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def compare(cases: dict[str, tuple[list[str], str]], dir: Path, options: Namespace) -> dict[str, Cost]:
    """Measure the cases in turn, so that all run under the same load; the best of each counts."""
    found: dict[str, list[Cost]] = {case: [] for case in cases}
    for _ in range(options.repeats):
        for case, (names, trouble) in cases.items():
            found[case].append(paid_apart(dir, names, trouble, options))
    return {case: Cost.least(costs) for case, costs in found.items()}


def measure_trouble(options: Namespace, dir: Path) -> bool:
    """Compare failing trackers with no tracker."""
    print(f"\nlog() of 150 values with one failing and one working tracker; minimum of {options.repeats} tries")
    cases: dict[str, tuple[list[str], str]] = {"none": ([], "")}
    cases |= {what: (["kept", "marked"], word) for word, what in TROUBLES.items()}
    found = compare(cases, dir, options)
    base = found.pop("none")
    print(f"       {'no tracker':<20} p50 {base.p50 * 1e6:5.1f} µs  p99 {base.p99 * 1e6:6.1f} µs")
    all_hold = True
    for what, cost in found.items():
        p50, p99 = cost.p50 / base.p50, cost.p99 / base.p99
        numbers = f"p50 {cost.p50 * 1e6:5.1f} µs  p99 {cost.p99 * 1e6:6.1f} µs  ratios {p50:.2f}, {p99:.2f}"
        holds = p50 <= P50_BAR and p99 <= P99_BAR and not cost.others
        all_hold &= line(holds, what, f"{numbers}; {cost.others} others behind; {cost.state}")
    return all_hold


def measure_number(options: Namespace, dir: Path) -> bool:
    """Compare numbers of trackers."""
    print(f"\nCost for the training process by number of trackers; minimum of {options.repeats} tries")
    cases = {str(count): ([f"file{n}" for n in range(count)], "") for count in (0, 1, 3, 6)}
    found = compare(cases, dir, options)
    base = found.pop("0")
    print(f"       {'0 trackers':<20} {base.describe()}")
    all_hold = True
    for count, cost in found.items():
        p50, p99, cpu = cost.p50 / base.p50, cost.p99 / base.p99, cost.cpu / base.cpu
        holds = p50 <= P50_BAR and p99 <= P99_BAR and cpu <= CPU_BAR
        all_hold &= line(holds, f"{count} trackers", f"{cost.describe()}  ratios {p50:.2f}, {p99:.2f}, {cpu:.2f}")
    return all_hold


def carry(spec: dict[str, Any]) -> dict[str, Any]:
    """Deliver a finished run to TensorBoard in this process."""
    from barograph.delivery.relay.delivery import Delivery
    from barograph.delivery.relay.supervisor import run_end

    folder = Path(spec["folder"])
    delivery = Delivery(folder, "tensorboard", {"log_dir": spec["log_dir"]}, lambda: run_end(folder))
    began = time.process_time()
    state = delivery.deliver()
    return {"cpu": time.process_time() - began, "delivered": state.delivered}


def measure_speed(options: Namespace, dir: Path) -> bool:
    """Compare the delivery process with torch's SummaryWriter."""
    rows = 10 * options.steps
    print(f"\nFrom the journal to TensorBoard: {rows:,} rows of 150 values, CPU time of the delivery process")
    with barograph.init(dir=dir, id="speed") as run:
        for step, values in enumerate(itertools.islice(itertools.cycle(tensorboard_cost.steps(100, 150)), rows)):
            run.log(values, step=step)
    tries = []
    for number in range(options.repeats):
        spec = {"folder": str(run.path), "log_dir": str(dir / f"tb-{number}")}
        done = subprocess.run(
            [sys.executable, __file__, "--carry", json.dumps(spec)], capture_output=True, text=True, check=True
        )
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["delivered"] == rows
        tries.append(found["cpu"] / rows)
    ours = min(tries)
    print(f"       {'barograph':<20} {ours * 1e6:6.0f} µs/row  {1 / ours:,.0f} rows/s")
    if not (is_installed("torch") and is_installed("tensorboard")):
        print("       torch SummaryWriter: not installed, not measured")
        return True
    theirs = tensorboard_cost.measure_apart("torch", Namespace(steps=300, values=150, repeats=options.repeats)).cpu
    ratio = theirs / ours
    told = f"{theirs * 1e6:6.0f} µs/row; the courier takes {ratio:.0f} x less, at least {tensorboard_cost.BAR:g}"
    return line(ratio >= tensorboard_cost.BAR, "torch SummaryWriter", told)


PARTS: dict[str, Callable[[Namespace, Path], bool]] = {
    "trouble": measure_trouble,
    "number": measure_number,
    "speed": measure_speed,
}
ROLES: dict[str, Callable[[dict[str, Any]], Any]] = {"pay": paid, "carry": carry}


def arguments() -> Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part (repeatable)")
    parser.add_argument("--steps", type=int, default=1500, help="steps of a measured training (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="tries, of which the best counts (default %(default)s)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless everything holds")
    for role in ROLES:  # run as this process
        parser.add_argument(f"--{role}", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    for role, run_role in ROLES.items():
        if (spec := getattr(options, role)) is not None:
            print(json.dumps(run_role(spec)))
            return 0
    all_hold = True
    with surroundings() as scratch:
        for part in options.only or PARTS:
            (scratch / part).mkdir()
            all_hold &= PARTS[part](options, scratch / part)
    return int(options.strict and not all_hold)


if __name__ == "__main__":
    sys.exit(main())
