"""The Regions of document 004 §6.8 in their corrected forms (I-27, I-32, I-36), and pieces to write others with."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np

from tinyc.ir.jsonc import dumps, parse_json
from tinyc.ir.region import Region
from tinyc.ir.region_json import region_from_json, region_to_json

Json = dict[str, Any]


def buffer(name: str, dtype: str, shape: list[Any], kind: str = "row_major", **more: Any) -> Json:
    memref = {"dtype": dtype, "shape": shape, "alignment": 128, "noalias": True, "layout": {"kind": kind}}
    return {"name": name, "memref": memref, **more}


def read(tensor: str, *index: Any) -> Json:
    return {"read": {"tensor": tensor, "map": list(index)}}


def cast(operand: Any, to: str) -> Json:
    return {"cast": {"operand": operand, "to": to}}


def broadcast(operand: Any, shape: list[Any], places: list[int]) -> Json:
    return {"BroadcastInDim": {"operand": operand, "result_shape": shape, "broadcast_dimensions": places}}


def reduce(op: str, axes: list[Any], body: Any, init: Any = 0.0, dtype: str = "fp32") -> Json:
    return {"reduce": {"op": op, "axes": axes, "init": init, "dtype": dtype, "body": body}}


def let(name: str, expr: Any) -> Json:
    return {"let": name, "expr": expr}


def document(
    name: str, iters: Iterable[Any], inputs: list[Json], outputs: list[Json], lets: list[Json], **more: Any
) -> Json:
    """A Region that stores its last let in its first output, or as ``more`` says."""
    listed = [each if isinstance(each, dict) else {"name": each} for each in iters]
    last = {"from": lets[-1]["let"], "to": outputs[0]["name"]}
    data = {
        "name": name,
        "iters": listed,
        "inputs": inputs,
        "outputs": outputs,
        "lets": lets,
        "yield": [last],
    }
    return copy.deepcopy({**data, **more})


def gemm() -> Json:
    """§6.8.1, with the cast that fp16 bias needs beside an fp32 accumulator (I-36)."""
    bias = cast(read("bias", "n"), "fp32")
    return document(
        "gemm_bias_relu",
        [{"name": "m", "size": "M"}, {"name": "n", "size": "N"}],
        [
            buffer("A", "fp16", ["M", "K"]),
            buffer("B", "fp16", ["K", "N"], "col_major"),
            buffer("bias", "fp16", ["N"]),
        ],
        [buffer("C", "fp16", ["M", "N"], materialize="gmem")],
        [
            let("acc", reduce("sum", ["k"], {"mul": [read("A", "m", "k"), read("B", "k", "n")]})),
            let("c1", {"add": ["acc", broadcast(bias, ["M", "N"], [1])]}),
            let("c2", {"relu": ["c1"]}),
        ],
        **{"yield": [{"from": "c2", "to": "C", "cast": "fp16"}]},
    )


def conv(above: Any = "H", beside: Any = "W") -> Json:
    """§6.8.2, with the guard of the unpadded X (I-27); ``above`` and ``beside`` are its upper bounds."""
    y = {"add": [{"mul": [2, "ho"]}, {"add": ["kh", -1]}]}
    x = {"add": [{"mul": [2, "wo"]}, {"add": ["kw", -1]}]}
    inside = {"and": [{"ge": [y, 0]}, {"lt": [y, above]}, {"ge": [x, 0]}, {"lt": [x, beside]}]}
    guarded = {"select": {"pred": inside, "then": read("X", "n", "ci", y, x), "else": 0.0}}
    body = {"mul": [read("W", "co", "ci", "kh", "kw"), guarded]}
    return document(
        "conv3x3_s2_p1",
        ["n", "co", "ho", "wo"],
        [buffer("X", "fp16", ["N", "Ci", "H", "W"]), buffer("W", "fp16", ["Co", "Ci", 3, 3])],
        [buffer("Y", "fp16", ["N", "Co", "(H-1)//2+1", "(W-1)//2+1"], materialize="gmem")],
        [let("y_acc", reduce("sum", ["ci", "kh", "kw"], body))],
        **{"yield": [{"from": "y_acc", "to": "Y", "cast": "fp16"}]},
    )


def attention() -> Json:
    """§6.8.3: the score is computed over a fresh axis for each reduction of it, and what is per row is broadcast
    (I-32)."""
    rows, full = ["B", "H", "M", "N"], [0, 1, 2]

    def score(axis: str, depth: str) -> Json:
        body = {"mul": [read("Q", "b", "h", "m", depth), read("K", "b", "h", axis, depth)]}
        return reduce("sum", [depth], body)

    return document(
        "attention_row_softmax",
        ["b", "h", "m", "n"],
        [buffer("Q", "fp32", ["B", "H", "M", "D"]), buffer("K", "fp32", ["B", "H", "N", "D"])],
        [buffer("P", "fp16", rows, materialize="deferred")],
        [
            let("S", score("n", "d")),
            let("S1", score("n1", "d1")),
            let("Mrow", reduce("max", ["n1"], "S1", "-INF")),
            let("A", {"exp": [{"sub": ["S", broadcast("Mrow", rows, full)]}]}),
            let("S2", score("n2", "d2")),
            let("A2", {"exp": [{"sub": ["S2", broadcast("Mrow", rows, full)]}]}),
            let("Z", reduce("sum", ["n2"], "A2")),
            let("Pval", {"div": ["A", broadcast("Z", rows, full)]}),
        ],
        **{"yield": [{"from": "Pval", "to": "P", "cast": "fp16"}]},
    )


DOCUMENTS = {
    "gemm": (gemm, {"M": 5, "N": 4, "K": 7}),
    "conv_odd": (conv, {"N": 2, "Ci": 3, "H": 5, "W": 5, "Co": 4}),
    "conv_even": (conv, {"N": 1, "Ci": 2, "H": 6, "W": 4, "Co": 3}),
    "attention": (attention, {"B": 2, "H": 3, "M": 3, "N": 3, "D": 4}),
    "attention_oblong": (attention, {"B": 1, "H": 2, "M": 4, "N": 6, "D": 5}),
}


def loaded(name: str) -> Region:
    """A document of DOCUMENTS at its sizes."""
    make, shapes = DOCUMENTS[name]
    return region_from_json({"region": make()}, shapes)


def round_trip(region: Region) -> None:
    """What is written comes back as the same Region, names of lets and all, and is written as the same bytes."""
    text = dumps(region_to_json(region))
    again = region_from_json(parse_json(text))
    assert again == region
    assert dumps(region_to_json(again)) == text


def integers(region: Region) -> dict[str, np.ndarray]:
    """Small ones for every input, so that sums of some are exact."""
    rng = np.random.default_rng(5)
    return {ref.name: rng.integers(-3, 4, ref.shape).astype(ref.dtype.numpy) for ref in region.inputs}
