"""The pass over a batch's tensors by plain torch operations, for accelerators without Triton."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from windsock.measurement.batch import Batch
from windsock.measurement.device_selection import Fetched, copied
from windsock.measurement.plan import Plan
from windsock.stats.channels import CHANNELS, Tokens
from windsock.stats.rows import Table, moved_to, owners, torch_rows


@dataclass(frozen=True, slots=True)
class TorchResults:
    """The results of one pass, on the device."""

    plan: Plan
    table: Table
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


def launch(batch: Batch, plan: Plan) -> TorchResults:
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


def _split_arrays(batch: Batch, plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
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
