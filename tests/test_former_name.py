"""Tests that the project goes by one name, and that hints name something that can be installed."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barograph.base.former_name import FORMER, runs_folder
from barograph.base.installation import install_command

ROOT = Path(__file__).parent.parent
MAY_SAY_IT = ("CHANGELOG.md", "src/barograph/base/former_name.py", "tests/data/", "tests/journal/test_old_runs.py")


def test_nothing_but_the_reader_of_old_runs_knows_the_former_name():
    """Its fixtures and the changelog do too."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    names = [name for name in files if name and not name.startswith(MAY_SAY_IT) and (ROOT / name).is_file()]
    saying = [name for name in names if FORMER.encode() in (name.encode() + (ROOT / name).read_bytes()).lower()]
    assert len(names) > 500
    assert saying == []


def test_a_directory_of_a_former_version_is_used_on(tmp_path: Path):
    """Unless there is one of today."""
    assert runs_folder(tmp_path).name == "barograph-runs"
    (tmp_path / f"{FORMER}-runs").mkdir()
    assert runs_folder(tmp_path).name == f"{FORMER}-runs"
    (tmp_path / "barograph-runs").mkdir()
    assert runs_folder(tmp_path).name == "barograph-runs"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": "file:///CLONE", "dir_info": {"editable": True}}, "pip install 'CLONE[page]'"),
        ({"url": "file:///HERE", "dir_info": {}}, "pip install '.[page]'"),
        ({"url": "file:///gone", "dir_info": {}}, "pip install 'barograph[page]'"),
        (
            {"url": "https://x.org/b.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'barograph[page] @ git+https://x.org/b.git'",
        ),
        (None, "pip install 'barograph[page]'"),
    ],
    ids=["clone", "here", "removed", "repository", "index"],
)
def test_an_extra_is_installed_from_where_the_package_is_from(
    origin: Any, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The package may be on no index, or another version of it."""
    clone = tmp_path / "a clone"
    clone.mkdir()
    monkeypatch.chdir(tmp_path)
    text = json.dumps(origin).replace("/CLONE", str(clone).replace(" ", "%20")).replace("/HERE", str(tmp_path))
    found = SimpleNamespace(read_text=lambda name: text if origin else None)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: found)
    assert install_command("page") == command.replace("CLONE", str(clone))
