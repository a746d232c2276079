"""The whole program out of a saturated e-graph: kernels chosen, built, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tinyc.egraph.graph import Graph
from tinyc.ir.check_region import fault
from tinyc.ir.plan import Extracted
from tinyc.ir.region import Region
from tinyc.ir.tiny import Program

from .choice import Choice
from .chosen import ChosenClass, chosen_classes
from .cost.model import CostModel
from .exact.exact import CLOSE, exact
from .exact.lanes import begun
from .exact.proof import GREEDY, Effort, Proof, unproven
from .exact.regular import Ahead, rowless_ahead
from .greedy import extract, improve, rough, rougher
from .problem import Problem
from .regions import Built, build
from .report.decisions import Deferred, Known, Later, decide, no_decisions
from .streams import walked_on_matrix_units
from .uncollected import uncollected
from .view import View, input_dtypes

MAX_STORING_ROUNDS = 4
"""How often extraction is repeated with reductions stored that it should not have computed where it did."""


@dataclass(frozen=True)
class Found:
    """What was extracted.

    ``extracted``: None where no whole program could be had. ``fused``: Region name -> ids of the document's nodes
    whose values it computes, in document order. ``malformed``: e-nodes that no program can hold, in words.
    ``fault``: what is wrong with a Region that was built; the program is not to be used then. ``classes``: where in the
    e-graph each value comes from. ``view``, ``choice``: what was chosen from, and what was. ``decide``: what else
    could have been chosen, worked out when it is called. ``proof``: how good the choice is known to be."""

    extracted: Extracted | None
    fused: Mapping[str, tuple[str, ...]]
    malformed: tuple[str, ...]
    fault: str | None
    classes: tuple[ChosenClass, ...] = ()
    view: View | None = None
    choice: Choice | None = None
    decide: Deferred = no_decisions
    proof: Proof | None = None


LONG = 3_000
"""Options from which on a search begins with what the first passes find, three blocks of a transformer: the others take as
long as the search, which finds better."""

BRIEF = 5_000
"""Values in the kernels of a program that are given Plans while it is searched; of more, that takes about as long."""

SURE = 0.5
"""A program that costs less than this share of what the search says of the one that it began with, is taken to be cheaper with Plans too:
of eleven stacks, what they began with cost 0.96 to 1.01 times of that (docs/benchmarks.md)."""


@dataclass(frozen=True)
class Refusal:
    """What is wrong with a Region. ``reads``: the lets of Reads that leave their buffers."""

    why: str
    reads: tuple[str, ...] = ()


Legality = Callable[[Region], Refusal | None]


def _any(region: Region) -> Refusal | None:
    return None


@uncollected()
def extract_program(
    program: Program,
    graph: Graph | None,
    model: CostModel,
    legal: Legality = _any,
    effort: Effort = GREEDY,
    finished: Callable[[Extracted], float] | None = None,
) -> Found:
    """The cheapest program that is found for ``program`` (integer shapes) in its e-graph: greedily first, then by the
    exact search, as far as ``effort`` goes.

    ``finished``: seconds that a program is estimated at once it has its Plans. The search sees less of a kernel; where
    its choice turns out dearer than the greedy one, that is taken.

    ``legal``: says what is wrong with a Region, None where nothing is. A kernel that it refuses does without the Reads that are
    wrong, or is cut where its reductions are; if that does not help, ``fault`` says so.
    """
    if graph is None or len(graph.outputs) != len(program.outputs):
        return Found(None, {}, (), None)
    view = View(graph, input_dtypes(program))
    if model.hardware.sms:
        view = walked_on_matrix_units(view)
    malformed = tuple(dict.fromkeys(view.malformed))

    def wrong(region: Region) -> Refusal | None:
        malformed = fault(region)
        return Refusal(malformed) if malformed else legal(region)

    problem = _problem(program, view, model)
    first, proved = None, None
    if effort and problem.size > LONG:
        with rowless_ahead(problem, effort.lanes) as ahead:
            first = _begun(program, problem, wrong)
            if first is not None:
                proved = _proved(program, view, first, effort, wrong, finished, ahead)
    if proved is not None and proved[3].limit == "greedy":
        proved = None  # it was not searched from there: its parts are large
    in_vain = proved is not None and proved[0].seconds == proved[3].start and proved[3].gap > CLOSE
    if proved is None or in_vain:
        best = _cheapest(program, problem, wrong)
        if best is None or (first is not None and first[0].seconds < best[0].seconds):
            best = first
        if best is None:
            return Found(None, {}, malformed, None)
        if proved is None or best[0].seconds < proved[0].seconds:
            left = effort if proved is None else effort.less(proved[3].time_s)
            again = _proved(program, view, best, left, wrong, finished)
            proved = again if proved is None else (*again[:3], again[3].after(proved[3]))
    choice, extracted, problem, proof = proved
    faults = (f"{region.name}, {found.why}" for region in extracted.regions if (found := wrong(region)))
    fused = _fused(program, view, choice, extracted)
    classes = chosen_classes(program, view, choice, extracted.regions)
    nodes = tuple(f"{node.id} {node.arg.get('op', node.uop)}" for node in program.nodes)

    def allowed(other: Choice) -> bool:
        built = build(program, view, other, problem.rows)
        return _stricter(problem, built, wrong) is None

    names = tuple(region.name for region in extracted.regions)
    known = Known(problem, choice, nodes, names, allowed)
    later = Later(lambda: decide(known))
    return Found(extracted, fused, malformed, next(faults, None), classes, view, choice, later, proof)


def _begun(program: Program, problem: Problem, wrong: Legality) -> tuple[Choice, Extracted, Problem] | None:
    """What the search begins with where a program is long: what the first passes find; None where that cannot be built. What they had
    to store need not be stored in what the search finds."""
    within, choice = problem, rough(problem)
    for _ in range(MAX_STORING_ROUNDS):
        if choice is None:
            return None
        built = build(program, problem.view, choice, problem.rows)
        stricter = _stricter(within, built, wrong)
        if stricter is None:
            right = not built.repeated | built.compared and not any(map(wrong, built.extracted.regions))
            return (choice, built.extracted, problem) if right else None
        within, choice = stricter, rougher(stricter, choice)
    return None


def _problem(program: Program, view: View, model: CostModel) -> Problem:
    sizes = {}
    for number, port in enumerate(program.inputs):
        size = program.types[port.node].dtype.itemsize
        for extent in program.types[port.node].shape:
            size *= int(extent)
        sizes[number] = size
    return Problem(view, model, sizes)


def _cheapest(
    program: Program, problem: Problem, wrong: Legality
) -> tuple[Choice, Extracted, Problem] | None:
    shares: Mapping[str, int] | None = None
    best: tuple[Choice, Extracted, Problem] | None = None
    for _ in range(MAX_STORING_ROUNDS):
        found = extract(problem, shares)
        if found is None:
            return best
        choice, shares = found.choice, found.shares
        built = build(program, problem.view, choice, problem.rows)
        best = choice, built.extracted, problem
        stricter = _stricter(problem, built, wrong)
        if stricter is None:
            choice = improve(problem, choice)
            built = build(program, problem.view, choice, problem.rows)
            kept = _stricter(problem, built, wrong) is None
            return (choice, built.extracted, problem) if kept else best
        problem = stricter
    return best


def _proved(
    program: Program,
    view: View,
    best: tuple[Choice, Extracted, Problem],
    effort: Effort,
    wrong: Legality,
    finished: Callable[[Extracted], float] | None,
    ahead: Ahead | None = None,
) -> tuple[Choice, Extracted, Problem, Proof]:
    """The exact choice, where it is better than the greedy one and can be built, and what is known of it. Reductions that
    the greedy choice had to store stay stored; where the exact one has kernels that must not be, others are stored as well, and
    the bound is that of the problem before. ``ahead``: of a search that begins with what the first passes find, see
    :func:`~tinyc.extract.exact.regular.guided`."""
    start, extracted, problem = best
    if not effort:
        return start, extracted, problem, unproven(problem, start)
    stored, proof = problem, None
    # of what a long search begins with, another process says so meanwhile, unless it takes about as long
    jobs = [lambda: finished(extracted)] if finished is not None else []
    brief = sum(len(region.lets) for region in extracted.regions) <= BRIEF
    with begun(jobs, effort.lanes if ahead is not None and brief else 1) as rest:
        for _ in range(MAX_STORING_ROUNDS):
            choice, found = exact(
                stored, start, effort, ahead is not None, ahead if stored is problem else None
            )
            proof = proof or found
            if choice is start:
                break
            built = build(program, view, choice, stored.rows)
            # what is computed again for other axes is counted as often
            stricter = _stricter(stored, replace(built, repeated=frozenset()), wrong)
            if stricter is None:
                own = 0.0 if finished is None else finished(built.extracted)
                if own > SURE * start.seconds and own > rest()[0]:
                    return start, extracted, problem, proof.of(start, "plans")
                return choice, built.extracted, stored, proof.of(choice)
            stored = stricter
    return start, extracted, problem, (proof or unproven(problem, start)).of(start)


def _stricter(problem: Problem, built: Built, wrong: Legality) -> Problem | None:
    """``problem`` without what is not as it should be in kernels that were built of it; None where that is nothing, or nothing
    more can be left out.

    A value that the e-graph holds once may be read from several buffers: of rows 0 to 3 and of rows 4 to 7, each only where those
    are asked for. A kernel that needs it in both places reads it from neither, though it computes it twice."""
    stored, computed = set(built.repeated | built.compared), set[str]()
    for region, classes, reads in zip(built.extracted.regions, built.reductions, built.reads, strict=True):
        refusal = wrong(region)
        if refusal is None:
            continue
        beyond = {reads[name] for name in refusal.reads if problem.otherwise(reads[name])}
        computed |= beyond
        stored |= frozenset() if beyond else classes
    stored = set(problem.storable(stored))
    if not computed and stored - problem.unstored <= problem.stored:
        return None
    return problem.storing(problem.stored | stored).computing(frozenset(computed))


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
