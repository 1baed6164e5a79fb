"""Event files written by TensorBoard's own package, opened as runs."""

import csv
import json
import math
import os
import random
import time
from pathlib import Path

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.compat.tensorflow_stub.dtypes import string
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util
from torch.utils.tensorboard import SummaryWriter

import barograph
from barograph.base.errors import LogError, MetricNotFoundError
from barograph.importers.formats import event_files
from barograph.importers.logs import find_logs, logs_at
from barograph.importers.reading.events import records
from barograph.importers.reading.log import Log
from barograph.journal.view import View

REAL_RUNS = Path(os.environ.get("BAROGRAPH_REALRUNS", Path(__file__).parents[3] / "shared" / "realruns"))


def write(folder: Path, points: dict[int, float], at: float = 1e9, suffix: str = "", tag: str = "a") -> Path:
    writer = EventFileWriter(str(folder), filename_suffix=suffix)
    for step, value in points.items():
        writer.add_event(Event(wall_time=at + step, step=step, summary=_number(value, tag)))
    writer.close()
    [file] = folder.glob(f"*tfevents*{suffix}")
    return file


def _number(value: float, tag: str = "a") -> Summary:
    return Summary(value=[Summary.Value(tag=tag, simple_value=value)])


def write_events(folder: Path, *events: Event) -> None:
    writer = EventFileWriter(str(folder))
    for event in events:
        writer.add_event(event)
    writer.close()


def unread(view: View) -> list[dict[str, object]]:
    return view.events()[-1]["unread"]


def test_scalars_are_read_as_series(tmp_path: Path):
    """Steps, times, values, NaN and infinities included, in the order of the steps."""
    write(tmp_path, {-3: 0.5, 0: 1.0, 7: math.nan, 2**40: math.inf, 5: -2.25})
    run = barograph.open(tmp_path)
    series = run.series("a")
    assert series.steps.tolist() == [-3, 0, 5, 7, 2**40]
    np.testing.assert_array_equal(series.values, [0.5, 1.0, -2.25, math.nan, math.inf])
    assert series.times[0] == 1e9 - 3
    assert run.steps == (-3, 2**40)
    assert len(run.writers()) == 1
    with pytest.raises(MetricNotFoundError):
        run.series("b")


def test_what_torch_writes_is_read(tmp_path: Path):
    """Scalars, histograms, texts; images are skipped."""
    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(5):
            writer.add_scalar("loss", 1 / (step + 1), step)
            writer.add_scalar("new/style", step, step, new_style=True)
        writer.add_histogram("weights", np.arange(100.0), 3)
        writer.add_text("note", "# a <b>text</b>", 2)
        writer.add_image("picture", np.zeros((3, 4, 4), np.uint8), 1)
    run = barograph.open(tmp_path)
    assert run.names() == ["loss", "new/style"]
    assert run.series("new/style").values.tolist() == [0, 1, 2, 3, 4]
    [(step, histogram)] = run.histograms("weights")
    assert (step, histogram.count, histogram.min, histogram.max, sum(histogram.counts)) == (3, 100, 0.0, 99.0, 100)
    assert [(text.name, text.text, text.step) for text in run.texts()] == [("note/text_summary", "# a <b>text</b>", 2)]


def test_tensors_of_one_number_are_scalars(tmp_path: Path):
    """As TensorFlow 2 and JAX write them, in any dtype."""
    tensors = [tensor_util.make_tensor_proto(v) for v in (np.float32(0.5), 1.5, np.int64(-2), np.float16(4.0))]
    words = tensor_util.make_tensor_proto("words", dtype=string)
    write_events(
        tmp_path,
        *(
            Event(step=step, wall_time=1.0, summary=Summary(value=[Summary.Value(tag="t", tensor=tensor)]))
            for step, tensor in enumerate(tensors, 1)
        ),
        Event(step=9, wall_time=1.0, summary=Summary(value=[Summary.Value(tag="w", tensor=words)])),
    )
    run = barograph.open(tmp_path)
    assert run.series("t").values.tolist() == [0.5, 1.5, -2.0, 4.0]
    assert run.texts()[0].text == "words"


def test_values_of_one_step_are_one_row(tmp_path: Path):
    """Unless they were written at another time, so that each value keeps its time."""
    names = ("a", "b", "c")
    write_events(
        tmp_path,
        *(
            Event(step=step, wall_time=1e9 + step + 0.01 * n, summary=_number(n, tag))
            for step in range(1, 50)
            for n, tag in enumerate(names)
        ),
        Event(step=49, wall_time=1e9 + 100, summary=_number(5.0, "eval")),
    )
    run = barograph.open(tmp_path)
    assert run.series("eval").times.tolist() == [1e9 + 100]
    rows = event_rows(Log(tmp_path, "event_files"))
    assert len(rows) == 50
    assert rows[0] == ({"a": 0.0, "b": 1.0, "c": 2.0}, 1)


def event_rows(log: Log) -> list[tuple[dict[str, float], int]]:
    """Return the rows that the reader records."""
    found: list[tuple[dict[str, float], int]] = []

    class Rows:
        def row(self, values: dict[str, float], step: int, at: float, keeps_attempt: bool) -> None:
            found.append((dict(values), step))

        last_step = None

        def has_any_of(self, names: object) -> bool:
            return False

    event_files.Reader(log, {}).read(Rows())  # type: ignore[arg-type]
    return found


def test_of_several_points_at_one_step_the_last_counts(tmp_path: Path):
    """They do not begin another attempt."""
    steps = (1, 2, 2, 3, 1)
    write_events(tmp_path, *(Event(step=s, wall_time=1e9 + n, summary=_number(n)) for n, s in enumerate(steps)))
    run = barograph.open(tmp_path)
    assert run.series("a").steps.tolist() == [1, 2, 3]
    assert run.series("a").values.tolist() == [4, 2, 3]
    assert len(run.writers()) == 1


def test_points_without_a_step_are_numbered(tmp_path: Path):
    """All of them have the step 0 in the file; a metric with steps beside them is not numbered."""
    with SummaryWriter(str(tmp_path)) as writer:
        for n in range(5):
            writer.add_scalar("unstepped", n * n)
            writer.add_scalar("stepped", n, n // 2)
        writer.add_scalar("once", 1.0)
    run = barograph.open(tmp_path)
    assert run.series("unstepped").steps.tolist() == [0, 1, 2, 3, 4]
    assert run.series("unstepped").values.tolist() == [0, 1, 4, 9, 16]
    assert run.series("stepped").steps.tolist() == [0, 1, 2]
    assert run.series("stepped").values.tolist() == [1, 3, 4]
    assert run.series("once").steps.tolist() == [0]
    assert run.events()[-1]["notes"] == [event_files.NUMBERED]


@pytest.mark.parametrize("then", [0, 7])
def test_points_without_a_step_are_numbered_on_as_the_file_grows(tmp_path: Path, then: int):
    """If there is a step after all, the last of those at step 0 counts."""
    writer = EventFileWriter(str(tmp_path))
    for n in range(3):
        writer.add_event(Event(wall_time=1e9, summary=_number(n)))
    writer.flush()
    run = barograph.open(tmp_path)
    assert run.series("a").steps.tolist() == [0, 1, 2]
    writer.add_event(Event(wall_time=1e9, step=then, summary=_number(9)))
    writer.close()
    assert run.refresh()
    assert run.series("a").steps.tolist() == ([0, 7] if then else [0, 1, 2, 3])
    assert run.series("a").values.tolist() == ([2, 9] if then else [0, 1, 2, 9])


def test_a_growing_file_is_followed(tmp_path: Path):
    """From the last offset; a torn end is read when it is complete."""
    source = write(tmp_path / "whole", {step: float(step) for step in range(100)}, at=time.time())
    data = source.read_bytes()
    (tmp_path / "part").mkdir()
    target = tmp_path / "part" / source.name
    target.write_bytes(data[:1000])
    run = barograph.open(tmp_path / "part")
    assert 0 < len(run.series("a")) < 100
    assert not run.refresh()
    target.write_bytes(data)
    assert run.refresh()
    assert run.series("a").values.tolist() == list(range(100))
    assert run.status.word == "running"
    assert unread(run) == []


def test_a_second_opening_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The records of the first opening are not read again."""
    writer = EventFileWriter(str(tmp_path))
    for step in range(200):
        writer.add_event(Event(wall_time=1e9 + step, step=step, summary=_number(step)))
    writer.flush()
    barograph.open(tmp_path)
    read = []
    monkeypatch.setattr(event_files, "records", lambda data, place=0: read.append(len(data)) or records(data, place))
    barograph.open(tmp_path)
    assert read == []
    writer.add_event(Event(wall_time=2e9, step=200, summary=_number(1.0)))
    writer.close()
    assert len(barograph.open(tmp_path).series("a")) == 201
    assert 0 < sum(read) < 100


def test_a_restart_supersedes_the_steps_that_it_repeats(tmp_path: Path):
    """A file that was begun after the other had ended is another attempt."""
    write(tmp_path, dict.fromkeys(range(10), 1.0), at=1e9, suffix=".a")
    write(tmp_path, dict.fromkeys(range(4, 7), 2.0), at=2e9, suffix=".b")
    run = barograph.open(tmp_path)
    assert run.series("a").values.tolist() == [1, 1, 1, 1, 2, 2, 2]
    assert len(run.series("a", attempt=1)) == 10
    assert run.steps == (0, 6)


@pytest.mark.parametrize("tag", ["a", "b"])
def test_files_of_one_time_are_one_attempt(tmp_path: Path, tag: str):
    """Whether they have the same metrics or others."""
    write(tmp_path, dict.fromkeys(range(10), 1.0), at=1e9, suffix=".a")
    write(tmp_path, dict.fromkeys(range(4, 7), 2.0), at=1e9 + 1, suffix=".b", tag=tag)
    run = barograph.open(tmp_path)
    assert len(run.series("a")) == 10
    assert run.series(tag).values.tolist().count(2.0) == 3
    assert len(run.writers()) == 1


def test_a_later_file_with_other_metrics_supersedes_nothing(tmp_path: Path):
    """An evaluation that was made after the training begins at the first step."""
    write(tmp_path, dict.fromkeys(range(10), 1.0), at=1e9, suffix=".a")
    write(tmp_path, dict.fromkeys(range(10), 2.0), at=2e9, suffix=".b", tag="eval")
    run = barograph.open(tmp_path)
    assert (len(run.series("a")), len(run.series("eval")), len(run.writers())) == (10, 10, 1)


def test_an_evaluation_after_the_training_supersedes_nothing(tmp_path: Path):
    """It is a file of its own at the last step, with metrics that were evaluated before as well."""
    values = [Summary.Value(tag=tag, simple_value=1.0) for tag in ("train", "eval")]
    for suffix, steps, logged in ((".a", range(1, 11), values), (".b", [10], values[1:])):
        writer = EventFileWriter(str(tmp_path), filename_suffix=suffix)
        for step in steps:
            at = 1e9 + step + 1000 * (suffix == ".b")
            writer.add_event(Event(wall_time=at, step=step, summary=Summary(value=logged)))
        writer.close()
    run = barograph.open(tmp_path)
    assert (len(run.series("train")), len(run.series("eval")), len(run.writers())) == (10, 10, 1)


def test_a_crash_loop_is_several_attempts(tmp_path: Path):
    """Each start logs the first step, and no more."""
    for number in range(3):
        write(tmp_path, {1: float(number)}, at=1e9 + 100 * number, suffix=f".{number}")
    run = barograph.open(tmp_path)
    assert len(run.writers()) == 3
    assert run.series("a").values.tolist() == [2]


def test_a_file_that_goes_on_beside_a_later_one_is_no_earlier_attempt(tmp_path: Path):
    """Whatever it looked like when the second file appeared."""
    first = EventFileWriter(str(tmp_path), filename_suffix=".a")
    first.add_event(Event(wall_time=1e9, step=1, summary=_number(1.0)))
    first.flush()
    write(tmp_path, {1: 2.0, 2: 2.0}, at=1e9 + 5, suffix=".b")
    run = barograph.open(tmp_path)
    assert len(run.writers()) == 2
    first.add_event(Event(wall_time=1e9 + 20, step=3, summary=_number(1.0)))
    first.close()
    assert run.refresh()
    assert len(run.writers()) == 1
    assert run.series("a").steps.tolist() == [1, 2, 3]


def test_a_session_start_supersedes_later_steps(tmp_path: Path):
    """As torch writes it for purge_step."""
    write_events(
        tmp_path,
        *(Event(step=step, wall_time=1.0, summary=_number(1.0)) for step in range(6)),
        Event(step=3, wall_time=2.0, session_log=SessionLog(status=SessionLog.START)),
        Event(step=3, wall_time=3.0, summary=_number(2.0)),
    )
    run = barograph.open(tmp_path)
    assert run.series("a").values.tolist() == [1, 1, 1, 2]
    assert run.steps == (0, 3)


def test_damage_costs_only_the_damaged_records(tmp_path: Path):
    """The next record is found by the checksum of its length."""
    file = write(tmp_path, dict.fromkeys(range(50), 1.0))
    data = bytearray(file.read_bytes())
    data[700:800] = b"\xff" * 100
    file.write_bytes(data)
    run = barograph.open(tmp_path)
    assert 45 <= len(run.series("a")) < 50
    assert any("byte" in one["where"] for one in unread(run))


@pytest.mark.parametrize("count", [math.nan, math.inf, -1.0])
def test_a_damaged_value_costs_nothing_else(tmp_path: Path, count: float):
    """Neither other values of the record nor later records; it is counted, in both formats of histograms."""
    old = HistogramProto(min=0.0, max=1.0, num=1.0, sum=1.0, bucket_limit=[1.0], bucket=[count])
    new = tensor_util.make_tensor_proto(np.array([[0.0, 1.0, count]]))
    values = [Summary.Value(tag="h", histo=old), Summary.Value(tag="h", tensor=new), *_number(1.0).value]
    write_events(
        tmp_path,
        Event(step=0, wall_time=1.0, summary=Summary(value=values)),
        Event(step=1, wall_time=1.0, summary=_number(2.0)),
    )
    run = barograph.open(tmp_path)
    assert run.series("a").values.tolist() == [1.0, 2.0]
    assert run.histogram_names() == []
    [found] = unread(run)
    assert (found["count"], found["reason"]) == (2, f"invalid count {count}")


def test_a_record_that_is_not_an_event_is_skipped(tmp_path: Path):
    """If its length is correct, the next one is found."""
    file = write(tmp_path, dict.fromkeys(range(3), 1.0))
    data = bytearray(file.read_bytes())
    ends = [end for end, _ in records(bytes(data))]
    data[ends[1] + 12 : ends[2] - 4] = b"\xff" * (ends[2] - ends[1] - 16)
    file.write_bytes(data)
    run = barograph.open(tmp_path)
    assert run.series("a").steps.tolist() == [0, 2]
    assert unread(run)[0]["count"] == 1


def test_a_large_record_is_read_or_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One that is larger than a read; one beyond the limit is counted."""
    monkeypatch.setattr(event_files, "CHUNK", 1000)
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("a", 1.0, 1)
        writer.add_text("long", "x" * 20_000, 1)
        writer.add_scalar("a", 2.0, 2)
    run = barograph.open(tmp_path)
    assert run.series("a").values.tolist() == [1, 2]
    assert len(run.texts()[0].text) == 20_000
    monkeypatch.setenv("BAROGRAPH_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(event_files, "MAX_CHUNK", 10_000)
    run = barograph.open(tmp_path)
    assert run.series("a").values.tolist() == [1, 2]
    assert "more than" in unread(run)[0]["reason"]


def test_any_bytes_are_read_without_an_error(tmp_path: Path):
    """What was changed is counted; every intact value before the first change is kept."""
    file = write(tmp_path / "source", {step: float(step) for step in range(1, 40)})
    whole = file.read_bytes()
    chance = random.Random(4)
    for number in range(150):
        data = bytearray(whole)
        places = [chance.randrange(len(data)) for _ in range(chance.choice((1, 3, 50)))]
        for place in places:
            data[place] = chance.randrange(256)
        if number % 3 == 0:
            del data[min(places) : chance.randrange(len(data))]
        folder = tmp_path / f"changed{number}"
        folder.mkdir()
        (folder / file.name).write_bytes(data)
        run = barograph.open(folder)
        intact = sum(end < min(places) for end, _ in records(whole)) - 1
        series = run.series("a") if run.names("a") else None
        found = {} if series is None else dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
        # A step that was changed may be one of the others, whose value it then replaces.
        assert sum(found.get(step) == step for step in range(1, intact + 1)) >= intact - len(places)


def test_a_file_that_is_removed_or_replaced_is_read_anew(tmp_path: Path):
    """Nothing of the earlier file stays."""
    file = write(tmp_path, {1: 1.0, 2: 2.0, 3: 3.0}, suffix=".a")
    run = barograph.open(tmp_path)
    other = write(tmp_path / "other", {5: 5.0})
    file.write_bytes(other.read_bytes())
    assert run.refresh()
    assert run.series("a").steps.tolist() == [5]
    file.rename(tmp_path / f"{file.name}.b")
    assert run.refresh()
    assert run.series("a").steps.tolist() == [5]


def test_hyperparameters_are_the_config(tmp_path: Path):
    """Of the HParams tab, and the arguments that the Trainer of transformers writes as a text."""
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_text("args", json.dumps({"learning_rate": 1e-6, "hub_token": "hf_abcdefghijklmnopqrstuvwxyz123456"}))
        writer.add_text("model_config", json.dumps({"hidden_size": 64}))
        writer.add_hparams({"lr": 0.5, "name": "x", "on": True}, {"hparam/loss": 1.0}, run_name="inner")
    run = barograph.open(tmp_path / "inner")
    assert run.config == {"lr": 0.5, "name": "x", "on": True}
    assert run.status.word == "finished"
    run = barograph.open(next(tmp_path.glob("events*")))
    assert run.config["learning_rate"] == 1e-6
    assert run.config["model_config"] == {"hidden_size": 64}
    assert "hf_abc" not in str(run.config)
    assert run.texts() == []


def test_a_directory_is_one_run_and_one_file_of_several_another(tmp_path: Path):
    """Hidden directories and those of runs are left out."""
    for place in ("lab/one", "lab/two/runs/deep", ".hidden", "journal/inside"):
        write(tmp_path / place, {0: 1.0})
    second = write(tmp_path / "lab/one", {5: 1.0}, suffix=".second")
    found = [log.path.relative_to(tmp_path).as_posix() for log in find_logs(tmp_path, skip=[tmp_path / "journal"])]
    assert found == ["lab/one", "lab/two/runs/deep"]
    assert [log.path for log in logs_at(second)] == [second]
    assert barograph.open(second).steps == (5, 5)
    info = barograph.open(tmp_path / "lab/two/runs/deep").info
    assert (info.project, info.name) == ("two", "deep")
    with pytest.raises(LogError, match="2 logs"):
        barograph.open(tmp_path / "lab")


def test_the_run_is_not_running_because_its_files_are_new(tmp_path: Path):
    """Event files that were copied a moment ago are not being written."""
    write(tmp_path, {1: 1.0})
    assert barograph.open(tmp_path).status.word == "finished"


def test_old_files_that_are_copied_piece_by_piece_are_not_running(tmp_path: Path):
    """The server sees the copy grow, but what it has is of another day; a log of now that grows is running."""
    for name, began, word in (("old", 1e9, "finished"), ("new", time.time(), "running")):
        source = write(tmp_path / "from" / name, {step: float(step) for step in range(100)}, at=began)
        target = tmp_path / "to" / name / source.name
        target.parent.mkdir(parents=True)
        target.write_bytes(source.read_bytes()[:1000])
        run = barograph.open(target.parent)
        target.write_bytes(source.read_bytes())
        assert run.refresh()
        assert len(run.series("a")) == 100
        assert run.status.word == word


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"hello\n", os.urandom(3000)])
def test_a_file_that_only_has_the_name_is_an_empty_run(tmp_path: Path, content: bytes):
    """It has no metrics, and what was not understood is counted."""
    (tmp_path / "events.out.tfevents.1700000000.host").write_bytes(content)
    assert barograph.open(tmp_path).names() == []


@pytest.mark.parametrize("name", ["verl-gsm8k-qwen2-7b-base", "verl-q3b-mcore-offppl"])
def test_real_runs_have_the_values_of_their_reference(name: str):
    """To the six digits that it gives, key by key and step by step."""
    if not (REAL_RUNS / name).exists():
        pytest.skip("no real runs")
    [file] = (REAL_RUNS / name).glob("*tfevents*")
    run = barograph.open(file)
    series = {metric: run.series(metric) for metric in run.names()}
    values = {metric: dict(zip(s.steps.tolist(), s.values.tolist(), strict=True)) for metric, s in series.items()}
    compared = 0
    with (REAL_RUNS / name / "series.csv").open() as table:
        for row in csv.DictReader(table):
            step = int(row.pop("step"))
            row.pop("_wall")
            for metric, text in row.items():
                assert (step in values[metric]) == bool(text)
                if text:
                    assert f"{values[metric][step]:.6g}" == f"{float(text):.6g}", (metric, step)
                    compared += 1
    assert compared == sum(map(len, series.values()))
    assert unread(run) == []
