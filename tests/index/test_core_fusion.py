"""Which reductions may be fused into others: asked of the program, and of what came out of the e-graph."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from random_programs import Maker

import tinyc
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import Roofline
from tinyc.extract.program import extract_program
from tinyc.index.bounds import unguarded
from tinyc.index.compute_at import boundaries, fused_fault
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.region import Region
from tinyc.ir.tiny import Program
from tinyc.ir.verify import bind
from tinyc.pipeline import legality

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.json"))
#: a kernel more costs more than anything else: as much is fused as may be
GREEDY = Roofline(replace(hardware("sm80"), launch=1.0))
RULES = load_rules()
CAPACITIES = (16, 64, 256, 4096)


def extracted(
    program: Program, apart: tuple[str, ...] = (), capacity: int | None = None
) -> tuple[Region, ...]:
    """Regions as the e-graph gives them when the reductions ``apart`` may not be fused into others. With a ``capacity`` those
    of streams as well, which keep no row of their scores: what is fused for one and does not stream is refused."""
    graph = saturate(program, RULES, ["streaming"] if capacity is None else [], apart=apart).graph
    if capacity is None:
        found = extract_program(program, graph, GREEDY)
    else:
        found = extract_program(program, graph, GREEDY, legality(capacity))
    assert found.extracted is not None and found.fault is None
    return found.extracted.regions


def check(program: Program, capacity: int) -> None:
    apart = boundaries(program, None, capacity)
    for given in (*extracted(program, apart), *extracted(program, apart, capacity)):
        assert unguarded(given, prove=True) == ()
        assert fused_fault(given, capacity) is None


def load(*uops: dict[str, Any]) -> Program:
    return tinyc.load({"uops": list(uops)})


def source(id: str, *shape: int) -> dict[str, Any]:
    return {"id": id, "uop": "INPUT", "arg": {"tensor_id": id, "dtype": "fp32", "shape": list(shape)}}


def op(id: str, uop: str, *src: str, **arg: Any) -> dict[str, Any]:
    return {"id": id, "uop": uop, "src": list(src), "arg": arg}


def total(id: str, x: str, *axes: int, op_: str = "SUM") -> dict[str, Any]:
    return op(id, "REDUCE", x, op=op_, axes=list(axes), dtype="fp32")


def normalised(rows: int, columns: int, depth: int) -> Program:
    """A row sum of squares of sums: S[m, n] = sum over k, then the maximum over n."""
    return load(
        source("x", rows, columns, depth),
        total("s", "x", 2),
        op("e", "EXP2", "s"),
        total("top", "e", 1, op_="MAX"),
    )


@pytest.mark.spec("004-101", "004-127")
def test_a_row_that_does_not_fit_is_read_from_its_buffer() -> None:
    program = normalised(4, 32, 8)
    (fused,) = extracted(program)
    assert fused_fault(fused, 128) is None
    text = fused_fault(fused, 127)
    assert text is not None and "=32, 128 bytes, more than the 127 bytes" in text
    assert boundaries(program, None, 128) == () and boundaries(program, None, 127) == ("s",)
    assert len(extracted(program, ("s",))) == 2
    check(program, 127)


def test_what_a_value_varies_along() -> None:
    def listed(
        *middle: dict[str, Any], last: str, axes: tuple[int, ...], capacity: int = 4
    ) -> tuple[str, ...]:
        return boundaries(
            load(source("x", 6, 5), total("s", "x", 1), *middle, total("u", last, *axes)), None, capacity
        )

    assert listed(last="s", axes=(0,)) == ("s",)
    assert listed(last="s", axes=(0,), capacity=24) == ()
    spread = (op("t", "RESHAPE", "s", result_shape=[6, 1]), op("b", "EXPAND", "t", result_shape=[6, 9]))
    assert listed(*spread, last="b", axes=(1,)) == (), "the same value all along axis 1"
    assert listed(*spread, last="b", axes=(0,)) == ("s",)
    assert listed(*spread, op("p", "PERMUTE", "b", perm=[1, 0]), last="p", axes=(0,)) == ()
    assert listed(op("t", "RESHAPE", "s", result_shape=[2, 3]), last="t", axes=(1,), capacity=12) == ()
    assert listed(op("t", "RESHAPE", "s", result_shape=[2, 3]), last="t", axes=(1,), capacity=11) == ("s",)
    pad = op("t", "PAD", "s", pad=[[2, 2]], value=0)
    assert listed(pad, last="t", axes=(0,), capacity=39) == ("s",)
    window = op("t", "VIEW", "s", result_shape=[4, 3], index_map={"map": ["i0+i1"]})
    assert listed(window, last="t", axes=(1,), capacity=12) == ()
    assert listed(window, last="t", axes=(1,), capacity=11) == ("s",)
    cut = op("t", "SHRINK", "s", lo=[1], hi=[2], step=[1])
    assert listed(cut, last="t", axes=(0,)) == ()


def test_rows_multiply_through_reductions() -> None:
    program = load(
        source("x", 2, 3, 4, 5),
        total("s", "x", 3),
        op("a", "EXP2", "s"),
        total("t", "a", 2, op_="MAX"),
        op("b", "EXP2", "t"),
        total("u", "b", 1),
    )
    assert boundaries(program, None, 4 * 12) == ()
    assert boundaries(program, None, 4 * 12 - 1) == ("s",)
    assert boundaries(program, None, 4 * 4 - 1) == ("s",)
    assert boundaries(program, None, 4 * 3 - 1) == ("s", "t")
    assert boundaries(program, None, 4 * 12 - 1, max_nesting=2) == (), "three would never nest"
    for capacity in (11, 15, 47, 48):
        check(program, capacity)


def test_a_value_of_one_point_under_a_pad_needs_no_row() -> None:
    """Where the guard holds there is one value; its axis is as long as the padded one."""
    program = load(
        source("x", 1, 5),
        total("s", "x", 1),
        op("e", "EXP2", "s"),
        op("p", "PAD", "e", pad=[[2, 3]], value=1),
        total("u", "p", 0, op_="MAX"),
    )
    assert boundaries(program, None, 4) == ()
    check(program, 4)
    assert len(extracted(program)) == 1


@pytest.mark.spec("004-127")
@pytest.mark.parametrize("size", [8, 24])
def test_attention(size: int) -> None:
    program = tinyc.load(EXAMPLES[0].parent / "attention.json")
    program = bind(program, dict.fromkeys(program.symbols, size))
    assert boundaries(program, None, 1 << 20) == ()
    scores, *_ = (node.id for node in program.nodes if node.uop == "REDUCE")
    last = max(int(extent) for extent in program.types[scores].shape)
    assert scores in boundaries(program, None, 4 * last - 1)
    for capacity in (4 * last - 1, 4 * last):
        check(program, capacity)


def test_every_sum_of_a_chain_of_residuals() -> None:
    """Each sum is part of every later value; only along the rows do they vary."""
    uops = [source("x", 16, 16)]
    for number in range(60):
        before = "x" if number == 0 else f"y{number - 1}"
        uops += [
            total(f"s{number}", before, 1),
            op(f"r{number}", "RESHAPE", f"s{number}", result_shape=[16, 1]),
            op(f"e{number}", "EXPAND", f"r{number}", result_shape=[16, 16]),
            op(f"y{number}", "ADD", before, f"e{number}"),
        ]
    program = load(*uops)
    assert boundaries(program, None, 64) == ()
    turned = load(*uops, op("p", "PERMUTE", "y59", perm=[1, 0]), total("last", "p", 1))
    assert len(boundaries(turned, None, 63)) == 60


@pytest.mark.spec("004-087", "004-127")
@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_every_region_of_the_examples(example: Path) -> None:
    program = tinyc.load(example)
    if program.symbols:
        program = bind(program, {symbol: 8 + number for number, symbol in enumerate(program.symbols)})
    check(program, 1 << 20)


@pytest.mark.spec("004-087", "004-101", "004-127")
@pytest.mark.parametrize("part", range(4))
def test_every_region_of_random_programs(part: int) -> None:
    programs = 0
    for seed in range(part * 38, part * 38 + 38):
        generator = random.Random(seed)
        maker = Maker(generator.randrange, 4)
        for _ in range(2 * (seed % 2)):
            if generator.randrange(2):
                maker.softmax()
            for step in (maker.movement, maker.reduce):
                step(maker.some() or "")
        try:
            program = tinyc.load(maker.document())
        except TinycError:
            continue  # the maker's last node was no output
        check(program, CAPACITIES[seed // 2 % 4])
        programs += 1
    assert programs > 34
