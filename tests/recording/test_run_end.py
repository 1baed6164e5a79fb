"""Tests of how a run ends: after an error of the device, by an exit code, and by SIGTERM."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import barograph
from barograph.base.model import Problem
from barograph.base.scalars import Deferred

DEVICE_ERROR = "CUDA error: an illegal memory access was encountered"


class FailedCopy(Deferred):
    """Values on a device that has failed: every question raises, as CUDA's sticky errors do."""

    def __init__(self) -> None:
        super().__init__(())

    def ready(self) -> bool:
        raise RuntimeError(DEVICE_ERROR)

    def values(self) -> list[float]:
        raise RuntimeError(DEVICE_ERROR)


class ArrivedCopy(FailedCopy):
    """A value that has arrived."""

    def ready(self) -> bool:
        return True

    def values(self) -> list[float]:
        return [7.0]


def defer(run: barograph.Run, *copies: Deferred) -> None:
    """Let a run wait for values of a device, each under the name of its place."""
    rows = run._collectors.device_values._rows
    rows.extend(((f"v{place}",), None, time.time(), copy) for place, copy in enumerate(copies))


def test_a_device_value_that_raises_costs_only_itself():
    """The values beside it belong to the commit that follows them, not to the next one."""
    run = barograph.init()
    defer(run, FailedCopy(), ArrivedCopy(), FailedCopy(), ArrivedCopy())
    run.commit(3)
    run.commit(4)
    run.finish()
    view = barograph.open(run.path)
    assert [view.series(name).steps.tolist() for name in ("v1", "v3")] == [[3], [3]]
    assert Problem("copy of device values", f"RuntimeError: {DEVICE_ERROR}", 2) in view.problems()


def test_bytes_reach_the_disk_after_a_device_error(monkeypatch: pytest.MonkeyPatch):
    """The work of every second goes on: a failed device value does not come before the sync for ever."""
    run = barograph.init()
    assert run._background is not None
    run._background.stop()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    defer(run, FailedCopy())
    run._maintain()
    assert synced


def test_the_trainings_own_error_is_the_status_after_a_device_error():
    """The finish event, the last samples and the counters are written although every collector's device raises."""
    run = barograph.init()
    with pytest.raises(ZeroDivisionError), run:
        run.sample("prompt", "completion", reward=1.0)
        run._collectors.counters._deferred += [(("tokens",), FailedCopy()), (("tokens",), ArrivedCopy())]
        defer(run, FailedCopy())
        run.commit(2)
        run.sample("prompt", "completion", reward=0.0)
        defer(run, FailedCopy())
        _ = 1 / 0
    view = barograph.open(run.path)
    assert view.status == barograph.Status("crashed", "ZeroDivisionError: division by zero")
    assert [sample.step for sample in view.samples()] == [2, 3]
    assert view.series("tokens").values.tolist() == [7.0]


def test_the_end_is_recorded_whatever_fails_before_it(monkeypatch: pytest.MonkeyPatch):
    """A failure while the rest is collected is a problem; it does not replace the status."""
    run = barograph.init()

    def fail() -> list[int | None]:
        raise RuntimeError(DEVICE_ERROR)

    monkeypatch.setattr(run._collectors, "uncommitted_steps", fail)
    run.finish(barograph.Status("crashed", "OOM"))
    view = barograph.open(run.path)
    assert view.status == barograph.Status("crashed", "OOM")
    assert Problem("run.finish", f"RuntimeError: {DEVICE_ERROR}", 1) in view.problems()


@contextmanager
def training(code: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run code as a script of its own, with its runs below ``tmp_path``, after it has written a line."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(code))
    environment = {**os.environ, "BAROGRAPH_DIR": str(tmp_path / "runs")}
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as it:
        assert it.stdout is not None
        it.stdout.readline()
        yield it


ENDINGS = {
    "sys.exit(1)": ("crashed", "SystemExit: 1"),
    "sys.exit('fatal')": ("crashed", "SystemExit: fatal"),
    "sys.exit(0)": ("finished", ""),
    "sys.exit()": ("finished", ""),
    "exit(3)": ("crashed", "SystemExit: 3"),
    "quit('fatal')": ("crashed", "SystemExit: fatal"),
    "exit()": ("finished", ""),
    "try: exit(2)\nexcept SystemExit: pass": ("finished", ""),
    "try: sys.exit(2)\nexcept SystemExit: pass": ("finished", ""),
    "threading.Thread(target=sys.exit, args=(1,)).start()": ("finished", ""),
    "sys.exit(1) if run.step else sys.exit(print())": ("finished", ""),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_exit_code_is_the_status(ending: str, tmp_path: Path):
    """A script that ends with an error code, or with a message, has not finished."""
    code = "import sys, threading, barograph\nrun = barograph.init(name='n')\nprint('ready', flush=True)\n" + ending
    with training(code, tmp_path) as process:
        process.communicate(timeout=60)
    status = barograph.open("n", dir=tmp_path / "runs").status
    assert (status.word, status.reason) == ENDINGS[ending]


@pytest.mark.parametrize("raised", ["sys.exit(0)", "exec('raise SystemExit')", "exec('raise SystemExit(143)')"])
@pytest.mark.parametrize("begin", ["barograph.init(name='n')", "barograph.init(name='n').__enter__()"])
def test_a_sigterm_handler_that_raises_system_exit_leaves_killed(raised: str, begin: str, tmp_path: Path):
    """The training was told to end, whatever its exit code is."""
    code = f"""
    import signal, sys, time, barograph
    signal.signal(signal.SIGTERM, lambda *_: {raised})
    with barograph.init(name="n") as run:
        print("ready", flush=True)
        time.sleep(60)
    """
    if "enter" not in begin:
        code = code.replace('with barograph.init(name="n") as run:', 'if barograph.init(name="n"):')
    with training(code, tmp_path) as process:
        process.terminate()
        process.communicate(timeout=60)
    assert barograph.open("n", dir=tmp_path / "runs").status == barograph.Status("killed", "SIGTERM")


C_CALLS = {
    "hash": "import hashlib; hashlib.pbkdf2_hmac('sha256', b'p', b's', 200_000_000)",
    "libc": "import ctypes; libc = ctypes.CDLL(None)\n    while True: libc.usleep(60_000_000)",
}


@pytest.mark.parametrize("call", C_CALLS)
@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_ends_a_process_inside_a_c_call(call: str, signals: int, tmp_path: Path):
    """The process ends long before the call would, the end and what was collected are recorded."""
    code = f"""
    import time, barograph
    run = barograph.init(name="n")
    run.log({{"x": 1.0}}, step=0)
    run.sample("prompt", "completion", reward=1.0, step=1)
    time.sleep(0.1)
    print("ready", flush=True)
    {C_CALLS[call]}
    """
    with training(code, tmp_path) as process:
        time.sleep(0.3)
        for _ in range(signals):
            process.terminate()
            time.sleep(0.001)
        process.communicate(timeout=10)
        assert process.returncode == -signal.SIGTERM
    view = barograph.open("n", dir=tmp_path / "runs")
    assert view.status == barograph.Status("killed", "SIGTERM")
    assert len(view.samples()) == 1


def test_a_second_sigterm_does_not_cut_the_end_short(tmp_path: Path):
    """Signals that arrive while the end is recorded change nothing."""
    code = """
    import os, signal, time, barograph
    run = barograph.init(name="n")
    write_end = run._write_end
    def slow(status):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.3)
        write_end(status)
    run._write_end = slow
    print("ready", flush=True)
    while True: time.sleep(0.01)
    """
    with training(code, tmp_path) as process:
        process.terminate()
        process.communicate(timeout=10)
        assert process.returncode == -signal.SIGTERM
    assert barograph.open("n", dir=tmp_path / "runs").status == barograph.Status("killed", "SIGTERM")


def test_a_device_that_hangs_does_not_delay_the_end_by_sigterm(tmp_path: Path):
    """The end is recorded without the values that do not arrive."""
    code = """
    import threading, time, barograph
    from barograph.base.scalars import Deferred
    class Hung(Deferred):
        def ready(self): return False
        def values(self): threading.Event().wait()
    run = barograph.init(name="n")
    run._collectors.device_values._rows.append((("v",), None, time.time(), Hung(())))
    print("ready", flush=True)
    run.commit(3)
    """
    with training(code, tmp_path) as process:
        time.sleep(0.3)
        process.terminate()
        process.communicate(timeout=10)
        assert process.returncode == -signal.SIGTERM
    assert barograph.open("n", dir=tmp_path / "runs").status == barograph.Status("killed", "SIGTERM")


def test_sigterm_right_after_a_fork_is_not_lost(tmp_path: Path):
    """It reaches most of the children before Python has set them up, which forgets the signals until then."""
    code = """
    import os, signal, time, barograph
    run = barograph.init(name="n")
    print("ready", flush=True)
    ends = []
    for _ in range(30):
        child = os.fork()
        if not child:
            time.sleep(3)
            os._exit(3)
        os.kill(child, signal.SIGTERM)
        ends.append(os.waitpid(child, 0)[1])
    print(*ends)
    """
    with training(code, tmp_path) as process:
        out, _ = process.communicate(timeout=100)
    assert out.split() == [str(int(signal.SIGTERM))] * 30


def test_sigterm_to_a_forked_child_ends_the_child_alone(tmp_path: Path):
    """A child inside a C call ends at once, and its parent goes on."""
    code = """
    import hashlib, os, signal, time, barograph
    run = barograph.init(name="n")
    print("ready", flush=True)
    ends = []
    for _ in range(20):
        child = os.fork()
        if not child:
            hashlib.pbkdf2_hmac("sha256", b"p", b"s", 200_000_000)
        time.sleep(0.01)
        os.kill(child, signal.SIGTERM)
        ends.append(os.waitpid(child, 0)[1])
    time.sleep(0.2)
    print(*ends, "parent")
    """
    with training(code, tmp_path) as process:
        out, _ = process.communicate(timeout=20)
    assert out.split() == [str(int(signal.SIGTERM))] * 20 + ["parent"]
    assert barograph.open("n", dir=tmp_path / "runs").status.word == "finished"


@pytest.mark.parametrize("taken", ["before", "after"])
def test_the_end_by_sigterm_is_bounded_where_an_event_loop_has_the_wakeup_fd(tmp_path: Path, taken: str):
    """Only the handler in the main thread is told then; what it waits for does not keep the process alive."""
    code = """
    import signal, socket, time, barograph
    mine, loops = socket.socketpair()
    loops.setblocking(False)
    if "TAKEN" == "before": signal.set_wakeup_fd(loops.fileno())
    run = barograph.init(name="n")
    signal.set_wakeup_fd(loops.fileno())
    write_end = run._write_end
    def slow(status):
        write_end(status)
        time.sleep(60)
    run._write_end = slow
    print("ready", flush=True)
    while True: time.sleep(0.01)
    """
    with training(code.replace("TAKEN", taken), tmp_path) as process:
        process.terminate()
        process.communicate(timeout=20)
        assert process.returncode == -signal.SIGTERM
    assert barograph.open("n", dir=tmp_path / "runs").status == barograph.Status("killed", "SIGTERM")


def test_sigterm_ends_a_process_whose_disk_is_full_and_whose_tracker_hangs(tmp_path: Path):
    """What cannot be written or delivered is told, and the process ends inside its C call."""
    code = f"""
    import errno, os, sys, threading, barograph
    from barograph.delivery.trackers import registry
    class Hanging:
        in_process = True
        def __init__(self): pass
        def start(self, info, config, folder): pass
        def log(self, rows): threading.Event().wait()
        def finish(self, status): pass
    make = registry.make
    registry.make = lambda name, kwargs: Hanging() if name == "stdout" else make(name, kwargs)
    run = barograph.init(name="n", track_with=["stdout", "jsonl"])
    run.log({{"x": 1.0}}, step=0)
    real = os.write
    def full(fd, data):
        if sys._getframe(1).f_code.co_filename.endswith("segment.py"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)
    os.write = full
    run.log({{"x": 2.0}}, step=1)
    print("ready", flush=True)
    {C_CALLS["libc"]}
    """
    with training(code, tmp_path) as process:
        time.sleep(0.3)
        process.terminate()
        _, told = process.communicate(timeout=20)
        assert process.returncode == -signal.SIGTERM
    assert "frames could not be written" in told
    assert "not delivered yet" in told
