"""The settings of a run: one table for keywords, YAML, environment and documentation.

A YAML file of ROLL, Trinity-RFT or TRL holds a whole training configuration with a few keys for us in it. Those
are read, the rest is kept as the run's config, and only a near miss of one of our keys is an error. Inside our own
sections every unknown key is one.
"""

from __future__ import annotations

import difflib
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windsock.errors import SettingsError
from windsock.model import MAIN_ROLE
from windsock.mounts import is_far
from windsock.process import process_start
from windsock.to_plain import to_plain

MODES = ("online", "disabled")
VOCABULARIES = ("roll", "trl", "trinity")
MEMORIES = ("all", "cpu", "none")


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be set, and how."""

    name: str
    kinds: tuple[type, ...]
    default: str
    help: str
    variable: str | None = None  # of the environment
    choices: tuple[str, ...] = ()


TABLE = (
    Setting("project", (str,), "default", "what runs of one purpose share", "WINDSOCK_PROJECT"),
    Setting("name", (str,), "the run's id", "what people call the run", "WINDSOCK_NAME"),
    Setting("id", (str,), "drawn", "the run's id; the same id joins or continues a run", "WINDSOCK_RUN_ID"),
    Setting("dir", (str, os.PathLike), "./windsock-runs", "where runs are kept", "WINDSOCK_DIR"),
    Setting("role", (str,), MAIN_ROLE, "what this process does: trainer, explorer, …", "WINDSOCK_ROLE"),
    Setting("rank", (int,), "from the launcher, else 0", "this process's number in its role", "WINDSOCK_RANK"),
    Setting("track_with", (str, list, tuple), "none", "the tracker or trackers to feed", "WINDSOCK_TRACK_WITH"),
    Setting("tracker_kwargs", (Mapping,), "{}", "what the tracker takes; with several, one mapping for each name"),
    Setting("config", (object,), "{}", "the training's configuration: a mapping, dataclass, namespace or OmegaConf"),
    Setting("vocabulary", (str,), "roll", "the names that computed metrics get", "WINDSOCK_VOCABULARY", VOCABULARIES),
    Setting("group", (str,), "none", "runs that belong together, below the project", "WINDSOCK_GROUP"),
    Setting("tags", (str, list, tuple), "none", "words to find the run by"),
    Setting("notes", (str,), "none", "a few lines about the run"),
    Setting("detailed_stats", (bool,), "false", "fan evaluation statistics out to mean, std, max and min over tasks"),
    Setting("samples_per_step", (int,), "64", "how many samples of a step are kept; 0 keeps none",
            "WINDSOCK_SAMPLES_PER_STEP"),
    Setting("sample_bytes_per_step", (int,), "1048576", "how many bytes they may have, before they are packed",
            "WINDSOCK_SAMPLE_BYTES_PER_STEP"),
    Setting("memory", (str,), "all", "memory that phases read; cpu: no devices", "WINDSOCK_MEMORY", MEMORIES),
    Setting("memory_children", (bool,), "false", "count processes below this one into its host memory (slow)"),
    Setting("system_seconds", (int, float), "0", "sample the machine so often", "WINDSOCK_SYSTEM_SECONDS"),
    Setting("devices", (int,), "those in use", "accelerators of the run, for numbers per device", "WINDSOCK_DEVICES"),
    Setting("peak_flops", (int, float), "known devices", "what one accelerator can do, in FLOP/s, for the utilisation"),
    Setting("in_process", (bool,), "false", "feed trackers from threads of this process instead of from the relay"),
    Setting("spool", (str, os.PathLike), "where dir is a network mount",
            "a local directory to write to first, or off; the bytes are carried to dir", "WINDSOCK_SPOOL"),
    Setting("alongside", (bool,), "false", "keep earlier runs of this process open instead of ending them"),
    Setting("mode", (str,), "online", "disabled makes every call a cheap no-op", "WINDSOCK_MODE", MODES),
)  # fmt: skip
BY_NAME = {setting.name: setting for setting in TABLE}

OWN_SECTION = "windsock"
MONITOR_KEYS = ("monitor_type", "monitor_args", "detailed_stats", "cache_dir", "enable_ray_timeline")
TOP_KEYS = ("track_with", "tracker_kwargs", "exp_name", "monitor", "report_to", "project_kwargs", OWN_SECTION)
"""Our words at the top of somebody's training configuration; ``project``, ``name`` and ``group`` are read too."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``init`` was asked for, checked and complete."""

    project: str
    name: str | None
    id: str | None
    dir: Path
    role: str
    rank: int
    trackers: dict[str, dict[str, Any]]  # by name, in the order given
    config: dict[str, Any]
    vocabulary: str = "roll"
    group: str | None = None
    tags: tuple[str, ...] = ()
    notes: str | None = None
    detailed_stats: bool = False
    samples_per_step: int = 64
    sample_bytes_per_step: int = 1 << 20  # of JSON
    memory: str = "all"
    memory_children: bool = False
    system_seconds: float = 0.0
    devices: int | None = None
    peak_flops: float | None = None
    in_process: bool = False
    spool: Path | None = None  # None: straight into dir
    alongside: bool = False
    disabled: bool = False
    world_size: int = 1  # how many processes the launcher says there are


AS_GIVEN = (
    "vocabulary", "group", "notes", "detailed_stats", "samples_per_step", "sample_bytes_per_step", "memory",
    "memory_children", "devices", "peak_flops", "in_process", "alongside",
)  # fmt: skip
"""Settings that are what was given, or the default of their field."""


def resolve(
    source: Any = None, keywords: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Unite a YAML file or mapping, the environment and keywords, in rising order of precedence."""
    environ = os.environ if environ is None else environ
    given, config = read_source(source)
    from_environment = {
        setting.name: environ[setting.variable]
        for setting in TABLE
        if setting.variable and environ.get(setting.variable)
    }
    chosen = {key: value for key, value in (keywords or {}).items() if value is not None}
    merged = {**given, **from_environment, **chosen}
    if environ.get("WINDSOCK_MODE") == "disabled":
        merged["mode"] = "disabled"
    for name, value in merged.items():
        merged[name] = _checked(BY_NAME[name], value)
    if "config" in merged:
        config = {**config, **plain_config(merged["config"])}
    return _settings(merged, config, environ)


def _settings(merged: Mapping[str, Any], config: dict[str, Any], environ: Mapping[str, str]) -> Settings:
    trackers = _trackers(merged.get("track_with"), merged.get("tracker_kwargs") or {})
    hints: dict[str, Any] = {}  # a tracker's own project and name serve where ours are not given
    for kwargs in trackers.values():
        hints = {
            **{key: kwargs[key] for key in ("project", "name") if isinstance(kwargs.get(key), str)},
            **hints,
        }
    id, dir = merged.get("id"), Path(merged.get("dir") or "windsock-runs")
    return Settings(
        project=merged.get("project") or hints.get("project") or "default",
        name=merged.get("name") or hints.get("name"),
        id=id or shared_run_id(environ),
        dir=dir,
        role=merged.get("role") or MAIN_ROLE,
        rank=merged["rank"] if "rank" in merged else rank_from(environ),
        trackers=trackers,
        config=config,
        tags=_words(merged.get("tags")),
        system_seconds=float(merged.get("system_seconds", 0.0)),
        spool=_spool(merged.get("spool"), dir),
        disabled=merged.get("mode") == "disabled",
        world_size=world_size_from(environ),
        **{name: merged[name] for name in AS_GIVEN if name in merged},
    )


def _spool(given: Any, dir: Path) -> Path | None:
    """Return where to write first: as told, or where the runs lie on a network mount, in the temporary directory."""
    if given is not None:
        return None if str(given) == "off" else Path(given)
    temporary = Path(tempfile.gettempdir())
    return temporary / f"windsock-{os.getuid()}" / "spool" if is_far(dir) and not is_far(temporary) else None


def read_source(source: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a configuration into our settings and the training's own."""
    if source is None:
        return {}, {}
    if isinstance(source, str | os.PathLike):
        source = _load_yaml(Path(source))
    data = _interpolated(source)
    if not isinstance(data, Mapping):
        raise SettingsError(f"init: expected a YAML path or a mapping, got {_got(source)}")
    _refuse_near_misses(data)
    ours = _from_trl(data) | _from_trinity(data) | _from_roll(data) | _from_own(data)
    for name, value in ours.items():
        _refuse_unresolved(name, value)
    config = {key: value for key, value in data.items() if key != OWN_SECTION}
    return ours, config


def _from_roll(data: Mapping[str, Any]) -> dict[str, Any]:
    ours = {key: data[key] for key in ("track_with", "tracker_kwargs", "project", "name", "group") if data.get(key)}
    ours = {key: value for key, value in ours.items() if key in TOP_KEYS or isinstance(value, str)}
    if isinstance(data.get("exp_name"), str):
        ours.setdefault("name", data["exp_name"])
    return ours


def _from_trinity(data: Mapping[str, Any]) -> dict[str, Any]:
    monitor = data.get("monitor")
    if not monitor:
        return {}
    if not isinstance(monitor, Mapping):
        raise SettingsError(f"monitor: expected a mapping, got {_got(monitor)}")
    _refuse_unknown("monitor", monitor, MONITOR_KEYS)
    ours: dict[str, Any] = {}
    if monitor.get("monitor_type"):
        ours["track_with"] = monitor["monitor_type"]
        ours["tracker_kwargs"] = _checked(
            BY_NAME["tracker_kwargs"], monitor.get("monitor_args") or {}, "monitor.monitor_args"
        )
    if monitor.get("detailed_stats") is not None:
        ours["detailed_stats"] = _checked(
            BY_NAME["detailed_stats"], monitor["detailed_stats"], "monitor.detailed_stats"
        )
    return ours


def _from_trl(data: Mapping[str, Any]) -> dict[str, Any]:
    report_to = data.get("report_to")
    names = [report_to] if isinstance(report_to, str) else list(report_to or ())
    if not names or names == ["none"]:
        return {}
    if "all" in names:
        raise SettingsError("report_to: 'all' depends on what happens to be installed; name the trackers instead")
    ours: dict[str, Any] = {"track_with": names}
    folder = (data.get("project_kwargs") or {}).get("logging_dir") or data.get("logging_dir")
    if "tensorboard" in names and folder:
        ours["tracker_kwargs"] = {"tensorboard": {"log_dir": folder}}
    if isinstance(data.get("run_name"), str):
        ours["name"] = data["run_name"]
    return ours


def _from_own(data: Mapping[str, Any]) -> dict[str, Any]:
    section = data.get(OWN_SECTION)
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise SettingsError(f"{OWN_SECTION}: expected a mapping of settings, got {_got(section)}")
    _refuse_unknown(OWN_SECTION, section, BY_NAME)
    return {key: value for key, value in section.items() if value is not None}


def _trackers(track_with: Any, kwargs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Pair every tracker with its arguments: flat for one tracker, a mapping per name for several."""
    names = _words(track_with)
    if not names:
        return {}
    by_name = set(kwargs) <= set(names) and all(isinstance(value, Mapping | None) for value in kwargs.values())
    if len(names) == 1 and not by_name:
        return {names[0]: dict(kwargs)}
    _refuse_unknown("tracker_kwargs", kwargs, names, "one mapping for each of the trackers")
    for name, value in kwargs.items():
        if value is not None and not isinstance(value, Mapping):
            raise SettingsError(f"tracker_kwargs.{name}: expected a mapping, got {type(value).__name__}")
    return {name: dict(kwargs.get(name) or {}) for name in names}


def _words(value: Any) -> tuple[str, ...]:
    """Return a list of words from one, several with commas, or a list."""
    if value is None:
        return ()
    words = value.split(",") if isinstance(value, str) else value
    return tuple(dict.fromkeys(word.strip() for word in words if word and word.strip() not in ("", "none")))


def _checked(setting: Setting, value: Any, key: str | None = None) -> Any:
    """Return the value, or raise naming the key, what it takes and what came."""
    key = key or setting.name
    if setting.kinds == (int,) and isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if float in setting.kinds and isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    wrong_bool = isinstance(value, bool) and bool not in setting.kinds and object not in setting.kinds
    if not isinstance(value, setting.kinds) or wrong_bool:
        expected = " or ".join(_kind_name(kind) for kind in setting.kinds)
        got = type(value).__name__ if "kwargs" in key or "args" in key else _got(value)  # may hold a key
        raise SettingsError(f"{key}: expected {expected}, got {got}")
    if isinstance(value, list | tuple) and not all(isinstance(word, str) for word in value):
        raise SettingsError(f"{key}: expected a list of strings, got {_got(value)}")
    if setting.choices and value not in setting.choices:
        raise SettingsError(f"{key}: expected one of {', '.join(setting.choices)}, got {value!r}")
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        raise SettingsError(f"{key}: expected 0 or more, got {value}")
    return value


def plain_config(value: Any) -> dict[str, Any]:
    """Return what a user hands over as config, a mapping, dataclass, namespace or OmegaConf, as plain data."""
    data = _interpolated(value)
    if not isinstance(data, dict):
        raise SettingsError(f"config: expected a mapping, dataclass, namespace or OmegaConf, got {_got(value)}")
    return data


def rank_from(environ: Mapping[str, str]) -> int:
    """Find this process's rank where torchrun, SLURM or MPI say it."""
    for variable in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if environ.get(variable, "").isdigit():
            return int(environ[variable])
    return 0


def world_size_from(environ: Mapping[str, str]) -> int:
    """Find how many processes torchrun or SLURM started."""
    size = environ.get("WORLD_SIZE", environ.get("SLURM_NTASKS", "1"))
    return int(size) if size.isdigit() else 1


def shared_run_id(environ: Mapping[str, str]) -> str | None:
    """Derive one run id for all processes of a launched job, so that they join without being told.

    SLURM's job and step, torchrun's rendezvous id, or on one node torchrun's own process identify the job; a
    restart of its workers is then a new attempt of the same run. None where nothing is shared.
    """
    if world_size_from(environ) < 2:
        return None
    if environ.get("SLURM_JOB_ID"):
        return f"slurm-{environ['SLURM_JOB_ID']}-{environ.get('SLURM_STEP_ID', '0')}"
    elastic = environ.get("TORCHELASTIC_RUN_ID", "none")
    if elastic != "none":
        return "torchrun-" + "".join(c if c.isalnum() else "-" for c in elastic)[:50]
    if environ.get("LOCAL_WORLD_SIZE") == environ.get("WORLD_SIZE"):
        parent = os.getppid()
        return f"torchrun-{parent}-{int(process_start(parent) or 0)}"
    return None


def _load_yaml(path: Path) -> Any:
    from omegaconf import OmegaConf

    try:
        return OmegaConf.load(path)
    except FileNotFoundError:
        raise SettingsError(f"no file {path}: expected the path of a YAML file") from None
    except Exception as problem:
        raise SettingsError(f"{path} is no readable YAML: {problem}") from problem


def _interpolated(source: Any) -> Any:
    """Return plain data with ``${…}`` resolved; what cannot be resolved stays as it is written."""
    data = to_plain(source)
    if not isinstance(data, Mapping) or "${" not in repr(data):
        return data
    from omegaconf import OmegaConf

    if not OmegaConf.has_resolver("now"):
        OmegaConf.register_new_resolver("now", lambda pattern: time.strftime(pattern), use_cache=True)
    return _resolve_node(OmegaConf.create(data))


def _resolve_node(node: Any) -> Any:
    from omegaconf import DictConfig, ListConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if not isinstance(node, DictConfig | ListConfig):
        return node
    keys: Iterable[Any] = node.keys() if isinstance(node, DictConfig) else range(len(node))
    written = OmegaConf.to_container(node, resolve=False)
    resolved = {}
    for key in keys:
        try:
            resolved[key] = _resolve_node(node[key])
        except OmegaConfBaseException:
            resolved[key] = written[key]
    return resolved if isinstance(node, DictConfig) else list(resolved.values())


def _refuse_near_misses(data: Mapping[str, Any]) -> None:
    for key in data:
        if key not in TOP_KEYS and (near := difflib.get_close_matches(str(key), TOP_KEYS, 1, 0.88)):
            raise SettingsError(f"unknown key {key!r}: did you mean {near[0]!r}?")


def _refuse_unknown(section: str, given: Iterable[Any], known: Iterable[str], what: str = "") -> None:
    known = list(known)
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"expected {what or 'one of'}: {', '.join(known)}"
            raise SettingsError(f"{section}: unknown key {key!r}; {hint}")


def _refuse_unresolved(name: str, value: Any) -> None:
    if isinstance(value, str) and "${" in value:
        raise SettingsError(f"{name}: cannot resolve {value!r}")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _refuse_unresolved(f"{name}.{key}", inner)


def _kind_name(kind: type) -> str:
    names: dict[type, str] = {
        str: "a string",
        int: "an integer",
        float: "a number",
        bool: "true or false",
        list: "a list",
        tuple: "a tuple",
    }
    return names.get(kind, "a path" if kind is os.PathLike else "a mapping")


def _got(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} ({text if len(text) <= 40 else text[:39] + '…'})"
