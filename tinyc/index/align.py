"""The signature's sizes are the only truth (document 004 §4.2): a book is held against its program.

Every axis has the size that the program gives it, and every symbol in a map or a domain is one of the program's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tinyc.ir import dims
from tinyc.ir.diagnostics import TinycError, show, show_shape
from tinyc.ir.tiny import Dim, Node, Program, Shape

from .book import AxisVar, IndexBook, IndexInfo

LAYER = "indexbook"


def align_params(book: IndexBook, program: Program) -> IndexBook:
    """``book`` with the program's symbols, after these checks, or TinycError AxisAlignmentMismatch (E1304), which names
    the value, the axis and both sizes: the book has the program's values and no others; a value's axes have the sizes
    of its shape, and reduce axes those of the operand's; no other symbol occurs.
    """
    for id in (*book.values, *program.types):
        if id not in book.values or id not in program.types:
            where = "the book" if id not in book.values else "the program"
            raise _mismatch(id, f"{where} has no value of this name", "derive the book from this program")
    for node in program.nodes:
        _check(book.values[node.id], node, program)
    return replace(book, symbols=program.symbols)


def _check(info: IndexInfo, node: Node, program: Program) -> None:
    _check_sizes(info, "axes", info.axes, program.types[node.id].shape)
    if node.uop == "REDUCE":
        shape = program.types[node.operands()[0]].shape
        _check_sizes(info, "reduced", info.reduced, tuple(shape[axis] for axis in node.arg["axes"]))
    elif info.reduced:
        raise _mismatch(info.value_id, f"it has reduce axes and is a {node.uop}", "only a REDUCE has them")
    known = {axis.name for axis in (*info.axes, *info.reduced)} | set(program.symbols)
    for text in texts(info):
        if not _names(text) <= known:
            odd = ", ".join(sorted(_names(text) - known))
            listed = ", ".join(program.symbols) or "none"
            why = f"{show(text)} names {odd}, neither an axis of the value nor a symbol of the program"
            raise _mismatch(info.value_id, why, f"the program's symbols are: {listed}", symbol=odd)


def _check_sizes(info: IndexInfo, what: str, axes: tuple[AxisVar, ...], shape: Shape) -> None:
    if len(axes) != len(shape):
        why = f"it has {len(axes)} {what} where the program has {len(shape)}: {show_shape(shape)}"
        raise _mismatch(info.value_id, why, "give one axis per dimension")
    for axis, size in zip(axes, shape, strict=True):
        if axis.size != size and _same(axis.size) != size:
            raise _mismatch(
                info.value_id,
                f"axis {axis.name} has the size {axis.size} in the book and {size} in the program",
                "use the symbols and sizes of the signature, or correct the movement before the value",
                axis=axis.name,
                book_size=axis.size,
                program_size=size,
            )


def _same(size: Dim) -> Dim | None:
    """In normal form; None for what is no size."""
    try:
        return dims.parse(str(size))
    except dims.DimError:
        return None


def _names(text: str) -> frozenset[str]:
    try:
        return dims.names(text)
    except dims.DimError:
        return frozenset()  # what is no expression is for the invariants to say


def texts(info: IndexInfo) -> Iterator[str]:
    """Every expression of an entry: of its maps and of both sides of its constraints."""
    for access in info.inputs:
        yield from access.map
    for piece in info.pieces:
        for access in piece.inputs:
            yield from access.map
        for conjunction in piece.constraints:
            for constraint in conjunction:
                yield from constraint.replace("<=", "<").split("<")


def _mismatch(id: str, why: str, suggestion: str, **details: Dim) -> TinycError:
    at = {"layer": LAYER, "value": id}
    return TinycError("AxisAlignmentMismatch", f"{show(id)}: {why}", suggestion, at, **details)
