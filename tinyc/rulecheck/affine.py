"""Index rules over all integers: what an instance claims about opaque indices is proven, or refuted, with isl.

Coefficients and divisors are numbers of the instance; opaque indices and atoms are parameters without bounds (or within the
bounds that the instance assumes), axes are parameters within their extents. So a proof covers what no list of points can.
"""

from __future__ import annotations

from tinyc.index.integers import sample
from tinyc.index.sets import TooComplex

from .compare import Outcome
from .context import IllFormed
from .facts import Facts
from .term import Term

BOUNDS = ("low", "high", "atom-low", "atom-high")
"""Facts that bound an index or an atom."""


class Unsupported(Exception):
    """No affine expression."""


class Affine:
    """Indices of one instance as isl text. ``bounded``: leaves whose assumed bounds may be used."""

    def __init__(self, facts: Facts, bounded: frozenset[Term]) -> None:
        self.facts, self.bounded = facts, bounded
        self.names: dict[Term, str] = {}

    def text(self, index: Term, env: tuple[Term, ...] | None = None) -> str:
        """An index or atom; with ``env`` axis k is element k of it."""
        match index.head, index.args:
            case "Lit", (value,):
                return f"({value})"
            case "Plus", (coef, atom, rest):
                return f"({coef}*{self.text(atom, env)} + {self.text(rest, env)})"
            case "Ax", (number, _) if env is not None:
                if number >= len(env):
                    raise Unsupported
                return self.text(env[number])
            case (("Ax" | "?Ix" | "?Atom"), _):
                if env is not None:
                    raise Unsupported
                return self.names.setdefault(index, f"x{len(self.names)}")
            case (("FloorDiv" | "IDiv" | "DivEnd"), (x, divisor)):
                return f"floor({self.text(x, env)}/{divisor})"
            case "DivAcc", (kept, todo, divisor):
                return f"floor(({self.text(kept, env)} + {self.text(todo, env)})/{divisor})"
            case "IAdd", (x, y):
                return f"({self.text(x, env)} + {self.text(y, env)})"
            case "IScale", (factor, x):
                return f"({factor}*{self.text(x, env)})"
            case "Subst", (vector, x) if env is None:
                return self.text(x, vector)
            case "Ravel", (vector, shape, count):
                offset = "0"
                for each, size in zip(vector[:count], shape[:count], strict=True):
                    offset = f"({size}*{offset} + {self.text(each, env)})"
                return offset
        raise Unsupported

    def refuted(self, claim: str) -> dict[str, int] | None:
        """A point at which ``claim``, over texts of this instance, is false; None where there is none. Raises TooComplex."""
        limits = []
        for term, name in self.names.items():
            if term.head == "Ax":
                limits.append(f"0 <= {name} < {term.args[1]}")
            elif term in self.bounded:
                leaf = self.facts.context.leaves[term]
                limits.append(f"{leaf.low} <= {name} <= {leaf.high}")
        held = " and ".join([*limits, f"not ({claim})"])
        point = sample(tuple(self.names.values()), held)
        return None if point is None else dict(zip(map(repr, self.names), point, strict=True))


def equal(affine: Affine, a: Term, b: Term) -> Outcome | None:
    """The outcome of ``a == b`` for indices; None where isl cannot say, or not soon."""
    try:
        left, right = affine.text(a), affine.text(b)
        point = affine.refuted(f"{left} = {right}")
    except (Unsupported, IllFormed, TooComplex):
        return None
    return _outcome(point, "two indices differ", repr(a), repr(b))


def bound(affine: Affine, name: str, index: Term, value: int) -> Outcome | None:
    """The outcome of the claim that ``value`` is a lower or upper bound of an index."""
    try:
        text = affine.text(index)
        point = affine.refuted(f"{text} {'>=' if name.endswith('low') else '<='} {value}")
    except (Unsupported, IllFormed, TooComplex):
        return None
    return _outcome(point, f"it is no bound of {index!r}", repr(index), str(value))


def _outcome(point: dict[str, int] | None, why: str, left: str, right: str) -> Outcome:
    if point is None:
        return Outcome("EXACT", frozenset(["isl"]))
    values = tuple((name, str(value)) for name, value in point.items())
    return Outcome("", frozenset(["isl"]), why, left, right, values)
