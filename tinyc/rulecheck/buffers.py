"""Which tensors may be a buffer, and which are worth one: predicates of rules/meanings.egg. Worth is a matter of cost, so
it is policy; its numbers are those of rules/bounds.egg and rules/layout.egg, as a test says.

What an instance assumes of opaque tensors is noted (:meth:`Context.note`); what a rule then claims is held against the notes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .context import LEVEL
from .term import Term

if TYPE_CHECKING:
    from .world import World

ELEMENTWISE = ("TUnary", "TBinary", "TWhere", "TCast")
LONG = 32
"""Operations in an index that is written out."""
WIDEST = 128
"""Times the points of its operand that a view of windows reads."""
FILTERS = 256
"""Filters for which patches are copied."""


def buffer(world: World, t: Term) -> bool:
    """It has a shape and a dtype."""
    world.facts.dtype(t)
    return world.facts.shape(t) is not None


def worth(world: World, t: Term) -> bool:
    """Arithmetic that fills its shape, what is read by long indices, a transposition that is read across, or patches."""
    return _told(world, "buffer", t) or _computed(world, t) or _turned(world, t) or _patches(world, t)


def source(world: World, t: Term) -> bool:
    """In memory, or computed from element to element."""
    if t.head in ELEMENTWISE:
        return worth(world, t)
    return t.head == "Input" or _told(world, "source", t)


def windows(world: World, t: Term) -> bool:
    """Every element of a view that reads more points than its operand has, in some order."""
    facts = world.facts
    match t.head:
        case "View":
            now, was = math.prod(facts._of(t)), math.prod(facts._of(t.args[0]))
            return was < now <= WIDEST * was
        case "Permute" | "Reshape":
            return windows(world, t.args[0])
    return _told(world, "windows", t)


def _told(world: World, what: str, t: Term) -> bool:
    """Whether the instance assumes it of an opaque tensor."""
    if t not in world.context.leaves:
        return False
    world.context.note(what, (t,))
    return not world.context.complete or (t,) in world.context.noted(what)


def _computed(world: World, t: Term) -> bool:
    """Arithmetic, but no mere broadcast, and no cast that only widens."""
    if t.head == "TReduce":
        return True
    return t.head in ELEMENTWISE and world.facts.solid(t) and (t.head != "TCast" or t.args[0] != "fp32")


def _turned(world: World, t: Term) -> bool:
    """Read along its own last axis, which is not the last of its operand, or by long indices."""
    facts = world.facts
    for each in world.built:
        if each.head != "At" or each.args[0] != t:
            continue
        index = each.args[1]
        if t.head in ("Reshape", "View") and facts.ops_upto(index) > LONG:
            return True
        if t.head != "Permute" or len(index) < 2:
            continue
        x, perm, _ = t.args
        top = facts.top(index[-1])
        last = top == max(map(facts.top, index)) and 0 <= top < LEVEL
        across = perm[-1] != len(index) - 1 and facts._of(x)[-1] > 1
        if across and (last or world.context.loose) and source(world, x):
            return True
    return False


def _patches(world: World, t: Term) -> bool:
    """Windows that are multiplied with many filters."""
    wide = [each.args[0] for each in world.built if each.head == "Expand" and each.args[2] >= FILTERS]
    return any(each in (t, Term("TCast", (each.args[0], t))) for each in wide) and windows(world, t)
