"""Servers that take values over HTTP: barograph's, MLflow's and Trackio's, and a writer for each."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol

from barograph.base.process.identity import process_identity
from barograph.delivery.transfer.destination import HttpDestination, ServerRun
from barograph.journal.format import frames

START_SECONDS = 120.0
NAMES = [f"metric/{number}" for number in range(50)]
VALUES = [number / 7 for number in range(50)]
RANKS = 10  # writers of one run


class Writer(Protocol):
    """One of many writers."""

    def send(self, steps: list[int]) -> None:
        """Send a row of 50 values for each step; return when they are acknowledged."""
        ...


class TargetServer(ABC):
    """A server as a process, on a free port."""

    interpreter: ClassVar[str] = os.environ.get("PEER_PYTHON") or sys.executable

    def __init__(self, dir: Path) -> None:
        self.dir = dir
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        with (dir / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                self.command(), env={**os.environ, **self.environment()}, stdout=log, stderr=log, start_new_session=True
            )
        self._wait()

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that serves."""

    def environment(self) -> dict[str, str]:
        """Return what the server needs in its environment."""
        return {}

    @abstractmethod
    def writer(self, number: int) -> Writer:
        """Return a writer that has what it needs to send."""

    @abstractmethod
    def look(self) -> None:
        """Ask for what a person sees first: the list of runs."""

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                self.look()
                return
            except (OSError, http.client.HTTPException, ValueError):
                if self.process.poll() is not None or time.monotonic() > until:
                    told = (self.dir / "server.log").read_text()[-2000:]
                    self.close()
                    raise RuntimeError(f"the server did not start: {told}") from None
                time.sleep(0.2)

    def close(self) -> None:
        """End the server and its workers."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class JsonConnection:
    """A kept connection that posts JSON."""

    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Content-Type": "application/json", **(headers or {})}

    def post(self, path: str, record: Any) -> Any:
        """Return the answer; raise OSError if it is a refusal. An idle connection that was closed is made again."""
        try:
            response, answer = self._exchange(path, json.dumps(record))
        except (http.client.RemoteDisconnected, ConnectionError):
            self._connection.close()
            response, answer = self._exchange(path, json.dumps(record))
        if response.status != http.client.OK:
            raise OSError(f"status {response.status}: {answer[:200]!r}")
        return json.loads(answer)

    def _exchange(self, path: str, body: str) -> tuple[http.client.HTTPResponse, bytes]:
        self._connection.request("POST", path, body, self._headers)
        response = self._connection.getresponse()
        return response, response.read()

    def get(self, path: str) -> bytes:
        """Return the answer."""
        self._connection.request("GET", path, headers=self._headers)
        return self._connection.getresponse().read()


class BarographServer(TargetServer):
    """``barograph up --ingest``."""

    interpreter = sys.executable

    def command(self) -> list[str]:
        """Return the command that serves."""
        (self.dir / "runs").mkdir()
        (self.dir / "token").write_text("root")
        listening = ["--port", str(self.port), "--token-file", str(self.dir / "token")]
        return [self.interpreter, "-m", "barograph", "up", str(self.dir / "runs"), "--ingest", *listening]

    def environment(self) -> dict[str, str]:
        """Return what the server needs in its environment."""
        return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def writer(self, number: int) -> Writer:
        """Return a writer that has what it needs to send."""
        return BarographWriter(self.port, number)

    def look(self) -> None:
        """Ask for the list of runs."""
        with_token = {"Authorization": "Bearer root"}
        assert b"runs" in JsonConnection(self.port, with_token).get("/api/runs?limit=50")


class BarographWriter:
    """A process of a run: pieces of its segment."""

    def __init__(self, port: int, number: int) -> None:
        run = ServerRun(f"http://127.0.0.1:{port}", "lab", f"run{number // RANKS:04}", "root")
        self._target = HttpDestination(run)
        self._name = f"trainer.{number % RANKS}.1.0.seg"
        self._schema = frames.schema_id(NAMES)
        self._pack = frames.row_struct(len(NAMES)).pack
        start = {"event": "start", "time": time.time(), "world_size": RANKS, **process_identity()}
        self._unsent = frames.segment_head() + frames.frame(frames.record_payload(frames.Kind.EVENT, start))
        self._unsent += frames.frame(frames.schema_payload(self._schema, NAMES))
        self._offset = 0

    def send(self, steps: list[int]) -> None:
        """Send a row for each step."""
        rows = (self._pack(frames.Kind.ROW, self._schema, step, time.time(), *VALUES) for step in steps)
        piece = self._unsent + b"".join(map(frames.frame, rows))
        self._offset = self._target.append(self._name, self._offset, piece)
        self._unsent = b""


class MlflowServer(TargetServer):
    """``mlflow server`` with SQLite and two workers."""

    def command(self) -> list[str]:
        """Return the command that serves."""
        store = ["--backend-store-uri", f"sqlite:///{self.dir}/mlflow.db", "--workers", "2"]
        listening = ["--host", "127.0.0.1", "--port", str(self.port)]
        return [self.interpreter, "-m", "mlflow", "server", *store, *listening]

    def environment(self) -> dict[str, str]:
        """Return what the server needs in its environment."""
        return {"MLFLOW_DISABLE_TELEMETRY": "true", "HOME": str(self.dir)}

    def writer(self, number: int) -> Writer:
        """Return a writer that has what it needs to send."""
        return MlflowWriter(JsonConnection(self.port))

    def look(self) -> None:
        """Ask for the list of runs."""
        JsonConnection(self.port).post("/api/2.0/mlflow/runs/search", {"experiment_ids": ["0"], "max_results": 50})


class MlflowWriter:
    """A run of MLflow: its service has no ranks."""

    def __init__(self, connection: JsonConnection) -> None:
        self._connection = connection
        made = connection.post("/api/2.0/mlflow/runs/create", {"experiment_id": "0", "start_time": 1})
        self._id = made["run"]["info"]["run_id"]

    def send(self, steps: list[int]) -> None:
        """Send a row for each step."""
        now = int(time.time() * 1000)
        for part in (steps[place : place + 20] for place in range(0, len(steps), 20)):  # at most 1,000 values a call
            values = [
                {"key": name, "value": value, "timestamp": now, "step": step}
                for step in part
                for name, value in zip(NAMES, VALUES, strict=True)
            ]
            self._connection.post("/api/2.0/mlflow/runs/log-batch", {"run_id": self._id, "metrics": values})


class TrackioServer(TargetServer):
    """``trackio.show``, which takes values of other machines with a token."""

    def command(self) -> list[str]:
        """Return the command that serves."""
        show = f"trackio.show(open_browser=False, block_thread=True, server_port={self.port})"
        return [self.interpreter, "-u", "-c", f"import trackio; {show}"]

    def environment(self) -> dict[str, str]:
        """Return what the server needs in its environment."""
        return {"TRACKIO_DIR": str(self.dir / "trackio"), "HOME": str(self.dir), "HF_HUB_OFFLINE": "1"}

    def _token(self) -> str:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if found := re.search(r"write_token=([\w-]+)", (self.dir / "server.log").read_text()):
                return found[1]
            time.sleep(0.2)
        raise RuntimeError("the server printed no token")

    def writer(self, number: int) -> Writer:
        """Return a writer that has what it needs to send."""
        return TrackioWriter(JsonConnection(self.port, {"x-trackio-write-token": self._token()}), number)

    def look(self) -> None:
        """Ask for the list of runs."""
        record = {"args": [], "kwargs": {"project": "lab"}}
        JsonConnection(self.port).post("/api/get_runs_for_project", record)


class TrackioWriter:
    """A run of Trackio."""

    def __init__(self, connection: JsonConnection, number: int) -> None:
        self._connection = connection
        self._run = f"run{number:04}"

    def send(self, steps: list[int]) -> None:
        """Send a row for each step."""
        values = dict(zip(NAMES, VALUES, strict=True))
        logs = [{"project": "lab", "run": self._run, "metrics": values, "step": step, "config": None} for step in steps]
        self._connection.post("/api/bulk_log", {"args": [], "kwargs": {"logs": logs, "hf_token": None}})


SERVERS = {"barograph": BarographServer, "mlflow": MlflowServer, "trackio": TrackioServer}
