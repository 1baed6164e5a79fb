"""A node of a Ray cluster as a destination: an actor there receives the pieces, and appends them to the run's folder.

The actor has no state of its own. Whoever needs it creates it under its name; it ends when nobody has called it for a
while, and the next call creates it again.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from barograph.base.model import RayPlace, Writer
from barograph.base.process.identity import actor_id, process_identity
from barograph.delivery.ray.nodes import NAMESPACE, SendingNode, add_node, remove_node
from barograph.delivery.transfer.claiming import Claim, unique_head
from barograph.delivery.transfer.destination import DestinationError
from barograph.delivery.transfer.receiver import Receiver
from barograph.delivery.transfer.state import ReceivedList
from barograph.journal.format.folder import run_mark, segment_path
from barograph.journal.write.writer import claim, claim_rank

ANSWER_SECONDS = 30.0
IDLE_SECONDS = 600.0  # without a call, until a receiving actor ends; a process that records is heard every 10 s
RECEIVING_THREADS = 8


@dataclass(frozen=True, slots=True)
class RayRun:
    """The folder of a run on a node of a Ray cluster."""

    place: RayPlace
    folder: Path

    @property
    def address(self) -> str:
        """The folder and its node, as one text."""
        return f"ray:{self.place.node}:{self.folder}"

    def actor_name(self, kind: str, *where: str) -> str:
        """Return the name of an actor that works for this run."""
        digest = blake2b("\n".join((self.address, *where)).encode(), digest_size=6).hexdigest()
        return f"barograph-{kind}-{self.folder.name}-{digest}"


def actor_on(node: str, name: str, actor_class: type, *arguments: Any, threads: int = 2) -> Any:
    """Return the actor of a name, which is created on a node if there is none. It costs no CPUs, and is restarted."""
    options = {
        "name": name,
        "namespace": NAMESPACE,
        "get_if_exists": True,
        "lifetime": "detached",  # not until the end of the process that happened to be the first
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
        "num_cpus": 0,
        "max_restarts": -1,
        "max_concurrency": threads,
    }
    return ray.remote(actor_class).options(**options).remote(*arguments)


def end_this_actor() -> None:
    """End the actor that this process is; it is not restarted."""
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


@contextmanager
def ray_errors() -> Iterator[None]:
    """Raise DestinationError for whatever Ray raises."""
    try:
        yield
    except Exception as problem:  # ValueError and RuntimeError too
        told = str(problem).partition("\n")[0] or type(problem).__name__
        raise DestinationError(f"the node where the run began does not answer: {told}", "unreachable") from problem


class ReceivingActor:
    """The actor on the node of the run's folder."""

    def __init__(self, run: RayRun) -> None:
        self._run = run
        self._receiver = Receiver(run.folder)
        self._called = time.monotonic()
        threading.Thread(target=self._end_when_idle, daemon=True, name="barograph idle").start()

    def ask(self, question: str, *arguments: Any) -> Any:
        """Answer a question of RayDestination; return a DestinationError for what cannot be done: Ray would wrap it."""
        self._called = time.monotonic()
        answers: dict[str, Callable[..., Any]] = {
            "held": self._receiver.held,
            "append": self._append,
            "describe": self._receiver.describe,
            "read": self._receiver.read,
            "claim": self._claim,
            "register": partial(add_node, self._run.folder),
            "unregister": partial(remove_node, self._run.folder),
        }
        try:
            self._check_folder()
            return answers[question](*arguments)
        except DestinationError as error:
            return error
        except OSError as problem:
            return DestinationError(f"{self._run.folder}: {problem.strerror}", "busy")

    def _check_folder(self) -> None:
        """Raise unless the folder is that of the run: one of the same path may be another, or be there no longer."""
        if run_mark(self._run.folder) != self._run.place.mark:
            message = f"no run in {self._run.folder} on {platform.node()}, where it was begun"
            raise DestinationError(message, "name")

    def _append(self, segment: str, offset: int, data: bytes, crc: int, last: bool) -> int:
        if crc32(data) != crc:
            raise DestinationError("the piece was damaged on its way", "broken", permanent=False)
        return self._receiver.append(segment, offset, data, last)

    def _claim(self, role: str, wanted: int | None, is_fixed: bool, owner: Mapping[str, Any], head: bytes) -> Writer:
        """Claim a rank as a process of this node does, and begin its segment with the bytes of the other one."""
        folder = self._run.folder
        if wanted is not None and is_fixed:
            writer = claim_rank(folder, role, wanted)
        else:
            writer = claim(folder, role, wanted, owner["actor"], process=owner)
        name = segment_path(folder, writer, 0).name
        ReceivedList(folder).add(name, self._receiver.limits.segments)
        self._receiver.append(name, 0, head)
        return writer

    def _end_when_idle(self) -> None:
        while (left := self._called + IDLE_SECONDS - time.monotonic()) > 0:
            time.sleep(left)
        end_this_actor()


class RayDestination:
    """The copies of one run on another node of this Ray cluster."""

    def __init__(self, run: RayRun, seconds: float = ANSWER_SECONDS) -> None:
        self._run = run
        self._seconds = seconds  # for an answer
        self._actor: Any = None

    def held(self) -> Mapping[str, int]:
        """Return how many bytes of each segment are held, by file name."""
        found: Mapping[str, int] = self._ask("held")
        return found

    def append(self, segment: str, offset: int, data: bytes, last: bool = False) -> int:
        """Append a piece of a segment; return how many bytes of it are held then."""
        return int(self._ask("append", segment, offset, data, crc32(data), last))

    def describe(self, info: bytes) -> None:
        """Store the run's ``run.json``; the first one counts."""
        self._ask("describe", info)

    def read(self, segment: str, offset: int, length: int) -> bytes:
        """Return bytes of a segment or of ``run.json``."""
        return bytes(self._ask("read", segment, offset, length))

    def claim(self, role: str, wanted: int | None, is_fixed: bool) -> Claim:
        """Claim a rank for this process, by the rules for a process that sees the folder."""
        actor = actor_id()
        owner, head = {**process_identity(), "actor": actor}, unique_head(actor)
        return Claim(self._ask("claim", role, wanted, is_fixed, owner, head), head)

    def register(self, node: SendingNode) -> None:
        """Note in the run's folder that a node has bytes of it."""
        self._ask("register", node)

    def unregister(self, actor: str) -> None:
        """Note that a node has sent all that it had."""
        self._ask("unregister", actor)

    def _ask(self, question: str, *arguments: Any) -> Any:
        try:
            with ray_errors():
                if self._actor is None:
                    name = self._run.actor_name("receive")
                    node = self._run.place.node
                    self._actor = actor_on(node, name, ReceivingActor, self._run, threads=RECEIVING_THREADS)
                answer = ray.get(self._actor.ask.remote(question, *arguments), timeout=self._seconds)
        except DestinationError:
            self._actor = None  # it is found or created again
            raise
        if isinstance(answer, DestinationError):
            raise answer
        return answer
