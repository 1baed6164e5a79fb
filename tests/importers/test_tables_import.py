"""Tables: CSV and TSV of several programs, and those that are no metrics."""

import csv
import math
import os
from pathlib import Path

import pytest

import barograph
from barograph.apps.cli import main
from barograph.base.errors import LogError
from barograph.importers.logs import logs_at
from checked_runs import CHECKED, FOLDER

LONG_AGO = 1_600_000_000.0


def write(path: Path, text: str | bytes) -> Path:
    """Write a table that was not changed lately."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def open_table(tmp_path: Path, text: str | bytes, name: str = "table.csv") -> barograph.View:
    return barograph.open(write(tmp_path / name, text))


def points(view: barograph.View, name: str) -> dict[int, float]:
    series = view.series(name)
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def notes(view: barograph.View) -> str:
    assert view.origin is not None
    return "; ".join(view.origin.notes)


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|", ", "])
def test_the_delimiter_is_found(tmp_path: Path, delimiter: str):
    """Whatever the file is called."""
    text = "\n".join(delimiter.join(row) for row in (["step", "loss", "b"], ["1", "0.5", "7"], ["2", "0.25", "8"]))
    view = open_table(tmp_path, text + "\n", "numbers.txt")
    assert points(view, "loss") == {1: 0.5, 2: 0.25}
    assert points(view, "b") == {1: 7.0, 2: 8.0}


@pytest.mark.parametrize("name", ["step", "Step", "STEP", "global_step", "iteration", "Global Step", "_step"])
def test_the_step_is_found_under_its_usual_names(tmp_path: Path, name: str):
    """And is no metric."""
    view = open_table(tmp_path, f"{name},loss\n10,0.5\n20,0.25\n")
    assert points(view, "loss") == {10: 0.5, 20: 0.25}
    assert view.names() == ["loss"]
    assert "steps are read from" in notes(view)


def test_rows_without_steps_are_counted(tmp_path: Path):
    """The numbers of rows that pandas writes are no metric."""
    view = open_table(tmp_path, ",loss,acc\n0,0.5,1\n1,0.25,2\n")
    assert points(view, "loss") == {1: 0.5, 2: 0.25}
    assert view.names() == ["loss", "acc"]
    assert "counted" in notes(view)


@pytest.mark.parametrize("value", ["1700000000", "2023-11-14T22:13:20Z", "2023-11-14 22:13:20", "1700000000000"])
def test_times_are_found(tmp_path: Path, value: str):
    """Seconds, milliseconds, or dates."""
    view = open_table(tmp_path, f"step,timestamp,loss\n1,{value},0.5\n")
    assert view.series("loss").times.tolist() == [1.7e9]
    assert view.names() == ["loss"]


def test_an_empty_cell_is_no_value_and_others_are_kept_as_they_are(tmp_path: Path):
    """NaN, infinities, nulls, and numbers of NumPy."""
    text = "step,a,b\n1,0.1,\n2,nan,1e-3\n3,inf,\n4,-inf,np.float64(2.5)\n5,1e400,True\n6,None,3\n"
    view = open_table(tmp_path, text)
    found = points(view, "a")
    assert math.isnan(found[2])
    assert math.isnan(found[6])
    assert [found[step] for step in (1, 3, 4, 5)] == [0.1, math.inf, -math.inf, math.inf]
    assert points(view, "b") == {2: 1e-3, 4: 2.5, 5: 1.0, 6: 3.0}


def test_quoted_cells_are_read(tmp_path: Path):
    """With delimiters in names."""
    view = open_table(tmp_path, 'step,"loss, mean","a ""b"""\n"1","0.5","2"\n')
    assert points(view, "loss, mean") == {1: 0.5}
    assert points(view, 'a "b"') == {1: 2.0}


def test_lightning_writes_a_row_for_training_and_one_for_evaluation(tmp_path: Path):
    """Of one step, each with empty cells."""
    text = "epoch,step,train_loss,val_loss\n0,9,0.5,\n0,9,,0.7\n1,19,0.25,\n1,19,,0.6\n"
    view = open_table(tmp_path, text, "metrics.csv")
    assert points(view, "train_loss") == {9: 0.5, 19: 0.25}
    assert points(view, "val_loss") == {9: 0.7, 19: 0.6}
    assert len(view.writers()) == 1


def test_a_series_that_tensorboard_exported_has_the_name_of_its_file(tmp_path: Path):
    """The table has no name of the metric."""
    text = "Wall time,Step,Value\n1700000000.5,0,0.5\n1700000001.5,10,0.25\n"
    view = open_table(tmp_path, text, "run-ppo_1-tag-critic_score_mean.csv")
    assert points(view, "critic_score_mean") == {0: 0.5, 10: 0.25}
    assert view.series("critic_score_mean").times.tolist() == [1700000000.5, 1700000001.5]
    assert view.name == "ppo_1"
    assert points(open_table(tmp_path, text, "reward.csv"), "reward") == {0: 0.5, 10: 0.25}


def test_a_chart_that_wandb_exported_has_a_run_for_each_of_its_runs(tmp_path: Path):
    """Without the extremes of what W&B left out."""
    header = ["Step"] + [f"{run} - reward{end}" for run in ("grpo-1", "dapo - 2") for end in ("", "__MIN", "__MAX")]
    with (tmp_path / "chart.csv").open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([header, [1, 0.5, 0.4, 0.6, 1.5, 1.5, 1.5], [2, 0.7, 0.7, 0.7, "", "", ""]])
    assert [log.member for log in logs_at(tmp_path / "chart.csv")] == ["grpo-1", "dapo - 2"]
    view = barograph.open(f"{tmp_path / 'chart.csv'}#grpo-1")
    assert (view.name, view.names()) == ("grpo-1", ["reward"])
    assert points(view, "reward") == {1: 0.5, 2: 0.7}
    assert "__MIN" in notes(view)
    with pytest.raises(LogError, match="has 2 runs"):
        barograph.open(tmp_path / "chart.csv")


def test_our_own_export_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Names, steps, times and values."""
    run = barograph.init(project="p", name="n", dir=tmp_path / "runs")
    for step in range(1, 6):
        values = {"reward/mean": step / 3, "=odd": 1.0, "actor/loss": math.nan if step == 2 else -1e-9 * step}
        run.log(values if step != 4 else {"reward/mean": 7.0}, step=step)
    run.finish()
    main(["export", str(run.path), "--to", "csv"])
    view, own = open_table(tmp_path, capsys.readouterr().out), barograph.open(run.path)
    assert sorted(view.names()) == sorted(own.names())
    for name in ("reward/mean", "actor/loss", "=odd"):
        assert repr(points(view, name)) == repr(points(own, name))
        assert view.series(name).times.tolist() == pytest.approx(own.series(name).times.tolist())


def test_rows_of_one_rank_are_taken_and_evaluations_keep_their_split(tmp_path: Path):
    """As in JSON lines."""
    text = "step,rank,split,loss\n1,0,train,0.5\n1,1,train,0.7\n1,0,eval,0.9\n"
    view = open_table(tmp_path, text)
    assert points(view, "loss") == {1: 0.5}
    assert points(view, "eval/loss") == {1: 0.9}
    assert "another rank" in view.damage()[0]


def test_rows_that_are_appended_are_read_alone(tmp_path: Path):
    """A header that is written again is no row, and steps that come again are another attempt."""
    path = write(tmp_path / "log.csv", "step,loss\n1,0.5\n2,0.25\n")
    view = barograph.open(path)
    with path.open("a") as file:
        file.write("3,0.125\nstep,loss\n1,5.0\n")
    assert view.refresh()
    assert points(view, "loss") == {1: 5.0}
    assert [writer.attempt for writer in view.writers()] == [1, 2]
    assert view.series("loss", attempt=1).steps.tolist() == [1, 2, 3]
    assert view.damage() == []


def test_a_text_column_is_left_out_and_said(tmp_path: Path):
    """An odd cell of another column is no value."""
    view = open_table(tmp_path, "step,model,loss,acc\n1,qwen,0.5,1\n2,qwen,oops,2\n3,qwen,0.25,3\n")
    assert points(view, "loss") == {1: 0.5, 3: 0.25}
    assert view.names() == ["loss", "acc"]
    assert "'model'" in notes(view)


def test_a_header_alone_is_a_log_that_has_just_begun(tmp_path: Path):
    """Its rows come later."""
    path = write(tmp_path / "log.csv", "step,loss\n")
    view = barograph.open(path)
    assert view.names() == []
    write(path, "step,loss\n1,0.5\n")
    assert view.refresh()
    assert points(view, "loss") == {1: 0.5}


@pytest.mark.parametrize("text", [
    "id\n1\n2\n3\n",
    "id,label\n1,0\n2,1\n3,0\n",
    "prompt,response,score\na,b,0.5\nc,d,0.25\n",
    "name,city\nx,y\nz,w\n",
    "a,b,c,d\nx,y,z,0.5\nx,y,z,0.25\n",
    "1,2,3\n4,5,6\n",
    "Hello, this is a text.\nIt has commas, and lines, and 1 number.\n",
    "loss,loss\n0.5,0.5\n",
    "a,b\n",
])  # fmt: skip
def test_other_tables_are_no_metrics(tmp_path: Path, text: str):
    """Texts, ids and labels, numbers without names."""
    with pytest.raises(LogError, match="without metrics"):
        open_table(tmp_path, text)


def test_rows_of_another_length_are_counted(tmp_path: Path):
    """A row that was cut is no row."""
    view = open_table(tmp_path, "step,a,b\n1,0.5,1\n2,0.5\n3,0.5,1,9\n4,0.5,2\n5,0.25,2\n6,0.")
    assert list(points(view, "a")) == [1, 4, 5]
    [damage] = view.damage()
    assert "line 3" in damage
    assert "3" in damage


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_other_encodings_are_read(tmp_path: Path, encoding: str):
    """As spreadsheets write them."""
    view = open_table(tmp_path, "step,größe\r\n1,0.5\r\n2,0.25\r\n".encode(encoding))
    assert points(view, view.names()[0]) == {1: 0.5, 2: 0.25}


@pytest.mark.parametrize("run", sorted(CHECKED & {path.parent.name for path in FOLDER.glob("*/series.csv")}))
def test_real_tables_are_read_to_the_digit(run: str):
    """In all attempts; of several rows of one step the last counts."""
    view = barograph.open(FOLDER / run / "series.csv")
    with (FOLDER / run / "series.csv").open() as file:
        reference = list(csv.DictReader(file))
    if len({row.get("step") for row in reference}) == 1 and "step" in reference[0]:
        reference = reference[-1:]
    for name in view.names():
        series = [view.find_series(name, attempt=writer.attempt) for writer in view.writers()]
        found = [value for one in series if one is not None for value in one.values.tolist()]
        assert sorted(map(repr, found)) == sorted(repr(float(row[name])) for row in reference if row[name])
    assert view.damage() == []
