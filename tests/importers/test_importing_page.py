"""The page about importing names every format and what it cannot carry."""

from pathlib import Path

import pytest

from barograph.importers.cache import MAX_AGE_SECONDS, MAX_BYTES
from barograph.importers.formats import FORMATS, format_of

PAGE = Path(__file__).parents[2] / "docs" / "importing.md"


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_row(name: str):
    """Under the title that commands print."""
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    [row] = [row for row in rows if row[0] == f"| {format_of(name).title}"]
    assert all(cell.strip(" |") for cell in row)


def test_the_page_has_the_limits_of_the_cache():
    """As they are in the code."""
    text = " ".join(PAGE.read_text().split())
    assert f"not used for {MAX_AGE_SECONDS / 86_400:.0f} days" in text
    assert f"beyond {MAX_BYTES >> 30} GiB" in text
