"""Tokens of a server: who may read, write or administer which project. ``<dir>/.page/tokens.json`` has their hashes.

A token is ``wsk_<id>_<secret>``. The file has the SHA-256 of the secret, which is random and long: nobody can guess it,
so that a slow hash would only make requests slow.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from barograph.base.errors import BarographError
from barograph.journal.format import fields
from barograph.journal.format.fields import list_of, nullable, object_of, one_of, read_text, read_time
from barograph.journal.format.folder import ID_ALPHABET, PAGE_FOLDER, open_regular_file, read_regular_file

Right = Literal["read", "write", "admin"]
RIGHTS: tuple[Right, ...] = ("read", "write", "admin")
PREFIX = "wsk"
ID_LENGTH = 8
SECRET_BYTES = 32
MAX_TOKENS = 10_000
MAX_LENGTH = 200  # characters of a token


def is_issued(token: str) -> bool:
    """Return whether a token has the form of those that are made here."""
    return token.strip().startswith(f"{PREFIX}_")


class TokenError(BarographError):
    """A token that does not exist, or a file of tokens that cannot be used."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a request may do: its rights, in one project or, without one, in all."""

    rights: frozenset[str]
    project: str | None = None  # the name of its directory

    def allows(self, right: Right, project: str | None = None) -> bool:
        """Return whether this grants a right in a project; without one, in all."""
        return (self.project is None or self.project == project) and bool(self.rights & {right, "admin"})


EVERYTHING = Grant(frozenset(RIGHTS))


@dataclass(frozen=True, slots=True)
class Token:
    """A token as the file has it."""

    id: str
    hash: str  # SHA-256 of the secret, in hexadecimal
    project: str | None
    rights: list[str]
    created: float
    ends: float | None = None
    revoked: float | None = None

    def state(self, now: float) -> str:
        """Return ``valid``, ``ended`` or ``revoked``."""
        if self.revoked is not None:
            return "revoked"
        return "ended" if self.ends is not None and now >= self.ends else "valid"

    @property
    def grant(self) -> Grant:
        """What a request with the token may do."""
        return Grant(frozenset(self.rights), self.project)


class TokenFile:
    """The tokens of a directory of runs; a change of the file counts at once."""

    def __init__(self, dir: Path) -> None:
        self.path = dir / PAGE_FOLDER / "tokens.json"
        self._state: tuple[int, int, int] | None = None
        self._tokens: dict[str, Token] = {}

    def check(self, text: str) -> Grant | str:
        """Return what a token grants, or why it grants nothing."""
        prefix, _, rest = text[:MAX_LENGTH].partition("_")
        id, _, secret = rest.partition("_")
        token = self._current().get(id)
        # Also for an unknown id, so that the time does not tell which ids there are.
        expected = token.hash if token else _hash("")
        is_same = hmac.compare_digest(_hash(secret), expected)
        if token is None or not is_same or prefix != PREFIX:
            return "the token is unknown"
        state = token.state(time.time())
        return token.grant if state == "valid" else f"the token {id} is {state}"

    def tokens(self) -> list[Token]:
        """Return all tokens, the newest last; raise TokenError where the file cannot be read."""
        try:
            record = FILE(fields.parse_json(read_regular_file(self.path)))
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as problem:
            raise TokenError(f"cannot read the tokens in {self.path}: {problem}; repair or remove the file") from None
        return [Token(**{name: one.get(name) for name in Token.__dataclass_fields__}) for one in record["tokens"]]

    def new(self, rights: list[Right], project: str | None = None, ends: float | None = None) -> str:
        """Add a token; return it. It cannot be had again."""
        id = "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_LENGTH))
        secret = secrets.token_urlsafe(SECRET_BYTES)
        with self._changing() as tokens:
            if len(tokens) >= MAX_TOKENS:
                raise TokenError(f"{self.path} has {MAX_TOKENS:,} tokens: remove old ones from it")
            tokens.append(Token(id, _hash(secret), project, list(rights), time.time(), ends))
        return f"{PREFIX}_{id}_{secret}"

    def revoke(self, id: str) -> Token:
        """Revoke a token by its id; it is refused from now on."""
        with self._changing() as tokens:
            for place, token in enumerate(tokens):
                if token.id == id:
                    tokens[place] = replace(token, revoked=token.revoked or time.time())
                    return tokens[place]
            raise TokenError(f"no token has the id {id!r}: 'barograph token ls' lists them")

    def _current(self) -> dict[str, Token]:
        try:
            found = os.stat(self.path)
        except OSError:
            return {}
        state = found.st_mtime_ns, found.st_size, found.st_ino
        if state != self._state:
            try:
                self._tokens = {token.id: token for token in self.tokens()}
            except TokenError:  # nobody gets in by a file that cannot be read
                self._tokens = {}
            self._state = state
        return self._tokens

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """Read the tokens, and write them after the change; two changes at a time do not lose one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_suffix(".lock"), "a", opener=open_regular_file) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = self.tokens()
            yield tokens
            self._write(tokens)

    def _write(self, tokens: list[Token]) -> None:
        draft = self.path.with_suffix(f".{os.getpid()}.{secrets.token_hex(4)}")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "w", encoding="utf-8") as file:
                json.dump({"format": 1, "tokens": [asdict(token) for token in tokens]}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


TOKEN_FIELDS: dict[str, fields.Read] = {
    **dict.fromkeys(("id", "hash"), read_text),
    "project": nullable(read_text),
    "rights": list_of(one_of(*RIGHTS)),
    "created": read_time,
    **dict.fromkeys(("ends", "revoked"), nullable(read_time)),
}
REQUIRED = ("id", "hash", "project", "rights", "created")
FILE = object_of({"tokens": list_of(object_of(TOKEN_FIELDS, REQUIRED))}, ("tokens",))
