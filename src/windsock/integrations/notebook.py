"""Runs and the page in notebooks: Jupyter, Colab, VS Code. Nothing of IPython is imported where it is not in use."""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from windsock.diagnosis.doctor import Visit
from windsock.errors import WindsockError
from windsock.integrations.run_card import run_card
from windsock.journal.folder import default_dir
from windsock.opening import ImportedView
from windsock.run import Run
from windsock.view import View

UPDATE_SECONDS = 2.0
MAX_SHARE = 0.02  # of the time that updates may take; a training has the other threads of the process
MAX_PLACES = 4  # at which a run is kept up to date, the newest ones
START_SECONDS = 60.0  # for the page to answer
HEIGHT = 700  # of the page's frame, in pixels


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


def run_html(shown: Run | View) -> str | None:
    """Return a run as HTML; None if it is disabled, or cannot be read."""
    if isinstance(shown, Run) and shown.writer.attempt == 0:
        return None
    try:
        return run_card(View(shown.path) if isinstance(shown, Run) else shown)
    except Exception:  # noqa: BLE001 - a notebook shows the text of the object instead
        return None


_live_cards: dict[Path, LiveCard] = {}


def display_run(shown: Run | View) -> None:
    """Display a run in a notebook, and keep it up to date until it ends.

    Raise NotImplementedError elsewhere, and for a disabled run, so that IPython prints the object.
    """
    if not is_notebook() or (isinstance(shown, Run) and shown.writer.attempt == 0):
        raise NotImplementedError
    found = _live_cards.get(shown.path)
    if found is None or not found.is_alive:
        found = _live_cards[shown.path] = LiveCard(_view_of(shown))
    found.show()


def _view_of(shown: Run | View) -> View:
    """Return a view of one's own: one may not be used by two threads."""
    if isinstance(shown, Run):
        return View(shown.path)
    view = ImportedView(shown.log) if isinstance(shown, ImportedView) else View(shown.path)
    view.source = shown.source
    return view


class LiveCard:
    """A run in the output of cells, where a thread replaces it as the run goes on."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._visit = Visit()
        self._places: deque[Any] = deque(maxlen=MAX_PLACES)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the run is being followed."""
        return self._thread is not None and self._thread.is_alive()

    def show(self) -> None:
        """Show the run in the current cell too."""
        from IPython.display import HTML, display

        with self._lock:
            self._view.refresh()
            self._places.append(display(HTML(run_card(self._view, self._visit)), display_id=True))
            goes_on = not self._view.status.ended
        if goes_on and not self.is_alive:
            self._thread = threading.Thread(target=self._follow, name="windsock-notebook", daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        seconds = UPDATE_SECONDS
        while True:
            time.sleep(seconds)
            began = time.thread_time()
            if not self._update():
                return
            seconds = max(UPDATE_SECONDS, (time.thread_time() - began) / MAX_SHARE)

    def _update(self) -> bool:
        """Replace the run by what it is now; return whether it goes on."""
        from IPython.display import HTML

        try:
            with self._lock:
                before = self._view.status
                if self._view.refresh() or self._view.status != before:
                    shown = HTML(run_card(self._view, self._visit))
                    for place in self._places:
                        place.update(shown)
                return not self._view.status.ended
        except Exception:  # noqa: BLE001 - the last card stays; a thread of a notebook has nobody to tell
            return False


class Page:
    """The web page of a directory of runs, served by another process until ``stop`` or the end of this one."""

    def __init__(self, dir: Path, port: int = 0) -> None:
        self.dir = dir
        command = [sys.executable, "-m", "windsock", "up", str(dir), "--port", str(port), "--frame", "--until-eof"]
        # In a session of its own: an interrupt of the cell is not meant for it.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self.url = self._address()
        atexit.register(self.stop)

    def _address(self) -> str:
        """Return the address that the process prints once it answers; raise what it says instead."""
        timer = threading.Timer(START_SECONDS, self._process.kill)
        timer.start()
        said = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r" at (http://\S+)", line):
                timer.cancel()
                return found[1]
            said.append(line.strip())
        timer.cancel()
        self.stop()
        raise WindsockError(f"the page did not start: {' '.join(said) or 'no answer'}")

    @property
    def is_alive(self) -> bool:
        """Whether the page is served."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Stop serving."""
        atexit.unregister(self.stop)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __repr__(self) -> str:
        return f"<windsock page of {self.dir} at {self.url}>"

    def show(self, height: int = HEIGHT) -> None:
        """Show the page in a frame below the cell."""
        port = urlsplit(self.url).port
        colab = sys.modules.get("google.colab")
        if colab is not None:
            colab.output.serve_kernel_port_as_iframe(port, height=str(height))
            return
        from IPython.display import IFrame, display

        display(IFrame(self.url, width="100%", height=height))


_pages: dict[Path, Page] = {}


def up(
    dir: str | os.PathLike[str] | None = None, *, inline: bool | None = None, port: int = 0, height: int = HEIGHT
) -> Page:
    """Serve the web page of a directory of runs in the background, and return it; its ``url`` is the address.

    ``inline`` shows it in a frame below the cell, by default in a notebook. The page ends with this process.
    """
    if inline and not is_notebook():
        raise WindsockError("inline=True needs a notebook: leave it out, and open the url in a browser")
    folder = (Path(dir) if dir is not None else default_dir()).absolute()
    page = _pages.get(folder)
    if page is None or not page.is_alive:
        page = _pages[folder] = Page(folder, port)
    if inline or (inline is None and is_notebook()):
        page.show(height)
    return page
