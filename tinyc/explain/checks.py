"""Each step tried on numbers: what a rule made equal, at its site and in its kernel.

Every step is evaluated on random inputs where its site is, at random points of the site's axes. Twice: over the reals, as
far as float64 knows them, where both sides must agree whatever the floating-point class of the rule; and in the dtypes of
the program, where they must agree as its class says. That the step is the same for the kernel as a whole (nothing was
captured, nothing else moved) is tried once, over the reals, at random elements of its output. Indices are integers, and
are compared exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tinyc.ir.dtypes import DType
from tinyc.ir.numeric import Array
from tinyc.ir.tiny import ROUNDED, TensorType

from .indices import NoMeaning, evaluate
from .inputs import random_inputs
from .scopes import Axis, mentioned
from .tensors import Tensors, TooLarge, unravelled
from .terms import BINDERS, BUFFER, Term, exceeds, fresh, subterms
from .values import Scope, Valued, Values, unravelled_scope

POINTS = 48
"""At most so many points of the outermost axes are tried."""

KERNEL_POINTS = 1 << 15
"""So many evaluations of one value of a kernel, with the points of its reductions, if that leaves two points."""

LARGE = 150
"""A kernel of more terms is not evaluated as a whole at every step: where the values at a site are equal, so are those of
what is computed from them."""

INDEX_POINTS = 1 << 14
"""All points of an index are tried where it has no more than this."""

REALS = 1e-8
"""Relative to the largest value: what float64 may lose in sums of another order."""

BOUNDED = ("BOUNDED", "REAL-ONLY")

WAYS = ("normal", "integers", "positive", "special")
"""Inputs that are tried, see ``inputs.random_inputs``."""

SPECIAL = "special"
"""Infinities, NaN and zeros of both signs: what EXACT speaks of, and no other class."""

_PRECISION = {DType.FP16: 2.0**-10, DType.BF16: 2.0**-7, DType.FP32: 2.0**-23}
_TF32 = 2.0**-10


@dataclass(frozen=True)
class Finding:
    """``checked``: both sides agree wherever both have a value. ``error``: the largest difference that was seen, relative
    to the largest value; 0 for none. ``why``: what is ``wrong``, or why nothing could be tried."""

    checked: bool
    error: float
    why: str = ""
    wrong: bool = False


class Checker:
    """Tries the steps of one program. ``filled``: what each buffer is filled with."""

    def __init__(self, types: Sequence[TensorType], filled: Mapping[str, Term], seed: int = 0) -> None:
        self.seed = seed
        self.filled = filled
        self.values: list[tuple[str, bool, Values]] = []
        for way in WAYS:
            inputs = random_inputs(types, seed, way)
            for reals in (False,) if way == SPECIAL else (True, False):
                self.values.append((way, reals, Values(Tensors(inputs, types, reals), filled)))
        self._scopes: dict[object, Scope] = {}
        self._nested: dict[Term, int] = {}
        self._kinds: dict[Term, _Kind] = {}

    def step(self, before: Term, after: Term, whole: tuple[Term, Term] | None, klass: str) -> Finding:
        """``before``, ``after``: of the site. ``whole``: what fills the kernel's buffer, before and after; None where
        that is too much to look at."""
        try:
            if before.sort in ("Ix", "Atom"):
                return self._index(before, after)
            errors: list[float] = []
            compared = 0
            for way, reals, values in self.values:
                if (klass == "REAL-ONLY" and not reals) or (klass != "EXACT" and way == SPECIAL):
                    continue
                small = whole is not None and not any(exceeds(each, LARGE) for each in whole)
                needed = reals and way == WAYS[0] and small
                for (left, right), sites in self._pairs(before, after, whole, values, needed):
                    found, count = _difference(left, right, klass in BOUNDED and not reals)
                    compared += count
                    if found > self._tolerance(klass, reals, sites, values, (left, right)):
                        why = f"{_shown(left, right)} with {way} inputs{' over the reals' if reals else ''}"
                        return Finding(False, found, why, wrong=True)
                    errors.append(found)
            if not compared:
                return Finding(False, 0.0, "no point was found at which both sides have a value")
            return Finding(True, max(errors, default=0.0))
        except NoMeaning as unknown:
            return Finding(False, 0.0, f"the value of {unknown} is not known")
        except TooLarge as large:
            return Finding(False, 0.0, f"not tried: {large}")

    def _pairs(
        self, before: Term, after: Term, whole: tuple[Term, Term] | None, values: Values, needed: bool
    ) -> Iterator[tuple[tuple[Valued, Valued], tuple[Term, Term]]]:
        """The values of both sides at the site, and, if they are ``needed`` or there are no others, of both kernels."""
        with np.errstate(all="ignore"):
            found = 0
            if before.sort == "Expr":
                axes = tuple(sorted(values.free(before) | values.free(after)))
                scope = self._scope(axes, min(POINTS, self._affordable(before), self._affordable(after)))
                sides = values.value(before, scope), values.value(after, scope)
                found = _comparable(*sides)
                yield sides, (before, after)
            if before.sort == "Tensor":
                yield (self._elements(before, values), self._elements(after, values)), (before, after)
            if whole is None or (found and not needed):
                return
            count = min(self._affordable(each) for each in whole)
            elements = math.prod(_shape(whole[0]))
            if math.prod(_shape(whole[1])) != elements:
                raise NoMeaning("a buffer of another size")
            offset = self._offsets(elements, min(count, POINTS))
            left, right = (self._buffer(each, offset, values) for each in whole)
            yield (left, right), whole

    def _elements(self, tensor: Term, values: Values) -> Valued:
        shape = values.tensors.shape(tensor)
        offset = self._offsets(math.prod(shape), POINTS)
        return values.tensors.at(tensor, unravelled(offset, shape)), None

    def _buffer(self, term: Term, offset: Array, values: Values) -> Valued:
        while term.op == "Alias":
            inner = term.args[1]
            assert isinstance(inner, Term)
            term = inner
        shape, body = _shape(term), term.args[2]
        assert isinstance(body, Term)
        key = ("buffer", shape, offset.tobytes())
        if key not in self._scopes:
            self._scopes[key] = unravelled_scope(offset, shape)
        return values.value(body, self._scopes[key])

    def _scope(self, axes: tuple[Axis, ...], count: int) -> Scope:
        key = ("site", axes, count)
        if key not in self._scopes:
            self._scopes[key] = Scope(_sampled(axes, count, self.seed), (max(count, 2),))
        return self._scopes[key]

    def _offsets(self, elements: int, count: int) -> Array:
        generator = np.random.default_rng(self.seed)
        ends = np.asarray([0, elements - 1])
        return np.concatenate([ends, generator.integers(0, elements, max(count - 2, 0))]).astype(np.int64)

    def _affordable(self, term: Term) -> int:
        """Points of the outermost axes for which the reductions in a term stay small, at least 2."""
        if term not in self._nested:
            for each in fresh(term, self._nested):
                inner = max((self._nested.get(arg, 1) for arg in each.operands()), default=1)
                if each.op in BINDERS:
                    vector = each.args[BINDERS[each.op]]
                    assert isinstance(vector, Term)
                    inner *= math.prod(extent for _, extent in _axes(vector))
                self._nested[each] = inner
        return max(2, KERNEL_POINTS // self._nested[term])

    def _tolerance(
        self, klass: str, reals: bool, sites: tuple[Term, Term], values: Values, sides: tuple[Valued, Valued]
    ) -> float:
        """Relative to the largest value. Over the reals all classes are equalities, but for a constant that a step of class BOUNDED
        makes of others: it is rounded. Else EXACT is equal bit for bit, but for sums of floats, which the evaluator itself adds in
        another order; small integers add up exactly."""
        kinds = [self._kind(site, values) for site in sites]
        if reals and not (klass in BOUNDED and _constants(sites[1]) - _constants(sites[0])):
            return REALS
        if klass == "EXACT" and not any(kind.sums for kind in kinds):
            return 0.0
        if klass in ("EXACT", "REASSOC") and all(map(_integers, sides)):
            return 0.0
        return 64 * max(kind.precision for kind in kinds)

    def _kind(self, term: Term, values: Values) -> _Kind:
        if term not in self._kinds:
            parts = subterms(term)
            floats = [values.dtype(each) for each in parts if each.sort == "Expr"]
            floats += [values.tensors.dtype(each) for each in parts if each.sort == "Tensor"]
            precision = max((_PRECISION.get(each, 0.0) for each in floats), default=0.0)
            if any(each.op == "Unary" and each.args[0] == f"'{ROUNDED}" for each in parts):
                precision = max(precision, _TF32)
            self._kinds[term] = _Kind(precision, any(_adds(each, values) for each in parts))
        return self._kinds[term]

    def _index(self, before: Term, after: Term) -> Finding:
        memo: dict[Term, frozenset[Axis]] = {}
        axes = tuple(sorted(mentioned(before, memo) | mentioned(after, memo)))
        points = math.prod(extent for _, extent in axes)
        if points <= INDEX_POINTS:
            grids = np.indices([extent for _, extent in axes]).reshape(len(axes), points)
            own = dict(zip(axes, grids, strict=True))
        else:
            own = _sampled(axes, INDEX_POINTS, self.seed)
        left, right = (evaluate(each, lambda id, extent: own[id, extent]) for each in (before, after))
        good = bool(np.all(left == right))
        return Finding(True, 0.0) if good else Finding(False, math.inf, "the indices differ", wrong=True)


def _constants(term: Term) -> frozenset[int]:
    """The bits of the constants in a term, and of the scales of its Streams."""
    parts = (each for each in subterms(term) if each.op in ("Const", "Stream", "RoundedStream"))
    return frozenset(arg for each in parts for arg in each.args if isinstance(arg, int))


@dataclass(frozen=True)
class _Kind:
    """Of a term: the coarsest precision of its floats, 0 without any; whether anything in it is added up from others."""

    precision: float
    sums: bool


def _adds(term: Term, values: Values) -> bool:
    """Whether a value is added up from others, itself or in the tensor or buffer that it is an element of."""
    if term.op in ("Stream", "RoundedStream", BUFFER) or (
        term.op == "Reduce" and term.args[0] in ("'SUM", "'PROD")
    ):
        return True
    return term.sort == "Tensor" and values.tensors.adds(term)


def _sampled(axes: Sequence[Axis], count: int, seed: int) -> dict[Axis, Array]:
    """Points of axes: the first, the last, the rest at random."""
    generator = np.random.default_rng(seed)
    return {
        (id, extent): np.concatenate(
            [[0, extent - 1], generator.integers(0, extent, max(count - 2, 0))]
        ).astype(np.int64)
        for id, extent in axes
    }


def _axes(term: Term) -> set[Axis]:
    return {each.args for each in subterms(term) if each.op == "Ax"}  # type: ignore[misc]


def _shape(fill: Term) -> tuple[int, ...]:
    """Of a Fill or Alias."""
    sizes = fill.args[1] if fill.op == "Fill" else fill.args[0]
    if fill.op not in ("Fill", "Alias") or not isinstance(sizes, Term):
        raise NoMeaning(fill.op)
    return tuple(int(size) for size in sizes.args)  # type: ignore[arg-type]


def _comparable(left: Valued, right: Valued) -> int:
    """At how many points both sides have a value."""
    return _difference(left, right, finite_only=False)[1]


def _difference(left: Valued, right: Valued, finite_only: bool) -> tuple[float, int]:
    """The largest difference relative to the largest finite value, and at how many points it was looked at.
    ``finite_only``: not where one side over- or underflows, which rules of class BOUNDED do not speak of."""
    (a, known), (b, defined) = left, right
    a, b = np.broadcast_arrays(a, b)
    good = np.ones(a.shape, bool)
    for mask in (known, defined):
        if mask is not None:
            good &= np.broadcast_to(mask, a.shape)
    x, y = a[good].astype(np.float64), b[good].astype(np.float64)
    if not x.size:
        return 0.0, 0
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    if same.all():
        return 0.0, x.size
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite_only and not (same | finite).all():
        return math.inf, x.size
    if not finite.any():
        return 0.0, x.size
    scale = max(float(np.abs(x[finite]).max()), float(np.abs(y[finite]).max()))
    return float(np.abs(x - y)[finite].max()) / scale, x.size


def _integers(valued: Valued) -> bool:
    array = valued[0].astype(np.float64)
    return bool(
        np.all(np.isfinite(array))
        and np.all(array == np.trunc(array))
        and np.abs(array).max(initial=0) < 2**24
    )


def _shown(left: Valued, right: Valued) -> str:
    """The first pair of values that differ."""
    (a, known), (b, defined) = left, right
    a, b = np.broadcast_arrays(a, b)
    differ = ~((a == b) | (np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))))
    for mask in (known, defined):
        if mask is not None:
            differ &= np.broadcast_to(mask, a.shape)
    at = np.flatnonzero(differ.reshape(-1))
    if not at.size:
        return "the values differ"
    return f"{float(a.reshape(-1)[at[0]]):.9g} became {float(b.reshape(-1)[at[0]]):.9g}"
