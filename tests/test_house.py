"""Tests that keep the house in order: levels, public surface, and an import that costs nothing."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import barograph

SOURCE = Path(barograph.__file__).parent

HOUSE = runpy.run_path(str(SOURCE.parents[1] / "scripts" / "house"))
"""The script that prints the figures of the house, by the names of its functions."""


def test_every_module_imports_only_from_rooms_before_its_own():
    """No room knows of a later one: in no function, in no annotation, and not through the names of the package."""
    assert HOUSE["upward"]() == []


def test_every_module_is_in_a_room():
    """The top level has the rooms, the session, what users import by a name of its own, and the package itself."""
    top = {name.partition(".")[0] for name in HOUSE["MODULES"]}
    shims = {"accelerate", "lightning", "mlflow", "ray", "roll", "swanlab", "tensorboard", "trackio", "trinity", "trl"}
    assert top == {*HOUSE["ROOMS"], *shims, "verl", "wandb", "__main__", ""}


def test_chains_of_imports_are_short():
    """Whoever follows an import to the ground opens few files."""
    assert len(HOUSE["longest_chain"]()) <= 18


def test_folders_are_small():
    """A folder without folders of its own has at most twelve modules."""
    assert HOUSE["crowded"]() == {}


def test_imports_are_a_small_part_of_the_code():
    """Modules that import each other a lot are one module."""
    total, _, importing = HOUSE["lines"]()
    assert importing <= 0.066 * total


def test_class_names_have_one_meaning():
    """Only the integrations repeat names: those of the packages that they stand in for."""
    assert HOUSE["meanings"]().keys() <= {"Histogram", "Reader", "Run", "Summary", "Text"}


def test_the_public_surface_is_pinned():
    """What users may rely on changes only on purpose, and stays small."""
    assert barograph.__all__ == [
        "Band", "BarographError", "Batch", "Buckets", "Difference", "Histogram", "JournalError", "LogError",
        "Metric", "MetricName", "MetricNotFoundError", "RelatedMetric", "Row", "Run", "RunInfo",
        "RunNotFoundError", "Series", "SettingsError", "Status", "Text", "Tracker", "TrackerError", "Trap",
        "View", "__version__", "define", "doctor", "histogram", "init", "join", "log", "measure", "open",
        "translate", "up", "watch",
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
