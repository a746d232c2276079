"""The value of an index term at points, as exact integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyc.ir.numeric import Array

from .terms import Term


class NoMeaning(Exception):
    """A constructor of a user's, whose value is not known here."""


Lookup = Callable[[int, int], Array]
"""The values of an axis, by id and extent."""


def evaluate(term: Term, lookup: Lookup) -> Array:
    """Of an Ix or Atom, int64. Raises NoMeaning for a constructor of a user's."""
    match term.op, term.args:
        case "Lit", (int(value),):
            return np.asarray(value, np.int64)
        case "Ax", (int(id), int(extent)):
            return lookup(id, extent)
        case "Plus", (int(factor), Term() as atom, Term() as rest):
            return np.asarray(factor * evaluate(atom, lookup) + evaluate(rest, lookup))
        case "IAdd", (Term() as left, Term() as right):
            return np.asarray(evaluate(left, lookup) + evaluate(right, lookup))
        case "IScale", (int(factor), Term() as index):
            return np.asarray(factor * evaluate(index, lookup))
        case (("FloorDiv" | "IDiv" | "DivEnd"), (Term() as index, int(den))) if den > 0:
            return np.asarray(evaluate(index, lookup) // den)
        case "DivAcc", (Term() as kept, Term() as todo, int(den)) if den > 0:
            return np.asarray((evaluate(kept, lookup) + evaluate(todo, lookup)) // den)
        case "Subst", (Term() as vector, Term() as index):
            parts = vector.operands()
            return evaluate(index, lambda id, _: evaluate(parts[id], lookup))
        case "Ravel", (Term() as vector, Term() as shape, int(count)):
            offset = np.asarray(0, np.int64)
            for part, size in zip(vector.operands()[:count], shape.args, strict=False):
                offset = np.asarray(offset * size + evaluate(part, lookup))  # type: ignore[operator]
            return offset
    raise NoMeaning(term.op)
