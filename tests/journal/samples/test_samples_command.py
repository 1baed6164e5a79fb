"""``barograph samples``, as people and programs use it."""

import io
import json
import math
import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

import barograph
from barograph.apps.cli import main
from barograph.apps.terminal import output
from barograph.apps.terminal.layout import wrap_line
from barograph.apps.terminal.samples import Highlight, Scale, TokenChoice, extremes, show_samples, visible_lines
from barograph.base.formatting import printable
from barograph.base.model import Sample
from barograph.journal.samples.query import FoundSamples
from barograph.journal.samples.token_sums import nonfinite
from sample_shapes import SAMPLES


@pytest.fixture
def run() -> barograph.Run:
    """Return a finished run with two steps of two groups, and a chat."""
    run = barograph.init(name="lake")
    for step in (3, 4):
        for task in ("left", "right"):
            for n in range(3):
                run.sample(
                    f"Go {task}!", f"attempt {n} of step {step}\n[bold]Slippery[/bold] ice", reward=n / 2,
                    rewards={"goal": float(n == 2), "speed": 0.25}, advantage=n - 1.0, length=10 * n + 1,
                    finish_reason="length" if n == 0 else "stop", task=task, group=f"{task}-{step}",
                    weight_version=step,
                )  # fmt: skip
        run.commit(step)
    chat = [{"role": "user", "content": "你好"}, {"role": "tool", "content": "\x1b[2J", "id": 7}]
    run.sample(messages=chat, task="chat")
    run.finish()
    return run


def cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["samples", "lake", *arguments]) == 0
    return capsys.readouterr().out


def test_a_listing_shows_facts_and_texts(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """One line of facts, prompt and completion below it, and the number of samples at the end."""
    out = cli(capsys, "--task", "left", "--step", "4", "--sort", "-reward", "-n", "1")
    assert out.splitlines() == [
        "step 4  left  group left-4  reward 1 (goal 1, speed 0.25)  advantage +1  21 tokens  stop  version 4",
        "  prompt",
        "    Go left!",
        "  completion",
        "    attempt 2 of step 4",
        "    [bold]Slippery[/bold] ice",
        "",
        "3 match, 1 shown (-n 0 shows all); 13 of 13 submitted samples are stored, steps 3 – 5, rewards 0 to 1",
    ]


def test_the_newest_step_comes_first(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """Without an order, the latest samples are shown."""
    lines = cli(capsys).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("step ")] == ["5", *["4"] * 6, *["3"] * 6]


def test_a_group_is_shown_by_reward_with_its_prompt_once(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """The prompt is not repeated for the members."""
    out = cli(capsys, "--group", "right-3")
    assert [line.split("reward ")[1][:3] for line in out.splitlines() if "reward " in line] == ["1 (", "0.5", "0 ("]
    assert (out.count("Go right!"), out.count("prompt  as above")) == (1, 2)


def test_filters_search_and_order_as_arguments(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """Every option reaches the query."""

    def found(*arguments: str) -> list[tuple[int, str, float]]:
        lines = cli(capsys, "--json", *arguments).splitlines()
        records = [json.loads(line) for line in lines]
        return [(record["step"], record["task"], record.get("reward")) for record in records]

    assert found("--step", "3", "--min-reward", "0.5", "--grep", "ATTEMPT 2") == [(3, "left", 1.0), (3, "right", 1.0)]
    assert found("--step", "4:", "--max-reward", "0.2", "--task", "left") == [(4, "left", 0.0)]
    assert found("--step", ":3", "--regex", "attempt [01]", "--finish-reason", "length", "--sort=-length") == [
        (3, "left", 0.0), (3, "right", 0.0),
    ]  # fmt: skip
    assert found("--sort", "-reward", "-n", "1") == [(3, "left", 1.0)]
    assert len(found("--sort", "reward")) == 13
    assert found("--grep", "你好") == [(5, "chat", None)]


def test_json_is_strict(capsys: pytest.CaptureFixture[str]):
    """One object per line, NaN as a string, all text in ASCII."""
    run = barograph.init(name="lake")
    run.sample("\ud800", "é", reward=math.nan, rewards={"a": math.inf})
    run.finish()
    [line] = cli(capsys, "--json").splitlines()
    record = json.loads(line, parse_constant=lambda word: pytest.fail(word))
    assert (record["prompt"], record["reward"], record["rewards"]) == ("\ud800", "NaN", {"a": "Infinity"})
    assert line.isascii()


def test_controls_and_markup_do_nothing(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """A completion cannot clear the screen, colour it or turn its direction."""
    out = cli(capsys, "--task", "chat")
    assert "\x1b" not in out
    assert "␛[2J" in out
    assert '{"id": 7}' in out
    assert printable("a\x00\x9b\u202e\ud800\tb\r\nc", newlines=True) == "a␀\\u009b\\u202e\\ud800   b\nc"


def test_no_match_shows_the_census(run: barograph.Run, capsys: pytest.CaptureFixture[str]):
    """The ranges of steps and rewards help with the next query."""
    assert cli(capsys, "--min-reward", "2") == (
        "no sample matches; 13 of 13 submitted samples are stored, steps 3 – 5, rewards 0 to 1\n"
    )
    barograph.init(name="empty").finish()
    assert main(["samples", "empty"]) == 0
    assert "empty has no samples: record them with run.sample(...)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--regex", "("], "argument --regex: regex '(': missing )"),
        (["--step", "x"], "argument --step: expected STEP or FIRST:LAST; got 'x'"),
        (["--where", "reward < high"], "argument --where: where: < compares numbers; got 'high'"),
    ],
)
def test_a_wrong_argument_is_reported(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    """With the expected form."""
    with pytest.raises(SystemExit):
        main(["samples", "lake", *arguments])
    assert message in capsys.readouterr().err


def test_long_texts_are_shortened_around_matches():
    """Beginning, end and matches are shown; all of it on request."""
    text = "\n".join(f"line {n}" for n in range(50))
    shown = visible_lines(text, 40, Highlight(grep="LINE 30").pattern, full=False)
    assert shown == [
        "line 0", "line 1", "line 2", "line 3", "… 25 more lines …", "line 29", "line 30", "line 31",
        "… 15 more lines …", "line 47", "line 48", "line 49",
    ]  # fmt: skip
    assert len(visible_lines(text, 40, None, full=True)) == 50
    huge = "x" * 100_000 + "needle" + "y" * 100_000
    shown = visible_lines(huge, 100, Highlight(regex="needle").pattern, full=False)
    assert any("needle" in line for line in shown)
    assert len(shown) < 30


def test_of_a_very_long_text_it_is_said_how_many_characters_are_omitted():
    """Lines that were never wrapped cannot be counted; within what was wrapped they are."""
    assert visible_lines("x" * 900_000, 100, None, full=False)[4:-3] == ["… about 900,000 more characters …"]
    text = "a" * 300_000 + "needle" + "b" * 52_000
    shown = visible_lines(text, 100, Highlight(grep="needle").pattern, full=False)
    gaps = [line for line in shown if line.startswith("…")]
    assert gaps == ["… about 300,000 more characters …", "… about 52,000 more characters …"]
    near = "a" * 7_000 + "needle" + "b" * 15_000
    shown = visible_lines(near, 100, Highlight(grep="needle").pattern, full=False)
    assert sum("needle" in line for line in shown) == 1
    assert shown == visible_lines(near, 100, Highlight(regex="needle").pattern, full=False)


def test_lines_are_folded_at_blanks_and_by_the_width_of_characters():
    """Chinese characters take two columns, and nothing is lost."""
    assert wrap_line("one two three four", 9) == ["one two", "three", "four"]
    assert wrap_line("字" * 7, 6) == ["字字字", "字字字", "字"]
    assert wrap_line("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert wrap_line("", 10) == [""]


def test_matches_are_highlighted_on_a_terminal():
    """Not in a pipe."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system="standard", width=80, highlight=False)
    show_samples(console, "n", FoundSamples([Sample("p", "The Answer is 4", step=1)], 1), Highlight(grep="answer"))
    assert "\x1b[30;43mAnswer\x1b[0m" in screen.getvalue()


def test_a_long_wait_is_explained_on_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Nothing is printed if it is quick or in a pipe, and the line is removed at the end."""
    monkeypatch.setattr(output, "PROGRESS_SECONDS", 0.0)
    piped = output.Progress("indexing samples")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    slow = output.Progress("indexing samples")
    monkeypatch.setattr(output, "PROGRESS_SECONDS", 60.0)
    quick = output.Progress("indexing samples")
    monkeypatch.setattr(output, "REPEAT_SECONDS", 60.0)
    for done in range(16, 33):
        quick.show(done, 32)
        piped.show(done, 32)
    assert capsys.readouterr().err == ""
    for done in range(16, 33):
        slow.show(done, 32)
    assert capsys.readouterr().err == "\rindexing samples: 50 %\r\x1b[K"


def test_a_real_terminal_shows_colour_and_a_pipe_does_not(run: barograph.Run):
    """The same command on a terminal and in a pipe."""
    command = [sys.executable, "-m", "barograph", "samples", "lake", "--grep", "slippery", "-n", "1"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    subprocess.run(command, stdout=slave, stderr=slave, check=True, env=environment)
    seen = os.read(master, 65536).decode()
    os.close(master)
    os.close(slave)
    assert "\x1b[" in seen
    assert "\x1b[" not in piped
    assert "[bold]Slippery[/bold]" in piped


def test_conditions_and_orders_by_any_column(capsys: pytest.CaptureFixture[str]):
    """Several conditions; a column that no sample has is told, with those that there are."""
    run = barograph.init(name="lake")
    for n in range(6):
        run.sample(completion=f"c{n}", reward=n, rewards={"format": n / 10}, correct=n % 2 == 0)
    run.finish()
    out = cli(capsys, "--where", "correct = false", "--where", "reward.format < 0.5", "--sort=-reward.format", "--json")
    assert [json.loads(line)["completion"] for line in out.splitlines()] == ["c3", "c1"]
    out = cli(capsys, "--where", "correct = false", "--sort", "-reward", "-n", "1")
    assert out.startswith("step 0  reward 5 (format 0.5)  correct false\n")
    assert "no sample has beauty; columns: reward.format, correct" in cli(capsys, "--sort", "beauty")


def test_a_chat_is_shown_as_turns(capsys: pytest.CaptureFixture[str]):
    """Reasoning is folded unless it is searched or all is asked for; calls, results and images have a line."""
    run = barograph.init(name="lake")
    chat = [
        {"role": "user", "content": [{"type": "image", "width": 4, "height": 2}, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": "<think>a secret</think>So.", "tool_calls": [
            {"id": "1", "function": {"name": "look\x1b[2J", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "a cat"},
    ]  # fmt: skip
    run.sample(messages=chat, answer="cat\x1b[2J", reference="dog", discarded="stale")
    run.finish()
    assert cli(capsys).splitlines()[:-2] == [
        "step 0  tool calls 1  discarded: stale", "  user", "    [image · 4 × 2]", "    What?", "  assistant",
        "    reasoning, 8 characters", "    So.", "    call look␛[2J", "    {}", "  tool", "    result look␛[2J",
        "    a cat", "  answer    cat␛[2J", "  reference dog",
    ]  # fmt: skip
    for arguments in (["--full"], ["--grep", "secret"]):
        assert "    a secret" in cli(capsys, *arguments).splitlines()


def test_tokens_are_shown_with_one_of_their_values(capsys: pytest.CaptureFixture[str]):
    """The most extreme ones as a list; samples without tokens are left out, and a value that is not there is told."""
    run = barograph.init(name="lake")
    run.sample(
        tokens=["a", "\x1b[2J", "c"], token_values={"entropy": [0.5, 4.0, 0.25], "mask": [1, 1, 0], "[red]x": [1, 1, 1]}
    )
    run.sample("p", "no tokens", step=1)
    run.finish()
    out = cli(capsys, "--tokens")
    assert "\x1b" not in out
    assert [line.split() for line in out.splitlines() if "(token" in line] == [
        ["4", "␛[2J", "(token", "1)"], ["0.5", "a", "(token", "0)"],
    ]  # fmt: skip
    assert "1 matches; 2 of 2" in out
    assert "no sample matches" in cli(capsys, "--tokens", "--step", "1")
    assert "no value 'kl' of tokens; it has entropy, mask, [red]x" in cli(capsys, "--value", "kl")
    same = cli(capsys, "--value", "[red]x")
    assert "  [red]x: 1\n" in same
    assert "(token" not in same


def test_tokens_are_coloured_by_the_first_value_that_tells_them_apart(capsys: pytest.CaptureFixture[str]):
    """As on the page; what the mask leaves out does not count."""
    run = barograph.init(name="lake")
    values = {"advantage": [9.0, 1.0, 1.0], "entropy": [99.0, 0.5, 2.0], "mask": [0, 1, 1]}
    run.sample(tokens=["a", "b", "c"], token_values=values)
    run.finish()
    assert "  entropy: 0.5 to 2\n" in cli(capsys, "--tokens")
    assert cli(capsys, "--token-sums").splitlines()[-1] == "entropy of 2 different tokens"


def test_tokens_are_summed_over_samples(capsys: pytest.CaptureFixture[str]):
    """By their text, the largest sum first, also of a value that follows from others; masked ones do not count."""
    run = barograph.init(name="lake")
    for n in range(3):
        values = {"log_prob": [-1.0, -0.5, -9.0], "reference": [-1.0, -1.0 - n, 0.0], "mask": [1, 1, 0]}
        run.sample(tokens=["so", " wait", "\x1b[2J"], token_values=values, step=n)
    run.finish()
    lines = cli(capsys, "--step", "1:", "--token-sums", "--value", "kl").splitlines()
    assert [line.split() for line in lines] == [
        ["share", "sum", "mean", "count", "token"],
        ["100.0%", "2.3052", "1.1526", "2", "wait"],
        ["0.0%", "0", "0", "2", "so"],
        ["kl", "of", "2", "different", "tokens"],
    ]
    shortened = cli(capsys, "--token-sums", "--value", "kl", "-n", "1").splitlines()
    assert len(shortened) == 3
    assert shortened[-1] == "kl of 2 different tokens, 1 shown (-n 0 shows all)"
    [wait, so] = map(json.loads, cli(capsys, "--step", "1:", "--token-sums", "--value", "kl", "--json").splitlines())
    assert (wait["schema"], wait["value"], wait["text"], wait["count"]) == ("barograph/token_sums/1", "kl", " wait", 2)
    assert wait["sum"] == pytest.approx(2.3052, abs=1e-4)
    assert (wait["share"], so["share"], len(wait["places"]), wait["places"][0]["token"]) == (1.0, 0.0, 2, 1)
    assert main(["samples", "lake", "--token-sums", "--value", "x"]) == 1
    assert "no value 'x' of tokens; there are kl, log_prob, mask, reference, surprise" in capsys.readouterr().err


def test_tokens_are_coloured_on_a_terminal():
    """The largest value has the strongest colour, and tokens that the mask leaves out are dim."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system="truecolor", width=80, highlight=False)
    sample = Sample(tokens=("low", "high", "out"), token_values={"entropy": (0.0, 2.0, 2.0), "mask": (1, 1, 0)})
    show_samples(console, "n", FoundSamples([sample], 1), Highlight(), TokenChoice("entropy"))
    out = screen.getvalue()
    assert "\x1b[37;48;2;0;114;178mhigh\x1b[0m" in out
    assert "\x1b[2mout\x1b[0m" in out


def test_a_scale_has_two_colours_only_for_values_of_both_signs():
    """A few values at each end do not make all others pale."""
    signed = Scale.of([-2.0, 0.0, 1.0])
    assert [signed.strength(value) for value in (-2.0, 0.0, 1.0, 9.0, math.nan)] == [-1.0, 0.0, 0.5, 1.0, 0.0]
    assert Scale.of([1.0, 1.0]).strength(1.0) == 0.0
    assert [Scale.of([-4.0, -2.0]).strength(value) for value in (-4.0, -3.0, -2.0)] == [-1.0, -0.5, 0.0]
    outlier = Scale.of([*([n / 100 for n in range(100)]), 1e9])
    assert outlier.strength(0.98) > 0.9
    few = Scale.of([1.0, *([0.0] * 500)])
    assert [few.strength(value) for value in (0.0, 1.0)] == [0.0, 1.0]


def test_ratios_have_no_colour_at_1():
    """As 0 has none of other values."""
    ratios = Scale.of([0.5, 1.0, 1.25, 2.0], 1.0)
    assert [ratios.strength(value) for value in (0.5, 1.0, 1.25, 2.0)] == [-0.5, 0.0, 0.25, 1.0]
    assert [Scale.of([1.0, 3.0], 1.0).strength(value) for value in (1.0, 2.0)] == [0.0, 0.5]
    assert [Scale.of([0.5, 0.75, 1.0], 1.0).strength(value) for value in (0.5, 0.75, 1.0)] == [-1.0, -0.5, 0.0]


def test_extremes_are_far_from_the_neutral_number_else_from_the_median():
    """What is not finite comes before; the same cases as in tests/apps/web/samples.test.js."""

    def found(values: list[float], mask: list[int] | None = None, neutral: float | None = None) -> list[int]:
        given = np.array(values, np.float32)
        marked = nonfinite(given, None if mask is None else np.array(mask)).tolist()
        return extremes(values, mask or [1] * len(values), marked, neutral)

    assert found([1, 1, 9, 1, -3, math.nan]) == [2, 4]
    assert found([1, 1, 9, 1, -3, math.nan], [1, 1, 0, 1, 1, 0]) == [4]
    assert found([]) == found([2, 2, 3], [1, 1, 0]) == []
    assert found([-3, -3, -3, 0, -2], neutral=0.0) == [0, 1, 2, 4]
    assert found([1, 0.2, 1.5], neutral=1.0) == [1, 2]
    values = [math.nan, 5, -math.inf, math.nan, 7, 5]
    assert found(values, [0, 1, 1, 1, 1, 1]) == [2, 3, 4]
    assert found(values) == [2, 4]
    assert found(values[2:4], neutral=0.0) == [0]


def test_what_is_not_finite_is_seen_on_a_terminal():
    """Tokens in another colour, their number by value, and first in the list; a value without numbers says so."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system="truecolor", width=80, highlight=False)
    values = {"kl": (0.5, math.nan, 0.0), "old": (-1.0, -math.inf, math.nan), "mask": (1, 1, 0)}
    sample = Sample(tokens=("fine", "sick", "out"), token_values=values)
    show_samples(console, "n", FoundSamples([sample], 1), Highlight(), TokenChoice("kl"))
    out = screen.getvalue()
    assert "\x1b[1;37;41msick\x1b[0m" in out
    assert "\x1b[2mout\x1b[0m" in out
    plain = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert "kl: 0.5\n" in plain
    assert "tokens with NaN or ±Inf: kl 1, surprise 1, old 1\n" in plain
    assert re.search(r"NaN  sick  \(token 1\)\n\n", plain)
    assert str(Scale.of([math.nan])) == "no finite value"


SHOWN = {
    "chat": ["Be brief.", "    Hi", "    Hello"], "tool": ["call look", '{"at": "Ulm"}', "result look", "rain"],
    "reasoning": ["reasoning, 15 characters", "The end"], "turns": ["    One", "    Two", "    Three"],
    "image": ["[image · image/png · 64 × 48 · 1.0 kB]"], "empty": ["no text"],
    "huge": ["begin xxx", "more characters", "yyy end"], "right to left": ["شكرا جزيلا"], "emoji": ["😀"],
    "controls": ["a␀b␛[31mc \\u202egnp"],
    "hostile": ["<script>document.title = 'owned'</script>", "<b>4</b>", "<i>t</i>", "<u>r</u>", "<img src=x onerror="],
    "markdown": ["**four**", "<script>document"],
}  # fmt: skip


def test_every_shape_is_shown(capsys: pytest.CaptureFixture[str]):
    """As text that does nothing to the terminal, in few lines."""
    run = barograph.init(name="lake")
    for step, fields in enumerate(SAMPLES.values()):
        run.sample(step=step, **fields)
    run.finish()
    for step, name in enumerate(SAMPLES):
        shown = cli(capsys, "--step", str(step))
        for text in SHOWN[name]:
            assert text in shown, name
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", shown), name
        assert len(shown.splitlines()) < 30, name
