"""From what was compiled to its report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from tinyc.egraph.saturate import Saturation
from tinyc.ir.diagnostics import Diagnostic
from tinyc.ir.plan import Extracted, Plan
from tinyc.ir.region import Reduce, Region
from tinyc.ir.streams import walk_on

from ..cost.estimate import Estimate, estimate
from ..cost.hardware import Hardware
from ..cost.model import CostModel
from ..exact.proof import Proof
from ..plans.rank import RankedPlan
from .decisions import Deferred, Later, in_order, no_decisions, plan_decisions
from .report import (
    Assemble,
    ExtractionReport,
    Handover,
    KernelReport,
    MachineReport,
    PhaseSummary,
    PlanReport,
    RefusedPlan,
    RuleReport,
    SearchReport,
    Totals,
    Trace,
    not_assembled,
    not_traced,
)


def make_report(
    target: str,
    model: CostModel,
    extracted: Extracted,
    naive: Extracted,
    saturation: Saturation | None,
    fused: Mapping[str, tuple[str, ...]],
    warnings: tuple[Diagnostic, ...],
    seconds: Mapping[str, float],
    fallback: bool,
    symbols: tuple[str, ...] = (),
    *,
    search: SearchReport | None = None,
    decide: Deferred = no_decisions,
    ranked: Mapping[str, Sequence[RankedPlan]] | None = None,
    rulesets: Mapping[str, str] | None = None,
    trace: Trace = not_traced,
    measured: Mapping[str, float] | None = None,
    without: Sequence[str] = (),
    also: Sequence[str] = (),
    added: Sequence[str] = (),
    refused: Sequence[RefusedPlan] = (),
    assemble: Assemble = not_assembled,
) -> ExtractionReport:
    """``fused``: region name -> ids of the nodes it computes. ``seconds``: wall time per stage of this compilation.
    ``decide``: what else could have been extracted. ``ranked``: region name -> its Plans, the chosen one first.
    ``rulesets``: rule -> its ruleset. ``trace``: finds what survives of each rule. ``measured``: region
    name -> seconds that a run of it took. ``without``, ``also``, ``added``, ``refused``: as the report has them.
    ``assemble``: compiles the kernels."""
    estimates = _estimates(extracted, model)
    kernels = tuple(
        _kernel(
            region,
            plan,
            found,
            model,
            symbols[number] if symbols else "",
            fused.get(region.name, ()),
            (measured or {}).get(region.name),
        )
        for number, (region, plan, found) in enumerate(
            zip(extracted.regions, extracted.plans, estimates, strict=True)
        )
    )
    phases = saturation.phases if saturation else ()
    return ExtractionReport(
        target,
        saturation.engine if saturation else "not run",
        _machine(model.hardware),
        kernels,
        _totals(estimates),
        _totals(_estimates(naive, model)),
        tuple(
            PhaseSummary(
                p.name, p.seconds, p.rounds, p.steps, p.enodes, p.enodes - p.enodes_before, p.stopped
            )
            for p in phases
        ),
        tuple(
            RuleReport(
                rule,
                phase.name,
                matches,
                phase.rule_seconds.get(rule, 0.0),
                None if phase.rule_enodes is None else phase.rule_enodes.get(rule, 0),
                ruleset=(rulesets or {}).get(rule, ""),
            )
            for phase in phases
            for rule, matches in sorted(phase.rule_matches.items())
            if matches
        ),
        dict(sorted(phases[-1].sizes.items())) if phases else {},
        warnings,
        fallback,
        bool(saturation and saturation.complete),
        seconds,
        arena=extracted.execution.arena,
        deferred=_handovers(extracted),
        search=search,
        without=tuple(without),
        also=tuple(also),
        added=tuple(added),
        decide=Later(lambda: in_order((*decide(), *plan_decisions(ranked or {})))),
        refused=tuple(refused),
        trace=Later(trace),
        assemble=Later(assemble),
    )


def search_of(proof: Proof | None) -> SearchReport | None:
    """What the report says of a proof."""
    if proof is None:
        return None
    return SearchReport(
        proof.optimal,
        proof.gap,
        proof.start,
        proof.seconds,
        proof.time_s,
        proof.kernels,
        proof.variables,
        proof.limit,
    )


def _kernel(
    region: Region,
    plan: Plan,
    found: Estimate,
    model: CostModel,
    symbol: str,
    fused: tuple[str, ...],
    actual: float | None,
) -> KernelReport:
    out = region.outputs[0]
    hidden = getattr(model, "hidden", None)
    return KernelReport(
        region.name,
        symbol,
        out.name,
        out.dtype.value,
        out.shape,
        _schedule(region, plan, model.hardware.limits.arch),
        found.flops,
        found.bytes,
        found.time_s,
        len(contractions_of(region)),
        sum(isinstance(let.value, Reduce) for let in region.lets),
        fused,
        _nonzero(found.terms),
        _nonzero(hidden(found.work)) if callable(hidden) else {},
        _plan(region, plan, found, model),
        actual,
    )


def _schedule(region: Region, plan: Plan, arch: str) -> str:
    return "stream" if plan.algo != "contraction" and walk_on(region, arch) is not None else plan.algo


def _plan(region: Region, plan: Plan, found: Estimate, model: CostModel) -> PlanReport:
    """What the Plan says, and what the cost model takes the kernel to need."""
    choices = dict(plan.algo_choice)
    algorithm = _schedule(region, plan, model.hardware.limits.arch)
    if plan.algo == "contraction":
        algorithm = choices.get("conv") or choices.get("matmul") or algorithm
    given = PlanReport(
        algorithm,
        plan.tile,
        plan.warp_tile,
        plan.stages,
        plan.vectorize.width if plan.vectorize else None,
        plan.async_.enable if plan.async_ else None,
    )
    schedule = found.work.schedule
    if schedule is None:
        return given
    quantities = getattr(model, "quantities", None)
    known: Mapping[str, float] = quantities(found.work) if callable(quantities) else {}
    waves = known.get("waves")
    return PlanReport(
        given.algorithm,
        given.tile,
        given.warp_tile,
        given.stages,
        given.vector,
        given.async_copies,
        schedule.blocks,
        schedule.threads,
        schedule.registers or None,
        schedule.smem_bytes,
        known.get("occupancy"),
        None if waves is None else math.ceil(waves),
    )


def _machine(hardware: Hardware) -> MachineReport:
    return MachineReport(
        hardware.name,
        hardware.flops,
        hardware.vector_flops or hardware.flops,
        hardware.ops,
        hardware.bandwidth,
        hardware.launch,
    )


def _handovers(extracted: Extracted) -> tuple[Handover, ...]:
    """What Regions defer to the next one."""
    readers = {ref.name: region.name for region in extracted.regions for ref in region.inputs}
    return tuple(
        Handover(ref.name, region.name, readers[ref.name], ref.bytes)
        for region in extracted.regions
        for ref in region.outputs
        if ref.name in region.deferred and ref.name in readers
    )


def contractions_of(region: Region) -> tuple[str, ...]:
    """The sums over a product, by the names of their lets."""
    lets = {let.name: let.value for let in region.lets}
    return tuple(
        name
        for name, value in lets.items()
        if isinstance(value, Reduce) and value.op == "SUM" and getattr(lets[value.body], "op", None) == "MUL"
    )


def _estimates(program: Extracted, model: CostModel) -> list[Estimate]:
    pairs = zip(program.regions, program.plans, strict=True)
    return [estimate(region, plan, model) for region, plan in pairs]


def _totals(found: Sequence[Estimate]) -> Totals:
    terms: Counter[str] = Counter()
    for each in found:
        for name, seconds in each.terms.items():
            terms[name] += seconds  # type: ignore[assignment]
    return Totals(
        len(found),
        sum(each.flops for each in found),
        sum(each.bytes for each in found),
        sum(each.time_s for each in found),
        _nonzero(terms),
    )


def _nonzero(terms: Mapping[str, float]) -> dict[str, float]:
    return {name: seconds for name, seconds in terms.items() if seconds}
