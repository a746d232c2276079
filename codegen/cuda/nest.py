"""The loops of one thread, as text. A :class:`Frame` is one open loop; its text is kept apart from that around it until it
closes, so that what is found inside can still be put before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tinyc.ir.region import Axis


@dataclass
class Frame:
    """``axes``: what is known in it and not outside. ``values``: of the lets that are computed in it, the expressions."""

    axes: frozenset[str]
    lines: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)


class Nest:
    """The open frames of a kernel, outermost first: first what a thread does once. ``index``: the type of indices."""

    def __init__(self, axes: frozenset[str], index: str) -> None:
        self.frames = [Frame(axes)]
        self.index = index

    @property
    def top(self) -> Frame:
        return self.frames[-1]

    def depth(self, axes: frozenset[str]) -> int:
        """The innermost frame that some of ``axes`` belong to."""
        bound = (number for number, frame in enumerate(self.frames) if not axes.isdisjoint(frame.axes))
        return max(bound, default=0)

    @contextmanager
    def at(self, depth: int) -> Iterator[Frame]:
        """Inside, the frames below ``depth`` are out of sight: text goes before their loops."""
        saved = self.frames
        self.frames = saved[: depth + 1]
        yield self.top
        self.frames = saved

    @contextmanager
    def loops(self, axes: tuple[Axis, ...], names: dict[str, str]) -> Iterator[None]:
        """A loop over each of ``axes``, the last innermost; ``names``: of their variables."""
        if not axes:
            yield
            return
        first, *rest = axes
        self.frames.append(Frame(frozenset({first.name})))
        with self.loops(tuple(rest), names):
            yield
        inner, name = self.frames.pop(), names[first.name]
        head = f"for ({self.index} {name} = 0; {name} < {first.size}; ++{name}) {{"
        self.top.lines += [head, *(f"  {line}" for line in inner.lines), "}"]
