"""An investigation of a sick demo run with the official MCP client, over standard input and output and over HTTP."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp_clients import Asking, over_http, over_stdio, serving

from barograph.apps.cli import main
from barograph.apps.demo.config import DemoConfig, sick_config
from barograph.apps.demo.trainer import start_runs, train
from barograph.apps.page.http.serving import bind_socket
from barograph.delivery.transfer.tokens import TokenFile

SMALL = {
    "steps": 20, "tasks": 8, "runs": 4, "hidden": 16, "maps": 32, "validation_maps": 4, "epochs": 2,
    "actor_lr": 8e-4, "validate_every": 10, "save_every": 50,
}  # fmt: skip
TOKEN = "the-token"


@pytest.fixture(scope="module")
def dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a healthy and a sick demo run."""
    dir = tmp_path_factory.mktemp("runs")
    for name in ("healthy", "nan"):
        config = DemoConfig().changed(SMALL)
        config = sick_config(config, name) if name == "nan" else config
        trainer, explorer = start_runs(config, dir=dir, name=name)
        with trainer, explorer:
            train(config, trainer, explorer)
    return dir


async def investigate(asking: Asking) -> None:
    """List runs, find the sick one, and follow its finding down to samples and to what differs from a healthy run."""
    assert (await asking.ask("list_runs"))["total"] == 2
    [sick] = (await asking.ask("list_runs", verdict="sick"))["runs"]
    assert sick["name"] == "nan"
    summary = await asking.answer("run_summary", run=sick["run"])
    assert len(str(summary)) < 4000  # a few hundred tokens
    said = summary["data"]
    assert (said["verdict"], said["status"], said["steps"]) == ("sick", "finished", [0, 19])
    [finding, *_] = (await asking.ask("run_findings", run="nan"))["findings"]
    assert (finding["rule"], finding["severity"]) == ("nonfinite", "critical")
    assert finding["advice"]
    assert finding["since"] == said["findings"][0]["since"]

    series = (await asking.ask("get_series", run="nan", metrics=finding["evidence"][:2], points=5))["series"]
    assert series[0]["nonfinite"] > 0
    assert series[0]["columns"] == ["first_step", "last_step", "min", "max", "last"]
    assert len(series[0]["rows"]) <= 5
    [whole] = (await asking.ask("get_series", run="nan", metrics=[series[0]["name"]], points=20))["series"]
    assert {step for step, value in whole["rows"] if isinstance(value, str)} >= {finding["since"]}

    samples = await asking.ask("find_samples", run="nan", first_step=finding["since"], sort="reward", limit=2)
    assert [len(one["turns"]) for one in samples["samples"]] == [2, 2]
    assert all(one["step"] >= finding["since"] for one in samples["samples"])
    sample = await asking.ask("get_sample", run="nan", place=samples["samples"][0]["place"])
    assert sample["turns"][0]["role"] == "prompt"

    compared = await asking.ask("compare_runs", runs=["healthy", "nan"])
    assert {one["name"]: one["verdict"] for one in compared["runs"]} == {"healthy": "healthy", "nan": "sick"}
    assert "demo.normalise" in {one["key"] for one in compared["config"]}
    explained = await asking.ask("explain_metric", name=series[0]["name"], run="nan")
    assert explained["known"]
    phases = (await asking.ask("run_phases", run="nan"))["phases"]
    assert "actor_train/train_step" in {one["name"] for one in phases}
    timeline = await asking.ask("run_phases", run="nan", step=3)
    assert timeline["step"]["step"] == 3
    assert (await asking.ask("query_run", run="nan", expression="verdict = sick and step = 19"))["answer"] is True
    assert (await asking.ask("wait_for", run="nan", step=1000))["reached"] == "end"


def test_an_investigation_over_standard_input_and_output(dir: Path):
    """The command is started by the client; the tools only read, and say so."""

    async def check() -> None:
        async with over_stdio(dir) as asking:
            await investigate(asking)
            tools = (await asking.client.list_tools()).tools
            assert all(tool.annotations.read_only_hint and tool.title and tool.description for tool in tools)
            assert "--write" in await asking.error("stop_run", run="nan", reason="it is sick")

    anyio.run(check)


@pytest.fixture(scope="module")
def address(dir: Path) -> Iterator[str]:
    """Return the address of a server that may write."""
    with serving(dir, TOKEN, writes=True) as address:
        yield address


def test_an_investigation_over_http(dir: Path, address: str):
    """With the token in a header; without it, from another site or under another name nothing is answered."""

    async def check() -> None:
        async with over_http(address, TOKEN) as asking:
            await investigate(asking)

    anyio.run(check)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    bearer = {"authorization": f"Bearer {TOKEN}"}
    with httpx2.Client(base_url=address, headers={"accept": "application/json, text/event-stream"}) as http:
        for headers, status in (
            ({}, 401),
            ({"authorization": "Bearer other"}, 401),
            ({**bearer, "host": "evil.example"}, 421),
            ({**bearer, "origin": "http://evil.example"}, 403),
            ({**bearer, "content-type": "text/plain"}, 403),
        ):
            response = http.post("/mcp", json=call, headers=headers)
            assert (response.status_code, "error" in response.json()) == (status, True)


def test_a_token_of_a_project_sees_its_runs_only(dir: Path, address: str):
    """It reads what it is for, and writes only with that right; nobody uses the session of another."""
    file = TokenFile(dir)
    reading, other, writing = file.new(["read"], "demo"), file.new(["read"], "other"), file.new(["write"], "demo")

    async def check() -> None:
        async with over_http(address, reading) as asking:
            assert (await asking.ask("list_runs"))["total"] == 2
            assert "set_note" not in asking.outputs
            assert "a token that may" in await asking.error("set_note", run="nan", note="x")
        async with over_http(address, other) as asking:
            assert (await asking.ask("list_runs"))["total"] == 0
            assert "no run 'nan'" in await asking.error("run_summary", run="nan")
        async with over_http(address, writing) as asking:
            assert "right to read" in await asking.error("run_summary", run="nan")
        async with over_http(address, file.new(["admin"], "demo")) as asking:
            assert (await asking.ask("set_note", run="nan", note="seen"))["note"] == "seen"

    anyio.run(check)
    start = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }  # fmt: skip
    with httpx2.Client(base_url=address, headers={"accept": "application/json, text/event-stream"}) as http:
        opened = http.post("/mcp", json=start, headers={"authorization": f"Bearer {reading}"})
        session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
        statuses = [
            http.post("/mcp", json=call, headers={"authorization": f"Bearer {token}", **session}).status_code
            for token in (reading, other)
        ]
        assert statuses == [200, 404]


def test_the_command_serves_over_http_until_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """It prints the address and the header; a port that is in use is an error with another one."""
    monkeypatch.setenv("BAROGRAPH_TOKEN", TOKEN)
    bound = bind_socket("127.0.0.1", 0)
    port = bound.getsockname()[1]
    assert main(["mcp", str(tmp_path), "--http", "--port", str(port)]) == 1
    assert f"port {port} is in use: try  barograph mcp --http --port" in capsys.readouterr().err
    bound.close()
    statuses = []

    def ask() -> None:
        while not statuses:
            with suppress(httpx2.ConnectError):
                statuses.append(httpx2.post(f"http://127.0.0.1:{port}/mcp", json={}).status_code)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=ask)
    thread.start()
    assert main(["mcp", str(tmp_path), "--http", "--port", str(port)]) == 0
    thread.join()
    assert statuses == [401]
    out = capsys.readouterr().out
    assert f"serving {tmp_path} at http://127.0.0.1:{port}/mcp  (stop with Ctrl-C)" in out
    assert f"Authorization: Bearer {TOKEN}" in out
