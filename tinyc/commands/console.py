"""Standard output: text as it is, tables drawn by rich on a terminal and plain everywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from tinyc.ir.diagnostics import TinycError


class OutputClosed(Exception):
    """The reader of standard output went away (``tinyc report … | head``)."""


def say(text: str) -> None:
    """Prints ``text`` and a line end.

    Raises OutputClosed where nobody reads any more, TinycError FileUnwritable where it cannot be written.
    """
    if sys.stdout is None:  # how Python shows that it was closed before the start
        raise _unwritable("it is closed")
    try:
        print(text, flush=True)
    except OSError as error:
        # the interpreter flushes standard output once more at exit, and would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise OutputClosed from error
        raise _unwritable(error.strerror or str(error)) from error


def _unwritable(why: str) -> TinycError:
    return TinycError(
        "FileUnwritable", why, "send it to a place that can be written to", {"file": "standard output"}
    )


def say_table(headers: Sequence[str], rows: Iterable[Sequence[str]], color: bool) -> None:
    """Prints rows of cells in columns. ``color``: whether the user allows it; it also takes a terminal."""
    cells = [tuple(row) for row in rows]
    if color and sys.stdout is not None and sys.stdout.isatty():
        say(_drawn(headers, cells))
    else:
        say(plain_table(headers, cells))


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart, with a rule under the headers. The last column may be ragged."""
    widths = [max(len(row[column]) for row in (headers, *rows)) for column in range(len(headers))]
    widths[-1] = len(headers[-1])
    lines = [headers, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _drawn(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*headers, header_style="bold")
    for row in rows:
        table.add_row(*map(Text, row))  # Text, because a cell such as "[M, N]" is no markup
    console = Console()
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")
