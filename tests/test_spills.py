"""Plans whose kernels spill are passed over; what kernels take is in the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import tinyc
import tinyc.pipeline as pipeline
from tinyc.codegen.cuda import CudaKernel, generate
from tinyc.extract.report.report import ExtractionReport
from tinyc.extract.report.to_json import from_json
from tinyc.ir.check_plan import check_plan
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.plan import Plan
from tinyc.ir.region import Region
from tinyc.ir.resources import LIMITS
from tinyc.ir.tiny import Program
from tinyc.ir.usage import KernelUsage
from tinyc.spills import settle

GREEDY = tinyc.Budget(extract_seconds=0)
GEMM = Path(__file__).parent.parent / "docs" / "examples" / "gemm_bias_relu.json"
Judge = Callable[[CudaKernel], KernelUsage | None]


def told(region: Region, plan: Plan) -> CudaKernel:
    """A kernel whose source says its Plan, as that of a schedule that obeys it would."""
    kernel = generate(region, plan)
    return CudaKernel(
        kernel.name,
        f"// {plan.tile} {plan.stages} {plan.warp_tile}\n{kernel.source}",
        (1,) * 3,
        (1,) * 3,
        0,
        "",
    )


def taken(kernel: CudaKernel, spilled: int) -> KernelUsage:
    return KernelUsage(kernel.name, "sm_80", 255, spilled, spilled, spilled, 0)


def compiled(
    monkeypatch: pytest.MonkeyPatch,
    usage: Judge,
    generate: Callable[[Region, Plan], CudaKernel] = told,
    program: Program | None = None,
) -> tinyc.Compiled:
    def settled(planned, given, limits, _):  # type: ignore[no-untyped-def]
        return settle(planned, given, limits, usage, generate)

    monkeypatch.setattr(pipeline, "settle", settled)
    if program is not None:
        return tinyc.optimize_and_compile(program, "sm80", budget=GREEDY)
    return tinyc.optimize_and_compile(GEMM, "sm80", dict.fromkeys("MNK", 1024), budget=GREEDY)


def tiles(compiled: tinyc.Compiled) -> object:
    (kernel,) = compiled.kernels
    return kernel.plan.tile, kernel.plan.stages, kernel.plan.warp_tile


def test_the_next_plan_is_taken_where_the_first_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse_two(kernel: CudaKernel) -> KernelUsage:
        asked.append(kernel.source)
        return taken(kernel, 0 if len(asked) > 2 else 16)

    first = compiled(monkeypatch, lambda kernel: taken(kernel, 0))
    assert first.report.refused == ()
    other = compiled(monkeypatch, refuse_two)
    assert len(asked) == len(set(asked)) == 3
    assert first.report.kernels[0].plan != other.report.kernels[0].plan
    report = other.report
    assert [(each.region, each.taken) for each in report.refused] == [(report.kernels[0].region, False)] * 2
    assert "16 bytes of spill stores" in report.refused[0].why
    assert "passed over" in str(report) and "passed over" in report.to_html()
    assert "passed over" not in report.to_text(times=False), "what a compiler's version decides"
    assert report.kernels[0].time_s >= first.report.kernels[0].time_s
    back = from_json(json.loads(report.to_json()))
    assert back.refused == report.refused


def test_equal_kernels_are_settled_once_and_each_has_its_own_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse_the_first(kernel: CudaKernel) -> KernelUsage:
        asked.append(kernel.source.partition("\n")[0])
        return taken(kernel, 16 if asked[-1] == asked[0] else 0)

    def layers(x, a, b, c):  # type: ignore[no-untyped-def]
        for weights in (a, b, c):
            x = (x @ weights).relu()
        return x

    program = tinyc.trace(layers, *[tinyc.spec("fp16", (1024, 1024))] * 4)
    judged = compiled(monkeypatch, refuse_the_first, program=program)
    assert len(judged.kernels) == 3
    assert len(asked) == 4, "the first reads an input, the others a buffer, which is more aligned"
    assert len(judged.report.refused) == 2
    assert len({kernel.plan.tile for kernel in judged.kernels}) == 1
    for kernel in judged.kernels:
        check_plan(kernel.plan, kernel.region, LIMITS["sm80"])


def test_the_least_is_taken_where_all_spill(monkeypatch: pytest.MonkeyPatch) -> None:
    spilled = iter((48, 32, 16, 64, *range(100, 200)))
    report = compiled(monkeypatch, lambda kernel: taken(kernel, next(spilled))).report
    assert [each.taken for each in report.refused[:4]] == [False, False, True, False]
    assert sum(each.taken for each in report.refused) == 1


def test_a_plan_without_code_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[Plan] = []

    def fails_once(region: Region, plan: Plan) -> CudaKernel:
        if not failed or plan == failed[0]:
            failed.append(plan)
            raise TinycError("CodegenFailed", "no such tile", "report it")
        return told(region, plan)

    report = compiled(monkeypatch, lambda kernel: taken(kernel, 0), fails_once).report
    assert [each.why for each in report.refused] == ["no such tile"]

    def fails(region: Region, plan: Plan) -> CudaKernel:
        raise TinycError("CodegenFailed", "no such tile", "report it")

    with pytest.raises(TinycError, match="no such tile"):
        compiled(monkeypatch, lambda kernel: taken(kernel, 0), fails)


def test_spills_are_found_in_what_ptxas_says() -> None:
    """The usage that compiling asks for, of a kernel that cannot hold what it loads."""
    loads = "".join(f"float v{number} = in[{number} * 1024 + threadIdx.x];\n" for number in range(64))
    sums = " + ".join(f"v{number} * v{63 - number}" for number in range(64))
    stores = "".join(f"out[{number} * 1024 + threadIdx.x] = v{number} * sum;\n" for number in range(64))
    body = f"{loads}__syncthreads(); float sum = {sums};\n{stores}"
    parameters = "const float* __restrict__ in, float* __restrict__ out"
    head = f'extern "C" __global__ void __launch_bounds__({{}}) k({parameters}) {{{{ {{}} }}}}'
    usage = pipeline._usage_for(pipeline.Options("sm80"))
    for bounds, spills in (("1024", True), ("128", False)):
        kernel = CudaKernel("k", head.format(bounds, body), (1, 1, 1), (1, 1, 1), 0, "")
        found = usage(kernel)
        assert found is not None and bool(found.fault) is spills


def test_nothing_is_compiled_where_there_is_nothing_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(kernel: CudaKernel) -> KernelUsage:
        raise AssertionError("its Plans give one source")

    def alike(region: Region, plan: Plan) -> CudaKernel:
        return generate(region)

    assert compiled(monkeypatch, never, alike).report.refused == ()
    unknown = compiled(monkeypatch, lambda kernel: None)
    assert unknown.report.refused == (), "nobody can say what it takes"


# ---- the report -----------------------------------------------------------------------------------------------------


def report_of(target: str) -> ExtractionReport:
    program = tinyc.trace(lambda a: a + 1.0, tinyc.spec("fp32", (64,)))
    return tinyc.optimize_and_compile(program, target, budget=GREEDY).report


@pytest.mark.parametrize(("target", "arch"), [("sm80", "sm_80"), ("sm90", "sm_90a")])
def test_the_report_says_what_kernels_take(target: str, arch: str) -> None:
    report = report_of(target)
    (usage,) = report.usage
    assert usage.kernel == report.kernels[0].symbol and usage.arch == arch and usage.registers > 0
    for text in (str(report), report.to_html()):
        assert "spill stores" in text and usage.kernel in text
    assert "spill stores" not in report.to_text(times=False)
    assert report.quick().usage == ()
    assert json.loads(report.to_json())["usage"][0]["registers"] == usage.registers


def test_a_report_for_a_cpu_or_without_nvrtc_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of("cpu").usage == ()

    def absent(*_: object, **__: object) -> None:
        raise TinycError("TargetUnavailable", "no NVRTC", "install it")

    monkeypatch.setattr("tinyc.runtime.cuda.program.compile_cubin", absent)
    report = report_of("sm80")
    assert report.usage == () and "spill" not in str(report)
