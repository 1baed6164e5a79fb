"""The scanner of packages finds the names that they log, without running them."""

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "scan-names"

CODE = """
raise RuntimeError("a scan runs nothing")
self._metrics[mode]["reward"].append(1)
self._metrics[mode][f"rewards/{name}/mean"].append(1)
metrics = {"kl": kl, "my_own_value": 1}
writer.add_scalar("train/grad_norm", 1)
stats_tracker.scalar(update_steps=1)
batch["input_ids"] = 2
return {"critic/score/mean": 1}
"""


@pytest.fixture
def scanner() -> ModuleType:
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("scan_names", str(SCRIPT))
    spec = importlib.util.spec_from_loader("scan_names", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_names_are_found_by_how_they_are_used(scanner: ModuleType, tmp_path: Path):
    """Keys of metrics, of calls that log, and keys with a slash are names; keys of a batch are not."""
    (tmp_path / "trainer.py").write_text(CODE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_trainer.py").write_text(CODE)
    assert scanner.scan(tmp_path) == {
        "trainer.py": {
            "reward",
            "rewards/{}/mean",
            "kl",
            "my_own_value",
            "train/grad_norm",
            "update_steps",
            "critic/score/mean",
        }
    }


def test_what_the_catalogue_lacks_is_printed(scanner: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Known names are counted, unknown ones printed with their file."""
    (tmp_path / "trainer.py").write_text('metrics = {"kl": 1, "my_own_value": 2}')
    assert scanner.main([str(tmp_path), "--source", "trl"]) == 0
    output = capsys.readouterr()
    assert output.out == "trainer.py: my_own_value\n"
    assert "1 of 2 names are known to trl" in output.err
