"""The runs of this process: ``init`` begins one, ``log`` reaches the current one."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from windsock.errors import TrackerError
from windsock.journal.folder import check_run_id, folder_name, new_run_id, run_folders, segments, write_run_info
from windsock.model import RunInfo, Status, Writer
from windsock.redaction import Redactor
from windsock.run import Run
from windsock.settings import Settings, resolve

if TYPE_CHECKING:
    from windsock.probe.phases import Phase
    from windsock.trackers.protocol import Link, Tracker


class DisabledRun(Run):
    """A run that records nothing, for ``WINDSOCK_MODE=disabled``: every call is a cheap no-op."""

    def __init__(self, settings: Settings) -> None:
        self.info = RunInfo("disabled", settings.project, settings.name or "disabled", time.time())
        self.path = settings.dir
        self.writer = Writer(settings.role, settings.rank, 0)
        self.step = None
        self._redactor = Redactor()
        self._config = self._redactor.redact(settings.config)
        self._ended = None

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Do nothing."""

    def text(self, name: str, text: str, step: int | None = None) -> None:
        """Do nothing."""

    def count(self, **amounts: float) -> None:
        """Do nothing."""

    def measure(self, batch: Any, part: str | None = "data", step: int | None = None, **options: Any) -> None:
        """Do nothing."""

    def phase(self, name: str, onload: Any = None, offload: Any = None, *args: Any, **options: Any) -> Phase:
        """Return a phase that is not recorded; what the caller wants loaded and offloaded still is."""
        from windsock.probe.phases import Phase, Unrecorded

        return Phase(Unrecorded(), name, onload=onload, offload=offload)

    def timer(self, name: str, tokens: Any = None) -> Phase:
        """Return a timer that times nothing."""
        return self.phase(name)

    def shards(self, before: Sequence[float], after: Sequence[float] | None = None) -> None:
        """Do nothing."""

    def sample(self, *texts: Any, **fields: Any) -> None:
        """Do nothing."""

    def samples(self, samples: Any, step: int | None = None) -> None:
        """Do nothing."""

    def commit(self, step: int | None = None) -> None:
        """Do nothing."""

    def rollouts(self, *positional: Any, **options: Any) -> Any:
        """Return a handle that does nothing."""
        return _Silence()

    evaluation = validation = rollouts

    def pipeline(self, **reported: Any) -> None:
        """Do nothing."""

    def drawn(self, **reported: Any) -> None:
        """Do nothing."""

    def update_config(self, config: Any) -> None:
        """Do nothing."""

    def finish(self, status: Status | None = None, timeout: float = 10.0) -> None:
        """Do nothing, but no longer be the current run."""
        self._ended = status or Status("finished")
        _forget(self)

    def after_fork_in_child(self) -> None:
        """Nothing here belongs to a process."""


class _Silence:
    """A handle whose every call does nothing; its state is that of nothing gathered."""

    def __getattr__(self, call: str) -> Callable[..., None]:
        return lambda *positional, **named: None

    def state(self) -> bytes:
        """Return nothing."""
        return b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        """Do nothing."""


_runs: list[Run] = []
"""The open runs of this process, the current one last."""


def init(
    source: Any = None,
    /,
    *,
    project: str | None = None,
    name: str | None = None,
    id: str | None = None,
    dir: str | os.PathLike[str] | None = None,
    role: str | None = None,
    rank: int | None = None,
    track_with: str | Sequence[str] | None = None,
    tracker_kwargs: Mapping[str, Any] | None = None,
    config: Any = None,
    vocabulary: str | None = None,
    group: str | None = None,
    tags: str | Sequence[str] | None = None,
    notes: str | None = None,
    detailed_stats: bool | None = None,
    samples_per_step: int | None = None,
    sample_bytes_per_step: int | None = None,
    memory: str | None = None,
    memory_children: bool | None = None,
    system_seconds: float | None = None,
    devices: int | None = None,
    peak_flops: float | None = None,
    in_process: bool | None = None,
    spool: str | os.PathLike[str] | None = None,
    alongside: bool | None = None,
    mode: str | None = None,
) -> Run:
    """Begin a run, or join or continue one, and return it.

    ``source`` is the path of a YAML file or a mapping, in ROLL's, Trinity's or TRL's form; keywords go before it.
    ``docs/settings.md`` says what each of them means. A run that this process left open is ended first.
    """
    keywords = dict(locals())
    chosen = resolve(keywords.pop("source"), keywords)
    if not chosen.alongside:
        _end_former(chosen)
    run = DisabledRun(chosen) if chosen.disabled else _begin(chosen)
    _runs.append(run)
    return run


def log(values: Mapping[str, Any], step: int | None = None) -> None:
    """Log to the current run: the one that ``init`` began last."""
    if _runs:
        _runs[-1].log(values, step)
    else:
        _say_no_run()


@functools.cache
def _say_no_run() -> None:
    with suppress(Exception):
        print("windsock: log without a run is lost: call windsock.init first", file=sys.stderr)


def _begin(chosen: Settings) -> Run:
    trackers = _trackers(chosen) if chosen.trackers and chosen.rank == 0 else {}  # before anything is recorded
    id = check_run_id(chosen.id) if chosen.id else new_run_id()
    folder = _folder_of(chosen, id)
    info = RunInfo(
        id,
        chosen.project,
        chosen.name or id,
        time.time(),
        vocabulary=chosen.vocabulary,
        group=chosen.group,
        tags=chosen.tags,
        notes=chosen.notes,
    )
    try:
        info = write_run_info(folder, info)
    except OSError as problem:
        print(f"windsock: cannot write to {folder}: {problem.strerror}; the training goes on", file=sys.stderr)
    earlier = [s for s in segments(folder) if (s.writer.role, s.writer.rank) == (chosen.role, chosen.rank)]
    attempt = earlier[-1].writer.attempt + 1 if earlier else 1
    run = Run(chosen, info, folder, Writer(chosen.role, chosen.rank, attempt), _forget)
    if earlier:
        _warn_of_live_twin(run, earlier[-1].path)
    run.start(_links(chosen, run, trackers) if trackers or chosen.spool else ())
    return run


def _links(chosen: Settings, run: Run, trackers: Mapping[str, Tracker]) -> Iterator[Link]:
    """Yield what carries bytes from the spool, and rows to the trackers: threads of this process, and the relay."""
    if chosen.spool:
        from windsock.relay.spool import SpoolClient

        yield SpoolClient(chosen.spool / run.id, run.path, run.notice)
    if not trackers:
        return
    from windsock.relay.client import RelayClient, ThreadClient

    here = {name for name, tracker in trackers.items() if tracker.in_process or chosen.in_process}
    own = {name: run.writer for name, tracker in trackers.items() if getattr(tracker, "own_rows", False)}
    if here:
        yield ThreadClient(run.path, {name: chosen.trackers[name] for name in here}, run.notice, own)
    if there := {name: chosen.trackers[name] for name in trackers if name not in here}:
        yield RelayClient(run.path, there, run.notice, run.writer)


def _trackers(chosen: Settings) -> dict[str, Tracker]:
    """Construct the trackers that were asked for; what is wrong with one is said without its key."""
    from windsock.trackers import registry

    redactor = Redactor()
    redactor.redact(chosen.trackers)
    try:
        return {name: registry.make(name, kwargs) for name, kwargs in chosen.trackers.items()}
    except TrackerError as problem:
        raise TrackerError(redactor.redact_text(str(problem))) from None


def _warn_of_live_twin(run: Run, segment: Path) -> None:
    """Say so where another process still writes as this role and rank: one of the two would hide the other."""
    from windsock.journal.glance import segment_status  # brings NumPy, which a first attempt can do without

    if segment_status(segment).word == "running":
        run.notice(
            f"{run.writer} of run {run.id} is still being written by another process, which this one supersedes: "
            "give each process its own role= or rank="
        )


def _folder_of(chosen: Settings, id: str) -> Path:
    """Return where the run of that id is, or will be."""
    if chosen.id:
        for folder in run_folders(chosen.dir):
            if folder.name == id:
                return folder.absolute()
    return (chosen.dir / folder_name(chosen.project) / id).absolute()


def _end_former(chosen: Settings) -> None:
    """End runs that this process left open, unless this is another role or rank of one of them."""
    for run in list(_runs):
        other_writer = run.id == chosen.id and (run.writer.role, run.writer.rank) != (
            chosen.role,
            chosen.rank,
        )
        if not other_writer:
            run.finish()
            if not isinstance(run, DisabledRun):
                print(
                    f"windsock: run {run.id} ({run.name}) was still open and is ended by this init",
                    file=sys.stderr,
                )


def _forget(run: Run) -> None:
    if run in _runs:
        _runs.remove(run)


def _after_fork_in_child() -> None:
    for run in _runs:
        run.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
