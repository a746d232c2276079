"""Regions as JSON that are refused, each with its place; and whatever else is wrong, which is refused as well."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from random_programs import Maker
from region_documents import (
    DOCUMENTS,
    Json,
    buffer,
    document,
    integers,
    let,
    loaded,
    read,
    reduce,
    round_trip,
)

import tinyc
from tinyc.codegen.playback import evaluate_region
from tinyc.extract.base import base_program
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.region_json import region_from_json, region_to_json


def refusal(data: Any, shapes: dict[str, int] | None = None) -> TinycError:
    with pytest.raises(TinycError) as caught:
        region_from_json(data, shapes, "region[0]")
    assert caught.value.why and caught.value.suggestion and caught.value.at["value"].startswith("region[0]")
    return caught.value


def edited(name: str, edit: Callable[[Json], Any]) -> TinycError:
    make, shapes = DOCUMENTS[name]
    data = make()
    edit(data)
    return refusal(data, shapes)


def no_cast(data: Json) -> None:
    view = data["lets"][1]["expr"]["add"][1]["BroadcastInDim"]
    view["operand"] = view["operand"]["cast"]["operand"]


def no_broadcast(data: Json) -> None:
    data["lets"][1]["expr"]["add"][1] = data["lets"][1]["expr"]["add"][1]["BroadcastInDim"]["operand"]


def row_without_broadcast(data: Json) -> None:
    data["lets"][3]["expr"] = {"exp": [{"sub": ["S", "Mrow"]}]}


def body_over_an_iter(data: Json) -> None:
    data["lets"] = [data["lets"][0], let("Mrow", reduce("max", ["n"], "S", "-INF"))]


def set_reduce(**more: Any) -> Callable[[Json], None]:
    def edit(data: Json) -> None:
        data["lets"][0]["expr"]["reduce"] |= more

    return edit


def without_dtype(data: Json) -> None:
    del data["lets"][0]["expr"]["reduce"]["dtype"]


REFUSED: dict[str, tuple[str, Callable[[Json], Any], str, str]] = {
    "fp16 bias": ("gemm", no_cast, "DTypeMismatch", "lets[1].expr.add"),
    "missing broadcast": ("gemm", no_broadcast, "BroadcastMismatch", "lets[1].expr.add"),
    "row maximum": ("attention", row_without_broadcast, "BroadcastMismatch", "lets[3].expr.exp[0].sub"),
    "iter reduced": ("attention", body_over_an_iter, "AxisAlignmentMismatch", "lets[1].expr.reduce.axes[0]"),
    "no dtype": ("gemm", without_dtype, "AccDtypeMissing", "lets[0].expr.reduce"),
    "init": ("gemm", set_reduce(init=1.0), "NeutralInvalid", "lets[0].expr.reduce.init"),
    "init of i32": ("gemm", set_reduce(init="-INF", dtype="i32", op="max"), "NeutralInvalid", "lets[0].expr.reduce.init"),
    "sub": ("gemm", set_reduce(op="sub"), "NonAssociativeTransform", "lets[0].expr.reduce.op"),
    "div": ("gemm", set_reduce(op="div"), "NonAssociativeTransform", "lets[0].expr.reduce.op"),
    "narrow": ("attention", set_reduce(dtype="fp16"), "DTypeMismatch", "lets[0].expr.reduce.body"),
    "no reduction": ("gemm", set_reduce(op="median"), "MalformedDocument", "lets[0].expr.reduce.op"),
    "no axes": ("gemm", set_reduce(axes=[]), "MalformedDocument", "lets[0].expr.reduce.axes"),
    "unknown let": ("gemm", lambda d: d["lets"][2].update(expr={"relu": ["c9"]}), "UnknownReference", "lets[2].expr.relu[0]"),
    "unknown axis": (
        "gemm",
        lambda d: d["lets"][0]["expr"]["reduce"]["body"]["mul"][1]["read"].update(map=["k", "q+1"]),
        "UnknownReference",
        "lets[0].expr.reduce.body.mul[1].read.map[1]",
    ),
    "rank": ("gemm", lambda d: d["lets"][0]["expr"]["reduce"]["body"]["mul"][0]["read"]["map"].pop(), "AxisAlignmentMismatch",
             "lets[0].expr.reduce.body.mul[0].read.map"),
    "iters": ("gemm", lambda d: d["iters"].pop(), "AxisAlignmentMismatch", "iters"),
    "size": ("gemm", lambda d: d["iters"][0].update(size=6), "AxisAlignmentMismatch", "iters[0]"),
    "symbol": ("gemm", lambda d: d["inputs"][0]["memref"].update(shape=["Q", "K"]), "UnboundSymbol", "inputs[0].memref.shape[0]"),
    "zero": ("gemm", lambda d: d["inputs"][0]["memref"].update(shape=[0, "K"]), "InvalidShape", "inputs[0].memref.shape[0]"),
    "layout": ("gemm", lambda d: d["inputs"][0]["memref"]["layout"].update(kind="tiled"), "MalformedDocument",
               "inputs[0].memref.layout.kind"),
    "params": ("gemm", lambda d: d["inputs"][0]["memref"]["layout"].update(params={"a": [1]}), "MalformedDocument",
               "inputs[0].memref.layout.params"),
    "alignment": ("gemm", lambda d: d["inputs"][0]["memref"].update(alignment=24), "MalformedDocument",
                  "inputs[0].memref.alignment"),
    "noalias": ("gemm", lambda d: d["inputs"][0]["memref"].update(noalias="no"), "MalformedDocument", "inputs[0].memref.noalias"),
    "materialize": ("gemm", lambda d: d["outputs"][0].update(materialize="smem"), "MalformedDocument", "outputs[0].materialize"),
    "name": ("gemm", lambda d: d["inputs"][0].update(name='A"; x'), "MalformedDocument", "inputs[0].name"),
    "axis name": ("gemm", lambda d: d["iters"][0].update(name="m.o"), "MalformedDocument", "iters[0].name"),
    "two buffers": ("gemm", lambda d: d["inputs"][0].update(name="B"), "DuplicateId", ""),
    "two lets": ("gemm", lambda d: d["lets"][1].update(let="acc"), "DuplicateId", "lets[1].expr"),
    "declared": ("gemm", lambda d: d["lets"][2].update(dtype="fp16"), "DTypeMismatch", "lets[2].expr"),
    "no cast": ("gemm", lambda d: d["yield"][0].pop("cast"), "DTypeMismatch", "yield[0]"),
    "nothing to": ("gemm", lambda d: d["yield"][0].update(to="A"), "UnknownReference", "yield[0].to"),
    "result shape": (
        "gemm",
        lambda d: d["lets"][1]["expr"]["add"][1]["BroadcastInDim"].update(broadcast_dimensions=[0]),
        "BroadcastMismatch",
        "lets[1].expr.add[1].BroadcastInDim",
    ),
    "key": ("gemm", lambda d: d.update(buffers=[]), "MalformedDocument", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.spec("004-091")
def test_refused_with_its_place(name: str) -> None:
    base, edit, kind, place = REFUSED[name]
    error = edited(base, edit)
    assert (error.kind, error.at["value"]) == (kind, f"region[0].{place}" if place else "region[0]"), error


def test_a_transpose_is_asked_for() -> None:
    """Operands in another order do not meet, even where their sizes do (§6.4: the order is explicit)."""

    def outer(right: Json) -> Json:
        inputs = [buffer("A", "fp32", [4, 4]), buffer("B", "fp32", [4, 4])]
        lets = [let("y", {"add": [read("A", "i", "j"), right]})]
        return document("transposed", ["i", "j"], inputs, [buffer("C", "fp32", [4, 4])], lets)

    swapped = read("B", "j", "i")
    assert refusal(outer(swapped)).kind == "BroadcastMismatch"
    region = region_from_json(outer({"Transpose": {"operand": swapped, "permutation": [1, 0]}}))
    x = integers(region)
    np.testing.assert_array_equal(evaluate_region(region, x)["C"], x["A"] + x["B"].T)
    round_trip(region)
    wrong = outer({"Transpose": {"operand": swapped, "permutation": [1, 1]}})
    assert refusal(wrong).kind == "InvalidPermutation"


@pytest.mark.spec("004-091")
def test_a_stream_of_negative_scale_is_refused() -> None:
    stream = {"stream": {"axes": ["k"], "score": read("S", "m", "k"), "weight": 1.0, "scale": -1.0}}
    data = document(
        "stream", ["m"], [buffer("S", "fp32", [3, 8])], [buffer("O", "fp32", [3])], [let("o", stream)]
    )
    error = refusal(data)
    assert (
        error.kind == "NonAssociativeTransform" and error.at["value"] == "region[0].lets[0].expr.stream.scale"
    )


@pytest.mark.parametrize("rounded", ["fp32", "i32", "half a float", None, 16])
def test_a_stream_rounds_to_fp16_or_bf16_or_not_at_all(rounded: Any) -> None:
    stream = {"axes": ["k"], "score": read("S", "m", "k"), "weight": 1.0, "scale": 1.0, "rounded": rounded}
    out = [buffer("O", "fp32", [3])]
    error = refusal(
        document("stream", ["m"], [buffer("S", "fp32", [3, 8])], out, [let("o", {"stream": stream})])
    )
    assert error.kind == "DTypeMismatch"
    assert error.at["value"] == "region[0].lets[0].expr.stream.rounded"


def test_sizes_of_reduce_axes_must_agree() -> None:
    body = {"mul": [read("A", "i", "k"), read("B", "k")]}
    inputs = [buffer("A", "fp32", [4, 8]), buffer("B", "fp32", [9])]
    data = document(
        "sizes", ["i"], inputs, [buffer("C", "fp32", [4])], [let("y", reduce("sum", ["k"], body))]
    )
    assert refusal(data).kind == "AxisSizeMismatch"
    assert (
        region_from_json({**data, "reduce_axes": [{"name": "k", "size": 8}]}).lets[-1].value.axes[0].size == 8
    )  # type: ignore[union-attr]
    data["lets"][0]["expr"]["reduce"]["body"] = {"mul": [read("A", "i", "2*k"), 1.0]}
    assert refusal(data).kind == "MalformedDocument"


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all nodes below ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield (*at, key)
        yield from places(each, (*at, key))


JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 2**70, 1.5, float("nan"), "", "v0", "i0", "i0*i1", "x%2", "nan", "inf", "fp16", "bool", [], {}, [[]],
    [None], {"read": {}}, {"const": 1, "dtype": "fp32"}, {"add": ["v0", "v1"]}, {"ge": ["i0", 0]}, "a b", 10**400, {"bits": 1},
)  # fmt: skip


def test_whatever_is_wrong_is_a_tinyc_error() -> None:
    """2,000 documents with a node removed, replaced by junk, or replaced by a piece of another."""
    rng = random.Random(0)
    valid = [region_to_json(loaded(name)) for name in DOCUMENTS]
    for seed in range(20):
        picks = random.Random(seed)
        program = tinyc.load(Maker(lambda n, rng=picks: rng.randrange(n), 8).document())  # type: ignore[misc]
        valid += [region_to_json(region) for region in base_program(program).regions]
    pieces = [value_at(data, place) for data in valid for place in places(data)]
    read_back = 0
    for _ in range(2000):
        data = copy.deepcopy(rng.choice(valid))
        place = rng.choice(list(places(data)))
        parent = value_at(data, place[:-1])
        way = rng.randrange(3)
        if way == 0:
            del parent[place[-1]]
        else:
            parent[place[-1]] = copy.deepcopy(rng.choice(JUNK if way == 1 else pieces))
        try:
            round_trip(region_from_json(data, path="region[0]"))
            read_back += 1
        except TinycError as error:
            assert error.at["value"].startswith("region[0]") and error.suggestion
    assert read_back > 20


def value_at(data: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        data = data[key]
    return data


def test_a_deep_document_is_refused() -> None:
    expr: Any = read("A", "i")
    for _ in range(200):
        expr = {"neg": [expr]}
    data = document("deep", ["i"], [buffer("A", "fp32", [4])], [buffer("C", "fp32", [4])], [let("y", "x")])
    data["lets"][0]["expr"] = expr
    with pytest.raises(TinycError) as caught:
        region_from_json(data)
    assert caught.value.kind == "MalformedDocument"
