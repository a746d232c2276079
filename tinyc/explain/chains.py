"""A kernel's chain: from the naive expression of its buffer to the one that was chosen."""

from __future__ import annotations

from dataclasses import dataclass

from .derive import Deriver, Move
from .goals import Goal
from .terms import BUFFER, Term, Terms, Unexplained, subterms


@dataclass(frozen=True, eq=False)
class Link:
    """One rule applied in one kernel. ``before`` and ``after`` are what fills its buffer; None in a chain that was asked
    for without."""

    buffer: str
    move: Move
    before: Term | None
    after: Term | None


@dataclass(frozen=True)
class Chain:
    """The links of one kernel. ``start`` and ``end``: what fills its buffer. ``why``: what is not explained."""

    buffer: str
    start: Term
    end: Term
    links: tuple[Link, ...]
    why: str = ""


@dataclass(eq=False)
class _Place:
    """A value of the kernel on its way. ``term`` until its root is that of ``goal``, then ``children``."""

    goal: Term
    term: Term
    children: tuple[_Place | None, ...] | None = None


def chain(deriver: Deriver, start: Term, goal: Goal, wholes: bool = True) -> Chain:
    """The steps from ``start`` to the chosen term. A value that is used several times is rewritten once. ``wholes``: with
    the whole kernel at every step, which takes time and memory as the square of its size.

    The places are worked off from the root down, each after all that use it, so that what they share is shared.
    """
    links: list[Link] = []
    root = _Place(goal.term, start)
    waiting: dict[Term, dict[Term, _Place]] = {goal.term: {start: root}}
    whole = start
    for wanted in reversed(subterms(goal.term)):
        for place in tuple(waiting.get(wanted, {}).values()):
            if place.term is wanted:
                continue
            try:
                moves = deriver.reach(place.term, deriver.terms.root(wanted))
            except Unexplained as error:
                return Chain(goal.buffer, start, whole, tuple(links), str(error))
            for move, after in moves:
                place.term = after
                if not wholes:
                    links.append(Link(goal.buffer, move, None, None))
                    continue
                new = _expanded(deriver.terms, root)
                links.append(Link(goal.buffer, move, whole, new))
                whole = new
            place.children = tuple(
                waiting.setdefault(child, {}).setdefault(arg, _Place(child, arg))
                if isinstance(child, Term) and isinstance(arg, Term)
                else None
                for child, arg in zip(wanted.args, place.term.args, strict=True)
            )
    whole = whole if wholes else _expanded(deriver.terms, root)
    if whole is not goal.term:
        return Chain(goal.buffer, start, whole, tuple(links), "the chain ends elsewhere")
    return Chain(goal.buffer, start, whole, tuple(links))


def _expanded(terms: Terms, root: _Place) -> Term:
    done: dict[_Place, Term] = {}
    stack = [root]
    while stack:
        place = stack[-1]
        if place in done:
            stack.pop()
        elif place.children is None:
            done[place] = place.term
            stack.pop()
        else:
            missing = [child for child in place.children if child is not None and child not in done]
            if missing:
                stack += missing
                continue
            stack.pop()
            args = [
                arg if child is None else done[child]
                for child, arg in zip(place.children, place.term.args, strict=True)
            ]
            done[place] = terms.with_args(place.term, args)
    return done[root]


def naive_fill(terms: Terms, cls: str, tensor: Term) -> Term:
    """What fills an output buffer before any rule: the elements of its tensor, over axes 0, 1, …"""
    whole = terms.whole
    for node in whole.nodes[cls]:
        if node.op != "Fill":
            continue
        for inner in whole.nodes[str(node.args[2])]:
            if inner.op == "At" and inner.args[0] == tensor.cls:
                index = terms.least(str(inner.args[1]))
                if _plain(index):
                    element = terms.make("At", [tensor, index])
                    return terms.make("Fill", [node.args[0], terms.least(str(node.args[1])), element])
    raise Unexplained(f"buffer {cls} is not filled with its tensor")


def _plain(index: Term) -> bool:
    """Whether an index vector is the axes 0, 1, … in order, and 0 for an axis of one point."""
    number = 0
    for part in index.args:
        match part:
            case Term("Lit", (0,)):
                continue
            case Term("Plus", (1, Term("Ax", (id, _)), Term("Lit", (0,)))) if id == number:
                number += 1
            case _:
                return False
    return True


def read_buffers(term: Term) -> tuple[str, ...]:
    """Classes of the buffers of other kernels that a term reads, in order."""
    return tuple(each.cls for each in subterms(term) if each.op == BUFFER)
