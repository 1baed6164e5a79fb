"""The Samples view in a browser: transcripts of every shape, searches in the URL, groups and tokens."""

from pathlib import Path

import numpy as np
import pytest
from browsing import Open, drawn
from serving_runs import Serve

import windsock
from sample_shapes import SAMPLES
from windsock.cli import main

SHOWN = {
    "chat": ["1,000 characters", "Hi", "Hello"], "tool": ["call look", '{"at": "Ulm"}', "result look", "rain"],
    "reasoning": ["reasoning · 15 characters", "The end"], "turns": ["One", "Two", "Three"],
    "image": ["image · image/png · 64 × 48 · 1.0 kB"], "empty": ["no text"],
    "huge": ["begin xxx", "… 896,0", " end"], "right to left": ["شكرا جزيلا"], "emoji": ["👩‍🚀 😀"],
    "controls": ["a␀b␛[31mc \\u202egnp"],
    "hostile": ["<script>document.title = 'owned'</script>", "<b>4</b>", "<i>t</i>", "<u>r</u>", "<img src=x onerror="],
    "markdown": ["**four**", "$$\\sum_i x_i$$"],
}  # fmt: skip


@pytest.fixture
def shapes() -> windsock.Run:
    """Return a run with a sample of every shape, each at a step of its own."""
    run = windsock.init(project="p", name="shapes", id="shapes")
    for step, fields in enumerate(SAMPLES.values()):
        run.sample(step=step, **fields)
    run.finish()
    return run


def test_every_shape_is_shown(serve: Serve, visit: Open, shapes: windsock.Run):
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
        assert page.title() == "shapes · windsock"
    page.goto(f"{base}&at=2")
    page.wait_for_selector("details summary >> text=reasoning")
    assert not page.locator(".sample-detail pre.reasoning").is_visible()
    page.locator(".sample-detail details summary").click()
    assert page.inner_text("pre.reasoning") == "secret thoughts"


@pytest.mark.parametrize("as_report", [False, True])
def test_texts_are_rendered_at_a_key_press(
    serve: Serve, visit: Open, shapes: windsock.Run, tmp_path: Path, as_report: bool, capsys: pytest.CaptureFixture[str]
):
    """Markdown, formulas and code, and nothing else: no tag, link or script of a text is one of the page."""
    state = f"run=shapes&tab=samples&lang=en&at={len(SAMPLES) - 1}"
    if as_report:
        assert main(["report", "shapes", "-o", str(tmp_path / "run.html")]) == 0
        page = visit(f"{(tmp_path / 'run.html').as_uri()}#{state}")
    else:
        page = visit(f"{serve().base_url}/?{state}")
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
    assert page.title() == "shapes · windsock"
    assert "rich=1" in page.url
    page.reload()
    page.wait_for_selector(".rich math")
    page.click("button >> text=rendered")
    page.wait_for_selector(".sample-detail pre >> text=**four**")
    assert page.locator(".rich").count() == 0


def test_a_view_is_loaded_when_it_is_opened(serve: Serve, visit: Open, shapes: windsock.Run):
    """Until then its script is not requested, nor what it shares with reports."""
    page = visit(f"{serve().base_url}/?run=shapes&tab=overview&lang=en")
    page.wait_for_selector(".view.overview > *")
    scripts = "() => performance.getEntriesByType('resource').map(one => one.name).filter(one => /bundle/.test(one))"
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
    serve: Serve, visit: Open, shapes: windsock.Run, console_errors: list[str]
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
def grouped() -> windsock.Run:
    """Return a run with groups of one prompt at three steps, whose rows begin alike."""
    run = windsock.init(project="p", name="groups", id="groups")
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
    serve: Serve, visit: Open, grouped: windsock.Run, console_errors: list[str]
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


def test_a_click_on_a_chart_leads_to_the_samples_of_its_step(serve: Serve, visit: Open, grouped: windsock.Run):
    """Or to the nearest step that has any; a drag still zooms, and a key does the same."""
    page = visit(f"{serve().base_url}/?run=groups&tab=charts&lang=en")
    drawn(page, "critic/score/mean")
    box = page.locator(".chart .u-over").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.click(box["x"] + 0.55 * box["width"], middle)
    assert page.input_value(".step-menu input") == "2"
    assert page.locator(".step-menu a").all_inner_texts() == ["Samples", "Time", "Memory"]
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


def test_rows_begin_where_samples_differ(serve: Serve, visit: Open, grouped: windsock.Run):
    """The common beginning is left out."""
    page = visit(f"{serve().base_url}/?run=groups&tab=samples&lang=en")
    page.wait_for_selector(".sample-row")
    assert page.locator(".snippet").first.inner_text() == "… 2 and 0"


def test_a_group_has_a_strip_and_differences(serve: Serve, visit: Open, grouped: windsock.Run):
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


TOKENS = ["The", " cat", " sat", "\n", "<|im_end|>"]
VALUES = {
    "entropy": [0.5, 4.0, 0.25, 0.125, 1.0], "advantage": [1, 1, -2, 1, 1], "ratio": [1.0, 1.5, 1.0, 0.5, 1.0],
    "mask": [1, 1, 1, 1, 0],
}  # fmt: skip
READ = """() => [...document.querySelectorAll('.token-row span')].map(
    one => [Number(one.dataset.place), one.textContent, one.style.background !== '', one.className])"""


@pytest.mark.parametrize("as_report", [False, True])
def test_tokens_have_their_values(
    serve: Serve, visit: Open, tmp_path: Path, as_report: bool, capsys: pytest.CaptureFixture[str]
):
    """At the right tokens, on hover and as a list of the most extreme; masked ones have no colour. Also in a report."""
    run = windsock.init(project="p", name="tokens", id="tokens")
    likely = [[], [(" cat", -0.2), (" <b>dog</b>", -1.8)], [], [], []]
    run.sample("p", "".join(TOKENS), tokens=TOKENS, token_values=VALUES, top_logprobs=likely, step=0)
    run.finish()
    state = "tab=samples&lang=en&tv=entropy"
    if as_report:
        assert main(["report", "tokens", "-o", str(tmp_path / "run.html")]) == 0
        page = visit(f"{(tmp_path / 'run.html').as_uri()}#{state}")
    else:
        page = visit(f"{serve().base_url}/?run=tokens&{state}")
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


def test_the_tokens_of_a_step_are_summed(serve: Serve, visit: Open):
    """By their text; a click goes to the place with the largest value, in another sample."""
    run = windsock.init(project="p", name="sums", id="sums")
    run.sample("p", "ab", tokens=["a", "b"], token_values={"entropy": [0.5, 1.0], "mask": [1, 1]}, reward=1.0, step=0)
    run.sample(
        "p", "abb", tokens=["a", "b", "b"], token_values={"entropy": [4.0, 0.25, 9.0], "mask": [1, 1, 0]}, step=0
    )
    run.finish()
    page = visit(f"{serve().base_url}/?run=sums&tab=samples&lang=en&order=-reward")
    page.locator(".token-panel details summary").click()
    page.wait_for_selector(".token-panel table")
    rows = page.locator(".token-panel tbody tr").all_inner_texts()
    assert [row.split() for row in rows] == [['"a"', "4.50", "2.25", "2", "4"], ['"b"', "1.25", "0.625", "2", "1"]]
    page.locator(".token-panel tbody button").first.click()
    page.wait_for_function("() => document.querySelectorAll('.token-row span').length === 3")
    assert page.locator(".token-row .marked").all_inner_texts() == ["a"]


def test_a_long_sequence_has_only_the_rows_in_view(serve: Serve, visit: Open):
    """Of 32,768 tokens a few hundred exist; a click on the overview scrolls to its place."""
    count = 32_768
    run = windsock.init(project="p", name="long", id="long", sample_bytes_per_step=4 << 20)
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
