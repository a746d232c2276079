"""What a verdict shows of an instance: the rule's variables, and why it is wrong or departs from a policy there."""

from __future__ import annotations

from dataclasses import replace

from tinyc.egraph.numerals import with_numbers

from .judge import Tally, Wrong
from .term import Term, Value, show
from .verdict import Counterexample, Note, Verdict
from .world import World


def noted(world: World, tally: Tally) -> None:
    """Keeps the smallest instance of each departure from the policy of a word."""
    for word, why in tally.departures:
        size = size_of(world)
        if word not in tally.notes or size < tally.notes[word][0]:
            tally.notes[word] = size, Note(word, shown(world), why)


def size_of(world: World) -> int:
    """How much there is to read of an instance."""
    elements = 0
    for leaf in world.context.leaves.values():
        count = 1
        for size in leaf.shape or [each.args[1] for each in leaf.axes]:
            count *= size
        elements += count
    return elements * 4 + len(world.pool_axes()) + len(str(world.env.values()))


def unsound(blank: Verdict, world: World, tally: Tally, wrong: Wrong) -> Verdict:
    """The verdict on a rule with the counterexample ``world``."""
    outcome = wrong.outcome
    variables = (*shown(world), *outcome.values)
    method = "+".join(sorted(outcome.method or {"facts"}))
    left, right = outcome.left, outcome.right
    if not left and not right:  # a fact that is false has no two sides
        left, right = f"{wrong.claim} is claimed", "it is false"
    right = right or wrong.claim
    left, right, why = map(with_numbers, (left, right, f"{wrong.claim}: {outcome.why}"))
    example = Counterexample(variables, left, right, why)
    return replace(
        blank,
        verdict="unsound",
        method=method,
        symbolic=True,
        instances=tally.instances + 1,  # with this one
        why=example.why,
        counterexample=example,
    )


def shown(world: World) -> tuple[tuple[str, str], ...]:
    """The rule's variables and what they stand for."""
    return tuple(
        (name, described(world, value))
        for name, value in world.env.items()
        if "$" not in name and "'" not in name and not name.startswith("_")
    )


def described(world: World, value: Value) -> str:
    """A value for a reader; an opaque term by its dtype and shape or axes."""
    leaves = world.context.leaves
    if isinstance(value, Term) and value in leaves:
        leaf = leaves[value]
        if value.head == "?Expr":
            over = ", ".join(map(repr, leaf.axes))
            return f"any {leaf.dtype} expression over {over}" if over else f"any {leaf.dtype} number"
        what = "buffer" if value.head in ("?Buf", "Arg") else "tensor"
        return f"any {leaf.dtype} {what} of shape {list(leaf.shape)}"
    text = with_numbers(show(value))
    return text.replace("?Expr", "_").replace("?Tensor", "_").replace("?Buf", "_")
