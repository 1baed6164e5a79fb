"""Archives of runs: what is restored is what was archived, or nothing."""

import gzip
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import barograph
from barograph.base.errors import JournalError
from barograph.journal.archive import CHECKSUMS, pack, unpack

Snapshot = dict[str, bytes]


@pytest.fixture
def folder() -> Path:
    """Return the directory of a finished run with a subdirectory and a link, as W&B makes them."""
    with barograph.init(project="p", name="archived") as run:
        for step in range(200):
            run.log({"loss": random.random(), "score": random.random()}, step=step)
    (run.path / "wandb" / "run-1").mkdir(parents=True)
    (run.path / "wandb" / "run-1" / "data").write_bytes(random.randbytes(3000))
    (run.path / "wandb" / "latest-run").symlink_to("run-1")
    return run.path


def snapshot(folder: Path) -> Snapshot:
    """Return the bytes of every file, and the targets of links."""
    return {
        str(path.relative_to(folder)): os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def restored(archive: Path) -> Snapshot | None:
    """Restore an archive and return the content; None where it is refused, without leftovers."""
    beside = sorted(os.listdir(archive.parent))
    try:
        folder = unpack(archive)
    except JournalError:
        assert sorted(os.listdir(archive.parent)) == beside
        return None
    content = snapshot(folder)
    shutil.rmtree(folder)
    return content


def old_archive(folder: Path) -> Path:
    """Pack a run as version 0.1 did, without checksums."""
    archive = folder.with_name(folder.name + ".tar.gz")
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, folder.name)
    shutil.rmtree(folder)
    return archive


MAKERS = pytest.mark.parametrize("make", [pack, old_archive])


@MAKERS
def test_a_restored_run_has_every_byte(folder: Path, make: Callable[[Path], Path]):
    """Archives with and without checksums restore files, links and the times of the last write; they are kept."""
    before, [segment] = snapshot(folder), folder.glob("*.seg")
    os.utime(segment, (1e9, 1e9))
    archive = make(folder)
    assert not folder.exists()
    assert unpack(archive) == folder
    assert snapshot(folder) == before
    assert segment.stat().st_mtime == 1e9
    assert archive.exists()
    assert not (folder / CHECKSUMS).exists()


@MAKERS
def test_a_flipped_bit_never_restores_other_content(folder: Path, make: Callable[[Path], Path]):
    """Of 200 archives with one flipped bit none restores anything but the original."""
    before = snapshot(folder)
    archive = make(folder)
    data, draw, refused = archive.read_bytes(), random.Random(15), 0
    for _ in range(200):
        damaged = bytearray(data)
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        archive.write_bytes(damaged)
        content = restored(archive)
        assert content in (None, before)
        refused += content is None
    assert refused >= 190  # a few bits of gzip's header carry no content
    archive.write_bytes(data)
    assert restored(archive) == before


@MAKERS
def test_a_truncated_archive_is_refused(folder: Path, make: Callable[[Path], Path]):
    """Cut at every 50th of its length, and by one byte."""
    archive = make(folder)
    data = archive.read_bytes()
    for length in [*(len(data) * part // 50 for part in range(50)), len(data) - 1]:
        archive.write_bytes(data[:length])
        assert restored(archive) is None


def test_a_tar_file_that_ends_early_is_refused(folder: Path):
    """Also where gzip's CRC is right: the checksums and the end of the tar file are verified."""
    before = snapshot(folder)
    archive = pack(folder)
    plain = gzip.decompress(archive.read_bytes())
    for length in range(512, len(plain), max(512, len(plain) // 50 // 512 * 512)):
        for end in (b"", bytes(10240)):
            archive.write_bytes(gzip.compress(plain[:length] + end))
            content = restored(archive)
            assert content in (None, before)
            assert content is None or not any(plain[length:])
    archive.write_bytes(gzip.compress(plain[:1024] + b"x" * 512 + plain[1024:]))
    assert restored(archive) is None


def test_content_that_differs_from_its_checksum_is_refused(folder: Path):
    """A file changed inside an otherwise valid archive is named."""
    archive = pack(folder)
    with tarfile.open(archive) as packed:
        members = [(member, packed.extractfile(member) if member.isreg() else None) for member in packed]
        contents = [(member, file.read() if file else b"") for member, file in members]
    with tarfile.open(archive, "w:gz") as packed:
        for member, data in contents:
            packed.addfile(
                member, io.BytesIO(data.replace(b"archived", b"Archived") if "run.json" in member.name else data)
            )
    with pytest.raises(JournalError, match="'run.json' does not have the checksum"):
        unpack(archive)
    assert not folder.exists()


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b""
) -> tuple[tarfile.TarInfo, bytes]:
    """Return a member of a tar file."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    return info, data


RUN = [member("abc", tarfile.DIRTYPE), member("abc/run.json", data=b"{}")]
HOSTILE = {
    "foreign": [member("README.md", data=b"hello"), member("src/main.c", data=b"int main;")],
    "no run": [member("abc", tarfile.DIRTYPE), member("abc/README.md", data=b"hello")],
    "empty": [],
    "another run": [member("other", tarfile.DIRTYPE), member("other/run.json", data=b"{}")],
    "two runs": [*RUN, member("other/run.json", data=b"{}")],
    "absolute": [*RUN, member("/tmp/barograph-evil", data=b"x")],
    "parent": [*RUN, member("abc/../other/run.json", data=b"{}")],
    "above": [*RUN, member("../evil", data=b"x")],
    "dot": [*RUN, member("./abc/x", data=b"x")],
    "symlink out": [*RUN, member("abc/link", tarfile.SYMTYPE, "/etc/passwd")],
    "symlink up": [*RUN, member("abc/link", tarfile.SYMTYPE, "../other")],
    "symlink chain": [*RUN, member("abc/a", tarfile.SYMTYPE, "."), member("abc/b", tarfile.SYMTYPE, "a/..")],
    "file through a link": [*RUN, member("abc/a", tarfile.SYMTYPE, "b"), member("abc/a/x", data=b"x")],
    "root is a link": [member("abc", tarfile.SYMTYPE, "other"), member("abc/run.json", data=b"{}")],
    "hard link": [*RUN, member("abc/link", tarfile.LNKTYPE, "../other/run.json")],
    "fifo": [*RUN, member("abc/pipe", tarfile.FIFOTYPE)],
    "device": [*RUN, member("abc/null", tarfile.CHRTYPE)],
    "twice": [*RUN, member("abc/run.json", data=b"[]")],
    "endless header": [member("abc", tarfile.XHDTYPE, data=bytes(80 << 20)), *RUN],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_foreign_or_hostile_tar_file_is_refused(kind: str, tmp_path: Path):
    """It is one line of error, the file stays, other runs stay, and nothing is written."""
    other = tmp_path / "runs" / "p" / "other"
    other.mkdir(parents=True)
    (other / "run.json").write_text('{"id": "other"}')
    archive = other.with_name("abc.tar.gz")
    with tarfile.open(archive, "w:gz") as packed:
        for info, data in HOSTILE[kind]:
            packed.addfile(info, io.BytesIO(data))
    before = snapshot(tmp_path)
    command = [sys.executable, "-m", "barograph", "archive", "--restore", "--delete", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"barograph: {archive} cannot be restored: ")
    assert done.stderr.count("\n") == 1
    assert snapshot(tmp_path) == before


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path):
    """Text, an empty file and a name without the suffix."""
    for name, data in {"a.tar.gz": b"hello", "b.tar.gz": b"", "c.zip": b"PK", "d.tar.gz": gzip.compress(b"x")}.items():
        (tmp_path / name).write_bytes(data)
        assert restored(tmp_path / name) is None


def test_an_existing_run_is_never_overwritten(folder: Path):
    """The error names the directory; run and archive stay."""
    archive = pack(folder)
    unpack(archive)
    (folder / "run.json").write_text("{}")
    before = snapshot(folder)
    with pytest.raises(JournalError, match="exists: move it"):
        unpack(archive)
    with pytest.raises(JournalError, match="has other content"):
        pack(folder)
    assert snapshot(folder) == before


def test_the_archive_is_deleted_only_on_request(folder: Path):
    """The command says which; a kept archive of the same content is used again."""
    archive = pack(folder)
    command = [sys.executable, "-m", "barograph", "archive", "--restore", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"restored {folder}; the archive {archive} was kept\n"
    assert pack(folder) == archive
    done = subprocess.run([*command, "--delete"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"restored {folder}; the archive {archive} was deleted\n"
    assert not archive.exists()


def test_a_run_that_could_not_be_restored_is_not_archived(folder: Path):
    """A link that leads out and a FIFO are named, and nothing is removed."""
    (folder / "out").symlink_to("/etc")
    with pytest.raises(JournalError, match="outside the run"):
        pack(folder)
    (folder / "out").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(JournalError, match="is not a file"):
        pack(folder)
    assert (folder / "run.json").exists()
    assert not list(folder.parent.glob("*.tar.gz"))


def repacked(archive: Path, changed: Callable[[tarfile.TarInfo], tarfile.TarInfo], body: bytes = b"") -> None:
    """Replace an archive by one whose ``run.json`` has another header and other content."""
    with tarfile.open(archive) as packed:
        members = [(member, packed.extractfile(member)) for member in packed]
        contents = [(member, file.read() if file is not None else b"") for member, file in members]
    with tarfile.open(archive, "w:gz") as packed:
        for member, content in contents:
            if member.name.endswith("run.json"):
                packed.addfile(changed(member), io.BytesIO(body))
            else:
                packed.addfile(member, io.BytesIO(content))


def test_a_file_that_is_larger_than_recorded_is_not_unpacked(folder: Path):
    """200 kB of an archive could fill a disk before a checksum is compared."""
    archive = pack(folder)

    def larger(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.size = 200 << 20
        return member

    repacked(archive, larger, bytes(200 << 20))
    with pytest.raises(JournalError, match="'run.json' does not have the size that was recorded"):
        unpack(archive)


@pytest.mark.parametrize("is_old", [True, False])
def test_an_archive_that_does_not_fit_on_the_disk_is_refused(folder: Path, is_old: bool):
    """The size in the list of checksums, or of a header, is compared with the free space first."""
    archive = old_archive(folder) if is_old else pack(folder)
    huge = 1 << 60

    def larger(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.size = huge
        return member

    if is_old:
        text = gzip.decompress(archive.read_bytes())
        with tarfile.open(archive) as packed:
            member = packed.getmember(f"{folder.name}/run.json")
        place = member.offset
        header = larger(member).tobuf(tarfile.GNU_FORMAT)
        archive.write_bytes(gzip.compress(text[:place] + header + text[place + 512 :]))
    else:
        with tarfile.open(archive) as packed:
            contents = [(m, file.read() if (file := packed.extractfile(m)) else b"") for m in packed]
        first, listing = contents[0]
        record = json.loads(listing)
        record["contents"]["run.json"]["bytes"] = huge
        text = json.dumps(record).encode()
        first.size = len(text)
        with tarfile.open(archive, "w:gz") as packed:
            for member, content in [(first, text), *contents[1:]]:
                packed.addfile(member, io.BytesIO(content))
    with pytest.raises(JournalError, match="more than is free on the disk"):
        unpack(archive)
    assert not folder.exists()
