"""Every view of the page is checked with axe, https://github.com/dequelabs/axe-core, in light and dark."""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browsing import READY, TABS, Open
from serving_runs import serving, step_values

import barograph

AXE = Path(__file__).parents[3] / "node_modules/axe-core/axe.min.js"
RUN = """async ([where, rules]) => (await axe.run(where, {resultTypes: ["violations"], ...rules})).violations.flatMap(
    one => one.nodes.map(node => [one.impact, one.id, node.html.slice(0, 200)]))"""
OWN_READY = {"compare": ".compare .chart canvas", "table": ".table-count >> text=2 of 2 runs"}
MENU = {"rules": {"region": {"enabled": False}}}  # a menu is over the page, and in no region of it
REPORT = "# T\n\nwords\n\n```runs\nsick, other\n```\n\n```chart\nreward\n```\n"
TARGETS = {"runOnly": {"type": "rule", "values": ["target-size"]}, "rules": {"target-size": {"enabled": True}}}
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Serve a sick run with phases, samples, memory and an evaluation, and a second one to compare it with."""
    if not AXE.exists() and not os.environ.get("CI"):
        pytest.skip("axe-core is not installed: npm ci")
    dir = tmp_path_factory.mktemp("axe") / "runs"
    for id, steps in (("other", 3), ("sick", 60)):
        run = barograph.init(id=id, name=id, dir=dir, config={"actor": {"lr": 1e-6, "id": id}})
        for step in range(steps):
            with run.phase("rollout"), run.phase("rollout/wait"):
                run.log(step_values(step) | {"actor/approxkl": 0.01 * math.exp(step / 10), "critic/loss": math.nan})
            run.sample(f"prompt {step}", "an answer", reward=step / 60, task="q", length=2)
            run.commit(step)
        evaluation = run.evaluation("gsm8k", step=steps - 1, repeats=2)
        for number in range(2):
            evaluation.add(task="a", run=number, metrics={"accuracy": float(number)})
        evaluation.close()
        run.finish()
    with serving(dir) as client:
        client.post("/api/reports", json={"name": "r", "text": REPORT})
        yield client


def violations(page: Any, where: str = "body", rules: dict[str, Any] | None = None) -> list[Any]:
    """Return what axe finds on a page or in a part of it."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text())
    found: list[Any] = page.evaluate(RUN, [where, rules or {}])
    return found


def test_no_view_has_a_violation(checked: httpx.Client, visit: Open):
    """In light all rules are applied, in dark those on colours."""
    page = visit("about:blank")
    for theme, rules in (("light", None), ("dark", CONTRAST)):
        page.goto(f"{checked.base_url}/?run=sick&with=other&tab=table&theme={theme}")
        for tab in ("table", *TABS):
            if tab != "table":
                page.evaluate("tab => document.querySelectorAll('.tabs a')[tab].click()", TABS.index(tab))
            page.wait_for_selector(OWN_READY.get(tab) or READY[tab])
            where = "body" if tab == "table" else "main"  # the frame is the same around every view
            assert (theme, tab, violations(page, where, rules)) == (theme, tab, [])


def test_no_dialog_has_a_violation(checked: httpx.Client, visit: Open):
    """Nor has a menu, the enlarged chart, a report, or the page on a phone."""
    page = visit(f"{checked.base_url}/?run=sick&with=other&tab=charts&filter=critic/score")
    page.wait_for_selector(".chart canvas")
    page.click(".legend .swatch >> nth=0")
    assert violations(page, rules=MENU) == []
    page.keyboard.press("Escape")
    page.click(".add-panel")
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.goto(f"{checked.base_url}/?run=sick&with=other&tab=charts&filter=critic/score&chart=critic/score")
    page.click(".large-chart .tool-save")
    assert violations(page, rules=MENU) == []
    page.goto(f"{checked.base_url}/?run=sick&tab=report&report=r")
    page.wait_for_selector(".block .chart canvas")
    assert violations(page) == []
    page.locator(".block.chart-block").hover()
    page.locator(".chart-block [aria-label=Edit]").click()
    page.wait_for_selector("dialog")
    assert violations(page, "dialog") == []
    phone = visit(f"{checked.base_url}/?run=sick&tab=time", 390, 844)
    phone.wait_for_selector(READY["time"])
    assert violations(phone) == []


def test_a_finger_hits_what_it_means(checked: httpx.Client, visit: Open):
    """On a phone, what is pressed is at least 24 pixels high and wide, or has as much room around it."""
    phone = visit("about:blank", 390, 844)
    for tab in ("table", "charts", "samples"):
        phone.goto(f"{checked.base_url}/?run=sick&with=other&tab={tab}&lang=en")
        phone.wait_for_selector(OWN_READY.get(tab) or READY[tab])
        assert (tab, violations(phone, "body", TARGETS)) == (tab, [])


def test_a_phone_shows_the_run_and_its_tab(checked: httpx.Client, visit: Open):
    """Its name is not pushed out of the bar, and the last tab is in sight, also when the findings are counted."""
    phone = visit(f"{checked.base_url}/?run=sick&tab=names&lang=en", 390, 844)
    phone.wait_for_selector(".tab-count:not(:empty)")
    assert phone.locator(".run-heading").evaluate("one => one.clientWidth >= one.scrollWidth")
    inside = "one => { const box = one.getBoundingClientRect(); return box.left >= 0 && box.right <= innerWidth; }"
    phone.wait_for_function(f"() => ({inside})(document.querySelector('.tabs [aria-current]'))")
