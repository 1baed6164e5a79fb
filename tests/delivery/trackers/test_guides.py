"""The guides about trackers: their code and configurations work."""

import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import barograph
from barograph.base.settings import resolve
from barograph.delivery.trackers import registry

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.fixture
def chat() -> Iterator[tuple[str, list[str]]]:
    """Run a webhook server; yield its address and the received texts."""
    received: list[str] = []

    class Room(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Room)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_guides_tracker_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chat: tuple[str, list[str]]):
    """As a package with an entry point, given its arguments, it reports every step and the end."""
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "chat.py").write_text(blocks("writing-a-tracker.md", "python")[0])
    group, point = re.findall(r'"([\w.]+)"\]\n(.*)\n', blocks("writing-a-tracker.md", "toml")[0])[0]
    distribution = tmp_path / "my_package-1.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1\n")
    (distribution / "entry_points.txt").write_text(f"[{group}]\n{point.replace(chr(34), '')}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")  # where it is not installed
    address, received = chat
    run = barograph.init(
        name="lake", track_with="chat", tracker_kwargs={"webhook": address, "metric": "score"}, config={"lr": 1}
    )
    for step in range(3):
        run.log({"score": step / 4, "loss": 1.0}, step=step)
    run.finish()
    assert received[0] == "lake starts with lr 1"
    assert "\n".join(received[1:-1]).splitlines() == ["step 0: 0", "step 1: 0.25", "step 2: 0.5"]
    assert received[-1] == "finished"


@pytest.mark.parametrize("page", ["trackers.md", "trackers.zh.md"])
def test_every_configuration_of_the_guide_is_valid(page: str, tmp_path: Path):
    """Each YAML is read and its trackers are constructed; every tracker has one."""
    shown = set()
    for text in blocks(page, "yaml"):
        (tmp_path / "config.yaml").write_text(text)
        for name, kwargs in resolve(tmp_path / "config.yaml", {}, {}).trackers.items():
            assert registry.make(name, kwargs) is not None
            shown.add(name)
    assert shown == set(registry.BUILT_IN) - {"stdout", "jsonl"}


def test_both_languages_have_the_same_code_and_every_argument():
    """Every argument of a tracker is in both guides."""
    import inspect

    ours, theirs = (
        [re.sub(r" *#.*", "", text) for language in ("python", "sh", "yaml") for text in blocks(page, language)]
        for page in ("trackers.md", "trackers.zh.md")
    )
    assert ours == theirs
    for page in ("trackers.md", "trackers.zh.md"):
        words = (DOCS / page).read_text()
        for name in registry.BUILT_IN:
            for argument in inspect.signature(registry._find(name)).parameters:
                assert f"`{argument}`" in words or f"{argument}:" in words, f"{page}: {name}: {argument}"


def test_a_run_with_tensorboard_is_tracked_from_the_first_to_the_last_step(tmp_path: Path):
    """With barograph.init."""
    run = barograph.init(name="n", track_with="tensorboard", tracker_kwargs={"log_dir": str(tmp_path / "tb")})
    for step in range(5):
        run.log({"loss": step / 2})
        run.commit(step)
    run.finish()
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (file,) = (tmp_path / "tb").rglob("*tfevents*")
    found = accumulator.EventAccumulator(str(file.parent))
    found.Reload()
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [(step, step / 2) for step in range(5)]
