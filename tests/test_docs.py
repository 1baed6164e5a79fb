"""Tests that keep the docs true: names of modules, levels, versions, indexes."""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.apps.cli import main
from test_house import HOUSE

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "barograph"
DOCS = ROOT / "docs"
CODE_PAGES = ["docs/architecture.md", "CONTRIBUTING.md"]


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def names_in(page: str) -> list[str]:
    """Return the texts in backticks of a page, without its code blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL))


def exists(name: str) -> bool:
    """Tell whether a dotted name can be imported, or is an attribute of something that can."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            fields = getattr(found, "__annotations__", {})
            if not hasattr(found, part) and part not in fields:
                return False
            found = getattr(found, part, None)
        return True
    return False


@pytest.mark.parametrize("page", CODE_PAGES)
def test_every_module_and_function_that_a_page_names_exists(page: str):
    """`barograph.x.y` can be imported; arguments in parentheses do not matter."""
    named = {name.partition("(")[0] for name in names_in(page) if re.match(r"barograph(\.\w+)+(\(.*\))?$", name)}
    assert sorted(name for name in named if not exists(name)) == []


@pytest.mark.parametrize("page", CODE_PAGES)
def test_every_file_that_a_page_names_exists(page: str):
    """`path.py`, `folder/` and the like are files in the package or in the repository."""
    endings = r"[\w./-]+(\.(py|md|js|css|html|toml|txt|json)|/)$"
    named = {name for name in names_in(page) if re.match(endings, name) and not name.startswith("/")}
    places = (SOURCE, ROOT)
    created = ("run.json", "index/", "relay/", "doctor/findings.json")  # in a run's directory
    missing = [name for name in named if name not in created and not any((place / name).exists() for place in places)]
    assert sorted(missing) == []


def test_the_table_of_rooms_is_the_order_that_is_checked():
    """docs/architecture.md lists the rooms in the order in which they may import each other."""
    rows = re.findall(r"^\| `(\w+)` \|", text_of("docs/architecture.md"), re.MULTILINE)
    assert rows == HOUSE["ROOMS"]


def test_both_indexes_link_to_every_page():
    """The English index lists all English pages; the Chinese one has the translation of a page where there is one."""
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md", "index.zh.md"}
    chinese = {page for page in pages if page.endswith(".zh.md")}
    english = pages - chinese
    wanted = {"index.md": english, "index.zh.md": {_translated(page, chinese) for page in english}}
    for index, expected in wanted.items():
        linked = set(re.findall(r"\]\((\w[\w.-]*\.md)", (DOCS / index).read_text()))
        assert expected - linked == set(), index


def _translated(page: str, chinese: set[str]) -> str:
    translation = page.replace(".md", ".zh.md")
    return translation if translation in chinese else page


def test_the_examples_about_logging_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """docs/logging.md: what its first example records, its second one reads."""
    writing, reading = re.findall(r"```python\n(.*?)```", text_of("docs/logging.md"), re.DOTALL)
    monkeypatch.setenv("BAROGRAPH_DIR", str(tmp_path))
    given = {"cfg": {"seed": 1}, "steps": 3, "lr": 1e-6, "norm": 0.5, "advantages": [0.0, 1.0]}
    names: dict[str, Any] = {
        "barograph": barograph,
        **given,
        **dict.fromkeys(("n_tokens", "n_samples", "n_episodes"), 8),
    }
    exec(writing, names)
    exec(reading.replace("critic/score/mean", "actor/lr"), names)
    assert names["s"].steps.tolist() == [0, 1, 2]
    assert names["view"].histogram_names() == ["advantages"]
    assert names["view"].texts()[0].text == "first epoch"


def test_the_page_about_sick_runs_names_every_one_with_its_fault(capsys: pytest.CaptureFixture[str]):
    """docs/sick-runs.md has the words of ``barograph demo --sick list``."""
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \|", text_of("docs/sick-runs.md"), re.MULTILINE)
    assert main(["demo", "--sick", "list"]) == 0
    listed = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert rows == [(name, fault) for name, fault in listed]


def test_the_changelog_begins_with_the_version_of_the_package():
    """The newest section is this version, with a date, and the sections are in order."""
    versions = re.findall(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", text_of("CHANGELOG.md"), re.MULTILINE)
    numbers = [tuple(map(int, version.split("."))) for version, _ in versions]
    assert versions[0][0] == barograph.__version__
    assert numbers == sorted(numbers, reverse=True)
    assert len(versions) == len(re.findall(r"^## ", text_of("CHANGELOG.md"), re.MULTILINE))


def test_pre_commit_uses_the_versions_of_the_constraints():
    """Lint is the same before a commit and in scripts/check."""
    config = text_of(".pre-commit-config.yaml")
    python = set(re.findall(r"[\w-]+==[\w.]+", config))
    node = dict(re.findall(r'"(@?[\w/-]+)@([\d.]+)"', config))
    assert python
    assert python <= set(text_of("constraints.txt").split())
    assert node
    assert node.items() <= json.loads(text_of("package.json"))["devDependencies"].items()
