"""Going on from a dump: the same program comes out, a change in the dump changes it, and nonsense is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from region_documents import conv

import tinyc
from tinyc.cli import main
from tinyc.compiler import STAGES
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.document import dumps
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program
from tinyc.ir.verify import bind
from tinyc.stages import program_stage, stages_of

EXAMPLES = sorted((Path(__file__).parent.parent / "docs" / "examples").glob("*.json"))
Dump = dict[str, Any]


def inputs_of(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    arrays = {}
    for port in program.inputs:
        kind = program.types[port.node]
        arrays[port.name] = generator.integers(-3, 4, tuple(map(int, kind.shape))).astype(kind.dtype.numpy)
    return arrays


def bound(path: Path) -> Program:
    program = tinyc.load(path)
    return bind(program, dict.fromkeys(program.symbols, 24))


def listed(result: Any) -> tuple[np.ndarray, ...]:
    return result if isinstance(result, tuple) else (result,)


def gemm(dtype: str = "fp32", m: int = 96, k: int = 80, n: int = 64) -> tinyc.Compiled:
    def fn(a: Any, b: Any, bias: Any) -> Any:
        return (a @ b + bias).relu()

    specs = [tinyc.spec(dtype, shape) for shape in ((m, k), (k, n), (n,))]
    return tinyc.optimize_and_compile(tinyc.trace(fn, *specs))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_stage_that_can_be_read_goes_on_to_the_same_program(path: Path) -> None:
    program = bound(path)
    first = tinyc.optimize_and_compile(program)
    inputs = inputs_of(program)
    wanted = listed(first(**inputs))
    for stage in ("frontend", "tiny"):
        text = first.dump(stage)
        again = tinyc.load(json.loads(text))
        if not again.symbols:  # the Frontend document is dumped as it was written, its sizes not bound
            assert again == program
        assert dumps(program_stage(stage, again)) == text
    for stage in ("region", "plan"):
        text = first.dump(stage)
        again = tinyc.optimize_and_compile(json.loads(text))
        assert again.dump(stage) == text, stage
        assert again.dump("region") == first.dump("region"), stage
        assert again.dump("plan") == first.dump("plan"), stage
        assert again.dump("exec") == first.dump("exec"), stage
        assert [kernel.source for kernel in again.kernels] == [kernel.source for kernel in first.kernels]
        for got, want in zip(listed(again(**inputs)), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("stage", STAGES)
def test_dumps_are_strict_json_under_the_stage_s_name(stage: str) -> None:
    def refuse(text: str) -> None:
        raise AssertionError(text)

    compiled = tinyc.optimize_and_compile(str(EXAMPLES[0]), "sm80" if stage in ("gpu", "cu") else "cpu")
    document = json.loads(compiled.dump(stage), parse_constant=refuse)
    assert list(document) == [stage]


@pytest.mark.parametrize(
    ("target", "stage"), [("cpu", "gpu"), ("cpu", "cu"), ("sm80", "llvm"), ("sm90", "llvm")]
)
def test_the_source_of_another_target_is_no_stage(target: str, stage: str) -> None:
    compiled = tinyc.optimize_and_compile(str(EXAMPLES[0]), target)
    with pytest.raises(TinycError) as caught:
        compiled.dump(stage)
    assert caught.value.kind == "TargetUnavailable"
    assert ("llvm" if target == "cpu" else "cu") in caught.value.suggestion


def test_stages_before_the_regions_are_gone_after_them() -> None:
    compiled = gemm()
    again = tinyc.optimize_and_compile(json.loads(compiled.dump("region")))
    for stage in ("frontend", "tiny", "indexbook", "poly_view"):
        with pytest.raises(tinyc.TinycError, match="InvalidArgument"):
            again.dump(stage)
    with pytest.raises(tinyc.TinycError, match="InvalidArgument"):
        _ = again.program


# ---- a plan that was changed ----


def planned(compiled: tinyc.Compiled, change: Callable[[Dump], None]) -> tinyc.Compiled:
    document = json.loads(compiled.dump("plan"))
    for plan in document["plan"]:
        change(plan)
    return tinyc.optimize_and_compile(document)


@pytest.mark.parametrize("tile", [[32, 32, 16], [96, 64, 80], [1, 1, 1], [37, 51, 13], [999, 999, 999]])
def test_another_tile_gives_another_loop_and_the_same_result(tile: list[int]) -> None:
    compiled = gemm()
    other = planned(compiled, lambda plan: plan.update(tile=tile))
    inputs = {name: np.asarray(value) for name, value in inputs_of(compiled.program).items()}
    (want,) = evaluate(compiled.program, inputs)
    np.testing.assert_array_equal(other(**inputs), want)
    assert other.kernels[0].plan.tile == tuple(tile)
    if tile in ([32, 32, 16], [37, 51, 13]):
        assert other.kernels[0].source != compiled.kernels[0].source


def test_another_vector_width_gives_other_vectors() -> None:
    compiled = gemm()
    width = json.loads(compiled.dump("plan"))["plan"][0]["vectorize"]["width"]
    half = planned(compiled, lambda plan: plan["vectorize"].update(width=width // 2))
    assert f"<{width // 2} x float>" in half.kernels[0].source
    assert f"<{width} x float>" not in half.kernels[0].source
    inputs = inputs_of(compiled.program)
    np.testing.assert_array_equal(half(**inputs), compiled(**inputs))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"tile": [0, 64, 64]}, "tile[0]"),
        ({"tile": [64, -1, 64]}, "tile[1]"),
        ({"tile": [64, 64]}, "tile"),
        ({"tile": [64, 64, "big"]}, "tile[2]"),
        ({"tile": [1 << 40, 1 << 40, 1 << 40]}, "tile"),
        ({"vectorize": {"axis": "i1", "width": 3}}, "width"),
        ({"vectorize": {"axis": "i1", "width": 1024}}, "width"),
        ({"vectorize": {"axis": "nowhere", "width": 4}}, "axis"),
        ({"stages": 9}, "stages"),
        ({"speed": "more"}, "speed"),
        ({"arch": "sm70"}, "arch"),
        ({"arch": "sm80"}, "arch"),
        ({"cache": [{"tensor": "Z", "where": "smem", "at": "k.i", "pingpong": True}]}, "cache"),
    ],
    ids=str,
)
def test_a_plan_that_cannot_be_is_refused_with_the_place_and_the_reason(change: Dump, where: str) -> None:
    with pytest.raises(tinyc.TinycError) as caught:
        planned(gemm(), lambda plan: plan.update(change))
    assert caught.value.code.startswith("E15"), caught.value
    assert where in str(caught.value)
    assert "plan[0]" in str(caught.value)


# ---- Regions written by hand ----

GEMM: Dump = {
    "region": {
        "name": "gemm_bias_relu",
        "iters": [{"name": "m", "size": "M"}, {"name": "n", "size": "N"}],
        "inputs": [
            {"name": "A", "memref": {"dtype": "fp16", "shape": ["M", "K"], "alignment": 128, "noalias": True, "layout": {"kind": "row_major"}}},
            {"name": "B", "memref": {"dtype": "fp16", "shape": ["K", "N"], "alignment": 128, "noalias": True, "layout": {"kind": "col_major"}}},
            {"name": "bias", "memref": {"dtype": "fp16", "shape": ["N"], "alignment": 128, "noalias": True, "layout": {"kind": "row_major"}}},
        ],
        "outputs": [
            {"name": "C", "memref": {"dtype": "fp16", "shape": ["M", "N"], "alignment": 128, "noalias": True, "layout": {"kind": "row_major"}}, "materialize": "gmem"}
        ],
        "lets": [
            {"let": "acc", "expr": {"reduce": {"op": "sum", "axes": ["k"], "init": 0.0, "dtype": "fp32", "body": {"mul": [
                {"cast": {"operand": {"read": {"tensor": "A", "map": ["m", "k"]}}, "to": "fp32"}},
                {"cast": {"operand": {"read": {"tensor": "B", "map": ["k", "n"]}}, "to": "fp32"}},
            ]}}}},
            {"let": "c1", "expr": {"add": ["acc", {"BroadcastInDim": {
                "operand": {"cast": {"operand": {"read": {"tensor": "bias", "map": ["n"]}}, "to": "fp32"}},
                "result_shape": ["M", "N"], "broadcast_dimensions": [1],
            }}]}},
            {"let": "c2", "expr": {"relu": ["c1"]}},
        ],
        "yield": [{"from": "c2", "to": "C", "cast": "fp16"}],
    }
}  # fmt: skip


@pytest.mark.spec("004-089")
@pytest.mark.parametrize("sizes", [(8, 16, 24), (33, 7, 65), (1, 1, 1)])
def test_the_document_s_region_runs(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    compiled = tinyc.optimize_and_compile(GEMM, shapes={"M": m, "N": n, "K": k})
    generator = np.random.default_rng(0)
    a, b, bias = (generator.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n), (n,)))
    want = np.maximum(a.astype(np.float32) @ b.astype(np.float32) + bias, 0).astype(np.float16)
    np.testing.assert_array_equal(compiled(A=a, B=b, bias=bias), want)
    np.testing.assert_array_equal(compiled.playback(a, b, bias), want)
    assert [argument.name for argument in compiled.signature.inputs] == ["A", "B", "bias"]


def test_sizes_that_are_not_bound_are_asked_for() -> None:
    with pytest.raises(tinyc.TinycError, match="UnboundSymbol"):
        tinyc.optimize_and_compile(GEMM, shapes={"M": 4, "N": 4})


def chain(*order: int) -> Dump:
    """b = a + 1, c = b * 2, d = b - c, in the order given."""

    def memref(name: str) -> Dump:
        return {"name": name, "memref": {"dtype": "fp32", "shape": [4]}}

    def region(name: str, reads: list[str], to: str, expr: Dump) -> Dump:
        return {
            "name": name,
            "iters": [{"name": "i", "size": 4}],
            "inputs": [memref(each) for each in reads],
            "outputs": [{**memref(to), "materialize": "gmem"}],
            "lets": [{"let": "v", "expr": expr}],
            "yield": [{"from": "v", "to": to}],
        }

    def read(name: str) -> Dump:
        return {"read": {"tensor": name, "map": ["i"]}}

    regions = [
        region("first", ["a"], "b", {"add": [read("a"), 1.0]}),
        region("second", ["b"], "c", {"mul": [read("b"), 2.0]}),
        region("third", ["b", "c"], "d", {"sub": [read("b"), read("c")]}),
    ]
    return {"region": [regions[number] for number in order]}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_regions_run_in_the_order_of_their_buffers(order: tuple[int, ...]) -> None:
    compiled = tinyc.optimize_and_compile(chain(*order))
    a = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(compiled(a), (a + 1) - (a + 1) * 2)
    names = [instruction.debug_name for instruction in compiled.plan.instructions]
    assert names == ["first", "second", "third"]


def argued(output: str, shape: list[int] | None = None) -> Dump:
    argument = {"dtype": "fp32", "shape": [4]}
    return {
        "inputs": [{"tensor": "a", **argument}],
        "outputs": [{"tensor": output, **argument, "shape": shape or [4]}],
    }


def broken(change: Callable[[Dump], None]) -> Dump:
    document = chain(0, 1, 2)
    change(document)
    return document


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda d: d.update(region=[]), "MalformedDocument"),
        (lambda d: d.update(region=7), "MalformedDocument"),
        (lambda d: d.update(regions=[]), "MalformedDocument"),
        (lambda d: d.update(plan=[{"region": "nobody"}]), "UnknownReference"),
        (lambda d: d.update(plan=[{"region": "first"}, {"region": "first"}]), "DuplicateId"),
        (lambda d: d["region"][1].update(name="first"), "DuplicateId"),
        (lambda d: d["region"].append({**d["region"][0], "name": "again"}), "DuplicateId"),
        (
            lambda d: d["region"][0]["inputs"].append({"name": "d", "memref": {"dtype": "fp32", "shape": [4]}}),
            "CyclicGraph",
        ),
        (lambda d: d["region"][1]["inputs"][0]["memref"].update(shape=[5]), "AxisAlignmentMismatch"),
        (lambda d: d["region"][0]["lets"][0]["expr"]["add"][0]["read"].update(map=["i+1"]), "UnguardedAccess"),
        (lambda d: d["region"][0].update(program={"inputs": [], "outputs": []}), "MalformedDocument"),
        (lambda d: d["region"][0].update(program=argued("z")), "UnknownReference"),
        (lambda d: d["region"][0].update(program=argued("d", [5])), "AxisAlignmentMismatch"),
        (lambda d: d["region"][0].update(program={**argued("d"), "buffers": 7}), "MalformedDocument"),
    ],
)  # fmt: skip
def test_dumps_that_make_no_program_are_refused(change: Callable[[Dump], None], kind: str | None) -> None:
    with pytest.raises(tinyc.TinycError) as caught:
        tinyc.optimize_and_compile(broken(change))
    assert kind is None or caught.value.kind == kind, caught.value


def test_a_region_may_have_several_outputs() -> None:
    document = chain(0)
    region = document["region"][0]
    region["outputs"].append({"name": "e", "memref": {"dtype": "fp32", "shape": [4]}, "materialize": "gmem"})
    region["lets"].append({"let": "w", "expr": {"mul": ["v", 3.0]}})
    region["yield"].append({"from": "w", "to": "e"})
    compiled = tinyc.optimize_and_compile(document)
    a = np.arange(4, dtype=np.float32)
    for result in (compiled(a), compiled.playback(a)):
        np.testing.assert_array_equal(result, (a + 1, (a + 1) * 3))
    assert "first" in str(compiled.report)


# ---- the command line ----


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_here")
@pytest.mark.spec("004-143")
def test_the_command_line_goes_on_from_a_dump(capsys: pytest.CaptureFixture[str]) -> None:
    example = str(next(path for path in EXAMPLES if path.stem == "gemm_bias_relu"))
    symbols = tinyc.load(example).symbols
    shapes = [word for symbol in symbols for word in ("--shape", f"{symbol}=24")]
    assert main(["compile", example, *shapes, f"--dump={','.join(stages_of('cpu'))}", "--out", "out"]) == 0
    capsys.readouterr()
    written = sorted(path.name for path in Path("out").iterdir())
    assert [name for name in written if name.endswith(".json")] == [
        f"{number:02d}-{stage}.json" for number, stage in enumerate(stages_of("cpu"), 1) if stage != "llvm"
    ]
    for stage in ("tiny", "region", "plan"):
        (file,) = Path("out").glob(f"*-{stage}.json")
        for after in stages_of("cpu")[STAGES.index(stage) :]:
            if after == "llvm":
                continue
            (wanted,) = Path("out").glob(f"*-{after}.json")
            assert main(["dump", after, str(file)]) == 0
            assert capsys.readouterr().out == wanted.read_text()
    assert main(["dump", "tiny", str(next(Path("out").glob("*-region.json")))]) == 1
    assert "InvalidArgument" in capsys.readouterr().err


@pytest.mark.usefixtures("_here")
@pytest.mark.spec("004-144")
def test_the_command_line_plays_regions_back(capsys: pytest.CaptureFixture[str]) -> None:
    Path("chain.json").write_text(json.dumps(chain(0, 1, 2)))
    np.save("a.npy", np.arange(4, dtype=np.float32))
    for name, flags in (("code.npy", []), ("playback.npy", ["--playback"])):
        assert main(["run", "chain.json", "--input", "a=a.npy", "--output", name, *flags]) == 0
    np.testing.assert_array_equal(np.load("playback.npy"), np.load("code.npy"))
    np.testing.assert_array_equal(np.load("playback.npy"), np.array([-1, -2, -3, -4], np.float32))


@pytest.mark.usefixtures("_here")
def test_a_fault_in_a_dump_names_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    document = chain(0, 1, 2)
    document["region"][0]["lets"][0]["expr"] = {"add": [{"read": {"tensor": "nobody", "map": ["i"]}}, 1.0]}
    Path("bad.json").write_text(json.dumps(document))
    assert main(["compile", "bad.json"]) == 1
    error = capsys.readouterr().err
    assert "bad.json" in error and "region[0].lets[0]" in error


# ---- the guard of the document's convolution (I-27) ----


@pytest.mark.spec("I-27", "004-087", "004-091")
@pytest.mark.parametrize(
    ("height", "width", "fits"), [(5, 5, False), (6, 6, True), (5, 6, False), (6, 5, False)]
)
def test_the_guard_as_the_document_has_it_is_refused_where_it_lets_a_row_in(
    height: int, width: int, fits: bool
) -> None:
    """``2h+kh-1 < H+2`` admits X[H] for odd H; for even H no window reaches that far, and the Region is right."""
    sizes = {"N": 2, "Ci": 3, "H": height, "W": width, "Co": 4}
    generator = np.random.default_rng(0)
    x = generator.integers(-3, 4, (2, 3, height, width)).astype(np.float16)
    w = generator.integers(-3, 4, (4, 3, 3, 3)).astype(np.float16)
    corrected = tinyc.optimize_and_compile({"region": conv()}, shapes=sizes)
    wanted = corrected.playback(X=x, W=w)
    np.testing.assert_array_equal(corrected(X=x, W=w), wanted)
    padded = np.pad(x.astype(np.float32), ((0, 0), (0, 0), (1, 1), (1, 1)))
    np.testing.assert_array_equal(
        wanted[:, :, -1, -1],
        np.einsum(
            "ncij,ocij->no",
            padded[:, :, 2 * wanted.shape[2] - 2 :, 2 * wanted.shape[3] - 2 :][:, :, :3, :3],
            w.astype(np.float32),
        ).astype(np.float16),
    )
    as_written = {"region": conv({"add": ["H", 2]}, {"add": ["W", 2]})}
    if fits:
        loose = tinyc.optimize_and_compile(as_written, shapes=sizes)
        np.testing.assert_array_equal(loose(X=x, W=w), wanted)
        return
    with pytest.raises(tinyc.TinycError) as caught:
        tinyc.optimize_and_compile(as_written, shapes=sizes)
    assert caught.value.kind == "UnguardedAccess"
    assert "is 5, outside of 0 <= index < 5" in caught.value.why
