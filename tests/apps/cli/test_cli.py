"""The command line."""

import csv
import io
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import barograph
from barograph.apps.cli import COMMANDS, main


@pytest.fixture
def run() -> barograph.Run:
    """Return a finished run with a spike, a NaN, several families and a config."""
    run = barograph.init(
        project="agentic", name="frozen_lake", config={"actor": {"lr": 1e-6}, "seed": 7}, tags=["demo"]
    )
    for step in range(50):
        run.log(
            {
                "critic/score/mean": step / 50,
                "actor/kl": 9.0 if step == 17 else 0.01,
                "loss": math.nan if step == 3 else 1.0,
            }
        )
        if step % 10 == 0:
            run.log({"val/score/mean": step / 100, "bad": None})
        run.commit(step)
    run.finish()
    return run


def cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(arguments)
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]):
    """--help prints a description and an example."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert re.search(rf"examples?:\n  barograph {command}", capsys.readouterr().out)


def test_ls_lists_runs(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """Name, project, status and last step of each run, as a table and as JSON."""
    code, out, _ = cli(capsys, "ls")
    assert code == 0
    assert all(word in out for word in (run.id, "frozen_lake", "agentic", "finished", "49"))
    [record] = json.loads(cli(capsys, "ls", "--json")[1])
    assert (record["status"], record["last_step"], record["tags"]) == ("finished", 49, ["demo"])
    assert cli(capsys, "ls", "--project", "other")[1].startswith("no runs in")


def test_show_prints_status_config_and_last_values(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """Sparklines show the spike and the NaN; skipped values are listed."""
    code, out, _ = cli(capsys, "show", "@last")
    assert code == 0
    assert all(
        word in out for word in ("frozen_lake", "finished", "0 – 49", "actor.lr", "1e-06", "critic", "score/mean")
    )
    assert "skipped 'bad' 5 times: value is None" in out
    [kl] = [text for text in out.splitlines() if text.strip().startswith("kl ")]
    assert kl.count("█") == 1
    [loss] = [text for text in out.splitlines() if text.strip().startswith("loss ")]
    assert "×" in loss
    record = json.loads(cli(capsys, "show", run.id[:5], "--json")[1])
    assert record["last"]["critic/score/mean"] == {"step": 49, "value": 0.98, "points": 50, "unit": ""}
    assert record["config"] == {"actor": {"lr": 1e-6}, "seed": 7}


def test_json_has_numbers_that_are_not_finite_as_strings(capsys: pytest.CaptureFixture[str]):
    """A config may have them, and strict JSON does not."""
    run = barograph.init(config={"bound": float("inf"), "start": [float("nan"), 1.0]})
    run.finish()
    record = json.loads(cli(capsys, "show", run.id, "--json")[1], parse_constant=pytest.fail)
    assert record["config"] == {"bound": "Infinity", "start": ["NaN", 1.0]}


def test_show_prints_verdicts_on_crucial_values(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """Each has a text and the name of its metric."""
    out = cli(capsys, "show", run.id)[1]
    [reward] = [text for text in out.splitlines() if text.strip().startswith("✓  Reward")]
    assert "rising, 0.15 → 0.83" in reward
    [record] = json.loads(cli(capsys, "show", run.id, "--json")[1])["crucial"][:1]
    assert (record["key"], record["name"], record["verdict"]) == ("reward", "critic/score/mean", "good")


def test_show_of_many_metrics_fits_a_screen(capsys: pytest.CaptureFixture[str]):
    """It says how many metrics and settings there are; --metrics shows some of them and --all everything."""
    big = barograph.init(name="big", config={f"key{n}": n for n in range(100)})
    big.log({f"layer/{n}": float(n) for n in range(100)}, step=0)
    big.finish()
    out = cli(capsys, "show", "big")[1]
    assert len(out.splitlines()) < 40
    assert "… 92 more: barograph show big --all" in out
    assert "100 metrics: layer 100" in out
    assert cli(capsys, "show", "big", "--metrics", "layer/9*")[1].splitlines()[-1].split()[0] == "99"
    out = cli(capsys, "show", "big", "--all")[1]
    assert "more:" not in out
    assert len(out.splitlines()) > 200


def test_show_leads_with_the_verdict(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """The vital signs follow, then the rest; in the language that is asked for."""
    lines = cli(capsys, "show", run.id, "--lang", "en")[1].splitlines()
    assert lines[0].startswith("frozen_lake  ✓ finished  steps 0 – 49 · ")
    assert re.match(r"[✓!✗?] (healthy|watch|sick|cannot tell)  \d+ of \d+ rules could look", lines[2])
    assert [line for line in lines if line in ("vital signs", "config", "actor")] == ["vital signs", "config", "actor"]
    chinese = cli(capsys, "show", run.id, "--lang", "zh")[1]
    assert all(word in chinese for word in ("第 0 – 49 步", "关键指标", "奖励", "在上升", "项目", "配置"))


def test_tail_prints_the_last_steps(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """As blocks or as JSON, of the selected metrics; it ends with the run."""
    code, out, _ = cli(capsys, "tail", "frozen_lake", "-n", "2", "--metrics", "critic/*")
    assert code == 0
    assert out.splitlines() == [
        "step 48 · frozen_lake",
        "  critic  score/mean 0.96",
        "step 49 · frozen_lake",
        "  critic  score/mean 0.98",
        "run finished",
    ]
    lines = cli(capsys, "tail", "frozen_lake", "-n", "3", "--json", "--no-follow")[1].splitlines()
    assert [json.loads(text)["step"] for text in lines] == [47, 48, 49]


def test_tail_follows_a_run_while_it_is_written(capsys: pytest.CaptureFixture[str]):
    """Steps are printed as they are committed, followed by the end of the run."""
    live = barograph.init(name="live")

    def work() -> None:
        for step in range(5):
            live.log({"x": float(step)})
            live.commit(step)
            time.sleep(0.2)
        live.finish()

    thread = threading.Thread(target=work)
    thread.start()
    out = cli(capsys, "tail", "live")[1]
    thread.join()
    assert [text for text in out.splitlines() if text.startswith("step")] == [f"step {n} · live" for n in range(5)]
    assert out.endswith("run finished\n")


def test_export_to_csv(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """Missing values are empty cells, and NaN is NaN."""
    rows = list(csv.DictReader(io.StringIO(cli(capsys, "export", "@last", "--to", "csv")[1])))
    assert len(rows) == 50
    assert (rows[3]["loss"], rows[3]["val/score/mean"], rows[10]["val/score/mean"]) == ("NaN", "", "0.1")
    assert (rows[17]["role"], rows[17]["rank"], rows[17]["step"], rows[17]["actor/kl"]) == ("trainer", "0", "17", "9.0")


def test_export_to_jsonl(run: barograph.Run, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Output is strict JSON, to a file where -o is given."""
    target = tmp_path / "out.jsonl"
    code, out, err = cli(capsys, "export", "@last", "--to", "jsonl", "-o", str(target), "--metrics", "loss")
    assert (code, out, err) == (0, "", f"wrote 50 rows of 1 metric to {target}\n")
    records = [json.loads(text) for text in target.read_text().splitlines()]
    assert records[3]["metrics"] == {"loss": "NaN"}


def test_export_to_parquet(run: barograph.Run, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Missing values are null, and NaN is NaN."""
    import pyarrow.parquet as pq

    target = tmp_path / "out.parquet"
    assert cli(capsys, "export", "@last", "--to", "parquet", "-o", str(target))[0] == 0
    table = pq.read_table(target)
    assert table.num_rows == 50
    assert table["val/score/mean"].null_count == 45
    assert math.isnan(table["loss"][3].as_py())
    assert (
        cli(capsys, "export", "@last", "--to", "parquet")[2]
        == "barograph: parquet is a binary format: give a file with -o FILE\n"
    )


def test_rm_deletes_ended_runs(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """It needs --yes without a terminal, and rejects a running run."""
    assert cli(capsys, "rm", run.id)[0] == 1
    assert run.path.exists()
    live = barograph.init(name="live")
    code, _, err = cli(capsys, "rm", "live", "--yes")
    assert code == 1
    assert "is running: end it first, or use --force" in err
    assert cli(capsys, "rm", run.id, "--yes")[0] == 0
    assert not run.path.exists()
    assert live.path.exists()


def test_archive_and_restore_preserve_every_byte(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """An archived run is one file and is not listed."""
    before = {file.name: file.read_bytes() for file in run.path.iterdir()}
    code, out, _ = cli(capsys, "archive", run.id)
    assert code == 0
    assert out.startswith(f"archived {run.id} (frozen_lake)")
    assert not run.path.exists()
    assert cli(capsys, "ls")[1].startswith("no runs in")
    assert "(archived)" in cli(capsys, "du")[1]
    assert cli(capsys, "archive", "--restore", run.id[:4])[0] == 0
    assert {file.name: file.read_bytes() for file in run.path.iterdir()} == before


def test_du_prints_sizes_and_their_sum(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """In bytes with --json."""
    [record] = json.loads(cli(capsys, "du", "--json")[1])
    assert record["bytes"] == sum(file.stat().st_size for file in run.path.iterdir())
    assert "1 run in" in cli(capsys, "du")[1]


def test_du_has_indexes_apart(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """They are no data of the run: a reader makes them again."""
    before = json.loads(cli(capsys, "du", "--json")[1])[0]["bytes"]
    (run.path / "index" / "segments").mkdir(parents=True)
    (run.path / "index" / "segments" / "part").write_bytes(bytes(12_300))
    [record] = json.loads(cli(capsys, "du", "--json")[1])
    assert (record["bytes"], record["index_bytes"]) == (before, 12_300)
    assert cli(capsys, "du")[1].count("and 12.3 kB of indexes, which can be deleted") == 2


def test_an_unknown_run_is_a_one_line_error(capsys: pytest.CaptureFixture[str]):
    """There is no traceback, and the exit code is 1."""
    code, out, err = cli(capsys, "show", "nothing")
    assert (code, out) == (1, "")
    assert err.startswith("barograph: no run in ")


def test_a_closed_pipe_is_not_an_error(run: barograph.Run):
    """``barograph export … | head`` prints no error."""
    command = f"{sys.executable} -m barograph export {run.id} --to csv | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=os.environ, check=True)
    assert done.stdout.startswith("role,rank,step")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ls", "--status", "foo"), "choose from 'running', 'finished'|choose from running, finished"),
        (("demo", "--steps", "0"), "expected an integer of at least 1; got '0'"),
        (("demo", "--steps", "many"), "expected an integer of at least 1; got 'many'"),
        (("report", "@last", "-o", "/nonexistent/x.html"), "the directory /nonexistent does not exist"),
        (("export", "@last", "--to", "csv", "-o", "/nonexistent/x.csv"), "the directory /nonexistent does not exist"),
        (("report", "@last", "-o", "/tmp"), "/tmp is a directory: give the name of a file in it"),
        (("report", "@last", "-o", "x.html", "--points", "0"), "expected an integer of at least 1"),
    ],
)
def test_a_wrong_argument_is_refused(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]):
    """Before anything is done, with what is possible, and exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert re.search(said, capsys.readouterr().err)


def test_a_file_that_cannot_be_written_is_a_one_line_error(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """The reason that the operating system gives."""
    code, out, err = cli(capsys, "report", "@last", "-o", "/dev/full")
    assert (code, out) == (1, "")
    assert err == "barograph: No space left on device\n"


def test_steps_of_the_demo_are_at_least_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Also in a file of settings."""
    (tmp_path / "demo.yaml").write_text("demo: {steps: 0}")
    code, _, err = cli(capsys, "demo", "--config", str(tmp_path / "demo.yaml"), "--quiet")
    assert (code, err) == (1, "barograph: demo: steps must be 1 or more; got 0\n")
