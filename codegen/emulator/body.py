"""What stands between the braces of a kernel: registers, variables, labels, instructions. PTX ISA, "Statements".

Every name is resolved here, so that an unknown register or label is known before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .cursor import Cursor
from .declarations import SPACES, variable
from .errors import malformed, refused
from .lex import Token, number
from .ptx import (
    Address,
    Guard,
    Immediate,
    Instruction,
    Location,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Target,
    Targets,
    Variable,
    Vector,
)
from .special import SPECIAL
from .types import WIDTH


@dataclass
class _Scope:
    """The names of one pair of braces. ``ranges``: what ``.reg .f32 %f<8>`` declares: %f to (8, "f32")."""

    parent: _Scope | None
    names: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)
    registers: dict[str, Register] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[Token, ...]] = field(default_factory=dict)

    def register_type(self, name: str) -> str | None:
        if name in self.names:
            return self.names[name]
        digits = len(name) - len(name.rstrip("0123456789"))
        for length in range(1, digits + 1):
            count, type = self.ranges.get(name[:-length], (0, ""))
            number = int(name[-length:])
            if number < count and str(number) == name[-length:]:
                return type
        return None


class Body:
    """A kernel's body while it is read; read it with :meth:`read`. It ends with a ``ret``, whether its text has one or not.

    ``symbols``: the variables and parameters that are known; ``files``: what numbers of files mean.
    """

    def __init__(self, text: Cursor, symbols: set[str], files: Mapping[str, str]) -> None:
        self.text, self.symbols, self.files = text, symbols, files
        self.registers: list[Register] = []
        self.variables: list[Variable] = []
        self.instructions: list[Instruction] = []
        #: instructions whose labels are still names, with their scopes
        self.branches: list[tuple[int, _Scope, tuple[Token, ...]]] = []
        self.cuda: Location | None = None

    def read(self) -> None:
        """Everything up to the closing brace."""
        self.text.want("{")
        self.statements(_Scope(None))
        end = self.text.tokens[self.text.at - 1].line
        self.instructions.append(Instruction("ret", (), (), None, end, self.cuda))
        self._resolve()

    def statements(self, scope: _Scope) -> None:
        """Everything up to the closing brace of ``scope``."""
        while not self.text.has("}"):
            token = self.text.next
            if token.text == "{":
                self.text.take()
                self.statements(_Scope(scope))
            elif token.text == ".reg":
                self.text.take()
                self.declare(scope)
            elif token.text in SPACES:
                self.text.take()
                made = variable(self.text, SPACES[token.text])
                self.variables.append(made)
                self.symbols.add(made.name)
            elif token.text == ".loc":
                self.text.take()
                self.location()
            elif token.text == ".pragma":
                self.text.skip_to(";")
            elif token.text == ".param":
                why = "a function is called here, and functions are not known: all must be inlined"
                raise malformed(
                    why, token.line, "mark the function __forceinline__; leave out printf and assert"
                )
            elif token.kind == "word" and self.text.tokens[self.text.at + 1].text == ":":
                self.label(scope)
            elif token.text != ";" or not self.text.take():
                self.instruction(scope)

    def declare(self, scope: _Scope) -> None:
        """``.reg .f32 %f<8>, x;``."""
        token = self.text.take()
        type = token.text[1:]
        if token.kind != "directive" or type not in WIDTH:
            raise malformed(f"{token.text!r} is no type of a register", token.line)
        while True:
            name = self.text.word("the name of a register").text
            if self.text.has("<"):
                scope.ranges[name] = (self.text.integer(), type)
                self.text.want(">")
            else:
                scope.names[name] = type
            if not self.text.has(","):
                break
        self.text.want(";")

    def location(self) -> None:
        """``.loc file line column[, function_name label[+n], inlined_at file line column]``; line 0 says nothing."""
        file, line, _ = self.text.take().text, self.text.integer(), self.text.integer()
        caller = None
        while self.text.has(","):
            if self.text.word("function_name or inlined_at").text == "inlined_at":
                caller = Location(self.files.get(self.text.take().text, "?"), self.text.integer())
                self.text.integer()
            else:
                self.text.take()
                if self.text.has("+"):
                    self.text.integer()
        if line:
            self.cuda = Location(self.files.get(file, "?"), line, caller)

    def label(self, scope: _Scope) -> None:
        name = self.text.take()
        self.text.want(":")
        if self.text.has(".branchtargets"):
            scope.tables[name.text] = self._names()
            return
        if self.text.next.text in (".callprototype", ".calltargets"):
            self.text.skip_to(";")
            return
        if name.text in scope.labels:
            raise malformed(f"the label {name.text} is there twice", name.line)
        scope.labels[name.text] = len(self.instructions)

    def _names(self) -> tuple[Token, ...]:
        found = [self.text.word("a label")]
        while self.text.has(","):
            found.append(self.text.word("a label"))
        self.text.want(";")
        return tuple(found)

    # ---- an instruction --------------------------------------------------------------------------------------------

    def instruction(self, scope: _Scope) -> None:
        guard = None
        if self.text.has("@"):
            negated = self.text.has("!")
            guard = Guard(self._register(self.text.word("a predicate"), scope), negated)
        token = self.text.word("an instruction")
        opcode, *modifiers = token.text.split(".")
        made = Instruction(opcode, tuple(modifiers), (), guard, token.line, self.cuda)
        if opcode == "call":
            self.text.skip_to(";")
            raise refused("functions are not called: all must be inlined", made, "mark it __forceinline__")
        operands = list[Operand]()
        labels = list[Token]()
        if not self.text.has(";"):
            while True:
                if opcode in ("bra", "brx") and self.text.next.text[0] != "%" and self._is_label(scope):
                    labels.append(self.text.take())
                else:
                    operands.append(self.operand(scope))
                if not self.text.has(","):
                    break
            self.text.want(";")
        if labels:
            self.branches.append((len(self.instructions), scope, tuple(labels)))
        self.instructions.append(
            Instruction(opcode, tuple(modifiers), tuple(operands), guard, token.line, self.cuda)
        )

    def _is_label(self, scope: _Scope) -> bool:
        return self.text.next.kind == "word" and self._find(self.text.next.text, scope) is None

    def operand(self, scope: _Scope) -> Operand:
        if self.text.has("["):
            return self.address(scope)
        if self.text.has("{"):
            found = list[Register | Immediate | Sink]()
            while not self.text.has("}"):
                token, element = self.text.next, self.scalar(scope)
                if not isinstance(element, Register | Immediate | Sink):
                    raise malformed(f"{token.text!r} cannot be part of a vector", token.line)
                found.append(element)
                self.text.has(",")
            return Vector(tuple(found))
        if self.text.has("!"):
            return Negated(self._register(self.text.word("a predicate"), scope))
        token, first = self.text.next, self.scalar(scope)
        if not self.text.has("|"):
            return first
        second = self.scalar(scope)
        if not isinstance(first, Register | Sink) or not isinstance(second, Register | Sink):
            raise malformed("two registers are expected around '|'", token.line)
        return Pair(first, second)

    def scalar(self, scope: _Scope) -> Register | Immediate | Sink | Special | Symbol:
        if self.text.next.text == "-" or self.text.next.kind == "number":
            return self.immediate()
        token = self.text.word("an operand")
        if token.text == "_":
            return Sink()
        if token.text == "WARP_SZ":
            return Immediate(32)
        if token.text in SPECIAL:
            return Special(token.text)
        found = self._find(token.text, scope)
        if found is not None:
            return found
        if token.text in self.symbols:
            return Symbol(token.text, self.text.integer() if self.text.has("+") else 0)
        raise malformed(f"nothing declares {token.text}", token.line, "declare the register or variable")

    def immediate(self) -> Immediate:
        negative, token = self.text.has("-"), self.text.take()
        if token.kind != "number":
            raise malformed(f"a number is expected, not {token.text!r}", token.line)
        value, type = number(token.text)
        if negative:
            value = -value if type == "int" else value ^ (1 << (31 if type == "f32" else 63))
        return Immediate(value, type)

    def address(self, scope: _Scope) -> Address:
        token, base = self.text.next, self.scalar(scope)
        if not isinstance(base, Register | Immediate | Symbol):
            raise malformed(f"{token.text!r} cannot be an address", token.line)
        offset = 0
        while not self.text.has("]"):
            if self.text.next.text == "-":
                offset += self.text.integer()
            else:
                self.text.want("+")
                offset += self.text.integer()
        if isinstance(base, Symbol):
            return Address(Symbol(base.name), base.offset + offset)
        return Address(base, offset)

    # ---- names -----------------------------------------------------------------------------------------------------

    def _find(self, name: str, scope: _Scope | None) -> Register | None:
        """The register of that name in the innermost scope that declares it; it gets its number when first used."""
        while scope is not None:
            if name in scope.registers:
                return scope.registers[name]
            if (type := scope.register_type(name)) is not None:
                made = Register(len(self.registers), name, type)
                self.registers.append(made)
                scope.registers[name] = made
                return made
            scope = scope.parent
        return None

    def _register(self, token: Token, scope: _Scope) -> Register:
        found = self._find(token.text, scope)
        if found is None:
            raise malformed(f"nothing declares {token.text}", token.line, "declare the register")
        return found

    def _resolve(self) -> None:
        """Replaces the labels of branches by numbers of instructions."""
        for at, scope, names in self.branches:
            found = self.instructions[at]
            extra: list[Operand] = [self._target(name, scope) for name in names]
            operands = (*extra, *found.operands) if found.opcode == "bra" else (*found.operands, *extra)
            self.instructions[at] = Instruction(
                found.opcode, found.modifiers, operands, found.guard, found.line, found.cuda
            )

    def _target(self, name: Token, scope: _Scope | None) -> Target | Targets:
        while scope is not None:
            if name.text in scope.labels:
                return Target(name.text, scope.labels[name.text])
            if name.text in scope.tables:
                listed = [self._target(each, scope) for each in scope.tables[name.text]]
                return Targets(tuple(each for each in listed if isinstance(each, Target)))
            scope = scope.parent
        raise malformed(f"there is no label {name.text}", name.line, "define the label")
