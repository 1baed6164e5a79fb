"""Reports in a browser: written on the page, saved as a file, and opened without a server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browsing import Open
from serving_runs import serving
from sweep_runs import make_two_settings

from barograph.apps.cli import main

LINES = "() => [...document.querySelectorAll('.block .chart')].map(one => one.card.plot.lines.map(line => line.label))"
"""JavaScript: the names of the lines in each chart of the report."""
THREE = "run=lr1e-05-clip0.2-s0&with=lr1e-05-clip0.2-s1,lr3e-05-clip0.2-s0"
HOSTILE = """\
# <img src=x onerror="window.hit=1">

<script>window.hit = 2</script> [link](javascript:window.hit=3) [data](data:text/html,x) ![pic](http://evil.test/x.png)
[fine](https://example.org/?a=1) <https://example.org/b> $\\href{javascript:window.hit=4}{x}$

```chart
reward
title: </script><svg onload="window.hit=5">
```
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with two settings of two seeds each."""
    return make_two_settings(tmp_path_factory.mktemp("runs"), 2)


@pytest.fixture(scope="module")
def served(runs: Path) -> Iterator[httpx.Client]:
    """Return a client of a server of the runs."""
    with serving(runs) as client:
        yield client


def charts(page: Any, count: int) -> list[list[str]]:
    """Wait until so many charts have their lines, and return the names of these."""
    page.wait_for_function(
        f"() => {{ const all = ({LINES})(); return all.length === {count} && all.every(a => a.length); }}"
    )
    found: list[list[str]] = page.evaluate(LINES)
    return found


def tool(page: Any, place: int, label: str) -> Any:
    block = page.locator(".block").nth(place)
    block.hover()
    return block.get_by_role("button", name=label, exact=True)


def undo(page: Any) -> None:
    page.locator(".toast .offer", has_text="Undo").wait_for()
    page.keyboard.press("u")
    page.locator(".toast", has_text="Undone.").wait_for()


def test_a_report_is_written_on_the_page(served: httpx.Client, visit: Open, tmp_path: Path):
    """From selected runs: notes and charts are added, moved, changed and removed, and each removal can be undone."""
    page = visit(
        f"{served.base_url}/?tab=table&lang=en&run=lr1e-05-clip0.2-s0&with=lr1e-05-clip0.2-s1,lr3e-05-clip0.2-s0"
    )
    page.locator(".table-chosen button", has_text="Report").click()
    page.locator("dialog input").fill("Rates")
    page.locator("dialog .primary").click()
    assert charts(page, 4)[0] == ["lr=1e-5", "lr3e-05-clip0.2-s0"]  # two seeds are one line, and one run is alone
    page.locator(".add-bar button", has_text="Note").click()
    page.locator("textarea").fill("## Seen\n\nIt **rises**.")
    page.keyboard.press("Control+Enter")
    page.locator(".block h2", has_text="Seen").wait_for()
    tool(page, 5, "Remove").click()
    charts(page, 3)
    undo(page)
    charts(page, 4)
    tool(page, 6, "Move up").click()
    page.wait_for_function("() => document.querySelectorAll('.block')[5].querySelector('h2')")
    tool(page, 2, "Edit").click()
    page.locator("dialog select").first.select_option("none")
    page.locator("dialog label", has_text="Title").locator("input").fill("Single runs")
    page.locator("dialog .primary").click()
    page.locator(".block h3", has_text="Single runs").wait_for()
    assert len(charts(page, 4)[0]) == 3
    text = served.post("/api/report", json={"name": "Rates"}).json()["text"]
    assert "```chart\nreward\ntitle: Single runs\nby: none\n```" in text
    page.reload()
    charts(page, 4)
    with page.expect_download() as saved:
        page.locator("button", has_text="Save as one file").click()
    saved.value.save_as(tmp_path / "rates.html")
    page.locator("button", has_text="Delete").click()
    page.locator(".empty", has_text="No reports yet.").wait_for()
    undo(page)
    charts(page, 4)
    page.goto((tmp_path / "rates.html").as_uri())
    assert len(charts(page, 4)[0]) == 3
    page.locator("#language").click()
    page.locator("button", has_text="打印").wait_for()
    assert page.locator(".block-tools, .add-bar").count() == 0  # a file is read


def test_a_chart_is_added_to_a_report(served: httpx.Client, visit: Open):
    """As it looks: its runs, groups, smoothing, scale and zoom; adding it can be undone."""
    served.post("/api/reports", json={"name": "Kept", "text": "# Kept\n"})
    page = visit(
        f"{served.base_url}/?tab=compare&lang=en&{THREE}&filter=critic/score/mean&smooth=0.5&log=1&from=2&to=9"
    )
    page.wait_for_selector(".chart canvas")
    page.locator(".chart").hover()
    for label in ("Save or copy", "Add to a report", "Kept"):
        page.get_by_role("menuitem" if label != "Save or copy" else "button", name=label).first.click()
    page.locator(".toast", has_text="Added to “Kept”.").wait_for()
    assert served.post("/api/report", json={"name": "Kept"}).json()["text"] == (
        "# Kept\n\n```chart\ncritic/score/mean\nruns: lr1e-05-clip0.2-s0, lr1e-05-clip0.2-s1, lr3e-05-clip0.2-s0\n"
        "by: seeds\nscale: log\nsmooth: 0.5\nsteps: 2 to 9\n```\n"
    )
    undo(page)
    assert served.post("/api/report", json={"name": "Kept"}).json()["text"] == "# Kept\n"


def test_words_in_a_report_are_no_code(runs: Path, visit: Open, tmp_path: Path):
    """Tags, handlers and addresses of scripts stay text, and the file asks the network for nothing; paper is light."""
    (tmp_path / "notes.md").write_text(HOSTILE, encoding="utf-8")
    file = tmp_path / "report.html"
    assert main(["report", str(runs), "--notes", str(tmp_path / "notes.md"), "-o", str(file)]) == 0
    page = visit("about:blank")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{file.as_uri()}#lang=en&theme=dark")
    charts(page, 1)
    assert page.evaluate("window.hit") is None
    assert page.locator(".block :is(script, img, iframe), .note-block svg").count() == 0
    assert page.locator(".block a").evaluate_all("all => all.map(one => [one.href, one.rel])") == [
        ["https://example.org/?a=1", "noopener noreferrer nofollow"],
        ["https://example.org/b", "noopener noreferrer nofollow"],
    ]
    assert page.locator(".block h1").inner_text() == '<img src=x onerror="window.hit=1">'
    assert set(asked) == {file.as_uri()}
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.emulate_media(media="print")
    assert page.locator(".bar, #theme, .chart .tools").evaluate_all("all => all.every(one => !one.checkVisibility())")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_chart_without_lines_tells_why(served: httpx.Client, visit: Open):
    """In place of an empty plot; a legend has each line once, with the dashes of its metric."""
    lines = ("nonsense", "reward\nagainst: entropy", "reward, validation\nby: none")
    text = "\n\n".join(f"```chart\n{one}\n```" for one in lines)
    served.post("/api/reports", json={"name": "Odd", "text": text})
    page = visit(f"{served.base_url}/?tab=report&report=Odd&lang=en&{THREE}")
    single, several = charts(page, 2)
    assert page.locator(".block").first.inner_text() == "none of the runs has 'nonsense'"
    legends = page.locator(".block .chart header").evaluate_all(
        "all => all.map(one => [...one.querySelectorAll('.swatch')].map(two => two.textContent))"
    )
    assert legends == [single, [*several[:3], *(f"╌ {label}" for label in several[3:])]]
    assert len(several) == 6
