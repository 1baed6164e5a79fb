"""MLflow's directories and databases, opened as runs."""

import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.importers.formats import mlflow
from barograph.importers.logs import find_logs
from barograph.journal.view import View

ID = "0123456789abcdef0123456789abcdef"
SCHEMA = """
CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE runs (run_uuid TEXT PRIMARY KEY, name TEXT, status TEXT, start_time BIGINT, lifecycle_stage TEXT,
                   experiment_id INTEGER);
CREATE TABLE metrics ("key" TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN,
                      PRIMARY KEY ("key", timestamp, step, run_uuid, value, is_nan));
CREATE TABLE params ("key" TEXT, value TEXT, run_uuid TEXT);
CREATE TABLE tags ("key" TEXT, value TEXT, run_uuid TEXT);
INSERT INTO experiments VALUES (1, 'maze');
"""


def facts(view: View) -> dict[str, Any]:
    """Return what the last reading says about the log."""
    return next(event for event in reversed(view.events()) if event["event"] == "imported")


def write_run(mlruns: Path, metrics: dict[str, str], status: int = 3, **params: str) -> Path:
    """Write a run as MLflow's file store does."""
    run = mlruns / "1" / ID
    (run / "artifacts").mkdir(parents=True)
    (mlruns / "1" / "meta.yaml").write_text("artifact_location: file:///x\nexperiment_id: '1'\nname: maze\n")
    (run / "meta.yaml").write_text(
        f"artifact_uri: x\nend_time: 1\nlifecycle_stage: active\nrun_id: {ID}\nrun_name: 'it''s first'\n"
        f"start_time: 1700000000250\nstatus: {status}\ntags: []\nuser_id: me\n"
    )
    for folder, entries in (("metrics", metrics), ("params", params), ("tags", {"mlflow.note.content": "a note"})):
        for name, text in entries.items():
            file = run / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    return run


def test_a_directory_of_a_run_is_read(tmp_path: Path):
    """Values, steps, times, NaN and infinities, names with slashes, parameters and the experiment."""
    metrics = {
        "train/loss": "1700000001000 0.5 1\n1700000002000 nan 2\n",
        "reward": "1700000001000 1 1\n1700000002000 -inf 2\n",
        "old": "1700000001000 3.5\n",
    }
    run = write_run(tmp_path / "mlruns", metrics, lr="1e-06", model="qwen", use_kl="True", betas="[0.9, 0.95]")
    (run / "artifacts" / "metrics.jsonl").write_text('{"step": 1, "a": 2}\n')
    [log] = find_logs(tmp_path)
    assert log.path == run
    view = barograph.open(run)
    assert view.series("train/loss").steps.tolist() == [1, 2]
    assert math.isnan(view.series("train/loss").values[1])
    assert view.series("reward").values.tolist() == [1, -math.inf]
    assert view.series("reward").times.tolist() == [1700000001, 1700000002]
    assert view.series("old").steps.tolist() == [0]
    assert view.config == {"lr": 1e-6, "model": "qwen", "use_kl": True, "betas": "[0.9, 0.95]"}
    info = view.info
    assert (info.project, info.name, info.notes, info.created) == ("maze", "it's first", "a note", 1700000000.25)
    assert view.status.word == "finished"


@pytest.mark.parametrize(("status", "word"), [(3, "finished"), (4, "crashed"), (5, "killed")])
def test_the_state_is_the_status(tmp_path: Path, status: int, word: str):
    """Of a directory, where it is a number."""
    run = write_run(tmp_path, {"a": "1700000001000 1 1\n"}, status)
    assert barograph.open(run).status.word == word


def test_a_run_that_goes_on_is_followed(tmp_path: Path):
    """From the last line of each metric; an incomplete line waits."""
    run = write_run(tmp_path, {"a": "1700000001000 1 1\n", "b": "1700000001000 1 1\n17000000"}, status=1)
    view = barograph.open(run)
    assert view.series("b").steps.tolist() == [1]
    for name in ("a", "b"):
        (run / "metrics" / name).write_text("1700000001000 1 1\n1700000002000 2 2\n")
    assert view.refresh()
    assert view.series("a").values.tolist() == [1, 2]
    assert view.series("b").values.tolist() == [1, 2]
    assert len(view.writers()) == 1
    assert view.status.word == "running"
    (run / "metrics" / "a").write_text("")
    assert view.refresh()
    assert "a" not in view.names()


def test_values_of_one_step_are_one_row(tmp_path: Path):
    """Although each metric has a file of its own; one that was logged later is a row of its own."""
    points = "".join(f"{1700000000000 + step * 60_000} {step} {step}\n" for step in range(30))
    run = write_run(tmp_path, {"a": points, "b": points, "eval": "1700001760000 7 29\n"})
    rows = []

    class Out:
        def row(self, values: dict[str, float], step: int, at: float) -> None:
            rows.append((values, step, at))

        def status(self, *_: object) -> None: ...

    [log] = find_logs(run)
    mlflow.reader(log, {}).read(Out())  # type: ignore[arg-type]
    assert len(rows) == 31
    assert rows[3] == ({"a": 3.0, "b": 3.0}, 3, 1700000180)


def test_lines_that_are_no_points_are_counted(tmp_path: Path):
    """The others are kept."""
    run = write_run(tmp_path, {"a": "1700000001000 1 1\nx y z\n1 2 3 4\n1700000002000 word 2\n1700000003000 3 3\n"})
    view = barograph.open(run)
    assert view.series("a").steps.tolist() == [1, 3]
    assert facts(view)["unread"][0]["count"] == 3


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    return connection


def add_run(
    connection: sqlite3.Connection, id: str, name: str, status: str = "FINISHED", stage: str = "active"
) -> None:
    connection.execute("INSERT INTO runs VALUES (?, ?, ?, 1700000000250, ?, 1)", (id, name, status, stage))
    connection.commit()


def add(connection: sqlite3.Connection, id: str, name: str, step: int, value: float) -> None:
    is_nan = math.isnan(value)
    stored = 0.0 if is_nan else math.copysign(1.7976931348623157e308, value) if math.isinf(value) else value
    at = 1700000000000 + step * 1000
    connection.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", (name, stored, at, id, step, is_nan))
    connection.commit()


def test_runs_of_a_database_are_opened_by_their_names(tmp_path: Path):
    """Deleted runs are left out; NaN and infinities are as they were logged."""
    path = tmp_path / "mlflow.db"
    with closing(connect(path)) as connection:
        for id, name, status, stage in (
            ("1", "a", "FAILED", "active"), ("2", "b", "RUNNING", "active"), ("3", "c", "FINISHED", "deleted"),
        ):  # fmt: skip
            add_run(connection, id, name, status, stage)
        for step, value in enumerate((0.5, math.nan, -math.inf, math.inf)):
            add(connection, "1", "loss", step, value)
            add(connection, "2", "other", step, value)
        connection.execute("INSERT INTO params VALUES ('lr', '0.5', '1')")
        connection.execute("INSERT INTO tags VALUES ('mlflow.note.content', 'a note', '1')")
        connection.commit()
    assert [log.member for log in find_logs(tmp_path)] == ["a", "b"]
    view = barograph.open(f"{path}#a")
    assert view.names() == ["loss"]
    assert view.series("loss").values.tolist()[2:] == [-math.inf, math.inf]
    assert math.isnan(view.series("loss").values[1])
    assert view.series("loss").times.tolist()[1] == 1700000001
    assert view.config == {"lr": 0.5}
    info = view.info
    assert (info.project, info.name, info.notes, view.status.word) == ("maze", "a", "a note", "crashed")
    assert barograph.open(f"{path}#b").status.word == "finished"


def test_a_database_is_followed(tmp_path: Path):
    """Only new points are read, and its state changes with the run's."""
    path = tmp_path / "mlflow.db"
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        add_run(connection, "1", "a", "RUNNING")
        add(connection, "1", "loss", 1, 0.5)
        view = barograph.open(path)
        add(connection, "1", "loss", 2, 0.25)
        assert view.refresh()
        assert view.series("loss").values.tolist() == [0.5, 0.25]
        assert view.status.word == "running"
        connection.execute("UPDATE runs SET status = 'KILLED'")
        connection.commit()
        assert view.refresh()
        assert view.status.word == "killed"


def test_a_database_that_was_made_again_is_read_anew(tmp_path: Path):
    """Nothing of the earlier one stays."""
    path = tmp_path / "mlflow.db"
    with closing(connect(path)) as connection:
        add_run(connection, "1", "a")
        for step in range(3):
            add(connection, "1", "loss", step, 0.5)
    view = barograph.open(path)
    path.unlink()
    with closing(connect(path)) as connection:
        add_run(connection, "1", "a")
        add(connection, "1", "other", 5, 0.5)
    assert view.refresh()
    assert view.names() == ["other"]


@pytest.mark.parametrize("start", ["9" * 5000, "²", "-1", "soon"])
def test_a_start_that_is_no_time_is_none(tmp_path: Path, start: str):
    """Also a number of thousands of digits, which Python does not parse; lines with one are counted."""
    run = write_run(tmp_path / "mlruns", {"loss": f"{start} 0.5 1\n1700000001000 0.25 2\n"})
    meta = run / "meta.yaml"
    meta.write_text(meta.read_text().replace("1700000000250", start))
    view = barograph.open(run)
    assert view.series("loss").values.tolist()[-1] == 0.25
    assert not [text for text in view.damage() if "the rest" in text]
