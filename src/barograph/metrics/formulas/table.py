"""The table of statistics that a device computes of every sequence of a batch: a row for each statistic of each
channel and a column for each sequence.

It is small enough to be copied once per step, and complete enough for the host to compute every metric of the batch
from it, in double precision. Quantiles are not in it: a pass adds some tokens of every sequence to histograms of
the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from barograph.metrics.formulas.channels import CHANNELS, Channel

SPREAD_SLOTS = ("squares", "shift", "min", "max")
"""What a spread has besides its sum. Sum and squares are of the distances to ``shift``, so that nothing cancels."""

COUNT_SLOTS = ("bad", "nan")
"""The numbers of values that are not finite, and that are NaN, of spreads and sums; conditions have none."""

FILLED = ("log_probs", "old_log_probs", "entropy", "advantages")
"""The first arrays of the tokens of chosen sequences: those that an update may tell, again or for the first time."""

UNKNOWN = 0x7FC00001
"""The bits of a NaN that stands for a value that no batch has given: computations do not produce it."""

REDUCED_SLOTS = ("total", "squares", "min", "max", "means", "count", "odd")
"""The statistics of a channel over all sequences, or those of a number of each sequence. The squares are of the
distances to the mean, ``means`` is the sum of the sequences' means, ``count`` the number of tokens or sequences, and
``odd`` is not 0 where any number is not finite."""

REDUCED_ROWS = ("valid", "some_valid", "response", "some_response", "repeats")
"""The numbers of sequences that are reduced, after the channels: of valid and of response tokens, each of all sequences
and of those that have some, and whether a sequence ends in a repetition, where that is wanted."""

STORED: tuple[Channel, ...] = tuple(
    channel
    for statistics in ("spread", "sum", "count")
    for channel in CHANNELS.values()
    if channel.statistics == statistics and not channel.combines
)
"""The channels that a pass computes, in the order of their rows: spreads, then sums, then counts."""

SAMPLES = 64
"""The number of tokens of each sequence that are added to histograms; of a sequence with fewer, all."""

WEIGHT = 16
"""What a token adds to a histogram where it stands for itself alone: counts are integers, so that their order of
adding does not matter, and a token may stand for a fraction of others."""


class Bins(NamedTuple):
    """The bins of a histogram: the number of a value is ``log(|value|) * scale + offset`` between 0 and ``side``.

    Negative values have the numbers below 0 where the histogram is ``signed``; otherwise they count as zero.
    """

    scale: float
    offset: float
    side: int
    signed: bool

    @property
    def size(self) -> int:
        """The number of bins."""
        return (2 if self.signed else 1) * self.side + 1


# Compared by identity: there is one for each set of channels and arrays.
@dataclass(frozen=True, eq=False)
class SequenceTable:
    """The rows that a pass over some channels writes, and the histograms that it adds to.

    The first two rows are the numbers of valid and of response tokens, then that of repetition where it is wanted, and
    whether any sum is not finite: only then the cells of COUNT_SLOTS are written. The sums of all channels follow, then
    the further slots, each for all its channels together, so that the host computes with whole blocks. Two rows for
    each array of the sequences are the last.

    A histogram is followed by one word that is 0, so that all of them have the places of their states' slots. That of
    the response lengths is the last, and is filled when the results are reduced.
    """

    channels: tuple[Channel, ...]  # in the order of STORED
    arrays: tuple[str, ...] = ()  # of the sequences, which are copied into the table
    repeats: bool = False
    bins: Mapping[str, Bins] | None = None  # by the channels that have a histogram, and of "response" lengths

    @cached_property
    def spreads(self) -> int:
        """The number of channels that are spreads."""
        return sum(channel.statistics == "spread" for channel in self.channels)

    @cached_property
    def summed(self) -> int:
        """The number of channels that are spreads or sums."""
        return sum(channel.statistics != "count" for channel in self.channels)

    @cached_property
    def blocks(self) -> dict[str, slice]:
        """The rows of each slot."""
        sizes = {
            "valid": 1,
            "response": 1,
            "repeats": int(self.repeats),
            "odd": 1,
            "sum": len(self.channels),
            **dict.fromkeys(SPREAD_SLOTS, self.spreads),
            **dict.fromkeys(COUNT_SLOTS, self.summed),
            "arrays": 2 * len(self.arrays),
        }
        found, start = {}, 0
        for slot, size in sizes.items():
            found[slot] = slice(start, start + size)
            start += size
        return found

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each channel within the blocks."""
        return {channel.name: place for place, channel in enumerate(self.channels)}

    @cached_property
    def height(self) -> int:
        """The number of rows."""
        return int(self.blocks["arrays"].stop)

    @cached_property
    def histograms(self) -> dict[str, slice]:
        """The bins of each channel in the one array of all histograms."""
        found, start = {}, 0
        for name, bins in (self.bins or {}).items():
            found[name] = slice(start, start + bins.size)
            start += bins.size + 1
        return found

    @cached_property
    def histogram_size(self) -> int:
        """The number of words of all histograms together."""
        return sum(bins.size + 1 for bins in (self.bins or {}).values())

    @cached_property
    def reduced(self) -> dict[str, int]:
        """The place of each row among the reduced statistics."""
        of_sequences = REDUCED_ROWS if self.repeats else REDUCED_ROWS[:-1]
        return self.places | {name: len(self.channels) + place for place, name in enumerate(of_sequences)}

    def row(self, channel: str, slot: str = "sum") -> int:
        """Return the row of a slot of a channel."""
        return int(self.blocks[slot].start) + self.places[channel]
