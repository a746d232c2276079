"""Declarations of variables and parameters. PTX ISA, "Directives" and "State Spaces"."""

from __future__ import annotations

from .cursor import Cursor
from .errors import malformed
from .lex import Token, number
from .ptx import Parameter, Variable
from .types import WIDTH

SPACES = {".global": "global", ".const": "const", ".shared": "shared", ".local": "local"}


def variable(text: Cursor, space: str) -> Variable:
    """What follows the space: ``.align 4 .b8 name[132] = {…};``."""
    alignment, lanes, type = 0, 1, ""
    while text.next.kind == "directive":
        token = text.take()
        if token.text == ".align":
            alignment = text.integer()
        elif token.text == ".attribute":
            text.skip_to(")")
        elif token.text in (".v2", ".v4"):
            lanes = int(token.text[2:])
        elif token.text[1:] in WIDTH:
            type = token.text[1:]
        else:
            raise malformed(f"{token.text!r} is not known of a variable", token.line)
    name = text.word("the name of a variable")
    if not type or type == "pred":
        raise malformed(f"the variable {name.text} has no type", name.line)
    width = WIDTH[type] // 8
    size: int | None = width * lanes
    while text.has("["):
        if text.has("]"):
            size = None
            continue
        size = None if size is None else size * text.integer()
        text.want("]")
    initial = _initial(text, name, width) if text.has("=") else None
    text.want(";")
    return Variable(name.text, space, alignment or width * lanes, size, initial)


def _initial(text: Cursor, name: Token, width: int) -> bytes:
    values, depth = list[int](), 0
    while text.next.text != ";" and (depth or not values):
        if text.has("{"):
            depth += 1
        elif text.has("}"):
            depth -= 1
        elif not text.has(","):
            negative, token = text.has("-"), text.take()
            if token.kind != "number":
                raise malformed(f"{name.text} starts as an address, which is not known", token.line)
            value, _ = number(token.text)
            values.append(-value if negative else value)
    return b"".join((value % (1 << 8 * width)).to_bytes(width, "little") for value in values)


def parameters(text: Cursor) -> tuple[Parameter, ...]:
    """``(.param .u64 a, .param .align 8 .b8 b[16])``: laid out as a C structure."""
    found, offset = list[Parameter](), 0
    if not text.has("("):
        return ()
    while not text.has(")"):
        text.want(".param")
        alignment, type = 0, ""
        while text.next.kind == "directive":
            token = text.take()
            if token.text == ".align":
                alignment = text.integer()
            elif token.text[1:] in WIDTH:
                type = token.text[1:]
            elif token.text == ".ptr":
                continue  # what follows says where it points to, which nothing here needs
            elif token.text not in SPACES:
                raise malformed(f"{token.text!r} is not known of a parameter", token.line)
        name = text.word("the name of a parameter")
        if not type:
            raise malformed(f"the parameter {name.text} has no type", name.line)
        size = WIDTH[type] // 8
        alignment = alignment if text.next.text == "[" and alignment else size
        if text.has("["):
            size *= text.integer()
            text.want("]")
        offset = -(-offset // alignment) * alignment
        found.append(Parameter(name.text, type, size, alignment, offset))
        offset += size
        text.has(",")
    return tuple(found)
