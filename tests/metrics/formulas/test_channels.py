"""The declarations of channels, and the Triton kernel's formulas, which repeat them by name."""

import ast
from pathlib import Path

import numpy as np
import pytest

from barograph.metrics.batch.arrays import FIELDS, TOKEN_FIELDS
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.step import PARTS
from barograph.metrics.formulas import table
from barograph.metrics.formulas.channels import CHANNELS, Tokens

KERNELS = Path(table.__file__).parents[1] / "gpu" / "rows_triton.py"
OPTIONS = Options.from_keywords({"dual_clip": 3.0, "value_clip": 0.2, "truncate": 2.0, "reject": ("token", 0.5, 2.0)})


def kernel_formulas() -> ast.FunctionDef:
    """Return the kernel's function of formulas; it is parsed, since Triton need not be installed."""
    with open(KERNELS) as file:
        tree = ast.parse(file.read())
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "_values")


def test_the_kernel_has_a_formula_for_every_channel_of_the_table():
    """A channel that a device stores is computed by the kernel, under its own name, and no other is."""
    result = kernel_formulas().body[-1].value
    written = [keyword.arg.removesuffix("_") for keyword in result.keywords]
    assert sorted(written) == sorted(channel.name for channel in table.STORED)


def test_the_kernel_reads_only_arrays_that_a_channel_needs():
    """Each attribute of the kernel's arrays is declared as a need."""
    read = {
        node.attr.removesuffix("_")
        for node in ast.walk(kernel_formulas())
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "x"
    }
    assert read == {need.name for channel in table.STORED for need in channel.needs} - {"actions", "eos_ids"}


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=lambda channel: channel.name)
def test_a_channel_is_neutral_where_its_inputs_are_zero(channel):
    """Devices put 0 for every array outside the mask: sums and counts must be 0 there, and ``near`` exact."""
    zeros = Tokens(lambda name: np.array([7.0]) if name == "eos_ids" else np.zeros(3), OPTIONS, keep=False)
    assert getattr(zeros, channel.name) == pytest.approx(channel.near or 0.0, abs=0)


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=lambda channel: channel.name)
def test_a_formula_reads_the_arrays_and_options_that_its_channel_declares(channel):
    """Nothing is computed from an array that the needs do not name."""
    read: set[str] = set()
    random = np.random.default_rng(0)

    def array(name: str) -> np.ndarray:
        read.add(name)
        return random.normal(size=4)

    getattr(Tokens(array, OPTIONS, keep=True), channel.name)
    needs = {need.name for need in channel.needs}
    assert read <= needs <= set(FIELDS)
    assert {option.partition("/")[0] for option in channel.options} <= set(Options.__dataclass_fields__)
    assert set(channel.parts) <= set(PARTS)


@pytest.mark.parametrize(
    "channel", [channel for channel in CHANNELS.values() if channel.combines], ids=lambda channel: channel.name
)
def test_a_combined_channel_is_the_sum_that_it_declares(channel):
    """The formula of the host and the combination of a device's totals give the same."""
    random = np.random.default_rng(1)
    arrays = {name: random.normal(size=100) for name in TOKEN_FIELDS}
    tokens = Tokens(arrays.__getitem__, OPTIONS, keep=True)
    combined = sum(factor * getattr(tokens, other) for other, factor in channel.combines.items())
    assert getattr(tokens, channel.name).astype(float) == pytest.approx(combined.astype(float))
