"""Runs and the page in a notebook, executed by a real kernel."""

import html.parser
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import numpy as np
import pytest

import barograph
from barograph.base.errors import BarographError
from barograph.integrations.notebook import run_card

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

NAMES = ("critic/score/mean", "actor/approxkl", "actor/grad_norm")


def executed(folder: Path, *cells: str) -> list[Any]:
    """Return the outputs of each cell of a notebook that was executed in a folder."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(textwrap.dedent(cell)) for cell in cells])
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return [cell["outputs"] for cell in notebook["cells"]]


def shown(outputs: Any) -> str:
    """Return the only piece of HTML among the outputs of a cell."""
    (found,) = [one["data"]["text/html"] for one in outputs if "text/html" in one.get("data", {})]
    return str(found)


class Parsed(html.parser.HTMLParser):
    """The tags and the text of a piece of HTML; every tag that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("href", "src")]
        if tag != "br":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def record(steps: int, **settings: Any) -> barograph.Run:
    run = barograph.init(project="p", **settings)
    for step in range(steps):
        run.log({"critic/score/mean": step / 100, "actor/approxkl": 0.002, "actor/grad_norm": 1.0}, step=step)
    return run


def test_a_displayed_run_follows_the_training(tmp_path: Path):
    """The cell that shows it has what later cells log, without another call; the view of its folder shows the same."""
    begin, shown_run, _, opened, _ = executed(
        tmp_path,
        """
        import time
        import barograph, barograph.integrations.notebook as notebook
        notebook.UPDATE_SECONDS = 0.1
        run = barograph.init(project="p", name="live", dir="runs")
        """,
        "run",
        """
        for step in range(150):
            run.log({"critic/score/mean": step / 100, "actor/approxkl": 0.002, "actor/grad_norm": 1.0}, step=step)
        run.finish()
        while notebook._live_cards[run.path].is_alive:
            time.sleep(0.05)
        """,
        "barograph.open(run.path)",
        "assert type(run.log).__name__ == 'method'",
    )
    assert begin == []
    for outputs in (shown_run, opened):
        found = Parsed(shown(outputs))
        assert "finished" in found.text
        assert "steps 0 – 149" in found.text
        assert "live" in found.text
        assert found.tags.count("svg") == 3
        assert not {"script", "style", "iframe", "img", "link"} & {*found.tags}


def test_a_card_shows_what_the_doctor_says():
    """Verdict, findings with their advice, vital values with their curves and the marks of the findings."""
    run = record(60)
    for step in range(60, 90):
        run.log({"actor/grad_norm": float("nan"), "critic/score/mean": 0.5}, step=step)
    run.finish()
    view = barograph.open(run.path)
    diagnosis = barograph.doctor(view)
    card = Parsed(run_card(view, lang="en"))
    told = [finding for finding in diagnosis.findings if finding.severity != "info"]
    assert told
    for finding in told:
        assert finding.title.en in card.text
        assert finding.advice[0].en in card.text
    assert diagnosis.verdict in card.text
    assert "line" in card.tags
    assert "rect" in card.tags
    chinese = Parsed(run_card(view, lang="zh")).text
    assert told[0].title.zh in chinese
    assert "已完成" in chinese


def test_a_vital_value_whose_meaning_is_not_decided_is_named():
    """It is not drawn as something that it may not be."""
    run = barograph.init()
    for step in range(3):
        run.log({"reward": 0.5, "kl": 0.01 * step, "entropy": 1.0}, step=step)
    card = Parsed(run._repr_html_() or "").text
    assert "several meanings, and not shown: kl;" in card
    assert "Reward" in card


def test_a_card_of_anything_is_drawn():
    """Nothing logged, one point, no finite value, values near the largest number, and names that no one knows."""
    names = {
        "one": [1.0],
        "nan": [np.nan, np.inf],
        "flat": [2.0] * 5,
        "huge": [-1.7e308, 1.7e308],
        "gap": [1, np.nan, 3],
    }
    run = barograph.init(name="<script>alert(1)</script>")
    assert "no step yet" in Parsed(run._repr_html_() or "").text
    for name, values in names.items():
        for step, value in enumerate(values):
            run.log({f"<i>{name}": value}, step=step)
    text = run._repr_html_() or ""
    card = Parsed(text)
    assert "<script>alert(1)</script>" in card.text
    assert not {"script", "i"} & {*card.tags}
    assert card.tags.count("svg") == len(names)
    assert not re.search(r'"[^"]*\b(nan|inf)\b[^"]*" (fill|stroke)', text)


def test_a_long_run_is_drawn_with_its_extremes():
    """A single spike among many points is in the area of the curve, and the card stays small."""
    run = barograph.init()
    for step in range(20_000):
        run.log({"actor/grad_norm": 100.0 if step == 12_345 else 1.0}, step=step)
    text = run._repr_html_() or ""
    assert "1 – 100" in Parsed(text).text
    assert len(text) < 20_000


def test_a_run_that_is_not_recorded_has_no_card(monkeypatch: pytest.MonkeyPatch):
    """The notebook shows its text instead; so does IPython on a terminal."""
    run = barograph.init()
    with pytest.raises(NotImplementedError):
        run._ipython_display_()
    monkeypatch.setenv("BAROGRAPH_MODE", "disabled")
    assert barograph.init()._repr_html_() is None


def test_ipython_on_a_terminal_prints_the_run():
    """There is no HTML to see."""
    code = """
        from IPython.core.interactiveshell import InteractiveShell
        import barograph
        shell = InteractiveShell.instance()
        shell.user_ns["run"] = barograph.init()
        shell.run_cell("run")
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "<barograph.Run" in done.stdout
    assert "HTML" not in done.stdout


def test_following_takes_a_small_share_of_the_time(monkeypatch: pytest.MonkeyPatch):
    """The pause after an update that took long is long."""
    from barograph.integrations import notebook

    pauses: list[float] = []
    clock = iter([0.0, 1.0, 1.0, 1.001])
    results = iter([True, False])
    monkeypatch.setattr(notebook.time, "sleep", pauses.append)
    monkeypatch.setattr(notebook.time, "thread_time", lambda: next(clock))
    live = notebook.LiveCard(barograph.open(record(1).path))
    monkeypatch.setattr(live, "_update", lambda: next(results))
    live._follow()
    assert pauses == [notebook.UPDATE_SECONDS, 1.0 / notebook.MAX_SHARE]


def test_the_lines_of_the_page_run(tmp_path: Path):
    """docs/notebooks.md: every block is a cell; the first one shows the run as it is at the end."""
    text = (Path(__file__).parent.parent.parent / "docs" / "notebooks.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    fast = "import barograph.integrations.notebook as notebook; notebook.UPDATE_SECONDS = 0.1"
    wait = "import time\nwhile notebook._live_cards[run.path].is_alive: time.sleep(0.05)"
    _, first, *_, third, frame = executed(tmp_path, fast, blocks[0], blocks[1] + wait, *blocks[2:])
    assert "steps 0 – 99" in Parsed(shown(first)).text
    assert Parsed(shown(third)).text == Parsed(shown(first)).text
    assert "<iframe" in shown(frame)


def test_a_cell_that_is_executed_again_begins_a_new_run_of_wandb(tmp_path: Path):
    """As W&B does in notebooks: the open one is finished."""
    cell = "import barograph.wandb as wandb; first = wandb.init()"
    executed(
        tmp_path, cell, "second = wandb.init(); assert first.ended and wandb.run is second and first is not second"
    )


def answer(url: str) -> tuple[int, dict[str, str], str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, {k.lower(): v for k, v in response.headers.items()}, response.read().decode()
    except HTTPError as problem:
        return problem.code, {}, ""


def test_the_page_is_served_and_shown_in_a_frame_of_the_notebook(tmp_path: Path):
    """The frame has its address, which answers while the kernel lives, and a second call shows the same page."""
    code = """
        import json, urllib.request, barograph
        barograph.init(project="p", name="n", dir="barograph-runs").finish()
        page = barograph.up(inline=True)
        assert barograph.up(inline=False) is page
        found = urllib.request.urlopen(page.url + "api/runs").read().decode()
        print(json.dumps({"url": page.url, "pid": page._process.pid, "runs": found}))
    """
    (outputs,) = executed(tmp_path, f"import os; os.environ.pop('BAROGRAPH_DIR', None){textwrap.dedent(code)}")
    frame = shown(outputs)
    (text,) = [one["text"] for one in outputs if one["output_type"] == "stream"]
    said = json.loads(text)
    assert f'src="{said["url"]}"' in frame
    assert '"n"' in said["runs"]
    wait_for_end(said["pid"])


def wait_for_end(pid: int) -> None:
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail(f"process {pid} is still there")


def test_the_page_may_be_framed_by_notebooks_only():
    """Its headers allow notebooks of this machine, and the page of the command allows nobody."""
    record(1).finish()
    page = barograph.up()
    status, headers, _ = answer(page.url)
    assert status == 200
    policy = headers["content-security-policy"]
    assert "frame-ancestors 'self' http://localhost:* http://127.0.0.1:*" in policy
    assert "https: " not in policy
    assert "x-frame-options" not in headers
    assert repr(page).endswith(f"at {page.url}>")
    page.stop()
    assert not page.is_alive
    again = barograph.up()
    assert again.is_alive
    again.stop()


def test_the_page_ends_with_a_process_that_is_killed(tmp_path: Path):
    """However it ends: nothing is left."""
    record(1).finish()
    code = "import os, barograph; page = barograph.up(); print(page._process.pid, flush=True); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    wait_for_end(int(done.stdout))


def test_a_page_that_cannot_start_says_why(tmp_path: Path):
    """What the command printed is the error; without a notebook there is nothing to show it in."""
    with pytest.raises(BarographError, match="the page did not start: .*nowhere does not exist"):
        barograph.up(tmp_path / "nowhere")
    with pytest.raises(BarographError, match="inline=True needs a notebook"):
        barograph.up(inline=True)


def test_colab_shows_the_port_of_its_machine(tmp_path: Path):
    """Its own function makes the frame, since the browser does not reach the machine."""
    code = """
        import sys, types
        calls = []
        colab = types.ModuleType("google.colab")
        show = lambda port, height: calls.append((port, height))
        colab.output = types.SimpleNamespace(serve_kernel_port_as_iframe=show)
        sys.modules["google.colab"] = colab
        import barograph
        barograph.init(dir="barograph-runs").finish()
        page = barograph.up("barograph-runs", height=500)
        assert calls == [(int(page.url.rstrip("/").rpartition(":")[2]), "500")], calls
        import urllib.request
        request = urllib.request.Request(page.url, headers={"Host": "abc-8790-colab.googleusercontent.com"})
        assert urllib.request.urlopen(request).status == 200
    """
    (outputs,) = executed(tmp_path, code)
    assert not [one for one in outputs if "text/html" in one.get("data", {})]
