"""Frontend JSON (document 004 §2): every op against numpy, and an error that names the node for every fault."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from frontend_helpers import integers, normal, run, same

import tinyc
from tinyc.frontend import load_frontend
from tinyc.frontend.frontend_json import frontend_to_tiny
from tinyc.ir.document import dumps

Json = dict[str, Any]

#: document 004 §2.2, as it stands there
GEMM: Json = {
    "signature": {
        "inputs": [
            {"tensor": "A", "role": "data", "mutability": "immutable"},
            {"tensor": "B", "role": "data", "mutability": "immutable"},
            {"tensor": "bias", "role": "param", "mutability": "immutable", "storage": "const_pool"},
        ],
        "outputs": [{"tensor": "C2"}],
    },
    "tensors": {
        "A": {"dtype": "fp16", "shape": ["M", "K"]},
        "B": {"dtype": "fp16", "shape": ["K", "N"]},
        "bias": {"dtype": "fp16", "shape": ["N"]},
        "C2": {"dtype": "fp16", "shape": ["M", "N"]},
    },
    "graph": [
        {"op": "GEMM", "name": "gemm", "inputs": ["A", "B"], "outputs": ["C0"], "attrs": {"acc_dtype": "fp32"}},
        {"op": "Elementwise", "name": "bias_add", "fn": "add", "inputs": ["C0", "bias"], "outputs": ["C1"]},
        {"op": "Elementwise", "name": "relu", "fn": "relu", "inputs": ["C1"], "outputs": ["C2"]},
    ],
}  # fmt: skip

_NAMES = {"float32": "fp32", "float16": "fp16", "int32": "i32", "bool": "bool"}


def document(arrays: dict[str, Any], *graph: Json, outputs: dict[str, Json] | None = None) -> Json:
    """A document whose inputs are ``arrays`` and whose result is ``y``."""
    tensors = {name: {"dtype": _NAMES[a.dtype.name], "shape": list(a.shape)} for name, a in arrays.items()}
    return {
        "signature": {"inputs": [{"tensor": name} for name in arrays], "outputs": [{"tensor": "y"}]},
        "tensors": {**tensors, **(outputs or {})},
        "graph": list(graph),
    }


def one(op: str, arrays: dict[str, Any], declared: Json | None = None, /, **options: Any) -> Any:
    """The result of a single node over ``arrays``."""
    fn = {"fn": options.pop("fn")} if "fn" in options else {}
    inputs = options.pop("inputs", list(arrays))
    node = {"op": op, "name": "node", **fn, "inputs": inputs, "outputs": ["y"], "attrs": options}
    program = load_frontend(document(arrays, node, outputs={"y": declared} if declared else None))
    (result,) = run(program, *arrays.values())
    return result


@pytest.mark.spec("004-013", "004-015", "004-016", "002-36")
@pytest.mark.parametrize("sizes", [(5, 3, 7), (1, 1, 1), (4, 4, 4), (6, 2, 1)])
def test_the_documents_gemm(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    program = load_frontend(GEMM)
    a, b, bias = (integers(*shape).astype(np.float16) for shape in ((m, k), (k, n), (n,)))
    (result,) = run(program, a, b, bias)
    same(result, np.maximum(a.astype("f4") @ b.astype("f4") + bias, np.float32(0)).astype(np.float16))
    assert [port.name for port in program.inputs] == ["A", "B", "bias"]
    assert [port.name for port in program.outputs] == ["C2"]
    assert program.node(program.inputs[2].node).arg["storage"] == "const_pool"
    # the epilogue applies to the fp32 accumulator: one CAST to fp16, at the very end
    narrow = [node.id for node in program.nodes if node.uop == "CAST" and node.arg["to"].value == "fp16"]
    assert narrow == [program.outputs[0].node]


@pytest.mark.spec("004-010")
def test_lowering_is_deterministic() -> None:
    texts = {dumps(frontend_to_tiny(copy.deepcopy(GEMM))) for _ in range(3)}
    assert len(texts) == 1
    first = frontend_to_tiny(GEMM)
    assert [node["id"] for node in first["uops"]] == [f"n{index}" for index in range(len(first["uops"]))]


def test_nodes_may_stand_in_any_order() -> None:
    shuffled = {**GEMM, "graph": GEMM["graph"][::-1]}
    assert dumps(frontend_to_tiny(shuffled)) == dumps(frontend_to_tiny(GEMM))


def test_gemm_attributes() -> None:
    a, b, c = integers(2, 4, 3), integers(5, 4, seed=1), integers(5, seed=2)
    ours = one("GEMM", {"a": a, "b": b, "c": c}, trans_a=True, trans_b=True, alpha=0.5, beta=2)
    same(ours, 0.5 * (a.swapaxes(1, 2) @ b.T) + 2 * c)


def test_results_keep_the_dtype_of_the_accumulator_unless_declared() -> None:
    a, b = integers(3, 4, dtype=np.float16), integers(4, 2, dtype=np.float16)
    assert one("GEMM", {"a": a, "b": b}).dtype == np.float32
    assert one("GEMM", {"a": a, "b": b}, {"dtype": "fp16", "shape": [3, 2]}).dtype == np.float16
    assert one("Softmax", {"a": a}).dtype == np.float16


def test_conv() -> None:
    x, w, b = integers(2, 4, 6, 5), integers(6, 2, 3, 2, seed=1), integers(6, seed=2)
    options = {"stride": [2, 1], "pad": [[1, 0], [0, 2]], "dilation": [1, 2], "groups": 2}
    ours = one("Conv", {"x": x, "w": w, "b": b}, **options)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 2)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, :, :, ::2]
    parts = [
        np.einsum("nchwij,ocij->nohw", windows[:, 2 * g : 2 * g + 2], w[3 * g : 3 * g + 3]) for g in range(2)
    ]
    same(ours + np.float32(0), np.concatenate(parts, 1) + b[:, None, None] + np.float32(0))
    assert one("Conv1D", {"x": x[:, :, 0], "w": w[:, :, 0]}, groups=2).shape == (2, 6, 4)
    assert one("Conv3D", {"x": x[..., None], "w": w[..., None]}, groups=2).shape == (2, 6, 4, 4, 1)


def test_undeclared_result_symbols_take_what_is_derived() -> None:
    doc = {
        "signature": {"inputs": ["X", "W"], "outputs": ["Y"]},
        "tensors": {
            "X": {"dtype": "fp32", "shape": [1, 2, "H", "H"]},
            "W": {"dtype": "fp32", "shape": [3, 2, 3, 3]},
            "Y": {"dtype": "fp32", "shape": [1, 3, "Ho", "Ho"]},
        },
        "graph": [
            {"op": "Conv", "name": "c", "inputs": ["X", "W"], "outputs": ["Y"], "attrs": {"stride": 2}}
        ],
    }
    shape = (1, 3, "(H+1)//2-1", "(H+1)//2-1")
    program = load_frontend(doc)
    assert program.types[program.outputs[0].node].shape == shape
    stated = load_frontend({**doc, "symbols": {"Ho": "(H-3)//2+1"}})
    assert stated.types[stated.outputs[0].node].shape == shape
    with pytest.raises(tinyc.TinycError) as caught:
        load_frontend({**doc, "symbols": {"Ho": "H//2"}})
    assert (caught.value.kind, caught.value.at["node"]) == ("AxisSizeMismatch", "c")
    doc["tensors"]["X"]["shape"][3] = "V"
    with pytest.raises(tinyc.TinycError, match="Ho"):
        load_frontend(doc)


def test_attention_with_heads_in_the_last_axis() -> None:
    q, k, v = normal(2, 3, 12), normal(2, 5, 6, seed=1), normal(2, 5, 6, seed=2)
    ours = one("Attention", {"q": q, "k": k, "v": v}, heads=4, kv_heads=2, scale=0.5)
    split = [x.reshape(2, -1, h, 3).swapaxes(1, 2).astype("f8") for x, h in ((q, 4), (k, 2), (v, 2))]
    kk, vv = (np.repeat(x, 2, 1) for x in split[1:])
    scores = np.exp(split[0] @ kk.swapaxes(2, 3) * 0.5)
    expected = (scores / scores.sum(-1, keepdims=True) @ vv).swapaxes(1, 2).reshape(2, 3, 12)
    same(ours, expected.astype("f4"), rtol=1e-5, atol=1e-6)


def test_attention_with_causal_and_boolean_mask() -> None:
    q, mask = normal(2, 4, 3), normal(4, 4) > -1
    ours = one("Attention", {"q": q, "mask": mask}, inputs=["q", "q", "q", "mask"], causal=True)
    scores = np.where(mask & np.tril(mask | True), q.astype("f8") @ q.swapaxes(1, 2) / 3**0.5, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    same(ours, (powers / powers.sum(-1, keepdims=True) @ q).astype("f4"), rtol=1e-5, atol=1e-6)


def test_norms_and_softmax() -> None:
    x, w, b = normal(3, 4), normal(4, seed=1), normal(4, seed=2)
    centred = x - x.mean(-1, keepdims=True)
    layer = centred / np.sqrt(x.var(-1, keepdims=True) + 0.1)
    close = {"rtol": 1e-5, "atol": 1e-6}
    same(one("LayerNorm", {"x": x}, eps=0.1), layer, **close)
    same(one("LayerNorm", {"x": x, "w": w, "b": b}, axis=[1], eps=0.1), layer * w + b, **close)
    rms = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(0.1))
    same(one("RMSNorm", {"x": x, "w": w}, eps=0.1), rms * w, **close)
    powers = np.exp(x)
    same(one("Softmax", {"x": x}, axis=0), powers / powers.sum(0), **close)
    same(one("LogSoftmax", {"x": x}), x - np.log(powers.sum(-1, keepdims=True)), **close)


REDUCTIONS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reduce(op: str) -> None:
    x = integers(3, 4, 2)
    same(one("Reduce", {"x": x}, op=op, axis=1), REDUCTIONS[op](x, axis=1))
    same(
        one("Reduce", {"x": x}, op=op.upper(), axes=[0, -1], keepdims=True),
        REDUCTIONS[op](x, (0, 2), keepdims=True),
    )
    same(one("Reduce", {"x": x}, op=op), np.asarray(REDUCTIONS[op](x)))


@pytest.mark.spec("002-38")
def test_reduce_over_a_named_size_and_to_a_dtype() -> None:
    x = np.full((64, 2), 2048, np.float16)
    doc = document({"x": x}, {"op": "Reduce", "name": "r", "inputs": ["x"], "outputs": ["y"],
                              "attrs": {"op": "sum", "axes": ["K"], "dtype": "fp32"}})  # fmt: skip
    doc["tensors"]["x"]["shape"] = ["K", "N"]
    same(run(load_frontend(doc), x)[0], np.full(2, 131072, np.float32))
    same(one("Reduce", {"x": x}, op="mean", axis=0), np.full(2, 2048, np.float16))


def test_pools_and_movement() -> None:
    x = -np.abs(normal(2, 3, 6, 6)) - 1
    split = x.reshape(2, 3, 3, 2, 3, 2)
    same(one("MaxPool", {"x": x}, kernel=2), split.max((3, 5)))
    same(one("AvgPool", {"x": x}, kernel=[2, 2]), split.mean((3, 5)), rtol=1e-6)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    same(one("MaxPool", {"x": x}, kernel=3, stride=2, pad=1), windows.max((-1, -2)))
    same(one("Transpose", {"x": x}, perm=[0, 2, 3, 1]), x.transpose(0, 2, 3, 1))
    same(one("Reshape", {"x": x}, shape=[6, -1]), x.reshape(6, -1))
    same(one("Concat", {"x": x, "z": x[:, :1]}, axis=1), np.concatenate([x, x[:, :1]], 1))


P, R = np.abs(normal(3, 4)) + np.float32(0.1), normal(4, seed=1)
R[0] = P[1, 0]  # equal once, so that < and <= differ
ELEMENTWISE: dict[str, Any] = {
    "add": P + R, "sub": P - R, "mul": P * R, "div": P / R, "pow": P**R, "max": np.maximum(P, R),
    "min": np.minimum(P, R), "less": P < R, "less_equal": P <= R, "greater": P > R, "greater_equal": P >= R,
    "equal": P == R, "not_equal": P != R, "eq": P == R, "ne": P != R, "neg": -P, "abs": P, "relu": P, "exp": np.exp(P),
    "exp2": np.exp2(P), "log": np.log(P), "log2": np.log2(P), "sqrt": np.sqrt(P), "rsqrt": 1 / np.sqrt(P),
    "recip": 1 / P, "sin": np.sin(P), "tanh": np.tanh(P), "sigmoid": 1 / (1 + np.exp(-P)),
    "silu": P / (1 + np.exp(-P)), "gelu": P / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (P + 0.044715 * P**3))),
}  # fmt: skip
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "max",
    "min",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "equal",
    "not_equal",
    "eq",
    "ne",
]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str) -> None:
    inputs = {"p": P, "r": R} if name in BINARY else {"p": P}
    expected = ELEMENTWISE[name].astype(np.bool_ if ELEMENTWISE[name].dtype == bool else np.float32)
    tolerance = {} if expected.dtype == bool else {"rtol": 2e-6, "atol": 2e-6}
    same(one("Elementwise", inputs, fn=name), expected, **tolerance)


def test_elementwise_where_cast_logic_and_numbers() -> None:
    b = normal(3, 4) > 0
    same(one("Elementwise", {"b": b, "p": P, "r": R}, fn="where"), np.where(b, P, R))
    same(
        one("Elementwise", {"b": b, "p": P}, inputs=["b", "p", -1.5], fn="where"),
        np.where(b, P, np.float32(-1.5)),
    )
    same(one("Elementwise", {"p": P}, inputs=[2, "p"], fn="sub"), 2 - P)
    same(one("Elementwise", {"p": P}, fn="cast", to="i32"), P.astype(np.int32))
    same(one("Elementwise", {"b": b}, fn="not"), ~b)
    same(one("Elementwise", {"b": b, "c": ~b}, fn="and"), b & ~b)
    same(one("Elementwise", {"b": b, "c": ~b}, fn="or"), b | ~b)


def test_floats_meet_in_fp32_and_the_declared_dtype_is_kept() -> None:
    half = R.astype(np.float16)
    same(one("Elementwise", {"p": P, "h": half}, fn="add"), P + half.astype(np.float32))
    declared = {"dtype": "fp16", "shape": [3, 4]}
    same(
        one("Elementwise", {"p": P, "h": half}, declared, fn="add"),
        (P + half.astype("f4")).astype(np.float16),
    )


def _changed(change: Any) -> Json:
    doc = copy.deepcopy(GEMM)
    change(doc)
    return doc


def _node(index: int, **fields: Any) -> Any:
    return lambda doc: doc["graph"][index].update(fields)


FAULTS: dict[str, tuple[Any, str, str | None]] = {
    "unknown op": (_node(0, op="Gemm"), "UnsupportedOp", "gemm"),
    "unknown fn": (_node(2, fn="rellu"), "UnsupportedOp", "relu"),
    "fn missing": (lambda d: d["graph"][2].pop("fn"), "InvalidArgument", "relu"),
    "unknown attribute": (_node(0, attrs={"acc": "fp32"}), "InvalidArgument", "gemm"),
    "attribute of a wrong kind": (_node(0, attrs={"trans_a": "yes"}), "InvalidArgument", "gemm"),
    "number where a bool is meant": (_node(0, attrs={"trans_a": 1}), "InvalidArgument", "gemm"),
    "unknown dtype": (_node(0, attrs={"acc_dtype": "fp64"}), "DTypeMismatch", "gemm"),
    "missing attribute": (_node(2, op="Reduce", attrs={}), "InvalidArgument", "relu"),
    "too few inputs": (_node(0, inputs=["A"]), "InvalidArgument", "gemm"),
    "too many inputs": (_node(2, inputs=["C1", "A"]), "InvalidArgument", "relu"),
    "a number for a tensor": (_node(0, inputs=["A", 2]), "InvalidArgument", "gemm"),
    "an input that nothing produces": (_node(1, inputs=["C0", "bais"]), "UnknownReference", "bias_add"),
    "two outputs": (_node(0, outputs=["C0", "C9"]), "MalformedDocument", "gemm"),
    "no outputs": (_node(0, outputs=[]), "MalformedDocument", "gemm"),
    "produced twice": (_node(1, outputs=["C0"]), "DuplicateId", "bias_add"),
    "an input produced": (_node(1, outputs=["A"]), "DuplicateId", "bias_add"),
    "a name twice": (_node(1, name="gemm"), "DuplicateId", "gemm"),
    "a cycle": (_node(1, inputs=["C2", "bias"]), "CyclicGraph", "bias_add"),
    "a node key that does not exist": (_node(1, input=["C0"]), "MalformedDocument", "bias_add"),
    "inputs no list": (_node(1, inputs="C0"), "MalformedDocument", "bias_add"),
    "attrs no object": (_node(1, attrs=[1]), "MalformedDocument", "bias_add"),
    "a node that is no object": (lambda d: d["graph"].append(7), "MalformedDocument", None),
    "inner sizes": (lambda d: d["tensors"]["B"].update(shape=["N", "K"]), "AxisSizeMismatch", "gemm"),
    "broadcast": (lambda d: d["tensors"]["bias"].update(shape=["Q"]), "BroadcastMismatch", "bias_add"),
    "declared shape": (lambda d: d["tensors"]["C2"].update(shape=["N", "M"]), "AxisSizeMismatch", "relu"),
    "declared rank": (lambda d: d["tensors"]["C2"].update(shape=["M"]), "AxisSizeMismatch", "relu"),
    "mixed dtypes": (lambda d: d["tensors"]["bias"].update(dtype="i32"), "DTypeMismatch", "bias_add"),
    "dtype of a tensor": (lambda d: d["tensors"]["A"].update(dtype="f8"), "DTypeMismatch", None),
    "shape of a tensor": (lambda d: d["tensors"]["A"].update(shape=["M", 0]), "InvalidShape", None),
    "shape no list": (lambda d: d["tensors"]["A"].update(shape=4), "InvalidShape", None),
    "shape missing": (lambda d: d["tensors"]["A"].pop("shape"), "MalformedDocument", None),
    "input not declared": (lambda d: d["tensors"].pop("A"), "UnknownReference", None),
    "declared and never used": (lambda d: d["tensors"].update(D=d["tensors"]["A"]), "UnknownReference", None),
    "output never produced": (lambda d: d["signature"]["outputs"].append({"tensor": "Z"}), "UnknownReference", None),
    "no outputs at all": (lambda d: d["signature"].update(outputs=[]), "MalformedDocument", None),
    "an input twice": (lambda d: d["signature"]["inputs"].append({"tensor": "A"}), "DuplicateId", None),
    "a mutable input": (lambda d: d["signature"]["inputs"][0].update(mutability="mutable"), "MalformedDocument", None),
    "a role that does not exist": (lambda d: d["signature"]["inputs"][0].update(role="x"), "MalformedDocument", None),
    "no signature": (lambda d: d.pop("signature"), "MalformedDocument", None),
    "no tensors": (lambda d: d.pop("tensors"), "MalformedDocument", None),
    "graph no list": (lambda d: d.update(graph={}), "MalformedDocument", None),
    "a key that does not exist": (lambda d: d.update(node=[]), "MalformedDocument", None),
    "symbols no object": (lambda d: d.update(symbols=[1]), "MalformedDocument", None),
}  # fmt: skip


@pytest.mark.spec("004-013", "004-016")
@pytest.mark.parametrize("name", FAULTS)
def test_faults_name_the_node(name: str) -> None:
    change, kind, node = FAULTS[name]
    with pytest.raises(tinyc.TinycError) as caught:
        load_frontend(_changed(change))
    assert (caught.value.kind, caught.value.at.get("node")) == (kind, node)
    assert caught.value.at["layer"] == "frontend"
    assert caught.value.suggestion


@pytest.mark.parametrize("document", [None, [], "graph", 3, {}, {"graph": []}])
def test_what_is_no_document(document: object) -> None:
    with pytest.raises(tinyc.TinycError) as caught:
        load_frontend(document)
    assert caught.value.kind == "MalformedDocument"


def test_marker_nodes_are_passed_over() -> None:
    marked = copy.deepcopy(GEMM)
    marked["graph"].insert(0, {"op": "Input", "name": "in", "outputs": ["A"]})
    marked["graph"].append({"op": "Output", "name": "out", "inputs": ["C2"]})
    assert dumps(frontend_to_tiny(marked)) == dumps(frontend_to_tiny(GEMM))


def test_a_long_chain_has_no_recursion_limit() -> None:
    x = normal(2)
    graph = [
        {"op": "Elementwise", "fn": "neg", "name": f"n{i}", "inputs": [f"t{i}"], "outputs": [f"t{i + 1}"]}
        for i in range(4000)
    ]
    graph[-1]["outputs"], graph[0]["inputs"] = ["y"], ["x"]
    same(run(load_frontend(document({"x": x}, *graph[::-1])), x)[0], x)


JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    2**70,
    0.5,
    float("nan"),
    "",
    "K",
    "i0",
    "M*N",
    [],
    [[]],
    ["x"],
    [["a", 1]],
    {},
    {"a": []},
]
CORPUS: list[Json] = [
    GEMM,
    document(
        {"x": normal(1, 4, 8, 8), "w": normal(4, 2, 3, 3)},
        {"op": "Conv", "name": "c", "inputs": ["x", "w"], "outputs": ["y0"],
         "attrs": {"stride": [2, 1], "pad": [[1, 0], 2], "dilation": 1, "groups": 2, "acc_dtype": "fp32"}},
        {"op": "MaxPool", "name": "p", "inputs": ["y0"], "outputs": ["y1"], "attrs": {"kernel": [2, 2], "stride": 1}},
        {"op": "Transpose", "name": "t", "inputs": ["y1"], "outputs": ["y2"], "attrs": {"perm": [1, 0, 2, 3]}},
        {"op": "Reshape", "name": "r", "inputs": ["y2"], "outputs": ["y3"], "attrs": {"shape": [4, -1]}},
        {"op": "Reduce", "name": "m", "inputs": ["y3"], "outputs": ["y"], "attrs": {"op": "max", "axes": [0]}},
    ),
    document(
        {"x": normal(2, 3, 8), "b": normal(3, 3) > 0},
        {"op": "Attention", "name": "a", "inputs": ["x", "x", "x", "b"], "outputs": ["y0"],
         "attrs": {"heads": 4, "kv_heads": 4, "scale": 0.5, "causal": True}},
        {"op": "LayerNorm", "name": "n", "inputs": ["y0"], "outputs": ["y1"], "attrs": {"axis": [-1], "eps": 1e-3}},
        {"op": "Elementwise", "name": "s", "fn": "pow", "inputs": ["y1", 2.5], "outputs": ["y2"]},
        {"op": "Concat", "name": "k", "inputs": ["y2", "y2"], "outputs": ["y"], "attrs": {"axis": 1}},
        outputs={"y": {"dtype": "fp16", "shape": [2, 6, 8]}},
    ),
]  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in _places(item, (*path, key)))]


@pytest.mark.parametrize("index", range(len(CORPUS)))
def test_whatever_a_value_is_replaced_by_only_a_tinyc_error_comes_out(index: int) -> None:
    refused = 0
    for *path, last in (place for place in _places(CORPUS[index]) if place):
        for junk in JUNK:
            damaged = copy.deepcopy(CORPUS[index])
            target = damaged
            for key in path:
                target = target[key]
            target[last] = junk
            try:
                load_frontend(damaged)
            except tinyc.TinycError:
                refused += 1
    assert refused > 300
    load_frontend(CORPUS[index])
