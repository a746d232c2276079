"""GPU IR of attention: as JSON, and what its checker refuses."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from cuda_regions import launched, outputs_of
from golden import Golden
from hypothesis import given, settings
from ir_edits import earlier, edited, positions, shown, widths
from stream_regions import attention
from test_gpu_ir import (
    SCHEMA,
    counts,
    dumped,
    keys_are_needed,
    names,
    naturals,
    plain,
    read_or_refused,
    rings,
    several_texts,
    texts,
    tiles,
    tokens,
)

import tinyc
from tinyc import functions as tc
from tinyc.codegen.cuda.kernel import walk
from tinyc.codegen.emulator import DELIVERIES
from tinyc.codegen.gpu import (
    WalkKernel,
    check_walk,
    check_walk_ir,
    gpu_ir_from_json,
    gpu_ir_to_json,
    walk_kernel,
)
from tinyc.codegen.gpu.attention import Attention, attention_of
from tinyc.codegen.gpu.ir import Barrier, CommitGroup, CpAsync, Epilogue, StGlobalVec, Tile, Token, Wait
from tinyc.codegen.gpu.walk_ir import Columns, Exponentials, Scores, Shares, Totals, WalkStatement, Weigh
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dtypes import DType
from tinyc.ir.region import Region

F16 = DType.FP16


def found(region: Region) -> Attention:
    attention = attention_of(region)
    assert attention is not None
    return attention


ROUNDED = attention(70, 150, 32, k=32, dtype=F16, causal=False, out=F16, rounded=F16)
RUNNING = attention(70, 150, 32, k=32, dtype=F16, causal=True, out=F16)
WIDE = attention(40, 130, 16, k=64, dtype=F16, out=F16, rounded=F16)
"""Its values take less place than keys do: tiles of keys cannot take turns."""
CASES = {"rounded": ROUNDED, "running": RUNNING, "wide": WIDE}


def kernel_of(region: Region = ROUNDED) -> WalkKernel:
    return walk_kernel(found(region))


# ---- JSON -----------------------------------------------------------------------------------------------------------

common = plain.filter(
    lambda each: isinstance(each, CpAsync | CommitGroup | Wait | Barrier | Epilogue | StGlobalVec)
)
statements = st.recursive(
    st.one_of(
        common,
        st.builds(Scores, st.tuples(names, names), tiles, several_texts, tokens),
        st.builds(Totals, tiles, tokens, tokens),
        st.builds(Shares, tokens, tokens),
        st.builds(Exponentials, tiles, st.none() | tokens, tokens, tokens),
        st.builds(Weigh, names, tiles, counts, tokens, tokens),
    ),
    lambda inner: st.builds(Columns, names, st.lists(inner, max_size=4).map(tuple)),
    max_leaves=6,
)
placed = st.lists(st.tuples(rings, naturals), max_size=4)
kernels = placed.flatmap(
    lambda pairs: st.builds(
        WalkKernel,
        st.sampled_from(["sm80", "sm90"]),
        st.sampled_from(["sm80", "sm80-simt"]),
        texts,
        texts,
        st.tuples(*[counts] * 5),
        st.tuples(counts, counts),
        counts,
        counts,
        st.tuples(*[counts] * 3),
        st.just(tuple(ring for ring, _ in pairs)),
        st.just(tuple(start for _, start in pairs)),
        st.lists(statements, max_size=5).map(tuple),
    )
)


@settings(max_examples=40)
@given(kernels)
def test_what_is_written_is_read_as_it_was(kernel: WalkKernel) -> None:
    document = json.loads(json.dumps(gpu_ir_to_json(kernel), allow_nan=False))
    assert gpu_ir_from_json(document) == kernel
    SCHEMA.validate(dumped(document))


def test_whatever_a_document_holds_it_is_read_or_refused() -> None:
    read, tried = read_or_refused(gpu_ir_to_json(kernel_of()), 5, check_walk_ir)
    assert 20 < read < tried // 2


def test_every_key_is_needed_and_no_other_is_known() -> None:
    keys_are_needed(gpu_ir_to_json(kernel_of()), ("Exponentials", "shares"))


@pytest.mark.spec("004-143")
@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_the_stage_holds_the_ir_of_attention(target: str) -> None:
    half = tinyc.spec("fp16", (1, 16, 1024, 64))
    program = tinyc.trace(tc.attention, half, half, half)
    compiled = tinyc.optimize_and_compile(program, target, budget=tinyc.Budget(extract_seconds=0))
    document = json.loads(compiled.dump("gpu"))
    SCHEMA.validate(document)
    (only,) = document["gpu"]
    assert only["schedule"] == "attention"
    kernel = gpu_ir_from_json({"gpu_ir": only["gpu_ir"]})
    assert isinstance(kernel, WalkKernel)
    check_walk_ir(kernel)
    assert [type(each).__name__ for each in kernel.stmts].count("Columns") == 2, (
        "its probabilities are rounded"
    )


def test_the_statements_look_as_in_the_document() -> None:
    stmts = gpu_ir_to_json(kernel_of(RUNNING))["gpu_ir"]["stmts"]
    assert stmts[0] == {"CpAsync": {"dst_smem": "q[0]", "src": "in0", "bytes": 16, "out_token": "q[0]"}}
    assert stmts[1]["CpAsync"]["dst_smem"] == "k[first]"
    body = stmts[3]["Columns"]["body"]
    assert body[0] == {"Wait": {"token": ["q[0]", "k[tile]"], "pending": 0}}
    assert {
        "Scores": {"src_smem": ["q[0]", "k[tile]"], "ops": ["select"], "out_token": "scores[tile]"}
    } in body
    weigh = {"src_smem": "v[tile]", "parts": 1, "in_token": "weights[tile]", "out_token": "weighed[tile]"}
    assert body[-1] == {"Weigh": weigh}
    assert stmts[-2]["Epilogue"]["in_token"] == "weighed[last-1]"


# ---- what the skeleton makes ----------------------------------------------------------------------------------------


@pytest.mark.spec("004-124")
def test_what_the_skeleton_makes_is_accepted() -> None:
    generator = random.Random(1)
    seen = set()
    for _ in range(60):
        m, n = generator.randint(1, 300), generator.choice([1, 7, 64, 65, 128, 500, 4000])
        d, k = generator.choice([8, 16, 33, 64, 96, 128, 256]), generator.choice([8, 17, 32, 64, 96, 256])
        rounded = generator.choice([F16, None])
        out = F16 if rounded else generator.choice([F16, DType.FP32])
        region = attention(m, n, d, k=k, dtype=F16, causal=generator.random() < 0.5, out=out, rounded=rounded)
        kernel = kernel_of(region)
        check_walk_ir(kernel)
        seen.add((len(kernel.rings), kernel.rings[-1].stages, out, kernel.tiles > 2))
    assert len(seen) > 5


def test_a_long_walk_is_checked_for_the_lengths_that_differ() -> None:
    kernel = kernel_of(ROUNDED)
    columns = kernel.tile[1]
    b, m, _, d, e = kernel.extents
    check_walk_ir(replace(kernel, extents=(b, m, columns * 2**24, d, e), tiles=2**24))


# ---- planted faults -------------------------------------------------------------------------------------------------


def the(kernel: WalkKernel, kind: type[WalkStatement], number: int = 0) -> tuple[tuple[int, ...], Any]:
    return [(path, each) for path, each in positions(kernel) if isinstance(each, kind)][number]


def without(kind: type[WalkStatement], number: int = 0, kernel: WalkKernel | None = None) -> WalkKernel:
    kernel = kernel or kernel_of()
    return edited(kernel, the(kernel, kind, number)[0])


def altered(kind: type[WalkStatement], number: int = 0, **to: Any) -> WalkKernel:
    kernel = kernel_of()
    path, statement = the(kernel, kind, number)
    return edited(kernel, path, replace(statement, **to))


def moved(kind: type[WalkStatement], number: int = 0) -> WalkKernel:
    kernel = kernel_of()
    return earlier(kernel, the(kernel, kind, number)[0])


def resized(**to: Any) -> WalkKernel:
    return replace(kernel_of(), **to)


K = kernel_of()
Q_RING, K_RING, V_RING, KEYS_RING = K.rings
N = Tile(0, "tile")

FAULTS: dict[str, tuple[WalkKernel, str]] = {
    "keys are not waited for": (without(Wait, 0), "statement 3, turn 0, 3: tile 0 of q is read before it is waited for"),
    "no barrier before keys are read": (without(Barrier, 0), "keys may still be read|without a barrier"),
    "no barrier between the walks": (without(Barrier, 1), "of keys may still be read where tile 0 of k is written"),
    "no barrier before the values are read": (without(Barrier, 3), "of v is read without a barrier|may still be read"),
    "values are not waited for": (without(Wait, 2), "tile 0 of v is read before it is waited for"),
    "a group too many may be pending": (altered(Wait, 1, pending=1), "is not among what has arrived: 1 groups"),
    "the last copies are under way at the end": (without(Wait, 3), "never waited for"),
    "the epilogue without a barrier": (without(Barrier, 4), "q may still be written where its memory is used again"),
    "keys are copied while they are read": (moved(CpAsync, 5), "may still be read where|on its way|read without"),
    "values are never copied": (without(CpAsync, 4), "v\\[0\\] is not among what has arrived"),
    "the next keys are never copied": (without(CpAsync, 5), "turn 1, 0: k\\[1\\] is not among what has arrived"),
    "the next keys are copied twice": (altered(CpAsync, 5, tile=Tile(2, "tile"), out_token=Token("k", Tile(2, "tile"))), "turn 1, 0: k\\[1\\] is not among what has arrived"),
    "scores of another tile": (altered(Scores, 1, tile=Tile(1, "tile"), out_token=Token("scores", Tile(1, "tile"))), "the block has no tile|is read where|is not what"),
    "no scores": (without(Scores, 1), "scores\\[0\\] is used before it is produced"),
    "scores of values": (altered(Scores, 1, rings=("q", "v")), "q times v are no scores"),
    "totals of nothing": (without(Scores, 0), "scored\\[0\\] is used before it is produced"),
    "no totals": (without(Totals), "0 of 1 tiles are in the totals"),
    "no shares": (without(Shares), "shares\\[0\\] is used before it is produced"),
    "shares before the totals": (edited(without(Shares), (0,), the(kernel_of(), Shares)[1], kernel_of().stmts[0]), "0 of 1 tiles are in the totals"),
    "totals counted twice": (altered(Exponentials, shares=None), "in the totals already"),
    "no exponentials": (without(Exponentials), "weights\\[0\\] is used before it is produced"),
    "exponentials twice": (edited(kernel_of(), the(kernel_of(), Exponentials)[0], *[the(kernel_of(), Exponentials)[1]] * 2), "scores\\[0\\] is not what"),
    "nothing is weighed": (without(Weigh), "weighed\\[0\\] is used before|of 1 tiles are weighed"),
    "weighed twice": (edited(kernel_of(), the(kernel_of(), Weigh)[0], *[the(kernel_of(), Weigh)[1]] * 2), "there are no weights of tile 0"),
    "weighed keys": (altered(Weigh, ring="k"), "k are no values"),
    "three parts": (altered(Weigh, parts=3), "one part or two"),
    "no epilogue": (without(Epilogue), "epilogue\\[0\\] is used before it is produced"),
    "an epilogue beside the rings": (altered(Epilogue, overlap=True), "that of the rings"),
    "nothing is stored": (without(StGlobalVec), "the results are never stored"),
    "a width that rows are no multiple of": (altered(StGlobalVec, width=64), "32 columns are no multiple of 64"),
    "a copy after the epilogue": (resized(stmts=(*K.stmts[:-1], CpAsync("k", Tile(0), "in1", 16, Token("late", Tile(0))), K.stmts[-1])), "written where the epilogue's memory is"),
    "keys copied in two ways": (edited(altered(CpAsync, 1, bytes=8), (3, 2), CpAsync("keys", Tile(1, "tile"), "in1", 8, Token("keys", Tile(1, "tile")))), "the same keys are copied in two ways"),
    "one walk in another": (edited(kernel_of(), (3, 0), kernel_of().stmts[3]), "a walk is in no other"),
    "tiles that n has not": (resized(tiles=4), "150 columns in tiles of 64 are not 4"),
    "a ring of another shape": (resized(rings=(Q_RING, replace(K_RING, columns=64), V_RING, KEYS_RING)), "k is 64 x 64, its tile 64 x 32"),
    "keys elsewhere": (resized(starts=(*K.starts[:3], 0)), "keys does not begin where k does"),
    "a ring that begins within a chunk": (resized(starts=(0, 8, K.starts[2], 8)), "byte 8, where k begins"),
    "values in the place of keys": (resized(starts=(0, K.starts[1], K.starts[1], K.starts[1])), "turn 0, 4: tile 0 of k is read where nothing is"),
    "another grid": (resized(grid=(1, 1, 1)), "blocks are counted along x"),
    "rows that are no instruction's": (resized(warp_rows=8), "are not whole instructions"),
    "a ring without end": (resized(rings=(Q_RING, K_RING, V_RING, replace(KEYS_RING, stages=99))), "more than 16 stages"),
}  # fmt: skip


@pytest.mark.spec("004-124")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault: str) -> None:
    kernel, match = FAULTS[fault]
    check_walk_ir(kernel_of())
    with pytest.raises(TinycError) as caught:
        check_walk_ir(kernel)
    assert caught.value.kind == "GpuIrInvalid"
    assert re.search(match, caught.value.why), caught.value.why


# ---- mutants --------------------------------------------------------------------------------------------------------


def mutants(kernel: WalkKernel) -> Iterator[tuple[str, WalkKernel]]:
    """Each statement left out, doubled, before the one it followed, and with each of its fields altered."""
    for path, statement in positions(kernel):
        where = f"{type(statement).__name__} {'.'.join(map(str, path))}"
        yield f"{where} left out", edited(kernel, path)
        yield f"{where} doubled", edited(kernel, path, statement, statement)
        if path[-1]:
            yield f"{where} earlier", earlier(kernel, path)
        for field in fields(statement):
            if field.name == "parts":
                continue  # how exact the sums are is the program's to say
            old = getattr(statement, field.name)
            for new in widths(old) if field.name in ("bytes", "width") else others(old):
                yield (
                    f"{where} with {field.name} {shown(new)} for {shown(old)}",
                    edited(kernel, path, replace(statement, **{field.name: new})),
                )


def others(old: Any) -> list[Any]:
    """Values near ``old``. Names that only say what is meant (ops, outputs, sources) have none."""
    match old:
        case bool():
            return [not old]
        case int():
            return [old + 1, old - 1] if old else [1]
        case Tile(offset, var):
            return [Tile(offset + 1, var), Tile(offset - 1, var), Tile(offset, None if var else "first")]
        case Token(name, tile):
            return [Token(name, other) for other in others(tile)] + [Token("k" if name != "k" else "v", tile)]
        case "q" | "k" | "v" | "keys":
            return [name for name in ("q", "k", "v", "keys") if name != old]
        case (Token(), *_):
            return [old[1:], old[::-1], *((*old[:-1], other) for other in others(old[-1]))]
        case ("q", str() as keys):
            return [(keys, "q"), ("q", "q"), ("q", "v"), ("q", "keys" if keys == "k" else "k")]
        case None:
            return [Token("shares", Tile(0))]
    return []


@pytest.mark.spec("004-124")
@pytest.mark.parametrize("kind", CASES)
def test_a_change_of_one_statement_is_refused_or_harmless(kind: str, golden: Golden) -> None:
    """The golden file lists those that are not refused: their kernels are run, and right. Those of two of the kernels are run in the
    slow test."""
    accepted = accepted_mutants(kernel_of(CASES[kind]))
    golden("\n".join(accepted))
    if kind == "rounded":
        run_all(CASES[kind], [kernel for name, kernel in accepted.items() if "doubled" not in name])


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_what_is_not_refused_is_right(kind: str) -> None:
    run_all(CASES[kind], list(accepted_mutants(kernel_of(CASES[kind])).values()))


@pytest.mark.parametrize("kind", CASES)
def test_lengths_that_are_left_out_change_no_verdict(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks of more tiles than are tried give the same verdict, at the same statement."""
    kernel = kernel_of(CASES[kind])
    b, m, _, d, e = kernel.extents
    kernel = replace(kernel, extents=(b, m, kernel.tile[1] * 23, d, e), tiles=23)

    def verdicts() -> dict[str, str]:
        return {name: verdict(mutant) for name, mutant in mutants(kernel)}

    short = verdicts()
    assert check_walk._enough(kernel) < 23
    monkeypatch.setattr(check_walk, "_enough", lambda kernel: 23)
    assert verdicts() == short


def verdict(kernel: WalkKernel) -> str:
    try:
        check_walk_ir(kernel)
    except TinycError as error:
        assert error.kind == "GpuIrInvalid"
        return error.why
    return "accepted"


def accepted_mutants(kernel: WalkKernel) -> dict[str, WalkKernel]:
    return {name: mutant for name, mutant in mutants(kernel) if verdict(mutant) == "accepted"}


def run_all(region: Region, kernels: Sequence[WalkKernel]) -> None:
    """Each that is another text gives what the kernel gives that nobody changed, and nothing is found wrong with it."""
    attention = found(region)
    generator = np.random.default_rng(0)
    arrays = {ref.name: generator.normal(size=ref.shape).astype(ref.dtype.numpy) for ref in region.inputs}
    want = outputs_of(region, launched(walk(region, attention, walk_kernel(attention)), region, arrays))
    made = {each.source: each for each in (walk(region, attention, kernel) for kernel in kernels)}
    assert len(made) > 5
    for number, each in enumerate(made.values()):
        result = launched(each, region, arrays, DELIVERIES[number % len(DELIVERIES)])
        assert not result.findings, result.findings[0]
        for name, value in outputs_of(region, result).items():
            np.testing.assert_array_equal(value, want[name])
