"""A machine with a fake GPU: the fixture ``gpu`` puts a :class:`FakeDriver` in the place of the driver's bindings."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
from fake_driver import FakeDriver

import tinyc.runtime.cuda.program as program
from tinyc.codegen.nvrtc import Cubin, compile_cubin


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The driver, which knows the PTX of everything that is compiled. When the test is over, nothing may be left on the GPU."""
    images: dict[bytes, str] = {}

    def remembered(source: str, arch: str, **options: object) -> Cubin:
        found = compile_cubin(source, arch)
        images[found.image] = found.ptx
        return found

    driver = FakeDriver(images)
    monkeypatch.setattr(program, "compile_cubin", remembered)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    yield driver
    gc.collect()
    driver.poisoned = type(driver.poisoned)(0)
    assert not (left := list(driver.held())), left
