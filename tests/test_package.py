"""The files that users install: the wheel and the source distribution."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import barograph

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "barograph"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str], str]:
    """Build both; return the names in the wheel, those in the source distribution, and the wheel's metadata."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    version = barograph.__version__
    with zipfile.ZipFile(folder / f"barograph-{version}-py3-none-any.whl") as wheel:
        metadata = wheel.read(f"barograph-{version}.dist-info/METADATA").decode()
        names = set(wheel.namelist())
    with tarfile.open(folder / f"barograph-{version}.tar.gz") as source:
        sources = {name.partition("/")[2] for name in source.getnames()}
    return names, sources, metadata


def test_the_wheel_has_every_file_of_the_package(built: tuple[set[str], set[str], str]):
    """Modules, the page's files and the type marker are installed."""
    expected = {
        f"barograph/{path.relative_to(SOURCE)}"
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert expected - built[0] == set()
    assert {"barograph/py.typed", "barograph/apps/page/web/index.html"} <= built[0]


def test_the_wheel_has_the_licences(built: tuple[set[str], set[str], str]):
    """Ours, and that of every vendored library, as files and in the metadata."""
    names, _, metadata = built
    vendored = [path.name for path in SOURCE.rglob("vendor/*.LICENSE.txt")]
    assert vendored
    for name in ("LICENSE", *vendored):
        assert any(".dist-info/licenses/" in file and file.endswith(name) for file in names)
        assert any(line.startswith("License-File: ") and line.endswith(name) for line in metadata.splitlines())


def test_the_source_distribution_has_what_its_scripts_need(built: tuple[set[str], set[str], str]):
    """A distribution can run the tests, the docs and the demo without the repository."""
    expected = {"pyproject.toml", "constraints.txt", "mkdocs.yml", "package.json", "scripts/test", "SECURITY.md"}
    assert expected <= built[1]
