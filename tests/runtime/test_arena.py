"""The arena: buffers that live together never overlap, it is near the least it can be, and addresses are aligned."""

from __future__ import annotations

import functools
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from region_builder import F32, Build, Plan

import tinyc
from tinyc.extract.base import base_program
from tinyc.ir.arena import Arena, Interval, lower_bound, overlaps, place, plan_arena
from tinyc.ir.buffer import ALIGNMENT, BufferInfo, aligned
from tinyc.ir.execution import ExecutionPlan, region_execution
from tinyc.ir.plan import Extracted
from tinyc.ir.region import MemRef, Region
from tinyc.ir.tiny import Program
from tinyc.ir.verify import bind
from tinyc.runtime.arena import Memory, aligned_copy, aligned_empty, is_aligned
from tinyc.runtime.cpu import Executable

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
sys.path.insert(0, str(FOLDER))
import models  # noqa: E402

# --- the planner -----------------------------------------------------------------------------------------------

LIVES = st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 5000))


def buffers_of(lives: list[tuple[int, int, int]]) -> list[BufferInfo]:
    return [
        BufferInfo(id, f"b{id}", (), F32, (start, start + length), size)
        for id, (start, length, size) in enumerate(lives)
    ]


def shared(buffers: list[BufferInfo], offsets: dict[int, int]) -> list[tuple[int, int]]:
    """Pairs that share bytes at one time, found the plain way: byte ranges and times of all pairs."""
    found = []
    for one in buffers:
        for two in buffers[one.id + 1 :]:
            together = one.lifetime[0] <= two.lifetime[1] and two.lifetime[0] <= one.lifetime[1]
            low = max(offsets[one.id], offsets[two.id])
            high = min(offsets[one.id] + one.bytes, offsets[two.id] + two.bytes)
            if together and low < high:
                found.append((one.id, two.id))
    return found


@pytest.mark.spec("004-138")
@given(st.lists(LIVES, max_size=60), st.sampled_from([1, 64, 128, 4096]))
@example([], 128)
@example([(3, 0, 100)] * 20, 128)  # equal lifetimes of one instruction
@example([(n, 1, 1000) for n in range(50)], 128)  # a chain
@example([(0, 40, 10), (5, 0, 0), (5, 0, 4000)], 1)
@example([(0, 1, 1 << 62), (1, 1, 1 << 62), (0, 2, 1 << 63)], 128)  # beyond 64 bits
def test_what_lives_together_does_not_overlap(lives: list[tuple[int, int, int]], alignment: int) -> None:
    buffers = buffers_of(lives)
    offsets, arena = plan_arena(buffers, alignment)
    assert shared(buffers, dict(offsets)) == []
    assert all(low % alignment == 0 for low in offsets.values())
    assert all(offsets[b.id] + b.bytes <= arena.bytes for b in buffers)
    alive = [
        sum(aligned(b.bytes, alignment) for b in buffers if b.lifetime[0] <= time <= b.lifetime[1])
        for time in range(60)
    ]
    assert arena.lower_bound == max(alive) <= arena.bytes


@pytest.mark.spec("004-138")
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(0, 9)), min_size=2, max_size=9),
    st.data(),
)
def test_overlaps_finds_every_layout_that_is_none(
    lives: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    buffers = buffers_of(lives)
    offsets = {b.id: data.draw(st.integers(0, 20)) for b in buffers}
    items = [Interval(*b.lifetime, b.bytes) for b in buffers]
    found = overlaps(items, [offsets[b.id] for b in buffers])
    pairs = shared(buffers, offsets)
    assert (found is None) == (not pairs) and (found is None or tuple(sorted(found)) in pairs)


def random_lives(seed: int) -> list[Interval]:
    """Short lives, long ones, and both; sizes of one magnitude, and of many."""
    draw = random.Random(seed)
    count, end, many = draw.randint(5, 200), draw.randint(2, 300), draw.random() < 0.5
    items = []
    for _ in range(count):
        length = (
            draw.randint(0, end // 4),
            int(draw.expovariate(0.4)),
            draw.choice((0, 1, 2, draw.randint(0, end))),
        )
        start = draw.randint(0, end)
        size = int(2 ** draw.uniform(0, 20)) if many else draw.randint(1, 100_000)
        items.append(Interval(start, start + length[seed % 3], aligned(size)))
    return items


@pytest.mark.spec("004-138")
def test_the_arena_is_near_its_bound_for_random_lifetimes() -> None:
    ratios = []
    for seed in range(120):
        items = random_lives(seed)
        bound = lower_bound(items)
        offsets, size = place(items, bound)
        assert overlaps(items, offsets) is None
        ratios.append(size / bound)
    ratios.sort()
    print(f"arena / bound: median {ratios[60]:.3f}, 95 % {ratios[114]:.3f}, worst {ratios[-1]:.3f}")
    assert ratios[114] <= 1.15


def test_thousands_of_buffers() -> None:
    draw = random.Random(5)
    items = [
        Interval(start, start + draw.randint(0, 300), aligned(draw.randint(1, 100_000)))
        for start in range(3000)
    ]
    bound = lower_bound(items)
    offsets, size = place(items, bound)
    assert overlaps(items, offsets) is None and size <= 1.25 * bound


def test_the_same_buffers_lie_the_same_way() -> None:
    items = random_lives(7)
    assert place(items, lower_bound(items)) == place(list(items), lower_bound(items))


# --- programs --------------------------------------------------------------------------------------------------


@functools.cache
def programs() -> dict[str, Program]:
    found = {path.name: tinyc.load(path) for path in sorted(Path(FOLDER).glob("*.json"))}
    for blocks in range(2, 5):
        function, specs = models.transformer(blocks)
        found[f"{blocks} transformer blocks"] = tinyc.trace(function, **specs)
    sizes = {
        name: {symbol: 48 + 8 * n for n, symbol in enumerate(each.symbols)} for name, each in found.items()
    }
    return {name: bind(each, sizes[name]) for name, each in found.items()}


def ratio(execution: ExecutionPlan) -> float:
    arena = execution.arena
    if arena.lower_bound == 0:
        assert arena.bytes == 0 and not execution.internal()
        return 1.0
    return arena.bytes / arena.lower_bound


@pytest.mark.spec("004-138")
@pytest.mark.parametrize("name", programs())
def test_example_programs_are_near_their_bound(name: str) -> None:
    program = programs()[name]
    plans = {"naive": base_program(program).execution}
    if len(plans["naive"].instructions) > 2:  # two kernels have one buffer between them at most
        plans["extracted"] = tinyc.optimize_and_compile(program, target="sm80").plan
    for which, plan in plans.items():
        print(f"{name}, {which}: {plan.arena.bytes} bytes, {ratio(plan):.3f} of the bound")
    assert max(map(ratio, plans.values())) <= 1.15


def test_a_deep_transformer_needs_no_more_than_its_bound() -> None:
    """Hundreds of kernels: 32 blocks, naive."""
    function, specs = models.transformer(32)
    execution = base_program(tinyc.trace(function, **specs)).execution
    assert len(execution.instructions) > 400 and ratio(execution) <= 1.15


# --- memory ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("004-136", "004-138")
@pytest.mark.parametrize("alignment", [1, 2, 128, 4096])
def test_memory_is_aligned(alignment: int) -> None:
    for size in (0, 1, 100, 10_000):
        memory = Memory(size, alignment)
        assert memory.address % alignment == 0
        start = memory._bytes.ctypes.data
        assert start <= memory.address and memory.address + size <= start + memory._bytes.nbytes
    for shape in ((), (1,), (3, 5), (1000, 7)):
        array = aligned_empty(shape, np.float16, alignment)
        assert is_aligned(array, alignment) and array.shape == shape and array.dtype == np.float16
        assert array.flags.c_contiguous and array.flags.writeable
        copy = aligned_copy(np.full(shape, 3, np.float32).T, alignment)
        assert is_aligned(copy, alignment) and copy.flags.c_contiguous and (copy == 3).all()


@pytest.mark.parametrize("size", [1 << 62, 1 << 63, 1 << 80])
def test_more_bytes_than_there_are(size: int) -> None:
    with pytest.raises(MemoryError):
        Memory(size)
    with pytest.raises(MemoryError):
        aligned_empty((size,), np.float32)


def add_one(name: str, read: str, size: int) -> Region:
    b = Build(i=size)
    b.input(read, F32, size)
    region = b.done(b.binary("ADD", b.read(read, "i"), b.const(1.0)))
    out = replace(region.outputs[0], name=name)
    return replace(region, name=f"k_{name}", outputs=(out,), yields=(replace(region.yields[0], to=name),))


@pytest.mark.spec("004-136")
def test_every_address_a_kernel_sees_is_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs as their Region says, what tinyc allocates at 128 bytes."""
    regions = [add_one("b", "a", 37), add_one("c", "b", 37), add_one("d", "c", 37)]
    wanting = replace(regions[0], inputs=(MemRef("a", F32, (37,), 512),))
    execution = region_execution([wanting, *regions[1:]], wanting.inputs, [MemRef("d", F32, (37,))])
    executable = Executable(Extracted((wanting, *regions[1:]), (Plan(),) * 3, execution), 1)
    seen: list[dict[int, int]] = []
    call = Executable._call

    def spy(self: Executable, step: object, addresses: dict[int, int], scratch: int) -> None:
        seen.append(dict(addresses))
        call(self, step, addresses, scratch)  # type: ignore[arg-type]

    monkeypatch.setattr(Executable, "_call", spy)
    x = np.arange(38, dtype=np.float32)[1:]
    (result,) = executable([x])
    np.testing.assert_array_equal(result, x + 3)
    assert len(seen) == 3
    for addresses in seen:
        assert addresses[0] % 512 == 0
        assert all(address % ALIGNMENT == 0 for address in addresses.values())
    assert result.ctypes.data == seen[0][3], "the result is the buffer, not a copy"


@pytest.mark.spec("004-138")
def test_the_arena_of_a_call_is_the_plans() -> None:
    """What the plan, the report and the runtime say of memory is one figure."""
    compiled = tinyc.optimize_and_compile(programs()["attention_causal.json"], without=["streaming"])
    arena = compiled.plan.arena
    assert arena == compiled.report.arena != Arena() and arena.alignment == ALIGNMENT
    assert compiled.executable.arena_bytes == arena.bytes
    assert "between kernels" in str(compiled.report)
    for region in (kernel.region for kernel in compiled.kernels):
        outside = {port.name for port in compiled.program.inputs}
        for ref in (*region.inputs, *region.outputs):
            assert ref.alignment == (ref.dtype.itemsize if ref.name in outside else ALIGNMENT)
