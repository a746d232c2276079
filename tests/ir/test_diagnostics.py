"""Each diagnostic of Tiny IR: provoked once, and not by the nearest program that is right."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from ir_programs import failure, leaf, load, op

from tinyc.ir import CODES, Node, Port, TinycError, bind, parse_json, pieces, verify, warnings

X = leaf("x", ["M", 4])
T = leaf("t", [2, 3])
B = leaf("b", [2, 3], "bool")
I = leaf("i", [2, 3], "i32")  # noqa: E741

BAD = [
    # (kind, a word of the message, nodes)
    ("BroadcastMismatch", "[M, 4]", [X, T, op("y", "ADD", "x", "t")]),
    ("BroadcastMismatch", "[3]", [T, leaf("r", [3]), op("y", "ADD", "t", "r")]),
    ("BroadcastMismatch", "[2, 1]", [T, leaf("r", [2, 1]), op("y", "ADD", "t", "r")]),
    ("BroadcastMismatch", "[2, 4]", [T, op("y", "EXPAND", "t", result_shape=[2, 4])]),
    ("BroadcastMismatch", "[0]", [T, op("y", "EXPAND", "t", result_shape=[2, 3], broadcast_dimensions=[0])]),
    ("BroadcastMismatch", "[0, 0]", [T, op("y", "EXPAND", "t", result_shape=[2, 3], broadcast_dimensions=[0, 0])]),
    ("BroadcastMismatch", "[0, 5]", [T, op("y", "EXPAND", "t", result_shape=[2, 3], broadcast_dimensions=[0, 5])]),
    ("BroadcastMismatch", "[3]", [T, op("y", "EXPAND", "t", result_shape=[3])]),
    ("AxisSizeMismatch", "6", [T, op("y", "RESHAPE", "t", result_shape=[5])]),
    ("AxisSizeMismatch", "4*M", [X, op("y", "RESHAPE", "x", result_shape=["M", 2])]),
    ("InvalidPermutation", "[0, 0]", [T, op("y", "PERMUTE", "t", perm=[0, 0])]),
    ("InvalidPermutation", "[0]", [T, op("y", "PERMUTE", "t", perm=[0])]),
    ("InvalidPermutation", "[0, 2]", [T, op("y", "PERMUTE", "t", perm=[0, 2])]),
    ("AccDtypeMissing", "dtype", [T, op("y", "REDUCE", "t", op="SUM", axes=[0])]),
    ("DTypeMismatch", "fp32 and i32", [T, I, op("y", "ADD", "t", "i")]),
    ("DTypeMismatch", "bool", [B, op("y", "ADD", "b", "b")]),
    ("DTypeMismatch", "bool", [B, op("y", "SUB", "b", "b")]),
    ("DTypeMismatch", "bool", [B, op("y", "MUL", "b", "b")]),
    ("DTypeMismatch", "bool", [B, op("y", "NEG", "b")]),
    ("DTypeMismatch", "bool", [B, op("y", "RELU", "b")]),
    *[("DTypeMismatch", "i32", [I, op("y", uop, "i")]) for uop in ("EXP2", "LOG2", "SQRT", "RSQRT", "RECIP", "SIN")],
    ("DTypeMismatch", "i32", [I, op("y", "FDIV", "i", "i")]),
    ("DTypeMismatch", "i32", [I, op("y", "POW", "i", 2)]),
    ("DTypeMismatch", "0.5", [I, op("y", "ADD", "i", 0.5)]),
    ("DTypeMismatch", "-inf", [I, op("y", "MAX", "i", "-inf")]),
    ("DTypeMismatch", "2147483648", [I, op("y", "ADD", "i", 2**31)]),
    ("DTypeMismatch", "True", [T, op("y", "ADD", "t", True)]),
    ("DTypeMismatch", "immediates", [T, op("y", "ADD", 1.0, 2.0)]),
    ("DTypeMismatch", "immediate", [T, op("y", "NEG", 1.0)]),
    ("DTypeMismatch", "immediates", [B, op("y", "WHERE", "b", 1.0, 2.0)]),
    ("DTypeMismatch", "condition", [T, op("y", "WHERE", "t", "t", "t")]),
    ("DTypeMismatch", "value", [I, op("y", "PAD", "i", pad=[[0, 1], [0, 0]], value=0.5)]),
    ("DTypeMismatch", "bool", [B, op("y", "REDUCE", "b", op="SUM", axes=[0], dtype="bool")]),
    ("DTypeMismatch", "fp32 elements in i32", [T, op("y", "REDUCE", "t", op="MAX", axes=[0], dtype="i32")]),
    ("DTypeMismatch", "fp16", [T, {**op("y", "NEG", "t"), "dtype": "fp16"}]),
    ("NeutralInvalid", "-inf", [I, op("y", "REDUCE", "i", op="MAX", axes=[0], dtype="i32", init="-inf")]),
    ("UnknownUop", "CONV", [T, op("y", "CONV", "t")]),
    ("UnknownUop", "None", [T, {"id": "y", "src": ["t"]}]),
    ("UnknownUop", "frob", [T, op("y", "NEG", {"frob": ["t"]})]),
    ("DuplicateId", "'t'", [T, T]),
    ("DuplicateId", "'t'", [T, {**T, "id": "u"}]),
    ("UnknownReference", "'q'", [T, op("y", "NEG", "q")]),
    ("CyclicGraph", "'a' -> 'b' -> 'a'", [T, op("a", "ADD", "t", "b"), op("b", "NEG", "a"), op("c", "NEG", "b")]),
    ("CyclicGraph", "'a' -> 'a'", [op("a", "NEG", "a")]),
    ("InvalidArgument", "perm", [T, op("y", "PERMUTE", "t")]),
    ("InvalidArgument", "shape", [{"id": "t", "uop": "INPUT", "arg": {"tensor_id": "t", "dtype": "fp32"}}]),
    ("InvalidArgument", "fp64", [leaf("t", [2], "fp64")]),
    ("InvalidArgument", "valeu", [T, op("y", "PAD", "t", pad=[[0, 0], [0, 0]], valeu=1)]),
    ("InvalidArgument", "sources", [T, op("y", "ADD", "t")]),
    ("InvalidArgument", "sources", [T, op("y", "EXPAND", "t", "t", result_shape=[2, 3])]),
    ("InvalidArgument", "MEAN", [T, op("y", "REDUCE", "t", op="MEAN", axes=[0], dtype="fp32")]),
    ("InvalidArgument", "empty", [T, op("y", "REDUCE", "t", op="SUM", axes=[], dtype="fp32")]),
    ("InvalidArgument", "twice", [T, op("y", "REDUCE", "t", op="SUM", axes=[1, -1], dtype="fp32")]),
    ("InvalidArgument", "axis 2", [T, op("y", "FLIP", "t", axes=[2])]),
    ("InvalidArgument", "step", [T, op("y", "SHRINK", "t", lo=[0, 0], hi=[2, 3], step=[1, 0])]),
    ("InvalidArgument", "hi 4", [T, op("y", "SHRINK", "t", lo=[0, 0], hi=[2, 4])]),
    ("InvalidArgument", "lo -1", [T, op("y", "SHRINK", "t", lo=[0, -1], hi=[2, 3])]),
    ("InvalidArgument", "lo 2, hi 2", [T, op("y", "SHRINK", "t", lo=[0, 2], hi=[2, 2])]),
    ("InvalidArgument", "flat", [T, op("y", "PAD", "t", pad=[0, 0, 1])]),
    ("InvalidArgument", "-1", [T, op("y", "PAD", "t", pad=[[0, 0], [-1, 0]])]),
    ("InvalidArgument", "flat", [leaf("X", [1, 2, 5, 5]), op("y", "PAD", "X", pad=[0, 0, 1, 1, 1, 1])]),
    ("InvalidArgument", "window", [T, op("y", "POOL", "t", kernel=[4])]),
    ("InvalidArgument", "i2", [T, op("y", "VIEW", "t", result_shape=[2, 3], index_map={"map": ["i0", "i2"]})]),
    ("InvalidArgument", "multiplies", [T, op("y", "VIEW", "t", result_shape=[2, 2], index_map={"map": ["i0*i1", "i0"]})]),
    ("InvalidArgument", "only by a positive", [T, op("y", "VIEW", "t", result_shape=[2], index_map={"map": ["i0//0", "i0"]})]),
    ("InvalidArgument", "index_map", [T, op("y", "VIEW", "t", result_shape=[2])]),
    ("MissingDivGuard", "'i0 % 2'", [T, op("y", "VIEW", "t", result_shape=[2], index_map={"map": ["i0 % 2", 0]})]),
    ("OutOfBoundsMap", "0 to 3", [T, op("y", "VIEW", "t", result_shape=[4], index_map={"map": [0, "i0"]})]),
    ("OutOfBoundsMap", "-1 to 0", [T, op("y", "VIEW", "t", result_shape=[2], index_map={"map": ["i0-1", 0]})]),
    ("OutOfBoundsMap", "0 to 2", [T, op("y", "VIEW", "t", result_shape=[6], index_map={"map": ["i0//2", 0]})]),
    *[("InvalidShape", word, [leaf("t", [dim])]) for dim, word in
      ((0, "below 1"), (-3, "below 1"), (2.5, "2.5"), (True, "True"), (None, "None"), ("inf", "inf"), ("nan", "nan"),
       (float("inf"), "inf"), ("2*", "ends"), ("M; N", "unexpected"), ("M-M", "below 1"), ("-M", "below 1"),
       ("i0", "axis"), (2**63, "2^63-1"), (10**5000, "2^63-1"), ("M//N", "positive integer"), ("(" * 99, "nested"),
       ("M(2)", "unexpected"), ("", "ends"))],
    ("InvalidShape", "2^63-1", [leaf("t", [2**32, 2**31])]),
    ("InvalidShape", "2^63-1", [leaf("t", [1]), op("y", "EXPAND", "t", result_shape=[2**40, 2**40])]),
    ("InvalidShape", "rank 17", [leaf("t", [1] * 17)]),
    ("InvalidShape", "MK", [leaf("t", "MK")]),
    ("MalformedDocument", "id", [{"uop": "INPUT"}]),
    ("MalformedDocument", "inf", [leaf("inf", [2])]),
    ("MalformedDocument", "colour", [{**T, "colour": 1}]),
    ("MalformedDocument", "src", [T, {"id": "y", "uop": "NEG", "src": "t"}]),
    ("MalformedDocument", "None", [T, op("y", "ADD", "t", None)]),
]  # fmt: skip


@pytest.mark.spec(
    "002-04",
    "002-10",
    "002-13",
    "002-26",
    "002-28",
    "002-29",
    "002-30",
    "002-31",
    "002-32",
    "004-030",
    "002-05",
    "I-19",
    "I-23",
)
@pytest.mark.parametrize("kind, word, uops", BAD, ids=[f"{at}-{bad[0]}" for at, bad in enumerate(BAD)])
def test_each_fault_has_its_diagnostic(kind, word, uops):
    error = failure(*uops)
    assert (error.kind, error.code) == (kind, CODES[kind])
    assert word in error.why
    assert set(error.to_json()) >= {"code", "kind", "at", "why", "suggestion"}


@pytest.mark.spec("002-29")
def test_broadcast_mismatch_carries_both_shapes_and_the_node():
    error = failure(X, T, op("y", "ADD", "x", "t"))
    assert error.code == "E1001"
    assert error.details == {"lhs_shape": ["M", 4], "rhs_shape": [2, 3]}
    assert error.at == {"layer": "tiny", "op": "ADD", "node": "y"}


def test_all_kinds_of_tiny_ir_are_covered():
    provoked = {bad[0] for bad in BAD} | {"ExcessivePiecewise", "UnboundSymbol", "UnsupportedOp"}
    assert {kind for kind, code in CODES.items() if code.startswith("E10")} <= provoked


@pytest.mark.spec("004-032", "004-033", "I-20", "I-21")
def test_flip_negative_coefficients_and_steps_are_no_errors():
    load(T, op("f", "FLIP", "t", axes=[0, 1]))
    load(T, op("v", "VIEW", "t", result_shape=[3], index_map={"map": [1, "2-i0"]}))
    program = load(leaf("t", [10]), op("s", "SHRINK", "t", lo=[1], hi=[10], step=[4]))
    assert program.types["s"].shape == (3,)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1,]", '{"a":1,"a":2}', "NaN", "[Infinity]", "-Infinity", "1 2", "/* open", "1e999", "9" * 5000,
     "[" * 100_000, '{"a":' * 5000, '"\\x"', "'a'", "// only a comment", "[1] x", '"abc', "{1: 2}"],
)  # fmt: skip
@pytest.mark.spec("002-34")
def test_malformed_text(text):
    with pytest.raises(TinycError) as error:
        parse_json(text)
    assert error.value.kind == "MalformedDocument"


@pytest.mark.parametrize(
    "document", [None, 3, [], "uops", {}, {"uops": []}, {"uops": {}}, {"uops": [3]}, {"uops": [T], "x": 1}]
)
def test_malformed_documents(document):
    from tinyc.ir import program_from_document

    with pytest.raises(TinycError) as error:
        program_from_document(document)
    assert error.value.kind == "MalformedDocument"


def test_the_signature_is_checked():
    uops = [T, op("y", "NEG", "t")]
    assert failure(*uops, signature={"outputs": [{"tensor": "z"}]}).kind == "UnknownReference"
    assert failure(*uops, signature={"inputs": [{"tensor": "z"}]}).kind == "UnknownReference"
    assert failure(*uops, signature={"inputs": []}).kind == "MalformedDocument"
    assert failure(*uops, signature={"inputs": ["t", "t"]}).kind == "DuplicateId"
    assert failure(*uops, signature={"outputs": []}).kind == "MalformedDocument"
    assert failure(*uops, signature={"outputs": ["y", "y"]}).kind == "DuplicateId"
    assert failure(*uops, signature=[]).kind == "MalformedDocument"


# --- symbols -------------------------------------------------------------------------------------------------


@pytest.mark.spec("002-11")
def test_bind():
    program = load(leaf("x", ["M", "N"]), op("y", "PAD", "x", pad=[[0, 1], [0, "N"]]))
    assert program.symbols == ("M", "N")
    assert program.types["y"].shape == ("M+1", "2*N")
    half = bind(program, {"N": 4})
    assert half.symbols == ("M",) and half.types["y"].shape == ("M+1", 8)
    full = bind(half, {"M": np.int64(3)})
    assert full.types["y"].shape == (4, 8) and full.symbols == ()
    assert full.node("y").arg["pad"] == ((0, 1), (0, 4))


@pytest.mark.parametrize(
    "values, kind",
    [({"Q": 3}, "UnknownReference"), ({"M": 0}, "InvalidShape"), ({"M": -1}, "InvalidShape"),
     ({"M": 2.0}, "InvalidShape"), ({"M": "3"}, "InvalidShape"), ({"M": True}, "InvalidShape"),
     ({"M": 2**63}, "InvalidShape"), ({"M": 2**62}, "InvalidShape")],
)  # fmt: skip
def test_bind_refuses(values, kind):
    with pytest.raises(TinycError) as error:
        bind(load(X, op("y", "NEG", "x")), values)
    assert error.value.kind == kind


def test_what_symbols_hide_is_checked_when_they_are_bound():
    view = load(leaf("x", ["M"]), op("y", "VIEW", "x", result_shape=[5], index_map={"map": ["i0"]}))
    bind(view, {"M": 5})
    with pytest.raises(TinycError) as error:
        bind(view, {"M": 4})
    assert error.value.kind == "OutOfBoundsMap"
    shrink = load(leaf("x", ["M"]), op("y", "SHRINK", "x", lo=[2], hi=["M"]))
    assert shrink.types["y"].shape == ("M-2",)
    assert bind(shrink, {"M": 5}).types["y"].shape == (3,)
    with pytest.raises(TinycError, match="lo 2, hi 2"):
        bind(shrink, {"M": 2})


def test_equal_expressions_are_one_shape():
    program = load(leaf("x", ["2*M+2*N"]), leaf("y", ["(N+M)*2"]), op("z", "ADD", "x", "y"),
                   op("r", "RESHAPE", "z", result_shape=[2, "M+N"]))  # fmt: skip
    assert program.types["r"].shape == (2, "M+N")


# --- pieces --------------------------------------------------------------------------------------------------


def pads(count: int):
    chain = [leaf("p0", [3])]
    return [*chain, *(op(f"p{at}", "PAD", f"p{at - 1}", pad=[[1, 0]]) for at in range(1, count + 1))]


@pytest.mark.spec("002-33", "004-027", "I-09")
def test_pieces():
    program = load(*pads(20), op("s", "SHRINK", "p20", lo=[1], hi=[9]), op("n", "NEG", "s"))
    counts = pieces(program)
    assert (counts["p0"], counts["p1"], counts["p20"], counts["s"], counts["n"]) == (1, 2, 21, 21, 1)
    (warning,) = warnings(program)
    assert (warning.code, warning.at["node"], warning.details["pieces"]) == ("W2101", "p16", 17)
    assert warnings(load(*pads(15))) == ()
    load(*pads(255))
    assert failure(*pads(256)).kind == "ExcessivePiecewise"
    with pytest.raises(TinycError):
        verify(program.nodes, program.inputs, program.outputs, max_pieces=20)


def test_nodes_built_by_hand_are_verified_too():
    nodes = [
        Node("y", "ADD", ("x", np.float64(1.5)), {}),
        Node("x", "INPUT", (), {"tensor_id": "x", "dtype": "f32", "shape": [np.int64(2), "M + M"]}),
    ]
    program = verify(nodes, [Port("x", "x")], [Port("y", "y")])
    assert [node.id for node in program.nodes] == ["x", "y"]
    assert program.types["y"].shape == (2, "2*M")
    assert type(program.node("y").src[1]) is float
    with pytest.raises(TinycError) as error:
        verify([Node("y", "ADD", ("x", object()), {}), nodes[1]], [Port("x", "x")], [Port("y", "y")])  # type: ignore[arg-type]
    assert error.value.kind == "MalformedDocument"


@pytest.mark.parametrize(
    "copied", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy]
)
def test_an_error_survives_pickling_and_copying(copied: Callable[[TinycError], TinycError]) -> None:
    error = TinycError("BroadcastMismatch", "because", "do this", {"node": "n1"}, lhs_shape=[2, 3])
    again = copied(error)
    assert again.to_json() == error.to_json()
    assert str(again) == str(error)


@pytest.mark.parametrize(
    "entry",
    [
        "9999999999999999999999*i0//99999999999999999999999",
        "4611686018427387904*i0//9223372036854775807",
        "i0+4611686018427387904*(i0//4)",
    ],
)
def test_index_arithmetic_beyond_62_bits_is_refused(entry: str) -> None:
    """It would wrap in the 64-bit integers of numpy and of generated code."""
    error = failure(leaf("x", [4]), op("y", "VIEW", "x", result_shape=[4], index_map=[entry]))
    assert error.kind == "InvalidArgument" and "62 bits" in error.why
