"""Tiny IR: what it is (tiny, dtypes, dims, index), documents, verification and the numpy reference.

Also the data that the later stages exchange: region and plan. See docs/architecture.md.
"""

from __future__ import annotations

from .diagnostics import CATALOGUE, CODES, Diagnostic, TinycError
from .document import dumps, parse_json, program_from_document, program_to_document
from .dtypes import DType
from .evaluate import evaluate
from .tiny import Node, Port, Program, TensorType
from .verify import bind, pieces, solve_symbols, verify, warnings

__all__ = [
    "CATALOGUE",
    "CODES",
    "DType",
    "Diagnostic",
    "Node",
    "Port",
    "Program",
    "TensorType",
    "TinycError",
    "bind",
    "dumps",
    "evaluate",
    "parse_json",
    "pieces",
    "program_from_document",
    "program_to_document",
    "solve_symbols",
    "verify",
    "warnings",
]
