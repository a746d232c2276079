"""The parser and the checks before anything runs, on PTX of NVRTC and PTX by hand."""

from __future__ import annotations

import re

import pytest
from emulated import GEMM, PRELUDE

from tinyc import TinycError
from tinyc.codegen.emulator import Emulated, emulate, parse_ptx
from tinyc.codegen.emulator.lex import number, tokens
from tinyc.codegen.emulator.ptx import Address, Immediate, Negated, Register, Symbol, Target, Vector
from tinyc.codegen.nvrtc import compile_ptx

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def kernel(body: str, parameters: str = "", before: str = "") -> str:
    return f"{HEAD}{before}\n.visible .entry k({parameters})\n{{\n{body}\n}}\n"


def attempt(body: str, parameters: str = "", before: str = "") -> Emulated:
    return emulate(kernel(body, parameters, before), "k", 1, 32, [0] * parameters.count(".param"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", (0, "int")),
        ("42U", (42, "int")),
        ("0x1F", (31, "int")),
        ("017", (15, "int")),
        ("0b101", (5, "int")),
        ("0f3F800000", (0x3F800000, "f32")),
        ("0d3FF0000000000000", (0x3FF0000000000000, "f64")),
        ("1.5", (0x3FF8000000000000, "f64")),
        ("2e3", (0x409F400000000000, "f64")),
    ],
)
def test_numbers(text: str, wanted: tuple[int, str]) -> None:
    assert [token.kind for token in tokens(text)] == ["number", "end"]
    assert number(text) == wanted


def test_tokens_know_their_lines() -> None:
    found = tokens("a /* b\nc */ d // e\n@!%p1 bra $L__BB0_1;\nld.global.L2::128B.v4.f32")
    assert [(token.text, token.line) for token in found[:-1]] == [
        ("a", 1), ("d", 2), ("@", 3), ("!", 3), ("%p1", 3), ("bra", 3), ("$L__BB0_1", 3), (";", 3),
        ("ld.global.L2::128B.v4.f32", 4),
    ]  # fmt: skip


def test_a_kernel_of_nvrtc() -> None:
    """Every statement of a large kernel is there: as many instructions as lines that end in one."""
    text = compile_ptx(PRELUDE + GEMM)
    found = parse_ptx(text).kernels["gemm"]
    body = text[text.index("{", text.index(".entry")) :]
    lines = [line.strip() for line in body.splitlines()]
    instructions = [line for line in lines if re.match(r"(@!?%p\d+ )?[a-z][\w.]*[^:]*;$", line)]
    assert len(found.instructions) == len(instructions) + 1  # the ret that every kernel ends with
    assert [each.name for each in found.instructions[:-1]] == [
        re.sub(r"^@!?%p\d+ ", "", line).rstrip(";").split()[0] for line in instructions
    ]
    assert [each.type for each in found.parameters] == ["u64"] * 3 + ["u32"] * 3
    assert [each.offset for each in found.parameters] == [0, 8, 16, 24, 28, 32]
    assert found.block == (256, 1, 1) and not found.exact
    source = (PRELUDE + GEMM).splitlines()
    multiply = next(each for each in found.instructions if each.opcode == "mma")
    assert multiply.cuda is not None
    line = multiply.cuda.line  # the first of the statement, or the last by an older NVRTC
    assert "mma.sync" in source[line - 1] or "mma.sync" in source[line - 3]
    copy = next(each for each in found.instructions if each.name.startswith("cp.async.cg"))
    assert copy.cuda is not None and copy.cuda.caller is not None
    assert "copy16" in source[copy.cuda.caller.line - 1]


def test_operands() -> None:
    body = """
    .reg .pred %p<3>; .reg .b32 %r<9>, x; .reg .b64 %rd<2>; .reg .f32 %f<5>;
    .shared .align 16 .b8 tile[64];
    @!%p1 ld.shared.v4.f32 {%f1, %f2, %f3, _}, [tile+-4];
    $L: selp.b32 %r1, -1, 0x10, !%p2;
    { .reg .b32 x; mov.u32 x, %tid.x; }
    @%p2 bra.uni $L;
    st.shared.u32 [%r1+8], x;"""
    found = parse_ptx(kernel(body)).kernels["k"]
    load, select, move, branch, store, end = found.instructions
    assert load.guard is not None and load.guard.negated and load.guard.register.name == "%p1"
    assert isinstance(load.operands[0], Vector) and len(load.operands[0].elements) == 4
    assert load.operands[1] == Address(Symbol("tile"), -4) or load.operands[1] == Address(
        Symbol("tile", -4), 0
    )
    assert select.operands[1:3] == (Immediate(-1), Immediate(16)) and isinstance(select.operands[3], Negated)
    assert branch.operands == (Target("$L", 1),)
    inner, outer = move.operands[0], store.operands[1]
    assert isinstance(inner, Register) and isinstance(outer, Register)
    assert inner.name == outer.name == "x" and inner.number != outer.number
    assert end.name == "ret" and [each.line for each in found.instructions[:3]] == [10, 11, 12]
    assert [(each.name, each.size, each.alignment) for each in found.variables] == [("tile", 64, 16)]


def test_variables_and_their_first_bytes() -> None:
    before = """
    .const .align 4 .b8 table[8] = {1, 0, 0, 0, 255};
    .global .align 8 .f64 half = 0d3FE0000000000000;
    .global .align 2 .u16 grid[2][3] = {{1, 2}, {-1}};
    .extern .shared .align 128 .b8 dynamic[];"""
    table, half, grid, dynamic = parse_ptx(kernel("ret;", before=before)).variables
    assert (table.size, table.initial) == (8, b"\1\0\0\0\xff")
    assert (half.size, half.initial) == (8, b"\0\0\0\0\0\0\xe0\x3f")
    assert (grid.size, grid.initial) == (12, b"\1\0\2\0\xff\xff")
    assert (dynamic.size, dynamic.alignment, dynamic.space) == (None, 128, "shared")


REGISTERS = ".reg .pred %p<3>; .reg .b16 %h<3>; .reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .f32 %f<5>; .reg .f64 %d<3>;\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("frobnicate.b32 %r1, %r2;", "not known"),
        ("add.s33 %r1, %r2, %r3;", "not known"),
        ("add.s32 %r1, %r2, %r99;", "nothing declares %r99"),
        ("add.s32 %r1, %r2;", "operands are expected"),
        ("add.s32 %r1, %r2, %r3, %r4;", "operands are expected"),
        ("add.s32 %r1, %r2, %f1;", "declared .f32"),
        ("add.f32 %f1, %f2, 3;", "stands where f32"),
        ("add.s32 %r1, %r2, 0f3F800000;", "literal of type f32"),
        ("add.s32 %rd1, %r2, %r3;", "64 bits"),
        ("add.s32 %r1, %r2, 4294967296;", "no room"),
        ("add.s32 7, %r2, %r3;", "register is expected"),
        ("setp.lt.s32 %r1, %r2, %r3;", "declared .b32"),
        ("@%r1 bra L; L: ret;", "no predicate"),
        ("bra nowhere;", "no label nowhere"),
        ("mov.u32 %r1, %nosuch;", "nothing declares %nosuch"),
        ("mov.b64 %rd1, {%r1, %r2, %r3};", "vector of 2 or 4"),
        ("ld.global.f32 %f1, %rd1;", "address is expected"),
        ("ld.global.f32 %f1, [%f2];", "cannot hold an address"),
        ("ld.global.f32 %h1, [%rd1];", "16 bits"),
        ("ld.global.v4.f64 {%d1, %d1, %d1, %d1}, [%rd1];", "not known"),
        ("ld.global.v2.f32 %f1, [%rd1];", "2 registers"),
        ("ld.global.sometimes.f32 %f1, [%rd1];", "sometimes"),
        ("ld.param.u64 %rd1, [k_0+8];", "beyond the parameters"),
        ("st.const.f32 [%rd1], %f1;", "const"),
        ("atom.global.add.b7 %r1, [%rd1], %r2;", "not known"),
        ("atom.global.cas.b32 %r1, [%rd1], %r2;", "operands are expected"),
        ("cp.async.cg.shared.global [%r1], [%rd1], 8;", "8 bytes"),
        ("cp.async.bulk.commit_group;", "not known"),
        ("cp.async.wait_group %r1;", "number is expected"),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f1,%f1,%f1,%f1}, {%r1,%r1}, {%r1,%r1}, {%f1,%f1,%f1,%f1};", "not known"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f1,%f1}, {%r1,%r1}, {%r1}, {%f1,%f1,%f1,%f1};", "vector of 4"),
        ("bar.sync 16;", "no barrier 16"),
        ("bar.sync 1, 48;", "multiple of 32"),
        ("shfl.sync.bfly.b32 %r1, %r2, 1, 31;", "operands are expected"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2}, [%r3];", "vector of 4"),
        ("mbarrier.init.shared.b64 [%r1], 1;", "not known"),
        ("wgmma.fence.sync.aligned;", "not known"),
        ("call.uni vprintf, (%r1);", "all must be inlined"),
        (".reg .b33 %q;", "no type of a register"),
        ("add.s32 %r1, %r2, #;", "starts no token"),
        ("add.s32 %r1, %r2, %r3", "expected"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line_and_nothing_runs(line: str, says: str) -> None:
    with pytest.raises(TinycError) as caught:
        attempt(f"{REGISTERS}{line}\nret;", ".param .u64 k_0")
    error = caught.value
    assert error.code == "E1705" and says in error.why, error.why
    assert error.at["line"] == ("9" if line.endswith("%r3") else "8") and error.suggestion


@pytest.mark.parametrize("cut", [30, 60, 90, 150])
def test_a_text_that_ends_too_soon(cut: int) -> None:
    with pytest.raises(TinycError) as caught:
        parse_ptx(kernel(f"{REGISTERS}add.s32 %r1, %r2, %r3;\nret;")[:cut])
    assert caught.value.code == "E1705"


@pytest.mark.parametrize(
    "text",
    [
        HEAD.replace("64", "32") + ".visible .entry k() { ret; }",
        HEAD + ".texture x;",
        HEAD + ".global .u64 p = generic(q);",
        HEAD + ".visible .entry k() .unheard 3 { ret; }",
    ],
)
def test_modules_that_are_not_known(text: str) -> None:
    with pytest.raises(TinycError) as caught:
        parse_ptx(text)
    assert caught.value.code == "E1705"


def test_printf_and_calls_are_refused_and_other_kernels_do_not_matter() -> None:
    source = """
extern "C" int printf(const char*, ...);
__device__ __noinline__ int twice(int x) { return x < 2 ? x : twice(x - 1) * 2; }
extern "C" __global__ void calls(int* x) { *x = twice(*x); }
extern "C" __global__ void prints(int* x) { printf("%d", *x); }
extern "C" __global__ void neither(int* x) { x[threadIdx.x] = 1; }"""
    text = compile_ptx(source)
    for name in ("calls", "prints"):
        with pytest.raises(TinycError) as caught:
            emulate(text, name, 1, 1, [0])
        assert caught.value.code == "E1705" and "inlined" in caught.value.why
    assert set(parse_ptx(text, "neither").kernels) == {"neither"}
