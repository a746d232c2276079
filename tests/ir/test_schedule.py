"""The Schedule Plan as data: the document's own, written and read, and what is refused on reading (004 §8.1)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plan_examples import REFERENCE, changed

from tinyc import TinycError
from tinyc.ir import dumps
from tinyc.ir.resources import resources
from tinyc.ir.schedule import (
    Async,
    Cache,
    Contraction,
    LayoutHints,
    LocalEdge,
    Plan,
    Vectorize,
    known_choice,
)
from tinyc.ir.schedule_json import plan_from_json, plan_to_json


def refused(data: object, path: str = "plan") -> TinycError:
    with pytest.raises(TinycError) as caught:
        plan_from_json(data, path)
    assert (caught.value.code, caught.value.kind) == ("E1505", "PlanInvalid")
    return caught.value


@pytest.mark.spec(
    "004-105", "004-106", "004-107", "004-108", "004-109", "004-110", "004-111", "004-112", "004-113",
    "004-114", "004-115", "004-116", "004-117", "004-118",
)  # fmt: skip
def test_every_field_of_the_reference_plan() -> None:
    plan = plan_from_json(REFERENCE)
    assert plan == Plan(
        algo="contraction",
        tile=(128, 64, 64),
        stages=2,
        bind=(("m.o", "block.y"), ("n.o", "block.x"), ("m.i.o", "warp.y"), ("n.i.o", "warp.x")),
        warp_tile=(64, 64),
        cache=(Cache("A", "k.i", "smem", True), Cache("B", "k.i", "smem", True)),
        vectorize=Vectorize("n.i.i", 8),
        predicate_tail=("m.i.i", "n.i.i", "k.i.i"),
        epilogue=("bias", "relu"),
        arch="sm80",
        layout_hints=LayoutHints(True, True, "row"),
        algo_choice=(("matmul", "implicit_gemm"),),
        local_edges=(LocalEdge("sum_k", "relu", "reg"),),
        async_=Async(True, 2, True),
        barrier_model="cp_async_group",
    )


@pytest.mark.spec("004-119")
def test_the_reference_plan_takes_two_warps_and_48_kib() -> None:
    found = resources(plan_from_json(REFERENCE))
    assert (found.warps, found.threads, found.smem_bytes, found.vector_bytes) == (2, 64, 49_152, 16)
    assert 128 < found.registers_per_thread <= 255  # 64 x 64 sums by 32 threads


def test_what_is_written_is_read_byte_for_byte() -> None:
    roles = Contraction("v5", "v1", "v3", ("i0",), ("i1",), ("i2",), ("r0", "r1"))
    full = plan_from_json({**REFERENCE, "warp_tile": "64x32", "stages": 3})
    plans = [
        Plan(),
        full,
        Plan("contraction", roles, (7, 9, 11), arch="cpu"),
        Plan("contraction", roles),
        Plan("loops", tile=(1, 64, 1), vectorize=Vectorize("i0", 1)),
        Plan(local_edges=(LocalEdge("a", "b", "smem_ring", 3),), layout_hints=LayoutHints()),
        Plan(async_=Async(False, 1, False), barrier_model="mbarrier"),
    ]
    for plan in plans:
        text = dumps(plan_to_json("k_C", plan))
        again = plan_from_json(json.loads(text))
        assert again == plan
        assert dumps(plan_to_json("k_C", again)) == text
        assert json.loads(text)["region"] == "k_C"
    written = plan_to_json("k_C", plan_from_json(REFERENCE))
    assert list(written)[:2] == ["region", "algo"]
    rest = {key: value for key, value in written.items() if key not in ("region", "algo")}
    assert json.dumps(rest) == json.dumps(REFERENCE)


def test_algo_follows_from_the_rest_where_it_is_not_said() -> None:
    assert plan_from_json({}) == Plan()
    assert plan_from_json({"arch": "cpu"}).algo == "loops"
    assert plan_from_json({"tile": [8, 8, 8]}).algo == "contraction"
    assert plan_from_json({"algo": "loops", "tile": [1, 8, 1]}).algo == "loops"
    assert plan_from_json({"tile": None, "stages": None}) == Plan()


MALFORMED: list[tuple[str, Any, str]] = [
    ("tile", [128, 64], "plan.tile"),
    ("tile", [128, 0, 64], "plan.tile[1]"),
    ("tile", [128, 64, -64], "plan.tile[2]"),
    ("tile", [128.0, 64, 64], "plan.tile[0]"),
    ("tile", [True, 64, 64], "plan.tile[0]"),
    ("tile", ["128", 64, 64], "plan.tile[0]"),
    ("tile", [2**40, 64, 64], "plan.tile[0]"),
    ("tile", "128x64x64", "plan.tile"),
    ("stages", 1, "plan.stages"),
    ("stages", 4, "plan.stages"),
    ("stages", "2", "plan.stages"),
    ("bind", ["m.o"], "plan.bind"),
    ("bind/m.o", "grid.x", "plan.bind['m.o']"),
    ("bind", {"m.x": "block.x"}, "plan.bind['m.x']"),
    ("bind", {"m.o.i": "block.x"}, "plan.bind['m.o.i']"),
    ("warp_tile", [64, 64], "plan.warp_tile"),
    ("warp_tile", "64", "plan.warp_tile"),
    ("warp_tile", "64x", "plan.warp_tile"),
    ("warp_tile", "0x64", "plan.warp_tile"),
    ("warp_tile", "64x6²", "plan.warp_tile"),
    ("cache", {"tensor": "A"}, "plan.cache"),
    ("cache/1/where", "reg", "plan.cache[1].where"),
    ("cache/0/pingpong", 1, "plan.cache[0].pingpong"),
    ("cache/0/tensor", None, "plan.cache[0]"),
    ("vectorize/width", 3, "plan.vectorize.width"),
    ("vectorize/width", 0, "plan.vectorize.width"),
    ("vectorize/axis", None, "plan.vectorize"),
    ("vectorize", 8, "plan.vectorize"),
    ("predicate_tail/1", 7, "plan.predicate_tail[1]"),
    ("predicate_tail/2", "m.i.i", "plan.predicate_tail[2]"),
    ("predicate_tail/0", "m i", "plan.predicate_tail[0]"),
    ("epilogue", "relu", "plan.epilogue"),
    ("epilogue/0", "", "plan.epilogue[0]"),
    ("arch", "sm70", "plan.arch"),
    ("layout_hints/C_stride", "column", "plan.layout_hints.C_stride"),
    ("layout_hints/A_swizzle", "xor", "plan.layout_hints.A_swizzle"),
    ("algo_choice/matmul", "winograd_3x3", "plan.algo_choice.matmul"),
    ("algo_choice/matmul", "splitk_1", "plan.algo_choice.matmul"),
    ("algo_choice", {"pool": "x"}, "plan.algo_choice.pool"),
    ("local_edges/0/buffer", "gmem", "plan.local_edges[0].buffer"),
    ("local_edges/0/depth", 9, "plan.local_edges[0].depth"),
    ("local_edges/0/from", None, "plan.local_edges[0]"),
    ("async/prefetch_depth", 0, "plan.async.prefetch_depth"),
    ("async/enable", False, "plan.async.epilogue_overlap"),
    ("barrier_model", "bar.sync", "plan.barrier_model"),
    ("algo", "loop", "plan.algo"),
    ("region", 3, "plan.region"),
    ("contraction", {"reduce": "acc"}, "plan.contraction"),
    ("contraction", {"reduce": "a", "lhs": "b", "rhs": "c", "m": ["i"], "n": ["j", "j"], "k": []}, "plan.contraction.n[1]"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "place"), MALFORMED, ids=lambda each: str(each)[:30])
def test_errors_name_the_place(path: str, value: Any, place: str) -> None:
    error = refused(changed(path, value))
    assert error.at == {"layer": "plan", "value": place}
    assert error.why.startswith(f"{place}: ")
    assert refused(changed(path, value), "plan[3]").at["value"] == place.replace("plan", "plan[3]", 1)


@pytest.mark.parametrize("data", [None, [], 3, "plan", [REFERENCE]])
def test_what_is_no_object_is_no_plan(data: object) -> None:
    assert refused(data).at["value"] == "plan"


@pytest.mark.parametrize(
    ("path", "key", "meant"),
    [("tyle", "tile", "'tile'"), ("stage", "stages", "'stages'"), ("async/enabled", "enable", "'enable'"),
     ("layout_hints/a_swizzle", "A_swizzle", "'A_swizzle'"), ("cache/0/tensors", "tensor", "'tensor'")],
)  # fmt: skip
def test_an_unknown_key_brings_the_nearest(path: str, key: str, meant: str) -> None:
    assert meant in refused(changed(path, 1)).suggestion


def test_a_contraction_and_loops_contradict_each_other() -> None:
    roles = {"reduce": "acc", "lhs": "a", "rhs": "b", "m": ["i"], "n": ["j"], "k": ["p"]}
    assert plan_from_json({"contraction": roles}).tensorize == "acc"
    assert refused({"algo": "loops", "contraction": roles}).at["value"] == "plan.contraction"


@pytest.mark.spec("004-115")
@pytest.mark.parametrize(
    ("kind", "name", "known"),
    [
        ("matmul", "implicit_gemm", True), ("matmul", "splitk_4", True), ("conv", "winograd_3x3", True),
        ("conv", "fft_conv", True), ("attention", "streaming_softmax_2pass", True),
        ("attention", "online_softmax", True), ("attention", "splitk_2", False), ("matmul", "splitk_", False),
        ("matmul", "splitk_-2", False), ("conv", "online_softmax", False), ("pool", "implicit_gemm", False),
    ],
)  # fmt: skip
def test_implementations(kind: str, name: str, known: bool) -> None:
    assert known_choice(kind, name) is known
