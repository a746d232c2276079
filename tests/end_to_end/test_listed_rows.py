"""Attention, softmax, norms, movement and a transformer block for sm80 in the emulator.

Where a result of softmax is exact: one score is above all others, or 2^k are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from emulated_checks import GREEDY, OnMatrixUnits, check_emulated
from end_checks import Arrays, arrays_of, integer_inputs, normal_inputs, traced

import tinyc
from tinyc import functions as tc
from tinyc.ir.region import Stream
from tinyc.ir.tiny import Program

Tensor = Any
Shape = tuple[int, ...]

# ---- attention ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attention:
    """``n``: keys, as many as queries where it is 0. ``heads``: of queries and of keys. ``mask``: "bool" or "added". ``stream``: in
    one kernel."""

    m: int
    n: int = 0
    d: int = 64
    heads: tuple[int, int] = (2, 2)
    dtype: str = "fp16"
    causal: Any = False
    mask: str = ""
    stream: bool = True

    @property
    def columns(self) -> int:
        return self.n or self.m

    def program(self) -> Program:
        shapes: dict[str, Shape] = {"q": (1, self.heads[0], self.m, self.d)}
        shapes |= dict.fromkeys(("k", "v"), (1, self.heads[1], self.columns, self.d))
        specs = {name: tinyc.spec(self.dtype, shape) for name, shape in shapes.items()}
        if self.mask:
            specs["mask"] = tinyc.spec("bool" if self.mask == "bool" else "fp32", (self.m, self.columns))

        def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor = None) -> Tensor:
            return tc.attention(q, k, v, mask, causal=self.causal)

        def unmasked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attention(q, k, v)

        return tinyc.trace(attention if self.mask else unmasked, **specs)

    def seen(self) -> np.ndarray:
        """bool [m, n]: what the mask and causality leave of the scores, at least one for each row."""
        seen = np.ones((self.m, self.columns), bool)
        if self.causal:
            seen = np.tri(
                self.m, self.columns, self.columns - self.m if self.causal == "lower_right" else 0, dtype=bool
            )
        if self.mask:
            generator = np.random.default_rng(3)
            seen &= (generator.random(seen.shape) < 0.7) | np.eye(*seen.shape, dtype=bool)
        return seen

    def masked(self, arrays: Arrays) -> Arrays:
        if not self.mask:
            return arrays
        seen = self.seen()
        return {**arrays, "mask": seen if self.mask == "bool" else np.where(seen, 0, -np.inf).astype("f4")}

    def close(self, program: Program) -> Arrays:
        return self.masked(normal_inputs(program, self.m))

    def exact(self, program: Program) -> Arrays:
        """Each query equals one of the keys that it sees, and the others are so far that their exponentials are 0."""
        generator, size = np.random.default_rng(self.m), 32.0
        arrays = integer_inputs(program, 4, 1)
        queries, keys = self.heads
        kind = arrays["q"].dtype
        codes = size * generator.choice([-1.0, 1.0], size=(keys, self.columns, self.d))
        seen = self.seen()
        picked = np.array([[generator.choice(np.flatnonzero(row)) for row in seen] for _ in range(queries)])
        chosen = np.stack([codes[head * keys // queries][row] for head, row in enumerate(picked)])
        return self.masked({**arrays, "q": chosen[None].astype(kind), "k": codes[None].astype(kind)})


ATTENTIONS = {
    "1": Attention(1, stream=False),
    "63, causal, grouped heads": Attention(63, heads=(4, 2), causal=True, dtype="bf16"),
    "128": Attention(128, heads=(1, 1), d=128),
    "200, causal": Attention(200, heads=(1, 1), causal=True),
    "63, causal, in kernels": Attention(63, causal=True, stream=False),
    "63 and 130, mask": Attention(63, 130, d=32, mask="bool"),
    "70 and 40, added mask": Attention(70, 40, d=96, mask="added", dtype="bf16"),
    "a few queries and a cache": Attention(5, 130, heads=(2, 1), causal="lower_right"),
    "one query and a cache, in kernels": Attention(1, 200, heads=(2, 1), causal="lower_right", stream=False),
    "d 256": Attention(33, 65, d=256, heads=(1, 1)),
    "fp32, causal, in kernels": Attention(63, d=16, dtype="fp32", causal=True, stream=False),
}
MORE = {
    "128, causal": Attention(128, heads=(1, 1), causal=True),
    "128, in kernels": Attention(128, heads=(1, 1), causal=True, stream=False),
    "200": Attention(200, heads=(1, 1)),
    "causal and mask": Attention(63, d=32, causal=True, mask="bool"),
    "grouped heads": Attention(40, 70, d=32, heads=(4, 2)),
    "grouped heads, causal": Attention(63, d=32, heads=(4, 1), causal=True, dtype="bf16"),
    "fp32": Attention(33, 40, d=32, dtype="fp32", stream=False),
}
LONG = MORE | {
    f"{length}, d {d}{', causal' * causal}, {dtype}": Attention(
        length, d=d, causal=causal, dtype=dtype, stream=length > 1
    )
    for length in (1, 63, 128, 200)
    for d in (32, 64, 96, 128, 256)
    for causal in (False, True)
    for dtype in ("fp16", "bf16")
}


def check_attention(case: Attention, every: bool = False, also: tuple[str, ...] = ()) -> None:
    program = case.program()
    compiled = tinyc.optimize_and_compile(
        program,
        "sm80",
        also=also,
        without=() if case.stream else ("streaming",),
        budget=None if case.stream else GREEDY,
        cost_model=OnMatrixUnits() if case.stream else None,
    )
    if case.stream:
        (kernel,) = compiled.kernels
        assert any(isinstance(let.value, Stream) for let in kernel.region.lets)
        assert "mma" in kernel.source
    check_emulated(compiled, [case.close(program)], [case.exact(program)], every)


@pytest.mark.spec("004-005", "004-121")
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention(name: str) -> None:
    check_attention(ATTENTIONS[name])


UNROUNDED = ("streaming-unrounded",)
"""The softmax stays in fp32: what weights the values is rounded, and not what the program rounds."""


@pytest.mark.parametrize("name", ["63, causal, grouped heads", "200, causal", "63 and 130, mask", "d 256"])
def test_attention_that_leaves_the_softmax_in_fp32(name: str) -> None:
    check_attention(ATTENTIONS[name], also=UNROUNDED)


@pytest.mark.parametrize("also", [(), UNROUNDED])
@pytest.mark.parametrize("causal", [False, True])
def test_scores_of_any_size_whose_scale_is_left_to_the_exponent(also: tuple[str, ...], causal: bool) -> None:
    """The scale of 32 elements is no power of two. Rows of scores that are exact, from 2^6 to 2^33, and negative ones: most of a row are
    equal, a seventh is smaller by 2^-6, a seventh by 2^-4."""
    case = Attention(40, 70, d=32, heads=(1, 1), causal=causal)
    program = case.program()
    compiled = tinyc.optimize_and_compile(program, "sm80", also=also, cost_model=OnMatrixUnits())
    (kernel,) = compiled.kernels
    assert "0.1767" not in kernel.source and "0.2550" in kernel.source
    arrays = normal_inputs(program)
    sizes = np.exp2(np.arange(40) % 28 - 13).astype(np.float16)
    arrays["q"] = np.broadcast_to(sizes[:, None], (40, 32)).reshape(arrays["q"].shape).copy()
    arrays["k"] = np.full_like(arrays["k"], 2.0**14)
    arrays["k"][..., 5::7, 0] = 2.0**13
    arrays["k"][..., 6::7, :] *= np.float16(1 - 2.0**-4)
    check_emulated(compiled, [arrays, {**arrays, "k": -arrays["k"]}], every=True, share=0)


@pytest.mark.slow
@pytest.mark.parametrize("also", [(), UNROUNDED])
@pytest.mark.parametrize("name", LONG)
def test_attention_of_every_length_and_width(name: str, also: tuple[str, ...]) -> None:
    check_attention(LONG[name], every=True, also=also)


# ---- softmax, norms, movement ------------------------------------------------------------------------------------------------


def equal_rows(shape: Shape) -> np.ndarray:
    return np.full(shape, 3.0)


def one_large(shape: Shape) -> np.ndarray:
    """One value of each row is so large that all others' exponentials are 0."""
    generator = np.random.default_rng(0)
    found = generator.integers(-4, 5, shape).astype(np.float64)
    *rest, size = shape
    place = generator.integers(size, size=rest)
    np.put_along_axis(found, place[..., None], 300.0, -1)
    return found


def small(shape: Shape) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape)


@dataclass(frozen=True)
class Rows:
    function: Callable[..., Any]
    shapes: dict[str, Shape]
    exact: Callable[[Shape], np.ndarray] = small
    dtype: str = "fp32"


ROWS = {
    **{
        f"softmax of {columns}, {dtype}": Rows(tc.softmax, {"x": (rows, columns)}, one_large, dtype)
        for rows, columns in ((5, 1), (7, 33), (3, 5000))
        for dtype in ("fp32", "fp16")
    },
    "softmax of equal columns": Rows(tc.softmax, {"x": (5, 64)}, equal_rows),
    "softmax of columns": Rows(lambda x: tc.softmax(x.T).T, {"x": (33, 20)}, equal_rows, "bf16"),
    "log softmax": Rows(tc.log_softmax, {"x": (4, 130)}, one_large),
    "layer norm": Rows(tc.layer_norm, {"x": (6, 96), "weight": (96,), "bias": (96,)}, equal_rows),
    "layer norm of 5,000": Rows(
        tc.layer_norm, {"x": (2, 5000), "weight": (5000,), "bias": (5000,)}, equal_rows, "fp16"
    ),
    "layer norm of 33": Rows(
        tc.layer_norm, {"x": (9, 33), "weight": (33,), "bias": (33,)}, equal_rows, "bf16"
    ),
    "gather of a stride": Rows(lambda x: x[1::3, ::-2], {"x": (40, 65)}),
    "gather of windows": Rows(lambda x: tc.sliding_window(x, 5, 1, 2).max(2), {"x": (6, 65)}),
    "gather of blocks": Rows(
        lambda x: x.reshape(4, 5, 6, 7).permute(2, 0, 3, 1).reshape(24, 35), {"x": (20, 42)}, dtype="fp16"
    ),
    "gather of a diagonal": Rows(
        lambda x, y: tc.concatenate([x.flip(0)[:, 2:], y.T.pad([(0, 0), (1, 2)], -1.0)], 1),
        {"x": (33, 20), "y": (7, 33)},
        dtype="bf16",
    ),
    "sums of rows": Rows(lambda x: x.sum(1), {"x": (5, 700)}, dtype="fp16"),
    "sums of columns": Rows(lambda x: x.sum(0), {"x": (700, 33)}),
    "the sum of all": Rows(lambda x: x.sum(), {"x": (70, 65)}),
    "largest and smallest": Rows(lambda x: (x.max(1), x.min(0)), {"x": (33, 65)}, dtype="bf16"),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    case = ROWS[name]
    program = traced(case.function, case.dtype, **case.shapes)
    compiled = tinyc.optimize_and_compile(program, "sm80", budget=GREEDY)
    exact = {**integer_inputs(program), **arrays_of_first(program, case.exact)}
    check_emulated(compiled, [normal_inputs(program, 1)], [exact])


def arrays_of_first(program: Program, make: Callable[[Shape], np.ndarray]) -> Arrays:
    first = program.inputs[0].name
    return {first: arrays_of(program, make)[first]}


# ---- a transformer block ------------------------------------------------------------------------------------------------------


def block(x: Tensor, heads: int, p: dict[str, Tensor]) -> Tensor:
    tokens, width = x.shape
    inner = tc.layer_norm(x, p["norm1_w"], p["norm1_b"])
    q, k, v = (
        (inner @ p[name]).reshape(tokens, heads, width // heads).permute(1, 0, 2)
        for name in ("wq", "wk", "wv")
    )
    mixed = tc.attention(q, k, v, causal=True).permute(1, 0, 2).reshape(tokens, width)
    x = x + mixed @ p["wo"]
    inner = tc.layer_norm(x, p["norm2_w"], p["norm2_b"])
    return x + (inner @ p["w1"] + p["b1"]).gelu() @ p["w2"] + p["b2"]


def block_program(tokens: int, width: int, heads: int, dtype: str) -> Program:
    shapes: dict[str, Shape] = {"x": (tokens, width), "w1": (width, 2 * width), "w2": (2 * width, width)}
    shapes |= {"b1": (2 * width,)}
    shapes |= dict.fromkeys(("norm1_w", "norm1_b", "norm2_w", "norm2_b", "b2"), (width,))
    shapes |= dict.fromkeys(("wq", "wk", "wv", "wo"), (width, width))
    return traced(lambda x, **p: block(x, heads, p), dtype, **shapes)


def check_block(program: Program) -> None:
    """Random weights of which the residuals stay of the size of one, where a step of fp16 is less than the tolerance; and a block whose
    last layers are 0, which is the identity, exactly."""
    compiled = tinyc.optimize_and_compile(program, "sm80")
    close = {
        name: (array / (2 * math.sqrt(array.shape[0]) if name.startswith("w") else 4)).astype(array.dtype)
        for name, array in normal_inputs(program).items()
    }
    identity = dict(close)
    for name in ("wo", "w2", "b2"):
        identity[name] = np.zeros_like(close[name])
    check_emulated(compiled, [close], [identity], every=True, share=0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("sizes", [(17, 32, 2), (33, 64, 4), (64, 64, 2), (16, 16, 16)], ids=str)
def test_a_transformer_block(sizes: tuple[int, int, int], dtype: str) -> None:
    """The block of docs/examples is run by test_emulated_programs.py."""
    check_block(block_program(*sizes, dtype))
