"""Recorded spans: summaries, timelines, traces, and the commands that show them."""

import json
import math
import threading
from pathlib import Path

import numpy as np
import pytest
from probing import KnownDevice, Time, known_run
from rich.console import Console

import barograph
from barograph.answers.export import trace
from barograph.answers.phases import summaries, timeline
from barograph.apps.cli import main
from barograph.apps.terminal.phases import chart, show_phases
from barograph.base.model import PhaseSpan, Writer
from barograph.journal.format import frames
from barograph.journal.format.frames import FAILED, TIMER
from barograph.journal.read.spans import SpanPart, SpanTable, Texts, decode_spans

WRITER = Writer("trainer", 0, 1)


def span(name: str, start: float, end: float | None, **more: object) -> PhaseSpan:
    """Return a span, by default without onload and offload."""
    execute = None if end is None else end - start
    fields = {"id": int(start * 100) + 1, "execute": execute, **more}
    return PhaseSpan(name, WRITER, 0, start, end, **fields)  # type: ignore[arg-type]


def table_of(spans: list[PhaseSpan]) -> SpanTable:
    """Return spans as a reader has them."""
    texts, parts = Texts(), []
    for writer in dict.fromkeys(span.writer for span in spans):
        payloads = [payload_of(span) for span in spans if span.writer == writer]
        rows = decode_spans(range(len(payloads)), payloads, texts)
        parts.append(SpanPart(writer, 0, rows, rows["step"], (np.zeros(len(rows), np.int64), rows["first"])))
    return SpanTable(parts, texts)


def payload_of(span: PhaseSpan) -> bytes:
    """Return the last frame of a span."""
    flags = (TIMER if span.timer else 0) | (FAILED if span.failed else 0)
    head = span.id, span.parent or 0, span.step, span.start, flags, span.name.encode(), span.lane.encode()
    if span.end is None:
        return frames.phase_open_payload(*head)
    known = (span.end - span.start, span.onload, span.execute, span.offload, span.tokens, span.peak, span.rss)
    tail = tuple(math.nan if value is None else value for value in known)
    return frames.phase_close_payload(*head, tail, span.token_kind.encode())


def recorded() -> barograph.Run:
    """Record three steps with everything that a chart shows."""
    time, device = Time(), KnownDevice()
    run = known_run(time, [device], settings={"name": "frozen_lake"})
    for step in range(3):
        with run.timer("rollout"), run.phase("actor_infer/generate", tokens={"generated": 1000}):
            device.hold(2**30)
            time.now += 10.0
        with run.phase("actor_train/train_step", onload=time.passes(2.0), offload=time.passes(1.0)):
            time.now += 5.0 + step
        with pytest.raises(ValueError, match="bad"), run.phase("reward"):
            time.now += 1.0
            raise ValueError("bad")
        time.now += 2.0
        run.commit(step)
    return run


def test_a_summary_of_each_phase():
    """It has count, mean, p95, maximum, share, tokens per second and peak."""
    spans = [span("train", n, n + 1 + n / 100, tokens=10.0, peak=float(n)) for n in range(0, 100, 2)]
    [train] = summaries(table_of(spans), {WRITER: {0: (0.0, 200.0)}})
    assert (train.count, train.failed, train.max, train.slowest) == (50, 0, pytest.approx(1.98), WRITER)
    assert train.mean == pytest.approx(1.49)
    assert train.p95 == pytest.approx(1.94)
    assert train.share == pytest.approx(74.5 / 200)
    assert train.tokens_per_second == pytest.approx(500 / 74.5)
    assert train.peak == 98.0


def test_no_share_exceeds_one():
    """Four parallel spans fill the step once."""
    spans = [span("train", 0.0, 10.0, lane=f"t{n}", id=n + 1) for n in range(4)]
    [train] = summaries(table_of(spans), {WRITER: {0: (0.0, 10.0)}})
    assert train.share == 1.0


def test_open_spans_are_not_in_a_summary():
    """Their duration is not known."""
    assert summaries(table_of([span("train", 0.0, None)]), {}) == []


def test_a_timeline_nests_and_groups():
    """Rows are by nesting, groups by lane; many lanes with the same phases are one group."""
    spans = [
        span("rollout", 0.0, 6.0, id=1),
        span("generate", 1.0, 3.0, id=2, parent=1),
        span("generate", 4.0, 5.0, id=3, parent=1),
        span("train", 6.5, 8.0, id=4),
        *(span("reward", 2.0 + n / 10, 3.0, id=10 + n, lane=f"Task-{n}") for n in range(6)),
    ]
    laid_out = timeline(spans, {WRITER: {0: (0.0, 10.0)}}, 0, 10.0)
    assert laid_out is not None
    assert [(title, [(row.name, row.depth, len(row.spans)) for row in rows]) for title, rows in laid_out.groups] == [
        ("trainer/0 · main", [("rollout", 0, 1), ("generate", 1, 2), ("train", 0, 1)]),
        ("trainer/0 · 6 lanes", [("reward", 0, 6)]),
    ]
    assert laid_out.unaccounted == pytest.approx(0.25)
    assert laid_out.overlap == pytest.approx(0.1)
    assert timeline(spans, {}, 7, 10.0) is None


def test_a_timeline_has_the_overlap_of_phases_inside_a_timer():
    """The share is that of the metric: parallel spans inside one count, the one around them does not."""
    spans = [
        span("rewards", 0.0, 10.0, id=1, timer=True),
        span("reward", 2.0, 6.0, id=2, parent=1, lane="Task-2"),
        span("reward", 3.0, 9.0, id=3, parent=1, lane="Task-3"),
    ]
    laid_out = timeline(spans, {WRITER: {0: (0.0, 10.0)}}, 0, 10.0)
    assert laid_out is not None
    assert (laid_out.unaccounted, laid_out.overlap) == (0.0, pytest.approx(0.3))


def lines_of(spans: list[PhaseSpan], width: int, now: float = 10.0) -> list[str]:
    laid_out = timeline(spans, {WRITER: {0: (0.0, 10.0)}}, 0, now)
    assert laid_out is not None
    return [line.plain for line in chart(laid_out, width)]


def test_a_chart_shades_the_stages_of_a_phase():
    """Onload, execute and offload have their own shades, in proportion."""
    lines = lines_of([span("t", 2.0, 8.0, onload=1.0, execute=4.0, offload=1.0), span("r", 8.0, 10.0, timer=True)], 33)
    bars = [line[13:] for line in lines if line.startswith("  ")]
    assert bars[1:] == ["    ░░████████▒▒    ", "                ━━━━"]
    assert lines[-1] == "░ onload  █ execute  ▒ offload  ━ timer"


def test_a_chart_shows_short_failed_and_open_phases():
    """Every phase has at least one column; failed and open spans have symbols."""
    lines = lines_of([span("s", 5.0, 5.001), span("f", 1.0, 4.0, failed=True), span("o", 6.0, None)], 33)
    bars = {line[2]: line[13:].rstrip() for line in lines if line.startswith("  ") and line[2] != " "}
    assert bars == {"f": "  █████✗", "s": "          █", "o": "            ███████▶"}
    assert lines[-1] == "█ phase  ✗ failed  ▶ still open"


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(width: int):
    """With the usual widths and very long names."""
    spans = [span("reference/compute_log_probs_of_everything_that_there_is/again", n, n + 1.0) for n in range(9)]
    lines = lines_of(spans, width)
    assert all(len(line) <= width for line in lines)
    assert any("…" in line for line in lines)


def test_the_command_shows_a_table_and_a_chart(capsys: pytest.CaptureFixture[str]):
    """Of the last step, or of the given step."""
    run = recorded()
    assert main(["phases", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("COUNT", "P95", "actor_train/train_step", "3 3✗", "step 2", "1.1 GB"))
    assert main(["phases", str(run.path), "--step", "1", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    train = next(phase for phase in output["phases"] if phase["name"] == "actor_train/train_step")
    assert (train["count"], train["mean"], train["slowest"]) == (1, pytest.approx(9.0), "trainer/0")
    assert [one["name"] for one in output["timeline"]["spans"]] == [
        "rollout", "actor_infer/generate", "actor_train/train_step", "reward",
    ]  # fmt: skip


def test_the_command_rejects_runs_and_steps_without_phases(capsys: pytest.CaptureFixture[str]):
    """The error names the recorded steps."""
    run = barograph.init()
    run.log({"a": 1.0}, step=0)
    assert main(["phases", str(run.path)]) == 1
    assert "has no phases: record them with `with run.phase(name):`" in capsys.readouterr().err
    with run.phase("train"):
        pass
    run.commit(4)
    assert main(["phases", str(run.path), "--step", "9"]) == 1
    assert "no phases in step 9; it has steps 4 to 4" in capsys.readouterr().err


def test_the_table_names_the_slowest_of_several_writers():
    """It is shown after the maximum."""
    spans = [span("train", 0.0, 1.0), span("train", 0.0, 3.0)]
    other = Writer("trainer", 5, 1)
    spans[1] = PhaseSpan("train", other, 0, 0.0, 3.0, 2, execute=3.0)
    windows = {WRITER: {0: (0.0, 4.0)}, other: {0: (0.0, 4.0)}}
    laid_out = timeline(spans, windows, 0, 4.0)
    assert laid_out is not None
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    show_phases(console, "ranks", summaries(table_of(spans), windows), laid_out)
    console.file.close()
    text = console.export_text()
    assert "3.0s trainer/5" in text
    assert "50.0%" in text


def check_trace(made: dict[str, object]) -> list[dict[str, object]]:
    """Check the requirements of Chrome's format, and that slices of a thread nest."""
    events: list[dict[str, object]] = made["traceEvents"]  # type: ignore[assignment]
    assert events
    by_thread: dict[tuple[object, object], list[tuple[float, float]]] = {}
    for event in events:
        assert event["ph"] in ("M", "X", "B")
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "X":
            start, dur = event["ts"], event["dur"]
            assert isinstance(start, float)
            assert isinstance(dur, float)
            assert dur >= 0
            by_thread.setdefault((event["pid"], event["tid"]), []).append((start, start + dur))
    for slices in by_thread.values():
        open_ends: list[float] = []
        for start, end in sorted(slices, key=lambda both: (both[0], -both[1])):
            while open_ends and open_ends[-1] <= start + 1e-4:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 1e-4
            open_ends.append(end)
    return events


def test_a_trace_has_a_process_for_each_writer_and_a_thread_for_each_lane(tmp_path: Path):
    """Slices nest, stages are in their phases, and steps have a lane."""
    run = recorded()
    target = tmp_path / "trace.json"
    assert main(["export", str(run.path), "--to", "perfetto", "-o", str(target)]) == 0
    events = check_trace(json.loads(target.read_text()))
    names = [event["args"]["name"] for event in events if event["ph"] == "M"]  # type: ignore[index]
    assert names == ["trainer/0", "steps", "main"]
    counted = {name: sum(event["name"] == name for event in events) for name in ("onload", "rollout", "step 1")}
    assert counted == {"onload": 3, "rollout": 3, "step 1": 1}


def test_a_trace_shows_open_spans_and_splits_lanes_that_do_not_nest():
    """Perfetto drops slices that overlap without nesting, so they get another lane."""
    spans = [span("a", 0.0, 4.0), span("b", 2.0, 6.0), span("c", 7.0, None)]
    events = check_trace(trace(spans, {}, "run", "id"))
    assert [e["args"]["name"] for e in events if e["name"] == "thread_name"] == ["steps", "main", "main (2)"]  # type: ignore[index]
    [begun] = [event for event in events if event["ph"] == "B"]
    assert begun["name"] == "c"
    assert "dur" not in begun


def test_a_trace_is_written_to_standard_output(capsys: pytest.CaptureFixture[str]):
    """Without -o."""
    run = recorded()
    assert main(["export", str(run.path), "--to", "perfetto"]) == 0
    check_trace(json.loads(capsys.readouterr().out))


def test_show_prints_the_open_phases(capsys: pytest.CaptureFixture[str]):
    """The innermost open phase of each lane."""
    run = known_run()
    entered, leave = threading.Event(), threading.Event()

    def explore() -> None:
        with run.phase("explore"):
            entered.set()
            leave.wait(10.0)

    thread = threading.Thread(target=explore, name="explorer")
    with run.timer("rollout"), run.phase("generate"):
        thread.start()
        assert entered.wait(10.0)
        main(["show", str(run.path), "--json"])
        output = json.loads(capsys.readouterr().out)["open_phases"]
        main(["show", str(run.path)])
        shown = capsys.readouterr().out
    leave.set()
    thread.join()
    assert [line.split(" of ")[0] for line in output] == ["generate", "explore"]
    assert "generate of step 0" in shown
