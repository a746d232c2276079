"""Values for the variables of a rule, one generator per sort: what a rule leaves open is opaque, or chosen from small to large."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .context import LEVEL, Leaf, Reject
from .factors import axes_of_factor, factor_of
from .numbers import Uses, bits_for, integer
from .parse import Var
from .prerequisites import PREREQUISITES
from .shapes import SHAPES, integers, shape_of_number
from .steps import Step
from .term import Term, Value, axis, lit, plain
from .wanted import merged, shape_wanted

if TYPE_CHECKING:
    from .instantiate import Attempt


# ---- one generator per sort -----------------------------------------------------------------------------------------


def _tensor(attempt: Attempt, name: str, uses: Uses) -> Term:
    rng, context = attempt.rng, attempt.world.context
    dtype = attempt.types.dtype(name)
    if any(step.head == "Pad" and position == 4 for step, position in uses):
        return _constant(attempt, "Imm", dtype)
    alike = [step for step, position in uses if step.head in ("TBinary", "TWhere") and step.kind == "term"]
    known_ = shape_wanted(attempt, name) if alike or rng.random() < 0.8 else None
    if alike and rng.random() < 0.12 and all(_of_more(attempt, step, name) for step in alike):
        return _constant(attempt, "Imm", dtype)
    if known_ is None:
        known_ = shape_of_number(attempt)
        if any((step.head, position) == ("Reshape", 0) for step, position in uses) and rng.random() < 0.3:
            known_ = merged(attempt, known_)
        known_ = attempt.stretched(name, known_)
    shape = known_
    term = Term("?Tensor", (name,))
    context.leaves[term] = Leaf(
        name, dtype, shape, taps=rng.choice((0, 1, 2, 5, 20, 32, 33)), solid=rng.random() < 0.6
    )
    return term


def _of_more(attempt: Attempt, step: Step, name: str) -> bool:
    """Whether an operation has operands beside one that may be more than immediates: no program has one of those alone."""
    others = [
        arg
        for arg in step.args
        if isinstance(arg, Var) and arg.name != name and attempt.case.sorts[arg.name] == "Tensor"
    ]
    return any(not attempt.bound(arg) or attempt.get(arg).head != "Imm" for arg in others)


def _constant(attempt: Attempt, head: str, dtype: str) -> Term:
    found = attempt.world.build(head, (dtype, bits_for(attempt, dtype)))
    assert isinstance(found, Term)
    return found


def _buffer(attempt: Attempt, name: str, uses: Uses) -> Term:
    term = Term("?Buf", (name,))
    attempt.world.context.leaves[term] = Leaf(name, attempt.types.dtype(name), shape_of_number(attempt))
    return term


def _expression(attempt: Attempt, name: str, uses: Uses) -> Term:
    rng = attempt.rng
    dtype = attempt.types.dtype(name)
    pool = list(attempt.axes())
    filled = [step for step, position in uses if step.head == "Fill" and position == 2]
    if filled and attempt.bound(filled[0].args[1]):
        sizes = [size for size in attempt.get(filled[0].args[1]) if size > 1]
        pool = [axis(each, size) for each, size in enumerate(sizes)]
    bound = {each for value in attempt.env.values() if isinstance(value, tuple)
             for each in attempt.world.facts.axes_of(tuple(v for v in value if isinstance(v, Term)))}  # fmt: skip
    kind = rng.random()
    factor = factor_of(attempt.case, name)
    told = [
        step.out
        for step, _ in uses
        if step.head == "free" and step.out is not None and attempt.bound(step.out)
    ]
    if told:
        axes = list(attempt.get(told[0]))
    elif factor is not None and kind < 0.9:
        axes = axes_of_factor(attempt, factor, pool, bound)
    elif kind < 0.2:
        axes = pool
    elif kind < 0.32:
        axes = [each for each in pool if each in bound]
    elif kind < 0.6:
        one = [each for each in pool if each not in bound and each.args[0] < 16]
        axes = [each for each in pool if each in bound or (one and each == rng.choice(one))]
    elif kind < 0.72:
        axes = [each for each in pool if each not in bound]
    elif kind < 0.78:
        axes = []
    elif kind < 0.86 and not filled:
        return _constant(attempt, "Const", dtype)
    else:
        axes = [each for each in pool if rng.random() < 0.5]
    term = Term("?Expr", (name,))
    attempt.world.context.leaves[term] = Leaf(
        name, dtype, axes=tuple(sorted(axes, key=lambda each: each.args))[:4]
    )
    return term


def _ix(attempt: Attempt, name: str, uses: Uses) -> Term:
    rng = attempt.rng
    if attempt.opaque:
        return _unknown(attempt, "?Ix", name)
    for each in attempt.case.produced.get(name, ()):
        if each.head == "IScale" and attempt.bound(
            each.args[0]
        ):  # a multiple of something, as its meaning says
            k = attempt.get(each.args[0])
            terms = [(k * rng.choice((1, 2, -1)), attempt.some_axis()) for _ in range(rng.randint(0, 2))]
            return attempt.total(terms, k * rng.choice((0, 0, 1, -2)))
        if each.head == "IScale" and name in attempt.case.cyclic:
            k = rng.choice((0, 2, 3, 4))
            return attempt.total([(k, attempt.some_axis())], k * rng.choice((0, 0, 1)))
    tail = next((step for step, position in uses if step.head == "Plus" and position == 2), None)
    if tail is not None and attempt.bound(tail.args[1]) and attempt.rng.random() < 0.7:
        # the rest of a sum: what comes after its first atom
        facts = attempt.world.facts
        first = facts.key(attempt.get(tail.args[1]))
        atoms = [*attempt.pool, *(attempt.atom() for _ in range(3))]
        later = [each for each in atoms if facts.key(each) > first]
        terms = [(attempt.rng.choice((1, 2, 3, -1, 4)), each) for each in later if attempt.rng.random() < 0.4]
        return attempt.total(terms, attempt.rng.choice((0, 0, 1, 3, -2)))
    return attempt.index()


def _atom(attempt: Attempt, name: str, uses: Uses) -> Term:
    return _unknown(attempt, "?Atom", name) if attempt.opaque else attempt.atom()


def _unknown(attempt: Attempt, head: str, name: str) -> Term:
    rng, term = attempt.rng, Term(head, (name,))
    low = rng.randint(-9, 9)
    high = low + rng.randint(0, 9)
    if attempt.borders and rng.random() < 0.6:  # a range that ends about where a guard looks
        end = rng.choice(attempt.borders)
        low, high = rng.choice(((0, end), (low, end), (-end, high), (end, 2 * end), (-end, end)))
        low = min(low, high)
    # `taps` is the place of an opaque atom in sums
    attempt.world.context.leaves[term] = Leaf(name, low=low, high=high, taps=rng.randint(0, 99))
    return term


def _ixs(attempt: Attempt, name: str, uses: Uses) -> tuple[Term, ...]:
    rng = attempt.rng
    for step, position in uses:
        if (step.head, position) in (("Reduce", 1), ("Stream", 0), ("RoundedStream", 1)):
            return attempt.binder()
    for step, position in uses:
        needs = PREREQUISITES.get((step.head, position), ())
        if step.kind != "term" or not all(attempt.bound(step.args[each]) for each in needs):
            continue
        first: Any = attempt.get(step.args[0]) if attempt.bound(step.args[0]) else None
        match step.head, position:
            case (("At" | "Read"), 1):
                facts = attempt.world.facts
                shape = facts.shape(first) if step.head == "At" else facts.extent(first)
                if shape is None:
                    shape = rng.choice(SHAPES)
                if attempt.number % 2 == 0 or rng.random() < 0.4:
                    return _plain_indices(attempt, shape)
                return tuple(attempt.within(size) for size in shape)
            case "View", 2:
                return _map(attempt, attempt.world.facts._of(first), attempt.get(step.args[1]))
            case "Subst", 0:
                wanted = sorted(
                    attempt.world.facts.axes_of(attempt.get(step.args[1])), key=lambda each: each.args
                )
                count = max((each.args[0] for each in wanted), default=0) + 1 + rng.randint(0, 1)
                if count > 8:
                    raise Reject
                sizes = {each.args[0]: each.args[1] for each in wanted}
                return tuple(attempt.within(sizes.get(k, rng.choice((1, 2, 3)))) for k in range(count))
    for step, position in uses:
        if (step.head, position) == ("Ravel", 0) and attempt.bound(step.args[1]):
            return tuple(attempt.within(size) for size in attempt.get(step.args[1]))
    return tuple(attempt.index() for _ in range(rng.choice((0, 1, 2, 2, 3))))


def _plain_indices(attempt: Attempt, shape: tuple[int, ...]) -> tuple[Term, ...]:
    """Each place an axis of its own: the most general index."""
    found = []
    taken: set[Term] = set()
    first = attempt.rng.choice((0, 0, LEVEL)) if attempt.counted else 0
    for size in shape:
        options = [each for each in attempt.pool if each.args[1] == size and each not in taken]
        if size == 1:
            found.append(lit(0))
            continue
        if options:
            chosen = options[0]
        else:
            used = {each.args[0] for each in (*attempt.pool, *taken)}
            chosen = axis(next(each for each in itertools.count(first) if each not in used), size)
            if len(attempt.pool) < 6:
                attempt.pool.append(chosen)
        taken.add(chosen)
        found.append(plain(chosen))
    return tuple(found)


def _map(attempt: Attempt, operand: tuple[int, ...], result: tuple[int, ...]) -> tuple[Term, ...]:
    rng = attempt.rng
    axes = [axis(k, size) for k, size in enumerate(result) if size > 1]
    found = []
    for size in operand:
        options = [each for each in axes if each.args[1] <= size]
        kind = rng.random()
        if options and kind < 0.5:
            chosen = rng.choice(options)
            coef = rng.choice([c for c in (1, 2) if c * (chosen.args[1] - 1) < size])
            found.append(
                attempt.total([(coef, chosen)], rng.randint(0, size - 1 - coef * (chosen.args[1] - 1)))
            )
        elif axes and kind < 0.75:
            chosen = rng.choice(axes)
            divisor = -(-chosen.args[1] // size) if size > 1 else chosen.args[1]
            if divisor > 1:
                found.append(
                    attempt.total([(1, attempt.world.build("FloorDiv", (plain(chosen), divisor)))], 0)
                )
            else:
                found.append(attempt.total([(-1, chosen)], chosen.args[1] - 1))
        else:
            found.append(lit(rng.randrange(size)))
    return tuple(found)


def _axes(attempt: Attempt, name: str, uses: Uses) -> frozenset[Term]:
    chosen = [each for each in attempt.pool if attempt.rng.random() < 0.4]
    return frozenset({each.args[0]: each for each in chosen}.values())  # in one scope a number is one axis


def _string(attempt: Attempt, name: str, uses: Uses) -> str:
    try:
        return attempt.types.dtype(name)
    except KeyError:
        return attempt.rng.choice(("fp32", "i32", "bool", "fp16"))


GENERATORS: Mapping[str, Callable[[Attempt, str, Uses], Value]] = {
    "Tensor": _tensor, "Buf": _buffer, "Expr": _expression, "Ix": _ix, "Atom": _atom, "Ixs": _ixs, "Ints": integers,
    "Axes": _axes, "i64": integer, "String": _string,
}  # fmt: skip


def built(attempt: Attempt, sort: str, depth: int) -> Value:
    """A value of a sort of a user's: any of its constructors, not too deep."""
    if sort == "i64":
        return attempt.rng.randint(-3, 6)
    if sort == "String":
        return attempt.rng.choice(("fp32", "ADD", "MAX"))
    generator = GENERATORS.get(sort)
    if generator is not None and sort in ("Ix", "Atom", "Ixs", "Ints", "Axes"):
        return generator(attempt, "", [])
    container = attempt.schema.sorts.get(sort, ())
    if container and container[0] == "Vec":
        return tuple(built(attempt, container[1], depth + 1) for _ in range(attempt.rng.randint(0, 3)))
    if container and container[0] == "Set":
        return frozenset(built(attempt, container[1], depth + 1) for _ in range(attempt.rng.randint(0, 3)))
    options = [
        (name, each) for name, each in attempt.schema.constructors.items() if each.result == sort and
        (depth < 3 or sort not in each.args)
    ]  # fmt: skip
    if not options or depth > 6:
        raise Reject
    name, signature = attempt.rng.choice(options)
    return attempt.world.build(name, tuple(built(attempt, each, depth + 1) for each in signature.args))
