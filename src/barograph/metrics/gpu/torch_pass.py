"""The pass over a batch's tensors by plain torch operations, for accelerators without Triton: the statistics of every
sequence, in one pass and without waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from barograph.base.device_copy import moved_to
from barograph.metrics.batch.arrays import Batch, copied
from barograph.metrics.batch.plan import Fetched, MeasurementPlan
from barograph.metrics.formulas.channels import CHANNELS, Tokens
from barograph.metrics.formulas.sequences import MAX_PERIOD, MIN_STRETCH
from barograph.metrics.formulas.table import SAMPLES, WEIGHT, Bins, SequenceTable


def torch_rows(
    table: SequenceTable,
    compute: Callable[[str], Any],
    actions: Any | None,
    valid: Any,
    response: Any,
    bounds: Any | None,
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
    """Return which sequences end in a repetition: see ``barograph.metrics.formulas.sequences``."""
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


def owners(bounds: Any, tokens: int) -> Any:
    """Return the sequence that each token of a packed batch belongs to."""
    import torch

    places = torch.arange(tokens, device=bounds.device)
    # Not repeat_interleave, which waits for the device to learn how long its result is.
    return torch.searchsorted(bounds.long(), places, right=True) - 1


@dataclass(frozen=True, slots=True)
class TorchResults:
    """The results of one pass, on the device."""

    plan: MeasurementPlan
    table: SequenceTable
    rows: Any
    histograms: Any
    on_device: dict[str, Any]  # arrays of the sequences
    on_host: dict[str, Any]

    def tensors(self) -> Sequence[Any]:
        """Return the tensors that have to be copied to the host."""
        return [self.rows, self.histograms, *self.on_device.values()]

    def fetched(self, arrays: Iterator[Any]) -> Fetched:
        """Return the results from the copies of the tensors, which are the next ones of ``arrays``."""
        rows, histograms = next(arrays), next(arrays)
        of_sequences = {name: [values] for name, values in self.on_host.items()}
        of_sequences |= {name: [next(arrays)] for name in self.on_device}
        return Fetched(self.plan, self.table, rows, of_sequences, histograms)


def queue_operations(batch: Batch, plan: MeasurementPlan) -> TorchResults:
    """Queue the operations. Nothing here waits for the device."""
    import torch

    response = batch.response_mask.bool()
    valid, bounds = response, batch.cu_seqlens
    if batch.keep is not None:
        keep = moved_to(response.device, batch.keep).bool()
        if keep.shape == (batch.sequences,):
            keep = keep[:, None] if bounds is None else keep[owners(bounds, len(response))]
        valid = response & keep

    def read(mask: Any, name: str) -> Any:
        if name == "eos_ids":
            return moved_to(response.device, batch.eos_ids).reshape(-1)
        # Selected, not multiplied: padding may be NaN, and 0 times NaN is NaN.
        return torch.where(mask, getattr(batch, name).detach().double(), 0.0)

    tokens = {
        of_response: Tokens(partial(read, mask), plan.options, keep=False)
        for of_response, mask in ((False, valid), (True, response))
    }

    def compute(name: str) -> Any:
        return getattr(tokens[CHANNELS[name].of_response], name)

    on_device, on_host = _split_arrays(batch, plan)
    on_host = {name: copied(value) for name, value in on_host.items()}
    table = plan.table(())
    rows, histograms = torch_rows(table, compute, batch.actions if plan.repeats else None, valid, response, bounds)
    # In dtypes that NumPy has.
    converted = {
        name: value.detach().double() if value.is_floating_point() else value.long()
        for name, value in on_device.items()
    }
    return TorchResults(plan, table, rows, histograms, converted, on_host)


def _split_arrays(batch: Batch, plan: MeasurementPlan) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays of the sequences that the plan needs: those on the batch's device, and the others."""
    import torch

    home = batch.response_mask.device
    on_device: dict[str, Any] = {}
    elsewhere: dict[str, Any] = {}
    for name in plan.sequence_arrays:
        value = getattr(batch, name)
        is_there = isinstance(value, torch.Tensor) and value.device == home
        (on_device if is_there else elsewhere)[name] = value
    return on_device, elsewhere
