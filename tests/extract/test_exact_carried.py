"""What many parts of a program need that no cut leads to, a condition of all layers or what an encoder makes: it is carried past the
cuts. Bounds hold, and the kernels found are kernels of the program."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kernel_examples import check_runs, chosen_from

import tinyc
from tinyc.extract.exact import exact as search
from tinyc.extract.exact.cuts import cuts
from tinyc.extract.exact.exact import exact
from tinyc.extract.exact.part import Part
from tinyc.extract.exact.parts import parts
from tinyc.extract.exact.proof import Effort
from tinyc.extract.exact.regular import regular
from tinyc.ir.tiny import Program

KINDS = ("step", "product", "chain", "sum")


def conditioned(seed: int, more: int = 0, kinds: Sequence[str] = KINDS, odd: bool = False) -> Program:
    """Layers that each use what is made of one condition: as it is, of a product, of a chain of both, or of a sum over its rows; so many
    ``more``."""
    rng = random.Random(seed)
    rows, width, layers = rng.choice((8, 32, 64)), rng.choice((16, 64, 128)), rng.randint(3, 4) + more
    made = rng.choices(kinds, k=2)
    uses = [rng.choice(("scale", "shift", "both")) for _ in range(layers)]
    dtype = rng.choice(("fp16", "fp32"))
    if odd:
        rows, width, dtype = rng.choice((1, 33)), 33, "bf16"

    def function(x: Any, condition: Any, first: Any, second: Any, *weights: Any) -> Any:
        values = []
        for kind in made:
            if kind == "step":
                values.append((condition * 0.5).exp())
            elif kind == "product":
                values.append(condition @ first)
            elif kind == "chain":
                values.append(((condition @ first).relu() @ second).exp())
            else:
                values.append(condition - condition.sum(axis=-1, keepdims=True) * 0.25)
        for weight, use in zip(weights, uses, strict=True):
            y = (x @ weight).relu()
            y = y * values[0] if use != "shift" else y
            x = x + (y + values[1] if use != "scale" else y)
        return x

    shapes = [(rows, width), (1, width), *[(width, width)] * (2 + layers)]
    return tinyc.trace(function, *(tinyc.spec(dtype, shape) for shape in shapes))


def encoded(seed: int, more: int = 0, odd: bool = False) -> Program:
    """A few layers, and others that read what they make, so many ``more``."""
    rng = random.Random(seed)
    rows, width = rng.choice((16, 32, 64)), rng.choice((32, 64))
    before, after = rng.randint(1, 2), rng.randint(2, 3) + more
    dtype = rng.choice(("fp16", "fp32"))
    if odd:
        rows, width, dtype = rng.choice((2, 33)), 33, "bf16"

    def function(x: Any, y: Any, *weights: Any) -> Any:
        for weight in weights[:before]:
            x = x + (x @ weight).relu()
        for weight in weights[before:]:
            y = y + ((y @ weight) @ x.swapaxes(0, 1)).relu() @ x
        return y

    shapes = [(rows, width), (rows // 2, width), *[(width, width)] * (before + after)]
    return tinyc.trace(function, *(tinyc.spec(dtype, shape) for shape in shapes))


def as_if_large(program: Program, target: str, monkeypatch: pytest.MonkeyPatch) -> tuple[float, bool]:
    """Searches a program whole, and in parts, small ones too; the gap of the latter, and whether the former found the best."""
    problem, start = chosen_from(program, target)
    monkeypatch.setattr(search, "SMALL", 100_000)
    _, best = exact(problem, start, Effort(600.0, 8_000))
    monkeypatch.setattr(search, "SMALL", 0)
    monkeypatch.setattr(search, "LARGE", 60)
    choice, proof = exact(problem, start, Effort(600.0, 100_000))
    assert proof.bound <= best.seconds * (1 + 1e-9)
    assert choice.seconds <= start.seconds * (1 + 1e-9)
    assert not best.optimal or choice.seconds >= best.seconds * (1 - 1e-9)
    check_runs(problem, choice)
    return proof.gap, best.optimal


@pytest.mark.parametrize("target", ["cpu", "sm80"])
@pytest.mark.parametrize("make", [conditioned, encoded])
def test_bounds_hold(make: Callable[[int], Program], target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [as_if_large(make(seed), target, monkeypatch) for seed in range(4)]
    assert any(optimal for _, optimal in found)
    assert statistics.median(gap for gap, _ in found) <= search.CLOSE


@pytest.mark.parametrize("target", ["cpu", "sm80"])
@pytest.mark.parametrize("make", [conditioned, encoded])
@pytest.mark.parametrize("seed", range(2))
def test_bounds_of_odd_sizes_hold(
    make: Callable[..., Program], seed: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bf16, and of one row."""
    as_if_large(make(seed, odd=True), target, monkeypatch)


@pytest.mark.parametrize("target", ["cpu", "sm80"])
@pytest.mark.parametrize("make", [conditioned, encoded])
@pytest.mark.parametrize("seed", range(4))
def test_what_all_layers_read_is_carried_past_the_cuts_between_them(
    make: Callable[..., Program], seed: int, target: str
) -> None:
    """All layers were one part, which no search came to the end of."""
    problem, start = chosen_from(make(seed, more=6), target)
    guide = regular(problem, start)
    before, _ = parts(problem, cuts(problem, guide), loosely=True)
    after, _ = parts(problem, cuts(problem, guide, carrying=True), loosely=True, most=120)
    assert largest(after) <= max(120, largest(before) / 2)
    check_carried(after)


@pytest.mark.parametrize("target", ["cpu", "sm80"])
@pytest.mark.parametrize("seed", range(4))
def test_so_is_what_a_guide_does_not_store(seed: int, target: str) -> None:
    """Parts that share a buffer were one, however large."""
    problem, start = chosen_from(conditioned(seed, more=6, kinds=("step",)), target)
    at = cuts(problem, regular(problem, start))
    before, _ = parts(problem, at, loosely=True)
    after, _ = parts(problem, at, loosely=True, most=60)
    assert largest(after) <= largest(before) / 2
    check_carried(after)


def largest(found: Sequence[Part]) -> int:
    return max(len(part.options) for part in found)


def check_carried(found: Sequence[Part]) -> None:
    """Each buffer is filled in one part, and carried to those after."""
    assert any(part.common for part in found)
    filled: list[str] = []
    for part in found:
        assert set(part.common) <= set(filled)
        filled += part.buffers
    assert len(filled) == len(set(filled))
