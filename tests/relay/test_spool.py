"""Runs on a network mount: written to a local spool, whose bytes are copied."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kept import until

import windsock
from windsock.mounts import is_remote, mount_kind
from windsock.relay.supervisor import RelayOptions, run_end_with_spool
from windsock.settings import resolve

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:40 / /home rw,relatime shared:2 - nfs4 filer:/home rw
31 21 0:41 / /mnt/bucket rw - fuse.mountpoint-s3 mountpoint-s3 rw
32 21 0:42 / /mnt/two\\040words rw - cifs //server/share rw
33 30 0:43 / /home/me/scratch rw - xfs /dev/nvme0n1 rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "far"),
    [
        ("/var/runs", "ext4", False),
        ("/home/me/runs", "nfs4", True),
        ("/homework", "ext4", False),
        ("/home/me/scratch/runs", "xfs", False),
        ("/mnt/bucket/runs", "fuse.mountpoint-s3", True),
        ("/mnt/two words/runs", "cifs", True),
    ],
)
def test_network_and_object_store_mounts_are_recognised(path: str, kind: str, far: bool):
    """By the longest mount point above the directory, which need not exist."""
    assert mount_kind(Path(path), MOUNTS) == kind
    assert is_remote(Path(path), MOUNTS) is far


def test_a_spool_is_a_setting_and_by_default_depends_on_the_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A directory, or off; by default a spool is used if the runs are remote and the temporary directory is not."""
    assert resolve({}, {"dir": tmp_path}).spool is None
    assert resolve({}, {"dir": tmp_path, "spool": tmp_path / "s"}).spool == tmp_path / "s"
    monkeypatch.setattr("windsock.settings.is_remote", lambda path: path == tmp_path)
    assert resolve({}, {"dir": tmp_path}).spool is not None
    assert resolve({}, {"dir": tmp_path, "spool": "off"}).spool is None


def test_a_spooled_run_reads_as_any_other_and_leaves_no_spool(tmp_path: Path):
    """When finish returns, all bytes are in the run's directory; trackers get everything too."""
    run = windsock.init(dir=tmp_path / "runs", spool=tmp_path / "spool", track_with="jsonl")
    for step in range(50):
        run.log({"a": step}, step=step)
    run.finish()
    view = windsock.open(run.path)
    assert view.series("a").values.tolist() == list(range(50))
    assert view.status.word == "finished"
    assert len((run.path / "metrics.jsonl").read_text().splitlines()) >= 50
    until(lambda: not (tmp_path / "spool" / run.id).exists())


def test_a_mount_that_is_missing_for_a_while_loses_nothing(tmp_path: Path):
    """The training logs on, and the bytes are copied when the directory is back."""
    run = windsock.init(dir=tmp_path / "runs", spool=tmp_path / "spool")
    run.log({"a": 0}, step=0)
    moved = tmp_path / "away"
    shutil.move(tmp_path / "runs", moved)
    (tmp_path / "runs").write_text("the mount is gone")
    for step in range(1, 20):
        run.log({"a": step}, step=step)
    time.sleep(1.0)
    (tmp_path / "runs").unlink()
    shutil.move(moved, tmp_path / "runs")
    run.finish(timeout=60)
    assert windsock.open(run.path).series("a").values.tolist() == list(range(20))


TRAINER = textwrap.dedent("""
    import sys, windsock
    run = windsock.init(id="killed", dir=sys.argv[1], spool=sys.argv[2])
    for step in range(10**9):
        run.log({"a": step}, step=step)
        print(step, flush=True)
""")


def test_bytes_before_a_kill_are_copied(tmp_path: Path):
    """The trainer dies; the copying process copies the rest of the spool, and then exits."""
    command = [sys.executable, "-c", TRAINER, str(tmp_path / "runs"), str(tmp_path / "spool")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        for _ in range(300):
            last = int(trainer.stdout.readline())
        os.kill(trainer.pid, signal.SIGKILL)
    until(lambda: not (tmp_path / "spool" / "killed").exists())
    assert len(windsock.open("killed", dir=tmp_path / "runs").series("a")) > last


def test_a_run_whose_first_bytes_are_not_copied_yet_has_not_ended(tmp_path: Path):
    """A delivery waits for the segment of the process that started it, for a limited time."""
    run = windsock.init(id="there", dir=tmp_path)
    run.finish()
    options = RelayOptions("session", {}, segment="segments/trainer-0.9.seg", give_up=5.0)
    now = time.monotonic()
    assert run_end_with_spool(run.path, options, now) is None
    assert run_end_with_spool(run.path, options, now - 6.0) is not None
    assert run_end_with_spool(run.path, replace(options, segment=""), now) is not None
