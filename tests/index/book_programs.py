"""Documents that the tests of the IndexBook use, and the values of a program's nodes gathered through its book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyc.index.align import align_params
from tinyc.index.book import NON_SCOP, Access, IndexBook, IndexInfo, Piece
from tinyc.index.derive import index_book
from tinyc.index.domain import sides
from tinyc.index.invariants import check_book
from tinyc.ir import Port, Program, dims, evaluate, parse_json, program_from_document
from tinyc.ir.dims import to_affine
from tinyc.ir.infer import evaluate_index
from tinyc.ir.tiny import MOVEMENT, Node

Array = NDArray[Any]


def leaf(id: str, *shape: int | str, dtype: str = "fp32") -> dict[str, Any]:
    return {"id": id, "uop": "INPUT", "arg": {"tensor_id": id, "dtype": dtype, "shape": list(shape)}}


def op(id: str, uop: str, /, *src: Any, **arg: Any) -> dict[str, Any]:
    return {"id": id, "uop": uop, "src": list(src), "arg": arg}


def program_of(*uops: Mapping[str, Any], **more: Any) -> Program:
    return program_from_document({"uops": list(uops), **more})


def checked_book(program: Program) -> IndexBook:
    """The book, after every check that a compile runs."""
    book = align_params(index_book(program), program)
    check_book(book, program)
    return book


def book_of(*uops: Mapping[str, Any], **more: Any) -> IndexBook:
    return checked_book(program_of(*uops, **more))


def reads(book: IndexBook, id: str) -> list[tuple[str, ...]]:
    """Per input: its name, then its map."""
    return [(access.value_id, *access.map) for access in book.values[id].inputs]


def kinds(book: IndexBook, id: str) -> str:
    """The first letters of the kinds of the axes."""
    return "".join(axis.kind[0] for axis in book.values[id].axes)


#: document 002 §5.1 in fp32 and with names, so that no CAST stands between; T is [M, N, K] (I-24)
GEMM = program_from_document(
    parse_json(
        """{"uops": [
    {"id":"A","uop":"INPUT","arg":{"tensor_id":"A","dtype":"fp32","shape":["M","K"]}},
    {"id":"B","uop":"INPUT","arg":{"tensor_id":"B","dtype":"fp32","shape":["K","N"]}},
    {"id":"A1","uop":"RESHAPE","src":["A"],"arg":{"result_shape":["M",1,"K"]}},
    {"id":"Bt","uop":"PERMUTE","src":["B"],"arg":{"perm":[1,0]}},
    {"id":"B1","uop":"RESHAPE","src":["Bt"],"arg":{"result_shape":[1,"N","K"]}},
    {"id":"A2","uop":"EXPAND","src":["A1"],"arg":{"result_shape":["M","N","K"]}},
    {"id":"B2","uop":"EXPAND","src":["B1"],"arg":{"result_shape":["M","N","K"]}},
    {"id":"T","uop":"MUL","src":["A2","B2"]},
    {"id":"C0","uop":"REDUCE","src":["T"],"arg":{"op":"SUM","axes":["K"],"dtype":"fp32"}},
    {"id":"C","uop":"RELU","src":["C0"]}
]}"""
    )
)


def conv_s2_p1() -> Program:
    """The input side of a 3×3 convolution, stride 2, pad 1 (document 004 §4.5)."""
    result = ["N", "C", "(H-1)//2+1", "(W-1)//2+1", 3, 3]
    index = {"map": ["i0", "i1", "2*i2+i4", "2*i3+i5"]}
    return program_of(
        leaf("X", "N", "C", "H", "W"),
        op("Xp", "PAD", "X", pad=[[0, 0], [0, 0], [1, 1], [1, 1]], value=0),
        op("Xv", "VIEW", "Xp", result_shape=result, index_map=index),
        op("Y", "RELU", "Xv"),
    )


def masked_scores(*mask: int | str) -> Program:
    """S [B, H, M, N] plus a mask of ``mask``'s shape (document 004 §4.5; I-29)."""
    shape = ["B", "H", "M", "N"]
    return program_of(
        leaf("S", *shape),
        leaf("mask", *mask),
        op("spread", "EXPAND", "mask", result_shape=shape),
        op("S_masked", "ADD", "S", "spread"),
    )


# --- values --------------------------------------------------------------------------------------------------


def bound_book(book: IndexBook, sizes: Mapping[str, int]) -> IndexBook:
    """The book of a symbolic program with numbers for its symbols."""

    def number(text: int | str) -> int | str:
        return dims.substitute(text, sizes)

    def accesses(found: tuple[Access, ...]) -> tuple[Access, ...]:
        return tuple(Access(each.value_id, tuple(str(number(e)) for e in each.map)) for each in found)

    def constraint(text: str) -> str:
        left, right, strict = sides(text)
        return f"{number(left)}{'<' if strict else '<='}{number(right)}"

    def info(found: IndexInfo) -> IndexInfo:
        pieces = tuple(
            Piece(
                tuple(tuple(map(constraint, each)) for each in piece.constraints),
                accesses(piece.inputs),
                piece.value,
            )
            for piece in found.pieces
        )
        axes, reduced = (
            tuple(replace(axis, size=number(axis.size)) for axis in each)
            for each in (found.axes, found.reduced)
        )
        return replace(found, axes=axes, reduced=reduced, pieces=pieces, inputs=accesses(found.inputs))

    return IndexBook({id: info(found) for id, found in book.values.items()})


def check_values(program: Program, inputs: Mapping[str, Array], book: IndexBook | None = None) -> int:
    """Every node equals what its entry gathers, at every point of its domain; gives the number of points.

    An entry without a map, which says that there is none that is affine, is passed over."""
    book = checked_book(program) if book is None else book
    names = [node.id for node in program.nodes]
    outputs = tuple(Port(name, name) for name in names)
    values = dict(zip(names, evaluate(replace(program, outputs=outputs), inputs), strict=True))
    for node in program.nodes:
        _check_value(node, book.values[node.id], values)
    return sum(values[name].size for name in names)


def _check_value(node: Node, info: IndexInfo, values: Mapping[str, Array]) -> None:
    value = values[node.id]
    sizes = {axis.name: int(axis.size) for axis in (*info.axes, *info.reduced)}
    points = np.meshgrid(*(np.arange(size) for size in sizes.values()), indexing="ij")
    grids = dict(zip(sizes, points, strict=True))
    whole = tuple(sizes.values())
    assert value.shape == tuple(axis.size for axis in info.axes), node
    masks = [_mask(piece, grids, whole) for piece in info.pieces]
    assert (np.sum(masks, axis=0) == 1).all(), (node, info.pieces)
    for axis, drawn in enumerate(info.axes):
        if drawn.kind == "broadcast":
            first = np.take(value, [0], axis)
            assert same(np.broadcast_to(first, value.shape), value), (node, drawn)
    if node.uop in ("PAD", "VALID"):
        for piece, mask in zip(info.pieces, masks, strict=True):
            if piece.value is not None:
                assert same(value[mask], np.full_like(value[mask], piece.value)), (node, piece)
            for access in piece.inputs:
                assert same(value[mask], gather(access, grids, values, mask)), (node, access)
        return
    wanted = [value] if node.uop in MOVEMENT else [values[source] for source in node.operands()]
    if node.uop == "REDUCE":
        gone = node.arg["axes"]
        wanted = [np.moveaxis(wanted[0], gone, range(-len(gone), 0))]
    for access, want in zip(info.inputs, wanted, strict=True):
        if NON_SCOP in info.flags and not access.map:
            continue
        everywhere = np.ones(whole, bool)
        assert same(want.reshape(-1), gather(access, grids, values, everywhere)), (node, access)


def _mask(piece: Piece, grids: Mapping[str, Array], whole: tuple[int, ...]) -> Array:
    found = np.ones(whole, bool)
    for conjunction in piece.constraints:
        for constraint in conjunction:
            left, right, strict = sides(constraint)
            low, high = (evaluate_index(to_affine(text), dict(grids)) for text in (left, right))
            found = found & ((low < high) if strict else (low <= high))
    return found


def gather(access: Access, grids: Mapping[str, Array], values: Mapping[str, Array], mask: Array) -> Array:
    """The elements that ``access`` reads at the points of ``mask``, flat."""
    source = values[access.value_id]
    index = []
    for text, size in zip(access.map, source.shape, strict=True):
        entry = np.broadcast_to(evaluate_index(to_affine(text), dict(grids)), mask.shape)[mask]
        assert ((entry >= 0) & (entry < size)).all(), (access, text)
        index.append(entry)
    if not index:
        return np.full(int(mask.sum()), source)
    return np.asarray(source[tuple(index)])


def same(left: Array, right: Array) -> bool:
    """Bit by bit."""
    return left.shape == right.shape and left.dtype == right.dtype and left.tobytes() == right.tobytes()
