"""What the guards of a rule say of an instance that is only begun."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .context import IllFormed
from .parse import Lit, Var
from .predicates import PLAIN, VALUES, holds, value_of
from .primitives import Fails, compute
from .steps import Step
from .term import Value

if TYPE_CHECKING:
    from .world import World

GUARDS = ("primitive", "predicate")
"""Kinds of steps that may exclude a value."""

FOLLOW = ("cut", "fit", "limit", "unit")
"""Values that are cheap, and that guards are about."""


def room(
    world: World, env: dict[str, Value], guards: Sequence[Step], close: Step | None = None
) -> float | None:
    """By how much a number may be another at one guard, ``close``, for some values; None where some guard is false of them. What
    they decide is added to ``env``."""
    found = math.inf
    known = env.keys()
    moved = True
    try:
        while moved:
            moved = False
            rest = []
            for step in guards:
                if step.kind == "predicate" and _follows(world, step, env):
                    moved = True
                if not known >= step.needs:
                    rest.append(step)
                    continue
                args = tuple([arg.value if isinstance(arg, Lit) else env[arg.name] for arg in step.args])
                moved = True
                if step.kind == "predicate":
                    if (args[0] in VALUES or args[0] in PLAIN) and not holds(world, args):
                        return None
                elif not _holds(world, step, args, env):
                    return None
                elif step is close:
                    low, high = map(int, args)
                    found = abs(low - high)
            guards = rest
    except (Fails, IllFormed):
        return None
    return found


def _holds(world: World, step: Step, args: tuple[Value, ...], env: dict[str, Value]) -> bool:
    """Whether a primitive has the value that it is said to have; where none is known, it is now. Raises Fails."""
    result = compute(step.head, args, world.build)
    if isinstance(step.out, Var) and step.out.name not in env:
        env[step.out.name] = result
    elif step.out is not None:
        old = step.out.value if isinstance(step.out, Lit) else env[step.out.name]
        return not isinstance(old, int) or old == result
    return True


def _follows(world: World, step: Step, env: dict[str, Value]) -> bool:
    """Whether the last argument of a predicate follows from the others, and is now known. Raises Fails."""
    *args, last = step.args
    if (
        not isinstance(last, Var)
        or last.name in env
        or not isinstance(args[0], Lit)
        or args[0].value not in FOLLOW
    ):
        return False
    if not all(isinstance(arg, Lit) or arg.name in env for arg in args):
        return False
    name, *values = (arg.value if isinstance(arg, Lit) else env[arg.name] for arg in args)
    found = value_of(world, str(name), tuple(values))
    if found is None:
        raise Fails("it has no value there")
    env[last.name] = found
    return True
