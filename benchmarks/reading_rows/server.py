"""A server in a process of its own: its answers, CPU time and memory."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

START_SECONDS = 60.0
ANSWER_SECONDS = 600.0


class Server:
    """A running server."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid

    def get(self, path: str) -> Any:
        """Return the answer to a request as parsed JSON."""
        with urlopen(self.url + path, timeout=ANSWER_SECONDS) as response:
            return json.load(response)

    def cpu_seconds(self) -> float:
        """Return the CPU seconds that the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def answer_seconds(self, path: str) -> float:
        """Return the CPU seconds that the answer to a request takes, to a hundredth of a second."""
        before = self.cpu_seconds()
        self.get(path)
        return self.cpu_seconds() - before

    def children(self) -> list[Server]:
        """Return the processes that the server has started."""
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [Server(self.url, int(pid)) for pid in found]

    def mebibytes(self, field: str = "VmRSS") -> float:
        """Return the memory of the process; the field ``VmHWM`` is its peak."""
        found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        return int(found[1]) / 1024 if found else float("nan")


@contextmanager
def serving(dir: Path) -> Iterator[Server]:
    """Start ``barograph up`` on a directory of runs; stop it at the end."""
    with process_serving([sys.executable, "-m", "barograph", "up", str(dir)], "/api/about") as server:
        yield server


@contextmanager
def tensorboard(dir: Path) -> Iterator[Server]:
    """Start TensorBoard on a directory; stop it at the end."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(dir)]
    with process_serving(command, "/data/environment") as server:
        yield server


@contextmanager
def process_serving(command: list[str], path: str) -> Iterator[Server]:
    """Start a server that takes ``--port``; wait until it answers a request, and stop it at the end."""
    port = _free_port()
    process = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        server = Server(f"http://127.0.0.1:{port}", process.pid)
        _wait(server, path, process)
        yield server
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait(server: Server, path: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with suppress(URLError, ConnectionError, TimeoutError):
            server.get(path)
            return
        time.sleep(0.05)
    raise RuntimeError(f"{' '.join(process.args)} does not answer")  # type: ignore[arg-type]
