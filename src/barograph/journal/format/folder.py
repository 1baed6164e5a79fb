"""The files of a run: ``<dir>/<project>/<run id>/run.json`` and one segment file per writer, attempt and index.

A segment's name contains its writer, ``{role}.{rank}.{attempt}.{index}.seg`` with the role percent-quoted, so that
it is known even if the content is damaged. Index 0 is the process that began the attempt; forked processes, and a
process whose file can no longer grow, get the next ones.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from barograph.base.errors import JournalError, RunNotFoundError, SettingsError
from barograph.base.formatting import counted
from barograph.base.former_name import present, runs_folder
from barograph.base.model import RunInfo, Writer
from barograph.journal.format import fields
from barograph.journal.format.fields import DecodingError

MAX_FILE_BYTES = 16 << 20  # of ``run.json`` and of a delivery state


def open_regular_file(path: str | Path, flags: int) -> int:
    """Open a file and return its descriptor; raise OSError if it is not a regular one. It can be an ``opener``."""
    try:
        # Without O_NONBLOCK, opening a FIFO waits for its other end.
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a FIFO that nobody reads, opened for writing
            raise
    raise OSError(errno.EINVAL, "not a regular file: remove it", str(path))


@contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    """Yield a file descriptor, and close it."""
    try:
        yield fd
    finally:
        os.close(fd)


def replace_regular_file(path: Path, text: str) -> None:
    """Replace a file atomically; its folder is made, but not that above it, which may be of a run that was removed."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    try:
        with open(open_regular_file(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def read_regular_file(path: Path) -> str:
    """Return the text of a small file; raise OSError if it is large, or not a regular file."""
    with open(path, encoding="utf-8", opener=open_regular_file) as file:
        if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MAX_FILE_BYTES} bytes", str(path))
        return file.read()


RUN_FILE = "run.json"

INDEX_FOLDER = "index"  # in a run's directory: files that can be created from the journal again

PAGE_FOLDER = ".page"  # in a directory of runs: annotations, and indexes of the runs

SEGMENT_NAME = re.compile(
    r"(?P<role>[^/.]+)\.(?P<rank>[0-9]{1,9})\.(?P<attempt>[0-9]{1,9})\.(?P<index>[0-9]{1,9})\.seg"
)

MAX_TEXT = 20_000  # characters of a text in ``run.json``; a longer one is cut

MAX_TAGS = 1000

ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # no separator and no leading dot: it is a directory's name

ID_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # without characters that look alike

FileStates = dict[str, tuple[int, int, int]]
"""Size, modification time in nanoseconds and inode, by the name of a file."""


class FileState(NamedTuple):
    """Size of a file, and the time of its last change in nanoseconds."""

    size: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileState:
        """Return the state in what the system tells of a file."""
        return cls(found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, slots=True, order=True)
class SegmentFile:
    """One segment: its writer, its index in the attempt, and its path."""

    writer: Writer
    index: int
    path: Path

    @classmethod
    def parse(cls, path: Path) -> SegmentFile | None:
        """Return the segment of a path, or None if the name is not that of a segment."""
        match = SEGMENT_NAME.fullmatch(path.name)
        if match is None:
            return None
        writer = Writer(unquote(match["role"]), int(match["rank"]), int(match["attempt"]))
        return cls(writer, int(match["index"]), path)


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files in a run's directory: the states of ``run.json`` and of the segments, and the bytes of all."""

    states: FileStates
    bytes: int

    @property
    def has_segments(self) -> bool:
        """Whether there is a segment."""
        return any(SEGMENT_NAME.fullmatch(name) for name in self.states)

    @property
    def is_run(self) -> bool:
        """Whether they are those of a run."""
        return RUN_FILE in self.states or self.has_segments


def default_dir() -> Path:
    """Return ``$BAROGRAPH_DIR`` or ``./barograph-runs``."""
    given = os.environ.get("BAROGRAPH_DIR")
    return Path(given) if given else runs_folder(Path())


def new_run_id() -> str:
    """Return eight random characters: short to type, and unique among the runs of a team."""
    return "".join(secrets.choice(ID_ALPHABET) for _ in range(8))


def check_run_id(id: str) -> str:
    """Return the id; raise SettingsError if it cannot be the name of a directory."""
    if not ID_PATTERN.fullmatch(id):
        raise SettingsError(f"id {id!r}: expected up to 64 letters, digits, '.', '_' or '-'")
    return id


def folder_name(text: str) -> str:
    """Return a directory name for any text; letters of every script stay readable."""
    safe = "".join(c if c.isalnum() or c in "._- " else quote(c, safe="", errors="replace") for c in text)
    # Directories with a leading dot are hidden, and "." and ".." are not names.
    return safe.replace("/", "%2F").lstrip(".") or "%2E"


def segment_path(folder: Path, writer: Writer, index: int) -> Path:
    """Return the path of a writer's segment."""
    # quote leaves dots as they are, and dots separate the fields of the name.
    role = quote(writer.role, safe="").replace(".", "%2E")
    return folder / f"{role}.{writer.rank}.{writer.attempt}.{index}.seg"


def segment_files(folder: Path) -> dict[str, FileState]:
    """Return the names of a run's segment files with their states, which tell whether one has changed."""
    found = _entries(folder, lambda entry: _is_segment(entry) and entry.stat())  # the entry keeps its state
    return {entry.name: FileState.of(entry.stat()) for entry in found}


def segments(folder: Path) -> list[SegmentFile]:
    """List the segments of a run, by writer, attempt and index."""
    found = (SegmentFile.parse(folder / entry.name) for entry in _entries(folder, _is_segment))
    return sorted(segment for segment in found if segment)


def run_files(folder: Path) -> RunFiles:
    """Return the state of the files of a run, without opening any; of a directory that cannot be read, nothing."""
    states: FileStates = {}
    size = 0
    for entry in _entries(folder, lambda entry: entry.is_file() and entry.stat()):
        found = entry.stat()  # the entry keeps it
        size += found.st_size
        if entry.name.endswith(".seg") or entry.name == RUN_FILE:
            states[entry.name] = found.st_size, found.st_mtime_ns, found.st_ino
    return RunFiles(states, size)


def _entries(folder: Path, is_wanted: Callable[[os.DirEntry[str]], object]) -> list[os.DirEntry[str]]:
    """List the entries of a directory that are wanted; of one that cannot be read, none."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if is_wanted(entry):
                        found.append(entry)
                except OSError:  # a link to itself, or removed meanwhile
                    pass
    except OSError:
        return []
    return found


def _is_segment(entry: os.DirEntry[str]) -> bool:
    return SEGMENT_NAME.fullmatch(entry.name) is not None and entry.is_file()  # opening a FIFO would block


def write_run_info(folder: Path, info: RunInfo) -> RunInfo:
    """Write ``run.json`` unless another writer of the run has written it; return its content."""
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"format": 1, **asdict(info)}, ensure_ascii=True, indent=1) + "\n"
    return info if write_first(folder / RUN_FILE, content.encode()) else read_run_info(folder)


def write_first(target: Path, content: bytes) -> bool:
    """Write a file unless it exists, all of it at once; return whether it was written."""
    # All ranks of a run start at once and want to write the file. The first one wins, and the others take its content;
    # a draft makes sure that nobody reads half of it.
    draft = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
    draft.write_bytes(content)
    try:
        os.link(draft, target)  # atomic, and fails if the file exists
    except FileExistsError:
        return False
    except OSError:  # a filesystem without hard links
        if target.exists():
            return False
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    return True


def run_mark(folder: Path) -> str | None:
    """Return what tells the directory of a run from one of the same path on another machine, a copy of it too.

    It is of ``run.json``, which is written once. None if there is no such file.
    """
    try:
        found = os.stat(folder / RUN_FILE)
    except OSError:
        return None
    return f"{found.st_ino:x}.{found.st_mtime_ns:x}" if stat.S_ISREG(found.st_mode) else None


def read_run_info(folder: Path) -> RunInfo:
    """Read ``run.json``; where it is unreadable, return what the directory's name and the segments' times tell."""
    try:
        record = fields.read_mapping(fields.parse_json(read_regular_file(folder / RUN_FILE)))
    except (OSError, ValueError) as problem:
        if not segments(folder):
            raise JournalError(f"{folder} contains no run: {problem}") from problem
        record = {}
    return run_info(record, folder)


def run_info(record: dict[str, Any], folder: Path) -> RunInfo:
    """Return the info of a run from the contents of ``run.json``, and from its directory what they lack."""
    known = {name: value for name, read in INFO_FIELDS.items() if (value := _field(record, name, read)) is not None}
    for name, derive in DERIVED_INFO.items():
        if name not in known:
            known[name] = derive(folder)
    return RunInfo(**known)


def identity(folder: Path) -> RunInfo:
    """Return the info of a run; of one that cannot be read, what its directory tells."""
    try:
        return read_run_info(folder)
    except JournalError:
        return RunInfo(**{name: derive(folder) for name, derive in DERIVED_INFO.items()})


def _field(record: dict[str, Any], name: str, read: Callable[[Any], Any]) -> Any:
    try:
        return read(record[name])
    except (KeyError, DecodingError):  # the field is missing: the others count
        return None


def _info_text(value: Any) -> str:
    return fields.read_text(value)[:MAX_TEXT]


def _info_id(value: Any) -> str:
    if not ID_PATTERN.fullmatch(fields.read_text(value)):
        raise DecodingError("must be a name of a directory")
    return str(value)


def _info_tags(value: Any) -> tuple[str, ...]:
    return tuple(map(_info_text, fields.list_of(fields.read_text)(value)[:MAX_TAGS]))


def _oldest_write(folder: Path) -> float:
    files = [segment.path for segment in segments(folder)] or [folder]
    return min(path.stat().st_mtime for path in files)


INFO_FIELDS: dict[str, Callable[[Any], Any]] = {
    "id": _info_id,
    "created": fields.read_time,
    "tags": _info_tags,
    **dict.fromkeys(("project", "name", "vocabulary", "group", "notes"), _info_text),
    "producer": lambda value: present(_info_text(value)),
}

DERIVED_INFO: dict[str, Callable[[Path], Any]] = {
    "id": lambda folder: folder.name,
    "project": lambda folder: unquote(folder.parent.name),
    "name": lambda folder: folder.name,
    "created": _oldest_write,
}


def is_run(folder: Path) -> bool:
    """Return whether a directory is that of a run."""
    return (folder / RUN_FILE).is_file() or bool(segments(folder))


def run_folders(dir: Path) -> Iterator[Path]:
    """Yield the directories of the runs below a directory, project by project."""
    return (folder for folder, _ in runs_with_files(dir))


def runs_with_files(dir: Path, levels: int = 2) -> Iterator[tuple[Path, RunFiles]]:
    """Yield the directories of the runs below a directory with their files, project by project."""
    # A directory that is given may be a run, a project, or the directory of all projects.
    files = run_files(dir)
    if files.is_run:
        yield dir, files
    elif levels:
        for folder in subfolders(dir):
            yield from runs_with_files(folder, levels - 1)


def subfolders(dir: Path) -> list[Path]:
    """List the directories in a directory; hidden ones are left out: ``.page`` contains segments and is not a run."""
    return [dir / name for name in sorted(entry.name for entry in _entries(dir, os.DirEntry.is_dir)) if name[0] != "."]


def last_active(folder: Path) -> float:
    """Return the time of the last write to the run."""
    writes = [segment.path.stat().st_mtime for segment in segments(folder)]
    return max([identity(folder).created, *writes])


def find_run(reference: str | os.PathLike[str], dir: Path | None = None) -> Path:
    """Return the directory of a run, by its path, id, unique prefix of its id, name, or ``@last``."""
    as_path = Path(reference)
    if os.path.isdir(as_path) and is_run(as_path):  # Path.is_dir raises for a name that is too long
        return as_path
    text, dir = str(reference), dir or default_dir()
    if text == "@last":
        return last_run(dir)
    if (folder := _folder_of_id(text, dir)) is not None:
        return folder
    infos = [(folder, identity(folder)) for folder in run_folders(dir)]
    for matches in (
        # Exact matches come first, so that an id which is a prefix of another can still be given.
        [folder for folder, info in infos if info.id == text],
        [folder for folder, info in infos if info.name == text],
        [folder for folder, info in infos if text and info.id.startswith(text)],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise RunNotFoundError(_several(text, matches))
    raise RunNotFoundError(_none(text, dir, [info.id for _, info in infos]))


def _folder_of_id(id: str, dir: Path) -> Path | None:
    """Return the only run with an id that its directory has as its name, without a look at the other runs."""
    if not ID_PATTERN.fullmatch(id) or is_run(dir):
        return None
    inside = [folder / id for folder in subfolders(dir)]
    found = [folder for folder in (dir / id, *inside) if os.path.isdir(folder) and is_run(folder)]
    if len(found) == 1 and not is_run(found[0].parent) and identity(found[0]).id == id:
        return found[0]
    return None


def last_run(dir: Path) -> Path:
    """Return the directory of the run that was written to last."""
    folders = list(run_folders(dir))
    if not folders:
        raise RunNotFoundError(_none("@last", dir, []))
    return max(folders, key=last_active)


def _several(text: str, folders: list[Path]) -> str:
    newest = sorted(folders, key=last_active, reverse=True)[:6]
    listed = ", ".join(f"{f.name} ({_day(identity(f).created)})" for f in newest)
    return f"{len(folders)} runs match {text!r}: {listed}; give an id (the newest is first)"


def _none(text: str, dir: Path, ids: list[str]) -> str:
    if not ids:
        return f"no run in {dir} (choose another directory with --dir or BAROGRAPH_DIR)"
    return f"no run {text!r} in {dir}; it has {counted(len(ids), 'run')}, listed by 'barograph ls'"


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
