"""Cost of log-probs, entropy and exact KL on a GPU, compared with eager code and with reading the logits once.

The eager code makes the same torch calls on the same chunks as TRL and veRL, without their packages. The limit is the
fastest of a few plain kernels that read and sum every byte. Times are medians of CUDA events with a cold L2 cache;
extra memory is the peak above the memory before the call, including results; errors are the maximum against float64
over every 15th position.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everyone calls it
import triton
import triton.language as tl
from triton.testing import do_bench

from barograph.metrics.formulas.logits import kl_exact, log_prob_and_entropy

SEQUENCES = 8
CHECKED = 15  # every 15th position is compared with float64; odd, so that all kinds of positions occur
HEADS = ("ms", "x limit", "extra MB", "log-prob err", "entropy err", "KL err")
READS = (
    (4, 2048),
    (4, 4096),
    (8, 4096),
    (8, 8192),
    (8, 16384),
    (16, 16384),
)  # warps, and elements that a program reads at once
READS_EACH = 8  # reads per program


@dataclass(frozen=True, slots=True)
class Cost:
    """Measurements of one implementation; NaN where one does not apply."""

    milliseconds: float
    megabytes: float = math.nan
    log_prob: float = math.nan
    entropy: float = math.nan
    divergence: float = math.nan


@dataclass(frozen=True, slots=True)
class Batch:
    """Logits of one size and dtype, with float64 results of the checked positions."""

    logits: Any
    old_logits: Any
    actions: Any
    mask: Any
    expected: dict[str, Any]


def eager_log_probs(logits: Any, actions: Any) -> Any:
    """Return log-probs: float32 logits minus their log-sum-exp, or a log-softmax of narrower ones, by sequence."""
    if logits.dtype in (torch.float32, torch.float64):
        chosen = logits.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        return chosen - torch.stack([torch.logsumexp(sequence, dim=-1) for sequence in logits])
    log_probs = []
    for sequence, taken in zip(logits, actions, strict=True):
        log_p = F.log_softmax(sequence, dim=-1)
        log_probs.append(log_p.gather(-1, taken.unsqueeze(-1)).squeeze(-1))
    return torch.stack(log_probs)


def trl_log_prob_and_entropy(logits: Any, actions: Any) -> tuple[Any, Any]:
    """Return the entropy from log-softmaxes of 128 positions at a time."""
    entropies = []
    for chunk in logits.reshape(-1, logits.shape[-1]).split(128, dim=0):
        log_p = F.log_softmax(chunk, dim=-1)
        entropies.append(-(torch.exp(log_p) * log_p).sum(-1))
    return eager_log_probs(logits, actions), torch.cat(entropies).reshape(logits.shape[:-1])


def verl_log_prob_and_entropy(logits: Any, actions: Any) -> tuple[Any, Any]:
    """Return the entropy from one softmax over all positions."""
    p = F.softmax(logits, dim=-1)
    entropy = torch.logsumexp(logits, dim=-1) - torch.sum(p * logits, dim=-1)
    return eager_log_probs(logits, actions), entropy


def eager_kl(old_logits: Any, logits: Any) -> Any:
    """Return ``kl_div`` of both log-softmaxes, 128 positions at a time."""
    parts = []
    flat = (each.reshape(-1, each.shape[-1]).split(128, dim=0) for each in (old_logits, logits))
    for old, new in zip(*flat, strict=True):
        log_p, log_q = F.log_softmax(old, dim=-1), F.log_softmax(new, dim=-1)
        parts.append(F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1))
    return torch.cat(parts).reshape(logits.shape[:-1])


@triton.jit
def read_kernel(values, sums, size, block: tl.constexpr, times: tl.constexpr):
    """Sum a range of values."""
    start = tl.program_id(0).to(tl.int64) * block * times
    places = start + tl.arange(0, block)
    total = tl.zeros([block], tl.float32)
    for step in range(times):
        here = places + step * block
        total += tl.load(values + here, mask=here < size, other=0.0).to(tl.float32)
    tl.store(sums + tl.program_id(0), tl.sum(total))


def milliseconds(call: Callable[[], object]) -> float:
    return float(do_bench(call, warmup=100, rep=400, return_mode="median"))


def reading_time(*tensors: Any) -> float:
    """Return the milliseconds of the fastest plain kernel that reads all tensors once."""
    sums = torch.empty(1 + max(tensor.numel() for tensor in tensors) // (READS[0][1] * READS_EACH), device="cuda")

    def read(warps: int, block: int) -> None:
        for tensor in tensors:
            grid = (triton.cdiv(tensor.numel(), block * READS_EACH),)
            read_kernel[grid](tensor, sums, tensor.numel(), block, READS_EACH, num_warps=warps)

    return min(milliseconds(lambda shape=shape: read(*shape)) for shape in READS)


def realistic(positions: int, vocabulary: int, dtype: Any) -> Any:
    """Return normal logits with a few high peaks; every eighth position is nearly certain of one token."""
    logits = torch.empty(positions, vocabulary, dtype=dtype, device="cuda").normal_(0.0, 3.0)
    peaks = torch.randint(vocabulary, (positions, 4), device="cuda")
    heights = torch.empty(positions, 4, device="cuda").uniform_(10.0, 25.0)
    heights[::8, 0] = 45.0
    return logits.scatter_(-1, peaks, heights.to(dtype))


def in_float64(logits: Any, old_logits: Any, actions: Any) -> dict[str, Any]:
    """Return the exact float64 results of the checked positions."""
    found: dict[str, list[Any]] = {"log_prob": [], "entropy": [], "divergence": []}
    chosen = (each.flatten(0, 1)[::CHECKED].split(32) for each in (logits, old_logits, actions))
    for new, old, taken in zip(*chosen, strict=True):
        log_q, log_p = new.double().log_softmax(-1), old.double().log_softmax(-1)
        found["log_prob"].append(log_q.gather(-1, taken[:, None])[:, 0])
        found["entropy"].append(-(log_q.exp() * log_q).sum(-1))
        found["divergence"].append((log_p.exp() * (log_p - log_q)).sum(-1))
    return {name: torch.cat(parts) for name, parts in found.items()}


def batch(positions: int, vocabulary: int, dtype: Any) -> Batch:
    logits = realistic(positions, vocabulary, dtype)
    old_logits = torch.empty_like(logits).normal_(0.0, 0.2).add_(logits)
    actions = torch.where(torch.rand(positions, device="cuda") < 0.5, logits.argmax(-1), 17)
    shape = (SEQUENCES, positions // SEQUENCES)
    logits, old_logits, actions = (each.view(*shape, *each.shape[1:]) for each in (logits, old_logits, actions))
    mask = torch.rand(shape, device="cuda") < 0.5
    return Batch(logits, old_logits, actions, mask, in_float64(logits, old_logits, actions))


def measure(call: Callable[[], Any], expected: dict[str, Any]) -> Cost:
    """Return a call's time, memory and errors; its results are in the order of ``expected``."""
    call()  # compile
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = call()
    torch.cuda.synchronize()
    extra = (torch.cuda.max_memory_allocated() - before) / 1e6
    errors = {
        name: (result.flatten()[::CHECKED].double() - expected[name]).abs().max().item()
        for name, result in zip(expected, results[: len(expected)], strict=True)
    }
    del results
    return Cost(milliseconds(call), extra, **errors)


def contest(data: Batch) -> Iterator[tuple[str, Cost]]:
    """Measure all implementations on one batch; the limits last, when the device is warm."""
    logits, old, actions, mask = data.logits, data.old_logits, data.actions, data.mask
    pair = {name: data.expected[name] for name in ("log_prob", "entropy")}
    divergence = {"divergence": data.expected["divergence"]}
    yield "log-prob + entropy, barograph", measure(lambda: log_prob_and_entropy(logits, actions), pair)
    yield "  half of it masked", measure(lambda: log_prob_and_entropy(logits, actions, mask=mask), {})
    yield "  as TRL writes it", measure(lambda: trl_log_prob_and_entropy(logits, actions), pair)
    yield "  as veRL writes it", measure(lambda: verl_log_prob_and_entropy(logits, actions), pair)
    yield "  limit: reading it once", Cost(reading_time(logits))
    yield "exact KL, barograph", measure(lambda: [kl_exact(old, logits)], divergence)
    yield "  eager, 128 positions at a time", measure(lambda: [eager_kl(old, logits)], divergence)
    yield "  limit: reading both once", Cost(reading_time(old, logits))


def table(results: dict[str, Cost]) -> str:
    lines = [f"{'':34}" + "".join(f"{head:>14}" for head in HEADS)]
    for name, cost in results.items():
        limit = results["  limit: reading both once" if "KL" in name or "eager" in name else "  limit: reading it once"]
        limit = cost if "limit" in name else limit
        errors = (cost.log_prob, cost.entropy, cost.divergence)
        cells = [f"{cost.milliseconds:.3f}", f"{cost.milliseconds / limit.milliseconds:.2f}"]
        cells += ["-" if math.isnan(cost.megabytes) else f"{cost.megabytes:,.2f}"]
        cells += ["-" if math.isnan(error) else f"{error:.1e}" for error in errors]
        lines.append(f"{name:34}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def bars(dtype: str, results: dict[str, Cost]) -> Iterator[tuple[bool, str]]:
    """Compare the measurements with the bars."""
    ours, ours_kl = results["log-prob + entropy, barograph"], results["exact KL, barograph"]
    share = ours.milliseconds / results["  limit: reading it once"].milliseconds
    share_kl = ours_kl.milliseconds / results["  limit: reading both once"].milliseconds
    most = 1.3 if dtype == "bfloat16" else 1.1
    yield share <= most, f"log-prob + entropy: {share:.2f} x the limit, at most {most}"
    yield share_kl <= 1.4, f"exact KL: {share_kl:.2f} x the limit, at most 1.4"
    error = max(ours.log_prob, ours.entropy, ours_kl.divergence)
    yield error <= 1e-5, f"error: {error:.1e}, at most 1e-05"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--positions", type=int, default=8192, help="a multiple of 8")
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless every bar holds")
    return parser.parse_args(given)


def main() -> int:
    options = arguments()
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    hold = True
    for dtype in options.dtypes:
        data = batch(options.positions, options.vocabulary, getattr(torch, dtype))
        results = dict(contest(data))
        print(f"\n{options.positions:,} positions of {options.vocabulary:,} logits, {dtype}\n{table(results)}")
        for holds, text in bars(dtype, results):
            print(f"{'holds' if holds else 'FAILS':8}{text}", flush=True)
            hold &= holds
        del data
        torch.cuda.empty_cache()
    return int(options.strict and not hold)


if __name__ == "__main__":
    sys.exit(main())
