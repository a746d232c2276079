"""Terms as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinyc.extract.view import LEVEL
from tinyc.ir.dtypes import DType, from_bits

from .terms import Term, Terms

MAX_TEXT = 400
"""Characters of one term; what is longer is cut in its middle."""

MAX_SPELLED = 4 * MAX_TEXT
"""Characters of one that is part of others: a value that is used often is spelled often, and no text may grow without
bound."""

_INFIX = {"ADD": "+", "SUB": "-", "MUL": "*", "FDIV": "/", "CMPLT": "<", "CMPNE": "!=", "CMPEQ": "=="}


class Speller:
    """Spells terms. ``tensors``: the document's name of a tensor. ``buffers``: name of a buffer class. ``inputs``: names
    of the program's inputs."""

    def __init__(
        self, terms: Terms, tensors: Mapping[Term, str], buffers: Mapping[str, str], inputs: Sequence[str]
    ) -> None:
        self.terms = terms
        self.tensors = tensors
        self.buffers = buffers
        self.inputs = inputs
        self._texts: dict[Term, str] = {}

    def buffer(self, cls: str) -> str:
        return self.buffers.get(cls, cls)

    def text(self, term: Term, limit: int = MAX_TEXT) -> str:
        """A term on one line, its middle cut out where it is longer than ``limit`` characters."""
        return _cut(self._whole(term), limit)

    def definition(self, tensor: Term) -> str:
        """What a tensor with a name is computed by: ``n2 = relu(n1)``."""
        for arg in tensor.operands():
            self._whole(arg)
        return f"{self.tensors[tensor]} = {self._spelled(tensor, named=False)}"

    def _whole(self, term: Term) -> str:
        stack = [term]
        while stack:
            each = stack[-1]
            missing = (
                [] if each in self.tensors else [arg for arg in each.operands() if arg not in self._texts]
            )
            if missing and each not in self._texts:
                stack += missing
                continue
            stack.pop()
            if each not in self._texts:
                text = self._spelled(each)
                # a value that is used often is spelled often: no text may grow without bound
                self._texts[each] = _cut(text, MAX_SPELLED)
        return self._texts[term]

    def _spelled(self, term: Term, named: bool = True) -> str:
        if named and term in self.tensors:
            return self.tensors[term]
        parts = [
            self._texts[arg] if isinstance(arg, Term) else str(arg).removeprefix("'") for arg in term.args
        ]
        match term.op, parts:
            case ("vec-of", _):
                return ", ".join(parts)
            case ("set-of", _):
                return "{" + ", ".join(parts) + "}"
            case ("buffer", _):
                return self.buffer(term.cls)
            case ("Lit", [value]):
                return value
            case ("Ax", [id, _]):
                return axis_text(int(id))
            case ("FloorDiv" | "IDiv" | "DivEnd", [index, den]):
                return f"({index})//{den}"
            case ("Plus", [coefficient, atom, rest]):
                return _sum(coefficient, atom, rest)
            case ("IAdd", [left, right]):
                return f"({left}) + ({right})"
            case ("IScale", [factor, index]):
                return f"{factor}*({index})"
            case ("DivAcc", [kept, todo, den]):
                return f"({kept} + {todo})//{den}"
            case ("Subst", [vector, index]):
                return f"({index} at [{vector}])"
            case ("Ravel", [_, _, count]):
                vector, sizes = (self._first(arg, int(count)) for arg in term.args[:2])
                return f"ravel([{vector}], [{sizes}])"
            case ("At", [tensor, index]):
                return f"{tensor}[{index}]"
            case ("Read", [buffer, index]):
                return f"load {buffer}[{index}]"
            case ("Arg", [number]):
                return self.inputs[int(number)] if int(number) < len(self.inputs) else f"input {number}"
            case ("Input", [number]):
                return self.inputs[int(number)] if int(number) < len(self.inputs) else f"input {number}"
            case ("Fill", [dtype, shape, value]):
                return f"fill {dtype}[{shape}] with {value}"
            case ("Alias", [shape, buffer]):
                return f"[{shape}] as {buffer}"
            case ("Const" | "Imm", [dtype, bits]):
                return constant_text(dtype, int(bits))
            case ("Within", [index, low, high]):
                return f"{low} <= {index} < {high}"
            case ("Select" | "TWhere", [condition, then, other]):
                return f"({condition} ? {then} : {other})"
            case ("Unary" | "TUnary", [op, x]):
                return f"{op.lower()}({x})"
            case ("Binary" | "TBinary", [op, x, y]):
                return f"({x} {_INFIX[op]} {y})" if op in _INFIX else f"{op.lower()}({x}, {y})"
            case ("Cast" | "TCast", [dtype, x]):
                return f"{dtype}({x})"
            case ("Reduce", [op, axes, body]):
                return f"{op.lower()}_{{{axes}}} {body}"
            case ("Stream", [axes, score, weight, scale]):
                return f"stream_{{{axes}}}({score}, {weight}, scale {constant_text('fp32', int(scale))})"
            case ("RoundedStream", [dtype, axes, score, weight, scale]):
                of = f"{score}, {weight}, scale {constant_text('fp32', int(scale))}"
                return f"stream_{{{axes}}}({of}, in {dtype})"
            case ("TReduce", [op, count, x]):
                return f"{op.lower()} over the last {count} of {x}"
        kinds = self.terms.whole.language.symbols[term.op].args
        listed = [
            f"[{text}]" if kind in ("Ints", "Ixs") else text for text, kind in zip(parts, kinds, strict=True)
        ]
        return f"{term.op.lower()}({', '.join(listed)})"

    def _first(self, vector: Term | int | str, count: int) -> str:
        assert isinstance(vector, Term)
        return ", ".join(
            self._texts[arg] if isinstance(arg, Term) else str(arg) for arg in vector.args[:count]
        )


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit * 2 // 3]} … {text[-limit // 3 :]}"


def axis_text(id: int) -> str:
    """``i0, i1, …`` for the axes of a kernel, ``r0, r1, …`` for those that reductions bind."""
    return f"i{id}" if id < LEVEL else f"r{id - LEVEL}"


def constant_text(dtype: str, bits: int) -> str:
    try:
        value = from_bits(bits, DType(dtype))
    except (ValueError, OverflowError):
        return f"{dtype}:{bits}"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _sum(coefficient: str, atom: str, rest: str) -> str:
    term = atom if coefficient == "1" else f"-{atom}" if coefficient == "-1" else f"{coefficient}*{atom}"
    if rest == "0":
        return term
    return f"{term} - {rest[1:]}" if rest.startswith("-") else f"{term} + {rest}"
