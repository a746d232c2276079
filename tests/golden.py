"""Golden files: what a test printed when a person last looked at it and found it right.

``golden(text)`` compares with ``golden/<module>/<test>.txt`` beside the test's module. A difference fails with a
diff; ``pytest --update-golden`` writes the file anew, and ``git diff`` is the review.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Golden:
    """The golden files of one test. ``update``: write instead of compare."""

    stem: Path
    update: bool

    def __call__(self, text: str, suffix: str = ".txt") -> None:
        """Compares ``text`` with the golden file that ends in ``suffix`` (one test may have several)."""
        text = text.rstrip("\n") + "\n"
        path = self.stem.with_name(self.stem.name + suffix)
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"there is no {path}: look at the text, then run pytest --update-golden\n\n{text}")
        wanted = path.read_text(encoding="utf-8")
        if text != wanted:
            lines = difflib.unified_diff(
                wanted.splitlines(), text.splitlines(), str(path), "now", lineterm=""
            )
            pytest.fail("\n".join(lines) + "\nif this is right: pytest --update-golden")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares text with the test's golden file; see this module."""
    name = re.sub(r"[^A-Za-z0-9_.=+-]+", "_", request.node.name).strip("_")
    folder = request.path.parent / "golden" / request.path.stem
    return Golden(folder / name, request.config.getoption("--update-golden"))
