"""What a stranger tried on the layers and their dumps: every fault has a place and a reason, nothing is overlooked."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import tinyc
from tinyc import functions as tc
from tinyc.cli import main

ROOT = Path(__file__).parent.parent
GEMM = str(ROOT / "docs" / "examples" / "gemm_bias_relu.json")
Dump = dict[str, Any]


def dumped(stage: str, fn: Callable[..., Any], *shapes: tuple[int | str, ...]) -> Dump:
    compiled = tinyc.optimize_and_compile(tinyc.trace(fn, *[tinyc.spec("fp32", shape) for shape in shapes]))
    document: Dump = json.loads(compiled.dump(stage))
    return document


def two_kernels(stage: str) -> Dump:
    return dumped(stage, lambda x, w: tc.softmax((x @ w).relu()), (12, 20), (20, 18))


def refused(document: Dump, **options: Any) -> tinyc.TinycError:
    with pytest.raises(tinyc.TinycError) as caught:
        tinyc.optimize_and_compile(document, **options)
    return caught.value


# ---- dumps that were changed ----


@pytest.mark.parametrize("name", [[], {}, ["k"], 7, None, True, "", "k\n"], ids=repr)
def test_a_plan_for_no_region_is_refused_with_its_place(name: object) -> None:
    document = two_kernels("plan")
    document["plan"][1]["region"] = name
    error = refused(document)
    assert error.kind == "UnknownReference"
    assert "plan[1]" in str(error)


@pytest.mark.parametrize("stage", ["region", "plan"])
def test_an_unguarded_read_is_refused_with_the_entry_that_has_it(stage: str) -> None:
    document = two_kernels(stage)
    entries = document[stage]
    place, entry = next(
        (number, entry.get("kernel", entry))
        for number, entry in enumerate(entries)
        if "w" in {ref["name"] for ref in entry.get("kernel", entry)["inputs"]}
    )
    text = json.dumps(entry).replace('"tensor": "w", "map": ["r', '"tensor": "w", "map": ["1+r')
    assert text != json.dumps(entry)
    if stage == "plan":
        entries[place]["kernel"] = json.loads(text)
    else:
        entries[place] = json.loads(text)
    error = refused(document)
    assert error.code == "E1401"
    assert f"{stage}[{place}]" in error.why


WEIRD = (0, -1, "x", None, 2.5, True, 1 << 70, [1])


@pytest.mark.parametrize("size", WEIRD, ids=repr)
def test_sizes_of_symbols_are_checked_for_a_dump_as_for_a_program(size: Any) -> None:
    memref = {"name": "x", "memref": {"dtype": "fp32", "shape": ["M"]}}
    region = {
        "name": "k",
        "iters": [{"name": "i"}],
        "inputs": [memref],
        "outputs": [{**memref, "name": "y"}],
        "lets": [{"let": "v", "expr": {"relu": [{"read": {"tensor": "x", "map": ["i"]}}]}}],
        "yield": [{"from": "v", "to": "y"}],
    }
    error = refused({"region": [region]}, shapes={"M": size})
    assert error.kind == "InvalidShape"
    assert "M" in error.why
    compiled = tinyc.optimize_and_compile({"region": [region]}, shapes={"M": np.int64(3)})  # type: ignore[dict-item]
    np.testing.assert_array_equal(compiled(np.float32([-1, 0, 2])), np.float32([0, 0, 2]))


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"shapes": {"Z": 3}}, "UnboundSymbol"),
        ({"without": ["nosuch"]}, "UnknownRuleset"),
        ({"also": ["nosuch"]}, "UnknownRuleset"),
        ({"rules": ["nosuch.egg"]}, "FileUnreadable"),
        ({"shapes": [3]}, "InvalidArgument"),
        ({"rules": [3]}, "InvalidArgument"),
        ({"without": 3}, "InvalidArgument"),
        ({"also": [None]}, "InvalidArgument"),
        ({"budget": 3}, "InvalidArgument"),
    ],
    ids=str,
)
def test_options_that_mean_nothing_are_refused_for_a_dump_too(options: dict[str, Any], kind: str) -> None:
    assert refused(two_kernels("region"), **options).kind == kind


BASES: tuple[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]], ...] = (
    (lambda a, b, c: (a @ b + c).relu(), ((20, 24), (24, 36), (36,))),
    (lambda x: tc.softmax(x), ((7, 19),)),
    (lambda x: x.pad([(1, 2), (0, 3)], -1.5).flip(0)[:, ::2].max(0), ((6, 9),)),
)
OPERATIONS = ("add", "sub", "mul", "max", "min")


def changed(document: Dump, pick: random.Random) -> Dump:
    """Another dump that may well be right: one size another one everywhere, other operations, another tile."""
    document = copy.deepcopy(document)
    for place in list(objects(document)):
        for name in OPERATIONS:
            if isinstance(place.get(name), list) and len(place[name]) == 2 and pick.random() < 0.3:
                place[pick.choice(OPERATIONS)] = place.pop(name)
        if "op" in place and pick.random() < 0.3:
            place["op"] = pick.choice(("sum", "max", "min"))
            place.pop("init", None)
    for plan in document["plan"]:
        if "tile" in plan and pick.random() < 0.7:
            plan["tile"] = [pick.choice((1, 7, 16, 64, 1000)) for _ in range(3)]
    old, new = pick.choice((7, 19, 20, 24, 36)), pick.choice((1, 2, 5, 16, 33, 64))
    resized: Dump = json.loads(
        json.dumps(document), parse_int=lambda text: new if int(text) == old else int(text)
    )
    return resized


def objects(value: Any) -> Iterator[Dump]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(inner)


@pytest.mark.parametrize("base", range(len(BASES)))
def test_what_a_changed_dump_computes_is_what_playback_says(base: int) -> None:
    fn, shapes = BASES[base]
    document = dumped("plan", fn, *shapes)
    accepted = 0
    for seed in range(12):
        try:
            compiled = tinyc.optimize_and_compile(changed(document, random.Random(seed)))
        except tinyc.TinycError as error:
            assert error.why and ("[" in str(error)), error
            continue
        accepted += 1
        again = tinyc.optimize_and_compile(json.loads(compiled.dump("plan")))
        assert again.dump("plan") == compiled.dump("plan")
        generator = np.random.default_rng(seed)
        inputs = [
            generator.integers(-3, 4, argument.shape).astype(np.float32)
            for argument in compiled.signature.inputs
        ]
        np.testing.assert_allclose(compiled(*inputs), compiled.playback(*inputs), rtol=1e-4, atol=1e-4)
    assert accepted >= 3


# ---- sizes and symbols ----


@pytest.mark.parametrize("size", [1 << 31, 1 << 58])
def test_the_analysis_of_huge_rows_looks_at_few_tiles(size: int) -> None:
    compiled = tinyc.optimize_and_compile(tinyc.trace(tc.softmax, tinyc.spec("fp32", (4, size))))
    assert json.loads(compiled.dump("analysis"))["analysis"]


@pytest.mark.parametrize("symbol", ["r0", "and", "floor", "x0", "p1", "exists"])
def test_symbols_may_be_called_as_they_like(symbol: str) -> None:
    program = tinyc.trace(lambda x: tc.softmax(x).sum(0), tinyc.spec("fp32", (symbol, 6)))
    compiled = tinyc.optimize_and_compile(program)
    for stage in ("indexbook", "poly_view"):
        schema = json.loads((ROOT / "docs" / "schemas" / f"{stage}.schema.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(json.loads(compiled.dump(stage)))


# ---- the command line ----


@pytest.fixture
def _dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    shapes = [word for symbol in "MNK" for word in ("--shape", f"{symbol}=8")]
    stages = "--dump=indexbook,region,analysis,plan,exec"
    assert main(["compile", GEMM, *shapes, stages, "--out", "."]) == 0
    capsys.readouterr()


@pytest.mark.usefixtures("_dumps")
@pytest.mark.parametrize("command", [["dump", "tiny"], ["draw", "program"]], ids=" ".join)
def test_what_comes_before_a_dump_is_refused_with_the_file(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "05-region.json"]) == 1
    error = capsys.readouterr().err
    assert "InvalidArgument" in error and "05-region.json" in error


@pytest.mark.usefixtures("_dumps")
@pytest.mark.parametrize("stage", ["indexbook", "analysis", "exec"])
def test_a_dump_from_which_nothing_goes_on_is_called_so(
    stage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = Path().glob(f"*-{stage}.json")
    assert main(["dump", "llvm", str(file)]) == 1
    error = capsys.readouterr().err
    assert f"a dump of the stage {stage}" in error and str(file) in error and "region" in error


@pytest.mark.usefixtures("_dumps")
def test_an_array_of_another_shape_is_refused_with_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("bad.npy", np.ones((3, 3), np.float16))
    inputs = [word for name in ("A", "B", "bias") for word in ("--input", f"{name}=bad.npy")]
    assert main(["run", "05-region.json", *inputs]) == 1
    error = capsys.readouterr().err
    assert "InputMismatch" in error and "05-region.json" in error


def test_a_product_of_masks_is_a_contraction() -> None:
    """A cast from bool to i32 widens, for extraction as for the rules and for what goes on from a Region."""

    def fn(x: Any, y: Any) -> Any:
        return x.cast("i32") @ y.cast("i32")

    compiled = tinyc.optimize_and_compile(
        tinyc.trace(fn, tinyc.spec("bool", (64, 64)), tinyc.spec("bool", (64, 64)))
    )
    (kernel,) = compiled.kernels
    assert kernel.plan.algo == "contraction"
    again = tinyc.optimize_and_compile(json.loads(compiled.dump("region")))
    assert again.dump("plan") == compiled.dump("plan")
