"""Dependences between statements, against answers worked out by hand and against pairs of points tried one by one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import hypothesis.strategies as st
import islpy as isl
import pytest
from hypothesis import given, settings

from tinyc.index.dependences import Dependence, Statement, dependences, region_statements
from tinyc.index.sets import Workspace
from tinyc.ir.dtypes import DType, to_bits
from tinyc.ir.index import Affine, affine, axis
from tinyc.ir.region import (
    Axis,
    Binary,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Within,
    Yield,
)

Accesses = Sequence[tuple[str, Sequence[Affine | str | int]]]


def statement(
    ws: Workspace, name: str, sizes: Mapping[str, int | str], reads: Accesses, writes: Accesses
) -> Statement:
    names = tuple(sizes)
    first, second = (
        tuple(ws.access(names, tensor, tuple(index)) for tensor, index in accesses)
        for accesses in (reads, writes)
    )
    return Statement(name, ws.box(sizes), first, second)


def shown(found: Sequence[Dependence]) -> list[tuple[str, str, str, str]]:
    return [(each.source, each.target, each.kind, each.tensor) for each in found]


@pytest.mark.spec("004-095")
def test_a_value_that_is_written_then_read_is_a_true_dependence() -> None:
    ws = Workspace(("M",))
    producer = statement(ws, "relu", {"i": "M"}, [("x", ("i",))], [("y", ("i",))])
    consumer = statement(ws, "next", {"i": "M-1"}, [("y", ("i",)), ("y", ("i+1",))], [("z", ("i",))])
    (only,) = dependences([producer, consumer])
    assert shown([only]) == [("relu", "next", "true", "y")]
    pairs = isl.Map(str(only))
    assert pairs.is_equal(
        isl.Map("[M] -> { relu[i] -> next[j] : 0 <= i < M and 0 <= j < M - 1 and i - 1 <= j <= i }")
    )
    assert only.carried == ()


@pytest.mark.spec("004-095")
def test_memory_that_is_read_then_written_is_an_anti_dependence() -> None:
    ws = Workspace()
    reader = statement(ws, "reader", {"i": 8}, [("cell", ("i",))], [("y", ("i",))])
    writer = statement(ws, "writer", {"j": 4}, [], [("cell", ("2*j",))])
    (only,) = dependences([reader, writer])
    assert shown([only]) == [("reader", "writer", "anti", "cell")]
    assert isl.Map(str(only)).is_equal(isl.Map("{ reader[i] -> writer[j] : i = 2j and 0 <= j <= 3 }"))


@pytest.mark.spec("004-095")
def test_memory_that_is_written_twice_is_an_output_dependence() -> None:
    ws = Workspace()
    first = statement(ws, "first", {"i": 8}, [], [("cell", ("i",))])
    second = statement(ws, "second", {"i": 3}, [], [("cell", ("i+6",))])
    (only,) = dependences([first, second])
    assert shown([only]) == [("first", "second", "output", "cell")]
    assert isl.Map(str(only)).is_equal(isl.Map("{ first[i] -> second[j] : i = j + 6 and 0 <= j < 2 }"))


def test_order_decides_between_true_and_anti() -> None:
    ws = Workspace()
    reader = statement(ws, "reader", {"i": 8}, [("a", ("i",))], [])
    writer = statement(ws, "writer", {"i": 8}, [], [("a", ("i",))])
    assert shown(dependences([writer, reader])) == [("writer", "reader", "true", "a")]
    assert shown(dependences([reader, writer])) == [("reader", "writer", "anti", "a")]


def test_what_never_meets_does_not_depend() -> None:
    ws = Workspace()
    even = statement(ws, "even", {"i": 4}, [], [("a", ("2*i",))])
    odd = statement(ws, "odd", {"i": 4}, [("a", ("2*i+1",))], [("b", ("i",))])
    readers = statement(ws, "reader", {"i": 4}, [("x", (0,))], [("c", ("i",))])
    again = statement(ws, "again", {"i": 4}, [("x", (0,))], [("d", ("i",))])
    assert dependences([even, odd, readers, again]) == ()
    assert dependences([]) == ()


def test_a_reduction_depends_on_itself_along_its_reduce_axes() -> None:
    ws = Workspace(("M", "K"))
    domain = {"i": "M", "r": "K"}
    total = statement(ws, "sum", domain, [("A", ("i", "r")), ("acc", ("i",))], [("acc", ("i",))])
    found = dependences([total])
    assert shown(found) == [("sum", "sum", kind, "acc") for kind in ("true", "anti", "output")]
    assert {each.carried for each in found} == {("r",)}
    for each in found:
        assert isl.Map(str(each)).is_equal(
            isl.Map("[M, K] -> { sum[i, r] -> sum[i, s] : 0 <= i < M and 0 <= r < s < K }")
        )


def test_a_recurrence_and_a_shift() -> None:
    ws = Workspace()
    scan = statement(ws, "scan", {"i": 9}, [("a", ("i",))], [("a", ("i+1",))])
    (true,) = dependences([scan])
    assert (true.kind, true.carried) == ("true", ("i",))
    assert isl.Map(str(true)).is_equal(isl.Map("{ scan[i] -> scan[i+1] : 0 <= i < 8 }"))
    shift = statement(ws, "shift", {"i": 9}, [("a", ("i+1",))], [("a", ("i",))])
    assert [each.kind for each in dependences([shift])] == ["anti"]


def test_a_domain_that_is_cut_cuts_the_dependence() -> None:
    ws = Workspace()
    writer = statement(ws, "writer", {"i": 8}, [], [("a", ("i",))])
    reader = statement(ws, "reader", {"i": 8}, [("a", ("i",))], [])
    tail = Statement("tail", reader.domain.where("i", 6, 8), reader.reads)
    (only,) = dependences([writer, tail])
    assert isl.Map(str(only)).is_equal(isl.Map("{ writer[i] -> tail[i] : 6 <= i < 8 }"))


def test_names_that_isl_could_not_read_are_spelled_otherwise() -> None:
    ws = Workspace()
    first = statement(ws, "conv 1", {"i": 2}, [], [("min", ("i",))])
    second = statement(ws, "max", {"i": 2}, [("min", ("i",))], [])
    (only,) = dependences([first, second])
    assert (only.source, only.target, only.tensor) == ("conv 1", "max", "min")
    assert str(only).startswith("{ conv_1[i] -> max_[i' = i]")
    isl.Map(str(only))


def test_a_buffer_has_one_number_of_dimensions() -> None:
    ws = Workspace()
    flat = statement(ws, "flat", {"i": 4}, [], [("a", ("i",))])
    square = statement(ws, "square", {"i": 2, "j": 2}, [("a", ("i", "j"))], [])
    with pytest.raises(ValueError):
        dependences([flat, square])


# ---- against pairs of points ----


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[dict[str, int], Accesses, Accesses]]:
    """Statements over i and j on two small buffers."""

    def index(names: list[str]) -> Affine:
        found = affine(draw(st.integers(-1, 2)), [(draw(st.integers(-1, 2)), name) for name in names])
        return found // 2 if draw(st.integers(0, 3)) == 0 else found

    made = []
    for _ in range(draw(st.integers(1, 3))):
        names = draw(st.sampled_from([["i"], ["i", "j"]]))
        sizes = {name: draw(st.integers(1, 3)) for name in names}
        accesses = [
            [(draw(st.sampled_from("ab")), [index(names)]) for _ in range(draw(st.integers(low, 2)))]
            for low in (0, 1)
        ]
        made.append((sizes, accesses[0], accesses[1]))
    return made


@given(programs())
@settings(max_examples=80)
def test_dependences_are_the_pairs_of_points_that_touch_one_element(
    made: list[tuple[dict[str, int], Accesses, Accesses]],
) -> None:
    ws = Workspace()
    names = [f"S{number}" for number in range(len(made))]
    found = dependences([statement(ws, name, *each) for name, each in zip(names, made, strict=True)])
    wanted: set[tuple[str, str, str, str, tuple[int, ...], tuple[int, ...]]] = set()
    runs = [
        (number, point, [
            {(tensor, index[0].evaluate(dict(zip(sizes, point, strict=True)))) for tensor, index in accesses}  # type: ignore[union-attr]
            for accesses in (reads, writes)
        ])
        for number, (sizes, reads, writes) in enumerate(made)
        for point in itertools.product(*(range(size) for size in sizes.values()))
    ]  # fmt: skip
    for (one, p, (read, write)), (two, q, (reads_later, writes_later)) in itertools.combinations(runs, 2):
        for kind, before, after in (
            ("true", write, reads_later), ("anti", read, writes_later), ("output", write, writes_later)
        ):  # fmt: skip
            wanted |= {(names[one], names[two], kind, tensor, p, q) for tensor, _ in before & after}
    got = set()
    for each in found:
        pairs = isl.Map(str(each))
        rank = pairs.dim(isl.dim_type.in_)
        pairs.wrap().foreach_point(
            lambda point, each=each, rank=rank: got.add(
                (each.source, each.target, each.kind, each.tensor, *_halves(point, rank))
            )
        )
    assert got == wanted


def _halves(point: isl.Point, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    count = point.get_space().dim(isl.dim_type.set)
    values = [int(point.get_coordinate_val(isl.dim_type.set, number).to_python()) for number in range(count)]
    return tuple(values[:rank]), tuple(values[rank:])


# ---- Regions ----


def gemm(name: str = "gemm", bias: bool = True) -> Region:
    """C[i0, i1] = relu-less sum of A[i0, r0] * B[r0, i1], plus a bias."""
    i0, i1, r0 = axis("i0"), axis("i1"), axis("r0")
    fp32 = DType.FP32
    lets = [
        Let("a", fp32, Read("A", (i0, r0))),
        Let("b", fp32, Read("B", (r0, i1))),
        Let("p", fp32, Binary("MUL", "a", "b")),
        Let("acc", fp32, Reduce("SUM", (Axis("r0", 8),), "p")),
        Let("c", fp32, Read("bias", (i1,))),
        Let("out", fp32, Binary("ADD", "acc", "c")),
    ]
    refs = [MemRef("A", fp32, (4, 8)), MemRef("B", fp32, (8, 6)), MemRef("bias", fp32, (6,))]
    output = MemRef("C", fp32, (4, 6))
    return Region(
        name, (Axis("i0", 4), Axis("i1", 6)), tuple(refs), (output,), tuple(lets), (Yield("out", "C"),)
    )


def test_a_region_is_its_reductions_and_its_stores() -> None:
    ws = Workspace()
    total, store = region_statements(ws, gemm())
    assert (total.name, total.domain.names) == ("gemm.acc", ("i0", "i1", "r0"))
    assert [access.tensor for access in total.reads] == ["A", "B", "gemm.acc"]
    assert (store.name, store.domain.names) == ("gemm", ("i0", "i1"))
    assert sorted(access.tensor for access in store.reads) == ["bias", "gemm.acc"]
    assert [access.tensor for access in store.writes] == ["C"]
    found = dependences([total, store])
    assert shown(found) == [
        *(("gemm.acc", "gemm.acc", kind, "gemm.acc") for kind in ("true", "anti", "output")),
        ("gemm.acc", "gemm", "true", "gemm.acc"),
    ]
    assert {each.carried for each in found[:3]} == {("r0",)}


def _row(name: str, source: MemRef, target: MemRef) -> Region:
    """A copy."""
    iters = tuple(Axis(f"i{number}", size) for number, size in enumerate(target.shape))
    read = Let("x", source.dtype, Read(source.name, tuple(axis(each.name) for each in iters)))
    return Region(name, iters, (source,), (target,), (read,), (Yield("x", target.name),))


def test_an_arena_that_reuses_memory_brings_anti_and_output_dependences() -> None:
    fp32 = DType.FP32
    x, a, b, y = (MemRef(name, fp32, (8,)) for name in "xaby")
    regions = [_row("one", x, a), _row("two", a, b), _row("three", b, y)]

    def kinds(cells: Mapping[str, str | tuple[str, int]]) -> list[tuple[str, str, str, str]]:
        ws = Workspace()
        made = [each for region in regions for each in region_statements(ws, region, cells)]
        return shown(dependences(made))

    chain = [("one", "two", "true", "a"), ("two", "three", "true", "b")]
    assert kinds({}) == chain
    # x and b in one place: what one reads of x, two overwrites
    assert kinds({"x": "cell", "b": "cell"}) == [
        ("one", "two", "true", "a"), ("one", "two", "anti", "cell"), ("two", "three", "true", "cell"),
    ]  # fmt: skip
    # a and y in one place: written twice
    assert kinds({"a": "cell", "y": "cell"}) == [
        ("one", "two", "true", "cell"), ("one", "three", "output", "cell"), ("two", "three", "true", "b"),
        ("two", "three", "anti", "cell"),
    ]  # fmt: skip
    # in one arena, apart: as if they had memory of their own
    assert kinds({"a": ("arena", 0), "y": ("arena", 32)}) == [
        ("one", "two", "true", "arena"), ("two", "three", "true", "b"),
    ]  # fmt: skip


def test_shared_memory_is_compared_byte_by_byte() -> None:
    small, large = MemRef("small", DType.FP16, (2, 3)), MemRef("large", DType.FP32, (3,))
    x, y = MemRef("x", DType.FP16, (2, 3)), MemRef("y", DType.FP32, (3,))
    ws = Workspace()
    cells = {"small": ("arena", 0), "large": ("arena", 4)}
    made = [
        each
        for region in (_row("write", x, small), _row("over", y, large))
        for each in region_statements(ws, region, cells)
    ]
    (only,) = dependences(made)
    assert only.kind == "output"
    # bytes 4..15 hold large; small has its elements at bytes 0..11
    assert isl.Map(str(only)).is_equal(
        isl.Map(
            "{ write[i, j] -> over[k] : 0 <= i < 2 and 0 <= j < 3 and 0 <= k < 3 and 2*(3i+j) < 4 + 4k + 4"
            " and 4 + 4k < 2*(3i+j) + 2 }"
        )
    )


def test_a_guarded_read_counts_where_it_is_inside() -> None:
    fp32 = DType.FP32
    x, y, z = MemRef("x", fp32, (8,)), MemRef("y", fp32, (8,)), MemRef("z", fp32, (10,))
    left = affine(-1, [(1, "i0")])
    lets = (
        Let("in", DType.BOOL, Within(left, 0, 8)),
        Let("v", fp32, Read("y", (left,))),
        Let("zero", fp32, Const(to_bits(0.0, fp32))),
        Let("out", fp32, Select("in", "v", "zero")),
    )
    padded = Region("pad", (Axis("i0", 10),), (y,), (z,), lets, (Yield("out", "z"),))
    ws = Workspace()
    made = [each for region in (_row("copy", x, y), padded) for each in region_statements(ws, region)]
    (only,) = dependences(made)
    assert isl.Map(str(only)).is_equal(isl.Map("{ copy[i] -> pad[i + 1] : 0 <= i < 8 }"))
