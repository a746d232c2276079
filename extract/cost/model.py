"""What a kernel is estimated to cost, in seconds, from bytes moved, operations and launches on a hardware table."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from operator import add, attrgetter, mul
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeGuard

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType

from ..view import axis_extent
from .evaluators import Estimator, estimator, evaluator, rates
from .expressions import names_in
from .formulas import (
    BY_NAME,
    MACHINE,
    PART,
    SCHEDULE,
    TERMS,
    WORK,
    expression,
    needed,
    text_of,
)
from .hardware import WEIGHTS, Hardware
from .schedule import Schedule

if TYPE_CHECKING:
    import sympy

MATRIX = frozenset({DType.FP16, DType.BF16})
"""What matrix units multiply as it is. fp32 keeps its precision, unless a rule rounds it to tf32 (rules/tf32.egg)."""


@dataclass(frozen=True)
class Work:
    """What a kernel does, or a part of it. Everything but ``schedule`` adds up.

    Attributes:
        flops: of tiled contractions on the matrix units (a multiply-add is 2): fp16 and bf16 operands.
        vector_flops: of tiled contractions of other types (fp32, i32), which matrix units do not take.
        ops: simple operations, those of the epilogue included.
        epilogue_ops: the part of ``ops`` that runs after the contraction's last product.
        row_ops: the part of ``ops`` that is the same for all of a row of the result, in a kernel of loops.
        block_ops: the part of ``ops`` that is the same for all of the result.
        row_bytes, block_bytes: what is read for these.
        point_ops: the part of ``ops`` beside all sums, in a kernel of loops.
        tf32_flops: of tiled contractions of fp32 that is rounded to tf32, on the matrix units.
        bytes_read, bytes_written: each buffer once.
        reread_bytes: fetched again, after the first time: a value with many uses (fan-out).
        strided_bytes: fetched or stored by neighbours that do not lie side by side in memory.
        viewed_bytes: of a contraction's operands that are transposed on their way from shared memory (a logical view).
        transposed_bytes: of a copy into another layout (a transposition that is materialised).
        guards: evaluations of bounds tests (piecewise accesses).
        values: values that the kernel's code computes, however many elements they have.
        schedule: how it runs, where that is known; of two parts that are added, that of the first which has one.
    """

    flops: float = 0.0
    ops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    values: float = 0.0
    vector_flops: float = 0.0
    epilogue_ops: float = 0.0
    reread_bytes: float = 0.0
    strided_bytes: float = 0.0
    viewed_bytes: float = 0.0
    transposed_bytes: float = 0.0
    guards: float = 0.0
    row_ops: float = 0.0
    block_ops: float = 0.0
    row_bytes: float = 0.0
    block_bytes: float = 0.0
    point_ops: float = 0.0
    tf32_flops: float = 0.0
    schedule: Schedule | None = None

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.ops + other.ops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.values + other.values,
            self.vector_flops + other.vector_flops,
            self.epilogue_ops + other.epilogue_ops,
            self.reread_bytes + other.reread_bytes,
            self.strided_bytes + other.strided_bytes,
            self.viewed_bytes + other.viewed_bytes,
            self.transposed_bytes + other.transposed_bytes,
            self.guards + other.guards,
            self.row_ops + other.row_ops,
            self.block_ops + other.block_ops,
            self.row_bytes + other.row_bytes,
            self.block_bytes + other.block_bytes,
            self.point_ops + other.point_ops,
            self.tf32_flops + other.tf32_flops,
            self.schedule or other.schedule,
        )


AMOUNTS = tuple(each.name for each in fields(Work) if each.name != "schedule")
"""What adds up in a Work."""

Timer = Callable[[Sequence[float]], float]
"""What a whole kernel takes that does so much of :data:`AMOUNTS`, in seconds."""


def amounts_of(work: Work) -> tuple[float, ...]:
    """The amounts of AMOUNTS."""
    return tuple(map(float, _AMOUNTS(work)))


def work_of(amounts: Sequence[float], schedule: Schedule | None = None) -> Work:
    """A Work of these amounts of AMOUNTS."""
    make: Callable[..., Work] = Work
    return make(*amounts, schedule)


def added(works: Sequence[Work]) -> Work:
    """All of these, one after the other; at least one."""
    first, *others = works
    amounts = _AMOUNTS(first)
    for each in others:
        amounts = tuple(map(add, amounts, _AMOUNTS(each)))
    return work_of(amounts, next((each.schedule for each in works if each.schedule), None))


_AMOUNTS = attrgetter(*AMOUNTS)


class CostModel(Protocol):
    """Estimates in seconds, or in whatever else is to be small. Extraction minimises the sum of :meth:`kernel` over all
    kernels. A model may also have ``terms(work) -> Mapping[str, float]``: named terms that add up to ``kernel(work)``,
    for reports (:func:`terms_of`). docs/cost.md shows how to write one."""

    @property
    def hardware(self) -> Hardware:
        """The row of the hardware table that the estimates are for."""

    def seconds(self, work: Work) -> float:
        """Additive estimate of a part of a kernel; must not be negative."""

    def kernel(self, work: Work) -> float:
        """Estimate of a whole kernel, its launch included."""


@dataclass(frozen=True)
class Line:
    """One symbol or formula of an estimate, with its value. ``formula``: empty for a symbol."""

    name: str
    value: float
    unit: str
    formula: str
    about: str


@dataclass(frozen=True)
class Roofline:
    """The formulas of docs/cost.md (document 004 §11) on a row of the hardware table: the longer of arithmetic and
    memory, and what is added to it. Parts of a kernel are added up, with both sides.

    A kernel on a GPU whose Work has a Schedule is estimated with its occupancy, its pipeline and its waves; all others
    as if the machine were evenly full.
    """

    hardware: Hardware

    def seconds(self, work: Work) -> float:
        found = self._compiled
        return sum(map(mul, found.amounts(work), found.rates))

    def kernel(self, work: Work) -> float:
        return sum(self._values(work))

    def timer(self, schedule: Schedule | None) -> Timer:
        """The estimate of whole kernels that run as ``schedule`` says."""
        return self._compiled.estimators[schedule is not None and self.hardware.sms > 0].of(schedule)

    def timer_of_many(self, schedule: Schedule | None) -> Callable[[Sequence[Any]], Any]:
        """The same of arrays of amounts."""
        return self._compiled.estimators[schedule is not None and self.hardware.sms > 0].of_many(schedule)

    def terms(self, work: Work) -> Mapping[str, float]:
        """The terms of :data:`~tinyc.extract.cost.formulas.TERMS` in seconds. Their sum is ``kernel(work)`` exactly. Of
        arithmetic and memory only the longer side counts, the other is 0 here; :meth:`hidden` says what it takes."""
        return dict(zip(TERMS, self._values(work), strict=True))

    def hidden(self, work: Work) -> Mapping[str, float]:
        """The shorter side of the roofline, "compute" or "memory", in seconds."""
        found = self.quantities(work)
        compute, memory = found["compute_side"], found["memory_side"]
        return {"memory": memory} if compute >= memory else {"compute": compute}

    def occupancy(self, work: Work) -> float:
        """Resident warps over those possible; 1 where the estimate does not ask for a Schedule."""
        return self.quantities(work).get("occupancy", 1.0)

    def quantities(self, work: Work) -> Mapping[str, float]:
        """Every formula that the estimate goes through, by name, the terms among them."""
        scheduled = self._scheduled(work)
        values = self._compiled.everything[scheduled](work, work.schedule)
        return dict(zip(_everything(scheduled), values, strict=True))

    def symbols(self, work: Work) -> Mapping[str, float]:
        """Every symbol that the estimate's formulas are written over, with its value."""
        scheduled = self._scheduled(work)
        given = {name: getattr(work, name) for name in WORK}
        given |= {name: getattr(work.schedule, name) for name in SCHEDULE if scheduled}
        given |= _machine(self.hardware)
        used = frozenset[str]().union(
            *(names_in(text_of(name, scheduled)) for name in needed(TERMS, scheduled))
        )
        return {name: value for name, value in given.items() if name in used}

    def formula(self, term: str, work: Work | None = None) -> sympy.Expr:
        """The formula of a term, or of anything that :meth:`quantities` names; as it is for ``work``, else for a
        scheduled kernel. Raises TinycError InvalidArgument for a name that there is not."""
        if term not in BY_NAME:
            raise TinycError(
                "InvalidArgument",
                f"the cost model has no term {term!r}",
                f"its terms are {', '.join(TERMS)}",
                at={"layer": "extract", "value": term},
            )
        return expression(term, work is None or self._scheduled(work))

    def explain(self, work: Work) -> tuple[Line, ...]:
        """Everything that the estimate of ``work`` is made of: symbols first, the terms last."""
        scheduled = self._scheduled(work)
        described = {**WORK, **SCHEDULE, **MACHINE}
        lines = [
            Line(name, value, described[name][0], "", described[name][1])
            for name, value in self.symbols(work).items()
        ]
        for name, value in self.quantities(work).items():
            formula = BY_NAME[name]
            lines.append(Line(name, value, formula.unit, text_of(name, scheduled), formula.about))
        return tuple(lines)

    @cached_property
    def _compiled(self) -> _Compiled:
        return _compiled(self.hardware)

    def _scheduled(self, work: Work) -> bool:
        return work.schedule is not None and self.hardware.sms > 0

    def _values(self, work: Work) -> tuple[float, ...]:
        return self._compiled.terms[self._scheduled(work)](work, work.schedule)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_compiled"}


def timer(model: CostModel, schedule: Schedule | None) -> Timer:
    """The estimate of whole kernels that run as ``schedule`` says, by their amounts."""
    if estimates_by_formulas(model):
        return model.timer(schedule)
    return lambda amounts: model.kernel(work_of(amounts, schedule))


def timer_of_many(model: CostModel, schedule: Schedule | None) -> Callable[[Sequence[Any]], Any]:
    """The same of many kernels at once: of each amount an array, or a number that is that of all; in seconds, an array."""
    if estimates_by_formulas(model):
        return model.timer_of_many(schedule)
    import numpy as np

    one = timer(model, schedule)
    return lambda amounts: np.array(
        [one(list(map(float, each))) for each in zip(*np.broadcast_arrays(*amounts), strict=True)]
    )


def estimates_by_formulas(model: CostModel) -> TypeGuard[Roofline]:
    """Whether a model's estimates are these formulas: what is known of them holds. A subclass may say anything."""
    return type(model) is Roofline


def terms_of(model: CostModel, work: Work) -> Mapping[str, float]:
    """The named terms of a kernel's estimate; of a model that has none, one: "estimate"."""
    terms = getattr(model, "terms", None)
    return terms(work) if callable(terms) else {"estimate": model.kernel(work)}


def contracted(flops: float, dtype: DType) -> Work:
    """``flops`` of a tiled contraction whose operands are loaded as ``dtype``: matrix units take fp16 and bf16."""
    return Work(flops=flops) if dtype in MATRIX else Work(vector_flops=flops)


# ---- the formulas, compiled -----------------------------------------------------------------------------------------


Evaluate = Callable[[Work, Schedule | None], tuple[float, ...]]


class _Compiled(NamedTuple):
    """``amounts`` of a Work that cost anything in a part of a kernel, and their ``rates``; the evaluators and estimators of
    kernels without a Schedule and with one."""

    amounts: Callable[[Work], Iterable[float]]
    rates: tuple[float, ...]
    terms: tuple[Evaluate, Evaluate]
    everything: tuple[Evaluate, Evaluate]
    estimators: tuple[Estimator, Estimator]


@lru_cache(maxsize=64)
def _compiled(hardware: Hardware) -> _Compiled:
    machine = _machine(hardware)
    charged = rates(PART.name, machine)
    plain, scheduled = (
        (evaluator(TERMS, way, machine), evaluator(_everything(way), way, machine)) for way in (False, True)
    )
    amounts = attrgetter(*charged)
    return _Compiled(
        amounts,
        tuple(charged.values()),
        (plain[0], scheduled[0]),
        (plain[1], scheduled[1]),
        (estimator(TERMS, False, machine, AMOUNTS), estimator(TERMS, True, machine, AMOUNTS)),
    )


def _everything(scheduled: bool) -> tuple[str, ...]:
    return needed((*TERMS, "occupancy") if scheduled else TERMS, scheduled)


def _machine(hardware: Hardware) -> dict[str, float]:
    """The symbols of :data:`~tinyc.extract.cost.formulas.MACHINE`."""
    limits = hardware.limits
    return {
        "peak_flops": hardware.flops,
        "peak_vector_flops": hardware.vector_flops or hardware.flops,
        "peak_tf32_flops": hardware.tf32_flops or hardware.vector_flops or hardware.flops,
        "peak_ops": hardware.ops,
        "peak_bandwidth": hardware.bandwidth,
        "cache_cost": 1 / hardware.cache_bandwidth if hardware.cache_bandwidth else 0.0,
        "launch_cost": hardware.launch,
        "value_cost": hardware.value,
        "guard_ops": WEIGHTS["Within"],
        "write": hardware.write,
        "sms": hardware.sms,
        "registers_per_sm": limits.registers_per_sm,
        "smem_per_sm": limits.smem_per_sm,
        "warps_per_sm": limits.warps_per_sm,
        "blocks_per_sm": limits.blocks_per_sm,
        "access_bytes": limits.access_bytes,
        "latency": hardware.latency,
        "busy_warps": hardware.busy_warps,
        "loads": hardware.loads,
        "narrow": hardware.narrow,
        "strided": hardware.strided,
        "viewed": hardware.viewed,
        "transposed": hardware.transposed,
    }


# ---- counting -------------------------------------------------------------------------------------------------------


def points(axes: Iterable[str]) -> float:
    """How often a value with these free axes is evaluated: the product of their extents."""
    return math.prod(axis_extent(axis) for axis in axes)


def repeats(axes: Collection[int], shape: Sequence[int], blocks: bool) -> float:
    """How often loops over ``shape`` compute the same again. ``axes``: the places in ``shape`` of those that it depends on.

    One nest of loops computes it where the last of these axes is, again and again for those that are outside that and that it
    does not depend on. ``blocks``: on a GPU no block knows what another one has computed, and there is one, or a few, for
    each row of the result: all axes but the last repeat it."""
    wide = [number for number, size in enumerate(shape) if size > 1]
    last = max((number for number in wide if number in axes), default=-1)
    around = wide[:-1] if blocks else [number for number in wide if number < last]
    return float(math.prod(shape[number] for number in around if number not in axes))


def along_row(axes: Collection[int], shape: Sequence[int]) -> bool:
    """Whether what depends on these axes of ``shape`` is the same at all points of a row."""
    return max((number for number, size in enumerate(shape) if size > 1), default=-1) not in axes


def weight(op: str) -> float:
    return WEIGHTS.get(op, 1.0)
