"""What a notebook shows of a run, recorded or read. How it is drawn is known to the notebook integration alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _plain(function: str, run: object) -> None:
    raise NotImplementedError("import barograph shows runs in notebooks")


class Displayed:
    """Base of runs and views. The package sets ``_draw``, which calls a function of the notebook integration."""

    _draw: Callable[[str, Displayed], Any] = staticmethod(_plain)

    def _repr_html_(self) -> str | None:
        """Return the verdict and the vital curves, for a notebook."""
        html: str | None = Displayed._draw("run_html", self)
        return html

    def _ipython_display_(self) -> None:
        """Show the verdict and the vital curves in a notebook, and keep them up to date while the run goes on."""
        Displayed._draw("display_run", self)
