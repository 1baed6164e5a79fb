"""Runs that reach the server of a team: sent while they are recorded, joined from elsewhere, pushed and pulled."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from serving_runs import eventually, serving

import barograph
from barograph.apps.cli import main
from barograph.apps.page.http.serving import TeamOptions
from barograph.delivery.transfer.tokens import TokenFile
from barograph.journal.format.folder import segments


def contents(folder: Path) -> dict[str, bytes]:
    return {segment.path.name: segment.path.read_bytes() for segment in segments(folder)}


def certified(folder: Path) -> dict[str, Path]:
    """Make a certificate of this machine and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    made = {"certificate": folder / "cert.pem", "key": folder / "key.pem"}
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=team"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(made["key"]), "-out", str(made["certificate"])]
    subprocess.run(["openssl", *command.split(), *names], check=True, capture_output=True)
    return made


def test_a_run_of_two_machines_is_one_run_on_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Over TLS, with tokens of its project: the page has both ranks, and each side has the same bytes."""
    dir = tmp_path / "served"
    dir.mkdir()
    tokens = TokenFile(dir)
    options = TeamOptions(ingest=True, **certified(tmp_path))
    monkeypatch.setenv("SSL_CERT_FILE", str(options.certificate))
    trusted = ssl.create_default_context()
    with serving(dir, "root", options=options, verify=trusted) as client:
        server = str(client.base_url).rstrip("/")
        monkeypatch.setenv("BAROGRAPH_TOKEN", tokens.new(["read", "write"], "my lab"))
        monkeypatch.setenv("BAROGRAPH_SERVER", server)
        run = barograph.init(project="my lab", id="two", rank=0, world_size=2)
        ticket = run.ticket().replace(str(tmp_path / "runs"), "/another/machine")
        other = barograph.join(ticket, rank=1, spool=tmp_path / "spool")
        for step in range(3):
            for one in (run, other):
                one.log({"score": float(one.writer.rank)}, step=step)
        other.finish(timeout=60)
        run.finish(timeout=60)
        copy = dir / "my lab" / "two"
        eventually(lambda: contents(copy) == contents(run.path), 60)
        assert sorted(contents(copy)) == ["trainer.0.1.0.seg", "trainer.1.1.0.seg"]
        listed = client.get("/api/runs", headers={"authorization": "Bearer root"}).json()
        assert [(one["key"], one["status"], one["last_step"]) for one in listed["runs"]] == [("two", "finished", 2)]

        foreign = tokens.new(["admin"], "other")
        monkeypatch.setenv("BAROGRAPH_TOKEN", foreign)
        assert main(["push", "two", "--to", server]) == 1
        assert main(["pull", f"{server}/my%20lab/two", "--dir", str(tmp_path / "pulled")]) == 1
        assert "token does not grant" in capsys.readouterr().err
        monkeypatch.setenv("BAROGRAPH_TOKEN", tokens.new(["read"], "my lab"))
        assert main(["pull", f"{server}/my%20lab/two", "--dir", str(tmp_path / "pulled")]) == 0
        assert contents(tmp_path / "pulled" / "my lab" / "two") == contents(copy)
