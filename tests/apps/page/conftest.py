"""Fixtures of the server's tests: a server, a browser, and a run with all kinds of data."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from browsing import Open
from serving_runs import HTML, Serve, serving, step_values
from sweep_runs import make_frameworks, make_sweep

import barograph


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return a function that starts a server for the directory of the test's runs, or another."""
    with ExitStack() as stack:

        def start(dir: Path | None = None, **options: Any) -> httpx.Client:
            chosen = dir or tmp_path / "runs"
            chosen.mkdir(exist_ok=True)
            return stack.enter_context(serving(chosen, **options))

        yield start


@pytest.fixture
def demo() -> barograph.Run:
    """Return a finished run of forty steps with phases, samples, an evaluation, a histogram and names full of HTML."""
    run = barograph.init(
        project="agentic", name=f"frozen {HTML}", id="demo", config={"actor": {"lr": 1e-6, "note": HTML}}, tags=["t"]
    )
    for step in range(40):
        with run.phase("actor_infer/generate", tokens=100), run.timer("inner"):
            pass
        with run.phase("actor_train/train_step", onload=lambda: None, offload=lambda: None):
            run.log(step_values(step))
        run.sample(
            f"prompt {step} {HTML}", f"completion {step}", reward=step / 40, task=f"q{step % 4}", length=step + 1
        )
        run.count(tokens=1000, samples=8)
        if step % 10 == 0:
            run.log({"actor/advantages": barograph.histogram(np.arange(50.0))})
            evaluation = run.evaluation("gsm8k", step=step, repeats=2)
            for task in ("a", "b"):
                for number in range(2):
                    evaluation.add(task=task, run=number, metrics={"accuracy": float(number <= step / 20)})
            evaluation.close()
        run.commit(step)
    run.text("prompt", f"Answer. {HTML}", step=3)
    run.finish()
    return run


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of forty runs of a sweep, and three of other frameworks; tests leave them as they are."""
    dir = tmp_path_factory.mktemp("sweep")
    make_sweep(dir)
    make_frameworks(dir)
    return dir


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return Debian's Chromium, driven by Playwright."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Debian's chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture
def console_errors() -> list[str]:
    """Return the list of errors in the browser's console."""
    return []


@pytest.fixture
def visit(browser: Any, console_errors: list[str]) -> Iterator[Open]:
    """Return a function that opens an address; an error in the console fails the test at its end."""
    contexts = []

    def open(address: str, width: int = 1440, height: int = 900) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60000)  # a machine of CI may be busy
        page.on("console", lambda message: console_errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda problem: console_errors.append(str(problem)))
        page.goto(address)
        return page

    yield open
    for context in contexts:
        context.close()
    # A test may end its server before the page, which asks it for news.
    assert [text for text in console_errors if "ERR_CONNECTION_REFUSED" not in text] == []
