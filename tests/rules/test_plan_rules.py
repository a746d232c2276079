"""Plan candidates come from rules and facts: that none is illegal, how many there are, what one line in a file does."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from candidate_programs import contractions, found, found_for_gemm, gemm, saturated
from rule_text import FOLDER, parse

import tinyc
from tinyc.bench.programs import transformer
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract.cost.hardware import TABLE
from tinyc.extract.plans.candidate import Candidate, candidates_of
from tinyc.extract.plans.candidate_check import candidate_fault
from tinyc.ir.resources import LIMITS, Limits
from tinyc.ir.units import UNITS, unit_name

TARGETS = tuple(TABLE)
GPUS = ("sm80", "sm90")


def facts(relation: str) -> list[tuple[str, ...]]:
    """The facts of a relation in rules/hardware.egg."""
    forms = parse((FOLDER / "hardware.egg").read_text(encoding="utf-8"))
    return [
        tuple(str(each).strip('"') for each in form[1:])
        for form in forms
        if isinstance(form, list) and form[0] == relation
    ]


# ---- legal, and few -------------------------------------------------------------------------------------------------


@pytest.mark.spec("004-128", "004-134", "I-46")
@pytest.mark.parametrize("target", TARGETS)
def test_no_candidate_is_illegal_and_there_are_few(target: str) -> None:
    """Held against check_plan and the STOP conditions, worked out without the rules."""
    kinds: Counter[object] = Counter()
    for seed in range(2):
        for problem, candidates in found(contractions(seed, 9), target).items():
            assert len(candidates) <= 20, problem
            kinds[problem[0] if problem[0] != "Product" else problem[1]] += 1
            for candidate in candidates:
                assert candidate_fault(problem, candidate, LIMITS[target]) is None, (problem, candidate)
            if problem[0] == "Product" and min(problem[3:5]) >= 128:  # type: ignore[type-var]
                assert len(candidates) >= 10, problem
    assert kinds["Row"] and (
        kinds["Packed"] > 3 if target == "cpu" else kinds["matmul"] > 6 and kinds["conv"]
    )


@pytest.mark.parametrize("target", GPUS)
def test_a_small_product_is_cut_into_blocks_for_half_of_the_machine(target: str) -> None:
    """As far as tiles of 32 points a side, 64 rows with wgmma, allow; a block has at least four warps where the machine is not full."""
    sms = LIMITS[target].multiprocessors
    for m, n, k in ((256, 256, 256), (512, 384, 128), (64, 64, 512), (200, 64, 200), (1024, 1024, 64)):
        every = products(LIMITS[target], (m, n, k))
        blocks = {
            (each.tile[0], each.tile[1]): -(-m // each.tile[0]) * -(-n // each.tile[1]) for each in every
        }
        rows = UNITS[target].rows
        assert 2 * max(blocks.values()) > sms or (max(32, rows), 32) in blocks
        for (bm, bn), count in blocks.items():
            if 2 * count <= sms and bm * bn <= 64 * 64 and bm > max(32, rows):
                assert (bm // 2, bn) in blocks or bn > bm, (bm, bn)
        for each in every:
            (bm, bn, _), (wm, wn) = each.tile, each.warp_tile or (1, 1)
            warps = UNITS[target].warps * (bm // wm) * (bn // wn)
            assert warps >= 4 or wm * wn <= 256 or (warps == 2 and bm * bn > 64 * 64), each


@pytest.mark.parametrize(
    ("sizes", "before"),
    [((256, 256, 256), 11.88), ((512, 512, 512), 19.68), ((1024, 1024, 1024), 35.26), ((64, 64, 64), 5.52)],
)
def test_small_products_are_estimated_far_below_those_of_large_tiles(
    sizes: tuple[int, int, int], before: float
) -> None:
    """``before``: microseconds, estimated with tiles of 64 x 64 points and more, and one or two warps to a block."""
    report = tinyc.optimize_and_compile(gemm(*sizes, "fp16"), "sm80").report
    assert sum(each.time_s for each in report.kernels) * 1e6 < 0.65 * before


@pytest.mark.slow
@pytest.mark.spec("004-134")
@pytest.mark.parametrize("target", TARGETS)
def test_no_candidate_is_illegal_at_length(target: str) -> None:
    for seed in range(100, 140):
        for problem, candidates in found(contractions(seed, 14), target).items():
            assert len(candidates) <= 20, problem
            for candidate in candidates:
                assert candidate_fault(problem, candidate, LIMITS[target]) is None, (problem, candidate)


def test_the_check_refuses_what_the_rules_leave_out() -> None:
    """What holds the rules can fail: a candidate changed in one place is illegal."""
    (problem, candidates) = next(
        item for item in found(gemm(4096, 4096, 4096), "sm80").items() if item[0][0] == "Product"
    )
    good = next(each for each in candidates if each.tile == (128, 64, 64) and each.stages == 2)
    assert candidate_fault(problem, good, LIMITS["sm80"]) is None
    wrong = {
        "80 %": replace(good, tile=(128, 64, 128), stages=3),
        "room for one block": replace(good, tile=(256, 128, 32), warp_tile=(64, 64)),
        "an access of 16": replace(good, width=16),
        "accesses of 8": replace(good, width=4),
        "8x64 of a warp is no whole number of instructions": replace(good, warp_tile=(8, 64)),
        "no rings of 4": replace(good, stages=4),
        "does not divide": replace(good, warp_tile=(96, 64)),
        "sm90, the machine is sm80": replace(good, arch="sm90"),
        "no way to compute": replace(good, algo="loops"),
        "no whole number of steps": replace(good, tile=(128, 64, 24)),
    }
    for why, candidate in wrong.items():
        assert why in str(candidate_fault(problem, candidate, LIMITS["sm80"])), why
    small = ("Product", "matmul", 1, 32, 64, 64, 2, 2, 64, "n")
    assert "half of 128" in str(candidate_fault(small, good, LIMITS["sm80"]))
    assert "hangs over" in str(
        candidate_fault(
            ("Packed", 1, 40, 40, 40),
            Candidate("cpu", (60, 48, 40), None, None, 8, "packed", False),
            LIMITS["cpu"],
        )
    )


@pytest.mark.spec("004-133", "I-46")
def test_the_raw_space() -> None:
    """3 to 4 tiles, 2 or 3 stages, a warp's part for each kind, widths of 4, 8 and 16, copies overlapped or not."""
    tiles = [fact for fact in facts("tile-shape") if fact[0] == "sm80"]
    rings = [fact for fact in facts("ring-depth") if fact[0] == "sm80"]
    warps = {fact[2:] for fact in facts("warp-shape") if fact[0] == "sm80"}
    widths = {fact[0] for fact in facts("vector-width")} & {"4", "8", "16"}
    assert warps == {("64", "64"), ("64", "32")} and {fact[1] for fact in rings} == {"2", "3"}
    assert 72 <= len(tiles) * len(rings) * len(warps) * len(widths) * 2 <= 96
    (candidates,) = (
        each for problem, each in found(gemm(4096, 4096, 4096), "sm80").items() if problem[0] == "Product"
    )
    assert 10 <= len(candidates) <= 20
    assert {each.stages for each in candidates} == {2, 3} and {each.async_enable for each in candidates} == {
        True,
        False,
    }
    assert {each.width for each in candidates} == {8}, "16 bytes; a narrower access stops"


# ---- each STOP condition is a guard ---------------------------------------------------------------------------------


def products(
    machine: Limits, sizes: tuple[int, int, int] = (4096, 4096, 4096), dtype: str = "fp16"
) -> tuple[Candidate, ...]:
    every = found_for_gemm(sizes, dtype, machine)
    return next((each for problem, each in every.items() if problem[0] == "Product"), ())


@pytest.mark.spec("004-134")
def test_a_machine_with_less_has_fewer_candidates() -> None:
    whole = set(products(LIMITS["sm80"]))
    for less in (
        replace(LIMITS["sm80"], smem_bytes=80 << 10),
        replace(LIMITS["sm80"], threads=32),
        replace(LIMITS["sm80"], registers=150),
        replace(LIMITS["sm80"], registers_per_sm=16384),
    ):
        left = set(products(less))
        assert left < whole and (less.registers == 150) is not bool(left), less
    assert max(each.stages or 0 for each in products(replace(LIMITS["sm80"], smem_bytes=59 << 10))) == 2
    # two blocks of 64 threads with 176 registers each fit in 22528 registers, not in 22527
    fits = {each.tile for each in products(replace(LIMITS["sm80"], registers_per_sm=22528))}
    assert (128, 64, 64) in fits
    assert (128, 64, 64) not in {
        each.tile for each in products(replace(LIMITS["sm80"], registers_per_sm=22527))
    }


@pytest.mark.spec("004-134")
@pytest.mark.parametrize(
    ("n", "dtype", "width"),
    [
        (4096, "fp16", 8),
        (100, "fp16", 4),
        (1002, "bf16", 2),
        (129, "fp16", 1),
        (4096, "fp32", 4),
        (66, "fp32", 2),
        (8, "i32", 4),
    ],
)
def test_vectors_are_as_wide_as_the_rows_allow(n: int, dtype: str, width: int) -> None:
    target = GPUS[n % 2]
    assert {each.width for each in products(LIMITS[target], (256, n, 64), dtype)} == {width}


@pytest.mark.spec("004-134", "I-46")
def test_tiles_of_sm90_are_what_wgmma_and_tma_take() -> None:
    for sizes in ((4096, 4096, 4096), (40, 24, 100), (70, 1000, 72), (3, 3, 3)):
        for each in products(LIMITS["sm90"], sizes):
            (bm, bn, bk), (wm, wn) = each.tile, each.warp_tile or (0, 0)
            assert (
                bm % 64 == 0
                and bn % 8 == 0
                and bk * 2 % 32 == 0
                and wm % 64 == 0
                and wn % 8 == 0
                and wn <= 256
            )
    assert {each.stages for each in products(LIMITS["sm90"])} == {2, 3, 4}


# ---- one line -------------------------------------------------------------------------------------------------------


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.egg"
    path.write_text(text + "\n")
    return path


@pytest.mark.spec("004-133")
def test_a_tile_shape_is_one_line_of_a_users_file(tmp_path: Path) -> None:
    """It makes candidates, and the cost model takes one of them where it is better: fewer columns beyond a narrow product."""
    mine = written(tmp_path, '(tile-shape "sm80" 256 64 32)')
    program = gemm(65536, 96, 1024)
    before, after = (
        {each.tile for candidates in found(program, "sm80", rules).values() for each in candidates}
        for rules in ((), (mine,))
    )
    assert after - before == {(256, 64, 32)}
    assert [chosen(program, rules) for rules in ((), (mine,))] == [(128, 128, 32), (256, 64, 32)]


def chosen(program: tinyc.Program, rules: tuple[Path, ...], target: str = "sm80") -> tuple[int, ...]:
    (plan,) = json.loads(tinyc.optimize_and_compile(program, target, rules=rules).dump("plan"))["plan"]
    return tuple(plan["tile"])


def test_nonsense_in_a_users_file_makes_no_candidate(tmp_path: Path) -> None:
    lines = """
        (tile-shape "sm80" 0 64 64) (tile-shape "sm80" -128 64 64) (tile-shape "sm80" 100 64 64) (tile-shape "sm80" 64 60 64)
        (tile-shape "sm80" 64 64 7) (tile-shape "sm80" 4096 4096 4096) (tile-shape "sm80" 9223372036854775807 64 64)
        (tile-shape "cpu" 0 64 64) (tile-shape "cpu" -1 64 64) (ring-depth "sm80" 0) (ring-depth "sm80" 1) (ring-depth "sm80" 4)
        (ring-depth "sm90" 9) (warp-shape "sm80" "matmul" 0 64) (warp-shape "sm80" "matmul" 8 8) (vector-width 3)
        (vector-width 0) (block-threads "sm80" 0) (block-threads "sm80" 4096) (block-threads "sm80" -32) (row-block "cpu" 0)"""
    mine = written(tmp_path, lines)
    for target in TARGETS:
        plain, more = (found(gemm(4096, 4096, 4096), target, rules) for rules in ((), (mine,)))
        assert {problem: more[problem] for problem in plain} == plain, target


def test_shapes_that_are_no_powers_of_two_are_candidates_too(tmp_path: Path) -> None:
    mine = written(
        tmp_path, '(tile-shape "sm80" 96 48 32) (tile-shape "sm90" 192 96 64) (ring-depth "sm90" 8)'
    )
    for target, tile in (("sm80", (96, 48, 32)), ("sm90", (192, 96, 64))):
        every = found(gemm(4096, 4096, 4096), target, (mine,))
        made = [
            (problem, each)
            for problem, candidates in every.items()
            for each in candidates
            if each.tile == tile
        ]
        assert made
        assert all(candidate_fault(problem, each, LIMITS[target]) is None for problem, each in made)


# ---- the e-graph stays small ----------------------------------------------------------------------------------------


@pytest.mark.spec("004-128")
def test_equal_layers_share_their_candidates() -> None:
    counts = []
    for blocks in (1, 3):
        function, shapes = transformer(blocks, 32, 64)
        program = tinyc.trace(function, **{name: tinyc.spec("fp32", shape) for name, shape in shapes.items()})
        counts.append({problem: len(each) for problem, each in found(program, "sm80").items()})
    assert counts[0] == counts[1]


def test_without_a_machine_nothing_is_added() -> None:
    program = gemm(256, 192, 128)
    bare, planned = (saturate(program, load_rules(), machine=machine) for machine in (None, LIMITS["sm80"]))
    assert bare.graph is not None and not bare.graph.candidates
    sizes = [
        {name: count for name, count in each.phases[-1].sizes.items() if name[:1].isupper()}
        for each in (bare, planned)
    ]
    assert sum(sizes[0].values()) < sum(sizes[1].values()) < sum(sizes[0].values()) + 10
    assert planned.graph is not None and replace(planned.graph, candidates={}) == bare.graph


def test_the_same_again() -> None:
    program = contractions(5, 6)
    first, again = (saturated(program, LIMITS["sm90"]) for _ in range(2))
    assert first == again
    assert candidates_of(first, "sm90") == candidates_of(again, "sm90")


def test_without_the_rules_there_are_no_candidates() -> None:
    program = gemm(256, 192, 128)
    assert not saturated(program, LIMITS["sm80"], without=("plan",)).candidates
    assert not saturated(program, LIMITS["sm80"], without=("problem",)).candidates


# ---- what multiplies ------------------------------------------------------------------------------------------------


def test_units_are_the_same_in_facts_and_in_python() -> None:
    told = {row[0]: tuple(map(int, row[1:])) for row in facts("compute-unit")}
    assert told == {name: tuple(vars(unit).values())[1:] for name, unit in UNITS.items()}
    ranks = {int(size): int(rank) for size, rank in facts("operand-rank")}
    units = {(arch, int(rank)): unit for arch, rank, unit in facts("unit-of")}
    for arch, left, right in itertools.product(GPUS, ranks, ranks):
        assert unit_name(arch, left, right) == units[arch, max(ranks[left], ranks[right])]


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize(
    ("dtype", "lanes"), [("fp16", False), ("bf16", False), ("fp32", True), ("i32", True), ("bool", True)]
)
def test_lanes_multiply_what_matrix_units_do_not_take(dtype: str, lanes: bool, target: str) -> None:
    """Their warps' parts are smaller, each lane has some rows and columns of them, and no precision is lost to tf32."""
    unit = UNITS[f"{target}-simt" if lanes else target]
    every = products(LIMITS[target], (4096, 4096, 4096), dtype)
    assert len(every) >= 10
    tiles, parts = (
        {tuple(map(int, row[-count:])) for row in facts(table) if row[0] == unit.name}
        for table, count in (("tile-shape", 3), ("warp-shape", 2))
    )
    for candidate in every:
        rows, columns = candidate.warp_tile or (0, 0)
        assert candidate.tile in tiles
        assert any(rows in (m, candidate.tile[0]) and columns in (n, candidate.tile[1]) for m, n in parts)
    smaller = products(LIMITS[target], (512, 512, 512), dtype)
    report = tinyc.optimize_and_compile(gemm(512, 512, 512, dtype), target=target).report
    (kernel,) = report.kernels[:1]
    assert kernel.plan.warp_tile in {each.warp_tile for each in smaller}
    assert kernel.time_s < report.naive.time_s / 2


def test_a_tile_of_lanes_is_one_line_too(tmp_path: Path) -> None:
    mine = written(tmp_path, '(tile-shape "sm80-simt" 128 128 16)')
    program = gemm(4096, 4096, 4096, "fp32")
    before, after = (
        {each.tile for candidates in found(program, "sm80", rules).values() for each in candidates}
        for rules in ((), (mine,))
    )
    assert after - before == {(128, 128, 16)}
