"""Marks of restarts, checkpoints and changes of the config on charts in a browser."""

from collections.abc import Iterator

import httpx
import pytest
from browsing import Open, drawn
from serving_runs import serving

import barograph

HEADS = """() => [...document.querySelectorAll('.chart')].map(chart => {
  const { chart: u } = chart.card.plot;
  const heads = [...chart.querySelectorAll('.mark-head')];
  return [chart.dataset.name, heads.map(head => [u.posToVal(parseFloat(head.style.left), 'x'), head.ariaLabel])];
})"""
"""JavaScript: the heads of marks on each chart, as places on its x axis and texts."""


def record(run: barograph.Run, steps: range) -> None:
    for step in steps:
        run.log({"loss": 1.0 + step % 2, "mine/value": float(step)})
        run.commit(step)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Serve a run that saved a checkpoint, changed its config, and was started again."""
    dir = tmp_path_factory.mktemp("moments") / "runs"
    run = barograph.init(id="again", name="again", dir=dir, config={"actor": {"lr": 1e-6}})
    run.update_config({"actor": {"lr": 2e-6}})
    record(run, range(4))
    with run.phase("save_checkpoint"):
        record(run, range(4, 5))
    record(run, range(5, 9))
    run.update_config({"actor": {"lr": 5e-7}})
    record(run, range(9, 20))
    run.finish()
    run = barograph.init(id="again", name="again", dir=dir)
    record(run, range(15, 30))
    run.finish()
    with serving(dir) as client:
        yield client


def test_moments_are_marked_on_charts(pages: httpx.Client, visit: Open):
    """At their steps on every chart, with a tooltip; the config before the first step is no change."""
    page = visit(f"{pages.base_url}/?run=again&tab=charts&filter=^loss|^mine")
    for name in ("loss", "mine/value"):
        drawn(page, name)
        page.wait_for_selector(f".chart[data-name='{name}'] .mark-head")
    expected = {
        4: "checkpoint · step 4", 9: "config changed · step 9 · actor.lr: 2e-06 → 5e-07",
        15: "restart · step 15 · attempt 2",
    }  # fmt: skip
    for name, found in page.evaluate(HEADS):
        assert [text for _, text in found] == list(expected.values()), name
        assert [place for place, _ in found] == pytest.approx(list(expected), abs=0.1), name
    page.hover(".mark-head >> nth=2")
    page.wait_for_selector(".tip >> text=restart · step 15 · attempt 2")


def test_moments_are_marked_where_they_are_in_view(pages: httpx.Client, visit: Open):
    """A zoomed chart has those of its range; the switch of the marks leaves none."""
    page = visit(f"{pages.base_url}/?run=again&tab=charts&filter=^loss&from=7&to=12")
    drawn(page, "loss")
    page.wait_for_selector(".mark-head")
    assert [[text for _, text in found] for _, found in page.evaluate(HEADS)] == [
        ["config changed · step 9 · actor.lr: 2e-06 → 5e-07"]
    ]
    page.click(".bar button[aria-pressed=true]")
    page.wait_for_function("() => !document.querySelector('.mark-head')")
