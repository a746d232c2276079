"""What there may be in a kernel that is not finished: one that can no longer tile a product is looked at no further among those
that do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..choice import tileable
from .cases import PRODUCTS, Case, Held
from .inside import INSIDE

if TYPE_CHECKING:
    from .scope import Scope

WITHIN = 1
"""The bit of a product beneath what a part is given."""


class Contents:
    """Of a scope's values. Each contraction, by what it is wherever it is needed, has two bits: one where it can be tiled by itself,
    and the next where it can not, as at other points of a row that is kept."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.base: dict[str, int] = {}
        view, circular = scope.problem.view, any(first >= 0 for first in scope.circle)
        self.found = [0] * len(scope.order)
        before: list[int] = []
        while before != self.found:
            before = list(self.found)
            for position, key in enumerate(scope.order):
                may = 0
                for option in scope.options[key]:
                    item = option.item
                    if item is INSIDE and scope.given.tiles(key):
                        may |= WITHIN
                    elif item.head == "Contract":
                        bit = self._base(view.origin(key[0]))
                        may |= bit if tileable(view, key[0], item) else bit << 1
                    for child in option.children:
                        may |= self.found[scope.position[child]]
                self.found[position] = may
            if not circular:
                break
        self.bases = sum(self.base.values())

    def _base(self, origin: str) -> int:
        return self.base.setdefault(origin, 1 << 2 * len(self.base) + 1)

    def able(self, case: Case, held: Held, positions: Iterable[int]) -> bool:
        """Whether a kernel that holds this, and is to compute the values of these positions yet, may be of the case in the end."""
        if case.name not in PRODUCTS:
            return True
        ahead = 0
        for position in positions:
            ahead |= self.found[position]
        kinds = dict(held)
        if ahead & WITHIN or "inside" in kinds:
            return True
        if case.name != "rows":
            return bool(ahead & self.bases) or "base" in kinds or "reduction" in kinds
        # a product that is tiled, and the same at other points of the rows that are kept
        bases = self.bases if "product" not in kinds else self.base[str(kinds["product"])]
        found = bases if "base" in kinds else ahead & bases
        return bool(found & (bases if "copy" in kinds else ahead >> 1))
