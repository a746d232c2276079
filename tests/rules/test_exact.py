"""Rules of class EXACT, bit for bit, on the values where such rules are usually wrong: zeros of both signs, infinities,
NaN, subnormals, the largest and least numbers, and halfway cases of rounding.

Each program is compiled with its ruleset and without; both must give what the evaluator gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rule_checks import Array, compiled, outputs, traced

import tinyc
from tinyc import functions as tc
from tinyc.egraph.rulefiles import load_rules
from tinyc.extract.cost.hardware import WEIGHTS
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program

NUMBERS = [
    0.0,
    1.0,
    1.5,
    2.0,
    3.0,
    1 / 3,
    0.1,
    7.25,
    1e-3,
    6.1e-5,
    5.9e-8,
    2.0**-14,
    2.0**-24,
    65504.0,
    65520.0,
]
FAR = [1e-45, 1.1754944e-38, 2.0**-126, 1e-20, 1e30, 3.4028235e38, 2.0**127, 1.0009766, 1.00048828125]
SPECIAL = np.array([sign * x for x in (*NUMBERS, *FAR, np.inf) for sign in (1, -1)] + [np.nan], np.float64)
INTEGERS = np.array([0, 1, -1, 2, 7, -7, 2**31 - 1, -(2**31), 2**30, -(2**30), 65536], np.int64)


def values(dtype: str) -> Array:
    kind = tinyc.spec(dtype, ()).dtype.numpy
    with np.errstate(over="ignore"):
        return (INTEGERS if dtype == "i32" else SPECIAL).astype(kind)


def bits(array: Array) -> Array:
    """Bit patterns, with one pattern for all NaN."""
    wide = array.astype(np.float64) if array.dtype.kind not in "ib" else array.astype(np.int64)
    return np.where(wide != wide, np.float64("nan"), wide).view(np.int64)


def check(program: Program, inputs: dict[str, Array], ruleset: str, zeros: bool = True) -> None:
    """With ``zeros`` the sign of a zero counts."""
    with_rules, without = compiled(program), compiled(program, without=[ruleset])
    texts = [[str(kernel.region.lets) for kernel in each.kernels] for each in (with_rules, without)]
    assert texts[0] != texts[1], "the rule does not match this program, or nothing makes it worth while"
    wanted = evaluate(program, inputs)
    for each in (with_rules, without):
        for got, want in zip(outputs(each, inputs), wanted, strict=True):
            left, right = (bits(array if zeros else array + array.dtype.type(0)) for array in (got, want))
            wrong = np.flatnonzero(left != right)
            assert not wrong.size, f"{got.ravel()[wrong[:5]]} for {want.ravel()[wrong[:5]]} at {wrong[:5]}"


def pairs(dtype: str, **shapes: tuple[int, int]) -> dict[str, Array]:
    """Every value of x with every value of y."""
    each = values(dtype)
    x, y = np.broadcast_arrays(each[:, None], each[None, :])
    return {"x": x.copy(), "y": y.copy()}


FLOATS = ("fp32", "fp16", "bf16")
One = Callable[[Any], Any]

#: ruleset, rule, the function that it matches, dtypes
UNARY: list[tuple[str, str, One, tuple[str, ...]]] = [
    ("identity", "times-one", lambda x: (x * 1) * 1, (*FLOATS, "i32")),
    ("identity", "one-times", lambda x: 1 * x, (*FLOATS, "i32")),
    ("identity", "over-one", lambda x: x / 1, FLOATS),
    ("identity", "plus-zero", lambda x: x + -0.0, FLOATS),
    ("identity", "zero-plus", lambda x: -0.0 + x, FLOATS),
    ("identity", "plus-zero", lambda x: x + 0, ("i32",)),
    ("identity", "minus-zero", lambda x: x - 0, (*FLOATS, "i32")),
    ("identity", "negate-twice", lambda x: negated(negated(x)), (*FLOATS, "i32")),
    ("identity", "relu-twice", lambda x: x.relu().relu(), FLOATS),
    ("identity", "max-same", lambda x: tc.maximum(x, x), (*FLOATS, "i32")),
    ("identity", "min-same", lambda x: tc.minimum(x, x), (*FLOATS, "i32")),
    ("identity", "select-same", lambda x: tc.where(x < 1, x, x), (*FLOATS, "i32")),
    ("identity", "cast-there-and-back", lambda x: x.cast("fp32").cast(x.dtype), ("fp16", "bf16")),
    ("strength", "divide-by-power-of-two", lambda x: x / 8.0, ("fp32",)),
    ("strength", "divide-by-power-of-two", lambda x: x / 2.0**-120, ("fp32",)),
    ("strength", "divide-by-power-of-two", lambda x: x / 2.0**126, ("fp32",)),
    ("strength", "one-over", lambda x: 1.0 / x, ("fp32",)),
    ("strength", "max-zero-is-relu", lambda x: tc.maximum(x, 0.0), ("fp32",)),
]
BINARY: list[tuple[str, str, Callable[[Any, Any], Any], tuple[str, ...]]] = [
    ("strength", "minus-negated", lambda x, y: x - (-y), (*FLOATS, "i32")),
    ("strength", "plus-negated", lambda x, y: x + (-y), (*FLOATS, "i32")),
    ("strength", "negated-plus", lambda x, y: (-x) + y, (*FLOATS, "i32")),
    ("strength", "negated-product", lambda x, y: (-x) * (-y), (*FLOATS, "i32")),
    ("monotone", "max-relu", lambda x, y: stacked(x, y).relu().max(0), FLOATS),
    ("monotone", "min-relu", lambda x, y: stacked(x, y).relu().min(0), FLOATS),
    ("monotone", "max-cast", lambda x, y: stacked(x, y).cast("fp16").max(0), ("fp32",)),
    ("monotone", "min-cast", lambda x, y: stacked(x, y).cast("bf16").min(0), ("fp32", "fp16")),
    ("monotone", "max-negated", lambda x, y: (-stacked(x, y)).max(0), FLOATS),
    ("monotone", "min-negated", lambda x, y: (-stacked(x, y)).min(0), FLOATS),
]


def negated(x: Any) -> Any:
    return -x


def stacked(x: Any, y: Any) -> Any:
    """x and y along a new first axis, from what the front end has: each padded by the other's place."""
    return x.expand_dims(0).pad([(0, 1), (0, 0), (0, 0)]) + y.expand_dims(0).pad([(1, 0), (0, 0), (0, 0)])


@pytest.mark.parametrize(
    ("ruleset", "function", "dtype"),
    [
        pytest.param(ruleset, function, dtype, id=f"{rule}-{dtype}-{number}")
        for number, (ruleset, rule, function, dtypes) in enumerate(UNARY)
        for dtype in dtypes
    ],
)
def test_a_rule_on_one_operand_is_exact(
    ruleset: str, function: One, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # where both sides cost the same, the left one must not win
    monkeypatch.setattr("tinyc.extract.cost.model.WEIGHTS", {**WEIGHTS, "FDIV": 60.0, "MAX": 60.0})
    x = values(dtype)
    check(traced(function, x=(dtype, x.shape)), {"x": x}, ruleset)


@pytest.mark.spec("I-41")
@pytest.mark.parametrize(
    ("ruleset", "function", "dtype"),
    [
        pytest.param(ruleset, function, dtype, id=f"{rule}-{dtype}")
        for ruleset, rule, function, dtypes in BINARY
        for dtype in dtypes
    ],
)
def test_a_rule_on_two_operands_is_exact(
    ruleset: str, function: Callable[[Any, Any], Any], dtype: str
) -> None:
    inputs = pairs(dtype)
    program = traced(function, x=(dtype, inputs["x"].shape), y=(dtype, inputs["y"].shape))
    check(program, inputs, ruleset, zeros=ruleset != "monotone")


def test_every_exact_rule_of_the_algebra_is_tried() -> None:
    tried = {f"{ruleset}/{rule}" for ruleset, rule, *_ in (*UNARY, *BINARY)}
    rules = [rule.name for rule in load_rules().rules if rule.ruleset in ("identity", "strength", "monotone")]
    facts = re.compile("identity/(one|zero)-(fp32|fp16|bf16|i32)")
    spelled = {re.sub("minus-zero-.*", "minus-zero", name) for name in rules if not facts.fullmatch(name)}
    # the encoder writes no cast to the dtype that is there; one point: test_traps.py
    assert spelled - tried == {"identity/cast-same", "identity/reduce-one-point"}


#: what the guards exclude: a function that a rule nearly matches, its dtype, and where the rule would be wrong
EXCLUDED: dict[str, tuple[One, str, list[float]]] = {
    "the least integer is its own negative": (lambda x: (-x).max(0, keepdims=True), "i32", [-(2**31), 5]),
    "the same for the minimum": (lambda x: (-x).min(0, keepdims=True), "i32", [-(2**31), 5]),
    "-0 + (+0) is +0": (lambda x: x + 0.0, "fp32", [-0.0, 1.0]),
    "-0 - (-0) is +0": (lambda x: x - -0.0, "fp32", [-0.0, 1.0]),
    "a subnormal reciprocal": (lambda x: x / 2.0**127, "fp32", [3.4028235e38, 1.5]),
    "a divisor whose reciprocal overflows": (lambda x: x / 2.0**-128, "fp32", [2.0**-140, 0.0]),
    "a cast that loses digits": (lambda x: x.cast("fp16").cast("fp32"), "fp32", [0.1, 70000.0]),
    "relu of a sum": (lambda x: x.relu().sum(0, keepdims=True), "fp32", [-3.0, 2.0]),
}


@pytest.mark.parametrize("case", EXCLUDED)
def test_what_a_guard_excludes_keeps_its_value(case: str) -> None:
    function, dtype, numbers = EXCLUDED[case]
    x = np.array(numbers).astype(tinyc.spec(dtype, ()).dtype.numpy)
    program = traced(function, x=(dtype, x.shape))
    (want,) = evaluate(program, {"x": x})
    (got,) = outputs(compiled(program), {"x": x})
    np.testing.assert_array_equal(bits(got), bits(want))
