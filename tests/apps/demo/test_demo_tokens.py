"""The tokens of the demo's samples, from its measured batches."""

from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import SMALL

import barograph
from barograph.answers.views.samples import whole_sample
from barograph.apps.demo import recording
from barograph.apps.demo.config import DemoConfig
from barograph.apps.demo.frozen_lake import CHOICE
from barograph.apps.demo.trainer import start_runs, train
from barograph.journal.samples.query import Query
from barograph.journal.samples.token_sums import all_values

STEPS = 3
STEP = 2.5e-4


def test_token_values_of_the_demo_are_those_of_its_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What the page shows at each token is what the trainer had, with the log-probs of the last update."""
    experiences: list[Any] = []
    now: list[dict[int, np.ndarray]] = []
    record_experience, record_policy = recording.record_experience, recording.record_policy

    def experience(run, e, config, version) -> None:
        experiences.append(e)
        now.append({})
        record_experience(run, e, config, version)

    def policy(run, e, rows, logits, log_probs, config) -> None:
        mask = e.episodes.mask[rows]
        chosen = log_probs[np.arange(len(log_probs)), e.episodes.choices[rows][mask]]
        now[-1] |= dict(zip(rows.tolist(), e.episodes.to_grid(chosen, rows), strict=True))
        record_policy(run, e, rows, logits, log_probs, config)

    monkeypatch.setattr(recording, "record_experience", experience)
    monkeypatch.setattr(recording, "record_policy", policy)
    config = DemoConfig().changed(SMALL | {"steps": STEPS})
    run, explorer = start_runs(config, dir=tmp_path)
    with run, explorer:
        train(config, run, explorer)
    view = barograph.open(run.path)
    for step, e in enumerate(experiences):
        found = view.find_samples(Query(step=step, where="tokens > 0"))
        assert len(found.samples) == 4
        for sample in found.samples:
            row = int(str(sample.id))
            valid = e.episodes.mask[row]
            assert e.keep[row]
            choices = e.episodes.choices[row][valid]
            assert list(sample.tokens) == [recording.token_text([CHOICE + choice]) for choice in choices]
            shown = whole_sample(sample)  # as the page receives it
            assert shown["tokens"] == list(sample.tokens)
            received = {name: np.frombuffer(b64decode(text), "<f4") for name, text in shown["token_values"].items()}
            values = all_values(received)
            assert set(values["mask"]) == {1.0}
            expected = {
                "old": e.old[row], "reference": e.ref[row], "rollout": e.episodes.log_probs[row],
                "advantage": e.advantages[row], "log_prob": now[step][row],
            }  # fmt: skip
            for name, array in expected.items():
                np.testing.assert_allclose(values[name], array[valid], rtol=1e-3, atol=STEP, err_msg=name)
            ratio = np.exp(now[step][row] - e.old[row])[valid]
            np.testing.assert_allclose(values["ratio"], ratio, rtol=STEP)
