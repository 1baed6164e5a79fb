"""Values that are nested more deeply than Python's encoders can follow."""

import json
from pathlib import Path
from typing import Any

import pytest
from serving_runs import Serve

import barograph
from barograph.answers.responses import MAX_DEPTH, encode
from barograph.apps.cli import main

VIEWS = ("samples", "details", "events", "overview", "texts", "report")


def nested(depth: int, innermost: Any = "x") -> Any:
    for _ in range(depth):
        innermost = [innermost]
    return innermost


def depth_of(value: Any) -> int:
    depth = 0
    while isinstance(value, list):
        value, depth = value[0], depth + 1
    return depth


@pytest.mark.parametrize("depth", [50, 400, 900, 980])
def test_nested_messages_and_configs_are_shown(depth: int, serve: Serve, tmp_path: Path):
    """Every view of such a run responds, and so does the report."""
    run = barograph.init(dir=tmp_path / "runs", id="deep", config={"deep": nested(depth)})
    run.sample([{"role": "user", "content": nested(depth)}], "completion", reward=1.0)
    run.log({"a": 1.0})
    run.commit(0)
    run.finish()
    client = serve()
    for view in VIEWS:
        assert client.get(f"/api/runs/deep/{view}").status_code == 200, view
    (sample,) = client.get("/api/runs/deep/samples").json()["samples"]
    assert sample["reward"] == 1.0
    assert main(["report", str(run.path), "-o", str(tmp_path / "report.html")]) == 0


@pytest.mark.parametrize("innermost", ["x", float("nan"), "\ud800"])
def test_deeper_levels_are_cut(innermost: Any):
    """What cannot be encoded becomes an ellipsis; shallow values are complete."""
    text = encode(nested(200_000, innermost))
    assert depth_of(json.loads(text)) == MAX_DEPTH
    assert "…" in text.decode()
    assert depth_of(json.loads(encode(nested(MAX_DEPTH, innermost)))) == MAX_DEPTH
    assert "…" not in encode(nested(MAX_DEPTH, innermost)).decode()


def test_lone_surrogates_are_escaped():
    """They survive a round trip, also after a backslash."""
    value = {"a\\\ud800": "\udc00 é \\", "b": '\\\\\udfff"'}
    assert json.loads(encode(value)) == value


def test_a_very_deep_config_does_not_stop_a_training(tmp_path: Path):
    """Its first hundred levels are recorded."""
    run = barograph.init(dir=tmp_path, id="deep", config={"deep": nested(5000), "lr": 1})
    run.finish()
    config = barograph.open(run.path).config
    assert config["lr"] == 1
    assert 90 <= depth_of(config["deep"]) <= 100
