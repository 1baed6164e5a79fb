"""Cost of a phase, and accuracy of its GPU readings.

On the CPU: an empty phase with both of its journal frames, without memory and with the process's memory. With a CUDA
device also: a phase with all four device readings, whether anything synchronises, the bytes at the four moments of a
2 GB model that is loaded, used and offloaded, and the device's time against the host's around a synchronised device.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import barograph

GIB = 2.0**30


def microseconds(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of one call."""
    for _ in range(repeats // 10):
        work()
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1e6)
    taken.sort()
    return taken[len(taken) // 2], taken[int(len(taken) * 0.99)]


def passing(run: barograph.Run, **options: Any) -> Callable[[], None]:
    def work() -> None:
        with run.phase("actor_train/train_step", **options):
            pass

    return work


def say(what: str, value: str, limit: str = "", holds: bool | None = None) -> bool:
    word = "" if holds is None else "holds" if holds else "FAILS"
    print(f"{word:<7}{what:<52}{value:>16}  {limit}".rstrip())
    return holds is not False


def on_cpu(repeats: int) -> list[bool]:
    held = []
    for memory, what, bar in (("none", "an empty phase", 25.0), ("cpu", "with the memory of the process", 80.0)):
        run = barograph.init(memory=memory)
        median, high = microseconds(passing(run), repeats)
        held.append(say(what, f"{median:.1f} µs", f"at most {bar:g} µs; p99 {high:.1f}", median <= bar))
        run.commit(0)
        run.finish()
    run = barograph.init(memory="none")
    median, _ = microseconds(lambda: _enter(run.timer("adv")), repeats)
    run.finish()
    say("a timer", f"{median:.1f} µs")
    say("a commit of 20 phases with memory", f"{_commit_cost():.0f} µs")
    return held


def _enter(phase: Any) -> None:
    with phase:
        pass


def _commit_cost() -> float:
    run = barograph.init(memory="cpu")
    taken = []
    for step in range(200):
        for n in range(20):
            with run.phase(f"cluster/phase-{n}"):
                pass
        began = time.perf_counter()
        run.commit(step)
        taken.append((time.perf_counter() - began) * 1e6)
    run.finish()
    return statistics.median(taken)


def snapshots(torch: Any, repeats: int) -> list[bool]:
    """Measure a phase with four readings of one device, against the four getters that frameworks call."""
    torch.zeros(1, device="cuda")
    run = barograph.init(memory="all")
    work = passing(run, onload=lambda: None, offload=lambda: None)
    median, high = microseconds(work, repeats)
    held = [say("a phase with four snapshots", f"{median:.1f} µs", f"at most 150 µs; p99 {high:.1f}", median <= 150)]
    cuda = torch.cuda
    getters = (cuda.memory_allocated, cuda.memory_reserved, cuda.max_memory_allocated, cuda.max_memory_reserved)
    plain, _ = microseconds(lambda: [read() for _ in range(4) for read in getters], repeats // 10 + 1)
    say("four snapshots by four getters each", f"{plain:.1f} µs")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    torch.cuda._sleep(2_000_000_000)
    busy = torch.cuda.Event()
    busy.record()
    work()
    waited = busy.query()
    torch.cuda.set_sync_debug_mode("default")
    held.append(say("nothing waits for a busy device", "waited" if waited else "no wait", "", not waited))
    torch.cuda.synchronize()
    run.finish()
    return held


def moments(torch: Any) -> list[bool]:
    """Load, use and offload a model of 2 GiB and compare the readings with the known sizes."""
    layers = [torch.zeros(4096, 8192) for _ in range(16)]
    size = sum(layer.numel() * 4 for layer in layers)
    kept: list[Any] = []
    on_device: list[Any] = []
    run = barograph.init()
    warm = torch.ones(512, 8192, device="cuda")
    warm @ warm.T  # allocate the workspaces of matrix products first
    del warm
    base = torch.cuda.memory_allocated()

    def load() -> None:
        on_device.extend(layer.cuda() for layer in layers)

    def compute() -> None:
        x = torch.ones(8192, 8192, device="cuda")  # 256 MiB
        kept.append(torch.cat([x[:512] @ layer.T for layer in on_device], 1).clone())  # 128 MiB
        scratch = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
        del scratch, x

    with run.phase("actor_train/train_step", onload=load, offload=on_device.clear):
        compute()
    run.commit(0)
    view = barograph.open(run.path)
    [kept_size] = [tensor.numel() * 4 for tensor in kept]
    peak = size + (256 << 20) + kept_size + (1 << 29)
    expected = {
        "start/offload/allocated": 0,
        "start/onload/allocated": size,
        "end/onload/allocated": size + kept_size,
        "end/onload/max_allocated": peak,
        "end/offload/allocated": kept_size,
    }
    held = []
    prefix = "memory/actor_train/train_step/"
    for moment, bytes_expected in expected.items():
        [name] = view.names(f"{prefix}{moment}/*")
        found = view.series(name).last * GIB - base
        error = abs(found - bytes_expected) / max(bytes_expected, size)
        text = f"expected {bytes_expected / 1e6:,.1f} MB: {error:.2%} off"
        held.append(say(moment, f"{found / 1e6:,.1f} MB", text, error <= 0.01))
    for name in view.names(f"{prefix}*"):
        say(name, f"{view.series(name).last:.4f}")
    run.finish()
    return held


def clocks(torch: Any) -> list[bool]:
    """Compare the device's time of a phase with the host's around a synchronised device."""
    a = torch.randn(8192, 8192, device="cuda")
    run = barograph.init()

    def compute() -> None:
        for _ in range(40):
            torch.mm(a, a)

    compute()
    hosts = []
    for step in range(7):
        torch.cuda.synchronize()
        began = time.perf_counter()
        with run.phase("work", clock="device"):
            compute()
        torch.cuda.synchronize()
        hosts.append(time.perf_counter() - began)
        run.commit(step)
    run.finish()
    spans = barograph.open(run.path).phases()
    assert all(span.clock == "device" for span in spans)
    errors = [abs((span.execute or math.nan) - host) / host for span, host in zip(spans, hosts, strict=True)]
    value = f"{statistics.median(span.execute or math.nan for span in spans) * 1e3:.2f} ms"
    text = f"host, synchronised: {statistics.median(hosts) * 1e3:.2f} ms; {statistics.median(errors):.2%} off"
    return [say("a phase by the device's clock", value, text, statistics.median(errors) <= 0.02)]


def main() -> int:
    """Run the measurements that this machine supports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless every bar holds")
    parser.add_argument("--repeats", type=int, default=20_000, help="spans per median")
    parser.add_argument("--cpu", action="store_true", help="skip the GPU")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BAROGRAPH_DIR"] = folder
        print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")
        held = on_cpu(options.repeats)
        if not options.cpu:
            try:
                import torch
            except ImportError:
                torch = None  # type: ignore[assignment]
            if torch is not None and torch.cuda.is_available():
                print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}")
                held += [*snapshots(torch, options.repeats // 10), *moments(torch), *clocks(torch)]
    return int(options.strict and not all(held))


if __name__ == "__main__":
    sys.exit(main())
