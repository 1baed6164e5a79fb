"""The changes that scripts/mutate makes."""

import ast
import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "mutate"


@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The script as a module, for a tree of its own."""
    loader = SourceFileLoader("mutate", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
    monkeypatch.setitem(sys.modules, "mutate", module)
    loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "src/barograph/room").mkdir(parents=True)
    (tmp_path / "tests/room").mkdir(parents=True)
    return module


def mutated(module, text: str) -> list[str]:
    """Return what becomes of a module, for each change."""
    path = Path("src/barograph/room/a.py")
    (module.ROOT / path).write_text(text)
    raw = text.encode()
    return [(raw[: one.start] + one.new + raw[one.stop :]).decode() for one in module.mutants_of(path)]


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("x = a >= b", {"x = (a > b)"}),
        ("x = a == b", {"x = (a != b)"}),
        ("x = a and b", {"x = (a or b)"}),
        ("x = a + b", {"x = (a - b)"}),
        ("x = a / b", {"x = (a * b)"}),
        ("x = not a", {"x = (a)"}),
        ("x = 3", {"x = (4)", "x = (2)", "x = (6)"}),
        ("x = True", {"x = (False)"}),
        ("def f():\n    return g()", {"def f():\n    return (None)"}),
        ("if a:\n    f()", {"if (True):\n    f()", "if (False):\n    f()"}),
        ("é = 'é' + b", {"é = ('é' - b)"}),
    ],
)
def test_a_change_is_small(mutate, text: str, others: set[str]):
    """One operator, number or condition of a module becomes another; the rest stays as it is."""
    assert set(mutated(mutate, text)) == others


@pytest.mark.parametrize(
    "text",
    [
        '"""Return 3 > 2."""',
        "if TYPE_CHECKING:\n    x = 1 + 2",
        "__all__ = ['a'] + ['b']",
        "x: Literal[3]",
        "def f(a: Literal[3]) -> Literal[True]: ...",
        "raise ValueError(1 + 2)",
        "x = f'{1 + 2}'",
        "x = Text('a' + 'b', 'c')",
    ],
)
def test_what_only_people_and_checkers_read_stays(mutate, text: str):
    """Docstrings, annotations, messages and what is not run have no mutants."""
    assert mutated(mutate, text) == []


def test_every_mutant_can_be_compiled(mutate, monkeypatch: pytest.MonkeyPatch):
    """Also where an expression goes over several lines, or a line has Chinese text."""
    monkeypatch.setattr(mutate, "ROOT", SCRIPT.parents[1])
    path = Path("src/barograph/diagnosis/rules/policy.py")
    raw = (mutate.ROOT / path).read_bytes()
    for one in mutate.mutants_of(path)[::7]:
        ast.parse(raw[: one.start] + one.new + raw[one.stop :])


def test_tests_named_after_a_module_come_first_then_those_that_import_it(mutate):
    """Helpers of the tests do not count as a step; a test that imports nothing of it is left out."""
    files = {
        "src/barograph/room/a.py": "",
        "src/barograph/room/b.py": "from barograph.room.a import x",
        "tests/room/helper.py": "from barograph.room import a",
        "tests/room/test_all_of_a.py": "import barograph.room.b",
        "tests/room/test_far.py": "from barograph.room.b import y",
        "tests/room/test_near.py": "import helper",
        "tests/room/test_other.py": "import os",
    }
    for name, text in files.items():
        (mutate.ROOT / name).write_text(text)
    tests = [Path(name) for name in files if "test_" in name]
    found = mutate.nearest(Path("src/barograph/room/a.py"), tests)
    assert [path.stem for path in found] == ["test_all_of_a", "test_near", "test_far"]


def test_it_says_how_it_is_used():
    """With --help."""
    done = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, check=True)
    assert "scripts/mutate [PACKAGE]" in done.stdout
