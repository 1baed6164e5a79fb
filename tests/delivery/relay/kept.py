"""Trackers that write rows to a file and fail in many ways, and helpers for tests of the relay."""

from __future__ import annotations

import json
import subprocess
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import barograph
from barograph.delivery.relay.state import DeliveryState, read_delivery_state

MODULE = textwrap.dedent('''
    """Trackers that fail in many ways, for the relay's tests."""
    import atexit, json, os, threading, time
    from pathlib import Path

    class Kept:
        """Keeps rows in a file; ``trouble`` names what goes wrong."""
        in_process = False

        def __init__(self, path, trouble="", api_key=None):
            self._path, self._trouble, self._calls = Path(path), trouble, 0
            self.url = f"http://me:{api_key}@localhost/"

        def start(self, info, config, folder):
            from barograph.base.errors import TrackerError
            if Path(f"{self._path}.no").exists():
                raise TrackerError("not now")
            if self._trouble == "wrong":
                raise TrackerError("tracker 'kept': the key is wrong; get one at example.org")
            if self._trouble == "out of reach" and not Path(f"{self._path}.up").exists():
                raise ConnectionError("nobody answers")
            self._file = self._path.open("a")
            self._first = self._file.tell()
            if self._trouble == "lingers":
                threading.Thread(target=time.sleep, args=(600,), name="uploader").start()
            if self._trouble == "lingers at exit":
                atexit.register(time.sleep, 600)

        def log(self, rows):
            if self._trouble == "raises" or (self._trouble == "down" and not Path(f"{self._path}.up").exists()):
                raise ConnectionError("no route")
            self._calls += 1
            if self._trouble == "flaps" and self._calls != 4 and not Path(f"{self._path}.up").exists():
                raise ConnectionError("gone again")
            if self._trouble in ("slow", "sleeps"):
                time.sleep(0.3 if self._trouble == "slow" else 60)
            if self._trouble == "leaves":
                os._exit(7)
            if self._trouble == "chatty":
                for _ in range(40):
                    print("first line" if self._calls == 1 else "more", "x" * (1 << 20))
                    self._calls += 1
                print("last line", flush=True)
            if self._trouble == "hangs" and not Path(f"{self._path}.hung").exists():
                Path(f"{self._path}.hung").touch()
                time.sleep(600)
            if self._trouble == "exits" and not Path(f"{self._path}.left").exists():
                Path(f"{self._path}.left").touch()
                os._exit(7)
            for row in rows:
                if self._trouble == "picky" and row.step == 3:
                    raise ValueError("three is not a step")
                self._file.write(json.dumps([row.step, dict(row.values), dict(row.texts)]) + "\\n")
            self._file.flush()
            if self._trouble == "dies" and not Path(f"{self._path}.left").exists():
                Path(f"{self._path}.left").touch()
                os._exit(7)

        def finish(self, status):
            self._file.write(json.dumps([status.word, {}, {}]) + "\\n")
            self._file.close()

    class Marked(Kept):
        """The same, cut back to its mark."""

        def mark(self):
            if not self._file.closed:
                os.fsync(self._file.fileno())
            return {"size": self._path.stat().st_size}

        def rewind(self, mark):
            self._file.truncate(mark.get("size", self._first))
''')


def offer(site: Path) -> None:
    """Make a package of these trackers, which processes with the directory on their path find."""
    info = site / "kept-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "kept_trackers.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kept\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[barograph.trackers]\nkept = kept_trackers:Kept\nmarked = kept_trackers:Marked\n"
    )


def begun(tmp_path: Path, tracker: str = "kept", **kwargs: object) -> barograph.Run:
    return barograph.init(
        project="p", track_with=[tracker], tracker_kwargs={tracker: {"path": str(tmp_path / "kept.jsonl"), **kwargs}}
    )


def kept(tmp_path: Path) -> list[list[object]]:
    path = tmp_path / "kept.jsonl"
    # What follows the last newline is being written.
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def lines(path: Path) -> list[dict[str, object]]:
    """Return the lines that the jsonl tracker wrote."""
    return [json.loads(text) for text in path.read_text().splitlines()]


def steps_of(tmp_path: Path) -> list[object]:
    return [record[0] for record in kept(tmp_path)]


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def delivery_state(run: barograph.Run, tracker: str = "kept") -> DeliveryState:
    return read_delivery_state(run.path, tracker)


def relay_processes(folder: Path) -> list[int]:
    found = subprocess.run(
        ["pgrep", "-f", f"barograph.delivery.relay {folder}"], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in found.stdout.split()]


def environment_of(pid: int) -> bytes:
    """Return the arguments and the environment of a process, where keys would be visible."""
    return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
