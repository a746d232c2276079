"""Random Tiny programs over the whole vocabulary, for property tests.

``Maker`` takes its decisions from a function ``pick(n) -> 0 <= i < n``: hypothesis draws them (and shrinks them), a
seeded generator does where a large number of programs is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyc.ir.tiny import Program

Pick = Callable[[int], int]
FLOATS = ("fp32", "fp32", "fp16", "bf16")
SIZES = (1, 2, 3, 4, 5, 7, 8)


class Maker:
    """Builds one document; values are known by id with their shape and dtype."""

    def __init__(self, pick: Pick, steps: int) -> None:
        self.pick = pick
        self.uops: list[dict[str, Any]] = []
        self.kinds: dict[str, tuple[tuple[int, ...], str]] = {}
        for _ in range(1 + pick(3)):
            self.input(self.shape(), self.of((*FLOATS, "fp32", "i32", "bool")))
        for _ in range(1 + pick(steps)):
            self.step()
        used = {source for node in self.uops for source in node["src"] if isinstance(source, str)}
        sinks = [node["id"] for node in self.uops if node["id"] not in used and node["uop"] != "INPUT"]
        if not sinks:
            self.add("RELU" if self.kinds[self.uops[-1]["id"]][1] != "bool" else "CMPEQ", self.uops[-1]["id"])

    def document(self) -> dict[str, Any]:
        return {"uops": self.uops}

    # ---- pieces ----

    def of(self, options: Any) -> Any:
        options = list(options)
        return options[self.pick(len(options))]

    def shape(self) -> tuple[int, ...]:
        shape: list[int] = []
        for _ in range(self.of((0, 1, 2, 2, 3, 3, 4))):
            shape.append(self.of(SIZES))
        return tuple(shape)

    def input(self, shape: tuple[int, ...], dtype: str) -> str:
        name = f"x{len(self.uops)}"
        arg = {"tensor_id": name, "dtype": dtype, "shape": list(shape)}
        return self.node("INPUT", [], arg, shape, dtype)

    def node(self, uop: str, src: list[Any], arg: Mapping[str, Any], shape: Any, dtype: str) -> str:
        id = f"n{len(self.uops)}"
        self.uops.append({"id": id, "uop": uop, "src": src, "arg": dict(arg)})
        self.kinds[id] = (tuple(int(size) for size in shape), dtype)
        return id

    def some(self, want: Callable[[tuple[int, ...], str], bool] = lambda shape, dtype: True) -> str | None:
        found = [id for id, (shape, dtype) in self.kinds.items() if want(shape, dtype)]
        return self.of(found[-6:]) if found else None

    def like(self, x: str) -> Any:
        """An operand that fits ``x``: a value of the same kind, one that was broadcast to it, or an immediate."""
        shape, dtype = self.kinds[x]
        way = self.pick(4)
        if way == 0 and dtype != "bool":
            return self.of((1, 2, -1, 3)) if dtype == "i32" else self.of((0.5, 2.0, -1.0, 0.0, 1.0, 3.25))
        same = [id for id, kind in self.kinds.items() if kind == (shape, dtype)]
        if way == 1 and len(same) > 1:
            return self.of(same)
        if way == 2 and shape:
            thin = tuple(1 if self.pick(2) else size for size in shape)
            narrow = self.input(thin, dtype)
            if thin == shape:
                return narrow
            return self.node("EXPAND", [narrow], {"result_shape": list(shape)}, shape, dtype)
        return self.input(shape, dtype) if way == 3 else self.of(same)

    def step(self) -> None:
        way = self.pick(16)
        x = self.some() or ""
        if way < 5:
            self.elementwise(x)
        elif way < 12:
            self.movement(x)
        elif way < 14:
            self.reduce(x)
        elif way < 15:
            self.contraction()
        else:
            self.softmax()

    def add(self, uop: str, x: str) -> str:
        shape, dtype = self.kinds[x]
        if uop in ("CMPLT", "CMPNE", "CMPEQ"):
            return self.node(uop, [x, x], {}, shape, "bool")
        return self.node(uop, [x], {}, shape, dtype)

    def elementwise(self, x: str) -> None:
        shape, dtype = self.kinds[x]
        if dtype == "bool":
            if self.pick(2):
                to = self.of(("fp32", "i32", "fp16"))
                self.node("CAST", [x], {"to": to}, shape, to)
            else:
                y = self.like(self.of([id for id, kind in self.kinds.items() if kind[1] != "bool"] or [x]))
                self.where(x, y)
            return
        integers = dtype == "i32"
        way = self.pick(8)
        if way == 0:
            to = self.of(("fp32", "fp16", "bf16", "fp32"))
            self.node("CAST", [x], {"to": to}, shape, to)
        elif way <= 2:
            unary = (
                ("NEG", "RELU")
                if integers
                else ("NEG", "RELU", "EXP2", "SQRT", "RSQRT", "RECIP", "SIN", "LOG2")
            )
            self.add(self.of(unary), x)
        elif way == 3:
            self.node(self.of(("CMPLT", "CMPNE", "CMPEQ")), [x, self.like(x)], {}, shape, "bool")
        elif way == 4:
            mask = self.input(shape, "bool")
            self.node("WHERE", [mask, x, self.like(x)], {}, shape, dtype)
        else:
            ops = (
                ("ADD", "SUB", "MUL", "MAX", "MIN")
                if integers
                else ("ADD", "SUB", "MUL", "FDIV", "MAX", "MIN", "ADD", "MUL", "POW")
            )
            src = [x, self.like(x)]
            if self.pick(3) == 0 and not isinstance(src[1], str):
                src.reverse()
            self.node(self.of(ops), src, {}, shape, dtype)

    def where(self, mask: str, other: Any) -> None:
        shape = self.kinds[mask][0]
        y = self.input(shape, self.of(FLOATS))
        self.node("WHERE", [mask, y, self.like(y)], {}, shape, self.kinds[y][1])

    def movement(self, x: str) -> None:
        shape, dtype = self.kinds[x]
        rank = len(shape)
        way = self.pick(9)
        if way == 0:
            to = self.regrouped(shape)
            self.node("RESHAPE", [x], {"result_shape": list(to)}, to, dtype)
        elif way == 1 and rank:
            perm = list(range(rank))
            for position in range(rank - 1):
                other = position + self.pick(rank - position)
                perm[position], perm[other] = perm[other], perm[position]
            self.node("PERMUTE", [x], {"perm": perm}, [shape[axis] for axis in perm], dtype)
        elif way == 2:
            if rank < 4 and all(size != 1 for size in shape):
                at = self.pick(rank + 1)
                shape = (*shape[:at], 1, *shape[at:])
                x = self.node("RESHAPE", [x], {"result_shape": list(shape)}, shape, dtype)
            grown = [self.of((2, 3, 4)) if size == 1 else size for size in shape]
            if tuple(grown) != shape:
                self.node("EXPAND", [x], {"result_shape": grown}, grown, dtype)
        elif way == 3 and rank:
            pad = [[self.pick(3), self.pick(3)] for _ in shape]
            value = 0 if dtype == "bool" else self.of((0, 0, 1, -2))
            grown = [size + low + high for size, (low, high) in zip(shape, pad, strict=True)]
            self.node("PAD", [x], {"pad": pad, "value": value}, grown, dtype)
        elif way == 4 and rank:
            low = [self.pick(size) for size in shape]
            high = [first + 1 + self.pick(size - first) for first, size in zip(low, shape, strict=True)]
            step = [1 + self.pick(3) for _ in shape]
            sizes = [-(-(hi - lo) // s) for lo, hi, s in zip(low, high, step, strict=True)]
            self.node("SHRINK", [x], {"lo": low, "hi": high, "step": step}, sizes, dtype)
        elif way == 5 and rank:
            axes = [axis for axis in range(rank) if self.pick(2)] or [0]
            self.node("FLIP", [x], {"axes": axes}, shape, dtype)
        elif way == 6 and rank:
            self.view(x, shape, dtype)
        elif way == 7 and rank and dtype != "bool":
            low = [self.pick(size + 1) for size in shape]
            high = [self.pick(size + 1) for size in shape]
            mask = self.node("VALID", [], {"result_shape": list(shape), "lo": low, "hi": high}, shape, "bool")
            self.node("WHERE", [mask, x, self.like(x)], {}, shape, dtype)

    def view(self, x: str, shape: tuple[int, ...], dtype: str) -> None:
        """Windows of one axis, or a fold of it by floor division, or a diagonal."""
        axis = self.pick(len(shape))
        size = shape[axis]
        result, index = list(shape), [f"i{number}" for number in range(len(shape))]
        way = self.pick(3)
        if way == 0 and len(shape) < 5:
            kernel = 1 + self.pick(min(size, 3))
            stride, count = 1 + self.pick(2), 1
            count = (size - kernel) // stride + 1
            result[axis] = count
            result.append(kernel)
            index[axis] = f"{stride}*i{axis}+i{len(shape)}"
        elif way == 1:
            repeat = 2 + self.pick(2)
            result[axis] = size * repeat
            index[axis] = f"i{axis}//{repeat}"
        else:
            index[axis] = f"{size - 1}-i{axis}"
        self.node("VIEW", [x], {"result_shape": result, "index_map": {"map": index}}, result, dtype)

    def regrouped(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        total = int(np.prod(shape, dtype=np.int64))
        result: list[int] = []
        while total > 1 and len(result) < 4:
            factors = [factor for factor in range(1, total + 1) if total % factor == 0]
            factor = self.of(factors)
            result.append(factor)
            total //= factor
        return (*result, total) if total > 1 or not result else tuple(result)

    def reduce(self, x: str) -> None:
        shape, dtype = self.kinds[x]
        if not shape:
            return
        axes = [axis for axis in range(len(shape)) if self.pick(2)] or [len(shape) - 1]
        if dtype == "bool":
            op, to = self.of(("MAX", "MIN")), "bool"
        elif dtype == "i32":
            op, to = self.of(("SUM", "MAX", "MIN", "PROD")), "i32"
        else:
            op, to = self.of(("SUM", "SUM", "MAX", "MIN", "PROD")), self.of(("fp32", dtype))
        arg: dict[str, Any] = {"op": op, "axes": axes, "dtype": to}
        if to != "bool" and self.pick(4) == 0:
            arg["init"] = self.of((0, 1, -3))
        kept = [size for axis, size in enumerate(shape) if axis not in axes]
        self.node("REDUCE", [x], arg, kept, to)

    def contraction(self) -> None:
        batch, m, n, k = self.of(((), (), (2,), (3,))), self.of(SIZES), self.of(SIZES), self.of(SIZES)
        dtype = self.of((*FLOATS, "i32"))
        a, b = self.input((*batch, m, k), dtype), self.input((*batch, k, n), dtype)
        full = [*batch, m, n, k]
        left = self.node("RESHAPE", [a], {"result_shape": [*batch, m, 1, k]}, (*batch, m, 1, k), dtype)
        left = self.node("EXPAND", [left], {"result_shape": full}, full, dtype)
        order = [*range(len(batch)), len(batch) + 1, len(batch)]
        right = self.node("PERMUTE", [b], {"perm": order}, (*batch, n, k), dtype)
        right = self.node("RESHAPE", [right], {"result_shape": [*batch, 1, n, k]}, (*batch, 1, n, k), dtype)
        right = self.node("EXPAND", [right], {"result_shape": full}, full, dtype)
        product = self.node("MUL", [left, right], {}, full, dtype)
        to = "i32" if dtype == "i32" else "fp32"
        arg = {"op": "SUM", "axes": [len(full) - 1], "dtype": to}
        self.node("REDUCE", [product], arg, (*batch, m, n), to)

    def softmax(self) -> None:
        x = self.some(lambda shape, dtype: bool(shape) and dtype == "fp32")
        if x is None:
            x = self.input((*self.shape(), 5), "fp32")
        shape, dtype = self.kinds[x]
        axis = self.pick(len(shape))
        kept = [size for number, size in enumerate(shape) if number != axis]
        thin = [1 if number == axis else size for number, size in enumerate(shape)]

        def spread(value: str) -> str:
            value = self.node("RESHAPE", [value], {"result_shape": thin}, thin, dtype)
            return self.node("EXPAND", [value], {"result_shape": list(shape)}, shape, dtype)

        top = self.node("REDUCE", [x], {"op": "MAX", "axes": [axis], "dtype": dtype}, kept, dtype)
        shifted = self.node("SUB", [x, spread(top)], {}, shape, dtype)
        power = self.node("EXP2", [shifted], {}, shape, dtype)
        total = self.node("REDUCE", [power], {"op": "SUM", "axes": [axis], "dtype": dtype}, kept, dtype)
        self.node("FDIV", [power, spread(total)], {}, shape, dtype)


def random_inputs(program: Program, seed: int) -> dict[str, NDArray[Any]]:
    """Small integers and halves, so that sums are exact and comparisons do not hang on rounding."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for port in program.inputs:
        kind = program.types[port.node]
        shape = tuple(int(size) for size in kind.shape)
        if kind.dtype.value == "bool":
            values = generator.integers(0, 2, shape)
        elif kind.dtype.value == "i32":
            values = generator.integers(-4, 5, shape)
        else:
            values = generator.integers(-6, 7, shape) / 2
        arrays[port.name] = np.asarray(values).astype(kind.dtype.numpy)
    return arrays


def agree(got: NDArray[Any], want: NDArray[Any], exact: NDArray[Any]) -> NDArray[np.bool_]:
    """Elementwise: within the documented tolerance of the reference, widened where the reference itself, in fp32,
    is away from its value in float64 (an ill-conditioned element says nothing about the code)."""
    if want.dtype.kind in "ib":
        noisy = np.asarray(exact).astype(np.float64) != want.astype(np.float64)
        return np.asarray((got == want) | noisy)
    bound = 1.6e-2 if want.dtype.itemsize == 2 and want.dtype != np.float16 else 1e-3
    have, reference, real = (np.asarray(value).astype(np.float64) for value in (got, want, exact))
    with np.errstate(all="ignore"):
        noise = np.nan_to_num(np.abs(reference - real), nan=np.inf, posinf=np.inf)
        close = np.abs(have - reference) <= bound + bound * np.abs(reference) + 16 * noise
    same = (have == reference) | (np.isnan(have) & np.isnan(reference))
    unsure = np.isnan(reference) != np.isnan(real)
    return np.asarray(same | close | unsure)
