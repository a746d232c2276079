"""Regions as JSON and back: the document's own, what extraction builds, and every form, byte for byte."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import region_documents as docs
from random_programs import Maker
from region_documents import (
    DOCUMENTS,
    Json,
    broadcast,
    buffer,
    cast,
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
from tinyc.codegen.streams import without_streams
from tinyc.extract.base import base_program
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType, from_bits
from tinyc.ir.index import axis
from tinyc.ir.region import Binary, Cast, Const, Layout, Let, Read, Reduce, Within
from tinyc.ir.region_json import region_from_json, region_to_json
from tinyc.ir.verify import bind

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.json"))
F16, F32 = DType.FP16, DType.FP32


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


@pytest.mark.spec("I-27")
def test_the_conv_guard_as_the_document_has_it_is_kept_as_it_is() -> None:
    """That it admits a row below X is for the proof that every Read stays inside; here nothing is repaired."""
    region = region_from_json(docs.conv({"add": ["H", 2]}, {"add": ["W", 2]}), DOCUMENTS["conv_odd"][1])
    assert [each.value.hi for each in region.lets if isinstance(each.value, Within)] == [7, 7]


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


@pytest.mark.parametrize(("rounded", "numpy"), [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_a_stream_that_rounds_round_trips(rounded: str, numpy: Any) -> None:
    weight = read("V", "k", "n")
    stream = {"axes": ["k"], "score": read("S", "m", "k"), "weight": weight, "scale": 1.5, "rounded": rounded}
    inputs, out = [buffer("S", "fp32", [3, 8]), buffer("V", "fp32", [8, 2])], [buffer("O", "fp32", [3, 2])]
    region = region_from_json(document("stream", ["m", "n"], inputs, out, [let("o", {"stream": stream})]))
    round_trip(region)
    x = {name: array / np.float32(7) for name, array in integers(region).items()}
    power = np.exp2((x["S"] - x["S"].max(axis=1, keepdims=True)) * np.float32(1.5))
    shares = power / power.sum(axis=1, keepdims=True)
    got = evaluate_region(region, x)["O"]
    np.testing.assert_allclose(got, shares.astype(numpy).astype(np.float32) @ x["V"], rtol=1e-6, atol=1e-6)
    assert np.abs(got - shares @ x["V"]).max() > 1e-5
    plain = evaluate_region(without_streams(region), x)["O"]
    np.testing.assert_allclose(got, plain, rtol=1e-6, atol=1e-6)


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
