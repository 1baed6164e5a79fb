"""One metric of all runs, as one state per run."""

from __future__ import annotations

import numpy as np

from barograph.base.arrays import Bools, Floats, Ints

STATISTICS = ("mean", "sum", "max", "min", "last")
"""Reductions from one level to the next."""


def suffix_of(metric: str) -> str | None:
    """Return the reduction that a key such as ``tokens:sum`` names, as Trinity reads it; None for other keys."""
    name, _, suffix = metric.rpartition(":")
    return suffix if name and suffix in STATISTICS else None


_UFUNCS = {"mean": np.add, "sum": np.add, "max": np.maximum, "min": np.minimum}
_EMPTY = {"mean": 0.0, "sum": 0.0, "max": -np.inf, "min": np.inf, "last": np.nan}


class RolloutColumn:
    """Sums, extremes or last values by run, with the number of experiences in each."""

    def __init__(self, statistic: str) -> None:
        self.statistic = statistic
        self.nonfinite = 0
        self._values: Floats = np.empty(0)
        self._counts: Floats = np.empty(0)
        self._times: Floats = np.empty(0)  # of the last value; only for the reduction "last"

    def add(self, slots: Ints, values: Floats, times: Floats) -> None:
        """Add one value for each of some runs; a run may appear several times."""
        self._merge(slots, values, np.ones(len(slots)), times)
        self.nonfinite += int(len(values) - np.isfinite(values).sum())

    def merge(self, other: RolloutColumn, slots: Ints) -> None:
        """Add the column of another process; ``slots`` maps its entries to runs of this one."""
        size = len(slots)
        present = np.flatnonzero(other.counts(size))
        self._merge(
            slots[present], other.states(size)[present], other.counts(size)[present], other.times(size)[present]
        )
        self.nonfinite += other.nonfinite

    def counts(self, size: int) -> Floats:
        """Return the number of experiences of each run."""
        self._grow(size)
        return self._counts[:size]

    def states(self, size: int) -> Floats:
        """Return each run's sum, extreme or last value."""
        self._grow(size)
        return self._values[:size]

    def times(self, size: int) -> Floats:
        """Return the arrival time of each run's last value; NaN for reductions other than ``last``."""
        if self.statistic != "last":
            return np.full(size, np.nan)
        self._grow(size)
        return self._times[:size]

    def restore(self, values: Floats, counts: Floats, times: Floats, nonfinite: int) -> None:
        """Replace the contents with unpacked arrays."""
        self._values, self._counts, self._times, self.nonfinite = values, counts, times, nonfinite

    def runs(self, size: int) -> tuple[Floats, Bools]:
        """Return the value of each run, and whether it has one."""
        present = self.counts(size) > 0
        values = self.states(size)
        if self.statistic == "mean":
            # 1 in place of 0, so that NumPy does not warn; the quotient is not used there.
            values = values / np.where(present, self.counts(size), 1.0)
        return values, present

    def _merge(self, slots: Ints, values: Floats, counts: Floats, times: Floats) -> None:
        if not len(slots):
            return
        self._grow(int(slots.max()) + 1)
        if self.statistic == "last":
            self._keep_last(slots, values, times)
        else:
            with np.errstate(invalid="ignore"):  # infinities of both signs
                # ``at`` applies every value. Fancy indexing would apply only the last of several for one run.
                _UFUNCS[self.statistic].at(self._values, slots, values)
        np.add.at(self._counts, slots, counts)

    def _keep_last(self, slots: Ints, values: Floats, times: Floats) -> None:
        """Keep the newest value of each run; of equally new ones the larger, whatever the order of merging."""
        for slot, value, at in zip(slots.tolist(), values.tolist(), times.tolist(), strict=True):
            known = self._times[slot]
            if np.isnan(known) or (at, value) > (known, self._values[slot]):
                self._values[slot], self._times[slot] = value, at

    def _grow(self, size: int) -> None:
        have = len(self._values)
        if size <= have:
            return
        # Doubled, so that the cost of copying stays proportional to the number of runs.
        more = max(size, 2 * have, 1024) - have
        self._values = np.append(self._values, np.full(more, _EMPTY[self.statistic]))
        self._counts = np.append(self._counts, np.zeros(more))
        if self.statistic == "last":
            self._times = np.append(self._times, np.full(more, np.nan))
