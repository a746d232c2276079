"""What all tests share: options, golden files, an environment that says nothing, and checks of the markers."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

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


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of the developer's shell changes a test."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    monkeypatch.setenv("TINYC_CACHE_DIR", str(tmp_path / "cache"))


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
