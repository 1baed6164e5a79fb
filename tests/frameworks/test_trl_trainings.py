"""Names that TRL's trainers really log are known, and none is misread. ``scripts/test-frameworks`` runs these tests."""

import importlib.util

import numpy as np
import pytest
from framework_trainings import Trained

from windsock.catalogue.resolution import RunNames
from windsock.diagnosis.case import collect
from windsock.diagnosis.diagnose import diagnose

pytestmark = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="trl is not installed")

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


@pytest.mark.parametrize("which", MEANINGS)
def test_every_name_of_a_trainer_is_known(which: str, watched: Trained):
    """The trainer is found from names and values, every name has one meaning, and the doctor has no warning."""
    series: dict[str, list[float]] = {}
    for row in watched.log(f"{which}-{'report' if which == 'sft' else 'watch'}"):
        for name, value in row.items():
            series.setdefault(name, []).append(float(value))
    names = RunNames(series, series=lambda name: series[name])
    assert names.source == f"trl/{which}"
    assert (names.unknown, names.ambiguous) == ([], [])
    wanted = MEANINGS[which]
    found = {name: match.metric.id for name in wanted if (match := names.match(name)) is not None}
    assert found == wanted
    found = diagnose(collect(names, lambda name: (np.arange(len(series[name])), np.array(series[name]))))
    assert [finding.text.en for finding in found.findings if finding.severity != "info"] == []
