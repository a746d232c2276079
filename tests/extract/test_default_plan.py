"""The Plans that kernels get where nobody wrote one: legal on every target, and the document's where it has some."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from plan_examples import REFERENCE, gemm_region
from random_programs import Maker

from tinyc import load, optimize_and_compile
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import Budget, saturate
from tinyc.extract.base import base_program
from tinyc.extract.cost.hardware import TABLE, hardware
from tinyc.extract.cost.model import Roofline
from tinyc.extract.plans.default_plan import default_plan, with_default_plans
from tinyc.extract.program import extract_program
from tinyc.ir import bind, dumps
from tinyc.ir.check_plan import check_plan
from tinyc.ir.dtypes import DType
from tinyc.ir.plan import Extracted, Plan
from tinyc.ir.resources import Resources
from tinyc.ir.roles import contraction_of
from tinyc.ir.schedule_json import plan_from_json, plan_to_json
from tinyc.ir.tiny import Program

EXAMPLES = sorted(path for path in (Path(__file__).parents[2] / "docs" / "examples").glob("*.json"))


def check(extracted: Extracted, target: str) -> list[Resources]:
    """Every default Plan fits, and is the same after it was written and read."""
    machine = hardware(target)
    planned = with_default_plans(extracted, machine)
    found = []
    for region, plan in zip(planned.regions, planned.plans, strict=True):
        found.append(check_plan(plan, region, machine.limits))
        assert plan.arch == machine.limits.arch
        text = dumps(plan_to_json(region.name, plan))
        assert plan_from_json(json.loads(text)) == plan
    return found


def extracted(program: Program) -> list[Extracted]:
    """The naive kernels and the best ones; one target's are as good as another's for holding Plans against them."""
    graph = saturate(program, load_rules(()), (), (), Budget(), False).graph
    best = extract_program(program, graph, Roofline(hardware("sm80"))).extracted
    return [base_program(program), *([best] if best else [])]


def random_program(seed: int) -> Program:
    generator = np.random.default_rng(seed)
    return load(Maker(lambda n: int(generator.integers(n)), 12).document())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_get_plans_that_fit(path: Path) -> None:
    program = load(path)
    program = bind(program, dict.fromkeys(program.symbols, 48)) if program.symbols else program
    for each in extracted(program):
        for target in TABLE:
            check(each, target)


def test_random_programs_get_plans_that_fit() -> None:
    for seed in range(60):
        found = [base_program(random_program(seed))] if seed % 10 else extracted(random_program(seed))
        for each in found:
            for target in TABLE:
                check(each, target)


# ---- the document's kernels -----------------------------------------------------------------------------------------


@pytest.mark.spec("004-119")
def test_a_large_gemm_on_sm80_gets_the_reference_plan() -> None:
    region = gemm_region(4096, 4096, 4096)
    written = plan_to_json("gemm", default_plan(region, contraction_of(region), hardware("sm80")))
    for key, value in REFERENCE.items():
        assert written.get(key) == (None if key == "predicate_tail" else value), key
    tails = default_plan(
        gemm_region(4100, 4104, 4072), contraction_of(region), hardware("sm80")
    ).predicate_tail
    assert tails == ("m.i.i", "n.i.i", "k.i.i")


CONV = {
    "signature": {"inputs": [{"tensor": "X"}, {"tensor": "W"}], "outputs": [{"tensor": "Z"}]},
    "tensors": {"X": {"dtype": "fp16", "shape": [2, 64, 56, 56]}, "W": {"dtype": "fp16", "shape": [128, 64, 3, 3]}},
    "graph": [
        {"op": "Conv2D", "name": "conv", "inputs": ["X", "W"], "outputs": ["Y"],
         "attrs": {"stride": [1, 1], "pad": [1, 1], "acc_dtype": "fp32"}},
        {"op": "Elementwise", "name": "silu", "fn": "silu", "inputs": ["Y"], "outputs": ["Z"]},
    ],
}  # fmt: skip


@pytest.mark.spec("004-154")
def test_a_convolution_on_sm80_gets_a_ring_of_three() -> None:
    (kernel,) = (
        pair for pair in _plans(CONV, "sm80") if dict(pair[1].algo_choice).get("conv") == "implicit_gemm"
    )
    region, plan = kernel
    assert (plan.stages, plan.warp_tile, plan.vectorize and plan.vectorize.width) == (3, (64, 32), 8)
    assert plan.async_ is not None and plan.async_.enable
    ring = next(edge for edge in plan.local_edges if edge.buffer == "smem_ring")
    assert (ring.source, ring.target, ring.depth) == ("X", "sum_k", 3)
    assert "exp2" in plan.epilogue
    assert check_plan(plan, region, hardware("sm80").limits).smem_bytes == 3 * (128 * 64 + 64 * 64) * 2


def _plans(document: object, target: str) -> list[tuple]:
    program = load(document)
    program = bind(program, dict.fromkeys(program.symbols, 64)) if program.symbols else program
    machine = hardware(target)
    graph = saturate(program, load_rules(()), (), (), Budget(), False).graph
    found = extract_program(program, graph, Roofline(machine)).extracted
    assert found is not None
    planned = with_default_plans(found, machine)
    return list(zip(planned.regions, planned.plans, strict=True))


@pytest.mark.parametrize("target", ["cpu", "sm80", "sm90"])
def test_attention_streams_its_softmax(target: str) -> None:
    document = json.loads((EXAMPLES[0].parent / "attention_causal.frontend.json").read_text())
    chosen = [dict(plan.algo_choice).get("attention") for _, plan in _plans(document, target)]
    assert "streaming_softmax_2pass" in chosen


# ---- fitted to the sizes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "sizes", "dtype", "tile", "width"),
    [
        ("sm80", (20, 24, 40), DType.FP16, (32, 32, 64), 8),
        ("sm80", (1000, 8, 16), DType.FP16, (128, 8, 16), 8),
        ("sm80", (4096, 4098, 64), DType.FP16, (128, 64, 64), 2),
        ("sm80", (512, 512, 512), DType.FP32, (64, 64, 32), 4),
        ("sm90", (512, 512, 512), DType.FP16, (128, 128, 64), 8),
        ("sm90", (20, 24, 40), DType.BF16, (64, 32, 64), 8),
    ],
    ids=str,
)
def test_tiles_and_vectors_follow_the_sizes(
    target: str, sizes: tuple[int, int, int], dtype: DType, tile: tuple[int, int, int], width: int
) -> None:
    region = gemm_region(*sizes, dtype)
    plan = default_plan(region, contraction_of(region), hardware(target))
    assert plan.tile == tile and plan.vectorize is not None and plan.vectorize.width == width
    check_plan(plan, region, hardware(target).limits)


@pytest.mark.parametrize("layout", ["row_major", "col_major"])
def test_the_result_is_written_as_it_lies(layout: str) -> None:
    region = gemm_region(layouts=("row_major", "row_major", layout))
    plan = default_plan(region, contraction_of(region), hardware("sm80"))
    assert plan.layout_hints is not None and plan.vectorize is not None
    assert (plan.layout_hints.c_stride, plan.vectorize.axis) == (
        ("row", "n.i.i") if layout == "row_major" else ("col", "m.i.i")
    )


def test_gpu_kernels_ask_for_aligned_buffers() -> None:
    """numpy promises the size of an element only."""
    document = json.loads((EXAMPLES[0].parent / "matmul_a_bt.json").read_text())
    assert {ref.alignment for region, _ in _plans(document, "cpu") for ref in region.inputs} != {16}
    for region, plan in _plans(document, "sm80"):
        assert min(ref.alignment for ref in (*region.inputs, *region.outputs)) >= 16
        assert plan.vectorize is not None and plan.vectorize.width > 1


def test_what_is_not_a_contraction_gets_a_plain_plan() -> None:
    region = gemm_region()
    on_cpu = default_plan(region, None, hardware("cpu"))
    assert on_cpu == Plan(arch="cpu")
    plan = default_plan(region, None, hardware("sm90"))
    found = check_plan(plan, region, hardware("sm90").limits)
    assert (
        plan.algo == "loops"
        and found.grid[0] * found.threads * (plan.vectorize.width if plan.vectorize else 1) >= 512 * 512
    )


def test_compiled_programs_carry_them() -> None:
    program = load(EXAMPLES[0].parent / "gemm_bias_relu.json")
    compiled = optimize_and_compile(program, shapes={"M": 96, "N": 64, "K": 32})
    (kernel,) = compiled.kernels
    assert (
        kernel.plan.arch == "cpu"
        and kernel.plan.tile is not None
        and kernel.plan.epilogue == ("bias", "relu")
    )
    (dumped,) = json.loads(compiled.dump("plan"))["plan"]
    assert dumped.pop("kernel")["name"] == kernel.region.name
    assert dumped == plan_to_json(kernel.region.name, kernel.plan)
