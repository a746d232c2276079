"""Programs of several kernels: memory, threads, re-entrance, and that nothing outside a buffer is touched."""

from __future__ import annotations

import ctypes
import mmap
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from region_builder import F32, I32, Build, Executable, Plan, axis, gemm, program

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.plan import BufferInfo, ExecutionPlan, Extracted, Instruction
from tinyc.runtime.arena import Memory

RNG = np.random.default_rng(6)


def add_one(size: int):
    b = Build(i=size)
    b.input("X", F32, size)
    return b.done(b.binary("ADD", b.read("X", "i"), b.const(1.0)))


def chain(length: int, size: int = 1000) -> Extracted:
    """x + 1 + 1 …: one kernel per step, each a Region of its own name."""
    regions = tuple(replace(add_one(size), name=f"step {n}") for n in range(length))
    buffers = tuple(
        BufferInfo(n, f"b{n}", (size,), F32, (max(0, n - 1), min(n, length - 1)), 4 * size)
        for n in range(length + 1)
    )
    steps = tuple(Instruction(n, (n,), (n + 1,), f"step {n}") for n in range(length))
    return Extracted(regions, (Plan(),) * length, ExecutionPlan(steps, buffers, (0,), (length,)))


@pytest.mark.spec("000-16")
def test_chain_reuses_memory_and_code() -> None:
    executable = Executable(chain(20), 2)
    x = RNG.normal(size=1000).astype(np.float32)
    want = x
    for _ in range(20):
        want = want + np.float32(1)
    (got,) = executable([x])
    np.testing.assert_array_equal(got, want)
    assert executable.unique_kernels == 1
    assert executable.arena_bytes == 2 * 4096  # two buffers of 4000 bytes alive at a time, 128-byte aligned
    assert executable.peak_bytes == executable.arena_bytes + executable.scratch_bytes


def test_outputs_are_fresh_even_when_they_are_inputs_or_returned_twice() -> None:
    plan = chain(1)
    execution = replace(plan.execution, output_buffers=(1, 0, 1))
    x = np.ones(1000, np.float32)
    first, same, second = Executable(replace(plan, execution=execution))([x])
    assert first.tolist() == second.tolist() == [2.0] * 1000 and same.tolist() == [1.0] * 1000
    assert not any(np.shares_memory(a, b) for a, b in ((first, second), (same, x), (first, same)))


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_give_the_same_result(threads: int) -> None:
    region, plan = gemm(700, 333, 450, relu=True)
    arrays = [RNG.normal(size=ref.shape).astype(np.float32) for ref in region.inputs]
    executable = Executable(program(region, plan), threads)
    single = Executable(program(region, plan), 1)
    if threads > 1:
        assert executable.scratch_bytes > single.scratch_bytes, "the kernel was not shared out"
    np.testing.assert_array_equal(executable(arrays)[0], single(arrays)[0])


def test_parts_of_the_parallel_loop_may_run_in_any_cut() -> None:
    from tinyc.codegen.cpu import generate
    from tinyc.runtime.jit import Code

    for region, plan in (gemm(150, 130, 70), (gemm(150, 130, 70)[0], Plan()), (add_one(9999), Plan())):
        kernel = generate(region, plan)
        arrays = [RNG.normal(size=ref.shape).astype(np.float32) for ref in region.inputs]
        want = np.empty(region.outputs[0].shape, np.float32)
        got = np.full_like(want, np.nan)
        function, memory = Code([kernel])[kernel], Memory(kernel.scratch_bytes)
        for out, turns in (
            (want, [(0, kernel.extent)]),
            (got, [(t, t + 1) for t in reversed(range(kernel.extent))]),
        ):
            table = np.array([a.ctypes.data for a in (*arrays, out)], np.uint64)
            for begin, end in turns:
                function(table.ctypes.data, begin, end, memory.address)
        np.testing.assert_array_equal(got, want)


def test_calls_from_several_threads_at_once() -> None:
    executable = Executable(chain(12, 20_000), 2)
    inputs = [np.full(20_000, n, np.float32) for n in range(24)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda x: executable([x])[0], inputs))
    for n, result in enumerate(results):
        np.testing.assert_array_equal(result, np.full(20_000, n + 12, np.float32))


def test_profile_times_each_instruction() -> None:
    executable = Executable(chain(5))
    profile = executable.profile([np.zeros(1000, np.float32)])
    assert len(profile.seconds) == 5 and all(0 < time < 1 for time in profile.seconds)
    assert profile.outputs[0][0] == 5


@pytest.mark.parametrize(
    "bad",
    [
        [],
        [np.zeros(1000, np.float64)],
        [np.zeros(999, np.float32)],
        [np.zeros(2000, np.float32)[::2]],
        [np.zeros(1000, np.float32)] * 2,
    ],
)
def test_wrong_inputs_are_refused(bad: list[np.ndarray]) -> None:
    with pytest.raises(TinycError) as caught:
        Executable(chain(1))(bad)
    assert caught.value.kind == "InputMismatch"


def test_many_equal_kernels_are_ready_quickly() -> None:
    """180 kernels of 15 kinds, as in a stack of 16 transformer blocks."""
    import time

    base = [gemm(64 + n, 64, 64, relu=True) for n in range(15)]
    regions = [replace(base[n % 15][0], name=f"k{n}") for n in range(180)]
    plans = [base[n % 15][1] for n in range(180)]
    start = time.perf_counter()
    executable = Executable(Extracted(tuple(regions), tuple(plans), ExecutionPlan((), (), (), ())))
    assert executable.unique_kernels == 15
    assert time.perf_counter() - start < 30


# --- nothing outside a buffer is touched ----------------------------------------------------------------------


class Fenced:
    """An array that ends (or starts) exactly at a page that must not be touched."""

    def __init__(self, array: np.ndarray, at_end: bool) -> None:
        page = mmap.PAGESIZE
        room = -(-array.nbytes // page) * page
        self._map = mmap.mmap(-1, room + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for address in (start, start + page + room):
            assert libc.mprotect(address, page, 0) == 0
        offset = page + (room - array.nbytes if at_end else 0)
        self.array = np.frombuffer(self._map, array.dtype, array.size, offset).reshape(array.shape)
        self.array[...] = array


def guarded_convolution():
    size, out = 9, 5
    b = Build(o=8, y=out, x=out)
    b.input("X", F32, 4, size, size)
    b.input("W", F32, 8, 4, 3, 3)
    iy, ix = axis("y") * 2 + axis("u") - 1, axis("x") * 2 + axis("v") - 1
    inside = b.binary("MIN", b.within(iy, 0, size), b.within(ix, 0, size))
    value = b.select(inside, b.read("X", "c", iy, ix), b.const(0.0))
    total = b.reduce("SUM", b.binary("MUL", b.read("W", "o", "c", "u", "v"), value), c=4, u=3, v=3)
    return b.done(total)


def shifted():
    """x[i - 40] where that exists: most Reads point far outside."""
    b = Build(i=100)
    b.input("X", I32, 33)
    value = b.read("X", axis("i") - 40)
    return b.done(b.select(b.within(axis("i") - 40, 0, 33), value, b.const(0, I32)))


CASES = {
    "gemm": lambda: gemm(37, 53, 29),
    "gemm loops": lambda: (gemm(37, 53, 29)[0], Plan()),
    "convolution": lambda: (guarded_convolution(), Plan()),
    "shifted": lambda: (shifted(), Plan()),
    "add": lambda: (add_one(77), Plan()),
}


@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_memory_beside_the_buffers_is_not_touched(name: str, at_end: bool) -> None:
    region, plan = CASES[name]()
    arrays = [RNG.integers(-3, 4, ref.shape).astype(ref.dtype.numpy) for ref in region.inputs]
    want = Executable(program(region, plan))(arrays)[0]
    fences = [Fenced(array, at_end) for array in arrays]
    out = Fenced(np.zeros_like(want), at_end)
    from tinyc.codegen.cpu import generate
    from tinyc.runtime.jit import Code

    kernel = generate(region, plan)
    scratch = Fenced(np.zeros(max(1, -(-kernel.scratch_bytes // 4096)) * 4096, np.uint8), at_end)
    table = np.array([f.array.ctypes.data for f in (*fences, out)], np.uint64)
    Code([kernel])[kernel](table.ctypes.data, 0, kernel.extent, scratch.array.ctypes.data)
    np.testing.assert_array_equal(out.array, want)
