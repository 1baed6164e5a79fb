"""Runs whose samples and rollout states are bombs or nonsense, on the page's API and in commands."""

import struct
import zlib
from pathlib import Path

import pytest
from serving_runs import Serve

import barograph
from barograph.apps.cli import main
from barograph.journal.format import frames
from barograph.journal.format.frames import Kind

VIEWS = ("samples", "details", "events", "overview", "texts", "report")
SAMPLES = (
    b"[" + b"{}," * 5_000_000 + b"{}]",
    b'[{"messages":[{"content":' + b"[" * 950 + b"]" * 950 + b"}]}]",
    b'[{"reward":1e999,"length":null,"time":"x","prompt":"\\ud800"},7]',
    b"nonsense",
)
STATES = (bytes(100 << 20), struct.pack("<I", 2**32 - 1), struct.pack("<I", 2) + b"{}", b"")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> barograph.Run:
    """Return a run of two ranks with bombs and nonsense beside honest data."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in range(2):
        run = barograph.init(dir=tmp_path / "runs", id="hostile", rank=rank, track_with=[])
        run.sample("honest", "sample", reward=1.0)
        run.rollouts().add("a", {"reward": 1.0}, run=rank)
        run.log({"a": 1.0})
        run.commit(0)
        journal = run._recording.journal
        for body in SAMPLES:
            journal.payload(frames.SAMPLE_HEAD.pack(Kind.SAMPLE, 1, 1.0, 1, 1) + zlib.compress(body))
        for number, body in enumerate(STATES):
            head = {"kind": "rollout", "taskset": "", "step": number + 1}
            journal.packet(Kind.GATHERED, head, zlib.compress(body))
        run.finish()
    return run


def test_every_view_responds(hostile: barograph.Run, serve: Serve):
    """The honest samples are shown, and the others are told."""
    client = serve()
    for view in VIEWS:
        assert client.get(f"/api/runs/hostile/{view}").status_code == 200, view
    found = client.get("/api/runs/hostile/samples").json()
    assert sum(sample["prompt"] == "honest" for sample in found["samples"]) == 2
    assert any("cannot be read" in text for text in found["census"]["damage"])
    assert [run["key"] for run in client.get("/api/runs").json()["runs"]] == ["hostile"]


def test_commands_tell_what_they_cannot_read(hostile: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """``samples`` and ``show`` have a line for it."""
    assert main(["samples", str(hostile.path)]) == 0
    out = capsys.readouterr().out
    assert "honest" in out
    assert "cannot be read" in out
    assert main(["show", str(hostile.path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "samples of step 1 cannot be read" in out
    assert "not the state of a handle" in out
