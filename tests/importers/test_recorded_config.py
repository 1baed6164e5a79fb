"""Settings that a log has are kept without its secrets."""

from pathlib import Path

from barograph.base.model import RunInfo
from barograph.importers.recorder import Recorder
from barograph.journal.format.folder import write_run_info
from barograph.journal.view import View


def test_a_secret_in_a_config_is_blanked(tmp_path: Path):
    """A printed config may hold keys; other entries stay, and objects become plain data."""
    info = RunInfo(id="aaaaaaaa", project="p", name="n", created=1.0, vocabulary="", producer="")
    write_run_info(tmp_path, info)
    out = Recorder(tmp_path, {}, {"path": "", "format": "", "title": ""}, 1.0)
    out.config({"wandb": {"api_key": "abcdef0123456789abcdef0123456789abcdef01"}, "lr": 1e-6, "shape": (1, 2)})
    out.finish(None)
    config = View(tmp_path).config
    assert "abcdef" not in repr(config)
    assert config["lr"] == 1e-6
    assert config["shape"] == [1, 2]
