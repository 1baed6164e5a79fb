"""Totals of a step: duration, time outside phases, throughput, and every documented name."""

import asyncio
import contextvars
import csv
import threading
from pathlib import Path

import pytest
from probing import KnownDevice, Time, known_run, values

import barograph
from barograph.catalogue.names import recognise
from barograph.metrics.probe_values import coverage, length, overlap, union

SEED = Path(__file__).parents[2] / "data" / "seed_metrics.tsv"
FAMILIES = ("time/", "memory/", "system/", "timing_per_token_ms/", "perf/", "global_seqlen/", "eps", "episode")
TIMERS = (
    "rollout", "ref_log_probs_values_reward", "old_log_probs_values", "adv", "eval", "wait_explore_step", "save",
    "experience_pipeline/write", "update_actor", "update_critic", "values", "ref",
)  # fmt: skip


def documented(vocabulary: str) -> set[str]:
    """Return the documented names of a vocabulary that phases, timers and counters produce, filled in."""
    with SEED.open() as file:
        rows = [row["name"] for row in csv.DictReader(file, delimiter="\t") if row["vocabulary"] == vocabulary]
    fill = {
        "{metric_infix}": "actor_train/train_step",
        "{device_id}": "0",
        "{operation}": "save",
        "{operator}": "write",
    }
    found = {name for name in rows if name.startswith(FAMILIES)}
    for placeholder, value in fill.items():
        found = {name.replace(placeholder, value) for name in found}
    assert not any("{" in name for name in found)
    return found


@pytest.mark.parametrize("vocabulary", ["roll", "trl", "trinity"])
def test_every_documented_name_of_time_memory_and_system_is_produced(vocabulary: str):
    """One step with phases on a known device logs all of them."""
    time = Time()
    settings = {"vocabulary": vocabulary}
    run = known_run(time, [KnownDevice(0)], settings=settings, device_count=8, peak=989e12)
    load, work = time.passes(1.0), time.passes(2.0)
    with run.phase("actor_train/train_step", onload=load, offload=load, flops={"actor": 1e15, "critic": 1e14}):
        work()
    for name in TIMERS:
        with run.timer(name, tokens=1000):
            work()
    run.shards(before=[10, 30, 20], after=[19, 21, 20])
    run.count(tokens=5000, samples=64, episodes=16)
    run.commit(0)
    produced = values(run)
    wanted = documented(vocabulary)
    assert len(wanted) == {"roll": 32, "trl": 2, "trinity": 23}[vocabulary]
    assert sorted(wanted - set(produced)) == []
    unknown = [
        name for name in produced if "/" in name and not recognise(name, source=f"barograph:{vocabulary}").matches
    ]
    assert unknown == []


def test_the_names_and_units_of_each_vocabulary():
    """One step has the names and units of each vocabulary."""
    for vocabulary, names in {
        "roll": {"system/tps": 500.0, "system/samples": 64.0, "time/per_token/train": 0.01, "time/step": 10.0},
        "trl": {"eps": 1.6, "episode": 16.0, "system/tokens_per_second": 500.0},
        "trinity": {
            "perf/throughput": 250.0, "perf/total_num_tokens": 5000.0, "perf/time_per_step": 10.0,
            "timing_per_token_ms/train": 10.0, "perf/max_memory_allocated_gb": 0.5, "perf/cpu_memory_used_gb": 4.0,
            "perf/mfu/actor": 0.25,
        },
    }.items():  # fmt: skip
        time, device = Time(), KnownDevice(0)
        run = known_run(time, [device], settings={"vocabulary": vocabulary}, device_count=2, peak=1e12)
        with run.phase("train", tokens=1000, flops={"actor": 5e12}):
            device.hold(2**29)
            time.now += 10.0
        run.count(tokens=5000, samples=64, episodes=16)
        run.commit(0)
        found = values(run)
        assert {name: found[name] for name in names} == pytest.approx(names)
        run.finish()


def test_throughput_is_a_steps_tokens_over_its_duration():
    """There is no window, no lag, and no bias in the first steps."""
    time = Time()
    run = known_run(time)
    took = (20.0, 10.0, 10.0, 10.0, 10.0, 10.0, 5.0)
    for step, seconds in enumerate(took):
        with run.timer("step_train"):
            time.now += seconds
        run.count(tokens=1000)
        run.commit(step)
    series = barograph.open(run.path).series("system/tps")
    assert series.values.tolist() == [1000 / seconds for seconds in took]


def test_the_first_step_begins_with_its_first_phase():
    """Loading a model before the loop is not part of it; without phases it begins with the run."""
    time = Time()
    run = known_run(time)
    time.now += 600.0
    with run.timer("rollout"):
        time.now += 10.0
    run.count(tokens=1000)
    run.commit(0)
    assert values(run)["system/tps"] == 100.0
    bare = known_run(time)
    time.now += 50.0
    bare.count(tokens=1000)
    bare.commit(0)
    assert values(bare)["system/tps"] == 20.0


def test_a_step_without_counts_has_no_rate():
    """The counters continue."""
    time = Time()
    run = known_run(time)
    run.count(tokens=10, samples=2)
    time.now += 1.0
    run.commit(0)
    time.now += 1.0
    run.commit(1)
    view = barograph.open(run.path)
    assert view.series("system/tps").steps.tolist() == [0]
    assert view.series("system/samples").values.tolist() == [2.0, 2.0]


def test_counters_continue_over_attempts():
    """The total of a continued run includes earlier attempts; the rate is of the step."""
    for attempt, first in enumerate((0, 2)):
        run = barograph.init(id="continued")
        for step in range(first, first + 3):
            run.count(samples=10, tokens=7)
            run.commit(step)
        run.finish()
        assert attempt + 1 == run.writer.attempt
    series = barograph.open("continued").series("system/samples")
    assert series.values.tolist() == [10.0, 20.0, 30.0, 40.0, 50.0]
    assert barograph.open("continued").series("system/tokens").values.tolist() == [7.0] * 5


def test_a_run_that_only_logs_gets_no_other_names():
    """Unused metrics are not written."""
    run = barograph.init()
    run.log({"a": 1.0})
    run.commit(0)
    assert list(values(run)) == ["a"]


def test_time_outside_phases_and_overlap():
    """They are computed from commit to commit; overlap is between lanes."""
    time = Time()
    run = known_run(time)
    with run.phase("first"):
        time.now += 1.0
    run.commit(0)
    one, two = run.phase("train"), run.phase("rollout")
    one.__enter__()
    time.now += 3.0
    thread = threading.Thread(target=two.__enter__, name="explorer")
    thread.start()
    thread.join()
    time.now += 2.0
    one.__exit__(None, None, None)
    time.now += 1.0
    two.__exit__(None, None, None)
    time.now += 4.0
    run.commit(1)
    found = values(run, 1)
    assert (found["time/step"], found["time/unaccounted"], found["time/overlap"]) == (10.0, 4.0, 2.0)
    assert found["time/unaccounted_share"] == 0.4


def test_parallel_tasks_inside_a_timer_overlap():
    """The timer around them is not in parallel with them: of nested spans the innermost count."""
    time = Time()
    run = known_run(time)

    async def reward(first: asyncio.Event, then: asyncio.Event) -> None:
        async with run.phase("reward"):
            first.set()
            await then.wait()

    async def rewards() -> None:
        one, two, end = asyncio.Event(), asyncio.Event(), asyncio.Event()
        tasks = [asyncio.create_task(reward(one, end))]
        await one.wait()
        time.now += 2.0  # one task and the timer around it
        tasks.append(asyncio.create_task(reward(two, end)))
        await two.wait()
        time.now += 3.0  # two tasks
        end.set()
        await asyncio.gather(*tasks)

    with run.timer("step_rewards"):
        asyncio.run(rewards())
        time.now += 5.0
    run.commit(0)
    found = values(run)
    assert (found["time/step"], found["time/unaccounted"], found["time/overlap"]) == (10.0, 0.0, 3.0)


def test_a_task_and_a_later_phase_of_its_parent_overlap():
    """A span that outlives the one in which it began still is inside the next outer one, and beside the others."""
    spans = [
        (1, 0, "main", 0.0, 10.0),
        (2, 1, "main", 1.0, 3.0),
        (3, 2, "Task-2", 2.0, 8.0),  # begun in 2, open until 8
        (4, 1, "main", 5.0, 6.0),
    ]
    assert coverage(spans, 0.0, 10.0) == (10.0, 1.0)
    assert coverage(spans, 5.5, 7.0) == (1.5, 0.5)
    assert coverage([*spans, (5, 0, "thread", 9.0, 12.0)], 0.0, 20.0) == (12.0, 2.0)


def test_spans_that_are_in_each_other_in_a_circle_end():
    """A damaged file may say so; there is an answer and no endless loop."""
    circle = [(1, 2, "main", 0.0, 4.0), (2, 1, "other", 1.0, 3.0), (3, 3, "third", 0.0, 4.0)]
    assert coverage(circle, 0.0, 4.0)[0] == 4.0


def test_a_span_between_open_ones_is_known_after_the_commit():
    """A task that outlives the phase in which it began is still inside the timer around that phase."""
    time = Time()
    run = known_run(time)
    timer, phase, task = run.timer("epoch"), run.phase("start"), run.phase("work")
    timer.__enter__()
    phase.__enter__()
    thread = threading.Thread(target=contextvars.copy_context().run, args=(task.__enter__,))
    thread.start()
    thread.join()
    time.now += 1.0
    phase.__exit__(None, None, None)
    for step in range(3):
        time.now += 1.0
        run.commit(step)
        assert values(run, step)["time/overlap"] == 0.0
    task.__exit__(None, None, None)
    timer.__exit__(None, None, None)
    run.commit(3)
    assert run._collectors.phases.probe._closed == []


def test_the_open_parent_of_a_closed_phase_does_not_overlap_with_it():
    """Over a commit as well: a timer that stays open is around its phases, in whichever thread they ran."""
    time = Time()
    run = known_run(time)
    timer = run.timer("epoch")
    timer.__enter__()
    for step in range(2):
        context = contextvars.copy_context()
        one = threading.Thread(target=context.run, args=(_pass_through, run.phase("work"), time.passes(2.0)))
        one.start()
        one.join()
        time.now += 1.0
        run.commit(step)
        assert values(run, step)["time/overlap"] == 0.0
        assert values(run, step)["time/unaccounted"] == 0.0
    timer.__exit__(None, None, None)


def _pass_through(phase, work) -> None:  # type: ignore[no-untyped-def]
    with phase:
        work()


def test_intervals():
    """Touching intervals are merged; overlap counts lanes, not spans."""
    assert union([(3, 4), (0, 1), (1, 2), (0.5, 1.5)]) == [(0, 2), (3, 4)]
    assert length([(0, 2), (1, 3), (5, 6)]) == 4
    assert overlap([[(0, 4), (1, 2)], [(1, 3)], [(2, 5)]]) == 3


def test_shards_without_balancing():
    """Values that are not given are missing."""
    run = known_run(settings={"vocabulary": "trinity"})
    run.shards([10, 30, 20])
    run.shards([])
    run.commit(0)
    found = {name: value for name, value in values(run).items() if name.startswith("global_seqlen")}
    assert found == {
        "global_seqlen/min": 10.0, "global_seqlen/max": 30.0, "global_seqlen/minmax_diff": 20.0,
        "global_seqlen/mean": 20.0,
    }  # fmt: skip


def test_utilisation_needs_flops_and_a_peak():
    """Neither is guessed."""
    time = Time()
    run = known_run(time, device_count=2)
    with run.phase("train", flops={"actor": 1e12}):
        time.now += 1.0
    run.commit(0)
    assert not [name for name in values(run) if "mfu" in name]


def test_a_span_that_closes_during_a_commit_is_counted_late(monkeypatch: pytest.MonkeyPatch):
    """The values of the step are not lost."""
    run = known_run()
    phase = run.phase("generate")
    late = threading.Thread(target=lambda: phase.__exit__(None, None, None))
    reading = run._collectors.phases.probe._step_values
    waited: list[bool] = []

    def read(step, keys):  # type: ignore[no-untyped-def]
        if not waited:
            late.start()
            late.join(0.3)
            waited.append(late.is_alive())
        yield from reading(step, keys)

    monkeypatch.setattr(run._collectors.phases.probe, "_step_values", read)
    with run.phase("train"):
        pass
    phase.__enter__()
    run.commit(0)
    late.join(10)
    run.commit(1)
    run.finish()
    view = barograph.open(run.path)
    assert waited == [True]
    assert view.series("time/train/total").steps.tolist() == [0]
    assert view.series("time/generate/total").steps.tolist() == [0]


def test_a_forked_child_has_its_own_samples():
    """The parent's samples and lock are dropped."""
    run = known_run()
    run._collectors.phases.probe.samples.add({("system/cpu/utilisation", ()): 0.5}, set())
    run._collectors.phases.probe.after_fork_in_child()
    assert list(run._collectors.phases.probe.samples.take()) == []
    run.finish()
