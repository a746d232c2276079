"""GPU IR of products whose rows are reduced in the same kernel: what its checker refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from contractions import planned
from cuda_regions import launched, outputs_of
from golden import Golden
from region_builder import F16
from row_products import less_the_sum
from test_gpu_ir import SCHEMA, accepted_mutants, dumped, edited, positions, refused

from tinyc.codegen.cuda.kernel import contraction
from tinyc.codegen.emulator import DELIVERIES
from tinyc.codegen.gpu import (
    GpuKernel,
    TiledProduct,
    check_gpu_ir,
    contraction_kernel,
    gpu_ir_from_json,
    gpu_ir_to_json,
)
from tinyc.codegen.gpu.ir import (
    Barrier,
    KeepRows,
    Loop,
    ReduceRows,
    Statement,
    StGlobalVec,
    Tile,
    Token,
    Walk,
)
from tinyc.codegen.playback import evaluate_region
from tinyc.ir.region import Region
from tinyc.ir.schedule import Async


def made(overlap: bool, columns: int = 80, steps: int = 2) -> tuple[Region, TiledProduct]:
    """Tiles of 32 columns, three of them where there are 80; two steps of two tiles along k."""
    region, roles = less_the_sum(30, columns, 40, F16)
    plan = planned(roles, (32, 32, 16 * steps), (16, 16), 2, ahead=Async(True, 2, overlap))
    product = contraction_kernel(region, plan)
    assert product is not None
    return region, product


KERNELS = {"apart": made(True), "shared": made(False), "plain": made(True, steps=1)}
"""The epilogue's memory is apart from the rings, or theirs; one buffer of fragments, so that others may be read when the last is multiplied."""
APART, SHARED, PLAIN = (product.kernel for _, product in KERNELS.values())
PLAIN_SHARED = made(False, steps=1)[1].kernel


def at(kernel: GpuKernel, kind: type[Statement], number: int = 0) -> tuple[int, ...]:
    return [path for path, each in positions(kernel) if isinstance(each, kind)][number]


def changed(kernel: GpuKernel, kind: type[Statement], number: int = 0, **to: object) -> GpuKernel:
    path = at(kernel, kind, number)
    return edited(kernel, path, replace(dict(positions(kernel))[path], **to))  # type: ignore[arg-type]


def left_out(kernel: GpuKernel, kind: type[Statement], number: int = 0) -> GpuKernel:
    return edited(kernel, at(kernel, kind, number))


def test_what_is_made_is_accepted_and_written_as_it_is() -> None:
    for _, product in KERNELS.values():
        check_gpu_ir(product.kernel)
        document = json.loads(json.dumps(gpu_ir_to_json(product.kernel), allow_nan=False))
        SCHEMA.validate(dumped(document))
        assert gpu_ir_from_json(document) == product.kernel
    walk, barrier, reduce, store = APART.stmts
    assert isinstance(walk, Walk) and walk.count == 3 and isinstance(barrier, Barrier)
    assert isinstance(reduce, ReduceRows) and isinstance(store, StGlobalVec)
    assert gpu_ir_to_json(APART)["gpu_ir"]["stmts"][2]["ReduceRows"]["in_token"] == "kept[2]"


def test_a_row_of_many_tiles_is_checked_at_its_ends() -> None:
    _, product = made(True, columns=320_000, steps=1)
    check_gpu_ir(product.kernel)
    refused(
        left_out(product.kernel, Barrier),
        r"turn 1, \d+: what the turn before left of a may still be read",
    )
    refused(
        changed(product.kernel, ReduceRows, in_token=Token("kept", Tile(9_998))),
        r"kept\[9998\] is used before",
    )


LAST = max(path for path, each in positions(PLAIN_SHARED) if isinstance(each, Barrier) and len(path) == 2)
FAULTS: dict[str, tuple[GpuKernel, str]] = {
    "no barrier between two tiles of n": (left_out(PLAIN, Barrier), "turn 1, .*: what the turn before left of a may still be read"),
    "copies into what the epilogue still uses": (left_out(SHARED, Barrier), "turn 1, .*: tile 0 of a is written where the epilogue's memory is"),
    "the epilogue over tiles that are read": (edited(PLAIN_SHARED, LAST), "a may still be read where its memory is used again"),
    "no barrier before rows are reduced": (edited(APART, (1,)), "rows are reduced without a barrier since they were kept"),
    "a tile of n too few": (changed(APART, Walk, count=2), "2 tiles of n are walked"),
    "a tile of n too many": (changed(APART, Walk, count=4), "4 tiles of n are walked"),
    "a tile that is not kept": (left_out(APART, KeepRows), "tile 0 of n is not kept"),
    "a tile that is kept as another": (changed(APART, KeepRows, out_token=Token("kept", Tile(1, "n"))), r"kept\[1\] is produced for tile 0"),
    "rows kept before the epilogue": (changed(APART, KeepRows, in_token=Token("mma", Tile(1))), r"mma\[1\] is not what the epilogue gives"),
    "rows of another name": (changed(APART, KeepRows, dst="a"), "there are no rows a"),
    "rows kept wider than a warp has columns": (changed(APART, KeepRows, width=32), "16 columns are no multiple of 32"),
    "rows reduced before the last tile": (changed(APART, ReduceRows, in_token=Token("kept", Tile(1))), r"kept\[1\] is not what the last tile of n gives"),
    "rows reduced in the walk": (edited(APART, (0, 0), APART.stmts[2]), "rows are reduced before all of their tiles are kept"),
    "rows never reduced": (left_out(APART, ReduceRows), r"reduced\[0\] is used before it is produced"),
    "a team that is no part of a warp": (changed(APART, ReduceRows, team=24), "24 threads are no part of a warp"),
    "results that are not reduced": (changed(APART, StGlobalVec, in_token=Token("kept", Tile(2))), r"kept\[2\] is not what the reduction gives"),
    "products of a tile too few": (changed(APART, Loop, count=1), "2 of 4 steps are multiplied"),
    "two walks": (edited(APART, (1,), APART.stmts[0]), "there is one walk over n"),
    "a walk that keeps nothing": (replace(APART, kept=None, grid=(3, 1, 1)), "3 tiles of n are walked, a block has 3"),
    "rows that are too short": (replace(APART, kept=replace(APART.kept, columns=79)), "32 rows of 79 are kept, a block has 32 of 80"),
    "rows that overlap": (replace(APART, kept=replace(APART.kept, pitch=144)), "144 bytes from row to row hold no 80"),
}  # fmt: skip


@pytest.mark.spec("004-124")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault: str) -> None:
    refused(*FAULTS[fault])


@pytest.mark.spec("004-124")
@pytest.mark.parametrize("kind", KERNELS)
def test_a_change_of_one_statement_is_refused_or_harmless(kind: str, golden: Golden) -> None:
    """The golden file lists those that are not refused: their kernels are run, and right; those with a statement once more, and
    those of two of the kernels, in the slow test."""
    accepted = accepted_mutants(KERNELS[kind][1].kernel)
    golden("\n".join(accepted))
    if kind == "plain":
        run_them(kind, [kernel for name, kernel in accepted.items() if "doubled" not in name])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KERNELS)
def test_what_is_not_refused_is_right(kind: str) -> None:
    run_them(kind, list(accepted_mutants(KERNELS[kind][1].kernel).values()))


def run_them(kind: str, kernels: Sequence[GpuKernel]) -> None:
    region, product = KERNELS[kind]
    rng = np.random.default_rng(0)
    given = {ref.name: rng.integers(-2, 3, ref.shape).astype(ref.dtype.numpy) for ref in region.inputs}
    want = evaluate_region(region, given)
    texts = (contraction(region, replace(product, kernel=each)) for each in kernels)
    for number, each in enumerate({each.source: each for each in texts}.values()):
        result = launched(each, region, given, DELIVERIES[number % len(DELIVERIES)])
        assert not result.findings, result.findings[0]
        for name, value in outputs_of(region, result).items():
            np.testing.assert_array_equal(value, want[name])
