"""The metrics of vLLM and SGLang: what is read from their expositions, and what two of them give."""

import math
import re

import pytest
from engine_server import HISTOGRAM, MODEL, PYTHON, sglang, vllm
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from barograph.catalogue.registry import REGISTRY
from barograph.metrics.probe_values import Names
from barograph.recording.probe.engine_metrics import (
    NAMES,
    EngineAverages,
    EngineReading,
    Exposition,
    parse,
    read,
    readings,
)

IDS = {
    "engine/requests/running", "engine/requests/waiting", "engine/kv_cache_use", "engine/kv_cache_use/max",
    "engine/preemptions", "engine/prefix_cache_hit_rate", "engine/tokens_per_second/generated",
    "engine/tokens_per_second/prompt",
}  # fmt: skip


def read_at(time: float, text: str) -> Exposition:
    found = read(text, time)
    assert found is not None
    return found


def between(first: str, second: str, seconds: float = 5.0) -> dict[str, float]:
    """Return the values of a second answer, some seconds after the first."""
    found = readings(read_at(100.0 + seconds, second), read_at(100.0, first))
    return {id: reading.value for id, reading in found.items()}


@given(
    st.dictionaries(st.text(max_size=20), st.floats(), max_size=6),
    st.text(max_size=20),
)
def test_the_parser_agrees_with_that_of_prometheus(values: dict[str, float], other: str):
    """Any label and any number: the samples are those that Prometheus's own client reads."""
    registry = CollectorRegistry()
    gauge = Gauge("vllm:x", "help with {braces} and \\ and \n", ["model_name", "engine"], registry=registry)
    for label, value in values.items():
        gauge.labels(label, other).set(value)
    text = generate_latest(registry).decode()
    expected = [
        (sample.labels, sample.value) for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    found = parse(text, {"vllm:x"}).get("vllm:x", [])
    unescaped = [({name: unescape(label) for name, label in labels.items()}, value) for labels, value in found]
    assert repr(unescaped) == repr(expected)


def unescape(label: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], label)


@given(st.text())
def test_the_parser_takes_any_text(text: str):
    """Nothing raises, and a line that is not of the format gives nothing."""
    parse(text, NAMES)
    parse(f"vllm:num_requests_running{text}", NAMES)
    read(f"vllm:num_requests_running{{{text}", 1.0)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vllm:num_requests_running 3", 3.0),
        ("vllm:num_requests_running 3 1395066363000", 3.0),
        ("vllm:num_requests_running\t3.5e+01\r", 35.0),
        ('vllm:num_requests_running { model_name = "a" , } 3', 3.0),
        ('vllm:num_requests_running{model_name="}\\"{"} 3 # {trace_id="a"} 1', 3.0),
        ("vllm:num_requests_running NaN", None),
        ("vllm:num_requests_running +Inf", None),
        ("vllm:num_requests_running", None),
        ("vllm:num_requests_running three", None),
        ('vllm:num_requests_running{model_name="a 3', None),
        ('vllm:num_requests_running{model_name="a"', None),
        ("vllm:num_requests_running_total 3", None),
        ("# vllm:num_requests_running 3", None),
    ],
)
def test_one_line(line: str, expected: float | None):
    """A timestamp and an exemplar are ignored; what is no finite number is missing, never zero."""
    assert read_at(1.0, f"# TYPE vllm:x gauge\n{line}\n").gauges.get("engine/requests/running") == expected


def test_a_long_line_without_an_end_takes_no_time():
    """The time of a search is linear in the length of a line."""
    for part in ('a="', '"', "{", "\\", 'a="b",', " "):
        parse("vllm:num_requests_running{" + part * 1_000_000, NAMES)


@pytest.mark.parametrize("text", ["", "# nothing", PYTHON, "<html></html>", "\x00\xff", "{}", "a 1\n" * 100])
def test_an_answer_that_is_not_an_engines_is_none(text: str):
    """A page, another exporter or garbage is not taken for an idle engine."""
    assert read(text, 1.0) is None


@pytest.mark.parametrize("names", ["v1", "gpu", "both", "v0"])
def test_vllm(names: str):
    """Requests, cache and the differences of counters over five seconds, under the names of all versions."""
    first = vllm(1, 0, 0.1, preemptions=7, hits=100, queries=1000, prompt=2000, generated=10_000, names=names)
    second = vllm(12, 34, 0.875, preemptions=9, hits=175, queries=1100, prompt=2600, generated=10_050, names=names)
    expected = {
        "engine/requests/running": 12.0,
        "engine/requests/waiting": 34.0,
        "engine/kv_cache_use": 0.875,
        "engine/kv_cache_use/max": 0.875,
        "engine/preemptions": 2.0,
        "engine/prefix_cache_hit_rate": 75 / 100,
        "engine/tokens_per_second/generated": 50 / 5,
        "engine/tokens_per_second/prompt": 600 / 5,
    }
    if names == "v0":  # it has the rate since its start only
        del expected["engine/prefix_cache_hit_rate"]
    assert between(first, second) == expected


def test_the_data_parallel_engines_of_one_server_are_added():
    """Requests and tokens add up, shares are averaged."""
    found = between(vllm(3, 2, 0.5, engines=4), vllm(3, 2, 0.5, preemptions=1, generated=10, engines=4))
    assert found["engine/requests/running"] == 12.0
    assert found["engine/requests/waiting"] == 8.0
    assert found["engine/kv_cache_use"] == 0.5
    assert found["engine/preemptions"] == 4.0
    assert found["engine/tokens_per_second/generated"] == 8.0


def test_sglang():
    """The counters of 0.5.7 and later, which grow while a request runs."""
    first = sglang(computed=1000, found=500, decoded=100, prompt=10, generated=1, cached=5, retracted=1)
    second = sglang(8, 4, 0.6, computed=1300, found=1400, decoded=350, prompt=999, generated=999, cached=9, retracted=4)
    assert between(first, second) == {
        "engine/requests/running": 8.0,
        "engine/requests/waiting": 4.0,
        "engine/kv_cache_use": 0.6,
        "engine/kv_cache_use/max": 0.6,
        "engine/preemptions": 3.0,
        "engine/prefix_cache_hit_rate": 900 / 1200,
        "engine/tokens_per_second/generated": 250 / 5,
        "engine/tokens_per_second/prompt": 1200 / 5,
    }


def test_sglang_before_0_5_7():
    """Its counters grow with finished requests; a counter that it does not have gives nothing."""
    found = between(sglang(prompt=100, generated=40, cached=10), sglang(prompt=200, generated=90, cached=60))
    assert found["engine/tokens_per_second/prompt"] == 20.0
    assert found["engine/tokens_per_second/generated"] == 10.0
    assert found["engine/prefix_cache_hit_rate"] == 0.5
    assert "engine/preemptions" not in found
    without = between(sglang(prompt=100, hit_rate=0.9), sglang(prompt=200, hit_rate=0.7))
    assert without["engine/prefix_cache_hit_rate"] == 0.7  # its own gauge


def test_ranks_of_sglang_that_share_requests_count_once():
    """Tensor-, pipeline- and expert-parallel ranks report the same requests; data-parallel ranks others."""
    tensor = tuple(f'tp_rank="{rank}",pp_rank="0",moe_ep_rank="{rank}"' for rank in range(4))
    found = between(sglang(decoded=0, ranks=tensor), sglang(5, 2, 0.5, decoded=100, ranks=tensor))
    assert (found["engine/requests/running"], found["engine/tokens_per_second/generated"]) == (5.0, 20.0)
    data = tuple(f'tp_rank="{rank}",pp_rank="0",moe_ep_rank="0",dp_rank="{rank}"' for rank in range(4))
    found = between(sglang(decoded=0, ranks=data), sglang(5, 2, 0.5, decoded=100, ranks=data))
    assert (found["engine/requests/running"], found["engine/tokens_per_second/generated"]) == (20.0, 80.0)
    assert found["engine/kv_cache_use"] == 0.5


def test_priorities_of_sglang_are_parts_of_the_total():
    """With priority scheduling a server has the total and its parts: the total counts."""
    found = between(sglang(priorities=True), sglang(8, 4, priorities=True))
    assert (found["engine/requests/running"], found["engine/requests/waiting"]) == (8.0, 4.0)


def test_a_first_answer_has_no_rates():
    """Counters since the engine's start say nothing about the step."""
    found = readings(read_at(1.0, vllm(generated=1e9, preemptions=50)), None)
    assert set(found) == {
        "engine/requests/running", "engine/requests/waiting", "engine/kv_cache_use", "engine/kv_cache_use/max",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (vllm(generated=1000, prompt=10), vllm(generated=900, prompt=50)),  # a restart
        (vllm(generated=1000, prompt=1e9), vllm(generated=1001, prompt=5)),  # a restart that one counter hides
        (vllm(generated=1000, engines=2), vllm(generated=2000, engines=1)),  # a series is gone
        (sglang(decoded=1000), sglang()),  # no event since the restart
    ],
)
def test_a_restart_gives_no_rate(first: str, second: str):
    """What was counted between two answers is not known: neither negative nor huge, but missing."""
    found = between(first, second)
    assert set(found) & {"engine/tokens_per_second/generated", "engine/tokens_per_second/prompt"} == set()
    assert set(found) & {"engine/preemptions"} == set()
    assert found["engine/requests/running"] == 3.0


def test_a_counter_that_appears_has_grown_from_zero():
    """SGLang serves a counter from its first event on: the first preemption is not lost."""
    found = between(sglang(decoded=100), sglang(decoded=200, retracted=3))
    assert (found["engine/preemptions"], found["engine/tokens_per_second/generated"]) == (3.0, 20.0)


def test_a_server_that_joins_gives_no_huge_rate():
    """A further series of a counter, behind a router, counts from its second answer on."""
    first = read_at(0.0, vllm(generated=100, engines=1))
    second = read_at(5.0, vllm(generated=1_000_000, engines=2).replace("1000000.0", "150.0", 1))
    third = read_at(10.0, vllm(generated=1_000_100, engines=2).replace("1000100.0", "250.0", 1))
    rates = [
        readings(now, before)["engine/tokens_per_second/generated"].value
        for now, before in ((second, first), (third, second))
    ]
    assert rates == [10.0, 40.0]


def test_no_look_up_is_no_hit_rate():
    """Without a token that was looked up there is no rate, not 0; without a hit it is 0."""
    assert "engine/prefix_cache_hit_rate" not in between(vllm(hits=5, queries=9), vllm(hits=5, queries=9))
    assert between(vllm(), vllm(queries=100))["engine/prefix_cache_hit_rate"] == 0.0
    assert between(sglang(computed=1), sglang(computed=100))["engine/prefix_cache_hit_rate"] == 0.0


def test_a_value_that_is_not_finite_is_missing():
    """One NaN costs its own metric only."""
    found = readings(read_at(1.0, vllm(cache="NaN")), None)
    assert "engine/kv_cache_use" not in found
    assert found["engine/requests/running"].value == 3.0


def test_histograms_and_the_times_of_creation_are_ignored():
    """Only the named metrics are read; escaped labels do not end a line."""
    text = HISTOGRAM % {"model": MODEL}
    found = read_at(1.0, text)
    assert (found.gauges, found.counters) == ({}, {})


def test_steps_and_engines():
    """Two engines in a step: means over readings, weighted by their time, then sums over engines."""
    averages = EngineAverages()

    def add(engine: str, found: dict[str, EngineReading], phases: list[str]) -> None:
        averages.add(engine, found, phases, IDS)

    add("a", {"engine/requests/running": EngineReading(2.0)}, ["rollout"])
    add("a", {"engine/requests/running": EngineReading(4.0)}, [])
    add("b", {"engine/requests/running": EngineReading(10.0)}, ["rollout"])
    rates = "engine/tokens_per_second/generated"
    add("a", {rates: EngineReading(100.0, 5.0)}, ["rollout"])
    add("a", {rates: EngineReading(40.0, 15.0)}, ["train"])
    add("b", {rates: EngineReading(7.0, 5.0)}, ["rollout"])
    add("a", {"engine/preemptions": EngineReading(2.0)}, ["rollout"])
    add("a", {"engine/preemptions": EngineReading(3.0)}, [])
    add("b", {"engine/preemptions": EngineReading(0.0)}, ["rollout"])
    add("a", {"engine/prefix_cache_hit_rate": EngineReading(1.0, 100.0)}, [])
    add("b", {"engine/prefix_cache_hit_rate": EngineReading(0.0, 300.0)}, [])
    for engine, use in (("a", 0.2), ("a", 0.8), ("b", 0.1)):
        add(engine, {"engine/kv_cache_use": EngineReading(use), "engine/kv_cache_use/max": EngineReading(use)}, [])
    found = Names("roll").named(averages.take())
    by_engine = {name: value for name, value in found.items() if "/by/" in name}
    assert {name: value for name, value in found.items() if name not in by_engine} == pytest.approx({
        "engine/requests/running": (2 + 4) / 2 + 10,
        "engine/requests/running/during/rollout": 2 + 10,
        "engine/tokens_per_second/generated": (100 * 5 + 40 * 15) / 20 + 7,
        "engine/tokens_per_second/generated/during/rollout": 100 + 7,
        "engine/preemptions": 5,
        "engine/preemptions/during/rollout": 2,
        "engine/prefix_cache_hit_rate": 100 / 400,
        "engine/kv_cache_use": ((0.2 + 0.8) / 2 + 0.1) / 2,
        "engine/kv_cache_use/max": 0.8,
        "engine/reachable": 1,
    })  # fmt: skip
    assert by_engine["engine/requests/running/by/a"] == 3.0
    assert by_engine["engine/tokens_per_second/generated/by/b"] == 7.0
    assert by_engine["engine/kv_cache_use/max/by/b"] == 0.1
    assert list(averages.take()) == []


def test_a_sum_waits_for_the_readings_of_all_engines():
    """A step in which one engine was not read yet has no sum, which would look like a fall; one without it has."""
    averages = EngineAverages()
    for engine in "ab":
        averages.add(engine, {"engine/requests/running": EngineReading(2.0)}, [])
    assert Names("roll").named(averages.take())["engine/requests/running"] == 4.0
    averages.add("a", {"engine/requests/running": EngineReading(2.0)}, [])
    found = Names("roll").named(averages.take())
    assert "engine/requests/running" not in found
    assert found["engine/requests/running/by/a"] == 2.0
    averages.add("a", {"engine/requests/running": EngineReading(2.0)}, [])
    averages.add_failure("b", is_down=True)
    found = Names("roll").named(averages.take())
    assert (found["engine/requests/running"], found["engine/reachable"]) == (2.0, 0.5)
    averages.add("a", {"engine/requests/running": EngineReading(2.0)}, [])  # b was not asked in this step
    assert Names("roll").named(averages.take())["engine/reachable/by/b"] == 0.0


def test_a_sum_counts_an_engine_that_has_no_rate_yet():
    """After its first answer, or its restart, an engine's tokens are not known, and so neither is the sum."""
    averages, first, second = EngineAverages(), read_at(1.0, vllm()), read_at(6.0, vllm(generated=50))
    rate = "engine/tokens_per_second/generated"
    averages.add("a", readings(second, first), [], second.served())
    averages.add("b", readings(first, None), [], first.served())
    found = Names("roll").named(averages.take())
    assert found["engine/requests/running"] == 6.0
    assert rate not in found
    assert found[f"{rate}/by/a"] == 10.0
    idle = read_at(9.0, sglang())  # restarted: it has no counter before its first request
    averages.add("a", readings(second, first), [], second.served())
    averages.add("b", readings(idle, None), [], idle.served())
    assert Names("roll").named(averages.take())[rate] == 10.0


def test_one_engine_has_no_series_of_its_own():
    """They would repeat the total."""
    averages = EngineAverages()
    averages.add("a", {"engine/requests/running": EngineReading(2.0)}, [])
    assert set(Names("roll").named(averages.take())) == {"engine/requests/running", "engine/reachable"}


def test_every_metric_is_in_the_catalogue():
    """With its values by engine and by phase."""
    found = between(vllm(), vllm(queries=10))
    assert set(found) == IDS
    for id in IDS:
        for place in (id, f"{id}/by/{{engine}}", f"{id}/during/{{phase}}"):
            assert REGISTRY.metric(place).family == "engine"
    assert all(math.isfinite(value) for value in found.values())
