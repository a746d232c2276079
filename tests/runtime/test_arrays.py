"""The calling convention: which array is which input, what is refused, and what belongs to whom afterwards."""

from __future__ import annotations

import json
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinyc
from tinyc.ir.diagnostics import TinycError

F32 = np.float32
SPEC = tinyc.spec("fp32", (4, 6))
COUNT = np.arange(12, dtype=F32).reshape(3, 4)


@pytest.fixture(scope="module")
def difference() -> tinyc.Compiled:
    """a - 2 b, which tells its inputs apart."""
    s = tinyc.spec
    return tinyc.optimize_and_compile(
        tinyc.trace(lambda a, b: a - b * 2.0, s("fp32", (3, 4)), s("fp32", (3, 4)))
    )


@pytest.fixture(scope="module")
def identity() -> tinyc.Compiled:
    return tinyc.optimize_and_compile(tinyc.trace(lambda x: x, tinyc.spec("fp32", (3, 4))))


def refused(compiled: tinyc.Compiled, *args: Any, **kwargs: Any) -> TinycError:
    with pytest.raises(TinycError) as caught:
        compiled(*args, **kwargs)
    assert caught.value.why and caught.value.suggestion
    return caught.value


# ---- names and positions --------------------------------------------------------------------------------------------


def test_by_name_by_position_and_mixed(difference: tinyc.Compiled) -> None:
    want = COUNT - 2 * (COUNT + 1)
    for got in (
        difference(COUNT, COUNT + 1),
        difference(a=COUNT, b=COUNT + 1),
        difference(b=COUNT + 1, a=COUNT),
        difference(COUNT, b=COUNT + 1),
    ):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("args", "kwargs", "word"),
    [
        ((), {}, "a, b"),
        ((COUNT,), {}, "b"),
        ((COUNT,) * 3, {}, "3 positional"),
        ((COUNT,), {"c": COUNT}, "'c'"),
        ((COUNT, COUNT), {"a": COUNT}, "twice"),
        ((), {"a": COUNT}, "missing: b"),
        ((), {"A": COUNT, "b": COUNT}, "'A'"),
    ],
)
def test_wrong_names_and_numbers(difference: tinyc.Compiled, args: Any, kwargs: Any, word: str) -> None:
    error = refused(difference, *args, **kwargs)
    assert error.kind == "InputMismatch" and word in error.why
    assert "a, b" in error.suggestion


def test_inputs_of_a_document_without_signature_come_in_its_order() -> None:
    def given(name: str) -> dict[str, Any]:
        return {"id": f"n_{name}", "uop": "INPUT", "arg": {"tensor_id": name, "dtype": "fp32", "shape": [2]}}

    uops = [given("z"), given("a"), {"id": "d", "uop": "SUB", "src": ["n_a", "n_z"]}]
    compiled = tinyc.optimize_and_compile({"uops": uops})
    np.testing.assert_array_equal(compiled(np.ones(2, F32), np.full(2, 5, F32)), [4, 4])


# ---- shapes and dtypes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 3), (3,), (12,), (3, 4, 1), (1, 3, 4), (3, 5), (1, 4), (0, 4), ()])
def test_wrong_shapes_are_refused_not_broadcast(difference: tinyc.Compiled, shape: tuple[int, ...]) -> None:
    error = refused(difference, COUNT, np.zeros(shape, F32))
    assert error.kind == "InputMismatch" and "'b'" in error.why and "[3, 4]" in error.why


@pytest.mark.parametrize(
    "dtype", ["f8", "f2", "i4", "u4", "i8", "?", "c8", "O", "S4", "M8[s]", ">f4", ml_dtypes.bfloat16]
)
def test_wrong_dtypes_are_refused_not_cast(difference: tinyc.Compiled, dtype: Any) -> None:
    error = refused(difference, COUNT, np.zeros((3, 4), dtype))
    assert error.kind == "DTypeMismatch" and error.code == "E1005"
    assert "'b'" in error.why and "fp32" in error.why


@pytest.mark.parametrize("value", [1, 1.5, True, None, "text", [[1.0] * 4] * 3, (1, 2), {"a": 1}, object()])
def test_what_is_no_array_is_refused(difference: tinyc.Compiled, value: Any) -> None:
    error = refused(difference, COUNT, value)
    assert error.kind == "InputMismatch" and "'b'" in error.why and type(value).__name__ in error.why


def test_numpy_scalars_are_arrays_of_rank_zero() -> None:
    compiled = tinyc.optimize_and_compile(tinyc.trace(lambda x: x * 2.0, tinyc.spec("fp32", ())))
    for scalar in (F32(3), np.array(3, F32)):
        result = compiled(scalar)
        assert isinstance(result, np.ndarray) and result.shape == () and result == 6 and result.dtype == F32
    assert refused(compiled, np.float64(3)).kind == "DTypeMismatch"
    assert refused(compiled, 3.0).kind == "InputMismatch"
    assert refused(compiled, np.ones(1, F32)).kind == "InputMismatch"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("fp16", np.float16),
        ("bf16", ml_dtypes.bfloat16),
        ("fp32", F32),
        ("i32", np.int32),
        ("bool", np.bool_),
    ],
)
def test_every_dtype_goes_in_and_comes_out(name: str, dtype: Any) -> None:
    compiled = tinyc.optimize_and_compile(tinyc.trace(lambda x: x.T, tinyc.spec(name, (3, 4))))
    x = (COUNT % 3).astype(dtype)
    got = compiled(x)
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(got, x.T)


def test_bf16_bits_survive() -> None:
    compiled = tinyc.optimize_and_compile(tinyc.trace(lambda x: x.flip(0), tinyc.spec("bf16", (4,))))
    bits = np.array([0x7F80, 0xFF80, 0x8000, 0x0001], np.uint16)
    got = compiled(bits.view(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(got.view(np.uint16), bits[::-1])
    assert refused(compiled, bits).kind == "DTypeMismatch", "bits are no bf16 array"


# ---- layouts ----------------------------------------------------------------------------------------------------------

WIDE = np.arange(96, dtype=F32).reshape(6, 16)
LAYOUTS: dict[str, np.ndarray] = {
    "transposed": np.ascontiguousarray(COUNT.T).T,
    "fortran order": np.asfortranarray(COUNT),
    "strided": WIDE[::2, ::4],
    "reversed": COUNT[::-1, ::-1],
    "a window": WIDE[1:4, 2:6],
    "broadcast": np.broadcast_to(F32(3), (3, 4)),
    "one row for all": np.broadcast_to(np.arange(4, dtype=F32), (3, 4)),
    "unaligned": np.frombuffer(b"\0" + COUNT.tobytes(), F32, offset=1, count=12).reshape(3, 4),
    "read-only": np.frombuffer(COUNT.tobytes(), F32).reshape(3, 4),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_any_layout_goes(difference: tinyc.Compiled, name: str) -> None:
    x = LAYOUTS[name]
    before = x.copy()
    np.testing.assert_array_equal(difference(x, COUNT), before - 2 * COUNT)
    np.testing.assert_array_equal(difference(COUNT, x), COUNT - 2 * before)
    np.testing.assert_array_equal(x, before)


def test_subclasses_of_arrays_are_arrays(difference: tinyc.Compiled) -> None:
    class Mine(np.ndarray):
        pass

    result = difference(COUNT.view(Mine), COUNT)
    np.testing.assert_array_equal(result, -COUNT)
    assert type(result) is np.ndarray


def test_inputs_may_alias(difference: tinyc.Compiled) -> None:
    """The same array twice, and overlapping windows of one."""
    np.testing.assert_array_equal(difference(COUNT, COUNT), -COUNT)
    flat = np.arange(16, dtype=F32)
    first, second = flat[:12].reshape(3, 4), flat[4:].reshape(3, 4)
    np.testing.assert_array_equal(difference(first, second), first - 2 * second)


def test_inputs_are_never_written(difference: tinyc.Compiled) -> None:
    a, b = COUNT.copy(), COUNT + 1
    a.flags.writeable = b.flags.writeable = False
    for _ in range(3):
        difference(a, b)
    np.testing.assert_array_equal(a, COUNT)
    np.testing.assert_array_equal(b, COUNT + 1)


# ---- results ------------------------------------------------------------------------------------------------------------


def test_results_own_their_memory(difference: tinyc.Compiled, identity: tinyc.Compiled) -> None:
    """Not an input's, not an earlier result's, not the arena's; writable, contiguous."""
    x = COUNT.copy()
    first, second = identity(x), identity(x)
    assert not np.shares_memory(first, x) and not np.shares_memory(first, second)
    assert first.flags.writeable and first.flags.c_contiguous
    first[:] = 7
    np.testing.assert_array_equal(x, COUNT)
    np.testing.assert_array_equal(second, COUNT)
    np.testing.assert_array_equal(identity(x), COUNT)
    earlier = difference(COUNT, COUNT)
    difference(COUNT + 1, COUNT)
    np.testing.assert_array_equal(earlier, -COUNT)


def test_one_value_under_two_names_is_two_arrays() -> None:
    compiled = tinyc.optimize_and_compile(
        tinyc.trace(lambda x: (x + 1.0, x + 1.0, x), tinyc.spec("fp32", (3, 4)))
    )
    one, two, same = compiled(COUNT)
    np.testing.assert_array_equal(one, COUNT + 1)
    np.testing.assert_array_equal(two, COUNT + 1)
    assert not np.shares_memory(one, two) and not np.shares_memory(same, COUNT)


def test_several_outputs_are_a_tuple_and_one_is_an_array() -> None:
    spec = tinyc.spec("fp32", (3, 4))
    several = tinyc.optimize_and_compile(tinyc.trace(lambda x: (x.sum(1), x.max(0)), spec))(COUNT)
    assert isinstance(several, tuple)
    np.testing.assert_array_equal(several[0], COUNT.sum(1))
    np.testing.assert_array_equal(several[1], COUNT.max(0))
    assert isinstance(tinyc.optimize_and_compile(tinyc.trace(lambda x: (x.sum(1),), spec))(COUNT), np.ndarray)


# ---- other kinds of arrays ------------------------------------------------------------------------------------------------


class Exchanged:
    """An array of some other library, which numpy reads through DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.asked = 0

    def __dlpack__(self, **options: Any) -> Any:
        self.asked += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Elsewhere(Exchanged):
    """One that lives on a GPU."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the data is on cuda:0")


def test_arrays_with_dlpack(difference: tinyc.Compiled) -> None:
    a, b = Exchanged(COUNT.copy()), Exchanged((COUNT + 1)[::-1])
    np.testing.assert_array_equal(difference(a, b=b), COUNT - 2 * (COUNT + 1)[::-1])
    assert (a.asked, b.asked) == (1, 1)
    assert refused(difference, COUNT, Exchanged(COUNT.astype(np.float64))).kind == "DTypeMismatch"
    assert refused(difference, COUNT, Exchanged(COUNT.T)).kind == "InputMismatch"


def test_an_array_on_another_device_is_a_clear_error(difference: tinyc.Compiled) -> None:
    error = refused(difference, COUNT, Elsewhere(COUNT))
    assert error.kind == "InputMismatch" and "cuda:0" in error.why and "'b'" in error.why


class _Tensor:
    """As much of a torch tensor as the runtime asks for."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.dtype = array.dtype

    def detach(self) -> _Tensor:
        return self

    def numpy(self) -> np.ndarray:
        return self.array


def test_torch_in_torch_out(difference: tinyc.Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for the module: results come back through ``torch.from_numpy``, of the caller's kind."""

    class Module:
        bfloat16 = "bf16"

        @staticmethod
        def from_numpy(array: np.ndarray) -> _Tensor:
            return _Tensor(array)

    monkeypatch.setattr(_Tensor, "__module__", "torch")
    monkeypatch.setitem(sys.modules, "torch", Module)
    result = difference(_Tensor(COUNT), _Tensor(COUNT))
    assert isinstance(result, _Tensor)
    np.testing.assert_array_equal(result.array, -COUNT)
    mixed = difference(COUNT, _Tensor(COUNT))
    assert isinstance(mixed, _Tensor)
    assert isinstance(difference(COUNT, COUNT), np.ndarray)


# ---- symbols ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def symbolic() -> tinyc.Compiled:
    s = tinyc.spec
    return tinyc.optimize_and_compile(
        tinyc.trace(lambda a, b: a @ b, s("fp32", ("M", "K")), s("fp32", ("K", 3)))
    )


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, F32)


@pytest.mark.spec("004-017")
def test_symbols_bind_at_the_first_call_and_are_compiled_once_each(symbolic: tinyc.Compiled) -> None:
    for what in ("report", "kernels", "plan", "executable"):
        with pytest.raises(TinycError) as caught:
            getattr(symbolic, what)
        assert caught.value.kind == "UnboundSymbol" and "M" in caught.value.why
    np.testing.assert_array_equal(symbolic(ones(2, 5), ones(5, 3)), np.full((2, 3), 5))
    first = symbolic.report
    np.testing.assert_array_equal(symbolic(ones(4, 7), ones(7, 3)), np.full((4, 3), 7))
    second = symbolic.report
    assert second is not first
    symbolic(ones(2, 5), ones(5, 3))
    assert symbolic.report is first, "compiled before: no new compilation"


def test_symbols_must_agree(symbolic: tinyc.Compiled) -> None:
    error = refused(symbolic, ones(2, 5), ones(6, 3))
    assert error.kind == "InputMismatch" and "K" in error.why and "5" in error.why and "6" in error.why
    assert refused(symbolic, ones(2, 5), ones(5, 4)).kind == "InputMismatch"
    assert refused(symbolic, ones(2), ones(5, 3)).kind == "InputMismatch"


def test_an_empty_dimension_is_an_error(symbolic: tinyc.Compiled) -> None:
    for a, b in ((ones(0, 5), ones(5, 3)), (ones(2, 0), ones(0, 3))):
        assert refused(symbolic, a, b).kind in ("InvalidShape", "InputMismatch")


def test_shapes_bind_symbols_ahead() -> None:
    s = tinyc.spec
    program = tinyc.trace(lambda a: a.sum(1), s("fp32", ("M", "K")))
    compiled = tinyc.optimize_and_compile(program, shapes={"M": 2, "K": 5})
    assert compiled.report.total.kernels == 1
    np.testing.assert_array_equal(compiled(ones(2, 5)), [5, 5])
    assert refused(compiled, ones(3, 5)).kind == "InputMismatch"
    half = tinyc.optimize_and_compile(program, shapes={"K": 5})
    np.testing.assert_array_equal(half(ones(3, 5)), [5, 5, 5])
    assert refused(half, ones(3, 6)).kind == "InputMismatch"


def test_shapes_that_name_no_symbol_are_an_error() -> None:
    program = tinyc.trace(lambda a: a.sum(1), tinyc.spec("fp32", ("M", 4)))
    for shapes in ({"N": 3}, {"M": 0}, {"M": -2}, {"M": 2.5}, {"M": "3"}):
        with pytest.raises(TinycError):
            tinyc.optimize_and_compile(program, shapes=shapes)


def test_sizes_made_of_symbols() -> None:
    """A dimension that is an expression of symbols is solved for, or checked."""
    s = tinyc.spec
    compiled = tinyc.optimize_and_compile(
        tinyc.trace(lambda a, b: a.reshape(-1) + b, s("fp32", ("M", "K")), s("fp32", ("M*K",)))
    )
    np.testing.assert_array_equal(compiled(ones(2, 3), ones(6)), np.full(6, 2))
    error = refused(compiled, ones(2, 3), ones(7))
    assert error.kind == "InputMismatch" and "7" in error.why


def test_a_failed_call_does_not_harm_the_next(symbolic: tinyc.Compiled) -> None:
    refused(symbolic, ones(2, 5), ones(6, 3))
    refused(symbolic, ones(2, 5))
    np.testing.assert_array_equal(symbolic(ones(2, 5), ones(5, 3)), np.full((2, 3), 5))


def test_copies_of_inputs_are_counted_in_the_report() -> None:
    compiled = tinyc.optimize_and_compile(tinyc.trace(lambda x, y: x + y, SPEC, SPEC))
    dense = np.ones((4, 6), np.float32)
    first, second = (port.name for port in compiled.program.inputs)
    compiled(dense, dense)
    assert compiled.report.copied == ()
    compiled(**{first: np.asfortranarray(dense), second: dense})
    compiled(**{first: np.ones((8, 6), np.float32)[::2], second: dense})
    (found,) = compiled.report.copied
    assert (found.input, found.calls, found.bytes) == (first, 2, 2 * dense.nbytes)
    assert f"input {first} was copied in 2 calls" in str(compiled.report)
    assert json.loads(compiled.report.to_json())["copied"][0]["bytes"] == 2 * dense.nbytes


def test_a_masked_array_is_refused() -> None:
    """Its mask would be lost without a word."""
    compiled = tinyc.optimize_and_compile(tinyc.trace(lambda x: x + 1.0, SPEC))
    with pytest.raises(tinyc.TinycError, match="mask"):
        compiled(np.ma.masked_array(np.ones((4, 6), np.float32), mask=True))
