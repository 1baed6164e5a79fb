"""Conversion of configuration objects to plain data: mappings with string keys, lists, and scalars."""

from __future__ import annotations

import dataclasses
import enum
import math
import os
from collections.abc import Mapping, Set
from typing import Any

from windsock.formatting import nonfinite_name

MAX_TEXT = 20_000
MAX_DEPTH = 100


def to_plain(value: Any, _inside: tuple[int, ...] = ()) -> Any:
    """Return mappings, dataclasses, namespaces and OmegaConf nodes, with their contents, as plain data.

    Other objects (a tokenizer, a function) become their ``repr``; non-finite floats become their names; an object
    inside itself, or nested more than 100 deep, becomes ``…``.
    """
    # IntEnum and StrEnum are numbers and strings too, hence the checks for Enum.
    if value is None or isinstance(value, bool | int):
        return value if not isinstance(value, enum.Enum) else to_plain(value.value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else nonfinite_name(value)
    if isinstance(value, str):
        return value[:MAX_TEXT] if not isinstance(value, enum.Enum) else str(value.value)
    # Only the objects around this one: one that occurs twice side by side is written twice.
    if id(value) in _inside or len(_inside) == MAX_DEPTH:
        return "…"
    if isinstance(value, enum.Enum):
        return to_plain(value.value, (*_inside, id(value)))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return _container(value, (*_inside, id(value)))


def _container(value: Any, inside: tuple[int, ...]) -> Any:
    if type(value).__module__.startswith("omegaconf."):
        from omegaconf import OmegaConf

        # Interpolations stay as written: one that cannot be resolved must not fail the whole config.
        value = OmegaConf.to_container(value, resolve=False)
    if isinstance(value, Mapping):
        return {str(key): to_plain(inner, inside) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(inner, inside) for inner in value]
    if isinstance(value, Set):
        return sorted((to_plain(inner, inside) for inner in value), key=str)  # sets have no order
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name, None), inside) for f in dataclasses.fields(value)}
    return _object(value, inside)


def _object(value: Any, inside: tuple[int, ...]) -> Any:
    """Return NumPy scalars as numbers, namespaces as mappings, and other objects as their ``to_dict`` or ``repr``."""
    kind = type(value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # without importing NumPy or torch
        return to_plain(value.item(), inside)
    if kind.__module__ in ("argparse", "types") and hasattr(value, "__dict__"):
        return {str(key): to_plain(inner, inside) for key, inner in vars(value).items()}
    if callable(getattr(value, "to_dict", None)) and not isinstance(value, type):
        try:
            return to_plain(dict(value.to_dict()), inside)
        except Exception:  # noqa: BLE001 - the object's own method may raise anything
            return repr(value)[:MAX_TEXT]
    if isinstance(value, type) or callable(value):
        return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else repr(value)
    return repr(value)[:MAX_TEXT]
