"""Loads, stores, atomics, copies, addresses and arguments, on PTX by hand: every width, every space, every edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulated import DELIVERIES, integers, kinds, unset
from numpy.typing import NDArray

from tinyc import TinycError
from tinyc.codegen.emulator import Emulated, emulate

Array = NDArray[Any]
HEAD = """.version 8.0
.target sm_80
.address_size 64
"""
REGISTERS = """.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<19>; .reg .b64 %rd<19>; .reg .f32 %f<9>; .reg .f64 %d<9>;
mov.u32 %r0, %tid.x;
"""


def run(
    body: str, arguments: list[Any], before: str = "", block: Any = 32, grid: Any = 1, **options: Any
) -> Emulated:
    """A kernel whose parameters, all pointers, are in %rd0, %rd1 and so on."""
    parameters = ", ".join(f".param .u64 k_{at}" for at in range(len(arguments)))
    loads = "".join(f"ld.param.u64 %rd{at}, [k_{at}];\n" for at in range(len(arguments)))
    text = f"{HEAD}{before}\n.visible .entry k({parameters})\n{{\n{REGISTERS}{loads}{body}\nret;\n}}\n"
    return emulate(text, "k", grid, block, arguments, **options)


def one(*arguments: Any, **options: Any) -> Array:
    result = run(*arguments, **options)
    assert [str(each) for each in result.findings] == []
    return result.outputs[-1]


@pytest.mark.parametrize(
    ("type", "register", "wanted"),
    [
        ("u8", "%r1", lambda x: x.astype(np.uint32)),
        ("s8", "%r1", lambda x: x.view(np.int8).astype(np.int32).view(np.uint32)),
        ("b8", "%r1", lambda x: x.astype(np.uint32)),
        ("s8", "%rd5", lambda x: x.view(np.int8).astype(np.int64).view(np.uint64)),
        ("u8", "%h1", lambda x: x.astype(np.uint16)),
    ],
)
def test_narrow_loads_extend(type: str, register: str, wanted: Any) -> None:
    x = np.random.default_rng(0).integers(0, 256, 32).astype(np.uint8)
    bits = {"%r1": 32, "%rd5": 64, "%h1": 16}[register]
    body = f"""
    cvt.u64.u32 %rd7, %r0; add.u64 %rd8, %rd0, %rd7; ld.global.{type} {register}, [%rd8];
    mul.wide.u32 %rd7, %r0, {bits // 8}; add.u64 %rd8, %rd1, %rd7; st.global.b{bits} [%rd8], {register};"""
    np.testing.assert_array_equal(one(body, [x, unset(32, f"uint{bits}")]), wanted(x))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("space", ["global", "shared", "local", "generic"])
def test_every_width_of_vectors_in_every_space(bits: int, count: int, space: str) -> None:
    if bits * count > 128:
        return
    size = bits * count // 8
    register = {8: "%h", 16: "%h", 32: "%r1", 64: "%rd1"}[bits]
    names = [f"{register}{at}" for at in range(1, 1 + count)]
    vector = f"{{{', '.join(names)}}}" if count > 1 else names[0]
    kind = f"{f'v{count}.' if count > 1 else ''}b{bits}"
    before = f".shared .align 16 .b8 tile[{32 * size}];"
    move = {
        "global": f"st.global.{kind} [%rd9], {vector}; ld.global.{kind} {vector}, [%rd9];",
        "shared": f"mad.lo.u32 %r8, %r0, {size}, %r7; st.shared.{kind} [%r8], {vector}; ld.shared.{kind} {vector}, [%r8];",
        "local": f".local .align 16 .b8 depot[16]; st.local.{kind} [depot], {vector}; ld.local.{kind} {vector}, [depot];",
        "generic": f"""cvt.u64.u32 %rd3, %r7; cvta.shared.u64 %rd4, %rd3; mul.wide.u32 %rd5, %r0, {size}; add.u64 %rd6, %rd4, %rd5;
            st.{kind} [%rd6], {vector}; isspacep.shared %p1, %rd6; ld.{kind} {vector}, [%rd6]; cvta.to.shared.u64 %rd7, %rd6;
            sub.u64 %rd7, %rd7, %rd5; setp.ne.u64 %p2, %rd7, %rd3; isspacep.global %p3, %rd0; not.pred %p3, %p3;
            not.pred %p1, %p1; or.pred %p1, %p1, %p2; or.pred %p1, %p1, %p3; @%p1 trapped;""",
    }[space].replace("@%p1 trapped;", "@%p1 bra AWAY;")
    body = f"""
    mov.u32 %r7, tile;
    mul.wide.u32 %rd8, %r0, {size}; add.u64 %rd10, %rd0, %rd8; ld.global.{kind} {vector}, [%rd10]; add.u64 %rd9, %rd2, %rd8;
    {move}
    add.u64 %rd9, %rd1, %rd8; st.global.{kind} [%rd9], {vector};
    AWAY:"""  # fmt: skip
    x = np.random.default_rng(1).integers(0, 256, 32 * size).astype(np.uint8)
    result = run(
        body.replace("%rd1, %rd8; st", "%rd2, %rd8; st"), [x, np.zeros(8), unset(32 * size, np.uint8)], before
    )
    assert [str(each) for each in result.findings] == []
    np.testing.assert_array_equal(result.outputs[2], x)


def test_offsets_and_addresses_that_are_numbers() -> None:
    before = ".shared .align 4 .b8 tile[64];"
    body = """
    st.shared.u32 [tile+8], 7; st.shared.u32 [12], 9; bar.warp.sync -1;
    mov.u32 %r1, tile; add.s32 %r1, %r1, 16; ld.shared.u32 %r2, [%r1+-8]; ld.shared.u32 %r3, [%r1+-4];
    add.s32 %r2, %r2, %r3; st.global.u32 [%rd0], %r2;"""
    assert one(body, [unset(1, np.uint32)], before, block=1)[0] == 16


@pytest.mark.parametrize(
    ("offset", "width", "kind"),
    [(0, 4, ""), (124, 4, ""), (128, 4, "out-of-bounds"), (-4, 4, "out-of-bounds"), (126, 4, "misaligned"),
     (120, 8, ""), (124, 8, "misaligned"), (128, 8, "out-of-bounds"), (112, 16, ""), (120, 16, "misaligned"),
     (1 << 40, 4, "out-of-bounds"), (127, 1, ""), (128, 1, "out-of-bounds")],
)  # fmt: skip
@pytest.mark.parametrize("writes", [True, False])
def test_bounds_and_alignment(offset: int, width: int, kind: str, writes: bool) -> None:
    form = {1: "u8", 4: "u32", 8: "v2.u32", 16: "v4.u32"}[width]
    vector = {1: "%r1", 4: "%r1", 8: "{%r1, %r2}", 16: "{%r1, %r2, %r3, %r4}"}[width]
    move = f"st.global.{form} [%rd5], {vector};" if writes else f"ld.global.{form} {vector}, [%rd5];"
    body = f"setp.ne.u32 %p1, %r0, 3; @%p1 ret; add.s64 %rd5, %rd0, {offset}; {move} st.global.u32 [%rd1], 5;"
    result = run(body, [np.zeros(128, np.uint8), np.zeros(1, np.uint32)])
    assert kinds(result) == ({kind} if kind else set())
    assert result.outputs[1][0] == 5  # the others, and what follows, go on
    for each in result.findings:
        assert (each.warp, each.lane, each.space, each.count) == (0, 3, "global", 1)
        assert each.line > 0 and each.instruction.startswith("st" if writes else "ld")


def test_buffers_do_not_touch() -> None:
    """What follows one buffer is never another."""
    body = "ld.global.u32 %r1, [%rd0+4]; ld.global.u32 %r1, [%rd1+-4];"
    found = run(body, [np.zeros(1, np.int32), np.zeros(1, np.int32)], block=1).findings
    assert [(each.kind, each.count) for each in found] == [("out-of-bounds", 1)] * 2
    assert "argument 0" in found[0].why and "bytes 4 to 7" in found[0].why


def test_what_may_not_be_written() -> None:
    before = ".const .align 4 .u32 c = 5;"
    body = "mov.u64 %rd5, c; st.u32 [%rd5], 6; ld.const.u32 %r1, [c]; st.global.u32 [%rd0], %r1;"
    result = run(body, [unset(1, np.uint32)], before, block=1)
    assert kinds(result) == {"read-only"} and result.outputs[0][0] == 5


def test_arrays_that_are_one_object_are_one_buffer() -> None:
    x = np.arange(32, dtype=np.uint32)
    body = """mul.wide.u32 %rd5, %r0, 4; add.u64 %rd6, %rd0, %rd5; add.u64 %rd7, %rd1, %rd5;
    ld.global.u32 %r1, [%rd6]; add.u32 %r1, %r1, 1; st.global.u32 [%rd7], %r1;"""
    result = run(body, [x, x])
    np.testing.assert_array_equal(result.outputs[0], x + 1)
    np.testing.assert_array_equal(x, np.arange(32))
    np.testing.assert_array_equal(run(body, [x, x.copy()]).outputs[0], x)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    ("op", "type", "dtype"),
    [("add", "f32", np.float32), ("add", "f64", np.float64), ("add.noftz", "f16x2", np.float16), ("max", "s32", np.int32),
     ("min", "u32", np.uint32), ("add", "u64", np.uint64), ("min", "s64", np.int64)],
)  # fmt: skip
def test_atomics_of_many_types(space: str, op: str, type: str, dtype: Any) -> None:
    bits = {"f16x2": 32}.get(type, np.dtype(dtype).itemsize * 8)
    register = {"f32": "%f1", "f64": "%d1"}.get(type, "%rd5" if bits == 64 else "%r1")
    x = np.abs(integers(2, 64 if type == "f16x2" else 32)).astype(dtype)
    size = bits // 8
    before = ".shared .align 8 .b8 sum[8];"
    load = f"mul.wide.u32 %rd6, %r0, {size}; add.u64 %rd6, %rd0, %rd6; ld.global.b{bits} {register}, [%rd6];"
    if space == "shared":
        body = f"""{load} mov.u64 %rd7, 0; setp.ne.u32 %p1, %r0, 0; @!%p1 st.shared.u64 [sum], %rd7; bar.sync 0;
        red.shared.{op}.{type} [sum], {register}; bar.sync 0; @%p1 ret; ld.shared.b{bits} {register}, [sum];
        st.global.b{bits} [%rd1], {register};"""
    else:
        body = f"{load} red.global.{op}.{type} [%rd1], {register};"
    found = one(body, [x, np.zeros(64 // x.itemsize // 8 or 1, dtype)], before)
    reduce = {"add": np.add.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce}[op.split(".")[0]]
    if type == "f16x2":
        np.testing.assert_array_equal(found[:2], x.reshape(32, 2).sum(0))
    else:
        assert found[0] == (reduce(x) if op != "min" else 0)


def test_an_atomic_on_global_memory_takes_subnormal_floats_for_zero() -> None:
    tiny = np.array([1e-40], np.float32)
    body = "ld.global.f32 %f1, [%rd0]; red.global.add.f32 [%rd1], %f1; red.shared.add.f32 [sum], %f1;"
    assert run(body, [tiny, np.zeros(1, np.float32)], ".shared .f32 sum;", block=1).outputs[1][0] == 0


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("size", [4, 8, 16])
def test_copies_of_every_size_and_with_zeros(size: int, delivery: str) -> None:
    """Lane i takes i % (size + 1) bytes; the rest is zero."""
    before = f".shared .align 16 .b8 tile[{32 * size}];"
    move = {4: "u32", 8: "v2.u32", 16: "v4.u32"}[size]
    vector = {4: "%r1", 8: "{%r1, %r2}", 16: "{%r1, %r2, %r3, %r4}"}[size]
    body = f"""
    mul.wide.u32 %rd5, %r0, {size}; add.u64 %rd6, %rd0, %rd5; add.u64 %rd7, %rd1, %rd5;
    mov.u32 %r7, tile; mad.lo.u32 %r8, %r0, {size}, %r7; rem.u32 %r9, %r0, {size + 1};
    cp.async.ca.shared.global [%r8], [%rd6], {size}, %r9; cp.async.wait_all;
    ld.shared.{move} {vector}, [%r8]; st.global.{move} [%rd7], {vector};"""
    x = np.random.default_rng(0).integers(1, 256, (32, size)).astype(np.uint8)
    wanted = np.where(np.arange(size) < (np.arange(32) % (size + 1))[:, None], x, 0)
    found = one(body, [x, unset((32, size), np.uint8)], before, delivery=delivery)
    np.testing.assert_array_equal(found, wanted)


def test_late_copies_bring_old_bytes_before_the_wait_and_early_ones_new() -> None:
    before = ".shared .align 4 .b32 word;"
    body = """st.shared.u32 [word], 1; mov.u32 %r7, word; cp.async.ca.shared.global [%r7], [%rd0], 4;
    ld.shared.u32 %r1, [word]; cp.async.wait_all; ld.shared.u32 %r2, [word];
    st.global.u32 [%rd1], %r1; st.global.u32 [%rd1+4], %r2;"""
    found = {}
    for delivery in ("late", "early"):
        result = run(
            body, [np.array([9], np.uint32), unset(2, np.uint32)], before, block=1, delivery=delivery
        )
        assert kinds(result) == {"in-flight"}
        found[delivery] = result.outputs[1].tolist()
    assert found == {"late": [1, 9], "early": [9, 9]}


def test_random_delivery_depends_on_its_seed_alone() -> None:
    before = ".shared .align 4 .b8 tile[128];"
    body = """mov.u32 %r7, tile; mad.lo.u32 %r8, %r0, 4, %r7; st.shared.u32 [%r8], 1; mul.wide.u32 %rd5, %r0, 4;
    add.u64 %rd6, %rd0, %rd5; cp.async.ca.shared.global [%r8], [%rd6], 4; cp.async.commit_group;
    ld.shared.u32 %r1, [%r8]; add.u64 %rd6, %rd1, %rd5; st.global.u32 [%rd6], %r1;"""
    x = np.full(32, 2, np.uint32)
    found = [
        run(body, [x, unset(32, np.uint32)], before, delivery="random", seed=seed).outputs[1].tolist()
        for seed in (0, 0, 1)
    ]
    assert found[0] == found[1] != found[2] and set(found[0]) == {1, 2}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "parameters"),
        ([np.zeros(3), 5], "parameters"),
        (["text"], "does not fit"),
        ([np.float32(1)], "4 bytes"),
        ([1 << 64], "does not fit"),
    ],
)
def test_arguments_that_do_not_fit(arguments: list[Any], says: str) -> None:
    text = f"{HEAD}.visible .entry k(.param .u64 k_0) {{ ret; }}"
    with pytest.raises(TinycError) as caught:
        emulate(text, "k", 1, 32, arguments)
    assert caught.value.code == "E1011" and says in caught.value.why


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [(0, 32, 0), (1, 0, 0), (1, 1025, 0), ((1, 1, 1, 1), 1, 0), (1, (32, 2.5), 0), (1, 128, 0), (1, 32, -1), (1, 32, 1 << 20)],
)  # fmt: skip
def test_launches_that_do_not_exist(grid: Any, block: Any, shared: int) -> None:
    text = f"{HEAD}.visible .entry k() .maxntid 64, 1, 1 {{ ret; }}"
    with pytest.raises(TinycError) as caught:
        emulate(text, "k", grid, block, [], shared_bytes=shared)
    assert caught.value.code == "E1011"


def test_numbers_as_arguments() -> None:
    text = f"""{HEAD}
.visible .entry k(.param .u64 k_0, .param .f32 k_1, .param .u16 k_2, .param .s64 k_3, .param .align 4 .b8 k_4[8]) {{
    .reg .b64 %rd<3>; .reg .f32 %f<2>; .reg .b16 %h<2>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [k_0]; ld.param.f32 %f1, [k_1]; st.global.f32 [%rd1], %f1;
    ld.param.u16 %h1, [k_2]; st.global.u16 [%rd1+4], %h1; ld.param.u64 %rd2, [k_3]; st.global.u64 [%rd1+8], %rd2;
    ld.param.v2.u32 {{%r1, %r2}}, [k_4]; st.global.v2.u32 [%rd1+16], {{%r1, %r2}}; ret; }}"""
    values = [unset(24, np.uint8), 0.5, 65535, -2, b"abcdefgh"]
    out = emulate(text, "k", 1, 1, values).outputs[0]
    assert out[:4].view(np.float32)[0] == 0.5 and out[4:6].view(np.uint16)[0] == 65535
    assert out[8:16].view(np.int64)[0] == -2 and out[16:].tobytes() == b"abcdefgh"


def test_a_cached_read_of_what_the_kernel_writes() -> None:
    body = "st.global.u32 [%rd0], 5; ld.global{} %r1, [%rd0]; st.global.u32 [%rd1], %r1;"
    arguments = [np.zeros(1, np.uint32), np.zeros(1, np.uint32)]
    assert kinds(run(body.format(".nc.u32"), arguments, block=1)) == {"read-only"}
    assert kinds(run(body.format(".u32"), arguments, block=1)) == set()


@pytest.mark.parametrize(
    ("size", "taken", "wrong"), [(16, 5, ""), (16, 6, "out-of-bounds"), (8, 5, ""), (8, 0, "")]
)
def test_a_copy_reads_only_what_it_takes(size: int, taken: int, wrong: str) -> None:
    before = ".shared .align 16 .b8 tile[16];"
    body = f"""add.u64 %rd5, %rd0, {16 if taken else 1 << 30}; mov.u32 %r7, tile;
    cp.async.ca.shared.global [%r7], [%rd5], {size}, {taken}; cp.async.wait_all;
    ld.shared.v2.u32 {{%r1, %r2}}, [%r7]; st.global.v2.u32 [%rd1], {{%r1, %r2}};"""
    x = np.arange(1, 22, dtype=np.uint8)
    result = run(body, [x, np.zeros(8, np.uint8)], before, block=1)
    assert kinds(result) - {"uninitialised"} == ({wrong} if wrong else set())
    if not wrong:
        assert result.outputs[1].tolist() == [*range(17, 17 + taken), *[0] * (8 - taken)]


def test_a_table_of_branches() -> None:
    body = """
    rem.u32 %r1, %r0, 5;
    TABLE: .branchtargets A, B, C, B, A;
    brx.idx %r1, TABLE;
    A: mov.u32 %r2, 10; bra.uni END;
    B: mov.u32 %r2, 20; bra.uni END;
    C: mov.u32 %r2, 30;
    END: mul.wide.u32 %rd5, %r0, 4; add.u64 %rd5, %rd0, %rd5; st.global.u32 [%rd5], %r2;"""
    found = one(body, [unset(32, np.uint32)])
    assert found.tolist() == [(10, 20, 30, 20, 10)[lane % 5] for lane in range(32)]


def test_carries_and_parts_of_words() -> None:
    body = """
    ld.global.u64 %rd5, [%rd0]; ld.global.u64 %rd6, [%rd0+8]; mov.b64 {%r1, %r2}, %rd5; mov.b64 {%r3, %r4}, %rd6;
    add.cc.u32 %r5, %r1, %r3; addc.cc.u32 %r6, %r2, %r4; addc.u32 %r7, 0, 0;
    mov.b64 %rd7, {%r5, %r6}; st.global.u64 [%rd1], %rd7; st.global.u32 [%rd1+8], %r7;
    mov.b32 {%h1, %h2}, %r1; mov.b32 %r8, {%h2, %h1}; st.global.u32 [%rd1+12], %r8; mov.b32 {_, %h3}, %r2;
    st.global.u16 [%rd1+16], %h3;"""
    a, b = 0xFFFF_FFFF_8765_4321, 0x1234_5678_9ABC_DEF0
    result = run(body, [np.array([a, b], np.uint64), np.zeros(20, np.uint8)], block=1)
    out = result.outputs[1].tobytes()
    assert int.from_bytes(out[:8], "little") == (a + b) % 2**64 and int.from_bytes(out[8:12], "little") == 1
    assert int.from_bytes(out[12:16], "little") == 0x4321_8765 and out[16:18] == b"\xff\xff"


def test_special_registers() -> None:
    names = ["laneid", "warpid", "nwarpid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge",
             "ntid.x", "nctaid.y", "ctaid.y", "tid.y"]  # fmt: skip
    stores = "".join(
        f"mov.u32 %r1, %{name}; st.global.u32 [%rd5+{4 * at}], %r1;\n" for at, name in enumerate(names)
    )
    body = f"""mov.u32 %r2, %tid.y; mad.lo.u32 %r2, %r2, 40, %r0; mov.u32 %r3, %ctaid.y; mad.lo.u32 %r2, %r3, 80, %r2;
    mul.wide.u32 %rd5, %r2, {4 * len(names)}; add.u64 %rd5, %rd0, %rd5; {stores}"""
    found = one(body, [unset((2, 80, len(names)), np.uint32)], block=(40, 2), grid=(1, 2))
    for block in range(2):
        for thread in range(80):
            lane, every = thread % 32, (1 << 32) - 1
            bit = 1 << lane
            wanted = [lane, thread // 32, 64, bit, bit - 1, 2 * bit - 1, every & ~(2 * bit - 1), every & ~(bit - 1),
                      40, 2, block, thread // 40]  # fmt: skip
            assert found[block, thread].tolist() == wanted


def test_a_block_is_told_the_bytes_of_its_shared_memory() -> None:
    """Without the addresses that are left unused between variables."""
    before = (
        ".shared .align 4 .b8 here[40]; .shared .align 4 .b8 there[24]; .extern .shared .align 16 .b8 more[];"
    )
    body = """mov.u32 %r1, %dynamic_smem_size; mov.u32 %r2, %total_smem_size; mov.u32 %r3, there; mov.u32 %r4, here;
    sub.u32 %r3, %r3, %r4; st.global.v2.u32 [%rd0], {%r1, %r2};"""
    found = one(body, [unset(2, np.uint32)], before, block=1, shared_bytes=100)
    assert found.tolist() == [100, 256], "of 164, in steps of 128: as an H200 has it"


@pytest.mark.parametrize(
    ("written", "read", "clean"),
    [
        ("st.release.gpu.global.u32 [%rd1], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd1];", True),
        ("st.release.sys.global.u32 [%rd1], 1;", "atom.acq_rel.gpu.global.add.u32 %r3, [%rd1], 0;", True),
        ("fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%rd1], 1;", "ld.relaxed.gpu.global.u32 %r3, [%rd1]; fence.sc.gpu;", True),
        ("red.release.gpu.global.add.u32 [%rd1], 1;", "ld.volatile.global.u32 %r3, [%rd1]; membar.gl;", True),
        ("atom.acq_rel.gpu.global.exch.b32 %r4, [%rd1], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd1];", True),
        ("st.relaxed.gpu.global.u32 [%rd1], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd1];", False),
        ("st.release.gpu.global.u32 [%rd1], 1;", "ld.relaxed.gpu.global.u32 %r3, [%rd1];", False),
        ("st.release.cta.global.u32 [%rd1], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd1];", False),
        ("st.release.gpu.global.u32 [%rd1], 1;", "ld.acquire.cta.global.u32 %r3, [%rd1];", False),
        ("st.global.u32 [%rd1], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd1];", False),
        ("fence.acq_rel.cta; st.relaxed.gpu.global.u32 [%rd1], 1;", "ld.relaxed.gpu.global.u32 %r3, [%rd1]; fence.sc.gpu;", False),
    ],
)  # fmt: skip
def test_one_block_waits_for_a_flag_of_another(written: str, read: str, clean: bool) -> None:
    body = f"""mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 1; @%p1 bra OTHER;
    st.global.u32 [%rd0], 7; {written} ret;
    OTHER: {read} setp.eq.u32 %p2, %r3, 0; @%p2 bra OTHER;
    ld.global.u32 %r5, [%rd0]; st.global.u32 [%rd2], %r5;"""
    arguments = [unset(1, np.uint32), np.zeros(1, np.uint32), unset(1, np.uint32)]
    result = run(body, arguments, block=1, grid=2)
    assert result.outputs[2][0] == 7
    assert kinds(result) == (set() if clean else {"race"})
