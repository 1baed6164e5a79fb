"""What people do with forty runs, carried out in a browser: the answers, and how many clicks each takes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browsing import Open
from serving_runs import eventually, serving
from sweep_runs import COLLAPSED, FRAMEWORKS, WRONG

DETAILED = "lr1e-05-clip0.2-s0"
MOST_CLICKS = 4
GUIDE = Path(__file__).parents[2] / "docs" / "page.md"


@pytest.fixture(scope="module")
def served(sweep: Path) -> Iterator[httpx.Client]:
    """Return a client of a server of the sweep that has read all runs."""
    with serving(sweep) as client:
        eventually(lambda: client.get("/api/table").json()["pending"] == 0)
        yield client


class Person:
    """Somebody at the table of runs who clicks; every click and every choice in a list counts."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.clicks = 0
        page.locator(".table-count", has_text="43 of 43 runs").wait_for()

    def click(self, what: Any, **options: Any) -> None:
        """Click on a selector or on something that was found."""
        (self.page.locator(what) if isinstance(what, str) else what).first.click(**options)
        self.clicks += 1

    def open(self, run: str) -> None:
        """Open a run from the table."""
        self.page.locator("#where").fill(f'name = "{run}"')
        self.click(self.page.get_by_role("link", name=run, exact=True))
        self.page.locator(".run-heading", has_text=run).wait_for()

    def done(self, task: str) -> None:
        """Check that the clicks are few, and those that the guide tells."""
        assert self.clicks <= MOST_CLICKS
        assert f"| {task} | {self.clicks} |" in GUIDE.read_text()


@pytest.fixture
def person(served: httpx.Client, visit: Open) -> Person:
    """Return somebody in front of the table."""
    return Person(visit(f"{served.base_url}/?lang=en"))


def group_box(page: Any, label: str) -> Any:
    return page.get_by_label(f"Select: {label}", exact=True)


def test_the_best_run_by_validation(person: Person):
    """One click on the head of the column."""
    person.click('.grid-head [data-column="best:validation"] button')
    first = person.page.locator('[aria-rowindex="2"] .table-name', has_text="lr1e-05-clip0.2-s")
    first.wait_for()
    person.done("the best run by validation")


def test_three_settings_with_their_seeds(person: Person):
    """Each is one line with a band, and the number of seeds is said."""
    page = person.page
    person.click(page.get_by_role("button", name="Group seeds"))
    person.click(group_box(page, "lr=3e-5 clip=0.4"))
    person.click(group_box(page, "lr=1e-5 clip=0.4"), modifiers=["Shift"])
    person.click(page.locator(".table-chosen").get_by_text("Compare"))
    page.locator(".legend", has_text="lr=3e-5 clip=0.2 · 5 seeds").wait_for()
    lines = "() => document.querySelector('.chart[data-name=\"critic/score/mean\"]')?.card.plot?.lines"
    page.wait_for_function(f"() => ({lines})()?.length === 3")
    assert page.evaluate(f"({lines})().every(line => line.max && line.older.length === 5)")
    person.done("three settings with the bands of their seeds")


def test_which_of_two_settings_is_better(person: Person):
    """A sentence says it, with the interval of the difference."""
    page = person.page
    person.click(page.get_by_role("button", name="Group seeds"))
    person.click(group_box(page, "lr=1e-6 clip=0.2"))
    person.click(group_box(page, "lr=1e-5 clip=0.2"))
    person.click(page.locator(".table-chosen").get_by_text("Compare"))
    page.locator(".verdicts", has_text="lr=1e-5 is better than lr=1e-6: 0.25").wait_for()
    person.done("which of two settings is better")


def test_why_and_when_a_run_collapsed(person: Person):
    """The doctor's verdict leads the overview: the updates are too large since the step of the collapse."""
    person.open(COLLAPSED)
    banner = person.page.locator(".banner.bad")
    banner.get_by_text("Updates are too large").first.wait_for()
    assert "since step 14" in banner.inner_text()
    person.done("why a run collapsed, and when")


def test_the_wrong_sample_with_the_highest_reward(person: Person):
    """An order of the samples begins with it."""
    page = person.page
    person.open(DETAILED)
    person.click(page.locator(".tabs").get_by_text("Samples"))
    page.wait_for_selector(".sample-row")
    page.select_option(".bar select >> nth=0", "-reward where correct = false")
    person.clicks += 2  # the list, and the choice
    page.locator(".sample-detail", has_text=WRONG).wait_for()
    person.done("the wrong sample with the highest reward")


def test_the_entropy_of_three_frameworks(person: Person):
    """One chart has a line of each, whatever they call it."""
    page = person.page
    first, *_, last = reversed(FRAMEWORKS)
    person.click(page.get_by_label(f"Select: {first}", exact=True))
    person.click(page.get_by_label(f"Select: {last}", exact=True), modifiers=["Shift"])
    person.click(page.locator(".table-chosen").get_by_text("Charts"))
    page.fill(".bar input[type=search]", "entropy")
    page.wait_for_function("() => document.querySelector('.chart')?.card.plot?.lines.length === 3")
    found = page.evaluate("document.querySelector('.chart').card.plot.lines.map(line => [line.run, line.main.last[5]])")
    assert {run for run, _ in found} == set(FRAMEWORKS)
    assert [value for _, value in found] == pytest.approx([0.25] * 3)
    person.done("the entropy of three runs of three frameworks")


@pytest.mark.parametrize(
    ("item", "task"), [("PNG picture", "a chart as a picture"), ("Copy a link", "a chart as a link")]
)
def test_a_chart_is_shared(person: Person, item: str, task: str):
    """From the menu of the chart; the link opens the same chart."""
    page = person.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    person.open(DETAILED)
    person.click(page.locator(".tabs").get_by_text("Charts"))
    page.locator(".chart canvas").first.wait_for()
    page.hover(".chart >> nth=0")
    person.click(".chart .tool-save")
    if item.startswith("PNG"):
        with page.expect_download() as taken:
            person.click(page.get_by_role("menuitem", name=item))
        assert Path(taken.value.path()).read_bytes().startswith(b"\x89PNG")
    else:
        person.click(page.get_by_role("menuitem", name=item))
        page.locator(".toast").wait_for()
        link = page.evaluate("navigator.clipboard.readText()")
        page.goto(link)
        page.locator(".large-chart, dialog .chart").first.wait_for()
    person.done(task)


def seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]


def test_where_the_time_of_a_step_went(person: Person):
    """A click on the bar of step 12 shows its phases: generating took most of it."""
    page = person.page
    person.open(DETAILED)
    person.click(page.locator(".tabs").get_by_text("Time"))
    page.locator("canvas.stack").wait_for()
    page.wait_for_selector(".gantt")
    box = page.locator("canvas.stack").bounding_box()
    for place in range(0, int(box["width"]), 4):
        page.mouse.move(box["x"] + place, box["y"] + box["height"] / 2)
        if page.inner_text(".stack-caption").startswith("step 12:"):
            break
    page.mouse.down()
    page.mouse.up()
    person.clicks += 1
    page.wait_for_function("() => document.querySelectorAll('.view.time th')[1]?.textContent === 'step 12'")
    rows = {row[0]: row[1] for row in (one.split("\t") for one in page.locator("tbody tr").all_inner_texts())}
    assert seconds(rows["actor_infer/generate"]) >= 0.06
    assert seconds(rows["actor_infer/generate"]) > seconds(rows["actor_train/train_step"])
    person.done("where the time of step 12 went")
