"""Contractions by hand, with Plans: what tiled kernels are tried on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from region_builder import F32, I32, Build

from tinyc.ir.dtypes import DType
from tinyc.ir.index import Affine, affine
from tinyc.ir.region import Region
from tinyc.ir.schedule import Async, Contraction, LayoutHints, Plan, Vectorize

OVERLAPPED = Async(True, 3, True)


def planned(
    roles: Contraction,
    tile: tuple[int, int, int] = (64, 64, 32),
    warp_tile: tuple[int, int] = (32, 32),
    stages: int = 3,
    *,
    width: int = 8,
    along: str = "n.i.i",
    swizzle: bool = True,
    ahead: Async = OVERLAPPED,
) -> Plan:
    return Plan(
        "contraction",
        roles,
        tile,
        stages,
        warp_tile=warp_tile,
        vectorize=Vectorize(along, width),
        arch="sm80",
        layout_hints=LayoutHints(swizzle, swizzle),
        async_=ahead,
    )


class Product(Build):
    """``sum`` over p of A[z, i, p] * B[z, p, j]: ``total``, for an epilogue to follow.

    ``at``, ``bt``: an operand's last two axes are transposed in memory. ``batch``: its size; ``shared``: "B" where B has no batch axis, "A"
    where A has none. ``pad``: elements by which rows of A are further apart. ``order``: of the result's axes.
    """

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        dtype: DType,
        *,
        at: bool = False,
        bt: bool = False,
        batch: int = 0,
        shared: str = "",
        order: str = "ij",
    ) -> None:
        sizes = {"z": batch, "i": m, "j": n, "p": k}
        super().__init__(**{name: sizes[name] for name in ("z" * bool(batch)) + order})
        self.sizes, self.order, self.dtype = sizes, order, dtype
        self.wide = I32 if dtype is I32 else F32
        x = self.widened(self.full("A", ("z" * (batch > 0 and shared != "A")) + ("pi" if at else "ip")))
        y = self.widened(self.full("B", ("z" * (batch > 0 and shared != "B")) + ("jp" if bt else "pj")))
        self.total = self.reduce("SUM", self.binary("MUL", x, y), p=k)
        z = ("z",) if batch else ()
        both, left, right = {"": (z, (), ()), "B": ((), z, ()), "A": ((), (), z)}[shared]
        self.roles = Contraction(self.total, x, y, both, (*left, "i"), (*right, "j"), ("p",))

    def full(self, name: str, axes: str, dtype: DType | None = None) -> str:
        """What is read from a buffer of these axes."""
        return self.read(self.input(name, dtype or self.dtype, *(self.sizes[each] for each in axes)), *axes)

    def widened(self, value: str) -> str:
        return value if self.types[value] is self.wide else self.cast(value, self.wide)

    def plain(self) -> Region:
        return self.done(self.total if self.dtype is self.wide else self.cast(self.total, self.dtype))


def convolution(
    batch: int,
    channels: int,
    features: int,
    sizes: Sequence[int],
    window: Sequence[int],
    dtype: DType,
    *,
    stride: int = 1,
    dilation: int = 1,
    pad: int = 0,
    channels_last: bool = True,
) -> tuple[Region, Contraction]:
    """Of 1 to 3 dimensions, with a bias and ReLU."""
    outs = [
        (size + 2 * pad - dilation * (each - 1) - 1) // stride + 1
        for size, each in zip(sizes, window, strict=True)
    ]
    here, taps = [f"y{d}" for d in range(len(sizes))], [f"r{d}" for d in range(len(sizes))]
    iters: dict[str, Any] = {"n": batch, **dict(zip(here, outs, strict=True)), "o": features}
    order = ["n", *here, "o"] if channels_last else ["n", "o", *here]
    b = Build(**{name: iters[name] for name in order})
    at = [affine(-pad, ((stride, y), (dilation, r))) for y, r in zip(here, taps, strict=True)]
    where: list[str | Affine] = ["n", *at, "c"] if channels_last else ["n", "c", *at]
    b.input("X", dtype, batch, *((*sizes, channels) if channels_last else (channels, *sizes)))
    b.input("W", dtype, features, *((*window, channels) if channels_last else (channels, *window)))
    x = b.read("X", *where)
    if pad:
        zero = b.const(0.0, dtype)
        for index, size in zip(at, sizes, strict=True):
            x = b.select(b.within(index, 0, size), x, zero)
    y = b.read("W", "o", *([*taps, "c"] if channels_last else ["c", *taps]))
    x, y = b.cast(x, F32), b.cast(y, F32)
    total = b.reduce("SUM", b.binary("MUL", x, y), c=channels, **dict(zip(taps, window, strict=True)))
    result = b.unary("RELU", b.binary("ADD", total, b.read(b.input("bias", F32, features), "o")))
    roles = Contraction(total, x, y, (), ("n", *here), ("o",), ("c", *taps))
    return b.done(b.cast(result, dtype)), roles
