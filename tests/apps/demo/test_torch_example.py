"""The PyTorch example on the CPU."""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import barograph

EXAMPLE = Path(__file__).parents[3] / "examples" / "torch_ppo.py"
PHASES = (
    "actor_infer/generate", "reference/compute_log_probs", "actor_train/compute_log_probs", "critic/compute_values",
    "critic/train_step", "actor_train/train_step",
)  # fmt: skip


def test_the_torch_example_records_a_complete_training(tmp_path: Path):
    """Phases with onload and offload, all parts of the batch and logit statistics are recorded with finite values."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BAROGRAPH_DIR": str(tmp_path)}
    small = ["--steps", "2", "--tasks", "4", "--turns", "6", "--width", "32", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), *small],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    view = barograph.open(tmp_path / "examples" / re.search(r"show (\w+)", done.stdout)[1])  # type: ignore[index]
    wanted = [f"time/{phase}/{part}" for phase in PHASES for part in ("total", "onload", "execute", "offload")]
    wanted += [
        "actor/policykl",
        "actor/total_loss",
        "critic/loss",
        "critic/entropy/mean",
        "val/score/mean",
        "system/tps",
        "policy/ref_kl_exact",
        "policy/logits/max",
        "critic/score/mean/by/near",
        "critic/score/mean/by/far",
        "actor/weighted_pg_loss",
        "policy/clip_fraction/dual",
        *(f"policy/mismatch/truncated_weight/{of}" for of in ("mean", "clip_fraction", "effective_sample_size")),
        *(f"policy/mismatch/rejected/{of}" for of in ("tokens", "sequences")),
    ]
    assert set(wanted) <= set(view.names())
    for name in view.names("a*/*") + view.names("c*/*") + view.names("policy/*"):
        assert np.isfinite(view.series(name).values).all(), name
    assert view.series("actor/policykl").last > 0, "an update changes the policy"
    differences = view.series("policy/mismatch/log_prob_difference/max").values
    assert (differences < 1e-4).all(), "the policy that plays is the one that is trained"
    found = view.samples(where="tokens > 0")
    assert len(found) == 2 * 4
    for sample in found:
        assert "".join(sample.tokens) == sample.completion
        assert sample.columns["correct"] == (sample.reward == 1)
        assert {"old", "log_prob", "reference", "rollout", "entropy", "advantage"} <= set(sample.token_values)


def test_the_recorded_losses_are_those_that_the_example_differentiates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where the policy that plays is another one: with weights, rejected tokens and both clips."""
    spec = importlib.util.spec_from_file_location("torch_ppo", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    play, update, losses = example.play, example.Worker.update, []

    def other_policy(*arguments):
        played = play(*arguments)
        return played | {"log_probs": played["log_probs"] + 0.5 * torch.randn_like(played["log_probs"])}

    monkeypatch.setattr(example, "play", other_policy)
    monkeypatch.setattr(example.Training, "DUAL_CLIP", 1.05)  # so low that some tokens reach it
    monkeypatch.setattr(example.Worker, "update", lambda self, loss: losses.append(loss.item()) or update(self, loss))
    options = argparse.Namespace(
        steps=1, tasks=8, runs=4, turns=6, epochs=3, micro_batches=1, width=16, lr=0.02, seed=0, device="cpu"
    )
    with barograph.init(dir=tmp_path, project="examples") as run:
        example.Training(options, run).step(0)
        values = run.commit(0)
    of_critic, of_actor = np.reshape(losses, (2, options.epochs)).mean(axis=1)
    assert values["critic/loss"] == pytest.approx(of_critic, rel=1e-5)
    assert values["actor/total_loss"] == pytest.approx(of_actor, rel=1e-5, abs=1e-6)
    for name in ("mismatch/truncated_weight/clip_fraction", "mismatch/rejected/tokens", "clip_fraction/dual"):
        assert 0 < values[f"policy/{name}"] < 0.5, name
