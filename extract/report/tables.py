"""Paragraphs and tables of text, of at most :data:`WIDTH` columns."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence

WIDTH = 110
"""Columns of the text at most."""

Row = tuple[str, ...]


def or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def paragraph(text: str, hanging: int = 0) -> list[str]:
    """Lines of at most :data:`WIDTH` columns."""
    wrapped = textwrap.wrap(
        text, WIDTH, subsequent_indent=" " * hanging, break_long_words=True, break_on_hyphens=False
    )
    return wrapped or [""]


def table_lines(rows: Sequence[Row], right: Sequence[int] = (), cut: Sequence[int] = ()) -> list[str]:
    """Columns two spaces apart with a rule under the header. ``right``: columns of numbers. ``cut``: columns whose text may
    go on in a further line, so that none is longer than :data:`WIDTH`."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    surplus = sum(widths) + 2 * (len(widths) - 1) - WIDTH
    while surplus > 0 and (wide := max(cut, key=lambda column: widths[column], default=None)) is not None:
        if widths[wide] <= NARROWEST:
            break
        widths[wide] -= 1
        surplus -= 1
    lines = [line for row in rows for line in _wrapped(row, widths, right)]
    heads = len(list(_wrapped(rows[0], widths, right)))
    return [*lines[:heads], "  ".join("-" * width for width in widths), *lines[heads:]]


NARROWEST = 10
"""Letters of a column at least."""


def _wrapped(row: Row, widths: Sequence[int], right: Sequence[int]) -> Iterator[str]:
    cells = [
        textwrap.wrap(cell, width, break_on_hyphens=False) if len(cell) > width else [cell]
        for cell, width in zip(row, widths, strict=True)
    ]
    for parts in itertools.zip_longest(*cells, fillvalue=""):
        adjusted = (
            part.rjust(width) if column in right else part.ljust(width)
            for column, (part, width) in enumerate(zip(parts, widths, strict=True))
        )
        yield "  ".join(adjusted).rstrip()
