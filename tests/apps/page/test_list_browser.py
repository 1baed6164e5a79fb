"""The list of many runs in a browser: its pages, and runs that are not on the page that is shown."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from browsing import Open
from serving_runs import Serve, copy_run

import barograph


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Return a directory of 230 runs, the newest of which is ``r229``."""
    run = barograph.init(id="r000", project="p", dir=tmp_path / "runs")
    for step in range(5):
        run.log({"critic/score/mean": step / 5}, step=step)
    run.finish()
    for number in range(1, 230):
        copy_run(Path(run.path), number, f"r{number:03d}")
    return tmp_path / "runs"


def rows(page: Any) -> list[str]:
    """Return the names in the list at one moment: it is drawn again when something is known of a run."""
    found: list[str] = page.evaluate("[...document.querySelectorAll('.run .run-text')].map(one => one.textContent)")
    return found


def shown(page: Any, text: str) -> None:
    """Wait until the foot of the list has a text."""
    page.locator(".runs-foot", has_text=text).wait_for()


def test_the_list_has_pages(serve: Serve, visit: Open, many: Path):
    """The buttons turn them; a run keeps being shown when the list is elsewhere."""
    page = visit(f"{serve(many).base_url}/?tab=overview")
    shown(page, "1–100 / 230 runs")
    assert rows(page)[:2] == ["r229", "r228"]
    assert page.locator(".run-heading").inner_text() == "r229"
    page.get_by_label("next page").click()
    shown(page, "101–200 / 230 runs")
    page.get_by_label("next page").click()
    shown(page, "201–230 / 230 runs")
    assert rows(page)[-1] == "r000"
    assert page.get_by_label("next page").is_disabled()
    assert page.locator(".run-heading").inner_text() == "r229"
    page.locator(".run-name", has_text="r001").click()
    page.locator(".run-heading", has_text="r001").wait_for()
    page.get_by_label("previous page").click()
    shown(page, "101–200 / 230 runs")
    page.go_back()
    page.locator(".run-heading", has_text="r229").wait_for()


def test_search_and_order_are_those_of_all_runs(serve: Serve, visit: Open, many: Path):
    """Also of runs that no page has shown yet."""
    client = serve(many)
    page = visit(f"{client.base_url}/?tab=overview&sort=nonsense")
    shown(page, "1–100 / 230 runs")
    page.fill("#run-filter", "r00")
    shown(page, "10 runs")
    assert rows(page)[0] == "r009"
    page.fill("#run-filter", "nobody")
    page.locator(".runs", has_text="No run matches").wait_for()
    page.fill("#run-filter", "")
    shown(page, "1–100 / 230 runs")
    page.select_option(".runs-head select", "name")
    page.locator(".run:first-child .run-title", has_text="r000").wait_for()
    client.patch("/api/runs/r150", json={"pinned": True, "note": "look"})
    page.locator(".run:first-child .run-title", has_text="r150").wait_for()
    client.patch("/api/runs/r150", json={"hidden": True})
    shown(page, "1–100 / 229 runs")
    page.get_by_text("show 1 hidden").click()
    shown(page, "1–100 / 230 runs")


def test_a_link_to_a_run_of_any_page_opens_it(serve: Serve, visit: Open, many: Path):
    """With another beside it; an unknown one becomes the newest."""
    client = serve(many)
    page = visit(f"{client.base_url}/?run=r003&with=r004&tab=charts")
    page.locator(".run-heading", has_text="r003").wait_for()
    page.locator(".legend", has_text="r004").first.wait_for()
    assert rows(page)[0] == "r229"
    page = visit(f"{client.base_url}/?run=nobody&tab=config")
    page.locator(".run-heading", has_text="r229").wait_for()


def test_the_keyboard_goes_on_to_the_next_page(serve: Serve, visit: Open, many: Path):
    """And back."""
    page = visit(f"{serve(many).base_url}/?run=r130")
    shown(page, "1–100 / 230 runs")
    page.keyboard.press("j")
    shown(page, "101–200 / 230 runs")
    page.locator(".run-heading", has_text="r129").wait_for()
    page.keyboard.press("k")
    shown(page, "1–100 / 230 runs")
    page.locator(".run-heading", has_text="r130").wait_for()


def test_a_new_run_moves_the_others(serve: Serve, visit: Open, many: Path):
    """A row that comes from another page is fetched, and those that leave are dropped."""
    page = visit(f"{serve(many).base_url}/?tab=overview")
    page.get_by_label("next page").click()
    shown(page, "101–200 / 230 runs")
    assert rows(page)[0] == "r129"
    barograph.init(id="newer", project="p", dir=many).finish()
    page.locator(".run:first-child .run-title", has_text="r130").wait_for()
    assert len(rows(page)) == 100
    shutil.rmtree(many / "p" / "newer")
    shutil.rmtree(many / "p" / "r120")
    shown(page, "101–200 / 229 runs")
    assert "r120" not in rows(page)
