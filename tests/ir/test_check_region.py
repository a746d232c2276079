"""Whether a Region is one, in either form: each fault by its kind, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from region_documents import DOCUMENTS

from tinyc.ir.check_region import check_region, fault
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType, to_bits
from tinyc.ir.explicit import explicit
from tinyc.ir.index import axis, lit
from tinyc.ir.region import (
    Axis,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Layout,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Stream,
    Transpose,
    Unary,
    Within,
    Yield,
)
from tinyc.ir.region_json import region_from_json

F16, F32, I32, BOOL = DType.FP16, DType.FP32, DType.I32, DType.BOOL


def softmax() -> Region:
    """``EXP2(X - max) / …`` without the division: every kind of let but Cast and Select."""
    lets = (
        Let("x", F32, Read("X", (axis("i"), axis("j")))),
        Let("y", F32, Read("X", (axis("i"), axis("k")))),
        Let("top", F32, Reduce("MAX", (Axis("k", 5),), "y")),
        Let("low", F32, Binary("SUB", "x", "top")),
        Let("z", F32, Unary("EXP2", "low")),
    )
    out = MemRef("Y", F32, (4, 5))
    return Region(
        "softmax", (Axis("i", 4), Axis("j", 5)), (MemRef("X", F32, (4, 5)),), (out,), lets, (Yield("z", "Y"),)
    )


def changed(let_name: str, /, **more: Any) -> Callable[[Region], Region]:
    def edit(region: Region) -> Region:
        lets = tuple(replace(let, **more) if let.name == let_name else let for let in region.lets)
        return replace(region, lets=lets)

    return edit


def output(**more: Any) -> Callable[[Region], Region]:
    return lambda region: replace(region, outputs=(replace(region.outputs[0], **more),))


def source(**more: Any) -> Callable[[Region], Region]:
    return lambda region: replace(region, inputs=(replace(region.inputs[0], **more),))


def added(*lets: Let) -> Callable[[Region], Region]:
    return lambda region: replace(region, lets=(*region.lets, *lets))


def streamed(
    score: DType = F32,
    scale: Any = None,
    axes: tuple[Axis, ...] = (Axis("s", 5),),
    rounded: DType | None = None,
) -> Callable[[Region], Region]:
    factor = Const(to_bits(1.0, F32)) if scale is None else scale
    return added(
        Let("score0", F32, Read("X", (axis("i"), axis("s") if axes else lit(0)))),
        Let("score", score, Cast("score0")),
        Let("one", F32, Const(to_bits(1.0, F32))),
        Let("scale", F32, factor),
        Let("stream", F32, Stream(axes, "score", "one", "scale", rounded)),
    )


FAULTS: dict[str, tuple[Callable[[Region], Region], str]] = {
    "undefined": (changed("z", value=Unary("EXP2", "q")), "UnknownReference"),
    "later": (lambda r: replace(r, lets=(r.lets[4], *r.lets[:4])), "UnknownReference"),
    "two lets": (changed("z", name="x"), "DuplicateId"),
    "two buffers": (output(name="X"), "DuplicateId"),
    "two axes": (lambda r: replace(r, iters=(Axis("i", 4), Axis("i", 5))), "AxisAlignmentMismatch"),
    "axis bound twice": (
        added(Let("more", F32, Reduce("SUM", (Axis("k", 5),), "y"))),
        "AxisAlignmentMismatch",
    ),
    "iter bound": (added(Let("more", F32, Reduce("SUM", (Axis("j", 5),), "x"))), "AxisAlignmentMismatch"),
    "no name": (changed("z", name="a b"), "MalformedDocument"),
    "a long name": (source(name="X" * 300), "MalformedDocument"),
    "no name of an axis": (lambda r: replace(r, iters=(Axis("i.o", 4), r.iters[1])), "MalformedDocument"),
    "empty axis": (lambda r: replace(r, iters=(Axis("i", 0), r.iters[1])), "InvalidShape"),
    "empty buffer": (source(shape=(0, 5)), "InvalidShape"),
    "huge buffer": (source(shape=(2**40, 2**40)), "InvalidShape"),
    "alignment": (source(alignment=3), "MalformedDocument"),
    "layout": (source(layout=Layout("tiled")), "MalformedDocument"),
    "params": (source(layout=Layout("swizzled", (("vec bytes", 16),))), "MalformedDocument"),
    "params twice": (source(layout=Layout("swizzled", (("b", 1), ("a", 2)))), "MalformedDocument"),
    "no buffer": (changed("x", value=Read("Z", (axis("i"), axis("j")))), "UnknownReference"),
    "no axis": (changed("x", value=Read("X", (axis("i"), axis("q")))), "UnknownReference"),
    "rank": (changed("x", value=Read("X", (axis("i"),))), "AxisAlignmentMismatch"),
    "62 bits": (changed("x", value=Read("X", (axis("i") * 2**61, axis("j")))), "InvalidShape"),
    "read as": (changed("x", dtype=F16), "DTypeMismatch"),
    "constant": (added(Let("c", F16, Const(1 << 16))), "DTypeMismatch"),
    "guard": (added(Let("c", I32, Within(axis("i"), 0, 2))), "DTypeMismatch"),
    "guard beyond": (added(Let("c", BOOL, Within(axis("i"), 0, 2**70))), "InvalidShape"),
    "unary": (changed("z", value=Unary("TANH", "low")), "DTypeMismatch"),
    "unary of": (added(Let("c", I32, Cast("x")), Let("d", I32, Unary("SIN", "c"))), "DTypeMismatch"),
    "binary": (changed("low", value=Binary("XOR", "x", "top")), "DTypeMismatch"),
    "operands": (added(Let("c", F16, Cast("x")), Let("d", F32, Binary("ADD", "x", "c"))), "DTypeMismatch"),
    "comparison": (changed("low", value=Binary("CMPLT", "x", "top")), "DTypeMismatch"),
    "select": (added(Let("c", F32, Select("x", "x", "x"))), "DTypeMismatch"),
    "reduction": (changed("top", value=Reduce("SUB", (Axis("k", 5),), "y")), "NonAssociativeTransform"),
    "accumulator": (changed("top", dtype=F16), "DTypeMismatch"),
    "no reduce axes": (added(Let("c", F32, Reduce("SUM", (), "x"))), "MalformedDocument"),
    "scale": (streamed(scale=Const(to_bits(-1.0, F32))), "NonAssociativeTransform"),
    "no scale": (streamed(scale=Read("X", (axis("i"), lit(0)))), "NonAssociativeTransform"),
    "infinite scale": (streamed(scale=Const(to_bits(float("inf"), F32))), "NonAssociativeTransform"),
    "fp16 score": (streamed(score=F16), "DTypeMismatch"),
    "rounded to fp32": (streamed(rounded=F32), "DTypeMismatch"),
    "no stream axes": (streamed(axes=()), "MalformedDocument"),
    "shape": (output(shape=(4, 6)), "AxisAlignmentMismatch"),
    "stored dtype": (output(dtype=F16), "DTypeMismatch"),
    "stored twice": (lambda r: replace(r, yields=r.yields * 2), "MalformedDocument"),
    "not stored": (lambda r: replace(r, yields=()), "MalformedDocument"),
    "stores nothing": (lambda r: replace(r, yields=(Yield("q", "Y"),)), "UnknownReference"),
    "stored elsewhere": (lambda r: replace(r, yields=(*r.yields, Yield("z", "X"))), "UnknownReference"),
    "unbound": (lambda r: replace(r, yields=(Yield("y", "Y"),)), "AxisAlignmentMismatch"),
    "deferred": (lambda r: replace(r, deferred=("X",)), "UnknownReference"),
    "deferred twice": (lambda r: replace(r, deferred=("Y", "Y")), "UnknownReference"),
    "transpose": (added(Let("c", F32, Transpose("x", (0, 0)))), "InvalidPermutation"),
    "broadcast": (added(Let("c", F32, BroadcastInDim("top", ("i", "j"), (1,)))), "BroadcastMismatch"),
    "broadcast to": (added(Let("c", F32, BroadcastInDim("top", ("i", "j"), (2,)))), "BroadcastMismatch"),
    "broadcast of": (added(Let("c", F32, BroadcastInDim("x", ("i", "j"), (0,)))), "BroadcastMismatch"),
    "broadcast over": (added(Let("c", F32, BroadcastInDim("top", ("i", "q"), (0,)))), "UnknownReference"),
    "view of": (added(Let("c", F16, Transpose("x", (1, 0)))), "DTypeMismatch"),
    "a view is missing": (added(Let("c", F32, Transpose("x", (1, 0)))), "BroadcastMismatch"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.spec("004-091")
def test_faults(name: str) -> None:
    edit, kind = FAULTS[name]
    broken = edit(softmax())
    assert fault(broken) is not None
    with pytest.raises(TinycError) as caught:
        check_region(broken)
    assert caught.value.kind == kind, caught.value
    assert caught.value.at["layer"] == "region" and caught.value.suggestion


@pytest.mark.parametrize("name", ["softmax", *DOCUMENTS])
def test_no_fault_in_either_form(name: str) -> None:
    if name == "softmax":
        region = softmax()
    else:
        make, shapes = DOCUMENTS[name]
        region = region_from_json(make(), shapes)
    for form in (region, explicit(region)):
        check_region(form)
        assert fault(form) is None


def test_a_stream_is_none() -> None:
    assert fault(streamed()(softmax())) is None
    assert fault(streamed(rounded=F16)(softmax())) is None


def test_streams_over_one_score_share_their_axes() -> None:
    region = streamed()(softmax())
    more = Let("other", F32, Stream((Axis("s", 5),), "score", "score", "scale"))
    assert fault(replace(region, lets=(*region.lets, more))) is None
    other = Let("other", F32, Stream((Axis("s", 5),), "score0", "one", "scale"))
    assert fault(replace(region, lets=(*region.lets, other))) == "s: two axes are called s"


def test_a_layout_that_says_more_is_none() -> None:
    layout = Layout("swizzled", (("swizzle", "xor32"), ("vec_bytes", 16)))
    assert fault(source(layout=layout, alignment=256, noalias=False)(softmax())) is None
