"""What a rule builds may be no program: it is left out with a warning or refused, and never reaches the compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tinyc
from tinyc.ir.check_region import fault
from tinyc.ir.dtypes import DType
from tinyc.ir.index import axis, lit
from tinyc.ir.region import (
    Axis,
    Binary,
    Cast,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Unary,
    Value,
    Within,
    Yield,
)

HEAD = '(ruleset my)\n(in-phase "my" "algebra" "EXACT" "on")\n'
RELU = '(rule ((= e (Unary "RELU" x))) ((union e {}) (subsume (Unary "RELU" x))) :ruleset my :name "my/rule")'
FILL = '(rule ((= o (Out i b)) (= b (Fill d s x))) ((union b {})) :ruleset my :name "my/rule")'

LEFT_OUT = {
    "unary": RELU.format('(Unary "FOO" x)'),
    "unary_with_a_binary": RELU.format('(Unary "ADD" x)'),
    "binary": RELU.format('(Binary "FOO" x x)'),
    "reduce": RELU.format('(Reduce "FOO" (vec-of (Plus 1 (Ax 16 4) (Lit 0))) x)'),
    "negative_bits": RELU.format('(Const "fp32" -1)'),
    "too_many_bits": RELU.format('(Cast "fp32" (Const "fp16" 9999999))'),
    "bool_bits": RELU.format('(Select (Const "bool" 2) x (Const "fp32" 0))'),
    "dtype": RELU.format('(Cast "fp32" (Cast "foo" x))'),
    "input": '(rule ((= e (Unary "RELU" (Read b ix)))) ((union e (Read (Arg 77) ix))'
    ' (subsume (Unary "RELU" (Read b ix)))) :ruleset my :name "my/rule")',
    "input_before_the_first": '(rule ((= e (Unary "RELU" (Read b ix)))) ((union e (Read (Arg -1) ix))'
    ' (subsume (Unary "RELU" (Read b ix)))) :ruleset my :name "my/rule")',
    "alias_of_another_size": FILL.format('(Alias s (Fill d (vec-of 100000) (Const "fp32" 1065353216)))'),
}

REFUSED = {
    "exponential_of_an_integer": RELU.format('(Cast "fp32" (Unary "EXP2" (Cast "i32" x)))'),
    "operands_of_two_dtypes": RELU.format('(Binary "ADD" x (Cast "fp16" x))'),
    "buffer_of_two_dtypes": FILL.format('(Alias s (Fill "fp16" s (Const "fp16" 1)))'),
}


def program() -> tinyc.Program:
    return tinyc.trace(lambda x: x.relu() + 1.0, tinyc.spec("fp32", (6, 4), "x"))


def rule_file(folder: Path, rule: str) -> Path:
    path = folder / "mine.egg"
    path.write_text(HEAD + rule)
    return path


@pytest.mark.parametrize("name", LEFT_OUT)
def test_left_out_with_a_warning(name: str, tmp_path: Path) -> None:
    compiled = tinyc.optimize_and_compile(program(), rules=[rule_file(tmp_path, LEFT_OUT[name])])
    assert "MalformedTerm" in [warning.kind for warning in compiled.report.warnings]
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)
    np.testing.assert_array_equal(compiled(x=x), np.maximum(x, 0) + 1)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_naming_the_layer(name: str, tmp_path: Path) -> None:
    with pytest.raises(tinyc.TinycError) as caught:
        tinyc.optimize_and_compile(program(), rules=[rule_file(tmp_path, REFUSED[name])])
    assert caught.value.kind == "UnsoundUnion"


# ---- the check of a Region by itself ----

F, H, N, B = DType.FP32, DType.FP16, DType.I32, DType.BOOL


def region(*values: tuple[DType, Value], out: DType = F, last: str | None = None) -> Region:
    lets = tuple(Let(f"v{number}", dtype, value) for number, (dtype, value) in enumerate(values))
    iters = (Axis("i0", 6), Axis("i1", 4))
    stored = Yield(last or lets[-1].name, "out")
    return Region("k", iters, (MemRef("x", F, (6, 4)),), (MemRef("out", out, (6, 4)),), lets, (stored,))


READ = (F, Read("x", (axis("i0"), axis("i1"))))
RIGHT = {
    "read": region(READ),
    "guard": region(READ, (B, Within(axis("i0"), 1, 3)), (F, Select("v1", "v0", "v0"))),
    "sum": region((F, Read("x", (axis("i0"), axis("r0")))), (F, Reduce("SUM", (Axis("r0", 4),), "v0"))),
    "comparison": region(READ, (B, Binary("CMPLT", "v0", "v0")), out=B),
    "cast": region(READ, (N, Cast("v0")), out=N),
}
WRONG = {
    "before it is there": region((F, Unary("NEG", "v1")), READ),
    "no buffer": region((F, Read("y", (lit(0), lit(0))))),
    "of rank 2": region((F, Read("x", (axis("i0"),)))),
    "read as fp16": region((H, Read("x", (axis("i0"), axis("i1")))), out=H),
    "nothing binds": region((F, Read("x", (axis("i0"), axis("i7"))))),
    "62 bits": region((F, Read("x", (axis("i0") * 2**60, axis("i1"))))),
    "no bit pattern": region((H, Const(1 << 16)), out=H),
    "a guard is bool": region((F, Within(axis("i0"), 0, 1))),
    "no EXP2 from": region((N, Const(3)), (N, Unary("EXP2", "v0")), out=N),
    "no FOO": region(READ, (F, Unary("FOO", "v0"))),
    "no ADD on bool": region((B, Const(1)), (B, Binary("ADD", "v0", "v0")), out=B),
    "fp32 and fp16": region(READ, (H, Cast("v0")), (F, Binary("ADD", "v0", "v1"))),
    "selects between": region(READ, (F, Select("v0", "v0", "v0"))),
    "over 0 axes": region(READ, (F, Reduce("SUM", (), "v0"))),
    "unbound axes": region(
        (F, Read("x", (axis("i0"), axis("r0")))), (F, Reduce("SUM", (Axis("r0", 4),), "v0")), last="v0"
    ),
    "filled with fp16": region(READ, (H, Cast("v0"))),
    "no point": region((F, Read("x", (axis("i0"), axis("r0")))), (F, Reduce("SUM", (Axis("r0", 0),), "v0"))),
}


@pytest.mark.parametrize("name", RIGHT)
def test_region_without_fault(name: str) -> None:
    assert fault(RIGHT[name]) is None


@pytest.mark.parametrize("what", WRONG)
def test_region_with_a_fault(what: str) -> None:
    assert what in (fault(WRONG[what]) or "")
