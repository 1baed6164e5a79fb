"""The cache of imported logs: what is kept, what is removed, and what is never removed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barograph.apps.cli import main
from barograph.importers import cache
from barograph.importers.cache import cache_dir, cached_imports, clean_cache
from barograph.importers.opening import ImportedView, open_run

DAY = 86_400.0


def write(path: Path, steps: int = 3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"step": step, "loss": step / 2}) + "\n" for step in range(steps)))
    return path


def used(path: Path, days: float) -> None:
    """Pretend that an import was used some days ago."""
    moment = time.time() - days * DAY
    os.utime(path / "used", (moment, moment))


@pytest.fixture(autouse=True)
def _cleans_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "CLEAN_SECONDS", -1.0)


def folders() -> list[str]:
    return sorted(one.path.name.rpartition("-")[0] for one in cached_imports())


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A variable of barograph, else that of the desktop, else the home directory."""
    assert cache_dir() == Path(os.environ["BAROGRAPH_CACHE"])
    monkeypatch.delenv("BAROGRAPH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "barograph"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "barograph"


def test_imports_that_were_not_used_for_long_are_removed(tmp_path: Path):
    """When another log is imported; a use counts, however old the import is."""
    for name in ("old.jsonl", "again.jsonl"):
        open_run(write(tmp_path / name))
    for one in cached_imports():
        used(one.path, 31)
    open_run(tmp_path / "again.jsonl")
    assert folders() == ["again.jsonl", "old.jsonl"]
    open_run(write(tmp_path / "new.jsonl"))
    assert folders() == ["again.jsonl", "new.jsonl"]


def test_beyond_the_limit_the_least_recently_used_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As many as are needed."""
    for days, name in enumerate(("a", "b", "c", "d")):
        open_run(write(tmp_path / f"{name}.jsonl"))
        used(next(one.path for one in cached_imports() if one.path.name.startswith(name)), 10 - days)
    sizes = [one.bytes for one in cached_imports()]
    monkeypatch.setattr(cache, "MAX_BYTES", sum(sizes[2:]))
    assert clean_cache() == 2
    assert folders() == ["c.jsonl", "d.jsonl"]


def test_an_import_in_use_is_never_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By this process or another; when its reader is gone, it is."""
    view = open_run(write(tmp_path / "here.jsonl"))
    there = write(tmp_path / "there.jsonl")
    code = f"import barograph; v = barograph.open({str(there)!r}); print('open', flush=True); input()"
    reader = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "open\n"
    open_run(write(tmp_path / "unused.jsonl"))
    monkeypatch.setattr(cache, "MAX_BYTES", 0)
    clean_cache()
    assert folders() == ["here.jsonl", "there.jsonl"]
    assert view.refresh() is False
    assert view.series("loss").values.tolist() == [0.0, 0.5, 1.0]
    reader.communicate("\n")
    del view
    clean_cache()
    assert folders() == []


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The log is read into a temporary directory."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("BAROGRAPH_CACHE", str(tmp_path / "file" / "cache"))
    view = open_run(write(tmp_path / "a.jsonl"))
    assert isinstance(view, ImportedView)
    assert view.steps == (0, 2)
    assert view.refresh() is False


def test_a_cache_that_is_removed_is_made_again(tmp_path: Path):
    """The log is there: nothing is lost."""
    log = write(tmp_path / "a.jsonl")
    open_run(log)
    for one in cached_imports():
        for file in one.path.iterdir():
            file.unlink()
        one.path.rmdir()
    assert open_run(log).steps == (0, 2)


def test_a_rewritten_import_is_noticed_by_other_readers(tmp_path: Path):
    """Two views of one log, of which one reads it anew."""
    log = write(tmp_path / "a.jsonl", 5)
    one, two = open_run(log), open_run(log)
    log.write_text('{"step": 1, "gain": 7.0}\n')
    assert one.refresh()
    assert two.refresh()
    for view in (one, two):
        assert view.names() == ["gain"]
        assert view.series("gain").values.tolist() == [7.0]


def test_du_tells_the_size_of_the_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Beside that of the runs."""
    open_run(write(tmp_path / "a.jsonl"))
    assert main(["du"]) == 0
    assert f"1 imported log in the cache {cache_dir()}" in capsys.readouterr().out
