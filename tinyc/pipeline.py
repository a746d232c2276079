"""From a bound program to kernels, stage by stage: what :class:`tinyc.compiler.Compiled` holds for one binding.

verify -> IndexBook (checked) -> facts of Poly Core -> saturate (rules/) -> extract, each Region checked -> code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tinyc.egraph.graph import Graph
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import Budget, saturate
from tinyc.extract.base import base_program
from tinyc.extract.chosen import ChosenClass
from tinyc.extract.cost.checked import checked
from tinyc.extract.cost.estimate import estimate
from tinyc.extract.cost.hardware import Hardware, hardware
from tinyc.extract.cost.model import CostModel, Roofline
from tinyc.extract.exact.proof import Effort
from tinyc.extract.plans.candidate import candidates_of
from tinyc.extract.plans.planning import Known, Planned, with_plans
from tinyc.extract.program import Found, Legality, Refusal, extract_program
from tinyc.extract.report.decisions import no_decisions
from tinyc.extract.report.make import make_report, search_of
from tinyc.extract.report.report import Assemble, ExtractionReport, RefusedPlan
from tinyc.extract.uncollected import uncollected
from tinyc.index.align import align_params
from tinyc.index.boundaries import boundaries, fused_fault
from tinyc.index.bounds import unguarded
from tinyc.index.derive import index_book
from tinyc.index.hints import CAPACITY
from tinyc.index.invariants import check_book
from tinyc.ir.deferred import mark_deferred
from tinyc.ir.diagnostics import Diagnostic, TinycError
from tinyc.ir.plan import Contraction, Extracted
from tinyc.ir.region import Region, anonymous
from tinyc.ir.signature import Signature, signature_of
from tinyc.ir.tiny import Program
from tinyc.ir.usage import KernelUsage
from tinyc.ir.verify import warnings as of_program

from .resume import Continued
from .settings import read_settings, usable_cores
from .spills import Usage, settle

if TYPE_CHECKING:
    from tinyc.codegen.cuda import CudaKernel
    from tinyc.runtime.cpu import Executable
    from tinyc.runtime.cuda.program import CudaProgram


LANES = 4
"""Processes of a search at most, where no number is asked for: more have hardly anything to do."""

MOST = 255
"""Processes of a search, however many are asked for."""


@dataclass(frozen=True)
class Options:
    """What a user chose. ``rules``: extra rule files and folders."""

    target: str
    rules: tuple[str | Path, ...] = ()
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    cost_model: CostModel | None = None
    profile: bool = False

    @property
    def model(self) -> CostModel:
        return Roofline(hardware(self.target)) if self.cost_model is None else checked(self.cost_model)

    @property
    def effort(self) -> Effort:
        """Of the exact search for the cheapest kernels."""
        budget = self.budget
        asked = budget.extract_processes
        lanes = min(usable_cores(), LANES) if asked is None else int(min(asked, MOST))
        return Effort(budget.extract_seconds, budget.extract_steps, lanes)


@dataclass(frozen=True)
class Built:
    """One binding of the symbols, compiled. ``program``: None where it goes on from a dump of Regions. ``reported``: gives
    the report. ``executable``: None for GPUs, and where no code was asked for. ``cuda``: the kernels for a GPU. ``chosen``:
    gives the classes that the kernels' values were chosen from, none where nothing was."""

    program: Program | None
    signature: Signature
    extracted: Extracted
    reported: Callable[[], ExtractionReport]
    executable: Executable | None
    chosen: Callable[[], tuple[ChosenClass, ...]] = tuple
    cuda: CudaProgram | None = None

    @property
    def report(self) -> ExtractionReport:
        return self.reported()


class _Clock:
    """Seconds per stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self._started
        self._started = now


@uncollected()
def compile_program(program: Program, options: Options, code: bool = True) -> Built:
    """The fast program for ``program``, whose sizes are integers; ``code``: to be run, not only reported on. Raises
    TinycError."""
    clock, capacity = _Clock(), CAPACITY[options.target]
    book = index_book(program)
    align_params(book, program)
    warnings = [*of_program(program), *check_book(book, program)]
    rules = load_rules(options.rules)
    apart = boundaries(program, book, capacity)
    clock.lap("index")
    limits = machine(options.target).limits
    saturation = saturate(
        program, rules, options.without, options.also, options.budget, options.profile, apart, limits
    )
    clock.lap("saturate")
    warnings += saturation.warnings
    looked_at: Known = {}
    found = extract_program(
        program,
        saturation.graph,
        options.model,
        legality(capacity),
        options.effort,
        finished_seconds(options, saturation.graph, looked_at),
    )
    warnings += _findings(found, bool(options.rules), warned=bool(saturation.warnings))
    usable = None if found.fault else found.extracted
    fallback = usable is None
    chosen = base_program(program) if usable is None else usable
    planned = _finished(chosen, options, saturation.graph, looked_at)
    refused: tuple[RefusedPlan, ...] = ()
    clock.lap("extract")
    if code and options.target != "cpu":
        planned, refused = settle(planned, chosen.plans, machine(options.target).limits, _usage_for(options))
    extracted = planned.extracted
    executable, cuda = code_for(extracted, options.target) if code else (None, None)
    clock.lap("codegen")
    naive = _finished(chosen if fallback else base_program(program), options, None, {}).extracted
    clock.lap("naive")
    report = make_report(
        options.target,
        options.model,
        extracted,
        naive,
        saturation,
        {} if fallback else found.fused,
        tuple(warnings),
        clock.seconds,
        fallback,
        _symbols(executable or cuda),
        decide=no_decisions if fallback else found.decide,
        ranked=planned.ranked,
        rulesets={rule.name: rule.ruleset for rule in rules.rules},
        without=options.without,
        also=options.also,
        added=tuple(Path(each).name for each in options.rules),
        trace=lambda: _survivors(built, options),
        search=None if fallback else search_of(found.proof),
        refused=refused,
        assemble=assemble_later(cuda),
    )
    classes = () if fallback else found.classes
    built = Built(
        program, signature_of(program), extracted, lambda: report, executable, lambda: classes, cuda
    )
    return built


def compile_continued(continued: Continued, options: Options) -> Built:
    """Code for Regions and Plans that were read from a dump: nothing is optimised. Raises TinycError."""
    clock, extracted = _Clock(), continued.extracted
    executable, cuda = code_for(extracted, options.target)
    clock.lap("codegen")
    report = make_report(
        options.target,
        options.model,
        extracted,
        extracted,
        None,
        {},
        (),
        clock.seconds,
        False,
        _symbols(executable or cuda),
        assemble=assemble_later(cuda),
    )
    return Built(None, continued.signature, extracted, lambda: report, executable, cuda=cuda)


def _survivors(built: Built, options: Options) -> Mapping[str, int] | None:
    """Rule -> e-nodes of the chosen program that it made; None where the rules, run once more, did not end where they did
    before, or a user's rule file is no longer what it was."""
    from .explained import survivors_built

    try:
        return survivors_built(built, options)
    except TinycError:  # a report is worth having without it; what is wrong, explain() says
        return None


def _finished(extracted: Extracted, options: Options, graph: Graph | None, looked_at: Known) -> Planned:
    """With the best Plans for the target, and what is handed straight on marked (document 004 §6.9). ``looked_at``: see
    :func:`with_plans`."""
    candidates = candidates_of(graph, machine(options.target).limits.arch)
    planned = with_plans(extracted, candidates, options.model, machine(options.target), looked_at)
    regions = mark_deferred(planned.extracted.regions, _returned(extracted))
    return replace(planned, extracted=replace(planned.extracted, regions=regions))


def _returned(extracted: Extracted) -> frozenset[str]:
    """The buffers that a program returns."""
    return frozenset(extracted.execution.buffers[id].name for id in extracted.execution.output_buffers)


def finished_seconds(
    options: Options, graph: Graph | None, looked_at: Known | None = None
) -> Callable[[Extracted], float]:
    """What a program is estimated at with its Plans. Equal Regions are looked at once. ``looked_at``: see :func:`with_plans`."""
    looked_at = {} if looked_at is None else looked_at
    known: dict[tuple[Region, Contraction | None], float] = {}
    row = machine(options.target)
    candidates = candidates_of(graph, row.limits.arch)

    def seconds(extracted: Extracted) -> float:
        total = 0.0
        marked = mark_deferred(extracted.regions, _returned(extracted))
        for region, plan in zip(marked, extracted.plans, strict=True):
            same = anonymous(region), plan.contraction
            if same not in known:
                alone = replace(extracted, regions=(replace(region, deferred=()),), plans=(plan,))
                planned = with_plans(alone, candidates, options.model, row, looked_at).extracted
                (found,), (own,) = planned.regions, planned.plans
                known[same] = estimate(replace(found, deferred=region.deferred), own, options.model).time_s
            total += known[same]
        return total

    return seconds


def legality(capacity: int) -> Legality:
    """What Poly Core has against a Region: an access that is not proven in bounds, a reduction that is fused under
    another although a row of its values is larger than ``capacity`` bytes. Equal Regions are looked at once."""
    known: dict[Region, Refusal | None] = {}

    def look(region: Region) -> Refusal | None:
        outside = unguarded(region)
        if outside:
            return Refusal(str(outside[0]), tuple(each.let for each in outside))
        why = fused_fault(region, capacity)
        return None if why is None else Refusal(why)

    def fault(region: Region) -> Refusal | None:
        same = anonymous(region)
        if same not in known:
            known[same] = look(region)
        return known[same]

    return fault


def machine(target: str) -> Hardware:
    """The table's row for a target; of a CPU, with the vector registers of this one."""
    row = hardware(target)
    if target != "cpu":
        return row
    from tinyc.codegen.cpu.host import host

    return replace(row, limits=host().limits)


def code_for(extracted: Extracted, target: str) -> tuple[Executable | None, CudaProgram | None]:
    """The code of a CPU or of a GPU."""
    return _executable(extracted, target), _cuda(extracted, target)


def _executable(extracted: Extracted, target: str) -> Executable | None:
    if target != "cpu":
        return None
    from tinyc.runtime.cpu import Executable

    return Executable(extracted, read_settings().num_threads)


def _cuda(extracted: Extracted, target: str) -> CudaProgram | None:
    if target == "cpu":
        return None
    from tinyc.runtime.cuda.program import cuda_program

    return cuda_program(extracted, target, read_settings().cache)


def assemble_later(cuda: CudaProgram | None) -> Assemble:
    """What the report calls to know what kernels take."""

    def usage() -> tuple[KernelUsage, ...]:
        try:
            return cuda.usage() if cuda else ()
        except TinycError:  # no NVRTC: a report is worth having without it
            return ()

    return usage


def _usage_for(options: Options) -> Usage:
    """What a kernel takes that is compiled for the target; None where there is nothing here to compile it."""
    from tinyc.codegen.nvrtc import compile_cubin
    from tinyc.runtime.cuda.program import ARCHITECTURES

    cache = read_settings().cache

    def usage(kernel: CudaKernel) -> KernelUsage | None:
        try:
            found = compile_cubin(kernel.source, ARCHITECTURES[options.target], cache=cache).usage
        except TinycError as error:
            if error.kind != "TargetUnavailable":
                raise
            return None
        return found[0] if found else None

    return usage


def _symbols(code: Executable | CudaProgram | None) -> tuple[str, ...]:
    return tuple(kernel.name for kernel in code.kernels) if code else ()


def _findings(found: Found, users: bool, warned: bool) -> list[Diagnostic]:
    """Warnings about what extraction met. Raises UnsoundUnion where a rule of a user's made a Region that is none."""
    listed = "; ".join(found.malformed[:5])
    if found.fault and users:
        raise TinycError(
            "UnsoundUnion",
            f"what was extracted is no program: kernel {found.fault}" + (f" ({listed})" if listed else ""),
            "a rule that was added builds a term that its place cannot hold; compile with them one by one",
            at={"layer": "extract"},
        )
    found_none = "no whole program could be extracted from the e-graph; the naive program is used"
    warnings = []
    if found.malformed:
        warnings.append(
            Diagnostic(
                "MalformedTerm",
                f"left out, since no program can hold it: {listed}",
                "look at what the rules build on their right-hand sides",
                {"layer": "extract"},
            )
        )
    if found.fault or (found.extracted is None and not warned):
        warnings.append(
            Diagnostic(
                "EngineLost",
                f"kernel {found.fault}; the naive program is used" if found.fault else found_none,
                "look at the rulesets that were left out, or report this program",
                {"layer": "extract"},
            )
        )
    return warnings
