"""Cost of measuring a batch on a GPU: the fused pass, compared with reading its bytes once and with eager code.

Five float32 tensors and a mask (log-probs, old and reference log-probs, advantages, returns) give the complete PPO set:
ratios, clips, KL estimates, losses, moments, extremes and counts of non-finite values, for every sequence. The eager
code computes the usual two dozen of those as frameworks do, one masked expression and one ``.item()`` per metric.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

import barograph
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.plan import MeasurementPlan, plan_of
from barograph.metrics.batch.step import Measurement
from barograph.metrics.gpu import passes, results, rows_triton
from barograph.metrics.gpu.passes import Launches

FIELDS = ("log_probs", "old_log_probs", "ref_log_probs", "advantages", "returns")
SIZES = ((1024, 8192, 1.6), (1024, 32768, 1.25))
PARTS = ("data", "policy")


def make(rows: int, width: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    old = -torch.rand(rows, width, device="cuda") * 3
    data = {
        "old_log_probs": old,
        "log_probs": old + 0.1 * torch.randn_like(old),
        "ref_log_probs": old + 0.1 * torch.randn_like(old),
        "advantages": torch.randn_like(old),
        "returns": torch.randn_like(old),
    }
    return {**data, "response_mask": torch.ones_like(old, dtype=torch.bool)}


def ragged(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask of responses of random lengths, from none to all of the width."""
    rows, width = mask.shape
    return torch.arange(width, device="cuda") < torch.randint(0, width + 1, (rows, 1), device="cuda")


@triton.jit
def _read(a, b, c, d, e, mask, out, size, BLOCK: tl.constexpr):  # noqa: N803
    """Read six arrays once and store one number per block."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    total = tl.load(a + places, mask=inside, other=0.0) + tl.load(b + places, mask=inside, other=0.0)
    total += tl.load(c + places, mask=inside, other=0.0) + tl.load(d + places, mask=inside, other=0.0)
    total += tl.load(e + places, mask=inside, other=0.0) + tl.load(mask + places, mask=inside, other=0).to(tl.float32)
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


def read_once(data: dict[str, torch.Tensor], block: int) -> Callable[[], object]:
    size = data["response_mask"].numel()
    grid = triton.cdiv(size, block)
    out = torch.empty(grid, device="cuda")
    tensors = [data[name] for name in FIELDS]
    return lambda: _read[(grid,)](*tensors, data["response_mask"], out, size, BLOCK=block, num_warps=8)


def eager(data: dict[str, torch.Tensor]) -> dict[str, float]:
    """Compute the usual metrics as frameworks write them: masked means, and an item() for each."""
    mask = data["response_mask"].float()
    lp, old, ref, adv, ret = (data[name] for name in FIELDS)

    def mean(x: torch.Tensor) -> torch.Tensor:
        return (x * mask).sum() / mask.sum().clamp(min=1)

    def rows(x: torch.Tensor) -> torch.Tensor:
        return ((x * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()

    out: dict[str, float] = {}
    d = lp - old
    r = d.exp()
    clipped = r.clamp(0.8, 1.2)
    valid = mask.bool()
    out["ratio_mean"], out["ratio_max"] = mean(r).item(), r.masked_fill(~valid, -1e9).max().item()
    out["ratio_min"] = r.masked_fill(~valid, 1e9).min().item()
    out["ratio_var"] = mean((r - mean(r)) ** 2).item()
    out["high"], out["low"] = mean((r > 1.2).float()).item(), mean((r < 0.8).float()).item()
    out["clipfrac"] = mean((clipped * adv < r * adv).float()).item()
    out["pg_loss"] = rows(-torch.minimum(r * adv, clipped * adv)).item()
    out["approxkl"], out["k1"], out["k3"] = mean(0.5 * d * d).item(), mean(-d).item(), mean(d.exp() - 1 - d).item()
    k = ref - lp
    out["kl_loss"] = rows(k.exp() - k - 1).item()
    out["old"], out["ref"], out["nll"] = mean(old).item(), mean(ref).item(), rows(-lp).item()
    out["kl"] = ((old - ref) * mask).sum(1).mean().item()
    for name, x in (("advantages", adv), ("returns", ret)):
        out[f"{name}/mean"] = mean(x).item()
        out[f"{name}/max"], out[f"{name}/min"] = x[valid].max().item(), x[valid].min().item()
    out["length"] = mask.sum(1).mean().item()
    return out


class Reused(results.ResultMemory):
    """Memory of one matrix, into which every pass writes again."""

    def matrix(self, outline: Any, sequences: int) -> results.ResultMatrix:
        """Return the matrix."""
        found = super().matrix(outline, 0)
        found.sequences = 0
        return found


def kernels(batch: barograph.Batch, plan: MeasurementPlan) -> Callable[[], object]:
    """Return the pass over a batch alone, without the memory of its results."""
    memory = Reused(batch.response_mask.device)
    passes.queue_kernel(rows_triton, batch, plan, results.ResultMemory(batch.response_mask.device))
    super(Reused, memory).matrix(batch.prepared[plan].outline, batch.sequences)
    return lambda: passes.queue_kernel(rows_triton, batch, plan, memory)


def milliseconds(work: Callable[[], object]) -> float:
    """Return the time of the device without launches: the work is replayed as a CUDA graph."""
    with torch.cuda.stream(torch.cuda.Stream()):
        return float(triton.testing.do_bench_cudagraph(work, rep=100, return_mode="median"))


def milliseconds_with_host(work: Callable[[], object]) -> float:
    return float(triton.testing.do_bench(work, warmup=50, rep=200, return_mode="median"))


def one_size(rows: int, width: int, bar: float) -> bool:
    """Measure one size and print its table; return whether the bars hold."""
    data = make(rows, width)
    batch = barograph.Batch(**data)
    plan = plan_of(batch.given, PARTS, Options())
    half = batch.having(response_mask=ragged(data["response_mask"]))
    kernel, padded = (milliseconds(kernels(each, plan)) for each in (batch, half))
    limit = min(milliseconds(read_once(data, block)) for block in (1024, 2048, 4096, 8192))
    written = milliseconds_with_host(lambda: eager(data))
    whole = statistics.median(_wall(batch) for _ in range(20))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    held = Launches()
    held.add(batch, plan)
    extra = (torch.cuda.max_memory_allocated() - before) / 1e6
    error = _error(data)
    del held
    gigabytes = sum(t.numel() * t.element_size() for t in data.values()) / 1e9
    print(f"\n{rows:,} x {width:,} tokens, five float32 tensors and a mask: {gigabytes:.2f} GB")
    times = f"{kernel / limit:5.2f} x the limit"
    print(f"  fused pass                        {kernel:8.4f} ms   {times}, {extra:.2f} MB more")
    print(f"  the same, half of it padding      {padded:8.4f} ms   {padded / limit:5.2f} x the limit")
    print(f"  limit: reading the bytes once     {limit:8.4f} ms   ({gigabytes / limit:,.1f} TB/s)")
    print(f"  measure to finished values        {whole:8.4f} ms   wall, launch, copy back and host included")
    print(f"  eager, one item() per metric      {written:8.4f} ms   {written / kernel:5.1f} x the fused pass")
    print(f"  largest relative error            {error:8.1e}")
    bars = {
        f"{bar} x the limit": kernel <= bar * limit,
        "1 MB more": extra <= 1.0,
        "10 x faster than eager": written >= 10 * kernel,
    }
    for text, holds in bars.items():
        print(f"  {'holds' if holds else 'FAILS'}   {text}")
    return all(bars.values())


def _wall(batch: barograph.Batch) -> float:
    import time

    torch.cuda.synchronize()
    began = time.perf_counter()
    measurement = Measurement()
    measurement.add(batch, PARTS)
    measurement.finish("roll")
    return (time.perf_counter() - began) * 1e3


def _error(data: dict[str, torch.Tensor]) -> float:
    """Return the largest relative error against the host's double precision on the first sequences."""
    some = {name: value[:64].cpu().numpy() for name, value in data.items()}
    expected = barograph.measure(barograph.Batch(**some))
    there = barograph.measure(barograph.Batch(**{name: value[:64].contiguous() for name, value in data.items()}))
    # Quantiles are estimates, with an error of their own.
    names = [name for name, value in expected.items() if abs(value) > 1e-3 and not re.search(r"[/_]p\d+$", name)]
    return max(abs(there[name] - expected[name]) / abs(expected[name]) for name in names)


def main() -> int:
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless every bar holds")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    held = [one_size(*size) for size in SIZES]
    return int(options.strict and not all(held))


if __name__ == "__main__":
    sys.exit(main())
