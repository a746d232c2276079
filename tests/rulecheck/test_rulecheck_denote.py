"""What the checker takes constructors to mean is what the reference evaluator computes."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from random_programs import Maker, random_inputs

from tinyc.egraph.encode import encode
from tinyc.ir.document import program_from_document
from tinyc.ir.dtypes import DType
from tinyc.ir.evaluate import evaluate
from tinyc.ir.numeric import Rounding, function
from tinyc.ir.tiny import BINARY, UNARY, Program
from tinyc.rulecheck import bits, reals
from tinyc.rulecheck.bits import Bits
from tinyc.rulecheck.context import MANY, Context, IllFormed, Leaf, Reject
from tinyc.rulecheck.denote import Evaluator, axes_in
from tinyc.rulecheck.domains import Tokens
from tinyc.rulecheck.facts import Facts
from tinyc.rulecheck.reals import Reals
from tinyc.rulecheck.term import Term, axis, lit, plain, walk

Array = np.ndarray[Any, Any]


def terms(program: Program) -> tuple[list[Term], Facts]:
    """The program's outputs as terms of the checker, and facts about them."""
    encoded = encode(program)
    found: list[Any] = []

    def value(arg: Any) -> Any:
        return found[arg[1]] if isinstance(arg, list) else arg

    for name, args in encoded.terms:
        given = tuple(map(value, args))
        found.append(given if name in ("vec-of", "vec-empty") else Term(name, given))
    context = Context()
    for name, args, said in encoded.sets:
        if name in ("shape", "dtype"):
            term = value(args[0])
            old = context.leaves.get(term, Leaf(f"input{term.args[0]}"))
            changed = {name: value(said)}
            context.leaves[term] = Leaf(
                old.name, changed.get("dtype", old.dtype), changed.get("shape", old.shape)
            )
    outputs = [value(args[1]) for name, args in encoded.facts if name == "program-output"]
    return outputs, Facts(context)


def same(got: Array, want: Array) -> bool:
    """Equal numbers; the sign of a zero is open in a maximum."""
    a, b = np.broadcast_to(got, want.shape).astype(np.float64), want.astype(np.float64)
    return bool(np.all((a == b) | ((a != a) & (b != b))))


@pytest.mark.parametrize("seed", range(60))
def test_tensors_are_what_the_evaluator_computes(seed: int) -> None:
    program = program_from_document(Maker(random.Random(seed).randrange, 9).document())
    inputs = random_inputs(program, seed)
    wanted = evaluate(program, inputs)
    outputs, facts = terms(program)
    domain = Bits("", "ordinary", 1)
    domain.leaves = {f"input{k}": inputs[port.name][None] for k, port in enumerate(program.inputs)}
    with np.errstate(all="ignore"):
        for term, want in zip(outputs, wanted, strict=True):
            for each in walk(term):
                if each.head not in ("Imm", "Ax", "Lit", "Plus", "FloorDiv", "IAdd"):
                    facts.build(each.head, each.args)  # it is well formed
            got, mask = Evaluator(facts, domain, axes_in(facts, [term])).value(term)
            assert facts.shape(term) in (want.shape, None) and DType(facts.dtype(term)).numpy == want.dtype
            assert mask is None or bool(mask.all())
            assert same(got[0].reshape(want.shape if got[0].size == want.size else got[0].shape), want)


@pytest.mark.parametrize("op", [*UNARY, *BINARY])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_operators_are_those_of_the_evaluator_bit_for_bit(op: str, dtype: str) -> None:
    kind = DType(dtype)
    values = bits.specials(dtype)
    x, y = (each.ravel() for each in np.meshgrid(values, values))
    operands = (x,) if op in UNARY else (x, y)
    with np.errstate(all="ignore"):
        want = function(op, kind, Rounding(kind, False))(*operands)
        domain = Bits("", "special", 1)
        got = domain.unary(op, dtype, x) if op in UNARY else domain.binary(op, dtype, x, y)
        a, b = got.astype(np.float64), want.astype(np.float64)
        assert np.all((a == b) | ((a != a) & (b != b)))
        if op not in ("MAX", "MIN", "RELU"):
            assert np.all((np.signbit(a) == np.signbit(b)) | (a != a))


def test_the_maximum_of_zeros_is_the_positive_one_in_any_order() -> None:
    domain = Bits("", "special", 1)
    zeros = np.array([0.0, -0.0], np.float32)
    assert not np.signbit(domain.binary("MAX", "fp32", zeros, zeros[::-1])).any()
    assert np.signbit(domain.binary("MIN", "fp32", zeros, zeros[::-1])).all()


def test_rational_numbers_are_exact_and_say_where_they_end() -> None:
    domain = Reals("", "numbers", 1)

    def of(*values: object) -> Array:
        result = np.empty(len(values), object)
        result[:] = values
        return result

    assert domain.binary("FDIV", "fp32", of(1, 0), of(3, 0)).tolist()[1] is reals.UNDEFINED
    third = domain.binary("FDIV", "fp32", of(1), of(3))
    assert domain.binary("MUL", "fp32", third, of(3)).tolist() == [1]
    assert domain.unary("EXP2", "fp32", of(3, -1)).tolist() == [8, 0.5]
    assert domain.unary("LOG2", "fp32", of(8, 6, -1)).tolist() == [3, reals.UNKNOWN, reals.UNDEFINED]
    assert domain.unary("SQRT", "fp32", of(9, 2, -1)).tolist() == [3, reals.UNKNOWN, reals.UNDEFINED]
    assert domain.unary("EXP2", "fp32", third).tolist() == [reals.UNKNOWN]


def test_tokens_tell_the_order_of_sums_and_sums_do_not() -> None:
    for sums in (False, True):
        domain = Tokens("", sums=sums)
        x, y, z = (domain.leaf(name, "fp32", ()) for name in "xyz")
        left = domain.binary("ADD", "fp32", domain.binary("ADD", "fp32", x, y), z)
        right = domain.binary("ADD", "fp32", x, domain.binary("ADD", "fp32", z, y))
        assert bool(np.all(left == right)) is sums
        assert not np.any(left == domain.binary("ADD", "fp32", x, y))


def test_an_expression_reads_outside_of_its_tensor_only_where_nothing_chooses_it() -> None:
    facts = Facts(Context())
    tensor = Term("?Tensor", ("t",))
    facts.context.leaves[tensor] = Leaf("t", "fp32", (2,))
    three = plain(axis(0, 3))
    read, guard = Term("At", (tensor, (three,))), Term("Within", (three, 0, 2))
    chosen = Term("Select", (guard, read, Term("Const", ("fp32", 0))))
    evaluator = Evaluator(facts, Tokens(""), axes_in(facts, [chosen]))
    _, mask = evaluator.value(read)
    assert mask is not None and mask.ravel().tolist() == [True, True, False]
    _, mask = evaluator.value(chosen)
    assert mask is None or bool(mask.all())


ILL_FORMED: dict[str, Term] = {
    "coefficient 0": Term("Plus", (0, axis(0, 2), lit(0))),
    "not in order": Term("Plus", (1, axis(3, 2), plain(axis(1, 2)))),
    "literal 0": axis(0, 1),
    "divided by": Term("FloorDiv", (plain(axis(0, 4)), 1)),
    "binds an axis twice": Term("Reduce", ("MAX", (plain(axis(16, 2)), plain(axis(16, 2))), Term("Const", ("fp32", 0)))),
    "something else than axes": Term("Reduce", ("MAX", (lit(3),), Term("Const", ("fp32", 0)))),
    "different dtypes": Term("Binary", ("ADD", Term("Const", ("fp32", 0)), Term("Const", ("i32", 0)))),
    "not bool": Term("Select", (*[Term("Const", ("fp32", 0))] * 3,)),
    "takes no i32": Term("Unary", ("EXP2", Term("Const", ("i32", 0)))),
    "no dtype": Term("Cast", ("fp64", Term("Const", ("fp32", 0)))),
    "no operator": Term("Unary", ("COS", Term("Const", ("fp32", 0)))),
}  # fmt: skip


@pytest.mark.parametrize("why", ILL_FORMED)
def test_terms_that_no_program_has_are_refused(why: str) -> None:
    term = ILL_FORMED[why]
    with pytest.raises(IllFormed, match=why):
        Facts(Context()).build(term.head, term.args)


def test_bounds_and_prints_of_indices() -> None:
    facts = Facts(Context())
    i, j = axis(0, 4), axis(1, 3)
    index = Term("Plus", (2, i, Term("Plus", (-1, j, lit(5)))))
    assert (facts.low(index), facts.high(index)) == (3, 11)
    assert facts.values(index).min() == 3 and facts.values(index).max() == 11
    assert facts.top(index) == 1 and facts.axes_of(index) == {i, j}
    half = Term("Plus", (1, Term("FloorDiv", (index, 2)), lit(0)))
    assert (facts.low(half), facts.high(half)) == (1, 5)
    assert facts.ops_of(half) == 1 + facts.ops_of(index)
    assert facts.axes_upto(16, (2, 1, 3), 3) == ((plain(axis(16, 2)), lit(0), plain(axis(17, 3))), 18)
    assert math.prod(facts.values(half).shape) == 12


def test_axes_that_are_joined_to_one_are_no_operations() -> None:
    facts = Facts(Context())
    i, j, long = axis(0, 4), axis(1, 3), axis(2, 1 << 40)

    def index(*terms: tuple[int, Term], constant: int = 0) -> Term:
        found = lit(constant)
        for coef, atom in reversed(terms):
            found = Term("Plus", (coef, atom, found))
        return found

    for joined in (lit(0), plain(i), index((3, i), (1, j)), index((1, i), (4, j))):
        assert facts.ops_upto((joined,)) == 0
        assert facts.ix_points(joined) == facts.values(joined).size
    for other in (
        lit(2),
        index((2, i), (1, j)),  # some values twice
        index((6, i), (1, j)),  # some not at all
        index((3, i), (1, j), constant=1),
        index((-1, i), constant=3),
        index((1, Term("FloorDiv", (plain(i), 2)))),
        index((3, i)),
    ):
        assert facts.ops_upto((plain(j), other)) == facts.ops_of(other) > 0
    assert facts.ix_points(index((1, long))) == facts.ix_points(index((1 << 40, i), (1, long))) == MANY


def test_what_is_too_large_to_evaluate_is_rejected() -> None:
    """Points that are only counted may be many: memory for all of them would be refused, or take long."""
    big, long = Term("?Tensor", ("big",)), Term("?Tensor", ("long",))
    leaves = {big: Leaf("big", shape=(1024, 4096, 65536)), long: Leaf("long", shape=(4, 16384))}
    evaluator = Evaluator(Facts(Context(leaves=leaves)), Tokens("x"), ())
    for term in (big, Term("TReduce", ("MAX", 1, long))):
        with pytest.raises(Reject):
            evaluator.value(term)
