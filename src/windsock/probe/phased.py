"""What a run offers for phases: the calls, and what its commits and its end write of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windsock.recorder import Recorder

if TYPE_CHECKING:
    from windsock.probe.phases import Amount, Phase
    from windsock.probe.probe import Probe, Rows
    from windsock.probe.sampler import Sampler


class Phased(Recorder):
    """What a run offers for phases. Everything behind it is imported with the first call."""

    _began: float  # when the run did, by ``time.perf_counter``
    _probe: Probe | None = None
    _sampler: Sampler | None = None

    def phase(
        self,
        name: str,
        onload: Callable[[], Any] | None = None,
        offload: Callable[[], Any] | None = None,
        tokens: Amount = None,
        flops: Amount = None,
        clock: str = "host",
    ) -> Phase:
        """Return a phase of the step to enter with ``with`` or ``async with``, or to decorate a function with.

        Time and memory come out as ``time/{name}/…`` and ``memory/{name}/…`` of the step that is open when it begins.
        ``onload`` and ``offload`` are called before and after the body and timed apart. ``tokens`` is how many the work
        processed: a number, a mapping of their kind to it (``{"generated": n}``), or a function that is asked at the
        end. ``flops`` is that of a model's arithmetic, ``{"actor": n}``. ``clock="device"`` takes the device's time.
        """
        return self._probing().phase(name, onload=onload, offload=offload, tokens=tokens, flops=flops, clock=clock)

    def timer(self, name: str, tokens: Amount = None) -> Phase:
        """Return a plain timer, used like a phase: ``time/{name}``, no memory."""
        return self._probing().phase(name, timer=True, tokens=tokens)

    def shards(self, before: Sequence[float], after: Sequence[float] | None = None) -> None:
        """Log how many tokens each data-parallel shard of the step has, before and after balancing."""
        try:
            self.log(self._probing().shards(before, after))
        except Exception as problem:  # noqa: BLE001 - see Run.log
            self.guard(problem)

    def _probing(self) -> Probe:
        """Return what records phases and throughput; a run that only logs does without."""
        if self._probe is not None:
            return self._probe
        from windsock.probe.probe import Probe

        made = Probe.of(self._settings, self._journal, self.guard, self._began)
        probe: Probe = vars(self).setdefault("_probe", made)  # of two threads that come first, one's counts
        return probe

    def _start_sampler(self) -> None:
        if self._settings.system_seconds > 0:
            from windsock.probe.sampler import Sampler

            probe, seconds = self._probing(), self._settings.system_seconds
            used = probe.devices_in_use
            self._sampler = Sampler(probe.samples, probe.open_names, seconds, self.guard, devices_in_use=used)

    def _write_phases(self, step: int, counted: Mapping[str, float], totals: Mapping[str, float]) -> None:
        """Write what a step's phases and counts come to, as its commit does."""
        if self._probe is not None or totals:
            self._write_rows(self._probing().commit(step, counted, totals))

    def _finish_phases(self) -> None:
        """Write what is not written yet, and sample no more."""
        if self._sampler is not None:
            self._sampler.stop()
        if self._probe is not None:
            self._write_rows(self._probe.finish())

    def _forget_phases(self) -> None:
        """Leave to the parent of a fork what is its own."""
        self._sampler = None
        if self._probe is not None:
            self._probe.after_fork_in_child()

    def _write_rows(self, rows: Rows) -> None:
        for step, values in rows:
            self._journal.row(tuple(values), values.values(), step)
