"""Regions as JSON: the document's own, what extraction builds, byte for byte; and what is refused, with its place."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import region_documents as docs
from random_programs import Maker
from region_documents import DOCUMENTS, Json, broadcast, buffer, cast, document, let, read, reduce

import tinyc
from tinyc.codegen.playback import evaluate_region
from tinyc.extract.base import base_program
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType, from_bits
from tinyc.ir.index import axis
from tinyc.ir.jsonc import dumps, parse_json
from tinyc.ir.region import Binary, Cast, Const, Layout, Let, Read, Reduce, Region, Within
from tinyc.ir.region_json import region_from_json, region_to_json
from tinyc.ir.verify import bind

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.json"))
F16, F32 = DType.FP16, DType.FP32


def loaded(name: str) -> Region:
    make, shapes = DOCUMENTS[name]
    return region_from_json({"region": make()}, shapes)


def round_trip(region: Region) -> None:
    """What is written comes back as the same Region, names of lets and all, and is written as the same bytes."""
    text = dumps(region_to_json(region))
    again = region_from_json(parse_json(text))
    assert again == region
    assert dumps(region_to_json(again)) == text


def integers(region: Region) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {ref.name: rng.integers(-3, 4, ref.shape).astype(ref.dtype.numpy) for ref in region.inputs}


# ---- the documents of §6.8 ----


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.spec("004-089", "I-27", "I-32", "I-36")
def test_documents_round_trip(name: str) -> None:
    round_trip(loaded(name))


@pytest.mark.spec("004-073", "I-36")
def test_gemm_plays_back() -> None:
    region = loaded("gemm")
    x = integers(region)
    acc = x["A"].astype(np.float32) @ x["B"].astype(np.float32)
    want = np.maximum(acc + x["bias"].astype(np.float32), 0).astype(np.float16)
    np.testing.assert_array_equal(evaluate_region(region, x)["C"], want)


@pytest.mark.parametrize("name", ["conv_odd", "conv_even"])
@pytest.mark.spec("004-074", "I-27")
def test_conv_plays_back(name: str) -> None:
    region = loaded(name)
    x = integers(region)
    padded = np.pad(x["X"].astype(np.float32), ((0, 0), (0, 0), (1, 1), (1, 1)))
    n, co, ho, wo = region.outputs[0].shape
    want = np.zeros((n, co, ho, wo), np.float32)
    for i in range(3):
        for j in range(3):
            taps = padded[:, :, i : i + 2 * ho - 1 : 2, j : j + 2 * wo - 1 : 2]
            want += np.einsum("nchw,oc->nohw", taps, x["W"][:, :, i, j].astype(np.float32))
    np.testing.assert_array_equal(evaluate_region(region, x)["Y"], want.astype(np.float16))


@pytest.mark.parametrize("name", ["attention", "attention_oblong"])
@pytest.mark.spec("004-075", "I-32")
def test_attention_plays_back(name: str) -> None:
    region = loaded(name)
    x = integers(region)
    score = x["Q"] @ x["K"].swapaxes(2, 3)
    power = np.exp(score - score.max(axis=3, keepdims=True))
    want = power / power.sum(axis=3, keepdims=True)
    np.testing.assert_allclose(evaluate_region(region, x)["P"], want, rtol=1e-3, atol=1e-3)
    assert region.deferred == ("P",)


@pytest.mark.spec("004-089")
def test_gemm_is_written_as_the_document_has_it() -> None:
    written = region_to_json(loaded("gemm"))
    a, b = cast(read("A", "m", "k"), "fp32"), cast(read("B", "k", "n"), "fp32")
    bias = broadcast(cast(read("bias", "n"), "fp32"), [5, 4], [1])
    assert [each["expr"] for each in written["lets"]] == [
        reduce("sum", ["k"], {"mul": [a, b]}),
        {"add": ["acc", bias]},
        {"relu": ["c1"]},
    ]
    assert [each["let"] for each in written["lets"]] == ["acc", "c1", "c2"]
    assert written["yield"] == [{"from": "c2", "to": "C", "cast": "fp16"}]
    assert written["iters"] == [{"name": "m", "size": 5}, {"name": "n", "size": 4}]
    assert written["reduce_axes"] == [{"name": "k", "size": 7}]
    assert written["inputs"][1] == buffer("B", "fp16", [7, 4], "col_major")
    assert written["outputs"][0]["materialize"] == "gmem"


@pytest.mark.spec("I-08")
def test_a_product_is_computed_in_the_dtype_that_accumulates() -> None:
    region = loaded("gemm")
    product = next(each for each in region.lets if isinstance(each.value, Binary))
    assert product.value.op == "MUL" and product.dtype is F32  # type: ignore[union-attr]
    x = {
        "A": np.full((5, 7), 300, np.float16),
        "B": np.full((7, 4), 300, np.float16),
        "bias": np.zeros(4, np.float16),
    }
    out = evaluate_region(replace(region, yields=region.yields), x)["C"]
    assert np.isinf(out).all()  # 630,000 in fp32, beyond fp16 only when it is stored
    x["bias"] -= np.float16(60000)
    x["A"][:, 1:] = 0
    assert (evaluate_region(region, x)["C"] == np.float16(30000)).all()


@pytest.mark.spec("I-32")
def test_an_axis_that_two_reduces_share_becomes_two() -> None:
    """The score is written once, over n1; the maximum and the sum each run over an axis of their own."""
    data = docs.attention()
    row = broadcast("Mrow", ["B", "H", "M", "N"], [0, 1, 2])
    data["lets"][5] = let("A2", {"exp": [{"sub": ["S1", row]}]})
    data["lets"][6]["expr"]["reduce"]["axes"] = ["n1"]
    del data["lets"][4]
    region = region_from_json(data, DOCUMENTS["attention"][1])
    bound = [axis.name for each in region.lets if isinstance(each.value, Reduce) for axis in each.value.axes]
    assert bound == ["d", "d1", "n1", "d1_2", "n1_2"]
    x = integers(region)
    np.testing.assert_array_equal(
        evaluate_region(region, x)["P"], evaluate_region(loaded("attention"), x)["P"]
    )
    round_trip(region)


# ---- what tinyc writes ----


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.spec("004-089")
def test_examples_round_trip(path: Path) -> None:
    program = tinyc.load(path)
    sizes = {name: 4 + 2 * number for number, name in enumerate(program.symbols)}
    for region in base_program(bind(program, sizes) if sizes else program).regions:
        round_trip(region)


@pytest.mark.parametrize(
    "name", ["gemm_bias_relu", "conv3x3_s2_p1", "attention_causal", "softmax", "sum_columns_rows"]
)
def test_extracted_regions_round_trip(name: str) -> None:
    program = tinyc.load(next(path for path in EXAMPLES if path.stem == name))
    compiled = tinyc.optimize_and_compile(program, shapes=dict.fromkeys(program.symbols, 6))
    for kernel in compiled.kernels:
        round_trip(kernel.region)


@pytest.mark.spec("004-089")
def test_random_regions_round_trip() -> None:
    for seed in range(120):
        rng = random.Random(seed)
        program = tinyc.load(Maker(lambda n, rng=rng: rng.randrange(n), 8).document())  # type: ignore[misc]
        for region in base_program(program).regions:
            round_trip(region)


def test_names_that_a_user_gave_stay() -> None:
    lets = [
        let("x", read("A", "i")),
        let("y", {"neg": ["x"]}),
        let("v7", {"add": ["x", "y"]}),
        let("v9", {"mul": ["v7", 2]}),
    ]
    region = region_from_json(
        document("named", ["i"], [buffer("A", "fp32", [4])], [buffer("C", "fp32", [4])], lets)
    )
    assert [each.name for each in region.lets] == ["x", "y", "v7", "v3", "v9"]
    round_trip(region)


def test_a_name_that_is_taken_is_not_given_again() -> None:
    lets = [let("v1", {"add": [read("A", "i"), read("A", "3-i")]}), let("v0", {"neg": ["v1"]})]
    region = region_from_json(
        document("taken", ["i"], [buffer("A", "fp32", [4])], [buffer("C", "fp32", [4])], lets)
    )
    assert [each.name for each in region.lets] == ["v0_", "v1_", "v1", "v0"]
    round_trip(region)


# ---- constants, indices, guards ----


def constant(value: Any, dtype: str) -> int:
    lets = [let("c", value), let("d", broadcast("c", [2], []))]
    region = region_from_json(document("constant", ["i"], [], [buffer("C", dtype, [2])], lets))
    round_trip(region)
    (found,) = [each.value.bits for each in region.lets if isinstance(each.value, Const)]
    return found


@pytest.mark.parametrize(
    ("value", "dtype", "bits"),
    [
        (-0.0, "fp32", 0x80000000),
        ("inf", "fp16", 0x7C00),
        ("-INF", "bf16", 0xFF80),
        ("nan", "fp32", 0x7FC00000),
        (0.1, "fp32", 0x3DCCCCCD),
        (-1, "i32", 0xFFFFFFFF),
        (True, "bool", 1),
        (2, "fp16", 0x4000),
    ],
)
def test_constants(value: Any, dtype: str, bits: int) -> None:
    assert constant({"const": value, "dtype": dtype}, dtype) == bits


@pytest.mark.parametrize(("bits", "dtype"), [("0x7fc00001", "fp32"), ("0xfe37", "fp16"), ("0x7fa1", "bf16")])
def test_a_nan_keeps_its_payload(bits: str, dtype: str) -> None:
    assert constant({"const": "nan", "dtype": dtype, "bits": bits}, dtype) == int(bits, 16)


def test_numbers_are_as_short_as_their_dtype_allows() -> None:
    for bits in (0x3FB8AA3B, 0x00000001, 0x7F7FFFFF, 0x33D6BF95):
        value = from_bits(bits, F32)
        assert constant({"const": value, "dtype": "fp32"}, "fp32") == bits
    lets = [let("y", {"mul": [read("A", "i"), 1.4426950408889634]})]
    region = region_from_json(
        document("short", ["i"], [buffer("A", "fp32", [4])], [buffer("C", "fp32", [4])], lets)
    )
    assert region_to_json(region)["lets"][0]["expr"]["mul"][1] == 1.442695


def index_of(entry: Any) -> str:
    inputs, outputs = [buffer("A", "fp32", [99])], [buffer("C", "fp32", [4, 6])]
    region = region_from_json(
        document("index", ["i", "j"], inputs, outputs, [let("y", read("A", entry))]), {"N": 6}
    )
    (found,) = [each.value for each in region.lets if isinstance(each.value, Read)]
    return str(found.map[0])


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("2*i+j-1", "2*i+j-1"),
        ("j - -2 * (i + 3)", "2*i+j+6"),
        ("(i+j)//2*3", "3*((i+j)//2)"),
        ("(4*i+2*j)//2", "(4*i+2*j)//2"),
        ("N*i+j", "6*i+j"),
        ({"add": [{"mul": [2, "i"]}, {"add": ["j", -1]}]}, "2*i+j-1"),
        ({"sub": [{"floordiv": [{"add": ["i", "j"]}, 3]}, "N"]}, "(i+j)//3-6"),
    ],
)
@pytest.mark.spec("004-072")
def test_indices(entry: Any, text: str) -> None:
    assert index_of(entry) == text


@pytest.mark.parametrize(
    "entry",
    ["i*j", "i%2", "i//0", "i//j", "2**i", "q", "", "((i)", "1.5", True, None, ["i"], {"xor": ["i", 1]}],
)
def test_no_index(entry: Any) -> None:
    with pytest.raises(TinycError) as caught:
        index_of(entry)
    assert caught.value.at["value"].startswith("region.lets[0].expr.read.map[0]")


@pytest.mark.parametrize(
    ("pred", "guards"),
    [
        ({"ge": ["i-1", 0]}, [("i-1", 0, 3)]),
        ({"lt": ["i", "N"]}, [("i", 0, 2)]),
        ({"and": [{"gt": ["i", 0]}, {"le": ["i", 2]}]}, [("i", 1, 3)]),
        ({"and": [{"ge": [3, "i"]}]}, [("i", 0, 4)]),
        ({"eq": ["2*i", 4]}, [("2*i", 4, 5)]),
        (
            {"and": [{"ge": ["i", 1]}, {"and": [{"ge": ["3-i", 1]}, {"lt": ["3-i", 4]}]}]},
            [("i", 1, 4), ("-i+3", 1, 4)],
        ),
    ],
)
@pytest.mark.spec("004-074")
def test_guards(pred: Json, guards: list[tuple[str, int, int]]) -> None:
    chosen = {"select": {"pred": pred, "then": read("A", "i"), "else": -1.0}}
    data = document(
        "guard", ["i"], [buffer("A", "fp32", [4])], [buffer("C", "fp32", [4])], [let("y", chosen)]
    )
    region = region_from_json(data, {"N": 2})
    found = [each.value for each in region.lets if isinstance(each.value, Within)]
    assert [(str(each.index), each.lo, each.hi) for each in found] == guards
    round_trip(region)
    x = np.arange(4, dtype=np.float32)
    keep = [all(low <= eval_index(text, i) < high for text, low, high in guards) for i in range(4)]
    np.testing.assert_array_equal(evaluate_region(region, {"A": x})["C"], np.where(keep, x, -1))


def eval_index(text: str, i: int) -> int:
    return {"i-1": i - 1, "i": i, "2*i": 2 * i, "-i+3": 3 - i}[text]


@pytest.mark.spec("004-070")
def test_memref() -> None:
    data = docs.gemm()
    layout = {"kind": "swizzled", "params": {"vec_bytes": 16, "swizzle": "xor32"}}
    data["inputs"][0]["memref"] |= {"alignment": 256, "noalias": False, "layout": layout}
    region = region_from_json(data, DOCUMENTS["gemm"][1])
    ref = region.inputs[0]
    assert (ref.alignment, ref.noalias) == (256, False)
    assert ref.layout == Layout("swizzled", (("swizzle", "xor32"), ("vec_bytes", 16)))
    round_trip(region)
    x = integers(region)
    np.testing.assert_array_equal(evaluate_region(region, x)["C"], evaluate_region(loaded("gemm"), x)["C"])


def test_a_stream_round_trips() -> None:
    score, weight = read("S", "m", "k"), read("V", "k", "n")
    stream = {"stream": {"axes": ["k"], "score": "s", "weight": weight, "scale": 1.5}}
    total = {"stream": {"axes": ["k"], "score": "s", "weight": 1.0, "scale": 1.5}}
    lets = [
        let("s", score),
        let("o", stream),
        let("l", total),
        let("y", {"div": ["o", broadcast("l", [3, 2], [0])]}),
    ]
    inputs = [buffer("S", "fp32", [3, 8]), buffer("V", "fp32", [8, 2])]
    region = region_from_json(document("stream", ["m", "n"], inputs, [buffer("O", "fp32", [3, 2])], lets))
    round_trip(region)
    x = integers(region)
    power = np.exp2((x["S"] - x["S"].max(axis=1, keepdims=True)) * 1.5)
    want = power @ x["V"] / power.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(evaluate_region(region, x)["O"], want, rtol=1e-5, atol=1e-6)


# ---- what is refused ----


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


@pytest.mark.spec("I-27")
def test_the_conv_guard_as_the_document_has_it_is_kept_as_it_is() -> None:
    """That it admits a row below X is for the proof that every Read stays inside; here nothing is repaired."""
    region = region_from_json(docs.conv({"add": ["H", 2]}, {"add": ["W", 2]}), DOCUMENTS["conv_odd"][1])
    assert [each.value.hi for each in region.lets if isinstance(each.value, Within)] == [7, 7]


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


def test_thousands_of_lets_round_trip() -> None:
    lets = [Let("v0", F16, Read("A", (axis("i"),))), Let("v1", F32, Cast("v0"))]
    lets += [
        Let(f"v{n}", F32, Binary("ADD", f"v{n - 1}", f"v{n - 2 if n > 2 else 1}")) for n in range(2, 3000)
    ]
    small = region_from_json(
        document(
            "many",
            ["i"],
            [buffer("A", "fp16", [4])],
            [buffer("C", "fp32", [4])],
            [let("y", cast(read("A", "i"), "fp32"))],
        )
    )
    last = replace(small.yields[0], value="v2999")
    round_trip(replace(small, lets=tuple(lets), yields=(last,)))
