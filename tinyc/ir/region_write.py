"""A Region as a JSON value, in explicit form (document 004 §6.8). See ``region_json`` for the notation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from .dtypes import DType, from_bits, to_bits
from .explicit import explicit, point
from .jsonc import finite
from .region import (
    Axis,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Stream,
    Transpose,
    Unary,
    Value,
    Within,
    operands,
)
from .region_fields import anonymous_name, neutral

MAX_DEPTH = 12
"""How deep expressions are nested; what is deeper is a let of its own."""


def region_to_json(region: Region) -> dict[str, Any]:
    """``region``, in either form, as a JSON value that ``region_from_json`` reads back as ``point(region)``."""
    return _Writer(point(region)).region()


class Nesting:
    """Which lets of a Region in point form are written where they are used: ``inline``; of a Select that ends a row of
    Selects with one ``other``, ``chains`` gives the row, from that Select inwards.

    Reading numbers nested expressions in the order in which their operands are written, so a let can be nested where
    it stands right there in the list and is called after its place.
    """

    def __init__(self, region: Region, shown: Region) -> None:
        self.lets = region.lets
        self.shown = {let.name: let for let in shown.lets}
        self.place = {let.name: place for place, let in enumerate(region.lets)}
        uses = (name for let in region.lets for name in operands(let.value))
        self.uses = Counter([*uses, *(item.value for item in region.yields)])
        self.first: dict[tuple[DType, int], str] = {}
        for let in region.lets:
            if isinstance(let.value, Const) and self._anonymous(let.name):
                self.first.setdefault((let.dtype, let.value.bits), let.name)
        self.inline: set[str] = set()
        self.casts: set[str] = set()
        self.chains: dict[str, list[Let]] = {}
        end = len(region.lets) - 1
        for item in reversed(shown.yields):
            if end >= 0 and self.lets[end].name == item.value and self._cast_of_a_let(self.lets[end]):
                self.casts.add(item.value)
                end -= 1
        while end >= 0:
            found = self._operands(self.lets[end], end - 1, 0)
            self.inline |= found[1]
            end = found[0]

    def _anonymous(self, name: str) -> bool:
        return name == anonymous_name(self.place[name], self.place, name)

    def _cast_of_a_let(self, let: Let) -> bool:
        value = let.value
        if not isinstance(value, Cast) or self.uses[let.name] != 1 or not self._anonymous(let.name):
            return False
        return not isinstance(self.lets[self.place[value.x]].value, Const)

    def _operands(self, let: Let, end: int, depth: int) -> tuple[int, set[str]]:
        """The operands of ``let`` that can be nested when the last of them stands at ``end``; where they begin."""
        if isinstance(let.value, Select):
            return self._select(let, end, depth)
        taken: set[str] = set()
        for name in reversed(operands(let.value)):
            found = self._nest(name, end, depth + 1, isinstance(let.value, Reduce))
            if found is not None:
                end = found[0]
                taken |= found[1]
        return end, taken

    def _nest(self, name: str, end: int, depth: int, body: bool = False) -> tuple[int, set[str]] | None:
        """Where ``name``, nested, begins, and what is nested with it; None where it cannot be."""
        if self.place[name] != end or not self._anonymous(name) or depth > MAX_DEPTH:
            return None
        let = self.lets[end]
        if isinstance(let.value, Const):
            return (end - 1, {name}) if self.first[let.dtype, let.value.bits] == name else None
        if self.uses[name] != 1:
            return None
        if isinstance(let.value, Read | Within):
            return end - 1, {name}
        if isinstance(let.value, Cast | Select) or (body and isinstance(let.value, Binary)):
            begin, taken = self._operands(let, end - 1, depth)
            if isinstance(let.value, Binary) or taken.issuperset(self._loaded(let)):
                return begin, {*taken, name}
        return None

    def _loaded(self, let: Let) -> tuple[str, ...]:
        """What must be nested with a Cast or a Select that is nested: it is a Read behind casts and guards."""
        if isinstance(let.value, Select):
            inner = self.chains[let.name][-1].value
            return (let.value.cond, operands(inner)[1])
        return operands(let.value)

    def _select(self, let: Let, end: int, depth: int) -> tuple[int, set[str]]:
        row = self._row(let)
        for length in range(len(row), 0, -1):
            inner = row[length - 1].value
            assert isinstance(inner, Select)
            begin, taken = end - length + 1, {each.name for each in row[1:length]}
            for name in (inner.other, inner.then):
                found = self._nest(name, begin, depth + 1)
                if found is not None:
                    begin = found[0]
                    taken |= found[1]
            conds = [each.value.cond for each in row[:length]]  # type: ignore[union-attr]
            for name in reversed(conds):
                found = self._nest(name, begin, depth + 1)
                if found is not None:
                    begin = found[0]
                    taken |= found[1]
            if length == 1 or taken.issuperset(conds):
                self.chains[let.name] = row[:length]
                return begin, taken
        raise AssertionError(let)

    def _row(self, let: Let) -> list[Let]:
        """The row of Selects that ``let`` ends: each guarded by indices alone, with one ``other``, without a view."""
        row = [let]
        while True:
            value = row[-1].value
            assert isinstance(value, Select)
            place = self.place[value.then]
            inner = self.lets[place]
            same = isinstance(inner.value, Select) and inner.value.other == value.other
            conds = (value.cond, inner.value.cond) if isinstance(inner.value, Select) else ()
            if (
                not same
                or place != self.place[row[-1].name] - 1
                or self.uses[inner.name] != 1
                or not self._anonymous(inner.name)
                or operands(self.shown[row[-1].name].value)[1:] != (value.then, value.other)
                or not all(isinstance(self.lets[self.place[cond]].value, Within) for cond in conds)
            ):
                return row
            row.append(inner)


class _Writer:
    def __init__(self, region: Region) -> None:
        self.source = region
        self.explicit = explicit(region)
        self.lets = {let.name: let for let in self.explicit.lets}
        self.nesting = Nesting(region, self.explicit)
        self.axes = tuple(_axes(region))
        self.sizes = {axis.name: axis.size for axis in self.axes}

    def region(self) -> dict[str, Any]:
        region = self.source
        bound = self.axes[len(region.iters) :]
        data: dict[str, Any] = {"name": region.name, "iters": [_axis(axis) for axis in region.iters]}
        if bound:
            data["reduce_axes"] = [_axis(axis) for axis in bound]
        data["inputs"] = [{"name": ref.name, "memref": _memref(ref)} for ref in region.inputs]
        data["outputs"] = [
            {
                "name": ref.name,
                "memref": _memref(ref),
                "materialize": "deferred" if ref.name in region.deferred else "gmem",
            }
            for ref in region.outputs
        ]
        hidden = self.nesting.inline | self.nesting.casts
        lets = [let for let in region.lets if let.name not in hidden]
        views = dict.fromkeys(item.value for item in self.explicit.yields)
        lets += [
            self.lets[name] for name in views if isinstance(self.lets[name].value, BroadcastInDim | Transpose)
        ]
        data["lets"] = [
            {"let": let.name, "dtype": let.dtype.value, "expr": self.expr(self.lets[let.name])}
            for let in lets
        ]
        data["yield"] = [self.stored(item.value, item.to) for item in self.explicit.yields]
        return data

    def stored(self, name: str, to: str) -> dict[str, Any]:
        value = self.lets[name].value
        if name in self.nesting.casts and isinstance(value, Cast):
            return {"from": value.x, "to": to, "cast": self.lets[name].dtype.value}
        return {"from": name, "to": to}

    def operand(self, name: str, bare: bool = False) -> Any:
        """An operand of an explicit let. ``bare``: its place tells its dtype, so a number needs none."""
        let = self.lets[name]
        if isinstance(let.value, Const) and name in self.nesting.inline:
            return _number(let.value.bits, let.dtype, bare)
        if name in self.nesting.inline or isinstance(let.value, BroadcastInDim | Transpose):
            return self.expr(let)
        return name

    def several(self, *names: str) -> list[Any]:
        """Operands of one dtype; where all of them are numbers the first says which."""
        numbers = [name in self.nesting.inline and isinstance(self.lets[name].value, Const) for name in names]
        return [self.operand(name, bare=n > 0 or not all(numbers)) for n, name in enumerate(names)]

    def expr(self, let: Let) -> dict[str, Any]:
        match let.value:
            case Read(tensor, index_map):
                return {"read": {"tensor": tensor, "map": [str(index) for index in index_map]}}
            case Const(bits):
                return dict(_number(bits, let.dtype, bare=False))
            case Within():
                return {"and": _conditions(let.value)}
            case Unary(op, x):
                return {op.lower(): [self.operand(x)]}
            case Cast(x):
                return {"cast": {"operand": self.operand(x), "to": let.dtype.value}}
            case Binary(op, x, y):
                return {op.lower(): self.several(x, y)}
            case Select():
                return {"select": self.select(let)}
            case Reduce(op, axes, body):
                init = finite(neutral(op, let.dtype))
                names = [axis.name for axis in axes]
                given = {"op": op.lower(), "axes": names, "init": init, "dtype": let.dtype.value}
                return {"reduce": {**given, "body": self.operand(body, bare=True)}}
            case Stream(axes, score, weight, scale, rounded):
                parts = {"score": score, "weight": weight, "scale": scale}
                shown = {key: self.operand(name, bare=True) for key, name in parts.items()}
                shown |= {} if rounded is None else {"rounded": rounded.value}
                return {"stream": {"axes": [axis.name for axis in axes], "dtype": let.dtype.value, **shown}}
            case BroadcastInDim(x, wide, places):
                shape = [self.sizes[axis] for axis in wide]
                view = {
                    "operand": self.operand(x),
                    "result_shape": shape,
                    "broadcast_dimensions": list(places),
                }
                return {"BroadcastInDim": view}
            case Transpose(x, permutation):
                return {"Transpose": {"operand": self.operand(x), "permutation": list(permutation)}}

    def select(self, let: Let) -> dict[str, Any]:
        row = self.nesting.chains[let.name]
        inner = self.lets[row[-1].name].value
        assert isinstance(inner, Select)
        conds = [self.lets[each.value.cond] for each in row]  # type: ignore[union-attr]
        if all(cond.name in self.nesting.inline and isinstance(cond.value, Within) for cond in conds):
            pred: Any = {"and": [each for cond in conds for each in _conditions(cond.value)]}
        else:
            pred = self.operand(inner.cond, bare=True)
        then, other = self.several(inner.then, inner.other)
        return {"pred": pred, "then": then, "else": other}


def _conditions(value: Value) -> list[dict[str, Any]]:
    assert isinstance(value, Within)
    return [{"ge": [str(value.index), value.lo]}, {"lt": [str(value.index), value.hi]}]


def _axes(region: Region) -> Iterator[Axis]:
    """All axes, iters first, each once."""
    loops = (let.value for let in region.lets if isinstance(let.value, Reduce | Stream))
    yield from dict.fromkeys((*region.iters, *(axis for loop in loops for axis in loop.axes)))


def _axis(axis: Axis) -> dict[str, Any]:
    return {"name": axis.name, "size": axis.size}


def _memref(ref: MemRef) -> dict[str, Any]:
    layout: dict[str, Any] = {"kind": ref.layout.kind}
    if ref.layout.params:
        layout["params"] = dict(ref.layout.params)
    return {
        "dtype": ref.dtype.value,
        "shape": list(ref.shape),
        "alignment": ref.alignment,
        "noalias": ref.noalias,
        "layout": layout,
    }


def _number(bits: int, dtype: DType, bare: bool) -> Any:
    """A constant: the shortest number that has these bits in ``dtype``. A NaN with a payload says its bits."""
    value = from_bits(bits, dtype)
    if isinstance(value, float) and np.isfinite(value):
        short = float(str(dtype.numpy.type(value)))
        value = short if to_bits(short, dtype) == bits else value
    if value != value and bits != to_bits(float("nan"), dtype):
        return {"const": "nan", "dtype": dtype.value, "bits": f"{bits:#x}"}
    return finite(value) if bare else {"const": finite(value), "dtype": dtype.value}
