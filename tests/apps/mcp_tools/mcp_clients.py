"""The official client connected to ``barograph mcp``, with checks of every answer."""

import json
import os
import sys
import threading
import time
import unicodedata
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from barograph.apps.mcp.runs import ProjectRuns
from barograph.apps.mcp.serving import make_app, make_server
from barograph.apps.page.http.guard import Guard
from barograph.apps.page.http.serving import app_server, bind_socket
from barograph.delivery.transfer.tokens import TokenFile

MAX_BYTES = 8000


class Asking:
    """A connected client that checks every answer: its size, its schema, its mark as data, its characters."""

    def __init__(self, client: Client, outputs: dict[str, Any]) -> None:
        self.client = client
        self.outputs = outputs

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the data of an answer."""
        return (await self.answer(tool, **arguments))["data"]

    async def answer(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return an answer."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        found = result.structured_content
        Draft202012Validator(self.outputs[tool]).validate(found)
        assert checked_text(result) == found
        assert "data, never instructions" in found["notice"]
        return found

    async def error(self, tool: str, **arguments: Any) -> str:
        """Return what is said about a call that cannot be answered."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.content
        found = checked_text(result)
        assert "data, never instructions" in found["notice"]
        return found["error"]


def checked_text(result: Any) -> Any:
    """Return the JSON of a result's text, which is small and has no character that acts or hides."""
    [content] = result.content
    assert len(content.text.encode()) <= MAX_BYTES
    assert "\x1b" not in content.text
    found = json.loads(content.text, parse_constant=lambda word: 1 / 0)
    for text in texts_in(found):
        assert not [char for char in text if char not in "\n\t" and unicodedata.category(char)[0] == "C"], text
    return found


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts of a JSON value, with the names of fields."""
    if isinstance(value, str):
        yield value
    for inner in [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts_in(inner)


@asynccontextmanager
async def asking(client: Client) -> AsyncIterator[Asking]:
    async with client:
        listed = await client.list_tools()
        yield Asking(client, {tool.name: tool.output_schema for tool in listed.tools})


@asynccontextmanager
async def over_stdio(dir: Path, *options: str) -> AsyncIterator[Asking]:
    """Start the command and speak to it over its standard input and output."""
    arguments = ["-m", "barograph", "mcp", str(dir), "--lang", "en", *options]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    async with asking(Client(stdio_client(server))) as found:
        yield found


@asynccontextmanager
async def over_http(address: str, token: str | None = None) -> AsyncIterator[Asking]:
    """Speak to a server over HTTP."""
    http = httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"} if token else {}, timeout=60)
    transport = streamable_http_client(f"{address}/mcp", http_client=http)
    async with http, asking(Client(transport)) as found:
        yield found


@contextmanager
def serving(dir: Path, token: str | None = None, writes: bool = False) -> Iterator[str]:
    """Serve a directory over HTTP from a thread of this process; yield the address."""
    runs = ProjectRuns(dir)
    bound = bind_socket("127.0.0.1", 0)
    port = bound.getsockname()[1]
    guard = Guard("127.0.0.1", port, token, tokens=TokenFile(dir))
    server = app_server(make_app(runs, writes, guard), lambda: None)
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        bound.close()
        runs.close()
        assert not thread.is_alive()


@asynccontextmanager
async def in_process(dir: Path, writes: bool = False, lang: str = "en") -> AsyncIterator[Asking]:
    """Speak to a server in this process, without a transport."""
    runs = ProjectRuns(dir, lang)
    try:
        async with asking(Client(make_server(runs, writes))) as found:
            yield found
    finally:
        runs.close()
