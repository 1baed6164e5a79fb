"""Rollout states that are small on disk and large in memory, and states that are nonsense."""

import copy
import json
import math
import random
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.base.files import compression
from barograph.journal.format.frames import Kind
from barograph.journal.view import View
from barograph.metrics.rollouts import wire
from barograph.metrics.rollouts.gathering import Gathering
from barograph.metrics.rollouts.plan import RolloutPlan
from bounds import bounded

READ = """
view = View(folder)
names = view.names()
series = [len(view.series(name)) for name in names]
result = [names, [problem.error for problem in view.problems()]]
"""


def make_run(dir: Path, packed: list[bytes], steps: int = 1) -> Path:
    """Return a run whose two ranks each have these states, beside an honest one."""
    for rank in range(2):
        run = barograph.init(project="p", id="bomb", dir=dir, rank=rank, track_with=[])
        handle = run.rollouts(step=0)
        handle.add("a", {"reward": float(rank)}, run=rank)
        run.log({"loss": 1.0}, step=0)
        run.commit(0)
        for number, body in enumerate(packed):
            head = {"kind": "rollout", "taskset": "", "step": 1 + number % steps}
            run._recording.journal.packet(Kind.GATHERED, head, body)
        run.finish()
    return run.path


@pytest.fixture(autouse=True)
def _two_ranks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "2")


def honest() -> tuple[dict[str, Any], bytes]:
    """Return the head and the numbers of an honest state of an evaluation."""
    gathering = Gathering()
    for run in range(4):
        gathering.add("a", run, {"reward": 1.0, "score": 0.5}, answer="x")
    gathering.fail("b", None, "timeout")
    gathering.frame()
    data = zlib.decompress(wire.pack(gathering, RolloutPlan("eval", "set", repeats=4, reductions={"score": "last"})))
    (length,) = struct.unpack_from("<I", data)
    return json.loads(data[4 : 4 + length]), data[4 + length :]


def packed(head: Any, numbers: bytes, level: int = 9) -> bytes:
    text = json.dumps(head).encode()
    return zlib.compress(struct.pack("<I", len(text)) + text + numbers, level)


def test_megabytes_do_not_become_gigabytes(tmp_path: Path):
    """A state that takes two hundred times the memory that it may."""
    packer = zlib.compressobj(9)
    body = b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(400)), packer.flush()])
    folder = make_run(tmp_path, [body, body])
    names, problems = bounded(folder, READ)
    assert "rollout/reward/mean" in names
    assert any("bytes when unpacked" in error for error in problems)


def with_runs(count: int, numbers: bytes) -> bytes:
    head, _ = honest()
    return packed({**head, "runs": [None] * count, "columns": {}, "failed": [], "answers": {}}, numbers)


BOMBS = {
    "runs without numbers": lambda: [with_runs(2_000_000, b"")],
    "lists": lambda: [zlib.compress(struct.pack("<I", 20 << 20) + b"[" * (20 << 20), 9)],
    "empty lists": lambda: [zlib.compress(struct.pack("<I", 15_000_001) + b"[" + b"[]," * 5_000_000, 9)],
    "strings": lambda: [zlib.compress(struct.pack("<I", 30_000_002) + b"[" + b'"",' * 10_000_000 + b"0", 9)],
    "a head that claims more": lambda: [zlib.compress(struct.pack("<I", 2**32 - 1) + b"{}", 9)],
    "many frames": lambda: [with_runs(60_000, bytes(8 * 60_000))] * 100,
}


@pytest.mark.parametrize("name", BOMBS)
def test_states_that_unpack_to_too_much_cost_themselves(tmp_path: Path, name: str):
    """The honest step is merged in less than 200 MB and a second, and the rest is told."""
    folder = make_run(tmp_path, BOMBS[name](), steps=100)
    names, problems = bounded(folder, READ)
    assert "rollout/reward/mean" in names
    assert problems


WRONG = (None, True, -1, 2**70, 1.5, math.nan, math.inf, "x", "\ud800", [], {}, [None], [[1]], {"a": []}, [1.5, -3])


def mutations() -> list[tuple[Any, bytes]]:
    """Return heads with one entry replaced, at every depth, and numbers that are none."""
    head, numbers = honest()
    found: list[tuple[Any, bytes]] = [(wrong, numbers) for wrong in WRONG]
    for name in head:
        found += [({**head, name: wrong}, numbers) for wrong in WRONG]
        found.append(({key: value for key, value in head.items() if key != name}, numbers))
    for outer in ("plan", "columns", "answers", "reasons"):
        for name in head[outer]:
            for wrong in WRONG:
                changed = copy.deepcopy(head)
                changed[outer][name] = wrong
                found.append((changed, numbers))
    values = np.frombuffer(numbers, np.float64)
    for place in range(len(values)):
        for wrong in (math.nan, math.inf, -math.inf, -1.0, 0.5, 1e300):
            other = values.copy()
            other[place] = wrong
            found.append((head, other.tobytes()))
    found += [(head, numbers[:size]) for size in range(0, len(numbers), 7)]
    return found


def test_nonsense_is_merged_or_refused_with_one_error():
    """Of wrong types, lengths and numbers, at every place of a state."""
    from barograph.journal.merge.rollouts import RolloutState, merge_rollouts

    good = packed(*honest())
    for head, numbers in mutations():
        bad = packed(head, numbers)
        states = [RolloutState(rank, 1, "eval", "set", 1.0, body) for rank, body in enumerate((good, bad))]
        for order in (states, states[::-1]):
            with suppress(ValueError):  # any other error fails the test
                assert all(isinstance(value, float) for value in merge_rollouts(order, "roll").values())


def test_damaged_bytes_are_merged_or_refused_with_one_error():
    """Of one flipped bit in the unpacked state, and of random bytes."""
    from barograph.journal.merge.rollouts import RolloutState, merge_rollouts

    good, random_bits = packed(*honest()), random.Random(1)
    data = zlib.decompress(good)
    for _ in range(1000):
        changed = bytearray(data)
        changed[random_bits.randrange(len(data))] ^= 1 << random_bits.randrange(8)
        bad = random_bits.choice([zlib.compress(bytes(changed)), random_bits.randbytes(50), good[:-9]])
        states = [RolloutState(rank, 1, "eval", "set", 1.0, body) for rank, body in enumerate((good, bad))]
        with suppress(ValueError):
            merge_rollouts(states, "roll")


@pytest.mark.parametrize("name", ["step", "kind", "taskset", "time"])
def test_nonsense_in_the_head_of_a_frame_costs_the_frame(tmp_path: Path, name: str):
    """The other states are merged."""
    folder = make_run(tmp_path, [])
    run = barograph.init(project="p", id="bomb", dir=tmp_path, rank=1, track_with=[])
    for wrong in WRONG:
        head = {"kind": "rollout", "taskset": "", "step": 5, "time": 1.0, name: wrong}
        run._recording.journal.packet(Kind.GATHERED, head, packed(*honest()))
    run.finish()
    view = View(folder)
    assert "rollout/reward/mean" in view.names()
    assert len(view.frame())
    assert any(problem.call == "merging ranks" for problem in view.problems())


def test_a_state_that_is_too_large_is_not_written_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The values of the process itself are written."""
    run = barograph.init(project="p", dir=tmp_path, track_with=[])
    rollouts = run.rollouts()
    count = 300_000
    metrics = {f"m{number}": np.ones(count) for number in range(8)}
    rollouts.add_many(np.arange(count), metrics, runs=range(count))
    run.commit(0)
    run.finish()
    view = View(run.path)
    assert view.series("rollout/m3/mean").values.tolist() == [1.0]
    assert "report fewer runs" in capsys.readouterr().err
    assert any("report fewer runs" in problem.error for problem in view.problems())


def test_a_program_can_send_itself_larger_states():
    """Only what is written to the journal has the limit of its readers."""
    from barograph.recording.collectors.rollout_handles import Rollouts

    sent, received = Rollouts(RolloutPlan("rollout"), 0), Rollouts(RolloutPlan("rollout"), 0)
    sent.gathering.add_columns(np.arange(300_000), range(300_000), {f"m{n}": np.ones(300_000) for n in range(8)})
    received.add_gathered(*wire.unpack(sent.state(), limit=wire.MAX_SENT_BYTES))
    assert len(received.gathering) == 300_000


def test_values_that_compress_to_almost_nothing_are_merged():
    """All rewards are 1: a run on the way to its end."""
    gathering = Gathering()
    gathering.add_columns(np.zeros(100_000, int), range(100_000), {f"m{n}": np.ones(100_000) for n in range(15)})
    state = wire.pack(gathering, RolloutPlan("rollout"))
    assert len(wire.unpack(state, compression.Budget(spent=32 << 20))[0]) == 100_000
