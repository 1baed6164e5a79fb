"""Rollout dumps of several frameworks, read as samples."""

import json
import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import barograph
from barograph.base.errors import LogError
from barograph.importers.formats import recognise
from barograph.importers.logs import logs_at
from barograph.importers.reading.log import look_at

LONG_AGO = 1_600_000_000.0
ASK, ANSWER = {"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}


def write(path: Path, records: Iterable[Any]) -> Path:
    """Write JSON lines that were not changed lately."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def verl(step: int, *scores: float, **more: Any) -> list[dict[str, Any]]:
    return [
        {"input": f"{n}?", "output": f"{n}!", "gts": str(n), "score": score, "step": step, "acc": score > 0, **more}
        for n, score in enumerate(scores)
    ]


def points(view: barograph.View, name: str) -> dict[int, float]:
    series = view.series(name)
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def test_a_folder_of_verl_is_one_run(tmp_path: Path):
    """Score is the reward, other numbers of the reward function are its parts."""
    folder = tmp_path / "exp" / "rollout_data"
    for step in (1, 2, 10):
        write(folder / f"{step}.jsonl", verl(step, 1.0, 0.0, 0.5))
    view = barograph.open(folder)
    first = view.samples(step=2)[0]
    assert (first.prompt, first.completion, first.reward, first.rewards) == ("0?", "0!", 1.0, {"acc": 1.0})
    assert len(view.samples()) == 9
    assert points(view, "score") == {1: 0.5, 2: 0.5, 10: 0.5}
    assert (view.name, view.info.project) == ("rollout_data", "exp")


def test_one_file_is_read_alone(tmp_path: Path):
    """Although others are beside it; without a step in its rows that of its name counts."""
    records = [{"prompt": "a", "response": "b", "reward": 0.5}]
    for step in (3, 4):
        write(tmp_path / f"{step}.jsonl", records)
    view = barograph.open(tmp_path / "4.jsonl")
    assert [sample.step for sample in view.samples()] == [4]
    assert points(view, "reward") == {4: 0.5}


def test_new_files_are_added_and_changed_ones_are_read_again(tmp_path: Path):
    """None of the samples is doubled."""
    for step in (1, 2):
        write(tmp_path / f"{step}.jsonl", verl(step, 1.0))
    view = barograph.open(tmp_path)
    write(tmp_path / "3.jsonl", verl(3, 0.0, 1.0))
    assert view.refresh()
    assert points(view, "score") == {1: 1.0, 2: 1.0, 3: 0.5}
    write(tmp_path / "2.jsonl", verl(2, 0.0, 0.0, 0.0))
    assert view.refresh()
    assert points(view, "score") == {1: 1.0, 2: 0.0, 3: 0.5}
    assert len(view.samples()) == 6


def test_a_file_that_is_being_written_is_read_when_it_is_complete(tmp_path: Path):
    """The mean of some samples is not that of the step."""
    for step in (1, 2):
        write(tmp_path / f"{step}.jsonl", verl(step, 1.0))
    path = write(tmp_path / "3.jsonl", verl(3, 1.0, 0.0))
    os.utime(path)
    view = barograph.open(tmp_path)
    assert list(points(view, "score")) == [1, 2]
    os.utime(path, (LONG_AGO, LONG_AGO))
    assert view.refresh()
    assert points(view, "score")[3] == 0.5


def test_the_mean_reward_is_a_row_only_where_all_samples_have_a_reward(tmp_path: Path):
    """Else it would be that of some."""
    records = [*verl(1, 1.0, 0.0), {"input": "a", "output": "b", "score": None, "step": 1}, *verl(2, 1.0)]
    view = barograph.open(write(tmp_path / "dump.jsonl", records))
    assert points(view, "score") == {2: 1.0}
    assert len(view.samples(step=1)) == 3


def test_a_dump_of_relax_has_lengths_groups_and_ends(tmp_path: Path):
    """Training and evaluation are two runs."""
    record = {
        "rollout_id": 5, "sample_index": 7, "group_index": 2, "prompt": [ASK], "response": "2", "reward": 1.0,
        "response_length": 12, "total_length": 20, "status": "truncated", "label": "2",
    }  # fmt: skip
    for kind in ("train", "eval"):
        for step in (5, 6):
            write(tmp_path / "rollout_result" / kind / f"{step}.jsonl", [{**record, "rollout_id": step}])
    assert [log.path.name for log in logs_at(tmp_path)] == ["eval", "train"]
    [sample] = barograph.open(tmp_path / "rollout_result" / "train").samples(step=5)
    assert (sample.group, sample.run, sample.length, sample.finish_reason) == ("2", "7", 12, "truncated")
    assert [message["content"] for message in sample.messages] == ["1+1?", "2"]
    assert (sample.reward, sample.rewards) == (1.0, {})


def test_a_reward_of_several_parts_is_kept_as_parts(tmp_path: Path):
    """That of slime may be an object."""
    records = [{"prompt": "a", "response": "b", "reward": {"score": 1.0, "format": 0.5}, "rollout_id": 1}]
    view = barograph.open(write(tmp_path / "1.jsonl", records))
    [sample] = view.samples()
    assert (sample.reward, sample.rewards) == (None, {"score": 1.0, "format": 0.5})
    assert view.names() == []


def test_a_dump_of_miles_separates_evaluations(tmp_path: Path):
    """They are in the same folder, under other names."""
    record = {"sample_index": 0, "group_index": 0, "status": "completed", "reward": 0.5, "prompt": "1+1?"}
    for name in ("0", "1", "eval_0", "eval_1"):
        write(tmp_path / "trajectory" / f"{name}.jsonl", [{**record, "messages": [ASK, ANSWER]}])
    logs = logs_at(tmp_path)
    assert [log.member for log in logs] == ["", "eval"]
    assert points(barograph.open(tmp_path / "trajectory"), "reward") == {0: 0.5, 1: 0.5}
    view = barograph.open(f"{tmp_path / 'trajectory'}#eval")
    assert len(view.samples()) == 2
    assert view.name == "trajectory (eval)"


def test_rollouts_of_prime_rl_are_read_from_the_folders_of_steps(tmp_path: Path):
    """In the form of verifiers."""
    record = {
        "example_id": 3, "task": "gsm8k", "prompt": [ASK], "completion": [ANSWER], "reward": 1.5,
        "metrics": {"correct": 1.0, "format": 0.5}, "stop_condition": "max_turns", "is_truncated": False,
    }  # fmt: skip
    for step in (0, 1):
        write(tmp_path / "rollouts" / f"step_{step}" / "train_rollouts.jsonl", [record, {**record, "reward": 0.5}])
    write(tmp_path / "rollouts" / "step_1" / "eval_rollouts.jsonl", [record])
    view = barograph.open(tmp_path / "rollouts")
    sample = view.samples(step=1)[0]
    assert (sample.task, sample.group, sample.finish_reason) == ("gsm8k", "3", "max_turns")
    assert sample.rewards["correct"] == 1.0
    assert points(view, "reward") == {0: 1.0, 1: 1.0}
    assert len(barograph.open(f"{tmp_path / 'rollouts'}#eval").samples()) == 1


def test_episodes_of_prime_rl_have_a_sample_for_each_trace(tmp_path: Path):
    """Its reward is the weighted sum; its messages are those that lead to the last one."""
    nodes = [
        {"message": ASK},
        {"parent": 0, "message": {"role": "assistant", "content": "not used"}, "sampled": True},
        {"parent": 0, "message": ANSWER, "sampled": True},
    ]
    trace = {
        "nodes": nodes, "rewards": {"right": {"score": 1.0, "weight": 2.0}, "style": {"score": 0.5}},
        "stop_condition": "agent_completed",
    }  # fmt: skip
    episode = {
        "id": "x", "env": {"id": "math", "name": "math-env"}, "task": {"type": "T", "data": {"idx": 4}},
        "group": {"id": "g7"}, "ok": True, "traces": [trace, trace],
    }  # fmt: skip
    for step in (1, 2):
        for kind in ("all", "effective"):
            path = tmp_path / "rollouts" / f"step_{step}" / "train" / kind / "traces.jsonl"
            write(path, [episode] * (2 if kind == "all" else 1))
    view = barograph.open(tmp_path / "rollouts")
    assert len(view.samples()) == 4
    sample = view.samples()[0]
    assert (sample.reward, sample.rewards, sample.group, sample.task) == (2.5, {"right": 1.0, "style": 0.5}, "g7",
                                                                       "math-env")  # fmt: skip
    assert [message["content"] for message in sample.messages] == ["1+1?", "2"]
    assert points(view, "reward") == {1: 2.5, 2: 2.5}


def test_completions_of_trl_are_read_without_their_output_directory(tmp_path: Path):
    """Numbers beside the advantage are rewards by the name of their function."""
    for step in (10, 20):
        table = {"step": [step], "prompt": ["a"], "completion": ["b"], "correct": [1.0], "advantage": [0.25]}
        path = tmp_path / "completions" / f"completions_{step:05d}.parquet"
        path.parent.mkdir(exist_ok=True)
        pd.DataFrame(table).to_parquet(path)
        os.utime(path, (LONG_AGO, LONG_AGO))
    view = barograph.open(tmp_path / "completions")
    assert [(sample.step, sample.advantage, sample.rewards) for sample in view.samples()] == [
        (10, 0.25, {"correct": 1.0}),
        (20, 0.25, {"correct": 1.0}),
    ]
    assert len(barograph.open(tmp_path / "completions" / "completions_00020.parquet").samples()) == 1


@pytest.mark.parametrize("name", ["3.pt", "rollout_3.pkl", "3.jsonl"])
def test_a_pickle_is_refused_with_the_reason(tmp_path: Path, name: str):
    """The samples of slime are dumped with torch.save."""
    path = tmp_path / name
    path.write_bytes(pickle.dumps({"rollout_id": 3, "samples": []}))
    with pytest.raises(LogError, match="is a pickle.*JSON lines"):
        barograph.open(path)


@pytest.mark.parametrize("records", [
    [{"messages": [ASK, ANSWER]}, {"messages": [ASK, ANSWER]}],
    [{"prompt": "a", "completion": "b"}],
    [{"prompt": "a", "chosen": "b", "rejected": "c", "margin": 1.0}],
    [{"question": "a", "answer": "b", "level": 3}],
    [{"step": 1, "reward": 0.5, "score": 1.0}],
])  # fmt: skip
def test_data_sets_and_metrics_are_no_rollouts(tmp_path: Path, records: list[dict[str, Any]]):
    """Rollouts have a prompt, a completion and a reward."""
    path = write(tmp_path / "1.jsonl", records)
    seen = look_at(path)
    assert seen is not None
    assert recognise(seen) != "rollout_dumps"


def test_lines_that_are_no_samples_are_counted(tmp_path: Path):
    """Cut, of other kinds, or not JSON; the others are kept."""
    path = write(tmp_path / "1.jsonl", [*verl(1, 1.0, 0.0, 0.5), {"a": 1}])
    path.write_bytes(path.read_bytes() + b'not json\n{"input": "a", "output": "b", "sco')
    os.utime(path, (LONG_AGO, LONG_AGO))
    view = barograph.open(path)
    assert len(view.samples()) == 3
    [damage] = view.damage()
    assert "1.jsonl line 4" in damage
    assert "3" in damage


def test_odd_values_cost_only_themselves(tmp_path: Path):
    """A sample is kept without them."""
    odd = [
        {"input": "a", "output": "b", "score": "high", "step": [1], "acc": None},
        {"input": "a", "output": ["b", 3, None], "score": 1e400, "step": -1},
        {"input": "a" * 300_000, "output": "b", "score": True, "group_index": {"x": 1}, "response_length": "12"},
        {"prompt": [], "messages": "[1, 2", "reward": 1},
        {"task": {}, "env": 3, "group": [], "traces": [None, {"nodes": [{"parent": 0}, 7], "rewards": {"a": None}}]},
    ]
    view = barograph.open(write(tmp_path / "odd.jsonl", odd))
    assert view.sample_census() is not None
    assert len(view.samples()) >= 4
