"""The formulas of the cost model (document 004 §11) as text that reads like the document, and what is made of it.

Each formula is written once, over the names of others and of symbols. It is made a function of numbers, since extraction
evaluates it thousands of times and importing sympy takes as long as a compilation (``evaluators.py``); :func:`expression`
gives it to sympy, for people.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .expressions import folded, function, names_in

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True)
class Formula:
    """``text`` is over the names of formulas and symbols, ``Min``, ``Max``, ``floor``, ``ceiling`` and
    ``where(condition, then, otherwise)``. ``plain``: the text for kernels without a schedule, where it is another.
    ``source``: where it comes from."""

    name: str
    unit: str
    text: str
    about: str
    source: str = "004 §11"
    plain: str = ""


#: what a kernel does, by the fields of Work: symbol -> (unit, meaning)
WORK: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "flops": ("FLOP", "of tiled contractions of fp16 and bf16"),
        "vector_flops": ("FLOP", "of tiled contractions of other types"),
        "tf32_flops": ("FLOP", "of tiled contractions of fp32 that is rounded to tf32"),
        "ops": ("op", "simple operations"),
        "epilogue_ops": ("op", "those after the last product"),
        "row_ops": ("op", "those that are the same along a row of the result"),
        "block_ops": ("op", "those that are the same for all of the result"),
        "point_ops": ("op", "those beside all sums, in loops"),
        "row_bytes": ("B", "read for row_ops"),
        "block_bytes": ("B", "read for block_ops"),
        "bytes_read": ("B", "each buffer once"),
        "bytes_written": ("B", "outputs"),
        "reread_bytes": ("B", "fetched again"),
        "strided_bytes": ("B", "accessed out of order"),
        "viewed_bytes": ("B", "of operands that are transposed from shared memory"),
        "transposed_bytes": ("B", "copied into another layout"),
        "guards": ("test", "bounds tests evaluated"),
        "values": ("value", "in the kernel's code"),
    }
)

#: how it runs, by the fields of Schedule
SCHEDULE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "blocks": ("block", "thread blocks of the grid"),
        "warps": ("warp", "of one block"),
        "registers": ("register", "of one thread"),
        "smem_bytes": ("B", "shared memory of one block"),
        "stages": ("tile", "in the shared-memory ring"),
        "steps": ("tile", "along k, of one block"),
        "staged_bytes": ("B", "loaded into shared memory by all blocks"),
        "vector_bytes": ("B", "of one access"),
        "padding": ("1", "points of all tiles over points of the result"),
        "attained": ("1", "share of its unit's peak that the instruction attains"),
        "row_blocks": ("block", "that share a row of the result, in loops"),
        "sum_threads": ("thread", "that share a sum, in loops"),
        "overlapped": ("1", "1 where loads run beside the epilogue, else 0"),
    }
)

#: what the machine is, by the fields of Hardware and of its Limits
MACHINE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "peak_flops": ("FLOP/s", "of a tiled contraction of fp16 and bf16"),
        "peak_vector_flops": ("FLOP/s", "of a tiled contraction of other types"),
        "peak_tf32_flops": ("FLOP/s", "of a tiled contraction of fp32 that is rounded to tf32"),
        "peak_ops": ("op/s", "simple operations"),
        "peak_bandwidth": ("B/s", "main memory"),
        "cache_cost": ("s/B", "a byte from the second-level cache"),
        "launch_cost": ("s", "to start a kernel"),
        "value_cost": ("s/value", "set-up and code of a value"),
        "guard_ops": ("op/test", "a bounds test"),
        "write": ("1", "bytes moved per byte written"),
        "sms": ("SM", "multiprocessors"),
        "registers_per_sm": ("register", "of one multiprocessor"),
        "smem_per_sm": ("B", "shared memory of one multiprocessor"),
        "warps_per_sm": ("warp", "that may be resident on one multiprocessor"),
        "blocks_per_sm": ("block", "that may be resident on one multiprocessor"),
        "access_bytes": ("B", "of the widest access"),
        "latency": ("s", "of main memory"),
        "busy_warps": ("warp", "resident ones that keep a multiprocessor busy"),
        "loads": ("load", "under way in a thread without a ring"),
        "narrow": ("1", "of a transfer, for each further access"),
        "strided": ("1", "bytes moved beside each that is out of order"),
        "viewed": ("1", "of a transfer, for a transposed view"),
        "transposed": ("1", "of a transfer, for a copy into another layout"),
    }
)

_TUNING = "NVIDIA's tuning guides: what a multiprocessor holds"

#: in an order in which each uses only those before it. The last are the terms.
FORMULAS: tuple[Formula, ...] = (
    # ---- occupancy
    Formula(
        "warp_registers",
        "register",
        "256 * ceiling(32 * Max(registers, 16) / 256)",
        "registers of a warp: they are given out 256 at a time",
        _TUNING,
    ),
    Formula(
        "by_registers",
        "block",
        "floor(4 * floor(registers_per_sm / warp_registers / 4) / warps)",
        "blocks that the registers of one multiprocessor hold: each of its four schedulers has a quarter",
        _TUNING,
    ),
    Formula(
        "by_smem",
        "block",
        "floor(smem_per_sm / (128 * ceiling(smem_bytes / 128) + 1024))",
        "blocks that its shared memory holds; 1 KiB of each is the system's",
        _TUNING,
    ),
    Formula("by_warps", "block", "floor(warps_per_sm / warps)", "blocks that its warp slots hold", _TUNING),
    Formula(
        "fit",
        "block",
        "Max(1, Min(by_registers, by_smem, by_warps, blocks_per_sm))",
        "blocks that it holds. Whether one fits at all is check_plan's to say",
        _TUNING,
    ),
    Formula("resident", "block", "Min(fit, ceiling(blocks / sms))", "blocks that it gets of this grid"),
    Formula("occupancy", "1", "resident * warps / warps_per_sm", "resident warps over those possible"),
    Formula(
        "occ_compute",
        "1",
        "Min(1, resident * warps / busy_warps)",
        "the document's occ, of the arithmetic: a few warps keep matrix units busy, more do not make them faster",
        plain="1",
    ),
    Formula(
        "in_flight",
        "B",
        "Min(blocks, resident * sms) * Max(smem_bytes * (stages - 1) / stages, 32 * warps * vector_bytes * loads)",
        "bytes under way on the whole machine: of each resident block the ring but for the tile in use, or its loads",
        "Little's law",
    ),
    Formula(
        "occ_memory",
        "1",
        "Min(1, in_flight / Max(peak_bandwidth * latency, 1))",
        "the document's occ, of the memory: bandwidth is full when a latency's worth of bytes is under way",
        "Little's law",
        plain="1",
    ),
    Formula(
        "pipeline_eff",
        "1",
        "1 - 1 / (Min(stages, steps) + 1)",
        "without a ring loads and products take turns; each further tile in flight hides a part of what is left",
        plain="1",
    ),
    # ---- waves
    Formula("waves", "wave", "ceiling(blocks / (sms * resident))", "rounds in which the grid runs"),
    Formula(
        "quantisation",
        "1",
        "waves * sms * resident / blocks",
        "places of all waves over blocks: the last wave takes as long as a full one",
        "notes on GPU kernels: wave quantisation",
    ),
    # ---- the two sides of the roofline
    Formula(
        "t_contraction",
        "s",
        "padding * (flops / peak_flops + vector_flops / peak_vector_flops + tf32_flops / peak_tf32_flops) / (occ_compute * pipeline_eff)",
        "FLOPs / (peak_TF * occ * pipeline_eff), tails of tiles included",
        plain="flops / peak_flops + vector_flops / peak_vector_flops + tf32_flops / peak_tf32_flops",
    ),
    Formula(
        "again_ops",
        "op",
        "row_ops * (row_blocks - 1) + block_ops * (blocks - 1) + point_ops * (sum_threads - 1)",
        "no block knows what another one has computed: each does what is the same for all of its row, or of the result;"
        " all threads of a sum do what is beside it",
        plain="0",
    ),
    Formula(
        "again_bytes",
        "B",
        "row_bytes * (row_blocks - 1) + block_bytes * (blocks - 1)",
        "what is fetched again for these, from the second-level cache",
        plain="0",
    ),
    Formula(
        "t_ops",
        "s",
        "padding * (ops - epilogue_ops + again_ops) / (peak_ops * occ_compute)",
        "simple operations before and beside the contraction, tails of tiles included",
        plain="ops / peak_ops",
    ),
    Formula("t_compute", "s", "t_contraction + t_ops", "arithmetic, were the machine evenly full"),
    Formula(
        "t_shape",
        "s",
        "t_contraction * (1 / attained - 1)",
        "what the instruction of this warp tile does not attain (WGMMA and TMA, mma.sync and ldmatrix, or lanes)",
        plain="0",
    ),
    Formula(
        "t_wave",
        "s",
        "(t_compute + t_shape) * (quantisation - 1)",
        "multiprocessors that stand idle in the last wave",
        plain="0",
    ),
    Formula("compute_side", "s", "t_compute + t_shape + t_wave", "all arithmetic"),
    Formula(
        "t_load",
        "s",
        "Max(bytes_read / (peak_bandwidth * occ_memory), staged_bytes * cache_cost)",
        "loads, from main memory or from the second-level cache, whichever takes longer",
        plain="bytes_read / peak_bandwidth",
    ),
    Formula(
        "t_store",
        "s",
        "write * bytes_written / (peak_bandwidth * occ_memory)",
        "stores",
    ),
    Formula("memory_side", "s", "t_load + t_store", "Bytes / (peak_BW * occ)"),
    Formula(
        "t_epilogue",
        "s",
        "quantisation * epilogue_ops / (peak_ops * occ_compute)",
        "the epilogue, which begins when a tile's products are done, on the multiprocessors that have one",
        plain="0",
    ),
    Formula("turns", "tile", "ceiling(blocks / sms)", "tiles that the busiest multiprocessor computes"),
    # ---- the terms: they add up to the estimate of a kernel
    Formula("compute", "s", "where(compute_side >= memory_side, t_compute, 0)", "if arithmetic takes longer"),
    Formula(
        "warp shape",
        "s",
        "where(compute_side >= memory_side, t_shape, 0)",
        "layout_penalty (TMA, WGMMA, ldmatrix): of arithmetic, if that takes longer",
        plain="0",
    ),
    Formula(
        "wave quantisation",
        "s",
        "where(compute_side >= memory_side, t_wave, 0)",
        "of arithmetic, if that takes longer",
        plain="0",
    ),
    Formula(
        "memory", "s", "where(compute_side >= memory_side, 0, memory_side)", "if the memory takes longer"
    ),
    Formula("epilogue", "s", "t_epilogue", "after the products"),
    Formula(
        "overlap",
        "s",
        "0 - overlapped * Min(t_load, t_epilogue) * (1 - 1 / turns)",
        "overlap_gain = min(T_load, T_epilogue) where there is a next tile to be loaded",
        plain="0",
    ),
    Formula(
        "fan-out",
        "s",
        "(reread_bytes + again_bytes) * cache_cost",
        "fanout_penalty: values of many uses, fetched again",
    ),
    Formula(
        "narrow vectors",
        "s",
        "narrow * (access_bytes / vector_bytes - 1) * (bytes_read + bytes_written) / peak_bandwidth",
        "layout_penalty (vectorize): each access less wide than 16 bytes is one more instruction",
        plain="0",
    ),
    Formula(
        "strided accesses",
        "s",
        "strided * strided_bytes / peak_bandwidth",
        "layout_penalty: a sector of 32 bytes is moved for less",
    ),
    Formula(
        "transposition",
        "s",
        "(viewed * viewed_bytes + transposed * transposed_bytes) / peak_bandwidth",
        "layout_penalty: light for a logical view, heavy for a copy",
    ),
    Formula("piecewise", "s", "guard_ops * guards / peak_ops", "piecewise_penalty: bounds tests"),
    Formula("code", "s", "value_cost * values", "setting up loops, fetching instructions"),
    Formula("launch", "s", "launch_cost", "starting the kernel"),
)

TERMS: tuple[str, ...] = tuple(formula.name for formula in FORMULAS[-13:])
"""The terms that add up, exactly and in this order, to the estimate of a kernel."""

#: a part of a kernel: what extraction adds up while it searches. Both sides of the roofline count, nothing is hidden.
PART = Formula(
    "part",
    "s",
    "flops / peak_flops + vector_flops / peak_vector_flops + tf32_flops / peak_tf32_flops + ops / peak_ops"
    " + (bytes_read + write * bytes_written) / peak_bandwidth + reread_bytes * cache_cost"
    " + (strided * strided_bytes + viewed * viewed_bytes + transposed * transposed_bytes) / peak_bandwidth"
    " + guard_ops * guards / peak_ops + value_cost * values",
    "the terms of a part of a kernel that is not scheduled yet",
)

BY_NAME: Mapping[str, Formula] = MappingProxyType({formula.name: formula for formula in (*FORMULAS, PART)})


def text_of(name: str, scheduled: bool) -> str:
    """A formula as it is for a kernel with a Schedule, or without one. Raises KeyError."""
    formula = BY_NAME[name]
    return formula.text if scheduled else formula.plain or formula.text


@cache
def needed(names: tuple[str, ...], scheduled: bool) -> tuple[str, ...]:
    """The formulas that ``names`` are written over, and these, in an order in which they can be evaluated."""
    wanted = set(names)
    for formula in reversed((*FORMULAS, PART)):
        if formula.name in wanted:
            wanted |= names_in(text_of(formula.name, scheduled))
    return tuple(name for name in BY_NAME if name in wanted)


# ---- sympy ----------------------------------------------------------------------------------------------------------


def expression(name: str, scheduled: bool = True) -> sympy.Expr:
    """A formula for sympy, over the names that it is written over. Raises KeyError."""
    import sympy

    def where(condition: Any, then: Any, otherwise: Any) -> Any:
        return sympy.Piecewise((then, condition), (otherwise, True))

    text = text_of(name, scheduled)
    functions = {
        "Min": sympy.Min,
        "Max": sympy.Max,
        "floor": sympy.floor,
        "ceiling": sympy.ceiling,
        "where": where,
    }
    symbols = {used: sympy.Symbol(used, nonnegative=True) for used in names_in(text)}
    value = folded(text, {used: ast.Name(used, ast.Load()) for used in symbols}, functions)
    return sympy.sympify(function(tuple(symbols), (), (value,), functions)(*symbols.values())[0])
