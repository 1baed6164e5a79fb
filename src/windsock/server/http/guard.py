"""Who may ask, and what browsers may do with the answers.

A page in the same browser must not read runs (other origins, rebound names), nobody on the network may without the
token, and nothing that was logged can become code: scripts and styles come from our own files alone.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
EVERYWHERE = frozenset(("0.0.0.0", "::", ""))
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Pass:
    """A request that may be answered; ``location`` is where to go instead, with the token kept in a cookie."""

    cookie: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules for one bound address. Without a token everybody who reaches it over loopback may ask."""

    host: str = "127.0.0.1"
    port: int = 8790
    token: str | None = None

    def judge(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> Pass | Refusal:
        """Decide about a request; header names are in lower case."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return Refusal(421, f"Host {host[:80]!r} is not served here; open the address that windsock up printed")
        if method in ("POST", "PATCH") and (refused := self._foreign(host, headers)):
            return refused
        return self._admitted(method, path, query, headers) if self.token else Pass()

    def _is_ours(self, host: str) -> bool:
        name = _name_of(host)
        if name is None:
            return False
        if name in LOOPBACK or name == self.host.lower():
            return True
        return self.host in EVERYWHERE and (_is_address(name) or name in _own_names())

    @staticmethod
    def _foreign(host: str, headers: Mapping[str, str]) -> Refusal | None:
        """Refuse what another site's page could make a browser send."""
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return Refusal(403, "expected Content-Type: application/json")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return Refusal(403, f"origin {origin[:80]!r} is another site's")
        return None if site in ("same-origin", "none") else Refusal(403, "the request comes from another site")

    def _admitted(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> Pass | Refusal:
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._is_token(bearer.strip()):
            return Pass()
        pairs = parse_qsl(query, keep_blank_values=True)
        if any(self._is_token(value) for name, value in pairs if name == "token"):
            rest = urlencode([(name, value) for name, value in pairs if name != "token"])
            shown = method == "GET" and not path.startswith("/api/")
            return Pass(self.cookie(), (path + (f"?{rest}" if rest else "")) if shown else None)
        if any(self._is_token(value) for value in _cookies(headers.get("cookie", ""), self._cookie_name)):
            return Pass()
        return Refusal(401, "this page needs its token: open the whole address that windsock up printed")

    @property
    def _cookie_name(self) -> str:
        return f"windsock_{self.port}"  # browsers share cookies between the ports of a host

    def cookie(self) -> str:
        """Return the header that keeps the token in a browser."""
        return f"{self._cookie_name}={self.token}; Path=/; HttpOnly; SameSite=Strict"

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), (self.token or "").encode())


def _cookies(header: str, name: str) -> Iterable[str]:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ()
    return () if found is None else (found.value,)


def _name_of(host: str) -> str | None:
    """Return the name in a Host header, without its port; None where it makes no sense."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    plain = parts.username is None and not parts.path and not parts.query and not parts.fragment
    return (parts.hostname or "").rstrip(".").lower() if plain and parts.hostname else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _own_names() -> frozenset[str]:
    """Return this machine's names: another site can rebind its own name to us, but not ours."""
    name = socket.gethostname().lower()
    return frozenset((name, name.partition(".")[0], f"{name.partition('.')[0]}.local"))


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address to bind to."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
