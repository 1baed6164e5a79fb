"""Console logs of prime-rl: lines of steps by trainer and orchestrator."""

import contextlib
import json
import random
from pathlib import Path

import pytest

from barograph.base.errors import LogError
from barograph.importers.logs import log_at
from barograph.importers.opening import open_run

DIM, RESET = "\x1b[2m", "\x1b[0m"


def old_line(step: int) -> str:
    """Return the line of a step as the trainer printed it in 2025."""
    return (
        f"{DIM}12:00:{step:02d}{RESET} SUCCESS Step {step} | Time: 12.50s | Loss: {step / 4:.4f} | Entropy: 0.5000 | "
        f"Importance Ratio: 1.0000 | Grad. Norm: nan | LR: 1.00e-06 | Throughput: 1234 tokens/s | MFU: 12.3% | "
        f"Peak Mem.: 40.5/80.0 GiB (50.6%) | Max Vio: 0.0100"
    )


def new_line(step: int) -> str:
    """Return the line of a step as the orchestrator prints it in 2026."""
    return (
        f"12:00:{step:02d} SUCCESS Step {step} |  1m 12s | Reward {step / 8:.4f} | Trainable 12/16 (75.0%) | "
        f"Turns 2.5 | Max Off-Policy 3 | Error 1.5% | Cancelled 0.0% | Truncation 25.0%"
    )


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def values(path: Path) -> dict[str, list[float]]:
    """Return the values of each metric."""
    view = open_run(path)
    return {name: view.series(name).values.tolist() for name in view.names()}


def test_the_trainer_logs_one_row_per_step(tmp_path: Path):
    """Under the names of its metrics, with the numbers as printed."""
    log = write(tmp_path / "rl.log", "12:00:00    INFO Starting", old_line(1), old_line(2))
    view = open_run(log)
    assert (log_at(log).format, view.info.producer) == ("prime_rl", "prime-rl")
    found = {name: view.series(name).values.tolist() for name in view.names() if name != "optim/grad_norm"}
    assert found == {
        "time/step": [12.5, 12.5], "loss/mean": [0.25, 0.5], "entropy/mean": [0.5, 0.5],
        "importance_ratio/mean": [1, 1], "optim/lr": [1e-6, 1e-6], "perf/throughput": [1234, 1234],
        "perf/mfu": [12.3, 12.3], "perf/peak_memory": [40.5, 40.5], "max_vio/mean": [0.01, 0.01],
    }  # fmt: skip
    assert view.series("loss/mean").steps.tolist() == [1, 2]
    assert len(view.series("optim/grad_norm")) == 2


def test_the_orchestrator_logs_rewards_of_environments_and_evaluations(tmp_path: Path):
    """A line of each environment follows that of the step; an evaluation names its step."""
    log = write(
        tmp_path / "orchestrator.log",
        new_line(1),
        "\t\t ╰─ math  | Ratio 50.0% | Reward 0.7500 | Turns 1.0",
        "\t\t ╰─ sudoku | Ratio 50.0% | Reward 0.2500 | Turns 4.0",
        "12:01:00 SUCCESS Evaluated aime (Step 1) | Policy v1 |   45.2s | Reward 0.5000 | Truncation 0.0%",
        new_line(2),
        "12:03:00 SUCCESS Evaluated aime in 30.50s (Avg@8=0.2500, Pass@8: 0.5000, Truncated: 1.5%)",
    )
    found = values(log)
    assert found["reward/mean"] == [0.125, 0.25]
    assert found["time/step"] == [72, 72]
    assert (found["Trainable"], found["Error"], found["Truncation"]) == ([12, 12], [1.5, 1.5], [25, 25])
    assert (found["reward/math/mean"], found["sudoku/Turns"]) == ([0.75], [4.0])
    assert (found["eval/aime/reward/mean"], found["eval/aime/avg@8"]) == ([0.5], [0.25])
    assert found["eval/aime/pass@8"] == [0.5]


def test_trainer_and_orchestrator_in_one_log_are_one_run(tmp_path: Path):
    """They print the same step, with other metrics; a step that comes again as a whole is another attempt."""
    lines = [line for step in (1, 2, 3) for line in (old_line(step), new_line(step))]
    view = open_run(write(tmp_path / "a.log", *lines))
    assert len(view.series("reward/mean", attempt=1)) == len(view.series("loss/mean", attempt=1)) == 3
    again = open_run(write(tmp_path / "b.log", old_line(1), old_line(2), old_line(1)))
    assert [len(again.series("loss/mean", attempt=attempt)) for attempt in (1, 2)] == [2, 1]


def test_lines_in_json_have_times(tmp_path: Path):
    """As prime-rl prints them for log collectors."""
    lines = [
        json.dumps({"timestamp": f"2026-08-21T10:00:0{step}+00:00", "level": "SUCCESS", "message": text, "line": 9})
        for step in (1, 2)
        for text in [f"{new_line(step).partition('SUCCESS ')[2]}\n\t\t ╰─ math | Reward 0.5000"]
    ]
    log = write(tmp_path / "a.log", *lines)
    assert log_at(log).format == "prime_rl"
    view = open_run(log)
    assert view.series("reward/mean").times.tolist() == [1787306401, 1787306402]
    assert view.series("reward/math/mean").values.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("text", ["RL trainer finished!", "Orchestrator finished.", "Training finished!"])
def test_the_last_line_tells_that_it_finished(tmp_path: Path, text: str):
    """Otherwise the log does not tell."""
    view = open_run(write(tmp_path / "a.log", old_line(1), f"12:10:00 SUCCESS {text}"))
    assert text in view.status.reason


@pytest.mark.parametrize(
    "text", ["Step 1 | Loss: 0.5 | LR: 1e-6\n", "12:00:00 SUCCESS Step 1 | hello\n", "12:00:00 SUCCESS Step 1\n"]
)
def test_other_lines_are_no_log_of_prime_rl(tmp_path: Path, text: str):
    """Without the prefix of its logger, or without a loss or reward."""
    log = tmp_path / "a.log"
    log.write_text(text)
    with pytest.raises(LogError):
        open_run(log)


def test_a_damaged_log_raises_nothing(tmp_path: Path):
    """Random bytes anywhere; a second opening reads the rest."""
    data = "".join(f"{old_line(step)}\n{new_line(step)}\n" for step in range(5)).encode()
    chance = random.Random(5)
    for number in range(40):
        broken = bytearray(data)
        for _ in range(chance.choice((1, 10, 100))):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        log = tmp_path / f"{number}.log"
        with contextlib.suppress(LogError):  # no line may be left
            log.write_bytes(broken[: chance.randrange(len(broken))])
            open_run(log)
            log.write_bytes(broken)
            open_run(log)
