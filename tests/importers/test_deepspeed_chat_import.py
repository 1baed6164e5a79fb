"""Logs of DeepSpeed-Chat, of both versions of its lines."""

from pathlib import Path

import pytest
from console_logs import imported, mutated, points, unread, write

COMMAND = (
    "[2023-04-18 08:47:00,000] [INFO] [runner.py:540:main] cmd = python main.py --actor_lr 9.65e-6 --steps 3 --ema"
)


def old_step(epoch: int, step: int) -> list[str]:
    return [
        f"epoch: {epoch}|step: {step}|ppo_ep: 1|act_loss: {step / 7}|cri_loss: nan|unsuper_loss: 0.0",
        f"average reward score: {-step / 3}",
        "-" * 80,
        f"|E2E latency={step}.50s |Gather latency=0.00s (0.00%) |Others=0.22 (2.73%)|CurSamplesPerSec=8.01",
    ]


def new_step(epoch: int, step: int) -> list[str]:
    return [
        f"Epoch: {epoch} | Step: {step} | PPO Epoch: 1 | Actor Loss: {step / 7} | Critic Loss: -0.5 | "
        "Unsupervised Loss: 0.0",
        "End-to-End => Latency: 7.99s, TFLOPs: 1.25, Samples/sec: 8.01, Time/seq 0.12s, Batch Size: 64, "
        "Total Seq. Length: 512",
        "Generation => Latency: 5.26s, Per-token Latency 20.55 ms, TFLOPs: 0.50, BW: 128.00 GB/sec, "
        "Answer Seq. Length: 256",
        "Training   => Latency: 2.52s, TFLOPs: 2.75",
        "Actor Model Parameters => 1.316 B, Critic Model Parameters => 0.331 B",
        f"Average reward score: {step / 3} | EMA reward score: 0.25",
    ]


def test_the_lines_of_the_first_version_are_read(tmp_path: Path):
    """Names as they are printed; engines that print the same names have their own as well; times are the last seen."""
    engines = [
        "[2023-04-18 08:48:36,035] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=4, lr=[5.79e-07, 6e-07],"
        " mom=[(0.9, 0.95), (0.9, 0.95)]",
        "[2023-04-18 08:48:36,058] [INFO] [timer.py:199:stop] epoch=0/micro_step=10/global_step=10, "
        "RunningAvgSamplesPerSec=86.75, CurrSamplesPerSec=78.5, MemAllocated=10.77GB, MaxMemAllocated=20.55GB",
        "[2023-04-18 08:48:36,500] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=3, lr=[3.5e-07, 3.5e-07]",
    ]
    end = "[2023-04-18 09:18:15,594] [INFO] [launch.py:460:main] Process 47973 exits successfully."
    view = imported(write(tmp_path / "a.log", [COMMAND, *old_step(0, 0), *engines, *old_step(0, 1), end]))
    assert points(view, "act_loss") == {0: 0.0, 1: 1 / 7}
    assert points(view, "average reward score") == {0: 0.0, 1: -1 / 3}
    assert points(view, "E2E latency") == {0: 0.5, 1: 1.5}
    assert points(view, "Others") == {0: 0.22, 1: 0.22}
    assert points(view, "lr") == points(view, "critic/lr") == {0: 3.5e-07}
    assert points(view, "actor/lr") == {0: 5.79e-07}
    assert points(view, "actor/skipped") == {0: 4.0}
    assert points(view, "MaxMemAllocated") == {0: 20.55}
    assert view.config == {"actor_lr": 9.65e-6, "steps": 3, "ema": True}
    assert view.series("act_loss").times.tolist() == pytest.approx([1681807620.0, 1681807716.5])
    assert view.status.word == "finished"
    assert unread(view) == []


def test_the_lines_of_later_versions_are_read(tmp_path: Path):
    """The name before an arrow belongs to the names after it."""
    view = imported(write(tmp_path / "a.log", [*new_step(0, 0), *new_step(0, 1)]))
    assert points(view, "Actor Loss") == {0: 0.0, 1: 1 / 7}
    assert points(view, "EMA reward score") == {0: 0.25, 1: 0.25}
    found = {name: view.series(name).values[0] for name in view.names() if "/" in name}
    assert found == {
        "End-to-End/Latency": 7.99, "End-to-End/TFLOPs": 1.25, "End-to-End/Samples/sec": 8.01,
        "End-to-End/Time/seq": 0.12, "End-to-End/Batch Size": 64.0, "End-to-End/Total Seq. Length": 512.0,
        "Generation/Latency": 5.26, "Generation/Per-token Latency": 20.55, "Generation/TFLOPs": 0.5,
        "Generation/BW": 128.0, "Generation/Answer Seq. Length": 256.0, "Training/Latency": 2.52,
        "Training/TFLOPs": 2.75,
    }  # fmt: skip


def test_steps_go_on_over_epochs(tmp_path: Path):
    """The log counts the steps of each epoch anew; a log that begins with an epoch that was before is started again."""
    once = [line for epoch, step in ((0, 0), (0, 1), (1, 0), (1, 1)) for line in old_step(epoch, step)]
    view = imported(write(tmp_path / "a.log", once))
    assert list(points(view, "act_loss")) == [0, 1, 2, 3]
    assert len(view.writers()) == 1
    view = imported(write(tmp_path / "b.log", [*once, *once[:8]]))
    assert len(view.writers()) == 2
    view = imported(write(tmp_path / "d.log", [*once[:1], *once]))
    assert len(view.writers()) == 1  # a line that is printed twice
    view = imported(write(tmp_path / "c.log", [COMMAND, *once[:4], COMMAND, *old_step(0, 1)]))
    assert len(view.writers()) == 2


def test_a_process_that_failed_is_the_end(tmp_path: Path):
    """A signal killed it if the code is negative."""
    failed = "[2023-04-18 09:00:00,000] [ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return code = "
    assert imported(write(tmp_path / "a.log", [*old_step(0, 0), f"{failed}1"])).status.word == "crashed"
    assert imported(write(tmp_path / "b.log", [*old_step(0, 0), f"{failed}-9"])).status.word == "killed"


def test_a_second_opening_goes_on(tmp_path: Path):
    """Lines that come later belong to the step that was read last."""
    lines = [*old_step(0, 0), *old_step(0, 1)]
    path = write(tmp_path / "a.log", lines[:5])
    imported(path)
    write(path, lines[5:], "a")
    assert points(imported(path), "average reward score") == {0: 0.0, 1: -1 / 3}


def test_mutated_logs_of_deepspeed_raise_nothing(tmp_path: Path):
    """Whatever bytes are changed, removed or repeated, the log opens or is refused with a message."""
    lines = [COMMAND, *(line for step in range(20) for line in (*old_step(0, step), *new_step(1, step)))]
    data = write(tmp_path / "whole.log", lines).read_bytes()
    assert sum("act_loss" in view.names() for view in mutated(data, tmp_path)) > 40
