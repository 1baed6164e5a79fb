"""Cost of measuring a batch on the CPU: barograph and eager torch code that computes the same numbers.

The torch code selects the valid tokens and computes in double precision, one expression per metric. Both compute every
metric of the data, policy and value parts; their numbers are compared first.

Then the small micro-batches of a step in a run: every call of ``measure``, and the commit that computes them together.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import barograph

CLIP, VALUE_CLIP, KL_COEF = 0.2, 0.2, 0.05
MICRO_BATCHES, SMALL = 16, (8, 256)
CALL_BAR = 150e-6
FIELDS = (
    "log_probs", "old_log_probs", "ref_log_probs", "rollout_log_probs", "advantages", "returns", "values", "old_values",
    "rewards", "entropy",
)  # fmt: skip


def make(rows: int, width: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    data: dict[str, Any] = {"response_mask": np.arange(width) < random.integers(1, width, rows)[:, None]}
    old = -random.exponential(1.0, (rows, width))
    for name in FIELDS:
        noise = random.normal(0, 0.1 if "log_probs" in name else 1.0, (rows, width))
        data[name] = (old + noise if "log_probs" in name else noise).astype(np.float32)
    data["scores"] = random.random(rows)
    data["groups"] = np.arange(rows) // 8
    data["weights"] = random.random(rows)
    return data


def eager(data: dict[str, torch.Tensor]) -> dict[str, float]:
    """Compute the same metrics with torch on the selected tokens."""
    mask = data["response_mask"]
    counts = mask.sum(1)
    row = torch.repeat_interleave(torch.arange(len(counts)), counts)
    pick = {name: data[name][mask].double() for name in FIELDS}
    out: dict[str, float] = {}

    def spread(name: str, x: torch.Tensor) -> None:
        out.update({f"{name}/mean": x.mean(), f"{name}/max": x.max(), f"{name}/min": x.min(), f"{name}/var": x.var()})

    def per_row(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(counts), dtype=torch.float64).index_add_(0, row, x)

    def reduce(x: torch.Tensor) -> torch.Tensor:
        return (per_row(x) / counts).mean()

    lp, old, ref, roll = (pick[name] for name in FIELDS[:4])
    adv, ret, val, val0 = (pick[name] for name in ("advantages", "returns", "values", "old_values"))
    for name in ("advantages", "returns", "old_values"):
        spread(name, pick[name])
    spread("scores", data["scores"])
    spread("weights", data["weights"])
    spread("rewards", per_row(pick["rewards"]))
    spread("length", counts.double())
    d = lp - old
    r = d.exp()
    clipped = r.clamp(1 - CLIP, 1 + CLIP)
    spread("ratio", r)
    above, below = r > 1 + CLIP, r < 1 - CLIP
    for name, x in {"above": above, "below": below, "outside": above | below, "bind": clipped * adv < r * adv,
                    "high": above & (adv > 0), "low": below & (adv < 0)}.items():  # fmt: skip
        out[name] = x.double().mean()
    out |= {
        "k1": (-d).mean(),
        "k2": (0.5 * d * d).mean(),
        "k3": (d.expm1() - d).mean(),
        "entropy": pick["entropy"].mean(),
    }
    loss = -torch.minimum(r * adv, clipped * adv)
    k = ref - lp
    out |= {"pg": reduce(loss), "kl": reduce(k.expm1() - k), "sft": reduce(-lp), "ent": reduce(pick["entropy"])}
    out["weighted"] = (per_row(loss) / counts * data["weights"]).mean()
    for sign in (True, False):
        chosen = (data["scores"] > 0) == sign
        out[f"sft{sign}"] = (per_row(-lp) / counts)[chosen].mean()
    kl = per_row(old - ref)
    out |= {"ref": ref.mean(), "old": old.mean(), "refk1": (old - ref).mean(), "klsum": kl.mean()}
    out |= {
        "entsum": per_row(-old).mean(),
        "non": (-KL_COEF * kl).mean(),
        "rlhf": (data["scores"] - KL_COEF * kl).mean(),
    }
    out["ev"] = 1 - (ret - val0).var() / ret.var()
    m = old - roll
    spread("diff", m.abs())
    spread("pdiff", (old.exp() - roll.exp()).abs())
    w = m.exp()
    spread("weight", w)
    out |= {"mk1": (-m).mean(), "mk3": (m.expm1() - m).mean(), "ess": w.sum() ** 2 / (len(w) * (w * w).sum())}
    spread("seqratio", per_row(m).exp())
    nll = [-per_row(x) / counts for x in (old, roll)]
    for name, x in zip(("train", "roll"), nll, strict=True):
        out |= {f"ppl{name}": x.exp().mean(), f"logppl{name}": x.mean()}
    out |= {"apart": (nll[1] - nll[0]).mean(), "absapart": (nll[1] - nll[0]).abs().mean()}
    error = (val - ret) ** 2
    bounded = (torch.maximum(torch.minimum(val, val0 + VALUE_CLIP), val0 - VALUE_CLIP) - ret) ** 2
    out |= {"v0": val0.mean(), "v": val.mean(), "err": error.mean(), "vclip": (bounded > error).double().mean()}
    out["vloss"] = reduce(torch.maximum(error, bounded)) / 2
    return {name: float(x) for name, x in out.items()}


def seconds(work: Callable[[], object], repeats: int) -> float:
    spent = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def micro_batches(repeats: int) -> bool:
    """Time the calls for small micro-batches and their commit; print them and return whether the bar holds."""
    calls, commits, eager_times = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        run = barograph.init(dir=folder)
        data = make(MICRO_BATCHES * SMALL[0], SMALL[1])
        parts = [{name: value[n::MICRO_BATCHES] for name, value in data.items()} for n in range(MICRO_BATCHES)]
        tensors = [{name: torch.tensor(value) for name, value in part.items()} for part in parts]
        for _ in range(repeats):
            batches = [barograph.Batch(**part) for part in parts]
            calls += [
                seconds(lambda: run.measure(batch, part=None, value_clip=VALUE_CLIP, kl_coef=KL_COEF), 1)  # noqa: B023
                for batch in batches
            ]
            commits.append(seconds(run.commit, 1))
            eager_times.append(sum(seconds(lambda: eager(part), 1) for part in tensors))  # noqa: B023
        run.finish()
    call, commit, theirs = (statistics.median(times) for times in (calls, commits, eager_times))
    print(f"\n{MICRO_BATCHES} micro-batches of {SMALL[0]} x {SMALL[1]} tokens, every metric of each")
    print(f"a call of measure         {call * 1e6:8.0f} µs")
    print(f"the commit of all         {commit * 1e3:8.1f} ms")
    print(f"a step                    {(MICRO_BATCHES * call + commit) * 1e3:8.1f} ms")
    print(f"torch, eager, selected    {theirs * 1e3:8.1f} ms")
    print(f"{'holds' if call <= CALL_BAR else 'FAILS'}: a call takes at most {CALL_BAR * 1e6:.0f} µs")
    return call <= CALL_BAR


def main() -> int:
    """Compare the numbers, then print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless the bars hold")
    options = parser.parse_args()
    data = make(options.rows, options.width)
    tensors = {name: torch.tensor(value) for name, value in data.items()}
    batch = barograph.Batch(**data)

    def ours() -> dict[str, float]:
        return barograph.measure(batch, value_clip=VALUE_CLIP, kl_coef=KL_COEF)

    got, expected = ours(), eager(tensors)
    for name, other in {
        "actor/pg_loss": "pg",
        "critic/loss": "vloss",
        "actor/kl_loss": "kl",
        "actor/ratio_max": "ratio/max",
    }.items():
        assert abs(got[name] - expected[other]) < 1e-9, name
    mine, theirs = seconds(ours, options.repeats), seconds(lambda: eager(tensors), options.repeats)
    print(f"{options.rows} x {options.width} tokens, {torch.get_num_threads()} threads")
    print(f"barograph (NumPy)          {mine * 1e3:8.1f} ms   {len(got)} metrics")
    print(f"torch, eager, selected    {theirs * 1e3:8.1f} ms   {len(expected)} metrics")
    print(f"{'holds' if mine <= 2.5 * theirs else 'FAILS'}: {mine / theirs:.2f} times, at most 2.5")
    held = micro_batches(options.repeats)
    return int(options.strict and not (held and mine <= 2.5 * theirs))


if __name__ == "__main__":
    sys.exit(main())
