"""Phases and timers: their times, spans and steps in all circumstances."""

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probing import KnownDevice, KnownQueue, Time, known_run, values

import barograph
from barograph.answers.phases import open_phases
from barograph.base.model import PhaseSpan
from barograph.recording.probe.devices import AllocatorStats, HostReading
from barograph.recording.probe.phases import Phase


def spans(run: barograph.Run) -> list[PhaseSpan]:
    return barograph.open(run.path).phases()


def test_the_stages_of_a_phase_are_timed_separately():
    """Onload, execute and offload equal the clock's, and the total is their sum."""
    time = Time()
    run = known_run(time)
    with run.phase("train", onload=time.passes(2.0), offload=time.passes(0.5)):
        time.now += 7.0
    run.commit(0)
    found = values(run)
    times = [found[f"time/train/{what}"] for what in ("onload", "execute", "offload", "total")]
    assert times == [2.0, 7.0, 0.5, 9.5]
    [span] = spans(run)
    assert (span.onload, span.execute, span.offload, span.seconds) == (2.0, 7.0, 0.5, 9.5)
    assert (span.name, span.step, span.lane, span.clock, span.failed, span.timer) == (
        "train", 0, "main", "host", False, False,
    )  # fmt: skip
    assert span.end is not None
    assert span.end - span.start == pytest.approx(9.5)


def test_without_onload_and_offload_there_is_a_total_and_an_execute():
    """Stages that did not happen have no time, not 0."""
    time = Time()
    run = known_run(time, memory="none")
    with run.phase("train"):
        time.now += 3.0
    run.commit(0)
    assert {name for name in values(run) if "train" in name} == {"time/train/total", "time/train/execute"}


def test_a_timer_is_one_number():
    """It has no stages and no memory."""
    time = Time()
    run = known_run(time)
    with run.timer("rollout"):
        time.now += 3.0
    run.commit(0)
    assert {name: value for name, value in values(run).items() if "rollout" in name} == {"time/rollout": 3.0}


def test_several_spans_of_a_name_are_summed_and_counted():
    """The count is logged where it is more than 1."""
    time = Time()
    run = known_run(time)
    for seconds in (1.0, 2.0, 4.0):
        with run.phase("train", onload=time.passes(0.5)):
            time.now += seconds
    with run.timer("adv"):
        time.now += 1.0
    run.commit(0)
    found = values(run)
    assert (found["time/train/total"], found["time/train/onload"], found["time/train/count"]) == (8.5, 1.5, 3.0)
    assert "time/adv/count" not in found


def test_the_probes_cost_is_in_no_phase_time():
    """With a clock that ticks at every reading, an empty phase lasts one tick, and the rest is reported."""
    time = Time(tick=1.0)
    run = known_run(time, memory="none")
    with run.phase("outer"), run.phase("inner"):
        pass
    run.commit(0)
    found = values(run)
    assert (found["time/inner/execute"], found["time/outer/execute"]) == (1.0, 3.0)
    assert found["barograph/probe_seconds"] > 0
    outer, inner = spans(run)
    assert inner.parent == outer.id
    assert outer.parent is None


class SlowDevice(KnownDevice):
    """A device whose readings take time."""

    def __init__(self, time: Time, seconds: float) -> None:
        super().__init__()
        self.time, self.seconds = time, seconds

    def read(self) -> AllocatorStats:
        self.time.now += self.seconds
        return super().read()


def slow_host(time: Time, seconds: float) -> Callable[[], HostReading]:
    """Return a slow reader of host memory."""

    def read() -> HostReading:
        time.now += seconds
        return HostReading(1, 2)

    return read


def test_slow_memory_readings_are_in_no_phase_time_and_are_all_reported():
    """Nested phases with stages: each time is the work alone, and the cost is the sum of the readings."""
    time = Time()
    run = known_run(time, [SlowDevice(time, 10.0)], read_host=slow_host(time, 100.0))
    with run.phase("outer", onload=time.passes(1.0), offload=time.passes(2.0)):
        time.now += 4.0
        with run.phase("inner"):
            time.now += 8.0
            with run.phase("innermost"):
                time.now += 16.0
    run.commit(0)
    found = values(run, 0)
    times = [found[f"time/outer/{stage}"] for stage in ("onload", "execute", "offload")]
    assert times == [1.0, 28.0, 2.0]
    assert (found["time/inner/total"], found["time/innermost/total"]) == (24.0, 16.0)
    # Devices: the step's first, four of outer, two of each other. Host: two of each phase.
    assert found["barograph/probe_seconds"] == 9 * 10.0 + 6 * 100.0


def test_the_cost_of_a_commit_is_reported_with_the_next_step():
    """A commit reads the step's peaks after the values of the step are complete."""
    time = Time()
    run = known_run(time, [SlowDevice(time, 10.0)], memory="all", read_host=slow_host(time, 0.0))
    costs = []
    for step in range(2):
        with run.phase("train"):
            time.now += 1.0
        run.commit(step)
        costs.append(values(run, step)["barograph/probe_seconds"])
    # Step 0: its first reading and two of the phase. Step 1: two of the phase and one of the commit of step 0.
    assert costs == [30.0, 30.0]


def test_the_cost_of_a_phase_in_another_thread_is_not_taken_from_its_parent():
    """The parent did not wait for the probe there; only spans of its own thread reduce its time."""
    time = Time()
    run = known_run(time, read_host=slow_host(time, 100.0))
    with run.phase("outer"):
        context = contextvars.copy_context()

        def work() -> None:
            with run.phase("inner"):
                time.now += 8.0

        thread = threading.Thread(target=lambda: context.run(work))
        thread.start()
        thread.join(60)
    run.commit(0)
    found = values(run, 0)
    assert (found["time/inner/total"], found["time/outer/total"]) == (8.0, 208.0)
    assert found["barograph/probe_seconds"] == 400.0


def test_an_exception_in_the_body_offloads_and_is_raised_again():
    """The span is recorded as failed."""
    time = Time()
    run = known_run(time)
    with pytest.raises(RuntimeError, match="out of memory"), run.phase("train", offload=time.passes(2.0)):
        time.now += 1.0
        raise RuntimeError("out of memory")
    run.commit(0)
    [span] = spans(run)
    assert (span.failed, span.execute, span.offload) == (True, 1.0, 2.0)
    assert values(run)["time/train/total"] == 3.0


def test_an_exception_in_onload_or_offload_is_raised_again():
    """The span is recorded as failed."""
    time = Time()
    run = known_run(time)

    def fail() -> None:
        time.now += 1.0
        raise OSError("no weights")

    with pytest.raises(OSError, match="no weights"), run.phase("loading", onload=fail, offload=fail):
        raise AssertionError("the body must not run")
    with pytest.raises(OSError, match="no weights"), run.phase("offloading", offload=fail):
        time.now += 2.0
    run.commit(0)
    loading, offloading = spans(run)
    assert (loading.failed, loading.onload, loading.execute, loading.offload) == (True, 1.0, 0.0, None)
    assert (offloading.failed, offloading.execute, offloading.offload) == (True, 2.0, 1.0)


def test_errors_of_the_probe_do_not_reach_the_loop(capsys: pytest.CaptureFixture[str]):
    """A failing reader, a failing token count and an unknown clock are reported once, and the loop continues."""

    def broken() -> None:
        raise OSError("no such file")

    run = known_run(read_host=broken)
    with run.phase("train", tokens=lambda: 1 / 0, clock="atomic") as span:
        assert span is not None
    run.commit(0)
    output = capsys.readouterr().err
    assert "no such file" in output
    assert "division by zero" in output
    assert "clock must be host or device; got 'atomic', using host" in output
    assert values(run)["time/train/total"] >= 0


def test_a_phase_is_reentrant():
    """Every entry is a span with the right parent."""
    time = Time()
    run = known_run(time)
    phase = run.phase("recursive")

    def descend(depth: int) -> None:
        with phase:
            time.now += 1.0
            if depth:
                descend(depth - 1)

    descend(2)
    descend(0)
    run.commit(0)
    found = spans(run)
    assert [span.execute for span in found] == [3.0, 2.0, 1.0, 1.0]
    assert [span.parent for span in found] == [None, found[0].id, found[1].id, None]


def test_phases_may_be_left_in_another_order_than_entered():
    """Each has its own time, and later spans have no closed parent."""
    time = Time()
    run = known_run(time)
    first, second = run.phase("first"), run.phase("second")
    first.__enter__()
    time.now += 1.0
    second.__enter__()
    time.now += 2.0
    first.__exit__(None, None, None)
    time.now += 4.0
    second.__exit__(None, None, None)
    with run.phase("third"):
        pass
    run.commit(0)
    assert {span.name: (span.execute, span.parent is None) for span in spans(run)} == {
        "first": (3.0, True), "second": (6.0, False), "third": (0.0, True),
    }  # fmt: skip


def test_a_phase_decorates_functions_and_coroutines():
    """Every call is a span; result and name of the function are kept; a generator is rejected with advice."""
    time = Time()
    run = known_run(time)

    @run.phase("work")
    def work(a: int, b: int = 1) -> int:
        """Work."""
        time.now += 1.0
        return a + b

    @run.phase("wait")
    async def wait() -> str:
        await asyncio.sleep(0)
        time.now += 2.0
        return "done"

    assert (work(1), work(1, b=2), work.__name__, work.__doc__) == (2, 3, "work", "Work.")
    assert asyncio.run(wait()) == "done"
    with pytest.raises(TypeError, match="enter the phase inside it instead"):

        @run.phase("never")
        def generate():  # type: ignore[no-untyped-def]
            yield

    run.commit(0)
    found = values(run)
    assert (found["time/work/total"], found["time/work/count"], found["time/wait/total"]) == (2.0, 2.0, 2.0)


def test_threads_have_their_own_lanes():
    """Phases of threads do not nest in each other or in the main thread's."""
    run = known_run()
    barrier = threading.Barrier(4)

    def work() -> None:
        with run.phase("work"):
            barrier.wait()
            with run.phase("inner"):
                barrier.wait()

    with run.phase("main"):
        threads = [threading.Thread(target=work, name=f"worker-{n}") for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    run.commit(0)
    found = spans(run)
    by_id = {span.id: span for span in found}
    assert {span.lane for span in found if span.name == "work"} == {f"worker-{n}" for n in range(4)}
    assert all(span.parent is None for span in found if span.name == "work")
    inner = [span for span in found if span.name == "inner"]
    assert [by_id[span.parent or 0].lane for span in inner] == [span.lane for span in inner]
    assert values(run)["time/work/count"] == 4.0


def test_tasks_have_lanes_and_keep_their_parents():
    """Tasks that alternate in one thread do not mix their phases; onload and offload may be coroutines."""
    run = known_run()
    moved: list[str] = []

    async def load() -> None:
        await asyncio.sleep(0)
        moved.append("loaded")

    async def generate() -> None:
        async with run.phase("generate", onload=load, offload=load):
            await asyncio.sleep(0.001)
            with run.timer("score"):
                await asyncio.sleep(0.001)

    async def rollout() -> None:
        async with run.phase("rollout"):
            await asyncio.gather(*(asyncio.create_task(generate(), name=f"episode-{n}") for n in range(3)))

    asyncio.run(rollout())
    run.commit(0)
    found = spans(run)
    by_id = {span.id: span for span in found}
    generated = [span for span in found if span.name == "generate"]
    assert {span.lane for span in generated} == {"episode-0", "episode-1", "episode-2"}
    assert {by_id[span.parent or 0].name for span in generated} == {"rollout"}
    assert {by_id[span.parent or 0].name for span in found if span.name == "score"} == {"generate"}
    assert [span.lane for span in found if span.name == "score"] == [
        by_id[span.parent or 0].lane for span in found if span.name == "score"
    ]
    assert moved == ["loaded"] * 6
    assert all(span.onload is not None and span.offload is not None for span in generated)


def test_a_phase_entered_in_one_thread_may_be_left_in_another():
    """The span ends where its exit is called."""
    run = known_run()
    phase = run.phase("handed over")
    phase.__enter__()
    thread = threading.Thread(target=phase.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    run.commit(0)
    assert [span.end is None for span in spans(run)] == [False]


def test_a_span_belongs_to_the_step_in_which_it_began():
    """A span that ends after the commit is added to its own step."""
    time = Time()
    run = known_run(time)
    with run.phase("evaluate"):
        time.now += 1.0
    late = run.phase("evaluate")
    late.__enter__()
    time.now += 1.0
    run.commit(7)
    time.now += 4.0
    late.__exit__(None, None, None)
    with run.phase("evaluate"):
        time.now += 0.25
    run.commit(8)
    series = barograph.open(run.path).series("time/evaluate/total")
    assert (series.steps.tolist(), series.values.tolist()) == ([7, 8], [6.0, 0.25])
    assert [span.step for span in spans(run)] == [7, 7, 8]
    assert values(run, 7)["time/unaccounted"] == 0.0
    assert values(run, 8)["time/unaccounted"] == 0.0


def test_spans_after_the_last_commit_are_written_at_the_end_of_the_run():
    """Late spans and those of an uncommitted step are not lost."""
    time = Time()
    run = known_run(time)
    late = run.phase("evaluate")
    late.__enter__()
    run.commit(0)
    time.now += 4.0
    late.__exit__(None, None, None)
    with run.timer("save"):
        time.now += 2.0
    run.finish()
    found = barograph.open(run.path)
    assert found.series("time/evaluate/total").values.tolist() == [4.0]
    assert (found.series("time/save").steps.tolist(), found.series("time/save").values.tolist()) == ([1], [2.0])


def test_a_phase_after_finish_still_loads_and_offloads():
    """The training may continue after the run."""
    run = barograph.init()
    run.finish()
    moved = []
    with run.phase("train", onload=lambda: moved.append("on"), offload=lambda: moved.append("off")):
        pass
    assert moved == ["on", "off"]


def test_a_disabled_run_still_loads_and_offloads():
    """The caller's functions are called without recording."""
    run = barograph.init(mode="disabled")
    moved = []
    train = run.phase("train", onload=lambda: moved.append("on"), offload=lambda: moved.append("off"), tokens=3)
    with train, run.timer("inner"):
        moved.append("body")
    with pytest.raises(KeyError), run.phase("train", offload=lambda: moved.append("off")):
        raise KeyError
    run.shards([1, 2])
    run.commit(0)
    assert moved == ["on", "body", "off", "off"]


KILLED = """
import os, signal, barograph
run = barograph.init(id="killed")
with run.phase("warm"):
    pass
run.commit(0)
with run.timer("rollout"), run.phase("actor_infer/generate"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_phase_that_was_open_at_a_kill_is_found(tmp_path: Path):
    """After kill -9 the journal has the open phase and its step."""
    environment = {**os.environ, "BAROGRAPH_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    view = barograph.open("killed", dir=tmp_path)
    assert [(span.name, span.step, span.end is None) for span in view.phases()] == [
        ("warm", 0, False), ("rollout", 1, True), ("actor_infer/generate", 1, True),
    ]  # fmt: skip
    assert open_phases(view) == ["actor_infer/generate of step 1 (trainer/0, main) open at the end"]


def test_a_running_phase_is_shown():
    """A hang can be located while it lasts."""
    run = known_run()
    with run.phase("stuck"):
        [output] = open_phases(barograph.open(run.path))
        assert output.startswith("stuck of step 0 (trainer/0, main) open for ")
    assert open_phases(barograph.open(run.path)) == []


def test_a_forked_child_does_not_end_its_parents_phases():
    """The child leaves the block too, but the span is the parent's; the child's own phases are recorded."""
    time = Time()
    run = known_run(time)
    with run.phase("parent"):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with run.phase("child"):
                    time.now += 5.0
                code = 0
            finally:
                run._collectors.phases.probe.close(_current(), failed=False)
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        time.now += 1.0
    run.commit(0)
    found = {span.name: span for span in spans(run)}
    assert (found["parent"].execute, found["parent"].part) == (1.0, 0)
    assert (found["child"].execute, found["child"].part, found["child"].parent) == (5.0, 1, None)
    assert "time/child/total" not in values(run)


def _current():  # type: ignore[no-untyped-def]
    from barograph.recording.probe.phases import current_span

    return current_span.get()


def test_tokens_are_counted_with_their_kind():
    """The kind is stored, and the time per token is logged."""
    time = Time()
    run = known_run(time)
    with run.phase("generate", tokens=lambda: {"generated": 400}):
        time.now += 2.0
    with run.phase("train", tokens={"prompt": 100, "trained": 300}):
        time.now += 1.0
    with run.phase("bare") as span:
        span.tokens = 50
        time.now += 5.0
    run.commit(0)
    assert [(span.tokens, span.token_kind) for span in spans(run)] == [
        (400.0, "generated"), (400.0, "prompt+trained"), (50.0, "tokens"),
    ]  # fmt: skip
    found = values(run)
    assert found["time/per_token/generate"] == 2.0 / 400
    assert found["time/per_token/bare"] == 0.1
    assert found["system/generated_tokens_per_second"] == 200.0
    assert found["system/train_tokens_per_second"] == 300.0


def test_parallel_token_counts_are_divided_by_the_time_of_their_union():
    """Two lanes that generate at once are twice as fast as one."""
    time = Time()
    run = known_run(time)
    phases = [run.phase("generate", tokens={"generated": 100}) for _ in range(2)]
    for phase in phases:
        phase.__enter__()
    time.now += 4.0
    for phase in phases:
        phase.__exit__(None, None, None)
    run.commit(0)
    assert values(run)["system/generated_tokens_per_second"] == 50.0


def test_the_device_clock_is_read_without_waiting():
    """Device times that are known after the commit are written under the span's step."""
    time, queue = Time(), KnownQueue()
    run = known_run(time, queue=queue)

    def load() -> None:
        time.now += 0.1
        queue.time += 0.25

    with run.phase("train", onload=load, clock="device"):
        time.now += 0.2  # queueing
        queue.time += 8.0  # working
    run.commit(0)
    assert queue.waited == 0
    assert "time/train/total" not in values(run)
    assert [span.clock for span in spans(run)] == ["host"]
    queue.done = True
    run.commit(1)
    assert values(run, 0)["time/train/execute"] == 8.0
    assert values(run, 0)["time/train/onload"] == 0.25
    assert [(span.clock, span.step, span.execute) for span in spans(run)] == [("device", 0, 8.0)]


def test_without_a_device_the_host_clock_is_used():
    """The span records the clock; there is no error."""
    time = Time()
    run = known_run(time)
    with run.phase("train", clock="device"):
        time.now += 1.0
    run.commit(0)
    assert [(span.clock, span.execute) for span in spans(run)] == [("host", 1.0)]


trees = st.recursive(st.just(()), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=12)


@given(tree=trees, tick=st.floats(0.001, 10.0), work=st.lists(st.floats(0.0, 5.0), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_children_never_exceed_their_parent(tree: tuple, tick: float, work: list[float]):  # type: ignore[type-arg]
    """On one thread and clock, nested phases are never longer than their parent, and no share exceeds 1."""
    time = Time(tick)
    run = known_run(time)
    pace = iter(work * 100)

    def go(inner: tuple, depth: int) -> None:  # type: ignore[type-arg]
        with run.phase(f"level-{depth}", onload=time.passes(next(pace)), offload=time.passes(next(pace))):
            time.now += next(pace)
            for one in inner:
                go(one, depth + 1)

    go(tree, 0)
    run.commit(0)
    found = spans(run)
    inside: dict[int, float] = {}
    for span in found:
        if span.parent is not None:
            inside[span.parent] = inside.get(span.parent, 0.0) + (span.seconds or 0.0)
    for span in found:
        assert inside.get(span.id, 0.0) <= (span.execute or 0.0) * (1 + 1e-9) + 1e-9
    assert 0.0 <= values(run)["time/unaccounted_share"] <= 1.0
    run.finish()


def test_the_repr_of_a_phase():
    """It has the kind and the name."""
    run = known_run()
    assert repr(run.phase("train")) == "<barograph phase 'train'>"
    assert isinstance(run.timer("t"), Phase)
