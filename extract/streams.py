"""Streams that a GPU walks on matrix units (``walk_on`` in ``tinyc/ir/streams.py``), before there is a Region."""

from __future__ import annotations

import copy
import math

from tinyc.ir.streams import ONE, WIDEST

from .choice import bound_axes, on_matrix_units, outside, products_beneath
from .view import Item, View, axis_extent


def walked_on_matrix_units(view: View) -> View:
    """The same without the Streams that matrix units do not walk: a GPU computes those as the reductions that they stand for, which
    are in the class as well."""
    scans = {
        item.children[0]
        for cls, items in view.items.items()
        for item in items
        if item.head == "Stream" and _weighted(view, cls, item) and _multiplied(view, item.children[0])
    }

    def kept(cls: str, item: Item) -> bool:
        total = any(each.head == "Const" and each.payload[1] == ONE for each in view.items[item.children[1]])
        return item.children[0] in scans and (total or _weighted(view, cls, item))

    found = copy.copy(view)
    found.items = {
        cls: tuple(item for item in items if item.head != "Stream" or kept(cls, item))
        for cls, items in view.items.items()
    }
    return found


def _weighted(view: View, cls: str, stream: Item) -> bool:
    """Whether it weights values that matrix units multiply, at the output axes of a kernel."""
    scan, weight = stream.children
    wide = view.free[weight] - view.free[scan] - frozenset(bound_axes(stream))
    few = 1 < math.prod(map(axis_extent, wide)) <= WIDEST
    return few and outside(view.free[cls]) and on_matrix_units(view, (weight,))


def _multiplied(view: View, scan: str) -> bool:
    """Whether the scores come from a product that matrix units multiply."""
    (item,) = view.items[scan]
    found = [product for _, product in products_beneath(view, item)]
    return any(
        on_matrix_units(view, product.children) and math.prod(map(axis_extent, bound_axes(product))) <= WIDEST
        for product in found
    )
