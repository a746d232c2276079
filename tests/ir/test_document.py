"""Reading and writing Tiny documents: the accepted forms, order, ids, signatures; and whatever else is thrown in."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_programs import CONV, GEMM, GEMM_004, failure, leaf, load, op

from tinyc.ir import (
    DType,
    Program,
    TinycError,
    bind,
    dumps,
    evaluate,
    parse_json,
    program_from_document,
    program_to_document,
)

T = leaf("t", [2, 3])


def text(program: Program) -> str:
    return dumps(program_to_document(program))


@pytest.mark.spec("002-34", "I-10")
def test_comments():
    value = parse_json('\ufeff{"a": "// no /* comment */", /* one\n two */ "b": [1, 2.5, "\\"//"] } // end')
    assert value == {"a": "// no /* comment */", "b": [1, 2.5, '"//']}
    with pytest.raises(TinycError, match="line 3, column 5"):
        parse_json("{ // one\n /* two\n */ x}")


@pytest.mark.spec("002-06", "002-07", "002-08", "002-09", "002-01", "I-01")
def test_the_canonical_document():
    program = load({**op("y", "ADD", "x", 0.1), "tag": "hint"}, leaf("x", ["M"], "float16"))
    assert program_to_document(program) == {
        "uops": [
            {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp16", "shape": ["M"]}},
            {"id": "y", "uop": "ADD", "src": ["x", 0.1], "tag": "hint"},
        ],
        "signature": {"inputs": [{"tensor": "x", "node": "x"}], "outputs": [{"tensor": "y", "node": "y"}]},
    }


@pytest.mark.spec("002-07", "I-10")
def test_numbers_survive_the_round_trip_bit_for_bit():
    values = [0, 0.0, -0.0, 0.1, 1e-45, 3.4e38, "inf", "-inf", "nan", -7]
    uops = [leaf("x", [2])]
    uops += [op(f"y{at}", "MUL", "x", value) for at, value in enumerate(values)]
    uops += [op("p", "PAD", "x", pad=[[1, 0]], value="-inf")]
    uops += [op("r", "REDUCE", "p", op="MAX", axes=[0], dtype="fp32", init=-0.0)]
    program = load(*uops)
    first = text(program)
    assert text(program_from_document(parse_json(first))) == first
    json.loads(first, parse_constant=lambda token: pytest.fail(f"{token} in strict JSON"))
    again = program_from_document(parse_json(first))
    got = [again.node(f"y{at}").src[1] for at in range(len(values))]
    assert repr(got) == repr([float(v) if isinstance(v, str) else v for v in values])


@pytest.mark.spec("004-010", "I-06")
def test_nodes_are_sorted_stably_and_ports_keep_document_order():
    uops = [
        leaf("a", [2]),
        leaf("b", [2]),
        op("n", "NEG", "a"),
        op("s", "ADD", "n", "b"),
        op("m", "NEG", "b"),
    ]
    assert [node.id for node in load(*uops).nodes] == [uop["id"] for uop in uops]
    program = load(uops[3], uops[4], uops[1], uops[0], uops[2])
    assert [node.id for node in program.nodes] == ["b", "m", "a", "n", "s"]
    assert [port.name for port in program.inputs] == ["b", "a"]
    assert [port.name for port in program.outputs] == ["s", "m"]


@pytest.mark.spec("002-06", "004-013", "004-015", "I-03", "I-06", "004-014")
def test_signatures():
    uops = [leaf("a", [2]), leaf("b", [2]), op("s", "SUB", "a", "b"), op("n", "NEG", "s")]
    signature = {
        "inputs": [{"tensor": "b", "role": "param", "mutability": "immutable"}, {"tensor": "A", "node": "a"}],
        "outputs": [{"tensor": "n"}, {"tensor": "difference", "node": "s"}, {"tensor": "b"}],
    }
    program = load(*uops, signature=signature)
    assert [(port.name, port.node) for port in program.inputs] == [("b", "b"), ("A", "a")]
    assert [(port.name, port.node) for port in program.outputs] == [
        ("n", "n"),
        ("difference", "s"),
        ("b", "b"),
    ]
    assert text(program_from_document(parse_json(text(program)))) == text(program)
    a, b = np.array([5, 6], np.float32), np.array([1, 2], np.float32)
    got = evaluate(program, {"A": a, "b": b})
    for value, wanted in zip(got, (b - a, a - b, b), strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_unused_inputs_are_inputs_and_no_outputs():
    program = load(leaf("a", [2]), leaf("unused", [3]), op("n", "NEG", "a"))
    assert [port.name for port in program.inputs] == ["a", "unused"]
    assert [port.name for port in program.outputs] == ["n"]
    assert [port.name for port in load(leaf("a", [2])).outputs] == ["a"]


@pytest.mark.parametrize(
    "shape, axes, wanted",
    [
        (["M", "K"], ["K"], (1,)),
        (["M", "K"], ["k"], (1,)),
        (["N", "n"], ["n"], (1,)),
        (["M", "2*K"], ["K*2"], (1,)),
        (["M", "K", "N"], ["N", 0], (0, 2)),
        (["M", 4], [-1], (1,)),
    ],
)
@pytest.mark.spec("002-38", "I-12")
def test_axes_by_name(shape, axes, wanted):
    program = load(leaf("x", shape), op("r", "REDUCE", "x", op="SUM", axes=axes, dtype="fp32"))
    assert program.node("r").arg["axes"] == wanted


@pytest.mark.spec("I-12")
@pytest.mark.parametrize(
    "shape, axes", [(["N", "N"], ["N"]), (["N", 4], ["M"]), (["N", 4], ["4"]), (["N", "N"], ["n"])]
)
def test_ambiguous_or_unknown_axis_names(shape, axes):
    error = failure(leaf("x", shape), op("r", "REDUCE", "x", op="SUM", axes=axes, dtype="fp32"))
    assert error.kind == "InvalidArgument"


@pytest.mark.spec("004-018", "002-25", "I-49")
def test_aliases():
    program = load(
        {"id": "x", "op": "OPS.INPUT", "arg": {"tensor_id": "x", "dtype": "F32", "shape": [4], "storage": "const_pool"}},
        {"id": "r", "uop": "Ops.REDUCE", "src": ["x"], "arg": {"op": "sum", "axes": [0], "acc_dtype": "float32"}},
        {"id": "c", "uop": "UOps.CAST", "src": ["r"], "arg": {"to": "half"}},
    )  # fmt: skip
    assert program.types["c"].dtype is DType.FP16
    assert program.node("x").arg["storage"] == "const_pool"
    assert text(program_from_document(parse_json(text(program)))) == text(program)


def test_new_ids_do_not_collide():
    program = load(
        leaf("a", [2, 3], "fp16"), leaf("p.lhs", [2, 3], "fp16"),
        op("p", "MUL", "a", "p.lhs"), op("s", "REDUCE", "p", op="SUM", axes=[1], dtype="fp32"),
        op("e", "EXPAND", "s", result_shape=[2, 2], broadcast_dimensions=[0]), leaf("e.reshape", [1]),
    )  # fmt: skip
    assert {"p.lhs_2", "p.rhs", "e.reshape_2"} <= program.by_id().keys()
    assert program.node("p").src == ("p.lhs_2", "p.rhs")


@pytest.mark.spec("I-22")
def test_inline_expressions(rng):
    x, y = rng.standard_normal((2, 5)).astype(np.float32)
    program = load(
        leaf("x", [5]), leaf("y", [5]),
        op("a", "WHERE", {"gt": "x, 0"}, {"mul": ["x", {"add": ["y", 1]}]}, {"sub": "0.5,y"}),
        op("b", "WHERE", {"lt": ["x", "y"]}, "x", "y"),
    )  # fmt: skip
    a, b = evaluate(program, {"x": x, "y": y})
    np.testing.assert_array_equal(a, np.where(x > 0, x * (y + np.float32(1)), np.float32(0.5) - y))
    np.testing.assert_array_equal(b, np.where(x < y, x, y))
    assert [port.name for port in program.outputs] == ["a", "b"]


@pytest.mark.spec("I-05")
def test_names_without_declaration_need_a_table():
    document = parse_json(GEMM_004)
    del document["tensors"]["bias"]
    with pytest.raises(TinycError, match="bias") as error:
        program_from_document(document)
    assert error.value.kind == "UnknownReference"
    document = parse_json(GEMM_004)
    document["tensors"]["C2"] = {"dtype": "fp32", "shape": ["M", "N"]}
    with pytest.raises(TinycError, match="C2") as error:
        program_from_document(document)
    assert error.value.kind == "DTypeMismatch"
    negated = {"uops": [{"uop": "NEG", "src": ["x"], "out": "y"}]}
    for shape in ([2, 4], [2], [2, 3, 1]):
        tensors = {"x": {"dtype": "fp32", "shape": [2, 3]}, "y": {"dtype": "fp32", "shape": shape}}
        with pytest.raises(TinycError) as error:
            program_from_document({**negated, "tensors": tensors})
        assert error.value.kind == "AxisSizeMismatch"


@pytest.mark.spec("004-028", "002-04", "I-05", "I-18", "I-19")
def test_the_form_of_document_004_broadcasts_by_expand():
    uops = [
        {"uop": "ADD", "src": ["x", "row"], "out": "y"},
        {"uop": "MUL", "src": ["y", "column"], "out": "z"},
        {"uop": "MAX", "src": ["z", 0], "out": "w"},
    ]
    f32 = {
        name: {"dtype": "fp32", "shape": s} for name, s in (("x", [2, 3]), ("row", [3]), ("column", [2, 1]))
    }
    program = program_from_document({"uops": uops, "tensors": f32})
    assert [node.uop for node in program.nodes].count("EXPAND") == 2
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    row, column = np.array([1, 2, 3], np.float32), np.array([[-1], [2]], np.float32)
    (w,) = evaluate(program, {"x": x, "row": row, "column": column})
    np.testing.assert_array_equal(w, np.maximum((x + row) * column, 0))
    # statistics that lost their axis would pair with the wrong one (I-18)
    square = {"x": {"dtype": "fp32", "shape": [3, 3]}, "m": {"dtype": "fp32", "shape": [3]}}
    with pytest.raises(TinycError) as error:
        program_from_document({"uops": [{"uop": "SUB", "src": ["x", "m"], "out": "y"}], "tensors": square})
    assert error.value.kind == "BroadcastMismatch"


@pytest.mark.spec("I-15")
def test_related_symbols():
    relations = parse_json(CONV)["symbols"]
    document = parse_json(CONV)
    del document["symbols"]
    with pytest.raises(TinycError) as error:
        program_from_document(document)
    assert error.value.kind == "AxisSizeMismatch" and "symbols" in error.value.suggestion
    program = program_from_document({**document, "symbols": relations})
    assert program.symbols == ("Cin", "G", "H", "N", "Rcout", "W")
    for bad in ({"M": "M+1"}, {"A": "B", "B": 2}, {"i0": 3}, {"a b": 3}):
        assert failure(T, symbols=bad).kind == "MalformedDocument"


@pytest.mark.spec("I-13")
@pytest.mark.parametrize(
    "size, kernel, stride, dilation", [(7, 3, 2, 1), (8, 3, 2, 1), (9, 3, 1, 2), (5, 5, 3, 1), (5, 3, 1, 2)]
)
def test_pool(size, kernel, stride, dilation):
    x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
    program = load(
        leaf("x", [2, "L"]), op("w", "POOL", "x", kernel=[kernel], stride=[stride], dilation=[dilation])
    )
    program = bind(program, {"L": size})
    (w,) = evaluate(program, {"x": x})
    reach = dilation * (kernel - 1) + 1
    wanted = np.lib.stride_tricks.sliding_window_view(x, reach, axis=1)[:, ::stride, ::dilation]
    np.testing.assert_array_equal(w, wanted)
    assert [node.uop for node in program.nodes] == ["INPUT", "VIEW"]


@pytest.mark.spec("I-11")
def test_contract_in_other_orders(rng):
    a, b = rng.integers(-3, 4, (2, 3, 4)).astype(np.int32), rng.integers(-3, 4, (5, 4, 2)).astype(np.int32)
    program = load(
        leaf("a", [2, 3, 4], "i32"), leaf("b", [5, 4, 2], "i32"),
        op("c", "CONTRACT", "a", "b", lhs_idx=list("bmk"), rhs_idx=list("nkb"), out_idx=list("nbm")),
    )  # fmt: skip
    (c,) = evaluate(program, {"a": a, "b": b})
    np.testing.assert_array_equal(c, np.einsum("bmk,nkb->nbm", a, b))
    wrong = {"lhs_idx": ["m", "k"], "rhs_idx": ["k", "n"], "out_idx": ["m", "n"]}
    error = failure(leaf("a", [2, 3]), leaf("b", [4, 5]), op("c", "CONTRACT", "a", "b", **wrong))
    assert error.kind == "AxisSizeMismatch" and "3 and 4" in error.why


def test_a_dumped_stage_loads():
    program = program_from_document(parse_json(GEMM))
    assert program_from_document({"tiny": program_to_document(program)}) == program


# --- size ----------------------------------------------------------------------------------------------------


def chain(count: int) -> list:
    return [leaf("n0", ["M"]), *(op(f"n{at}", "ADD", f"n{at - 1}", 1) for at in range(1, count + 1))]


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_chain_of_10000_nodes(shuffled):
    uops = chain(10_000)
    if shuffled:
        random.Random(3).shuffle(uops)
    program = program_from_document(parse_json(json.dumps({"uops": uops})))
    (y,) = evaluate(program, {"n0": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(y, np.full(3, 10_000, np.float32))
    assert text(program_from_document(parse_json(text(program)))) == text(program)


def test_a_cycle_of_10000_nodes_is_an_error():
    uops = [op(f"n{at}", "NEG", f"n{(at + 1) % 10_000}") for at in range(10_000)]
    assert failure(*uops).kind == "CyclicGraph"


def test_dead_values_are_freed():
    import tracemalloc

    x = np.zeros(1 << 18, np.float32)
    program = bind(load(*chain(100)), {"M": x.size})
    tracemalloc.start()
    evaluate(program, {"n0": x})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * x.nbytes


# --- anything at all -----------------------------------------------------------------------------------------

WORDS = ["x", "y", "uops", "id", "uop", "src", "arg", "out", "M", "i0", "fp16", "fp32", "i32", "bool", "inf", "gt",
         "INPUT", "ADD", "REDUCE", "EXPAND", "VIEW", "PAD", "SHRINK", "CONTRACT", "POOL", "M*N", "//", "SUM", "\ud800"]  # fmt: skip
KEYS = ["result_shape", "perm", "broadcast_dimensions", "pad", "value", "lo", "hi", "step", "axes", "index_map", "map",
        "to", "op", "dtype", "init", "tensor_id", "shape", "lhs_idx", "rhs_idx", "out_idx", "kernel", "stride"]  # fmt: skip
atoms = (
    st.none()
    | st.booleans()
    | st.integers(-3, 6)
    | st.integers()
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text()
)
values = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS + KEYS) | st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
uops = st.sampled_from(["INPUT", "VALID", "RESHAPE", "PERMUTE", "EXPAND", "PAD", "SHRINK", "FLIP", "VIEW", "CAST", "WHERE",
                        "ADD", "NEG", "REDUCE", "CONTRACT", "POOL", "CMPLT", "MUL", "POW"])  # fmt: skip
lists = st.lists(st.integers(-2, 5) | st.sampled_from(["M", "i0", "2*i1", "M+1"]), max_size=4)
nodes = st.fixed_dictionaries(
    {"uop": uops},
    optional={
        "id": st.sampled_from("abcde"),
        "out": st.sampled_from("abcde"),
        "src": st.lists(st.sampled_from("abxy") | st.floats() | st.integers() | values, max_size=3),
        "arg": st.dictionaries(st.sampled_from(KEYS), lists | st.lists(lists, max_size=3) | values, max_size=5) | values,
        "dtype": st.sampled_from(["fp16", "i32"]) | values,
        "tag": values,
    },
)  # fmt: skip
INPUTS = [leaf("x", ["M", 3]), leaf("y", [3, 1], "i32")]


def loads_or_complains(document) -> None:
    try:
        program = program_from_document(document)
    except TinycError as error:
        str(error).encode()
        error.to_json()
        return
    assert isinstance(program, Program)
    first = text(program)
    assert text(program_from_document(parse_json(first))) == first


@given(values)
def test_any_value_is_a_program_or_an_error(document):
    loads_or_complains(document)
    loads_or_complains({"uops": document})


@settings(max_examples=400)
@given(st.lists(nodes, min_size=1, max_size=4), st.none() | values, st.none() | values)
def test_any_nodes_are_a_program_or_an_error(extra, signature, tensors):
    document = {"uops": [*INPUTS, *extra]}
    if signature is not None:
        document["signature"] = signature
    if tensors is not None:
        document["tensors"] = tensors
    loads_or_complains(document)


ARGS = {
    "RESHAPE": {"result_shape": lists},
    "PERMUTE": {"perm": lists},
    "EXPAND": {"result_shape": lists},
    "FLIP": {"axes": lists},
    "SHRINK": {"lo": lists, "hi": lists},
    "PAD": {"pad": st.lists(st.tuples(*[st.integers(0, 2) | st.just("M")] * 2).map(list), max_size=3), "value": atoms},
    "VIEW": {"result_shape": lists, "index_map": st.fixed_dictionaries({"map": lists})},
    "CAST": {"to": st.sampled_from(["fp16", "bf16", "i32", "bool"])},
    "REDUCE": {"op": st.sampled_from(["SUM", "MAX"]), "axes": lists, "dtype": st.just("fp32"), "init": atoms},
    "POOL": {"kernel": lists, "stride": lists},
}  # fmt: skip


@settings(max_examples=400)
@given(
    st.sampled_from(sorted(ARGS)).flatmap(
        lambda uop: st.tuples(st.just(uop), st.fixed_dictionaries(ARGS[uop]))
    )
)
def test_any_movement_is_a_program_or_an_error(drawn):
    uop, arg = drawn
    for source in ("x", "y"):
        loads_or_complains({"uops": [*INPUTS, {"id": "z", "uop": uop, "src": [source], "arg": arg}]})


@given(st.text() | st.text(alphabet='{}[]",:/*\\ 0123456789.eE+-tfnu\n'))
def test_any_text_is_a_value_or_an_error(given_text):
    try:
        parse_json(given_text)
    except TinycError as error:
        assert error.kind == "MalformedDocument"


def test_python_values_nested_beyond_all_bounds():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    loads_or_complains({"uops": deep})
    loads_or_complains({"uops": [op("y", "NEG", {"neg": deep})]})
    endless: dict = {}
    endless["uops"] = [endless]
    loads_or_complains(endless)


def test_an_empty_list_of_nodes_is_not_said_to_be_missing() -> None:
    for document, said in (({}, "has no"), ({"uops": []}, "at least"), ({"uops": 3}, "at least")):
        with pytest.raises(TinycError, match=said):
            program_from_document(document)
