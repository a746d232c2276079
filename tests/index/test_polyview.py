"""Poly-View: what the blocks, their domains and accesses, the edges and the boundaries are (document 004 §5)."""

from __future__ import annotations

import dataclasses
import importlib.util
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import islpy as isl
import pytest
from random_programs import Maker

import tinyc
from tinyc.index.book import Access, IndexBook
from tinyc.index.derive import index_book
from tinyc.index.polyview import Block, PolyView, poly_view
from tinyc.ir.tiny import Program
from tinyc.ir.verify import bind

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
Document = Mapping[str, Any]


def view_of(document: Document | Program | Path, **sizes: int) -> PolyView:
    program = document if isinstance(document, Program) else tinyc.load(document)
    program = bind(program, sizes) if sizes else program
    return poly_view(program, index_book(program))


def port(id: str, *shape: int | str, dtype: str = "fp32") -> dict[str, Any]:
    return {"id": id, "uop": "INPUT", "arg": {"tensor_id": id, "dtype": dtype, "shape": list(shape)}}


def node(id: str, uop: str, *src: Any, **arg: Any) -> dict[str, Any]:
    return {"id": id, "uop": uop, "src": list(src), "arg": arg}


def total(id: str, source: str, *axes: int, op: str = "SUM") -> dict[str, Any]:
    return node(id, "REDUCE", source, op=op, axes=list(axes), dtype="fp32")


GEMM = {
    "uops": [
        port("A", "M", "K"),
        port("B", "K", "N"),
        node("A3", "RESHAPE", "A", result_shape=["M", 1, "K"]),
        node("Ax", "EXPAND", "A3", result_shape=["M", "N", "K"]),
        node("Bt", "PERMUTE", "B", perm=[1, 0]),
        node("B3", "RESHAPE", "Bt", result_shape=[1, "N", "K"]),
        node("Bx", "EXPAND", "B3", result_shape=["M", "N", "K"]),
        node("T", "MUL", "Ax", "Bx"),
        total("C0", "T", 2),
    ]
}


def same_set(one: str, other: str) -> bool:
    return bool(isl.Set(one).is_equal(isl.Set(other)))


def same_map(one: str, other: str) -> bool:
    return bool(isl.Map(one).is_equal(isl.Map(other)))


# ---- the dump of the document ----


@pytest.mark.spec("004-060", "004-066", "I-31")
def test_gemm_is_the_one_block_of_the_document() -> None:
    """Document 004 §5.2, with the parameters and the domain that I-31 wants."""
    view = view_of(GEMM)
    (block,) = view.blocks
    assert (block.name, block.kind, block.pieces) == ("C0", "contraction_pattern", ())
    assert block.domain == "[K, M, N] -> { [i0, i1, r0] : 0 <= i0 < M and 0 <= i1 < N and 0 <= r0 < K }"
    assert [(access.tensor, access.map) for access in block.accesses] == [
        ("A", "[K, M, N] -> { [i0, i1, r0] -> A[i0, r0] }"),
        ("B", "[K, M, N] -> { [i0, i1, r0] -> B[r0, i1] }"),
        ("C0", "[K, M, N] -> { [i0, i1, r0] -> C0[i0, i1] }"),
    ]
    assert block.attrs == {
        "pattern": "matmul",
        "lhs": "A",
        "rhs": "B",
        "lhs_idx": ["i0", "r0"],
        "rhs_idx": ["r0", "i1"],
        "out_idx": ["i0", "i1"],
        "reduce_idx": ["r0"],
        "roles": {"batch": [], "m": ["i0"], "n": ["i1"], "k": ["r0"]},
        "affine_offsets": {},
        "absorbs": ["T"],
    }
    assert view.boundaries == () and view.attention == () and view.aliases == {}


def test_gemm_with_sizes() -> None:
    (block,) = view_of(GEMM, M=4, N=6, K=8).blocks
    assert same_set(block.domain, "{ [i, j, k] : 0 <= i < 4 and 0 <= j < 6 and 0 <= k < 8 }")
    assert block.accesses[0].map == "{ [i0, i1, r0] -> A[i0, r0] }"


@pytest.mark.spec("004-095")
def test_an_accumulator_is_the_edge_of_a_contraction_to_itself() -> None:
    edges = view_of(GEMM).edges
    assert [(edge.source, edge.target, edge.kind, edge.tensor) for edge in edges] == [
        ("C0", "C0", kind, "C0") for kind in ("true", "anti", "output")
    ]
    for edge in edges:
        assert same_map(
            edge.relation,
            "[K, M, N] -> { C0[i, j, k] -> C0[i, j, l] : 0 <= i < M and 0 <= j < N and 0 <= k < l < K }",
        )


def test_edges_lead_from_what_is_written_to_what_reads_it() -> None:
    document = {"uops": [*GEMM["uops"], node("y", "RELU", "C0"), total("s", "y", 0)]}
    view = view_of(document)
    assert [(block.name, block.kind) for block in view.blocks] == [
        ("C0", "contraction_pattern"), ("y", "ewise"), ("s", "reduce"),
    ]  # fmt: skip
    between = [edge for edge in view.edges if edge.source != edge.target]
    assert [(edge.source, edge.target, edge.kind, edge.tensor) for edge in between] == [
        ("C0", "y", "true", "C0"), ("y", "s", "true", "y"),
    ]  # fmt: skip
    assert same_map(between[1].relation, "[K, M, N] -> { y[i, j] -> s[j, i] : 0 <= i < M and 0 <= j < N }")


# ---- movement ----


@pytest.mark.spec("004-060", "004-063")
def test_movement_is_in_the_accesses() -> None:
    document = {
        "uops": [
            port("x", 6, 8),
            node("p", "PERMUTE", "x", perm=[1, 0]),
            node("f", "FLIP", "p", axes=[0]),
            node("s", "SHRINK", "f", lo=[1, 0], hi=[8, 6], step=[2, 1]),
            node("y", "NEG", "s"),
        ]
    }
    (block,) = view_of(document).blocks
    assert (block.name, block.kind, block.attrs) == ("y", "ewise", {"op": "NEG"})
    assert same_map(block.accesses[0].map, "{ [i0, i1] -> x[i1, 6 - 2i0] }")
    assert block.accesses[1].map == "{ [i0, i1] -> y[i0, i1] }"


@pytest.mark.spec("004-063")
def test_floor_divisions_stay_divisions_and_bring_no_modulo() -> None:
    document = {
        "uops": [port("x", 4, 6), node("r", "RESHAPE", "x", result_shape=[3, 8]), node("y", "NEG", "r")]
    }
    (block,) = view_of(document).blocks
    text = block.accesses[0].map
    assert "floor" in text and "mod" not in text and "%" not in text
    cut = isl.Map(text).intersect_domain(isl.Set(block.domain))
    assert cut.is_equal(
        isl.Map("{ [i, j] -> x[k, l] : 6k + l = 8i + j and 0 <= l < 6 and 0 <= i < 3 and 0 <= j < 8 }")
    )


@pytest.mark.spec("004-062")
def test_the_border_of_a_pad_is_a_piece_of_its_own() -> None:
    document = {
        "uops": [port("x", "H"), node("p", "PAD", "x", pad=[[1, 2]], value=1.5), node("y", "NEG", "p")]
    }
    pad, negated = view_of(document).blocks
    assert (pad.name, pad.kind, pad.attrs) == ("p", "movement_affine", {"op": "PAD", "value": 1.5})
    some = isl.Set("[H] -> { [i] : H >= 1 }")  # symbols are at least 1, and texts do not say so again
    assert isl.Set(pad.domain).intersect(some).is_equal(isl.Set("[H] -> { [i] : 0 <= i < H + 3 and H >= 1 }"))
    assert isl.Set(pad.domain).n_basic_set() == len(pad.pieces) == 3
    inside, *border = (isl.Set(piece).intersect(some) for piece in pad.pieces)
    assert inside.is_equal(isl.Set("[H] -> { [i] : 1 <= i <= H }"))
    assert (
        all(inside.intersect(each).is_empty() for each in border)
        and border[0].intersect(border[1]).is_empty()
    )
    assert inside.union(border[0]).union(border[1]).is_equal(isl.Set(pad.domain).intersect(some))
    assert same_map(pad.accesses[0].map, "[H] -> { [i] -> x[i - 1] : 1 <= i <= H }")
    assert negated.accesses[0].map == "[H] -> { [i0] -> p[i0] }"


def test_an_output_that_is_only_moved_has_a_block() -> None:
    document = {"uops": [port("x", 2, 3), node("y", "PERMUTE", "x", perm=[1, 0])]}
    (block,) = view_of(document).blocks
    assert (block.kind, block.attrs) == ("movement_affine", {"op": "PERMUTE"})
    assert block.accesses[0].map == "{ [i0, i1] -> x[i1, i0] }"


def test_scalars_and_axes_of_one_point() -> None:
    document = {
        "uops": [
            port("x", 1, 4),
            total("s", "x", 0, 1),
            node("r", "RESHAPE", "s", result_shape=[1]),
            node("y", "NEG", "r"),
        ]
    }
    scalar, negated = view_of(document).blocks
    assert same_set(scalar.domain, "{ [r0, r1] : r0 = 0 and 0 <= r1 < 4 }")
    assert same_map(scalar.accesses[-1].map, "{ [r0, r1] -> s[] }")
    assert same_map(negated.accesses[0].map, "{ [i] -> s[] }")


# ---- what is not affine ----


@pytest.mark.spec("004-031", "004-046", "004-062", "I-26", "004-008", "004-152")
def test_a_reshape_that_divides_by_a_symbol_is_a_boundary_and_a_note() -> None:
    document = {
        "uops": [
            port("x", "M", "N"),
            node("before", "NEG", "x"),
            node("r", "RESHAPE", "before", result_shape=["N", "M"]),
            node("after", "NEG", "r"),
        ]
    }
    view = view_of(document)
    assert [block.name for block in view.blocks] == ["before", "after"]
    (note,) = view.boundaries
    assert (note.code, note.kind, note.severity) == ("E1301", "NonSCoP", "note")
    assert note.at == {"layer": "poly_view", "op": "RESHAPE", "value": "r"}
    assert "before [M, N]" in note.why and "[N, M]" in note.why and "shapes" in note.suggestion
    assert view.boundary_values() == {"r"}
    assert view.block("after").accesses[0].map == "[M, N] -> { [i0, i1] -> r[i0, i1] }"
    assert view.edges == ()
    bound = view_of(document, M=4, N=6)
    assert bound.boundaries == () and [block.name for block in bound.blocks] == ["before", "after"]
    assert bound.block("after").accesses[0].tensor == "before"


def test_a_size_that_multiplies_symbols_is_a_boundary() -> None:
    document = {
        "uops": [
            port("x", "M", "N"),
            node("r", "RESHAPE", "x", result_shape=["M*N"]),
            total("s", "r", 0),
            node("y", "NEG", "s"),
        ]
    }
    view = view_of(document)
    assert [block.name for block in view.blocks] == ["y"]
    assert view.boundary_values() == {"r", "s"}
    assert all("M*N" in note.why for note in view.boundaries)


def test_a_modulo_in_the_book_is_refused() -> None:
    program = tinyc.load({"uops": [port("x", 8), node("y", "NEG", "x")]})
    book = index_book(program)
    broken = dataclasses.replace(book.values["y"], inputs=(Access("x", ("i0%4",)),))
    with pytest.raises(tinyc.TinycError) as caught:
        poly_view(program, IndexBook({**book.values, "y": broken}, book.symbols))
    error = caught.value
    assert (error.code, error.kind) == ("E1203", "MissingDivGuard")
    assert error.at == {"layer": "poly_view", "value": "y"} and "i0%4" in error.why


def test_the_book_of_another_program_is_refused() -> None:
    program = tinyc.load({"uops": [port("x", 8), node("y", "NEG", "x")]})
    other = tinyc.load({"uops": [port("x", 8), node("z", "NEG", "x")]})
    with pytest.raises(tinyc.TinycError) as caught:
        poly_view(program, index_book(other))
    assert (caught.value.code, caught.value.at["value"]) == ("E1304", "y")


def test_what_is_too_much_for_isl_is_a_boundary() -> None:
    program = tinyc.load(GEMM)
    view = poly_view(program, index_book(program), max_operations=20)
    assert view.blocks == () and view.edges == ()
    assert view.boundary_values() == {"C0"} and view.boundaries[0].code == "E1301"


def test_an_edge_that_is_too_much_for_isl_is_between_all_points() -> None:
    program = tinyc.load(EXAMPLES / "conv3x3_s2_p1.json")
    book = index_book(program)
    whole = poly_view(program, book)
    shortened = 0
    for limit in (10_000, 20_000, 40_000, 80_000, 160_000):
        view = poly_view(program, book, max_operations=limit)
        for edge in view.edges:
            (known,) = (
                each for each in whole.edges if dataclasses.replace(each, relation=edge.relation) == edge
            )
            assert isl.Map(known.relation).is_subset(isl.Map(edge.relation))
            shortened += known != edge
        assert view.boundaries or len(view.edges) == len(whole.edges)
    assert shortened


# ---- texts ----


def test_names_that_isl_could_not_read_have_a_spelling_and_the_table_says_which() -> None:
    document = {
        "uops": [
            port("min", "floor", "exists"),
            node("conv 1/x", "NEG", "min"),
            node("i0", "NEG", "conv 1/x"),
            node("conv_1_x", "NEG", "i0"),
        ]
    }
    view = view_of(document)
    first, _, third = view.blocks
    assert [block.name for block in view.blocks] == ["conv 1/x", "i0", "conv_1_x"]
    assert first.accesses[0].tensor == "min"
    assert first.accesses[0].map == "[exists_, floor_] -> { [i0, i1] -> min_[i0, i1] }"
    back = {**{name: name for name in view.aliases.values()}, **view.aliases}
    for block in view.blocks:
        for access in block.accesses:
            spelled = isl.Map(access.map).get_tuple_name(isl.dim_type.out)
            assert back.get(spelled, spelled) == access.tensor
    assert len({access.map for block in view.blocks for access in block.accesses}) == 4
    assert third.accesses[1].map == "[exists_, floor_] -> { [i0, i1] -> conv_1_x[i0, i1] }"


def _texts(view: PolyView) -> list[tuple[str, type[isl.Set] | type[isl.PwMultiAff] | type[isl.Map]]]:
    found: list[tuple[str, Any]] = []
    for block in view.blocks:
        found += [(block.domain, isl.Set), *((piece, isl.Set) for piece in block.pieces)]
        found += [(access.map, isl.PwMultiAff) for access in block.accesses]
    return [*found, *((edge.relation, isl.Map) for edge in view.edges)]


@pytest.mark.spec("004-063", "004-064")
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_all_texts_are_isls_and_simplified(path: Path) -> None:
    """isl reads them; a domain has no more parts than its pieces, and no access says again what the domain says."""
    view = view_of(path)
    assert view.blocks and not view.boundaries
    for text, kind in _texts(view):
        kind(text)
    for block in view.blocks:
        domain = isl.Set(block.domain)
        if not block.pieces:
            assert domain.n_basic_set() == domain.coalesce().n_basic_set() == 1
        for access in block.accesses:
            read = isl.PwMultiAff(access.map).domain()
            assert str(read.gist(domain)) == str(read)


@pytest.mark.parametrize("seed", range(60))
def test_blocks_of_random_programs_touch_what_the_evaluator_would(seed: int) -> None:
    """Every block writes each element of its value, once per reduced point; every read is inside its tensor; a tensor
    that is read is an input, another block's value or a boundary's."""
    generator = random.Random(seed)
    program = tinyc.load(Maker(lambda n: generator.randrange(n), 8).document())
    view = view_of(program)
    known = (
        {port.node for port in program.inputs}
        | {block.name for block in view.blocks}
        | view.boundary_values()
    )
    shapes = {id: kind.shape for id, kind in program.types.items()}
    for block in view.blocks:
        domain = isl.Set(block.domain)
        *reads, write = block.accesses
        assert write.tensor == block.name
        written = isl.Set.universe(domain.get_space()).intersect(domain).apply(isl.Map(write.map))
        assert written.is_equal(_whole(block.name, shapes[block.name], write.map))
        for read in reads:
            assert read.tensor in known
            touched = domain.apply(isl.Map(read.map))
            assert touched.is_subset(_whole(read.tensor, shapes[read.tensor], read.map))
    for port in program.outputs:
        assert port.node in known


def _whole(tensor: str, shape: tuple[Any, ...], text: str) -> isl.Set:
    spelled = isl.Map(text).get_tuple_name(isl.dim_type.out)
    names = [f"d{number}" for number in range(len(shape))]
    bounds = " and ".join(f"0 <= {name} < {size}" for name, size in zip(names, shape, strict=True)) or "1 = 1"
    return isl.Set(f"{{ {spelled}[{', '.join(names)}] : {bounds} }}")


# ---- growth ----


def _models() -> Any:
    spec = importlib.util.spec_from_file_location("poly_models", EXAMPLES / "models.py")
    assert spec is not None and spec.loader is not None
    sys.modules["poly_models"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_equal_layers_have_equal_blocks() -> None:
    models = _models()
    views = []
    for blocks in (1, 2, 3):
        function, specs = models.transformer(blocks, tokens=8, width=16, heads=2)
        views.append(view_of(tinyc.trace(function, **specs)))
    counts = [len(view.blocks) for view in views]
    assert counts[2] - counts[1] == counts[1] - counts[0]
    assert [len(view.attention) for view in views] == [1, 2, 3]
    assert len({_shape(block) for block in views[2].blocks}) <= len(
        {_shape(block) for block in views[1].blocks}
    )


def _shape(block: Block) -> tuple[str, str, str]:
    return block.kind, block.domain, str(sorted(block.attrs))


# ---- the programs of §15 ----


@pytest.mark.spec("I-54")
@pytest.mark.parametrize("sizes", [{}, {"H": 5, "W": 6, "N": 2}], ids=["symbolic", "odd"])
@pytest.mark.parametrize("stride", [1, 2])
def test_conv_3x3_reads_the_unpadded_input(stride: int, sizes: dict[str, int]) -> None:
    def conv(x: Any, w: Any) -> Any:
        return tinyc.functions.conv(x, w, stride=stride, pad=1)

    shapes = {"x": tinyc.spec("fp16", ("N", 4, "H", "W")), "w": tinyc.spec("fp16", (8, 4, 3, 3))}
    view = view_of(tinyc.trace(conv, **shapes), **sizes)
    (block,) = [each for each in view.blocks if each.kind == "contraction_pattern"]
    image, weight = block.accesses[:2]
    assert block.attrs["pattern"] == "conv"
    row, column = block.attrs["affine_offsets"][image.tensor][2:]
    factor = "" if stride == 1 else "2*"
    assert (row, column) == (f"{factor}i3+r1-1", f"{factor}i4+r2-1")
    assert list(block.attrs["affine_offsets"]) == [image.tensor] and weight.tensor != image.tensor
    assert block.attrs["lhs_idx"] == ["i0", "r0", "i3", "i4", "r1", "r2"]
    assert block.attrs["roles"]["k"] == ["r0", "r1", "r2"]
    # I-27: never a row beyond the image, whatever its height
    read = isl.Map(image.map).intersect_domain(isl.Set(block.domain))
    names = "[N, H, W] -> " if not sizes else ""
    height, width = ("H", "W") if not sizes else ("5", "6")
    inside = f"{names}{{ [n, c, h, w] : 0 <= h < {height} and 0 <= w < {width} }}"
    touched = read.range().reset_tuple_id()
    assert touched.is_subset(isl.Set(inside)) and not touched.is_empty()
    (pad,) = [each for each in view.blocks if each.attrs.get("op") == "PAD"]
    assert pad.name in block.attrs["absorbs"] and len(pad.pieces) > 1
