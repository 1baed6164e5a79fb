"""docs/for-agents.md and llms.txt: what they say runs, and what they name exists."""

import argparse
import json
import random
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph.apps.cli import build_parser, main
from barograph.apps.mcp.serving import tools

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "for-agents.md").read_text()
LINK = "https://github.com/barograph-rl/barograph/"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[list[str]]:
    """Return the lines that call barograph, without their comments."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("barograph ")]


def test_the_lines_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The loop makes a run that the doctor calls healthy, and every command and the Python lines read it."""
    monkeypatch.chdir(tmp_path)
    random.seed(0)
    np.random.seed(0)
    names: dict[str, Any] = {}
    writing, reading = blocks("python")
    exec(writing, names)
    exec(reading, names)
    assert capsys.readouterr().out.splitlines() == ["finished (0, 39) 1e-06", "healthy []"]
    assert [len(sample.prompt) for sample in names["worst"]] == [6, 6, 6]
    for arguments in commands():
        if arguments[0] == "mcp":
            assert isinstance(build_parser(["mcp"]).parse_args(arguments), argparse.Namespace)
            continue
        assert main(arguments) == 0, arguments
        out = capsys.readouterr().out
        for text in out.splitlines() if arguments[0] == "samples" else [out] if "--json" in arguments else []:
            json.loads(text)
    assert (tmp_path / "run.csv").exists()


def test_the_page_lists_every_tool():
    """Those that only read in the table, the others below it."""
    reading, writing = PAGE.split("### Write")
    listed = {
        name for row in re.findall(r"^\| (`.*?) \|", reading, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    every = tools(writes=True)
    assert {name for name in listed if name in every} == {name for name, tool in every.items() if not tool.writes}
    assert all(f"`{name}`" in writing for name, tool in every.items() if tool.writes)


def test_the_configuration_of_clients_is_json():
    """It names the command."""
    [block] = blocks("json")
    assert json.loads(block)["mcpServers"]["barograph"]["command"] == "barograph"


def test_llms_txt_is_in_its_format_and_links_to_files():
    """A title, a summary, then lists of links; each leads to a file of the repository."""
    text = (ROOT / "llms.txt").read_text()
    title, _, summary = text.splitlines()[:3]
    assert (title, summary[:2]) == ("# barograph", "> ")
    links = re.findall(r"\]\((.*?)\)", text)
    assert f"{LINK}blob/main/docs/for-agents.md" in links
    assert [link for link in links if not link.startswith(LINK)] == []
    paths = [link.removeprefix(LINK).split("/main/", 1)[1] for link in links]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    for section in text.split("\n## ")[1:]:
        assert all(line.startswith("- [") for line in section.splitlines()[1:] if line), section
