"""Words that a rule spells and that stand in no list of those that there are: what speaks of them matches nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tinyc.egraph.encode import machine_limits
from tinyc.ir.resources import LIMITS

from .machines import MACHINES
from .parse import Call, Lit, Rule, Schema, calls
from .plan import is_table
from .predicates import CHOICES, KINDS

NAMES: Mapping[tuple[str, int], frozenset[str]] = {
    ("target-machine", 0): frozenset(MACHINES),
    ("limit-of", 0): frozenset(name for each in MACHINES for name in machine_limits(LIMITS[each])),
    ("Product", 0): frozenset(KINDS),
    ("Product", 9): frozenset(map(str, CHOICES["along"])),
}
"""Word and place -> what may stand there, of words that are no tables."""


def unlisted(rule: Rule, schema: Schema) -> Iterator[str]:
    """Strings in the body of a rule, each with the list in which it is not."""
    for call in (call for fact in rule.body for call in calls(fact)):
        for position, arg in enumerate(call.args):
            if isinstance(arg, Lit) and isinstance(arg.value, str):
                known = _known(schema, call, position)
                if known is not None and arg.value not in known:
                    yield f'"{arg.value}" stands in no row of {call.head}: it has {", ".join(sorted(known))}'


def _known(schema: Schema, call: Call, position: int) -> frozenset[str] | None:
    """The strings that there are in a place; None where there may be any."""
    if call.head in schema.relations and is_table(schema, call.head):
        rows = schema.facts[call.head]
        return frozenset(str(row[position]) for row in rows if position < len(row))
    return NAMES.get((call.head, position))
