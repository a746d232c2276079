"""The contractions of a program as the e-graph has them and as Poly-View has them, in one form that compares."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from tinyc.egraph.graph import Argument, ENode, Graph
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import Budget, saturate
from tinyc.index.derive import index_book
from tinyc.index.patterns import contractions
from tinyc.index.walk import Point, Walk
from tinyc.ir.index import axis
from tinyc.ir.tiny import Node, Program

KEPT = frozenset({"prop", "chains", "index", "movement", "guard", "fuse", "contraction"})
"""The rulesets that say what the program is, and nothing of what it might be rewritten to."""


@dataclass(frozen=True)
class Roles:
    """Axes of more than one point, as i0… and r0… of the REDUCE."""

    batch: frozenset[str]
    m: frozenset[str]
    n: frozenset[str]
    k: frozenset[str]


def of_poly_view(program: Program) -> dict[str, Roles]:
    found = contractions(Walk(program, index_book(program)))
    return {
        id: Roles(frozenset(each.batch), frozenset(each.m), frozenset(each.n), frozenset(each.k))
        for id, each in found.items()
    }


@dataclass(frozen=True)
class Agreement:
    """``both``: REDUCEs that are contractions on both sides, with the same roles. ``differ``: the others, and what each
    side says of them. ``shorter``: those that are none, since the book's index of an operand lacks a summed axis; the
    e-graph's, ``(2*i0+r0)//4`` where ``i0//2`` is meant, still has it."""

    both: frozenset[str]
    differ: dict[str, tuple[Roles | None, Roles | None]]
    shorter: frozenset[str]


def agreement(program: Program) -> Agreement | None:
    """None where the e-graph did not saturate."""
    facts = of_egraph(program)
    if facts is None:
        return None
    theirs, same = facts
    ours = {id: roles for id, roles in of_poly_view(program).items() if id not in same}
    walk = Walk(program, index_book(program))
    shorter = {id for id, roles in theirs.items() if id not in ours and _lacks_an_axis(walk, id, roles)}
    ids = {id for id in {*ours, *theirs} - shorter if ours.get(id) != theirs.get(id)}
    return Agreement(
        frozenset(ours) - ids,
        {id: (ours.get(id), theirs.get(id)) for id in sorted(ids)},
        frozenset(shorter),
    )


def _lacks_an_axis(walk: Walk, id: str, roles: Roles) -> bool:
    """Whether some summed axis does not occur in the index at which an operand of the product is read."""
    sizes = walk.sizes(id)
    here = Point(id, tuple(axis(each.name) for each in walk.info(id).axes))
    product = walk.follow(here, 0, sizes)
    product = product and walk.same(product, sizes)
    if product is None or walk.node(product.id).uop != "MUL":
        return False
    operands = (walk.operand(product, position, sizes) for position in (0, 1))
    inner = (None if point is None else walk.same(point, sizes) for point in operands)
    return any(point is not None and not roles.k <= point.axes() for point in inner)


def of_egraph(program: Program) -> tuple[dict[str, Roles], frozenset[str]] | None:
    """Per REDUCE, its roles; and the REDUCEs that are another one's term, and have no name of their own. None where the
    e-graph did not saturate."""
    base = load_rules()
    without = [ruleset.name for ruleset in base.rulesets if ruleset.name not in KEPT]
    found = saturate(program, base, without=without, budget=Budget(seconds=120))
    if found.graph is None or not found.complete:
        return None
    numbers = {number: name for name, number in found.graph.names.items()}
    named: dict[int, set[str]] = {}
    for name, number in found.graph.names.items():
        named.setdefault(number, set()).add(name)
    rows: dict[Argument, set[Roles]] = {}
    result: dict[str, Roles] = {}
    same: set[str] = set()
    for number, node in enumerate(program.nodes):
        if node.uop != "REDUCE":
            continue
        if number not in numbers:
            same.add(node.id)
            continue
        for name in filter(functools.partial(_own, found.graph), named[number]):
            for inner in _reductions(found.graph, name, node):
                for row in found.graph.contracts:
                    if row[0] == inner and (roles := _roles(found.graph, program, node, row)):
                        rows.setdefault(name, set()).add(roles)
                        result[node.id] = roles
            assert len(rows.get(name, ())) <= 1, (node.id, rows[name])
    return result, frozenset(same)


def _own(graph: Graph, name: str) -> bool:
    """Whether a class is the value at the axes of its own buffer: it is read from the buffer that it fills."""
    buffers = {str(node.args[0]) for node in graph.classes[name] if node.op == "Read"}
    return any(
        node.op == "Fill" and node.args[2] == name for buffer in buffers for node in graph.classes[buffer]
    )


def _reductions(graph: Graph, name: str, node: Node) -> set[str]:
    """The class of a REDUCE, and those of the reduction inside: a cast to a narrower dtype and an init are outside."""
    found = {name}
    for _ in range(2):
        for each in list(found):
            for enode in graph.classes.get(each, ()):
                if enode.op == "Cast":
                    found.add(str(enode.args[1]))
                if enode.op == "Binary" and enode.args[0] == "'ADD" and node.arg["init"] is not None:
                    found.add(str(enode.args[2]))
    return found


def _roles(graph: Graph, program: Program, node: Node, row: tuple[Argument, ...]) -> Roles | None:
    """None for a row over other axes than those of the value's own buffer."""
    kept = [size for size in program.types[node.id].shape if size != 1]
    names = [f"i{number}" for number, size in enumerate(program.types[node.id].shape) if size != 1]
    operand = program.types[node.operands()[0]].shape
    reduced = [f"r{number}" for number, axis in enumerate(node.arg["axes"]) if operand[axis] != 1]
    known = {number: name for number, name in enumerate(names)}
    known |= {16 + number: name for number, name in enumerate(reduced)}
    assert len(kept) == len(names)

    def axes(cls: Argument) -> frozenset[str] | None:
        (vector,) = graph.classes[str(cls)]
        ids = [_axis(graph, str(atom)) for atom in vector.args]
        return frozenset(known[id] for id in ids) if all(id in known for id in ids) else None

    batch, m, n, k = (axes(cls) for cls in row[4:8])
    if batch is None or m is None or n is None or k is None:
        return None
    return Roles(batch, m, n, k) if k == frozenset(reduced) else None


def _axis(graph: Graph, atom: str) -> int:
    nodes: Mapping[str, ENode] = {node.op: node for node in graph.classes[atom]}
    return int(nodes["Ax"].args[0])
