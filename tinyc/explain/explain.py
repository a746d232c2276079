"""``explain_program``: the derivation of an extracted program, from records of the rules' matches."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tinyc.egraph.provenance import Provenance
from tinyc.egraph.rulefiles import RuleBase, RuleInfo
from tinyc.extract.choice import Choice
from tinyc.extract.view import View, axis_extent, axis_id
from tinyc.ir.region import Region
from tinyc.ir.tiny import Program

from .chains import Chain, Link, chain, naive_fill, read_buffers
from .checks import Checker
from .derive import Deriver
from .explanation import Explanation, KernelSteps, Step
from .goals import Goal, Goals
from .matches import Matches
from .scopes import Scopes
from .spell import MAX_TEXT, Speller
from .survivors import survivors
from .terms import Naive, Term, Terms, Unexplained, Whole, exceeds, subterms

KERNEL_TEXT = 4 * MAX_TEXT
"""Characters of a whole kernel as text."""

MAX_WHOLE = 1500
"""Terms of a kernel that is spelled out as a whole at every step."""

BACK = " (right to left)"
"""How the record of the second direction of a birewrite is named."""


@dataclass(frozen=True)
class Derivation:
    """The chains of a program's kernels. ``chains``: in the order in which buffers are met, outputs first. ``filled``:
    what each buffer was first filled with. ``goals``: the chosen terms. ``regions``: class of a buffer -> its Region."""

    terms: Terms
    matches: Matches
    chains: tuple[Chain, ...]
    filled: Mapping[str, Term]
    goals: Mapping[str, Goal]
    regions: Mapping[str, Region]
    named: Mapping[Term, str]


@dataclass(frozen=True)
class Recorded:
    """A program whose rules have recorded their matches, and what was extracted from its e-graph. ``regions``: of the
    kernels of ``choice``, in order."""

    program: Program
    rules: RuleBase
    provenance: Provenance
    view: View
    choice: Choice
    regions: Sequence[Region]


def derive_program(recorded: Recorded, wholes: bool = True) -> Derivation:
    """The chains of all kernels, unchecked. ``wholes``: with the whole kernel at every step, where it is not very large.
    Raises Unexplained where the chosen program has no spelling."""
    program, provenance, view = recorded.program, recorded.provenance, recorded.view
    choice, regions = recorded.choice, recorded.regions
    whole = Whole(provenance.rows, provenance.language)
    terms = Terms(whole)
    matches = Matches(provenance.records, provenance.rows, whole)
    spelled = Goals(terms, view)
    goals = {goal.buffer: goal for goal in spelled.of(choice)}
    free = {
        cls: frozenset((axis_id(name), axis_extent(name)) for name in axes) for cls, axes in view.free.items()
    }
    deriver = Deriver(terms, matches, Scopes(whole, free, spelled.normal))
    naive = Naive(terms, provenance.encoded.terms)
    tensors: dict[int, Term] = {}
    named: dict[Term, str] = {}
    for relation, args in provenance.encoded.facts:
        if relation in ("program-output", "node-number"):
            number, ref = args
            assert isinstance(number, int) and isinstance(ref, list)
            if relation == "program-output":
                tensors[number] = naive.term(ref[1])
            elif program.nodes[number].uop != "INPUT":  # an input has its own name
                with contextlib.suppress(Unexplained):  # what no output needs may be in no table
                    named.setdefault(naive.term(ref[1]), program.nodes[number].id)
    for number, cls in enumerate(view.graph.outputs):
        if cls not in deriver.filled:
            deriver.filled[cls] = naive_fill(terms, cls, tensors[number])
    waiting = dict.fromkeys(cls for cls in view.graph.outputs if cls in goals)
    chains: dict[str, Chain] = {}
    # a buffer is made by a step of a kernel that reads it: its own chain starts at what that step has filled it with
    while cls := next((cls for cls in waiting if cls in deriver.filled), ""):
        del waiting[cls]
        small = wholes and not exceeds(goals[cls].term, MAX_WHOLE)
        chains[cls] = chain(deriver, deriver.filled[cls], goals[cls], small)
        read = (other for other in read_buffers(goals[cls].term) if other in goals)
        waiting |= dict.fromkeys(other for other in read if other not in chains)
    by_buffer = {kernel.buffer.cls: region for kernel, region in zip(choice.kernels, regions, strict=True)}
    return Derivation(terms, matches, tuple(chains.values()), deriver.filled, goals, by_buffer, named)


def explain_program(recorded: Recorded) -> Explanation:
    """The explanation of what was extracted; each step is tried. Never raises for a program that compiled: what cannot be
    explained or tried is said so in the result."""
    try:
        found = derive_program(recorded)
    except Unexplained as error:
        unknown = [
            KernelSteps(region.name, region.outputs[0].name, "", "", (), (), "", str(error))
            for region in recorded.regions
        ]
        return Explanation(tuple(unknown), {})
    program = recorded.program
    buffers = {cls: region.outputs[0].name for cls, region in found.regions.items()}
    speller = Speller(found.terms, found.named, buffers, [port.name for port in program.inputs])
    rules = {rule.name: rule for rule in recorded.rules.rules}
    types = [program.types[port.node] for port in program.inputs]
    checker = Checker(types, found.filled)
    kernels: list[KernelSteps] = []
    known: dict[object, str] = {}
    number = 1
    for each in found.chains:
        region = found.regions[each.buffer]
        shape = _Shape(found.terms)
        same = tuple((link.move.instance.rule, link.move.forwards, *shape.of(link)) for link in each.links)
        like = known.setdefault((same, shape.end(each)), region.name) if not each.why else region.name
        steps: tuple[Step, ...] = ()
        if like == region.name:
            steps = tuple(
                _step(number + before, link, region.name, rules, checker, speller)
                for before, link in enumerate(each.links)
            )
            number += len(steps)
        kernels.append(
            KernelSteps(
                region.name,
                buffers[each.buffer],
                speller.text(each.start, KERNEL_TEXT),
                speller.text(found.goals[each.buffer].term, KERNEL_TEXT),
                _tensors(each, speller) if steps else (),
                steps,
                "" if like == region.name else like,
                each.why,
            )
        )
    missing = [
        region.name for cls, region in found.regions.items() if all(cls != c.buffer for c in found.chains)
    ]
    for name in missing:
        kernels.append(KernelSteps(name, "", "", "", (), (), "", "no step makes its buffer"))
    return Explanation(tuple(kernels), survivors(found, recorded.choice))


def _step(
    number: int, link: Link, kernel: str, rules: Mapping[str, RuleInfo], checker: Checker, speller: Speller
) -> Step:
    move = link.move
    rule = rules[move.instance.rule.removesuffix(BACK)]
    forwards = move.forwards != move.instance.rule.endswith(BACK)
    whole = (link.before, link.after) if link.before and link.after else None
    finding = checker.step(move.before, move.after, whole, rule.klass)
    return Step(
        number,
        rule.name,
        rule.ruleset,
        rule.klass,
        rule.equation,
        rule.file,
        rule.line,
        forwards,
        move.instance.because,
        kernel,
        _path(whole[0], move.before) if whole else (),
        speller.text(move.before),
        speller.text(move.after),
        speller.text(whole[0], KERNEL_TEXT) if whole else "",
        speller.text(whole[1], KERNEL_TEXT) if whole else "",
        finding.checked,
        finding.wrong,
        finding.error,
        finding.why,
    )


def _tensors(each: Chain, speller: Speller) -> tuple[str, ...]:
    """The tensors with names that the terms of a chain are elements of, in the order in which they are met."""
    met: dict[Term, None] = {}
    for link in each.links:
        for term in (link.move.before, link.move.after):
            stack = [part for part in subterms(term) if part.sort == "Tensor"]
            while stack:
                tensor = stack.pop()
                if tensor in speller.tensors and tensor.op != "Input":
                    met.setdefault(tensor)
                elif tensor not in speller.tensors:
                    stack += [arg for arg in tensor.operands() if arg.sort == "Tensor"]
    return tuple(speller.definition(tensor) for tensor in met)


def _path(whole: Term, site: Term) -> tuple[int, ...]:
    """The positions of operands that lead from the root to a value, to the first place where it stands."""
    came: dict[Term, tuple[Term, int] | None] = {whole: None}
    queue = [whole]
    for each in queue:  # it grows
        if each is site:
            break
        for number, arg in enumerate(each.args):
            if isinstance(arg, Term) and arg not in came and (each.sort != "Tensor" or site.sort == "Tensor"):
                came[arg] = (each, number)
                queue.append(arg)
    path: list[int] = []
    at = site
    while (step := came.get(at)) is not None:
        at, number = step
        path.append(number)
    return tuple(reversed(path))


class _Shape:
    """Terms with tensors, inputs and buffers numbered in the order in which a chain meets them: equal for kernels that
    differ in those names alone."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._numbers: dict[object, int] = {}
        self._made: dict[Term, object] = {}
        self._known: dict[object, int] = {}

    def of(self, link: Link) -> tuple[object, object]:
        return self._shape(link.move.before), self._shape(link.move.after)

    def end(self, each: Chain) -> object:
        return self._shape(each.end)

    def _shape(self, term: Term) -> object:
        for each in subterms(term):
            if each in self._made:
                continue
            if each.sort == "Tensor" or each.op in ("buffer", "Arg"):
                self._made[each] = (each.sort, self._numbers.setdefault(each, len(self._numbers)))
            else:
                parts = tuple(self._made[arg] if isinstance(arg, Term) else arg for arg in each.args)
                # a number per distinct shape keeps the key of a large term small
                self._made[each] = self._known.setdefault((each.op, parts), len(self._known))
        return self._made[term]
