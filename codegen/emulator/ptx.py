"""What a PTX text says, as data: the output of :func:`.parse.parse_ptx`.

Names are resolved: a register is the register that its scope declares, a label is the number of an instruction.
Nothing here knows what an instruction does. Terms are those of the PTX ISA, "PTX Module and Kernel" and "Instruction
Operands".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the CUDA source, from ``.loc``. ``caller``: where the function that holds it was inlined."""

    file: str
    line: int
    caller: Location | None = None

    def __str__(self) -> str:
        inlined = f", inlined at {self.caller.line}" if self.caller else ""
        return f"{self.file}:{self.line}{inlined}"


@dataclass(frozen=True, slots=True)
class Register:
    """``number``: its index among the registers of the kernel. ``type``: as declared, "f32" or "pred" for instance."""

    number: int
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Negated:
    """``!%p`` as an operand."""

    register: Register


@dataclass(frozen=True, slots=True)
class Immediate:
    """``value``: an integer, or the bits of a float where ``type`` is "f32" or "f64" (a decimal one has "f64")."""

    value: int
    type: str = "int"


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, ``%tid.x`` for instance."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or parameter, ``offset`` bytes on."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``; the base of ``[128]`` is an immediate 0."""

    base: Register | Symbol | Immediate
    offset: int


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a result that nobody wants."""


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, …}``."""

    elements: tuple[Register | Immediate | Sink, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``a|b``: two results."""

    first: Register | Sink
    second: Register | Sink


@dataclass(frozen=True, slots=True)
class Target:
    """A label, as the number of the instruction that follows it."""

    label: str
    at: int


@dataclass(frozen=True, slots=True)
class Targets:
    """What ``.branchtargets`` lists."""

    targets: tuple[Target, ...]


Operand = (
    Register | Negated | Immediate | Special | Symbol | Address | Sink | Vector | Pair | Target | Targets
)


@dataclass(frozen=True, slots=True)
class Guard:
    """``@%p`` or ``@!%p``."""

    register: Register
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """``line``: of the PTX text. ``cuda``: the place in the CUDA source behind it, where the text says so."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    cuda: Location | None

    @property
    def name(self) -> str:
        """``mad.lo.s32``."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Variable:
    """``space``: shared, global, const or local. ``size``: bytes; None for dynamic shared memory.

    ``initial``: its first bytes; what follows is zero. None: nothing was said (zero in global and const memory).
    """

    name: str
    space: str
    alignment: int
    size: int | None
    initial: bytes | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """``offset``: in the bytes that hold all parameters of the kernel."""

    name: str
    type: str
    size: int
    alignment: int
    offset: int


@dataclass(frozen=True)
class Kernel:
    """One ``.entry``. ``block``: the sizes of ``.maxntid`` or ``.reqntid``, ``exact`` for the latter."""

    name: str
    parameters: tuple[Parameter, ...]
    registers: tuple[Register, ...]
    variables: tuple[Variable, ...]
    instructions: tuple[Instruction, ...]
    line: int
    block: tuple[int, ...] | None = None
    exact: bool = False


@dataclass(frozen=True)
class Module:
    target: str
    variables: tuple[Variable, ...]
    kernels: Mapping[str, Kernel]
