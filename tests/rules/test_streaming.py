"""Rulesets streaming and streaming-unrounded: where they fire, where they must not, and that values stay right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from rule_checks import Array, check_values, compiled, normal_inputs, operators, outputs, traced

import tinyc
from tinyc.bench.programs import transformer
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract import choice
from tinyc.extract.cost import model
from tinyc.extract.cost.model import weight
from tinyc.extract.view import View, axis_extent, axis_id, input_dtypes
from tinyc.ir.evaluate import evaluate
from tinyc.ir.resources import LIMITS
from tinyc.ir.tiny import Program

Tensor = Any
STREAMING = ("streaming",)
UNROUNDED = ("streaming-unrounded",)
LOG2E = 1.4426950408889634
S, V, T = (6, 40), (40, 5), (6, 40)


@dataclass(frozen=True)
class Found:
    """A Stream of the e-graph: ids and extents of its axes, and the bits of its scale."""

    ids: tuple[int, ...]
    extents: tuple[int, ...]
    scale: int


def streams(program: Program, also: tuple[str, ...] = ()) -> set[Found]:
    result = saturate(program, load_rules(), also=also)
    assert result.complete and result.graph is not None
    view = View(result.graph, input_dtypes(program))
    assert not view.malformed
    found = set()
    for items in view.items.values():
        for item in items:
            if item.head == "Stream":
                axes, bits, _ = item.payload
                assert isinstance(axes, tuple) and isinstance(bits, int)
                found.add(Found(tuple(map(axis_id, axes)), tuple(map(axis_extent, axes)), bits))
    return found


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams cost next to nothing, so that extraction takes them wherever a rule has found one."""

    def cheap(op: str) -> float:
        return 0.001 if op in ("Scan", "Stream", "Row") else weight(op)

    for module in (choice, model):
        monkeypatch.setattr(module, "weight", cheap)


def bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def by_log2e(scale: float) -> float:
    """The product of two fp32 numbers, rounded to one."""
    return float(np.float32(scale) * np.float32(LOG2E))


# ---- forms that are a streaming softmax ------------------------------------------------------------------------------


def largest(s: Tensor, axis: Any = -1) -> Tensor:
    return s.max(axis, keepdims=True)


FORMS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any], float]] = {
    "softmax times v": (lambda s, v: tinyc.functions.softmax(s) @ v, {"s": S, "v": V}, LOG2E),
    "weights on the left": (
        lambda s, w: (w * ((s - largest(s)) * LOG2E).exp2()).sum(-1),
        {"s": S, "w": T},
        LOG2E,
    ),
    "a sum of exponentials": (lambda s: (s - largest(s)).exp().sum(-1), {"s": S}, LOG2E),
    "base 2": (lambda s, w: ((s - largest(s)).exp2() * w).sum(-1), {"s": S, "w": T}, 1.0),
    "the scale on the left": (lambda s: (0.25 * (s - largest(s))).exp2().sum(-1), {"s": S}, 0.25),
    "scaled before": (lambda s: (s * 0.3 - largest(s) * 0.3).exp2().sum(-1), {"s": S}, 1.0),
    "scaled before, on the left": (lambda s: (0.3 * s - 0.3 * largest(s)).exp2().sum(-1), {"s": S}, 1.0),
    "a temperature": (lambda s, w: (((s - largest(s)) * 0.3).exp() * w).sum(-1), {"s": S, "w": T}, LOG2E),
    "several factors": (
        lambda s, w, u: ((s - largest(s)).exp() * w * (u * 2.0)).sum(-1),
        {"s": S, "w": T, "u": T},
        LOG2E,
    ),
    "columns": (lambda s: (s - largest(s, 0)).exp().sum(0), {"s": S}, LOG2E),
    "two axes": (lambda s: (s - largest(s, (1, 2))).exp().sum((1, 2)), {"s": (3, 4, 5)}, LOG2E),
    "negated scores": (lambda s: (-s - largest(-s)).exp().sum(-1), {"s": S}, LOG2E),
    "scores of a product": (
        lambda q, k, v: tinyc.functions.softmax((q @ k) * 0.2) @ v,
        {"q": (6, 7), "k": (7, 40), "v": V},
        LOG2E,
    ),
    "scores by an eighth": (
        lambda q, k, v: tinyc.functions.softmax((q @ k) * 0.125) @ v,
        {"q": (6, 7), "k": (7, 40), "v": V},
        LOG2E / 8,
    ),
    "masked scores by four": (
        lambda s, m, w: (
            (lambda x: (x - largest(x)).exp() * w)(tinyc.functions.where(m > -1.0, s * 4.0, float("-inf")))
        ).sum(-1),
        {"s": S, "m": T, "w": T},
        LOG2E * 4,
    ),
    "scores by a fifth": (
        lambda q, k, v: tinyc.functions.softmax((q @ k) * 0.2) @ v,
        {"q": (6, 7), "k": (7, 40), "v": V},
        by_log2e(0.2),
    ),
    "scores by a fifth, on the left": (
        lambda s: (0.2 * s - largest(0.2 * s)).exp().sum(-1),
        {"s": S},
        by_log2e(0.2),
    ),
    "masked scores by 0.3": (
        lambda s, m, w: (
            (lambda x: (x - largest(x)).exp() * w)(tinyc.functions.where(m > -1.0, s * 0.3, float("-inf")))
        ).sum(-1),
        {"s": S, "m": T, "w": T},
        by_log2e(0.3),
    ),
    "masked out, by 0.3": (
        lambda s, m: (lambda x: (x - largest(x)).exp().sum(-1))(
            tinyc.functions.where(m > 1.0, float("-inf"), s * 0.3)
        ),
        {"s": S, "m": T},
        by_log2e(0.3),
    ),
    "masked twice": (
        lambda s, m, w: (
            (lambda x: (x - largest(x)).exp() * w)(
                tinyc.functions.where(
                    w > -1.5, tinyc.functions.where(m > -1.0, s * 7.0, float("-inf")), float("-inf")
                )
            )
        ).sum(-1),
        {"s": S, "m": T, "w": T},
        by_log2e(7.0),
    ),
    "rectified scores": (lambda s: (s.relu() - largest(s.relu())).exp().sum(-1), {"s": S}, LOG2E),
}


def rows(shape: tuple[int, ...]) -> Array:
    """Scores with rows of every kind, the rest normal."""
    values = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    values.reshape(-1)[:] *= 3
    if len(shape) == 2 and shape[0] >= 6:
        values[0, : shape[1] // 2] = -np.inf
        values[1] = 2.0
        values[2] *= 1e4
        values[3] = -np.abs(values[3]) * 100
        values[4] = -np.inf
        values[5, 1:] = -np.inf
    return values


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.spec("004-084")
def test_a_form_is_found_and_right(name: str, eager: None) -> None:
    function, shapes, scale = FORMS[name]
    program = traced(function, **shapes)
    assert bits(scale) in {found.scale for found in streams(program)}
    result = compiled(program)
    assert operators(result)["Stream"] > 0
    check_values(result)
    for each in (1e-3, 30.0):
        check_values(result, normal_inputs(program, 1, each))
    given = normal_inputs(program, 2)
    first = next(iter(shapes))
    check_values(result, {**given, first: rows(shapes[first])})
    for value in (0.0, -7.0, 1e4):  # equal scores
        check_values(result, {**given, first: np.full(shapes[first], value, np.float32)})


@pytest.mark.parametrize("name", ["softmax times v", "scores of a product"])
def test_it_is_on_by_default_and_can_be_left_out(name: str, eager: None) -> None:
    function, shapes, _ = FORMS[name]
    program = traced(function, **shapes)
    assert streams(program, ()) == streams(program) != set()
    off = compiled(program, without=STREAMING)
    assert operators(off)["Stream"] == 0 < operators(compiled(program))["Stream"]
    check_values(off)


@pytest.mark.parametrize("shape", [(5, 1), (1, 7), (1, 1)])
def test_axes_of_one_point(shape: tuple[int, int], eager: None) -> None:
    """A sum over one point is no sum; what is left of the softmax is exp(s - s)."""
    program = traced(lambda s, v: tinyc.functions.softmax(s) @ v, s=shape, v=(shape[1], 3))
    assert bool(streams(program)) == (shape[1] > 1)
    result = compiled(program)
    check_values(result)
    for value in (np.inf, -np.inf, np.nan):
        given = normal_inputs(program)
        given["s"][0, 0] = value
        check_values(result, given)


# ---- traps -------------------------------------------------------------------------------------------------------------


def cast(dtype: str) -> Callable[..., Any]:
    return lambda s: (s.cast(dtype) - largest(s.cast(dtype))).exp2().cast("fp32").sum(-1)


TRAPS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "a negative scale": (lambda s: ((s - largest(s)) * -1.0).exp2().sum(-1), {"s": S}),
    "a scale of zero": (lambda s: ((s - largest(s)) * 0.0).exp2().sum(-1), {"s": S}),
    "a scale of minus zero": (lambda s: ((s - largest(s)) * -0.0).exp2().sum(-1), {"s": S}),
    "an infinite scale": (lambda s: ((s - largest(s)) * float("inf")).exp2().sum(-1), {"s": S}),
    "a scale that is no number": (lambda s: ((s - largest(s)) * float("nan")).exp2().sum(-1), {"s": S}),
    "a scale that is no constant": (
        lambda s, c: ((s - largest(s)) * c).exp2().sum(-1),
        {"s": S, "c": (6, 1)},
    ),
    "scaled before by a negative": (lambda s: (s * -0.5 - largest(s) * -0.5).exp2().sum(-1), {"s": S}),
    "two scales": (lambda s: (s * 0.5 - largest(s) * 0.25).exp2().sum(-1), {"s": S}),
    "the maximum of another axis": (lambda s: (s - largest(s, 0)).exp().sum(-1), {"s": (8, 8)}),
    "the sum of another axis": (lambda s: (s - largest(s)).exp().sum(0), {"s": (8, 8)}),
    "the maximum of one of two axes": (lambda s: (s - largest(s)).exp().sum((1, 2)), {"s": (3, 4, 5)}),
    "the maximum of other scores": (lambda s, t: (s - largest(t)).exp().sum(-1), {"s": S, "t": S}),
    "the maximum of a part": (lambda s: (s - largest(s[:, :20])).exp().sum(-1), {"s": S}),
    "a part of the maximum's axis": (lambda s: (s - largest(s))[:, :20].exp().sum(-1), {"s": S}),
    "the maximum of absolute scores": (lambda s: (s - largest(s.relu())).exp().sum(-1), {"s": S}),
    "the minimum": (lambda s: (s - s.min(-1, keepdims=True)).exp2().sum(-1), {"s": S}),
    "the sum": (lambda s: (s - s.sum(-1, keepdims=True)).exp2().sum(-1), {"s": S}),
    "the maximum less the scores": (lambda s: (largest(s) - s).exp2().sum(-1), {"s": S}),
    "something added": (lambda s: ((s - largest(s)) + 1.0).exp2().sum(-1), {"s": S}),
    "a product of exponentials": (lambda s: (s - largest(s)).exp2().prod(-1), {"s": S}),
    "the largest exponential": (lambda s: (s - largest(s)).exp2().max(-1), {"s": S}),
    "a quotient of weights": (lambda s, w: (w / (s - largest(s)).exp2()).sum(-1), {"s": S, "w": T}),
    "fp16": (cast("fp16"), {"s": S}),
    "bf16": (cast("bf16"), {"s": S}),
    "fp16, rounded again": (
        lambda s: (s.cast("fp16") - largest(s.cast("fp16"))).exp2().cast("bf16").cast("fp32").sum(-1),
        {"s": S},
    ),
    "flipped": (lambda s: (s.flip(1) - largest(s[:, ::2])).exp2().sum(-1), {"s": S}),
    "the diagonal of the maximum's tensor": (
        lambda s: (s - largest(s, 1).permute(1, 0)).exp2().sum(-1),
        {"s": (8, 8)},
    ),
}


@pytest.mark.parametrize("name", TRAPS)
@pytest.mark.spec("004-084")
def test_what_is_no_streaming_softmax_is_left_alone(name: str) -> None:
    function, shapes = TRAPS[name]
    assert streams(traced(function, **shapes), UNROUNDED) == set()


def scales(scale: float, masked: Any = None) -> set[int]:
    """Of the Streams of a softmax of scores that are multiplied with ``scale``."""

    def scaled(s: Tensor, m: Tensor) -> Tensor:
        scores = s * scale if masked is None else tinyc.functions.where(m > 0.0, s * scale, masked)
        return (scores - largest(scores)).exp().sum(-1)

    return {found.scale for found in streams(traced(scaled, s=S, m=S))}


@pytest.mark.parametrize(
    "scale", [*(d**-0.5 for d in (3, 32, 80, 96, 128)), 1 - 2.0**-24, 1 + 2.0**-23, 1e-36, 2e38]
)
def test_a_scale_that_goes_to_the_exponent_is_rounded_once(scale: float) -> None:
    """Also where the product of the mantissas is just below two, or above."""
    assert scales(scale) == scales(scale, float("-inf")) == {bits(LOG2E), bits(by_log2e(scale))}


@pytest.mark.parametrize("scale", [-0.2, -0.0, 0.0, float("inf"), -float("inf"), float("nan"), 1e-39, 3e38])
def test_a_scale_that_does_not_commute_or_leaves_the_numbers_stays(scale: float) -> None:
    """Negative, zero, infinite; subnormal, or of a product that is infinite."""
    assert scales(scale) <= {bits(LOG2E)}


@pytest.mark.parametrize("masked", [-1e9, 0.0, float("inf"), float("nan")])
def test_a_mask_that_puts_a_score_there_keeps_the_scale(masked: float) -> None:
    assert scales(0.3, masked) == {bits(LOG2E)}


def test_what_is_added_to_scores_keeps_their_scale() -> None:
    program = traced(lambda s, m: (lambda x: (x - largest(x)).exp().sum(-1))(s * 0.3 + m), s=S, m=S)
    assert {found.scale for found in streams(program)} == {bits(LOG2E)}


def document(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"uops": list(nodes)}


def node(id: str, uop: str, src: list[Any], **arg: Any) -> dict[str, Any]:
    return {"id": id, "uop": uop, "src": src, "arg": arg}


# ---- axes of other names -----------------------------------------------------------------------------------------------


def nested(s: Tensor, v: Tensor) -> Tensor:
    """The outer sum is one level, the softmax under it binds another than the maximum alone does."""
    return (tinyc.functions.softmax(s) @ v).relu().sum(-1)


def test_axes_of_another_level_are_seen_to_be_the_same() -> None:
    found = streams(traced(nested, s=(6, 40), v=(40, 24)))
    assert {(each.ids, each.extents) for each in found} == {((16,), (40,)), ((32,), (40,))}


def test_axes_of_another_level_and_extent_are_not() -> None:
    """sum over 24 points of v of a sum over the first 20 of 40 scores, less the maximum of all."""

    def part(s: Tensor, v: Tensor) -> Tensor:
        return ((s - largest(s))[:, :20].exp() @ v).relu().sum(-1)

    assert streams(traced(part, s=(6, 40), v=(20, 24))) == set()


def test_a_diagonal_of_another_level_is_not() -> None:
    """s[j, j] - max_k s[k, j]: in the first place of the index j stands where k does, but it stands in the second too."""
    program = tinyc.load(
        document(
            node("s", "INPUT", [], tensor_id="s", dtype="fp32", shape=[8, 8]),
            node("diagonal", "VIEW", ["s"], result_shape=[8], index_map=["i0", "i0"]),
            node("largest", "REDUCE", ["s"], op="MAX", axes=[0], dtype="fp32"),
            node("less", "SUB", ["diagonal", "largest"]),
            node("e", "EXP2", ["less"]),
            node("y", "REDUCE", ["e"], op="SUM", axes=[0], dtype="fp32"),
        )
    )
    assert streams(program) == set()
    check_values(compiled(program, also=UNROUNDED))


def test_values_of_nested_levels(eager: None) -> None:
    program = traced(nested, s=(6, 40), v=(40, 24))
    result = compiled(program)
    check_values(result)
    check_values(result, {**normal_inputs(program), "s": np.nan_to_num(rows((6, 40)), neginf=-1e30)})


@pytest.mark.parametrize("order", ["rising", "falling", "normal"])
def test_the_error_is_within_its_bound(order: str, eager: None) -> None:
    """(n + 4 (r + 1)) * 2^-24 * sum_k |p_k w_k| for n scores of which the maximum grows r times, and what the rounded
    differences of the scores are worth: two roundings of the exponent. r is n where scores rise."""
    program = traced(lambda s, w: ((s - largest(s)).exp() * w).sum(-1), s=(3, 1000), w=(3, 1000))
    result = compiled(program)
    assert operators(result)["Stream"] == 1
    given = normal_inputs(program)
    if order != "normal":
        steps = np.arange(1000, dtype=np.float32) * np.float32([[0.001], [0.01], [0.02]])
        given["s"] = steps if order == "rising" else steps[:, ::-1].copy()
    s, w = (given[name].astype(np.float64) for name in ("s", "w"))
    below = s.max(-1, keepdims=True) - s
    terms = np.abs(np.exp(-below) * w)
    grows = (np.diff(np.maximum.accumulate(s, -1), axis=-1) > 0).sum(-1)
    bound = 2.0**-24 * ((1000 + 4 * (grows + 1)) * terms.sum(-1) + 2 * (below * terms).sum(-1))
    (got,) = outputs(result, given)
    assert (np.abs(got - (np.exp(-below) * w).sum(-1)) <= bound).all()


# ---- probabilities that are rounded, on a GPU ----------------------------------------------------------------------------


def on_a_gpu(function: Callable[..., Any], shapes: Mapping[str, Any], arch: str = "sm80") -> list[str]:
    """To what the probabilities of the Streams that weight something are rounded."""
    program = traced(function, **shapes)
    result = saturate(program, load_rules(), machine=LIMITS[arch])
    assert result.complete and result.graph is not None
    view = View(result.graph, input_dtypes(program))
    assert not view.malformed
    items = {item for found in view.items.values() for item in found if item.head == "Stream"}
    return sorted(str(item.payload[2]) for item in items if item.payload[2] is not None)


def softened(s: Tensor, scale: float = 1.0) -> Tensor:
    e = ((s - largest(s)) * scale).exp()
    return e / e.sum(-1, keepdims=True)


def halves(s: Tensor) -> Tensor:
    e = (s - largest(s)).exp()
    return e / e[:, :20].sum(-1, keepdims=True)


def wide(p: Tensor, dtype: str = "fp16") -> Tensor:
    return p.cast(dtype).cast("fp32")


ROUNDED: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any], list[str]]] = {
    "softmax times v": (lambda s, v: wide(tinyc.functions.softmax(s)) @ v, {"s": S, "v": V}, ["fp16"]),
    "bf16": (lambda s, v: wide(softened(s), "bf16") @ v, {"s": S, "v": V}, ["bf16"]),
    "weights on the left": (lambda s, w: (w * wide(softened(s))).sum(-1), {"s": S, "w": T}, ["fp16"]),
    # with the scale among the scores, and in the exponent
    "a temperature": (lambda s, v: wide(softened(s, 0.3)) @ v, {"s": S, "v": V}, ["fp16", "fp16"]),
    "in both dtypes": (
        lambda s, v: (wide(softened(s)) @ v, wide(softened(s), "bf16") @ v),
        {"s": S, "v": V},
        ["bf16", "fp16"],
    ),
    "of a product, values in fp16": (
        lambda q, k, v: wide(softened((q @ k) * 0.2)) @ v.cast("fp32"),
        {"q": (6, 7), "k": (7, 40), "v": ("fp16", V)},
        ["fp16", "fp16"],
    ),
    # what is something else
    "not divided": (lambda s, v: wide((s - largest(s)).exp()) @ v, {"s": S, "v": V}, []),
    "divided by a part": (lambda s, v: wide(halves(s)) @ v, {"s": S, "v": V}, []),
    "divided by the sum of other scores": (
        lambda s, t, v: wide((s - largest(s)).exp() / (t - largest(t)).exp().sum(-1, keepdims=True)) @ v,
        {"s": S, "t": S, "v": V},
        [],
    ),
    "divided by the largest": (
        lambda s, v: wide((s - largest(s)).exp() / largest((s - largest(s)).exp())) @ v,
        {"s": S, "v": V},
        [],
    ),
    "divided by the sum of another scale": (
        lambda s, v: wide((s - largest(s)).exp() / (s - largest(s)).exp2().sum(-1, keepdims=True)) @ v,
        {"s": S, "v": V},
        [],
    ),
    "rounded twice": (lambda s, v: wide(softened(s).cast("bf16")) @ v, {"s": S, "v": V}, []),
    "rounded before it is divided": (
        lambda s, v: (wide((s - largest(s)).exp()) / (s - largest(s)).exp().sum(-1, keepdims=True)) @ v,
        {"s": S, "v": V},
        [],
    ),
    "multiplied after it is rounded": (
        lambda s, v: (wide(softened(s)) * 2.0 + 1.0) @ v,
        {"s": S, "v": V},
        [],
    ),
    "truncated": (lambda s, v: softened(s).cast("i32").cast("fp32") @ v, {"s": S, "v": V}, []),
    "a largest, not a sum": (lambda s, w: (wide(softened(s)) * w).max(-1), {"s": S, "w": T}, []),
    "over another axis": (lambda s, w: (wide(softened(s)) * w).sum(0), {"s": S, "w": T}, []),
}


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.spec("004-084")
def test_probabilities_that_the_program_rounds(name: str) -> None:
    function, shapes, dtypes = ROUNDED[name]
    assert on_a_gpu(function, shapes) == dtypes
    assert on_a_gpu(function, shapes, "sm90") == dtypes
    program = traced(function, **shapes)
    result = tinyc.optimize_and_compile(program, "sm80")
    for given in (normal_inputs(program), normal_inputs(program, 1, 5.0)):
        emulated = result.emulate(**given)
        assert not emulated.findings
        for got, want in zip(emulated.outputs, evaluate(program, given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_none_is_offered_where_scores_are_not_multiplied_again_for_nothing() -> None:
    program = traced(ROUNDED["softmax times v"][0], s=S, v=V)
    result = saturate(program, load_rules(), machine=LIMITS["cpu"])
    assert result.graph is not None
    items = View(result.graph, input_dtypes(program)).items
    assert all(item.payload[2] is None for found in items.values() for item in found if item.head == "Stream")


# ---- rounded probabilities, without their rounding -----------------------------------------------------------------------------------------------


def rounded(dtype: str) -> Callable[..., Any]:
    return lambda s, v: tinyc.functions.softmax(s).cast(dtype).cast("fp32") @ v


@pytest.mark.parametrize(("dtype", "unit"), [("fp16", 2.0**-11), ("bf16", 2.0**-8)])
def test_rounding_stands_between_unless_it_is_dropped(dtype: str, unit: float, eager: None) -> None:
    program = traced(rounded(dtype), s=S, v=V)
    with_sum = {found.scale for found in streams(program)}
    assert with_sum == {bits(LOG2E)}, "the divisor alone is a Stream"
    careful, dropped = compiled(program), compiled(program, also=UNROUNDED)
    assert operators(dropped)["Stream"] == 2 and operators(dropped)["Cast"] == 0
    given = normal_inputs(program)
    check_values(careful, given)
    (got,), (want,) = outputs(dropped, given), outputs(careful, given)
    s = given["s"].astype(np.float64)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    bound = unit * (p @ np.abs(given["v"])) + 2.0**-25 * np.abs(given["v"]).sum(0) + 1e-6
    assert (np.abs(got - want) <= bound).all() and not np.array_equal(got, want)
    np.testing.assert_allclose(got, p @ given["v"], rtol=1e-5, atol=1e-6)


def test_only_probabilities_lose_their_rounding() -> None:
    """A product of matrices that rounds in between keeps doing so, whatever is switched on."""
    program = traced(lambda x, v: (x * 3.0).cast("fp16").cast("fp32") @ v, x=S, v=V)
    result = compiled(program, also=UNROUNDED)
    assert operators(result)["Cast"] == operators(compiled(program))["Cast"] > 0
    program = traced(lambda x, v: x.cast("i32").cast("fp32") @ v, x=S, v=V)
    check_values(compiled(program, also=UNROUNDED), normal_inputs(program, scale=3.0))


# ---- growth, and what else must stay ---------------------------------------------------------------------------------------


def test_a_block_of_a_transformer_adds_as_much_as_any_other() -> None:
    """And adds less to a program of 1,000 nodes and more, of which fewer values have buffers (``rules/chains.egg``)."""
    sizes = {}
    for blocks in (1, 2, 4, 8, 12, 16):
        function, shapes = transformer(blocks)
        program = traced(function, **shapes)
        assert (len(program.nodes) < 1000) == (blocks < 8)
        result = saturate(program, load_rules(), also=UNROUNDED)
        assert result.complete
        sizes[blocks] = result.phases[-1].enodes
    short = [sizes[2] - sizes[1], (sizes[4] - sizes[2]) / 2]
    long = [(sizes[12] - sizes[8]) / 4, (sizes[16] - sizes[12]) / 4]
    assert max(short) < 1.1 * min(short), sizes
    assert max(long) < 1.1 * min(long), sizes
    assert max(long) <= min(short) and sizes[16] <= 16 * sizes[1], sizes


def test_a_softmax_by_itself_stays_right_and_in_one_kernel() -> None:
    """Its exponentials are needed again, outside of the sum."""
    program = traced(lambda x: tinyc.functions.softmax(x), x=(33, 65))
    result = compiled(program)
    assert len(result.kernels) == 1
    check_values(result)
    x = normal_inputs(program)["x"]
    x[0, :40] = x[1] = -np.inf
    x[2] *= 1e4
    check_values(result, {"x": x})


def test_the_same_again() -> None:
    program = traced(FORMS["scores of a product"][0], **FORMS["scores of a product"][1])
    first, second = (compiled(program) for _ in range(2))
    assert [kernel.source for kernel in first.kernels] == [kernel.source for kernel in second.kernels]
    assert [kernel.region for kernel in first.kernels] == [kernel.region for kernel in second.kernels]


@pytest.mark.parametrize(
    "name", ["log_softmax.json", "attention_mask.json", "transformer_block.json", "layernorm.json"]
)
def test_examples_with_the_rulesets_on(name: str, eager: None) -> None:
    from test_ablation import inputs
    from test_ablation import program as example

    result = compiled(example(name), also=UNROUNDED)
    check_values(result, inputs(name))
