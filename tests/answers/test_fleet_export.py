"""``barograph export DIR --partition``: the runs of a directory as Parquet files, to which the next export adds."""

import json
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import barograph
from barograph.answers.fleet import export as fleet_export
from barograph.answers.fleet import files as fleet_files
from barograph.answers.fleet.schema import KEYS, TABLES, arrow_schema, partition_of
from barograph.answers.runs.annotations import Annotations
from barograph.apps.cli import main
from barograph.delivery.processes import take_lock
from barograph.importers import opening
from barograph.journal.format.frames import SEGMENT_HEAD
from barograph.journal.view import View

CONFIG = {"actor": {"lr": 1e-6, "betas": [0.9, 0.95]}, "seed": 7, "name": "x", "bound": None, "fast": True}


def record(
    dir: Path,
    id: str,
    steps: range = range(30),
    project: str = "p",
    finish: bool = True,
    phases: bool = True,
    **more: Any,
) -> barograph.Run:
    """Record a run with a phase, whose gradient norm is NaN at step 10."""
    run = barograph.init(dir=dir, id=id, project=project, name=f"name of {id}", config=CONFIG, **more)
    for step in steps:
        with run.phase("actor_train", tokens=100) if phases else nullcontext():
            run.log({"critic/score/mean": step / 30, "actor/grad_norm": math.nan if step == 10 else 0.5})
        run.log({"my/own": float(step)})
        run.commit(step)
    if finish:
        run.finish()
    return run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with runs of two projects."""
    dir = tmp_path_factory.mktemp("recorded") / "runs"
    for id in ("one", "two"):
        record(dir, id, tags=["a", "b"], group="g")
    record(dir, "three", range(12), project="a b/c=é", phases=False)
    return dir


@pytest.fixture
def runs(recorded: Path, tmp_path: Path) -> Path:
    """Return a copy of the directory."""
    return Path(shutil.copytree(recorded, tmp_path / "runs"))


def export(dir: Path, out: Path, *options: str, partition: str = "project,run", code: int = 0) -> None:
    assert main(["export", str(dir), "--to", "parquet", "--partition", partition, "-o", str(out), *options]) == code


def read(out: Path, table: str, partition: str = "project,run") -> pa.Table:
    """Return a table, as a reader of Hive's layout has it; every file must have the columns of the schema."""
    keys = partition_of(table, partition.split(","))
    layout = ds.partitioning(pa.schema([(key, pa.string()) for key in keys]), flavor="hive")
    found = ds.dataset(out / table, format="parquet", partitioning=layout)
    assert all(one.physical_schema.equals(arrow_schema(table, keys)) for one in found.get_fragments())
    return found.to_table(columns=list(TABLES[table]))


def rows(out: Path, table: str, partition: str = "project,run") -> list[str]:
    """Return the rows of a table as texts in order, which compares NaN too."""
    return sorted(map(repr, read(out, table, partition).to_pylist()))


def contents(out: Path, partition: str = "project,run") -> dict[str, list[str]]:
    return {table: rows(out, table, partition) for table in TABLES}


def of_run(out: Path, table: str, id: str) -> list[dict[str, Any]]:
    return [row for row in read(out, table).to_pylist() if row["run"] == id]


def parts(out: Path, id: str, table: str = "values") -> list[str]:
    return sorted(path.name for path in (out / table).rglob(f"{id}-*.parquet"))


def states(out: Path) -> dict[Path, tuple[int, int]]:
    """Return size and time of each file of the tables."""
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in out.rglob("*.parquet")}


def test_the_tables_have_what_the_views_have(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Every point of every series is a row, NaN included; the other tables describe the run."""
    out = tmp_path / "fleet"
    export(runs, out)
    assert "runs: 3 new" in capsys.readouterr().err
    view = barograph.open(runs / "p" / "one")
    series = {name: view.series(name) for name in view.names()}
    found = of_run(out, "values", "one")
    assert {row["metric"] for row in found if row["name"] == "actor/grad_norm"} == {"policy/grad_norm"}
    assert {row["metric"] for row in found if row["name"] == "my/own"} == {None}
    points = [
        (name, int(step), float(time), float(value))
        for name, one in series.items()
        for step, time, value in zip(one.steps, one.times, one.values, strict=True)
    ]
    exported = [(row["name"], row["step"], row["time"], row["value"]) for row in found]
    assert sorted(map(repr, exported)) == sorted(map(repr, points))
    assert {(row["role"], row["rank"], row["project"]) for row in found} == {("trainer", 0, "p")}
    [run] = of_run(out, "runs", "one")
    assert (run["status"], run["group"], run["tags"], run["seed"], run["last_step"]) == (
        "finished",
        "g",
        ["a", "b"],
        "7",
        29,
    )
    assert (run["verdict"], run["attempts"], run["removed"]) == (barograph.doctor(view).verdict, 1, None)
    assert run["duration"] == pytest.approx(view.span[1] - view.span[0])
    assert {row["key"]: (row["value"], row["number"]) for row in of_run(out, "configs", "one")} == {
        "actor.lr": ("1e-06", 1e-6), "actor.betas": ("[0.9, 0.95]", None), "seed": ("7", 7.0), "name": ("x", None),
        "bound": ("null", None), "fast": ("true", 1.0),
    }  # fmt: skip
    phases = of_run(out, "phases", "one")
    assert [(row["step"], row["phase"], row["count"], row["tokens"]) for row in phases] == [
        (step, "actor_train", 1, 100.0) for step in range(30)
    ]
    assert sum(row["seconds"] for row in phases) == pytest.approx(float(view.span_table().seconds.sum()))
    assert {row["rule"] for row in of_run(out, "findings", "one")} == {
        one.rule for one in (*barograph.doctor(view).findings, *barograph.doctor(view).past)
    }
    assert {row["project"] for row in of_run(out, "values", "three")} == {"a b/c=é"}


def test_a_second_export_reads_only_what_has_changed(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Nothing is written for runs as they were; of one that has grown, the rows that are new."""
    out = tmp_path / "fleet"
    export(runs, out)
    opened: list[str] = []
    refresh = View.refresh
    monkeypatch.setattr(View, "refresh", lambda view: (opened.append(view.id), refresh(view))[1])
    before = states(out)
    export(runs, out)
    assert (opened, states(out)) == ([], before)
    record(runs, "two", range(30, 35))
    capsys.readouterr()
    export(runs, out)
    assert set(opened) == {"two"}
    assert "1 updated, 2 unchanged" in capsys.readouterr().err
    assert parts(out, "two") == ["two-0000.parquet", "two-0001.parquet"]
    added = pa.parquet.ParquetFile(next((out / "values").rglob("two-0001.parquet"))).read()
    assert set(added["step"].to_pylist()) == set(range(30, 35))
    changed = {path.name for path, state in states(out).items() if before.get(path) != state}
    assert changed == {"two-0001.parquet", "runs.parquet", "configs.parquet", "findings.parquet"}
    export(runs, tmp_path / "fresh")
    assert contents(out) == contents(tmp_path / "fresh")


def test_what_an_export_found_out_is_known_to_the_doctor(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """``doctor --fleet`` opens no run after it, also where it groups by a key of the configs."""
    export(runs, tmp_path / "fleet")
    monkeypatch.setattr(View, "__init__", lambda view, folder: pytest.fail(f"{folder} is opened"))
    capsys.readouterr()
    main(["doctor", str(runs), "--fleet", "--by", "actor.lr", "--json"])
    [group] = json.loads(capsys.readouterr().out)["groups"]
    assert (group["value"], group["runs"]) == (1e-6, 3)


def test_the_last_step_of_a_run_that_goes_on_waits(tmp_path: Path):
    """It may still get values; when the run ends it is there, once."""
    out, dir = tmp_path / "fleet", tmp_path / "runs"
    run = record(dir, "live", range(5), finish=False)
    export(dir, out)
    assert max(row["step"] for row in of_run(out, "values", "live")) == 3
    run.log({"late": 1.0}, step=4)
    run.log({"my/own": 5.0}, step=5)
    export(dir, out)
    assert max(row["step"] for row in of_run(out, "values", "live")) == 4
    run.finish()
    export(dir, out)
    assert parts(out, "live") == [f"live-000{number}.parquet" for number in range(3)]
    export(dir, tmp_path / "fresh")
    assert contents(out) == contents(tmp_path / "fresh")


def test_a_newer_attempt_replaces_the_rows_that_it_supersedes(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The files of the run become one, without the steps that were done again."""
    out = tmp_path / "fleet"
    export(runs, out)
    record(runs, "one", range(20, 24))
    capsys.readouterr()
    export(runs, out)
    assert "1 rewritten" in capsys.readouterr().err
    assert parts(out, "one") == ["one-0000.parquet"]
    assert max(row["step"] for row in of_run(out, "values", "one")) == 23
    assert of_run(out, "runs", "one")[0]["attempts"] == 2
    export(runs, tmp_path / "fresh")
    assert contents(out) == contents(tmp_path / "fresh")


def test_files_of_a_run_become_one_when_they_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A run that is exported often does not have a file for each time."""
    monkeypatch.setattr(fleet_export, "MAX_PARTS", 3)
    out, dir = tmp_path / "fleet", tmp_path / "runs"
    counts = []
    for start in range(0, 10, 2):
        record(dir, "one", range(start, start + 2))
        export(dir, out)
        counts.append(len(parts(out, "one")))
    assert counts == [1, 2, 3, 1, 2]
    export(dir, tmp_path / "fresh")
    assert contents(out) == contents(tmp_path / "fresh")


def test_a_run_that_was_deleted_is_marked_and_can_be_taken_out(runs: Path, tmp_path: Path):
    """Its rows stay, with the time in ``removed``, until ``--prune``; if it comes back it is as before."""
    out = tmp_path / "fleet"
    export(runs, out)
    first = contents(out)
    (runs / "p" / "two").rename(tmp_path / "kept")
    export(runs, out)
    assert of_run(out, "runs", "two")[0]["removed"] is not None
    assert of_run(out, "runs", "one")[0]["removed"] is None
    assert rows(out, "values") == first["values"]
    (tmp_path / "kept").rename(runs / "p" / "two")
    export(runs, out)
    assert contents(out) == first
    shutil.rmtree(runs / "p" / "two")
    export(runs, out, "--prune")
    export(runs, tmp_path / "fresh")
    assert contents(out) == contents(tmp_path / "fresh")
    assert not list(out.rglob("run=two"))


def test_a_run_that_was_moved_is_the_same_run(runs: Path, tmp_path: Path):
    """Its rows are not written again, and its path is the new one."""
    out = tmp_path / "fleet"
    export(runs, out)
    before = states(out / "values")
    (runs / "archive").mkdir()
    (runs / "p" / "one").rename(runs / "archive" / "one")
    export(runs, out)
    assert states(out / "values") == before
    [run] = of_run(out, "runs", "one")
    assert (run["path"], run["removed"]) == (str(runs / "archive" / "one"), None)


def test_a_run_with_another_project_leaves_the_old_one(runs: Path, tmp_path: Path):
    """``run.json`` was edited: the run is in one project only."""
    out, file = tmp_path / "fleet", runs / "p" / "one" / "run.json"
    export(runs, out)
    file.write_text(json.dumps({**json.loads(file.read_text()), "project": "q"}))
    export(runs, out)
    export(runs, tmp_path / "fresh")
    assert contents(out) == contents(tmp_path / "fresh")
    assert {row["project"] for row in of_run(out, "values", "one")} == {"q"}


class Killed(BaseException):
    """What stands for SIGKILL: after it nothing is written any more."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function after which the process is as if killed at its n-th change of a file's name."""
    left = [math.inf]
    real = {"replace": os.replace, "unlink": os.unlink}

    def counted(name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if left[0] < 1:
                raise Killed
            left[0] -= 1
            return real[name](*arguments, **options)

        return call

    for name in real:
        monkeypatch.setattr(os, name, counted(name))

    def kill(count: float) -> None:
        left[0] = count

    yield kill
    left[0] = math.inf


def test_whenever_an_export_is_killed_no_row_is_there_twice(tmp_path: Path, kill_at: Any):
    """After a kill at every change of a file the tables can be read, and the next export completes them."""
    start, out, runs = tmp_path / "start", tmp_path / "fleet", tmp_path / "runs"
    for id in ("one", "two", "three"):
        record(runs, id, range(3))
    export(runs, start)
    record(runs, "two", range(3, 4))  # grows
    export(runs, start)
    record(runs, "two", range(2, 5))  # is superseded in part
    record(runs, "one", range(3, 4))  # grows
    record(runs, "four", range(3))  # is new
    shutil.rmtree(runs / "p" / "three")  # is taken out
    export(runs, tmp_path / "fresh", "--prune")
    wanted = contents(tmp_path / "fresh")
    for count in range(100):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(start, out)
        kill_at(count)
        try:
            export(runs, out, "--prune")
            break
        except Killed:
            pass
        finally:
            kill_at(math.inf)
        for table, what in (("values", "name"), ("phases", "phase")):
            columns = read(out, table).select([*KEYS, "role", "rank", "step", what])
            keys = zip(*(column.to_pylist() for column in columns.columns), strict=True)
            assert max(Counter(keys).values()) == 1
        export(runs, out, "--prune")
        assert contents(out) == wanted, count
    assert 10 < count < 99  # changes of files
    assert contents(out) == wanted


def test_files_that_were_deleted_or_changed_are_written_again(runs: Path, tmp_path: Path):
    """Also those of runs that have not changed."""
    out = tmp_path / "fleet"
    export(runs, out)
    wanted = contents(out)
    next((out / "values").rglob("one-0000.parquet")).unlink()
    next((out / "phases").rglob("two-0000.parquet")).write_bytes(b"")
    (out / "configs" / "project=p" / "configs.parquet").unlink()
    export(runs, out)
    assert contents(out) == wanted
    shutil.rmtree(out / ".barograph")
    export(runs, out)
    assert contents(out) == wanted


@pytest.mark.parametrize("partition", ["project", "run"])
def test_files_can_be_partitioned_otherwise(partition: str, runs: Path, tmp_path: Path):
    """The tables are the same: what is not in the path is a column."""
    export(runs, tmp_path / "usual")
    out = tmp_path / "fleet"
    export(runs, out, partition=partition)
    assert contents(out, partition) == contents(tmp_path / "usual")
    record(runs, "two", range(30, 32))
    shutil.rmtree(runs / "p" / "one")
    export(runs, out, "--prune", partition=partition)
    export(runs, tmp_path / "fresh", partition=partition)
    assert contents(out, partition) == contents(tmp_path / "fresh", partition)


def test_only_some_metrics_can_be_exported(runs: Path, tmp_path: Path):
    """With other patterns all runs are exported again."""
    out = tmp_path / "fleet"
    export(runs, out, "--metrics", "critic/*")
    assert {row["name"] for row in read(out, "values").to_pylist()} == {"critic/score/mean"}
    export(runs, out)
    export(runs, tmp_path / "fresh")
    assert contents(out) == contents(tmp_path / "fresh")


def test_logs_of_other_programs_and_empty_runs_are_exported_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A log is a run without a directory of its own; a run in which nothing was logged has a row in ``runs``."""
    dir, out = tmp_path / "runs", tmp_path / "fleet"
    barograph.init(dir=dir, id="empty").finish()
    lines = [json.dumps({"step": step, "reward": step / 30, "kl": 0.1}) for step in range(30)]
    (dir / "logs").mkdir()
    (dir / "logs" / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    os.utime(dir / "logs" / "metrics.jsonl", (1e9, 1e9))  # it is no longer written
    export(dir, out)
    found = {row["path"]: row for row in read(out, "runs").to_pylist()}
    log = found[str(dir / "logs" / "metrics.jsonl")]
    assert len(found) == 2
    assert [row["value"] for row in of_run(out, "values", log["run"]) if row["name"] == "reward"] == [
        step / 30 for step in range(30)
    ]
    monkeypatch.setattr(fleet_export, "open_run", lambda path: pytest.fail(f"{path} is read again"))
    export(dir, out)


def test_tags_of_the_page_count(runs: Path, tmp_path: Path):
    """They replace those of the run, also when there are none; the next export sees the change."""
    out = tmp_path / "fleet"
    export(runs, out)
    for tags in (["mine"], []):
        annotations = Annotations(runs)
        annotations.set("one", {"tags": tags})
        annotations.close()
        export(runs, out)
        assert of_run(out, "runs", "one")[0]["tags"] == tags
    assert of_run(out, "runs", "two")[0]["tags"] == ["a", "b"]


def test_a_run_that_cannot_be_exported_is_named_at_the_end(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The others are exported, and the exit code is 1; its rows of an earlier export stay."""
    out = tmp_path / "fleet"
    export(runs, out)
    shutil.copytree(runs / "p" / "one", runs / "p" / "copy")
    segment = runs / "p" / "two" / "trainer.0.1.0.seg"
    segment.write_bytes(SEGMENT_HEAD.pack(b"BAROGRPH", 9, crc32(b"BAROGRPH" + bytes([9, 0, 0, 0]))))
    record(runs, "new", range(12))
    capsys.readouterr()
    export(runs, out, code=1)
    said = capsys.readouterr().err
    assert f"not exported: {runs / 'p' / 'two'}: " in said
    assert f"not exported: {runs / 'p' / 'copy'}: its project and id are also those of {runs / 'p' / 'one'}" in said
    assert {row["run"] for row in read(out, "runs").to_pylist()} == {"one", "two", "three", "new"}
    assert len(of_run(out, "values", "two")) == len(of_run(out, "values", "one"))


def test_after_ctrl_c_the_next_export_goes_on(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """What was exported is complete and is not read again."""
    opened: list[str] = []
    read_run = opening.open_run

    def interrupted(path: Path) -> View:
        opened.append(path.name)
        if len(opened) == 3:
            raise KeyboardInterrupt
        return read_run(path)

    monkeypatch.setattr(fleet_export, "open_run", interrupted)
    out = tmp_path / "fleet"
    export(runs, out, code=130)
    assert "interrupted: runs: 2 new" in capsys.readouterr().err
    assert len(read(out, "runs")) == 2
    export(runs, out)
    assert len(opened) == 4
    assert len(read(out, "runs")) == 3


def test_the_default_place_is_beside_the_runs(runs: Path, capsys: pytest.CaptureFixture[str]):
    """It is printed."""
    assert main(["export", str(runs), "--to", "parquet", "--partition", "project,run"]) == 0
    assert f"to {runs.parent / 'runs-fleet'}" in capsys.readouterr().err
    assert json.loads((runs.parent / "runs-fleet" / "fleet.json").read_text())["version"] == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("project,seed", "unknown key 'seed': expected project and run, or one of them"),
        ("run,run", "a key is given twice in 'run,run': expected project and run, or one of them"),
        ("", "unknown key ''"),
    ],
)
def test_unknown_keys_are_refused(keys: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The message says which there are."""
    with pytest.raises(SystemExit):
        main(["export", str(tmp_path), "--to", "parquet", "--partition", keys])
    assert said in capsys.readouterr().err


def test_places_that_are_in_use_are_refused(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Nothing is written there."""
    other, file, out = tmp_path / "other", tmp_path / "file", tmp_path / "fleet"
    other.mkdir()
    (other / "mine.txt").write_text("x")
    file.write_text("x")
    export(runs, out)
    head = (out / "fleet.json").read_text()
    lock = take_lock(out / fleet_files.OWN_FOLDER / "lock")
    assert lock is not None
    capsys.readouterr()
    for place, options, said in (
        (other, (), "has other files: give a new or empty directory"),
        (file, (), "is a file: give a directory"),
        (runs / "p" / "out", (), "is in the directory of the runs"),
        (out, (), "another export is writing to"),
        (tmp_path / "new", ("--samples",), "--samples exports those of one run"),
        (tmp_path / "new", ("--to", "csv"), "--partition makes Parquet files; got --to csv"),
    ):
        export(runs, place, *options, code=1)
        assert said in capsys.readouterr().err
    lock.close()
    export(runs, out, partition="project", code=1)
    assert "is partitioned by project,run, not by project" in capsys.readouterr().err
    (out / "fleet.json").write_text(head.replace('"version": 1', '"version": 2'))
    export(runs, out, code=1)
    assert "has version 2 of the tables, and this barograph writes 1" in capsys.readouterr().err
    export(tmp_path / "nowhere", out, code=1)
    assert "is not a directory" in capsys.readouterr().err
    export(other, tmp_path / "new", code=1)
    assert "has no runs and no logs" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    assert main(["export", str(runs), "--to", "csv", "--prune"]) == 1
    assert "give --partition too" in capsys.readouterr().err


def test_the_page_about_fleets_has_the_columns_of_the_tables():
    """docs/fleet.md lists every table with its columns and types, in their order."""
    page = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
    sections = re.findall(r"^### `(\w+)`\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL)
    shown = {table: dict(re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", text, re.MULTILINE)) for table, text in sections}
    words = {"texts": "list of text"}
    wanted = {
        table: {name: words.get(kind, kind) for name, kind in columns.items()} for table, columns in TABLES.items()
    }
    assert {table: list(columns.items()) for table, columns in shown.items()} == {
        table: list(columns.items()) for table, columns in wanted.items()
    }
