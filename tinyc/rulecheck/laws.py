"""The laws of rules/README.md that can be read off one rule: equation, size, guards, words, growth, order."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tinyc.ir.dtypes import DType

from .atoms import Arg, Atom, Atoms, signature
from .growth import grows
from .listed import unlisted
from .parse import Call, Lit, Pattern, Rule, Schema, calls, variables
from .sorting import ill_sorted, unbound
from .types import misspelt

MAX_CONSTRUCTORS = 4
"""On a left-hand side (rules/README.md, law 5)."""

ARITHMETIC = frozenset(
    ["Unary", "Binary", "Cast", "Reduce", "Stream", "RoundedStream", "TUnary", "TBinary", "TCast", "TReduce"]
)
"""Constructors whose value depends on the dtype."""

STREAMS = ("Stream", "RoundedStream")
"""Of fp32 alone, as what they are made of: they say the dtype."""

RANKED = frozenset(
    ["vec-length", "set-length", "shape", "axes-upto", "top-axis-upto", "ixs-axes", "ops-upto"]
)
"""What says how long a vector of indices or a shape is."""

PLACED = frozenset(["vec-get", "vec-set", "vec-remove"])
"""What fails, or means something else, in a vector that is shorter or longer than the rule thinks."""


FIXED = frozenset(["vec-of", "vec-empty", "vec-push", "vec-pop"])
"""What makes a vector of so many indices, whatever the rank of the tensor is."""


@dataclass(frozen=True)
class Written:
    """A rule with how it is written: ``comment`` is its equation, ``generic`` whether it is declared so. ``taken``: the
    words that are declared above it, and what each is and where. ``subsumes``: whether it has that option."""

    rule: Rule
    atoms: Atoms
    comment: str
    generic: bool
    phase: str
    taken: Mapping[str, str]
    subsumes: bool

    @property
    def unites(self) -> bool:
        return any(action.head == "union" for action in self.rule.actions)

    @functools.cached_property
    def signature(self) -> tuple[object, ...]:
        """The same for rules that are alike."""
        return signature(self.atoms)

    @property
    def calls(self) -> list[Call]:
        return [call for part in (*self.rule.body, *self.rule.actions) for call in calls(part)]


def broken(written: Written, schema: Schema) -> Iterator[tuple[str, str]]:
    """(kind of finding, why) for every law that a rule breaks."""
    rule = written.rule
    if rule.direction != "<=":  # a birewrite has one comment
        yield from (("no-equation", why) for why in _equation(written))
    count = sum(atom.kind == "term" for atom in written.atoms.body)
    if count > MAX_CONSTRUCTORS and "constructor" not in written.comment:
        why = f"{count} constructors on the left-hand side, of at most {MAX_CONSTRUCTORS}, and no word on why"
        yield "large-left-side", why
    if not written.generic:
        yield from (("no-guard", why) for why in _guards(written, schema))
    misfits = list(_misfits(rule, schema)) or [*ill_sorted(rule, schema), *unbound(rule)]
    yield from (("refused", why) for why in misfits)
    words = [*misspelt((*rule.body, *rule.actions)), *unlisted(rule, schema)]
    yield from (("misspelt", why) for why in words)
    if not misfits and grows(written.atoms, schema):
        yield "grows", "it matches what it makes, larger each time: on its own it never ends"
    for name in variables((*rule.body, *rule.actions)):
        if name in written.taken:
            yield (
                "shadows",
                f"the variable {name} has the name of the {written.taken[name]}, which the engine refuses",
            )
    yield from (("reorders", why) for why in _reorders(written))
    if written.phase != "check" and any(action.kind == "panic" for action in written.atoms.actions):
        yield "stops", f"panic ends the run, in phase {written.phase or '?'}"
    removed = [action.head for action in rule.actions if action.head in ("delete", "subsume")]
    if removed or written.subsumes:
        yield "removes", f"{(removed or ['subsume'])[0]} takes a term out, and a rule never chooses"


COMMANDS = MappingProxyType({"union": 2, "set": 2, "let": 2, "panic": 1, "delete": 1, "subsume": 1})
"""Actions, and how many arguments each takes."""


def _misfits(rule: Rule, schema: Schema) -> Iterator[str]:
    """What the engine would refuse: words that nothing declares, calls with too few or too many arguments."""
    for part in (*rule.body, *rule.actions):
        for call in calls(part):
            for arg in call.args:
                if isinstance(arg, Lit) and type(arg.value) is int and not -(2**63) <= arg.value < 2**63:
                    yield f"{_short(str(arg))} is no number of 64 bits"
            declared = schema.signature(call.head)
            wanted = (
                len(declared.args) if declared else COMMANDS.get(call.head) if part in rule.actions else None
            )
            if wanted is not None and len(call.args) != wanted:
                yield f"{call.head} takes {_plural(wanted, 'argument')}, and has {len(call.args)} in {_short(str(call))}"
            elif wanted is None and call.head == "=" and len(call.args) < 2:
                yield f"{_short(str(call))} compares nothing"
            elif not declared and (call.head[:1].isupper() or (wanted is None and call in rule.actions)):
                yield f"nothing declares {call.head}"


def _equation(written: Written) -> Iterator[str]:
    comment = written.comment
    if not comment:
        yield "no comment above the rule, and none above its group"
    elif written.unites and not re.search(r"\S.*==\s*\S", comment):
        yield f"it makes two terms equal, and its comment has no equation `left == right`: {_short(comment)}"
    elif not written.unites and not re.search(r"\S\s*[=<>]|\S if \S", comment):
        yield f"it adds facts, and its comment says none, `fact if condition`: {_short(comment)}"


def _guards(written: Written, schema: Schema) -> Iterator[str]:
    """What a rule that unites terms must say of dtype and rank."""
    if not written.unites:
        return
    rule = written.rule
    heads = {call.head for call in written.calls}
    if heads & ARITHMETIC and not _has_dtype(rule.body, schema, frozenset()):
        yield f"it rewrites {', '.join(sorted(heads & ARITHMETIC))} of any dtype: nothing on its left-hand side says which"
    asked = {call.head for part in rule.body for call in calls(part)}
    placed = [call for part in rule.actions for call in calls(part) if call.head in PLACED]
    fixed = [
        call for call in written.calls if call.head in PLACED and len(call.args) > 1 and isinstance(call.args[1], Lit)
    ]  # fmt: skip
    if (placed or fixed) and not asked & RANKED:
        yield f"{_short(str((placed or fixed)[0]))} asks for a place in a vector: nothing on its left-hand side says how long it is"
    for call in (call for part in rule.actions for call in calls(part) if call.head in ("At", "Read")):
        index = call.args[-1] if call.args else None
        if isinstance(index, Call) and index.head in FIXED and not asked & RANKED:
            yield f"{_short(str(call))} has so many indices: nothing on its left-hand side says which rank is indexed"


def _has_dtype(body: Sequence[Pattern], schema: Schema, above: frozenset[str]) -> bool:
    """Whether a left-hand side says something of a dtype: itself, or through relations that hold of some dtypes only."""
    dtypes = {dtype.value for dtype in DType}
    found = [call for part in body for call in calls(part)]
    if any(call.head in ("dtype", "dtype-of", *STREAMS) or _of_bool(call) for call in found):
        return True
    if any(isinstance(arg, Lit) and arg.value in dtypes for call in found for arg in call.args):
        return True
    heads = {call.head for call in found if call.head in schema.relations}
    if heads & above:
        return True  # it says as much as the rules do from which it starts
    for head in heads:
        if any(value in dtypes for row in schema.facts.get(head, ()) for value in row):
            return True
        makers = [
            rule for rule in schema.rules.values() if any(action.head == head for action in rule.actions)
        ]
        if makers and all(_has_dtype(rule.body, schema, above | {head}) for rule in makers):
            return True
    return False


def _of_bool(call: Call) -> bool:
    """Whether a term operates on conditions of indices."""
    return call.head in ("Binary", "TBinary") and any(
        isinstance(arg, Call) and arg.head in ("Within", "Valid") for arg in call.args
    )


def _reorders(written: Written) -> Iterator[str]:
    """Operands of one operator, all of them variables, given back in another order or grouping. A guard that says of which
    dtype makes it no less general."""
    body, made, actions = written.atoms.body, written.atoms.made, written.atoms.actions
    if len(actions) != 1 or actions[0].kind != "union" or not all(map(_of_dtypes, body)):
        return
    terms = [atom for atom in (*body, *made) if atom.kind == "term"]
    if len({(atom.head, atom.args[0]) for atom in terms}) != 1 or terms[0].head not in ("Binary", "TBinary"):
        return
    parts = {atom.out: atom.args[1:] for atom in terms}
    before, after = (sorted(_operands(each, parts)) for each in actions[0].args)
    if before == after and len(set(before)) > 1:
        yield f"it only reorders {', '.join(before)}: general commutativity and associativity explode"


def _of_dtypes(atom: Atom) -> bool:
    """Whether an atom of a left-hand side is a term, or speaks of dtypes alone."""
    return atom.kind == "term" or atom.head in ("dtype", "dtype-of", "accumulator", "float-dtype", "!=")


def _operands(of: Arg, parts: Mapping[Arg | None, tuple[Arg, ...]]) -> list[str]:
    """What is operated on, however it is grouped; an operand that is made of itself is one."""
    found, todo, opened = list[str](), [of], set[Arg]()
    while todo:
        each = todo.pop()
        if each in parts and each not in opened:
            opened.add(each)
            todo += parts[each]
        else:
            found.append(str(each))
    return found


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _short(text: str, limit: int = 80) -> str:
    return repr(text if len(text) <= limit else f"{text[: limit - 1]}…")
