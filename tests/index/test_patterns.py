"""ContractionPattern and attention blocks: what is one, with which roles, and what is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_polyview import EXAMPLES, GEMM, node, port, total, view_of

import tinyc
from tinyc import functions as tc
from tinyc.index.attention import Attention
from tinyc.index.polyview import Block, PolyView, attention


def traced(function: Callable[..., Any], **shapes: Any) -> PolyView:
    """A shape is fp32; ``("fp16", shape)`` is not."""
    specs = {}
    for name, shape in shapes.items():
        dtype, sizes = (
            shape if isinstance(shape[0], str) and isinstance(shape[-1], tuple) else ("fp32", shape)
        )
        specs[name] = tinyc.spec(dtype, sizes)
    return view_of(tinyc.trace(function, **specs))


def patterns(view: PolyView) -> list[Block]:
    return [block for block in view.blocks if block.kind == "contraction_pattern"]


def only(view: PolyView) -> Block:
    (block,) = patterns(view)
    return block


def roles(block: Block) -> dict[str, str]:
    return {role: " ".join(names) for role, names in block.attrs["roles"].items()}


# ---- products ----


@pytest.mark.spec("004-061", "004-065", "I-11")
@pytest.mark.parametrize(
    ("function", "a", "b", "lhs", "rhs"),
    [
        (lambda a, b: a @ b, (5, 7), (7, 6), "[i0, r0]", "[r0, i1]"),
        (lambda a, b: a @ b.T, (5, 7), (6, 7), "[i0, r0]", "[i1, r0]"),
        (lambda a, b: a.T @ b, (7, 5), (7, 6), "[r0, i0]", "[r0, i1]"),
        (lambda a, b: a.flip(1) @ b[1:], (5, 7), (8, 6), "[i0, 6 - r0]", "[1 + r0, i1]"),
    ],
)
def test_matrix_products_through_movement(
    function: Callable[..., Any], a: tuple[int, ...], b: tuple[int, ...], lhs: str, rhs: str
) -> None:
    block = only(traced(function, a=a, b=b))
    assert block.attrs["pattern"] == "matmul" and block.attrs["affine_offsets"] == {}
    assert roles(block) == {"batch": "", "m": "i0", "n": "i1", "k": "r0"}
    assert [access.map.split("-> ")[1].split(" }")[0] for access in block.accesses[:2]] == [
        f"{block.attrs['lhs']}{lhs}", f"{block.attrs['rhs']}{rhs}",
    ]  # fmt: skip


def test_batches_and_axes_of_one_point() -> None:
    block = only(traced(lambda a, b: a @ b, a=(2, 1, 4, 5), b=(3, 5, 6)))
    assert roles(block) == {"batch": "", "m": "i0 i2", "n": "i1 i3", "k": "r0"}
    block = only(traced(lambda a, b: a @ b, a=(3, 4, 5), b=(3, 5, 6)))
    assert roles(block) == {"batch": "i0", "m": "i1", "n": "i2", "k": "r0"}
    row = only(traced(lambda a, b: a @ b, a=(1, 5), b=(5, 6)))
    assert roles(row) == {"batch": "", "m": "", "n": "i1", "k": "r0"}
    assert row.attrs["out_idx"] == ["i0", "i1"]


@pytest.mark.spec("I-30")
def test_widening_casts_and_zero_filled_pads_belong_to_the_pattern() -> None:
    def padded(a: Any, b: Any) -> Any:
        return tc.matmul(a.pad([(0, 0), (1, 1)]), b, dtype="fp32")

    block = only(traced(padded, a=("fp16", (4, 6)), b=("fp16", (8, 5))))
    image = block.accesses[0]
    assert image.map.endswith("[i0, -1 + r0] : 0 < r0 <= 6 }")
    assert len(block.attrs["absorbs"]) == 4  # the product, two casts, the PAD


def test_a_select_over_a_range_that_puts_zeros_belongs_to_the_pattern() -> None:
    def masked(fill: float) -> PolyView:
        uops = [
            port("a", 4, 6),
            port("b", 4, 6),
            node("v", "VALID", result_shape=[4, 6], lo=[0, 2], hi=[4, 5]),
            node("w", "WHERE", "v", "a", fill),
            node("p", "MUL", "w", "b"),
            total("s", "p", 1),
        ]
        return view_of({"uops": uops})

    block = only(masked(0.0))
    assert block.accesses[0].tensor == "a" and block.accesses[0].map.endswith("a[i0, r0] : 2 <= r0 <= 4 }")
    # with another value, or with -0, it is computed first: a product of what it holds is one all the same
    for fill in (1.0, -0.0):
        block = only(masked(fill))
        assert block.accesses[0].tensor == "w" and ":" not in block.accesses[0].map


@pytest.mark.parametrize(
    ("name", "uops"),
    [
        ("another operator", [node("p", "MUL", "a", "b"), total("s", "p", 1, op="MAX")]),
        ("a sum", [node("p", "ADD", "a", "b"), total("s", "p", 1)]),
        ("something in between", [node("p", "MUL", "a", "b"), node("n", "NEG", "p"), total("s", "n", 1)]),
        ("a number", [node("p", "MUL", "a", 2.0), total("s", "p", 1)]),
        (
            "a border that is not zero",
            [
                node("c", "SHRINK", "b", lo=[0, 0], hi=[4, 5]),
                node("d", "PAD", "c", pad=[[0, 0], [0, 1]], value=1.0),
                node("p", "MUL", "a", "d"),
                total("s", "p", 1),
            ],
        ),
        (
            "an axis that one operand lacks",
            [
                node("c", "SHRINK", "b", lo=[0, 0], hi=[4, 1]),
                node("d", "EXPAND", "c", result_shape=[4, 6]),
                node("p", "MUL", "a", "d"),
                total("s", "p", 1),
            ],
        ),
        (
            "one point only",
            [
                node("c", "SHRINK", "a", lo=[0, 0], hi=[4, 1]),
                node("d", "SHRINK", "b", lo=[0, 0], hi=[4, 1]),
                node("p", "MUL", "c", "d"),
                total("s", "p", 1),
            ],
        ),
    ],
)
def test_what_is_no_contraction(name: str, uops: list[dict[str, Any]]) -> None:
    view = view_of({"uops": [port("a", 4, 6), port("b", 4, 6), *uops]})
    assert patterns(view) == [] and view.block("s").kind == "reduce", name


def test_a_sum_of_fp16_products_is_none_but_one_of_casts_is() -> None:
    halves = [port("a", 4, 6, dtype="fp16"), port("b", 4, 6, dtype="fp16")]
    product = node("p", "MUL", "a", "b")
    kept = node("q", "NEG", "p")  # with this use the product stays fp16 (I-08)
    view = view_of({"uops": [*halves, product, kept, total("s", "p", 1)]})
    assert patterns(view) == []
    (block,) = patterns(view_of({"uops": [*halves, product, total("s", "p", 1)]}))
    assert [access.tensor for access in block.accesses] == ["a", "b", "s"]


def test_a_product_that_is_used_elsewhere_keeps_its_own_block() -> None:
    view = view_of({"uops": [*GEMM["uops"], node("y", "RELU", "T")]})
    assert [(block.name, block.kind) for block in view.blocks] == [
        ("T", "ewise"), ("C0", "contraction_pattern"), ("y", "ewise"),
    ]  # fmt: skip


def test_a_computed_operand_is_read_as_a_value() -> None:
    view = traced(lambda a, b: a.relu() @ (b + 1.0), a=(4, 5), b=(5, 6))
    block = only(view)
    assert view.block(block.attrs["lhs"]).attrs["op"] == "RELU"
    assert view.block(block.attrs["rhs"]).attrs["op"] == "ADD"


# ---- convolutions ----


@pytest.mark.spec("004-061", "I-54")
@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({}, ["i3+r1", "i4+r2"]),
        ({"pad": 1}, ["i3+r1-1", "i4+r2-1"]),
        ({"stride": 2, "pad": 1}, ["2*i3+r1-1", "2*i4+r2-1"]),
        ({"dilation": 2, "pad": 2}, ["i3+2*r1-2", "i4+2*r2-2"]),
        ({"stride": [2, 1], "pad": [[0, 2], [1, 0]]}, ["2*i3+r1", "i4+r2-1"]),
        ({"stride": 3}, ["3*i3+r1", "3*i4+r2"]),
    ],
)
def test_offsets_of_convolutions(options: dict[str, Any], offsets: list[str]) -> None:
    view = traced(lambda x, w: tc.conv(x, w, **options), x=(2, 4, 13, 14), w=(8, 4, 3, 3))
    block = only(view)
    assert block.attrs["pattern"] == "conv"
    ((tensor, found),) = block.attrs["affine_offsets"].items()
    assert tensor == block.attrs["lhs"] and found == ["i0", "r0", *offsets]


def test_a_convolution_with_one_tap_is_a_product() -> None:
    block = only(traced(lambda x, w: tc.conv(x, w), x=(2, 4, 6, 7), w=(8, 4, 1, 1)))
    assert block.attrs["pattern"] == "matmul" and block.attrs["roles"]["k"] == ["r0"]


def test_groups_are_a_batch() -> None:
    block = only(traced(lambda x, w: tc.conv(x, w, groups=2, pad=1), x=(2, 4, 6, 7), w=(8, 2, 3, 3)))
    assert block.attrs["pattern"] == "conv" and block.attrs["roles"]["batch"] == ["i1"]
    depthwise = only(traced(lambda x, w: tc.conv(x, w, groups=4, pad=1), x=(2, 4, 6, 7), w=(4, 1, 3, 3)))
    assert depthwise.attrs["pattern"] == "conv" and depthwise.attrs["roles"]["n"] == []


def test_heads_that_lie_side_by_side_are_no_windows() -> None:
    def heads(x: Any, y: Any) -> Any:
        return x.reshape(5, 4, 8).swapaxes(0, 1) @ y.reshape(6, 4, 8).permute(1, 2, 0)

    block = only(traced(heads, x=(5, 32), y=(6, 32)))
    assert block.attrs["pattern"] == "matmul" and roles(block)["batch"] == "i0"
    assert block.accesses[0].map.endswith("[i1, 8i0 + r0] }")


def _product_of(uops: list[dict[str, Any]], last: str) -> Block:
    return only(view_of({"uops": [*uops, node("m", "MUL", last, "w"), total("s", "m", 1)]}))


def test_a_thousand_selects_in_front_of_a_product() -> None:
    uops, last = [port("x", 8, 8), port("w", 8, 8)], "x"
    for step in range(1200):
        uops.append(node(f"v{step}", "VALID", result_shape=[8, 8], lo=[0, 0], hi=[8, 3 + step % 5]))
        uops.append(node(f"p{step}", "WHERE", f"v{step}", last, 0))
        last = f"p{step}"
    block = _product_of(uops, last)
    assert block.accesses[0].map == "{ [i0, r0] -> x[i0, r0] : r0 <= 2 }"


def test_a_ladder_of_reshapes_does_not_grow_without_bound() -> None:
    uops, last = [port("x", 12, 10), port("w", 12, 10)], "x"
    for step in range(20):
        uops.append(node(f"t{step}", "PERMUTE", last, perm=[1, 0]))
        uops.append(node(f"p{step}", "RESHAPE", f"t{step}", result_shape=[12, 10]))
        last = f"p{step}"
    block = _product_of(uops, last)
    assert block.accesses[0].tensor != "x" and len(block.accesses[0].map) < 2000


# ---- attention ----


def named(view: PolyView) -> list[tuple[int, list[str], int]]:
    """Per group: how many qk_matmul, the operators of the softmax, how many pv_matmul."""
    ops = [[str(view.block(name).attrs["op"]) for name in group.row_softmax] for group in view.attention]
    return [
        (len(group.qk_matmul), names, len(group.pv_matmul))
        for group, names in zip(view.attention, ops, strict=True)
    ]


SOFTMAX = ["MAX", "SUB", "MUL", "EXP2", "SUM", "FDIV"]
QKV = {"q": (2, 4, 6, 8), "k": (2, 4, 7, 8), "v": (2, 4, 7, 8)}


@pytest.mark.spec("004-061")
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_causal_attention_with_heads_has_all_three_roles(dtype: str) -> None:
    shapes = {name: (dtype, (2, 4, 6, 8)) for name in "qkv"}
    view = traced(lambda q, k, v: tc.attention(q, k, v, causal=True), **shapes)
    assert named(view) == [(1, SOFTMAX, 1)]
    (group,) = attention(view)
    qk, pv = view.block(group.qk_matmul[0]), view.block(group.pv_matmul[0])
    assert (qk.kind, qk.attrs["role"]) == ("contraction_pattern", "qk_matmul")
    assert (pv.kind, pv.attrs["role"]) == ("contraction_pattern", "pv_matmul")
    assert {view.block(name).attrs["role"] for name in group.row_softmax} == {"row_softmax"}
    assert roles(qk) == {"batch": "i0 i1", "m": "i2", "n": "i3", "k": "r0"}
    assert roles(pv) == {"batch": "i0 i1", "m": "i2", "n": "i3", "k": "r0"}
    others = {block.name for block in view.blocks} - {*group.qk_matmul, *group.row_softmax, *group.pv_matmul}
    assert others and all("role" not in view.block(name).attrs for name in others)


@pytest.mark.parametrize(
    "name",
    ["attention", "attention_causal", "attention_mask", "transformer_block", "attention_causal.frontend"],
)
def test_the_attention_of_the_examples(name: str) -> None:
    assert named(view_of(EXAMPLES / f"{name}.json")) == [(1, SOFTMAX, 1)]


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda q, k, v: tc.attention(q, k, v), {"q": (2, 8, 6, 4), "k": (2, 2, 7, 4), "v": (2, 2, 7, 4)}),
        (lambda q, k, v: tc.attention(q, k, v), {"q": (6, 4), "k": (7, 4), "v": (7, 5)}),
        (lambda q, k, v: tc.attention(q, k, v), {"q": (2, 3, 4, 6, 8), "k": (2, 3, 4, 7, 8), "v": (2, 3, 4, 7, 8)}),
        (lambda q, k, v: tc.attention(q, k, v), {"q": ("B", 4, "M", 8), "k": ("B", 4, "N", 8), "v": ("B", 4, "N", 8)}),
        (lambda q, k, v, m: tc.attention(q, k, v, m), {**QKV, "m": ("bool", (6, 7))}),
        (lambda q, k, v, m: tc.attention(q, k, v, m), {**QKV, "m": (2, 1, 6, 7)}),
        (lambda q, k, v: tc.attention(q, k, v, scale=1.0), QKV),
        (lambda q, k, v: tc.attention(q, k, v, causal="lower_right"), QKV),
        (lambda q, k, v: tc.softmax(30.0 * (q @ k.swapaxes(-1, -2) / 30.0).minimum(1.0)) @ v, QKV),
        (lambda q, k, v: _base_two((q @ k.swapaxes(-1, -2)) * 1.5) @ v, QKV),
        (lambda q, k, v: _base_two(q @ k.swapaxes(-1, -2)) @ v, QKV),
        (lambda q, k, v: _scaled_apart(q @ k.swapaxes(-1, -2)) @ v, QKV),
        (lambda q, k, v: (tc.softmax(q @ k.swapaxes(-1, -2)) * 0.9) @ v, QKV),
    ],
    ids=[
        *("grouped heads", "no heads", "more batches", "symbolic", "a mask", "a bias", "scale 1", "from the right"),
        *("limited", "base two scaled", "base two", "scaled apart", "dropout"),
    ],
)  # fmt: skip
def test_attention_however_it_is_written(function: Callable[..., Any], shapes: dict[str, Any]) -> None:
    (group,) = traced(function, **shapes).attention
    assert len(group.qk_matmul) == 1 and len(group.pv_matmul) == 1, group


def _base_two(score: Any) -> Any:
    """A softmax to base 2, with the reciprocal of the sum."""
    powers = (score - score.max(-1, keepdims=True)).exp2()
    return powers * (1.0 / powers.sum(-1, keepdims=True))


def _scaled_apart(score: Any) -> Any:
    """exp2(s*c - max*c)."""
    powers = (score * 0.25 - score.max(-1, keepdims=True) * 0.25).exp2()
    return powers / powers.sum(-1, keepdims=True)


def test_a_softmax_without_contractions_is_a_row_softmax_only() -> None:
    assert named(traced(tc.softmax, x=(5, 7))) == [(0, SOFTMAX, 0)]
    assert named(view_of(EXAMPLES / "attention_scores.json")) == [(1, SOFTMAX, 0)]


def _wrong_axis(x: Any) -> Any:
    powers = (x - x.max(1, keepdims=True)).exp2()
    return powers / powers.sum(2, keepdims=True)


def _two_scores(x: Any) -> Any:
    powers = ((x + 1.0) - x.max(-1, keepdims=True)).exp2()
    return powers / powers.sum(-1, keepdims=True)


def _other_sum(x: Any) -> Any:
    powers = (x - x.max(-1, keepdims=True)).exp2()
    return powers / x.sum(-1, keepdims=True)


def _turned(x: Any) -> Any:
    """The maximum of column i is taken from row i."""
    powers = (x - x.max(2).reshape(3, 1, 5)).exp2()
    return powers / powers.sum(2, keepdims=True)


@pytest.mark.parametrize(
    "function",
    [
        _wrong_axis,
        _two_scores,
        _other_sum,
        _turned,
        lambda x: (x - x.max(-1, keepdims=True)).exp2(),
        lambda x: x.exp2() / x.exp2().sum(-1, keepdims=True),
        tc.log_softmax,
        tc.layer_norm,
    ],
)
def test_what_is_no_softmax(function: Callable[..., Any]) -> None:
    assert traced(function, x=(3, 5, 5)).attention == ()


def test_probabilities_that_are_summed_along_the_rows_make_no_attention() -> None:
    """softmax(s) transposed: the product runs over the rows, not over the keys."""
    view = traced(lambda s, v: tc.softmax(s).T @ v, s=(6, 7), v=(6, 5))
    (group,) = view.attention
    assert group.pv_matmul == () and len(patterns(view)) == 1


def test_layers_of_attention_are_groups_in_order() -> None:
    def two(x: Any) -> Any:
        for _ in range(2):
            x = x + tc.attention(x, x, x)
        return x

    view = traced(two, x=(4, 6, 8))
    assert named(view) == [(1, SOFTMAX, 1)] * 2
    first, second = view.attention
    assert isinstance(first, Attention) and not {*first.qk_matmul, *first.pv_matmul} & {*second.qk_matmul}
