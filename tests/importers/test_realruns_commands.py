"""Every command opens every real log. Tests find them through ``BAROGRAPH_REALRUNS``; without them they are skipped."""

import json
import os
from pathlib import Path

import pytest

from barograph.apps.cli import main
from barograph.importers.opening import open_run

FOLDER = Path(os.environ.get("BAROGRAPH_REALRUNS") or Path(__file__).parents[3] / "shared" / "realruns")
OTHER = ("README.md", "truth.json", "series.csv")
LOGS = sorted(path for path in FOLDER.glob("*/*") if path.name not in OTHER)


@pytest.mark.skipif(not LOGS, reason="there are no real logs")
@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.parent.name)
def test_every_command_opens_every_real_log(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """With no error; an imported copy has the same values as the log."""
    name = open_run(log).names()[0]
    capsys.readouterr()
    for command in (
        ("show",), ("show", "--json"), ("export", "--to", "csv"), ("report", "-o", "r.html"), ("phases",),
        ("tail", "--no-follow", "--json"), ("samples", "--json"), ("names", "--json"), ("ls", "--json"),
    ):  # fmt: skip
        arguments = [str(tmp_path / one) if one == "r.html" else one for one in command[1:]]
        assert main([command[0], str(log), *arguments]) == 0, command
        assert capsys.readouterr().out or command[0] in ("report", "samples"), command
    assert main(["explain", name, "--run", str(log), "--json"]) in (0, 1)  # 1: a name that barograph does not know
    capsys.readouterr()
    assert main(["import", str(log), "--to", str(tmp_path / "kept")]) == 0
    capsys.readouterr()
    assert main(["ls", "--json", "--dir", str(tmp_path / "kept")]) == 0
    [kept] = json.loads(capsys.readouterr().out)
    copy, view = open_run(kept["path"]), open_run(log)
    assert copy.names() == view.names()
    for one in view.names():
        assert copy.series(one).steps.tolist() == view.series(one).steps.tolist()
        assert copy.series(one).values.tobytes() == view.series(one).values.tobytes()


@pytest.mark.skipif(not LOGS, reason="there are no real logs")
def test_the_real_logs_are_a_list(capsys: pytest.CaptureFixture[str]):
    """Each of them, and none is unreadable or running: their files are copies."""
    assert main(["ls", str(FOLDER), "--json"]) == 0
    listed = {record["path"]: record for record in json.loads(capsys.readouterr().out)}
    places = {log.parent if "tfevents" in log.name else log for log in LOGS}
    assert {str(place) for place in places} <= set(listed)
    assert {record["status"] for record in listed.values()} <= {"finished", "crashed", "killed"}
