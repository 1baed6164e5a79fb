"""The Findings view's data, the marks of charts, and the findings in a report."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving_runs import Serve
from sick_runs import ONSET, log_step, record

import barograph
from barograph.answers import open_run
from barograph.answers.open_run import OpenRun, RunLocation
from barograph.answers.reports.embedded import report_data
from barograph.answers.views.overview import findings_view


def fetch(serve: Serve, run: str = "sick", view: str = "findings") -> Any:
    return serve().get(f"/api/runs/{run}/{view}").json()


def test_findings_have_their_charts_and_what_was_checked(serve: Serve):
    """Open and past findings in both languages, a chart for each piece of evidence, and notes with reasons."""
    record("sick")
    found = fetch(serve)
    assert found["health"] == {"word": "bad", "verdict": {"en": "sick", "zh": "异常"}, "reasons": []}
    [now], [past] = found["findings"], found["past"]
    assert (now["rule"], now["severity"], now["onset"], now["last"], now["is_open"]) == (
        "nonfinite", "critical", ONSET, 59, True,
    )  # fmt: skip
    assert (past["rule"], past["onset"], past["last"], past["is_open"]) == ("truncation", 0, 23, False)
    assert now["advice"][0]["zh"] != now["advice"][0]["en"]
    chart = found["charts"]["actor/grad_norm"]
    assert (chart["main"], chart["metric"]) == ("actor/grad_norm", "policy/grad_norm")
    assert found["metrics"]["policy/grad_norm"]["title"]["en"]
    assert {"entropy_collapse", "length_explosion"} <= {note["rule"] for note in found["fine"]}
    assert all(note["text"]["en"] and note["text"]["zh"] and note["title"]["zh"] for note in found["unmeasured"])


def test_marks_are_on_every_axis(serve: Serve):
    """A mark has the place of the first and of the last step of its finding on each axis that the run has."""
    record("sick")
    found = fetch(serve)
    marks = {(mark["rule"], mark["onset"]): mark for mark in found["marks"]}
    assert set(marks) == {("truncation", 0), ("nonfinite", ONSET)}
    assert found["axes"] == ["step", "time", "relative", "tokens"]
    over = marks["truncation", 0]
    assert [over["from"]["step"], over["to"]["step"]] == [0, 23]
    assert [over["from"]["tokens"], over["to"]["tokens"]] == [1000, 24000]
    assert 0 <= over["from"]["relative"] <= over["to"]["relative"] < over["from"]["time"]
    assert fetch(serve, view="overview")["marks"] == found["marks"]


def test_moments_are_on_every_axis(serve: Serve):
    """Annotations and the like have their place on each axis, and are in the overview too."""
    run = barograph.init(id="noted")
    for step in range(4):
        run.log({"loss": 1.0, "tokens": 100.0 * step}, step=step)
    run.annotate("new data mix", step=2)
    run.finish()
    found = fetch(serve, "noted")
    [moment] = found["moments"]
    assert (moment["kind"], moment["step"], moment["text"]) == ("annotation", 2, "new data mix")
    assert (moment["from"]["step"], set(moment["from"])) == (2, set(found["axes"]))
    assert fetch(serve, "noted", "overview")["moments"] == found["moments"]


def test_a_healthy_run_has_no_marks(serve: Serve):
    """Nothing is found, and what was looked at is listed."""
    record("well", is_sick=False)
    found = fetch(serve, "well")
    assert found["health"]["word"] == "good"
    assert (found["findings"], found["past"], found["marks"], found["charts"]) == ([], [], [], {})
    overview = fetch(serve, "well", "overview")
    assert overview["checked"] == {"fine": len(found["fine"]), "unmeasured": len(found["unmeasured"])}


def test_a_run_without_steps_cannot_be_judged(serve: Serve):
    """The verdict says so, with the reason."""
    barograph.init(id="empty").finish()
    found = fetch(serve, "empty")
    assert found["health"]["word"] == "unknown"
    assert found["health"]["reasons"][0]["en"] == "no reward is logged"
    assert found["steps"] is None


def test_findings_follow_the_run(serve: Serve):
    """Every answer is about the run as it is: the last step of a run has no event after it."""
    run = barograph.init(id="live", project="p")
    for step in range(ONSET):
        log_step(run, step)
    client = serve()
    before = client.get("/api/runs/live/findings").json()
    assert before["findings"] == []
    for step in range(ONSET, ONSET + 5):
        log_step(run, step)
    run.finish()
    after = client.get("/api/runs/live/findings").json()
    assert [(one["rule"], one["onset"], one["last"]) for one in after["findings"]] == [("nonfinite", ONSET, ONSET + 4)]
    assert client.get("/api/runs/live/overview").json()["health"]["word"] == "bad"


def test_a_run_that_goes_on_is_judged_again_as_time_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """That nothing is logged any more may be a finding; one that has ended is judged once."""
    run = barograph.init(id="quiet", dir=tmp_path)
    run.log({"a": 1.0}, step=0)
    opened = OpenRun(RunLocation("quiet", Path(run.path)))
    assert opened.diagnosis() is opened.diagnosis()
    monkeypatch.setattr(open_run, "SILENT_SECONDS", -1.0)
    assert opened.diagnosis() is not opened.diagnosis()
    run.finish()
    opened.refresh()
    assert opened.diagnosis() is opened.diagnosis()


def test_evidence_that_is_no_logged_name_has_no_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its mark is on the axis of steps."""
    opened = OpenRun(RunLocation("sick", Path(record("sick").path)))
    diagnosis = opened.diagnosis()
    finding = replace(diagnosis.findings[0], name="pulse", evidence=("pulse",))
    monkeypatch.setattr(opened, "diagnosis", lambda: replace(diagnosis, findings=(finding,), past=()))
    found = findings_view(opened)
    assert found["charts"] == {}
    assert found["marks"][0]["from"] == {"step": ONSET}


def test_a_report_has_the_findings():
    """As the page has them."""
    record("sick")
    data = report_data(barograph.open("sick"))
    assert data["findings"]["findings"][0]["rule"] == "nonfinite"
    assert data["findings"]["marks"] == data["overview"]["marks"]
