"""Regular expressions in another process."""

import subprocess
import time

import pytest

import barograph
from barograph.journal.samples.query import Query, RegexProcess, TooSlowError

ENDLESS = r"(a+)+$"


def test_the_answers_are_those_of_this_process():
    """Also for many texts, large ones, lone surrogates and the ends of texts that are joined."""
    texts = [b"one", b"two\0one", "\ud800 é".encode("utf-8", "surrogatepass"), b"x" * 300_000 + b"one", b""] * 40
    process = RegexProcess("^one|é$", 30)
    try:
        assert process.matches(texts) == [True, True, True, False, False] * 40
        assert process.matches([b"one"]) == [True]
    finally:
        process.close()


def test_a_slow_expression_is_stopped():
    """The search ends, and no process is left."""
    run = barograph.init()
    run.sample("p", "a" * 64 + "b")
    run.finish()
    view = barograph.open(run.path)
    began = time.monotonic()
    with pytest.raises(TooSlowError, match="takes more than 0.3 s"):
        view.find_samples(Query(regex=ENDLESS, regex_seconds=0.3))
    assert time.monotonic() - began < 20
    assert len(view.find_samples(Query(regex="ab$", regex_seconds=30)).samples) == 1


def test_no_process_is_left(monkeypatch: pytest.MonkeyPatch):
    """It is ended with the search."""
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen
    run = barograph.init()
    run.sample("p", "abc")
    run.finish()
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(real(*a, **k)) or started[-1])
    barograph.open(run.path).find_samples(Query(regex="b", regex_seconds=30))
    assert [process.poll() is not None for process in started] == [True]
