"""Redaction of secrets in everything that is stored, printed or sent.

A secret is recognised by its key or by the form of its value (``secrets``), also inside a text: in URLs, in
assignments such as ``WANDB_API_KEY=…`` and in options. From then on the same text is redacted everywhere: in the
command line, in an exception.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from barograph.base.secrets import (
    AUTH_SCHEMES,
    MAX_KEY,
    compiled_rules,
    is_named_secret,
    is_secret_key,
    looks_random,
    may_be_secret,
    split_words,
)

REDACTED = "***"

USER_INFO = re.compile(r"(?<=://)(?P<info>[^/?#\s\"'<>]*)@")

ODD_PASSWORD = re.compile(
    r"(?<=://)(?P<info>[^/?#\s\"'<>:@\[]{0,64}:(?!\*\*\*@|\d{1,5}[/?#\s\"'<>]|\d{1,5}$)[^\s\"'<>]{1,256})@"
)
"""A password that contains ``/``, ``?`` or ``#``: what follows the colon is not a port."""

NO_PASSWORDS = frozenset(("", "x", "x-oauth-basic", "api_token", "oauth2"))
"""Passwords that mean that the user name is a token."""

QUOTE = r"(?:\\{0,4}[\"'])"

ASSIGNMENT = re.compile(
    rf"(?P<before>[?&]?)(?<![\w.-])(?P<key>[+~-]{{0,4}}[A-Za-z_][\w.-]*+)(?P<quoted>{QUOTE}?\]?)"
    rf"[ \t]{{0,8}}(?P<sign>=>|:=|==?|:(?!//)|%3[dD])[ \t]{{0,8}}(?P<open>[rbfu]?{QUOTE})?"
)

OPTION = re.compile(
    rf"(?<![\w.-])(?P<key>--?[A-Za-z][\w.-]*+)(?P<quoted>{QUOTE}?)(?P<sign>[ \t,]{{1,8}})(?P<open>{QUOTE})?(?!-)"
)

URL_KEYS = frozenset(
    "sig signature key auth sign ticket code hmac jwt sas session sid pass pwd apikey appkey credential securitytoken "  # noqa: SIM905
    "password accesskeyid ossaccesskeyid secret".split()
)
"""Last words of query parameters that are secrets in a URL, besides those of ``is_secret_key``."""

HEADERS = ("authorization", "cookie")

WEAK_WORDS = frozenset("token tokens auth pass key keys cookie cookies pw ak sk pat cred jwt".split())  # noqa: SIM905
"""Words that are followed by a colon in prose, too: ``Unexpected token: foo``."""

MAX_DECIDING = 300  # characters of a value that are looked at to decide whether it is a secret

SHORT_OPTIONS = frozenset(("p", "pw", "pass", "key", "apikey", "pwd"))
"""Options of a command line that take a secret, besides those of ``is_secret_key``."""


def redact_forms(text: str) -> str:
    """Return a text in which everything that looks like a secret is redacted."""
    lower = text.lower()
    for words, pattern in compiled_rules():
        if any(word in lower for word in words):
            text = pattern.sub(_replacement, text)
    if "://" in text and "@" in text:
        text = USER_INFO.sub(_redact_user, text)
        text = ODD_PASSWORD.sub(_redact_user, text)
    if "=" in text or ":" in text or "%3" in text:
        text = _replace(text, _assigned(text))
    if "-" in text:
        text = _replace(text, _optional(text))
    return text


def is_secret_option(key: str, value: str) -> bool:
    """Return whether an option of a command line, ``--api_key`` or ``-p``, has a secret as its value."""
    name = key.lstrip("+~-").rpartition(".")[2]
    if name.lower() in SHORT_OPTIONS:
        return not (re.fullmatch(r"\d{1,5}|true|false|none", value, re.I) or value.startswith(("/", "./", "../", "~/")))
    if name == "u" and ":" in value:  # curl -u user:password
        return True
    return is_secret_key(name, value)


def is_weak_key(key: str) -> bool:
    """Return whether a secret key ends in a word that is also used for harmless things."""
    return split_words(key).rpartition("_")[2] in WEAK_WORDS


def _replacement(found: re.Match[str]) -> str:
    return (found["keep"] if "keep" in found.re.groupindex else "") + REDACTED


def _redact_user(found: re.Match[str]) -> str:
    user, colon, password = found["info"].partition(":")
    if not colon:
        return found[0] if _is_user_name(user) else f"{REDACTED}@"
    if password in NO_PASSWORDS:
        return f"{REDACTED}:{password}@" if not _is_user_name(user) else found[0]
    if len(user) >= 20 and re.search(r"\d", user):
        user = REDACTED
    return f"{user}:{REDACTED}@"


def _is_user_name(user: str) -> bool:
    """Return whether the user part of a URL is a name, such as ``git``, and not a token."""
    return user == REDACTED or bool(re.fullmatch(r"[A-Za-z._-]{0,20}|[\w.-]{1,8}", user))


def _replace(text: str, spans: Iterator[tuple[int, int]]) -> str:
    parts, done = [], 0
    for start, end in spans:
        parts += [text[done:start], REDACTED]
        done = end
    return "".join([*parts, text[done:]]) if parts else text


def _assigned(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of values that are assigned to a secret key: in a shell, JSON, YAML, Python or a URL."""
    done = 0
    for found in ASSIGNMENT.finditer(text):
        if found.start() < done:
            continue
        key = found["key"].lstrip("+~-").rpartition(".")[2]
        words = split_words(key)
        in_url = bool(found["before"]) or found["sign"].lower() == "%3d"
        if not (in_url or found["key"].startswith("-") or may_be_secret(key[-MAX_KEY:])):
            continue
        is_header = words.endswith(HEADERS) and found["sign"] == ":"
        start, end = _value(text, found, in_url, is_header, found.end() + MAX_DECIDING)
        value = text[start:end]
        if not value.strip("*") or not _is_secret_assignment(key, words, value, found, in_url):
            continue
        done = _value(text, found, in_url, is_header)[1]
        yield start, done


def _is_secret_assignment(key: str, words: str, value: str, found: re.Match[str], in_url: bool) -> bool:
    if in_url and (words.rpartition("_")[2] in URL_KEYS or words.replace("_", "") in URL_KEYS):
        return True
    if found["key"].startswith("-") and is_secret_option(key, value):
        return True
    if not is_secret_key(key, value):
        return False
    is_prose = found["sign"] == ":" and not found["open"] and not found["quoted"]
    if is_prose and is_weak_key(key) and not words.endswith("api_key"):
        return looks_random(value) or bool(re.search(r"\d", value)) or len(value) >= 16
    return found["open"] is not None or not re.fullmatch(r"(?i:none|null|true|false|str|optional\[str\]|\.{3})", value)


def _optional(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of values that follow a secret option: ``--password X``, ``"--password", "X"``."""
    done = 0
    for found in OPTION.finditer(text):
        if found.start() < done or ("," in found["sign"]) != bool(found["quoted"]):
            continue
        start, end = _value(text, found, False, False)
        value, name = text[start:end], found["key"]
        if not value.strip("*") or (not found["open"] and _is_usage(name, value)):
            continue
        is_long = name.startswith("--")
        if is_secret_option(name, value) if is_long or found["quoted"] else is_secret_key(name, value):
            yield start, end
            done = end


def _is_usage(name: str, value: str) -> bool:
    """Return whether the word after an option is prose or a placeholder: ``--token to``, ``[--token TOKEN]``."""
    return (
        value[0] in "=:" or bool(re.fullmatch(r"[a-z]{1,4}", value)) or value.rstrip("].,") == name.lstrip("-").upper()
    )


END_PLAIN = re.compile(r"(?:[^\s\"'\\,;]++|[,;](?![A-Za-z_]\w{0,64}=))*+")  # up to the next field: ``a=1,b=2``

END_URL = re.compile(r"[^\s\"'\\&#<>]*+")

END_LINE = re.compile(r"[^\r\n\"'\\]*+")


def _value(text: str, found: re.Match[str], in_url: bool, is_header: bool, limit: int = sys.maxsize) -> tuple[int, int]:
    """Return the place of the value that follows a key."""
    start = found.end()
    if found["open"]:
        mark = found["open"].lstrip("rbfu")
        return start, _closing(text, mark, start, min(limit, len(text)))
    pattern = END_LINE if is_header else END_URL if in_url else END_PLAIN
    match = pattern.match(text, start, limit)
    assert match is not None
    return start, start + len(match[0].rstrip(",;)]}"))


def _closing(text: str, mark: str, start: int, limit: int) -> int:
    """Return where a quoted value ends: at the same quotation mark, or at the limit."""
    end = text.find(mark, start, limit)
    while len(mark) == 1 and end > start and text[end - 1] == "\\":
        end = text.find(mark, end + 1, limit)
    return end if end >= 0 else limit


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
