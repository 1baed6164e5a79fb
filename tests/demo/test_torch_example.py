"""The PyTorch example on the CPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import windsock

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_ppo.py"
PHASES = (
    "actor_infer/generate", "reference/compute_log_probs", "actor_train/compute_log_probs", "critic/compute_values",
    "critic/train_step", "actor_train/train_step",
)  # fmt: skip


def test_the_torch_example_records_a_complete_training(tmp_path: Path):
    """Phases with onload and offload, all parts of the batch and logit statistics are recorded with finite values."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WINDSOCK_DIR": str(tmp_path)}
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
    view = windsock.open(tmp_path / "examples" / re.search(r"show (\w+)", done.stdout)[1])  # type: ignore[index]
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
