"""The three stories of document 004 §15, through every layer: what each stage says, and its golden dump."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from end_checks import normal_inputs
from golden import Golden

import tinyc
from tinyc.ir.evaluate import evaluate
from tinyc.ir.region import Reduce, Region, Select, Stream
from tinyc.ir.verify import bind

Json = dict[str, Any]
STAGES = ("frontend", "tiny", "indexbook", "poly_view", "region", "analysis", "plan", "exec")


def tensor(*shape: int | str, dtype: str = "fp16") -> Json:
    return {"dtype": dtype, "shape": list(shape)}


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
        "A": tensor("M", "K"),
        "B": tensor("K", "N"),
        "bias": tensor("N"),
        "C2": tensor("M", "N"),
    },
    "graph": [
        {"op": "GEMM", "name": "gemm", "inputs": ["A", "B"], "outputs": ["C0"], "attrs": {"acc_dtype": "fp32"}},
        {"op": "Elementwise", "name": "bias_add", "fn": "add", "inputs": ["C0", "bias"], "outputs": ["C1"]},
        {"op": "Elementwise", "name": "relu", "fn": "relu", "inputs": ["C1"], "outputs": ["C2"]},
    ],
}  # fmt: skip


def conv(batch: int, size: int) -> Json:
    return {
        "signature": {
            "inputs": [{"tensor": "X"}, {"tensor": "W", "role": "param"}],
            "outputs": [{"tensor": "Y"}],
        },
        "tensors": {
            "X": tensor(batch, 32, size, size),
            "W": tensor(64, 32, 3, 3),
            "Y": tensor(batch, 64, size, size),
        },
        "graph": [
            {"op": "Conv2D", "name": "conv", "inputs": ["X", "W"], "outputs": ["Y0"], "attrs": {"pad": 1}},
            {"op": "Elementwise", "name": "silu", "fn": "silu", "inputs": ["Y0"], "outputs": ["Y"]},
        ],
    }


def attention(heads: int, length: int) -> Json:
    signature = {"inputs": [{"tensor": "Q"}, {"tensor": "K"}, {"tensor": "V"}], "outputs": [{"tensor": "O"}]}
    node = {"op": "Attention", "name": "attention", "inputs": ["Q", "K", "V"], "outputs": ["O"]}
    return {
        "signature": signature,
        "tensors": {name: tensor(1, heads, length, 64) for name in "QKVO"},
        "graph": [{**node, "attrs": {"causal": True}}],
    }


def stages(compiled: tinyc.Compiled) -> dict[str, Any]:
    return {stage: json.loads(compiled.dump(stage))[stage] for stage in STAGES}


def check_golden(compiled: tinyc.Compiled, golden: Golden) -> None:
    for number, stage in enumerate(STAGES, 1):
        golden(compiled.dump(stage), f".{number:02d}-{stage}.json")


def check_runs(document: Json, shapes: Mapping[str, int] | None = None, also: tuple[str, ...] = ()) -> None:
    """The same story on the CPU and, emulated, on GPUs: generated code, playback and evaluator agree."""
    program = bind(tinyc.load(document), dict(shapes or {}))
    compiled = tinyc.optimize_and_compile(program, also=also)
    inputs = normal_inputs(program)
    (want,) = evaluate(program, inputs)
    found = [compiled(**inputs), compiled.playback(**inputs)]
    for target in ("sm80", "sm90"):
        result = tinyc.optimize_and_compile(program, target, also=also).emulate(**inputs)
        assert not result.findings
        found.append(result.outputs[0])
    for got in found:
        np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=2e-3, atol=2e-3)


def compiled_regions(compiled: tinyc.Compiled) -> tuple[Region, ...]:
    """Also for targets without code."""
    assert compiled._latest is not None
    return compiled._latest.extracted.regions


def blocks(view: Json, kind: str) -> list[Json]:
    return [block for block in view["blocks"] if block["kind"] == kind]


# ---- §15.1 ----


@pytest.mark.spec("004-153", "004-016", "004-126")
def test_gemm_bias_relu(golden: Golden) -> None:
    # smaller ones are cheaper as loops, or with smaller tiles
    compiled = tinyc.optimize_and_compile(GEMM, "sm80", shapes={"M": 2048, "N": 2048, "K": 1024})
    seen = stages(compiled)
    assert seen["frontend"] == GEMM
    assert seen["tiny"]["uops"][-1]["uop"] == "CAST"
    (block,) = blocks(seen["poly_view"], "contraction_pattern")
    assert block["attrs"]["pattern"] == "matmul"
    (region,) = seen["region"]
    assert [ref["name"] for ref in region["inputs"]] == ["A", "B", "bias"]
    acc, *epilogue = region["lets"]
    body = acc["expr"]["reduce"]
    assert (body["op"], body["init"], body["dtype"]) == ("sum", 0.0, "fp32")
    assert list(body["body"]) == ["mul"]
    assert "BroadcastInDim" in json.dumps(epilogue) and "BroadcastInDim" not in json.dumps(acc)  # C-CON1
    assert region["yield"][0]["cast"] == "fp16"
    (plan,) = seen["plan"]
    assert plan["tile"] == [128, 128, 32] and plan["stages"] == 3 and plan["warp_tile"] == "64x64"
    assert plan["async"] == {"enable": True, "prefetch_depth": 3, "epilogue_overlap": True}
    # the document's, where no candidates are made
    without = tinyc.optimize_and_compile(
        GEMM, "sm80", shapes={"M": 2048, "N": 2048, "K": 1024}, without=("plan",)
    )
    (document,) = stages(without)["plan"]
    assert document["tile"] == [128, 64, 64] and document["stages"] == 2 and document["warp_tile"] == "64x64"
    assert document["async"]["enable"] and document["async"]["prefetch_depth"] == 2
    for each in (plan, document):
        assert each["vectorize"]["width"] == 8 and each["epilogue"] == ["bias", "relu"]
        assert each["barrier_model"] == "cp_async_group"
    check_golden(compiled, golden)
    check_runs(GEMM, {"M": 64, "N": 48, "K": 32})


# ---- §15.2 ----


@pytest.mark.spec("004-154", "004-126")
def test_conv_silu(golden: Golden) -> None:
    compiled = tinyc.optimize_and_compile(conv(32, 32), "sm80")  # smaller ones have smaller tiles
    seen = stages(compiled)
    uops = {node["uop"] for node in seen["tiny"]["uops"]}
    assert {"PAD", "VIEW", "MUL", "REDUCE"} <= uops
    pads = [node["id"] for node in seen["tiny"]["uops"] if node["uop"] == "PAD"]
    assert all(len(seen["indexbook"][id]["domain"]["pieces"]) > 1 for id in pads)
    (block,) = blocks(seen["poly_view"], "contraction_pattern")
    assert block["attrs"]["pattern"] == "conv"
    offsets = [text for texts in block["attrs"]["affine_offsets"].values() for text in texts]
    assert any("r1" in text and text.endswith("-1") for text in offsets)
    assert any("r2" in text and text.endswith("-1") for text in offsets)
    (analysis,) = seen["analysis"]
    assert sorted(analysis["compute_at"]["halo"]["sides"].values()) == [[1, 1], [1, 1]]
    assert analysis["tail_axes"] == ["r0"]  # 64 of the 288 summed points: seven channels of nine taps each
    (kernel,) = compiled_regions(compiled)
    assert any(isinstance(let.value, Select) for let in kernel.lets)
    (plan,) = seen["plan"]
    assert plan["stages"] == 3 and plan["warp_tile"] == "64x32" and plan["vectorize"]["width"] == 8
    assert plan["async"]["enable"] and "predicate_tail" not in plan  # nine tiles of 32
    assert [edge["buffer"] for edge in plan["local_edges"] if edge["from"] == "X"] == ["smem_ring"]
    check_golden(compiled, golden)
    check_runs(conv(2, 16))


# ---- §15.3 ----


@pytest.mark.spec("004-155", "004-088", "004-126", "I-35")
def test_causal_attention_in_two_regions(golden: Golden) -> None:
    compiled = tinyc.optimize_and_compile(attention(8, 512), "sm90")
    seen = stages(compiled)
    roles = seen["poly_view"]["attention"]
    assert len(roles) == 1 and all(roles[0][role] for role in ("qk_matmul", "row_softmax", "pv_matmul"))
    first, second = compiled_regions(compiled)
    assert first.deferred == (first.outputs[0].name,)
    assert first.outputs[0].name in {ref.name for ref in second.inputs}
    assert {let.value.op for let in first.lets if isinstance(let.value, Reduce)} == {"SUM", "MAX"}
    assert [let.value.op for let in second.lets if isinstance(let.value, Reduce)] == ["SUM"]
    (handed,) = compiled.report.deferred
    assert (handed.buffer, handed.producer, handed.consumer, handed.through) == (
        first.outputs[0].name,
        first.name,
        second.name,
        "gmem",
    )
    assert f"{handed.buffer} is deferred" in str(compiled.report)
    assert seen["plan"][0]["algo_choice"]["attention"] == "streaming_softmax_2pass"
    assert seen["plan"][0]["arch"] == "sm90"
    check_golden(compiled, golden)
    check_runs(attention(2, 128))


@pytest.mark.spec("004-155")
def test_causal_attention_in_one_stream(golden: Golden) -> None:
    compiled = tinyc.optimize_and_compile(attention(8, 2048), "sm90", also=("streaming-unrounded",))
    (region,) = compiled_regions(compiled)
    streams = [let.value for let in region.lets if isinstance(let.value, Stream)]
    assert len(streams) == 2, "the weighted sum and the normaliser, in one pass"
    assert streams[0].axes == streams[1].axes
    check_golden(compiled, golden)
    check_runs(attention(2, 128), also=("streaming-unrounded",))
