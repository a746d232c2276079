"""The schedule "loops": a thread for each point of the iters, which computes all that its point needs.

Each let stands in the outermost loop where its axes are known. Neighbouring threads have neighbouring points of the last iter,
so that what they store, and most of what they load, lies together.
"""

from __future__ import annotations

import math

from tinyc.ir.region import (
    Binary,
    Cast,
    Const,
    Let,
    Read,
    Reduce,
    Region,
    Select,
    Stream,
    Unary,
    Within,
    axis_sizes,
    free_axes,
    operands,
)

from . import scalar
from .indices import Indices, index_type
from .nest import Frame, Nest


class Loops(Nest):
    """The body of one kernel under construction. ``used``: functions of the library that it calls."""

    def __init__(self, region: Region) -> None:
        super().__init__(frozenset(item.name for item in region.iters), index_type(region))
        self.region = region
        self.lets = {let.name: let for let in region.lets}
        self.free = free_axes(region)
        self.order = {let.name: number for number, let in enumerate(region.lets)}
        self.inputs = {ref.name: (f"in{number}", ref) for number, ref in enumerate(region.inputs)}
        self.names = {item.name: f"i{number}" for number, item in enumerate(region.iters)}
        for name in axis_sizes(region):
            self.names.setdefault(name, f"r{len(self.names) - len(region.iters)}")
        self.used: set[str] = set()
        self.indices = Indices(axis_sizes(region), self.names, self.index, self.used)

    # ---- the whole ------------------------------------------------------------------------------------------------

    def points(self) -> int:
        return math.prod(item.size for item in self.region.iters)

    def body(self) -> list[str]:
        """What thread ``t`` of :meth:`points` does."""
        lines: list[str] = []
        rest = "t"
        for item in reversed(self.region.iters[1:]):
            lines.append(f"const {self.index} {self.names[item.name]} = {rest} % {item.size};")
            rest = f"{rest} / {item.size}"
        if self.region.iters:
            lines.append(f"const {self.index} {self.names[self.region.iters[0].name]} = {rest};")
        self.demand([item.value for item in self.region.yields])
        outputs = {ref.name: (f"out{number}", ref) for number, ref in enumerate(self.region.outputs)}
        for stored in self.region.yields:
            name, ref = outputs[stored.to]
            value = self.value(stored.value)
            if ref.dtype in scalar.STORE:
                value = self._call(scalar.STORE[ref.dtype], value)
            self.top.lines.append(f"{name}[t] = {value};")
        return [*lines, *self.top.lines]

    # ---- lets -----------------------------------------------------------------------------------------------------

    def value(self, name: str) -> str:
        """A let that has been demanded at the point of the open frames."""
        return self.frames[self.depth(self.free[name])].values[name]

    def known(self, name: str) -> bool:
        return name in self.frames[self.depth(self.free[name])].values

    def demand(self, names: list[str]) -> None:
        """Writes the lets ``names``, and all that they need here, in the Region's order."""
        needed: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name not in needed and not self.known(name):
                needed.add(name)
                value = self.lets[name].value
                pending += () if isinstance(value, Reduce | Stream) else operands(value)
        for name in sorted(needed, key=self.order.__getitem__):
            if not self.known(name):
                self._write(self.lets[name])

    def _write(self, let: Let) -> None:
        with self.at(self.depth(self.free[let.name])) as frame:
            if isinstance(let.value, Const):
                frame.values[let.name] = scalar.constant(let.value.bits, let.dtype)
                return
            name = f"v{self.order[let.name]}"
            match let.value:
                case Reduce():
                    self._reduce(frame, name, let, let.value)
                case Stream():
                    self._stream(frame, name, let.value)
                case _:
                    kind = scalar.REGISTER[let.dtype]
                    frame.lines.append(f"const {kind} {name} = {self._expression(let)};")
            frame.values[let.name] = name

    def _expression(self, let: Let) -> str:
        dtype = let.dtype
        match let.value:
            case Read(tensor, index_map):
                buffer, ref = self.inputs[tensor]
                found = f"{buffer}[{self.indices.element(ref, index_map)}]"
                if ref.dtype in scalar.LOAD:
                    return self._call(scalar.LOAD[ref.dtype], found)
                return f"{found} != 0" if ref.dtype.value == "bool" else found
            case Within(index, lo, hi):
                return self._within(self.indices.text(index), lo, hi, index.bounds(self.indices.sizes))
            case Select(cond, then, other):
                return f"{self.value(cond)} ? {self.value(then)} : {self.value(other)}"
            case Cast(x):
                source = self.lets[x].dtype
                found = scalar.cast(source, dtype, self.value(x))
                return found if source is dtype or source.value == "bool" else self._rounded(found, let)
            case Unary(op, x):
                found = self._uses(scalar.unary(op, self.lets[x].dtype, self.value(x)))
                return found if op in scalar.EXACT else self._rounded(found, let)
            case Binary(op, x, y):
                found = self._uses(scalar.binary(op, self.lets[x].dtype, self.value(x), self.value(y)))
                return found if op in scalar.EXACT else self._rounded(found, let)
        raise AssertionError(let.value)

    def _within(self, index: str, lo: int, hi: int, bounds: tuple[int, int]) -> str:
        low, high = bounds
        if high < lo or low >= hi:
            return "false"
        above = [f"{index} >= {lo}"] if low < lo else []
        below = [f"{index} < {hi}"] if high >= hi else []
        return " && ".join([*above, *below]) or "true"

    def _call(self, function: str, value: str) -> str:
        self.used.add(function)
        return f"{function}({value})"

    def _uses(self, text: str) -> str:
        self.used |= {name for name in ("maximum", "minimum") if text.startswith(f"{name}(")}
        return text

    def _rounded(self, text: str, let: Let) -> str:
        return self._call(scalar.ROUND[let.dtype], text) if let.dtype in scalar.ROUND else text

    # ---- reductions -----------------------------------------------------------------------------------------------

    def _reduce(self, frame: Frame, name: str, let: Let, value: Reduce) -> None:
        frame.lines.append(f"{scalar.REGISTER[let.dtype]} {name} = {scalar.neutral(value.op, let.dtype)};")
        with self.loops(value.axes, self.names):
            self.demand([value.body])
            after = self._uses(scalar.binary(value.op, let.dtype, name, self.value(value.body)))
            self.top.lines.append(f"{name} = {after};")
        if let.dtype in scalar.ROUND and value.op not in scalar.EXACT:
            frame.lines.append(f"{name} = {self._rounded(name, let)};")

    def _stream(self, frame: Frame, name: str, value: Stream) -> None:
        """The maximum first, then the sum: right wherever it stands."""
        frame.lines.append(f"float {name}_max = {scalar.neutral('MAX', self.lets[value.score].dtype)};")
        with self.loops(value.axes, self.names):
            self.demand([value.score])
            largest = self._call("maximum", f"{name}_max, {self.value(value.score)}")
            self.top.lines.append(f"{name}_max = {largest};")
        frame.lines.append(f"float {name} = 0.0f;")
        with self.loops(value.axes, self.names):
            self.demand([value.score, value.weight, value.scale])
            shifted = f"__fmul_rn({self.value(value.score)} - {name}_max, {self.value(value.scale)})"
            self.top.lines.append(f"{name} += __fmul_rn(exp2f({shifted}), {self.value(value.weight)});")
