"""The nodes of a Ray cluster that send segments of a run, as the process that began the run sees them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from windsock.model import Status
from windsock.ray_worker import node_id
from windsock.transfer.sending_nodes import NAMESPACE, SendingNode, sending_nodes

ASK_SECONDS = 0.2  # between two questions at the end of a run
LOST = "its Ray node, or the actor there, is lost"


class NodesClient:
    """What other nodes send, as the process that began the run sees it: it waits for the last bytes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self) -> None:
        """Do nothing: the processes that join on other nodes start the sending."""

    def maintain(self) -> None:
        """Do nothing: Ray restarts the actors."""

    def values(self) -> dict[str, float]:
        """Return nothing: each node logs how many bytes it has not sent."""
        return {}

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

    def after_fork_in_child(self) -> None:
        """Do nothing: there is no connection of its own."""


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
    thread = threading.Thread(target=ask, daemon=True, name="windsock ray")
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
