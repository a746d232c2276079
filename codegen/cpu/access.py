"""Where a Region's Reads and index expressions fall: addresses in LLVM, and how accesses move with an axis."""

from __future__ import annotations

from tinyc.ir.index import Affine, FloorDiv, lit
from tinyc.ir.region import Axis, Let, MemRef, Read, Reduce, Region, Stream, Within, free_axes, operands

from .frames import Frame, Group, Nest


class Access(Nest):
    """A nest of loops over the axes of ``region``."""

    def __init__(self, region: Region) -> None:
        super().__init__()
        self.region = region
        self.lets: dict[str, Let] = {let.name: let for let in region.lets}
        self.free = free_axes(region)
        self.buffers = {ref.name: (f"%in{number}", ref) for number, ref in enumerate(region.inputs)}
        reduces = [let.value for let in region.lets if isinstance(let.value, Reduce | Stream)]
        self.sizes = {item.name: item.size for item in region.iters}
        self.sizes |= {item.name: item.size for value in reduces for item in value.axes}

    # ---- index expressions ------------------------------------------------------------------------------

    def index(self, expression: Affine) -> str:
        """An i64 value. Sums are built from the outermost loop inwards, so that parts stay outside."""
        return self._sum(str(expression.const), list(expression.terms), [])

    def _sum(
        self, total: str, terms: list[tuple[int, str | FloorDiv]], extra: list[tuple[int, int, str]]
    ) -> str:
        """``total + terms + extra``; an extra is (depth, factor, value)."""
        by_depth: dict[int, dict[str, int]] = {}
        parts = list(extra)
        for coef, atom in terms:
            if isinstance(atom, str):
                by_depth.setdefault(self.depth(frozenset({atom})), {})[atom] = coef
            else:
                parts.append((self.depth(atom.num.axes()), coef, self._divide(atom)))
        for depth, coefs in by_depth.items():
            parts += [(depth, coef, value) for coef, value in self._group_terms(self.frames[depth], coefs)]
        for depth, coef, value in sorted(parts, key=lambda part: part[0]):
            frame = self.frames[depth]
            if coef != 1:
                value = self.once(frame, f"mul nsw i64 {value}, {coef}", "x")
            total = value if total == "0" else self.once(frame, f"add nsw i64 {total}, {value}", "x")
        return total

    def _group_terms(self, frame: Frame, coefs: dict[str, int]) -> list[tuple[int, str]]:
        """Terms over the axes of one frame; by its flat index where they follow it."""
        strides = frame.group.strides()
        last = coefs.get(frame.group.axes[-1].name, 0)
        if last and all(coefs.get(name, 0) == last * stride for name, stride in strides.items()):
            return [(last, frame.index)]
        return [(coef, self.axis_value(frame, name)) for name, coef in coefs.items()]

    def axis_value(self, frame: Frame, name: str) -> str:
        """One axis of the frame's group: flat // stride % size."""
        if len(frame.group.axes) == 1:
            return frame.index
        stride = frame.group.strides()[name]
        value, size = frame.index, self.sizes[name]
        total = frame.group.size
        if stride > 1:
            value = self._unsigned(frame, "udiv", value, stride, total)
        if frame.group.axes[0].name != name:
            value = self._unsigned(frame, "urem", value, size, total)
        return value

    def _unsigned(self, frame: Frame, op: str, value: str, by: int, below: int) -> str:
        """Division of a value in [0, below): in 32 bits where it fits, which vectorises."""
        if below > 2**31:
            return self.once(frame, f"{op} i64 {value}, {by}", "d")
        narrow = self.once(frame, f"trunc i64 {value} to i32", "d")
        divided = self.once(frame, f"{op} i32 {narrow}, {by}", "d")
        return self.once(frame, f"zext i32 {divided} to i64", "d")

    def _divide(self, atom: FloorDiv) -> str:
        """floor(num / den)"""
        num = self.index(atom.num)
        frame = self.frames[self.depth(atom.num.axes())]
        low, high = atom.num.bounds(self.sizes)
        if low >= 0:
            return self._unsigned(frame, "udiv", num, atom.den, high + 1)
        quotient = self.once(frame, f"sdiv i64 {num}, {atom.den}", "d")
        rest = self.once(frame, f"srem i64 {num}, {atom.den}", "d")
        sign = self.once(frame, f"ashr i64 {rest}, 63", "d")
        return self.once(frame, f"add i64 {quotient}, {sign}", "d")

    def element(self, ref: MemRef, index_map: tuple[Affine, ...]) -> str:
        """The position of an element, never outside the buffer: a dimension not proven inside is clamped."""
        linear, clamped = lit(0), []
        stride = ref.elements
        for expression, size in zip(index_map, ref.shape, strict=True):
            stride //= size
            low, high = expression.bounds(self.sizes)
            if low >= 0 and high < size:
                linear = linear + expression * stride
                continue
            depth = self.depth(expression.axes())
            frame = self.frames[depth]
            value = self.index(expression)
            if low < 0:
                value = self.once(frame, f"call i64 @llvm.smax.i64(i64 {value}, i64 0)", "in")
            if high >= size:
                value = self.once(frame, f"call i64 @llvm.smin.i64(i64 {value}, i64 {size - 1})", "in")
            clamped.append((depth, stride, value))
        return self._sum(str(linear.const), list(linear.terms), clamped)

    # ---- how accesses move ------------------------------------------------------------------------------

    def walk(self, value: Reduce) -> tuple[Axis, ...]:
        """The axes of a Reduce, the one that most Reads walk contiguously innermost."""
        if len(value.axes) < 2:
            return value.axes
        costs = {item.name: self.gathers(value.body, item.name) for item in value.axes}
        best = min(reversed(value.axes), key=lambda item: (min(item.size, 16) < 16, costs[item.name]))
        return (*(item for item in value.axes if item is not best), best)

    def merged(self, axes: tuple[Axis, ...]) -> list[Group]:
        """Neighbouring axes joined where every access follows their flat index."""
        groups: list[Group] = []
        for item in axes:
            if groups and self.merges(groups[-1].axes[-1], item):
                groups[-1] = Group((*groups[-1].axes, item))
            else:
                groups.append(Group((item,)))
        return groups

    def merges(self, first: Axis, second: Axis) -> bool:
        """Whether all index expressions see the two axes only as ``first * second.size + second``."""
        pair = {first.name, second.name}
        for let in self.region.lets:
            if isinstance(let.value, Within) and not pair.isdisjoint(let.value.index.axes()):
                return False
            if isinstance(let.value, Read) and not pair.isdisjoint(self.free[let.name]):
                _, ref = self.buffers[let.value.tensor]
                for expression, size in zip(let.value.map, ref.shape, strict=True):
                    low, high = expression.bounds(self.sizes)
                    if not pair.isdisjoint(expression.axes()) and (low < 0 or high >= size):
                        return False
                outer, inner = self.step(let.value, first.name), self.step(let.value, second.name)
                if outer is None or inner is None or outer != inner * second.size:
                    return False
            elif isinstance(let.value, Reduce | Stream) and len(pair & self.free[let.name]) == 1:
                return False
        return True

    def gathers(self, body: str, name: str) -> int:
        """How many Reads under ``body`` step over memory when the axis ``name`` moves by one."""
        count, seen, pending = 0, set(), [body]
        while pending:
            let = self.lets[pending.pop()]
            if let.name in seen or name not in self.free[let.name]:
                continue
            seen.add(let.name)
            pending += operands(let.value)
            if isinstance(let.value, Read):
                count += self.step(let.value, name) not in (0, 1)
        return count

    def step(self, read: Read, name: str) -> int | None:
        """Elements between neighbours along the axis; None where it is not constant."""
        _, ref = self.buffers[read.tensor]
        linear, stride = lit(0), ref.elements
        for expression, size in zip(read.map, ref.shape, strict=True):
            stride //= size
            linear = linear + expression * stride
        if any(isinstance(atom, FloorDiv) and name in atom.num.axes() for _, atom in linear.terms):
            return None
        return next((coef for coef, atom in linear.terms if atom == name), 0)
