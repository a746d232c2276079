"""The blocks of a Poly-View as isl's texts: domains, accesses and edges, each simplified (document 004 §5.2).

Equal layers of a model have equal blocks but for the names of their tensors, so that each text is made once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinyc.ir.index import Affine, axis
from tinyc.ir.tiny import Dim

from .dependences import Kind, Statement, dependences
from .domain import Constraints, sides
from .sets import MAX_OPERATIONS, IntMap, IntSet, TooComplex, Workspace
from .walk import Guard

Axes = tuple[tuple[str, Dim], ...]
SOURCE, TARGET = "\x01", "\x02"
"""Stand for names that differ between blocks whose texts are the same else."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Element ``index`` of ``tensor``, read where all ``guards`` hold."""

    tensor: str
    index: tuple[Affine, ...]
    guards: tuple[Guard, ...] = ()


@dataclass(frozen=True)
class Draft:
    """A block before it is spelled. ``axes``: of its points, those of the value first; ``write``: the axes that index the
    value. ``pieces``: constraints of the parts of the domain, empty where it is the box of the axes."""

    name: str
    kind: str
    axes: Axes
    reads: tuple[Reading, ...]
    write: tuple[str, ...]
    pieces: tuple[Constraints, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)


class Texts:
    """Spells drafts. ``spelled``: what stands in texts for the names of symbols and tensors."""

    def __init__(
        self, symbols: Sequence[str], spelled: Mapping[str, str], max_operations: int = MAX_OPERATIONS
    ) -> None:
        self.symbols = tuple(symbols)
        self.spelled = spelled
        self._symbols = {name: spelled[name] for name in symbols}
        self.max_operations = max_operations
        self._domains: dict[Any, tuple[str, tuple[str, ...]]] = {}
        self._maps: dict[Any, str] = {}
        self._edges: dict[Any, tuple[tuple[Kind, str], ...]] = {}

    def domain(self, draft: Draft) -> tuple[str, tuple[str, ...]]:
        """The set and its pieces. Raises TooComplex, NonAffine."""
        key = draft.axes, draft.pieces
        if key not in self._domains:
            ws = self._workspace()
            box = ws.box(dict(draft.axes))
            known = ws.universe(box.names)  # what is always true of the symbols need not be said
            parts = [_part(box, piece).simplify(known) for piece in draft.pieces]
            whole = parts[0] if parts else box.simplify(known)
            for part in parts[1:]:
                whole = whole.union(part)
            self._domains[key] = str(whole), tuple(map(str, parts))
        return self._domains[key]

    def read(self, draft: Draft, reading: Reading) -> str:
        """A pw_multi_aff; partial where guards cut it. Raises TooComplex, NonAffine."""
        key = draft.axes, reading.index, reading.guards
        if key not in self._maps:
            ws = self._workspace()
            box = ws.box(dict(draft.axes))
            self._maps[key] = _access(ws, box, TARGET, reading).simplify(box).function()
        return self._maps[key].replace(TARGET, self.spelled[reading.tensor])

    def write(self, draft: Draft) -> str:
        return self.read(draft, Reading(draft.name, tuple(axis(name) for name in draft.write)))

    def edges(self, drafts: Mapping[str, Draft]) -> Iterator[tuple[str, str, Kind, str, str]]:
        """``(source, target, kind, tensor, relation)``: what each block reads of earlier ones, and how a reduction depends
        on itself through its accumulator."""
        for target in drafts.values():
            for tensor in dict.fromkeys(reading.tensor for reading in target.reads):
                if tensor in drafts:
                    reads = tuple(reading for reading in target.reads if reading.tensor == tensor)
                    yield from self._pair(drafts[tensor], target, reads)
            if len(target.write) < len(target.axes):
                yield from self._pair(target, target, ())

    def _pair(
        self, source: Draft, target: Draft, reads: tuple[Reading, ...]
    ) -> Iterator[tuple[str, str, Kind, str, str]]:
        itself = source is target
        places = tuple((reading.index, reading.guards) for reading in reads)
        key = source.axes, source.write, target.axes, places, itself
        if key not in self._edges:
            try:
                self._edges[key] = self._relations(source, target, reads)
            except TooComplex:
                self._edges[key] = self._everything(source, target)
        names = {SOURCE: self.spelled[source.name], TARGET: self.spelled[target.name]}
        if itself:
            names[SOURCE] = names[TARGET]
        for kind, text in self._edges[key]:
            relation = text.replace(SOURCE, names[SOURCE]).replace(TARGET, names[TARGET])
            yield source.name, target.name, kind, source.name, relation

    def _relations(
        self, source: Draft, target: Draft, reads: tuple[Reading, ...]
    ) -> tuple[tuple[Kind, str], ...]:
        ws = self._workspace()
        box = ws.box(dict(source.axes))
        write = _access(ws, box, SOURCE, Reading("", tuple(axis(name) for name in source.write)))
        if source is target:
            statements = [Statement(SOURCE, box, (write,), (write,))]
        else:
            other = ws.box(dict(target.axes))
            accesses = tuple(_access(ws, other, SOURCE, reading) for reading in reads)
            statements = [Statement(SOURCE, box, (), (write,)), Statement(TARGET, other, accesses)]
        return tuple(
            (each.kind, each.relation.relation(SOURCE, TARGET))
            for each in dependences(statements)
            if (each.source == each.target) == (source is target)
        )

    def _everything(self, source: Draft, target: Draft) -> tuple[tuple[Kind, str], ...]:
        """Between all points, which is never too few: what isl could not compute in time."""
        first = ", ".join(name for name, _ in source.axes)
        second = ", ".join(f"{name}'" for name, _ in target.axes)
        head = f"[{', '.join(self._symbols.values())}] -> " if self.symbols else ""
        text = f"{head}{{ {SOURCE}[{first}] -> {TARGET}[{second}] }}"
        kinds: tuple[Kind, ...] = ("true", "anti", "output") if source is target else ("true",)
        return tuple((kind, text) for kind in kinds)

    def _workspace(self) -> Workspace:
        """A new one per text: each may take isl as long as any other."""
        return Workspace(self.symbols, self.max_operations, self._symbols)


def _part(box: IntSet, constraints: Constraints) -> IntSet:
    """The points of ``box`` for which the texts of a piece hold (``0<=i0``, ``i0<M``)."""
    for low, high, strict in (sides(text) for pair in constraints for text in pair):
        box = box.where(f"({high})-({low})", 1 if strict else 0)
    return box


def _access(ws: Workspace, box: IntSet, tensor: str, reading: Reading) -> IntMap:
    inside = box
    for guard in reading.guards:
        inside = inside.where(guard.index, guard.low, guard.high)
    return ws.access(box.names, tensor, reading.index).on(inside)
