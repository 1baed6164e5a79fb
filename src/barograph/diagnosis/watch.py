"""The doctor's process, started as ``python -m barograph.doctor.watch FOLDER`` with its options on standard input.

It looks at a run as rows arrive, tells what begins, gets worse or ends, and sends it to a webhook or a command.
What it has said is in ``doctor/findings.json``, so that another process goes on where this one ended and repeats
nothing.
"""

from __future__ import annotations

import hmac
import http.client
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from barograph.base import __version__
from barograph.base.errors import BarographError
from barograph.base.files.directory_watch import DirectoryWatch
from barograph.base.model import RunInfo
from barograph.delivery.processes import EXIT_BUSY, given_options, take_process_lock
from barograph.diagnosis.client import WatchOptions
from barograph.diagnosis.diagnose import Diagnosis, Visit
from barograph.journal import findings
from barograph.journal.findings import FOLDER, SEVERITIES, Change, ChangeKind, Finding
from barograph.journal.format.folder import run_files
from barograph.journal.read.status import glance
from barograph.journal.view import View

WEBHOOK_SECONDS = 10.0

COMMAND_SECONDS = 60.0

FIRST_PAUSE, MAX_PAUSE = 1.0, 60.0

GIVE_UP_SECONDS = 3600.0  # since the first failure: then the change is passed over

TEMPORARY = (408, 425, 429)  # besides 5xx

SIGNATURE, TIMESTAMP, DELIVERY = "X-Barograph-Signature", "X-Barograph-Timestamp", "X-Barograph-Delivery"


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
class ChangeSender:
    """Sends one change after another; one that cannot be sent now is tried again, after longer and longer pauses."""

    send: Callable[[Mapping[str, Any]], None]
    log: Callable[[str], None]
    _failures: int = 0
    _since: float = 0.0
    _again_at: float = 0.0

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
            "User-Agent": f"barograph/{__version__}",
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
            "BAROGRAPH_FINDING_RULE": finding["rule"],
            "BAROGRAPH_FINDING_SEVERITY": finding["severity"],
            "BAROGRAPH_FINDING_KIND": found["kind"],
            "BAROGRAPH_FINDING_TEXT": found["text"],
            "BAROGRAPH_FINDING_RUN": found["run"]["id"],
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


TOLD_FROM = "warning"  # findings of a lower severity are in the report only

PAUSE = 0.2

MAX_SHARE = 0.1  # of a processor: after a look there is a pause of nine times as long

POLL_SECONDS = 0.5  # where changes of the directory are not told

IDLE_SECONDS = 30.0  # after which a run is looked at although nothing was written: it may hang

LAST_SECONDS = 60.0  # after the end of the run, for hooks

PACE_LOOKS = 3  # before the pace of a run is known

NICE = 10


class Watch:
    """The doctor's watch over one run."""

    def __init__(self, folder: Path, options: WatchOptions) -> None:
        self._folder = folder
        self._options = options
        self._view: View | None = None
        self._visit = Visit()
        self._told = findings.read_told(folder)
        self._pace: list[tuple[float, int]] = []  # times and newest steps of the last looks
        self._stop_reason = ""
        hooks = {
            "webhook": webhook(options.webhook, options.webhook_key) if options.webhook else None,
            "command": command(options.command) if options.command else None,
        }
        self._hooks = {name: (ChangeSender(send, _log), self._told.sent) for name, send in hooks.items() if send}

    @property
    def is_done(self) -> bool:
        """Whether the hooks have everything."""
        return all(sent >= self._told.last_number for _, sent in self._hooks.values())

    def look(self) -> None:
        """Look at what is new, and tell what has changed."""
        if self._view is None:
            self._view = View(self._folder)
        size = run_files(self._folder).bytes
        self._view.refresh()
        diagnosis = self._visit.diagnose(self._view)
        step = self._view.steps[1] if self._view.steps else None
        newest = self._view.newest_step
        if newest is not None:
            self._pace = [*self._pace[-20:], (time.monotonic(), newest)]
        new = [] if step is None else list(self._changes(diagnosis, step))
        open_now = {finding.rule: finding.severity for finding in _told_findings(diagnosis)}
        self._told = replace(
            self._told,
            verdict=diagnosis.verdict,
            step=step,
            bytes=size,
            time=time.time(),
            changes=(*self._told.changes, *new)[-findings.MAX_CHANGES :],
            open={**self._still_open(open_now, diagnosis), **open_now},
            sent=min((sent for _, sent in self._hooks.values()), default=self._told.last_number),
        )
        findings.write_told(self._folder, self._told)
        self._stop_if_asked(new)

    def send(self) -> None:
        """Give the hooks what they lack, as far as they take it."""
        before = self._hooks
        self._hooks = {name: (sender, self._sent(sender, sent)) for name, (sender, sent) in before.items()}
        if before != self._hooks:
            self._told = replace(self._told, sent=min(sent for _, sent in self._hooks.values()))
            findings.write_told(self._folder, self._told)

    def _sent(self, sender: ChangeSender, sent: int) -> int:
        info = self._view.info if self._view is not None else None
        for change in self._told.changes:
            if info is not None and change.number > sent:
                if not sender.take(message(info, change)):
                    break
                sent = change.number
        return sent

    def _changes(self, diagnosis: Diagnosis, step: int) -> Iterator[Change]:
        """Yield what has changed since the last look."""
        number = self._told.last_number
        for kind, finding in self._changed(diagnosis):
            number += 1
            yield Change(number, kind, step, time.time(), finding)

    def _changed(self, diagnosis: Diagnosis) -> Iterator[tuple[ChangeKind, Finding]]:
        for finding in _told_findings(diagnosis):
            before = self._told.open.get(finding.rule)
            if before is None:
                if not self._was_told(finding):
                    yield "opened", finding
            elif SEVERITIES.index(finding.severity) > SEVERITIES.index(before):
                yield "worse", finding
        still = _open_rules(diagnosis)
        for rule in self._told.open:
            if rule not in still:
                yield "closed", self._closed(rule, diagnosis)

    def _closed(self, rule: str, diagnosis: Diagnosis) -> Finding:
        """Return a finding of a rule that is over, as it ended; else as it was told last."""
        ended = [one for one in diagnosis.past if one.rule == rule]
        told = [change.finding for change in self._told.changes if change.finding.rule == rule]
        return replace((ended or told)[-1], is_open=False)

    def _was_told(self, finding: Finding) -> bool:
        """Return whether a finding is one that was told since the training started, and that seemed to be over."""
        assert self._view is not None
        starts = (event.get("time", 0.0) for event in self._view.events() if event.get("event") == "start")
        began = max(starts, default=0.0)
        told = (one.finding for one in self._told.changes if one.time >= began and one.finding.rule == finding.rule)
        return any(finding.onset <= one.last for one in told)

    def _still_open(self, open_now: dict[str, str], diagnosis: Diagnosis) -> dict[str, str]:
        """Return what was told and is now part of another finding: it is neither told again nor over."""
        under = _open_rules(diagnosis)
        return {rule: severity for rule, severity in self._told.open.items() if rule in under and rule not in open_now}

    def _stop_if_asked(self, new: Sequence[Change]) -> None:
        """Ask the training to stop if something was found that is as severe as the user said."""
        wanted = self._options.stop_on
        for change in new if wanted else ():
            severe = SEVERITIES.index(change.finding.severity) >= SEVERITIES.index(wanted)
            if severe and change.kind != "closed":
                self._stop_reason = self._stop_reason or change.text
        step = self._stop_step() if self._stop_reason else None
        # Another request would name another step, which not every process may see in time.
        if step is not None and findings.read_stop(self._folder) is None:
            findings.request_stop(self._folder, step, self._stop_reason)

    def _stop_step(self) -> int | None:
        """Return the step to stop at; None if the pace of the run is not known yet."""
        assert self._view is not None
        pairs = pairwise(self._pace) if len(self._pace) >= PACE_LOOKS else ()
        paces = ((last - first) / max(now - before, PAUSE) for (before, first), (now, last) in pairs)
        return findings.stop_step(self._view, self._pace[-1][1], max(paces, default=None))


def _told_findings(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings that are told while a run goes on."""
    least = SEVERITIES.index(TOLD_FROM)
    return [one for one in diagnosis.findings if SEVERITIES.index(one.severity) >= least]


def _open_rules(diagnosis: Diagnosis) -> set[str]:
    found = {finding.rule for finding in diagnosis.findings}
    return found | {under.rule for finding in diagnosis.findings for under in finding.explains}


def watch(folder: Path, options: WatchOptions, stopped: threading.Event) -> None:
    """Look at a run until it has ended."""
    watched = Watch(folder, options)
    directory = DirectoryWatch()
    ended_at: float | None = None
    looked_at, seen = -IDLE_SECONDS, None
    while not stopped.is_set() and folder.exists():
        is_told = directory.tells(folder) or directory.add(folder)
        directory.changed()
        ended, step = _end_and_step(folder)  # before the look, which then sees the last rows
        began = time.monotonic()
        if ended or step != seen or began - looked_at > IDLE_SECONDS:  # once a step, however many rows it has
            watched.look()
            looked_at, seen = time.monotonic(), step
        watched.send()
        if ended:
            ended_at = ended_at or began
            if watched.is_done or began - ended_at > LAST_SECONDS:
                return
        pause = max(PAUSE, (time.monotonic() - began) * (1 / MAX_SHARE - 1))
        stopped.wait(pause)
        if is_told and watched.is_done and not stopped.is_set() and not ended:
            directory.wait(POLL_SECONDS * 4)  # until something is written


def _end_and_step(folder: Path) -> tuple[bool, int | None]:
    """Return whether a run has ended, and its last step."""
    try:
        found = glance(folder)
    except (OSError, BarographError):  # it cannot be read at the moment
        return False, None
    return found.status.ended, found.last_step


def main(arguments: list[str]) -> int:
    """Watch the run in a folder, if no other process does."""
    options: WatchOptions = given_options()
    folder = Path(arguments[0])
    with suppress(OSError):
        os.nice(NICE)
    lock = take_process_lock(folder / FOLDER / "lock", options.segment)
    if lock is None:
        return EXIT_BUSY
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        watch(folder, options, stopped)
    finally:
        lock.close()
    return 0


def _log(text: str) -> None:
    print(f"barograph: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
