"""Console logs of AReaL: tables after the line of each train step."""

import os
import random
from pathlib import Path

import pytest

from barograph.base.errors import LogError
from barograph.importers.formats.consoles import areal
from barograph.importers.logs import log_at
from barograph.importers.opening import open_run

START = "2025-11-12T20:32:%02d.500000000Z "
GREEN, RESET = "\x1b[92m", "\x1b[0m"


def table(values: dict[str, float], columns: int = 4) -> list[str]:
    """Return the lines of a table as tabulate writes it in the format "fancy_grid", names going down the columns."""
    items = [(name, f"{value:.4e}") for name, value in values.items()]
    height = -(-len(items) // columns)
    rows = [[items[i + j * height] for j in range(columns) if i + j * height < len(items)] for i in range(height)]
    lines = ["╒" + "╤".join(["══════════"] * 2 * columns) + "╕"]
    for number, row in enumerate(rows):
        cells = [f" {name} │ {value:>11} " for name, value in row] + ["          │          "] * (columns - len(row))
        lines += ["├" + "┼".join(["──────────"] * 2 * columns) + "┤"] * (number > 0) + ["│" + "│".join(cells) + "│"]
    return [*lines, "╘" + "╧".join(["══════════"] * 2 * columns) + "╛"]


def values_of(step: int) -> dict[str, float]:
    """Return the metrics of a step."""
    return {f"actor/m{i}": float(f"{step + i / 7:.4e}") for i in range(9)} | {"rollout/reward": float("nan")}


def step_lines(step: int, second: int = 0, epoch: int = 1, values: dict[str, float] | None = None) -> list[str]:
    """Return the lines of a step, with the time stamps of a container."""
    lines = [
        f"{GREEN}20251112-20:32:{second:02d}.100 StatsLogger INFO: Epoch {epoch}/2 Step {step}/5 "
        f"Train step {step + 5 * (epoch - 1)}/10 done.{RESET}",
        f"{GREEN}20251112-20:32:{second:02d}.200 StatsLogger INFO: Stats (1/1):{RESET}",
        f"{GREEN}20251112-20:32:{second:02d}.300 StatsLogger INFO: ",
        *table(values or values_of(step + 5 * (epoch - 1))),
    ]
    return [START % second + line for line in lines]


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_table_is_the_row_of_its_train_step(tmp_path: Path):
    """With values, epoch and time as printed; steps go on in the second epoch."""
    lines = [line for step in (1, 2, 3, 4, 5) for line in step_lines(step, step)]
    log = write(tmp_path / "train.log", "noise", *lines, *step_lines(1, 9, epoch=2))
    view = open_run(log)
    assert log_at(log).format == "areal"
    assert view.series("actor/m8").steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert view.series("actor/m8").values.tolist() == [values_of(step)["actor/m8"] for step in range(1, 7)]
    assert view.series("epoch").values.tolist() == [1, 1, 1, 1, 1, 2]
    assert view.series("rollout/reward").values.tolist() == pytest.approx([float("nan")] * 6, nan_ok=True)
    assert view.series("epoch").times[0] == 1762979521.5  # of the container, 20:32:01.5 UTC
    assert view.config["total_train_steps"] == 10
    assert view.damage() == []


def test_experiment_trial_and_version_are_told(tmp_path: Path):
    """By the lines of the launcher and of pip, where the log has them."""
    launch = (
        "20251112-20:31:16.955 Local Scheduler INFO: LocalLauncher: experiment_name=gsm8k, trial_name=t1, fileroot=x"
    )
    log = write(tmp_path / "train.log", "Successfully installed areal-0.3.4", launch, *step_lines(1))
    view = open_run(log)
    assert (view.info.project, view.info.name, view.info.producer) == ("gsm8k", "t1", "areal/0.3.4")
    assert (view.config["experiment_name"], view.config["trial_name"]) == ("gsm8k", "t1")


def test_the_time_of_areal_is_used_where_there_is_no_other(tmp_path: Path):
    """It has no zone and is taken for UTC."""
    lines = [line.partition("Z ")[2] for line in step_lines(1, 7)]
    view = open_run(write(tmp_path / "a.log", *lines))
    assert view.series("epoch").times[0] == view.info.created == 1762979527.1


def test_a_step_that_is_printed_again_is_another_attempt(tmp_path: Path):
    """Also when it is the only one, as in a crash loop."""
    crash = ["Traceback (most recent call last):", "  File x", "torch.OutOfMemoryError: CUDA out of memory."]
    late = ["Traceback (most recent call last):", "RuntimeError: cannot schedule new futures after shutdown"]
    log = write(tmp_path / "train.log", *(step_lines(1) + crash + late) * 3)
    view = open_run(log)
    assert [len(view.series("epoch", attempt=attempt)) for attempt in (1, 2, 3)] == [1, 1, 1]
    assert (view.status.word, "OutOfMemory" in view.status.reason) == ("crashed", True)


def test_the_last_line_tells_that_the_training_finished(tmp_path: Path):
    """Whatever fails after it; a table after it is a training that goes on."""
    done = f"{GREEN}20251123-14:39:51.132 StatsLogger INFO: Training completes! Total time elapsed 596.45.{RESET}"
    after = ["Traceback (most recent call last):", "ValueError: no checkpoint to test"]
    log = write(tmp_path / "train.log", *step_lines(1), done, *after)
    assert open_run(log).status.word == "finished"
    write(log, *step_lines(1), done, *step_lines(2), *after)
    assert (open_run(log).status.word, open_run(log).status.reason) != ("finished", "")
    assert open_run(log).status.word == "crashed"


def test_a_table_that_is_cut_is_kept_and_continued(tmp_path: Path):
    """At any place: complete cells are there at once, the rest when the log has it, and no step is counted twice."""
    whole = "".join(f"{line}\n" for step in (1, 2) for line in step_lines(step, step))
    data = whole.encode()
    begin = data.index(b"Train step 2/10")
    for cut in random.Random(3).sample(range(begin, len(data)), 25):
        log = tmp_path / f"{cut}.log"
        log.write_bytes(data[:cut])
        first = open_run(log)
        assert first.series("epoch").values.tolist()[0] == 1
        log.write_bytes(data)
        view = open_run(log)
        assert {name: view.series(name).values.tolist()[1] for name in values_of(2)} == pytest.approx(
            values_of(2), nan_ok=True
        )
        assert view.series("epoch").steps.tolist() == [1, 2]
        assert view.damage() == []


def test_a_line_that_was_cut_for_long_is_read_again(tmp_path: Path):
    """The file was quiet, and then continued on the same line; a log that ends so is read as far as it goes."""
    data = "".join(f"{line}\n" for line in step_lines(1)).encode()
    cut = data.index(b"actor/m3") + 4
    log = tmp_path / "train.log"
    log.write_bytes(data[:cut])
    os.utime(log, (1e9, 1e9))
    view = open_run(log)
    assert set(view.names()) == {"epoch", "actor/m0"}
    assert "cut" in view.damage()[0]
    log.write_bytes(data)
    view = open_run(log)
    assert set(view.names()) == {"epoch", *values_of(1)}
    assert view.damage() == []


def test_a_second_opening_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The state tells how far the log was read."""
    log = write(tmp_path / "train.log", *step_lines(1), *step_lines(2))
    open_run(log)
    size = log.stat().st_size
    write(log, *step_lines(1), *step_lines(2), *step_lines(3))
    seen: list[int] = []

    original = areal.ConsoleReader.line

    def counted(self, line, out):
        seen.append(line.number)
        return original(self, line, out)

    monkeypatch.setattr(areal.ConsoleReader, "line", counted)
    assert open_run(log).series("epoch").steps.tolist() == [1, 2, 3]
    assert len(seen) == 7  # the step, the number of its tables, three rows and both borders
    assert log.stat().st_size > size


def test_several_tables_of_a_step_are_one_step(tmp_path: Path):
    """As versions print them that log each mini-batch."""
    second = [line.replace("(1/1)", "(2/2)") for line in step_lines(1, values={"actor/loss": 2.0, "actor/lr": 1.0})[1:]]
    log = write(tmp_path / "a.log", *step_lines(1, values={"actor/loss": 1.0, "reward": 3.0}), *second)
    view = open_run(log)
    assert {name: view.series(name).values.tolist() for name in view.names()} == {
        "actor/loss": [2.0], "actor/lr": [1.0], "epoch": [1.0], "reward": [3.0],
    }  # fmt: skip
    assert "several tables" in view.origin.notes[0]


def test_tables_without_steps_are_counted(tmp_path: Path):
    """A log of which only the tables were kept; the end of one without its beginning is reported."""
    tables = [line for step in (7, 8) for line in table(values_of(step))]
    view = open_run(write(tmp_path / "a.log", *table(values_of(6))[-2:], *tables))
    assert view.series("actor/m0").steps.tolist() == [1, 2]
    assert view.series("actor/m0").values.tolist() == [7, 8]
    assert "without its beginning" in view.damage()[0]


def test_the_tables_of_older_versions_follow_the_line_of_the_step(tmp_path: Path):
    """Several of them, and the time of the whole step at its end."""
    lines = []
    for step in (1, 2, 3):
        lines += [
            f"20250601-10:00:0{step}.000 master worker INFO: The next step is epoch 1/2 step {step}/5 "
            f"(global step {step}). Should checkpoint? False.",
            "20250601-10:00:05.000 master worker INFO: RPC name actor_train returns (1/2)",
            *table({"ppo_actor/loss": step / 4}),
            "20250601-10:00:05.000 master worker INFO: RPC name actor_train returns (2/2)",
            *table({"ppo_actor/loss": step / 2}),
            "20250601-10:00:05.000 master worker INFO: Model rpc actor_train finished. Detailed time stats:",
            *table({"timeperf/train": 1.25}),
            f"20250601-10:00:09.000 master worker INFO: Epoch 1/2 step {step}/5 (global step {step}) finishes. "
            "#End to end# execution time: *12.500*s. Total time consumption: 20.000s. ",
        ]
    view = open_run(write(tmp_path / "a.log", *lines, "master worker INFO: Experiment Completes! Yeah!!!!!!!!"))
    assert {name: view.series(name).values.tolist() for name in view.names()} == {
        "ppo_actor/loss": [0.5, 1.0, 1.5], "timeperf/train": [1.25] * 3, "timeperf/e2e": [12.5] * 3, "epoch": [1] * 3,
    }  # fmt: skip
    assert len(view.series("ppo_actor/loss", attempt=1)) == 3
    assert view.config["total_train_steps"] == 10
    assert "Experiment Completes" in view.status.reason


@pytest.mark.parametrize("text", ["", "Train step\n", "│ a │ b │\n", "╒══╕\n│ a │ 1 │\n╘══╛\n"])
def test_other_texts_are_no_log_of_areal(tmp_path: Path, text: str):
    """A message says so."""
    log = tmp_path / "a.log"
    log.write_text(text)
    with pytest.raises(LogError):
        open_run(log)


def test_a_damaged_log_is_read_as_far_as_it_is_whole(tmp_path: Path):
    """Random bytes anywhere raise nothing."""
    data = "".join(f"{line}\n" for step in (1, 2, 3) for line in step_lines(step, step)).encode()
    chance = random.Random(1)
    for number in range(40):
        broken = bytearray(data)
        for _ in range(chance.choice((1, 10, 300))):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        log = tmp_path / f"{number}.log"
        log.write_bytes(broken[: chance.randrange(len(broken) // 2, len(broken))])
        try:
            view = open_run(log)
        except LogError:
            continue
        assert all(len(view.series(name)) <= 3 for name in view.names())
