"""Every view on two trainings of the demo, one healthy and one sick, in both languages, in a real browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browsing import READY as USUAL
from browsing import TABS, Open, drawn
from serving_runs import Serve

from barograph.apps.cli import main

RECIPE = """
demo: {tasks: 24, hidden: 64, maps: 128, validation_maps: 16, validate_every: 4, actor_lr: 1.0e-3, critic_lr: 2.0e-3}
"""
READY = USUAL | {"memory": ".chart canvas"}  # a training on a CPU has only host memory
TEXTS = {
    "en": {"config_diff": "Config differences", "coverage": "Coverage", "group": "The group of this prompt"},
    "zh": {"config_diff": "配置差异", "coverage": "覆盖", "group": "该 prompt 在第"},
}
Screenshot = Callable[[Any, str], None]


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a healthy training and one whose loss becomes NaN."""
    dir = tmp_path_factory.mktemp("trainings")
    (dir / "demo.yaml").write_text(RECIPE)
    usual = ["demo", "--quiet", "--steps", "13", "--config", str(dir / "demo.yaml"), "--dir", str(dir / "runs")]
    assert main([*usual, "--name", "healthy"]) == 0
    assert main([*usual, "--name", "sick", "--sick", "nan"]) == 0
    return dir / "runs"


@pytest.fixture
def screenshot(request: pytest.FixtureRequest) -> Screenshot:
    """Return a function that saves a screenshot where pytest has ``--screenshots``."""
    folder = request.config.getoption("--screenshots")

    def take(page: Any, name: str) -> None:
        if folder is not None:
            page.wait_for_timeout(300)
            page.screenshot(path=str(folder / f"{name}.png"))

    return take


def keys_of(client: Any) -> dict[str, str]:
    return {run["name"]: run["key"] for run in client.get("/api/runs").json()["runs"]}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", ["healthy", "sick"])
def test_every_view_of_a_training(
    serve: Serve, trainings: Path, visit: Open, screenshot: Screenshot, name: str, language: str
):
    """Each view opens by its key and does its work."""
    client = serve(trainings)
    keys = keys_of(client)
    page = visit(f"{client.base_url}/?run={keys[name]}&with={keys['healthy']}&lang={language}")
    for number, tab in enumerate(TABS, start=1):
        page.keyboard.press("Escape")  # out of a field
        page.keyboard.press(str(number % 10))
        page.wait_for_selector(READY[tab] if (tab, name) != ("compare", "sick") else ".compare .chart canvas")
        USES[tab](page, name, language)
        screenshot(page, f"{name}-{tab}-{language}")


def use_overview(page: Any, name: str, language: str) -> None:
    assert page.locator(".crucial li").count() >= 5
    assert page.locator(".vital").count() >= 10
    assert page.locator(".banner.bad").count() == (name == "sick")
    page.locator(".vital h3").first.hover()
    page.wait_for_selector(".tip:not([hidden])")
    page.mouse.move(2, 2)


def use_charts(page: Any, name: str, language: str) -> None:
    """Scroll to the end: charts that come into view are drawn."""
    count = page.locator(".chart").count()
    assert count > 60
    page.locator(".families a").last.click()
    page.keyboard.press("End")
    page.wait_for_function("() => [...document.querySelectorAll('.chart')].at(-1).querySelector('canvas')")
    page.evaluate("scrollTo(0, 0)")
    page.fill(".bar input[type=search]", "total_loss")
    page.wait_for_function(f"() => document.querySelectorAll('.chart').length < {count}")
    bad = sum(drawn(page, "actor/total_loss")["nonfinite"])
    assert (bad > 0) == (name == "sick")
    page.fill(".bar input[type=search]", "")
    page.wait_for_function(f"() => document.querySelectorAll('.chart').length === {count}")
    page.wait_for_selector(READY["charts"])


def use_time(page: Any, name: str, language: str) -> None:
    """Show the timeline of the step before, with both roles."""
    text = page.text_content(".gantt")
    for row in ("trainer", "explorer", "actor_train/train_step"):
        assert row in text
    page.click("text=‹")
    page.wait_for_function("() => new URLSearchParams(location.search).get('step') === '11'")
    page.wait_for_selector(".gantt")
    share = {"en": "share of step", "zh": "占比"}[language]
    page.click(f"text={share}")
    page.wait_for_selector(f"main .facts button[aria-pressed=true]:text-is('{share}')")


def use_memory(page: Any, name: str, language: str) -> None:
    page.locator(".chart[data-name='memory/host/used']").scroll_into_view_if_needed()
    assert len(drawn(page, "memory/host/used")["x"]) == 13


def use_evaluation(page: Any, name: str, language: str) -> None:
    text = page.inner_text("main")
    for taskset in ("held_out", "seen", "classic"):
        assert taskset in text
    assert TEXTS[language]["coverage"] in text
    assert "_observed" not in text
    legends = page.locator(".mid-plot + .legend")
    assert legends.count() >= 6
    assert all("@" in legend for legend in legends.all_inner_texts())  # also sets with detailed statistics
    page.locator("details").first.click()


def use_samples(page: Any, name: str, language: str) -> None:
    """Select a sample, see its group, search."""
    page.wait_for_function(f"() => document.body.textContent.includes({TEXTS[language]['group']!r})")
    page.locator(".sample-row").nth(2).click()
    page.wait_for_function("() => new URLSearchParams(location.search).has('sample')")
    page.fill(".bar input[type=search]", "certainly in no sample")
    page.wait_for_function("() => !document.querySelector('.sample-detail pre')")
    page.fill(".bar input[type=search]", "")
    page.wait_for_selector(READY["samples"])


def use_findings(page: Any, name: str, language: str) -> None:
    """Open what was checked; a sick training has a finding with its charts."""
    assert (page.locator(".finding.card .severity.bad").count() > 0) == (name == "sick")
    if name == "sick":
        page.wait_for_selector(".evidence .chart canvas")
    page.locator("details.checked summary").first.click()
    assert page.locator("details.checked[open] b").count() > 2


def use_compare(page: Any, name: str, language: str) -> None:
    if name == "healthy":  # a run is not compared with itself
        assert page.locator(".empty").count() == 1
        return
    text = page.inner_text("main")
    assert TEXTS[language]["config_diff"] in text
    assert "demo.fault" in text


def use_config(page: Any, name: str, language: str) -> None:
    page.fill(".panel input[type=search]", "critic_lr")
    page.wait_for_function("() => document.querySelector('.kv').rows.length <= 2")
    assert "demo.critic_lr" in page.inner_text(".kv >> nth=0")


def use_names(page: Any, name: str, language: str) -> None:
    """Search among the names."""
    page.fill(".panel input[type=search]", "^actor/approxkl")  # a sick run also has barograph/nonfinite/…
    page.wait_for_function("() => [...document.querySelectorAll('.names-table')].at(-1)?.tBodies[0].rows.length === 1")
    assert "actor/approxkl" in page.inner_text(".names-table >> nth=-1")


USES = {
    "overview": use_overview, "charts": use_charts, "time": use_time, "memory": use_memory,
    "evaluation": use_evaluation, "samples": use_samples, "compare": use_compare, "config": use_config,
    "names": use_names, "findings": use_findings,
}  # fmt: skip
