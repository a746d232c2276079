"""Kinds of kernels: how they compute a contraction decides what else they may hold."""

from __future__ import annotations

from dataclasses import dataclass

from ..choice import LOOPED, How, Row
from ..view import Item
from .inside import INSIDE

Held = frozenset[tuple[str, object]]


@dataclass(frozen=True)
class Case:
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
        reduces, scans = item.head in ("Reduce", "Contract"), item.head == "Scan"
        if item is INSIDE and (self.name in PRODUCTS or self == STREAMS):
            return held | {("inside", True)}
        if self.how in LOOPED or not (reduces or scans):
            return held
        if self.name in ("beside", "rows"):
            if item.head != "Contract":
                return None if scans else held
            if self.name == "beside" and (held & {("product", origin)} or not base):
                return None
            return self._row(held, item, origin, base, row)
        kind = "scan" if scans else "reduction"
        if any(kind == other for other, _ in held):
            return None
        if self.name == "alone" and not (item.head == "Contract" and base):
            return None
        return held | {(kind, scanned)}

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

    def whole(self, held: Held) -> bool:
        """Whether a kernel that holds no more than this is of the kind, and not of one that it costs as much in."""
        kinds = {kind for kind, _ in held}
        if self == STREAMS:
            return bool(kinds & {"walks", "inside"})
        if self.name == "rows" and ("base" not in kinds if "copy" in kinds else "inside" not in kinds):
            return False  # a product belongs to one part
        return self.name not in PRODUCTS or bool(kinds & {"base", "reduction", "inside"})


PRODUCTS = ("alone", "beside", "rows")
"""Kinds of kernels with a contraction that is tiled."""

LOOPS = Case("loops", "loops")
STREAMS = Case("stream", "walked")
