"""All kernels, and all functions of kernels, run in Triton's interpreter: on a machine without a GPU, as CI is."""

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_device import OPTIONS, tensors, with_logits
from test_device_tokens import ASKED, MANY, failed
from test_harness import make
from test_token_choice import arrays, as_torch

import barograph
from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.step import Measurement, measure
from barograph.metrics.gpu import passes
from kernels import INTERPRETED, interpreted_kernels

SOURCE = Path(barograph.__file__).parent


def functions_of_kernels() -> set[Callable[..., Any]]:
    """Return the functions that Triton compiles, in all modules of kernels."""
    from triton.runtime.interpreter import InterpretedFunction

    found = set()
    for path in (*SOURCE.rglob("*_triton.py"), *SOURCE.rglob("triton_*.py")):
        module = importlib.import_module(".".join(("barograph", *path.relative_to(SOURCE).with_suffix("").parts)))
        known = [each.fn for each in vars(module).values() if isinstance(each, InterpretedFunction)]
        found |= {function for function in known if function.__module__ == module.__name__}
    return found


def measure_some_batches() -> None:
    """Measure batches that need all code: with NaN, of logits, with sequences that are chosen."""
    data = make(3, 40, 1)
    data["advantages"][0][data["response_mask"][0]] = math.nan
    measure(tensors(with_logits(data), "cpu")[0], **OPTIONS)
    for updates in (0, 2):  # the first one makes the choice, else a kernel of its own does when the step ends
        given = arrays(MANY, 4)
        whole = Batch(**as_torch({**given, "log_probs": given["old_log_probs"]}))
        measurement = Measurement(report=failed)
        measurement.add(whole, ("data",), tokens=ASKED)
        for number in range(updates):
            measurement.add(whole.take(slice(number, number + 1)), ("policy",))
        measurement.finish("roll")


def gather_a_scalar() -> None:
    from barograph.base.device_copy.triton_kernels import gather_of

    results = torch.zeros(1, dtype=torch.float64)
    number = torch.tensor(2.5)
    addresses = torch.tensor([number.data_ptr()])
    gather_of(number.dtype)(0, (1, 1, 1), None, (), lambda: (addresses, results, 1))
    assert results.tolist() == [2.5]


@pytest.mark.skipif(not INTERPRETED, reason="a GPU runs what was compiled")
def test_every_function_of_a_kernel_runs_in_ci(monkeypatch: pytest.MonkeyPatch):
    """A module of kernels that no test starts would only be found broken on a GPU."""
    kernels = interpreted_kernels(monkeypatch)
    from triton.runtime.interpreter import InterpretedFunction

    monkeypatch.setattr(passes, "_kernels", lambda kind: kernels)
    monkeypatch.setattr(passes, "on_device", lambda batch: isinstance(batch.response_mask, torch.Tensor))
    monkeypatch.setattr(passes, "_broken", [])
    run, rewrite = set(), InterpretedFunction.rewrite

    def recorded(self: Any) -> Callable[..., Any]:
        run.add(self.fn)
        return rewrite(self)

    monkeypatch.setattr(InterpretedFunction, "rewrite", recorded)
    measure_some_batches()
    gather_a_scalar()
    functions = functions_of_kernels()
    assert len(functions) > 50
    assert {f"{each.__module__}.{each.__name__}" for each in functions - run} == set()
    assert passes._broken == []
