"""Kinds of kernels: how they compute a contraction decides what else they may hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tinyc.ir.folds import Fold

from ..choice import LOOPED, How, Key, Row
from ..cost.schedule import Schedule
from ..folds import folds, in_common, sum_points, ways_along
from ..view import Item, axis_id
from .inside import INSIDE

if TYPE_CHECKING:
    from .scope import Scope

Held = frozenset[tuple[str, object]]


class Case(NamedTuple):
    """Kernels of one kind, by what :func:`~tinyc.extract.choice.tiles` says of them: "alone", a contraction that is tiled,
    without another reduction; "beside", with any that do not depend on it; "rows", with any of its rows; "scan", one under a
    scan; "stream", with a Stream, and no contraction tiled; "loops", all others of no tiled contraction, and all of parts of a kernel.
    ``how``: as the work of their items is counted."""

    name: str
    how: How

    def held(
        self, held: Held, item: Item, origin: str, scanned: bool, base: bool, row: Row | None
    ) -> Held | None:
        """What a kernel holds with ``item``, as far as it matters; None where it is of the kind no more. ``scanned``:
        whether the item depends on another reduction's axes; ``base``: whether it can be tiled by itself. ``row``: what the
        machine keeps."""
        if not self.heeds(item):
            return held
        if item is INSIDE:
            return held | {("inside", scanned)}
        reduces, scans = item.head in ("Reduce", "Contract"), item.head == "Scan"
        if self == STREAMS:
            return _one_or_several(held, "scan" if scans else "reduction", (origin, scanned))
        if self.name in ("beside", "rows"):
            if item.head != "Contract":
                return None if scans else held
            if self.name == "beside" and (held & {("product", origin)} or not base):
                return None
            return self._row(held, item, origin, base, row)
        kind = "scan" if scans else "reduction"
        if any(kind == other for other, _ in held):
            return None
        if self == SCAN and reduces and not scanned:  # its product is of the scores
            return None
        if self.name == "alone" and not (item.head == "Contract" and base):
            return None
        return held | {(kind, scanned)}

    def heeds(self, item: Item) -> bool:
        """Whether :meth:`held` may say of an item anything else than what is held already."""
        if item is INSIDE and (self.name in PRODUCTS or self == STREAMS):
            return True
        return (self.how not in LOOPED or self == STREAMS) and item.head in ("Reduce", "Contract", "Scan")

    def _row(self, held: Held, item: Item, origin: str, base: bool, row: Row | None) -> Held | None:
        """With one more contraction of a row."""
        found: dict[str, list[object]] = {}
        for kind, what in held:
            found.setdefault(kind, []).append(what)
        if row is None or found.get("product", [origin]) != [origin] or (base and "base" in found):
            return None
        others = found.get("copy" if base else "base", [])
        if not all(row(item, each) if base else row(each, item) for each in others):  # type: ignore[arg-type]
            return None
        return held | {("product", origin), ("base" if base else "copy", item)}

    def walked(self, held: Held) -> bool:
        """Whether all kernels with a Stream that hold no more than this are walked on matrix units, and none runs in loops
        (:func:`~tinyc.extract.pricing.walks`)."""
        found = dict(held)
        alone = {"reduction", "scan", "walked"} <= found.keys() and SEVERAL not in found.values()
        return alone and not {"computed", "rounded", "inside"} & found.keys()

    def whole(self, held: Held) -> bool:
        """Whether a kernel that holds no more than this is of the kind, and not of one that it costs as much in."""
        kinds = {kind for kind, _ in held}
        if self == STREAMS:
            return bool(kinds & {"streams", "inside"})
        within = {what for kind, what in held if kind == "inside"}
        if self.name == "rows" and ("base" not in kinds if "copy" in kinds else len(within) < 2):
            return False  # a product belongs to one part
        # it is tiled at the kernel's output axes
        return self.name not in PRODUCTS or bool(kinds & {"base", "reduction"} or False in within)


def _one_or_several(held: Held, kind: str, what: object) -> Held:
    """With one more of a kind: which one it is, or that there are several."""
    others = {each for each in held if each[0] == kind}
    return held - others | {(kind, SEVERAL if others else what)}


SEVERAL = "several"
"""Not one alone, whichever they are."""

PRODUCTS = ("alone", "beside", "rows")
"""Kinds of kernels with a contraction that is tiled."""

WIDTHS = (0, 1, 2, 4)
"""Bytes of the widest element that a kernel may access along its last axis, beside those that it writes."""

LOOPS = Case("loops", "loops")
STREAMS = Case("stream", "walked")
SCAN = Case("scan", "scanned")


class Loops(NamedTuple):
    """What decides how loops over ``shape`` run. ``points``: of the shortest sum whose threads may be shared, 0 if there is none;
    ``widest``: bytes of an element that is read along the last axis, at most; ``more``: whether there may be shorter sums beneath what is
    given."""

    shape: tuple[int, ...]
    points: int
    widest: int
    more: bool
    along: tuple[bool, ...]


class Cases:
    """The kinds of kernels that there may be from the values of a scope, and how they may run."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.problem = scope, scope.problem
        self._below: dict[Key, list[Key]] = {}
        self._known: dict[tuple[Key, Case, tuple[int, ...], int], list[Schedule]] = {}
        self._looped: dict[tuple[Loops, int], list[Schedule]] = {}

    def streams(self, root: Key) -> bool:
        """Whether a kernel from ``root`` may hold a Stream."""
        return self.problem.tiling is not None and "Stream" in self._heads(root)

    def runs(self, root: Key, case: Case, shape: tuple[int, ...], size: int) -> list[Schedule]:
        """In what ways a kernel from ``root`` may run that fills ``shape``; empty where that is not known. ``size``: bytes of
        an element."""
        what = root, case, shape, size
        if what not in self._known:
            self._known[what] = self._runs(*what)
        return self._known[what]

    def _runs(self, root: Key, case: Case, shape: tuple[int, ...], size: int) -> list[Schedule]:
        tiling, known = self.problem.tiling, self.scope.part.known.values()
        if tiling is None or case in (LOOPS, STREAMS):
            return self._loops(root, shape, size) if tiling else []
        found: dict[Schedule | None, None] = {}
        for key in self.beneath(root):
            for option in self.scope.options[key]:
                if case == SCAN:
                    found |= dict.fromkeys(self.problem.running.streamed(key, option.item))
                elif option.item.head == "Contract":
                    found[self.problem.works.work(key, option.item, case.how).schedule] = None
                elif option.item is INSIDE:
                    works = self.problem.tiled(case.how, self.problem.view.free[root[0]])
                    found |= dict.fromkeys(work.schedule for work in works)
        if case == SCAN:
            found |= dict.fromkeys(walk for each in known for walk in each.walks)
        return [each for each in found if each is not None]

    def _loops(self, root: Key, shape: tuple[int, ...], size: int) -> list[Schedule]:
        options = [(key, option.item) for key in self.beneath(root) for option in self.scope.options[key]]
        inside = any(item is INSIDE for _, item in options)
        common = inside or in_common(self.problem.view, options, shape)
        running = self.problem.running
        widths = WIDTHS if inside else {running.along(key, item, shape) for key, item in options}
        beneath = None if self._anywhere(options, shape) else self.beneath(root)
        return self._ways(shape, size, self.problem.folds(shape, beneath), common, {*widths, 0})

    def loops_of(self, shape: tuple[int, ...], items: Mapping[Key, Item]) -> Loops:
        """What is known of how loops over ``shape`` run that hold ``items``, beside what they compute of what is given."""
        view, running = self.problem.view, self.problem.running
        sums = [sum_points(view, key, item) for key, item in items.items() if folds(view, key, item, shape)]
        widest = max((running.along(key, item, shape) for key, item in items.items()), default=0)
        known = {key: item for key, item in items.items() if item is not INSIDE}
        beneath = [self.problem.read_beneath(key) for key in items.keys() - known.keys()]
        largest = tuple(map(max, zip((0, 0), *beneath, strict=True)))
        along = ways_along(view, known, shape, self.problem.works.bytes, largest) if sums else (True, False)
        return Loops(shape, min(sums, default=0), widest, self._anywhere(items.items(), shape), along)

    def looped(self, known: Loops, size: int) -> list[Schedule]:
        """In what ways such loops may run. ``size``: as in :meth:`runs`."""
        if (known, size) not in self._looped:
            shape, points, widest, more, along = known
            shared = [
                each
                for each in (self.problem.folds(shape) if more else ())
                if (not points or each.points < points) and each.along in along
            ]
            shared += [Fold(points, "", each) for each in along if points]
            widths = {max(widest, each) for each in WIDTHS}
            self._looped[known, size] = self._ways(shape, size, tuple(shared), True, widths)
        return self._looped[known, size]

    def _ways(
        self, shape: tuple[int, ...], size: int, shared: tuple[Fold, ...], common: bool, widths: Iterable[int]
    ) -> list[Schedule]:
        found: dict[Schedule, None] = {}
        for widest in sorted({max(size, each) for each in widths}):
            ways = self.problem.running.ways(shape, size, shared, common, widest)
            found |= dict.fromkeys(run for run, _ in ways)
        return list(found)

    def _anywhere(self, items: Iterable[tuple[Key, Item]], shape: Sequence[int]) -> bool:
        """Whether there may be a sum beneath what is given whose threads may be shared: what is made of a value depends on no other
        output axes than the value."""
        last = sum(size > 1 for size in shape) - 1
        free = self.problem.view.free
        return any(item is INSIDE and (last < 0 or last in map(axis_id, free[key[0]])) for key, item in items)

    def beneath(self, root: Key) -> list[Key]:
        """The values that there may be in a kernel from ``root``."""
        if root not in self._below:
            found, stack = {root}, [root]
            while stack:
                fresh = self.scope.edges[stack.pop()] - found
                found |= fresh
                stack += fresh
            self._below[root] = sorted(found, key=self.scope.position.__getitem__)
        return self._below[root]

    def _heads(self, root: Key) -> frozenset[str]:
        """What there may be in a kernel from ``root``."""
        items = (option.item for key in self.beneath(root) for option in self.scope.options[key])
        return frozenset(item.op if item is INSIDE else item.head for item in items)

    def of(self, root: Key, anywhere: bool = False) -> list[Case]:
        """The kinds of kernels that there may be from ``root``. ``anywhere``: that hold it, and what is in other parts."""
        heads = self._heads(root)
        if anywhere or INSIDE.op in heads:  # beneath what is given, there may be anything
            heads |= self.scope.hosts.heads
        tiled = [case for case in self.tiled if case != SCAN or "Scan" in heads]
        looped = [LOOPS]
        if not anywhere and (self.streams(root) or (INSIDE.op in heads and self.scope.given.walked)):
            looped.append(STREAMS)
        return [*tiled, *looped] if "Contract" in heads else looped

    @cached_property
    def tiled(self) -> list[Case]:
        """The kinds of kernels that tile a contraction."""
        return [
            *(
                [Case("beside", "tiled"), Case("rows", "rows")]
                if self.problem.rows
                else [Case("alone", "tiled")]
            ),
            SCAN,
        ]
