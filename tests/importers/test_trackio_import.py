"""Trackio's databases, opened as runs."""

import json
import math
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.base.errors import LogError
from barograph.importers.formats import FAILURES, trackio
from barograph.importers.logs import find_logs
from barograph.importers.opening import ImportedView
from barograph.journal.view import View

SCHEMA = """
CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
                      run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT);
CREATE TABLE configs (id INTEGER PRIMARY KEY, run_id TEXT, run_name TEXT, config TEXT, created_at TEXT);
"""
OLD_SCHEMA = """
CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT NOT NULL, run_name TEXT NOT NULL,
                      step INTEGER NOT NULL, metrics TEXT NOT NULL);
"""
WRITE = "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)"


def connect(path: Path, schema: str = SCHEMA) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.executescript(schema)
    return connection


def add(connection: sqlite3.Connection, id: str, step: int, name: str = "", **values: Any) -> None:
    at = f"2024-05-01T12:00:{step:02d}+00:00"
    connection.execute(WRITE, (id, at, name or id, step, json.dumps(values)))
    connection.commit()


def facts(view: View) -> dict[str, Any]:
    """Return what the last reading says about the log."""
    return next(event for event in reversed(view.events()) if event["event"] == "imported")


def test_rows_config_and_description_are_read(tmp_path: Path):
    """Values, steps, times, NaN and infinities as Trackio writes them, and names that it escapes."""
    path = tmp_path / "maze.db"
    with closing(connect(path)) as connection:
        add(connection, "one", 1, loss=0.5, reward="NaN", __step=7)
        add(connection, "one", 2, loss=0.25, reward="-Infinity", note="words", nothing=None)
        config = {"lr": 1e-6, "tags": ["x"], "_Group": "g", "_Created": "2024-05-01T11:00:00+00:00", "_Username": None}
        connection.execute(
            "INSERT INTO configs (run_id, run_name, config) VALUES ('one', 'one', ?)", (json.dumps(config),)
        )
        connection.commit()
    view = barograph.open(path)
    assert view.series("loss").values.tolist() == [0.5, 0.25]
    assert view.series("loss").steps.tolist() == [1, 2]
    assert view.series("loss").times.tolist() == [1714564801, 1714564802]
    assert math.isnan(view.series("reward").values[0])
    assert view.series("reward").values[1] == -math.inf
    assert view.series("step").values.tolist() == [7]
    assert view.texts()[0].text == "words"
    assert view.config == {"lr": 1e-6, "tags": ["x"]}
    info = view.info
    assert (info.project, info.name, info.group, info.tags, info.created) == ("maze", "one", "g", ("x",), 1714561200)


def test_markdown_histograms_and_tables_of_completions_are_read(tmp_path: Path):
    """A table with prompts and completions is samples; other numbers in it are components of the reward."""
    rows = [{"step": 3, "prompt": "2+2", "completion": "4", "reward": 1.0, "format": 0.5, "advantage": 0.1}]
    with closing(connect(tmp_path / "p.db")) as connection:
        add(
            connection, "one", 3,
            text={"_type": "trackio.markdown", "_value": "*a*"},
            h={"_type": "trackio.histogram", "bins": [0.0, 1.0], "values": [3]},
            completions={"_type": "trackio.table", "_value": rows},
            image={"_type": "trackio.image", "file_path": "/etc/passwd"},
        )  # fmt: skip
    view = barograph.open(tmp_path / "p.db")
    assert view.texts()[0].text == "*a*"
    assert view.histograms("h")[0][1].counts == (3,)
    [sample] = view.samples()
    assert (sample.prompt, sample.completion, sample.reward, sample.advantage) == ("2+2", "4", 1.0, 0.1)
    assert sample.rewards == {"format": 0.5}
    assert "not read" in facts(view)["notes"][0]


def test_runs_of_a_database_are_opened_by_their_names(tmp_path: Path):
    """Runs of one name get their ids behind it."""
    path = tmp_path / "p.db"
    with closing(connect(path)) as connection:
        for id, name in (("1", "a"), ("2", "b"), ("3", "b")):
            add(connection, id, 1, name, x=float(id))
    assert [log.member for log in find_logs(tmp_path)] == ["a", "b 2", "b 3"]
    assert barograph.open(f"{path}#b 3").series("x").values.tolist() == [3]
    with pytest.raises(LogError, match="3 runs"):
        barograph.open(path)


def test_the_runs_of_a_database_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not once for each of them, and again only if it has changed."""
    path = tmp_path / "p.db"
    listed = []
    ids = trackio._ids
    monkeypatch.setattr(trackio, "_ids", lambda *given: listed.append(given) or ids(*given))
    with closing(connect(path)) as connection:
        for number in range(20):
            add(connection, str(number), 1, x=float(number))
        views = [ImportedView(log) for log in find_logs(tmp_path)]
        assert len(views) == 20
        assert len(listed) == 1
        add(connection, "3", 2, x=7.0)
        for view in views:
            view.refresh()
        assert views[3].series("x").values.tolist() == [3, 7]
        assert len(listed) == 2


def test_a_database_of_an_older_version_is_read(tmp_path: Path):
    """Runs had no ids."""
    with closing(connect(tmp_path / "p.db", OLD_SCHEMA)) as connection:
        connection.execute(
            "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES ('2024-05-01T12:00:00', 'one', 4, ?)",
            ('{"a": 1}',),
        )
        connection.commit()
    assert barograph.open(tmp_path / "p.db").series("a").steps.tolist() == [4]


def test_the_step_of_a_trainer_counts(tmp_path: Path):
    """Trackio's own step counts calls."""
    with closing(connect(tmp_path / "p.db")) as connection:
        add(connection, "one", 0, **{"loss": 1.0, "train/global_step": 10})
        add(connection, "one", 1, **{"loss": 2.0, "train/global_step": 20})
        add(connection, "one", 2, timing=2.0)
    view = barograph.open(tmp_path / "p.db")
    assert view.series("loss").steps.tolist() == [10, 20]
    assert view.series("timing").steps.tolist() == [20]


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_database_is_followed_while_it_is_written(tmp_path: Path, journal: str):
    """What is in the write-ahead file counts; only new rows are read."""
    path = tmp_path / "p.db"
    with closing(connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        for step in range(5):
            add(connection, "one", step, a=float(step))
        view = barograph.open(path)
        assert len(view.series("a")) == 5
        assert not view.refresh()
        add(connection, "one", 5, a=5.0)
        assert view.refresh()
        assert view.series("a").values.tolist() == list(range(6))
        assert len(view.writers()) == 1


def test_nothing_is_written_beside_a_database(tmp_path: Path):
    """Also of one that uses a write-ahead file."""
    path = tmp_path / "store" / "p.db"
    path.parent.mkdir()
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        add(connection, "one", 1, a=1.0)
    before, content = sorted(path.parent.iterdir()), path.read_bytes()
    assert barograph.open(path).names() == ["a"]
    assert sorted(path.parent.iterdir()) == before == [path]
    assert path.read_bytes() == content


def test_a_database_that_was_made_again_is_read_anew(tmp_path: Path):
    """Nothing of the earlier one stays."""
    path = tmp_path / "p.db"
    with closing(connect(path)) as connection:
        add(connection, "one", 1, a=1.0)
        add(connection, "one", 2, a=1.0)
    view = barograph.open(path)
    path.unlink()
    with closing(connect(path)) as connection:
        add(connection, "one", 1, b=1.0)
    assert view.refresh()
    assert view.names() == ["b"]


def test_rows_that_are_no_objects_are_counted(tmp_path: Path):
    """The others are kept."""
    with closing(connect(tmp_path / "p.db")) as connection:
        add(connection, "one", 1, a=1.0)
        connection.execute(WRITE, ("one", "x", "one", 2, "[1"))
        connection.commit()
    view = barograph.open(tmp_path / "p.db")
    assert view.series("a").values.tolist() == [1.0]
    assert facts(view)["unread"] == [{"where": "row 2", "reason": "not a JSON object", "count": 1}]


@pytest.mark.parametrize("damage", [b"SQLite format 3\0", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_database_that_cannot_be_read_is_no_log(tmp_path: Path, damage: bytes):
    """The message names the file."""
    (tmp_path / "p.db").write_bytes(damage)
    with pytest.raises(LogError, match=r"p\.db is a database .* damaged"):
        barograph.open(tmp_path / "p.db")


def test_damaged_pages_give_a_message(tmp_path: Path):
    """Whichever page it is; what was read before is kept."""
    path = tmp_path / "p.db"
    with closing(connect(path)) as connection:
        for step in range(60):
            add(connection, "one", step, a=float(step), text="x" * 500)
    data = path.read_bytes()
    for page in range(1, len(data) // 4096):
        damaged = bytearray(data)
        damaged[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
        path = tmp_path / f"{page}.db"
        path.write_bytes(damaged)
        with suppress(LogError):
            view = barograph.open(path)
            assert len(view.series("a") if view.names("a") else ()) == 60 or facts(view)["unread"]


def test_a_damaged_name_in_a_database_is_an_error_of_the_database(tmp_path: Path):
    """The message of SQLite has bytes of the file, which are no text."""
    path = tmp_path / "maze.db"
    with closing(connect(path)) as connection:
        add(connection, "one", 1, loss=0.5)
    path.write_bytes(
        path.read_bytes().replace(b"tableconfigs", b"table\xa5onfigs").replace(b"TABLE configs (", b"TABLE configs )")
    )
    FAILURES.clear()
    with pytest.raises(LogError):
        barograph.open(path)
    assert not FAILURES


def test_what_is_left_of_a_file_that_was_cut_off_is_read(tmp_path: Path):
    """SQLite itself refuses it; the reason is said once."""
    path = tmp_path / "p.db"
    with closing(connect(path)) as connection:
        for step in range(60):
            add(connection, "one", step, a=float(step), text="x" * 500)
    path.write_bytes(path.read_bytes()[:-4096])
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.DatabaseError):
        connection.execute("SELECT * FROM metrics").fetchall()
    view = barograph.open(path)
    view.refresh()
    values = view.series("a").values.tolist()
    assert values == list(range(len(values)))
    assert len(values) > 40
    [found] = facts(view)["unread"]
    assert found["count"] == 1
    assert "what could be read is kept" in found["reason"]
