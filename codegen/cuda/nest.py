"""The loops of one thread, as text. A :class:`Frame` is one open loop; its text is kept apart from that around it until it
closes, so that what is found inside can still be put before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tinyc.ir.region import Axis


@dataclass
class Each:
    """What is done for each element ``u`` of a vector: an unrolled loop, so that its arrays are registers. ``arrays``: those
    that it fills, with their types; ``declared``: what stands before it."""

    width: int
    arrays: dict[str, str] = field(default_factory=dict)
    declared: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def text(self, others: str) -> list[str]:
        """``others``: the rest of its frame. An array that is not named there is a value for each element."""
        declared, lines = list(self.declared), self.lines
        for name, kind in self.arrays.items():
            written = [line for line in lines if line.startswith(f"{name}[u] = ")]
            if f"{name}[" in others or len(written) > 1:
                declared.append(f"{kind} {name}[{self.width}];")
                continue
            lines = [line.replace(f"{name}[u]", name) for line in lines]
            lines = [f"const {kind} {line}" if line.startswith(f"{name} = ") else line for line in lines]
        head = f"for (int u = 0; u < {self.width}; ++u) {{"
        return [*declared, "#pragma unroll", head, *(f"  {line}" for line in lines), "}"]


Line = str | Each


def text(lines: Sequence[Line]) -> list[str]:
    """The source of a frame."""
    plain = "\n".join(line for line in lines if isinstance(line, str))
    found: list[str] = []
    for line in lines:
        if isinstance(line, str):
            found.append(line)
            continue
        others = (each.lines for each in lines if isinstance(each, Each) and each is not line)
        found += line.text("\n".join([plain, *(part for each in others for part in each)]))
    return found


@dataclass(frozen=True)
class Vector:
    """``width`` points of ``axis`` that a thread has at one time, from the one ``base`` on. ``size``: of the axis, where the
    last vector may hang over its end; 0 where none does."""

    axis: str
    width: int
    base: str
    size: int = 0


@dataclass(frozen=True)
class Walk:
    """A loop over ``axes`` of which ``lanes`` threads take turns, ``steps`` each, with vectors of ``width``. ``step``: its number;
    ``place``: of the thread's first element."""

    axes: tuple[Axis, ...]
    width: int
    lanes: int
    steps: int
    step: str
    place: str


@dataclass
class Frame:
    """``axes``: what is known in it and not outside. ``values``: of the lets that are computed in it, the expressions, which
    name the element ``u`` where the let differs within ``vector``."""

    axes: frozenset[str]
    vector: Vector | None = None
    walk: Walk | None = None
    lines: list[Line] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)

    def add(self, *lines: str) -> None:
        """What depends on no element of a vector, and so may stand before the loop over the elements that is open."""
        at = len(self.lines) - isinstance(self.lines[-1], Each) if self.lines else 0
        self.lines[at:at] = lines

    def then(self, *lines: str) -> None:
        """What comes after all else."""
        self.lines += lines

    def each(self, width: int) -> Each:
        """The loop over the elements that is open, or a new one."""
        last = self.lines[-1] if self.lines else None
        if isinstance(last, Each) and last.width == width:
            return last
        self.lines.append(found := Each(width))
        return found


class Nest:
    """The open frames of a kernel, outermost first: first what a thread does once. ``index``: the type of indices. ``names``:
    of the axes' variables."""

    def __init__(self, axes: frozenset[str], index: str, names: dict[str, str]) -> None:
        self.frames = [Frame(axes)]
        self.index, self.names = index, names

    @property
    def top(self) -> Frame:
        return self.frames[-1]

    def depth(self, axes: frozenset[str]) -> int:
        """The innermost frame that some of ``axes`` belong to."""
        bound = (number for number, frame in enumerate(self.frames) if not axes.isdisjoint(frame.axes))
        return max(bound, default=0)

    def vector(self, axes: frozenset[str]) -> Vector | None:
        """The vector within which what depends on ``axes`` differs."""
        found = (frame.vector for frame in self.frames if frame.vector and frame.vector.axis in axes)
        return next(found, None)

    @contextmanager
    def at(self, depth: int) -> Iterator[Frame]:
        """Inside, the frames below ``depth`` are out of sight: text goes before their loops."""
        saved = self.frames
        self.frames = saved[: depth + 1]
        yield self.top
        self.frames = saved

    @contextmanager
    def named(self, vector: Vector | None) -> Iterator[None]:
        """Inside, the axis of ``vector`` is that of element ``u``: the last one where it hangs over."""
        if vector is None:
            yield
            return
        saved = self.names[vector.axis]
        inside = f"{vector.base} + u"
        self.names[vector.axis] = f"({inside})"
        if vector.size:
            self.names[vector.axis] = f"min({inside}, ({self.index}){vector.size - 1})"
        yield
        self.names[vector.axis] = saved

    @contextmanager
    def loops(self, axes: tuple[Axis, ...], width: int = 1) -> Iterator[None]:
        """A loop over each of ``axes``, the last innermost, in vectors of ``width``."""
        if not axes:
            yield
            return
        first, *rest = axes
        name = self.names[first.name]
        step = 1 if rest else width
        vector = Vector(first.name, step, name) if step > 1 else None
        self.frames.append(Frame(frozenset({first.name}), vector))
        with self.loops(tuple(rest), width):
            yield
        inner = self.frames.pop()
        forward = f"{name} += {step}" if step > 1 else f"++{name}"
        head = f"for ({self.index} {name} = 0; {name} < {first.size}; {forward}) {{"
        self.top.then(head, *(f"  {line}" for line in text(inner.lines)), "}")

    @contextmanager
    def turns(self, axes: tuple[Axis, ...], lanes: int, share: int) -> Iterator[None]:
        """A loop over all points of ``axes``, in their order, of which every ``lanes``-th thread takes turns, ``share`` in all."""
        self.frames.append(Frame(frozenset(item.name for item in axes)))
        yield
        inner = self.frames.pop()
        size = math.prod(item.size for item in axes)
        head = f"for ({self.index} r = lane / {lanes}; r < {size}; r += {share}) {{"
        body = [*self.decoded("r", axes), *text(inner.lines)]
        self.top.then(head, *(f"  {line}" for line in body), "}")

    def decoded(self, flat: str, axes: tuple[Axis, ...]) -> list[str]:
        """The variables of ``axes`` at the point ``flat`` of them, the last the fastest."""
        lines: list[str] = []
        rest = flat
        for item in reversed(axes[1:]):
            lines.append(f"const {self.index} {self.names[item.name]} = {rest} % {item.size};")
            rest = f"{rest} / {item.size}"
        if axes:
            lines.append(f"const {self.index} {self.names[axes[0].name]} = {rest};")
        return lines
