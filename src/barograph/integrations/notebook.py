"""Runs and the page in notebooks (Jupyter, Colab, VS Code), and a run as a piece of HTML: the verdict, the findings
and the curves of the vital values.

Nothing of IPython is imported where it is not in use.
"""

from __future__ import annotations

import atexit
import html
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from barograph.base.errors import BarographError
from barograph.base.formatting import lasted, number, printable
from barograph.catalogue.headline import headline_values, undecided_values
from barograph.catalogue.spec import Text
from barograph.diagnosis.diagnose import VERDICTS, Diagnosis, Visit
from barograph.importers.opening import ImportedView
from barograph.importers.summary import run_names
from barograph.journal.findings import Finding
from barograph.journal.format.folder import default_dir
from barograph.journal.read.series import Buckets, Series
from barograph.journal.view import View
from barograph.recording.run import Run

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
            self._thread = threading.Thread(target=self._follow, name="barograph-notebook", daemon=True)
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
        command = [sys.executable, "-m", "barograph", "up", str(dir), "--port", str(port), "--frame", "--until-eof"]
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
        raise BarographError(f"the page did not start: {' '.join(said) or 'no answer'}")

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
        return f"<barograph page of {self.dir} at {self.url}>"

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
        raise BarographError("inline=True needs a notebook: leave it out, and open the url in a browser")
    folder = (Path(dir) if dir is not None else default_dir()).absolute()
    page = _pages.get(folder)
    if page is None or not page.is_alive:
        page = _pages[folder] = Page(folder, port)
    if inline or (inline is None and is_notebook()):
        page.show(height)
    return page


WIDTH, CURVE_HEIGHT, MARGIN = 200, 48, 3

MAX_CURVES = 12

MAX_FINDINGS = 5

COLOURS = {
    "healthy": "#1a7f37", "watch": "#9a6700", "sick": "#cf222e", "cannot tell": "#6e7781",
    "critical": "#cf222e", "warning": "#9a6700", "info": "#6e7781",
}  # fmt: skip

WORDS = {
    "running": Text("running", "运行中"),
    "finished": Text("finished", "已完成"),
    "crashed": Text("crashed", "已崩溃"),
    "killed": Text("killed", "被终止"),
    "stalled": Text("stalled", "无响应"),
    "steps": Text("steps {0} – {1}", "第 {0} – {1} 步"),
    "none": Text("no step yet", "还没有 step"),
    "since": Text("since step {0}", "从第 {0} 步起"),
    "next": Text("next", "下一步"),
    "more": Text("{0} more findings: barograph doctor {1}", "还有 {0} 条：barograph doctor {1}"),
    "undecided": Text(
        "several meanings, and not shown: {0}; source=, as in trl/grpo, decides",
        "含义不唯一，未显示：{0}；用 source=（如 trl/grpo）指定",
    ),
    "shown": Text(
        "barograph knows none of the names as a vital value: the first ones are shown",
        "没有认出关键指标，这里显示最先记录的几个",
    ),
}

SMALL = "font-size:11px;opacity:.7"

ONE_LINE = "white-space:nowrap;overflow:hidden;text-overflow:ellipsis"

CARD = (
    "font:13px/1.45 system-ui,sans-serif;border:1px solid rgba(128,128,128,.35);border-radius:6px;padding:10px 12px;"
    "max-width:900px"
)


def language() -> str:
    """Return the language of the environment: zh or en."""
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "")
    return "zh" if locale.startswith("zh") else "en"


def run_card(view: View, visit: Visit | None = None, lang: str | None = None) -> str:
    """Return the card of a run; ``visit`` is the doctor's who has seen it before."""
    lang = lang or language()
    names = run_names(view)
    diagnosis = (visit or Visit()).diagnose(view, names)
    vital = {value.name: value.headline.title.get(lang) for value in headline_values(names).values()}
    shown = vital or dict.fromkeys(view.names(), "")
    curves = [_curve(view.series(name), title, diagnosis) for name, title in list(shown.items())[:MAX_CURVES]]
    notes = [] if vital or not shown else [_word("shown", lang)]
    if undecided := {resolution.name for resolution in undecided_values(names).values()}:
        notes.append(_word("undecided", lang, ", ".join(sorted(undecided))))
    grid = [f'<div style="display:flex;flex-wrap:wrap;gap:14px;margin-top:8px">{"".join(curves)}</div>']
    parts = [
        _heading(view, diagnosis, lang),
        *_findings(diagnosis, view, lang),
        *map(_note, notes),
        *(grid if curves else []),
    ]
    return f'<div style="{CARD}">{"".join(parts)}</div>'


def _heading(view: View, diagnosis: Diagnosis, lang: str) -> str:
    status, (began, heard) = view.status, view.span
    steps = _word("steps", lang, f"{view.steps[0]:,}", f"{view.steps[1]:,}") if view.steps else _word("none", lang)
    word = _word(status.word, lang) if status.word in WORDS else status.word
    facts = [word + (f": {_text(status.reason)}" if status.reason else ""), steps, lasted(began, heard)]
    badge = (
        f'<span style="background:{COLOURS[diagnosis.verdict]};color:#fff;border-radius:9px;padding:1px 9px">'
        f"{VERDICTS[diagnosis.verdict].get(lang)}</span>"
    )
    facts += [_text(reason.get(lang)) for reason in diagnosis.reasons]
    return f'<b>{_text(view.name)}</b> {badge} <span style="opacity:.75">{" · ".join(facts)}</span>'


def _findings(diagnosis: Diagnosis, view: View, lang: str) -> Iterator[str]:
    """Yield a block for each finding: how bad it is, since when, what it says, and the first advice."""
    found = [finding for finding in diagnosis.findings if finding.severity != "info"]
    for finding in found[:MAX_FINDINGS]:
        advice = f"<br>{_word('next', lang)}: {_text(finding.advice[0].get(lang))}" if finding.advice else ""
        yield (
            f'<div style="border-left:3px solid {COLOURS[finding.severity]};padding-left:8px;margin-top:6px">'
            f"<b>{_text(finding.title.get(lang))}</b>, {_word('since', lang, f'{finding.onset:,}')}<br>"
            f'<span style="opacity:.85">{_text(finding.text.get(lang))}{advice}</span></div>'
        )
    if len(found) > MAX_FINDINGS:
        yield _note(_word("more", lang, len(found) - MAX_FINDINGS, view.id))


def _note(text: str) -> str:
    return f'<div style="{SMALL}">{_text(text)}</div>'


def _curve(series: Series, title: str, diagnosis: Diagnosis) -> str:
    """Return a small chart of a series with its last value, and with the steps where findings about it begin."""
    buckets = series.zoom(max_points=WIDTH // 2)
    name = _text(series.name)
    heading = f"{_text(title)}<br>{name}" if title else name
    low, high = _extremes(buckets)
    findings = [one for one in diagnosis.findings if series.name in one.evidence and one.severity != "info"]
    return (
        f'<div style="width:{WIDTH}px"><div style="{SMALL};{ONE_LINE}" title="{name}">{heading}</div>'
        f"<b>{number(series.last)}</b>"
        f'<svg viewBox="0 0 {WIDTH} {CURVE_HEIGHT}" width="{WIDTH}" height="{CURVE_HEIGHT}" style="display:block" '
        f'role="img" aria-label="{name}: {low} – {high}">{"".join(_drawing(buckets, findings))}</svg>'
        f'<div style="{SMALL};display:flex;justify-content:space-between"><span>{low} – {high}</span>'
        f"<span>{int(series.steps[-1]):,}</span></div></div>"
    )


def _extremes(buckets: Buckets) -> tuple[str, str]:
    """Return the lowest and the highest finite value as text."""
    finite = np.isfinite(buckets.min)
    if not finite.any():
        return "", ""
    return number(float(buckets.min[finite].min())), number(float(buckets.max[finite].max()))


@np.errstate(over="ignore", invalid="ignore")  # of values near the largest number, and of NaN
def _drawing(buckets: Buckets, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the shapes: extremes as an area, last values as a line, and marks where values are not finite."""
    middle = (buckets.first_step + buckets.last_step) / 2
    begin, end = float(middle[0]), float(middle[-1])
    x = _scaled(middle, begin, end, 0, WIDTH)
    for finding in findings:
        place = float(_scaled(np.array([finding.onset], float), begin, end, 0, WIDTH)[0])
        yield (
            f'<line x1="{place:.1f}" x2="{place:.1f}" y1="0" y2="{CURVE_HEIGHT}" stroke="{COLOURS[finding.severity]}" '
            'stroke-dasharray="3 2"/>'
        )
    finite = np.isfinite(buckets.min)
    if finite.any():
        low, high = float(buckets.min[finite].min()), float(buckets.max[finite].max())
        tops, bottoms, lines = (
            _scaled(values, low, high, CURVE_HEIGHT - MARGIN, MARGIN)
            for values in (buckets.max, buckets.min, buckets.last)
        )
        for part in _stretches(finite):
            edge = [*_points(x[part], tops[part]), *reversed(_points(x[part], bottoms[part]))]
            yield f'<polygon points="{" ".join(edge)}" fill="currentColor" opacity=".18"/>'
        for part in _stretches(np.isfinite(buckets.last)):
            line = " ".join(_points(x[part], lines[part]))
            yield f'<polyline points="{line}" fill="none" stroke="#0969da" stroke-width="1.5" stroke-linecap="round"/>'
    for place in x[buckets.nonfinite > 0].tolist():
        yield f'<rect x="{place - 1:.1f}" y="{CURVE_HEIGHT - 6}" width="2" height="6" fill="{COLOURS["critical"]}"/>'


def _scaled(values: np.ndarray, low: float, high: float, first: float, last: float) -> np.ndarray:
    """Return where values lie between two places; in the middle if all are the same."""
    half = high / 2 - low / 2  # the range itself may overflow
    if not half > 0:
        return np.full(len(values), (first + last) / 2)
    return np.asarray(first + (values / 2 - low / 2) / half * (last - first))


def _stretches(there: np.ndarray) -> Iterator[slice]:
    """Yield the stretches of rows that are there."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(np.int8)))
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield slice(begin, end)


def _points(x: np.ndarray, y: np.ndarray) -> list[str]:
    """Return the points of a line; a single one twice, so that it is a dot."""
    found = [f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return found * 2 if len(found) == 1 else found


def _word(key: str, lang: str, *values: object) -> str:
    return WORDS[key].get(lang).format(*values)


def _text(text: str) -> str:
    return html.escape(printable(text))
