"""From an instruction's name to what it computes."""

from __future__ import annotations

from .approximate import approximate
from .compare import comparison
from .convert import conversion
from .floating import floating
from .integer import integer
from .logic import logic
from .types import Operation
from .video import video

KINDS = (integer, logic, floating, conversion, approximate, video)


def operation(opcode: str, modifiers: tuple[str, ...], results: int = 1) -> Operation | None:
    """What an instruction computes: ``operation("mad", ("lo", "s32"))`` for ``mad.lo.s32``; None where it is not known.

    Modifiers count in the order of the PTX ISA. ``results`` is the number of registers that the instruction writes, which
    matters for ``setp p|q`` alone (see :func:`compare.comparison`).

    A carry (``add.cc``, ``addc``, ...) is a predicate: the last result of what gives one, the last operand of what takes one. An
    operand narrower than its register (``cvt.s32.s8``) is asked for in its own width ("s8" is uint8), and a result alike: the
    caller takes the lowest bits, and extends a result by its sign where the type is signed.
    """
    found = comparison(opcode, modifiers, results)
    for kind in KINDS:
        found = found or kind(opcode, modifiers)
    return found
