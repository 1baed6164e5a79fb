"""The page in a real browser: every view in both languages, and its interactions."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import CURVE, READY, TABS, Open, drawn
from serving_runs import HTML, Serve, eventually

import barograph
from barograph.apps.cli import main
from barograph.apps.page.files import WEB
from barograph.recording.probe.phases import HostClock

REQUESTS = """async () => {
  const all = () => ["navigation", "resource"].flatMap(type => performance.getEntriesByType(type));
  for (let count = 0; count < all().length; ) {
    count = all().length;
    await new Promise(done => setTimeout(done, 500));
  }
  const facts = ({ name, transferSize, decodedBodySize }) => ({
    path: new URL(name).pathname, isFirst: !/[?&](since|key)=/.test(name), sent: transferSize, size: decodedBodySize,
  });
  return all().map(facts);
}"""
"""JavaScript: the requests of a page until no more follow, with bytes on the wire and bytes of the decoded body."""


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_view_opens_in_both_languages(serve: Serve, demo: barograph.Run, visit: Open, language: str):
    """No view leaves an error in the console, and none scrolls sideways, on a laptop and on a phone."""
    base = str(serve().base_url)
    for width, height in ((1280, 800), (390, 844)):
        page = visit(f"{base}/?run=demo&lang={language}", width, height)
        for tab in TABS:
            page.evaluate("tab => document.querySelectorAll('.tabs a')[tab].click()", TABS.index(tab))
            page.wait_for_selector(READY[tab])
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (tab, width)
        assert page.get_attribute("html", "lang") == {"en": "en", "zh": "zh-CN"}[language]


def test_an_unhealthy_run_is_reported(serve: Serve, visit: Open):
    """A falling reward and a growing KL give a bad verdict in both languages, and every view opens."""
    run = barograph.init(project="p", name="sick", id="sick")
    for step in range(60):
        kl = math.inf if step == 59 else 0.01 * math.exp(step / 10)
        run.log({"critic/score/mean": math.exp(-step / 15), "actor/approxkl": kl, "critic/loss": math.nan}, step=step)
    run.finish(barograph.Status("crashed", "out of memory"))
    base = str(serve().base_url)
    page = visit(f"{base}/?run=sick")
    for language, verdict in (("en", "Something is wrong"), ("zh", "出现问题")):
        for tab in TABS:
            page.goto(f"{base}/?run=sick&lang={language}&tab={tab}")
            page.wait_for_selector(".banner.bad" if tab == "overview" else ".empty, .chart canvas, .kv, .names-count")
            if tab == "overview":
                assert page.inner_text(".banner h1") == verdict
    assert "crashed" in (page.get_attribute(".heading .chip", "class") or "")


def test_logged_text_is_never_markup(serve: Serve, demo: barograph.Run, visit: Open):
    """HTML in names, samples and configs is shown as text."""
    base = str(serve().base_url)
    page = visit(f"{base}/?run=demo&theme=dark")
    for tab in TABS:
        page.goto(f"{base}/?run=demo&tab={tab}")
        page.wait_for_selector(READY[tab])
        assert page.locator("img").count() == 0
        assert HTML in page.inner_text(".run-heading")
    page.goto(f"{base}/?run=demo&tab=config")
    page.wait_for_selector(READY["config"])
    assert HTML in page.inner_text(".kv")
    page.goto(f"{base}/?run=demo&tab=names")
    page.wait_for_selector(READY["names"])
    assert HTML in page.inner_text(".names")
    page.goto(f"{base}/?run=demo&tab=samples")
    page.wait_for_selector(READY["samples"])
    assert HTML in page.inner_text(".sample-detail")
    page.goto(f"{base}/?run=demo&tab=charts&filter=onerror")
    assert len(drawn(page, HTML)["x"]) == 40


def test_a_spike_and_a_nan_are_drawn_at_every_zoom(serve: Serve, visit: Open):
    """One high point and one NaN among 50,000 are in the drawn curve."""
    run = barograph.init(project="p", name="long", id="long")
    values = np.sin(np.arange(50_000) / 500)
    values[31_234], values[12_345] = 900.0, math.nan
    for step, value in enumerate(values.tolist()):
        run.log({"loss": value}, step=step)
    run.finish()
    base = str(serve().base_url)
    page = visit(f"{base}/?run=long&tab=charts")
    for low, high in ((None, None), (0, 49_999), (10_000, 40_000), (31_000, 31_500), (31_230, 31_240)):
        page.goto(f"{base}/?run=long&tab=charts" + ("" if low is None else f"&from={low}&to={high}"))
        found = drawn(page, "loss")
        assert max(found["max"]) == 900.0
        assert sum(found["nonfinite"]) == (low is None or low <= 12_345 <= high)
        assert len(found["x"]) <= 1000
    page.goto(f"{base}/?run=long&tab=overview")
    page.wait_for_selector(".overview .absent li")  # a loss alone is no headline value


def test_one_value_of_twenty_five_million_is_drawn_at_every_zoom(serve: Serve, visit: Open):
    """One high value and one NaN among 5,000 steps of 5,000 metrics."""
    count, at, bad_at = 5000, 3210, 2109
    run = barograph.init(project="p", name="large", id="large")
    names = [f"layer_{n:04d}/norm" for n in range(count)]
    usual = dict(zip(names, np.linspace(0.0, 1.0, count).tolist(), strict=True))
    for step in range(count):
        run.log(
            usual if step not in (at, bad_at) else usual | {names[4321]: 777.0 if step == at else math.nan}, step=step
        )
    run.finish()
    base = f"{serve().base_url}/?run=large&tab=charts&filter=layer_432[0-2]"
    page = visit(base)
    for low, high in ((None, None), (0, 4999), (3000, 3500), (3209, 3211)):
        page.goto(base + ("" if low is None else f"&from={low}&to={high}"))
        found = drawn(page, names[4321])
        assert max(found["max"]) == 777.0
        assert sum(found["nonfinite"]) == (low is None or low <= bad_at)
        assert max(drawn(page, names[4320])["max"]) < 1.0


def test_zooming_works_on_every_axis(serve: Serve, demo: barograph.Run, visit: Open):
    """A range of tokens, samples or seconds shows the points inside it."""
    base = f"{serve().base_url}/?run=demo&tab=charts&filter=approxkl"
    page = visit(base)
    for x in ("tokens", "relative", "time", "samples"):
        page.goto(f"{base}&x={x}")
        whole = drawn(page, "actor/approxkl")["x"]
        page.goto(f"{base}&x={x}&from={whole[10]}&to={whole[20]}")
        assert drawn(page, "actor/approxkl")["x"] == whole[10:21]


def test_dragging_zooms_all_charts_and_a_double_click_resets(serve: Serve, demo: barograph.Run, visit: Open):
    """The zoom is in the URL, applies to every chart, and Back undoes it."""
    page = visit(f"{serve().base_url}/?run=demo&tab=charts&filter=score")
    drawn(page, "critic/score")
    box = page.locator(".chart .u-over").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40, steps=4)
    page.mouse.up()
    page.wait_for_function("() => new URLSearchParams(location.search).has('from')")
    page.wait_for_function(f"name => ({CURVE})(name)?.x.length < 40", arg="critic/score")
    assert 8 <= drawn(page, "critic/score")["x"][0] <= 11
    page.go_back()
    page.wait_for_function(f"name => ({CURVE})(name)?.x.length === 40", arg="critic/score")
    page.go_forward()
    page.wait_for_function("() => new URLSearchParams(location.search).has('from')")
    page.locator(".chart .u-over").first.dblclick()
    page.wait_for_function("() => !new URLSearchParams(location.search).has('from')")


def test_the_cursor_shows_values_in_every_chart(serve: Serve, demo: barograph.Run, visit: Open):
    """The cursor of one chart shows the same step in the others."""
    page = visit(f"{serve().base_url}/?run=demo&tab=charts")
    drawn(page, "critic/score")
    page.locator(".chart .u-over").first.hover()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.chart .sub')].filter(s => /^step \\d+/.test(s.textContent)).length > 2"
    )
    steps = page.evaluate(
        "[...document.querySelectorAll('.chart .sub')].map(s => s.firstChild.textContent.match(/^step (\\d+)$/)?.[1])"
        ".filter(Boolean)"
    )
    assert len(set(steps)) == 1


def test_a_new_step_appears_by_itself(serve: Serve, visit: Open):
    """New values are appended to open charts, and a new run appears in the list."""
    run = barograph.init(project="p", name="going on", id="live")
    for step in range(5):
        run.log({"critic/score/mean": float(step)}, step=step)
    base = str(serve().base_url)
    page = visit(f"{base}/?run=live&tab=charts")
    assert drawn(page, "critic/score/mean")["last"] == [0, 1, 2, 3, 4]
    run.log({"critic/score/mean": 77.0}, step=5)
    page.wait_for_function(f"name => ({CURVE})(name)?.last.at(-1) === 77", arg="critic/score/mean")
    assert drawn(page, "critic/score/mean")["last"] == [0, 1, 2, 3, 4, 77]
    page.wait_for_function("() => document.querySelector('.heading').textContent.includes('step 5')")
    other = barograph.init(project="p", name="a second one", id="second", concurrent=True)
    page.wait_for_selector("text=a second one")
    other.finish()
    run.finish()
    page.wait_for_selector(".heading .chip.finished")


def test_only_what_is_new_is_fetched_and_drawn(serve: Serve, visit: Open, monkeypatch: pytest.MonkeyPatch):
    """Of three overlaid runs only the one with a new step is asked for, and only the chart that changes is drawn."""
    monkeypatch.setattr("barograph.recording.run.HEARTBEAT_SECONDS", 600.0)
    runs = {key: barograph.init(id=key, name=key, concurrent=True) for key in ("one", "two", "three")}
    for step in range(5):
        for run in runs.values():
            run.log({"loss": float(step), "rare": 1.0}, step=step)
    page = visit(f"{serve().base_url}/?run=one&with=two,three&tab=charts")
    plot = "name => [...document.querySelectorAll('.chart')].find(one => one.dataset.name === name)?.card.plot"
    page.wait_for_function(f"() => ['loss', 'rare'].every(name => ({plot})(name)?.lines.length === 3)")
    for run in runs.values():  # behind the first events of the stream
        run.log({"loss": 5.0, "rare": 1.0}, step=5)
    page.wait_for_function(f"() => ({plot})('rare').lines.every(line => line.main.x.at(-1) === 5)")
    page.wait_for_function(f"() => ({plot})('loss').lines.every(line => line.main.x.at(-1) === 5)")
    asked: list[list[tuple[str, str]]] = []
    page.on("request", lambda one: "/api/series" in one.url and asked.append(names_of(one.post_data_json)))
    page.wait_for_timeout(600)
    while asked:  # news of the steps before may still be under way
        asked.clear()
        page.wait_for_timeout(600)
    page.evaluate(f"window.kept = ({plot})('rare').lines; window.value = ({plot})('loss').card.sub.firstChild")
    runs["two"].log({"loss": 77.0}, step=6)
    page.wait_for_function(f"() => ({plot})('loss').lines[1].main.last.at(-1) === 77")
    assert {key for names in asked for key in names} == {("two", "loss"), ("two", "rare")}
    assert page.evaluate(f"({plot})('rare').lines === kept")
    assert page.evaluate(f"({plot})('loss').card.sub.firstChild === value")
    assert page.locator(".chart[data-name=loss] .val").all_inner_texts() == ["5", "77", "5"]
    for run in runs.values():
        run.finish()


def names_of(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return run and name of each requested series."""
    return [(one["run"], one["name"]) for one in body["series"]]


def test_a_superseded_attempt_is_drawn_behind_the_newer_one(serve: Serve, visit: Open):
    """After a restart the superseded steps are a line of their own."""
    for steps in (range(6), range(3, 5)):
        run = barograph.init(project="p", name="restarted", id="again")
        for step in steps:
            run.log({"loss": float(len(steps))}, step=step)
        run.finish()
    page = visit(f"{serve().base_url}/?run=again&tab=charts")
    assert drawn(page, "loss")["last"] == [6, 6, 6, 2, 2]
    older = page.evaluate("document.querySelector('.chart').card.plot.lines[0].older.map(one => [...one.last])")
    assert len(older) == 1
    assert set(older[0]) == {6}


def test_each_of_three_attempts_is_drawn_to_its_end(serve: Serve, visit: Open):
    """Both superseded attempts are lines of their own, and the x axis reaches the longest one's last step."""
    for attempt, steps in ((1, range(10)), (2, range(5, 13)), (3, range(3, 7))):
        run = barograph.init(project="p", name="thrice", id="thrice")
        for step in steps:
            run.log({"loss": float(attempt)}, step=step)
        run.finish()
    page = visit(f"{serve().base_url}/?run=thrice&tab=charts")
    assert drawn(page, "loss")["last"] == [1, 1, 1, 3, 3, 3, 3]
    plot = "document.querySelector('.chart').card.plot"
    assert page.evaluate(f"{plot}.lines[0].older.map(one => [...one.last])") == [[1] * 10, [2] * 8]
    assert page.evaluate(f"{plot}.lines[0].older.map(one => one.x.at(-1))") == [9, 12]
    assert page.evaluate(f"{plot}.xs") == [0, 12]


def test_the_load_of_engines_is_drawn_beside_the_phases(serve: Serve, visit: Open):
    """In Time, with the phases or without any; a step that arrives is added."""
    run = barograph.init(id="engines")
    run.log({"engine/requests/running": 12.0, "engine/requests/waiting": 3.0}, step=0)
    run.commit(0)
    page = visit(f"{serve().base_url}/?run=engines&tab=time")
    assert drawn(page, "engine/requests/running")["last"] == [12.0]
    assert page.locator("h2", has_text="Inference engine").count() == 1
    assert page.locator(".chart").count() == 2
    with run.phase("rollout"):
        run.log({"engine/requests/running": 7.0})
    run.commit(1)
    page.wait_for_selector(".gantt")
    page.wait_for_function(f"name => ({CURVE})(name)?.x.length === 2", arg="engine/requests/running")
    run.finish()


def test_time_has_the_nodes_with_their_dead_ranks(serve: Serve, visit: Open, monkeypatch: pytest.MonkeyPatch):
    """The slowest node and rank first, in both languages; a run on one host has ranks only."""
    runs, moment = [], 100.0
    monkeypatch.setattr("barograph.recording.probe.recorder.HostClock", lambda: HostClock(now=lambda: moment))
    for rank, (host, seconds) in enumerate([("node-a", 1.0), ("node-b", 9.0), ("node-b", 2.0), ("node-b", None)]):
        monkeypatch.setattr("platform.node", lambda host=host: host)
        if rank == 2:  # as if another process had its id now
            monkeypatch.setattr("barograph.base.process.identity.process_start", lambda pid: 1.0)
        runs.append(barograph.init(id="nodes", rank=rank, world_size=4, concurrent=True))
        if seconds is not None:
            with runs[-1].phase("work"):
                moment += seconds
        runs[-1].commit(0)
    client = serve()
    found = client.get("/api/runs/nodes/phases").json()
    assert [(one["writer"], one["host"], one["status"]) for one in found["ranks"]] == [
        ("trainer/1", "node-b", "running"), ("trainer/2", "node-b", "killed"), ("trainer/0", "node-a", "running"),
        ("trainer/3", "node-b", "killed"),
    ]  # fmt: skip
    assert [(one["host"], one["ranks"], one["dead"]) for one in found["nodes"]] == [("node-b", 3, 2), ("node-a", 1, 0)]
    assert client.get("/api/runs/nodes/timeline").json()["groups"][0]["host"] == "node-a"

    page = visit(f"{client.base_url}/?run=nodes&tab=time")
    page.wait_for_selector(".bars .node")
    heads = page.locator(".bars .node span:first-child").all_inner_texts()
    assert heads == ["node-b · 3 ranks · 2 dead · slowest node", "node-a · 1 rank"]
    assert page.locator(".bars > span:has(.dead)").all_inner_texts() == ["trainer/2killed", "trainer/3killed"]
    page.wait_for_selector(".gantt")  # from a request of its own, after that of the nodes
    assert page.locator(".gantt > text", has_text="node-b · trainer/1").count() == 1
    page = visit(f"{client.base_url}/?run=nodes&tab=time&lang=zh")
    page.wait_for_selector(".bars .node")
    assert "3 个 rank · 2 个已失效 · 最慢的节点" in page.locator(".bars .node").first.inner_text()
    for run in runs:
        run.finish()


def test_a_link_restores_the_view_and_back_goes_back(serve: Serve, demo: barograph.Run, visit: Open):
    """Tab, filter, axis, smoothing, scale, language and theme are in the URL."""
    base = str(serve().base_url)
    page = visit(f"{base}/?run=demo&tab=charts&filter=clipfrac&x=relative&smooth=0.6&log=1&lang=zh&theme=dark")
    drawn(page, "actor/pg_clipfrac")
    assert page.locator(".chart").count() == 1
    assert page.locator(".bar select").input_value() == "relative"
    assert page.locator(".bar input[type=range]").input_value() == "0.6"
    assert page.locator(".bar button[aria-pressed=true]").all_inner_texts() == ["对数", "问题标记"]
    assert page.get_attribute("html", "data-theme") == "dark"
    page.click(".tabs a:nth-child(3)")
    page.wait_for_selector(READY["time"])
    page.go_back()
    drawn(page, "actor/pg_clipfrac")
    assert page.input_value(".bar input[type=search]") == "clipfrac"
    page.click("#language")
    page.click("#theme")
    page.wait_for_selector("text=Charts")
    assert "lang=en" in page.url
    assert "theme=light" in page.url


def test_keyboard_shortcuts(serve: Serve, demo: barograph.Run, visit: Open):
    """Digits select tabs, / the filter, j and k the run; f enlarges a chart, r resets the zoom, ? shows the help."""
    other = barograph.init(project="p", name="another", id="other")
    other.log({"critic/score/mean": 1.0}, step=0)
    other.finish()
    page = visit(f"{serve().base_url}/?run=demo")
    page.wait_for_selector(READY["overview"])
    page.keyboard.press("2")
    drawn(page, "critic/score")
    page.keyboard.press("/")
    page.keyboard.type("critic/kl")
    page.wait_for_function("() => document.querySelectorAll('.chart').length < 4")
    page.keyboard.press("Escape")
    page.locator(".chart .u-over").first.hover()
    page.keyboard.press("f")
    page.wait_for_selector(".large-chart")
    page.keyboard.press("Escape")
    assert page.locator(".large-chart").count() == 0
    page.goto(f"{page.url}&from=5&to=9")
    page.wait_for_selector(".chart canvas")
    page.keyboard.press("r")
    page.wait_for_function("() => !location.search.includes('from=')")
    page.keyboard.press("?")
    page.wait_for_selector("dialog.help")
    page.keyboard.press("Escape")
    page.keyboard.press("k")
    page.wait_for_function("() => location.search.includes('run=other')")
    page.keyboard.press("j")
    page.wait_for_function("() => location.search.includes('run=demo')")


def test_runs_are_pinned_renamed_and_overlaid(serve: Serve, demo: barograph.Run, visit: Open):
    """The server stores pins and names; the squares of the list overlay runs."""
    other = barograph.init(project="p", name="another", id="other")
    for step in range(3):
        other.log({"critic/score/mean": 1.0}, step=step)
    other.finish()
    client = serve()
    page = visit(f"{client.base_url}/?run=demo&tab=charts")
    drawn(page, "critic/score")
    page.click(".run[data-key=other] .box")
    page.wait_for_function(
        "() => document.querySelector('.chart[data-name=\"critic/score\"]')?.card.plot?.lines.length === 2"
    )
    page.hover(".run[data-key=other]")
    page.click(".run[data-key=other] .more")
    page.click(".menu button:nth-child(2)")
    page.fill("dialog.ask input", f"better {HTML}")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.run[data-key=other]').textContent.includes('better')")
    assert {run["key"]: run["name"] for run in client.get("/api/runs").json()["runs"]}["other"] == f"better {HTML}"
    page.hover(".run[data-key=demo]")
    page.click(".run[data-key=demo] .more")
    page.click(".menu button:nth-child(1)")
    page.wait_for_selector(".run[data-key=demo] .run-title .icon")
    assert page.get_attribute(".run >> nth=0", "data-key") == "demo"
    assert {run["key"]: run["pinned"] for run in client.get("/api/runs").json()["runs"]} == {
        "demo": True,
        "other": False,
    }
    for language in ("en", "zh"):
        page.goto(f"{client.base_url}/?run=demo&with=other&tab=compare&lang={language}")
        page.wait_for_selector(".compare .chart canvas")


def test_a_report_opens_from_disk(demo: barograph.Run, visit: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Without a server or network, it has every view but the comparison, and HTML in it is text."""
    file = tmp_path / "run.html"
    assert main(["report", "demo", "-o", str(file)]) == 0
    page = visit(file.as_uri())
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    page.wait_for_selector(READY["overview"])
    for number, tab in enumerate((tab for tab in TABS if tab != "compare"), start=1):
        page.keyboard.press(str(number))
        page.wait_for_selector(READY[tab])
        assert page.locator("img").count() == 0
    assert set(asked) == {file.as_uri()}
    page.goto(f"{file.as_uri()}#tab=charts&filter=critic/kl")
    page.reload()
    assert max(drawn(page, "critic/kl")["max"]) == 50.0


def test_the_first_view_stays_small(serve: Serve, demo: barograph.Run, sweep: Path, visit: Open):
    """Files and data are at most 150 kB on the wire, for the overview of a run and for the table of several."""
    table = serve(sweep)
    eventually(lambda: table.get("/api/table").json()["pending"] == 0)
    for address, ready, data in (
        (f"{serve().base_url}/?run=demo", READY["overview"], "/api/runs/demo/overview"),
        (f"{table.base_url}/", ".grid-row", "/api/table"),
    ):
        page = visit(address)
        page.wait_for_selector(ready)
        requests = page.evaluate(REQUESTS)
        assert {"/", "/bundle/page.js", data} <= {request["path"] for request in requests}
        assert any(request["sent"] < request["size"] for request in requests if request["path"] == data)
        assert sum(request["sent"] for request in requests) <= 150_000
    lists = [request for request in requests if request["path"] == "/api/runs" and request["isFirst"]]
    assert len(lists) == 1  # the table uses that which was loaded before the code


def test_vendored_files_have_their_version_and_licence():
    """The libraries of plots, markup, markdown and formulas are the only code of others, with versions in the names."""
    assert {file.name for file in (WEB / "vendor").iterdir()} == {
        "uPlot-1.6.32.min.js", "uPlot-1.6.32.min.css", "uPlot-1.6.32.LICENSE.txt",
        "marked-18.2.0.min.js", "marked-18.2.0.LICENSE.txt", "temml-0.13.5.min.js", "temml-0.13.5.LICENSE.txt",
        "lit-html-3.3.3.LICENSE.txt",
    }  # fmt: skip
    package = json.loads((Path(__file__).parents[3] / "package.json").read_text(encoding="utf-8"))
    assert package["devDependencies"]["lit-html"] == "3.3.3"  # it is in the bundle


def test_the_last_step_of_a_run_is_drawn(serve: Serve, visit: Open):
    """Also where the run is known to have ended before its last step is fetched."""
    run = barograph.init(project="p", name="ending", id="ending")
    for step in range(5):
        run.log({"critic/score/mean": float(step)}, step=step)
    page = visit(f"{serve().base_url}/?run=ending&tab=charts")
    assert drawn(page, "critic/score/mean")["last"] == [0, 1, 2, 3, 4]
    run.log({"critic/score/mean": 77.0}, step=5)
    run.finish()
    page.wait_for_selector(".heading .chip.finished")
    page.wait_for_function(f"name => ({CURVE})(name)?.last.at(-1) === 77", arg="critic/score/mean")


def test_a_restart_while_the_page_is_open_keeps_the_older_attempt(serve: Serve, visit: Open):
    """In a chart that is already drawn, the superseded steps become a line of their own."""
    older = "document.querySelector('.chart').card.plot?.lines[0]?.older.map(one => [...one.last])"
    run = barograph.init(project="p", name="restarted", id="again")
    for step in range(6):
        run.log({"loss": 6.0}, step=step)
    run.finish()
    page = visit(f"{serve().base_url}/?run=again&tab=charts")
    assert drawn(page, "loss")["last"] == [6] * 6
    again = barograph.init(project="p", name="restarted", id="again")
    again.log({"loss": 2.0}, step=3)
    again.log({"loss": 2.0}, step=4)
    page.wait_for_function(f"name => ({CURVE})(name)?.last.at(-1) === 2", arg="loss")
    assert page.evaluate(older) == [[6] * 6]
    again.log({"loss": 1.0}, step=5)
    again.finish()
    page.wait_for_function(f"name => ({CURVE})(name)?.last.at(-1) === 1", arg="loss")
    assert page.evaluate(older) == [[6] * 6]


def test_a_report_draws_superseded_attempts(visit: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """As the page does."""
    for steps in (range(6), range(3, 5)):
        run = barograph.init(project="p", name="restarted", id="again")
        for step in steps:
            run.log({"loss": float(len(steps))}, step=step)
        run.finish()
    file = tmp_path / "run.html"
    assert main(["report", "again", "-o", str(file)]) == 0
    page = visit(f"{file.as_uri()}#tab=charts")
    assert drawn(page, "loss")["last"] == [6, 6, 6, 2, 2]
    older = page.evaluate("document.querySelector('.chart').card.plot.lines[0].older.map(one => [...one.last])")
    assert older == [[6] * 6]


def test_the_first_run_of_a_directory_appears(serve: Serve, visit: Open):
    """By itself, and it is selected."""
    page = visit(str(serve().base_url))
    page.wait_for_selector("main .empty")
    run = barograph.init(project="p", name="the first", id="first")
    run.log({"critic/score/mean": 1.0}, step=0)
    page.wait_for_selector(".vital canvas")
    assert "the first" in page.locator(".heading").inner_text()
    run.finish()


def test_new_samples_appear(serve: Serve, visit: Open):
    """In a view that had none; also the last one, although updates are throttled."""
    run = barograph.init(project="p", name="speaking", id="speaking")
    run.log({"critic/score/mean": 0.0}, step=0)
    page = visit(f"{serve().base_url}/?run=speaking&tab=samples")
    page.wait_for_selector("main .empty")
    for step in (1, 2):
        run.sample(f"prompt {step}", f"completion {step}", reward=1.0, task="q")
        run.log({"critic/score/mean": 0.0}, step=step)
        page.wait_for_function(f"() => document.querySelector('.heading').textContent.includes('step {step}')")
    run.finish()
    page.wait_for_selector(".sample-list >> text=completion 2")


def test_a_nan_reward_sorts_last(serve: Serve, visit: Open):
    """The other runs keep their order."""
    for name, reward in (("low", 0.1), ("lost", math.nan), ("high", 0.9), ("mid", 0.5)):
        run = barograph.init(project="p", name=name, id=name)
        run.log({"critic/score/mean": reward}, step=0)
        run.finish()
    page = visit(f"{serve().base_url}/?sort=reward")
    names = "() => [...document.querySelectorAll('.run-text')].map(one => one.textContent).join()"
    page.wait_for_function(f"() => ({names})() === 'high,mid,low,lost'")


def test_the_first_step_has_its_own_group_in_a_report(visit: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Step 0 is no missing step: samples of the same group at later steps are not shown with it."""
    run = barograph.init(project="p", name="groups", id="groups")
    for step in (0, 1):
        for number in range(2):
            run.sample("prompt", f"step {step} number {number}", reward=float(number), group="g", step=step)
        run.log({"critic/score/mean": 0.0}, step=step)
    run.finish()
    file = tmp_path / "run.html"
    assert main(["report", "groups", "-o", str(file)]) == 0
    page = visit(f"{file.as_uri()}#tab=samples&order=step&at=0")
    page.wait_for_selector(".side-by-side pre")
    assert page.locator(".side-by-side pre").all_inner_texts() == ["step 0 number 1", "step 0 number 0"]


def test_a_reconnected_page_catches_up(serve: Serve, visit: Open):
    """After the stream's ``hello`` the view fetches what it missed."""
    run = barograph.init(project="p", name="going on", id="live")
    run.log({"critic/score/mean": 1.0}, step=0)
    page = visit(str(serve().base_url))
    streams = "const made = []; const Real = EventSource;"
    streams += "window.EventSource = class extends Real { constructor(at) { super(at); made.push(this); } };"
    page.add_init_script(f"{streams} window.made = made;")
    page.goto(f"{page.url.split('?')[0]}?run=live&tab=charts")
    assert drawn(page, "critic/score/mean")["last"] == [1]
    page.wait_for_function("() => document.querySelector('.chip.running')")
    page.evaluate("made.at(-1).close()")
    run.log({"critic/score/mean": 2.0}, step=1)
    run.log({"critic/score/mean": 3.0}, step=2)
    page.wait_for_timeout(600)
    assert drawn(page, "critic/score/mean")["last"] == [1]
    page.evaluate("made.at(-1).dispatchEvent(new MessageEvent('hello', { data: '{}' }))")
    page.wait_for_function(f"name => ({CURVE})(name)?.last.at(-1) === 3", arg="critic/score/mean")
    run.finish()


def test_short_values_of_a_config_have_one_line_on_a_phone(serve: Serve, visit: Open):
    """Long ones are broken where there is no room, and no word of a narrow column is."""
    for number, (name, value) in enumerate({"s3-sick": True, "s3": False, "s2-sick": None}.items()):
        config = {"normalise": value, "fault": "" if value is False else "drop-unsolved-only" * 3, "seed": number}
        with barograph.init(id=f"run{number}", name=name, config={"algorithm": config}) as run:
            run.log({"loss": 1.0}, step=0)
    page = visit(f"{serve().base_url}/?run=run0&with=run1,run2&tab=compare&pool=none&lang=en", width=390)
    lines = "node => Math.round(node.getBoundingClientRect().height / parseFloat(getComputedStyle(node).lineHeight))"
    for text in ("true", "false", "null"):
        assert page.locator(".kv td span", has_text=text).evaluate(lines) == 1
    assert page.locator(".kv td span", has_text="drop-unsolved-only").first.evaluate(lines) > 1
