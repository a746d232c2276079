"""The whole program out of a saturated e-graph: kernels chosen, built, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tinyc.egraph.graph import Graph
from tinyc.ir.check_region import fault
from tinyc.ir.plan import Extracted
from tinyc.ir.region import Region
from tinyc.ir.tiny import Program

from .choice import Choice
from .chosen import ChosenClass, chosen_classes
from .cost import CostModel
from .greedy import extract, improve
from .problem import Problem
from .regions import Built, build
from .view import View

MAX_STORING_ROUNDS = 4
"""How often extraction is repeated with reductions stored that it would have computed twice in a kernel."""


@dataclass(frozen=True)
class Found:
    """``extracted``: None where no whole program could be had. ``fused``: Region name -> ids of the document's nodes
    whose values it computes, in document order. ``malformed``: e-nodes that no program can hold, in words.
    ``fault``: what is wrong with a Region that was built; the program is not to be used then. ``classes``: where in the
    e-graph each value comes from."""

    extracted: Extracted | None
    fused: Mapping[str, tuple[str, ...]]
    malformed: tuple[str, ...]
    fault: str | None
    classes: tuple[ChosenClass, ...] = ()


Legality = Callable[[Region], str | None]


def _any(region: Region) -> str | None:
    return None


def extract_program(program: Program, graph: Graph | None, model: CostModel, legal: Legality = _any) -> Found:
    """The cheapest program that is found for ``program`` (integer shapes) in its e-graph.

    ``legal``: says what is wrong with a Region, None where nothing is. A kernel that it refuses is cut where its
    reductions are; if that does not help, ``fault`` says so.
    """
    if graph is None or len(graph.outputs) != len(program.outputs):
        return Found(None, {}, (), None)
    view = View(graph, len(program.inputs))
    malformed = tuple(dict.fromkeys(view.malformed))

    def wrong(region: Region) -> str | None:
        return fault(region) or legal(region)

    best = _cheapest(program, view, model, wrong)
    if best is None:
        return Found(None, {}, malformed, None)
    choice, extracted = best
    faults = (f"{region.name}, {text}" for region in extracted.regions if (text := wrong(region)))
    fused = _fused(program, view, choice, extracted)
    classes = chosen_classes(program, view, choice, extracted.regions)
    return Found(extracted, fused, malformed, next(faults, None), classes)


def _cheapest(
    program: Program, view: View, model: CostModel, wrong: Legality
) -> tuple[Choice, Extracted] | None:
    sizes = {}
    for number, port in enumerate(program.inputs):
        size = program.types[port.node].dtype.itemsize
        for extent in program.types[port.node].shape:
            size *= int(extent)
        sizes[number] = size
    problem = Problem(view, model, sizes)
    shares: Mapping[str, int] | None = None
    best: tuple[Choice, Extracted] | None = None
    for _ in range(MAX_STORING_ROUNDS):
        found = extract(problem, shares)
        if found is None:
            return best
        choice, shares = found.choice, found.shares
        built = build(program, view, choice, problem.rows)
        best = choice, built.extracted
        refused = built.repeated | _refused(built, wrong)
        if refused <= problem.stored:
            choice = improve(problem, choice)
            built = build(program, view, choice, problem.rows)
            kept = built.repeated | _refused(built, wrong) <= problem.stored
            return (choice, built.extracted) if kept else best
        problem = problem.storing(problem.stored | refused)
    return best


def _refused(built: Built, wrong: Legality) -> frozenset[str]:
    """The reductions of the kernels that are not what they should be."""
    pairs = zip(built.extracted.regions, built.reductions, strict=True)
    return frozenset().union(*(classes for region, classes in pairs if wrong(region) is not None))


def _fused(program: Program, view: View, choice: Choice, extracted: Extracted) -> dict[str, tuple[str, ...]]:
    fused = {}
    for kernel, region in zip(choice.kernels, extracted.regions, strict=True):
        numbers = {
            view.graph.names[cls]
            for (cls, _), item in kernel.items.items()
            if cls in view.graph.names and item.head not in ("Read", "Const")
        }
        fused[region.name] = tuple(program.nodes[number].id for number in sorted(numbers))
    return fused
