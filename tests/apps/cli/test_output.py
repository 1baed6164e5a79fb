"""Text from a run on terminals, in pipes of any encoding, and in exported files."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import barograph
from barograph.apps.cli import main
from barograph.base.formatting import encodable, printable

CLIPBOARD, TITLE, CLEAR, C1 = "\x1b]52;c;ZXZpbA==\x07", "\x1b]0;evil\x07", "\x1b[2J\x1b[H", "\x9b2J"
HOSTILE = f"a{CLIPBOARD}{TITLE}{CLEAR}{C1}\u202eb\u2066\r\x08[red]x[/] [/nothing] é 奖励\udc80"
COMMANDS = {
    "ls": ["ls"],
    "show": ["show", "@last", "--all"],
    "phases": ["phases", "@last"],
    "tail": ["tail", "@last", "--no-follow"],
    "tail end": ["tail", "@last"],
    "du": ["du"],
    "samples": ["samples", "@last", "--full"],
    "explain": ["explain", "actor/policykl"],
    "explain zh": ["explain", "actor/policykl", "--lang", "zh"],
    "csv": ["export", "@last", "--to", "csv"],
    "jsonl": ["export", "@last", "--to", "jsonl"],
    "perfetto": ["export", "@last", "--to", "perfetto"],
}
AS_JSON = ("ls", "show", "phases", "tail", "du", "samples")
ENCODINGS = ("utf-8", "ascii", "latin-1", "gbk", "utf-8:surrogateescape")


@pytest.fixture
def hostile(capsys: pytest.CaptureFixture[str]) -> barograph.Run:
    """Return a run in which every text tries to control the terminal."""
    run = barograph.init(
        project=f"p{CLEAR}",
        name=f"n\nfake line{HOSTILE}",
        config={f"k{HOSTILE}": HOSTILE},
        notes=HOSTILE,
        tags=[HOSTILE],
    )
    for step in range(3):
        with run.phase(f"phase{CLIPBOARD}\u202e"):
            run.log({f"family{HOSTILE}/x{HOSTILE}": 1.0 + step, f"{CLEAR}loose": 2.0, f"none{TITLE}": None})
        run.text(f"text{CLEAR}", HOSTILE)
        run.sample(prompt=HOSTILE, completion=HOSTILE, reward=1.0, task=HOSTILE, group=HOSTILE, finish_reason=HOSTILE)
        run.commit(step)
    run.finish()
    return run


def barograph_command(
    arguments: list[str], encoding: str = "utf-8", stdin: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own with that encoding of its output."""
    env = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "120"}
    command = [sys.executable, "-m", "barograph", *arguments]
    return subprocess.run(command, capture_output=True, timeout=60, env=env, input=stdin.encode())


def output_of(arguments: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, bytes, bytes]:
    """Run the command in this process, with streams as PYTHONIOENCODING makes them; return its code and outputs."""
    name, _, errors = encoding.partition(":")
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=name, errors=errors or "strict") for _ in range(2)]
    with monkeypatch.context() as patched:
        patched.setenv("COLUMNS", "120")
        patched.setattr(sys, "stdin", io.StringIO())
        patched.setattr(sys, "stdout", streams[0])
        patched.setattr(sys, "stderr", streams[1])
        code = main(arguments)
        for stream in streams:
            stream.flush()
    out, error = (stream.detach().getvalue() for stream in streams)
    return code, out, error


def require_harmless(output: bytes, encoding: str) -> str:
    """Return the text of an output; fail if it has anything but printable characters and newlines."""
    text = output.decode(encoding.partition(":")[0])
    assert {c for c in text if not c.isprintable() and c != "\n"} - {"\r"} == set()
    assert text.replace("\r\n", "").count("\r") == 0  # CSV ends its lines with \r\n
    return text


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_harmless_in_every_encoding(
    hostile: barograph.Run, name: str, encoding: str, monkeypatch: pytest.MonkeyPatch
):
    """No command fails, and no escape sequence, control character, override or surrogate of a run is printed."""
    code, output, errors = output_of(COMMANDS[name], encoding, monkeypatch)
    assert code == 0, errors[-2000:]
    assert "\nfake line" not in require_harmless(output, encoding)
    require_harmless(errors, encoding)


@pytest.mark.parametrize("name", AS_JSON)
def test_json_keeps_the_texts_as_escapes(hostile: barograph.Run, name: str):
    """The output is ASCII without control characters, and parsing it gives the original texts."""
    done = barograph_command([*COMMANDS[name], "--json"], "ascii")
    assert done.returncode == 0, done.stderr[-2000:]
    text = require_harmless(done.stdout, "ascii")
    assert "\\u001b" in text
    for document in [text] if name not in ("tail", "samples") else text.splitlines():
        assert "\x1b" in str(json.loads(document)).encode().decode("unicode_escape")


def test_deleting_archiving_and_errors_are_harmless(hostile: barograph.Run):
    """rm, archive and the one line of an error print the name of a run escaped."""
    for arguments in (["archive", "@last"], ["archive", "--restore", hostile.id, "--delete"], ["rm", "@last", "--yes"]):
        done = barograph_command(arguments)
        assert done.returncode == 0, done.stderr
        assert hostile.id in require_harmless(done.stdout, "utf-8")
    for arguments in (["show", HOSTILE], ["explain", HOSTILE], ["ls", "--dir", f"/nowhere{CLEAR}"]):
        done = barograph_command(arguments)
        assert b"Traceback" not in done.stderr
        require_harmless(done.stdout + done.stderr, "utf-8")


def test_a_running_run_is_refused_harmlessly():
    """The error of rm has the name of the run escaped."""
    with barograph.init(project="p", name=f"live{CLEAR}\nfake") as run:
        run.log({"x": 1.0}, step=0)
        done = barograph_command(["rm", run.id, "--yes"])
    assert done.returncode == 1
    assert "live␛[2J␛[H␊fake" in require_harmless(done.stderr, "utf-8")


def test_sync_is_harmless(hostile: barograph.Run, tmp_path: Path):
    """The path of the tracker's output is printed escaped."""
    done = barograph_command(["sync", "@last", "--to", "jsonl", "--arg", f"path={tmp_path}/x{CLEAR}.jsonl"])
    assert done.returncode == 0, done.stderr
    require_harmless(done.stdout + done.stderr, "utf-8")
    done = barograph_command(["sync", "@last", "--to", f"nothing{CLEAR}"])
    assert done.returncode == 1
    require_harmless(done.stdout + done.stderr, "utf-8")


def test_a_terminal_gets_colours_but_no_sequence_of_a_run(hostile: barograph.Run):
    """On a terminal only barograph's own colours are escape sequences."""
    import pty
    import re

    for arguments in (["ls"], ["show", "@last"], ["phases", "@last"], ["tail", "@last"], ["samples", "@last"]):
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "barograph", *arguments],
            stdout=follower, stderr=follower, stdin=subprocess.DEVNULL,
            env={**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        os.close(follower)
        data = b""
        try:
            while chunk := os.read(leader, 65536):
                data += chunk
        except OSError:  # Linux reports the end of a terminal as an error
            pass
        os.close(leader)
        assert process.wait(30) == 0, data
        assert b"\x1b[" in data
        plain = re.sub(rb"\x1b\[[0-9;]*m", b"", data).replace(b"\r\n", b"\n")
        require_harmless(plain, "utf-8")


def test_charts_are_drawn_with_ascii_where_the_encoding_has_nothing_else():
    """Sparklines and symbols have substitutes of one character."""
    with barograph.init(project="p", name="ascii") as run:
        for step in range(24):
            run.log({"loss": float(step)}, step=step)
    text = barograph_command(["show", run.id], "ascii").stdout.decode("ascii")
    assert "v finished" in text
    [line] = [line for line in text.splitlines() if line.strip().startswith("loss")]
    assert "__...,,,,---~~~====***##" in line
    assert "\\u" not in text


def test_a_lone_surrogate_breaks_no_export(tmp_path: Path):
    """frame, CSV, JSON lines and Parquet have the name with an escape."""
    with barograph.init(project="p", name="s") as run:
        run.log({"bad\udc80name": 1.0, "good": 2.0}, step=0)
    view = barograph.open(run.path)
    assert sorted(view.frame().columns) == ["bad\\udc80name", "good"]
    for format in ("csv", "jsonl", "parquet"):
        done = barograph_command(["export", run.id, "--to", format, "-o", str(tmp_path / f"out.{format}")])
        assert done.returncode == 0, done.stderr
    import pyarrow.parquet as pq

    assert "bad\\udc80name" in pq.read_table(tmp_path / "out.parquet").column_names
    assert "bad\\udc80name" in (tmp_path / "out.csv").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "out.jsonl").read_text())["metrics"]["bad\udc80name"] == 1.0


def test_csv_headers_are_no_formulas(tmp_path: Path):
    """Names that begin with = + - or @, also after a blank or in full width, get an apostrophe; others stay."""
    names = ["=1+1", "+x", "-y", "@z", "\t=cmd|' /C calc'!A0", " =1", "＝1", "actor/kl", "a=b", "'quoted"]
    with barograph.init(project="p", name="csv", role="=role") as run:
        run.log(dict.fromkeys(names, 1.0), step=0)
    out = barograph_command(["export", run.id, "--to", "csv"]).stdout.decode()
    header, row = list(csv.reader(io.StringIO(out)))
    assert not [cell for cell in (*header, *row[:1]) if cell.strip()[0] in "=+-@＝＋－＠"]
    assert {"'=1+1", "'+x", "'-y", "'@z", "' =1", "'＝1", "actor/kl", "a=b", "'quoted"} <= set(header)
    assert row[0] == "'=role"


def test_printable_leaves_nothing_to_interpret():
    """Every code point but newline comes out printable, joiners excepted, and plain text is unchanged."""
    text = "".join(map(chr, range(sys.maxunicode + 1)))
    assert {c for c in printable(text) if not c.isprintable()} <= {"\u200c", "\u200d"}
    assert printable("奖励 é ✓") == "奖励 é ✓"
    assert printable("a\nb") == "a␊b"
    assert printable("a\nb", newlines=True) == "a\nb"
    assert encodable("a\udc80\x1b") == "a\\udc80\x1b"
