"""The cost model's formulas: by hand, against a plain re-implementation, against sympy."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from dataclasses import fields, replace

import pytest

from tinyc import TinycError
from tinyc.extract.cost.expressions import names_in
from tinyc.extract.cost.formulas import BY_NAME, FORMULAS, MACHINE, SCHEDULE, TERMS, WORK, expression, needed
from tinyc.extract.cost.fusion import fusion_terms
from tinyc.extract.cost.hardware import TABLE, VARIANTS, Hardware, hardware
from tinyc.extract.cost.model import MATRIX, Roofline, Work, contracted, terms_of
from tinyc.extract.cost.schedule import Schedule
from tinyc.ir.dtypes import DType

A100, H100, CPU = Roofline(hardware("sm80")), Roofline(hardware("sm90")), Roofline(hardware("cpu"))
AMOUNTS = tuple(WORK)

REFERENCE = Schedule(
    "implicit_gemm",
    blocks=32 * 64,
    threads=64,
    registers=176,
    smem_bytes=49152,
    stages=2,
    steps=64,
    vector_bytes=16,
    async_copy=True,
    epilogue_overlap=True,
    tile=(128, 64, 64),
    warp_tile=(64, 64),
)
"""The document's plan (004-119) for 4096 x 4096 x 4096 in fp16: 2 warps, 49,152 bytes; 128 accumulators, 32 registers
of fragments and 16 for addresses in each thread."""


def gemm(schedule: Schedule | None, n: int = 4096) -> Work:
    return Work(
        flops=2.0 * n**3, bytes_read=4.0 * n * n, bytes_written=2.0 * n * n, values=4, schedule=schedule
    )


def random_work(random: random.Random) -> Work:
    amounts = {name: random.choice((0.0, 10 ** random.uniform(0, 12))) for name in AMOUNTS}
    amounts["epilogue_ops"] = amounts["ops"] * random.random()
    schedule = Schedule(
        blocks=random.choice((1, 7, 108, 109, 264, random.randint(1, 10**6))),
        threads=32 * random.randint(1, 32),
        registers=random.choice((0, 32, 64, 96, 128, 168, 255)),
        smem_bytes=random.choice((0, 1000, 16384, 49152, 98304, 160 << 10)),
        stages=random.randint(1, 8),
        steps=random.randint(1, 100),
        staged_bytes=10 ** random.uniform(0, 12),
        vector_bytes=random.choice((1, 2, 4, 8, 16)),
        padding=1 + random.random(),
        attained=random.choice((1.0, 0.65, 0.21)),
        row_blocks=random.choice((1, 1, 7)),
        sum_threads=random.choice((1, 1, 32)),
        async_copy=random.random() < 0.5,
        epilogue_overlap=random.random() < 0.5,
    )
    return Work(**amounts, schedule=random.choice((None, schedule)))


def plain(work: Work, row: Hardware) -> dict[str, float]:
    """The terms, written again from docs/cost.md as straight-line Python."""
    s, limits = work.schedule if row.sms else None, row.limits
    occ_c = occ_m = eff = quantisation = 1.0
    t_shape = t_epilogue = overlap = narrow = 0.0
    matrix_s, other_s = work.flops / row.flops, work.vector_flops / (row.vector_flops or row.flops)
    matrix_s += work.tf32_flops / (row.tf32_flops or row.vector_flops or row.flops)
    ops, fetched = work.ops, work.reread_bytes
    cache = 1 / row.cache_bandwidth if row.cache_bandwidth else 0.0
    staged = 0.0
    if s is not None:
        warps = math.ceil(s.threads / 32)
        per_warp = math.ceil(32 * max(s.registers, 16) / 256) * 256
        room = (
            limits.registers_per_sm // per_warp // 4 * 4 // warps,
            limits.smem_per_sm // (math.ceil(s.smem_bytes / 128) * 128 + 1024),
            limits.warps_per_sm // warps,
            limits.blocks_per_sm,
        )
        fit = max(1, min(room))
        resident = min(fit, math.ceil(s.blocks / row.sms))
        occ_c = min(1.0, resident * warps / row.busy_warps)
        one = max(s.smem_bytes * (s.stages - 1) / s.stages, warps * 32 * s.vector_bytes * row.loads)
        occ_m = min(1.0, min(s.blocks, resident * row.sms) * one / (row.bandwidth * row.latency))
        tiles = min(s.stages, s.steps)
        eff = tiles / (tiles + 1)
        quantisation = math.ceil(s.blocks / (row.sms * resident)) * row.sms * resident / s.blocks
        matrix_s, other_s = matrix_s * s.padding, other_s * s.padding
        t_shape = (matrix_s + other_s) / (occ_c * eff) * (1 - s.attained) / s.attained
        again = work.row_ops * (s.row_blocks - 1) + work.block_ops * (s.blocks - 1)
        again += work.point_ops * (s.sum_threads - 1)
        ops = (ops - work.epilogue_ops + again) * s.padding
        fetched += work.row_bytes * (s.row_blocks - 1) + work.block_bytes * (s.blocks - 1)
        t_epilogue = quantisation * work.epilogue_ops / (row.ops * occ_c)
        narrow = row.narrow * (limits.access_bytes / s.vector_bytes - 1)
        staged = s.staged_bytes * cache
    t_compute = (matrix_s + other_s) / (occ_c * eff) + ops / (row.ops * occ_c)
    t_wave = (t_compute + t_shape) * (quantisation - 1)
    t_load = max(work.bytes_read / (row.bandwidth * occ_m), staged)
    memory = t_load + row.write * work.bytes_written / (row.bandwidth * occ_m)
    if s is not None and s.async_copy and s.epilogue_overlap:
        turns = math.ceil(s.blocks / row.sms)
        overlap = -min(t_load, t_epilogue) * (turns - 1) / turns
    wins = t_compute + t_shape + t_wave >= memory
    return {
        "compute": t_compute if wins else 0.0,
        "warp shape": t_shape if wins else 0.0,
        "wave quantisation": t_wave if wins else 0.0,
        "memory": 0.0 if wins else memory,
        "epilogue": t_epilogue,
        "overlap": overlap,
        "fan-out": fetched * cache,
        "narrow vectors": narrow * (work.bytes_read + work.bytes_written) / row.bandwidth,
        "strided accesses": row.strided * work.strided_bytes / row.bandwidth,
        "transposition": (row.viewed * work.viewed_bytes + row.transposed * work.transposed_bytes)
        / row.bandwidth,
        "piecewise": 0.5 * work.guards / row.ops,
        "code": row.value * work.values,
        "launch": row.launch,
    }


@pytest.mark.spec("004-129")
def test_the_reference_plans_occupancy_by_hand() -> None:
    """Registers: 176 * 32 = 5,632 of a warp, 11 warps of 65,536, 8 in whole quarters, 4 blocks. Shared memory: 49,152 +
    1,024 of 167,936: 3 blocks. So 3 blocks of 2 warps: 6 of 64, and 6 of the 8 that keep the units busy."""
    found = A100.quantities(gemm(REFERENCE))
    assert REFERENCE.warps == 2
    assert found["warp_registers"] == 5632
    assert (found["by_registers"], found["by_smem"], found["by_warps"]) == (4, 3, 32)
    assert found["resident"] == 3
    assert found["occupancy"] == A100.occupancy(gemm(REFERENCE)) == 6 / 64
    assert found["occ_compute"] == 6 / 8
    assert found["pipeline_eff"] == pytest.approx(2 / 3)
    assert found["waves"] == math.ceil(2048 / 324) == 7
    seconds = 2 * 4096**3 / (312e12 * (6 / 8) * (2 / 3))
    terms = A100.terms(gemm(REFERENCE))
    assert terms["compute"] == pytest.approx(seconds)
    assert terms["wave quantisation"] == pytest.approx(seconds * (7 * 324 / 2048 - 1))
    assert terms["memory"] == 0.0


@pytest.mark.parametrize(
    ("changed", "limit", "blocks"),
    [
        ({"registers": 255, "threads": 256, "smem_bytes": 0}, "by_registers", 1),
        ({"registers": 32, "threads": 1024, "smem_bytes": 0}, "by_warps", 2),
        ({"registers": 32, "threads": 32, "smem_bytes": 0}, "blocks_per_sm", 32),
        ({"smem_bytes": 163 << 10}, "by_smem", 1),
    ],
)
def test_each_limit_of_a_multiprocessor_binds(changed: dict[str, int], limit: str, blocks: int) -> None:
    work = gemm(replace(REFERENCE, blocks=10**6, **changed))
    found = {**A100.symbols(work), **A100.quantities(work)}
    assert found["resident"] == found[limit] == blocks
    assert all(found[other] >= blocks for other in ("by_registers", "by_smem", "by_warps", "blocks_per_sm"))


@pytest.mark.spec("004-129")
@pytest.mark.parametrize(("blocks", "waves"), [(1, 1), (107, 1), (108, 1), (109, 2), (216, 2), (217, 3)])
def test_waves_of_one_block_per_multiprocessor(blocks: int, waves: int) -> None:
    """A block that leaves no room for another: 108 run at once, the 109th costs a second wave."""
    work = Work(flops=1e9 * blocks, schedule=replace(REFERENCE, blocks=blocks, smem_bytes=160 << 10))
    found = A100.quantities(work)
    assert (found["resident"], found["waves"]) == (1, waves)
    assert found["compute_side"] == pytest.approx(waves * 108 * 1e9 / (312e12 * 0.25 * 2 / 3))


def test_a_second_wave_doubles_the_time() -> None:
    alone = replace(REFERENCE, smem_bytes=160 << 10)
    full, over = (Work(flops=1e12, schedule=replace(alone, blocks=blocks)) for blocks in (108, 109))
    ratio = A100.quantities(over)["compute_side"] / A100.quantities(full)["compute_side"]
    assert ratio == pytest.approx(2 * 108 / 109)


@pytest.mark.spec("004-129", "004-134")
def test_stages_hide_latency_until_they_cost_occupancy() -> None:
    """The efficiencies of 1, 2, 3, 4, 8 tiles in flight; a ring longer than the sum has nothing to hide."""
    for stages, share in ((1, 1 / 2), (2, 2 / 3), (3, 3 / 4), (4, 4 / 5), (8, 8 / 9)):
        assert A100.quantities(gemm(replace(REFERENCE, stages=stages)))["pipeline_eff"] == pytest.approx(
            share
        )
    assert A100.quantities(gemm(replace(REFERENCE, stages=8, steps=2)))["pipeline_eff"] == pytest.approx(
        2 / 3
    )
    deeper = A100.quantities(gemm(replace(REFERENCE, stages=3, smem_bytes=49152 // 2 * 3)))
    assert deeper["resident"] == 2  # of 73,728 bytes each
    assert deeper["compute_side"] > A100.quantities(gemm(REFERENCE))["compute_side"]


@pytest.mark.spec("004-132")
def test_overlap_gains_the_shorter_of_load_and_epilogue() -> None:
    """Two tiles for each multiprocessor: the epilogue of the first runs beside the loads of the second."""
    on = replace(REFERENCE, blocks=216, threads=256)
    off = replace(on, epilogue_overlap=False)
    work = Work(flops=1e12, ops=2e6, epilogue_ops=1e6, bytes_read=1e9, schedule=on)
    found = A100.quantities(work)
    assert found["t_epilogue"] == pytest.approx(1e6 / 9.75e12)
    assert A100.terms(work)["overlap"] == pytest.approx(-0.5 * min(found["t_load"], found["t_epilogue"]))
    assert A100.terms(replace(work, schedule=off))["overlap"] == 0.0
    assert A100.terms(replace(work, schedule=replace(on, blocks=108)))["overlap"] == 0.0  # no next tile
    short = replace(work, bytes_read=1e3)
    assert A100.terms(short)["overlap"] == pytest.approx(-0.5 * A100.quantities(short)["t_load"])
    for each in (work, short):  # a gain hides what runs elsewhere; it is no gift
        sides = A100.quantities(each)
        assert A100.kernel(each) >= max(sides["compute_side"], sides["memory_side"])


@pytest.mark.spec("004-130", "004-131")
def test_penalties_by_hand() -> None:
    """1 MB on an A100: 2.039 TB/s; 4.8 TB/s from the second-level cache; 9.75 T simple operations a second."""
    size, schedule = 1e6, Schedule(blocks=864, vector_bytes=16)
    narrow = A100.terms(Work(bytes_read=size, schedule=replace(schedule, vector_bytes=4)))["narrow vectors"]
    assert narrow == pytest.approx(3 * 0.05 * size / 2.039e12)
    assert A100.terms(Work(bytes_read=size, schedule=schedule))["narrow vectors"] == 0.0
    assert A100.terms(Work(reread_bytes=size))["fan-out"] == pytest.approx(size / 4.8e12)
    assert A100.terms(Work(strided_bytes=size))["strided accesses"] == pytest.approx(3 * size / 2.039e12)
    assert A100.terms(Work(guards=size))["piecewise"] == pytest.approx(size / 2 / 9.75e12)
    view = A100.terms(Work(viewed_bytes=size))["transposition"]
    copy = A100.terms(Work(transposed_bytes=size))["transposition"]
    assert view == pytest.approx(0.05 * size / 2.039e12)
    assert copy == pytest.approx(0.5 * size / 2.039e12)
    # the copy is a kernel of its own beside: it reads, writes, and starts
    whole = A100.kernel(Work(bytes_read=size, bytes_written=size, transposed_bytes=size, values=1))
    assert whole - copy > 30 * view


def test_little_grids_do_not_fill_the_memory() -> None:
    """One block of 256 threads with 4 loads of 4 bytes: 4,096 bytes under way, of 2.039e12 * 340e-9 = 693,260."""
    found = A100.quantities(Work(bytes_read=1e6, schedule=Schedule(blocks=1)))
    assert found["occ_memory"] == pytest.approx(4096 / (2.039e12 * 340e-9))
    assert A100.quantities(Work(bytes_read=1e6, schedule=Schedule(blocks=864)))["occ_memory"] == 1


@pytest.mark.parametrize("model", [A100, H100, CPU], ids=["sm80", "sm90", "cpu"])
def test_the_formulas_against_plain_python(model: Roofline) -> None:
    source = random.Random(1)
    for _ in range(500):
        work = random_work(source)
        wanted = plain(work, model.hardware)
        found = model.terms(work)
        assert tuple(found) == tuple(wanted) == TERMS
        for name, value in wanted.items():
            assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-18), (name, work)


@pytest.mark.parametrize("model", [A100, CPU], ids=["sm80", "cpu"])
def test_the_formulas_against_sympy(model: Roofline) -> None:
    """Every formula, compiled by sympy, over the values of those before it."""
    import sympy

    source = random.Random(2)
    works = [random_work(source) for _ in range(60)]
    for scheduled in {model.hardware.sms > 0, False}:
        chosen = [
            work for work in works if (work.schedule is not None and model.hardware.sms > 0) == scheduled
        ]
        assert chosen
        values = [dict(model.symbols(work)) for work in chosen]
        for name in needed((*TERMS, "occupancy") if scheduled else TERMS, scheduled):
            formula = expression(name, scheduled)
            symbols = sorted(map(str, formula.free_symbols))
            evaluate = sympy.lambdify(symbols, formula, "math")
            for work, known in zip(chosen, values, strict=True):
                value = evaluate(**{each: known[each] for each in symbols})
                assert model.quantities(work)[name] == pytest.approx(value, rel=1e-9, abs=1e-18), name
                if name not in TERMS:
                    known[name] = value


@pytest.mark.parametrize("target", TABLE)
def test_terms_add_up_exactly(target: str) -> None:
    model, source = Roofline(hardware(target)), random.Random(3)
    for _ in range(200):
        work = random_work(source)
        terms = model.terms(work)
        assert sum(terms.values()) == model.kernel(work)
        assert all(value >= 0 for name, value in terms.items() if name != "overlap")
        assert model.kernel(work) >= model.hardware.launch
        ((side, seconds),) = model.hidden(work).items()
        shown = sum(terms[name] for name in ("compute", "warp shape", "wave quantisation", "memory"))
        assert seconds <= shown * (1 + 1e-9)
        assert terms["memory" if side == "memory" else "compute"] == 0.0


@pytest.mark.parametrize("target", TABLE)
def test_more_work_never_costs_less(target: str) -> None:
    """As the search asks for: without the overlap, by which a longer load may hide more of the epilogue."""
    model, source = Roofline(hardware(target)), random.Random(4)
    for _ in range(100):
        work = random_work(source)
        if work.schedule is not None:
            work = replace(work, schedule=replace(work.schedule, epilogue_overlap=False))
        for name in AMOUNTS:
            if name == "epilogue_ops":
                continue  # a part of ops that may be hidden: moving more of them there may gain
            more = replace(work, **{name: 2 * getattr(work, name) + 1})
            assert model.kernel(more) >= model.kernel(work) * (1 - 1e-12), name
            assert model.seconds(more) >= model.seconds(work), name


def test_a_faster_machine_never_takes_longer() -> None:
    source = random.Random(5)
    for _ in range(100):
        work = random_work(source)
        for name in ("flops", "vector_flops", "ops", "cache_bandwidth"):
            faster = replace(A100.hardware, **{name: 2 * getattr(A100.hardware, name)})
            assert Roofline(faster).kernel(work) <= A100.kernel(work) * (1 + 1e-12), name


@pytest.mark.parametrize("target", TABLE)
def test_parts_add_up(target: str) -> None:
    """What the search adds up: the parts of a kernel, whatever they are, and never less than the kernel with no launch."""
    model, source = Roofline(hardware(target)), random.Random(6)
    for _ in range(50):
        one, two = (replace(random_work(source), schedule=None) for _ in range(2))
        assert model.seconds(one + two) == pytest.approx(model.seconds(one) + model.seconds(two))
        assert model.kernel(one) <= (model.seconds(one) + model.hardware.launch) * (1 + 1e-9)
    assert model.seconds(Work()) == 0.0
    assert model.kernel(Work()) == model.hardware.launch


def test_works_add_up_field_by_field() -> None:
    source = random.Random(7)
    one, two = random_work(source), random_work(source)
    total = one + two
    for item in fields(Work):
        if item.name != "schedule":
            assert getattr(total, item.name) == getattr(one, item.name) + getattr(two, item.name)
    assert (
        (Work(schedule=REFERENCE) + Work()).schedule
        is (Work() + Work(schedule=REFERENCE)).schedule
        is REFERENCE
    )


def test_the_schedule_is_for_gpus() -> None:
    assert CPU.terms(gemm(REFERENCE)) == CPU.terms(gemm(None))
    assert A100.kernel(gemm(REFERENCE)) > A100.kernel(gemm(None))  # the machine evenly full
    assert CPU.occupancy(gemm(REFERENCE)) == 1.0


@pytest.mark.spec("004-129")
def test_peaks_go_by_the_operands_type() -> None:
    """fp32 and i32 do not run on matrix units: an fp32 product takes 16 times as long on an A100."""
    assert {DType.FP16, DType.BF16} == MATRIX
    half, single = (A100.terms(contracted(1e12, dtype))["compute"] for dtype in (DType.FP16, DType.FP32))
    assert single == pytest.approx(half * 312 / 19.5)
    assert A100.terms(contracted(1e12, DType.I32))["compute"] == single
    rounded = A100.terms(Work(tf32_flops=1e12))["compute"]
    assert rounded == pytest.approx(half * 2) and rounded == pytest.approx(single / 8)
    assert CPU.kernel(Work(tf32_flops=1e9)) == CPU.kernel(contracted(1e9, DType.FP32))
    assert CPU.kernel(contracted(1e9, DType.FP16)) == CPU.kernel(contracted(1e9, DType.FP32))


@pytest.mark.spec("004-130")
@pytest.mark.parametrize("model", [A100, CPU], ids=["sm80", "cpu"])
def test_the_difference_that_fusion_makes(model: Roofline) -> None:
    """GEMM and ReLU as two kernels and as one: the intermediate is written and read no more."""
    n = 4096
    product = gemm(REFERENCE)
    relu = Work(
        ops=n * n,
        bytes_read=2.0 * n * n,
        bytes_written=2.0 * n * n,
        values=2,
        schedule=Schedule(blocks=65536),
    )
    fused = replace(product, ops=n * n, epilogue_ops=n * n, values=5)
    terms = fusion_terms(model, [product, relu], fused)
    change = model.kernel(fused) - model.kernel(product) - model.kernel(relu)
    assert sum(terms.values()) == pytest.approx(change)
    assert change < 0
    assert terms["saved bytes"] == pytest.approx(-4.0 * n * n / model.hardware.bandwidth)
    assert terms["launch"] == pytest.approx(-model.hardware.launch)


def test_fusions_terms_add_up_for_any_kernels() -> None:
    source = random.Random(8)
    for model in (A100, H100, CPU):
        for _ in range(50):
            before, after = [random_work(source) for _ in range(source.randint(1, 3))], random_work(source)
            change = model.kernel(after) - sum(model.kernel(work) for work in before)
            scale = model.kernel(after) + sum(model.kernel(work) for work in before)
            assert sum(fusion_terms(model, before, after).values()) == pytest.approx(change, abs=1e-9 * scale)


def test_every_term_can_be_asked_for() -> None:
    work = gemm(REFERENCE)
    lines = {line.name: line for line in A100.explain(work)}
    assert set(TERMS) <= set(lines)
    assert {"stages", "smem_bytes", "peak_flops", "registers_per_sm", "occupancy", "t_load"} <= set(lines)
    for line in lines.values():
        assert math.isfinite(line.value)
        assert line.unit
        assert line.about
        for name in names_in(line.formula) if line.formula else ():
            assert name in lines, f"{line.name} is written over {name}"
    assert sum(lines[name].value for name in TERMS) == A100.kernel(work)
    assert str(A100.formula("fan-out")) == "cache_cost*(again_bytes + reread_bytes)"
    assert str(CPU.formula("t_contraction", work)) == (
        "flops/peak_flops + vector_flops/peak_vector_flops + tf32_flops/peak_tf32_flops"
    )
    with pytest.raises(TinycError, match="no term 'speed'"):
        A100.formula("speed")
    assert terms_of(A100, work) == A100.terms(work)


def test_every_formula_says_what_it_is_and_where_it_comes_from() -> None:
    assert len({formula.name for formula in FORMULAS}) == len(FORMULAS)
    known = {*WORK, *SCHEDULE, *MACHINE}
    assert not known & ({formula.name for formula in FORMULAS} - set(TERMS))
    for formula in FORMULAS:
        assert formula.unit
        assert formula.about
        assert formula.source
        assert names_in(formula.text) | names_in(formula.plain or "0") <= known | (set(BY_NAME) - set(TERMS))
        known.add(formula.name)


def test_compiling_does_not_import_sympy() -> None:
    code = (
        "import sys; from tinyc.extract.cost.model import *; from tinyc.extract.cost.hardware import hardware;"
        "m = Roofline(hardware('sm80')); w = Work(flops=1.0, schedule=Schedule()); m.terms(w), m.explain(w);"
        "assert 'sympy' not in sys.modules; m.formula('memory'); assert 'sympy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.spec("004-129")
def test_the_table() -> None:
    a100, h100, h200 = hardware("sm80"), hardware("sm90"), hardware("sm90", "h200")
    assert (a100.sms, a100.flops, a100.vector_flops, a100.bandwidth) == (108, 312e12, 19.5e12, 2.039e12)
    assert (h100.sms, h100.flops, h100.vector_flops, h100.bandwidth) == (132, 989e12, 67e12, 3.35e12)
    assert (a100.tf32_flops, h100.tf32_flops) == (156e12, 495e12)
    assert h200 == replace(h100, name="sm90 h200", bandwidth=4.8e12)
    for row, per_block, per_sm in ((a100, 163, 164), (h100, 227, 228)):
        limits = row.limits
        assert (limits.smem_bytes, limits.smem_per_sm) == (per_block << 10, per_sm << 10)
        assert (limits.registers_per_sm, limits.warps_per_sm, limits.blocks_per_sm) == (65536, 64, 32)
    memory_bound = Work(bytes_read=1e9)
    assert Roofline(h200).kernel(memory_bound) < H100.kernel(memory_bound)
    for target, variant in VARIANTS:
        assert hardware(target, variant).limits == hardware(target).limits
    for target, variant, said in (
        ("sm90", "h300", "h200"),
        ("cpu", "big", "it has none"),
        ("sm70", "", "sm80"),
    ):
        with pytest.raises(TinycError, match=said) as raised:
            hardware(target, variant)
        assert raised.value.kind == "TargetUnavailable"
