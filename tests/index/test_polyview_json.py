"""The dump of a Poly-View: its keys are those of document 004 §5.2, and it comes back without a byte of difference."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_polyview import EXAMPLES, GEMM, node, port, view_of

import tinyc
from tinyc.index.poly_json import view_from_json, view_to_json
from tinyc.ir.document import dumps, parse_json

FEW = ("gemm_bias_relu", "conv3x3_s2_p1", "attention_causal", "movement_chain", "smooth_interior")


@pytest.mark.spec("004-066")
def test_the_keys_are_those_of_the_document() -> None:
    data = view_to_json(view_of(GEMM))
    assert list(data) == ["blocks", "edges"]
    (block,) = data["blocks"]
    assert list(block) == ["name", "kind", "domain", "accesses", "attrs"]
    assert list(block["domain"]) == ["set"] and list(block["accesses"][0]) == ["tensor", "map"]
    wanted = {"pattern", "lhs_idx", "rhs_idx", "out_idx", "reduce_idx", "affine_offsets"}
    assert wanted <= set(block["attrs"]) and block["attrs"]["affine_offsets"] == {}
    assert [list(edge) for edge in data["edges"]] == [["from", "to", "kind", "tensor", "relation"]] * 3
    assert json.loads(json.dumps(data)) == data


def test_pieces_boundaries_attention_and_aliases_are_there_where_there_are_some() -> None:
    document = {
        "uops": [
            port("max", "M", "N"),
            node("p", "PAD", "max", pad=[[1, 0], [0, 0]], value=float("inf")),
            node("r", "RESHAPE", "p", result_shape=["N", "M+1"]),
            node("y", "NEG", "r"),
        ]
    }
    data = view_to_json(view_of(document))
    assert list(data) == ["blocks", "edges", "boundaries", "aliases"]
    assert len(data["blocks"][0]["domain"]["pieces"]) == 2
    assert data["blocks"][0]["attrs"]["value"] == "inf"
    assert data["aliases"] == {"max_": "max"}
    (note,) = data["boundaries"]
    assert (note["code"], note["severity"], note["at"]["value"]) == ("E1301", "note", "r")
    assert view_from_json(parse_json(dumps(data))) == view_of(document)
    attention = view_to_json(view_of(EXAMPLES / "attention.json"))["attention"]
    assert [list(group) for group in attention] == [["qk_matmul", "row_softmax", "pv_matmul"]]


@pytest.mark.parametrize("name", FEW)
def test_a_dump_comes_back_byte_for_byte(name: str) -> None:
    view = view_of(EXAMPLES / f"{name}.json")
    text = dumps({"poly_view": view_to_json(view)})
    again = view_from_json(parse_json(text))
    assert again == view
    assert dumps({"poly_view": view_to_json(again)}) == text
    assert view_from_json(view_to_json(view)) == view  # without the name of the stage, too


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to

    return change


def _drop(*path: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (_drop("blocks"), "poly_view:"),
        (_set("block", to=[]), "poly_view:"),
        (_set("blocks", to={}), "poly_view.blocks:"),
        (_set("blocks", 0, to="C0"), "poly_view.blocks[0]:"),
        (_drop("blocks", 0, "kind"), "poly_view.blocks[0]:"),
        (_set("blocks", 0, "kind", to="loop"), "poly_view.blocks[0].kind:"),
        (_set("blocks", 0, "kind", to=["ewise"]), "poly_view.blocks[0].kind:"),
        (_set("blocks", 0, "name", to=3), "poly_view.blocks[0].name:"),
        (_set("blocks", 1, "name", to="C0"), "poly_view.blocks[1].name:"),
        (_set("blocks", 0, "domain", to="{ [] }"), "poly_view.blocks[0].domain:"),
        (_set("blocks", 0, "domain", "set", to="{ [i0] : i0 < M }"), "poly_view.blocks[0].domain.set:"),
        (_set("blocks", 0, "domain", "pieces", to=["{"]), "poly_view.blocks[0].domain.pieces[0]:"),
        (_set("blocks", 0, "accesses", 1, "map", to="A[i0]"), "poly_view.blocks[0].accesses[1].map:"),
        (_set("blocks", 0, "accesses", 1, "map", to=None), "poly_view.blocks[0].accesses[1].map:"),
        (_set("blocks", 0, "attrs", to=[]), "poly_view.blocks[0].attrs:"),
        (_set("edges", 0, "kind", to="flow"), "poly_view.edges[0].kind:"),
        (_set("edges", 0, "to", to="nobody"), "poly_view.edges[0].to:"),
        (_set("edges", 0, "weight", to=1), "poly_view.edges[0]:"),
        (_set("edges", 0, "relation", to="{ [i -> j] }"), "poly_view.edges[0].relation:"),
        (_set("boundaries", to=[{"kind": "NonSCoP"}]), "poly_view.boundaries[0]:"),
        (_set("boundaries", to=[7]), "poly_view.boundaries[0]:"),
        (_set("attention", to=[{"qk_matmul": []}]), "poly_view.attention[0]:"),
        (_set("aliases", to=["max_"]), "poly_view.aliases:"),
        (_set("aliases", to={"max_": 1}), "poly_view.aliases.'max_':"),
    ],
)
def test_what_is_malformed_is_named_by_its_path(change: Callable[[dict[str, Any]], None], path: str) -> None:
    data = view_to_json(view_of({"uops": [*GEMM["uops"], node("y", "RELU", "C0")]}))
    view_from_json(copy.deepcopy(data))
    change(data)
    with pytest.raises(tinyc.TinycError) as caught:
        view_from_json(data)
    assert caught.value.kind == "MalformedDocument"
    assert caught.value.why.startswith(path), caught.value.why
    assert caught.value.at["layer"] == "poly_view"


@pytest.mark.parametrize("data", [None, 3, "poly_view", [], {}, {"poly_view": None}, {"poly_view": []}])
def test_what_is_no_view_at_all(data: Any) -> None:
    with pytest.raises(tinyc.TinycError) as caught:
        view_from_json(data)
    assert caught.value.kind == "MalformedDocument"


def test_a_note_of_another_kind_is_refused() -> None:
    document = {
        "uops": [
            port("x", "M", "N"),
            node("r", "RESHAPE", "x", result_shape=["N", "M"]),
            node("y", "NEG", "r"),
        ]
    }
    data = view_to_json(view_of(document))
    for key, value in (("kind", "Usage"), ("code", "E1302"), ("severity", "error"), ("at", {})):
        broken = copy.deepcopy(data)
        broken["boundaries"][0][key] = value
        with pytest.raises(tinyc.TinycError) as caught:
            view_from_json(broken)
        assert caught.value.why.startswith(f"poly_view.boundaries[0].{key}:")


def test_examples_are_where_they_are_looked_for() -> None:
    assert isinstance(EXAMPLES, Path) and all((EXAMPLES / f"{name}.json").exists() for name in FEW)
