"""Plans held against their Region and a machine (004 §6.12, §8, §12): what fits, and why the rest does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plan_examples import MACHINES, REFERENCE, SM80, SM90, changed, gemm_region

from tinyc import TinycError
from tinyc.ir.check_plan import check_plan
from tinyc.ir.dtypes import DType
from tinyc.ir.region import Layout, Region
from tinyc.ir.resources import CPU, Limits, Resources
from tinyc.ir.schedule import Plan, Vectorize
from tinyc.ir.schedule_json import plan_from_json


def check(data: dict[str, Any], region: Region | None = None, limits: Limits = SM80) -> Resources:
    return check_plan(plan_from_json(data), region or gemm_region(), limits)


def refused(
    data: dict[str, Any] | Plan,
    kind: str = "PlanMismatch",
    region: Region | None = None,
    limits: Limits = SM80,
) -> TinycError:
    plan = data if isinstance(data, Plan) else plan_from_json(data)
    with pytest.raises(TinycError) as caught:
        check_plan(plan, region or gemm_region(), limits)
    error = caught.value
    assert error.kind == kind and error.why.startswith(error.at["value"] + ": ") and error.suggestion
    return error


# ---- what it takes --------------------------------------------------------------------------------------------------


@pytest.mark.spec("004-119")
def test_the_reference_plan_fits_the_documents_region() -> None:
    """4 x 8 blocks of 2 warps; A and B in two stages of 64 deep tiles."""
    found = check(REFERENCE)
    assert found == Resources(2, 64, 2 * (128 * 64 + 64 * 64) * 2, 128 + 16 + 16 + 16, 16, (8, 4, 1))


@pytest.mark.parametrize(
    ("path", "value", "smem"),
    [("stages", 3, 73_728), ("tile", [256, 128, 32], 49_152), ("tile", [64, 64, 64], 32_768),
     ("cache", [{"tensor": "A", "at": "k.i"}], 32_768), ("cache/1/pingpong", False, 40_960)],
)  # fmt: skip
def test_shared_memory(path: str, value: Any, smem: int) -> None:
    assert check(changed(path, value)).smem_bytes == smem
    wide = {**changed(path, value), "vectorize": {"axis": "n.i.i", "width": 4}}
    narrow = gemm_region(dtype=DType.FP32, layouts=("row_major", "col_major", "row_major"))
    assert check(wide, narrow).smem_bytes == 2 * smem


def test_a_warpgroup_of_sm90_is_four_warps() -> None:
    plan = {
        **REFERENCE,
        "arch": "sm90",
        "barrier_model": "mbarrier",
        "tile": [128, 128, 64],
        "warp_tile": "64x128",
    }
    found = check(plan, limits=SM90)
    assert (found.warps, found.threads, found.smem_bytes) == (8, 256, 65_536)
    assert (
        found.registers_per_thread == 64 + 16
    )  # 64 x 128 sums by 128 threads; operands stay in shared memory


def test_axes_bound_to_one_place_are_flattened() -> None:
    assert check(changed("bind/m.o", "block.x")).grid == (32, 1, 1)
    assert check(changed("bind", {"m.o": "block.z", "n.o": "block.y"})).grid == (1, 8, 4)


# ---- resources: E1501 to E1504 --------------------------------------------------------------------------------------


@pytest.mark.spec("004-142")
def test_too_much_shared_memory_says_how_much_and_what_fits() -> None:
    error = refused({**changed("tile", [128, 128, 128]), "stages": 3}, "SharedMemoryExceeded")
    assert error.code == "E1501" and error.details == {"bytes": 196_608, "limit": 166_912}
    assert error.suggestion == "2 stages take 131072"
    check(changed("tile", [128, 128, 128]))
    error = refused(changed("tile", [128, 128, 256]), "SharedMemoryExceeded")
    assert error.suggestion == "a tile of [128, 128, 128] takes 131072"


@pytest.mark.spec("004-142")
@pytest.mark.parametrize(
    ("tile", "warp", "advice"),
    [
        ([128, 64, 64], "128x64", "64x64"),
        ([32, 256, 64], "32x256", "16x256"),
        ([16, 512, 32], "16x512", "16x256"),
    ],
)
def test_too_many_registers(tile: list[int], warp: str, advice: str) -> None:
    plan = {**changed("tile", tile), "warp_tile": warp}
    error = refused(plan, "RegistersExceeded")
    assert error.code == "E1502" and error.details["limit"] == 255 < error.details["registers"]
    assert error.suggestion.endswith(f" {advice}")
    check({**plan, "warp_tile": advice})


def test_a_block_shares_the_registers_of_a_multiprocessor() -> None:
    """1024 threads of 104 registers: there are 64 for each."""
    error = refused({**changed("tile", [256, 256, 32]), "warp_tile": "64x32"}, "RegistersExceeded")
    assert error.details == {"registers": 104, "limit": 64} and "smaller tile" in error.suggestion


@pytest.mark.spec("I-38", "004-110")
@pytest.mark.parametrize(
    ("dtype", "width", "fits"),
    [(DType.FP16, 8, True), (DType.BF16, 8, True), (DType.FP16, 16, False), (DType.FP32, 4, True), (DType.FP32, 8, False),
     (DType.I32, 8, False), (DType.FP16, 32, False), (DType.FP16, 1, True)],
    ids=str,
)  # fmt: skip
def test_one_access_has_at_most_16_bytes(dtype: DType, width: int, fits: bool) -> None:
    plan, region = changed("vectorize/width", width), gemm_region(dtype=dtype)
    if fits:
        assert check(plan, region).vector_bytes == width * dtype.itemsize
        return
    error = refused(plan, "VectorTooWide", region)
    assert error.code == "E1503" and error.details == {"bytes": width * dtype.itemsize, "limit": 16}
    assert error.suggestion.startswith(f"give {16 // dtype.itemsize}")
    assert (f"{-(-width * dtype.itemsize // 16)} accesses") in error.why
    assert ("one byte" in error.suggestion) == (width == 16)


def test_too_many_threads() -> None:
    error = refused({**changed("tile", [256, 256, 32]), "warp_tile": "16x32"}, "TooManyThreads")
    assert error.code == "E1504" and error.details == {"threads": 128 * 32, "limit": 1024}
    check({**changed("tile", [256, 128, 32]), "warp_tile": "64x32"})


def test_too_many_blocks() -> None:
    error = refused(
        {**REFERENCE, "tile": [16, 64, 64], "warp_tile": "16x64"}, region=gemm_region(16 * 65_536)
    )
    assert error.at["value"] == "plan.bind" and "65536 blocks along y" in error.why


# ---- alignment and layouts ------------------------------------------------------------------------------------------


@pytest.mark.spec("004-142")
def test_vectors_must_be_aligned() -> None:
    error = refused(REFERENCE, region=gemm_region(n=132))
    assert error.at["value"] == "plan.vectorize.width"
    assert "264 bytes apart" in error.why and error.suggestion == "give 4"
    check(changed("vectorize/width", 4), gemm_region(n=132))
    error = refused(REFERENCE, region=gemm_region(alignment=4))
    assert "aligned to 4 bytes" in error.why and error.suggestion == "give 2"
    check(changed("vectorize/width", 2), gemm_region(alignment=4))


@pytest.mark.spec("004-094", "004-114", "004-142")
def test_layout_hints_agree_with_the_layouts() -> None:
    by_column = gemm_region(layouts=("row_major", "col_major", "col_major"))
    error = refused(changed("vectorize/axis", "m.i.i"), region=by_column)
    assert error.at["value"] == "plan.layout_hints.C_stride" and error.suggestion.startswith('give "col"')
    plan = {**REFERENCE, "layout_hints": {**REFERENCE["layout_hints"], "C_stride": "col"}}
    check(plan, by_column)
    assert refused(plan).suggestion.startswith('give "row"')


@pytest.mark.spec("004-094", "004-142")
def test_a_tile_is_not_swizzled_twice() -> None:
    region = gemm_region()
    swizzled = Layout("swizzled", (("swizzle", "xor32"), ("vec_bytes", 16)))
    region = replace(region, inputs=(replace(region.inputs[0], layout=swizzled), *region.inputs[1:]))
    error = refused(REFERENCE, region=region)
    assert error.at["value"] == "plan.layout_hints.A_swizzle" and "already" in error.why
    check(changed("layout_hints/A_swizzle", False), region)


@pytest.mark.spec("004-094")
def test_transposed_operands_are_turned_two_bytes_at_a_time() -> None:
    """A read as A[k, m]: ldmatrix.trans turns fp16; nothing turns fp32."""
    check(REFERENCE, gemm_region(at=True))
    narrow = changed("vectorize/width", 4)
    region = gemm_region(dtype=DType.FP32, at=True)
    error = refused(narrow, region=region)
    assert error.at["value"] == "plan.layout_hints.A_swizzle" and "two bytes" in error.why
    check({**narrow, "layout_hints": {"A_swizzle": False, "B_swizzle": True}}, region)
    refused(narrow, region=gemm_region(dtype=DType.FP32, layouts=("col_major", "col_major", "row_major")))


def test_a_row_of_a_swizzled_tile_has_a_power_of_two_chunks() -> None:
    error = refused(changed("tile", [128, 64, 48]))
    assert "96 bytes" in error.why
    check({**changed("tile", [128, 64, 48]), "layout_hints": {"C_stride": "row"}})


# ---- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "place", "says"),
    [
        ("cache/0/tensor", "Bias", "plan.cache[0].tensor", "'bias' may be meant"),
        ("cache/0/tensor", "C", "plan.cache[0].tensor", "reads no"),
        ("cache/1/tensor", "A", "plan.cache[1].tensor", "already"),
        ("cache/0/at", "q.i", "plan.cache[0].at", "no axis"),
        ("bind", {"x.o": "block.x"}, "plan.bind['x.o']", "no axis 'x'"),
        ("bind", {"m.o": "warp.x"}, "plan.bind['m.o']", "cannot be bound"),
        ("bind", {"m.i.o": "block.x"}, "plan.bind['m.i.o']", "cannot be bound"),
        ("bind", {"m.i.i": "warp.x"}, "plan.bind['m.i.i']", "cannot be bound"),
        ("bind", {"k.o": "block.x"}, "plan.bind['k.o']", "summed"),
        ("vectorize/axis", "z.i", "plan.vectorize.axis", "its axes are"),
        ("predicate_tail/0", "o.i", "plan.predicate_tail[0]", "no axis"),
        ("epilogue/1", "gelu", "plan.epilogue[1]", "no let, operation or buffer 'gelu'"),
        ("epilogue/1", "c3", "plan.epilogue[1]", "'c' may be meant"),
        ("epilogue", ["relu", "bias"], "plan.epilogue[1]", "comes before"),
        ("epilogue/0", "product", "plan.epilogue[0]", "not computed from the sum"),
        ("epilogue/0", "A", "plan.epilogue[0]", "no let, operation or buffer"),
        ("local_edges/0/from", "sum_n", "plan.local_edges[0].from", "no let"),
        ("local_edges/0/to", "acc", "plan.local_edges[0]", "not computed from"),
        ("arch", "sm90", "plan.arch", "is for sm90"),
        ("barrier_model", "mbarrier", "plan.barrier_model", "does not wait"),
        ("warp_tile", "48x64", "plan.warp_tile", "does not divide"),
        ("warp_tile", "8x64", "plan.warp_tile", "instructions"),
        ("warp_tile", "64x4", "plan.warp_tile", "instructions"),
        ("async/prefetch_depth", 3, "plan.async.prefetch_depth", "a ring of 2"),
        ("algo_choice", {"attention": "online_softmax"}, "plan.algo_choice.attention", "no softmax"),
    ],
)  # fmt: skip
def test_what_does_not_fit(path: str, value: Any, place: str, says: str) -> None:
    error = refused(changed(path, value))
    assert error.code == "E1506" and error.at["value"] == place
    assert says in f"{error.why}; {error.suggestion}"


@pytest.mark.parametrize(
    ("path", "value"),
    [("epilogue", ["c1", "c2"]), ("epilogue", ["add", "relu", "cast"]), ("epilogue", []), ("epilogue", ["relu"]),
     ("local_edges/0", {"from": "acc", "to": "c2", "buffer": "reg"}),
     ("local_edges/0", {"from": "A", "to": "sum_k", "buffer": "smem_ring", "depth": 2}),
     ("predicate_tail", []), ("bind", {"m.o": "block.y", "n.o": "block.x", "m.i.i": "lane"}),
     ("algo_choice", {"conv": "winograd_3x3"})],
)  # fmt: skip
def test_what_fits_as_well(path: str, value: Any) -> None:
    check(changed(path, value))


def test_split_k_may_bind_what_is_summed() -> None:
    plan = changed("bind/k.o", "block.z")
    refused(plan)
    assert check({**plan, "algo_choice": {"matmul": "splitk_4"}}).grid[2] == 4


def test_a_ring_is_as_deep_as_there_are_stages() -> None:
    edge = {"from": "A", "to": "sum_k", "buffer": "smem_ring", "depth": 3}
    assert "2 stages" in refused(changed("local_edges/0", edge)).why
    check({**changed("local_edges/0", edge), "stages": 3})


@pytest.mark.spec("004-111")
@pytest.mark.parametrize(
    ("sizes", "axis"), [((500, 512, 256), "m"), ((512, 536, 256), "n"), ((512, 512, 200), "k")]
)
def test_what_hangs_over_must_be_cut_off(sizes: tuple[int, int, int], axis: str) -> None:
    region = gemm_region(*sizes)
    check(REFERENCE, region)
    error = refused(changed("predicate_tail", []), region=region)
    assert error.at["value"] == "plan.predicate_tail" and f'"{axis}.i.i"' in error.suggestion
    check(changed("predicate_tail", [f"{axis}.i.i"]), region)
    check(changed("predicate_tail", [axis]), region)


def test_roles_are_those_of_the_region() -> None:
    region = gemm_region()
    roles = {"reduce": "acc", "lhs": "a32", "rhs": "b32", "batch": [], "m": ["m"], "n": ["n"], "k": ["k"]}
    assert check({**REFERENCE, "contraction": roles}, region) == check(REFERENCE, region)
    wrong = {
        "reduce": ("sum", "no let 'sum'"),
        "lhs": ("b32", "does not sum b32 * b32"),
        "m": (["n"], "two roles"),
        "n": (["z"], "not an axis of the result"),
        "k": ([], "sums k as well"),
        "batch": (["k"], "not an axis of the result"),
    }
    for key, (value, says) in wrong.items():
        error = refused({**REFERENCE, "contraction": {**roles, key: value}}, region=region)
        assert error.at["value"].startswith("plan.contraction.") and says in error.why
    swapped = {**roles, "lhs": "b32", "rhs": "a32"}
    assert "depends on n as well" in refused({**REFERENCE, "contraction": swapped}, region=region).why


def test_a_contraction_needs_a_sum_of_products() -> None:
    region = gemm_region()
    plain = replace(region, lets=region.lets[6:8], yields=(replace(region.yields[0], value="more32"),))
    assert "exactly one sum of products" in refused({"tile": [8, 8, 8]}, region=plain).why


# ---- the CPU --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["stages", "bind", "warp_tile", "cache", "layout_hints", "async", "barrier_model"]
)
def test_the_cpu_has_no(key: str) -> None:
    plan = {"tile": [64, 64, 64], "arch": "cpu", key: REFERENCE[key]}
    assert refused(plan, limits=CPU).at["value"] == f"plan.{key}"


def test_the_cpu_refuses_what_it_cannot_do() -> None:
    tile = {"tile": [64, 64, 64]}
    assert "is for sm80" in refused(REFERENCE, limits=CPU).why
    assert check({**tile, "vectorize": {"axis": "n.i.i", "width": 16}}, limits=CPU).vector_bytes == 64
    error = refused({**tile, "vectorize": {"axis": "n.i.i", "width": 32}}, "VectorTooWide", limits=CPU)
    assert error.details == {"bytes": 128, "limit": 64}
    assert "lie along n" in refused({**tile, "vectorize": {"axis": "m.i.i", "width": 8}}, limits=CPU).why
    assert "no splitk_2" in refused({**tile, "algo_choice": {"matmul": "splitk_2"}}, limits=CPU).why
    huge = gemm_region(20_000, 20_000, 64)
    error = refused({"tile": [20_000, 20_000, 64]}, "SharedMemoryExceeded", huge, CPU)
    assert error.details["bytes"] > error.details["limit"] == 1 << 30
    assert check({"tile": [10**9, 64, 10**9]}, huge, CPU).scratch_bytes == 4 * (
        20_004 * 64 + 20_004 * 64 + 64 * 64
    )


def test_plans_made_in_python_are_checked_too() -> None:
    refused(Plan("contraction", tile=(64, 0, 64)), "PlanInvalid", limits=CPU)
    refused(Plan(vectorize=Vectorize("n", 3)), "PlanInvalid", limits=CPU)
    refused(Plan("loops", tile=(4, 64, 1)), limits=CPU)


@pytest.mark.parametrize("arch", MACHINES)
def test_an_empty_plan_fits_everything(arch: str) -> None:
    for plan in (Plan(), Plan(arch=arch), Plan("contraction")):
        check_plan(plan, gemm_region(), MACHINES[arch])
