"""JSON lines: which numbers are metrics, and which are steps, times and ranks."""

import csv
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.apps.cli import main
from barograph.base.errors import LogError

REALRUNS = Path(os.environ.get("BAROGRAPH_REALRUNS") or Path(__file__).parents[3] / "shared" / "realruns")
LONG_AGO = 1_600_000_000.0


def lines(rows: Iterable[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def open_lines(tmp_path: Path, *rows: Any, text: str | bytes | None = None) -> barograph.View:
    path = tmp_path / "log.jsonl"
    data = lines(rows) if text is None else text
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return barograph.open(path)


def points(view: barograph.View, name: str) -> dict[int, float]:
    series = view.series(name)
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def notes(view: barograph.View) -> str:
    assert view.origin is not None
    return "; ".join(view.origin.notes)


@pytest.mark.parametrize(
    ("name", "value", "step"),
    [
        ("step", 3, 3), ("_step", 3, 3), ("global_step", 3.0, 3), ("train/global_step", 3, 3), ("iteration", "3", 3),
        ("current_steps", 3, 3), ("global_step/max_steps", "3/100", 3), ("rollout_id", 0, 0),
    ],
)  # fmt: skip
def test_the_step_is_found_under_its_usual_names(tmp_path: Path, name: str, value: Any, step: int):
    """A note says which one it is, and it is no metric."""
    view = open_lines(tmp_path, {name: value, "loss": 0.5})
    assert points(view, "loss") == {step: 0.5}
    assert view.names() == ["loss"]
    assert repr(name) in notes(view)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timestamp", 1.7e9), ("_timestamp", 1.7e9), ("time", 1.7e12), ("datetime", "2023-11-14T22:13:20+00:00"),
        ("ts", "2023-11-14 22:13:20"),
    ],
)  # fmt: skip
def test_the_time_is_found_under_its_usual_names(tmp_path: Path, name: str, value: Any):
    """In seconds or milliseconds since 1970, or as a date."""
    view = open_lines(tmp_path, {"step": 1, name: value, "loss": 0.5})
    assert view.series("loss").times.tolist() == [1.7e9]
    assert view.names() == ["loss"]


def test_a_duration_is_no_time(tmp_path: Path):
    """It is a metric."""
    view = open_lines(tmp_path, {"step": 1, "time": 12.5, "loss": 0.5}, {"step": 2, "time": 25.0, "loss": 0.25})
    assert points(view, "time") == {1: 12.5, 2: 25.0}


def test_rows_without_steps_are_counted(tmp_path: Path):
    """And a note says so."""
    view = open_lines(tmp_path, {"loss": 0.5}, {"loss": 0.25})
    assert points(view, "loss") == {1: 0.5, 2: 0.25}
    assert "counted" in notes(view)


def test_rows_of_training_and_evaluation_share_steps(tmp_path: Path):
    """They have different names."""
    view = open_lines(
        tmp_path,
        {"step": 1, "loss": 0.5},
        {"step": 1, "eval/score": 0.1},
        {"step": 2, "loss": 0.25},
        {"step": 2, "eval/score": 0.2},
    )
    assert points(view, "loss") == {1: 0.5, 2: 0.25}
    assert points(view, "eval/score") == {1: 0.1, 2: 0.2}
    assert len(view.writers()) == 1


def test_a_split_of_evaluation_stands_before_the_names(tmp_path: Path):
    """Its loss is another one than that of the training."""
    rows = [{"step": step, "split": split, "loss": 0.5 + step} for step in (1, 2) for split in ("train", "eval")]
    view = open_lines(tmp_path, *rows)
    assert points(view, "loss") == points(view, "eval/loss") == {1: 1.5, 2: 2.5}
    assert "'eval'" in notes(view)
    assert len(view.writers()) == 1


def test_nested_objects_have_names_with_slashes(tmp_path: Path):
    """To some depth."""
    view = open_lines(tmp_path, {"step": 1, "actor": {"loss": 0.5, "clip": {"low": 0.1}}, "list": [1, 2], "note": "x"})
    assert view.names() == ["actor/loss", "actor/clip/low"]


def test_a_step_in_an_inner_object_is_found(tmp_path: Path):
    """If there is none outside."""
    view = open_lines(tmp_path, {"train": {"step": 7, "loss": 0.5}}, {"train": {"step": 8, "loss": 0.25}})
    assert points(view, "train/loss") == {7: 0.5, 8: 0.25}


def test_an_object_around_all_values_is_no_part_of_their_names(tmp_path: Path):
    """As our own export has it."""
    view = open_lines(tmp_path, {"step": 1, "time": 1.7e9, "metrics": {"actor/loss": 0.5}})
    assert view.names() == ["actor/loss"]


def test_numbers_in_quotes_nulls_and_values_that_are_not_finite_are_kept(tmp_path: Path):
    """As programs write them that JSON forbids to write NaN."""
    text = '{"step":1,"a":"0.5","b":NaN,"c":-Infinity,"d":"nan","e":1,"f":true}\n{"step":2,"a":0.1,"b":1,"e":null}\n'
    view = open_lines(tmp_path, text=text)
    assert points(view, "a") == {1: 0.5, 2: 0.1}
    assert math.isnan(points(view, "b")[1])
    assert points(view, "c") == {1: -math.inf}
    assert math.isnan(points(view, "d")[1])
    assert math.isnan(points(view, "e")[2])
    assert points(view, "f") == {1: 1.0}


def test_only_the_rows_of_one_rank_are_taken(tmp_path: Path):
    """The others are counted: a mean over ranks is not made."""
    rows = [{"step": step, "rank": rank, "loss": rank + step / 10} for step in (1, 2) for rank in (0, 1, 2)]
    view = open_lines(tmp_path, *rows)
    assert points(view, "loss") == {1: 0.1, 2: 0.2}
    assert "4" in view.damage()[0]
    assert "another rank" in view.damage()[0]


def test_a_config_in_a_row_is_the_config(tmp_path: Path):
    """Its numbers are no metrics."""
    view = open_lines(tmp_path, {"config": {"lr": 1e-6, "api_key": "sk-0123456789abcdefghijklmn"}}, {"step": 1, "a": 1})
    assert view.config["lr"] == 1e-6
    assert "sk-0123" not in json.dumps(view.config)
    assert view.names() == ["a"]


def test_steps_that_come_again_are_another_attempt(tmp_path: Path):
    """A training that was started again appends to its log."""
    rows = [{"step": step, "loss": 1.0} for step in (1, 2, 3)] + [{"step": step, "loss": 2.0} for step in (1, 2)]
    view = open_lines(tmp_path, *rows)
    assert len(view.writers()) == 2
    assert points(view, "loss") == {1: 2.0, 2: 2.0}


@pytest.mark.parametrize(
    ("row", "producer"),
    [
        ({"loss": 1.2, "global_step/max_steps": "3/9", "percentage": "33%"}, "ms-swift"),
        ({"current_steps": 9, "total_steps": 9, "loss": 1.0, "percentage": 100.0}, "llama-factory"),
        ({"step": 1, "loss": 1.0}, ""),
    ],
)
def test_names_of_one_framework_tell_it(tmp_path: Path, row: dict[str, Any], producer: str):
    """And its last step is the end."""
    view = open_lines(tmp_path, row)
    assert view.info.producer == producer
    assert view.status.reason.startswith("step 9 of 9") == (producer == "llama-factory")


@pytest.mark.parametrize("rows", [
    [{"messages": [{"role": "user", "content": "a"}], "id": 0.5}] * 3,
    [{"prompt": "a", "completion": "b", "score": 0.5, "difficulty": 0.25}] * 3,
    [{"instruction": "a", "output": "b", "level": 0.5}] * 3,
    [{"id": 1, "label": 2}, {"id": 2, "label": 3}],
    [{"the": 0, "of": 1, "and": 2}],
    [{"name": "x", "city": "y", "size": 0.5}] * 2,
    [{"a": "text"}],
    [{"step": 1}],
])  # fmt: skip
def test_data_sets_and_vocabularies_are_no_metrics(tmp_path: Path, rows: list[dict[str, Any]]):
    """Texts, labels, or one object without a step."""
    with pytest.raises(LogError, match="without metrics"):
        open_lines(tmp_path, *rows) if "score" not in rows[0] else _raise_if_json_lines(tmp_path, rows)


def _raise_if_json_lines(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """Raise what opening raises, or if the rows are samples and not metrics."""
    view = open_lines(tmp_path, *rows)
    assert view.origin is not None
    raise LogError("without metrics" if view.origin.format == "rollout_dumps" else view.origin.format)


def test_a_document_over_several_lines_is_no_json_lines(tmp_path: Path):
    """Each line would be damaged."""
    with pytest.raises(LogError, match="without metrics"):
        open_lines(tmp_path, text=json.dumps({"step": 1, "loss": [0.5]}, indent=2))


def test_lines_that_are_no_objects_are_counted(tmp_path: Path):
    """With the number of the first."""
    text = '{"step":1,"a":0.5}\n{"step":2,"a":\n{oh no}\n{"step":3,"a":1}\n{"event":"start"}\n'
    text += "".join(f'{{"step":{step},"a":1}}\n' for step in range(4, 9)) + '{"step":9,"a":2'
    view = open_lines(tmp_path, text=text)
    assert points(view, "a") == {1: 0.5, **dict.fromkeys(range(3, 9), 1.0)}
    first, second = view.damage()
    assert "line 2" in first
    assert "3" in first
    assert "line 5" in second


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_other_encodings_are_read(tmp_path: Path, encoding: str):
    """As a shell on Windows writes them."""
    text = '{"step": 1, "größe": 0.5}\n{"step": 2, "größe": 0.25}\n'
    view = open_lines(tmp_path, text=text.encode(encoding))
    [name] = view.names()
    assert points(view, name)[2] == 0.25


def test_our_own_export_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Names, steps, times and values."""
    run = barograph.init(project="p", name="n", dir=tmp_path / "runs")
    for step in range(1, 6):
        run.log({"reward/mean": step / 3, "actor/loss": math.nan if step == 2 else -1e-9 * step}, step=step)
    run.finish()
    main(["export", str(run.path), "--to", "jsonl"])
    view = open_lines(tmp_path, text=capsys.readouterr().out)
    own = barograph.open(run.path)
    for name in ("reward/mean", "actor/loss"):
        assert repr(points(view, name)) == repr(points(own, name))
        assert view.series(name).times.tolist() == pytest.approx(own.series(name).times.tolist())


@pytest.mark.parametrize("run", ["custom-countdown-500", "trl-countdown-480"])
def test_real_logs_have_the_values_of_their_series(run: str):
    """Key by key, step by step, to the digits of the reference."""
    if not (REALRUNS / run).is_dir():
        pytest.skip(f"{REALRUNS} has no {run}")
    view = barograph.open(REALRUNS / run / "metrics.jsonl")
    with (REALRUNS / run / "series.csv").open() as file:
        reference = list(csv.DictReader(file))
    assert sorted([*view.names(), "step"]) == sorted(reference[0])
    for name in view.names():
        expected = {int(row["step"]): float(row[name]) for row in reference if row[name]}
        assert points(view, name) == pytest.approx(expected, rel=1e-5, abs=0), name
    assert view.damage() == []
