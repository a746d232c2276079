"""The command ``tinyc``: arguments in, exit status out.

0 right; 1 the input is at fault; 2 usage; 3 a fault of tinyc; 130 Ctrl-C; 141 the reader of the output went away.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence

from tinyc import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command (default: of ``sys.argv``) and gives back the exit status. Never raises."""
    if sys.stderr is None:  # closed before the start; print would turn to standard output
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        with _leaving_at_once_on_ctrl_c():
            parser = _parser()
        return _run(parser, argv)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    # not at the top: these load numpy, which turns a Ctrl-C that meets its import into an ImportError, and islpy,
    # which aborts, or clears the KeyboardInterrupt so that the command goes on
    with contextlib.suppress(ImportError):  # where it is missing, what needs it says so
        import tinyc.index.integers  # noqa: F401

    from tinyc.commands import bench, cache, doctor, draw, emulate, explain, export, programs, report, rules

    parser = argparse.ArgumentParser(
        prog="tinyc", description="A tensor compiler built as a rewrite-rule engine."
    )
    parser.add_argument("--version", action="version", version=f"tinyc {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in (programs, emulate, export, report, explain, draw, rules, bench, cache, doctor):
        module.add(subparsers)
    return parser


def _run(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    from tinyc.commands.console import OutputClosed
    from tinyc.ir.diagnostics import TinycError
    from tinyc.settings import read_settings

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal that cannot show "×" still gets the text
            stream.reconfigure(errors="backslashreplace")
    try:
        args = parser.parse_args(argv)
        status: int = args.command(args, read_settings())
        return status
    except SystemExit as stop:  # argparse: 0 after --help and --version, 2 after a usage error
        return stop.code if isinstance(stop.code, int) else 2
    except TinycError as error:
        _say_error(str(error))
        return 2 if error.kind == "Usage" else 1
    except OutputClosed:
        return 141
    except Exception as error:
        _say_error(
            f"a fault of tinyc itself, not of your program: {type(error).__name__}: {error}\n"
            "  report it with the output of `TINYC_DEBUG=1` and `tinyc doctor --json`"
            " (CONTRIBUTING.md, Reporting a fault)"
        )
        return 3


@contextlib.contextmanager
def _leaving_at_once_on_ctrl_c() -> Iterator[None]:
    """For the time in which there is nothing to clean up yet. Leaves other handlers of SIGINT alone."""
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not ours:
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


def _say_error(text: str) -> None:
    from tinyc.ir.diagnostics import TinycError
    from tinyc.settings import debug_wanted

    try:
        debug = debug_wanted()
    except TinycError:  # TINYC_DEBUG itself is wrong, which is what ``text`` says
        debug = False
    if debug:
        traceback.print_exc()
    print(f"tinyc: error: {text}", file=sys.stderr)
