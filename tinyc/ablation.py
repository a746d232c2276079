"""What each rule is worth to a program: its estimate when the rule, or its whole ruleset, is left out."""

from __future__ import annotations

from dataclasses import replace

from tinyc.extract.report.report import Ablation, ExtractionReport
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.tiny import Program

from .pipeline import Options, compile_program


def ablate(program: Program, options: Options, report: ExtractionReport) -> tuple[Ablation, ...]:
    """The program (integer shapes) optimised again without each rule that matched, and without each of their rulesets.

    No code is generated. It takes as many optimisations as there are rules that matched: tens of seconds.
    """
    rules = dict.fromkeys(rule.rule for rule in report.matched if rule.matches)
    rulesets = dict.fromkeys(rule.ruleset for rule in report.matched if rule.matches and rule.ruleset)
    found = [_without(program, options, report, name, True) for name in sorted(rulesets)]
    return (*found, *(_without(program, options, report, name, False) for name in sorted(rules)))


def _without(
    program: Program, options: Options, report: ExtractionReport, name: str, ruleset: bool
) -> Ablation:
    less = replace(options, without=(*options.without, name), profile=False)
    try:
        other = compile_program(program, less, code=False).report
    except TinycError as error:
        return Ablation(name, ruleset, None, None, None, error.kind)
    note = "only the naive program is left" if other.fallback else "" if other.complete else "cut off"
    change = other.total.time_s - report.total.time_s
    # what is left of two sums of the same numbers in another order is no change
    change = 0.0 if abs(change) <= 1e-9 * report.total.time_s else change
    return Ablation(name, ruleset, other.total.kernels, other.total.time_s, change, note)
