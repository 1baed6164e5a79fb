"""``barograph explain`` explains a name: plain on a pipe, in two languages, and as JSON."""

import argparse
import json
import os
import pty
import subprocess
import sys

import pytest

from barograph.apps.cli import names
from barograph.apps.terminal.layout import cells, wrap
from barograph.catalogue.describe import describe, families

EXAMPLES = [
    ("policy/kl_exact", ["Exact KL", "actor/policykl"]),
    ("critic/clipfrac", ["Value clip fraction", "squared", "value_clip"]),
    ("objective/kl", ["nats per sequence", "0 to 10", "per token: never compare"]),
    ("val/ratio", ["0.8 to 1.2", "1/m", "not validation"]),
    (
        "memory/actor_train/train_step/end/onload/max_allocated_frac/3",
        ["actor_train/train_step", "the worst rank is hidden"],
    ),
    ("eval/openai/gsm8k/accuracy/best@8", ["openai/gsm8k", "with replacement", "not pass@k"]),
    ("actor/perf/max_memory_allocated_gb", ["GiB", "never reset", "first rank"]),
    ("completions/clipped_ratio", ["neither EOS nor", "stop string", "frac_reward_zero_std"]),
]


def run_explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command; return exit code, output and errors."""
    parser = argparse.ArgumentParser()
    names.run_explain.add_arguments(parser)
    code = names.run_explain.run(parser.parse_args(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize(("name", "facts"), EXAMPLES)
def test_an_explanation_has_all_sections(name: str, facts: list[str], capsys: pytest.CaptureFixture[str]):
    """Meaning, band, next steps, names and traps are present."""
    code, out, _ = run_explain(capsys, name, "--lang", "en")
    text = " ".join(out.split())
    assert code == 0
    assert [fact for fact in facts if fact not in text] == []
    for heading in ("What healthy looks like", "What to look at next", "Names", "Traps", "formula", "unit"):
        assert heading in text


@pytest.mark.parametrize("name", [name for name, _ in EXAMPLES])
def test_an_explanation_in_chinese_has_no_english_sentence(name: str, capsys: pytest.CaptureFixture[str]):
    """The Chinese text is Chinese: outside formulas and names no line is English prose."""
    code, out, _ = run_explain(capsys, name, "--lang", "zh")
    assert code == 0
    prose = [line for line in out.splitlines() if " the " in line or " of the " in line]
    assert [line for line in prose if "公式" not in line and not line.startswith("               ")] == []
    for heading in ("正常时的表现", "接下来看什么", "在各框架中的名字", "常见误区"):
        assert heading in out


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", [name for name, _ in EXAMPLES])
def test_an_explanation_fits_eighty_columns(name: str, lang: str, capsys: pytest.CaptureFixture[str]):
    """No line is wider than a terminal, a Chinese character counting as two."""
    _, out, _ = run_explain(capsys, name, "--lang", lang)
    assert max(cells(line) for line in out.splitlines() if "/" not in line) <= 80
    assert "\x1b" not in out


def test_every_metric_can_be_explained_in_both_languages():
    """No declaration breaks the explanation."""
    for _, _, _, metrics in families():
        for metric in metrics:
            for lang in ("en", "zh"):
                explanation = describe(metric.id, lang, "barograph")
                assert explanation is not None
                assert explanation.about
                assert explanation.healthy
                assert explanation.next


def test_a_name_of_several_meanings_lists_them(capsys: pytest.CaptureFixture[str]):
    """Without a run or a source no meaning is preferred: all are listed, with their writers."""
    code, out, _ = run_explain(capsys, "actor/policykl", "--lang", "en")
    assert code == 0
    assert "actor/policykl has 2 meanings" in out
    assert out.index("policy/kl_exact") < out.index("barograph:roll")
    assert out.index("policy/kl_k1") < out.index("\n     roll\n")
    assert "What healthy looks like" not in out


def test_a_source_chooses_the_meaning(capsys: pytest.CaptureFixture[str]):
    """With a source the other meaning is explained."""
    _, out, _ = run_explain(capsys, "actor/policykl", "--source", "roll", "--lang", "en")
    assert "Approximate KL (k1)" in out.splitlines()[0]
    assert "The meaning depends on the writer" not in out


def test_the_advice_uses_the_writers_names(capsys: pytest.CaptureFixture[str]):
    """The advice for a veRL user contains veRL's names."""
    _, out, _ = run_explain(capsys, "actor/ppo_kl", "--source", "verl", "--lang", "en")
    assert "actor/pg_clipfrac" in out.split("What to look at next")[1].split("Names")[0]


def test_an_unknown_name_gets_the_nearest(capsys: pytest.CaptureFixture[str]):
    """The exit code is 1 and similar names are listed."""
    code, out, err = run_explain(capsys, "actor/policy_kl", "--lang", "en")
    assert (code, out) == (1, "")
    assert "actor/policykl" in err
    code, out, _ = run_explain(capsys, "actor/policy_kl", "--json")
    assert code == 1
    assert "actor/policykl" in json.loads(out)["nearest"]


def test_a_name_without_its_family_gets_the_whole_name(capsys: pytest.CaptureFixture[str]):
    """Names that end with what was typed come first."""
    err = run_explain(capsys, "policykl", "--lang", "en")[2]
    assert [line.strip() for line in err.splitlines()[1:3]] == ["actor/policykl", "ppo/policy/policykl"]


def test_json_holds_the_whole_explanation(capsys: pytest.CaptureFixture[str]):
    """Programs get every field."""
    code, out, _ = run_explain(capsys, "critic/clipfrac", "--json", "--lang", "en")
    record = json.loads(out)
    assert code == 0
    assert record["id"] == "value/clip_fraction"
    assert {"about", "facts", "healthy", "next", "names", "traps", "readings"} <= set(record)
    assert any(line["mark"] == "≠" and line["sources"] == ["roll"] for line in record["names"])


@pytest.mark.parametrize("arguments", [[], ["--all"]])
def test_without_a_name_all_families_are_listed(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    """Every metric of every family is in the list, the crucial ones starred."""
    code, out, _ = run_explain(capsys, *arguments, "--lang", "en")
    assert code == 0
    for family, title, _, metrics in families():
        assert f" {title}  {family} · {len(metrics)}" in out
        assert all(metric.id in out for metric in metrics)
    assert "★ policy/ratio/mean" in out


def test_a_terminal_gets_colour():
    """On a real terminal the same text has escape codes."""
    code = (
        "import argparse\nfrom barograph.apps.cli import names\np = argparse.ArgumentParser()\n"
        "names.run_explain.add_arguments(p)\nnames.run_explain.run(p.parse_args(['val/ratio', '--lang', 'en']))"
    )
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=follower, env=environment)
    os.close(follower)
    output = b""
    while True:
        try:
            read = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        output += read
    os.close(leader)
    assert process.wait() == 0
    assert b"\x1b[" in output
    assert b"Importance ratio" in output


def test_chinese_text_breaks_between_characters_but_not_before_punctuation():
    """A line may end inside a Chinese sentence, not just before a comma or inside a word."""
    lines = wrap("对有效 token 求平均，再对 actor/policykl 取负，即得该指标。", 20)
    assert all(cells(line) <= 22 for line in lines)
    assert not any(line.startswith(("，", "。")) for line in lines)
    assert any("actor/policykl" in line for line in lines)
    assert "".join(lines).replace(" ", "") == "对有效token求平均，再对actor/policykl取负，即得该指标。"
