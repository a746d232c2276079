"""The generated text: the same each time, free of users' names, and vector instructions where they count."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from region_builder import F16, F32, Build, gemm, generate
from test_reduce import softmax

from tinyc.codegen.cpu.host import host
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.plan import Plan
from tinyc.ir.region import Region
from tinyc.runtime.jit import assembly, optimised


def elementwise() -> Region:
    b = Build(i=100, j=100)
    b.input("X", F32, 100, 100)
    b.input("Y", F32, 100)
    return b.done(b.unary("EXP2", b.binary("ADD", b.read("X", "i", "j"), b.read("Y", "j"))))


def column_sum() -> Region:
    b = Build(j=1000)
    b.input("X", F16, 50, 1000)
    return b.done(b.reduce("SUM", b.cast(b.read("X", "r", "j"), F32), r=50))


CASES = {
    "elementwise": (elementwise, ("fma", "fadd")),
    "row softmax": (lambda: softmax(64, 1000, 1), ("fadd reassoc", "fdiv", "fma", "maximum")),
    "column softmax": (lambda: softmax(500, 128, 0), ("fadd reassoc", "fdiv", "fma", "maximum")),
    "column sum": (column_sum, ("fadd reassoc",)),
    "loops": (lambda: gemm(64, 64, 64)[0], ("fadd reassoc", "fmul")),
}


@pytest.mark.parametrize("name", CASES)
def test_inner_loops_are_vectors(name: str) -> None:
    region, wanted = CASES[name]
    text = str(optimised(generate(region(), Plan())))
    for operation in wanted:
        if operation == "fma" and not host().fma:
            continue
        assert re.search(rf"{operation}\b[^\n]*(<\d+ x float>|\.v\d+f32)", text), operation


def test_micro_kernel_holds_its_tile_in_registers() -> None:
    region, plan = gemm(256, 256, 256)
    text = assembly(generate(region, plan))
    loops = re.findall(r"\n(\.LBB\d+_\d+):(.*?)\n\tj\w+\s+\1\n", text, re.S)
    loop = max((body for _, body in loops), key=lambda body: body.count("vfmadd"))
    if host().lanes == 16:
        assert loop.count("vfmadd") and loop.count("vfmadd") % (2 * host().rows) == 0
        assert not re.search(r"vmov\w+\s+%zmm\d+, ", loop), "an accumulator is spilled"


def test_same_region_same_bytes() -> None:
    for region, _ in CASES.values():
        assert generate(region(), Plan()) == generate(region(), Plan())


def test_text_depends_on_the_host_only_through_its_description() -> None:
    region, plan = gemm(64, 64, 64)
    small = replace(host(), lanes=8, rows=6)
    assert generate(region, plan, small).source == generate(region, plan, small).source
    assert "<8 x float>" in generate(region, plan, small).source


@pytest.mark.parametrize("evil", ['x"\n} define void @main() {', "%in0", "; drop", "a b", ""])
def test_names_of_users_stay_out(evil: str) -> None:
    region = elementwise()
    plain = generate(region, Plan())
    renamed = replace(region, name=evil + "!!")
    assert generate(renamed, Plan()) == plain
    b = Build(i=10)
    b.input(evil, F32, 10)
    source = generate(b.done(b.read(evil, "i")), Plan()).source
    assert not evil or evil.startswith("%in") or evil not in source
    assert "@main" not in source


def test_missing_operation_is_an_error_that_says_which() -> None:
    from region_builder import I32

    b = Build(i=4)
    b.input("X", I32, 4)
    with pytest.raises(TinycError, match="SQRT for i32") as caught:
        generate(b.done(b.unary("SQRT", b.read("X", "i"))), Plan())
    assert caught.value.kind == "CodegenFailed"
