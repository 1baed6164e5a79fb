"""What a click destroys on the page can be undone: by Back where it is in the URL, else by the message that follows."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from browsing import Open
from serving_runs import eventually, serving, step_values

import barograph


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Return a client of a server of two runs."""
    dir = tmp_path_factory.mktemp("undo") / "runs"
    for id in ("first", "second"):
        with barograph.init(id=id, name=id, dir=dir, tags=["logged"]) as run:
            for step in range(3):
                run.log(step_values(step), step=step)
    with serving(dir) as client:
        yield client


def choose(page: Any, run: str, item: str, text: str | None = None) -> None:
    """Choose an item of a run's menu in the list, and fill in what it asks for."""
    page.get_by_role("button", name=f"More: {run}", exact=True).click()
    page.get_by_role("menuitem", name=item).click()
    if text is not None:
        page.locator("dialog input").fill(text)
        page.locator("dialog .primary").click()


def undo(page: Any, said: str) -> None:
    """Wait for a message, and undo what it tells by its button, from the keyboard."""
    page.locator(".toast", has_text=said).wait_for()
    page.locator(".toast", has_text="Undone.").evaluate_all("all => all.forEach(one => one.remove())")
    page.locator(".toast .offer", has_text="Undo").focus()
    page.keyboard.press("Enter")
    page.locator(".toast", has_text="Undone.").wait_for()


def test_annotations_of_a_run_are_restored(served: httpx.Client, visit: Open):
    """Hidden, pinned, with another name, note, tags or colour: as before, also where there was nothing."""
    page = visit(f"{served.base_url}/?run=first&with=second&tab=charts&lang=en&filter=critic/score")

    def annotated() -> dict[str, Any]:
        fields = ("name", "note", "tags", "hidden", "pinned", "colour")
        runs = served.get("/api/runs", params={"key": "second"}).json()["runs"]
        return next({name: run[name] for name in fields} for run in runs if run["key"] == "second")

    before = annotated()
    changes = {
        "Hide": (None, {"hidden": True}),
        "Pin": (None, {"pinned": True}),
        "Rename …": ("other", {"name": "other"}),
        "Note …": ("look", {"note": "look"}),
        "Tags …": ("", {"tags": []}),
    }
    for item, (text, changed) in changes.items():
        choose(page, "second", item, text)
        page.locator(".toast .offer").wait_for()
        assert annotated() == before | changed
        undo(page, "“second” is hidden." if item == "Hide" else "“second” was changed.")
        assert annotated() == before
        page.wait_for_selector("[aria-label='More: second']")
    page.locator(".legend .swatch", has_text="second").click()
    page.locator(".menu .colour:not([disabled])").last.click()
    page.locator(".toast .offer").wait_for()
    assert annotated()["colour"] is not None
    page.locator("body").press("u")
    eventually(lambda: annotated() == before)  # the message may still be that of the change before


def test_the_source_of_names_is_restored(served: httpx.Client, visit: Open):
    """A chosen one is replaced by the one that was found."""
    page = visit(f"{served.base_url}/?run=first&tab=names&lang=en")
    page.locator("#source").fill("trl/grpo")
    page.get_by_role("button", name="Choose").click()
    page.get_by_text("Chosen on this page").wait_for()
    undo(page, "Changed the source of the names.")
    page.get_by_text("Chosen on this page").wait_for(state="detached")


def test_saved_views_are_restored(served: httpx.Client, visit: Open):
    """Removed ones, and those that were replaced by another of the same name."""
    served.post("/api/views", json={"name": "loss", "state": "tab=charts&filter=loss"})
    page = visit(f"{served.base_url}/?run=first&tab=charts&filter=kl&view=loss&lang=en")
    for item, said in (("Save as …", "Replaced the view “loss”."), ("Remove “loss”", "Removed the view “loss”.")):
        page.locator("button.views").click()
        page.get_by_role("menuitem", name=item).click()
        if item == "Save as …":
            page.locator("dialog .primary").click()
        undo(page, said)
        (view,) = served.get("/api/views").json()["views"]
        assert view["state"] == "tab=charts&filter=loss"
        assert "view=loss" in page.url


def test_what_is_in_the_address_comes_back(served: httpx.Client, visit: Open):
    """A panel that was removed, a filter and a selection that were cleared."""
    panels = "%5B%7B%22metrics%22%3A%5B%22critic%2Fscore%2Fmean%22%5D%2C%22title%22%3A%22Mine%22%7D%5D"
    page = visit(f"{served.base_url}/?run=first&tab=charts&lang=en&filter=critic&panels={panels}")
    mine = page.locator(".panel-card h3", has_text="Mine")
    mine.hover()
    page.locator(".panel-card .tool-edit").click()
    page.locator("dialog .danger").click()
    mine.wait_for(state="detached")
    page.go_back()
    mine.wait_for()
    for address, field in (
        ("tab=charts&filter=critic", "main input[type=search]"),
        ("tab=names&filter=critic", "main input[type=search]"),
        ("tab=charts&q=second", "#run-filter"),
        ("tab=table&only=status+%3D+finished", "#where"),
    ):
        page.goto(f"{served.base_url}/?run=first&lang=en&{address}")
        box = page.locator(field)
        text = box.input_value()
        assert text
        box.fill("")
        page.wait_for_function("text => !decodeURIComponent(location.search).includes(text)", arg=text.split()[0])
        page.go_back()
        page.wait_for_function("([field, text]) => document.querySelector(field)?.value === text", arg=[field, text])
    page.locator(".table-chosen button", has_text="Clear").click()
    page.get_by_text("1 selected").wait_for(state="detached")
    page.go_back()
    page.get_by_text("1 selected").wait_for()


def test_a_text_that_was_typed_comes_back(served: httpx.Client, visit: Open):
    """A note that was cancelled, and one that was left for another view."""
    served.post("/api/reports", json={"name": "r", "text": "old words\n"})
    page = visit(f"{served.base_url}/?tab=report&report=r&lang=en&run=first")
    page.locator(".block").hover()
    page.get_by_role("button", name="Edit", exact=True).click()
    page.locator("textarea").fill("new words")
    page.keyboard.press("Escape")
    page.get_by_text("old words").wait_for()
    undo(page, "The text was discarded.")
    assert page.locator("textarea").input_value() == "new words"
    page.get_by_role("link", name="Runs", exact=True).click()
    page.wait_for_selector(".table-count")
    page.go_back()
    page.locator("textarea").wait_for()
    assert page.locator("textarea").input_value() == "new words"
    page.keyboard.press("Control+Enter")
    page.get_by_text("new words").wait_for()
    undo(page, "Saved.")
    page.get_by_text("old words").wait_for()


def test_the_whole_text_comes_back_to_its_field(served: httpx.Client, visit: Open):
    """A report whose text was left in its field for another view; keys that follow at once reach the field."""
    served.post("/api/reports", json={"name": "whole", "text": "old text\n"})
    page = visit(f"{served.base_url}/?tab=report&report=whole&lang=en&run=first")
    page.evaluate("() => { window.requestAnimationFrame = () => 0; }")  # as in a tab that is not seen
    page.get_by_role("button", name="Markdown").click()
    assert page.locator("textarea").evaluate("field => field === document.activeElement")
    page.locator("textarea").fill("new text")
    page.keyboard.press("2")
    page.get_by_role("link", name="Runs", exact=True).click()
    page.locator("textarea").wait_for(state="detached")
    page.go_back()
    page.locator("textarea").wait_for()
    assert page.locator("textarea").input_value() == "new text2"
    page.keyboard.press("Control+Enter")
    page.get_by_text("new text2").wait_for()
