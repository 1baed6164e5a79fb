"""Values of all processes in the loop: real gloo processes, any split of the batch, and processes that fail."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from gather_worker import ROWS, WIDTH, Process, counted, slice_of
from test_harness import OPTIONS, make

import barograph
from barograph.journal.format.frames import Kind
from barograph.metrics.batch.arrays import Batch, BatchError
from barograph.metrics.batch.step import measure
from segment_frames import of_rank, reports, states

SECONDS = 150
FAILED = "a rank could not contribute: ValueError: injected"


class Processes:
    """The results of all processes, and the runs that they wrote."""

    def __init__(self, size: int, folder: Path) -> None:
        self.size = size
        self.folder = folder
        self.results = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]

    def of(self, scenario: str) -> list[dict[str, Any]]:
        return [result[scenario] for result in self.results]

    def view(self, name: str) -> barograph.View:
        return barograph.open(name, dir=self.folder / "runs")

    def read(self, name: str, step: int) -> dict[str, float]:
        """Return the values that a reader has of a step."""
        view = self.view(name)
        series = {metric: view.series(metric) for metric in view.names() if not metric.startswith("time/")}
        return {
            metric: float(found.values[found.steps == step][0])
            for metric, found in series.items()
            if step in found.steps
        }


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Processes:
    size, folder = 4, tmp_path_factory.mktemp("gather")
    here = Path(__file__).parent
    environment = {**os.environ, "BAROGRAPH_DIR": str(folder / "runs"), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(here / "gather_worker.py")]
    started = [
        subprocess.Popen([*command, str(rank), str(size), str(folder)], env=environment, stderr=subprocess.PIPE)
        for rank in range(size)
    ]
    try:
        errors = [process.communicate(timeout=SECONDS)[1].decode() for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * size, "\n".join(errors)[-4000:]
    return Processes(size, folder)


def assert_same(got: dict[str, float], expected: dict[str, float], tolerance: float = 1e-9) -> None:
    for name, value in expected.items():
        assert got[name] == pytest.approx(value, rel=tolerance, abs=tolerance, nan_ok=True), name


def test_every_process_gets_the_values_of_the_whole_batch(processes: Processes):
    """Measured values, rollouts and evaluations are equal on all ranks, bit by bit, and those of one process."""
    results = processes.of("whole")
    assert all(result["values"] == results[0]["values"] for result in results)
    assert all(result["missing"] == results[0]["missing"] for result in results)
    for step, values in enumerate(results[0]["values"]):
        batch = Batch(**make(ROWS, WIDTH, step))
        assert_same(values, measure(batch, **{**OPTIONS, "kl_coef": 0.1 * (step + 1)}))
        scores = np.random.default_rng(step).random((processes.size, 3))
        for name in ("rollout/reward/mean", "eval/named/score/mean@1", "eval/unnamed/score/mean@1"):
            assert values[name] == pytest.approx(scores.mean()), name
        assert values["val/score/mean"] == pytest.approx(scores[1:].mean())
        assert values["eval/named/coverage/runs_observed"] == 3 * processes.size
    assert results[0]["problems"] == []


def test_a_commit_costs_two_collectives(processes: Processes):
    """Whatever was measured: everything, different parts on different ranks, or nothing."""
    for result in processes.of("whole"):
        assert result["calls"] == [["all_gather"] * 2] * 2
    for scenario in ("layouts", "nothing", "failing"):
        assert [result["calls"] for result in processes.of(scenario)] == [["all_gather"] * 2] * processes.size


def test_a_reader_has_the_returned_values(processes: Processes):
    """They are written once: the first rank has the states, the others have none of the step."""
    for step, values in enumerate(processes.of("whole")[0]["values"]):
        assert_same(processes.read("whole", step), values, 1e-12)
    path = processes.view("whole").path
    assert states(path, 0) == [0, 1]
    assert sorted(reports(path, 0)) == sorted(
        (kind, taskset, step)
        for step in (0, 1)
        for kind, taskset in (("rollout", ""), ("eval", "named"), ("eval", "unnamed"), ("validation", ""))
    )
    for rank in range(1, processes.size):
        assert states(path, rank) == []
        assert reports(path, rank) == [("eval", "named", 0), ("eval", "named", 1)]  # closed before the commit


def test_ranks_may_measure_different_parts(processes: Processes):
    """The values of all parts are on all ranks, also on those that measured nothing."""
    results = processes.of("layouts")
    assert all(result["values"] == results[0]["values"] for result in results)
    [values] = results[0]["values"]
    batch = Batch(**make(ROWS, WIDTH, 0))
    assert_same(values, {**measure(batch, part="data", **OPTIONS), "rollout/reward/mean": 1.0})
    policy = measure(batch, part="policy", **OPTIONS)
    assert values["actor/ratio_mean"] == pytest.approx(policy["actor/ratio_mean"])
    assert_same(processes.read("layouts", 0), values, 1e-12)


def test_a_step_without_measurements_has_no_values(processes: Processes):
    """The step is committed, with what was logged."""
    assert [result["values"] for result in processes.of("nothing")] == [[{}]] * processes.size
    assert processes.view("nothing").series("logged").steps.tolist() == [0]


def test_subgroups_merge_to_the_whole(processes: Processes):
    """Each half gets its own values, and the reader those of all; a group of others gives the own values."""
    results = processes.of("subgroups")
    batch, half = Batch(**make(ROWS, WIDTH, 0)), processes.size // 2
    for rank, result in enumerate(results):
        rows = slice(0, ROWS // 2) if rank < half else slice(ROWS // 2, ROWS)
        assert_same(result["values"][0], measure(batch.take(rows), **OPTIONS))
        own = slice(rank * ROWS // processes.size, (rank + 1) * ROWS // processes.size)
        assert_same(result["values"][1], measure(batch.take(own), part="data", **OPTIONS))
        assert result["calls"] == []
    read = processes.read("subgroups", 0)
    assert_same(read, measure(batch, **OPTIONS))
    scores = np.random.default_rng(0).random((processes.size, 3))
    for name in ("rollout/reward/mean", "eval/named/score/mean@1", "eval/unnamed/score/mean@1"):
        assert read[name] == pytest.approx(scores.mean()), name
    assert_same(processes.read("subgroups", 1), measure(batch, part="data", **OPTIONS))


def test_a_rank_that_cannot_contribute_costs_that_part_on_all_ranks(processes: Processes):
    """No rank waits; the values of the others alone would be wrong, so they are missing with the reason."""
    results = processes.of("failing")
    for result in results:
        values, following = result["values"]
        assert "critic/score/mean" not in values
        assert result["missing"][0]["critic/score/mean"] == FAILED
        assert "rollout/reward/mean" in values
        assert_same(following, measure(Batch(**make(ROWS, WIDTH, 0)), part="data", **OPTIONS))
    assert "critic/score/mean" not in processes.read("failing", 0)
    assert ["commit of measured", "ValueError: injected"] in results[-1]["problems"]


def test_a_report_that_cannot_be_packed_costs_that_report(processes: Processes):
    """The measured values of the step are there."""
    for result in processes.of("failing_report"):
        assert "rollout/reward/mean" not in result["values"][0]
        assert result["missing"][0]["rollout"] == FAILED
        assert_same(result["values"][0], measure(Batch(**make(ROWS, WIDTH, 0)), part="data", **OPTIONS))


def test_a_failed_exchange_leaves_the_own_values_and_a_reader_the_whole(processes: Processes):
    """Every process writes its states as without gathering, and an event."""
    batch, share = Batch(**make(ROWS, WIDTH, 0)), ROWS // processes.size
    for rank, result in enumerate(processes.of("failing_exchange")):
        assert_same(result["values"][0], measure(batch.take(slice(rank * share, (rank + 1) * share)), **OPTIONS))
    read = processes.read("failing_exchange", 0)
    assert_same(read, measure(batch, **OPTIONS))
    assert read["rollout/reward/mean"] == pytest.approx(np.random.default_rng(0).random((processes.size, 3)).mean())
    failed = [
        event["step"] for event in processes.view("failing_exchange").events() if event["event"] == "gather_failed"
    ]
    assert failed == [0] * processes.size


def test_disabled_and_finished_runs_take_part(processes: Processes):
    """Nobody waits for them, and they get the values of the process that records."""
    share = ROWS // processes.size
    expected = measure(Batch(**make(ROWS, WIDTH, 0)).take(slice(ROWS - share, ROWS)), part="data", **OPTIONS)
    for result in processes.of("partly_disabled"):
        assert_same(result["values"][0], expected)
        assert result["values"][1] == {}


def test_every_split_gives_the_numbers_of_one_process(processes: Processes):
    """Data, tensor and context parallel, padded, zigzag and packed: replicas are counted once."""
    results = processes.of("splits")
    assert len(results[0]) == 18
    for name in results[0]:
        whole = Batch(**make(ROWS, WIDTH, 7, packed_keep=True))
        expected = measure(slice_of(whole, 0, 1, name.split("-")[3]), **OPTIONS)
        for result in results:
            assert_same(result[name]["values"][1], expected)
            assert result[name]["problems"] == []
        for step in range(2):
            assert_same(processes.read(name, step), expected)
        for rank, result in enumerate(results):
            written = b'"tokens"' in b"".join(of_rank(processes.view(name).path, rank, Kind.SCHEMA))
            assert written == result[name]["counts"]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """Make a process group of this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_a_group_of_one_process_gives_its_values():
    """Handles that were closed before the commit are among them; the journal has no states."""
    run = barograph.init(world_size=1)
    run.measure(make(ROWS, WIDTH, 0), **OPTIONS)
    Process(0, 1)._report(run, 0)
    with counted() as calls:
        values = run.commit(0, gather=True)
    assert calls == ["all_gather"] * 2
    assert {"rollout/reward/mean", "eval/named/score/mean@1", "eval/unnamed/score/mean@1"} <= set(values)
    assert_same(values, measure(Batch(**make(ROWS, WIDTH, 0)), part="data", **OPTIONS))
    view = barograph.open(run.path)
    assert {name: view.series(name).last for name in values} == values
    assert states(run.path) == reports(run.path) == []


@pytest.mark.usefixtures("alone")
def test_tokens_are_gathered_in_order():
    """Two chunks of each sequence in zigzag layout are put in their place, also of tensors and in half precision."""
    from barograph.metrics.batch.completion import _places

    whole = np.arange(16)
    chunks = whole.reshape(8, 2)
    for parts in (2, 4):
        pieces = [np.concatenate([chunks[r : r + 1].ravel(), chunks[7 - r : 8 - r].ravel()]) for r in range(4)]
        if parts == 2:
            pieces = [np.concatenate([whole[4 * r : 4 * r + 4], whole[12 - 4 * r : 16 - 4 * r]]) for r in range(2)]
        places = _places([np.array([0, len(piece)]) for piece in pieces], "zigzag")
        assert np.concatenate(pieces)[places].tolist() == whole.tolist()
    batch = Batch(response_mask=torch.ones(2, 3, dtype=torch.bool), log_probs=torch.randn(2, 3).bfloat16())
    for order in ("contiguous", "zigzag"):
        found = batch.gathered(None, order=order)
        assert found.log_probs.dtype == torch.bfloat16
        assert torch.equal(found.log_probs, batch.log_probs)
        assert torch.equal(found.response_mask, batch.response_mask)


@pytest.mark.usefixtures("alone")
def test_logits_are_reduced_before_they_are_gathered():
    """The log-probs and entropies that follow from them travel, not the logits."""
    logits, actions = torch.randn(3, 4, 7), torch.randint(0, 7, (3, 4))
    batch = Batch(response_mask=[[1] * 4] * 3, actions=actions.tolist(), logits=logits.numpy())
    found = batch.gathered(None, temperature=2.0)
    assert found.logits is None
    assert_same(measure(found), measure(batch, temperature=2.0), 1e-6)


def test_gathering_tokens_needs_a_group():
    """A batch of slices is not measured as if it were the whole."""
    batch = Batch(response_mask=[[1, 1]])
    with pytest.raises(BatchError, match="no process group"):
        batch.gathered(None)
    with pytest.raises(BatchError, match="expected contiguous or zigzag, got 'random'"):
        batch.gathered(None, order="random")  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_nccl_gathers_on_the_device(tmp_path: Path):
    """A commit of a batch on the device, and the tokens of a context-parallel group, with NCCL."""
    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        data = make(ROWS, WIDTH, 0, packed_keep=True)
        there = {
            name: torch.as_tensor(value, device="cuda") if isinstance(value, np.ndarray) else value
            for name, value in data.items()
        }
        whole = Batch(**there).gathered(None, order="zigzag")
        assert whole.log_probs.is_cuda
        assert torch.equal(whole.log_probs, there["log_probs"])
        run = barograph.init(rank=0, world_size=2)
        run.measure(whole, part=None, **OPTIONS)
        run.rollouts().add("a", {"reward": 0.5})
        with counted() as calls:
            values = run.commit(0, gather=True)
        assert calls == ["all_gather"] * 2
        assert_same(values, {**measure(Batch(**data), **OPTIONS), "rollout/reward/mean": 0.5}, 2e-5)
        run.finish()
        view = barograph.open(run.path)
        assert {name: view.series(name, rank=0).last for name in values} == values
    finally:
        dist.destroy_process_group()
