"""Elementwise kernels for a GPU: vectors where elements lie together, single elements elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cuda_regions import compare, emulated, run, traffic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from region_builder import BF16, BOOL, F16, F32, I32, Affine, Build, axis, lit
from test_stream import arrays

from tinyc.codegen.cuda import generate
from tinyc.ir.dtypes import DType
from tinyc.ir.region import Region

TYPES = [F32, F16, BF16, I32, BOOL]


def filled(region: Region, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {ref.name: rng.integers(-3, 4, ref.shape).astype(ref.dtype.numpy) for ref in region.inputs}


def added(shape: tuple[int, ...], dtype: DType = F32) -> Region:
    names = [f"i{number}" for number in range(len(shape))]
    b = Build(**dict(zip(names, shape, strict=True)))
    b.input("X", dtype, *shape)
    b.input("Y", dtype, *shape)
    op = "MAX" if dtype is BOOL else "ADD"
    return b.done(b.binary(op, b.read("X", *names), b.read("Y", *names)))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(4096,), (64, 96), (8, 4, 64)])
def test_aligned_elements_are_accessed_16_bytes_at_a_time(shape: tuple[int, ...], dtype: DType) -> None:
    region = added(shape, dtype)
    result = emulated(region, filled(region))
    sectors = int(np.prod(shape)) * dtype.itemsize // 32
    assert traffic(result.counters) == (2 * sectors, sectors)
    assert all(".v4." in each.instruction for each in result.counters.global_)
    compare(region, filled(region))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(1,), (7,), (33, 65), (5, 3, 17), (1000, 3), (2, 1002), (9, 20)])
def test_odd_sizes(shape: tuple[int, ...], dtype: DType) -> None:
    """Dense buffers are one line, of which the last vector hangs over."""
    region = added(shape, dtype)
    compare(region, filled(region))


def test_a_line_of_odd_size_is_still_read_in_vectors() -> None:
    region = added((33, 65))
    wide = [each for each in emulated(region, filled(region)).counters.global_ if ".v4." in each.instruction]
    assert sum(each.ideal for each in wide) >= 3 * (33 * 65 // 8 - 1)


@pytest.mark.parametrize("alignment", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_no_access_is_wider_than_a_buffer_is_aligned(dtype: DType, alignment: int) -> None:
    region = added((8, 32), dtype)
    size = max(alignment, dtype.itemsize)
    region = replace(region, inputs=tuple(replace(ref, alignment=size) for ref in region.inputs))
    widths = {
        "v4.u32": 16,
        "v4.f32": 16,
        "v2.u32": 8,
        "v2.f32": 8,
        "u32": 4,
        "f32": 4,
        "u16": 2,
        "u8": 1,
        "s32": 4,
    }
    for each in emulated(region, filled(region)).counters.global_:
        if each.instruction.startswith("ld"):
            assert widths[each.instruction.removeprefix("ld.global.nc.")] <= size
    compare(region, filled(region))


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 8])
def test_a_slice_is_read_in_the_vectors_that_it_is_aligned_to(offset: int) -> None:
    b = Build(i=6, j=64)
    b.input("X", F16, 6, 80)
    region = b.done(b.unary("NEG", b.read("X", "i", axis("j") + offset)))
    compare(region, filled(region))
    found = {
        each.instruction
        for each in emulated(region, filled(region)).counters.global_
        if each.instruction[:2] == "ld"
    }
    wanted = {0: "v4.u32", 1: "u16", 2: "u32", 4: "v2.u32", 8: "v4.u32"}[offset]
    assert found == {f"ld.global.nc.{wanted}"}


@pytest.mark.parametrize(("columns", "access"), [(64, "v4.u32"), (36, "v2.u32"), (33, "u16")])
def test_padding_of_rows_leaves_vectors_along_them(columns: int, access: str) -> None:
    b = Build(i=9, j=columns)
    b.input("X", F16, 6, columns)
    row = axis("i") - 2
    region = b.done(b.select(b.within(row, 0, 6), b.read("X", row, "j"), b.const(1, F16)))
    compare(region, filled(region))
    loads = [
        e.instruction for e in emulated(region, filled(region)).counters.global_ if e.instruction[:2] == "ld"
    ]
    assert set(loads) == {f"ld.global.nc.{access}"}


def test_what_does_not_vary_along_the_vector_is_read_once() -> None:
    b = Build(i=16, j=128)
    b.input("X", F32, 16, 128)
    b.input("Y", F32, 16)
    region = b.done(b.binary("MUL", b.read("X", "i", "j"), b.read("Y", "i")))
    loads = [e for e in emulated(region, filled(region)).counters.global_ if e.instruction[:2] == "ld"]
    assert sorted(each.executed for each in loads) == [16, 16]  # a warp has 128 elements
    compare(region, filled(region))


@pytest.mark.parametrize("dtype", [F32, F16, BOOL], ids=str)
def test_all_kinds_of_reads(dtype: DType) -> None:
    """Transposed, flipped, strided, gathered by division, broadcast, padded; two outputs."""
    b = Build(i=20, j=32)
    b.input("A", dtype, 32, 20)
    b.input("B", dtype, 20, 64)
    b.input("C", dtype, 20, 8)
    b.input("D", dtype, 1, 32)
    i, j = axis("i"), axis("j")
    op = "MAX" if dtype is BOOL else "ADD"
    total = b.read("A", "j", "i")
    for name, index in (
        ("B", (i, j * -1 + 63)),
        ("B", (i, j * 2 + 1)),
        ("C", (i, j // 4)),
        ("D", (lit(0), j)),
    ):
        total = b.binary(op, total, b.read(name, *index))
    inside = b.select(b.within(j - 3, 0, 20), b.read("B", "i", j - 3), b.const(1, dtype))
    region = b.done(b.binary(op, total, inside), b.read("B", "i", j + 32))
    compare(region, filled(region))


def test_mixed_types_are_accessed_as_wide_as_the_widest_allows() -> None:
    b = Build(i=4096)
    b.input("X", F32, 4096)
    b.input("M", BOOL, 4096)
    region = b.done(b.cast(b.select(b.read("M", "i"), b.read("X", "i"), b.const(0)), F16))
    assert traffic(emulated(region, filled(region)).counters) == (4096 * 5 // 32, 4096 * 2 // 32)
    compare(region, filled(region))


def test_axes_that_no_buffer_tells_apart_are_one() -> None:
    source = generate(added((8, 4, 64))).source
    assert "iters i0<2048" in source
    b = Build(i=8, j=64)
    b.input("X", F32, 64)
    assert "iters i0<8 i1<64" in generate(b.done(b.read("X", "j"))).source


STEPS = st.sampled_from([1, 1, 1, 2, -1, 3, 0])


@st.composite
def movements(draw: st.DrawFn) -> Region:
    """Sums of reads with drawn steps and offsets along each axis, some by division, some guarded."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 8, 16, 24, 33]), min_size=1, max_size=3))
    names = [f"i{number}" for number in range(len(sizes))]
    b = Build(**dict(zip(names, sizes, strict=True)))
    dtype = draw(st.sampled_from([F32, F16, I32, BF16]))
    total = b.const(1, dtype)
    for number in range(draw(st.integers(1, 3))):
        order = draw(st.permutations(range(len(sizes))))
        shape, index = [], list[Affine]()
        for place in order:
            step, offset = draw(STEPS), draw(st.sampled_from([0, 0, 1, 4, 8]))
            expression = axis(names[place]) * step + offset
            if step < 0:
                expression = expression + sizes[place] - 1
            if draw(st.integers(0, 5)) == 0:
                expression = expression // 2
            _, high = expression.bounds({names[place]: sizes[place]})
            shape.append(high + 1 + draw(st.sampled_from([0, 0, 3])))
            index.append(expression)
        read = b.read(b.input(f"X{number}", dtype, *shape), *index)
        if draw(st.integers(0, 3)) == 0:
            read = b.select(b.within(names[-1], 1, sizes[-1]), read, b.const(2, dtype))
        total = b.binary("ADD", total, read)
    return b.done(total)


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(movements(), st.integers(0, 1000))
def test_random_movements(region: Region, seed: int) -> None:
    compare(region, filled(region, seed))


def test_floats_pass_unchanged() -> None:
    """NaN, infinities, zeros of both signs, subnormals."""
    b = Build(i=64)
    b.input("X", F16, 64)
    region = b.done(b.read("X", "i"))
    data = {"X": np.arange(0, 65536, 1024, dtype=np.uint16).view(np.float16)}
    got = run(region, data)["y0"]
    assert np.array_equal(
        got.view(np.uint16)[~np.isnan(got)], data["X"].view(np.uint16)[~np.isnan(data["X"])]
    )
    assert np.array_equal(np.isnan(got), np.isnan(data["X"]))
    assert arrays(region)
