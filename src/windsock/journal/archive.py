"""Archives: a run that has ended in one compressed file."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

from windsock.errors import JournalError
from windsock.journal.folder import INDEX_FOLDER

SUFFIX = ".tar.gz"


def pack(folder: Path) -> Path:
    """Pack a run's directory into a file beside it, check the file, and only then remove the directory."""
    target = folder.with_name(folder.name + SUFFIX)
    if target.exists():
        raise JournalError(f"{target} exists: move it to another place first")
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tarfile.open(draft, "w:gz", compresslevel=6) as archive:
            archive.add(folder, folder.name, filter=_without_index)
        _check(draft, folder)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    shutil.rmtree(folder)
    return target


def unpack(archive: Path) -> Path:
    """Unpack an archived run to its old place, and remove the archive."""
    folder = archive.with_name(archive.name.removesuffix(SUFFIX))
    if folder.exists():
        raise JournalError(f"{folder} exists: move it to another place first")
    try:
        with tarfile.open(archive) as packed:
            packed.extractall(archive.parent, filter="data")
    except (OSError, tarfile.TarError) as problem:
        raise JournalError(f"{archive} cannot be unpacked: {problem}") from problem
    archive.unlink()
    return folder


def archives(dir: Path) -> list[Path]:
    """List the archived runs below a directory."""
    return sorted(dir.glob(f"*/*{SUFFIX}"))


def _without_index(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out files that can be created again."""
    return member if _kept(Path(*Path(member.name).parts[1:])) else None


def _kept(inside: Path) -> bool:
    return inside.parts[:1] != (INDEX_FOLDER,)


def _check(archive: Path, folder: Path) -> None:
    """Compare every byte with the original, which is removed next."""
    with tarfile.open(archive) as packed:
        for file in (path for path in folder.rglob("*") if path.is_file() and _kept(path.relative_to(folder))):
            member = packed.extractfile(str(file.relative_to(folder.parent)))
            with file.open("rb") as original:
                while True:
                    ours, theirs = original.read(1 << 20), member.read(1 << 20) if member else b""
                    if ours != theirs:
                        raise JournalError(f"{file} changed while it was being archived; nothing was removed")
                    if not ours:
                        break
