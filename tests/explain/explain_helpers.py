"""What the tests of explanations share: programs, and what must hold of every derivation."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from random_programs import Maker

import tinyc
from tinyc.explain.explain import Derivation, Recorded, derive_program
from tinyc.explain.terms import Term
from tinyc.explained import record
from tinyc.extract.view import axis_name
from tinyc.ir.dtypes import DType
from tinyc.ir.index import Affine, FloorDiv, affine, lit
from tinyc.ir.region import Binary, Cast, Const, Read, Reduce, Region, Select, Stream, Unary, Within
from tinyc.ir.tiny import Program
from tinyc.pipeline import Options, compile_program


def traced(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "fp32") -> Program:
    return tinyc.trace(function, *(tinyc.spec(dtype, shape) for shape in shapes))


def random_program(seed: int, steps: int = 8) -> Program:
    draw = random.Random(seed)
    return tinyc.load(Maker(lambda n: draw.randrange(n), steps).document())


def recorded(program: Program, options: Options | None = None) -> Recorded:
    options = options or Options("cpu")
    found = record(compile_program(program, options, code=False), options)
    assert found is not None, "the naive program was used"
    return found


def check_derivation(source: Recorded) -> Derivation:
    """Every kernel's chain starts at a naive element, chains step by step, names rules, and ends at its Region."""
    found = derive_program(source)
    rules = {rule.name for rule in source.rules.rules}
    assert len(found.chains) == len(source.regions)
    for chain in found.chains:
        assert not chain.why, chain.why
        at = chain.start
        for link in chain.links:
            assert link.before is at
            assert link.before.cls == link.after.cls and link.move.before.cls == link.move.after.cls
            assert link.move.before is not link.move.after
            assert link.move.instance.rule.removesuffix(" (right to left)") in rules
            at = link.after
        assert at is chain.end is found.goals[chain.buffer].term
        same_as_region(chain.end, found.regions[chain.buffer], found)
    for number, buffer in enumerate(source.view.graph.outputs):
        start = next(chain.start for chain in found.chains if chain.buffer == buffer)
        assert naive_element(start).args[0] is not None and number < len(source.program.outputs)
    return found


def naive_element(fill: Term) -> Term:
    """The element that fills an output's buffer, which is one of a tensor of the naive program."""
    (element,) = (arg for arg in fill.args if isinstance(arg, Term) and arg.sort == "Expr")
    assert fill.op == "Fill" and element.op == "At"
    return element


# ---- a chosen term is the Region, value for value ----


def same_as_region(fill: Term, region: Region, found: Derivation) -> None:
    """Raises AssertionError at the first value in which they differ."""
    while fill.op == "Alias":
        (fill,) = (arg for arg in fill.args if isinstance(arg, Term) and arg.sort == "Buf")
    sizes, body = fill.args[1], fill.args[2]
    assert isinstance(sizes, Term) and isinstance(body, Term)
    assert sizes.args == tuple(axis.size for axis in region.iters)
    long = [axis for axis in region.iters if axis.size > 1]
    scope = {axis_name(number, axis.size): axis.name for number, axis in enumerate(long)}
    _Comparison(region, found).same(body, region.yields[0].value, scope)


class _Comparison:
    def __init__(self, region: Region, found: Derivation) -> None:
        self.lets = {let.name: let for let in region.lets}
        self.found = found
        self.seen: set[tuple[Term, str]] = set()

    def same(self, term: Term, name: str, scope: Mapping[str, str]) -> None:
        if (term, name) in self.seen:
            return
        self.seen.add((term, name))
        let = self.lets[name]
        match term.op, term.args, let.value:
            case "Read", (Term() as buffer, Term() as index), Read(tensor, index_map):
                assert self.buffer(buffer, tensor)
                assert tuple(indices(index, scope)) == index_map
            case "Const", (str(dtype), int(bits)), Const(wanted):
                assert (DType(dtype[1:]), bits) == (let.dtype, wanted)
            case "Within", (Term() as index, int(low), int(high)), Within(wanted_index, lo, hi):
                assert (index_affine(index, scope), low, high) == (wanted_index, lo, hi)
            case "Unary", (str(op), Term() as x), Unary(wanted_op, operand):
                assert op[1:] == wanted_op
                self.same(x, operand, scope)
            case "Cast", (str(to), Term() as x), Cast(operand):
                assert DType(to[1:]) is let.dtype
                self.same(x, operand, scope)
            case "Binary", (str(op), Term() as x, Term() as y), Binary(wanted_op, left, right):
                assert op[1:] == wanted_op
                self.same(x, left, scope)
                self.same(y, right, scope)
            case "Select", (Term() as c, Term() as x, Term() as y), Select(cond, then, other):
                for part, operand in ((c, cond), (x, then), (y, other)):
                    self.same(part, operand, scope)
            case "Reduce", (str(op), Term() as axes, Term() as body), Reduce(wanted_op, bound, operand):
                assert op[1:] == wanted_op
                self.same(body, operand, inner(scope, axes, bound))
            case "Stream", (Term() as axes, Term() as s, Term() as w, int(bits)), Stream(
                bound, score, weight, scale
            ):
                assert self.lets[scale].value == Const(bits)
                for part, operand in ((s, score), (w, weight)):
                    self.same(part, operand, inner(scope, axes, bound))
            case "RoundedStream", (str(to), *rest), Stream(rounded=DType() as rounded):
                assert DType(to[1:]) is rounded
                plain = replace(term, op="Stream", args=tuple(rest))
                self.same(plain, name, scope)
            case _:
                raise AssertionError(f"{term.op} is not {let.value}")

    def buffer(self, buffer: Term, name: str) -> bool:
        if buffer.op == "Arg":
            return True  # inputs are named by their position
        return self.found.regions[buffer.cls].outputs[0].name == name


def inner(scope: Mapping[str, str], axes: Term, bound: Sequence[Any]) -> dict[str, str]:
    names = [axis for part in axes.operands() for axis in axes_of(part)]
    assert len(names) == len(bound)
    return {**scope, **{name: axis.name for name, axis in zip(names, bound, strict=True)}}


def axes_of(index: Term) -> list[str]:
    found = {each for each in _atoms(index)}
    return sorted(found, key=lambda name: int(name[1:].split("x")[0]))


def _atoms(term: Term) -> list[str]:
    if term.op == "Ax":
        return [axis_name(*(int(arg) for arg in term.args))]  # type: ignore[arg-type, call-overload]
    return [name for arg in term.operands() for name in _atoms(arg)]


def indices(vector: Term, scope: Mapping[str, str]) -> list[Affine]:
    return [index_affine(part, scope) for part in vector.operands()]


def index_affine(index: Term, scope: Mapping[str, str]) -> Affine:
    match index.op, index.args:
        case "Lit", (int(value),):
            return lit(value)
        case "Plus", (int(factor), Term("Ax", (int(id), int(extent))), Term() as rest):
            return affine(0, ((factor, scope[axis_name(id, extent)]),)) + index_affine(rest, scope)
        case "Plus", (int(factor), Term("FloorDiv", (Term() as part, int(den))), Term() as rest):
            return affine(0, ((factor, FloorDiv(index_affine(part, scope), den)),)) + index_affine(
                rest, scope
            )
    raise AssertionError(f"{index.op} is no normal form")
