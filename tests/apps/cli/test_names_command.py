"""``barograph explain --run``, ``barograph names``, ``names.yaml`` and ``source=``: what names mean, and why."""

import json
import math
from pathlib import Path

import pytest

import barograph
from barograph.answers.runs.open_runs import OpenRuns
from barograph.answers.views.meanings import names_view
from barograph.answers.views.overview import overview
from barograph.apps.cli import main
from barograph.base.errors import SettingsError
from barograph.catalogue.spec import CatalogueError
from barograph.diagnosis.diagnose import doctor
from barograph.importers.summary import run_names, run_warnings

GRPO = [
    "loss",
    "grad_norm",
    "learning_rate",
    "epoch",
    "reward",
    "reward_std",
    "frac_reward_zero_std",
    "completions/mean_length",
]
GRPO += ["completions/clipped_ratio", "clip_ratio/region_mean"]


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty config directory of the user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "barograph"


def record(folder: Path, kl: list[float], **more: object) -> barograph.View:
    """Record a run that logs TRL's names and two of its own, and open it."""
    run = barograph.init(dir=folder, project="p", id="rl", **more)  # type: ignore[arg-type]
    for step, value in enumerate(kl):
        run.log(dict.fromkeys(GRPO, 0.1 * step) | {"kl": value, "my/wait_s": 1.0, "weird": 2.0}, step)
        run.commit()
    run.finish()
    return barograph.open("rl", folder)


UNDECIDED = [0.5 + 0.01 * (step % 3) for step in range(25)]
SIGNED = [0.03 * math.sin(2.7 * step) for step in range(25)]


def test_explain_tells_what_a_name_is_in_a_run_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The values decide that kl is RLOO's, and the explanation says so."""
    record(tmp_path, SIGNED)
    assert main(["explain", "kl", "--run", "rl", "--dir", str(tmp_path), "--lang", "en"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("KL to the reference per token (k1)")
    assert "Why it is this" in text
    assert "a k3 estimate is never negative" in text


def test_explain_lists_the_candidates_of_an_ambiguous_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """What the run does not decide is listed with the sources that would; a source decides."""
    record(tmp_path, UNDECIDED)
    arguments = ["explain", "kl", "--run", "rl", "--dir", str(tmp_path), "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ambiguous"]
    assert {one["id"] for one in found["meanings"]} == {"policy/kl_loss", "policy/ref_kl_k1"}
    assert main([*arguments, "--source", "trl/rloo"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "policy/ref_kl_k1"


def test_explain_without_a_run_lists_the_meanings_shortest_first(capsys: pytest.CaptureFixture[str]):
    """All meanings of kl, by the length of their definition."""
    assert main(["explain", "kl", "--json", "--lang", "en"]) == 0
    found = json.loads(capsys.readouterr().out)["meanings"]
    assert {"policy/kl_loss", "policy/ref_kl_k1", "policy/kl_k3", "preference/kto_kl"} <= {one["id"] for one in found}
    lengths = [len(one["note"]) for one in found]
    assert lengths == sorted(lengths)
    assert main(["explain", "kl", "--lang", "en"]) == 0
    assert f"kl has {len(found)} meanings" in capsys.readouterr().out


def test_an_ambiguous_name_is_not_judged_and_the_overview_says_why(tmp_path: Path):
    """No verdict comes from it, and the overview lists what it may be."""
    view = record(tmp_path, UNDECIDED)
    assert "kl" not in {sign.key for sign in doctor(view).signs}
    with OpenRuns(tmp_path).use("rl") as opened:
        absent = {one["key"]: one["reason"]["en"] for one in overview(opened, 10)["absent"]}
    assert absent["kl"].startswith("kl may be")
    assert "trl/rloo" in absent["kl"]
    assert absent["entropy"] == "Under no name that barograph knows; unknown names of this run: 2."


def test_unknown_names_are_a_state_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The commands and the page count them, with what their form suggests."""
    view = record(tmp_path, SIGNED)
    assert run_names(view).unknown == ["my/wait_s", "weird"]
    assert main(["show", "rl", "--dir", str(tmp_path)]) == 0
    assert "this run has 13 names, and barograph knows 11" in " ".join(capsys.readouterr().out.split())
    assert main(["names", "rl", "--dir", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["unknown"]["my/wait_s"]["guessed"]["unit"] == "seconds"
    assert found["unknown"]["weird"]["guessed"] is None
    with OpenRuns(tmp_path).use("rl") as opened:
        page = names_view(opened)
    charts = {chart["main"]: chart for chart in page["charts"]}
    assert page["unknown"] == ["my/wait_s", "weird"]
    assert {"family": "time", "unit": "seconds", "direction": "none"}.items() <= charts["my/wait_s"]["guessed"].items()
    assert charts["reward"]["guessed"] is None


def test_names_prints_a_file_that_teaches_the_names(
    tmp_path: Path, config_home: Path, capsys: pytest.CaptureFixture[str]
):
    """The printed file is valid as it is and changes nothing; filled in, it is read by everything."""
    view = record(tmp_path, UNDECIDED)
    assert main(["names", "rl", "--dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    file = tmp_path / "names.yaml"
    file.write_text(printed)
    assert run_names(view).unknown == ["my/wait_s", "weird"]
    assert run_warnings(view) == []
    filled = printed.replace("my/wait_s:\n  is:", "my/wait_s:\n  is: time/wait_for_batch")
    filled = filled.replace("kl:\n  is:", "kl:\n  is: policy/kl_loss")
    file.write_text(filled.replace("weird:\n", "weird:\n  about: A number of our own.\n", 1).replace("about:  #", "#"))
    names = run_names(view)
    assert (names.unknown, names.ambiguous) == ([], [])
    assert names.match("my/wait_s").metric.id == "time/wait_for_batch"  # type: ignore[union-attr]
    assert [sign.key for sign in doctor(view).signs if sign.name == "kl"] == ["kl"]
    with OpenRuns(tmp_path).use("rl") as opened:
        record_of = names_view(opened)["metrics"]["taught/weird"]
    assert record_of["about"]["en"] == "A number of our own."
    assert main(["explain", "weird", "--run", "rl", "--dir", str(tmp_path), "--lang", "en"]) == 0
    assert "A number of our own." in capsys.readouterr().out
    file.unlink()
    config_home.mkdir(parents=True)
    (config_home / "names.yaml").write_text("weird: system/step\n")
    assert run_names(view).match("weird").metric.id == "system/step"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("weird: [", "cannot be read as YAML"),
        ("- a\n- b\n", "expected names with their meanings"),
        ("weird: policy/kl_lss\n", "no metric has the id"),
        ("weird: {abuot: x}\n", "unknown key 'abuot'"),
        ("weird: {about: x, better: up}\n", "unknown direction 'up'"),
        ("weird: 3\n", "expected the id of a metric"),
    ],
)
def test_a_mistake_in_the_file_is_a_warning(tmp_path: Path, text: str, problem: str):
    """The other names keep their meaning."""
    view = record(tmp_path, SIGNED)
    (tmp_path / "names.yaml").write_text(text)
    assert len(run_names(view).known) == 11
    assert any(problem in warning for warning in run_warnings(view))


def test_the_source_is_recorded_with_the_run(tmp_path: Path):
    """What init states decides for every reader."""
    view = record(tmp_path, UNDECIDED, source="trl/rloo")
    assert view.source == "trl/rloo"
    names = run_names(view)
    assert names.source == "trl/rloo"
    assert names.match("kl").metric.id == "policy/ref_kl_k1"  # type: ignore[union-attr]


def test_a_reader_may_state_the_source(tmp_path: Path):
    """Open takes what the run does not record."""
    record(tmp_path, UNDECIDED)
    view = barograph.open("rl", tmp_path, source="trl/grpo")
    assert run_names(view).match("kl").metric.id == "policy/kl_loss"  # type: ignore[union-attr]
    with pytest.raises(CatalogueError, match="unknown source"):
        barograph.open("rl", tmp_path, source="tlr")


def test_a_misspelt_source_raises_before_anything_is_written(tmp_path: Path):
    """A wrong source is an error of the settings."""
    with pytest.raises(SettingsError, match="trl/rloo"):
        barograph.init(dir=tmp_path / "runs", source="trl/rlo")
    assert not (tmp_path / "runs").exists()


def test_measured_names_stay_barographs_beside_a_source(tmp_path: Path):
    """What barograph writes in its vocabulary keeps its meaning in a run of another framework."""
    view = record(tmp_path, UNDECIDED, source="trl/rloo")
    assert run_names(view).resolve("actor/policykl").match.metric.id == "policy/kl_exact"  # type: ignore[union-attr]


def test_a_file_beside_a_log_of_another_program_is_read(tmp_path: Path):
    """The journal of an imported log is in the cache; names.yaml lies beside the log."""
    steps = [{"loss": 1.0, "squeak": 2.0, "step": step} for step in range(5)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": steps, "global_step": 5}))
    view = barograph.open(tmp_path / "trainer_state.json")
    assert run_names(view).unknown == ["squeak"]
    (tmp_path / "names.yaml").write_text("squeak:\n  about: how much it squeaks\n")
    assert run_names(view).unknown == []
