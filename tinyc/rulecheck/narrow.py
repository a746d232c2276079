"""Changes of a rule's body that only narrow it, as far as can be read off: the rule then claims no more than before.

A sum, a minimum or a maximum grows with each operand, a difference falls with its second, and a product or quotient by a
positive number grows with the other. So it is plain in which direction a number in a guard moves the border.
"""

from __future__ import annotations

from collections.abc import Sequence

from .flatten import substituted
from .parse import Call, Lit, Pattern, Rule, Var, variables
from .primitives import PRIMITIVES

_TURNED = {">": "<", ">=": "<="}
_EMPTY = Call("set-empty", ())


def only_narrows(new: Rule, old: Rule) -> bool:
    """Whether every match of ``new`` is one of ``old``, which differs from it in one fact of the body."""
    if new.actions != old.actions or len(new.body) != len(old.body):
        return False
    changed = [k for k, pair in enumerate(zip(new.body, old.body, strict=True)) if pair[0] != pair[1]]
    if len(changed) != 1:
        return False
    (at,) = changed
    others = [fact for k, fact in enumerate(old.body) if k != at]
    return _follows(new.body[at], old.body[at], others, old.actions)


def _follows(new: Call, old: Call, others: Sequence[Call], actions: Sequence[Call]) -> bool:
    """Whether ``new`` implies ``old``. A name that is given to a number is replaced by it wherever it is used."""
    if _implies(new, old):
        return True
    a, b = defined(new), defined(old)
    if a is None or b is None or a[0] != b[0] or a[0] in variables(actions):
        return False
    name = a[0]
    users = [fact for fact in others if name in variables([fact])]
    return bool(users) and all(
        _follows(
            _with(user, name, a[1]), _with(user, name, b[1]), [x for x in others if x is not user], actions
        )
        for user in users
    )


def _with(fact: Call, name: str, value: Pattern) -> Call:
    found = substituted(fact, {name: value})
    assert isinstance(found, Call)
    return found


def defined(fact: Call) -> tuple[str, Call] | None:
    """The name and the number of a fact that names what a primitive computes."""
    if fact.head != "=" or len(fact.args) != 2:
        return None
    for name, value in (fact.args, fact.args[::-1]):
        if isinstance(name, Var) and isinstance(value, Call) and value.head in PRIMITIVES:
            return None if name.name in variables([value]) else (name.name, value)
    return None


def _implies(new: Call, old: Call) -> bool:
    before, after = _empty(old), _empty(new)
    if before is not None and after is not None:
        return (before.head, after.head) == ("set-intersect", "set-union") and before.args == after.args
    sides, others = _compared(new), _compared(old)
    if sides is None or others is None:
        return False
    (a, b, strict), (c, d, was) = sides, others
    return (strict or not was) and moved(a, c) in (0, 1) and moved(b, d) in (0, -1)


def _empty(fact: Call) -> Call | None:
    """The set that a fact says is empty."""
    if fact.head == "=" and len(fact.args) == 2 and _EMPTY in fact.args:
        other = fact.args[1 - fact.args.index(_EMPTY)]
        return other if isinstance(other, Call) else None
    return None


def _compared(fact: Call) -> tuple[Pattern, Pattern, bool] | None:
    """``(x, y, strict)`` of ``x < y`` or ``x <= y``."""
    if len(fact.args) != 2:
        return None
    head, (x, y) = fact.head, fact.args
    if head in _TURNED:
        head, x, y = _TURNED[head], y, x
    return (x, y, head == "<") if head in ("<", "<=") else None


def moved(new: Pattern, old: Pattern) -> int | None:
    """1 where ``new`` is never less than ``old``, -1 where it is never more, 0 where they are the same, None if neither is plain."""
    if new == old:
        return 0
    if isinstance(new, Lit) and isinstance(old, Lit):
        if not (isinstance(new.value, int) and isinstance(old.value, int)):
            return None
        return 1 if new.value > old.value else -1
    if not (isinstance(new, Call) and isinstance(old, Call)) or len(new.args) != len(old.args):
        return None
    if new.head != old.head:
        if new.args != old.args:
            return None
        if {new.head, old.head} == {"min", "max"}:
            return 1 if new.head == "max" else -1
        if {new.head, old.head} == {"+", "-"} and len(new.args) == 2 and _positive(new.args[1]):
            return 1 if new.head == "+" else -1
        return None
    parts = [moved(x, y) for x, y in zip(new.args, old.args, strict=True)]
    match new.head:
        case "+" | "min" | "max":
            pass
        case "-":
            turned = parts[-1]
            parts[-1] = None if turned is None else -turned
        case "*" if _positive(new.args[0]) and parts[0] == 0:
            pass
        case "*" | "/" if _positive(new.args[1]) and parts[1] == 0:
            pass
        case _:
            return None
    found = set(parts) - {0}
    return found.pop() if len(found) == 1 else None


def _positive(pattern: Pattern) -> bool:
    return isinstance(pattern, Lit) and isinstance(pattern.value, int) and pattern.value > 0
