"""Hooks: where the doctor's process sends its findings besides the run's directory."""

from __future__ import annotations

import hmac
import http.client
import json
import os
import shlex
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windsock import __version__
from windsock.findings import Change
from windsock.model import RunInfo

WEBHOOK_SECONDS = 10.0
COMMAND_SECONDS = 60.0
FIRST_PAUSE, MAX_PAUSE = 1.0, 60.0
GIVE_UP_SECONDS = 3600.0  # since the first failure: then the change is passed over
TEMPORARY = (408, 425, 429)  # besides 5xx
SIGNATURE, TIMESTAMP, DELIVERY = "X-Windsock-Signature", "X-Windsock-Timestamp", "X-Windsock-Delivery"


class TemporaryError(Exception):
    """A hook did not take a change now, and may later."""


def message(info: RunInfo, change: Change) -> dict[str, Any]:
    """Return what hooks receive about a change; chat programs show ``text``."""
    return {
        "version": 1,
        "text": f"{info.project}/{info.name}: {change.text}",
        "run": {"id": info.id, "name": info.name, "project": info.project},
        **change.record(),
    }


@dataclass
class Sender:
    """Sends one change after another; one that cannot be sent now is tried again, after longer and longer pauses."""

    send: Callable[[Mapping[str, Any]], None]
    log: Callable[[str], None]
    _failures: int = 0
    _since: float = 0.0
    _again_at: float = field(default=0.0)

    def take(self, found: Mapping[str, Any]) -> bool:
        """Try to send a change; return whether it is done with: sent, refused, or given up."""
        now = time.monotonic()
        if now < self._again_at:
            return False
        try:
            self.send(found)
        except TemporaryError as problem:
            self._since = self._since or now
            self._failures += 1
            self._again_at = now + min(FIRST_PAUSE * 2 ** (self._failures - 1), MAX_PAUSE)
            given_up = now - self._since > GIVE_UP_SECONDS
            self.log(f"{problem}; {'given up' if given_up else 'trying again'}")
            if not given_up:
                return False
        except Exception as problem:  # noqa: BLE001 - a hook is not ours, and the next change is tried again
            self.log(f"{type(problem).__name__}: {problem}")
        self._failures, self._since, self._again_at = 0, 0.0, 0.0
        return True


def webhook(url: str, key: str) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that posts a change to a URL; with a key, its signature is sent along.

    The signature is an HMAC-SHA256 of the time, a dot and the body.
    """
    opener = urllib.request.build_opener(_NoRedirect)

    def send(found: Mapping[str, Any]) -> None:
        body = json.dumps(found, ensure_ascii=False).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"windsock/{__version__}",
            DELIVERY: f"{found['run']['id']}-{found['number']}",
            TIMESTAMP: str(int(time.time())),
        }
        if key:
            headers[SIGNATURE] = f"sha256={signature(key, headers[TIMESTAMP], body)}"
        request = urllib.request.Request(url, body, headers, method="POST")
        try:
            opener.open(request, timeout=WEBHOOK_SECONDS).close()
        except urllib.error.HTTPError as problem:
            problem.close()
            if problem.code >= 500 or problem.code in TEMPORARY:
                raise TemporaryError(f"the webhook answered {problem.code}") from None
            raise ValueError(f"the webhook answered {problem.code}; this finding is not sent again") from None
        except (OSError, http.client.HTTPException) as problem:  # the address, which may be a secret, is not in it
            raise TemporaryError(f"the webhook cannot be reached: {getattr(problem, 'reason', problem)}") from None

    return send


def signature(key: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a body, as its receiver computes it."""
    return hmac.new(key.encode(), f"{timestamp}.".encode() + body, "sha256").hexdigest()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would send the finding elsewhere, or as a GET without it."""

    def redirect_request(self, *_: Any) -> None:
        return None


def command(line: str) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that runs a command with a change as JSON on its standard input."""
    arguments = shlex.split(line)

    def send(found: Mapping[str, Any]) -> None:
        finding = found["finding"]
        variables = {
            "WINDSOCK_FINDING_RULE": finding["rule"],
            "WINDSOCK_FINDING_SEVERITY": finding["severity"],
            "WINDSOCK_FINDING_KIND": found["kind"],
            "WINDSOCK_FINDING_TEXT": found["text"],
            "WINDSOCK_FINDING_RUN": found["run"]["id"],
        }
        done = subprocess.run(
            arguments,
            input=json.dumps(found).encode(),
            env={**os.environ, **variables},
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            raise ValueError(f"the command ended with {done.returncode}")

    return send
