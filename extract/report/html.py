"""Pieces of HTML and SVG. Text is escaped where it goes in, so that nothing a user named can be markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Markup. A plain ``str`` is text."""

    __slots__ = ()


VOID = frozenset({"br", "meta", "circle", "line", "path", "rect"})
"""Elements that are written without an end, or hold nothing here."""


def element(name: str, /, *content: str | Html, **attributes: object) -> Html:
    """``<name …>content</name>``. A trailing ``_`` of an attribute's name is dropped and others become ``-``; one that is
    None is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_visible(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID and not content:
        return Html(f"<{name}{given}/>")
    inner = "".join(each if isinstance(each, Html) else _visible(each) for each in content)
    return Html(f"<{name}{given}>{inner}</{name}>")


def joined(parts: Iterable[Html]) -> Html:
    return Html("".join(parts))


def table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()
) -> Html:
    """A table in a box that scrolls sideways. ``numbers``: columns to be aligned right. The first cell of a row is its
    head."""
    right = frozenset(numbers)
    heads = (
        element("th", text, scope="col", class_="n" if column in right else None)
        for column, text in enumerate(header)
    )
    body = []
    for row in rows:
        cells = [element("th", row[0], scope="row")]
        cells += [
            element("td", text, class_="n" if column in right else None)
            for column, text in enumerate(row[1:], start=1)
        ]
        body.append(element("tr", *cells))
    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *heads)),
        element("tbody", *body),
    )
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _visible(text: str) -> str:
    """Escaped; control characters, which no page may hold, as a mark."""
    shown = "".join(c if c.isprintable() or c in "\n " else "\N{REPLACEMENT CHARACTER}" for c in text)
    return escape(shown, quote=True)
