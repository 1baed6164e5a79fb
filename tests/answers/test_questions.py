"""Questions about a run: ``barograph query``."""

import json
import math
from pathlib import Path

import pytest

import barograph
from barograph.answers.questions import FACTS, FUNCTIONS, answer
from barograph.apps.cli import main
from barograph.base.errors import ExpressionError


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = barograph.init(
        dir=tmp_path_factory.mktemp("runs"), id="asked", project="lab", name="lake", tags=["sweep"],
        config={"actor": {"lr": 1e-6}},
    )  # fmt: skip
    for step in range(10):
        values = {"critic/score/mean": step / 10, "actor/grad_norm": 1.0 + step % 3, "a-b.c/d@32": 3.0}
        run.log(
            {**values, "loss": math.nan if step == 4 else 2.0, "odd name (x)": 7.0, "actor/policykl_k1": 0.01},
            step=step,
        )
    run.finish()
    return str(run.path)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("last(critic/score/mean) > 0.5 and max(actor/grad_norm) < 10", True),
        ("last(critic/score/mean) > 0.95", False),
        ("first(critic/score/mean) = 0 and count(loss) = 10 and nonfinite(loss) = 1", True),
        ("min(actor/grad_norm) = 1 and mean(actor/grad_norm) < 2 and median(actor/grad_norm) = 2", True),
        ("mean(critic/score/mean, 2) > 0.84 and mean(critic/score/mean, 2) < 0.86", True),
        ("slope(critic/score/mean) > 0.09 and slope(critic/score/mean) < 0.11", True),
        ("at(critic/score/mean, 5) = 0.5 and at(critic/score/mean, 500) = 0.9", True),
        ("last(critic/score/mean) > first(critic/score/mean)", True),
        ("0.5 < last(critic/score/mean)", True),
        ("at(loss, 4) > 0 or at(loss, 4) <= 0 or at(loss, 4) != 0", False),
        ("mean(loss) = 2", True),
        ("last(a-b.c/d@32) = 3", True),
        ('last("odd name (x)") = 7', True),
        ("last(critic/score) > 0.5", True),
        ("max(grad_norm) = 3", True),
        ("last(policy/kl_k1) < 1 and last(actor/ppo_kl) = 0.01", True),
        ("status = finished and step >= 9 and seconds < 100", True),
        ("verdict = sick or project ~ LAB", True),
        ("tag = sweep and not name = other", True),
        ("config.actor.lr <= 1e-6 and config.nothing = none", True),
        ("finding = no_such_rule", False),
    ],
)
def test_what_is_true(path: str, question: str, expected: bool):
    """Functions of series, facts, and names in any vocabulary or short."""
    assert answer(barograph.open(path), question).holds is expected


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("last(critic/scor) > 1", "run asked has no metric 'critic/scor'; did you mean critic/score/mean?"),
        ("last(actor/grad_norm, 3) > 1", "last(actor/grad_norm, 3): expected last(METRIC)"),
        ("at(actor/grad_norm) > 1", "expected at(METRIC, STEP)"),
        ("mean(actor/grad_norm, 0) > 1", "expected a number of points of at least 1"),
        ("mean(actor/grad_norm, x) > 1", "expected mean(METRIC) or mean(METRIC, LAST_POINTS)"),
        ("at(actor/grad_norm, -3) > 1", "the first point is at step 0"),
        ("median(loss, 1) > high", "expected a number or a function such as last(METRIC); got 'high'"),
        ("loss > 1", "loss is a series: ask for one value of it, such as last(loss)"),
        ("statsu = finished", f"unknown fact 'statsu': expected {', '.join(FACTS)}"),
        ("last(loss) ~ 1", "~ compares texts"),
        ("step > high", "> compares numbers; got 'high'"),
        ("step > last(loss)", "is compared with a value, not with last(loss)"),
        ("exec(loss) > 1", "unknown function 'exec'"),
        ("last(loss)", "an example is 'last(val/score) > 0.5 and max(grad_norm) < 10'"),
    ],
)
def test_what_cannot_be_answered(path: str, question: str, message: str):
    """The error says why, and what is near."""
    with pytest.raises(ExpressionError) as problem:
        answer(barograph.open(path), question)
    assert message in str(problem.value)


def test_a_missing_metric_is_never_hidden(path: str):
    """Whatever the other side of ``or`` says."""
    with pytest.raises(ExpressionError, match="no metric 'nothing'"):
        answer(barograph.open(path), "step > 0 or last(nothing) > 1")


def test_a_name_with_several_meanings_is_not_guessed(path: str):
    """The names that it may be are listed."""
    run = barograph.init(id="two")
    run.log({"actor/grad_norm": 1.0, "critic/grad_norm": 2.0}, step=0)
    run.finish()
    with pytest.raises(ExpressionError, match="may be actor/grad_norm or critic/grad_norm here"):
        answer(barograph.open("two"), "max(grad_norm) < 10")


@pytest.mark.parametrize(
    ("question", "code"), [("step = 9", 0), ("step = 8", 1), ("last(nothing) > 1", 2), ("step >", 2)]
)
def test_the_exit_code_is_the_answer(path: str, question: str, code: int, capsys: pytest.CaptureFixture[str]):
    """0 for true, 1 for false, 2 for what cannot be said, as for a run that is not there."""
    assert main(["query", path, question]) == code
    assert main(["query", path, question, "--json"]) == code
    capsys.readouterr()
    assert main(["query", "nosuchrun", question, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"].startswith("no run in ")


def test_the_values_are_told(path: str, capsys: pytest.CaptureFixture[str]):
    """With the name that was taken where another was asked for."""
    main(["query", path, "max(grad_norm) > 2 and status = running"])
    assert capsys.readouterr().out.splitlines() == [
        "false",
        "  ✓ max(grad_norm) > 2  3  (grad_norm is actor/grad_norm here)",
        "  ✗ status = running  finished",
    ]


def test_help_and_docs_name_every_function_and_fact(capsys: pytest.CaptureFixture[str]):
    """The language is documented where it is used."""
    with pytest.raises(SystemExit):
        main(["query", "--help"])
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    for text in (capsys.readouterr().out, page):
        assert all(f"{function}(" in text for function in FUNCTIONS)
        assert all(fact in text for fact in FACTS)
