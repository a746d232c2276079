"""The programs that ``tinyc bench gpu`` times, each with its sizes: all data, in the order in which they are shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Shape = tuple[int, ...]
Parameter = bool | int | str

LIMIT_S = 60.0
"""Seconds that one program may be optimised for. What is found by then is taken."""

WIDTHS = {"fp16": 2, "bf16": 2, "fp32": 4, "i32": 4}
"""Bytes of an element."""


@dataclass(frozen=True)
class Input:
    """``scale``: of its random numbers, chosen so that results are near 1 and errors of their last bit are all that there is."""

    name: str
    dtype: str
    shape: Shape
    scale: float = 1.0

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * WIDTHS[self.dtype]


@dataclass(frozen=True)
class Entry:
    """``program``: its name in :mod:`.naive` and in ``folder/programs.py``, both called with ``parameters``. ``flops``: of
    products alone, a multiply-add is 2; 0 where memory is all that matters. ``also``: rulesets to switch on."""

    name: str
    program: str
    inputs: tuple[Input, ...]
    output: Input
    flops: int = 0
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    quick: bool = False
    limit_s: float = LIMIT_S

    @property
    def bytes(self) -> int:
        """The least that is read and written: each input and the output once."""
        return sum(each.bytes for each in (*self.inputs, self.output))


def gemm(
    name: str,
    dtype: str,
    m: int,
    n: int,
    k: int,
    batch: int = 0,
    layout: str = "nn",
    bias: bool = False,
    quick: bool = False,
) -> Entry:
    """A product. ``layout``: of a and of b, "t" where the array holds the transpose. ``bias``: relu(a b + bias)."""
    several = (batch,) if batch else ()
    a = (*several, *((k, m) if layout[0] == "t" else (m, k)))
    b = (*several, *((n, k) if layout[1] == "t" else (k, n)))
    inputs = [Input("a", dtype, a), Input("b", dtype, b, k**-0.5)]
    if bias:
        inputs.append(Input("bias", dtype, (n,), 0.5))
    return Entry(
        f"gemm-{name}",
        "gemm_bias_relu" if bias else "gemm",
        tuple(inputs),
        Input("out", dtype, (*several, m, n)),
        2 * max(batch, 1) * m * n * k,
        {} if bias else {"layout": layout},
        quick=quick,
    )


def conv(
    name: str,
    size: tuple[int, int, int],
    channels: tuple[int, int],
    form: str,
    batch: int = 32,
    stride: int = 1,
    groups: int = 1,
    quick: bool = False,
) -> Entry:
    """A convolution in fp16. ``size``: height, width and the kernel's side, padded so that stride 1 keeps the size.
    ``channels``: in and out. ``form``: "nhwc", with a filter of [out, side, side, in], or "nchw"."""
    (height, width, side), (into, out) = size, channels
    pad, each = side // 2, into // groups
    high, wide = ((extent + 2 * pad - side) // stride + 1 for extent in (height, width))

    def placed(first: int, spatial: tuple[int, int], count: int) -> Shape:
        return (first, *spatial, count) if form == "nhwc" else (first, count, *spatial)

    taps = each * side * side
    return Entry(
        f"conv-{name}",
        "conv",
        (
            Input("x", "fp16", placed(batch, (height, width), into)),
            Input("weight", "fp16", placed(out, (side, side), each), taps**-0.5),
        ),
        Input("out", "fp16", placed(batch, (high, wide), out)),
        2 * batch * high * wide * out * taps,
        {"form": form, "stride": stride, "pad": pad, "groups": groups},
        quick=quick,
    )


def attention(
    length: int, depth: int, causal: bool, heads: int = 16, shared: int = 16, quick: bool = False
) -> Entry:
    """Attention in fp16 of 4 sequences. ``shared``: heads of keys and values. Half of the products count where it is causal."""
    q, kv = (4, heads, length, depth), (4, shared, length, depth)
    flops = 4 * 4 * heads * length * length * depth
    words = ["attention", *(["gqa"] if shared < heads else []), *(["causal"] if causal else [])]
    return Entry(
        "-".join([*words, str(length), f"d{depth}"]),
        "attention",
        # large scores, so that a few keys count and not the mean of all
        (Input("q", "fp16", q, 4.0), Input("k", "fp16", kv), Input("v", "fp16", kv)),
        Input("out", "fp16", q),
        flops // 2 if causal else flops,
        {"causal": causal},
        also=("streaming-unrounded",),
        quick=quick,
    )


def softmax(dtype: str, rows: int, columns: int, quick: bool = False) -> Entry:
    shape = (rows, columns)
    return Entry(
        f"softmax-{dtype}-{rows}x{columns}",
        "softmax",
        (Input("x", dtype, shape),),
        Input("out", dtype, shape),
        quick=quick,
    )


def layer_norm(dtype: str, rows: int, columns: int, quick: bool = False) -> Entry:
    shape, vector = (rows, columns), (columns,)
    return Entry(
        f"layernorm-{dtype}-{rows}x{columns}",
        "layer_norm",
        (Input("x", dtype, shape), Input("weight", dtype, vector), Input("bias", dtype, vector)),
        Input("out", dtype, shape),
        quick=quick,
    )


def bias_gelu(dtype: str, rows: int, columns: int, quick: bool = False) -> Entry:
    shape = (rows, columns)
    return Entry(
        f"bias-gelu-{dtype}-{rows}x{columns}",
        "bias_gelu",
        (Input("x", dtype, shape), Input("bias", dtype, (columns,))),
        Input("out", dtype, shape),
        quick=quick,
    )


def reduction(axis: int, rows: int, columns: int, quick: bool = False) -> Entry:
    """Sums in fp32: of each row (axis 1), or of each column (axis 0)."""
    what, kept, summed = ("rows", rows, columns) if axis else ("columns", columns, rows)
    return Entry(
        f"sum-{what}-fp32-{rows}x{columns}",
        "sum",
        (Input("x", "fp32", (rows, columns), summed**-0.5),),
        Input("out", "fp32", (kept,)),
        parameters={"axis": axis},
        quick=quick,
    )


def transformer_block(tokens: int, width: int, heads: int) -> Entry:
    """A block in fp16: LayerNorm, causal attention, residual, LayerNorm, MLP of four times the width, residual."""
    square, vector, inner = (width, width), (width,), 4 * width
    shapes: dict[str, tuple[Shape, float]] = {
        "x": ((tokens, width), 0.25),
        "norm1": (vector, 1.0),
        **{name: (square, width**-0.5) for name in ("wq", "wk", "wv")},
        "wo": (square, 0.25 * width**-0.5),
        "norm2": (vector, 1.0),
        "w1": ((width, inner), width**-0.5),
        "b1": ((inner,), 0.25),
        "w2": ((inner, width), 0.25 * inner**-0.5),
        "b2": (vector, 0.25),
    }
    products = 2 * tokens * width * (4 * width + 2 * inner)
    return Entry(
        f"transformer-block-{tokens}x{width}",
        "transformer_block",
        tuple(Input(name, "fp16", shape, scale) for name, (shape, scale) in shapes.items()),
        Input("out", "fp16", (tokens, width)),
        products + 4 * tokens * tokens * width // 2,
        {"heads": heads},
        also=("streaming-unrounded",),
    )


def _entries() -> Iterator[Entry]:
    for dtype in ("fp16", "bf16"):
        for size in (1024, 2048, 4096, 8192):
            quick = dtype == "fp16" and size in (1024, 4096)
            yield gemm(f"{dtype}-{size}", dtype, size, size, size, quick=quick)
    for size in (1024, 2048):
        yield gemm(f"fp32-{size}", "fp32", size, size, size, quick=size == 1024)
    yield gemm("i32-512", "i32", 512, 512, 512)
    for layout in ("nt", "tn", "tt"):
        yield gemm(f"fp16-2048-{layout}", "fp16", 2048, 2048, 2048, layout=layout)
    yield gemm("bias-relu-fp16-1024x1024x512", "fp16", 1024, 1024, 512, bias=True, quick=True)
    yield gemm("bias-relu-fp16-4096", "fp16", 4096, 4096, 4096, bias=True)
    yield gemm("odd-fp16-1000x1003x507", "fp16", 1000, 1003, 507)
    yield gemm("odd-bf16-777x1111x555", "bf16", 777, 1111, 555)
    yield gemm("batched-fp16-16x512x512x64", "fp16", 512, 512, 64, batch=16, quick=True)
    yield gemm("deep-fp16-64x64x65536", "fp16", 64, 64, 65536)
    yield gemm("skinny-fp16-8x4096x4096", "fp16", 8, 4096, 4096)

    for form in ("nhwc", "nchw"):
        yield conv(f"{form}-32x56x56x64-3x3", (56, 56, 3), (64, 64), form, quick=form == "nhwc")
    yield conv("nhwc-32x56x56x64-128-3x3-stride-2", (56, 56, 3), (64, 128), "nhwc", stride=2)
    yield conv("nhwc-32x56x56x256-64-1x1", (56, 56, 1), (256, 64), "nhwc")
    yield conv("nhwc-32x28x28x128-3x3-groups-4", (28, 28, 3), (128, 128), "nhwc", groups=4)
    yield conv("nchw-32x56x56x64-3x3-depthwise", (56, 56, 3), (64, 64), "nchw", groups=64)

    for depth in (64, 128):
        for causal in (False, True):
            for length in (1024, 2048, 4096):
                yield attention(length, depth, causal, quick=length == 1024 and depth == 64)
    yield attention(2048, 128, True, heads=32, shared=8)

    yield softmax("fp16", 4096, 1000)
    yield softmax("fp16", 4096, 4096, quick=True)
    yield softmax("fp32", 64, 65536)
    yield layer_norm("fp16", 4096, 1024)
    yield layer_norm("fp16", 4096, 4096, quick=True)
    yield bias_gelu("fp16", 4096, 4096, quick=True)
    yield reduction(1, 8192, 8192, quick=True)
    yield reduction(0, 8192, 8192)
    yield transformer_block(512, 512, 8)


ENTRIES: Mapping[str, Entry] = {entry.name: entry for entry in _entries()}
