"""The table of runs in a browser: its columns, conditions, groups and selection."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browsing import Open
from serving_runs import Serve, copy_run, eventually, serving
from sweep_runs import COLLAPSED

import barograph

MANY = 300
"""Runs in a table of which a small part is in sight."""


@pytest.fixture(scope="module")
def served(sweep: Path) -> Iterator[httpx.Client]:
    """Return a client of a server of the sweep that has read all runs."""
    with serving(sweep) as client:
        eventually(lambda: client.get("/api/table").json()["pending"] == 0)
        yield client


def names(page: Any) -> list[str]:
    """Return the names in the table from the top."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('.grid-row')].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)"
        ".map(row => row.querySelector('.table-name, .group-label').textContent)"
    )
    return found


def head(page: Any, column: str) -> Any:
    return page.locator(f'.grid-head [data-column="{column}"]')


def counted(page: Any, text: str) -> None:
    """Wait until the number of runs is as told."""
    page.locator(".table-count", has_text=text).wait_for()


def test_several_runs_open_with_their_table(served: httpx.Client, visit: Open):
    """Sorted by a click on a head, which the URL keeps; a name opens its run, and Back returns to the table."""
    page = visit(f"{served.base_url}/")
    counted(page, "43 of 43 runs")
    assert [cell.get_attribute("data-column") for cell in page.locator(".grid-head [data-column]").all()] == [
        "name", "status", "health", "steps", "duration", "last:validation", "best:validation", "last:reward",
        "actor.lr", "actor.clip", "seed",
    ]  # fmt: skip
    head(page, "best:validation").locator("button").click()
    page.wait_for_function("() => document.querySelector('[aria-sort=descending]')")
    best = names(page)[0]
    assert best.startswith("lr1e-05-clip0.2")
    page.get_by_role("link", name=best).click()
    page.locator(".run-heading", has_text=best).wait_for()
    page.go_back()
    counted(page, "43 of 43 runs")
    assert names(page)[0] == best
    page.reload()
    counted(page, "43 of 43 runs")
    assert names(page)[0] == best


def test_only_the_rows_in_sight_are_in_the_page(serve: Serve, visit: Open, tmp_path: Path):
    """Of hundreds; others take their place while one scrolls."""
    run = barograph.init(id="r000", name="r000", dir=tmp_path / "runs")
    run.log({"loss": 1.0}, step=0)
    run.finish()
    for number in range(1, MANY):
        copy_run(Path(run.path), number, f"r{number:03d}")
    page = visit(f"{serve().base_url}/?tab=table&by=name")
    counted(page, f"{MANY} of {MANY} runs")
    for place, name in ((0, "r000"), (1e6, f"r{MANY - 1}"), (17 * MANY, f"r{MANY // 2}")):
        page.locator(".grid").evaluate("(grid, place) => { grid.scrollTop = place; }", place)
        page.locator(f'.grid-row[data-key="{name}"]').wait_for()
        assert page.locator(".grid-row").count() < MANY / 4


def test_long_config_keys_fit_on_a_phone(serve: Serve, visit: Open, tmp_path: Path):
    """The choice of groups is as wide as the screen allows, and not as its longest option."""
    key = "actor_rollout_ref.actor.fsdp_config.optimizer_offload_to_host_memory_between_the_updates"
    for number in range(2):
        barograph.init(id=f"run{number}", dir=tmp_path / "runs", config={key: number, f"{key}.too": number}).finish()
    client = serve()
    eventually(lambda: client.get("/api/table").json()["pending"] == 0)
    page = visit(f"{client.base_url}/?lang=en", width=390)
    page.locator(".table-count", has_text="2 of 2 runs").wait_for()
    assert page.locator("select[aria-label='Group by'] option", has_text=key).count()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_conditions_filter_and_say_what_is_wrong(served: httpx.Client, visit: Open, console_errors: list[str]):
    """The rows stay while an expression is wrong."""
    page = visit(f"{served.base_url}/?tab=table")
    counted(page, "43 of 43 runs")
    page.fill("#where", "validation < 0.1 and tag = sweep")
    counted(page, "1 of 43 runs")
    assert names(page) == [COLLAPSED]
    page.fill("#where", "validation <")
    page.locator(".where-problem", has_text="expected NAME < VALUE").wait_for()
    page.fill("#where", "actor.rl > 1")
    page.locator(".where-problem", has_text="no run has 'actor.rl'").wait_for()
    page.fill("#where", "actor.lr = 1e-6")
    counted(page, "10 of 43 runs")
    assert page.inner_text(".where-problem") == ""
    assert "only=actor.lr+%3D+1e-6" in page.url
    assert all("400" in text for text in console_errors)
    console_errors.clear()


def test_runs_are_grouped_and_selected(served: httpx.Client, visit: Open):
    """Groups of seeds have means; a tick selects all their runs, with shift a range; a group unfolds."""
    page = visit(f"{served.base_url}/?tab=table&only=tag+%3D+sweep&by=-best:validation")
    counted(page, "40 of 43 runs")
    page.get_by_label("Group by").select_option("seeds")
    page.locator(".group-row").nth(7).wait_for()
    assert names(page)[0] == "lr=1e-5 clip=0.2"
    first = page.locator(".group-row", has_text="lr=1e-5 clip=0.2")
    assert "5 seeds" in first.inner_text()
    assert "±" in first.inner_text()
    first.get_by_role("checkbox").click()
    page.locator(".table-chosen", has_text="5 selected").wait_for()
    page.locator(".group-row").nth(2).get_by_role("checkbox").click(modifiers=["Shift"])
    page.locator(".table-chosen", has_text="15 selected").wait_for()
    page.get_by_label("Show the runs: lr=1e-5 clip=0.2").click()
    page.locator(".name-cell.inside").nth(4).wait_for()
    assert page.locator(".name-cell.inside input:checked").count() == 5
    page.get_by_label("Select all").click()
    page.locator(".table-chosen", has_text="40 selected").wait_for()
    page.go_back()
    page.locator(".table-chosen", has_text="15 selected").wait_for()


def test_runs_are_grouped_by_a_tag_and_by_a_setting(served: httpx.Client, visit: Open):
    """Both are chosen in the field; the runs without one are a group too."""
    page = visit(f"{served.base_url}/?tab=table")
    counted(page, "43 of 43 runs")
    groups = page.locator(".group-row .name-cell")
    for choice, expected in (
        ("tag", {"tag=none 3 runs", "tag=sweep 40 runs"}),
        ("actor.lr", {"lr=none 3 runs", *(f"lr={rate} 10 runs" for rate in ("1e-6", "3e-6", "1e-5", "3e-5"))}),
    ):
        page.get_by_label("Group by").select_option(label=choice)
        groups.nth(len(expected) - 1).wait_for()
        assert {" ".join(text.split()[1:]) for text in groups.all_inner_texts()} == expected
        page.reload()
        groups.nth(len(expected) - 1).wait_for()
    page.get_by_label("Group by").select_option(label="nothing")
    page.wait_for_function("() => document.querySelector('.grid-row') && !document.querySelector('.group-row')")


def test_columns_are_chosen_moved_and_resized(served: httpx.Client, visit: Open, tmp_path: Path):
    """The URL keeps them; the CSV has the columns that are shown, of all runs that are."""
    page = visit(f"{served.base_url}/?tab=table&cols=steps,actor.lr&only=actor.lr+%3D+1e-6")
    counted(page, "10 of 43 runs")
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("Value").select_option("mean")
    page.get_by_label("Find a fact").fill("score/mean")
    page.locator('.found [data-column="mean10:critic/score/mean"]').click()
    page.get_by_label("Move left: actor.lr").click()
    page.get_by_role("button", name="Close").click()
    head(page, "mean10:critic/score/mean").wait_for()
    assert "cols=actor.lr%2Csteps%2Cmean10%253Acritic%252Fscore%252Fmean" in page.url
    head(page, "actor.lr").drag_to(head(page, "mean10:critic/score/mean"))
    page.wait_for_function("() => document.querySelectorAll('.grid-head [data-column]')[1].dataset.column === 'steps'")
    before = head(page, "steps").bounding_box()["width"]
    head(page, "steps").locator(".resizer").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "before => document.querySelector('[data-column=steps]').offsetWidth >= before + 15", arg=before
    )
    page.locator(".grid-row").first.wait_for()
    with page.expect_download() as found:
        page.get_by_role("button", name="CSV").click()
    lines = Path(found.value.path()).read_text().splitlines()
    assert lines[0] == "key,name,steps,actor.lr,mean10:critic/score/mean"
    assert len(lines) == 11
    assert lines[1].split(",")[2:4] == ["23", "0.000001"]


def test_news_do_not_disturb(served: httpx.Client, visit: Open):
    """What would be the same is not made again when runs change, and what is made again keeps the focus."""
    page = visit(f"{served.base_url}/?tab=table&only=tag+%3D+sweep")
    counted(page, "40 of 43 runs")
    kept = ".table-tools button, select[aria-label='Group by'], .grid-head [data-column=steps]"
    page.evaluate("kept => document.querySelectorAll(kept).forEach(one => { one.isKept = true; })", kept)
    key = page.locator(".grid-row").nth(3).get_attribute("data-key")
    focused = f"() => document.activeElement.closest('[data-key]')?.dataset.key === '{key}'"
    page.locator(f".grid-row[data-key='{key}']").get_by_role("checkbox").focus()
    page.wait_for_function(focused)
    page.evaluate("document.querySelectorAll('.grid-row').forEach(row => { row.isOld = true; })")
    before = served.patch(f"/api/runs/{key}", json={"note": "news"}).json()["before"]
    page.wait_for_function("() => ![...document.querySelectorAll('.grid-row')].some(row => row.isOld)")
    page.wait_for_function(focused)
    assert page.evaluate("kept => [...document.querySelectorAll(kept)].every(one => one.isKept)", kept)
    head(page, "steps").locator(".resizer").focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.activeElement.closest('[data-column]')?.dataset.column === 'steps'")
    served.patch(f"/api/runs/{key}", json=before)


def test_runs_are_annotated_and_compared_with_a_baseline(serve: Serve, visit: Open, tmp_path: Path):
    """Tags, pins and hidden runs from the menu of a row; differences from the baseline stand in the cells."""
    for number, name in enumerate(("one", "two", "three")):
        run = barograph.init(id=name, name=name, dir=tmp_path / "runs", config={"lr": number})
        run.log({"loss": float(number)}, step=0)
        run.finish()
    page = visit(f"{serve().base_url}/?tab=table&cols=loss,tag,lr")
    counted(page, "3 of 3 runs")
    assert names(page) == ["three", "two", "one"]

    def choose(name: str, item: str) -> None:
        page.locator(f'.grid-row[data-key="{name}"]').hover()
        page.locator(f'.grid-row[data-key="{name}"] .more').click()
        page.get_by_role("menuitem", name=item).click()

    choose("one", "Tags …")
    page.get_by_label("Tags, separated by commas").fill("sweep, big")
    page.keyboard.press("Enter")
    page.locator('.grid-row[data-key="one"]', has_text="#sweep #big").wait_for()
    choose("one", "Pin")
    page.wait_for_function("() => document.querySelector('[aria-rowindex=\"2\"]').dataset.key === 'one'")
    choose("two", "Compare others with it")
    page.locator(".baseline-note", has_text="Baseline: two").wait_for()
    page.locator('.grid-row[data-key="three"] .difference', has_text="+1").first.wait_for()
    assert names(page)[0] == "two"
    choose("three", "Hide")
    counted(page, "2 of 3 runs")
    page.locator(".table-tools").get_by_text("show 1 hidden").click()
    counted(page, "3 of 3 runs")


def test_the_list_is_resized_and_cuts_names_in_the_middle(serve: Serve, visit: Open, tmp_path: Path):
    """The end of a long name is seen at any width; the width is kept."""
    long = "qwen2-7b-gsm8k-with-a-very-long-name-lr1e-6-seed3"
    barograph.init(id="a", name=long, dir=tmp_path / "runs").finish()
    page = visit(f"{serve().base_url}/?run=a")
    page.locator(".cut-tail", has_text="lr1e-6-seed3").first.wait_for()
    right = "selector => document.querySelector(selector).getBoundingClientRect().right"
    assert page.evaluate(right, ".run .cut-tail") <= page.evaluate(right, ".side")
    assert page.locator(".run .run-text").text_content() == long
    edge = page.locator(".side-edge").bounding_box()
    page.mouse.move(edge["x"] + 4, 300)
    page.mouse.down()
    page.mouse.move(500, 300)
    page.mouse.up()
    assert page.locator(".side").bounding_box()["width"] == 500
    page.reload()
    page.locator(".run .cut-tail").wait_for()
    assert page.locator(".side").bounding_box()["width"] == 500


def setting(rate: float, clip: float) -> list[str]:
    return [f"lr{rate:g}-clip{clip}-s{seed}" for seed in range(5)]


def comparing(served: httpx.Client, runs: list[str]) -> str:
    return f"{served.base_url}/?tab=compare&run={runs[0]}&with={','.join(runs[1:])}"


def test_seeds_are_one_line_with_a_band(served: httpx.Client, visit: Open):
    """The number of seeds is said, each run is behind the line, and without groups every run has its own line."""
    page = visit(comparing(served, [*setting(1e-6, 0.2), *setting(1e-5, 0.2)]))
    page.locator(".legend", has_text="lr=1e-6 · 5 seeds").wait_for()
    lines = "() => document.querySelector('.chart[data-name=\"critic/score/mean\"]')?.card.plot?.lines"
    page.wait_for_function(f"() => ({lines})()?.length === 2")
    drawn = page.evaluate(f"({lines})().map(line => [line.label, line.older.length, line.main.last.length,"
                          "[...line.max.last].every((high, i) => high > line.main.last[i])])")  # fmt: skip
    assert drawn == [["lr=1e-6", 5, 24, True], ["lr=1e-5", 5, 24, True]]
    page.get_by_label("Group by").select_option("none")
    page.wait_for_function(f"() => ({lines})()?.length === 10")
    assert page.locator(".verdicts").count() == 0


def test_compare_tells_which_group_is_better(served: httpx.Client, visit: Open):
    """In a sentence with the interval; another metric and another group can be chosen; few seeds decide nothing."""
    page = visit(comparing(served, [*setting(1e-6, 0.2), *setting(1e-5, 0.2)]))
    page.locator(".verdicts", has_text="lr=1e-5 is better than lr=1e-6: 0.25").wait_for()
    page.get_by_label("compared with").select_option("lr=1e-5")
    page.locator(".verdicts", has_text="lr=1e-6 is worse than lr=1e-5: −0.25").wait_for()
    page.get_by_label("by", exact=True).select_option("actor/approxkl")
    page.locator(".verdicts", has_text="cannot be told apart").wait_for()
    assert "metric=actor%2Fapproxkl" in page.url
    page.go_back()
    page.locator(".verdicts", has_text="lr=1e-6 is worse than lr=1e-5").wait_for()
    page = visit(comparing(served, [*setting(1e-6, 0.2)[:2], *setting(1e-5, 0.2)]) + "&lang=zh")
    page.locator(".verdicts", has_text="种子不够").wait_for()


def test_overview_time_and_evaluation_show_all_selected_runs(served: httpx.Client, visit: Open):
    """The curves of each in its colour; phases side by side."""
    runs = ["lr1e-05-clip0.2-s0", "lr1e-06-clip0.2-s1", "from-trl"]
    query = f"run={runs[0]}&with={','.join(runs[1:])}"
    page = visit(f"{served.base_url}/?{query}&tab=overview")
    page.locator(".selection-legend", has_text=runs[2]).wait_for()
    page.locator(f'.vital[data-key="validation"] canvas[aria-label*="{runs[1]}"]').wait_for()
    page.goto(f"{served.base_url}/?{query}&tab=evaluation")
    page.locator(".legend", has_text=runs[1]).first.wait_for()
    page.goto(f"{served.base_url}/?{query}&tab=time")
    phases = page.locator(".panel", has_text=runs[1])
    phases.wait_for()
    assert phases.locator("th").all_inner_texts() == ["phase", *runs]
