"""Access rules: allowed hosts and origins, tokens, and the security headers of every response.

They stop three attacks: a page of another site in the same browser reading runs (foreign origins, DNS rebinding),
somebody else on the network reading them (token), and logged text running as a script (content security policy).
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from urllib.parse import SplitResult, quote, unquote, unquote_plus, urlsplit

from barograph.delivery.transfer.tokens import EVERYTHING, Grant, TokenFile

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
ANY_ADDRESS = frozenset(("0.0.0.0", "::", ""))
MAX_TRIED = 8  # tokens in an address, and in cookies
MAX_HOST = 300  # names have at most 253 characters
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
NOTEBOOKS = (
    "'self' http://localhost:* http://127.0.0.1:* https://localhost:* https://127.0.0.1:* vscode-webview: "
    "https://colab.research.google.com https://*.googleusercontent.com https://*.colab.dev"
)
"""Pages that may show a framed page: notebooks of this machine, of VS Code and of Colab."""
FOR_PROGRAMS = ("/api/transfer/", "/metrics")
"""Paths that only programs use: they send the token in a header, which no page of another site can do."""
COLAB_PROXIES = (".googleusercontent.com", ".colab.dev")  # Colab serves a port of its machine at these
FRAMED_HEADERS = {
    **{name: value for name, value in SECURITY_HEADERS.items() if name != "x-frame-options"},
    "content-security-policy": CONTENT_POLICY.replace("frame-ancestors 'none'", f"frame-ancestors {NOTEBOOKS}"),
}


@dataclass(frozen=True, slots=True)
class RejectedRequest:
    """A rejected request: its status and the reason."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """An allowed request; ``location`` redirects to the same address without the token, which ``cookie`` keeps."""

    cookie: str | None = None
    location: str | None = None
    grant: Grant = EVERYTHING


@dataclass(frozen=True, slots=True)
class Guard:
    """The access rules of one bound address. Without a token every request over loopback is allowed.

    With ``framed`` notebooks may show the page in a frame. ``tokens`` are those of projects, beside the one that grants
    everything. ``proxy`` is the address at which a proxy serves the page. With ``tls`` a browser checks the name of the
    host itself.
    """

    host: str = "127.0.0.1"
    port: int = 8790
    token: str | None = None
    framed: bool = False
    tokens: TokenFile | None = None
    proxy: SplitResult | None = None
    tls: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """The security headers of every response."""
        return FRAMED_HEADERS if self.framed else SECURITY_HEADERS

    def check(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> Allowed | RejectedRequest:
        """Allow or reject a request; header names are in lower case."""
        if self.tokens is not None and path.startswith(FOR_PROGRAMS):
            grant = self._bearer(headers)
            return RejectedRequest(401, grant) if isinstance(grant, str) else Allowed(grant=grant)
        host = headers.get("host", "")
        if not self._is_own_host(host):
            return RejectedRequest(
                421, f"Host {host[:80]!r} is not served here; open the address that barograph up printed"
            )
        if method in ("POST", "PATCH") and (rejection := self._reject_cross_site(host, headers)):
            return rejection
        return self._check_token(method, path, query, headers) if self.token else Allowed()

    def _is_own_host(self, host: str) -> bool:
        name = _host_name(host)
        if name is None:
            return False
        if self.tls or (self.proxy is not None and name == self.proxy.hostname):
            return True
        if name in LOOPBACK or name == self.host.lower() or (self.framed and name.endswith(COLAB_PROXIES)):
            return True
        return self.host in ANY_ADDRESS and (_is_address(name) or name in _own_names())

    def _reject_cross_site(self, host: str, headers: Mapping[str, str]) -> RejectedRequest | None:
        """Reject requests that a page of another site can make a browser send."""
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return RejectedRequest(403, "expected Content-Type: application/json")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        own = {host.lower(), *([self.proxy.netloc.lower()] if self.proxy else [])}
        if origin is not None and _netloc(origin) not in own:
            return RejectedRequest(403, f"origin {origin[:80]!r} is another site")
        return None if site in ("same-origin", "none") else RejectedRequest(403, "the request comes from another site")

    def _check_token(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> Allowed | RejectedRequest:
        grant = self._bearer(headers)
        if isinstance(grant, Grant):
            return Allowed(grant=grant)
        given, rest = _split_query(query)
        for token in given[:MAX_TRIED]:
            if isinstance(found := self._grant(token), Grant):
                is_page = method == "GET" and not path.startswith("/api/")
                location = self.base_path + _own_location(path, rest) if is_page else None
                return Allowed(self.cookie(token), location, found)
        for token in islice(_cookies(headers.get("cookie", ""), self._cookie_name), MAX_TRIED):
            if isinstance(found := self._grant(token), Grant):
                return Allowed(grant=found)
        return RejectedRequest(
            401, "the token is missing or wrong: open the complete address that barograph up printed"
        )

    def _bearer(self, headers: Mapping[str, str]) -> Grant | str:
        """Return what the token in the header grants, or why it grants nothing."""
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            return "the token is missing: send it as 'Authorization: Bearer TOKEN'"
        return self._grant(bearer.strip())

    def _grant(self, given: str) -> Grant | str:
        if self.token and hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode()):
            return EVERYTHING
        return self.tokens.check(given) if self.tokens is not None else "the token is unknown"

    @property
    def base_path(self) -> str:
        """The path below which a proxy serves the page, without a slash at its end."""
        return self.proxy.path.rstrip("/") if self.proxy is not None else ""

    @property
    def _cookie_name(self) -> str:
        return f"barograph_{self.port}"  # browsers share cookies between the ports of a host

    def cookie(self, token: str) -> str:
        """Return the Set-Cookie header that keeps a token in a browser."""
        secure = "; Secure" if self.tls or (self.proxy is not None and self.proxy.scheme == "https") else ""
        path = f"{self.base_path}/"
        return f"{self._cookie_name}={quote(token, safe='')}; Path={path}; HttpOnly; SameSite=Strict{secure}"


def _cookies(header: str, name: str) -> Iterable[str]:
    """Yield the values of one cookie. Linear, where http.cookies takes quadratic time (CVE-2024-7592)."""
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return (unquote(value) for key, _, value in pairs if key == name)


def _split_query(query: str) -> tuple[list[str], str]:
    """Return the tokens in a query, and the query without them."""
    fields = query.split("&")
    tokens = [unquote_plus(field.removeprefix("token=")) for field in fields if field.startswith("token=")]
    return tokens, "&".join(field for field in fields if not field.startswith("token="))


def _own_location(path: str, query: str) -> str:
    """Return the address of a path of this server; ``//host`` and ``http://host`` would be another server's."""
    return "/" + path.lstrip("/\\") + (f"?{query}" if query else "")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _host_name(host: str) -> str | None:
    """Return the name in a Host header without its port; None for an invalid header."""
    if len(host) > MAX_HOST:
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises for a port that is not a number
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
    """Return this machine's names: DNS rebinding points an attacker's name here, never one of these."""
    name = socket.gethostname().lower()
    return frozenset((name, name.partition(".")[0], f"{name.partition('.')[0]}.local"))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
