"""The Graph Signature as ABI: what each input and output is, kept from the document to the call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyc
from tinyc.ir.buffer import ALIGNMENT
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.document import dumps, program_from_document, program_to_document
from tinyc.ir.dtypes import DType
from tinyc.ir.region import Layout
from tinyc.ir.signature import Argument, Signature, signature_from_json, signature_of, signature_to_json
from tinyc.ir.verify import bind
from tinyc.runtime.arrays import bind_shapes, deliver, place_arguments, receive

FRONTEND: dict[str, Any] = {
    "signature": {
        "inputs": [
            {
                "tensor": "A",
                "role": "data",
                "mutability": "immutable",
                "alignment": 256,
                "layout": {"kind": "row_major"},
            },
            {"tensor": "B", "layout": "col_major"},
            {"tensor": "bias", "role": "param", "mutability": "immutable", "storage": "const_pool"},
        ],
        "outputs": [{"tensor": "C", "layout": {"kind": "col_major"}, "alignment": 512}],
    },
    "tensors": {
        "A": {"dtype": "fp32", "shape": ["M", 8]},
        "B": {"dtype": "fp32", "shape": [8, "N"], "alignment": 64},
        "bias": {"dtype": "fp32", "shape": ["N"]},
        "C": {"dtype": "fp32", "shape": ["M", "N"]},
    },
    "graph": [
        {
            "op": "GEMM",
            "name": "gemm",
            "inputs": ["A", "B"],
            "outputs": ["acc"],
            "attrs": {"acc_dtype": "fp32"},
        },
        {"op": "Elementwise", "name": "add", "fn": "add", "inputs": ["acc", "bias"], "outputs": ["C"]},
    ],
}

SHOWN = {
    "inputs": [
        {
            "tensor": "A",
            "dtype": "fp32",
            "shape": ["M", 8],
            "role": "data",
            "mutability": "immutable",
            "alignment": 256,
            "layout": {"kind": "row_major"},
        },
        {
            "tensor": "B",
            "dtype": "fp32",
            "shape": [8, "N"],
            "role": "data",
            "mutability": "immutable",
            "alignment": 64,
            "layout": {"kind": "col_major"},
        },
        {
            "tensor": "bias",
            "dtype": "fp32",
            "shape": ["N"],
            "role": "param",
            "mutability": "immutable",
            "alignment": 4,
            "layout": {"kind": "row_major"},
            "storage": "const_pool",
        },
    ],
    "outputs": [
        {
            "tensor": "C",
            "dtype": "fp32",
            "shape": ["M", "N"],
            "role": "data",
            "mutability": "immutable",
            "alignment": 512,
            "layout": {"kind": "col_major"},
        }
    ],
    "symbols": ["M", "N"],
}


# --- from the document -----------------------------------------------------------------------------------------


@pytest.mark.spec("004-013", "004-014", "004-136")
def test_what_a_frontend_document_says_is_kept() -> None:
    program = tinyc.load(FRONTEND)
    assert signature_to_json(signature_of(program)) == SHOWN
    bound = bind(program, {"M": 3, "N": 5})
    again = signature_of(bound)
    assert again.symbols == () and [each.shape for each in again.inputs] == [(3, 8), (8, 5), (5,)]
    assert [each.role for each in again.inputs] == ["data", "data", "param"]


@pytest.mark.spec("004-013", "004-136")
def test_it_goes_through_tiny_documents() -> None:
    program = tinyc.load(FRONTEND)
    text = dumps(program_to_document(program))
    again = program_from_document(json.loads(text))
    assert dumps(program_to_document(again)) == text and signature_of(again) == signature_of(program)
    entries = json.loads(text)["signature"]
    assert entries["inputs"][0].keys() == {"tensor", "node", "alignment"}, "what is usual is not said"
    assert entries["inputs"][2]["role"] == "param" and entries["outputs"][0]["layout"] == {
        "kind": "col_major"
    }


def test_a_program_without_a_signature_has_the_usual_one() -> None:
    program = tinyc.trace(lambda x, y: x @ y, tinyc.spec("fp16", (2, 3)), tinyc.spec("fp16", (3, 4)))
    signature = signature_of(program)
    assert signature.inputs == (
        Argument("x", DType.FP16, (2, 3), "data", "immutable", 2, Layout("row_major"), None),
        Argument("y", DType.FP16, (3, 4)),
    )
    assert [each.alignment for each in signature.outputs] == [ALIGNMENT]
    assert "symbols" not in signature_to_json(signature)


@pytest.mark.spec("004-015", "I-06")
def test_inputs_and_outputs_are_no_operations() -> None:
    """Pseudo-nodes that mark them change nothing: the signature says what goes in and out."""
    markers = [{"op": "Input", "outputs": ["A"]}, {"op": "Output", "inputs": ["C"]}]
    marked = {**FRONTEND, "graph": [markers[0], *FRONTEND["graph"], markers[1]]}
    assert program_to_document(tinyc.load(marked)) == program_to_document(tinyc.load(FRONTEND))
    uops = [node["uop"] for node in program_to_document(tinyc.load(FRONTEND))["uops"]]
    assert uops.count("INPUT") == 3 and not {"OUTPUT", "Input", "Output"} & set(uops)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("role", "weights", "MalformedDocument"),
        ("role", None, "MalformedDocument"),
        ("role", ["data"], "MalformedDocument"),
        ("mutability", "mutable", "MalformedDocument"),
        ("storage", 3, "MalformedDocument"),
        ("alignment", 3, "MalformedDocument"),
        ("alignment", 0, "MalformedDocument"),
        ("alignment", -4, "MalformedDocument"),
        ("alignment", True, "MalformedDocument"),
        ("alignment", 8192, "MalformedDocument"),
        ("alignment", "64", "MalformedDocument"),
        ("layout", "swizzled", "UnsupportedOp"),
        ("layout", {"kind": "swizzled", "params": {"swizzle": "xor32"}}, "UnsupportedOp"),
        ("layout", {"kind": "row_major", "params": {"pad": 1}}, "UnsupportedOp"),
        ("layout", {"kind": ["row_major"]}, "MalformedDocument"),
        ("layout", 3, "MalformedDocument"),
        ("layout", {}, "MalformedDocument"),
    ],
)
def test_what_makes_no_sense_is_refused_in_every_form(key: str, value: Any, kind: str) -> None:
    tiny = program_to_document(tinyc.load(FRONTEND))
    for document, read, layer in (
        (FRONTEND, tinyc.load, "frontend"),
        (tiny, program_from_document, "tiny"),
        ({"signature": SHOWN}, lambda given: signature_from_json(given["signature"]), "signature"),
    ):
        wrong = json.loads(json.dumps(document))
        wrong["signature"]["inputs"][1][key] = value
        with pytest.raises(TinycError) as caught:
            read(wrong)
        assert caught.value.kind == kind and f"signature.inputs[1].{key}" in caught.value.why
        assert caught.value.at["layer"] == layer


# --- JSON ------------------------------------------------------------------------------------------------------


def test_there_and_back() -> None:
    text = dumps(SHOWN)
    signature = signature_from_json(json.loads(text))
    assert dumps(signature_to_json(signature)) == text and signature == signature_of(tinyc.load(FRONTEND))
    inner = Signature(signature.inputs, signature.outputs, ("K", "M", "N"))
    schema = json.loads(
        (Path(__file__).parents[2] / "docs/schemas/signature.schema.json").read_text(encoding="utf-8")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(text), schema)
    jsonschema.validate(signature_to_json(inner), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**SHOWN, "outputs": []}, schema)
    assert signature_from_json(signature_to_json(inner)) == inner


def test_symbols_are_filled_in() -> None:
    signature = signature_from_json(SHOWN, shapes={"M": 4})
    assert signature.symbols == ("N",) and signature.outputs[0].shape == (4, "N")
    assert signature_from_json(SHOWN, shapes={"M": 4, "N": 2, "Q": 1}).symbols == ()


def test_little_is_needed() -> None:
    value = {"inputs": [], "outputs": [{"tensor": "y", "dtype": "F32", "shape": [2]}]}
    signature = signature_from_json(value)
    assert signature == Signature((), (Argument("y", DType.FP32, (2,)),))
    assert signature.outputs[0].alignment == 4


WRONG: list[tuple[Any, str]] = [
    (None, "s: is None"),
    ({"inputs": []}, "s.outputs: is None"),
    ({"inputs": [], "outputs": []}, "s.outputs: is empty"),
    ({"inputs": {}, "outputs": []}, "s.inputs: is {}"),
    ({"inputs": [], "outputs": [], "ports": []}, "s: has 'ports'"),
    ({"inputs": ["A"], "outputs": []}, "s.inputs[0]: is 'A'"),
    ({"inputs": [], "outputs": [{"tensor": "", "dtype": "fp32", "shape": []}]}, "s.outputs[0].tensor"),
    ({"inputs": [], "outputs": [{"tensor": "y", "dtype": "fp64", "shape": []}]}, "s.outputs[0]: dtype"),
    (
        {"inputs": [], "outputs": [{"tensor": "y", "dtype": "fp32", "shape": [0]}]},
        "s.outputs[0]: dimension 0",
    ),
    (
        {"inputs": [], "outputs": [{"tensor": "y", "dtype": "fp32", "shape": ["M+"]}]},
        "s.outputs[0]: dimension 0",
    ),
    ({"inputs": [], "outputs": [{"tensor": "y", "dtype": "fp32", "shape": 3}]}, "s.outputs[0]: shape"),
    (
        {"inputs": [], "outputs": [{"tensor": "y", "dtype": "fp32", "shape": [], "x": 1}]},
        "s.outputs[0]: has 'x'",
    ),
    ({"inputs": [], "outputs": [{"tensor": "y", "dtype": "fp32", "shape": []}] * 2}, "s.outputs[1].tensor"),
    ({**SHOWN, "symbols": "MN"}, "s.symbols"),
    ({**SHOWN, "symbols": ["1"]}, "s.symbols"),
]


@pytest.mark.parametrize(("value", "why"), WRONG, ids=[why for _, why in WRONG])
def test_a_mistake_is_refused_with_its_path(value: Any, why: str) -> None:
    with pytest.raises(TinycError) as caught:
        signature_from_json(value, "s")
    assert caught.value.why.startswith(why), caught.value.why


def test_a_size_below_one_after_symbols_are_filled_in() -> None:
    value = {"inputs": [], "outputs": [{"tensor": "y", "dtype": "fp32", "shape": ["M-4"]}]}
    assert signature_from_json(value, shapes={"M": 5}).outputs[0].shape == (1,)
    with pytest.raises(TinycError, match="below 1"):
        signature_from_json(value, shapes={"M": 4})


# --- at the call -----------------------------------------------------------------------------------------------

CALLED = signature_from_json(SHOWN)


@pytest.mark.spec("004-014", "004-136")
def test_a_signature_is_all_that_a_call_needs() -> None:
    a, b, bias = (np.ones(shape, np.float32) for shape in ((3, 8), (8, 5), (5,)))
    placed = place_arguments(CALLED, (a,), {"bias": bias, "B": b})
    assert [each is want for each, want in zip(placed, (a, b, bias), strict=True)] == [True] * 3
    arrays, kind, _ = receive(CALLED, placed)
    assert kind == "numpy" and bind_shapes(CALLED, arrays) == {"M": 3, "N": 5}
    with pytest.raises(TinycError, match="there is no input 'D'"):
        place_arguments(CALLED, (), {"D": a})
    with pytest.raises(TinycError, match="the program declares fp32"):
        receive(CALLED, [a.astype(np.float64), b, bias])
    with pytest.raises(TinycError) as caught:
        bind_shapes(CALLED, [a, b, np.ones(6, np.float32)])
    assert caught.value.kind == "InputMismatch" and "N" in caught.value.why
    with pytest.raises(TinycError) as caught:
        bind_shapes(Signature(CALLED.inputs, CALLED.outputs, ("K", "M", "N")), arrays)
    assert caught.value.kind == "UnboundSymbol" and "K" in caught.value.why


@pytest.mark.spec("004-136")
@given(st.integers(0, 600), st.sampled_from([4, 8, 64, 256, 4096]))
def test_inputs_are_as_aligned_as_they_are_declared(shift: int, alignment: int) -> None:
    """Copied only where they are not."""
    signature = Signature((Argument("x", DType.FP32, (7,), alignment=alignment),), ())
    room = np.zeros(2000, np.uint8)
    x = room[shift : shift + 28].view(np.float32)
    x[:] = np.arange(7)
    (array,), _, copied = receive(signature, [x])
    assert array.ctypes.data % alignment == 0
    np.testing.assert_array_equal(array, np.arange(7))
    lies = x.ctypes.data % alignment == 0
    assert copied == ({} if lies else {"x": 28}) and np.shares_memory(array, x) == lies


@pytest.mark.spec("004-136")
def test_outputs_lie_as_they_are_declared() -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    declared = [
        Argument("plain", DType.FP32, (2, 3)),
        Argument("columns", DType.FP32, (2, 3), layout=Layout("col_major"), alignment=1024),
        Argument("aligned", DType.FP32, (2, 3), alignment=4096),
        Argument("one", DType.FP32, (6,), layout=Layout("col_major")),
    ]
    outputs = [value, value, value, value.reshape(6)]
    plain, columns, aligned, one = deliver(Signature((), tuple(declared)), outputs, "numpy")
    for each in (plain, columns, aligned):
        np.testing.assert_array_equal(each, value)
    assert plain is value and one is outputs[3]
    assert columns.flags.f_contiguous and columns.ctypes.data % 1024 == 0
    assert aligned.flags.c_contiguous and aligned.ctypes.data % 4096 == 0


@pytest.mark.spec("004-136")
def test_a_compiled_program_keeps_its_signature() -> None:
    compiled = tinyc.optimize_and_compile(FRONTEND)
    draw = np.random.default_rng(3)
    a, b, bias = (draw.integers(-4, 5, shape).astype(np.float32) for shape in ((3, 8), (8, 5), (5,)))
    for given_b in (b, np.asfortranarray(b)):
        result = compiled(A=a, B=given_b, bias=bias)
        np.testing.assert_array_equal(result, a @ b + bias)
        assert result.flags.f_contiguous and result.ctypes.data % 512 == 0
    refs = {ref.name: ref for kernel in compiled.kernels for ref in kernel.region.inputs}
    assert {name: ref.alignment for name, ref in refs.items()} == {"A": 256, "B": 64, "bias": 4}


def test_the_examples_signatures_are_kept() -> None:
    folder = Path(__file__).parents[2] / "docs" / "examples"
    paths = sorted(folder.glob("*.frontend.json"))
    assert paths
    for path in paths:
        signature = signature_of(tinyc.load(path))
        written = json.loads(path.read_text(encoding="utf-8"))["signature"]
        for entry, argument in zip(written["inputs"], signature.inputs, strict=True):
            assert (entry["tensor"], entry["role"]) == (argument.name, argument.role)
            assert entry.get("storage") == argument.storage
