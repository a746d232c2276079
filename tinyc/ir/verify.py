"""Whole programs: from nodes and ports to a verified Program, and the binding of symbols to sizes."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from . import dims
from .args import MAX_ELEMENTS, canonical_arg, is_name, plain_number
from .diagnostics import Diagnostic, TinycError, place, show
from .infer import ARITY, infer
from .tiny import UOPS, Imm, Node, Port, Program, TensorType
from .widen import widen_products

WARN_PIECES = 16
MAX_PIECES = 256

_T = TypeVar("_T")


def verify(
    nodes: Iterable[Node], inputs: Iterable[Port], outputs: Iterable[Port], max_pieces: int = MAX_PIECES
) -> Program:
    """The Program of ``nodes``: sorted topologically (stable), args canonical, every type inferred.

    ``inputs`` name all INPUT nodes, ``outputs`` at least one node. Products that are summed in a wider dtype get
    CASTs (see widen.py). Raises TinycError with one of the kinds E1001 to E1014.
    """
    ordered = topological(list(nodes), lambda node: node.id, Node.operands)
    types: dict[str, TensorType] = {}
    typed = [check_node(node, types) for node in ordered]
    ports_in, ports_out = _ports(inputs, "input"), _ports(outputs, "output")
    _check_ports(typed, ports_in, ports_out)
    widened = widen_products(typed, [port.node for port in ports_out], types)
    if len(widened) != len(typed):
        types = {}
        widened = tuple(check_node(node, types) for node in widened)
    program = Program(widened, ports_in, ports_out, types, _symbols(widened))
    _check_pieces(program, max_pieces)
    return program


def check_node(node: Node, types: dict[str, TensorType]) -> Node:
    """``node`` with its arg canonical; its type is added to ``types``, which holds those of its operands."""
    if node.uop not in UOPS:
        suggestion = f"use one of {', '.join(UOPS)}"
        raise TinycError("UnknownUop", f"{show(node.uop)} is no uop", suggestion, place(node.id))
    where = place(node.id, node.uop)
    if not isinstance(node.id, str) or not is_name(node.id):
        why = f"the id {show(node.id)} is no short printable text"
        raise TinycError("MalformedDocument", why, "rename the node", where)
    if len(node.src) != ARITY[node.uop]:
        why = f"{node.uop} {show(node.id)} has {len(node.src)} sources and needs {ARITY[node.uop]}"
        raise TinycError("InvalidArgument", why, "give one source per operand", where)
    if ARITY[node.uop] == 1 and not node.operands():
        why = f"{node.uop} {show(node.id)} is given the immediate {show(node.src[0])}"
        raise TinycError("DTypeMismatch", why, "its operand must be a node", where)
    for source in node.src:
        if not isinstance(source, str) and plain_number(source) is None:
            why = f"{node.uop} {show(node.id)} has the source {show(source)}"
            raise TinycError("MalformedDocument", why, "use ids and numbers", where)
    operands = [types[source] for source in node.operands()]
    try:
        arg = canonical_arg(node.id, node.uop, node.arg, operands)
        node = Node(node.id, node.uop, tuple(map(_source, node.src)), arg, node.tag)
        types[node.id] = infer(node, operands)
    except dims.DimError as error:
        why = f"{node.uop} {show(node.id)}: {error}"
        raise TinycError("InvalidShape", why, "use simpler shapes", where) from None
    return node


def _source(source: object) -> str | Imm:
    number = None if isinstance(source, str) else plain_number(source)
    return str(source) if number is None else number


def bound_size(name: str, value: object, layer: str = "tiny") -> int:
    """The size that symbol ``name`` is bound to. Raises TinycError InvalidShape for what is no integer from 1 to 2^63-1."""
    try:
        size = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        size = 0
    if not 1 <= size <= MAX_ELEMENTS:
        why = f"{name} is bound to {show(value)}"
        raise TinycError("InvalidShape", why, "bind an integer >= 1", {"layer": layer, "value": name})
    return size


def bind(program: Program, bindings: Mapping[str, int]) -> Program:
    """``program`` with sizes for (some of) its symbols, verified again.

    Raises TinycError UnknownReference for a name that the program does not have, InvalidShape for a value that
    is no integer from 1 to 2^63-1, and what :func:`verify` raises.
    """
    values: dict[str, int] = {}
    for name, value in bindings.items():
        if name not in program.symbols:
            listed = ", ".join(program.symbols) or "none"
            why = f"the program has no symbol {show(name)}"
            raise TinycError("UnknownReference", why, f"its free symbols are: {listed}", {"layer": "tiny"})
        values[name] = bound_size(name, value)
    if not values:
        return program

    def bound(node: Node) -> Node:
        try:
            arg = map_dims(node.arg, lambda dim: dims.substitute(dim, values))
        except dims.DimError as error:
            why = f"{node.uop} {show(node.id)}: {error}"
            raise TinycError("InvalidShape", why, "use simpler shapes", place(node.id, node.uop)) from None
        return Node(node.id, node.uop, node.src, arg, node.tag)

    return replace(
        verify(map(bound, program.nodes), program.inputs, program.outputs), frontend=program.frontend
    )


def solve_symbols(program: Program, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The sizes of the symbols, from the shapes of inputs (by port name; inputs may be missing).

    A symbol that stands alone in a dimension is bound there, then expressions linear in one symbol that is left.
    Contradictions are not looked for here: the bound program's inputs have shapes to compare with.
    """
    pairs: list[tuple[dims.Dim, int]] = []
    for port in program.inputs:
        if port.name in shapes:
            pairs += zip(program.types[port.node].shape, shapes[port.name], strict=False)
    found: dict[str, int] = {}
    for dim, size in pairs:
        if isinstance(dim, str) and dim in program.symbols:
            found.setdefault(dim, size)
    for dim, size in pairs:
        rest = dims.substitute(dim, found) if isinstance(dim, str) else dim
        unknown = sorted(dims.names(rest))
        if len(unknown) != 1:
            continue
        at = [dims.substitute(rest, {unknown[0]: value}) for value in (0, 1, 2)]
        if not all(isinstance(value, int) for value in at):
            continue
        first, second, third = (int(value) for value in at)
        slope = second - first
        if slope and third - second == slope and (size - first) % slope == 0:
            found[unknown[0]] = (size - first) // slope
    return {name: size for name, size in found.items() if size >= 1}


def pieces(program: Program) -> dict[str, int]:
    """Per node, into how many boxes with one access map each the movement before it cuts its index space.

    Each side that a PAD fills adds a box; the count starts again at every value that is computed. SHRINK, VIEW
    and the others keep the count of their operand.
    """
    counts: dict[str, int] = {}
    for node in program.nodes:
        count = 1
        if node.uop in ("RESHAPE", "PERMUTE", "EXPAND", "SHRINK", "FLIP", "VIEW", "PAD"):
            count = counts[node.operands()[0]]
        if node.uop == "PAD":
            count += sum(side != 0 for sides in node.arg["pad"] for side in sides)
        counts[node.id] = count
    return counts


def warnings(program: Program, limit: int = WARN_PIECES) -> tuple[Diagnostic, ...]:
    """W2101 for every node at which a chain of PADs first reaches more than ``limit`` pieces."""
    counts = pieces(program)
    found = []
    for node in program.nodes:
        before = max((counts[source] for source in node.operands()), default=0)
        if node.uop == "PAD" and counts[node.id] > limit >= before:
            why = f"PAD {show(node.id)} is cut into {counts[node.id]} pieces (more than {limit})"
            suggestion = "merge the PADs before it into one"
            details = {"pieces": counts[node.id]}
            at = place(node.id, node.uop)
            found.append(Diagnostic("ExcessivePiecewise", why, suggestion, at, details, "warning"))
    return tuple(found)


def map_dims(arg: Mapping[str, Any], change: Callable[[dims.Dim], dims.Dim]) -> dict[str, Any]:
    """A canonical arg with every size and index expression changed."""
    result = dict(arg)
    for key in ("shape", "result_shape", "lo", "hi"):
        if key in arg:
            result[key] = tuple(change(dim) for dim in arg[key])
    if "pad" in arg:
        result["pad"] = tuple((change(lo), change(hi)) for lo, hi in arg["pad"])
    if "index_map" in arg:
        result["index_map"] = tuple(str(change(entry)) for entry in arg["index_map"])
    return result


def topological(
    items: Sequence[_T], id_of: Callable[[_T], str], sources_of: Callable[[_T], Iterable[str]]
) -> list[_T]:
    """``items`` so that each comes after its sources; items already in such an order stay as they are.

    Raises TinycError DuplicateId, UnknownReference, CyclicGraph.
    """
    position: dict[str, int] = {}
    for at, item in enumerate(items):
        if id_of(item) in position:
            why = f"two nodes have the id {show(id_of(item))}"
            raise TinycError("DuplicateId", why, "rename one of them", place(id_of(item)))
        position[id_of(item)] = at
    waiting = [0] * len(items)
    users: list[list[int]] = [[] for _ in items]
    for at, item in enumerate(items):
        for source in sources_of(item):
            if source not in position:
                why = f"{show(id_of(item))} refers to {show(source)}, which is no node of the document"
                suggestion = "define it, or declare the tensor with an INPUT node"
                raise TinycError("UnknownReference", why, suggestion, place(id_of(item)))
            users[position[source]].append(at)
            waiting[at] += 1
    ready = [at for at, count in enumerate(waiting) if count == 0]
    ordered: list[_T] = []
    while ready:
        at = heapq.heappop(ready)
        ordered.append(items[at])
        for user in users[at]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(ordered) != len(items):
        raise _cycle(items, waiting, id_of, sources_of)
    return ordered


def _cycle(
    items: Sequence[_T],
    waiting: Sequence[int],
    id_of: Callable[[_T], str],
    sources_of: Callable[[_T], Iterable[str]],
) -> TinycError:
    """Walks up from a node that waits, through nodes that wait, until one comes again."""
    blocked = {id_of(item): item for item, count in zip(items, waiting, strict=True) if count}
    path: dict[str, None] = {}
    at = next(iter(blocked))
    while at not in path:
        path[at] = None
        at = next(source for source in sources_of(blocked[at]) if source in blocked)
    ring = list(path)[list(path).index(at) :]
    shown = " -> ".join(show(id) for id in [*ring[:6], *(["…"] if len(ring) > 6 else []), at])
    return TinycError(
        "CyclicGraph",
        f"nodes depend on themselves: {shown}",
        "make one of them read something else",
        place(at),
    )


def _ports(ports: Iterable[Port], what: str) -> tuple[Port, ...]:
    listed = tuple(ports)
    names: set[str] = set()
    for port in listed:
        if not isinstance(port.name, str) or not is_name(port.name):
            why = f"an {what} has the name {show(port.name)}"
            raise TinycError("MalformedDocument", why, "use a short printable text", place(port.node))
        if port.name in names:
            why = f"two {what}s have the name {show(port.name)}"
            raise TinycError("DuplicateId", why, "give each its own name", place(port.node))
        names.add(port.name)
    return listed


def _check_ports(nodes: Sequence[Node], inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
    uops = {node.id: node.uop for node in nodes}
    for port in (*inputs, *outputs):
        if port.node not in uops:
            why = f"the signature names {show(port.node)}, which is no node of the document"
            suggestion = "give it the id of a node, or leave the signature out"
            raise TinycError("UnknownReference", why, suggestion, {"layer": "tiny", "value": port.name})
    named = {port.node for port in inputs}
    declared = {id for id, uop in uops.items() if uop == "INPUT"}
    if named != declared or len(named) != len(inputs):
        odd = ", ".join(show(id) for id in sorted(named ^ declared)) or "one of them twice"
        why = f"the inputs of the signature are not the INPUT nodes; in question: {odd}"
        raise TinycError("MalformedDocument", why, "list every INPUT node once", {"layer": "tiny"})
    if not outputs:
        suggestion = "add a node that is no INPUT, or name one in the signature's outputs"
        raise TinycError("MalformedDocument", "the program has no output", suggestion, {"layer": "tiny"})


def _symbols(nodes: Sequence[Node]) -> tuple[str, ...]:
    found: set[str] = set()

    def note(dim: dims.Dim) -> dims.Dim:
        found.update(dims.names(dim))
        return dim

    for node in nodes:
        map_dims(node.arg, note)
    return tuple(sorted(name for name in found if not dims.is_axis(name)))


def _check_pieces(program: Program, limit: int) -> None:
    for id, count in pieces(program).items():
        if count > limit:
            why = (
                f"the movement before {show(id)} cuts its index space into {count} pieces (more than {limit})"
            )
            suggestion = "merge the PADs into one, or compute something between them"
            at = place(id, program.node(id).uop)
            raise TinycError("ExcessivePiecewise", why, suggestion, at, pieces=count)
