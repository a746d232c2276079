"""The extraction report: what was chosen, what it is estimated to cost, what lost and by what, and what the rules did.

Plain frozen data. :mod:`.report_make` fills it, :mod:`.report_text` and :mod:`.report_html` show it,
:mod:`.report_json` writes and reads it, :mod:`.compare` compares two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tinyc.ir.arena import EMPTY, Arena
from tinyc.ir.diagnostics import Diagnostic
from tinyc.ir.usage import KernelUsage

from .decisions import Decision, Deferred, no_decisions

VERSION = 2
"""Of the JSON form; raised when a key changes its meaning."""


@dataclass(frozen=True)
class MachineReport:
    """The roofs over all estimates: a row of the hardware table. ``vector_flops_per_s``: of contractions that matrix
    units do not take. ``ops_per_s``: simple operations. ``launch_s``: to start a kernel."""

    name: str
    flops_per_s: float
    vector_flops_per_s: float
    ops_per_s: float
    bytes_per_s: float
    launch_s: float


@dataclass(frozen=True)
class PlanReport:
    """How a kernel is cut for its machine. None: the Plan leaves it open, or the machine has no such thing.

    Attributes:
        algorithm: "loops", "stream", "implicit_gemm", "splitk_4", …
        tile: (BM, BN, BK) points. warp_tile: the part of a warp, on sm90 of a warpgroup.
        stages: tiles in the shared-memory ring.
        vector: elements of one access. async_copies: loads run beside the products.
        blocks, threads: of the grid, and of one block. registers: of one thread. smem_bytes: of one block.
        occupancy: resident warps over those possible. waves: rounds in which the grid runs.
    """

    algorithm: str
    tile: tuple[int, ...] | None = None
    warp_tile: tuple[int, ...] | None = None
    stages: int | None = None
    vector: int | None = None
    async_copies: bool | None = None
    blocks: int | None = None
    threads: int | None = None
    registers: int | None = None
    smem_bytes: int | None = None
    occupancy: float | None = None
    waves: int | None = None


@dataclass(frozen=True)
class KernelReport:
    """One kernel. FLOPs, bytes and seconds are estimates.

    Attributes:
        region: the name of its Region. symbol: its entry symbol in the generated code, empty where there is none;
            equal Regions share one.
        output, dtype, shape: of the buffer that it writes.
        algo: the schedule: "loops", "stream" or "contraction".
        flops: a multiply-add is 2. bytes: each buffer read once, the output written once.
        time_s: the estimate. terms_s: what it is the sum of, by name (docs/cost.md).
        hidden_s: the shorter side of the roofline, "compute" or "memory", which the longer one hides.
        contractions, reductions: sums over products, and all reductions.
        fused: the document's nodes that it computes.
        plan: how it is cut.
        actual_s: as measured, None where it was not.
    """

    region: str
    symbol: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    algo: str
    flops: float
    bytes: float
    time_s: float
    contractions: int
    reductions: int
    fused: tuple[str, ...]
    terms_s: Mapping[str, float]
    hidden_s: Mapping[str, float]
    plan: PlanReport
    actual_s: float | None = None


@dataclass(frozen=True)
class RuleReport:
    """What a rule did in one phase: matches, seconds of true time, and the e-nodes that it added (less what its
    unions merged), None where the rules were not profiled. ``survives``: e-nodes of the chosen program that it made,
    None where that was not recorded. ``ruleset``: empty where it is not known."""

    rule: str
    phase: str
    matches: int
    time_s: float
    enodes: int | None
    survives: int | None = None
    ruleset: str = ""


Trace = Callable[[], Mapping[str, int] | None]
"""Rule -> e-nodes of the chosen program that it made; None where that cannot be said."""


def not_traced() -> None:
    return None


@dataclass(frozen=True)
class PhaseSummary:
    """``enodes``: rows of constructors after the phase; ``stopped``: the budget that ended it, or None."""

    phase: str
    time_s: float
    rounds: int
    steps: int
    enodes: int
    added: int
    stopped: str | None


@dataclass(frozen=True)
class Totals:
    """A whole program, estimated. ``terms_s`` add up to ``time_s``."""

    kernels: int
    flops: float
    bytes: float
    time_s: float
    terms_s: Mapping[str, float]


@dataclass(frozen=True)
class SearchReport:
    """How good the extracted program is among all that the e-graph holds, as the search sees them.

    Attributes:
        optimal: no choice of kernels is estimated at less.
        gap: by which share of the estimate another could be cheaper at most.
        greedy_s, exact_s: what the greedy choice is estimated at with which the search began, and the one that was taken.
        time_s: that the exact search took.
        kernels, variables: that were weighed, and of the integer programs.
        limit: what ended the search before a proof: "seconds", "steps", "nodes", "parts"; or why its choice was not taken:
            "legality" (a kernel of it cannot be built), "plans" (with them it is dearer); "" where nothing did.
    """

    optimal: bool
    gap: float
    greedy_s: float
    exact_s: float
    time_s: float = 0.0
    kernels: int = 0
    variables: int = 0
    limit: str = ""


@dataclass(frozen=True)
class Ablation:
    """The program compiled again without one rule or ruleset. ``kernels``, ``time_s``: of what was extracted then, None
    where there was nothing. ``change_s``: that estimate less the report's; positive where the rule helps. ``note``: what
    else happened, such as that the naive program was all that was left."""

    name: str
    ruleset: bool
    kernels: int | None
    time_s: float | None
    change_s: float | None
    note: str = ""


@dataclass(frozen=True)
class Handover:
    """A deferred buffer (document 004 §6.9): ``producer`` and ``consumer`` are the names of the two Regions. ``through``:
    "gmem", since each Region is a kernel of its own; the hint asks for less (resolution I-35)."""

    buffer: str
    producer: str
    consumer: str
    bytes: int
    through: str = "gmem"


Assemble = Callable[[], tuple[KernelUsage, ...]]
"""Compiles the kernels for their GPU; empty for a CPU, and where they cannot be compiled here."""


def not_assembled() -> tuple[KernelUsage, ...]:
    return ()


@dataclass(frozen=True)
class RefusedPlan:
    """A Plan that came before the one that was taken, and ``why`` its kernel was refused: what it spills, or that there is no
    code for it. ``plan``: in words. ``taken``: it is used all the same, since no other does better."""

    region: str
    plan: str
    why: str
    taken: bool = False


@dataclass(frozen=True)
class InputCopies:
    """Calls in which an input came in another layout than dense row-major, or less aligned than it must be, and was
    copied."""

    input: str
    calls: int
    bytes: int


@dataclass(frozen=True)
class ExtractionReport:
    """``str()`` is for people, :meth:`to_json` for programs (stable; ``version`` changes with its meaning),
    :meth:`to_html` a page that needs nothing else. In a notebook it shows itself.

    Attributes:
        fallback: the engine gave nothing back and the naive program runs. complete: every phase ran to its end.
        naive: one kernel per reduction and output, on the same scale.
        sizes: rows per constructor and fact of the e-graph. seconds: wall time per stage of the compilation.
        arena: the memory of a call for what passes between its kernels, and the least that it could be.
        deferred, copied: see their classes; copied is as of now.
        search: how good the choice is among all that the e-graph holds; None where nothing was chosen.
        without, also: rulesets (and single rules) that were left out, and switched on. added: names of rule files that
            were given beside the built-in ones.
        ablation: what the program costs without single rules; empty unless asked for.
        matched: what each rule did in each phase; :attr:`rules` knows in addition what survives.
        refused: Plans that were passed over, since the kernels that they make keep values in local memory.
        decide, trace, assemble: make :attr:`decisions`, the survivors and :attr:`usage` when they are first asked for.
    """

    target: str
    engine: str
    machine: MachineReport
    kernels: tuple[KernelReport, ...]
    total: Totals
    naive: Totals
    phases: tuple[PhaseSummary, ...]
    matched: tuple[RuleReport, ...]
    sizes: Mapping[str, int]
    warnings: tuple[Diagnostic, ...]
    fallback: bool
    complete: bool
    seconds: Mapping[str, float]
    copied: tuple[InputCopies, ...] = ()
    deferred: tuple[Handover, ...] = ()
    arena: Arena = EMPTY
    search: SearchReport | None = None
    ablation: tuple[Ablation, ...] = ()
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    decide: Deferred = field(default=no_decisions, repr=False, compare=False)
    refused: tuple[RefusedPlan, ...] = ()
    trace: Trace = field(default=not_traced, repr=False, compare=False)
    assemble: Assemble = field(default=not_assembled, repr=False, compare=False)

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """For each class of consequence what was chosen, the runner-up, and the term of the cost by which it lost;
        the dearest runner-up first. Found by extracting again with the choice forbidden, so it takes a moment the first
        time; deterministic."""
        return self.decide()

    @cached_property
    def usage(self) -> tuple[KernelUsage, ...]:
        """What each kernel for a GPU takes, by ptxas: one per entry symbol, in the order of :attr:`kernels`. They are
        compiled for it when they are first asked for: about 0.1 s each where the cache does not have them."""
        return self.assemble()

    @cached_property
    def rules(self) -> tuple[RuleReport, ...]:
        """What each rule did in each phase, and how much of what it made survives. To know that, the rules run once more
        and are recorded, so it takes a saturation's time the first time."""
        survivors = self.trace()
        if survivors is None:
            return self.matched
        return tuple(replace(rule, survives=survivors.get(rule.rule, 0)) for rule in self.matched)

    def quick(self) -> ExtractionReport:
        """The same without what takes time to work out: decisions, survivors, and what kernels take."""
        return replace(self, decide=no_decisions, trace=not_traced, assemble=not_assembled)

    def to_json(self) -> str:
        """Strict JSON with sorted keys, as docs/schemas/report.schema.json says. Seconds, bytes and FLOPs."""
        from .to_json import to_json

        return to_json(self)

    def to_text(self, times: bool = True) -> str:
        """The same as ``str()``. ``times=False`` leaves out what the compiling machine and the engine's version decide —
        what a clock said, entry symbols, how often rules matched — so that the same program gives the same text everywhere."""
        from .text import to_text

        return to_text(self, times)

    def to_html(self, title: str = "") -> str:
        """One HTML page: no script, nothing from elsewhere. ``title``: of the page, such as a file's name."""
        from .page import to_html

        return to_html(self, title)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        from .page import fragment

        return fragment(self)

    def __getstate__(self) -> dict[str, object]:
        # what decides holds the e-graph; its answer is what is worth keeping
        known = {"decisions": self.decisions, "rules": self.rules, "usage": self.usage}
        return {
            **self.__dict__,
            **known,
            "decide": no_decisions,
            "trace": not_traced,
            "assemble": not_assembled,
        }
