"""Logs of ROLL."""

import json
import math
from pathlib import Path

import pytest
from console_logs import imported, mutated, points, unread, write
from omegaconf import OmegaConf

from barograph.importers.formats.consoles import roll
from barograph.importers.logs import logs_at
from barograph.importers.reading.log import look_at

CONFIG = {"exp_name": "agentic-7b", "seed": 42, "rollout": {"lr": 1e-06, "stop": ["a: b", None]}, "api_key": "k" * 40}
CONFIG_LINES = [
    "",
    "====== Pipeline Config ======",
    "------ merged & post-init ------",
    *OmegaConf.to_yaml(OmegaConf.create(CONFIG)).splitlines(),
    "====== End Config ======",
]


def logged(text: str, second: int = 0, file: str = "tracking.py (161)") -> str:
    return f"[2025-03-22 23:18:{second:02}] [{file}] [INFO] [DRIVER 0 / 1][PID 77] {text}"


def tagged(step: int, **metrics: object) -> str:
    return logged(f"metrics_tag: {json.dumps({'step': step, 'metrics': metrics})}", step)


def test_the_rows_of_the_tracker_are_read(tmp_path: Path):
    """NaN and infinities, which are no JSON, too; the config and the end; what a pipeline prints is the same again."""
    lines = [
        *CONFIG_LINES,
        logged("pipeline rollout global step 0 start..."),
        logged('[[{"prompt": "x", "episode_score": 1.0}]]', 0, "agentic_pipeline.py (611)"),
        logged('{"actor/loss@sum": 0.5}', 0, "agentic_pipeline.py (612)"),
        tagged(0, **{"actor/loss": 0.5, "critic/kl": math.nan, "memory/end": {"gpu": 1.5}}),
        logged("pipeline step 0 finished"),
        tagged(1, **{"actor/loss": 0.25, "critic/kl": -math.inf}),
        logged("pipeline complete!"),
    ]
    view = imported(write(tmp_path / "run.log", lines))
    assert points(view, "actor/loss") == {0: 0.5, 1: 0.25}
    assert points(view, "critic/kl")[1] == -math.inf
    assert points(view, "memory/end/gpu") == {0: 1.5}
    assert "actor/loss@sum" not in view.names()
    assert view.series("actor/loss").times.tolist() == pytest.approx([1742685480.0, 1742685481.0])
    assert view.config["rollout"] == CONFIG["rollout"]
    assert view.config["api_key"] != CONFIG["api_key"]
    assert (view.info.name, view.info.producer) == ("agentic-7b", "roll")
    assert (view.status.word, view.status.reason) == ("finished", f"line {len(lines)}: pipeline complete!")
    assert unread(view) == []


NO_ROLL_LOGS = [
    ["metrics_tag: see the tracker", "loss: 0.5"],
    ['metrics_tag: {"step": 1, "loss": 0.5}'],
    ['metrics_tag: {"step": 1, "metrics": 0.5}'],
    ['[PID 7] {"loss": 0.5}', "pipeline step 0 finished"],
    [logged("no numbers"), logged("pipeline step 0 finished")],
    [logged('{"loss": "low"}'), logged("pipeline step 0 finished")],
    [logged('{"loss": 0.5}'), logged("step 0 finished")],
    ['{"loss": 0.5}', "pipeline step 0 finished"],
]


def test_a_log_with_words_of_roll_is_no_roll_log(tmp_path: Path):
    """Neither one without the tracker's metrics, nor one without what its logger puts before a pipeline's."""
    for lines in NO_ROLL_LOGS:
        seen = look_at(write(tmp_path / "run.log", lines))
        assert seen is not None
        assert not roll.matches(seen), lines


def test_one_line_of_a_pipeline_and_one_of_its_steps_are_a_roll_log(tmp_path: Path):
    """Or one line of the tracker."""
    pipeline = [logged('{"loss": 0.5}'), logged("pipeline step 0 finished")]
    for name, lines in (("a.log", pipeline), ("b.log", [tagged(0, loss=0.5)])):
        assert [log.format for log in logs_at(write(tmp_path / name, lines))] == ["roll_console"]


def test_without_a_tracker_the_metrics_of_the_pipeline_are_read(tmp_path: Path):
    """They have the step that finishes after them, with the names that are printed."""
    lines = [
        logged(text, second, "rlvr_pipeline.py (838)")
        for second, text in enumerate([
            '{"val_correct/all/mean": 0.5}', '{"actor/loss@sum": 0.5}', "pipeline step 0 finished",
            "pipeline step 1 finished", '{"actor/loss@sum": 0.25}', "pipeline step 2 finished",
        ])
    ]  # fmt: skip
    view = imported(write(tmp_path / "a.log", lines))
    assert points(view, "actor/loss@sum") == {0: 0.5, 2: 0.25}
    assert points(view, "val_correct/all/mean") == {0: 0.5}


def test_a_pipeline_that_was_started_again_is_another_attempt(tmp_path: Path):
    """Steps come again, or the config is printed again; a line that is printed twice is one row."""
    once = [tagged(0, loss=0.5), tagged(1, loss=0.25)]
    assert len(imported(write(tmp_path / "a.log", [*once, *once])).writers()) == 2
    assert len(imported(write(tmp_path / "c.log", [*once, once[1], tagged(2, loss=1)])).writers()) == 1
    assert len(imported(write(tmp_path / "b.log", [*once, *CONFIG_LINES, tagged(2, loss=1)])).writers()) == 2


def test_what_cannot_be_read_of_a_roll_log_is_reported(tmp_path: Path):
    """Metrics that are cut off, and a config with aliases, which could be of any size."""
    config = ["====== Pipeline Config ======", "a: &x [1, 1]", "b: [*x, *x]", "====== End Config ======"]
    lines = [tagged(0, loss=0.5), tagged(1, loss=0.25)[:-5], *config, tagged(2, loss=0.125)]
    view = imported(write(tmp_path / "a.log", lines))
    assert points(view, "loss") == {0: 0.5, 2: 0.125}
    assert view.config == {}
    assert [message.split(":")[0] for message in unread(view)] == ["line 2", "line 6"]


def test_a_second_opening_goes_on_within_a_step(tmp_path: Path):
    """Metrics that wait for the end of their step are not lost."""
    path = write(tmp_path / "a.log", [tagged(0, loss=1), logged('{"actor/loss": 0.5}', 1, "rlvr_pipeline.py (838)")])
    imported(path)
    write(path, [logged("pipeline step 1 finished", 2)], "a")
    assert points(imported(path), "actor/loss") == {1: 0.5}


def test_mutated_logs_of_roll_raise_nothing(tmp_path: Path):
    """Whatever bytes are changed, removed or repeated, the log opens or is refused with a message."""
    lines = [*CONFIG_LINES, *(tagged(n, loss=n / 7, kl=math.nan) for n in range(50))]
    data = write(tmp_path / "whole.log", lines).read_bytes()
    assert sum("loss" in view.names() for view in mutated(data, tmp_path)) > 40
