"""The file with a tracker's delivery state."""

import os
from pathlib import Path
from typing import IO

import pytest

import barograph
import barograph.journal.format.folder as folder_module
from barograph.delivery.relay.state import (
    FOLDER,
    DeliveryState,
    read_delivery_state,
    read_delivery_states,
    state_path,
    write_delivery_state,
)
from barograph.journal.read.segment_follower import Cursor

STATE = DeliveryState("jsonl").with_state(
    "healthy", delivered=7, places={"a.seg": Cursor(5, 9, 3, 6, 8)}, mark={"n": 1}
)


def test_a_state_is_read_as_it_was_written(tmp_path: Path):
    """Cursors and mark included."""
    write_delivery_state(tmp_path, STATE)
    assert read_delivery_state(tmp_path, "jsonl") == STATE
    assert read_delivery_states(tmp_path) == [STATE]


def test_a_state_of_0_1_is_read(tmp_path: Path):
    """Its cursors have three numbers."""
    path = state_path(tmp_path, "jsonl")
    path.parent.mkdir()
    path.write_text(
        '{"tracker":"jsonl","state":"done","delivered":3,"time":1.0,"places":{"a.seg":[5,9,3]},"mark":null}'
    )
    state = read_delivery_state(tmp_path, "jsonl")
    assert state.places == {"a.seg": Cursor(5, 9, 3)}
    assert (state.state, state.delivered, state.places["a.seg"].merged_to) == ("done", 3, 9)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tracker": "jsonl", "places": {"a.seg": 5}}', '{"places": {}}'])
def test_an_unreadable_state_is_a_new_one(tmp_path: Path, text: str):
    """The rows are then delivered again; nothing is lost."""
    state_path(tmp_path, "jsonl").parent.mkdir()
    state_path(tmp_path, "jsonl").write_text(text)
    assert read_delivery_state(tmp_path, "jsonl") == DeliveryState("jsonl")


@pytest.mark.parametrize("call", ["replace", "write"])
def test_a_state_that_cannot_be_written_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str):
    """As on a full disk: the error is raised, the old state is kept and the half-written file is removed."""
    write_delivery_state(tmp_path, STATE)

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def open_full(fd: int, *_: object, **__: object) -> IO[str]:
        os.close(fd)
        return open("/dev/full", "w")

    if call == "replace":
        monkeypatch.setattr(os, "replace", fail)
    else:
        monkeypatch.setattr(folder_module, "open", open_full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        write_delivery_state(tmp_path, STATE.with_state("failing"))
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["jsonl.json"]
    assert read_delivery_state(tmp_path, "jsonl") == STATE


def test_another_target_has_a_cursor_of_its_own():
    """And the first one's is there again when it is asked for."""
    first = STATE.for_target("one")
    second = STATE.with_state("healthy", target="one").for_target("two")
    assert (first.delivered, first.places) == (0, {})
    assert (second.delivered, second.places, second.mark) == (0, {}, None)
    again = second.with_state("done", delivered=2).for_target("one")
    assert (again.delivered, again.places, again.mark) == (7, STATE.places, {"n": 1})
    assert again.for_target("two").delivered == 2


def test_a_state_has_all_when_every_segment_was_emitted():
    """To its last byte, and no segment is missing."""
    run = barograph.init(id="all")
    run.finish()
    [path] = run.path.glob("*.seg")
    size = path.stat().st_size
    assert STATE.with_state("done", places={path.name: Cursor(size, size, 0)}).has_all(run.path)
    assert not STATE.with_state("done", places={path.name: Cursor(size - 1, size, 0)}).has_all(run.path)
    assert not STATE.has_all(run.path)
