"""Emits the lets of a Region into nested loops, each let in the outermost loop where its axes are known.

A :class:`Frame` is one open loop. Its text is kept apart from its parent's until it closes, so a let found inside
an inner loop can still be put before that loop. A Reduce whose value does not depend on some loop around it is
computed before that loop, for all the points that are needed inside, into an array in scratch memory ("staged").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tinyc.ir.dtypes import DType, from_bits
from tinyc.ir.index import Affine, FloorDiv, axis, lit
from tinyc.ir.region import (
    Axis,
    Binary,
    Cast,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Unary,
    Within,
    free_axes,
    operands,
)

from . import scalar
from .host import Host

#: largest staged array in bytes; a Reduce that would need more is computed again instead
STAGE_LIMIT = 8 << 20
#: how many threads one may expect to repeat what is computed before the parallel loop
THREADS = 8


@dataclass(frozen=True)
class Group:
    """Axes that one loop walks together, flattened in row-major order."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        return math.prod(item.size for item in self.axes)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(item.name for item in self.axes)

    def strides(self) -> dict[str, int]:
        strides: dict[str, int] = {}
        step = 1
        for item in reversed(self.axes):
            strides[item.name] = step
            step *= item.size
        return strides

    def flat(self) -> Affine:
        """The flat index as an expression over the axes."""
        total = lit(0)
        for name, stride in self.strides().items():
            total = total + axis(name) * stride
        return total


@dataclass(frozen=True)
class Block:
    """The part of a group that the loops inside a frame stay in: ``base <= flat < base + count``."""

    group: Group
    base: str
    count: str
    extent: int


@dataclass(frozen=True)
class Staged:
    """A Reduce in scratch memory at byte ``offset``: one element per point of ``blocks``, row-major."""

    offset: int
    blocks: tuple[Block, ...]


@dataclass
class Frame:
    """An open loop.

    ``local``: its variable; ``index``: the flat index of ``group``; ``parts``: the axes that it moves along
    and how many turns it makes for them; ``blocks``: what loops inside are confined to. ``values`` and ``exprs``
    are what has been computed here, by let and by text.
    """

    label: str
    group: Group = field(default_factory=lambda: Group(()))
    index: str = "0"
    local: str = "0"
    parts: tuple[tuple[frozenset[str], int], ...] = ()
    blocks: list[Block] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    exprs: dict[tuple[str, ...], str] = field(default_factory=dict)
    staged: dict[str, Staged] = field(default_factory=dict)

    def turns_without(self, axes: frozenset[str]) -> int:
        """How often it comes to the same point of ``axes``."""
        return math.prod(turns for over, turns in self.parts if over.isdisjoint(axes))


class Emitter:
    """The body of one kernel under construction."""

    def __init__(self, region: Region, host: Host) -> None:
        self.region = region
        self.host = host
        self.lets: dict[str, Let] = {let.name: let for let in region.lets}
        self.order = {let.name: number for number, let in enumerate(region.lets)}
        self.free = free_axes(region)
        self.buffers: dict[str, tuple[str, MemRef]] = {}
        for number, ref in enumerate(region.inputs):
            self.buffers[ref.name] = (f"%in{number}", ref)
        self.outputs = {ref.name: (f"%out{number}", ref) for number, ref in enumerate(region.outputs)}
        reduces = [let.value for let in region.lets if isinstance(let.value, Reduce)]
        self.sizes = {item.name: item.size for item in region.iters}
        self.sizes |= {item.name: item.size for value in reduces for item in value.axes}
        self.frames = [Frame("entry")]
        self.entry: list[str] = []
        self.used: set[str] = set()
        self.scratch = 0
        self.functions: list[str] = []  # further functions of the module
        self.vector: Group | None = None  # the innermost iters, when columns are reduced along them
        self.columns: frozenset[str] = frozenset()  # Reduces computed for a whole row of ``vector`` at a time
        self._count = 0

    # ---- text -------------------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        self._count += 1
        return f"%{hint}.{self._count}"

    def put(self, frame: Frame, text: str, hint: str) -> str:
        """Appends ``hint = text`` to the frame."""
        name = self.fresh(hint)
        frame.lines.append(f"  {name} = {text}")
        return name

    def once(self, frame: Frame, text: str, hint: str) -> str:
        """As :meth:`put`, but an instruction that the frame holds already is not repeated."""
        found = frame.exprs.get((text,))
        if found is None:
            found = frame.exprs[(text,)] = self.put(frame, text, hint)
        return found

    def reserve(self, size: int) -> int:
        """Bytes of scratch memory, 64-byte aligned; returns their offset."""
        offset = self.scratch
        self.scratch += -(-size // 64) * 64
        return offset

    @property
    def top(self) -> Frame:
        return self.frames[-1]

    @contextmanager
    def at(self, depth: int) -> Iterator[Frame]:
        """Inside, the frames below ``depth`` are out of sight: text goes before their loops."""
        saved = self.frames
        self.frames = saved[: depth + 1]
        yield self.top
        self.frames = saved

    @contextmanager
    def loop(
        self,
        begin: str,
        end: str,
        trip: int,
        *,
        hint: str,
        group: Group | None = None,
        base: str = "0",
        over: frozenset[str] = frozenset(),
    ) -> Iterator[Frame]:
        """A loop over ``begin <= i < end``, at most ``trip`` turns along the axes ``over`` or those of ``group``.

        With ``group``, its flat index is ``base + i``.
        """
        self._count += 1
        label = f"{hint}.{self._count}"
        frame = Frame(f"{label}.body", group or Group(()), f"%{label}", f"%{label}")
        frame.parts = ((group.names if group else over, trip),)
        if group is not None and base != "0":
            frame.index = self.put(frame, f"add nuw nsw i64 {base}, %{label}", "at")
        self.frames.append(frame)
        yield frame
        self.frames.pop()
        outer = self.top
        outer.lines += [
            f"  br label %{label}.head",
            f"{label}.head:",
            f"  %{label} = phi i64 [ {begin}, %{outer.label} ], [ %{label}.next, %{label}.latch ]",
            f"  %{label}.more = icmp slt i64 %{label}, {end}",
            f"  br i1 %{label}.more, label %{label}.body, label %{label}.done",
            f"{label}.body:",
            *frame.lines,
            f"  br label %{label}.latch",
            f"{label}.latch:",
            f"  %{label}.next = add nuw nsw i64 %{label}, 1",
            f"  br label %{label}.head",
            f"{label}.done:",
        ]
        outer.label = f"{label}.done"

    @contextmanager
    def tiles(self, outer: Group, blocks: tuple[tuple[Group, int], ...]) -> Iterator[Frame]:
        """The parallel loop over [%begin, %end): every point of ``outer``, every block of each blocked group."""
        parts = tuple((group.names, -(-group.size // size)) for group, size in blocks)
        with self.loop("%begin", "%end", tile_count(outer, blocks), hint="tile") as frame:
            frame.parts = ((outer.names, outer.size), *parts)
            part = frame.index
            for group, size in reversed(blocks):
                number = -(-group.size // size)
                if number == 1:
                    frame.blocks.append(Block(group, "0", str(group.size), group.size))
                    continue
                which = self.put(frame, f"urem i64 {part}, {number}", "which")
                part = self.put(frame, f"udiv i64 {part}, {number}", "part")
                base = self.put(frame, f"mul nuw nsw i64 {which}, {size}", "base")
                count = str(size)
                if group.size % size:
                    left = self.put(frame, f"sub nuw nsw i64 {group.size}, {base}", "left")
                    count = self.put(frame, f"call i64 @llvm.smin.i64(i64 {left}, i64 {size})", "count")
                frame.blocks.append(Block(group, base, count, size))
            frame.group, frame.index = outer, part
            yield frame

    # ---- places -----------------------------------------------------------------------------------------

    def depth(self, axes: frozenset[str]) -> int:
        """The frame that binds the last of ``axes`` (0: the function itself)."""
        for number in range(len(self.frames) - 1, 0, -1):
            if not axes.isdisjoint(self.frames[number].group.names):
                return number
        return 0

    def block(self, name: str) -> Block | None:
        """The innermost block that holds the axis ``name``."""
        for frame in reversed(self.frames):
            for block in frame.blocks:
                if name in block.group.names:
                    return block
        return None

    def full(self, group: Group) -> Block:
        """The block that ``group`` is confined to here, or the whole group."""
        found = self.block(group.axes[0].name) if group.axes else None
        if found is not None and found.group == group:
            return found
        return Block(group, "0", str(group.size), group.size)

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
            if 0 <= low and high < size:
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
        """Emits the lets ``names`` and all that they need here, in the Region's order."""
        needed: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in needed or self.known(name):
                continue
            needed.add(name)
            if not isinstance(self.lets[name].value, Reduce):
                pending += operands(self.lets[name].value)
        for name in sorted(needed, key=self.order.__getitem__):
            if not self.known(name):
                self._emit(self.lets[name])

    def _emit(self, let: Let) -> None:
        depth = self.depth(self.free[let.name])
        frame = self.frames[depth]
        if isinstance(let.value, Reduce):
            value = self._reduce(let, let.value, depth)
        else:
            value = self._compute(frame, let)
        frame.values[let.name] = value

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
        if "@exp2_f32(" in text:
            self.used.add("exp2_f32")

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

    def _reduce(self, let: Let, value: Reduce, depth: int) -> str:
        staged, place = self._staged(let.name, depth)
        if staged is None:
            place_at = self._stage_depth(let, depth)
            if place_at is None:
                with self.at(depth):
                    return self._accumulate(let, value)
            with self.at(place_at) as frame:
                staged = frame.staged[let.name] = self._stage(let, value)
        raw = self._load_staged(self.frames[depth], staged, let)
        return self._round(self.frames[depth], raw, let.dtype, f"v{self.order[let.name]}")

    def _staged(self, name: str, depth: int) -> tuple[Staged | None, int]:
        for number in range(depth, -1, -1):
            if name in self.frames[number].staged:
                return self.frames[number].staged[name], number
        return None, 0

    def _stage_depth(self, let: Let, depth: int) -> int | None:
        """The frame to stage a Reduce in: just outside the first loop that it does not depend on."""
        free = self.free[let.name]
        for number in range(1, depth + 1):
            frame = self.frames[number]
            # a Reduce before the parallel loop is computed by every thread, so that must save something
            wasted = frame.turns_without(free) > (THREADS if number == 1 else 1)
            bound = self.vector is not None and frame.group == self.vector
            if wasted or bound and let.name in self.columns:
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

    def _stage(self, let: Let, value: Reduce) -> Staged:
        blocks = self._stage_blocks(self.free[let.name])
        kind = scalar.REGISTER[let.dtype]
        size = math.prod(block.extent for block in blocks)
        staged = Staged(self.reserve(4 * size if kind != "i1" else size), blocks)
        inner = blocks[-1] if blocks else None
        column = inner is not None and let.name in self.columns and inner.group == self.vector
        first = blocks[:-1] if column else blocks
        with self._nest([(block.group, block) for block in first], "s"):
            if not column:
                result = self._accumulate(let, value)
                self._store_staged(self.top, staged, let, result)
            else:
                assert inner is not None
                with self._nest([(inner.group, inner)], "s"):
                    self._store_staged(self.top, staged, let, scalar.neutral(value.op, let.dtype))
                with (
                    self._nest([(Group((item,)), None) for item in value.axes], "r"),
                    self._nest([(inner.group, inner)], "s"),
                ):
                    self.demand([value.body])
                    before = self._load_staged(self.top, staged, let)
                    after = self._combine(self.top, value.op, let.dtype, before, self.value(value.body))
                    self._store_staged(self.top, staged, let, after)
        return staged

    @contextmanager
    def _nest(self, loops: list[tuple[Group, Block | None]], hint: str) -> Iterator[None]:
        """Loops nested in the order given, each over its block or its whole group."""
        if not loops:
            yield
            return
        (group, block), *rest = loops
        block = block or self.full(group)
        with (
            self.loop("0", block.count, block.extent, hint=hint, group=group, base=block.base),
            self._nest(rest, hint),
        ):
            yield

    def _accumulate(self, let: Let, value: Reduce) -> str:
        """A Reduce at the innermost frame, in a register."""
        kind = scalar.REGISTER[let.dtype]
        outer = self.top
        cell = self.fresh("acc")
        self.entry.append(f"  {cell} = alloca {kind}")
        outer.lines.append(f"  store {kind} {scalar.neutral(value.op, let.dtype)}, ptr {cell}")
        with self._nest([(group, None) for group in self.merged(self.walk(value))], "r"):
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
            elif isinstance(let.value, Reduce) and len(pair & self.free[let.name]) == 1:
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

    def _staged_address(self, frame: Frame, staged: Staged, kind: str) -> str:
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
        address = self._staged_address(frame, staged, scalar.MEMORY[dtype])
        return self.load(frame, address, dtype, f"v{self.order[let.name]}")

    def _store_staged(self, frame: Frame, staged: Staged, let: Let, value: str) -> None:
        dtype = let.dtype if let.dtype in (DType.I32, DType.BOOL) else DType.FP32
        self.store(frame, value, self._staged_address(frame, staged, scalar.MEMORY[dtype]), dtype)


def tile_count(outer: Group, blocks: tuple[tuple[Group, int], ...]) -> int:
    """Iterations of the parallel loop."""
    return outer.size * math.prod(-(-group.size // size) for group, size in blocks)


def simplify(region: Region) -> Region:
    """The same Region without axes of size 1."""
    one = {item.name: lit(0) for item in region.iters if item.size == 1}
    for let in region.lets:
        if isinstance(let.value, Reduce):
            one |= {item.name: lit(0) for item in let.value.axes if item.size == 1}
    lets = []
    for let in region.lets:
        value = let.value
        match value:
            case Read(tensor, index_map):
                value = Read(tensor, tuple(index.substitute(one) for index in index_map))
            case Within(index, lo, hi):
                value = Within(index.substitute(one), lo, hi)
            case Reduce(op, axes, body):
                value = Reduce(op, tuple(item for item in axes if item.name not in one), body)
        lets.append(replace(let, value=value))
    iters = tuple(item for item in region.iters if item.name not in one)
    return replace(region, iters=iters, lets=tuple(lets))


def describe(region: Region) -> list[str]:
    """The Region as comments, with generated names: what the user called things stays out of the source."""
    names: dict[str, str] = {}
    for number, item in enumerate(region.iters):
        names[item.name] = f"i{number}"
    number = 0
    for let in region.lets:
        if isinstance(let.value, Reduce):
            for item in let.value.axes:
                names[item.name] = f"r{number}"
                number += 1
    values = {let.name: f"%v{number}" for number, let in enumerate(region.lets)}
    tensors = {ref.name: f"%in{number}" for number, ref in enumerate(region.inputs)}
    rename = {old: axis(new) for old, new in names.items()}
    lines = ["; iters " + " ".join(f"{names[item.name]}<{item.size}" for item in region.iters)]
    for number, ref in enumerate(region.inputs):
        lines.append(f"; in{number}: {ref.dtype}{list(ref.shape)}")
    for let in region.lets:
        lines.append(f"; {values[let.name]}: {let.dtype} = {_describe(let, values, tensors, names, rename)}")
    for number, ref in enumerate(region.outputs):
        stored = next(item.value for item in region.yields if item.to == ref.name)
        lines.append(f"; out{number}: {ref.dtype}{list(ref.shape)} = {values[stored]}")
    return lines


def _describe(
    let: Let,
    values: dict[str, str],
    tensors: dict[str, str],
    names: dict[str, str],
    rename: dict[str, Affine],
) -> str:
    match let.value:
        case Read(tensor, index_map):
            return f"{tensors[tensor]}[{', '.join(str(index.substitute(rename)) for index in index_map)}]"
        case Const(bits):
            return str(from_bits(bits, let.dtype))
        case Within(index, lo, hi):
            return f"{lo} <= {index.substitute(rename)} < {hi}"
        case Reduce(op, axes, body):
            over = " ".join(f"{names[item.name]}<{item.size}" for item in axes)
            return f"{op} over {over}: {values[body]}"
        case Unary(op, _) | Binary(op, _, _):
            head = op
        case Cast():
            head = "CAST"
        case _:
            head = "WHERE"
    return " ".join([head, *(values[name] for name in operands(let.value))])
