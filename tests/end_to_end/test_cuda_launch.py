"""Programs on a GPU, which a fake driver stands in for: what calls compute, what they ask of the driver, and what they give back."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from end_checks import integer_inputs
from fake_driver import FakeDriver, Misuse
from fake_gpu import gpu
from random_programs import Maker, agree, random_inputs

import tinyc
import tinyc.runtime.cuda.timing as timing
from tinyc.cli import main
from tinyc.codegen.nvrtc import compile_cubin
from tinyc.compiler import target_here
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program
from tinyc.ir.verify import bind
from tinyc.runtime.cuda.arrays import Memory
from tinyc.runtime.cuda.loader import WAITING, WAITING_BYTES, BundleError, Device, DriverError, runs_on
from tinyc.runtime.cuda.loader import Program as Loaded

__all__ = ["gpu"]

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
GREEDY = tinyc.Budget(extract_seconds=0)


def compiled(function: Any, target: str = "sm80", **shapes: tuple[str, tuple[int, ...]]) -> tinyc.Compiled:
    specs = [tinyc.spec(dtype, shape) for dtype, shape in shapes.values()]
    return tinyc.optimize_and_compile(tinyc.trace(function, *specs), target, budget=GREEDY)


def doubled(target: str = "sm80") -> tinyc.Compiled:
    return compiled(lambda a: a * 2.0, target, a=("fp32", (6,)))


def refused(kind: str, call: Any, *arguments: Any) -> TinycError:
    with pytest.raises(TinycError) as caught:
        call(*arguments)
    assert caught.value.kind == kind
    return caught.value


SIX = np.arange(6, dtype=np.float32)


# ---- what a call computes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_random_program_computes_what_the_evaluator_says(seed: int, gpu: FakeDriver) -> None:
    generator = np.random.default_rng(100 + seed)
    program = tinyc.load(Maker(lambda n: int(generator.integers(n)), 8).document())
    inputs = random_inputs(program, seed)
    gpu.capability = ((8, 0), (9, 0))[seed % 2]
    got = tinyc.optimize_and_compile(program, ("sm80", "sm90")[seed % 2], budget=GREEDY)(**inputs)
    for value, want, exact in zip(
        got if isinstance(got, tuple) else (got,),
        evaluate(program, inputs),
        evaluate(program, inputs, float64=True),
        strict=True,
    ):
        assert value.dtype == want.dtype and value.shape == want.shape
        assert agree(value, want, exact).all()


def several_kernels() -> Program:
    """Products one after the other: two buffers live at one time."""

    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        h = (a @ b).relu()
        g = (h @ c).relu()
        k = (g @ d).relu()
        return (k @ h) @ g, a.sum(axis=0)

    specs = [tinyc.spec("bf16", shape) for shape in ((16, 16),) * 4]
    return tinyc.trace(function, *specs)


def test_kernels_hand_on_what_they_made(gpu: FakeDriver) -> None:
    program = several_kernels()
    inputs = integer_inputs(program)
    call = tinyc.optimize_and_compile(program, "sm80", budget=GREEDY)
    for _ in range(2):
        for value, want in zip(call(*inputs.values()), evaluate(program, inputs), strict=True):
            assert value.dtype == want.dtype and np.array_equal(value, want)
    assert gpu.launches == [kernel.name for kernel in call.kernels] * 2 and len(call.kernels) > 1
    assert call.executable.peak_bytes >= call.plan.arena.bytes > 0
    assert len(gpu.modules) == len({kernel.name for kernel in call.kernels})


@pytest.mark.parametrize(
    ("target", "capability", "size"), [("sm80", (8, 0), 256), ("sm90", (9, 0), 128)], ids=["sm80", "sm90"]
)
def test_a_product_on_tensor_cores_is_launched_with_its_shared_memory(
    target: str, capability: tuple[int, int], size: int, gpu: FakeDriver
) -> None:
    gpu.capability = capability
    program = bind(tinyc.load(EXAMPLES / "gemm_bias_relu.json"), {"M": size, "N": size, "K": 64})
    call = tinyc.optimize_and_compile(program, target, budget=GREEDY)
    assert "mma" in call.kernels[0].source
    inputs = integer_inputs(program)
    assert np.array_equal(call(*inputs.values()), evaluate(program, inputs)[0])


def test_outputs_may_be_inputs_and_may_be_equal(gpu: FakeDriver) -> None:
    call = compiled(lambda a: (a, a * 2.0, a), a=("fp32", (6,)))
    first, twice, again = call(SIX)
    assert np.array_equal(first, SIX) and np.array_equal(twice, 2 * SIX) and np.array_equal(again, SIX)
    first[0] = 99.0
    assert again[0] == 0.0 and SIX[0] == 0.0


def test_sizes_are_bound_by_a_call(gpu: FakeDriver) -> None:
    call = compiled(lambda a: a + 1.0, a=("fp32", ("N",)))  # type: ignore[arg-type]
    for size in (3, 5, 3):
        assert np.array_equal(call(SIX[:size]), SIX[:size] + 1)
    assert len(gpu.launches) == 3


def test_calls_from_threads_do_not_meet(gpu: FakeDriver) -> None:
    call, wrong = doubled(), list[int]()
    call(SIX)

    def work(number: int) -> None:
        for _ in range(3):
            if not np.array_equal(call(SIX + number), 2 * (SIX + number)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(gpu.launches) == 13


def test_inputs_are_checked_as_on_a_cpu(gpu: FakeDriver) -> None:
    call = doubled()
    refused("DTypeMismatch", call, SIX.astype(np.float16))
    refused("InputMismatch", call, SIX[:5])
    assert np.array_equal(call(np.arange(12, dtype=np.float32)[::2]), 4 * SIX), "copied, not refused"
    assert [each.calls for each in call.report.copied] == [1]


def test_kernels_are_timed(gpu: FakeDriver, tmp_path: Path) -> None:
    program = several_kernels()
    call = tinyc.optimize_and_compile(program, "sm80", budget=GREEDY)
    rows = call.measure(*integer_inputs(program).values(), repeats=2, log=tmp_path / "log.csv")
    assert [row.region for row in rows] == [kernel.region.name for kernel in call.kernels]
    assert all(row.actual > 0 for row in rows) and "a fake GPU" in (tmp_path / "log.csv").read_text()
    assert "measured" in str(call.report)


# ---- arrays that lie on the device ----------------------------------------------------------------------------------


class Interface:
    """As numba has them: an array that says where it lies, and no more."""

    def __init__(self, gpu: FakeDriver, array: np.ndarray, offset: int = 0, **said: Any) -> None:
        self.memory = np.full(array.nbytes + offset, 0x55, np.uint8)
        self.memory[offset:] = array.reshape(-1).view(np.uint8)
        gpu._contexts().append(0xC0)
        gpu._initialised = True
        address = int(gpu.cuMemAlloc(self.memory.size)[1])
        gpu._contexts().pop()
        found = gpu.bytes_at(address, self.memory.size)
        assert found is not None
        found[:] = self.memory
        self.gpu, self.address = gpu, address
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (address + offset, False),
            "version": 3,
            **said,
        }

    def __del__(self) -> None:  # as a library frees what others may still read
        self.gpu._cuCtxSynchronize()
        self.gpu._cuMemFree(self.address)


def content(gpu: FakeDriver, array: Any) -> np.ndarray:
    """What is at the place of a result, once all is done."""
    gpu._cuCtxSynchronize()
    said = array.__cuda_array_interface__
    dtype = np.dtype(said["typestr"])
    found = gpu.bytes_at(said["data"][0], int(np.prod(said["shape"])) * dtype.itemsize)
    assert found is not None
    return found.view(dtype).reshape(said["shape"]).copy()


def test_arrays_on_the_device_are_not_copied(gpu: FakeDriver) -> None:
    call = doubled()
    given = Interface(gpu, SIX)
    result = call(given)
    assert not gpu.launches, "nobody waited"
    assert np.array_equal(content(gpu, result), 2 * SIX)
    again = call(result)
    assert np.array_equal(content(gpu, again), 4 * SIX), "a result is an input"
    assert again.__dlpack_device__() == (2, 0) and call.report.copied == ()
    assert result.nbytes == 24 and result.shape == (6,)


def test_results_on_the_device_are_apart(gpu: FakeDriver) -> None:
    given = Interface(gpu, SIX)
    first, twice, again = compiled(lambda a: (a, a * 2.0, a), a=("fp32", (6,)))(given)
    assert np.array_equal(content(gpu, first), SIX) and np.array_equal(content(gpu, twice), 2 * SIX)
    places = {each.address for each in (first, twice, again)} | {given.address}
    assert len(places) == 4


def test_what_a_capsule_says_is_read(gpu: FakeDriver) -> None:
    """Through DLPack and back, of every dtype."""
    from tinyc.runtime.cuda.arrays import DeviceArray
    from tinyc.runtime.cuda.dlpack import _lent, capsule_of, described

    for dtype in DType:
        capsule = capsule_of(4096, 0, dtype, (2, 3), self_owner := [dtype])
        said = described(capsule)
        assert (said.address, said.device, said.dtype) == (4096, (2, 0), dtype)
        assert said.shape == (2, 3) and said.strides is None
        assert len(_lent) == 1 and next(iter(_lent.values()))[2] is self_owner
        del capsule
        assert not _lent, "a capsule that nobody took lets go"

    class Other:
        """An array of a library that offers DLPack alone."""

        def __init__(self, array: DeviceArray) -> None:
            self.array = array

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

        def __dlpack__(self, **options: Any) -> Any:
            assert options == {"stream": 1}
            return self.array.__dlpack__(**options)

    call = compiled(lambda a: -a, a=("bf16", (2, 3)))
    bits = np.arange(6, dtype=np.float32).astype(DType.BF16.numpy).reshape(2, 3)
    given = Interface(gpu, bits.view(np.uint16))
    result = call(Other(DeviceArray(given.address, DType.BF16, (2, 3), given)))
    assert not hasattr(result, "__cuda_array_interface__"), "which has no bf16"
    gpu._cuCtxSynchronize()
    found = gpu.bytes_at(result.address, 12)
    assert found is not None and np.array_equal(found.view(DType.BF16.numpy).reshape(2, 3), -bits)
    assert not _lent


def test_results_go_back_to_the_library_that_the_inputs_are_of(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cupy:
        """As much of cupy as is asked for."""

        seen: ClassVar[list[Any]] = []

        @classmethod
        def from_dlpack(cls, array: Any) -> Any:
            cls.seen.append(array)
            return "an array of cupy"

        @staticmethod
        def ascontiguousarray(array: Any) -> Any:
            return of_cupy(SIX)

    def of_cupy(array: np.ndarray, **said: Any) -> Any:
        found = Interface(gpu, array, **said)
        found.__class__ = type("ndarray", (Interface,), {"__module__": "cupy"})
        return found

    monkeypatch.setitem(sys.modules, "cupy", Cupy)
    call = doubled()
    assert call(of_cupy(SIX)) == "an array of cupy"
    strided = of_cupy(np.arange(12, dtype=np.float32)[:6], strides=(8,))
    assert call(strided) == "an array of cupy" and [each.bytes for each in call.report.copied] == [24]
    assert [np.array_equal(content(gpu, each), 2 * SIX) for each in Cupy.seen] == [True, True]
    Cupy.seen.clear()


def test_work_on_other_streams_is_waited_for(gpu: FakeDriver) -> None:
    call, given, theirs = doubled(), Interface(gpu, np.zeros(6, np.float32)), gpu.stream()
    memory = gpu.bytes_at(given.address, 24)
    assert memory is not None

    def late() -> None:
        memory[:] = SIX.view(np.uint8)

    gpu.streams[theirs].waiting.append(late)
    given.__cuda_array_interface__["stream"] = theirs
    result = call(given)
    gpu._flush(0)
    assert np.array_equal(content(gpu, result), 2 * SIX)
    later = call(given)
    assert later.__dlpack__(stream=theirs) and len(gpu.launches) == 1
    gpu._flush(theirs)
    assert len(gpu.launches) == 2, "their stream waits for ours"


def test_an_array_that_is_not_aligned_is_copied_there(gpu: FakeDriver) -> None:
    call = doubled()
    (needed,) = (ref.alignment for kernel in call.kernels for ref in kernel.region.inputs)
    for offset in (2, 64):
        given = Interface(gpu, SIX, offset=offset)
        assert np.array_equal(content(gpu, call(given)), 2 * SIX)
        first, _ = gpu.arguments[-1]
        assert first % needed == 0 and (first == given.address + offset) is (offset == 64)


def test_arrays_on_the_device_are_checked(gpu: FakeDriver) -> None:
    both = compiled(lambda a, b: a + b, a=("fp32", (6,)), b=("fp32", (6,)))
    assert "host" in refused("InputMismatch", both, Interface(gpu, SIX), SIX).suggestion
    call = doubled()
    refused("DTypeMismatch", call, Interface(gpu, SIX.astype(np.float64)))
    refused("DTypeMismatch", call, Interface(gpu, SIX.astype(np.int32)))
    refused("InputMismatch", call, Interface(gpu, SIX[:5]))
    refused("InputMismatch", call, Interface(gpu, SIX, mask=1))
    refused("InputMismatch", call, Interface(gpu, SIX, strides=(8,)))
    assert content(gpu, call(Interface(gpu, SIX, strides=(4,)))).shape == (6,)
    refused("InputMismatch", doubled("cpu"), Interface(gpu, SIX))


# ---- what the driver refuses ----------------------------------------------------------------------------------------


def test_without_a_driver_a_call_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    error = refused("TargetUnavailable", doubled(), SIX)
    assert "no CUDA driver" in error.why and "emulate" in error.suggestion
    assert target_here() == "cpu"


def test_errors_carry_the_drivers_name_for_them(gpu: FakeDriver) -> None:
    call = doubled()
    gpu.memory = 100
    error = refused("OutOfMemory", call, SIX)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in error.why
    gpu.memory = 1 << 20
    assert np.array_equal(call(SIX), 2 * SIX), "and again where there is memory"
    gpu.poisoned = gpu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    error = refused("DriverFailed", call, SIX)
    assert error.details["name"] == "CUDA_ERROR_ILLEGAL_ADDRESS" and "emulate" in error.suggestion
    gpu.poisoned = gpu.CUresult.CUDA_SUCCESS
    gpu._initialised = False  # as in a process that was forked
    error = refused("DriverFailed", call, SIX)
    assert error.details["name"] == "CUDA_ERROR_NOT_INITIALIZED" and "spawn" in error.suggestion
    gpu._initialised = True


@pytest.mark.parametrize("capability", [(7, 5), (9, 0), (10, 0)])
def test_code_for_another_gpu_is_refused(gpu: FakeDriver, capability: tuple[int, int]) -> None:
    gpu.capability = capability
    assert "compute capability" in refused("TargetUnavailable", doubled(), SIX).why


def test_a_machine_without_gpus(gpu: FakeDriver) -> None:
    gpu.devices = 0
    refused("TargetUnavailable", doubled(), SIX)
    assert target_here() == "cpu" and doubled("auto")(SIX)[1] == 2.0


@pytest.mark.parametrize(
    ("capability", "target"),
    [
        ((8, 0), "sm80"),
        ((8, 6), "sm86"),
        ((8, 7), "sm86"),
        ((8, 9), "sm89"),
        ((9, 0), "sm90"),
        ((7, 0), "cpu"),
        ((10, 0), "cpu"),
    ],
)
def test_auto_is_what_the_gpu_runs(gpu: FakeDriver, capability: tuple[int, int], target: str) -> None:
    gpu.capability = capability
    assert target_here() == target and gpu.retained == 0, "no context is made to look"
    call = doubled("auto")
    assert f"on {target}" in repr(call)
    if capability in ((8, 0), (9, 0)):
        assert np.array_equal(call(SIX), 2 * SIX) and len(gpu.launches) == 1


def test_doctor_says_what_it_found(gpu: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    def found() -> dict[str, Any]:
        main(["doctor", "--json"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        return next(check for check in checks if check["name"] == "gpu driver")

    assert found()["ok"] and 'target="auto" is sm80' in found()["detail"]
    gpu.capability = (10, 0)
    assert "cpu" in found()["detail"]
    gpu.devices = 0
    assert not found()["ok"] and "CUDA_ERROR_NO_DEVICE" in found()["detail"]


def test_machine_code_is_for_its_generation() -> None:
    assert [runs_on("sm_80", each) for each in ((8, 0), (8, 6), (7, 5), (9, 0))] == [True, True, False, False]
    assert [runs_on("sm_90a", each) for each in ((9, 0), (9, 1), (10, 0))] == [True, False, False]
    assert runs_on("sm_100a", (10, 0)) and not runs_on("sm_86", (8, 0))


# ---- the loader by itself -------------------------------------------------------------------------------------------

SHARED = """
extern "C" __global__ void k(const float* in, float* out) {
  extern __shared__ float s[];
  s[threadIdx.x * 900] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[(15 - threadIdx.x) * 900];
}
"""


def manifest(shared: int = 15 * 3600 + 4, **kernel: Any) -> dict[str, Any]:
    one = {"tensor": "x", "dtype": "fp32", "shape": [16], "layout": {"kind": "row_major"}}
    buffer = {"name": "x", "dtype": "fp32", "shape": [16], "bytes": 64, "offset": None}
    base = {"name": "k", "image": "k.cubin", "grid": [1, 1, 1], "block": [16, 1, 1], "shared_bytes": shared}
    return {
        "arch": "sm_80",
        "signature": {"inputs": [one], "outputs": [one]},
        "buffers": [{"id": 0, **buffer}, {"id": 1, **buffer}],
        "inputs": [0],
        "outputs": [1],
        "arena_bytes": 0,
        "kernels": [{**base, **kernel}],
        "launches": [{"region": "k", "kernel": 0, "arguments": [0, 1]}],
    }


def test_much_shared_memory_is_asked_for(gpu: FakeDriver) -> None:
    cubin = compile_cubin(SHARED)
    gpu.images = {cubin.image: cubin.ptx}
    images, given = {"k.cubin": cubin.image}, np.arange(16, dtype=np.float32)
    device = Device()
    assert np.array_equal(Loaded(manifest(), images, device)(given), given[::-1])
    with pytest.raises(BundleError, match="shared memory"):
        Loaded(manifest(200_000), images, device)
    with pytest.raises(DriverError, match="CUDA_ERROR_NOT_FOUND"):
        Loaded(manifest(name="other"), images, device)
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_IMAGE"):
        Loaded(manifest(), {"k.cubin": b"\x7fELF" + bytes(80)}, device)
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
        Loaded(manifest(block=[2048, 1, 1]), images, device)(given)
    device.close()
    assert gpu.retained == 0


def test_the_fake_driver_sees_misuse(gpu: FakeDriver) -> None:
    """What the tests above rely on."""
    assert gpu.cuMemAlloc(16)[0] == gpu.CUresult.CUDA_ERROR_NOT_INITIALIZED
    assert gpu.cuInit(0) == (gpu.CUresult.CUDA_SUCCESS,)
    assert gpu.cuMemAlloc(16)[0] == gpu.CUresult.CUDA_ERROR_INVALID_CONTEXT
    assert gpu.cuCtxPopCurrent()[0] == gpu.CUresult.CUDA_ERROR_INVALID_CONTEXT
    device = Device()
    with device.current() as driver:
        address = driver("cuMemAlloc", 16)
        with pytest.raises(DriverError, match="INVALID_VALUE"):
            driver("cuMemcpyHtoDAsync", address, SIX.ctypes.data, 17, 0)
        with pytest.raises(TypeError):
            driver("cuMemcpyHtoDAsync", address, "text", 16, 0)
        with pytest.raises(DriverError, match="INVALID_HANDLE"):
            driver("cuStreamSynchronize", 12345)
        driver("cuMemcpyHtoDAsync", address, SIX.ctypes.data, 16, 0)
        driver("cuMemFree", address)
        with pytest.raises(Misuse, match="after it was freed"):
            driver("cuStreamSynchronize", 0)
        with pytest.raises(Misuse, match="twice"):
            driver("cuMemFree", address)


def test_short_launches_are_repeated_to_be_timed(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the program, whose results are as they were."""
    program = several_kernels()
    call = tinyc.optimize_and_compile(program, "sm80", budget=GREEDY)
    inputs = integer_inputs(program)
    call.measure(*inputs.values(), repeats=1)
    once = len(gpu.launches)
    monkeypatch.setattr(timing, "LONG", 1e9)
    monkeypatch.setattr(timing, "MOST", 3)
    rows = call.measure(*inputs.values(), repeats=1)
    assert len(rows) == len(call.kernels) and all(row.actual > 0 for row in rows)
    # two runs to warm up, then each launch once, and three times in a row, twice
    assert len(gpu.launches) - once == len(rows) * (2 + 1 + 2 * 3)
    for got, want in zip(call(**inputs), evaluate(program, inputs), strict=True):
        assert np.array_equal(got, want)


def test_results_that_are_no_longer_held_do_not_make_calls_wait(gpu: FakeDriver) -> None:
    """To free memory all work has to be done: it is done for many results at a time, and where memory is short."""

    def held() -> int:
        return sum(not each.freed for each in gpu.allocations)

    device = Device()
    for count in range(WAITING):
        Memory(device, 1 << 10)
        assert held() == count + 1
    Memory(device, 1 << 10)
    assert held() == 0
    gpu.memory = 2 * WAITING_BYTES
    Memory(device, WAITING_BYTES + 1)
    assert held() == 0
    gpu.memory = 3000
    Memory(device, 2000)
    kept = Memory(device, 2000)
    assert held() == 1 and kept.size == 2000
    with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        device.allocate(2000)
