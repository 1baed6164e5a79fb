"""The list in pages: search, order and size of the answer, over all runs of the directory."""

import math
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from serving_runs import copy_run

import barograph
from barograph.answers.open_run import RunLocation
from barograph.answers.responses import encode
from barograph.answers.runs import listed_run
from barograph.answers.runs.listed_run import ListedRun
from barograph.answers.runs.listing import RunDirectory
from barograph.answers.runs.table import SORTS, ListQuery
from barograph.journal.directory import DirectoryIndex
from barograph.journal.format.folder import PAGE_FOLDER, RunFiles

REWARD = "critic/score/mean"


def listed(name: str, **given: Any) -> ListedRun:
    """Return a run of the list that was made up."""
    facts = {"logged_name": name, "project": "p", "status": "finished", "vocabulary": "roll", "tags": []}
    facts |= {"began": 0.0, "last_heard": 0.0}
    facts |= {key: value for key, value in given.items() if key in (*facts, "status")}
    annotations = {"name": None, "pinned": False, "hidden": False, "note": ""}
    annotations |= {key: value for key, value in given.items() if key in annotations}
    run = ListedRun(RunLocation(name, Path(name)), facts=facts, annotations=annotations)
    run.reward = {"last": given["reward"]} if "reward" in given else None
    run.update_search_text()
    return run


def names(runs: list[ListedRun], **query: Any) -> str:
    return ",".join(run.name for run in ListQuery(**query).select(runs))


def test_runs_are_sorted_pinned_ones_first():
    """Numbers in names count as numbers, however long they are."""
    runs = [listed("r10", began=1.0), listed("R9", began=3.0), listed("pinned", pinned=True)]
    assert names(runs) == "pinned,R9,r10"
    assert names(runs, sort="name") == "pinned,R9,r10"
    long = [listed("9" * 5000 + "8"), listed("9" * 5001), listed("0010"), listed("9"), listed("")]
    assert [len(run.name) for run in ListQuery(sort="name").select(long)] == [0, 1, 4, 5001, 5001]
    assert names([listed("a", status="running"), listed("b", status="crashed")], sort="status") == "b,a"
    assert names([listed("a", last_heard=1.0), listed("b", last_heard=2.0)], sort="heard") == "b,a"


def test_a_reward_that_is_missing_or_not_a_number_sorts_last():
    """The highest is first."""
    runs = [listed("low", reward=0.1), listed("none"), listed("nan", reward=math.nan), listed("high", reward=0.9)]
    assert names([*runs, listed("inf", reward=-math.inf)], sort="reward") == "high,low,none,nan,inf"


def test_a_query_matches_words_in_name_project_status_vocabulary_tags_and_note():
    """In any order and case; hidden runs are left out on request."""
    runs = [listed("alpha", tags=["night"]), listed("beta", note="look at the KL"), listed("gone", hidden=True)]
    assert names(runs, q="kl") == "beta"
    assert names(runs, q="NIGHT alp") == "alpha"
    assert names(runs, q="night beta") == ""
    assert names(runs, hidden=False) == "alpha,beta"
    assert names(runs) == "alpha,beta,gone"


def record(dir: Path, id: str, steps: int = 60, **options: Any) -> Path:
    run = barograph.init(id=id, project="p", dir=dir, **options)
    for step in range(steps):
        run.log({REWARD: random.Random(step).random()}, step=step)
    run.finish()
    return Path(run.path)


def complete(directory: RunDirectory) -> dict[str, Any]:
    """Return the list when all rewards are read and written."""
    while directory.listing.view()["pending"]:
        time.sleep(0.01)
    if directory.listing._thread is not None:
        directory.listing._thread.join()
    return directory.listing.view()


@pytest.fixture
def dir(tmp_path: Path) -> Path:
    """Return a directory of 30 runs, 3 of which log no reward."""
    first = record(tmp_path / "runs", "r00", notes="n" * 5000, config={"a": "b" * 5000})
    for number in range(1, 27):
        copy_run(first, number, f"r{number:02d}")
    for number in range(27, 30):
        record(tmp_path / "runs", f"r{number}", steps=0)
    return tmp_path / "runs"


def test_a_page_has_what_it_shows(dir: Path):
    """The answer is small whatever the number of runs and the length of their notes."""
    directory = RunDirectory(dir)
    whole = complete(directory)
    assert (whole["total"], len(whole["runs"]), whole["newest"]) == (30, 30, "r29")
    page = directory.listing.view(None, ListQuery(offset=10, limit=5, keys=("r29", "nobody")))
    assert page["keys"] == ["r19", "r18", "r17", "r16", "r15"]
    assert [run["key"] for run in page["runs"]] == [*page["keys"], "r29"]
    assert page["total"] == 30
    assert len(encode(page)) < 6 * 1000 + 500
    assert set(page["runs"][0]) == {
        "key", "name", "project", "status", "reason", "vocabulary", "tags", "last_step", "began", "seconds", "bytes",
        "pinned", "hidden", "note", "source", "colour", "number", "reward", "health",
    }  # fmt: skip
    directory.close()


def test_a_cursor_gets_the_rows_of_its_page_that_changed(dir: Path):
    """Those of other pages are not sent."""
    directory = RunDirectory(dir)
    complete(directory)
    query = ListQuery(limit=10)
    first = directory.listing.view(None, query)
    assert directory.listing.view(first["cursor"], query)["runs"] == []
    directory.annotations.set("r00", {"note": "elsewhere"})
    directory.annotations.set("r25", {"note": "here"})
    second = directory.listing.view(first["cursor"], query)
    assert [run["key"] for run in second["runs"]] == ["r25"]
    assert second["keys"] == first["keys"]
    shutil.rmtree(dir / "p" / "r25")
    third = directory.listing.view(second["cursor"], query)
    assert third["gone"] == ["r25"]
    assert third["keys"] == [key for key in first["keys"] if key != "r25"] + ["r19"]
    directory.close()


def test_the_endpoint_takes_a_page(dir: Path, serve: Any):
    """And names what is wrong with a request."""
    client = serve(dir)
    answer = client.get("/api/runs", params={"q": "r1", "sort": "name", "limit": 3, "offset": 1, "key": "r28"}).json()
    assert answer["keys"] == ["r11", "r12", "r13"]
    assert answer["total"] == 10
    assert {run["key"] for run in answer["runs"]} == {"r11", "r12", "r13", "r28"}
    for wrong in ({"sort": "nonsense"}, {"limit": 0}, {"limit": 1001}, {"offset": -1}):
        assert client.get("/api/runs", params=wrong).status_code == 400
    assert client.get("/api/runs", params={"offset": 1000}).json()["keys"] == []
    assert client.get("/api/runs", params={"q": "🙂" * 100}).json()["total"] == 0
    for sort in SORTS:
        assert len(client.get("/api/runs", params={"sort": sort}).json()["keys"]) == 30


def test_a_run_keeps_its_number(dir: Path):
    """It decides the colour, so it counts from the oldest and is never given twice."""
    directory = RunDirectory(dir)
    numbers = {run["key"]: run["number"] for run in directory.listing.view()["runs"]}
    assert [key for key, _ in sorted(numbers.items(), key=lambda pair: pair[1])] == sorted(numbers)
    shutil.rmtree(dir / "p" / "r29")
    record(dir, "later")
    after = {run["key"]: run["number"] for run in directory.listing.view()["runs"]}
    assert after["later"] == 30
    assert all(after[key] == number for key, number in numbers.items() if key != "r29")
    directory.close()


def rewards_of(answer: dict[str, Any]) -> dict[str, Any]:
    return {run["key"]: run["reward"] for run in answer["runs"]}


def test_an_index_of_rewards_changes_no_answer(dir: Path, monkeypatch: pytest.MonkeyPatch):
    """Stale, truncated, with any byte changed, of another directory, of another version or not writable."""
    first = RunDirectory(dir)
    right = rewards_of(complete(first))
    first.close()
    assert sum(reward is None for reward in right.values()) == 3
    file = dir / PAGE_FOLDER / "rewards.index"
    data = file.read_bytes()
    second = RunDirectory(dir)
    assert second.listing.view()["pending"] == 0  # nothing is read again
    assert rewards_of(second.listing.view()) == right
    second.close()
    draw = random.Random(1)
    damaged = [data[:cut] for cut in (0, 50, 700, len(data) - 1)]
    for _ in range(5):
        flipped = bytearray(data)
        for place in draw.sample(range(len(data)), 20):
            flipped[place] ^= draw.randrange(1, 256)
        damaged.append(bytes(flipped))
    damaged += [data.replace(b'"barograph": "', b'"barograph": "9'), b"\n" * 100, data.replace(b"0.", b"1.")]
    for content in damaged:
        file.write_bytes(content)
        directory = RunDirectory(dir)
        assert rewards_of(complete(directory)) == right
        directory.close()


@pytest.mark.parametrize(
    "wrong", [7, None, [], [None], [{}, {}], [{"name": "x", "last": 1.0, "spark": {"min": "x"}}, {}]]
)
def test_an_entry_that_is_no_reward_is_not_used(dir: Path, wrong: object):
    """Whoever wrote it with a correct checksum."""
    first = RunDirectory(dir)
    right = rewards_of(complete(first))
    first.close()
    index = DirectoryIndex(dir, listed_run.KIND)
    index.save({run: (digest, wrong) for run, (digest, _) in index.load().items()})
    second = RunDirectory(dir)
    assert rewards_of(complete(second)) == right
    second.close()


def test_rewards_of_the_page_that_is_shown_are_read_first(dir: Path, monkeypatch: pytest.MonkeyPatch):
    """Then those of the newest runs."""
    directory = RunDirectory(dir)
    monkeypatch.setattr(directory.listing, "_start_reading", lambda: None)
    directory.listing.view(None, ListQuery(sort="name", limit=3))
    due = [run.location.key for _, run in directory.listing._next()]
    assert due[:5] == ["r02", "r01", "r00", "r29", "r28"]
    directory.close()


def test_a_row_without_files_is_no_run(tmp_path: Path):
    """It was removed while the list was made."""
    directory = RunDirectory(tmp_path)
    run = ListedRun(RunLocation("gone", tmp_path / "gone"), files=RunFiles({}, 0))
    assert directory.listing._facts(run) is None
    directory.close()
