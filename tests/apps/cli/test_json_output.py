"""What commands print with --json, by the schemas of docs/schema."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import barograph
from barograph.answers.schemas import SCHEMAS, schema_text
from barograph.apps.cli import main
from barograph.apps.demo.config import DemoConfig
from barograph.apps.demo.trainer import start_runs, train

FOLDER = Path(__file__).parents[3] / "docs" / "schema"
RUN_COMMANDS = (
    ("show",), ("show", "--metrics", "critic/*"), ("doctor",), ("phases",), ("phases", "--step", "3"), ("samples",),
    ("query", "step >= 0"), ("query", "count(critic/score/mean) > 0 and status != unknown"), ("compare",),
    ("compare", "--all"), ("explain", "critic/score/mean"), ("explain", "loss"), ("ls",), ("ls", "--health"),
)  # fmt: skip
ERRORS = {
    "empty": {"phases", "query count(critic/score/mean) > 0 and status != unknown"},
    "broken": {"phases"},
    "imported": set(),
    "demo": set(),
    "running": set(),
}
"""Commands that cannot answer: without phases, and without the metric."""
DEMO = {"steps": 4, "tasks": 8, "runs": 4, "hidden": 16, "maps": 32, "validation_maps": 4, "epochs": 1, "save_every": 2}


def demo_run(dir: Path) -> Path:
    config = DemoConfig().changed(DEMO)
    trainer, explorer = start_runs(config, dir=dir)
    with trainer, explorer:
        train(config, trainer, explorer)
    return trainer.path


def imported_log(dir: Path) -> Path:
    rows = [{"step": step, "critic/score/mean": step / 9, "actor/kl_loss": 0.1} for step in range(10)]
    (dir / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return dir / "metrics.jsonl"


def empty_run(dir: Path) -> Path:
    run = barograph.init(dir=dir, id="empty")
    run.finish()
    return run.path


def broken_run(dir: Path) -> Path:
    run = barograph.init(dir=dir, id="broken", config={"bound": float("inf"), "deep": [{"a": None}]})
    for step in range(6):
        run.log({"critic/score/mean": float("nan"), "loss": float("inf"), "bad": None}, step=step)
        run.sample(prompt="p\x1b[2J", completion="c", reward=float("nan"))
    run.finish()
    [segment] = run.path.glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)
    return run.path


def running_run(dir: Path) -> Path:
    run = barograph.init(dir=dir, id="running")
    run.phase("rollout").__enter__()
    run.log({"critic/score/mean": 0.5}, step=3)
    return run.path


KINDS: dict[str, Callable[[Path], Path]] = {
    "demo": demo_run, "imported": imported_log, "empty": empty_run, "broken": broken_run, "running": running_run,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a run of each kind, in a directory of its own."""
    return {kind: make(tmp_path_factory.mktemp(kind)) for kind, make in KINDS.items() if kind != "running"}


def validated(kind: str, text: str) -> Any:
    """Return what was printed; it must be as the schema says, in strict JSON and without colour."""
    assert "\x1b" not in text
    found = json.loads(text, parse_constant=pytest.fail)
    if isinstance(found, dict) and found.get("schema") == "barograph/error/1":
        kind = "error"
    Draft202012Validator(json.loads(schema_text(kind))).validate(found)
    return found


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_files_of_the_schemas_are_current(kind: str):
    """``python -m barograph.answers.schemas docs/schema`` writes them."""
    assert (FOLDER / f"{kind}.json").read_text() == schema_text(kind)
    Draft202012Validator.check_schema(json.loads(schema_text(kind)))


def test_no_file_of_another_schema_is_left():
    """Each belongs to a command."""
    assert {path.stem for path in FOLDER.iterdir()} == set(SCHEMAS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_output_is_as_its_schema_says(
    kind: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Of a demo, a log of another program, a run without data, a damaged one and one that goes on."""
    path = running_run(tmp_path) if kind == "running" else runs[kind]
    errors = set()
    for command, *more in RUN_COMMANDS:
        capsys.readouterr()
        code = main([command, *arguments_for(command, path), *more, "--json"])
        out, err = capsys.readouterr()
        assert err == "", (kind, command)
        for text in out.splitlines() if command == "samples" and code == 0 else [out]:
            found = validated(command, text)
            is_error = isinstance(found, dict) and found["schema"] == "barograph/error/1"
            assert is_error <= (code != 0), (kind, command, found)
            errors |= {" ".join((command, *more))} if is_error else set()
            assert command != "ls" or [one["schema"] for one in found] == ["barograph/ls/1"]
    assert errors - {"phases --step 3"} == ERRORS[kind]


def arguments_for(command: str, path: Path) -> list[str]:
    """Return how a command names a run."""
    if command == "ls":
        return [str(path.parent.parent if path.is_dir() else path)]
    return {"compare": [str(path), str(path)], "explain": ["--run", str(path)]}.get(command, [str(path)])


def test_the_runs_are_what_they_are_called(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """One goes on, and the broken one says what is broken."""
    main(["show", str(running_run(tmp_path)), "--json"])
    assert json.loads(capsys.readouterr().out)["status"] == "running"
    main(["show", str(runs["broken"]), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert any("could not be read" in notice or "unreadable" in notice for notice in shown["notices"])
    assert shown["config"]["bound"] == "Infinity"


def test_sums_of_tokens_are_as_their_schema_says(capsys: pytest.CaptureFixture[str]):
    """Also where a value is not finite; a value that no token has is an error."""
    run = barograph.init(id="sums")
    values = {"entropy": [0.5, float("nan"), 2.0], "mask": [1, 1, 1]}
    run.sample(tokens=["a", "\x1b[2J", "b"], token_values=values)
    run.finish()
    main(["samples", "sums", "--token-sums", "--json"])
    found = [validated("token_sums", line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["text"], one["share"], one["sum"]) for one in found] == [
        ("\x1b[2J", None, "NaN"), ("b", 0.8, 2.0), ("a", 0.2, 0.5),
    ]  # fmt: skip
    assert main(["samples", "sums", "--token-sums", "--value", "kl", "--json"]) == 1
    assert validated("error", capsys.readouterr().out)["error"] == "no value 'kl' of tokens; there are entropy, mask"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("explain", "actor/policykl_k1"), "explain"),
        (("explain", "actor/policykl"), "explain"),
        (("explain", "no_such_name"), "explain"),
        (("explain", "--all"), "metrics"),
        (("doctor", "--explain", "all"), "rules"),
        (("doctor", "--explain", "no_signal"), "rules"),
    ],
)
def test_explanations_are_as_their_schemas_say(
    arguments: tuple[str, ...], kind: str, capsys: pytest.CaptureFixture[str]
):
    """Known, ambiguous and unknown names, and rules."""
    main([*arguments, "--json"])
    validated(kind, capsys.readouterr().out)


def test_a_list_of_diagnoses_has_the_errors_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A program reads them in the order of the runs."""
    empty_run(tmp_path)
    (tmp_path / "bad" / "run").mkdir(parents=True)
    (tmp_path / "bad" / "run" / "run.json").write_text("{")
    main(["doctor", str(tmp_path), "--json"])
    found = validated("doctor", capsys.readouterr().out)
    assert sorted(one["schema"] for one in found) == ["barograph/doctor/1", "barograph/error/1"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("show", "nothing"), 1, "no run in"),
        (("doctor", "nothing"), 2, "no run in"),
        (("doctor", "--explain", "nothing"), 1, "no rule 'nothing'"),
        (("samples", "nothing", "--where", "x <"), 2, "where: expected NAME < VALUE"),
        (("ls", "--status", "foo"), 2, "invalid choice: 'foo'"),
        (("ls", "/nonexistent"), 1, "/nonexistent does not exist"),
        (("phases",), 2, "the following arguments are required: RUN"),
        (("query", "nothing", "step > 1"), 2, "no run in"),
        (("compare", "nothing", "other"), 1, "no run in"),
    ],
)
def test_errors_are_json_too(arguments: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]):
    """On standard output, with the exit code that they have as text."""
    codes = []
    for more in ((), ("--json",)):
        capsys.readouterr()
        try:
            codes.append(main([*arguments, *more]))
        except SystemExit as ended:
            codes.append(ended.code)
    out, err = capsys.readouterr()
    assert (codes, err) == ([code, code], "")
    assert said in validated("error", out)["error"]
