"""The thread that writes samples with measured tokens."""

import threading

from barograph.recording.samples import collector
from barograph.recording.samples.collector import MAX_WAITING, TokenWriter


def test_all_calls_are_made_in_a_thread_and_those_beyond_the_limit_at_once(monkeypatch):
    """What waits is bounded, and the end waits for all of it."""
    monkeypatch.setattr(collector, "SECONDS_BETWEEN", 60.0)  # until the end
    made: list[tuple[int, str]] = []
    writer = TokenWriter()
    for number in range(MAX_WAITING + 2):
        writer.put(lambda number=number: made.append((number, threading.current_thread().name)))
    assert [number for number, _ in made] == [MAX_WAITING, MAX_WAITING + 1]
    writer.finish()
    assert [number for number, _ in made[2:]] == list(range(MAX_WAITING))
    assert {thread for _, thread in made[2:]} == {"barograph-tokens"}
    writer.put(lambda: made.append((-1, "")))  # after the end another thread is started
    writer.finish()
    assert made[-1] == (-1, "")
