"""The doctor on the page in a real browser: the Findings view, marks on charts, and verdicts in the list."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browsing import CURVE, Open, drawn
from serving_runs import Serve
from sick_runs import ONSET, log_step, record

import barograph
from barograph.apps.cli import main

GRADIENT = "actor/grad_norm"
OVER, NOW = "Answers are cut off · since step 0 · over", f"NaN or infinity · since step {ONSET}"
HEADS = "() => [...document.querySelectorAll('.chart .mark-head')].map(one => one.getAttribute('aria-label'))"


def requests_of(page: Any) -> list[str]:
    """Return the list of the paths that a page asks for from now on."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    return asked


def test_the_findings_view_shows_each_finding_with_its_evidence(serve: Serve, visit: Open):
    """Severity, steps, sentence, advice and charts; past ones, what is fine and what was not judged are folded."""
    record("sick")
    page = visit(f"{serve().base_url}/?run=sick&tab=findings")
    curve = drawn(page, GRADIENT)
    assert sum(curve["nonfinite"]) == 20
    text = page.inner_text(".finding.card")
    assert all(part in text for part in ("NaN or infinity", "critical", f"since step {ONSET}", GRADIENT, "checkpoint"))
    assert page.inner_text(".banner h1") == "Something is wrong"
    past = page.locator(".past details.finding")
    assert past.count() == 1
    assert "steps 0 to 23" in past.inner_text()
    assert page.locator(".chart canvas").count() == 1  # charts in folded findings are not drawn
    past.locator("summary").click()
    assert drawn(page, "tokens/response_truncated")["last"][0] == 0.98
    folded = page.locator("details.checked")
    assert [one.split(" (")[0] for one in folded.locator("summary").all_inner_texts()] == [
        "Checked and fine", "Could not be judged",
    ]  # fmt: skip
    folded.nth(1).locator("summary").click()
    reasons = folded.nth(1).locator(".absent .quiet").all_inner_texts()
    assert "the run has no critic" in reasons
    assert len(set(reasons)) == len(reasons)  # one for all that have it
    slow = folded.nth(1).locator("li", has_text="they need the times of steps, phases and ranks").locator("b")
    assert "the run does not log" in str(slow.first.get_attribute("title"))
    assert slow.count() > 1


@pytest.mark.parametrize("language", ["en", "zh"])
def test_states_without_findings_say_what_is_true(serve: Serve, visit: Open, language: str):
    """A healthy run, one that cannot be judged, and one without steps, in both languages."""
    record("well", is_sick=False)
    record("short", steps=3, is_sick=False)
    barograph.init(id="empty").finish()
    base = str(serve().base_url)
    page = visit(base)
    expected = {
        "well": ("Healthy", "状态健康", "no findings", "没有发现问题"),
        "short": ("Cannot tell yet", "暂无法判断", "too few", "太少"),
        "empty": ("Cannot tell yet", "暂无法判断", "No metrics yet", "还没有指标"),
    }
    for run, words in expected.items():
        page.goto(f"{base}/?run={run}&tab=findings&lang={language}")
        page.wait_for_selector(".banner h1")
        assert page.inner_text(".banner h1") == words[language == "zh"]
        assert words[2 + (language == "zh")] in page.inner_text(".banner p")
        assert not page.is_visible(".bar")


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_the_view_fits_every_width(serve: Serve, visit: Open, width: int):
    """Text and charts are side by side where there is room; nothing scrolls sideways."""
    record("sick")
    page = visit(f"{serve().base_url}/?run=sick&tab=findings&theme=dark", width, 900)
    drawn(page, GRADIENT)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    text, chart = page.locator(".finding-text").first.bounding_box(), page.locator(".chart").first.bounding_box()
    assert (chart["x"] > text["x"] + text["width"] - 1) == (width > 860)


def test_the_overview_leads_to_a_finding_and_back(serve: Serve, visit: Open):
    """The finding is in the URL, it has the focus, and Back returns."""
    record("sick")
    page = visit(f"{serve().base_url}/?run=sick")
    page.click(".banner .finding-link")
    page.wait_for_selector(".finding.chosen")
    assert page.get_attribute(".finding.chosen", "data-finding") == f"nonfinite@{ONSET}"
    assert f"finding=nonfinite%40{ONSET}" in page.url
    assert page.evaluate("document.activeElement.textContent") == "NaN or infinity"
    page.go_back()
    page.wait_for_selector(".vital canvas")
    dot = page.locator(".vital .trouble a")
    assert dot.count() == 1
    dot.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".finding.chosen")
    page.goto(f"{page.url.split('?')[0]}?run=sick&tab=findings&finding=truncation@1")
    page.wait_for_selector("details.finding.chosen[open]")  # its first step is another by now


def test_the_overview_has_the_curves_that_findings_stand_on(serve: Serve, visit: Open):
    """Each with the stretch of its finding, which it leads to; a healthy run has none."""
    record("sick")
    record("well", is_sick=False)
    base = serve().base_url
    page = visit(f"{base}/?run=sick&lang=en")
    page.wait_for_selector(".banner-evidence canvas")
    assert page.locator(".banner-evidence canvas").count() == 1
    assert page.inner_text(".banner-evidence a") == "Policy gradient norm"
    label = page.get_attribute(".banner-evidence canvas", "aria-label")
    assert label.startswith("Policy gradient norm: sick: ")
    page.click(".banner-evidence a")
    page.wait_for_selector(f".finding.chosen[data-finding='nonfinite@{ONSET}']")
    page.goto(f"{base}/?run=well&lang=en")
    page.wait_for_selector(".banner.good")
    assert page.locator(".banner-evidence").count() == 0


def test_the_ends_of_a_card_are_those_of_all_runs_in_it(serve: Serve, visit: Open):
    """A run that is overlaid may go on for longer."""
    record("short", steps=10, is_sick=False)
    record("long", steps=30, is_sick=False)
    page = visit(f"{serve().base_url}/?run=short&with=long&lang=en")
    page.locator(".vital[data-name='actor/grad_norm'] .ends", has_text="step 29").wait_for()


def test_a_value_opens_its_chart_among_its_neighbours(serve: Serve, visit: Open):
    """From the title or the number of its card, and from the verdict on it; Back returns."""
    record("well", is_sick=False)
    page = visit(f"{serve().base_url}/?run=well&lang=en&filter=nothing", 1000, 500)
    for link in (
        ".vital[data-name='actor/grad_norm'] h3 a",
        ".vital[data-name='actor/grad_norm'] .large",
        ".crucial a >> nth=0",
    ):
        page.wait_for_selector(".vital canvas")
        page.click(link)
        page.wait_for_selector(".chart.chosen")
        box = page.locator(".chart.chosen").bounding_box()
        assert 0 <= box["y"] <= 500 - box["height"] / 2
        assert page.locator(".chart").count() > 3  # the filter of another view hides none
        name = page.get_attribute(".chart.chosen", "data-name")
        assert name == ("actor/grad_norm" if "vital" in link else "reward/score/mean")
        page.go_back()
    page.wait_for_selector(".vital canvas")


def test_a_value_outside_its_healthy_range_is_not_a_finding(serve: Serve, visit: Open):
    """Its card says what is usual, and has no colour of trouble: the doctor alone says what is wrong."""
    run = barograph.init(id="long", project="p")
    for step in range(60):
        log_step(run, step, is_sick=False)
        run.log({"tokens/response_truncated": 0.07}, step=step)
    run.finish()
    page = visit(f"{serve().base_url}/?run=long&lang=en")
    card = page.locator(".vital[data-name='tokens/response_truncated']")
    card.locator("canvas").wait_for()
    assert "usual ≤ 0.05 ·" in card.inner_text()
    assert page.locator(".vital .watch, .vital .bad, .vital .trouble a").count() == 0
    assert "usual" not in page.inner_text(".vital[data-name='actor/grad_norm']")
    assert page.inner_text(".banner h1") == "Healthy"


def test_marks_lead_from_every_chart_to_the_finding(serve: Serve, visit: Open):
    """At the same steps on each chart, on each axis and in the overview; a past one is hollow."""
    record("sick")
    base = f"{serve().base_url}/?run=sick"
    page = visit(f"{base}&tab=charts&filter=entropy")
    drawn(page, "actor/entropy")
    page.wait_for_selector(".mark-head")
    assert page.evaluate(HEADS) == [OVER, NOW]
    assert page.locator(".mark-head.over").count() == 1
    heads = "() => [...document.querySelectorAll('.mark-head')].map(one => parseFloat(one.style.left))"
    by_step = page.evaluate(heads)
    page.goto(f"{base}&tab=charts&filter=entropy&x=tokens")
    drawn(page, "actor/entropy")
    page.wait_for_selector(".mark-head")
    assert page.evaluate(heads) == pytest.approx(by_step, abs=2)  # each step has as many tokens
    page.hover(".mark-head.bad")
    page.wait_for_selector(".tip:not([hidden])")
    assert "NaN or infinity" in page.inner_text(".tip")
    page.click(".mark-head.bad")
    page.wait_for_selector(f".finding.chosen[data-finding='nonfinite@{ONSET}']")
    page.goto(base)
    page.wait_for_selector(".vital .mark-head.bad")
    assert page.locator(".vital .mark-head.bad").count() == page.locator(".vital canvas").count()


def test_annotations_are_marked_on_charts(serve: Serve, visit: Open):
    """Without a link to a finding; the tooltip has the text."""
    run = barograph.init(id="noted", project="p")
    for step in range(20):
        run.log({"actor/entropy": 1.0 / (step + 1)}, step=step)
    run.annotate("new data mix", step=8)
    run.finish()
    page = visit(f"{serve().base_url}/?run=noted&tab=charts&filter=entropy")
    drawn(page, "actor/entropy")
    page.hover("span.mark-head.moment")
    page.wait_for_selector(".tip:not([hidden])")
    assert page.inner_text(".tip").strip() == "note · step 8 · new data mix"


def test_near_marks_share_a_head_until_the_chart_is_zoomed(serve: Serve, visit: Open):
    """Each finding keeps its line."""
    run = barograph.init(id="dense", project="p")
    for step in range(2000):
        log_step(run, step)
    run.finish()
    page = visit(f"{serve().base_url}/?run=dense&tab=charts&filter=entropy")
    drawn(page, "actor/entropy")
    page.wait_for_selector(".mark-head")
    first = page.evaluate(HEADS)[0]
    assert first == f"{OVER}; {NOW}"
    page.goto(f"{page.url}&from=0&to=60")
    page.wait_for_function(f"label => ({HEADS})().includes(label)", arg=NOW)


def test_marks_are_switched_off_by_button_key_and_url(serve: Serve, visit: Open):
    """In every view, and Back switches them on again."""
    record("sick")
    base = f"{serve().base_url}/?run=sick"
    page = visit(f"{base}&tab=charts&filter=entropy")
    page.wait_for_selector(".mark-head")
    page.click(".marks-switch")
    page.wait_for_function("() => !document.querySelector('.mark-head')")
    assert "marks=0" in page.url
    assert page.get_attribute(".marks-switch", "aria-pressed") == "false"
    page.go_back()
    page.wait_for_selector(".mark-head")
    page.keyboard.press("m")
    page.wait_for_function("() => !document.querySelector('.mark-head')")
    page.goto(f"{base}&marks=0")
    page.wait_for_selector(".vital canvas")
    assert page.locator(".mark-head").count() == 0
    page.keyboard.press("m")
    page.wait_for_selector(".vital .mark-head")


def test_a_new_finding_appears_by_itself(serve: Serve, visit: Open):
    """In Findings with its chart, in the list, beside the tab, and as a mark on the charts."""
    run = barograph.init(id="live", project="p")
    for step in range(ONSET):
        log_step(run, step)
    base = f"{serve().base_url}/?run=live"
    page = visit(f"{base}&tab=findings")
    page.wait_for_selector(".banner.good")
    charts = visit(f"{base}&tab=charts&filter=entropy")
    charts.wait_for_selector(".mark-head.over")
    page.locator(".past summary").click()
    for step in range(ONSET, ONSET + 6):
        log_step(run, step)
    drawn(page, GRADIENT)
    assert page.locator(".past details[open]").count() == 1  # what was opened stays open
    page.wait_for_selector(".banner.bad")
    page.wait_for_selector(".run .health.bad")
    page.wait_for_function("() => document.querySelector('.tab-count').textContent.trim() === '1'")
    charts.wait_for_selector(".mark-head.bad")
    log_step(run, ONSET + 6)
    page.wait_for_function(f"name => ({CURVE})(name)?.x.at(-1) === {ONSET + 6}", arg=GRADIENT)
    page.wait_for_function("() => document.querySelector('.finding-text').textContent.includes('7 of 7')")
    run.finish()


def test_the_first_paint_needs_one_request_of_data(serve: Serve, visit: Open):
    """The marks come with the overview; other views ask for them once."""
    record("sick")
    base = f"{serve().base_url}/?run=sick"
    page = visit("about:blank")
    asked = requests_of(page)
    page.goto(base)
    page.wait_for_selector(".vital .mark-head")
    page.wait_for_timeout(300)
    assert [path for path in asked if path.startswith("/api/runs/")] == ["/api/runs/sick/overview"]
    asked.clear()
    page.click(".tabs a:nth-child(2)")
    page.wait_for_selector(".chart .mark-head")
    page.keyboard.press("6")
    page.wait_for_selector(".samples .empty")
    assert "/api/runs/sick/findings" not in asked
    page.goto(f"{base}&tab=charts")
    page.wait_for_selector(".chart .mark-head")
    page.wait_for_timeout(300)
    assert asked.count("/api/runs/sick/findings") == 1


def test_the_list_shows_verdicts_in_both_languages(serve: Serve, visit: Open):
    """A sign with its words, and the first finding; nothing where a run is not judged."""
    record("well", is_sick=False)
    record("sick")
    base = str(serve().base_url)
    page = visit(f"{base}/?run=sick")
    page.wait_for_selector(".run[data-key=sick] .health.bad")
    page.wait_for_selector(".run[data-key=well] .health.good")
    assert page.get_attribute(".run[data-key=sick] .health", "aria-label") == "Something is wrong · NaN or infinity"
    assert page.inner_text(".run[data-key=sick] .trouble-note") == f"NaN or infinity · since step {ONSET}"
    assert page.locator(".run[data-key=well] .trouble-note").count() == 0
    page.goto(f"{base}/?run=sick&lang=zh")
    page.wait_for_selector(".run[data-key=sick] .health.bad")
    assert page.get_attribute(".run[data-key=sick] .health", "aria-label") == "出现问题 · NaN 或无穷"


def test_a_report_has_the_findings_with_their_charts(visit: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """And the marks, without a server; links stay in the file."""
    record("sick")
    file = tmp_path / "run.html"
    assert main(["report", "sick", "-o", str(file)]) == 0
    page = visit(f"{file.as_uri()}#tab=findings")
    assert sum(drawn(page, GRADIENT)["nonfinite"]) == 20
    page.goto(f"{file.as_uri()}#tab=charts&filter=entropy")
    page.reload()
    page.click(".chart .mark-head.bad")
    page.wait_for_selector(".finding.chosen")
    assert page.url.startswith(file.as_uri())


def test_a_crucial_value_with_a_finding_leads_to_it(serve: Serve, visit: Open):
    """The finding's sentence is in the overview once."""
    run = barograph.init(id="flat", project="p")
    for step in range(60):
        run.log({"reward/score/mean": 0.0, "actor/grad_norm": 0.5, "actor/entropy": 1.0 + step % 3 / 10}, step=step)
    run.finish()
    client = serve()
    found = client.get("/api/runs/flat/overview").json()
    [first] = [one for one in found["findings"] if one["name"] == "reward/score/mean"]
    page = visit(f"{client.base_url}/?run=flat")
    page.wait_for_selector(".crucial:not(.findings) .finding-link")
    assert page.inner_text(".banner").count(first["text"]["en"]) == 1
    page.locator(".crucial:not(.findings) .finding-link").first.click()
    page.wait_for_selector(f".finding.chosen[data-rule={first['rule']}]")
