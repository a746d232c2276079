"""GPU IR: as JSON, and what its checker refuses."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import jsonschema
import numpy as np
import pytest
from cuda_regions import launched, outputs_of
from golden import Golden
from hypothesis import given, settings
from ir_edits import earlier, edited, positions, shown, widths
from region_builder import BF16, F16, F32, I32, gemm

import tinyc
from tinyc.codegen.cuda.kernel import contraction
from tinyc.codegen.emulator import DELIVERIES
from tinyc.codegen.gpu import (
    GpuKernel,
    TiledProduct,
    check,
    check_gpu_ir,
    contraction_kernel,
    gpu_ir_from_json,
    gpu_ir_to_json,
)
from tinyc.codegen.gpu.ir import (
    Barrier,
    CommitGroup,
    CpAsync,
    Epilogue,
    KeepRows,
    Kept,
    LoadFragments,
    Loop,
    Mma,
    ReduceRows,
    Ring,
    Statement,
    StGlobalVec,
    Tile,
    Token,
    Wait,
    Walk,
)
from tinyc.codegen.playback import evaluate_region
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType
from tinyc.ir.region import Region
from tinyc.ir.schedule import Async, Contraction, LayoutHints, Vectorize

ROOT = Path(__file__).parent.parent.parent
SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs" / "schemas" / "gpu.schema.json").read_text(encoding="utf-8"))
)
Statements = tuple[Statement, ...]


def tiled(
    m: int = 32,
    n: int = 32,
    k: int = 150,
    dtype: DType = F16,
    *,
    tile: tuple[int, int, int] = (32, 32, 32),
    warp_tile: tuple[int, int] = (16, 16),
    stages: int = 3,
    ahead: Async | None = None,
    **transposed: bool,
) -> tuple[Region, TiledProduct]:
    """A product and its kernel."""
    region, plan = gemm(m, n, k, dtype, **transposed)
    product = contraction_kernel(
        region,
        replace(
            plan,
            tile=tile,
            warp_tile=warp_tile,
            stages=stages,
            vectorize=Vectorize("n.i.i", 8),
            layout_hints=LayoutHints(True, True),
            async_=ahead or Async(True, stages, False),
        ),
    )
    assert product is not None
    return region, product


def kernel_of(**options: Any) -> GpuKernel:
    return tiled(**options)[1].kernel


# ---- JSON -----------------------------------------------------------------------------------------------------------

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
texts = st.text(min_size=1, max_size=8)
counts, naturals = st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1)
tiles = st.builds(Tile, st.integers(-99, 10**9), st.none() | names)
tokens = st.builds(Token, names, tiles)
several_names = st.lists(names, max_size=3).map(tuple)
several_texts = st.lists(texts, max_size=3).map(tuple)
plain = st.one_of(
    st.builds(CpAsync, names, tiles, names, st.sampled_from([0, 4, 8, 16]), tokens),
    st.builds(CommitGroup),
    st.builds(Wait, st.lists(tokens, max_size=3).map(tuple), naturals),
    st.builds(Barrier),
    st.builds(LoadFragments, st.tuples(names, names), tiles, naturals, naturals),
    st.builds(Mma, tiles, naturals, naturals, st.none() | tokens),
    st.builds(Epilogue, several_texts, st.booleans(), tokens, tokens),
    st.builds(StGlobalVec, several_names, counts, tokens),
    st.builds(KeepRows, names, counts, tokens, tokens),
    st.builds(ReduceRows, names, counts, several_texts, tokens, tokens),
)
statements = st.recursive(
    plain,
    lambda inner: st.one_of(
        *(st.builds(kind, names, counts, st.lists(inner, max_size=4).map(tuple)) for kind in (Loop, Walk))
    ),
    max_leaves=6,
)
rings = st.builds(Ring, names, st.sampled_from(DType), counts, counts, counts, st.booleans(), st.booleans())
kernels = st.builds(
    GpuKernel,
    st.sampled_from(["sm80", "sm90"]),
    st.sampled_from(["sm80", "sm80-simt"]),
    counts,
    st.builds(Contraction, texts, texts, texts, *[several_texts] * 4),
    st.tuples(*[counts] * 4),
    st.tuples(*[counts] * 3),
    st.tuples(*[st.integers(1, 10**8)] * 2),
    counts,
    st.tuples(*[counts] * 3),
    st.tuples(*[st.tuples(st.sampled_from(["b", "m.o", "n.o"]), st.sampled_from("xyz"))] * 3),
    st.tuples(rings, rings),
    st.lists(statements, max_size=5).map(tuple),
    st.none() | st.builds(Kept, names, st.sampled_from(DType), counts, counts, counts),
)


def dumped(gpu_ir: dict[str, Any]) -> dict[str, Any]:
    """As the stage gpu has it."""
    return {"gpu": [{"region": "r", "symbol": "kernel_0", "schedule": "contraction", **gpu_ir}]}


@pytest.mark.spec("004-125")
@settings(max_examples=40)
@given(kernels)
def test_what_is_written_is_read_as_it_was(kernel: GpuKernel) -> None:
    document = json.loads(json.dumps(gpu_ir_to_json(kernel), allow_nan=False))
    assert gpu_ir_from_json(document) == kernel
    SCHEMA.validate(dumped(document))


def test_the_statements_look_as_in_the_document() -> None:
    stmts = gpu_ir_to_json(kernel_of(k=64, stages=2))["gpu_ir"]["stmts"]
    assert stmts[0] == {"CpAsync": {"dst_smem": "a[0]", "src": "in0", "bytes": 16, "out_token": "a[0]"}}
    assert stmts[3] == {"Wait": {"token": ["a[0]", "b[0]"], "pending": 0}}
    loop = stmts[6]["Loop"]
    assert loop["var"] == "k" and loop["count"] == 2
    assert {"LoadFragments": {"src_smem": ["a[k+1]", "b[k+1]"], "step": 0, "buffer": 0}} in loop["body"]
    assert loop["body"][-1] == {"Mma": {"tile": "k", "step": 1, "buffer": 1, "out_token": "mma[k]"}}
    assert stmts[-2]["Epilogue"]["in_token"] == "mma[1]" and stmts[-2]["Epilogue"]["async"] is False
    assert stmts[-1] == {"StGlobalVec": {"ptr": ["out0"], "width": 8, "in_token": "epilogue[0]"}}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all values within ``value``."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def changed(document: Any, path: tuple[Any, ...], make: Callable[[Any], Any]) -> Any:
    document = copy.deepcopy(document)
    if not path:
        return make(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = make(inner[path[-1]])
    return document


STRANGE = [
    None, True, 0, -1, 3, 10**30, 1.5, float("nan"), "", "a[k]", "k+0", "k", "-5", "a[[k]", "💥", "a" * 5000,
    "1_0", "٣", [], {}, ["a[0]", 1], {"Barrier": {}}, {"Barrier": {"x": 1}}, {"Loop": {"var": "k", "count": 2**31 - 1, "body": []}},
    {1: 2}, [[]], b"x", (1,), object(),
]  # fmt: skip


def read_or_refused(document: Any, samples: int, check: Callable[[Any], None]) -> tuple[int, int]:
    """With something strange in each place: what is read is what the schema says, and is checked without a traceback and soon. How
    many are read, and how many there are."""
    random.seed(0)
    tried = [(path, value) for path in places(document) for value in random.sample(STRANGE, samples)]
    read = 0
    for path, value in tried:
        given = changed(document, path, lambda _, value=value: value)
        try:
            kernel = gpu_ir_from_json(given)
        except TinycError as error:
            assert error.code == "E1709" and error.at["layer"] == "gpu_ir"
            continue
        assert gpu_ir_to_json(kernel) == given
        SCHEMA.validate(dumped(given))
        read += 1
        try:
            check(kernel)
        except TinycError as error:
            assert error.code == "E1709"
    return read, len(tried)


def keys_are_needed(document: Any, optional: tuple[str, str]) -> None:
    """All but one of a statement, ``(statement, key)``; and no other is known."""
    for path in places(document):
        inner = document
        for key in path:
            inner = inner[key]
        if not isinstance(inner, dict):
            continue
        for key in inner:
            if (path[-1:], key) != (optional[:1], optional[1]):
                without = changed(
                    document, path, lambda old, key=key: {k: v for k, v in old.items() if k != key}
                )
                with pytest.raises(TinycError, match="E1709"):
                    gpu_ir_from_json(without)
        with pytest.raises(TinycError, match="E1709"):
            gpu_ir_from_json(changed(document, path, lambda old: {**old, "surplus": 1}))


def test_whatever_a_document_holds_it_is_read_or_refused() -> None:
    read, tried = read_or_refused(gpu_ir_to_json(kernel_of()), 6, check_gpu_ir)
    assert 30 < read < tried // 2


def test_every_key_is_needed_and_no_other_is_known() -> None:
    keys_are_needed(gpu_ir_to_json(kernel_of()), ("Mma", "out_token"))


@pytest.mark.parametrize(
    ("path", "value", "why", "suggestion"),
    [
        ("stmts/0", {"CpAsnyc": {}}, "gpu_ir.stmts[0]: there is no 'CpAsnyc'", "'CpAsync' may be meant"),
        ("stmts/0/CpAsync/bytes", 12, "gpu_ir.stmts[0].CpAsync.bytes: there is no 12", "0, 4, 8, 16"),
        ("stmts/0/CpAsync/dst_smem", "a[k+0]", "'k+0' is no tile", "k+1"),
        ("stmts/0/CpAsync/dst_smem", "a", "'a' is no tile of a ring", "a[k+1]"),
        ("stmts/3", {}, "gpu_ir.stmts[3]: {} is no statement", "Barrier"),
        ("tile", [64, 64], "gpu_ir.tile: [64, 64] is not a list of 3", "list of 3"),
        ("warp_tile", "64×32", "gpu_ir.warp_tile: '64×32' is no tile of a warp", "64x32"),
        ("rings/0/dtype", "fp8", "gpu_ir.rings[0].dtype: there is no 'fp8'", "fp16, bf16, fp32, i32, bool"),
        ("rings/0/stages", 0, "gpu_ir.rings[0].stages: 0 is no integer", "range"),
        ("extents", {"m": 1}, "gpu_ir.extents: 'b' is missing", "b, m, n, k"),
        ("depht", 16, "there is no key 'depht'", "'depth' may be meant"),
    ],
)  # fmt: skip
def test_a_message_names_the_place(path: str, value: object, why: str, suggestion: str) -> None:
    document = gpu_ir_to_json(kernel_of())
    inner: Any = document["gpu_ir"]
    *way, last = (int(step) if step.isdigit() else step for step in path.split("/"))
    for key in way:
        inner = inner[key]
    inner[last] = value
    with pytest.raises(TinycError) as caught:
        gpu_ir_from_json(document)
    assert why in caught.value.why and suggestion in caught.value.suggestion


def test_loops_in_each_other_have_a_limit() -> None:
    document = gpu_ir_to_json(kernel_of())
    inner: dict[str, Any] = {"Barrier": {}}
    for _ in range(5000):
        inner = {"Loop": {"var": "i", "count": 1, "body": [inner]}}
    document["gpu_ir"]["stmts"] = [inner]
    with pytest.raises(TinycError, match="more than 8 loops"):
        gpu_ir_from_json(document)


@pytest.mark.spec("004-143")
@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_the_stage_holds_the_ir_of_what_is_tiled(target: str) -> None:
    def program(a: Any, b: Any, c: Any) -> Any:
        return a @ b, c.sum(axis=1)

    half = tinyc.spec("fp16", (256, 256))
    compiled = tinyc.optimize_and_compile(
        tinyc.trace(program, half, half, half), target, budget=tinyc.Budget(extract_seconds=0)
    )
    document = json.loads(compiled.dump("gpu"))
    SCHEMA.validate(document)
    assert [each["symbol"] for each in document["gpu"]] == [each.name for each in compiled.kernels]
    found = {each["schedule"]: each for each in document["gpu"]}
    assert "gpu_ir" in found.pop("contraction")
    assert found and all("gpu_ir" not in each for each in found.values())
    for each in document["gpu"]:
        if "gpu_ir" in each:
            check_gpu_ir(gpu_ir_from_json({"gpu_ir": each["gpu_ir"]}))


# ---- what the skeleton makes ----------------------------------------------------------------------------------------


@pytest.mark.spec("004-121", "004-124")
def test_what_the_skeleton_makes_is_accepted() -> None:
    random.seed(1)
    seen = set()
    for _ in range(250):
        dtype = random.choice([F16, F16, BF16, F32, I32])
        warp_tile = random.choice([(16, 16), (32, 32), (32, 16), (64, 32), (16, 64)])
        warps = random.choice([(1, 1), (2, 2), (2, 1), (1, 4)])
        steps, stages = random.randint(1, 8), random.randint(2, 4)
        overlap = random.random() < 0.5
        ahead = random.choice([Async(False, 1, False), Async(True, random.randint(1, 5), overlap)])
        kernel = kernel_of(
            m=random.randint(1, 300),
            n=random.randint(1, 300),
            k=random.choice([1, 7, 64, 100, 777, 5000]),
            dtype=dtype,
            tile=(warp_tile[0] * warps[0], warp_tile[1] * warps[1], 16 * steps),
            warp_tile=warp_tile,
            stages=stages,
            ahead=ahead,
            at=random.random() < 0.5,
            bt=random.random() < 0.5,
        )
        check_gpu_ir(kernel)
        seen.add((kernel.steps, stages, ahead.enable and min(ahead.prefetch_depth, stages), kernel.tiles > 1))
    assert len(seen) > 60


def the(
    kernel: GpuKernel, kind: type[Statement], number: int = 0, *, inside: bool = True
) -> tuple[tuple[int, ...], Any]:
    """The ``number``-th statement of a kind, in the loop or outside of it."""
    found = [
        (path, each)
        for path, each in positions(kernel)
        if isinstance(each, kind) and (len(path) == 2) == inside
    ]
    return found[number]


def altered(
    kernel: GpuKernel, kind: type[Statement], number: int = 0, *, inside: bool = True, **to: Any
) -> GpuKernel:
    path, statement = the(kernel, kind, number, inside=inside)
    return edited(kernel, path, replace(statement, **to))


def without(kernel: GpuKernel, kind: type[Statement], number: int = 0, *, inside: bool = True) -> GpuKernel:
    return edited(kernel, the(kernel, kind, number, inside=inside)[0])


def twice(kernel: GpuKernel, kind: type[Statement], number: int = 0, *, inside: bool = True) -> GpuKernel:
    path, statement = the(kernel, kind, number, inside=inside)
    return edited(kernel, path, statement, statement)


def moved_up(kernel: GpuKernel, kind: type[Statement], number: int = 0, *, inside: bool = True) -> GpuKernel:
    """That statement before the one that it followed."""
    return earlier(kernel, the(kernel, kind, number, inside=inside)[0])


def refused(kernel: GpuKernel, match: str) -> None:
    with pytest.raises(TinycError) as caught:
        check_gpu_ir(kernel)
    assert caught.value.kind == "GpuIrInvalid"
    assert re.search(match, caught.value.why), caught.value.why


def test_a_long_loop_is_checked_at_its_ends() -> None:
    """In a moment, and the numbers in a message are those of the loop as it is."""
    kernel = kernel_of(k=2**30, tile=(32, 32, 16))
    assert kernel.tiles == 2**26
    check_gpu_ir(kernel)
    refused(without(kernel, Wait), "turn 0, 4: tile 0 of a is read before it is waited for")
    less = altered(kernel, Loop, inside=False, count=2**26 - 1)
    refused(less, f"{2**26 - 1} of {2**26} steps are multiplied")
    beyond = altered(kernel, Epilogue, inside=False, in_token=Token("mma", Tile(2**26 - 2)))
    refused(beyond, rf"mma\[{2**26 - 2}\] is not what the last product gives")


DEEP = kernel_of()
"""Five tiles of two steps in three slots; two on their way, the fragments of the next step in a second buffer."""
PLAIN = kernel_of(tile=(32, 32, 16), k=80)
"""The same with one step in a tile, and so one buffer."""
DIRECT = kernel_of(k=149)
"""Copied element by element."""
STILL = kernel_of(ahead=Async(False, 1, False))
"""Nothing ahead."""
k = "k"


def test_the_kernels_with_planted_faults_are_right_without() -> None:
    for kernel in (DEEP, PLAIN, DIRECT, STILL):
        check_gpu_ir(kernel)
    widths = [
        {each.bytes for _, each in positions(kernel) if isinstance(each, CpAsync)}
        for kernel in (DEEP, DIRECT)
    ]
    assert widths == [{4, 16}, {0, 16}]


FAULTS: dict[str, tuple[GpuKernel, str]] = {
    "a wait left out": (without(DEEP, Wait), r"tile 1 of a is read before it is waited for"),
    "the first wait left out": (without(DEEP, Wait, inside=False), r"tile 0 of a is read before it is waited for"),
    "a wait with one more pending": (altered(DEEP, Wait, pending=2), r"a\[1\] is not among what has arrived: 2 groups"),
    "a wait for one of two tokens": (altered(DEEP, Wait, tokens=(Token("a", Tile(1, k)),)), "tile 1 of b is read before it is waited for"),
    "a wait for what is not yet copied": (altered(DEEP, Wait, tokens=(Token("a", Tile(3, k)),)), r"a\[3\] is not among what has arrived"),
    "a wait for no token": (altered(DEEP, Wait, tokens=(Token("c", Tile(0, k)),)), r"c\[0\] is not among what has arrived"),
    "a barrier left out": (without(DEEP, Barrier), "tile 1 of a is read without a barrier since it arrived"),
    "the first barrier left out": (without(DEEP, Barrier, inside=False), "tile 0 of a is read without a barrier"),
    "a barrier before the wait": (moved_up(DEEP, Barrier), "tile 1 of a is read without a barrier"),
    "copies before the barrier after which nobody reads": (
        moved_up(moved_up(STILL, Barrier), Barrier), "tile 0 of a is read without a barrier"),
    "a tile too far ahead": (
        altered(altered(DEEP, CpAsync, tile=Tile(3, k), out_token=Token("a", Tile(3, k))), CpAsync, 1, tile=Tile(3, k), out_token=Token("b", Tile(3, k))),
        "tile 0 of a may still be read where tile 3 is written"),
    "a slot written before its tile has arrived": (
        altered(DEEP, CpAsync, 2, inside=False, tile=Tile(3), out_token=Token("a", Tile(3))), "tile 0 of a is on its way where tile 3 is written"),
    "a tile that was never copied": (without(DEEP, CpAsync, 2, inside=False), r"a\[1\] is not among what has arrived"),
    "a tile copied twice": (twice(DEEP, CpAsync), r"a\[2\] is produced twice"),
    "a token of another tile": (altered(DEEP, CpAsync, out_token=Token("a", Tile(4, k))), r"a\[4\] is produced for tile 2"),
    "a token that nobody waits for": (altered(DEEP, CpAsync, 0, inside=False, out_token=Token("c", Tile(0))), r"a\[0\] is not among"),
    "a group that is not closed": (without(DEEP, CommitGroup), r"b?a?\[2\] is not among|is not among"),
    "the first group not closed": (without(DEEP, CommitGroup, inside=False), r"a\[0\] is not among what has arrived"),
    "fragments of the step before": (altered(DEEP, LoadFragments, step=0), "step 1 of tile 0 is multiplied, buffer 1 of a holds step 0 of tile 0"),
    "fragments of the tile before": (altered(PLAIN, LoadFragments, tile=Tile(0)), "tile 0 of a is read where tile 3 is"),
    "fragments of no step": (altered(DEEP, LoadFragments, step=2), "a tile has 2 steps, and 2 is none of them"),
    "fragments of one operand": (altered(DEEP, LoadFragments, rings=("a", "a")), "buffer 1 of b holds nothing"),
    "fragments of what has been replaced": (altered(DEEP, LoadFragments, 1, tile=Tile(3, k)), "tile 3 of a is read where tile 0 is"),
    "buffers mixed up": (altered(DEEP, LoadFragments, buffer=0), "step 0 of tile 0 is multiplied, buffer 0 of a holds step 1 of tile 0"),
    "the wrong buffer multiplied": (altered(DEEP, Mma, buffer=1), "step 0 of tile 0 is multiplied, buffer 1 of a holds step 1"),
    "a product twice": (twice(DEEP, Mma), "step 0 of tile 0 is not the next one"),
    "a product left out": (without(DEEP, Mma), "step 1 of tile 0 is not the next one"),
    "products of one tile too few": (altered(DEEP, Loop, inside=False, count=4), "8 of 10 steps are multiplied"),
    "a tile too many": (altered(DEEP, Loop, inside=False, count=6), "step 0 of tile 5 is multiplied"),
    "a product that ends too early": (altered(DEEP, Mma, out_token=Token("mma", Tile(0, k))), r"mma\[k\] is produced before the last step"),
    "a last product without a token": (altered(DEEP, Mma, 1, out_token=None), r"mma\[4\] is used before it is produced"),
    "an epilogue before the last product": (
        edited(without(DEEP, Epilogue, inside=False), the(DEEP, Mma, 1)[0], the(DEEP, Mma, 1)[1], the(DEEP, Epilogue, inside=False)[1]), "2 of 10 steps are multiplied"),
    "an epilogue of another product": (altered(DEEP, Epilogue, inside=False, in_token=Token("mma", Tile(3))), r"mma\[3\] is not what the last product gives"),
    "an epilogue of no product": (altered(DEEP, Epilogue, inside=False, in_token=Token("acc", Tile(4))), r"acc\[4\] is used before it is produced"),
    "an epilogue over tiles that are read": (without(PLAIN, Barrier, inside=False), "a may still be read where its memory is used again"),
    "two epilogues": (twice(DEEP, Epilogue, inside=False), "there is one epilogue already"),
    "no epilogue": (without(DEEP, Epilogue, inside=False), r"epilogue\[0\] is used before it is produced"),
    "results that are not stored": (without(DEEP, StGlobalVec, inside=False), "the results are never stored"),
    "results stored twice": (twice(DEEP, StGlobalVec, inside=False), "the results are stored already"),
    "results before the epilogue": (moved_up(DEEP, StGlobalVec, inside=False), r"epilogue\[0\] is used before it is produced"),
    "results of something else": (altered(DEEP, StGlobalVec, inside=False, in_token=Token("mma", Tile(4))), r"mma\[4\] is not what the epilogue gives"),
    "a copy into a ring that is not there": (altered(DEEP, CpAsync, ring="c"), "there is no ring c"),
    "fragments of a ring that is not there": (altered(DEEP, LoadFragments, rings=("a", "c")), "there is no ring c"),
    "copies of other widths": (altered(DEEP, CpAsync, bytes=8), "tiles of a are copied from in0, 4 bytes at a time, elsewhere"),
    "copies from another buffer": (altered(DEEP, CpAsync, src="in1"), "tiles of a are copied from in0"),
    "a variable of no loop": (altered(DEEP, Epilogue, inside=False, in_token=Token("mma", Tile(0, "i"))), "i is the variable of no loop"),
    "a tile before the first": (altered(DEEP, CpAsync, tile=Tile(-1, k)), "there is no tile -1"),
    "a loop in a loop of the same variable": (edited(DEEP, the(DEEP, Mma)[0], Loop(k, 2, (Barrier(),))), "k is the variable of a loop around"),
    "a loop without end": (edited(DEEP, (0,), Loop("i", 2**31 - 1, ())), "turns of loops are not the end"),
    "a grid of other blocks": (replace(DEEP, grid=(1, 2, 1)), "1 blocks are counted along y, the grid has 2"),
    "a part that is counted twice": (replace(DEEP, places=(DEEP.places[0],) * 3), "the parts of a grid are b, m.o, n.o, each once"),
    "a tile that warps do not share evenly": (replace(DEEP, warp_tile=(24, 16)), "is no multiple of"),
    "more tiles than k has": (replace(DEEP, tiles=6), "150 points of k in tiles of 32 are not 6"),
    "a ring of another shape": (replace(DEEP, rings=(replace(DEEP.rings[0], rows=16), DEEP.rings[1])), "a is 16 x 32, its tile 32 x 32"),
    "rings of different depths": (replace(DEEP, rings=(DEEP.rings[0], replace(DEEP.rings[1], stages=2))), "the same number of stages"),
}  # fmt: skip


@pytest.mark.spec("004-124")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault: str) -> None:
    refused(*FAULTS[fault])


# ---- mutants --------------------------------------------------------------------------------------------------------


def mutants(kernel: GpuKernel) -> Iterator[tuple[str, GpuKernel]]:
    """Each statement left out, doubled, before the one it followed, and with each of its fields altered."""
    for path, statement in positions(kernel):
        where = f"{type(statement).__name__} {'.'.join(map(str, path))}"
        yield f"{where} left out", edited(kernel, path)
        yield f"{where} doubled", edited(kernel, path, statement, statement)
        if path[-1]:
            yield f"{where} earlier", earlier(kernel, path)
        for field in fields(statement):
            old = getattr(statement, field.name)
            for new in widths(old) if field.name in ("bytes", "width") else others(old):
                yield (
                    f"{where} with {field.name} {shown(new)} for {shown(old)}",
                    edited(kernel, path, replace(statement, **{field.name: new})),
                )


def others(old: Any) -> list[Any]:
    """Values near ``old``. Names that only say what is meant (ops, outputs) have none."""
    match old:
        case bool():
            return [not old]
        case int():
            return [old + 1, old - 1] if old else [1]
        case Tile(offset, var):
            return [
                Tile(offset + 1, var),
                Tile(offset - 1, var),
                Tile(offset + (3 if var else 0), None if var else k),
            ]
        case Token(name, tile):
            return [Token(name, other) for other in others(tile)] + [Token("b" if name == "a" else "a", tile)]
        case "a" | "b" | "in0" | "in1":
            return [{"a": "b", "b": "a", "in0": "in1", "in1": "in0"}[old]]
        case (Token(), *_):
            return [old[1:], old[::-1], *((*old[:-1], other) for other in others(old[-1]))]
        case ("a", "b"):
            return [("b", "a"), ("a", "a"), ("b", "b")]
        case None:
            return [Token("mma", Tile(0, k))]
    return []


CASES: dict[str, dict[str, Any]] = {
    "deep": {},
    "plain": {"tile": (32, 32, 16), "k": 80},
    "still": {"ahead": Async(False, 1, False)},
}


@pytest.mark.spec("004-124")
@pytest.mark.parametrize("kind", CASES)
def test_a_change_of_one_statement_is_refused_or_harmless(kind: str, golden: Golden) -> None:
    """The golden file lists those that are not refused: their kernels are run, and right. Those with a statement once more, and
    those of two of the kernels, are run in the slow test."""
    accepted = accepted_mutants(tiled(**CASES[kind])[1].kernel)
    golden("\n".join(accepted))
    if kind == "deep":
        run_all(kind, [kernel for name, kernel in accepted.items() if not re.search("doubled|width", name)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_what_is_not_refused_is_right(kind: str) -> None:
    run_all(kind, list(accepted_mutants(tiled(**CASES[kind])[1].kernel).values()))


@pytest.mark.parametrize("kind", CASES)
def test_turns_that_are_left_out_change_no_verdict(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the statement and the turn that a message names."""
    kernel = kernel_of(**{**CASES[kind], "k": 32 * 61})

    def verdicts() -> dict[str, str]:
        found = {}
        for name, mutant in mutants(kernel):
            try:
                check_gpu_ir(mutant)
                found[name] = "accepted"
            except TinycError as error:
                found[name] = error.why
        return found

    short = verdicts()
    run = check._Run(kernel.rings, kernel.tiles, kernel=kernel)
    assert any(len(run.alike(each)) > 15 for each in kernel.stmts if isinstance(each, Loop))
    monkeypatch.setattr(check._Run, "alike", lambda run, loop: range(0))
    assert verdicts() == short


def accepted_mutants(kernel: GpuKernel) -> dict[str, GpuKernel]:
    found = {}
    for name, mutant in mutants(kernel):
        try:
            check_gpu_ir(mutant)
        except TinycError as error:
            assert error.kind == "GpuIrInvalid"
        else:
            found[name] = mutant
    return found


def run_all(kind: str, kernels: Sequence[GpuKernel]) -> None:
    """Each that is another text is right."""
    region, product = tiled(**CASES[kind])
    rng = np.random.default_rng(0)
    arrays = {ref.name: rng.integers(-3, 4, ref.shape).astype(ref.dtype.numpy) for ref in region.inputs}
    want = evaluate_region(region, arrays)
    made = {
        each.source: each for each in (contraction(region, replace(product, kernel=it)) for it in kernels)
    }
    for number, each in enumerate(made.values()):
        result = launched(each, region, arrays, DELIVERIES[number % len(DELIVERIES)])
        assert not result.findings, result.findings[0]
        for name, value in outputs_of(region, result).items():
            np.testing.assert_array_equal(value, want[name])
