"""What the IndexBook says of each uop (document 004 §4.4), and the three dumps of §4.5 as the resolutions have them."""

from __future__ import annotations

import numpy as np
import pytest
from book_programs import (
    GEMM,
    book_of,
    bound_book,
    check_values,
    checked_book,
    conv_s2_p1,
    kinds,
    leaf,
    masked_scores,
    op,
    program_of,
    reads,
)

from tinyc.index.book_json import book_to_json
from tinyc.index.invariants import notes
from tinyc.ir import TinycError, bind
from tinyc.ir.tiny import Program

# --- the dumps of §4.5 ---------------------------------------------------------------------------------------


@pytest.mark.spec("004-036", "004-038", "004-040", "004-045", "004-057", "I-24")
def test_gemm() -> None:
    book = book_to_json(checked_book(GEMM))
    ids = {id: [axis["id"] for axis in entry["axes"]] for id, entry in book.items()}
    assert book["T"] == {
        "axes": [
            {"id": ids["T"][0], "name": "i0", "size": "M", "kind": "iter"},
            {"id": ids["T"][1], "name": "i1", "size": "N", "kind": "iter"},
            {"id": ids["T"][2], "name": "i2", "size": "K", "kind": "iter"},
        ],
        "domain": {"constraints": [["0<=i0", "i0<M"], ["0<=i1", "i1<N"], ["0<=i2", "i2<K"]]},
        "inputs": [{"value_id": "A", "map": ["i0", "i2"]}, {"value_id": "B", "map": ["i2", "i1"]}],
    }
    assert book["C0"] == {
        "axes": [
            {"id": ids["C0"][0], "name": "i0", "size": "M", "kind": "iter"},
            {"id": ids["C0"][1], "name": "i1", "size": "N", "kind": "iter"},
        ],
        "domain": {"constraints": [["0<=i0", "i0<M"], ["0<=i1", "i1<N"]]},
        "inputs": [{"value_id": "T", "map": ["i0", "i1", "r0"]}],
        "reduce_axes": [ids["T"][2]],
        "reduced": [{"id": ids["T"][2], "name": "r0", "size": "K", "kind": "reduce"}],
    }
    every = [id for axes in ids.values() for id in axes]
    assert every == list(range(len(every)))


@pytest.mark.spec("004-039", "004-056", "004-058", "I-27", "I-28")
def test_conv() -> None:
    book = checked_book(conv_s2_p1())
    assert reads(book, "Xv") == [("Xp", "i0", "i1", "2*i2+i4", "2*i3+i5")]
    assert [piece.constraints[2:4] for piece in book.values["Xv"].pieces] == [
        (("0<=i2", "i2<(H+1)//2"), ("0<=i3", "i3<(W+1)//2"))
    ]
    centre, *border = book.values["Xp"].pieces
    assert centre.constraints[2:] == (("1<=i2", "i2<H+1"), ("1<=i3", "i3<W+1"))
    assert [(access.value_id, *access.map) for access in centre.inputs] == [("X", "i0", "i1", "i2-1", "i3-1")]
    assert {piece.constraints[2:] for piece in border} == {
        (("0<=i2", "i2<1"), ("0<=i3", "i3<W+2")),
        (("H+1<=i2", "i2<H+2"), ("0<=i3", "i3<W+2")),
        (("1<=i2", "i2<H+1"), ("0<=i3", "i3<1")),
        (("1<=i2", "i2<H+1"), ("W+1<=i3", "i3<W+2")),
    }
    assert all(piece.inputs == () and piece.value == 0 for piece in border)
    entry = book_to_json(book)["Xp"]
    assert entry["domain"]["pieces"][0]["inputs"] == entry["inputs"]
    assert entry["domain"]["pieces"][1]["value"] == 0
    assert entry["chain_pieces"] == 5


@pytest.mark.spec("004-044", "I-29")
@pytest.mark.parametrize(
    ("mask", "map"),
    [
        ((1, 1, "M", "N"), ("0", "0", "i2", "i3")),
        (("B", 1, 1, "N"), ("i0", "0", "0", "i3")),
        ((1, 1, 1, 1), ("0", "0", "0", "0")),
        (("B", "H", "M", "N"), ("i0", "i1", "i2", "i3")),
    ],
)
def test_masks(mask: tuple[int | str, ...], map: tuple[str, ...]) -> None:
    book = checked_book(masked_scores(*mask))
    assert reads(book, "S_masked") == [("S", "i0", "i1", "i2", "i3"), ("mask", *map)]
    assert kinds(book, "S_masked") == "iiii"
    assert kinds(book, "spread") == "".join("b" if entry == "0" else "i" for entry in map)


# --- one rule at a time --------------------------------------------------------------------------------------


@pytest.mark.spec("004-049", "004-050")
def test_leaf_and_unary() -> None:
    book = book_of(leaf("x", "M", 1, 4), op("y", "EXP2", "x"), op("z", "CAST", "y", to="fp16"))
    (piece,) = book.values["x"].pieces
    assert piece.constraints == (("0<=i0", "i0<M"), ("0<=i1", "i1<1"), ("0<=i2", "i2<4"))
    assert reads(book, "x") == []
    assert reads(book, "y") == [("x", "i0", "i1", "i2")]
    assert reads(book, "z") == [("y", "i0", "i1", "i2")]
    assert kinds(book, "z") == "iii"


@pytest.mark.spec("004-051", "004-028", "I-19")
def test_a_broadcast_that_the_importer_inserts_reads_zero() -> None:
    """The loose form of document 004 §3.5: operands of different rank, right-aligned."""
    tensors = {
        "x": {"dtype": "fp32", "shape": ["B", "M", 8]},
        "row": {"dtype": "fp32", "shape": [8]},
        "column": {"dtype": "fp32", "shape": ["M", 1]},
    }
    uops = [
        {"uop": "ADD", "src": ["x", "row"], "out": "y"},
        {"uop": "MUL", "src": ["y", "column"], "out": "z"},
    ]
    book = book_of(*uops, tensors=tensors)
    assert [entry[1:] for entry in reads(book, "y")] == [("i0", "i1", "i2"), ("i2",)]
    assert [entry[1:] for entry in reads(book, "z")] == [("i0", "i1", "i2"), ("i1", "0")]


@pytest.mark.spec("004-051")
def test_two_sizes_that_do_not_broadcast_are_refused() -> None:
    with pytest.raises(TinycError) as caught:
        program_of(leaf("x", "M", "K"), leaf("y", "M", "N"), op("z", "ADD", "x", "y"))
    assert caught.value.code == "E1001"


def test_where_reads_its_three_operands_and_no_immediates() -> None:
    book = book_of(
        leaf("c", 4, dtype="bool"), leaf("x", 4), op("y", "WHERE", "c", 0.5, "x"), op("z", "MAX", 0.0, "y")
    )
    assert reads(book, "y") == [("c", "i0"), ("x", "i0")]
    assert reads(book, "z") == [("y", "i0")]


@pytest.mark.spec("004-052")
def test_permute() -> None:
    book = book_of(leaf("x", "A", "B", "C"), op("y", "PERMUTE", "x", perm=[2, 0, 1]))
    assert reads(book, "y") == [("x", "i1", "i2", "i0")]


@pytest.mark.spec("004-054")
def test_expand() -> None:
    book = book_of(leaf("x", "M", 1), op("y", "EXPAND", "x", result_shape=["M", "N"]))
    assert reads(book, "y") == [("x", "i0", "0")]
    assert kinds(book, "y") == "ib"
    assert book.values["y"].pieces[0].constraints == (("0<=i0", "i0<M"), ("0<=i1", "i1<N"))


@pytest.mark.spec("004-055", "I-21")
def test_shrink_with_a_step_is_affine() -> None:
    book = book_of(leaf("x", 10, "M"), op("y", "SHRINK", "x", lo=[1, 2], hi=[9, "M"], step=[3, 1]))
    assert reads(book, "y") == [("x", "3*i0+1", "i1+2")]
    assert [axis.size for axis in book.values["y"].axes] == [3, "M-2"]


@pytest.mark.spec("004-032", "I-20")
def test_flip_is_affine_and_no_error() -> None:
    book = book_of(leaf("x", 4, "M"), op("y", "FLIP", "x", axes=[0, 1]), op("z", "FLIP", "y", axes=[0, 1]))
    assert reads(book, "y") == [("x", "-i0+3", "M-i1-1")]
    assert reads(book, "z") == [("x", "i0", "i1")]


def test_view() -> None:
    index = {"map": ["i0//2", "i1+2*i2", 0]}
    book = book_of(leaf("x", 3, 9, 5), op("y", "VIEW", "x", result_shape=[6, 4, 3], index_map=index))
    assert reads(book, "y") == [("x", "i0//2", "i1+2*i2", "0")]


@pytest.mark.spec("004-057", "004-045")
def test_reduce_keeps_the_ids_of_what_goes() -> None:
    book = book_of(leaf("x", "A", 2, "B", 3), op("y", "REDUCE", "x", op="SUM", axes=[-1, 1], dtype="fp32"))
    entry = book.values["y"]
    assert [axis.name for axis in entry.axes] == ["i0", "i1"]
    assert [axis.size for axis in entry.axes] == ["A", "B"]
    assert [(axis.name, axis.size, axis.kind) for axis in entry.reduced] == [
        ("r0", 2, "reduce"),
        ("r1", 3, "reduce"),
    ]
    before = [axis.id for axis in book.values["x"].axes]
    assert entry.reduce_axes == (before[1], before[3])
    assert reads(book, "y") == [("x", "i0", "r0", "i1", "r1")]


def test_a_reduce_through_movement_reads_what_is_behind_it() -> None:
    book = book_of(
        leaf("x", 6, 4),
        op("t", "PERMUTE", "x", perm=[1, 0]),
        op("s", "RESHAPE", "t", result_shape=[4, 2, 3]),
        op("y", "REDUCE", "s", op="MAX", axes=[0, 2], dtype="fp32"),
    )
    assert reads(book, "y") == [("x", "3*i0+r1", "r0")]


def test_a_symbol_may_have_the_name_of_a_reduce_axis() -> None:
    book = book_of(leaf("x", "r0", "r1"), op("y", "REDUCE", "x", op="SUM", axes=[1], dtype="fp32"))
    (axis,) = book.values["y"].reduced
    assert (axis.name, axis.size) == ("r_0", "r1")
    assert reads(book, "y") == [("x", "i0", "r_0")]


@pytest.mark.spec("004-027", "004-056")
def test_a_pad_of_a_pad_reads_the_inner_pad() -> None:
    book = book_of(
        leaf("x", 4),
        op("p", "PAD", "x", pad=[[1, 0]], value=-1.5),
        op("s", "SHRINK", "p", lo=[1], hi=[5]),
        op("q", "PAD", "s", pad=[[0, 2]], value=2),
    )
    assert reads(book, "s") == [("p", "i0+1")]
    assert [(piece.constraints, piece.value) for piece in book.values["q"].pieces] == [
        ((("0<=i0", "i0<4"),), None),
        ((("4<=i0", "i0<6"),), 2),
    ]
    assert reads(book, "q") == [("p", "i0+1")]
    assert book.values["q"].chain_pieces == 3


@pytest.mark.parametrize(
    ("low", "high", "pieces"),
    [
        (1, 3, [(1, 3, True), (0, 1, False), (3, 5, False)]),
        (-2, 9, [(0, 5, True)]),
        (4, 2, [(0, 5, False)]),
        (7, 9, [(0, 5, False)]),
    ],
)
def test_valid_is_true_within_its_box(low: int, high: int, pieces: list[tuple[int, int, bool]]) -> None:
    program = program_of({"id": "v", "uop": "VALID", "arg": {"result_shape": [5], "lo": [low], "hi": [high]}})
    found = checked_book(program).values["v"].pieces
    assert [(piece.constraints, piece.value) for piece in found] == [
        (((f"{first}<=i0", f"i0<{last}"),), value) for first, last, value in pieces
    ]
    check_values(program, {})


def test_pads_of_symbolic_width() -> None:
    program = program_of(leaf("x", "M", 3), op("y", "PAD", "x", pad=[["P", 0], [0, "Q"]], value=1))
    book = checked_book(program)
    assert reads(book, "y") == [("x", "-P+i0", "i1")]
    sizes = {"M": 4, "P": 2, "Q": 3}
    numbers = bind(program, sizes)
    check_values(numbers, {"x": np.arange(12, dtype=np.float32).reshape(4, 3)}, bound_book(book, sizes))


# --- reshapes ------------------------------------------------------------------------------------------------


def reshaped(before: list[int | str], *after: list[int | str]) -> Program:
    uops = [leaf("x0", *before)]
    for step, shape in enumerate(after, 1):
        uops.append(op(f"x{step}", "RESHAPE", f"x{step - 1}", result_shape=shape))
    return program_of(*uops)


@pytest.mark.spec("004-053", "I-25")
@pytest.mark.parametrize(
    ("before", "after", "map"),
    [
        ([12], [3, 4], ("4*i0+i1",)),
        ([3, 4], [12], ("i0//4", "i0-4*(i0//4)")),
        ([2, 3, 4], [6, 4], ("i0//3", "i0-3*(i0//3)", "i1")),
        ([2, 3, 4], [2, 12], ("i0", "i1//4", "i1-4*(i1//4)")),
        ([6, 4], [2, 3, 2, 2], ("3*i0+i1", "2*i2+i3")),
        ([4, 6], [6, 4], ("(2*i0)//3+i1//6", None)),
        ([5, 7], [7, 5], ("(5*i0+i1)//7", "5*i0+i1-7*((5*i0+i1)//7)")),
        ([1, 5, 1], [5, 1, 1], ("0", "i0", "0")),
        ([1], [], ("0",)),
        ([], [1, 1], ()),
        (["M", "K"], ["M", 1, "K"], ("i0", "i2")),
        (["M", 1, "K", 1], ["M", "K"], ("i0", "0", "i1", "0")),
        (["B", "4*H"], ["B", "H", 4], ("i0", "4*i1+i2")),
        (["B", "H", 4], ["B", "4*H"], ("i0", "i1//4", "i1-4*(i1//4)")),
        (["2*M", 3], ["M", 6], ("2*i0+i1//3", "i1-3*(i1//3)")),
        (["M*N", 5], ["M*N", 5, 1], ("i0", "i1")),
    ],
)
def test_reshape(before: list[int | str], after: list[int | str], map: tuple[str | None, ...]) -> None:
    program = reshaped(before, after)
    book = checked_book(program)
    ((_, *found),) = reads(book, "x1")
    if None not in map:
        assert tuple(found) == map
    sizes = {symbol: size for symbol, size in zip(program.symbols, (3, 2, 5), strict=False)}
    numbers = bind(program, sizes)
    shape = tuple(int(size) for size in numbers.types["x0"].shape)
    values = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    check_values(numbers, {"x0": values}, bound_book(book, sizes))


@pytest.mark.spec("I-26", "004-046", "004-031")
def test_a_split_by_a_symbol_keeps_its_map_and_is_no_scop() -> None:
    program = program_of(
        leaf("x0", "B", "H*D"),
        op("x1", "RESHAPE", "x0", result_shape=["B", "H", "D"]),
        op("y", "PERMUTE", "x1", perm=[1, 0, 2]),
        op("z", "RELU", "y"),
    )
    book = checked_book(program)
    assert reads(book, "x1") == [("x0", "i0", "D*i1+i2")]
    assert "non_scop" in book.values["x1"].flags
    assert [(note.code, note.at["value"]) for note in notes(book)] == [("E1301", "x0"), ("E1301", "x1")]
    assert notes(book)[1].details == {"symbols": ["D"]}
    # a Region ends there: what follows is affine again, and reads x1 itself
    assert reads(book, "z") == [("x1", "i1", "i0", "i2")]
    assert book.values["z"].flags == frozenset()
    # with the symbol of the stride bound, nothing is left of it
    some = checked_book(bind(program, {"D": 8}))
    assert reads(some, "z") == [("x0", "i1", "8*i0+i2")]
    assert notes(some) == ()


@pytest.mark.spec("I-26")
def test_a_merge_by_a_symbol_has_no_map_and_its_split_has_one() -> None:
    book = checked_book(reshaped(["B", "H", "D"], ["B", "H*D"], ["B", "H", 1, "D"]))
    assert reads(book, "x1") == [("x0",)]
    assert "non_scop" in book.values["x1"].flags
    (note,) = notes(book)
    assert note.at["value"] == "x1" and note.details == {"symbols": ["D", "H"]}
    assert reads(book, "x2") == [("x0", "i0", "i1", "i3")]
    assert book.values["x2"].flags == frozenset()


def test_a_view_with_a_symbolic_stride_is_no_scop() -> None:
    index = {"map": ["M*i0+i1"]}
    book = book_of(leaf("x", "M*N"), op("y", "VIEW", "x", result_shape=["N", "M"], index_map=index))
    assert reads(book, "y") == [("x", "M*i0+i1")]
    assert "non_scop" in book.values["y"].flags


def test_an_axis_that_is_not_cut_may_have_any_size() -> None:
    """isl cannot hold G*C, and need not: only i1 is cut."""
    book = book_of(leaf("x", "G*C", "H"), op("y", "PAD", "x", pad=[[0, 0], [1, 2]], value=-1))
    assert [(piece.constraints, piece.value) for piece in book.values["y"].pieces] == [
        ((("0<=i0", "i0<C*G"), ("1<=i1", "i1<H+1")), None),
        ((("0<=i0", "i0<C*G"), ("0<=i1", "i1<1")), -1),
        ((("0<=i0", "i0<C*G"), ("H+1<=i1", "i1<H+3")), -1),
    ]
    assert book.values["y"].flags == {"non_scop"}
