"""Names in a real browser: what is known, choosing a source, and charts of runs of two frameworks."""

from pathlib import Path

import pytest
from browsing import Open
from serving_runs import Serve

import barograph


@pytest.fixture
def own() -> None:
    """Record a run of a hand-written loop: one name is not decided, three are unknown."""
    run = barograph.init(project="p", name="own", id="own")
    for step in range(40):
        values = {"kl": 0.2 + 0.1 * (step % 3), "reward": step / 40, "my/own_s": 2.0, "my/squeak": 1.0, "q/z": 1.0}
        run.log(values, step=step)
    run.finish()


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "This run has 5 names, and barograph knows 2. The meaning of 1 is not decided."),
        ("zh", "该实验有 5 个名字，barograph 认识其中 2 个。 其中 1 个含义未定。"),
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


LINES = """name => [...document.querySelectorAll('.chart')].find(c => c.dataset.name === name)?.card.plot?.lines
    .map(line => [line.run, line.main.name, line.main.last.at(-1)])"""


@pytest.fixture
def two_frameworks() -> None:
    """Record a run of TRL and one of veRL, which share three quantities under different names or units."""
    lengths = {"response_length/mean": 60.0, "response_length/max": 80.0, "response_length/min": 10.0}
    trl = {"grad_norm": 1.0, "kl": 0.1, "entropy": 0.4, "completions/mean_length": 50.0, "own": 1.0}
    verl = {"actor/grad_norm": 2.0, "actor/kl_loss": 0.2, **lengths, "actor/pg_loss": 3.0}
    for id, source, values in (("t", "trl/grpo", trl), ("v", "verl", verl)):
        run = barograph.init(project="p", name=source, id=id, source=source)
        for step in range(30):
            run.log(values, step=step)
        run.finish()


def test_charts_of_two_frameworks_are_joined_by_meaning(serve: Serve, two_frameworks: None, visit: Open):
    """One chart has both lines with their names; what only one run has is shown, and what cannot be joined is said."""
    page = visit(f"{serve().base_url}/?run=t&with=v&tab=charts", 1440, 3000)
    page.wait_for_function(f"name => ({LINES})(name)?.length === 2", arg="grad_norm")
    assert page.evaluate(LINES, "grad_norm") == [["t", "grad_norm", 1.0], ["v", "actor/grad_norm", 2.0]]
    legend = page.inner_text(".chart[data-name=grad_norm] .chart-legend")
    assert "grad_norm" in legend.split()
    assert "actor/grad_norm" in legend.split()
    page.wait_for_function(f"name => ({LINES})(name)?.length", arg="completions/mean_length")
    assert page.evaluate(LINES, "completions/mean_length") == [
        ["t", "completions/mean_length", 50.0],
        ["v", "response_length/mean", 60.0],
    ]
    page.wait_for_function(f"name => ({LINES})(name)?.length", arg="actor/pg_loss")
    assert page.locator(".chart[data-name='actor/grad_norm']").count() == 0
    assert page.locator(".chart[data-name=own] .chart-legend").count() == 0
    assert "actor/kl_loss" in page.inner_text(".refused")
    page.wait_for_function(f"name => ({LINES})(name)?.length", arg="actor/kl_loss")  # in a chart of its own


def test_compare_has_the_name_of_each_run(serve: Serve, two_frameworks: None, visit: Open):
    """The legend of a chart with two names shows both."""
    page = visit(f"{serve().base_url}/?run=t&with=v&tab=compare&filter=grad_norm")
    page.wait_for_selector(".chart-legend")
    assert page.inner_text(".chart-legend").split() == ["grad_norm", "actor/grad_norm"]
