"""What every command that compiles a file has in common: its options, and from them a compiled program."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyc.ir.diagnostics import TinycError

if TYPE_CHECKING:
    from tinyc.compiler import Compiled
    from tinyc.ir.tiny import Program

TARGETS = ("cpu", "sm80", "sm86", "sm89", "sm90", "auto")
FILE = "a Frontend or Tiny document, or a dump of the stages region or plan"


def compile_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    group = options.add_argument_group("how to compile")
    group.add_argument("--target", choices=TARGETS, default="cpu", help="default: cpu")
    group.add_argument(
        "--shape", metavar="M=150", type=binding, action="append", default=[], help="the size of a symbol"
    )
    group.add_argument("--rules", metavar="F", action="append", default=[], help="a rule file or folder more")
    group.add_argument("--without", metavar="R", action="append", default=[], help="leave out a ruleset")
    group.add_argument(
        "--also", metavar="R", action="append", default=[], help="add one that is off by default"
    )
    return options


def open_source(file: str) -> Program | dict[str, Any]:
    """A Program, or the document of a dump to go on from."""
    from tinyc.frontend.load import program_of, read_document
    from tinyc.resume import is_dump

    document = read_document(Path(file))
    return document if is_dump(document) else program_of(document, Path(file))


def compile_source(
    args: argparse.Namespace,
    file: str,
    opened: Program | dict[str, Any] | None = None,
    partial: bool = False,
    profile: bool = False,
) -> Compiled:
    """``file`` compiled with the options given. ``partial``: symbols may wait for the arrays of the first call."""
    import tinyc
    from tinyc.frontend.load import naming

    opened = open_source(file) if opened is None else opened
    shapes = unique(args.shape, "--shape")
    if not isinstance(opened, dict):
        _check_shapes(file, opened.symbols, shapes, partial)
    with naming(Path(file) if isinstance(opened, dict) else None):
        return tinyc.optimize_and_compile(
            opened, args.target, shapes, args.rules, args.without, args.also, profile=profile
        )


def _check_shapes(file: str, symbols: tuple[str, ...], shapes: Mapping[str, int], partial: bool) -> None:
    if unknown := sorted(set(shapes) - set(symbols)):
        why = f"the program has no symbol {', '.join(unknown)}"
        known = f"its symbols are {', '.join(symbols)}" if symbols else "it has none: leave --shape out"
        raise TinycError("UnboundSymbol", why, known, {"file": file})
    unbound = [symbol for symbol in symbols if symbol not in shapes]
    if unbound and not partial:
        why = f"the sizes of {', '.join(unbound)} are not known"
        suggestion = "add " + " ".join(f"--shape {symbol}=64" for symbol in unbound)
        raise TinycError("UnboundSymbol", why, suggestion, {"file": file})


def about(file: str) -> AbstractContextManager[None]:
    """Errors within it say that they are about ``file``."""
    from tinyc.frontend.load import naming

    return naming(Path(file))


def warn(compiled: Compiled) -> None:
    for warning in compiled.report.warnings:
        print(f"tinyc: {warning.severity}: {warning}", file=sys.stderr)


def unique(pairs: list[tuple[str, Any]], option: str) -> dict[str, Any]:
    """The pairs as a mapping; a name given twice is a mistake, not a choice."""
    names = [name for name, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TinycError("Usage", f"{option} names {', '.join(twice)} twice", "give each name once")
    return dict(pairs)


def binding(text: str) -> tuple[str, int]:
    """A symbol and its size, as ``--shape`` takes them."""
    name, equals, size = text.partition("=")
    if not (name and equals and size.isascii() and size.isdigit() and len(size) <= 19 and int(size) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form SYMBOL=SIZE with SIZE an integer >= 1")
    return name, int(size)
