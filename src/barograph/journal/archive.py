"""Archives: a run that has ended in one compressed file with checksums, ``<run id>.tar.gz``.

The first member lists size and SHA-256 of every file. Restoring unpacks into a hidden directory beside the archive,
verifies it and renames it, so that a run is restored whole or not at all. Archives of version 0.1 have no list: for
them the CRC of gzip, the checksums of tar's headers and the end of the tar file are verified.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from barograph.base.errors import JournalError
from barograph.journal.format.folder import INDEX_FOLDER, is_run

SUFFIX = ".tar.gz"
CHECKSUMS = ".barograph-archive.json"  # name of the member with the checksums, in the run's directory
CHUNK = 1 << 20
MAX_READ = 64 << 20  # bytes of one header or list of checksums: the size that a header claims is not trusted
MAX_MEMBERS = 200_000
MAX_SIZE = 1 << 62  # bytes
MAX_PADDING = 1 << 20  # zeros after the last member; tar files end with up to 10 kB of them
RESERVE = 16 << 20  # bytes that stay free on the disk
UNREADABLE = (
    OSError, EOFError, zlib.error, tarfile.TarError, ValueError, OverflowError, KeyError, TypeError, RecursionError,
)  # fmt: skip

Contents = dict[str, dict[str, Any]]  # by path in the run's directory


def pack(folder: Path) -> Path:
    """Pack a run's directory into a file beside it, check the file, and only then remove the directory."""
    target = folder.with_name(folder.name + SUFFIX)
    contents = _contents(folder)
    if not os.path.lexists(target):
        _write(target, folder, contents)
    elif not _has(target, folder.name, contents):
        raise JournalError(f"{target} exists and has other content: move it to another place first")
    shutil.rmtree(folder)
    return target


def unpack(archive: Path, delete: bool = False) -> Path:
    """Restore an archived run beside the archive; remove the archive afterwards only if ``delete`` is set.

    Raises JournalError, and leaves nothing behind, if the archive is damaged, is not one of a run, or if the place is
    taken.
    """
    folder = archive.with_name(archive.name.removesuffix(SUFFIX))
    if not archive.name.endswith(SUFFIX):
        raise JournalError(f"{archive} is not the archive of a run: expected a name that ends with {SUFFIX}")
    if os.path.lexists(folder):
        raise JournalError(f"{folder} exists: move it to another place first")
    draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        draft.mkdir()
        _extract(archive, folder.name, draft)
        os.rename(draft, folder)  # fails if a run has appeared there
        _sync(folder.parent)
    except (JournalError, *UNREADABLE) as problem:
        reason = str(problem) or type(problem).__name__
        raise JournalError(f"{archive} cannot be restored: {reason}; nothing was changed") from problem
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if delete:
        archive.unlink()
    return folder


def archives(dir: Path) -> list[Path]:
    """List the archived runs below a directory."""
    return sorted(path for path in dir.glob(f"*/*{SUFFIX}") if path.name[0] != ".")


def _contents(folder: Path) -> Contents:
    """Return the files with size and SHA-256, the directories, and the links of a run's directory."""
    found: Contents = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if inside.parts[0] != INDEX_FOLDER and inside.as_posix() != CHECKSUMS:  # an index can be created again
            found[inside.as_posix()] = _describe(path)
    return found


def _describe(path: Path) -> dict[str, Any]:
    if path.is_symlink():
        target = os.readlink(path)
        if not _stays_inside(target):
            raise JournalError(f"{path} links to {target}, outside the run: remove the link first")
        return {"link": target}
    if path.is_dir():
        return {"directory": True}
    if not path.is_file():
        raise JournalError(f"{path} is not a file and cannot be archived: remove it first")
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _stays_inside(target: str) -> bool:
    """Return whether a link can only lead further down; a target with ".." can leave through another link."""
    return bool(target) and not target.startswith("/") and ".." not in PurePosixPath(target).parts


def _write(target: Path, folder: Path, contents: Contents) -> None:
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tarfile.open(draft, "w:gz", compresslevel=6) as archive:
            text = json.dumps({"format": 1, "contents": contents}).encode("ascii")
            listed = tarfile.TarInfo(f"{folder.name}/{CHECKSUMS}")
            listed.size = len(text)
            archive.addfile(listed, io.BytesIO(text))
            archive.add(folder, folder.name, recursive=False)
            for inside in contents:
                archive.inodes.clear()  # type: ignore[attr-defined]  # a file with two names is stored twice
                archive.add(folder / inside, f"{folder.name}/{inside}", recursive=False)
        if not _has(draft, folder.name, contents) or _contents(folder) != contents:
            raise JournalError(f"{folder} changed while it was being archived; nothing was removed")
        _sync(draft)
        os.replace(draft, target)
        _sync(target.parent)
    finally:
        draft.unlink(missing_ok=True)


def _has(archive: Path, name: str, contents: Contents) -> bool:
    """Return whether a run can be restored from an archive with exactly these contents."""
    try:
        return _extract(archive, name, None) == contents
    except (JournalError, *UNREADABLE):
        return False


def _extract(archive: Path, name: str, into: Path | None) -> Contents:
    """Read and verify a whole archive, and write its files to a directory if one is given; return its contents."""
    if not stat.S_ISREG(archive.stat().st_mode):
        raise JournalError("it is not a file")
    with _BoundedGzip(archive) as unzipped, tarfile.open(fileobj=unzipped, mode="r:") as packed:
        found, listed = _members(packed, name, into)
        _require_end(unzipped, packed.offset)
    if listed is not None and listed != found:
        wrong = sorted(path for path in {*listed, *found} if listed.get(path) != found.get(path))
        raise JournalError(f"{wrong[0]!r} does not have the checksum that was recorded")
    links = {path: content["link"] for path, content in found.items() if "link" in content}
    if into is not None:
        for link, target in links.items():  # after all files: none is written through a link
            (into / link).symlink_to(target)
        if not is_run(into):
            raise JournalError("it contains no run")
        for path in [into, *into.rglob("*")]:
            if not path.is_symlink():
                _sync(path)
    return found


class _BoundedGzip(gzip.GzipFile):
    """A compressed file that refuses to read more at once than a header may have."""

    def read(self, size: int | None = -1) -> bytes:
        """Return up to ``size`` bytes."""
        if size is None or not 0 <= size <= MAX_READ:
            raise JournalError(f"it has a header of {size:,} bytes")
        return super().read(size)


def _members(packed: tarfile.TarFile, name: str, into: Path | None) -> tuple[Contents, Contents | None]:
    found: Contents = {}
    listed: Contents | None = None
    room = MAX_SIZE if into is None else shutil.disk_usage(into).free - RESERVE  # bytes that may be unpacked
    for count, member in enumerate(packed):
        if count > MAX_MEMBERS:
            raise JournalError(f"it has more than {MAX_MEMBERS:,} members")
        path = _inside(member, name)
        if path == CHECKSUMS and count == 0:
            listed = _listed(packed, member)
            _require_room(sum(_bytes(content) for content in listed.values()), room)
        elif path is not None:
            if path in found:
                raise JournalError(f"it contains {path!r} twice")
            # Before anything is unpacked: a few bytes of an archive can unpack to more than the disk holds.
            if listed is not None and member.isreg() and _bytes(listed.get(path)) != member.size:
                raise JournalError(f"{path!r} does not have the size that was recorded")
            room -= member.size
            _require_room(0, room)
            found[path] = _take(packed, member, into / path if into is not None else None)
        packed.members.clear()  # type: ignore[attr-defined]  # tarfile keeps all of them
    return found, listed


def _require_room(size: int, room: int) -> None:
    if size > room:
        raise JournalError("it unpacks to more than is free on the disk: make room, or restore it elsewhere")


def _bytes(content: Any) -> int:
    """Return the size in an entry of the list of checksums; 0 for a directory or a link."""
    size = content.get("bytes", 0) if isinstance(content, dict) else 0
    if type(size) is not int or not 0 <= size <= MAX_SIZE:
        raise JournalError("its list of checksums has a wrong size")
    return size


def _inside(member: tarfile.TarInfo, name: str) -> str | None:
    """Return the path of a member in the run's directory, None for the directory itself; refuse any other path."""
    top, *inside = member.name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in inside) or top in ("", ".", ".."):
        raise JournalError(f"it contains the path {member.name!r}")
    if top != name:
        raise JournalError(f"it contains {top!r}; expected only the run {name!r}, the name of the file")
    if not inside and not member.isdir():
        raise JournalError(f"{member.name!r} is not a directory")
    return "/".join(inside) or None


def _listed(packed: tarfile.TarFile, member: tarfile.TarInfo) -> Contents:
    file = packed.extractfile(member) if member.isreg() and member.size <= MAX_READ else None
    record = json.loads(file.read(MAX_READ)) if file is not None else {}
    if not isinstance(record, dict) or record.get("format") != 1 or not isinstance(record.get("contents"), dict):
        raise JournalError("its list of checksums is of a newer version: update barograph")
    return dict(record["contents"])


def _take(packed: tarfile.TarFile, member: tarfile.TarInfo, target: Path | None) -> dict[str, Any]:
    """Return what a member is; write it if a path is given. Links are left to the caller."""
    if member.issym():
        if not _stays_inside(member.linkname):
            raise JournalError(f"{member.name!r} links to {member.linkname!r}, outside the run")
        return {"link": member.linkname}
    if member.isdir():
        if target is not None:
            target.mkdir(parents=True, exist_ok=True)
        return {"directory": True}
    if not member.isreg() or member.issparse():
        raise JournalError(f"{member.name!r} is not a plain file")
    digest = hashlib.sha256()
    source = packed.extractfile(member)
    assert source is not None
    if target is None:
        for data in _chunks(source, member.size):
            digest.update(data)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            for data in _chunks(source, member.size):
                digest.update(data)
                file.write(data)
        os.chmod(target, member.mode & 0o755 | 0o600)
        os.utime(target, (member.mtime, member.mtime))  # readers show it as the time of the last write
    return {"bytes": member.size, "sha256": digest.hexdigest()}


def _chunks(file: IO[bytes], size: int) -> Iterator[bytes]:
    while data := file.read(CHUNK):
        size -= len(data)
        yield data
    if size:
        raise JournalError("it is cut off")


def _require_end(unzipped: gzip.GzipFile, offset: int) -> None:
    """Read to the end of the file, where gzip compares its CRC; refuse anything but the zeros that end a tar file."""
    # tarfile takes a damaged header for the end and reads no further.
    unzipped.seek(offset)
    rest = 0
    while data := unzipped.read(CHUNK):
        if data.count(0) != len(data):
            raise JournalError("it has a damaged header, or data after its end")
        rest += len(data)
        if rest > MAX_PADDING:
            raise JournalError("it has too many zeros after its end")
    if rest < tarfile.BLOCKSIZE:
        raise JournalError("it is cut off")


def _sync(path: Path) -> None:
    """Bring a file or a directory to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):  # filesystems that cannot sync a directory
            raise
    finally:
        os.close(fd)
