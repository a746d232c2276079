"""Products that are summed in a wider dtype are computed in it (resolution I-08), as tensor cores do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from .dtypes import DType, from_bits, to_bits
from .tiny import Imm, Node, TensorType


def widen_products(
    nodes: Sequence[Node], outputs: Iterable[str], types: Mapping[str, TensorType]
) -> tuple[Node, ...]:
    """``nodes`` with CASTs before every MUL all of whose uses are SUM REDUCEs of one wider float dtype.

    A CAST's id is the MUL's with ``.lhs`` or ``.rhs``. An immediate keeps the value that it has in the narrow
    dtype. Idempotent: a MUL that is wide already stays as it is.
    """
    users: defaultdict[str, list[Node | None]] = defaultdict(list)
    for node in nodes:
        for source in node.operands():
            users[source].append(node)
    for id in outputs:
        users[id].append(None)
    fresh = fresh_ids(node.id for node in nodes)
    return tuple(each for node in nodes for each in _widen(node, users[node.id], types, fresh))


def _widen(
    node: Node,
    users: Sequence[Node | None],
    types: Mapping[str, TensorType],
    fresh: Callable[[str], str],
) -> Iterator[Node]:
    narrow = types[node.id].dtype
    wide = _wide(users) if node.uop == "MUL" and narrow in (DType.FP16, DType.BF16) else None
    if wide is None:
        yield node
        return
    casts: dict[str, str] = {}
    src: list[str | Imm] = []
    for source, side in zip(node.src, ("lhs", "rhs"), strict=True):
        if not isinstance(source, str):
            src.append(from_bits(to_bits(source, narrow), narrow))
            continue
        if source not in casts:
            casts[source] = fresh(f"{node.id}.{side}")
            yield Node(casts[source], "CAST", (source,), {"to": wide})
        src.append(casts[source])
    yield Node(node.id, "MUL", tuple(src), node.arg, node.tag)


def _wide(users: Sequence[Node | None]) -> DType | None:
    """fp32 where every use is a SUM in fp32 (the only float dtype wider than another)."""
    sums = [use is not None and use.uop == "REDUCE" and use.arg["op"] == "SUM" for use in users]
    if not users or not all(sums):
        return None
    wanted = {use.arg["dtype"] for use in users if use is not None}
    return DType.FP32 if wanted == {DType.FP32} else None


def fresh_ids(taken: Iterable[str]) -> Callable[[str], str]:
    """A function that makes an id unlike all others: the wanted one, or with _2, _3, … after it."""
    used = set(taken)

    def fresh(wanted: str) -> str:
        id, count = wanted, 1
        while id in used:
            count += 1
            id = f"{wanted}_{count}"
        used.add(id)
        return id

    return fresh
