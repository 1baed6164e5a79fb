"""Panels of one's own, saved views, copied tables and histograms in a browser."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from browsing import Open, drawn
from serving_runs import copy_run, serving

import barograph

STEPS = 20
PEAK = 7
HIGH = 90.0
PANEL = "document.querySelectorAll('.panel-card')[0]?.card.plot"
LOSS = "document.querySelector('.chart[data-name=loss]')?.card.plot"
AXIS = "{ ys: one.ys, distr: one.chart.scales.y.distr, ticks: one.chart.axes[1]._values }"
COLUMN = f"""x => {{
  const u = {PANEL}.chart;
  const left = Math.round(u.valToPos(x, 'x', true));
  const {{ top, height }} = u.bbox;
  const pixels = u.ctx.getImageData(left, top, 1, height).data;
  const all = Array.from({{ length: height }}, (_, i) => pixels.slice(4 * i, 4 * i + 4));
  const found = all.map(([red, , , alpha], i) => [u.posToVal(top + i, 'y', true), alpha / 255, red]);
  return found.filter(([, alpha, red]) => alpha > 0.1 && red < 130);
}}"""
"""JavaScript: values on the y axis of the first panel where a line or point is drawn at x, with how strongly."""
LABELS = """one => {
  const { width, height } = one;
  const pixels = one.getContext('2d').getImageData(0, 0, width, height).data;
  const isDrawn = (x, y) => pixels[4 * (y * width + x) + 3] > 0;
  const rows = [...Array(height).keys()];
  const columns = [...Array(width).keys()];
  return {
    width,
    left: rows.filter(y => columns.slice(0, 46).some(x => isDrawn(x, y))),
    below: columns.filter(x => rows.slice(-17).some(y => isDrawn(x, y))),
  };
}"""
"""JavaScript: the rows and the columns of a histogram's canvas in which something is drawn beside it and below it."""


def train(dir: Path) -> Path:
    """Record a run with a peak and two histograms."""
    run = barograph.init(id="r0", name="r0", dir=dir)
    for step in range(STEPS):
        loss = HIGH if step == PEAK else 1.0
        run.log({"loss": loss, "critic/score/mean": step / STEPS, "reward/rlhf/mean": step / 40})
        if step % 10 == 0:
            run.log({"actor/advantages": barograph.histogram(np.arange(50.0) - 25)})
        run.commit(step)
    run.finish()
    return Path(run.path)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Serve a run, and a copy of it."""
    dir = tmp_path_factory.mktemp("panels") / "runs"
    copy_run(train(dir), 1, "r1")
    with serving(dir) as client:
        yield client


def new_panel(page: Any, metric: str) -> Any:
    """Open the dialog for a panel of a metric."""
    drawn(page, "loss")
    page.click(".add-panel")
    page.fill(".panel-editor input >> nth=0", metric)
    return page.locator(".panel-editor")


def test_a_panel_has_settings_of_its_own(pages: httpx.Client, visit: Open):
    """Smoothing leaves the raw line behind the smooth one; the scale, the ends of the axis and the size are its own."""
    page = visit(f"{pages.base_url}/?run=r0&tab=charts")
    form = new_panel(page, "loss")
    form.get_by_label("smoothing").fill("0.9")
    form.get_by_label("y from").fill("0.1")
    form.get_by_label("y to").fill("1000")
    form.get_by_label("Scale").select_option("log")
    form.get_by_label("Size").select_option("double width")
    form.get_by_role("button", name="Save").click()
    page.wait_for_function(f"() => {PANEL}?.chart && {PANEL}.lines.length")
    axis, other = (page.evaluate(f"() => {{ const one = {plot}; return {AXIS}; }}") for plot in (PANEL, LOSS))
    assert axis == {"ys": [0.1, 1000], "distr": 3, "ticks": ["0.1", "1", "10", "100", "1000"]}
    assert other["distr"] == 1
    assert HIGH < other["ys"][1] < 2 * HIGH
    found = page.evaluate(COLUMN, PEAK)
    raw = [strength for value, strength, _ in found if value > HIGH / 2]
    smooth = [value for value, strength, _ in found if strength > 0.9]
    assert raw
    assert max(raw) < 0.5
    assert smooth
    expected = 1 + (HIGH - 1) * 0.1 / (1 - 0.9 ** (PEAK + 1))
    assert smooth == pytest.approx([expected] * len(smooth), rel=0.1)
    wide, normal = (page.locator(f".chart{one}").bounding_box() for one in (".panel-card", "[data-name=loss]"))
    assert wide["width"] > 1.9 * normal["width"]


def test_a_metric_against_another_is_chosen_in_the_dialog(pages: httpx.Client, visit: Open):
    """The panel has a point for each step, and nothing between two points."""
    page = visit(f"{pages.base_url}/?run=r0&tab=charts")
    form = new_panel(page, "critic/score/mean")
    form.get_by_label("Drawn").select_option("against another metric, a point per step")
    form.get_by_label("Metric on the x axis").fill("reward/rlhf/mean")
    form.get_by_role("button", name="Save").click()
    page.wait_for_function(f"() => {PANEL}?.chart && {PANEL}.lines.length")
    points = page.evaluate(f"{PANEL}.lines.map(({{ main }}) => [[...main.x], [...main.last]])")
    xs = [step / 40 for step in range(STEPS)]
    assert points == [[xs, [2 * x for x in xs]]]
    for x, column in zip(xs[1:], page.evaluate(f"xs => xs.map({COLUMN})", xs[1:]), strict=True):
        assert [value for value, _, _ in column] == pytest.approx([2 * x] * (len(column) or 1), abs=0.03)
    between = [(x + after) / 2 for x, after in pairwise(xs)]
    assert page.evaluate(f"xs => xs.flatMap({COLUMN})", between) == []
    page.wait_for_selector(".panel-card .sub >> text=x: RLHF reward")


def test_the_link_of_a_saved_view_has_its_panels(pages: httpx.Client, visit: Open):
    """A browser that was never here shows the same ones."""
    page = visit(f"{pages.base_url}/?run=r0&with=r1&tab=charts")
    for metric, title in (("loss", "the <b> loss"), ("critic/score/mean", "")):
        form = new_panel(page, metric)
        form.get_by_role("textbox", name="Title").fill(title)
        form.get_by_label("y to").fill("5")
        form.get_by_role("button", name="Save").click()
        page.wait_for_function("() => !document.querySelector('.panel-editor')")
    page.click(".views")
    page.click(".menu >> text=Save as")
    page.fill("dialog.ask input", "two panels")
    page.keyboard.press("Enter")
    page.wait_for_selector(".views >> text=View: two panels")
    other = visit(page.url)
    other.wait_for_selector(".views >> text=View: two panels")
    panels = "[...document.querySelectorAll('.panel-card')]"
    for shown in (page, other):
        shown.wait_for_function(f"() => {panels}.filter(one => one.card.plot?.lines.length === 2).length === 2")
        assert shown.locator(".panel-card h3").all_text_contents() == ["the <b> loss", "Score: mean"]
        assert shown.evaluate(f"{panels}.map(one => one.card.plot.ys[1])") == [5, 5]
    pages.post("/api/views", json={"name": "two panels", "state": None})


def test_a_chart_is_copied_as_markdown(pages: httpx.Client, visit: Open):
    """A table with a row for each run, its first, last, lowest and highest value, and a link to the chart."""
    page = visit(f"{pages.base_url}/?run=r0&with=r1&tab=charts&filter=^loss")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.wait_for_function(f"() => {LOSS}?.lines.length === 2")
    page.hover(".chart")
    page.click(".chart .tool-save")
    page.click(".menu >> text=Copy as Markdown")
    page.wait_for_selector("text=copied")
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines[0] == "**Training loss**: `loss`"
    assert lines[2:6] == [
        "| run | first | last | lowest | highest |",
        "| --- | --- | --- | --- | --- |",
        "| r0 | 1 | 1 | 1 | 90 |",
        "| r1 | 1 | 1 | 1 | 90 |",
    ]
    assert lines[7].startswith(f"<{pages.base_url}")
    assert "chart=loss" in lines[7]


def middles(places: list[int]) -> list[float]:
    """Return the middles of the labels that cover some places; those of one label are near each other."""
    starts = [place for before, place in pairwise([-99, *places]) if place - before > 6]
    ends = [place for place, after in pairwise([*places, places[-1] + 99]) if after - place > 6] if places else []
    return [(start + end) / 2 for start, end in zip(starts, ends, strict=True)]


def test_histograms_have_axes(pages: httpx.Client, visit: Open):
    """Values at even distances at the left, and below each histogram its step."""
    page = visit(f"{pages.base_url}/?run=r0&tab=charts&filter=advantages")
    page.wait_for_selector(".histogram[aria-label*='step 10']")
    page.wait_for_function(f"() => ({LABELS})(document.querySelector('.histogram')).left.length")
    found = page.locator(".histogram").evaluate(LABELS)
    values = middles(found["left"])
    assert len(values) == 3  # -20, 0 and 20
    assert values[1] - values[0] == pytest.approx(values[2] - values[1], abs=2)
    steps = middles(found["below"])
    assert len(steps) == 2
    assert steps[1] - steps[0] == pytest.approx((found["width"] - 50) / 2, abs=3)
