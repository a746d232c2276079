"""A program for a GPU as a folder that runs on a machine without tinyc: its machine code, its sources, a manifest, a loader."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tinyc import __version__
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.document import dumps
from tinyc.ir.signature import Signature
from tinyc.runtime.cuda import loader
from tinyc.runtime.cuda.manifest import loadable
from tinyc.runtime.cuda.program import CudaProgram


def export_program(
    cuda: CudaProgram, signature: Signature, folder: str | os.PathLike[str]
) -> tuple[Path, ...]:
    """Writes ``folder``, whole or not at all, and gives the paths of its files. A bundle that is there already is replaced.

    ``manifest.json`` says how to launch the kernels, and of each other file how long it is and what its SHA-256 is; the same
    program gives the same bytes. Raises TinycError FileUnwritable where ``folder`` holds anything but a bundle, or cannot be
    written, and what compiling raises.
    """
    target = Path(os.path.abspath(folder))
    found = loadable(cuda, signature, __version__)
    files = {name: text.encode() for name, text in found.sources.items()}
    files |= found.images
    files["loader.py"] = Path(loader.__file__).read_bytes()
    listed = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in sorted(files.items())
    }
    manifest = {**found.manifest, "files": listed}
    files["manifest.json"] = dumps({**manifest, "sha256": loader.manifest_digest(manifest)}).encode()
    with fresh_folder(target, _is_bundle, "bundle") as fresh:
        for name, content in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return tuple(Path(folder) / name for name in sorted(files))


@contextlib.contextmanager
def fresh_folder(target: Path, ours: Callable[[Path], bool], what: str) -> Iterator[Path]:
    """An empty folder beside ``target``, an absolute path, that takes its place once all is written; where something fails,
    what was there before stays. ``ours``: whether a folder that is there already may be replaced; an empty one may.
    ``what`` it is. Raises TinycError FileUnwritable."""
    beside = f".{target.name}-{secrets.token_hex(4)}"
    fresh, old = target.parent / f"{beside}.new", target.parent / f"{beside}.old"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not (target.is_dir() and (not any(target.iterdir()) or ours(target))):
            raise TinycError(
                "FileUnwritable",
                f"it is there already, and no {what} of an earlier export",
                "give a folder that is new or empty",
                {"file": target},
            )
        fresh.mkdir()
        yield fresh
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except OSError as error:
        if old.exists() and not target.exists():
            old.rename(target)
        why = error.strerror or str(error)
        raise TinycError(
            "FileUnwritable", why, "choose a place that you may write to", {"file": target}
        ) from error
    finally:
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)


def _is_bundle(folder: Path) -> bool:
    try:
        loader.found_manifest(folder)
    except loader.BundleError:
        return False
    return True
