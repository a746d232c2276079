"""The parser: PTX as NVRTC writes it, inline assembly included, to :mod:`.ptx`. PTX ISA, "Syntax" and "Directives".

What an instruction means, and whether its operands fit it, is the decoder's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import PurePosixPath

from .body import Body
from .cursor import Cursor
from .declarations import SPACES, parameters, variable
from .errors import malformed
from .lex import tokens
from .ptx import Kernel, Module, Variable

_LINKAGE = {".visible", ".extern", ".weak", ".common"}


@lru_cache(maxsize=16)  # one kernel is often run several times: other data, other deliveries
def parse_ptx(text: str, only: str | None = None) -> Module:
    """The kernels and variables of a PTX text; of ``only`` one kernel, where it is named.

    Functions beside kernels (``.func``) are passed over: calling one is refused where it is called. Raises PtxInvalid,
    with the line, at what it cannot read.
    """
    return _Parser(Cursor(tokens(text)), only).module()


class _Parser:
    """Reads what stands outside braces."""

    def __init__(self, text: Cursor, only: str | None) -> None:
        self.text, self.only = text, only
        self.files = self._files()

    def _files(self) -> Mapping[str, str]:
        """What ``.file`` numbers mean; NVRTC writes them last."""
        found = {}
        for token, index, name in zip(
            self.text.tokens, self.text.tokens[1:], self.text.tokens[2:], strict=False
        ):
            if token.text == ".file" and name.kind == "string":
                found[index.text] = PurePosixPath(name.text[1:-1]).name
        return found

    # ---- the module ------------------------------------------------------------------------------------------------

    def module(self) -> Module:
        target, variables, kernels = "", list[Variable](), dict[str, Kernel]()
        while self.text.next.kind != "end":
            token = self.text.take()
            if token.text in _LINKAGE:
                continue
            if token.text == ".version":
                self.text.take()
            elif token.text == ".target":
                target = self.text.take().text
                while self.text.has(","):
                    self.text.take()
            elif token.text == ".address_size":
                if (size := self.text.integer()) != 64:
                    raise malformed(f"addresses of {size} bits are not known, only of 64", token.line)
            elif token.text == ".file":
                self._skip_file()
            elif token.text == ".pragma":
                self.text.skip_to(";")
            elif token.text == ".section":
                self.text.skip_braces()
            elif token.text == ".func":
                self._skip_function()
            elif token.text in SPACES:
                variables.append(variable(self.text, SPACES[token.text]))
            elif token.text == ".entry":
                if self.only is not None and self.text.next.text != self.only:
                    self._skip_function()
                    continue
                kernel = self.kernel({each.name for each in variables})
                kernels[kernel.name] = kernel
            else:
                raise malformed(f"{token.text!r} starts no declaration of a module", token.line)
        return Module(target, tuple(variables), kernels)

    def _skip_file(self) -> None:
        self.text.take(), self.text.take()
        while self.text.has(","):
            self.text.take()

    def _skip_function(self) -> None:
        while self.text.next.text not in ("{", ";"):
            self.text.take()
        if self.text.next.text == "{":
            self.text.skip_braces()
        else:
            self.text.take()

    def kernel(self, symbols: set[str]) -> Kernel:
        name = self.text.word("the name of a kernel")
        given = parameters(self.text)
        block: tuple[int, ...] | None = None
        exact = False
        while self.text.next.text != "{":
            token = self.text.take()
            if token.text in (".maxntid", ".reqntid"):
                sizes = [self.text.integer()]
                while self.text.has(","):
                    sizes.append(self.text.integer())
                block, exact = (*sizes, 1, 1)[:3], token.text == ".reqntid"
            elif token.text in (".minnctapersm", ".maxnctapersm", ".maxnreg"):
                self.text.integer()
            elif token.text == ".pragma":
                self.text.skip_to(";")
            else:
                raise malformed(f"{token.text!r} is not known of a kernel", token.line)
        body = Body(self.text, symbols | {each.name for each in given}, self.files)
        body.read()
        return Kernel(
            name.text,
            given,
            tuple(body.registers),
            tuple(body.variables),
            tuple(body.instructions),
            name.line,
            block,
            exact,
        )
