"""Names that isl's texts can carry: identifiers that are none of its own words, no two alike.

A program may call a symbol ``min`` and a value ``conv 1``. In a text they are ``min_`` and ``conv_1``, and a table says
which name each of those stands for. Nor do texts hold a ``mod``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

WORDS = frozenset({"and", "ceil", "ceild", "eq", "exists", "false", "floor", "floord", "ge", "gt", "implies"})
WORDS |= {
    "infinity",
    "infty",
    "int",
    "le",
    "lt",
    "max",
    "min",
    "mod",
    "nan",
    "ne",
    "not",
    "or",
    "rat",
    "true",
}
"""What isl reads as its own, in any case of letters."""

_TAKEN = re.compile(r"[eiro](?:0|[1-9][0-9]*)\Z")
"""Axes of the book (i, r), and what isl calls the dimensions that have no name of ours (e, o)."""


def spellings(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """A spelling for every name; a name that needs none is spelled as it is. ``taken``: spellings not to use."""
    wanted = list(dict.fromkeys(names))
    used = set(taken)
    found: dict[str, str] = {}
    for name in wanted:
        if plain(name) and name not in used:
            found[name] = name
            used.add(name)
    for name in wanted:
        if name in found:
            continue
        base = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "t"
        base = f"t_{base}" if base[0].isdigit() else base
        spelled = base if plain(base) else f"{base}_"
        number = 1
        while spelled in used:
            number += 1
            spelled = f"{base}_{number}"
        found[name] = spelled
        used.add(spelled)
    return {name: found[name] for name in wanted}


def plain(name: str) -> bool:
    """Whether isl reads ``name`` as a name, and as no axis."""
    return (
        re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII) is not None
        and name.lower() not in WORDS
        and _TAKEN.match(name) is None
    )


def aliases(spelled: Mapping[str, str]) -> dict[str, str]:
    """``spelling -> name`` of those that differ."""
    return {text: name for name, text in spelled.items() if text != name}


def without_modulo(text: str) -> str:
    """``(E) mod q``, as isl prints a remainder, as ``(E - q*floor((E)/q))`` (document 004 §4.3: no modulo)."""
    while (end := text.find(") mod ")) >= 0:
        start, depth = end, 1
        while depth:
            start -= 1
            depth += (text[start] == ")") - (text[start] == "(")
        whole, rest = text[start + 1 : end], text[end + len(") mod ") :]
        divisor = re.match(r"[0-9]+", rest)
        assert divisor is not None, "isl divides by numbers only"
        by, after = divisor.group(), rest[divisor.end() :]
        text = f"{text[:start]}({whole} - {by}*floor(({whole})/{by})){after}"
    return text
