"""Console logs of slime: dicts of metrics by train step and by rollout."""

import contextlib
import random
from pathlib import Path

import pytest

from barograph.base.errors import LogError
from barograph.importers.formats.consoles import slime
from barograph.importers.logs import log_at
from barograph.importers.opening import open_run
from barograph.importers.reading.log import Line, look_at
from barograph.importers.recorder import Recorder

RAY = "\x1b[36m(MegatronTrainRayActor pid=12, ip=10.0.0.1)\x1b[0m "


def rollout_lines(rollout: int, steps: int = 2, second: int = 0) -> list[str]:
    """Return the lines of a rollout and its train steps."""
    stamp = f"[2026-08-21 17:{rollout:02d}:{second:02d}]"
    lines = [
        f"(RolloutManager pid=9) {stamp} rollout_metrics.py:268 - perf {rollout}: {{'rollout/response_len/mean': 3.5, "
        f"'perf/rollout_time': {rollout + 0.5}}}",
        f"{RAY}{stamp} train_metric_utils.py:135 - rollout {rollout}: {{'rollout/raw_reward': {rollout / 8}, "
        f"'rollout/log_probs': -0.25, 'rollout/advantages': nan}}",
    ]
    for step in range(rollout * steps, rollout * steps + steps):
        values = f"{{'train/loss': {step / 4}, 'train/grad_norm': np.float64({step}.5), 'train/lr-pg_0': 1e-06}}"
        lines.append(f"{RAY}{stamp} model.py:918 - step {step}: {values}")
    return [*lines, f"{RAY}{stamp} train_metric_utils.py:401 - perf {rollout}: {{'perf/train_time': 10.25}}"]


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_steps_and_rollouts_have_their_own_numbers(tmp_path: Path):
    """Both are counted from 0 and printed in turn; no attempt begins."""
    log = write(tmp_path / "a.log", "noise", *(line for rollout in range(4) for line in rollout_lines(rollout)))
    view = open_run(log)
    assert log_at(log).format == "slime"
    assert view.series("train/loss").steps.tolist() == list(range(8))
    assert view.series("train/grad_norm").values.tolist() == [step + 0.5 for step in range(8)]
    assert view.series("rollout/raw_reward").values.tolist() == [0, 0.125, 0.25, 0.375]
    assert view.series("perf/train_time").steps.tolist() == [0, 1, 2, 3]
    assert len(view.series("rollout/advantages", attempt=1)) == 4
    assert view.info.producer == "slime"
    assert view.series("train/loss").times[2] - view.series("train/loss").times[0] == 60
    assert view.damage() == []


def test_lines_of_older_versions_have_no_prefix(tmp_path: Path):
    """And evaluations, critics and other groups of metrics are read too."""
    lines = [
        "eval 0: {'eval/aime': 0.25, 'eval/aime-truncated_ratio': 0.0}",
        "passrate 0: {'passrate/pass@1': 0.5}",
        "step 0 full: {'train/loss': 0.1}",
        "critic-step 0: {'train/critic-value_loss': 2.0}",
    ]
    view = open_run(write(tmp_path / "a.log", *lines))
    assert {name: view.series(name).values.tolist() for name in view.names()} == {
        "eval/aime": [0.25], "eval/aime-truncated_ratio": [0.0], "passrate/pass@1": [0.5], "train/loss": [0.1],
        "train/critic-value_loss": [2.0],
    }  # fmt: skip


def test_a_training_that_was_started_again_is_another_attempt(tmp_path: Path):
    """From the first row that comes again."""
    lines = [line for rollout in (0, 1, 2, 1, 2, 3) for line in rollout_lines(rollout)]
    view = open_run(write(tmp_path / "a.log", *lines))
    assert view.series("train/loss", attempt=1).steps.tolist() == list(range(6))
    assert view.series("train/loss", attempt=2).steps.tolist() == list(range(2, 8))
    assert view.series("rollout/raw_reward", attempt=2).steps.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("Job 'raysubmit_abc' succeeded", "finished"),
        ("Job 'raysubmit_abc' failed", "crashed"),
        ("Job 'raysubmit_abc' was stopped", "killed"),
    ],
)
def test_the_job_tells_how_it_ended(tmp_path: Path, line: str, word: str):
    """At the end of what ``ray job submit`` prints."""
    view = open_run(write(tmp_path / "a.log", *rollout_lines(0), line))
    assert view.status.word == word
    assert line in view.status.reason


def test_miles_is_told_by_its_files(tmp_path: Path):
    """It prints the same lines."""
    view = open_run(write(tmp_path / "a.log", "python /root/miles/train.py", *rollout_lines(0)))
    assert view.info.producer == "miles"


def test_lines_of_several_processes_are_one_row(tmp_path: Path):
    """As miles prints them: the same one twice, or one of each rank."""
    stamp = "[2026-09-04 01:00:00.000 actor_cell0_rank"
    lines = [f"{stamp}0] step 0: {{'train/loss': 0.25}}"] * 2 + [f"{stamp}1] step 0: {{'train/loss': 99.0}}"]
    view = open_run(write(tmp_path / "a.log", *lines, f"{stamp}0] step 1: {{'train/loss': 0.5}}"))
    assert view.series("train/loss", attempt=1).values.tolist() == [0.25, 0.5]
    assert view.series("train/loss").times[0] == 1788483600


def test_a_second_opening_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And a line that cannot be read is reported with its number."""
    log = write(tmp_path / "a.log", *rollout_lines(0))
    open_run(log)
    numbers: list[int] = []
    read = slime.ConsoleReader.line

    def count(self: slime.ConsoleReader, line: Line, out: Recorder) -> bool:
        numbers.append(line.number)
        return read(self, line, out)

    monkeypatch.setattr(slime.ConsoleReader, "line", count)
    write(log, *rollout_lines(0), "step 3: {'train/loss': <object>}", *rollout_lines(1))
    view = open_run(log)
    assert numbers == list(range(6, 12))
    assert "line 6" in view.damage()[0]
    assert view.series("train/loss").steps.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("text", ["step 1: {'loss': 1}\n", "the step 3: {}\n", "step 1\n"])
def test_other_lines_are_no_log_of_slime(tmp_path: Path, text: str):
    """Its metrics have groups."""
    log = tmp_path / "a.log"
    log.write_text(text)
    seen = look_at(log)
    assert seen is not None
    assert not slime.matches(seen)


def test_a_damaged_log_raises_nothing(tmp_path: Path):
    """Random bytes anywhere."""
    data = "".join(f"{line}\n" for rollout in range(3) for line in rollout_lines(rollout)).encode()
    chance = random.Random(5)
    for number in range(40):
        broken = bytearray(data)
        for _ in range(chance.choice((1, 10, 100))):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        log = tmp_path / f"{number}.log"
        log.write_bytes(broken)
        with contextlib.suppress(LogError):  # no line may be left
            open_run(log)
