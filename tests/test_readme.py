"""The README's commands and examples work."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall((ROOT / page).read_text()) if kind == language]


def shell(command: str, folder: Path, code: int = 0) -> str:
    """Run a line of the README with this barograph first on the path."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    environment.pop("BAROGRAPH_DIR", None)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def _commands(first: str) -> str:
    """Return the block of commands that begins with ``first``."""
    (found,) = [block for block in blocks("README.md", "sh") if block.startswith(first)]
    return found


def test_a_newcomer_installs_runs_and_looks_before_the_tour():
    """The README is short, and begins with installing, an example and the commands that show it."""
    text = (ROOT / "README.md").read_text()
    places = [
        text.index(part) for part in ("pip install", "barograph.init", "barograph show", "barograph up", "## Tour")
    ]
    assert places == sorted(places)
    assert all(len((ROOT / page).read_text().splitlines()) < 150 for page in ("README.md", "README.zh.md"))


def test_the_scripts_of_the_readme_can_be_run():
    """The demo and the tests make an environment of their own."""
    for first in ("scripts/demo", "scripts/test"):
        assert os.access(ROOT / _commands(first).split()[0], os.X_OK)


def test_the_readmes_example_and_commands_work(tmp_path: Path):
    """The example records a run, and every command shows it."""
    example, reading, *_ = blocks("README.md", "python")
    (tmp_path / "example.py").write_text(example)
    output = shell(f"{sys.executable} example.py", tmp_path)
    id = re.search(r"barograph show (\w+)", output)[1]  # type: ignore[index]
    commands = [line.partition("#")[0].strip() for line in _commands("barograph ls").splitlines()]
    listed, shown = (shell(command, tmp_path) for command in commands[:2])
    judged = shell(commands[2], tmp_path, code=2)  # it cannot tell: the example logs little
    tailed, exported = (shell(command, tmp_path) for command in commands[3:5])
    assert id in listed
    assert all(word in shown for word in ("finished", "critic", "score/mean", "actor.lr", "0 – 199"))
    assert "cannot tell" in judged
    assert "step 199 · first" in tailed
    assert exported == "wrote 200 rows of 9 metrics to first.csv\n"
    (tmp_path / "reading.py").write_text(f"import barograph\n{reading}\nprint(len(s.values), len(df))")
    assert shell(f"{sys.executable} reading.py", tmp_path) == "200 200\n"


def test_the_readmes_rollout_example_works(tmp_path: Path):
    """Rollouts and evaluation are recorded."""
    (lines,) = [block for block in blocks("README.md", "python") if "run.rollouts" in block]
    begin = "import barograph\nrun, step = barograph.init(), 0\n"
    end = "\nprint(*barograph.open(run.path).names('*/accuracy/*'))"
    (tmp_path / "rollouts.py").write_text(begin + lines + end)
    output = shell(f"{sys.executable} rollouts.py", tmp_path)
    for name in ("rollout/accuracy/mean", "eval/gsm8k/accuracy/mean@4", "best@4"):
        assert name in output, output


def test_the_other_examples_run(tmp_path: Path):
    """The torch example learns its task and records it."""
    output = shell(f"{sys.executable} {ROOT / 'examples' / 'torch_loop.py'}", tmp_path)
    assert float(re.search(r"score (\d\.\d+)", output)[1]) > 0.9  # type: ignore[index]


def test_both_languages_show_the_same_code():
    """The Chinese README has the same code, and the example is the file in examples/."""
    assert blocks("README.md", "python")[0] == blocks("README.zh.md", "python")[0]
    ours, theirs = (
        [re.sub(r" *#.*", "", code) for language in ("sh", "python") for code in blocks(page, language)]
        for page in ("README.md", "README.zh.md")
    )
    assert ours == theirs
    shown = (ROOT / "examples" / "first_run.py").read_text().split("\n\n", 1)[1]
    assert shown == blocks("README.md", "python")[0]


def test_every_relative_link_of_the_documentation_exists():
    """In README, docs and other Markdown files."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
