"""The tables of last values in ``barograph show``."""

import io

import pytest
from rich.cells import cell_len

import barograph
from barograph.answers.explanation import unit_of
from barograph.apps.terminal.output import make_console
from barograph.apps.terminal.show import values_table
from barograph.catalogue.names import recognise
from barograph.importers.summary import run_names
from barograph.journal.view import View

NAMES = ("loss", "系列 名字", "[bold]no markup", "positive_sft_loss_of_the_first_update", "a\tb")


@pytest.fixture
def view() -> View:
    run = barograph.init(id="family")
    for step in range(30):
        run.log({f"some/{name}": place * 1e5 - step / 7 for place, name in enumerate(NAMES)}, step=step)
    run.log({"some/odd": float("nan")}, step=12_345)
    run.log({"actor/kl_loss": 0.5, "time/step_total": 3.0, "actor/lr": 1e-6}, step=29)
    run.finish()
    return barograph.open("family")


def drawn(view: View, family: str, width: int) -> list[str]:
    """Return the lines of the table of a family."""
    file = io.StringIO()
    table = values_table(view, family, view.names(f"{family}/*"), run_names(view))
    make_console(file=file, width=width).print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_wide_table_has_all_columns(view: View):
    """Numbers to the right, names as they are, a cross for NaN."""
    lines = drawn(view, "some", 200)
    assert lines[0].split() == ["METRIC", "LAST", "MIN", "MAX", "STEP"]
    assert len(lines) == len(NAMES) + 2
    assert any(line.startswith("  [bold]no markup  ") for line in lines)
    assert any("×" in line and line.endswith("12,345") for line in lines)
    assert len({cell_len(line) for line in lines}) == 1


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_table_breaks_no_word(view: View, width: int):
    """Names are folded between their words, and numbers are never cut."""
    lines = drawn(view, "some", width)
    assert max(map(cell_len, lines)) <= width
    words = {word for name in NAMES for word in name.replace("\t", " ").replace("_", "_ ").split()}
    assert words <= {word for line in lines for word in line.replace("_", "_ ").split()}
    assert all("…" not in line for line in lines)


def test_values_have_units(view: View):
    """Those of the catalogue, where the name is known and logged in them."""
    assert "0.5  nats/token" in drawn(view, "actor", 120)[1]
    assert "3  s" in drawn(view, "time", 120)[1]


@pytest.mark.parametrize(
    ("name", "source", "unit"),
    [
        ("actor/ppo_kl", "verl", "nats/token"),
        ("actor/lr", "roll", ""),
        ("time/step_total", "roll", "s"),
        ("response_length/mean", "verl", "tokens"),
    ],
)
def test_units_of_names(name: str, source: str, unit: str):
    """A plain number has none."""
    assert unit_of(recognise(name, source).matches[0]) == unit


def test_an_unknown_name_has_no_unit():
    """It is not guessed."""
    assert unit_of(None) == ""
