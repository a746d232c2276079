"""The words of each layer: what stands in documents, in Regions and in generated code, and what never does."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyc
from tinyc.ir.explicit import explicit
from tinyc.ir.region import (
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Read,
    Reduce,
    Select,
    Stream,
    Transpose,
    Unary,
    Within,
)
from tinyc.ir.tiny import MOVEMENT, UOPS

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"

INSIDE = {
    "LOAD": "004-023",
    "STORE": "004-023",
    "INDEX": "004-024",
    "RANGE": "004-024",
    "IF": "004-024",
    "ENDIF": "004-024",
    "BUFFER": "004-025",
    "DEFINE_GLOBAL": "004-025",
}


@pytest.mark.spec("004-023", "004-024", "004-025")
@pytest.mark.parametrize("uop", INSIDE)
def test_a_document_speaks_of_values_only(uop: str) -> None:
    assert uop not in UOPS
    x = {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [4]}}
    for name in (uop, f"OPS.{uop}"):
        with pytest.raises(tinyc.TinycError) as caught:
            tinyc.load({"uops": [x, {"id": "y", "uop": name, "src": ["x"]}]})
        assert caught.value.kind == "UnknownUop" and name in caught.value.why


@pytest.mark.spec("004-023", "004-024", "004-025", "004-074")
def test_loads_stores_conditions_and_loops_are_reads_yields_selects_and_axes() -> None:
    """Three elements around each of 8, summed; outside there is -1, which only a condition can tell apart."""
    program = tinyc.trace(
        lambda x: x.pad([(1, 1)], -1.0).sliding_window(3, 0).sum(axis=1), x=tinyc.spec("fp32", (8,))
    )
    compiled = tinyc.optimize_and_compile(program)
    (kernel,) = compiled.kernels
    region = kernel.region
    kinds = {type(let.value) for let in region.lets}
    assert {Read, Within, Select, Const, Reduce} <= kinds
    assert [axis.size for axis in region.iters] == [8]
    assert [(ref.name, ref.shape) for ref in region.inputs] == [("x", (8,))]
    assert [store.to for store in region.yields] == [ref.name for ref in region.outputs]
    x = np.arange(8, dtype=np.float32)
    padded = np.pad(x, 1, constant_values=-1)
    np.testing.assert_array_equal(compiled(x), padded[:-2] + padded[1:-1] + padded[2:])


# ---- the frontend's words in Tiny IR ------------------------------------------------------------------------------------


def uops(file: str) -> Counter[str]:
    return Counter(node.uop for node in tinyc.load(EXAMPLES / file).nodes)


@pytest.mark.spec("004-126", "002-02")
def test_a_convolution_is_padding_movement_products_and_a_sum() -> None:
    found = uops("conv3x3_silu.frontend.json")
    assert found["PAD"] == found["VIEW"] == found["REDUCE"] == 1
    assert found["MUL"] >= 1 and set(found) <= set(UOPS)


@pytest.mark.spec("004-126", "002-02")
def test_attention_is_two_products_and_a_softmax_of_rows() -> None:
    program = tinyc.load(EXAMPLES / "attention_causal.frontend.json")
    nodes = {node.id: node for node in program.nodes}

    def base(id: str) -> str:
        """What is computed before the movement and casts behind ``id``."""
        while nodes[id].uop in (*MOVEMENT, "CAST"):
            id = nodes[id].operands()[0]
        return nodes[id].uop

    reduces = [node for node in program.nodes if node.uop == "REDUCE"]
    products = [node for node in reduces if base(node.operands()[0]) == "MUL"]
    assert [node.arg["op"] for node in products] == ["SUM", "SUM"]
    assert sorted(node.arg["op"] for node in reduces if node not in products) == ["MAX", "SUM"]
    assert {"EXP2", "FDIV"} <= {node.uop for node in program.nodes}


# ---- Regions and code ---------------------------------------------------------------------------------------------------

SIZES = {"M": 48, "N": 40, "K": 32}
PROGRAMS = ("gemm_bias_relu.json", "conv3x3_silu.json", "attention_causal.json", "layernorm.json")


@functools.cache
def compiled_example(file: str) -> tinyc.Compiled:
    program = tinyc.load(EXAMPLES / file)
    return tinyc.optimize_and_compile(program, shapes={name: SIZES.get(name, 8) for name in program.symbols})


def words(value: Any) -> Iterator[str]:
    """Every key of a JSON value, and every text in it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from words(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from words(inner)
    elif isinstance(value, str):
        yield value


@pytest.mark.spec("004-068")
@pytest.mark.parametrize("file", PROGRAMS)
def test_regions_speak_the_small_vocabulary(file: str) -> None:
    """The document's seven, with the constants, guards and casts that it writes inside of them, and the Stream of its rule
    R4 (§6.6)."""
    small = {Read, Unary, Binary, Select, Reduce, BroadcastInDim, Transpose, Const, Within, Cast, Stream}
    for kernel in compiled_example(file).kernels:
        assert {type(let.value) for let in explicit(kernel.region).lets} <= small


@pytest.mark.spec("004-069", "004-090")
@pytest.mark.parametrize("file", PROGRAMS)
def test_a_region_names_no_pattern_and_plans_nothing(file: str) -> None:
    found = set(words(json.loads(compiled_example(file).dump("region"))["region"]))
    patterns = {"matmul", "gemm", "conv", "conv2d", "attention", "softmax", "contraction", "pattern"}
    planned = {"smem", "reg", "stages", "tile", "warp_tile", "pingpong", "cache", "vectorize", "depth"}
    assert not found & (patterns | planned)
    assert "lets" in found, "it is a Region that was looked at"


@pytest.mark.spec("004-003")
@pytest.mark.parametrize("file", PROGRAMS)
def test_kernels_call_no_library(file: str) -> None:
    """What is called stands in the source, or is an instruction that LLVM spells as a function."""
    for kernel in compiled_example(file).kernels:
        name = r'@"?([\w.$]+)'
        own = set(re.findall(rf"^define .*?{name}", kernel.source, re.MULTILINE))
        declared = set(re.findall(rf"^declare .*?{name}", kernel.source, re.MULTILINE))
        called = set(re.findall(rf"\bcall .*?{name}", kernel.source))
        assert kernel.name in own and called
        assert all(each.startswith("llvm.") for each in declared | (called - own)), declared | called
