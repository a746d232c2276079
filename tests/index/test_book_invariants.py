"""Every invariant of document 004 §4.3 is broken once in a book made by hand, and the check says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from book_programs import GEMM, book_of, checked_book, conv_s2_p1, leaf, op, program_of

from tinyc.index.align import align_params
from tinyc.index.book import NON_SCOP, Access, AxisVar, IndexBook, IndexInfo, Piece
from tinyc.index.derive import index_book
from tinyc.index.invariants import check_book, notes
from tinyc.ir import Program, TinycError, dims
from tinyc.ir.verify import WARN_PIECES, warnings

CONV = conv_s2_p1()
Change = Callable[[IndexInfo], IndexInfo]

#: a value with an integer box, one with a fold, one that repeats its input
SMALL = program_of(
    leaf("x", 6, 1),
    op("y", "EXPAND", "x", result_shape=[6, 4]),
    op("m", "RESHAPE", "y", result_shape=[24]),
    op("z", "RELU", "m"),
    op("p", "PAD", "z", pad=[[1, 2]], value=3),
)


def changed(program: Program, id: str, change: Change) -> IndexBook:
    book = index_book(program)
    return replace(book, values={**book.values, id: change(book.values[id])})


def fault(program: Program, id: str, change: Change) -> TinycError:
    with pytest.raises(TinycError) as caught:
        check_book(changed(program, id, change), program)
    assert caught.value.at == {"layer": "indexbook", "value": id}
    assert caught.value.suggestion
    return caught.value


def reading(number: int, *map: str) -> Change:
    """Input ``number`` is read at ``map``."""

    def change(info: IndexInfo) -> IndexInfo:
        inputs = list(info.inputs)
        inputs[number] = Access(inputs[number].value_id, map)
        return replace(info, inputs=tuple(inputs))

    return change


def normal(map: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(dims.parse(entry)) for entry in map)


def with_axis(number: int, **fields: object) -> Change:
    def change(info: IndexInfo) -> IndexInfo:
        axes = list(info.axes)
        axes[number] = replace(axes[number], **fields)  # type: ignore[arg-type]
        return replace(info, axes=tuple(axes))

    return change


@pytest.mark.parametrize("program", [GEMM, CONV, SMALL])
def test_books_that_tinyc_derives_pass(program: Program) -> None:
    check_book(align_params(index_book(program), program), program)


@pytest.mark.spec("004-042", "004-037", "004-149")
@pytest.mark.parametrize("entry", ["i0%4", "2*(i0 % 3)"])
def test_a_remainder_is_refused(entry: str) -> None:
    error = fault(SMALL, "z", reading(0, entry, "0"))
    assert (error.code, error.kind) == ("E1203", "MissingDivGuard")


@pytest.mark.spec("004-047")
@pytest.mark.parametrize(
    ("entry", "lowest"),
    [
        ("(2*i0)//8", "i0//4"),
        ("(4*i0+2)//4", "i0"),
        ("i0+0", "i0"),
        ("(i0//2)//2", "i0//4"),
        ("(5*i0)//4", "i0+i0//4"),
        ("(i0)//4", "i0//4"),
    ],
)
def test_divisions_are_in_lowest_terms(entry: str, lowest: str) -> None:
    error = fault(SMALL, "z", reading(0, entry, "0"))
    assert error.kind == "MalformedDocument" and lowest in error.suggestion


@pytest.mark.spec("004-047")
@pytest.mark.parametrize("entry", ["i0//0", "i0//-4", "i0//M", "i0 i1", "", "2*"])
def test_denominators_are_positive_integers(entry: str) -> None:
    assert fault(SMALL, "z", reading(0, entry, "0")).kind == "MalformedDocument"


@pytest.mark.spec("004-043")
@pytest.mark.parametrize(
    "change",
    [
        with_axis(1, name="i2"),
        with_axis(0, name="m"),
        lambda info: replace(info, axes=info.axes[::-1]),
    ],
)
def test_axes_are_named_consecutively(change: Change) -> None:
    assert fault(SMALL, "y", change).code == "E1304"


def test_ids_are_of_one_axis_only() -> None:
    assert fault(SMALL, "y", with_axis(1, id=0)).kind == "AxisAlignmentMismatch"


@pytest.mark.spec("004-044")
def test_a_broadcast_reads_constant_zero() -> None:
    assert fault(SMALL, "y", reading(0, "i0", "i1")).kind == "BroadcastMismatch"
    assert fault(SMALL, "y", reading(0, "i0", "i1//4")).kind == "BroadcastMismatch"
    assert fault(SMALL, "m", with_axis(0, kind="broadcast")).kind == "BroadcastMismatch"


@pytest.mark.spec("004-045")
def test_a_reduce_removes_its_axes_and_keeps_their_ids() -> None:
    def other_id(info: IndexInfo) -> IndexInfo:
        return replace(info, reduced=(replace(info.reduced[0], id=900),))

    def left(info: IndexInfo) -> IndexInfo:
        return replace(info, axes=(*info.axes[:1], replace(info.axes[1], kind="reduce")))

    assert fault(GEMM, "C0", other_id).kind == "AxisAlignmentMismatch"
    assert fault(GEMM, "C0", lambda info: replace(info, reduced=())).kind == "AxisAlignmentMismatch"
    assert fault(GEMM, "C0", left).kind == "AxisAlignmentMismatch"


@pytest.mark.spec("004-046")
def test_what_is_not_affine_is_marked() -> None:
    view = op("y", "VIEW", "x", result_shape=["N", "M"], index_map={"map": ["M*i0+i1"]})
    program = program_of(leaf("x", "M*N"), view)
    unmarked: Change = lambda info: replace(info, flags=frozenset())  # noqa: E731
    assert index_book(program).values["y"].flags == {NON_SCOP}
    assert fault(program, "y", unmarked).kind == "NonSCoP"
    assert fault(program, "x", unmarked).kind == "NonSCoP"
    assert [note.at["value"] for note in check_book(index_book(program), program)] == ["x", "y"]
    assert notes(checked_book(GEMM)) == ()


@pytest.mark.parametrize(
    ("program", "id", "map"),
    [
        (SMALL, "z", ("i0//3", "0")),
        (SMALL, "z", ("i0//4-1", "0")),
        (SMALL, "z", ("i0-4*(i0//4)+3", "0")),
        (SMALL, "z", ("24-i0", "0")),
        (SMALL, "z", ("i0-5*((i0+1)//5)", "0")),
        (GEMM, "T", ("i0+M", "i2")),
        (GEMM, "T", ("-i0-1", "i2")),
        (CONV, "Xv", ("i0", "i1", "2*i2+i4+H", "2*i3+i5")),
    ],
)
def test_an_index_outside_of_its_input_is_refused(program: Program, id: str, map: tuple[str, ...]) -> None:
    assert fault(program, id, reading(0, *normal(map))).kind == "OutOfBoundsMap"


@pytest.mark.parametrize(
    ("id", "map"),
    [
        ("m", ("i0//4", "0")),
        ("z", ("-(i0//4)+5", "0")),
        ("z", ("i0//5+i0//20", "0")),
        ("z", ("i0//3-2*(i0//12)", "0")),  # 0 to 5, which no interval shows
    ],
)
def test_an_index_inside_is_let_pass(id: str, map: tuple[str, ...]) -> None:
    check_book(changed(SMALL, id, reading(0, *normal(map))), SMALL)


def test_the_window_of_the_uncorrected_conv_is_refused() -> None:
    """I-27: −1 on the padded tensor leaves it."""
    shifted = reading(0, "i0", "i1", "2*i2+i4-1", "2*i3+i5-1")
    numbers = program_of(
        leaf("Xp", 7),
        op("Xv", "VIEW", "Xp", result_shape=[3, 3], index_map={"map": ["2*i0+i1"]}),
    )
    assert fault(numbers, "Xv", reading(0, "2*i0+i1-1")).kind == "OutOfBoundsMap"
    assert fault(CONV, "Xv", shifted).kind == "OutOfBoundsMap"


def test_maps_have_one_entry_per_axis_of_a_value_that_exists() -> None:
    assert fault(SMALL, "z", reading(0, "i0//4")).kind == "MalformedDocument"
    renamed: Change = lambda info: replace(info, inputs=(Access("w", ("i0//4", "0")),))  # noqa: E731
    assert fault(SMALL, "z", renamed).kind == "UnknownReference"


def border(*constraints: tuple[str, ...], value: float = 3) -> Change:
    """The pieces of a PAD: its centre, then one with these constraints."""
    return lambda info: replace(info, pieces=(info.pieces[0], Piece(constraints, (), value)))


@pytest.mark.spec("004-039", "I-28")
@pytest.mark.parametrize(
    ("constraint", "fault_of"),
    [
        (("0<=i0", "i0<1"), "do not hold every point"),
        (("0<=i0", "i0<27"), "hold one point"),
        (("25<=i0", "i0<28"), "leaves the box"),
        (("i0",), "neither"),
    ],
)
def test_pieces_hold_every_point_once(constraint: tuple[str, ...], fault_of: str) -> None:
    error = fault(SMALL, "p", border(constraint))
    assert error.kind == "MalformedDocument" and fault_of in error.why


def test_a_piece_reads_what_its_value_reads() -> None:
    def change(info: IndexInfo) -> IndexInfo:
        centre = replace(info.pieces[0], inputs=(Access("z", ("i0",)),))
        return replace(info, pieces=(centre, *info.pieces[1:]))

    assert fault(SMALL, "p", change).kind == "MalformedDocument"


@pytest.mark.spec("I-09", "I-47")
def test_too_many_pieces() -> None:
    assert fault(SMALL, "p", lambda info: replace(info, chain_pieces=257)).code == "E1014"
    pads = [leaf("p0", 4)]
    pads += [op(f"p{step + 1}", "PAD", f"p{step}", pad=[[1, 1]]) for step in range(WARN_PIECES // 2)]
    program = program_of(*pads)
    assert checked_book(program).values[f"p{WARN_PIECES // 2}"].chain_pieces == WARN_PIECES + 1
    (warning,) = warnings(program)
    assert (warning.code, warning.details["pieces"]) == ("W2101", WARN_PIECES + 1)


# --- alignment with the signature ----------------------------------------------------------------------------


def misaligned(program: Program, id: str, change: Change) -> TinycError:
    with pytest.raises(TinycError) as caught:
        align_params(changed(program, id, change), program)
    assert (caught.value.code, caught.value.kind) == ("E1304", "AxisAlignmentMismatch")
    assert caught.value.at == {"layer": "indexbook", "value": id}
    return caught.value


@pytest.mark.spec("004-041", "I-47", "004-151")
def test_sizes_are_those_of_the_signature() -> None:
    error = misaligned(GEMM, "T", with_axis(2, size="N"))
    assert error.details == {"axis": "i2", "book_size": "N", "program_size": "K"}
    assert "i2" in error.why and " N " in error.why and " K " in error.why
    error = misaligned(SMALL, "z", with_axis(0, size=25))
    assert error.details == {"axis": "i0", "book_size": 25, "program_size": 24}


@pytest.mark.spec("004-041")
def test_sizes_of_reduce_axes_too() -> None:
    other: Change = lambda info: replace(info, reduced=(replace(info.reduced[0], size=8),))  # noqa: E731
    assert misaligned(GEMM, "C0", other).details["axis"] == "r0"
    gone: Change = lambda info: replace(info, reduced=())  # noqa: E731
    assert "0 reduced" in misaligned(GEMM, "C0", gone).why
    extra: Change = lambda info: replace(info, reduced=(AxisVar(99, "r0", 2, "reduce"),))  # noqa: E731
    assert "reduce axes" in misaligned(GEMM, "T", extra).why


@pytest.mark.spec("004-041")
@pytest.mark.parametrize(
    "change",
    [
        reading(0, "i0", "L-i2"),
        reading(0, "i0", "r0"),
        lambda info: replace(info, pieces=(Piece((("0<=i0", "i0<L"),)),)),
    ],
)
def test_symbols_are_those_of_the_signature(change: Change) -> None:
    error = misaligned(GEMM, "T", change)
    assert error.details["symbol"] in ("L", "r0") and "K, M, N" in error.suggestion


@pytest.mark.spec("004-041")
def test_a_book_of_another_program() -> None:
    book = index_book(GEMM)
    for values in ({**book.values, "extra": book.values["A"]}, {"A": book.values["A"]}):
        with pytest.raises(TinycError) as caught:
            align_params(replace(book, values=values), GEMM)
        assert caught.value.code == "E1304"
    one_axis_less = changed(GEMM, "T", lambda info: replace(info, axes=info.axes[:2]))
    with pytest.raises(TinycError, match="2 axes"):
        align_params(one_axis_less, GEMM)


def test_a_size_may_be_spelled_otherwise() -> None:
    program = program_of(leaf("x", "2*M+1"))
    book = changed(program, "x", with_axis(0, size="M+1+M"))
    assert align_params(replace(book, symbols=("L",)), program).symbols == ("M",)


def test_a_symbol_that_isl_knows_as_a_word() -> None:
    pad = op("y", "PAD", "x", pad=[["floor", 0]])
    assert book_of(leaf("x", "min"), pad).values["y"].inputs[0].map == ("i0-floor",)
