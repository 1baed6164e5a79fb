"""Statistics of every sequence of a batch, computed on the device of its tensors, in one pass and without waiting.

The result is a matrix with a row for each statistic of each channel and a column for each sequence. It is small enough
to be copied once per step, and complete enough for the host to compute every metric of the batch from it, in double
precision. Quantiles are not in it: a pass adds some tokens of every sequence to histograms of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from windsock.stats.channels import CHANNELS, Channel
from windsock.stats.repetition import MAX_PERIOD, MIN_STRETCH

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
class Table:
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


def torch_rows(
    table: Table, compute: Callable[[str], Any], actions: Any | None, valid: Any, response: Any, bounds: Any | None
) -> tuple[Any, Any]:
    """Return the matrix and the histograms by plain torch operations, for devices without Triton.

    ``compute`` returns the token array of a channel; ``valid`` and ``response`` are boolean masks; ``bounds`` are the
    boundaries of a packed batch, or None for a padded one. Nothing here waits for the device.
    """
    import torch

    reduce = _Reduction(valid, bounds)
    rows = torch.zeros(table.height, reduce.sequences, dtype=torch.float64, device=valid.device)
    histograms = torch.zeros(table.histogram_size, dtype=torch.float64, device=valid.device)
    valid_count = rows[table.blocks["valid"].start] = reduce(valid.double())
    rows[table.blocks["response"].start] = reduce(response.double())
    samples = _Samples(reduce, response, valid) if table.bins else None
    if table.repeats:
        rows[table.blocks["repeats"].start] = _repeats(reduce, response, actions).double()
    for channel in table.channels:
        mask = response if channel.of_response else valid
        data = compute(channel.name)
        if channel.statistics == "count":
            rows[table.row(channel.name)] = reduce((data.bool() & mask).double())
            continue
        data = torch.where(mask, data.double(), 0.0)
        finite = torch.isfinite(data)
        rows[table.row(channel.name, "bad")] = reduce((~finite).double())
        rows[table.row(channel.name, "nan")] = reduce(torch.isnan(data).double())
        if samples is not None and channel.name in table.histograms:
            samples.add(data, histograms[table.histograms[channel.name]], (table.bins or {})[channel.name])
        if channel.statistics == "spread":
            rows[table.row(channel.name, "min")] = reduce(torch.where(mask, data, torch.inf), "amin")
            rows[table.row(channel.name, "max")] = reduce(torch.where(mask, data, -torch.inf), "amax")
            # Without infinities, which would make every distance infinite.
            shift = reduce(torch.where(finite, data, 0.0)) / valid_count.clamp(min=1)
            rows[table.row(channel.name, "shift")] = shift
            data = torch.where(mask, data - reduce.spread_over_tokens(shift), 0.0)
            rows[table.row(channel.name, "squares")] = reduce(data * data)
        rows[table.row(channel.name)] = reduce(data)
    rows[table.blocks["odd"]] = rows[table.blocks["bad"]].sum(0)
    return rows, histograms


class _Reduction:
    """Reduces token values per sequence: along the rows of a padded batch, between the bounds of a packed one."""

    def __init__(self, tokens: Any, bounds: Any | None) -> None:
        import torch

        self.sequences = len(tokens) if bounds is None else len(bounds) - 1
        self.owners = None if bounds is None else owners(bounds, len(tokens))
        width = tokens.shape[-1]
        self.starts = (
            bounds[:-1].long() if bounds is not None else width * torch.arange(self.sequences, device=tokens.device)
        )
        """The place of each sequence's first token among all tokens."""

    def __call__(self, values: Any, how: str = "sum", empty: float | None = None) -> Any:
        import torch

        # Of a width of 0 torch has no minimum.
        if self.owners is None and values.shape[1]:
            return getattr(values, how)(1)
        nothing = empty if empty is not None else {"sum": 0.0, "amin": torch.inf, "amax": -torch.inf}[how]
        result = torch.full((self.sequences,), nothing, dtype=values.dtype, device=values.device)
        return result if self.owners is None else result.scatter_reduce_(0, self.owners, values, how)

    def spread_over_tokens(self, values: Any) -> Any:
        """Return a number of each sequence at each of its tokens."""
        return values[:, None] if self.owners is None else values[self.owners]

    def last_token(self, mask: Any, first: bool = False) -> Any:
        """Return the place of the last token of each sequence in a mask, or of the first; of none, -1 or a huge one."""
        import torch

        places = torch.arange(mask.numel(), device=mask.device).reshape(mask.shape)
        if first:
            nowhere = torch.iinfo(torch.int64).max
            return self(torch.where(mask, places, nowhere), "amin", nowhere)
        return self(torch.where(mask, places, -1), "amax", -1)


class _Samples:
    """The tokens of a batch that are added to histograms."""

    def __init__(self, reduce: _Reduction, response: Any, valid: Any) -> None:
        import torch

        first, last = reduce.last_token(response, first=True), reduce.last_token(response)
        span = torch.where(last >= 0, last - first + 1, 0)[:, None]
        number = torch.arange(SAMPLES, device=valid.device)
        low, high = number * span // SAMPLES, (number + 1) * span // SAMPLES
        jitter = (number * 2654435761 % (1 << 32)) >> 8
        offset = torch.where(span <= SAMPLES, number, low + jitter % (high - low).clamp(min=1))
        inside = offset < span
        self._places = torch.where(inside, first[:, None].clamp(max=max(valid.numel() - 1, 0)) + offset, 0)
        if not valid.numel():
            self._chosen = torch.zeros_like(inside)
        else:
            self._chosen = inside & valid.reshape(-1)[self._places]
        # Each stands for the tokens of its stretch.
        self._weight = ((WEIGHT * span + SAMPLES // 2) // SAMPLES).clamp(min=WEIGHT).double()

    def add(self, data: Any, histogram: Any, bins: Bins) -> None:
        """Add the tokens' values to a histogram."""
        import torch

        if not data.numel():
            return
        values = data.reshape(-1)[self._places]
        size = values.abs() if bins.signed else values.clamp(min=0.0)
        number = (size.log() * bins.scale + bins.offset).clamp(0, bins.side)
        usable = self._chosen & torch.isfinite(values)
        number = torch.where(usable, number, 0.0).long()
        if bins.signed:
            number = torch.where(values < 0, -number, number) + bins.side
        histogram.index_add_(0, number.reshape(-1), torch.where(usable, self._weight, 0.0).reshape(-1))


def _repeats(reduce: _Reduction, response: Any, actions: Any) -> Any:
    """Return which sequences end in a repetition: see ``windsock.stats.repetition``."""
    import torch

    if not response.numel():
        return torch.zeros(reduce.sequences, dtype=torch.bool, device=response.device)
    # The tokens from the last one backwards, two longest periods of them.
    places = reduce.last_token(response)[:, None] - torch.arange(2 * MAX_PERIOD, device=response.device)
    inside = (places >= reduce.starts[:, None]) & (places >= 0)
    places = places.clamp(min=0)
    inside &= response.reshape(-1)[places]
    run = inside.long().cumprod(1).sum(1)[:, None]
    tokens = actions.reshape(-1)[places]
    period = torch.arange(1, MAX_PERIOD + 1, device=response.device)
    stretch = (2 * period).clamp(min=MIN_STRETCH)
    # Token i from the end against token i + period, for all periods at once.
    earlier = tokens.unfold(1, MAX_PERIOD, 1)[:, 1 : MAX_PERIOD + 1]
    compared = torch.arange(MAX_PERIOD, device=response.device) < (stretch - period)[:, None]
    differs = (compared & (tokens[:, None, :MAX_PERIOD] != earlier)).any(2)
    return ((stretch <= run) & ~differs).any(1)


def moved_to(device: Any, values: Any) -> Any:
    """Return values as a tensor on a device, without waiting: the copy from the host is from pinned memory."""
    import torch

    tensor = torch.as_tensor(values)
    if tensor.device == torch.device(device) or torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def owners(bounds: Any, tokens: int) -> Any:
    """Return the sequence that each token of a packed batch belongs to."""
    import torch

    places = torch.arange(tokens, device=bounds.device)
    # Not repeat_interleave, which waits for the device to learn how long its result is.
    return torch.searchsorted(bounds.long(), places, right=True) - 1
