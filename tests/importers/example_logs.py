"""A small valid log of each format, as its program writes it; tests change them to see that nothing breaks.

``EXAMPLES`` has a function for each format: it writes a log below a folder and returns the path to open.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import swanlab.proto.swanlab.record.v1.record_pb2 as swanlab
import wandb.proto.wandb_internal_pb2 as wandb
from block_files import write_records

from barograph.base.model import Histogram
from barograph.delivery.trackers import tensorboard as events

STEPS = range(1, 7)
LONG_AGO = 1_600_000_000.0
ASK, ANSWER = {"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}
CONSOLE = "\x1b[36m(TaskRunner pid=2093)\x1b[0m "


def lines(path: Path, texts: Iterable[str]) -> Path:
    """Write lines to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def rows() -> list[dict[str, Any]]:
    """Return the rows of a training."""
    return [{"step": step, "loss": 1 / step, "reward": step / 7, "kl": 1e-3 * step} for step in STEPS]


def event_files(folder: Path) -> Path:
    """Numbers, a text and a histogram."""
    data = events.event_record(events.version_event(LONG_AGO))
    for row in rows():
        step = row.pop("step")
        data += events.event_record(events.summary_event(LONG_AGO + step, step, events.scalar_values(row)))
    histogram = Histogram((0.0, 1.0, 2.0), (3, 4), 0.1, 1.9, 7.5, 7)
    data += events.event_record(
        events.summary_event(LONG_AGO, 3, events.text_value("note", "hello"), events.histogram_value("h", histogram))
    )
    path = folder / "events.out.tfevents.1600000000.host.1.0"
    path.write_bytes(data)
    return folder


def trainer_state(folder: Path) -> Path:
    """Two checkpoints, completions and a model card."""
    for last in (3, 6):
        state = {"epoch": 0.5, "global_step": last, "log_history": rows()[:last], "max_steps": 6, "save_steps": 3}
        lines(folder / f"checkpoint-{last}" / "trainer_state.json", [json.dumps(state, indent=2)])
    table = {"step": [3, 3], "prompt": ["a", "b"], "completion": ["c", "d"], "right": [1.0, 0.0], "advantage": [1, -1]}
    (folder / "completions").mkdir()
    pd.DataFrame(table).to_parquet(folder / "completions" / "completions_00003.parquet")
    lines(folder / "README.md", ["---", "base_model: q", "tags:", "- trl", "- grpo", "---"])
    return folder


def trainer_state_file(folder: Path) -> Path:
    """One state alone."""
    state = {"global_step": 6, "log_history": rows(), "max_steps": 6}
    return lines(folder / "trainer_state.json", [json.dumps(state, indent=2)])


def rollout_dumps(folder: Path) -> Path:
    """A folder as veRL writes it."""
    for step in (1, 2, 3):
        record = {"input": "1+1?", "output": "2", "gts": "2", "score": 0.5, "step": step, "acc": True}
        lines(folder / f"{step}.jsonl", [json.dumps(record)] * 3)
    return folder


def rollout_file(folder: Path) -> Path:
    """Episodes as prime-rl writes them, and samples as slime has them."""
    nodes = [{"message": ASK}, {"parent": 0, "message": ANSWER}]
    trace = {"nodes": nodes, "rewards": {"right": {"score": 1.0, "weight": 2.0}}, "stop_condition": "done"}
    episode = {"env": {"id": "e"}, "task": {"type": "T", "data": {"idx": 1}}, "group": {"id": "g"}, "traces": [trace]}
    sample = {"prompt": [ASK], "response": "2", "reward": {"a": 1.0}, "response_length": 3, "rollout_id": 2}
    return lines(folder / "dump.jsonl", [json.dumps(episode), json.dumps(sample)] * 2)


def notebooks(folder: Path) -> Path:
    """Printed dicts and the trainer's table."""
    head = "".join(f"<th>{name}</th>\n" for name in ("Step", "Training Loss", "reward"))
    body = "".join(f"<tr>\n<td>{s}</td>\n<td>{1 / s:.6f}</td>\n<td>0.500000</td>\n</tr>\n" for s in STEPS)
    html = f'<div>[6/6 00:10]</div>\n<table border="1">\n<thead>\n<tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    outputs = [
        {"output_type": "display_data", "metadata": {}, "data": {"text/html": html.splitlines(keepends=True)}},
        {"output_type": "stream", "name": "stdout", "text": ["{'loss': 0.5, 'reward': 1.0, 'epoch': 0.1}\n"]},
    ]
    cell = {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": ["trainer.train()"]}
    notebook = {"cells": [{**cell, "outputs": outputs}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return lines(folder / "train.ipynb", [json.dumps(notebook, indent=1)])


def areal(folder: Path) -> Path:
    """Tables after the line of each step."""
    found = []
    for step in STEPS:
        found += [
            f"2025-11-12T20:32:0{step}.5Z \x1b[92m20251112-20:32:0{step}.100 StatsLogger INFO: Epoch 1/2 Step {step}/6 "
            f"Train step {step}/12 done.\x1b[0m",
            f"2025-11-12T20:32:0{step}.6Z 20251112-20:32:0{step}.200 StatsLogger INFO: Stats (1/1):",
            "╒══════════╤══════════╤══════════╤══════════╕",
            f"│ actor/loss │ {1 / step:.4e} │ rollout/reward │ {step / 7:.4e} │",
            "├──────────┼──────────┼──────────┼──────────┤",
            f"│ actor/kl │ {step:.4e} │ perf/mfu │ nan │",
            "╘══════════╧══════════╧══════════╧══════════╛",
        ]
    return lines(folder / "areal.log", found)


def verl_console(folder: Path) -> Path:
    """Lines of steps among others, with a config before them."""
    config = ["{'actor_rollout_ref': {'actor': {'optim': {'lr': 1e-06}}},", " 'trainer': {'project_name': 'p'}}"]
    values = "actor/pg_loss:{0} - critic/score/mean:np.float64({1}) - actor/kl:nan - flag:True"
    steps = [f"{CONSOLE}step:{step} - {values.format(-1e-07 * step, step / 7)}" for step in STEPS]
    return lines(folder / "verl.log", [*(CONSOLE + text for text in config), "noise", *steps, "Training Progress: 6/6"])


def verl_file(folder: Path) -> Path:
    """JSON lines with a step and data."""
    return lines(folder / "verl.jsonl", [json.dumps({"step": row.pop("step"), "data": row}) for row in rows()])


def roll_console(folder: Path) -> Path:
    """Lines with a tag before the JSON of a step."""
    head = "[2025-03-22 23:18:00] [tracking.py (161)] [INFO] [DRIVER 0 / 1][PID 77] "
    rest = (json.dumps({"step": row.pop("step"), "metrics": row}) for row in rows())
    return lines(folder / "roll.log", [f"{head}metrics_tag: {text}" for text in rest] + [f"{head}pipeline complete!"])


def deepspeed_chat(folder: Path) -> Path:
    """Lines of its first version."""
    found = []
    for step in STEPS:
        found += [
            f"epoch: 0|step: {step}|ppo_ep: 1|act_loss: {1 / step}|cri_loss: nan|unsuper_loss: 0.0",
            f"average reward score: {step / 7}",
            "-" * 80,
            f"|E2E latency={step}.50s |Gather latency=0.00s (0.00%) |Others=0.22 (2.73%)|CurSamplesPerSec=8.01",
        ]
    return lines(folder / "ds.log", found)


def slime(folder: Path) -> Path:
    """Dicts by step and by rollout."""
    found = []
    for step in STEPS:
        stamp = f"(RolloutManager pid=9) [2026-08-21 17:00:0{step}] "
        found += [
            f"{stamp}rollout_metrics.py:268 - perf {step}: {{'rollout/response_len/mean': 3.5, 'perf/time': {step}.5}}",
            f"{stamp}model.py:918 - step {step}: {{'train/loss': {1 / step}, 'train/grad_norm': np.float64({step}.5)}}",
        ]
    return lines(folder / "slime.log", found)


def prime_rl(folder: Path) -> Path:
    """Lines of the trainer."""
    text = "12:00:0{0} SUCCESS Step {0} | Time: 12.50s | Loss: {1:.4f} | Entropy: 0.5000 | Grad. Norm: nan | LR: 1e-06"
    return lines(folder / "prime.log", ["12:00:00    INFO Starting", *(text.format(s, 1 / s) for s in STEPS)])


def dict_lines(folder: Path) -> Path:
    """Dicts as Python prints them."""
    return lines(folder / "train.out", ["noise", *(str({**row, "epoch": 0.1}) for row in rows())])


def json_lines(folder: Path) -> Path:
    """One object for each step."""
    return lines(folder / "metrics.jsonl", [json.dumps({**row, "timestamp": LONG_AGO + row["step"]}) for row in rows()])


def openrlhf(folder: Path) -> Path:
    """Dicts of steps."""
    text = "2025-06-01 12:00:00 (PPOTrainer pid=7) ✨ Global step {}: {}"
    return lines(folder / "openrlhf.log", [text.format(row.pop("step"), row) for row in rows()])


def skyrl(folder: Path) -> Path:
    """Dicts over several lines."""
    found = []
    for step in STEPS:
        found += [
            f"2026-08-21 18:02:0{step}.500 | INFO     | skyrl.train.utils.tracking:log:189 - Step {step}: ",
            f"{{'generate/avg_num_tokens': '{step}.5000',",
            " 'policy/policy_loss': '-0.2500',",
            f" 'trainer/global_step': {step}}}",
        ]
    return lines(folder / "skyrl.log", found)


def nemo_rl(folder: Path) -> Path:
    """Lists under headings."""
    found = []
    for step in STEPS:
        found += [
            f"{'=' * 25} Step {step}/6 {'=' * 25}",
            "📊 Training Results:",
            f"  • Loss: {1 / step:.4f}",
            "  • Avg Reward: 0.5000",
            "⏱️  Timing:",
            "  • Total step time: 12.50s",
            "  • policy_training: 10.00s (80.0%)",
        ]
    return lines(folder / "nemo.log", found)


def metric_tables(folder: Path) -> Path:
    """Tables of names and values."""
    found = []
    for step in STEPS:
        found += [
            f"           Step {step}           ",
            "┏━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┓",
            "┃ Metric               ┃ Value      ┃",
            "┡━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━┩",
            f"│ env/all/reward/total │ {step}.500000   │",
            "│ env/all/turns        │ 3          │",
            "└──────────────────────┴────────────┘",
        ]
    return lines(folder / "tinker.log", found)


def wandb_offline(folder: Path) -> Path:
    """A run with a config, rows and its end."""
    first, last = wandb.Record(), wandb.Record()
    first.run.run_id, first.run.project = "abc", "maze"
    first.run.config.update.add(key="lr", value_json="1e-06")
    last.exit.exit_code = 0
    records = [first]
    for row in rows():
        record = wandb.Record()
        for key, value in {**row, "_step": row["step"], "_timestamp": LONG_AGO}.items():
            record.history.item.add(value_json=json.dumps(value)).nested_key.append(key)
        records.append(record)
    data = [record.SerializeToString() for record in (*records, last)]
    return write_records(folder / "offline-run-20240101_000000-abc" / "run-abc.wandb", b":W&B\xe1\xbe\x00", data)


def swanlab_store(folder: Path) -> Path:
    """A run with its description, rows and its end."""
    first, last = swanlab.Record(), swanlab.Record()
    first.start.project, first.start.name, first.start.id = "maze", "first", "abc"
    last.finish.state = 1
    records = [first]
    for row in rows():
        for key in ("loss", "reward"):
            record = swanlab.Record()
            record.scalar.key, record.scalar.step, record.scalar.value.number = key, row["step"], row[key]
            records.append(record)
    data = [record.SerializeToString() for record in (*records, last)]
    return write_records(folder / "run-20240101_000000-abc" / "run-abc.swanlab", b":SWL\xd6\xe1\x02", data)


def trackio_store(folder: Path) -> Path:
    """A database with one run."""
    schema = "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)"
    with closing(sqlite3.connect(folder / "maze.db")) as connection:
        connection.execute(schema)
        for row in rows():
            values = (f"2024-05-01T12:00:0{row['step']}+00:00", "first", row["step"], json.dumps(row))
            connection.execute("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", values)
        connection.commit()
    return folder / "maze.db"


def mlflow_store(folder: Path) -> Path:
    """The directory of a run."""
    run = folder / "mlruns" / "1" / ("0123456789abcdef" * 2)
    lines(folder / "mlruns" / "1" / "meta.yaml", ["experiment_id: '1'", "name: maze"])
    about = [
        "lifecycle_stage: active",
        f"run_id: {run.name}",
        "run_name: first",
        "start_time: 1600000000000",
        "status: 3",
    ]
    lines(run / "meta.yaml", about)
    for name in ("loss", "reward"):
        lines(run / "metrics" / name, [f"160000000{row['step']}000 {row[name]} {row['step']}" for row in rows()])
    lines(run / "params" / "lr", ["1e-06"])
    return run


def json_documents(folder: Path) -> Path:
    """A history as a hand-written loop saves it."""
    document = {"config": {"lr": 1e-6}, "history": rows()}
    return lines(folder / "history.json", [json.dumps(document, indent=2)])


def tables(folder: Path) -> Path:
    """A table with quoted, empty and odd cells."""
    found = ['step,"loss, mean",reward,model', *(f"{s},{1 / s},{'' if s == 3 else 'nan'},qwen" for s in STEPS)]
    return lines(folder / "metrics.csv", found)


def wandb_table(folder: Path) -> Path:
    """A chart of one run that W&B exported."""
    head = '"Step","run-1 - reward","run-1 - reward__MIN","run-1 - reward__MAX"'
    return lines(folder / "chart.csv", [head, *(f'"{s}","{s / 7}","{s / 7}","{s / 7}"' for s in STEPS)])


EXAMPLES: dict[str, Callable[[Path], Path]] = {
    function.__name__: function
    for function in (
        event_files,
        trainer_state,
        trainer_state_file,
        rollout_dumps,
        rollout_file,
        notebooks,
        areal,
        verl_console,
        verl_file,
        roll_console,
        deepspeed_chat,
        slime,
        prime_rl,
        openrlhf,
        skyrl,
        nemo_rl,
        metric_tables,
        wandb_offline,
        swanlab_store,
        trackio_store,
        mlflow_store,
        dict_lines,
        json_lines,
        json_documents,
        tables,
        wandb_table,
    )
}


def write_example(name: str, folder: Path) -> Path:
    """Write a log whose files were not changed lately; return the path to open."""
    folder.mkdir(parents=True, exist_ok=True)
    path = EXAMPLES[name](folder)
    for file in files_of(folder):
        os.utime(file, (LONG_AGO, LONG_AGO))
    return path


def files_of(folder: Path) -> list[Path]:
    """Return the files of a log."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
