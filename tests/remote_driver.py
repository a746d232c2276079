"""The fake driver for a process that cannot import tinyc: a module ``cuda.bindings.driver`` that passes each call on to this one.

What the other process calls with addresses of its own memory travels as bytes.
"""

from __future__ import annotations

import ctypes
import shutil
import threading
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import elf
import numpy as np
from fake_driver import FakeDriver

KEY = b"fake driver"

MODULE = """
import ctypes, os
from multiprocessing.connection import Client
from elf import elf_at

_line = Client(os.environ["FAKE_DRIVER"], authkey=b"fake driver")


def _ask(*message):
    _line.send(message)
    wrong, found = _line.recv()
    if wrong:
        raise RuntimeError(wrong)
    return found


class _Enumeration:
    def __init__(self, name):
        self._name = name

    def __getattr__(self, member):
        return _ask("member", self._name, member)


CUdevice_attribute, CUfunction_attribute, CUstreamCaptureMode = map(
    _Enumeration, ("CUdevice_attribute", "CUfunction_attribute", "CUstreamCaptureMode")
)


def __getattr__(name):
    if not name.startswith("cu"):
        raise AttributeError(name)

    def call(*arguments):
        if name == "cuModuleLoadData":
            arguments = (elf_at(arguments[0]),)
        if name == "cuMemcpyHtoDAsync":
            arguments = (arguments[0], ctypes.string_at(arguments[1], arguments[2]), *arguments[2:])
        answer, written = _ask("call", name, arguments)
        for address, content in written:
            ctypes.memmove(address, content, len(content))
        return answer

    return call
"""


def install(folder: Path) -> None:
    """Writes the module, so that a process with ``folder`` first on its path imports it."""
    package = folder / "cuda" / "bindings"
    package.mkdir(parents=True)
    for each in (package, package.parent):
        (each / "__init__.py").touch()
    (package / "driver.py").write_text(MODULE)
    shutil.copy(elf.__file__, folder / "elf.py")


class Server:
    """Answers one process. ``address``: for its environment, under FAKE_DRIVER."""

    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver
        self._listener = Listener(authkey=KEY)
        self.address = str(self._listener.address)
        self._kept: list[Any] = []  # what stands for the other's memory
        self._written: list[tuple[int, Any]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with self._listener.accept() as line:
            try:
                while True:
                    self._answer(line)
            except EOFError:
                return

    def _answer(self, line: Connection) -> None:
        kind, name, given = line.recv()
        try:
            if kind == "member":
                line.send(("", int(getattr(getattr(self._driver, name), given))))
            else:
                line.send(("", self._call(name, given)))
        except Exception as error:
            line.send((f"{type(error).__name__}: {error}", None))

    def _call(self, name: str, given: tuple[Any, ...]) -> tuple[Any, list[tuple[int, bytes]]]:
        arguments = [self._here(each) if isinstance(each, bytes) else each for each in given]
        if name == "cuModuleGetFunction":
            arguments[1] = given[1]
        if name.startswith("cuGetError"):
            arguments = [self._driver.CUresult(given[0])]
        if name == "cuMemcpyDtoHAsync":
            buffer = np.empty(given[2], np.uint8)
            self._written.append((given[0], buffer))
            arguments[0] = buffer.ctypes.data
        answer = tuple(
            each if isinstance(each, float | bytes | None) else int(each)
            for each in getattr(self._driver, name)(*arguments)
        )
        written = []
        if name == "cuStreamSynchronize":
            written = [(address, buffer.tobytes()) for address, buffer in self._written]
            self._written.clear()
            self._kept.clear()
        return answer, written

    def _here(self, content: bytes) -> int:
        buffer = ctypes.create_string_buffer(content, len(content))
        self._kept.append(buffer)
        return ctypes.addressof(buffer)
