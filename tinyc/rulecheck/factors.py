"""The axes on which the factors of a contraction depend, so that each axis has one role."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .parse import Lit, Var
from .steps import Arg, Case
from .term import Term

if TYPE_CHECKING:
    from .instantiate import Attempt


@dataclass(frozen=True)
class Factor:
    """``side``: left or right. ``summed``, ``own``, ``others``: what stands for the axes of these roles."""

    side: str
    summed: Arg
    own: Arg
    others: Arg


def factor_of(case: Case, name: str) -> Factor | None:
    """Which factor of a contraction an expression is, or is made into, if any."""
    for step, _ in case.uses[name]:
        if step.kind == "term" and step.head in ("Unary", "Cast") and isinstance(step.out, Var):
            return factor_of(case, step.out.name)
    for step in case.steps:
        if step.kind == "predicate" and step.args[0] == Lit("roles"):
            _, left, right, summed, _, m, n = step.args
            for side, arg, own, others in (("left", left, m, n), ("right", right, n, m)):
                made = case.produced.get(arg.name, ()) if isinstance(arg, Var) else ()
                if made and made[0].args[0] == Var(name):
                    return Factor(side, summed, own, others)
    return None


def axes_of_factor(
    attempt: Attempt, factor: Factor, pool: Sequence[Term], bound: Collection[Term]
) -> list[Term]:
    """Those that are summed (or ``bound``, where it is not known which are), its own, and those of the batch."""

    def known(arg: Arg) -> Collection[Term] | None:
        return attempt.get(arg) if attempt.bound(arg) else None

    inner = 16 if attempt.number % 5 else 32  # a contraction may be part of a larger reduction
    summed, own, others = known(factor.summed), known(factor.own), known(factor.others) or ()

    def has(each: Term) -> bool:
        if each in (bound if summed is None else summed) or each in (own or ()):
            return True
        role = attempt.roles.get(each)
        mine = role == "batch" or (own is None and role == factor.side)
        return mine and each.args[0] < inner and each not in others

    return list(filter(has, pool))
