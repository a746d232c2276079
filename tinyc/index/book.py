"""IndexBook (document 004 §4): for every value its axes, its domain and how it reads its inputs. Data only.

Index expressions are texts over the value's axes ``i0, i1, …``, its reduce axes ``r0, r1, …`` and the program's
symbols, in the notation of ``tinyc.ir.dims``: sums, products with a number or a symbol, ``//`` by a positive integer.
``%`` never appears. Where a map is not affine (a symbolic stride), its value is marked ``non_scop``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tinyc.ir.tiny import Dim, Imm

Kind = Literal["iter", "reduce", "broadcast"]
NON_SCOP = "non_scop"


@dataclass(frozen=True, slots=True)
class AxisVar:
    """An axis of a value: ``0 <= name < size``. ``id``: unique in the book; a reduce axis keeps the id that it had in
    the value that is reduced. ``kind``: ``broadcast`` for an axis along which every input repeats."""

    id: int
    name: str
    size: Dim
    kind: Kind


@dataclass(frozen=True, slots=True)
class Access:
    """The element of ``value_id`` that is read: one expression per axis of that value, over axes and reduce axes."""

    value_id: str
    map: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a domain. ``constraints``: pairs such as ``("0<=i0", "i0<M")``, all of which hold there; what no
    earlier piece holds is the last piece, computed by isl. ``inputs``: what is read there; ``value``: the constant that
    stands there where nothing is read (the border of a PAD), else None."""

    constraints: tuple[tuple[str, ...], ...]
    inputs: tuple[Access, ...] = ()
    value: Imm | None = None


@dataclass(frozen=True)
class IndexInfo:
    """What the book knows of one value.

    ``inputs``: one access per operand that is a value, in operand order, composed through the movement between:
    an access leads to an INPUT, to a computed value, or to a PAD (whose own entry has the pieces).
    ``pieces``: one where the domain is the plain box; the border of a PAD is a piece of its own.
    ``reduced``: the axes that a REDUCE removed, as ``r0, r1, …``; their ids are those before the removal.
    ``chain_pieces``: into how many pieces the movement up to here cuts the value's index space, this one included.
    """

    value_id: str
    axes: tuple[AxisVar, ...]
    pieces: tuple[Piece, ...]
    inputs: tuple[Access, ...] = ()
    reduced: tuple[AxisVar, ...] = ()
    flags: frozenset[str] = frozenset()
    chain_pieces: int = 1

    @property
    def reduce_axes(self) -> tuple[int, ...]:
        return tuple(axis.id for axis in self.reduced)


@dataclass(frozen=True)
class IndexBook:
    """``values``: in the order of the program. ``symbols``: the signature's, the only ones that occur."""

    values: Mapping[str, IndexInfo]
    symbols: tuple[str, ...] = ()
