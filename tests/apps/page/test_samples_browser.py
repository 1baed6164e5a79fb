"""The Samples view in a browser: transcripts of every shape, searches in the URL, groups and tokens."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import Open, drawn
from serving_runs import Serve

import barograph
from barograph.apps.cli import main
from barograph.apps.demo import recording
from barograph.apps.demo.config import DemoConfig
from barograph.apps.demo.frozen_lake import CHOICE
from barograph.apps.demo.ppo import entropy_of
from barograph.apps.demo.trainer import start_runs, train
from barograph.journal.samples.query import Query
from sample_shapes import SAMPLES

SHOWN = {
    "chat": ["1,000 characters", "Hi", "Hello"], "tool": ["call look", '{"at": "Ulm"}', "result look", "rain"],
    "reasoning": ["reasoning · 15 characters", "The end"], "turns": ["One", "Two", "Three"],
    "image": ["image · image/png · 64 × 48 · 1.0 kB"], "empty": ["no text"],
    "huge": ["begin xxx", "… 896,0", " end"], "right to left": ["شكرا جزيلا"], "emoji": ["👩‍🚀 😀"],
    "controls": ["a␀b␛[31mc \\u202egnp"],
    "hostile": ["<script>document.title = 'owned'</script>", "<b>4</b>", "<i>t</i>", "<u>r</u>", "<img src=x onerror="],
    "markdown": ["**four**", "$$\\sum_i x_i$$"],
}  # fmt: skip


Show = Callable[[str, str], Any]


@pytest.fixture
def shapes() -> barograph.Run:
    """Return a run with a sample of every shape, each at a step of its own."""
    run = barograph.init(project="p", name="shapes", id="shapes")
    for step, fields in enumerate(SAMPLES.values()):
        run.sample(step=step, **fields)
    run.finish()
    return run


@pytest.fixture(params=["page", "report"])
def show(request: pytest.FixtureRequest, serve: Serve, visit: Open, tmp_path: Path) -> Show:
    """Return a function that opens the samples of a run in a state: on the page, and in a report of one file."""

    def open_samples(run: str, state: str) -> Any:
        state = f"tab=samples&lang=en&{state}"
        if request.param == "page":
            return visit(f"{serve().base_url}/?run={run}&{state}")
        file = tmp_path / "run.html"
        assert main(["report", run, "-o", str(file)]) == 0
        return visit(f"{file.as_uri()}#{state}")

    return open_samples


def test_every_shape_is_shown(serve: Serve, visit: Open, shapes: barograph.Run):
    """As text, whatever it contains; reasoning and long system prompts are folded."""
    base = f"{serve().base_url}/?run=shapes&tab=samples&lang=en"
    page = visit(base)
    for step, name in enumerate(SAMPLES):
        page.goto(f"{base}&at={step}")
        page.wait_for_selector(".sample-detail .panel")
        page.wait_for_function("() => document.querySelectorAll('.sample-row').length === 1")
        shown = page.inner_text(".sample-detail")
        for text in SHOWN[name]:
            assert text in shown, name
        assert page.title() == "shapes · barograph"
    page.goto(f"{base}&at=2")
    page.wait_for_selector("details summary >> text=reasoning")
    assert not page.locator(".sample-detail pre.reasoning").is_visible()
    page.locator(".sample-detail details summary").click()
    assert page.inner_text("pre.reasoning") == "secret thoughts"


def test_texts_are_rendered_at_a_key_press(show: Show, shapes: barograph.Run):
    """Markdown, formulas and code, and nothing else: no tag, link or script of a text is one of the page."""
    page = show("shapes", f"at={len(SAMPLES) - 1}")
    page.wait_for_selector(".sample-detail pre")
    page.keyboard.press("v")
    page.wait_for_selector(".rich math")
    count = "names => names.map(name => document.querySelectorAll(`.rich ${name}`).length)"
    assert page.evaluate(count, ["msup", "strong", "figure", "td", "li", "a", "img", "script", "[href]"]) == [
        1, 1, 1, 2, 2, 0, 0, 0, 0,
    ]  # fmt: skip
    shown = page.inner_text(".rich")
    assert all(
        text in shown for text in ("$5 or $6", "$\\frac{1$ is", 'print("<b>")', "<img src=x onerror=", "<script>")
    )
    assert page.evaluate("() => document.body.scrollWidth <= innerWidth")
    assert page.title() == "shapes · barograph"
    assert "rich=1" in page.url
    page.reload()
    page.wait_for_selector(".rich math")
    page.click("button >> text=rendered")
    page.wait_for_selector(".sample-detail pre >> text=**four**")
    assert page.locator(".rich").count() == 0


def test_a_view_is_loaded_when_it_is_opened(serve: Serve, visit: Open, shapes: barograph.Run):
    """Until then its script is not requested, nor what it shares with reports."""
    page = visit(f"{serve().base_url}/?run=shapes&tab=overview&lang=en")
    page.wait_for_selector(".view.overview > *")
    scripts = (
        "() => performance.getEntriesByType('resource').map(one => one.name).filter(one => /bundle.*js/.test(one))"
    )
    assert [Path(script).name for script in page.evaluate(scripts)] == ["page.js"]
    page.click("nav.tabs >> text=Samples")
    page.wait_for_selector(".sample-row")
    opened = [Path(script).name for script in page.evaluate(scripts)]
    assert (opened[0], sorted(opened[1:])) == ("page.js", ["rich_text.js", "samples.js"])


def expect_refusals(console_errors: list[str]) -> None:
    """Remove the console's lines about requests that the server refused, of which there must be one or more."""
    assert console_errors
    assert all("400 (Bad Request)" in error for error in console_errors)
    console_errors.clear()


def test_a_search_is_highlighted_and_in_the_url(
    serve: Serve, visit: Open, shapes: barograph.Run, console_errors: list[str]
):
    """In the list and in the sample, also deep inside a long text and in folded reasoning."""
    page = visit(f"{serve().base_url}/?run=shapes&tab=samples&lang=en")
    page.fill(".bar input[type=search]", "NEEDLE")
    page.wait_for_selector(".sample-detail mark")
    assert page.locator("mark").all_inner_texts() == ["needle", "needle"]
    page.locator(".fold").first.click()
    assert len(page.inner_text(".sample-detail pre")) > 900_000
    page.fill(".bar input[type=search]", "secret \\w+")
    page.click("text=.*")
    page.wait_for_selector("pre.reasoning mark >> text=secret thoughts")
    assert page.locator("pre.reasoning").is_visible()
    assert "rx=1" in page.url
    page.reload()
    page.wait_for_selector("pre.reasoning mark >> text=secret thoughts")
    page.fill(".bar input[type=search]", "secret (")
    page.wait_for_selector(".bar .invalid")
    assert "missing )" in page.inner_text(".sample-bar")
    expect_refusals(console_errors)


@pytest.fixture
def grouped() -> barograph.Run:
    """Return a run with groups of one prompt at three steps, whose rows begin alike."""
    run = barograph.init(project="p", name="groups", id="groups")
    for step in range(3):
        for n in range(4):
            text = f"Let me think about this carefully: the number is {step} and {n}"
            run.sample(
                "What?", text, reward=n / 4, advantage=n - 1.5, rewards={"format": n / 10}, task="t", group="g",
                correct=n > 1, discarded="stale" if n == 0 else None, step=step,
            )  # fmt: skip
        run.log({"critic/score/mean": 0.5}, step=step)
    run.log({"critic/score/mean": 0.5}, step=4)
    run.finish()
    return run


def test_the_best_that_is_wrong_is_two_clicks_away(
    serve: Serve, visit: Open, grouped: barograph.Run, console_errors: list[str]
):
    """A click on a fact is a condition, and any column is an order; both are in the URL."""
    page = visit(f"{serve().base_url}/?run=groups&tab=samples&lang=en")
    page.wait_for_selector(".sample-row")
    page.select_option(".bar select >> nth=0", "-reward where correct = false")
    page.wait_for_function("() => document.querySelectorAll('.sample-row').length === 6")
    assert page.locator(".sample-row .reward-chip").all_inner_texts() == ["0.250"] * 3 + ["0"] * 3
    page.wait_for_selector(".sample-detail .fact >> text=correct false")
    page.go_back()
    page.wait_for_function("() => document.querySelectorAll('.sample-row').length === 12")
    page.locator(".sample-detail .fact >> text=correct false").first.click()
    page.wait_for_function("() => document.querySelectorAll('.sample-row').length === 6")
    page.select_option(".bar select >> nth=0", "-reward.format")
    page.wait_for_selector(".sample-row >> nth=0 >> text=0.250")
    assert "where=correct+%3D+false" in page.url
    assert "order=-reward.format" in page.url
    page.reload()
    page.wait_for_function("() => document.querySelectorAll('.sample-row').length === 6")
    page.fill(".bar .where", "correct = ")
    page.wait_for_selector(".where.invalid")
    expect_refusals(console_errors)
    page.fill(".bar .where", "discarded != none and step > 0")
    page.wait_for_function("() => document.querySelectorAll('.sample-row').length === 2")
    assert page.locator(".sample-row.discarded").count() == 2


def test_a_click_on_a_chart_leads_to_the_samples_of_its_step(serve: Serve, visit: Open, grouped: barograph.Run):
    """Or to the nearest step that has any; a drag still zooms, and a key does the same."""
    page = visit(f"{serve().base_url}/?run=groups&tab=charts&lang=en")
    drawn(page, "critic/score/mean")
    box = page.locator(".chart .u-over").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.click(box["x"] + 0.55 * box["width"], middle)
    assert page.input_value(".step-menu input") == "2"
    assert page.locator(".step-menu a").all_inner_texts() == ["Samples", "Time", "Memory", "Charts"]
    page.keyboard.press("Escape")
    assert not page.locator(".step-menu").is_visible()
    page.mouse.move(box["x"] + 5, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 5, middle, steps=4)
    page.mouse.up()
    page.wait_for_url("**from=**")
    assert not page.locator(".step-menu").is_visible()
    page.keyboard.press("s")
    page.keyboard.type("4")
    page.keyboard.press("Enter")
    page.click(".near-step >> text=2")
    page.wait_for_function("() => document.querySelectorAll('.sample-row').length === 4")
    assert "at=2" in page.url
    page.click("text=charts at step 2")
    page.wait_for_selector(".chart canvas")
    page.goto(f"{page.url}&lang=zh")
    drawn(page, "critic/score/mean")
    page.keyboard.press("s")
    assert page.inner_text(".step-menu label").split() == ["第", "步"]
    page.click(".tabs a:nth-child(6)")
    page.wait_for_selector(".sample-detail .fact >> text=第 2 步")


def test_rows_begin_where_samples_differ(serve: Serve, visit: Open, grouped: barograph.Run):
    """The common beginning is left out."""
    page = visit(f"{serve().base_url}/?run=groups&tab=samples&lang=en")
    page.wait_for_selector(".sample-row")
    assert page.locator(".snippet").first.inner_text() == "… 2 and 0"


def test_a_group_has_a_strip_and_differences(serve: Serve, visit: Open, grouped: barograph.Run):
    """A cell of the strip opens its answer; differences are by words, over training to the step before."""
    page = visit(f"{serve().base_url}/?run=groups&tab=samples&lang=en&at=1")
    page.wait_for_selector(".strip .cell")
    assert page.locator(".strip .cell").all_inner_texts() == ["1.50", "0.500", "−0.500", "−1.50"]
    page.locator(".strip .cell").first.click()
    page.wait_for_selector(".strip .cell[aria-current] >> text=1.50")
    page.locator("button >> text=differences").first.click()
    page.wait_for_selector(".side-by-side ins")
    columns = page.locator(".panel:has(.strip) .side-by-side pre")
    assert [columns.nth(n).locator("ins").all_inner_texts() for n in range(4)] == [[], ["2"], ["1"], ["0"]]
    page.wait_for_selector(".panel:has(.mini-plot) ins")
    assert page.locator(".panel:has(.mini-plot) .swatch").all_inner_texts() == ["mean reward per step", "share solved"]
    solved = "() => [...document.querySelectorAll('.panel:has(.mini-plot) header .facts > span')].at(-1).textContent"
    assert page.evaluate(solved) == "50% solved"
    over = page.locator(".panel:has(.mini-plot) .side-by-side pre")
    assert [over.nth(n).locator("ins").all_inner_texts() for n in range(3)] == [[], ["1"], ["2"]]


def test_the_answer_stands_out_by_whether_it_is_right(serve: Serve, visit: Open):
    """Green beside the same reference, red beside another one, and plain without any."""
    run = barograph.init(project="p", name="answers", id="answers")
    for step, reference in enumerate(("4", "5", None)):
        run.sample("2 + 2?", "So 4.", answer="4", reference=reference, step=step)
    run.finish()
    base = f"{serve().base_url}/?run=answers&tab=samples&lang=en"
    page = visit(base)
    read = """() => [...document.querySelectorAll('.answer')].map(one =>
        [one.textContent, getComputedStyle(one.querySelector('b')).color])"""
    found = []
    for step in range(3):
        page.goto(f"{base}&at={step}")
        page.wait_for_selector(".answer")
        found.append(page.evaluate(read))
    ink = page.evaluate("() => getComputedStyle(document.querySelector('.sample-detail')).color")
    colours = [found[step][0][1] for step in range(3)]
    assert [[text for text, _ in found[step]] for step in range(3)] == [
        ["answer4", "reference4"], ["answer4", "reference5"], ["answer4"],
    ]  # fmt: skip
    assert colours[2] == ink
    assert len(set(colours)) == 3
    red, green = ([int(part) for part in colours[step][4:-1].split(",")] for step in (1, 0))
    assert red[0] > max(red[1:])
    assert green[1] > green[0]
    assert all(found[step][1][1] == ink for step in range(2))


def test_the_reason_of_a_discard_is_shown(serve: Serve, visit: Open):
    """As text, in the row and in the sample, where a click looks for others with it."""
    run = barograph.init(project="p", name="discards", id="discards")
    for n, reason in enumerate(("zero advantage", "<b>stale</b>", "zero advantage", None)):
        run.sample("p", f"c{n}", reward=n, discarded=reason, step=0)
    run.finish()
    page = visit(f"{serve().base_url}/?run=discards&tab=samples&lang=en&order=reward")
    page.wait_for_selector(".sample-detail .fact.discarded")
    assert page.locator(".sample-detail .fact.discarded").evaluate("one => one.scrollWidth <= one.clientWidth")
    assert page.locator(".sample-row .watch").all_inner_texts() == ["zero advantage", "<b>stale</b>", "zero advantage"]
    assert page.inner_text(".sample-detail .fact.discarded") == "discarded: zero advantage"
    page.click(".sample-detail .fact.discarded")
    page.wait_for_function("() => document.querySelectorAll('.sample-row').length === 2")
    assert "where=discarded+%3D+%22zero+advantage%22" in page.url


def test_calls_of_tools_are_a_fact(show: Show):
    """Also those in a plain completion; a click looks for others with as many. None is no fact."""
    call = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    run = barograph.init(project="p", name="calls", id="calls")
    for step, count in enumerate((0, 1, 2, 2)):
        run.sample("p", f"So {call * count}", step=step)
    run.finish()
    page = show("calls", "order=step")
    page.wait_for_selector(".sample-detail .fact")
    assert page.locator(".sample-detail .fact").all_inner_texts() == ["step 0"]
    page.click(".sample-row >> nth=2")
    page.click(".sample-detail .fact >> text=tool calls 2")
    page.wait_for_function("() => document.querySelectorAll('.sample-row').length === 2")


def test_a_prompt_is_shown_over_the_whole_training(serve: Serve, visit: Open):
    """Of a task with many samples too: answers from the first step to the last and of that in view, and all counted."""
    run = barograph.init(project="p", name="long", id="long")
    for step in range(100):
        for _ in range(11):
            run.sample("p", f"answer {step}", reward=float(step >= 75), task="t", step=step)
    run.finish()
    client = serve()
    found = client.get("/api/runs/long/samples", params={"task": "t", "limit": 1}).json()
    assert (found["matched"], found["over_training"]["steps"]) == (1100, list(range(100)))
    assert found["over_training"]["solved"] == [0.0] * 75 + [1.0] * 25
    assert client.get("/api/runs/long/samples").json()["over_training"] is None
    page = visit(f"{client.base_url}/?run=long&tab=samples&lang=en&at=37")
    page.wait_for_selector(".panel:has(.mini-plot) pre")
    shown = page.locator(".panel:has(.mini-plot) pre").all_inner_texts()
    assert page.locator("text=11 of 1,100 stored samples match").count() == 1
    assert shown == ["answer 0", "answer 20", "answer 37", "answer 59", "answer 79", "answer 99"]
    assert "25% solved" in page.inner_text(".panel:has(.mini-plot) header")


def test_a_link_opens_a_sample_that_the_list_does_not_have(
    serve: Serve, visit: Open, grouped: barograph.Run, console_errors: list[str]
):
    """An answer of a group that the conditions leave out; other conditions lead back to the list."""
    own = ".sample-detail > .panel >> nth=0 >> header .fact"  # not those of the answers beside it
    page = visit(f"{serve().base_url}/?run=groups&tab=samples&lang=en&at=1&where=correct+%3D+false")
    page.wait_for_selector(".strip .cell")
    assert page.locator(".sample-row").count() == 2
    page.locator(".strip .cell >> text=1.50").first.click()
    page.wait_for_selector(f"{own} >> text=correct true")
    page.reload()
    page.wait_for_selector(f"{own} >> text=correct true")
    page.fill(".bar .where", "correct = false and reward > 0")
    page.wait_for_function("() => document.querySelectorAll('.sample-row').length === 1")
    page.wait_for_selector(f"{own} >> text=correct false")
    page.goto(f"{serve().base_url}/?run=groups&tab=samples&lang=en&at=1&sample=none:1")
    page.wait_for_selector(".sample-row[aria-current]")
    page.wait_for_selector(".strip .cell")
    assert all("404 (Not Found)" in error for error in console_errors)
    console_errors.clear()


TOKENS = ["The", " cat", " sat", "\n", "<|im_end|>"]
VALUES = {
    "entropy": [0.5, 4.0, 0.25, 0.125, 1.0], "advantage": [1, 1, -2, 1, 1], "ratio": [1.0, 1.5, 1.0, 0.5, 1.0],
    "mask": [1, 1, 1, 1, 0],
}  # fmt: skip
READ = """() => [...document.querySelectorAll('.token-row span')].map(
    one => [Number(one.dataset.place), one.textContent, one.style.background !== '', one.className])"""


def test_tokens_have_their_values(show: Show):
    """At the right tokens, on hover and as a list of the most extreme; masked ones have no colour. Also in a report."""
    run = barograph.init(project="p", name="tokens", id="tokens")
    likely = [[], [(" cat", -0.2), (" <b>dog</b>", -1.8)], [], [], []]
    run.sample("p", "".join(TOKENS), tokens=TOKENS, token_values=VALUES, top_logprobs=likely, step=0)
    run.finish()
    page = show("tokens", "tv=entropy")
    page.wait_for_selector(".token-row")
    assert page.evaluate(READ) == [
        [0, "The", True, ""], [1, " cat", True, ""], [2, " sat", False, ""], [3, "⏎", False, ""],
        [4, "<|im_end|>", False, "masked special"],
    ]  # fmt: skip
    assert page.locator(".extremes button").first.inner_text().split() == ["cat", "4"]
    page.hover(".token-row span >> nth=1")
    tip = page.inner_text(".token-tip").split()
    assert tip[:13] == [
        '"', 'cat"', "1", "push", "1.50", "ratio", "1.50", "entropy", "4", "advantage", "1", "mask", "1",
    ]  # fmt: skip
    assert tip[13:] == ["most", "likely", '"', 'cat"', "82%", '"', '<b>dog</b>"', "17%"]
    assert page.inner_text(".token-tip .taken").split() == ['"', 'cat"', "82%"]
    page.select_option(".token-panel select >> nth=1", "push")
    page.wait_for_function("() => document.querySelectorAll('.token-column').length === 2")
    page.locator(".extremes button").first.click()
    assert page.locator(".token-row .marked").all_inner_texts() == [" cat", " cat"]
    assert "tv2=push" in page.url


def test_samples_with_tokens_are_marked_and_found(show: Show):
    """Few of a step have them: one click lists these alone, and another one all of them."""
    run = barograph.init(project="p", name="few", id="few")
    for number in range(9):
        more = {"tokens": ["a", "b"], "token_values": {"entropy": [1, number]}} if number in (4, 7) else {}
        run.sample("p", f"text {number}", reward=float(number), step=0, **more)
    run.finish()
    page = show("few", "where=reward+>+1")
    page.wait_for_selector(".sample-row")
    texts = "() => [...document.querySelectorAll('.sample-row .snippet')].map(one => one.textContent)"
    marked = "() => [...document.querySelectorAll('.sample-row:has(.has-tokens) .snippet')].map(one => one.textContent)"
    assert len(page.evaluate(texts)) == 7
    having = {"text 4", "text 7"}
    assert set(page.evaluate(marked)) == having
    mark = page.locator(".has-tokens").first.bounding_box()
    assert (mark["width"], mark["height"]) == (18, 9)
    button = page.locator("button", has_text="with tokens")
    button.click()
    page.wait_for_function(f"() => ({texts})().length === 2")
    assert set(page.evaluate(texts)) == having
    assert button.get_attribute("aria-pressed") == "true"
    assert page.input_value(".where") == "reward > 1 and tokens > 0"
    button.click()
    page.wait_for_function(f"() => ({texts})().length === 7")
    assert page.input_value(".where") == "reward > 1"


def test_the_tokens_of_a_step_are_summed(serve: Serve, visit: Open):
    """By their text, with a link to each place; a click goes there, also in another sample and outside of the list."""
    run = barograph.init(project="p", name="sums", id="sums")
    run.sample("p", "ab", tokens=["a", "b"], token_values={"entropy": [0.5, 1.0], "mask": [1, 1]}, reward=1.0, step=0)
    run.sample(
        "p", "abb", tokens=["a", "b", "b"], token_values={"entropy": [4.0, 0.25, 9.0], "mask": [1, 1, 0]}, step=0
    )
    many = ["c"] * 9
    run.sample("p", "c" * 9, tokens=many, token_values={"entropy": [0.001 * n for n in range(1, 10)]}, step=0)
    run.finish()
    page = visit(f"{serve().base_url}/?run=sums&tab=samples&lang=en&where=reward+%3D+1")
    page.locator(".token-panel details summary").click()
    page.wait_for_selector(".token-panel table")
    rows = page.locator(".token-panel tbody tr").all_inner_texts()
    assert [row.split() for row in rows[:2]] == [
        ['"a"', "78%", "4.50", "2.25", "2", "4", "0.500"],
        ['"b"', "22%", "1.25", "0.625", "2", "1", "0.250"],
    ]
    assert rows[2].split()[-2:] == ["0.00500", "+4"]
    page.click(".token-panel tbody button >> text=+4")
    assert page.locator(".token-panel tbody tr >> nth=2").inner_text().split()[5:] == [
        f"{0.001 * n:.5f}" for n in range(9, 0, -1)
    ]  # fmt: skip
    places = "all => all.map(one => one.dataset.place)"
    for number, tokens, place in ((1, 2, 0), (0, 3, 0), (3, 3, 1), (12, 9, 0)):
        page.locator(".token-panel tbody button").nth(number).click()
        page.wait_for_function(f"() => document.querySelectorAll('.token-row span').length === {tokens}")
        assert page.locator(".token-row .marked").evaluate_all(places) == [str(place)]
        page.wait_for_selector(".token-panel table")
        if number == 3:
            page.click(".token-panel tbody button >> text=+4")


def test_a_long_sequence_has_only_the_rows_in_view(serve: Serve, visit: Open):
    """Of 32,768 tokens a few hundred exist; a click on the overview scrolls to its place."""
    count = 32_768
    run = barograph.init(project="p", name="long", id="long", sample_bytes_per_step=4 << 20)
    noise = np.random.default_rng(1).normal(size=count)
    tokens = [f"w{n} " for n in range(count)]
    run.sample("p", "".join(tokens), tokens=tokens, token_values={"entropy": noise}, step=0)
    run.finish()
    page = visit(f"{serve().base_url}/?run=long&tab=samples&lang=en")
    page.wait_for_selector(".token-row")
    spans = "() => document.querySelectorAll('.token-row span').length"
    assert 50 < page.evaluate(spans) < 1500
    page.locator(".token-map").scroll_into_view_if_needed()
    box = page.locator(".token-map").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 2, box["y"] + 10)
    page.wait_for_selector(f".token-row >> text=w{count - 1}")
    assert page.evaluate(spans) < 1500
    share = """() => { const text = document.querySelector('.token-text');
        return (text.scrollTop + text.clientHeight / 2) / text.scrollHeight; }"""
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 10)
    page.mouse.down()
    for part in (0.7, 0.5, 0.25):
        page.mouse.move(box["x"] + part * box["width"], box["y"] + 10, steps=3)
        assert page.evaluate(share) == pytest.approx(part, abs=0.01)
    page.mouse.up()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 10)
    assert page.evaluate(share) == pytest.approx(0.25, abs=0.01)


def test_before_the_first_update_tokens_are_tinted_by_the_gradient(serve: Serve, visit: Open):
    """The push is the same for all of a GRPO sample then, which is said; masked tokens change no colour."""
    run = barograph.init(project="p", name="first", id="first")
    certain, open_ = -0.001, -2.0
    values = {
        "log_prob": [-50.0, certain, open_, certain], "old": [-1.0, certain, open_, certain],
        "advantage": [0, -1, -1, -1], "mask": [0, 1, 1, 1],
    }  # fmt: skip
    run.sample("p", "a b c d ", tokens=["a ", "b ", "c ", "d "], token_values=values, step=0)
    run.finish()
    page = visit(f"{serve().base_url}/?run=first&tab=samples&lang=en")
    page.wait_for_selector(".token-row")
    assert page.input_value(".token-panel select >> nth=0") == "gradient"
    assert "advantage × ratio × (1 − probability)" in page.inner_text(".token-panel .facts")
    tinted = "all => all.map(one => one.style.background !== '')"
    assert page.locator(".token-row span").evaluate_all(tinted) == [False, False, True, False]
    page.select_option(".token-panel select >> nth=0", "push")
    page.wait_for_selector("text=−1 for every token")
    assert page.locator(".token-row span").evaluate_all(tinted) == [False] * 4
    page.select_option(".token-panel select >> nth=1", "gradient")
    page.wait_for_selector("text=gradient: advantage × ratio × (1 − probability)")
    assert "push: advantage × ratio: above 0" in page.inner_text(".token-panel .facts")
    page.select_option(".token-panel select >> nth=0", "surprise")
    page.wait_for_selector("text=how unlikely the token is")
    assert page.inner_text(".token-legend").split() == ["0.00100", "2"]


TINTED = {
    "log_prob": [-1.0, -1.0, -1.0, -1.0], "old": [-1.0, -1.5, -1.0, -1.0], "rollout": [-1.0, -1.5, -0.5, -1.25],
    "reference": [-1.0, -1.0, -1.0, -4.0], "clipped": [0, 1, 0, 0],
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "tints"),
    [
        ("mismatch", ["", "", "--s1", "--s0"]), ("kl", ["", "", "", "--s0"]), ("clipped", ["", "--s0", "", ""]),
        ("surprise", [""] * 4), ("old", ["", "--s1", "", ""]),
    ],
)  # fmt: skip
def test_tokens_are_tinted_by_a_value(serve: Serve, visit: Open, value: str, tints: list[str]):
    """The mismatch is that of the policy that sampled, in both colours; the same value everywhere has none."""
    run = barograph.init(project="p", name="tints", id="tints")
    run.sample("p", "a b c d ", tokens=["a ", "b ", "c ", "d "], token_values=TINTED, step=0)
    run.finish()
    page = visit(f"{serve().base_url}/?run=tints&tab=samples&lang=en&tv={value}")
    page.wait_for_selector(".token-row")
    assert page.input_value(".token-panel select >> nth=0") == value
    shown = page.locator(".token-row span").evaluate_all("all => all.map(one => one.style.background)")
    assert [next((name for name in ("--s0", "--s1") if name in style), "") for style in shown] == tints
    if value == "mismatch":  # −0.5 has the full colour, 0.25 the half of it, and 0 at two thirds none
        legend = page.locator(".token-legend i").evaluate("one => one.style.background")
        found = re.findall(r"--s\d\) \d+%|transparent [\d.]+%", legend)
        assert found == ["--s1) 75%", "transparent 66.66666666666667%", "--s0) 38%"]
    extremes = page.locator(".extremes button").all_inner_texts()
    assert [text.split() for text in extremes[:1]] == {
        "mismatch": [["c", "−0.500"]], "kl": [["d", "2.05"]], "clipped": [["b", "1"]], "surprise": [],
        "old": [["b", "−1.50"]],
    }[value]  # fmt: skip


SICK = {
    "log_prob": [-1.0, -0.25, "NaN", -1.0, -1.0], "old": [-1.0, -1.0, -1.0, -2.0, "NaN"],
    "rollout": [-1.0, -1.0, -1.0, "-Infinity", -1.0], "entropy": [0.5, 0.25, 0.5, 0.75, 0.5], "mask": [1, 1, 1, 1, 0],
}  # fmt: skip


def test_values_that_are_not_finite_are_seen(show: Show):
    """Each value says how many tokens have one; they have a mark, are first in the list, and change no other colour."""
    run = barograph.init(project="p", name="sick", id="sick")
    values = {name: [float(value) for value in array] for name, array in SICK.items()}
    run.sample("p", "a b c d e ", tokens=["a ", "b ", "c ", "d ", "e "], token_values=values, step=0)
    run.finish()
    page = show("sick", "tv=ratio")
    page.wait_for_selector(".token-row")
    assert page.evaluate(READ) == [
        [0, "a ", False, ""], [1, "b ", True, ""], [2, "c ", False, "nonfinite"], [3, "d ", True, ""],
        [4, "e ", False, "masked"],
    ]  # fmt: skip
    assert page.inner_text(".token-legend").split() == ["1", "2.72"]  # e⁰ to e¹; 1 has no colour
    counts = page.locator(".nonfinite-values button")
    assert counts.all_inner_texts() == ["mismatch 1", "surprise 1", "ratio 1", "log_prob 1", "rollout 1"]
    listed = page.locator(".extremes:not(.nonfinite-values) button")
    assert [text.split() for text in listed.all_inner_texts()] == [["c", "NaN"], ["d", "2.72"], ["b", "2.12"]]
    page.hover(".token-row .nonfinite")
    assert page.inner_text(".token-tip").split()[5:9] == ["surprise", "NaN", "ratio", "NaN"]
    counts.nth(0).click()
    page.wait_for_function("() => document.querySelector('.token-row .nonfinite')?.textContent === 'd '")
    assert [text.split() for text in listed.all_inner_texts()] == [["d", "+∞"]]
    assert "0 for every token" in page.inner_text(".token-panel .facts")
    page.select_option(".token-panel select >> nth=0", "entropy")
    page.wait_for_function("() => !document.querySelector('.token-row .nonfinite')")
    assert [text.split()[0] for text in listed.all_inner_texts()] == ["d", "a", "c", "b"]


def test_tokens_of_chat_templates_are_framed(serve: Serve, visit: Open):
    """Those of several templates, which are where turns begin and end."""
    tokens = [
        "<start_of_turn>",
        "user",
        "\n",
        "Hi",
        "<end_of_turn>",
        "[INST]",
        "Hi",
        "[/INST]",
        "<b>",
        "</s>",
        " <eos>",
    ]
    run = barograph.init(project="p", name="turns", id="turns")
    run.sample("p", "".join(tokens), tokens=tokens, step=0)
    run.finish()
    page = visit(f"{serve().base_url}/?run=turns&tab=samples&lang=en")
    page.wait_for_selector(".token-row .special")
    assert [text.strip() for text in page.locator(".token-row .special").all_inner_texts()] == [
        "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]", "</s>", "<eos>",
    ]  # fmt: skip


HOVERED = """() => [...document.querySelectorAll('.token-row span')].map(span => {
    span.dispatchEvent(new PointerEvent('pointermove', {bubbles: true}));
    const lines = [...document.querySelectorAll('.token-tip > div')].map(
        line => [...line.children].map(one => one.textContent));
    return [span.textContent, span.className, Object.fromEntries(lines)];
})"""
"""JavaScript: the text of each token, its classes, and the values that the pointer shows."""


def test_values_on_the_page_are_those_of_the_trainer(
    serve: Serve, visit: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """At every token of the demo, as the pointer shows them, with its own update and an explorer that lags behind."""
    experiences: list[Any] = []
    updates: list[dict[int, tuple[Any, Any]]] = []  # log-probs and entropies of each row in the last update of a step
    record_experience, record_policy = recording.record_experience, recording.record_policy

    def experience(run: Any, e: Any, *rest: Any) -> None:
        experiences.append(e)
        updates.append({})
        record_experience(run, e, *rest)

    def policy(run: Any, e: Any, rows: Any, logits: Any, log_probs: Any, config: Any) -> None:
        chosen = log_probs[np.arange(len(log_probs)), e.episodes.choices[rows][e.episodes.mask[rows]]]
        grids = (e.episodes.to_grid(values, rows) for values in (chosen, entropy_of(log_probs)))
        updates[-1] |= dict(zip(rows.tolist(), zip(*grids, strict=True), strict=True))
        record_policy(run, e, rows, logits, log_probs, config)

    monkeypatch.setattr(recording, "record_experience", experience)
    monkeypatch.setattr(recording, "record_policy", policy)
    small = {"tasks": 24, "hidden": 64, "maps": 128, "validation_maps": 16, "actor_lr": 1e-3, "critic_lr": 2e-3}
    config = DemoConfig().changed(small | {"steps": 3, "sync_every": 25})
    run, explorer = start_runs(config, dir=tmp_path / "runs")
    with run, explorer:
        train(config, run, explorer)
    base = f"{serve().base_url}/?run={run.id}&tab=samples&lang=en"
    page = visit(base)
    seen: dict[str, list[float]] = {}
    for step, (e, now) in enumerate(zip(experiences, updates, strict=True)):
        found = barograph.open(run.path).find_samples(Query(step=step, where="tokens > 0"))
        assert len(found.samples) == 4
        for sample, place in zip(found.samples, found.places, strict=True):
            row = int(str(sample.id))
            valid = e.episodes.mask[row]
            log_prob, entropy = now[row]
            ratio, advantage = np.exp(log_prob - e.old[row]), e.advantages[row]
            above, below = ratio > 1 + config.clip, ratio < 1 - config.clip
            apart = e.ref[row] - log_prob
            arrays = {
                "log_prob": log_prob, "old": e.old[row], "reference": e.ref[row], "rollout": e.episodes.log_probs[row],
                "entropy": entropy, "advantage": advantage, "ratio": ratio, "push": advantage * ratio, "mask": valid,
                "mismatch": e.old[row] - e.episodes.log_probs[row], "kl": np.expm1(apart) - apart,
                "surprise": -log_prob, "clipped": (above & (advantage > 0)) | (below & (advantage < 0)),
            }  # fmt: skip
            arrays["gradient"] = np.where(arrays["clipped"], 0.0, arrays["push"] * (1 - np.exp(log_prob)))
            page.goto(f"{base}&at={step}&sample={place}")
            page.wait_for_selector(".token-row")
            shown = page.evaluate(HOVERED)
            choices = [recording.token_text([CHOICE + choice]) for choice in e.episodes.choices[row][valid]]
            assert [(text, name) for text, name, _ in shown] == [(text, "") for text in choices]
            for token, (_, _, values) in enumerate(shown):
                numbers = {name: float(text.replace("−", "-")) for name, text in values.items()}
                assert numbers.keys() == arrays.keys()
                for name, array in arrays.items():
                    # They are stored in steps of 1/4096, and shown with three digits.
                    assert numbers[name] == pytest.approx(float(array[valid][token]), rel=6e-3, abs=6e-4), name
                    seen.setdefault(name, []).append(numbers[name])
    assert {name: len(set(values)) > 1 for name, values in seen.items()} == {name: name != "mask" for name in seen}
