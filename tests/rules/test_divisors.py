"""Division by a constant: it becomes a product only where the reciprocal is a normal number."""

from __future__ import annotations

import numpy as np
import pytest

import tinyc
from tinyc.ir.region import Binary

DOCUMENT = {"id": "x", "uop": "INPUT", "src": [], "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [6]}}


@pytest.mark.parametrize("divisor", [1e-40, -1e-40, 1e-45, 3e38, 1.7e38, float("inf"), 0.0])
def test_constants_without_a_normal_reciprocal_divide(divisor: float) -> None:
    """0 / 1e-40 is 0; as a product with the reciprocal it would be NaN."""
    node = {"id": "y", "uop": "FDIV", "src": ["x", divisor], "arg": {}}
    compiled = tinyc.optimize_and_compile({"uops": [DOCUMENT, node]})
    x = np.array([0.0, -0.0, 1e-40, 1.0, -3e38, np.inf], np.float32)
    with np.errstate(all="ignore"):
        want = x / np.float32(divisor)
    np.testing.assert_array_equal(compiled(x=x), want)


@pytest.mark.parametrize("divisor", [3.0, -7.5, 1e-30, 1e30])
def test_other_constants_multiply_with_a_bounded_error(divisor: float) -> None:
    program = tinyc.trace(lambda x: (x / divisor).reshape(2, 3).sum(1), tinyc.spec("fp32", (6,)))
    compiled = tinyc.optimize_and_compile(program)
    x = np.array([1.0, 2.0, 3.0, -4.0, 5.5, 0.0], np.float32)
    want = (x.astype(np.float64) / np.float32(divisor)).reshape(2, 3).sum(1)
    np.testing.assert_allclose(compiled(x), want, rtol=8 * 2.0**-24)


def test_arange_is_a_few_operations_for_each_element() -> None:
    """Its binary digits, not a sum over all smaller indices: no reduction, and a kernel of its consumer only."""
    program = tinyc.trace(lambda x: x + tinyc.functions.arange(20_000), tinyc.spec("i32", (20_000,)))
    compiled = tinyc.optimize_and_compile(program)
    (kernel,) = compiled.kernels
    assert len(kernel.region.lets) < 100
    assert sum(isinstance(let.value, Binary) for let in kernel.region.lets) < 50
    np.testing.assert_array_equal(compiled(np.zeros(20_000, np.int32)), np.arange(20_000))
