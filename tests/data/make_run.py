"""Write the run that ``test_old_runs.py`` reads: two ranks and an explorer, two attempts, a fork, every kind of frame.

    python tests/data/make_run.py tests/data/run-0.1

The folder is made once per format and then never again: it stands for the runs that people have on their disks.
"""

import os
import sys
import tempfile
from pathlib import Path
from shutil import copytree

import numpy as np

import windsock
import windsock.run


def batch(seed: int) -> windsock.Batch:
    """Return a small batch with reward, policy and value arrays."""
    rng = np.random.default_rng(seed)
    mask = np.arange(6) < rng.integers(2, 7, (4, 1))
    old, new, ref = (-rng.random((4, 6)) for _ in range(3))
    return windsock.Batch(
        response_mask=mask, log_probs=new, old_log_probs=old, ref_log_probs=ref, advantages=rng.normal(size=(4, 6)),
        returns=rng.normal(size=(4, 6)), values=rng.normal(size=(4, 6)), scores=rng.random(4),
        entropy=rng.random((4, 6)),
    )  # fmt: skip


def train(run: windsock.Run, steps: range, rank: int) -> None:
    """Write steps with everything that a rank of a trainer records."""
    for step in steps:
        with run.phase("actor_infer/generate", tokens={"generated": 100 + step}), run.timer("decode"):
            pass
        run.measure(batch(10 * step + rank))
        run.measure(batch(10 * step + rank), part="policy", clip=0.2)
        run.log({"actor/lr": 1e-6 * (step + 1), "odd": [float("nan"), float("inf"), -0.5][step % 3]})
        run.log({"explicit": 2.0 * step + rank}, step=step)
        run.log({"memory/host/used": 1.0 + rank, "broken": None})
        run.log({"lengths": windsock.histogram(np.arange(step + 3.0))})
        run.text("note", f"step {step} of rank {rank}")
        run.count(tokens=100, samples=4)
        rollouts = run.rollouts(step)
        for task in range(3):
            rollouts.add(task=f"{rank}-{task}", run=0, metrics={"accuracy": float(task == rank), "tokens": 10.0 * task})
        rollouts.fail(task=f"{rank}-0", run=1, reason="timeout")
        rollouts.close(expected_tasks=7)
        for number in range(3):
            run.sample(
                f"prompt {number} 你好", f"completion {number} of {rank}", reward=number / 2, rewards={"format": 1.0},
                advantage=float(number - 1), length=5 + number, finish_reason="stop", task=f"t{number}",
                group=f"g{step}",
            )  # fmt: skip
        run.sample(messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}], reward=0.0)
        run.commit(step)


def in_child(work: object) -> None:
    """Run something in a forked process that ends as if killed."""
    pid = os.fork()
    if pid == 0:
        work()  # type: ignore[operator]
        os._exit(0)
    os.waitpid(pid, 0)


def main(target: Path) -> None:
    """Write the run in a temporary directory and copy it."""
    windsock.recording.process_identity = lambda: {"host": "somewhere", "pid": 1, "boot": "once"}  # type: ignore[assignment]
    windsock.run.describe_environment = lambda _: {"host": "somewhere", "python": "3.11"}  # type: ignore[assignment]
    os.environ["WORLD_SIZE"] = "2"
    with tempfile.TemporaryDirectory() as directory:
        named = {"dir": directory, "project": "kept", "name": "old", "id": "kept-run-0001"}
        shared = {**named, "concurrent": True, "memory": "cpu"}

        def first_attempt() -> None:
            train(windsock.init(**shared, rank=0, config={"seed": 7, "api_key": "not to be kept"}), range(3), 0)

        in_child(first_attempt)
        first = windsock.init(**shared, rank=0, config={"seed": 8, "actor": {"lr": 1e-6}})
        second = windsock.init(**shared, rank=1)
        explorer = windsock.init(**shared, role="explorer", rank=0)
        train(first, range(2, 5), 0)
        train(second, range(2, 5), 1)
        in_child(lambda: first.log({"from_child": 4.5}))
        train(first, range(5, 7), 0)
        train(second, range(5, 7), 1)
        with explorer.evaluation("gsm8k", step=4, repeats=2) as evaluation:
            for task in range(4):
                for attempt in range(2):
                    evaluation.add(f"q{task}", {"accuracy": (task + attempt) % 2}, run=attempt, answer=str(task % 2))
        with explorer.validation(4) as validation:
            validation.add_many([0.0, 0.5, 1.0], tags=["a", "a", "b"])
        explorer.log({"explorer/queue": 3.0})
        explorer.commit(4)
        first.update_config({"actor": {"lr": 2e-6}})
        first.log({"late": 1.25})
        for run in (explorer, second, first):
            run.finish()
        copytree(first.path, target, ignore=lambda _, names: [n for n in names if not n.endswith((".seg", ".json"))])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
