"""The gatherings of a run: which are open, which are done, and what came too late."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

from windsock.rollouts.finish import Coverage, Finisher
from windsock.rollouts.gathering import Gathering
from windsock.rollouts.handles import Evaluation, Handle, Rollouts, Validation
from windsock.rollouts.plan import Plan
from windsock.rollouts.travel import pack

Key = tuple[str, str, "int | None"]

BY_COMMIT = ("rollout", "group", "drawn")
"""Kinds that the commit of their step closes; evaluations and validations end by themselves."""
UNCOVERED = ("group", "drawn")
"""Kinds of which nobody can say how many are to be expected."""
MANY_REASONS = 10
MANY_DONE = 10_000  # closed ones that are remembered, to know what is late

_HANDLES: dict[str, type[Handle]] = {
    "rollout": Rollouts,
    "eval": Evaluation,
    "bench": Evaluation,
    "validation": Validation,
}


class Outlet(Protocol):
    """What a run lends: how things are written and told."""

    def write_row(self, values: Mapping[str, float], step: int | None) -> None:
        """Write finished values."""

    def write_gathered(self, head: Mapping[str, Any], state: bytes) -> None:
        """Write what this process holds of a step."""

    def write_event(self, event: str, **fields: Any) -> None:
        """Write something that happened."""

    def skip(self, refused: Mapping[str, str]) -> None:
        """Count values that are no numbers."""

    def guard(self, problem: Exception) -> None:
        """Show a problem; the training goes on."""

    def notice(self, text: str) -> None:
        """Tell something once."""


class Books:
    """Opens, finds, closes and writes the gatherings of one run."""

    def __init__(self, outlet: Outlet, vocabulary: str, shared: bool) -> None:
        self._outlet = outlet
        self._vocabulary = vocabulary
        self._shared = shared  # other processes hold parts too: states are written beside values
        self._open: dict[Key, Handle] = {}
        self._done: dict[Key, int] = {}  # how many reports came late
        self._untold: dict[Key, Plan] = {}
        self._nameless: dict[tuple[str, str], list[bytes]] = {}  # closed before their step is named: states to write
        self._lock = threading.RLock()
        self.guard = outlet.guard
        self.refuse = outlet.skip

    def get(self, step: int | None, plan: Plan) -> Handle:
        """Return the handle of that step: the one that is open, a new one, or a closed one where it is over."""
        key = (plan.kind, plan.taskset, step)
        with self._lock:
            handle = self._open.get(key)
            if handle is None:
                handle = _HANDLES.get(plan.kind, Rollouts)(plan, step, self)
                if step is not None and key in self._done:
                    handle.gathering.seal()
                else:
                    self._open[key] = handle
        return handle

    @property
    def holds_open_step(self) -> bool:
        """Whether something waits for the step that the next commit names."""
        return any(step is None for _, _, step in self._open) or any(self._nameless.values())

    def close(self, handle: Handle) -> None:
        """Finish a handle: write its values, its state where others hold parts, and what lacks."""
        plan, step = handle.plan, handle.step
        with self._lock:
            key = (plan.kind, plan.taskset, step)
            if self._open.get(key) is handle:
                del self._open[key]
            if step is None:
                self._nameless.setdefault((plan.kind, plan.taskset), [])
            else:
                self._remember_done(key)
        finisher = Finisher(handle.gathering, plan, self._vocabulary)
        values = finisher.values()
        if values:
            self._outlet.write_row(values, step)
        if self._shared:
            self._write_state((plan.kind, plan.taskset, step), pack(handle.gathering, plan))
        if plan.kind not in UNCOVERED:
            self._tell_lacking(handle, finisher.coverage)

    def commit(self, step: int) -> None:
        """Close what belongs to a step that ends; what has no step yet joins what came under its number."""
        with self._lock:
            nameless, self._nameless = self._nameless, {}
            unnamed = [self._open.pop(key) for key in list(self._open) if key[2] is None]
            named = {key[:2]: handle for key, handle in self._open.items() if key[2] == step}
            for kind, taskset in nameless:
                self._remember_done((kind, taskset, step))
        for (kind, taskset), states in nameless.items():
            for state in states:
                self._write_state((kind, taskset, step), state)
        for handle in unnamed:
            handle.step = step
            same = named.get((handle.plan.kind, handle.plan.taskset))
            if same is None:
                handle.close()
            else:
                same.unite(handle)
        for handle in named.values():
            if handle.plan.kind in BY_COMMIT:
                handle.close()
        self._write_late()

    def finish(self) -> None:
        """Close all that is open: nothing that came is lost."""
        with self._lock:
            ending = list(self._open.values())
        for handle in ending:
            handle.close()
        self._write_late()

    def late(self, handle: Handle, count: int) -> None:
        """Count what came for a step that was closed."""
        plan = handle.plan
        key = (plan.kind, plan.taskset, handle.step)
        with self._lock:
            self._done[key] = self._done.get(key, 0) + count
            self._untold[key] = plan
        self._outlet.notice(f"{_title(plan)}: a report came for step {handle.step} after it was closed (told once)")

    def _remember_done(self, key: Key) -> None:
        self._done.setdefault(key, 0)
        if len(self._done) > MANY_DONE:
            self._done.pop(next(iter(self._done)))

    def _write_state(self, key: Key, state: bytes) -> None:
        """Write what this process holds of a step; readers merge by its number, so that without one it waits."""
        kind, taskset, step = key
        if step is None:
            with self._lock:
                self._nameless.setdefault((kind, taskset), []).append(state)
        else:
            self._outlet.write_gathered({"kind": kind, "taskset": taskset, "step": step}, state)

    def _write_late(self) -> None:
        with self._lock:
            untold, self._untold = self._untold, {}
            counts = {key: self._done[key] for key in untold}
            for key in [key for key in untold if key[2] is None]:
                del self._done[key]  # the next step that has no number yet is another one
        for key, count in counts.items():
            if key[0] not in UNCOVERED:
                name = Finisher(Gathering(), untold[key], self._vocabulary).coverage_name("late")
                self._outlet.write_row({name: float(count)}, key[2])

    def _tell_lacking(self, handle: Handle, found: Coverage) -> None:
        if not found.whole:
            reasons = dict(handle.gathering.reasons.most_common(MANY_REASONS))
            title = _title(handle.plan)
            self._outlet.write_event("lacking", of=title, step=handle.step, reasons=reasons, **asdict(found))


def _title(plan: Plan) -> str:
    return f"{plan.kind}/{plan.taskset}" if plan.taskset else plan.kind
