"""Console logs of OpenRLHF: dicts of steps, and metrics behind progress bars."""

import contextlib
import math
import random
from pathlib import Path

import pytest

from barograph.base.errors import LogError
from barograph.importers.logs import log_at
from barograph.importers.opening import open_run
from barograph.journal.view import View

RAY = "\x1b[36m(PPOTrainer pid=77)\x1b[0m "


def step_line(step: int, star: str = "✨ ") -> str:
    """Return the line of a step since 2025."""
    values = (
        f"{{'policy_loss': {step / 8}, 'reward': {step / 4}, 'kl': nan, 'actor_lr': 5e-07, 'timing/generation': 2.5}}"
    )
    return f"{RAY}INFO 08-13 19:25:{step:02d} ppo_trainer.py:547] {star}Global step {step}: {values}"


def bar(title: str, place: int, total: int, **metrics: float) -> str:
    """Return a progress bar as tqdm draws it."""
    behind = "".join(f", {name}={value:.3g}" for name, value in metrics.items())
    done = f"{100 * place // total:3d}%|███       | {place}/{total}"
    return f"{title}: {done} [00:{place:02d}<00:09,  1.50s/it{behind}]"


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), newline="")
    return path


def values(view: View, attempt: int | None = None) -> dict[str, dict[int, float]]:
    """Return the values of each metric by step."""
    found = {name: view.series(name, attempt=attempt) for name in view.names()}
    return {
        name: dict(zip(series.steps.tolist(), series.values.tolist(), strict=True)) for name, series in found.items()
    }


def test_a_dict_per_step_is_read(tmp_path: Path):
    """With NaN; evaluations name their step in two ways, and the bars of updates are none of the rows."""
    log = write(
        tmp_path / "a.log",
        bar("Train epoch [1/1]", 2, 2, act_loss=1.0),
        step_line(1),
        bar("Train epoch [1/1]", 2, 2, act_loss=2.0),
        step_line(2, star=""),
        "INFO ppo_trainer.py:594] ✨ Evaluation completed in 0:01:02, global_step 2, eval_metrics: {'eval_a': 0.5}",
        "INFO 08-13 ppo_trainer_async.py:214] Eval at step 1: {'eval_b': 0.25}",
        bar("Train epoch [1/1]", 1, 2, act_loss=3.0),
    )
    view = open_run(log)
    assert (log_at(log).format, view.info.producer) == ("openrlhf", "openrlhf")
    found = values(view)
    assert math.isnan(found.pop("kl")[1])
    assert found == {
        "policy_loss": {1: 0.125, 2: 0.25}, "reward": {1: 0.25, 2: 0.5}, "actor_lr": {1: 5e-7, 2: 5e-7},
        "timing/generation": {1: 2.5, 2: 2.5}, "eval_a": {2: 0.5}, "eval_b": {1: 0.25},
    }  # fmt: skip
    assert view.damage() == []


def test_a_step_that_comes_again_is_another_attempt(tmp_path: Path):
    """And the job tells how it ended."""
    lines = [step_line(1), step_line(2), step_line(1), "Job 'raysubmit_abc' succeeded"]
    view = open_run(write(tmp_path / "a.log", *lines))
    assert [len(view.series("reward", attempt=attempt)) for attempt in (1, 2)] == [2, 1]
    assert "succeeded" in view.status.reason


@pytest.mark.parametrize(("code", "word"), [(-6, "crashed"), (1, "crashed"), (-9, "killed")])
def test_the_launcher_tells_how_a_process_ended(tmp_path: Path, code: int, word: str):
    """As DeepSpeed's does, after the whole command."""
    end = f"[2024-09-05 09:17:51,446] [ERROR] [launch.py:325] ['python'] exits with return code = {code}"
    view = open_run(write(tmp_path / "a.log", step_line(1), end))
    assert (view.status.word, view.status.reason) == (word, f"line 2: exits with return code = {code}")


def test_a_bar_of_an_episode_has_the_metrics_of_its_steps(tmp_path: Path):
    """It is drawn with the metrics of a step, and once more when it has moved on, with or without new lines."""
    draws = [bar("Episode [1/2]", 0, 3)]
    for episode in (1, 2):
        for place in range(3):
            metrics = {"policy_loss": place / 8, "reward": episode + place / 4}
            draws += [bar(f"Episode [{episode}/2]", at, 3, **metrics) for at in (place, place + 1)]
            draws.insert(-2, bar("Train epoch [1/1]", 1, 1, pg=0.5))
    expected = {step: [1, 1.25, 1.5, 2, 2.25, 2.5][step - 1] for step in range(1, 7)}
    for name, end in (("lines", "\n"), ("one", "\r")):
        log = tmp_path / f"{name}.log"
        log.write_text(end.join(draws) + "\n", newline="")
        view = open_run(log)
        assert values(view, attempt=1)["reward"] == expected
        assert set(view.names()) == {"policy_loss", "reward"}
        assert "three digits" in view.origin.notes[0]


def test_bars_of_updates_are_steps_where_there_are_no_others(tmp_path: Path):
    """Of the actor and of the critic, which are drawn in turn; with the metrics of the last pass."""
    draws = []
    for update in range(3):
        for number in (1, 2):
            for place in range(3):
                draws.append(bar(f"Train epoch [{number}/2]", place, 2, pg=update + number / 8 + place / 64, rm=0.5))
                draws.append(bar(f"Train epoch [{number}/2]", place, 2, cri=update / 4))
    view = open_run(write(tmp_path / "a.log", *draws))
    assert values(view) == {
        "pg": {update + 1: float(f"{update + 0.28125:.3g}") for update in range(3)},
        "rm": {1: 0.5, 2: 0.5, 3: 0.5},
        "cri": {1: 0, 2: 0.25, 3: 0.5},
    }
    assert any("counted" in note for note in view.origin.notes)


def test_bars_of_skyrl_are_told_from_those_of_openrlhf(tmp_path: Path):
    """They name the model; where it prints dicts too, those are read."""
    draws = [bar("Policy Train epoch [1/1]", place, 2, pg=place / 8) for _ in range(3) for place in (0, 1, 2)]
    view = open_run(write(tmp_path / "a.log", *draws))
    assert (view.info.producer, values(view)["pg"]) == ("skyrl", {1: 0.25, 2: 0.25, 3: 0.25})
    log = write(tmp_path / "b.log", *draws, "Step 1: ", "{'reward/avg': '0.5000'}")
    assert log_at(log).format == "skyrl"


def test_a_supervised_training_is_read_from_its_bar(tmp_path: Path):
    """Steps go on in the next epoch."""
    draws = [bar(f"Train step of epoch {epoch}", place, 4, loss=2 - epoch - place / 8, lr=1e-5) for epoch in (0, 1)
             for place in range(4)]  # fmt: skip
    view = open_run(write(tmp_path / "a.log", *draws))
    assert values(view)["loss"] == {1 + 4 * epoch + place: float(f"{2 - epoch - place / 8:.3g}") for epoch in (0, 1)
                                    for place in range(4)}  # fmt: skip


def test_bars_are_followed_in_pieces(tmp_path: Path):
    """Whatever is read at once, the rows are those of the whole log."""
    draws = [bar("Train epoch [1/1]", place, 2, pg=update + place / 8) for update in range(5) for place in range(3)]
    data = "".join(f"{draw}\n" for draw in draws).encode()
    log = tmp_path / "a.log"
    chance = random.Random(1)
    cuts = sorted(chance.sample(range(300, len(data)), 6))
    for cut in (*cuts, len(data)):
        log.write_bytes(data[:cut])
        view = open_run(log)
    assert values(view)["pg"] == {update + 1: float(f"{update + 0.25:.3g}") for update in range(5)}


@pytest.mark.parametrize("text", ["Global step 3: done\n", "Loading:  50%|███  | 1/2 [00:01<00:01, a=1]\n", "%|\n"])
def test_other_texts_are_no_log_of_openrlhf(tmp_path: Path, text: str):
    """Progress bars of other programs are not either."""
    log = tmp_path / "a.log"
    log.write_text(text)
    with pytest.raises(LogError):
        open_run(log)


def test_a_damaged_log_raises_nothing(tmp_path: Path):
    """Random bytes anywhere."""
    lines = [line for step in range(5) for line in (step_line(step), bar("Episode [1/1]", step, 5, reward=step))]
    data = "".join(f"{line}\n" for line in lines).encode()
    chance = random.Random(5)
    for number in range(40):
        broken = bytearray(data)
        for _ in range(chance.choice((1, 10, 100))):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        log = tmp_path / f"{number}.log"
        log.write_bytes(broken)
        with contextlib.suppress(LogError):  # no line may be left
            open_run(log)
