"""Which rules made something that survives in the chosen program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tinyc.egraph.sexpr import Sexpr, head
from tinyc.extract.choice import Choice

from .matches import Match, Matches
from .terms import Node, subterms

if TYPE_CHECKING:
    from .explain import Derivation


def survivors(found: Derivation, choice: Choice) -> dict[str, int]:
    """Per rule, the chosen e-nodes that it builds. A rule that takes something away (``x * 1 == x``) builds nothing: it
    counts by its steps. A rule that found a contraction counts where that was chosen."""
    chosen = {
        found.terms.root(each)
        for goal in found.goals.values()
        for each in subterms(goal.term)
        if each.op in found.terms.whole.language.symbols
    }
    steps = Counter(link.move.instance.rule for chain in found.chains for link in chain.links)
    via = Counter(
        rule for chain in found.chains for link in chain.links for rule in link.move.instance.because
    )
    given = {found.terms.root(each) for chain in found.chains for each in subterms(chain.start)}
    built = _builders(found.matches, chosen, given)
    by_steps = {node for rule in {*steps, *via} for node in built.get(rule, ())}
    counts: Counter[str] = Counter()
    for rule, nodes in built.items():
        # several rules may build one e-node: those of the derivation have made it, where there are any
        own = nodes if rule in steps or rule in via else nodes - by_steps
        counts[rule] = len(own)
    for rule, count in (*steps.items(), *via.items()):
        counts[rule] = counts[rule] or count
    counts.update(_contractions(found.matches, choice))
    return {rule.removesuffix(" (right to left)"): count for rule, count in sorted(counts.items()) if count}


def _builders(matches: Matches, chosen: set[Node], given: set[Node]) -> dict[str, set[Node]]:
    """Per rule, the chosen e-nodes on its right-hand sides. ``given``: what chains start from; a rule that only makes it
    equal to something has not made it."""
    found: dict[str, set[Node]] = {}
    for match in matches.matches:
        record = match.record
        added = {node for part in record.adds for node in _nodes(matches, part, match)}
        equal = (*(side for _, side in record.unions), *record.values.values())
        made = {node for part in equal for node in _nodes(matches, part, match)} - given
        if kept := (added | made) & chosen:
            found.setdefault(record.rule, set()).update(kept)
    return found


def _nodes(matches: Matches, expression: Sexpr, match: Match) -> Iterator[Node]:
    if not isinstance(expression, tuple):
        return
    node = matches.node(expression, match.values)
    if node is not None:
        yield node
    for part in expression[1:]:
        yield from _nodes(matches, part, match)


def _contractions(matches: Matches, choice: Choice) -> Counter[str]:
    """The rules of which a fact is a contraction that was chosen."""
    chosen = {
        (cls, *item.children)
        for kernel in choice.kernels
        for (cls, _), item in kernel.items.items()
        if item.head == "Contract"
    }
    counts: Counter[str] = Counter()
    for match in matches.matches:
        for added in match.record.adds:
            if head(added) == "contracts":
                key = matches.key(added, match.values)
                if key is not None and (key[1][0], key[1][2], key[1][3]) in chosen:
                    counts[match.record.rule] += 1
    return counts
