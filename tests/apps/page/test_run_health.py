"""The doctor's verdicts in the list of runs: only of what is shown, kept, and never older than they say."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from serving_runs import copy_run, eventually
from sick_runs import ONSET, log_step, record

import barograph
from barograph.answers.open_run import RunLocation
from barograph.answers.runs import open_runs as health
from barograph.answers.runs.listing import RunDirectory
from barograph.answers.runs.table import ListQuery
from barograph.base.errors import JournalError
from barograph.diagnosis import health as diagnosis_health
from barograph.diagnosis.client import WatchOptions
from barograph.diagnosis.diagnose import Visit
from barograph.diagnosis.watch import Watch
from barograph.journal.directory import DirectoryIndex
from barograph.journal.view import View

NO_FINDINGS = {"step": 1, "findings": 0, "first": None}


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the runs that are judged."""
    found: list[str] = []
    diagnose = Visit.diagnose
    monkeypatch.setattr(
        Visit, "diagnose", lambda visit, view, *names: (found.append(view.id), diagnose(visit, view, *names))[1]
    )
    return found


def shown(directory: RunDirectory, **query: Any) -> dict[str, Any]:
    """Return the verdicts on a page of the list, when its thread has ended."""
    directory.listing.view(None, ListQuery(**query))
    if directory.listing._thread is not None:
        directory.listing._thread.join()
    return {run["key"]: run["health"] for run in directory.listing.view(None, ListQuery(**query))["runs"]}


def test_the_list_has_the_verdict_of_each_run(tmp_path: Path):
    """With the step it is of, the number of findings and the first one."""
    record("sick")
    record("well", is_sick=False)
    directory = RunDirectory(tmp_path / "runs")
    found = shown(directory)
    title = {"en": "NaN or infinity", "zh": "NaN 或无穷"}
    first = {"rule": "nonfinite", "onset": ONSET, "title": title}
    assert found["sick"] == {
        "verdict": "sick", "word": "bad", "step": 59, "findings": 1, "first": first, "is_current": True,
    }  # fmt: skip
    assert found["well"] == {
        "verdict": "healthy", "word": "good", "step": 59, "findings": 0, "first": None, "is_current": True,
    }  # fmt: skip
    directory.close()


def test_only_runs_on_the_page_that_is_shown_are_judged(tmp_path: Path, judged: list[str]):
    """Each once, however often the list is asked for; of the others it is not known."""
    first = Path(record("r0", steps=30).path)
    for number in range(1, 6):
        copy_run(first, number, f"r{number}")
    directory = RunDirectory(tmp_path / "runs")
    found = shown(directory, sort="name", limit=2)
    assert all(found.values())
    assert shown(directory, sort="name", limit=2) == found
    assert sorted(judged) == ["r0", "r1"]
    assert {run["key"]: run["health"] for run in directory.listing.view(None, ListQuery())["runs"]}["r5"] is None
    directory.close()


def test_the_next_server_judges_nothing_again(tmp_path: Path, judged: list[str]):
    """The index has the verdicts on runs that have ended, for the files as they are."""
    record("sick")
    first = RunDirectory(tmp_path / "runs")
    found = shown(first)
    first.close()
    judged.clear()
    second = RunDirectory(tmp_path / "runs")
    assert shown(second) == found
    assert judged == []
    second.close()


@pytest.mark.parametrize("wrong", [None, {}, {"verdict": "sick"}, {**NO_FINDINGS, "verdict": "odd"}])
def test_an_entry_that_is_no_verdict_is_not_used(tmp_path: Path, wrong: object):
    """Whoever wrote it with a correct checksum."""
    record("sick")
    first = RunDirectory(tmp_path / "runs")
    found = shown(first)
    first.close()
    index = DirectoryIndex(tmp_path / "runs", diagnosis_health.KIND)
    index.save({run: (digest, wrong) for run, (digest, _) in index.load().items()})
    second = RunDirectory(tmp_path / "runs")
    assert shown(second) == found
    second.close()


def test_a_verdict_on_older_files_is_not_current(tmp_path: Path):
    """It says so until the run is judged again, and an index does not keep it."""
    run = barograph.init(id="live", project="p")
    for step in range(ONSET):
        log_step(run, step)
    directory = RunDirectory(tmp_path / "runs")
    before = shown(directory)["live"]
    assert (before["verdict"], before["step"], before["is_current"]) == ("healthy", ONSET - 1, True)
    for step in range(ONSET, ONSET + 8):
        log_step(run, step)
    after = eventually(lambda: (row := shown(directory)["live"])["is_current"] is False and row)
    assert (after["verdict"], after["step"]) == ("healthy", ONSET - 1)
    assert DirectoryIndex(tmp_path / "runs", diagnosis_health.KIND).load() == {}
    run.finish()
    directory.close()


def test_a_run_that_goes_on_is_judged_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where it logs nothing, since that may be a finding."""
    run = barograph.init(id="live", project="p")
    for step in range(ONSET):
        log_step(run, step)
    directory = RunDirectory(tmp_path / "runs")
    shown(directory)
    [listed] = directory.listing._runs.values()
    judged_at = listed.judged_at
    assert shown(directory)["live"]
    assert listed.judged_at == judged_at
    monkeypatch.setattr(health, "JUDGE_SECONDS", -1.0)
    assert directory.listing._health.is_due(listed)
    for step in range(ONSET, ONSET + 8):
        log_step(run, step)
    run.finish()
    eventually(lambda: (row := shown(directory)["live"])["verdict"] == "sick" and row["is_current"])
    assert not directory.listing._health.is_due(listed)
    directory.close()


def test_what_a_doctor_beside_the_training_has_said_is_shown(tmp_path: Path, judged: list[str]):
    """The run is not read for it."""
    run = barograph.init(id="live", project="p")
    for step in range(ONSET + 8):
        log_step(run, step)
    Watch(run.path, WatchOptions()).look()
    judged.clear()
    directory = RunDirectory(tmp_path / "runs")
    found = shown(directory)["live"]
    assert (found["verdict"], found["step"], found["findings"], found["is_current"]) == ("sick", ONSET + 7, 1, True)
    assert judged == []
    run.finish()
    directory.close()


def test_another_meaning_of_the_names_is_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By the file that describes names, or by the source that a person has chosen."""
    monkeypatch.setattr(health, "NAMES_SECONDS", -1.0)
    record("sick")
    directory = RunDirectory(tmp_path / "runs")
    shown(directory)
    [listed] = directory.listing._runs.values()
    assert not directory.listing._health.is_due(listed)
    names = tmp_path / "runs" / "names.yaml"
    names.write_text("actor/grad_norm: {about: mine}\n")
    assert directory.listing._health.is_due(listed)
    shown(directory)
    assert not directory.listing._health.is_due(listed)
    directory.annotations.set("sick", {"source": "trl"})
    directory.listing.view()
    eventually(lambda: listed.health_basis is not None and listed.health_basis[1] == "trl")
    directory.close()


def test_a_run_that_cannot_be_read_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its health is not known, and the others are judged."""
    record("sick")
    record("broken")
    opened = RunLocation.open

    def open_or_fail(location: RunLocation) -> View:
        if location.key == "broken":
            raise JournalError("it cannot be read")
        return opened(location)

    monkeypatch.setattr(RunLocation, "open", open_or_fail)
    directory = RunDirectory(tmp_path / "runs")
    found = shown(directory)
    assert found["sick"]["verdict"] == "sick"
    assert found["broken"] is None
    assert not any(directory.listing._to_judge())
    directory.close()


def test_a_removed_run_leaves_the_index(tmp_path: Path):
    """When the index is written next."""
    gone = record("gone", steps=30)
    first = RunDirectory(tmp_path / "runs")
    shown(first)
    first.close()
    shutil.rmtree(gone.path)
    record("sick")
    second = RunDirectory(tmp_path / "runs")
    shown(second)
    second.close()
    assert list(DirectoryIndex(tmp_path / "runs", diagnosis_health.KIND).load()) == ["p/sick"]


def test_rewards_of_the_page_come_before_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And verdicts on its runs before the rewards of other pages."""
    first = Path(record("r0", steps=30).path)
    for number in range(1, 4):
        copy_run(first, number, f"r{number}")
    directory = RunDirectory(tmp_path / "runs")
    monkeypatch.setattr(directory.listing, "_start_reading", lambda: None)
    directory.listing.view(None, ListQuery(sort="name", limit=1))
    order = []
    while due := directory.listing._next():
        for read, run in due[:1]:
            read(run)
            order.append((read.__name__, run.location.key))
    assert order[:3] == [("_read_reward", "r0"), ("_judge", "r0"), ("_read_reward", "r3")]
    assert len(order) == 5
    directory.close()
