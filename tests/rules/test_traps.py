"""The traps of this encoding: each was seen to give a wrong program, or to kill the engine, in a sketch of it.

Every test states the trap and a program that falls into it. Values are held against the evaluator; the compiled
program must be the extracted one, never the fallback.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_checks import check_exact, check_values, compiled, normal_inputs, outputs, traced

import tinyc
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract.cost.estimate import estimate
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import Roofline
from tinyc.extract.view import LEVEL, View, axis_id, input_dtypes
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.evaluate import evaluate
from tinyc.ir.region import Reduce
from tinyc.ir.tiny import Program


def integers(program: Program, seed: int = 0, largest: int = 4) -> dict[str, np.ndarray]:
    """Small integers: every sum is exact, so any wrong element shows."""
    generator = np.random.default_rng(seed)
    return {
        port.name: generator.integers(
            -largest, largest + 1, [int(n) for n in program.types[port.node].shape]
        ).astype(program.types[port.node].dtype.numpy)
        for port in program.inputs
    }


def check_integers(program: Program, **options: Any) -> tinyc.Compiled:
    result = compiled(program, **options)
    for seed in range(2):
        check_exact(result, integers(program, seed))
    return result


def document(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"uops": list(nodes)}


def node(id: str, uop: str, src: list[Any], **arg: Any) -> dict[str, Any]:
    return {"id": id, "uop": uop, "src": src, "arg": arg}


def source(name: str, *shape: int, dtype: str = "fp32") -> dict[str, Any]:
    return node(name, "INPUT", [], tensor_id=name, dtype=dtype, shape=list(shape))


# ---- 1: an axis is its name and its extent ---------------------------------------------------------------------------


def test_a_slice_and_what_it_is_cut_from_are_not_one_buffer() -> None:
    """y[0:64][i] is y[i]. Were axes names only, the buffer of 64 elements could stand for that of 128."""
    check_integers(traced(lambda x: ((y := x.relu() + 1.0)[:64], y, y[:64].sum(0), y.sum(0)), x=(128,)))


def test_an_axis_of_one_point_is_zero_and_no_other_axis_is() -> None:
    """A rule "axis i is 0 where its extent is 1" must not touch axis i of another extent."""
    program = traced(lambda x, z: (x + z, (x * 2.0)[:1] + z[:, :1], (x + z)[3:, :1]), x=(5, 1), z=(1, 7))
    check_integers(program)
    for shape in ((1, 1, 1), (1, 6, 1), (4, 1, 6)):
        check_integers(traced(lambda x: (x.sum(1), x.sum(0).sum(0), x.max(2) + 1.0), x=shape))


def test_windows_of_one_point_end() -> None:
    """A 1x1 convolution as a VIEW, index i2 + i4 with i4 of one point: substituted into itself without end, once."""
    check_integers(
        tinyc.load(
            document(
                source("x", 2, 3, 5, 5),
                source("w", 4, 3, 1, 1),
                node(
                    "windows",
                    "VIEW",
                    ["x"],
                    result_shape=[2, 3, 5, 5, 1, 1],
                    index_map=["i0", "i1", "i2+i4", "i3+i5"],
                ),
                node("xs", "RESHAPE", ["windows"], result_shape=[2, 1, 3, 5, 5, 1, 1]),
                node("x7", "EXPAND", ["xs"], result_shape=[2, 4, 3, 5, 5, 1, 1]),
                node("ws", "RESHAPE", ["w"], result_shape=[1, 4, 3, 1, 1, 1, 1]),
                node("w7", "EXPAND", ["ws"], result_shape=[2, 4, 3, 5, 5, 1, 1]),
                node("p", "MUL", ["x7", "w7"]),
                node("y", "REDUCE", ["p"], op="SUM", axes=[2, 5, 6], dtype="fp32"),
            )
        )
    )


# ---- 2: cost is paid in every kernel that evaluates a class ----------------------------------------------------------


def test_a_product_that_two_outputs_need_is_computed_once() -> None:
    """relu(x w) and its row sums: one class in one e-graph, but two kernels would each compute it."""
    program = traced(lambda x, w: ((x @ w).relu(), (x @ w).sum(1)), x=(256, 300), w=(300, 200))
    result = check_integers(program)
    products = [
        let
        for kernel in result.kernels
        for let in kernel.region.lets
        if isinstance(let.value, Reduce) and any(axis.size == 300 for axis in let.value.axes)
    ]
    assert len(products) == 1, "the product is recomputed, or cost counts what two kernels evaluate once"


def test_the_total_is_what_the_kernels_cost_one_by_one() -> None:
    result = compiled(traced(lambda x: ((y := (x * x).sum(1)) + 1.0, y.exp(), x + 1.0), x=(40, 50)))
    model = Roofline(hardware("cpu"))
    each = [estimate(kernel.region, kernel.plan, model) for kernel in result.kernels]
    assert result.report.total.flops == sum(part.flops for part in each)
    assert result.report.total.time_s == pytest.approx(sum(part.time_s for part in each))


# ---- 3: movement alone makes cycles ----------------------------------------------------------------------------------


def test_buffers_that_could_fill_each_other_are_filled_from_the_inputs() -> None:
    """t = a transposed, and t transposed is a: each could be read from the other, and neither be computed."""
    check_integers(traced(lambda x: ((a := x.relu()), a.T, a.T.T + 1.0, a.T.relu()), x=(6, 9)))
    check_integers(traced(lambda x: ((a := x.sum(0)), (b := a.reshape(3, 8)), b.reshape(24) + a), x=(5, 24)))
    check_integers(traced(lambda x: ((a := x.relu()).flip(0).flip(0), a.flip(0), a), x=(7, 3)))


# ---- 4, 5: names of bound axes ---------------------------------------------------------------------------------------


def test_the_axes_of_a_reduction_lie_above_all_axes_of_its_index() -> None:
    """At(sum x, [3*a1 + a2, a0]): a rule that sees the first position alone would bind an axis that is in use."""
    program = traced(lambda x: x.sum(2).T.reshape(5, 4, 3) + 1.0, x=(12, 5, 6))
    check_integers(program)
    check_integers(traced(lambda x: x.sum(1).reshape(2, 3, 4).permute(2, 0, 1).sum(0), x=(24, 5)))
    saturation = saturate(program, load_rules())
    assert saturation.graph is not None
    view = View(saturation.graph, input_dtypes(program))
    found = 0
    for name, items in view.items.items():
        for item in items:
            if item.head == "Reduce":
                found += 1
                lowest = min(axis_id(str(axis)) for axis in item.payload)
                assert lowest % LEVEL == 0 and all(axis_id(axis) < lowest for axis in view.free[name])
    assert found


@pytest.mark.parametrize("sizes", [(3, 4), (4, 4), (1, 4), (4, 1)])
@pytest.mark.spec("004-080", "004-085")
def test_nested_reductions_of_equal_extents_keep_both_factors(sizes: tuple[int, int]) -> None:
    """R0 on (1, M) and (1, N): once M = N the two axes look like one, and a factor N vanishes."""
    m, n = sizes

    def repeated(x: Any) -> Any:
        """The sum over n of a value that does not vary over n, which is itself a sum: n times as large."""
        return x.sum(1, keepdims=True).broadcast_to(5, n).sum(1)

    check_integers(traced(repeated, x=(5, m)))
    check_integers(traced(lambda x: x.sum(2).sum(1), x=(5, m, n)))
    check_integers(traced(lambda a, b: (a[:, :, None] * b[:, None, :]).sum(2).sum(1), a=(5, m), b=(5, n)))
    check_integers(traced(lambda x: x.max(2).max(1) + x.sum(1).max(1), x=(5, m, n)))


def test_sums_side_by_side_bind_the_same_name() -> None:
    """They are of one level. A product of two sums over equal extents is no sum over one axis."""
    check_integers(traced(lambda a, b: a.sum(1) * b.sum(1), a=(5, 4), b=(5, 4)))
    check_integers(traced(lambda a, b: (a.sum(1, keepdims=True) * b).sum(1), a=(5, 4), b=(5, 4)))
    check_integers(traced(lambda a: (a * a.sum(1, keepdims=True)).sum(1) + a.sum(1), a=(5, 4)))


@pytest.mark.spec("004-084")
def test_reductions_of_different_operators_never_merge() -> None:
    check_integers(traced(lambda x: (x.max(2).sum(1), x.sum(2).max(1), x.min(2).max(1)), x=(5, 4, 4)))


# ---- 6: a condition is no fact ---------------------------------------------------------------------------------------


def test_what_holds_under_a_guard_does_not_hold_outside_it() -> None:
    """(i-8)//16 is 0 for 8 <= i < 24 and -1 before. The pad guards one use of it; the VIEW reads it unguarded."""
    padded = [
        source("x", 2),
        node("rows", "VIEW", ["x"], result_shape=[16], index_map=["i0//16"]),
        node("pad", "PAD", ["rows"], pad=[[8, 0]], value=-5.0),
        source("z", 2),
        # (i + 8)//16 = 1 + (i - 8)//16
        node("open", "VIEW", ["z"], result_shape=[24], index_map=["(i0+8)//16"]),
        node("both", "ADD", ["pad", "open"]),
    ]
    check_integers(tinyc.load(document(*padded)))
    # i//16 is 0 under the guard i < 16, and 1 after it
    guarded = [
        source("x", 2),
        node("rows", "VIEW", ["x"], result_shape=[16], index_map=["i0//8"]),
        node("pad", "PAD", ["rows"], pad=[[0, 8]], value=-5.0),
        source("z", 2),
        node("open", "VIEW", ["z"], result_shape=[24], index_map=["i0//16"]),
        node("both", "ADD", ["pad", "open"]),
    ]
    check_integers(tinyc.load(document(*guarded)))
    check_integers(traced(lambda x: (x.pad([(8, 8)])[::4].reshape(3, 4), x.pad([(8, 8)]) + 1.0), x=(32,)))


@pytest.mark.spec("I-33")
def test_the_largest_of_negative_values_and_padding_is_the_padding() -> None:
    """PAD is zero here, not the neutral element of MAX; and a shifted window over it is guarded in both places."""
    for operation in ("max", "min"):
        program = traced(
            lambda x, name=operation: (
                getattr(x.pad([(0, 0), (1, 2)]), name)(1)
                + getattr(x.pad([(0, 0), (1, 2)], float("-inf" if name == "max" else "inf")), name)(1)
            ),
            x=(6, 10),
        )
        result = compiled(program)
        for sign in (-1, 1):
            check_values(result, {"x": sign * np.abs(normal_inputs(program)["x"]) - np.float32(sign)})


# ---- 7: the start of a reduction --------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["MAX", "MIN", "SUM", "PROD"])
def test_work_moves_across_a_reduction_only_from_its_neutral_element(op: str) -> None:
    """max(0, x + 5) at x = -9 is 0; with the 5 moved out of the reduction it is 5."""
    shifted = document(
        source("x", 4, 3),
        node("plus", "ADD", ["x", 5.0]),
        node("times", "MUL", ["plus", 2.0]),
        node("least", "REDUCE", ["times"], op=op, axes=[1], dtype="fp32", init=0.0 if op != "PROD" else 3.0),
        node("relu", "RELU", ["x"]),
        node("start", "REDUCE", ["relu"], op=op, axes=[1], dtype="fp32", init=-1.0),
    )
    result = compiled(tinyc.load(shifted))
    for x in (np.full((4, 3), -9.0), np.full((4, 3), -5.0), np.arange(12.0).reshape(4, 3) - 8):
        check_exact(result, {"x": x.astype(np.float32)})


# ---- 8: over the reals is not in floating point -----------------------------------------------------------------------


def test_a_variance_does_not_become_a_difference_of_large_numbers() -> None:
    """mean((x - mu)^2) as E[x^2] - mu^2 is -8 where 0.94 is right."""
    program = traced(lambda x: ((x - x.mean(1, keepdims=True)) ** 2).mean(1), x=(8, 64))
    x = (np.random.default_rng(0).normal(size=(8, 64)) + 4096).astype(np.float32)
    (real,) = evaluate(program, {"x": x}, float64=True)
    (got,) = outputs(compiled(program), {"x": x})
    np.testing.assert_allclose(got, real, rtol=1e-3)


@pytest.mark.spec("004-082")
def test_a_sum_of_differences_is_taken_apart_on_request_only() -> None:
    """sum (x * w - y) where each difference is exact: taken apart, both sums are rounded and all digits are lost."""

    def f(x: Any, w: Any, y: Any) -> Any:
        return (x.reshape(64, 1, 512) * w.reshape(1, 96, 512) - y.reshape(64, 1, 512)).sum(2)

    program = traced(f, x=(64, 512), w=(96, 512), y=(64, 512))
    x = np.full((64, 512), 16777212, np.float32)
    x[:, ::3] += 4
    inputs = {"x": x, "w": np.ones((96, 512), np.float32), "y": np.full((64, 512), 16777213, np.float32)}
    (real,) = evaluate(program, inputs, float64=True)
    (kept,) = outputs(compiled(program), inputs)
    (apart,) = outputs(compiled(program, also=["cancellation"]), inputs)
    np.testing.assert_array_equal(kept, real)
    assert np.abs(apart - real).max() > 1, "if this is exact, the ruleset need not be off"


@pytest.mark.spec("004-081", "I-34")
def test_a_hoisted_factor_may_overflow_and_says_so_in_its_class() -> None:
    """sum of 1e-30 * 1e38 is 6.4e9; with the factor outside, the sum is inf first. That is what BOUNDED allows."""
    program = traced(lambda s, x: (s * x).sum(1), s=(2, 1), x=(2, 64))
    inputs = {"s": np.full((2, 1), 1e-30, np.float32), "x": np.full((2, 64), 1e38, np.float32)}
    (klass,) = {ruleset.klass for ruleset in load_rules().rulesets if ruleset.name == "srnf"}
    assert klass == "BOUNDED"
    (careful,) = outputs(compiled(program, without=["srnf"]), inputs)
    np.testing.assert_allclose(careful, 6.4e9, rtol=1e-5)
    # in wrapping integers the hoist is exact, whatever overflows
    wrapping = traced(lambda s, x: (s * x).sum(1), s=("i32", (2, 1)), x=("i32", (2, 64)))
    generator = np.random.default_rng(0)
    large = {
        port.name: generator.integers(
            -(2**31), 2**31, [int(n) for n in wrapping.types[port.node].shape]
        ).astype(np.int32)
        for port in wrapping.inputs
    }
    check_exact(compiled(wrapping), large)


@pytest.mark.spec("I-34")
def test_only_what_commutes_with_the_operator_moves_out() -> None:
    """sum relu(x) is not relu(sum x), sum (x + c) not (sum x) + c, max (s*x) not s * max x for a negative s."""
    check_integers(
        traced(
            lambda x, s: (x.relu().sum(1), (x + s).sum(1), (x * s).max(1), (x * s).min(1), (-x).max(1)),
            x=(6, 5),
            s=(6, 1),
        )
    )


# ---- 9: softmax -------------------------------------------------------------------------------------------------------


def test_a_maximum_over_a_part_and_a_sum_over_the_whole_are_of_one_level() -> None:
    """Both reductions bind the first axis of their level, one of 64 points and one of 128."""
    program = traced(lambda x: (x - x[:, :64].max(1, keepdims=True)).exp().sum(1), x=(8, 128))
    result = compiled(program)
    check_values(result)
    check_values(result, normal_inputs(program, scale=5.0))


def test_softmax_is_finite_where_a_part_of_a_row_is_masked() -> None:
    """With the first half of a row at -inf, a running maximum starts at -inf; a row wholly masked is NaN, as in numpy."""
    program = traced(lambda x: tinyc.functions.softmax(x), x=(4, 128))
    x = normal_inputs(program)["x"]
    x[0, :64] = x[1, 64:] = x[2, :127] = x[3] = -np.inf
    result = compiled(program)
    check_values(result, {"x": x})
    (got,) = outputs(result, {"x": x})
    assert np.isfinite(got[:3]).all() and np.isnan(got[3]).all()


# ---- 10: a contradiction stops the engine, not the process -------------------------------------------------------------


def user_rule(folder: Path, text: str) -> Path:
    file = folder / "unsound.egg"
    file.write_text(
        f'(ruleset unsound)\n(in-phase "unsound" "algebra" "EXACT" "on")\n\n{text}', encoding="utf-8"
    )
    return file


UNSOUND = {
    "shapes": '; permute(x) == x\n(rewrite (Permute x p q) x :ruleset unsound :name "unsound/rule")\n',
    "dtypes": '; cast(x) == x\n(rewrite (Cast d x) x :ruleset unsound :name "unsound/rule")\n',
    "primitive": "; x[9] == x\n(rule ((= e (At t ix))) ((union e (At t (vec-of (vec-get ix 9)))))\n"
    ' :ruleset unsound :name "unsound/rule")\n',
}


@pytest.mark.parametrize("kind", UNSOUND)
def test_a_contradiction_names_the_users_rule(kind: str, tmp_path: Path) -> None:
    """Two shapes or dtypes of one value stop the engine at once, as does a primitive without a value in an action."""
    program = traced(lambda x: x.T.cast("fp16").cast("fp32") + 1.0, x=(4, 6))
    file = user_rule(tmp_path, UNSOUND[kind])
    with pytest.raises(TinycError) as caught:
        tinyc.optimize_and_compile(program, rules=[file])
    assert caught.value.kind == "UnsoundUnion"
    assert caught.value.at["rule"] == "unsound/rule"
    assert caught.value.at["file"] == str(file) and caught.value.at["line"] == "5"
    check_values(compiled(program))  # the engine is there again


# ---- 11: bf16 without the processor's help -----------------------------------------------------------------------------


@pytest.mark.parametrize("narrow", ["bf16", "fp16"])
def test_rounding_to_16_bits_is_right_for_every_pattern_and_calls_nothing(narrow: str) -> None:
    """LLVM's own conversion to bfloat calls a function that is not there; a halfway case must go to the even side."""
    down = compiled(traced(lambda x: x.cast(narrow), x=(65536, 5)))
    high = np.arange(65536, dtype=np.uint32)[:, None] << 16
    low = np.array([0, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    if narrow == "fp16":  # the 13 bits that fp16 has not
        low = np.array([0, 0x0FFF, 0x1000, 0x1001, 0x3000], np.uint32)
    check_exact(down, {"x": (high | low).view(np.float32)})
    up = compiled(traced(lambda x: x.cast("fp32"), x=(narrow, (65536,))))
    kind = up.program.types[up.program.inputs[0].node].dtype.numpy
    check_exact(up, {"x": np.arange(65536, dtype=np.uint16).view(kind)})
    for kernel in (*down.kernels, *up.kernels):
        assert "bfloat" not in kernel.source
        declared = [line for line in kernel.source.splitlines() if line.startswith("declare")]
        assert all("@llvm." in line or '@"llvm.' in line for line in declared), declared
