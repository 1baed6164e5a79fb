"""The documentation is made from the catalogue and is not stale."""

import re
from pathlib import Path

import pytest

from barograph.catalogue.build.reference_pages import FILES, page, write
from barograph.catalogue.registry import REGISTRY

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_is_current(lang: str):
    """The file in docs is the generated one: run ``python -m barograph.catalogue build`` after a change."""
    assert (DOCS / FILES[lang]).read_text(encoding="utf-8") == page(lang)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_metric_and_name_is_on_the_page(lang: str):
    """Each metric has an anchor, and every link has a target."""
    text = page(lang)
    anchors = re.findall(r'<a id="([^"]+)">', text)
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= set(anchors)
    for metric in REGISTRY.metrics():
        assert metric.about.get(lang).split("。")[0] in text or metric.statistic != "mean", metric.id


def test_tables_have_as_many_cells_as_their_heading():
    """A stray bar in a text does not break a table."""
    for lang in ("en", "zh"):
        width = 0
        for line in page(lang).splitlines():
            if not line.startswith("|"):
                width = 0
                continue
            width = width or line.count("|")
            assert line.count("|") == width, line


def test_the_pages_are_written_where_asked(tmp_path: Path):
    """Both languages are written into the folder."""
    assert [path.name for path in write(tmp_path / "docs")] == ["metrics.md", "metrics.zh.md"]
    assert (tmp_path / "docs" / "metrics.md").read_text(encoding="utf-8").startswith("# Metrics")
