"""Poly-View (document 004 §5): the program as blocks of points with affine accesses, and the dependences between them.

A block is a base value of the IndexBook: elementwise work, a reduction, a PAD. Movement is in the accesses. A sum of
products is one block, a contraction_pattern, which takes in its product and the casts and zero-filled selects in
front of it. What is not affine is left out: it is a boundary, at which a Region must end (a note, E1301).

Domains and maps are texts in isl's notation, over the axes of the book (``i0…`` of the value, then ``r0…``) and the
program's symbols. ``aliases`` says which name a spelling stands for where isl could not read the name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tinyc.ir.diagnostics import Diagnostic, TinycError, show_shape
from tinyc.ir.index import axis
from tinyc.ir.jsonc import finite
from tinyc.ir.tiny import MOVEMENT, Program

from .attention import Attention, attentions
from .book import IndexBook
from .patterns import Contraction, Load, contractions
from .polytext import Draft, Reading, Texts
from .ranges import whole_affine
from .sets import MAX_OPERATIONS, NonAffine, TooComplex
from .spelling import aliases, spellings
from .walk import Point, Walk

BlockKind = Literal["ewise", "reduce", "movement_affine", "contraction_pattern"]
EdgeKind = Literal["true", "anti", "output"]

LAYER = "poly_view"


@dataclass(frozen=True, slots=True)
class BlockAccess:
    """``map``: from points of the block to elements of ``tensor``; a partial function where a select puts a constant."""

    tensor: str
    map: str


@dataclass(frozen=True)
class Block:
    """``domain``: a set; ``pieces``: its parts, where it is in parts. ``accesses``: the reads in order, then the write.

    ``attrs`` of a contraction_pattern: pattern, lhs, rhs, lhs_idx, rhs_idx, out_idx, reduce_idx, roles, affine_offsets,
    absorbs. Of the blocks of a softmax or an attention: role. Of all others: op.
    """

    name: str
    kind: BlockKind
    domain: str
    accesses: tuple[BlockAccess, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """``target`` touches elements of ``tensor`` that ``source`` touched before. ``relation``: from points of ``source`` to
    points of ``target``, whose axes are primed. An edge from a block to itself is its accumulator's."""

    source: str
    target: str
    kind: EdgeKind
    tensor: str
    relation: str


@dataclass(frozen=True)
class PolyView:
    """``boundaries``: what is not affine, one note per value, at which a Region must end."""

    blocks: tuple[Block, ...]
    edges: tuple[Edge, ...] = ()
    boundaries: tuple[Diagnostic, ...] = ()
    attention: tuple[Attention, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)

    def block(self, name: str) -> Block:
        """Raises KeyError."""
        found = {block.name: block for block in self.blocks}
        return found[name]

    def boundary_values(self) -> frozenset[str]:
        return frozenset(note.at["value"] for note in self.boundaries)


def poly_view(program: Program, book: IndexBook, max_operations: int = MAX_OPERATIONS) -> PolyView:
    """The view of ``program``, whose index book is ``book``. Sizes are integers or symbols. A block of which one text takes
    isl more than ``max_operations`` is a boundary; an edge that does is given between all points of its blocks.

    Raises TinycError MissingDivGuard for an access that still holds a ``%``, AxisAlignmentMismatch for another program's
    book.
    """
    _check_book(program, book)
    walk = Walk(program, book)
    found = contractions(walk)
    groups = attentions(walk, found)
    wanted, boundaries = _wanted(walk, found)
    spelled = spellings((*program.symbols, *(node.id for node in program.nodes)))
    texts = Texts(program.symbols, spelled, max_operations)
    roles = _roles(groups)
    drafts: dict[str, Draft] = {}
    blocks: list[Block] = []
    for node in program.nodes:
        if node.id not in wanted or node.uop == "INPUT":
            continue
        if node.id in boundaries:
            continue
        draft = _draft(walk, node.id, found.get(node.id), roles.get(node.id))
        try:
            blocks.append(_block(texts, draft))
        except (TooComplex, NonAffine) as error:
            boundaries[node.id] = str(error)
        else:
            drafts[node.id] = draft
    edges = tuple(
        Edge(source, target, kind, tensor, relation)
        for source, target, kind, tensor, relation in texts.edges(drafts)
    )
    notes = tuple(_note(walk, id, boundaries[id]) for id in book.values if id in boundaries)
    used = {*program.symbols, *drafts, *(read.tensor for draft in drafts.values() for read in draft.reads)}
    renamed = aliases({name: text for name, text in spelled.items() if name in used})
    return PolyView(tuple(blocks), edges, notes, groups, renamed)


def attention(view: PolyView) -> tuple[Attention, ...]:
    """Every row softmax of the view, with the contractions before and after it (document 004 §15.3)."""
    return view.attention


def _check_book(program: Program, book: IndexBook) -> None:
    known = {node.id for node in program.nodes}
    wanted = [id for id in known if id not in book.values]
    wanted += [access.value_id for info in book.values.values() for access in info.inputs]
    strange = sorted({id for id in wanted if id not in book.values or id not in known})
    if strange:
        raise TinycError(
            "AxisAlignmentMismatch",
            f"the IndexBook is not that of the program: {', '.join(strange[:5])}",
            "derive the book from this program",
            at={"layer": LAYER, "value": strange[0]},
        )
    for info in book.values.values():
        for access in info.inputs:
            if any("%" in text for text in access.map):
                raise TinycError(
                    "MissingDivGuard",
                    f"the access of {info.value_id} to {access.value_id} holds a %: {', '.join(access.map)}",
                    "write E % q as E - q*(E//q), as the IndexBook does",
                    at={"layer": LAYER, "value": info.value_id},
                )


def _wanted(walk: Walk, found: Mapping[str, Contraction]) -> tuple[set[str], dict[str, str]]:
    """The values that have a block or are a boundary, and of the latter why."""
    program = walk.program
    read = {source for node in program.nodes for source in node.operands()}
    roots = {port.node for port in program.outputs} | {
        node.id for node in program.nodes if node.id not in read
    }
    roots |= {node.id for node in program.nodes if node.uop == "PAD"}
    wanted: set[str] = set()
    boundaries: dict[str, str] = {}
    stack = sorted(roots)
    while stack:
        id = stack.pop()
        if id in wanted:
            continue
        wanted.add(id)
        node = walk.node(id)
        if node.uop == "INPUT":
            continue
        if reason := _not_affine(walk, id):
            boundaries[id] = reason
            stack += [access.value_id for access in walk.info(id).inputs]
        else:
            stack += [read.tensor for read in _reads(walk, id, found.get(id))]
    return wanted, boundaries


def _not_affine(walk: Walk, id: str) -> str:
    """Why a value has no affine accesses or sizes; empty where it has."""
    if walk.affine(id):
        return ""
    for each in (*walk.info(id).axes, *walk.info(id).reduced):
        if whole_affine(each.size) is None:
            return f"the size {each.size} of its axis {each.name} multiplies symbols"
    for access in walk.info(id).inputs:
        if any(whole_affine(text) is None for text in access.map):
            return f"its access to {access.value_id} is [{', '.join(access.map)}]"
    shapes = {name: show_shape(walk.program.types[name].shape) for name in (id, *walk.node(id).operands())}
    before = " and ".join(f"{name} {shapes[name]}" for name in walk.node(id).operands()) or "nothing"
    return f"from {before} to {shapes[id]} there is no affine map that holds for all sizes"


def _note(walk: Walk, id: str, reason: str) -> Diagnostic:
    return Diagnostic(
        "NonSCoP",
        f"{id} is no part of the polyhedral view: {reason}; a Region ends there",
        "bind the symbols with shapes, or write it with affine indices and floor divisions by integers",
        {"layer": LAYER, "op": walk.node(id).uop, "value": id},
    )


# ---- blocks ----


def _reads(walk: Walk, id: str, contraction: Contraction | None) -> tuple[Reading, ...]:
    if contraction is not None:
        return tuple(_loaded(load) for load in (contraction.lhs, contraction.rhs))
    rank = len(walk.info(id).axes)
    here = Point(id, tuple(axis(f"i{number}") for number in range(rank)))
    guards = walk.guards(here) if walk.node(id).uop == "PAD" else ()
    return tuple(Reading(link.id, link.index, guards) for link in walk.links(id) if link is not None)


def _loaded(load: Load) -> Reading:
    return Reading(load.tensor, load.index, load.guards)


def _draft(walk: Walk, id: str, contraction: Contraction | None, role: str | None) -> Draft:
    info, node = walk.info(id), walk.node(id)
    attrs: dict[str, Any] = {"op": node.uop}
    kind: BlockKind = "ewise"
    if contraction is not None:
        kind, attrs = "contraction_pattern", _pattern_attrs(walk, contraction)
    elif node.uop == "REDUCE":
        kind = "reduce"
        attrs = {"op": node.arg["op"], "reduce_idx": [each.name for each in info.reduced]}
    elif node.uop in MOVEMENT or node.uop == "VALID":
        kind = "movement_affine"
        if node.uop == "PAD":
            attrs["value"] = finite(node.arg["value"])
    elif node.uop == "CAST":
        attrs["to"] = node.arg["to"].value
    if role is not None:
        attrs["role"] = role
    pieces = tuple(piece.constraints for piece in info.pieces) if len(info.pieces) > 1 else ()
    axes = tuple((each.name, each.size) for each in (*info.axes, *info.reduced))
    write = tuple(each.name for each in info.axes)
    return Draft(id, kind, axes, _reads(walk, id, contraction), write, pieces, attrs)


def _pattern_attrs(walk: Walk, contraction: Contraction) -> dict[str, Any]:
    lhs, rhs = contraction.lhs, contraction.rhs
    absorbed = {contraction.product, *lhs.absorbed, *rhs.absorbed}
    return {
        "pattern": contraction.pattern,
        "lhs": lhs.tensor,
        "rhs": rhs.tensor,
        "lhs_idx": list(contraction.names(lhs)),
        "rhs_idx": list(contraction.names(rhs)),
        "out_idx": list(contraction.out),
        "reduce_idx": list(contraction.reduce),
        "roles": {
            "batch": list(contraction.batch),
            "m": list(contraction.m),
            "n": list(contraction.n),
            "k": list(contraction.k),
        },
        "affine_offsets": contraction.affine_offsets(),
        "absorbs": [id for id in walk.book.values if id in absorbed],
    }


def _roles(groups: tuple[Attention, ...]) -> dict[str, str]:
    """A block that is in two groups has the role of the first."""
    roles: dict[str, str] = {}
    for group in groups:
        for role, names in _named(group):
            for name in names:
                roles.setdefault(name, role)
    return roles


def _named(group: Attention) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "qk_matmul", group.qk_matmul
    yield "row_softmax", group.row_softmax
    yield "pv_matmul", group.pv_matmul


def _block(texts: Texts, draft: Draft) -> Block:
    domain, pieces = texts.domain(draft)
    accesses = (BlockAccess(read.tensor, texts.read(draft, read)) for read in draft.reads)
    written = BlockAccess(draft.name, texts.write(draft))
    return Block(draft.name, draft.kind, domain, (*accesses, written), draft.attrs, pieces)  # type: ignore[arg-type]
