"""The IndexBook is right: every node's value is what its entry gathers, at every point, bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from book_programs import bound_book, check_values, checked_book, conv_s2_p1, leaf, op, program_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_programs import Maker, random_inputs

import tinyc
from tinyc.index.book_json import book_from_json, book_to_json
from tinyc.index.derive import index_book
from tinyc.index.ranges import operations
from tinyc.ir import bind, dumps, parse_json
from tinyc.ir.dims import to_affine

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SIZES = {"M": 5, "N": 3, "K": 4, "B": 2, "H": 3, "D": 4, "W": 6, "T": 3}


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    return Maker(lambda n: draw(st.integers(0, n - 1)), 10).document()


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(documents(), st.integers(0, 2**16))
def test_random_programs_are_gathered_through_their_books(document: dict[str, Any], seed: int) -> None:
    program = tinyc.load(document)
    check_values(program, random_inputs(program, seed))
    text = dumps(book_to_json(index_book(program)))
    read = book_from_json(parse_json(text))
    assert read == index_book(program)
    assert dumps(book_to_json(read)) == text


NAMES = [path.name for path in sorted(EXAMPLES.glob("*.json"))]


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_gathered_through_their_books(name: str) -> None:
    program = tinyc.load(EXAMPLES / name)
    program = bind(program, {symbol: SIZES[symbol] for symbol in program.symbols})
    assert check_values(program, random_inputs(program, 7)) > 0


@pytest.mark.parametrize("name", NAMES)
def test_examples_with_their_symbols_have_a_book_that_passes(name: str) -> None:
    program = tinyc.load(EXAMPLES / name)
    book = checked_book(program)
    assert list(book.values) == [node.id for node in program.nodes]
    text = dumps(book_to_json(book))
    assert dumps(book_to_json(book_from_json(parse_json(text)))) == text
    assert text == dumps(book_to_json(checked_book(program)))  # deterministic


@pytest.mark.parametrize("name", NAMES)
def test_symbolic_books_hold_for_numbers_too(name: str) -> None:
    program = tinyc.load(EXAMPLES / name)
    sizes = {symbol: SIZES[symbol] for symbol in program.symbols}
    if sizes:
        numbers = bind(program, sizes)
        check_values(numbers, random_inputs(numbers, 7), bound_book(index_book(program), sizes))


@pytest.mark.spec("I-27")
@pytest.mark.parametrize("size", [5, 6])
def test_a_strided_window_of_a_padded_image_reads_the_right_rows(size: int) -> None:
    program = bind(conv_s2_p1(), {"N": 2, "C": 3, "H": size, "W": 11 - size})
    check_values(program, random_inputs(program, 3))


def chain(steps: int) -> list[dict[str, Any]]:
    """RESHAPEs that do not divide each other, with a PERMUTE between so that they do not merge."""
    uops = [leaf("x", 5, 7)]
    for step in range(steps):
        uops.append(op(f"t{step}", "PERMUTE", uops[-1]["id"], perm=[1, 0]))
        uops.append(op(f"r{step}", "RESHAPE", f"t{step}", result_shape=[5, 7]))
    return uops


@pytest.mark.spec("004-048")
def test_a_ladder_of_reshapes_grows_no_faster_than_it_is_long() -> None:
    program = program_of(*chain(64))
    longest = max(
        sum(operations(to_affine(entry)) for entry in access.map)
        for info in checked_book(program).values.values()
        for access in info.inputs
    )
    assert 8 < longest <= 32
    check_values(program, random_inputs(program, 1))


def test_a_stencil_reads_each_step_apart() -> None:
    uops = [leaf("x0", 40)]
    for step in range(12):
        size = 40 - 2 * step
        taps = [op(f"s{step}_{at}", "SHRINK", f"x{step}", lo=[at], hi=[size - 2 + at]) for at in range(3)]
        uops += [*taps, op(f"p{step}", "ADD", taps[0]["id"], taps[1]["id"])]
        uops.append(op(f"x{step + 1}", "ADD", f"p{step}", taps[2]["id"]))
    program = program_of(*uops)
    assert [access.map for access in checked_book(program).values["p11"].inputs] == [("i0",), ("i0+1",)]
    check_values(program, random_inputs(program, 1))


def test_windows_of_windows_of_windows() -> None:
    uops, rank, size = [leaf("v0", 64)], 1, 64
    for step in range(5):
        size = (size - 3) // 2 + 1
        index = {"map": ["2*i0+i1", *(f"i{axis}" for axis in range(2, rank + 1))]}
        shape = [size, 3, *([3] * (rank - 1))]
        uops.append(op(f"v{step + 1}", "VIEW", f"v{step}", result_shape=shape, index_map=index))
        rank += 1
    program = program_of(*uops)
    assert checked_book(program).values["v5"].inputs[0].value_id == "v0"
    check_values(program, {"v0": np.arange(64, dtype=np.float32)})
