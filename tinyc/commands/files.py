"""Files of the command line: arrays in, arrays and texts out. What is written appears whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tinyc.ir.diagnostics import TinycError

from .console import OutputClosed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tinyc.ir.dtypes import DType


def read_array(path: Path, dtype: DType | None) -> NDArray[np.generic]:
    """The array of a ``.npy`` file. Where ``dtype`` is bf16, uint16 bits and the two-byte void become bf16.

    Raises TinycError FileUnreadable.
    """
    import numpy as np

    from tinyc.ir.dtypes import DType

    try:
        with path.open("rb") as file:
            if file.read(2) == b"PK":
                raise ValueError("this is an archive of several arrays")
            file.seek(0)
            array: NDArray[np.generic] = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # of any kind: numpy lets through what its parser of headers raises
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        suggestion = "give a .npy file, as numpy.save writes it"
        raise TinycError("FileUnreadable", why, suggestion, {"file": path}) from error
    if dtype is DType.BF16 and array.dtype in (np.dtype(np.uint16), np.dtype("V2")):
        return array.view(DType.BF16.numpy)
    return array


def array_bytes(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """A ``.npz`` file of ``arrays``, the same bytes for the same arrays; bf16 as its uint16 bits."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, array in arrays.items():
            # ZipInfo's own date is 1980, so the bytes do not depend on the clock; numpy.savez would also trip
            # over an output named "file"
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy_bytes(array))
    return packed.getvalue()


def npy_bytes(array: NDArray[np.generic]) -> bytes:
    """A ``.npy`` file of one array; bf16 as its uint16 bits."""
    import numpy as np

    from tinyc.ir.dtypes import DType

    written = io.BytesIO()
    # asarray, not ascontiguousarray: that one turns rank 0 into rank 1
    bits = np.asarray(array).view(np.uint16) if array.dtype == DType.BF16.numpy else np.asarray(array)
    np.lib.format.write_array(written, bits, allow_pickle=False)
    return written.getvalue()


def write_files(files: Mapping[Path, bytes]) -> None:
    """Writes each of ``files`` whole or not at all: to temporary names first, then renamed. Makes folders.

    Raises TinycError FileUnwritable. A failure or Ctrl-C leaves no temporary file and no new empty folder.
    """
    staged: dict[Path, Path] = {}
    made: list[Path] = []
    target = Path()
    try:
        for target, content in files.items():
            if target.exists() and not target.is_file() and not target.is_dir():
                target.write_bytes(content)  # /dev/stdout and pipes cannot be renamed over
                continue
            path = Path(os.path.realpath(target))  # a link stays, what it points to is replaced
            made += _make_folders(path.parent)
            temporary = path.parent / f".tinyc-{secrets.token_hex(4)}.tmp"
            staged[temporary] = path
            with temporary.open("xb") as file:
                file.write(content)
        for temporary, target in list(staged.items()):
            temporary.replace(target)
            del staged[temporary]
    except BaseException as error:
        for temporary in staged:
            with contextlib.suppress(OSError):  # it may never have been there
                temporary.unlink()
        for folder in reversed(made):
            if not any(folder.iterdir()):
                folder.rmdir()
        if isinstance(error, BrokenPipeError):
            raise OutputClosed from error
        if isinstance(error, OSError):
            why = error.strerror or str(error)
            suggestion = "choose a place that you may write to"
            raise TinycError("FileUnwritable", why, suggestion, {"file": target}) from error
        raise


def _make_folders(folder: Path) -> list[Path]:
    """Creates ``folder`` and its parents; gives back those that were missing, outermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()][::-1]
    for path in missing:
        path.mkdir()
    return missing
