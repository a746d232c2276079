"""The two forms of a Region: which views are written out, where C-CON1 asks for none, and the way back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tinyc.ir.check_region import fault
from tinyc.ir.deferred import mark_deferred
from tinyc.ir.dtypes import DType, to_bits
from tinyc.ir.explicit import axis_facts, ccon1_fault, explicit, misaligned, point
from tinyc.ir.index import Affine, axis, lit
from tinyc.ir.region import (
    Axis,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Stream,
    Transpose,
    Unary,
    Value,
    Within,
    Yield,
)

F32, BOOL = DType.FP32, DType.BOOL
SIZES = {"i": 2, "j": 3, "k": 4}


def at(*names: str | Affine) -> tuple[Affine, ...]:
    return tuple(axis(name) if isinstance(name, str) else name for name in names)


def read(*names: str | Affine) -> Read:
    """The buffer of that rank."""
    return Read(f"X{len(names)}", at(*names))


def region(iters: str, *values: Value, **kinds: DType) -> Region:
    """Lets v0, v1, …; the last is stored. ``kinds``: dtypes that are not fp32."""
    lets = tuple(Let(f"v{n}", kinds.get(f"v{n}", F32), value) for n, value in enumerate(values))
    axes = tuple(Axis(name, SIZES[name]) for name in iters)
    out = MemRef("Y", lets[-1].dtype, tuple(each.size for each in axes))
    inputs = tuple(MemRef(f"X{rank}", F32, (9,) * rank) for rank in range(1, 4))
    made = Region("region", axes, inputs, (out,), lets, (Yield(lets[-1].name, "Y"),))
    assert fault(made) is None
    return made


def views(made: Region) -> dict[str, tuple[object, ...]]:
    """The views that the explicit form adds; it is checked on the way."""
    wide = explicit(made)
    assert point(wide) == made and point(made) == made and explicit(wide) == wide
    assert fault(wide) is None and misaligned(wide) is None and ccon1_fault(wide) is None
    found: dict[str, tuple[object, ...]] = {}
    for let in wide.lets:
        if isinstance(let.value, BroadcastInDim):
            found[let.name] = (let.value.x, let.value.axes, let.value.broadcast_dimensions)
        elif isinstance(let.value, Transpose):
            found[let.name] = (let.value.x, let.value.permutation)
    return found


def total(body: str, *names: str, op: str = "SUM") -> Reduce:
    return Reduce(op, tuple(Axis(name, SIZES[name]) for name in names), body)


@pytest.mark.spec("004-073", "004-076", "004-078")
def test_a_row_is_broadcast_over_columns() -> None:
    made = region("ij", read("i", "j"), read("j"), Binary("ADD", "v0", "v1"))
    assert views(made) == {"v1.b": ("v1", ("i", "j"), (1,))}
    assert misaligned(made) == "v2: v1 is over (j), not over (i, j)"


@pytest.mark.spec("004-078")
def test_both_sides_of_an_outer_product_are_broadcast() -> None:
    made = region("ij", read("i"), read("j"), Binary("MUL", "v0", "v1"))
    assert views(made) == {"v0.b": ("v0", ("i", "j"), (0,)), "v1.b": ("v1", ("i", "j"), (1,))}


@pytest.mark.spec("004-071", "004-079")
def test_an_order_that_differs_is_transposed() -> None:
    made = region("ij", read("i", "j"), read("j", "i"), Binary("ADD", "v0", "v1"))
    assert views(made) == {"v1.t": ("v1", (1, 0))}
    assert views(region("ij", read("j", "i"))) == {"v0.t": ("v0", (1, 0))}
    both = region("ijk", read("k", "i"), read("i", "j", "k"), Binary("ADD", "v0", "v1"))
    assert views(both) == {"v0.t": ("v0", (1, 0)), "v0.t.b": ("v0.t", ("i", "j", "k"), (0, 2))}


@pytest.mark.spec("004-078")
def test_constants_and_guards_need_no_view() -> None:
    half = Const(to_bits(0.5, F32))
    guard = Within(axis("j") - 1, 0, 2)
    made = region(
        "ij", read("i", "j"), half, Binary("MUL", "v0", "v1"), guard, Select("v3", "v2", "v1"), v3=BOOL
    )
    assert views(made) == {}
    narrow = region("ij", read("i"), half, guard, Select("v2", "v0", "v1"), v2=BOOL)
    assert views(narrow) == {"v0.b": ("v0", ("i", "j"), (0,))}
    joined = region("ij", read("i", "j"), half, guard, Within(axis("i"), 1, 2), Binary("MIN", "v2", "v3"),
                    Select("v4", "v0", "v1"), v2=BOOL, v3=BOOL, v4=BOOL)  # fmt: skip
    assert views(joined) == {}


def test_what_is_stored_is_over_the_iters() -> None:
    assert views(region("ij", Const(0))) == {"v0.b": ("v0", ("i", "j"), ())}
    assert views(region("ij", read("j"), Unary("NEG", "v0"))) == {"v1.b": ("v1", ("i", "j"), (1,))}
    assert views(region("", read(lit(3)))) == {}


@pytest.mark.spec("004-077")
def test_a_contraction_reads_directly() -> None:
    made = region("ij", read("i", "k"), read("k", "j"), Binary("MUL", "v0", "v1"), total("v2", "k"))
    assert views(made) == {}
    guarded = region(
        "ij",
        Within(axis("k") - 1, 0, 3),
        read("i", axis("k") - 1),
        Const(0),
        Select("v0", "v1", "v2"),
        Cast("v3"),
        read("j", "k"),
        Binary("MUL", "v4", "v5"),
        total("v6", "k"),
        v0=BOOL,
    )
    assert views(guarded) == {}
    assert axis_facts(guarded).loadable == {"v1", "v3", "v4", "v5"}


@pytest.mark.spec("004-077")
def test_what_is_computed_outside_a_body_is_broadcast_into_it() -> None:
    """The row maximum under the sum (I-32): it is there once per row."""
    softmax = region(
        "i",
        read("i", "j"),
        total("v0", "j", op="MAX"),
        read("i", "k"),
        Binary("SUB", "v2", "v1"),
        total("v3", "k"),
    )
    assert views(softmax) == {"v1.b": ("v1", ("i", "k"), (0,))}
    outside = region("ij", read("i", "j"), read("i", "k"), total("v1", "k"), Binary("FDIV", "v0", "v2"))
    assert views(outside) == {"v2.b": ("v2", ("i", "j"), (0,))}


def test_a_body_without_its_axis_is_broadcast_over_it() -> None:
    made = region("i", read("i"), Unary("RELU", "v0"), total("v1", "k"))
    assert views(made) == {"v1.b": ("v1", ("i", "k"), (0,))}
    assert views(region("i", read("i"), total("v0", "k"))) == {}


def test_a_reduction_keeps_the_order_of_its_body() -> None:
    made = region("ij", read("k", "j", "i"), total("v0", "k", op="MAX"))
    assert views(made) == {"v1.t": ("v1", (1, 0))}


def test_a_stream_reads_directly() -> None:
    scale = Const(to_bits(1.0, F32))
    made = region("ij", read("i", "k"), read("k", "j"), scale, Stream((Axis("k", 4),), "v0", "v1", "v2"))
    assert views(made) == {}
    computed = region(
        "ij",
        read("i", "k"),
        Unary("NEG", "v0"),
        read("k", "j"),
        scale,
        Stream((Axis("k", 4),), "v1", "v2", "v3"),
    )
    assert views(computed) == {}
    assert axis_facts(computed).axes["v4"] == ("i", "j")


def test_a_view_is_there_once_and_names_stay_unique() -> None:
    made = region("ij", read("j"), read("i", "j"), Binary("ADD", "v1", "v0"), Binary("MUL", "v2", "v0"))
    assert list(views(made)) == ["v0.b"]
    lets = tuple(replace(let, name={"v1": "v0.b"}.get(let.name, let.name)) for let in made.lets[:2])
    other = replace(
        made, lets=(*lets, Let("v2", F32, Binary("ADD", "v0.b", "v0"))), yields=(Yield("v2", "Y"),)
    )
    assert list(views(other)) == ["v0.b2"]


@pytest.mark.spec("004-077")
def test_a_read_that_is_broadcast_in_a_body_breaks_ccon1() -> None:
    made = region("ij", read("i", "k"), read("k", "j"), Binary("MUL", "v0", "v1"), total("v2", "k"))
    wide = Let("w", F32, BroadcastInDim("v0", ("i", "j", "k"), (0, 2)))
    lets = (made.lets[0], wide, made.lets[1], Let("v2", F32, Binary("MUL", "w", "v1")), made.lets[3])
    broken = replace(made, lets=lets)
    assert fault(broken) is None
    assert ccon1_fault(broken) == "w broadcasts v0, a Read, over the reduce axis k"
    assert ccon1_fault(explicit(broken)) is None


def handed(name: str, reads: str, writes: str) -> Region:
    made = region("i", read("i"))
    (out,) = made.outputs
    inputs = tuple(MemRef(each, F32, (2,)) for each in reads)
    lets = (Let("v0", F32, Read(reads[0], at("i"))),)
    return replace(
        made,
        name=name,
        inputs=inputs,
        outputs=(replace(out, name=writes),),
        lets=lets,
        yields=(Yield("v0", writes),),
    )


@pytest.mark.spec("004-088", "I-35")
def test_an_output_that_only_the_next_region_reads_is_deferred() -> None:
    chain = [handed("k0", "A", "B"), handed("k1", "B", "C"), handed("k2", "CB", "D"), handed("k3", "C", "E")]
    marked = mark_deferred(chain, {"D", "E"})
    assert [each.deferred for each in marked] == [(), (), (), ()]
    straight = [handed("k0", "A", "B"), handed("k1", "B", "C"), handed("k2", "C", "D")]
    assert [each.deferred for each in mark_deferred(straight, {"D"})] == [("B",), ("C",), ()]
    assert [each.deferred for each in mark_deferred(straight, {"D", "B"})] == [(), ("C",), ()]
    assert all(fault(each) is None for each in mark_deferred(straight, {"D"}))
