"""The files of examples/deploy start commands that exist, and systemd accepts its unit."""

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from barograph.apps.cli import build_parser

DEPLOY = Path(__file__).parents[1] / "examples" / "deploy"


def unit() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(interpolation=None, strict=False)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read(DEPLOY / "barograph.service")
    return parsed


def commands() -> list[list[str]]:
    """Return the arguments of barograph in each file."""
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    described = "".join(path.read_text() for path in DEPLOY.iterdir())
    return [
        unit()["Service"]["ExecStart"].split()[1:],
        json.loads(re.search(r"^CMD (.*)$", dockerfile, re.MULTILINE)[1]),  # type: ignore[index]
        compose["services"]["barograph"]["command"],
        *(line.split() for line in re.findall(r"barograph (token new .*)$", described, re.MULTILINE)),
    ]


def test_every_command_has_arguments_that_barograph_takes():
    """Those of the unit, the image and the compose file, and the tokens in their comments."""
    found = commands()
    assert [arguments[0] for arguments in found] == ["up", "up", "up", "token", "token"]
    for arguments in found:
        options = build_parser([arguments[0]]).parse_args(arguments)
        assert arguments[0] == "token" or options.ingest


def test_systemd_accepts_the_unit(tmp_path: Path):
    """With a command that is on this machine."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / "barograph.service"
    copy.write_text((DEPLOY / "barograph.service").read_text().replace("/opt/barograph/bin/barograph", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if "barograph.service" in line] == []
