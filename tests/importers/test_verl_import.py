"""Console logs and file logs of veRL."""

import json
import math
from pathlib import Path
from pprint import pformat

import numpy as np
import pytest
from console_logs import imported, mutated, points, unread, write

from barograph.importers.formats.consoles.verl import parse_line

RAY = "\x1b[36m(TaskRunner pid=2093713)\x1b[0m "
CONFIG = {
    "actor_rollout_ref": {
        "actor": {"optim": {"lr": 1e-06, "betas": [0.9, 0.999]}, "use_kl_loss": False, "clip_ratio": 0.2},
        "model": {"path": "~/models/deepseek-llm-7b-chat", "custom_chat_template": None},
    },
    "algorithm": {"adv_estimator": "grpo", "gamma": 1.0},
    "data": {"train_files": "/data/" + "long/" * 30 + "train.parquet", "prompt_key": "prompt"},
    "trainer": {
        "project_name": "examples",
        "experiment_name": "seven",
        "logger": ["console"],
        "hf_token": "hf_" + "a1" * 17,
    },
}


def printed(value: object, prefix: str = RAY) -> list[str]:
    """Return what ``pprint`` prints, as Ray forwards it."""
    return [f"{prefix}{line}" for line in pformat(value).splitlines()]


PREFIXES = [
    "",
    RAY,
    "2025-03-22T23:18:51.123456Z ",
    "0: ",
    "[rank0]: ",
    "(main_task pid=1, ip=10.0.0.2) ",
    "Training Progress:   4%|▍  | 44/1093 [11:33<5:13:07, 17.91s/it]",
    "INFO:2025-01-01 10:00:00,123:",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_line_is_read_whatever_is_before_it(prefix: str):
    """Numbers as NumPy and Python print them, truth values, names with colons and dashes; texts are left out."""
    text = (
        f"{prefix}step:12 - actor/pg_loss:-1.5e-07 - a:np.float64(-0.25) - b:np.float32(1e-05)"
        " - c:True - d:nan - e:-inf - train/lr(1e-3):0.1"
        " - val:core/acc@1:0.5 - a - b:2 - kind:low - var - f:np.int64(3) - text:x:y - g:np.False_"
    )
    found = parse_line(text)
    assert found is not None
    step, values = found
    assert step == 12
    assert math.isnan(values.pop("d"))
    assert values == {
        "actor/pg_loss": -1.5e-07, "a": -0.25, "b": 1e-05, "c": 1.0, "e": -math.inf, "train/lr(1e-3)": 0.1,
        "val:core/acc@1": 0.5, "a - b": 2.0, "f": 3.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["", "step:1", "step:1 - ", "step:x - a:1", "global_step:1 - a:1", "step:1 - a:b", "step:99999999999999999 - a:1"],
)
def test_other_lines_are_none(text: str):
    """A line without a step and a number is no row."""
    assert parse_line(text) is None


def test_rows_config_validations_and_the_end_are_read(tmp_path: Path):
    """Also where other processes print in the middle of the config; secrets are blanked."""
    config = printed(CONFIG)
    config.insert(3, "\x1b[36m(pid=7)\x1b[0m a line of another process")
    first = {"val-core/openai/gsm8k/acc/mean@1": np.float64(0.125), "val-aux/openai/gsm8k/reward/mean@1": math.nan}
    lines = [
        "2025-03-22 23:18:51,962\tINFO worker.py:2014 -- Started a local Ray instance.",
        *config,
        *printed(f"Initial validation metrics: {first}"),
        f"{RAY}step:0 - val-core/openai/gsm8k/acc/mean@1:np.float64(0.125)",
        f"{RAY}step:1 - actor/pg_loss:0.5 - critic/score/mean:np.float64(0.1)",
        f"{RAY}[prompt] what is 1 - 1? step: none",
        f"{RAY}step:2 - actor/pg_loss:0.25 - critic/score/mean:np.float64(0.2) - val-core/openai/gsm8k/acc/mean@1:0.25",
        *printed("Final validation metrics: {'val-core/openai/gsm8k/acc/mean@1': 0.25, 'val/other': 1}"),
    ]
    view = imported(write(tmp_path / "train.log", lines))
    assert points(view, "actor/pg_loss") == {1: 0.5, 2: 0.25}
    assert points(view, "val-core/openai/gsm8k/acc/mean@1") == {0: 0.125, 2: 0.25}
    assert list(points(view, "val-aux/openai/gsm8k/reward/mean@1")) == [0]
    assert points(view, "val/other") == {2: 1.0}
    assert view.config["actor_rollout_ref"] == CONFIG["actor_rollout_ref"]
    assert view.config["data"] == CONFIG["data"]
    assert CONFIG["trainer"]["hf_token"] not in repr(view.config)
    assert (view.info.name, view.info.project, view.info.producer) == ("seven", "examples", "verl")
    assert view.info.created == pytest.approx(1742685531.962)
    assert view.status.word == "finished"
    assert "Final validation metrics" in view.status.reason
    assert view.origin is not None
    assert view.origin.unread == ()
    assert len(view.writers()) == 1


def test_the_last_step_is_the_end(tmp_path: Path):
    """A run that reached its total number of steps has finished; what its clean-up prints does not change it."""
    lines = [
        "Total training steps: 2",
        "step:1 - a:1",
        "step:2 - a:2",
        "Traceback (most recent call last):",
        "ValueError: x",
    ]
    view = imported(write(tmp_path / "a.log", lines))
    assert (view.status.word, view.status.reason) == ("finished", "line 3: step 2 is the last one")


def test_an_exception_is_the_end_of_a_run_that_was_not_complete(tmp_path: Path):
    """Its last line is the reason."""
    lines = [
        "Total training steps: 3",
        "step:1 - a:1",
        f"{RAY}Traceback (most recent call last):",
        f"{RAY}ValueError: x",
    ]
    view = imported(write(tmp_path / "a.log", lines))
    assert (view.status.word, view.status.reason) == ("crashed", "line 4: ValueError: x")


def test_a_run_that_was_started_again_is_another_attempt(tmp_path: Path):
    """Steps that come again, or the config that is printed again, begin it; two lines of one step do not."""
    lines = [
        "step:1 - a:1",
        "step:1 - b:1",
        "step:2 - a:2",
        "step:1 - a:10",
        "step:2 - a:20",
        *printed(CONFIG),
        "step:3 - a:30",
    ]
    view = imported(write(tmp_path / "a.log", lines))
    assert len(view.writers()) == 3
    assert points(view, "a") == {1: 10.0, 2: 20.0, 3: 30.0}
    assert points(view, "b", attempt=1) == {1: 1.0}


def test_a_line_that_is_printed_twice_is_one_row(tmp_path: Path):
    """A worker's output and the driver's copy of it share a file; also if one opening is between them."""
    path = write(tmp_path / "a.log", ["step:1 - a:nan - b:1", f"{RAY}step:1 - a:nan - b:1", "step:2 - a:2 - b:2"])
    imported(path)
    repeated = f"{RAY}step:2 - a:2 - b:2\x1b[32m [repeated 2x across cluster]\x1b[0m"
    write(path, [repeated, "step:3 - a:3 - b:3"], "a")
    view = imported(path)
    assert len(view.writers()) == 1
    assert points(view, "b") == {1: 1.0, 2: 2.0, 3: 3.0}


@pytest.mark.parametrize("width", [80, 100, 137, 178, 181, 240])
def test_rows_that_a_terminal_wrapped_are_put_together(width: int, tmp_path: Path):
    """No digit is lost, wherever the break is; spaces before it are."""
    values = {f"timing_s/{name}": 1 / (place + 3) for place, name in enumerate("abcdefghijklmnopqrstuvwxyz")}
    rows = [
        f"(TaskRunner pid=7) step:{step} - " + " - ".join(f"{name}:{value * step}" for name, value in values.items())
        for step in (1, 2, 3)
    ]
    lines = [row[start : start + width].rstrip() for row in rows for start in range(0, len(row), width)]
    lines.insert(len(rows[0]) // width + 1, "(TaskRunner pid=7) something else - a:1")
    view = imported(write(tmp_path / "a.log", lines))
    assert len(view.writers()) == 1
    for name, value in values.items():
        assert points(view, name) == {step: value * step for step in (1, 2, 3)}


def test_lines_after_a_short_row_do_not_belong_to_it(tmp_path: Path):
    """Words, numbers and other pairs that are printed by themselves."""
    lines = ["step:1 - a:1", "23", "done", "step:2 - a:2", "x - y", "step:3 - a:3 - b:1", "key: value - other: 1"]
    view = imported(write(tmp_path / "a.log", lines))
    assert points(view, "a") == {1: 1.0, 2: 2.0, 3: 3.0}
    assert view.names() == ["a", "b"]


def test_a_second_opening_continues_within_a_config(tmp_path: Path):
    """A config that was half printed is complete when the rest comes; rows are read once."""
    config = printed(CONFIG)
    path = write(tmp_path / "a.log", ["step:1 - a:1", *config[:5]])
    view = imported(path)
    write(path, [*config[5:], "step:2 - a:2"], "a")
    view = imported(path)
    assert view.config["algorithm"] == CONFIG["algorithm"]
    assert points(view, "a") == {1: 1.0, 2: 2.0}


def test_a_text_that_does_not_end_is_left(tmp_path: Path):
    """A dict that is never closed, of whatever length, does not hide rows."""
    lines = [
        "{'actor_rollout_ref': {'a': 1,",
        *["  'b': 2,"] * 100,
        "step:1 - a:1",
        "{'x",
        *["foreign"] * 300,
        "step:2 - a:2",
    ]
    assert points(imported(write(tmp_path / "a.log", lines)), "a") == {1: 1.0, 2: 2.0}


def test_mutated_logs_raise_nothing(tmp_path: Path):
    """Whatever bytes are changed, removed or repeated, the log opens or is refused with a message."""
    lines = [*printed(CONFIG), *(f"{RAY}step:{n} - a:{n} - b:np.float64({n / 3})" for n in range(1, 30))]
    data = write(tmp_path / "whole.log", lines).read_bytes()
    assert sum("a" in view.names() for view in mutated(data, tmp_path)) > 40


def test_the_file_logger_is_read(tmp_path: Path):
    """Its names have no prefix; what is not a number is left out."""
    rows = [
        {"step": 0, "data": {"val/acc": 0.5}},
        {"step": 1, "data": {"actor/pg_loss": -0.25, "list": [1], "text": "a"}},
        {"step": 2, "data": {"actor/pg_loss": None}},
    ]
    path = write(tmp_path / "seven.jsonl", [json.dumps(row) for row in rows])
    view = imported(path)
    assert view.origin is not None
    assert (view.origin.title, view.info.producer) == ("veRL file logger", "verl")
    assert points(view, "val/acc") == {0: 0.5}
    found = points(view, "actor/pg_loss")
    assert found.pop(1) == -0.25
    assert math.isnan(found.pop(2))
    write(path, ["{broken", '{"other": 1}', '{"step": 3, "data": {"actor/pg_loss": 1}}'], "a")
    view = imported(path)
    assert points(view, "actor/pg_loss")[3] == 1.0
    assert len(unread(view)) == 2
