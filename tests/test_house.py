"""Tests that keep the house in order: levels, public surface, and an import that costs nothing."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import barograph

SOURCE = Path(barograph.__file__).parent

LEVELS = [
    {"device_copy", "errors", "formatting", "model", "process", "ray_worker"},
    {
        "background",
        "distributed",
        "exit_status",
        "expressions",
        "launcher",
        "lazy",
        "mounts",
        "problems",
        "redaction",
        "scalars",
        "spool_folder",
        "state_buffer",
        "step_values",
        "to_plain",
    },
    {
        "catalogue",
        "comparison",
        "conditions",
        "directory_watch",
        "journal",
        "settings",
        "states",
        "stats",
        "environment",
    },
    {"findings", "folder_changes", "recording", "ticket", "transfer"},
    {"counters", "device_values", "live_findings", "measurement", "probe", "rollouts", "samples", "trackers"},
    {"collectors", "importers", "merging"},
    {"run", "view"},
    {"moments", "opening", "summary", "relay"},
    {"diagnosis"},
    {"questions", "session"},
    {"demo", "integrations", "server", "export", "fleet", "terminal"},
    {"answers"},
    {"mcp_server"},
    # The names under which users import integrations.
    {"accelerate", "cli", "lightning", "mlflow", "swanlab", "tensorboard", "trackio", "trl", "wandb"}
    | {"ray", "roll", "trinity", "verl"},
]
LEVEL_OF = {module: level for level, modules in enumerate(LEVELS) for module in modules}


def imports_of(file: Path) -> set[str]:
    """Return the rooms of barograph that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file}: relative import"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "barograph" else [node.module]
            )
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("barograph.")}
    return found - {"__version__"}


def test_every_module_imports_only_from_levels_below_its_own():
    """No room knows of one above it, and neighbours on a level do not know each other."""
    wrong = []
    for file in SOURCE.rglob("*.py"):
        room = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room in ("__init__", "__main__"):
            continue
        wrong += [
            f"{file.relative_to(SOURCE)} imports {other}"
            for other in imports_of(file) - {room}
            if LEVEL_OF[other] >= LEVEL_OF[room]
        ]
    assert wrong == []


def test_the_public_surface_is_pinned():
    """What users may rely on changes only on purpose, and stays small."""
    assert barograph.__all__ == [
        "Band", "Batch", "Buckets", "Difference", "Histogram", "JournalError", "LogError", "Metric", "MetricName",
        "MetricNotFoundError", "RelatedMetric", "Row", "Run", "RunInfo", "RunNotFoundError", "Series", "SettingsError",
        "Status", "Text", "Tracker", "TrackerError", "Trap", "View", "BarographError", "__version__", "define",
        "doctor", "histogram", "init", "join", "log", "measure", "open", "translate", "up", "watch",
    ]  # fmt: skip
    assert len(barograph.__all__) <= 40
    assert all(getattr(barograph, name) is not None for name in barograph.__all__)


def loaded_after(code: str) -> dict[str, list[str]]:
    """Run code in a fresh interpreter; return the modules and threads that it left."""
    report = (
        "import json, sys, threading; print(json.dumps([sorted(sys.modules), [t.name for t in threading.enumerate()]]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    ).stdout
    modules, threads = json.loads(output.splitlines()[-1])
    return {"modules": modules, "threads": threads}


def test_importing_barograph_loads_nothing_heavy_and_starts_no_thread():
    """An import is free: no torch, no tracker, no terminal library, not even NumPy."""
    after = loaded_after("import barograph")
    heavy = {
        "torch",
        "ray",
        "wandb",
        "swanlab",
        "tensorboard",
        "rich",
        "numpy",
        "pandas",
        "omegaconf",
        "psutil",
        "mlflow",
        "mcp",
    }
    assert heavy.isdisjoint(after["modules"])
    assert after["threads"] == ["MainThread"]


def test_a_run_without_trackers_needs_no_heavy_package(tmp_path: Path):
    """Recording itself uses the standard library only, so that init is quick."""
    after = loaded_after(
        f"import barograph\nrun = barograph.init(dir={str(tmp_path)!r})\nrun.log({{'a': 1.0}}, step=0)\nrun.finish()"
    )
    assert {"torch", "numpy", "rich", "pandas", "omegaconf"}.isdisjoint(after["modules"])


def test_init_takes_every_setting_of_the_table_as_a_keyword():
    """The declared settings and the signature of init are the same, but for old names that are deprecated."""
    import inspect

    from barograph.base.settings import BY_NAME, RENAMED

    keywords = [name for name, p in inspect.signature(barograph.init).parameters.items() if p.kind is p.KEYWORD_ONLY]
    assert keywords == [*BY_NAME, *RENAMED]
