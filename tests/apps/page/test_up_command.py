"""The command ``barograph up``."""

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import barograph
from barograph.apps.cli import main
from barograph.apps.cli.serving import given_token


def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start the command; return its process and its first line."""
    command = [sys.executable, "-m", "barograph", "up", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    assert process.stdout is not None
    return process, process.stdout.readline()


def test_it_serves_prints_its_address_and_ends_with_ctrl_c(demo: barograph.Run, tmp_path: Path):
    """Also while a page is connected."""
    process, line = start(str(tmp_path / "runs"), "--port", "0")
    address = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]  # type: ignore[index]
    assert httpx.get(f"{address}api/runs").json()["runs"][0]["key"] == "demo"
    with httpx.stream("GET", f"{address}api/live") as stream:
        next(stream.iter_lines())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out.strip(), err) == (0, "stopped", "")


def test_another_host_gets_a_token_in_its_address(tmp_path: Path):
    """Requests without it are rejected."""
    process, line = start(str(tmp_path), "--port", "0", "--host", "0.0.0.0")
    try:
        port, token = re.search(r":(\d+)/\?token=(\S+)", line).groups()  # type: ignore[union-attr]
        assert httpx.get(f"http://127.0.0.1:{port}/api/runs").status_code == 401
        assert httpx.get(f"http://127.0.0.1:{port}/api/runs?token={token}").status_code == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


def test_a_server_for_a_team_takes_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """It knows tokens that are made while it runs, and does not print the one that it was given."""
    process, line = start(str(tmp_path), "--port", "0", "--ingest", "--token", "given")
    try:
        port = re.search(r" at http://127.0.0.1:(\d+)/  ", line)[1]  # type: ignore[index]
        assert main(["token", "new", "--project", "lab", "--write", "--dir", str(tmp_path)]) == 0
        for known in ("given", capsys.readouterr().out.strip()):
            bearer = {"authorization": f"Bearer {known}"}
            held = httpx.get(f"http://127.0.0.1:{port}/api/transfer/lab/r1", headers=bearer).json()
            assert held["segments"] == {}
        assert httpx.get(f"http://127.0.0.1:{port}/api/transfer/lab/r1").status_code == 401
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


@pytest.mark.parametrize("source", ["file", "environment"])
def test_a_token_can_be_given_without_an_argument(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """So that it is not in the list of processes."""
    (tmp_path / "token.txt").write_text("my-secret\n")
    if source == "environment":
        monkeypatch.setenv("BAROGRAPH_TOKEN", "my-secret")
    arguments = ["--token-file", str(tmp_path / "token.txt")] if source == "file" else []
    process, line = start(str(tmp_path), "--port", "0", *arguments)
    try:
        port = re.search(r":(\d+)/\?token=my-secret ", line)[1]  # type: ignore[index]
        assert b"my-secret" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert httpx.get(f"http://127.0.0.1:{port}/api/runs").status_code == 401
        bearer = {"authorization": "Bearer my-secret"}
        assert httpx.get(f"http://127.0.0.1:{port}/api/runs", headers=bearer).status_code == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


def test_a_token_for_sending_is_not_that_of_a_server(monkeypatch: pytest.MonkeyPatch):
    """A node has BAROGRAPH_TOKEN to send runs; whoever serves there does not give it away."""
    options = argparse.Namespace(token=None, token_file=None)
    monkeypatch.setenv("BAROGRAPH_TOKEN", "wsk_0123abcd_secret")
    assert given_token(options) is None
    monkeypatch.setenv("BAROGRAPH_TOKEN", "my-secret")
    assert given_token(options) == "my-secret"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--token", ""], "the token in --token is empty"),
        (["--token-file", "empty"], "the token in empty is empty"),
        (["--token-file", "absent"], "cannot read the token from absent"),
        (["--token-file", "binary"], "cannot read the token from binary"),
        ([], "the token in BAROGRAPH_TOKEN is empty"),
    ],
)
def test_a_token_that_cannot_be_used_is_an_error(arguments: list[str], message: str, tmp_path: Path):
    """Serving without the token that was asked for would be open to all."""
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    command = [sys.executable, "-m", "barograph", "up", ".", "--port", "0", *arguments]
    environment = {**os.environ, "BAROGRAPH_TOKEN": " "}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert message in ended.stderr


def test_a_port_in_use_is_reported_with_a_free_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A path that is not a directory is reported too."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["up", str(tmp_path), "--port", str(port)]) == 1
    assert re.search(rf"port {port} is in use: try  barograph up --port \d+", capsys.readouterr().err)
    assert main(["up", str(tmp_path / "nowhere")]) == 1
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_the_name_of_the_directory_cannot_control_the_terminal(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is printed with its control characters as pictures, or escaped."""
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    served = tmp_path / "a\x1b]0;title\x07\u202e·中"
    served.mkdir()
    process, line = start(str(served), "--port", "0")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert "http://127.0.0.1" in line
    assert "\x1b" not in line + err
    assert "\u202e" not in line + err
