"""Schedule Plans as text: printed, read, and refused by line and column."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_examples import REFERENCE

from tinyc import TinycError
from tinyc.ir.schedule import Async, Cache, Contraction, LayoutHints, LocalEdge, Plan, Vectorize
from tinyc.ir.schedule_json import plan_from_json
from tinyc.ir.schedule_text import plan_from_text, plan_to_text

TEXT = """\
schedule contraction for sm80
split m 128 64
split n 64 64
split k 64
bind m.o block.y
bind n.o block.x
bind m.i.o warp.y
bind n.i.o warp.x
pipeline 2 prefetch 2 overlap cp_async_group
cache_read A smem k.i
cache_read B smem k.i
vectorize n.i.i 8
predicate_tail m.i.i n.i.i k.i.i
epilogue bias relu
algo_choice matmul implicit_gemm
layout A swizzle
layout B swizzle
layout C row
local_edge sum_k relu reg
"""


def test_the_reference_plan_as_text() -> None:
    assert plan_to_text(plan_from_json(REFERENCE)) == TEXT
    assert plan_from_text(TEXT) == plan_from_json(REFERENCE)


ROLES = Contraction("v5", "m", "my let", ("i0", "b"), ("i1",), (), ("r0", "r1"))
PLANS = [
    Plan(),
    Plan(arch="cpu", vectorize=Vectorize("i3", 1)),
    Plan(tile=(1, 77, 1)),
    Plan("contraction", ROLES),
    Plan("contraction", tile=(3, 5, 7), stages=3, algo_choice=(("conv", "splitk_4"), ("matmul", "splitk_2"))),
    Plan(
        "contraction",
        cache=(Cache("007", "k.i", pingpong=False), Cache('a # "b"\n', "k")),
        epilogue=("lhs", "12"),
    ),
    Plan(async_=Async(False, 1, False), layout_hints=LayoutHints(False, True, "col")),
    Plan(async_=Async(True, 3, False), barrier_model="mbarrier"),
    Plan(local_edges=(LocalEdge("x y", "é", "smem_ring", 3), LocalEdge("a", "b", "reg"))),
]


@pytest.mark.parametrize("number", range(len(PLANS)))
def test_what_is_printed_is_read_again(number: int) -> None:
    plan = PLANS[number]
    text = plan_to_text(plan)
    assert plan_from_text(text) == plan
    assert plan_to_text(plan_from_text(text)) == text


@pytest.mark.spec("004-120")
def test_every_primitive_of_the_document() -> None:
    plan = plan_from_text(
        """
        # what a kernel's skeleton does by itself may be said
        split m 64          # no parts for warps
        split n 32
        split k 16
        reorder b m.o n.o k.o m.i n.i k.i
        unroll k.i
        fuse b m.o block.x
        bind n.o block.y
        pipeline 3
        cache_read A smem k.i single
        vectorize n.i.i 4
        predicate_tail m.i.i
        epilogue relu
        algo_choice matmul splitk_8
        """
    )
    assert plan == Plan(
        "contraction",
        tile=(64, 32, 16),
        stages=3,
        bind=(("b", "block.x"), ("m.o", "block.x"), ("n.o", "block.y")),
        cache=(Cache("A", "k.i", pingpong=False),),
        vectorize=Vectorize("n.i.i", 4),
        predicate_tail=("m.i.i",),
        epilogue=("relu",),
        algo_choice=(("matmul", "splitk_8"),),
    )
    for name in ("winograd_3x3", "fft_conv", "implicit_gemm", "splitk_2"):
        assert dict(plan_from_text(f"algo_choice conv {name}").algo_choice) == {"conv": name}
    for name in ("streaming_softmax_2pass", "online_softmax"):
        assert dict(plan_from_text(f"algo_choice attention {name}").algo_choice) == {"attention": name}


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("split m 64\nsplit n 0\nsplit k 8", 2, 9, "0 is no integer"),
        ("split m 64\nsplit n 8", 1, 7, "k is not split"),
        ("split m 64\n split m 8", 2, 8, "split already"),
        ("split q 64", 1, 7, "'q' is not cut"),
        ("split m 64 32\nsplit n 8\nsplit k 8", 1, 7, "a warp has a part"),
        ("split m 64\nsplit n 8\nsplit k 8 8", 3, 11, "do not share"),
        ("schedule contraction\nsplit inner 8", 2, 7, "m, n and k"),
        ("split inner 8\nsplit m 8", 1, 7, "one axis"),
        ("splitt m 64", 1, 1, "'split' may be meant"),
        ('"split" m 64', 1, 1, "no primitive"),
        ("tile 1", 1, 1, "no primitive 'tile'"),
        ("data x", 1, 1, "no primitive"),
        ("\n\nvectorize n.i 3", 3, 15, "power of two"),
        ("vectorize n.i", 1, 1, "1 words"),
        ("vectorize n.i 8\nvectorize m.i 8", 2, 11, "line 1 already"),
        ("bind m.o grid.x", 1, 10, "no 'grid.x'"),
        ("bind m.o block.x\nbind m.o block.y", 2, 6, "already"),
        ("bind m.q block.x", 1, 10, "no axis part"),
        ("pipeline 4", 1, 10, "rings of 4"),
        ("pipeline 2 twice", 1, 12, "no part of a pipeline"),
        ("pipeline 2 prefetch 0", 1, 21, "0 is no integer"),
        ("cache_read A regs k.i", 1, 12, "no 'regs'"),
        ("cache_read A smem k.i ping", 1, 23, "not single"),
        ("reorder n.o m.o", 1, 13, "do not walk 'm.o'"),
        ("unroll m.o", 1, 8, "do not unroll"),
        ("algo_choice matmul magic", 1, 20, "no 'magic'"),
        ("algo_choice pool x", 1, 18, "'pool'"),
        ("layout C diagonal", 1, 10, "no 'diagonal'"),
        ("layout D swizzle", 1, 8, "no layout"),
        ("local_edge a b gmem", 1, 16, "no 'gmem'"),
        ("predicate_tail m.i m.i", 1, 20, "already"),
        ("schedule loops for sm99", 1, 20, "no 'sm99'"),
        ("schedule loops on cpu", 1, 16, "only `for`"),
        ("bind m.o ;", 1, 10, "begins no word"),
        ('epilogue "open', 1, 10, "begins no word"),
        ('epilogue "\\q"', 1, 10, "no string"),
        ("tensorize a lhs b rhs c z m n k", 1, 25, "no role"),
        ("tensorize a lhs b rhs c m i i n j k p", 1, 11, "already"),
    ],
)  # fmt: skip
def test_errors_say_the_line_and_the_column(text: str, line: int, column: int, says: str) -> None:
    with pytest.raises(TinycError) as caught:
        plan_from_text(text)
    error = caught.value
    assert error.kind == "PlanInvalid"
    assert error.at["value"] == f"line {line}, column {column}", error
    assert says in f"{error.why}; {error.suggestion}"


def test_text_and_json_say_the_same() -> None:
    full = replace(plan_from_json(REFERENCE), contraction=ROLES)
    assert plan_from_text(plan_to_text(full)) == full
