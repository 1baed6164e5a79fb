"""The nodes of a Ray cluster that have bytes of a run: one file for each in ``transfer/nodes`` of the run's folder."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from windsock.transfer.received_list import FOLDER

NAMESPACE = "windsock"  # of the actors


@dataclass(frozen=True, slots=True)
class SendingNode:
    """A node that sends segments of the run: the name of the actor there, and what it sends."""

    actor: str
    host: str
    spool: str


def add_node(folder: Path, node: SendingNode) -> None:
    """Note that a node has bytes of a run."""
    path = folder / FOLDER / "nodes" / node.actor
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(node)), encoding="utf-8")


def remove_node(folder: Path, actor: str) -> None:
    """Note that a node has sent all that it had."""
    (folder / FOLDER / "nodes" / actor).unlink(missing_ok=True)


def sending_nodes(folder: Path) -> list[SendingNode]:
    """Return the nodes that may have bytes of a run."""
    found = []
    with suppress(OSError):  # there is none, or the directory of the run cannot be read
        for path in sorted((folder / FOLDER / "nodes").iterdir()):
            with suppress(OSError, ValueError, TypeError):  # cut short by a crash
                found.append(SendingNode(**json.loads(path.read_text(encoding="utf-8"))))
    return found
