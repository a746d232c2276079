"""Playback: what a Region and a whole program compute, by numpy, with no code generated."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from random_programs import Maker, random_inputs
from region_builder import F32, Build, program
from region_forms import check_forms

import tinyc
from tinyc.codegen import playback
from tinyc.codegen.playback import evaluate_region, play
from tinyc.extract.base import base_program
from tinyc.ir.check_region import fault
from tinyc.ir.explicit import explicit
from tinyc.ir.region import Axis, BroadcastInDim, Layout, MemRef, Region, Stream, Transpose, Value, Yield

Array = np.ndarray


def random_program(seed: int) -> tinyc.Program:
    rng = random.Random(seed)
    return tinyc.load(Maker(lambda n: rng.randrange(n), 8).document())


@pytest.mark.parametrize("part", range(3))
@pytest.mark.spec("004-092", "004-093", "004-144")
def test_three_hundred_random_programs(part: int) -> None:
    for seed in range(100 * part, 100 * part + 100):
        given = random_program(seed)
        check_forms(given, base_program(given), random_inputs(given, seed))


@pytest.mark.spec("004-092", "004-077")
def test_extracted_programs() -> None:
    for seed in range(300, 310):
        given = random_program(seed)
        compiled = tinyc.optimize_and_compile(given)
        regions = tuple(kernel.region for kernel in compiled.kernels)
        extracted = replace(base_program(given), regions=regions, execution=compiled.plan)
        check_forms(given, extracted, random_inputs(given, seed))


def view(x: Array, value: Value, *rows: str) -> Array:
    """What one view of ``A[i, j]`` gives, stored over ``rows``."""
    b = Build(**{name: {"i": 2, "j": 3, "k": 4}[name] for name in rows})
    b.input("A", F32, *x.shape)
    b.let(F32, replace(value, x=b.read("A", *("i", "j")[: x.ndim])))  # type: ignore[type-var]
    region = b.done(b.lets[-1].name)
    return evaluate_region(region, {"A": x})["y0"]


@pytest.mark.spec("004-076")
def test_views_move_dimensions() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(view(x, Transpose("", (1, 0)), "j", "i"), x.T)
    wide = view(x, BroadcastInDim("", ("k", "i", "j"), (1, 2)), "k", "i", "j")
    np.testing.assert_array_equal(wide, np.broadcast_to(x, (4, 2, 3)))
    turned = view(x, BroadcastInDim("", ("j", "k", "i"), (2, 0)), "j", "k", "i")
    np.testing.assert_array_equal(turned, np.broadcast_to(x.T[:, None, :], (3, 4, 2)))


def test_a_wrong_view_shows() -> None:
    """Playback executes views by number: it does not read what they should be off the names of axes."""
    b = Build(i=4, j=4)
    b.input("A", F32, 4, 4)
    b.input("B", F32, 4)
    region = explicit(b.done(b.binary("SUB", b.read("A", "i", "j"), b.read("B", "j"))))
    arrays = {"A": np.arange(16, dtype=np.float32).reshape(4, 4), "B": np.arange(4, dtype=np.float32)}
    np.testing.assert_array_equal(evaluate_region(region, arrays)["y0"], arrays["A"] - arrays["B"])
    wrong = BroadcastInDim("t1", ("i", "j"), (0,))
    lets = [
        replace(let, value=wrong) if isinstance(let.value, BroadcastInDim) else let for let in region.lets
    ]
    mistaken = replace(region, lets=tuple(lets))
    found = evaluate_region(mistaken, arrays)["y0"]
    np.testing.assert_array_equal(found, arrays["A"] - arrays["B"][:, None])
    assert fault(mistaken) == "t1.b: (j) is not at [0] of (i, j)"


def streaming(rows: int, columns: int, width: int, scale: float) -> Region:
    """``O[m, n] = sum over k of EXP2((S[m, k] - max) * scale) * V[k, n]``."""
    b = Build(m=rows, n=width)
    b.input("S", F32, rows, columns)
    b.input("V", F32, columns, width)
    score, weight = b.read("S", "m", "k"), b.read("V", "k", "n")
    return b.done(b.let(F32, Stream((Axis("k", columns),), score, weight, b.const(scale))))


def test_stream() -> None:
    rng = np.random.default_rng(2)
    s, v = rng.normal(0, 30, (5, 9)).astype(np.float32), rng.normal(0, 1, (9, 4)).astype(np.float32)
    s[0, 0] = s[1, 8] = -np.inf
    s[2] = -np.inf
    s[3, 4] = np.nan
    region = streaming(5, 9, 4, 0.25)
    got = evaluate_region(region, {"S": s, "V": v})["y0"]
    with np.errstate(invalid="ignore"):
        power = np.exp2((s - s.max(axis=1, keepdims=True)) * np.float32(0.25))
    np.testing.assert_allclose(got, power.astype(np.float64) @ v, rtol=1e-5)
    assert np.isnan(got[2:4]).all() and np.isfinite(got[[0, 1, 4]]).all()
    np.testing.assert_array_equal(evaluate_region(explicit(region), {"S": s, "V": v})["y0"], got)


def test_stream_in_slices_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    arrays = {
        "S": rng.integers(-3, 4, (6, 8)).astype(np.float32),
        "V": rng.integers(-3, 4, (8, 5)).astype(np.float32),
    }
    region = streaming(6, 8, 5, 1.0)
    whole = evaluate_region(region, arrays)["y0"]
    monkeypatch.setattr(playback, "LIMIT", 50)
    np.testing.assert_array_equal(evaluate_region(region, arrays)["y0"], whole)


@pytest.mark.spec("004-070")
def test_layout_changes_no_value() -> None:
    b = Build(i=3, j=4)
    b.input("A", F32, 4, 3)
    region = b.done(b.unary("NEG", b.read("A", "j", "i")))
    ref = replace(region.inputs[0], layout=Layout("swizzled", (("swizzle", "xor32"),)), noalias=False)
    x = {"A": np.arange(12, dtype=np.float32).reshape(4, 3)}
    other = evaluate_region(replace(region, inputs=(ref,)), x)["y0"]
    np.testing.assert_array_equal(other, evaluate_region(region, x)["y0"])


@pytest.mark.spec("004-144")
def test_a_program_of_two_regions_and_two_outputs() -> None:
    """Buffers go from Region to Region by number; results come in signature order, in the signature's shapes."""

    def both(x: tinyc.Tensor) -> tuple[tinyc.Tensor, tinyc.Tensor]:
        total = x.sum(axis=1)
        return total.reshape(2, 3), (x - total.reshape(6, 1)).exp2()

    given = tinyc.trace(both, tinyc.spec("fp32", (6, 4), "x"))
    x = np.arange(24, dtype=np.float32).reshape(6, 4) % 5
    total, power = play(base_program(given), [x])
    np.testing.assert_array_equal(total, x.sum(axis=1).reshape(2, 3))
    np.testing.assert_array_equal(power, np.exp2(x - x.sum(axis=1, keepdims=True)))


def test_an_input_that_is_an_output_is_copied() -> None:
    b = Build(i=3)
    b.input("A", F32, 3)
    x = np.arange(3, dtype=np.float32)
    (out,) = play(program(b.done(b.read("A", "i"))), [x])
    assert not np.shares_memory(out, x)
    np.testing.assert_array_equal(out, x)


def test_one_value_in_two_outputs() -> None:
    b = Build(i=3)
    b.input("A", F32, 3)
    region = b.done(b.read("A", "i"))
    more = MemRef("z", F32, (3,))
    region = replace(region, outputs=(*region.outputs, more), yields=(*region.yields, Yield("t0", "z")))
    found = evaluate_region(region, {"A": np.ones(3, np.float32)})
    assert [array.tolist() for array in found.values()] == [[1, 1, 1], [1, 1, 1]]
