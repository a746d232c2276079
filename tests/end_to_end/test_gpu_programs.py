"""Programs on the GPU of this machine, where there is one: what the evaluator says, bit for bit or within the dtype's tolerance.

The same calls as in test_cuda_launch.py, of a driver that is none of ours.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from end_checks import TOLERANCE, arrays_of, integer_inputs, traced

import tinyc
from tinyc.codegen.nvrtc import compile_cubin
from tinyc.compiler import target_here
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType
from tinyc.ir.evaluate import evaluate
from tinyc.ir.verify import bind
from tinyc.runtime.cuda.device import ARCHITECTURES

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
    wanted = evaluate(program, inputs), evaluate(program, inputs, float64=True)
    for port, value, want, exact in zip(program.outputs, values, *wanted, strict=True):
        bound = TOLERANCE.get(program.types[port.node].dtype.value, 0)
        assert value.dtype == want.dtype and value.shape == want.shape
        have, reference = value.astype(np.float64), want.astype(np.float64)
        if "transformer" in EXAMPLES[number].stem:  # after so many roundings two orders of them differ
            assert np.abs(have - exact).max() <= 1.5 * np.abs(reference - exact).max() + bound
        else:
            np.testing.assert_allclose(have, reference, rtol=bound, atol=bound)


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
        given.append(DeviceArray(memory.address, DType.FP16, array.shape, memory))
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


def test_torch_tensors_are_read_where_they_lie(target: str) -> None:
    torch = pytest.importorskip("torch", reason="its tensors are handed over; tinyc does not depend on it")
    program = traced(lambda a, b: (a @ b).relu(), "bf16", a=(72, 40), b=(40, 56))
    compiled = tinyc.optimize_and_compile(program, target, budget=GREEDY)
    (want,) = evaluate(program, integer_inputs(program))
    want = torch.tensor(want.astype(np.float32)).to("cuda", torch.bfloat16)
    whole, b = (
        torch.tensor(each.astype(np.float32)).to("cuda", torch.bfloat16)
        for each in integer_inputs(program).values()
    )
    flat = torch.empty(72 * 40 + 1, device="cuda", dtype=torch.bfloat16)
    shifted = flat[1:].view(72, 40)  # two bytes beside what the kernel's vectors need
    shifted.copy_(whole)
    for a in (whole, shifted, whole.t().contiguous().t()):
        got = compiled(a, b)
        assert got.is_cuda and got.dtype == torch.bfloat16 and torch.equal(got, want)


def test_a_call_waits_for_what_its_stream_has_to_do_and_nobody_for_it(target: str) -> None:
    torch = pytest.importorskip("torch", reason="its tensors are handed over; tinyc does not depend on it")
    program = traced(lambda a: a * 2.0 + 1.0, "fp32", a=(1 << 20,))
    compiled = tinyc.optimize_and_compile(program, target, budget=GREEDY)
    for number in range(4):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            a = torch.zeros(1 << 20, device="cuda")
            torch.cuda._sleep(50_000_000)  # cycles: some 30 ms
            a.fill_(3.0)
            got = compiled(a)
            busy = not stream.query()
        stream.synchronize()
        assert busy or not number  # the first call makes and loads the kernel
        assert bool((got == 7.0).all())


def test_a_bundle_runs_by_itself(target: str, tmp_path: Path) -> None:
    program = traced(lambda a, b: (a @ b).relu(), "fp16", a=(65, 40), b=(40, 33))
    compiled = tinyc.optimize_and_compile(program, target, budget=GREEDY)
    compiled.export(tmp_path / "bundle")
    inputs = integer_inputs(program)
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
    given = [f"{name}={tmp_path / name}.npy" for name in inputs]
    command = [sys.executable, str(tmp_path / "bundle" / "loader.py"), *given]
    subprocess.run([*command, "--output", str(tmp_path / "out.npz")], check=True, cwd=tmp_path)
    (got,) = np.load(tmp_path / "out.npz").values()
    assert np.array_equal(got, evaluate(program, inputs)[0])


def test_that_the_gpu_has_no_room_is_said(target: str) -> None:
    program = traced(lambda a, b: (a + b) * 2.0, "fp32", a=(1 << 19, 1), b=(1, 1 << 19))
    compiled = tinyc.optimize_and_compile(program, target, budget=GREEDY)
    inputs = integer_inputs(program)
    with pytest.raises(TinycError) as caught:
        compiled(**inputs)
    assert caught.value.code == "E1704"
    small = traced(lambda a: a + 1.0, "fp32", a=(4,))
    assert (tinyc.optimize_and_compile(small, target)(np.ones(4, np.float32)) == 2).all()


def test_what_a_kernel_takes_is_known_however_often_it_is_compiled(target: str) -> None:
    """Where there is a driver, NVRTC keeps what it makes, and gives it again without ptxas's figures, unless told not to."""
    source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 3.0f; }'
    for _ in range(3):
        compile_cubin.cache_clear()
        (usage,) = compile_cubin(source, ARCHITECTURES[target]).usage
        assert usage.registers > 0
