"""Programs of many contractions in all shapes and forms, and what the rules and extraction make of them for a machine."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tinyc
from tinyc.egraph.graph import Graph
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract.plans.candidate import Candidate, Problem, candidates_of
from tinyc.ir.resources import LIMITS, Limits
from tinyc.ir.tiny import Program

EXTENTS = (
    1,
    2,
    3,
    5,
    8,
    12,
    16,
    17,
    31,
    33,
    48,
    64,
    65,
    96,
    100,
    127,
    128,
    129,
    200,
    256,
    384,
    640,
    1000,
    4096,
    8200,
)
DTYPES = (
    ("fp16", "fp16"),
    ("bf16", "bf16"),
    ("fp32", "fp32"),
    ("fp16", "fp32"),
    ("i32", "i32"),
    ("bool", "fp32"),
)
FORMS = (
    "plain",
    "transposed rhs",
    "transposed lhs",
    "transposed result",
    "batched",
    "heads",
    "conv",
    "guarded",
)

Tensor = Any


def contractions(seed: int, count: int) -> Program:
    """A program whose outputs are ``count`` sums of products: random extents, dtypes and forms, tiny and huge."""
    rng = random.Random(seed)
    made = [_contraction(rng) for _ in range(count)]

    def run(**inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            form(inputs[f"a{number}"], inputs[f"b{number}"]) for number, (form, _, _) in enumerate(made)
        )

    specs = {}
    for number, (_, left, right) in enumerate(made):
        specs |= {f"a{number}": left, f"b{number}": right}
    return tinyc.trace(run, **specs)


def _contraction(rng: random.Random) -> tuple[Any, Any, Any]:
    b, m, n, k = rng.choice((2, 3, 12)), *(rng.choice(EXTENTS) for _ in range(3))
    left, right = rng.choice(DTYPES)
    wide = "i32" if left == "i32" else "fp32"
    form = rng.choice(FORMS)
    shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "plain": ((m, k), (k, n)),
        "transposed rhs": ((m, k), (n, k)),
        "transposed lhs": ((k, m), (k, n)),
        "transposed result": ((m, k), (k, n)),
        "batched": ((b, m, k), (b, k, n)),
        "heads": ((b, min(m, 256), k), (b, k, min(n, 256))),
        "conv": ((2, 1 + min(k, 40), 4 + min(m, 40), 6), (1 + min(n, 200), 1 + min(k, 40), 3, 3)),
        "guarded": ((m, k), (k, n)),
    }
    one, two = shapes[form]

    def run(x: Tensor, y: Tensor) -> Tensor:
        x, y = x.cast(wide), y.cast(wide)
        match form:
            case "transposed rhs":
                return x @ y.permute(1, 0)
            case "transposed lhs":
                return x.permute(1, 0) @ y
            case "transposed result":
                return (x @ y).permute(1, 0) * 2
            case "heads":
                return (x @ y).permute(1, 0, 2).reshape(one[1], -1)
            case "conv":
                return tinyc.functions.conv(x, y, pad=1)
            case "guarded":
                return x.pad(((0, 0), (1, 2))) @ y.pad(((1, 2), (0, 0)))
        return x @ y

    return run, tinyc.spec(left, one), tinyc.spec(right, two)


def saturated(
    program: Program, machine: Limits | None, rules: Sequence[Path] = (), without: tuple[str, ...] = ()
) -> Graph:
    result = saturate(program, load_rules(rules), without, machine=machine)
    assert result.complete and result.graph is not None, result.warnings
    return result.graph


@functools.cache
def found_for_gemm(
    sizes: tuple[int, int, int], dtype: str, machine: Limits
) -> Mapping[Problem, tuple[Candidate, ...]]:
    """The candidates of :func:`gemm`, asked for once."""
    return found(gemm(*sizes, dtype), machine.arch, machine=machine)


def found(
    program: Program, target: str, rules: Sequence[Path] = (), machine: Limits | None = None
) -> Mapping[Problem, tuple[Candidate, ...]]:
    """The candidates by problem. ``machine``: other limits than the target's."""
    limits = machine or LIMITS[target]
    return candidates_of(saturated(program, limits, rules), limits.arch)


def gemm(m: int, n: int, k: int, dtype: str = "fp16") -> Program:
    """relu(A @ B + bias), summed in fp32, as the examples have it."""

    def run(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        wide = "i32" if dtype == "i32" else "fp32"
        return (a.cast(wide) @ b.cast(wide) + bias.cast(wide)).relu().cast(dtype)

    return tinyc.trace(
        run, a=tinyc.spec(dtype, (m, k)), b=tinyc.spec(dtype, (k, n)), bias=tinyc.spec(dtype, (n,))
    )
