"""Measuring in a run: per micro-batch, per part and per rank, and the values in the journal."""

import csv
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from test_harness import LOSSES, OPTIONS, make

import barograph
from barograph.importers.summary import run_warnings
from barograph.metrics.batch import values
from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.step import measure

SEED = Path(__file__).parents[2] / "data" / "seed_metrics.tsv"
LOGGED = {
    "actor/lr", "critic/lr", "lr", "eps", "episode", "actor/grad_norm", "critic/grad_norm",  # the caller logs or counts
}  # fmt: skip
FROM_BATCH = (
    "critic/", "actor/", "tokens/", "objective/", "policy/", "loss/", "val/ratio", "val/clipfrac", "val/num_eos",
    "response_length/", "prompt_length/",
)  # fmt: skip


@pytest.mark.parametrize("vocabulary", ["roll", "trl", "trinity"])
def test_every_documented_name_of_a_batch_is_written(vocabulary: str):
    """One measured step has all names of the documentation, in each vocabulary."""
    with SEED.open() as file:
        names = [row["name"] for row in csv.DictReader(file, delimiter="\t") if row["vocabulary"] == vocabulary]
    wanted = {name for name in names if name.startswith(FROM_BATCH) and "{" not in name} - LOGGED
    assert len(wanted) > 10
    run = barograph.init(vocabulary=vocabulary)
    run.measure(make(12, 8, 0), part=None, **OPTIONS)
    run.commit(0)
    assert wanted <= set(barograph.open(run.path).names())


def test_micro_batches_of_a_step_are_the_whole_batch():
    """With the data part once and the others per micro-batch, the committed values are those of the batch."""
    data = make(24, 9, 1)
    whole = Batch(**data)
    run = barograph.init()
    for step in range(3):
        run.measure(whole, **OPTIONS)
        for micro in whole.split(5):
            run.measure(micro, part="policy", **OPTIONS)
            run.measure(micro, part="value", **OPTIONS)
        run.commit(step)
    view = barograph.open(run.path)
    for name, value in measure(whole, **OPTIONS).items():
        assert view.series(name).values.tolist() == pytest.approx([value] * 3, rel=1e-9), name


def test_counts_come_from_the_data_part_alone():
    """Epochs over a batch do not multiply its samples."""
    whole = Batch(**make(10, 6, 2))
    run = barograph.init()
    run.measure(whole)
    for _ in range(4):
        run.measure(whole, part="policy")
    run.commit(0)
    assert barograph.open(run.path).series("actor/total_samples").last == 10


def test_threads_may_measure_and_an_explicit_step_waits_for_its_commit():
    """Micro-batches from several threads for the step to come, and for a later one."""
    whole = Batch(**make(16, 6, 3))
    run = barograph.init()

    def work(part: Batch) -> None:
        run.measure(part, part="policy", step=1)

    threads = [threading.Thread(target=work, args=(part,)) for part in whole.split(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.commit(0)
    assert "actor/ratio_mean" not in barograph.open(run.path).names()
    run.commit(1)
    expected = measure(whole)["actor/ratio_mean"]
    series = barograph.open(run.path).series("actor/ratio_mean")
    assert (series.steps.tolist(), series.values.tolist()) == ([1], pytest.approx([expected]))


def test_what_comes_after_its_commit_is_told_and_not_mixed_in(capsys: pytest.CaptureFixture[str]):
    """A late micro-batch changes no number that was written."""
    whole = Batch(**make(6, 6, 4))
    run = barograph.init()
    run.measure(whole)
    run.commit(5)
    run.measure(whole, step=5)
    run.commit(6)
    run.finish()
    assert barograph.open(run.path).series("actor/total_samples").steps.tolist() == [5]
    assert run_warnings(barograph.open(run.path)) == [
        "1 batch was measured after the commit of the step and not counted"
    ]
    assert "measured for step 5, which is committed" in capsys.readouterr().err


def test_a_batch_that_does_not_fit_does_not_stop_the_training(capsys: pytest.CaptureFixture[str]):
    """The mistake is told in words."""
    run = barograph.init()
    run.measure({"response_mask": [[1, 1]], "advantages": [[1.0]]})
    run.measure({"response_mask": [[1, 1]]}, part="actor")
    run.commit(0)
    shown = capsys.readouterr().err
    assert "advantages: expected shape (1, 2) like response_mask, got (1, 1)" in shown
    assert "part: expected one of data, policy, value, got 'actor'" in shown


def test_why_a_metric_is_missing_is_in_the_journal():
    """The page shows the reason in place of a curve."""
    run = barograph.init()
    run.measure({"response_mask": [[1, 1]]}, part=None)
    run.commit(0)
    [event] = [e for e in barograph.open(run.path).events() if e["event"] == "missing"]
    reason = "the batch has no log_probs, and no logits and actions to compute it from"
    assert event["metrics"]["actor/ratio_mean"] == reason


def test_what_was_measured_and_never_committed_is_written_at_the_end():
    """A script that ends in the middle of a step loses no measured batch."""
    run = barograph.init()
    run.measure(Batch(**make(6, 6, 5)))
    run.finish()
    assert barograph.open(run.path).series("actor/total_samples").last == 6


RANK = """
import sys, numpy as np, barograph
sys.path.insert(0, sys.argv[1])
from test_harness import OPTIONS, make
from barograph.metrics.batch.arrays import Batch
for loss in sys.argv[2:]:
    run = barograph.init(id=loss)
    mine = Batch(**make(24, 9, 7)).take(slice(run.writer.rank * 6, run.writer.rank * 6 + 6))
    for step in range(2):
        run.measure(mine, part=None, **{**OPTIONS, "loss": loss})
        run.commit(step)
    run.finish()
"""


@pytest.fixture(scope="module")
def runs_of_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the runs that four processes recorded, one for each loss."""
    folder = tmp_path_factory.mktemp("ranks")
    script = folder / "rank.py"
    script.write_text(textwrap.dedent(RANK))
    command = [sys.executable, str(script), str(Path(__file__).parent), *LOSSES]
    environment = {**os.environ, "BAROGRAPH_DIR": str(folder / "runs"), "WORLD_SIZE": "4", "OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen(command, env={**environment, "RANK": str(rank)}) for rank in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    return folder / "runs"


@pytest.mark.parametrize("loss", LOSSES)
def test_a_reader_merges_the_states_of_ranks(runs_of_ranks: Path, loss: str):
    """Four processes write their states without a collective; the view has the values of the complete batch."""
    view = barograph.open(loss, dir=runs_of_ranks)
    expected = measure(Batch(**make(24, 9, 7)), **{**OPTIONS, "loss": loss})
    for name, value in expected.items():
        np.testing.assert_allclose(view.series(name).values, [value] * 2, rtol=1e-9, err_msg=name)
    alone = view.series("actor/ratio_mean", rank=0).values
    assert abs(alone[0] - expected["actor/ratio_mean"]) > 1e-6


def test_options_of_one_part_hold_for_any_order_of_parts(tmp_path: Path):
    """The KL coefficient of the data part and the entropy coefficient of the policy part are both used."""
    batch = make(12, 8, 0)
    parts = [("data", {"kl_coef": 0.3}), ("policy", {"entropy_coef": 0.5}), ("value", {"value_clip": 0.2})]
    whole = measure(Batch(**batch), vocabulary="trl", entropy_coef=0.5)["policy/loss/total"]
    for order in (parts, parts[::-1]):
        run = barograph.init(dir=tmp_path, vocabulary="trl")
        for part, options in order:
            run.measure(batch, part=part, **options)
        run.commit(0)
        run.finish()
        view = barograph.open(run.path)
        assert view.series("objective/kl_coef").last == 0.3
        assert view.series("policy/loss/total").last == pytest.approx(whole)


def test_a_micro_batch_that_lacks_an_input_is_told(tmp_path, capsys):
    """A metric of 3 of 4 micro-batches looks like one of all four; other parts of the step do not matter."""
    whole = Batch(**make(12, 8, 0))
    run = barograph.init(dir=tmp_path)
    for step in range(2):
        run.measure(whole.take(slice(0, 12)), part=None if step == 0 else "data")
        micros = whole.split(4)
        for n, micro in enumerate(micros):
            arrays = {name: getattr(micro, name) for name in micro.given}
            if n == 2 and step == 1:
                del arrays["advantages"]
            run.measure(arrays, part="policy")
        run.commit()
        told = capsys.readouterr().err
        text = 'measure(part="policy"): 1 of 4 batches of a step had no advantages: the metrics that need it'
        assert (text in told) == (step == 1)
    run.finish()


def test_reasons_are_named_when_they_change(monkeypatch: pytest.MonkeyPatch):
    """A step that lacks the same inputs as the one before writes no event, and names none of them."""
    named: list[str] = []
    name_all = values._Reasons.named
    monkeypatch.setattr(values._Reasons, "named", lambda self: named.append("again") or name_all(self))
    batch = Batch(**make(6, 8, 0))
    run = barograph.init()
    for step in range(4):
        run.measure(batch)
        run.measure(batch, part="policy", clip=0.3 if step == 3 else 0.2)
        run.commit(step)
    assert len(named) == 1  # of the first step: those of the one with other options are equal
    view = barograph.open(run.path)
    assert len([event for event in view.events() if event["event"] == "missing"]) == 1


def test_measured_values_are_pickled_with_their_reasons():
    """Also where nobody has read the reasons."""
    measured = measure(Batch(**make(6, 8, 0)))
    copy = pickle.loads(pickle.dumps(measured))
    assert copy == measured
    assert copy.missing == measured.missing != {}
