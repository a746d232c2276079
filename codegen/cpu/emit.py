"""Emits the lets of a Region into nested loops, each let in the outermost loop where its axes are known.

A Reduce whose value does not depend on some loop around it is computed before that loop, for all the points that
are needed inside, into an array in scratch memory ("staged").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from tinyc.ir.dtypes import DType
from tinyc.ir.index import Affine, axis
from tinyc.ir.region import (
    Axis,
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
    operands,
)

from . import scalar
from .access import Access
from .frames import Block, Frame, Group, Staged
from .host import Host
from .rows import Row, Saved, rows
from .stream import two_passes

#: largest staged array in bytes; a Reduce that would need more is computed again instead
STAGE_LIMIT = 8 << 20
#: how many threads one may expect to repeat what is computed before the parallel loop
THREADS = 8


class Emitter(Access):
    """The body of one kernel under construction."""

    def __init__(self, region: Region, host: Host) -> None:
        super().__init__(region)
        self.host = host
        self.order = {let.name: number for number, let in enumerate(region.lets)}
        self.outputs = {ref.name: (f"%out{number}", ref) for number, ref in enumerate(region.outputs)}
        self.used: set[str] = set()  # functions of the library
        self.vector: Group | None = None  # the innermost iters, when columns are reduced along them
        self.rows = rows(region, self.free, self.sizes)
        self.columns: frozenset[str] = frozenset()  # Reduces computed for a whole row of ``vector`` at a time

    # ---- memory -----------------------------------------------------------------------------------------

    def load(self, frame: Frame, pointer: str, dtype: DType, hint: str) -> str:
        raw = self.put(frame, f"load {scalar.MEMORY[dtype]}, ptr {pointer}, align {dtype.itemsize}", hint)
        if dtype in scalar.LOAD:
            name = scalar.LOAD[dtype]
            self.used.add(name)
            return self.put(frame, f"call float @{name}(i16 {raw})", hint)
        return self.put(frame, f"icmp ne i8 {raw}, 0", hint) if dtype is DType.BOOL else raw

    def store(self, frame: Frame, value: str, pointer: str, dtype: DType) -> None:
        if dtype in scalar.STORE:
            name = scalar.STORE[dtype]
            self.used.add(name)
            value = self.put(frame, f"call i16 @{name}(float {value})", "bits")
        elif dtype is DType.BOOL:
            value = self.put(frame, f"zext i1 {value} to i8", "byte")
        frame.lines.append(f"  store {scalar.MEMORY[dtype]} {value}, ptr {pointer}, align {dtype.itemsize}")

    def yield_all(self) -> None:
        """Computes and stores every output at the point of the open frames."""
        self.demand([item.value for item in self.region.yields])
        shape = self.region.iters
        where = Group(shape).flat()
        for item in self.region.yields:
            pointer, ref = self.outputs[item.to]
            position = self.index(where)
            address = self.put(
                self.top,
                f"getelementptr inbounds {scalar.MEMORY[ref.dtype]}, ptr {pointer}, i64 {position}",
                "p",
            )
            self.store(self.top, self.value(item.value), address, ref.dtype)

    # ---- lets -------------------------------------------------------------------------------------------

    def value(self, name: str) -> str:
        """A let that has been demanded at the point of the open frames."""
        return self.frames[self.depth(self.free[name])].values[name]

    def known(self, name: str) -> bool:
        return name in self.frames[self.depth(self.free[name])].values

    def demand(self, names: list[str]) -> None:
        """Emits the lets ``names`` and all that they need here, in the Region's order; reductions first, since their
        loops may keep rows of values that are needed here as well."""
        needed: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in needed or self.known(name):
                continue
            needed.add(name)
            if not isinstance(self.lets[name].value, Reduce | Stream):
                pending += operands(self.lets[name].value)
        reductions = {name for name in needed if isinstance(self.lets[name].value, Reduce | Stream)}
        for name in sorted(needed, key=lambda name: (name not in reductions, self.order[name])):
            if not self.known(name):
                self._emit(self.lets[name])

    def _emit(self, let: Let) -> None:
        depth = self.depth(self.free[let.name])
        frame = self.frames[depth]
        if isinstance(let.value, Reduce | Stream):
            value = self._reduce(let, let.value, depth)
        else:
            value = self._from_row(frame, let) or self._compute(frame, let)
        frame.values[let.name] = value

    def _from_row(self, frame: Frame, let: Let) -> str | None:
        """The value from a row that an earlier loop has kept; or computed and kept for a later one. None where it is
        to be computed as usual."""
        row = self.rows.get(let.name)
        if row is None:
            return None
        dtype = let.dtype if let.dtype in (DType.I32, DType.BOOL) else DType.FP32
        saved = next((outer.saved[row.kind] for outer in self.frames if row.kind in outer.saved), None)
        if saved is not None:
            return self.load(frame, self._row_address(frame, saved, row, dtype), dtype, "row")
        holder = self.frames[self.depth(self.free[let.name] - {row.axis})]
        loop = self.frames[self.depth(frozenset({row.axis}))]
        reduced = row.axis not in {item.name for item in self.region.iters}
        if not reduced or holder is loop or self.frames.index(holder) > self.frames.index(loop):
            return None
        value = self._compute(frame, let)
        saved = Saved(self.reserve(4 * self.sizes[row.axis]))
        self.store(frame, value, self._row_address(frame, saved, row, dtype), dtype)
        loop.filling.append((holder, row.kind, saved))
        return value

    def _row_address(self, frame: Frame, saved: Saved, row: Row, dtype: DType) -> str:
        start = self.once(frame, f"getelementptr inbounds i8, ptr %scratch, i64 {saved.offset}", "row")
        index = self.index(axis(row.axis))
        return self.put(
            frame, f"getelementptr inbounds {scalar.MEMORY[dtype]}, ptr {start}, i64 {index}", "row"
        )

    def _compute(self, frame: Frame, let: Let) -> str:
        hint = f"v{self.order[let.name]}"
        value, dtype = let.value, let.dtype
        match value:
            case Read(tensor, index_map):
                pointer, ref = self.buffers[tensor]
                position = self.element(ref, index_map)
                kind = scalar.MEMORY[ref.dtype]
                address = self.put(
                    frame, f"getelementptr inbounds {kind}, ptr {pointer}, i64 {position}", "p"
                )
                return self.load(frame, address, ref.dtype, hint)
            case Const(bits):
                return scalar.constant(bits, dtype)
            case Within(index, lo, hi):
                return self._within(frame, index, lo, hi, hint)
            case Select(cond, then, other):
                kind = scalar.REGISTER[dtype]
                parts = f"{kind} {self.value(then)}, {kind} {self.value(other)}"
                return self.put(frame, f"select i1 {self.value(cond)}, {parts}", hint)
            case Cast(x):
                text = scalar.cast(self.lets[x].dtype, dtype, self.value(x))
                source = self.lets[x].dtype
                result = self.value(x) if text is None else self.put(frame, text, hint)
                widens = source is dtype or source is DType.BOOL or dtype is DType.FP32
                return result if widens else self._round(frame, result, dtype, hint)
            case Unary(op, x):
                steps = scalar.unary(op, self.lets[x].dtype, self.value(x))
                result = ""
                for step in steps:
                    self._uses(step)
                    result = self.put(frame, step.format(result), hint)
                return result if op in scalar.EXACT else self._round(frame, result, dtype, hint)
            case Binary(op, x, y):
                text = scalar.binary(op, self.lets[x].dtype, self.value(x), self.value(y))
                self._uses(text)
                result = self.put(frame, text, hint)
                return result if op in scalar.EXACT else self._round(frame, result, dtype, hint)
        raise AssertionError(value)

    def _uses(self, text: str) -> None:
        self.used |= {name for name in ("exp2_f32", "round_tf32") if f"@{name}(" in text}

    def _round(self, frame: Frame, value: str, dtype: DType, hint: str) -> str:
        if dtype not in scalar.ROUND:
            return value
        self.used.add(scalar.ROUND[dtype])
        return self.put(frame, f"call float @{scalar.ROUND[dtype]}(float {value})", hint)

    def _within(self, frame: Frame, index: Affine, lo: int, hi: int, hint: str) -> str:
        low, high = index.bounds(self.sizes)
        if lo <= low and high < hi:
            return "true"
        if high < lo or low >= hi:
            return "false"
        value = self.index(index)
        if lo <= low:
            return self.once(frame, f"icmp slt i64 {value}, {hi}", hint)
        if high < hi:
            return self.once(frame, f"icmp sge i64 {value}, {lo}", hint)
        above = self.once(frame, f"icmp sge i64 {value}, {lo}", hint)
        below = self.once(frame, f"icmp slt i64 {value}, {hi}", hint)
        return self.once(frame, f"and i1 {above}, {below}", hint)

    # ---- reductions -------------------------------------------------------------------------------------

    def _reduce(self, let: Let, value: Reduce | Stream, depth: int) -> str:
        staged = self._staged(let.name, depth)
        if staged is None:
            place_at = self._stage_depth(let, depth)
            if place_at is None:
                with self.at(depth):
                    return self._accumulate(let, value)
            with self.at(place_at) as frame:
                staged = frame.staged[let.name] = self._stage(let, value)
        raw = self._load_staged(self.frames[depth], staged, let)
        return self._round(self.frames[depth], raw, let.dtype, f"v{self.order[let.name]}")

    def _staged(self, name: str, depth: int) -> Staged | None:
        for frame in reversed(self.frames[: depth + 1]):
            if name in frame.staged:
                return frame.staged[name]
        return None

    def _stage_depth(self, let: Let, depth: int) -> int | None:
        """The frame to stage a Reduce in: just outside the first loop that it does not depend on."""
        free = self.free[let.name]
        for number in range(1, depth + 1):
            frame = self.frames[number]
            # a Reduce before the parallel loop is computed by every thread, so that must save something
            wasted = frame.turns_without(free) > (THREADS if number == 1 else 1)
            bound = self.vector is not None and frame.group == self.vector
            if wasted or (bound and let.name in self.columns):
                with self.at(number - 1):
                    size = math.prod(block.extent for block in self._stage_blocks(free))
                return number - 1 if 4 * size <= STAGE_LIMIT else None
        return None

    def _stage_blocks(self, free: frozenset[str]) -> tuple[Block, ...]:
        """What a staged array ranges over: the free axes that no open frame binds."""
        bound = frozenset().union(*(frame.group.names for frame in self.frames))
        blocks: list[Block] = []
        seen: set[str] = set(bound)
        for name in [name for name in self.sizes if name in free]:
            if name in seen:
                continue
            block = self.block(name) or self.full(Group((Axis(name, self.sizes[name]),)))
            blocks.append(block)
            seen |= block.group.names
        return tuple(blocks)

    def _stage(self, let: Let, value: Reduce | Stream) -> Staged:
        blocks = self._stage_blocks(self.free[let.name])
        kind = scalar.REGISTER[let.dtype]
        size = math.prod(block.extent for block in blocks)
        staged = Staged(self.reserve(4 * size if kind != "i1" else size), blocks)
        inner = blocks[-1] if blocks else None
        column = inner is not None and let.name in self.columns and inner.group == self.vector
        first = blocks[:-1] if column else blocks
        with self.nest([(block.group, block) for block in first], "s"):
            if not column:
                result = self._accumulate(let, value)
                self._store_staged(self.top, staged, let, result)
            else:
                assert inner is not None and isinstance(value, Reduce)
                with self.nest([(inner.group, inner)], "s"):
                    self._store_staged(self.top, staged, let, scalar.neutral(value.op, let.dtype))
                with (
                    self.nest([(Group((item,)), None) for item in value.axes], "r"),
                    self.nest([(inner.group, inner)], "s"),
                ):
                    self.demand([value.body])
                    before = self._load_staged(self.top, staged, let)
                    after = self._combine(self.top, value.op, let.dtype, before, self.value(value.body))
                    self._store_staged(self.top, staged, let, after)
        return staged

    @contextmanager
    def nest(self, loops: list[tuple[Group, Block | None]], hint: str) -> Iterator[None]:
        """Loops nested in the order given, each over its block or its whole group."""
        if not loops:
            yield
            return
        (group, block), *rest = loops
        block = block or self.full(group)
        with (
            self.loop("0", block.count, block.extent, hint=hint, group=group, base=block.base),
            self.nest(rest, hint),
        ):
            yield

    def _accumulate(self, let: Let, value: Reduce | Stream) -> str:
        """A Reduce at the innermost frame, in a register."""
        if isinstance(value, Stream):
            return two_passes(self, value)
        kind = scalar.REGISTER[let.dtype]
        outer = self.top
        cell = self.fresh("acc")
        self.entry.append(f"  {cell} = alloca {kind}")
        outer.lines.append(f"  store {kind} {scalar.neutral(value.op, let.dtype)}, ptr {cell}")
        with self.nest([(group, None) for group in self.merged(self.walk(value))], "r"):
            self.demand([value.body])
            before = self.put(self.top, f"load {kind}, ptr {cell}", "acc")
            after = self._combine(self.top, value.op, let.dtype, before, self.value(value.body))
            self.top.lines.append(f"  store {kind} {after}, ptr {cell}")
        hint = f"v{self.order[let.name]}"
        result = self.put(outer, f"load {kind}, ptr {cell}", hint)
        return self._round(outer, result, let.dtype, hint)

    def _combine(self, frame: Frame, op: str, dtype: DType, x: str, y: str) -> str:
        flags = " reassoc" if op in ("SUM", "PROD") else ""
        return self.put(frame, scalar.binary(op, dtype, x, y, flags), "acc")

    def staged_address(self, frame: Frame, staged: Staged, kind: str) -> str:
        total = "0"
        for block in staged.blocks:
            value = self.index(block.group.flat())
            if block.base != "0":
                value = self.once(frame, f"sub nsw i64 {value}, {block.base}", "s")
            if total != "0":
                total = self.once(frame, f"mul nsw i64 {total}, {block.extent}", "s")
                total = self.once(frame, f"add nsw i64 {total}, {value}", "s")
            else:
                total = value
        start = self.once(frame, f"getelementptr inbounds i8, ptr %scratch, i64 {staged.offset}", "s")
        return self.put(frame, f"getelementptr inbounds {kind}, ptr {start}, i64 {total}", "s")

    def _load_staged(self, frame: Frame, staged: Staged, let: Let) -> str:
        dtype = let.dtype if let.dtype in (DType.I32, DType.BOOL) else DType.FP32
        address = self.staged_address(frame, staged, scalar.MEMORY[dtype])
        return self.load(frame, address, dtype, f"v{self.order[let.name]}")

    def _store_staged(self, frame: Frame, staged: Staged, let: Let, value: str) -> None:
        dtype = let.dtype if let.dtype in (DType.I32, DType.BOOL) else DType.FP32
        self.store(frame, value, self.staged_address(frame, staged, scalar.MEMORY[dtype]), dtype)
