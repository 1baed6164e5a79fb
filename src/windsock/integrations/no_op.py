"""Calls of other trackers that have no counterpart: they do nothing and say so once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Self

from windsock.integrations.unharmed import tell_once


class NoOp:
    """Something that another tracker has and windsock has not: every use is accepted, and nothing happens."""

    _path = ""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Tell once that this does nothing; as a decorator, return the function."""
        _tell_of(self._path)
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name: str) -> NoOp:
        if name.startswith("_"):  # what copies, pickles or displays an object asks whether it is there
            raise AttributeError(name)
        return NoOp(f"{self._path}.{name}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: Any) -> NoOp:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        return None


def _tell_of(path: str) -> None:
    tell_once(f"{path} has no counterpart in windsock and does nothing")


@functools.cache
def stand_in(module: str, name: str) -> Any:
    """Return what stands for a name that has no counterpart: a class where it is capitalised, for ``isinstance``."""
    path = f"{module}.{name}"
    if name.startswith("_"):
        raise AttributeError(f"module 'windsock.{module}' has no attribute {name!r}")
    if name[0].isupper():
        return type(name, (NoOp,), {"_path": path, "__init__": lambda self, *args, **kwargs: _tell_of(path)})
    return NoOp(path)
