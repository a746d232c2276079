"""The tokens of a PTX text: PTX ISA, "Syntax"."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from .errors import malformed

_PATTERN = re.compile(
    r"""(?P<skip>[ \t\r\f\v]+|//[^\n]*)
      | (?P<comment>/\*.*?\*/)
      | (?P<newline>\n)
      | (?P<string>"[^"\n]*")
      | (?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
                  |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
      | (?P<directive>\.[A-Za-z_]\w*)
      | (?P<word>[%$A-Za-z_][\w$]*(?:(?:\.|::)\w+)*)
      | (?P<mark>[{}()\[\],;:+\-|!<>=@])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """``kind``: string, number, directive, word, mark, or end after the last."""

    kind: str
    text: str
    line: int


def tokens(text: str) -> list[Token]:
    """All tokens of a PTX text and one of kind "end". Raises PtxInvalid at a character that starts none."""
    found, at, line = [], 0, 1
    while at < len(text):
        match = _PATTERN.match(text, at)
        if match is None:
            raise malformed(f"the character {text[at]!r} starts no token", line)
        kind, at = match.lastgroup, match.end()
        if kind == "newline":
            line += 1
        elif kind == "comment":
            line += match.group().count("\n")
        elif kind is not None and kind != "skip":
            found.append(Token(kind, match.group(), line))
    found.append(Token("end", "the end of the text", line))
    return found


def number(text: str) -> tuple[int, str]:
    """The value of a number token and its type: "int", or "f32" and "f64" with the bits of a float."""
    head, digits = text[:2].lower(), text.rstrip("U")
    if head == "0f":
        return int(text[2:], 16), "f32"
    if head == "0d":
        return int(text[2:], 16), "f64"
    if head in ("0x", "0b"):
        return int(digits, 0), "int"
    if "." in text or "e" in text.lower():
        return int.from_bytes(struct.pack("<d", float(text)), "little"), "f64"
    octal = len(digits) > 1 and digits[0] == "0" and set(digits) <= set("01234567")
    return int(digits, 8 if octal else 10), "int"
