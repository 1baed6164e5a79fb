"""The driver of the Ray tests: it runs all cases in one local cluster, and prints what its workers answered."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import ray

import barograph
from barograph.integrations.frameworks.ray import share, shared_run


@ray.remote(num_cpus=0)
class Trainer:
    """An actor that gets the run as an argument."""

    def __init__(self, run: barograph.Run) -> None:
        self.run = run

    def measure(self, step: int, score: float) -> tuple[str, int, int]:
        self.run.measure({"response_mask": [[1, 1]], "scores": [score]})
        self.run.commit(step)
        return self.place()

    def place(self, run: barograph.Run | None = None) -> Any:
        assert run in (None, self.run)
        writer = self.run.writer
        return writer.role, writer.rank, writer.attempt

    def begin(self, **settings: Any) -> Any:
        try:
            with barograph.init(concurrent=True, **settings) as run:
                return str(run.path)
        except barograph.SettingsError as error:
            return str(error)


@ray.remote(num_cpus=0)
def find(name: str) -> Any:
    """Find the run that the driver shares, as a task that does not get it; twice, since a process joins once."""
    runs = [shared_run(name, role="reward") for _ in range(2)]
    return [run and [run.id, run.writer.role, run.writer.rank, run is runs[0]] for run in runs]


@ray.remote(num_cpus=0.5)
def pooled(run: barograph.Run) -> Any:
    """Log from a process that runs many tasks."""
    run.log({"pooled": float(os.getpid())}, step=run.writer.rank)
    return os.getpid(), run.writer.rank


def answer(calls: Any) -> Any:
    return ray.get(calls, timeout=60)


def error_of(call: Any) -> str:
    try:
        answer(call)
    except Exception as error:  # noqa: BLE001 - whatever Ray makes of it
        return str(error)
    return ""


def actors(run: barograph.Run) -> tuple[dict[str, Any], list[Any]]:
    """Let actors measure; kill one, and let one be restarted."""
    first, second = Trainer.remote(run), Trainer.remote(run)
    killed, restarted = Trainer.remote(run), Trainer.options(max_restarts=1, max_task_retries=3).remote(run)

    @ray.remote(num_cpus=0)
    class Closure:
        def place(self) -> Any:
            return run.writer.role, run.writer.rank, run.writer.attempt

    closure = Closure.remote()
    scores = {first: 1.0, second: 3.0, killed: 8.0, restarted: 12.0}
    found: dict[str, Any] = {
        "measured": answer([actor.measure.remote(0, score) for actor, score in scores.items()]),
        "closure": answer(closure.place.remote()),
        "again": answer([first.place.remote(run), first.place.remote(run)]),
    }
    ray.kill(killed)
    ray.kill(restarted, no_restart=False)
    until = time.monotonic() + 60  # ray.kill does not wait for the end of the process
    while answer(restarted.place.remote())[2] == 1 and time.monotonic() < until:
        time.sleep(0.1)
    found["restarted"] = answer(restarted.measure.remote(1, 12.0))
    return found, [first, second, restarted, closure]


def begun(actor: Any, folder: str) -> dict[str, Any]:
    """Let an actor, which works in a copy of the working directory, begin a run by itself."""
    return {
        "relative": answer(actor.begin.remote(id="split")),
        "absolute": answer(actor.begin.remote(id="absolute", dir=f"{folder}/absolute")),
    }


def trainer_group(run: barograph.Run, folder: str) -> Any:
    """Let two workers of a placement group begin a run as those of Ray Train do: with ranks and without an id."""
    group = ray.util.placement_group([{"CPU": 0.1}] * 2)
    ranks = [{"env_vars": {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}} for rank in range(2)]
    chosen = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)
    workers = [Trainer.options(runtime_env=env, scheduling_strategy=chosen).remote(run) for env in ranks]
    return answer([worker.begin.remote(dir=f"{folder}/group") for worker in workers])


def commands(run: barograph.Run, rank: int) -> dict[str, list[str]]:
    """Return the command lines of the writers, once the driver and a rank have written theirs."""
    until = time.monotonic() + 30
    while True:
        view = barograph.open(run.path)
        found = {
            f"{writer.rank}.{writer.attempt}": event["environment"]["command"]
            for writer, attempt in view._attempts.items()
            for event in attempt.events()
            if event["event"] == "environment"
        }
        if {"0.1", f"{rank}.1"} <= found.keys() or time.monotonic() > until:
            return {**found, "view": view.environment["command"]}
        time.sleep(0.2)


def main() -> None:
    """Use the working directory for the runs of this process, as a training without settings does."""
    folder, temporary = os.getcwd(), sys.argv[1]
    Path("code").mkdir()
    Path("code/module.py").write_text("")
    before = shared_run()  # there is no cluster yet, and this does not start one
    settings: dict[str, Any] = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
    ray.init(**settings, runtime_env={"working_dir": "code"}, _temp_dir=temporary)
    run = barograph.init(id="travels", project="p")
    disabled = barograph.init(mode="disabled", concurrent=True)
    share(run)
    found, living = actors(run)
    found["shared"] = [before, *answer([find.remote("run"), find.remote("another")])]
    found["begun"] = begun(living[0], folder)
    found["group"] = trainer_group(run, folder)
    found["pooled"] = answer([pooled.remote(run) for _ in range(20)])
    found["disabled"] = answer(Trainer.remote(disabled).place.remote())
    found["unreachable"] = error_of(pooled.remote(Missing(run.ticket().replace(folder, f"{folder}/missing"))))
    found["commands"] = commands(run, found["measured"][0][1])
    run.finish()
    ray.shutdown()
    print(json.dumps(found))


class Missing:
    """An argument that unpickles as a ticket of a place that is not there."""

    def __init__(self, ticket: str) -> None:
        self.ticket = ticket

    def __reduce__(self) -> Any:
        return barograph.join, (self.ticket,)


if __name__ == "__main__":
    main()
