"""Programs on the GPU of this machine, where there is one: what the evaluator says, bit for bit or within the dtype's tolerance.

The same calls as in test_cuda_launch.py, of a driver that is none of ours.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from end_checks import TOLERANCE, arrays_of, integer_inputs, traced

import tinyc
from tinyc.compiler import target_here
from tinyc.ir.evaluate import evaluate
from tinyc.ir.verify import bind

pytestmark = pytest.mark.gpu

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.json"))
GREEDY = tinyc.Budget(extract_seconds=0)


@pytest.fixture
def target() -> str:
    found = target_here()
    if found == "cpu":
        pytest.skip("no target has code for this GPU")
    return found


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=lambda number: EXAMPLES[number].stem)
@pytest.mark.parametrize("size", [6, 96])
def test_an_example_computes_what_the_evaluator_says(number: int, size: int, target: str) -> None:
    program = tinyc.load(EXAMPLES[number])
    program = bind(program, dict.fromkeys(program.symbols, size))
    generator = np.random.default_rng(number)
    inputs = arrays_of(program, lambda shape: generator.normal(size=shape) / 4)
    got = tinyc.optimize_and_compile(program, target, budget=GREEDY)(**inputs)
    values = got if isinstance(got, tuple) else (got,)
    for port, value, want in zip(program.outputs, values, evaluate(program, inputs), strict=True):
        bound = TOLERANCE.get(program.types[port.node].dtype.value, 0)
        assert value.dtype == want.dtype and value.shape == want.shape
        np.testing.assert_allclose(value.astype(np.float64), want.astype(np.float64), rtol=bound, atol=bound)


def test_arrays_stay_on_the_gpu(target: str) -> None:
    from tinyc.runtime.cuda.arrays import DeviceArray, Memory
    from tinyc.runtime.cuda.device import first_device

    program = traced(lambda a, b: (a @ b).relu(), "fp16", a=(64, 64), b=(64, 64))
    compiled = tinyc.optimize_and_compile(program, target, budget=GREEDY)
    inputs, device, given = integer_inputs(program), first_device(), []
    for array in inputs.values():
        memory = Memory(device, array.nbytes)
        with device.current() as driver:
            driver("cuMemcpyHtoDAsync", memory.address, array.ctypes.data, array.nbytes, 0)
            driver("cuStreamSynchronize", 0)
        given.append(DeviceArray(memory.address, program.types["a"].dtype, array.shape, memory))
    result = compiled(*given)
    found = np.empty((64, 64), np.float16)
    with device.current() as driver:
        driver("cuMemcpyDtoHAsync", found.ctypes.data, result.address, found.nbytes, 0)
        driver("cuStreamSynchronize", 0)
    assert np.array_equal(found, evaluate(program, inputs)[0])


def test_kernels_are_timed(target: str) -> None:
    program = traced(lambda a: a + 1.0, "fp32", a=(1024, 1024))
    compiled = tinyc.optimize_and_compile(program, target, budget=GREEDY)
    (row,) = compiled.measure(*integer_inputs(program).values())
    assert row.actual > 0
