"""Settings from YAML in the forms of ROLL, Trinity-RFT and TRL, from keywords and from the environment."""

import argparse
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import barograph
from barograph.base.errors import SettingsError
from barograph.base.settings import TABLE, Settings, resolve

ROLL = """
exp_name: sokoban
seed: 42
output_dir: ./output
track_with: wandb
tracker_kwargs:
  api_key: k3y
  project: roll-agentic
  name: ${exp_name}_frozen_lake
  log_dir: /data/${now:%Y%m%d}/logs
rollout_batch_size: 1024
hydra: {run: {dir: "${hydra:runtime.cwd}/x"}}
"""
TRINITY = """
project: Trinity-RFT
name: countdown
group: g1
mode: both
monitor:
  monitor_type: wandb
  monitor_args: {base_url: "http://localhost"}
  detailed_stats: true
  enable_ray_timeline: false
  cache_dir: /tmp/x
"""
TRL = """
report_to: tensorboard
project_kwargs: {logging_dir: runs/tb}
run_name: ppo-1
learning_rate: 1.0e-6
"""


def from_yaml(tmp_path: Path, text: str, **keywords: Any) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return resolve(path, keywords, {})


def test_a_roll_configuration_works_unchanged(tmp_path: Path):
    """Tracker, arguments and interpolations are read; everything else is the run's config, as written."""
    settings = from_yaml(tmp_path, ROLL)
    kwargs = settings.trackers["wandb"]
    assert (settings.project, settings.name) == ("roll-agentic", "sokoban")
    assert (kwargs["api_key"], kwargs["name"]) == ("k3y", "sokoban_frozen_lake")
    assert re.fullmatch(r"/data/\d{8}/logs", kwargs["log_dir"])
    assert settings.config["rollout_batch_size"] == 1024
    assert settings.config["hydra"] == {"run": {"dir": "${hydra:runtime.cwd}/x"}}


def test_a_trinity_configuration_works(tmp_path: Path):
    """The monitor section selects the tracker; Trinity's mode is not our setting."""
    settings = from_yaml(tmp_path, TRINITY)
    assert settings.trackers == {"wandb": {"base_url": "http://localhost"}}
    assert (settings.project, settings.name, settings.group) == ("Trinity-RFT", "countdown", "g1")
    assert settings.detailed_stats
    assert not settings.disabled


def test_a_trl_configuration_works(tmp_path: Path):
    """report_to selects the tracker, project_kwargs its directory."""
    settings = from_yaml(tmp_path, TRL)
    assert settings.trackers == {"tensorboard": {"log_dir": "runs/tb"}}
    assert settings.name == "ppo-1"
    assert from_yaml(tmp_path, "report_to: none").trackers == {}
    assert list(from_yaml(tmp_path, "report_to: [wandb, tensorboard]").trackers) == ["wandb", "tensorboard"]


@pytest.mark.parametrize("text", ["run_name: x", "{report_to: none, run_name: x}", "{report_to: [], run_name: x}"])
def test_the_name_in_trls_form_counts_without_a_tracker(text: str, tmp_path: Path):
    """run_name is the name of the run whatever it reports to."""
    assert from_yaml(tmp_path, text).name == "x"


def test_a_run_has_the_name_of_trls_arguments(tmp_path: Path):
    """Also where nothing is reported to."""
    with barograph.init({"report_to": "none", "run_name": "x"}, dir=tmp_path) as run:
        assert run.name == "x"


@pytest.mark.parametrize(
    "text",
    [
        "report_to: barograph",
        "report_to: [barograph]",
        "track_with: barograph",
        "monitor: {monitor_type: barograph}",
        "monitor: {monitor_type: barograph.integrations.frameworks.trinity.Monitor}",
        "{track_with: barograph, tracker_kwargs: {barograph: }}",
        "trainer: {logger: [console, barograph]}",
    ],
)
def test_barograph_among_the_trackers_is_the_run_itself(text: str, tmp_path: Path):
    """A file that names barograph where a framework expects a tracker needs no tracker of that name."""
    settings = from_yaml(tmp_path, text)
    assert (settings.trackers, settings.track_with) == ({}, ())


@pytest.mark.parametrize(
    "text",
    [
        "{track_with: barograph, tracker_kwargs: {project: agentic, samples_per_step: 8}}",
        "{track_with: [barograph], tracker_kwargs: {barograph: {project: agentic, samples_per_step: 8}}}",
        "{track_with: [stdout, barograph], tracker_kwargs: {barograph: {project: agentic, samples_per_step: 8}}}",
        "monitor: {monitor_type: barograph, monitor_args: {project: agentic, samples_per_step: 8}}",
    ],
)
def test_arguments_of_barograph_as_a_tracker_are_settings(text: str, tmp_path: Path):
    """What a framework would pass to the tracker is what barograph.init takes; a setting of its own wins."""
    settings = from_yaml(tmp_path, text)
    assert (settings.project, settings.samples_per_step) == ("agentic", 8)
    assert from_yaml(tmp_path, text, project="other").project == "other"


def test_an_unknown_argument_of_barograph_as_a_tracker_is_an_error(tmp_path: Path):
    """The nearest setting is named, as in barograph's own section."""
    with pytest.raises(SettingsError, match="tracker_kwargs.barograph: unknown key 'projekt'; did you mean 'project'?"):
        from_yaml(tmp_path, "{track_with: barograph, tracker_kwargs: {projekt: x}}")


def test_several_trackers_have_one_mapping_each(tmp_path: Path):
    """The list form pairs arguments with names; one tracker may use either form."""
    text = "track_with: [jsonl, stdout]\ntracker_kwargs: {jsonl: {path: a.jsonl}}"
    assert from_yaml(tmp_path, text).trackers == {"jsonl": {"path": "a.jsonl"}, "stdout": {}}
    assert from_yaml(tmp_path, "track_with: jsonl\ntracker_kwargs: {path: a}").trackers == {"jsonl": {"path": "a"}}
    assert from_yaml(tmp_path, "track_with: jsonl\ntracker_kwargs: {jsonl: {path: a}}").trackers == {
        "jsonl": {"path": "a"}
    }
    assert from_yaml(tmp_path, "track_with: stdout,jsonl").trackers == {"stdout": {}, "jsonl": {}}


def test_our_own_section_takes_every_setting(tmp_path: Path):
    """The barograph section is not stored as config."""
    settings = from_yaml(tmp_path, "lr: 1\nbarograph: {project: p, tags: [a, b], dir: /x, rank: 3, vocabulary: trl}")
    assert (settings.project, settings.tags, settings.dir, settings.rank) == ("p", ("a", "b"), Path("/x"), 3)
    assert settings.vocabulary == "trl"
    assert settings.config == {"lr": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("track_wth: wandb", "unknown key 'track_wth': did you mean 'track_with'?"),
        ("tracker_kwarg: {}", "unknown key 'tracker_kwarg': did you mean 'tracker_kwargs'?"),
        ("monitor: {monitor_typ: wandb}", "monitor: unknown key 'monitor_typ'; did you mean 'monitor_type'?"),
        ("barograph: {projekt: x}", "barograph: unknown key 'projekt'; did you mean 'project'?"),
        ("barograph: {rank: first}", "rank: expected an integer, got str ('first')"),
        ("barograph: {rank: true}", "rank: expected an integer, got bool (True)"),
        ("barograph: {rank: -1}", "rank: expected 0 or more, got -1"),
        ("barograph: {vocabulary: latin}", "vocabulary: expected one of roll, trl, trinity, got 'latin'"),
        ("barograph: {memory: gpu}", "memory: expected one of all, cpu, none, got 'gpu'"),
        ("barograph: {system_seconds: often}", "system_seconds: expected an integer or a number, got str ('often')"),
        ("barograph: {system_seconds: -1}", "system_seconds: expected 0 or more, got -1"),
        ("barograph: [1]", "barograph: expected a mapping of settings, got list ([1])"),
        ("track_with: 3", "track_with: expected a string or a list or a tuple, got int (3)"),
        ("track_with: [1, 2]", "track_with: expected a list of strings, got list ([1, 2])"),
        ("track_with: a\ntracker_kwargs: s3cret", "tracker_kwargs: expected a mapping, got str"),
        ("track_with: [a, b]\ntracker_kwargs: {project: x}",
         "tracker_kwargs: unknown key 'project'; expected one mapping for each of the trackers: a, b"),
        ("track_with: [a, b]\ntracker_kwargs: {a: x}", "tracker_kwargs.a: expected a mapping, got str"),
        ("track_with: wandb\ntracker_kwargs: {name: '${nope}'}", "tracker_kwargs.name: cannot resolve '${nope}'"),
        ("report_to: all", "report_to: 'all' depends on what happens to be installed; name the trackers instead"),
        ("monitor: wandb", "monitor: expected a mapping, got str ('wandb')"),
        ("monitor: {detailed_stats: 3}", "monitor.detailed_stats: expected true or false, got int (3)"),
        ("- a\n- b", "init: expected a YAML path or a mapping, got ListConfig (['a', 'b'])"),
    ],
)  # fmt: skip
def test_errors_name_the_key_and_the_value(tmp_path: Path, text: str, message: str):
    """With the expected type, and without any argument of a tracker, which may be a secret."""
    with pytest.raises(SettingsError) as caught:
        from_yaml(tmp_path, text)
    assert str(caught.value) == message


def test_a_missing_file_and_one_that_is_not_yaml(tmp_path: Path):
    """Both errors name the file."""
    with pytest.raises(SettingsError, match="no file .*nothing.yaml"):
        resolve(tmp_path / "nothing.yaml")
    with pytest.raises(SettingsError, match="cannot read .* as YAML"):
        from_yaml(tmp_path, "a: [1,")


def test_other_keys_at_the_top_are_no_errors(tmp_path: Path):
    """A complete training configuration is accepted, with keys that resemble ours."""
    text = "project_dir: x\nmonitoring: {a: 1}\nreport: y\ntracker: z\nnames: [a]\nmode: train\nrank: 16"
    settings = from_yaml(tmp_path, text)
    assert settings.rank == 0
    assert settings.config["rank"] == 16


def test_keywords_override_the_environment_which_overrides_the_file(tmp_path: Path):
    """Except BAROGRAPH_MODE=disabled, which overrides everything."""
    path = tmp_path / "c.yaml"
    path.write_text("barograph: {project: file, name: file, notes: file}")
    environ = {"BAROGRAPH_PROJECT": "env", "BAROGRAPH_NAME": "env", "BAROGRAPH_MODE": "disabled", "BAROGRAPH_RANK": "5"}
    settings = resolve(path, {"project": "keyword", "mode": "online"}, environ)
    assert (settings.project, settings.name, settings.notes, settings.rank) == ("keyword", "env", "file", 5)
    assert settings.disabled


@dataclasses.dataclass
class Inner:
    lr: float = 1e-6


@dataclasses.dataclass
class Config:
    actor: Inner = dataclasses.field(default_factory=Inner)
    path: Path = Path("/data")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"a": {"b": (1, 2)}}, {"a": {"b": [1, 2]}}),
        (Config(), {"actor": {"lr": 1e-6}, "path": "/data"}),
        (argparse.Namespace(lr=1, names={"b", "a"}), {"lr": 1, "names": ["a", "b"]}),
        (OmegaConf.create({"x": 1, "y": "${x}"}), {"x": 1, "y": 1}),
        ({"f": print, "nan": float("nan"), 3: None}, {"f": "builtins.print", "nan": "NaN", "3": None}),
    ],
)
def test_configs_of_every_kind_become_plain_data(config: object, expected: dict[str, object]):
    """Mapping, dataclass, namespace and OmegaConf; other objects become a description."""
    assert resolve(None, {"config": config}, {}).config == expected


def test_a_config_that_contains_itself_ends():
    """A cycle is cut, not followed."""
    config: dict[str, object] = {"a": 1}
    config["self"] = config
    config["twice"] = config
    assert resolve(None, {"config": config}, {}).config == {"a": 1, "self": "…", "twice": "…"}


def test_a_config_that_is_not_a_mapping_is_rejected():
    """The error shows the value."""
    with pytest.raises(SettingsError, match=r"config: expected a mapping.*got int \(3\)"):
        resolve(None, {"config": 3}, {})


def test_settings_of_the_probe():
    """By keyword, and as text from the environment."""
    settings = resolve(
        {"barograph": {"peak_flops": "989e12"}},
        {"memory": "cpu"},
        {"BAROGRAPH_SYSTEM_SECONDS": "2.5", "BAROGRAPH_DEVICES": "8"},
    )
    assert (settings.memory, settings.system_seconds) == ("cpu", 2.5)
    assert (settings.devices, settings.peak_flops) == (8, 989e12)


def test_the_documentation_lists_every_setting():
    """docs/settings.md has a row for each setting, with its default, variable and meaning."""
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    for setting in TABLE:
        variable = f"`{setting.variable}`" if setting.variable else ""
        assert f"| `{setting.name}` | {setting.default} | {variable} | {setting.help} |" in page
