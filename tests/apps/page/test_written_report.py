"""Reports of several runs with notes, through the API and the command line."""

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving_runs import serving
from sweep_runs import make_two_settings

import barograph
from barograph.answers.open_run import GivenRuns, OpenRun
from barograph.answers.reports.written import MAX_BLOCKS, MAX_TEXT, written_report
from barograph.apps.cli import main
from barograph.base.errors import RequestError

NOTES = """\
# Two settings

```runs
lr1e-05*, lr3e-05*
columns: actor.lr, seed, validation
```

```chart
reward
```

```chart
actor/entropy_loss, nonsense
runs: lr1e-05-clip0.2-s0, nobody
by: none
y: 0 to 1
steps: 4.5 to 11.5
smooth: much
scale: log
```
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with two settings of three seeds each."""
    return make_two_settings(tmp_path_factory.mktemp("runs"), 3)


@pytest.fixture(scope="module")
def client(runs: Path) -> Iterator[httpx.Client]:
    """Return a client of a server of the runs."""
    with serving(runs) as client:
        yield client


def embedded(file: Path) -> dict[str, Any]:
    """Return the data in a report file."""
    text = file.read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(re.search(r'id="report-data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    return found


def test_charts_are_of_groups_and_of_single_runs(client: httpx.Client):
    """Seeds are one group; names and patterns choose runs, and what is not understood is told in its place."""
    report = client.post("/api/report", json={"text": NOTES}).json()
    title, runs, grouped, single = report["blocks"]
    assert (report["title"], title["kind"], runs["kind"]) == ("Two settings", "note", "runs")
    assert [len(group["keys"]) for group in runs["groups"]] == [3, 3]
    assert sorted(group["label"][0] for group in runs["groups"]) == [["actor.lr", 1e-5], ["actor.lr", 3e-5]]
    rate, seed, validation = runs["rows"][0]
    assert (rate["same"], seed["mean"][0], validation["mean"][3]) == (1e-5, 1.0, 3)
    assert grouped["charts"][0]["metric"] == "reward/score/mean"
    assert len(grouped["charts"][0]["lines"]) == 6
    assert (grouped["groups"], grouped["problems"]) == (runs["groups"], [])
    assert single["groups"] is None
    assert single["runs"] == ["lr1e-05-clip0.2-s0"]
    assert single["panel"] == {
        "metrics": ["actor/entropy_loss"], "low": 0.0, "high": 1.0, "from": 4, "to": 12, "log": True,
    }  # fmt: skip
    assert [problem["en"] for problem in single["problems"]] == [
        "no run is called 'nobody'",
        "none of the runs has 'nonsense'",
        "smooth: expected 0 … 0.99; got 'much'",
    ]


def test_reports_are_kept_beside_the_runs(client: httpx.Client, runs: Path):
    """A second server has them too; the answer to a change has what was there before, so that it can be undone."""
    saved = client.post("/api/reports", json={"name": "one", "text": NOTES}).json()
    assert ([one["name"] for one in saved["reports"]], saved["before"]) == (["one"], None)
    with serving(runs) as other:
        assert other.post("/api/report", json={"name": "one"}).json()["title"] == "Two settings"
        assert other.post("/api/reports", json={"name": "one", "text": None}).json()["before"] == NOTES
    assert client.get("/api/reports").json() == {"reports": []}
    gone = client.post("/api/report", json={"name": "one"})
    assert (gone.status_code, gone.json()["error"]) == (404, "no report 'one'; /api/reports lists them")


def test_a_draft_has_the_runs_and_their_first_charts(client: httpx.Client):
    """It names the runs, so that it shows the same when others are selected."""
    draft = client.post("/api/report", json={"name": "N", "draft": True, "runs": ["lr1e-05-clip0.2-s0"]}).json()
    assert [block["kind"] for block in draft["blocks"]] == ["note", "runs", "chart", "chart", "chart", "chart"]
    assert draft["text"].startswith("# N\n\n```runs\nlr1e-05-clip0.2-s0\n```\n\n```chart\nreward\n```")
    assert not any(block["problems"] for block in draft["blocks"])


def test_limits_are_told(client: httpx.Client):
    """Of the text, of its parts, and of the name."""
    wordy = client.post("/api/report", json={"text": "x" * (MAX_TEXT + 1)})
    many = client.post("/api/report", json={"text": "```runs\n```\n" * (MAX_BLOCKS + 1)})
    nameless = client.post("/api/reports", json={"name": " ", "text": "x"})
    runs = [f"lr{rate}-clip0.2-s{seed}" for rate in ("1e-05", "3e-05") for seed in range(3)]
    subsets = (", ".join(run for place, run in enumerate(runs) if number >> place & 1) for number in range(1, 50))
    varied = client.post(
        "/api/report", json={"text": "\n".join(f"```chart\nreward\nruns: {one}\n```" for one in subsets)}
    )
    assert (wordy.status_code, many.status_code, nameless.status_code, varied.status_code) == (400, 413, 400, 413)
    assert f"at most {MAX_BLOCKS} are read" in many.json()["error"]


def test_a_run_that_cannot_be_read_is_told(runs: Path):
    """And the others are drawn."""

    class OneGone(GivenRuns):
        def use(self, key: str) -> AbstractContextManager[OpenRun]:
            if key == "gone":
                raise RequestError(404, "run gone cannot be read: its directory was removed")
            return super().use(key)

    view = barograph.open(next(runs.glob("*/lr1e-05-clip0.2-s0")))
    given = OneGone({"here": view})
    report = written_report("```chart\nreward\n```", given, {"here": "a", "gone": "b"}, ["gone", "here"])
    (chart,) = report["blocks"]
    assert [run["key"] for run in report["runs"]] == chart["runs"] == ["here"]
    assert [problem["en"] for problem in chart["problems"]] == ["run gone cannot be read: its directory was removed"]


def test_the_file_has_the_curves_of_its_charts(client: httpx.Client):
    """The means of groups and single series, these of the steps that are shown; the words are text in the file."""
    hostile = f"{NOTES}\n</script><script>alert(1)</script>\n"
    answer = client.post("/api/report_file", json={"text": hostile})
    assert answer.headers["content-type"] == "application/octet-stream"  # no page of this server
    assert answer.text.count("</script>") == 5  # data, three libraries, and the page's modules
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', answer.text, re.DOTALL)[1])  # type: ignore[index]
    assert [(len(band["members"]), len(band["x"]), len(band["runs"])) for band in data["bands"]] == [(3, 24, 3)] * 2
    (series,) = data["series"]
    assert (series["x"], series["ends"]) == (list(range(4, 13)), [4, 12])


def test_the_command_writes_notes_and_charts(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Of all runs of a directory; what is wrong in the notes is printed with its line, and the file is written."""
    notes, file = tmp_path / "notes.md", tmp_path / "report.html"
    notes.write_text(NOTES.replace("lr1e-05*, lr3e-05*\n", ""), encoding="utf-8")
    assert main(["report", str(runs), "--notes", str(notes), "-o", str(file)]) == 0
    printed = capsys.readouterr().err
    assert f"{notes}, line 11: none of the runs has 'nonsense'" in printed
    data = embedded(file)
    assert (data["title"], len(data["runs"]), len(data["bands"])) == ("Two settings", 6, 2)


def test_without_notes_the_command_draws_the_headlines(runs: Path, tmp_path: Path):
    """Several runs are compared, seeds as one line; a single run is the whole report that it always was."""
    several, single = tmp_path / "several.html", tmp_path / "single.html"
    assert main(["report", str(runs), "-o", str(several), "--title", "A sweep"]) == 0
    data = embedded(several)
    assert data["title"] == "A sweep"
    assert [block["wanted"]["metrics"] for block in data["blocks"][2:5]] == [["reward"], ["validation"], ["kl_now"]]
    (run, *_) = sorted(runs.glob("*/lr*"))
    assert main(["report", str(run), "-o", str(single)]) == 0
    assert "blocks" not in embedded(single)


def test_notes_that_cannot_be_read_are_told(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """With the file, before anything is written."""
    assert main(["report", str(runs), "--notes", "/no/notes.md", "-o", str(tmp_path / "r.html")]) == 1
    assert "cannot read the notes: [Errno 2] No such file or directory: '/no/notes.md'" in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()
