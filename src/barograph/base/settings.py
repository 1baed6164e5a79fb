"""Settings of a run: one declaration for keywords, YAML, environment and documentation.

A YAML file of ROLL, Trinity-RFT or TRL is a complete training configuration with a few keys for barograph in it. Those
are read, the rest is stored as the run's config, and only a near miss of one of our keys is an error. Inside our own
sections every unknown key is one.
"""

from __future__ import annotations

import os
import string
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from barograph.base.errors import SettingsError, did_you_mean
from barograph.base.files.mounts import default_spool, is_remote
from barograph.base.formatting import to_plain

# ruff: noqa: RUF009 - setting() returns a dataclass field
from barograph.base.former_name import runs_folder
from barograph.base.model import MAIN_ROLE, RayPlace
from barograph.base.process.identity import launch_from

MODES = ("online", "disabled")
VOCABULARIES = ("roll", "trl", "trinity")
MEMORIES = ("all", "cpu", "none")
STOP_SEVERITIES = ("warning", "critical")
FUNCTION = cast(type, Callable)
KIND_NAMES: dict[type, str] = {
    str: "a string", int: "an integer", float: "a number", bool: "true or false", list: "a list", tuple: "a tuple",
    FUNCTION: "a function", os.PathLike: "a path", Mapping: "a mapping",
}  # fmt: skip
SWITCHES = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
"""How the environment says true and false."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as a user gives it: accepted types, and its row in docs/settings.md."""

    name: str
    help: str
    kinds: tuple[type, ...]
    default: str
    variable: str | None = None  # of the environment
    choices: tuple[str, ...] = ()
    old_name: str | None = None  # accepted with a DeprecationWarning until 0.3


def setting(
    help: str,
    *kinds: type,
    default: Any = None,
    shown: str | None = None,
    variable: str | None = None,
    choices: tuple[str, ...] = (),
    old_name: str | None = None,
) -> Any:
    """Declare a field of ``Settings`` that users can set; ``shown`` is its default in the documentation."""
    if shown is None:
        shown = "none" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
    described = {"help": help, "kinds": kinds, "default": shown, "choices": choices}
    metadata = {**described, "variable": variable, "old_name": old_name}
    return (
        field(default_factory=dict, metadata=metadata) if default is dict else field(default=default, metadata=metadata)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that ``init`` was given, checked and completed.

    This is the one declaration of the settings: ``TABLE`` is made from it, and tests compare the signature of ``init``
    and docs/settings.md with it.
    """

    project: str = setting(
        "name of the project; related runs share it", str, default="default", variable="BAROGRAPH_PROJECT"
    )
    name: str | None = setting("display name of the run", str, shown="the run's id", variable="BAROGRAPH_NAME")
    id: str | None = setting(
        "id of the run; a process with the same id joins or continues it", str, shown="random",
        variable="BAROGRAPH_RUN_ID",
    )  # fmt: skip
    dir: Path = setting(
        "directory of all runs", str, os.PathLike, default=Path("barograph-runs"), shown="./barograph-runs",
        variable="BAROGRAPH_DIR",
    )  # fmt: skip
    role: str = setting("role of this process: trainer, explorer, …", str, default=MAIN_ROLE, variable="BAROGRAPH_ROLE")
    rank: int = setting(
        "number of this process in its role", int, default=0, shown="from the launcher, else 0",
        variable="BAROGRAPH_RANK",
    )  # fmt: skip
    world_size: int | None = setting(
        "number of processes of the role", int, shown="from the launcher", variable="BAROGRAPH_WORLD_SIZE"
    )
    replica: int = setting(
        "number of this process among those that hold the same data, such as its tensor-parallel rank", int, default=0,
        variable="BAROGRAPH_REPLICA",
    )  # fmt: skip
    track_with: tuple[str, ...] = setting(
        "tracker or trackers that receive the metrics", str, list, tuple, default=(), shown="none",
        variable="BAROGRAPH_TRACK_WITH",
    )  # fmt: skip
    tracker_kwargs: Mapping[str, Any] = setting(
        "arguments of the tracker; with several trackers, one mapping per name", Mapping,
        default=dict, shown="{}",
    )  # fmt: skip
    config: dict[str, Any] = setting(
        "the training's configuration: a mapping, dataclass, namespace or OmegaConf", object, default=dict, shown="{}"
    )
    vocabulary: str = setting(
        "vocabulary of the computed metrics' names", str, default="roll", variable="BAROGRAPH_VOCABULARY",
        choices=VOCABULARIES,
    )  # fmt: skip
    source: str | None = setting(
        "framework whose code computes the logged values, with trainer or version: trl/rloo, verl/0.9", str,
        shown="found from the names", variable="BAROGRAPH_SOURCE",
    )  # fmt: skip
    group: str | None = setting("name of a group of runs within the project", str, variable="BAROGRAPH_GROUP")
    tags: tuple[str, ...] = setting("tags of the run", str, list, tuple, default=(), shown="none")
    notes: str | None = setting("free text about the run", str)
    detailed_stats: bool = setting(
        "write evaluation statistics as mean, std, max and min over tasks", bool, default=False
    )
    samples_per_step: int = setting(
        "maximum number of samples stored per step; 0 stores none", int, default=64,
        variable="BAROGRAPH_SAMPLES_PER_STEP",
    )  # fmt: skip
    sample_bytes_per_step: int = setting(
        "maximum size of a step's samples in bytes of JSON, before compression", int, default=1 << 20,
        variable="BAROGRAPH_SAMPLE_BYTES_PER_STEP",
    )  # fmt: skip
    token_samples_per_step: int = setting(
        "number of sequences of a measured batch with ids whose tokens are stored per step; 0 stores none", int,
        default=4, variable="BAROGRAPH_TOKEN_SAMPLES_PER_STEP",
    )  # fmt: skip
    memory: str = setting(
        "memory that phases read: all, cpu (no devices) or none", str, default="all", variable="BAROGRAPH_MEMORY",
        choices=MEMORIES,
    )  # fmt: skip
    memory_children: bool = setting("include child processes in the host memory of phases (slow)", bool, default=False)
    system_seconds: float = setting(
        "interval of the system sampler in seconds; 0 disables it", int, float, default=0.0, shown="0",
        variable="BAROGRAPH_SYSTEM_SECONDS",
    )  # fmt: skip
    engines: tuple[str, ...] = setting(
        "URLs of the inference engines (vLLM, SGLang) whose metrics the first process of the role reads", str, list,
        tuple, default=(), shown="none", variable="BAROGRAPH_ENGINES",
    )  # fmt: skip
    engine_seconds: float = setting(
        "interval of the readings of inference engines in seconds; 0 disables them", int, float, default=5.0, shown="5",
        variable="BAROGRAPH_ENGINE_SECONDS",
    )  # fmt: skip
    devices: int | None = setting(
        "number of accelerators of the run, for metrics per device", int, shown="those in use",
        variable="BAROGRAPH_DEVICES",
    )  # fmt: skip
    peak_flops: float | None = setting(
        "peak FLOP/s of one accelerator, for the utilisation", int, float, shown="known devices"
    )
    in_process: bool = setting(
        "deliver to trackers from threads of this process instead of the relay process", bool, default=False
    )
    doctor: bool | None = setting(
        "run the doctor beside the training, in a process of its own", bool, shown="on where a relay process runs",
        variable="BAROGRAPH_DOCTOR",
    )  # fmt: skip
    on_finding: Callable[[Any], Any] | None = setting(
        "function that is called at a commit with each finding of the doctor that begins, gets worse or ends",
        FUNCTION,
    )
    finding_webhook: str | None = setting(
        "URL to which findings are posted as JSON", str, variable="BAROGRAPH_FINDING_WEBHOOK"
    )
    finding_command: str | None = setting(
        "command that is run for each finding, with the finding as JSON on its standard input", str,
        variable="BAROGRAPH_FINDING_COMMAND",
    )  # fmt: skip
    stop_on: str | None = setting(
        "severity of a finding that sets run.should_stop: warning or critical", str, variable="BAROGRAPH_STOP_ON",
        choices=STOP_SEVERITIES,
    )  # fmt: skip
    spool: Path | None = setting(
        "local directory to write to first, from where files are copied to dir; or off", str, os.PathLike,
        shown="used if dir is a network mount", variable="BAROGRAPH_SPOOL",
    )  # fmt: skip
    server: str | None = setting(
        "address of a barograph server that the run is sent to; its token is in BAROGRAPH_TOKEN", str,
        variable="BAROGRAPH_SERVER",
    )  # fmt: skip
    concurrent: bool = setting(
        "keep earlier runs of this process open instead of finishing them", bool, default=False, old_name="alongside"
    )
    mode: str = setting(
        "online, or disabled: every call is a cheap no-op", str, default="online", variable="BAROGRAPH_MODE",
        choices=MODES,
    )  # fmt: skip

    trackers: dict[str, dict[str, Any]] = field(default_factory=dict)  # arguments by name, in the order given
    rank_given: bool = False  # by the user or the launcher, or claimed on joining
    claimed: bool = False  # the segment of this rank exists already: it was created to claim the rank
    elsewhere: bool = False  # the run's directory is on another machine: the spool is sent there, or to the server
    ray_place: RayPlace | None = None  # where the run was begun; None if this process began it, or without Ray

    @property
    def alone(self) -> bool | None:
        """Whether this is the only process of its role; None if nothing tells."""
        if self.rank > 0 or (self.world_size or 0) > 1:
            return False
        if self.world_size == 1:
            return True
        return False if self.rank_given else None

    @property
    def disabled(self) -> bool:
        """Whether every call is a no-op."""
        return self.mode == "disabled"


TABLE = tuple(Setting(name=f.name, **f.metadata) for f in fields(Settings) if f.metadata)
BY_NAME = {setting.name: setting for setting in TABLE}
RENAMED = {setting.old_name: setting.name for setting in TABLE if setting.old_name}

OWN_SECTION = "barograph"
MONITOR_KEYS = ("monitor_type", "monitor_args", "detailed_stats", "cache_dir", "enable_ray_timeline")
TOP_KEYS = ("track_with", "tracker_kwargs", "exp_name", "monitor", "report_to", "project_kwargs", OWN_SECTION)
"""Our keys at the top of a training configuration. ``project``, ``name`` and ``group`` are read too."""
NEEDING_DOCTOR = ("on_finding", "finding_webhook", "finding_command", "stop_on")
"""The settings that turn the doctor on."""
MAY_HAVE_SECRETS = ("engines", "finding_webhook", "finding_command", "server")
"""Settings whose values are in no error message; nor are those of trackers."""


def resolve(
    source: Any = None, keywords: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Merge a YAML file or mapping, the environment and keywords, in rising order of precedence."""
    environ = os.environ if environ is None else environ
    given, config = read_source(source)
    from_environment = {
        setting.name: environ[setting.variable]
        for setting in TABLE
        if setting.variable and environ.get(setting.variable)
    }
    chosen = {key: value for key, value in (keywords or {}).items() if value is not None}
    merged = {**given, **from_environment, **with_current_names(chosen)}
    # Above keywords too: a job can be run without recording and without a change of its code.
    if environ.get("BAROGRAPH_MODE") == "disabled":
        merged["mode"] = "disabled"
    for name, value in merged.items():
        merged[name] = _checked(BY_NAME[name], value)
    merged = {**_own_arguments(merged), **merged}
    if "config" in merged:
        config = {**config, **plain_config(merged["config"])}
    return _settings({**merged, "config": config}, environ)


def with_current_names(given: Mapping[str, Any], stacklevel: int = 4) -> dict[str, Any]:
    """Return settings under their current names, with a DeprecationWarning at the caller of ``init`` for old ones."""
    for old in given.keys() & RENAMED.keys():
        text = f"barograph: the setting {old!r} is now {RENAMED[old]!r}; the old name works until 0.3"
        warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)
    return {RENAMED.get(name, name): value for name, value in given.items()}


def _settings(given: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Complete the settings that depend on each other or on the launcher."""
    trackers = _trackers(given.get("track_with"), given.get("tracker_kwargs") or {})
    completed = {name: value for name, value in given.items() if value not in (None, "")}
    for kwargs in reversed(trackers.values()):  # a tracker's own project and name are used if ours are not given
        for key in ("project", "name"):
            if isinstance(kwargs.get(key), str) and not given.get(key):
                completed[key] = kwargs[key]
    dir, launch = Path(completed.get("dir") or runs_folder(Path())), launch_from(environ)
    completed |= {
        "dir": dir,
        "id": completed.get("id") or launch.run_id,
        "rank": given.get("rank", launch.rank or 0),
        "rank_given": "rank" in given or launch.rank is not None,
        "world_size": given.get("world_size", launch.world_size),
        "track_with": tuple(trackers),
        "tags": _words(given.get("tags")),
        "system_seconds": float(given.get("system_seconds", 0.0)),
        "engines": _words(given.get("engines")),
        "engine_seconds": float(given.get("engine_seconds", 5.0)),
        "spool": _spool(given.get("spool"), dir),
    }
    for url in completed["engines"]:
        checked_url("engines", url)
    if completed.get("finding_webhook"):
        checked_url("finding_webhook", completed["finding_webhook"])
    if completed.get("server"):
        completed["server"] = server_url(completed["server"])
    if "doctor" not in completed and any(completed.get(name) for name in NEEDING_DOCTOR):
        completed["doctor"] = True
    return Settings(**completed, trackers=trackers)


def server_url(url: Any) -> str:
    """Return the address of a server; raise SettingsError if it is none, or has a secret in it."""
    parts = checked_url("server", url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise SettingsError("server: expected a URL without user, query or fragment; the token is in BAROGRAPH_TOKEN")
    return parts.geturl().rstrip("/")


def checked_url(setting: str, url: Any) -> SplitResult:
    """Return the parts of a URL; raise SettingsError, without the URL's secrets, if it is none."""
    got = "a string of another form" if isinstance(url, str) else type(url).__name__
    with suppress(ValueError):  # of a wrong port, or of brackets that do not match
        parts = urlsplit(url.strip()) if isinstance(url, str) else SplitResult("", "", "", "", "")
        _ = parts.port
        if parts.scheme in ("http", "https") and parts.hostname and not set(parts.geturl()) & set(string.whitespace):
            return parts
    raise SettingsError(f"{setting}: expected a URL such as http://host:8000, got {got}")


def _spool(given: Any, dir: Path) -> Path | None:
    """Return the directory to write to first: the given one, or for runs on a network mount a temporary directory."""
    if given is not None:
        return None if str(given) == "off" else Path(given)
    spool = default_spool()
    return spool if is_remote(dir) and not is_remote(spool.parent.parent) else None


def read_source(source: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a configuration into our settings and the training's own keys."""
    if source is None:
        return {}, {}
    if isinstance(source, str | os.PathLike):
        source = _load_yaml(Path(source))
    data = _interpolated(source)
    if not isinstance(data, Mapping):
        raise SettingsError(f"init: expected a YAML path or a mapping, got {_got(source)}")
    _reject_near_misses(data)
    ours = _from_trl(data) | _from_trinity(data) | _from_roll(data) | _from_own(data)
    for name, value in ours.items():
        _reject_unresolved(name, value)
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
    _reject_unknown("monitor", monitor, MONITOR_KEYS)
    ours: dict[str, Any] = {}
    if monitor.get("monitor_type"):
        ours["track_with"] = monitor["monitor_type"]
        args = monitor.get("monitor_args") or {}
        ours["tracker_kwargs"] = _checked(BY_NAME["tracker_kwargs"], args, "monitor.monitor_args")
    if (detailed := monitor.get("detailed_stats")) is not None:
        ours["detailed_stats"] = _checked(BY_NAME["detailed_stats"], detailed, "monitor.detailed_stats")
    return ours


def _from_trl(data: Mapping[str, Any]) -> dict[str, Any]:
    ours: dict[str, Any] = {"name": data["run_name"]} if isinstance(data.get("run_name"), str) else {}
    report_to = data.get("report_to")
    names = [report_to] if isinstance(report_to, str) else list(report_to or ())
    if not names or names == ["none"]:
        return ours
    if "all" in names:
        raise SettingsError("report_to: 'all' depends on what happens to be installed; name the trackers instead")
    ours["track_with"] = names
    folder = (data.get("project_kwargs") or {}).get("logging_dir") or data.get("logging_dir")
    if "tensorboard" in names and folder:
        ours["tracker_kwargs"] = {"tensorboard": {"log_dir": folder}}
    return ours


def _from_own(data: Mapping[str, Any]) -> dict[str, Any]:
    section = data.get(OWN_SECTION)
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise SettingsError(f"{OWN_SECTION}: expected a mapping of settings, got {_got(section)}")
    _reject_unknown(OWN_SECTION, section, [*BY_NAME, *RENAMED])
    return with_current_names({key: value for key, value in section.items() if value is not None}, stacklevel=6)


def _trackers(track_with: Any, kwargs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each tracker: flat for one tracker, a mapping per name for several."""
    return {name: own for name, own in _arguments(track_with, kwargs).items() if not _is_own(name)}


def _own_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among the arguments of trackers: those of ``barograph``, which is this run itself."""
    found: dict[str, Any] = {}
    for name, own in _arguments(given.get("track_with"), given.get("tracker_kwargs") or {}).items():
        if _is_own(name):
            _reject_unknown(f"tracker_kwargs.{name}", own, BY_NAME)
            found |= {key: _checked(BY_NAME[key], value) for key, value in own.items() if value is not None}
    return found


def _is_own(tracker: str) -> bool:
    """Return whether a tracker is barograph, by its name or by the path of a class, as Trinity gives monitors."""
    return tracker.partition(".")[0] == OWN_SECTION


def _arguments(track_with: Any, kwargs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    names = _words(track_with)
    if not names:
        return {}
    by_name = set(kwargs) <= set(names) and all(isinstance(value, Mapping | None) for value in kwargs.values())
    if len(names) == 1 and not by_name:
        return {names[0]: dict(kwargs)}
    _reject_unknown("tracker_kwargs", kwargs, names, "one mapping for each of the trackers")
    for name, value in kwargs.items():
        if value is not None and not isinstance(value, Mapping):
            raise SettingsError(f"tracker_kwargs.{name}: expected a mapping, got {type(value).__name__}")
    return {name: dict(kwargs.get(name) or {}) for name in names}


def _words(value: Any) -> tuple[str, ...]:
    """Return the words of a string with commas, or of a list."""
    if value is None:
        return ()
    words = value.split(",") if isinstance(value, str) else value
    return tuple(dict.fromkeys(word.strip() for word in words if word and word.strip() not in ("", "none")))


def _checked(setting: Setting, value: Any, key: str | None = None) -> Any:
    """Return the value, or raise an error with the key, the expected type and the given value."""
    key = key or setting.name
    if setting.kinds == (int,) and isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if setting.kinds == (bool,) and isinstance(value, str):
        value = SWITCHES.get(value.strip().lower(), value)
    if float in setting.kinds and isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    # True is an int in Python, but ``rank: true`` is a mistake.
    wrong_bool = isinstance(value, bool) and bool not in setting.kinds and object not in setting.kinds
    if not isinstance(value, setting.kinds) or wrong_bool:
        expected = " or ".join(KIND_NAMES[kind] for kind in setting.kinds)
        got = _type_or_value(key, value)
        raise SettingsError(f"{key}: expected {expected}, got {got}")
    if isinstance(value, list | tuple) and not all(isinstance(word, str) for word in value):
        raise SettingsError(f"{key}: expected a list of strings, got {_type_or_value(key, value)}")
    if setting.choices and value not in setting.choices:
        raise SettingsError(f"{key}: expected one of {', '.join(setting.choices)}, got {value!r}")
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        raise SettingsError(f"{key}: expected 0 or more, got {value}")
    if setting.name == "world_size" and value == 0:
        raise SettingsError("world_size: expected 1 or more, got 0")
    return value


def plain_config(value: Any) -> dict[str, Any]:
    """Return a config (a mapping, dataclass, namespace or OmegaConf) as plain data."""
    data = _interpolated(value)
    if not isinstance(data, dict):
        raise SettingsError(f"config: expected a mapping, dataclass, namespace or OmegaConf, got {_got(value)}")
    return data


def _load_yaml(path: Path) -> Any:
    from omegaconf import OmegaConf

    try:
        return OmegaConf.load(path)
    except FileNotFoundError:
        raise SettingsError(f"no file {path}: expected the path of a YAML file") from None
    except Exception as error:  # of the YAML parser, of OmegaConf, or of the file system
        raise SettingsError(f"cannot read {path} as YAML: {error}") from error


def _interpolated(source: Any) -> Any:
    """Return plain data with ``${…}`` resolved; expressions that cannot be resolved stay as written."""
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


def _reject_near_misses(data: Mapping[str, Any]) -> None:
    for key in data:
        if key not in TOP_KEYS and (hint := did_you_mean(key, TOP_KEYS, cutoff=0.88)):
            raise SettingsError(f"unknown key {key!r}: {hint}")


def _reject_unknown(section: str, given: Iterable[Any], known: Iterable[str], what: str = "") -> None:
    known = list(known)
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known, f"expected {what or 'one of'}: {', '.join(known)}", cutoff=0.5)
            raise SettingsError(f"{section}: unknown key {key!r}; {hint}")


def _reject_unresolved(name: str, value: Any) -> None:
    # As a literal it would become the name of a run or a directory.
    if isinstance(value, str) and "${" in value:
        raise SettingsError(f"{name}: cannot resolve {value!r}")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _reject_unresolved(f"{name}.{key}", inner)


def _type_or_value(key: str, value: Any) -> str:
    may_have_secrets = "kwargs" in key or "args" in key or key in MAY_HAVE_SECRETS
    return type(value).__name__ if may_have_secrets else _got(value)


def _got(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} ({text if len(text) <= 40 else text[:39] + '…'})"
