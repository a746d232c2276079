"""Reading tokens from left to right."""

from __future__ import annotations

from .errors import malformed
from .lex import Token, number


class Cursor:
    """A place among the tokens of a text. What it wants and does not find is PtxInvalid, with the line."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.tokens[self.at]
        if token.kind == "end":
            raise malformed("the text ends in the middle of a statement", token.line)
        self.at += 1
        return token

    def has(self, text: str) -> bool:
        """Takes the next token if it is ``text``."""
        if self.next.text != text or self.next.kind not in ("mark", "directive", "word"):
            return False
        self.at += 1
        return True

    def want(self, text: str) -> Token:
        token = self.take()
        if token.text != text:
            raise malformed(f"{text!r} is expected, not {token.text!r}", token.line)
        return token

    def word(self, what: str) -> Token:
        token = self.take()
        if token.kind != "word":
            raise malformed(f"{what} is expected, not {token.text!r}", token.line)
        return token

    def integer(self) -> int:
        negative = self.has("-")
        token = self.take()
        if token.kind != "number":
            raise malformed(f"a number is expected, not {token.text!r}", token.line)
        value, type = number(token.text)
        if type != "int":
            raise malformed(f"an integer is expected, not {token.text}", token.line)
        return -value if negative else value

    def skip_to(self, text: str) -> None:
        while self.take().text != text:
            pass

    def skip_braces(self) -> None:
        depth = 0
        while True:
            token = self.take()
            depth += (token.text == "{") - (token.text == "}")
            if token.text == "}" and depth == 0:
                return
