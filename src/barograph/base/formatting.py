"""Formatting of numbers, sizes, times and metric names for people and for JSON, and conversion of configuration
objects to plain data: mappings with string keys, lists, and scalars.
"""

from __future__ import annotations

import codecs
import dataclasses
import enum
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any


def flattened(values: Mapping[str, Any], prefix: str = "", separator: str = "/") -> Iterator[tuple[str, Any]]:
    """Yield names and values; those of a mapping inside have its name before theirs."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}{separator}", separator)
        else:
            yield f"{prefix}{name}", value


SIZES = ("B", "kB", "MB", "GB", "TB")

ERRORS = "barograph.substitute"  # name of the error handler

CONTROL_PICTURES = {chr(code): chr(0x2400 + code) for code in range(32)} | {"\x7f": "\u2421"}
"""Control characters and their Unicode pictures."""

SUBSTITUTES = dict(zip("▁▂▃▄▅▆▇█░▒━─│×·–—…✓✗●◌▶★≈≠→“”‘’", "_.,-~=*#.:=-|x.--~vxo.>*~!>\"\"''", strict=True))
"""What is written where an encoding lacks a character: one character each, so that columns stay aligned."""


def substitute(problem: UnicodeError) -> tuple[str | bytes, int]:
    """Replace a character that an encoding lacks: an error handler for ``codecs.register_error``."""
    if isinstance(problem, UnicodeEncodeError):
        char = problem.object[problem.start]
        if char in SUBSTITUTES:
            return SUBSTITUTES[char], problem.start + 1
        problem.end = problem.start + 1
    return codecs.backslashreplace_errors(problem)


def fitting(text: str, encoding: str | None) -> str:
    """Return a text that an encoding has all characters of: others are substituted or escaped."""
    if encoding is None or text.isascii():
        return text
    codecs.register_error(ERRORS, substitute)
    return text.encode(encoding, ERRORS).decode(encoding)


def printable(text: str, newlines: bool = False) -> str:
    r"""Return a text that is safe to print: no character of it moves the cursor, sends a command or hides others.

    Control characters become their pictures (``␛``); direction overrides, lone surrogates and all else that is not
    printable become escapes (``\u202e``). Newlines stay if ``newlines`` is set; tabs become spaces.
    """
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n").expandtabs(4)
    return "".join(c if c.isprintable() or (newlines and c == "\n") else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    if char in CONTROL_PICTURES:
        return CONTROL_PICTURES[char]
    if unicodedata.category(char) == "Zs":
        return " "
    if char in "\u200d\u200c":  # joiners are part of words and emoji
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def encodable(text: str) -> str:
    """Return a text that UTF-8 can encode: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def number(value: float) -> str:
    """Format a value with about five significant digits: 0.1234, 1.2e-06, 12,345."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e5:
        digits = max(0, 4 - math.floor(math.log10(abs(value))))
        return f"{value:,.{min(digits, 7)}f}".rstrip("0").rstrip(".")
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent):+03d}"


def size(count: float) -> str:
    """Format a number of bytes: 12.3 MB."""
    for unit in SIZES[:-1]:
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {SIZES[-1]}"


def counted(count: int, one: str, several: str = "") -> str:
    """Return a count with its noun: 1 row, 1,234 rows; ``several`` is a plural that does not end in s."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: 3h 12m, 4m 05s, 12.3s, 45ms."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    total = round(seconds)
    days, hours, minutes = total // 86400, total // 3600 % 24, total // 60 % 60
    if days:
        return f"{days}d {hours:02d}h"
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {total % 60:02d}s"


def lasted(began: float, heard: float) -> str:
    """Format how long a run lasted; "–" where all its rows have one time, as those of a log without times."""
    return duration(heard - began) if heard > began else "–"


def age(seconds: float) -> str:
    """Format the time since an event in one unit: 3h ago."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit} ago"
    return "just now" if seconds < 5 else f"{int(seconds)}s ago"


def nonfinite_name(value: float) -> str:
    """Return the name of a non-finite number in files: NaN, Infinity or -Infinity."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def json_number(value: float) -> float | int | str:
    """Return a value for strict JSON: non-finite numbers as strings, integral ones as integers."""
    if math.isfinite(value):
        return int(value) if value == int(value) and abs(value) < 2**53 else value
    return nonfinite_name(value)


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nested configuration with dotted names (``actor.lr``); an empty mapping is a leaf."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def by_family(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Group names by family in natural order, those by domain last; names without a family are first, under ""."""
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(family(name), []).append(name)
    for members in (found for found in families.values() if len(found) > 1):
        members.sort(key=lambda name: ("/by/" in name, natural(name)))
    return sorted(families.items())


def family(name: str) -> str:
    """Return the part of a name before the first slash; "" for a name without a slash."""
    head, slash, _ = name.partition("/")
    return head if slash else ""


def natural(name: str) -> list[tuple[int, int | str]]:
    """Return a sort key that puts layer2 before layer10."""
    return [(0, int(digits)) if digits.isdecimal() else (1, digits) for digits in re.split(r"(\d+)", name) if digits]


def ranges(numbers: Sequence[int], most: int | None = None) -> str:
    """Return ascending numbers as text, such as ``1 to 3, 5``; beyond ``most`` ranges, the number of the others."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    shown = found[:most]
    rest = len(numbers) - sum(high - low + 1 for low, high in shown)
    text = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in shown)
    return f"{text} and {rest:,} more" if rest else text


def describe_error(error: BaseException) -> str:
    """Return the type and the text of an exception; the type alone if its own ``__str__`` raises."""
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # noqa: BLE001 - an exception's __str__ may raise anything
        return type(error).__name__


MAX_PLAIN_TEXT = 20_000

MAX_PLAIN_DEPTH = 100


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
        return value[:MAX_PLAIN_TEXT] if not isinstance(value, enum.Enum) else str(value.value)
    # Only the objects around this one: one that occurs twice side by side is written twice.
    if id(value) in _inside or len(_inside) == MAX_PLAIN_DEPTH:
        return "…"
    if isinstance(value, enum.Enum):
        return to_plain(value.value, (*_inside, id(value)))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return _plain_container(value, (*_inside, id(value)))


def _plain_container(value: Any, inside: tuple[int, ...]) -> Any:
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
    return _plain_object(value, inside)


def _plain_object(value: Any, inside: tuple[int, ...]) -> Any:
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
            return repr(value)[:MAX_PLAIN_TEXT]
    if isinstance(value, type) or callable(value):
        return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else repr(value)
    return repr(value)[:MAX_PLAIN_TEXT]
