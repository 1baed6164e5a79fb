"""The calls of a run that are about samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from windsock.model import Sample
from windsock.recorder import Recorder

if TYPE_CHECKING:
    from windsock.samples.pending import Pending


class Offers(Recorder):
    """What a run offers for completions. Everything behind it is imported with the first call."""

    _pending: Pending | None = None

    def sample(
        self,
        prompt: Any = None,
        completion: Any = None,
        *,
        messages: Any = None,
        reward: Any = None,
        rewards: Any = None,
        advantage: Any = None,
        length: Any = None,
        finish_reason: Any = None,
        task: Any = None,
        run: Any = None,
        group: Any = None,
        weight_version: Any = None,
        step: int | None = None,
        **unknown: Any,
    ) -> None:
        """Offer one completion; the most informative of a step are written at its commit, within the run's budget.

        ``messages`` stand instead of prompt and completion where there was a chat; ``rewards`` are the components of
        ``reward`` by name; ``length`` is in tokens. Without ``step`` it belongs to the step that the next commit
        names. A value that is not what it should be is left out, counted and told of once, and the rest is kept. A
        number that lies on an accelerator is waited for.
        """
        fields = {name: value for name, value in locals().items() if name not in ("self", "step", "unknown")}
        self._offer(fields | unknown, step)

    def samples(
        self, samples: Iterable[Mapping[str, Any] | Sample] | Mapping[str, Any], step: int | None = None
    ) -> None:
        """Offer many samples: mappings or ``Sample`` records, or a mapping of columns in which single values repeat."""
        try:
            if isinstance(samples, Mapping):
                from windsock.samples.offered import rows_of

                samples, refused = rows_of(samples)
                self.skip({f"sample.{name}": reason for name, reason in refused.items()})
            for sample in samples:
                self._offer(sample, step)
        except Exception as problem:  # noqa: BLE001 - see Run.log
            self.guard(problem)

    def _offer(self, given: Any, step: int | None) -> None:
        try:
            if self.ended:
                self.notice("sample after finish: it is not recorded")
                return
            if not isinstance(given, Mapping | Sample):
                self.skip({"sample": f"of type {type(given).__name__}, not a mapping of fields or a Sample"})
                return
            own = given.step if isinstance(given, Sample) else given.get("step")
            named = step if own is None else own
            refused = self._samples_under_way().offer(given, None if named is None else self.as_step(named))
            if refused:
                self.skip({f"sample.{name}": reason for name, reason in refused.items()})
        except Exception as problem:  # noqa: BLE001 - see Run.log
            self.guard(problem)

    def _samples_under_way(self) -> Pending:
        if self._pending is not None:
            return self._pending
        from windsock.samples.choice import Budget  # most runs have no samples, and begin sooner without
        from windsock.samples.pending import Pending

        budget = Budget(self._settings.samples_per_step, self._settings.sample_bytes_per_step)
        made = Pending(budget, self._journal.samples)
        pending: Pending = vars(self).setdefault("_pending", made)  # of two threads that come first, one's counts
        return pending

    def _forget_samples(self) -> None:
        """Leave to the parent of a fork what is its own."""
        vars(self).pop("_pending", None)  # None in its place would stay, where the first sample of the child sets it

    def _write_samples(self, step: int, last: bool = False) -> None:
        """Write the samples kept of a step; whatever is wrong with them, the step is committed."""
        try:
            if self._pending is not None:
                (self._pending.finish if last else self._pending.commit)(step)
        except Exception as problem:  # noqa: BLE001 - see Run.log
            self.guard(problem)
