"""What the programs of bench.json compute: their inputs, numpy's results in float64, torch's functions, and when a result is right.

Arrays are as the loader has them: bf16 as its bits, uint16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
"""Of numpy or of torch."""

TOLERANCE = {"fp16": 1e-3, "bf16": 1.6e-2, "fp32": 1e-3, "i32": 0.0}
"""Relative and absolute, by the dtype of the result; relative alone of all errors together (root of their mean square)."""

EXACT = frozenset({"gemm", "gemm_bias_relu", "conv", "sum"})
"""Programs whose results are exact on small integers: nothing but the rounding of the result is left."""


# ---- inputs -----------------------------------------------------------------------------------------------------------


def inputs_of(entry: Mapping[str, Any], kind: str, seed: int = 0) -> list[np.ndarray]:
    """Arrays for the inputs of an entry. ``kind``: "normal", numbers of a normal distribution times the input's scale, or
    "integers", -1, 0 and 1; an i32 has integers in any case."""
    generator = np.random.default_rng(seed)
    return [_made(generator, each, kind) for each in entry["inputs"]]


def _made(generator: np.random.Generator, declared: Mapping[str, Any], kind: str) -> np.ndarray:
    dtype, shape = declared["dtype"], tuple(declared["shape"])
    if kind == "integers":
        return narrowed(generator.integers(-1, 2, shape, np.int8), dtype)
    if dtype == "i32":
        return generator.integers(-1000, 1001, shape, np.int32)
    values = generator.standard_normal(shape, np.float32)
    values *= np.float32(declared["scale"])
    return narrowed(values, dtype)


def narrowed(values: np.ndarray, dtype: str) -> np.ndarray:
    """``values``, rounded to nearest, ties to even. To bf16 by way of fp32, which integers below 2^24 pass unchanged."""
    if dtype == "bf16":
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    with np.errstate(over="ignore"):
        return values.astype({"fp16": np.float16, "fp32": np.float32, "i32": np.int32}[dtype])


def widened(array: np.ndarray, dtype: str) -> np.ndarray:
    """The same numbers as float64."""
    if dtype == "bf16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


# ---- numpy, in float64 ------------------------------------------------------------------------------------------------


def by_numpy(entry: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The result of an entry, as numpy computes it in float64."""
    wide = [widened(array, each["dtype"]) for array, each in zip(arrays, entry["inputs"], strict=True)]
    return NUMPY[entry["program"]](*wide, **entry["parameters"])


def _turned(array: Array, how: str) -> Array:
    return array.swapaxes(-1, -2) if how == "t" else array


def _gemm(a: np.ndarray, b: np.ndarray, layout: str) -> np.ndarray:
    return _turned(a, layout[0]) @ _turned(b, layout[1])


def _gemm_bias_relu(a: np.ndarray, b: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return np.maximum(a @ b + bias, 0)


def _conv(x: np.ndarray, weight: np.ndarray, form: str, stride: int, pad: int, groups: int) -> np.ndarray:
    """One product for each tap of the filter and each group."""
    if form == "nchw":
        x, weight = np.moveaxis(x, 1, -1), np.moveaxis(weight, 1, -1)
    batch, height, width, channels = x.shape
    out, high, wide, each = weight.shape
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0))).reshape(
        batch, height + 2 * pad, width + 2 * pad, groups, channels // groups
    )
    filters = weight.reshape(groups, out // groups, high, wide, each)
    rows, columns = ((size + 2 * pad - taps) // stride + 1 for size, taps in ((height, high), (width, wide)))
    sums = np.zeros((groups, batch * rows * columns, out // groups))
    for i in range(high):
        for j in range(wide):
            seen = padded[:, i : i + stride * rows : stride, j : j + stride * columns : stride]
            seen = seen[:, :rows, :columns].reshape(-1, groups, each).transpose(1, 0, 2)
            sums += seen @ filters[:, :, i, j].transpose(0, 2, 1)
    found = sums.transpose(1, 0, 2).reshape(batch, rows, columns, out)
    return np.moveaxis(found, -1, 1) if form == "nchw" else found


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """One head at a time: the scores of all of them may not fit."""
    found, group = np.empty_like(q), q.shape[1] // k.shape[1]
    for sequence, head in np.ndindex(q.shape[:2]):
        keys, values = k[sequence, head // group], v[sequence, head // group]
        scores = q[sequence, head] @ keys.T / math.sqrt(q.shape[-1])
        if causal:
            scores += np.triu(np.full(scores.shape, -np.inf), 1)
        found[sequence, head] = _softmax(scores) @ values
    return found


def _layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | float = 0.0) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * weight + bias


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _transformer_block(x: np.ndarray, *parameters: np.ndarray, heads: int) -> np.ndarray:
    norm1, wq, wk, wv, wo, norm2, w1, b1, w2, b2 = parameters
    tokens, width = x.shape
    normal = _layer_norm(x, norm1)
    q, k, v = ((normal @ w).reshape(tokens, heads, -1).transpose(1, 0, 2)[None] for w in (wq, wk, wv))
    x = x + _attention(q, k, v, causal=True)[0].transpose(1, 0, 2).reshape(tokens, width) @ wo
    return x + _gelu(_layer_norm(x, norm2) @ w1 + b1) @ w2 + b2


NUMPY: Mapping[str, Callable[..., np.ndarray]] = {
    "gemm": _gemm,
    "gemm_bias_relu": _gemm_bias_relu,
    "conv": _conv,
    "attention": _attention,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "bias_gelu": lambda x, bias: _gelu(x + bias),
    "sum": lambda x, axis: x.sum(axis),
    "transformer_block": _transformer_block,
}


# ---- torch ------------------------------------------------------------------------------------------------------------


def by_torch(torch: Any, entry: Mapping[str, Any], tensors: Sequence[Any]) -> np.ndarray:
    """The result of an entry as torch computes it in float64, on the tensors' device."""
    function = {**torch_functions(torch), "gemm_bias_relu": lambda a, b, bias: torch.relu(a @ b + bias)}[
        entry["program"]
    ]
    wide = [tensor.double() for tensor in tensors]
    if entry["program"] != "attention":
        return function(*wide, **entry["parameters"]).cpu().numpy()
    # one sequence at a time: the scores of all of them may not fit
    sequences = range(wide[0].shape[0])
    found = [
        function(*(each[one : one + 1] for each in wide), **entry["parameters"]).cpu() for one in sequences
    ]
    return torch.cat(found).numpy()


def torch_functions(torch: Any) -> dict[str, Callable[..., Any]]:
    """The programs as one writes them in torch: its libraries' products, convolution and attention, eager."""
    F = torch.nn.functional

    def conv(x: Any, weight: Any, form: str, stride: int, pad: int, groups: int) -> Any:
        if form == "nchw":
            return F.conv2d(x, weight, stride=stride, padding=pad, groups=groups)
        x, weight = x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2)  # channels_last, as torch calls it
        return F.conv2d(x, weight, stride=stride, padding=pad, groups=groups).permute(0, 2, 3, 1)

    def attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
        grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)

    def block(x: Any, *parameters: Any, heads: int) -> Any:
        norm1, wq, wk, wv, wo, norm2, w1, b1, w2, b2 = parameters
        tokens, width = x.shape
        normal = F.layer_norm(x, (width,), norm1)
        q, k, v = ((normal @ w).reshape(tokens, heads, -1).permute(1, 0, 2)[None] for w in (wq, wk, wv))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0]
        x = x + mixed.permute(1, 0, 2).reshape(tokens, width) @ wo
        normal = F.layer_norm(x, (width,), norm2)
        return x + torch.addmm(b2, F.gelu(torch.addmm(b1, normal, w1), approximate="tanh"), w2)

    return {
        "gemm": lambda a, b, layout: torch.matmul(_turned(a, layout[0]), _turned(b, layout[1])),
        # the one call in which torch leaves bias and ReLU to cuBLAS
        "gemm_bias_relu": lambda a, b, bias: torch._addmm_activation(bias, a, b),
        "conv": conv,
        "attention": attention,
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": lambda x, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias),
        "bias_gelu": lambda x, bias: F.gelu(x + bias, approximate="tanh"),
        "sum": lambda x, axis: x.sum(axis),
        "transformer_block": block,
    }


# ---- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """``why``: what is wrong with a result; empty where it is right. ``largest``: of all absolute errors; ``relative``: the
    root of their mean square by that of the results."""

    why: str
    largest: float
    relative: float


def judged(entry: Mapping[str, Any], got: np.ndarray, want: np.ndarray, exact: bool) -> Verdict:
    """``got``, of the entry's dtype, against ``want`` in float64. ``exact``: they have to be the same once ``want`` is rounded."""
    dtype = entry["output"]["dtype"]
    if exact:
        want = widened(narrowed(want, dtype), dtype)
    got = widened(got.reshape(want.shape), dtype)
    tolerance = 0.0 if exact else TOLERANCE[dtype]
    error = np.abs(got - want)
    wrong = ~(error <= tolerance + tolerance * np.abs(want))  # NaN is wrong too
    size = math.sqrt(float(np.mean(want * want)))
    relative = math.sqrt(float(np.mean(error * error))) / size if size else float(error.max())
    largest = float(error.max())
    if wrong.any():
        place = np.unravel_index(int(wrong.argmax()), wrong.shape)
        at = ", ".join(str(int(index)) for index in place)
        found = f"{got[place]:.6g} and not {want[place]:.6g} at [{at}]"
        return Verdict(f"{int(wrong.sum())} of {wrong.size} are wrong: {found}", largest, relative)
    if not relative <= tolerance:
        why = f"the errors together are {relative:.2g} of the results, and may be {tolerance:.2g}"
        return Verdict(why, largest, relative)
    return Verdict("", largest, relative)
