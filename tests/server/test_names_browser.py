"""Names in a real browser: what is known, choosing a source, and charts of runs of two frameworks."""

from pathlib import Path

import pytest
from browsing import Open
from serving_runs import Serve

import windsock


@pytest.fixture
def own() -> None:
    """Record a run of a hand-written loop: one name is not decided, three are unknown."""
    run = windsock.init(project="p", name="own", id="own")
    for step in range(40):
        values = {"kl": 0.2 + 0.1 * (step % 3), "reward": step / 40, "my/own_s": 2.0, "my/squeak": 1.0, "q/z": 1.0}
        run.log(values, step=step)
    run.finish()


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "This run has 5 names, and windsock knows 2. The meaning of 1 is not decided."),
        ("zh", "该实验有 5 个名字，windsock 认识其中 2 个。 其中 1 个含义未定。"),
    ],
)
def test_unknown_names_are_shown_as_such(serve: Serve, own: None, visit: Open, language: str, sentence: str):
    """The overview says how many names are known, and leads to the list of the others with how to describe them."""
    page = visit(f"{serve().base_url}/?run=own&lang={language}")
    page.wait_for_selector(".names-line")
    assert page.inner_text(".names-line") == sentence
    assert page.locator(".absent li").count() == 2  # the KL, of which a name may be, and all others
    page.click(".names-line")
    page.wait_for_selector(".template")
    assert page.inner_text(".names-count") == sentence
    assert "my/own_s" in page.inner_text(".names-table >> nth=0")
    assert {"en": "seconds", "zh": "秒"}[language] in page.inner_text(".names-table >> nth=0")
    assert "names.yaml" in page.inner_text(".names")
    assert "my/squeak:" in page.inner_text(".template")


def test_a_source_is_chosen_on_the_page(serve: Serve, own: None, visit: Open, console_errors: list[str]):
    """A click on the source of a meaning decides it; it is remembered, and can be taken back."""
    base = str(serve().base_url)
    page = visit(f"{base}/?run=own&tab=names")
    page.click(".undecided[data-name=kl] button:text-is('trl/rloo')")
    page.wait_for_selector(".undecided", state="detached")
    assert "Chosen on this page: trl/rloo (RLOOTrainer)." in page.inner_text(".names")
    again = visit(f"{base}/?run=own")
    again.wait_for_selector(".names-line")
    assert "Read as trl/rloo." in again.inner_text(".names-line")
    assert again.locator(".vital[data-name=kl]").count() == 1
    page.fill("#source", "nobody")
    page.click(".source-form button >> nth=0")
    page.wait_for_selector("text=unknown source 'nobody'")
    console_errors.clear()  # the browser reports the refused request
    page.click("text=Find it automatically")
    page.wait_for_selector(".undecided")


def test_a_saved_description_counts_at_once(serve: Serve, own: None, visit: Open, tmp_path: Path):
    """The page follows names.yaml, also of a run that has ended."""
    page = visit(f"{serve().base_url}/?run=own&tab=names")
    page.wait_for_selector(".names-count:text('knows 2')")
    (tmp_path / "runs" / "names.yaml").write_text("my/squeak:\n  about: how much it squeaks\n")
    page.wait_for_selector(".names-count:text('knows 3')")
    assert "names.yaml" in page.inner_text(".names-table >> nth=-1")


def test_a_guessed_unit_is_marked(serve: Serve, own: None, visit: Open):
    """The chart of an unknown time is among the times and says that this is guessed."""
    page = visit(f"{serve().base_url}/?run=own&tab=charts&filter=own_s")
    page.wait_for_selector(".chart .unit")
    assert page.inner_text(".chart .unit") == "seconds (guessed)"
    assert page.inner_text(".family h2") == "Time"
