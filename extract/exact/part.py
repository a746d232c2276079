"""A part of a program: what it is given, what it makes, and how each value on the way may be had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..choice import How, Key
from ..cost.model import Work
from ..problem import Option
from .inside import Beneath, Kind, Levels, combined
from .sources import NEAR


@dataclass(frozen=True)
class Part:
    """A part of a program.

    Attributes:
        given: buffers of the parts before.
        made: buffers that the parts after are given; the outputs, of the last part.
        options: of every value that may be computed here, in the order of a walk from ``made``.
        targets: for each of ``made`` that is no output, the values of it at all places: to have one of them in a kernel
            is to have it without its buffer.
        buffers: that may be filled here.
        inside: the least work of computing a value of what is given, where :data:`INSIDE` is an option, in each kind of kernel.
        sums: whether the last step to such a value is a sum, for all that there are.
        fetched: bytes of the elements that a kernel on a GPU fetches at least, once, that computes such a value.
        prices: what a buffer of ``given`` may be had for here where it is not filled.
        common: buffers of parts before that are read as inputs are: to fill them counts there.
        inside_bytes, inside_reads: what a kernel reads at least that computes one of these values, of which no more is known.
        known: of ``given``, what a kernel does beside that computes its values, where that is known.
        groups: the same of ``made``, with the buffers that are as good as each (``../mates.py``).
        rooted: of ``buffers`` those that cannot be filled without a value of each that is given, wherever the parts before are
            chained so.
        twice: products that may also be computed in an earlier part.
    """

    given: tuple[str, ...]
    made: tuple[str, ...]
    options: Mapping[Key, Sequence[Option]]
    targets: Mapping[str, tuple[Key, ...]]
    buffers: tuple[str, ...]
    inside: Mapping[Key, Mapping[How, Work]]
    inside_bytes: int = 0
    inside_reads: frozenset[Key] = frozenset()
    known: Mapping[str, Beneath] = field(default_factory=dict)
    groups: Mapping[str, Beneath] = field(default_factory=dict)
    prices: tuple[float, ...] = ()
    common: tuple[str, ...] = ()
    rooted: frozenset[str] = frozenset()
    fetched: Mapping[Key, float] = field(default_factory=dict)
    sums: Mapping[Key, frozenset[bool]] = field(default_factory=dict)
    twice: frozenset[Key] = frozenset()

    @property
    def levels(self) -> list[Levels]:
        """What may be filled of what is given."""
        return combined([self.known[name].levels if name in self.known else 2 for name in self.given])

    def group(self, name: str) -> Beneath:
        """How later parts may do without a buffer that is made."""
        plain = Kind(0, True, True, True), Kind(0, True, True, False)
        return self.groups[name] if name in self.groups else Beneath(name, kinds=plain)

    def at(self, levels: Levels) -> dict[str, int]:
        """The level of each of those of which anything is known."""
        return dict.fromkeys(self.known, 0) | dict(zip(self.given, levels, strict=True))

    def lacks(self, levels: Levels) -> int:
        """Of which class all that is given is at least at these levels, see :class:`Kind`."""
        named = zip(self.given, levels, strict=True)
        found = (self.known[name].lacks(level) if name in self.known else NEAR for name, level in named)
        return min(found, default=NEAR)

    def charged(self, levels: Levels) -> bool:
        """Whether some of what is computed of what is given, at these levels, is charged where that is made."""
        return any(
            level and (name not in self.known or self.known[name].kinds[level - 1].deep)
            for name, level in zip(self.given, levels, strict=True)
        )
