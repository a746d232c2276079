"""Values for the variables of a rule, one generator per sort: what a rule leaves open is opaque, or chosen from small to large."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tinyc.ir.dtypes import DType, to_bits

from .buffers import WIDEST
from .context import LEVEL, Leaf, Reject
from .numbers import Uses, bits_for, integer
from .parse import Lit, Var
from .predicates import CHOICES
from .requests import CORES
from .schedules import ordered_of, packs, points_of, runs_of, starved
from .steps import Step
from .term import Term, Value, axis, lit, plain
from .tiling import owned
from .wanted import result_wanted, shape_wanted

if TYPE_CHECKING:
    from .instantiate import Attempt

SHAPES: tuple[tuple[int, ...], ...] = tuple(
    shape for rank in range(4) for shape in itertools.product((1, 2, 3), repeat=rank)
)
"""All shapes of rank 0 to 3 with extents 1 to 3, from small to large."""

LARGER = ((2, 3, 5), (1, 2, 3, 2), (5,), (4, 3), (2, 1, 1, 3), (6, 2), (2, 2, 2, 2), (1, 5), (3, 1, 4))

LONG = (1, 2, 3, 4, 7, 8, 16, 64, 100, 129, 1000, 1024, 4099, 65536)
"""Extents of what is only counted, also such as no part divides."""

DRAWS = 12
"""Numbers that are drawn for one that guards do not exclude."""

PREREQUISITES: Mapping[tuple[str, int], tuple[int, ...]] = {
    ("At", 1): (0,), ("Read", 1): (0,), ("Reduce", 2): (1,), ("Stream", 1): (0,), ("Stream", 2): (0, 1),
    ("RoundedStream", 2): (1,), ("RoundedStream", 3): (1, 2),
    ("Permute", 1): (0,), ("Permute", 2): (1,), ("Reshape", 1): (0,), ("Expand", 1): (0,), ("Expand", 2): (1,),
    ("Pad", 1): (0,), ("Pad", 2): (1,), ("Pad", 3): (1,), ("Pad", 4): (0,),
    ("Shrink", 1): (0,), ("Shrink", 2): (1,), ("Shrink", 3): (2,), ("Shrink", 4): (3,),
    ("Flip", 1): (0,), ("View", 1): (0,), ("View", 2): (0, 1), ("TReduce", 1): (2,), ("Subst", 0): (1,),
    ("IDiv", 0): (1,), ("Ravel", 1): (0,), ("Ravel", 2): (0, 1), ("Fill", 2): (1,), ("Alias", 0): (1,), ("Valid", 1): (0,), ("Valid", 2): (1,),
    ("Valid", 3): (2,), ("Unravel", 1): (0,), ("Unravel", 3): (1,), ("Unravel", 2): (3,), ("Unravel", 4): (3,),
    ("Within", 1): (0,), ("Within", 2): (1,), ("Plus", 2): (1,),
    ("top-axis-upto", 1): (0,), ("ixs-axes", 1): (0,), ("ops-upto", 1): (0,), ("axes-upto", 2): (1,), ("axes-next", 2): (1,),
    ("vec-get", 1): (0,), ("vec-set", 1): (0,), ("unit-of", 2): (0, 1),
}  # fmt: skip


def same_size(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes with as many elements."""
    count = math.prod(shape)
    found = [each for each in (*SHAPES, *LARGER) if math.prod(each) == count]
    return [*found, (count,), (1, *shape), (*shape, 1), tuple(reversed(shape))]


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
    shape = known_ if known_ is not None else attempt.stretched(name, shape_of_number(attempt))
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


def shape_of_number(attempt: Attempt) -> tuple[int, ...]:
    """Shapes come up in turn, so that none is left out. Now and then one axis is as long as a guard asks."""
    shape = _any_shape(attempt)
    extents = attempt.case.extents
    if (
        extents
        and shape
        and math.prod(shape) <= 32
        and attempt.number % 3 == 2
        and attempt.rng.random() < 0.7
    ):
        at = attempt.rng.randrange(len(shape))
        return (*shape[:at], attempt.rng.choice(extents), *shape[at + 1 :])
    return shape


def _any_shape(attempt: Attempt) -> tuple[int, ...]:
    if attempt.case.ranks and attempt.rng.random() < 0.5:  # most of its axes are short
        rank = attempt.rng.choice(attempt.case.ranks)
        return tuple(attempt.rng.choice((1, 2, 2, 3) if attempt.level else (1, 2)) for _ in range(rank))
    leaves = attempt.world.context.leaves
    number = attempt.number + 7 * len(leaves)
    others = [leaf.shape for term, leaf in leaves.items() if term.head == "?Tensor"]
    if others and attempt.rng.random() < 0.5:  # equal, or with the axes in another order
        shape = list(attempt.rng.choice(others))
        if attempt.rng.random() < 0.5:
            attempt.rng.shuffle(shape)
        return tuple(shape)
    if attempt.counted and attempt.rng.random() < 0.75:
        rank = attempt.rng.randint(1, 3)
        short = attempt.rng.choice((0, rank - 1))  # few results of long reductions
        return tuple(attempt.rng.choice((1, 2, 3, 4) if at < short else LONG) for at in range(rank))
    if attempt.level == 2 and attempt.rng.random() < 0.2:
        return attempt.rng.choice(LARGER)
    return SHAPES[number % len(SHAPES)]


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
    role = attempt.role(name)
    if role and kind < 0.9:
        inner = 16 if attempt.number % 5 else 32  # a contraction may be part of a larger reduction
        axes = [
            each
            for each in pool
            if each in bound or (each.args[0] < inner and attempt.roles.get(each) in ("batch", role))
        ]
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
            case "Unravel", 4:
                rest = attempt.get(step.args[1])[attempt.get(step.args[3]) :]
                return tuple(attempt.within(size) for size in rest)
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


def _ints(attempt: Attempt, name: str, uses: Uses) -> tuple[int, ...]:
    """A shape or permutation; of as many axes as the rule says."""
    wanted = [step.out for step, _ in uses if step.head == "vec-length" and attempt.bound(step.out)]
    for _ in range(DRAWS if wanted else 1):
        found = _shape(attempt, uses)
        if any((step.head, position) == ("View", 1) for step, position in uses):
            found = attempt.stretched(name, found)
        if all(attempt.get(each) == len(found) for each in wanted if each is not None):
            return found
    raise Reject


def _shape(attempt: Attempt, uses: Uses) -> tuple[int, ...]:
    rng = attempt.rng
    for step, position in uses:
        needs = PREREQUISITES.get((step.head, position), ())
        if step.kind == "term" and all(attempt.bound(step.args[each]) for each in needs):
            facts = attempt.world.facts
            match step.head, position:
                case "Reshape", 1:
                    wanted_ = result_wanted(attempt, step)
                    if wanted_ in same_size(facts._of(attempt.get(step.args[0]))) and rng.random() < 0.8:
                        return wanted_
                    return rng.choice(same_size(facts._of(attempt.get(step.args[0]))))
                case "Alias", 0:
                    return rng.choice(same_size(facts.extent(attempt.get(step.args[1]))))
                case "Permute", 1:
                    before = facts._of(attempt.get(step.args[0]))
                    after = result_wanted(attempt, step)
                    perm = list(range(len(before)))
                    for _ in range(1 if after is None else DRAWS):
                        rng.shuffle(perm)
                        if tuple(before[each] for each in perm) == after:
                            break
                    return tuple(perm)
                case "Permute", 2:
                    perm = list(attempt.get(step.args[1]))
                    return tuple(perm.index(each) for each in range(len(perm)))
                case "Unravel", 1:
                    return facts._of(attempt.get(step.args[0]))
                case "Ravel", 1:
                    return tuple(facts.high(each) + 1 for each in attempt.get(step.args[0]))
                case "View", 1:
                    points = math.prod(facts._of(attempt.get(step.args[0])))
                    if rng.random() < 0.2 and (
                        attempt.counted or points <= 2
                    ):  # about as many as are too many
                        points = WIDEST * points + rng.choice((0, 0, 1, -1))
                        return (max(1, points),)
                    return rng.choice([each for each in SHAPES if each])
    return shape_of_number(attempt)


def _axes(attempt: Attempt, name: str, uses: Uses) -> frozenset[Term]:
    chosen = [each for each in attempt.pool if attempt.rng.random() < 0.4]
    return frozenset({each.args[0]: each for each in chosen}.values())  # in one scope a number is one axis


def _string(attempt: Attempt, name: str, uses: Uses) -> str:
    try:
        return attempt.types.dtype(name)
    except KeyError:
        return attempt.rng.choice(("fp32", "i32", "bool", "fp16"))


GENERATORS: Mapping[str, Callable[[Attempt, str, Uses], Value]] = {
    "Tensor": _tensor, "Buf": _buffer, "Expr": _expression, "Ix": _ix, "Atom": _atom, "Ixs": _ixs, "Ints": _ints,
    "Axes": _axes, "i64": integer, "String": _string,
}  # fmt: skip


def satisfying(attempt: Attempt, name: str, step: Step, position: int) -> Value | None:
    """A value for which a predicate holds, where one at random hardly would."""
    what = step.args[0]
    assert isinstance(what, Lit)
    rng = attempt.rng
    if what.value == "roles" and position > 3 and all(map(attempt.bound, step.args[1:4])):
        a, b, summed = map(attempt.get, step.args[1:4])
        return ((a & b) - summed, a - b, b - a)[position - 4]
    if what.value == "ordered" and position > 3 and all(map(attempt.bound, step.args[1:4])):
        order = ordered_of(*map(attempt.get, step.args[1:4]))
        return None if order is None else order[position - 4]
    if what.value == "pack" and position > 4 and all(map(attempt.bound, step.args[1:5])):
        outer, m, n, k = map(attempt.get, step.args[1:5])
        _shaped(attempt, m, n, k)
        blocks = packs(attempt.world, outer, m, n, k)
        if attempt.case.starved:
            blocks = [each for each in blocks if starved(outer, m, n, k, *each[:2])]
        fits = [
            each
            for each in blocks
            if all(
                not attempt.bound(arg) or attempt.get(arg) == size
                for arg, size in zip(step.args[5:], each, strict=True)
            )
        ]
        return rng.choice(fits)[position - 5] if fits else None
    if what.value == "staged" and position > 3:
        return rng.choice((2, 4, 1, 0) if position == 4 else (0, 0, 1))
    if what.value == "halved" and position == 2 and attempt.bound(step.args[1]):
        return max(1, attempt.get(step.args[1]) // rng.choice((1, 1, 1, 1, 2, 4)))
    if what.value == "parts-of" and position > 3 and all(map(attempt.bound, step.args[1:4])):
        choices = [
            own for halves in owned(attempt.world, *map(attempt.get, step.args[1:4])) for own in halves
        ]
        known = [attempt.get(arg) if attempt.bound(arg) else None for arg in step.args[4:]]
        fitting = [own for own in choices if all(a in (None, b) for a, b in zip(known, own, strict=True))]
        return (
            fitting[rng.randrange(len(fitting)) if rng.random() < 0.5 else 0][position - 4]
            if fitting
            else None
        )
    if what.value == "fit" and position == 1 and attempt.bound(step.args[2]) and rng.random() < 0.5:
        return max(1, attempt.get(step.args[2]) * 8 // rng.choice((1, 8, 8, 16, 24, 32, 40, 48, 64)))
    if what.value == "asked-core" and position == 2:
        return rng.choice(CORES)
    if what.value == "share" and position == 2 and attempt.bound(step.args[1]):
        axes = attempt.get(step.args[1])
        last = max((each.args[0] for each in axes), default=-1)
        return rng.choice((*runs_of(axes, last), points_of(axes)))
    if what.value in CHOICES and position == 1:
        return rng.choice(CHOICES[str(what.value)])
    if what.value in ("number", "neutral", "divisor") and position == 1:
        dtype = attempt.types.dtype(name)
        if what.value == "divisor" and rng.random() < 0.6:
            return None
        number = float(attempt.get(step.args[2])) if what.value == "number" else -0.0
        if what.value == "divisor":
            number = rng.choice((1.0, 2.0, -3.0, 0.1, 1e-30, 1e30))
        bits = to_bits(number if dtype not in ("i32", "bool") else int(number), DType(dtype))
        term = attempt.world.build("Const", (dtype, bits))
        assert isinstance(term, Term)
        return term
    if what.value == "positive-finite":
        return to_bits(rng.choice((1.0, 2.0, 1.0, 0.5, 0.25, 3.0)), DType.FP32)
    if what.value == "elements" and position == 1 and attempt.bound(step.args[2]):
        return rng.choice(same_size(attempt.get(step.args[2])))
    return None


def _shaped(attempt: Attempt, *sides: int) -> None:
    """Now and then a shape of packed blocks that tinyc does not have: some equal parts of each side."""
    told = attempt.world.context.rows.setdefault("tile-shape", [])
    if not told and attempt.invents("tile-shape"):
        rng, alike = attempt.rng, attempt.rng.randint(1, 8)
        parts = [-(-side // rng.choice((alike, rng.randint(1, 8)))) for side in sides]
        told.append((attempt.world.context.machine, *parts))


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
