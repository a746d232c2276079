"""What holds of every IndexBook (document 004 §4.3), as checks that run on every compile.

A book that tinyc derived passes; one that was read from a file, or a rule of derive.py that is wrong, does not. Every
text and every bound is looked at once: equal layers of a model have equal ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tinyc.ir import dims
from tinyc.ir.diagnostics import Diagnostic, TinycError, show
from tinyc.ir.index import Affine, affine, lit
from tinyc.ir.tiny import Dim, Node, Program
from tinyc.ir.verify import MAX_PIECES

from .align import LAYER, texts
from .book import NON_SCOP, Access, IndexBook, IndexInfo
from .domain import Constraints, box, ranges, sides
from .ranges import interval, put, simplify, text, whole_affine

if TYPE_CHECKING:
    from .sets import IntSet

Sizes = Mapping[str, Dim]


def check_book(book: IndexBook, program: Program) -> tuple[Diagnostic, ...]:
    """Checks all values of an aligned ``book`` (see ``align_params``) and gives its notes.

    Raises TinycError: MissingDivGuard for a ``%``; MalformedDocument for an expression, a map or a set of pieces that
    is not in the form of the book; AxisAlignmentMismatch for axes that are not ``i0, i1, …`` with ids of their own, or
    reduce axes that are not the operand's; BroadcastMismatch for a broadcast axis that a map uses, and a map that does
    not read index 0 of an axis of size 1; NonSCoP for a value that is not affine and not marked; OutOfBoundsMap for an
    index outside of its input; ExcessivePiecewise for more than 256 pieces along a chain of movement.
    """
    checker = _Checker(book)
    owner: dict[int, str] = {}
    for node in program.nodes:
        info = book.values[node.id]
        _check_axes(info, owner)
        _check_reduce(info, node, book)
        checker.check(info)
    return notes(book)


def notes(book: IndexBook) -> tuple[Diagnostic, ...]:
    """One NonSCoP (E1301) for every value at which something stops being affine, with what to bind."""
    found: list[Diagnostic] = []
    told: set[Dim] = set()
    for info in book.values.values():
        if NON_SCOP in info.flags:
            note = _note(info, book, told)
            found += [] if note is None else [note]
            told.update(axis.size for axis in (*info.axes, *info.reduced) if whole_affine(axis.size) is None)
    return tuple(found)


def _note(info: IndexInfo, book: IndexBook, told: set[Dim]) -> Diagnostic | None:
    """Why a value is not affine; None where it only has a size that was told of before."""
    sizes = [axis.size for axis in (*info.axes, *info.reduced)]
    involved: list[Dim] = []
    for access in info.inputs:
        source = book.values.get(access.value_id)
        before = [] if source is None else [axis.size for axis in source.axes]
        odd = [entry for entry in access.map if whole_affine(entry) is None]
        if odd:
            why, involved = (
                f"it reads {show(access.value_id)} at {odd[0]}, which multiplies by a symbol",
                [*odd],
            )
        elif before and not access.map:
            why = f"how it reads {show(access.value_id)} divides by a symbol"
            involved = [size for size in (*sizes, *before) if (size in sizes) != (size in before)]
    products = [size for size in sizes if whole_affine(size) is None]
    if not involved and products:
        new = [size for size in products if size not in told]
        if not new:
            return None
        why, involved = f"the size {new[0]} multiplies two symbols", new
    if not involved:
        why, involved = "isl cannot write the pieces of its domain", sizes
    axes = {axis.name for axis in (*info.axes, *info.reduced)}
    symbols = sorted(frozenset[str]().union(*(dims.names(each) for each in involved)) - axes)
    suggestion = f"bind {' or '.join(symbols)} to an integer" if symbols else "use an affine index"
    at = {"layer": LAYER, "value": info.value_id}
    return Diagnostic("NonSCoP", f"{show(info.value_id)}: {why}", suggestion, at, {"symbols": symbols})


def _fail(kind: str, id: str, why: str, suggestion: str, **details: object) -> TinycError:
    return TinycError(kind, f"{show(id)}: {why}", suggestion, {"layer": LAYER, "value": id}, **details)


def _check_axes(info: IndexInfo, owner: dict[int, str]) -> None:
    """§4.3-2: i0, i1, …, each with an id that no other axis of the book has."""
    wanted = [f"i{number}" for number in range(len(info.axes))]
    if [axis.name for axis in info.axes] != wanted:
        listed = ", ".join(axis.name for axis in info.axes)
        why = f"its axes are {listed}"
        raise _fail("AxisAlignmentMismatch", info.value_id, why, f"name them {', '.join(wanted)}")
    names = [axis.name for axis in (*info.axes, *info.reduced)]
    if len(set(names)) != len(names):
        why = f"two of its axes have one name: {', '.join(names)}"
        raise _fail("AxisAlignmentMismatch", info.value_id, why, "give each axis a name of its own")
    for axis in info.axes:
        if axis.id in owner:
            why = f"the id {axis.id} of axis {axis.name} is also that of an axis of {show(owner[axis.id])}"
            raise _fail("AxisAlignmentMismatch", info.value_id, why, "give each axis an id of its own")
        if axis.kind == "reduce":
            why = f"axis {axis.name} is marked reduce and has not been removed"
            raise _fail("AxisAlignmentMismatch", info.value_id, why, "a REDUCE removes its axes")
        owner[axis.id] = info.value_id


def _check_reduce(info: IndexInfo, node: Node, book: IndexBook) -> None:
    """§4.3-4: the axes of a REDUCE are gone from it, and recorded under the ids that they had."""
    if node.uop != "REDUCE":
        return
    before = book.values[node.operands()[0]].axes
    gone = tuple(before[number].id for number in node.arg["axes"])
    if info.reduce_axes != gone or any(axis.kind != "reduce" for axis in info.reduced):
        why = f"its reduce axes have the ids {list(info.reduce_axes)}; the operand's are {list(gone)}"
        raise _fail("AxisAlignmentMismatch", info.value_id, why, "keep the ids, and the kind reduce")


class _Checker:
    """Checks that look into expressions; what has been found right is not looked at again."""

    def __init__(self, book: IndexBook) -> None:
        self.book = book
        self.normal: set[str] = set()
        self.inside: set[tuple[object, ...]] = set()
        self.covered: set[tuple[object, ...]] = set()

    def check(self, info: IndexInfo) -> None:
        for each in texts(info):
            if each not in self.normal:
                _check_text(info, each)
                self.normal.add(each)
        if info.chain_pieces > MAX_PIECES:
            why = (
                f"its movement cuts the index space into {info.chain_pieces} pieces (more than {MAX_PIECES})"
            )
            suggestion = "merge the PADs into one, or compute something between them"
            raise _fail("ExcessivePiecewise", info.value_id, why, suggestion, pieces=info.chain_pieces)
        scop = NON_SCOP not in info.flags
        for access in info.inputs:
            self.check_access(info, access, scop)
        self.check_pieces(info, scop)
        if any(piece.inputs not in ((), info.inputs) for piece in info.pieces):
            why = "a piece of its domain has other inputs than the value"
            raise _fail("MalformedDocument", info.value_id, why, "give it the inputs of the value, or none")
        if scop and any(whole_affine(axis.size) is None for axis in (*info.axes, *info.reduced)):
            why = "a size multiplies two symbols, and the value is not marked non_scop"
            raise _fail("NonSCoP", info.value_id, why, "mark it, or bind the symbols")
        for axis in info.axes:
            if axis.kind == "broadcast" and axis.name in _used(info):
                why = f"axis {axis.name} is marked broadcast, and a map uses it"
                raise _fail("BroadcastMismatch", info.value_id, why, "read constant 0 along a broadcast axis")

    def check_access(self, info: IndexInfo, access: Access, scop: bool) -> None:
        """§4.3-1 and -5: one affine index per axis of a value of the book, or non_scop."""
        source = self.book.values.get(access.value_id)
        if source is None:
            why = f"it reads {show(access.value_id)}, which the book does not have"
            raise _fail("UnknownReference", info.value_id, why, "add the value, or correct the name")
        affine = all(whole_affine(entry) is not None for entry in access.map)
        if scop and not affine:
            why = f"its map of {show(access.value_id)} is not affine, and it is not marked non_scop"
            raise _fail("NonSCoP", info.value_id, why, "mark it, or bind the symbols")
        if len(access.map) != len(source.axes) and (scop or access.map):
            why = f"its map of {show(access.value_id)} has {len(access.map)} entries for {len(source.axes)} axes"
            raise _fail("MalformedDocument", info.value_id, why, "give one index per axis of the input")
        if scop:
            self.check_inside(info, access, source)

    def check_inside(self, info: IndexInfo, access: Access, source: IndexInfo) -> None:
        """§4.3-3 and that an index is one of the input's."""
        sizes = {axis.name: axis.size for axis in (*info.axes, *info.reduced)}
        domain = info.pieces[0].constraints if len(info.pieces) > 1 else ()
        for entry, axis in zip(access.map, source.axes, strict=True):
            if entry == "0" or sizes.get(entry) == axis.size:
                continue
            if axis.size == 1 and not domain:
                why = f"it reads {show(access.value_id)} at {entry} along {axis.name}, which has size 1"
                raise _fail(
                    "BroadcastMismatch", info.value_id, why, "read constant 0 along an axis of size 1"
                )
            concerned = sizes if domain else dims.names(entry)
            key = (entry, axis.size, domain, *((name, sizes.get(name)) for name in sorted(concerned)))
            if key in self.inside:
                continue
            if not _inside(entry, axis.size, sizes, domain, self.book.symbols):
                why = f"it reads {show(access.value_id)} at {entry}, outside of {axis.name}<{axis.size}"
                raise _fail("OutOfBoundsMap", info.value_id, why, "PAD the input first", index=entry)
            self.inside.add(key)

    def check_pieces(self, info: IndexInfo, scop: bool) -> None:
        """Pieces hold every point of the box once; a plain value is one piece, the box."""
        shape = tuple(axis.size for axis in info.axes)
        pieces = tuple(piece.constraints for piece in info.pieces)
        if len(pieces) == 1 and pieces[0] == box(shape):
            return
        if (shape, pieces) in self.covered or not scop:
            return
        fault = _uncovered(shape, pieces, self.book.symbols)
        if fault:
            raise _fail("MalformedDocument", info.value_id, fault, "let the pieces hold every point once")
        self.covered.add((shape, pieces))


def _used(info: IndexInfo) -> set[str]:
    return {name for access in info.inputs for entry in access.map for name in dims.names(entry)}


def _check_text(info: IndexInfo, found: str) -> None:
    """§4.3-1 and -6: no ``%``, positive denominators, lowest terms: the normal form of ``tinyc.ir.dims``."""
    if "%" in found:
        why = f"{show(found)} has a %"
        raise _fail("MissingDivGuard", info.value_id, why, "write E % q as E - q*(E//q)", expression=found)
    try:
        normal = str(dims.parse(found))
    except dims.DimError as error:
        why = f"{show(found)}: {error}"
        raise _fail(
            "MalformedDocument", info.value_id, why, "use + - * and // by a positive integer"
        ) from None
    if normal != found:
        why = f"{show(found)} is not in normal form"
        raise _fail("MalformedDocument", info.value_id, why, f"write {normal}", expression=found)


def _inside(entry: str, size: Dim, sizes: Sizes, domain: Constraints, symbols: tuple[str, ...]) -> bool:
    """Whether 0 <= entry < size everywhere. Intervals decide what they can, isl the rest. Of symbolic sizes only what
    is wrong for all of them is: binding checks again."""
    index = whole_affine(entry)
    assert index is not None, "its value is affine"
    shifted, values = dict(sizes), {}
    for name, (low, high) in ranges(domain, tuple(sizes)).items():
        start = whole_affine(low)
        if start is not None:
            shifted[name], values[name] = dims.sub(high, low), start + affine(0, [(1, name)])
    short = simplify(put(index, values), shifted)
    if shifted.get(text(short)) == size:
        return True
    least, most = interval(short, shifted)
    if least is not None and least >= 0 and most is not None and isinstance(size, int) and most < size:
        return True
    concerned = [size, *(shifted.get(name, name) for name in short.axes())]
    if any(isinstance(each, str) for each in concerned):
        return not _always_outside(short, size, shifted)
    return _inside_by_isl(index, size, sizes, domain, symbols)


def _always_outside(index: Affine, size: Dim, sizes: Sizes) -> bool:
    """Whether, for all values of the symbols, ``index`` is outside at the corner where it is least or greatest."""
    end = whole_affine(size)
    ends = {name: whole_affine(dims.sub(each, 1)) for name, each in sizes.items()}
    signs = {atom: coef for coef, atom in index.terms if isinstance(atom, str)}
    if end is None:
        return False
    for up in (1, -1):
        corner = {
            name: last if signs.get(name, up) * up > 0 else lit(0)
            for name, last in ends.items()
            if last is not None
        }
        if set(ends) - set(corner):
            return False
        value = put(index, corner)
        low, high = interval(value - end, {})[0], interval(value, {})[1]
        if (low is not None and low >= 0) or (high is not None and high < 0):
            return True
    return False


def _inside_by_isl(
    index: Affine, size: Dim, sizes: Sizes, domain: Constraints, symbols: tuple[str, ...]
) -> bool:
    """What is too much for isl is let pass; it was proven when the program was verified."""
    from .sets import NonAffine, TooComplex, Workspace

    names = sizes if domain else {name: sizes[name] for name in sizes if name in index.axes()}
    try:
        points = Workspace(symbols).box(names)
        points = points.intersect(_constrained(points, domain))
        return points.where(index, None, 0).union(points.where(index, size)).is_empty()
    except (NonAffine, TooComplex):
        return True


def _constrained(space: IntSet, constraints: Constraints) -> IntSet:
    """All points that fulfil ``constraints``."""
    return space.workspace.points(space.names, map(sides, itertools.chain.from_iterable(constraints)))


def _uncovered(
    shape: tuple[Dim, ...], pieces: tuple[Constraints, ...], symbols: tuple[str, ...]
) -> str | None:
    """What is wrong with the pieces of a domain; None where each point of the box is in exactly one."""
    from .sets import NonAffine, TooComplex, Workspace

    try:
        whole = Workspace(symbols).box({f"i{number}": size for number, size in enumerate(shape)})
        seen = whole.workspace.empty(whole.names)
        for constraints in pieces:
            part = _constrained(whole, constraints)
            if not seen.intersect(part).is_empty():
                return "two of its pieces hold one point"
            seen = seen.union(part)
        if not whole.contains(seen):
            return "a piece leaves the box of its axes"
        return None if seen.contains(whole) else "its pieces do not hold every point"
    except (NonAffine, TooComplex):
        return None
    except dims.DimError as error:
        return f"a constraint of its domain: {error}"
