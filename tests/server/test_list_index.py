"""The list's index is a cache: whatever is in its place, the list is made from the runs."""

import os
import sqlite3
from pathlib import Path

import pytest

from windsock import __version__
from windsock.server.runs.list_index import FILE, ListIndex


@pytest.mark.parametrize("wrong", [7, None, b"\xff", "{", "[" * 100_000, 1.5])
def test_nonsense_in_the_index_is_ignored(tmp_path: Path, wrong: object):
    """Of any type that SQLite stores."""
    ListIndex(tmp_path).save([("run", [1], {"a": 2})])
    assert ListIndex(tmp_path).load() == {"run": ([1], {"a": 2})}
    db = sqlite3.connect(tmp_path / FILE)
    db.execute("INSERT INTO readings VALUES (?, ?, ?, ?)", ("other", __version__, wrong, wrong))
    db.commit()
    db.close()
    assert ListIndex(tmp_path).load() == {}


def test_a_fifo_in_its_place_does_not_block(tmp_path: Path):
    """Nothing is read from it, and nothing is written."""
    os.mkfifo(tmp_path / FILE)
    assert ListIndex(tmp_path).load() == {}
    ListIndex(tmp_path).save([("run", [1], {"a": 2})])
