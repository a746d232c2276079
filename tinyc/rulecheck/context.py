"""One instance of a rule: its opaque values, and what is assumed of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .term import Term, Value

PRIME = 2147483647
MANY = 2147483647
"""Points of an index are counted up to here."""
DTYPES = ("fp32", "fp16", "bf16", "i32", "bool")
BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "i32": 32, "bool": 1}
"""Of a constant of each dtype."""

LEVEL = 16
"""Ids of one level of nesting."""

TAPS = 33
INFINITY = 2139095040
"""The bits of fp32 infinity."""


class IllFormed(Exception):
    """A term that no program has; says why."""


class BadBinder(IllFormed):
    """A reduction over something else than axes, each once."""


class Reject(Exception):
    """These choices make no instance."""


@dataclass(frozen=True)
class Leaf:
    """An opaque value. ``shape``: of a tensor or buffer; ``axes``: those that an expression may depend on. ``elements``: what
    a tensor is made of, where the rule says: an expression, over ``axes`` in the order of the tensor's.
    ``taps``, ``solid``, ``fusible``: what the facts of these names say about it."""

    name: str
    dtype: str = "fp32"
    shape: tuple[int, ...] = ()
    axes: tuple[Term, ...] = ()
    taps: int = 1
    solid: bool = True
    low: int = 0
    high: int = 0
    elements: Term | None = None


@dataclass
class Context:
    """One instance: its leaves, the buffers that inputs are, outputs and parameters of the program, and assumptions.
    ``rows``: of tables, that it speaks of. ``lenient``: whether what it asks for need not keep to the policy of its words.

    ``machine``: what is compiled for. ``limits``: what it has less of than the table says. ``depth``: how deep reductions nest at most, if the instance says. ``assumed``: values of facts that were chosen looser than :class:`Facts` would have them.
    """

    leaves: dict[Term, Leaf] = field(default_factory=dict)
    assumed: dict[tuple[str, tuple[Value, ...]], Value] = field(default_factory=dict)
    outputs: dict[int, Term] = field(default_factory=dict)
    machine: str = "sm80"
    limits: dict[str, int] = field(default_factory=dict)
    depth: int | None = None
    loose: bool = False
    lenient: bool = False
    rows: dict[str, list[tuple[Value, ...]]] = field(default_factory=dict)
    notes: dict[str, list[tuple[Value, ...]]] = field(default_factory=dict)
    complete: bool = False

    def note(self, what: str, row: tuple[Value, ...]) -> None:
        """Keeps what is assumed while the instance is made; later claims are not assumptions."""
        if not self.complete and row not in self.notes.setdefault(what, []):
            self.notes[what].append(row)

    def noted(self, what: str, *first: Value) -> list[tuple[Value, ...]]:
        """The rows that begin with ``first``, without it."""
        rows = self.notes.get(what, ()) if self.complete else ()
        return [row[len(first) :] for row in rows if row[: len(first)] == first]
