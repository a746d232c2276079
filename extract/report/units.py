"""Numbers as people read them: three or four digits and a unit."""

from __future__ import annotations

import math


def amount(value: float) -> str:
    """A count with a decimal prefix: ``2.77 M``; the unit goes behind it."""
    for limit, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.2f} {unit}"
    return f"{value:.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:.2f}"


def seconds(value: float) -> str:
    """A time: ``4.08 us``, ``0`` for less than can be shown."""
    if not math.isfinite(value) or abs(value) < 5e-12:
        return f"{value:g}" if not math.isfinite(value) else "0"
    for limit, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(value) >= limit:
            return f"{value / limit:.2f} {unit}"
    return f"{value * 1e6:.2f} us" if abs(value) >= 1e-7 else f"{value * 1e9:.2f} ns"


def change(value: float) -> str:
    """A difference of times, with its sign."""
    return f"{'+' if value >= 0 else '-'}{seconds(abs(value))}"


def share(value: float) -> str:
    """A part of a whole in percent."""
    return f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.1%}"
