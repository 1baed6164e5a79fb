"""Inference engines that a run watches: real servers that work, hang, fail, restart and come back."""

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_server import EngineServer, sglang, vllm
from probing import values

import barograph
from barograph.base.errors import SettingsError
from barograph.base.settings import resolve
from barograph.recording.probe import engines as engine_endpoint
from barograph.recording.probe import engines as engine_watcher
from barograph.recording.probe.engines import metrics_path

SECONDS = 0.02


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait 0.3 s for an answer instead of 3, and at most 0.1 s between two requests to an engine that is down."""
    for module in (engine_endpoint, engine_watcher):
        monkeypatch.setattr(module, "TIMEOUT", 0.3)
    monkeypatch.setattr(engine_watcher, "MAX_PAUSE", 0.1)


@pytest.fixture
def engine() -> Iterator[EngineServer]:
    with EngineServer(vllm()) as server:
        yield server


@pytest.fixture
def run() -> Iterator[barograph.Run]:
    with barograph.init(engine_seconds=SECONDS) as run:
        yield run


def wait_for(condition: Callable[[], bool], what: str = "the condition") -> None:
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.005)


def read_again(*engines: EngineServer, times: int = 3) -> None:
    """Wait until each engine was read a few times more."""
    for engine in engines:
        wanted = len(engine.requests) + times
        wait_for(lambda engine=engine, wanted=wanted: len(engine.requests) >= wanted, "the next request")  # type: ignore[misc]


def committed(run: barograph.Run, step: int) -> dict[str, float]:
    run.commit(step)
    return {name: value for name, value in values(run, step).items() if name.startswith("engine/")}


def problems(run: barograph.Run) -> list[str]:
    return [problem.error for problem in barograph.open(run.path).problems()]


def engine_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("barograph-engine")]


@pytest.mark.parametrize("exposition", [vllm, sglang])
def test_a_step_has_the_load_of_the_engine(
    run: barograph.Run, engine: EngineServer, exposition: Callable[..., str], capsys: pytest.CaptureFixture[str]
):
    """Readings belong to the step and to the innermost phase in which they were taken."""
    engine.text = exposition(3, 2, 0.25)
    with run.phase("outer"), run.phase("rollout"):
        run.watch_engine(engine.url)
        read_again(engine)
        first = committed(run, 0)
    engine.text = exposition(7, 0, 0.5)
    read_again(engine)
    committed(run, 1)
    read_again(engine)
    third = committed(run, 2)
    assert first["engine/requests/running"] == first["engine/requests/running/during/rollout"] == 3.0
    assert first["engine/requests/waiting"] == 2.0
    assert first["engine/kv_cache_use/max"] == 0.25
    assert first["engine/reachable"] == 1.0
    assert "engine/requests/running/during/outer" not in first
    assert (third["engine/requests/running"], third["engine/kv_cache_use"]) == (7.0, 0.5)
    assert capsys.readouterr().err == ""


def test_rates_are_those_of_the_counters(run: barograph.Run, engine: EngineServer):
    """Preemptions of all steps add up to the counter; a step without new tokens has the rate 0."""
    run.watch_engine(engine.url, name="engine0")
    read_again(engine)
    preempted = 0.0
    for step in range(5):
        engine.text = vllm(preemptions=2 * (step + 1), generated=1000 * (step + 1), queries=10 * step, hits=5 * step)
        read_again(engine)
        found = committed(run, step)
        preempted += found["engine/preemptions"]
        assert found["engine/tokens_per_second/generated"] > 0
    assert preempted == 10
    assert found["engine/prefix_cache_hit_rate"] == 0.5
    read_again(engine)
    assert committed(run, 5)["engine/tokens_per_second/generated"] == 0.0


def test_several_engines(run: barograph.Run, engine: EngineServer):
    """Requests add up, shares are averaged, and every engine has a series of its own."""
    with EngineServer(sglang(running=10, waiting=0, cache=0.75)) as other:
        run.watch_engine(engine.url, name="engine0")
        run.watch_engine(f"{other.url}/metrics")
        read_again(engine, other)
        found = committed(run, 0)
    assert found["engine/requests/running"] == 13.0
    assert found["engine/kv_cache_use"] == 0.5
    assert found["engine/kv_cache_use/max"] == 0.75
    assert found["engine/requests/running/by/engine0"] == 3.0
    assert found[f"engine/requests/running/by/127.0.0.1:{other.server_port}"] == 10.0
    assert found["engine/reachable/by/engine0"] == 1.0


def test_an_engine_that_is_down_is_told_once_and_comes_back(capsys: pytest.CaptureFixture[str]):
    """One warning at the start of an outage and one at its end; in between the pauses grow."""
    run = barograph.init(engine_seconds=SECONDS)
    with EngineServer(vllm(), listening=False) as engine:
        run.watch_engine(engine.url, name="engine0")
        wait_for(lambda: bool(problems(run)), "the outage")
        time.sleep(0.3)
        assert committed(run, 0) == {"engine/reachable": 0.0}
        engine.listen()
        read_again(engine)
        assert committed(run, 1)["engine/requests/running"] == 3.0
        run.finish()
    error = capsys.readouterr().err
    assert error.count("cannot be read: ConnectionRefusedError") == 1
    assert error.count("answers now; it did not for") == 1
    assert "the training goes on" in error
    [problem] = problems(run)
    assert problem.startswith(f"EngineError: engine 'engine0' at {engine.url} cannot be read")


def test_every_outage_is_told(run: barograph.Run, engine: EngineServer, capsys: pytest.CaptureFixture[str]):
    """A second one is printed too, with its number; a single miss is not."""
    told = ""

    def is_told(text: str) -> bool:
        nonlocal told
        told += capsys.readouterr().err
        return text in told

    run.watch_engine(engine.url, name="a")
    for text in ("cannot be read: HTTP 500; it is asked again", "cannot be read: HTTP 500 (outage 2)"):
        read_again(engine)
        engine.mode = "fail"
        wait_for(lambda text=text: is_told(text), text)  # type: ignore[misc]
        engine.mode = "serve"
    wait_for(lambda: is_told("") and told.count("answers now") == 2, "the second return")
    [problem] = barograph.open(run.path).problems()
    assert problem.count >= 1
    told = ""
    watcher = run._collectors.phases._engines._watchers["a"]  # type: ignore[union-attr]
    watcher._fail(OSError("one miss"))
    read_again(engine)
    assert not is_told("one miss")


def test_the_pauses_of_an_outage_grow(engine: EngineServer, monkeypatch: pytest.MonkeyPatch):
    """An engine that stays down costs ever fewer requests, up to the longest pause; all are at the same moments."""
    monkeypatch.setattr(engine_watcher, "MAX_PAUSE", 60.0)
    with barograph.init(engine_seconds=5.0) as run:
        run.watch_engine(engine.url)
        [watcher] = run._collectors.phases._engines._watchers.values()  # type: ignore[union-attr]
        waits = []
        for watcher._failures in (0, 1, 2, 3, 4, 5, 50, 5000):
            waits.append(watcher._wait(1002.0))
        assert waits == [3.0, 3.0, 8.0, 18.0, 38.0, 58.0, 58.0, 58.0]
        watcher._failures = 0
        assert watcher._wait(1004.5) == 5.5


def test_a_restart_of_the_engine_gives_no_wild_rate(run: barograph.Run, engine: EngineServer):
    """Counters that begin again give no value for that interval, and right ones afterwards."""
    engine.text = vllm(generated=1e12, preemptions=1000)
    run.watch_engine(engine.url)
    read_again(engine)
    committed(run, 0)
    engine.text = vllm(generated=10, preemptions=1)
    read_again(engine)
    restarted = committed(run, 1)
    engine.text = vllm(generated=20, preemptions=2)
    read_again(engine)
    later = committed(run, 2)
    assert 0 <= restarted["engine/tokens_per_second/generated"] <= 10 / SECONDS
    assert restarted["engine/preemptions"] == 0.0
    assert later["engine/preemptions"] == 1.0
    assert later["engine/reachable"] == 1.0


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("hang", "no answer within"),
        ("fail", "HTTP 500"),
        ("page", "no metrics of vLLM or SGLang"),
        ("garbage", "BadStatusLine"),
        ("endless", "no answer within|more than"),
        ("drip", "no answer within"),
    ],
)
def test_an_engine_that_misbehaves(run: barograph.Run, engine: EngineServer, mode: str, reason: str):
    """Whatever it answers, it is reported; when it works again, it is read again."""
    engine.mode = mode
    run.watch_engine(engine.url)
    wait_for(lambda: bool(problems(run)), "the report")
    assert any(part in problems(run)[0] for part in reason.split("|"))
    assert committed(run, 0) == {"engine/reachable": 0.0}
    engine.mode = "serve"
    engine.released.set()
    wait_for(lambda: committed(run, 1).get("engine/requests/running") == 3.0)


def test_a_large_answer_is_not_kept(run: barograph.Run, engine: EngineServer, monkeypatch: pytest.MonkeyPatch):
    """An answer has a limit in bytes."""
    monkeypatch.setattr(engine_endpoint, "MAX_BYTES", 1 << 20)
    engine.text = vllm() + "# padding\n" * 200_000
    run.watch_engine(engine.url)
    wait_for(lambda: bool(problems(run)))
    assert "more than 1 MiB" in problems(run)[0]


def test_an_engine_without_metrics_is_told_with_a_hint(run: barograph.Run, engine: EngineServer):
    """SGLang has no /metrics unless it is asked to."""
    engine.mode = "missing"
    run.watch_engine(engine.url)
    wait_for(lambda: bool(problems(run)))
    assert (
        "HTTP 404; vLLM serves them unless it has --disable-log-stats, SGLang with --enable-metrics" in problems(run)[0]
    )


def test_neither_the_loop_nor_the_end_waits_for_an_answer(engine: EngineServer, monkeypatch: pytest.MonkeyPatch):
    """A request in flight is left alone; its answer is neither recorded nor reported."""
    for module in (engine_endpoint, engine_watcher):
        monkeypatch.setattr(module, "TIMEOUT", 100.0)
    engine.mode = "hang"
    run = barograph.init(engine_seconds=SECONDS)
    run.watch_engine(engine.url)
    wait_for(lambda: bool(engine.requests), "the request")
    for step in range(20):
        run.log({"x": 1.0})
        run.commit(step)
    run.finish()
    assert len(engine_threads()) == len(engine.requests) == 1  # still waiting
    engine.released.set()
    wait_for(lambda: not engine_threads(), "the end of the thread")
    assert problems(run) == []
    assert barograph.open(run.path).steps == (0, 19)


def test_the_thread_ends_with_the_run(engine: EngineServer):
    """No thread and no request is left."""
    with barograph.init(engine_seconds=SECONDS) as run:
        run.watch_engine(engine.url)
        read_again(engine)
    assert engine_threads() == []


def test_a_run_that_is_finished_or_disabled_watches_nothing(
    engine: EngineServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    """No thread, no request; the finished run says so."""
    disabled = barograph.init(mode="disabled", engines=[engine.url], dir=tmp_path / "none")
    disabled.watch_engine(engine.url)
    run = barograph.init(engine_seconds=SECONDS)
    run.finish()
    run.watch_engine(engine.url)
    quiet = barograph.init(engines=engine.url, engine_seconds=0)
    quiet.watch_engine(engine.url)
    assert engine_threads() == []
    assert engine.requests == []
    assert "run.watch_engine after finish" in capsys.readouterr().err


def _child(run: barograph.Run, url: str) -> None:
    assert engine_threads() == []
    assert committed(run, 0) == {}
    run.watch_engine(url, name="childs")
    wait_for(lambda: committed(run, 1).get("engine/requests/running") == 77.0, "the reading")
    run.finish()
    assert engine_threads() == []


def test_a_forked_child_begins_without_engines(run: barograph.Run, engine: EngineServer):
    """The parent goes on reading; a child reads what it watches itself."""
    run.watch_engine(engine.url)
    read_again(engine)
    with EngineServer(vllm(running=77)) as other:
        process = multiprocessing.get_context("fork").Process(target=_child, args=(run, other.url))
        process.start()
        process.join(60)
        assert process.exitcode == 0
    read_again(engine)
    assert committed(run, 2)["engine/requests/running"] == 3.0


def test_only_the_first_process_of_a_role_reads(engine: EngineServer):
    """All ranks run the same script; each engine counts once."""
    run = barograph.init(id="shared", rank=1, world_size=2, engine_seconds=SECONDS, engines=[engine.url])
    run.watch_engine(engine.url)
    assert engine_threads() == []
    run.finish()
    assert engine.requests == []


def test_the_same_engine_twice(run: barograph.Run, engine: EngineServer, capsys: pytest.CaptureFixture[str]):
    """It is read once, under its first name; a name that moves is read at its new address."""
    run.watch_engine(engine.url, name="a")
    run.watch_engine(f"{engine.url}/metrics/", name="a")
    run.watch_engine(f"{engine.url}/v1")
    assert capsys.readouterr().err == ""
    run.watch_engine(engine.url, name="b")
    assert "is read already, as 'a'; not as 'b'" in capsys.readouterr().err
    assert engine_threads() == ["barograph-engine-a"]
    with EngineServer(vllm(running=50)) as other:
        run.watch_engine(other.url, name="a")
        read_again(other)
        committed(run, 0)
        read_again(other)
        found = committed(run, 1)
    assert found["engine/requests/running"] == 50.0
    assert not any("/by/" in name for name in found)


def test_two_engines_behind_one_port_have_two_names(run: barograph.Run, engine: EngineServer):
    """A proxy may serve several engines under different paths."""
    run.watch_engine(f"{engine.url}/first")
    run.watch_engine(f"{engine.url}/second")
    read_again(engine, times=6)
    names = {name.rpartition("/")[2] for name in committed(run, 0) if "/by/" in name}
    assert names == {f"127.0.0.1:{engine.server_port}", f"127.0.0.1:{engine.server_port}-2"}
    assert {path for path, _ in engine.requests} == {"/first/metrics", "/second/metrics"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "/metrics"),
        ("/", "/metrics"),
        ("/metrics", "/metrics"),
        ("/metrics/", "/metrics"),
        ("/v1", "/metrics"),
        ("/v1/", "/metrics"),
        ("/engine0", "/engine0/metrics"),
        ("/engine0/v1/", "/engine0/metrics"),
    ],
)
def test_the_path_of_the_metrics(given: str, expected: str):
    """A URL may have it or not, or be that of the OpenAI API."""
    assert metrics_path(given) == expected


def test_secrets_of_a_url_are_never_written(engine: EngineServer, capsys: pytest.CaptureFixture[str]):
    """User, password, path and query reach the engine, and nothing else."""
    secrets = ("hunter2hunter2", "Pa55w0rd-of-path", "S3cret-of-query")
    url = f"http://me:{secrets[0]}@127.0.0.1:{engine.server_port}/{secrets[1]}/metrics?token={secrets[2]}"
    engine.mode = "fail"
    run = barograph.init(engine_seconds=SECONDS, engines=[url])
    run.watch_engine(url.replace("metrics", "other"))
    wait_for(lambda: len(problems(run)) == 2)
    engine.mode = "serve"
    read_again(engine)
    run.commit(0)
    run.watch_engine(f"ftp://me:{secrets[0]}@host")
    run.watch_engine(f"http://me:{secrets[0]}@host:port/{secrets[1]}")
    run.watch_engine(f"me:{secrets[0]}@host")
    run.finish()
    assert (f"/{secrets[1]}/metrics?token={secrets[2]}", "Basic bWU6aHVudGVyMmh1bnRlcjI=") in engine.requests
    written = b"".join(file.read_bytes() for file in run.path.rglob("*") if file.is_file()).decode("latin-1")
    output = "".join(capsys.readouterr())
    for secret in secrets:
        assert secret not in written
        assert secret not in output
        assert secret not in run.ticket()
    assert "expected a URL such as http://host:8000" in output


@pytest.mark.parametrize(
    "url",
    ["", "host:8000", "ftp://host", "http://", "http://host:port", "http://[::1", "http://ho st", "file:///x", 3, None],
)
def test_a_wrong_url_is_an_error_of_the_settings(url: object, capsys: pytest.CaptureFixture[str]):
    """In the settings it raises; in the loop it is reported."""
    if url != "":
        with pytest.raises(SettingsError, match="engines: expected a"):
            resolve(None, {"engines": [url]}, {})
    with barograph.init() as run:
        run.watch_engine(url)  # type: ignore[arg-type]
        assert "run.watch_engine failed: SettingsError: engines: expected a URL" in capsys.readouterr().err


def test_engines_from_the_settings(engine: EngineServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A YAML file or the environment chooses them; they are not part of the run's config."""
    file = tmp_path / "config.yaml"
    file.write_text(f"lr: 1\nbarograph:\n  engines: [{engine.url}]\n  engine_seconds: {SECONDS}\n")
    with barograph.init(file) as run:
        read_again(engine)
        assert committed(run, 0)["engine/requests/running"] == 3.0
        assert run.config == {"lr": 1}
    monkeypatch.setenv("BAROGRAPH_ENGINES", f"{engine.url}, http://other:8000/metrics")
    monkeypatch.setenv("BAROGRAPH_ENGINE_SECONDS", "2.5")
    settings = resolve()
    assert settings.engines == (engine.url, "http://other:8000/metrics")
    assert settings.engine_seconds == 2.5
