"""Which variable of a rule is chosen next, while an instance is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .choose import listing_of
from .parse import Lit, Schema, Var
from .prerequisites import PREREQUISITES
from .spelled import parts, spelled
from .steps import Arg, Case

_SORTS = {
    "Tensor": 0,
    "Buf": 0,
    "Ixs": 1,
    "Ints": 1,
    "Expr": 2,
    "Ix": 3,
    "Atom": 4,
    "Axes": 4,
    "String": 6,
    "i64": 7,
}


@dataclass(frozen=True)
class Place:
    """Of a variable. ``needs``: variables that it waits for where it can. Higher is sooner."""

    before: tuple[int, ...]
    needs: frozenset[str]
    after: int


def next_of(schema: Schema, case: Case, names: Sequence[str], bound: Mapping[str, object]) -> str:
    """What nothing else gives, whose neighbours are there, containers before numbers."""
    if "places" not in case.memo:
        case.memo["places"] = {name: _place(schema, case, name) for name in case.sorts}
    places: dict[str, Place] = case.memo["places"]
    before = max(places[name].before for name in names)
    first = [name for name in names if places[name].before == before]
    known = bound.keys()
    return max(first, key=lambda name: (known >= places[name].needs, places[name].after))


def _place(schema: Schema, case: Case, name: str) -> Place:
    needs: set[Arg] = set()
    for step, position in case.uses.get(name, ()):
        listing = listing_of(step)
        if listing is not None and position > listing.given:
            needs.update(step.args[1 : 1 + listing.given])
        if step.head == "free" and isinstance(step.out, Var) and len(case.produced[step.out.name]) > 1:
            needs.add(step.out)  # the axes of another
        if step.kind == "relation":  # a row that begins with what is known by then
            needs.update(arg for arg in step.args if isinstance(arg, Var) and arg.name in case.produced)
        if step.head == "%" and position == 0 and step.out == Lit(0):  # a multiple of what is known by then
            other = step.args[1]
            needs.update([other] if isinstance(other, Var) and other.name in case.produced else [])
        needs.update(step.args[each] for each in PREREQUISITES.get((step.head, position), ()))
    if case.sorts[name] in ("Tensor", "Ints"):
        needs.update(case.maps)  # what a view reads is chosen by the index that the rule spells for it
    tied = {arg for at, tensor, _ in case.reduced for arg in (at.args[1], *tensor.args[1:])}
    tied |= {arg for step in case.held for arg in step.args}
    cyclic = name in case.cyclic and "$" not in name  # the other values of the cycle follow
    split = name in case.split or name in parts(case)  # read off something else
    given = split or (name in case.produced and name not in spelled(case))
    # a number waits for what it is a number of
    first = cyclic and case.sorts[name] != "i64"
    before = (Var(name) not in tied, cyclic or not given, first, not split)
    names = {each.name for each in needs if isinstance(each, Var)} - {name}
    tables = [step.head for step, _ in case.uses.get(name, ()) if step.kind == "relation"]
    open_ = case.sorts[name] == "i64" and all(
        map(schema.grows, tables)
    )  # numbers that nothing limits come last
    return Place(before, frozenset(names), -_SORTS.get(case.sorts[name], 5) - open_)
