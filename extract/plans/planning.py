"""The Plans of a whole program: of each kernel the cheapest candidate that the rules found for it, the default where it costs
as little, and where there are no candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tinyc.ir.plan import Contraction, Extracted, Plan
from tinyc.ir.region import Region, anonymous
from tinyc.ir.resources import Limits

from ..cost.hardware import Hardware
from ..cost.model import CostModel
from .candidate import Candidate, Problem, fold_problem, problem_of
from .default_plan import aligned, default_plan
from .rank import MOST, RankedPlan, plan_of, rank_plans


@dataclass(frozen=True)
class Planned:
    """``ranked``: Region name -> its Plans, the chosen one first; nothing for a kernel that has the default Plan. The others
    of kernels that are equal but for their buffers' names are spelled for the first of them."""

    extracted: Extracted
    ranked: Mapping[str, tuple[RankedPlan, ...]] = field(default_factory=dict)


Known = dict[tuple[Region, Contraction | None], tuple[RankedPlan, ...]]
"""The Plans of kernels that were looked at."""


def with_plans(
    extracted: Extracted,
    candidates: Mapping[Problem, tuple[Candidate, ...]],
    model: CostModel,
    hardware: Hardware,
    looked_at: Known | None = None,
) -> Planned:
    """``extracted`` with the Plan of every kernel for a machine; contractions stay what they are. ``looked_at``: with the same
    candidates, model and machine; what is found here is added."""
    limits = hardware.limits
    regions = aligned(extracted.regions, limits)
    ranked: dict[str, tuple[RankedPlan, ...]] = {}
    looked_at = {} if looked_at is None else looked_at
    known: Known = {}
    plans: list[Plan] = []
    for region, given in zip(regions, extracted.plans, strict=True):
        roles = given.contraction
        found = _candidates(region, roles, candidates, limits)
        if not found:
            plans.append(default_plan(region, roles, hardware))
            continue
        same = anonymous(region), roles
        if same not in known:
            if (region, roles) not in looked_at:
                preferred = default_plan(region, roles, hardware)
                best = rank_plans(region, roles, found, model, limits, preferred)
                if roles is not None and hardware.sms:
                    best = _or_loops(region, best, candidates, model, limits)
                looked_at[region, roles] = best
            known[same] = looked_at[region, roles]
        elif known[same]:
            first, *others = known[same]
            known_plan = plan_of(first.candidate, region, roles, limits)
            ranked[region.name] = (replace(first, plan=known_plan), *others)
        ranked.setdefault(region.name, known[same])
        best = ranked[region.name]
        plans.append(best[0].plan if best else default_plan(region, roles, hardware))
    chosen = replace(extracted, regions=regions, plans=tuple(plans))
    return Planned(chosen, {name: each for name, each in ranked.items() if each})


def _candidates(
    region: Region,
    roles: Contraction | None,
    candidates: Mapping[Problem, tuple[Candidate, ...]],
    limits: Limits,
) -> tuple[Candidate, ...]:
    problems = [problem_of(region, roles, limits)]
    if roles is None or not (roles.m and roles.n):
        problems.append(fold_problem(region, limits))
    return tuple(each for problem in problems if problem is not None for each in candidates.get(problem, ()))


def _or_loops(
    region: Region,
    tiled: tuple[RankedPlan, ...],
    candidates: Mapping[Problem, tuple[Candidate, ...]],
    model: CostModel,
    limits: Limits,
) -> tuple[RankedPlan, ...]:
    """The Plans of a contraction, with the best loops before them where those take less: of few points, tiles leave most of a
    GPU idle."""
    loops = rank_plans(region, None, _candidates(region, None, candidates, limits), model, limits)
    if loops and (not tiled or loops[0].estimate < tiled[0].estimate):
        return (loops[0], *tiled)[:MOST]
    return tiled
