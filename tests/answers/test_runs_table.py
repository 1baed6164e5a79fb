"""The table of runs at any width."""

import io
import random
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from barograph.answers import records
from barograph.apps.terminal import runs
from barograph.apps.terminal.layout import TextTable, fold
from barograph.apps.terminal.output import make_console
from barograph.apps.terminal.runs import runs_table
from barograph.base.model import RunInfo, Status
from barograph.diagnosis.health import Health
from barograph.journal.read.status import Glance

NAMES = ["short", "运行 名字", "qwen3-8b_grpo/lr.1e-6-seed7-run12", "two words", "[bold]no markup", "é́", "x" * 50]


def glance(name: str, project: str = "lab", status: str = "finished", id: str = "k7m2p9qx") -> Glance:
    info = RunInfo(id, project, name, 1.7e9)
    return Glance(info, Path(), Status(status), 123_456, 1.7e9, 1.7e9 + 1e4, 10**9, 1, 1)  # type: ignore[arg-type]


def drawn(table: TextTable, width: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the lines, and what is coloured."""
    file = io.StringIO()
    make_console(file=file, width=width, force_terminal=True, color_system="standard").print(table)
    coloured = re.findall(r"\x1b\[(3\d)m *(\S[^\x1b]*?) *\x1b", file.getvalue())
    return [re.sub(r"\x1b\[\d*m", "", line).rstrip() for line in file.getvalue().splitlines()], coloured


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 200])
def test_name_and_status_are_there_at_any_width(width: int):
    """No line is wider than the terminal, and every name is there whole, if in several lines."""
    draw = random.Random(width)
    glances = [glance(draw.choice(NAMES), status=draw.choice(list(records.STATUS_SYMBOLS))) for _ in range(40)]
    health = [Health("sick", 7, 1, None)] * 40
    lines, _ = drawn(runs_table(glances, health), width)
    assert max(map(cell_len, lines)) <= width
    begin = lines[0].index("NAME")
    assert all(heading in lines[0] for heading in ("NAME", "STATUS", "HEALTH"))
    assert sum("sick" in line for line in lines) == 40
    names = "".join(re.split(r" {2,}", line[begin:])[0] for line in lines[1:] if line[begin:].strip())
    assert names.replace(" ", "") == "".join(run.info.name for run in glances).replace(" ", "")
    statuses = [line for line in lines[1:] if any(word in line for word in records.STATUS_SYMBOLS)]
    assert [next(word for word in records.STATUS_SYMBOLS if word in line) for line in statuses] == [
        r.status.word for r in glances
    ]


def test_a_narrow_terminal_lacks_columns():
    """Those that a person can do without first; nothing is left out where there is room."""
    table = runs_table([glance("settings-17")], [None])
    assert drawn(table, table.width)[0][0].split() == [name for name in runs.HEADINGS if name != "HEALTH"]
    assert drawn(table, 60)[0][0].split() == ["ID", "NAME", "PROJECT", "STATUS", "STEP"]
    assert drawn(table, 30)[0] == ["NAME         STATUS", "settings-17  ✓ finished"]


def test_a_file_has_the_whole_table(monkeypatch: pytest.MonkeyPatch):
    """A program that reads it has no columns to fit into."""
    monkeypatch.delenv("COLUMNS", raising=False)
    table = runs_table([glance("n" * 150)], [None])
    file = io.StringIO()
    make_console(file_width=table.width, file=file).print(table)
    assert "n" * 150 in file.getvalue()
    assert len(file.getvalue().splitlines()) == 2


def test_status_and_health_are_coloured():
    """And nothing else."""
    table = runs_table(
        [glance("a", status="running"), glance("b", status="killed")], [Health("watch", 7, 1, None), None]
    )
    assert drawn(table, 100)[1] == [("32", "● running"), ("33", "watch"), ("31", "✗ killed")]


def test_long_ids_are_folded():
    """The logs of other programs have ids that are paths."""
    lines = drawn(runs_table([glance("a", id="experiments/grpo-7b/events")], [None]), 200)[0]
    assert [line.split()[0] for line in lines] == ["ID", "experiments/grpo-", "7b/events"]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("critic/advantages_mean", 12, ["critic/", "advantages_", "mean"]),
        ("two words", 5, ["two", "words"]),
        ("positive_sft_loss", 15, ["positive_sft_", "loss"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("运行 名字", 4, ["运行", "名字"]),
        ("", 4, [""]),
    ],
)
def test_names_are_folded_between_words(text: str, width: int, lines: list[str]):
    """A word that is wider than the column is broken all the same."""
    assert fold(text, width) == lines
