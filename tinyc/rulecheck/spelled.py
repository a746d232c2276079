"""Vectors and sets that a rule spells: ``(Reduce op (vec-of a b) x)``, ``(Reshape x (vec-append s (vec-of 1)))``.

What a vector is for says which it may be, and hardly any numbers or indices at random make one of those. So it is chosen first, and
its parts are read off.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING

from .parse import Lit, Var
from .term import Value

if TYPE_CHECKING:
    from .bindings import Bindings
    from .instantiate import Attempt
    from .parse import Schema
    from .steps import Arg, Case, Step

SPELLING = frozenset(["vec-of", "vec-push", "vec-append"])
"""Primitives that make a vector of its parts, which can be read off it again."""

SPELLINGS = 12
"""Vectors that are drawn for one that the rule can spell."""

ALIKE = frozenset(["vec-append", "set-union", "set-intersect", "set-diff"])
"""Primitives whose operands and result are of one sort."""

CHANGED = frozenset(["vec-push", "vec-set", "vec-pop", "vec-remove", "set-insert", "set-remove"])
"""Primitives whose first operand and result are of one sort."""

ELEMENTS: Mapping[str, int] = {
    **dict.fromkeys(["vec-push", "vec-contains", "vec-not-contains", "set-insert", "set-remove"], 1),
    **dict.fromkeys(["set-contains", "set-not-contains"], 1),
    "vec-set": 2,
}
"""Where an element of the first operand stands."""


def learn_elements(schema: Schema, steps: Sequence[Step], sorts: MutableMapping[str, str]) -> None:
    """The sorts of elements, of the sorts of what they are in, and the other way round along equal containers."""
    before = -1
    while before < len(sorts):
        before = len(sorts)
        for step in steps:
            if step.kind == "primitive":
                _learn(schema, step, sorts)


def _learn(schema: Schema, step: Step, sorts: MutableMapping[str, str]) -> None:
    alike: list[Arg | None] = []
    container: Arg | None = step.args[0] if step.args else None
    elements: Iterable[Arg | None] = ()
    if step.head in ("vec-of", "set-of"):
        container, elements = step.out, step.args
    elif step.head in ("vec-get", "set-get"):
        elements = [step.out]
    elif step.head in ELEMENTS:
        elements = step.args[ELEMENTS[step.head] :]
    if step.head in ALIKE:
        alike = [*step.args, step.out]
    elif step.head in CHANGED:
        alike = [container, step.out]
    known = next((sort for each in alike if (sort := _sort(each, sorts))), "")
    for each in alike:
        if isinstance(each, Var) and known:
            sorts.setdefault(each.name, known)
    declared = schema.sorts.get(_sort(container, sorts), ())
    for each in elements:
        if isinstance(each, Var) and len(declared) > 1:
            sorts.setdefault(each.name, declared[1])


def _sort(arg: Arg | None, sorts: Mapping[str, str]) -> str:
    return sorts.get(arg.name, "") if isinstance(arg, Var) else ""


def spelled(case: Case) -> Mapping[str, Step]:
    """Vectors of a case that are spelled with parts which nothing else gives, each with how. The index of a view is spelled in
    terms of its axes, and the shape of the view follows it."""
    if "spelled" not in case.memo:
        found: dict[str, Step] = {}
        for step in reversed(case.steps):
            if step.head in SPELLING and isinstance(step.out, Var) and step.out.name in case.sorts:
                name = step.out.name
                viewed = case.maps and any(
                    use.head == "View" and position in (1, 2) for use, position in case.uses.get(name, ())
                )
                if not viewed and any(_loose(case, each, found) for each in step.args):
                    found[name] = step
        case.memo["spelled"] = found
    result: Mapping[str, Step] = case.memo["spelled"]
    return result


def _loose(case: Case, part: Arg, found: Mapping[str, Step]) -> bool:
    """Whether a part of a vector is a variable that no step gives, or a vector that is spelled itself."""
    return isinstance(part, Var) and (part.name not in case.produced or part.name in found)


def parts(case: Case) -> frozenset[str]:
    """Variables that are read off a vector that is spelled with them."""
    if "parts" not in case.memo:
        case.memo["parts"] = frozenset(
            each.name for step in spelled(case).values() for each in step.args if isinstance(each, Var)
        )
    result: frozenset[str] = case.memo["parts"]
    return result


def factored(env: Bindings, step: Step, count: int, rng: random.Random) -> tuple[int, ...] | None:
    """A shape of so many points, spelled with some extents and others that are free; None where there is none."""
    if step.head != "vec-of":
        return None
    known = [env.get(each) if env.bound(each) else 0 for each in step.args]
    rest = count // (math.prod(filter(None, known)) or 1)
    free = [at for at, each in enumerate(known) if not each]
    for at in free[:-1]:
        known[at] = rng.choice([each for each in range(1, min(rest, 64) + 1) if rest % each == 0] or [1])
        rest //= known[at]
    if free:
        known[free[-1]] = rest
    return tuple(known) if math.prod(known) == count else None


def spelled_so(
    attempt: Attempt, how: Step, drawn: Iterable[Value], uses: Sequence[tuple[Step, int]]
) -> Value | None:
    """One of some vectors that the rule can spell, or a shape that it spells of as many points as what is reshaped; None where there
    is none."""
    found: Value | None = next((each for each in drawn if fits(attempt, how, each)), None)
    for step, position in uses if found is None else ():
        if (step.head, position) == ("Reshape", 1) and attempt.bound(step.args[0]):
            points = math.prod(attempt.world.facts.shape(attempt.get(step.args[0])) or ())
            found = factored(attempt, how, points, attempt.rng)
    return found


def template(case: Case, arg: Arg, rng: random.Random) -> tuple[int, ...] | None:
    """A shape like one that the rule spells, with small extents in the place of variables; None where it spells none."""
    step = next(
        (each for each in case.steps if each.head == "vec-of" and each.out == arg and isinstance(arg, Var)),
        None,
    )
    if step is None or not any(isinstance(each, Lit) for each in step.args):
        return None
    sizes = (each.value if isinstance(each, Lit) else rng.choice((1, 2, 3)) for each in step.args)
    return tuple(each for each in sizes if isinstance(each, int))


def fits(env: Bindings, step: Step, value: Sequence[Value]) -> bool:
    """Whether a vector can be what a step makes of its parts, as far as these are known."""
    if step.head == "vec-of":
        pairs = list(zip(step.args, value, strict=False))
        return len(value) == len(step.args) and all(not env.bound(a) or env.get(a) == v for a, v in pairs)
    if step.head == "vec-push":
        return bool(value) and (not env.bound(step.args[1]) or env.get(step.args[1]) == value[-1])
    known = [env.get(each) for each in step.args if env.bound(each)]
    return sum(map(len, known)) <= len(value)


def apart(env: Bindings, step: Step, value: Value, rng: random.Random) -> Sequence[tuple[Arg, Value]] | None:
    """The parts of a vector that a step makes of them; None where it makes no such one."""
    if not isinstance(value, tuple) or not fits(env, step, value):
        return None
    match step.head:
        case "vec-of":
            return list(zip(step.args, value, strict=True))
        case "vec-push":
            return list(zip(step.args, (value[:-1], value[-1]), strict=True))
        case _:
            sizes = [len(env.get(each)) if env.bound(each) else -1 for each in step.args]
            rest = len(value) - sum(each for each in sizes if each > 0)
            unknown = [at for at, each in enumerate(sizes) if each < 0]
            for at in unknown[:-1]:  # any way of cutting it
                sizes[at] = rng.randint(0, rest)
                rest -= sizes[at]
            sizes[unknown[-1]] = rest
            ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
            cut = [value[end - size : end] for size, end in zip(sizes, ends, strict=True)]
            return list(zip(step.args, cut, strict=True))
