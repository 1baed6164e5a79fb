"""TRL's trainers under ``barograph.watch`` and ``report_to="barograph"``: the run has what the training did."""

import importlib.util
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from framework_trainings import Trained

import barograph
from barograph.answers.reports.embedded import report_data
from barograph.base.model import Sample
from barograph.catalogue.resolution import RunNames
from barograph.diagnosis.diagnose import diagnose
from barograph.diagnosis.signals import collect
from barograph.journal import findings
from barograph.journal.samples.token_sums import all_values

pytestmark = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="trl is not installed")

TRAINERS = {"grpo": "watch", "rloo": "watch", "sft": "report", "dpo": "watch", "kto": "watch", "reward": "watch"}
GENERATING = ("grpo", "rloo")
OF_STEP = {"load_data", "prepare_inputs", "compute_loss", "backward", "optimizer"}
OF_GENERATION = {"transformers.generate", "calculate_rewards", "reward/reward", "get_per_token_logps_and_entropies"}
PHASES = {"grpo": OF_STEP | OF_GENERATION, "rloo": OF_STEP | OF_GENERATION, "sft": set(), "dpo": OF_STEP | {"evaluate"},
          "kto": OF_STEP, "reward": OF_STEP}  # fmt: skip
TRUE_OF_ALL = {"lr_implausible", "truncation"}
"""What the doctor may say of those that generate: at a rate of 1e-3, up to 8 tokens, of which few are the end."""
CLOCK = {"step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second", "eval_runtime",
         "eval_samples_per_second", "eval_steps_per_second"}  # fmt: skip

OF_TRAINER = {"grad_norm": "policy/grad_norm", "learning_rate": "policy/lr", "train_runtime": "training/runtime"}
SAMPLED = OF_TRAINER | {
    "reward": "reward/score/mean",
    "loss": "policy/loss/total",
    "completions/mean_length": "tokens/response_length/mean",
    "completions/clipped_ratio": "tokens/response_truncated",
    "entropy": "policy/entropy/mean",
}
PREFERENCE = OF_TRAINER | {"loss": "preference/loss", "rewards/chosen": "reward/implicit/chosen"}
MEANINGS = {
    "grpo": SAMPLED | {"kl": "policy/kl_loss", "clip_ratio/region_mean": "policy/clip_fraction"},
    "rloo": SAMPLED
    | {"kl": "policy/ref_kl_k1", "clip_ratio/region_mean": "policy/sequence_ratio_summed/clip_fraction"},
    "sft": OF_TRAINER | {"loss": "sft/train_loss", "mean_token_accuracy": "sft/token_accuracy"},
    "dpo": PREFERENCE | {"rewards/accuracies": "reward/implicit/accuracy", "eval_runtime": "validation/runtime"},
    "kto": PREFERENCE | {"kl": "preference/kto_kl"},
    "reward": OF_TRAINER
    | {"loss": "preference/loss", "accuracy": "preference/accuracy", "margin": "preference/margin"},
}


def by_step(view: barograph.View, name: str) -> dict[int, float]:
    """Return the values of a series by their steps."""
    series = view.series(name)
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def without_clock(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return logged rows without what a clock has measured."""
    return [{name: value for name, value in row.items() if name not in CLOCK} for row in rows]


def assert_logged(view: barograph.View, rows: list[dict[str, Any]]) -> None:
    """Every number that a training logged is in the run, under its step and exactly."""
    columns = {name: by_step(view, name) for row in rows for name in row if name != "step"}
    wanted: dict[tuple[str, int], float] = {}
    for row in rows:
        wanted |= {(name, row["step"]): value for name, value in row.items() if name != "step"}
    assert {key: columns[key[0]][key[1]] for key in wanted} == wanted


@pytest.mark.parametrize("which", TRAINERS)
def test_a_training_is_recorded_with_its_values_source_name_and_config(which: str, watched: Trained):
    """Everything that the trainer logged, and where it comes from; a token of its arguments is nowhere."""
    view = watched.view(f"tiny {which}")
    assert_logged(view, watched.log(f"{which}-{TRAINERS[which]}"))
    assert (view.info.producer, view.info.project, view.status.word) == (f"trl/{which}", "tiny", "finished")
    assert view.config["max_steps"] == 25
    assert view.config["model"]["hidden_size"] == 16
    assert view.steps == (1, 25)
    assert view.problems() == []
    files = [path for path in view.path.rglob("*") if path.is_file()]
    assert files
    assert not any(b"planted_secret" in path.read_bytes() for path in files)


@pytest.mark.parametrize("which", MEANINGS)
def test_names_and_values_tell_the_trainer_and_every_meaning(which: str, watched: Trained):
    """Without a stated source too every name has one meaning, and the doctor warns of nothing that is not so."""
    series: dict[str, list[float]] = {}
    for row in watched.log(f"{which}-{TRAINERS[which]}"):
        for name, value in row.items():
            series.setdefault(name, []).append(float(value))
    names = RunNames(series, series=lambda name: series[name])
    assert names.source == f"trl/{which}"
    assert (names.unknown, names.ambiguous) == ([], [])
    wanted = MEANINGS[which]
    found = {name: match.metric.id for name in wanted if (match := names.match(name)) is not None}
    assert found == wanted
    diagnosis = diagnose(collect(names, lambda name: (np.arange(len(series[name])), np.array(series[name]))))
    assert {finding.rule for finding in diagnosis.findings if finding.severity != "info"} <= TRUE_OF_ALL


@pytest.mark.parametrize("which", TRAINERS)
def test_the_phases_of_every_step_are_recorded(which: str, watched: Trained):
    """TRL's own profiling and the trainer's methods; with ``report_to`` alone there is no trainer to look at."""
    spans = watched.view(f"tiny {which}").phases()
    assert {span.name for span in spans} == PHASES[which]
    assert all(
        {span.step for span in spans if span.name == name} == set(range(1, 26)) for name in OF_STEP & PHASES[which]
    )
    assert not any(span.failed for span in spans)


@pytest.mark.parametrize("which", GENERATING)
def test_completions_become_samples_with_their_rewards(which: str, watched: Trained):
    """Of every completion the reward is that of its text, and each step's samples have the logged statistics."""
    view = watched.view(f"tiny {which}")
    samples = view.samples(limit=None)
    assert len(samples) == 25 * 4
    assert all(sample.reward == len(sample.completion.split()) % 3 for sample in samples)
    assert all(sample.rewards == {"reward": sample.reward} for sample in samples)
    for step in range(1, 26):
        mine = [sample for sample in samples if sample.step == step]
        assert len({sample.task for sample in mine}) == len({sample.prompt for sample in mine}) == 1
        cut_off = sum(sample.finish_reason == "length" for sample in mine) / len(mine)
        assert cut_off == by_step(view, "completions/clipped_ratio")[step]
        assert sum(sample.length or 0 for sample in mine) / len(mine) == by_step(view, "completions/mean_length")[step]
        assert math.isclose(sum(sample.advantage or 0.0 for sample in mine), 0.0, abs_tol=1e-5)


def test_measured_batches_agree_with_what_the_trainer_logs(watched: Trained):
    """``measure=True``: the same loss, entropy, KL, reward and length, from the raw batches."""
    view = watched.view("tiny grpo")
    pairs = {"actor/total_loss": "loss", "policy/entropy/mean": "entropy", "actor/kl_loss": "kl",
             "critic/score/mean": "reward", "tokens/response_length/mean": "completions/mean_length"}  # fmt: skip
    for measured, logged in pairs.items():
        mine, theirs = by_step(view, measured), by_step(view, logged)
        assert mine.keys() == theirs.keys()
        # They compute in 32 bits, and a loss is a sum of terms near 1.
        assert all(math.isclose(mine[step], theirs[step], rel_tol=1e-4, abs_tol=1e-6) for step in mine), measured


@pytest.mark.parametrize("ranks", [1, 2])
def test_token_values_are_the_arrays_of_the_trainer(ranks: int, request: pytest.FixtureRequest):
    """At the right tokens, masks included, for every step; each process has stored its own."""
    trained: Trained = request.getfixturevalue("watched" if ranks == 1 else "on_two_ranks")
    samples = assert_all_measured(trained, ranks)
    assert {sample.step for sample in samples} == set(range(1, 26 if ranks == 1 else 4))


def test_token_values_of_an_answer_that_a_tool_wrote_in(tmp_path: Path):
    """The tool's tokens are in the middle and masked; the policy moved, so that ratios differ and some are clipped."""
    trained = Trained(tmp_path)
    trained.train("watched_trl.py", tmp_path, 6, "grpo:tool")
    samples = assert_all_measured(trained, 1)
    assert {sample.step for sample in samples} == {1, 3, 5}
    masks = [np.array(sample.token_values["mask"]) for sample in samples]
    assert all(list(mask[mask.argmin() :]) == [0, 0, 1, 1] and mask[0] == 1 for mask in masks)
    values = [all_values(sample.token_values) for sample in samples]
    ratios, clipped = (np.concatenate([value[name] for value in values]) for name in ("ratio", "clipped"))
    assert np.abs(ratios - 1).max() > 0.2
    assert 0 < clipped.sum() < len(clipped)


def assert_all_measured(trained: Trained, ranks: int) -> list[Sample]:
    """Every sample with tokens has the values of the arrays in its step; return them."""
    torch = pytest.importorskip("torch")
    samples = {str(one.id): one for one in trained.view("tiny grpo").samples(where="tokens > 0", limit=None)}
    checked = set()
    for rank in range(ranks):
        for batch in torch.load(trained.folder / f"arrays-{rank}.pt"):
            for row, number in enumerate(map(str, batch["barograph_ids"].tolist())):
                if number in samples and samples[number].step == batch["step"] + 1:
                    assert_measured(samples[number], batch, row)
                    checked.add(number)
    assert checked == samples.keys()
    return list(samples.values())


def assert_measured(sample: Sample, batch: dict[str, Any], row: int) -> None:
    """A sample has the tokens of a row, the mask of all of them, and every value where the mask is 1."""
    completion = batch["completion_mask"][row].bool().numpy()
    mask = completion & (batch["tool_mask"][row].bool().numpy() if "tool_mask" in batch else True)
    words = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(61))]
    assert [token.strip() for token in sample.tokens] == [words[id] for id in batch["completion_ids"][row][completion]]
    values = all_values({name: np.array(array) for name, array in sample.token_values.items()})
    assert values["mask"].tolist() == mask[completion].tolist()
    now, reference = (batch[name][row].numpy().astype(float) for name in ("log_probs", "ref_per_token_logps"))
    ratio = np.exp(now - np.asarray(batch.get("old_per_token_logps", batch["log_probs"])[row], float))
    advantage = np.full(len(now), float(batch["advantages"][row]))
    expected = {
        "log_prob": now, "reference": reference, "entropy": batch["entropy"][row].numpy(), "advantage": advantage,
        "surprise": -now, "kl": np.expm1(reference - now) - (reference - now), "ratio": ratio,
        "push": advantage * ratio,
        "clipped": ((ratio > 1.2) & (advantage > 0)) | ((ratio < 0.8) & (advantage < 0)),
    }  # fmt: skip
    expected["gradient"] = np.where(expected["clipped"], 0.0, advantage * ratio * (1 - np.exp(now)))
    for name, array in expected.items():
        found = values[name][mask[completion]]
        np.testing.assert_allclose(found, array[mask], rtol=2e-3, atol=5e-4, err_msg=name)


@pytest.mark.parametrize("which", TRAINERS)
def test_the_page_says_what_the_training_logged(which: str, watched: Trained):
    """The overview knows the source and every name, shows logged values, and finds nothing that is not so."""
    overview = report_data(watched.view(f"tiny {which}"))["overview"]
    assert (overview["source"], overview["unknown"], overview["ambiguous"]) == (f"trl/{which}", 0, [])
    assert overview["steps"] == [1, 25]
    assert [writer["status"] for writer in overview["writers"]] == ["finished"]
    rows = watched.log(f"{which}-{TRAINERS[which]}")
    last = {name: value for row in rows for name, value in row.items()}
    shown = {vital["name"]: vital["last"] for vital in overview["vital"]}
    assert {name: last[name] for name in shown if name in last} == {n: v for n, v in shown.items() if n in last}
    assert "grad_norm" in shown
    assert ("reward" in shown) == (which in GENERATING)
    found = {finding["rule"] for finding in overview["findings"]}
    assert found <= (TRUE_OF_ALL if which in GENERATING else set())


@pytest.mark.parametrize("which", ["grpo", "dpo", "sft"])
def test_a_training_is_the_same_without_barograph(which: str, watched: Trained):
    """The same seeds give the same numbers in every row, also with measured batches."""
    plain = without_clock(watched.log(f"{which}-plain"))
    assert plain == without_clock(watched.log(f"{which}-{TRAINERS[which]}"))
    assert len(plain) > 25


@pytest.mark.parametrize("training", ["grpo-broken", "sft-unbegun"])
def test_a_barograph_that_fails_everywhere_costs_a_training_nothing(training: str, watched: Trained):
    """No exception of ours reaches the trainer, neither in the loop nor when the run cannot begin."""
    which = training.partition("-")[0]
    assert without_clock(watched.log(training)) == without_clock(watched.log(f"{which}-plain"))


@pytest.mark.parametrize("which", TRAINERS)
def test_two_processes_of_torchrun_are_one_run(which: str, on_two_ranks: Trained):
    """Each training of the job is a run of its own, with both ranks, and values of the whole."""
    view = on_two_ranks.view(f"tiny {which}")
    assert [(writer.rank, status.word) for writer, status in view.writer_statuses().items()] == [
        (0, "finished"), (1, "finished")
    ]  # fmt: skip
    assert view.missing_ranks() == []
    assert_logged(view, on_two_ranks.log(f"{which}-{TRAINERS[which]}"))
    if which not in GENERATING:
        return
    samples = view.samples(limit=None)
    assert len(samples) == 3 * 8
    reward = by_step(view, "reward")
    for step in (1, 2, 3):
        mine = [sample for sample in samples if sample.step == step]
        assert math.isclose(sum(sample.reward or 0.0 for sample in mine) / 8, reward[step], rel_tol=1e-6)
    assert by_step(view, "tokens")[3] == by_step(view, "num_tokens")[3]


def test_a_crash_is_recorded_and_a_resumed_training_continues_the_run(tmp_path: Path):
    """The run crashes with the training's reason; from its checkpoint on it has a second attempt."""
    trained = Trained(tmp_path)
    done = trained.run("watched_trl.py", tmp_path, 7, "grpo:crash")
    assert "the reward model is gone" in done.stderr
    view = trained.view("tiny grpo")
    assert (view.status.word, view.status.reason) == ("crashed", "RuntimeError: the reward model is gone")
    assert view.series("reward").steps.tolist() == [1, 2, 3, 4]
    assert any(span.failed for span in view.phases() if span.name == "reward/reward_until_crash")
    trained.train("watched_trl.py", tmp_path, 7, "grpo:resume")
    resumed = trained.view("tiny grpo")
    assert (resumed.id, resumed.status.word) == (view.id, "finished")
    assert [writer.attempt for writer in resumed.writers()] == [1, 2]
    assert resumed.series("reward").steps.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert resumed.series("time/optimizer/total").steps.tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_what_the_doctor_finds_ends_the_training(tmp_path: Path):
    """Where ``stop_on`` asks for it, after the step that the request names."""
    from transformers import TrainerControl, TrainerState

    from barograph.integrations.frameworks.transformers import BarographCallback

    with barograph.init(dir=tmp_path, doctor=True, stop_on="critical") as run:
        callback, state, control = BarographCallback(run), TrainerState(global_step=3), TrainerControl()
        run.log({"loss": 1.0}, step=2)
        findings.request_stop(run.path, 3, "sick")
        callback.on_step_end(None, state, control)
        assert not control.should_training_stop
        run.log({"loss": 1.0}, step=3)
        until = time.monotonic() + 10
        while not run.should_stop and time.monotonic() < until:
            time.sleep(0.05)
        callback.on_step_end(None, state, control)
        assert control.should_training_stop
