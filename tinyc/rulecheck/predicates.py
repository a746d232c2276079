"""The predicates of meanings: ``(holds "name" x …)`` (rules/meanings.egg)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from tinyc.ir.dtypes import DType
from tinyc.ir.tiny import BINARY, COMPARE, REDUCE_OPS

from .bits import Bits, specials
from .buffers import buffer, source, windows, worth
from .context import DTYPES, LEVEL
from .domains import Tokens
from .machines import limits_of
from .primitives import Fails
from .requests import (
    asked_core,
    asked_cut,
    asked_fit,
    asked_more,
    asked_parts,
    contracted,
    filling,
    operand,
    problem,
    streamed,
    summed_points,
    tail,
    tile,
    tiles,
)
from .reshapes import are_indices, indices_in, is_offset, offset_in, own_axes
from .schedules import (
    contraction,
    core,
    core_of,
    cut,
    final,
    fit,
    hungry,
    line,
    loads,
    ordered,
    pack,
    run_of,
    runs_of,
    share,
    shared,
    shared_threads,
    slides,
    staged,
    walk_fits,
    walk_suits,
    widest_line,
)
from .term import Term, Value, show, walk
from .tiling import (
    KINDS,
    block,
    cut_tile,
    deep,
    even,
    halved,
    paired,
    part,
    sides,
    thick,
    thin,
    unit_for,
    whole,
)
from .tiling import parts_of as parts_of_tile
from .world import World, number_of


def loadable(world: World, e: Term) -> bool:
    """Every value is an element of a buffer, converted without rounding, or +0."""
    facts = world.facts
    dtype = facts.dtype(e)
    sources = [each for each in walk(e) if each.head in ("Read", "?Expr")]
    if not sources and e.head != "Const":
        return False
    for style in ("special", "ordinary"):
        evaluator = world.evaluator(Bits(world.seed, style, 24), e)
        value, mask = evaluator.value(e)
        good = np.zeros(value.shape, bool) if dtype != "bool" else np.ones(value.shape, bool)
        if dtype != "bool":
            good = (value == 0) & ~np.signbit(value.astype(np.float64))
        with np.errstate(all="ignore"):
            wide = value.astype(np.float64)
            for each in sources:
                found, _ = evaluator.value(each)
                source = found.astype(np.float64)
                good = good | (wide == source) | ((wide != wide) & (source != source))
        if not bool(np.all(good if mask is None else good | ~mask)):
            return False
    return any(each.head in ("Read", "?Expr") for each in sources)


def keeps(source: str, to: str) -> bool:
    """Whether a cast between two dtypes keeps every value."""
    if source not in DTYPES or to not in DTYPES:
        return False
    domain = Bits("keeps", "special", 512)
    every = specials(source)
    if source in ("fp16", "bf16"):
        every = np.arange(1 << 16, dtype=np.uint16).view(DType(source).numpy)
    elif source != "bool":
        every = np.concatenate([every, domain.leaf("x", source, ())])
    with np.errstate(all="ignore"):
        there = domain.cast(source, to, every)
        back = domain.cast(to, source, there)
        same = (back == every) | ((back != back) & (every != every))
        zeros = np.signbit(back.astype(np.float64)) == np.signbit(every.astype(np.float64))
        kept = there.astype(np.float64) == every.astype(np.float64)
        nan = every != every
    return bool(np.all(same & (zeros | nan) & (kept | nan)))


def constant_value(world: World, c: Term) -> float | int | None:
    """The number that a term is which is computed of constants alone; None for what hangs on anything else, and for NaN."""
    if any(each.head not in CLOSED for each in walk(c)):
        return None
    with np.errstate(all="ignore"):
        value, _ = world.evaluator(Bits(world.seed, "special", 1), c).value(c)
    (found,) = set(value.ravel().tolist())
    return float(found) if world.facts.dtype(c) != "i32" else int(found)


CLOSED = frozenset(["Const", "Unary", "Binary", "Cast", "Select"])


def neutral(world: World, c: Term) -> bool:
    """Adding it changes no value, not even the sign of a zero."""
    value = constant_value(world, c)
    if value is None or world.facts.dtype(c) == "bool" or value != 0:
        return False
    return isinstance(value, int) or math.copysign(1.0, value) < 0


def neutral_under(op: str, dtype: str, bits: int) -> bool:
    """Whether a reduction over some more of these is the same value; the sign of a zero aside, which a sum loses anyway."""
    if op not in REDUCE_OPS or dtype not in DTYPES or (dtype == "bool" and op not in ("MAX", "MIN")):
        return False
    domain = Bits("neutral", "special", 512)
    values = np.concatenate([specials(dtype), domain.leaf("x", dtype, ())])
    with np.errstate(all="ignore"):
        more = np.broadcast_to(domain.const(dtype, bits), values.shape)
        after = domain.fold(op, dtype, np.stack([values, more], axis=-1))
        return bool(np.all((after == values) | ((after != after) & (values != values))))


def divisor(world: World, y: Term) -> bool:
    """No constant, or one whose reciprocal is a normal number."""
    if y.head != "Const":
        return True
    if y.args[0] != "fp32":
        return False
    value = number_of(world, y)
    assert value is not None
    magnitude = abs(float(value))
    return 2.0**-126 <= magnitude < math.inf and 1 / magnitude >= 2.0**-126


def roles(world: World, a: Value, b: Value, summed: Value, batch: Value, m: Value, n: Value) -> bool:
    """The axes of the factors of a contraction by role: no axis has two, and each factor has only axes of its roles."""
    parts = (batch, m, n, summed)
    disjoint = sum(map(len, parts)) == len(frozenset().union(*parts))
    spelled = world.context.loose or (batch <= a & b and m <= a and n <= b)
    return bool(disjoint and spelled and a <= batch | m | summed and b <= batch | n | summed)


def cut_parts(world: World, x: Term, m: int, p: int, y: Term) -> bool:
    """``y[i, .., j, ..] = x[.., i*c + j, ..]``: axis m of x is cut in p parts, which are the first axis of y."""
    shape = world.facts._of(x)
    if not 0 <= m < len(shape) or p < 1 or shape[m] % p:
        return False
    c = shape[m] // p
    if world.facts.shape(y) != (p, *shape[:m], c, *shape[m + 1 :]):
        return False
    evaluator = world.evaluator(Tokens(world.seed), x, y)
    (before, _), (after, _) = evaluator._whole(x), evaluator._whole(y)
    cut = before.reshape(before.shape[0], *shape[:m], p, c, *shape[m + 1 :])
    return bool(np.all(np.moveaxis(cut, m + 1, 1) == after))


def parts_of(world: World, x: Term, m: int, p: int) -> Value | None:
    """``x`` with its axis m cut in p parts, which are the first axis."""
    shape = world.facts._of(x)
    if not 0 <= m < len(shape) or p < 1 or shape[m] % p:
        return None
    cut_ = world.build("Reshape", (x, (*shape[:m], p, shape[m] // p, *shape[m + 1 :])))
    perm = (m, *range(m), *range(m + 1, len(shape) + 1))
    return world.build("Permute", (cut_, perm, tuple(perm.index(each) for each in range(len(perm)))))


def regroups(world: World, op: str, dtype: str) -> bool:
    """Whether an operator may take its operands in any order: a maximum always, a sum where it accumulates, products of
    integers alone, which wrap around."""
    return (
        op in ("MAX", "MIN") or (op == "SUM" and dtype in ("fp32", "i32")) or (op, dtype) == ("PROD", "i32")
    )


def max_depth(world: World, depth: int) -> bool:
    """No axis of the program is of a deeper level. From here on the instance has none."""
    if world.context.depth not in (None, depth):
        return False
    world.context.depth = depth
    leaves = [each for leaf in world.context.leaves.values() for each in leaf.axes]
    axes = [each for each in (*world.pool_axes(), *leaves) if each.args[0] >= LEVEL * (depth + 1)]
    return depth > 0 and not axes


PREDICATES: Mapping[str, Callable[..., bool]] = {
    "solid": lambda world, t: world.facts.solid(t),
    "buffer": buffer,
    "worth": worth,
    "source": source,
    "windows": windows,
    "asked-cut": asked_cut,
    "asked-fit": asked_fit,
    "asked-core": asked_core,
    "tile": tile,
    "block": block,
    "cut-tile": cut_tile,
    "halved": halved,
    "sides": sides,
    "part": part,
    "thin": thin,
    "thick": thick,
    "paired": paired,
    "even": even,
    "whole": whole,
    "deep": deep,
    "parts-of": parts_of_tile,
    "tail": tail,
    "loadable": loadable,
    "keeps": lambda world, d, w: keeps(d, w),
    "number": lambda world, c, v: constant_value(world, c) == v,
    "neutral": neutral,
    "divisor": divisor,
    "output": lambda world, i, t: world.context.outputs.get(i) == t,
    "arithmetic": lambda world, op: op in BINARY,
    "comparison": lambda world, op: op in COMPARE,
    "float": lambda world, d: d in ("fp16", "bf16", "fp32"),
    "accumulator": lambda world, d: d in ("fp32", "i32"),
    "elements": lambda world, s, t: math.prod(s) == math.prod(t),
    "offset-in": is_offset,
    "indices-in": are_indices,
    "depends": lambda world, e, axes: world.depends(e) <= axes,
    "max-depth": max_depth,
    "roles": roles,
    "regroups": regroups,
    "neutral-under": lambda world, op, d, bits: neutral_under(op, d, bits),
    "row": lambda world, table, *row: world.schema.built_in(table, row),
    "parts": cut_parts,
    "loads": loads,
    "operand": operand,
    "contraction": contraction,
    "problem": problem,
    "tiles": tiles,
    "filling": filling,
    "asked-parts": asked_parts,
    "asked-more": asked_more,
    "pack": pack,
    "starved": hungry,
    "final": final,
    "staged": staged,
    "ordered": ordered,
    "contracted": contracted,
    "share": share,
    "core": core,
    "line": line,
    "widest-line": widest_line,
    "shared": shared,
    "shared-threads": shared_threads,
    "summed": summed_points,
    "streamed": streamed,
    "walk": walk_fits,
    "walk-shape": walk_suits,
    "kind": lambda world, name: name in CHOICES["kind"],
    "along": lambda world, name: name in CHOICES["along"],
    "power-of-two": lambda world, w: w > 0 and w & (w - 1) == 0,
    "bytes": lambda world, size: size in CHOICES["bytes"],
}
"""What ``(holds "name" x …)`` says in a meaning."""


CHOICES: Mapping[str, tuple[Value, ...]] = {
    "kind": KINDS,
    "along": ("n", "m", "b"),
    "bytes": (2, 4, 1),
    "power-of-two": (1, 2, 4, 8, 16),
}
"""Values for which a predicate of one argument holds."""

VALUES: Mapping[str, Callable[..., Value]] = {
    "machine": lambda world: world.context.machine,
    "parts": parts_of,
    "product": lambda world, s, k: math.prod(s[:k]) if 0 <= k <= len(s) else None,
    "own-axes": own_axes,
    "offset-in": offset_in,
    "indices-in": indices_in,
    "points": lambda world, s: math.prod(each.args[1] for each in s),
    "last": lambda world, s: max((each.args[0] for each in s), default=-1),
    "run": lambda world, s, i: run_of(s, i),
    "slides": slides,
    "cut": cut,
    "fit": fit,
    "core": core_of,
    "limit": lambda world, name: limits_of(world.context).get(name),
    "unit": lambda world, problem: None if (unit := unit_for(world, problem)) is None else unit.name,
    "itemsize": lambda world, d: DType(d).itemsize if d in DTYPES else None,
}
"""``(holds "name" x … v)``: v is this value of the others; where there is a predicate as well, one of those that it allows."""


PLAIN = frozenset(
    [
        "block",
        "cut-tile",
        "deep",
        "even",
        "final",
        "halved",
        "pack",
        "paired",
        "part",
        "parts-of",
        "sides",
        "starved",
        "thick",
        "thin",
        "whole",
    ]
)
"""Predicates of numbers and of a problem alone, that an instance is not told by."""


def holds(world: World, args: tuple[Value, ...]) -> bool:
    """Raises Fails for a name that is no predicate."""
    name, *rest = args
    if name == "run" and len(rest) == 3:
        return rest[2] in runs_of(rest[0], rest[1])
    if name in VALUES and name not in PREDICATES:
        value = VALUES[name](world, *rest[:-1])
        return value is not None and bool(value == rest[-1])
    found = PREDICATES.get(name)
    if found is None:
        raise Fails(f"{name!r} is no predicate: they are {', '.join([*PREDICATES, *VALUES])}")
    try:
        return bool(found(world, *rest))
    except TypeError:
        raise Fails(f"{name!r} takes other arguments") from None


def unmet(args: tuple[Value, ...]) -> str:
    """Why a predicate does not hold, for a reader."""
    name, *rest = args
    told = " ".join(map(show, rest))
    if name == "row":
        return f"({' '.join(map(str, rest))}) is no row that tinyc has, and no other machine is known"
    return f"{name} does not hold of {told}"


def value_of(world: World, name: str, args: tuple[Value, ...]) -> Value | None:
    """The last argument of a predicate that has one value for the others; None where it has none."""
    return VALUES[name](world, *args) if name in VALUES else None
