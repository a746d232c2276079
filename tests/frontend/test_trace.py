"""``trace``: names, outputs, symbols, and a clear error for all that a traced tensor cannot do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frontend_helpers import normal, run, same

import tinyc
from tinyc import functions as tc
from tinyc.frontend import spec, trace, trace_document
from tinyc.ir.document import dumps, program_from_document, program_to_document
from tinyc.ir.tiny import Program

X = spec("fp32", (3, 4))
N = spec("fp32", ("M", "N"))


def _names(program: Program) -> tuple[list[str], list[str]]:
    return [port.name for port in program.inputs], [port.name for port in program.outputs]


def test_inputs_are_named_after_parameters_and_outputs_by_kind() -> None:
    assert _names(trace(lambda a, b: a + b, X, X)) == (["a", "b"], ["out"])
    assert _names(trace(lambda a, b: a + b, a=X, b=X)) == (["a", "b"], ["out"])
    assert _names(trace(lambda a, *rest: a + rest[1], X, X, X)) == (["a", "rest0", "rest1"], ["out"])
    assert _names(trace(lambda a, **rest: a + rest["w"], X, w=X)) == (["a", "w"], ["out"])
    assert _names(trace(lambda a: a + 1.0, spec("fp32", 3, "weights"))) == (["weights"], ["out"])
    assert _names(trace(lambda a: [a, a + 1.0], X)) == (["a"], ["out0", "out1"])
    assert _names(trace(lambda a: {"y": a, "z": -a}, X)) == (["a"], ["y", "z"])


def test_a_method_and_default_arguments() -> None:
    class Model:
        def forward(self, x: Any, scale: float = 2.0) -> Any:
            return x * scale

    assert _names(trace(Model().forward, X)) == (["x"], ["out"])


def test_inputs_may_be_called_as_our_own_parameters_are() -> None:
    program = trace(lambda self, function: self - function, self=X, function=X)
    x = normal(3, 4)
    got = tinyc.optimize_and_compile(program)(self=x, function=x[::-1])
    np.testing.assert_array_equal(got, x - x[::-1])


def test_unused_inputs_stay_and_dead_nodes_go() -> None:
    def function(a: Any, unused: Any) -> Any:
        _ = a.exp() + unused
        return a + 1.0

    program = trace(function, X, X)
    assert _names(program)[0] == ["a", "unused"]
    assert [node.uop for node in program.nodes] == ["INPUT", "INPUT", "ADD"]


def test_equal_traces_are_equal_bytes() -> None:
    def function(x: Any, y: Any) -> Any:
        return tc.softmax(x @ y), tc.concatenate([x, x])

    texts = {dumps(trace_document(function, N, spec("fp32", ("N", 5)))) for _ in range(3)}
    assert len(texts) == 1
    document = program_to_document(trace(function, N, spec("fp32", ("N", 5))))
    again = program_to_document(program_from_document(document))
    assert dumps(document) == dumps(again)


SYMBOLIC: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda x: x.reshape(-1), lambda x: x.reshape(-1)),
    (lambda x: x.reshape(-1, x.shape[1], 1), lambda x: x[..., None]),
    (lambda x: x.T @ x, lambda x: x.T.astype("f8") @ x),
    (lambda x: x[:-1] - x[1:], lambda x: x[:-1] - x[1:]),
    (lambda x: x[::2], lambda x: x[::2]),
    (lambda x: x[::-1, ::-2], lambda x: x[::-1, ::-2]),
    (lambda x: x[-1, -3:], lambda x: x[-1, -3:]),
    (lambda x: x[x.shape[0] - 1], lambda x: x[-1]),
    (lambda x: x[-2::-1], lambda x: x[-2::-1]),
    (lambda x: x[: x.shape[0] // 2], lambda x: x[: x.shape[0] // 2]),
    (lambda x: tc.concatenate([x, x[:1]]), lambda x: np.concatenate([x, x[:1]])),
    (lambda x: tc.softmax(x), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    (lambda x: x.mean(1), lambda x: x.mean(1)),
    (lambda x: x.var((0, 1)), lambda x: x.var((0, 1))),
    (lambda x: x + tc.full(x.shape, 0.5), lambda x: x + np.float32(0.5)),
    (lambda x: x * tc.arange(x.shape[1], "fp32"), lambda x: x * np.arange(x.shape[1], dtype="f4")),
    (
        lambda x: x.sliding_window(3, 1, 2),
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2],
    ),
    (lambda x: x.pad(((1, 0), (0, 2))), lambda x: np.pad(x, ((1, 0), (0, 2)))),
    (lambda x: x.broadcast_to(2, *x.shape), lambda x: np.broadcast_to(x, (2, *x.shape))),
]


@pytest.mark.parametrize("index", range(len(SYMBOLIC)))
@pytest.mark.parametrize("shape", [(4, 5), (7, 6)])
def test_symbolic_sizes_hold_for_every_binding(index: int, shape: tuple[int, int]) -> None:
    ours, theirs = SYMBOLIC[index]
    x = normal(*shape)
    same(run(trace(ours, N), x)[0], theirs(x).astype(np.float32), rtol=1e-5, atol=1e-5)


def test_sizes_compute_and_do_not_repeat_as_texts() -> None:
    seen: list[Any] = []
    trace(
        lambda x: seen.extend([x.shape[0] * 2, 1 + x.shape[0], x.shape[0] - x.shape[0], -x.shape[1]]) or x, N
    )
    assert seen == ["2*M", "M+1", 0, "-N"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[: x.shape[0] % 2],
        lambda x: x if x.shape[0] > 3 else -x,
        lambda x: x if x.shape[0] <= x.shape[1] else -x,
        lambda x: x * int(x.shape[0]),
        lambda x: x * x.shape[1] ** -0.5,
    ],
)
def test_sizes_without_a_value_are_not_computed_with(function: Callable[..., Any]) -> None:
    with pytest.raises(tinyc.TinycError, match="has no value") as caught:
        trace(function, N)
    assert caught.value.kind == "InvalidShape"


def test_a_slice_beyond_a_symbolic_axis_is_refused() -> None:
    """It has as many elements as the axis, and begins later."""
    with pytest.raises(tinyc.TinycError) as caught:
        trace(lambda x: x[1 : x.shape[0] + 1], N)
    assert caught.value.kind == "InvalidArgument"


ARRAY = np.ones((3, 4), np.float32)
REFUSED: dict[str, tuple[Callable[..., Any], str, str]] = {
    "bool": (lambda x: x if x > 0 else -x, "InvalidArgument", "where"),
    "chained comparison": (lambda x: 0 < x < 1, "InvalidArgument", "where"),
    "numpy function": (lambda x: np.exp(x), "InvalidArgument", "tinyc"),
    "numpy array function": (lambda x: np.concatenate([x, x]), "InvalidArgument", "tinyc"),
    "asarray": (lambda x: np.asarray(x), "InvalidArgument", "tinyc"),
    "captured array": (lambda x: x + ARRAY, "InvalidArgument", "input"),
    "captured array left": (lambda x: ARRAY * x, "InvalidArgument", "input"),
    "captured list": (lambda x: x * [1, 2, 3, 4], "InvalidArgument", "input"),
    "matmul of an array": (lambda x: x @ ARRAY, "InvalidArgument", "input"),
    "matmul of an array left": (lambda x: ARRAY @ x, "InvalidArgument", "tinyc"),
    "function of an array": (lambda x: x + tc.exp(ARRAY), "InvalidArgument", "trace"),
    "mixed dtypes": (lambda x: x + x.cast("fp16"), "DTypeMismatch", "cast"),
    "mixed matmul": (lambda x: x @ x.T.cast("bf16"), "DTypeMismatch", "cast"),
    "float with i32": (lambda x: x.cast("i32") + 0.5, "DTypeMismatch", "cast"),
    "number beyond i32": (lambda x: x.cast("i32") + 2**31, "DTypeMismatch", "cast"),
    "division of i32": (lambda x: x.cast("i32") / 2, "DTypeMismatch", "cast"),
    "mean of i32": (lambda x: x.cast("i32").mean(), "DTypeMismatch", "cast"),
    "minus on bool": (lambda x: (x > 0) - (x < 0), "DTypeMismatch", "cast"),
    "and on floats": (lambda x: x & x, "DTypeMismatch", "compare"),
    "unknown dtype": (lambda x: x.cast("fp64"), "DTypeMismatch", "fp32"),
    "floor division": (lambda x: x // 2, "UnsupportedOp", "/"),
    "remainder": (lambda x: x % 2, "UnsupportedOp", "reshape"),
    "assignment": (lambda x: x.__setitem__(0, 1.0), "UnsupportedOp", "where"),
    "gather": (lambda x: x[[0, 1]], "InvalidArgument", "slices"),
    "mask": (lambda x: x[x > 0], "InvalidArgument", "where"),
    "index beyond": (lambda x: x[3], "InvalidArgument", "within"),
    "too many indices": (lambda x: x[0, 0, 0], "InvalidArgument", "once"),
    "empty slice": (lambda x: x[2:2], "InvalidShape", "one element"),
    "broadcast": (lambda x: x + x.T, "BroadcastMismatch", "reshape"),
    "broadcast of symbols": (lambda x: x.reshape(1, 12).broadcast_to("A", "B"), "BroadcastMismatch", "reshape"),
    "reshape": (lambda x: x.reshape(5, 3), "AxisSizeMismatch", "elements"),
    "reshape open": (lambda x: x.reshape(5, -1), "AxisSizeMismatch", "elements"),
    "reshape open twice": (lambda x: x.reshape(-1, -1), "InvalidShape", "one"),
    "inner sizes": (lambda x: x @ x, "AxisSizeMismatch", "transpose"),
    "permutation": (lambda x: x.permute(0, 0), "InvalidPermutation", "0..1"),
    "axis": (lambda x: x.sum(2), "InvalidArgument", "axis"),
    "axis twice": (lambda x: x.sum((0, -2)), "InvalidArgument", "once"),
    "window too large": (lambda x: x.sliding_window(5, 1), "InvalidArgument", "smaller"),
    "negative pad": (lambda x: x.pad(-1), "InvalidArgument", "slice"),
    "pad of a fraction": (lambda x: x.pad(1.5), "InvalidShape", "integer"),
    "pad of three": (lambda x: x.pad([(1, 2, 3), (1, 1)]), "InvalidArgument", "pair"),
    "pad of nothing": (lambda x: x.pad(None), "InvalidShape", "integer"),
    "pad with a tensor": (lambda x: x.pad(1, x.sum()), "InvalidArgument", "numbers"),
    "pad with a text": (lambda x: x.pad(1, "a"), "InvalidArgument", "numbers"),
    "number beyond fp32": (lambda x: x + 10**400, "DTypeMismatch", "cast"),
    "number of thousands of digits": (lambda x: x.cast("i32") + 10**5000, "DTypeMismatch", "cast"),
    "float()": (lambda x: x * float(x.sum()), "InvalidArgument", "cast"),
    "round()": (lambda x: round(x), "InvalidArgument", "cast"),
    "divmod()": (lambda x: divmod(x, 2), "UnsupportedOp", "/"),
    "shift": (lambda x: x << 1, "UnsupportedOp", "power"),
    "plus on bool": (lambda x: (x > 0) + (x < 0), "DTypeMismatch", "cast"),
    "bool times float": (lambda x: (x > 0) * x, "DTypeMismatch", "i32 or fp32"),
    "power of i32": (lambda x: x.cast("i32") ** 3, "DTypeMismatch", "fp32"),
    "exp of i32": (lambda x: x.cast("i32").exp(), "DTypeMismatch", "fp32"),
    "norm with an array": (lambda x: tc.layer_norm(x, ARRAY[0]), "InvalidArgument", "input"),
    "attention with an array": (lambda x: tc.attention(x, x, x, mask=ARRAY), "InvalidArgument", "input"),
    "softmax of an array": (lambda x: x + tc.softmax(ARRAY), "InvalidArgument", "input"),
    "matmul of arrays": (lambda x: x + tc.matmul(ARRAY, ARRAY.T), "InvalidArgument", "input"),
    "array as an index": (lambda x: x[np.array([0, 1])], "InvalidArgument", "slices"),
    "step of a fraction": (lambda x: x[::1.5], "InvalidArgument", "integer"),
    "new axis at a fraction": (lambda x: x.expand_dims(0.5), "InvalidArgument", "places"),
    "squeeze": (lambda x: x.squeeze(0), "AxisSizeMismatch", "size 1"),
    "no tensor": (lambda x: 3.0, "InvalidArgument", "tensor"),
    "nothing": (lambda x: (), "InvalidArgument", "one"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_kind_and_suggestion(name: str) -> None:
    function, kind, hint = REFUSED[name]
    with pytest.raises(tinyc.TinycError) as caught:
        trace(function, X)
    assert caught.value.kind == kind
    assert hint in caught.value.suggestion


def test_errors_name_the_users_line() -> None:
    def function(x: Any) -> Any:
        y = x + 1.0
        return y + y.T  # the line that is named

    with pytest.raises(tinyc.TinycError) as caught:
        trace(function, X)
    assert caught.value.at["file"] == __file__
    assert caught.value.at["line"] == str(function.__code__.co_firstlineno + 2)


def test_wrong_specs_are_refused() -> None:
    for call in (
        lambda: trace(lambda a: a, X, X),
        lambda: trace(lambda a, b: a, X),
        lambda: trace(lambda a: a, ("fp32", (3, 4))),  # type: ignore[arg-type]
        lambda: trace(lambda a, b: a + b, spec("fp32", 3, "same"), spec("fp32", 3, "same")),
        lambda: spec("fp99", (3,)),
        lambda: spec("fp32", (0,)),
        lambda: spec("fp32", (2.5,)),  # type: ignore[arg-type]
        lambda: spec("fp32", ("M+",)),
        lambda: spec("fp32", None),  # type: ignore[arg-type]
        lambda: spec("fp32", (3,), 5),  # type: ignore[arg-type]
        lambda: tc.full((2,), 1.0),
    ):
        with pytest.raises(tinyc.TinycError):
            call()


def test_tensors_of_two_traces_do_not_mix() -> None:
    kept: list[Any] = []
    trace(lambda x: kept.append(x) or x + 1.0, X)
    with pytest.raises(tinyc.TinycError, match="two traces"):
        trace(lambda x: x + kept[0], X)
    with pytest.raises(tinyc.TinycError, match="another trace"):
        trace(lambda x: kept[0], X)


def test_exceptions_of_the_function_pass_through() -> None:
    def function(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace(function, X)
