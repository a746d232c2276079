"""What extraction chooses, and the work of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tinyc.ir.index import Affine

from .cost.hardware import Hardware
from .cost.model import MATRIX, Work, points, weight
from .cost.schedule import Schedule
from .view import LEVEL, Buffer, Item, View, Way, axis_id, is_rounded

Key = tuple[str, bool]
"""An expression class, and whether it must be loadable: a Read behind widening casts and zero-filled guards."""


How = Literal["loops", "walked", "tiled", "rows", "scanned"]
"""How a kernel computes its contraction: as loops; as loops beside a Stream, which cuts its rows in its own way; in tiles; in
tiles of whole rows, which are kept for other reductions; or in tiles under a scan."""

LOOPED: tuple[How, ...] = ("loops", "walked")

REDUCING = frozenset({"Reduce", "Contract", "Scan", "Stream"})
"""Heads of items that bind axes."""


@dataclass(frozen=True)
class Kernel:
    """One filled buffer. ``items``: what each class is computed as within it; the root's is ``items[root]``."""

    buffer: Buffer
    way: Way
    items: Mapping[Key, Item]
    work: Work
    seconds: float

    @property
    def root(self) -> Key:
        return (self.way.root, False)


@dataclass(frozen=True)
class Choice:
    """Kernels in an order in which they can run; ``seconds``: their estimates added up."""

    kernels: tuple[Kernel, ...]
    seconds: float


def children_of(key: Key, item: Item) -> tuple[Key, ...]:
    """The operands, each with whether it must be loadable: a contraction's are, through casts and guards."""
    if item.head == "Contract":
        return tuple((child, True) for child in item.children)
    if key[1] and item.head == "Select":
        cond, then, other = item.children
        return ((cond, False), (then, True), (other, False))
    return tuple((child, key[1]) for child in item.children)


def bound_axes(item: Item) -> tuple[str, ...]:
    """The axes that a reduction binds; none for other items."""
    if item.head in ("Contract", "Stream", "Scan"):
        return item.payload[0]  # type: ignore[return-value]
    return item.payload if item.head == "Reduce" else ()  # type: ignore[return-value]


def acyclic(root: Key, items: Mapping[Key, Item]) -> bool:
    """Whether no value of a kernel needs itself. A relaxation that ended early may leave such a choice."""
    done: dict[Key, bool] = {}  # False while the operands are being looked at
    stack = [root]
    while stack:
        key = stack[-1]
        if key in done:
            done[key] = True
            stack.pop()
            continue
        done[key] = False
        for child in children_of(key, items[key]):
            if done.get(child) is False:
                return False
            if child not in done:
                stack.append(child)
    return True


def item_work(
    view: View,
    cls: str,
    item: Item,
    how: How = "tiled",
    schedule: Schedule | None = None,
    moved: float = 0.0,
    gathered: float = 0.0,
    score: str = "Scan",
) -> Work:
    """The work of evaluating one item wherever its class is needed in a kernel, its operands not counted.

    A contraction is tiled over the kernel's output axes, or over those and the axes of a scan ("scanned"); of "rows" it is
    there at other places of the row. Of a stream's two products the second is tiled as well, unless a reduction encloses it or
    its scores are "walked" as they are.
    ``score``: what a score takes in a walk, by its weight. ``schedule``: how a tiled contraction runs. Of a Read, ``moved``:
    bytes of its buffer; ``gathered``: elements that the tiles of a contraction load by it, one by one.
    """
    if item.head == "Contract":
        axes, free = bound_axes(item), view.free[cls]
        _, _, m, n, _ = item.payload
        count, outer = points((*free, *axes)), outside(free)
        if how == "rows" and not outer:
            return Work(values=2)
        if how not in LOOPED and m and n and (outer or how == "scanned"):
            return _product(2 * count, view, item.children) + Work(values=2, schedule=schedule)
        again = weight("Reduce") + 1  # untiled: a product and a step of a reduction per point
        return Work(ops=again * count, values=2)
    if item.head == "Scan":
        rows, count = points(view.free[cls]), points(bound_axes(item))
        if item.payload[2] is None:
            return Work(ops=(weight(score) * count + weight("Row")) * rows, values=1)
        each = 2 * weight(score) + weight("MUL") + weight("Cast")  # of a score, in two walks
        return Work(ops=(each * count + weight("Row")) * rows, values=1) + rescored(view, item)
    if item.head == "Stream":
        scan, weights = (view.free[child] for child in item.children)
        count = points((*view.free[cls], *bound_axes(item)))
        if (
            how != "walked"
            and outside(view.free[cls])
            and scan - weights
            and weights - scan - frozenset(bound_axes(item))
        ):
            return _product(2 * count, view, item.children[1:]) + Work(values=2)
        return Work(ops=weight("Stream") * count, values=1)
    if item.head == "Reduce":
        if how == "scanned" and (product := summed(view, cls, item)) is not None:
            return item_work(view, cls, product, how)
        turns = points((*view.free[cls], *bound_axes(item)))
        return Work(ops=weight("Reduce") * turns, values=1)
    if item.head == "Within":
        return Work(guards=points(view.free[cls]), values=1)
    strided = 0.0
    if moved and apart(item.payload[1]):  # type: ignore[arg-type]
        strided = min(moved, 4 * points(view.free[cls]))
    ops = weight(item.op) * points(view.free[cls]) + weight("Gather") * gathered
    return Work(ops=ops, values=item.head != "Const", strided_bytes=strided)


COPYING = frozenset({"Read", "Cast", "Const", "Select", "Within"})
"""What a kernel holds that only moves values."""

POINTWISE = COPYING | {"Unary", "Binary"}
"""What a kernel holds that reduces nothing."""


def turning(hardware: Hardware) -> frozenset[str]:
    """What a kernel may hold that reads out of order through the nearest memory: on a GPU all but reductions (codegen/cuda/tiles.py),
    on a CPU what only copies."""
    return POINTWISE if hardware.sms else COPYING


def as_copy(work: Work) -> Work:
    """The work of a kernel that reads out of order, but through shared memory (:func:`turning`)."""
    return replace(work, strided_bytes=0.0, transposed_bytes=work.transposed_bytes + work.strided_bytes)


def apart(index: tuple[Affine, ...]) -> bool:
    """Whether neighbours along the last output axis of a Read, and along every axis that is summed, lie apart in the buffer.
    A reduction may have its rows walked by neighbours."""
    axes = frozenset().union(*(part.axes() for part in index))
    moving = [part for part in index if part.axes()]
    if not moving:
        return False
    outer = max((axis for axis in axes if axis_id(axis) < LEVEL), key=axis_id, default=None)
    return not any(axis == outer or axis_id(axis) >= LEVEL for axis in moving[-1].axes())


def rescored(view: View, scan: Item) -> Work:
    """What the second walk over some scores takes to have them again: the product that they come from, where there is one, and
    of the ways to compute them from it the one of fewest operations."""
    walked = frozenset(bound_axes(scan))
    (scores,) = scan.children
    found: dict[str, dict[bool, Work]] = {}  # by class, with a product beneath and without
    for cls in _beneath(view, scores, walked):
        ways = found[cls] = {}
        for item in view.items.get(cls, ()):
            product = item.head == "Contract"
            if item.head in REDUCING and not product:
                continue
            done = {product: replace(item_work(view, cls, item, "scanned"), values=0.0)}
            for child in item.children:
                if view.free[child] & walked:
                    done = _fewest(
                        (one or other, work + more)
                        for one, work in done.items()
                        for other, more in found.get(child, {}).items()
                    )
            found[cls] = ways = _fewest([*ways.items(), *done.items()])
    ways = found.get(scores, {})
    return ways.get(True, ways.get(False, Work()))


def _beneath(view: View, root: str, walked: frozenset[str]) -> list[str]:
    """What ``root`` is computed from that depends on axes ``walked``, operands first where there is no circle."""
    order: list[str] = []
    seen, stack = set[str](), [(root, False)]
    while stack:
        cls, ready = stack.pop()
        if ready:
            order.append(cls)
        elif cls not in seen:
            seen.add(cls)
            stack.append((cls, True))
            items = (item for item in view.items.get(cls, ()) if item.head not in REDUCING - {"Contract"})
            stack += (
                (child, False) for item in items for child in item.children if view.free[child] & walked
            )
    return order


def _fewest(ways: Iterable[tuple[bool, Work]]) -> dict[bool, Work]:
    """Of each kind the way of fewest operations."""
    found: dict[bool, Work] = {}
    for kind, work in ways:
        if kind not in found or _operations(work) < _operations(found[kind]):
            found[kind] = work
    return found


def _operations(work: Work) -> float:
    return work.ops + weight("Within") * work.guards


def products_beneath(view: View, scan: Item) -> Iterator[tuple[str, Item]]:
    """The products that scores are computed from, behind elementwise operations."""
    seen, pending = set(scan.children), [*scan.children]
    while pending:
        cls = pending.pop()
        for item in view.items.get(cls, ()):
            if item.head == "Contract" and set(bound_axes(scan)) & view.free[cls]:
                yield cls, item
            inner = [child for child in item.children if item.head not in REDUCING and child not in seen]
            pending += inner
            seen.update(inner)


def _product(flops: float, view: View, operands: tuple[str, ...]) -> Work:
    """``flops`` of a tiled product."""
    if rounded(view, operands):
        return Work(tf32_flops=flops)
    return Work(flops=flops) if on_matrix_units(view, operands) else Work(vector_flops=flops)


def rounded(view: View, operands: tuple[str, ...]) -> bool:
    """Whether all of them are rounded to tf32."""
    return all(any(map(is_rounded, view.items.get(cls, ()))) for cls in operands)


def on_matrix_units(view: View, operands: tuple[str, ...]) -> bool:
    """Whether matrix units multiply them: all can be loaded as fp16 or bf16."""
    return all(
        any(view.buffers[str(read.payload[0])].dtype in MATRIX for _, read in view.loads(cls))
        for cls in operands
    )


Row = Callable[[Item, Item], bool]
"""Whether a machine keeps rows of the first contraction, at the kernel's output axes, and the second is one at other points of
such a row."""


def tiles(view: View, items: Mapping[Key, Item], row: Row | None) -> How:
    """How a kernel computes its contraction. It is tiled where it is the only reduction, or where rows are kept, beside
    others; and under a scan, if it is of the scan's scores and there is no other reduction."""
    reductions = [key for key, item in items.items() if item.head in ("Reduce", "Contract")]
    scans = [key for key, item in items.items() if item.head == "Scan"]
    products = [key for key in reductions if items[key].head == "Contract"]
    if not scans:
        if not products:
            return "loops"
        base, *others = sorted(products, key=lambda key: not outside(view.free[key[0]]))
        if not tileable(view, base[0], items[base]) or (row is None and len(reductions) > 1):
            return "loops"
        if not others:
            return "tiled"
        kept = row is not None and all(
            view.origin(key[0]) == view.origin(base[0])
            and not outside(view.free[key[0]])
            and row(items[base], items[key])
            for key in others
        )
        return "rows" if kept else "loops"
    if len(reductions) != 1 or len(scans) > 1:
        return "loops"
    under, stack = set(), [*children_of(scans[0], items[scans[0]])]
    while stack:
        key = stack.pop()
        if key not in under:
            under.add(key)
            stack += children_of(key, items[key])
    (base,) = reductions
    walked = view.free[base[0]].intersection(bound_axes(items[scans[0]]))
    product = summed(view, base[0], items[base]) if base in under and walked else None
    return "loops" if product is None else "scanned"


def summed(view: View, cls: str, item: Item) -> Item | None:
    """The contraction that a sum is: a kernel that walks scores tiles their product, however it is written."""
    found = (item, *view.items.get(cls, ()))
    return next((each for each in found if each.head == "Contract"), None)


def tileable(view: View, cls: str, item: Item) -> bool:
    """Whether a contraction is over the kernel's output axes alone, of which each operand has its own."""
    _, _, m, n, _ = item.payload
    return bool(m and n) and outside(view.free[cls])


def along(base: Item, other: Item) -> bool:
    """Whether the axes of a contraction are those of ``base``, or bound by reductions."""
    _, *ours, _ = base.payload
    _, *theirs, _ = other.payload
    return all(
        len(a) == len(b) and all(x == y or axis_id(y) >= LEVEL for x, y in zip(a, b, strict=True))  # type: ignore[arg-type, call-overload]
        for a, b in zip(ours, theirs, strict=True)
    )


def outside(axes: Iterable[str]) -> bool:
    """Whether these are axes of the kernel's output alone."""
    return all(axis_id(axis) < LEVEL for axis in axes)


def evaluations(view: View, root: Key, items: Mapping[Key, Item]) -> Iterator[Key]:
    """Every key as often as a kernel evaluates it: once per reduction whose axes it depends on, otherwise once."""
    seen: set[tuple[Key, tuple[int, ...]]] = set()
    stack: list[tuple[Key, dict[str, int]]] = [(root, {axis: 0 for axis in view.free[root[0]]})]
    reductions = 0
    while stack:
        key, scope = stack.pop()
        own = tuple([scope.get(axis, 0) for axis in view.free[key[0]]])  # a set is always gone through alike
        if (key, own) in seen:
            continue
        seen.add((key, own))
        yield key
        item = items[key]
        bound = bound_axes(item)
        if bound:
            reductions += 1
            scope = scope | dict.fromkeys(bound, reductions)
        stack += [(child, scope) for child in children_of(key, item)]
