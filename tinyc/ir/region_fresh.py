"""An axis of its own for every Reduce (I-32): text may let two Reduces bind one axis, a Region may not.

A let is a function of its free axes, so ``max over r of S(r)`` and ``sum over r of EXP2(S(r) - …)`` may share the text of
``S``. In the Region the second Reduce runs over an axis of its own, and what its body needs is there once more, over
that axis.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from .explicit import with_operands
from .index import axis
from .region import Axis, Let, Read, Reduce, Region, Stream, Value, Within, Yield, free_axes, operands
from .region_fields import anonymous_name


def fresh_axes(region: Region, given: Collection[str]) -> Region:
    """``region``, in point form, with every axis bound once. ``given``: the names of lets that stay; all others are
    numbered anew. What nothing needs any longer is gone."""
    lets, place = list(region.lets), 0
    taken = {let.name for let in lets}
    axes = {each.name for each in region.iters} | {name for let in lets for name in _bound(let.value)}
    bound: set[str] = set()
    while place < len(lets):
        value = lets[place].value
        if isinstance(value, Reduce) and not bound.isdisjoint(_bound(value)):
            before = replace(region, lets=tuple(lets[: place + 1]))
            copies = _copied(before, taken, axes)
            lets[place : place + 1] = copies
            place += len(copies) - 1
            bound.update(name for let in copies for name in _bound(let.value))
        bound.update(_bound(lets[place].value))
        place += 1
    return _numbered(replace(region, lets=tuple(lets)), given)


def _copied(region: Region, taken: set[str], axes: set[str]) -> list[Let]:
    """The last let of ``region``, a Reduce, over new axes, after copies of what its body needs over them."""
    *rest, last = region.lets
    assert isinstance(last.value, Reduce)
    free = free_axes(region)
    renamed = {name: _unlike(name, axes) for name in _bound(last.value)}
    needed, names = {last.value.body}, dict[str, str]()
    for let in reversed(rest):
        if let.name in needed and not free[let.name].isdisjoint(renamed):
            names[let.name] = _unlike(let.name, taken)
            renamed |= {name: _unlike(name, axes) for name in _bound(let.value)}
            needed.update(operands(let.value))
    copies = [replace(let, name=names[let.name]) for let in rest if let.name in names]
    return [replace(let, value=_renamed(let.value, names, renamed)) for let in (*copies, last)]


def _renamed(value: Value, lets: dict[str, str], axes: dict[str, str]) -> Value:
    value = with_operands(value, [lets.get(name, name) for name in operands(value)])
    other = {old: axis(new) for old, new in axes.items()}
    match value:
        case Read(tensor, index_map):
            return Read(tensor, tuple(index.substitute(other) for index in index_map))
        case Within(index, low, high):
            return Within(index.substitute(other), low, high)
        case Reduce() | Stream():
            return replace(
                value, axes=tuple(Axis(axes.get(each.name, each.name), each.size) for each in value.axes)
            )
    return value


def _numbered(region: Region, given: Collection[str]) -> Region:
    """Only what the outputs need; lets that have no name of a user's are called after their places."""
    live = {item.value for item in region.yields}
    for let in reversed(region.lets):
        if let.name in live:
            live.update(operands(let.value))
    names: dict[str, str] = {}
    lets: list[Let] = []
    for let in region.lets:
        if let.name in live:
            names[let.name] = let.name if let.name in given else anonymous_name(len(lets), given)
            lets.append(Let(names[let.name], let.dtype, _renamed(let.value, names, {})))
    yields: Sequence[Yield] = [Yield(names[item.value], item.to) for item in region.yields]
    return replace(region, lets=tuple(lets), yields=tuple(yields))


def _bound(value: Value) -> tuple[str, ...]:
    return tuple(each.name for each in value.axes) if isinstance(value, Reduce | Stream) else ()


def _unlike(name: str, taken: set[str]) -> str:
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    taken.add(f"{name}_{number}")
    return f"{name}_{number}"
