"""The documents' own examples where they go wrong as written: the corrected form is right on odd and equal sizes, the
form as written is refused. Never silently wrong."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from end_checks import check_exact, check_values, integer_inputs, normal_inputs
from ir_programs import ATTENTION

import tinyc
from tinyc.ir.document import parse_json

Document = dict[str, Any]


def conv_document(height: int, width: int) -> Document:
    """3x3, stride 2, pad 1, batch 2, 3 -> 4 channels, as one VIEW of the padded input (002 §5.2, I-16)."""
    out = [2, 4, (height - 1) // 2 + 1, (width - 1) // 2 + 1]
    window = [2, 4, *out[2:], 3, 3, 3]
    view = {"map": ["i0", "i4", "2*i2+i5", "2*i3+i6"]}
    return {
        "uops": [
            {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "X", "dtype": "fp32", "shape": [2, 3, height, width]}},
            {"id": "w", "uop": "INPUT", "arg": {"tensor_id": "W", "dtype": "fp32", "shape": [4, 3, 3, 3]}},
            {"id": "p", "uop": "PAD", "src": ["x"], "arg": {"pad": [[0, 0], [0, 0], [1, 1], [1, 1]], "value": 0}},
            {"id": "v", "uop": "VIEW", "src": ["p"], "arg": {"result_shape": window, "index_map": view}},
            {"id": "k", "uop": "RESHAPE", "src": ["w"], "arg": {"result_shape": [1, 4, 1, 1, 3, 3, 3]}},
            {"id": "e", "uop": "EXPAND", "src": ["k"], "arg": {"result_shape": window}},
            {"id": "m", "uop": "MUL", "src": ["v", "e"]},
            {"id": "y", "uop": "REDUCE", "src": ["m"], "arg": {"op": "SUM", "axes": [4, 5, 6], "dtype": "fp32"}},
        ]
    }  # fmt: skip


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = (x.shape[2] - 1) // 2 + 1, (x.shape[3] - 1) // 2 + 1
    out = np.zeros((x.shape[0], w.shape[0], rows, columns), np.float32)
    for kh in range(3):
        for kw in range(3):
            part = padded[:, :, kh : kh + 2 * rows - 1 : 2, kw : kw + 2 * columns - 1 : 2]
            out += np.einsum("nchw,oc->nohw", part, w[:, :, kh, kw])
    return out


@pytest.mark.spec("I-27")
@pytest.mark.parametrize(("height", "width"), [(5, 5), (6, 6), (5, 6), (6, 5), (1, 2)])
def test_the_guard_of_the_convolution_holds_at_both_borders(height: int, width: int) -> None:
    """X[H] and X[-1] are never read, and the tap h = 0, kh = 0 is not lost."""
    compiled = tinyc.optimize_and_compile(conv_document(height, width))
    generator = np.random.default_rng(0)
    # the arrays end where a page of NaN would begin: what is read beside them shows
    x = generator.integers(-4, 5, (2, 3, height, width)).astype(np.float32)
    w = generator.integers(-4, 5, (4, 3, 3, 3)).astype(np.float32)
    np.testing.assert_array_equal(compiled(x, w), convolved(x, w))
    # playback
    for row, column in ((0, 0), (height - 1, width - 1)):
        probe = np.zeros_like(x)
        probe[0, 0, row, column] = 1
        np.testing.assert_array_equal(compiled(probe, w), convolved(probe, w))


def attention(size: int | None = None) -> Document:
    """002 §5.3 in its corrected form (I-17, I-18). ``size``: of every symbol, as an integer in the document itself."""
    document: Document = parse_json(ATTENTION)
    for node in document["uops"] if size is not None else ():
        arg = node.get("arg", {})
        for key in ("shape", "result_shape"):
            if key in arg:
                arg[key] = [size if isinstance(dim, str) else dim for dim in arg[key]]
        if "axes" in arg:
            arg["axes"] = [-1]  # D of n7, N of the scores: the last axis of each
    return document


@pytest.mark.spec("I-17", "I-18")
@pytest.mark.parametrize("size", [1, 2, 3, 8, 17])
@pytest.mark.parametrize("bound", [False, True])
def test_corrected_attention_matches_numpy_where_sizes_are_equal(size: int, bound: bool) -> None:
    """M = N = H: a statistic that pairs with the wrong axis has the right shape here."""
    program = tinyc.load(attention(None if bound else size))
    compiled = tinyc.optimize_and_compile(program, shapes=dict.fromkeys(program.symbols, size))
    inputs = normal_inputs(compiled.program, seed=size)
    q, k = (array.astype(np.float32) for array in inputs.values())
    scores = np.einsum("bhmd,bhnd->bhmn", q, k)
    exponents = np.exp(scores - scores.max(-1, keepdims=True))
    want = exponents / exponents.sum(-1, keepdims=True)
    np.testing.assert_allclose(compiled(**inputs).astype(np.float32), want, rtol=2e-3, atol=1e-3)
    check_values(compiled, inputs)


def uncorrected_statistics(document: Document) -> Document:
    """SUB and FDIV read the statistics as REDUCE left them, of rank 3 (002 §5.3 as written)."""
    result = copy.deepcopy(document)
    nodes = {node["id"]: node for node in result["uops"]}

    def source(id: str) -> str:
        node = nodes[id]
        return source(node["src"][0]) if node["uop"] in ("EXPAND", "RESHAPE") else id

    reduces = {node["id"] for node in result["uops"] if node["uop"] == "REDUCE"}
    for node in result["uops"]:
        if node["uop"] in ("SUB", "FDIV"):
            left, right = node["src"]
            if source(right) in reduces:
                node["src"] = [left, source(right)]
    used = {each for node in result["uops"] for each in node.get("src", ()) if isinstance(each, str)}
    last = result["uops"][-1]["id"]
    result["uops"] = [n for n in result["uops"] if n["id"] in used or n["id"] == last]
    return result


@pytest.mark.spec("I-18")
@pytest.mark.parametrize("size", [None, 4, 1])
def test_statistics_that_lost_their_axis_are_refused(size: int | None) -> None:
    """Where all sizes are 4 a right-aligned broadcast would pair the rows with the wrong axis; it fits, and is wrong."""
    document = uncorrected_statistics(attention(size))
    assert document != attention(size)
    with pytest.raises(tinyc.TinycError) as caught:
        program = tinyc.load(document)
        tinyc.optimize_and_compile(program, shapes=dict.fromkeys(program.symbols, 4))
    assert caught.value.kind in ("BroadcastMismatch", "AxisSizeMismatch")


def test_the_integers_of_the_convolution_are_exact() -> None:
    compiled = tinyc.optimize_and_compile(conv_document(7, 9))
    check_exact(compiled, integer_inputs(compiled.program))
