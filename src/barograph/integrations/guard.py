"""The guard between a framework and barograph: what fails here is told, and the training goes on."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def unharmed(work: Callable[..., Any]) -> Callable[..., None]:
    """Decorate a function so that it returns None and raises nothing; an error is told once."""

    @functools.wraps(work)
    def call(*args: Any, **kwargs: Any) -> None:
        try:
            work(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a tracker may not stop the training of others
            tell_once(f"{work.__module__}.{work.__qualname__} failed: {type(error).__name__}: {error}")

    return call


def tell(text: str) -> None:
    """Print a line to standard error."""
    with suppress(OSError, ValueError, AttributeError):  # it may be closed, or None
        print(f"barograph: {text}", file=sys.stderr)


@functools.lru_cache(maxsize=100)
def tell_once(text: str) -> None:
    """Print a line to standard error, unless that was done before."""
    tell(text)
