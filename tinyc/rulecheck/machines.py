"""What the machine of an instance has in numbers: that of tinyc's table, or less. A rule is true on any machine, and where
little is to be had, guards decide that otherwise do for a few sizes in a million."""

from __future__ import annotations

import random
from collections.abc import Mapping

from tinyc.egraph.encode import machine_limits
from tinyc.ir.resources import LIMITS

from .context import Context

SCARCE = ("smem", "threads", "registers", "registers-per-sm", "multiprocessors")
"""What there may be less of."""


def limits_of(context: Context) -> Mapping[str, int]:
    """By the names that rules give them."""
    return {**machine_limits(LIMITS[context.machine]), **context.limits}


def less(machine: str, rng: random.Random) -> dict[str, int]:
    """Of some of it, down to a sixteenth."""
    found = machine_limits(LIMITS[machine])
    return {name: round(found[name] * 2 ** rng.uniform(-4, 0)) for name in SCARCE if rng.random() < 0.5}
