"""Search for secrets inside a text: by the rules, in URLs, in assignments such as ``WANDB_API_KEY=…`` and in options.

Every search is linear in the length of the text: a match starts at the beginning of a word, and what was redacted is
not searched again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from windsock.redaction.keys import MAX_KEY, is_secret_key, looks_random, may_be_secret, split_words
from windsock.redaction.rules import compiled

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
    for words, pattern in compiled():
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
