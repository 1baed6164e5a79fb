"""The nodes of a Ray cluster that have bytes of a run.

Each has a file in ``transfer/nodes`` of the run's folder; the process that began the run waits for their last
bytes.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from barograph.base.model import Status
from barograph.base.process.identity import node_id
from barograph.delivery.transfer.state import FOLDER
from barograph.recording.tracker import DeliveryClient

NAMESPACE = "barograph"  # of the actors


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


ASK_SECONDS = 0.2  # between two questions at the end of a run

LOST = "its Ray node, or the actor there, is lost"


class NodesClient(DeliveryClient):
    """What other nodes send, as the process that began the run sees it: it waits for the last bytes.

    The processes that join on other nodes start the sending and log what is left; Ray restarts their actors.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Let every node send what it has; return a message for each that does not."""
        nodes = sending_nodes(self._folder)
        if not nodes:
            return []
        problems = dict.fromkeys(nodes, "Ray was shut down before the run was finished")
        if node_id() is not None:
            problems = _left_on(nodes, timeout)
        return [
            f"bytes of the run may be left on {node.host} ({why}); {how_to_get(node, self._folder)}"
            for node, why in problems.items()
        ]


def _left_on(nodes: list[SendingNode], seconds: float) -> dict[SendingNode, str]:
    """Ask nodes to send what they have; return what kept some from it."""
    until = time.monotonic() + seconds
    problems = dict.fromkeys(nodes, f"no answer within {seconds:.0f} s")

    def ask() -> None:
        waiting = nodes
        while waiting and time.monotonic() < until:
            problems.update(_asked_once(waiting, until - time.monotonic()))
            waiting = [node for node in waiting if problems[node] not in ("", LOST)]
            time.sleep(ASK_SECONDS if waiting else 0.0)

    # In a thread: Ray waits for a cluster that is gone.
    thread = threading.Thread(target=ask, daemon=True, name="barograph ray")
    thread.start()
    thread.join(seconds)
    return {node: problem for node, problem in list(problems.items()) if problem}


def _asked_once(nodes: list[SendingNode], seconds: float) -> dict[SendingNode, str]:
    """Return the answers of nodes that were asked to send what they have: what kept them from it, or nothing."""
    import ray

    answers, calls = {}, {}
    for node in nodes:
        try:
            calls[ray.get_actor(node.actor, NAMESPACE).send_now.remote()] = node
        except ValueError:
            answers[node] = LOST
    ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=seconds) if calls else ([], [])
    for call in ready:
        try:
            answers[calls[call]] = ray.get(call)
        except ray.exceptions.RayError:  # it is being restarted, perhaps
            answers[calls[call]] = "the actor there does not answer"
    return answers


def how_to_get(node: SendingNode, folder: Path) -> str:
    """Return what a user can do about bytes that are left on a node."""
    return (
        "while the cluster lives, what can be sent is sent. To get them without it: "
        f"rsync -a '{node.host}:{node.spool}/*.seg' '{folder}/'"
    )
