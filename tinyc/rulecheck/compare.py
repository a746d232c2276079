"""How far two terms are equal: the tightest floating-point class that one instance allows.

EXACT: the same computation, or bit for bit on the values where floating point is usually wrong. REASSOC: the same terms
summed in another order. BOUNDED: equal over the reals; on ordinary numbers the error of the new side is at most a few times
what the old side's own arithmetic may have, nothing overflows that did not, and NaN and infinities stay what they are.
REAL-ONLY: equal over the reals. Regrouped arithmetic in fp16 and bf16 is REAL-ONLY at best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tinyc.ir.tiny import ROUNDED

from .bits import Bits
from .bounds import ROUNDING, TINY, Bounds, extreme_constant
from .context import IllFormed
from .denote import Evaluator
from .domains import Array, Tokens
from .made import made, rounded_to
from .near import told
from .nonfinite import alike, has_nonfinite
from .reals import KNOWN, REAL_STYLES, SAME_NUMBER, UNSURE, Reals
from .term import Term, Value, show, walk
from .verdict import CLASSES, readable
from .world import World

SLACK = 8
"""Times the old side's own error bound that the new side may be off."""

MORE = 8
"""Times as many samples of instances whose opaque values are single numbers."""


@dataclass(frozen=True)
class Outcome:
    """``klass``: the tightest class that held, "" for none. ``left``, ``right``: both results where it failed (or where a
    tighter class failed), with ``why`` and the ``values`` of the opaque terms there. ``departs``: why a fact that is true is
    not one that the built-in rules say, "" where it is."""

    klass: str
    method: frozenset[str] = frozenset()
    why: str = ""
    left: str = ""
    right: str = ""
    values: tuple[tuple[str, str], ...] = field(default=())
    departs: str = ""


def worst(a: str, b: str) -> str:
    """The weaker of two classes."""
    return a if CLASSES.index(a) >= CLASSES.index(b) else b


def compare(world: World, a: Value, b: Value, wanted: str) -> Outcome:
    """The class in which ``a == b``; ``wanted``: the weakest that is of use, EXACT to REAL-ONLY."""
    if not (isinstance(a, Term) and isinstance(b, Term)):
        equal = world.same(a, b)
        return Outcome("EXACT" if equal else "", frozenset(["facts"]), "two values differ", show(a), show(b))
    signature = world.schema.constructors.get(a.head)
    sort = signature.result if signature else a.head.lstrip("?")
    if sort in ("Ix", "Atom"):
        return _indices(world, a, b)
    if sort not in ("Expr", "Tensor", "Buf"):
        equal = a == b
        return Outcome("EXACT" if equal else "", frozenset(["facts"]), "two terms differ", show(a), show(b))
    facts = world.facts
    if sort in ("Tensor", "Buf"):
        shapes = [facts.shape(each) if sort == "Tensor" else facts.extent(each) for each in (a, b)]
        if shapes[0] != shapes[1]:
            return Outcome(
                "", frozenset(["facts"]), "the shapes differ", f"shape {shapes[0]}", f"shape {shapes[1]}"
            )
    dtypes = [facts.dtype(each) for each in (a, b)]
    if dtypes[0] != dtypes[1]:
        return Outcome("", frozenset(["facts"]), "the dtypes differ", dtypes[0], dtypes[1])
    return _values(world, a, b, wanted)


def _indices(world: World, a: Term, b: Term) -> Outcome:
    evaluator = world.evaluator(Tokens(world.seed), a, b)
    x, y = np.broadcast_arrays(evaluator.index(a), evaluator.index(b))
    wrong = np.argwhere(x != y)
    if not len(wrong):
        return Outcome("EXACT", frozenset(["points"]))
    at = tuple(wrong[0])
    point = tuple(
        (repr(axis), str(int(k))) for axis, k in zip(evaluator.axes, at, strict=True) if axis.args[1] > 1
    )
    return Outcome("", frozenset(["points"]), "two indices differ", str(int(x[at])), str(int(y[at])), point)


def _values(world: World, a: Term, b: Term, wanted: str) -> Outcome:
    if _hold(world, Tokens(world.seed), a, b, np.equal) is None:
        return Outcome("EXACT", frozenset(["terms"]))
    # what a rule says of numbers that it does not even hold for over the reals is wrong in every class
    float_like = any(_dtype(world, each) in ROUNDING for each in (a, b, *_leaves(world, a, b)))
    with np.errstate(all="ignore"):
        loose = wanted in ("BOUNDED", "REAL-ONLY")
        real, settled, whole = _real(world, a, b, loose) if float_like else (None, False, True)
        if real is not None:
            return real
        method = {"rationals"} if settled else set()
        outcome = _bits(world, a, b, float_like)
        if outcome is None:
            return Outcome("EXACT", frozenset([*method, "bits" if float_like else "integers"]))
        if not float_like:
            return outcome
        tightest = _regrouped(world, a, b)
        if not whole and tightest != "REASSOC":
            numeric = _numeric(world, a, b, "moderate" if settled else "ordinary")
            if numeric is not None:
                return numeric
        if not settled and tightest != "REASSOC":
            method.add("sampled")
        bound = None if tightest == "REAL-ONLY" else _bounded(world, a, b)
        if bound is not None:
            return Outcome(
                "REAL-ONLY", frozenset([*method, "bound"]), bound.why, bound.left, bound.right, bound.values
            )
        if tightest == "REAL-ONLY":
            return Outcome("REAL-ONLY", frozenset(method), *_told(outcome))
        kind = "sums" if tightest == "REASSOC" else "bound"
        return Outcome(tightest, frozenset([*method, kind]), *_told(outcome))


def _told(outcome: Outcome) -> tuple[str, str, str, tuple[tuple[str, str], ...]]:
    return outcome.why, outcome.left, outcome.right, outcome.values


def _dtype(world: World, term: Term) -> str:
    try:
        return world.facts.dtype(term)
    except IllFormed:
        return ""


def _leaves(world: World, *terms: Term) -> list[Term]:
    return [
        each
        for term in terms
        for each in walk(term)
        if each in world.context.leaves or each.head in ("Const", "Imm")
    ]


# ---- one domain -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Difference:
    left: Any
    right: Any
    at: tuple[int, ...]
    domain: Any
    axes: tuple[Term, ...]


def _hold(
    world: World, domain: Any, a: Term, b: Term, equal: Callable[[Array, Array], Array]
) -> _Difference | None:
    """Where two terms differ; None where they do not."""
    return _differing(world.evaluator(domain, a, b), a, b, equal)


def _differing(
    evaluator: Evaluator, a: Term, b: Term, equal: Callable[[Array, Array], Array]
) -> _Difference | None:
    (x, p), (y, q) = evaluator.value(a), evaluator.value(b)
    good = np.asarray(equal(x, y)).astype(bool)
    if q is not None:
        good = good & q
    if p is not None:
        good = good | ~p
    wrong = np.argwhere(~good)
    if not len(wrong):
        return None
    at = tuple(int(k) for k in wrong[0])
    x, y = (np.broadcast_to(each, np.broadcast_shapes(x.shape, y.shape, good.shape)) for each in (x, y))
    right = (
        "nothing: an element outside of its tensor"
        if q is not None and not np.broadcast_to(q, x.shape)[at]
        else y[at]
    )
    return _Difference(x[at], right, at, evaluator.domain, evaluator.axes)


def _outcome(
    world: World, a: Term, b: Term, klass: str, method: str, why: str, found: _Difference
) -> Outcome:
    sample = found.at[0]
    values: list[tuple[str, str]] = []
    if len(found.at) == len(found.axes) + 1:
        values += [
            (repr(axis), str(k))
            for axis, k in zip(found.axes, found.at[1:], strict=True)
            if k or axis in _spelled(world, a)
        ]
    elif len(found.at) > 1:
        values.append(("element", str(list(found.at[1:]))))
    for name, table in getattr(found.domain, "leaves", {}).items():
        chosen = table[min(sample, table.shape[0] - 1)]
        chosen = np.asarray(chosen, object)
        if chosen.size > 27:
            text = f"{readable(chosen.ravel()[0])}, … ({chosen.size} values)"
        else:
            text = (
                str(np.vectorize(readable, otypes=[object])(chosen.squeeze()).tolist())
                if chosen.size
                else "[]"
            )
        values.append((f"value of {name}", text.replace("'", "")))
    return Outcome(
        klass, frozenset([method]), why, readable(found.left), readable(found.right), tuple(values)
    )


def _spelled(world: World, term: Term) -> frozenset[Term]:
    try:
        return world.facts.free(term)
    except IllFormed:
        return frozenset()


# ---- bit for bit ----------------------------------------------------------------------------------------------------


def identical(x: Array, y: Array) -> Array:
    """Equal bit patterns; all NaN are one."""
    if x.dtype == np.bool_ or x.dtype == np.int32:
        return np.equal(x, y)
    a, b = x.astype(np.float64), y.astype(np.float64)
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | ((a != a) & (b != b))


def _bits(world: World, a: Term, b: Term, float_like: bool) -> Outcome | None:
    """None: equal bit for bit."""
    numbers = told(world, a, b)
    # where an opaque value is one number, one of them hits less than an array of them does
    more = MORE if all(not leaf.axes and not leaf.shape for leaf in world.context.leaves.values()) else 1
    # numbers that are easily read come first: they are what a counterexample shows
    styles = {
        "integers": 24,
        "ordinary": 64 * more,
        "near": 256 * more,
        "special": (600 if float_like else 256) * more,
    }
    for style, samples in styles.items():
        if style == "near" and not numbers:
            continue
        found = _hold(world, Bits(world.seed, style, samples, numbers), a, b, identical)
        if found is not None:
            return _outcome(world, a, b, "", "bits", "the results differ bit for bit", found)
    return None


# ---- over the reals -------------------------------------------------------------------------------------------------


def _real(world: World, a: Term, b: Term, loose: bool) -> tuple[Outcome | None, bool, bool]:
    """A difference over the rationals; whether there were points at which both sides are rational, and whether they are so wherever
    they are numbers: exp2(1/2) tells nothing, though exp2(1) beside it does. ``loose``: constants that the new side makes may be
    rounded."""
    settled, whole, numbers = False, True, told(world, a, b)
    rounded = made(world, a, b) if loose else frozenset()
    for style in REAL_STYLES:
        if style == "near" and not numbers:
            continue
        domain = Reals(world.seed, style, 2 if style == "numbers" else 8 if style == "near" else 4, numbers)
        evaluator = world.evaluator(domain, a, b)
        found = _differing(evaluator, a, b, SAME_NUMBER)
        if found is not None and rounded:
            found = _differing(evaluator, a, b, rounded_to(world, domain, a, b, rounded))
        if found is not None:
            return (
                _outcome(world, a, b, "", "rationals", "the results differ over the reals", found),
                True,
                True,
            )
        (x, _), (y, _) = evaluator.value(a), evaluator.value(b)
        settled = settled or bool(np.any(KNOWN(x, y)))
        whole = whole and not bool(np.any(UNSURE(x, y)))
    return None, settled, settled and whole


def _numeric(world: World, a: Term, b: Term, style: str) -> Outcome | None:
    """Over float64, where the values are not rational, and which a constant may leave as well."""
    far = extreme_constant(world, a, b)
    bits = Bits(world.seed, style, 64)
    domain = Bounds(bits)

    def close(x: Array, y: Array) -> Array:
        if x.dtype == np.bool_:
            return x == y
        scale = np.abs(x.real) * 1e-9 + np.where(np.isfinite(x.imag), x.imag, 0) * 1e-3 + 1e-300
        # what over- or underflows in the dtype may be below the last digit of float64 as well
        unknown = ~np.isfinite(x.real) | np.isinf(x.imag) | (far & ~np.isfinite(y.real))
        return (np.abs(x.real - y.real) <= scale) | unknown

    found = _hold(world, domain, a, b, close)
    if found is None:
        return None
    why = "the results differ over the reals"
    return _outcome(world, a, b, "", "sampled", why, replace(found, domain=bits))


# ---- error bounds ---------------------------------------------------------------------------------------------------


def _regrouped(world: World, a: Term, b: Term) -> str:
    """REASSOC where both sides sum the same terms, REAL-ONLY where they compute in fp16 or bf16, else BOUNDED."""
    for each in (*walk(a), *walk(b)):
        if each.head in ("Unary", "Binary", "Reduce", "TUnary", "TBinary", "TReduce") and _dtype(
            world, each
        ) in ("fp16", "bf16"):
            return "REAL-ONLY"
    if _hold(world, Tokens(world.seed, sums=True), a, b, np.equal) is None:
        return "REASSOC"
    return "BOUNDED"


def _bounded(world: World, a: Term, b: Term) -> Outcome | None:
    """None: within the error bound on ordinary numbers, and NaN and infinities stay."""
    dtype = world.facts.dtype(a)
    if dtype not in ROUNDING:
        found = _hold(world, Bits(world.seed, "ordinary", 64), a, b, identical)
        if found is None:
            return None
        return _outcome(world, a, b, "", "bound", f"the results, of dtype {dtype}, are not equal", found)
    if _hold(world, Tokens(world.seed, sums=True), a, b, np.equal) is not None:
        for bits, known in _trials(world, a, b):
            found = _beyond(world, a, b, bits, known)
            if found is not None:
                why = "the error is more than a few roundings of the old side"
                return _outcome(world, a, b, "", "bound", why, found)
    if has_nonfinite(world, a, b):
        bits = Bits(world.seed, "ordinary", 24)
        found = _hold(world, Bounds(bits), a, b, alike(world, bits, a, b))
        if found is not None:
            shown = replace(found, domain=bits)
            why = "a constant that is no number makes another value of it"
            return _outcome(world, a, b, "", "bound", why, shown)
    if extreme_constant(world, a, b, infinite=False):
        return None
    if any(_overflows(world, each) for each in (a, b)):
        return None  # a constant alone does that: the bound's condition holds of no value
    why = "one side is finite and the other is not"
    found = _hold(world, Bits(world.seed, "nonfinite", 96), a, b, _both_finite)
    if found is None and any(_dtype(world, each) == "fp16" for each in (*walk(a), *walk(b))):
        bits = Bits(world.seed, "far", 96)
        true, _ = world.evaluator(Bounds(bits), a, b).value(a)
        found = _hold(world, bits, a, b, lambda x, y: _both_finite(x, y) | ~np.isfinite(true.imag))
    return None if found is None else _outcome(world, a, b, "", "bound", why, found)


def _overflows(world: World, term: Term) -> bool:
    """Whether something over- or underflows in its dtype whatever the opaque values are, small ones at least. What is no number has
    not: the logarithm of what is never positive is wrong without any overflow."""
    value, _ = world.evaluator(Bounds(Bits(world.seed, "close", 8)), term).value(term)
    if value.dtype == np.bool_ or np.isnan(value.real).any():
        return False
    return bool(np.all(np.isinf(value.imag)))


def _trials(world: World, a: Term, b: Term) -> Iterator[tuple[Bits, str]]:
    """Values on which errors are held against one another, and which leaf is known to all digits: each that may be a constant in
    turn. Integers are small, and then any, which wrap around."""
    constants = [leaf.name for leaf in world.context.leaves.values() if not leaf.axes and not leaf.shape]
    integers = any(_dtype(world, each) == "i32" for each in _leaves(world, a, b))
    for style in ("ordinary", "close", *(["wide"] if integers else [])):
        for known in ("", *constants):
            yield Bits(world.seed, style, 96), known


def _beyond(world: World, a: Term, b: Term, bits: Bits, known: str) -> _Difference | None:
    """Where the new side is further off than the old side's arithmetic may be; None where it never is. ``known``: the leaf that
    has no error."""
    dtype = world.facts.dtype(a)
    unit, tiny = ROUNDING[dtype], TINY[dtype]
    true, _ = world.evaluator(Bounds(bits, known), a, b).value(a)
    old, _ = world.evaluator(bits, a, b).value(a)
    error = SLACK * (true.imag + unit * np.abs(true.real) + tiny)
    if any(each.head == "Unary" and each.args[0] == ROUNDED for each in walk(b)):
        # what it rounds on purpose is no fault of its arithmetic
        error = error + world.evaluator(Bounds(bits, known), a, b).value(b)[0].imag

    def close(x: Array, y: Array) -> Array:
        fine = np.abs(y.astype(np.float64) - true.real) <= error
        return fine | ~np.isfinite(true.real) | ~np.isfinite(error) | ~np.isfinite(old.astype(np.float64))

    return _hold(world, bits, a, b, close)


def _both_finite(x: Array, y: Array) -> Array:
    a, b = np.isfinite(x.astype(np.float64)), np.isfinite(y.astype(np.float64))
    return np.equal(a, b)
