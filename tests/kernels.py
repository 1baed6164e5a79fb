"""The Triton kernels in tests: on a CUDA device, or else on CPU tensors in Triton's interpreter, which uses NumPy."""

import os
import sys
import warnings
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

CUDA = torch.cuda.is_available()
INTERPRETED = not CUDA and sys.platform == "linux"
"""Triton has packages for Linux only. There it is required: without it tests fail, and are not skipped."""
NEEDS_KERNELS = pytest.mark.skipif(not (CUDA or INTERPRETED), reason="needs Triton, which is for Linux")
COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)

if INTERPRETED:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported


def interpreted_kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the kernels under Triton's interpreter, and use those of the logits for tensors on the host."""
    mend_interpreter()
    from barograph.metrics.formulas import logits, logits_triton
    from barograph.metrics.gpu import rows_triton, tokens_triton

    def kernels_for(*given: Any) -> ModuleType | None:
        takes = all(torch.is_tensor(each) and each.element_size() <= 4 for each in given)
        return logits_triton if takes else None

    monkeypatch.setattr(logits, "_kernels", kernels_for)
    tokens_triton.SEQUENCES_AT_ONCE = 8, 16, 32  # so that few sequences are more than are read at once
    for kind in (RuntimeWarning, DeprecationWarning):  # NumPy's, about NaN and about Triton's own code
        warnings.simplefilter("ignore", kind)
    return rows_triton


@cache
def mend_interpreter() -> None:
    """Make Triton's interpreter compute what a GPU does, in less time."""
    from triton import language
    from triton.runtime import interpreter

    assert isinstance(language.cdiv, interpreter.InterpretedFunction), "Triton was imported before tests/kernels.py"
    builder: Any = interpreter.InterpreterBuilder
    compute = builder.binary_op

    def binary_op(self: Any, left: Any, right: Any, operation: Any) -> Any:
        found = compute(self, left, right, operation)
        if operation in COMPARISONS:
            # It has the type of the numbers that were compared. A result of scalars becomes numbers of that type when
            # it is spread over a block, and those have no "and".
            found.dtype = language.int1
        return found

    builder.binary_op = binary_op
    # On a GPU the usual minimum and maximum pass over NaN.
    builder.create_minnumf = lambda self, left, right: self.binary_op(left, right, np.fmin)
    builder.create_maxnumf = lambda self, left, right: self.binary_op(left, right, np.fmax)
    # Whenever a function of a kernel is called, it replaces all functions of Triton by those of the interpreter, which
    # takes twice as long as the kernel. Once is enough.
    for module in (language, language.core):
        interpreter._patch_lang(SimpleNamespace(__globals__={"module": module}))
    interpreter._patch_lang = lambda function: interpreter._LangPatchScope()
