"""Recording what a reader finds in a log, into a journal.

A log tells less than a journal: steps may be missing, times too, and a run that was started again begins anew in the
middle of a file. The rules for this are here, once for all formats.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from barograph.base.errors import LogError
from barograph.base.formatting import to_plain
from barograph.base.model import MAIN_ROLE, Histogram, Writer
from barograph.base.redaction import Redactor
from barograph.journal.format import samples
from barograph.journal.format.fields import MAX_TIME, STATUS_WORDS
from barograph.journal.format.frames import Kind
from barograph.journal.write.writer import JournalWriter
from barograph.recording.samples.parsing import to_sample

FLUSH_BYTES = 1 << 20
RECENT_STEPS = 4096  # that are remembered, to notice one that comes again
MAX_UNREAD = 50  # different reasons that are kept, each with a count and its first place
MAX_NOTES = 50
GROWN_SECONDS = 60.0
MAX_NAMES = 20_000  # of one row; a longer one is no row of metrics
MAX_NAME = 500  # characters
MAX_TEXT = 1 << 20
STEPS = range(-(2**62), 2**62)
COUNTED_NOTE = "the log has no steps: they are counted from the order of its rows"


class BulkWriter(JournalWriter):
    """A journal's writer that writes many frames at once; ``flush`` writes the rest."""

    def __init__(self, folder: Path, writer: Writer) -> None:
        super().__init__(folder, writer, claimed=True)
        self._frames: list[bytes] = []
        self._size = 0
        self._append = self._add

    def _add(self, frame: bytes) -> bool:
        self._frames.append(frame)
        self._size += len(frame)
        if self._size >= FLUSH_BYTES:
            self.flush()
        return True

    def flush(self) -> None:
        """Write what waits; raise LogError if the disk does not take it."""
        data, self._frames, self._size = b"".join(self._frames), [], 0
        if data and (not self.segment.append(data) or self.segment.waiting):
            raise LogError(f"cannot write to {self.segment.folder}: {self.segment.trouble}")

    def close(self, timeout: float = 0.0) -> int:
        """Write what waits and close."""
        self.flush()
        return super().close(timeout)


class Recorder:
    """Takes rows, texts, samples, … of a log in their order, and writes them to a journal.

    ``state`` is what the next recorder of the same journal needs, as JSON.
    """

    def __init__(self, folder: Path, state: dict[str, Any], about: Mapping[str, str], default_time: float) -> None:
        self.state = state
        self._about = about  # path, format and title of the log
        self.is_changed = False
        self._folder = folder
        self._default_time = default_time  # of rows without a time
        self._writer: BulkWriter | None = None
        self._recent = OrderedDict[int, None].fromkeys(state.setdefault("recent", []))
        state.setdefault("attempt", 1)
        state.setdefault("rows", 0)
        state.setdefault("nulls", {})
        state.setdefault("last_steps", {})

    # -- what a log has ------------------------------------------------------------------------------------------

    def row(
        self,
        values: Mapping[str, float | None],
        step: int | None = None,
        at: float | None = None,
        repeats: bool = False,
        keeps_attempt: bool = False,
    ) -> None:
        """Record the values of one step. A step that comes again below the last one begins another attempt.

        Without a step it is counted. A null is NaN where a metric mostly has numbers, else no value. With ``repeats``
        a log has one row per step, so that also the last step begins an attempt if it comes again. With
        ``keeps_attempt`` none does: the reader knows where attempts begin, and calls ``restart``.
        """
        found = self._numbers(values)
        if not found:
            return
        if step is None:
            step = self._counted()
        elif step not in STEPS:
            self.unread("", f"the step {step} is out of range")
            return
        elif not keeps_attempt:
            self._notice_restart(step, found, repeats)
        self.state["rows"] += 1
        self.state["last_steps"].update(dict.fromkeys(found, step))
        self.state["last_step"] = max(step, self.state.get("last_step", step))
        self._journal.row(tuple(found), found.values(), step, self._time(at))

    def text(self, name: str, text: str, step: int | None = None, at: float | None = None) -> None:
        """Record a text."""
        record = {"name": name[:MAX_NAME], "step": step, "time": self._time(at), "text": text[:MAX_TEXT]}
        self._journal.record(Kind.TEXT, record)

    def histogram(self, name: str, histogram: Histogram, step: int | None, at: float | None = None) -> None:
        """Record a histogram."""
        self._journal.histogram(name[:MAX_NAME], histogram, step, self._time(at))

    def samples(self, given: Iterable[Mapping[str, Any]], step: int, at: float | None = None) -> None:
        """Record samples of a step: mappings with the fields of ``run.sample``; others are left out."""
        encoded, seen = [], 0
        for fields in given:
            seen += 1
            sample, rejected = to_sample(fields)
            for name, reason in rejected.items():
                self.unread("samples", f"{name}: {reason}")
            text = samples.encode(sample)
            if samples.is_readable(text):
                encoded.append(text)
            else:
                self.unread("samples", "a sample is too large")
        if seen:
            self._journal.samples(step, seen, encoded, self._time(at))

    def config(self, config: Mapping[str, Any]) -> None:
        """Record settings, in addition to those recorded before, without the secrets among them."""
        self._event("config", config=Redactor().redact(to_plain(dict(config))))

    @property
    def last_step(self) -> int | None:
        """The highest step of the attempt."""
        step: int | None = self.state.get("last_step")
        return step

    def names_at_last_step(self) -> list[str]:
        """Return the metrics that the highest step has."""
        return [name for name, step in self.state["last_steps"].items() if step == self.last_step]

    def has_any_of(self, names: Iterable[str]) -> bool:
        """Return whether the attempt has values of one of some metrics."""
        return not self.state["last_steps"].keys().isdisjoint(names)

    def restart(self) -> None:
        """Begin another attempt: the log has another start of the training here."""
        if self.state["rows"] == 0:
            return
        self._describe(status=None, reason="the training was started again")
        self.close()
        self._recent.clear()
        self.state["earlier_rows"] = self.state.get("earlier_rows", 0) + self.state["rows"]
        self.state.update(attempt=self.state["attempt"] + 1, rows=0, nulls={}, recent=[], last_steps={})
        for name in ("last_step", "counted"):
            self.state.pop(name, None)

    # -- what a reader says about it -----------------------------------------------------------------------------

    def status(self, word: str | None, reason: str = "") -> None:
        """Say how the run ended: finished, crashed or killed; None as long as the log does not tell."""
        assert word is None or word in STATUS_WORDS
        self.state["status"], self.state["reason"] = word, reason

    def clock(self, at: float | None) -> None:
        """Say which time the log has reached: what comes without a time has this one."""
        if at is not None:
            self._time(at)

    def note(self, text: str) -> None:
        """Say something that a reader of the run should know, once."""
        notes = self.state.setdefault("notes", [])
        if text not in notes and len(notes) < MAX_NOTES:
            notes.append(text)
            self.is_changed = True

    def unread(self, where: str, reason: str) -> None:
        """Count something that was not understood; the first place is kept for each reason."""
        unread = self.state.setdefault("unread", [])
        for known in unread:
            if known["reason"] == reason:
                known["count"] += 1
                break
        else:
            if len(unread) < MAX_UNREAD:
                unread.append({"where": where, "reason": reason, "count": 1})
        self.is_changed = True

    def finish(self, grown: float | None) -> None:
        """End this reading: write what is known about the log, and everything that waits.

        ``grown`` is when the log was written to, if it has grown since an earlier reading.
        """
        # A progress bar makes a log grow several times a second: that alone is told once a minute.
        if self._writer is not None or (grown or 0.0) - (self.state.get("grown") or 0.0) > GROWN_SECONDS:
            self.state["grown"] = grown
        self._describe(self.state.get("status"), self.state.get("reason", ""))
        self.close()

    def close(self) -> None:
        """Write what waits and close the journal."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self.state["recent"] = list(self._recent)

    def _describe(self, status: str | None, reason: str) -> None:
        """Write what is known about the log, if that is not what was written last."""
        known = {
            "status": status,
            "reason": reason,
            "grown": self.state.get("grown"),
            "notes": self.state.get("notes", []),
            "unread": self.state.get("unread", []),
            "attempt": self.state["attempt"],
        }
        digest = hashlib.blake2b(json.dumps(known).encode(), digest_size=8).hexdigest()
        if digest != self.state.get("described"):
            self.state["described"] = digest
            del known["attempt"]
            self._event("imported", **self._about, **known)

    def _event(self, event: str, **fields: Any) -> None:
        last = self.state.get("last_time", self._default_time)
        self._journal.event(event, **{"time": last, **fields})

    @property
    def _journal(self) -> BulkWriter:
        self.is_changed = True
        if self._writer is None:
            self._writer = BulkWriter(self._folder, Writer(MAIN_ROLE, 0, self.state["attempt"]))
        return self._writer

    def _time(self, at: float | None) -> float:
        if at is None or not 0 < at < MAX_TIME:
            at = self.state.get("last_time", self._default_time)
        self.state["last_time"] = max(at, self.state.get("last_time", at))
        return at

    def _numbers(self, values: Mapping[str, float | None]) -> Mapping[str, float]:
        if len(values) > MAX_NAMES:
            self.unread("", f"a row has more than {MAX_NAMES:,} values")
            return {}
        nulls: dict[str, int] = self.state["nulls"]  # nulls less numbers, of metrics that had a null
        if not nulls and None not in values.values() and max(map(len, values), default=0) <= MAX_NAME:
            return values  # type: ignore[return-value] # most rows
        found: dict[str, float] = {}
        for name, value in values.items():
            name = name[:MAX_NAME]
            if value is None:
                before = -self.state["rows"] if name in self.state["last_steps"] else 0
                nulls[name] = nulls.get(name, before) + 1
                if nulls[name] > 0:
                    continue
                value = math.nan
            elif name in nulls:
                nulls[name] -= 1
            found[name] = value
        return found

    def _counted(self) -> int:
        self.note(COUNTED_NOTE)
        self.state["counted"] = int(self.state.get("counted", 0)) + 1
        return int(self.state["counted"])

    def _notice_restart(self, step: int, values: Mapping[str, float], repeats: bool) -> None:
        last = self.state.get("last_step")
        if last is not None and (step < last or (repeats and step == last)) and self._comes_again(step, values):
            self.restart()
        self._recent[step] = None
        if len(self._recent) > RECENT_STEPS:
            self._recent.popitem(last=False)

    def _comes_again(self, step: int, values: Mapping[str, float]) -> bool:
        """Return whether a step was recorded with most of these metrics; one that is long ago probably was."""
        if step not in self._recent and step > min(self._recent, default=step):
            return False  # a late row of a step of its own
        last_steps: dict[str, int] = self.state["last_steps"]
        again = sum(last_steps.get(name, step - 1) >= step for name in values)
        return again * 2 > len(values)
