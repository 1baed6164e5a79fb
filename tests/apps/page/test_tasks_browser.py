"""What people do with forty trainings of the demo, in a browser: the answers, and how many clicks each takes.

The expected answers are computed here, from the series and the samples of the runs.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from browsing import Open
from numpy.typing import NDArray
from serving_runs import eventually, serving

import barograph
from demo_sweep import FAULTS, FRAMEWORKS, RATES, SEEDS, SHORT, TURNS, forty_configs, run_name

COLLAPSED, HACKED = FAULTS
DETAILED = run_name(RATES[-1], TURNS[0], 0)
MOST_CLICKS = 4
GUIDE = Path(__file__).parents[3] / "docs" / "page.md"
IS_WHOLE = "one => one.scrollWidth <= one.clientWidth"
"""JavaScript: whether all of an element's text is in sight."""
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def served(demo_sweep: Path) -> Iterator[httpx.Client]:
    """Return a client of a server of the sweep that has read all runs."""
    with serving(demo_sweep) as client:
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

    def tick_group(self, rate: float, turns: int, **options: Any) -> None:
        """Tick the box of a setting, where the table has groups."""
        self.click(
            self.page.get_by_label(f"Select: steps={SHORT['steps']} {setting_label(rate, turns)}", exact=True),
            **options,
        )

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


def setting_label(rate: float, turns: int) -> str:
    """Return what the page calls a setting: 0.0009 is written as 9e-4."""
    return f"turns={turns} actor_lr={f'{rate:.0e}'.replace('e-0', 'e-') if rate else 0}"


def values_of(run: Path, name: str) -> Floats:
    """Return the values of a series of a run, one for each step that has some."""
    return barograph.open(run).series(name).values


def of_seeds(dir: Path, rate: float, turns: int, name: str) -> Floats:
    """Return a series of all runs of a setting: seeds x steps."""
    return np.array([values_of(dir / "sweep" / run_name(rate, turns, seed), name) for seed in SEEDS])


def t_quantile(freedom: float) -> float:
    """Return the limit that Student's t stays within in 95 % of cases, by summing the density over its angle."""
    angles = np.linspace(0, np.pi / 2, 200_001)
    share = np.cumsum(np.cos(angles) ** (freedom - 1))
    return math.sqrt(freedom) * math.tan(angles[np.searchsorted(share / share[-1], 0.95)])


def welch(first: Floats, second: Floats) -> tuple[float, float, float]:
    """Return the difference of two means with its 95 % interval."""
    parts = [one.var(ddof=1) / len(one) for one in (first, second)]
    freedom = sum(parts) ** 2 / sum(part**2 / (len(SEEDS) - 1) for part in parts)
    difference, half = first.mean() - second.mean(), t_quantile(freedom) * math.sqrt(sum(parts))
    return difference, difference - half, difference + half


def test_the_best_run_by_validation(person: Person, demo_sweep: Path):
    """One click on the head of the column."""
    best = {run: values_of(demo_sweep / "sweep" / run, "val/score/mean").max() for run in forty_configs()}
    person.click('.grid-head [data-column="best:validation"] button')
    person.page.locator('[data-column="best:validation"][aria-sort="descending"]').wait_for()
    first = person.page.locator('[aria-rowindex="2"] .table-name').text_content()
    assert best[first] == max(best.values()) > 0
    person.done("the best run by validation")


def test_three_settings_with_their_seeds(person: Person, demo_sweep: Path):
    """Each is one line with a band: the mean of its seeds and its interval; a group says that a seed has collapsed."""
    page = person.page
    person.click(page.get_by_role("button", name="Group seeds"))
    page.locator(".group-row", has_text="1 of 5 · NaN or infinity").wait_for()
    assert page.evaluate(f"[...document.querySelectorAll('.group-row .cut-head')].every({IS_WHOLE})")
    person.tick_group(RATES[-1], TURNS[1])
    person.tick_group(RATES[-2], TURNS[1], modifiers=["Shift"])
    person.click(page.locator(".table-chosen").get_by_text("Compare"))
    lines = "() => document.querySelector('.chart[data-name=\"critic/score/mean\"]')?.card.plot?.lines"
    page.wait_for_function(f"() => ({lines})()?.length === 3")
    curves_of = "...['main', 'min', 'max'].map(key => [...line[key].last])"
    drawn = page.evaluate(f"({lines})().map(line => [line.label, line.older.length, {curves_of}])")
    settings = [(RATES[-1], TURNS[1]), (RATES[-1], TURNS[0]), (RATES[-2], TURNS[1])]
    assert page.evaluate(f"({IS_WHOLE})(document.querySelector('.verdict-table').parentNode)")
    assert [label for label, *_ in drawn] == [setting_label(*setting) for setting in settings]
    for (label, count, *curves), setting in zip(drawn, settings, strict=True):
        seeds = of_seeds(demo_sweep, *setting, "critic/score/mean")
        half = t_quantile(len(SEEDS) - 1) * seeds.std(axis=0, ddof=1) / math.sqrt(len(SEEDS))
        for drawn_curve, curve in zip(curves, (seeds.mean(0), seeds.mean(0) - half, seeds.mean(0) + half), strict=True):
            assert drawn_curve == pytest.approx(curve, abs=1e-4)
        assert count == len(SEEDS)
        page.locator(".legend", has_text=f"{label} · {count} seeds").first.wait_for()
    person.done("three settings with the bands of their seeds")


def test_which_of_two_settings_is_better(person: Person, demo_sweep: Path):
    """A sentence says it, with the interval of the difference."""
    page = person.page
    compared = {setting_label(rate, 8).split()[1]: rate for rate in (RATES[0], RATES[-1])}
    person.click(page.get_by_role("button", name="Group seeds"))
    for rate in compared.values():
        person.tick_group(rate, 8)
    person.click(page.locator(".table-chosen").get_by_text("Compare"))
    sentence = page.locator(".verdicts", has_text="actor_lr=").inner_text().replace("−", "-")
    labels = re.findall(r"actor_lr=\S+?(?=:? )", sentence)
    numbers = re.fullmatch(r".*: (\S+) \((\S+) … (\S+)\)", sentence)
    assert numbers is not None
    last = [of_seeds(demo_sweep, compared[label], 8, "val/score/mean")[:, -1] for label in labels]
    difference, low, high = welch(*last)
    assert [float(one) for one in numbers.groups()] == pytest.approx([difference, low, high], abs=1e-3)
    word = "is better than" if low > 0 else "is worse than" if high < 0 else "cannot be told apart"
    assert word in sentence
    person.done("which of two settings is better")


def test_why_and_when_a_run_collapsed(person: Person, demo_sweep: Path):
    """The doctor's verdict leads the overview: values are NaN since the step after which nothing is solved any more."""
    loss, score = (
        values_of(demo_sweep / "sweep" / COLLAPSED, name) for name in ("actor/total_loss", "critic/score/mean")
    )
    since = int(np.flatnonzero(~np.isfinite(loss))[0])
    assert since >= FAULTS[COLLAPSED][1]
    assert score[: since + 1].max() > 0 == score[since + 1 :].max()
    person.open(COLLAPSED)
    banner = person.page.locator(".banner.bad")
    banner.get_by_text("NaN or infinity").first.wait_for()
    assert f"since step {since} actor/total_loss" in " ".join(banner.inner_text().split())
    person.done("why a run collapsed, and when")


def test_the_wrong_sample_with_the_highest_reward(person: Person, demo_sweep: Path):
    """An order of the samples begins with it; the reward of that run pays moves back and forth."""
    samples = barograph.open(demo_sweep / "sweep" / HACKED).samples()
    wrong = [one for one in samples if one.columns.get("correct") is False]
    highest = max(one.reward or 0.0 for one in wrong)
    expected = {(one.prompt, one.completion) for one in wrong if one.reward == highest}
    assert highest > 0
    page = person.page
    person.open(HACKED)
    person.click(page.locator(".tabs").get_by_text("Samples"))
    page.wait_for_selector(".sample-row")
    page.select_option(".bar select >> nth=0", "-reward where correct = false")
    person.clicks += 2  # the list, and the choice
    page.get_by_text(f"{len(wrong)} of {len(samples)} stored samples match").wait_for()
    eventually(lambda: tuple(page.locator(".sample-detail pre").all_inner_texts()[:2]) in expected)
    person.done("the wrong sample with the highest reward")


def test_the_entropy_of_three_frameworks(person: Person, demo_sweep: Path):
    """One chart has a line of each, whatever they call it: the same training has the same entropy."""
    page = person.page
    first, *_, last = reversed(FRAMEWORKS)
    person.click(page.get_by_label(f"Select: {first}", exact=True))
    person.click(page.get_by_label(f"Select: {last}", exact=True), modifiers=["Shift"])
    person.click(page.locator(".table-chosen").get_by_text("Charts"))
    page.fill(".bar input[type=search]", "entropy")
    page.wait_for_function("() => document.querySelector('.chart')?.dataset.name.includes('entropy')")
    lines = "() => document.querySelector('.chart').card.plot?.lines"
    page.wait_for_function(f"() => ({lines})()?.length === 3")
    found = page.evaluate(f"({lines})().map(line => [line.run, [...line.main.last]])")
    assert {run for run, _ in found} == set(FRAMEWORKS)
    for run, curve in found:
        assert curve == pytest.approx(values_of(demo_sweep / "frameworks" / run, FRAMEWORKS[run][1]))
        assert curve == pytest.approx(found[0][1])
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
    name = page.locator(".chart").first.get_attribute("data-name")
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
        page.locator(f".large-chart[data-name='{name}'], dialog .chart[data-name='{name}']").first.wait_for()
    person.done(task)


def seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]


def seconds_of_phase(view: barograph.View, phase: str, step: int) -> float:
    """Return how long a phase took in a step; a phase of a worker has a total over its stages."""
    series = view.series(f"time/{phase}/total" if f"time/{phase}/total" in view.names() else f"time/{phase}")
    return float(series.values[series.steps.tolist().index(step)])


def test_where_the_time_of_a_step_went(person: Person, demo_sweep: Path):
    """A click on the bar of step 12 shows its phases; those that took longest come first below the bars."""
    page = person.page
    view = barograph.open(demo_sweep / "sweep" / DETAILED)
    person.open(DETAILED)
    person.click(page.locator(".tabs").get_by_text("Time"))
    page.locator("canvas.stack").wait_for()
    page.wait_for_selector(".gantt")
    box = page.locator("canvas.stack").bounding_box()
    for place in range(0, int(box["width"]), 20):
        page.mouse.move(box["x"] + place, box["y"] + box["height"] / 2)
        if page.inner_text(".stack-caption").startswith("step 12:"):
            break
    page.mouse.down()
    page.mouse.up()
    person.clicks += 1
    page.wait_for_function("() => document.querySelectorAll('.view.time th')[1]?.textContent === 'step 12'")
    rows = {row[0]: row[1] for row in (one.split("\t") for one in page.locator("tbody tr").all_inner_texts())}
    expected = {phase: seconds_of_phase(view, phase, 12) for phase, took in rows.items() if took != "–"}
    assert {phase: seconds(rows[phase]) for phase in expected} == pytest.approx(expected, rel=0.01, abs=1e-6)
    parts = [one.split(" ", 1) for one in page.inner_text(".stack-caption").removeprefix("step 12: ").split(" · ")]
    took = [seconds(one) for _, one in parts]
    assert took == sorted(took, reverse=True)
    heading = page.get_by_role("heading", name="Timeline of step 12").inner_text()
    assert seconds(heading.split(" · ")[1]) == pytest.approx(sum(took), rel=0.01)
    longest = [phase for phase, _ in parts if phase != "unaccounted"]
    assert longest[0] == max(expected, key=expected.__getitem__)
    person.done("where the time of step 12 went")
