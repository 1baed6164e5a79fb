"""Time in a browser: the marked bar, the colours of phases, long names, and the mean per step."""

import itertools
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browsing import Open
from serving_runs import copy_run, serving

import barograph

STEPS = 12
LONG = "actor_rollout_ref/generate_sequences/wait_for_weights/sync_a"
PIXELS = "one => one.getContext('2d').getImageData(0, 0, one.width, one.height).data"
CHANGED = f"""one => {{
  const now = ({PIXELS})(one);
  const columns = new Set();
  for (let i = 0; i < now.length; i++) if (now[i] !== before[i]) columns.add((i >> 2) % one.width);
  const sorted = [...columns].sort((a, b) => a - b);
  const starts = sorted.filter(x => !columns.has(x - 1));
  const ends = sorted.filter(x => !columns.has(x + 1));
  return starts.map((start, i) => (start + ends[i]) / 2 / devicePixelRatio);
}}"""
"""JavaScript: the middles of the parts of a canvas, from left to right, that are not as they were ``before``."""
COLOURS = """() => {
  const colours = { legend: {}, rows: {} };
  for (const one of document.querySelectorAll('.stack-host + .legend .swatch'))
    colours.legend[one.lastChild.textContent] = getComputedStyle(one.querySelector('i')).backgroundColor;
  for (const row of document.querySelectorAll('.gantt g'))
    colours.rows[row.ariaLabel.split(':')[0]] = getComputedStyle(row.querySelector('rect:not(.row)')).fill;
  return colours;
}"""
"""JavaScript: the colours of phases in the legend of the bars and in the timeline."""
OKLAB = """colour => {
  const one = document.body.appendChild(document.createElement('i'));
  one.style.color = `color-mix(in oklab, ${colour}, ${colour})`;
  return getComputedStyle(one).color.match(/-?[\\d.]+(e-?\\d+)?/g).map(Number);
}"""
"""JavaScript: the coordinates of a colour."""


def train(dir: Path) -> Path:
    """Record a run with nested phases, one fewer in the last step, and an evaluation that begins every fourth step."""
    run = barograph.init(id="r0", name="r0", dir=dir)
    for step in range(STEPS):
        if step % 4 == 0:
            with run.phase("eval"):
                time.sleep(0.002)
        with run.phase("rollout"):
            for inner in ("rollout/wait", "rollout/score")[step == STEPS - 1 :]:
                with run.phase(inner):
                    time.sleep(0.001)
        with run.phase(LONG):
            time.sleep(0.001)
        run.log({"loss": 1.0})
        run.commit(step)
    run.finish()
    return Path(run.path)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Serve a run with phases, and a copy of it."""
    dir = tmp_path_factory.mktemp("time") / "runs"
    copy_run(train(dir), 1, "r1")
    with serving(dir) as client:
        yield client


def wait_for_step(page: Any, step: int) -> None:
    """Wait until the bar and the timeline of a step are shown."""
    page.wait_for_selector(f".gantt[aria-label='Timeline of step {step}']")
    page.wait_for_selector(f".stack-caption >> text=step {step}: ")


def test_the_bar_of_the_chosen_step_is_marked(pages: httpx.Client, visit: Open):
    """Of two pictures with different steps chosen, only the bars of these steps differ; a click chooses a step."""
    page = visit(f"{pages.base_url}/?run=r0&tab=time&step=3")
    wait_for_step(page, 3)
    bars = page.locator(".stack")
    bars.evaluate(f"one => {{ window.before = ({PIXELS})(one); }}")
    page.fill(".panel input[type=number]", "8")
    page.keyboard.press("Enter")
    wait_for_step(page, 8)
    places = bars.evaluate(CHANGED)
    assert len(places) == 2
    for place, step in zip(places, (3, 8), strict=True):
        bars.hover(position={"x": place, "y": 20})
        page.wait_for_selector(f".stack-caption >> text=step {step}: ")
    bars.click(position={"x": places[0], "y": 20})
    wait_for_step(page, 3)
    assert "step=3" in page.url
    assert bars.evaluate(CHANGED) == []


def test_a_phase_has_one_colour(pages: httpx.Client, visit: Open):
    """In the legend, in the timeline and at a step with other phases; one inside another has a shade of its colour."""
    page = visit(f"{pages.base_url}/?run=r0&tab=time&step=4")
    wait_for_step(page, 4)
    first = page.evaluate(COLOURS)
    legend = {text.rsplit(" ", 1)[0]: colour for text, colour in first["legend"].items() if "%" in text}
    inner = {"rollout/wait", "rollout/score"}
    assert list(first["rows"]) == ["eval", "rollout", "rollout/wait", "rollout/score", LONG]
    assert legend == {name: colour for name, colour in first["rows"].items() if name not in inner}
    assert len(set(first["rows"].values())) == 5
    page.click(".panel button[aria-label='+1']")
    wait_for_step(page, 5)
    second = page.evaluate(COLOURS)
    assert second["legend"] == first["legend"]
    assert second["rows"] == {name: colour for name, colour in first["rows"].items() if name != "eval"}
    card = page.evaluate(OKLAB, "var(--card)")
    outer = page.evaluate(OKLAB, legend["rollout"])
    for name in inner:
        shade = page.evaluate(OKLAB, first["rows"][name])
        share = (shade[0] - card[0]) / (outer[0] - card[0])
        assert 0.1 < share < 0.9
        assert shade == pytest.approx([c + share * (o - c) for c, o in zip(card, outer, strict=True)], abs=0.01)


def test_many_phases_have_different_colours(tmp_path: Path, visit: Open):
    """Thirty that no phase is around, which are more than the palette has, in both themes."""
    with barograph.init(id="many", dir=tmp_path / "runs") as run:
        for number in range(30):
            with run.phase(f"phase{number}"):
                time.sleep(0.0002)
        run.log({"loss": 1.0})
        run.commit(0)
    with serving(tmp_path / "runs") as client:
        for theme in ("light", "dark"):
            page = visit(f"{client.base_url}/?run=many&tab=time&theme={theme}")
            wait_for_step(page, 0)
            found = page.evaluate(COLOURS)
            assert len(found["rows"]) == 30
            colours = [page.evaluate(OKLAB, colour) for colour in found["rows"].values()]
            assert min(math.dist(a, b) for a, b in itertools.combinations(colours, 2)) > 0.03


def test_an_inner_phase_has_one_shade(pages: httpx.Client, visit: Open):
    """Also at a step that lacks another phase inside the same one."""
    page = visit(f"{pages.base_url}/?run=r0&tab=time&step={STEPS - 2}")
    wait_for_step(page, STEPS - 2)
    before = page.evaluate(COLOURS)["rows"]
    page.click(".panel button[aria-label='+1']")
    wait_for_step(page, STEPS - 1)
    now = page.evaluate(COLOURS)["rows"]
    assert set(before) - set(now) == {"rollout/wait"}
    assert now["rollout/score"] == before["rollout/score"]


def tooltip(page: Any) -> Any:
    """Return the tooltip of the row with the long name, which the row cuts off."""
    wait_for_step(page, 4)
    row = page.locator(f".gantt g[aria-label^='{LONG}']")
    assert row.locator(".name").text_content().startswith("…")
    row.hover()
    return page.locator(".tip:visible")


def test_the_tooltip_of_a_row_has_the_whole_name(pages: httpx.Client, visit: Open):
    """Of sixty characters, where the row shows their end."""
    tip = tooltip(visit(f"{pages.base_url}/?run=r0&tab=time&step=4", 800, 900))
    assert len(LONG) == 60
    tip.locator("strong", has_text=f"{LONG}: ").wait_for()


def test_a_long_name_fits_into_the_tooltip(pages: httpx.Client, visit: Open):
    """Its lines end after its parts."""
    tip = tooltip(visit(f"{pages.base_url}/?run=r0&tab=time&step=4", 800, 900))
    assert tip.evaluate("one => one.scrollWidth <= one.clientWidth")


def cells(page: Any, title: str, head: str) -> dict[str, str]:
    """Return the cells of a column of the table with a title, by phase."""
    panel = page.locator(".panel", has=page.get_by_role("heading", name=title, exact=True))
    panel.locator("td").first.wait_for()
    place = panel.locator("th").all_inner_texts().index(head)
    rows = [row.locator("td").all_inner_texts() for row in panel.locator("tbody tr").all()]
    return {row[0]: row[place] for row in rows}


def test_the_mean_per_step_is_the_same_in_both_tables(pages: httpx.Client, visit: Open):
    """In the table of Time and in that of Compare, also of a phase that not every step has."""
    page = visit(f"{pages.base_url}/?run=r0&tab=time")
    in_time = cells(page, "Phases", "mean per step")
    calls = cells(page, "Phases", "mean per call")
    page.goto(f"{pages.base_url}/?run=r0&with=r1&tab=compare&pool=none")
    compared = cells(page, "Time per step by phase", "r0")
    assert set(compared) == {"eval", "rollout", LONG}
    assert {name: text.split(" · ")[0] for name, text in compared.items()} == {name: in_time[name] for name in compared}
    assert in_time["eval"] != calls["eval"]
