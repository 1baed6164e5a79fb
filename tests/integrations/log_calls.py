"""Calls of a tracker's ``log``, made with the module that the command line names: the real one, or barograph's."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

Call = tuple[Mapping[str, Any], dict[str, Any]]

COMMON: dict[str, list[Call]] = {
    "plain": [({"a": 1}, {}), ({"a": 2}, {})],
    "steps": [({"a": 1}, {"step": 5}), ({"b": 2}, {"step": 5}), ({"a": 3}, {"step": 7}), ({"a": 4}, {})],
    "numbers": [({"a": 0.1, "b": True, "c": -3}, {"step": 0}), ({"a": 1e300}, {"step": 1})],
}
WANDB: dict[str, list[Call]] = {
    "partial": [({"a": 1}, {"commit": False}), ({"b": 2}, {}), ({"a": 3}, {})],
    "step then none": [({"a": 1}, {"step": 5}), ({"b": 2}, {}), ({"a": 3}, {})],
    "below": [({"a": 1}, {"step": 5}), ({"a": 2}, {"step": 3}), ({"a": 3}, {"step": 6})],
    "below and commit": [({"a": 1}, {"step": 5}), ({"a": 2}, {"step": 3, "commit": True}), ({"b": 3}, {"step": 5})],
    "commit": [({"a": 1}, {"step": 5, "commit": True}), ({"a": 2}, {"step": 5}), ({"a": 3}, {"step": 6})],
    "empty": [({}, {}), ({"a": 1}, {}), ({"a": 2}, {"commit": False}), ({}, {"commit": True}), ({"a": 3}, {})],
    "empty step": [({}, {"step": 5}), ({"a": 1}, {})],
    "never committed": [({"a": 1}, {"commit": False}), ({"a": 2}, {"step": 4}), ({"a": 3}, {"commit": False})],
    "again": [({"a": 1}, {"step": 2}), ({"a": 2}, {"step": 2}), ({"a": 3}, {"step": 3})],
    "nested": [({"t": {"a": 1, "b": {"c": 2}}}, {})],
    "axis": [({"x": 10, "a": 1}, {}), ({"a": 2}, {}), ({"x": 30, "a": 3}, {}), ({"other": 1}, {})],
    "axis comes later": [({"a": 1}, {"commit": False}), ({"x": 7}, {}), ({"a": 2}, {"commit": False}), ({"x": 9}, {})],
    "axis of fractions": [({"x": 0.5, "a": 1}, {}), ({"x": 0.7, "a": 2}, {})],
}
SEQUENCES = {"wandb": COMMON | WANDB, "trackio": COMMON, "swanlab": COMMON}


def main(module: str, tracker: str) -> None:
    """Make every sequence of calls in a run of its own."""
    package = import_module(module)
    for name, calls in SEQUENCES[tracker].items():
        arguments = {"mode": "offline"} if tracker != "trackio" else {}
        package.init(project="p", name=name, config={"lr": 0.1}, **arguments)
        if name.startswith("axis"):
            package.define_metric("a", step_metric="x")
        for values, keywords in calls:
            package.log(values, **keywords)
        package.finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
