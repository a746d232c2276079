"""The command ``tinyc``: arguments in, exit status out.

0 right; 1 the input is at fault; 2 usage; 3 a fault of tinyc; 130 Ctrl-C; 141 the reader of the output went away.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from tinyc import __version__
from tinyc.commands import doctor, programs, rules
from tinyc.commands.console import OutputClosed
from tinyc.ir.diagnostics import TinycError
from tinyc.settings import debug_wanted, read_settings


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command (default: of ``sys.argv``) and gives back the exit status. Never raises."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal that cannot show "×" still gets the text
    try:
        args = _parser().parse_args(argv)
        return args.command(args, read_settings())
    except SystemExit as stop:  # argparse: 0 after --help and --version, 2 after a usage error
        return stop.code if isinstance(stop.code, int) else 2
    except TinycError as error:
        _say_error(str(error))
        return 2 if error.kind == "Usage" else 1
    except OutputClosed:
        # the interpreter flushes standard output once more at exit, and would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        _say_error(
            f"a fault of tinyc itself, not of your program: {what}\n"
            "  report it with the output of `TINYC_DEBUG=1` and `tinyc doctor --json`"
            " (CONTRIBUTING.md, Reporting a fault)"
        )
        return 3


def _say_error(text: str) -> None:
    try:
        debug = debug_wanted()
    except TinycError:  # TINYC_DEBUG itself is wrong, which is what ``text`` says
        debug = False
    if debug:
        traceback.print_exc()
    print(f"tinyc: error: {text}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tinyc", description="A tensor compiler built as a rewrite-rule engine."
    )
    parser.add_argument("--version", action="version", version=f"tinyc {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in (programs, rules, doctor):
        module.add(subparsers)
    return parser
