"""tinyc: a tensor compiler built as a rewrite-rule engine.

``tinyc.load`` or ``tinyc.trace`` give a program, ``tinyc.optimize_and_compile`` a callable. The names below are
resolved when they are first used, so that ``import tinyc`` loads neither the engine nor the code generator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyc.compiler import Budget, Compiled, optimize_and_compile
    from tinyc.frontend import functions, load, spec, trace
    from tinyc.ir.diagnostics import TinycError

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "Compiled",
    "TinycError",
    "functions",
    "load",
    "optimize_and_compile",
    "spec",
    "trace",
]

_HOME = {
    "Budget": "tinyc.compiler",
    "Compiled": "tinyc.compiler",
    "TinycError": "tinyc.ir.diagnostics",
    "functions": "tinyc.frontend",
    "load": "tinyc.frontend",
    "optimize_and_compile": "tinyc.compiler",
    "spec": "tinyc.frontend",
    "trace": "tinyc.frontend",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tinyc' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
