"""The loops of a kernel under construction, as text.

A :class:`Frame` is one open loop. Its text is kept apart from its parent's until it closes, so what is found inside
an inner loop can still be put before that loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tinyc.ir.index import Affine, axis, lit
from tinyc.ir.region import Axis

from .rows import Saved


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
    saved: dict[int, Saved] = field(default_factory=dict)  # rows that are complete, by kind
    filling: list[tuple[Frame, int, Saved]] = field(default_factory=list)  # rows complete when this loop ends

    def turns_without(self, axes: frozenset[str]) -> int:
        """How often it comes to the same point of ``axes``."""
        return math.prod(turns for over, turns in self.parts if over.isdisjoint(axes))


class Nest:
    """The open frames of one function, outermost first, and the names given out in it."""

    def __init__(self) -> None:
        self.frames = [Frame("entry")]
        self.entry: list[str] = []  # allocations at the start of the function
        self.functions: list[str] = []  # further functions of the module
        self.scratch = 0
        self.widths: dict[str, int] = {}  # axis -> elements of a vector, where a Plan says so
        self.metadata: list[str] = []  # of loops, numbered from 0
        self._count = 0

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
        hints = self._vectorized(self.widths.get(group.axes[-1].name, 0) if group and group.axes else 0)
        if group is not None and base != "0":
            frame.index = self.put(frame, f"add nuw nsw i64 {base}, %{label}", "at")
        self.frames.append(frame)
        yield frame
        self.frames.pop()
        for holder, kind, saved in frame.filling:
            holder.saved.setdefault(kind, saved)
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
            f"  br label %{label}.head{hints}",
            f"{label}.done:",
        ]
        outer.label = f"{label}.done"

    def _vectorized(self, width: int) -> str:
        """The metadata of a loop that LLVM is to vectorise by ``width`` (0: as it likes)."""
        if not width:
            return ""
        number = len(self.metadata)
        wanted = f'!{{!"llvm.loop.vectorize.width", i32 {width}}}'
        single = ', !{!"llvm.loop.interleave.count", i32 1}' if width == 1 else ""
        self.metadata.append(f"!{number} = distinct !{{!{number}, {wanted}{single}}}")
        return f", !llvm.loop !{number}"

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


def tile_count(outer: Group, blocks: tuple[tuple[Group, int], ...]) -> int:
    """Iterations of the parallel loop."""
    return outer.size * math.prod(-(-group.size // size) for group, size in blocks)
