"""The runs of this process: ``init`` starts one, ``log`` writes to the current one."""

from __future__ import annotations

import functools
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph.base.errors import JournalError, RunNotFoundError, SettingsError, TrackerError, did_you_mean
from barograph.base.files.mounts import default_spool, make_spool_folder
from barograph.base.model import MAIN_ROLE, RunInfo, Writer
from barograph.base.process.identity import actor_id, is_copied, is_ray_imported, node_id
from barograph.base.redaction import Redactor
from barograph.base.settings import BY_NAME, OWN_SECTION, Settings, resolve
from barograph.journal.format.folder import (
    RUN_FILE,
    check_run_id,
    folder_name,
    new_run_id,
    read_run_info,
    run_folders,
    run_mark,
    segments,
    write_run_info,
)
from barograph.journal.read.status import segment_status
from barograph.journal.write.writer import claim
from barograph.recording.context import Recording
from barograph.recording.run import Run
from barograph.recording.ticket import Ticket

if TYPE_CHECKING:
    from barograph.delivery.ray.destination import RayRun
    from barograph.delivery.transfer.claiming import Claim
    from barograph.delivery.transfer.destination import ServerRun
    from barograph.journal.findings import Finding
    from barograph.recording.tracker import DeliveryClient, Tracker


MAX_TEXT = 20_000  # characters of a text in ``run.json``
MAX_TAGS = 200

ONE_DIRECTORY = (
    "a process joins a run in the directory where it was begun; begin it with a dir= that all machines see under the "
    "same path, or with server="
)

_runs: list[Run] = []
"""The open runs of this process, the current one last."""

_joining = threading.RLock()
"""Threads that receive one ticket at once join once; re-entrant because of signal handlers."""

SETTINGS_OF_THE_RUN = (
    "project", "name", "id", "dir", "track_with", "tracker_kwargs", "config", "vocabulary", "source", "group", "tags",
    "notes", "in_process", "doctor", "on_finding", "finding_webhook", "finding_command", "concurrent",
)  # fmt: skip


def init(
    configuration: Any = None,
    /,
    *,
    project: str | None = None,
    name: str | None = None,
    id: str | None = None,
    dir: str | os.PathLike[str] | None = None,
    role: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    replica: int | None = None,
    track_with: str | Sequence[str] | None = None,
    tracker_kwargs: Mapping[str, Any] | None = None,
    config: Any = None,
    vocabulary: str | None = None,
    source: str | None = None,
    group: str | None = None,
    tags: str | Sequence[str] | None = None,
    notes: str | None = None,
    detailed_stats: bool | None = None,
    samples_per_step: int | None = None,
    sample_bytes_per_step: int | None = None,
    token_samples_per_step: int | None = None,
    memory: str | None = None,
    memory_children: bool | None = None,
    system_seconds: float | None = None,
    engines: str | Sequence[str] | None = None,
    engine_seconds: float | None = None,
    devices: int | None = None,
    peak_flops: float | None = None,
    in_process: bool | None = None,
    doctor: bool | None = None,
    on_finding: Callable[[Finding], Any] | None = None,
    finding_webhook: str | None = None,
    finding_command: str | None = None,
    stop_on: str | None = None,
    spool: str | os.PathLike[str] | None = None,
    server: str | None = None,
    concurrent: bool | None = None,
    mode: str | None = None,
    alongside: bool | None = None,
) -> Run:
    """Start a run, or join or continue one, and return it.

    ``configuration`` is the path of a YAML file or a mapping, in ROLL's, Trinity's or TRL's form; keywords take
    precedence.
    ``docs/settings.md`` describes them. An earlier run of this process that is still open is finished first, unless
    ``concurrent`` is set. ``alongside`` is the old name of ``concurrent``.
    """
    keywords = dict(locals())
    settings = resolve(keywords.pop("configuration"), keywords)
    if not settings.concurrent:
        _finish_former(settings)
    run = _disabled_run(settings) if settings.disabled else _recorded_run(settings)
    _runs.append(run)
    return run


def join(ticket: str, role: str | None = None, rank: int | None = None, **settings: Any) -> Run:
    """Join a run as a further process, and return it. ``ticket`` is what ``run.ticket()`` returned.

    Without ``role`` it is that of the issuer, and without ``rank`` a free one. ``settings`` are those of
    ``docs/settings.md`` that are not the run's own. Where this process has joined already, that run is returned.
    The run's trackers receive the values from the process that began it.
    """
    parsed = Ticket.parse(ticket)
    _reject_settings_of_the_run(settings)
    with _joining:
        known = _joined_already(parsed, role, rank)
        if known is not None:
            return known
        run = _joined_run(parsed, {**settings, "role": role, "rank": rank})
        _runs.append(run)
        return run


Run._join = staticmethod(join)


def current_run() -> Run | None:
    """Return the open run that ``init`` or ``join`` returned last."""
    return _runs[-1] if _runs else None


def log(values: Mapping[str, Any], step: int | None = None) -> None:
    """Log to the current run: the one that ``init`` or ``join`` returned last."""
    run = current_run()
    if run is not None:
        run.log(values, step)
    else:
        _warn_no_run()


@functools.cache
def _warn_no_run() -> None:
    _warn("barograph.log without a run: the values are not recorded; call barograph.init first")


def _warn(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # standard error may be closed, or None
        print(f"barograph: {text}", file=sys.stderr)


def _disabled_run(settings: Settings) -> Run:
    info = RunInfo("disabled", settings.project, settings.name or "disabled", time.time())
    return Run(settings, info, settings.dir, Writer(settings.role, settings.rank, 0), _forget)


def _recorded_run(settings: Settings) -> Run:
    if is_copied(settings.dir):
        raise SettingsError(_copied(settings.dir))
    trackers = _trackers(settings) if settings.trackers and settings.rank == 0 else {}  # errors before any file
    id = check_run_id(settings.id) if settings.id else new_run_id()
    if not settings.id and settings.rank > 0:
        _warn(
            f"rank {settings.rank} begins a run of its own, {id}, because no id tells which run it belongs to: "
            "give all processes the same id= or BAROGRAPH_RUN_ID, or the ticket of the first one"
        )
    folder = _folder_of(settings, id)
    info = RunInfo(
        id,
        _short(settings.project, "project"),
        _short(settings.name or id, "name"),
        time.time(),
        vocabulary=settings.vocabulary,
        producer=_producer(settings.source),
        group=_short(settings.group, "group") if settings.group else settings.group,
        tags=tuple(_short(tag, "tag") for tag in settings.tags[:MAX_TAGS]),
        notes=_short(settings.notes, "notes") if settings.notes else settings.notes,
    )
    if len(settings.tags) > MAX_TAGS:
        _warn(f"tags: {len(settings.tags):,} were given, the first {MAX_TAGS:,} are kept")
    try:
        info = write_run_info(folder, info)
    except OSError as error:
        _warn(f"cannot write to {folder}: {error.strerror}; the training goes on")
    settings = replace(settings, doctor=_has_doctor(settings, trackers))
    return _begin(_with_safe_spool(settings, id, folder), info, folder, trackers, is_new=settings.id is None)


def _has_doctor(settings: Settings, trackers: Mapping[str, Tracker]) -> bool:
    """Return whether the doctor watches the run: where that is not said, if a relay process runs anyway."""
    if settings.doctor is not None:
        return settings.doctor
    return not settings.in_process and any(not tracker.in_process for tracker in trackers.values())


def _producer(source: str | None) -> str:
    """Return the source of the logged names as ``run.json`` states it; raise when it is unknown."""
    if source is None:
        return "barograph"
    from barograph.catalogue.sources import check_source
    from barograph.catalogue.spec import CatalogueError

    try:
        check_source(source)
    except CatalogueError as error:
        raise SettingsError(f"source: {error}") from None
    return source


def _copied(dir: Path) -> str:
    return (
        f"dir: {dir.absolute()} is in the copy that Ray makes of the working directory: the driver and other nodes do "
        "not see it, and Ray removes it; pass the run itself to the worker, as in worker.remote(run), or give an "
        "absolute dir= or BAROGRAPH_DIR"
    )


def _begin(
    settings: Settings, info: RunInfo, folder: Path, trackers: Mapping[str, Tracker], is_new: bool = False
) -> Run:
    """Begin the next attempt of a rank; warn if another process writes with it."""
    earlier = [s for s in segments(folder) if (s.writer.role, s.writer.rank) == (settings.role, settings.rank)]
    attempt = earlier[-1].writer.attempt + 1 if earlier else 1
    writer = Writer(settings.role, settings.rank, attempt)
    if settings.server and not is_new:  # an earlier attempt may have been on another machine
        writer, is_claimed = _claimed_elsewhere(settings, info, folder, settings.rank)
        settings, attempt = replace(settings, claimed=is_claimed), writer.attempt
    run = Run(settings, info, folder, writer, _forget, functools.partial(_clients, trackers))
    lost_race = run.writer.attempt > attempt  # another process has begun that attempt since the segments were listed
    if lost_race or (earlier and _is_live(earlier[-1].path)):
        _warn_of_writer(info.id, writer)
    return run


def _with_safe_spool(settings: Settings, id: str, folder: Path) -> Settings:
    """Return the settings without the spool if it cannot be used, or if another user may write to it."""
    if settings.spool:
        try:
            make_spool_folder(settings.spool, id)
        except OSError as error:
            _warn(
                f"cannot use the spool: {error.strerror}; writing directly to {folder}, where a slow mount delays the "
                "training. Choose another local directory with spool="
            )
            return replace(settings, spool=None)
    return settings


def _short(text: str, what: str) -> str:
    """Return a text of ``run.json``, cut to a size that readers accept."""
    if len(text) > MAX_TEXT:
        _warn(f"{what}: the text has {len(text):,} characters, the first {MAX_TEXT:,} are kept")
    return text[:MAX_TEXT]


def _reject_settings_of_the_run(settings: Mapping[str, Any]) -> None:
    for name in settings:
        if name not in BY_NAME:
            raise SettingsError(f"join: unknown setting {name!r}{did_you_mean(name, BY_NAME, before='; ')}")
        if name in SETTINGS_OF_THE_RUN:
            raise SettingsError(f"join: {name!r} is a setting of the whole run: give it to barograph.init")


def _joined_already(ticket: Ticket, role: str | None, rank: int | None) -> Run | None:
    """Return the open run of this process that a ticket is for."""
    roles = (role,) if role else (ticket.role, os.environ.get("BAROGRAPH_ROLE"))
    for run in reversed(_runs):
        place = run.path if run.writer.attempt > 0 else None  # None: it is disabled
        if _is_same(place, ticket.path) and run.writer.role in roles and rank in (None, run.writer.rank):
            return run
    return None


def _is_same(path: Path | None, other: Path | None) -> bool:
    if path is None or other is None:
        return path is other
    return path.name == other.name and path.resolve() == other.resolve()


def _joined_run(ticket: Ticket, keywords: Mapping[str, Any]) -> Run:
    given = {"role": ticket.role, **ticket.settings}
    if keywords["role"] not in (None, ticket.role):
        given.pop("world_size", None)  # of another role
    place = {"mode": "disabled"} if ticket.path is None else {"dir": ticket.path.parent}
    settings = resolve({OWN_SECTION: given}, {**keywords, **place, "track_with": "none"})
    if settings.disabled or ticket.path is None:
        return _disabled_run(settings)
    is_elsewhere = _is_elsewhere(ticket, ticket.path, settings)
    info = _info_elsewhere(ticket.path, settings) if is_elsewhere else _info_of(ticket.path)
    world_size = None if settings.world_size == 1 else settings.world_size  # 1: of a parent that was alone
    settings = replace(settings, vocabulary=info.vocabulary, world_size=world_size, elsewhere=is_elsewhere)
    settings = replace(settings, ray_place=ticket.ray_place)
    settings = _with_sent_spool(settings, info.id) if is_elsewhere else _with_safe_spool(settings, info.id, ticket.path)
    if keywords["rank"] is not None and not is_elsewhere:
        return _begin(settings, info, ticket.path, {})
    wanted = settings.rank if settings.rank_given else None
    if is_elsewhere or (settings.server and wanted is None):
        first = settings.world_size or int(settings.role == ticket.role)  # lower ranks are begun without a ticket
        is_fixed = keywords["rank"] is not None
        writer, is_claimed = _claimed_elsewhere(settings, info, ticket.path, wanted, first, is_fixed)
    else:
        writer, is_claimed = _claimed_here(settings, info, ticket.path, wanted), True
    settings = replace(settings, rank=writer.rank, rank_given=True, claimed=is_claimed)
    return Run(settings, info, ticket.path, writer, _forget, functools.partial(_clients, {}))


def _claimed_here(settings: Settings, info: RunInfo, folder: Path, wanted: int | None) -> Writer:
    spool = settings.spool / info.id if settings.spool else None
    try:
        return claim(folder, settings.role, wanted, actor_id(), spool)
    except OSError as error:
        raise JournalError(f"cannot join the run in {folder}: {error.strerror}") from error


def _is_elsewhere(ticket: Ticket, folder: Path, settings: Settings) -> bool:
    """Return whether the run's directory is on another machine, to which there is a way."""
    if ticket.ray_place is None:
        return settings.server is not None and not (folder / RUN_FILE).is_file()
    # A directory of the same path may be another one, or a copy.
    is_here = run_mark(folder) == ticket.ray_place.mark
    return not is_here and (settings.server is not None or node_id() is not None)


def _claimed_elsewhere(
    settings: Settings, info: RunInfo, folder: Path, wanted: int | None, first: int = 0, is_fixed: bool = True
) -> tuple[Writer, bool]:
    """Return a writer that no process of another machine is, and whether its segment was created."""
    from barograph.delivery.transfer.claiming import claim_in_process, unasked_writer
    from barograph.delivery.transfer.state import claiming

    spool = settings.spool / info.id if settings.spool else folder
    try:
        with claiming(spool):
            if settings.server:
                claimed, problem = claim_in_process(_server_run(settings, info), spool, settings.role, wanted, first)
            else:
                claimed, problem = _claimed_over_ray(settings, folder, spool, wanted, is_fixed)
            if claimed is not None:
                claimed.begin(spool)
                return claimed.writer, True
    except OSError as error:
        problem = f"{spool}: {error.strerror}"
    writer = unasked_writer(settings.role, wanted, actor_id())
    place = "on the server" if settings.server else "where the run began"
    _warn(f"the rank could not be claimed {place} ({problem}); recording as {writer}")
    return writer, False


def _claimed_over_ray(
    settings: Settings, folder: Path, spool: Path, wanted: int | None, is_fixed: bool
) -> tuple[Claim | None, str]:
    """Claim a rank on the node where the run began; raise RunNotFoundError if it is not there."""
    from barograph.delivery.ray.sending import claim_over_ray
    from barograph.delivery.transfer.destination import DestinationError

    try:
        return claim_over_ray(_ray_run(settings, folder), spool, settings.role, wanted, is_fixed), ""
    except DestinationError as error:
        if error.reason == "name":
            raise RunNotFoundError(f"{error}, and none on {platform.node()}: {ONE_DIRECTORY}") from None
        return None, str(error)


def _ray_run(settings: Settings, folder: Path) -> RayRun:
    from barograph.delivery.ray.destination import RayRun

    assert settings.ray_place is not None
    return RayRun(settings.ray_place, folder)


def _info_elsewhere(folder: Path, settings: Settings) -> RunInfo:
    """Return what a ticket tells about a run whose directory is on another machine."""
    return RunInfo(folder.name, settings.project, folder.name, time.time(), vocabulary=settings.vocabulary)


def _with_sent_spool(settings: Settings, id: str) -> Settings:
    """Return the settings with the spool that is sent to the server; raise JournalError if it cannot be used."""
    spool = settings.spool or default_spool()
    try:
        make_spool_folder(spool, id)
    except OSError as error:
        raise JournalError(
            f"cannot use the spool: {error.strerror}; choose another local directory with spool="
        ) from error
    return replace(settings, spool=spool)


def _info_of(folder: Path) -> RunInfo:
    """Return the description of a run; raise RunNotFoundError if this machine does not see its directory."""
    if not (folder / RUN_FILE).is_file():
        raise RunNotFoundError(f"no run in {folder} on {platform.node()}: {ONE_DIRECTORY}")
    return read_run_info(folder)


def _clients(trackers: Mapping[str, Tracker], recording: Recording) -> Iterator[DeliveryClient]:
    """Yield the clients of the spool, the server and the trackers: threads of this process, and other processes."""
    settings, path, warn = recording.settings, recording.path, recording.problems.warn
    spool = settings.spool / recording.info.id if settings.spool else path
    if settings.spool and not settings.elsewhere:
        from barograph.delivery.transfer.spool import SpoolClient

        yield SpoolClient(spool, path, warn)
    if settings.server:
        from barograph.delivery.transfer.sending import ServerClient

        folder = spool if settings.elsewhere else path
        yield ServerClient(folder, _server_run(settings, recording.info), warn, recording.writer)
    elif settings.elsewhere:
        from barograph.delivery.ray.sending import RayClient

        yield RayClient(spool, _ray_run(settings, path), warn, recording.writer)
    elif settings.ray_place is None and is_ray_imported():
        from barograph.delivery.ray.nodes import NodesClient

        yield NodesClient(path)
    if settings.doctor and settings.rank == 0 and settings.role == MAIN_ROLE:
        from barograph.diagnosis.client import DoctorClient

        yield DoctorClient(path, settings, warn, recording.writer)
    if not trackers:
        return
    from barograph.delivery.relay.client import RelayClient, ThreadClient

    here = {name for name, tracker in trackers.items() if tracker.in_process or settings.in_process}
    own = {name: recording.writer for name, tracker in trackers.items() if getattr(tracker, "own_rows", False)}
    if here:
        yield ThreadClient(path, {name: settings.trackers[name] for name in here}, warn, own)
    if there := {name: settings.trackers[name] for name in trackers if name not in here}:
        yield RelayClient(path, there, warn, recording.writer)


def _server_run(settings: Settings, info: RunInfo) -> ServerRun:
    from barograph.delivery.transfer.destination import ServerRun

    return ServerRun.of(settings.server or "", folder_name(info.project), info.id, settings.elsewhere)


def _trackers(settings: Settings) -> dict[str, Tracker]:
    """Construct the configured trackers; an error's text is redacted."""
    from barograph.delivery.trackers import registry

    redactor = Redactor()
    redactor.redact(settings.trackers)
    try:
        return {name: registry.make(name, kwargs) for name, kwargs in settings.trackers.items()}
    except TrackerError as error:
        raise TrackerError(redactor.redact_text(str(error))) from None


def _is_live(segment: Path) -> bool:
    return segment_status(segment).word == "running"


def _warn_of_writer(id: str, writer: Writer) -> None:
    """Warn that another process writes with this role and rank: one of the two would hide the other."""
    _warn(
        f"{writer} of run {id} is still being written by another process, which this one supersedes: "
        "give each process its own role= or rank="
    )


def _folder_of(settings: Settings, id: str) -> Path:
    """Return the folder of the run with that id, which may not exist yet."""
    if settings.id:
        for folder in run_folders(settings.dir):
            if folder.name == id:
                return folder.absolute()
    return (settings.dir / folder_name(settings.project) / id).absolute()


def _finish_former(settings: Settings) -> None:
    """Finish the open runs of this process, except those that this one joins as another role or rank."""
    for run in list(_runs):
        same_writer = (run.writer.role, run.writer.rank) == (settings.role, settings.rank)
        if run.id == settings.id and not same_writer:
            continue
        run.finish()
        if run.writer.attempt > 0:  # not of a disabled run
            _warn(f"run {run.id} ({run.name}) was still open; this init finished it")


def _forget(run: Run) -> None:
    if run in _runs:
        _runs.remove(run)


def _after_fork_in_child() -> None:
    global _joining
    _joining = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)
