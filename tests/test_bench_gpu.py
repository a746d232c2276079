"""``tinyc bench gpu``: the folder that it writes, and the script in it, against the fake driver and without tinyc."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import numpy as np
import pytest
import remote_driver
from fake_driver import FakeDriver
from fake_torch import MILLISECONDS, FakeTorch

from tinyc.bench.gpu import entries
from tinyc.bench.gpu.entries import ENTRIES, Entry
from tinyc.bench.gpu.export import Made, export_set
from tinyc.bench.gpu.folder import FILES, contestants, programs, run
from tinyc.bench.gpu.naive import NAIVE, traced
from tinyc.cli import main
from tinyc.codegen.nvrtc import compile_cubin
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.evaluate import evaluate
from tinyc.runtime.cuda.loader import Device

ROOT = Path(__file__).parent.parent

GEMM = entries.gemm("small", "fp16", 16, 24, 32, layout="nt", quick=True)
SUM = entries.reduction(1, 9, 40)
SOFTMAX = entries.softmax("bf16", 5, 33)
SMALL = (
    GEMM,
    entries.gemm("odd", "bf16", 5, 7, 9, layout="tn"),
    entries.gemm("whole", "i32", 8, 8, 8),
    entries.gemm("bias", "fp16", 8, 16, 24, bias=True),
    entries.conv("nhwc", (7, 6, 3), (4, 8), "nhwc", batch=2, stride=2, groups=2),
    entries.conv("nchw", (5, 6, 3), (4, 4), "nchw", batch=2, groups=4),
    replace(
        entries.attention(9, 8, True, heads=4, shared=2),
        inputs=tuple(
            entries.Input(name, "fp16", (2, heads, 9, 8)) for name, heads in (("q", 4), ("k", 2), ("v", 2))
        ),
    ),
    SOFTMAX,
    entries.layer_norm("fp16", 6, 40),
    entries.bias_gelu("fp16", 6, 40),
    SUM,
    entries.reduction(0, 9, 40),
    entries.transformer_block(12, 16, 2),
)


def listed(entry: Entry) -> dict[str, Any]:
    """An entry as bench.json has it, as far as the script's programs look."""
    return {
        "program": entry.program,
        "parameters": dict(entry.parameters),
        "inputs": [vars(each) for each in entry.inputs],
        "output": vars(entry.output),
    }


def schema(name: str) -> jsonschema.Draft202012Validator:
    path = ROOT / "docs" / "schemas" / f"{name}.schema.json"
    return jsonschema.Draft202012Validator(json.loads(path.read_text()))


# ---- the set ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_what_its_program_takes_and_gives(name: str) -> None:
    entry = ENTRIES[name]
    program = traced(entry)
    (port,) = program.outputs
    assert (program.types[port.node].dtype.value, program.types[port.node].shape) == (
        entry.output.dtype,
        entry.output.shape,
    )
    assert entry.program in NAIVE and entry.program in programs.NUMPY
    assert name == entry.name and not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_what_the_set_holds() -> None:
    assert set(NAIVE) == {entry.program for entry in ENTRIES.values()} == {each.program for each in SMALL}
    assert set(NAIVE) == set(programs.torch_functions(FakeTorch(FakeDriver({}))))
    assert ENTRIES["gemm-fp16-4096"].flops == 2 * 4096**3 and ENTRIES["gemm-fp16-4096"].bytes == 6 * 4096**2
    conv = ENTRIES["conv-nhwc-32x56x56x64-128-3x3-stride-2"]
    assert conv.output.shape == (32, 28, 28, 128) and conv.flops == 2 * 32 * 28 * 28 * 128 * 64 * 9
    both = ENTRIES["attention-2048-d64"], ENTRIES["attention-causal-2048-d64"]
    assert both[0].flops == 4 * 4 * 16 * 2048**2 * 64 == 2 * both[1].flops
    assert {entry.program for entry in ENTRIES.values() if entry.quick} >= {"gemm", "conv", "attention"}


@pytest.mark.parametrize("entry", SMALL, ids=lambda entry: entry.name)
def test_numpy_computes_what_the_naive_program_says(entry: Entry) -> None:
    program = traced(entry)
    for kind in ("integers", "normal") if entry.program in programs.EXACT else ("normal",):
        arrays = programs.inputs_of(listed(entry), kind)
        inputs = {
            port.name: array.view(program.types[port.node].dtype.numpy)
            for port, array in zip(program.inputs, arrays, strict=True)
        }
        (got,) = evaluate(program, inputs)
        got = got.view(np.uint16) if entry.output.dtype == "bf16" else got
        want = programs.by_numpy(listed(entry), arrays)
        exact = kind == "integers"
        verdict = programs.judged(listed(entry), got, want, exact)
        assert not verdict.why
        spoiled = got.copy()
        spoiled.flat[3] = spoiled.flat[3] + (1 if got.dtype.kind in "iu" else 0.01)
        if exact or entry.output.dtype not in ("bf16", "i32"):
            assert programs.judged(listed(entry), spoiled, want, exact).why


def test_what_a_result_is_judged_by() -> None:
    entry = {"output": {"dtype": "fp16"}}
    want = np.array([1.0, -3.0, 1e-4])
    right = want.astype(np.float16)
    assert not programs.judged(entry, right, want, False).why
    assert not programs.judged(entry, right, want, True).why
    nan = programs.judged(entry, np.array([1, np.nan, 0], np.float16), want, False)
    assert nan.why.startswith("1 of 3 are wrong: nan and not -3 at [1]")
    assert programs.judged(entry, np.nextafter(right, np.float16(9)), want, True).why
    # each error is within the tolerance, all results are lost
    small = np.full(8, 5e-4)
    assert (
        "the errors together are 1 of the results"
        in programs.judged(entry, np.zeros(8, np.float16), small, False).why
    )


def test_rounding_to_bf16_is_to_nearest_even() -> None:
    import ml_dtypes

    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    values[:2] = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)  # ties
    got = programs.narrowed(values, "bf16")
    assert np.array_equal(got, values.astype(ml_dtypes.bfloat16).view(np.uint16))
    assert np.array_equal(programs.widened(got, "bf16"), got.view(ml_dtypes.bfloat16).astype(np.float64))


# ---- the folder -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu") / "set"
    export_set((GEMM, SOFTMAX, SUM), "sm80", folder, "tinyc bench gpu --export DIR")
    return folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "set"))


def images(folder: Path) -> dict[bytes, str]:
    """The PTX of each machine code, for the fake driver."""
    found = {}
    for path in folder.glob("bundles/*/kernels/*.cu"):
        cubin = compile_cubin(path.read_text())
        assert cubin.image == path.with_suffix(".cubin").read_bytes()
        found[cubin.image] = cubin.ptx
    return found


def test_the_folder(exported: Path) -> None:
    document = json.loads((exported / "bench.json").read_text())
    schema("bench_set").validate(document)
    assert [each["name"] for each in document["entries"]] == [GEMM.name, SOFTMAX.name, SUM.name]
    assert {*FILES, "loader.py", "bench.json", "bundles"} == {path.name for path in exported.iterdir()}
    for entry in document["entries"]:
        manifest = json.loads((exported / entry["folder"] / "manifest.json").read_text())
        assert manifest["arch"] == "sm_80" and len(manifest["launches"]) == len(entry["kernels"])
        for here, there in zip(entry["inputs"], manifest["signature"]["inputs"], strict=True):
            assert (here["name"], here["shape"]) == (there["tensor"], there["shape"])
    assert document["failed"] == []


def test_an_entry_that_does_not_compile_is_left_out(tmp_path: Path) -> None:
    wrong = replace(GEMM, name="wrong", inputs=(GEMM.inputs[0], replace(GEMM.inputs[1], shape=(24, 33))))
    told: list[Made] = []
    tiled = entries.gemm("tiled", "fp16", 256, 256, 64)
    made = export_set((wrong, tiled), "sm90", tmp_path / "set", "a command", told.append)
    assert [each.failure and each.failure.kind for each in made] == ["AxisSizeMismatch", None]
    assert told == list(made)
    document = json.loads((tmp_path / "set" / "bench.json").read_text())
    schema("bench_set").validate(document)
    assert [each["name"] for each in document["entries"]] == [tiled.name]
    (kernel,) = document["entries"][0]["kernels"]
    assert re.fullmatch(r"contraction \d+x\d+x\d+ of \d", kernel["schedule"]) and kernel["registers"] > 32
    (failed,) = document["failed"]
    assert (failed["name"], failed["kind"]) == ("wrong", "AxisSizeMismatch")
    assert not (tmp_path / "set" / "bundles" / "wrong").exists()


def test_only_a_set_is_replaced(exported: Path, folder: Path, tmp_path: Path) -> None:
    (folder / "left.txt").write_text("from before")
    export_set((SUM,), "sm80", folder, "again")
    assert not (folder / "left.txt").exists() and not (folder / "bundles" / GEMM.name).exists()
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    with pytest.raises(TinycError) as caught:
        export_set((SUM,), "sm80", other, "again")
    assert caught.value.kind == "FileUnwritable" and "no benchmark set" in caught.value.why
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "set"]


# ---- the script -------------------------------------------------------------------------------------------------------


FEW = ("--copies", "2", "--repeat", "2", "--least-ms", "0")


def alone(
    folder: Path, tmp_path: Path, driver: FakeDriver, *options: str
) -> subprocess.CompletedProcess[str]:
    """Runs the script with the fake driver, where there is neither tinyc nor torch."""
    path = tmp_path / "path"
    remote_driver.install(path)
    (path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('tinyc', 'ml_dtypes', 'torch', 'triton'):\n"
        "            raise ImportError(f'{name} is not installed')\n"
        "sys.meta_path.insert(0, Blocked())\n"
    )
    server = remote_driver.Server(driver)
    environment = {**os.environ, "PYTHONPATH": str(path), "FAKE_DRIVER": server.address}
    command = [sys.executable, str(folder / "bench.py"), *FEW, *options]
    try:
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
    finally:
        server.close()


def test_the_script_runs_without_tinyc_and_without_peers(folder: Path, tmp_path: Path) -> None:
    driver = FakeDriver(images(folder))
    done = alone(folder, tmp_path, driver)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    schema("bench_results").validate(results)
    assert results["gpu"]["name"] == "a fake GPU" and results["gpu"]["compute_capability"] == "8.0"
    assert results["set"]["command"] == "tinyc bench gpu --export DIR"
    assert results["command"].startswith("python bench.py --copies 2")
    for entry, found in zip((GEMM, SOFTMAX, SUM), results["entries"], strict=True):
        assert found["name"] == entry.name and not found["wrong"] and found["copies"] == 2
        assert all(check["right"] for check in found["checks"].values())
        assert set(found["checks"]) == ({"normal"} if entry is SOFTMAX else {"integers", "normal"})
        assert set(found["contestants"]) == {"tinyc"} and len(found["contestants"]["tinyc"]["times_s"]) == 2
        ours = found["contestants"]["tinyc"]
        assert ours["bytes_per_s"] == pytest.approx(entry.bytes / ours["time_s"])
    assert "no peers, and numpy's results: torch is not installed" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[-3:]] == [
        entry.name for entry in (GEMM, SOFTMAX, SUM)
    ]
    assert not (left := list(driver.held())), left


def test_copies_take_turns_and_results_are_looked_at_first(folder: Path, tmp_path: Path) -> None:
    driver = FakeDriver(images(folder))
    assert alone(folder, tmp_path, driver, "--only", GEMM.name, "--no-peers").returncode == 0
    outputs = [arguments[-1] for arguments in driver.arguments]
    first, second = sorted(set(outputs))
    checks, warm = [first, first], [first, second, first]
    # one launch to see how long it takes and two turns, each with a launch before it
    assert outputs == checks + warm + [first, second] * 2 * 3
    assert len(set(driver.arguments)) == 2, "inputs and outputs of a copy belong together"


def altered(folder: Path, entry: Entry, pattern: str, by: str) -> dict[bytes, str]:
    """The images of the folder, where an entry's PTX is another."""
    found = images(folder)
    for path in (folder / "bundles" / entry.name / "kernels").glob("*.cubin"):
        found[path.read_bytes()], count = re.subn(pattern, by, found[path.read_bytes()])
        assert count
    return found


def test_a_wrong_program_gets_no_time(folder: Path, tmp_path: Path) -> None:
    driver = FakeDriver(altered(folder, SUM, r"\badd(\.rn)?\.f32", r"sub\1.f32"))
    done = alone(folder, tmp_path, driver)
    assert done.returncode == 1
    *others, summed = json.loads((tmp_path / "results.json").read_text())["entries"]
    assert "are wrong" in summed["wrong"] and summed["contestants"] == {}
    assert not summed["checks"]["integers"]["right"]
    assert all(not each["wrong"] and each["contestants"] for each in others), "the others are timed"
    assert f"{SUM.name}: tinyc: on integers: " in done.stdout


def test_a_gpu_that_is_lost_ends_the_run(folder: Path, tmp_path: Path) -> None:
    driver = FakeDriver(altered(folder, GEMM, r"(st\.global[^[]*\[%\w+)[^]]*\]", r"\1+1073741824]"))
    done = alone(folder, tmp_path, driver)
    assert done.returncode == 1 and "the rest is not run" in done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    schema("bench_results").validate(results)
    (gemm,) = results["entries"]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in gemm["wrong"] and gemm["contestants"] == {}


def test_what_the_script_refuses(folder: Path, tmp_path: Path) -> None:
    done = alone(folder, tmp_path / "hopper", FakeDriver(images(folder), capability=(9, 0)))
    assert done.returncode == 2
    assert "machine code for sm_80" in done.stderr and "--target sm90" in done.stderr
    done = alone(folder, tmp_path / "name", FakeDriver({}), "--only", "nothing")
    assert done.returncode == 2 and f"there are {GEMM.name}, " in done.stderr
    none = FakeDriver({})
    none.devices = 0
    done = alone(folder, tmp_path / "none", none)
    assert done.returncode == 2 and "CUDA_ERROR_NO_DEVICE" in done.stderr


# ---- peers ------------------------------------------------------------------------------------------------------------


Script = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture
def run_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Script]:
    """Runs the script in this process, with a fake torch, and gives the results and what it printed."""
    modules = [Path(name).stem for name in (*FILES, "loader.py") if name != "bench.py"]

    def run_script(driver: FakeDriver, torch: FakeTorch, *options: str) -> tuple[dict[str, Any], str]:
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setitem(sys.modules, "triton", None)
        script().main([*FEW, "--out", str(folder / "results.json"), *options])
        return json.loads((folder / "results.json").read_text()), capsys.readouterr().out

    def script() -> ModuleType:
        spec = importlib.util.spec_from_file_location("bench_of_the_folder", folder / "bench.py")
        assert spec and spec.loader
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        return found

    monkeypatch.syspath_prepend(folder)
    yield run_script
    for name in modules:
        sys.modules.pop(name, None)


def test_peers_are_timed_beside_ours(folder: Path, run_here: Script) -> None:
    driver = FakeDriver(images(folder))
    torch = FakeTorch(driver)
    results, text = run_here(driver, torch)
    schema("bench_results").validate(results)
    gemm, softmax, _ = results["entries"]
    assert set(gemm["contestants"]) == {"tinyc", "torch"} and gemm["notes"] == {}
    ours, theirs = gemm["contestants"]["tinyc"], gemm["contestants"]["torch"]
    assert theirs["right"] and theirs["time_s"] == pytest.approx(MILLISECONDS * 1e-3)
    assert theirs["ratio"] == pytest.approx(ours["time_s"] / theirs["time_s"])
    assert set(torch.replays) == {torch.replays[0]} != {0}, "on our stream"
    assert set(softmax["contestants"]) == {"tinyc"}
    assert softmax["notes"]["torch"] == "does not run: RuntimeError: not compiled for this GPU"
    assert "no Triton" in text and f"{theirs['ratio']:.2f}" in text
    assert not (left := list(driver.held())), left


def test_a_peer_that_computes_something_else_is_named(folder: Path, run_here: Script) -> None:
    driver = FakeDriver(images(folder))
    results, text = run_here(driver, FakeTorch(driver, wrong=0.5), "--only", GEMM.name)
    (gemm,) = results["entries"]
    assert not gemm["wrong"] and not gemm["contestants"]["torch"]["right"]
    assert f"{GEMM.name}: torch: is beyond the tolerance: " in text


@pytest.mark.parametrize(
    "bytes, memory, copies",
    [(6 << 20, 1 << 36, 14), (400 << 20, 1 << 36, 2), (1 << 10, 1 << 36, 64), (6 << 20, 72 << 20, 3)],
)
def test_as_many_copies_as_the_cache_cannot_hold(
    bytes: int, memory: int, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", FakeDriver({}, memory=memory))
    device = Device()
    assert run.copies_of({"bytes": bytes}, device, 40 << 20) == copies
    device.close()


def test_contestants_take_turns_in_alternating_order() -> None:
    order: list[str] = []

    class Contestant:
        def __init__(self, name: str) -> None:
            self.name = name

        def launch(self) -> None:
            order.append(self.name)

    class Clock:
        def seconds(self, launch: Callable[[], None], times: int) -> float:
            launch()
            return 0.001 if times == 1 else 0.004

    both: Any = [Contestant("a"), Contestant("b")]
    times = contestants.in_turns(both, Clock(), calls=4, repeat=3, least_s=0.003)  # type: ignore[arg-type]
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert times == {"a": [0.001] * 3, "b": [0.001] * 3}


# ---- the command ------------------------------------------------------------------------------------------------------


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = replace(GEMM, name="wrong", inputs=(GEMM.inputs[0], replace(GEMM.inputs[1], shape=(24, 33))))
    few = {each.name: each for each in (GEMM, wrong, SUM)}
    monkeypatch.setattr(entries, "ENTRIES", few)
    out = str(tmp_path / "out")
    assert main(["bench", "gpu", "--export", out, "--quick", "--only", GEMM.name, "--target", "sm90"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[2].split()[0] == GEMM.name and "[1/1]" in shown.err
    document = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert document["arch"] == "sm_90a"
    assert document["command"] == f"tinyc bench gpu --export DIR --target sm90 --only {GEMM.name} --quick"
    assert main(["bench", "gpu", "--export", out, "--json"]) == 1
    shown = capsys.readouterr()
    assert "E1" in shown.err and "[3/3]" in shown.err
    found = json.loads(shown.out)
    assert set(found["cases"]) == {GEMM.name, SUM.name} and "AxisSizeMismatch" in found["failed"]["wrong"]


@pytest.mark.parametrize(
    "options, said",
    [
        (["gpu"], "add --export DIR"),
        (["gpu", "--export", "x", "--only", "unheard-of"], "gemm-fp16-1024"),
        (["gpu", "--export", "x", "--only", "gemm-i32-512", "--quick"], "leave out --quick"),
        (["gpu", "--export", "x", "--repeat", "3"], "--repeat"),
        (["gpu", "--export", "x", "--peer", "torch"], "--peer"),
        (["cpu-gemm", "--export", "x"], "--export"),
        (["sass", "--quick"], "--quick"),
    ],
)
def test_usage(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *options]) == 2
    assert said in capsys.readouterr().err
