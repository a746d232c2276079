"""Reports made by hand: what no compilation gives at once, such as odd names, measured times, and many kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinyc.extract.report.decisions import Decision
from tinyc.extract.report.report import (
    Ablation,
    ExtractionReport,
    KernelReport,
    MachineReport,
    PhaseSummary,
    PlanReport,
    RefusedPlan,
    RuleReport,
    SearchReport,
    Totals,
)
from tinyc.ir.diagnostics import Diagnostic
from tinyc.ir.usage import KernelUsage

NASTY = "<script>alert('k')</script> & \"quoted\" \x07 π"
"""A name that must not become markup. A program may not have all of it; a report that is read may."""

A100 = MachineReport("sm80", 312e12, 19.5e12, 9.75e12, 2.039e12, 3e-6)


def a_kernel(name: str = "k_C", flops: float = 2e9, size: float = 1e7, **fields: Any) -> KernelReport:
    terms = {"compute": 8e-6, "launch": 3e-6, "overlap": -1e-6}
    plan = PlanReport("implicit_gemm", (128, 64, 64), (64, 64), 3, 8, True, 32, 64, 176, 73_728, 0.03125, 1)
    base = KernelReport(
        name,
        f"kernel_{name}",
        name.removeprefix("k_"),
        "fp16",
        (512, 512),
        "contraction",
        flops,
        size,
        1e-5,
        1,
        1,
        ("n1", "n2"),
        terms,
        {"memory": 2e-6},
        plan,
    )
    return replace(base, **fields)


def totals(kernels: tuple[KernelReport, ...], factor: float = 1.0) -> Totals:
    terms: dict[str, float] = {}
    for kernel in kernels:
        for name, value in kernel.terms_s.items():
            terms[name] = terms.get(name, 0.0) + factor * value
    return Totals(
        len(kernels),
        sum(kernel.flops for kernel in kernels),
        sum(kernel.bytes for kernel in kernels),
        factor * sum(kernel.time_s for kernel in kernels),
        terms,
    )


DECISIONS = (
    Decision(
        "boundary",
        "n1 SUM",
        3,
        "fused into k_C",
        "a kernel of its own, 1.05 MB stored",
        3.8e-6,
        {"launch": 3e-6, "memory": 1.8e-6, "compute": -1e-6},
        "launch",
    ),
    Decision("plan", "k_C", 1, "128x64x64", "64x64x64", 0.2e-6, {"compute": 0.2e-6}, "compute"),
)

RULES = (
    RuleReport("fuse/read", "fuse", 7, 0.001, 12, 3, "fuse"),
    RuleReport("plan/tile", "plan", 4, 0.002, 8, 0, "plan"),
)


def a_report(*kernels: KernelReport, **fields: Any) -> ExtractionReport:
    """A report with something in every part; ``kernels``: instead of the one that it has."""
    chosen = kernels or (a_kernel(),)
    decisions = fields.pop("decisions", DECISIONS)
    rules = fields.pop("rules", RULES)
    survives = {rule.rule: rule.survives for rule in rules if rule.survives is not None}
    base = ExtractionReport(
        "sm80",
        "13.2.0",
        A100,
        chosen,
        totals(chosen),
        totals(chosen, 2.0),
        (PhaseSummary("fuse", 0.01, 3, 4, 40, 20, None), PhaseSummary("plan", 0.02, 5, 6, 90, 50, "enodes")),
        tuple(replace(rule, survives=None) for rule in rules),
        {"Read": 12},
        (Diagnostic("EngineLost", "it went away", "raise the budget", {"layer": "egraph"}, {}, "warning"),),
        False,
        False,
        {"saturate": 0.2, "extract": 0.1},
        search=SearchReport(False, 0.04, 2e-5, 1e-5, 0.3, 57, 812, "seconds"),
        ablation=(
            Ablation("fuse", True, 2, 2e-5, 1e-5),
            Ablation("fuse/read", False, None, None, None, "UnsoundUnion"),
        ),
        without=("streaming",),
        refused=(RefusedPlan("k_C", "256x128x64 4 stages", "8 bytes of spill stores", False),),
        assemble=lambda: (KernelUsage("kernel_k_C", "sm_80", 176, 0, 0, 0, 1024),),
        decide=lambda: decisions,
        trace=lambda: survives or None,
    )
    return replace(base, **fields)


def many(count: int = 120) -> ExtractionReport:
    """Kernels all over the plot, some of one place, one that computes nothing."""
    kernels = [
        a_kernel(
            f"k_{number}", 10.0 ** (3 + number % 9), 10.0 ** (2 + number % 7), time_s=1e-6 * (1 + number)
        )
        for number in range(count - 1)
    ]
    return a_report(*kernels, a_kernel("k_copy", 0.0, 1e6))
