"""The frozen records that pass between windsock's parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MAIN_ROLE = "trainer"
"""The role that a run is shown by, where it has several."""
StatusWord = Literal["running", "finished", "crashed", "killed", "stalled"]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Who a run is: what ``run.json`` holds."""

    id: str
    project: str
    name: str
    created: float
    vocabulary: str = "roll"
    producer: str = "windsock"  # whose code made the numbers: ours, or a framework's whose log was imported
    group: str | None = None
    tags: tuple[str, ...] = ()
    notes: str | None = None


@dataclass(frozen=True, slots=True, order=True)
class Writer:
    """One writer of a run: its role, its number in the role, and which process start it is."""

    role: str
    rank: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.role}/{self.rank}"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values between edges, with the statistics that bins lose.

    ``edges`` has one more entry than ``counts``. Minimum, maximum and sum are over the finite values;
    ``count`` is their number and ``nonfinite`` how many values were NaN or infinite.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    min: float
    max: float
    sum: float
    count: int
    nonfinite: int = 0

    @classmethod
    def of_record(cls, fields: Mapping[str, Any]) -> Histogram:
        """Return the histogram that a journal's record holds among other fields."""
        kept = {name: fields[name] for name in cls.__dataclass_fields__}
        return cls(**{**kept, "edges": tuple(kept["edges"]), "counts": tuple(kept["counts"])})


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of a task, as it can be read again; all but the words is optional.

    ``messages`` stand instead of prompt and completion where there was a chat: mappings with ``role`` and ``content``.
    ``reward`` is the total, ``rewards`` its components by name; ``length`` is in tokens.
    """

    prompt: str = ""
    completion: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    reward: float | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)
    advantage: float | None = None
    length: int | None = None
    finish_reason: str | None = None
    task: str | None = None
    run: str | None = None
    group: str | None = None
    weight_version: int | None = None
    step: int | None = None
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class LoggedText:
    """A text as it was logged; ``step`` is None where it belongs to none."""

    name: str
    text: str
    step: int | None = None
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """What one step says, as a tracker receives it: values, and what was logged beside them."""

    step: int
    time: float
    values: Mapping[str, float]
    writer: Writer
    texts: Mapping[str, str] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One passage through a phase or timer; ``end`` is None where it is still open, or was when its process died.

    ``onload``, ``execute`` and ``offload`` are seconds by ``clock``; the probe's own cost is in none of them. ``peak``
    is the most device memory since the entry and ``rss`` the host memory on leaving, in bytes.
    """

    name: str
    writer: Writer
    step: int
    start: float
    end: float | None = None
    id: int = 0
    parent: int | None = None
    lane: str = "main"
    part: int = 0
    timer: bool = False
    onload: float | None = None
    execute: float | None = None
    offload: float | None = None
    clock: Literal["host", "device"] = "host"
    failed: bool = False
    tokens: float | None = None
    token_kind: str = ""
    peak: float | None = None
    rss: float | None = None

    @property
    def seconds(self) -> float | None:
        """Onload, execute and offload together; None while the span is open."""
        return None if self.execute is None else (self.onload or 0.0) + self.execute + (self.offload or 0.0)


@dataclass(frozen=True, slots=True)
class Status:
    """How a run, or one of its writers, is doing, and why we think so."""

    word: StatusWord
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more is to be expected."""
        return self.word in ("finished", "crashed", "killed")


@dataclass(frozen=True, slots=True)
class Problem:
    """A call of the training loop that failed, and how often it failed with this error."""

    call: str
    error: str
    count: int


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a metric has no value. Absent is never 0: the key is not written, and the reason can be asked for."""

    reason: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of a segment that could not be read, and what is known about it."""

    start: int
    end: int
    reason: str = field(default="unreadable bytes")
