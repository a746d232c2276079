"""What the machine of an instance has in numbers: that of tinyc's table, or less. A rule is true on any machine, and where
little is to be had, guards decide that otherwise do for a few sizes in a million."""

from __future__ import annotations

import random
from collections.abc import Mapping

from tinyc.egraph.encode import machine_limits
from tinyc.ir.resources import LIMITS

from .context import Context
from .parse import Lit, Schema
from .steps import Case

MACHINES = ("sm80", "sm90", "cpu")

SCARCE = ("smem", "threads", "registers", "registers-per-sm", "multiprocessors")
"""What there may be less of."""


def machines_for(schema: Schema, case: Case) -> tuple[str, ...]:
    """Those that an instance of a case can be about; all of them where there is none."""
    if "machines" not in case.memo:
        case.memo["machines"] = tuple(each for each in MACHINES if _suits(schema, case, each)) or MACHINES
    found: tuple[str, ...] = case.memo["machines"]
    return found


def _suits(schema: Schema, case: Case, machine: str) -> bool:
    """Whether what a case says of its machine can be true of this one: the tables in which it looks it up have a row for it."""
    for step in case.steps:
        if step.args[:1] == (Lit("unit"),) and machine == "cpu":
            return False
        if step.args[:1] != (Lit("machine"),):
            continue
        named = step.args[1]
        if isinstance(named, Lit):
            if named.value != machine:
                return False
            continue
        for table, position in case.uses[named.name]:
            rows = schema.facts.get(table.head, ()) if table.kind == "relation" else ()
            if rows and machine not in {row[position] for row in rows}:
                return False
    return True


def limits_of(context: Context) -> Mapping[str, int]:
    """By the names that rules give them."""
    return {**machine_limits(LIMITS[context.machine]), **context.limits}


def less(machine: str, rng: random.Random) -> dict[str, int]:
    """Of one or two things or of none, down to a sixteenth; of what there may be one alone, down to that."""
    found = machine_limits(LIMITS[machine])
    most = {"multiprocessors": 7}
    scarce = rng.sample(SCARCE, rng.randint(0, 2))
    return {name: round(found[name] * 2 ** -rng.uniform(0, most.get(name, 4))) for name in scarce}
