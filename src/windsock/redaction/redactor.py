"""The object that redacts data, texts and command lines, and remembers the secrets that it has found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from windsock.redaction.keys import AUTH_SCHEMES, is_named_secret, is_secret_key
from windsock.redaction.texts import REDACTED, is_secret_option, is_weak_key, redact_forms

MAX_TEXT = 20_000  # characters of one text that are searched and kept; the rest is cut off
MARGIN = 5_000  # searched beyond that, so that no half of a secret is left at the cut
MIN_SECRET_LENGTH = 6  # shorter secrets are not searched for in other texts: they would match harmless ones
SETTING = re.compile(r"(?P<key>[+~-]*[A-Za-z_][\w.\-]*+)=(?P<value>.+)", re.DOTALL)


class Redactor:
    """Redacts secrets, and remembers those it has found."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._longest_first: list[str] = []

    def redact(self, config: Any) -> Any:
        """Return a copy of plain data (mappings, sequences, scalars) with every secret redacted.

        A text of more than ``MAX_TEXT`` characters is cut first, as in ``redact_text``.
        """
        self._learn(config)
        return self._redacted(config)

    def redact_text(self, text: str) -> str:
        """Return a text with known secrets, and parts that look like one, redacted.

        A text of more than ``MAX_TEXT`` characters is cut and says so, so that the time has a bound.
        """
        length = len(text)
        text = text[: MAX_TEXT + MARGIN]
        if len(self._longest_first) != len(self._known):
            self._longest_first = sorted(self._known, key=len, reverse=True)
        for known in self._longest_first:
            text = text.replace(known, REDACTED)
        text = redact_forms(text)
        if length <= MAX_TEXT:
            return text
        if length > MAX_TEXT + MARGIN:
            text = text[:-MARGIN]
        return f"{text[:MAX_TEXT]}… (cut: the text has {length} characters)"

    def command_line(self, arguments: Sequence[str]) -> list[str]:
        """Return a command line with secrets redacted: ``--api_key X``, ``-p X``, ``tracker_kwargs.api_key=X``."""
        result: list[str] = []
        option = ""
        for argument in arguments:
            setting = SETTING.fullmatch(argument)
            if option and not argument.startswith("--") and is_secret_option(option, argument):
                self._remember(argument)
                argument = REDACTED
            elif setting and is_secret_option(setting["key"], setting["value"]):
                self._remember(setting["value"])
                argument = f"{setting['key']}={REDACTED}"
            option = argument if argument.startswith("-") and not setting else ""
            result.append(argument)
        return [self.redact_text(argument) for argument in result]

    def _learn(self, data: Any) -> None:
        if isinstance(data, Mapping) and is_named_secret(data):
            self._remember_all(data["value"])
        if _is_command(data):
            self.command_line(data)
        for key, value in _items(data):
            if isinstance(key, str) and is_secret_key(key, value):
                self._remember_all(value, is_weak_key(key))
            else:
                self._learn(value)

    def _remember_all(self, secret: Any, weak: bool = False) -> None:
        for text in _texts(secret):
            if not (weak and re.fullmatch(r"[A-Za-z]{1,11}", text)):  # auth: simple
                self._remember(text)

    def _remember(self, text: str) -> None:
        """Remember a secret, its lines, and its forms in URLs and JSON."""
        for line in {text, text.strip(), *(line for line in text.splitlines() if len(line) >= 20)}:
            if len(line) >= MIN_SECRET_LENGTH and line.lower() not in AUTH_SCHEMES:
                short = line[:MAX_TEXT]
                self._known |= {
                    short,
                    quote(short, safe="", errors="replace"),
                    json.dumps(short)[1:-1],
                    repr(short)[1:-1],
                }

    def _redacted(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            named = is_named_secret(data)
            return {
                self.redact_text(key) if isinstance(key, str) else key: REDACTED
                if isinstance(key, str)
                and ((named and key == "value") or is_secret_key(key, value))
                and not _is_empty(value)
                else self._redacted(value)
                for key, value in data.items()
            }
        if _is_command(data):
            return self.command_line(data)
        if isinstance(data, list | tuple):
            return [self._redacted(value) for value in data]
        return self.redact_text(data) if isinstance(data, str) else data


def _is_command(data: Any) -> bool:
    """Return whether a list is a command line: texts only, and an option among them."""
    return (
        isinstance(data, list | tuple)
        and all(isinstance(inner, str) for inner in data)
        and any(inner.startswith("-") for inner in data)
    )


def _is_empty(value: Any) -> bool:
    return value is None or value == ""


def _items(data: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(data, Mapping):
        return data.items()
    return ((None, value) for value in data) if isinstance(data, list | tuple) else ()


def _texts(value: Any) -> Iterable[str]:
    """Yield all texts inside a secret, which may be a mapping."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    for _, inner in _items(value):
        yield from _texts(inner)
