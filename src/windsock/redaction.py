"""Redaction of secrets in everything that is stored, printed or sent.

A secret is recognised by its key (``api_key``, ``hf_token``, ``password``, …) or by the form of its value
(``Bearer …``, ``sk-…``). From then on the same text is redacted everywhere: in the command line, in an exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

REDACTED = "***"

SECRET_ENDINGS = (
    "api_key", "apikey", "access_token", "password", "passwd", "passphrase", "secret", "credentials",
    "login_kwargs", "private_key", "secret_key", "access_key", "authorization",
)  # fmt: skip
HARMLESS_TOKENS = frozenset(
    "eos bos pad unk sep cls mask eot eom stop start end begin first last next prev prompt response image video audio "  # noqa: SIM905
    "vision think tool special per each every by max min num single new extra boundary separator delimiter newline "
    "placeholder control im sot context user assistant system answer query sample valid".split()
)
"""Words before ``_token`` with which it is a token of text, not a credential."""

SECRET_VALUES = re.compile(
    r"""(?x)
    (?<![A-Za-z0-9]) (?:
        (?i:bearer) \s+ [A-Za-z0-9._~+/=-]{8,}        # an HTTP authorization
      | hf_[A-Za-z0-9]{16,} | sk-[A-Za-z0-9_-]{16,} | gh[pousr]_[A-Za-z0-9]{16,} | github_pat_[A-Za-z0-9_]{20,}
      | xox[abprs]-[A-Za-z0-9-]{10,} | AKIA[0-9A-Z]{16} | glpat-[A-Za-z0-9_-]{16,}
      | eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}                 # a JSON web token
    )"""
)
URL_PASSWORD = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^/\s:@]*:)[^/\s@]+(?=@)", re.IGNORECASE)
OPTION = re.compile(r"(?P<key>[+~-]*[A-Za-z_][\w.\-]*)=(?P<value>.+)", re.DOTALL)
MIN_SECRET_LENGTH = 6  # shorter secrets are not searched for in other texts: they would match harmless ones


def is_secret_key(key: str, value: Any = "") -> bool:
    """Return whether the value under this key is a secret."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key)
    words = re.sub(r"[^A-Za-z0-9]+", "_", words).strip("_").lower()
    if any(words == ending or words.endswith("_" + ending) for ending in SECRET_ENDINGS):
        return True
    if words.endswith(("apikey", "password", "passwd")):
        return True
    if words == "token" or words.endswith("_token"):
        before = words.removesuffix("token").strip("_").rpartition("_")[2]
        return before not in HARMLESS_TOKENS and not _is_plain_token(value)
    return False


def _is_plain_token(value: Any) -> bool:
    """Return whether a value is a number, a switch or a marker like ``<image>``, and no credential."""
    if not isinstance(value, str):
        return value is None or isinstance(value, bool | int | float)
    return bool(re.fullmatch(r"\s*|[<\[{|].*[>\]}|]", value))


class Redactor:
    """Redacts secrets, and remembers those it has found."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def redact(self, config: Any) -> Any:
        """Return a copy of plain data (mappings, sequences, scalars) with every secret redacted."""
        self._learn(config)
        return self._redacted(config)

    def redact_text(self, text: str) -> str:
        """Return a text with known secrets, and parts that look like one, redacted."""
        for known in sorted(self._known, key=len, reverse=True):
            text = text.replace(known, REDACTED)
        text = URL_PASSWORD.sub(rf"\g<before>{REDACTED}", text)
        return SECRET_VALUES.sub(REDACTED, text)

    def command_line(self, arguments: Sequence[str]) -> list[str]:
        """Return a command line with secrets redacted: ``--api_key X``, ``tracker_kwargs.api_key=X``."""
        result: list[str] = []
        secret_next = False
        for argument in arguments:
            option = OPTION.fullmatch(argument)
            if secret_next and not argument.startswith("--"):
                self._remember(argument)
                argument = REDACTED
            elif option and is_secret_key(_last_part(option["key"]), option["value"]):
                self._remember(option["value"])
                argument = f"{option['key']}={REDACTED}"
            secret_next = argument.startswith("-") and not option and is_secret_key(_last_part(argument))
            result.append(argument)
        return [self.redact_text(argument) for argument in result]

    def _learn(self, data: Any) -> None:
        for key, value in _items(data):
            if isinstance(key, str) and is_secret_key(key, value):
                for text in _texts(value):
                    self._remember(text)
            else:
                self._learn(value)

    def _remember(self, text: str) -> None:
        if len(text) >= MIN_SECRET_LENGTH:
            self._known.add(text)

    def _redacted(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            return {
                self.redact_text(key) if isinstance(key, str) else key: REDACTED
                if isinstance(key, str) and is_secret_key(key, value) and not _is_empty(value)
                else self._redacted(value)
                for key, value in data.items()
            }
        if isinstance(data, list | tuple):
            return [self._redacted(value) for value in data]
        return self.redact_text(data) if isinstance(data, str) else data


def _last_part(option: str) -> str:
    return option.rpartition(".")[2]


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
