"""W&B's files, of records that its own definitions encode, opened as runs without its package."""

import builtins
import json
import math
import random
import time
from pathlib import Path
from typing import Any

import pytest
from block_files import append_record, write_records

import barograph
from barograph.importers.logs import find_logs, logs_at
from barograph.importers.reading import block_records
from barograph.journal.view import View

wandb_internal_pb2 = pytest.importorskip("wandb.proto.wandb_internal_pb2")
Record = wandb_internal_pb2.Record
HEAD = b":W&B\xe1\xbe\x00"
STARTED = 1_700_000_000


def run(**config: Any) -> bytes:
    record = Record()
    record.run.run_id, record.run.project, record.run.display_name = "abc", "maze", "first"
    record.run.run_group, record.run.notes = "g", "a note"
    record.run.tags.extend(["x", "y"])
    record.run.start_time.seconds = STARTED
    for key, value in config.items():
        record.run.config.update.add(key=key, value_json=json.dumps(value))
    return record.SerializeToString()


def history(step: int, nested: bool = True, **values: Any) -> bytes:
    record = Record()
    for key, value in {**values, "_step": step, "_timestamp": STARTED + step}.items():
        item = record.history.item.add(value_json=json.dumps(value))
        if nested:
            item.nested_key.append(key)
        else:
            item.key = key
    return record.SerializeToString()


def ended(code: int) -> bytes:
    record = Record()
    record.exit.exit_code = code
    return record.SerializeToString()


def write(folder: Path, *records: bytes, name: str = "offline-run-20240101_000000-abc") -> Path:
    return write_records(folder / name / "run-abc.wandb", HEAD, records)


def facts(view: View) -> dict[str, Any]:
    """Return what the last reading says about the log."""
    return next(event for event in reversed(view.events()) if event["event"] == "imported")


def test_history_config_and_description_are_read(tmp_path: Path):
    """Values, steps, times, NaN, null, and what W&B knows of the run."""
    path = write(
        tmp_path,
        run(lr=1e-6, seed=7, model={"name": "qwen"}, _wandb={"x": 1}),
        history(1, loss=0.5, reward=1),
        history(2, False, loss=math.nan, reward=math.inf),
        history(3, loss=0.25, note="some words", reward=None, is_done=True),
        ended(0),
    )
    view = barograph.open(path)
    assert view.series("loss").steps.tolist() == [1, 2, 3]
    assert view.series("loss").values.tolist()[::2] == [0.5, 0.25]
    assert math.isnan(view.series("loss").values[1])
    assert view.series("reward").values[1] == math.inf
    assert view.series("loss").times.tolist() == [STARTED + 1, STARTED + 2, STARTED + 3]
    assert view.config == {"lr": 1e-6, "seed": 7, "model": {"name": "qwen"}}
    assert [(text.name, text.text) for text in view.texts()] == [("note", "some words")]
    info = view.info
    assert (info.project, info.name, info.group, info.notes, info.tags) == ("maze", "first", "g", "a note", ("x", "y"))
    assert info.created == STARTED
    assert view.status.word == "finished"
    assert not any(name.startswith("_") for name in view.names())


@pytest.mark.parametrize(("code", "word"), [(0, "finished"), (1, "crashed"), (137, "killed"), (255, "crashed")])
def test_the_exit_code_is_the_status(tmp_path: Path, code: int, word: str):
    """With the last line of the console as the reason."""
    output = Record()
    output.output_raw.line = "ValueError: boom\n"
    view = barograph.open(write(tmp_path, run(), history(1, a=1.0), output.SerializeToString(), ended(code)))
    assert view.status.word == word
    assert view.status.reason == ("" if code == 0 else f"exit code {code}: ValueError: boom")


def test_a_run_without_an_end_does_not_tell_how_it_ended(tmp_path: Path):
    """It is running if the file grows while it is looked at."""
    view = barograph.open(write(tmp_path, run(), history(1, a=1.0)))
    assert view.status.word == "finished"
    assert "does not tell" in view.status.reason


def test_the_axis_of_all_charts_is_the_step(tmp_path: Path):
    """As the Trainer of transformers defines it; without a value the one before counts."""
    axis = Record()
    axis.metric.glob_name, axis.metric.step_metric = "*", "train/global_step"
    rows = [history(0, loss=1.0, **{"train/global_step": 10}), history(1, loss=2.0, **{"train/global_step": 20})]
    view = barograph.open(write(tmp_path, run(), axis.SerializeToString(), *rows, history(2, final=3.0)))
    assert view.series("loss").steps.tolist() == [10, 20]
    assert view.series("final").steps.tolist() == [20]
    assert "train/global_step" in facts(view)["notes"][0]


def test_groups_of_metrics_have_axes_of_their_own(tmp_path: Path):
    """As OpenRLHF and slime define them; other metrics have W&B's own step."""
    axes = [Record() for _ in range(3)]
    axes[0].metric.glob_name, axes[0].metric.step_metric = "train/*", "train/step"
    axes[1].metric.glob_name, axes[1].metric.step_metric = "rollout/*", "rollout/step"
    axes[2].metric.name, axes[2].metric.step_metric = "alone", "train/step"
    rows = [
        history(0, **{"rollout/reward": 1.0, "rollout/step": 3}),
        history(1, **{"train/loss": 1.0, "train/step": 30}),
        history(2, **{"train/loss": 2.0, "train/step": 31}),
        history(3, **{"rollout/reward": 2.0, "rollout/step": 4}),
        history(4, other=1.0),
        history(5, alone=1.0),
    ]
    view = barograph.open(write(tmp_path, run(), *(axis.SerializeToString() for axis in axes), *rows))
    steps = {name: view.series(name).steps.tolist() for name in ("train/loss", "rollout/reward", "other", "alone")}
    assert steps == {"train/loss": [30, 31], "rollout/reward": [3, 4], "other": [4], "alone": [31]}
    assert len(view.writers()) == 1


def test_histograms_and_nested_values_are_read(tmp_path: Path):
    """Parts of a name are joined by dots, as W&B does; media are in other files."""
    record = Record()
    for path, value in (
        (["h", "_type"], "histogram"), (["h", "values"], [1, 2]), (["h", "bins"], [0, 0.5, 1.0]),
        (["p", "_type"], "histogram"), (["p", "values"], [1, 2]),
        (["p", "packedBins"], {"min": 0, "size": 0.5, "count": 2}),
        (["a", "b"], 4), (["t", "_type"], "table-file"), (["t", "path"], "../../etc/passwd"), (["_step"], 3),
    ):  # fmt: skip
        record.history.item.add(value_json=json.dumps(value)).nested_key.extend(path)
    view = barograph.open(write(tmp_path, run(), record.SerializeToString()))
    for name in ("h", "p"):
        [(step, histogram)] = view.histograms(name)
        assert (step, histogram.edges, histogram.counts) == (3, (0.0, 0.5, 1.0), (1, 2))
        # W&B does not have the values: their range is that of the bins, their sum that of the middles.
        assert (histogram.min, histogram.max, histogram.sum, histogram.count) == (0.0, 1.0, 1 * 0.25 + 2 * 0.75, 3)
    assert view.names() == ["a.b"]
    assert "not read" in facts(view)["notes"][0]


def test_typed_items_of_newer_versions_are_read(tmp_path: Path):
    """Numbers as numbers, not as JSON."""
    record = Record()
    for name, field, value in (("i", "integer", -3), ("n", "number", 0.5), ("b", "boolean", True), ("s", "text", "x")):
        setattr(record.history.item.add(key=name), field, value)
    record.history.item.add(key="_step", value_json="4")
    view = barograph.open(write(tmp_path, run(), record.SerializeToString()))
    assert {name: view.series(name).values.tolist() for name in view.names()} == {"i": [-3], "n": [0.5], "b": [1]}
    assert view.texts()[0].text == "x"


def test_what_only_the_summary_has_is_at_the_last_step(tmp_path: Path):
    """Values that were logged are not repeated."""
    summary = Record()
    for name, value in (("loss", 1.0), ("best", 0.9), ("_runtime", 3)):
        summary.summary.update.add(key=name, value_json=json.dumps(value))
    view = barograph.open(write(tmp_path, run(), history(5, loss=1.0), summary.SerializeToString(), ended(0)))
    assert view.series("best").steps.tolist() == [5]
    assert view.series("loss").steps.tolist() == [5]
    assert "_runtime" not in view.names()


def test_a_directory_has_many_runs_and_a_resumed_one_is_one_run(tmp_path: Path):
    """Of several files of a run the later ones are attempts; the links and logs beside them are no runs."""
    folder = tmp_path / "wandb"
    write(folder, run(), history(1, a=1.0), history(2, a=1.0), history(3, a=1.0))
    write(folder, run(), history(2, a=2.0), name="run-20240102_000000-abc")
    other = write(folder, run(), history(1, a=1.0), name="offline-run-20240101_000000-other")
    (other.parent / "files").mkdir()
    (other.parent / "files" / "metrics.jsonl").write_text('{"step": 1, "a": 2}\n')
    (folder / "latest-run").symlink_to(other.parent)
    (folder / "debug.log").write_text("{}")
    logs = list(find_logs(tmp_path))
    assert [(log.path, log.member) for log in logs] == [(folder, "abc"), (other, "")]
    assert [log.path for log in logs_at(other.parent)] == [other]
    view = barograph.open(f"{folder}#abc")
    assert view.series("a").values.tolist() == [1, 2]
    assert len(view.series("a", attempt=1)) == 3


def test_a_second_opening_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From the last record on; a torn end is read when it is complete."""
    data = bytearray(HEAD)
    for record in (run(), *(history(step, a=float(step), text="x" * 3000) for step in range(100))):
        append_record(data, record)
    path = tmp_path / "run-abc.wandb"
    path.write_bytes(data[:-50])
    view = barograph.open(path)
    assert len(view.series("a")) == 99
    starts = []
    pieces = block_records._pieces
    monkeypatch.setattr(block_records, "_pieces", lambda file, place: starts.append(place) or pieces(file, place))
    append_record(data, history(100, a=100.0))
    path.write_bytes(data)
    assert view.refresh()
    assert view.series("a").values.tolist() == list(range(101))
    assert view.status.word == "running"
    assert min(starts) > len(data) - 8000


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path):
    """Nothing of the earlier one stays."""
    path = write(tmp_path, run(), history(1, a=1.0))
    view = barograph.open(path)
    write(tmp_path, run(lr=1), history(5, b=1.0))
    assert view.refresh()
    assert view.names() == ["b"]


def test_damage_costs_only_its_block(tmp_path: Path):
    """Records before and behind it are kept, and it is counted."""
    path = write(tmp_path, run(), *(history(step, a=float(step), text="x" * 1000) for step in range(200)))
    data = bytearray(path.read_bytes())
    data[50_000:50_100] = b"\xff" * 100
    path.write_bytes(data)
    view = barograph.open(path)
    steps = view.series("a").steps.tolist()
    assert steps[0] == 0
    assert steps[-1] == 199
    assert len(steps) > 150
    assert "damaged" in facts(view)["unread"][0]["reason"]


def test_any_bytes_are_read_without_an_error(tmp_path: Path):
    """With checksums that are correct as well."""
    records = [run(lr=1), *(history(step, a=float(step)) for step in range(20)), ended(1)]
    chance = random.Random(3)
    for number in range(150):
        changed = [bytearray(record) for record in records]
        for _ in range(chance.choice((1, 5, 30))):
            record = chance.choice(changed)
            record[chance.randrange(len(record))] = chance.randrange(256)
        path = write(tmp_path / str(number), *map(bytes, changed))
        if number % 2:
            data = bytearray(path.read_bytes())
            data[chance.randrange(7, len(data))] = chance.randrange(256)
            path.write_bytes(data[: chance.randrange(100, len(data))])
        view = barograph.open(path)
        view.names()
        assert not [one for one in facts(view)["unread"] if "cannot be read" in one["reason"]]


@pytest.mark.parametrize("content", [b":W&B", HEAD, HEAD + bytes(100), HEAD + b"x" * 70_000])
def test_a_file_without_records_is_an_empty_run(tmp_path: Path, content: bytes):
    """It opens."""
    path = tmp_path / "run-abc.wandb"
    path.write_bytes(content)
    assert barograph.open(path).names() == []


def test_the_package_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The definitions are in the importer."""
    path = write(tmp_path, run(), history(1, a=1.0))
    imported = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        assert not name.startswith("wandb")
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert barograph.open(path).names() == ["a"]


def test_times_of_a_copied_file_do_not_matter(tmp_path: Path):
    """A file that was written a moment ago is not a run that is running."""
    path = write(tmp_path, run(), history(1, a=1.0))
    assert time.time() - path.stat().st_mtime < 60
    assert barograph.open(path).status.word == "finished"


def test_the_number_of_bins_in_a_histogram_is_that_of_its_counts(tmp_path: Path):
    """A file may say any number, which would fill the memory."""
    packed = {"_type": "histogram", "values": [3, 4], "packedBins": {"min": 0.0, "size": 0.5, "count": 10**15}}
    view = barograph.open(write(tmp_path, run(), history(1, h=packed, a=1.0)))
    [(step, found)] = view.histograms("h")
    assert (step, found.edges, found.counts) == (1, (0.0, 0.5, 1.0), (3, 4))
