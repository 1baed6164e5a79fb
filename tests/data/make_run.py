"""Write the runs that ``test_old_runs.py`` reads.

    python tests/data/make_run.py tests/data/runs-0.2

A directory with three runs and what people keep on the page: two ranks and an explorer with two attempts, a fork and
every kind of frame; a run with tokens, in which the doctor found something; an imported log. It is made once per format
and then never again: it stands for the runs that people have on their disks. ``run-0.1`` is the first of them alone.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from shutil import copytree

import numpy as np

import barograph
import barograph.recording.run
from barograph.answers.runs.annotations import Annotations
from barograph.apps.cli import main as cli


def batch(seed: int, **more: object) -> barograph.Batch:
    """Return a small batch with reward, policy and value arrays."""
    rng = np.random.default_rng(seed)
    mask = np.arange(6) < rng.integers(2, 7, (4, 1))
    old, new, ref = (-rng.random((4, 6)) for _ in range(3))
    return barograph.Batch(
        response_mask=mask, log_probs=new, old_log_probs=old, ref_log_probs=ref, advantages=rng.normal(size=(4, 6)),
        returns=rng.normal(size=(4, 6)), values=rng.normal(size=(4, 6)), scores=rng.random(4),
        entropy=rng.random((4, 6)), **more,
    )  # fmt: skip


def train(run: barograph.Run, steps: range, rank: int) -> None:
    """Write steps with everything that a rank of a trainer records."""
    for step in steps:
        with run.phase("actor_infer/generate", tokens={"generated": 100 + step}), run.timer("decode"):
            pass
        run.measure(batch(10 * step + rank))
        run.measure(batch(10 * step + rank), part="policy", clip=0.2)
        run.log({"actor/lr": 1e-6 * (step + 1), "odd": [float("nan"), float("inf"), -0.5][step % 3]})
        run.log({"explicit": 2.0 * step + rank}, step=step)
        run.log({"memory/host/used": 1.0 + rank, "broken": None})
        run.log({"lengths": barograph.histogram(np.arange(step + 3.0))})
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


def train_with_findings(directory: str) -> None:
    """Write a run with tokens, whose gradient norm is NaN at last, and wait for the doctor."""
    run = barograph.init(
        dir=directory, project="kept", name="sick", id="kept-run-0002", memory="cpu", doctor=True,
        token_samples_per_step=4, tags=["math", "old"], group="pair",
    )  # fmt: skip
    for step in range(24):
        with run.phase("actor_train/train_step"):
            pass
        run.sample(
            "prompt", "the cat", reward=step % 2, tokens=["the", " cat"], token_values={"entropy": [0.5, step / 40]},
            top_logprobs=[[("the", -0.1), ("a", -2.5)], [(" cat", -0.2)]], columns={"difficulty": step},
        )  # fmt: skip
        ids = [f"s{step}-{n}" for n in range(4)]
        run.sample("prompt", "an answer", id=ids[0], reward=1.0)
        run.measure(batch(step, ids=ids, actions=np.arange(24).reshape(4, 6)))
        run.log({"actor/grad_norm": 1.0 if step < 20 else float("nan"), "actor/pg_loss": 0.1, "tokens": 100.0 * step})
        run.commit(step)
        time.sleep(0.02)
    findings = run.path / "doctor" / "findings.json"
    until = time.monotonic() + 30
    while not (findings.exists() and "onset" in findings.read_text()) and time.monotonic() < until:
        time.sleep(0.2)
    run.commit(24)
    run.finish()


def keep_on_page(directory: Path) -> None:
    """Pin, name and colour runs, save a view and a report."""
    kept = Annotations(directory)
    kept.set("kept/kept-run-0002", {"pinned": True, "name": "a better name", "tags": ["x"], "colour": 3})
    kept.set("kept/kept-run-0001", {"hidden": True, "note": "first try", "source": "barograph:roll"})
    kept.save_view("sick ones", "q=status:finished&sort=-step")
    kept.save_report("what we learnt", "# What we learnt\n\n```charts\nmetrics: critic/score/mean\n```\n")


def import_log(directory: Path) -> None:
    """Make a run of a log that another program wrote."""
    rows = [f"{{'loss': {1 / (step + 1)}, 'reward': {step / 20}, 'epoch': {step / 20}}}" for step in range(20)]
    log = directory / "train.log"
    log.write_text("\n".join(rows) + "\n")
    cli(["import", str(log), "--to", str(directory), "--project", "kept", "--name", "imported"])
    log.unlink()


def main(target: Path) -> None:
    """Write the runs in a temporary directory and copy it."""
    barograph.recording.context.process_identity = lambda: {"host": "somewhere", "pid": 1, "boot": "once"}  # type: ignore[assignment]
    barograph.recording.run.describe_environment = lambda _: {"host": "somewhere", "python": "3.11"}  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as directory:
        train_with_findings(directory)
        train_ranks(directory)
        import_log(Path(directory))
        keep_on_page(Path(directory))
        kept = (".seg", ".json")
        copytree(
            directory,
            target,
            ignore=lambda at, names: [n for n in names if not (Path(at, n).is_dir() or n.endswith(kept))],
        )


def train_ranks(directory: str) -> None:
    """Write the run of two ranks and an explorer."""
    os.environ["WORLD_SIZE"] = "2"
    named = {"dir": directory, "project": "kept", "name": "old", "id": "kept-run-0001"}
    shared = {**named, "concurrent": True, "memory": "cpu"}

    def first_attempt() -> None:
        train(barograph.init(**shared, rank=0, config={"seed": 7, "api_key": "not to be kept"}), range(3), 0)

    in_child(first_attempt)
    first = barograph.init(**shared, rank=0, config={"seed": 8, "actor": {"lr": 1e-6}})
    second = barograph.init(**shared, rank=1)
    explorer = barograph.init(**shared, role="explorer", rank=0)
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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
