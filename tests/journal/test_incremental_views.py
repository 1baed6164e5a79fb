"""Views that advance: who follows a run looks at what is new, and not at the whole run again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.journal import view as view_module
from barograph.journal.format import fields
from barograph.journal.merge.role_merger import RoleMerger
from barograph.journal.read.attempt import Attempt
from barograph.journal.segments.contents import RowTable
from barograph.journal.segments.steps import AttemptSteps

RANKS = 4


class Calls:
    """Counts what the calls of a method are asked for."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str, size: Callable[..., int]) -> None:
        self.total = 0
        original = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.total += size(*args, **kwargs)
            return original(*args, **kwargs)

        patch.setattr(owner, name, counted)

    def since(self, work: Callable[[], Any]) -> int:
        """Return how much some work asks for."""
        before = self.total
        work()
        return self.total - before


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[barograph.Run]]:
    """The ranks of a run that is being recorded."""
    runs = [
        barograph.init(dir=tmp_path, id="many", rank=rank, world_size=RANKS, concurrent=True) for rank in range(RANKS)
    ]
    yield runs
    for run in runs:
        run.finish()


def measure(runs: list[barograph.Run], steps: range) -> None:
    for step in steps:
        for rank, run in enumerate(runs):
            tokens = np.random.default_rng([rank, step]).normal(size=(2, 3))
            run.measure(
                barograph.Batch(response_mask=np.ones((2, 3), bool), log_probs=tokens, old_log_probs=tokens / 2)
            )
            run.count(tokens=step)
            run.commit(step)


def test_a_new_step_of_all_ranks_merges_that_step(ranks: list[barograph.Run], monkeypatch: pytest.MonkeyPatch):
    """Whatever number of steps there are already."""
    picked = Calls(monkeypatch, RowTable, "pick", lambda self, rows, columns: len(rows))
    looked_at = Calls(monkeypatch, RoleMerger, "measured_share", lambda self, step: 1)
    measure(ranks, range(40))
    view = barograph.open(ranks[0].path)
    assert picked.since(view.names) == RANKS * 40
    measure(ranks, range(40, 41))
    view.refresh()
    before = looked_at.total
    assert picked.since(view.names) == RANKS
    assert looked_at.total - before < 5
    assert picked.since(lambda: [view.series(name) for name in view.names()]) == 0


def test_one_metric_merges_its_own_states(ranks: list[barograph.Run], monkeypatch: pytest.MonkeyPatch):
    """The columns of the other metrics are not read."""
    measure(ranks, range(5))
    view = barograph.open(ranks[0].path)
    columns = Calls(monkeypatch, RowTable, "pick", lambda self, rows, columns: len(rows) * len(columns))
    of_one = columns.since(lambda: view.series("actor/valid_sample_ratio"))
    assert 0 < 10 * of_one < columns.since(view.names)


def test_missing_counts_are_looked_for_in_new_steps(ranks: list[barograph.Run], monkeypatch: pytest.MonkeyPatch):
    """Not in those that all ranks have committed."""
    measure(ranks, range(40))
    measure(ranks[:1], range(40, 41))
    view = barograph.open(ranks[0].path)
    added_up = Calls(
        monkeypatch, view_module, "reduced_series", lambda name, how, by_rank: sum(map(len, by_rank.values()))
    )
    assert added_up.since(view.missing_ranks) == len(view._merged_of("trainer").reductions.counted())
    assert {(one.rank, one.step) for one in view.missing_ranks() if one.share == "counted"} == {
        (1, 40),
        (2, 40),
        (3, 40),
    }


def test_a_layout_that_all_ranks_write_is_decoded_once(ranks: list[barograph.Run], monkeypatch: pytest.MonkeyPatch):
    """The ranks of a role measure the same."""
    measure(ranks, range(2))
    view = barograph.open(ranks[0].path)
    decoded = Calls(monkeypatch, RoleMerger, "_add_layout", lambda self, record: 1)
    assert decoded.since(view.names) == len(view._merged_of("trainer")._merger.measured.layouts)


def test_a_new_row_resolves_its_own_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Steps that are settled are not looked up again."""
    resolved = Calls(monkeypatch, AttemptSteps, "resolve", lambda self, index, offsets, *rest: len(offsets))
    run = barograph.init(dir=tmp_path)
    for step in range(200):
        run.log({"loss": step})
        run.commit(step)
    view = barograph.open(run.path)
    assert len(view.series("loss")) == 200
    run.log({"loss": 1.0})
    run.commit(200)
    view.refresh()
    assert resolved.since(lambda: (view.series("loss"), view.steps, view.status, view.names())) == 1
    assert view.series("loss").steps.tolist() == list(range(201))
    run.finish()


def test_a_series_that_is_followed_reads_its_new_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The column is kept once it was asked for again."""
    run = barograph.init(dir=tmp_path)
    for step in range(100):
        run.log({"loss": step}, step=step)
    view = barograph.open(run.path)
    view.series("loss")
    view.series("loss")
    read = Calls(monkeypatch, RowTable, "column", lambda self, number, start=0: len(self) - start)
    for step in range(100, 105):
        run.log({"loss": step}, step=step)
        view.refresh()
        assert view.series("loss").values.tolist() == list(range(step + 1))
    assert read.total == 5
    run.finish()


def test_a_series_stays_as_it_was_returned(tmp_path: Path):
    """An open row gets another step later; what was returned before does not change."""
    run = barograph.init(dir=tmp_path)
    run.log({"loss": 1.0})
    run.commit(0)
    run.log({"loss": 2.0})
    view = barograph.open(run.path)
    before = view.series("loss")
    assert before.steps.tolist() == [0, 1]
    run.commit(7)
    view.refresh()
    assert before.steps.tolist() == [0, 1]
    assert view.series("loss").steps.tolist() == [0, 7]
    run.finish()


def test_a_refresh_opens_the_files_that_have_grown(ranks: list[barograph.Run], monkeypatch: pytest.MonkeyPatch):
    """The others are not opened."""
    measure(ranks, range(2))
    for run in ranks:
        run.finish()
    segment = ranks[0].path / "trainer.2.1.0.seg"
    content = segment.read_bytes()
    segment.write_bytes(content[: len(content) // 2])
    view = barograph.open(ranks[0].path)
    opened: list[str] = []
    original = os.open

    def counted(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith(".seg"):
            opened.append(Path(path).name)
        return original(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", counted)
    assert not view.refresh()
    assert not opened
    segment.write_bytes(content)
    assert view.refresh()
    assert opened == [segment.name]


def test_names_of_many_ranks_ask_each_rank_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The time is linear in the number of ranks."""
    source = barograph.init(dir=tmp_path, id="one", rank=0, world_size=1)
    source.log({"loss": 1.0, "time/step": 2.0}, step=0)
    source.finish()
    content = next(source.path.glob("*.seg")).read_bytes()
    for rank in range(1, 60):
        (source.path / f"trainer.{rank}.1.0.seg").write_bytes(content)
    asked = Calls(monkeypatch, Attempt, "names", lambda self: 1)
    decoded = Calls(monkeypatch, fields, "decode", lambda kind, payload: 1)
    view = barograph.open(source.path)
    assert asked.since(view.names) <= 4 * 60
    assert not decoded.total  # of the events, none tells what ranks share
    assert "time/step/ranks/max" in view.names()
