"""Bundles: a program for a GPU as a folder, which runs where there is no tinyc."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import remote_driver
from fake_driver import FakeDriver

import tinyc
from tinyc.cli import main
from tinyc.codegen.nvrtc import compile_cubin
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.evaluate import evaluate
from tinyc.ir.tiny import Program
from tinyc.runtime.cuda.loader import BundleError, read_manifest

GREEDY = tinyc.Budget(extract_seconds=0)


def products() -> Program:
    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        h = (a @ b).relu()
        return (h @ c).relu() @ d, h.sum(axis=0), h > 3.0

    specs = [tinyc.spec("bf16", shape) for shape in ((16, 16), (16, 16), (16, 16), (16, 7))]
    return tinyc.trace(function, *specs)


@pytest.fixture(scope="module")
def compiled() -> tinyc.Compiled:
    return tinyc.optimize_and_compile(products(), "sm80", budget=GREEDY)


@pytest.fixture
def bundle(compiled: tinyc.Compiled, tmp_path: Path) -> Path:
    compiled.export(tmp_path / "bundle")
    return tmp_path / "bundle"


def without_tinyc(
    bundle: Path, tmp_path: Path, driver: FakeDriver, *command: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python in ``bundle`` with the fake driver, and with a finder that knows no tinyc."""
    path = tmp_path / "path"
    remote_driver.install(path)
    (path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('tinyc', 'ml_dtypes'):\n"
        "            raise ImportError(f'{name} is not installed')\n"
        "sys.meta_path.insert(0, Blocked())\n"
    )
    server = remote_driver.Server(driver)
    environment = {**os.environ, "PYTHONPATH": str(path), "FAKE_DRIVER": server.address}
    try:
        return subprocess.run(
            [sys.executable, *command],
            cwd=bundle,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        server.close()


def test_a_bundle_runs_without_tinyc(compiled: tinyc.Compiled, bundle: Path, tmp_path: Path) -> None:
    program = compiled.program
    generator = np.random.default_rng(3)
    inputs = {
        port.name: generator.integers(-3, 4, program.types[port.node].shape).astype(
            program.types[port.node].dtype.numpy
        )
        for port in program.inputs
    }
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array.view(np.uint16))
    kernels = read_manifest(bundle)["kernels"]
    cubins = [compile_cubin((bundle / each["source"]).read_text()) for each in kernels]
    driver = FakeDriver({each.image: each.ptx for each in cubins})
    given = [f"{name}={tmp_path / name}.npy" for name in inputs]
    done = without_tinyc(bundle, tmp_path, driver, "loader.py", *given, "--output", "out.npz")
    assert done.returncode == 0, done.stderr
    with np.load(bundle / "out.npz") as results:
        for port, want in zip(program.outputs, evaluate(program, inputs), strict=True):
            got = results[port.name]
            assert np.array_equal(got.view(want.dtype) if got.dtype == np.uint16 else got, want)
    assert driver.launches == [kernel.name for kernel in compiled.kernels]
    check = (
        "import loader, sys; assert not any(name.startswith('tinyc') for name in sys.modules)\nimport tinyc"
    )
    other = without_tinyc(bundle, tmp_path / "again", driver, "-c", check)
    assert "tinyc is not installed" in other.stderr and "AssertionError" not in other.stderr


def test_the_manifest_says_what_is_there(compiled: tinyc.Compiled, bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    files = {str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file()}
    assert set(manifest["files"]) | {"manifest.json"} == files
    for name, said in manifest["files"].items():
        content = (bundle / name).read_bytes()
        assert said == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert [each["region"] for each in manifest["launches"]] == [
        each.region.name for each in compiled.kernels
    ]
    assert manifest["arch"] == "sm_80" and manifest["versions"]["tinyc"] == tinyc.__version__
    for kernel in manifest["kernels"]:
        assert kernel["usage"][0]["kernel"] == kernel["name"]
    assert manifest["arena_bytes"] == compiled.plan.arena.bytes > 0


def test_equal_programs_give_equal_bytes(compiled: tinyc.Compiled, bundle: Path, tmp_path: Path) -> None:
    compiled.export(tmp_path / "other")
    for path in bundle.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "other" / path.relative_to(bundle)).read_bytes()


def test_only_a_bundle_is_replaced(compiled: tinyc.Compiled, bundle: Path, tmp_path: Path) -> None:
    (bundle / "left.txt").write_text("from before")
    (tmp_path / "empty").mkdir()
    for folder in (bundle, tmp_path / "empty", tmp_path / "in" / "a" / "new"):
        compiled.export(folder)
        assert not (folder / "left.txt").exists() and read_manifest(folder)["target"] == "sm80"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "manifest.json").write_text('{"format": "something else"}')
    (tmp_path / "file").write_text("no folder")
    for target in (tmp_path / "full", tmp_path / "file", tmp_path / "file" / "below", Path("/")):
        with pytest.raises(TinycError) as caught:
            compiled.export(target)
        assert caught.value.kind == "FileUnwritable"
    assert (tmp_path / "full" / "manifest.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "empty", "file", "full", "in"]


def test_a_failure_leaves_what_was_there(
    compiled: tinyc.Compiled, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rename = (bundle / "manifest.json").read_bytes(), Path.rename

    def full(path: Path, target: Path) -> Path:
        if path.suffix == ".new":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(TinycError, match="No space left"):
        compiled.export(bundle)
    assert (bundle / "manifest.json").read_bytes() == before
    assert [path.name for path in bundle.parent.iterdir()] == ["bundle"]


def test_a_damaged_bundle_is_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tinyc.runtime.cuda.loader import load

    image = next(bundle.glob("kernels/*.cubin"))
    content = bytearray(image.read_bytes())
    content[100] ^= 1
    image.write_bytes(content)
    with pytest.raises(BundleError, match="is not what the manifest says"):
        load(bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    for text in (json.dumps({**manifest, "version": 99}), "{", "[]", '{"format": 1}'):
        (bundle / "manifest.json").write_text(text)
        with pytest.raises(BundleError):
            load(bundle)
    with pytest.raises(BundleError):
        load(bundle / "nothing")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda manifest: manifest["kernels"][0]["grid"].__setitem__(0, 7),
        lambda manifest: manifest["signature"]["inputs"][0].pop("dtype"),
        lambda manifest: manifest["launches"].reverse(),
        lambda manifest: manifest.update(arch=None),
        lambda manifest: manifest.pop("sha256"),
    ],
)
def test_a_damaged_manifest_is_refused_and_may_be_replaced(
    compiled: tinyc.Compiled, bundle: Path, spoil: Callable[[dict[str, Any]], Any]
) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    spoil(manifest)
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="is not as it was written"):
        read_manifest(bundle)
    compiled.export(bundle)
    assert read_manifest(bundle)["arch"] == "sm_80"


def test_on_the_command_line_a_loader_says_what_is_wrong(bundle: Path, tmp_path: Path) -> None:
    """Not where in the loader it was noticed."""
    (tmp_path / "junk.npy").write_bytes(b"junk")
    driver = FakeDriver({})
    first, second = (f"a={tmp_path / name}.npy" for name in ("nothing", "junk"))
    missing = without_tinyc(bundle, tmp_path, driver, "loader.py", first, "--output", "out.npz")
    (bundle / "manifest.json").write_text("{}")
    damaged = without_tinyc(bundle, tmp_path / "again", driver, "loader.py", second, "--output", "out.npz")
    for done in (missing, damaged):
        assert done.returncode == 1 and done.stderr.startswith("loader.py: error: ")
        assert "Traceback" not in done.stderr


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a = {"id": "a", "uop": "INPUT", "src": [], "arg": {"tensor_id": "A", "dtype": "fp32", "shape": ["N"]}}
    Path("p.json").write_text(json.dumps({"uops": [a, {"id": "n", "uop": "NEG", "src": ["a"], "arg": {}}]}))
    assert main(["export", "p.json", "--shape", "N=4", "--target", "sm90", "--out", "out"]) == 0
    listed = capsys.readouterr().out.split()
    assert "out/manifest.json" in listed and "out/loader.py" in listed and all(map(os.path.exists, listed))
    assert read_manifest(Path("out"))["arch"] == "sm_90a"
    for options, kind in (
        (["--shape", "N=4", "--target", "cpu", "--out", "other"], "TargetUnavailable"),
        (["--out", "other"], "UnboundSymbol"),
        (["--shape", "N=4", "--out", "."], "FileUnwritable"),
    ):
        assert main(["export", "p.json", *options]) == 1
        assert kind in capsys.readouterr().err
