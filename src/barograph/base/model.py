"""Frozen records that modules exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def total_reward(sample: Sample) -> float | None:
    """Return a sample's reward; without a total, its only component."""
    if sample.reward is None and len(sample.rewards) == 1:
        return next(iter(sample.rewards.values()))
    return sample.reward


MAIN_ROLE = "trainer"
"""The role whose metrics are shown first if a run has several."""

StatusWord = Literal["running", "finished", "crashed", "killed", "stalled", "unreadable", "unknown"]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Identity of a run: the contents of ``run.json``."""

    id: str
    project: str
    name: str
    created: float
    vocabulary: str = "roll"
    producer: str = "barograph"  # whose code computed the numbers: barograph, or the framework of an imported log
    group: str | None = None
    tags: tuple[str, ...] = ()
    notes: str | None = None


# Sorted by role, rank and attempt: readers rely on the newest attempt of a rank being the last.
@dataclass(frozen=True, slots=True, order=True)
class Writer:
    """One writer of a run: its role, its number in the role, and its attempt (process start)."""

    role: str
    rank: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.role}/{self.rank}"


@dataclass(frozen=True, slots=True)
class RayPlace:
    """Where in a Ray cluster a run was begun: the node, and the mark of the run's directory there."""

    node: str
    mark: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values between edges, with statistics of the values themselves.

    ``edges`` has one more entry than ``counts``. Minimum, maximum and sum are over the finite values; ``count`` is
    their number and ``nonfinite`` the number of NaN and infinite values.
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
        """Return the histogram of a journal's record, which has other fields too."""
        kept = {name: fields[name] for name in cls.__dataclass_fields__}
        return cls(**{**kept, "edges": tuple(kept["edges"]), "counts": tuple(kept["counts"])})


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of a task; every field is optional.

    In a chat ``messages`` replace prompt and completion: mappings with ``role`` and ``content``. ``reward`` is the
    total, ``rewards`` its components by name; ``length`` is in tokens. ``answer`` is what was taken out of the
    completion and ``reference`` the right one; ``discarded`` is the reason why it was not trained on. ``columns`` are
    further numbers, truth values and names. ``tokens`` are texts, and each of ``token_values`` has a number for each;
    ``top_logprobs`` has for each the most likely texts with their log-probs.
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
    id: str | None = None
    answer: str | None = None
    reference: str | None = None
    discarded: str | None = None
    columns: Mapping[str, float | int | bool | str] = field(default_factory=dict)
    tokens: Sequence[str] = ()
    token_values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    top_logprobs: Sequence[Sequence[tuple[str, float]]] = ()


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredTokens:
    """The values of one sequence's tokens, as its batch had them: padding may be before and after the response.

    ``reason`` is why the sequence was chosen. ``arrays`` have the names of the batch's. ``flags`` are 1 at tokens of
    the response, and 2 more at those that are trained on. ``clip`` is the band of the ratio, if an update told it.
    """

    id: str
    reason: str
    arrays: Mapping[str, NDArray[np.float32]]
    actions: NDArray[np.integer[Any]] | None
    flags: NDArray[np.integer[Any]]
    clip: tuple[float, float] | None = None

    @property
    def response(self) -> NDArray[np.bool_]:
        """The tokens of the response."""
        response: NDArray[np.bool_] = (self.flags & 1) != 0
        return response

    @property
    def valid(self) -> NDArray[np.bool_]:
        """The tokens of the response that are trained on."""
        valid: NDArray[np.bool_] = (self.flags & 2) != 0
        return valid


@dataclass(frozen=True, slots=True)
class LoggedText:
    """A logged text; ``step`` is None if it has none."""

    name: str
    text: str
    step: int | None = None
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Unread:
    """Something in a log that was not understood: its first place, the reason, and how often it came."""

    where: str
    reason: str
    count: int

    def __str__(self) -> str:
        times = f" ({self.count:,} times, first there)" if self.count > 1 else ""
        return f"{self.where}: {self.reason}{times}" if self.where else f"{self.reason}{times}"


@dataclass(frozen=True, slots=True)
class Origin:
    """The log of another program that a run was read from, and what was found out while reading it."""

    path: str
    format: str
    title: str
    notes: tuple[str, ...] = ()
    unread: tuple[Unread, ...] = ()

    @classmethod
    def of_record(cls, fields: Mapping[str, Any]) -> Origin:
        """Return the origin in an event of a journal."""
        unread = tuple(Unread(one["where"], one["reason"], one["count"]) for one in fields.get("unread", ()))
        title = fields.get("title", fields["format"])
        return cls(fields["path"], fields["format"], title, tuple(fields.get("notes", ())), unread)


@dataclass(frozen=True, slots=True)
class Row:
    """One step as a tracker receives it: values, texts, histograms and samples."""

    step: int
    time: float
    values: Mapping[str, float]
    writer: Writer
    texts: Mapping[str, str] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One pass through a phase or timer; ``end`` is None if it is still open, or was when its process exited.

    ``onload``, ``execute`` and ``offload`` are seconds by ``clock``, without the probe's own cost. ``peak`` is the
    maximum of device memory since the entry and ``rss`` the host memory at the exit, in bytes.
    """

    name: str
    writer: Writer
    step: int
    start: float
    end: float | None = None
    id: int = 0
    parent: int | None = None
    lane: str = "main"
    part: int = 0  # index of the segment; a forked process has its own
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
        """Sum of onload, execute and offload; None while the span is open."""
        return None if self.execute is None else (self.onload or 0.0) + self.execute + (self.offload or 0.0)


@dataclass(frozen=True, slots=True)
class Status:
    """Status of a run or of one writer, with the reason."""

    word: StatusWord
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.word in ("finished", "crashed", "killed")


@dataclass(frozen=True, slots=True)
class Problem:
    """A call of the training loop that failed, and how often it failed with this error."""

    call: str
    error: str
    count: int


@dataclass(frozen=True, slots=True)
class MissingRank:
    """A rank whose share of a step is missing, so that the step has no merged values of it.

    ``share`` is measured, counted, or the kind of a report and its tasks; ``since`` is the time of the last
    contribution to the step by another rank.
    """

    role: str
    rank: int
    step: int | None  # None: all steps
    share: str
    reason: str
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Missing:
    """Reason why a metric has no value. A missing value is never 0: the key is not written."""

    reason: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of a segment that could not be read, with the reason.

    ``kind`` is that of frames that are intact but cannot be decoded, and ``count`` their number; the bytes are those of
    the first.
    """

    start: int
    end: int
    reason: str = "unreadable bytes"
    kind: str = ""
    count: int = 1

    def __str__(self) -> str:
        if not self.kind:
            return f"bytes {self.start} to {self.end}: {self.reason}"
        frames = f"{self.count:,} {self.kind} frames" if self.count > 1 else f"1 {self.kind} frame"
        first = "the first is" if self.count > 1 else "it is"
        return f"{frames} could not be read: {self.reason} ({first} at byte {self.start})"
