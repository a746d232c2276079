"""What Poly Core calls illegal is never extracted: the rules do not build it, and extraction cuts what gets past them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyc
from tinyc import functions as tc
from tinyc.codegen.playback import play
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract.base import base_program
from tinyc.extract.cost.hardware import Hardware, hardware
from tinyc.extract.cost.model import Work
from tinyc.extract.program import Refusal, extract_program
from tinyc.index.boundaries import boundaries, fused_fault
from tinyc.index.derive import index_book
from tinyc.index.hints import CAPACITY
from tinyc.ir.evaluate import evaluate
from tinyc.ir.region import Reduce, Region, Stream
from tinyc.ir.tiny import Program

HARDWARE = hardware("cpu")


def sum_of_scores(m: int = 4, n: int = 40, d: int = 8) -> Program:
    """Row sums of relu(q @ k.T - 1): the scores are a reduction under that of a row."""

    def fn(q: Any, k: Any) -> Any:
        return (q @ k.transpose(1, 0) - 1.0).relu().sum(axis=-1)

    return tinyc.trace(fn, tinyc.spec("fp32", (m, d)), tinyc.spec("fp32", (n, d)))


@dataclass(frozen=True)
class Launches:
    """Only starting a kernel costs anything: everything is fused that may be."""

    hardware: Hardware = HARDWARE

    def seconds(self, work: Work) -> float:
        return 1e-12 * (work.ops + work.flops + work.bytes_read + work.bytes_written)

    def kernel(self, work: Work) -> float:
        return 1.0 + self.seconds(work)


def reductions(region: Region) -> int:
    return sum(isinstance(let.value, Reduce) for let in region.lets)


def regions_of(
    program: Program, capacity: int, facts: bool, check: bool, rules: tuple[Path, ...] = ()
) -> list[Region]:
    apart = boundaries(program, index_book(program), capacity) if facts else ()
    graph = saturate(program, load_rules(rules), apart=apart).graph

    def legal(region: Region) -> Refusal | None:
        why = fused_fault(region, capacity)
        return None if why is None else Refusal(why)

    found = (
        extract_program(program, graph, Launches(), legal)
        if check
        else extract_program(program, graph, Launches())
    )
    assert found.extracted is not None and found.fault is None
    return list(found.extracted.regions)


def test_without_a_limit_all_is_one_kernel() -> None:
    (region,) = regions_of(sum_of_scores(), 1 << 20, facts=True, check=True)
    assert reductions(region) == 2


@pytest.mark.spec("004-127", "I-48")
@pytest.mark.parametrize(("facts", "check"), [(True, False), (False, True), (True, True)])
def test_a_row_that_does_not_fit_on_chip_is_not_fused(facts: bool, check: bool) -> None:
    program = sum_of_scores()
    regions = regions_of(program, 40 * 4 - 1, facts, check)  # a row of scores has 160 bytes
    assert len(regions) > 1
    assert all(fused_fault(region, 40 * 4 - 1) is None for region in regions)


@pytest.mark.parametrize("capacity", [40 * 4, 40 * 4 + 1])
def test_a_row_that_just_fits_is(capacity: int) -> None:
    assert len(regions_of(sum_of_scores(), capacity, facts=True, check=True)) == 1


FORCING = """
(ruleset forcing)
(in-phase "forcing" "movement" "EXACT" "on")
(relation forced (Expr String Tensor Ixs i64 Ints))
; reduce(x)[ix] == op over r of x[ix, r], whatever Poly Core says
(rule ((= e (At r ix)) (= r (TReduce op n x)) (= m (vec-length ix)) (= t (top-axis-upto ix m)) (= base (* 16 (+ 1 (/ t 16))))
       (<= base 32) (= s (shape x))
       (= ns (unstable-vec-map (unstable-fn "vec-get" s) (unstable-vec-map (unstable-fn "+" m) (vec-range n)))))
  ((forced e op x ix base ns) (need-axes base ns)) :ruleset forcing :name "forcing/axes")
(rule ((forced e op x ix base ns) (= axes (axes-upto base ns (vec-length ns))))
  ((union e (Reduce op axes (At x (vec-append ix axes))))) :ruleset forcing :name "forcing/reduce")
"""


def test_a_rule_that_fuses_anyway_is_not_followed(tmp_path: Path) -> None:
    rules = tmp_path / "forcing.egg"
    rules.write_text(FORCING)
    program = sum_of_scores()
    sneaked = regions_of(program, 64, facts=True, check=False, rules=(rules,))
    assert any(fused_fault(region, 64) for region in sneaked), "the rule does not do what it is there for"
    held = regions_of(program, 64, facts=True, check=True, rules=(rules,))
    assert all(fused_fault(region, 64) is None for region in held)


def test_the_compiler_holds_the_limit_of_its_target() -> None:
    chip = CAPACITY["cpu"]
    program = sum_of_scores(2, chip // 4 + 1, 2)
    compiled = tinyc.optimize_and_compile(program, cost_model=Launches())
    assert len(compiled.kernels) > 1
    assert not compiled.report.fallback and not compiled.report.warnings
    smaller = tinyc.optimize_and_compile(sum_of_scores(2, chip // 4, 2), cost_model=Launches())
    assert len(smaller.kernels) == 1
    inputs = {
        port.name: np.ones(tuple(map(int, program.types[port.node].shape)), np.float32)
        for port in program.inputs
    }
    (want,) = evaluate(program, inputs)
    np.testing.assert_allclose(compiled(**inputs), want, rtol=1e-3, atol=1e-3)


def test_a_cost_model_s_preference_changes_nothing_in_the_naive_program() -> None:
    """The fallback is legal wherever one value fits: it nests no reductions."""

    for region in base_program(sum_of_scores()).regions:
        assert fused_fault(region, 4) is None


@pytest.mark.parametrize("target", ["cpu", "sm80"])
@pytest.mark.parametrize("steps", [2, 4])
def test_a_value_of_two_slices_is_read_from_the_buffer_of_neither(steps: int, target: str) -> None:
    """x[0] @ w of the rows 0 to 3 and x[1] @ w of the rows 4 to 7 are both the sum over k of x[i0, i1, k] w[k, i2], where they are
    asked for; the buffer of either has it for half of the points."""

    def recurrent(x: Any, h: Any, w: Any, u: Any) -> Any:
        states = []
        for step in range(steps):
            h = (x[step] @ w + h @ u).relu()
            states.append(h)
        return tc.stack(states)

    shapes = {"x": (steps, 4, 16), "h": (4, 16), "w": (16, 16), "u": (16, 16)}
    program = tinyc.trace(recurrent, **{name: tinyc.spec("fp32", shape) for name, shape in shapes.items()})
    compiled = tinyc.optimize_and_compile(program, target, budget=tinyc.Budget(extract_seconds=0))
    assert not compiled.report.fallback and not compiled.report.warnings
    assert len(compiled.kernels) <= 2 * steps
    generator = np.random.default_rng(0)
    inputs = {name: generator.integers(-2, 3, shape).astype(np.float32) for name, shape in shapes.items()}
    (want,) = evaluate(program, inputs)
    got = compiled(**inputs) if target == "cpu" else compiled.emulate(**inputs).outputs[0]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", ["cpu", "sm80"])
def test_what_slices_are_computed_from_is_read_from_the_buffers_of_neither(target: str) -> None:
    """All of a chain of values, of which each step could be had from the buffers of the slices."""

    def joined(x: Any, w: Any) -> tuple[Any, Any]:
        parts = [((x[low:high] @ w) * 0.25).sigmoid() for low, high in ((0, 2), (2, 7), (7, 8))]
        return tc.concatenate(parts), parts[0] - parts[0].mean(2, keepdims=True)

    program = tinyc.trace(joined, tinyc.spec("fp16", (8, 8, 12)), tinyc.spec("fp16", (12, 12)))
    compiled = tinyc.optimize_and_compile(program, target, budget=tinyc.Budget(extract_seconds=0))
    assert not compiled.report.fallback and not compiled.report.warnings
    generator = np.random.default_rng(0)
    inputs = {"x": generator.normal(size=(8, 8, 12)), "w": generator.normal(size=(12, 12))}
    arrays = {name: array.astype(np.float16) for name, array in inputs.items()}
    got = compiled(**arrays) if target == "cpu" else compiled.emulate(**arrays).outputs
    for have, want in zip(got, evaluate(program, arrays), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-3)


def test_a_streaming_reduction_has_no_row_that_could_be_too_long() -> None:
    chip = CAPACITY["cpu"]

    def fn(q: Any, k: Any) -> Any:
        scores = q @ k.transpose(1, 0)
        shifted = (scores - scores.max(axis=-1, keepdims=True)) * 1.5
        return shifted.exp2().sum(axis=-1)

    program = tinyc.trace(fn, tinyc.spec("fp32", (2, 2)), tinyc.spec("fp32", (chip // 4 + 1, 2)))
    (kernel,) = tinyc.optimize_and_compile(program, also=("streaming",), cost_model=Launches()).kernels
    assert any(isinstance(let.value, Stream) for let in kernel.region.lets)


def products(region: Region) -> int:
    lets = {let.name: let.value for let in region.lets}
    return sum(
        isinstance(value, Reduce) and getattr(lets[value.body], "op", None) == "MUL"
        for value in lets.values()
    )


def shared(fn: Callable[[Any], Any], size: int = 8) -> list[Region]:
    """The Regions of ``fn`` of a square product on a target that keeps rows, where only launches cost."""

    def whole(a: Any, b: Any) -> Any:
        return fn(a @ b)

    program = tinyc.trace(whole, tinyc.spec("fp16", (size, size)), tinyc.spec("fp16", (size, size)))
    graph = saturate(program, load_rules()).graph
    found = extract_program(program, graph, Launches(hardware("sm80")))
    assert found.extracted is not None
    inputs = {
        port.name: np.random.default_rng(n).integers(-2, 3, (size, size)).astype(np.float16)
        for n, port in enumerate(program.inputs)
    }
    (want,) = evaluate(program, inputs)
    (got,) = play(found.extracted, [inputs[port.name] for port in program.inputs])
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
    return list(found.extracted.regions)


@pytest.mark.spec("004-086")
def test_a_row_is_kept_but_no_other_copy_of_a_product() -> None:
    """Beside the maximum of its row a product is there once more; beside its transpose it is another's row, and beside
    its neighbour in the row it is no row at all: what fans out so is stored (document 004 §6.7-6)."""
    (row,) = shared(lambda s: s - s.max(axis=-1, keepdims=True))
    assert products(row) == 2
    assert all(products(region) <= 1 for region in shared(lambda s: s + s.permute(1, 0)))
    assert all(products(region) <= 1 for region in shared(lambda s: s + s.flip(1)))
