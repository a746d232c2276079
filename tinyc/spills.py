"""Plans whose kernels keep values in local memory are passed over: the next in the order of estimates is tried.

The cost model guesses how many registers a kernel needs; the assembler knows. What a spill costs, no estimate says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tinyc.extract.plans.planning import Planned
from tinyc.extract.plans.rank import RankedPlan, plan_of
from tinyc.extract.report.decisions import plan_words
from tinyc.extract.report.report import RefusedPlan
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.plan import Contraction, Plan
from tinyc.ir.region import Region, anonymous
from tinyc.ir.resources import Limits
from tinyc.ir.usage import KernelUsage

if TYPE_CHECKING:
    from tinyc.codegen.cuda import CudaKernel

Usage = Callable[["CudaKernel"], KernelUsage | None]
"""What a kernel takes; None where nobody can say."""

Generate = Callable[[Region, Plan], "CudaKernel"]

TRIED = 8
"""Plans of a kernel that are looked at; to compile one takes 0.1 s and more."""


def settle(
    planned: Planned,
    given: Sequence[Plan],
    limits: Limits,
    usage: Usage,
    generate: Generate | None = None,
) -> tuple[Planned, tuple[RefusedPlan, ...]]:
    """``planned`` with, for each Region, the first of its Plans whose kernel has no :attr:`KernelUsage.fault`, and the Plans
    that came before it. Where each of them has one, the Plan that keeps least in local memory is taken.

    ``given``: the Plans of the Regions before theirs were chosen, whose contractions they have. ``generate``: of the target.
    A kernel is compiled only where another Plan would change its source. Equal Regions are settled once. A Plan for which there
    is no code counts as refused, unless there is none for any. Raises TinycError CodegenFailed then, and CudaRefused.
    """
    if generate is None:
        from tinyc.codegen.cuda import generate
    assert generate is not None
    known: dict[tuple[Region, Contraction | None], tuple[int, tuple[RefusedPlan, ...]]] = {}
    extracted, ranked = planned.extracted, dict(planned.ranked)
    plans, notes = list(extracted.plans), list[RefusedPlan]()
    for number, region in enumerate(extracted.regions):
        found, roles = ranked.get(region.name, ()), given[number].contraction
        if len(found) < 2:
            continue
        # all but the first of equal Regions are spelled for one of them
        options = [replace(each, plan=plan_of(each.candidate, region, roles, limits)) for each in found[1:]]
        ordered = (found[0], *options)
        same = anonymous(replace(region, deferred=())), roles  # who reads its buffer changes no code
        if same not in known:
            known[same] = _first_right(region, ordered, usage, generate)
            notes += known[same][1]
        taken = known[same][0]
        ranked[region.name] = (ordered[taken], *ordered[taken + 1 :])
        plans[number] = ordered[taken].plan
    return replace(planned, extracted=replace(extracted, plans=tuple(plans)), ranked=ranked), tuple(notes)


def _first_right(
    region: Region, ordered: Sequence[RankedPlan], usage: Usage, generate: Generate
) -> tuple[int, tuple[RefusedPlan, ...]]:
    """The number of the Plan to take, and those before it that were refused."""
    kernels = _kernels(region, ordered, generate)
    first = next(kernels)
    other = next(kernels, None)
    if other is None:  # there is nothing to choose
        if isinstance(first[1], TinycError):
            raise first[1]
        return 0, ()
    refused: list[tuple[int, int, RefusedPlan]] = []  # bytes in local memory, number
    for number, kernel in (first, other, *kernels):
        words = plan_words(ordered[number].candidate)
        if isinstance(kernel, TinycError):
            refused.append((1 << 62, number, RefusedPlan(region.name, words, kernel.why)))
            continue
        took = usage(kernel)
        if took is None or took.fault is None:
            return number, tuple(note for _, _, note in refused)
        local = took.stack_bytes + took.spill_store_bytes + took.spill_load_bytes
        refused.append((local, number, RefusedPlan(region.name, words, took.fault)))
    local, least, note = min(refused, key=lambda each: each[:2])
    if local == 1 << 62:
        assert isinstance(first[1], TinycError)
        raise first[1]
    return least, tuple(replace(each, taken=each is note) for _, _, each in refused)


def _kernels(
    region: Region, ordered: Sequence[RankedPlan], generate: Generate
) -> Iterator[tuple[int, CudaKernel | TinycError]]:
    """The kernel of each Plan by its number, or why there is none; of the first :data:`TRIED`, each source once."""
    seen: set[str] = set()
    for number, each in enumerate(ordered[:TRIED]):
        try:
            kernel = generate(region, each.plan)
        except TinycError as error:
            yield number, error
            continue
        if kernel.source not in seen:
            seen.add(kernel.source)
            yield number, kernel
