"""Variables of a rule that are given in terms of themselves alone, so that one of them has to be chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

Below = Mapping[str, Sequence[AbstractSet[str]]]
"""Variable -> for each way in which it is given, the variables that this takes."""


def cyclic(below: Below, sorts: Mapping[str, str]) -> frozenset[str]:
    """Those of cycles into which no other way leads. Where there is a number among them, as that of an axis counted from the rank of
    what has it, the number: a term is made of its parts."""
    unknown = below.keys() - _reached(below, {name for name in sorts if name not in below})
    found = {name for name in unknown if name in _under(below, name)}
    numbers = {name for name in found if "$" not in name and sorts.get(name) == "i64"}
    return frozenset(numbers or found)


def _reached(below: Below, known: set[str]) -> set[str]:
    """What follows from what is known."""
    size = -1
    while size < len(known):
        size = len(known)
        known |= {name for name, ways in below.items() if any(each <= known for each in ways)}
    return known


def _under(below: Below, name: str) -> set[str]:
    """Everything that a variable is given in terms of."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        for each in set[str]().union(*below.get(todo.pop(), ())) - seen:
            seen.add(each)
            todo.append(each)
    return seen
