"""The page in a frame of a notebook, in a real browser."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import barograph


@contextmanager
def site(host: str, text: str) -> Iterator[int]:
    """Serve a text as a page at every path of a host; return the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer((host, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(
    ("host", "name", "is_shown"), [("127.0.0.1", "localhost", True), ("127.0.0.2", "127.0.0.2", False)]
)
def test_a_notebook_shows_the_page_and_another_site_does_not(browser: Any, host: str, name: str, is_shown: bool):
    """The page draws a run in the frame; the browser refuses to where the frame is of another site."""
    run = barograph.init(project="p", name="framed")
    for step in range(30):
        run.log({"critic/score/mean": step / 30, "actor/approxkl": 0.002}, step=step)
    run.finish()
    served = barograph.up()
    frame = f'<iframe src="{served.url}?run={run.id}" width="900" height="600"></iframe>'
    context = browser.new_context()
    page = context.new_page()
    refused = []
    page.on("console", lambda message: refused.append("frame-ancestors" in message.text))
    with site(host, frame) as port:
        page.goto(f"http://{name}:{port}/")
        if is_shown:
            page.frame_locator("iframe").locator(".vital canvas").first.wait_for(timeout=60_000)
        else:
            page.wait_for_load_state("networkidle")
        context.close()
    assert any(refused) is not is_shown
    served.stop()
