"""Rule files as text: read with care, and cut into their top-level forms with the comments above them.

What is wrong with a file is collected, not raised at the first fault: `rules lint` shows all of it.
"""

from __future__ import annotations

import functools
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 1 << 20
"""Of one rule file. The built-in rules have a tenth of it in all."""

MAX_DEPTH = 100
"""Parentheses in parentheses. The engine's parser is recursive, and dies at some thousands."""

MAX_FAULTS = 20
"""Faults of one file's text that are listed."""

MAX_UNCLOSED = 3
"""Forms that are never closed, of which each takes a pass over the rest of the file, before reading ends."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|;[^\n]*|[()]|[^\s()";]+|"', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Also those that make a text look as if it were in another order than it is read in."""
_TOGETHER = re.compile(r"[ \t]*\n?\(")
_HEAD = re.compile(r"\(\s*([^\s()\";]*)")


@dataclass(frozen=True)
class Form:
    """One top-level form: its head, text, first line, offset in the file, and the comment right above it."""

    head: str
    text: str
    line: int
    start: int
    comment: str


@dataclass(frozen=True)
class TextFault:
    """What is wrong with the text of a file, and where."""

    line: int
    why: str


def read_text(path: Path) -> str:
    """The text of a rule file, its lines ended by ``\\n`` whatever the file has. Raises OSError or ValueError (also where it
    is no regular file, too large, or not UTF-8): nothing that is given as a rule file may block or fill the memory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe that nobody writes to does not block
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(21, "Is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB, which no rule file needs")
    return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


@functools.lru_cache(maxsize=64)
def scan(text: str) -> tuple[tuple[Form, ...], tuple[TextFault, ...]]:
    """The forms of a file's text, and its faults. Where a form is never closed, reading goes on at the next line that
    starts with a parenthesis.

    A pure function, so its cache is only a matter of speed: every compilation reads the same few files.
    """
    faults: list[TextFault] = []
    found = _CONTROL.search(text)
    if found:
        why = f"the file holds the control character {found[0]!r}"
        faults.append(TextFault(text.count("\n", 0, found.start()) + 1, why))
    return tuple(_forms(text, faults)), tuple(faults)


def _forms(text: str, faults: list[TextFault]) -> Iterator[Form]:
    position, line, unclosed = 0, 1, 0
    comment: list[str] = []
    while position < len(text) and len(faults) < MAX_FAULTS:
        char = text[position]
        if char == "\n":
            line += 1
            position += 1
            if text.startswith("\n", position):
                comment = []
        elif char.isspace():
            position += 1
        elif char == ";":
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            if not text[text.rfind("\n", 0, position) + 1 : position].strip():
                # what follows a form on its line is about that form
                comment.append(text[position:end].lstrip(";").strip())
            position = end
        elif char == "(":
            end, why = _closing(text, position)
            if why:
                faults.append(TextFault(line, why))
                unclosed += "never closed" in why
                if unclosed == MAX_UNCLOSED:
                    return
            else:
                body = text[position:end]
                head = _HEAD.match(body)
                yield Form(head[1] if head else "", body, line, position, heading(comment))
            line += text.count("\n", position, end)
            position = end
            # rules that stand together share the comment above the first
            if not _TOGETHER.match(text, position):
                comment = []
        else:
            why = f"expected a form, a comment or nothing, found {text[position : position + 20]!r}"
            faults.append(TextFault(line, why))
            end = text.find("\n", position)
            position = len(text) if end < 0 else end


def heading(comment: list[str]) -> str:
    """A comment as one line; the banner of a section (``---- text ----``) only where nothing else is said."""
    own = [line for line in comment if not line.startswith("----")]
    return " ".join(own if own else comment).strip(" -")


def _closing(text: str, start: int) -> tuple[int, str]:
    """The end of the form that starts here, and what is wrong with it: then the end is where reading goes on."""
    depth = deepest = 0
    for token in _TOKEN.finditer(text, start):
        match token[0]:
            case "(":
                depth += 1
                deepest = max(deepest, depth)
            case ")":
                depth -= 1
                if depth == 0:
                    why = f"this form nests more than {MAX_DEPTH} parentheses" if deepest > MAX_DEPTH else ""
                    return token.end(), why
            case '"':
                return _next_line(text, start), "a string in this form is never closed"
    return _next_line(text, start), "this form is never closed"


def _next_line(text: str, start: int) -> int:
    """Where the next line starts that begins with a parenthesis."""
    found = text.find("\n(", start)
    return len(text) if found < 0 else found


@functools.lru_cache(maxsize=8192)  # every compilation asks the same of the built-in rules
@functools.lru_cache(maxsize=8192)
def option_span(text: str, name: str) -> tuple[int, int] | None:
    """Where the value of an option such as ``:ruleset`` stands in the text of a form; None where there is none, or
    where it is no symbol and no string."""
    depth, wanted = 0, False
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word == "(":
            depth += 1
            wanted = False
        elif word == ")":
            depth -= 1
        elif word.startswith(";") or depth != 1:
            continue
        elif wanted:
            return token.span()
        else:
            wanted = word == name
    return None


def line_of(form: Form, word: str) -> int:
    """The line of the file in which a word of the form stands first."""
    found = next(token for token in _TOKEN.finditer(form.text) if token[0].strip('"') == word)
    return form.line + form.text.count("\n", 0, found.start())


def option(text: str, name: str) -> str | None:
    """The value of an option of a form, a string without its quotes."""
    span = option_span(text, name)
    return None if span is None else text[slice(*span)].strip('"')


def words(text: str) -> list[str]:
    """The symbols and strings of a form, strings without their quotes; parentheses and comments left out."""
    return [
        token.strip('"') if token.startswith('"') else token for token in tokens(text) if token not in "()"
    ]


def tokens(text: str) -> Iterator[str]:
    """Parentheses, symbols, and strings with their quotes; comments left out. What is read of rule files is read from
    these."""
    return (token for token in _TOKEN.findall(text) if not token.startswith(";"))
