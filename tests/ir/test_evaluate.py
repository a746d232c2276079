"""Every uop and dtype of the reference evaluator against plain numpy."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
from ir_programs import leaf, load, op

from tinyc.ir import DType, TinycError, evaluate

BF16 = ml_dtypes.bfloat16
NUMPY = {"fp16": np.float16, "bf16": BF16, "fp32": np.float32, "i32": np.int32, "bool": np.bool_}
FLOATS = ("fp16", "bf16", "fp32")
SPECIAL = [0.0, -0.0, 1.0, -1.5, 3.25, 65504.0, 1e-7, np.inf, -np.inf, np.nan]


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def run(*uops, **inputs):
    return evaluate(load(*uops), inputs)


def one(uop, dtype, arrays, /, *src, **arg):
    """The value of a single node over the arrays, which are inputs a, b, …"""
    names = "abc"[: len(arrays)]
    leaves = [leaf(n, list(x.shape), d) for n, x, d in zip(names, arrays, dtype, strict=True)]
    (y,) = run(*leaves, op("y", uop, *(src or names), **arg), **dict(zip(names, arrays, strict=True)))
    return y


def same(got, wanted):
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    if got.dtype.kind in "fV":  # NaN where NaN, and zeros of the same sign
        np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64))
        nan = np.isnan(got.astype(np.float64))
        np.testing.assert_array_equal(
            np.signbit(got.astype(np.float64))[~nan], np.signbit(wanted.astype(np.float64))[~nan]
        )
    else:
        np.testing.assert_array_equal(got, wanted)


def nearest(function):
    """Of fp32 numbers: the nearest fp32 number, on every machine."""
    return lambda *xs: function(*(x.astype(np.float64) for x in xs)).astype(np.float32)


UNARY = {
    "NEG": lambda x: -x,
    "EXP2": nearest(np.exp2),
    "LOG2": nearest(np.log2),
    "SQRT": np.sqrt,
    "RSQRT": lambda x: np.float32(1) / np.sqrt(x),
    "RECIP": lambda x: np.float32(1) / x,
    "SIN": nearest(np.sin),
    "RELU": lambda x: np.where(np.isnan(x), x, np.where(x > 0, x, np.float32(0))),
}


@pytest.mark.spec("002-22", "004-020", "004-026")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("uop", UNARY)
def test_unary(uop, dtype):
    with np.errstate(all="ignore"):
        x = np.array(SPECIAL, np.float32).astype(NUMPY[dtype])
        wanted = UNARY[uop](x.astype(np.float32)).astype(NUMPY[dtype])
    got = one(uop, [dtype], [x])
    if uop == "RELU":  # the sign of relu(-0.0) is not specified
        got, wanted = np.abs(got), np.abs(wanted)
    same(got, wanted)


BINARY = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "FDIV": np.divide,
    "POW": nearest(np.power),
    "MAX": np.maximum,
    "MIN": np.minimum,
}


@pytest.mark.spec("002-23", "004-020", "004-026")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("uop", BINARY)
def test_binary(uop, dtype):
    left, right = (grid.ravel() for grid in np.meshgrid(np.array(SPECIAL), np.array(SPECIAL)))
    if uop in ("MAX", "MIN"):  # which zero wins is not specified
        left, right = left + 0.0, right + 0.0
    with np.errstate(all="ignore"):
        left, right = left.astype(NUMPY[dtype]), right.astype(NUMPY[dtype])
        wanted = BINARY[uop](left.astype(np.float32), right.astype(np.float32)).astype(NUMPY[dtype])
    same(one(uop, [dtype, dtype], [left, right]), wanted)


def test_a_power_of_one_is_the_number_on_every_machine():
    """numpy's power of fp32 is off by a unit in the last place of some numbers where there is AVX-512."""
    generator = np.random.default_rng(0)
    x = generator.uniform(1, 2, 100_000) * np.exp2(generator.integers(-40, 40, 100_000))
    x = x.astype(np.float32)
    same(one("POW", ["fp32", "fp32"], [x, np.ones_like(x)]), x)


@pytest.mark.parametrize(
    "uop, wanted", [("ADD", -(2**31)), ("MUL", -2), ("SUB", 2**31 - 2), ("MAX", 2**31 - 1)]
)
def test_i32_wraps_silently(uop, wanted):
    a, b = np.array([2**31 - 1], np.int32), np.array([2 if uop == "MUL" else 1], np.int32)
    same(one(uop, ["i32", "i32"], [a, b]), np.array([wanted], np.int32))


def test_i32_negation_of_the_least_and_0d_arrays_wrap_silently():
    least = np.array(-(2**31), np.int32)
    same(one("NEG", ["i32"], [least]), least)
    same(one("SUB", ["i32"], [least], "a", 1), np.array(2**31 - 1, np.int32))
    same(one("RELU", ["i32"], [least]), np.array(0, np.int32))


@pytest.mark.spec("I-22")
@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "bool"])
def test_comparisons_give_bool(dtype):
    a = np.array([0, 1, 1, 0], np.float32).astype(NUMPY[dtype])
    b = np.array([0, 0, 1, 1], np.float32).astype(NUMPY[dtype])
    same(one("CMPLT", [dtype, dtype], [a, b]), np.array([False, False, False, True]))
    same(one("CMPNE", [dtype, dtype], [a, b]), np.array([False, True, False, True]))
    same(one("CMPEQ", [dtype, dtype], [a, b]), np.array([True, False, True, False]))


def test_comparisons_with_nan():
    a = np.array([np.nan, np.nan], np.float32)
    for uop, wanted in (("CMPLT", False), ("CMPNE", True), ("CMPEQ", False)):
        same(one(uop, ["fp32"], [a], "a", 1.0), np.array([wanted, wanted]))


def test_max_and_min_of_bool_are_or_and_and():
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    same(one("MAX", ["bool", "bool"], [a, b]), a | b)
    same(one("MIN", ["bool", "bool"], [a, b]), a & b)


@pytest.mark.spec("002-23", "002-12", "004-020")
@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "bool"])
def test_where(dtype):
    cond = np.array([True, False, True])
    a = np.array([1, 0, 1], np.float32).astype(NUMPY[dtype])
    b = np.array([0, 1, 0], np.float32).astype(NUMPY[dtype])
    same(one("WHERE", ["bool", dtype, dtype], [cond, a, b]), np.where(cond, a, b))
    same(one("WHERE", ["bool", dtype], [cond, a], "a", "b", 0), np.where(cond, a, a.dtype.type(0)))


def test_where_of_bool_condition_uses_the_branches_dtype_for_immediates():
    cond, a = np.array([True, False]), np.array([1, 2], np.int32)
    same(one("WHERE", ["bool", "i32"], [cond, a], "a", -7, "b"), np.array([-7, 2], np.int32))


CASTS = [
    ("fp32", "i32", [1.9, -1.9, 3e9, -3e9, np.nan, np.inf, -np.inf], [1, -1, 2**31 - 1, -(2**31), 0, 2**31 - 1, -(2**31)]),
    ("fp16", "i32", [2.5, -2.5, np.inf], [2, -2, 2**31 - 1]),
    ("fp32", "bool", [0.0, -0.0, 1e-40, np.nan], [False, False, True, True]),
    ("i32", "bool", [0, 7, -1], [False, True, True]),
    ("bool", "i32", [False, True], [0, 1]),
    ("bool", "bf16", [False, True], [0, 1]),
    ("fp32", "fp16", [1e6, 1.0009765625, 2049.0], [np.inf, 1.0009765625, 2048.0]),
    ("fp32", "bf16", [1.00390625, 1.01171875], [1.0, 1.015625]),
    ("i32", "fp32", [2**24 + 1, -5], [2**24, -5]),
    ("bf16", "fp16", [3.0e38, 1.5], [np.inf, 1.5]),
]  # fmt: skip


@pytest.mark.spec("002-22")
@pytest.mark.parametrize("source, to, given, wanted", CASTS)
def test_cast(source, to, given, wanted):
    with np.errstate(all="ignore"):
        x, y = np.array(given).astype(NUMPY[source]), np.array(wanted).astype(NUMPY[to])
    same(one("CAST", [source], [x], to=to), y)


# --- movement ------------------------------------------------------------------------------------------------

SHAPED = [np.arange(24).reshape(2, 3, 4).astype(NUMPY[dtype]) for dtype in (*FLOATS, "i32", "bool")]


@pytest.mark.spec(
    "002-14", "002-15", "002-17", "002-18", "002-19", "002-21", "004-019", "004-032", "004-033", "004-026"
)
@pytest.mark.parametrize("x", SHAPED, ids=lambda x: str(x.dtype))
def test_movement(x):
    dtype = next(each.value for each in DType if each.numpy == x.dtype)
    one_ = x.dtype.type(1)
    same(one("RESHAPE", [dtype], [x], result_shape=[4, 6]), x.reshape(4, 6))
    same(one("PERMUTE", [dtype], [x], perm=[2, 0, 1]), x.transpose(2, 0, 1))
    same(one("FLIP", [dtype], [x], axes=[0, -1]), x[::-1, :, ::-1])
    same(one("SHRINK", [dtype], [x], lo=[0, 1, 0], hi=[2, 3, 4], step=[1, 1, 3]), x[:, 1:3, 0:4:3])
    padded = np.full((2, 6, 5), one_)
    padded[:, 1:4, 0:4] = x
    same(one("PAD", [dtype], [x], pad=[[0, 0], [1, 2], [0, 1]], value=1), padded)


@pytest.mark.spec("002-17")
def test_pad_values(rng):
    x = np.array([1.0, 2.0], np.float32)
    same(one("PAD", ["fp32"], [x], pad=[[1, 0]], value="-inf"), np.array([-np.inf, 1, 2], np.float32))
    same(one("PAD", ["fp32"], [x], pad=[[0, 1]]), np.array([1, 2, 0], np.float32))
    same(one("PAD", ["fp32"], [x], pad=[1, 1], value=-0.0), np.array([-0.0, 1, 2, -0.0], np.float32))


@pytest.mark.spec("002-16", "I-07")
def test_expand_in_its_three_forms():
    x = np.arange(3, dtype=np.float32)
    wanted = np.broadcast_to(x[:, None], (3, 4)).copy()
    same(one("EXPAND", ["fp32"], [x], result_shape=[3, 4], broadcast_dimensions=[0]), wanted)
    column = x.reshape(3, 1)
    same(one("EXPAND", ["fp32"], [column], result_shape=[3, 4], broadcast_dimensions=[0]), wanted)
    same(one("EXPAND", ["fp32"], [column], result_shape=[3, 4]), wanted)
    same(one("EXPAND", ["fp32"], [column], result_shape=[3, 4], broadcast_dimensions=[0, 1]), wanted)
    same(one("EXPAND", ["fp32"], [x], result_shape=[4, 3]), np.broadcast_to(x, (4, 3)).copy())
    turned = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = one("EXPAND", ["fp32"], [turned], result_shape=[3, 5, 2], broadcast_dimensions=[2, 0])
    same(got, np.broadcast_to(turned.T[:, None, :], (3, 5, 2)).copy())
    scalar = np.array(2.0, np.float32)
    same(one("EXPAND", ["fp32"], [scalar], result_shape=[2, 2]), np.full((2, 2), 2, np.float32))


@pytest.mark.spec("002-20", "002-40", "I-57")
def test_view():
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2))[:, ::2].copy()
    got = one("VIEW", ["fp32"], [x], result_shape=[2, 2, 3, 2], index_map={"map": ["i0+i2", "2*i1+i3"]})
    same(got, windows)
    same(
        one("VIEW", ["fp32"], [x], result_shape=[3], index_map={"map": ["i0", "i0+1"]}),
        np.diagonal(x, 1)[:3].copy(),
    )
    same(one("VIEW", ["fp32"], [x], result_shape=[4], index_map={"map": ["3-i0", 2]}), x[::-1, 2].copy())
    same(
        one("VIEW", ["fp32"], [x], result_shape=[8], index_map={"map": ["i0//2", "i0-2*(i0//2)"]}),
        x[:, :2].ravel(),
    )
    same(one("VIEW", ["fp32"], [x]), x)
    flipped = np.flip(x)  # negative strides of the input
    same(
        one("VIEW", ["fp32"], [flipped], result_shape=[2, 2], index_map={"map": ["i0+2", "i1+1"]}),
        flipped[2:4, 1:3].copy(),
    )


@pytest.mark.spec("004-019")
def test_valid():
    program = load({"id": "v", "uop": "VALID", "arg": {"result_shape": [4, 3], "lo": [1, -1], "hi": [9, 2]}})
    wanted = np.zeros((4, 3), bool)
    wanted[1:, :2] = True
    same(evaluate(program, {})[0], wanted)


# --- reductions ----------------------------------------------------------------------------------------------

REDUCERS = {"SUM": np.sum, "PROD": np.prod, "MAX": np.max, "MIN": np.min}


@pytest.mark.spec("002-24", "002-28", "004-021", "004-029", "004-026", "I-56")
@pytest.mark.parametrize("dtype", [*FLOATS, "i32"])
@pytest.mark.parametrize("name", REDUCERS)
@pytest.mark.parametrize("axes", [[0], [1], [-1], [0, 2], [2, 0], [0, 1, 2]])
def test_reduce(rng, name, dtype, axes):
    x = rng.integers(-2, 3, (3, 4, 5)).astype(NUMPY[dtype])  # small integers: exact in every order
    wanted = REDUCERS[name](x.astype(np.int64), axis=tuple(axes)).astype(NUMPY[dtype])
    got = one("REDUCE", [dtype], [x], op=name, axes=axes, dtype=dtype)
    np.testing.assert_array_equal(got.astype(np.float64), np.asarray(wanted).astype(np.float64))
    assert got.dtype == NUMPY[dtype]
    with_init = one("REDUCE", [dtype], [x], op=name, axes=axes, dtype=dtype, init=2)
    combine = {"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum}[name]
    np.testing.assert_array_equal(with_init.astype(np.int64), combine(2, wanted.astype(np.int64)))


@pytest.mark.spec("004-002")
def test_sums_accumulate_in_fp32():
    ones = np.ones(1000, BF16)
    same(one("REDUCE", ["bf16"], [ones], op="SUM", axes=[0], dtype="bf16"), np.array(1000, BF16))
    many = np.ones(100_000, np.float16)
    same(one("REDUCE", ["fp16"], [many], op="SUM", axes=[0], dtype="fp32"), np.array(1e5, np.float32))
    same(one("REDUCE", ["fp16"], [many], op="SUM", axes=[0], dtype="fp16"), np.array(np.inf, np.float16))


def test_sums_along_any_axis_are_accurate():
    x = np.full((1 << 20, 2), 0.1, np.float32)
    got = one("REDUCE", ["fp32"], [x], op="SUM", axes=[0], dtype="fp32")
    np.testing.assert_allclose(got, float(np.float32(0.1)) * (1 << 20), rtol=1e-6)


def test_a_reduction_in_a_narrow_dtype_rounds_its_elements():
    x = np.array([2049.0, 1.0], np.float32)  # 2049 -> 2048 in fp16
    same(one("REDUCE", ["fp32"], [x], op="SUM", axes=[0], dtype="fp16"), np.array(2048, np.float16))


def test_init_is_combined_before_rounding():
    x = np.array([2048.0], np.float16)
    got = one("REDUCE", ["fp16"], [x], op="SUM", axes=[0], dtype="fp16", init=3.0)
    same(got, np.array(2052, np.float16))


@pytest.mark.spec("I-56")
@pytest.mark.parametrize("name", ["MAX", "MIN", "SUM", "PROD"])
def test_reductions_propagate_nan(name):
    x = np.array([[1.0, np.nan, 3.0], [1.0, 2.0, 3.0]], np.float32)
    got = one("REDUCE", ["fp32"], [x], op=name, axes=[1], dtype="fp32")
    assert np.isnan(got[0]) and not np.isnan(got[1])


def test_the_sum_of_one_element_is_that_element():
    x = np.array([[-0.0], [np.inf], [3.5]], np.float32)
    same(one("REDUCE", ["fp32"], [x], op="SUM", axes=[1], dtype="fp32"), x[:, 0].copy())


def test_reductions_of_bool():
    x = np.array([[True, False, True], [False, False, False]])
    same(one("REDUCE", ["bool"], [x], op="MAX", axes=[1], dtype="bool"), x.any(axis=1))
    same(one("REDUCE", ["bool"], [x], op="MIN", axes=[1], dtype="bool"), x.all(axis=1))
    same(one("REDUCE", ["bool"], [x], op="SUM", axes=[1], dtype="i32"), np.array([2, 0], np.int32))


def test_i32_sums_wrap():
    x = np.array([2**31 - 1, 1], np.int32)
    same(one("REDUCE", ["i32"], [x], op="SUM", axes=[0], dtype="i32"), np.array(-(2**31), np.int32))


@pytest.mark.spec("004-029")
def test_max_over_a_zero_padded_negative_tensor_is_zero():
    x = np.full((2, 2), -3.0, np.float32)
    uops = [leaf("x", [2, 2]), op("p", "PAD", "x", pad=[[0, 0], [0, 1]], value=0)]
    uops += [op("m", "REDUCE", "p", op="MAX", axes=[1], dtype="fp32")]
    same(run(*uops, x=x)[0], np.zeros(2, np.float32))


# --- products that are summed --------------------------------------------------------------------------------


def product(dtype, shape, axes, acc, left="x", right="y"):
    return [
        op("p", "MUL", left, right),
        op("s", "REDUCE", "p", op="SUM", axes=axes, dtype=acc),
    ]


@pytest.mark.spec("002-27", "I-08")
def test_products_of_fp16_are_not_rounded_before_a_wider_sum():
    x = np.array([1.0009765625, 1.0], np.float16)
    y = np.array([1.0009765625, -1.0], np.float16)
    uops = [leaf("x", [2], "fp16"), leaf("y", [2], "fp16")]
    (wide,) = run(*uops, *product("fp16", [2], [0], "fp32"), x=x, y=y)
    assert wide == np.float32(1.0009765625) ** 2 - 1
    (narrow,) = run(*uops, *product("fp16", [2], [0], "fp16"), x=x, y=y)
    assert narrow == np.float16(np.float16(np.float32(1.0009765625) ** 2) - 1)


@pytest.mark.spec("002-27")
def test_a_product_with_another_use_stays_narrow():
    program = load(leaf("x", [2], "fp16"), *product("fp16", [2], [0], "fp32", "x", "x"), op("o", "NEG", "p"))
    assert "p.lhs" not in program.by_id()
    squared = load(leaf("x", [2], "fp16"), *product("fp16", [2], [0], "fp32", "x", "x"))
    assert squared.node("p").src == ("p.lhs", "p.lhs")
    scaled = load(leaf("x", [2], "fp16"), *product("fp16", [2], [0], "fp32", "x", 0.1))
    assert scaled.node("p").src == ("p.lhs", float(np.float16(0.1)))
    shown = load(leaf("x", [2], "fp16"), *product("fp16", [2], [0], "fp32", "x", "x"),
                 signature={"outputs": [{"tensor": "p"}, {"tensor": "s"}]})  # fmt: skip
    assert "p.lhs" not in shown.by_id()


@pytest.mark.parametrize("float64", [False, True])
@pytest.mark.parametrize("dtype", ["fp32", "i32", "fp16"])
@pytest.mark.parametrize(
    "axes, varies", [([3], ("0013", "0023")), ([1, 3], ("0123", "1")), ([3], ("23", "013"))]
)
def test_large_sums_of_products(rng, monkeypatch, dtype, axes, varies, float64):
    """The matrix product, the chunks and the direct way agree, exactly on small integers."""
    from tinyc.ir import numeric

    shape = [3, 8, 9, 5]  # large enough for the matrix product where a factor is broadcast
    sizes = [[n if str(axis) in each else 1 for axis, n in enumerate(shape)] for each in varies]
    x, y = (rng.integers(-3, 4, each).astype(NUMPY[dtype]) for each in sizes)
    program = load(
        leaf("x", sizes[0], dtype), leaf("y", sizes[1], dtype),
        op("xe", "EXPAND", "x", result_shape=shape), op("ye", "EXPAND", "y", result_shape=shape),
        *product(dtype, shape, axes, dtype, "xe", "ye"),
    )  # fmt: skip
    wanted = (x.astype(np.int64) * y.astype(np.int64) * np.ones(shape, np.int64)).sum(axis=tuple(axes))
    for chunk in (1, 7, 10**6):
        monkeypatch.setattr(numeric, "_CHUNK", chunk)
        (got,) = evaluate(program, {"x": x, "y": y}, float64=float64)
        np.testing.assert_array_equal(got.astype(np.int64), wanted)


def test_a_fully_masked_softmax_row_is_nan_without_warnings():
    x = np.array([[-np.inf, -np.inf], [0.0, 0.0]], np.float32)
    (y,) = run(
        leaf("x", [2, 2]),
        op("m", "REDUCE", "x", op="MAX", axes=[1], dtype="fp32"),
        op("me", "EXPAND", "m", result_shape=[2, 2], broadcast_dimensions=[0]),
        op("d", "SUB", "x", "me"),
        op("e", "EXP2", "d"),
        op("z", "REDUCE", "e", op="SUM", axes=[1], dtype="fp32"),
        op("ze", "EXPAND", "z", result_shape=[2, 2], broadcast_dimensions=[0]),
        op("y", "FDIV", "e", "ze"),
        x=x,
    )
    assert np.isnan(y[0]).all()
    np.testing.assert_array_equal(y[1], [0.5, 0.5])


# --- inputs and outputs --------------------------------------------------------------------------------------


def test_float64_keeps_what_fp32_loses_but_immediates_have_their_dtype():
    program = load(leaf("x", [1], "fp16"), op("y", "ADD", "x", 2.0**-20), op("z", "SUB", "y", "x"))
    x = np.array([1.0], np.float16)
    assert evaluate(program, {"x": x})[0] == 0
    (exact,) = evaluate(program, {"x": x}, float64=True)
    assert exact.dtype == np.float64 and exact == float(np.float16(2.0**-20))


def test_outputs_are_new_arrays_and_inputs_stay(rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    before = x.copy()
    program = load(leaf("x", [4, 3]), op("y", "PERMUTE", "x", perm=[1, 0]), op("z", "RELU", "x"),
                   signature={"outputs": [{"tensor": "x"}, {"tensor": "y"}, {"tensor": "z"}]})  # fmt: skip
    outputs = evaluate(program, {"x": x.T})
    for output in outputs:
        assert output.flags.c_contiguous and not np.shares_memory(output, x)
        output[...] = 0
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    "inputs, word",
    [
        ({}, "missing"),
        ({"x": np.zeros(2, np.float32), "w": np.zeros(2)}, "unknown"),
        ({"x": np.zeros(2, np.float64)}, "float64"),
        ({"x": np.zeros(2, ">f4")}, "f4"),
        ({"x": np.zeros(3, np.float32)}, "shape"),
        ({"x": np.zeros((2, 1), np.float32)}, "shape"),
        ({"x": [0.0, 1.0]}, "list"),
    ],
)
def test_wrong_inputs(inputs, word):
    with pytest.raises(TinycError, match=word) as error:
        evaluate(load(leaf("x", [2]), op("y", "NEG", "x")), inputs)
    assert error.value.kind == "InputMismatch"


def test_symbols_bind_from_the_inputs():
    program = load(leaf("x", ["M", "2*N+1"]), op("y", "NEG", "x"))
    x = np.ones((3, 7), np.float32)
    same(evaluate(program, {"x": x})[0], -x)
    with pytest.raises(TinycError, match="how large") as error:
        evaluate(program, {"x": np.ones((3, 6), np.float32)})
    assert error.value.kind == "UnboundSymbol"
    square = load(leaf("x", ["M", "M"]), op("y", "NEG", "x"))
    with pytest.raises(TinycError) as error:
        evaluate(square, {"x": np.ones((3, 6), np.float32)})
    assert error.value.kind == "InputMismatch"


def test_a_signaling_nan_to_the_power_of_0_is_1_as_a_quiet_one_is() -> None:
    """Some machines' powf makes NaN of it, others 1."""
    program = load(leaf("x", [2]), leaf("e", [2]), op("y", "POW", "x", "e"))
    nan = np.array([0x7F800001, 0x7FC00000], np.uint32).view(np.float32)
    one = np.ones(2, np.float32)
    np.testing.assert_array_equal(evaluate(program, {"x": nan, "e": one * 0})[0], one)
    np.testing.assert_array_equal(evaluate(program, {"x": one, "e": nan})[0], one)


@pytest.mark.parametrize("shape", [[], [1], [3]])
def test_a_power_does_not_depend_on_how_its_exponent_came_to_its_shape(shape: list[int]) -> None:
    """An immediate 0.5 is the same exponent as a tensor of 0.5: numpy alone would take a square root."""
    program = load(leaf("x", shape), leaf("e", shape), op("a", "POW", "x", 0.5), op("b", "POW", "x", "e"))
    for value in (-np.inf, -0.0, 0.0, 4.0, np.inf):
        x, half = np.full(shape, value, np.float32), np.full(shape, 0.5, np.float32)
        immediate, tensor = evaluate(program, {"x": x, "e": half})
        np.testing.assert_array_equal(immediate, tensor)
        np.testing.assert_array_equal(np.signbit(immediate), np.signbit(tensor))
        np.testing.assert_array_equal(immediate, np.full(shape, abs(float(value)) ** 0.5, np.float32))
