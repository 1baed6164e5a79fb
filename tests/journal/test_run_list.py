"""The list of a directory's runs: an index spares reading, and changes no answer."""

import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import barograph
from barograph.base.model import Status
from barograph.journal import directory
from barograph.journal.directory import FactsIndex, glances
from barograph.journal.format.folder import PAGE_FOLDER, runs_with_files
from barograph.journal.read import status
from barograph.journal.read.status import Glance

KILLED = """
import os, sys, barograph
run = barograph.init(id="killed", project="p", dir=sys.argv[1])
run.log({"a": 1.0}, step=3)
os._exit(0)
"""


def record(dir: Path, id: str, steps: int = 2, **options: object) -> barograph.Run:
    run = barograph.init(id=id, project="p", dir=dir, **options)  # type: ignore[arg-type]
    for step in range(steps):
        run.log({"a": 1.0}, step=step)
    return run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with finished, crashed, killed and unreadable runs, one of two attempts, and one copy."""
    runs = tmp_path_factory.mktemp("recorded")
    for number in range(4):
        record(runs, f"r{number}", number + 1, tags=["t"] * number, notes="n\n").finish()
    record(runs, "r1", 3).finish()
    record(runs, "wrong").finish(Status("crashed", "OOM 💥"))
    subprocess.run([sys.executable, "-c", KILLED, str(runs)], check=True, timeout=60)
    shutil.copytree(runs / "p" / "r2", runs / "q" / "r2")
    (runs / "p" / "r3" / "run.json").write_text("{")
    (runs / "empty" / "none").mkdir(parents=True)
    (runs / "empty" / "none" / "run.json").write_text("[]")
    return runs


@pytest.fixture
def dir(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the directory."""
    monkeypatch.setattr(directory, "MIN_INDEXED", 1)
    return Path(shutil.copytree(recorded, tmp_path / "many"))


def index_file(dir: Path) -> Path:
    return dir / PAGE_FOLDER / "facts.index"


def answer(dir: Path) -> list[Glance]:
    return list(glances(dir))


def from_the_runs(dir: Path, tmp_path: Path) -> list[Glance]:
    """Return the answer without an index."""
    index_file(dir).unlink(missing_ok=True)
    return answer(dir)


def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the list of runs that are read from now on."""
    seen: list[Path] = []
    monkeypatch.setattr(
        directory, "read_facts", lambda folder, read=status.read_facts: seen.append(folder) or read(folder)
    )
    return seen


def test_an_unchanged_directory_is_listed_without_reading_a_run(dir: Path, monkeypatch: pytest.MonkeyPatch):
    """Of each run only the names, sizes and times of its files are looked at."""
    first = answer(dir)
    assert len(first) == 8
    seen = reads(monkeypatch)
    opened: list[object] = []
    hook = {"on": True}
    sys.addaudithook(lambda event, given: opened.append(given[0]) if hook["on"] and event == "open" else None)
    second = answer(dir)
    hook["on"] = False
    assert second == first
    # A run without a segment has nothing that tells whether it changed.
    assert [folder.name for folder in seen] == ["none"]
    read = {Path(str(path)) for path in opened if str(path).startswith(str(dir))}
    assert read == {index_file(dir), dir / "empty" / "none" / "run.json"}


def test_only_a_run_that_changed_is_read(dir: Path, monkeypatch: pytest.MonkeyPatch):
    """One with new rows, and one that is new."""
    answer(dir)
    record(dir, "r0", 9).finish()
    record(dir, "new").finish()
    seen = reads(monkeypatch)
    found = {run.path.name: run.last_step for run in answer(dir) if run.path.parent.name == "p"}
    assert (found["r0"], found["new"]) == (8, 1)
    assert sorted(folder.name for folder in seen) == ["new", "none", "r0"]


def test_the_last_step_is_found_before_long_samples(tmp_path: Path):
    """Samples behind the last step may be longer than the end of the file that is read first."""
    run = record(tmp_path, "long", 2000)
    noise = random.Random(0)
    for _ in range(8):
        run.sample("p", noise.randbytes(12_000).hex(), step=2000)
    run.finish()
    assert os.path.getsize(run.path / "trainer.0.1.0.seg") > 2 * status.END_BYTES[0]
    assert status.glance(run.path).last_step == 1999


def test_the_status_of_a_running_run_is_that_of_the_moment(dir: Path, monkeypatch: pytest.MonkeyPatch):
    """Its entry has what the status depends on, and the process and the clock are asked each time."""
    run = record(dir, "live")
    answer(dir)
    status = lambda: next(run.status for run in answer(dir) if run.path.name == "live")  # noqa: E731
    assert status().word == "running"
    seen = reads(monkeypatch)
    now = time.time()
    monkeypatch.setattr("barograph.journal.read.status.time.time", lambda: now + 61)
    assert status().word == "stalled"
    monkeypatch.setattr("barograph.journal.read.status.process_start", lambda pid: None)
    assert status().word == "killed"
    assert "live" not in [folder.name for folder in seen]
    monkeypatch.undo()
    run.finish()


def test_the_index_of_another_moment_changes_no_answer(dir: Path, tmp_path: Path):
    """A run that was removed, one that was recorded again, and one that took the place of another."""
    answer(dir)
    kept = index_file(dir).read_bytes()
    shutil.rmtree(dir / "p" / "r0")
    shutil.rmtree(dir / "p" / "r1")
    record(dir, "r1", 2).finish()
    (dir / "p" / "r2").rename(dir / "p" / "r0")
    right = from_the_runs(dir, tmp_path)
    index_file(dir).write_bytes(kept)
    assert answer(dir) == right


def test_the_index_of_another_directory_changes_no_answer(dir: Path, tmp_path: Path):
    """Although runs of the same name are in it."""
    other = tmp_path / "other"
    for number in range(4):
        record(other, f"r{number}", 9 - number).finish(Status("crashed", "other"))
    right = from_the_runs(dir, tmp_path)
    answer(other)
    shutil.copy(index_file(other), index_file(dir))
    assert answer(dir) == right


def test_an_index_with_any_byte_changed_changes_no_answer(dir: Path):
    """Whichever byte, and whatever it becomes."""
    right = answer(dir)
    data = index_file(dir).read_bytes()
    draw = random.Random(18)
    for place in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[place] ^= draw.randrange(1, 256)
        index_file(dir).write_bytes(damaged)
        index = FactsIndex(dir)
        for run in right:
            if run.writers:  # it can be read
                files = runs_with_files(run.path)
                assert index.facts(run.path, next(files)[1]).status == run.status
    index_file(dir).write_bytes(damaged)
    assert answer(dir) == right


@pytest.mark.parametrize("length", [0, 1, 40, 100, 500, 1000])
def test_a_truncated_index_changes_no_answer(dir: Path, length: int):
    """What is left of it is used."""
    right = answer(dir)
    os.truncate(index_file(dir), min(length, index_file(dir).stat().st_size))
    assert answer(dir) == right


def test_the_index_of_another_version_is_not_used(dir: Path, monkeypatch: pytest.MonkeyPatch):
    """Its entries may mean something else; the next reader writes its own."""
    right = answer(dir)
    monkeypatch.setattr(directory, "__version__", "99.0")
    seen = reads(monkeypatch)
    assert answer(dir) == right
    assert len(seen) == len(right)
    assert b"99.0" in index_file(dir).read_bytes()


@pytest.mark.parametrize(
    "wrong",
    [
        7, None, "x", [], {}, [[], [], 1, 1.0, 1, 1], [["a"] * 9, [], 1, 1.0, 1, 1],
        [["a", "b", "c", 1.0, "d", "e", None, [7], None], [], 1, 1.0, 1, 1],
        [["a", "b", "c", 1e300, "d", "e", None, [], None], [], 1, 1.0, 1, 1],
        [["a", "b", "c", 1.0, "d", "e", None, [], None], [["nonsense", ""]], 1, 1.0, 1, 1],
        [["a", "b", "c", 1.0, "d", "e", None, [], None], [[[{"event": 1}], 1.0]], 1, 1.0, 1, 1],
        [["a", "b", "c", 1.0, "d", "e", None, [], None], [[[{"event": "start", "pid": "x"}], 1.0]], 1, 1.0, 1, 1],
        [["a", "b", "c", 1.0, "d", "e", None, [], None], [], "step", 1.0, 1, 1],
        [["a", "b", "c", 1.0, "d", "e", None, [], None], [], 1, float("nan"), 1, 1],
        [["a", "b", "c", 1.0, "d", "e", None, [], None], [], 1, 1.0, 1, "x"],
    ],
)  # fmt: skip
def test_an_entry_that_has_no_facts_is_not_used(dir: Path, wrong: object):
    """Whoever wrote it with a correct checksum."""
    right = answer(dir)
    index = directory.DirectoryIndex(dir, directory.KIND)
    index.save({run: (digest, wrong) for run, (digest, _) in index.load().items()})
    assert answer(dir) == right


@pytest.mark.parametrize("obstacle", ["fifo", "directory", "file in place of .page", "link to nowhere"])
def test_a_place_that_cannot_be_read_or_written_changes_no_answer(dir: Path, tmp_path: Path, obstacle: str):
    """And blocks nobody, and leaves nothing behind."""
    right = from_the_runs(dir, tmp_path)
    file = index_file(dir)
    file.unlink()
    if obstacle == "fifo":
        os.mkfifo(file)
    elif obstacle == "directory":
        file.mkdir()
    elif obstacle == "link to nowhere":
        file.symlink_to(tmp_path / "nowhere" / "x")
    else:
        file.parent.rmdir()
        file.parent.write_text("")
    assert answer(dir) == right
    assert answer(dir) == right
    assert not file.parent.is_dir() or [path.name for path in file.parent.iterdir()] == [file.name]
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_is_not_writable_has_no_index(dir: Path):
    """Its runs are read each time."""
    right = answer(dir)
    shutil.rmtree(dir / PAGE_FOLDER)
    dir.chmod(0o555)
    assert answer(dir) == right
    dir.chmod(0o755)
    assert not (dir / PAGE_FOLDER).exists()


def test_a_few_runs_have_no_index(tmp_path: Path):
    """They are read as quickly, and a directory that was only looked at stays as it is."""
    record(tmp_path / "few", "one").finish()
    assert len(answer(tmp_path / "few")) == 1
    assert not (tmp_path / "few" / PAGE_FOLDER).exists()


def test_two_readers_at_once_leave_a_whole_index(dir: Path):
    """Each puts its own in place; the last one counts."""
    right = answer(dir)
    index_file(dir).unlink()
    code = "import sys; from pathlib import Path; from barograph.journal import directory as r; "
    code += "r.MIN_INDEXED = 1; list(r.glances(Path(sys.argv[1])))"
    readers = [subprocess.Popen([sys.executable, "-c", code, str(dir)]) for _ in range(3)]
    assert [reader.wait(60) for reader in readers] == [0, 0, 0]
    assert len(directory.DirectoryIndex(dir, directory.KIND).load()) == 7
    assert answer(dir) == right


def test_a_rank_of_many_is_kept_only_if_it_decides(tmp_path: Path):
    """Of ranks that have ended alike, one tells the status of all."""
    runs = tmp_path / "ranks"
    for rank in range(6):
        run = barograph.init(id="r", project="p", dir=runs, rank=rank)
        run.log({"a": 1.0}, step=rank)
        run.finish(Status("crashed" if rank == 4 else "finished"))
    facts = status.read_facts(runs / "p" / "r")
    assert len(facts.ends) == 2
    assert facts.writers == 6
    assert facts.status.word == "finished"
    assert replace(facts, ends=facts.ends[1:]).status.word == "crashed"
