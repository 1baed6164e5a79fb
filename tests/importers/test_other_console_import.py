"""Console logs of SkyRL and NeMo-RL, and the tables of Tinker and rLLM."""

import contextlib
import random
from pathlib import Path

import pytest

from barograph.base.errors import LogError
from barograph.importers.logs import log_at
from barograph.importers.opening import open_run
from barograph.journal.view import View


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def values(view: View) -> dict[str, dict[int, float]]:
    """Return the values of each metric by step."""
    found = {name: view.series(name) for name in view.names()}
    return {
        name: dict(zip(series.steps.tolist(), series.values.tolist(), strict=True)) for name, series in found.items()
    }


def skyrl_lines(step: int) -> list[str]:
    """Return a step as SkyRL prints it in a Ray worker, with a line of another process in between."""
    ray = "\x1b[36m(skyrl_entrypoint pid=9)\x1b[0m "
    return [
        f"{ray}2026-08-21 18:02:{step:02d}.500 | INFO     | skyrl.train.utils.tracking:log:189 - Step {step}: ",
        f"{ray}{{'generate/avg_num_tokens': '{step}.5000',",
        "other output",
        f"{ray} 'policy/policy_loss': '-0.2500',",
        f"{ray} 'reward/avg_raw_reward': 'nan',",
        f"{ray} 'trainer/global_step': {step}}}",
    ]


def nemo_lines(step: int, epoch: int = 1) -> list[str]:
    """Return a step as NeMo-RL prints it."""
    return [
        f"{'=' * 25} Epoch {epoch}/2 {'=' * 25}",
        f"{'=' * 25} Step {step}/2 {'=' * 25}",
        "▶ Training policy...",
        "📊 Training Results:",
        f"  • Loss: {step / 4:.4f}",
        "  • Generation KL Error: nan",
        "  • Avg Reward: 0.5000",
        "⏱️  Timing:",
        "  • Total step time: 12.50s",
        "  • policy_training: 10.00s (80.0%)",
        "📊 Validation Results:",
        "    • Accuracy: 0.2500",
    ]


def table_lines(step: int) -> list[str]:
    """Return a step as rich prints it, with a name that does not fit."""
    return [
        "tinker_cookbook.utils.ml_log:240 [INFO] ",
        f"           Step {step}           ",
        "┏━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┓",
        "┃ Metric               ┃ Value      ┃",
        "┡━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━┩",
        f"│ env/all/reward/total │ {step}.500000   │",
        "│ a/name/that/does/not │ 3          │",
        "│ _fit/mean            │            │",
        "│ model                │ a text     │",
        "└──────────────────────┴────────────┘",
    ]


def test_skyrl_prints_a_dict_over_several_lines(tmp_path: Path):
    """Numbers are texts there; a step that comes again is another attempt."""
    log = write(tmp_path / "a.log", *skyrl_lines(1), *skyrl_lines(2))
    view = open_run(log)
    assert (log_at(log).format, view.info.producer) == ("skyrl", "skyrl")
    found = values(view)
    assert found["generate/avg_num_tokens"] == {1: 1.5, 2: 2.5}
    assert found["policy/policy_loss"] == {1: -0.25, 2: -0.25}
    assert len(found["reward/avg_raw_reward"]) == 2
    assert view.series("policy/policy_loss").times[1] - view.series("policy/policy_loss").times[0] == 1
    again = open_run(write(tmp_path / "b.log", *skyrl_lines(1), *skyrl_lines(2), *skyrl_lines(1)))
    assert len(again.series("policy/policy_loss", attempt=1)) == 2


def test_nemo_rl_prints_lists_under_headings(tmp_path: Path):
    """Under the names that it logs; steps go on in the next epoch."""
    log = write(tmp_path / "a.log", *nemo_lines(1), *nemo_lines(2), *nemo_lines(1, epoch=2))
    view = open_run(log)
    assert (log_at(log).format, view.info.producer) == ("nemo_rl", "nemo-rl")
    found = values(view)
    assert found["train/loss"] == {1: 0.25, 2: 0.5, 3: 0.25}
    assert found["train/reward"] == {1: 0.5, 2: 0.5, 3: 0.5}
    assert found["timing/train/total_step_time"] == {1: 12.5, 2: 12.5, 3: 12.5}
    assert found["timing/train/policy_training"][1] == 10
    assert found["validation/accuracy"][3] == 0.25
    assert len(view.series("train/loss", attempt=1)) == 3


def test_tables_of_metrics_have_their_step_as_title(tmp_path: Path):
    """A name over two lines is one; what is no number is left out."""
    log = write(tmp_path / "a.log", *table_lines(0), *table_lines(1))
    view = open_run(log)
    assert (log_at(log).format, view.info.producer) == ("metric_tables", "tinker")
    assert values(view) == {"env/all/reward/total": {0: 0.5, 1: 1.5}, "a/name/that/does/not_fit/mean": {0: 3, 1: 3}}


@pytest.mark.parametrize("lines", [skyrl_lines, nemo_lines, table_lines])
def test_a_log_in_pieces_is_read_as_the_whole(tmp_path: Path, lines):
    """What belongs together may be read at different times."""
    data = "".join(f"{line}\n" for step in (1, 2) for line in lines(step)).encode()
    whole = tmp_path / "whole.log"
    whole.write_bytes(data)
    log = tmp_path / "part.log"
    start = data.index(b"\n", len(data) // 2 + 40)
    for cut in (*range(start, len(data), 53), len(data)):
        log.write_bytes(data[:cut])
        view = open_run(log)
    assert repr(values(view)) == repr(values(open_run(whole)))


@pytest.mark.parametrize("lines", [skyrl_lines, nemo_lines, table_lines])
def test_a_damaged_log_raises_nothing(tmp_path: Path, lines):
    """Random bytes anywhere."""
    data = "".join(f"{line}\n" for step in (1, 2) for line in lines(step)).encode()
    chance = random.Random(7)
    for number in range(30):
        broken = bytearray(data)
        for _ in range(chance.choice((1, 10, 60))):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        log = tmp_path / f"{number}.log"
        log.write_bytes(broken)
        with contextlib.suppress(LogError):  # nothing may be left
            open_run(log)
