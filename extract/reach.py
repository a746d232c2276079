"""What an output can reach: keys, operands first, and the items of each."""

from __future__ import annotations

from collections.abc import Iterator

from .choice import Key, children_of
from .view import Item, View, is_rounded


def order_of(view: View) -> list[Key]:
    """Every key that an output can reach, operands first where there is no cycle."""
    order: list[Key] = []
    seen: set[Key] = set()
    stack: list[tuple[Key, Iterator[Key]]] = []
    for output in view.graph.outputs:
        for way in view.buffers[output].ways:
            start = (way.root, False)
            if start in seen:
                continue
            seen.add(start)
            stack.append((start, _reachable(view, start)))
            while stack:
                key, children = stack[-1]
                child = next((child for child in children if child not in seen), None)
                if child is None:
                    order.append(key)
                    stack.pop()
                else:
                    seen.add(child)
                    stack.append((child, _reachable(view, child)))
    return order


def _reachable(view: View, key: Key) -> Iterator[Key]:
    for item in items_of(view, key):
        yield from children_of(key, item)
        if item.head == "Read":
            for way in view.buffers[str(item.payload[0])].ways:
                yield (way.root, False)


def items_of(view: View, key: Key) -> Iterator[Item]:
    for item in view.items.get(key[0], ()):
        if (
            not key[1]
            or item.head == "Read"
            or (item.head == "Cast" and item.op in ("fp32", "i32"))
            or (item.head == "Select" and _is_guard(view, item))
            or is_rounded(item)
        ):
            yield item


def _is_guard(view: View, item: Item) -> bool:
    cond, _, other = item.children
    return any(choice.head == "Within" for choice in view.items.get(cond, ())) and any(
        choice.head == "Const" and choice.payload[1] == 0 for choice in view.items.get(other, ())
    )
