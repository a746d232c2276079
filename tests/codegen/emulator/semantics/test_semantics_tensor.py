"""mma, ldmatrix, stmatrix and movmatrix: the layouts of the PTX ISA, and whole products against plain ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tinyc.codegen.emulator.semantics import fragments, tensor

HALF = ("sync", "aligned", "m16n8k16", "row", "col", "f32", "f16", "f16", "f32")


def form(k: int, d: str, a: str, b: str, *more: str) -> tuple[str, ...]:
    return ("sync", "aligned", f"m16n8k{k}", "row", "col", *more, d, a, b, d)


# The formulas of the ISA's sections "Matrix Fragments for mma...": element i of a lane is at (row, column).


def a_of_16_bits(lane: int, i: int, k: int) -> tuple[int, int]:
    group, place = lane >> 2, lane % 4
    if k == 8:
        return (group if i < 2 else group + 8), place * 2 + (i & 1)
    row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
    return row, place * 2 + (i & 1) + (0 if i < 4 else 8)


def b_of_16_bits(lane: int, i: int, k: int) -> tuple[int, int]:
    return (lane % 4) * 2 + (i & 1) + (0 if i < 2 else 8), lane >> 2


def a_of_32_bits(lane: int, i: int, k: int) -> tuple[int, int]:
    row = (lane >> 2) + (0 if i in (0, 2) else 8)
    return row, lane % 4 + (0 if i in (0, 1) else 4)


def b_of_32_bits(lane: int, i: int, k: int) -> tuple[int, int]:
    return lane % 4 + (0 if i == 0 else 4), lane >> 2


def a_of_8_bits(lane: int, i: int, k: int) -> tuple[int, int]:
    group, place = lane >> 2, lane % 4
    if k == 16:
        return (group if i < 4 else group + 8), place * 4 + (i & 3)
    row = group if 0 <= i < 4 or 8 <= i < 12 else group + 8
    return row, place * 4 + (i & 3) + (0 if i < 8 else 16)


def b_of_8_bits(lane: int, i: int, k: int) -> tuple[int, int]:
    return (lane % 4) * 4 + (i & 3) + (0 if i < 4 else 16), lane >> 2


def c_of_any(lane: int, i: int, k: int) -> tuple[int, int]:
    return (lane >> 2) + (0 if i < 2 else 8), (lane % 4) * 2 + (i & 1)


@pytest.mark.parametrize(
    ("found", "formula", "k", "elements"),
    [
        (fragments.fragment_a(8, 16), a_of_16_bits, 8, 4),
        (fragments.fragment_a(16, 16), a_of_16_bits, 16, 8),
        (fragments.fragment_b(8, 16), b_of_16_bits, 8, 2),
        (fragments.fragment_b(16, 16), b_of_16_bits, 16, 4),
        (fragments.fragment_a(4, 32), a_of_32_bits, 4, 2),
        (fragments.fragment_a(8, 32), a_of_32_bits, 8, 4),
        (fragments.fragment_b(4, 32), b_of_32_bits, 4, 1),
        (fragments.fragment_b(8, 32), b_of_32_bits, 8, 2),
        (fragments.fragment_a(16, 8), a_of_8_bits, 16, 8),
        (fragments.fragment_a(32, 8), a_of_8_bits, 32, 16),
        (fragments.fragment_b(16, 8), b_of_8_bits, 16, 4),
        (fragments.fragment_b(32, 8), b_of_8_bits, 32, 8),
        (fragments.fragment_c(32), c_of_any, 0, 4),
        (fragments.fragment_c(16), c_of_any, 0, 4),
    ],
)
def test_fragments_are_those_of_the_isa(found: fragments.Fragment, formula, k: int, elements: int) -> None:
    assert found.registers * found.parts == elements
    for lane in range(32):
        for i in range(elements):
            register, part = divmod(i, found.parts)
            place = found.row[lane, register, part], found.column[lane, register, part]
            assert place == formula(lane, i, k), (lane, i)


FORMULAS = {8: (a_of_8_bits, b_of_8_bits), 16: (a_of_16_bits, b_of_16_bits), 32: (a_of_32_bits, b_of_32_bits)}


def packed(matrix: np.ndarray, formula, elements: int) -> np.ndarray:
    """The registers of (warps, rows, columns) of bits, element by element by a formula of the ISA."""
    bits = 8 * matrix.dtype.itemsize
    per = 32 // bits
    registers = np.zeros((len(matrix), 32, elements // per), np.uint32)
    for lane in range(32):
        for i in range(elements):
            row, column = formula(lane, i, matrix.shape[1] if formula is not c_of_any else 0)
            registers[:, lane, i // per] |= matrix[:, row, column].astype(np.uint32) << np.uint32(
                bits * (i % per)
            )
    return registers


def unpacked(registers: np.ndarray, bits: int) -> np.ndarray:
    """The matrix (warps, 16, 8) of bits in the registers of d."""
    per = 32 // bits
    matrix = np.zeros((len(registers), 16, 8), f"uint{bits}")
    for lane in range(32):
        for i in range(4):
            value = registers[:, lane, i // per] >> np.uint32(bits * (i % per))
            matrix[(slice(None), *c_of_any(lane, i, 0))] = value.astype(matrix.dtype)
    return matrix


def operands(
    k: int, kind: str, rng: np.random.Generator, warps: int = 3
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Small integers as matrices a and b, and their registers."""
    if kind in ("s8", "u8"):
        low = -128 if kind == "s8" else 0
        a, b = (rng.integers(low, low + 256, shape) for shape in ((warps, 16, k), (warps, k, 8)))
        bits = [each.astype(np.int8 if kind == "s8" else np.uint8).view(np.uint8) for each in (a, b)]
    else:
        a, b = (rng.integers(-8, 9, shape) for shape in ((warps, 16, k), (warps, k, 8)))
        dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32}[kind]
        bits = [each.astype(dtype).view(f"uint{8 * np.dtype(dtype).itemsize}") for each in (a, b)]
    size = 8 * bits[0].dtype.itemsize

    def of_a(lane: int, i: int, _: int) -> tuple[int, int]:
        return FORMULAS[size][0](lane, i, k)

    def of_b(lane: int, i: int, _: int) -> tuple[int, int]:
        return FORMULAS[size][1](lane, i, k)

    return [a, b], [packed(bits[0], of_a, 16 * k // 32), packed(bits[1], of_b, 8 * k // 32)]


@pytest.mark.parametrize(
    ("k", "d", "kind"),
    [
        *[(k, d, "f16") for k in (8, 16) for d in ("f16", "f32")],
        *[(k, "f32", "bf16") for k in (8, 16)],
        *[(k, "f32", "tf32") for k in (4, 8)],
        *[(k, "s32", kind) for k in (16, 32) for kind in ("s8", "u8")],
    ],
)
def test_a_product_of_small_integers_is_exact(k: int, d: str, kind: str) -> None:
    rng = np.random.default_rng(k)
    (a, b), (x, y) = operands(k, kind, rng)
    c = rng.integers(-50, 50, (3, 16, 8))
    dtype = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[d]
    bits = 16 if d == "f16" else 32
    z = packed(c.astype(dtype).view(f"uint{bits}"), c_of_any, 4)
    before = [each.copy() for each in (x, y, z)]
    modifiers = form(k, d, kind, kind)
    assert tensor.multiplication(modifiers).registers == (x.shape[2], y.shape[2], z.shape[2])
    result = tensor.mma(modifiers, x, y, z)
    assert result.dtype == np.uint32 and result.shape == z.shape
    assert all(np.array_equal(*pair) for pair in zip(before, (x, y, z), strict=True))
    assert np.array_equal(unpacked(result, bits).view(dtype), a @ b + c)


def test_many_warps_at_once_are_each_their_own() -> None:
    (a, b), (x, y) = operands(16, "f16", np.random.default_rng(5), warps=101)
    result = tensor.mma(HALF, x, y, np.zeros((101, 32, 4), np.uint32))
    assert np.array_equal(unpacked(result, 32).view(np.float32), a @ b)
    assert tensor.mma(HALF, x[:0], y[:0], np.zeros((0, 32, 4), np.uint32)).shape == (0, 32, 4)


def test_signed_and_unsigned_bytes_mix_and_overflow_wraps_or_saturates() -> None:
    a = np.full((1, 32, 4), 0x80808080, np.uint32)  # -128 or 128
    b = np.full((1, 32, 2), 0x7F7F7F7F, np.uint32)
    c = np.full((1, 32, 4), 0x80000000, np.uint32)
    total = 32 * 128 * 127
    assert (tensor.mma(form(32, "s32", "s8", "u8"), a, b, c) == 2**31 - total).all()  # wrapped
    assert (tensor.mma(form(32, "s32", "s8", "u8", "satfinite"), a, b, c) == 2**31).all()
    assert (tensor.mma(form(32, "s32", "u8", "s8", "satfinite"), a, b, ~c) == 2**31 - 1).all()


def test_sums_are_rounded_once() -> None:
    """1 + 16 * 2**-25 added one by one would stay 1 in float32; here it is the next number but one."""
    small = np.float16(2.0**-12).view(np.uint16)
    smaller = np.float16(2.0**-13).view(np.uint16)
    a = np.full((1, 32, 4), int(small) * 0x10001, np.uint32)
    b = np.full((1, 32, 2), int(smaller) * 0x10001, np.uint32)
    c = np.full((1, 32, 4), np.float32(1).view(np.uint32), np.uint32)
    result = tensor.mma(HALF, a, b, c).view(np.float32)
    assert (result == np.float32(1 + 2.0**-21)).all()


def test_infinities_and_nans_pass_through() -> None:
    a, b, c = (np.zeros((1, 32, n), np.uint32) for n in (4, 2, 4))
    a[0, 0, 0] = 0x7C00  # infinity at (0, 0)
    b[0, :4, 0] = 0x3C00  # column 0, one at each even row
    result = unpacked(tensor.mma(HALF, a, b, c), 32)[0]
    assert result[0, 0] == 0x7F800000
    assert (result[0, 1:] == 0x7FFFFFFF).all()  # infinity times zero
    assert (result[1:] == 0).all()


def test_tf32_operands_are_cut_off() -> None:
    one = int(np.float32(1).view(np.uint32))
    a = np.full((1, 32, 4), one | 0x1FFF, np.uint32)
    b = np.full((1, 32, 2), one, np.uint32)
    result = tensor.mma(form(8, "f32", "tf32", "tf32"), a, b, np.zeros((1, 32, 4), np.uint32))
    assert (result.view(np.float32) == 8).all()


@pytest.mark.parametrize(
    "modifiers",
    [
        form(16, "f32", "tf32", "tf32"),
        form(32, "f32", "f16", "f16"),
        form(16, "f32", "f16", "bf16"),
        form(16, "f16", "bf16", "bf16"),
        form(16, "f32", "f16", "f16", "satfinite"),
        form(8, "s32", "s8", "s8"),
        ("sync", "aligned", "m8n8k4", "row", "col", "f32", "f16", "f16", "f32"),
        ("aligned", *HALF[2:]),
        HALF[:-1],
        (*HALF[:-4], "f32", "f16", "f16", "f16"),
    ],
)
def test_what_is_not_known_is_said_before(modifiers: tuple[str, ...]) -> None:
    assert tensor.multiplication(modifiers) is None
    with pytest.raises(ValueError, match="not known"):
        tensor.mma(modifiers, *[np.zeros((1, 32, 4), np.uint32)] * 3)


# ldmatrix, stmatrix, movmatrix


def loads(count: int, trans: bool) -> tuple[str, ...]:
    return ("sync", "aligned", "m8n8", f"x{count}", *(("trans",) if trans else ()), "shared", "b16")


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_gives_each_lane_its_two_elements(count: int, trans: bool) -> None:
    matrices = np.random.default_rng(1).integers(0, 2**16, (5, count, 8, 8)).astype(np.uint16)
    rows = np.ascontiguousarray(matrices).view(np.uint8).reshape(5, 8 * count, 16)
    registers = tensor.ldmatrix(loads(count, trans), rows)
    assert registers.shape == (5, 32, count) and registers.dtype == np.uint32
    for lane in range(32):
        for index in range(count):
            row, column = lane // 4, 2 * (lane % 4)
            low, high = (
                (matrices[:, index, column, row], matrices[:, index, column + 1, row])
                if trans
                else (matrices[:, index, row, column], matrices[:, index, row, column + 1])
            )
            assert np.array_equal(
                registers[:, lane, index], low.astype(np.uint32) | (high.astype(np.uint32) << 16)
            )
    assert np.array_equal(tensor.stmatrix(loads(count, trans), registers), rows)


def test_movmatrix_transposes() -> None:
    matrix = np.arange(64, dtype=np.uint16).reshape(1, 8, 8)
    registers = matrix.view(np.uint32).reshape(1, 32)
    moved = tensor.movmatrix(("sync", "aligned", "m8n8", "trans", "b16"), registers)
    assert np.array_equal(moved, np.ascontiguousarray(matrix.swapaxes(1, 2)).view(np.uint32).reshape(1, 32))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_ldmatrix_and_mma_together_multiply_matrices(dtype: type) -> None:
    """As kernels do: a from rows of 16 by 16 as four matrices, b from rows of k by 8 with .trans, or of its transpose without."""
    rng = np.random.default_rng(2)
    a = rng.integers(-8, 9, (4, 16, 16)).astype(dtype)
    b = rng.integers(-8, 9, (4, 16, 8)).astype(dtype)

    def rows(*quarters: np.ndarray) -> np.ndarray:
        return np.concatenate([np.ascontiguousarray(each).view(np.uint8) for each in quarters], axis=1)

    x = tensor.ldmatrix(loads(4, False), rows(a[:, :8, :8], a[:, 8:, :8], a[:, :8, 8:], a[:, 8:, 8:]))
    straight = tensor.ldmatrix(loads(2, True), rows(b[:, :8], b[:, 8:]))
    turned = np.ascontiguousarray(b.swapaxes(1, 2))
    other = tensor.ldmatrix(loads(2, False), rows(turned[:, :, :8], turned[:, :, 8:]))
    assert np.array_equal(straight, other)
    kind = "f16" if dtype is np.float16 else "bf16"
    d = tensor.mma(form(16, "f32", kind, kind), x, straight, np.zeros((4, 32, 4), np.uint32))
    assert np.array_equal(unpacked(d, 32).view(np.float32), a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize(
    ("opcode", "modifiers"),
    [
        ("ldmatrix", ("sync", "aligned", "m8n8", "x3", "shared", "b16")),
        ("ldmatrix", ("sync", "aligned", "m16n16", "x1", "trans", "shared", "b8")),
        ("ldmatrix", ("sync", "aligned", "m8n8", "shared", "b16")),
        ("movmatrix", ("sync", "aligned", "m8n8", "b16")),
        ("movmatrix", ("sync", "aligned", "m8n8", "x1", "trans", "b16")),
        ("stmatrix", ("sync", "m8n8", "x1", "b16")),
        ("ldmatrices", loads(1, False)),
    ],
)
def test_other_moves_are_not_known(opcode: str, modifiers: tuple[str, ...]) -> None:
    assert tensor.matrices(opcode, modifiers) is None


def test_known_moves() -> None:
    assert tensor.matrices("ldmatrix", loads(4, True)) == tensor.Matrices(4, True)
    assert tensor.matrices(
        "stmatrix", ("sync", "aligned", "m8n8", "x2", "shared::cta", "b16")
    ) == tensor.Matrices(2, False)
    assert tensor.matrices("movmatrix", ("sync", "aligned", "m8n8", "trans", "b16")) == tensor.Matrices(
        1, True
    )
