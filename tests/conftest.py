"""What all tests share: options, golden files, an environment that says nothing, and checks of the markers."""

from __future__ import annotations

import ctypes
import os
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from browser import browser
from golden import golden
from hypothesis import settings

from tinyc.settings import VARIABLES

__all__ = ["golden"]

# The machine's speed is no property of the program: no deadlines. `make test` draws the same examples each
# time, so that it fails only where a change broke something; `make test-slow` explores.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests of a run, and of all its workers: kernels are compiled once."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tinyc-cache"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> None:
    """No variable of the developer's shell changes a test."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    monkeypatch.setenv("TINYC_CACHE_DIR", str(cache_dir))
    monkeypatch.setenv("TINYC_CACHE", "code")  # a test of the optimiser is to optimise


@pytest.fixture(autouse=True)
def _data_of_its_own(request: pytest.FixtureRequest) -> None:
    """A test draws the same data whichever tests ran before it in the process: a module's ``RNG`` starts anew for each."""
    generator = getattr(request.module, "RNG", None)
    if generator is not None:
        seed = zlib.crc32(request.node.name.encode())
        generator.bit_generator.state = np.random.default_rng(seed).bit_generator.state


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("spec"):
            for feature in mark.args:
                if not re.fullmatch(r"\d{3}-\d{2,3}|I-\d{2}", feature):
                    raise pytest.UsageError(
                        f"{item.nodeid}: {feature!r} is no feature id such as 004-086 or I-07"
                    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not _has_driver():
        pytest.skip("no NVIDIA driver here")
    if item.get_closest_marker("browser") and browser() is None:
        pytest.skip("no Chromium here: apt-get install chromium")


def _has_driver() -> bool:
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False
