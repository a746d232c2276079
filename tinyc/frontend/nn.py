"""Layers as naive movement + elementwise + reduce (document 002 §5, 004 §10): softmax, norms, conv, attention.

Nothing here is clever; the rules find the fast program. Norms and softmax of fp16 and bf16 compute in fp32,
contractions accumulate in fp32 over products of casted operands (I-08).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tinyc.ir import dims
from tinyc.ir.diagnostics import TinycError, show, show_shape
from tinyc.ir.dtypes import DType
from tinyc.ir.tiny import Imm

from .base import Axes
from .creation import triangle
from .elementwise import LN_2, LOG2_E
from .movement import per_axis
from .sizes import integer, listed, spread
from .tensor import Tensor, contract, need_tensors

Causal = bool | Literal["upper_left", "lower_right"]
Pads = int | Sequence[int | Sequence[int]]


def softmax(x: Tensor, axis: Axes = -1, dtype: str | DType | None = None) -> Tensor:
    """exp(x - max) / sum over ``axis``. A row of -inf is NaN, as in numpy."""
    wide = _wide("softmax", x)
    powers = ((wide - wide.max(axis, keepdims=True)) * LOG2_E).exp2()
    return (powers / powers.sum(axis, keepdims=True)).cast(dtype or x.dtype)


def log_softmax(x: Tensor, axis: Axes = -1, dtype: str | DType | None = None) -> Tensor:
    """(x - max) - log(sum(exp(x - max))) over ``axis``."""
    wide = _wide("log_softmax", x)
    shifted = wide - wide.max(axis, keepdims=True)
    total = (shifted * LOG2_E).exp2().sum(axis, keepdims=True)
    return (shifted - total.log2() * LN_2).cast(dtype or x.dtype)


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    axis: Axes = -1,
    eps: float = 1e-5,
    dtype: str | DType | None = None,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over ``axis`` (exactly the axes named).

    ``weight`` and ``bias`` have the sizes of those axes, in the order of the axes in ``x``.
    """
    wide = _wide("layer_norm", x, weight, bias)
    centred = wide - wide.mean(axis, keepdims=True)
    variance = (centred * centred).mean(axis, keepdims=True)
    return _affine(centred * (variance + eps).rsqrt(), x, axis, weight, bias).cast(dtype or x.dtype)


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    axis: Axes = -1,
    eps: float = 1e-5,
    dtype: str | DType | None = None,
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over ``axis``; ``weight`` as in :func:`layer_norm`."""
    wide = _wide("rms_norm", x, weight)
    scale = ((wide * wide).mean(axis, keepdims=True) + eps).rsqrt()
    return _affine(wide * scale, x, axis, weight, None).cast(dtype or x.dtype)


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    pad: Pads = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    dtype: str | DType | None = None,
    acc: str | DType | None = None,
) -> Tensor:
    """Cross-correlation over 1, 2 or 3 spatial axes (document 002 §5.2).

    x: [N, Cin, *spatial], weight: [Cout, Cin/groups, *kernel] with integer sizes of the kernel, bias: [Cout].
    ``pad``: one number, one per spatial axis, or one [before, after] per spatial axis; filled with zeros.
    Result: [N, Cout, *out] with out = (D + pads - dilation*(kernel-1) - 1) // stride + 1.
    Raises AxisSizeMismatch, DTypeMismatch, InvalidArgument.
    """
    need_tensors("conv", x, weight, bias)
    count = x.ndim - 2
    if count not in (1, 2, 3) or weight.ndim != x.ndim:
        raise _error(
            "AxisSizeMismatch",
            "conv",
            f"x {_shape(x)} and weight {_shape(weight)}",
            "give x as [N, Cin, *spatial] and weight as [Cout, Cin/groups, *kernel], 1 to 3 spatial axes",
        )
    batch, channels, *_ = x.value.shape
    out_channels, group_channels, *kernel = weight.value.shape
    parts = integer(groups)
    if parts is None or parts < 1:
        raise _error("InvalidArgument", "conv", f"groups is {groups!r}", "give an integer >= 1")
    groups = parts
    if dims.mul(group_channels, groups) != channels:
        raise _error(
            "AxisSizeMismatch",
            "conv",
            f"x has {channels} channels, but {groups} groups of weight's {group_channels} are needed",
            "make Cin = groups * weight.shape[1]",
        )
    per_group = dims.floordiv(out_channels, groups)
    if dims.mul(per_group, groups) != out_channels:
        raise _error(
            "AxisSizeMismatch",
            "conv",
            f"{out_channels} output channels do not split into {groups} groups",
            "make groups divide them",
        )
    if not all(isinstance(taps, int) for taps in kernel):
        raise _error(
            "InvalidShape",
            "conv",
            f"the kernel is {show_shape(tuple(kernel))}",
            "bind its sizes to integers first",
        )
    taps = tuple(int(dim) for dim in kernel)
    pads = conv_pads(pad, count)
    windowed = x.pad([(0, 0), (0, 0), *pads]).sliding_window(taps, range(2, 2 + count), stride, dilation)
    outs = windowed.value.shape[2 : 2 + count]

    # x: [N, G, 1, *out, Cin/G, *kernel]; weight: [G, Cout/G, 1.., Cin/G, *kernel]; the product reduces the rest
    split = windowed.reshape((batch, groups, group_channels, 1, *outs, *taps))
    rank = split.ndim
    moved = split.permute(0, 1, 3, *range(4, 4 + count), 2, *range(4 + count, rank))
    filters = weight.reshape((1, groups, per_group, *(1,) * count, group_channels, *taps))
    if x.dtype is not weight.dtype:
        raise _mixed("conv", x, weight)
    summed = contract(moved, filters, 1 + count, acc).reshape((batch, out_channels, *outs))
    if bias is not None:
        if bias.value.shape != (out_channels,):
            why = f"bias is {_shape(bias)} where there are {out_channels} output channels"
            raise _error("AxisSizeMismatch", "conv", why, f"give bias as [{out_channels}]")
        summed = summed + bias.cast(summed.dtype).reshape((out_channels, *(1,) * count))
    return summed.cast(dtype or x.dtype)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    scale: Imm | None = None,
    causal: Causal = False,
    dtype: str | DType | None = None,
) -> Tensor:
    """softmax(q kᵀ * scale + mask) v.

    q: [..., Hq, M, D], k: [..., Hkv, N, D], v: [..., Hkv, N, Dv] with Hq a multiple of Hkv (grouped heads; each
    group of Hq/Hkv consecutive heads shares one); below rank 3 there is no head axis. Result: [..., Hq, M, Dv].
    ``scale``: default 1/sqrt(D). ``mask``: bool (True: attend) or additive, broadcast to [..., Hq, M, N].
    ``causal``: row i attends to columns j <= i (True or "upper_left": numpy's tril, PyTorch and ONNX), or to
    j <= i + N - M ("lower_right": the last row sees all, as with a cache of keys). Scores and softmax are fp32;
    the probabilities are cast to v's dtype before the second product. A row with nothing to attend to is NaN.
    """
    need_tensors("attention", q, k, v, mask)
    if min(q.ndim, k.ndim, v.ndim) < 2 or not q.ndim == k.ndim == v.ndim:
        raise _error(
            "AxisSizeMismatch", "attention", _qkv(q, k, v), "give q, k and v the same rank of at least 2"
        )
    if not q.dtype is k.dtype is v.dtype or not q.dtype.is_float:
        raise _error(
            "DTypeMismatch", "attention", f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype}", "cast to one float"
        )
    rows, width = q.value.shape[-2:]
    columns = k.value.shape[-2]
    if k.value.shape[-1] != width or v.value.shape[-2] != columns:
        raise _error(
            "AxisSizeMismatch",
            "attention",
            _qkv(q, k, v),
            "let q and k share the last axis, k and v the one before",
        )
    result_shape = (*q.value.shape[:-1], v.value.shape[-1])
    group = _group(q, k, v)
    if group != 1:
        heads = k.value.shape[-3]
        q = q.reshape((*q.value.shape[:-3], heads, group, rows, width))
        k, v = k.expand_dims(-3), v.expand_dims(-3)
    if scale is None:
        root = q._count([q.ndim - 1])
        scores = _scores(q, k) * (root**-0.5 if isinstance(root, float) else root.rsqrt())
    else:
        scores = _scores(q, k) * scale
    if mask is not None:
        scores = _masked(scores, mask, group)
    if causal:
        if causal not in (True, "upper_left", "lower_right"):
            raise _error(
                "InvalidArgument", "attention", f"causal is {causal!r}", "use upper_left or lower_right"
            )
        lowest = dims.sub(rows if causal == "lower_right" else columns, 1)
        seen = triangle(q.builder, rows, columns, lowest)
        scores = _choose(seen, scores)
    weights = softmax(scores, -1).cast(v.dtype)
    mixed = contract(weights.expand_dims(-2), v.swapaxes(-1, -2).expand_dims(-3), 1)
    return mixed.reshape(result_shape).cast(dtype or v.dtype)


def conv_pads(pad: Pads, count: int) -> list[tuple[int, int]]:
    """(before, after) of each spatial axis. Raises InvalidArgument."""
    pairs = [each * 2 if len(each) == 1 else each for each in map(listed, spread(pad, count))]
    known = [[n for n in map(integer, pair) if n is not None and n >= 0] for pair in pairs]
    if len(known) != count or any(len(pair) != 2 for pair in (*pairs, *known)):
        raise _error(
            "InvalidArgument",
            "conv",
            f"pad {show(pad)} for {count} spatial axes",
            "give one number >= 0, or per spatial axis a number or [before, after]",
        )
    return [(low, high) for low, high in known]


def pool(
    x: Tensor,
    op: Literal["max", "mean"],
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    pad: Pads = 0,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Over the spatial axes of [N, C, *spatial]. max pads with -inf; mean counts padded zeros, divides by all."""
    count = x.ndim - 2
    taps = per_axis(kernel, count)
    padded = x.pad([(0, 0), (0, 0), *conv_pads(pad, count)], float("-inf") if op == "max" else 0)
    windowed = padded.sliding_window(taps, range(2, 2 + count), taps if stride is None else stride, dilation)
    over = range(x.ndim, x.ndim + count)
    return windowed.max(over) if op == "max" else windowed.mean(over)


def _wide(op: str, x: Tensor, *parameters: Tensor | None) -> Tensor:
    need_tensors(op, x, *parameters)
    if not x.dtype.is_float:
        raise _error("DTypeMismatch", op, f"{op} meets {x.dtype}", "cast it to fp32 first")
    return x.cast(DType.FP32)


def _affine(normal: Tensor, x: Tensor, axis: Axes, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """``normal * weight + bias`` where both have the sizes of the normalised axes."""
    axes = sorted(x._axes(axis))
    sizes = tuple(x.value.shape[a] for a in axes)
    placed = tuple(dim if a in axes else 1 for a, dim in enumerate(x.value.shape))
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is None:
            continue
        if parameter.value.shape != sizes:
            raise _error(
                "AxisSizeMismatch",
                "norm",
                f"{name} {_shape(parameter)} over axes {axes} of {_shape(x)}",
                f"give {name} the shape {show_shape(sizes)}",
            )
        wide = parameter.cast(DType.FP32).reshape(placed)
        normal = normal * wide if name == "weight" else normal + wide
    return normal


def _group(q: Tensor, k: Tensor, v: Tensor) -> int:
    """How many query heads share one head of keys."""
    if q.ndim < 3:
        return 1
    heads, shared = q.value.shape[-3], k.value.shape[-3]
    leading = q.value.shape[:-3]
    fits = k.value.shape[:-3] == v.value.shape[:-3] == leading and v.value.shape[-3] == shared
    if fits and heads == shared:
        return 1
    if fits and isinstance(heads, int) and isinstance(shared, int) and heads % shared == 0:
        return heads // shared
    raise _error(
        "AxisSizeMismatch", "attention", _qkv(q, k, v), "let the query heads be a multiple of the key heads"
    )


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return contract(q.expand_dims(-2), k.expand_dims(-3), 1)


def _masked(scores: Tensor, mask: Tensor, group: int) -> Tensor:
    if group != 1 and mask.ndim >= 3:
        heads = mask.value.shape[-3]
        split = (1, 1) if heads == 1 else (scores.value.shape[-4], group)
        mask = mask.reshape((*mask.value.shape[:-3], *split, *mask.value.shape[-2:]))
    if mask.ndim > scores.ndim:
        raise TinycError(
            "BroadcastMismatch",
            f"the mask {_shape(mask)} has more axes than the scores {_shape(scores)}",
            "drop leading axes of the mask",
            {"layer": "frontend", "op": "attention"},
            lhs_shape=list(scores.value.shape),
            rhs_shape=list(mask.value.shape),
        )
    if mask.dtype is DType.BOOL:
        return _choose(mask, scores)
    return scores + mask.cast(scores.dtype).broadcast_to(scores.value.shape)


def _choose(seen: Tensor, scores: Tensor) -> Tensor:
    """``scores`` where ``seen``, else -inf."""
    full = seen.broadcast_to(scores.value.shape)
    return scores._new(scores.builder.where(full.value, scores.value, float("-inf")))


def _qkv(q: Tensor, k: Tensor, v: Tensor) -> str:
    return f"q {_shape(q)}, k {_shape(k)}, v {_shape(v)}"


def _shape(x: Tensor) -> str:
    return show_shape(x.value.shape)


def _mixed(op: str, left: Tensor, right: Tensor) -> TinycError:
    return _error("DTypeMismatch", op, f"{op} mixes {left.dtype} and {right.dtype}", "cast one side")


def _error(kind: str, op: str, why: str, suggestion: str) -> TinycError:
    return TinycError(kind, why, suggestion, {"layer": "frontend", "op": op})
