"""The explanation of a compiled program: the rules run once more, and record their matches this time.

Compilation itself records nothing and pays nothing. The second run gives the same e-graph and the same choice, which is
checked; it costs the time of saturation and a fraction (docs/explain.md has the figures).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import Budget, saturate
from tinyc.explain.explain import Recorded, derive_program, explain_program
from tinyc.explain.explanation import Explanation
from tinyc.explain.survivors import survivors
from tinyc.explain.terms import Unexplained
from tinyc.extract.program import extract_program
from tinyc.index.boundaries import boundaries
from tinyc.index.derive import index_book
from tinyc.index.hints import CAPACITY
from tinyc.ir.diagnostics import TinycError, show
from tinyc.ir.region import MemRef, Region

from .pipeline import Built, Options, finished_seconds, legality, machine

NAIVE = "the naive program is used as it stands: no rule is applied to it"


def explain_built(built: Built, options: Options) -> Explanation:
    """From the naive program to ``built``, step by step, every step tried on numbers.

    Raises TinycError InvalidArgument for a program that goes on from a dump of Regions, and EngineLost where the second
    run of the rules does not end where the first did (a budget of time is spent at another point).
    """
    recorded = record(built, options)
    return Explanation((), {}, NAIVE) if recorded is None else explain_program(recorded)


def survivors_built(built: Built, options: Options) -> Mapping[str, int]:
    """Rule -> e-nodes of the chosen program that it made, as in the explanation; no step is tried, which is most of the
    work. Raises as :func:`explain_built`, and EngineLost where the chosen program has no derivation."""
    recorded = record(built, options)
    try:
        return {} if recorded is None else survivors(derive_program(recorded, wholes=False), recorded.choice)
    except Unexplained as error:
        raise TinycError(
            "EngineLost",
            f"the records of the rules do not say how the chosen program came about: {error}",
            "report this program",
            at={"layer": "egraph"},
        ) from error


def check_rule(rule: str, options: Options) -> None:
    """Raises InvalidArgument where the rule files have no rule of that name."""
    names = [each.name for each in load_rules(options.rules).rules]
    if rule not in names:
        near = difflib.get_close_matches(rule, names, 3)
        raise TinycError(
            "InvalidArgument",
            f"there is no rule {show(rule)}",
            f"did you mean {' or '.join(near)}?" if near else "tinyc rules list names all rules",
            at={"layer": "compiler", "value": rule},
        )


def record(built: Built, options: Options) -> Recorded | None:
    """The rules run once more, and what is extracted then; None where the naive program was used. Raises as
    :func:`explain_built`."""
    program = built.program
    if program is None:
        raise TinycError(
            "InvalidArgument",
            "compilation went on from a dump of Regions: no rule was applied, so there is nothing to explain",
            "explain the program itself",
            at={"layer": "compiler"},
        )
    capacity, rules = CAPACITY[options.target], load_rules(options.rules)
    saturation = saturate(
        program,
        rules,
        options.without,
        options.also,
        _unhurried(options.budget) if built.report.complete else options.budget,
        options.profile,
        boundaries(program, index_book(program), capacity),
        machine(options.target).limits,
        record=True,
    )
    # a search that its time did not end comes to the same, with time for a slower machine
    search = built.report.search
    effort = options.effort if search and search.limit == "seconds" else options.effort.unhurried
    price = finished_seconds(options, saturation.graph)
    found = extract_program(program, saturation.graph, options.model, legality(capacity), effort, price)
    used = built.report.fallback
    if used and (found.extracted is None or found.fault):
        return None
    if (
        used
        or found.extracted is None
        or found.view is None
        or found.choice is None
        or saturation.provenance is None
        or _bare(found.extracted.regions) != _bare(built.extracted.regions)
    ):
        raise TinycError(
            "EngineLost",
            "the rules were run once more for the explanation, and did not end where they did before",
            "raise the budget of time: it was spent",
            at={"layer": "egraph"},
        )
    regions = found.extracted.regions
    return Recorded(program, rules, saturation.provenance, found.view, found.choice, regions)


def _unhurried(budget: Budget) -> Budget:
    """More time and memory for a run that is known to end by itself: records take some, and a machine is not always as
    fast as before."""
    return replace(
        budget,
        seconds=10 * budget.seconds,
        memory_bytes=2 * budget.memory_bytes,
        phase_seconds=None,
        rule_seconds=None,
    )


def _bare(regions: Sequence[Region]) -> list[Region]:
    """Regions without what planning adds: hints, and how buffers lie in memory."""

    def plain(refs: Sequence[MemRef]) -> tuple[MemRef, ...]:
        return tuple(MemRef(ref.name, ref.dtype, ref.shape) for ref in refs)

    return [
        replace(region, inputs=plain(region.inputs), outputs=plain(region.outputs), deferred=())
        for region in regions
    ]
