"""Which lets are the same function of the place in a row, so that one loop may keep what later loops need again."""

from __future__ import annotations

from collections.abc import Mapping

from tinyc.ir.index import axis
from tinyc.ir.region import Const, Let, Read, Reduce, Within, operands

Names = frozenset[tuple[str, str]]
"""Axes and what they are called."""


class Forms:
    """What lets compute, as numbers: equal for lets that are one function under a renaming of the axes of a loop, and of those
    that sums in them bind."""

    def __init__(self, lets: Mapping[str, Let], free: Mapping[str, frozenset[str]]) -> None:
        self.lets, self.free = lets, free
        self.numbers: dict[object, int] = {}
        self.known: dict[tuple[str, Names], int] = {}

    def form(self, name: str, axes: tuple[str, ...]) -> int:
        """The form of let ``name`` in a loop over ``axes``."""
        return self._form(name, {each: f"*{number}" for number, each in enumerate(axes)})

    def _form(self, root: str, names: Mapping[str, str]) -> int:
        first = self._key(root, names)
        pending = [first]
        while pending:
            key = pending[-1]
            if key in self.known:
                pending.pop()
                continue
            name, called = key
            inner = dict(called)
            value = self.lets[name].value
            if isinstance(value, Reduce):
                first_free = 1 + max((int(each[1:]) for each in inner.values()), default=-1)
                inner |= {item.name: f"*{place}" for place, item in enumerate(value.axes, first_free)}
            parts = [self._key(each, inner) for each in operands(value)]
            missing = [part for part in parts if part not in self.known]
            if missing and (called or isinstance(value, Const)):
                pending += missing
                continue
            numbers = tuple(self.known[part] for part in parts) if called else ()
            shape = self._shape(self.lets[name], inner, numbers) if called else name
            if isinstance(value, Const):
                shape = ("Const", self.lets[name].dtype, value.bits)
            self.known[key] = self.numbers.setdefault(shape, len(self.numbers))
            pending.pop()
        return self.known[first]

    def _key(self, name: str, names: Mapping[str, str]) -> tuple[str, Names]:
        return name, frozenset((each, names[each]) for each in self.free[name] if each in names)

    def _shape(self, let: Let, names: Mapping[str, str], parts: tuple[int, ...]) -> object:
        rename = {old: axis(new) for old, new in names.items()}
        match let.value:
            case Read(tensor, index_map):
                return "Read", tensor, tuple(index.substitute(rename) for index in index_map)
            case Within(index, low, high):
                return "Within", index.substitute(rename), low, high
            case Reduce(op, axes, _):
                return "Reduce", op, let.dtype, tuple(item.size for item in axes), parts
        return type(let.value).__name__, getattr(let.value, "op", None), let.dtype, parts
