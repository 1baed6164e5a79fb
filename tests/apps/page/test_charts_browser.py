"""Charts, Time, events and histograms in a browser: what they say, and that it is true."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from browsing import Open, drawn
from serving_runs import Serve, copy_run, serving

import barograph
from barograph.apps.cli import main

STEPS = 20
PEAK = 7
PLOT = "name => [...document.querySelectorAll('.chart')].find(one => one.dataset.name === name).card.plot"


def train(dir: Path) -> Path:
    """Record a run with nested phases, an evaluation every ten steps, a histogram and a peak."""
    run = barograph.init(id="r00", name="r00", dir=dir, config={"environment": {"name": "lake"}})
    for step in range(STEPS):
        with run.phase("rollout"), run.phase("rollout/wait"):
            pass
        with run.phase("update"):
            run.log({
                "critic/score/mean": step / STEPS, "critic/score/max": 1.0, "critic/score/min": 0.0,
                "reward/rlhf/mean": step / 40, "actor/lr": 1e-6 * (1 - step / STEPS), "actor/pg_clipfrac": 0.01,
                "loss": 9.0 if step == PEAK else 1.0, "a_long_prefix_that_all_names_share/layer_11/weight_norm": 1.0,
            })  # fmt: skip
        if step % 10 == 0:
            with run.phase("eval"):
                pass
            run.log({"actor/advantages": barograph.histogram(np.arange(50.0) - 25)})
        run.commit(step)
    run.finish()
    return Path(run.path)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Serve fourteen runs with the same values; ``r00`` and ``r12`` have numbers of one colour."""
    dir = tmp_path_factory.mktemp("charts") / "runs"
    long = barograph.init(id="long", name="long <run>", dir=dir)
    for step in range(1000):
        long.log({"loss": step % 7}, step=step)
    long.finish()
    first = train(dir)
    for number in range(1, 14):
        copy_run(first, number, f"r{number:02d}")
    with serving(dir) as client:
        client.get("/api/runs")
        yield client


def point_at(page: Any, name: str, step: float) -> None:
    """Move the pointer to a step of a chart."""
    place = page.evaluate(f"([name, x]) => ({PLOT})(name).chart.valToPos(x, 'x')", [name, step])
    page.hover(f'.chart[data-name="{name}"] .u-over', position={"x": place, "y": 30})


def test_the_cursor_shows_the_nearest_step(pages: httpx.Client, visit: Open):
    """On the peak it shows the peak, from either side; beyond the end of a line it shows nothing."""
    page = visit(f"{pages.base_url}/?run=r00&tab=charts&filter=^loss")
    drawn(page, "loss")
    for place in (PEAK, PEAK - 0.3, PEAK + 0.3):
        point_at(page, "loss", place)
        page.wait_for_function(f"() => document.querySelector('.chart .sub').textContent === 'step {PEAK}9'")
    page.goto(f"{pages.base_url}/?run=r00&tab=charts&filter=^loss&from=0&to=60")
    drawn(page, "loss")
    point_at(page, "loss", 50)
    page.wait_for_function("() => /–$/.test(document.querySelector('.chart .sub').textContent)")


def test_a_chart_says_what_it_shows_in_words(pages: httpx.Client, visit: Open):
    """The canvas has a text; a long title keeps its end, and the labels of an axis have one form."""
    page = visit(f"{pages.base_url}/?run=r00&tab=charts&filter=^loss|weight_norm|lr$")
    drawn(page, "loss")
    label = page.get_attribute('.chart[data-name="loss"] canvas', "aria-label")
    assert label == "Training loss: r00: 1 → 1, between 1 and 9"
    tail = page.locator(".chart[data-name$=weight_norm] .cut-tail")
    assert tail.inner_text() == "11/weight_norm"
    title, end = tail.locator("xpath=ancestor::h3").bounding_box(), tail.bounding_box()
    assert end["x"] + end["width"] <= title["x"] + title["width"] + 1
    assert page.locator(".chart[data-name$=weight_norm] .cut-head").evaluate("one => one.scrollWidth > one.clientWidth")
    drawn(page, "actor/lr")
    ticks = page.evaluate(f"name => {{ const u = ({PLOT})(name).chart; return u.axes[1]._values; }}", "actor/lr")
    assert len(set(ticks)) == len(ticks) > 2
    assert all(tick == "0" or tick.endswith("e-6") for tick in ticks)


def test_selected_runs_have_different_colours(pages: httpx.Client, visit: Open):
    """A colour is chosen in the legend, and kept with the run; the line at the pointer is drawn before the others."""
    page = visit(f"{pages.base_url}/?run=r00&with=r12,r03&tab=charts&filter=critic/score")
    drawn(page, "critic/score")
    page.wait_for_function(f"() => ({PLOT})('critic/score').lines.length === 3")
    lines = "() => [...document.querySelectorAll('.legend .swatch i')].map(one => one.style.background)"
    before = page.evaluate(lines)
    assert len(set(before)) == 3
    top = page.evaluate(f"() => {{ const u = ({PLOT})('critic/score').chart; return u.valToPos(0.5, 'y'); }}")
    left = page.evaluate(f"() => {{ const u = ({PLOT})('critic/score').chart; return u.valToPos(10, 'x'); }}")
    page.hover(".chart .u-over", position={"x": left, "y": top})
    page.wait_for_function(f"() => ({PLOT})('critic/score').focused")
    page.click(".legend .swatch >> nth=1")
    assert page.locator(".colours button:disabled").count() == 2
    page.click(".colours button:not([disabled]) >> nth=-1")
    page.wait_for_function(f"() => ({lines})()[1] !== '{before[1]}'")
    kept = {run["key"]: run["colour"] for run in pages.get("/api/runs").json()["runs"]}
    assert kept["r12"] == 11
    page.reload()
    drawn(page, "critic/score")
    assert page.evaluate(lines)[1] not in before
    pages.patch("/api/runs/r12", json={"colour": None})


def test_a_band_that_is_not_drawn_does_not_flatten_the_lines(pages: httpx.Client, visit: Open):
    """One run has its band, and an axis for it; of several only the lines are drawn, and fill the chart."""
    ends = []
    for runs in ("r00", "r00&with=r03"):
        page = visit(f"{pages.base_url}/?run={runs}&tab=charts&filter=critic/score&x=relative")
        drawn(page, "critic/score")
        page.wait_for_function(f"count => ({PLOT})('critic/score').lines.length === count", arg=len(ends) + 1)
        ends.append(page.evaluate(f"() => ({PLOT})('critic/score').ys[1]"))
    assert ends[0] > 1 > ends[1] > (STEPS - 1) / STEPS


def test_the_axis_of_a_run_that_takes_milliseconds_has_several_labels(pages: httpx.Client, visit: Open):
    """Wherever the axis begins, and none of them twice."""
    page = visit(f"{pages.base_url}/?run=r00&tab=charts&filter=critic/score&x=relative")
    drawn(page, "critic/score")
    shown = f"""(xs) => {{
        const plot = ({PLOT})('critic/score');
        plot.xs = xs;
        plot.chart.setScale('x', {{ min: xs[0], max: xs[1] }});
        return new Promise((done) => requestAnimationFrame(() => done(plot.chart.axes[0]._values.filter(Boolean))));
    }}"""
    for ends in ((0.0091, 0.0109), (0, 0.0019), (0.0101, 0.0109), (0.5, 7.0)):
        labels = page.evaluate(shown, ends)
        assert len(labels) > 1, ends
        assert len(labels) == len({*labels}), labels


def test_the_filter_finds_ids_and_titles_in_both_languages(pages: httpx.Client, visit: Open):
    """It says what is wrong with a regular expression, and then searches the text; it filters histograms too."""
    page = visit(f"{pages.base_url}/?run=r00&tab=charts&filter=policy/clip_fraction")
    drawn(page, "actor/pg_clipfrac")
    field = page.locator(".bar input[type=search]")
    for text in ("裁剪比例", "clip fraction"):
        field.fill("nothing")
        page.wait_for_function("() => !document.querySelector('.chart')")
        field.fill(text)
        page.wait_for_function("() => document.querySelectorAll('.chart').length === 1")
    field.fill("score(")
    page.wait_for_selector(".filter-problem >> text=unterminated group")
    assert page.locator(".chart").count() == 0
    field.fill("advantages")
    page.wait_for_selector(".histogram")
    assert page.locator(".filter-problem").count() == 0
    page.wait_for_function("() => document.querySelector('.histogram').getAttribute('aria-label').includes('step 10')")
    assert re.search(r"step 10 · 50 values · −25 – 24", page.inner_text(".histogram-caption"))
    page.locator("[data-section=histograms] .section-fold").click()
    page.locator(".section-fold", has_text="Histograms (1)").wait_for()
    assert page.locator(".histogram").count() == 0
    assert "closed=histograms" in page.url
    page.locator(".families a", has_text="Histograms").click()
    page.wait_for_selector(".histogram")
    field.fill("^loss")
    page.wait_for_function("() => !document.querySelector('.histogram')")


def test_an_unknown_run_is_said(pages: httpx.Client, visit: Open):
    """The newest one is shown instead, until another is chosen; on a phone the strip shows the current tab."""
    page = visit(f"{pages.base_url}/?run=nosuch&tab=names", 390, 844)
    page.wait_for_selector(".notice >> text=no run “nosuch”")
    assert page.inner_text(".run-heading") == "r13"
    strip, tab = (page.locator(one).bounding_box() for one in (".tabs", ".tabs [aria-current]"))
    assert tab["x"] + tab["width"] <= strip["x"] + strip["width"] + 1
    page.keyboard.press("j")
    page.wait_for_function("() => !document.querySelector('.notice')")
    beside = visit(f"{pages.base_url}/?run=r00&with=r01,nosuch&tab=names")
    beside.wait_for_selector(".notice >> text=Not in this directory: nosuch.")
    page.set_viewport_size({"width": 1024, "height": 700})
    page.keyboard.press("2")
    page.wait_for_selector(".tabs [aria-current] >> text=Charts")
    assert page.evaluate("document.querySelector('.tabs').scrollLeft") == 0


def test_time_shows_the_chosen_step(pages: httpx.Client, visit: Open):
    """Its bar is marked, its seconds are in the picture and in the table, and nested phases have a shade."""
    page = visit(f"{pages.base_url}/?run=r00&tab=time&step=10")
    page.wait_for_selector(".gantt")
    page.wait_for_function("() => document.querySelector('.stack-caption')?.textContent.startsWith('step 10: ')")
    heads = page.locator(".view.time th").all_inner_texts()
    assert heads[:5] == ["phase", "step 10", "mean per step", "share of step", "mean per call"]
    rows = {row[0]: row for row in (one.split("\t") for one in page.locator("tbody tr").all_inner_texts())}
    timeline = pages.get("/api/runs/r00/timeline", params={"step": 10}).json()
    labels = page.locator(".gantt .seconds").all_text_contents()
    assert len(labels) == sum(len(group["rows"]) for group in timeline["groups"]) == 4
    assert rows["eval"][1] in labels
    fills = page.evaluate("[...document.querySelectorAll('.gantt rect:not(.row)')].map(one => one.style.fill)")
    assert len(set(fills)) == 4
    assert "color-mix" in fills[1]
    page.goto(f"{pages.base_url}/?run=r00&tab=time&step=11")
    page.wait_for_function("() => document.querySelector('.stack-caption')?.textContent.startsWith('step 11: ')")
    rows = {row[0]: row for row in (one.split("\t") for one in page.locator("tbody tr").all_inner_texts())}
    assert rows["eval"][1] == "–"
    page.hover(".gantt g >> nth=0")
    page.wait_for_selector(".tip >> text=rollout")


def taken(page: Any, label: str, folder: Path) -> Path:
    """Choose a line of the first chart's menu, and return the downloaded file."""
    page.hover(".chart >> nth=0")
    page.click(".chart .tool-save >> nth=0")
    with page.expect_download() as waiting:
        page.click(f".menu >> text={label}")
    waiting.value.save_as(folder / waiting.value.suggested_filename)
    return folder / waiting.value.suggested_filename


def test_a_chart_is_taken_along(pages: httpx.Client, visit: Open, tmp_path: Path):
    """As PNG of twice its size and as SVG with title, axis, unit and runs; its CSV has every point, not buckets."""
    page = visit(f"{pages.base_url}/?run=long&with=r00&tab=charts&filter=^loss&theme=dark")
    assert len(drawn(page, "loss")["x"]) < 1000
    page.wait_for_function(f"() => ({PLOT})('loss').lines.length === 2")
    png = taken(page, "PNG", tmp_path).read_bytes()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") == 1520
    picture = taken(page, "SVG picture", tmp_path).read_text()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    assert texts[0] == "Training loss"
    assert {"step", "long &lt;run>  5", "r00  1", "0", "2"} <= set(texts)
    assert picture.count("<path") > 3
    paper = taken(page, "SVG for a paper", tmp_path).read_text()
    assert 'width="85mm"' in paper
    assert "#fff" in paper
    assert page.get_attribute("html", "data-theme") == "dark"
    lines = taken(page, "CSV", tmp_path).read_text().splitlines()
    assert lines[:3] == ["run,name,step,value", "long <run>,loss,0,0", "long <run>,loss,1,1"]
    assert len(lines) == 1 + 1000 + STEPS


def test_an_enlarged_chart_is_in_the_address(pages: httpx.Client, visit: Open):
    """With the names of its runs; Back closes it, and so do Escape and its button."""
    page = visit(f"{pages.base_url}/?run=r00&with=r01&tab=charts&filter=^loss")
    drawn(page, "loss")
    page.hover(".chart")
    page.click(".chart .tool-grow")
    page.wait_for_selector("[role=dialog] > .large-chart")
    assert "chart=loss" in page.url
    page.wait_for_function("() => /r00 +1.*r01 +1/.test(document.querySelector('.large-chart .sub').textContent)")
    page.click(".large-chart .tool-save")
    with page.expect_download() as waiting:
        page.click(".menu >> text=SVG picture")
    assert waiting.value.suggested_filename == "loss.svg"
    page.go_back()
    page.wait_for_function("() => !document.querySelector('.large-chart')")
    assert page.locator(".chart").count() == 1
    page.go_forward()
    page.wait_for_selector(".large-chart")
    page.reload()
    page.wait_for_selector(".large-chart canvas")
    page.click(".large-chart .tool-shrink")
    page.wait_for_function("() => !document.querySelector('.large-chart')")
    assert "chart=" not in page.url


def test_a_panel_of_several_metrics(pages: httpx.Client, visit: Open):
    """It is made in a dialog with ends of its y axis, and is in the address; Back removes it."""
    page = visit(f"{pages.base_url}/?run=r00&with=r01&tab=charts")
    drawn(page, "loss")
    page.click(".add-panel")
    for metric in ("loss", "actor/lr"):
        page.fill(".panel-editor input >> nth=0", metric)
    assert page.locator(".panel-editor .chip").count() == 2
    page.get_by_role("textbox", name="Title").fill("both <b>")
    assert not page.get_by_label("Metric on the x axis").is_visible()
    page.get_by_label("y to").fill("5")
    page.get_by_label("Size").select_option("full")
    page.click(".panel-editor .primary")
    plot = "document.querySelector('.panel-card')?.card.plot"
    page.wait_for_function(f"() => {plot}?.lines.length === 4")
    assert page.evaluate(f"{plot}.lines.map(line => line.label)") == [
        "r00 · Training loss", "r01 · Training loss", "r00 · Policy learning rate", "r01 · Policy learning rate",
    ]  # fmt: skip
    assert page.evaluate(f"{plot}.lines.map(line => line.dash)") == [0, 0, 1, 1]
    assert page.evaluate(f"{plot}.ys[1]") == 5
    assert page.inner_text(".panel-card h3") == "both <b>"
    page.reload()
    page.wait_for_function(f"() => {plot}?.lines.length === 4")
    page.go_back()
    page.wait_for_function("() => !document.querySelector('.panel-card')")


def test_a_metric_against_another(pages: httpx.Client, visit: Open):
    """A point for each step at the values of both, or one for each run."""
    panels = [
        {"metrics": ["critic/score"], "kind": kind, "against": "reward/rlhf/mean", "log": False}
        for kind in ("steps", "runs")
    ]
    page = visit("about:blank")
    page.goto(f"{pages.base_url}/?run=r00&with=r01&tab=charts&panels={quote(json.dumps(panels))}")
    plot = "document.querySelectorAll('.panel-card')[{}]?.card.plot"
    page.wait_for_function(f"() => {plot.format(0)}?.lines.length === 2")
    points = page.evaluate(f"{plot.format(0)}.lines.map(line => [[...line.main.x], [...line.main.last]])")
    assert points[0] == [[step / 40 for step in range(STEPS)], [step / STEPS for step in range(STEPS)]]
    page.wait_for_function(f"() => {plot.format(1)}?.lines.length === 2")
    last = page.evaluate(f"{plot.format(1)}.lines.map(line => [...line.main.x, ...line.main.last])")
    assert last == [[(STEPS - 1) / 40, (STEPS - 1) / STEPS]] * 2


def test_a_view_is_saved_with_a_name(pages: httpx.Client, visit: Open):
    """Closed sections and hidden flat charts are part of it; another run is shown with the same view by its link."""
    page = visit(f"{pages.base_url}/?run=r00&tab=charts")
    drawn(page, "loss")
    before = page.locator(".chart").count()
    page.click(".flat-switch")
    page.wait_for_selector("text=flat ones hidden")
    assert page.locator(".chart[data-name='actor/pg_clipfrac']").count() == 0
    page.click("[data-section=reward] .section-fold")
    page.wait_for_selector("[data-section=reward] .section-fold[aria-expanded=false]")
    assert page.locator("[data-section=reward] .chart").count() == 0
    page.click(".views")
    page.click(".menu >> text=Save as")
    page.fill("dialog.ask input", "no reward")
    page.keyboard.press("Enter")
    page.wait_for_selector(".views >> text=View: no reward")
    page.goto(f"{pages.base_url}/?run=r03&tab=charts&smooth=0.5")
    drawn(page, "loss")
    assert page.locator(".chart").count() == before
    page.click(".views")
    page.click(".menu >> text=no reward")
    page.wait_for_selector("[data-section=reward] .section-fold[aria-expanded=false]")
    assert "run=r03" in page.url
    assert "smooth" not in page.url
    page.go_back()
    page.wait_for_selector("[data-section=reward] .section-fold[aria-expanded=true]")
    page.go_forward()
    page.click(".views")
    page.click(".menu >> text=Remove “no reward”")
    page.wait_for_selector(".views >> text=Saved views")
    assert pages.get("/api/views").json() == {"views": []}


def test_the_mean_per_step_is_the_same_in_time_and_compare(pages: httpx.Client):
    """A phase of every tenth step takes a tenth of its mean per call."""
    time = pages.get("/api/runs/r00/phases").json()
    evaluation = next(one for one in time["summaries"] if one["name"] == "eval")
    compared = pages.get("/api/compare", params={"run": ["r00", "r01"]}).json()["phases"]
    assert evaluation["per_step"] == next(one["seconds"][0] for one in compared if one["name"] == "eval")
    assert evaluation["per_step"] == pytest.approx(evaluation["mean"] * evaluation["count"] / STEPS)
    inner = next(one for one in time["summaries"] if one["name"] == "rollout/wait")
    assert inner["per_step"] == pytest.approx(inner["mean"])


def test_one_title_means_one_metric_in_the_overview(pages: httpx.Client):
    """The score and the reward that training maximises are not both called Reward."""
    found = pages.get("/api/runs/r00/overview").json()
    titles: dict[str, set[str]] = {}
    for one in [*found["crucial"], *found["vital"]]:
        titles.setdefault(one["title"]["en"], set()).add(one["metric"])
    assert {title: metrics for title, metrics in titles.items() if len(metrics) > 1} == {}
    assert "RLHF reward" in titles
    assert "Reward" not in titles


def test_words_of_events_are_not_broken(pages: httpx.Client, visit: Open):
    """Time and event are on one line each."""
    page = visit(f"{pages.base_url}/?run=r00&tab=config")
    cells = page.locator(".events td:nth-child(-n+2)")
    cells.first.wait_for()
    heights = cells.evaluate_all(
        "all => all.map(one => { const range = document.createRange(); range.selectNodeContents(one);"
        "return range.getBoundingClientRect().height; })"
    )
    assert max(heights) < 22


def test_a_slow_answer_is_shown_as_loading(pages: httpx.Client, visit: Open):
    """Until it arrives."""
    page = visit("about:blank")
    held: list[Any] = []
    page.route("**/names", lambda route: held.append(route))
    page.goto(f"{pages.base_url}/?run=r00&tab=charts")
    while not held:
        page.wait_for_timeout(50)
    page.wait_for_selector(".loading >> text=Loading")
    held[0].continue_()
    drawn(page, "loss")
    page.wait_for_function("() => document.querySelector('.loading').textContent === ''")


def test_compare_finds_ids_and_titles_in_both_languages(pages: httpx.Client, visit: Open):
    """As the filter of Charts does."""
    for text in ("policy/clip_fraction", "裁剪比例", "actor/pg_clipfrac"):
        page = visit(f"{pages.base_url}/?run=r00&with=r01&tab=compare&lang=en&filter={text}")
        page.wait_for_selector(".compare .chart")
        assert page.locator(".compare .chart").count() == 1, text


def test_an_evaluation_is_shown_with_its_own_step(serve: Serve, visit: Open):
    """Between two evaluations it is the nearest one whose values are shown; the picture has a title in words."""
    run = barograph.init(id="evaluated", project="p")
    for step in (0, 10, 20):
        run.log({"loss": 1.0}, step=step)
        evaluation = run.evaluation("gsm8k", step=step, repeats=2)
        for number in range(2):
            evaluation.add(task="a", run=number, metrics={"accuracy": step / 20})
        evaluation.close()
    run.finish()
    page = visit(f"{serve().base_url}/?run=evaluated&tab=evaluation&lang=en")
    page.wait_for_selector(".mid-plot .u-over")
    assert page.get_attribute(".mid-plot canvas", "aria-label").startswith("gsm8k · accuracy: mean@2")
    box = page.locator(".mid-plot .u-over").first.bounding_box()
    for step, shown in ((8, "step 10"), (14, "step 10"), (16, "step 20")):
        page.mouse.move(box["x"] + box["width"] * step / 20, box["y"] + 20)
        page.wait_for_function(f"() => document.querySelector('.legend').textContent.startsWith('{shown}')")


def test_code_that_is_under_way_is_shown_as_loading(pages: httpx.Client, visit: Open):
    """The module of a view, and the page's own."""
    page = visit("about:blank")
    held: list[Any] = []
    page.route("**/bundle/*.js", lambda route: held.append(route))
    page.goto(f"{pages.base_url}/?run=r00&tab=time", wait_until="commit")
    page.locator(".starting").wait_for()
    while not any(route.request.url.endswith("bundle/time.js") for route in held):
        for route in held:
            route.continue_()
        held.clear()
        page.wait_for_timeout(50)
    page.wait_for_selector(".loading >> text=Loading")
    for route in held:
        route.continue_()
    page.unroute("**/bundle/*.js")
    page.wait_for_selector(".gantt")
    page.wait_for_function("() => document.querySelector('.loading').textContent === ''")
    assert page.locator(".starting").count() == 0


def test_a_report_offers_no_step_that_it_lacks(
    pages: httpx.Client, visit: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """It has one step of the timeline, and says so."""
    path = pages.get("/api/runs/r00/details").json()["path"]
    file = tmp_path / "run.html"
    assert main(["report", path, "-o", str(file)]) == 0
    page = visit(f"{file.as_uri()}#tab=time&step=12")
    page.wait_for_selector("text=Timeline of step 19")
    page.wait_for_selector("text=A report has this step only.")
    assert page.locator("input[type=number]").count() == 0
