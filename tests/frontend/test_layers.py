"""Convolution, attention and norms against loops and einsum in float64; exact where the numbers are integers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from frontend_helpers import Array, integers, normal, run, same, traced

import tinyc
from tinyc import functions as tc
from tinyc.frontend import nn, spec, trace


def conv_reference(
    x: Array, w: Array, b: Array | None, stride: Any, pads: Any, dilation: Any, groups: int
) -> Array:
    """By definition: one loop per output point and tap, nothing shared with the lowering."""
    rank = x.ndim - 2
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pads])
    span = [dilation[d] * (w.shape[2 + d] - 1) + 1 for d in range(rank)]
    out = [(padded.shape[2 + d] - span[d]) // stride[d] + 1 for d in range(rank)]
    result = np.zeros((x.shape[0], w.shape[0], *out))
    per_group, channels = w.shape[0] // groups, w.shape[1]
    for point in itertools.product(*map(range, out)):
        for tap in itertools.product(*map(range, w.shape[2:])):
            at = tuple(stride[d] * point[d] + dilation[d] * tap[d] for d in range(rank))
            for co in range(w.shape[0]):
                first = co // per_group * channels
                seen = padded[(slice(None), slice(first, first + channels), *at)]
                result[(slice(None), co, *point)] += seen @ w[(co, slice(None), *tap)].astype(np.float64)
    return result if b is None else result + b.reshape(-1, *[1] * rank)


CONVS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3 stride 2 pad 1, odd": ((2, 3, 7, 9), (4, 3, 3, 3), {"stride": 2, "pad": 1}),
    "3x3 stride 2 pad 1, even": ((1, 3, 8, 6), (4, 3, 3, 3), {"stride": 2, "pad": 1}),
    "1x1": ((2, 5, 4, 3), (6, 5, 1, 1), {}),
    "dilated": ((1, 2, 9, 8), (3, 2, 3, 3), {"dilation": (2, 1), "pad": (2, 0)}),
    "grouped": ((2, 6, 5, 5), (4, 3, 3, 3), {"groups": 2, "pad": 1}),
    "depthwise": ((2, 4, 5, 6), (8, 1, 3, 3), {"groups": 4}),
    "asymmetric": ((1, 2, 6, 7), (3, 2, 2, 4), {"pad": ((0, 1), (2, 1)), "stride": (1, 3)}),
    "1-D": ((2, 3, 11), (4, 3, 4), {"stride": 3, "pad": 2, "dilation": 2}),
    "3-D": ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), {"stride": (1, 2, 1), "pad": 1}),
    "kernel as large as the input": ((1, 2, 3, 3), (2, 2, 3, 3), {}),
}


@pytest.mark.spec("002-39")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", CONVS)
def test_conv(name: str, bias: bool) -> None:
    x_shape, w_shape, options = CONVS[name]
    x, w = integers(*x_shape), integers(*w_shape, seed=1)
    b = integers(w_shape[0], seed=2) if bias else None
    rank = len(x_shape) - 2
    stride, dilation = (nn.per_axis(options.get(key, 1), rank) for key in ("stride", "dilation"))
    pads = nn.conv_pads(options.get("pad", 0), rank)
    expected = conv_reference(x, w, b, stride, pads, dilation, options.get("groups", 1))
    given = (x, w, b) if bias else (x, w)
    same(
        traced(lambda *xs: tc.conv(*xs, **options) + 0.0, *given)[0],
        expected.astype(np.float32) + np.float32(0),
    )


@pytest.mark.spec("002-40")
def test_conv_reads_windows_through_a_view() -> None:
    program = trace(
        lambda x, w: tc.conv(x, w, stride=2, pad=1), spec("fp16", (1, 3, 7, 7)), spec("fp16", (4, 3, 3, 3))
    )
    (view,) = [node for node in program.nodes if node.uop == "VIEW"]
    assert view.arg["index_map"] == ("i0", "i1", "2*i2+i4", "2*i3+i5")
    reduce = next(node for node in program.nodes if node.uop == "REDUCE")
    assert (reduce.arg["op"], reduce.arg["dtype"].value, reduce.arg["axes"]) == ("SUM", "fp32", (5, 6, 7))


@pytest.mark.parametrize("size", [4, 5, 12])
def test_conv_with_symbolic_sizes(size: int) -> None:
    x, w = integers(2, 3, size, size + 1), integers(4, 3, 3, 3, seed=1)
    program = trace(
        lambda x, w: tc.conv(x, w, stride=2, pad=1),
        spec("fp32", ("N", 3, "H", "W")),
        spec("fp32", (4, 3, 3, 3)),
    )
    assert program.types[program.outputs[0].node].shape == ("N", 4, "(H+1)//2", "(W+1)//2")
    expected = conv_reference(x, w, None, (2, 2), ((1, 1), (1, 1)), (1, 1), 1)
    same(run(program, x, w)[0] + np.float32(0), expected.astype(np.float32) + np.float32(0))


BAD_CONVS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], str]] = {
    "channels": ((1, 3, 5, 5), (4, 2, 3, 3), {}, "AxisSizeMismatch"),
    "groups do not divide": ((1, 4, 5, 5), (3, 2, 3, 3), {"groups": 2}, "AxisSizeMismatch"),
    "groups": ((1, 4, 5, 5), (4, 4, 3, 3), {"groups": 0}, "InvalidArgument"),
    "kernel": ((1, 4, 2, 5), (4, 4, 3, 3), {}, "InvalidArgument"),
    "stride": ((1, 4, 5, 5), (4, 4, 3, 3), {"stride": 0}, "InvalidArgument"),
    "pad count": ((1, 4, 5, 5), (4, 4, 3, 3), {"pad": [1, 1, 1]}, "InvalidArgument"),
    "negative pad": ((1, 4, 5, 5), (4, 4, 3, 3), {"pad": [[1, -1], 0]}, "InvalidArgument"),
    "rank": ((1, 4, 5, 5), (4, 4, 3), {}, "AxisSizeMismatch"),
    "no spatial axis": ((1, 4), (4, 4), {}, "AxisSizeMismatch"),
}


@pytest.mark.parametrize("name", BAD_CONVS)
def test_conv_refuses(name: str) -> None:
    x, w, options, kind = BAD_CONVS[name]
    with pytest.raises(tinyc.TinycError) as caught:
        trace(lambda x, w: tc.conv(x, w, **options), spec("fp32", x), spec("fp32", w))
    assert caught.value.kind == kind


def attention_reference(
    q: Array,
    k: Array,
    v: Array,
    scale: float | None = None,
    mask: Array | None = None,
    seen: Array | None = None,
) -> Array:
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    if q.ndim > 2:
        k, v = (np.repeat(each, q.shape[-3] // each.shape[-3], axis=-3) for each in (k, v))
    scores = np.einsum("...md,...nd->...mn", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("...mn,...nd->...md", powers / powers.sum(-1, keepdims=True), v)


def _qkv(heads: int, shared: int, m: int, n: int) -> tuple[Array, Array, Array]:
    return normal(2, heads, m, 5), normal(2, shared, n, 5, seed=1), normal(2, shared, n, 6, seed=2)


ATTENTION: dict[str, tuple[tuple[int, int, int, int], dict[str, Any]]] = {
    "square, M = N = H": ((4, 4, 4, 4), {}),
    "M != N": ((2, 2, 3, 7), {}),
    "scale": ((2, 2, 3, 7), {"scale": 0.3}),
    "grouped": ((6, 2, 3, 4), {}),
    "one shared head": ((3, 1, 4, 5), {}),
    "one row, one column": ((1, 1, 1, 1), {}),
}


@pytest.mark.spec("002-41", "004-011")
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str) -> None:
    sizes, options = ATTENTION[name]
    q, k, v = _qkv(*sizes)
    ours = traced(lambda q, k, v: tc.attention(q, k, v, **options), q, k, v)[0]
    same(ours, attention_reference(q, k, v, **options).astype(np.float32), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("m", "n"), [(4, 4), (3, 6), (6, 3), (1, 5), (5, 1)])
@pytest.mark.parametrize("causal", ["upper_left", "lower_right"])
def test_causal_attention(m: int, n: int, causal: Any) -> None:
    q, k, v = _qkv(2, 2, m, n)
    seen = np.tril(np.ones((m, n), bool), 0 if causal == "upper_left" else n - m)
    ours = traced(lambda q, k, v: tc.attention(q, k, v, causal=causal), q, k, v)[0]
    expected = attention_reference(q, k, v, seen=seen).astype(np.float32)
    same(ours, expected, rtol=2e-5, atol=2e-6)
    assert np.isnan(expected).any() == (causal == "lower_right" and m > n)  # rows that attend to nothing
    if causal == "upper_left":
        np.testing.assert_array_equal(
            ours, traced(lambda q, k, v: tc.attention(q, k, v, causal=True), q, k, v)[0]
        )


@pytest.mark.parametrize(
    "shape", [(3, 7), (1, 7), (3, 1), (4, 3, 7), (1, 3, 7), (2, 1, 3, 7), (2, 4, 1, 7), ()]
)
@pytest.mark.parametrize("boolean", [False, True])
@pytest.mark.parametrize("shared", [4, 2])
def test_attention_mask_broadcasts(shape: tuple[int, ...], boolean: bool, shared: int) -> None:
    q, k, v = _qkv(4, shared, 3, 7)
    mask = np.asarray(normal(*shape, seed=3))
    mask = (mask > -1) if boolean else mask
    ours = traced(lambda q, k, v, mask: tc.attention(q, k, v, mask), q, k, v, mask)[0]
    same(ours, attention_reference(q, k, v, mask=mask).astype(np.float32), rtol=2e-5, atol=2e-6)


def test_attention_of_one_head_and_of_symbolic_sizes() -> None:
    q, k, v = normal(3, 4), normal(6, 4, seed=1), normal(6, 5, seed=2)
    expected = attention_reference(q, k, v).astype(np.float32)
    same(traced(tc.attention, q, k, v)[0], expected, rtol=2e-5, atol=2e-6)
    shapes = [("M", "D"), ("N", "D"), ("N", "E")]
    program = trace(lambda q, k, v: tc.attention(q, k, v), *(spec("fp32", shape) for shape in shapes))
    same(run(program, q, k, v)[0], expected, rtol=2e-5, atol=2e-6)


@pytest.mark.spec("002-42")
def test_softmax_uses_log2_e_that_rounds_to_the_documents() -> None:
    program = trace(tc.softmax, spec("fp32", (2, 3)))
    factors = [
        source
        for node in program.nodes
        if node.uop == "MUL"
        for source in node.src
        if isinstance(source, float)
    ]
    assert [np.float32(each) for each in factors] == [np.float32(1.442695)]


def test_fp16_attention_keeps_the_scores_in_fp32() -> None:
    q, k, v = (each.astype(np.float16) * np.float16(12) for each in _qkv(2, 2, 8, 9))
    ours = traced(lambda q, k, v: tc.attention(q, k, v, scale=1.0), q, k, v)[0]
    same(ours, attention_reference(q, k, v, 1.0).astype(np.float16), rtol=2e-3, atol=2e-3)


def test_attention_refuses() -> None:
    def refused(*shapes: tuple[int, ...], **options: Any) -> str:
        with pytest.raises(tinyc.TinycError) as caught:
            trace(
                lambda q, k, v: tc.attention(q, k, v, **options), *(spec("fp32", shape) for shape in shapes)
            )
        return caught.value.kind

    assert refused((2, 3, 4), (2, 5, 3), (2, 5, 4)) == "AxisSizeMismatch"
    assert refused((2, 3, 4), (2, 5, 4), (2, 6, 4)) == "AxisSizeMismatch"
    assert refused((3, 3, 4), (2, 5, 4), (2, 5, 4)) == "AxisSizeMismatch"
    assert refused((3, 4), (2, 5, 4), (2, 5, 4)) == "AxisSizeMismatch"
    assert refused((2, 3, 4), (2, 5, 4), (2, 5, 4), causal="middle") == "InvalidArgument"


@pytest.mark.parametrize("axis", [0, 1, 2, -1, (0, 2), (1, 2)])
def test_norms_over_any_axes(axis: Any) -> None:
    x = normal(3, 4, 5) * 3 + 1
    axes = sorted(a % 3 for a in (axis if isinstance(axis, tuple) else (axis,)))
    sizes = tuple(x.shape[a] for a in axes)
    placed = tuple(x.shape[a] if a in axes else 1 for a in range(3))
    w, b = normal(*sizes, seed=1), normal(*sizes, seed=2)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(tuple(axes), keepdims=True)
    layer = centred / np.sqrt(wide.var(tuple(axes), keepdims=True) + 1e-3) * w.reshape(placed) + b.reshape(
        placed
    )
    rms = wide / np.sqrt((wide**2).mean(tuple(axes), keepdims=True) + 1e-3) * w.reshape(placed)
    ours = traced(
        lambda x, w, b: (tc.layer_norm(x, w, b, axis, 1e-3), tc.rms_norm(x, w, axis, 1e-3)), x, w, b
    )
    same(ours[0], layer.astype(np.float32), rtol=1e-5, atol=1e-5)
    same(ours[1], rms.astype(np.float32), rtol=1e-5, atol=1e-5)


def test_norm_parameters_have_the_sizes_of_the_axes() -> None:
    with pytest.raises(tinyc.TinycError, match="weight"):
        trace(lambda x, w: tc.rms_norm(x, w, 0), spec("fp32", (3, 4)), spec("fp32", (4,)))


def test_a_fully_masked_row_is_nan() -> None:
    x = np.array([[-np.inf, -np.inf], [0.0, -np.inf]], np.float32)
    same(traced(tc.softmax, x)[0], np.array([[np.nan, np.nan], [1, 0]], np.float32))
